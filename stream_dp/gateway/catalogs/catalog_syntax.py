"""Statements about catalogs as trees."""

from __future__ import annotations

from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import SqlglotError

from stream_dp.gateway.catalogs.catalog_shapes import catalog_named
from stream_dp.gateway.catalogs.catalog_tables import CatalogTable
from stream_dp.gateway.protocol.sql_fault import SqlFault

_SPECIAL: Final = {"CAST", "EXTRACT", "POSITION", "SUBSTRING", "TRIM", "OVERLAY"}
QUERIES: Final = (exp.Select, exp.SetOperation, exp.Subquery, exp.Values)


class _CatalogParser(Postgres.Parser):  # type: ignore[misc]
    """Reads ``AS select`` too, and gives functions no meaning of their own."""

    FUNCTIONS: Final = {
        name: made
        for name, made in Postgres.Parser.FUNCTIONS.items()
        if name in ("ARRAY", "COALESCE", "NULLIF")
    }
    FUNCTION_PARSERS: Final = {
        name: read for name, read in Postgres.Parser.FUNCTION_PARSERS.items() if name in _SPECIAL
    }
    RESERVED_TOKENS: Final = Postgres.Parser.RESERVED_TOKENS - {sqlglot.TokenType.SELECT}


class _CatalogTokenizer(Postgres.Tokenizer):  # type: ignore[misc]
    """Takes ``oid`` and ``regclass`` as other types, so that it reads ``oid[]``."""

    KEYWORDS: Final = {
        word: kind
        for word, kind in Postgres.Tokenizer.KEYWORDS.items()
        if kind is not sqlglot.TokenType.OBJECT_IDENTIFIER
    }


class CatalogDialect(Postgres):  # type: ignore[misc]
    """The dialect of Postgres in which a function keeps the name that it was written with."""

    INDEX_OFFSET: Final = 0
    Tokenizer = _CatalogTokenizer
    Parser = _CatalogParser


def parsed(sql: str) -> Any:
    """Returns the tree of a query.

    Raises:
        SqlFault: It is not one query.
    """
    try:
        trees = [tree for tree in sqlglot.parse(sql, read=CatalogDialect) if tree is not None]
    except SqlglotError:
        raise SqlFault("42601", "syntax error: the statement cannot be read") from None
    except RecursionError:
        raise SqlFault("54001", "the statement has too many levels") from None
    if len(trees) != 1 or not isinstance(trees[0], QUERIES):
        raise SqlFault("42601", "syntax error: this is not one query")
    return trees[0]


def folded(identifier: Any) -> str:
    """Returns a name as Postgres folds it: in small letters, unless it is quoted."""
    if not isinstance(identifier, exp.Identifier):
        return ""
    return str(identifier.this) if identifier.args.get("quoted") else str(identifier.this).lower()


def is_about_catalogs(tree: Any, tables: tuple[CatalogTable, ...]) -> bool:
    """Returns whether each table that a statement reads is a catalog, or one whose rows are known, or none.

    Args:
        tree: The tree of the statement, in sqlglot's dialect of Postgres or the one of this module.
        tables: The tables that the analyst sees.
    """
    known = {(table.schema, table.name) for table in tables if table.rows is not None}
    withs = {folded(cte.args["alias"].this) for cte in tree.find_all(exp.CTE)}
    for table in tree.find_all(exp.Table):
        if not isinstance(table.this, exp.Identifier):
            continue
        schema, name = folded(table.args.get("db")), folded(table.this)
        if not schema and name in withs:
            continue
        if catalog_named(schema, name) is None and (schema or "public", name) not in known:
            return False
    return True
