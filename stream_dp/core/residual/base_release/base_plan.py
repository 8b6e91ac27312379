"""The base release: the tables that are measured of every new block at once, and the noise of each.

A base release is worth its price if it costs less than the queries that it certifies would cost one by one.
So the plan compares releases by

    worth = sum over the certified groups of (queries expected in a phase) * (price of one on demand)

minus their own cost, and takes the best one, or none if none is above 0. It is public: it follows from the
schema, the accuracy, the number of rows and the workload. ``docs/mechanisms.md`` works an example out, and
``docs/planning.md`` proves the three lemmas that the functions here name.

A table over attributes S with noise of variance sigma_S^2 has the weight w_S = 1/sigma_S^2. It costs
w_S (rho, replacing one row), or half of that where a row becomes blank. Its sums give the residual over T, a
subset of S, the precision w_S / prod over S without T of n_i. Precisions of several tables add up to p_T, and
a query with squared norms |x_T|^2 has the variance ``sum over T of |x_T|^2 / p_T``. An ordered attribute of
many cells is in S and T at one of its levels (``belief.levels``), and the same lemmas hold with products of
chains in place of subsets. The empty T stands for the number of rows. Where that is public it has no
variance; where a row becomes blank it must be measured as well, and S may be empty too.

All sizes scale: weights for a limit of V on the variance are those for 1, divided by V. So plans are made
once for V = 1, and a phase only picks one of them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array

from stream_dp.core.bisection import least
from stream_dp.core.budget.accountant import UNITS, Charge
from stream_dp.core.budget.parameters import Aim
from stream_dp.core.randomness.noise_sources import GRID_STEPS, grid_sigma
from stream_dp.core.residual.base_release.expected_queries import (
    ANYTHING,
    GENERIC_QUERIES,
    Expected,
    Group,
    generic_workload,
    is_wide,
    planned_axes,
    residual_price,
    standalone_price,
)
from stream_dp.core.residual.belief.levels import Axes, Part, axes_of
from stream_dp.core.residual.belief.linear_forms import Floats
from stream_dp.core.residual.looks import table_looks
from stream_dp.core.residual.looks.table_looks import TablesLook
from stream_dp.core.residual.plan.aim_rule import Deviations, opening_columns
from stream_dp.core.residual.plan.planner import (
    MAX_TABLE_CELLS,
    Prices,
    Terms,
    for_noise,
    step_below,
)
from stream_dp.core.residual.plan.promise import Promise

CAP = 0.25
"""The largest share of a line that a base release takes unasked."""

NAMED_CAP = 0.97
"""The same if the definition names the number of queries or the tiles."""


@dataclass(frozen=True, slots=True)
class BaseRelease:
    """The measurements that are taken of every new block at once.

    Attributes:
        tables: The components of each table (``Axes``), ascending, and its step on the public grid of scales.
            Where an attribute is counted cell by cell, its component is its index.
        units: The units that the release costs.
    """

    tables: tuple[tuple[Part, int], ...] = field(repr=False)
    units: int

    @classmethod
    def of(cls, tables: Iterable[tuple[Part, int]], prices: Prices) -> BaseRelease:
        """The release of these tables at its price."""
        some = tuple(tables)
        return cls(some, prices.total([step for _, step in some], prices.table))

    def look(self, shape: tuple[int, ...], reason: str, block: int) -> TablesLook:
        """The look that takes these measurements of a block."""
        axes, parts = axes_of(shape), []
        for table, step in self.tables:
            attributes, groups = axes.attributes(table), axes.groups(table)
            sizes = tuple(shape[a] for a in attributes)
            grouped = () if groups == sizes else groups
            parts.append(table_looks.Part(attributes, block, step, grouped))
        return TablesLook.of(reason, parts, shape, (Charge(block, self.units),))


NOTHING: Final = BaseRelease((), 0)
"""The release that measures nothing."""


@dataclass(frozen=True, slots=True)
class Optimum:
    """The cheapest weights found for some groups.

    Attributes:
        weights: The weight of each table, shape (tables,).
        cost: Their sum.
        bound: What no release by tables can go below (Lemma C).
    """

    weights: Floats
    cost: float
    bound: float


class Design:
    """Tables that a release may consist of, and the variance that their weights give each group.

    Args:
        axes: The attributes of the universe.
        groups: The workload. Groups whose tables have too many cells to draw noise for are never certified.
    """

    def __init__(self, axes: Axes, groups: Sequence[Group]) -> None:
        wanted = {g.attributes for g in groups if len(g.attributes) <= _MOST_ATTRIBUTES}
        self.tables = _drawable({t for table in wanted for t in _brought(axes, table)}, axes)
        brought = [_brought(axes, table) for table in self.tables]
        self._index = {t: i for i, t in enumerate(sorted(set().union(*brought)))}
        entries = [
            (self._index[t], j, precision)
            for j, of_table in enumerate(brought)
            for t, precision in of_table.items()
        ]
        self._reach = _matrix(entries, (len(self._index), len(self.tables)))
        self._reach_t = self._reach.T.tocsr()
        needs = [(g, needs_of(axes, g.attributes, g.norms)) for g in groups]
        # Something must be measured for a group, and all of it can be.
        covered = [(g, need) for g, need in needs if need and self._index.keys() >= need.keys()]
        self.groups = [g for g, _ in covered]
        entries = [
            (row, self._index[t], norm)
            for row, (_, need) in enumerate(covered)
            for t, norm in need.items()
        ]
        self.norms = _matrix(entries, (len(self.groups), len(self._index)))
        self._norms_t = self.norms.T.tocsr()
        self.alone = np.array([standalone_price(axes, g.attributes, g.norms) for g in self.groups])
        self._price = np.array([residual_price(axes, t) for t in self._index])

    def variances(self, weights: Floats) -> Floats:
        """The variance of each group, shape (groups,); infinite where a residual is not measured."""
        precision = self._reach @ weights
        found = self.norms @ _inverse(precision)
        if not precision.all():
            found[self.norms @ (precision == 0.0).astype(np.float64) > 0.0] = math.inf
        return np.asarray(found)

    def cheapest(
        self,
        rows: npt.NDArray[np.intp],
        limits: Floats,
        *,
        rounds: int = 150,
        tolerance: float = 0.02,
    ) -> Optimum:
        """The cheapest weights under which the groups ``rows`` have variances within ``limits``.

        It is the multiplicative algorithm of optimal design, and stops when Lemma C says that the cost is
        within ``tolerance`` of the least.
        """
        norms = self.norms[rows]
        norms.data = norms.data / np.repeat(limits, np.diff(norms.indptr))
        norms_t = norms.T.tocsr()
        weights = self._start(norms)
        chances = np.full(len(rows), 1.0 / len(rows))
        best, bound = (math.inf, weights), 0.0
        for turn in range(rounds):
            inverse = _inverse(self._reach @ weights)
            ratios = norms @ inverse
            gains = self._reach_t @ ((norms_t @ chances) * inverse * inverse)
            bound = max(bound, 2.0 * float(chances @ ratios) - float(gains.max()))
            worst = float(ratios.max())
            if worst < best[0]:
                best = worst, weights
            if best[0] <= (1.0 + tolerance) * bound:
                break
            weights = weights * np.sqrt(gains)
            weights /= weights.sum()
            chances = chances * (ratios if turn < _EAGER else np.sqrt(ratios))
            chances /= chances.sum()
        cost, weights = best
        weights = np.where(weights < _NEGLIGIBLE, 0.0, weights * cost)
        weights = weights * float((norms @ _inverse(self._reach @ weights)).max())
        return Optimum(weights, float(weights.sum()), bound)

    def _start(self, norms: csr_array) -> Floats:
        """The largest demand on each residual, from each group's own cheapest plan (Lemma B)."""
        price = np.maximum(self._price, _LEAST_PRICE)[norms.indices]
        roots = np.sqrt(norms.data * price)
        of_row = np.repeat(np.arange(norms.shape[0]), np.diff(norms.indptr))
        scale = np.bincount(of_row, roots, minlength=norms.shape[0])
        need = np.zeros(len(self._index))
        np.maximum.at(need, norms.indices, np.sqrt(norms.data / price) * scale[of_row])
        weights = np.maximum(need[[self._index[t] for t in self.tables]], _TINY)
        return np.asarray(weights / weights.sum())

    def most_worth(
        self, rows: npt.NDArray[np.intp], limits: Floats, worth: Floats, total: float
    ) -> Floats:
        """Weights of sum ``total`` that certify about the most worth.

        They climb the sum of worth * logistic(ln(limit / variance) / h), with h from 1.75 down to 0.35.
        The best weights on the way are returned.

        Args:
            rows: The group that each claim is about.
            limits: The variance that certifies each claim.
            worth: The worth of each claim.
            total: The sum of the weights.
        """
        part = worth / worth.sum()
        weights = np.full(len(self.tables), 1.0 / len(self.tables))
        best = -1.0, weights
        for turn in range(_CLIMB):
            h = _SHARP * (1.0 + 4.0 * max(0.0, 1.0 - 3.0 * turn / _CLIMB))
            inverse = 1.0 / np.maximum(self._reach @ weights * total, _TINIEST)
            ratios = (self.norms @ inverse)[rows] / limits
            certified = float(part @ (ratios <= 1.0))
            if certified > best[0]:
                best = certified, weights
            sure = 1.0 / (1.0 + np.exp(np.clip(np.log(ratios) / h, -_FAR, _FAR)))
            pull = np.bincount(
                rows, part * sure * (1.0 - sure) / (ratios * limits), minlength=len(self.groups)
            )
            gains = self._reach_t @ ((self._norms_t @ pull) * inverse * inverse)
            weights = weights * np.sqrt(gains / (weights @ gains))
            weights = np.maximum(weights, _FADED)
            weights /= weights.sum()
        weights = best[1]
        weights = np.where(weights < _DROPPED, 0.0, weights)
        return np.asarray(weights * (total / weights.sum()))


