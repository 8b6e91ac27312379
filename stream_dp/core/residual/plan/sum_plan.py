"""Decisions about queries for sums, from public numbers only.

In order of preference, what is published *certifies* the answer, a look at the sum is taken, exactly as
precise as is lacking, or the table over the query's attributes is measured. The table is preferred where it
costs less, and once looks at sums and counts on these attributes have cost enough to buy it (``planner``).

A ``SumDemand`` says how precise the answer must be: how large the variance of each total may be, or that of
``total - slope * count``. With the mean for a slope this says how wide the bar of a mean may be.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np
import numpy.typing as npt

from stream_dp.core.bisection import least
from stream_dp.core.budget.accountant import Charge
from stream_dp.core.randomness.noise_sources import GRID_STEPS, grid_sigma
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.belief.linear_forms import Floats
from stream_dp.core.residual.belief.sums import Moments, SumEvidence, Sums
from stream_dp.core.residual.plan.planner import (
    FIRST_STEP,
    LAST_STEP,
    BudgetAllocator,
    Certified,
    Lack,
    MeasureCounts,
    Prices,
    Terms,
    Units,
    buys,
    coarsest,
    least_steps,
    lowest_of,
    scales,
    table_look,
    water_fill,
)
from stream_dp.core.residual.plan.sum_price import MOST_ROWS, SumShape, WholeValues

_TIE: Final = 1.0 + 1e-9
_LEAST_LIMIT: Final = 1e-30
"""What no look reaches. It stands for 0, where perhaps no row counts."""


@dataclass(frozen=True, slots=True)
class SumDemand:
    """The precision that the answers must have.

    Attributes:
        slopes: What is taken from each total for each row of its count, in units of the largest value, shape
            (answers,) or (1,). 0 asks for the total itself.
        limits: The largest variance of ``total - slope * count``, in these units, shape (answers,) or (1,).
        rows: The largest variance of the count of all rows. Infinite if the query asks for none.
    """

    slopes: Floats
    limits: Floats
    rows: float = math.inf

    @classmethod
    def of_totals(cls, terms: Terms, n_rows: float, *, rows: bool) -> SumDemand:
        """Each total within ``error`` of the rows times the largest value; and a count of all rows too.

        Args:
            terms: The accuracy promised.
            n_rows: Rows of the window.
            rows: Whether all rows of the condition are counted with the sum.
        """
        limit = max((terms.error * n_rows / terms.z) ** 2, _LEAST_LIMIT)
        return cls(np.zeros(1), np.array([limit]), limit if rows else math.inf)

    @classmethod
    def of_means(cls, known: Sums, bar: float, z: float) -> SumDemand | None:
        """Each mean within ``bar``, as far as today's estimates say; None where they say too little.

        The mean and the count are those published so far, the count at its lower end. So the demand is a
        plan, and the bar of the answer says what was reached.

        Args:
            known: The best estimates.
            bar: Largest half width around a mean, in units of the largest value.
            z: The half width in standard deviations.
        """
        at_least = known.counts - z * np.sqrt(known.moments.counts)
        if not (at_least > 0.0).all() or not np.isfinite(known.moments.totals).all():
            return None
        return cls(known.totals / known.counts, np.square(bar * at_least / z))

    @property
    def plain(self) -> bool:
        """Whether it is about the totals themselves."""
        return not self.slopes.any()


@dataclass(frozen=True, slots=True)
class MeasureSums:
    """A look at sums to take.

    Attributes:
        shape: What its price follows from.
        values: The whole numbers that rows count for.
        steps: Block, and the steps of the public grid of scales: of the sums, and of the counts.
        charges: The price, one entry a block.
    """

    shape: SumShape
    values: WholeValues
    steps: tuple[tuple[int, int, int], ...]
    charges: tuple[Charge, ...]

    @property
    def total(self) -> int:
        """Units of loss, added up over the blocks."""
        return sum(charge.rho for charge in self.charges)


@dataclass(frozen=True, slots=True)
class SumPlanner:
    """The plan for one query for a sum, from what is known about it and what is asked of it.

    Attributes:
        known: What is known of totals and counts.
        rows: What is known of the count of all rows, where that is a number of its own.
        table: What the tables say of the totals, for the price of the table.
        demand: The precision that the answers must have.
    """

    known: SumEvidence
    rows: Evidence | None
    table: Evidence
    demand: SumDemand

    @property
    def certified(self) -> bool:
        """Whether what is published is precise enough."""
        demand, sums = self.demand, self.known.sums
        of_totals = sums.moments.of(demand.slopes)
        if (of_totals <= demand.limits * _TIE).all() and self._rows_known:
            return True
        return float(self._scores(self.known.by_block).sum()) <= _TIE

    @property
    def _rows_known(self) -> bool:
        if self.rows is not None:
            return bool(self.rows.variances.max() <= self.demand.rows * _TIE)
        if self._rows_alike:
            of_counts = self.known.sums.moments.counts
            return bool((of_counts <= self.demand.rows * _TIE).all())
        return True

    @property
    def _rows_alike(self) -> bool:
        """Whether all rows of the condition have a number, so that both counts are one."""
        return self.known.query.rows == self.known.query.predicate

    def plan(
        self, terms: Terms, prices: Prices, allocator: BudgetAllocator
    ) -> Certified | MeasureSums | MeasureCounts | Lack:
        """Decides; changes nothing."""
        if self.certified:
            return Certified()
        window, room = self.known.window, allocator.room(self.known.window)
        limit = (terms.error * self.table.n_rows / terms.z) ** 2

        def measured(room: Units) -> MeasureCounts | None:
            # A table counts cells, so it cannot tell what is kept of each row.
            tells = self.demand.plain and not self.known.kept and self.table.buys
            return table_look(self.table, prices, room, limit) if tells else None

        look, table = self.look(prices, room), measured(room)
        if table is not None and (look is None or buys(self.table, allocator, look.total, table)):
            return table
        return look or allocator.lack(
            window, lambda room: bool(self.look(prices, room) or measured(room))
        )

    def look_alone(self, prices: Prices, allocator: BudgetAllocator) -> MeasureSums | Lack:
        """The look that a query can pay for, where no table will do."""
        window = self.known.window
        look = self.look(prices, allocator.room(window))
        return look or allocator.lack(window, lambda room: self.look(prices, room) is not None)

    def price(self, prices: Prices) -> float:
        """The share of each line that the cheapest look would take that alone is as precise as is demanded.

        It is in floats, and may be above 1: no line has to have it. All blocks get the same noise.
        """
        values, cheapest = WholeValues.spanning(self.known.asked), math.inf
        for shape, ratio in self._shapes(values):
            of_sums = np.ones(len(self.known.window))
            of_counts = ratio**2 * of_sums if shape.counts else 0.0 * of_sums
            score = self._scores(self._after(values, shape, of_sums, of_counts)).sum()
            rho = shape.rho(Fraction(1), Fraction(ratio) if shape.counts else None)
            cheapest = min(cheapest, float(rho) * float(score))
        return prices.share_of(cheapest)

    def variance_after(self, measure: MeasureSums) -> float:
        """The largest variance of any answer after a look, with sums in units of the largest value."""
        found = float(self.moments_after(measure).totals.max())
        if self.rows is None:
            return found
        looked, _, of_counts = self._looked(measure)
        precision = np.where(looked, 0.5 / of_counts, 0.0)
        return max(found, float(self.rows.variances_after_count(precision).sum(axis=1).max()))

    def moments_after(self, measure: MeasureSums) -> Moments:
        """The covariances of the answers after a look, with sums in units of the largest value."""
        looked, of_sums, of_counts = self._looked(measure)
        now = self.known.by_block
        then = self._after(measure.values, measure.shape, of_sums, of_counts)
        pairs = (then.totals, now.totals), (then.both, now.both), (then.counts, now.counts)
        chosen = (np.asarray(np.where(looked, *pair)) for pair in pairs)
        return Moments(*(each.sum(axis=1) for each in chosen))

    def _looked(self, measure: MeasureSums) -> tuple[npt.NDArray[np.bool_], Floats, Floats]:
        """The blocks that are looked at, and the variances of noise on sums and on counts, 1 elsewhere."""
        window = self.known.window
        of_sums, of_counts = np.ones(len(window)), np.ones(len(window))
        looked = np.zeros(len(window), dtype=np.bool_)
        for block, step, counted in measure.steps:
            at = block - window.start
            looked[at] = True
            of_sums[at] = float(grid_sigma(step)) ** 2
            of_counts[at] = float(grid_sigma(counted)) ** 2 if measure.shape.counts else 0.0
        return looked, of_sums, of_counts

    def _after(
        self, values: WholeValues, shape: SumShape, of_sums: Floats, of_counts: Floats
    ) -> Moments:
        """Covariances in each block after a look with these variances, of shape (len(window),)."""
        half, centre = 0.5 * values.unit / self.known.largest, float(shape.centre)
        of_totals = half * half * (of_sums + centre * centre * of_counts)
        return self.known.after(of_totals, half * centre * of_counts, of_counts)

    def look(self, prices: Prices, room: Units) -> MeasureSums | None:
        """The cheapest look at the sums that is precise enough; None if the room is too small.

        Args:
            prices: The prices of noise scales, in units of a line.
            room: Units that each block may spend, shape (len(window),).
        """
        if max(self.known.rows_by_block) > MOST_ROWS:
            return None
        values = WholeValues.spanning(self.known.asked)
        tried = [self._look_of(values, *each, prices, room) for each in self._shapes(values)]
        return min(filter(None, tried), key=lambda look: look.total, default=None)

    def _shapes(self, values: WholeValues) -> list[tuple[SumShape, float]]:
        """The centres worth trying, each with the best scale of counts as a part of that of sums."""
        query, low, high = self.known.query, values.low, values.high
        live, every_row = self.known.live, query.predicate.constant is True
        n_answers = len(self.known.sums.totals) if live is None else len(live)
        rests, blank = self.rows is not None, not self.known.total_known
        shape = SumShape(low, high, low + high, n_answers > 1, every_row, rests, blank)
        if self.demand.plain or not shape.counts:
            # Where all that is asked is a sum, its count comes along at a price that it can bear.
            return [(shape, shape.ratio())] if shape.fits else []
        twice = 2.0 * self.demand.slopes * (self.known.largest / values.unit)  # in units
        middle = min(max(round(float(twice.mean())), 2 * low), 2 * high)
        shapes = [replace(shape, centre=centre) for centre in {shape.centre, middle}]
        return [
            (tried, tried.ratio(float(np.abs(twice - tried.centre).max())))
            for tried in shapes
            if tried.fits
        ]

    def _look_of(
        self, values: WholeValues, shape: SumShape, ratio: float, prices: Prices, room: Units
    ) -> MeasureSums | None:
        grids, scales_of = self._grids(values, shape, ratio), _Scales(shape, ratio)

        def after(steps: Units) -> Floats:
            """The scores of the blocks if each is looked at with its step."""
            of_sums, of_counts = scales_of.variances(steps)
            rows = 0.5 / of_counts if shape.rests else None
            return self._scores(self._after(values, shape, of_sums, of_counts), rows)

        now = self._scores(self.known.by_block)
        first, can_pay = np.full(len(now), LAST_STEP, np.int64), np.zeros(len(now), np.bool_)
        for blocks, grid in grids:
            first[blocks], can_pay[blocks] = least_steps(room[blocks], partial(grid.least, prices))
        levels = water_fill(now, lowest_of(can_pay, after(first), now), 1.0)
        if levels is None:
            return None
        enough = coarsest(first, lambda tried: after(tried) <= levels * _TIE)
        steps, charges = [], []
        pays = levels < now
        for blocks, grid in grids:
            for at in (np.flatnonzero(pays[blocks]) + blocks.start).tolist():
                step, number = int(enough[at]), self.known.window[at]
                if grid.units(prices, step) > room[at]:
                    step = int(first[at])  # a finer step can cost less where scales are rounded
                steps.append((number, step, grid.of_counts(step)))
                charges.append(Charge(number, grid.units(prices, step)))
        return MeasureSums(shape, values, tuple(steps), tuple(charges))

    def _grids(
        self, values: WholeValues, shape: SumShape, ratio: float
    ) -> list[tuple[slice, _Scales]]:
        """The scales for the blocks of each version. They differ in price: each has a range of its own."""
        found, start = [], self.known.window.start
        for asked in self.known.asked:
            own = WholeValues.of(asked, values.unit)
            blocks = slice(asked.window.start - start, asked.window.stop - start)
            found.append((blocks, _Scales(replace(shape, low=own.low, high=own.high), ratio)))
        return found

    def _scores(self, moments: Moments, precision: Floats | None = None) -> Floats:
        """Returns the part of the demand that the worst variance of each block takes, shape (len(window),).

        Args:
            moments: Covariances of totals and counts, shape (answers, len(window)).
            precision: What a look adds to the precision of the count of all rows, shape (len(window),).
        """
        demand, of_counts = self.demand, moments.counts
        of_totals = moments.of(demand.slopes[:, None])
        scores = np.asarray((of_totals / demand.limits[:, None]).max(axis=0))
        if self.rows is not None and math.isfinite(demand.rows):
            nothing = np.zeros(len(scores))
            rows = self.rows.after_count(nothing if precision is None else precision)
            scores = np.maximum(scores, rows / demand.rows)
        elif self._rows_alike and math.isfinite(demand.rows):
            scores = np.maximum(scores, of_counts.max(axis=0) / demand.rows)
        return scores


class _Scales:
    """The two scales of a look, one of which follows from the other, and their price."""

    def __init__(self, shape: SumShape, ratio: float) -> None:
        self._shape = shape
        self._offset = GRID_STEPS * math.log2(ratio) if shape.counts else 0.0
        self._units: dict[int, int] = {}
        self._least: dict[int, int | None] = {}

    def of_counts(self, step: int) -> int:
        """The step of the counts that goes with a step of the sums."""
        return int(self._of_counts(np.array([step]))[0])

    def _of_counts(self, steps: Units) -> Units:
        if not self._shape.counts:
            return steps
        found = np.ceil(steps + self._offset - 1e-6).astype(np.int64)
        return np.asarray(np.clip(found, FIRST_STEP, LAST_STEP))

    def variances(self, steps: Units) -> tuple[Floats, Floats]:
        """Variances of the noise on sums and on counts, which is 0 where none are measured."""
        of_sums = np.square(scales()[steps - FIRST_STEP])
        if not self._shape.counts:
            return of_sums, np.zeros(len(steps))
        return of_sums, np.square(scales()[self._of_counts(steps) - FIRST_STEP])

    def units(self, prices: Prices, step: int) -> int:
        """Returns the price of a look with this step, rounded up."""
        units = self._units.get(step)
        if units is None:
            rho = self._shape.rho_at(step, self.of_counts(step))
            units = self._units[step] = prices.of(rho)
        return units

    def least(self, prices: Prices, units: int) -> int | None:
        """The most precise step that costs at most ``units``; None if none is that cheap."""
        if units not in self._least:
            steps = range(FIRST_STEP, LAST_STEP + 1)
            step = least(steps, lambda step: self.units(prices, step) <= units)
            self._least[units] = step if units > 0 and step in steps else None
        return self._least[units]
