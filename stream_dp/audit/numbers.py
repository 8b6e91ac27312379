"""Numbers of a look as exact fractions, and the few functions of them that prices follow from."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from stream_dp.errors import StreamDPError

UNITS: Final = 2**50
"""The number of units in each sum of a full line."""

_FRACTION: Final = re.compile("[0-9]{1,2000}(/[0-9]{1,2000})?")
_EXACT: Final = Context(prec=50, Emin=-999_999_999, Emax=999_999_999)


class Wrong(StreamDPError):
    """A look says something that its price does not cover, or that its data set does not take."""


# ---------------------------------------------------------------- reading


@contextlib.contextmanager
def reading() -> Iterator[None]:
    """Makes what facts raise that are not what they should be an error of their look.

    Raises:
        Wrong: The facts cannot be read.
    """
    try:
        yield
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise Wrong(f"its facts cannot be read ({type(error).__name__}: {error})") from None


def whole(facts: Mapping[str, Any], name: str) -> int:
    """A field that is an integer, zero or more. Raises Wrong."""
    value = facts.get(name)
    if type(value) is not int or value < 0:
        raise Wrong(f"its {name} is not a whole number")
    return value


def exact(facts: Mapping[str, Any], name: str) -> Fraction:
    """A positive number: an integer, ``"p/q"``, or a float, which stands for the binary number it is.

    Raises:
        Wrong: It is none.
    """
    value = facts.get(name)
    try:
        # Of texts no others: an exponent could name a number that no memory holds.
        if isinstance(value, str) and _FRACTION.fullmatch(value) is None:
            value = None
        if isinstance(value, int | float | str) and (found := Fraction(value)) > 0:
            return found
    except (ValueError, OverflowError, ZeroDivisionError):
        pass
    raise Wrong(f"its {name} is not a positive number")


def wholes(facts: Mapping[str, Any], name: str) -> list[int]:
    """A field that lists integers, zero or more. Raises Wrong."""
    value = facts.get(name)
    if not isinstance(value, list) or any(type(item) is not int or item < 0 for item in value):
        raise Wrong(f"its {name} is not a list of whole numbers")
    return value


def window(facts: Mapping[str, Any]) -> range:
    """The phases, from 0, that a look is about. Raises Wrong."""
    ends = wholes(facts, "window")
    if len(ends) != 2 or ends[0] >= ends[1]:
        raise Wrong("its window holds no phase")
    return range(*ends)


def as_written(value: float) -> Fraction:
    """The decimal number that someone wrote: 0.1 is 1/10."""
    return Fraction(repr(value))


# ---------------------------------------------------------------- functions


@lru_cache(maxsize=4096, typed=True)
def grid(step: int) -> Fraction:
    """Step ``step`` of the public grid of scales: ``2**(step / 32)`` rounded down to 16 significant bits.

    Raises:
        Wrong: No such scale is drawn with.
    """
    octave, part = divmod(step, 32) if type(step) is int else (1000, 0)
    if not -32 <= octave <= 128:
        raise Wrong(f"there is no step {step} of the grid of scales")
    low, high = 2**15, 2**16
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if middle**32 <= 2 ** (480 + part) else (low, middle)
    return low * Fraction(2) ** (octave - 15)


def decimal(value: Fraction | int) -> Decimal:
    """To 50 digits."""
    fraction = Fraction(value)
    return _EXACT.divide(Decimal(fraction.numerator), Decimal(fraction.denominator))


@lru_cache(maxsize=4096)
def ln(value: Fraction | int) -> Fraction:
    """The natural logarithm, to some 50 digits."""
    fraction = Fraction(value)
    top, bottom = _EXACT.ln(Decimal(fraction.numerator)), _EXACT.ln(Decimal(fraction.denominator))
    return Fraction(top) - Fraction(bottom)


@lru_cache(maxsize=4096)
def exp(value: Fraction) -> Fraction:
    """The exponential, to some 50 digits; 0 from ``exp(-5000)`` down.

    Raises:
        Wrong: It is above ``exp(5000)``, which nothing that is paid for comes to.
    """
    if value > 5000:
        raise Wrong("its noise keeps nothing")
    return Fraction(_EXACT.exp(decimal(value))) if value > -5000 else Fraction(0)


def tail(scale: Fraction, point: int) -> Fraction:
    """``Pr[X >= point]`` of discrete Laplace noise, for a point above 0: ``p^point / (1 + p)``."""
    return exp(-point / scale) / (1 + exp(-1 / scale))


def log_delta(rho: Fraction, epsilon: Fraction) -> Fraction:
    """Logarithm of a delta for which rho-zCDP implies (epsilon, delta); the least, but for the last digits.

    ``(a - 1)(a rho - epsilon) - ln(a - 1) + a ln(1 - 1/a)`` is valid at every order a above 1. It is taken
    where it is about least (Canonne, Kamath, Steinke 2020, Corollary 13).
    """
    a = Fraction(best_order(float(rho), float(epsilon)))
    return (a - 1) * (a * rho - epsilon) - ln(a - 1) + a * ln(1 - 1 / a)


def best_order(rho: float, epsilon: float) -> float:
    """The order at which ``log_delta`` is least: its slope in a, which rises, is 0 there."""

    def slope(log_excess: float) -> float:
        excess = math.exp(log_excess)
        return (2.0 * excess + 1.0) * rho - epsilon + math.log(excess / (1.0 + excess))

    low, high = -50.0, math.log(1e12 + 1e3 * (epsilon + 1.0) / rho)
    for _ in range(200):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if slope(middle) < 0.0 else (low, middle)
    return 1.0 + math.exp(low)


def n_cells(sizes: Sequence[int], attributes: Sequence[int]) -> int:
    """Cells of a table over these attributes. Raises Wrong for one that is not there."""
    known = range(len(sizes))
    if len(set(attributes)) != len(attributes) or not all(
        type(a) is int and a in known for a in attributes
    ):
        raise Wrong("it names attributes that the definition does not have")
    return math.prod(sizes[a] for a in attributes)
