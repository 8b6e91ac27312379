"""Private multiplicative weights: one public histogram of the universe, corrected where a test says so.

Hardt and Rothblum 2010, online, on a fixed data set: ``Weights``; on one that grows, after Cummings,
Krehbiel, Lai, Tantipongpipat 2018: ``GrowingWeights``. A prediction is tested by a sparse vector (``gates``);
where it is off, a noisy count is released, and the weights of the cells it is about are multiplied by
``exp(+-rate)``. What is published is the histogram's whole past, so it is itself synthetic data for nothing.

**Scales.** A segment is opened at the accuracy that the rows of then ask for: its threshold's noise and each
query's have scale ``1/e`` rows, with the least e for which ``(1/2 + x/4) exp(-x)``, the tail of their
difference, plus ``exp(-2x)`` for the measurement is the failure probability, where ``x = e n error / 2``. The
threshold is ``n error / 2``. As in the published systems this is the error of one test: over a run of many
queries segments with a high secret threshold live longest, and more are off (``gates.threshold``).

**Loss.** ``3 e`` for a segment, ``1/b_t + 2/b_q``, and ``e`` for the count that ends it, both paid by each
block with the first query of the segment that touches it. Replacing a row moves a count by one at most
whatever the number of rows, so a segment outlives arrivals.

**When a line is full** predictions are still published, unverified, unless they are not wanted.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.parameters import Accuracy
from stream_dp.core.mechanism import Look, Release
from stream_dp.core.outcome import Outcome, Path, RefusalCode, Refused
from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import MAX_SCALE
from stream_dp.core.rows.universe import Universe, check_kept_cells
from stream_dp.core.sparse_vector.composition import Composition
from stream_dp.core.sparse_vector.gates import (
    CountLook,
    CountRelease,
    Segments,
    predicted_rows,
    segment_loss,
)
from stream_dp.core.sparse_vector.predicate_mechanism import PredicateMechanism
from stream_dp.core.synthetic.basis import Basis, CellShares


def gate_scale(accuracy: Accuracy, n_rows: int) -> Fraction:
    """``1/e`` in rows, of a window of ``n_rows``; see the module."""

    def excess(x: float) -> float:
        missed = (0.5 + 0.25 * x) * math.exp(-x) + math.exp(-2.0 * x)
        return math.log(missed / accuracy.failure_probability)

    from scipy.optimize import brentq  # only here: every worker would load it at its start

    x = float(brentq(excess, 0.0, 300.0))
    return min(MAX_SCALE, Fraction(accuracy.error * n_rows / 2.0 / x))


class GrowingWeights(PredicateMechanism):
    """Weights over everything that has arrived; a window is all phases.

    m rows that arrive after t mix the histogram with the uniform one, ``t : m``: no looks, no loss.

    Args:
        universe: The possible rows, in at most 2**20 cells.
        on_exhausted: Whether a query that no line can pay for gets its prediction, or a refusal.

    Raises:
        InvalidDefinition: The universe has too many cells.
    """

    def __init__(
        self,
        universe: Universe,
        accuracy: Accuracy,
        composition: Composition,
        *,
        on_exhausted: Literal["unverified", "refuse"] = "unverified",
    ) -> None:
        check_kept_cells(universe.n_cells)
        super().__init__(universe, accuracy, composition)
        self._on_exhausted = on_exhausted
        self._shares = np.full(universe.n_cells, 1.0 / universe.n_cells)
        self._segments = Segments()

    @property
    def _rate(self) -> float:
        """The step by which a log-weight is moved."""
        return 4.0 * self._accuracy.error / 3.0

    @property
    def shares(self) -> npt.NDArray[np.float64]:
        """The histogram, shape (n_cells,), row-major; public."""
        return self._shares.copy()

    def basis(self, window: range) -> Basis:
        if window != range(len(self._sizes)):
            return super().basis(window)
        return CellShares(window, self._rows(window), self._universe.shape, self.shares)

    def open_phase(self, n_rows: int) -> Sequence[Look]:
        before = sum(self._sizes)
        super().open_phase(n_rows)
        kept = before / max(1, before + n_rows)
        self._shares = kept * self._shares + (1.0 - kept) / self._shares.size
        return ()

    def _predicted(self, predicate: Predicate, n_rows: int) -> int:
        share = float(self._shares[predicate.whole_mask(self._universe)].sum())
        return predicted_rows(Fraction(share), n_rows)

    def _step(self, query: LinearQuery) -> Outcome | Look:
        if query.window != range(len(self._sizes)):
            return Refused(
                RefusalCode.INVALID_QUERY,
                "one histogram of all phases answers about all phases; leave the window out",
            )
        look = self._look(query)
        if look is not None and self._lines.afford(look.charges):
            return look
        if self._on_exhausted == "refuse":
            return Refused(
                RefusalCode.BUDGET_EXHAUSTED, "a block has no budget left for another look"
            )
        n_rows = self._rows(query.window)
        predicted = self._predicted(query.predicate, n_rows)
        return self._answered(predicted, n_rows, Path.UNVERIFIED)

    def _look(self, query: LinearQuery) -> CountLook | None:
        """The test of a prediction; None where the rows are too few for one."""
        n_rows = self._rows(query.window)
        threshold = math.floor(self._accuracy.error * n_rows / 2.0)
        if threshold < 1:
            return None
        running = self._segments.running
        # One that runs keeps its scale: the accuracy that the rows of its beginning asked for.
        scale = gate_scale(self._accuracy, n_rows) if running is None else running.query_scale
        price = self._composition.of_pure(segment_loss(scale, scale))
        price += self._composition.of_pure(1 / scale)
        unpaid = self._segments.unpaid(query.window)
        gate = self._segments.gate(
            predicted=self._predicted(query.predicate, n_rows),
            threshold=threshold,
            threshold_scale=scale,
            query_scale=scale,
        )
        charges = self._charges(unpaid, price)
        return CountLook(query, n_rows, "laplace", scale, charges, gate)

    def absorb(self, release: Release) -> None:
        assert isinstance(release, CountRelease), "a release of another mechanism"
        if release.number:
            self._segments = self._segments.after(release)
        if release.measured:
            self._learn(release)

    def _learn(self, release: CountRelease) -> None:
        """Moves the histogram towards a published count."""
        low = self._predicted(release.predicate, self._rows(release.window)) < release.noisy_count
        cells = release.predicate.whole_mask(self._universe)
        self._move(cells, self._rate if low else -self._rate)

    def _move(self, cells: npt.NDArray[np.bool_], by: float) -> None:
        self._shares[cells] *= math.exp(by)
        self._shares /= self._shares.sum()

    def _imagine(self, look: CountLook, *, stands: bool) -> None:
        if look.gate is not None:
            self._segments = self._segments.imagined(look.gate, look.query.window, stands=stands)

    def lost(self, look: dict[str, object]) -> None:
        """Its charge stands; what a segment had left was lost with it."""
        if look["segment"]:
            self._segments = self._segments.lost(look["segment"])


class Weights(GrowingWeights):
    """Weights on the rows of one phase: no other opens."""

    @property
    def _rate(self) -> float:
        return self._accuracy.error / 8.0

    def opens(self, waiting: int, min_rows: int) -> bool:
        return not self._sizes and super().opens(waiting, min_rows)
