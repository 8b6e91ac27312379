"""Counts and tables within a share of the rows: what the data set promises, or the query's own error."""

from __future__ import annotations

import math

from stream_dp.core.mechanism import Look, Release
from stream_dp.core.outcome import Outcome, Path, Refused
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.line_rules import REFUSALS
from stream_dp.core.residual.looks.table_looks import variance_of
from stream_dp.core.residual.plan.planner import (
    ROUNDING,
    Bounded,
    Certified,
    Lack,
    MeasureCounts,
    Terms,
    Unproven,
    for_noise,
    plan,
    plan_fresh,
)
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.residual.ways.way import Measure, PlannedWay


class Counts(PlannedWay):
    """Answers counts and tables whose error is known before they are looked at."""

    stands_alone = True

    def answer(self, query: LinearQuery) -> Outcome | Look:
        step = super().answer(query)
        if isinstance(step, Outcome):
            self.state.repeats.remember(query, step)
        return step

    def conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        del look
        state = self.state
        if state.is_changed(query.window):
            found = state.versions.published(query, release)
            outcome = state.answers.by_look(query, *found, state.promise.z)
            state.repeats.remember(query, outcome)
            return outcome
        evidence, error = self.state.evidence(query), self.state.terms_for(query).error
        outcome = self.state.answers.by_promise(query, evidence, error, Path.MEASURED)
        self.state.repeats.remember(query, outcome)
        return outcome

    def bar_after(self, query: LinearQuery, measure: Measure) -> float:
        if self.state.is_changed(query.window):
            assert isinstance(measure, MeasureCounts), "counts are measured"
            return _bar_alone(self.state, query, measure)
        del measure  # it is as precise as is lacking
        return for_noise(self.state.terms_for(query).error) + ROUNDING

    def decide(self, query: LinearQuery) -> Outcome | Measure:
        state = self.state
        opening = state.at_opening(query)
        if opening is not None:
            learned = state.is_learned(query.window)
            error = state.terms_for(query).error if learned else None
            return state.answers.by_opening(query, opening, error=error)
        evidence, terms = state.evidence(query), state.terms_for(query)
        decision = self.planned(query, lambda lines: plan(evidence, terms, state.prices, lines))
        if isinstance(decision, MeasureCounts) and state.is_changed(query.window):
            decision = self._alone(query, evidence, terms)
        match decision:
            case Refused() | MeasureCounts():
                return decision
            case Certified():
                return state.answers.by_promise(query, evidence, terms.error, Path.CERTIFIED)
            case Bounded():
                return state.answers.by_bounds(query, evidence, decision, terms.error)
            case Unproven():
                return unproven(state, query, evidence, decision)

    def _alone(
        self, query: LinearQuery, evidence: Evidence, terms: Terms
    ) -> MeasureCounts | Unproven | Refused:
        """What is measured where rows were changed: what others measured is about other rows."""
        prices = self.state.prices
        decision = self.planned(query, lambda lines: plan_fresh(evidence, terms, prices, lines))
        if not isinstance(decision, Lack):
            return decision
        return Unproven(*evidence.interval(terms.log_bounds_failure), decision)


class Fresh(PlannedWay):
    """Answers counts and tables by one independent look that no memory enters, and never for free.

    It is safe however the query was chosen: docs/proofs, Theorem 16.
    """

    stands_alone = True

    def conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        del look
        found = self.state.versions.published(query, release)
        return self.state.answers.by_look(query, *found, self.state.promise.z)

    def bar_after(self, query: LinearQuery, measure: Measure) -> float:
        assert isinstance(measure, MeasureCounts), "a fresh answer is counted"
        return _bar_alone(self.state, query, measure)

    def decide(self, query: LinearQuery) -> Outcome | Measure:
        evidence, terms = self.state.evidence(query), self.state.terms_for(query)
        decision = self.planned(
            query, lambda lines: plan_fresh(evidence, terms, self.state.prices, lines)
        )
        return REFUSALS[decision] if isinstance(decision, Lack) else decision


def _bar_alone(state: PublicState, query: LinearQuery, measure: MeasureCounts) -> float:
    """The bar of an answer that a look is by itself, as a share of the rows."""
    deviation = math.sqrt(variance_of(measure.steps))
    return state.terms.z * deviation / state.rows(query.window) + ROUNDING


def unproven(
    state: PublicState, query: LinearQuery, evidence: Evidence, known: Unproven
) -> Outcome:
    """The outcome of a count that nothing can be promised for."""
    refusal = state.spending.refusal(known.lack)
    if refusal is not None:
        return refusal
    values = evidence.likely()
    if state.counted is not None and evidence.rows_that_count is None:
        # No table says how many rows count, and the look at their number is all there is to go by.
        counted, _ = state.counted.estimate(query.window)
        values = values * (max(0.0, counted) / evidence.n_rows)
    values = values.clip(known.low, known.high)
    return state.answers.by_interval(query, evidence, values, known, Path.UNVERIFIED)
