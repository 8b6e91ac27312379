"""The correlation of two attributes from published numbers: docs/proofs, Theorem 32.

Values are cut at 2.5 deviations from the mean, as a column of published counts says them: only whole bins are
cut, at the middle of another bin. So the cut values are one of finitely many choices, and bars can hold for
all of these at once.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
from scipy.special import chdtri

Floats = npt.NDArray[np.float64]
Ends = tuple[float, float]

GRID: Final = 256
"""The whole numbers that stand for one deviation in products."""

CUT: Final = 2.5
"""Values are cut at this many deviations from the mean."""

_WIDEST: Final = 5.0
"""The cut values never spread over more than this many scales, so that products stay small."""

_ANY: Final = (-math.inf, math.inf)


_DIMENSIONS: Final = 3
"""Rows, the sum of values and the sum of squares: all bars of a column are of sums of these."""


def deviations(n_bins: int, failure: float) -> float:
    """Returns the half width, in deviations, of all sums over a column at once, however it is cut.

    Args:
        n_bins: The number of its bins. Values can be cut at any two of them.
        failure: The probability with which any of these sums is further off.

    Scheffé 1953, and a union over the cuts.
    """
    cuts = max(1, n_bins * (n_bins - 1) // 2)
    return math.sqrt(float(chdtri(_DIMENSIONS, failure / cuts)))


@dataclass(frozen=True, slots=True)
class Standard:
    """What makes the values of a column standard ones.

    Attributes:
        low: The least value, and what smaller ones count for.
        high: The largest value, and what larger ones count for. Above ``low``.
        centre: About the mean of the cut values; between both.
        scale: About their deviation. Positive.
        square: About the mean of the squares of standard values: 1 unless they hardly vary.
    """

    low: float
    high: float
    centre: float
    scale: float
    square: float

    @classmethod
    def of(cls, values: Floats, counts: Floats) -> Standard | None:
        """The standard of the values of bins, shape (bins,), by published counts of them, of the same shape.

        None where all bins have one value.
        """
        bins = np.unique(values)
        if len(bins) < 2:
            return None
        rows = np.maximum(counts, 0.0)
        mean, deviation = _mean_and_deviation(values, rows)
        inside = bins[np.abs(bins - mean) <= CUT * deviation]
        first, last = (inside[0], inside[-1]) if len(inside) > 1 else (bins[0], bins[-1])
        low, high = float(first), float(last)
        mean, deviation = _mean_and_deviation(np.clip(values, low, high), rows)
        scale = max(deviation, (high - low) / _WIDEST)
        return cls(low, high, min(max(mean, low), high), scale, (deviation / scale) ** 2)

    def apply(self, values: Floats) -> Floats:
        """Returns the cut values, less the centre, in scales."""
        return np.asarray((np.clip(values, self.low, self.high) - self.centre) / self.scale)

    def whole(self, values: Floats) -> tuple[float, ...]:
        """Returns the same as whole numbers, of which ``GRID`` are a scale."""
        return tuple(np.rint(GRID * self.apply(values)).tolist())


def _mean_and_deviation(values: Floats, rows: Floats) -> tuple[float, float]:
    rows = rows if rows.sum() > 0.0 else np.ones(len(rows))
    mean = float(values @ rows / rows.sum())
    return mean, math.sqrt(float(np.square(values - mean) @ rows / rows.sum()))


@dataclass(frozen=True, slots=True)
class ColumnMoments:
    """Sums over the rows of a column, each with its half width.

    Attributes:
        rows: The number of rows.
        first: The sum of their standard values.
        second: The sum of the squares of these, less ``level`` for each row.
        level: About the mean of the squares, so that what is unknown of the rows matters little.
    """

    rows: tuple[float, float]
    first: tuple[float, float]
    second: tuple[float, float]
    level: float

    @property
    def mean(self) -> Ends:
        """The ends of the mean of the standard values."""
        return _ratio(self.first, self.rows)

    @property
    def square(self) -> Ends:
        """The ends of the mean of their squares, which is not below 0."""
        low, high = _ratio(self.second, self.rows)
        return max(0.0, self.level + low), max(0.0, self.level + high)

    @property
    def variance(self) -> Ends:
        """The ends of their variance."""
        (low, high), (least, most) = self.square, _product(self.mean, self.mean)
        if not math.isfinite(high):
            return 0.0, math.inf
        nearest = 0.0 if self.mean[0] <= 0.0 <= self.mean[1] else least
        return max(0.0, low - most), max(0.0, high - nearest)

    @property
    def likely(self) -> Ends:
        """The likely mean, and the likely variance, which is 0 where nothing is known."""
        if self.rows[0] <= 0.0:
            return 0.0, 0.0
        mean = self.first[0] / self.rows[0]
        return mean, max(0.0, self.level + self.second[0] / self.rows[0] - mean * mean)

    @property
    def off(self) -> float:
        """The half width of the mean of the squares, as a part of the variance; infinite for no variance."""
        (low, high), (_, variance) = self.square, self.likely
        return 0.5 * (high - low) / variance if math.isfinite(high) and variance else math.inf


def _ratio(value: tuple[float, float], rows: tuple[float, float]) -> Ends:
    number, bar = value
    count, off = rows
    if not count - off > 0.0 or not math.isfinite(bar):
        return _ANY
    ends = [(number + a) / (count + b) for a in (-bar, bar) for b in (-off, off)]
    return min(ends), max(ends)


def _product(one: Ends, other: Ends) -> Ends:
    if not all(map(math.isfinite, (*one, *other))):
        return _ANY
    ends = [a * b for a, b in itertools.product(one, other)]
    return min(ends), max(ends)


def correlation(x: ColumnMoments, y: ColumnMoments, mean: float, bar: float) -> tuple[float, Ends]:
    """Returns the correlation of cut values, and its ends, which hold if all half widths do.

    Args:
        x: What is known of the one column.
        y: What is known of the other one.
        mean: The mean of the products of the standard values, as whole numbers: see ``Standard.whole``.
        bar: Its half width.
    """
    scale = float(GRID) ** 2
    # Rounding to whole numbers moves either factor by half a number at the most.
    sizes = math.sqrt(x.square[1]) + math.sqrt(y.square[1])
    off = bar / scale + 0.5 * sizes / GRID + 0.25 / scale
    least, most = _product(x.mean, y.mean)
    spread = [math.sqrt(a * b) for a, b in zip(x.variance, y.variance, strict=True)]
    (mean_x, var_x), (mean_y, var_y) = x.likely, y.likely
    likely = math.sqrt(var_x * var_y)
    if not (spread[0] > 0.0 and likely > 0.0 and math.isfinite(off + most - least)):
        return 0.0, (-1.0, 1.0)
    bottom, top = mean / scale - off - most, mean / scale + off - least
    low = bottom / spread[0 if bottom < 0.0 else 1]
    high = top / spread[0 if top > 0.0 else 1]
    low, high = min(max(low, -1.0), 1.0), min(max(high, -1.0), 1.0)
    return min(max((mean / scale - mean_x * mean_y) / likely, low), high), (low, high)
