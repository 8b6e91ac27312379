"""SELECT about a public table alone. It holds no private row, so it is answered exactly and here."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final

from stream_dp.client.statements.result_table import Column, ColumnType, ResultTable
from stream_dp.errors import InvalidQuery
from stream_dp.messages import DimensionTable

_ALLOWED: Final = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_FUNCTION})
_LARGEST_VALUE: Final = 1_000_000
_INSTRUCTIONS_A_STEP: Final = 100_000
_MOST_STEPS: Final = 200
_MOST_ROWS: Final = 50_000
_KINDS: Final[dict[type, ColumnType]] = {str: "text", int: "integer", float: "real"}


def selected(text: str, tables: Sequence[DimensionTable]) -> ResultTable:
    """Returns the table that a SELECT gives. SQLite works it out in memory, and reads nothing else.

    Args:
        text: The SELECT.
        tables: The public tables that it names, the one of its FROM first.

    Raises:
        InvalidQuery: It cannot be worked out, takes too long, or has too many rows.

    Example:
        >>> from stream_dp.messages import DimensionTable
        >>> beds = DimensionTable(dimension="beds", key="ward", columns=("ward", "beds"),
        ...     types=("text", "integer"), rows=(("ICU", 12), ("Surgery", 40)))
        >>> selected("SELECT ward FROM beds WHERE beds > 20", [beds]).rows
        [('Surgery',)]
    """
    from stream_dp import sql  # sqlglot is slow to load

    first = tables[0].dimension
    names, rows = _worked_out(sql.in_sqlite(text), tables)
    if len(rows) > _MOST_ROWS:
        raise InvalidQuery(
            "line 1, column 1",
            f"this has more than {_MOST_ROWS:,} rows, which are the most that a statement gives",
            f"add LIMIT {_MOST_ROWS}, or a condition",
        )
    declared: dict[str, ColumnType] = {
        name: kind
        for table in reversed(tables)
        for name, kind in zip(table.columns, table.types, strict=True)
    }
    columns = tuple(
        Column(name, declared.get(name) or _kind(row[place] for row in rows))
        for place, name in enumerate(names)
    )
    booleans = {place for place, column in enumerate(columns) if column.type == "boolean"}
    values = [
        tuple(
            bool(value) if place in booleans and value is not None else value
            for place, value in enumerate(row)
        )
        for row in rows
    ]
    return ResultTable(first, columns, values, None)


def _worked_out(
    written: str, tables: Sequence[DimensionTable]
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Returns the names of the columns and the rows that SQLite gives, one row more than the most."""
    first = tables[0].dimension
    connection = sqlite3.connect(":memory:")
    try:
        for table in tables:
            name, places = _quoted(table.dimension), ", ".join("?" * len(table.columns))
            connection.execute(f"CREATE TABLE {name} ({', '.join(map(_quoted, table.columns))})")
            insert = f"INSERT INTO {name} VALUES ({places})"  # noqa: S608 - its name is in quotes
            connection.executemany(insert, table.rows)
        connection.commit()
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE)
        connection.set_authorizer(
            lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY
        )
        steps = iter(range(_MOST_STEPS))
        connection.set_progress_handler(lambda: next(steps, None) is None, _INSTRUCTIONS_A_STEP)
        cursor = connection.execute(written)
        return [column[0] for column in cursor.description], cursor.fetchmany(_MOST_ROWS + 1)
    except (sqlite3.Error, OverflowError) as error:
        raise InvalidQuery(
            "line 1, column 1",
            f"the public table {first} gives no table for this: {error}",
            f"select its columns, such as SELECT * FROM {_quoted(first)}",  # noqa: S608 - no query
        ) from None
    finally:
        connection.close()


def _kind(values: Any) -> ColumnType:
    """Returns the type of a computed column; that of texts if it has several, or none."""
    kinds = {_KINDS.get(type(value), "text") for value in values if value is not None}
    if kinds == {"integer", "real"}:
        return "real"
    return kinds.pop() if len(kinds) == 1 else "text"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
