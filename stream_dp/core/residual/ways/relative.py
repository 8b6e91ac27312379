"""Counts within a share of themselves, which nobody knows beforehand, in several looks if need be.

How precise a look has to be follows from the count that it is to find. So the count is approached in stages.
*Pilots* bring the variance of the estimate down to fixed values, each a quarter of the one before. Which
values follows from the number of rows alone, so the noise of a pilot never chooses its own scale. Each stage
has a bar of its own, and all these bars together fail with a tenth of the failure probability. As soon as
they leave no doubt about the scale, one *final look* is taken. Its scale follows from the lower end of the
last bar. It stands alone: the answer is what this look finds, and nothing from before. Where a pilot is
precise enough by itself no final look is needed. The proof is docs/proofs, Theorem 5b.

The state of all this is what was published: a restart goes on at the stage that the variance shows. All
decisions follow from published numbers and prices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

from stream_dp.core.budget.accountant import UNITS, Charge, summed
from stream_dp.core.budget.parameters import Accuracy
from stream_dp.core.mechanism import Look, Quote, Release
from stream_dp.core.outcome import Outcome, Path
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.looks.composed_looks import StagedLook, staged
from stream_dp.core.residual.plan.planner import (
    MeasureCounts,
    Prices,
    Units,
    Unproven,
    count_alone,
    count_look,
)
from stream_dp.core.residual.plan.targets import percent, too_dear
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.residual.ways.counts import unproven
from stream_dp.core.residual.ways.way import NOTHING_PAID, OUT_OF_REACH, Way, look_of

_PILOTS: Final = 0.1  # of the failure probability; the final look has the rest
_MOST_STAGES: Final = 64
_TIE: Final = 1.0 + 1e-6


@dataclass(frozen=True, slots=True)
class End:
    """No look follows.

    Attributes:
        z: The deviations of the error bar of the estimate; None where nothing is known yet.
        close: Whether the estimate is close enough. Otherwise the limit of the price is too low for that.
    """

    z: float | None
    close: bool = False


@dataclass(frozen=True, slots=True)
class Stage:
    """A look.

    Attributes:
        measure: What to measure.
        final: Whether its result is the answer. Otherwise it brings the estimate to the next stage.
    """

    measure: MeasureCounts
    final: bool


class Stages:
    """Decides about relative errors, from published numbers alone.

    Args:
        accuracy: The promise of the data set: its failure probability counts.
        prices: The prices of noise scales, in units of a line.
    """

    def __init__(self, accuracy: Accuracy, prices: Prices) -> None:
        self._log_beta = math.log(accuracy.failure_probability)
        self._prices = prices
        self.z_final = two_sided(self._log_beta + math.log1p(-_PILOTS))

    def z(self, stage: int) -> float:
        """The deviations of the bar of a stage. The bars of all stages fail with a tenth of beta."""
        return _z_of_stage(self._log_beta, stage)

    def limit(self, stage: int, n_rows: float) -> float:
        """The variance of a stage: its bar is half the rows at stage 0, and halves at each further one."""
        return float((n_rows * 0.5 ** (stage + 1) / self.z(stage)) ** 2)

    def stage(self, variance: float, n_rows: float) -> int:
        """The last stage that an estimate with this variance has reached; -1 for none."""
        stages = range(_MOST_STAGES)
        return sum(variance <= self.limit(stage, n_rows) * _TIE for stage in stages) - 1

    def step(self, evidence: Evidence, room: Units, relative: float) -> Stage | End:
        """Decides the next step for a count that is to be within ``relative`` of itself.

        Args:
            evidence: What is known about the count.
            room: Units that each block may still spend on it, shape (len(window),).
            relative: The largest error as a share of the count.
        """
        n_rows = evidence.n_rows
        estimate, variance = float(evidence.values[0]), float(evidence.variances[0])
        stage = self.stage(variance, n_rows)
        pilot = self._pilot(evidence, room, stage + 1)
        if stage < 0:
            return End(None) if pilot is None else Stage(pilot, final=False)
        z = self.z(stage)
        bar = z * math.sqrt(variance)
        if bar <= relative * (estimate - bar) * _TIE:
            return End(z, close=True)
        final = self._final(evidence, room, relative * (estimate - bar))
        likely = estimate if 3.0 * bar <= estimate else min(estimate + bar, n_rows)
        if pilot is not None and not self._leads_on(evidence, room, pilot, relative, likely, stage):
            pilot = None  # it would spend what the final look needs
        if pilot is None:
            return End(z) if final is None else Stage(final, final=True)
        if final is None:
            return Stage(pilot, final=False)
        later = self._after_pilot(evidence, room, relative, estimate, stage + 1)
        is_last = final.total <= pilot.total + later
        return Stage(final if is_last else pilot, final=is_last)

    def expected(
        self, evidence: Evidence, room: Units, relative: float
    ) -> tuple[tuple[Charge, ...], float] | None:
        """Price and error bar in rows, if the count is what it looks like today.

        Returns:
            None if that is beyond the room.
        """
        n_rows = evidence.n_rows
        stage = self.stage(float(evidence.variances[0]), n_rows)
        known = evidence.values if stage >= 0 else evidence.likely()
        estimate = min(max(float(known[0]), 0.0), n_rows)
        best: tuple[float, tuple[Charge, ...]] | None = None
        for at in range(max(stage, 0), _MOST_STAGES):
            pilot = self._pilot(evidence, room, at)
            if pilot is None:
                break
            bar = n_rows * 0.5 ** (at + 1)
            paid = pilot.charges
            if bar > relative * (estimate - bar):
                final = self._final(evidence, room, relative * (estimate - bar))
                if final is None:
                    continue
                paid = summed((*paid, *final.charges))
            price = sum(charge.rho for charge in paid)
            if best is None or price < best[0]:
                best = price, paid
        return None if best is None else (best[1], relative * estimate)

    def _pilot(self, evidence: Evidence, room: Units, stage: int) -> MeasureCounts | None:
        if stage >= _MOST_STAGES:
            return None
        return count_look(evidence, self._prices, room, self.limit(stage, evidence.n_rows))

    def _final(self, evidence: Evidence, room: Units, margin: float) -> MeasureCounts | None:
        """The look that by itself is within ``margin`` rows; None if none can be paid for."""
        if margin <= 0.0:
            return None
        return count_alone(evidence, self._prices, room, (margin / self.z_final) ** 2)

    def _after_pilot(
        self, evidence: Evidence, room: Units, relative: float, estimate: float, stage: int
    ) -> float:
        """Units that are lacking once a stage is reached, if it finds this estimate again."""
        bar = evidence.n_rows * 0.5 ** (stage + 1)
        if bar <= relative * (estimate - bar):
            return 0.0
        final = self._final(evidence, room, relative * (estimate - bar))
        return math.inf if final is None else float(final.total)

    def _leads_on(
        self,
        evidence: Evidence,
        room: Units,
        pilot: MeasureCounts,
        relative: float,
        likely: float,
        stage: int,
    ) -> bool:
        """Whether a count of ``likely`` rows could still be found after a pilot to the next stage."""
        left = room.copy()
        for charge in pilot.charges:
            left[charge.block - evidence.window.start] -= charge.rho
        if self._final(evidence, left, relative * likely) is not None:
            return True
        limit = (relative * likely / self.z(stage + 1)) ** 2
        return count_look(evidence, self._prices, room, limit) is not None


class Relative(Way):
    """Answers counts whose error is a share of themselves."""

    def __init__(self, state: PublicState) -> None:
        super().__init__(state)
        self._stages = Stages(state.promise.accuracy, state.prices)

    def answer(self, query: LinearQuery) -> Outcome | Look:
        return self._remembered(query, super().answer(query))

    def begin(self, query: LinearQuery) -> Outcome | Look:
        return self._next(query, NOTHING_PAID)

    def conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        assert isinstance(look, StagedLook), "no other look is taken for a relative error"
        if not look.final:
            return self._remembered(query, self._next(query, look.paid))
        found = self.state.versions.published(query, release)
        outcome = self.state.answers.by_final_look(query, *found, self._stages.z_final)
        return self._remembered(query, outcome)

    def _remembered(self, query: LinearQuery, step: Outcome | Look) -> Outcome | Look:
        if isinstance(step, Outcome):
            self.state.repeats.remember(query, step)
        return step

    def quote(self, query: LinearQuery) -> Quote:
        """The price if the count is what it looks like today."""
        step = super().answer(query)
        if isinstance(step, Outcome):
            return Quote.of(step)
        evidence, relative = self.state.evidence(query), _relative(query)
        most = self.spending.most(query)
        assert most is not None, "a relative error has a price that it may not pass"
        room = self.spending.room(query, most, NOTHING_PAID)
        expected = self._stages.expected(evidence, room, relative)
        limit = int(room.max())
        if expected is None:
            return Quote(None, step.charges, expected=True, most=limit, note=OUT_OF_REACH)
        charges, bar = expected
        share = bar / evidence.n_rows
        note = (
            "the price is for a count like today's estimate; a smaller count takes more, up to "
            f"{percent(limit / UNITS)} of a phase's budget"
        )
        return Quote(
            None, charges, share if share < 1.0 else None, expected=True, most=limit, note=note
        )

    def _next(self, query: LinearQuery, paid: Mapping[int, int]) -> Outcome | Look:
        """The next look, or the answer where none is needed or possible.

        Args:
            query: A count with a relative error.
            paid: Units that the query has taken of each block's line so far.
        """
        evidence, most = self.state.evidence(query), self.spending.most(query)
        room = self.spending.room(query, most, paid)
        step = self._stages.step(evidence, room, _relative(query))
        if isinstance(step, Stage):
            return staged(look_of(self.state, query, step.measure), paid, final=step.final)
        if step.z is None or not step.close:
            return self._stuck(query, evidence, step.z, paid)
        path = Path.MEASURED if paid else Path.CERTIFIED
        return self.state.answers.by_variance(query, evidence, step.z, path)

    def _stuck(
        self, query: LinearQuery, evidence: Evidence, z: float | None, paid: Mapping[int, int]
    ) -> Outcome:
        """The outcome that what may be paid does not allow."""
        state, most = self.state, self.spending.most(query)
        if most is not None and not paid:
            room = self.spending.room(query, None, NOTHING_PAID)
            expected = self._stages.expected(evidence, room, _relative(query))
            if expected is not None and max(charge.rho for charge in expected[0]) > most:
                return too_dear(expected[0], most, about=True)
        lack = self.spending.stuck(query, paid)
        if z is not None:
            unverified = state.answers.by_variance(query, evidence, z, Path.UNVERIFIED)
            return self.spending.refusal(lack) or unverified
        low, high = evidence.interval(state.terms.log_bounds_failure)
        return unproven(state, query, evidence, Unproven(low, high, lack))


def _relative(query: LinearQuery) -> float:
    relative = query.target.relative
    assert relative is not None, "the query has a relative error"
    return relative


@cache
def _z_of_stage(log_beta: float, stage: int) -> float:
    return two_sided(log_beta + math.log(_PILOTS) - math.log((stage + 1) * (stage + 2)))
