"""All thresholds of an ordered attribute from one look: the binary tree of counts.

Dwork, Naor, Pitassi, Rothblum 2010 and Chan, Shi, Song 2011, as in Bun, Steinke, Ullman 2016, Proposition
5.2; approximate medians by search as in their Lemma 5.5 and Figure 6.

Over ``2^L`` leaves, ``#{rows <= y}`` is a sum of at most L nodes that are left children, and the number of
rows is public, so only left children are published. Numbered from 1 as a Fenwick tree they are one array:
node i counts bins ``i - lowbit(i) .. i - 1``.

**Guarantee.** epsilon-differential privacy for replacing one row. A row that moves leaves some nodes and
enters others: at most one node of the top level changes (it has one left child), and at most two of each
level below, each by 1. So the L1 sensitivity is ``2 L - 1``, and each node gets discrete Laplace noise of
scale ``(2 L - 1) / epsilon``.

Everything else here is post-processing: every threshold ever asked is free. Nothing
secret is left after the release, so a restart replays the release and no more.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np

from stream_dp.core.encoding import Format, fields, integers
from stream_dp.core.kinds.loss import Loss, checked_privacy
from stream_dp.core.randomness.laplace import scale_from, sum_bound
from stream_dp.core.randomness.noise_sources import IntArray, NoiseSource

_FORMAT = Format("tree")


@dataclass(frozen=True, slots=True)
class TreePlan:
    """The public parameters of one look.

    Attributes:
        n_bins: The number of bins of the attribute, in order, at least 2.
        epsilon: The loss of the look.
    """

    n_bins: int
    epsilon: Fraction

    def __post_init__(self) -> None:
        checked_privacy(self.epsilon)
        if self.n_bins < 2:
            raise ValueError(f"one threshold needs two bins, there are {self.n_bins}")

    @property
    def levels(self) -> int:
        """L: nodes that a threshold is a sum of, at most."""
        return (self.n_bins - 1).bit_length()

    @property
    def scale(self) -> Fraction:
        """Scale of each node's noise, in rows."""
        return scale_from((2 * self.levels - 1) / self.epsilon)

    @property
    def loss(self) -> Loss:
        return Loss(self.epsilon)

    @property
    def scales(self) -> dict[str, object]:
        """The facts that the loss follows from, JSON-ready."""
        return {"scale": float(self.scale)}

    def reserve(self, noise: NoiseSource, n_rows: int) -> None:
        """Draws the noise of one look into the pool, whatever the number of rows."""
        del n_rows
        noise.reserve("laplace", self.scale, self.n_bins - 1)

    def measure(self, counts: IntArray, noise: NoiseSource) -> IntArray:
        """The look: noisy nodes 1 to ``n_bins - 1``, int64, shape (n_bins - 1,); published as they are.

        Args:
            counts: Rows in each bin, exact, shape (n_bins,). Private.
            noise: The source of randomness.
        """
        if counts.shape != (self.n_bins,):
            raise ValueError("there must be one count a bin")
        return _nodes(counts) + noise.laplace(self.scale, self.n_bins - 1)

    def over(self, releases: Sequence[IntArray], sizes: Sequence[int]) -> Tree:
        """Answers about blocks of these sizes together, from what was published of each."""
        return Tree.of(self, releases, sum(sizes))

    def to_bytes(self, nodes: IntArray) -> bytes:
        return _FORMAT.pack(fields("<I", self.n_bins - 1), integers(nodes))

    def from_bytes(self, data: bytes) -> IntArray:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: An unknown version, or another number of nodes.
        """
        reader = _FORMAT.read(data)
        (n_nodes,) = reader.fields("<I")
        reader.require(n_nodes == self.n_bins - 1)
        nodes = reader.integers(n_nodes)
        reader.end()
        return nodes


def _nodes(counts: IntArray) -> IntArray:
    """Exact nodes 1 to ``n_bins - 1``, shape (n_bins - 1,). Private."""
    before = np.concatenate([[0], np.cumsum(counts[:-1])])
    number = np.arange(1, len(counts))
    return np.asarray(before[number] - before[number - (number & -number)])


def _nodes_of(n_bins: int) -> set[int]:
    """Returns the numbers of the nodes whose sum is the prefix of this many bins."""
    found = set()
    while n_bins:
        found.add(n_bins)
        n_bins &= n_bins - 1
    return found


def prefix_sums(nodes: IntArray) -> IntArray:
    """The sum that each prefix has of its nodes, for prefixes of 1 to ``len(nodes)`` bins."""
    sums = np.append(0, nodes)
    for level in reversed(range(len(nodes).bit_length())):
        places = np.arange(1 << level, len(sums), 2 << level)
        sums[places] += sums[places - (1 << level)]
    return sums[1:]


@dataclass(frozen=True)
class Tree:
    """Answers from published nodes, of one block or of several summed; public.

    Attributes:
        plan: The plan of every look.
        n_rows: Rows in all of them.
        n_releases: Blocks that were measured.
        nodes: Their sum, shape (n_bins - 1,).
    """

    plan: TreePlan
    n_rows: int
    n_releases: int
    nodes: IntArray = field(repr=False)

    @classmethod
    def of(cls, plan: TreePlan, releases: Sequence[IntArray], n_rows: int) -> Tree:
        """The tree of a window: blocks have no row in common, so their nodes add up."""
        return cls(plan, n_rows, len(releases), np.sum(releases, axis=0, dtype=np.int64))

    @cached_property
    def thresholds(self) -> IntArray:
        """Estimated rows up to and with each bin, in [0, n_rows], shape (n_bins,)."""
        return np.append(np.clip(self._prefixes, 0, self.n_rows), self.n_rows)

    def count(self, bins: range) -> int:
        """Estimated rows whose bin is in ``bins``, a range without gaps; in [0, n_rows]."""
        up_to_stop = self.n_rows if bins.stop == self.plan.n_bins else self._prefix(bins.stop)
        return min(self.n_rows, max(0, up_to_stop - self._prefix(bins.start)))

    def error_bar_of(self, bins: range, failure_probability: float) -> float:
        """Rows by which ``count`` of a range fixed beforehand errs, but for ``failure_probability``.

        Nodes that both prefixes are sums of cancel out.
        """
        stop = set() if bins.stop == self.plan.n_bins else _nodes_of(bins.stop)
        n_nodes = len(stop ^ _nodes_of(bins.start))
        return self._bound(n_nodes, failure_probability) if n_nodes else 0.0

    def error_bar_simultaneous(self, failure_probability: float) -> float:
        """The same for all thresholds at once."""
        n_thresholds = self.plan.n_bins - 1
        return self._bound(self.plan.levels, failure_probability / n_thresholds)

    def _bound(self, n_nodes: int, failure_probability: float) -> float:
        return sum_bound(n_nodes * self.n_releases, self.plan.scale, failure_probability)

    @cached_property
    def _prefixes(self) -> IntArray:
        return prefix_sums(self.nodes)

    def _prefix(self, n_bins: int) -> int:
        """Estimated rows of the first ``n_bins`` bins, fewer than all; as the nodes say, of any size."""
        return int(self._prefixes[n_bins - 1]) if n_bins else 0
