"""Dates and times as rows say them, read column by column.

A text is understood if it is a date of ISO 8601, with or without a time and an offset from UTC: 2026-03-14,
2026-03-14T10:00:00.5, 2026-03-14 10:00Z, 2026-03-14T10:00+01:00. Columns are read by whole arrays, in the
same steps whatever the rows hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.attribute_dates import HOUR, Zone

_Integers: TypeAlias = npt.NDArray[np.int64]
_Truths: TypeAlias = npt.NDArray[np.bool_]
_Bytes: TypeAlias = npt.NDArray[np.uint8]

MONTH, DAY, TIME = 1, 2, 3
"""How precise a date is: to the month, to the day, or to less than that."""

_WIDTH: Final = 36
"""One character more than the longest text that is a date."""
_FRACTION: Final = 9
_MINUTE: Final = 60
_A_DAY: Final = 24 * HOUR
_FIRST: Final = -62_135_596_800
_END: Final = 253_402_300_800
"""The seconds at which the years 1 and 10,000 begin."""


@dataclass(frozen=True, eq=False)
class DateColumn:
    """A column of dates, one a row. Private.

    Attributes:
        seconds: Seconds since 1970-01-01T00:00, shape (n_entries,).
        precision: ``MONTH``, ``DAY`` or ``TIME``, and 0 where there is no date, shape (n_entries,).
        are_instants: Whether the seconds are those of UTC, shape (n_entries,); otherwise they are what clocks
            showed.
    """

    seconds: _Integers = field(repr=False)
    precision: npt.NDArray[np.int8] = field(repr=False)
    are_instants: _Truths = field(repr=False)

    def __len__(self) -> int:
        return len(self.seconds)

    @classmethod
    def of(
        cls, seconds: _Integers, known: _Truths, *, precision: int, are_instants: bool
    ) -> DateColumn:
        """Dates that are numbers of seconds; those outside the years 1 to 9,999 are none."""
        known = known & (seconds >= _FIRST) & (seconds < _END)
        return cls(
            np.where(known, seconds, 0),
            np.where(known, precision, 0).astype(np.int8),
            np.full(len(seconds), are_instants),
        )

    @classmethod
    def from_epoch(cls, numbers: npt.NDArray[np.float64], per_second: int) -> DateColumn:
        """Instants that are numbers since 1970-01-01T00:00Z; NaN is none."""
        known = np.isfinite(numbers)
        floored = np.floor(np.where(known, numbers, 0.0) / per_second)
        seconds = np.clip(floored, _FIRST - 1, _END).astype(np.int64)
        return cls.of(seconds, known, precision=TIME, are_instants=True)

    def or_else(self, others: DateColumn) -> DateColumn:
        """These dates, and those of others where these have none."""
        known = self.precision > 0
        return DateColumn(
            np.where(known, self.seconds, others.seconds),
            np.where(known, self.precision, others.precision),
            np.where(known, self.are_instants, others.are_instants),
        )


def on_clocks(moments: DateColumn, zone: Zone) -> _Integers:
    """What clocks in a time zone show, in seconds since 1970-01-01T00:00, shape (n_entries,)."""
    changes, offsets = zone.changes
    index = np.searchsorted(np.array(changes, dtype=np.int64), moments.seconds, side="right")
    ahead = np.array(offsets, dtype=np.int64)[index]
    return moments.seconds + np.where(moments.are_instants, ahead, 0)


def from_texts(texts: Sequence[str]) -> DateColumn:
    """Reads texts without blanks at their ends, of any length."""
    wide = np.array(texts, dtype=f"U{_WIDTH}").reshape(len(texts), 1)
    # No character beyond Latin-1 has a part in a date, so that one byte is enough for each.
    chars = np.ascontiguousarray(np.minimum(wide.view(np.uint32), 255).astype(np.uint8).T)
    length = np.count_nonzero(chars, axis=0)
    digits = chars - np.uint8(ord("0"))
    are_digits = digits <= 9

    def number(start: int, n_digits: int) -> tuple[_Integers, _Truths]:
        value = np.zeros(len(texts), dtype=np.int64)
        there = np.ones(len(texts), dtype=np.bool_)
        for at in range(start, start + n_digits):
            value = 10 * value + digits[at]
            there &= are_digits[at]
        return value, there

    def part(start: int, marks: str, most: int) -> tuple[_Integers, _Truths]:
        """Two digits behind a mark, and whether they are there."""
        value, there = number(start + 1, 2)
        return value, there & _is_one_of(chars[start], marks) & (value <= most)

    year, has_year = number(0, 4)
    month, has_month = part(4, "-", 12)
    is_date = has_year & has_month & (year >= 1) & (month >= 1)
    day, has_day = part(7, "-", 31)
    first, after = _days_of_month(np.where(is_date, 12 * year + month - 1, 12 * 1970))
    has_day &= is_date & (day >= 1) & (first + day <= after)
    hour, has_hour = part(10, "Tt ", 23)
    minute, has_minute = part(13, ":", 59)
    second, has_second = part(16, ":", 59)
    has_hour &= has_day
    has_minute &= has_hour
    has_second &= has_minute
    run, runs_on = np.zeros(len(texts), dtype=np.int64), has_second
    for place in range(20, 20 + _FRACTION):
        runs_on = runs_on & are_digits[place]
        run += runs_on
    has_fraction = has_second & _is_one_of(chars[19], ".,") & (run > 0)
    end = np.full(len(texts), 7)
    for there, where in (has_day, 10), (has_hour, 13), (has_minute, 16), (has_second, 19):
        end[there] = where
    end[has_fraction] = 20 + run[has_fraction]

    zone_length = length - end
    is_local = is_date & (zone_length == 0)
    ahead, has_zone = _offset(chars, digits, are_digits, end, zone_length)
    is_zoned = has_hour & has_zone
    precision = np.where(has_hour, TIME, np.where(has_day, DAY, MONTH))
    seconds = (first + np.where(has_day, day - 1, 0)) * _A_DAY - np.where(is_zoned, ahead, 0)
    for there, value, unit in (
        (has_hour, hour, HOUR),
        (has_minute, minute, _MINUTE),
        (has_second, second, 1),
    ):
        seconds += np.where(there, value * unit, 0)
    known = (is_local | is_zoned) & (seconds >= _FIRST) & (seconds < _END)
    return DateColumn(
        np.where(known, seconds, 0), np.where(known, precision, 0).astype(np.int8), is_zoned
    )


def _is_one_of(chars: _Bytes, marks: str) -> _Truths:
    found = np.zeros(len(chars), dtype=np.bool_)
    for mark in marks:
        found |= chars == ord(mark)
    return found


def _days_of_month(months: _Integers) -> tuple[_Integers, _Integers]:
    """The days since 1970-01-01 on which months begin and end; months are counted from the year 0."""
    since = (months - 12 * 1970).astype("datetime64[M]")
    days: Any = [m.astype("datetime64[D]").astype(np.int64) for m in (since, since + 1)]
    return days[0], days[1]


def _offset(
    chars: _Bytes, digits: _Bytes, are_digits: _Truths, end: _Integers, length: _Integers
) -> tuple[_Integers, _Truths]:
    """The seconds that an offset from UTC is ahead of it, and whether there is one: Z, +01, +0100, +01:00."""

    def at(array: npt.NDArray[Any], place: int) -> npt.NDArray[Any]:
        found: npt.NDArray[Any] = array[np.minimum(end + place, _WIDTH - 1), rows]
        return found

    rows = np.arange(len(end))
    sign = at(chars, 0)
    is_utc = (length == 1) & ((sign == ord("Z")) | (sign == ord("z")))
    hours = 10 * at(digits, 1).astype(np.int64) + at(digits, 2)
    has_hours = at(are_digits, 1) & at(are_digits, 2) & (hours <= 23)
    has_colon = at(chars, 3) == ord(":")
    tens, ones = (np.where(has_colon, at(digits, p + 1), at(digits, p)) for p in (3, 4))
    are_minutes = [np.where(has_colon, at(are_digits, p + 1), at(are_digits, p)) for p in (3, 4)]
    minutes = 10 * tens.astype(np.int64) + ones
    has_minutes = are_minutes[0] & are_minutes[1] & (minutes <= 59)
    has_minutes &= length == np.where(has_colon, 6, 5)
    is_signed = (sign == ord("+")) | (sign == ord("-"))
    has_offset = is_signed & has_hours & ((length == 3) | has_minutes)
    ahead = hours * HOUR + np.where(has_minutes, minutes * _MINUTE, 0)
    ahead = np.where(sign == ord("-"), -ahead, ahead)
    return np.where(has_offset, ahead, 0), is_utc | has_offset
