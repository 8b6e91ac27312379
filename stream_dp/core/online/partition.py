"""Thresholds over a long ordered attribute: bins are first joined to segments with about as many rows each.

After Dwork, Naor, Reingold, Rothblum 2015, in the form of Bun, Steinke, Ullman 2016, Proposition 5.2: the
error of the tree grows with the logarithm of the segments, which are at most ``2 n / T``, not with that of
the bins.

A sweep over the bins keeps the count s of the running segment and closes it at the first bin where
``s + nu >= T + mu``; nu is drawn for each bin, mu for each segment. The ends are published, and with them
the tree of the segments' counts. At an end a threshold is the tree's; inside a segment it is ``T / 2`` more
than at the segment's beginning.

**Guarantee.** ``(2 e1 + e2)``-differential privacy for replacing one row, with mu of scale ``2 / e1``, nu
of scale ``4 / e1``, and a tree of loss e2. *Proof.* For the same ends, at most two segments have running
counts that differ between neighbours, by 1 at most. In each shift mu by 1, so that no earlier bin closes
it, and the nu of the bin that does by 2: ``e1 / 2`` each. The tree sees two datasets over the segments that
differ by one replaced row.

Nothing secret is left after the release.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np

from stream_dp.core.noise import IntArray, NoiseSource
from stream_dp.core.online.base import Loss, checked_privacy
from stream_dp.core.online.laplace import reach, scale_from
from stream_dp.core.online.tree import Tree, TreePlan
from stream_dp.errors import CorruptState

_VERSION = 1


@dataclass(frozen=True, eq=False)
class PartitionRelease:
    """What one look publishes.

    Attributes:
        ends: Bins up to the end of each closed segment, ascending, shape (n_segments,).
        nodes: The tree of the segments' counts, the last and open one's left out, shape (n_segments,).
    """

    ends: IntArray = field(repr=False)
    nodes: IntArray = field(repr=False)

    def to_bytes(self) -> bytes:
        header = struct.pack("<BI", _VERSION, len(self.ends))
        return header + self.ends.astype("<i8").tobytes() + self.nodes.astype("<i8").tobytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> PartitionRelease:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: An unknown version, or a wrong length.
        """
        if not data or data[0] != _VERSION:
            raise CorruptState("a partition is stored in a version that this release does not know")
        if len(data) < 5 or len(data) != 5 + 16 * struct.unpack_from("<I", data, 1)[0]:
            raise CorruptState("a stored partition has a wrong length")
        ends, nodes = np.frombuffer(data, dtype="<i8", offset=5).astype(np.int64).reshape(2, -1)
        return cls(ends, nodes)


@dataclass(frozen=True)
class PartitionPlan:
    """What one look asks; public.

    Attributes:
        n_bins: Bins of the attribute, in order, at least 2.
        sweep_epsilon: e1.
        tree_epsilon: e2.
        failure_probability: beta: that some threshold is further off than promised.
    """

    n_bins: int
    sweep_epsilon: Fraction
    tree_epsilon: Fraction
    failure_probability: float

    def __post_init__(self) -> None:
        checked_privacy(self.sweep_epsilon)
        checked_privacy(self.tree_epsilon)
        if self.n_bins < 2 or not 0.0 < self.failure_probability < 1.0:
            raise ValueError(
                "there are two bins or more, and a failure probability between 0 and 1"
            )

    @property
    def loss(self) -> Loss:
        return Loss(2 * self.sweep_epsilon + self.tree_epsilon)

    @cached_property
    def offset_scale(self) -> Fraction:
        """Scale of mu in rows."""
        return scale_from(2 / self.sweep_epsilon)

    @cached_property
    def noise_scale(self) -> Fraction:
        """Scale of nu in rows."""
        return scale_from(4 / self.sweep_epsilon)

    @cached_property
    def sweep_error(self) -> int:
        """Rows by which mu and nu are off together at most, at half the failure probability."""
        each = Fraction(self.failure_probability) / (4 * self.n_bins)
        return reach(self.offset_scale, each) + reach(self.noise_scale, each)

    @property
    def segment_rows(self) -> int:
        """T, so large that a closed segment has at least ``T / 2`` rows."""
        return 2 * self.sweep_error

    def measure(self, counts: IntArray, noise: NoiseSource) -> PartitionRelease:
        """The look; published as it is.

        Args:
            counts: Rows in each bin, exact, shape (n_bins,). Private.
        """
        if counts.shape != (self.n_bins,):
            raise ValueError("there must be one count a bin")
        ends = self._sweep(counts, noise)
        segments = np.diff(np.cumsum(counts)[ends - 1], prepend=0)
        if not len(ends):
            return PartitionRelease(ends, segments)
        after = counts[ends[-1] :].sum()
        tree = TreePlan(len(ends) + 1, self.tree_epsilon)
        return PartitionRelease(ends, tree.measure(np.append(segments, after), noise))

    def _sweep(self, counts: IntArray, noise: NoiseSource) -> IntArray:
        ends: list[int] = []
        nu = noise.laplace(self.noise_scale, self.n_bins)
        mu = noise.laplace(self.offset_scale, self.n_bins)
        running = 0
        for place, noisy_zero in enumerate(nu.tolist(), start=1):
            running += int(counts[place - 1])
            if running + noisy_zero >= self.segment_rows + int(mu[len(ends)]):
                ends.append(place)
                running = 0
        return np.array(ends, dtype=np.int64)

    def tree(self, release: PartitionRelease, n_rows: int) -> Tree | None:
        """The tree over the segments; None where none was closed."""
        if not len(release.ends):
            return None
        return Tree.of(TreePlan(len(release.ends) + 1, self.tree_epsilon), [release.nodes], n_rows)

    def at_most(self, release: PartitionRelease, n_rows: int) -> IntArray:
        """Estimated rows up to and with each bin, in [0, n_rows], shape (n_bins,)."""
        tree = self.tree(release, n_rows)
        at_end = np.zeros(1, dtype=np.int64) if tree is None else np.append(0, tree.thresholds[:-1])
        place = np.arange(1, self.n_bins + 1)
        closed = np.searchsorted(release.ends, place, side="right")
        inside = np.append(0, release.ends)[closed] < place
        estimates = np.clip(at_end[closed] + inside * (self.segment_rows // 2), 0, n_rows)
        estimates[-1] = n_rows
        return estimates

    def error_bar(self, release: PartitionRelease, n_rows: int) -> float:
        """Rows by which any estimate errs at most, but for ``failure_probability``."""
        tree = self.tree(release, n_rows)
        of_tree = 0.0
        if tree is not None:
            of_tree = tree.error_bar_simultaneous(self.failure_probability / 2.0)
        return of_tree + self.segment_rows / 2 + self.sweep_error


__all__ = ["PartitionPlan", "PartitionRelease"]
