"""Running totals and rates of a period, and its last total as evidence about its block."""

from __future__ import annotations

import numpy as np
import pytest

from stream_dp.core.budget.parameters import Unit
from stream_dp.core.residual.belief.evidence import Belief
from stream_dp.core.residual.belief.linear_forms import form_of
from stream_dp.core.running.running_plan import RunningPlan
from stream_dp.core.running.running_totals import RunningTotals, table_of, whole_periods
from stream_dp.core.running.tick_factor import factor_of
from tests.core.running.periods import BOTH, PAID, SIZES, STATUS, Ints, a_period, plan_of, promise
from tests.noise import QuickNoise


def some_period(
    plan: RunningPlan, seed: int = 1, noise: object = None
) -> tuple[RunningTotals, list[list[Ints]]]:
    rng = np.random.default_rng(seed)
    came = [[rng.integers(0, 90, size) for size in plan.sizes] for _ in range(plan.factor.ticks)]
    totals, _ = a_period(plan, lambda totals: came[totals.tick], noise)
    return totals, came


def test_without_noise_totals_and_rates_are_exact() -> None:
    plan = plan_of(STATUS, PAID, BOTH, ticks=24)
    totals, came = some_period(plan)
    assert totals.tick == 24
    for number in range(3):
        for tick, after in ((1, 0), (12, 0), (24, 0), (24, 23), (13, 12), (20, 5)):
            exact = sum(counts[number] for counts in came[after:tick])
            found = totals.counts(number, tick, after)
            assert found.values == pytest.approx(exact, abs=1e-8)
            assert found.variance == plan.variance(tick, after)


def test_the_noise_of_a_rate_is_less_than_that_of_two_totals() -> None:
    plan = plan_of(STATUS, ticks=1440)
    two = plan.variance(1440) + plan.variance(1380)
    assert plan.variance(1440, 1380) < 0.7 * two
    assert plan.variance(1440, 1439) < 0.2 * two


def test_the_last_total_is_evidence_like_a_look_at_the_block() -> None:
    """As a table or a count with its variance; joined periods add."""
    plan = plan_of(BOTH, PAID, ticks=4)
    (one, came), (two, more) = some_period(plan), some_period(plan, 2)
    assert whole_periods([RunningTotals(plan)], 0) is None
    found = whole_periods([one, two], 0)
    assert found is not None
    exact = np.sum([counts[0] for counts in (*came, *more)], axis=0)
    assert found.values == pytest.approx(exact.astype(float))
    assert found.variance == pytest.approx(2 * plan.variance(4))
    belief = Belief(SIZES)
    belief.open_block(int(exact.sum()))
    belief.absorb_table(BOTH.attributes, 0, table_of(plan, 0, found.values), found.variance)
    known = belief.evidence(form_of(BOTH, SIZES), BOTH.key, range(1))
    assert known.values == pytest.approx(exact.astype(float))
    # The number of rows is public, so that one of twelve parts of the noise is not there.
    assert known.variances == pytest.approx(found.variance * 11 / 12)
    count = whole_periods([one, two], 1)
    assert count is not None
    belief.absorb_count(PAID.key, 0, count.values, count.variance)
    alone = belief.evidence(form_of(PAID, SIZES), PAID.key, range(1))
    assert alone.variances[0] < count.variance


def test_where_persons_are_protected_it_is_no_evidence() -> None:
    plan = plan_of(STATUS, ticks=4, unit=Unit(1, 12))
    totals, _ = some_period(plan)
    assert whole_periods([totals], 0) is None


def test_a_period_that_has_no_tick_is_no_evidence() -> None:
    plan = plan_of(STATUS, ticks=4)
    whole, _ = some_period(plan)
    assert whole_periods([whole], 0) is not None
    assert whole_periods([whole, RunningTotals(plan)], 0) is None


def test_a_tick_cannot_be_left_out() -> None:
    plan = plan_of(STATUS, ticks=4)
    _, found = a_period(plan, lambda _: [np.zeros(4)])
    with pytest.raises(AssertionError):
        RunningTotals(plan).absorb(found[1])


def test_the_variance_is_that_of_the_errors_and_not_of_one_draw() -> None:
    """By 20,000 independent cells. One draw's noise, as if a tick told the last total alone, is too small."""
    plan = RunningPlan(promise(sizes=(20_000,)), (STATUS,), 200, factor_of(24))
    totals, _ = a_period(plan, lambda _: [np.zeros(20_000)], QuickNoise(3))
    for tick, after in ((24, 0), (12, 0), (24, 23)):
        errors = totals.counts(0, tick, after).values
        # A false alarm has a probability below 1e-6: a mean of squares is off by five of its deviations.
        assert np.square(errors).mean() == pytest.approx(plan.variance(tick, after), rel=0.05)
    of_one = float((plan.sigma / int(plan.factor.row(24)[-1])) ** 2)
    assert of_one < 0.7 * plan.variance(24)
