"""Quantiles, medians, and the least and largest bins: what counts of bins say, see ``core.published``."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

from stream_dp.core.mechanism import Look, Release
from stream_dp.core.outcome import Outcome, Path, RefusalCode, Refused
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.answers.quantile_answers import quantiles
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.belief.linear_forms import Together
from stream_dp.core.residual.belief.rank_forms import RankForms, rank_forms
from stream_dp.core.residual.plan.planner import (
    MAX_TABLE_CELLS,
    ROUNDING,
    Certified,
    Lack,
    MeasureCounts,
    Terms,
    certifies,
    for_noise,
    plan_total,
    variance_after,
)
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.residual.ways.way import Measure, PlannedWay

_TOO_MANY_BINS: Final = Refused(
    RefusalCode.TOO_MANY_CELLS,
    "the bins of the attribute, the groups and the conditions make too many cells together; group by fewer "
    "attributes, or leave conditions out",
)


class QuantilesOfBins(PlannedWay):
    """Answers in which bins a quantile lies, by the counts of the table over them."""

    def settled(self, query: LinearQuery) -> Outcome | None:
        return super().settled(query) or too_many_bins(self.state, query)

    def conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        del look, release  # absorbed by now: what was published is all that counts
        state = self.state
        passed = state.belief.passed(query, rank_forms(query, state.shape))
        return quantiles(state, query, passed, state.terms_for(query).error, Path.MEASURED)

    def bar_after(self, query: LinearQuery, measure: Measure) -> float:
        assert isinstance(measure, MeasureCounts), "a table is measured"
        evidence = self._tables(query, rank_forms(query, self.state.shape))
        z, n_rows = self._terms(query).z, self.state.rows(query.window)
        return z * math.sqrt(variance_after(evidence, measure)) / n_rows + ROUNDING

    def decide(self, query: LinearQuery) -> Outcome | Measure:
        state, error = self.state, self.state.terms_for(query).error
        forms = rank_forms(query, state.shape)
        if not state.is_learned(query.window):  # what was asked before decides no scale
            opening = [state.belief.at_opening(form, query.window) for form, _ in forms]
            if all(certifies(each, error, state.terms.z) for each in opening[:-1]):
                return quantiles(state, query, opening, None, Path.CERTIFIED)
        passed = state.belief.passed(query, forms)
        if all(certifies(each, error, state.terms.z_steered) for each in passed[:-1]):
            return quantiles(state, query, passed, error, Path.CERTIFIED)
        evidence, terms = self._tables(query, forms), self._terms(query)
        decision = self.planned(
            query, lambda lines: plan_total(evidence, terms, state.prices, lines)
        )
        if isinstance(decision, Certified):
            return quantiles(state, query, passed, error, Path.CERTIFIED)
        if isinstance(decision, Lack):
            refusal = self.spending.refusal(decision)
            return refusal or quantiles(state, query, passed, None, Path.UNVERIFIED)
        return decision

    def _terms(self, query: LinearQuery) -> Terms:
        """The error asked for, for looks that others may have chosen by what was published."""
        terms = self.state.terms_for(query)
        return replace(terms, error=for_noise(terms.error), z=terms.z_steered)

    def _tables(self, query: LinearQuery, forms: RankForms) -> Evidence:
        """What tables say of all bins, to be measured together."""
        together = Together([form for form, _ in forms[:-1]])
        return self.state.belief.evidence(together, query.key, query.window)


def too_many_bins(state: PublicState, query: LinearQuery) -> Refused | None:
    """The refusal of a quantile whose table has too many cells; None for any other."""
    n_cells = math.prod(state.shape[a] for a in query.attributes)
    return _TOO_MANY_BINS if n_cells > MAX_TABLE_CELLS else None
