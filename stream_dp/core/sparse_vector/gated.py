"""The memory mechanism at practical sizes: predictions of a maximum-entropy set, tested by gates.

Kim 2017's idea as it stands, by other means: the consistent set remembers every phase and answers what it
can. Whether it can is tested privately, here by sparse vectors (``gates``) in place of easiness and random
thresholds; what it cannot is measured, and prunes the set. With the prior ``carry_over`` a new block is
expected to look like those before it, which section 5.3 of the thesis conjectures to save hard queries. An
experiment next to the calibrated profile, which needs no gates.

**Segments.** A line's budget is divided into S equal segments. A segment runs until its gate finds a
prediction too far off; that query is measured by the same look. Its part of the budget pays both, half
each: a gate with scales ``b_t`` and ``b_q = sqrt(2) b_t``, ``1/b_t + 2/b_q``-DP and so half its square in
zCDP, and one count with discrete Gaussian noise. A block pays for a segment with the first query that
touches it, however many follow; a query that touches only blocks that have paid is free. So a segment
may reach blocks that were sealed after it began: before it touches one, no output depends on that one's rows.

**Guarantee.** What a line pays sums to its budget in rho at most, and ``privacy`` follows by conversion from
zCDP. A released answer is within ``error`` of the truth, except with ``failure_probability`` for each
query: half for a prediction that the gate lets pass wrongly (``gates.threshold``), half for the noise of a
measurement.

**Restarts.** The threshold of a segment is a secret of the process that began it. A restart loses it, and the
next query begins a new segment at a new charge.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from statistics import NormalDist
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.bisection import least
from stream_dp.core.budget.accountant import UNITS, Budget, gaussian_rho
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.mechanism import Look, Release
from stream_dp.core.median.consistent_set import Entropic
from stream_dp.core.median.consistent_set.set_interface import block_shares
from stream_dp.core.outcome import Outcome, RefusalCode, Refused
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.randomness.noise_sources import grid_index, grid_sigma
from stream_dp.core.rows.encoded_rows import MAX_ROWS
from stream_dp.core.rows.universe import Universe
from stream_dp.core.sparse_vector.composition import Concentrated
from stream_dp.core.sparse_vector.gates import (
    CountLook,
    CountRelease,
    Segments,
    predicted_rows,
    segment_loss,
    threshold,
)
from stream_dp.core.sparse_vector.predicate_mechanism import PredicateMechanism
from stream_dp.core.synthetic.basis import CellShares
from stream_dp.errors import InvalidDefinition

Prior: TypeAlias = Literal["uniform", "carry_over"]

_HYPOTHESIS_ROWS: Final = 10**6
"""m, for the set's fluctuations; its point does not depend on it."""

_KEPT: Final = 6.0
"""Noise scales that pruning allows: the set is emptied with probability 2e-9 a measurement."""


@dataclass(frozen=True, slots=True)
class Scales:
    """The cost and the noise of a segment. They are the same in every phase.

    Attributes:
        threshold: The scale ``b_t``, in rows.
        query: The scale ``b_q``, in rows.
        count: The sigma of a measurement, in rows.
    """

    threshold: Fraction
    query: Fraction
    count: Fraction

    @classmethod
    def of(cls, rho: Fraction) -> Scales:
        """The scales of a segment that costs ``rho`` at most."""
        loss = math.sqrt(float(rho))  # of the gate: loss^2 / 2 is half of rho
        smallest = (1.0 + math.sqrt(2.0)) / loss
        return cls(
            _above(smallest), _above(math.sqrt(2.0) * smallest), _above(1.0 / math.sqrt(float(rho)))
        )

    @property
    def rho(self) -> Fraction:
        """The exact zCDP loss of a segment and its measurement."""
        gate = segment_loss(self.threshold, self.query)
        return gate * gate / 2 + gaussian_rho(self.count, squared_sensitivity=1)


def _above(scale: float) -> Fraction:
    """The least scale of the public grid that is larger."""
    return grid_sigma(grid_index(scale) + 1)


