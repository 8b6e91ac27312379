"""Answers that were given and serve again: a repeat is free, and its bar never grows."""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from struct import Struct
from typing import Any, Final, TypeAlias

from stream_dp.core.encoding import Format, fields, pack_window
from stream_dp.core.outcome import (
    Answered,
    Path,
    Quantile,
    Quantiles,
    Sum,
    Summed,
    TableAnswered,
    Use,
    Useful,
    width,
)
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.answer_maker import AnswerMaker, Row
from stream_dp.core.residual.belief.evidence import Belief
from stream_dp.core.residual.belief.sums import is_total
from stream_dp.core.residual.plan.planner import ROUNDING, Terms

_REMEMBERED = Format("remembered answer", 1)
"""Whether the answer was reached in stages, then a row of four floats for each of its numbers."""

_ONE: Final = Struct("<B?4d")
"""The same of one number, which is what most answers are: read and written at once."""

_Kept: TypeAlias = Answered | TableAnswered | Summed | Quantiles

_KEPT = Format("kept answer", 1)
"""How useful it is, what more would take, and floats: 4 of each count, 14 of each sum, 6 of each quantile."""

_OF_SUM: Final = 14
"""The floats of a sum: its numbers and their bars, and the ends of the count, the total and the mean."""

_GRADES: Final = tuple(Useful)

_CLOSE: Final = 1.0 + 1e-6
"""The factor by which a remembered bar may pass the error asked for: scales and bars are floats."""

_SMALLER: Final = 1.0 - 1e-9
"""The factor below which a bar is smaller by more than rounding."""

Seen: TypeAlias = tuple[int, int]
"""What can have changed the evidence about a query, as two numbers that only grow."""


