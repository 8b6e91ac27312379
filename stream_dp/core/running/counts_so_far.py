"""What the newest tick of an open period says about a query: the counts of a tile, added up."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from stream_dp.core.queries.query import EVERYTHING, LinearQuery
from stream_dp.core.residual.belief.linear_forms import Floats
from stream_dp.core.running.running_totals import RunningTotals, table_of


class CountsSoFar(NamedTuple):
    """What is known of the rows of open periods.

    Attributes:
        values: The counts, in rows, in the order of the query's answers, shape (n_answers,).
        variances: The variance of each, shape (n_answers,).
        n_rows: The number of rows that have come.
    """

    values: Floats
    variances: Floats
    n_rows: int

    @classmethod
    def nothing(cls, n_answers: int) -> CountsSoFar:
        """What is known before a period begins."""
        return cls(np.zeros(n_answers), np.zeros(n_answers), 0)

    def plus(self, other: CountsSoFar) -> CountsSoFar:
        """The same with the rows of another period, whose noise is independent."""
        values, variances = self.values + other.values, self.variances + other.variances
        return CountsSoFar(values, variances, self.n_rows + other.n_rows)


def counts_so_far(totals: RunningTotals, query: LinearQuery, n_rows: int) -> CountsSoFar | None:
    """What the newest tick of a period says about a query for counts, whatever its window.

    A table tells all that is asked about its attributes. A count or a table under a condition tells what is
    asked under just this condition. Where all rows count, it tells how many rows do not satisfy it, too.

    Args:
        totals: What the ticks of the period have published: at least one.
        query: The query.
        n_rows: The number of rows that came until the newest tick.

    Returns:
        The counts of the most precise tile. None if no tile determines the query.
    """
    known = totals.plan.promise.total_known and not query.group_by
    constant = query.predicate.constant
    if not query.group_by and (constant is False or (known and constant)):
        return CountsSoFar(np.array([float(n_rows if constant else 0)]), np.zeros(1), n_rows)
    found = []
    for tile in range(len(totals.plan.tiles)):
        if (inside := _added_up(totals, tile, query, outside=False)) is not None:
            found.append(inside)
        if known and (rest := _added_up(totals, tile, query, outside=True)) is not None:
            found.append((n_rows - rest[0], rest[1]))
    if not found:
        return None
    return CountsSoFar(*min(found, key=lambda one: one[1].max()), n_rows)


def _added_up(
    totals: RunningTotals, number: int, query: LinearQuery, *, outside: bool
) -> tuple[Floats, Floats] | None:
    """The counts that a tile tells, with their variances; None if it does not determine them.

    Args:
        totals: What the ticks have published.
        number: The number of the tile.
        query: The query.
        outside: Whether to count the rows that do not satisfy the condition.
    """
    plan, predicate = totals.plan, query.predicate
    tile = plan.tiles[number]
    axes = sorted(tile.group_by)
    needed = query.group_by
    if tile.predicate == EVERYTHING:
        needed = query.attributes
        sizes = [plan.promise.shape[a] if a in predicate.attributes else 1 for a in axes]
    elif tile.predicate.key != (predicate.complement_key if outside else predicate.key):
        return None
    if not set(needed) <= set(axes):
        return None
    estimate = totals.counts(number, totals.tick)
    table = table_of(plan, number, estimate.values)
    counted = np.ones(table.shape)
    if tile.predicate == EVERYTHING:
        mask = ~predicate.mask if outside else predicate.mask
        counted = counted * mask.reshape(sizes)
    kept = [axis for axis in axes if axis in query.group_by]
    order = [kept.index(axis) for axis in query.group_by]
    summed = tuple(place for place, axis in enumerate(axes) if axis not in kept)

    def answers(cells: Floats) -> Floats:
        return np.asarray(cells.sum(axis=summed).transpose(order).reshape(-1), dtype=np.float64)

    return answers(table * counted), estimate.variance * answers(counted)
