"""AdaptiveThresholds: thresholds whose error does not depend on how many values the attribute has.

Bun, Steinke, Ullman 2016, Theorem 5.16, Corollary 5.17, Algorithm 9, with another proof: for cuts at
integer ranks the bijection of their Claim 5.18 does not exist. (Twelve rows in three chunks: cuts just
before and just after the replaced row have only one cut of the neighbour as a partner, and the best
matching pairs 79 of 91.)

The n rows, in order, are cut into m chunks at noisy ranks; the cuts are secret. Each chunk runs an online
interior point of its own. A threshold y is asked of all chunks; where h of them say ABOVE the answer is the
nominal rank of h chunks, ``floor(h n / m)``. Chunks that have found their point are free.

Cuts: ``B_i = N_i + eta_i``, made to ascend in [0, n], with ``N_i = floor(i n / m)`` and eta_i the sum of
prefix i's nodes in a tree over the chunks, L levels, left children only, each node discrete Laplace of
scale b.

**Guarantee.** (epsilon, delta)-differential privacy for replacing one row, for all answers together.
*Proof.* A row moves between values u < v; let u be its value on the side called x, and a0, a1 the rows of x
below u, below v. Pair the cuts of x with those of x' that are 1 less wherever ``a0 < N_i <= a1``; which
these are depends on the data only, so it is a bijection of the noise, which moves nodes by ``2 L - 1`` in
all: cost ``(2 L - 1) / b``. While all ``|eta_i| <= E2`` and ``2 E2 < floor(n / m)``, each chunk's count of
rows up to y moves by at most 1, whatever y is, and at most four chunks' counts move at all: at either end
of the moved range the chunk with one cut moved, and at most one neighbour. Change these chunks' runs one at
a time. In all::

    epsilon = 4 e1 + (2 L - 1) / b
    delta   = d1 (1 + exp(e1) + exp(2 e1) + exp(3 e1)) + Pr[some |eta_i| > E2]

for runs of (e1, d1) each.

**Accuracy.** But for ``failure_probability`` all of k answers are within ``ceil(n / m) + E`` rows.

**State.** Public: the chunks' points, a fold over published outputs. Secret: the cuts and each chunk's
offset, drawn once for a snapshot of n rows, and committed with the charge; when all chunks have their
points it is needed no more. If it is lost before, or an output is lost on its way out, the mechanism is
abandoned. When rows have come, a new run with new noise must be paid for.

*When to use it.* Against the tree over all values only where there are more than some 2^25 of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import pairwise

from stream_dp.core.kinds.interior_point.interior_law import InteriorPlan, InteriorPoint
from stream_dp.core.kinds.loss import Loss, Secret, checked_privacy
from stream_dp.core.kinds.threshold.count_tree import prefix_sums
from stream_dp.core.outcome import Side
from stream_dp.core.randomness.laplace import scale_from, sum_bound
from stream_dp.core.randomness.noise_sources import NoiseSource

_ROUND = 1 + Fraction(1, 2**40)
"""More than floats may be off: what privacy depends on is moved by it to the safe side."""


@dataclass(frozen=True)
class AdaptivePlan:
    """The requirements and the promises of a run. They are public.

    Attributes:
        epsilon: The epsilon of the whole run.
        delta: The delta of the whole run.
        n_rows: n, the number of rows of the snapshot.
        n_chunks: m, the number of chunks, at least 2.
        n_queries: k, the number of thresholds for which accuracy is promised.
        failure_probability: beta, the failure probability of the promised accuracy.
        weight: The chunks' share of epsilon, in (0, 1). The cuts get the rest.

    Raises:
        ValueError: A parameter is out of range, or there are fewer than ``min_rows`` rows.
    """

    epsilon: Fraction
    delta: Fraction
    n_rows: int
    n_chunks: int
    n_queries: int
    failure_probability: float
    weight: Fraction = Fraction(4, 5)

    def __post_init__(self) -> None:
        checked_privacy(self.epsilon, self.delta)
        if self.n_chunks < 2 or not 0 < self.weight < 1:
            raise ValueError("there are two chunks or more, and a weight between 0 and 1")
        if self.n_rows < self.min_rows:
            raise ValueError(f"{self.n_rows} rows are too few; privacy needs {self.min_rows}")

    @property
    def loss(self) -> Loss:
        return Loss(self.epsilon, self.delta)

    @property
    def levels(self) -> int:
        """L."""
        return (self.n_chunks - 1).bit_length()

    @property
    def sensitivity(self) -> int:
        """The distance that all nodes together move between paired cuts."""
        return 2 * self.levels - 1

    @cached_property
    def cut_scale(self) -> Fraction:
        """b, in rows."""
        return scale_from(self.sensitivity / ((1 - self.weight) * self.epsilon))

    @cached_property
    def chunk(self) -> InteriorPlan:
        """The plan that each chunk follows."""
        epsilon = self.weight * self.epsilon / 4
        switches = sum(Fraction(math.exp(i * epsilon)) for i in range(4)) * _ROUND
        return InteriorPlan(
            epsilon,
            self.delta / 2 / switches,
            self.n_queries,
            self.failure_probability / (2 * self.n_chunks),
        )

    @cached_property
    def cut_error(self) -> int:
        """E: cuts are off by no more rows, but for half of ``failure_probability``."""
        return self._cut_bound(self.failure_probability / 2)

    @cached_property
    def largest_cut_error(self) -> int:
        """E2: cuts are off by no more rows, but for half of delta."""
        return self._cut_bound(float(self.delta / 2 / _ROUND))

    def _cut_bound(self, probability: float) -> int:
        bound = sum_bound(self.levels, self.cut_scale, probability / (self.n_chunks - 1))
        return math.ceil(Fraction(bound) * _ROUND)

    @cached_property
    def min_rows(self) -> int:
        """Rows from which on both promises hold."""
        for_accuracy = self.chunk.min_rows + 2 * self.cut_error
        return self.n_chunks * max(for_accuracy, 2 * self.largest_cut_error + 1)

    @property
    def error(self) -> int:
        """Rows by which any of k answers errs at most, but for ``failure_probability``."""
        return -(-self.n_rows // self.n_chunks) + self.cut_error

    def nominal_rank(self, chunks: int) -> int:
        """Returns the number of rows that this many chunks should have."""
        return chunks * self.n_rows // self.n_chunks

    def draw(self, noise: NoiseSource) -> Secret:
        """The cuts 1 to m - 1 and each chunk's offset; once a run."""
        etas = prefix_sums(noise.laplace(self.cut_scale, self.n_chunks - 1)).tolist()
        cuts, cut = [], 0
        for i, eta in enumerate(etas, start=1):
            cut = min(self.n_rows, max(cut, self.nominal_rank(i) + eta))
            cuts.append(cut)
        offsets = [self.chunk.draw(noise).values[0] for _ in range(self.n_chunks)]
        return Secret([*cuts, *offsets])

    @property
    def secret_size(self) -> int:
        """Integers in the secret."""
        return 2 * self.n_chunks - 1


