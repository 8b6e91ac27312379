"""Counts the values of a batch that the worker cannot read, on the machine of the sender.

The worker counts such a value as missing or as ``other`` and never says so, because that would tell something
about rows. So the client reads each value as the worker will read it. What it finds is for the sender alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Annotated, Any, Final, TypeAlias

from pydantic import Field

from stream_dp.attribute_dates import CYCLES, calendar_of, label_of
from stream_dp.client.kafka.topic_documents import plain
from stream_dp.client.rows.frames import arrow_counts
from stream_dp.messages import AttributeSpec, DateAttribute, Definition, Event

_Scalar: TypeAlias = str | int | float
_Reads: TypeAlias = Callable[[_Scalar], bool]

_WORDS: Final = {
    "category": "are not listed",
    "number": "are not numbers",
    "boolean": "are neither true nor false",
    "date": "are not dates",
}
BOOLEANS: Final = frozenset(
    ["0", "1", "false", "true", "no", "yes", "off", "on", "f", "t", "n", "y"]
)
"""The texts that say true or false, in small letters."""
_DATE: Final = re.compile(
    r"(\d{4})-(\d\d)(?:-(\d\d)(?:[Tt ](\d\d)(?::(\d\d)(?::(\d\d)(?:[.,]\d{1,9})?)?)?"
    r"(?P<zone>[Zz]|(?P<sign>[+-])(?P<hours>\d\d)(?::?(?P<minutes>\d\d))?)?)?)?",
    re.ASCII,
)
_MONTH, _DAY, _TIME = 2, 3, 4
"""How many numbers a date needs at least."""
_NEEDED: Final = {
    **dict.fromkeys(("year", "quarter", "month", "month_of_year"), _MONTH),
    **dict.fromkeys(("week", "day", "weekday"), _DAY),
    **dict.fromkeys(("hour", "hour_of_day"), _TIME),
}
_EPOCH: Final = datetime(1970, 1, 1)  # noqa: DTZ001 - both sides of a sum are UTC
_REMEMBERED: Final = 4_096
MOST_SHOWN: Final = 5
"""The most values of a column that cannot be read of which anything is said."""
_SCALARS: Final = (str, int, float)
_PLAIN: Final = (str, int, float, type(None), list, tuple, Mapping)
"""What JSON has. The worker reads no list and no object."""


@dataclass(frozen=True, slots=True)
class Unread:
    """The values of a column that cannot be read. ``str`` says them in one line, without any value.

    Attributes:
        attribute: The attribute that is read from the column.
        kind: The type of the attribute.
        rows: The number of rows with such a value.
        values: The number of rows with any value.
        most: The most common of these values, at most five, each with its rows. Only the holder of the rows
            may see them.
    """

    attribute: str
    kind: str
    rows: int = field(repr=False)
    values: int = field(repr=False)
    most: tuple[tuple[str, int], ...] = field(default=(), repr=False)

    def __str__(self) -> str:
        words = _WORDS[self.kind]
        return f"{self.rows:,} of {self.values:,} values of {self.attribute} {words}"


class Sent(Event):
    """The event of a batch, with what only its sender may know.

    Attributes:
        unread: The columns with values that cannot be read, in the order of the definition.
    """

    unread: Annotated[tuple[Unread, ...], Field(repr=False, exclude=True)] = ()


def unread_values(definition: Definition, body: Mapping[str, Any]) -> tuple[Unread, ...]:
    """Counts the values of a batch that cannot be read.

    Args:
        definition: The definition of the data set.
        body: The rows under the name of their form, see ``Client.send``.
    """
    found = []
    for attribute in definition.attributes:
        reads = lru_cache(_REMEMBERED, typed=True)(_reader(attribute))
        missing = frozenset(text.strip() for text in attribute.na or ())
        unread, values = Counter[str](), 0
        for given, rows in _counted(body, attribute.names):
            value = given if isinstance(given, _PLAIN) else plain(given)
            if value is None or value != value:
                continue
            if missing and isinstance(value, _SCALARS) and value_text(value).strip() in missing:
                continue
            values += rows
            if not isinstance(value, str | int | float):
                unread[""] += rows
            elif not reads(value):
                unread[value_text(value)] += rows
        if unread:
            most = tuple(unread.most_common(MOST_SHOWN))
            found.append(Unread(attribute.name, attribute.type, unread.total(), values, most))
    return tuple(found)


def _counted(body: Mapping[str, Any], names: Sequence[str]) -> Iterable[tuple[object, int]]:
    """Returns the values of an attribute, each with the number of rows that have it.

    Args:
        body: The rows under the name of their form.
        names: The names that the attribute may have there. It may be absent.
    """
    ((form, given),) = ((form, given) for form, given in body.items() if given is not None)
    if form in ("cells", "rows"):
        return (
            (next((row[name] for name in names if name in row), None), int(row.get("count", 1)))
            for row in given
        )
    there = given.column_names if form == "arrow" else given
    name = next((name for name in names if name in there), None)
    if name is None:
        return ()
    if form == "arrow":
        return arrow_counts(given.column(name))
    column: Any = given[name]
    values: Any = plain(column) if hasattr(column, "tolist") else column
    return ((value, 1) for value in values)


def _reader(attribute: AttributeSpec) -> _Reads:
    """Returns what tells whether the worker can read a value that is there."""
    if attribute.type == "category":
        listed = frozenset((*attribute.values, *(attribute.also or ())))
        return lambda value: value_text(value) in listed
    if attribute.type == "number":
        return lambda value: _number(value) is not None
    if attribute.type == "boolean":
        return lambda value: value_text(value).lower() in BOOLEANS
    return _date_reader(attribute)


def value_text(value: _Scalar) -> str:
    """Returns the text that a value stands for: '7' for 7 and 7.0, 'true' for True."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    return str(int(value)) if isinstance(value, int) or value.is_integer() else repr(value)


