"""The values of rows in whole units, which sums of a measured attribute add up.

A row's number is clamped between two declared ends, and rounded to a whole number of units. So what a row
counts for is known beforehand but for a whole number between two others: docs/proofs, Theorem 19.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.errors import InvalidDefinition

Offsets: TypeAlias = npt.NDArray[np.uint32]
"""Units above the lower end, one number a row. Private."""

MAX_UNITS: Final = 2**20
"""Most units between the two ends."""

MAX_MEASURED_ROWS: Final = 2**40
"""Most rows of a block that keeps such values: with ``MAX_UNITS`` their sums stay within 64 bits."""

_EXACT: Final = 2**50


@dataclass(frozen=True)
class Measure:
    """How the values of an attribute are kept.

    Attributes:
        unit: What a whole number stands for, in the attribute's own unit.
        low: The least value; a smaller one counts as this.
        high: The largest value; a larger one counts as this.

    Raises:
        InvalidDefinition: The unit is not positive, the ends are not multiples of it, or too far apart.
    """

    unit: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.unit > 0.0:
            raise InvalidDefinition("measure.unit", "it is not positive", "use a unit such as 0.01")
        for name in ("low", "high"):
            if (_as_written(getattr(self, name)) / self.exact_unit).denominator != 1:
                raise InvalidDefinition(
                    f"measure.{name}",
                    "it is not a multiple of measure.unit",
                    "use a multiple of the unit, or a finer unit",
                )
        if not self.low < self.high:
            raise InvalidDefinition(
                "measure.high", "it is not above measure.low", "use a larger number"
            )
        low, high = self.ends
        if high - low > MAX_UNITS:
            raise InvalidDefinition(
                "measure.unit",
                f"there are more than {MAX_UNITS:,} units between measure.low and measure.high",
                "use a coarser unit, or ends that are nearer to each other",
            )
        unit = self.exact_unit
        if max(abs(low), abs(high), 1) * max(unit.numerator, unit.denominator) > _EXACT:
            raise InvalidDefinition(
                "measure.unit",
                "the ends have more digits in this unit than a 64-bit float",
                "use a coarser unit, or ends that are nearer to 0",
            )

    @cached_property
    def exact_unit(self) -> Fraction:
        """The unit as it is written, not the nearest binary number."""
        return _as_written(self.unit)

    @cached_property
    def ends(self) -> tuple[int, int]:
        """The lower and the upper end in units."""
        low, high = (_as_written(end) / self.exact_unit for end in (self.low, self.high))
        return int(low), int(high)

    def units(self, numbers: npt.NDArray[np.float64]) -> npt.NDArray[np.int64]:
        """The whole numbers that numbers count for, of their shape; NaN counts as the lower end.

        A number is rounded as it is written in decimal, to the nearest unit, and half way to the even one.
        The steps are the same whatever the numbers are.
        """
        p, q = self.exact_unit.numerator, self.exact_unit.denominator
        inside = np.clip(np.where(np.isnan(numbers), self.low, numbers), self.low, self.high)
        near = np.rint(inside * q / p)  # one off at most, where it is about half way
        odd = near % 2.0 == 1.0
        # A quotient of two exact floats is the float that the decimal number half way is read as.
        above = (2.0 * near + 1.0) * p / (2.0 * q)
        below = (2.0 * near - 1.0) * p / (2.0 * q)
        near += (inside > above) | ((inside == above) & odd)
        near -= (inside < below) | ((inside == below) & odd)
        return near.astype(np.int64)

    def value(self, units: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.float64]:
        """The numbers that whole numbers of units stand for, each the nearest float."""
        return units.astype(np.float64) * self.exact_unit.numerator / self.exact_unit.denominator


def _as_written(number: float) -> Fraction:
    if not math.isfinite(number):
        raise InvalidDefinition("measure", "a number is not finite", "use finite numbers")
    return Fraction(repr(number))
