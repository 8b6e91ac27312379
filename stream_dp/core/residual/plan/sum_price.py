"""The numbers that a look at a sum adds up, and its price: docs/proofs, Theorem 14.

A row counts for a whole number ``u`` of units: that of its cell, or, where values are kept, its own between
the ends of its cell (Theorem 19). A look adds up ``x = 2 u - centre``, which is a whole number
too. Its size is least where the centre is the sum of both ends. A noisy count of rows stands next to
each noisy sum. Together they give the sum and the mean of the values themselves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from itertools import compress
from typing import Final

import numpy as np

from stream_dp.core.queries.query import Indicator, Kept, LinearQuery, Product, Total
from stream_dp.core.randomness.noise_sources import grid_sigma

MOST_ROWS: Final = 2**40
"""Most rows of a block whose sums are measured. A table serves larger blocks."""

MOST_SIZE: Final = 2**22
"""Largest size of a row's ``x``: with ``MOST_ROWS`` a sum and its noise stay within 64 bits."""

_MOST_CENTRE: Final = 2**62
_UNITS_OF_SHARE: Final = 2**8
_MOST_OF_SUM: Final = 0.75
_FINEST: Final = 20
"""The unit is at least the range divided by 2 to this power."""


@dataclass(frozen=True, slots=True)
class WholeValues:
    """The whole numbers that rows count for in a sum.

    Attributes:
        unit: What one stands for, in the attribute's own unit.
        numbers: One a cell of the total's attributes, row-major. Those of cells that do not count have no
            meaning. Empty where each row counts for a number of its own.
        low: The least number of a cell that counts.
        high: The largest one, or one more than ``low``.
        slack: How far a number is from the value that it stands for, at most; in the attribute's own unit.
    """

    unit: float
    numbers: tuple[int, ...]
    low: int
    high: int
    slack: float

    @classmethod
    def of(cls, query: LinearQuery, unit: float | None = None) -> WholeValues:
        """The values of a query with a total, in this unit if the numbers of cells are added up.

        The unit is the largest power of ten that divides all values, unless a range of more than a million
        units makes it coarser. Where values are kept it is their own. For a share, a row counts for none or
        for 256 units, so that a centre can be near twice any share. Products are whole numbers as they are.
        """
        assert query.total is not None, "the query has a total"
        if isinstance(query.total, Indicator):
            inside = query.total.predicate.mask.ravel().tolist()
            numbers = tuple(_UNITS_OF_SHARE * is_inside for is_inside in inside)
            return cls(1.0 / _UNITS_OF_SHARE, numbers, 0, _UNITS_OF_SHARE, 0.0)
        if isinstance(query.total, Product):
            products = np.rint(query.total.weights).astype(np.int64).ravel().tolist()
            low = min(products)
            return cls(1.0, tuple(products), low, max(low + 1, *products), 0.0)
        kept, counting = query.total.kept, _counting(query, query.total)
        if kept is None:
            return _whole_values(query.total.values, counting, unit)
        low, high = _ends(kept, counting)
        return cls(kept.unit, (), low, max(low + 1, high), 0.0)

    @classmethod
    def spanning(cls, queries: Sequence[LinearQuery]) -> WholeValues:
        """The range of several queries in one unit, which is the finest of theirs.

        The numbers of cells are those of each query: see ``of``.
        """
        each = list(map(cls.of, queries))
        unit = min(one.unit for one in each)
        each = [cls.of(query, unit) for query in queries]
        numbers = each[0].numbers if len(each) == 1 else ()
        low, high = min(one.low for one in each), max(one.high for one in each)
        return cls(unit, numbers, low, high, max(one.slack for one in each))


@lru_cache(maxsize=1024)
def _whole_values(
    values: tuple[float, ...], counting: tuple[bool, ...], given: float | None = None
) -> WholeValues:
    exact = [Fraction(Decimal(repr(value))) for value in values]
    counted = list(compress(exact, counting))
    exponent = min(map(_power_of_ten, filter(None, compress(values, counting))), default=0)
    width = max(counted) - min(counted)
    while Fraction(10) ** exponent * 2**_FINEST < width:
        exponent += 1
    unit = Fraction(10) ** exponent if given is None else Fraction(Decimal(repr(given)))
    numbers = tuple(round(value / unit) for value in exact)
    chosen = list(compress(numbers, counting))
    slack = max(abs(number * unit - value) for number, value in zip(chosen, counted, strict=True))
    low = min(chosen)
    # One value alone gets noise all the same, as if there were a second one.
    return WholeValues(float(unit), numbers, low, max(low + 1, *chosen), float(slack))


def _ends(kept: Kept, counting: tuple[bool, ...]) -> tuple[int, int]:
    """The least and the largest number of units that a row of the cells that count has."""
    lows, highs = zip(*compress(kept.ends, counting), strict=True)
    return min(lows), max(highs)


