"""Many prefix queries at once, all known beforehand: a synthetic histogram by the exponential mechanism.

Bun, Steinke, Ullman 2016, section 3.1 and Figure 4 (universe restriction before Blum, Ligett, Roth 2008).

A row is a string of bits, a prefix query a finite set of strings: it holds for rows that have one of them
as a prefix. Over an ordered attribute a prefix is a dyadic interval of bins, and a query a union of such
intervals.

1. A row may be replaced by the longest string of all queries that is a prefix of it: two prefixes of one
   string are nested, so every query answers as before (Claim 3.4). This is done row by row, so neighbours
   stay neighbours.
2. Strings for which all queries answer alike are one *cell*; there are G.
3. Among all histograms y of m rows over the cells one is drawn with ``Pr[y]`` proportional to
   ``exp(-epsilon n err(y) / 2)``, where ``err(y)`` is the largest difference of a query's share in y and in
   the data; in integers ``exp(-a E(y))`` with ``E(y) = max |n Y_j - m X_j|`` and ``a = epsilon / (2 m)``.

The histogram is published; its answers, and all that can be computed from it, are free.

**Guarantee.** epsilon-differential privacy for replacing one row: err has sensitivity 1/n. It needs a draw
from exactly this law. ``layered``, ``enumerated`` and ``rejected`` draw exactly. None of them takes constant
time, and how long ``rejected`` tries depends on the data alone: an answer must not leave the moment it is
ready. ``metropolis`` is a heuristic: without a proved mixing time it guarantees nothing, and it has no loss
that could be charged.

One run is one look at a snapshot. Nothing secret is left behind. Where cells are few, noise on each of
them, or the tree of counts, is better.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt

from stream_dp.core.noise import IntArray, NoiseSource
from stream_dp.core.online.base import Loss, checked_privacy
from stream_dp.core.online.sampling import choose, exp_bounds, permutation, uniform_below
from stream_dp.core.universe import MAX_ROWS
from stream_dp.errors import CorruptState

MAX_ENUMERATED: Final = 2**20
"""Most histograms that are written down one by one."""
_VERSION = 1


@dataclass(frozen=True)
class Cells:
    """What a set of prefix queries can tell apart; public.

    Attributes:
        queries: Strings of ``0`` and ``1``, a set for each query.
        depth: Bits of a row, at least as many as any string has.
    """

    queries: tuple[frozenset[str], ...]
    depth: int

    def __post_init__(self) -> None:
        strings = {string for query in self.queries for string in query}
        if not strings:
            raise ValueError("there is no query with a prefix")
        if any(set(string) - {"0", "1"} or len(string) > self.depth for string in strings):
            raise ValueError(f"a prefix is up to {self.depth} characters 0 and 1")

    @cached_property
    def _signatures(self) -> dict[str, tuple[bool, ...]]:
        """Which queries hold for rows whose longest string is this, shortest strings first."""
        strings = {""}.union(*self.queries)
        return {
            string: tuple(
                any(string[:length] in query for length in range(len(string) + 1))
                for query in self.queries
            )
            for string in sorted(strings, key=lambda string: (len(string), string))
        }

    @cached_property
    def holds(self) -> npt.NDArray[np.bool_]:
        """Whether a query holds for a cell, shape (n_queries, n_cells)."""
        return np.array(sorted(set(self._signatures.values()))).T

    @property
    def n_cells(self) -> int:
        """G."""
        return int(self.holds.shape[1])

    def count(self, counts: IntArray) -> IntArray:
        """Rows in each cell, shape (n_cells,). Private.

        Args:
            counts: Rows of each code of ``depth`` bits, or of the first so many, exact, shape (n_codes,).
        """
        if len(counts) > 1 << self.depth:
            raise ValueError(f"a row has more than {self.depth} bits")
        numbers = {
            signature: i for i, signature in enumerate(sorted(set(self._signatures.values())))
        }
        cell_of = np.zeros(1 << self.depth, dtype=np.int64)
        for string, signature in self._signatures.items():
            rest = self.depth - len(string)
            start = int(string or "0", 2) << rest
            cell_of[start : start + (1 << rest)] = numbers[signature]
        cells = np.zeros(self.n_cells, dtype=np.int64)
        np.add.at(cells, cell_of[: len(counts)], counts)
        return cells


@dataclass(frozen=True)
class PrefixPlan:
    """What one look asks; public.

    Attributes:
        cells: Of the queries.
        epsilon: Its loss.
        hypothesis_rows: m.
    """

    cells: Cells
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
            raise ValueError("the data have too many rows for a histogram of so many")
        ours = histograms @ self.cells.holds.T * int(cells.sum())
        truth = self.cells.holds @ cells * self.hypothesis_rows
        return np.asarray(np.abs(ours - truth).max(axis=1))

    @cached_property
    def nested(self) -> bool:
        """Whether any two queries are nested or exclude each other, as ``layered`` needs it."""
        return _parents(self.cells.holds) is not None

    def measure(self, counts: IntArray, noise: NoiseSource) -> IntArray:
        """The look: a histogram of ``hypothesis_rows`` rows over the cells, shape (n_cells,), drawn exactly.

        Args:
            counts: As ``Cells.count`` has it; at least one row. Private.

        Raises:
            ValueError: No exact sampler can do it: the queries are not nested, and the histograms too many.
        """
        cells = self.cells.count(counts)
        if self.nested:
            return layered(self, cells, noise)
        return enumerated(self, cells, noise)

    def shares(self, histogram: IntArray) -> npt.NDArray[np.float64]:
        """The answers, each query's share of rows, shape (n_queries,)."""
        return np.asarray(self.cells.holds @ histogram / self.hypothesis_rows)

    def error(self, n_rows: int, failure_probability: float) -> float:
        """Largest error of all answers, as a share, but for ``failure_probability``.

        ``sqrt(ln(2 k) / (2 m))``, within which some histogram is (Hoeffding), and
        ``2 / (epsilon n) ln(R / beta)``.
        """
        best = math.sqrt(math.log(2 * len(self.cells.queries)) / (2 * self.hypothesis_rows))
        spread = math.log(self.n_histograms) - math.log(failure_probability)
        return best + 2.0 * spread / (float(self.epsilon) * n_rows)

    def to_bytes(self, histogram: IntArray) -> bytes:
        return struct.pack("<BI", _VERSION, len(histogram)) + histogram.astype("<i8").tobytes()

    def from_bytes(self, data: bytes) -> IntArray:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: An unknown version, or no histogram of this plan.
        """
        if not data or data[0] != _VERSION:
            raise CorruptState("a histogram is stored in a version that this release does not know")
        n_cells = self.cells.n_cells
        if data[1:5] != struct.pack("<I", n_cells) or len(data) != 5 + 8 * n_cells:
            raise CorruptState("a stored histogram does not fit the queries")
        histogram = np.frombuffer(data, dtype="<i8", offset=5).astype(np.int64)
        if histogram.min() < 0 or histogram.sum() != self.hypothesis_rows:
            raise CorruptState("a stored histogram does not fit the queries")
        return histogram


def hypothesis_rows(n_queries: int, error: float) -> int:
    """m for which some histogram is within ``error / 2`` of any data on all queries."""
    return math.floor(2.0 * math.log(2 * n_queries) / error**2) + 1


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
    """An exact draw for queries that are nested or exclude each other; time polynomial in k and m.

    With distinct levels ``v_1 < v_2 < ...`` of E and ``N(v)`` histograms of E at most v, level i is drawn
    with weight ``(exp(-a v_i) - exp(-a v_(i+1))) N(v_i)``, the last with ``exp(-a v) N(v)``, and then a
    histogram of E at most v_i, each as likely. What these weights give one histogram telescopes to ``exp(-a
    E)``.

    Raises:
        ValueError: The queries overlap otherwise.
    """
    tree = _Nested(plan, cells)
    numbers = {v: n for v in tree.levels() if (n := tree.number(v))}
    levels, counts = list(numbers), list(numbers.values())
    exponents = [plan.rate * (v - levels[0]) for v in levels]

    def bounds(precision: int) -> tuple[list[int], list[int]]:
        found = [*(exp_bounds(x, precision) for x in exponents), (0, 0)]
        low = [max(0, a[0] - b[1]) * n for (a, b), n in zip(pairwise(found), counts, strict=True)]
        high = [(a[1] - b[0]) * n for (a, b), n in zip(pairwise(found), counts, strict=True)]
        return low, high

    return tree.draw(levels[choose(noise, bounds)], noise)


def rejected(plan: PrefixPlan, cells: IntArray, noise: NoiseSource) -> IntArray:
    """An exact draw by rejection. How long it takes depends on the data: keep that from everybody."""
    m, n_cells = plan.hypothesis_rows, plan.cells.n_cells
    while True:
        bars = np.sort(permutation(noise, m + n_cells - 1)[: n_cells - 1])
        histogram = np.diff(np.concatenate([[-1], bars, [m + n_cells - 1]])) - 1
        if _happens(noise, plan.rate * int(plan.misfit(histogram[None], cells)[0])):
            return np.asarray(histogram, dtype=np.int64)


def metropolis(plan: PrefixPlan, cells: IntArray, noise: NoiseSource, *, steps: int) -> IntArray:
    """HEURISTIC, without any guarantee of privacy: where a Markov chain is after ``steps`` moves of one row.

    If its law were within eta of the right one in total variation, on every dataset, it would be
    ``(epsilon, (1 + exp(epsilon)) eta)``-private; no such eta is proved. For experiments on public data.
    """
    n_cells = plan.cells.n_cells
    here = np.zeros(n_cells, dtype=np.int64)
    here[0] = plan.hypothesis_rows
    misfit = int(plan.misfit(here[None], cells)[0])
    for pair in noise.uniform(n_cells * (n_cells - 1), steps).tolist():
        source, target = divmod(pair, n_cells - 1)
        target += target >= source
        if here[source] == 0:
            continue
        there = here.copy()
        there[source] -= 1
        there[target] += 1
        moved = int(plan.misfit(there[None], cells)[0])
        if moved <= misfit or _happens(noise, plan.rate * (moved - misfit)):
            here, misfit = there, moved
    return here


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


def _happens(noise: NoiseSource, exponent: Fraction) -> bool:
    """True with probability exactly ``exp(-exponent)``."""

    def bounds(precision: int) -> tuple[list[int], list[int]]:
        low, high = exp_bounds(exponent, precision)
        high = min(high, 1 << precision)
        return [low, (1 << precision) - high], [high, (1 << precision) - low]

    return choose(noise, bounds) == 0


def _parents(holds: npt.NDArray[np.bool_]) -> list[int | None] | None:
    """For each query, the smallest that contains it, of equal ones an earlier one; None where two overlap."""
    order = sorted(range(len(holds)), key=lambda j: (-int(holds[j].sum()), j))
    parents: list[int | None] = [None] * len(holds)
    for place, j in enumerate(order):
        for i in order[:place]:
            common = holds[i] & holds[j]
            if common.any() and not np.array_equal(common, holds[j]):
                return None
            if common.any():
                parents[j] = i  # the last one is the smallest
    return parents


class _Nested:
    """Histograms whose nested queries are all within v of the truth: how many there are, and one of them.

    Every query but for its children's cells has cells of its own; so has the whole, which is node ``k``.
    """

    def __init__(self, plan: PrefixPlan, cells: IntArray) -> None:
        holds = plan.cells.holds
        parents = _parents(holds)
        if parents is None:
            raise ValueError("the queries overlap: one neither contains the other nor excludes it")
        k, self._rows = len(holds), plan.hypothesis_rows
        self._n_cells = plan.cells.n_cells
        self._n_rows = int(cells.sum())
        self._truth = [int(t) for t in holds @ cells]
        self._children: list[list[int]] = [[] for _ in range(k + 1)]
        for j, parent in enumerate(parents):
            self._children[k if parent is None else parent].append(j)
        self._own = []
        for j in range(k + 1):
            own = holds[j].copy() if j < k else np.ones(self._n_cells, dtype=np.bool_)
            for child in self._children[j]:
                own &= ~holds[child]
            self._own.append(np.flatnonzero(own).tolist())

    def _misfit(self, query: int, total: int) -> int:
        return abs(self._n_rows * total - self._rows * self._truth[query])

    def levels(self) -> list[int]:
        """All values that E may have, ascending."""
        totals = range(self._rows + 1)
        return sorted({self._misfit(j, t) for j in range(len(self._truth)) for t in totals})

    def number(self, v: int) -> int:
        """N(v)."""
        return self._ways(len(self._truth), v)[-1][self._rows]

    def _ways(self, node: int, v: int) -> list[list[int]]:
        """Ways to fill a node's cells with 0 to m rows: its own, then with each child added, all within v."""
        free = len(self._own[node])
        own = [math.comb(t + free - 1, t) if free else int(t == 0) for t in range(self._rows + 1)]
        stages = [own]
        for child in self._children[node]:
            inside = self._within(child, v)
            stages.append(
                [
                    sum(stages[-1][t - s] * inside[s] for s in range(t + 1) if inside[s])
                    for t in range(self._rows + 1)
                ]
            )
        return stages

    def _within(self, query: int, v: int) -> list[int]:
        """Ways to fill a query's cells, none where it is off by more than v."""
        ways = self._ways(query, v)[-1]
        return [n if self._misfit(query, t) <= v else 0 for t, n in enumerate(ways)]

    def draw(self, v: int, noise: NoiseSource) -> IntArray:
        """A histogram of E at most v, each as likely."""
        histogram = np.zeros(self._n_cells, dtype=np.int64)
        for cell, rows in self._drawn(len(self._truth), v, self._rows, noise):
            histogram[cell] = rows
        return histogram

    def _drawn(
        self, node: int, v: int, total: int, noise: NoiseSource
    ) -> Iterator[tuple[int, int]]:
        stages = self._ways(node, v)
        for child, stage in zip(reversed(self._children[node]), reversed(stages[:-1]), strict=True):
            inside = self._within(child, v)
            rows = _weighted(noise, [stage[total - s] * inside[s] for s in range(total + 1)])
            yield from self._drawn(child, v, rows, noise)
            total -= rows
        own = self._own[node]
        for place, cell in enumerate(own[:-1]):
            behind = len(own) - place - 1
            rows = _weighted(
                noise, [math.comb(total - t + behind - 1, behind - 1) for t in range(total + 1)]
            )
            yield cell, rows
            total -= rows
        if own:
            yield own[-1], total


def _weighted(noise: NoiseSource, weights: Sequence[int]) -> int:
    """An index with probability exactly proportional to its weight."""
    number = uniform_below(noise, sum(weights))
    for index, weight in enumerate(weights):
        if number < weight:
            return index
        number -= weight
    raise AssertionError("the number is below the sum of the weights")


__all__ = [
    "MAX_ENUMERATED",
    "Cells",
    "PrefixPlan",
    "all_histograms",
    "enumerated",
    "hypothesis_rows",
    "layered",
    "metropolis",
    "rejected",
]
