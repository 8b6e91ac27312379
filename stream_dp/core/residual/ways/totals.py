"""Sums, and means with the bars that their sums leave them: see ``sum_plan``."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from stream_dp.core.mechanism import Look, Quote, Release
from stream_dp.core.outcome import Outcome, Path, Refused
from stream_dp.core.query import LinearQuery
from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.belief.sums import rows_query
from stream_dp.core.residual.cuts import Cut, cuts_of, measured_alone, promising, width_of
from stream_dp.core.residual.planner import (
    ROUNDING,
    BudgetAllocator,
    Certified,
    Lack,
    Measure,
    Terms,
    precision_after,
)
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.residual.sum_look import SumLook
from stream_dp.core.residual.sum_plan import Demand, MeasureSums, SumPlanner
from stream_dp.core.residual.ways.counts import drawable, look_of
from stream_dp.core.residual.ways.way import MOST_DRAWN, TOO_MANY_DRAWS, Way

_OF_LOOK: Final = 0.25
"""The part of the failure probability for looks up to a cut."""
_OF_REST: Final = 0.05
"""The part for what bins say of the rest, above all cuts at once."""
_WHOLE: Final = 1.0 - _OF_LOOK - _OF_REST
_TRIED: Final = 2
"""Cuts that are planned for besides those that were looked at."""


@dataclass(frozen=True, slots=True)
class _CertifiedBelow:
    """The published looks up to a cut, and the published bins above it, already promise the answer."""

    cut: Cut


class Totals(Way):
    """Answers sums whose error is a share of the rows times the largest value."""

    def answer(self, query: LinearQuery) -> Outcome | Look:
        step = self._decide(query)
        if isinstance(step, Measure):
            return look_of(self.state, query, step)
        return sum_look_of(self.state, step) if isinstance(step, MeasureSums) else step

    def conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        del release  # absorbed by now: what was published is all that counts
        _, cuts = self._terms(query)
        measured = look.query if isinstance(look, SumLook) else query
        for cut in cuts:
            if cut.query.key == measured.key:
                return self._below(query, Path.MEASURED, cut)
        return self._summed(query, Path.MEASURED, cuts)

    def quote(self, query: LinearQuery) -> Quote:
        step = self._decide(query)
        if isinstance(step, Outcome):
            return Quote.of(step)
        terms, cuts = self._terms(query)
        n_rows = self.state.rows(query.window)
        if isinstance(step, Measure):
            evidence = self.state.evidence(query)
            variance = evidence.variance_after(precision_after(evidence, step), table=step.table)
            bar = terms.z * math.sqrt(variance)
        else:
            cut = next((cut for cut in cuts if cut.query.key == step.query.key), None)
            if cut is None:
                variance = sum_planner(self.state, query, terms).variance_after(step)
                bar = terms.z * math.sqrt(variance)
            else:
                bar = self._half_after(query, terms, cut, step)
        share = bar / n_rows + ROUNDING
        return Quote(None, step.charges, share if share < 1.0 else None)

    def certified(self, query: LinearQuery) -> bool:
        """Whether what is published promises an answer."""
        terms, cuts = self._terms(query)
        return sum_planner(self.state, query, terms).certified or any(
            planner.certified for _, planner in self._below_cuts(query, terms, cuts)
        )

    def _decide(self, query: LinearQuery) -> Outcome | Measure | MeasureSums:
        settled = self.settled(query)
        if settled is not None:
            return settled
        state = self.state
        terms, cuts = self._terms(query)
        whole = sum_planner(state, query, terms)
        below = list(self._below_cuts(query, terms, cuts))

        def plan(
            lines: BudgetAllocator,
        ) -> Certified | _CertifiedBelow | Measure | MeasureSums | Lack:
            step = whole.plan(terms, state.policy, state.prices, lines)
            if isinstance(step, Certified):
                return step
            room = lines.room(query.window)
            best = step if isinstance(step, Measure | MeasureSums) else None
            for cut, planner in below:
                if planner.certified:
                    return _CertifiedBelow(cut)
                look = planner.look(state.prices, room)
                if look is not None and (best is None or look.total < best.total):
                    best = look
            return step if best is None else best

        decision = self.planned(query, plan)
        match decision:
            case Refused():
                return decision
            case Measure():
                return drawable(state, query, decision) or decision
            case MeasureSums():
                return drawable_sums(state, query, decision) or decision
            case Certified():
                return self._summed(query, Path.CERTIFIED, cuts)
            case _CertifiedBelow(cut=cut):
                return self._below(query, Path.CERTIFIED, cut)
            case Lack():
                refusal = state.refusal(decision)
                return refusal or self._summed(query, Path.UNVERIFIED, cuts)

    # ------------------------------------------------------------ cuts: Theorem 25

    def _terms(self, query: LinearQuery) -> tuple[Terms, list[Cut]]:
        """The accuracy that the query asks for, and the cuts that it may be measured up to.

        Where there are cuts, a part of the failure probability is for them. Whether there are does not depend
        on any estimate.
        """
        state, failure = self.state, self.state.accuracy.failure_probability
        terms = state.terms_for(query)
        assert query.total is not None, "the query has a total"
        error = terms.error * state.rows(query.window) * query.total.largest
        cuts = promising(cuts_of(query, state.belief, _OF_REST * failure), query, error)
        if not cuts:
            return terms, []
        return replace(terms, z=two_sided(math.log(_WHOLE * failure))), cuts

    def _below_cuts(
        self, query: LinearQuery, terms: Terms, cuts: list[Cut]
    ) -> Iterator[tuple[Cut, SumPlanner]]:
        """Yields the cuts that are worth planning for: those that were looked at, and the likely cheapest."""
        state, largest = self.state, 0.0 if query.total is None else query.total.largest
        error = terms.error * state.rows(query.window) * largest
        scores = [_score(cut, error) for cut in cuts]
        cheapest = sorted(range(len(cuts)), key=scores.__getitem__)[:_TRIED]
        for index, cut in enumerate(cuts):
            if not math.isfinite(scores[index]):
                continue
            known = measured_alone(state.belief, cut)
            if index not in cheapest and not known.looked:
                continue
            every = rows_query(query, total_known=state.belief.total_known)
            limits = np.square((error - cut.halves) / known.largest / self._z_of_look)
            rows = Demand.of_totals(
                terms, state.rows(query.window), rows=query.rows is not None
            ).rows
            yield (
                cut,
                SumPlanner(
                    known,
                    None if every is None else state.evidence(every),
                    state.evidence(cut.query),
                    Demand(np.zeros(1), limits, rows),
                ),
            )

    @property
    def _z_of_look(self) -> float:
        return two_sided(math.log(_OF_LOOK * self.state.accuracy.failure_probability))

    def _half_after(self, query: LinearQuery, terms: Terms, cut: Cut, step: MeasureSums) -> float:
        """The largest half width after a look up to a cut, in units of the largest value."""
        assert query.total is not None, "the query has a total"
        planner = next(p for c, p in self._below_cuts(query, terms, [cut]) if c is cut)
        after = np.sqrt(planner.moments_after(step).totals) * planner.known.largest
        return float((self._z_of_look * after + cut.halves).max() / query.total.largest)

    def _summed(self, query: LinearQuery, path: Path, cuts: list[Cut]) -> Outcome:
        """The best estimates of the whole."""
        failure = self.state.accuracy.failure_probability
        return self.state.answers.summed(query, path, failure=_WHOLE * failure if cuts else None)

    def _below(self, query: LinearQuery, path: Path, cut: Cut) -> Outcome:
        """What the looks up to a cut say by themselves, and what tables say of the rest."""
        state = self.state
        return state.answers.summed(
            query,
            path,
            measured_alone(state.belief, cut),
            failure=_OF_LOOK * state.accuracy.failure_probability,
            cut=cut,
        )


def _score(cut: Cut, error: float) -> float:
    """What a look up to a cut costs about, times a constant; infinite where the rest alone is too wide."""
    spare = float((error - cut.halves).min(initial=error))
    return math.inf if spare <= 0.0 else width_of(cut.query) / spare


def sum_planner(state: PublicState, query: LinearQuery, terms: Terms) -> SumPlanner:
    """The planner of a sum: what is known about it, and how precise ``terms`` want it."""
    n_rows = state.rows(query.window)
    every = rows_query(query, total_known=state.belief.total_known)
    return SumPlanner(
        state.belief.sums(query),
        None if every is None else state.evidence(every),
        state.evidence(query),
        Demand.of_totals(terms, n_rows, rows=query.rows is not None),
    )


def sum_look_of(state: PublicState, measure: MeasureSums) -> SumLook:
    """The look at sums that was planned."""
    n_answers = math.prod(state.shape[a] for a in measure.query.group_by)
    return SumLook(
        measure.query, measure.values, measure.shape, measure.steps, n_answers, measure.charges
    )


def drawable_sums(state: PublicState, query: LinearQuery, measure: MeasureSums) -> Refused | None:
    """The refusal of a measurement that needs more noise than is drawn at once; None for all others."""
    n_answers = math.prod(state.shape[a] for a in query.group_by)
    n_draws = len(measure.steps) * measure.shape.vectors * n_answers
    return None if n_draws <= MOST_DRAWN else TOO_MANY_DRAWS


__all__ = ["Totals", "drawable_sums", "sum_look_of", "sum_planner"]
