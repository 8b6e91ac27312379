"""How many cells the attributes of a definition have, counted from the definition alone."""

from __future__ import annotations

import math
from datetime import datetime
from typing import Final

from stream_dp.messages import (
    AttributeSpec,
    CategoryAttribute,
    DateAttribute,
    NumberAttribute,
)

_AGAIN: Final = {"weekday": 7, "month_of_year": 12, "hour_of_day": 24}
_MONTHS: Final = {"year": 12, "quarter": 3, "month": 1}
_YEARS: Final = 2  # between the bounds of a date without an upper one
_HOURS: Final = {"week": 168, "day": 24, "hour": 1}


def size_of(attribute: AttributeSpec) -> int:
    """Cells of an attribute."""
    if isinstance(attribute, CategoryAttribute):
        find = attribute.find
        n_values = len(attribute.values) if find is None else find.most
        return n_values + attribute.other + attribute.missing
    if isinstance(attribute, NumberAttribute):
        return len(attribute.edges) + 1 + attribute.missing
    if isinstance(attribute, DateAttribute):
        return _periods(attribute) + attribute.missing
    return 2 + attribute.missing


def has_order(attribute: AttributeSpec) -> bool:
    """Whether neighbouring cells of an attribute may be counted together."""
    if isinstance(attribute, CategoryAttribute):
        return attribute.ordered
    return isinstance(attribute, NumberAttribute | DateAttribute)


def _periods(attribute: DateAttribute) -> int:
    """The periods between the bounds and the two open ends, or those that come again."""
    if attribute.by in _AGAIN:
        return _AGAIN[attribute.by]
    assert attribute.first is not None, "the definition was accepted"
    first = datetime.fromisoformat(attribute.first)
    last = _later(first) if attribute.until is None else datetime.fromisoformat(attribute.until)
    if attribute.by in _MONTHS:
        months = 12 * (last.year - first.year) + last.month - first.month
        return months // _MONTHS[attribute.by] + 2
    hours = (last - first).total_seconds() / 3600
    return math.ceil(hours / _HOURS[attribute.by]) + 2


def _later(first: datetime) -> datetime:
    """Two years after a day; 1 March where there is no 29 February."""
    leap = (first.month, first.day) == (2, 29)
    month, day = (3, 1) if leap else (first.month, first.day)
    return first.replace(year=first.year + _YEARS, month=month, day=day)
