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
from itertools import combinations, product

import numpy as np

from stream_dp.core.query import LinearQuery
from stream_dp.core.residual.belief.forms import MAX_SPECTRUM, form_of
from stream_dp.core.residual.belief.sums import form_of_total

ALL_PHASES = 7
"""Phases that a window of all phases counts as: until there are as many, its tile is asked on demand."""

WINDOWS = ((1, 0.25), (3, 0.25), (6, 0.5))
"""Phases and weights of the windows that generic queries are about."""


@dataclass(frozen=True, slots=True)
class Group:
    """Queries that need the same precision of the same residuals.

    Attributes:
        attributes: The attributes that the queries depend on, ascending.
        norms: |x_T|^2 for each subset T of these, in the order of ``forms.subsets``.
        windows: Phases of the windows asked, ascending, and the weight of each.
        table: Whether each query is a table; otherwise it is one number.
    """

    attributes: tuple[int, ...]
    norms: tuple[float, ...]
    windows: tuple[tuple[int, float], ...]
    table: bool = False


@dataclass(frozen=True, slots=True)
class Tile:
    """A query that a definition says will be asked in each phase.

    Attributes:
        query: The query; its window does not count.
        phases: The number of last phases that it is about; None for all.
        weight: How often it counts, next to a tile of weight 1.
    """

    query: LinearQuery
    phases: int | None
    weight: float = 1.0


def conjunction_norms(sizes: Sequence[int], selected: Sequence[int]) -> tuple[float, ...]:
    """The norms of a conjunction, from the number of cells that it selects of each attribute.

    Args:
        sizes: The cells of each attribute.
        selected: The cells that the condition on each attribute selects.
    """
    norms = [1.0]
    for size, cells in zip(sizes, selected, strict=True):
        share = cells / size
        norms = [n * part for n in norms for part in (share * share, share * (1.0 - share) * size)]
    return tuple(norms)


def generic_workload(
    shape: tuple[int, ...], windows: tuple[tuple[int, float], ...] = WINDOWS
) -> tuple[Group, ...]:
    """Conjunctions of up to three conditions, each order as often as the others.

    A condition selects one cell, a quarter or half of the cells of its attribute, one cell twice as often as
    each of the others. On wide data all conditions of a query select one cell or all select half, and where
    even that makes too many groups, there are no queries about three attributes.
    """
    d = len(shape)
    narrow = sum(math.comb(d, order) for order in (1, 2, 3)) <= _MOST_NARROW_SETS
    most = 3 if math.comb(d, 2) + math.comb(d, 3) <= _MOST_WIDE_SETS else 2
    orders = range(1, min(d, most) + 1)
    groups = []
    for order in orders:
        weight = 1.0 / (len(orders) * math.comb(d, order))
        for attributes in combinations(range(d), order):
            sizes = [shape[a] for a in attributes]
            for selected, chance in (_mixed if narrow else _alike)(sizes):
                norms = conjunction_norms(sizes, selected)
                each = tuple((phases, weight * chance * part) for phases, part in windows)
                groups.append(Group(attributes, norms, each))
    return tuple(groups)


def _mixed(sizes: Sequence[int]) -> Iterable[tuple[tuple[int, ...], float]]:
    """Cells selected of each attribute, chosen one by one, and the chance of the choice."""
    kinds = [sorted({1, max(1, round(size / 4)), max(1, size // 2)}) for size in sizes]
    totals = [len(cells) + 1.0 for cells in kinds]
    for selected in product(*kinds):
        yield (
            selected,
            math.prod(
                (2.0 if cells == 1 else 1.0) / total
                for cells, total in zip(selected, totals, strict=True)
            ),
        )


def _alike(sizes: Sequence[int]) -> Iterable[tuple[tuple[int, ...], float]]:
    """One cell of every attribute, or half of every attribute."""
    yield (1,) * len(sizes), 0.5
    yield tuple(max(1, size // 2) for size in sizes), 0.5


def declared_workload(tiles: Sequence[Tile], shape: tuple[int, ...]) -> tuple[Group, ...]:
    """The groups of tiles. Their weights are those of the tiles.

    Of tiles that differ in their window only, the one of the shortest window counts: once it is certified,
    the longer ones are certified too. So asking for the longer ones never costs anything on its own.
    Sums of values that are kept of rows are left out: no table measured in advance knows them.
    """
    queries: dict[bytes, LinearQuery] = {}
    windows: dict[bytes, int] = {}
    weights: dict[bytes, float] = {}
    for tile in tiles:
        if tile.query.total is not None and tile.query.total.kept is not None:
            continue
        key = tile.query.key
        queries[key] = tile.query
        phases = ALL_PHASES if tile.phases is None else tile.phases
        windows[key] = min(phases, ALL_PHASES, windows.get(key, ALL_PHASES))
        weights[key] = max(tile.weight, weights.get(key, 0.0))
    return tuple(_group(query, shape, windows[key], weights[key]) for key, query in queries.items())


def too_many_cells(query: LinearQuery, shape: tuple[int, ...]) -> bool:
    """Whether the attributes of a query have more cells together than can be planned for."""
    return math.prod(shape[a] + 1 for a in query.attributes) > MAX_SPECTRUM


def _group(query: LinearQuery, shape: tuple[int, ...], phases: int, weight: float) -> Group:
    attributes = query.attributes
    windows = ((phases, weight),)
    predicate = query.predicate
    if query.total is None and (predicate.constant or predicate.factors is not None):
        # A cell of a table: one cell of each grouped attribute, and the conditions on the others.
        conditions = dict(zip(predicate.attributes, predicate.factors or (), strict=False))
        selected = [
            1 if a in query.group_by else int(np.count_nonzero(conditions[a])) for a in attributes
        ]
        norms = conjunction_norms([shape[a] for a in attributes], selected)
    else:
        form = (form_of if query.total is None else form_of_total)(query, shape)
        # The largest part of each cell: no cell needs more than this.
        norms = tuple(form.norms.max(axis=0).tolist())
        attributes = form.attributes
    return Group(attributes, norms, windows, bool(query.group_by))


_MOST_NARROW_SETS = 64
_MOST_WIDE_SETS = 512

__all__ = [
    "ALL_PHASES",
    "WINDOWS",
    "Group",
    "Tile",
    "conjunction_norms",
    "declared_workload",
    "generic_workload",
    "too_many_cells",
]
