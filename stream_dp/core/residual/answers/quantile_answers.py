"""Answers to queries for quantiles: the bins that they lie in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from stream_dp.core.outcome import Path, Quantile, Quantiles
from stream_dp.core.published.quantile import hulls, likely
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.answers.count_answers import bars_of, finite
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.belief.linear_forms import Floats, Mask, spread
from stream_dp.core.residual.belief.rank_forms import rank_places
from stream_dp.core.residual.plan.planner import ROUNDING
from stream_dp.core.residual.public_state import PublicState


def quantiles(
    state: PublicState,
    query: LinearQuery,
    evidence: Sequence[Evidence],
    error: float | None,
    path: Path,
) -> Quantiles:
    """The bins that quantiles lie in.

    A bar misses to either side with probability at most half of that of an answer (docs/proofs,
    Theorem 23).

    Args:
        state: What is published.
        query: A query for a quantile.
        evidence: What is known about each of ``rank_places``, and about the number of rows.
        error: The error asked for, as a share of the rows. None where it decided no look.
        path: How the answer came about.
    """
    values, bars = [each.values for each in evidence], list[Floats]()
    for each in evidence[:-1]:
        if error is None:
            bar = np.array(bars_of(each, state.promise.z_of_noise))
        else:
            bar, _ = state.answers.promised(each, error)
        bars.append(np.broadcast_to(bar + ROUNDING * each.n_rows, each.values.shape))
    return quantiles_within(state, query, values, bars, evidence[-1].form.live, path)


def quantiles_within(
    state: PublicState,
    query: LinearQuery,
    values: Sequence[Floats],
    bars: Sequence[Floats],
    live: Mask | None,
    path: Path,
) -> Quantiles:
    """The bins that quantiles lie in.

    Args:
        state: What is published.
        query: A query for a quantile.
        values: The estimates of each form of ``rank_forms``, live answers only.
        bars: The half widths around all of them but the last, which counts the rows.
        live: The answers that rows can be in. None for all of them.
        path: How the answer came about.
    """
    rank = query.rank
    assert rank is not None, "a quantile is asked"
    *passed, of_rows = values
    places = rank_places(query, state.shape)
    starts = [rank.bins[place] for place in (0, *(place + 1 for place in places))]
    ends = [rank.bins[place] for place in (*places, -1)]
    passes = widths = np.empty((len(of_rows), 0))
    if passed:
        passes, widths = np.stack(passed, axis=1), np.stack(list(bars), axis=1)
    first, last = hulls(passes, widths)
    found = last if rank.share == 0.0 else first if rank.share == 1.0 else likely(passes)
    widest = widths.max(axis=1, initial=0.0)
    cells: list[Quantile] = []
    for place, low, high, bar, rows in zip(
        *(one.tolist() for one in (found, first, last, widest, of_rows)), strict=True
    ):
        told = len(rank.bins) == 1 or (low, high) != (0, len(ends) - 1)
        likely_bins = (starts[place], ends[place]) if told else None
        cells.append(Quantile(likely_bins, starts[low], ends[high], finite(bar), rows))
    nothing = Quantile(None, rank.bins[0], rank.bins[-1], 0.0, 0.0)
    n, confidence = state.rows(query.window), state.promise.confidence
    return Quantiles(rank.attribute, tuple(spread(cells, live, nothing)), n, confidence, path)
