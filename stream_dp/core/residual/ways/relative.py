"""Counts within a share of themselves, in several looks if need be: see ``relative_stages``."""

from __future__ import annotations

from collections.abc import Mapping

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.mechanism import Look, Quote, Release
from stream_dp.core.outcome import Outcome, Path
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.looks.table_looks import CountsRelease
from stream_dp.core.residual.plan.planner import MeasureCounts, Unproven
from stream_dp.core.residual.plan.relative_stages import (
    Last,
    Pilot,
    Settled,
    StagedLook,
    Stages,
    Stuck,
)
from stream_dp.core.residual.plan.targets import percent, too_dear
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.residual.ways.counts import drawable, unproven
from stream_dp.core.residual.ways.way import NOTHING_PAID, OUT_OF_REACH, Way, paid_with


class Relative(Way):
    """Answers counts whose error is a share of themselves."""

    def __init__(self, state: PublicState) -> None:
        super().__init__(state)
        self._stages = Stages(state.accuracy, state.prices)

    def answer(self, query: LinearQuery) -> Outcome | Look:
        step = self._first(query)
        if isinstance(step, Outcome):
            self.state.remember(query, step)
        return step

    def conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        assert isinstance(look, StagedLook), "no other look is taken for a relative error"
        step = self._by_final_look(query, release) if look.final else self._next(query, look.paid)
        if isinstance(step, Outcome):
            self.state.remember(query, step)
        return step

    def quote(self, query: LinearQuery) -> Quote:
        """The price if the count is what it looks like today."""
        step = self._first(query)
        if isinstance(step, Outcome):
            return Quote.of(step)
        evidence, relative = self.state.evidence(query), _relative(query)
        most = self.state.most(query)
        assert most is not None, "a relative error has a price that it may not pass"
        room = self.state.room(query, most, NOTHING_PAID)
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

    def _first(self, query: LinearQuery) -> Outcome | Look:
        settled = self.settled(query)
        return self._next(query, NOTHING_PAID) if settled is None else settled

    def _next(self, query: LinearQuery, paid: Mapping[int, int]) -> Outcome | Look:
        """The next look, or the answer where none is needed or possible.

        Args:
            query: A count with a relative error.
            paid: Units that the query has taken of each block's line so far.
        """
        evidence, most = self.state.evidence(query), self.state.most(query)
        room = self.state.room(query, most, paid)
        step = self._stages.step(evidence, room, _relative(query))
        match step:
            case Settled(z=z):
                path = Path.MEASURED if paid else Path.CERTIFIED
                return self.state.answers.by_variance(query, evidence, z, path)
            case Stuck(z=z):
                return self._stuck(query, evidence, z, paid)
            case Pilot(measure=measure) | Last(measure=measure):
                final = isinstance(step, Last)
                return self._look(query, measure, paid, final=final)

    def _stuck(
        self, query: LinearQuery, evidence: Evidence, z: float | None, paid: Mapping[int, int]
    ) -> Outcome:
        """The outcome that what may be paid does not allow."""
        state, most = self.state, self.state.most(query)
        if most is not None and not paid:
            room = state.room(query, None, NOTHING_PAID)
            expected = self._stages.expected(evidence, room, _relative(query))
            if expected is not None and max(charge.rho for charge in expected[0]) > most:
                return too_dear(expected[0], most, about=True)
        lack = state.stuck(query, paid)
        refusal = state.refusal(lack)
        if refusal is not None:
            return refusal
        if z is not None:
            return state.answers.by_variance(query, evidence, z, Path.UNVERIFIED)
        low, high = evidence.interval(state.terms.log_bounds_failure)
        return unproven(state, query, evidence, Unproven(low, high, lack))

    def _look(
        self, query: LinearQuery, measure: MeasureCounts, paid: Mapping[int, int], *, final: bool
    ) -> Outcome | Look:
        refusal = drawable(self.state, query, measure)
        if refusal is not None:
            return refusal
        total, charges = paid_with(paid, measure.charges), measure.charges
        return StagedLook(query, query.attributes, measure.steps, 1, charges, final, total)

    def _by_final_look(self, query: LinearQuery, release: Release) -> Outcome:
        assert isinstance(release, CountsRelease), "the release of this look"
        return self.state.answers.by_final_look(query, release, self._stages.z_final)


def _relative(query: LinearQuery) -> float:
    relative = query.target.relative
    assert relative is not None, "the query has a relative error"
    return relative
