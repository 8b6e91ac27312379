"""Answers to queries for sums: totals, counts and means, each with the half width of its bar."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Final, TypeAlias

import numpy as np

from stream_dp.core.outcome import Path, Sum, Summed, ends_of
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.answers.count_answers import bars_of, each, finite
from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.belief.linear_forms import spread
from stream_dp.core.residual.belief.sums import (
    Pair,
    SumEvidence,
    is_total,
    least_deviations,
    rows_query,
)
from stream_dp.core.residual.plan.planner import ROUNDING
from stream_dp.core.residual.plan.sum_price import WholeValues, value_ends
from stream_dp.core.residual.public_state import PublicState

_NO_SUM: Final = Sum(0.0, 0.0, 0.0, 0.0, None, None)
"""The answer for a cell that no row can be in."""

_Bars: TypeAlias = tuple[tuple[float, float], tuple[float | None, float | None]]
"""A total and its half width, and a mean and its half width, in units of the largest value."""


def _bars_of(pair: Pair, z: float, least: float) -> _Bars:
    """A total and a mean as they were estimated, with their half widths.

    Args:
        pair: The estimates.
        z: The half width in standard deviations.
        least: Standard deviations that a count must be above zero for its mean to be told.
    """
    bar = pair.bar(z, least)
    mean = None if bar is None else pair.total / pair.rows
    return (pair.total, z * math.sqrt(pair.variances[0])), (mean, bar)


def summed(
    state: PublicState,
    query: LinearQuery,
    path: Path,
    evidence: SumEvidence | None = None,
    *,
    failure: float | None = None,
    at_opening: bool = False,
    all_times: float | None = None,
) -> Summed:
    """Sums and means; each bar holds for a query fixed beforehand.

    A mean is told where its count is above zero, with the confidence of the answer for all groups
    together. So no group without rows has one.

    Args:
        state: What is published.
        query: A query with a total.
        path: How the answer came about.
        evidence: What the answer rests on. None takes all that is known.
        failure: The probability with which each bar misses. None takes that of the data set.
        at_opening: Whether ``evidence`` is what was measured as phases opened.
        all_times: The probability with which the bar of the count of all rows misses at any time. None
            for a bar that holds if nobody chose what was measured.
    """
    assert query.total is not None, "the query has a total"
    n, unit = state.rows(query.window), query.total.largest
    failure = state.promise.failure if failure is None else failure
    evidence = state.sums(query) if evidence is None else evidence
    known, slack = evidence.sums, ROUNDING * n
    z, least = two_sided(math.log(failure)), least_deviations(max(1, len(known.counts)), failure)
    sure = partial(_bars_of, z=z, least=least)
    # What looks add up is rounded to units, by so much a row.
    rounded = WholeValues.spanning(evidence.asked).slack if evidence.looked else 0.0
    pairs = known.pairs
    bars: Iterator[_Bars] = map(sure, pairs)
    # Where values are kept, and no look says what the rows of some block count for, ends are all there is.
    if evidence.kept and not np.isfinite(known.moments.totals).all():
        bars = _between(state, query, sure, at_opening=at_opening)
    lows, highs = zip(*map(value_ends, evidence.asked), strict=True)
    values, cells = (min(lows), max(highs)), list[Sum]()
    for pair, ((total, half), (mean, bar)) in zip(pairs, bars, strict=True):
        half = (half + slack) * unit + rounded * n
        if mean is not None and bar is not None:
            mean, bar = mean * unit, bar * unit + rounded
        count, of_count = pair.rows, pair.variances[1]
        cells.append(
            _sum(
                (count, finite(z * math.sqrt(of_count) + slack)),
                (total * unit, finite(half)),
                (mean, bar),
                values,
                (count, count) if of_count == 0.0 else (0.0, float(n)),
            )
        )
    cells = spread(cells, known.live, _NO_SUM)
    if query.rows is not None:
        cells = _with_rows(state, query, cells, all_times)
    return Summed(tuple(cells), n, state.promise.confidence, path)


def _between(
    state: PublicState, query: LinearQuery, sure: Callable[[Pair], _Bars], *, at_opening: bool
) -> Iterator[_Bars]:
    """Totals and means of live answers between those of the least and of the largest values of all cells.

    Each of these is estimated, and the bar reaches to the far end of both (docs/proofs, Theorem 19).
    """
    ends = state.versions.sums_between(query, at_opening=at_opening)
    for pairs in zip(*(one.sums.pairs for one in ends), strict=True):
        (low, low_bar), (high, high_bar) = map(sure, pairs)
        mean: tuple[float | None, float | None] = None, None
        match low_bar, high_bar:
            case (float(least), float(below)), (float(largest), float(above)):
                mean = _hull(least, below, largest, above)
        yield _hull(*low, *high), mean


def _with_rows(
    state: PublicState, query: LinearQuery, cells: list[Sum], all_times: float | None
) -> list[Sum]:
    """The same with the count of all rows."""
    n, known = state.rows(query.window), state.belief.total_known
    every = rows_query(query, total_known=known)
    if every is None:
        assert query.rows is not None, "all rows are counted"
        public = is_total(query.rows, query.group_by, known=known)
        if query.rows == query.predicate and not public:
            return [replace(c, rows=c.count, rows_bar=c.count_bar) for c in cells]
        return [replace(cell, rows=float(n), rows_bar=0.0) for cell in cells]
    evidence = state.evidence(every)
    if all_times is None:
        reaches = each(bars_of(evidence, state.promise.z), len(evidence.values))
    else:
        reaches = state.answers.bars_at_all_times(evidence, all_times)
    bars = [finite(reach + ROUNDING * n) for reach in reaches]
    counts = evidence.values.clip(0.0, float(n)).tolist()
    found = spread(list(zip(counts, bars, strict=True)), evidence.form.live, (0.0, 0.0))
    return [
        replace(cell, rows=count, rows_bar=bar)
        for cell, (count, bar) in zip(cells, found, strict=True)
    ]


def _sum(
    counted: tuple[float, float | None],
    added_up: tuple[float, float | None],
    average: tuple[float | None, float | None],
    values: tuple[float, float],
    rows: tuple[float, float],
) -> Sum:
    """A sum of a cell, within what rows can count for.

    Args:
        counted: The estimated rows, and their half width.
        added_up: The same of the total, in the attribute's own unit.
        average: The same of the mean.
        values: The least and the largest value that a row can count for.
        rows: The fewest and the most rows that can count.
    """
    (count, count_bar), (total, total_bar), (mean, mean_bar) = counted, added_up, average
    lowest, highest = values
    if mean_bar is not None and mean_bar > highest - lowest > 0.0:
        mean_bar = None  # it says less than that a mean lies between the values
    fewest, most = rows
    ends = [number * value for number in rows for value in values]
    least, largest = min(ends), max(ends)
    mean_ends = None
    if mean is not None and mean_bar is not None:
        mean_ends = ends_of(mean, mean_bar, lowest, highest)
    return Sum(
        count=min(max(count, fewest), most),
        count_bar=count_bar,
        total=min(max(total, least), largest),
        total_bar=total_bar,
        mean=None if mean is None or mean_ends is None else min(max(mean, lowest), highest),
        mean_bar=mean_bar,
        count_ends=ends_of(count, count_bar, fewest, most),
        total_ends=ends_of(total, total_bar, least, largest),
        mean_ends=mean_ends,
    )


def _hull(low: float, below: float, high: float, above: float) -> tuple[float, float]:
    """The middle and the half width of what reaches from ``below`` under low to ``above`` over high."""
    middle = (low + high) / 2.0
    half = max(high + above - middle, middle - low + below)
    return (middle, math.inf) if math.isnan(half) else (middle, half)
