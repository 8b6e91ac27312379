"""The majority of adaptive answers reconstructs the private vector. Seeded."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest

from stream_dp.core.kinds.correlated_vector.vector_law import ResponsePlan
from stream_dp.lab.reconstruction_attack import (
    Signs,
    agreement,
    expected_agreement,
    majority_attack,
    private_agreement,
)
from tests.noise import FakeNoise


class Uniform(FakeNoise):
    """The part of a noise source that responses need, from numpy's generator."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def uniform(self, limit: int, size: int) -> npt.NDArray[np.int64]:
        return self._rng.integers(limit, size=size, dtype=np.int64)


@pytest.mark.parametrize(
    ("epsilon", "k", "expected"),
    [(Fraction(1, 2), 101, 0.98778), (Fraction(1), 51, 0.99956), (Fraction(1, 5), 401, 0.95472)],
)
def test_fresh_responses_give_the_vector_away_as_published(
    epsilon: Fraction, k: int, expected: float
) -> None:
    n, plan, noise = 20_000, ResponsePlan(epsilon), Uniform(1)
    assert expected_agreement(float(plan.agreement), k) == pytest.approx(expected, abs=0.00001)
    bits = np.random.default_rng(2).choice([-1, 1], n)
    shown: list[int] = []

    def respond(vectors: Signs) -> Signs:
        shown.append(len(vectors))
        return plan.respond(bits, noise)

    found = majority_attack(respond, n_rows=n, n_queries=k)
    spread = math.sqrt((1 - expected**2) / n)
    assert abs(agreement(found, bits) - expected) < min(0.005, 4.9 * spread + 1e-5)
    assert shown == list(range(k))
    assert agreement(found, bits) > private_agreement(1.0, 0.05)


def test_one_response_for_all_queries_gives_no_more_than_itself() -> None:
    n, plan = 20_000, ResponsePlan(Fraction(1, 2))
    bits = np.random.default_rng(3).choice([-1, 1], n)
    response = plan.respond(bits, Uniform(4))
    found = majority_attack(lambda vectors: response, n_rows=n, n_queries=101)
    assert agreement(found, bits) == pytest.approx(float(plan.agreement), abs=4.9 / math.sqrt(n))
    assert agreement(found, bits) < private_agreement(0.5, 0.0) + 4.9 / math.sqrt(n)


@pytest.mark.parametrize(("delta", "cap"), [(0.05, 0.4890), (0.0, 0.4621)])
def test_the_cap_of_privacy_is_as_published(delta: float, cap: float) -> None:
    assert private_agreement(1.0, delta) == pytest.approx(cap, abs=0.00005)


def test_an_even_number_of_answers_is_refused() -> None:
    with pytest.raises(ValueError, match="majority"):
        majority_attack(lambda vectors: np.ones(3, dtype=np.int8), n_rows=3, n_queries=2)
