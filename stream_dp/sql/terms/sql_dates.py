"""The dates of SQL: constants, parts of dates, and the beginnings of periods."""

from __future__ import annotations

import re
from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from sqlglot import exp

from stream_dp.attribute_dates import HOUR, Zone, period_bounds, span_of
from stream_dp.sql.reading.faults import Fault, short
from stream_dp.sql.reading.grammar import Grammar

ENDS: Final = ("le", "gt")
"""The comparisons for which the end of a constant counts, and not its beginning."""

PERIODS: Final = ("day", "week", "month", "phase")
"""The words that mean the time of a query in a statement, unless an attribute has that name."""

_PARTS: Final[dict[Any, str]] = {
    exp.Year: "year",
    exp.Quarter: "quarter",
    exp.Month: "month",
    exp.Week: "week",
    exp.Day: "day",
    exp.DayOfMonth: "day",
    exp.DayOfYear: "doy",
    exp.DayOfWeekIso: "isodow",
    exp.Hour: "hour",
}
_NAMES: Final = {"dayofweekiso": "isodow", "dayofyear": "doy", "dayofmonth": "day"}
_TYPES: Final = ("DATE", "DATETIME", "TIMESTAMP", "TIMESTAMPNTZ", "TIMESTAMPTZ", "TIMESTAMPLTZ")
_CONSTANTS: Final = frozenset(exp.DataType.Type[name] for name in _TYPES)
_TIME: Final = re.compile(
    r"(?P<time>\d{4}-\d\d-\d\d[T ]\d\d(?P<minute>:\d\d(?P<second>:\d\d(?:[.,](?P<fraction>\d+))?)?)?)"
    r" ?(?P<offset>Z|[+-]\d\d(?::?\d\d)?)?",
    re.ASCII | re.IGNORECASE,
)
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


PART_KINDS: Final = frozenset({exp.Extract, exp.Anonymous, *_PARTS})
"""The kinds of pieces in which a part of a date may be written."""


def part_of(node: Any) -> tuple[str, Any] | None:
    """The part that EXTRACT, DATE_PART, MONTH and the like take, and the piece of which they take it."""
    if type(node) in _PARTS:
        return _PARTS[type(node)], node.this.unnest()
    if isinstance(node, exp.Extract):
        name, of = node.name.lower(), node.expression
        return _NAMES.get(name, name), of.unnest()
    if isinstance(node, exp.Anonymous) and node.name.upper() == "DATE_PART":
        arguments = node.expressions
        if len(arguments) == 2 and isinstance(arguments[0], exp.Literal):
            name = arguments[0].name.lower()
            return _NAMES.get(name, name), arguments[1].unnest()
    return None


def truncation_of(node: Any) -> tuple[str, Any] | None:
    """The period to whose beginning DATE_TRUNC or a cast to DATE goes back, and the piece that they cut."""
    if isinstance(node, exp.DateTrunc | exp.TimestampTrunc):
        return node.text("unit").lower(), node.this.unnest()
    is_cast = isinstance(node, exp.Cast) and node.to.this == exp.DataType.Type.DATE
    if (is_cast or isinstance(node, exp.Date)) and isinstance(node.this, exp.Column):
        return "day", node.this
    return None


def same_sql(node: Any) -> str:
    """An expression as SQL. All ways to write a part of a date, as HOUR(d) and EXTRACT, give one text."""
    part = part_of(node)
    if part is not None:
        name, of = part
        node = exp.Extract(this=exp.var(name.upper()), expression=of.copy())
    text: str = node.sql(Grammar)
    return text


def written(node: Any) -> str | None:
    """The text of a constant that may be a date: '2026-03-14', DATE '2026-03-14', TIMESTAMP '...'."""
    node = node.unnest()
    if isinstance(node, exp.Cast) and node.to.this in _CONSTANTS:
        node = node.this
    return str(node.this) if isinstance(node, exp.Literal) and node.is_string else None


