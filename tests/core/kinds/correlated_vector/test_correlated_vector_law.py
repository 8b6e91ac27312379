"""Randomized response: its exact loss, its law, and what it is good for."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from stream_dp.core.kinds.correlated_vector.vector_law import ResponsePlan
from tests.noise import QuickNoise

ALARM = 1e-6


@pytest.mark.parametrize("epsilon", [Fraction(1), Fraction(1, 2), Fraction(1, 50), Fraction(12)])
def test_the_exact_loss_is_the_promise_or_a_little_less(epsilon: Fraction) -> None:
    plan = ResponsePlan(epsilon)
    kept, turned = plan.keeps, 2**52 - plan.keeps
    assert kept >= turned
    exact = math.log(kept / turned)
    assert exact == pytest.approx(float(epsilon), rel=1e-9)
    assert Fraction(kept, turned) < Fraction(math.exp(epsilon)) * (1 + Fraction(1, 10**12))
    assert float(plan.agreement) == pytest.approx(math.tanh(epsilon / 2), rel=1e-9)
    assert plan.loss.epsilon == epsilon


def test_a_huge_or_tiny_epsilon_keeps_some_doubt_and_some_truth() -> None:
    assert ResponsePlan(Fraction(500)).keeps < 2**52
    assert ResponsePlan(Fraction(1, 10**40)).keeps == 2**51


def test_bits_are_kept_with_the_probability_charged_for() -> None:
    """40,000 rows of each bit; an epsilon a tenth off is noticed. False alarm 1e-6."""
    bits = np.repeat([-1, 1], 40_000)
    answer = ResponsePlan(Fraction(1)).respond(bits, QuickNoise(1))
    assert set(answer.tolist()) == {-1, 1}
    for bit in (-1, 1):
        kept = int(np.sum(answer[bits == bit] == bit))
        for epsilon, right in ((1.0, True), (0.9, False), (1.1, False)):
            chance = stats.binomtest(kept, 40_000, 1 / (1 + math.exp(-epsilon))).pvalue
            assert (chance > ALARM) == right


def test_queries_fixed_beforehand_are_answered_and_one_that_has_seen_the_answer_is_not() -> None:
    n, plan, noise = 20_000, ResponsePlan(Fraction(1)), QuickNoise(2)
    a = float(plan.agreement)
    tolerance = a * a * n / 4
    rng = np.random.default_rng(3)
    bits, vectors = rng.choice([-1, 1], n), rng.choice([-1, 1], (50, n))
    assert 2 * 51 * math.exp(-(tolerance**2) / (2 * n)) < ALARM
    answer = plan.respond(bits, noise)
    off = answer - a * bits
    assert np.abs(np.vstack([bits, vectors]) @ off).max() <= tolerance
    seen = abs(answer @ off)
    assert seen > tolerance
    assert seen / n == pytest.approx(0.786, abs=0.01)  # golden row: 1 - a <y, x> / n


def test_what_is_no_bit_is_refused() -> None:
    with pytest.raises(ValueError, match="1 or -1"):
        ResponsePlan(Fraction(1)).respond(np.array([1, 0]), QuickNoise(4))
