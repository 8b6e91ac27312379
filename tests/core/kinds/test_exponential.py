"""The exponential mechanism has the law it states, and its worst log ratio is what it charges."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy import stats

from stream_dp.core.budget.accountant import Budget
from stream_dp.core.budget.parameters import Privacy
from stream_dp.core.randomness.exponential import Exponential
from stream_dp.core.randomness.noise_sources import NoiseSource
from tests.slow import rest_is_slow

QuickNoise = Callable[..., NoiseSource]

SCORES = (3, 0, 5, 5, -2)
FAR = (1, 0, 1, -20)  # a candidate that is hardly chosen feels all of epsilon


def law(
    mechanism: Exponential, scores: Sequence[int]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    weights = np.exp(float(mechanism.rate) * np.array(scores, dtype=float))
    return np.asarray(weights / weights.sum())


def worst_log_ratio(mechanism: Exponential, *, down: int) -> float:
    """Over all neighbours of some scores, each moved by -down to 1 times the sensitivity."""
    here = law(mechanism, FAR)
    moves = range(-down * mechanism.sensitivity, mechanism.sensitivity + 1)
    return max(
        float(np.abs(np.log(law(mechanism, np.add(FAR, move).tolist()) / here)).max())
        for move in product(moves, repeat=len(FAR))
    )


@pytest.mark.parametrize("sensitivity", [1, 2])
def test_no_neighbour_changes_a_probability_by_more_than_epsilon(sensitivity: int) -> None:
    """Brute force; a rate one tenth too high is found out, for the bound is nearly reached."""
    mechanism = Exponential(Fraction(1, 2), sensitivity)
    assert 0.97 * 0.5 < worst_log_ratio(mechanism, down=1) <= 0.5
    broken = Exponential(mechanism.epsilon * Fraction(11, 10), sensitivity)
    assert worst_log_ratio(broken, down=1) > 0.5


def test_scores_that_all_move_one_way_need_no_half() -> None:
    mechanism = Exponential(Fraction(1, 2), monotone=True)
    assert mechanism.rate == Fraction(1, 2)
    assert 0.97 * 0.5 < worst_log_ratio(mechanism, down=0) <= 0.5
    assert worst_log_ratio(mechanism, down=1) > 0.5  # so it is not for others


@pytest.mark.parametrize(
    ("size", "wrong"),
    rest_is_slow([(4_000, Fraction(1, 4)), (20_000, Fraction(1, 10))], first=1, unpack=True),
)
def test_a_candidate_is_as_likely_as_its_score_says_and_not_as_another_epsilon_says(
    quick_noise: QuickNoise, size: int, wrong: Fraction
) -> None:
    """Chi-square; false alarms at 1e-6."""
    mechanism = Exponential(Fraction(3, 2))
    noise = quick_noise(7)
    seen = Counter(mechanism.choose(noise, SCORES) for _ in range(size))
    observed = [seen[r] for r in range(len(SCORES))]

    def pvalue(stated: Exponential) -> float:
        return float(stats.chisquare(observed, size * law(stated, SCORES)).pvalue)

    assert pvalue(mechanism) > 1e-6
    for factor in (1 + wrong, 1 - wrong):
        assert pvalue(replace(mechanism, epsilon=factor * mechanism.epsilon)) < 1e-6


def test_scores_far_apart_and_equal_ones_are_exact_too(quick_noise: QuickNoise) -> None:
    mechanism, noise = Exponential(Fraction(1)), quick_noise(8)
    assert {mechanism.choose(noise, [0, 10**9, -(10**18)]) for _ in range(20)} == {1}
    assert {mechanism.choose(noise, [4, 4]) for _ in range(60)} == {0, 1}
    assert mechanism.choose(noise, [-3]) == 0


def test_its_loss_and_what_it_refuses(quick_noise: QuickNoise) -> None:
    mechanism, budget = Exponential(Fraction(1, 10), 4), Budget.of(Privacy(1.0, 1e-9))
    assert mechanism.loss.charge(budget, 3) == budget.charge(3, Fraction(1, 200))
    assert mechanism.rate == Fraction(1, 80)
    assert math.isclose(float(mechanism.rate) * 2 * 4, 0.1)
    with pytest.raises(ValueError, match="candidate"):
        mechanism.choose(quick_noise(1), [])
    with pytest.raises(ValueError, match="sensitivity"):
        Exponential(Fraction(1), 0)
    with pytest.raises(ValueError, match="epsilon"):
        Exponential(Fraction(0))
