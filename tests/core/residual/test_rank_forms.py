"""The numbers by which bins are passed: estimates and variances as linear algebra on all cells has them."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from stream_dp.core.published.quantile import weights
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Rank
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.belief.rank_forms import rank_forms, rank_places
from tests.core.residual.host import where
from tests.core.residual.least_squares import Measured, belief_of, least_squares

Floats = npt.NDArray[np.float64]
GROUPS, BINS, SCALE = 3, 5, 20.0
SHAPE = (GROUPS, BINS)
DRAW = np.random.default_rng(1)
TABLE = DRAW.integers(10, 90, SHAPE) + DRAW.normal(0.0, SCALE, SHAPE)
KNOWN = Measured((0, 1), 0, TABLE, SCALE**2)


def passed(query: LinearQuery, *history: Measured, total_known: bool) -> tuple[Evidence, ...]:
    belief = belief_of(SHAPE, history, total_known=total_known)
    return belief.passed(query, rank_forms(query, SHAPE))


@pytest.mark.parametrize("total_known", [True, False])
@pytest.mark.parametrize("group_by", [(), (0,)])
@pytest.mark.parametrize("rank", [0.0, 0.5, 0.9])
def test_estimates_and_variances_are_those_of_all_cells(
    group_by: tuple[int, ...], rank: float, *, total_known: bool
) -> None:
    query = LinearQuery(EVERYTHING, range(1), group_by, rank=Rank(1, rank, tuple(range(BINS))))
    found = passed(query, KNOWN, total_known=total_known)
    assert len(found) == BINS, "one for each bin but the last, and the number of rows"
    for place, evidence in enumerate(found[:-1]):
        along = weights(BINS, range(BINS), place, rank)
        groups = np.eye(GROUPS) if group_by else np.ones((1, GROUPS))
        masks = [np.outer(group, along) for group in groups]
        best, least = least_squares(SHAPE, masks, [KNOWN], range(1), total_known=total_known)
        assert evidence.values == pytest.approx(best)
        assert np.broadcast_to(evidence.variances, least.shape) == pytest.approx(least)


@pytest.mark.parametrize("total_known", [True, False])
@pytest.mark.parametrize("rank", [0.25, 0.5, 0.9])
def test_an_unknown_number_of_rows_errs_too(rank: float, *, total_known: bool) -> None:
    """The formula of Theorem 23 for one table: j bins up to the edge, and n in all."""
    belief = belief_of((BINS,), [Measured((0,), 0, TABLE[0], SCALE**2)], total_known=total_known)
    query = LinearQuery(EVERYTHING, range(1), rank=Rank(0, rank, tuple(range(BINS))))
    *found, of_rows = belief.passed(query, rank_forms(query, (BINS,)))
    for j, evidence in enumerate(found, start=1):
        of_one = j * (1.0 - rank) ** 2 + (BINS - j) * rank**2
        if total_known:
            of_one = j * (BINS - j) / BINS
        assert math.sqrt(evidence.variances[0]) == pytest.approx(SCALE * math.sqrt(of_one))
    expected = (1000.0, 0.0) if total_known else (TABLE[0].sum(), BINS * SCALE**2)
    assert (of_rows.values[0], of_rows.variances[0]) == pytest.approx(expected)


def test_counts_of_the_table_that_were_measured_for_it_add_their_precision() -> None:
    belief = belief_of(SHAPE, [KNOWN], total_known=False)
    query = LinearQuery(EVERYTHING, range(1), (0,), rank=Rank(1, 0.5, tuple(range(BINS))))
    before = belief.passed(query, rank_forms(query, SHAPE))
    counts = np.arange(15.0)
    belief.absorb_count(query.table.key, 0, counts, 100.0)
    after = belief.passed(query, rank_forms(query, SHAPE))
    for place, (one, two) in enumerate(zip(before[:-1], after[:-1], strict=True)):
        along = weights(BINS, range(BINS), place, 0.5)
        own = 100.0 * float(along @ along)
        both = 1.0 / (1.0 / one.variances[0] + 1.0 / own)
        assert np.unique(two.variances) == pytest.approx(both)
        mixed = both * (one.values / one.variances[0] + counts.reshape(SHAPE) @ along / own)
        assert two.values == pytest.approx(mixed)


def test_a_condition_on_the_attribute_leaves_its_other_cells_out() -> None:
    inside = where(SHAPE, {1: (1, 2, 3)})
    query = LinearQuery(inside, range(1), (0,), rank=Rank(1, 0.5, (1, 2, 3)))
    *found, of_rows = passed(query, KNOWN, total_known=False)
    assert len(found) == 2
    assert of_rows.values == pytest.approx(TABLE[:, 1:4].sum(axis=1))
    assert found[0].values == pytest.approx(TABLE[:, 1] - TABLE[:, 1:4].sum(axis=1) / 2)


@pytest.mark.parametrize("n_bins", [2, 9, 1_000, 1_100, 5_000, 60_000])
def test_with_very_many_bins_some_edges_stand_for_all(n_bins: int) -> None:
    query = LinearQuery(EVERYTHING, range(1), rank=Rank(0, 0.5, tuple(range(n_bins))))
    places = rank_places(query, (n_bins,))
    assert len(places) * n_bins <= 2**20
    assert places[-1] < n_bins - 1, "the last bin ends where all rows do"
    assert (len(places) == n_bins - 1) is (n_bins <= 1_000)
    gaps = {places[0] + 1, *np.diff(places).tolist(), n_bins - 1 - places[-1]}
    assert max(gaps) == places.step
