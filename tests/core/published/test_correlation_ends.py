"""The ends of a correlation hold wherever the half widths do (docs/proofs, Theorem 32).

Each trial has a table of its own, and moves each of the numbers that the ends follow from by its whole half
width, to either side: all 64 corners.
"""

from __future__ import annotations

import itertools

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binomtest, norm

from stream_dp.core.published.correlation import (
    GRID,
    ColumnMoments,
    Standard,
    correlation,
    deviations,
)

Floats = npt.NDArray[np.float64]
TRIALS = 40


def truth(table: Floats, x: Floats, y: Floats) -> float:
    """The correlation of the values of a table of rows, from its definition."""
    rows = table.sum()
    u, v = x - (table.sum(axis=1) @ x) / rows, y - (table.sum(axis=0) @ y) / rows
    squares = (table.sum(axis=1) @ u**2) * (table.sum(axis=0) @ v**2)
    return float(u @ table @ v / np.sqrt(squares))


def test_ends_hold_at_all_corners_of_the_bars() -> None:
    draw, narrow = np.random.default_rng(1), 0
    for _ in range(TRIALS):
        sizes = draw.integers(2, 6, 2)
        table = np.floor(draw.gamma(0.5, 300.0, sizes)) + 1.0
        x, y = (np.sort(draw.normal(0.0, 10.0, size)) for size in sizes)
        exact, halves, standards = [], [], []
        for values, axis in ((x, 1), (y, 0)):
            counts = table.sum(axis=axis)
            noisy = counts + draw.normal(0.0, 30.0, len(counts))
            standard = Standard.of(values, noisy)
            assert standard is not None
            each = standard.apply(values)
            exact.append((counts.sum(), counts @ each, counts @ (each**2 - standard.square)))
            halves.append(draw.uniform(0.0, 0.05, 3) * counts.sum())
            standards.append(standard)
        wholes = [np.array(s.whole(values)) for s, values in zip(standards, (x, y), strict=True)]
        mean = float(wholes[0] @ table @ wholes[1] / table.sum())
        cut = [np.clip(v, s.low, s.high) for s, v in zip(standards, (x, y), strict=True)]
        is_like = truth(table, *cut)
        bar = 0.03 * GRID**2
        for signs in itertools.product((-1.0, 1.0), repeat=7):
            moments = []
            for place, (numbers, half) in enumerate(zip(exact, halves, strict=True)):
                off = np.array(signs[3 * place : 3 * place + 3]) * half
                pairs = zip(np.array(numbers) + off, half, strict=True)
                rows, first, second = ((float(a), float(b)) for a, b in pairs)
                moments.append(ColumnMoments(rows, first, second, standards[place].square))
            value, (low, high) = correlation(moments[0], moments[1], mean + signs[6] * bar, bar)
            assert -1.0 <= low <= is_like + 1e-9
            assert is_like - 1e-9 <= high <= 1.0
            assert low <= value <= high
            narrow += high - low < 0.5
    assert narrow > TRIALS, "the ends say something"


@pytest.mark.parametrize("bar", [0.0, 1.0])
def test_without_bars_only_rounding_is_left(bar: float) -> None:
    """A product that is known but for rounding has the correlation itself, within 0.01."""
    x = np.arange(4.0)
    table = np.array([[9.0, 3, 1, 0], [3, 9, 3, 1], [1, 3, 9, 3], [0, 1, 3, 9]]) * 100
    counts = table.sum(axis=0)
    standard = Standard.of(x, counts)
    assert standard is not None
    each, whole = standard.apply(x), np.array(standard.whole(x))
    rows = float(counts.sum())
    second = float(counts @ (each**2 - standard.square))
    known = ColumnMoments((rows, 0.0), (float(counts @ each), 0.0), (second, 0.0), standard.square)
    value, (low, high) = correlation(known, known, float(whole @ table @ whole / rows), bar)
    assert value == pytest.approx(truth(table, x, x), abs=0.005)
    assert high - low < 0.02


def test_values_are_cut_at_bins_within_two_and_a_half_deviations() -> None:
    values, counts = np.array([0.0, 1, 2, 3, 1_000]), np.array([100.0, 300, 300, 100, 1])
    standard = Standard.of(values, counts)
    assert standard is not None
    assert (standard.low, standard.high) == (0.0, 3.0)
    assert standard.apply(values)[-1] == standard.apply(values)[-2]


def test_values_that_do_not_vary_have_no_standard() -> None:
    assert Standard.of(np.array([2.0, 2.0]), np.array([5.0, 6.0])) is None
    nothing = ColumnMoments((10.0, 0.0), (0.0, 0.0), (0.0, 0.0), 0.0)
    assert correlation(nothing, nothing, 0.0, 1.0) == (0.0, (-1.0, 1.0))


def test_bars_of_a_column_hold_for_whatever_its_noise_chooses() -> None:
    """The sum that is furthest off in its deviations, of all cuts and centres, in 20,000 runs.

    False alarms: at most 1e-6. A bar for one sum that was fixed beforehand would miss far more often.
    """
    runs, bins, failure = 20_000, 6, 0.2
    values = np.arange(bins, dtype=np.float64) ** 1.5
    noise, furthest = np.random.default_rng(2).normal(size=(runs, bins)), np.zeros(runs)
    for low, high in itertools.combinations(values, 2):
        cut = np.clip(values, low, high)
        basis = np.linalg.svd(np.stack([np.ones(bins), cut, cut**2]), full_matrices=False)
        spans = basis[2][basis[1] > 1e-9]
        furthest = np.maximum(furthest, np.square(noise @ spans.T).sum(axis=1))
    missed = int((furthest > deviations(bins, failure) ** 2).sum())
    assert binomtest(missed, runs, failure, "greater").pvalue > 1e-6
    fixed = int((furthest > norm.isf(failure / 2) ** 2).sum())
    assert binomtest(fixed, runs, failure, "greater").pvalue < 1e-6
    assert missed > 0.2 * failure * runs, "it is not far too wide either"
