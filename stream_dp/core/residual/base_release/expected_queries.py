"""The queries that a data set expects, as far as they decide how precise its tables must be.

A *group* stands for queries that have the same squared norms |x_T|^2 (``belief.forms``), and so the same
variance whatever the tables are. A workload is a list of groups with weights. It comes from tiles, which are
queries that a definition names, or it is the generic one: conditions on one to three attributes.

A workload promises nothing, and no answer depends on it. It only says what is worth measuring in advance.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, product
from typing import Final, TypeAlias

import numpy as np

from stream_dp.core.queries.query import LinearQuery, Mask
from stream_dp.core.residual.belief.bounds import one_sided
from stream_dp.core.residual.belief.levels import (
    Axes,
    Layout,
    LevelChain,
    Part,
    axes_of,
    range_norms,
)
from stream_dp.core.residual.belief.linear_forms import MAX_SPECTRUM, form_of
from stream_dp.core.residual.belief.rank_forms import rank_forms
from stream_dp.core.residual.belief.sums import form_of_total
from stream_dp.core.residual.plan.planner import Terms
from stream_dp.core.residual.plan.sum_price import SumShape, WholeValues

Kind: TypeAlias = tuple[tuple[int, ...], tuple[float, ...]]
"""The attributes that some queries depend on, ascending, and their |x_T|^2 for each T."""

ALL_PHASES = 7
"""Phases that a window of all phases counts as: until there are as many, its tile is asked on demand."""

WINDOWS = ((1, 0.25), (3, 0.25), (6, 0.5))
"""Phases of the windows of generic queries, and their parts of what a block is asked in its life."""


OF_COUNT: Final = 0.5
"""The rho of a count of variance 1. A table takes twice as much where the number of rows is public."""


@dataclass(frozen=True, slots=True)
class Group:
    """Queries that need the same precision of the same residuals.

    Attributes:
        attributes: The attributes that the queries depend on, ascending.
        norms: |x_T|^2 for each subset T of these, in the order of ``linear_forms.subsets``.
        windows: Phases of the windows asked, ascending, and the weight of each.
        price: The rho of one query about one phase on demand, if the variance it needs is 1. One about
            several phases takes a part of it of each line.
    """

    attributes: tuple[int, ...]
    norms: tuple[float, ...]
    windows: tuple[tuple[int, float], ...]
    price: float = OF_COUNT


GENERIC_QUERIES = 300
"""Different queries expected in each phase, if the definition does not say."""


@dataclass(frozen=True, slots=True)
class Expected:
    """The queries that a data set expects.

    Attributes:
        groups: The workload; None for the generic one.
        queries: Different queries expected in each phase; None for one a tile, or ``GENERIC_QUERIES``.
        new: Whether the queries of each phase are new ones. Those about m phases then ask about a block m
            times as often in its life. None says so where their number is given.
        windows: Phases of the windows of the generic workload, and their parts of what a block is asked in
            its life.
        several: How many times as precise a query about several phases must be as one about a single phase.
    """

    groups: tuple[Group, ...] | None = None
    queries: int | None = None
    new: bool | None = None
    windows: tuple[tuple[int, float], ...] = WINDOWS
    several: float = 1.0

    @property
    def is_named(self) -> bool:
        """Whether anything is said of them."""
        return self.groups is not None or self.queries is not None

    @property
    def are_new(self) -> bool:
        """Whether the queries of each phase are new ones."""
        return self.queries is not None if self.new is None else self.new


ANYTHING: Final = Expected()
"""What a data set expects that says nothing."""


@dataclass(frozen=True, slots=True)
class PlannedTile:
    """A query that a definition says will be asked in each phase.

    Attributes:
        query: The query; its window does not count.
        phases: The number of last phases that it is about; None for all.
        weight: How often it counts, next to a tile of weight 1.
    """

    query: LinearQuery
    phases: int | None
    weight: float = 1.0


def residual_price(axes: Axes, part: Part) -> float:
    """The weight of tables that a precision of 1 of a residual takes (Lemma A of ``docs/planning.md``).

    The number of rows, which is the empty residual, is free where it is public.
    """
    members = axes.members(part)
    price = math.prod(1.0 / c.widths[level] - 1.0 / c.widths[level - 1] for c, level in members)
    if not axes.total_known or any(level > 1 for _, level in members):
        return price
    # A public count of all rows makes residuals at level 1 cheaper, and no others.
    return price - math.prod(-1.0 / chain.size for chain, _ in members)


def standalone_price(axes: Axes, attributes: tuple[int, ...], norms: Sequence[float]) -> float:
    """The least weight of any tables that bring such a query to a variance of 1 (Lemma B).

    Args:
        axes: The attributes of the universe.
        attributes: Those that the query depends on, ascending.
        norms: |x_T|^2 for each T, in the order of ``Layout``.
    """
    parts = zip(norms, axes.layout(attributes).parts, strict=True)
    return sum(math.sqrt(norm * residual_price(axes, t)) for norm, t in parts if norm > 0.0) ** 2


def conjunction_norms(
    axes: Axes, attributes: tuple[int, ...], selected: Sequence[int]
) -> tuple[float, ...]:
    """The norms of a conjunction, from the number of cells that it selects of each attribute.

    Args:
        axes: The attributes of the universe.
        attributes: Those of the conjunction. A condition on one with more than one level is a range, and has
            the mean norms of all ranges of as many cells.
        selected: The cells that the condition on each attribute selects.
    """
    norms = [1.0]
    for attribute, cells in zip(attributes, selected, strict=True):
        parts = range_norms(axes.chains[attribute], cells).tolist()
        norms = [norm * part for norm in norms for part in parts]
    return tuple(norms)


def planned_axes(axes: Axes) -> Axes:
    """The axes by which the generic workload is planned: without levels where they make too many tables."""
    sums = [1, 0, 0, 0]  # the elementary symmetric sums count sets of attributes at any levels
    for chain in (chain for chain in axes.chains if chain.size > 1):
        for order in (3, 2, 1):
            sums[order] += chain.finest * sums[order - 1]
    if sum(sums[1 : _most_conditions(axes) + 1]) <= _MOST_TABLES:
        return axes
    return axes_of(tuple(axes.shape), total_known=axes.total_known)


def _most_conditions(axes: Axes) -> int:
    """The most conditions of a generic query."""
    d = sum(n > 1 for n in axes.shape)
    return min(d, 3 if math.comb(d, 2) + math.comb(d, 3) <= _MOST_WIDE_SETS else 2)


def is_wide(axes: Axes) -> bool:
    """Whether the generic workload is a plainer one, because of the number of attributes."""
    d = sum(n > 1 for n in axes.shape)
    return sum(math.comb(d, order) for order in (1, 2, 3)) > _MOST_NARROW_SETS


def generic_workload(
    axes: Axes,
    windows: tuple[tuple[int, float], ...] = WINDOWS,
    terms: Terms | None = None,
    *,
    order: int | None = None,
) -> tuple[Group, ...]:
    """Conjunctions of up to three conditions, each order as often as the others.

    A condition selects one cell, a quarter or half of the cells of its attribute, one cell twice as often as
    each of the others. Where the attribute has levels, the cells are neighbours. On wide data all conditions
    of a query select one cell or all select half, and where even that makes too many groups, there are no
    queries about three attributes.

    Args:
        axes: The attributes of the universe.
        windows: Phases and weights of the windows that each kind of query is about.
        terms: The accuracy promised. With it, wide data needs no table for a query that fewer of its
            conditions bound closely enough.
        order: The number of conditions, if only such queries are meant. There are none beyond what the
            workload has.
    """
    some, wide = [a for a, n in enumerate(axes.shape) if n > 1], is_wide(axes)
    d = len(some)
    orders = [k for k in range(1, _most_conditions(axes) + 1) if order in (None, k)]
    weights: dict[Kind, float] = {}
    for order in orders:
        weight = 1.0 / (len(orders) * math.comb(d, order))
        for attributes in combinations(some, order):
            sizes = [axes.shape[a] for a in attributes]
            for selected, chance in (_alike if wide else _mixed)(sizes):
                kind = attributes, conjunction_norms(axes, attributes, selected)
                if wide and terms is not None:
                    kind = bounding(axes, kind, selected, terms) or kind
                weights[kind] = weights.get(kind, 0.0) + weight * chance
    return tuple(
        Group(*kind, tuple((phases, weight * part) for phases, part in windows))
        for kind, weight in weights.items()
    )


def bounding(axes: Axes, kind: Kind, selected: Sequence[int], terms: Terms) -> Kind | None:
    """What must be known to bound a conjunction from above by all but one of its conditions.

    The rows that satisfy fewer conditions are an upper bound, and 0 is a lower one (``belief.bounds``). If
    rows were spread evenly over the cells, the others would hold for a known share of the rows. The answer is
    bounded if that share and its error bar are at most twice the error together. So the count of the others
    needs a known precision, which is often far cheaper than a certificate of its own.

    Args:
        axes: The attributes of the universe.
        kind: The attributes of the conjunction, and its norms.
        selected: The cells that the condition on each attribute selects.
        terms: The accuracy promised.

    Returns:
        The attributes and the norms of the cheapest such count, scaled so that a variance of V bounds the
        conjunction. None if certifying the conjunction itself costs less.
    """
    attributes, norms = kind
    if len(attributes) not in _SIDES:
        return None
    z = one_sided(terms.log_bounds_failure - math.log(_SIDES[len(attributes)]))
    found, least = None, standalone_price(axes, attributes, norms)
    for without in attributes:
        rest = {a: n for a, n in zip(attributes, selected, strict=True) if a != without}
        inner, cells = tuple(rest), tuple(rest.values())
        room = 2.0 * terms.error - math.prod(n / axes.shape[a] for a, n in rest.items())
        if room <= 0.0:
            continue
        easier = (room / terms.error * terms.z / z) ** 2
        needed = tuple(norm / easier for norm in conjunction_norms(axes, inner, cells))
        price = standalone_price(axes, inner, needed)
        if price < least:
            found, least = (inner, needed), price
    return found


_SIDES: Final = {2: 5, 3: 9}
"""The sides that share the probability of failing, by the number of conditions, if all are known."""


def _mixed(sizes: Sequence[int]) -> Iterable[tuple[tuple[int, ...], float]]:
    """Cells selected of each attribute, chosen one by one, and the chance of the choice."""
    kinds = [sorted({1, max(1, round(size / 4)), max(1, size // 2)}) for size in sizes]
    totals = [len(cells) + 1.0 for cells in kinds]
    for selected in product(*kinds):
        pairs = zip(selected, totals, strict=True)
        yield selected, math.prod((2.0 if cells == 1 else 1.0) / total for cells, total in pairs)


def _alike(sizes: Sequence[int]) -> Iterable[tuple[tuple[int, ...], float]]:
    """One cell of every attribute, or half of every attribute."""
    yield (1,) * len(sizes), 0.5
    yield tuple(max(1, size // 2) for size in sizes), 0.5


def declared_workload(tiles: Sequence[PlannedTile], axes: Axes) -> tuple[Group, ...]:
    """The groups of tiles. Their weights are those of the tiles.

    Of tiles that differ in their window only, the one of the shortest window counts: once it is certified,
    the longer ones are certified too. So asking for the longer ones never costs anything on its own.
    Sums of values that are kept of rows are left out: no table measured in advance knows them.
    """
    found: dict[bytes, tuple[LinearQuery, int, float]] = {}
    for tile in tiles:
        query = tile.query
        if query.total is not None and query.total.kept is not None:
            continue
        phases = min(tile.phases or ALL_PHASES, ALL_PHASES)
        _, shortest, weight = found.get(query.key, (query, phases, tile.weight))
        found[query.key] = query, min(phases, shortest), max(tile.weight, weight)
    return tuple(group_of(query, axes, phases, weight) for query, phases, weight in found.values())


def price_on_demand(query: LinearQuery, axes: Axes) -> float:
    """The rho of a query about one phase on demand, if the variance that it needs is 1."""
    if query.total is not None and query.total.kept is not None:
        return _price_of_look(query, blank=not axes.total_known)
    return group_of(query, axes).price


def too_many_cells(query: LinearQuery, shape: tuple[int, ...]) -> bool:
    """Whether the attributes of a query have more cells together than can be planned for."""
    return math.prod(shape[a] + 1 for a in query.attributes) > MAX_SPECTRUM


def group_of(query: LinearQuery, axes: Axes, phases: int = 1, weight: float = 1.0) -> Group:
    """The group of a query.

    Args:
        query: The query.
        axes: The attributes of the universe.
        phases: The phases of the windows that it is about.
        weight: How often it is asked.
    """
    attributes, predicate, shape = query.attributes, query.predicate, axes.shape
    if query.rank is not None:  # the largest part of each of its forms
        of_ranks = [form.norms.max(axis=0) for form, _ in rank_forms(query, shape)]
        norms: tuple[float, ...] = tuple(np.max(of_ranks, axis=0).tolist())
    elif query.total is None and (predicate.constant or predicate.factors is not None):
        # A cell of a table: one cell of each grouped attribute, and the conditions on the others.
        conditions = dict(zip(predicate.attributes, predicate.factors or (), strict=False))
        norms = (1.0,)
        for attribute in attributes:
            condition = None if attribute in query.group_by else conditions[attribute]
            parts = _norms_along(axes.chains[attribute], condition)
            norms = tuple(norm * part for norm in norms for part in parts)
    else:
        form = (form_of if query.total is None else form_of_total)(query, shape)
        # The largest part of each cell: no cell needs more than this.
        norms = tuple(form.norms.max(axis=0).tolist())
        attributes = form.attributes
    if query.total is not None:
        price = _price_of_sum(query, norms, axes.layout(attributes))
    else:
        price = (1 + (is_table(query) and axes.total_known)) * OF_COUNT
    return Group(attributes, norms, ((phases, weight),), price)


def is_table(query: LinearQuery) -> bool:
    """Whether the counts of a table answer a query; otherwise it is one number."""
    return bool(query.group_by) or query.rank is not None


def _price_of_sum(query: LinearQuery, norms: Sequence[float], layout: Layout) -> float:
    """The rho at which the cheaper of a sum look and a table gives a total a variance of 1 in one block."""
    of_table = math.fsum(
        norm
        * math.prod(c.size for c, level in zip(layout.chains, levels, strict=True) if not level)
        for norm, levels in zip(norms, layout.levels, strict=True)
        if any(levels) or not layout.total_known
    )
    if not layout.total_known:
        of_table *= 0.5
    return min(of_table, _price_of_look(query, blank=not layout.total_known))


def _price_of_look(query: LinearQuery, *, blank: bool) -> float:
    """The same for the sum look alone; infinite if its numbers are too large."""
    assert query.total is not None, "the query has a total"
    values = WholeValues.of(query)
    centre = values.low + values.high
    every = query.predicate.constant is True
    look = SumShape(values.low, values.high, centre, bool(query.group_by), every, blank=blank)
    if not look.fits:
        return math.inf
    # Noise of scale 1 on sums of twice the whole number less the centre, and of this scale on counts.
    ratio = look.ratio() if look.counts else 0.0
    rho = float(look.rho(Fraction(1), Fraction(ratio) if look.counts else None))
    half = 0.5 * values.unit / query.total.largest
    return rho * half * half * (1.0 + (centre * ratio) ** 2)


def _norms_along(chain: LevelChain, condition: Mask | None) -> Sequence[float]:
    """The norms of a condition on an attribute, or of any cell of one that is grouped by."""
    if chain.finest == 1:
        n_cells = 1 if condition is None else int(np.count_nonzero(condition))
        return tuple(range_norms(chain, n_cells).tolist())
    if condition is None:
        return tuple(chain.of_any_cell)
    return tuple(chain.norms(condition.astype(np.float64)))


_MOST_NARROW_SETS = 64
_MOST_WIDE_SETS = 512
_MOST_TABLES = 1200
