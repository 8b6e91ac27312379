"""What carrying over saves, at sizes that take seconds. Seeded; orders, not figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from stream_dp.lab.conjecture import MECHANISMS, Data, Setting, experiment, run, shares
from stream_dp.lab.seeded_noise import SeededNoise

SMALL = Setting(cells=16, phases=4, queries=20, segments=40)


def hard(data: Data) -> Iterator[int]:
    """Of sequential, uniform and carry-over, after the first phase, which is the same for all."""
    for mechanism in MECHANISMS:
        yield sum(phase.hard for phase in run(SMALL, data, mechanism, seed=1) if phase.phase > 1)


def test_on_data_that_stay_a_memory_saves_hard_queries_and_carrying_over_nearly_all() -> None:
    sequential, uniform, carried = hard("stationary")
    assert carried < 0.3 * uniform < 0.3 * sequential


def test_on_data_that_drift_carrying_over_saves_less() -> None:
    sequential, uniform, carried = hard("drifting")
    assert 0 < carried <= uniform < sequential


def test_the_first_phase_is_the_same_for_all_and_answers_are_as_accurate_as_promised() -> None:
    results = list(experiment(replace(SMALL, phases=2), seeds=1))
    assert len(results) == 2 * 3 * 2
    firsts = {(p.data, p.answered, p.hard) for p in results if p.phase == 1}
    assert len(firsts) == 2
    assert sum(p.missed for p in results) <= 0.05 * sum(p.answered for p in results)


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_with_the_budget_spent_nothing_more_is_answered(mechanism: str) -> None:
    setting = replace(SMALL, segments=4)
    results = list(run(setting, "drifting", mechanism, seed=2))  # type: ignore[arg-type]
    assert sum(p.hard for p in results) <= 4
    assert 0 < sum(p.answered for p in results) < setting.phases * setting.queries
    assert results[-1].answered == 0


def test_drifting_shares_change_as_much_as_they_are_told_and_stationary_ones_never() -> None:
    rng = np.random.default_rng(1)
    still = list(shares(rng, SMALL, "stationary"))
    assert all(np.array_equal(of_cells, still[0]) for of_cells in still)
    moving = list(shares(rng, replace(SMALL, cells=5000, drift=0.3), "drifting"))
    logs = np.log(moving)
    logs -= logs.mean(axis=1, keepdims=True)
    assert logs.std(axis=1) == pytest.approx([1.5] * 4, rel=0.05)
    assert np.corrcoef(logs[0], logs[1])[0, 1] == pytest.approx(0.7**0.5, abs=0.03)


def test_the_labs_noise_has_the_laws_it_says() -> None:
    noise, scale = SeededNoise(np.random.default_rng(1)), Fraction(2)
    draws = noise.laplace(scale, 200_000)
    assert np.mean(draws == 0) == pytest.approx(0.24492, abs=0.005)
    assert draws.var() == pytest.approx(7.835, rel=0.03)
    assert noise.gaussian(Fraction(50), 200_000).std() == pytest.approx(50, rel=0.01)
    assert noise.uniform(7, 1000).max() == 6
    halves = [noise.geometric_half(3) for _ in range(3000)]
    assert np.bincount(halves) / 3000 == pytest.approx([8 / 15, 4 / 15, 2 / 15, 1 / 15], abs=0.05)
