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
    names, rows = _asked(sql.in_sqlite(text), tables)
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
    found = [
        Column(name, declared.get(name) or _kind(row[place] for row in rows))
        for place, name in enumerate(names)
    ]
    values = [
        tuple(
            bool(value) if column.type == "boolean" and value is not None else value
            for value, column in zip(row, found, strict=True)
        )
        for row in rows
    ]
    return ResultTable(first, tuple(found), values, None)


def _asked(
    written: str, tables: Sequence[DimensionTable]
) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Returns the names of the columns, and the rows, that SQLite gives for its own SQL."""
    connection = sqlite3.connect(":memory:")
    try:
        for table in tables:
            name, places = _quoted(table.dimension), ", ".join("?" * len(table.columns))
            connection.execute(f"CREATE TABLE {name} ({', '.join(map(_quoted, table.columns))})")
            insert = f"INSERT INTO {name} VALUES ({places})"  # noqa: S608 - its name is in quotes
            connection.executemany(insert, table.rows)
        connection.commit()
        connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _LARGEST_VALUE)
        connection.set_authorizer(_allows)
        steps = iter(range(_MOST_STEPS))
        connection.set_progress_handler(lambda: next(steps, None) is None, _INSTRUCTIONS_A_STEP)
        cursor = connection.execute(written)
        return [column[0] for column in cursor.description], cursor.fetchmany(_MOST_ROWS + 1)
    except (sqlite3.Error, OverflowError) as error:
        first = tables[0].dimension
        raise InvalidQuery(
            "line 1, column 1",
            f"the public table {first} gives no table for this: {error}",
            f"select its columns, such as SELECT * FROM {_quoted(first)}",  # noqa: S608 - no query
        ) from None
    finally:
        connection.close()


def _allows(action: int, *_: object) -> int:
    return sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY


def _kind(values: Any) -> ColumnType:
    """Returns the type of a computed column; that of texts if it has several, or none."""
    kinds: Sequence[ColumnType] = [
        *{_KINDS.get(type(value), "text") for value in values if value is not None}
    ]
    if len(kinds) == 1:
        return kinds[0]
    return "real" if set(kinds) == {"integer", "real"} else "text"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
