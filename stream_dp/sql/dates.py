"""The dates of SQL: constants, parts of dates, and the beginnings of periods."""

from __future__ import annotations

from typing import Any, Final

from sqlglot import exp

__all__ = ["part_of", "same_groups", "truncation_of", "written"]

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
_CONSTANTS: Final = frozenset(
    {
        exp.DataType.Type.DATE,
        exp.DataType.Type.DATETIME,
        exp.DataType.Type.TIMESTAMP,
        exp.DataType.Type.TIMESTAMPNTZ,
    }
)


def part_of(node: Any) -> tuple[str, Any] | None:
    """The part that EXTRACT, DATE_PART, MONTH and the like take, and the piece of which they take it."""
    if isinstance(node, exp.Extract):
        name = node.name.lower()
        return _NAMES.get(name, name), node.expression.unnest()
    if type(node) in _PARTS:
        return _PARTS[type(node)], node.this.unnest()
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


def written(node: Any) -> str | None:
    """The text of a constant that may be a date: '2026-03-14', DATE '2026-03-14', TIMESTAMP '...'."""
    if isinstance(node, exp.Cast) and node.to.this in _CONSTANTS:
        node = node.this
    return str(node.this) if isinstance(node, exp.Literal) and node.is_string else None


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
