"""What is known over several versions of the attributes (docs/proofs, Theorem 33)."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from stream_dp.core.budget.parameters import Aim
from stream_dp.core.mechanism import Look
from stream_dp.core.outcome import Path
from stream_dp.core.queries.query import EVERYTHING, LinearQuery
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.looks.composed_looks import JoinedLook
from stream_dp.core.rows.attribute_versions import Declared
from stream_dp.core.rows.attributes import Number
from stream_dp.core.rows.blocks import Block
from tests.core.residual.host import cells
from tests.core.residual.least_squares import Measured, least_squares
from tests.core.residual.versioned import NEW, Versioned, merging

CASES: dict[str, dict[str, Any]] = {
    "an old value": {"city": [0]},
    "all but an old value": {"city": [1, 2, 3]},
    "a new value": {"city": [2]},
    "an old edge": {"age": [3]},
    "a new edge": {"age": [2, 3]},
    "a new attribute": {"vip": [1]},
    "two": {"city": [0], "age": [2, 3]},
    "all three": {"city": [0, 2], "age": [0], "vip": [0, 2]},
}


def _by_least_squares(host: Versioned, query: LinearQuery, block: int) -> float:
    """The variance of the best linear unbiased estimate from all tables of one block, cell by cell."""
    shape, history = host.schema.shape_at(block), []
    every: Any = (part for look in host.taken for part in getattr(look, "parts", ()))
    for part in (part for part in every if part.block == block):
        assert not part.groups, "no attribute is counted in groups here"
        nothing = np.zeros([shape[a] for a in part.attributes])
        variance = float(grid_sigma(part.step)) ** 2
        history.append(Measured(part.attributes, part.block, nothing, variance))
    (mask,) = (
        np.broadcast_to(part.query.predicate.along(range(len(shape))), shape).astype(float)
        for part in host.state.versions.parts(query) or ()
        if block in part.query.window
    )
    return float(least_squares(shape, [mask], history, range(block, block + 1))[1][0])


@pytest.mark.parametrize("chosen", CASES.values(), ids=CASES)
def test_variances_are_those_of_generalised_least_squares(chosen: dict[str, Any]) -> None:
    host = Versioned(1, base_share=0.3)
    query = LinearQuery(host.where(**chosen), host.window)
    best = sum(_by_least_squares(host, query, block) for block in host.window)
    assert host.state.evidence(query).variances[0] == pytest.approx(best, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("chosen", CASES.values(), ids=CASES)
@pytest.mark.parametrize("aim", [None, Aim(0.02)], ids=["an error", "an aim"])
def test_answers_are_what_is_recorded_but_for_their_bars(
    chosen: dict[str, Any], aim: Aim | None
) -> None:
    """With little noise all of them are close, whether they are looked at or not."""
    host = Versioned(2, beta=1e-9, aim=aim)
    for group_by in ((), ("city",), ("vip", "age")):
        query = LinearQuery(host.where(**chosen), host.window, tuple(map(host.index, group_by)))
        found, exact = cells(host.ask(query)), host.recorded(query)
        for cell, rows in zip(found, exact.tolist(), strict=True):
            bar = 1.0 if cell.error_bar is None else cell.error_bar
            assert abs(cell.estimate - rows) <= bar * cell.n + 1e-6


@pytest.mark.parametrize("name", ["city", "age", "vip"])
def test_a_look_reads_each_version_in_its_own_cells(name: str) -> None:
    host = Versioned(2, base_share=0.0, error=0.005)
    query = LinearQuery(EVERYTHING, host.window, (host.index(name),))
    step = host.mechanism.answer(query)
    assert isinstance(step, Look)
    look: Any = getattr(step, "look", step)
    assert isinstance(look, JoinedLook) or name == "vip"
    for one in getattr(look, "looks", (look,)):
        for block, _ in one.steps:
            assert host.schema.has(block, one.attributes)
    host.ask(query)
    again = host.ask(query)
    assert getattr(again, "path", None) in (Path.REPEAT, Path.CERTIFIED)


def test_what_is_unrecorded_is_bounded() -> None:
    """All rows that satisfy a query are among those recorded and those that are not."""
    host = Versioned(1, beta=1e-6, base_share=0.3)
    for chosen in CASES.values():
        predicate = host.where(**chosen)
        query = LinearQuery(predicate, host.window)
        known, recorded = host.state.versions.recorded(query), host.recorded(query)[0]
        full = host.schema.newest.universe
        truth = 0
        for block, columns in enumerate(host.sent):
            said = {name: columns[name] for name in full.names}
            if block < 1:
                said["vip"] = [None] * len(said["city"])
            codes = full.encode_columns(said).codes
            mask = predicate.mask[tuple(codes[a] for a in predicate.attributes)]
            truth += int(np.count_nonzero(mask))
        if not known.at_most:
            assert truth == recorded, chosen
        else:
            assert recorded <= truth <= recorded + known.at_most[0], chosen
            assert known.since == 1


def test_two_old_cells_that_are_one_now_are_as_well_known_as_asked_together() -> None:
    host, table = merging(0.3)
    count = LinearQuery(host.where(city=[0]), range(2))
    by_group, alone = host.state.evidence(table), host.state.evidence(count)
    assert by_group.values[0] == pytest.approx(alone.values[0])
    assert by_group.variances[0] == pytest.approx(alone.variances[0])


def test_cells_that_are_one_now_are_counted_together_before_noise_is_added() -> None:
    """So each number has the noise of one cell, whatever it is made of, and the price is that of a table."""
    host, query = merging(error=0.005)
    step = host.mechanism.answer(query)
    assert isinstance(step, JoinedLook)
    looks: Any = step.looks
    assert [look.n_answers for look in looks] == [2, 3], "Bonn and other; Bonn, Lyon and other"
    exact = np.zeros(3, np.int64)
    for look in looks:
        merged: Any = look.merged
        every = np.eye(len(merged.into), dtype=np.int64)
        changes = [merged.of(one - other) for one in every for other in every]
        assert max(int((change**2).sum()) for change in changes) == host.state.prices.table
        ((block, noise),) = look.steps
        charge = host.state.prices.units(noise, host.state.prices.table)
        assert [one.rho for one in look.charges] == [charge]
        counts = host.data.marginal(look.attributes, range(block, block + 1))[0]
        exact[merged.answers] += merged.of(counts)
    assert exact.tolist() == host.recorded(query).tolist()
    host.ask(query)
    off = sum(float(grid_sigma(look.steps[0][1])) ** 2 for look in looks)
    variances = host.state.evidence(query).variances
    assert variances[[0, 2]] == pytest.approx(off, rel=1e-6)
    again = host.ask(query)
    assert getattr(again, "path", None) in (Path.REPEAT, Path.CERTIFIED)


@pytest.mark.parametrize("aim", [None, Aim(0.02)], ids=["an error", "an aim"])
@pytest.mark.parametrize("where", [{}, {"age": [0, 1, 2]}], ids=["all rows", "some rows"])
def test_answers_are_right_where_cells_are_one_now(where: dict[str, Any], aim: Aim | None) -> None:
    host, table = merging(0.02, beta=1e-9, aim=aim, error=0.005)
    query = LinearQuery(host.where(**where), table.window, (*table.group_by, host.index("vip")))
    (first, again), exact = (cells(host.ask(query)) for _ in range(2)), host.recorded(query)
    for found in (first, again):
        for cell, rows in zip(found, exact.tolist(), strict=True):
            bar = 1.0 if cell.error_bar is None else cell.error_bar
            assert abs(cell.estimate - rows) <= bar * cell.n + 1e-6
            assert bar < 0.03


def test_there_may_be_more_versions_than_an_array_has_axes() -> None:
    host = Versioned(1, 2_000, base_share=0.3)
    for number in range(70):
        age = Number("age", (30.0, 35.0, 45.0)[number % 2 :])
        host.schema = host.schema.changed([Declared(NEW[0]), Declared(age), Declared(NEW[2])], 2)
        host.mechanism.change_schema(host.schema, ())
    host.fill(host.sent[-1])
    query = LinearQuery(host.where(city=[0]), host.window)
    (cell,) = cells(host.ask(query))
    assert abs(cell.estimate - host.recorded(query)[0]) <= (cell.error_bar or 0.0) * cell.n + 1e-6


def test_plans_are_about_what_new_rows_have() -> None:
    host = Versioned(1, aim=Aim(0.1))
    universe = host.schema.newest.universe
    for look in host.mechanism.open_phase(20_000):
        for part in getattr(look, "parts", ()):
            assert {*part.attributes} <= {*universe.in_force}
    last: Any = host.taken[-1]
    assert {a for part in last.parts for a in part.attributes} == {*universe.in_force}


def test_a_restart_goes_on_with_the_same_knowledge() -> None:
    host = Versioned(2, base_share=0.2)
    queries = [
        LinearQuery(host.where(city=[c], age=[a]), host.window) for c, a in product((0, 2), (1, 3))
    ]
    host.ask_all(queries)
    mechanism, opened = Calibrated(*host.definition), 0
    for entry in host.stored:
        if isinstance(entry, int):
            if opened == 2:
                mechanism.change_schema(host.schema, ())
            mechanism.open_phase(entry)
            opened += 1
        else:
            mechanism.absorb(mechanism.release_from_bytes(entry))
    for query in queries:
        before, after = host.state.evidence(query), mechanism.state.evidence(query)
        assert np.allclose(before.values, after.values, rtol=1e-12)
        assert np.allclose(before.variances, after.variances, rtol=1e-12)
        assert host.state.versions.recorded(query) == mechanism.state.versions.recorded(query)


def test_blocks_hold_the_columns_of_their_own_version() -> None:
    host = Versioned(1)
    held: dict[int, Block] = host.data._held.blocks  # its only reader here
    names = [{name for slab in held[b].slabs for name in slab.columns} for b in (0, 1)]
    assert all(one == {"row 0", "row 1"} or one in ({"0", "1"}, {"2", "3", "4"}) for one in names)
    assert host.data.marginal((0, 1), range(1)).sum() == 20_000
    assert host.data.marginal((2, 3, 4), range(1, 2)).sum() == 20_000


def test_the_end_of_what_is_unrecorded_has_room_for_noise() -> None:
    """All old rows of a split bin satisfy the condition, so the exact number is the least end that holds."""
    for seed in range(10):
        host = Versioned(1, beta=1e-4, base_share=0.3, noise=seed)
        query = LinearQuery(host.where(age=[1, 2]), range(1))
        assert not host.state.versions.recorded(query).at_most, "both parts of the bin are asked"
        query = LinearQuery(host.where(age=[2]), range(1))
        known, bin_of_old = (
            host.state.versions.recorded(query),
            LinearQuery(host.where(age=[1, 2]), range(1)),
        )
        assert host.recorded(bin_of_old)[0] <= known.at_most[0], "they may all be in it"
