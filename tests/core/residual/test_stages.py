"""Relative errors: the stages, the final look, their price, and how often they miss.

False alarms: the tests of misses fail by chance with probability at most 1e-6 each.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy.special import ndtri
from scipy.stats import binomtest, chi2

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.parameters import Accuracy, Privacy, Target
from stream_dp.core.mechanism import Look
from stream_dp.core.outcome import Answered, Path, RefusalCode, Refused
from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.plan.planner import Prices
from stream_dp.core.residual.plan.targets import Limits
from stream_dp.core.residual.ways.relative import Stages
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.universe import Category, Rows, Universe
from tests.noise import RoundedNoise
from tests.slow import rest_is_slow

ALARM = 1e-6
UNIVERSE = Universe((Category("a", ("x", "y"), other=False),))
ARE_X = Predicate.conjunction({0: np.array([True, False])})
PRIVACY = Privacy(1.0, 1e-9)
BETA = 0.05
LINE = 0.014973057673586676  # rho_max of the privacy above


@cache
def block_of(count: int, n: int) -> Block:
    column = np.ones(n, dtype=np.uint8)
    column[:count] = 0
    return Block.seal(UNIVERSE, Rows((column,), None))


class Life:
    """A data set in which ``count`` of ``n`` rows of each phase satisfy ``ARE_X``."""

    def __init__(
        self,
        count: int,
        *,
        n: int = 100_000,
        phases: int = 1,
        seed: int = 1,
        beta: float = BETA,
        base_share: float = 0.0,
        **options: object,
    ) -> None:
        self.noise = RoundedNoise(seed)
        self.mechanism = Calibrated(
            UNIVERSE,
            PRIVACY,
            Accuracy(0.02, beta),
            CalibratedSettings(base_share=base_share, pacing=False, **options),  # type: ignore[arg-type]
        )
        block = block_of(count, n)
        self.data, self.window, self.truth = Blocks(UNIVERSE), range(phases), count * phases
        self.looks: list[Look] = []
        for _ in range(phases):
            self.data.append(block)
            for look in self.mechanism.open_phase(n):
                self.take(look)
        self.looks.clear()

    def take(self, look: Look) -> object:
        self.looks.append(look)
        self.mechanism.charged(look.charges)
        release = look.take(self.noise, self.data)
        self.mechanism.absorb(release)
        return release

    def query(self, relative: float, at_most: float | None = None) -> LinearQuery:
        return LinearQuery(ARE_X, self.window, target=Target(relative=relative, at_most=at_most))

    def ask(self, relative: float, at_most: float | None = None) -> Answered | Refused:
        query = self.query(relative, at_most)
        step = self.mechanism.answer(query)
        while isinstance(step, Look):
            step = self.mechanism.conclude(query, step, self.take(step))  # type: ignore[arg-type]
        assert isinstance(step, Answered | Refused)
        return step

    def paid(self) -> float:
        """The largest share that the looks took of any line."""
        taken = Counter[int]()
        for look in self.looks:
            for charge in look.charges:
                taken[charge.block] += charge.rho
        return max(taken.values(), default=0) / UNITS


def answered(outcome: Answered | Refused) -> Answered:
    assert isinstance(outcome, Answered)
    return outcome


# ---------------------------------------------------------------- stages


def test_the_bars_of_all_stages_fail_with_a_tenth_of_beta_and_the_final_look_with_the_rest() -> (
    None
):
    stages = Stages(
        Accuracy(0.02, BETA), Prices(Calibrated(UNIVERSE, PRIVACY, Accuracy(0.02, BETA)).budget)
    )
    tails = [2.0 * float(1.0 - _phi(stages.z(stage))) for stage in range(64)]
    assert 0.98 * 0.1 * BETA < math.fsum(tails) < 0.1 * BETA
    assert 2.0 * (1.0 - _phi(stages.z_final)) == pytest.approx(0.9 * BETA)


def _phi(z: float) -> float:
    return 0.5 * (1.0 + math.erf(z / math.sqrt(2.0)))


def test_each_stage_halves_the_bar_and_is_found_again_from_the_variance() -> None:
    stages = Stages(
        Accuracy(0.02, BETA), Prices(Calibrated(UNIVERSE, PRIVACY, Accuracy(0.02, BETA)).budget)
    )
    n = 1e6
    for stage in range(12):
        limit = stages.limit(stage, n)
        assert stages.z(stage) * math.sqrt(limit) == pytest.approx(n / 2 ** (stage + 1))
        assert stages.stage(limit, n) == stages.stage(0.9 * limit, n) == stage
        assert stages.stage(1.01 * limit, n) == stage - 1
    assert stages.stage(math.inf, n) == -1


def test_the_scales_of_pilots_do_not_depend_on_what_pilots_find() -> None:
    """Data sets of other counts and other noise take the same pilots, as long as they take any."""
    taken = []
    for count, seed in ((300, 1), (3_000, 2), (30_000, 3), (0, 4)):
        life = Life(count, seed=seed)
        life.ask(0.01, at_most=0.9)
        pilots = [look for look in life.looks if isinstance(look, StagedLook) and not look.final]
        taken.append([look.steps for look in pilots])
    longest = max(taken, key=len)
    assert len(longest) > 6
    assert all(steps == longest[: len(steps)] for steps in taken)
    assert len({len(steps) for steps in taken}) > 2, "what they find says only when to stop"


# ---------------------------------------------------------------- the promise


def _misses(life_of: type[Life], relative: float, count: int, runs: int, **options: object) -> int:
    missed = 0
    for seed in range(runs):
        life = life_of(count, seed=seed, **options)  # type: ignore[arg-type]
        found = answered(life.ask(relative))
        assert life_of is not Life or found.path in {Path.MEASURED, Path.CERTIFIED}
        missed += abs(found.count - life.truth) > relative * life.truth
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
    count: int, relative: float, options: dict[str, object]
) -> None:
    runs = 300
    missed = _misses(Life, relative, count, runs, **options)
    assert binomtest(missed, runs, BETA, alternative="greater").pvalue > ALARM


class WrongBeta(Life):
    """Its final look has the deviations of another failure probability: eight times the promised one."""

    def __init__(self, count: int, **options: object) -> None:
        super().__init__(count, **options)  # type: ignore[arg-type]
        stages = self.mechanism._relative._stages
        stages.z_final = float(-ndtri(8.0 * BETA / 2.0))


class TrustsTheEstimate(Life):
    """It stops at a pilot as soon as one deviation says so."""

    def __init__(self, count: int, **options: object) -> None:
        super().__init__(count, **options)  # type: ignore[arg-type]
        self.mechanism._relative._stages.z = lambda stage: 0.6  # type: ignore[method-assign]


@pytest.mark.parametrize("broken", [WrongBeta, TrustsTheEstimate])
def test_the_test_of_misses_catches_broken_copies(broken: type[Life]) -> None:
    runs = 100
    missed = _misses(broken, 0.05, 10_000, runs)
    assert binomtest(missed, runs, BETA, alternative="greater").pvalue < ALARM


@pytest.mark.parametrize(
    ("factor", "phases"),
    rest_is_slow([(1.0, 500), (1.25, 500), (1.0, 1_800), (1.1, 1_800)], first=2, unpack=True),
    ids=["few, honest", "few, a quarter more noise", "many, honest", "many, 10% more noise"],
)
def test_final_looks_are_as_far_off_as_their_bars_say(factor: float, phases: int) -> None:
    """The scale of the final look follows from noise, and still does not shift or widen its own error."""
    n, count = 100_000, 30_000
    life = Life(count, n=n, phases=phases, base_share=0.0003)
    honest = life.noise.gaussian
    life.noise.gaussian = lambda sigma, size: honest(Fraction(factor * float(sigma)), size)  # type: ignore[method-assign]
    deviations = []
    for block in life.window:
        life.window = range(block, block + 1)
        found = answered(life.ask(0.01))
        last = life.looks[-1]
        assert isinstance(last, StagedLook)
        assert last.final
        assert found.error_bar is not None
        deviations.append(
            (found.count - count) / (found.error_bar * n) * life.mechanism._relative._stages.z_final
        )
    p_value = float(chi2.sf(np.square(deviations).sum(), len(deviations)))
    assert (p_value > ALARM) == (factor == 1.0)


def test_the_final_look_stands_alone_and_its_bar_is_its_own() -> None:
    life = Life(10_000)
    found = answered(life.ask(0.05))
    *pilots, last = life.looks
    assert isinstance(last, StagedLook)
    assert last.final
    assert not any(look.final for look in pilots if isinstance(look, StagedLook))
    deviation = math.sqrt(sum(float(grid_sigma(step)) ** 2 for _, step in last.steps))
    z = life.mechanism._relative._stages.z_final
    assert found.error_bar == pytest.approx(z * deviation / 100_000)
    assert found.count == int(found.count), "a count of the look, and no mean with others"


# ---------------------------------------------------------------- prices


@pytest.mark.parametrize(("count", "relative"), [(10_000, 0.05), (50_000, 0.02), (3_000, 0.05)])
def test_the_price_is_near_that_of_a_look_that_knew_the_count(count: int, relative: float) -> None:
    """At most 2.5 times as much, on the average of 40 runs."""
    z = float(-ndtri(0.005))
    ideal = (z / (relative * count)) ** 2 / 2.0 / LINE
    prices = []
    for seed in range(40):
        life = Life(count, seed=seed, beta=0.01)
        answered(life.ask(relative))
        prices.append(life.paid())
    assert ideal < float(np.mean(prices)) < 2.5 * ideal


def test_a_count_of_nothing_ends_long_before_it_has_taken_what_it_may() -> None:
    life = Life(0)
    found = answered(life.ask(0.05))
    assert found.path is Path.UNVERIFIED
    assert found.error_bar is not None
    assert found.value <= found.error_bar
    assert 0.0 < life.paid() < 0.02
    assert len(life.looks) < 12


@pytest.mark.parametrize("at_most", [0.0002, 0.001, 0.01])
def test_all_looks_together_take_no_more_than_the_query_may(at_most: float) -> None:
    for count in (0, 100, 1_000, 10_000):
        life = Life(count, phases=2)
        outcome = life.ask(0.05, at_most=at_most)
        assert life.paid() <= at_most
        if isinstance(outcome, Answered) and outcome.path is Path.UNVERIFIED:
            assert outcome.error_bar is not None
            assert abs(outcome.count - life.truth) <= outcome.error_bar * outcome.n


def test_a_price_that_is_known_to_be_too_high_is_refused_before_any_look() -> None:
    life = Life(1_000, base_share=0.01)
    refused = life.ask(0.02, at_most=0.001)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.PRICE_TOO_HIGH
    assert not life.looks


def test_the_definition_says_what_a_relative_error_may_take() -> None:
    for limits, most in ((Limits(), 0.1), (Limits(query_share=0.0005), 0.0005)):
        life = Life(700, limits=limits)
        life.ask(0.02)
        assert 0.0 < life.paid() <= most


def test_a_quote_is_marked_as_expected_and_near_the_price() -> None:
    life = Life(10_000, base_share=0.0001)
    query = life.query(0.02)
    quote = life.mechanism.quote(query)
    assert quote == life.mechanism.quote(query), "it changes nothing"
    assert quote.expected
    assert quote.note is not None
    assert "10%" in quote.note
    answered(life.ask(0.02))
    expected = max(charge.rho for charge in quote.charges) / UNITS
    assert 0.5 < life.paid() / expected < 2.0
    assert quote.error_bar == pytest.approx(0.02 * 0.1, rel=0.2)


# ---------------------------------------------------------------- repeats and restarts


def test_a_repeat_serves_where_its_bar_is_small_enough_for_the_count() -> None:
    life = Life(10_000)
    first = answered(life.ask(0.05))
    n_looks = len(life.looks)
    assert life.ask(0.06) == life.ask(0.5) == replace(first, path=Path.REPEAT)
    assert len(life.looks) == n_looks
    assert answered(life.ask(0.01)).path is Path.MEASURED


def test_a_restart_goes_on_at_the_stage_that_was_published() -> None:
    """A crash between two looks loses nothing but the count of what the query took."""
    life = Life(10_000)
    query = life.query(0.05)
    step = life.mechanism.answer(query)
    for _ in range(3):
        assert isinstance(step, StagedLook)
        step = life.mechanism.conclude(query, step, life.take(step))  # type: ignore[arg-type]
    again = life.mechanism.answer(query)
    assert isinstance(step, StagedLook)
    assert isinstance(again, StagedLook)
    assert (again.steps, again.charges, again.final) == (step.steps, step.charges, step.final)
