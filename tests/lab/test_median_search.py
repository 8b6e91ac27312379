"""The search finds medians as accurate as its answers, and needs more rows than packing proves. Seeded."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stream_dp.lab.median_search import (
    enough_rows,
    experiment,
    failure_rate,
    most_queries,
    packing_bound,
    packing_counts,
    packing_tail,
    private_answer,
    search,
)

Ints = npt.NDArray[np.int64]


def gap(rows: Ints, value: int) -> float:
    """By how much a value misses being a median, as a share of the rows."""
    return max(0.0, 0.5 - float(np.mean(rows <= value)), 0.5 - float(np.mean(rows >= value)))


@pytest.mark.parametrize("size", [2, 3, 7, 16, 37])
def test_exact_answers_give_a_median_within_the_promised_queries(size: int) -> None:
    rng, asked = np.random.default_rng(1), 0
    for _ in range(30):
        rows = rng.integers(1, size + 1, int(rng.integers(1, 40)))
        asked = 0

        def answer(thresholds: Ints, rows: Ints = rows) -> Any:
            nonlocal asked
            asked += 1
            return (rows[:, None] <= thresholds).mean(axis=0)

        found = int(search(answer, size=size)[0])
        assert gap(rows, found) == 0.0
        assert asked <= most_queries(size) == math.ceil(1 + math.log2(size))


def test_answers_that_err_by_alpha_at_most_give_an_alpha_approximate_median() -> None:
    rng = np.random.default_rng(2)
    for _ in range(200):
        rows = rng.integers(1, 65, 101)
        alpha = float(rng.choice([0.05, 0.2]))

        def answer(thresholds: Ints, rows: Ints = rows, alpha: float = alpha) -> Any:
            return (rows[:, None] <= thresholds).mean(axis=0) + rng.choice([-alpha, alpha])

        assert gap(rows, int(search(answer, size=64)[0])) <= alpha + 1e-12


def test_a_private_search_is_as_far_off_as_published() -> None:
    """T = 2^16, n = 4000, epsilon = 1: 17 queries with noise of scale 17, alpha = .025 at beta = .05."""
    rng, size, n = np.random.default_rng(3), 2**16, 4000
    assert most_queries(size) == 17
    alpha = 17 * math.log(17 / 0.05) / n
    assert alpha == pytest.approx(0.025, abs=0.0005)
    gaps = []
    for _ in range(20):
        rows = np.sort(rng.integers(1, size + 1, n))

        def counts(thresholds: Ints, rows: Ints = rows) -> Ints:
            return np.searchsorted(rows, thresholds, side="right")

        answer = private_answer(rng, counts, n_rows=n, scale=17.0)
        gaps += [gap(rows, value) for value in search(answer, size=size, n_searches=50).tolist()]
    assert np.mean(gaps) == pytest.approx(0.0028, abs=0.0005)
    assert np.mean(np.array(gaps) > alpha) <= 0.01


@pytest.mark.parametrize(
    ("exponent", "alpha", "epsilon", "rows"), [(16, 0.05, 1.0, 89.85), (20, 0.01, 0.1, 6778.8)]
)
def test_the_packing_bound_is_as_published(
    exponent: int, alpha: float, epsilon: float, rows: float
) -> None:
    bound = packing_bound(2**exponent, alpha=alpha, epsilon=epsilon, failure_probability=0.1)
    assert bound == pytest.approx(rows, rel=1e-4)


def test_a_packing_data_set_has_its_value_as_only_approximate_median_and_is_near_all_others() -> (
    None
):
    size, n, alpha = 9, 40, 0.05
    tail = packing_tail(n, alpha)
    tables = {}
    for t in range(2, size):
        counts = packing_counts(np.array([t]), size=size, n_rows=n, alpha=alpha)
        below = [int(counts(np.array([y]))[0]) for y in range(size + 1)]
        rows = np.repeat(np.arange(1, size + 1), np.diff(below))
        assert len(rows) == n
        assert [y for y in range(1, size + 1) if gap(rows, y) <= alpha] == [t]
        tables[t] = np.diff(below)
    assert np.abs(tables[3] - tables[7]).sum() / 2 == n - 2 * tail <= 2 * alpha * n + 2


def test_the_search_uses_more_rows_than_the_bound_and_no_more_than_are_proved_enough() -> None:
    rng, sizes = np.random.default_rng(4), [2**6, 2**12, 2**18]
    terms = {"alpha": 0.05, "epsilon": 1.0, "failure_probability": 0.1}
    found = list(experiment(rng, sizes=sizes, n_searches=500, **terms))
    assert [row.size for row in found] == sizes
    for row in found:
        assert packing_bound(row.size, **terms) == row.bound < row.used < row.enough
        assert enough_rows(row.size, **terms) == row.enough
    assert found[0].used < found[1].used < found[2].used


def test_with_far_fewer_rows_the_search_fails() -> None:
    rng = np.random.default_rng(5)
    for n, low, high in ((2400, 0.0, 0.1), (300, 0.5, 1.0)):
        missed = failure_rate(rng, size=2**16, n_rows=n, alpha=0.05, epsilon=1.0, n_searches=500)
        assert low <= missed <= high
