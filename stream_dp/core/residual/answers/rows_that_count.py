"""The rows that count, where their number is private: how many they are, and counts as shares of them.

A share is a ratio of two estimates. Its bar covers all ratios that are possible, and is put around the ratio
of the numbers that stand in the answer (docs/proofs, Theorem 21).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeAlias

from stream_dp.core.budget.parameters import Target
from stream_dp.core.outcome import (
    Answered,
    Outcome,
    Quantiles,
    RowsThatCount,
    Sum,
    Summed,
    TableAnswered,
)
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.answers.count_answers import bars_of, each, finite
from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.belief.sums import ratio_bar
from stream_dp.core.residual.looks.counted_rows import FAILURE, CountedRows
from stream_dp.core.residual.plan.planner import ROUNDING
from stream_dp.core.residual.public_state import PublicState

_Share: TypeAlias = tuple[float, float] | None
"""An estimated share of the rows that count, and its half width; None where nothing is known of it."""

_Count: TypeAlias = tuple[float, float | None]
"""A count that stands in an answer, and its half width in rows; None where none is known."""

_Ends: TypeAlias = tuple[float, float]
"""The fewest and the most rows that can count."""


def with_rows_that_count(
    state: PublicState, query: LinearQuery, outcome: Outcome, wider: float | None = None
) -> Outcome:
    """The same answer with what is known of the rows that count.

    Args:
        state: What is published. It says that their number is private.
        query: The query.
        outcome: Its answer.
        wider: A bar that misses a tenth less often is this many times as wide, at the most, where bars
            hold whatever others chose. None for an answer that rests on estimates.
    """
    if isinstance(outcome, Quantiles):
        counts = LinearQuery(query.predicate, query.window, query.group_by)
        evidence = state.evidence(counts)
        some: list[_Count] = [(0.0, None)] * evidence.form.n_answers
        known, *_ = among(state, counts, evidence, some)
        return replace(outcome, among=replace(known, share=None, share_bar=None))
    if not isinstance(outcome, Answered | TableAnswered | Summed):
        return outcome
    cells: Sequence[Answered | Sum] = (outcome,) if isinstance(outcome, Answered) else outcome.cells
    if wider is not None:
        found = among_apart(state, query.window, [_count(cell) for cell in cells], wider)
    else:
        target = Target() if isinstance(outcome, Summed) else query.target
        counts = replace(query, total=None, rows=None, difference=None, target=target, fresh=False)
        # The bar of a sum's count is another one than that of a query for the count.
        given = [(c.count, None) if isinstance(c, Sum) else _count(c) for c in cells]
        evidence = state.at_opening(counts) or state.evidence(counts)
        found = among(state, counts, evidence, given)
    match outcome:
        case Answered():
            return replace(outcome, among=found[0])
        case Summed():
            return replace(outcome, among=tuple(found))
        case TableAnswered():
            pairs = zip(outcome.cells, found, strict=True)
            return replace(outcome, cells=tuple(replace(cell, among=one) for cell, one in pairs))


def _count(cell: Answered | Sum) -> _Count:
    """The count of a cell, and its half width in rows."""
    if isinstance(cell, Sum):
        return cell.count, cell.count_bar
    return cell.count, None if cell.error_bar is None else cell.error_bar * cell.n


def among(
    state: PublicState, query: LinearQuery, evidence: Evidence, given: Sequence[_Count]
) -> list[RowsThatCount]:
    """What is known of the rows that count, and of counts as shares of them.

    Args:
        state: What is published.
        query: A query for counts.
        evidence: What the answer rests on.
        given: The counts that stand in the answer, shape (n_answers,).
    """
    live = evidence.form.live
    lives = [True] * len(given) if live is None else live.tolist()
    if evidence.rows_that_count is not None:
        of_live = [count for count, is_live in zip(given, lives, strict=True) if is_live]
        rows, bar, shares = _among_by_tables(state, evidence, of_live)
    else:
        rows, bar, shares = _among_by_looks(state, query.window, evidence)
    known = _known(state, query.window, rows, bar)
    found = iter(shares)
    zero = replace(known, share=0.0, share_bar=0.0)
    return [
        _around(known, next(found), count) if is_live else zero
        for is_live, (count, _) in zip(lives, given, strict=True)
    ]


def among_apart(
    state: PublicState, window: range, given: Sequence[_Count], wider: float
) -> list[RowsThatCount]:
    """What is known of the rows that count, where nobody chose the bars of counts by their number.

    The looks at the number of rows have a tenth of the failure probability, and the bars the rest: so a
    share holds whatever else was measured (docs/proofs, Theorem 24).

    Args:
        state: What is published.
        window: The blocks.
        given: The counts that stand in the answer, shape (n_answers,).
        wider: A bar that misses a tenth less often is this many times as wide, at the most.
    """
    rows, of_rows, ends = _by_looks(state, window, FAILURE * state.promise.failure)
    known = _known(state, window, rows, of_rows)
    return [
        _around(known, _ratio(count, None if bar is None else bar * wider, rows, ends), count)
        for count, bar in given
    ]


def _known(state: PublicState, window: range, rows: float, bar: float) -> RowsThatCount:
    """What is known of the rows of a window that count, from their estimate and its half width."""
    n = float(state.rows(window))
    surplus = max(0.0, 1.0 - _counted(state).at_least(window) / n)
    return RowsThatCount(min(max(rows, 0.0), n), bar, surplus)


def _counted(state: PublicState) -> CountedRows:
    assert state.counted is not None, "where all rows count their number is public"
    return state.counted


def _by_looks(state: PublicState, window: range, failure: float) -> tuple[float, float, _Ends]:
    """The rows that count as the looks at their number tell, their half width, and their ends.

    Of a block whose look is missing, any number of rows may count. The ends miss with the probability
    ``failure``.
    """
    counted = _counted(state)
    found, variance = counted.estimate(window)
    unknown = sum(state.rows(range(b, b + 1)) for b in window if not counted.known(b))
    deviation = math.sqrt(variance)
    off = two_sided(math.log(failure)) * deviation
    bar = state.promise.z * deviation + unknown / 2.0
    return found + unknown / 2.0, bar, (found - off, found + unknown + off)


def _among_by_tables(
    state: PublicState, evidence: Evidence, given: Sequence[_Count]
) -> tuple[float, float, list[_Share]]:
    """The rows that count by published tables, their half width, and the share of each live answer.

    A table tells of the count and of all rows with the same noise. The bar of their ratio is Fieller's,
    as that of a mean is. An answer that only other counts bound has its bar from them, at a fifth of the
    failure probability, and the rest is for the number of rows.
    """
    assert evidence.rows_that_count is not None, "the caller asks for that"
    z, n_live = state.promise.z, len(evidence.values)
    rows, of_rows = evidence.rows_that_count
    off = two_sided(math.log(0.8 * state.promise.failure)) * math.sqrt(of_rows)
    shares: list[_Share] = []
    for count, of_count, both, (value, own) in zip(
        evidence.values.tolist(),
        each(evidence.variances.tolist(), n_live),
        each(evidence.covariances_with_total().tolist(), n_live),
        given,
        strict=True,
    ):
        if not math.isfinite(of_count):
            shares.append(_ratio(value, own, rows, (rows - off, rows + off)))
            continue
        # As many deviations as the count has, if it has more.
        wide = z if own is None or of_count == 0.0 else max(z, own / math.sqrt(of_count))
        bar = ratio_bar(count, rows, (of_count, of_rows), both, wide)
        shares.append(None if bar is None else (count / rows, bar + ROUNDING))
    return rows, z * math.sqrt(of_rows), shares


def _among_by_looks(
    state: PublicState, window: range, evidence: Evidence
) -> tuple[float, float, list[_Share]]:
    """The same where no table says how many rows count: by the looks at their number.

    A look decides how precise counts are, so its noise and theirs are not independent. Each therefore has
    half of the failure probability.
    """
    half = state.promise.failure / 2.0
    rows, bar, ends = _by_looks(state, window, half)
    bars = each(bars_of(evidence, two_sided(math.log(half))), len(evidence.values))
    counts = zip(evidence.values.tolist(), map(finite, bars), strict=True)
    return rows, bar, [_ratio(count, own, rows, ends) for count, own in counts]


def _ratio(count: float, bar: float | None, rows: float, ends: _Ends) -> _Share:
    """A count by a number of rows, and how far the ratios reach that both half widths leave; None for any."""
    fewest, most = ends
    if bar is None or fewest <= 0.0:
        return None
    share = count / rows
    low, high = max(0.0, count - bar) / most, max(0.0, count + bar) / fewest
    return share, max(high - share, share - low) + ROUNDING


def _around(known: RowsThatCount, share: _Share, count: float) -> RowsThatCount:
    """The same with the share that a count is, and a bar around that which covers as much."""
    if known.rows <= 0.0:
        return known if share is None else replace(known, share=share[0], share_bar=share[1])
    given = min(1.0, max(0.0, count / known.rows))
    if share is None:
        return replace(known, share=given)
    estimate, bar = share
    return replace(known, share=given, share_bar=bar + abs(given - estimate))
