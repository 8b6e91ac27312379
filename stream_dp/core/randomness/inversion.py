"""Exact discrete Gaussian draws by inversion: a uniform number is looked up among tail probabilities.

Let ``G(m) = Pr[|X| > m]``. For ``U`` uniform in [0, 1), the number of ``m >= 0`` with ``U < G(m)`` has the
law of ``|X|``, and a fair coin gives its sign. Of ``U`` only the first bits are drawn, and compared with as
many of ``G(m)``: where the two differ, the comparison is decided whatever bits follow. Where they are equal,
about once in 10**16 draws, more bits are drawn and compared. So the law is exact, tails included: nothing is
rounded and nothing is cut off.

The bits of ``G(m)`` come from integers that bound it from both sides; where the bounds do not agree on them
the computation is repeated with longer integers. No floating-point number takes part. The bits of ``U`` are
the operating system's.
"""

from __future__ import annotations

import os
import secrets
from bisect import bisect_right
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate
from typing import Final

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.logarithms import exp_bounds

IntArray = npt.NDArray[np.int64]

MIN_SIGMA: Final = Fraction(1)
MAX_SIGMA: Final = Fraction(1024)
"""A table has some 9 entries for each unit of its scale, and takes about a microsecond for each to make."""

_BITS: Final = 63  # with the sign, eight bytes of the operating system's
_GUARD: Final = 64


def gaussian(sigma: Fraction, size: int) -> IntArray:
    """Fresh independent draws, int64, shape (size,).

    Args:
        sigma: In ``[MIN_SIGMA, MAX_SIGMA]``; ``Pr[x]`` is proportional to ``exp(-x**2 / (2 * sigma**2))``.
            The first draws of a scale take longer than those that follow: they make its table.
        size: The number of draws.
    """
    bits = np.frombuffer(os.urandom(8 * size), dtype=np.uint64)
    sizes = _sizes(sigma, (bits >> np.uint64(1)).astype(np.int64))
    return np.where(bits & np.uint64(1), -sizes, sizes)


def _sizes(sigma: Fraction, uniform: IntArray) -> IntArray:
    """``|X|`` for the first ``_BITS`` bits of each ``U``, as integers."""
    table = _table(sigma)
    places = np.searchsorted(table, uniform, side="right")
    sizes = len(table) - places
    for index in np.flatnonzero(table[places - 1] == uniform):
        sizes[index] = _refined(sigma, int(uniform[index]), _BITS)
    return sizes


@lru_cache(maxsize=512)
def _table(sigma: Fraction) -> IntArray:
    return np.array(tails(sigma, _BITS), dtype=np.int64)


def _refined(sigma: Fraction, uniform: int, bits: int) -> int:
    """``|X|`` where the first ``bits`` bits of ``U`` leave it open."""
    while True:
        bits += _GUARD
        uniform = uniform << _GUARD | secrets.randbits(_GUARD)
        table = tails(sigma, bits)
        place = bisect_right(table, uniform)
        if table[place - 1] != uniform:
            return len(table) - place


def tails(sigma: Fraction, bits: int) -> list[int]:
    """The first ``bits`` bits of ``G(m)`` as integers, for all m down to 0, from the largest with none set.

    Ascending; entry 0 is 0, and stands for every larger m too.
    """
    precision = bits + _GUARD
    while True:
        low, high = _tail_bounds(sigma, bits, precision)
        if low == high:
            first = bisect_right(low, 0) - 1
            return low[first:]
        precision += _GUARD


def _tail_bounds(sigma: Fraction, bits: int, precision: int) -> tuple[list[int], list[int]]:
    """Bounds of ``floor(2**bits * G(m))`` for falling m, from sums of weights of ``precision`` bits."""
    one = 1 << precision
    # Numbers are cut to ``precision`` bits, so the true ones lie above, by at most an error, counted in last
    # bits. A product of two numbers up to 1 is off by at most the sum of their errors plus 1.
    ratio, ratio_high = exp_bounds(1 / (2 * sigma**2), precision)
    ratio_error = ratio_high - ratio
    step, step_error = ratio * ratio >> precision, 2 * ratio_error + 1
    # The weight of m is exp(-m**2 a); the next is that times exp(-(2 m + 1) a), whose next is that times
    # exp(-2 a).
    weight, weights = one, [one]
    while weight:
        weight = weight * ratio >> precision
        weights.append(weight)
        ratio = ratio * step >> precision
    # Errors add up, so those of the last ratio and of the last weight are the largest.
    ratio_error += len(weights) * (step_error + 1)
    error = len(weights) * (ratio_error + 1)
    # Ratios fall, so what follows the last weight sums to less than a geometric series.
    rest = (error << precision) // (one - ratio - ratio_error) + 1
    # Sums of the weights from m on, for falling m down to 0.
    sums = list(accumulate(reversed(weights), initial=0))
    error = len(weights) * error + rest
    # Both signs of m together, 0 counts once.
    low_total = 2 * sums.pop() - one
    high_total = low_total + 2 * error
    # A product with the inverse of the total is quicker than a division. It has ``spare`` bits more.
    spare = 2 * precision - bits - 1
    low_inverse = (1 << 2 * precision) // high_total
    high_inverse = (1 << 2 * precision) // low_total + 1
    low = [total * low_inverse for total in sums]
    gap = sums[-1] * (high_inverse - low_inverse) + error * high_inverse
    return [share >> spare for share in low], [share + gap >> spare for share in low]
