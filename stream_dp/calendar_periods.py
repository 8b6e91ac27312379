"""Minutes, hours, days, weeks and months of a time zone, and times as people write them.

A time is a number of milliseconds since 1970, as in Kafka. A period is known by its number: the first one of
1970 is about 0. Days begin at local midnight, and weeks on Monday. So a day has 23, 24 or 25 hours, and a
period follows from a time and the rules of the zone alone.
"""

from __future__ import annotations

import calendar
import re
from bisect import bisect_left
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final, Literal, Self, get_args
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

Unit = Literal["minute", "hour", "day", "week", "month"]

FIRST_YEAR: Final = 1970
LAST_YEAR: Final = 9000

LATEST_MS: Final = (date(LAST_YEAR, 1, 1) - date(1970, 1, 1)).days * 86_400_000
"""Times from here on are none: clocks show them by mistake."""

_EPOCH: Final = date(1970, 1, 1)
_MONDAY: Final = 3  # days from 1970-01-01 to 1969-12-29, which begins week 0
_MINUTE_MS: Final = 60_000
_LENGTH = re.compile(r"([1-9][0-9]{0,3}) (minute|hour|day|week|month)s?")
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


@dataclass(frozen=True, slots=True)
class Length:
    """A length of time on the calendar, such as 7 days.

    Attributes:
        count: The number of units.
        unit: The unit.
    """

    count: int
    unit: Unit

    @classmethod
    def read(cls, text: str) -> Self:
        """Reads a length such as "1 day", "7 days" or "2 weeks".

        Raises:
            ValueError: The text is not a length of time.
        """
        found = _LENGTH.fullmatch(text)
        if found is None:
            raise ValueError('it is not a length of time: write one such as "7 days"')
        (unit,) = (unit for unit in get_args(Unit) if unit == found[2])
        return cls(int(found[1]), unit)

    def number(self, local: datetime) -> int:
        """Returns the number of the period in which clocks show a time."""
        days, count = (local.date() - _EPOCH).days, self.count
        if self.unit in _MINUTES:
            step = _MINUTES[self.unit] * count
            return days * (1440 // step) + (60 * local.hour + local.minute) // step
        if self.unit == "month":
            return (12 * (local.year - FIRST_YEAR) + local.month - 1) // count
        return (days + _MONDAY) // (7 * count) if self.unit == "week" else days // count

    def start(self, number: int) -> datetime:
        """Returns what clocks show when a period begins. It ends where the next one begins."""
        days, minutes, count = number * self.count, 0, self.count
        if self.unit == "month":
            months = 12 * FIRST_YEAR + number * count
            return datetime(months // 12, months % 12 + 1, 1)  # noqa: DTZ001 - what clocks show has no zone
        if self.unit in _MINUTES:
            parts = 1440 // (step := _MINUTES[self.unit] * count)
            days, minutes = number // parts, number % parts * step
        elif self.unit == "week":
            days = 7 * days - _MONDAY
        return datetime.combine(_EPOCH, _MIDNIGHT) + timedelta(days=days, minutes=minutes)

    @property
    def divides_a_day(self) -> bool:
        """Whether some of it make a day. Days, weeks and months need not."""
        return self.unit not in _MINUTES or 1440 % (_MINUTES[self.unit] * self.count) == 0

    def before(self, time_ms: int, zone: tzinfo) -> int:
        """Returns the time that lies this long before another one, by the clock on the wall."""
        return max(0, self._shifted(time_ms, zone, -self.count))

    def after(self, time_ms: int, zone: tzinfo) -> int:
        """Returns the time that lies this long after another one: days and more by the clock on the wall."""
        if self.unit in _MINUTES:
            return time_ms + _MINUTES[self.unit] * self.count * _MINUTE_MS
        return self._shifted(time_ms, zone, self.count)

    def _shifted(self, time_ms: int, zone: tzinfo, count: int) -> int:
        local = _local(time_ms, zone).replace(tzinfo=None)
        if self.unit == "month":
            months = max(12 * local.year + local.month - 1 + count, 12 * FIRST_YEAR)
            year, month = months // 12, months % 12 + 1
            day = min(local.day, calendar.monthrange(year, month)[1])
            return _instant(local.replace(year=year, month=month, day=day), zone)
        minutes = {**_MINUTES, "day": 1440, "week": 7 * 1440}[self.unit]
        return _instant(local + timedelta(minutes=minutes * count), zone)


_MINUTES: Final = {"minute": 1, "hour": 60}
"""How many minutes a unit has that may be a part of a day."""


@dataclass(frozen=True, slots=True)
class Calendar:
    """The periods of one length in one time zone.

    Attributes:
        length: The length of each period. Hours and minutes must divide a day.
        zone: The time zone.
    """

    length: Length
    zone: tzinfo

    def period(self, time_ms: int) -> int:
        """Returns the number of the period that holds a time."""
        number = self.length.number(_local(time_ms, self.zone))
        # A clock that is put back shows the end of a period again after the next one began.
        while time_ms >= self.start(number + 1):
            number += 1
        while time_ms < self.start(number):
            number -= 1
        return number

    def start(self, number: int) -> int:
        """Returns the time at which a period begins. It ends where the next one begins."""
        return _instant(self.length.start(number), self.zone)


_MIDNIGHT: Final = datetime.min.time()


@lru_cache(maxsize=64)
def zone_of(name: str | None) -> tzinfo:
    """Returns the time zone of a name such as "Europe/Berlin". None is UTC.

    Raises:
        ValueError: There is no time zone of this name.
    """
    if name is None:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            'there is no such time zone: write the name of one, such as "Europe/Berlin"'
        ) from None


def span_of(text: str, zone: tzinfo) -> tuple[int, int]:
    """Reads a date, or a date and time with an offset, in ISO 8601.

    Returns:
        The time at which it begins, and the one at which it has ended: a date is a whole day of the zone.

    Raises:
        ValueError: The text is neither, or its year is too early or too late.
    """
    try:
        is_date = _DATE.fullmatch(text) is not None
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(_NOT_A_TIME) from None
    if not FIRST_YEAR <= moment.year <= LAST_YEAR:
        raise ValueError(f"its year is not between {FIRST_YEAR} and {LAST_YEAR}: write another one")
    if is_date:
        return _instant(moment, zone), _instant(moment + timedelta(days=1), zone)
    if moment.tzinfo is None:
        raise ValueError(_NOT_A_TIME)
    since = max(0, _milliseconds(moment))
    return since, since + 1


_NOT_A_TIME: Final = (
    "it is neither a date nor a date and time with an offset: write 2026-11-01 or "
    "2026-11-01T06:00:00+01:00"
)


def written(time_ms: int, zone: tzinfo) -> str:
    """Writes a time of the zone in ISO 8601: as a date if it is midnight, or else with an offset."""
    local = _local(time_ms, zone)
    if time_ms == _instant(datetime.combine(local.date(), _MIDNIGHT), zone):
        return local.date().isoformat()
    if time_ms % 1000:
        return local.isoformat(timespec="milliseconds")
    return local.isoformat(timespec="seconds" if time_ms % _MINUTE_MS else "minutes")


def _local(time_ms: int, zone: tzinfo) -> datetime:
    seconds, rest = divmod(time_ms, 1000)
    moment = _UTC_EPOCH + timedelta(seconds=seconds, milliseconds=rest)
    return moment.astimezone(zone)


def _instant(local: datetime, zone: tzinfo) -> int:
    """The first time at which a clock in the zone shows this, or has passed it where it is put forward."""
    found = _milliseconds(local.replace(tzinfo=zone, fold=0))
    if _local(found, zone).replace(tzinfo=None) == local:
        return found
    # The clock is put forward over it, between these two times: it passes it at that moment.
    before = _milliseconds(local.replace(tzinfo=zone, fold=1))
    return before + bisect_left(
        range(before, found), local, key=lambda time_ms: _local(time_ms, zone).replace(tzinfo=None)
    )


def _milliseconds(moment: datetime) -> int:
    return (moment - _UTC_EPOCH) // timedelta(milliseconds=1)


_UTC_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
