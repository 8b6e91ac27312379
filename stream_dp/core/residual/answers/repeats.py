"""Answers that were given and serve again: a repeat is free, and its bar never grows."""

from __future__ import annotations

import math
from copy import copy, deepcopy
from dataclasses import replace
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from stream_dp.core.encoding import Format, Reader, fields, pack_window
from stream_dp.core.outcome import (
    Answered,
    Outcome,
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
from stream_dp.core.residual.answers.count_answers import Row
from stream_dp.core.residual.belief.measured_keys import Seen
from stream_dp.core.residual.belief.sums import is_total
from stream_dp.core.residual.plan.planner import ROUNDING

if TYPE_CHECKING:
    from stream_dp.core.residual.public_state import PublicState

_REMEMBERED = Format("remembered answer")
"""Whether the answer was reached in stages, then a row of four floats for each of its numbers."""

_ONE: Final = Struct("<B?4d")
"""The same of one number, which is what most answers are: read and written at once."""

_Kept: TypeAlias = Answered | TableAnswered | Summed | Quantiles

_KEPT = Format("kept answer")
"""How useful it is, what more would take, and floats: 4 of each count, 14 of each sum, 6 of each quantile."""

_OF_SUM: Final = 14
"""The floats of a sum: its numbers and their bars, and the ends of the count, the total and the mean."""

_GRADES: Final = tuple(Useful)

_NONE: Final = (math.nan, math.nan)
"""What is stored where there are no two numbers."""

_CLOSE: Final = 1.0 + 1e-6
"""The factor by which a remembered bar may pass the error asked for: scales and bars are floats."""

_SMALLER: Final = 1.0 - 1e-9
"""The factor below which a bar is smaller by more than rounding."""


class Repeats:
    """The verified answers of one data set.

    Args:
        state: What the data set has published.
    """

    def __init__(self, state: PublicState) -> None:
        self._state = state
        self._verified: dict[bytes, bytes] = {}
        self._fresh: dict[bytes, bytes] = {}
        self._as_of: dict[bytes, Seen] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> Repeats:
        found = Repeats(deepcopy(self._state, memo))
        for name in ("_verified", "_fresh", "_as_of"):
            setattr(found, name, copy(getattr(self, name)))
        return found

    def remembered(self) -> dict[bytes, bytes]:
        """Returns what was remembered since the last call, to be stored."""
        fresh, self._fresh = self._fresh, {}
        return fresh

    def recall(self, remembered: dict[bytes, bytes]) -> None:
        """Takes back what was stored."""
        self._verified.update(remembered)

    def remember(self, query: LinearQuery, outcome: Outcome) -> None:
        """Remembers an answer that keeps its promise, unless one with a smaller bar is known."""
        if not isinstance(outcome, Answered | TableAnswered):
            return
        if outcome.path in (Path.UNVERIFIED, Path.REPEAT):
            return
        key = self._repeat_key(query)
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
        self._as_of[key] = self._state.measured.seen(query)

    def keep(self, query: LinearQuery, outcome: _Kept, *, final: bool) -> None:
        """Remembers an answer that a look gave by itself: such looks are taken once for a query.

        Args:
            query: The query.
            outcome: Its answer.
            final: Whether it is the last look, and not a pilot.
        """
        assert outcome.use is not None, "it says how useful it is"
        cells = (outcome,) if isinstance(outcome, Answered) else outcome.cells
        rows, use = map(_row_of, cells), outcome.use
        prices = map(_or_nan, (use.aim_price, use.rough_price))
        head = fields("<B?3d", _GRADES.index(use.useful), final, use.part, *prices)
        value = _KEPT.pack(head, *(fields(f"<{len(row)}d", *row) for row in rows))
        key = self._kept_key(query)
        self._verified[key] = self._fresh[key] = value

    def kept(self, query: LinearQuery) -> tuple[_Kept, bool] | None:
        """The answer that ``keep`` remembers, and whether its look was the last; None if there is none."""
        known = self._verified.get(self._kept_key(query))
        if known is None:
            return None
        reader = _KEPT.read(known)
        useful, final, part, *prices = reader.fields("<B?3d")
        reader.require(useful < len(_GRADES))
        aim_price, rough_price = map(_or_none, prices)
        use = Use(_GRADES[useful], part, aim_price, rough_price)
        width = 6 if query.rank is not None else 4 if query.total is None else _OF_SUM
        rows = self._rows(query, reader, width)
        n, confidence = self._state.rows(query.window), self._state.promise.confidence
        if query.rank is not None:
            found, attribute = tuple(map(_quantile_of_row, rows)), query.rank.attribute
            return Quantiles(attribute, found, n, confidence, Path.REPEAT, use=use), final
        if query.total is None:
            return replace(self._given(query, rows), use=use), final
        sums = tuple(map(_sum_of_row, rows))
        return Summed(sums, n, confidence, Path.REPEAT, use=use), final

    def answer(self, query: LinearQuery) -> Answered | TableAnswered | None:
        """Returns the remembered answer, or a better one of now, if it is as precise as the query asks."""
        key = self._repeat_key(query)
        known = self._verified.get(key)
        if known is None:
            return None
        rows, staged = self._read(query, known)
        # An answer that was reached in stages has spent all of the failure probability.
        better = None if staged else self._better(query, key, rows)
        outcome = better or self._given(query, rows)
        bar = width(outcome)
        if query.target.relative is None:
            error = self._state.terms_for(query).error
        else:
            assert isinstance(outcome, Answered), "a relative error is of one count"
            error = query.target.relative * (outcome.value - bar)
        return outcome if bar <= error * _CLOSE + 2.0 * ROUNDING else None

    def _kept_key(self, query: LinearQuery) -> bytes:
        """What the one answer that is kept of a query has in common with those that are asked for it."""
        return self._rows_of(query) + fields("<2?", True, query.target.of_mean)

    def _repeat_key(self, query: LinearQuery) -> bytes:
        """What a repeat has in common with the first: also the error, except for relative ones."""
        target = query.target
        staged, errors = target.relative is not None, (_or_nan(target.share), _or_nan(target.value))
        return self._rows_of(query) + fields("<?2d", staged, *errors)

    def _rows_of(self, query: LinearQuery) -> bytes:
        """What is asked, and of which rows: a block that gets late rows has others from then on."""
        filled = self._state.n_filled(query.window)
        late = fields("<I", filled) if filled else b""
        return query.key + pack_window(query.window) + late

    def _given(self, query: LinearQuery, rows: list[Row]) -> Answered | TableAnswered:
        return self._state.answers.answered(query, rows, Path.REPEAT)

    def _read(self, query: LinearQuery, known: bytes) -> tuple[list[Row], bool]:
        """The rows of a remembered answer, and whether it was reached in stages."""
        if not query.group_by and len(known) == _ONE.size and known[0] == 1:
            _, staged, *row = _ONE.unpack(known)
            return [tuple(row)], staged
        reader = _REMEMBERED.read(known)
        (staged,) = reader.fields("<?")
        return self._rows(query, reader, 4), staged

    def _rows(self, query: LinearQuery, reader: Reader, width: int) -> list[Row]:
        """The rows of all answers of a query, which are the rest of what is read."""
        n_answers = math.prod(self._state.shape[a] for a in query.group_by)
        rows: list[Row] = [reader.fields(f"<{width}d") for _ in range(n_answers)]
        reader.end()
        return rows

    def _better(
        self, query: LinearQuery, key: bytes, rows: list[Row]
    ) -> Answered | TableAnswered | None:
        """The answer to a repeat with smaller bars than it was given; None where nothing says more by now.

        A repeat picks the smaller of two bars. Those of best estimates hold at all times at once, and leave a
        fifth of the failure probability to the bounds that the first answer may rest on.
        """
        state, predicate = self._state, query.predicate
        known = is_total(predicate, query.group_by, known=state.belief.total_known)
        if known or predicate.constant is False:
            return None
        seen = state.measured.seen(query)
        if self._as_of.get(key) == seen:
            return None
        # What was measured at openings stays as it was, so that nobody can choose when it answers.
        if state.at_opening(query) is None:
            error, evidence = state.terms_for(query).error, state.evidence(query)
            better = state.answers.by_promise(query, evidence, error, Path.CERTIFIED)
            cells = better.cells if isinstance(better, TableAnswered) else (better,)
            pairs = [
                (math.inf if math.isnan(bar) else bar, width(cell))
                for (_, bar, _, _), cell in zip(rows, cells, strict=True)
            ]
            is_smaller = any(now < bar * _SMALLER for bar, now in pairs)
            if is_smaller and all(now <= bar for bar, now in pairs):
                return better
        self._as_of[key] = seen
        return None


def _row_of(cell: Answered | Sum | Quantile) -> tuple[float, ...]:
    match cell:
        case Answered():
            return _row(cell)
        case Quantile(likely, first, last, bar, rows):
            return *(likely or _NONE), first, last, _or_nan(bar), rows
    bars = cell.total_bar, cell.mean, cell.mean_bar, cell.rows, cell.rows_bar
    ends = *cell.count_ends, *cell.total_ends, *(cell.mean_ends or _NONE)
    return (cell.count, _or_nan(cell.count_bar), cell.total, *map(_or_nan, bars), *ends)


def _quantile_of_row(row: tuple[float, ...]) -> Quantile:
    begin, end, first, last, bar, rows = row
    likely = None if math.isnan(begin) else (int(begin), int(end))
    return Quantile(likely, int(first), int(last), _or_none(bar), rows)


def _sum_of_row(row: tuple[float, ...]) -> Sum:
    count, count_bar, total, total_bar, *bars, fewest, most, least, largest, low, high = row
    mean, mean_bar, rows, rows_bar = map(_or_none, bars)
    return Sum(
        count,
        _or_none(count_bar),
        total,
        _or_none(total_bar),
        mean,
        mean_bar,
        rows,
        rows_bar,
        count_ends=(fewest, most),
        total_ends=(least, largest),
        mean_ends=None if math.isnan(low) else (low, high),
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


def _or_none(number: float) -> float | None:
    return None if math.isnan(number) else number


def _or_nan(bar: float | None) -> float:
    return math.nan if bar is None else bar
