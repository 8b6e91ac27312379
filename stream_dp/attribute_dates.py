"""Periods of the dates of attributes: where they begin, their labels, and the parts of a date. No clock.

A moment is a number of seconds since 1970-01-01T00:00 on the clocks of the time zone that is meant, so that
every day has 86,400 of them. In autumn an hour that comes twice is one hour.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Any, Final, get_args

from stream_dp.calendar_periods import Length, Unit
from stream_dp.calendar_periods import zone_of as rules_of
from stream_dp.errors import InvalidDefinition

HOUR: Final = 3600
_DAY: Final = 24 * HOUR
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - a moment on a wall clock has no zone

MOST_PERIODS: Final = 65_536
"""The most periods between two bounds."""

_DEFAULT_YEARS: Final = 2
_REMEMBERED: Final = 64
"""The calendars whose labels are remembered; one has a few megabytes at the most."""

CYCLES: Final[Mapping[str, tuple[str, ...]]] = {
    "weekday": ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"),
    "month_of_year": (
        *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
        *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
    ),
    "hour_of_day": tuple(f"{hour:02}" for hour in range(24)),
}
"""The periods that come again and again, with a label for each."""

_BEGINNING: Final = {
    "year": "the first day of a year, such as 2026-01-01",
    "quarter": "the first day of a quarter, such as 2026-04-01",
    "month": "the first day of a month, such as 2026-03-01",
    "week": "a Monday, such as 2026-01-05",
    "day": "a day, such as 2026-03-14",
    "hour": "a full hour, such as 2026-03-14T10:00",
}
_LENGTHS: Final[Mapping[str, Length]] = {
    "year": Length(12, "month"),
    "quarter": Length(3, "month"),
    **{unit: Length(1, unit) for unit in get_args(Unit)},
}
_SECONDS: Final = {"minute": 60, "second": 1}

_ISO: Final = re.compile(
    r"(?P<year>\d{4})"
    r"(?:-Q(?P<quarter>[1-4])|-W(?P<week>\d\d)|-(?P<month>\d\d)(?:-(?P<day>\d\d)"
    r"(?:[T ](?P<hour>\d\d)(?::(?P<minute>\d\d)(?::(?P<second>\d\d)(?:\.0+)?)?)?)?)?)?",
    re.ASCII,
)
"""A period as ISO 8601 writes it: 2026, 2026-Q1, 2026-W11, 2026-03, 2026-03-14, 2026-03-14T10, ..."""


def span_of(text: str) -> tuple[int, int] | None:
    """The moments at which a period begins and ends; None if the text is not one.

    A period is as long as it is written precisely: 2026-03 is a month, and 2026-03-14T10:00 a minute.

    Example:
        >>> span_of("1970-01-02")
        (86400, 172800)
    """
    found = _ISO.fullmatch(text.strip())
    if found is None:
        return None
    of = {name: int(digits) for name, digits in found.groupdict().items() if digits is not None}
    by = str(found.lastgroup)  # the smallest part that is written
    month = 3 * of["quarter"] - 2 if "quarter" in of else of.get("month", 1)
    time = of.get("hour", 0), of.get("minute", 0), of.get("second", 0)
    try:
        first = datetime(of["year"], month, of.get("day", 1), *time)  # noqa: DTZ001
        if by == "week":
            first = datetime.fromisocalendar(of["year"], of["week"], 1)
        start = _seconds(first)
        return start, start + _SECONDS[by] if by in _SECONDS else _seconds(_next(by, first))
    except (ValueError, OverflowError):
        return None


def period_bounds(by: str, text: str) -> tuple[str, str] | None:
    """The first period that does not begin before a written one, and the last that begins before it ends.

    The latter is the earlier one if no period begins in the written one.

    Returns:
        Their labels. None if the text is not a period, or the calendar has no period of this length there.

    Example:
        >>> period_bounds("month", "2026-Q2"), period_bounds("month", "2026-05-01")
        (('2026-04', '2026-06'), ('2026-05', '2026-05'))
        >>> period_bounds("month", "2026-05-02")
        ('2026-06', '2026-05')
    """
    span = span_of(text)
    if span is None or by not in _LENGTHS:
        return None
    length, (start, end) = _LENGTHS[by], span
    first, last = length.number(_moment(start)), length.number(_moment(end - 1))
    try:
        first += _seconds(length.start(first)) < start
        bounds = [label_of(by, _seconds(length.start(number))) for number in (first, last)]
    except (ValueError, OverflowError):
        return None
    return bounds[0], bounds[1]


@lru_cache(maxsize=_REMEMBERED)
def calendar_of(by: str, first: str | None, until: str | None) -> tuple[int, ...]:
    """The moments at which periods begin between two bounds, ascending; the last one is the upper bound.

    Args:
        by: The period: "year", "quarter", "month", "week", "day" or "hour".
        first: Where the first period begins, as ISO 8601 writes it.
        until: Where the last period ends. None takes the end of the period in which two years are over.

    Raises:
        InvalidDefinition: A bound is missing, does not begin a period, or there are too many periods or none.
    """
    if first is None:
        raise InvalidDefinition(
            "from", f"each {by} needs its dates", f"begin with {_BEGINNING[by]}"
        )
    moment, length = _beginning("from", by, first), _LENGTHS[by]
    end = None if until is None else _beginning("until", by, until)
    if end is not None and end <= moment:
        fix = "name the first day that is not counted"
        raise InvalidDefinition("until", "it is not after from", fix)
    try:
        enough = end or _years_after(moment)
        number, stop = length.number(moment), length.number(enough)
        stop += length.start(stop) < enough
        if stop - number <= MOST_PERIODS:
            return tuple(_seconds(length.start(each)) for each in range(number, stop + 1))
    except (ValueError, OverflowError):
        raise InvalidDefinition(
            "until", "it is after the year 9998", "name a date before"
        ) from None
    problem = f"there are more than {MOST_PERIODS:,} periods"
    raise InvalidDefinition("until", problem, "use longer ones, or bounds nearer")


def label_of(by: str, moment: int) -> str:
    """The label of the period that begins at a moment, in ISO 8601.

    Example:
        >>> label_of("month", 0), label_of("week", 4 * 86400), label_of("hour", 3600)
        ('1970-01', '1970-W02', '1970-01-01T01')
    """
    start = _moment(moment)
    if by == "week":
        year, week, _ = start.isocalendar()
        return f"{year:04}-W{week:02}"
    if by == "quarter":
        return f"{start.year:04}-Q{(start.month + 2) // 3}"
    lengths = {"year": 4, "month": 7, "day": 10, "hour": 13}
    return start.isoformat()[: lengths[by]]


@lru_cache(maxsize=_REMEMBERED)
def labels_of(by: str, first: str | None, until: str | None) -> tuple[str, ...]:
    """The labels of the periods between two bounds, or of those that come again and again.

    Raises:
        InvalidDefinition: The bounds are not those of periods.
    """
    if by in CYCLES:
        return CYCLES[by]
    return tuple(label_of(by, moment) for moment in calendar_of(by, first, until)[:-1])


_PARTS: Final[Mapping[str, Callable[[datetime], int]]] = {
    "year": lambda start: start.year,
    "isoyear": lambda start: start.isocalendar()[0],
    "quarter": lambda start: (start.month + 2) // 3,
    "month": lambda start: start.month,
    "week": lambda start: start.isocalendar()[1],
    "day": lambda start: start.day,
    "dow": lambda start: start.isoweekday() % 7,
    "isodow": lambda start: start.isoweekday(),
    "doy": lambda start: start.timetuple().tm_yday,
    "hour": lambda start: start.hour,
}
"""The parts of a date that EXTRACT names in SQL. ``dow`` is 0 on Sundays, and ``isodow`` 1 on Mondays."""

_OF_DAYS: Final = ("year", "isoyear", "quarter", "month", "week", "day", "dow", "isodow", "doy")
_KNOWN: Final[Mapping[str, tuple[str, ...]]] = {
    "year": ("year",),
    "quarter": ("year", "quarter"),
    "month": ("year", "quarter", "month"),
    "week": ("isoyear", "week"),
    "day": _OF_DAYS,
    "hour": (*_OF_DAYS, "hour"),
    "weekday": ("dow", "isodow"),
    "month_of_year": ("quarter", "month"),
    "hour_of_day": ("hour",),
}
"""The parts that all dates of a period share."""


def parts_of(by: str) -> tuple[str, ...]:
    """The parts of a date that a period tells."""
    return _KNOWN[by]


@lru_cache(maxsize=_REMEMBERED)
def parts_in(by: str, first: str | None, until: str | None, part: str) -> tuple[int, ...]:
    """The part of a date that each of the periods tells that ``labels_of`` lists.

    Args:
        by: The period.
        first: Where the first period begins.
        until: Where the last period ends.
        part: One of ``parts_of`` the period.
    """
    if by not in CYCLES:
        moments = list(map(_moment, calendar_of(by, first, until)[:-1]))
    else:
        step = {"weekday": _DAY, "month_of_year": 31 * _DAY, "hour_of_day": HOUR}[by]
        monday = datetime(2024, 1, 1)  # noqa: DTZ001 - a leap year that begins with a Monday
        moments = [monday + timedelta(seconds=step * index) for index in range(len(CYCLES[by]))]
    return tuple(map(_PARTS[part], moments))


@lru_cache(maxsize=_REMEMBERED)
def beginnings_in(
    by: str, first: str | None, until: str | None, unit: str
) -> tuple[str, ...] | None:
    """Where the longer period begins that each of the periods lies in that ``labels_of`` lists.

    Args:
        by: The period.
        first: Where the first period begins.
        until: Where the last period ends.
        unit: The longer period, such as "year", or the period itself.

    Returns:
        Days; of hours, days and times. None if periods do not lie in whole ones of this length.
    """
    if unit not in _WITHIN.get(by, ()):
        return None
    starts = calendar_of(by, first, until)[:-1]
    return tuple(_written(unit, _first_of(unit, start)) for start in starts)


def first_day_of(unit: str, day: str) -> str:
    """The day on which the period begins that a day lies in.

    Example:
        >>> first_day_of("week", "2026-03-14"), first_day_of("month", "2026-03-14")
        ('2026-03-09', '2026-03-01')
    """
    span = span_of(day)
    assert span is not None, "it is a day"
    return _written(unit, _first_of(unit, span[0]))


def with_periods(attribute: Mapping[str, Any], unit: str) -> dict[str, Any]:
    """An attribute with the longer periods that its own ones lie in.

    Args:
        attribute: The attribute, of type date, as in the catalog.
        unit: The longer period, or the period itself. ``beginnings_in`` knows it.
    """
    starts = calendar_of(attribute["by"], attribute.get("from"), attribute.get("until"))
    first, last = _first_of(unit, starts[0]), _first_of(unit, starts[-2])
    bounds = {"from": _written(unit, first), "until": _written(unit, _next(unit, last))}
    return {**attribute, "by": unit, **bounds}


def _first_of(unit: str, moment: int) -> datetime:
    """Where the period begins that holds a moment."""
    return _LENGTHS[unit].start(_LENGTHS[unit].number(_moment(moment)))


def _written(unit: str, first: datetime) -> str:
    """The day on which a period begins; of an hour, the day and the time."""
    return first.isoformat() if unit == "hour" else first.date().isoformat()


_WITHIN: Final[Mapping[str, tuple[str, ...]]] = {
    "year": ("year",),
    "quarter": ("year", "quarter"),
    "month": ("year", "quarter", "month"),
    "week": ("week",),
    "day": ("year", "quarter", "month", "week", "day"),
    "hour": ("year", "quarter", "month", "week", "day", "hour"),
}


def first_number(by: str) -> int:
    """The number of the first of the periods that come again, as ISO 8601 counts them."""
    return 0 if by == "hour_of_day" else 1


@dataclass(frozen=True, slots=True)
class Zone:
    """A time zone, which says what clocks show at an instant.

    Attributes:
        name: The name in the IANA database, such as Europe/Berlin.

    Raises:
        InvalidDefinition: There is no such zone.
    """

    name: str

    def __post_init__(self) -> None:
        try:
            _changes(self.name)
        except ValueError:
            raise InvalidDefinition(
                "timezone", "there is no such time zone", 'use a name such as "Europe/Berlin"'
            ) from None

    @property
    def changes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """The instants at which clocks change, and the seconds that they are ahead of UTC between these.

        There is one more of the latter. Before 1970, clocks are taken to be as far ahead as they were in it,
        and after 2100 as they will be in it.
        """
        return _changes(self.name)


@lru_cache(maxsize=64)
def _changes(name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if name == "UTC":  # whatever the machine knows about time zones
        return (), (0,)
    zone = rules_of(name)

    def ahead(instant: int) -> int:
        offset = datetime.fromtimestamp(instant, UTC).astimezone(zone).utcoffset()
        assert offset is not None, "the zone is known"
        return offset // timedelta(seconds=1)

    instants: list[int] = []
    offsets = [ahead(0)]
    for day in range(_DAY, 131 * 365 * _DAY, _DAY):
        if (now := ahead(day)) == offsets[-1]:
            continue
        low, high = day - _DAY, day
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if ahead(middle) == offsets[-1] else (low, middle)
        instants.append(high)
        offsets.append(now)
    return tuple(instants), tuple(offsets)


def _seconds(moment: datetime) -> int:
    return (moment - _EPOCH) // timedelta(seconds=1)


def _moment(seconds: int) -> datetime:
    return _EPOCH + timedelta(seconds=seconds)


def _next(by: str, start: datetime) -> datetime:
    """The moment at which the period after this one begins."""
    return _LENGTHS[by].start(_LENGTHS[by].number(start) + 1)


def _years_after(start: datetime) -> datetime:
    """Two years after a moment; on 1 March where there is no 29 February."""
    year = start.year + _DEFAULT_YEARS
    if (start.month, start.day) == (2, 29):
        return start.replace(year=year, month=3, day=1)
    return start.replace(year=year)


def _beginning(field: str, by: str, text: str) -> datetime:
    span = span_of(text)
    if span is None:
        raise InvalidDefinition(field, "it is not a date", f"use {_BEGINNING[by]}")
    start = _moment(span[0])
    if start != _first_of(by, span[0]):
        raise InvalidDefinition(field, f"it does not begin a {by}", f"use {_BEGINNING[by]}")
    return start
