"""Quantiles, medians, and the least and largest bins: what counts of bins say, see ``core.published``."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from stream_dp.core.mechanism import Look, Release
from stream_dp.core.outcome import Outcome, Path, Quantiles, RefusalCode, Refused
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.answers.quantile_answers import quantiles, quantiles_within
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.belief.linear_forms import Floats, Together
from stream_dp.core.residual.belief.rank_forms import RankForms, rank_forms
from stream_dp.core.residual.looks.composed_looks import AnyLook
from stream_dp.core.residual.looks.table_looks import published_counts
from stream_dp.core.residual.plan.aim_rule import OF_ROWS_OF_RANK
from stream_dp.core.residual.plan.planner import (
    MAX_TABLE_CELLS,
    ROUNDING,
    Certified,
    Lack,
    MeasureCounts,
    Terms,
    Units,
    certifies,
    for_noise,
    plan_total,
    variance_after,
)
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.residual.ways.aimed import AimedCounts, Planned
from stream_dp.core.residual.ways.way import Measure, PlannedWay

_TOO_MANY_BINS: Final = Refused(
    RefusalCode.TOO_MANY_CELLS,
    "the bins of the attribute, the groups and the conditions make too many cells together; group by fewer "
    "attributes, or leave conditions out",
)


class QuantilesOfBins(PlannedWay):
    """Answers in which bins a quantile lies, by the counts of the table over them."""

    def settled(self, query: LinearQuery) -> Outcome | None:
        return super().settled(query) or _too_many_bins(self.state, query)

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


def _too_many_bins(state: PublicState, query: LinearQuery) -> Refused | None:
    """The refusal of a quantile whose table has too many cells; None for any other."""
    n_cells = math.prod(state.shape[a] for a in query.attributes)
    return _TOO_MANY_BINS if n_cells > MAX_TABLE_CELLS else None


class AimedQuantiles(AimedCounts):
    """Quantiles, by looks at the table of the groups and the bins.

    Their size is a share of the rows in a group. How many these are follows from counts of the groups alone.
    """

    def settled(self, query: LinearQuery) -> Outcome | None:
        return super().settled(query) or _too_many_bins(self.state, query)

    def _known(self, query: LinearQuery) -> Quantiles:
        state, forms = self.state, rank_forms(query, self.state.shape)
        opening = [state.belief.at_opening(form, query.window) for form, _ in forms]
        bars = [self._z.opening * np.sqrt(each.variances) for each in opening[:-1]]
        first = self._lies_in(query, opening, bars)
        passed = state.belief.passed(query, forms)
        pairs = zip(opening, passed, strict=True)
        if all(np.array_equal(one.variances, other.variances) for one, other in pairs):
            return first
        half = 0.5 * self._z.all_times  # two bars decide, each to one side
        bars = [np.array(state.answers.bars_at_all_times(each, half)) for each in passed[:-1]]
        best = self._lies_in(query, passed, bars)
        return best if self._part(query, best) < self._part(query, first) else first

    def _lies_in(
        self, query: LinearQuery, evidence: Sequence[Evidence], bars: Sequence[Floats]
    ) -> Quantiles:
        slack, values = ROUNDING * self.state.rows(query.window), [e.values for e in evidence]
        wide = [np.broadcast_to(self._wider * bar, values[-1].shape) + slack for bar in bars]
        live = evidence[-1].form.live
        return quantiles_within(self.state, query, values, wide, live, Path.CERTIFIED)

    @property
    def _wider(self) -> float:
        """The factor of bars that leaves a tenth of the misses for the number of rows that count."""
        return 1.0 if self.state.counted is None else self._z.wider

    def _surely(self, query: LinearQuery) -> float:
        return super()._surely(_groups(query))

    def _size(self, query: LinearQuery) -> float:
        return OF_ROWS_OF_RANK * super()._size(_groups(query)) / self._spread(query)

    def _counts_of(self, query: LinearQuery) -> LinearQuery:
        return query.table

    def _spread(self, query: LinearQuery) -> float:
        """How much wider the bar of the number by which a bin is passed can be than that of a cell."""
        squares = [np.square(cells).sum(axis=1).max() for _, cells in self._forms(query)[:-1]]
        return self._wider * math.sqrt(max(squares, default=1.0))

    def _forms(self, query: LinearQuery) -> RankForms:
        return rank_forms(query, self.state.shape)

    def _pilot(self, query: LinearQuery, room: Units) -> Planned:
        groups = _groups(query)
        deviation = math.sqrt(float(self.state.evidence(groups).variances.max()))
        if 2.0 * deviation <= super()._size(groups):
            return None  # how many rows the groups have is known
        return super()._pilot(query.table, room)

    def _bar_after(self, query: LinearQuery, look: AnyLook) -> float | None:
        bar = super()._bar_after(query.table, look)
        return None if bar is None else bar * self._spread(query)

    def _alone(self, query: LinearQuery, release: Release, *, final: bool) -> Quantiles:
        z = self._wider * (self._z.last if final else self._z.pilot)
        counts, variance = published_counts(query.table, release)
        forms = self._forms(query)
        of_cells = counts.reshape(len(forms[0][1]), -1)
        live = forms[-1][0].live
        rows = slice(None) if live is None else live
        values = [(cells * of_cells).sum(axis=1)[rows] for _, cells in forms]
        bars = [z * np.sqrt(variance * np.square(cells).sum(axis=1))[rows] for _, cells in forms]
        return quantiles_within(self.state, query, values, bars[:-1], live, Path.MEASURED)


def _groups(query: LinearQuery) -> LinearQuery:
    """The query for how many rows there are in each group."""
    return LinearQuery(query.predicate, query.window, query.group_by)
