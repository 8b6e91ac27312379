"""Figures: what an answer, or a table that follows from answers, says in one place."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Value: TypeAlias = str | int | float | bool | None
"""One value. None stands for a missing value, and for one that nobody knows.

A date is a text such as 2026-11-01, and a timestamp one such as 2026-11-01T06:00:00.
"""

Ends: TypeAlias = tuple[float, float]
"""The least and the largest number that a value may be."""

FigureUnit: TypeAlias = Literal[
    "label",  # of a row, which is exact
    "rows",
    "about",  # rows, whose half width is not published
    "at_most",  # rows, and there cannot be more
    "share",  # of rows
    "number",  # in the unit of an attribute
    "points",  # a difference of shares
    "more_rows",  # a difference of counts
    "correlation",
    "bins",  # that a value lies in
]
"""What a figure counts or measures, by which it is rounded."""


@dataclass(frozen=True, slots=True)
class Figure:
    """A value and the half width around it.

    Attributes:
        value: The value. None where it is missing, or where nobody knows it.
        bar: The half width: 0 for an exact value, None where it is not known. That of bins is in ranks.
        known: The ends, where they are not just those of the bar.
        place: What a text sorts by, where it has an order of its own.
    """

    value: Value
    bar: float | None = 0.0
    known: Ends | None = None
    place: int | None = None

    @property
    def ends(self) -> Ends | None:
        """The ends that are known, or else those of the bar. A text has none."""
        if self.known is not None or self.number is None or self.bar is None:
            return self.known
        return self.number - self.bar, self.number + self.bar

    @property
    def possible(self) -> Ends:
        """Its ends, or those of all numbers where nothing is known."""
        return self.ends or (-math.inf, math.inf)

    def is_below(self, least: int | None) -> bool:
        """Whether it is surely lower than a number."""
        return least is not None and self.known is not None and self.known[1] < least

    @property
    def number(self) -> float | None:
        return None if self.value is None or isinstance(self.value, str) else float(self.value)


NOT_KNOWN: Final = Figure(None, None)
"""What has a value that nobody knows."""

MISSING: Final = Figure(None)
"""What surely has no value, such as the sum of no rows."""
