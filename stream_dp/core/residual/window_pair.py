"""Differences of two windows: the share of a condition in one, minus that in the other.

A difference is a sum over blocks, in which a block counts with a coefficient of its own: 1 by the rows of the
window in which it is, minus 1 by those of the other. So its error is exact where the windows overlap, too.
Noise of variance ``v`` in a block adds ``coefficient^2 v``. The cheapest noise has variances that are inverse
to the sizes of the coefficients (docs/proofs, Theorem 17).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.belief.linear_forms import Floats
from stream_dp.core.residual.plan.planner import (
    MeasureCounts,
    Prices,
    counts_at,
    lowest_of,
    most_precise_counts,
    water_fill,
)


@dataclass(frozen=True, slots=True)
class Differed:
    """What is known of a difference, shape (answers,) each.

    Attributes:
        shares: The differences of shares.
        of_shares: Their variances. Infinite where nothing is known.
        counts: The differences of counts, in rows.
        of_counts: Their variances.
    """

    shares: Floats
    of_shares: Floats
    counts: Floats
    of_counts: Floats


@dataclass(frozen=True, slots=True)
class Windows:
    """Two windows, and the public number of rows of each block of the window that covers both.

    Attributes:
        first: The window asked about.
        second: The window that is taken away.
        rows: The rows of each block from the first to the last of both.
    """

    first: range
    second: range
    rows: tuple[int, ...]

    @property
    def start(self) -> int:
        """The first block of both."""
        return min(self.first.start, self.second.start)

    @property
    def n_rows(self) -> tuple[int, int]:
        """The rows of each window."""
        sizes = dict(enumerate(self.rows, self.start))
        return sum(sizes[b] for b in self.first), sum(sizes[b] for b in self.second)

    def coefficients(self, one: float, other: float) -> Floats:
        """What a row of each block counts for: ``one`` in the first window, minus ``other`` in the second."""
        blocks = range(self.start, self.start + len(self.rows))
        return np.array([one * (b in self.first) - other * (b in self.second) for b in blocks])

    @property
    def of_shares(self) -> Floats:
        """The coefficients of a difference of shares."""
        first, second = self.n_rows
        return self.coefficients(1.0 / first, 1.0 / second)

    def known(self, evidence: Evidence, each: tuple[Evidence, Evidence]) -> Differed:
        """The best estimates, and how good they are.

        Args:
            evidence: What is known about the query over the window that covers both.
            each: What is known about it over each window.
        """
        first, second = (one.values for one in each)
        variances, (n_first, n_second) = evidence.variances_by_block, self.n_rows
        shape = first.shape
        return Differed(
            first / n_first - second / n_second,
            np.broadcast_to(_added_up(variances, self.of_shares), shape),
            first - second,
            np.broadcast_to(_added_up(variances, self.coefficients(1.0, 1.0)), shape),
        )

    def look(
        self, evidence: Evidence, prices: Prices, room: npt.NDArray[np.int64], limit: float
    ) -> MeasureCounts | None:
        """The cheapest counts that bring the variance of a difference of shares down to ``limit``.

        Args:
            evidence: What is known about the query over the window that covers both.
            prices: The prices of noise scales, in units of a line.
            room: Units that each block may spend, shape (blocks,).
            limit: The largest variance that is precise enough.

        Returns:
            The counts; None if the room is too small.
        """
        sizes = np.abs(self.of_shares)
        now = evidence.by_block()
        first, most = most_precise_counts(evidence, prices, room)
        counts = sizes > 0.0
        lowest = np.where(counts, lowest_of(most > 0.0, evidence.after_count(most), now), 0.0)
        # With u = size * variance the sum of size * u must fit, and the least loss has a common u.
        levels = water_fill(
            np.where(counts, sizes * np.where(counts, now, 0.0), 0.0),
            sizes * lowest,
            limit,
            weights=sizes,
        )
        if levels is None:
            return None
        wanted = np.where(
            counts, np.divide(levels, sizes, out=np.zeros_like(sizes), where=counts), now
        )
        return counts_at(evidence, prices, first, most, wanted)

    def variance_after(self, evidence: Evidence, measure: MeasureCounts) -> float:
        """The largest variance of a difference of shares after a look."""
        precision = np.zeros(len(self.rows))
        for block, step in measure.steps:
            precision[block - self.start] = float(grid_sigma(step) ** -2)
        return float(_added_up(evidence.variances_after_count(precision), self.of_shares).max())


def _added_up(variances: Floats, coefficients: Floats) -> Floats:
    """Variances of sums over blocks with coefficients, shape (answers,); unknown where nothing is known."""
    chosen = coefficients != 0.0
    return np.asarray((variances[:, chosen] * np.square(coefficients[chosen])).sum(axis=1))
