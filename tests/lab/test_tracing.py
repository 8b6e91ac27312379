"""The tracing attack finds rows, as often as theory says. Seeded; tolerances are 4.9 deviations or more."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from stream_dp.lab.tracing_attack import (
    Answer,
    deviation_outside,
    expected_inside,
    trace,
)

Floats = npt.NDArray[np.float64]


def noisy(rng: np.random.Generator, scale: float, *, clipped: bool = False) -> Answer:
    def answer(counts: npt.NDArray[np.int64], n_rows: int) -> Floats:
        shares = counts / n_rows + (rng.laplace(0.0, scale, len(counts)) if scale else 0.0)
        return np.clip(shares, 0.0, 1.0) if clipped else shares

    return answer


def experiment(
    n_rows: int, n_queries: int, scale: float, runs: int, *, clipped: bool = False
) -> tuple[Floats, Floats]:
    """Scores inside, shape (runs, n_rows), and outside, 20 a run."""
    rng = np.random.default_rng(1)
    answer = noisy(rng, scale, clipped=clipped)
    traced = [
        trace(rng, n_rows=n_rows, n_queries=n_queries, answer=answer, n_outside=20)
        for _ in range(runs)
    ]
    return np.array([t.inside for t in traced]), np.array([t.outside for t in traced])


@pytest.mark.parametrize(
    ("n", "k", "inside", "deviation"), [(20, 10_000, 333.3, 38.4), (50, 50_000, 666.7, 83.3)]
)
def test_exact_answers_give_every_row_away(n: int, k: int, inside: float, deviation: float) -> None:
    assert expected_inside(n, k) == pytest.approx(inside, abs=0.05)
    assert deviation_outside(n, k, 0.0) == pytest.approx(deviation, abs=0.05)
    runs = 300 if n == 20 else 20
    found, out = experiment(n, k, 0.0, runs)
    totals = found.sum(axis=1)
    assert abs(totals.mean() - 2 * k / 3) < 4.9 * totals.std(ddof=1) / math.sqrt(runs)
    assert found.mean() == pytest.approx(inside, abs=8 if n == 20 else 40)
    assert abs(out.mean()) < 4.9 * deviation / math.sqrt(runs)
    assert out.std() == pytest.approx(deviation, rel=0.1)
    # The rule that accuses whoever scores more than half of what a row of the data does.
    assert (found > inside / 2).mean() > 0.999
    assert (out > inside / 2).mean() < 0.001


@pytest.mark.parametrize(("scale", "deviation"), [(0.05, 40.1), (0.5, 121.7)])
def test_noise_widens_the_outside_and_leaves_the_inside_where_it_was(
    scale: float, deviation: float
) -> None:
    assert deviation_outside(20, 10_000, scale) == pytest.approx(deviation, abs=0.1)
    found, out = experiment(20, 10_000, scale, 200)
    assert found.mean() == pytest.approx(333.3, abs=8)
    assert out.std() == pytest.approx(deviation, rel=0.1)


def test_clipped_answers_leak_less_and_are_less_noisy() -> None:
    found, out = experiment(20, 10_000, 0.5, 200, clipped=True)
    assert found.mean() == pytest.approx(197, rel=0.08)
    assert out.std() == pytest.approx(57, rel=0.08)


def test_a_mechanism_that_ignores_the_data_gives_nobody_away() -> None:
    rng = np.random.default_rng(2)

    def half(counts: npt.NDArray[np.int64], n_rows: int) -> Floats:
        return np.full(len(counts), 0.7)

    scores = [trace(rng, n_rows=20, n_queries=3000, answer=half).inside.mean() for _ in range(40)]
    deviation = 0.4 * math.sqrt(3000 * 2 / 3)
    assert abs(np.mean(scores)) < 4.9 * deviation / math.sqrt(20 * 40)
    assert 4.9 * deviation / math.sqrt(20 * 40) < expected_inside(20, 3000) / 10
