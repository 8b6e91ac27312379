"""Fresh answers: one independent look that no memory enters, safe however the query was chosen.

docs/proofs, Theorem 16.
"""

from __future__ import annotations

from stream_dp.core.mechanism import Look, Release
from stream_dp.core.outcome import Outcome
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.line_rules import REFUSALS
from stream_dp.core.residual.plan.planner import Lack, MeasureCounts, plan_fresh
from stream_dp.core.residual.ways.counts import bar_alone
from stream_dp.core.residual.ways.way import Measure, PlannedWay


class Fresh(PlannedWay):
    """Answers counts and tables by looks of their own, and never for free."""

    stands_alone = True

    def conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        del look
        found = self.state.versions.published(query, release)
        return self.state.answers.by_look(query, *found, self.state.promise.z)

    def bar_after(self, query: LinearQuery, measure: Measure) -> float:
        assert isinstance(measure, MeasureCounts), "a fresh answer is counted"
        return bar_alone(self.state, query, measure)

    def decide(self, query: LinearQuery) -> Outcome | Measure:
        evidence, terms = self.state.evidence(query), self.state.terms_for(query)
        decision = self.planned(
            query, lambda lines: plan_fresh(evidence, terms, self.state.prices, lines)
        )
        return REFUSALS[decision] if isinstance(decision, Lack) else decision
