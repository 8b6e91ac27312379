"""The memory mechanism at practical sizes: predictions of a maximum-entropy set, tested by gates.

Kim 2017's idea as it stands, by other means: the consistent set remembers every phase and answers what it
can. Whether it can is tested privately, here by sparse vectors (``gates``) in place of easiness and random
thresholds; what it cannot is measured, and prunes the set. With the prior ``carry_over`` a new block is
expected to look like those before it, which section 5.3 of the thesis conjectures to save hard queries. An
experiment beside the calibrated profile, which does without gates.

**Segments.** A line's budget is divided into S equal segments. A segment runs until its gate finds a
prediction too far off; that question is measured by the same look. Its part of the budget pays both, half
each: a gate with scales ``b_t`` and ``b_q = sqrt(2) b_t``, ``1/b_t + 2/b_q``-DP and so half its square in
zCDP, and one count with discrete Gaussian noise. A block pays for a segment with the first question that
touches it, however many follow; a question that touches only blocks that have paid is free. So a segment
may reach blocks that were sealed after it began: before it touches one, no output depends on that one's rows.

**Guarantee.** What a line pays sums to its budget in rho at most, and ``privacy`` follows by conversion from
zCDP. A released answer is within ``error`` of the truth, except with ``failure_probability`` for each
question: half for a prediction that the gate lets pass wrongly (``gates.threshold``), half for the noise of a
measurement.

**Restarts.** The threshold of a segment is a secret of the process that began it. A restart loses it, and the
next question begins a new segment at a new charge.
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

from stream_dp.core.accounting import Budget, Charge, Lines, gaussian_rho
from stream_dp.core.consistent_set import Entropic
from stream_dp.core.consistent_set.base import block_shares
from stream_dp.core.gates import (
    CountLook,
    CountRelease,
    Segments,
    predicted_rows,
    segment_loss,
    threshold,
)
from stream_dp.core.mechanism import Look, Quote, Release
from stream_dp.core.noise import grid_index, grid_sigma
from stream_dp.core.outcome import Answered, Outcome, Path, RefusalCode, Refused
from stream_dp.core.parameters import Accuracy, Privacy
from stream_dp.core.query import Question
from stream_dp.core.universe import Universe
from stream_dp.errors import InvalidDefinition

Prior: TypeAlias = Literal["uniform", "carry_over"]

_KEPT: Final = (
    6.0  # noise scales that pruning allows: the set is emptied with probability 2e-9 a measurement
)


@dataclass(frozen=True, slots=True)
class Scales:
    """What a segment costs and how noisy it is, the same in every phase.

    Attributes:
        threshold: ``b_t``, in rows.
        question: ``b_q``, in rows.
        count: sigma of a measurement, in rows.
    """

    threshold: Fraction
    question: Fraction
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
        gate = segment_loss(self.threshold, self.question)
        return gate * gate / 2 + gaussian_rho(self.count, squared_sensitivity=1)


def _above(scale: float) -> Fraction:
    """The least scale of the public grid that is larger."""
    return grid_sigma(grid_index(scale) + 1)


class Gated:
    """One data set under gates and a maximum-entropy set. A ``mechanism.Mechanism``.

    Args:
        universe: At most 2**20 cells.
        privacy: Lifetime promise to a row; ``delta`` above 0.
        accuracy: ``error`` and ``failure_probability`` of every answer.
        segments: S, how many segments a line's budget is for: about as many hard queries a block.
        hypothesis_rows: m by hand, for the set's fluctuations; its point does not depend on it.
        prior: What a new block is expected to look like.

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
        hypothesis_rows: int = 10**6,
        prior: Prior = "uniform",
    ) -> None:
        if segments < 1:
            raise InvalidDefinition(
                "mechanism.segments", "is below 1", "say how many hard queries a block may cost"
            )
        self._universe = universe
        self._accuracy = accuracy
        self._afforded = segments
        self._budget = Budget.of(privacy)
        self._scales = Scales.of(self._budget.rho / segments)
        self._set = Entropic(universe.n_cells, hypothesis_rows, carry_over=prior == "carry_over")
        self._lines = Lines()
        self._sizes: list[int] = []
        self._segments = Segments()
        self._asked = 0
        self._hard = 0

    def __repr__(self) -> str:
        return (
            f"Gated(phase={len(self._sizes)}, segment={self._segments.number}, hard={self._hard})"
        )

    @property
    def scales(self) -> Scales:
        return self._scales

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells of each attribute."""
        return self._universe.shape

    @property
    def sizes(self) -> tuple[int, ...]:
        """Rows of each phase; public."""
        return tuple(self._sizes)

    def hypothesis(self, window: range) -> npt.NDArray[np.float64]:
        """Share of each cell in a window, by the consistent set's point; shape (n_cells,).

        Raises:
            ValueError: The set is empty.
        """
        weights = block_shares(self._sizes, window)
        return np.asarray(weights @ self._set.point())

    @property
    def asked(self) -> int:
        """Questions tested."""
        return self._asked

    @property
    def hard(self) -> int:
        """Questions whose prediction was too far off."""
        return self._hard

    @property
    def min_rows(self) -> int:
        """Rows of a window below which no question about it is tested."""
        low, high = 1, 2**62
        while low < high:
            middle = (low + high) // 2
            if self._too_small(middle):
                low = middle + 1
            else:
                high = middle
        return low

    def _threshold(self, n_rows: int) -> int:
        return threshold(
            error=self._accuracy.error,
            n_rows=n_rows,
            threshold_scale=self._scales.threshold,
            question_scale=self._scales.question,
            segments=self._afforded,
            failure_probability=self._accuracy.failure_probability / 2.0,
        )

    def _too_small(self, n_rows: int) -> bool:
        """Whether a window of so many rows has no gate, or a measurement of it too much noise."""
        wanted = NormalDist().inv_cdf(1.0 - self._accuracy.failure_probability / 4.0)
        noise = wanted * float(self._scales.count)
        return self._threshold(n_rows) < 1 or noise > self._accuracy.error * n_rows

    # ------------------------------------------------------------ phases and charges

    def opens(self, waiting: int, min_rows: int) -> bool:
        return waiting >= min_rows

    def open_phase(self, n_rows: int) -> Sequence[Look]:
        """Adds a block; opening a phase looks at nothing."""
        self._sizes.append(n_rows)
        self._lines.open()
        self._set.add_block(n_rows)
        return ()

    def charged(self, look_charges: tuple[Charge, ...]) -> None:
        self._lines.charge(look_charges)

    # ------------------------------------------------------------ questions

    def answer(self, question: Question) -> Outcome | CountLook:
        refused = self._refusal(question)
        return self._look(question) if refused is None else refused

    def quote(self, question: Question) -> Quote:
        refused = self._refusal(question)
        return Quote(refused, () if refused is not None else self._price(question.window))

    def _refusal(self, question: Question) -> Refused | None:
        """Why the question is not tested; from public facts only."""
        if question.group_by:
            return Refused(
                RefusalCode.UNSUPPORTED_KIND,
                "the gated profile answers predicate questions only; ask each cell as one",
            )
        if not self._sizes:
            return Refused(RefusalCode.NO_PHASE, "no phase is open yet; ask again under a new id")
        if question.window.stop > len(self._sizes):
            return Refused(
                RefusalCode.INVALID_QUERY, "the window reaches beyond the phases that are open"
            )
        if self._too_small(self._rows(question.window)):
            return Refused(
                RefusalCode.WINDOW_TOO_SMALL,
                f"the window has {self._rows(question.window):,} rows, and {self.min_rows:,} are the fewest "
                "that a prediction can be tested on; ask about more phases",
            )
        if not self._lines.afford(self._price(question.window)):
            return Refused(
                RefusalCode.BUDGET_EXHAUSTED,
                "a block of the window has no budget left for another segment",
            )
        if self._set.empty:
            return Refused(
                RefusalCode.INCONSISTENT,
                "no hypothesis agrees with all measurements: no query can be answered any more",
            )
        return None

    def _rows(self, window: range) -> int:
        return sum(self._sizes[block] for block in window)

    def _price(self, window: range) -> tuple[Charge, ...]:
        """One segment for each block that has not paid for the one that runs."""
        rho = self._scales.rho
        return tuple(self._budget.charge(block, rho) for block in self._segments.unpaid(window))

    def _look(self, question: Question) -> CountLook:
        window, scales = question.window, self._scales
        n_rows = self._rows(window)
        share = self._set.distribution(
            question.predicate.whole_mask(self._universe), window
        ).lower_median
        gate = self._segments.gate(
            predicted=predicted_rows(share, n_rows),
            threshold=self._threshold(n_rows),
            threshold_scale=scales.threshold,
            question_scale=scales.question,
        )
        return CountLook(question, n_rows, "gaussian", scales.count, self._price(window), gate)

    def absorb(self, release: Release) -> None:
        """Prunes the set by a measurement.

        Raises:
            CorruptState: It is of neither the newest segment nor the next.
        """
        assert isinstance(release, CountRelease), "a release of another mechanism"
        self._segments = self._segments.after(release)
        self._asked += 1
        if release.measured:
            self._hard += 1
            n_rows = self._rows(release.window)
            self._set.prune(
                release.predicate.whole_mask(self._universe),
                release.window,
                Fraction(release.noisy_count, n_rows),
                Fraction(_KEPT) * self._scales.count / n_rows,
            )

    def lost(self, look: dict[str, object]) -> None:
        """Its charge stands; what the segment had left was lost with it."""
        self._segments = self._segments.lost(look["segment"])

    def conclude(self, question: Question, look: Look, release: Release) -> Outcome:
        assert isinstance(look, CountLook), "a look of another mechanism"
        assert isinstance(release, CountRelease), "a release of another mechanism"
        assert look.gate is not None, "every question is tested"
        count = release.noisy_count if release.measured else look.gate.predicted
        return Answered(
            count=min(look.n_rows, max(0, count)),
            n=look.n_rows,
            error_bar=self._accuracy.error,
            error_bar_simultaneous=None,
            confidence=1.0 - self._accuracy.failure_probability,
            path=Path.MEASURED if release.measured else Path.GATED,
        )

    # ------------------------------------------------------------ restarts

    def remembered(self) -> dict[bytes, bytes]:
        """Nothing: a repeat is tested like any other question, for free while its segment runs."""
        return {}

    def recall(self, remembered: dict[bytes, bytes]) -> None:
        assert not remembered, "this profile remembers nothing"

    def release_from_bytes(self, data: bytes) -> Release:
        return CountRelease.from_bytes(self._universe, data)


__all__ = ["Gated", "Prior", "Scales"]