@dataclass(frozen=True, slots=True)
class _Claims:
    """The claims that a release may certify: groups about windows. One entry a claim.

    Attributes:
        rows: The group, as a row of the design.
        phases: The phases of the window: the variance of a block may be that many times V.
        alone: The least that certifies the claim by itself, at V = 1.
        worth: What its queries would cost one by one, at V = 1, as weight for that money.
    """

    rows: npt.NDArray[np.intp]
    phases: Floats
    alone: Floats
    worth: Floats


@dataclass(frozen=True, slots=True)
class _Plan:
    """One candidate, for V = 1.

    Attributes:
        weights: The weight of each table.
        cost: Their sum.
        worth: What the claims that it certifies are worth.
    """

    weights: Floats
    cost: float
    worth: float

    @property
    def gain(self) -> float:
        return self.worth - self.cost


class BasePlan:
    """The base releases of a schema under a workload. It is public, and planned when it is first needed.

    Args:
        axes: The attributes of the universe. Where the number of rows is private, a row becomes blank, and a
            table costs what a count costs.
        expected: The queries that are expected.
        terms: The accuracy, for a generic workload in which some queries are bounded. None certifies all.
        cap: The largest share of a line that a base release takes. None for ``NAMED_CAP`` if something is
            named, and else ``CAP``.

    Attributes:
        queries: Different queries expected in each phase.
    """

    def __init__(
        self,
        axes: Axes,
        expected: Expected = ANYTHING,
        terms: Terms | None = None,
        cap: float | None = None,
    ) -> None:
        self.expected = expected
        self.cap = (NAMED_CAP if expected.is_named else CAP) if cap is None else cap
        self._rho = 1.0 if axes.total_known else 0.5  # of a weight of 1
        groups, windows = expected.groups, expected.windows
        self._axes = planned_axes(axes) if groups is None else axes
        self._bounds = groups is None and terms is not None
        usual = GENERIC_QUERIES if groups is None else max(1, len(groups))
        if groups is None:
            if expected.are_new:  # each of them comes once for each phase of its window
                windows = tuple((phases, part / phases) for phases, part in windows)
            groups = generic_workload(self._axes, windows, terms)
        self.groups = groups
        self.queries = usual if expected.queries is None else expected.queries
        total = math.fsum(part for group in self.groups for _, part in group.windows)
        self._scale = self.queries / total if total else 0.0
        self._plans: dict[int, list[_Plan]] = {}
        self._scarce: dict[tuple[int, float], Floats] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> BasePlan:
        return self  # it is the same for all, and worked out once

    def release(self, n_rows: int, promise: Promise, share: float | None = None) -> BaseRelease:
        """Returns the tables that are measured of a block of ``n_rows`` rows.

        Args:
            n_rows: The rows of the block.
            promise: The promise of the data set.
            share: The part of the line to spend; None spends what is worth it.
        """
        limit, prices = variance_for(n_rows, promise.terms), promise.prices
        line = limit * float(promise.budget.rho) / self._rho
        if share is None:
            return self._worthwhile(limit, line, prices)
        if share == 0.0 or not len(self._claims.rows):
            return NOTHING
        weights = self._most_worth(_octave(line), share)
        weights = weights * (share * line / weights.sum())
        return self._rounded(weights, limit, share, prices)

    def one_by_one(self, n_rows: int, promise: Promise) -> float:
        """The part of a line that a query of the workload costs on average, if it is asked on demand."""
        line = variance_for(n_rows, promise.terms) * float(promise.budget.rho)
        prices = (
            part * (group.price / phases) for group in self.groups for phases, part in group.windows
        )
        return math.fsum(prices) * self._scale / self.queries / line

    @cached_property
    def whole_price(self) -> float:
        """The rho of the cheapest release that brings all of the workload to a variance of 1."""
        all_of_it = (
            Design(self._axes, generic_workload(self._axes)) if self._bounds else self._design
        )
        every = np.arange(len(all_of_it.groups))
        if not len(every):
            return math.inf
        return all_of_it.cheapest(every, np.ones(len(every))).cost * self._rho

    def _worthwhile(self, limit: float, line: float, prices: Prices) -> BaseRelease:
        """The candidate with the largest gain that fits."""
        most = self.cap * line
        octave = _octave(line)
        plans = [p for p in self._levels(octave) if p.cost * _GRID_SLACK <= most]
        if self._possible > line:
            plans += self._scarcity(octave, most)
        best = max(plans, key=lambda plan: plan.gain, default=None)
        if best is None or best.gain <= 0.0:
            return NOTHING
        return self._rounded(best.weights, limit, self.cap, prices)

    def _rounded(self, weights: Floats, limit: float, share: float, prices: Prices) -> BaseRelease:
        """The release whose scales are those of the weights, or as little coarser as a share allows.

        Args:
            weights: The weight of each table, for V = 1. Together they cost at most the share.
            limit: V.
            share: The part of a line that the release may cost.
            prices: The prices of noise scales.
        """
        used = np.flatnonzero(weights)
        scales = np.sqrt(limit / weights[used])
        coarser = np.linspace(1.0, _GRID_SLACK, _ROUNDINGS).tolist()

        def rounded(index: int) -> tuple[list[int], int]:
            steps = step_below(scales * coarser[index]).tolist()
            return steps, prices.total(steps, prices.table)

        # The finest rounding that the share allows; the last one always fits.
        finest = least(range(_ROUNDINGS - 1), lambda i: rounded(i)[1] <= share * UNITS)
        steps, units = rounded(finest)
        tables = (self._design.tables[j] for j in used.tolist())
        return BaseRelease(tuple(zip(tables, steps, strict=True)), units)

    def _scarcity(self, octave: int, most: float) -> list[_Plan]:
        """Releases of some totals up to the cap that certify about the most worth.

        They are for lines that could not pay for the queries of a single phase on demand.
        """
        if not len(self._claims.rows):
            return []
        found = []
        for part in _SCARCE_PARTS:
            weights = self._most_worth(octave, self.cap * part)
            found.append(self._judged(weights * (most * part / weights.sum())))
        return found

    def _levels(self, octave: int) -> list[_Plan]:
        """The cheapest releases for the claims up to each of some levels of price by worth.

        A claim that even alone costs more than the cap never counts: nothing is spent on it.
        """
        octave = min(octave, self._last_octave)
        if octave not in self._plans:
            self._plans[octave] = self._solved(octave)
        return self._plans[octave]

    def _solved(self, octave: int) -> list[_Plan]:
        claims = self._claims
        affordable = np.flatnonzero(
            (claims.alone <= self.cap * _weight(octave)) & (claims.worth > 0.0)
        )
        if not len(affordable):
            return []
        ratios = claims.alone[affordable] / claims.worth[affordable]
        order = affordable[np.argsort(ratios, kind="stable")]
        cuts = {round(len(order) * (i + 1) / _LEVELS) for i in range(_LEVELS)} - {0}
        return [self._judged(self._cheapest(order[:cut])) for cut in sorted(cuts)]

    def _cheapest(self, chosen: npt.NDArray[np.intp]) -> Floats:
        """The weights of the cheapest release that certifies all of these claims."""
        tightest = np.full(len(self._design.groups), math.inf)
        np.minimum.at(tightest, self._claims.rows[chosen], self._claims.phases[chosen])
        rows = np.flatnonzero(np.isfinite(tightest))
        return self._design.cheapest(rows, tightest[rows]).weights

    def _most_worth(self, octave: int, share: float) -> Floats:
        """Weights that certify about the most worth with this share of a line."""
        known = self._scarce.get((octave, share))
        if known is None:
            claims, total = self._claims, share * _weight(octave)
            known = self._design.most_worth(claims.rows, claims.phases, claims.worth, total)
            self._scarce[octave, share] = known
        return known

    def _judged(self, weights: Floats) -> _Plan:
        claims = self._claims
        variances = self._design.variances(weights)[claims.rows]
        certified = variances <= claims.phases * (1.0 + _SAME)
        return _Plan(weights, float(weights.sum()), float(claims.worth[certified].sum()))

    @cached_property
    def _possible(self) -> float:
        """Returns the worth of certifying everything."""
        return float(self._claims.worth.sum()) * (1.0 - _SAME)

    @cached_property
    def _last_octave(self) -> int:
        """From here on every claim is affordable, and larger lines have the same levels."""
        return _octave(float(self._claims.alone.max(initial=1.0)) / self.cap) + 1

    @cached_property
    def _design(self) -> Design:
        return Design(self._axes, self.groups)

    @cached_property
    def _claims(self) -> _Claims:
        found = [
            (row, phases, part * self._scale * self._worth(group, phases))
            for row, group in enumerate(self._design.groups)
            for phases, part in group.windows
        ]
        rows = np.array([row for row, _, _ in found], dtype=np.intp)
        phases = np.array(
            [1.0 if phases == 1 else phases / self.expected.several for _, phases, _ in found]
        )
        worth = np.array([worth for _, _, worth in found])
        return _Claims(rows, phases, self._design.alone[rows] / phases, worth)

    def _worth(self, group: Group, phases: int) -> float:
        """The weight that one query on demand would pay for, in the life of a block."""
        times = phases if self.expected.are_new else 1
        return times * (group.price / phases) / self._rho


