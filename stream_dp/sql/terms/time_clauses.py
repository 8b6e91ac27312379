"""The time in a statement: ``WHERE day >= DATE '2026-11-01'`` is a window, and ``GROUP BY day`` a series.

``day``, ``week``, ``month`` and ``phase`` mean the time of a query unless an attribute has that name. They
stand in conditions that AND joins to the others, and are taken out of the statement before the rest
of it is translated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from typing import Any, Final

from sqlglot import exp

from stream_dp.dates import label_of, span_of
from stream_dp.errors import InvalidQuery
from stream_dp.sql.terms import sql_dates
from stream_dp.sql.terms.sql_dates import PERIODS

_MIRRORED: Final = {exp.GTE: exp.LTE, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.LT: exp.GT}
_FROM: Final = (exp.GTE, exp.GT, exp.EQ)
_TO: Final = (exp.LTE, exp.LT, exp.EQ)
_CONNECT: Final = "join it to the other conditions by AND, such as day >= DATE '2026-11-01' AND ..."
_MIXED: Final = (
    "one bound has an offset from UTC, and another one has none",
    "write the offset in both or in neither",
)
_LAST: Final = ("no date comes after this one", "omit this bound")
_FIRST_DAYS: Final = {
    "day": "midnight, at which a day begins and ends",
    "week": "a Monday, which begins a week",
    "month": "the first day of a month",
}

_Error = Callable[..., InvalidQuery]


@dataclass
class _Bounds:
    """The bounds that conditions have set so far, the last ones exclusive: days, or times with an offset."""

    since: date | None = None
    until: date | None = None
    first: int | None = None
    stop: int | None = None


def take_window(select: Any, attributes: Collection[str], error: _Error) -> dict[str, Any]:
    """Takes the conditions about time out of a SELECT.

    Args:
        select: The statement, as sqlglot reads it. It is changed.
        attributes: The names of the attributes. They never mean a time.
        error: A function that makes the error at a piece, from the problem and the fix.

    Returns:
        The field ``window`` of the query's message, if the statement says it.

    Raises:
        InvalidQuery: A condition about time cannot be a window.
    """
    return _window(select, _times(attributes), error)


def period_of(node: Any, attributes: Collection[str]) -> str:
    """Returns which period a piece of a statement names; empty if it names none."""
    return _name(node, _times(attributes))


def _times(attributes: Collection[str]) -> frozenset[str]:
    """The words that mean a time next to these attributes."""
    known = {name.lower() for name in attributes}
    return frozenset(name for name in PERIODS if name not in known)


def _window(select: Any, names: Collection[str], error: _Error) -> dict[str, Any]:
    where = select.args.get("where")
    if where is None:
        return {}
    bounds = _Bounds()
    conditions = list(_conjuncts(where.this))
    others = [each for each in conditions if not _narrow(bounds, each, names, error)]
    for other in others:
        for column in other.find_all(exp.Column):
            if name := _name(column, names):
                raise error(
                    column,
                    f"{name} is the time of the query, which cannot be part of this condition",
                    _CONNECT,
                )
    if len(others) == len(conditions):
        return {}
    select.set("where", exp.Where(this=exp.and_(*others, copy=False)) if others else None)
    by_date = bounds.since is not None or bounds.until is not None
    by_phase = bounds.first is not None or bounds.stop is not None
    if by_date and by_phase:
        raise error(where.this, "a window is by date or by phase", "leave one of the two out")
    if by_phase:
        first, stop = bounds.first or 1, bounds.stop
        if stop is None:
            raise error(where.this, "the last phase is missing", "write phase BETWEEN 3 AND 7")
        if not 1 <= first < stop:
            raise error(where.this, "no phase satisfies this", "write phase BETWEEN 3 AND 7")
        return {"window": {"phases": [first, stop - 1]}}
    if not by_date:
        return {}
    if bounds.since is not None and bounds.until is not None:
        if isinstance(bounds.since, datetime) != isinstance(bounds.until, datetime):
            raise error(where.this, *_MIXED)
        if bounds.since >= bounds.until:
            raise error(where.this, "no day satisfies this", "write the earlier date first")
    ends = (("since", bounds.since), ("until", bounds.until))
    return {"window": {name: end.isoformat() for name, end in ends if end is not None}}


def _conjuncts(condition: Any) -> Iterator[Any]:
    """The conditions that AND joins, in order."""
    condition = condition.unnest()
    if isinstance(condition, exp.And):
        yield from _conjuncts(condition.this)
        yield from _conjuncts(condition.expression)
    else:
        yield condition


def _name(node: Any, names: Collection[str]) -> str:
    """Returns which period a piece names; empty if it names none. DATE_TRUNC('month', day) is a month."""
    if (truncated := sql_dates.truncation_of(node)) is not None:
        unit, of = truncated
        is_known = unit in names and _name(of.unnest(), names) in ("day", unit)
        return unit if is_known else ""
    if not isinstance(node, exp.Column) or node.table:
        return ""
    name: str = node.name.lower()
    return name if name in names else ""


def _narrow(bounds: _Bounds, condition: Any, names: Collection[str], error: _Error) -> bool:
    """Narrows the bounds by a condition; returns whether it is one about time."""
    if isinstance(condition, exp.Between):
        name = _name(condition.this.unnest(), names)
        if name:
            if condition.args.get("symmetric"):
                raise error(condition, "SYMMETRIC is not answered", "put the lower bound first")
            _bound(bounds, name, exp.GTE, condition.args["low"], error)
            _bound(bounds, name, exp.LTE, condition.args["high"], error)
        return bool(name)
    kind = type(condition)
    if kind not in (*_FROM, *_TO):
        return False
    left, right = condition.this.unnest(), condition.expression.unnest()
    if name := _name(left, names):
        _bound(bounds, name, kind, right, error)
    elif name := _name(right, names):
        _bound(bounds, name, _MIRRORED.get(kind, kind), left, error)
    return bool(name)


def _bound(bounds: _Bounds, name: str, kind: Any, constant: Any, error: _Error) -> None:
    """Narrows the bounds by one comparison of a period with a constant."""
    if name == "phase":
        number = _number(constant, error)
        if kind in _FROM:
            bounds.first = max(number + (kind is exp.GT), bounds.first or 1)
        if kind in _TO:
            stop = number + (kind is not exp.LT)
            bounds.stop = stop if bounds.stop is None else min(stop, bounds.stop)
        return
    try:
        if kind in _FROM:
            since = _moment(name, constant, error, ends=kind is exp.GT)
            bounds.since = since if bounds.since is None else max(since, bounds.since)
        if kind in _TO:
            until = _moment(name, constant, error, ends=kind is not exp.LT)
            bounds.until = until if bounds.until is None else min(until, bounds.until)
    except OverflowError:
        raise error(constant, *_LAST) from None
    except TypeError:  # a day and a time with an offset
        raise error(constant, *_MIXED) from None


def _number(constant: Any, error: _Error) -> int:
    constant = constant.unnest()
    is_number = isinstance(constant, exp.Literal) and not constant.is_string
    if is_number and constant.this.isdecimal() and len(constant.this) < 16:
        return int(constant.this)
    raise error(constant, "this is not the number of a phase", "write phase BETWEEN 3 AND 7")


def first_day(name: str, constant: Any, comparison: str, error: _Error) -> str:
    """Returns the date with which the first days of periods compare as with a constant.

    Args:
        name: The periods: "day", "week" or "month".
        constant: The constant: a date or a time, with DATE or TIMESTAMP before it or not.
        comparison: How the first days compare with it: "lt", "le", "gt", "ge", or "eq".
        error: A function that makes the error at a piece, from the problem and the fix.

    Raises:
        InvalidQuery: It is not a date, or one such period is to begin on it and none does.
    """
    text = sql_dates.written(constant.unnest()) or ""
    ends = comparison in sql_dates.ENDS
    try:
        moment = sql_dates.moment_of(text, ends=ends)
        text = sql_dates.on_clocks(text, None, ends=ends)
    except InvalidQuery as fault:
        raise error(constant, f"this {fault.problem}", fault.fix) from None
    if text.startswith("9999-"):
        raise error(constant, *_LAST)
    if moment is not None and moment[1]:
        raise error(
            constant, f"a {name} has no offset from UTC, and this has one", "omit the offset"
        )
    if span_of(text) is None:
        raise error(constant, "this is not a date", "write DATE '2026-11-01'")
    label = sql_dates.period_compared(name, text, comparison)
    begins = None if label is None else span_of(label)
    if begins is None:
        raise error(constant, f"this is not {_FIRST_DAYS[name]}", "write DATE '2026-11-01'")
    return label_of("day", begins[0])


def _moment(name: str, constant: Any, error: _Error, *, ends: bool) -> date:
    """Returns the day at which a period that a constant stands for begins or ends.

    A time with an offset from UTC stands for itself.
    """
    text = sql_dates.written(constant.unnest()) or ""
    try:
        begins = date.fromisoformat(text)
    except ValueError:
        at = _time(constant, text, error, ends=ends and name == "day")
        if name == "day" and at.tzinfo is not None:
            return at
        if at.tzinfo is not None or at.time() != time():
            raise error(
                constant, f"this is not {_FIRST_DAYS[name]}", "write DATE '2026-11-01'"
            ) from None
        begins = at.date()
        if name == "day":
            return begins
    if not {"week": begins.weekday() == 0, "month": begins.day == 1}.get(name, True):
        raise error(constant, f"this is not {_FIRST_DAYS[name]}", "compare day instead")
    return _next(name, begins) if ends else begins


def _time(constant: Any, text: str, error: _Error, *, ends: bool) -> datetime:
    """Returns the moment at which a time begins or ends; without a zone if it has no offset."""
    try:
        found = sql_dates.moment_of(text, ends=ends)
    except InvalidQuery as fault:
        raise error(constant, f"this {fault.problem}", fault.fix) from None
    if found is None:
        raise error(constant, "this is not a date", "write DATE '2026-11-01'")
    moment, has_offset = found
    return moment if has_offset else moment.replace(tzinfo=None)


def _next(name: str, begins: date) -> date:
    if name == "month":
        return (begins + timedelta(days=31)).replace(day=1)
    return begins + timedelta(days=7 if name == "week" else 1)
