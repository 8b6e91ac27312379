"""Fresh answers: one independent look that no memory enters, safe however the query was chosen.

docs/guarantee.md, Theorem 16.
"""

from __future__ import annotations

import math

from stream_dp.core.mechanism import Look, Quote, Release
from stream_dp.core.outcome import Outcome
from stream_dp.core.query import LinearQuery
from stream_dp.core.residual.answering import ROUNDING, variance_of
from stream_dp.core.residual.measuring import CountsRelease
from stream_dp.core.residual.planner import Measure, plan_fresh
from stream_dp.core.residual.targets import terms_of, too_dear
from stream_dp.core.residual.ways.counts import drawable, look_of
from stream_dp.core.residual.ways.way import Way


class Fresh(Way):
    """Answers counts and tables by looks of their own, and never for free."""

    def answer(self, query: LinearQuery) -> Outcome | Look:
        step = self._decide(query)
        return look_of(self.state, query, step) if isinstance(step, Measure) else step

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

    def _decide(self, query: LinearQuery) -> Outcome | Measure:
        settled = self.settled(query)
        if settled is not None:
            return settled
        state = self.state
        evidence, most = state.evidence(query), state.most(query)
        terms = terms_of(state.terms, query, state.rows(query.window))
        decision = plan_fresh(evidence, terms, state.prices, state.lines_for(query, most))
        if isinstance(decision, Measure):
            return drawable(state, query, decision) or decision
        if most is not None:
            dearer = plan_fresh(evidence, terms, state.prices, state.lines_for(query, None))
            if isinstance(dearer, Measure):
                return too_dear(dearer.charges, most)
            decision = dearer
        return state.lacking(decision)


__all__ = ["Fresh"]
