"""BetweenThresholds: its constants, its exact privacy loss, its laws and its promises.

The exact loss is computed from what the code itself does: every offset and every noise is tried, and the
transcripts of 28 queries are added up. The same computation fails for copies that are broken on purpose.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from stream_dp.core.kinds.between.between_law import BetweenPlan, BetweenThresholds
from stream_dp.core.kinds.loss import Secret
from stream_dp.core.outcome import Side
from stream_dp.core.randomness.noise_sources import NoiseSource
from tests.noise import QuickNoise, ScriptedNoise

ALARM = 1e-6
Floats = npt.NDArray[np.float64]
ONE = Fraction(1)


def up_to(scale: Fraction, z: int) -> float:
    """Pr[X <= z] of discrete Laplace noise."""
    p = math.exp(-1 / scale)
    return 1 - p ** (z + 1) / (1 + p) if z >= 0 else p**-z / (1 + p)


class Law:
    """Exact probabilities of the answers to a count, for every offset, read off from the code.

    Attributes:
        weights: Probability of each offset, shape (n_offsets,).
    """

    def __init__(self, plan: BetweenPlan, gap: int) -> None:
        self._plan = plan
        self._gap = gap
        script = ScriptedNoise()
        plan.draw(script)
        self._offsets = range(-int(40 * script.asked[-1]), int(40 * script.asked[-1]) + 1)
        self.weights = stats.dlaplace.pmf(np.array(self._offsets), 1 / float(script.asked[-1]))
        self._known: dict[int, Floats] = {}

    def of(self, count: int) -> Floats:
        """Shape (3, n_offsets): below, above, between."""
        if count not in self._known:
            columns = [self._sides(count, Secret([offset])) for offset in self._offsets]
            self._known[count] = np.array(columns).T
        return self._known[count]

    def _sides(self, count: int, secret: Secret) -> tuple[float, float, float]:
        script = ScriptedNoise()
        run = BetweenThresholds(self._plan)

        def side(nu: int) -> Side:
            script.constant = nu
            return run.look(count, 0, self._gap, secret=secret, noise=script)

        def first(holds: Callable[[Side], bool]) -> int:
            """The least noise from which on a side holds; sides come in order."""
            low, high = -1000, 1000
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (low, middle) if holds(side(middle)) else (middle, high)
            return high

        first_not_below = first(lambda s: s is not Side.BELOW)
        below = up_to(script.asked[-1], first_not_below - 1)
        not_above = up_to(script.asked[-1], first(lambda s: s is Side.ABOVE) - 1)
        return below, 1.0 - not_above, not_above - below


def in_block(sides: Floats, n: int) -> tuple[Floats, Floats, Floats, Floats]:
    """What may happen in n queries of one count, answers in any order, for every offset.

    Returns:
        Probabilities of one order and how many orders there are: of halting, then of passing.
    """
    below, above, between = sides
    halts = [
        (below**i * above ** (t - i) * between, math.comb(t, i))
        for t in range(n)
        for i in range(t + 1)
    ]
    passes = [(below**i * above ** (n - i), math.comb(n, i)) for i in range(n + 1)]
    return (
        np.array([p for p, _ in halts]),
        np.array([float(m) for _, m in halts]),
        np.array([p for p, _ in passes]),
        np.array([float(m) for _, m in passes]),
    )


def transcripts(
    law: Law, first: int, second: int, n: int, *, redrawn: bool
) -> tuple[Floats, Floats]:
    """Probability of each transcript of n queries of one count, n of another, and how many are like it."""
    weights, blocks = law.weights, [law.of(first), law.of(second)]
    if redrawn:  # a new offset for every query: answers are independent of each other
        blocks = [(block @ weights)[:, None] for block in blocks]
        weights = np.ones(1)
    halt1, n_halt1, pass1, n_pass1 = in_block(blocks[0], n)
    halt2, n_halt2, pass2, n_pass2 = in_block(blocks[1], n)
    later, n_later = np.concatenate([halt2, pass2]), np.concatenate([n_halt2, n_pass2])
    probabilities = np.concatenate([halt1 @ weights, ((pass1 * weights) @ later.T).ravel()])
    return probabilities, np.concatenate([n_halt1, np.outer(n_pass1, n_later).ravel()])


def hockey_stick(plan: BetweenPlan, gap: int, *, redrawn: bool = False, n: int = 14) -> float:
    """The exact delta at the plan's epsilon, over neighbours and counts that are hard to tell apart."""
    law = Law(plan, gap)
    factor = math.exp(plan.epsilon)
    worst = 0.0
    for first, second in itertools.product(sorted({-2, 0, gap // 2, gap, gap + 2}), repeat=2):
        p, orders = transcripts(law, first, second, n, redrawn=redrawn)
        assert (p * orders).sum() == pytest.approx(1.0, abs=1e-9)
        for a, b in itertools.product((1, -1), repeat=2):
            q, _ = transcripts(law, first + a, second + b, n, redrawn=redrawn)
            for one, other in ((p, q), (q, p)):
                worst = max(worst, float(orders @ np.maximum(0.0, one - factor * other)))
    return worst


class AnyGap(BetweenPlan):
    """Looks whatever the gap, to see what that does."""

    min_gap = -(10**6)


class NarrowNoise(AnyGap):
    @cached_property
    def noise_scale(self) -> Fraction:
        return Fraction(9, 10) * 6 / self.epsilon


class NarrowOffset(AnyGap):
    @cached_property
    def offset_scale(self) -> Fraction:
        return Fraction(9, 10) * 2 / self.epsilon


class WideNoise(AnyGap):
    @cached_property
    def noise_scale(self) -> Fraction:
        return Fraction(11, 10) * 6 / self.epsilon


class WideOffset(AnyGap):
    @cached_property
    def offset_scale(self) -> Fraction:
        return Fraction(11, 10) * 2 / self.epsilon


class FlippedSign(AnyGap):
    def thresholds(self, low: int, high: int, secret: Secret) -> tuple[int, int]:
        (offset,) = secret.values
        return low + offset, high + offset


class OffsetAlone(AnyGap):
    """Noise on the thresholds only, or as good as."""

    @cached_property
    def noise_scale(self) -> Fraction:
        return Fraction(1)


class TestExactPrivacy:
    GOLDEN = ((0, 0.02659), (8, 0.00368), (32, 9.1e-6))

    @pytest.mark.parametrize(("gap", "delta"), GOLDEN)
    def test_the_loss_beyond_epsilon_is_as_published(self, gap: int, delta: float) -> None:
        assert hockey_stick(AnyGap(ONE, Fraction(1, 1000)), gap) == pytest.approx(delta, rel=0.01)

    @pytest.mark.parametrize(
        "broken", [NarrowNoise, WideNoise, NarrowOffset, WideOffset, FlippedSign]
    )
    def test_of_a_broken_copy_it_is_another(self, broken: type[BetweenPlan]) -> None:
        found = hockey_stick(broken(ONE, Fraction(1, 1000)), 32)
        assert found != pytest.approx(9.1e-6, rel=0.05)

    def test_of_an_offset_for_each_query_it_is_another(self) -> None:
        found = hockey_stick(AnyGap(ONE, Fraction(1, 1000)), 32, redrawn=True)
        assert found != pytest.approx(9.1e-6, rel=0.05)

    @pytest.mark.parametrize(
        ("epsilon", "delta"), [(ONE, Fraction(1, 10**6)), (Fraction(1, 2), Fraction(1, 10**4))]
    )
    def test_at_the_least_gap_the_loss_is_within_the_promise(
        self, epsilon: Fraction, delta: Fraction
    ) -> None:
        plan = BetweenPlan(epsilon, delta)
        assert 0.0 < hockey_stick(plan, plan.min_gap) <= delta

    @pytest.mark.parametrize("broken", [FlippedSign, OffsetAlone])
    def test_a_broken_copy_breaks_the_promise(self, broken: type[BetweenPlan]) -> None:
        delta = Fraction(1, 10**6)
        gap = BetweenPlan(ONE, delta).min_gap
        assert hockey_stick(broken(ONE, delta), gap) > 10 * delta

    def test_an_offset_for_each_query_breaks_the_promise(self) -> None:
        plan = BetweenPlan(ONE, Fraction(1, 10**6))
        assert hockey_stick(plan, plan.min_gap, redrawn=True) > 10 * plan.delta


class TestConstants:
    @pytest.mark.parametrize(
        ("epsilon", "delta", "expected"),
        [
            (ONE, Fraction(1, 10**6), (26, 7, 60)),
            (Fraction(1, 2), Fraction(1, 10**4), (34, 14, 83)),
        ],
    )
    def test_margin_width_and_gap(
        self, epsilon: Fraction, delta: Fraction, expected: tuple[int, int, int]
    ) -> None:
        plan = BetweenPlan(epsilon, delta)
        assert (plan.largest_offset, plan.min_width, plan.min_gap) == expected

    def test_the_papers_gap_is_far_larger(self) -> None:
        paper = 12 * (math.log(10) + math.log(1e6) + 1)
        assert paper == pytest.approx(205.4, abs=0.05)

    @pytest.mark.parametrize(("n_between", "gap"), [(2, 39), (3, 45)])
    def test_gap_for_several_answers_between(self, n_between: int, gap: int) -> None:
        assert BetweenPlan(ONE, Fraction(1, 1000), n_between).min_gap == gap

    def test_scales_that_no_float_holds_are_rounded_up_and_the_gap_with_them(self) -> None:
        plan = BetweenPlan(Fraction(1, 7) + Fraction(1, 10**30), Fraction(1, 10**6), 3)
        assert plan.offset_scale >= 2 / plan.epsilon
        assert plan.noise_scale >= 18 / plan.epsilon
        assert plan.min_width >= float(plan.noise_scale) * math.log(3)

    def test_what_makes_no_plan_is_refused(self) -> None:
        with pytest.raises(ValueError):
            BetweenPlan(ONE, Fraction(0))
        with pytest.raises(ValueError):
            BetweenPlan(ONE, Fraction(1, 10), 0)


GOLDEN_LAWS = [
    (0, (0.46833, 0.00002, 0.53164), 0.004),
    (-20, (0.97832, 0.0, 0.02168), 0.002),
    (30, (0.00347, 0.00347, 0.99307), 0.001),
]


class TestLaw:
    """epsilon 1, delta 1e-6, thresholds 0 and 60, one query."""

    PLAN = BetweenPlan(ONE, Fraction(1, 10**6))

    @pytest.mark.parametrize(("count", "expected", "tolerance"), GOLDEN_LAWS)
    def test_the_exact_law_is_as_published(
        self, count: int, expected: tuple[float, ...], tolerance: float
    ) -> None:
        law = Law(self.PLAN, 60)
        below, above, between = law.of(count) @ law.weights
        assert (below, above, between) == pytest.approx(expected, abs=0.00001)

    @pytest.mark.parametrize(("count", "expected", "tolerance"), GOLDEN_LAWS)
    def test_runs_follow_it(
        self, count: int, expected: tuple[float, ...], tolerance: float
    ) -> None:
        """5.2 deviations are within the published tolerance's share of the runs; false alarm 1e-6."""
        frequencies = self.run(QuickNoise(1), count, 20_000)
        spread = 5.2 * np.sqrt(np.array(expected) * (1 - np.array(expected)) / 20_000)
        assert np.all(np.abs(frequencies - expected) < np.maximum(spread, 0.0005))

    @pytest.mark.parametrize("factor", [0.8, 1.25])
    def test_noise_of_a_wrong_scale_is_noticed(self, factor: float) -> None:
        frequencies = self.run(QuickNoise(1, factor), -20, 20_000)
        assert abs(frequencies[0] - 0.97832) > 5.2 * math.sqrt(0.97832 * 0.02168 / 20_000)

    def run(self, noise: NoiseSource, count: int, n: int) -> Floats:
        order = (Side.BELOW, Side.ABOVE, Side.BETWEEN)
        seen = [0, 0, 0]
        for _ in range(n):
            run = BetweenThresholds(self.PLAN)
            side = run.look(count, 0, 60, secret=self.PLAN.draw(noise), noise=noise)
            seen[order.index(side)] += 1
        return np.array(seen) / n


class TestRun:
    PLAN = BetweenPlan(ONE, Fraction(1, 1000), 2)

    def ask(self, run: BetweenThresholds, count: int, noise: Any, secret: Secret) -> Side:
        side = run.look(count, 0, run.plan.min_gap, secret=secret, noise=noise)
        run.absorb(side)
        return side

    def test_it_halts_at_the_last_answer_between_that_is_paid_for(self) -> None:
        run, noise, secret = BetweenThresholds(self.PLAN), ScriptedNoise(), Secret([0])
        asked = [self.ask(run, count, noise, secret) for count in (-5, 20, -5, 99, 20)]
        assert asked == [Side.BELOW, Side.BETWEEN, Side.BELOW, Side.ABOVE, Side.BETWEEN]
        assert run.halted
        with pytest.raises(RuntimeError, match="halted"):
            self.ask(run, -5, noise, secret)

    def test_the_public_state_is_a_fold_over_the_answers(self) -> None:
        run, replayed = BetweenThresholds(self.PLAN), BetweenThresholds(self.PLAN)
        for count in (-5, 20, 99):
            replayed.absorb(self.ask(run, count, ScriptedNoise(), Secret([0])))
        assert (run.left, run.halted) == (replayed.left, replayed.halted) == (1, False)

    def test_an_answer_that_was_lost_counts_as_one_between(self) -> None:
        run = BetweenThresholds(self.PLAN)
        run.lost()
        assert run.left == 1

    def test_a_gap_too_small_is_refused(self) -> None:
        run = BetweenThresholds(self.PLAN)
        with pytest.raises(ValueError, match="apart"):
            run.look(0, 0, self.PLAN.min_gap - 1, secret=Secret([0]), noise=ScriptedNoise())

    def test_a_large_offset_makes_the_thresholds_cross_and_below_is_tested_first(self) -> None:
        run = BetweenThresholds(self.PLAN)
        assert self.ask(run, 20, ScriptedNoise(), Secret([30])) is Side.BELOW

    def test_nothing_private_is_shown(self) -> None:
        run = BetweenThresholds(self.PLAN)
        assert repr(run) == "BetweenThresholds(left=2)"

    @pytest.mark.parametrize("n_between", [1, 3])
    def test_answers_are_right_to_the_error_promised(self, n_between: int) -> None:
        n_queries, beta, runs = 50, 0.2, 400
        plan = BetweenPlan(ONE, Fraction(1, 1000), n_between)
        error = plan.error(n_queries, beta)
        low, high = 1000, 1000 + plan.min_gap + 2 * error
        noise, rng, wrong = QuickNoise(7), np.random.default_rng(8), 0
        for _ in range(runs):
            run, secret, right = BetweenThresholds(plan), plan.draw(noise), True
            for count in rng.integers(low - 2 * error, high + 2 * error, n_queries).tolist():
                if run.halted:
                    break
                side = run.look(count, low, high, secret=secret, noise=noise)
                run.absorb(side)
                right &= {
                    Side.BELOW: count <= low + error,
                    Side.ABOVE: count >= high - error,
                    Side.BETWEEN: low - error <= count <= high + error,
                }[side]
            wrong += not right
        assert stats.binomtest(wrong, runs, beta, alternative="greater").pvalue > ALARM
