"""Fresh answers: one independent look that no memory enters, safe however the query was chosen.

docs/proofs, Theorem 16.
"""

from __future__ import annotations

import math

from stream_dp.core.mechanism import Look, Quote, Release
from stream_dp.core.outcome import Outcome, Refused
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.answer_maker import variance_of
from stream_dp.core.residual.looks.table_looks import CountsRelease
from stream_dp.core.residual.plan.planner import ROUNDING, Lack, MeasureCounts, plan_fresh
from stream_dp.core.residual.ways.counts import drawable, look_of
from stream_dp.core.residual.ways.way import Way


class Fresh(Way):
    """Answers counts and tables by looks of their own, and never for free."""

    def answer(self, query: LinearQuery) -> Outcome | Look:
        step = self._decide(query)
        return look_of(self.state, query, step) if isinstance(step, MeasureCounts) else step

    def conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        del look
        assert isinstance(release, CountsRelease), "a fresh answer is counted"
        return self.state.answers.by_itself(query, release)

    def quote(self, query: LinearQuery) -> Quote:
        step = self._decide(query)
        if isinstance(step, Outcome):
            return Quote.of(step)
        deviation = math.sqrt(variance_of(step.steps))
        bar = self.state.terms.z * deviation / self.state.rows(query.window) + ROUNDING
        return Quote(None, step.charges, bar)

    def _decide(self, query: LinearQuery) -> Outcome | MeasureCounts:
        settled = self.settled(query)
        if settled is not None:
            return settled
        state = self.state
        evidence = state.evidence(query)
        terms = state.terms_for(query)
        decision = self.planned(
            query, lambda lines: plan_fresh(evidence, terms, state.prices, lines)
        )
        match decision:
            case Refused():
                return decision
            case MeasureCounts():
                return drawable(state, query, decision) or decision
            case Lack():
                return state.lacking(decision)