def column_release(promise: Promise, aim: Aim, n_rows: int) -> BaseRelease:
    """Returns the single columns that are measured where the data set says how precise answers are to be.

    They are planned for windows of as many phases as the unit of the promise has.

    Args:
        promise: The promise of the data set.
        aim: What the data set aims at.
        n_rows: The rows of the block that count.
    """
    unit, prices = promise.budget.privacy.unit, promise.prices
    z, phases = Deviations.of(promise.accuracy).opening, 1 if unit is None else unit.phases
    found = opening_columns(promise.planned_shape, n_rows, aim, z, prices, phases=phases)
    return BaseRelease.of((((a,), step) for a, step in found), prices)


def base_plan(
    axes: Axes, expected: Expected = ANYTHING, terms: Terms | None = None, cap: float | None = None
) -> BasePlan:
    """The plan of a schema under a workload. Data sets that are alike share one, and plan once.

    Takes what ``BasePlan`` takes. The terms count only where they change the workload.
    """
    used = terms if expected.groups is None and is_wide(axes) else None
    return _shared_plan(axes, expected, used, cap)


_shared_plan = lru_cache(maxsize=32)(BasePlan)


class Reach:
    """The groups that base releases alone certify, if every phase has one.

    Args:
        axes: The attributes of the universe.
        release: The release of each phase.
        limit: The variance that certifies a query about one phase.
        several: How many times as precise one about several phases must be.
    """

    def __init__(
        self, axes: Axes, release: BaseRelease, limit: float, *, several: float = 1.0
    ) -> None:
        self._limit = limit
        self._several = several
        self._axes = axes
        self._precision: dict[Part, float] = {}
        for table, step in release.tables:
            weight = float(grid_sigma(step)) ** -2
            for t, precision in _brought(axes, table).items():
                self._precision[t] = self._precision.get(t, 0.0) + weight * precision

    def phases(self, attributes: tuple[int, ...], norms: Sequence[float]) -> float:
        """The least number of phases about which a query is certified; infinite for none.

        Args:
            attributes: The attributes of the query, ascending.
            norms: |x_T|^2 for each T, in the order of ``Layout``.
        """
        return float(self.windows(np.array(self.variance(attributes, norms))))

    def windows(self, variances: Floats) -> Floats:
        """The same for queries of which one phase says as much as these variances."""
        ratios = variances / self._limit
        several = np.maximum(2.0, np.ceil(ratios * self._several - _SAME))
        return np.where(ratios <= 1.0 + _SAME, 1.0, several)

    def variance(self, attributes: tuple[int, ...], norms: Sequence[float]) -> float:
        """The variance of a query about one phase; infinite if a residual is not measured."""
        needs = needs_of(self._axes, attributes, norms)
        return sum(norm * self.inverse_precision(t) for t, norm in needs.items())

    def inverse_precision(self, part: Part) -> float:
        """The variance of a query about one phase for each unit of |x_T|^2; infinite if T is not measured."""
        precision = self._precision.get(part, 0.0)
        return 1.0 / precision if precision else math.inf