def chunk_counts(rank: int, cuts: Sequence[int], n_rows: int) -> list[int]:
    """Rows of each chunk that are at or before a threshold with ``rank`` rows. Private.

    Args:
        rank: The number of rows at or before the threshold.
        cuts: Ranks 1 to m - 1, ascending.
        n_rows: The number of rows in all chunks.
    """
    return [min(max(rank, a), b) - a for a, b in pairwise([0, *cuts, n_rows])]


class AdaptiveThresholds:
    """The public state of one run: a fold over its outputs.

    Attributes:
        plan: The plan of the run.
        chunks: The interior points, one for each chunk.
    """

    __slots__ = ("chunks", "plan")

    def __init__(self, plan: AdaptivePlan) -> None:
        self.plan = plan
        self.chunks = tuple(InteriorPoint(plan.chunk) for _ in range(plan.n_chunks))

    def __repr__(self) -> str:
        return f"AdaptiveThresholds({[chunk.point for chunk in self.chunks]})"

    @property
    def abandoned(self) -> bool:
        return any(chunk.abandoned for chunk in self.chunks)

    def answer(self, code: int) -> int | None:
        """Estimated rows whose value is ``code`` or less, if known without the data; else ``look``."""
        sides = [chunk.answer(code) for chunk in self.chunks]
        return None if None in sides else self.plan.nominal_rank(sides.count(Side.ABOVE))

    def look(self, rank: int, *, secret: Secret, noise: NoiseSource) -> tuple[Side, ...]:
        """Returns what each chunk without a point says.

        Commit the sides, fold them in with ``absorb``, and publish them.

        Args:
            rank: The exact number of rows whose value is at most the threshold. Private.
            secret: The secret of the run.
            noise: The source of randomness.

        Raises:
            RuntimeError: The run was abandoned.
        """
        m = self.plan.n_chunks
        counts = chunk_counts(rank, secret.values[: m - 1], self.plan.n_rows)
        offsets = secret.values[m - 1 :]
        return tuple(
            chunk.look(count, secret=Secret([offset]), noise=noise)
            for chunk, count, offset in zip(self.chunks, counts, offsets, strict=True)
            if chunk.point is None
        )

    def absorb(self, code: int, sides: Sequence[Side]) -> int:
        """Folds a published output in; the answer: estimated rows whose value is ``code`` or less."""
        waiting = [chunk for chunk in self.chunks if chunk.point is None]
        for chunk, side in zip(waiting, sides, strict=True):
            chunk.absorb(code, side)
        known = [chunk.answer(code) for chunk in self.chunks if chunk not in waiting]
        above = known.count(Side.ABOVE) + sum(side is not Side.BELOW for side in sides)
        return self.plan.nominal_rank(above)

    def lost(self) -> None:
        """An output may have been taken, but was never published: the run is abandoned."""
        for chunk in self.chunks:
            if chunk.point is None:
                chunk.lost()
