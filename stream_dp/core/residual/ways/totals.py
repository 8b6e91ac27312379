"""Sums, and means with the bars that their sums leave them: see ``sum_plan``."""

from __future__ import annotations

import math

from stream_dp.core.mechanism import Look, Quote, Release
from stream_dp.core.outcome import Outcome, Path, Refused
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.belief.sums import rows_query
from stream_dp.core.residual.looks.sum_look import SumLook
from stream_dp.core.residual.plan.planner import (
    ROUNDING,
    Certified,
    Lack,
    MeasureCounts,
    Terms,
    precision_after,
)
from stream_dp.core.residual.plan.sum_plan import MeasureSums, SumDemand, SumPlanner
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.residual.ways.counts import drawable, look_of
from stream_dp.core.residual.ways.way import MOST_DRAWN, TOO_MANY_DRAWS, Way


class Totals(Way):
    """Answers sums whose error is a share of the rows times the largest value."""

    def answer(self, query: LinearQuery) -> Outcome | Look:
        step = self._decide(query)
        if isinstance(step, MeasureCounts):
            return look_of(self.state, query, step)
        return sum_look_of(self.state, query, step) if isinstance(step, MeasureSums) else step

    def conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        del look, release  # absorbed by now: what was published is all that counts
        return self.state.answers.summed(query, Path.MEASURED)

    def quote(self, query: LinearQuery) -> Quote:
        step = self._decide(query)
        if isinstance(step, Outcome):
            return Quote.of(step)
        terms = self.state.terms
        if isinstance(step, MeasureCounts):
            evidence = self.state.evidence(query)
            variance = evidence.variance_after(precision_after(evidence, step), table=step.table)
        else:
            variance = sum_planner(self.state, query, terms).variance_after(step)
        bar = terms.z * math.sqrt(variance) / self.state.rows(query.window) + ROUNDING
        return Quote(None, step.charges, bar if bar < 1.0 else None)

    def _decide(self, query: LinearQuery) -> Outcome | MeasureCounts | MeasureSums:
        settled = self.settled(query)
        if settled is not None:
            return settled
        state = self.state
        terms = state.terms_for(query)
        planner = sum_planner(state, query, terms)
        decision = self.planned(
            query, lambda lines: planner.plan(terms, state.policy, state.prices, lines)
        )
        match decision:
            case Refused():
                return decision
            case MeasureCounts():
                return drawable(state, query, decision) or decision
            case MeasureSums():
                return drawable_sums(state, query, decision) or decision
            case Certified():
                return state.answers.summed(query, Path.CERTIFIED)
            case Lack():
                refusal = state.refusal(decision)
                return refusal or state.answers.summed(query, Path.UNVERIFIED)


def sum_planner(state: PublicState, query: LinearQuery, terms: Terms) -> SumPlanner:
    """The planner of a sum: what is known about it, and how precise ``terms`` want it."""
    n_rows = state.rows(query.window)
    every = rows_query(query, total_known=state.belief.total_known)
    return SumPlanner(
        state.belief.sums(query),
        None if every is None else state.evidence(every),
        state.evidence(query),
        SumDemand.of_totals(terms, n_rows, rows=query.rows is not None),
    )


def sum_look_of(state: PublicState, query: LinearQuery, measure: MeasureSums) -> SumLook:
    """The look at sums that was planned."""
    n_answers = math.prod(state.shape[a] for a in query.group_by)
    return SumLook(query, measure.values, measure.shape, measure.steps, n_answers, measure.charges)


def drawable_sums(state: PublicState, query: LinearQuery, measure: MeasureSums) -> Refused | None:
    """The refusal of a measurement that needs more noise than is drawn at once; None for all others."""
    n_answers = math.prod(state.shape[a] for a in query.group_by)
    n_draws = len(measure.steps) * measure.shape.vectors * n_answers
    return None if n_draws <= MOST_DRAWN else TOO_MANY_DRAWS
