"""The numbers by which bins are passed: estimates and variances as linear algebra on all cells has them."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest

from stream_dp.core.published.quantile import weights
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate, Rank
from stream_dp.core.residual.belief.evidence import Belief
from stream_dp.core.residual.belief.rank_forms import rank_forms, rank_places

Floats = npt.NDArray[np.float64]
GROUPS, BINS, SCALE = 3, 5, 20.0
SHAPE = (GROUPS, BINS)


def noisy_table() -> Floats:
    draw = np.random.default_rng(1)
    return np.asarray(draw.integers(10, 90, SHAPE) + draw.normal(0.0, SCALE, SHAPE))


def known(table: Floats, *, total_known: bool, n_rows: int = 700) -> Belief:
    belief = Belief(SHAPE, total_known=total_known)
    belief.open_block(n_rows)
    belief.absorb_table((0, 1), 0, table, SCALE**2)
    return belief


@pytest.mark.parametrize("total_known", [True, False])
@pytest.mark.parametrize("group_by", [(), (0,)])
@pytest.mark.parametrize("rank", [0.0, 0.5, 0.9])
def test_estimates_and_variances_are_those_of_all_cells(
    group_by: tuple[int, ...], rank: float, *, total_known: bool
) -> None:
    table, n_rows = noisy_table(), 700
    belief = known(table, total_known=total_known, n_rows=n_rows)
    query = LinearQuery(EVERYTHING, range(1), group_by, rank=Rank(1, rank, tuple(range(BINS))))
    found = belief.passed(query, rank_forms(query, SHAPE))
    assert len(found) == BINS, "one for each bin but the last, and the number of rows"
    # Where the number of rows is public, the noise has no part in the direction of all ones.
    n_cells = table.size
    ones = np.ones(n_cells)
    centre = np.eye(n_cells) - np.outer(ones, ones) / n_cells if total_known else np.eye(n_cells)
    best = table.ravel() + total_known * (n_rows - table.sum()) / n_cells
    for place, evidence in enumerate(found[:-1]):
        along = weights(BINS, range(BINS), place, rank)
        for group in range(GROUPS if group_by else 1):
            cells = np.zeros(SHAPE)
            cells[group if group_by else slice(None)] = along
            form = cells.ravel()
            at = group if len(evidence.variances) > 1 else 0
            assert evidence.values[group] == pytest.approx(form @ best)
            assert evidence.variances[at] == pytest.approx(SCALE**2 * form @ centre @ form)


@pytest.mark.parametrize("rank", [0.25, 0.9])
def test_an_unknown_number_of_rows_errs_too(rank: float) -> None:
    """The formula of Theorem 23 for one table: j bins up to the edge, and n in all."""
    belief = Belief((BINS,), total_known=False)
    belief.open_block(700)
    belief.absorb_table((0,), 0, noisy_table()[0], SCALE**2)
    query = LinearQuery(EVERYTHING, range(1), rank=Rank(0, rank, tuple(range(BINS))))
    found = belief.passed(query, rank_forms(query, (BINS,)))
    for j, evidence in enumerate(found[:-1], start=1):
        of_one = j * (1.0 - rank) ** 2 + (BINS - j) * rank**2
        assert math.sqrt(evidence.variances[0]) == pytest.approx(SCALE * math.sqrt(of_one))


def test_a_known_number_of_rows_does_not_err() -> None:
    belief = Belief((BINS,))
    belief.open_block(700)
    belief.absorb_table((0,), 0, noisy_table()[0], SCALE**2)
    query = LinearQuery(EVERYTHING, range(1), rank=Rank(0, 0.5, tuple(range(BINS))))
    *passed, of_rows = belief.passed(query, rank_forms(query, (BINS,)))
    for j, evidence in enumerate(passed, start=1):
        of_one = j * (BINS - j) / BINS
        assert of_one <= min(j, BINS - j)
        assert math.sqrt(evidence.variances[0]) == pytest.approx(SCALE * math.sqrt(of_one))
    assert of_rows.values[0] == pytest.approx(700)
    assert of_rows.variances[0] == 0.0


def test_counts_of_the_table_that_were_measured_for_it_add_their_precision() -> None:
    table = noisy_table()
    belief = known(table, total_known=False)
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
    table = noisy_table()
    belief = known(table, total_known=False)
    chosen = np.array([False, True, True, True, False])
    query = LinearQuery(
        Predicate.conjunction({1: chosen}), range(1), (0,), rank=Rank(1, 0.5, (1, 2, 3))
    )
    *passed, of_rows = belief.passed(query, rank_forms(query, SHAPE))
    assert len(passed) == 2
    assert of_rows.values == pytest.approx(table[:, 1:4].sum(axis=1))
    assert passed[0].values == pytest.approx(table[:, 1] - table[:, 1:4].sum(axis=1) / 2)


@pytest.mark.parametrize("n_bins", [2, 9, 1_000, 1_100, 5_000, 60_000])
def test_with_very_many_bins_some_edges_stand_for_all(n_bins: int) -> None:
    query = LinearQuery(EVERYTHING, range(1), rank=Rank(0, 0.5, tuple(range(n_bins))))
    places = rank_places(query, (n_bins,))
    assert len(places) * n_bins <= 2**20
    assert places[-1] < n_bins - 1, "the last bin ends where all rows do"
    assert (len(places) == n_bins - 1) is (n_bins <= 1_000)
    gaps = {places[0] + 1, *np.diff(places).tolist(), n_bins - 1 - places[-1]}
    assert max(gaps) == places.step
