"""The consistent set by its definition: every hypothesis is listed. For tiny universes, and for tests."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stream_dp.core.median.consistent_set.set_interface import Distribution, Mask
from stream_dp.errors import InvalidDefinition

MAX_HYPOTHESES: Final = 200_000


class Exhaustive:
    """Every multiset of ``hypothesis_rows`` rows, weighted by the number of its orders; phases by product.

    All arithmetic is exact. Memory and time grow as
    ``binomial(hypothesis_rows + n_cells - 1, n_cells - 1) ** phases``.

    Args:
        phases: The largest number of blocks that will be added.

    Raises:
        InvalidDefinition: More than ``MAX_HYPOTHESES`` hypotheses would have to be listed.
    """

    def __init__(self, n_cells: int, hypothesis_rows: int, phases: int) -> None:
        if not _fits(n_cells, hypothesis_rows, phases):
            raise InvalidDefinition(
                "mechanism.representation",
                f"an exhaustive set would list more than {MAX_HYPOTHESES:,} hypotheses",
                'use "entropic", or fewer cells, rows a hypothesis or phases',
            )
        self._rows = hypothesis_rows
        multisets = list(_multisets(n_cells, hypothesis_rows))
        self._counts = np.array(multisets, dtype=np.int64)
        self._orders = _objects([_orders(counts) for counts in multisets])
        self._sizes: list[int] = []
        # One hypothesis without blocks: the product over no phase.
        self._members: npt.NDArray[np.int32] = np.zeros((1, 0), dtype=np.int32)
        self._weights = _objects([1])

    @property
    def empty(self) -> bool:
        return not len(self._members)

    def add_block(self, n_rows: int) -> None:
        n_members, n_multisets = len(self._members), len(self._counts)
        block = np.tile(np.arange(n_multisets, dtype=np.int32), n_members)
        self._members = np.column_stack([np.repeat(self._members, n_multisets, axis=0), block])
        self._weights = np.repeat(self._weights, n_multisets) * self._orders[block]
        self._sizes.append(n_rows)

    def distribution(self, mask: Mask, window: range) -> Distribution:
        if self.empty:
            raise ValueError("the consistent set is empty")
        values, member_of = self._values(mask, window)
        order = np.argsort(member_of, kind="stable")
        starts = np.searchsorted(member_of[order], np.arange(len(values)))
        totals = np.add.reduceat(self._weights[order], starts)
        merged: dict[Fraction, int] = {}
        for value, weight in zip(values, totals, strict=True):
            merged[value] = merged.get(value, 0) + int(weight)
        support = sorted(merged)
        return Distribution(tuple(support), tuple(merged[value] for value in support))

    def prune(self, mask: Mask, window: range, answer: Fraction, tolerance: Fraction) -> None:
        values, member_of = self._values(mask, window)
        kept = np.array([abs(value - answer) <= tolerance for value in values], dtype=np.bool_)
        alive = kept[member_of] if len(values) else np.zeros(0, dtype=np.bool_)
        self._members = self._members[alive]
        self._weights = self._weights[alive]

    def point(self) -> npt.NDArray[np.float64]:
        """The mean of all hypotheses."""
        if self.empty:
            raise ValueError("the consistent set is empty")
        total = int(self._weights.sum())
        weights = np.array([int(weight) / total for weight in self._weights])
        shares = self._counts / self._rows
        return np.array([weights @ shares[block] for block in self._members.T])

    def _values(self, mask: Mask, window: range) -> tuple[list[Fraction], npt.NDArray[np.intp]]:
        """Values of the query, and for each member the index of its own, shape (n_members,)."""
        hits = self._counts[:, mask].sum(axis=1)
        per_block = hits[self._members[:, window.start : window.stop]]
        combinations, member_of = np.unique(per_block, axis=0, return_inverse=True)
        sizes = self._sizes[window.start : window.stop]
        whole = self._rows * sum(sizes)
        values = [
            Fraction(sum(n * int(hit) for n, hit in zip(sizes, row, strict=True)), whole)
            for row in combinations
        ]
        return values, member_of.reshape(-1)


def _fits(n_cells: int, rows: int, phases: int) -> bool:
    # Bounded before anything huge is computed: the binomial is at least rows + 1 and at least n_cells.
    if max(rows, n_cells) > MAX_HYPOTHESES or (n_cells - 1) * phases > 64 * MAX_HYPOTHESES:
        return False
    smaller = min(rows, n_cells - 1)
    multisets = 1
    for i in range(1, smaller + 1):
        multisets = multisets * (rows + n_cells - 1 - smaller + i) // i
        if multisets > MAX_HYPOTHESES:
            return False
    return phases * math.log(multisets) <= math.log(MAX_HYPOTHESES)


def _multisets(n_cells: int, rows: int) -> Iterator[tuple[int, ...]]:
    if n_cells == 1:
        yield (rows,)
        return
    for first in range(rows + 1):
        for rest in _multisets(n_cells - 1, rows - first):
            yield (first, *rest)


def _orders(counts: tuple[int, ...]) -> int:
    orders, placed = 1, 0
    for count in counts:
        placed += count
        orders *= math.comb(placed, count)
    return orders


def _objects(values: list[int]) -> npt.NDArray[Any]:
    # Python integers: the weights sum to n_cells ** (hypothesis_rows * phases).
    array = np.empty(len(values), dtype=object)
    array[:] = values
    return array
