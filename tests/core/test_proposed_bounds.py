"""A fixed grid for numbers of unknown range, and the bounds and edges that a noisy table over it proposes."""

from __future__ import annotations

import math
from bisect import bisect_right
from fractions import Fraction

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.core.rows.attribute_versions import relation_of
from stream_dp.core.rows.attributes import Number
from stream_dp.core.rows.proposed_bounds import (
    ProposedBounds,
    WantedBounds,
    least_filled,
    proposed_bounds,
)
from stream_dp.number_grid import grid_edges

GRID, WHOLE = grid_edges(), grid_edges(whole=True)


def table(values: npt.ArrayLike, edges: tuple[float, ...] = GRID) -> npt.NDArray[np.int64]:
    """The rows of each cell, without noise."""
    cells = np.searchsorted(edges, np.asarray(values, dtype=np.float64), side="right")
    return np.bincount(cells, minlength=len(edges) + 1)


@pytest.mark.parametrize(
    ("value", "cell"),
    [
        (0, 201), (1, 242), (1.2, 242), (1.25, 243), (1.999, 245), (2, 246), (1000, 281),
        (2.0**-10, 202), (2.0**-11, 201), (2.0**40, 402), (1e30, 402),
        # Bins have their lower edge: -3 is the first of the bin from -3 to -2.5, and not the last one of 154.
        (-3, 155), (math.nextafter(-3, -4), 154), (-3.5, 154), (-(2.0**-10), 201), (-(2.0**41), 0),
    ],
)  # fmt: skip
def test_golden_cells(value: float, cell: int) -> None:
    assert len(GRID) + 1 == 403
    assert bisect_right(GRID, value) == cell


def test_an_edge_follows_from_its_exponent_and_two_bits() -> None:
    sizes: set[Fraction] = {
        Fraction(4 + step, 4) * Fraction(2) ** octave
        for octave in range(-10, 40)
        for step in range(4)
    }
    sizes.add(Fraction(2) ** 40)
    assert [Fraction(edge) for edge in GRID] == sorted([*sizes, *(-size for size in sizes)])
    whole = {size for size in sizes if size.denominator == 1}
    assert [Fraction(edge) for edge in WHOLE] == sorted(
        [*whole, Fraction(0), *(-size for size in whole)]
    )
    assert len(WHOLE) + 1 == 314


@pytest.mark.parametrize("whole", [False, True])
def test_bins_that_are_proposed_are_exact_in_the_rows_of_the_grid(whole: bool) -> None:
    edges = grid_edges(whole=whole)
    values = np.random.default_rng(1).lognormal(3.6, 1.0, 20_000)
    found = proposed_bounds(table(np.floor(values) if whole else values, edges), edges, 50, 12)
    assert found is not None
    old = Number("amount", edges, integer=whole, wanted=WantedBounds(12, 0.05))
    new = Number("amount", found.edges, integer=whole)
    assert relation_of(old, new).maybe.sum(axis=1).max() == 1
    between = Number("amount", (*found.edges, found.edges[-1] + 1.0), integer=whole)
    assert relation_of(old, between).maybe.sum(axis=1).max() == (
        1 if found.edges[-1] + 1.0 in edges else 2
    )


CASES: dict[str, tuple[list[tuple[float, int]], int, ProposedBounds | None]] = {
    # values and their rows, bins, and what is proposed where 50 rows fill a cell
    "an octave more": (
        [(8.0, 100), (100.0, 100)], 2, ProposedBounds(4.0, 224.0, (10.0,))
    ),
    "negative": ([(-100.0, 100), (-9.0, 100)], 2, ProposedBounds(-224.0, -4.0, (-96.0,))),
    "both signs": ([(-1.0, 100), (1.0, 100)], 2, ProposedBounds(-2.0, 2.5, (-0.875,))),
    "not across 0": ([(2.0**-10, 100)], 2, ProposedBounds(2.0**-10, 1.25 * 2.0**-9, (1.25 * 2.0**-10,))),
    "0 alone": ([(0.0, 100)], 12, ProposedBounds(-(2.0**-10), 2.0**-10, (-(2.0**-10), 2.0**-10))),
    "too small a group": ([(1.0, 100), (1e9, 49)], 2, ProposedBounds(0.5, 2.5, (1.0,))),
    "too few rows": ([(1.0, 49), (2.0, 49)], 12, None),
    "beyond the grid": ([(1e30, 100)], 12, ProposedBounds(2.0**39, 2.0**40, (2.0**39 * 1.75,))),
}  # fmt: skip


@pytest.mark.parametrize(("rows", "bins", "expected"), CASES.values(), ids=CASES)
def test_what_is_proposed(
    rows: list[tuple[float, int]], bins: int, expected: ProposedBounds | None
) -> None:
    counts = table([value for value, n in rows for _ in range(n)])
    assert proposed_bounds(counts, GRID, 50, bins) == expected


def test_the_first_cell_says_nothing_where_missing_values_are_in_it() -> None:
    counts = table([-1e300] * 100 + [8.0] * 100)
    sure, unsure = (proposed_bounds(counts, GRID, 50, 2, unsure=unsure) for unsure in (False, True))
    assert sure is not None
    assert unsure is not None
    assert (sure.low, unsure.low) == (-(2.0**40), 4.0)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    mean=st.floats(-4, 12),
    spread=st.floats(0.3, 2.0),
    sign=st.sampled_from([-1, 1]),
    bins=st.integers(2, 40),
    whole=st.booleans(),
)
def test_bins_have_about_equal_shares_of_a_known_distribution(
    seed: int, mean: float, spread: float, sign: int, bins: int, whole: bool
) -> None:
    """Without noise: no bin has more than its share and two cells, and next to nothing lies outside."""
    edges = grid_edges(whole=whole)
    values = sign * np.random.default_rng(seed).lognormal(mean, spread, 20_000)
    values = np.floor(values) if whole else values
    counts = table(values, edges)
    found = proposed_bounds(counts, edges, 1, bins)
    assert found is not None
    assert {*found.edges} <= {*edges}
    assert len(found.edges) < max(bins, 3)
    assert list(found.edges) == sorted({*found.edges})
    inside = (values >= found.low) & (values <= found.high)
    assert inside.all() or abs(values[~inside]).max() < 2.0**-9
    if len(found.edges) > 2:
        shares = table(values, found.edges) / len(values)
        assert shares.max() <= 1.0 / bins + 2.0 * counts.max() / len(values)


@pytest.mark.parametrize("sigma", [1.0, 2.5, 36.54, 81.7])
@pytest.mark.parametrize("failure", [0.01, 1e-9])
def test_an_empty_cell_is_taken_for_a_filled_one_as_seldom_as_is_said(
    sigma: float, failure: float
) -> None:
    """By the exact law of discrete Gaussian noise, and a threshold two lower would break it."""
    least = least_filled(sigma, failure, 403)
    every = np.arange(-int(40 * sigma), int(40 * sigma) + 1)
    law = np.exp(-(every**2) / (2 * sigma**2))
    law /= law.sum()

    def tail(at: int) -> float:
        return float(law[every >= at].sum())

    assert 403 * tail(least) <= failure
    assert 403 * tail(least - max(2, round(0.05 * sigma))) > failure
