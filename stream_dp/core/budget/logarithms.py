"""Logarithms and exponentials that privacy depends on, bracketed by fractions or bounded from above."""

from __future__ import annotations

import math
from decimal import Context
from fractions import Fraction
from functools import lru_cache
from typing import Final

_DECIMAL: Final = Context(prec=60, Emin=-999_999, Emax=999_999)
_LN_ERROR: Final = Fraction(1, 10**50)


@lru_cache(maxsize=4096)
def ln_bounds(x: Fraction | int) -> tuple[Fraction, Fraction]:
    """Fractions below and above the natural logarithm of a positive ``x``, 1e-50 (1 + |ln|) apart or less.

    ``Decimal.ln`` is correctly rounded, here to 60 digits.
    """
    fraction = Fraction(x)
    top = _DECIMAL.ln(_DECIMAL.create_decimal(fraction.numerator))
    bottom = _DECIMAL.ln(_DECIMAL.create_decimal(fraction.denominator))
    value = Fraction(top) - Fraction(bottom)
    margin = _LN_ERROR * (1 + abs(Fraction(top)) + abs(Fraction(bottom))) / 4
    return value - margin, value + margin


def log2_bounds(x: int) -> tuple[Fraction, Fraction]:
    """Fractions below and above ``log2(x)`` for ``x >= 1``."""
    low, high = ln_bounds(x)
    low_two, high_two = ln_bounds(2)
    return max(Fraction(0), low / high_two), high / low_two


def log_binomial_tail(n: int, p: Fraction, k: int) -> float:
    """Natural logarithm of ``Pr[Bin(n, p) > k]``; 0 where ``k`` is below the mean, for a bound is enough.

    Sums the terms from ``k + 1`` on, which fall faster than geometrically, and bounds what is left by the
    geometric series.
    """
    first = k + 1
    if first > n:
        return -math.inf
    if first <= n * p:
        return 0.0
    chance = float(p)
    odds = chance / (1.0 - chance)
    log_first = (
        math.lgamma(n + 1) - math.lgamma(first + 1) - math.lgamma(n - first + 1)
        + first * math.log(chance) + (n - first) * math.log1p(-chance)
    )  # fmt: skip
    total, term, at = 1.0, 1.0, first
    while at < n:
        ratio = (n - at) / (at + 1) * odds
        term *= ratio
        total += term
        at += 1
        if ratio < 1.0 and term < 1e-12 * total:
            total += term * ratio / (1.0 - ratio)
            break
    rounding = 2e-15 * math.lgamma(n + 1)
    return min(0.0, log_first + math.log(total) + rounding)


def log_add(a: float, b: float) -> float:
    """``log(exp(a) + exp(b))`` without leaving log space."""
    high, low = max(a, b), min(a, b)
    return high if low == -math.inf else high + math.log1p(math.exp(low - high))


def exp_bounds(x: Fraction, precision: int) -> tuple[int, int]:
    """Integers at most and at least ``2^precision exp(-x)`` for ``x >= 0``, at most 2 apart."""
    if x >= precision:  # below 1, and written out it would have that many digits
        return 0, 1
    digits = math.ceil(precision * 0.30103) + len(str(math.ceil(x))) + 12
    context = Context(prec=digits, Emin=-999_999_999, Emax=999_999_999)
    exponent = context.divide(
        context.create_decimal(-x.numerator), context.create_decimal(x.denominator)
    )
    # Every step is correctly rounded, so the exponent is off by less than 1e-10 2^-precision.
    scaled, off = Fraction(context.exp(exponent)) * 2**precision, Fraction(1, 10**9)
    return max(0, math.floor(scaled - off)), math.ceil(scaled + off)
