"""Choices at random have the law they should have; false alarms at 1e-6 each."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Sequence
from fractions import Fraction

import mpmath as mp
import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from stream_dp.core.budget.logarithms import exp_bounds
from stream_dp.core.randomness.exact_choice import choose, permutation, uniform_below
from stream_dp.core.randomness.noise_sources import PooledNoise
from tests.noise import FakeNoise, QuickNoise

ALARM = 1e-6


class Words(FakeNoise):
    """Hands out written-down words; a permutation or a choice made of them can be worked out by hand."""

    def __init__(self, words: Sequence[int]) -> None:
        self._words = list(words)
        self.asked = 0

    def uniform(self, limit: int, size: int) -> npt.NDArray[np.int64]:
        self.asked += size
        return np.array([self._words.pop(0) for _ in range(size)], dtype=np.int64)


def test_every_order_is_as_likely() -> None:
    noise = QuickNoise(1)
    seen = Counter(tuple(permutation(noise, 4).tolist()) for _ in range(12_000))
    assert set(seen) == set(itertools.permutations(range(4)))
    assert stats.chisquare(list(seen.values())).pvalue > ALARM


def test_equal_keys_are_drawn_again() -> None:
    words = Words([5, 5, 3, 2, 9, 7])
    assert permutation(words, 3).tolist() == [0, 2, 1]
    assert words.asked == 6


@pytest.mark.parametrize("size", [0, 1])
def test_there_is_one_order_of_one_or_nothing(size: int) -> None:
    assert permutation(QuickNoise(1), size).tolist() == list(range(size))


@pytest.mark.parametrize("limit", [1, 2, 7, 3 * 2**61, 3**200])
def test_large_uniform_integers_are_below_their_limit_and_equally_likely(limit: int) -> None:
    noise = QuickNoise(2)
    n_bins = min(limit, 7)
    draws = [uniform_below(noise, limit) for _ in range(8000)]
    assert 0 <= min(draws) <= max(draws) < limit
    seen = np.bincount([draw * n_bins // limit for draw in draws], minlength=n_bins)
    if limit > 1:
        assert stats.chisquare(seen).pvalue > ALARM


def exponentials(exponents: Sequence[Fraction]) -> Callable[[int], tuple[list[int], list[int]]]:
    def bounds(precision: int) -> tuple[list[int], list[int]]:
        low, high = zip(*(exp_bounds(x, precision) for x in exponents), strict=True)
        return list(low), list(high)

    return bounds


@pytest.mark.parametrize("precision", [1, 64, 300])
@pytest.mark.parametrize(
    "x", [Fraction(0), Fraction(1, 3), Fraction(10**40 + 1, 10**39), Fraction(700), Fraction(10**6)]
)
def test_exponentials_are_bracketed_tightly(x: Fraction, precision: int) -> None:
    low, high = exp_bounds(x, precision)
    with mp.workdps(600):
        exact = mp.exp(-mp.mpf(x.numerator) / x.denominator) * mp.mpf(2) ** precision
        assert low <= exact <= high
    assert low >= 0
    assert high - low <= 2


def test_an_index_is_chosen_in_proportion_to_its_weight() -> None:
    exponents = [Fraction(0), Fraction(1, 2), Fraction(5), Fraction(1), Fraction(1, 3)]
    noise = QuickNoise(3)
    n = 4000
    seen = np.bincount([choose(noise, exponentials(exponents)) for _ in range(n)], minlength=5)
    weights = np.exp([-float(x) for x in exponents])
    assert stats.chisquare(seen, n * weights / weights.sum()).pvalue > ALARM
    wrong = np.exp([-1.5 * float(x) for x in exponents])
    assert stats.chisquare(seen, n * wrong / wrong.sum()).pvalue < ALARM


def test_where_the_bits_leave_it_open_more_are_made() -> None:
    """Weights 1/3 and 2/3, and a number that begins like 1/3."""
    third = (1 << 124) // 3

    def bounds(precision: int) -> tuple[list[int], list[int]]:
        return [2**precision // 3, 2 ** (precision + 1) // 3], [
            -(-(2**precision) // 3),
            -(-(2 ** (precision + 1)) // 3),
        ]

    mask = 2**62 - 1
    for last, expected in ((0, 0), (mask, 1)):
        words = Words([third >> 62, third & mask, last])
        assert choose(words, bounds) == expected
        assert words.asked == 3


def test_weights_of_zero_are_never_chosen() -> None:
    noise = PooledNoise(sampler=lambda kind, scale, size: np.zeros(size, dtype=np.int64))

    def bounds(precision: int) -> tuple[list[int], list[int]]:
        return [0, 2**precision, 0], [0, 2**precision, 0]

    assert {choose(noise, bounds) for _ in range(50)} == {1}


def test_a_weight_far_below_the_precision_is_not_written_out() -> None:
    assert exp_bounds(Fraction(10**18), 124) == (0, 1)
    low, high = exp_bounds(Fraction(123), 124)
    assert low <= mp.ldexp(mp.exp(-123), 124) <= high <= low + 2
