"""Estimates, bars and margins where it is private how many rows count (docs/proofs, Theorem 21)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import chdtri
from scipy.stats import binomtest, norm

from stream_dp.core.budget.accountant import UNITS, Budget
from stream_dp.core.budget.parameters import Accuracy, Aim, Privacy, Unit
from stream_dp.core.outcome import Path
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.answers import rows_that_count
from stream_dp.core.residual.belief.linear_forms import form_of, spectrum
from stream_dp.core.residual.looks.counted_rows import CountedRows, RowsLook, RowsRelease
from stream_dp.core.residual.plan.aim_rule import OPENING
from stream_dp.core.residual.plan.planner import Prices
from stream_dp.core.rows.blocks import Block
from stream_dp.core.rows.cell_shape import Shape
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.person_slots import DIGEST_BYTES, Slots
from tests.core.residual.host import ALARM, PRIVACY, Host, aimed, names, where
from tests.core.residual.least_squares import (
    Measured,
    belief_of,
    least_squares,
    masks_of,
    queries,
    random_history,
)

Floats = npt.NDArray[np.float64]

SLOTS = 5000
"""Public rows of a block, which are no estimate of anything."""
BETA = 0.2
PERSONS = Privacy(1.0, 1e-9, Unit(2, 3))
PRICES = Prices(Budget.of(PERSONS))
STEP = RowsLook.at(0, PRICES).step
SIGMA = float(grid_sigma(STEP))


def persons(
    n_blocks: int = 1, found: dict[int, int] | None = None, privacy: Privacy = PERSONS
) -> Host:
    """Two attributes of two values each, and what some looks at the number of rows have found."""
    it = Host(names(2, 2), error=0.05, beta=BETA, privacy=privacy, base_share=0.0)
    for _ in range(n_blocks):
        it.mechanism.open_phase(SLOTS)
    if it.state.counted is not None:
        for block, value in (found or {}).items():
            it.state.counted.absorb(RowsRelease(block, STEP, value))
    return it


# ---------------------------------------------------------------- estimates

FLAT = Shape((2, 3, 4), [])
GRADED = Shape((25, 2), [0])


def as_it_is(shape: Shape, query: LinearQuery) -> Floats:
    return form_of(query, shape).norms[0]


def by_the_share_of_the_conjunction(shape: Shape, query: LinearQuery) -> Floats:
    """A complement whose empty part weighs as much as that of the conjunction."""
    return as_it_is(shape, LinearQuery(query.predicate.complement, query.window))


def without_the_empty_part(shape: Shape, query: LinearQuery) -> Floats:
    """As if the number of rows were public."""
    norms = as_it_is(shape, query).copy()
    norms[0] = 0.0
    return norms


@pytest.mark.parametrize("shape", [FLAT, GRADED], ids=["cells", "levels"])
@pytest.mark.parametrize(
    ("norms", "right"),
    [(as_it_is, True), (by_the_share_of_the_conjunction, False), (without_the_empty_part, False)],
)
def test_the_number_of_rows_takes_part_in_the_variance_of_a_complement(
    shape: Shape, norms: Callable[[Shape, LinearQuery], Floats], *, right: bool
) -> None:
    """The broken copies state another variance for every complement that is not half of all cells."""
    rng, agreed = np.random.default_rng(1), []
    history = random_history(shape, rng, 12)
    belief = belief_of(shape, history, total_known=False)
    for _ in range(20):
        query = queries(shape, rng)[4]
        form = form_of(query, shape)
        assert form.conjunctive
        assert 2 * query.predicate.mask.sum() != query.predicate.mask.size
        masks = masks_of(shape, query)
        view = belief.tables.view(form.attributes, range(1))
        stated = view.variance(norms(shape, query)[None, :]).item()
        (least,) = least_squares(shape, masks, history, range(1), total_known=False)[1].tolist()
        if math.isfinite(least):
            agreed.append(stated == pytest.approx(least, rel=1e-9))
    assert len(agreed) > 10
    assert all(agreed) if right else not any(agreed)


# ---------------------------------------------------------------- simultaneous bars


def test_simultaneous_bars_leave_room_for_the_error_of_the_number_of_rows() -> None:
    """Whoever picks the worst weights on cells passes them with half of the failure probability, not more.

    With a degree of freedom less, right where the number of rows is public, they are passed more often.
    """
    rng, truth, found = np.random.default_rng(3), np.array([[40.0, 25.0], [10.0, 5.0]]), []
    exact = spectrum(truth, average=False)
    measured = ((0,), 30.0), ((1,), 8.0), ((0, 1), 12.0), ((0, 1), 20.0)
    for _ in range(4000):
        history = []
        for attributes, variance in measured:
            table = truth.sum(axis=tuple({0, 1} - set(attributes)))
            noise = rng.normal(0.0, math.sqrt(variance), table.shape)
            history.append(Measured(attributes, 0, table + noise, variance))
        view = belief_of((2, 2), history, total_known=False).tables.view((0, 1), range(1))
        off = [
            np.square(view.spectrum[part] - exact[part]).sum() / variance
            for part, variance in zip(view.layout.slices, view.variances, strict=True)
        ]
        found.append(math.sqrt(sum(off)))
    it = persons()
    for m in history:
        it.state.belief.absorb_table(m.attributes, 0, m.table, m.variance)
    # No conjunction, so its simultaneous bar is that of all predicates.
    same = LinearQuery(Predicate.of_mask((0, 1), np.eye(2, dtype=np.bool_)), range(1))
    answer: Any = it.state.answers.by_variance(same, it.state.evidence(same), 1.0, Path.CERTIFIED)
    beyond, less = (
        int((np.array(found) > bar).sum())
        for bar in (
            answer.error_bar_simultaneous / answer.error_bar,
            math.sqrt(chdtri(3, BETA / 2)),
        )
    )
    assert binomtest(beyond, len(found), BETA / 2).pvalue > ALARM
    assert binomtest(less, len(found), BETA / 2, alternative="greater").pvalue < ALARM


# ---------------------------------------------------------------- the look at the number of rows


def test_one_look_at_the_number_of_rows_costs_a_fiftieth_of_a_line() -> None:
    look = RowsLook.at(7, PRICES)
    (charge,) = look.charges
    assert (charge.block, charge.delta) == (7, 0)
    assert 0.95 * UNITS / 50 < charge.rho <= UNITS / 50, "scales are on a grid"
    assert look.description == {"kind": "rows", "blocks": [[7, look.step]]}


def test_margins_are_the_one_sided_quantile_of_a_tenth_of_the_failure_probability() -> None:
    """Of the looks that there are: one that a crash lost adds neither rows nor noise."""
    counted = CountedRows(Accuracy(0.05, BETA))
    assert counted.at_least(range(3)) == 0.0
    counted.absorb(RowsRelease(0, STEP, 9000))
    counted.absorb(RowsRelease(2, STEP, 8000))
    counted.absorb(RowsRelease(3, STEP, -40))
    assert [counted.known(block) for block in range(3)] == [True, False, True]
    z = norm.isf(BETA / 10)
    assert counted.at_least(range(1)) == pytest.approx(9000 - z * SIGMA)
    assert counted.at_least(range(2)) == pytest.approx(9000 - z * SIGMA)
    assert counted.at_least(range(3)) == pytest.approx(17_000 - z * SIGMA * math.sqrt(2))
    assert counted.at_least(range(3, 4)) == 0.0, "never below zero"
    assert counted.estimate(range(3)) == (17_000.0, pytest.approx(2 * SIGMA**2))


@pytest.mark.parametrize("privacy", [PRIVACY, PERSONS], ids=["rows", "persons"])
def test_bars_of_counts_leave_a_tenth_of_the_failure_probability_to_the_number_of_rows(
    privacy: Privacy,
) -> None:
    """Both of what openings answer, and of estimates that are as precise as the query asks."""
    left = 0.9 * BETA if privacy is PERSONS else BETA
    state = persons(found={0: 4000}, privacy=privacy).state
    n_asked, table = state.rows_at_least(range(1)), np.array([2500.0, 1500.0])
    state.belief.absorb_table((0,), 0, table, 90.0, opening=True)
    query = LinearQuery(where((2, 2), {0: [0]}), range(1))
    opening = state.at_opening(query)
    assert opening is not None
    answer: Any = state.answers.by_opening(query, opening)
    deviation = math.sqrt(float(opening.variances[0]))
    assert answer.error_bar * SLOTS == pytest.approx(norm.isf(left / 2) * deviation)

    # An estimate has the error asked for as its bar, where 0.35 of what is left allows it, and no longer.
    z = norm.isf(0.35 * left / 2)
    for wider, kept in ((1.001, True), (0.999, False)):
        error = wider * z * deviation / n_asked
        asked = aimed(query, share=error)
        margin = state.terms_for(asked).error
        answer = state.answers.by_promise(asked, opening, margin, Path.CERTIFIED)
        assert (answer.error_bar * SLOTS <= error * n_asked * (1 + 1e-6)) == kept


# ---------------------------------------------------------------- the rows that count, in answers

AA = LinearQuery(where((2, 2), {0: [0]}), range(2))


def among(it: Host, query: LinearQuery, count: float, bar: float | None = None) -> Any:
    """What the answer to a query says that finds so many rows."""
    (known,) = rows_that_count.among(it.state, query, it.state.evidence(query), [(count, bar)])
    return known


def among_looks(found: dict[int, int]) -> Any:
    """What an answer about two blocks says that no table tells of: one count, and some looks at all rows."""
    it = persons(2, found)
    for block in range(2):
        it.state.belief.absorb_count(AA.key, block, np.array([450.0]), 200.0)
    return among(it, AA, 900.0)


def test_a_share_reaches_to_all_ratios_that_the_bars_of_both_numbers_leave() -> None:
    """Each bar has half of the failure probability: the look decides how precise the count is."""
    known = among_looks({0: 4000, 1: 3000})
    sigma = SIGMA * math.sqrt(2)
    assert known.rows == 7000.0
    assert known.rows_bar == pytest.approx(norm.isf(BETA / 2) * sigma)
    assert known.surplus_at_most == pytest.approx(1 - (7000 - norm.isf(BETA / 10) * sigma) / 10_000)
    z = norm.isf(BETA / 4)
    reached = [
        (900.0 + one * z * 20.0) / (7000.0 + other * z * sigma)
        for one, other in itertools.product((-1.0, 1.0), repeat=2)
    ]
    assert known.share == pytest.approx(900 / 7000)
    assert known.share_bar == pytest.approx(max(abs(one - known.share) for one in reached))


@pytest.mark.parametrize("bar", [None, 120.0])
def test_a_share_of_what_bounds_alone_tell_reaches_as_far_as_both_bars(bar: float | None) -> None:
    """Bounds fail with a fifth of the failure probability, and the number of rows has the rest."""
    it, variance = persons(), 16.0
    for attribute in range(2):
        it.state.belief.absorb_table((attribute,), 0, np.array([700.0, 300.0]), variance)
    both = LinearQuery(where((2, 2), {0: [0], 1: [0]}), range(1))
    assert math.isinf(it.state.evidence(both).variances[0])
    known = among(it, both, 400.0, bar)
    assert (known.rows, known.share) == (1000.0, 0.4)
    if bar is None:
        assert known.share_bar is None
        return
    # The mean of two sums of two counts has the variance of one count.
    off = norm.isf(0.8 * BETA / 2) * math.sqrt(variance)
    ends = (400.0 - bar) / (1000.0 + off), (400.0 + bar) / (1000.0 - off)
    assert known.share_bar == pytest.approx(max(ends[1] - 0.4, 0.4 - ends[0]))


def test_of_a_block_whose_look_was_lost_any_number_of_rows_may_count() -> None:
    known, whole = among_looks({0: 4000}), among_looks({0: 4000, 1: 0})
    assert known.rows - known.rows_bar < 4000.0 < 4000.0 + SLOTS < known.rows + known.rows_bar
    assert known.rows == 4000.0 + SLOTS / 2
    assert known.share - known.share_bar < 900 / (4000 + SLOTS) < 900 / 4000
    assert known.share + known.share_bar > 900 / 4000
    assert whole.rows_bar < SLOTS / 2
    nothing = among_looks({})
    assert (nothing.rows, nothing.rows_bar, nothing.share_bar) == (SLOTS, SLOTS, None)
    assert nothing.surplus_at_most == 1.0


@pytest.mark.parametrize("aim", [Aim(0.1), None], ids=["aimed", "of an error"])
def test_all_rows_that_count_are_what_the_looks_at_their_number_tell(aim: Aim | None) -> None:
    """For nothing, with the bar of what opens: a count without a condition needs no look of its own."""
    universe, n_rows, n_counted = names(2), 6_000, 5_000
    whose = Slots(np.ones((n_rows, DIGEST_BYTES), np.uint8), np.arange(n_rows, dtype=np.uint64))
    rows = Rows((np.zeros(n_rows, dtype=np.uint8),), None, whose=whose)
    block = Block.seal(universe, rows, counted=np.arange(n_rows) < n_counted)
    privacy = Privacy(1.0, 1e-9, Unit(1, 2))
    it = Host(universe, block, block, noise=5, error=0.05, privacy=privacy, base_share=0.0, aim=aim)
    for look in it.mechanism.opened():
        it.take(look)
    outcome = it.ask(LinearQuery(EVERYTHING, range(2)))
    assert bool(it.looks) is (aim is None)
    if aim is not None:
        step = RowsLook.at(0, it.state.promise.prices).step
        bar = norm.isf(OPENING * 0.01 / 2) * math.sqrt(2) * float(grid_sigma(step))
        assert outcome.error_bar == pytest.approx(bar / (2 * n_rows))
        assert abs(outcome.count - 2 * n_counted) < outcome.error_bar * 2 * n_rows