class Gated(PredicateMechanism):
    """One data set under gates and a maximum-entropy set.

    Args:
        universe: The possible rows, in at most 2**20 cells.
        privacy: Lifetime promise to a row; ``delta`` above 0.
        accuracy: ``error`` and ``failure_probability`` of every answer.
        segments: S, how many segments a line's budget is for: about as many hard queries a block.
        prior: The expected distribution of a new block.

    Attributes:
        scales: The scales of the noise of every look.
        asked: Queries tested.
        hard: Queries whose prediction was too far off.

    Raises:
        InvalidDefinition: A setting is out of range; names the field and the fix.
    """

    def __init__(
        self,
        universe: Universe,
        privacy: Privacy,
        accuracy: Accuracy,
        *,
        segments: int,
        prior: Prior = "uniform",
    ) -> None:
        if segments < 1:
            raise InvalidDefinition(
                "mechanism.segments", "is below 1", "say how many hard queries a block may cost"
            )
        super().__init__(universe, accuracy, Concentrated(privacy))
        budget = Budget.of(privacy)
        self.scales = Scales.of(budget.rho / segments)
        # Of S or a few more: scales of the grid cost a little less than was asked for.
        self._afforded = UNITS // budget.charge(0, self.scales.rho).rho
        self._set = Entropic(universe.n_cells, _HYPOTHESIS_ROWS, carry_over=prior == "carry_over")
        self._segments = Segments()
        self.asked = 0
        self.hard = 0

    def __repr__(self) -> str:
        return f"Gated(phase={len(self._sizes)}, segment={self._segments.number}, hard={self.hard})"

    def hypothesis(self, window: range) -> npt.NDArray[np.float64]:
        """Share of each cell in a window, by the consistent set's point; shape (n_cells,).

        Raises:
            ValueError: The set is empty.
        """
        weights = block_shares(self._sizes, window)
        return np.asarray(weights @ self._set.point())

    def basis(self, window: range) -> CellShares:
        shares = self.hypothesis(window)
        return CellShares(window, self._rows(window), self._universe.shape, shares)

    @property
    def min_rows(self) -> int:
        """Rows of a window below which no query about it is tested."""
        return least(range(1, MAX_ROWS), lambda n: not self._too_small(n))

    def _threshold(self, n_rows: int) -> int:
        return threshold(
            error=self._accuracy.error,
            n_rows=n_rows,
            threshold_scale=self.scales.threshold,
            query_scale=self.scales.query,
            segments=self._afforded,
            failure_probability=self._accuracy.failure_probability / 2.0,
        )

    def _too_small(self, n_rows: int) -> bool:
        """Returns whether a window of this many rows has no gate, or its measurement too much noise."""
        wanted = NormalDist().inv_cdf(1.0 - self._accuracy.failure_probability / 4.0)
        noise = wanted * float(self.scales.count)
        return self._threshold(n_rows) < 1 or noise > self._accuracy.error * n_rows

    def open_phase(self, n_rows: int) -> Sequence[Look]:
        """Adds a block; opening a phase looks at nothing."""
        self._set.add_block(n_rows)
        return super().open_phase(n_rows)

    def _step(self, query: LinearQuery) -> Outcome | Look:
        window = query.window
        n_rows = self._rows(window)
        if self._too_small(n_rows):
            return Refused(
                RefusalCode.WINDOW_TOO_SMALL,
                f"the window has {n_rows:,} rows, and {self.min_rows:,} are the fewest "
                "that a prediction can be tested on; ask about more phases",
            )
        charges = self._charges(self._segments.unpaid(window), self.scales.rho)
        if not self._lines.afford(charges):
            return Refused(
                RefusalCode.BUDGET_EXHAUSTED,
                "a block of the window has no budget left for another segment",
            )
        if self._set.empty:
            return Refused(
                RefusalCode.INCONSISTENT,
                "no hypothesis agrees with all measurements: no query can be answered any more",
            )
        cells = query.predicate.whole_mask(self._universe)
        share = self._set.distribution(cells, window).lower_median
        gate = self._segments.gate(
            predicted=predicted_rows(share, n_rows),
            threshold=self._threshold(n_rows),
            threshold_scale=self.scales.threshold,
            query_scale=self.scales.query,
        )
        return CountLook(query, n_rows, "gaussian", self.scales.count, charges, gate)

    def absorb(self, release: Release) -> None:
        """Prunes the set by a measurement.

        Raises:
            CorruptState: It is of neither the newest segment nor the next.
        """
        assert isinstance(release, CountRelease), "a release of another mechanism"
        self._segments = self._segments.after(release)
        self.asked += 1
        if release.measured:
            self.hard += 1
            n_rows = self._rows(release.window)
            self._set.prune(
                release.predicate.whole_mask(self._universe),
                release.window,
                Fraction(release.noisy_count, n_rows),
                Fraction(_KEPT) * self.scales.count / n_rows,
            )

    def _imagine(self, look: CountLook, *, stands: bool) -> None:
        assert look.gate is not None, "every look has a gate"
        self._segments = self._segments.imagined(look.gate, look.query.window, stands=stands)

    def lost(self, look: dict[str, object]) -> None:
        """Its charge stands; what the segment had left was lost with it."""
        self._segments = self._segments.lost(look["segment"])
