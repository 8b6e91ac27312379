"""Relative errors: the stages, the final look, their price, and how often they miss.

False alarms: the tests of misses fail by chance with probability at most 1e-6 each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest, chi2, norm

from stream_dp.core.budget.accountant import UNITS, Budget
from stream_dp.core.budget.parameters import Accuracy
from stream_dp.core.outcome import Answered, Path, RefusalCode
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.plan.planner import Prices
from stream_dp.core.residual.plan.targets import Limits
from stream_dp.core.residual.ways.relative import Relative, Stages
from stream_dp.core.rows.blocks import Block
from tests.core.residual.host import ALARM, PRIVACY, Host, aimed, names, sealed, where
from tests.noise import QuickNoise
from tests.slow import rest_is_slow

UNIVERSE = names(2)
IS_X = where((2,), {0: [0]})
BETA = 0.05
N = 100_000
STAGES = Stages(Accuracy(0.02, BETA), Prices(Budget.of(PRIVACY)))


@cache
def block_of(count: int) -> Block:
    return sealed(UNIVERSE, np.arange(N) >= count)


def counting(count: int, *, phases: int = 1, beta: float = BETA, **more: Any) -> Host:
    """A data set in which ``count`` rows of each phase are counted."""
    options = {"base_share": 0.0, "pacing": False, **more}
    return Host(UNIVERSE, *[block_of(count)] * phases, beta=beta, **options)


def within(relative: float, *, phases: int = 1, at_most: float | None = None) -> LinearQuery:
    return aimed(LinearQuery(IS_X, range(phases)), relative=relative, at_most=at_most)


def stages_of(it: Host) -> Stages:
    way = it.mechanism._ways[Relative]
    assert isinstance(way, Relative)
    return way._stages


# ---------------------------------------------------------------- stages


def test_the_bars_of_all_stages_fail_with_a_tenth_of_beta_and_the_final_look_with_the_rest() -> (
    None
):
    tails = [2.0 * norm.sf(STAGES.z(stage)) for stage in range(64)]
    assert 0.98 * 0.1 * BETA < math.fsum(tails) < 0.1 * BETA
    assert 2.0 * norm.sf(STAGES.z_final) == pytest.approx(0.9 * BETA)


def test_each_stage_halves_the_bar_and_is_found_again_from_the_variance() -> None:
    n = 1e6
    for stage in range(12):
        limit = STAGES.limit(stage, n)
        assert STAGES.z(stage) * math.sqrt(limit) == pytest.approx(n / 2 ** (stage + 1))
        assert STAGES.stage(limit, n) == STAGES.stage(0.9 * limit, n) == stage
        assert STAGES.stage(1.01 * limit, n) == stage - 1
    assert STAGES.stage(math.inf, n) == -1


def test_the_scales_of_pilots_do_not_depend_on_what_pilots_find() -> None:
    """Data sets of other counts and other noise take the same pilots, as long as they take any."""
    taken = []
    for noise, count in enumerate((300, 3_000, 30_000, 0)):
        it = counting(count, noise=noise)
        it.ask(within(0.01, at_most=0.9))
        looks: list[Any] = it.looks
        taken.append([look.look.steps for look in looks if not look.final])
    longest = max(taken, key=len)
    assert len(longest) > 6
    assert all(steps == longest[: len(steps)] for steps in taken)
    assert len({len(steps) for steps in taken}) > 2, "what they find says only when to stop"


# ---------------------------------------------------------------- the promise


def misses(
    relative: float,
    count: int,
    runs: int,
    broken: Callable[[Stages], None] = lambda _: None,
    **options: Any,
) -> int:
    missed = 0
    for seed in range(runs):
        it = counting(count, noise=seed, **options)
        broken(stages_of(it))
        found = it.ask(within(relative, phases=len(it.data)))
        assert found.path in {Path.MEASURED, Path.CERTIFIED}
        truth = count * len(it.data)
        missed += abs(found.count - truth) > relative * truth
    return missed


@pytest.mark.parametrize(
    ("count", "relative", "options"),
    rest_is_slow(
        [
            (10_000, 0.05, {}),
            (50_000, 0.02, {}),
            (10_000, 0.05, {"phases": 3}),
            (10_000, 0.2, {}),
            (30_000, 0.01, {"base_share": 0.0003}),
        ],
        first=1,
        unpack=True,
    ),
    ids=["a tenth", "half", "three phases", "coarse", "with a base release"],
)
def test_answers_miss_the_relative_error_as_rarely_as_promised(
    count: int, relative: float, options: dict[str, Any]
) -> None:
    runs = 300
    missed = misses(relative, count, runs, **options)
    assert binomtest(missed, runs, BETA, alternative="greater").pvalue > ALARM


def wrong_beta(stages: Stages) -> None:
    """The final look has the deviations of another failure probability: eight times the promised one."""
    stages.z_final = float(norm.isf(8.0 * BETA / 2.0))


def trusts_the_estimate(stages: Stages) -> None:
    """It stops at a pilot as soon as one deviation says so."""
    stages.z = lambda stage: 0.6  # type: ignore[method-assign]


@pytest.mark.parametrize("broken", [wrong_beta, trusts_the_estimate])
def test_the_test_of_misses_catches_broken_copies(broken: Callable[[Stages], None]) -> None:
    missed = misses(0.05, 10_000, 100, broken)
    assert binomtest(missed, 100, BETA, alternative="greater").pvalue < ALARM


@pytest.mark.parametrize(
    ("factor", "phases"),
    rest_is_slow([(1.0, 500), (1.25, 500), (1.0, 1_800), (1.1, 1_800)], first=2, unpack=True),
    ids=["few, honest", "few, a quarter more noise", "many, honest", "many, 10% more noise"],
)
def test_final_looks_are_as_far_off_as_their_bars_say(factor: float, phases: int) -> None:
    """The scale of the final look follows from noise, and still does not shift or widen its own error."""
    count = 30_000
    it = counting(count, phases=phases, base_share=0.0003, noise=QuickNoise(1, factor))
    deviations = []
    for block in range(phases):
        found = it.ask(replace(within(0.01), window=range(block, block + 1)))
        last: Any = it.looks[-1]
        assert last.final
        deviations.append((found.count - count) / (found.error_bar * N) * STAGES.z_final)
    p_value = float(chi2.sf(np.square(deviations).sum(), len(deviations)))
    assert (p_value > ALARM) == (factor == 1.0)


def test_the_final_look_stands_alone_and_its_bar_is_its_own() -> None:
    it = counting(10_000)
    found = it.ask(within(0.05))
    looks: Any = it.looks
    *pilots, last = [look.final for look in looks]
    assert (any(pilots), last) == (False, True)
    ((_, step),) = looks[-1].look.steps
    assert found.error_bar == pytest.approx(STAGES.z_final * float(grid_sigma(step)) / N)
    assert found.count == it.releases[-1].values.sum(), "no mean with other counts"


# ---------------------------------------------------------------- prices


@pytest.mark.parametrize(("count", "relative"), [(10_000, 0.05), (50_000, 0.02), (3_000, 0.05)])
def test_the_price_is_near_that_of_a_look_that_knew_the_count(count: int, relative: float) -> None:
    """At most 2.5 times as much, on the average of 40 runs."""
    z, line = norm.isf(0.005), float(Budget.of(PRIVACY).rho)
    ideal = (z / (relative * count)) ** 2 / 2.0 / line
    prices = []
    for seed in range(40):
        it = counting(count, noise=seed, beta=0.01)
        assert isinstance(it.ask(within(relative)), Answered)
        prices.append(it.paid)
    assert ideal < float(np.mean(prices)) < 2.5 * ideal


def test_a_count_of_nothing_ends_long_before_it_has_taken_what_it_may() -> None:
    it = counting(0)
    found = it.ask(within(0.05))
    assert found.path is Path.UNVERIFIED
    assert found.value <= found.error_bar
    assert 0.0 < it.paid < 0.02
    assert len(it.looks) < 12


@pytest.mark.parametrize("at_most", [0.0002, 0.001, 0.01])
def test_all_looks_together_take_no_more_than_the_query_may(at_most: float) -> None:
    for count in (0, 100, 1_000, 10_000):
        it = counting(count, phases=2)
        outcome = it.ask(within(0.05, phases=2, at_most=at_most))
        assert it.paid <= at_most
        if isinstance(outcome, Answered) and outcome.path is Path.UNVERIFIED:
            assert abs(outcome.count - 2 * count) <= (outcome.error_bar or 0.0) * outcome.n


def test_a_price_that_is_known_to_be_too_high_is_refused_before_any_look() -> None:
    it = counting(1_000, base_share=0.01)
    assert it.ask(within(0.02, at_most=0.001)).code is RefusalCode.PRICE_TOO_HIGH
    assert not it.looks


def test_the_definition_says_what_a_relative_error_may_take() -> None:
    for limits, most in ((Limits(), 0.1), (Limits(query_share=0.0005), 0.0005)):
        it = counting(700, limits=limits)
        it.ask(within(0.02))
        assert 0.0 < it.paid <= most


def test_a_quote_is_marked_as_expected_and_near_the_price() -> None:
    it, query = counting(10_000, base_share=0.0001), within(0.02)
    quote = it.mechanism.quote(query)
    assert quote == it.mechanism.quote(query), "it changes nothing"
    assert quote.expected
    assert "10%" in (quote.note or "")
    assert isinstance(it.ask(query), Answered)
    expected = max(charge.rho for charge in quote.charges) / UNITS
    assert 0.5 < it.paid / expected < 2.0
    assert quote.error_bar == pytest.approx(0.02 * 0.1, rel=0.2)


# ---------------------------------------------------------------- repeats and restarts


def test_a_repeat_serves_where_its_bar_is_small_enough_for_the_count() -> None:
    it = counting(10_000)
    first = it.ask(within(0.05))
    for relative in (0.06, 0.5):
        assert it.ask(within(relative)) == replace(first, path=Path.REPEAT)
        assert not it.looks
    assert it.ask(within(0.01)).path is Path.MEASURED


def test_a_restart_goes_on_at_the_stage_that_was_published() -> None:
    """A crash between two looks loses nothing but the count of what the query took."""
    it, query = counting(10_000), within(0.05)
    step = it.step(query)
    for _ in range(3):
        step = it.mechanism.conclude(query, step, it.take(step))
    again: Any = it.restarted().step(query)
    facts = attrgetter("look.steps", "charges", "final")
    assert facts(again) == facts(step)
