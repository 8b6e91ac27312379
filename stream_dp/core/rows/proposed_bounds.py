"""The bounds and the edges that a noisy table proposes for a number of which nobody knows the range.

The table counts the cells of a grid that was chosen without any row (``number_grid``). All that follows comes
from the table, and so reveals nothing more. Edges that are proposed are edges of the grid. So the rows of the
table's phase count exactly in bins with these edges (docs/proofs, Theorem 33).
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True)
class WantedBounds:
    """What an owner says of a number of which he does not know the range.

    Attributes:
        bins: The number of bins to propose, at least 2.
        share: The share of the line that the table takes.
    """

    bins: int
    share: float


@dataclass(frozen=True, slots=True)
class ProposedBounds:
    """What is proposed for a number.

    Attributes:
        low: About the least value.
        high: About the largest value.
        edges: Where bins meet that have about the same number of rows, ascending.
    """

    low: float
    high: float
    edges: tuple[float, ...]


def least_filled(sigma: float, failure: float, n_cells: int) -> int:
    """The least noisy count with which a cell counts as one that has rows.

    Any of the cells without rows reaches it with at most the probability ``failure``. A cell with twice as
    many rows misses it with at most ``failure / n_cells``. For the normal density is convex beyond ``sigma``,
    so discrete Gaussian noise reaches a whole t at most as often as normal noise reaches t - 1/2.

    Args:
        sigma: The scale of the noise, at least 1 row.
        failure: The probability, below 1/2.
        n_cells: The number of cells.
    """
    return math.ceil(-sigma * NormalDist().inv_cdf(failure / n_cells) + 0.5)


def proposed_bounds(
    counts: npt.NDArray[Any], edges: Sequence[float], least: int, bins: int, *, unsure: bool = False
) -> ProposedBounds | None:
    """What a noisy table proposes.

    The bounds are the outermost cells that count as filled, and one octave more: what lies outside is counted
    as the bound, which costs a bias, and a range that is too wide only costs noise. They do not cross 0 for
    that.

    Args:
        counts: The noisy counts of the cells, shape (len(edges) + 1,).
        edges: The edges of the grid, ascending.
        least: The least count of a cell that counts as filled.
        bins: The largest number of bins.
        unsure: Whether missing values count in the first cell, so that it says nothing.

    Returns:
        The proposal. None if no cell is filled: there are too few rows for the noise.
    """
    filled = np.flatnonzero(counts >= least)
    filled = filled[filled > 0] if unsure else filled
    if not len(filled):
        return None
    ends = -math.inf, *edges, math.inf
    first, last = int(filled[0]), int(filled[-1])
    low = _below(edges, ends[first], ends[first + 1])
    high = -_below([-edge for edge in reversed(edges)], -ends[last + 1], -ends[last])
    start, stop = bisect_right(edges, low), bisect_left(edges, high) + 1
    inside = np.maximum(counts[start:stop], 0)
    nearest = _nearest(np.cumsum(inside[:-1]) / max(1, int(inside.sum())), bins)
    found = tuple(edges[start + cell] for cell in nearest)
    return ProposedBounds(low, high, found or (low, high))


def _nearest(shares: npt.NDArray[np.float64], bins: int) -> list[int]:
    """The cells after which the shares of all rows up to there are nearest to equal steps, ascending."""
    if not len(shares):
        return []
    steps = np.arange(1, bins) / bins
    after = np.searchsorted(shares, steps)
    before, after = np.maximum(after - 1, 0), np.minimum(after, len(shares) - 1)
    return sorted(
        {*np.where(shares[after] - steps < steps - shares[before], after, before).tolist()}
    )


def _below(edges: Sequence[float], low: float, high: float) -> float:
    """The edge an octave below a cell from ``low`` to ``high``, on the same side of 0."""
    if low < 0.0 < high:
        return low
    wanted = 2.0 * low if low < 0.0 else low / 2.0
    found = edges[max(0, bisect_right(edges, wanted) - 1)]
    return found if low < 0.0 else max(found, edges[bisect_left(edges, 0.0)])
