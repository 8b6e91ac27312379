"""The bins that a quantile may lie in: the true one is among them wherever two of all bars hold."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.core.published.quantile import hulls, likely, weights

Floats = npt.NDArray[np.float64]

histograms = st.lists(st.integers(0, 9), min_size=2, max_size=12).filter(sum).map(np.array)
ranks = st.sampled_from([0.0, 0.1, 0.25, 0.5, 0.9, 1.0])


def passed(counts: npt.NDArray[np.int64], rank: float) -> Floats:
    """By how much each bin but the last is passed, by exact counts."""
    bins = range(len(counts))
    return np.array([[weights(len(counts), bins, up_to, rank) @ counts for up_to in bins[:-1]]])


def true_place(counts: npt.NDArray[np.int64], rank: float) -> int:
    """The bin of the row at a rank, by sorting the rows."""
    rows = np.repeat(np.arange(len(counts)), counts)
    at = next(k for k in range(1, len(rows) + 1) if k >= rank * len(rows) - 1e-9)
    return int(rows[at - 1])


@given(histograms, st.sampled_from([0.1, 0.25, 0.5, 0.9]))
def test_exact_counts_leave_the_bin_of_the_row_at_the_rank(
    counts: npt.NDArray[np.int64], rank: float
) -> None:
    first, last = hulls(passed(counts, rank) + 1e-9, np.zeros((1, len(counts) - 1)))
    assert first.tolist() == last.tolist() == [true_place(counts, rank)]


@given(histograms, ranks, st.data())
def test_the_true_bin_stays_where_the_bars_of_its_two_ends_hold(
    counts: npt.NDArray[np.int64], rank: float, data: st.DataObject
) -> None:
    """All other bars may fail by any amount."""
    place, exact = true_place(counts, rank), passed(counts, rank) + 1e-9
    errors = [data.draw(st.floats(-50, 50)) for _ in counts[1:]]
    bars = np.array([[data.draw(st.floats(0.001, 20)) for _ in counts[1:]]])
    for end in (place - 1, place):
        if 0 <= end < len(errors):
            errors[end] = data.draw(st.floats(-0.999, 0.999)) * bars[0, end]
    noisy = exact + np.array([errors])
    (first,), (last,) = hulls(noisy, bars)
    assert first <= place <= last
    assert first <= likely(noisy)[0] <= last


@given(st.lists(st.floats(-9, 9), min_size=1, max_size=9), st.floats(0, 9))
def test_the_likely_bin_is_one_that_the_quantile_may_lie_in(noisy: list[float], bar: float) -> None:
    values = np.array([noisy])
    (first,), (last,) = hulls(values, np.full(values.shape, bar))
    assert first <= likely(values)[0] <= last


def test_wide_bars_leave_all_bins_and_groups_are_apart() -> None:
    values = np.array([[-5.0, 1.0, 9.0], [-5.0, -4.0, 9.0]])
    first, last = hulls(values, np.array([[2.0, 2.0, 2.0], [np.inf, np.inf, np.inf]]))
    assert (first.tolist(), last.tolist()) == ([1, 0], [2, 3])
    assert likely(values).tolist() == [1, 2]


def test_one_bin_is_certain() -> None:
    (first,), (last,) = hulls(np.empty((1, 0)), np.empty((1, 0)))
    assert (first, last, likely(np.empty((1, 0)))[0]) == (0, 0, 0)


def test_cells_that_no_row_can_be_in_weigh_nothing() -> None:
    assert weights(5, (1, 2, 4), 1, 0.25) == pytest.approx([0.0, 0.75, 0.75, 0.0, -0.25])
