"""How noisy looks for keys are, from which count on they say a key, and what that costs.

A level has windows of some phases, one after the other. When the last phase of a window is sealed, each
key of which enough units have a row in it is named: docs/proofs, Theorem 34.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import ROUND_CEILING, Context, Decimal, localcontext
from fractions import Fraction
from functools import lru_cache
from typing import Final

from stream_dp.core.bisection import least
from stream_dp.core.budget.parameters import Unit

_SCALE_BITS: Final = 10
"""A scale is a whole number of this power of a half."""

_MOST_JUMP: Final = 2**40
_DECIMAL: Final = Context(prec=60, rounding=ROUND_CEILING, Emin=-999_999, Emax=999_999)
_TWO_PI: Final = Decimal("6.283185307179586476925286766559")
"""Rounded down, so that the bound grows."""
_ERROR: Final = 1 + Decimal(10) ** -40
"""More than what all roundings of ``tail_bound`` can make of it."""


@dataclass(frozen=True, slots=True)
class KeyLevel:
    """The looks of one level.

    Attributes:
        phases: The phases of a window. Windows follow one another, and the first begins with phase 1.
        sigma: The scale of the noise on each count, in units.
        threshold: The least noisy count with which a key is named.
        failure: The most probable naming of a key that one unit alone has.
        rho: What the level costs each line.
    """

    phases: int
    sigma: Fraction
    threshold: int
    failure: Fraction
    rho: Fraction

    def window(self, block: int) -> range | None:
        """The window that ends with a block; None if none does."""
        end = block + 1
        return None if end % self.phases else range(end - self.phases, end)


def levels_of(
    line: Fraction, failures: Fraction, windows: Sequence[int], unit: Unit | None
) -> tuple[KeyLevel, ...]:
    """The levels that share a part of a line.

    Args:
        line: The part, as the rho of one row.
        failures: The most that the ``failure`` of all levels may add up to.
        windows: The phases of each level's windows.
        unit: The person who is protected. None for a row.

    Returns:
        The levels, in the order of ``windows``. Together they cost at most ``line``.
    """
    price, each = price_of(unit), failures / len(windows)
    variance = price * len(windows) / line
    root = math.isqrt(math.floor(variance * 4**_SCALE_BITS)) + 1
    sigma = Fraction(root, 2**_SCALE_BITS)
    found = 1 + least_jump(sigma, each)
    return tuple(KeyLevel(phases, sigma, found, each, price / sigma**2) for phases in windows)


def price_of(unit: Unit | None) -> Fraction:
    """What a look with noise of variance 1 costs a line.

    A row that is replaced moves two counts by 1. A person moves as many counts by 1 as rows of theirs count
    in the window, and a line has room for the square of these rows in each phase.
    """
    if unit is None:
        return Fraction(1)
    return Fraction(1, 2) if unit.lifetime else Fraction(1, 2 * unit.rows_per_phase)


@lru_cache(maxsize=1024)
def least_jump(sigma: Fraction, failure: Fraction) -> int:
    """The least number that noise reaches with at most this probability, by ``tail_bound``."""
    with localcontext(_DECIMAL):  # a decimal number just below the fraction
        limit = Decimal(failure.numerator) / Decimal(failure.denominator) / _ERROR
    return least(range(1, _MOST_JUMP), lambda jump: tail_bound(jump, sigma) <= limit)


def tail_bound(jump: int, sigma: Fraction) -> Decimal:
    """An upper bound on the probability that the noise of a count is at least ``jump``, which is positive.

    From ``jump`` on the probabilities of the discrete Gaussian are below a geometric series with ratio
    ``exp(-jump / sigma^2)``, and what they are divided by is at least ``sigma sqrt(2 pi)``, by Poisson's
    summation.
    """
    variance = sigma**2
    with localcontext(_DECIMAL):
        of_noise = Decimal(variance.numerator) / Decimal(variance.denominator)
        whole = (1 - (-jump / of_noise).exp()) * (_TWO_PI * of_noise).sqrt()
        return (-jump * jump / (2 * of_noise)).exp() / whole * _ERROR
