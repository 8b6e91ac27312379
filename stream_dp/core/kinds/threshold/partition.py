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

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property

import numpy as np

from stream_dp.core.encoding import Format, fields, integers
from stream_dp.core.kinds.loss import Loss, checked_privacy
from stream_dp.core.kinds.threshold.count_tree import Tree, TreePlan
from stream_dp.core.randomness.laplace import reach, scale_from
from stream_dp.core.randomness.noise_sources import IntArray, NoiseSource

_FORMAT = Format("partition")


@dataclass(frozen=True, eq=False)
class PartitionRelease:
    """The published output of one look.

    Attributes:
        ends: The number of bins up to the end of each closed segment, ascending, shape (n_segments,).
        nodes: The tree of the segments' counts, without the last and open one's, shape (n_segments,).
    """

    ends: IntArray = field(repr=False)
    nodes: IntArray = field(repr=False)


@dataclass(frozen=True)
class PartitionPlan:
    """The public parameters of one look.

    Attributes:
        n_bins: The number of bins of the attribute, in order, at least 2.
        sweep_epsilon: e1, from which the scales of mu and nu follow.
        tree_epsilon: e2, the loss of the tree.
        failure_probability: beta, from which T follows: the probability that a closed segment has fewer than
            ``T / 2`` rows. An error bar may be asked for at another probability.
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

    @property
    def scales(self) -> dict[str, object]:
        """The facts that the loss follows from, JSON-ready.

        The tree's scale depends on how many segments there are.
        """
        return {
            "offset_scale": float(self.offset_scale),
            "scale": float(self.noise_scale),
            "tree_epsilon": str(self.tree_epsilon),
        }

    @cached_property
    def offset_scale(self) -> Fraction:
        """Scale of mu in rows."""
        return scale_from(2 / self.sweep_epsilon)

    @cached_property
    def noise_scale(self) -> Fraction:
        """Scale of nu in rows."""
        return scale_from(4 / self.sweep_epsilon)

    def sweep_error(self, failure_probability: float) -> int:
        """Rows by which mu and nu are off together at most, at half the failure probability."""
        each = Fraction(failure_probability) / (4 * self.n_bins)
        return reach(self.offset_scale, each) + reach(self.noise_scale, each)

    @cached_property
    def segment_rows(self) -> int:
        """T, so large that a closed segment has at least ``T / 2`` rows."""
        return 2 * self.sweep_error(self.failure_probability)

    def reserve(self, noise: NoiseSource, n_rows: int) -> None:
        """Draws the noise of one look at a block of ``n_rows`` rows into the pool.

        How many segments there will be is not known yet: of each scale that their tree may have there will be
        enough for as many segments as such a block has, but for the failure probability.
        """
        most = min(self.n_bins, 2 * n_rows // self.segment_rows + 1)
        noise.reserve("laplace", self.noise_scale, self.n_bins)
        noise.reserve("laplace", self.offset_scale, most + 1)
        for levels in range(1, most.bit_length() + 1):
            scale = TreePlan(1 << levels, self.tree_epsilon).scale
            noise.reserve("laplace", scale, min(most, (1 << levels) - 1))

    def measure(self, counts: IntArray, noise: NoiseSource) -> PartitionRelease:
        """The look; published as it is.

        Args:
            counts: Rows in each bin, exact, shape (n_bins,). Private.
            noise: The source of randomness.
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
        mu = int(noise.laplace(self.offset_scale, 1)[0])
        running = 0
        for place, (count, noisy_zero) in enumerate(
            zip(counts.tolist(), nu.tolist(), strict=True), start=1
        ):
            running += count
            if running + noisy_zero >= self.segment_rows + mu:
                ends.append(place)
                mu = int(noise.laplace(self.offset_scale, 1)[0])
                running = 0
        return np.array(ends, dtype=np.int64)

    def to_bytes(self, release: PartitionRelease) -> bytes:
        return _FORMAT.pack(
            fields("<I", len(release.ends)), integers(release.ends), integers(release.nodes)
        )

    def from_bytes(self, data: bytes) -> PartitionRelease:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: An unknown version, a wrong length, or ends that are not segments of the bins.
        """
        reader = _FORMAT.read(data)
        (n_segments,) = reader.fields("<I")
        ends, nodes = reader.integers(n_segments), reader.integers(n_segments)
        reader.end()
        ascending = (np.diff(ends, prepend=0) >= 1).all()
        reader.require(ascending and (ends <= self.n_bins).all())
        return PartitionRelease(ends, nodes)

    def tree(self, release: PartitionRelease, n_rows: int) -> Tree | None:
        """The tree over the segments; None where none was closed."""
        if not len(release.ends):
            return None
        return Tree.of(TreePlan(len(release.ends) + 1, self.tree_epsilon), [release.nodes], n_rows)

    def at_most(self, release: PartitionRelease, n_rows: int) -> IntArray:
        """Estimated rows up to and with each bin, in [0, n_rows], shape (n_bins,)."""
        tree = self.tree(release, n_rows)
        at_begin = np.zeros(1, dtype=np.int64)
        if tree is not None:
            at_begin = np.append(at_begin, tree.thresholds[:-1])
        lengths = np.diff(release.ends, prepend=0, append=self.n_bins)
        estimates = np.repeat(at_begin + self.segment_rows // 2, lengths)
        estimates[release.ends - 1] = at_begin[1:]
        estimates[-1] = n_rows
        return np.clip(estimates, 0, n_rows)

    def error_bar(
        self, release: PartitionRelease, n_rows: int, failure_probability: float
    ) -> float:
        """Rows by which any estimate errs at most, but for ``failure_probability``."""
        tree = self.tree(release, n_rows)
        of_tree = 0.0
        if tree is not None:
            of_tree = tree.error_bar_simultaneous(failure_probability / 2.0)
        return of_tree + self.segment_rows / 2 + self.sweep_error(failure_probability)

    def over(self, releases: Sequence[PartitionRelease], sizes: Sequence[int]) -> Partitions:
        """Answers about blocks of these sizes together, from what was published of each."""
        return Partitions(self, tuple(releases), tuple(sizes))


@dataclass(frozen=True)
class Partitions:
    """Answers from published partitions of blocks, which have no row in common; public.

    Each block has segments of its own, so that errors add up.

    Attributes:
        plan: The plan of every look.
        releases: One a block.
        sizes: Rows of each block.
    """

    plan: PartitionPlan
    releases: tuple[PartitionRelease, ...]
    sizes: tuple[int, ...]
    _bars: dict[float, float] = field(default_factory=dict, init=False, repr=False)

    @property
    def n_rows(self) -> int:
        """Rows in all of them."""
        return sum(self.sizes)

    @cached_property
    def thresholds(self) -> IntArray:
        """Estimated rows up to and with each bin, in [0, n_rows], shape (n_bins,)."""
        each = zip(self.releases, self.sizes, strict=True)
        return np.asarray(sum(self.plan.at_most(*one) for one in each))

    def at_most(self, code: int) -> int:
        """Estimated rows whose bin is ``code`` or before it; in [0, n_rows], and certain for the last bin."""
        return int(self.thresholds[code])

    def count(self, bins: range) -> int:
        """Estimated rows whose bin is in ``bins``, a range without gaps; in [0, n_rows]."""
        before = self.at_most(bins.start - 1) if bins.start else 0
        return max(0, self.at_most(bins.stop - 1) - before)

    def error_bar_of(self, bins: range, failure_probability: float) -> float:
        """Rows by which ``count`` errs, but for ``failure_probability``; for all ranges at once."""
        n_uncertain = (bins.start > 0) + (bins.stop < self.plan.n_bins)
        return n_uncertain * self.error_bar_simultaneous(failure_probability)

    def error_bar_simultaneous(self, failure_probability: float) -> float:
        """The same for all thresholds at once: the blocks' errors added up."""
        if failure_probability not in self._bars:
            of_each = failure_probability / len(self.sizes)
            each = zip(self.releases, self.sizes, strict=True)
            self._bars[failure_probability] = sum(
                self.plan.error_bar(*one, of_each) for one in each
            )
        return self._bars[failure_probability]