def variance_for(n_rows: int, terms: Terms) -> float:
    """The variance that certifies a query about one phase. Perhaps no row counts: then plan for one."""
    return float((for_noise(terms.error) * max(1, n_rows) / terms.z) ** 2)


def _octave(line: float) -> int:
    """Lines are planned for in steps of 10%, rounded down."""
    return math.floor(math.log(line) / _STEP_LOG)


def _weight(octave: int) -> float:
    return math.exp(octave * _STEP_LOG)


def _brought(axes: Axes, table: Part) -> dict[Part, float]:
    """The parts that a table speaks of, and what a precision of 1 on each count of it brings to them.

    The empty part, which is the number of rows, is not among them where that is public.
    """
    layout = axes.layout(axes.attributes(table))
    levels = tuple(level for _, level in map(axes.of, table))
    return {layout.parts[i]: width / summed for i, summed, width in layout.spoken_of(levels)}


def needs_of(axes: Axes, attributes: tuple[int, ...], norms: Sequence[float]) -> dict[Part, float]:
    """The parts that must be measured for queries with these norms, without what is public."""
    parts = zip(axes.layout(attributes).parts, norms, strict=True)
    return {t: norm for t, norm in parts if norm > 0.0 and (t or not axes.total_known)}


def _inverse(precision: Floats) -> Floats:
    """1 by each precision, and 0 where nothing is measured."""
    return np.divide(1.0, precision, out=np.zeros_like(precision), where=precision > 0.0)


