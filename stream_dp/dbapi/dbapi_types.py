"""The type objects and constructors that PEP 249 asks for."""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Final


class _TypeObject:
    """Equals the types of columns that it stands for."""

    def __init__(self, *types: str) -> None:
        self._types = frozenset(types)

    def __eq__(self, other: object) -> bool:
        return other in self._types

    def __hash__(self) -> int:
        return hash(self._types)


STRING: Final = _TypeObject("text")
BINARY: Final = _TypeObject()
NUMBER: Final = _TypeObject("integer", "real", "boolean")
DATETIME: Final = _TypeObject("date", "timestamp")
ROWID: Final = _TypeObject()

Date = date
Time = time
Timestamp = datetime
Binary = bytes
DateFromTicks = date.fromtimestamp


def TimeFromTicks(ticks: float) -> time:  # noqa: N802 - the name that PEP 249 gives
    """Returns the local time of day at a number of seconds since 1970."""
    return TimestampFromTicks(ticks).time()


def TimestampFromTicks(ticks: float) -> datetime:  # noqa: N802 - the name that PEP 249 gives
    """Returns the local time at a number of seconds since 1970."""
    return datetime.fromtimestamp(ticks)  # noqa: DTZ006 - PEP 249 wants local time
