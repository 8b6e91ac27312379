"""Correlations: one look at products of standard values, next to two columns of published counts.

Which values are cut, and what makes them standard, follows from the columns as they were measured when the
phases opened. Where these say too little, a look at the column comes first. So all that is measured later is
chosen by published numbers, and each look has noise of its own: docs/proofs, Theorem 32.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.parameters import Aim
from stream_dp.core.mechanism import Look, Release
from stream_dp.core.outcome import Outcome, Path, Refused, Sum, Summed, Useful
from stream_dp.core.published.correlation import (
    CUT,
    GRID,
    ColumnMoments,
    Standard,
    correlation,
    deviations,
)
from stream_dp.core.queries.query import LinearQuery, Product
from stream_dp.core.residual.answers.sum_answers import summed
from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.belief.linear_forms import Floats, TableForm, form_of
from stream_dp.core.residual.looks.composed_looks import AnyLook, StagedLook
from stream_dp.core.residual.looks.counted_rows import FAILURE
from stream_dp.core.residual.looks.sum_look import SumRelease
from stream_dp.core.residual.looks.table_looks import CountsLook, published_counts
from stream_dp.core.residual.plan.aim_rule import OF_CORRELATION
from stream_dp.core.residual.plan.planner import Lack, MeasureCounts, Units, count_alone
from stream_dp.core.residual.plan.sum_plan import SumDemand, SumPlanner
from stream_dp.core.residual.plan.targets import too_dear
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.residual.ways.aimed import AimedSums, Answer, Planned
from stream_dp.core.residual.ways.way import look_of

_COLUMN: Final = 0.125
"""The part of the failure probability of each of four columns: two as opened, and two looks."""

_ANY_ROOM: Final = 1024 * UNITS
"""More than any look at a column is worth."""

_PRODUCT: Final = 0.5
"""The part of the look at products."""

_EVENLY: Final = math.sqrt(2.5**4 / 5.0 - 2.0 * 2.5**2 / 3.0 + 1.0)
"""The root of the mean of (u^2 - 1)^2 for bins that lie evenly over 2.5 deviations to both sides."""

_SQUARE: Final = float(GRID) ** 2


@dataclass(frozen=True, slots=True)
class _Plan:
    """What looks are planned for; no promise rests on it.

    Attributes:
        likely: The size of the correlation.
        enough: A column needs no look whose mean of squares is off by this many errors of the correlation at
            most, as a part of its variance.
        column: The same after a look at a column.
        least: The part of the bar that is for products at least, however little is known of the columns.
    """

    likely: float
    enough: float
    column: float
    least: float


_AIMED: Final = _Plan(likely=0.3, enough=3.0, column=2.0, least=0.5)
_NAMED: Final = _Plan(likely=0.5, enough=1.0, column=0.75, least=0.3)


@dataclass(frozen=True, slots=True)
class _Side:
    """One of the two attributes.

    Attributes:
        attribute: Its index.
        table: The column of its counts, over the rows that count.
        values: The raw values of its bins, shape (n_cells,).
        live: The bins that rows can be in, shape (n_cells,).
    """

    attribute: int
    table: LinearQuery
    values: Floats
    live: npt.NDArray[np.bool_]

    @classmethod
    def of(
        cls, query: LinearQuery, attribute: int, values: tuple[float, ...], shape: tuple[int, ...]
    ) -> _Side:
        table = LinearQuery(query.predicate, query.window, (attribute,))
        live = form_of(table, shape).live
        every = np.ones(shape[attribute], np.bool_)
        return cls(attribute, table, np.array(values), every if live is None else live)


@dataclass(frozen=True, slots=True)
class _Column:
    """What is known of the column of a side."""

    values: Floats
    standard: Standard
    moments: ColumnMoments


class Correlations(AimedSums):
    """Answers one query. Its answer is a mean that is the correlation.

    Args:
        state: What is published, promised and left to spend.
        query: The query, with the raw values of the bins.
    """

    def __init__(self, state: PublicState, query: LinearQuery) -> None:
        product, target = query.total, query.target
        assert isinstance(product, Product), "a correlation is asked"
        aim, self._named = None, product.error is not None
        if product.error is not None:
            share = min(product.error / OF_CORRELATION, 0.99)
            most = 1.0 if target.at_most is None else target.at_most
            aim = Aim(share, min(1.0, share * 1.001), most, most, most)
        super().__init__(state, aim)
        self._sides = [
            _Side.of(query, attribute, values, state.shape)
            for attribute, values in zip(product.attributes, product.factors, strict=True)
        ]
        self._plan = _NAMED if self._named else _AIMED
        self._error = self._aim.share * OF_CORRELATION
        # Some misses are for the number of rows that count, where it is private.
        self._failure = (1.0 - FAILURE) * state.promise.failure
        # By attribute, what looks of this query found: counts of bins, shape (n_cells,), and their variance.
        self._found: dict[int, tuple[Floats, float]] = {}

    # ------------------------------------------------------------ the order of the looks

    def answer(self, query: LinearQuery) -> Outcome | Look:
        return self._promised(super().answer(query))

    def conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        assert isinstance(look, StagedLook), "a look of this way"
        self._found = dict(look.found)
        if not isinstance(look.look, CountsLook):
            return self._promised(super().conclude(query, look, release))
        column = look.look.query
        self._found[column.group_by[0]] = published_counts(column, release)
        pilot = self._pilot(query, self._room(query, self._rule(query).most, look.paid))
        if pilot is not None:
            return self._staged(pilot, look.paid)
        return self._promised(self._last(query, self._known(query), look.paid))

    def _staged(
        self, look: AnyLook | Refused, paid: Mapping[int, int], part: float | None = None
    ) -> StagedLook | Refused:
        step = super()._staged(look, paid, part)
        return step if isinstance(step, Refused) else replace(step, found=dict(self._found))

    def _promised(self, step: Outcome | Look) -> Outcome | Look:
        """The same; with the error of the query in place of how useful an answer is, if it has one."""
        if not self._named or not isinstance(step, Summed):
            return step
        (cell,) = step.cells
        holds = cell.mean_bar is not None and cell.mean_bar <= self._error * (1.0 + 1e-9)
        return replace(step, use=None, path=step.path if holds else Path.UNVERIFIED)

    def _known(self, query: LinearQuery) -> Summed:
        """The answer without a look at products: any correlation is possible."""
        n = self.state.rows(query.window)
        cell = Sum(float(n), None, 0.0, None, 0.0, 1.0, mean_ends=(-1.0, 1.0))
        return Summed((cell,), n, self.state.promise.confidence, Path.CERTIFIED)

    def _kept(self, query: LinearQuery) -> tuple[Answer, bool] | None:
        kept, most = super()._kept(query), query.target.at_most
        if kept is None or kept[0].use is None or most is None or not self._unknown():
            return kept
        use = kept[0].use
        price = use.rough_price if use.useful is Useful.NO else use.aim_price
        return kept if price is None or most < price else None  # all looks are taken again

    def _room(self, query: LinearQuery, most: int, paid: Mapping[int, int]) -> Units:
        if self._named:
            return self.spending.room(query, self.spending.most(query), paid)
        return super()._room(query, most, paid)

    def _chosen_but_for_guards(self, query: LinearQuery, price: float, part: float) -> bool:
        return not self._named and super()._chosen_but_for_guards(query, price, part)

    def _refusal(self, query: LinearQuery, price: float, part: float) -> Refused | None:
        most = self.spending.most(query) if self._named else None
        if most is not None:
            room = self.spending.room(query, None, {})
            dearer = self._pilot(query, room) or self._look(query, self._aim.share, room)
            if dearer is not None:
                return dearer if isinstance(dearer, Refused) else too_dear(dearer.charges, most)
        refused = super()._refusal(query, price, part)
        return refused or (self.spending.refusal(Lack.ROWS) if self._named else None)

    # ------------------------------------------------------------ columns

    def _pilot(self, query: LinearQuery, room: Units) -> Planned:
        """A look at a column that what was measured at openings says too little of."""
        for side in self._unknown():
            if not self._named:  # a column alone says nothing: some is left for the products
                room = np.minimum(room, self._rule(query).most // 2)
            measure = self._measure_of_column(side, room)
            return None if measure is None else look_of(self.state, side.table, measure)
        return None

    def _unknown(self) -> list[_Side]:
        """The columns that too little is known of."""
        enough = self._plan.enough * self._error
        return [
            side
            for side in self._sides
            if side.attribute not in self._found
            and ((column := self._column(side)) is None or not column.moments.off <= enough)
        ]

    def _measure_of_column(self, side: _Side, room: Units) -> MeasureCounts | None:
        """What makes a column known well enough; None where a room does not suffice, or it does not vary."""
        evidence, values = self.state.evidence(side.table), side.values[side.live]
        if len(np.unique(values)) < 2:
            return None
        rows = self._rows_of(side.table, evidence)
        known = self._column(side)
        # Values that hardly vary, next to their range, need a look that is as much more precise.
        rows = max(1.0, rows) * (1.0 if known is None else known.standard.square)
        squares = self._deviations(len(values)) * _EVENLY * math.sqrt(len(values))
        limit = (self._plan.column * self._error * rows / squares) ** 2
        return count_alone(evidence, self.state.prices, room, limit)

    def _rows_of(self, query: LinearQuery, evidence: Evidence) -> float:
        """About the number of rows of a column."""
        if np.isfinite(evidence.variances).all():
            return float(evidence.values.sum())
        counted, every = self.state.counted, float(self.state.rows(query.window))
        every = every if counted is None else counted.estimate(query.window)[0]
        return every * float(query.predicate.mask.mean())

    def _column(self, side: _Side) -> _Column | None:
        """What is known of a column; None for nothing."""
        table, values, live = side.table, side.values, side.live
        found = self._found.get(side.attribute)
        if found is None:
            opening = self.state.belief.at_opening(form_of(table, self.state.shape), table.window)
            if not np.isfinite(opening.variances).all():
                return None
            counts = opening.values
        else:
            counts = found[0][live]
        standard = Standard.of(values[live], counts)
        if standard is None:
            return None
        z = self._deviations(int(np.count_nonzero(live)))
        each = standard.apply(values)
        sums = [
            self._sum(side, weights * live)
            for weights in (np.ones(len(each)), each, np.square(each) - standard.square)
        ]
        rows, first, second = ((value, z * math.sqrt(variance)) for value, variance in sums)
        return _Column(values, standard, ColumnMoments(rows, first, second, standard.square))

    def _sum(self, side: _Side, weights: Floats) -> tuple[float, float]:
        """The sum of what the rows of each bin count for, and its variance."""
        query, found = side.table, self._found.get(side.attribute)
        every = bool((weights == 1.0).all())
        if found is None:
            form = TableForm(query.predicate, (), self.state.shape, ((side.attribute,), weights))
            known = self.state.belief.at_opening(form, query.window)
            return float(known.values[0]), float(known.variances[0])
        if every and query.predicate.constant is True and self.state.belief.total_known:
            return float(self.state.rows(query.window)), 0.0
        counts, variance = found
        return float(counts @ weights), variance * float(np.square(weights).sum())

    def _deviations(self, n_bins: int) -> float:
        """The half width of sums over a column, in deviations."""
        return deviations(n_bins, _COLUMN * self._failure)

    def _columns(self) -> tuple[_Column, _Column] | None:
        one, other = map(self._column, self._sides)
        return None if one is None or other is None else (one, other)

    def _expected(self, side: _Side) -> _Column | None:
        """A column as its look is expected to find it: like today's estimates, or else as a bell."""
        evidence, values = self.state.evidence(side.table), side.values
        counts, rows = evidence.values, self._rows_of(side.table, evidence)
        some = values[side.live]
        if not np.isfinite(evidence.variances).all():
            off = np.abs(some - 0.5 * (some.min() + some.max()))
            counts = np.exp(-0.5 * np.square(CUT * off / max(float(off.max()), 1e-300)))
        standard = Standard.of(some, counts)
        if standard is None or not rows > 0.0:
            return None
        off = self._plan.column * self._error * rows * standard.square
        return _Column(
            values, standard, ColumnMoments((rows, 0.0), (0.0, off), (0.0, off), standard.square)
        )

    # ------------------------------------------------------------ products

    def _named_price(self, query: LinearQuery) -> tuple[float, float]:
        # What looks at columns found is kept for the query in hand only. The next one pays for them again.
        found, self._found = self._found, {}
        price, first = self._price(query), self._first()
        self._found = found
        return price, first

    def _first(self) -> float:
        """The share of a line that may be needed for looks at columns."""
        each = []
        for side in self._unknown():
            any_room = np.full(len(side.table.window), _ANY_ROOM)
            measure = self._measure_of_column(side, any_room)
            if measure is None:
                return math.inf
            each.append(max(charge.rho for charge in measure.charges) / UNITS)
        # Each of them may take half of what all looks may.
        return max(sum(each), 2.0 * max(each, default=0.0))

    def _price(self, query: LinearQuery) -> float:
        first, unknown = self._first(), {side.attribute for side in self._unknown()}
        if not unknown or not math.isfinite(first):
            return super()._price(query) if not unknown else math.inf
        one, other = (
            self._expected(side) if side.attribute in unknown else self._column(side)
            for side in self._sides
        )
        if one is None or other is None:
            return math.inf
        demand = self._demand_of(query, self._aim.share, (one, other))
        planner = super()._planner(_products(query, (one, other)), demand)
        return math.inf if planner is None else first + planner.price(self.state.prices)

    def _planner(self, query: LinearQuery, demand: SumDemand | None) -> SumPlanner | None:
        columns = self._columns()
        return None if columns is None else super()._planner(_products(query, columns), demand)

    def _demand(self, query: LinearQuery, part: float) -> SumDemand | None:
        """What makes the bar this part of the size, if the correlation is as small as is planned for."""
        columns = self._columns()
        return None if columns is None else self._demand_of(query, part, columns)

    def _demand_of(
        self, query: LinearQuery, part: float, columns: tuple[_Column, _Column]
    ) -> SumDemand | None:
        one, other = columns
        if max(one.moments.off, other.moments.off) >= 1.0:
            return None  # a column may not vary at all, and then no product says anything
        rows = min(one.moments.rows[0], other.moments.rows[0])
        spread = math.sqrt(one.moments.likely[1] * other.moments.likely[1])
        bar, off = part * OF_CORRELATION, 0.5 * (one.moments.off + other.moments.off)
        means = math.prod(max(map(abs, column.moments.mean)) for column in columns)
        known = (bar - self._plan.likely * off - means - 1.0 / GRID) * (1.0 - off)
        bar = max(self._plan.least * bar, known)
        products = _products(query, columns)
        assert products.total is not None, "it adds up products"
        in_units = bar * spread * rows * _SQUARE / products.total.largest
        limit = (in_units / two_sided(math.log(_PRODUCT * self._failure))) ** 2
        return SumDemand(np.zeros(1), np.array([limit])) if limit > 0.0 and rows > 0.0 else None

    def _alone(self, query: LinearQuery, release: Release, *, final: bool) -> Summed:
        assert isinstance(release, SumRelease), "the release of this look"
        columns = self._columns()
        assert columns is not None, "products follow from them"
        products = _products(query, columns)
        found = summed(
            self.state,
            products,
            Path.MEASURED,
            self.state.alone(products, release),
            failure=_PRODUCT * self._failure,
        )
        (cell,) = found.cells
        mean, bar = cell.mean, cell.mean_bar
        value, ends = 0.0, (-1.0, 1.0)
        if mean is not None and bar is not None:
            value, ends = correlation(columns[0].moments, columns[1].moments, mean, bar)
        half = max(ends[1] - value, value - ends[0])
        counts = cell.count, cell.count_bar
        told = Sum(*counts, 0.0, None, value, half, count_ends=cell.count_ends, mean_ends=ends)
        return replace(found, cells=(told,))


def _products(query: LinearQuery, columns: tuple[_Column, _Column]) -> LinearQuery:
    """The sum of the products of standard values as whole numbers."""
    assert isinstance(query.total, Product), "a correlation is asked"
    one, other = (column.standard.whole(column.values) for column in columns)
    total = Product(query.total.attributes, (one, other))
    return replace(query, total=total, rows=None)
