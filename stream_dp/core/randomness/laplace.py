"""Facts about discrete Laplace noise, ``Pr[X = x]`` proportional to ``p^|x|`` with ``p = exp(-1 / scale)``.

What privacy depends on is rounded towards privacy: logarithms are bracketed by fractions.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Final

from stream_dp.core.budget.logarithms import exp_bounds, ln_bounds

_BITS: Final = 200


def scale_from(least: Fraction) -> Fraction:
    """The smallest scale that the sampler draws with exactly and that is not below ``least``."""
    scale = float(least)
    if Fraction(scale) < least:
        scale = math.nextafter(scale, math.inf)
    return Fraction(scale)


def tail_point(scale: Fraction, probability: Fraction) -> int:
    """The least ``z >= 1`` with ``Pr[X >= z] = p^z / (1 + p)`` at most ``probability``.

    At most one too large, where the two are equal to 50 digits.
    """
    low, _ = exp_bounds(1 / scale, _BITS)
    _, wanted = ln_bounds(1 / probability)
    saved, _ = ln_bounds(1 + Fraction(low, 1 << _BITS))
    return max(1, math.ceil(scale * (wanted - saved)))


def reach(scale: Fraction, probability: Fraction) -> int:
    """The least ``z >= 0`` with ``exp(-z / scale)``, a bound of ``Pr[|X| > z]``, at most ``probability``."""
    _, wanted = ln_bounds(1 / probability)
    return max(0, math.ceil(scale * wanted))


def sum_bound(n_terms: int, scale: Fraction, probability: float) -> float:
    """Returns what a sum of up to ``n_terms`` independent draws exceeds in size with at most ``probability``.

    It is ``2 sqrt(2) b sqrt(l max(L, l))`` for L terms of scale b, with ``l = ln(2 / probability)``.
    It follows from ``E exp(s X) <= 1 / (1 - s^2 b^2)`` for ``|s| < 1 / b``, since
    ``sinh(s / 2) <= s b sinh(1 / (2 b))``: for ``s^2 <= 1 / (2 b^2)`` a sum has
    ``E exp(s S) <= exp(2 s^2 b^2 L)``, so that
    ``Pr[|S| > t] <= 2 exp(-min(t^2 / (8 L b^2), t / (2 sqrt(2) b)))``.
    """
    l = math.log(2.0) - math.log(probability)  # noqa: E741
    return 2.0 * math.sqrt(2.0) * float(scale) * math.sqrt(l * max(n_terms, l))
