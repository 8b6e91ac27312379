"""The auditor works the price of a look at sums out by itself, and notices a look that cannot be."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product
from typing import Any

import pytest

from stream_dp.audit.line_limits import Line
from stream_dp.audit.look_charges import Looks, _ends_of_bins
from stream_dp.audit.numbers import Wrong
from stream_dp.core.budget.accountant import Budget
from stream_dp.core.queries.conditions import compile_group_by, compile_share, compile_total
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.plan.planner import Prices
from stream_dp.core.rows.attributes import Number
from stream_dp.core.rows.measured_values import Measure
from stream_dp.messages import Definition, NumberAttribute, UnitSpec
from stream_dp.profiles.builder import universe_of
from tests.core.residual.host import PRIVACY, Host
from tests.core.residual.test_sum_look import BLANKS, EDGES, SHAPES

N_ROWS = 20_000
A_PERSON = UnitSpec(key="user_id", rows_per_phase=1, phases=1)
BUDGET = Budget.of(PRIVACY)
PLAIN: dict[str, Any] = {"name": "amount", "type": "number", "edges": EDGES, "missing": True}
KEPT = {**PLAIN, "measure": {"unit": 0.01, "low": 0, "high": 500}}
STATUS = {"name": "status", "type": "category", "values": list("abcde"), "other": False}


def defined(*attributes: Any, **more: Any) -> Definition:
    return Definition.read(
        {
            "version": 1,
            "dataset": "d",
            "privacy": {"epsilon": 1.0, "delta": 1e-9},
            "accuracy": {"error": 0.02},
            "phase": {"min_rows": 100},
            "attributes": attributes,
            **more,
        }
    )


def auditor(definition: Definition, unit: UnitSpec | None = None) -> Looks:
    line = Line(BUDGET.rho, Fraction(0), linear=False)
    return Looks(definition, replace(line, unit=unit))


def owed(looks: Looks, description: dict[str, object]) -> int:
    """The units that a look at the first block must have cost."""
    ((block, due),) = looks.owed(description, [N_ROWS])
    assert block == 0
    assert due.rho.least == due.rho.most
    return int(due.rho.most)


SUM: dict[str, object] = {
    "kind": "sums",
    "predicate": "00",
    "attributes": [0, 1],
    "attribute": 0,
    "group_by": [1],
    "answers": 5,
    "every_row": False,
    "rests": False,
    "range": [0, 3],
    "centre": 3,
    "unit": 0.5,
    "blocks": [[0, 200, 150]],
}


def test_a_look_is_priced_from_what_two_rows_may_change() -> None:
    prices, definition = Prices(BUDGET), defined(PLAIN, STATUS)
    of_rows, of_persons = auditor(definition), auditor(definition, A_PERSON)
    for shape, step, counted in product([*SHAPES, *BLANKS], (200, 260), (150, 220)):
        look = {
            **SUM,
            "group_by": [1] if shape.grouped else [],
            "answers": 5 if shape.grouped else 1,
            "every_row": shape.every_row,
            "rests": shape.rests,
            "range": [shape.low, shape.high],
            "centre": shape.centre,
            "blocks": [[0, step, counted] if shape.counts else [0, step]],
        }
        sigma = grid_sigma(counted) if shape.counts else None
        units = prices.of(shape.rho(grid_sigma(step), sigma))
        assert owed(of_persons if shape.blank else of_rows, look) == units


@pytest.mark.parametrize("share", [False, True], ids=["sums of kept values", "shares"])
@pytest.mark.parametrize(
    "where",
    [
        None,
        {"attribute": "status", "eq": "b"},
        {"any": [{"attribute": "amount", "ge": 500}, {"attribute": "status", "eq": "a"}]},
    ],
)
@pytest.mark.parametrize("group_by", [(), ("status",)])
def test_it_finds_the_charge_of_each_look_again(
    where: dict[str, Any] | None, group_by: tuple[str, ...], share: bool
) -> None:
    definition = defined(KEPT, STATUS)
    universe = universe_of(definition)
    it = Host(universe, base_share=0.0)
    it.mechanism.open_phase(N_ROWS)
    total: Any
    if share:
        total, predicate = compile_share(universe, {"attribute": "amount", "ge": 75}, where)
    else:
        total, _, predicate = compile_total(universe, "amount", where, group_by, None)
    groups = compile_group_by(universe, group_by, predicate) if group_by else ()
    look = it.step(LinearQuery(predicate, range(1), groups, total))
    assert look.description["kind"] == ("shares" if share else "sums")
    assert owed(auditor(definition), look.description) == look.charges[0].rho


MEASURED = {**SUM, "measured": True, "unit": 0.01, "range": [0, 50_000], "centre": 50_000}
SHARE = {**SUM, "kind": "shares", "range": [0, 256], "centre": 256, "unit": 1 / 256}
SHARE = {name: value for name, value in SHARE.items() if name not in ("attribute", "rests")}


@pytest.mark.parametrize(
    ("sound", "broken"),
    [
        (SUM, {"answers": 4}),
        (SUM, {"range": [3, 1]}),
        (SUM, {"range": [0, 0.5]}),
        (SUM, {"centre": None}),
        (SUM, {"rests": 1}),
        (SUM, {"every_row": True, "rests": True}),
        (SUM, {"attribute": 1}),
        (SUM, {"blocks": [[0, 200]]}),
        (SUM, {"blocks": [[1, 200, 150]]}),
        (SHARE, {"answers": 3}),
        (SHARE, {"range": [256, 0]}),
        (SHARE, {"range": [0, 0.5]}),
        (SHARE, {"centre": None}),
        (SHARE, {"every_row": 1}),
        (SHARE, {"group_by": [7]}),
        (SHARE, {"blocks": [[0, 200, 200, 200]]}),
        (SHARE, {"blocks": [[1, 200, 150]]}),
        (MEASURED, {"measured": False}),
        (MEASURED, {"unit": 0.02}),
        (MEASURED, {"range": [1, 50_000]}),
        (MEASURED, {"range": [0, 49_999]}),
        (MEASURED, {"range": [0, 2]}),
        (MEASURED, {"range": [-5, 50_000]}),
    ],
)
def test_a_look_that_cannot_be_is_noticed(
    sound: dict[str, object], broken: dict[str, object]
) -> None:
    looks = auditor(defined(KEPT if sound is MEASURED else PLAIN, STATUS))
    assert owed(looks, sound) > 0
    with pytest.raises(Wrong):
        looks.owed({**sound, **broken}, [N_ROWS])


def test_values_are_measured_only_where_they_are_kept() -> None:
    with pytest.raises(Wrong):
        auditor(defined(PLAIN, STATUS)).owed(MEASURED, [N_ROWS])


@pytest.mark.parametrize("integer", [False, True])
@pytest.mark.parametrize("unit", [1.0, 3.0, 0.01, 7.0])
@pytest.mark.parametrize("edges", [EDGES, (-21, 0, 21, 84), (0.5, 1.25, 3.999)])
def test_the_auditor_works_the_ends_of_bins_out_by_itself(
    edges: tuple[float, ...], unit: float, integer: bool
) -> None:
    if integer and not (unit.is_integer() and all(float(e).is_integer() for e in edges)):
        return
    ends = Measure(unit, -21.0 * unit, 147.0 * unit)
    core = Number("x", edges, integer=integer, measure=ends)
    measure = {"unit": ends.unit, "low": ends.low, "high": ends.high}
    spec = {"name": "x", "type": "number", "edges": edges, "integer": integer, "measure": measure}
    (read,) = defined(spec).attributes
    assert isinstance(read, NumberAttribute)
    lows, highs = zip(*core.measured_ends, strict=True)
    assert _ends_of_bins(read) == (set(lows), set(highs))


def test_no_look_adds_up_what_rows_in_other_phases_change() -> None:
    """Theorem 41 (a): a number that may change costs up to four times what a row costs that becomes blank."""
    away = {"name": "away", "type": "number", "fold": "since", "phases": 3}
    privacy = {"epsilon": 1.0, "delta": 1e-9, "unit": A_PERSON.model_dump()}
    definition = defined(away, STATUS, PLAIN, privacy=privacy, erasure={"within": "1 day"})
    looks, by_away = (
        auditor(definition, A_PERSON),
        {"attributes": [0, 2], "group_by": [0], "answers": 3},
    )
    for sound in ({**SUM, "attribute": 2, **by_away}, {**SHARE, **by_away}):
        assert owed(looks, sound)
    for broken in (
        {**SUM, "attributes": [0, 1]},
        {**SHARE, "attributes": [0, 1], "group_by": [1]},
        {**SHARE, "attributes": [0], "group_by": [], "answers": 1},
        {
            **{name: of for name, of in SUM.items() if name != "attribute"},
            "product": [0, 2],
            "attributes": [0, 2],
            "group_by": [],
            "answers": 1,
        },
    ):
        with pytest.raises(Wrong, match="it adds up numbers that rows in other phases change"):
            owed(looks, broken)
