"""How far counts must differ if the larger one is surely larger: docs/proofs, Theorem 26.

A bar that holds for each cell by itself says nothing about cells that somebody picks afterwards, such as the
ten largest. Here are the widths that hold for all cells of a table at once, and for all pairs of them.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Final

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr, ndtri_exp

_LARGEST: Final = np.linspace(-9.0, 40.0, 2451)
"""The values that the largest of several standard normal numbers takes, as nodes of the trapezoidal rule."""

_STEP: Final = float(_LARGEST[1] - _LARGEST[0])


@cache
def wider_for(n: int, z: float) -> float:
    """Returns the half width, in deviations, of the bars of ``n`` cells that miss no more often together.

    Args:
        n: The number of cells.
        z: The half width, in deviations, of the bar of one cell.
    """
    return _two_sided(_log_failure(z) - math.log(n))


@cache
def range_width(n: int, z: float) -> float:
    """Returns what the range of ``n`` standard normal numbers exceeds as seldom as one is beyond ``z``.

    So two of ``n`` counts with independent noise of the deviation ``s`` differ in their true numbers, in the
    same direction, if they differ by more than ``s`` times this width.

    Args:
        n: The number of counts.
        z: The half width, in deviations, of a bar with the same failure probability.

    Tukey 1953.
    """
    failure = _log_failure(z)
    alone = math.sqrt(2.0) * z  # what the difference of two is beyond as seldom
    if n <= 2:
        return alone
    pairs = n * (n - 1) / 2
    union = math.sqrt(2.0) * _two_sided(failure - math.log(pairs))
    return float(brentq(lambda width: _log_range(n, width) - failure, alone, union, xtol=1e-12))


def _log_range(n: int, width: float) -> float:
    """The logarithm of the probability that the range of ``n`` standard normal numbers is above ``width``.

    The largest number has a density, and given that some other one is more than ``width`` below.
    """
    below = log_ndtr(_LARGEST)
    density = -0.5 * (np.square(_LARGEST) + math.log(2.0 * math.pi)) + (n - 1) * below
    far = np.exp(log_ndtr(_LARGEST - width) - below)  # of one other number; at most 1
    some = -np.expm1((n - 1) * np.log1p(-np.minimum(far, 1.0 - 1e-16)))
    return math.log(n * float((np.exp(density) * some).sum()) * _STEP)


def _log_failure(z: float) -> float:
    """The logarithm of the probability that a standard normal number is further than ``z`` from 0."""
    return float(log_ndtr(-z)) + math.log(2.0)


def _two_sided(log_failure: float) -> float:
    return float(-ndtri_exp(log_failure - math.log(2.0)))
