"""Variances and standard deviations from the counts of bins."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from stream_dp.client.statements.values_with_bars import ValueWithBar
from stream_dp.sql.plan.statement_plan import Published


def has_rows(counts: Sequence[float], bars: Sequence[float | None], *, at_once: bool) -> bool:
    """Returns whether some row is sure to be in one of these cells.

    Args:
        counts: The estimated count of each cell.
        bars: The half width around each.
        at_once: Whether the bars hold for all cells at once. If not, their sum is taken for the bar of the
            sum.
    """
    above = [
        count - math.inf if bar is None else count - bar
        for count, bar in zip(counts, bars, strict=True)
    ]
    return max(above) > 0.0 if at_once else sum(above) > 0.0


def spread(
    counts: Sequence[float], bars: Sequence[float | None], published: Published
) -> ValueWithBar:
    """Returns a variance or a standard deviation.

    Its bar reaches to the smallest and the largest that the bars of the counts, and the ends of the bins
    where values are kept, allow.

    Args:
        counts: The estimated rows of each bin, of which there are some.
        bars: Their half widths.
        published: The spread that is asked.
    """
    bins, n_rows = published.bins, sum(counts)
    pairs = [(count, centre) for count, (_, centre, _) in zip(counts, bins, strict=True)]
    middle = sum(count * centre for count, centre in pairs) / n_rows
    squares = sum(count * (centre - middle) ** 2 for count, centre in pairs)
    less = published.sample and n_rows > 1.0
    value = max(0.0, squares / (n_rows - less))
    low, high = _variance_ends(counts, bars, bins, less=less)
    if published.root:
        value, low, high = math.sqrt(value), math.sqrt(low), math.sqrt(high)
    bar = max(high - value, value - low)
    if not math.isfinite(bar):
        return ValueWithBar(value, None)
    return ValueWithBar(value, bar, (low, high))


def _variance_ends(
    counts: Sequence[float],
    bars: Sequence[float | None],
    bins: Sequence[tuple[float, float, float]],
    *,
    less: bool,
) -> tuple[float, float]:
    """Returns the smallest and the largest variance that the bars of counts and the ends of bins allow.

    The sum of (x - m)^2 is least where m is the mean. So no variance is smaller than the least sum over all m
    with the fewest rows, each as near to m as its bin allows, divided by the most rows. And none is larger
    than the largest mean of (x - m)^2 for any m; it is attained with the fewest rows in the bins near to m,
    and the most in those that are farther away.

    Args:
        counts: The estimated rows of each bin.
        bars: Their half widths.
        bins: The ends of each bin, around its middle.
        less: Whether it is of a sample, so that it is divided by one row less.
    """
    least = [max(0.0, c - (b or 0.0)) for c, b in zip(counts, bars, strict=True)]
    most = [max(0.0, c + (b or 0.0)) for c, b in zip(counts, bars, strict=True)]
    if None in bars or sum(least) <= less:
        return 0.0, math.inf
    rows = [each for each in zip(least, most, bins, strict=True) if each[1] > 0.0]

    def nearest(m: float) -> float:
        return sum(few * max(low - m, m - high, 0.0) ** 2 for few, _, (low, _, high) in rows)

    def farthest(m: float) -> float:
        squares = [
            (max(m - low, high - m) ** 2, few, many - few) for few, many, (low, _, high) in rows
        ]
        above = sum(square * few for square, few, _ in squares)
        below = sum(least) - less
        largest = above / below
        for square, _, more in sorted(squares, reverse=True):
            above, below = above + square * more, below + more
            largest = max(largest, above / below)
        return largest

    ends = bins[0][0], bins[-1][2]
    return _least(nearest, *ends) / (sum(most) - less), _least(farthest, *ends)


def _least(convex: Callable[[float], float], low: float, high: float) -> float:
    """Returns the least value of a convex function between two ends, by golden sections."""
    part = (math.sqrt(5.0) - 1.0) / 2.0
    left, right = high - part * (high - low), low + part * (high - low)
    at_left, at_right = convex(left), convex(right)
    for _ in range(60):
        if at_left < at_right:
            high, right, at_right = right, left, at_left
            left = high - part * (high - low)
            at_left = convex(left)
        else:
            low, left, at_left = left, right, at_right
            right = low + part * (high - low)
            at_right = convex(right)
    return min(at_left, at_right)
