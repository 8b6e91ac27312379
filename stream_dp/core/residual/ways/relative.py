"""Counts within a share of themselves, in several looks if need be: see ``relative_stages``."""

from __future__ import annotations

from collections.abc import Mapping

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.mechanism import Look, Quote, Release
from stream_dp.core.outcome import Outcome, Path
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.looks.staged_look import StagedLook, staged
from stream_dp.core.residual.looks.table_looks import published_counts
from stream_dp.core.residual.plan.planner import Unproven
from stream_dp.core.residual.plan.relative_stages import Settled, Stage, Stages, Stuck
from stream_dp.core.residual.plan.targets import percent, too_dear
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.residual.ways.counts import unproven
from stream_dp.core.residual.ways.way import NOTHING_PAID, OUT_OF_REACH, Way, look_of


class Relative(Way):
    """Answers counts whose error is a share of themselves."""

    def __init__(self, state: PublicState) -> None:
        super().__init__(state)
        self._stages = Stages(state.promise.accuracy, state.prices)

    def answer(self, query: LinearQuery) -> Outcome | Look:
        return self._remembered(query, self._first(query))

    def conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        assert isinstance(look, StagedLook), "no other look is taken for a relative error"
        if not look.final:
            return self._remembered(query, self._next(query, look.paid))
        found = published_counts(query, release)
        outcome = self.state.answers.by_final_look(query, *found, self._stages.z_final)
        return self._remembered(query, outcome)

    def _remembered(self, query: LinearQuery, step: Outcome | Look) -> Outcome | Look:
        if isinstance(step, Outcome):
            self.state.repeats.remember(query, step)
        return step

    def quote(self, query: LinearQuery) -> Quote:
        """The price if the count is what it looks like today."""
        step = self._first(query)
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

    def _first(self, query: LinearQuery) -> Outcome | Look:
        return self.settled(query) or self._next(query, NOTHING_PAID)

    def _next(self, query: LinearQuery, paid: Mapping[int, int]) -> Outcome | Look:
        """The next look, or the answer where none is needed or possible.

        Args:
            query: A count with a relative error.
            paid: Units that the query has taken of each block's line so far.
        """
        evidence, most = self.state.evidence(query), self.spending.most(query)
        room = self.spending.room(query, most, paid)
        step = self._stages.step(evidence, room, _relative(query))
        match step:
            case Settled(z=z):
                path = Path.MEASURED if paid else Path.CERTIFIED
                return self.state.answers.by_variance(query, evidence, z, path)
            case Stuck(z=z):
                return self._stuck(query, evidence, z, paid)
            case Stage(measure=measure, final=final):
                return staged(look_of(self.state, query, measure), paid, final=final)

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
        refusal = self.spending.refusal(lack)
        if refusal is not None:
            return refusal
        if z is not None:
            return state.answers.by_variance(query, evidence, z, Path.UNVERIFIED)
        low, high = evidence.interval(state.terms.log_bounds_failure)
        return unproven(state, query, evidence, Unproven(low, high, lack))


def _relative(query: LinearQuery) -> float:
    relative = query.target.relative
    assert relative is not None, "the query has a relative error"
    return relative
