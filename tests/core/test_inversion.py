"""The tables hold the exact tail probabilities, and what they leave open is drawn exactly."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from stream_dp.core.randomness.inversion import MIN_SIGMA, _refined, _sizes, gaussian, tails
from stream_dp.core.randomness.noise_sources import grid_sigma

FALSE_ALARM = 1e-6
SIGMAS = [MIN_SIGMA, Fraction(9557, 4096), grid_sigma(150), Fraction(200)]


def _tails_in_decimals(sigma: Fraction, n: int) -> list[Decimal]:
    """``Pr[|X| > m]`` for m = 0 to n - 1 from their definition, to 60 digits."""
    with localcontext(prec=90):
        square = Decimal(sigma.numerator) ** 2 / Decimal(sigma.denominator) ** 2
        # exp(-150) / exp(-0) is below 60 digits of the smallest tail asked for.
        weights = [
            2 * (-(Decimal(m) ** 2) / (2 * square)).exp() for m in range(math.ceil(20 * sigma))
        ]
        weights[0] /= 2
        sums, total = [], Decimal(0)
        for weight in reversed(weights):
            sums.append(total)
            total += weight
        return [tail / total for tail in reversed(sums)][:n]


@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
@pytest.mark.parametrize("bits", [1, 20, 63, 127])
def test_every_bit_of_a_table_is_that_of_the_tail_probability(sigma: Fraction, bits: int) -> None:
    table = tails(sigma, bits)
    with localcontext(prec=90):
        exact = [int(tail * 2**bits) for tail in _tails_in_decimals(sigma, len(table))]
    assert table[::-1] == exact
    assert table[0] == 0
    assert all(low <= high for low, high in pairwise(table))
    assert all(table[1:])


@pytest.mark.parametrize("sigma", SIGMAS, ids=str)
def test_a_draw_that_the_first_bits_leave_open_goes_on_where_they_end(sigma: Fraction) -> None:
    coarse = tails(sigma, 8)
    for uniform in sorted(set(coarse)):
        # Some m have exactly these bits, so the draw lies behind those below and not behind those above.
        least = sum(tail > uniform for tail in coarse)
        draw = _refined(sigma, uniform, 8)
        assert least <= draw
        assert uniform == 0 or draw <= least + coarse.count(uniform)


def test_only_bits_that_equal_a_table_entry_leave_a_draw_open() -> None:
    sigma = Fraction(20)
    entries = np.unique(np.array(tails(sigma, 63)))[1:]
    entries = entries[np.diff(entries, prepend=0) > 2]
    above, below = _sizes(sigma, entries + 1), _sizes(sigma, entries - 1)
    assert set(below - above) == {1}
    assert set(_sizes(sigma, entries) - above) == {0, 1}
    assert max(_sizes(sigma, np.zeros(3, dtype=np.int64))) > max(below)


def test_a_uniform_number_of_which_no_bit_is_known_yet_has_the_whole_law() -> None:
    sigma = Fraction(3, 2)
    draws = np.array([_refined(sigma, 0, 0) for _ in range(4_000)])
    mass = -np.diff([1.0, *map(float, _tails_in_decimals(sigma, 6)), 0.0])
    observed = np.bincount(np.minimum(draws, 6), minlength=7)
    assert stats.chisquare(observed, draws.size * mass).pvalue > FALSE_ALARM
    assert stats.chisquare(observed, draws.size * mass[::-1]).pvalue < FALSE_ALARM


def test_no_tail_is_cut_off() -> None:
    # All 63 bits zero: one draw in 10**19, beyond the table.
    assert _refined(Fraction(200), 0, 63) >= len(tails(Fraction(200), 63)) - 1 > 9 * 200


def test_each_sign_comes_half_of_the_time_whatever_the_size() -> None:
    draws = gaussian(Fraction(30), 40_000)
    for some in (draws[np.abs(draws) > 30], draws[np.abs(draws) < 10]):
        some = some[some != 0]
        assert stats.binomtest(int((some > 0).sum()), some.size).pvalue > FALSE_ALARM
