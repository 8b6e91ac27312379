"""Many prefix queries at once, all known beforehand: a synthetic histogram by the exponential mechanism.

Bun, Steinke, Ullman 2016, section 3.1 and Figure 4 (universe restriction before Blum, Ligett, Roth 2008).

A row is a string of bits, a prefix query a finite set of strings: it holds for rows that have one of them
as a prefix. Over the bins of an attribute a prefix is a dyadic range. Every set of bins is a union of such
ranges, so a query is any set of bins: a *mask*.

1. Bins for which all queries answer alike are one *cell*; there are G. A row counts as one of its cell (in
   the paper as the longest string of all queries that is a prefix of it, Claim 3.4). This is done row by row:
   every query answers as before, and neighbours stay neighbours.
2. Among all histograms y of m rows over the cells one is drawn with ``Pr[y]`` proportional to
   ``exp(-epsilon n err(y) / 2)``, where ``err(y)`` is the largest difference of a query's share in y and in
   the data; in integers ``exp(-a E(y))`` with ``E(y) = max |n Y_j - m X_j|`` and ``a = epsilon / (2 m)``.

The histogram is published; its answers, and all that can be computed from it, are free.

**Guarantee.** epsilon-differential privacy for replacing one row: err has sensitivity 1/n. It needs a draw
from exactly this law: ``layered`` and ``enumerated`` make one. Neither takes constant time, which depends on
the data: an answer must not leave the moment it is ready.

One run is one look at a snapshot. Nothing secret is left behind. Where cells are few, noise on each of
them, or the tree of counts, is better.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.bisection import least
from stream_dp.core.budget.logarithms import exp_bounds
from stream_dp.core.kinds.loss import Loss, checked_privacy
from stream_dp.core.randomness.exact_choice import choose, uniform_below
from stream_dp.core.randomness.noise_sources import IntArray, NoiseSource
from stream_dp.core.rows.encoded_rows import MAX_ROWS

MAX_ENUMERATED: Final = 2**20
"""Most histograms that are written down one by one."""


@dataclass(frozen=True, eq=False)
class BatchConditions:
    """The cells that a set of queries can tell apart. They are public.

    Attributes:
        masks: The bins for which each query holds, shape (n_queries, n_bins).
    """

    masks: npt.NDArray[np.bool_]

    def __post_init__(self) -> None:
        if self.masks.ndim != 2 or not self.masks.size:
            raise ValueError("masks have a row for each query, and a column for each bin")

    @cached_property
    def _distinct(self) -> tuple[npt.NDArray[np.bool_], IntArray]:
        """``holds``, and the cell of each bin, shape (n_bins,)."""
        first, cell_of = _distinct_rows(self.masks.T)
        return self.masks[:, first], cell_of

    @property
    def holds(self) -> npt.NDArray[np.bool_]:
        """Whether a query holds for a cell, shape (n_queries, n_cells)."""
        return self._distinct[0]

    @property
    def n_cells(self) -> int:
        """G."""
        return int(self.holds.shape[1])

    @cached_property
    def sides(self) -> npt.NDArray[np.bool_]:
        """Each query or its complement, whichever leaves the last cell out; each once, no empty one.

        The answers to a query and to its complement are off by as much.
        """
        sides = self.holds ^ self.holds[:, -1:]
        sides = sides[_distinct_rows(sides)[0]]
        return np.asarray(sides[sides.any(axis=1)])

    @cached_property
    def nested(self) -> bool:
        """Whether, of any two ``sides``, one contains or excludes the other.

        This is so where any two queries are nested, or exclude each other, or hold for all cells together.
        """
        largest_first = np.argsort(-self.sides.sum(axis=1), kind="stable")
        innermost = np.zeros(
            self.n_cells, dtype=np.int64
        )  # the last side around each cell, of those so far
        for number, side in enumerate(self.sides[largest_first], start=1):
            around = innermost[side]
            if (around != around[0]).any():
                return False
            innermost[side] = number
        return True

    def count(self, counts: IntArray) -> IntArray:
        """Rows in each cell, shape (n_cells,). Private.

        Args:
            counts: Rows of each bin, exact, shape (n_bins,).
        """
        cells = np.zeros(self.n_cells, dtype=np.int64)
        np.add.at(cells, self._distinct[1], counts)
        return cells


def _distinct_rows(table: npt.NDArray[np.bool_]) -> tuple[IntArray, IntArray]:
    """Returns where each distinct row comes first, and for every row which of these it is."""
    packed = np.ascontiguousarray(np.packbits(table, axis=1))
    rows = packed.view(np.dtype((np.void, packed.shape[1]))).ravel()
    _, first, number = np.unique(rows, return_index=True, return_inverse=True)
    return first.astype(np.int64), number.astype(np.int64)


@dataclass(frozen=True)
class PrefixPlan:
    """The public parameters of one look.

    Attributes:
        cells: The cells of the queries.
        epsilon: The loss of the look.
        hypothesis_rows: m, the rows of a histogram.
    """

    cells: BatchConditions
    epsilon: Fraction
    hypothesis_rows: int

    def __post_init__(self) -> None:
        checked_privacy(self.epsilon)
        if self.hypothesis_rows < 1:
            raise ValueError("a histogram has one row or more")

    @property
    def loss(self) -> Loss:
        return Loss(self.epsilon)

    @cached_property
    def n_histograms(self) -> int:
        """R."""
        return math.comb(self.cells.n_cells + self.hypothesis_rows - 1, self.hypothesis_rows)

    @property
    def rate(self) -> Fraction:
        """a: what one unit of E costs in the exponent."""
        return self.epsilon / (2 * self.hypothesis_rows)

    def misfit(self, histograms: IntArray, cells: IntArray) -> IntArray:
        """E of each histogram, shape (n,). Private.

        Args:
            histograms: Shape (n, n_cells).
            cells: Rows in each cell, exact, shape (n_cells,). Private.
        """
        if int(cells.sum()) * self.hypothesis_rows > MAX_ROWS:
            raise ValueError("the data have too many rows for a histogram of this size")
        ours = histograms @ self.cells.holds.T * int(cells.sum())
        truth = self.cells.holds @ cells * self.hypothesis_rows
        return np.asarray(np.abs(ours - truth).max(axis=1))

    def measure(self, counts: IntArray, noise: NoiseSource) -> IntArray:
        """The look: a histogram of ``hypothesis_rows`` rows over the cells, shape (n_cells,), drawn exactly.

        Args:
            counts: Rows of each bin, exact, shape (n_bins,); at least one row. Private.
            noise: The source of randomness.

        Raises:
            ValueError: No exact sampler can do it: the queries are not nested, and the histograms too many.
        """
        cells = self.cells.count(counts)
        if self.cells.nested:
            return layered(self, cells, noise)
        return enumerated(self, cells, noise)

    def error(self, n_rows: int, failure_probability: float) -> float:
        """Largest error of all answers, as a share, but for ``failure_probability``.

        ``2 / (epsilon n) ln(R / beta)``, and that within which some histogram is: ``sqrt(ln(2 k) / (2 m))``
        (Hoeffding), or ``1 / m`` for nested queries. There m times the data's shares can be rounded to whole
        rows, each query up or down: a query that got its rows passes them on to the queries just inside it
        and the cell that is left, for their sum is between all of these rounded down and all rounded up.
        """
        m = self.hypothesis_rows
        any_queries = math.sqrt(math.log(2 * len(self.cells.masks)) / (2 * m))
        best = 1 / m if self.cells.nested else any_queries
        spread = math.log(self.n_histograms) - math.log(failure_probability)
        return best + 2.0 * spread / (float(self.epsilon) * n_rows)


# ---------------------------------------------------------------- exact samplers


def enumerated(plan: PrefixPlan, cells: IntArray, noise: NoiseSource) -> IntArray:
    """An exact draw from all histograms, written down one by one.

    Raises:
        ValueError: There are more than ``MAX_ENUMERATED``.
    """
    if plan.n_histograms > MAX_ENUMERATED:
        raise ValueError(f"{plan.n_histograms} histograms are too many to write down")
    histograms = all_histograms(plan.cells.n_cells, plan.hypothesis_rows)
    misfits = plan.misfit(histograms, cells)
    levels, sizes = np.unique(misfits, return_counts=True)
    exponents = [plan.rate * int(level - levels[0]) for level in levels]

    def bounds(precision: int) -> tuple[list[int], list[int]]:
        found = [exp_bounds(x, precision) for x in exponents]
        low, high = (
            [size * side for size, side in zip(sizes.tolist(), sides, strict=True)]
            for sides in zip(*found, strict=True)
        )
        return low, high

    level = levels[choose(noise, bounds)]
    alike = np.flatnonzero(misfits == level)
    return np.asarray(histograms[alike[uniform_below(noise, len(alike))]])


def layered(plan: PrefixPlan, cells: IntArray, noise: NoiseSource) -> IntArray:
    """An exact draw for nested queries; time polynomial in k and m.

    ``exp(-a E)`` is the area under ``a exp(-a v)`` beyond E. It is cut at whole ``u_0 < ... < u_r``, u_0 the
    least E of all, and piece i drawn with weight ``(exp(-a u_i) - exp(-a u_(i+1))) N(u_(i+1) - 1)``, where
    ``N(u)`` histograms have an E of at most u; the last, endless one with ``exp(-a u_r) R``. Then one of the
    histograms counted there is drawn, each as likely, and kept with the probability that a point of the
    piece is beyond its E; otherwise all is drawn again. What a histogram gets from all pieces is the area
    beyond its E.

    A piece is so wide that whatever the data one of e draws is kept, or hardly fewer.

    Raises:
        ValueError: The queries are not nested.
    """
    tree = _Nested(plan, cells)
    cuts, numbers = _pieces(plan, tree)
    ends = [plan.rate * (cut - cuts[0]) for cut in cuts]

    def weights(precision: int) -> tuple[list[int], list[int]]:
        gaps = [
            _gap(start, stop, precision)
            for start, stop in zip(ends, [*ends[1:], None], strict=True)
        ]
        low, high = zip(*gaps, strict=True)
        return (
            [gap * n for gap, n in zip(low, numbers, strict=True)],
            [gap * n for gap, n in zip(high, numbers, strict=True)],
        )

    while True:
        piece = choose(noise, weights)
        start, stop = cuts[piece], cuts[piece + 1] if piece + 1 < len(cuts) else None
        histogram = tree.draw(tree.most if stop is None else stop - 1, noise)
        misfit = int(plan.misfit(histogram[None], cells)[0])
        if _beyond(noise, plan.rate, misfit, start, stop):
            return histogram


def all_histograms(n_cells: int, rows: int) -> IntArray:
    """Every histogram of ``rows`` rows, shape (n_histograms, n_cells)."""
    histograms = np.zeros((1, 0), dtype=np.int64)
    left = np.array([rows])
    for _ in range(n_cells - 1):
        repeats = left + 1
        histograms = np.repeat(histograms, repeats, axis=0)
        first = np.repeat(np.cumsum(repeats) - repeats, repeats)
        here = np.arange(len(histograms)) - first
        histograms = np.column_stack([histograms, here])
        left = np.repeat(left, repeats) - here
    return np.column_stack([histograms, left])


def _pieces(plan: PrefixPlan, tree: _Nested) -> tuple[list[int], list[int]]:
    """Returns where pieces begin, and how many histograms each is drawn for.

    No cut is made where all that is behind it weighs a thousandth of one piece, or less.
    """
    start = least(range(tree.n_rows), lambda v: tree.number(v) >= 1)
    rate, log_all = float(plan.rate), math.log(plan.n_histograms)
    width, cuts, numbers, largest = math.ceil(1 / plan.rate), [start], [], -math.inf
    while log_all - rate * (cuts[-1] - start) > largest - 7.0:
        numbers.append(tree.number(cuts[-1] + width - 1))
        largest = max(largest, math.log(numbers[-1]) - rate * (cuts[-1] - start))
        cuts.append(cuts[-1] + width)
    return cuts, [*numbers, plan.n_histograms]


def _beyond(noise: NoiseSource, rate: Fraction, misfit: int, start: int, stop: int | None) -> bool:
    """True with the probability that a point of a piece, by its area, is beyond ``misfit``."""
    if misfit <= start:
        return True
    if stop is not None and misfit >= stop:
        return False
    here, end = rate * (misfit - start), None if stop is None else rate * (stop - start)

    def bounds(precision: int) -> tuple[list[int], list[int]]:
        sides = (_gap(here, end, precision), _gap(Fraction(0), here, precision))
        return [low for low, _ in sides], [high for _, high in sides]

    return choose(noise, bounds) == 0


def _gap(start: Fraction, stop: Fraction | None, precision: int) -> tuple[int, int]:
    """Integers at most and at least ``2^precision (exp(-start) - exp(-stop))``."""
    low, high = exp_bounds(start, precision)
    end_low, end_high = (0, 0) if stop is None else exp_bounds(stop, precision)
    return max(0, low - end_high), high - end_low


_Series: TypeAlias = tuple[int, list[int]]
"""In how many ways there can be ``start``, ``start + 1``, ... rows: ``(start, ways)``."""


class _Nested:
    """Histograms whose nested queries are all within v of the truth: how many there are, and one of them.

    Nodes are the queries, inner ones first, and at last the whole. A node has at most one cell of its own: of
    two that are in the same nodes all queries answer alike.
    """

    def __init__(self, plan: PrefixPlan, cells: IntArray) -> None:
        sides = plan.cells.sides
        if not plan.cells.nested:
            raise ValueError("the queries overlap: one neither contains the other nor excludes it")
        self._rows, self.n_rows = plan.hypothesis_rows, int(cells.sum())
        inner_first = np.argsort(sides.sum(axis=1), kind="stable")
        nodes = np.vstack([sides[inner_first], np.ones((1, len(cells)), dtype=np.bool_)])
        self._n_cells = len(cells)
        self._truth = [int(t) for t in nodes @ cells]
        self._children: list[list[int]] = [[] for _ in nodes]
        meet = nodes.astype(np.float32) @ nodes.T > 0
        for node in range(len(nodes) - 1):
            # The next one that it is inside.
            parent = node + 1 + int(meet[node, node + 1 :].argmax())
            self._children[parent].append(node)
        left = [
            nodes[node] & ~nodes[inside].any(axis=0) for node, inside in enumerate(self._children)
        ]
        self._own = [int(cell.argmax()) if cell.any() else None for cell in left]

    @property
    def most(self) -> int:
        """No histogram has a larger E."""
        return self.n_rows * self._rows

    def number(self, v: int) -> int:
        """N(v)."""
        stages = self._stages(v)
        return stages[-1][-1][1][0] if stages else 0

    def draw(self, v: int, noise: NoiseSource) -> IntArray:
        """A histogram of E at most v, each as likely."""
        histogram = np.zeros(self._n_cells, dtype=np.int64)
        stages = self._stages(v)
        to_fill = [(len(stages) - 1, self._rows)]
        while to_fill:
            node, rows = to_fill.pop()
            *before, (start, ways), _ = stages[node]
            own = self._own[node]
            if own is not None:
                inside = start + _weighted(noise, ways[: rows - start + 1])
                histogram[own], rows = rows - inside, inside
            for child, (start, ways) in zip(
                reversed(self._children[node]), reversed(before), strict=True
            ):
                first, of_child = stages[child][-1]
                least = max(first, rows - start - len(ways) + 1)
                most = min(first + len(of_child) - 1, rows - start)
                weights = [
                    of_child[t - first] * ways[rows - t - start] for t in range(least, most + 1)
                ]
                taken = least + _weighted(noise, weights)
                to_fill.append((child, taken))
                rows -= taken
        return histogram

    def _stages(self, v: int) -> list[list[_Series]]:
        """Returns the ways to fill each node: nothing, each child added, and its own cell, within v.

        Empty where some node cannot be filled.
        """
        found: list[list[_Series]] = []
        for node, children in enumerate(self._children):
            least, most = self._within(node, v)
            stages: list[_Series] = [(0, [1])]
            for child in children:
                stages.append(_product(stages[-1], found[child][-1], most))
            start, ways = stages[-1]
            if self._own[node] is not None:
                ways = list(accumulate([*ways, *[0] * (most + 1 - start - len(ways))]))
            below = max(0, least - start)
            if len(ways) <= below:
                return []
            stages.append((start + below, ways[below:]))
            found.append(stages)
        return found

    def _within(self, node: int, v: int) -> tuple[int, int]:
        """The least and most rows of a node for which it is off by at most v."""
        if node == len(self._truth) - 1:
            return self._rows, self._rows
        exact = self._rows * self._truth[node]
        return max(0, -((v - exact) // self.n_rows)), min(self._rows, (exact + v) // self.n_rows)


def _product(one: _Series, other: _Series, most: int) -> _Series:
    """The ways to have rows of both, up to ``most`` together."""
    (start, ways), (more, factors) = one, other
    start += more
    if ways == [1]:
        ways = factors
    elif ways:
        # Two polynomials, multiplied as integers with room for each coefficient.
        size = (sum(ways) * sum(factors)).bit_length() // 8 + 1
        packed = _packed(ways, size) * _packed(factors, size)
        n_ways = len(ways) + len(factors) - 1
        digits = packed.to_bytes(size * n_ways, "little")
        ways = [int.from_bytes(digits[size * i :][:size], "little") for i in range(n_ways)]
    return start, ways[: max(0, most + 1 - start)]


def _packed(ways: Sequence[int], size: int) -> int:
    return int.from_bytes(b"".join(n.to_bytes(size, "little") for n in ways), "little")


def _weighted(noise: NoiseSource, weights: Sequence[int]) -> int:
    """An index with probability exactly proportional to its weight."""
    number = uniform_below(noise, sum(weights))
    for index, weight in enumerate(weights):
        if number < weight:
            return index
        number -= weight
    raise AssertionError("the number is below the sum of the weights")