def _matrix(entries: Sequence[tuple[int, int, float]], shape: tuple[int, int]) -> csr_array:
    rows = [row for row, _, _ in entries]
    columns = [column for _, column, _ in entries]
    values = [value for _, _, value in entries]
    return csr_array((values, (rows, columns)), shape=shape, dtype=np.float64)


def _drawable(tables: set[Part], axes: Axes) -> list[Part]:
    """The smallest of the tables: those whose noise is drawn in seconds.

    Tables over the same attributes, which differ in their levels, are kept together or not at all.
    """
    together: dict[Part, list[Part]] = {}
    for table in tables:
        together.setdefault(axes.attributes(table), []).append(table)

    def cells(table: Part) -> int:
        return math.prod(axes.groups(table))

    kept, left = [], _MAX_BASE_CELLS
    for attributes in sorted(together, key=lambda t: (cells(t), t)):
        left -= sum(map(cells, together[attributes]))
        if cells(attributes) > MAX_TABLE_CELLS or left < 0:
            break
        kept += sorted(together[attributes], key=lambda t: (cells(t), t))
    return kept


_MAX_BASE_CELLS = 2**20
_MOST_ATTRIBUTES = 5
_LEVELS = 24
_SCARCE_PARTS = (0.25, 0.5, 0.75, 1.0)
_STEP_LOG = math.log(1.1)
_GRID_SLACK = 2.0 ** (2.0 / GRID_STEPS)
"""By how much rounding a scale down to the grid can raise its price."""
_SAME = 1e-9
_ROUNDINGS = 16
_EAGER = 60
_CLIMB = 150
_SHARP = 0.35
_FAR = 30.0
"""Where the logistic counts as flat: floats still tell its value from 0 and 1."""
_NEGLIGIBLE = 1e-7
_DROPPED = 1e-6
_FADED = 1e-9
_LEAST_PRICE = 1e-9
_TINY = 1e-12
_TINIEST = 1e-300
