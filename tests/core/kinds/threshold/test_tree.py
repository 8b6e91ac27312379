"""Thresholds from a published tree.

Statistical tests have seeded noise and fail by chance with probability at most 1e-6.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from stream_dp.core.kinds.threshold.count_tree import Tree, TreePlan
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.errors import CorruptState
from tests.noise import QuickNoise, ScriptedNoise

ALARM = 1e-6
Counts = npt.NDArray[np.int64]


def exact_tree(counts: Counts, epsilon: int = 1) -> Tree:
    plan = TreePlan(len(counts), Fraction(epsilon))
    return Tree.of(plan, [plan.measure(counts, ScriptedNoise())], int(counts.sum()))


histograms = st.lists(st.integers(0, 9), min_size=2, max_size=40).map(np.array)


@given(histograms)
def test_without_noise_every_threshold_is_exact(counts: Counts) -> None:
    assert exact_tree(counts).thresholds.tolist() == np.cumsum(counts).tolist()


@given(histograms, st.data())
def test_without_noise_every_range_is_exact(counts: Counts, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(counts) - 1))
    bins = range(start, data.draw(st.integers(start + 1, len(counts))))
    assert exact_tree(counts).count(bins) == counts[bins.start : bins.stop].sum()


@pytest.mark.parametrize("levels", [1, 2, 3, 4, 5])
def test_replacing_a_row_moves_the_nodes_by_at_most_2_levels_less_1_and_some_row_by_so_much(
    levels: int,
) -> None:
    n_bins = 2**levels
    plan = TreePlan(n_bins, Fraction(1))
    single = [
        plan.measure(np.eye(n_bins, dtype=np.int64)[bin_], ScriptedNoise())
        for bin_ in range(n_bins)
    ]
    moved = max(int(np.abs(a - b).sum()) for a, b in itertools.combinations(single, 2))
    assert moved == 2 * levels - 1
    assert plan.scale * plan.epsilon == moved


@pytest.mark.parametrize("n_bins", [2, 3, 5, 13, 24, 33])
def test_the_sensitivity_holds_for_universes_that_are_no_power_of_two(n_bins: int) -> None:
    plan = TreePlan(n_bins, Fraction(1))
    single = [
        plan.measure(np.eye(n_bins, dtype=np.int64)[bin_], ScriptedNoise())
        for bin_ in range(n_bins)
    ]
    moved = max(int(np.abs(a - b).sum()) for a, b in itertools.combinations(single, 2))
    assert moved <= plan.scale * plan.epsilon


class TestGolden:
    @pytest.mark.parametrize(
        ("k", "levels", "scale", "sd", "bound"),
        [(15, 4, 7, 19.78, 126.7), (127, 7, 13, 48.63, 313.8)],
    )
    def test_constants(self, k: int, levels: int, scale: int, sd: float, bound: float) -> None:
        plan = TreePlan(k + 1, Fraction(1))
        assert (plan.levels, plan.scale) == (levels, scale)
        p = math.exp(-1 / plan.scale)
        n_nodes = k.bit_count()
        assert math.sqrt(n_nodes * 2 * p) / (1 - p) == pytest.approx(sd, abs=0.005)
        tree = Tree.of(plan, [np.zeros(k, dtype=np.int64)], 1000)
        assert tree.error_bar_simultaneous(0.05) == pytest.approx(bound, abs=0.05)

    @pytest.mark.parametrize(("k", "mean_worst"), [(15, 28.7), (127, 102.0)])
    def test_mean_largest_error(self, k: int, mean_worst: float) -> None:
        """Within 3%: 4.9 deviations of the mean of the runs, or more; noise a tenth off is outside."""
        for factor, right in [(1.0, True), (0.9, False), (1.1, False)]:
            worst = self.largest_errors(QuickNoise(1, factor), k, 6000)
            assert 4.9 * worst.std() / math.sqrt(len(worst)) < 0.03 * worst.mean()
            assert (abs(worst.mean() / mean_worst - 1) < 0.03) == right

    @staticmethod
    def largest_errors(noise: NoiseSource, k: int, runs: int) -> npt.NDArray[np.float64]:
        counts = np.full(k + 1, 1000)
        plan = TreePlan(k + 1, Fraction(1))
        truth = np.cumsum(counts)
        return np.array(
            [
                np.abs(
                    Tree.of(plan, [plan.measure(counts, noise)], int(truth[-1])).thresholds - truth
                ).max()
                for _ in range(runs)
            ],
            dtype=float,
        )


def test_each_node_has_noise_of_the_scale_and_not_of_one_a_tenth_off() -> None:
    plan = TreePlan(2**15, Fraction(1))
    for factor in (1.0, 0.9, 1.1):
        draws = plan.measure(np.zeros(2**15, dtype=np.int64), QuickNoise(2, factor))
        edges = np.arange(-60, 61, 5)
        law = stats.dlaplace(1 / float(plan.scale))
        mass = np.diff(law.cdf(np.concatenate([[-np.inf], edges - 1, [np.inf]])))
        observed = np.bincount(np.searchsorted(edges, draws, side="right"), minlength=len(mass))
        chance = stats.chisquare(observed, len(draws) * mass).pvalue
        assert (chance > ALARM) == (factor == 1.0), chance


@pytest.mark.parametrize("n_bins", [6, 37])
@pytest.mark.parametrize("n_releases", [1, 3])
def test_error_bars_cover(n_bins: int, n_releases: int) -> None:
    plan = TreePlan(n_bins, Fraction(1, 2))
    truth = n_releases * 10_000 * np.arange(1, n_bins + 1)
    noise = QuickNoise(2)
    trees = [
        Tree.of(
            plan,
            [plan.measure(np.full(n_bins, 10_000), noise) for _ in range(n_releases)],
            int(truth[-1]),
        )
        for _ in range(1000)
    ]
    errors = np.abs([tree.thresholds - truth for tree in trees])
    assert not errors[:, -1].any()
    for failure in (0.3, 0.01):
        bars = [trees[0].error_bar_of(range(code + 1), failure) for code in range(n_bins)]
        beyond = [int(b) for b in np.sum(errors > bars, axis=0)]
        beyond.append(int(np.sum(errors.max(axis=1) > trees[0].error_bar_simultaneous(failure))))
        for count in beyond:
            chance = stats.binomtest(count, len(trees), failure, alternative="greater").pvalue
            assert chance > ALARM / len(beyond)


RANGES = {
    range(5): 2,  # nodes 4 and 5
    range(4, 6): 1,  # node 6; node 4 cancels out
    range(3, 13): 5,  # nodes 8, 12 and 13, less 2 and 3
    range(7, 8): 4,  # node 8, less 4, 6 and 7
    range(9, 37): 2,  # all rows, less nodes 8 and 9
    range(37): 0,
}
"""Ranges of 37 bins, and how many noisy nodes each is the sum of."""


def test_a_range_has_the_noise_of_the_nodes_that_do_not_cancel_and_its_bar_covers() -> None:
    """Two blocks: the variance is within 4.9 deviations of the right one; noise a tenth wider is noticed."""
    plan, n_runs = TreePlan(37, Fraction(1, 2)), 6000
    p = math.exp(-1 / plan.scale)
    of_node = 2 * 2 * p / (1 - p) ** 2
    exact = plan.measure(np.full(37, 20_000), ScriptedNoise())
    for factor in (1.0, 1.1):
        draws = QuickNoise(7, factor).laplace(plan.scale, n_runs * 2 * 36)
        trees = [
            Tree(plan, 740_000, 2, exact + of_run.sum(axis=0))
            for of_run in draws.reshape(n_runs, 2, 36)
        ]
        for bins, n_nodes in RANGES.items():
            errors = np.array([tree.count(bins) for tree in trees]) - 20_000 * len(bins)
            slack = 4.9 * math.sqrt(3.5 / n_runs) * n_nodes * of_node
            as_expected = abs(errors.var() - n_nodes * of_node) <= slack
            assert as_expected == (factor == 1.0 or n_nodes == 0)
            for failure in (0.3, 0.01) if factor == 1.0 else ():
                beyond = int(np.sum(np.abs(errors) > trees[0].error_bar_of(bins, failure)))
                chance = stats.binomtest(beyond, n_runs, failure, alternative="greater").pvalue
                assert chance > ALARM


@pytest.mark.parametrize(("bins", "n_nodes"), RANGES.items())
def test_the_bar_of_a_range_is_that_of_a_threshold_with_as_many_nodes(
    bins: range, n_nodes: int
) -> None:
    tree = Tree.of(TreePlan(37, Fraction(1)), [np.zeros(36, dtype=np.int64)], 1000)
    threshold = range({0: 37, 1: 1, 2: 3, 4: 15, 5: 31}[n_nodes])
    assert tree.error_bar_of(bins, 0.05) == tree.error_bar_of(threshold, 0.05)


def test_the_last_bin_is_certain_and_answers_stay_within_the_rows() -> None:
    plan = TreePlan(4, Fraction(1))
    tree = Tree.of(plan, [np.array([-5, 900, 3])], 10)
    assert [tree.count(range(stop)) for stop in range(1, 5)] == [0, 10, 10, 10]
    assert tree.error_bar_of(range(4), 0.05) == 0.0


def test_bytes_read_back_and_others_are_corrupt() -> None:
    plan = TreePlan(5, Fraction(1))
    nodes = np.array([3, -1, 2**40, 0])
    data = plan.to_bytes(nodes)
    assert plan.from_bytes(data).tolist() == nodes.tolist()
    for bad in (
        b"",
        b"\x02" + data[1:],
        data[:-1],
        data + b"\0",
        TreePlan(6, Fraction(1)).to_bytes(nodes),
    ):
        with pytest.raises(CorruptState):
            plan.from_bytes(bad)


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(ValueError, match="two bins"):
        TreePlan(1, Fraction(1))
    with pytest.raises(ValueError, match="one count a bin"):
        TreePlan(3, Fraction(1)).measure(np.zeros(4, dtype=np.int64), ScriptedNoise())


def test_the_loss_is_the_one_that_the_noise_pays_for() -> None:
    plan = TreePlan(11, Fraction(1, 7))
    assert plan.loss.epsilon == Fraction(1, 7)
    assert plan.loss.delta == 0
    assert (2 * plan.levels - 1) / plan.scale <= plan.loss.epsilon
