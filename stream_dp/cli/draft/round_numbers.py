"""Round numbers: where the bins of a column meet, and between which ends its values are kept.

Numbers are distinct and ascending, shape (n,), with the number of rows that have each.
"""

from __future__ import annotations

import math
from decimal import Decimal
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from stream_dp.core.rows.measured_values import MAX_UNITS, Measure
from stream_dp.errors import InvalidDefinition

Floats = npt.NDArray[np.float64]
Rows = npt.NDArray[np.int64]

_BINS: Final = 12
_WIDER: Final = 1.8
"""How many times as wide as a bin the steps may be to which its edge is rounded."""
_LEAST: Final = 0.7
"""The share of the rows of a bin that there are at least between two edges."""
_MOST_EDGES: Final = 50
"""The most whole numbers that get a bin each."""
_FEW: Final = 5
"""The rows that each of these numbers has, on average, at least."""
_BEYOND: Final = 0.005
"""The share of the rows that may lie beyond each of the ends between which values are kept."""
_MOST_DECIMALS: Final = 4


def edges_of(numbers: Floats, rows: Rows, *, whole: bool) -> list[float]:
    """Returns round edges that split the rows about evenly.

    A number that as many rows have as fill a bin gets a bin of its own. So does each of a few whole numbers.

    Args:
        numbers: The numbers.
        rows: The rows of each.
        whole: Whether all numbers are whole.
    """
    if whole and are_apart(numbers, rows):
        return [float(edge) for edge in range(int(numbers[0]), int(numbers[-1]) + 2)]
    heavy = rows * _BINS >= rows.sum()
    fixed = {
        edge for index in np.flatnonzero(heavy) for edge in _around(numbers, int(index), whole)
    }
    others, weights = numbers[~heavy], rows[~heavy]
    bins = max(round(_BINS * int(weights.sum()) / int(rows.sum())), min(_FEW, len(others)))
    steps: dict[float, Decimal] = {}
    for place in range(1, bins):
        low, middle, high = (
            _quantile(others, weights, (place + side) / bins) for side in (-0.5, 0.0, 0.5)
        )
        edge, step = _rounded(middle, high - low, whole=whole)
        steps[edge] = max(step, steps.get(edge, step))
    least = _LEAST * int(weights.sum()) / max(1, bins)
    while crowded := _crowded(sorted(steps), others, weights, least):
        del steps[min(crowded, key=steps.__getitem__)]
    return sorted(fixed.union(steps)) or [float(numbers[0])]


def _crowded(edges: list[float], numbers: Floats, rows: Rows, least: float) -> list[float]:
    """Returns two edges between which there are too few rows, if there are such."""
    for low, high in pairwise(edges):
        if rows[(numbers >= low) & (numbers < high)].sum() < least:
            return [low, high]
    return []


def measure_of(numbers: Floats, rows: Rows, *, whole: bool) -> dict[str, float] | None:
    """Returns how values are kept for sums: a unit, and round ends that hold nearly all values.

    None if there are no such ends.
    """
    low, high = (_quantile(numbers, rows, share) for share in (_BEYOND, 1.0 - _BEYOND))
    if not low < high:
        low, high = float(numbers[0]), float(numbers[-1])
    if not low < high or not math.isfinite(high - low):
        return None
    unit = Decimal(1) if whole else _decimal_unit(numbers, rows, high - low)
    step = max(unit, _step((high - low) / _FEW))
    ends = math.floor(Decimal(low) / step) * step, math.ceil(Decimal(high) / step) * step
    while (ends[1] - ends[0]) / unit > MAX_UNITS:
        unit *= 10
    found = {"unit": float(unit), "low": float(ends[0]), "high": float(ends[1])}
    try:
        Measure(**found)
    except InvalidDefinition:
        return None
    return found


def are_apart(numbers: Floats, rows: Rows) -> bool:
    """Returns whether whole numbers are so few, and so near each other, that each gets a bin."""
    span = float(numbers[-1] - numbers[0]) + 1
    return span <= min(_MOST_EDGES, 2 * len(numbers)) and int(rows.sum()) >= _FEW * len(numbers)


def _around(numbers: Floats, index: int, whole: bool) -> list[float]:
    """Returns the edges of a bin for one number."""
    number = float(numbers[index])
    if whole:
        return [number, number + 1]
    edges = [number] if index else []
    if index + 1 < len(numbers):
        following = float(numbers[index + 1])
        edges.append(_rounded(following, following - number, whole=False)[0])
    return edges


def _rounded(number: float, width: float, *, whole: bool) -> tuple[float, Decimal]:
    """Returns the nearest number that is round next to the width of a bin, and what it is a multiple of."""
    step = _step(width * _WIDER) if width > 0.0 else Decimal(0)
    if whole:
        step = max(step, Decimal(1))
    return (float(round(Decimal(number) / step) * step) if step else number), step


def _quantile(numbers: Floats, rows: Rows, share: float) -> float:
    """Returns the number that this share of the rows does not exceed."""
    reached = np.cumsum(rows)
    index = int(np.searchsorted(reached, share * int(reached[-1])))
    return float(numbers[min(index, len(numbers) - 1)])


def _decimal_unit(numbers: Floats, rows: Rows, span: float) -> Decimal:
    """Returns the power of ten of which nearly all numbers are multiples, or a small part of their span."""
    most = max(_MOST_DECIMALS, _MOST_DECIMALS - Decimal(span).adjusted())
    for decimals in range(most):
        scaled = numbers * 10.0**decimals
        multiples = np.abs(scaled - np.round(scaled)) < 1e-6
        if int(rows[multiples].sum()) >= (1.0 - 2 * _BEYOND) * int(rows.sum()):
            return Decimal(10) ** -decimals
    return Decimal(10) ** -most


def _step(width: float) -> Decimal:
    """Returns the largest of 1, 2 or 5 times 10^n that is at most a width.

    Example:
        >>> _step(59.0 / 5), _step(0.4)
        (Decimal('10'), Decimal('0.2'))
    """
    power = Decimal(10) ** Decimal(width).adjusted()
    return next(times * power for times in (5, 2, 1) if times * power <= Decimal(width))