def value_ends(query: LinearQuery) -> tuple[float, float]:
    """The least and the largest value of the cells whose rows a sum can add up."""
    assert query.total is not None, "the query has a total"
    if isinstance(query.total, Indicator):
        return 0.0, 1.0
    if isinstance(query.total, Product):
        values = query.total.weights.ravel().tolist()
        return min(values), max(values)
    kept, counting = query.total.kept, _counting(query, query.total)
    if kept is None:
        counted = list(compress(query.total.values, counting))
        return min(counted), max(counted)
    low, high = _ends(kept, counting)
    return kept.unit * low, kept.unit * high


def _power_of_ten(value: float) -> int:
    exponent = Decimal(repr(value)).normalize().as_tuple().exponent
    assert isinstance(exponent, int), "the value is finite"
    return exponent


def _counting(query: LinearQuery, total: Total) -> tuple[bool, ...]:
    """Whether the rows of each cell of the attribute can count."""
    predicate, attribute = query.predicate, total.attribute
    if attribute not in predicate.attributes:
        return (True,) * len(total.values)
    axis = predicate.attributes.index(attribute)
    others = tuple(a for a in range(predicate.mask.ndim) if a != axis)
    return tuple(np.asarray(predicate.mask.any(axis=others)).tolist())


@dataclass(frozen=True, slots=True)
class SumShape:
    """The facts that give the price of a look at a sum, besides the two scales of its noise.

    Attributes:
        low: The least whole number that a row counts for.
        high: The largest one.
        centre: What is taken from twice that number.
        grouped: Whether there are several answers, of which a row is in one at most.
        every_row: Whether each row is in an answer.
        rests: Whether rows that satisfy the condition without a number are counted too.
        blank: Whether the loss is that of a row that becomes blank. Otherwise another row takes its place.
    """

    low: int
    high: int
    centre: int
    grouped: bool
    every_row: bool
    rests: bool = False
    blank: bool = False

    @property
    def width(self) -> int:
        """The largest distance of two whole numbers."""
        return self.high - self.low

    @property
    def size(self) -> int:
        """The largest size of what is added up for a row."""
        return max(abs(2 * self.low - self.centre), abs(2 * self.high - self.centre))

    @property
    def counts(self) -> bool:
        """Whether the look counts rows. It need not where a public number of them is in the one answer."""
        return self.grouped or not self.every_row or self.blank

    @property
    def vectors(self) -> int:
        """The number of numbers that are released for each answer."""
        return 1 + self.counts + self.rests

    @property
    def fits(self) -> bool:
        """Whether the sums of ``MOST_ROWS`` rows stay within 64 bits."""
        return self.size <= MOST_SIZE and abs(self.centre) < _MOST_CENTRE

    def rho(self, tau: Fraction, sigma: Fraction | None) -> Fraction:
        """The exact zCDP loss of the look on one block: docs/proofs, Theorem 14.

        Args:
            tau: Scale of the noise on sums of ``x``.
            sigma: Scale of the noise on counts, in rows. None where the look counts no rows.
        """
        total = 1 / (tau * tau)
        if self.blank:
            assert sigma is not None, "the number of rows is private"
            return (self.size**2 * total + 1 / (sigma * sigma)) / 2
        same = 4 * self.width**2 * total
        if sigma is None:
            assert not self.counts, "only a public count has no noise"
            return same / 2
        count = 1 / (sigma * sigma)
        move = 2 * self.size**2 * total + 2 * count if self.grouped else Fraction(0)
        enter = Fraction(0)
        if not self.every_row:
            enter = self.size**2 * total + (2 if self.rests else 1) * count
        return max(same, move, enter) / 2

    def rho_at(self, of_sums: int, of_counts: int) -> Fraction:
        """The same from the steps of the public grid of scales; that of the counts has perhaps no meaning."""
        return self.rho(grid_sigma(of_sums), grid_sigma(of_counts) if self.counts else None)

    def ratio(self, spread: float | None = None) -> float:
        """The best scale of the noise on counts, as a part of that on sums.

        Args:
            spread: How many times the error of the count adds to that of the sum of ``x``. None takes the
                ratio at which moving within an answer costs as much as moving between answers. Where a row
                becomes blank, it takes the best ratio for the sum of the values themselves.
        """
        if self.blank:
            return self._ratio_of_blank(abs(self.centre if spread is None else spread))
        # 2 rho is the larger of 4 D^2 p and A p + B q, where p and q are the precisions of sum and count.
        a = (2.0 if self.grouped else 1.0) * float(self.size) ** 2
        b = 2.0 if self.grouped or self.rests else 1.0
        p = 0.25 / float(self.width) ** 2
        if spread is not None:
            p = min(p, 1.0 / (a + abs(spread) * math.sqrt(a * b)))
        elif a * p >= 1.0:
            p = 0.5 / a
        q = max(1.0 - a * p, 1e-9) / b
        return math.sqrt(p / q)

    def _ratio_of_blank(self, spread: float) -> float:
        """The same where 2 rho is X^2 p + q. A mean needs the count, so that has a quarter at least."""
        size = float(self.size)
        p = min(_MOST_OF_SUM / size**2, 1.0 / (size**2 + spread * size))
        return math.sqrt(p / (1.0 - size**2 * p))
