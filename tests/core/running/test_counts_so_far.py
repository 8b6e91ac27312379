"""What the newest tick says about a query: sums of the cells of a tile, and the rest where all rows count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stream_dp.core.budget.parameters import Unit
from stream_dp.core.queries.query import EVERYTHING, NOTHING, LinearQuery, Predicate
from stream_dp.core.running.counts_so_far import CountsSoFar, counts_so_far
from stream_dp.core.running.running_totals import RunningTotals
from tests.core.residual.host import where
from tests.core.running.periods import BOTH, PAID, SIZES, STATUS, a_period, plan_of

ROWS = np.array([[5, 1, 0], [7, 2, 3], [0, 4, 6], [8, 9, 10]])
"""The rows of each status and second attribute that come in each tick."""

N_ROWS = 3 * int(ROWS.sum())
SECOND: dict[int, Any] = {1: [0, 2]}
MIXED = Predicate.of_mask((0, 1), np.eye(4, 3, dtype=bool))


def of_tile(tile: LinearQuery) -> Any:
    if tile is BOTH:
        return ROWS.T.reshape(-1)
    if tile is PAID:
        return [ROWS[0].sum()]
    return ROWS.sum(axis=1)


def period(*tiles: LinearQuery, unit: Unit | None = None) -> RunningTotals:
    totals, _ = a_period(plan_of(*tiles, unit=unit), lambda _: [*map(of_tile, tiles)])
    return totals


def asked(predicate: Predicate = EVERYTHING, *group_by: int) -> LinearQuery:
    return LinearQuery(predicate, range(1), group_by)


@pytest.mark.parametrize(
    ("tiles", "query", "counts", "cells"),
    [
        ((STATUS,), asked(EVERYTHING, 0), ROWS.sum(axis=1), 1),
        ((STATUS,), asked(where(SIZES, {0: [1, 3]})), [12 + 27], 2),
        ((STATUS,), asked(where(SIZES, {0: [0, 1, 3]})), [6 + 12 + 27], 1),
        ((STATUS,), asked(where(SIZES, {0: [1]}), 0), [0, 12, 0, 0], [0, 1, 0, 0]),
        ((BOTH,), asked(EVERYTHING, 0, 1), ROWS.reshape(-1), 1),
        ((BOTH,), asked(EVERYTHING, 1, 0), ROWS.T.reshape(-1), 1),
        ((BOTH,), asked(EVERYTHING, 1), ROWS.sum(axis=0), 4),
        ((BOTH,), asked(where(SIZES, SECOND), 0), ROWS[:, [0, 2]].sum(axis=1), 2),
        ((BOTH,), asked(MIXED), [5 + 2 + 6], 3),
        ((BOTH, STATUS), asked(EVERYTHING, 0), ROWS.sum(axis=1), 1),
        ((PAID,), asked(PAID.predicate), [6], 1),
        ((PAID,), asked(PAID.predicate.complement), [55 - 6], 1),
        ((PAID,), asked(), [55], 0),
        ((PAID,), asked(NOTHING), [0], 0),
    ],
)
def test_a_tile_determines_sums_of_its_cells(
    tiles: tuple[LinearQuery, ...], query: LinearQuery, counts: Any, cells: Any
) -> None:
    """Each of the cells that are added up has the variance of a total, whichever tile has the fewest."""
    totals = period(*tiles)
    found = counts_so_far(totals, query, N_ROWS)
    assert found is not None
    assert found.values == pytest.approx(3.0 * np.asarray(counts), abs=1e-8)
    variance = totals.plan.variance(3) * np.broadcast_to(cells, found.values.shape)
    assert found.variances == pytest.approx(variance)
    twice = found.plus(found)
    assert twice.variances == pytest.approx(2.0 * variance)
    assert twice.n_rows == 2 * N_ROWS
    nothing = CountsSoFar.nothing(len(found.values)).plus(found)
    assert (nothing.values == found.values).all()


@pytest.mark.parametrize(
    ("tiles", "query", "unit"),
    [
        ((STATUS,), asked(EVERYTHING, 1), None),
        ((STATUS,), asked(where(SIZES, SECOND)), None),
        ((STATUS,), asked(MIXED), None),
        ((PAID,), asked(EVERYTHING, 0), None),
        ((PAID,), asked(PAID.predicate, 0), None),
        ((PAID,), asked(where(SIZES, {0: [1]})), None),
        ((PAID,), asked(PAID.predicate.complement), Unit(1, 12)),
        ((PAID,), asked(), Unit(1, 12)),
    ],
)
def test_no_other_query_is_determined(
    tiles: tuple[LinearQuery, ...], query: LinearQuery, unit: Unit | None
) -> None:
    assert counts_so_far(period(*tiles, unit=unit), query, N_ROWS) is None