class Repeats:
    """The verified answers of one data set.

    Args:
        shape: The sizes of the universe's attributes.
        terms_for: Returns the accuracy that a query asks for, as a share of its rows.
        belief: The public knowledge about all blocks.
        answers: Makes answers of what is known.
        best: Makes the answer of now from the best estimates; None where the first answer stays.
        seen: Returns what the evidence about a query rests on.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        terms_for: Callable[[LinearQuery], Terms],
        belief: Belief,
        answers: AnswerMaker,
        best: Callable[[LinearQuery], Answered | TableAnswered | None],
        seen: Callable[[LinearQuery], Seen],
    ) -> None:
        self._shape = shape
        self._terms_for = terms_for
        self._belief = belief
        self._answers = answers
        self._best = best
        self._seen = seen
        self._verified: dict[bytes, bytes] = {}
        self._fresh: dict[bytes, bytes] = {}
        self._as_of: dict[bytes, Seen] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Repeats:
        copy = Repeats(
            self._shape,
            deepcopy(self._terms_for, memo),
            deepcopy(self._belief, memo),
            deepcopy(self._answers, memo),
            deepcopy(self._best, memo),
            deepcopy(self._seen, memo),
        )
        copy._verified, copy._fresh = dict(self._verified), dict(self._fresh)
        copy._as_of = dict(self._as_of)
        return copy

    def remembered(self) -> dict[bytes, bytes]:
        """Returns what was remembered since the last call, to be stored."""
        fresh, self._fresh = self._fresh, {}
        return fresh

    def recall(self, remembered: dict[bytes, bytes]) -> None:
        """Takes back what was stored."""
        self._verified.update(remembered)

    def remember(self, query: LinearQuery, outcome: Answered | TableAnswered) -> None:
        """Remembers an answer that keeps its promise, unless one with a smaller bar is known."""
        key = _repeat_key(query)
        known = self._verified.get(key)
        if known is not None and not width(outcome) < _widest_of(self._read(query, known)[0]):
            return
        staged = query.target.relative is not None
        if isinstance(outcome, Answered):
            value = _ONE.pack(1, staged, *_row(outcome))
        else:
            rows = [fields("<4d", *_row(cell)) for cell in outcome.cells]
            value = _REMEMBERED.pack(fields("<?", staged), *rows)
        self._verified[key] = self._fresh[key] = value
        self._as_of[key] = self._seen(query)

    def keep(self, query: LinearQuery, outcome: _Kept, *, final: bool) -> None:
        """Remembers an answer that a look gave by itself: such looks are taken once for a query.

        Args:
            query: The query.
            outcome: Its answer.
            final: Whether it is the last look, and not a pilot.
        """
        assert outcome.use is not None, "it says how useful it is"
        cells = (outcome,) if isinstance(outcome, Answered) else outcome.cells
        rows = list(map(_row_of, cells))
        use = outcome.use
        head = fields(
            "<B?3d",
            _GRADES.index(use.useful),
            final,
            use.part,
            _or_nan(use.aim_price),
            _or_nan(use.rough_price),
        )
        width = len(rows[0])
        key = _kept_key(query)
        self._verified[key] = self._fresh[key] = _KEPT.pack(
            head, *(fields(f"<{width}d", *row) for row in rows)
        )

    def kept(self, query: LinearQuery) -> tuple[_Kept, bool] | None:
        """The answer that ``keep`` remembers, and whether its look was the last; None if there is none."""
        known = self._verified.get(_kept_key(query))
        if known is None:
            return None
        reader = _KEPT.read(known)
        useful, final, part, *prices = reader.fields("<B?3d")
        reader.require(useful < len(_GRADES))
        aim_price, rough_price = map(_or_none, prices)
        use = Use(_GRADES[useful], part, aim_price, rough_price)
        n_answers = math.prod(self._shape[a] for a in query.group_by)
        width = 6 if query.rank is not None else 4 if query.total is None else _OF_SUM
        rows = [reader.fields(f"<{width}d") for _ in range(n_answers)]
        reader.end()
        n, confidence = self._belief.rows(query.window), self._answers.confidence
        if query.rank is not None:
            found, attribute = tuple(map(_quantile_of_row, rows)), query.rank.attribute
            return Quantiles(attribute, found, n, confidence, Path.REPEAT, use=use), final
        if query.total is None:
            return replace(self._given(query, rows), use=use), final
        sums = tuple(map(_sum_of_row, rows))
        return Summed(sums, n, confidence, Path.REPEAT, use=use), final

    def answer(self, query: LinearQuery) -> Answered | TableAnswered | None:
        """Returns the remembered answer, or a better one of now, if it is as precise as the query asks."""
        key = _repeat_key(query)
        known = self._verified.get(key)
        if known is None:
            return None
        rows, staged = self._read(query, known)
        # An answer that was reached in stages has spent all of the failure probability.
        better = None if staged else self._better(query, key, rows)
        outcome = better or self._given(query, rows)
        bar = width(outcome)
        if query.target.relative is None:
            error = self._terms_for(query).error
        else:
            assert isinstance(outcome, Answered), "a relative error is of one count"
            error = query.target.relative * (outcome.value - bar)
        return outcome if bar <= error * _CLOSE + 2.0 * ROUNDING else None

    def _given(self, query: LinearQuery, rows: list[Row]) -> Answered | TableAnswered:
        return self._answers.answered(query, rows, self._belief.rows(query.window), Path.REPEAT)

    def _read(self, query: LinearQuery, known: bytes) -> tuple[list[Row], bool]:
        """The rows of a remembered answer, and whether it was reached in stages."""
        if not query.group_by and len(known) == _ONE.size and known[0] == 1:
            _, staged, *row = _ONE.unpack(known)
            return [tuple(row)], staged
        reader = _REMEMBERED.read(known)
        (staged,) = reader.fields("<?")
        n_answers = math.prod(self._shape[a] for a in query.group_by)
        rows: list[Row] = [reader.fields("<4d") for _ in range(n_answers)]
        reader.end()
        return rows, staged

    def _better(
        self, query: LinearQuery, key: bytes, rows: list[Row]
    ) -> Answered | TableAnswered | None:
        """The answer to a repeat with smaller bars than it was given; None where nothing says more by now.

        A repeat picks the smaller of two bars. Those of best estimates hold at all times at once, and leave a
        fifth of the failure probability to the bounds that the first answer may rest on.
        """
        known = self._belief.total_known
        if query.predicate.constant is False or is_total(
            query.predicate, query.group_by, known=known
        ):
            return None
        seen = self._seen(query)
        if self._as_of.get(key) == seen:
            return None
        before = [bar for _, bar, _, _ in rows]
        better = self._best(query)
        if better is None:
            self._as_of[key] = seen
            return None
        cells = better.cells if isinstance(better, TableAnswered) else (better,)
        pairs = [
            (math.inf if math.isnan(bar) else bar, _or_inf(cell.error_bar))
            for bar, cell in zip(before, cells, strict=True)
        ]
        if any(now > bar for bar, now in pairs) or not any(
            now < bar * _SMALLER for bar, now in pairs
        ):
            self._as_of[key] = seen
            return None
        return better


def _row_of(cell: Answered | Sum | Quantile) -> tuple[float, ...]:
    match cell:
        case Answered():
            return _row(cell)
        case Sum():
            return _row_of_sum(cell)
        case Quantile(likely, first, last, bar, rows):
            begin, end = (math.nan, math.nan) if likely is None else likely
            return begin, end, first, last, _or_nan(bar), rows


def _quantile_of_row(row: tuple[float, ...]) -> Quantile:
    begin, end, first, last, bar, rows = row
    likely = None if math.isnan(begin) else (int(begin), int(end))
    return Quantile(likely, int(first), int(last), _or_none(bar), rows)


def _row_of_sum(cell: Sum) -> tuple[float, ...]:
    bars = cell.total_bar, cell.mean, cell.mean_bar, cell.rows, cell.rows_bar
    ends = *cell.count_ends, *cell.total_ends, *(cell.mean_ends or (math.nan, math.nan))
    return (cell.count, _or_nan(cell.count_bar), cell.total, *map(_or_nan, bars), *ends)


def _sum_of_row(row: tuple[float, ...]) -> Sum:
    count, count_bar, total, total_bar, mean, mean_bar, rows, rows_bar, *ends = row
    return Sum(
        count,
        _or_none(count_bar),
        total,
        _or_none(total_bar),
        _or_none(mean),
        _or_none(mean_bar),
        _or_none(rows),
        _or_none(rows_bar),
        count_ends=(ends[0], ends[1]),
        total_ends=(ends[2], ends[3]),
        mean_ends=None if math.isnan(ends[4]) else (ends[4], ends[5]),
    )


def _row(answered: Answered) -> Row:
    return (
        answered.estimate,  # as it is: an end that is cut off twice would move
        _or_nan(answered.error_bar),
        _or_nan(answered.error_bar_simultaneous),
        _or_nan(answered.error_bar_anytime),
    )


def _widest_of(rows: list[Row]) -> float:
    """The same of a remembered answer."""
    return max(math.inf if math.isnan(bar) else bar for _, bar, _, _ in rows)


def _or_inf(bar: float | None) -> float:
    return math.inf if bar is None else bar


def _or_none(number: float) -> float | None:
    return None if math.isnan(number) else number


def _or_nan(bar: float | None) -> float:
    return math.nan if bar is None else bar


def _kept_key(query: LinearQuery) -> bytes:
    """What the one answer that is kept of a query has in common with those that are asked for it."""
    return query.key + pack_window(query.window) + fields("<2?", True, query.target.of_mean)


def _repeat_key(query: LinearQuery) -> bytes:
    """What a repeat has in common with the first: also the error, except for relative ones."""
    target = query.target
    staged, errors = target.relative is not None, (_or_nan(target.share), _or_nan(target.value))
    return query.key + pack_window(query.window) + fields("<?2d", staged, *errors)
