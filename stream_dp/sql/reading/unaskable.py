"""Refuses early, and in words, what no data set answers: docs/unaskable.md has a section for each.

It knows the text and the names of the attributes alone. All else is refused where it is translated.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sqlglot import exp

from stream_dp.sql.reading.faults import Fault
from stream_dp.sql.terms.sql_dates import PERIODS

_HISTORY: Final = (
    "what one person did at several times cannot be asked, because no two rows are ever linked",
    "count the rows of each period, or send a column such as first_visit or visit_number with each row",
)
_SERIES: Final = (
    "Superset limits the series by a second query here, which would choose groups by their noise",
    "set the series limit to None, or choose the groups with a filter",
)
_TWICE: Final = (
    "this counts what the subquery has counted already",
    "group once, and compute with the columns of the subquery here; SUM(n) OVER (ORDER BY day) adds up",
)
_TEXT: Final = (
    "{name} is not declared, and only declared values can be searched",
    "use a declared attribute, or send what you look for as a column, such as the boolean mentions_fall",
)
_NOW: Final = (
    "the present cannot be asked about in this form",
    "write day = CURRENT_DATE, day > CURRENT_DATE - INTERVAL '7 days', or day >= DATE '2026-11-01'",
)
_ROWS: Final = "rows are never shown"
_NOT_ROWS: Final = (
    "ask SELECT {name}, COUNT(*) ... GROUP BY {name}, or read invented rows: stream-dp synthesize, "
    "or SELECT * FROM synthetic.{table} over the Postgres port"
)
_SEARCHES: Final = (
    *(exp.Like, exp.ILike, exp.RegexpLike, exp.RegexpILike, exp.SimilarTo, exp.Glob),
    *(exp.StrPosition, exp.Contains, exp.StartsWith),
)
_CLOCKS: Final = ("NOW", "GETDATE", "SYSDATE")
_PRESENT: Final = (exp.CurrentDate, exp.CurrentDatetime, exp.CurrentTime, exp.CurrentTimestamp)


def check_askable(select: Any, attributes: Sequence[Mapping[str, Any]]) -> None:
    """Refuses histories of persons, text that is not declared, and the present.

    Args:
        select: The statement, as sqlglot reads it.
        attributes: The attributes of the data set.

    Raises:
        Fault: It asks one of these.
    """
    names = {attribute["name"].lower() for attribute in attributes}
    for at in _linked(select, names):
        raise Fault(at, *(_SERIES if at.alias == "series_limit" else _HISTORY))
    for below in select.find_all(exp.Select):
        if below is not select and below.args.get("group"):
            _check_grouped(select, below, names | set(PERIODS))
    if next(select.find_all(exp.Join), None) is None:  # else it may be a column of a public table
        named = {item.alias.lower() for item in select.find_all(exp.Alias)}
        for column in _searched(select, names | named):
            problem, fix = _TEXT
            raise Fault(column, problem.format(name=column.name), fix)
    for now in _present(select):
        raise Fault(now, *_NOW)


def list_of_rows(select: Any, attributes: Sequence[Mapping[str, Any]]) -> Fault | None:
    """Returns why a statement is refused that lists rows, unless it shows none; None for another one.

    Args:
        select: The statement, as sqlglot reads it.
        attributes: The attributes of the data set.
    """
    names = {attribute["name"].lower() for attribute in attributes}
    for column in _listed(select):
        name = column.name if column.name.lower() in names else attributes[0]["name"]
        origin = select.find(exp.Table)
        table = "NAME" if origin is None else origin.name
        return Fault(column, _ROWS, _NOT_ROWS.format(name=name, table=table), sort="rows")
    return None


def _linked(select: Any, names: set[str]) -> Iterator[Any]:
    """Yields what would link rows with other rows."""
    views = {view.alias.lower() for view in select.find_all(exp.CTE)}
    origins = [origin.this for origin in select.find_all(exp.From)]
    tables = {origin.name.lower() for origin in origins if isinstance(origin, exp.Table)}
    for join in select.find_all(exp.Join):
        if isinstance(join.this, exp.Subquery) or join.this.name.lower() in views | tables:
            yield join.this
    if select.args.get("group") is None:
        for window in select.find_all(exp.Window):
            parts = window.args.get("partition_by") or ()
            yield from (part for part in parts if part.name.lower() not in names)
    for where in select.find_all(exp.Where):
        for below in where.find_all(exp.Select):
            condition = below.find_ancestor(exp.Exists, exp.In, exp.Where)
            if below.args.get("from_") and not isinstance(condition, exp.Where):
                yield condition


def _check_grouped(select: Any, below: Any, names: set[str]) -> None:
    """Refuses groups of persons below a SELECT, and to count once more what is counted below."""
    given = {item.alias.lower() for item in below.expressions if isinstance(item, exp.Alias)}
    if below.find(exp.Join) is None:
        for column in below.args["group"].find_all(exp.Column):
            if column.name.lower() not in names | given:
                raise Fault(column, *_HISTORY)
    for item in select.expressions if below.find_ancestor(exp.From, exp.CTE) else ():
        for counted in item.find_all(exp.AggFunc):
            inside = counted.find_ancestor(exp.Select) is select
            if inside and counted.find_ancestor(exp.Window) is None:
                raise Fault(item, *_TWICE)


def _searched(select: Any, names: set[str]) -> Iterator[Any]:
    """Yields the columns whose text is searched, but for those that have nearly a declared name."""
    for search in select.find_all(*_SEARCHES):
        for column in search.find_all(exp.Column):
            name = column.name.lower()
            if name not in names and not difflib.get_close_matches(name, names):
                yield column


def _present(select: Any) -> Iterator[Any]:
    """Yields what stands for the time at which the statement is asked."""
    yield from select.find_all(*_PRESENT)
    yield from (each for each in select.find_all(exp.Anonymous) if each.name.upper() in _CLOCKS)


def _listed(select: Any) -> Iterator[Any]:
    """Yields the columns of a SELECT that would list rows: nothing in it is counted or grouped."""
    levels = list(select.find_all(exp.Select))
    if any(each.args.get("group") or each.args.get("distinct") for each in levels):
        return
    if select.args.get("with_") is None and select.find(exp.AggFunc) is None:
        for item in select.expressions:
            yield from item.find_all(exp.Star, exp.Column)
