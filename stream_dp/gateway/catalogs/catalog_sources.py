"""The tables of a FROM, as SQLite reads them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from sqlglot import exp

from stream_dp.gateway.catalogs.catalog_casts import call, item_type
from stream_dp.gateway.catalogs.catalog_expressions import Expressions, unanswered
from stream_dp.gateway.catalogs.catalog_scopes import (
    Source,
    StatementScope,
    TranslatedQuery,
    quoted,
)
from stream_dp.gateway.catalogs.catalog_shapes import CATALOG_OIDS, CATALOGS, catalog_named
from stream_dp.gateway.catalogs.catalog_syntax import folded
from stream_dp.gateway.catalogs.catalog_tables import CatalogView
from stream_dp.gateway.catalogs.column_names import column_name
from stream_dp.gateway.protocol.sql_fault import SqlFault

KEYWORDS: Final = "pg_catalog.pg_get_keywords"
_TABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "aclexplode": {
        "grantor": "oid",
        "grantee": "oid",
        "privilege_type": "text",
        "is_grantable": "bool",
    },
    "pg_available_extensions": {"name": "name", "default_version": "text", "comment": "text"},
    "pg_get_keywords": {"word": "text", "catcode": "char", "barelabel": "bool", "catdesc": "text"},
    "pg_get_publication_tables": {"relid": "oid", "attrs": "int2vector", "qual": "text"},
    "pg_options_to_table": {"option_name": "text", "option_value": "text"},
    "pg_partition_ancestors": {"relid": "regclass"},
    "pg_partition_tree": {
        "relid": "regclass",
        "parentrelid": "regclass",
        "isleaf": "bool",
        "level": "int4",
    },
}
"""The functions of Postgres that give rows. All but the keywords have none here."""


def no_rows(names: list[str]) -> Any:
    """Returns a SELECT with columns and without rows."""
    return exp.select(*(exp.alias_(exp.null(), quoted(name)) for name in names)).where(exp.false())


def as_subquery(node: Any, alias: str) -> Any:
    """Returns a query in brackets that has a name."""
    return exp.Subquery(this=node, alias=exp.TableAlias(this=quoted(alias)))


def _as_table(this: Any, alias: str) -> Any:
    return exp.Table(this=this, alias=exp.TableAlias(this=quoted(alias)))


def _is_in_brackets(node: Any) -> bool:
    """Returns whether a node is not a query but a table, or joined tables, in brackets."""
    while isinstance(node, exp.Subquery) and node.args.get("alias") is None:
        node = node.this
        if isinstance(node, exp.Table) or (
            isinstance(node, exp.Subquery) and node.args.get("alias") is not None
        ):
            return True
    return False


def _aliases(node: Any) -> tuple[str, list[str]]:
    alias = node.args.get("alias")
    if not isinstance(alias, exp.TableAlias):
        return "", []
    return folded(alias.this), [folded(one) for one in alias.args.get("columns") or []]


class Sources:
    """Translates tables.

    Args:
        view: What the analyst sees.
        filled: The catalogs that have rows.
        path: Returns the schemas in which a name without one is looked for.
        expressions: Translates expressions.
        query: Translates a query, for the scope around it.
    """

    def __init__(
        self,
        view: CatalogView,
        filled: frozenset[str],
        path: Callable[[], list[str]],
        expressions: Expressions,
        query: Callable[[Any, StatementScope], TranslatedQuery],
    ) -> None:
        self._tables = {(table.schema, table.name): table for table in view.tables}
        self._filled = filled
        self._path = path
        self._expressions = expressions
        self._query = query

    def read(self, node: Any, scope: StatementScope) -> Any:
        """Returns a table as SQLite reads it, and adds what it has to the scope.

        Raises:
            SqlFault: There is no such table, or the form is not answered.
        """
        found = (
            exp.Subquery(this=self.read(node.this, scope))
            if _is_in_brackets(node)
            else self._one(node, scope)
        )
        return self.with_joins(found, node.args.get("joins"), scope)

    def with_joins(self, found: Any, joins: list[Any] | None, scope: StatementScope) -> Any:
        """Returns a table with the tables that are joined to it."""
        if joins:
            found.set("joins", [self.join(join, scope) for join in joins])
        return found

    def join(self, node: Any, scope: StatementScope) -> Any:
        """Returns a join, and adds what it has to the scope."""
        before = len(scope.sources)
        this = self.read(node.this, scope)
        side, using = str(node.side or "").upper(), node.args.get("using")
        if str(node.args.get("method") or ""):
            raise unanswered(node)
        scope.merged |= {folded(one) for one in using or []}
        if side in ("LEFT", "FULL"):
            scope.sources[before:] = [replace(s, is_empty=False) for s in scope.sources[before:]]
        if side in ("RIGHT", "FULL"):
            scope.sources[:before] = [replace(s, is_empty=False) for s in scope.sources[:before]]
        kind = "CROSS" if not node.args.get("on") and not using else ""
        joined = exp.Join(this=this, side=side or None, kind=kind or None)
        if node.args.get("on") is not None:
            try:
                joined.set("on", self._expressions.value(node.args["on"], scope))
            except SqlFault as fault:  # another table may be empty
                scope.faults.append(fault)
        if using:
            joined.set("using", [quoted(folded(one)) for one in using])
        return joined

    def _one(self, node: Any, scope: StatementScope) -> Any:
        alias, columns = _aliases(node)
        if isinstance(node, exp.Lateral):
            inner = node.this
            if isinstance(inner, exp.Subquery):
                return self._derived(inner, alias, columns, scope, scope)
            return self._function(
                inner, alias, columns, scope, with_number=bool(node.args.get("ordinality"))
            )
        if isinstance(node, exp.Unnest):
            unnest = exp.Anonymous(this="unnest", expressions=node.expressions)
            number = node.args.get("offset")
            if columns and isinstance(number, exp.Identifier):
                columns = [*columns, folded(number)]
            return self._function(unnest, alias, columns, scope, with_number=bool(number))
        if isinstance(node, (exp.Values, exp.Subquery)):
            return self._derived(node, alias, columns, scope, scope.outer)
        if not isinstance(node, exp.Table):
            raise unanswered(node)
        if isinstance(node.this, exp.Identifier):
            return self._table(node, alias, columns, scope)
        number = bool(node.args.get("ordinality"))
        return self._function(node.this, alias, columns, scope, with_number=number)

    def _table(self, node: Any, alias: str, columns: list[str], scope: StatementScope) -> Any:
        schema, name = folded(node.args.get("db")), folded(node.this)
        alias = alias or name
        if not schema and name in scope.withs:
            found = scope.withs[name]
            source = Source(alias, found.columns, is_empty=found.is_empty)
            scope.sources.append(_renamed(source, columns))
            return _as_table(quoted(name), alias)
        catalog = catalog_named(schema, name)
        if catalog is not None:
            empty = catalog not in self._filled
            source = Source(
                alias, dict(CATALOGS[catalog]), is_empty=empty, oid=CATALOG_OIDS[catalog]
            )
            scope.sources.append(_renamed(source, columns))
            if empty:
                return as_subquery(no_rows(list(source.columns)), alias)
            return _as_table(quoted(catalog), alias)
        for one in (schema,) if schema else self._path():
            table = self._tables.get((one, name))
            if table is not None and table.rows is not None:
                kinds = {column.name: column.type for column in table.columns}
                scope.sources.append(_renamed(Source(alias, kinds), columns))
                return _as_table(quoted(f"{one}.{name}"), alias)
        shown = f"{schema}.{name}" if schema else name
        raise SqlFault("42P01", f'relation "{shown}" does not exist')

    def _derived(
        self,
        node: Any,
        alias: str,
        columns: list[str],
        scope: StatementScope,
        outer: StatementScope | None,
    ) -> Any:
        inner = self._query(node, StatementScope(scope.withs, outer))
        alias = alias or f"unnamed{len(scope.sources)}"
        source = Source(alias, dict(inner.columns), is_empty=inner.is_empty)
        scope.sources.append(_renamed(source, columns))
        return as_subquery(inner.node, alias)

    def _function(
        self, node: Any, alias: str, columns: list[str], scope: StatementScope, *, with_number: bool
    ) -> Any:
        while isinstance(node, exp.Dot):
            node = node.expression
        name = str(node.this).lower() if isinstance(node, exp.Anonymous) else column_name(node)
        alias = alias or name
        if name in _TABLES:
            return self._of_table_function(name, alias, columns, scope)
        if name not in EACH:
            found, kind = self._expressions.typed(node, scope)
            shown = columns[0] if columns else alias
            scope.sources.append(Source(alias, {shown: kind}))
            return as_subquery(exp.select(exp.alias_(found, quoted(shown))), alias)
        items, kind, own = self.each(name, node.expressions, scope)
        names = columns or (["x", "n"] if name == EXPANDED else [alias])
        if with_number:
            own, names = (*own, "key"), [*names, "ordinality"][: len(own) + 1]
        fields = dict(zip(names, own, strict=False))
        kinds = {shown: kind if read == "value" else "int4" for shown, read in fields.items()}
        if with_number:
            kinds[names[-1]] = "int8"
        scope.sources.append(Source(alias, kinds, lambda shown: of_each(alias, fields[shown])))
        return _as_table(items, alias)

    def each(
        self, name: str, arguments: list[Any], scope: StatementScope
    ) -> tuple[Any, str | None, tuple[str, ...]]:
        """Returns a function that gives rows as ``json_each``, the type of an item, and what to read."""
        if not arguments:
            raise SqlFault("42883", f"function {name}() does not exist")
        values = [self._expressions.typed(one, scope) for one in arguments]
        nodes = [one for one, _ in values]
        if name == "generate_series":
            return call("json_each", call("catalog_series", *nodes)), values[0][1], ("value",)
        kind = values[0][1]
        return call("json_each", nodes[0]), item_type(kind), EACH[name]

    def _of_table_function(
        self, name: str, alias: str, columns: list[str], scope: StatementScope
    ) -> Any:
        is_empty = name != "pg_get_keywords"
        scope.sources.append(_renamed(Source(alias, _TABLES[name], is_empty=is_empty), columns))
        if is_empty:
            return as_subquery(no_rows(list(_TABLES[name])), alias)
        return _as_table(quoted(KEYWORDS), alias)


EXPANDED: Final = "_pg_expandarray"
EACH: Final[Mapping[str, tuple[str, ...]]] = {
    "unnest": ("value",),
    "generate_series": ("value",),
    "generate_subscripts": ("key",),
    EXPANDED: ("value", "key"),
}
"""The functions that give a row for each item, and the columns of ``json_each`` that theirs are."""


def of_each(alias: str, column: str) -> Any:
    """Returns a column of ``json_each``, whose keys count from 0 and those of Postgres from 1."""
    found = exp.Column(this=quoted(column), table=quoted(alias))
    return (
        exp.Paren(this=exp.Add(this=found, expression=exp.Literal.number(1)))
        if column == "key"
        else found
    )


def _renamed(source: Source, columns: list[str]) -> Source:
    """Returns a table whose first columns have other names."""
    if not columns:
        return source
    old = list(source.columns)
    if len(columns) > len(old):
        raise SqlFault("42P10", f"table {source.alias} has fewer columns than names")
    own = dict(zip([*columns, *old[len(columns) :]], old, strict=True))
    kinds = {name: source.columns[of] for name, of in own.items()}
    return replace(source, columns=kinds, expression=lambda name: source.column(own[name]))
