"""Sums, and means with the bars that their sums leave them: see ``sum_plan``."""

from __future__ import annotations

import math
from dataclasses import replace

from stream_dp.core.mechanism import Look, Release
from stream_dp.core.outcome import Outcome, Path
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.answers.sum_answers import summed
from stream_dp.core.residual.belief.sums import SumEvidence, rows_query
from stream_dp.core.residual.plan.planner import (
    ROUNDING,
    Certified,
    Lack,
    MeasureCounts,
    Terms,
    variance_after,
)
from stream_dp.core.residual.plan.sum_plan import MeasureSums, SumDemand, SumPlanner
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.residual.ways.way import Measure, PlannedWay


class Totals(PlannedWay):
    """Answers sums whose error is a share of the rows times the largest value."""

    stands_alone = True

    def conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        del look
        if self.state.is_changed(query.window):
            return summed(self.state, query, Path.MEASURED, self.state.alone(query, release))
        return summed(self.state, query, Path.MEASURED)

    def bar_after(self, query: LinearQuery, measure: Measure) -> float:
        terms = self.state.terms
        if isinstance(measure, MeasureCounts):
            variance = variance_after(self.state.evidence(query), measure)
        else:
            planner = sum_planner(self.state, query, terms)
            if self.state.is_changed(query.window):
                planner = replace(planner, known=self.state.alone(query))
            variance = planner.variance_after(measure)
        return terms.z * math.sqrt(variance) / self.state.rows(query.window) + ROUNDING

    def decide(self, query: LinearQuery) -> Outcome | Measure:
        state, terms = self.state, self.state.terms_for(query)
        planner = sum_planner(state, query, terms)
        decision = self.planned(query, lambda lines: planner.plan(terms, state.prices, lines))
        if isinstance(decision, Certified):
            return summed(state, query, Path.CERTIFIED)
        if isinstance(decision, MeasureCounts | MeasureSums) and state.is_changed(query.window):
            # What was measured before is about other rows.
            alone = replace(planner, known=state.alone(query))
            decision = self.planned(query, lambda lines: alone.look_alone(state.prices, lines))
        if isinstance(decision, Lack):
            return self.spending.refusal(decision) or summed(state, query, Path.UNVERIFIED)
        return decision


def sum_planner(state: PublicState, query: LinearQuery, terms: Terms) -> SumPlanner:
    """The planner of a sum: what is known about it, and how precise ``terms`` want it."""
    demand = SumDemand.of_totals(terms, state.rows(query.window), rows=query.rows is not None)
    return planner_of(state, query, demand, state.sums(query))


def planner_of(
    state: PublicState, query: LinearQuery, demand: SumDemand, known: SumEvidence
) -> SumPlanner:
    """The planner of a sum with this demand, where this much is known of it."""
    every = rows_query(query, total_known=state.belief.total_known)
    rows = None if every is None else state.evidence(every)
    return SumPlanner(known, rows, state.evidence(query), demand)
