"""The catalogs of one analyst in SQLite, and the rows of the tables that anyone may see."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from stream_dp.gateway.catalogs.catalog_casts import FLOATS, TEXTS, WHOLE
from stream_dp.gateway.catalogs.catalog_functions import ALLOWED_IN_SQLITE, KINDS, ViewFunctions
from stream_dp.gateway.catalogs.catalog_rows import catalog_rows
from stream_dp.gateway.catalogs.catalog_shapes import CATALOGS, Columns
from stream_dp.gateway.catalogs.catalog_syntax import parsed
from stream_dp.gateway.catalogs.catalog_tables import CatalogView
from stream_dp.gateway.catalogs.catalog_translation import CatalogTranslation
from stream_dp.gateway.protocol.sql_fault import SqlFault

MOST_ROWS: Final = 10_000
_MOST_BYTES: Final = 1_000_000
_MOST_STATEMENTS: Final = 256
_READS: Final = frozenset({sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ, sqlite3.SQLITE_RECURSIVE})
_FUNCTIONS: Final = ALLOWED_IN_SQLITE | frozenset(KINDS)


class CatalogDatabase:
    """The catalogs of one analyst.

    Args:
        view: What the analyst sees.
    """

    def __init__(self, view: CatalogView) -> None:
        self._functions = ViewFunctions(view)
        self._database = sqlite3.connect(
            ":memory:", isolation_level=None, cached_statements=_MOST_STATEMENTS
        )
        filled = self._fill(view)
        translation = CatalogTranslation(view, filled, self._functions)
        self._translated = lru_cache(_MOST_STATEMENTS)(
            lambda sql, search_path: translation.statement(parsed(sql))
        )
        self._functions.register(self._database)
        self._close_off()

    def _fill(self, view: CatalogView) -> frozenset[str]:
        """Writes all rows, and returns the catalogs that have some."""
        rows: dict[str, list[dict[str, Any]]] = {}
        for catalog, values in catalog_rows(view):
            rows.setdefault(catalog, []).append(values)
        self._database.execute("BEGIN")
        for catalog, given in rows.items():
            columns = (
                dict(CATALOGS[catalog]) if catalog in CATALOGS else dict.fromkeys(given[0], "text")
            )
            self._create(
                catalog, columns, [tuple(one.get(name) for name in columns) for one in given]
            )
        for table in view.tables:
            if table.rows is not None:
                kinds = {column.name: column.type for column in table.columns}
                self._create(f"{table.schema}.{table.name}", kinds, list(table.rows))
        self._database.execute("COMMIT")
        return frozenset(rows)

    def _create(self, name: str, columns: Mapping[str, str], rows: list[tuple[Any, ...]]) -> None:
        listed = ", ".join(f"{_quoted(one)} {_affinity(kind)}" for one, kind in columns.items())
        self._database.execute(f"CREATE TABLE {_quoted(name)} ({listed})")
        marks = ", ".join("?" * len(columns))
        self._database.executemany(f"INSERT INTO {_quoted(name)} VALUES ({marks})", rows)  # noqa: S608

    def _close_off(self) -> None:
        """From here on, statements read tables and call functions of the list, and nothing else."""
        self._database.execute("PRAGMA case_sensitive_like = 1")
        self._database.execute("PRAGMA query_only = 1")
        self._database.execute(
            "SELECT 1 FROM json_each('[]')"
        )  # it declares a table, which is denied below
        self._database.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _MOST_BYTES)
        self._database.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
        self._database.set_authorizer(_authorized)

    def close(self) -> None:
        """Drops all rows."""
        self._database.close()

    def describe(self, sql: str, settings: Mapping[str, str]) -> Columns:
        """Returns the name and the type of each column. The statement does not run.

        Raises:
            SqlFault: The statement is not answered.
        """
        return self._statement(sql, settings)[1]

    def _statement(self, sql: str, settings: Mapping[str, str]) -> tuple[str, Columns]:
        self._functions.settings = settings
        return self._translated(sql, settings.get("search_path", ""))

    def answer(self, sql: str, settings: Mapping[str, str]) -> tuple[Columns, list[list[Any]]]:
        """Returns the name and the type of each column, and the rows.

        Raises:
            SqlFault: The statement is not answered.
        """
        text, columns = self._statement(sql, settings)
        self._functions.fault = None
        try:
            rows = self._database.execute(text).fetchmany(MOST_ROWS + 1)
        except (sqlite3.Error, MemoryError) as error:
            raise self._fault(error) from None
        if len(rows) > MOST_ROWS:
            raise SqlFault("54000", f"the answer has more than {MOST_ROWS:,} rows; add LIMIT")
        kinds = [kind for _, kind in columns]
        return columns, [
            [_value(one, kind) for one, kind in zip(row, kinds, strict=True)] for row in rows
        ]

    def _fault(self, error: Exception) -> SqlFault:
        """Returns what to say of an error of SQLite, whose own text may repeat the statement."""
        if self._functions.fault is not None:
            return self._functions.fault
        if isinstance(error, MemoryError) or "out of memory" in str(error):
            return SqlFault("53200", "the statement needs too much memory")
        if isinstance(error, sqlite3.DataError) or "too big" in str(error):
            return SqlFault("54000", "a value of the answer is too long")
        return SqlFault("0A000", "this form of a statement about catalogs is not answered")


def _authorized(action: int, first: str | None, second: str | None, *_: Any) -> int:
    if action in _READS:
        return sqlite3.SQLITE_OK
    if action == sqlite3.SQLITE_FUNCTION and str(second).lower() in _FUNCTIONS:
        return sqlite3.SQLITE_OK
    return sqlite3.SQLITE_DENY


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _affinity(kind: str) -> str:
    if kind in WHOLE or kind == "bool" or kind.startswith("reg"):
        return "INTEGER"
    return "REAL" if kind in FLOATS else "TEXT"


def _value(value: Any, kind: str) -> Any:
    """Returns a value as its type has it."""
    if value is None:
        return None
    try:
        if kind == "bool":
            return bool(value)
        if kind in WHOLE:
            return int(value)
        if kind in FLOATS:
            return float(value)
        if kind.startswith("_"):
            return json.loads(value)
    except (TypeError, ValueError):
        raise SqlFault("22P02", f"a value of the answer is not of type {kind}") from None
    return value if isinstance(value, str) and kind in TEXTS else str(value)
