"""Rows of a file by the period of the calendar that they are about."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import groupby
from typing import Any, Final, TypeAlias

from stream_dp.calendar_periods import LATEST_MS, Calendar
from stream_dp.client.kafka.topic_documents import plain

TIME: Final = "\0time"
"""The key of the column that says when a row was. No attribute can have this name."""

_Columns: TypeAlias = dict[str, list[Any]]
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def periods_of(column: Sequence[Any], calendar: Calendar) -> list[int | None]:
    """Returns the number of the period of each time; None for anything else.

    A time without an offset is what clocks in the zone of the calendar showed.
    """

    @lru_cache(maxsize=100_000)
    def period(text: str) -> int | None:
        try:
            moment = datetime.fromisoformat(text.strip())
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=calendar.zone)
            time_ms = (moment - _EPOCH) // timedelta(milliseconds=1)
        except (ValueError, OverflowError):
            return None
        return calendar.period(time_ms) if 0 <= time_ms < LATEST_MS else None

    # Nothing says what a number counts, so it does not stand for a time.
    texts = (one if isinstance(one, str | int | float) else plain(one) for one in column)
    return [period(text) if isinstance(text, str) else None for text in texts]


def by_period(
    chunks: Iterable[_Columns], batch_rows: int, *, in_order: bool
) -> Iterator[tuple[_Columns, int]]:
    """Cuts rows into parts of one period each, the periods in order.

    Args:
        chunks: Columns, of which ``TIME`` holds the periods.
        batch_rows: The most rows of a part, where rows are put in order here.
        in_order: Whether the periods never fall. Otherwise all rows are held in memory.
    """
    for columns in chunks if in_order else _in_order(chunks, batch_rows):
        start = 0
        for period, group in groupby(columns[TIME]):
            stop = start + sum(1 for _ in group)
            part = {name: column[start:stop] for name, column in columns.items() if name != TIME}
            yield part, period
            start = stop


def _in_order(chunks: Iterable[_Columns], batch_rows: int) -> Iterator[_Columns]:
    """The same rows in the order of their periods, and of the file within one."""
    held: dict[int, _Columns] = {}
    for columns in chunks:
        for row, period in enumerate(columns[TIME]):
            one = held.setdefault(period, {name: [] for name in columns})
            for name, column in columns.items():
                one[name].append(column[row])
    for period in sorted(held):
        columns = held.pop(period)
        for start in range(0, len(columns[TIME]), batch_rows):
            yield {name: column[start : start + batch_rows] for name, column in columns.items()}
