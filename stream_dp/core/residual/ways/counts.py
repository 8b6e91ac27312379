"""Counts and tables within a share of the rows: what the data set promises, or the query's own error."""

from __future__ import annotations

import math

from stream_dp.core.mechanism import Look, Quote, Release
from stream_dp.core.outcome import Outcome, Path, Refused
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.looks.table_looks import QUERY, CountsLook, Part, TablesLook
from stream_dp.core.residual.plan.planner import (
    ROUNDING,
    Bounded,
    Certified,
    MeasureCounts,
    Unproven,
    for_noise,
    plan,
)
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.residual.ways.way import MOST_DRAWN, TOO_MANY_DRAWS, Way


class Counts(Way):
    """Answers counts and tables whose error is known before they are looked at."""

    def answer(self, query: LinearQuery) -> Outcome | Look:
        step = self._decide(query)
        if isinstance(step, MeasureCounts):
            return look_of(self.state, query, step)
        self.state.remember(query, step)
        return step

    def conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        del look, release  # absorbed by now: what was published is all that counts
        evidence, error = self.state.evidence(query), self.state.terms_for(query).error
        outcome = self.state.answers.by_promise(query, evidence, error, Path.MEASURED)
        self.state.remember(query, outcome)
        return outcome

    def quote(self, query: LinearQuery) -> Quote:
        step = self._decide(query)
        if isinstance(step, Outcome):
            return Quote.of(step)
        bar = for_noise(self.state.terms_for(query).error) + ROUNDING
        return Quote(None, step.charges, bar if bar < 1.0 else None)

    def _decide(self, query: LinearQuery) -> Outcome | MeasureCounts:
        settled = self.settled(query)
        if settled is not None:
            return settled
        state = self.state
        opening = state.at_opening(query)
        if opening is not None:
            learned = state.is_learned(query.window)
            error = state.terms_for(query).error if learned else None
            return state.answers.by_opening(query, opening, error=error)
        evidence = state.evidence(query)
        terms = state.terms_for(query)
        decision = self.planned(
            query, lambda lines: plan(evidence, terms, state.policy, state.prices, lines)
        )
        match decision:
            case Refused():
                return decision
            case Certified():
                return state.answers.by_promise(query, evidence, terms.error, Path.CERTIFIED)
            case MeasureCounts():
                return drawable(state, query, decision) or decision
            case Bounded():
                return state.answers.by_bounds(query, evidence, decision, terms.error)
            case Unproven():
                return unproven(state, query, evidence, decision)


def look_of(state: PublicState, query: LinearQuery, measure: MeasureCounts) -> Look:
    """The look at counts, or at a table, that was planned."""
    attributes, shape = query.attributes, state.shape
    if measure.package is None:
        n_answers = math.prod(shape[a] for a in query.group_by)
        return CountsLook(query, attributes, measure.steps, n_answers, measure.charges)
    sizes = tuple(shape[a] for a in attributes)
    parts = tuple(
        Part(attributes, block, own, () if groups == sizes else groups)
        for block, step in measure.steps
        for groups, own in zip(measure.package.groups, measure.steps_of(step), strict=True)
    )
    shapes = tuple(part.groups or sizes for part in parts)
    return TablesLook(QUERY, parts, shapes, measure.charges)


def drawable(state: PublicState, query: LinearQuery, measure: MeasureCounts) -> Refused | None:
    """The refusal of a measurement that needs more noise than is drawn at once; None for all others."""
    n_answers = math.prod(state.shape[a] for a in query.group_by)
    each = n_answers if measure.package is None else measure.package.n_counts
    return None if len(measure.steps) * each <= MOST_DRAWN else TOO_MANY_DRAWS


def unproven(
    state: PublicState, query: LinearQuery, evidence: Evidence, known: Unproven
) -> Outcome:
    """The outcome of a count that nothing can be promised for."""
    refusal = state.refusal(known.lack)
    if refusal is not None:
        return refusal
    values = evidence.likely()
    if state.counted is not None and not math.isfinite(evidence.view.variances[0]):
        # No table says how many rows count, and the look at their number is all there is to go by.
        counted, _ = state.counted.estimate(query.window)
        values = values * (max(0.0, counted) / evidence.n_rows)
    values = values.clip(known.low, known.high)
    return state.answers.by_interval(query, evidence, values, known, Path.UNVERIFIED)