def _number(value: _Scalar) -> float | None:
    """Returns the number that a value says; None if it says none."""
    try:
        number = float(value) if isinstance(value, str) else value
    except ValueError:
        return None
    return None if number != number else number


def _date_reader(attribute: DateAttribute) -> _Reads:
    needed, per_second = _NEEDED[attribute.by], {"s": 1, "ms": 1_000, None: None}[attribute.epoch]

    def reads(value: _Scalar) -> bool:
        text = value.strip() if isinstance(value, str) else ""
        if _precision(text) >= needed or text in _labels(attribute):
            return True
        number = None if per_second is None or isinstance(value, bool) else _number(value)
        return number is not None and per_second is not None and _is_moment(number, per_second)

    return reads


@lru_cache
def _labels(attribute: DateAttribute) -> frozenset[str]:
    """Returns the labels of the cells, which stand for their periods."""
    if attribute.by in CYCLES:
        return frozenset(CYCLES[attribute.by])
    edges = calendar_of(attribute.by, attribute.first, attribute.until)
    *periods, end = (label_of(attribute.by, edge) for edge in edges)
    return frozenset((f"< {periods[0]}", *periods, f">= {end}"))


def _precision(text: str) -> int:
    """Returns how many numbers a date says: 2 for a month, 3 for a day, 4 for a time; 0 if none is said."""
    found = _DATE.fullmatch(text)
    if found is None:
        return 0
    year, month, day, hour, minute, second = (int(found[n] or 0) for n in range(1, 7))
    offset = timedelta(hours=int(found["hours"] or 0), minutes=int(found["minutes"] or 0))
    if offset >= timedelta(days=1) or int(found["minutes"] or 0) > 59:
        return 0
    try:
        moment: Any = datetime(year, month, day or 1, hour, minute, second)  # noqa: DTZ001
        moment = moment + offset if found["sign"] == "-" else moment - offset
    except (ValueError, OverflowError):
        return 0
    return _TIME if found[4] else _DAY if found[3] else _MONTH


def _is_moment(number: float, per_second: int) -> bool:
    """Returns whether a number since 1970 is a moment of the years 1 to 9,999."""
    try:
        return bool(_EPOCH + timedelta(seconds=math.floor(number / per_second)))
    except OverflowError:
        return False