def moment_of(
    constant: Any, *, ends: bool, reason: str | None = None
) -> tuple[datetime, bool] | None:
    """The moment at which a time begins or ends, as one of UTC, and whether its offset from UTC is written.

    A time is as long as it is written precisely, and the last fraction of a second ends with the second.

    Args:
        constant: The constant of a comparison.
        ends: Whether its end is meant, as in ``<=``, and not its beginning, as in ``<``.
        reason: The code of the error where it is an attribute that is compared.

    Returns:
        Both. None for what is not a date and a time.

    Raises:
        Fault: It begins or ends at a fraction of a second.
    """
    found = _TIME.fullmatch((written(constant) or "").strip())
    if found is None:
        return None
    fraction = found["fraction"] or ""
    if fraction.strip("0") and (not ends or fraction.strip("9")):
        raise Fault(
            constant,
            f"{short(constant)} has a fraction of a second, at which no period begins or ends",
            "compare with a full second",
            reason=reason,
        )
    to_the_second = found["time"][: len("2026-07-01T23:59:59")]
    length = 1 if found["second"] else 60 if found["minute"] else HOUR
    try:
        begins = datetime.fromisoformat(to_the_second + (found["offset"] or "Z").upper())
        moment = (begins + timedelta(seconds=length * ends)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None  # a day that does not exist
    return moment, found["offset"] is not None


def on_clocks(constant: Any, timezone: str | None, *, ends: bool = False) -> str | None:
    """A date as it is written, but a time with an offset or a fraction as the second that clocks showed.

    A time with an offset from UTC is an instant. Comparisons with it are those with what clocks in the time
    zone showed then, unless they showed it twice. So ``2026-07-01T22:00:00Z`` in Berlin is
    ``2026-07-02T00:00:00``, and ``<= '2026-07-01 23:59:59.999'`` goes to ``2026-07-01T23:59:59``.

    Args:
        constant: The constant of a comparison.
        timezone: The time zone of the attribute. None is UTC.
        ends: Whether the end of the time counts, as in ``<=``, and not its beginning, as in ``<``.

    Returns:
        The text. None for a constant that cannot be a date.

    Raises:
        Fault: No period of the calendar begins, or ends, at this time.
    """
    text = written(constant)
    if text is None or ("." not in text and "," not in text and span_of(text) is not None):
        return text
    found = moment_of(constant, ends=ends, reason="cuts_bin")
    if found is None:
        return text
    moment, has_offset = found
    at = (moment - _EPOCH) // timedelta(seconds=1)
    shown = _shown(at, timezone or "UTC", constant) if has_offset else at
    try:
        second = _EPOCH + timedelta(seconds=shown - ends)
    except OverflowError:
        return text
    return second.replace(tzinfo=None).isoformat()


def period_compared(unit: str, text: str, comparison: str) -> str | None:
    """The period with which periods compare as their beginnings do with a date, a time or a period.

    Args:
        unit: The length of the periods.
        text: The constant of the comparison.
        comparison: The comparison with the beginnings: "lt", "le", "gt", "ge", or "eq".

    Returns:
        Its label. None for what is not a date, and where one period is to begin in it and none does.

    Example:
        >>> period_compared("week", "2026-03-12", "le"), period_compared("week", "2026-03-12", "lt")
        ('2026-W11', '2026-W12')
    """
    bounds = period_bounds(unit, text)
    if bounds is None:
        return None
    first, last = bounds
    if comparison == "eq":
        return first if first == last else None
    return first if comparison in ("lt", "ge") else last


def _shown(at: int, timezone: str, constant: Any) -> int:
    """What clocks show at an instant; where they are put forward, what they show before.

    Both are in seconds since 1970-01-01T00:00.

    Raises:
        Fault: They show it twice, so that a comparison with it would cut the hour that comes twice.
    """
    changes, ahead = Zone(timezone).changes
    for change, before, after in zip(changes, ahead, ahead[1:], strict=False):
        if before - after > abs(at - change):
            raise Fault(
                constant,
                f"{short(constant)} is in the hour that clocks in {timezone} showed twice",
                "compare with the beginning or the end of that hour",
                reason="cuts_bin",
            )
    return at + ahead[bisect_right(changes, at - 1)]


def same_groups(by: str, node: Any) -> bool:
    """Returns whether a function of an attribute has another value for each of its periods."""
    if (truncated := truncation_of(node)) is not None:
        return truncated[0] == by
    part = part_of(node)
    return part is not None and part[0] in _ONE_EACH.get(by, ())


_ONE_EACH: Final = {
    "year": ("year",),
    "weekday": ("dow", "isodow"),
    "month_of_year": ("month",),
    "hour_of_day": ("hour",),
}
