"""Scales, bars and prices of running totals, and plans that are refused."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from itertools import combinations_with_replacement, product
from typing import Any

import numpy as np
import pytest

from stream_dp.core.budget.accountant import UNITS, Budget
from stream_dp.core.budget.parameters import Privacy, Unit
from stream_dp.core.queries.query import EVERYTHING, LinearQuery
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.running.running_plan import RunningPlan
from stream_dp.core.running.tick_factor import factor_of
from stream_dp.errors import InvalidDefinition
from tests.core.running.periods import BOTH, PAID, SMALL, STATUS, plan_of, promise

LINE = Budget.of(Privacy(1.0, 1e-9)).rho


def within(rows: float, *tiles: LinearQuery, ticks: int = 24, **of_promise: Any) -> RunningPlan:
    return RunningPlan.within(rows, promise(**of_promise), tiles or (STATUS,), ticks)


def test_the_plan_of_the_example() -> None:
    """A table of the last hour of each day, within 400 rows: 1.01% of each line."""
    plan = within(400)
    assert plan.sigma == 83168
    assert plan.rho == Fraction(1049384, 83168**2)
    assert plan.units == 11408044546275
    assert plan.units / UNITS == pytest.approx(0.010132, abs=5e-7)
    ticks = (1, 12, 24)
    assert [round(plan.bar(t), 2) for t in ticks] == [301.30, 397.21, 369.82]
    assert [round(plan.bar(t, t - 1), 2) for t in ticks] == [301.30, 323.51, 236.06]
    assert round(plan.bar_all_ticks(12), 2) == 544.25
    again = [round(plan.units_again(t) / plan.units, 4) for t in ticks]
    assert again == [0.4817, 0.5317, 0.9992]
    assert json.loads(json.dumps(plan.description))["step"] == plan.step


@pytest.mark.parametrize("rows", [60.0, 100.0, 400.0, 12_345.6])
@pytest.mark.parametrize("ticks", [1, 24, 168])
def test_the_scale_is_the_largest_whose_bars_are_within_the_rows(rows: float, ticks: int) -> None:
    plan = within(rows, PAID, ticks=ticks)
    widest = max(plan.bar(tick) for tick in range(1, ticks + 1))
    assert widest <= rows < widest * float(grid_sigma(plan.step + 1) / plan.sigma)


def test_a_condition_costs_half_of_a_table_and_tiles_add() -> None:
    table, count = within(400), within(400, PAID)
    assert table.sigma == count.sigma
    assert table.rho == 2 * count.rho
    assert within(400, STATUS, PAID, BOTH).rho == 5 * count.rho
    assert (within(400, STATUS, PAID, BOTH)).sizes == (4, 1, 12)


@pytest.mark.parametrize(("rows_per_phase", "phases"), [(1, 1), (1, 12), (4, 12)])
def test_a_person_costs_half_on_a_line_that_is_smaller_by_all_squares(
    rows_per_phase: int, phases: int
) -> None:
    """A row that becomes blank moves one count by 1, and k rows of a person k^2 times as much."""
    rows, person = within(4000), within(4000, unit=Unit(rows_per_phase, phases))
    assert person.rho == rows.rho / 2
    wanted = person.rho * UNITS / LINE * phases * rows_per_phase**2
    assert person.units == math.ceil(wanted)


def test_what_a_person_loses_is_at_most_the_square_of_their_rows() -> None:
    """Every choice of up to 3 rows of a person, at any ticks and in any cells."""
    plan = plan_of(STATUS, ticks=SMALL, unit=Unit(1, 1))
    row_loss = plan.rho * 2 * plan.sigma**2
    for n_rows in (1, 2, 3):
        largest = 0
        for ticks in combinations_with_replacement(range(3), n_rows):
            for cells in product(range(2), repeat=n_rows):
                moved = np.zeros((3, 2), dtype=np.int64)
                for tick, cell in zip(ticks, cells, strict=True):
                    moved[:, cell] += SMALL[:, tick]
                largest = max(largest, int(np.square(moved).sum()))
        assert largest == n_rows**2 * row_loss


def losses(plan: RunningPlan) -> list[Fraction]:
    """What a row that satisfies a condition or not loses by all ticks, for each tick in which it may come."""
    rows = [plan.factor.row(tick).tolist() for tick in range(1, plan.factor.ticks + 1)]
    squares = [sum(row[came] ** 2 for row in rows[came:]) for came in range(len(rows))]
    return [Fraction(square) / (2 * plan.sigma**2) for square in squares]


def test_the_dearest_of_joined_periods_is_enough_for_a_row_and_the_cheapest_is_not() -> None:
    """A row is in one of them. A person may be in all, and then their prices would add."""
    plans = [within(rows, PAID, ticks=ticks) for rows, ticks in ((400, 24), (500, 24), (400, 23))]
    prices, dearest = [plan.rho for plan in plans], max(map(max, map(losses, plans)))
    assert min(prices) < dearest == max(prices)
    assert sum(max(losses(plan)) for plan in plans) == sum(prices) > max(prices)


@pytest.mark.parametrize("ticks", [3, 24])
def test_a_tick_that_is_taken_again_costs_no_more_than_what_is_charged(ticks: int) -> None:
    """A row that came in any tick, with any tick taken twice: and for free it would pass the price."""
    plan = within(400, PAID, ticks=ticks)
    rows = [plan.factor.row(tick).tolist() for tick in range(1, ticks + 1)]
    passes_for_free = 0
    for again in range(1, ticks + 1):
        extra = Fraction(rows[again - 1][-1] ** 2) / (2 * plan.sigma**2)
        assert plan.units_again(again) == math.ceil(extra * UNITS / LINE)
        for came in range(again):
            square = sum(row[came] ** 2 for row in rows[came:]) + rows[again - 1][came] ** 2
            loss = Fraction(square) / (2 * plan.sigma**2)
            assert loss <= plan.rho + extra
            passes_for_free += loss > plan.rho
    assert passes_for_free


def delta_of(rho: float, epsilon: float) -> float:
    """The delta of a shift of whole numbers with discrete Gaussian noise and this zCDP loss, by summation."""
    sigma, x = 1000.0, np.arange(-20_000, 20_001)
    shift = round(sigma * math.sqrt(2 * rho))
    law = np.exp(-np.square(x / sigma) / 2)
    ratio = (2.0 * shift * x - shift**2) / (2 * sigma**2)
    return float((law / law.sum() * np.maximum(np.exp(ratio) - math.exp(epsilon), 0.0)).sum())


def test_all_ticks_for_the_price_of_one_count_would_break_the_promise() -> None:
    line, price = float(LINE), factor_of(24).price
    assert delta_of(line, 1.0) == pytest.approx(1.7e-10, rel=0.05)
    assert delta_of(price * line, 1.0) == pytest.approx(1.85e-4, rel=0.05)


WIDE = LinearQuery(EVERYTHING, range(1), (0,))


@pytest.mark.parametrize(
    ("rows", "ticks", "of_promise", "problem"),
    [
        (400, 2049, {}, "has 2,049 ticks in a period, and 2,048 are the most"),
        (
            9e4,
            1440,
            {"sizes": (1000,)},
            "would publish 1,440,000 numbers in a period, and 1,048,576 are the most",
        ),
        (40, 24, {}, "24 totals within 40 rows take 104.4% of each line, and 45% is the most"),
        (1e-9, 24, {}, "of each line, and 45% is the most"),
        (
            400,
            24,
            {"unit": Unit(1, 12, lifetime=True)},
            "is not possible where persons are protected for life",
        ),
    ],
)
def test_plans_that_are_refused(
    rows: float, ticks: int, of_promise: dict[str, Any], problem: str
) -> None:
    with pytest.raises(InvalidDefinition) as refused:
        within(rows, WIDE, ticks=ticks, **of_promise)
    assert refused.value.field == "running"
    assert problem in refused.value.problem


@pytest.mark.parametrize("rows", [1, 11, 30])
@pytest.mark.parametrize("ticks", [1, 24, 168])
def test_a_refusal_says_how_many_rows_would_do(rows: int, ticks: int) -> None:
    tiles = (STATUS, BOTH, PAID)
    with pytest.raises(InvalidDefinition) as refused:
        within(rows, *tiles, ticks=ticks)
    enough = int(refused.value.fix.split()[1].replace(",", ""))
    share = within(enough, *tiles, ticks=ticks).units / UNITS
    assert share <= 0.45
    assert share > 0.40 or enough < 100
