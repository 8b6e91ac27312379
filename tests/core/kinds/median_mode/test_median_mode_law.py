"""Stable answers: distances by brute force, exact privacy, published probabilities."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from stream_dp.core.kinds.median_mode.stable_law import (
    NEVER,
    StablePlan,
    disjoint_mode,
    mode,
    order_statistic,
    stable_median,
    stable_mode,
)
from stream_dp.core.randomness.noise_sources import NoiseSource
from tests.noise import QuickNoise

ALARM = 1e-6
Counts = npt.NDArray[np.int64]
PLAN = StablePlan(Fraction(1), Fraction(1, 1000))


def histograms(n_bins: int, n_rows: int) -> Iterator[Counts]:
    for cuts in itertools.combinations(range(n_rows + n_bins - 1), n_bins - 1):
        edges = [-1, *cuts, n_rows + n_bins - 1]
        yield np.diff(edges) - 1


def brute_force(answer: Callable[[Counts], int], counts: Counts) -> int:
    """Rows to replace until the answer is another: over all data of so many rows."""
    n_rows = int(counts.sum())
    distances = [
        int(np.abs(other - counts).sum()) // 2
        for other in histograms(len(counts), n_rows)
        if answer(other) != answer(counts)
    ]
    return min(distances, default=NEVER)


@pytest.mark.parametrize(("n_bins", "n_rows"), [(1, 3), (2, 5), (3, 6), (4, 5), (5, 4)])
def test_the_distance_of_an_order_statistic_is_the_least_number_of_rows_that_change_it(
    n_bins: int, n_rows: int
) -> None:
    for rank in range(1, n_rows + 1):

        def answer(counts: Counts, rank: int = rank) -> int:
            return int(np.repeat(np.arange(len(counts)), counts)[rank - 1])

        for counts in histograms(n_bins, n_rows):
            assert order_statistic(counts, rank) == (answer(counts), brute_force(answer, counts))


@pytest.mark.parametrize(("n_labels", "n_answers"), [(1, 3), (2, 6), (3, 7), (4, 5)])
def test_the_distance_of_a_mode_is_the_least_number_of_answers_that_change_it(
    n_labels: int, n_answers: int
) -> None:
    def answer(frequencies: Counts) -> int:
        return int(np.argmax(frequencies))

    for frequencies in histograms(n_labels, n_answers):
        assert mode(frequencies) == (answer(frequencies), brute_force(answer, frequencies))


def test_the_example_of_the_notes() -> None:
    rows = [1, 1, 2, 3, 3, 3, 3, 4, 5, 5, 5]
    assert order_statistic(np.bincount(rows), 6) == (3, 2)


@pytest.mark.parametrize("rank", [0, 4])
def test_a_rank_that_no_row_has_is_refused(rank: int) -> None:
    with pytest.raises(ValueError, match="rank"):
        order_statistic(np.array([1, 2]), rank)


class TestThreshold:
    @pytest.mark.parametrize(
        ("delta", "threshold"), [(Fraction(1, 1000), 7), (Fraction(1, 10**6), 14)]
    )
    def test_it_is_as_published(self, delta: Fraction, threshold: int) -> None:
        assert StablePlan(Fraction(1), delta).threshold == threshold

    GOLDEN = ((1, 0.000667), (2, 0.001812), (7, 0.26894), (10, 0.96360), (14, 0.99933))

    @pytest.mark.parametrize(("distance", "expected"), GOLDEN)
    def test_release_probabilities_are_as_published(self, distance: int, expected: float) -> None:
        assert PLAN.release_probability(distance) == pytest.approx(expected, abs=0.00001)

    def test_at_a_small_delta_a_distance_of_21_is_as_good_as_sure(self) -> None:
        plan = StablePlan(Fraction(1), Fraction(1, 10**6))
        assert plan.release_probability(21) == pytest.approx(0.9993, abs=0.00005)

    @pytest.mark.parametrize("distance", [2, 7, 10, 14])
    def test_releases_have_this_probability(self, distance: int) -> None:
        n = 20_000
        released = self.released(QuickNoise(1), distance, n)
        expected = PLAN.release_probability(distance)
        assert stats.binomtest(released, n, expected).pvalue > ALARM

    @pytest.mark.parametrize("factor", [0.9, 1.1])
    def test_noise_a_tenth_off_is_noticed(self, factor: float) -> None:
        n = 60_000
        released = self.released(QuickNoise(1, factor), 10, n)
        assert stats.binomtest(released, n, PLAN.release_probability(10)).pvalue < ALARM

    def released(self, noise: NoiseSource, distance: int, n: int) -> int:
        return sum(PLAN.release(5, distance, noise) == 5 for _ in range(n))


def worst_delta(
    plan: StablePlan, distance_of: Callable[[Counts, int], tuple[int, int]], n_rows: int
) -> float:
    """Exact hockey-stick divergence at epsilon, over all neighbours of a small universe."""
    factor = math.exp(plan.epsilon)
    worst = 0.0
    for counts in histograms(3, n_rows):
        for source, target in itertools.permutations(range(3), 2):
            if not counts[source]:
                continue
            other = counts.copy()
            other[source] -= 1
            other[target] += 1
            laws = []
            for data in (counts, other):
                answer, distance = distance_of(data, -(-n_rows // 2))
                released = plan.release_probability(distance)
                laws.append({answer: released, None: 1.0 - released})
            p, q = laws
            worst = max(worst, sum(max(0.0, p[o] - factor * q.get(o, 0.0)) for o in p))
    return worst


class TestExactPrivacy:
    @pytest.mark.parametrize("n_rows", [5, 6, 17, 18])
    def test_the_median_keeps_its_promise_on_every_pair_of_neighbours(self, n_rows: int) -> None:
        found = worst_delta(PLAN, order_statistic, n_rows)
        assert 0.9 * 0.000667 < found <= PLAN.delta

    @pytest.mark.parametrize("n_rows", [5, 6, 17, 18])
    def test_the_mode_keeps_its_promise_on_every_pair_of_neighbours(self, n_rows: int) -> None:
        found = worst_delta(PLAN, lambda counts, _: mode(counts), n_rows)
        assert 0.9 * 0.000667 < found <= PLAN.delta

    def test_with_a_distance_one_too_large_it_would_not(self) -> None:
        def broken(counts: Counts, rank: int) -> tuple[int, int]:
            answer, distance = order_statistic(counts, rank)
            return answer, distance + 1

        assert worst_delta(PLAN, broken, 17) > PLAN.delta

    def test_with_noise_a_tenth_too_narrow_it_would_not(self) -> None:
        class Narrow(StablePlan):
            scale = Fraction(9, 10)
            threshold = PLAN.threshold

        assert worst_delta(Narrow(PLAN.epsilon, PLAN.delta), order_statistic, 18) > PLAN.delta


def test_a_stable_median_is_released_and_an_unstable_one_is_not() -> None:
    noise = QuickNoise(2)
    stable, unstable = np.array([100, 900, 100]), np.array([500, 0, 500])
    assert {stable_median(PLAN, stable, noise) for _ in range(50)} == {1}
    answers = [stable_median(PLAN, unstable, noise) for _ in range(2000)]
    assert (
        stats.binomtest(2000 - answers.count(None), 2000, PLAN.release_probability(1)).pvalue
        > ALARM
    )


def test_a_mode_that_leads_by_enough_rows_is_released_and_a_tie_is_not() -> None:
    noise = QuickNoise(2)
    assert {stable_mode(PLAN, np.array([100, 200, 100]), noise) for _ in range(50)} == {1}
    answers = [stable_mode(PLAN, np.array([200, 200]), noise) for _ in range(2000)]
    assert (
        stats.binomtest(2000 - answers.count(None), 2000, PLAN.release_probability(1)).pvalue
        > ALARM
    )


MILLIONTH = StablePlan(Fraction(1), Fraction(1, 10**6))


class TestDisjointMode:
    def test_seventy_percent_zeros_are_released_every_time(self) -> None:
        """Golden row: n = 2500, m = 25; when all 100 groups agree the distance is 51."""
        noise, counts = QuickNoise(3), np.array([1750, 750])
        assert {disjoint_mode(MILLIONTH, 100, counts, noise) for _ in range(200)} == {0}
        assert mode(np.array([100, 0])) == (0, 51)
        assert MILLIONTH.release_probability(51) > 0.999

    def test_a_tie_is_not_released(self) -> None:
        noise, counts = QuickNoise(4), np.array([1250, 1250])
        answers = [disjoint_mode(MILLIONTH, 100, counts, noise) for _ in range(200)]
        assert answers.count(None) > 100

    def test_the_deal_gives_each_group_its_share_and_treats_all_rows_alike(self) -> None:
        """Of 3 rows of bin 1 among 9 in 3 groups, two or more meet in a group with probability 1 - 27/84."""

        class Votes(StablePlan):
            def release(self, answer: int, distance: int, noise: NoiseSource) -> int:
                return distance

        # Three groups of three: bin 1 wins a group when two or more of its rows meet there.
        noise, votes, deals = QuickNoise(5), Votes(PLAN.epsilon, PLAN.delta), 4000
        met = sum(disjoint_mode(votes, 3, np.array([6, 3]), noise) == 1 for _ in range(deals))
        assert stats.binomtest(met, deals, 1 - 27 / 84).pvalue > ALARM

    @pytest.mark.parametrize("n_groups", [100, 0])
    def test_too_few_rows_are_refused(self, n_groups: int) -> None:
        with pytest.raises(ValueError, match="too few"):
            disjoint_mode(MILLIONTH, n_groups, np.array([99]), QuickNoise(6))
