"""The time in a statement: ``WHERE day >= DATE '2026-11-01'`` is a window, and ``GROUP BY day`` a series.

``day``, ``week``, ``month`` and ``phase`` mean the time of a query unless an attribute has that name. They
stand in conditions that AND joins to the others, and are taken out of the statement before the rest
of it is translated.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from datetime import date, datetime, time
from typing import Any, Final, TypeAlias

from sqlglot import exp

from stream_dp.attribute_dates import label_of, span_of
from stream_dp.calendar_periods import Length
from stream_dp.sql.reading.faults import Fault
from stream_dp.sql.reading.literals import whole_number
from stream_dp.sql.terms import sql_dates
from stream_dp.sql.terms.comparisons import comparison_of
from stream_dp.sql.terms.sql_dates import PERIODS

_FROM: Final = ("ge", "gt", "eq")
_TO: Final = ("le", "lt", "eq")
_CONNECT: Final = "join it to the other conditions by AND, such as day >= DATE '2026-11-01' AND ..."
_MIXED: Final = (
    "one bound has an offset from UTC, and another one has none",
    "write the offset in both or in neither",
)
_LAST: Final = ("no date comes after this one", "omit this bound")
_NOT_A_DATE: Final = ("this is not a date", "write DATE '2026-11-01'")
_PHASES: Final = "write phase BETWEEN 3 AND 7"
_FIRST_DAYS: Final = {
    "day": "midnight, at which a day begins and ends",
    "week": "a Monday, which begins a week",
    "month": "the first day of a month",
}


_Bounds: TypeAlias = dict[str, Any]
"""The bounds that conditions have set so far, by the names of ``_BOUNDS``; the last ones are exclusive."""

_BOUNDS: Final = {"phase": ("first", "stop")}
"""The names of the bounds of a phase; those of a day, a week or a month are "since" and "until"."""


def take_window(select: Any, attributes: Collection[str]) -> dict[str, Any]:
    """Takes the conditions about time out of a SELECT.

    Args:
        select: The statement, as sqlglot reads it. It is changed.
        attributes: The names of the attributes. They never mean a time.

    Returns:
        The field ``window`` of the query's message, if the statement says it.

    Raises:
        Fault: A condition about time cannot be a window.
    """
    where = select.args.get("where")
    if where is None:
        return {}
    bounds: _Bounds = {}
    parts = list(conjuncts(where.this))
    others = [each for each in parts if not _narrow(bounds, each, attributes)]
    for other in others:
        for column in other.find_all(exp.Column):
            if name := period_of(column, attributes):
                problem = f"{name} is the time of the query, which cannot be part of this condition"
                raise Fault(column, problem, _CONNECT)
    if len(others) == len(parts):
        return {}
    select.set("where", exp.Where(this=exp.and_(*others, copy=False)) if others else None)
    return _window(bounds, where.this)


def conjuncts(condition: Any) -> Iterator[Any]:
    """Yields the conditions that AND joins, in their order."""
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        yield from conjuncts(condition.this)
        yield from conjuncts(condition.expression)
    else:
        yield condition


def _window(bounds: _Bounds, at: Any) -> dict[str, Any]:
    """Returns the field ``window`` of bounds."""
    since, until, stop = (bounds.get(name) for name in ("since", "until", "stop"))
    first = max(bounds.get("first", 1), 1)
    if "first" in bounds or stop is not None:
        if since is not None or until is not None:
            raise Fault(at, "a window is by date or by phase", "leave one of the two out")
        if stop is None:
            raise Fault(at, "the last phase is missing", _PHASES)
        if first >= stop:
            raise Fault(at, "no phase satisfies this", _PHASES)
        return {"window": {"phases": [first, stop - 1]}}
    if since is not None and until is not None:
        if isinstance(since, datetime) != isinstance(until, datetime):
            raise Fault(at, *_MIXED)
        if since >= until:
            raise Fault(at, "no day satisfies this", "write the earlier date first")
    ends = (("since", since), ("until", until))
    return {"window": {name: end.isoformat() for name, end in ends if end is not None}}


def period_of(node: Any, attributes: Collection[str]) -> str:
    """Returns which period a piece names; empty if it names none. DATE_TRUNC('month', day) is a month.

    Args:
        node: The piece.
        attributes: The names of the attributes. They never mean a time.
    """
    if (truncated := sql_dates.truncation_of(node)) is not None:
        unit, of = truncated
        is_known = _is_time(unit, attributes) and period_of(of.unnest(), attributes) in (
            "day",
            unit,
        )
        return unit if is_known else ""
    is_name = isinstance(node, exp.Column) and not node.table
    return node.name.lower() if is_name and _is_time(node.name.lower(), attributes) else ""


def _is_time(name: str, attributes: Collection[str]) -> bool:
    return name in PERIODS and name not in (each.lower() for each in attributes)


def _narrow(bounds: _Bounds, condition: Any, attributes: Collection[str]) -> bool:
    """Narrows the bounds by a condition; returns whether it is one about time."""
    found = None if isinstance(condition, exp.In) else comparison_of(condition)
    if found is None or found.operator == "like" or found.negated or found.null_safe:
        return False
    if name := period_of(found.subject, attributes):
        for constant, compared in found.pairs():
            _bound(bounds, name, compared, constant)
    return bool(name)


def _bound(bounds: _Bounds, name: str, compared: str, constant: Any) -> None:
    """Narrows the bounds by one comparison of a period with a constant."""
    low, high = _BOUNDS.get(name, ("since", "until"))
    try:
        if compared in _FROM:
            since = _bound_of(name, constant, ends=compared == "gt")
            bounds[low] = max(since, bounds.get(low, since))
        if compared in _TO:
            until = _bound_of(name, constant, ends=compared != "lt")
            bounds[high] = min(until, bounds.get(high, until))
    except (OverflowError, ValueError):
        raise Fault(constant, *_LAST) from None
    except TypeError:  # a day and a time with an offset
        raise Fault(constant, *_MIXED) from None


def first_day(name: str, constant: Any, comparison: str) -> str:
    """Returns the date with which the first days of periods compare as with a constant.

    Args:
        name: The periods: "day", "week" or "month".
        constant: The constant: a date or a time, with DATE or TIMESTAMP before it or not.
        comparison: How the first days compare with it: "lt", "le", "gt", "ge", or "eq".

    Raises:
        Fault: It is not a date, or one such period is to begin on it and none does.
    """
    ends = comparison in sql_dates.ENDS
    moment = sql_dates.moment_of(constant, ends=ends)
    text = sql_dates.on_clocks(constant, None, ends=ends) or ""
    if text.startswith("9999-"):
        raise Fault(constant, *_LAST)
    if moment is not None and moment[1]:
        problem = f"a {name} has no offset from UTC, and this has one"
        raise Fault(constant, problem, "omit the offset")
    if span_of(text) is None:
        raise Fault(constant, *_NOT_A_DATE)
    label = sql_dates.period_compared(name, text, comparison)
    begins = None if label is None else span_of(label)
    if begins is None:
        raise Fault(constant, f"this is not {_FIRST_DAYS[name]}", _NOT_A_DATE[1])
    return label_of("day", begins[0])


def _bound_of(name: str, constant: Any, *, ends: bool) -> Any:
    """Returns the day at which a period that a constant stands for begins or ends; a phase by its number.

    A time with an offset from UTC stands for itself.
    """
    if name == "phase":
        number = whole_number(constant.unnest())
        if number is None:
            raise Fault(constant, "this is not the number of a phase", _PHASES)
        return number + ends
    try:
        shown = datetime.combine(date.fromisoformat(sql_dates.written(constant) or ""), time())
    except ValueError:
        found = sql_dates.moment_of(constant, ends=ends and name == "day")
        if found is None:
            raise Fault(constant, *_NOT_A_DATE) from None
        moment, has_offset = found
        if name == "day" and has_offset:
            return moment
        shown = moment.replace(tzinfo=None)
        if has_offset or shown.time() != time():
            raise Fault(constant, f"this is not {_FIRST_DAYS[name]}", _NOT_A_DATE[1]) from None
        if name == "day":
            return shown.date()
    length = Length.read(f"1 {name}")
    begins = length.number(shown)
    if length.start(begins) != shown:
        raise Fault(constant, f"this is not {_FIRST_DAYS[name]}", "compare day instead")
    return length.start(begins + ends).date()
