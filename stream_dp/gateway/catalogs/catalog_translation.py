"""Queries about catalogs as queries of SQLite, with the names and the types of their columns.

A join with a catalog that has no rows has none, so what such a query says need not be translated.
"""

from __future__ import annotations

from typing import Any, Final

from sqlglot import exp

from stream_dp.gateway.catalogs.catalog_casts import NAMED, as_text, cast
from stream_dp.gateway.catalogs.catalog_expressions import Expressions, unanswered
from stream_dp.gateway.catalogs.catalog_functions import AGGREGATES, RENAMED, ViewFunctions
from stream_dp.gateway.catalogs.catalog_scopes import (
    UNKNOWN,
    Source,
    StatementScope,
    TranslatedQuery,
    Typed,
    common_type,
    quoted,
)
from stream_dp.gateway.catalogs.catalog_shapes import Columns
from stream_dp.gateway.catalogs.catalog_sources import (
    EACH,
    EXPANDED,
    Sources,
    as_subquery,
    no_rows,
    of_each,
)
from stream_dp.gateway.catalogs.catalog_syntax import folded
from stream_dp.gateway.catalogs.catalog_tables import CatalogView
from stream_dp.gateway.catalogs.column_names import column_name
from stream_dp.gateway.pg_types import OIDS
from stream_dp.gateway.protocol.sql_fault import SqlFault

_READ: Final = frozenset(
    {
        "with_",
        "expressions",
        "from_",
        "joins",
        "laterals",
        "where",
        "group",
        "having",
        "order",
        "limit",
    }
    | {"offset", "distinct", "windows", "locks", "kind", "hint", "operation_modifiers"}
)
Item = tuple[str, Any, str | None]
"""The name, the expression and the type of a column of a SELECT."""


class CatalogTranslation:
    """Translates statements for one analyst.

    Args:
        view: What the analyst sees.
        filled: The catalogs that have rows.
        functions: The functions of the view.
    """

    def __init__(self, view: CatalogView, filled: frozenset[str], functions: ViewFunctions) -> None:
        self._functions = functions
        self._expressions = Expressions(view.user, functions, self._inner)
        self._sources = Sources(view, filled, functions.path, self._expressions, self._inner)

    def statement(self, tree: Any) -> tuple[str, Columns]:
        """Returns a statement of SQLite, and the names and the types of its columns.

        Args:
            tree: The tree of the statement, which is changed.

        Raises:
            SqlFault: It names what does not exist, or has a form that is not answered.
        """
        try:
            found = self._query(tree, StatementScope({}), is_shown=True)
            columns = tuple((name, _shown_type(kind)) for name, kind in found.columns)
            return str(found.node.sql(dialect="sqlite", comments=False)), columns
        except RecursionError:
            raise SqlFault("54001", "the statement has too many levels") from None

    def _inner(self, node: Any, scope: StatementScope) -> TranslatedQuery:
        return self._query(node, scope, is_shown=False)

    def _query(self, node: Any, around: StatementScope, *, is_shown: bool) -> TranslatedQuery:
        """Translates a query for the scope around it."""
        if isinstance(node, exp.Subquery):
            return self._in_brackets(node, around, is_shown=is_shown)
        if isinstance(node, exp.SetOperation):
            return self._set_operation(node, around, is_shown=is_shown)
        if isinstance(node, exp.Values):
            return self._values(node, around)
        if isinstance(node, exp.Select):
            return self._select(node, around, is_shown=is_shown)
        raise unanswered(node)

    def _in_brackets(self, node: Any, around: StatementScope, *, is_shown: bool) -> TranslatedQuery:
        inner = self._query(node.this, around, is_shown=is_shown)
        if not any(node.args.get(part) for part in ("order", "limit", "offset")):
            return inner
        outer = exp.select("*").from_(as_subquery(inner.node, "inner"))
        self._finish(node, outer, StatementScope(around.withs, around, outputs=dict(inner.columns)))
        return TranslatedQuery(outer, inner.columns, inner.is_empty)

    def _withs(self, node: Any, around: StatementScope) -> tuple[StatementScope, Any]:
        """Returns the scope that sees the queries of a WITH, and the WITH."""
        given = node.args.get("with_")
        if given is None:
            return around, None
        scope = StatementScope(dict(around.withs), around.outer, around.sources)
        withs, made = dict(around.withs), []
        for cte in given.expressions:
            name = folded(cte.args["alias"].this)
            names = [folded(one) for one in cte.args["alias"].args.get("columns") or []]
            scope.withs = withs
            if given.args.get("recursive") and isinstance(cte.this, exp.SetOperation):
                first = self._inner(cte.this.this.copy(), scope)
                withs[name] = _source_of(name, names, TranslatedQuery(None, first.columns))
            found = self._inner(cte.this, scope)
            withs[name] = _source_of(name, names, found)
            columns = [quoted(one) for one in withs[name].columns]
            alias = exp.TableAlias(this=quoted(name), columns=columns)
            made.append(exp.CTE(this=found.node, alias=alias))
        return scope, exp.With(expressions=made, recursive=given.args.get("recursive"))

    def _set_operation(
        self, node: Any, around: StatementScope, *, is_shown: bool
    ) -> TranslatedQuery:
        around, withs = self._withs(node, around)
        left = self._query(node.this, around, is_shown=is_shown)
        right = self._query(node.expression, around, is_shown=is_shown)
        if len(left.columns) != len(right.columns):
            raise SqlFault(
                "42601", "each query of a set operation must have the same number of columns"
            )
        pairs = zip(left.columns, right.columns, strict=True)
        columns = tuple((name, common_type([kind, other])) for (name, kind), (_, other) in pairs)
        made = type(node)(
            this=_member(left.node, is_first=True),
            expression=_member(right.node, is_first=False),
            distinct=node.args.get("distinct"),
            with_=withs,
        )
        self._finish(node, made, StatementScope(around.withs, outputs=dict(columns)))
        return TranslatedQuery(made, columns, left.is_empty and right.is_empty)

    def _values(self, node: Any, around: StatementScope) -> TranslatedQuery:
        tuples = [
            row.expressions if isinstance(row, exp.Tuple) else [row] for row in node.expressions
        ]
        if len(set(map(len, tuples))) > 1:
            raise SqlFault("42601", "VALUES lists must all be the same length")
        rows = [[self._expressions.typed(one, around) for one in row] for row in tuples]
        names = [f"column{i}" for i in range(1, len(rows[0]) + 1)]
        kinds = [common_type([kind for _, kind in column]) for column in zip(*rows, strict=True)]
        selects = [
            exp.select(
                *(exp.alias_(one, quoted(name)) for name, (one, _) in zip(names, row, strict=True))
            )
            for row in rows
        ]
        made = selects[0] if len(selects) == 1 else exp.union(*selects, distinct=False, copy=False)
        return TranslatedQuery(made, tuple(zip(names, kinds, strict=True)))

    def _select(self, node: Any, around: StatementScope, *, is_shown: bool) -> TranslatedQuery:
        used = {part for part, value in node.args.items() if value}
        if used - _READ:
            raise unanswered(node)
        around, withs = self._withs(node, around)
        scope = StatementScope(around.withs, around)
        made = exp.Select(with_=withs)
        if node.args.get("from_") is not None:
            made.set("from_", exp.From(this=self._sources.read(node.args["from_"].this, scope)))
        joins = [self._sources.join(one, scope) for one in node.args.get("joins") or []]
        is_empty = scope.is_empty and not _is_one_group(node)
        if scope.faults and not is_empty:
            raise scope.faults[0]
        items = self._items(node, scope, joins, is_empty=is_empty)
        if is_shown:
            items = [_shown(item) for item in items]
        columns = tuple((name, kind) for name, _, kind in items)
        if is_empty:
            return TranslatedQuery(no_rows([name for name, _ in columns]), columns, is_empty=True)
        if joins and made.args.get("from_") is None:
            made.set("from_", exp.From(this=as_subquery(exp.select("1"), "row")))
        made.set("joins", joins)
        made.set("expressions", [exp.alias_(one, quoted(name)) for name, one, _ in items])
        if node.args.get("where") is not None:
            made.set(
                "where", exp.Where(this=self._expressions.value(node.args["where"].this, scope))
            )
        scope.outputs = dict(columns)
        self._group(node, made, scope)
        self._finish(node, made, scope)
        return TranslatedQuery(made, columns)

    def _items(
        self, node: Any, scope: StatementScope, joins: list[Any], *, is_empty: bool
    ) -> list[Item]:
        items: list[Item] = []
        for one in node.expressions:
            if isinstance(one, exp.Star) or (
                isinstance(one, exp.Column) and isinstance(one.this, exp.Star)
            ):
                items += scope.starred(
                    "" if isinstance(one, exp.Star) else folded(one.args.get("table"))
                )
                continue
            name, inner = column_name(one), one.unalias()
            try:
                items.append((name, *self._item(inner, scope, joins)))
            except SqlFault:
                if not is_empty:
                    raise
                items.append((name, exp.null(), None))
        return items

    def _item(self, node: Any, scope: StatementScope, joins: list[Any]) -> Typed:
        """Returns a column of a SELECT. A function there that gives rows becomes a table."""
        inner, field = node, ""
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Identifier):
            inner, field = node.this.unnest(), folded(node.expression)
        if isinstance(inner, exp.Dot):
            inner = inner.expression
        name = str(inner.this).lower() if isinstance(inner, exp.Anonymous) else ""
        if name not in EACH or bool(field) != (name == EXPANDED):
            return self._expressions.typed(node, scope)
        items, kind, own = self._sources.each(name, inner.expressions, scope)
        alias = f"each{len(joins)}"
        table = exp.Table(this=items, alias=exp.TableAlias(this=quoted(alias)))
        joins.append(exp.Join(this=table, kind="CROSS"))
        read = "key" if field == "n" else own[0]
        return of_each(alias, read), "int4" if read == "key" else kind

    def _group(self, node: Any, made: Any, scope: StatementScope) -> None:
        distinct, group = node.args.get("distinct"), node.args.get("group")
        if distinct is not None:
            if distinct.args.get("on") is not None:
                raise unanswered(node)
            made.set("distinct", exp.Distinct())
        if group is not None:
            if {part for part, value in group.args.items() if value} - {"expressions"}:
                raise unanswered(node)
            values = [
                one if isinstance(one, exp.Literal) else self._expressions.value(one, scope)
                for one in group.expressions
            ]
            made.set("group", exp.Group(expressions=values))
        if node.args.get("having") is not None:
            made.set(
                "having", exp.Having(this=self._expressions.value(node.args["having"].this, scope))
            )
        for window in node.args.get("windows") or []:
            for each in window.args.get("partition_by") or []:
                each.replace(self._expressions.value(each, scope))
            if window.args.get("order") is not None:
                self._expressions.order(window.args["order"], scope)
            made.append("windows", window)

    def _finish(self, node: Any, made: Any, scope: StatementScope) -> None:
        """Adds ORDER BY, LIMIT and OFFSET."""
        if node.args.get("order") is not None:
            made.set("order", self._expressions.order(node.args["order"], scope))
        limit, offset = node.args.get("limit"), node.args.get("offset")
        if limit is None and offset is None:
            return
        most: Any = exp.Literal.number(-1)
        if limit is not None:
            most = limit.args.get("count") if isinstance(limit, exp.Fetch) else limit.expression
        if isinstance(most, (exp.Var, exp.Null)):  # LIMIT ALL
            most = exp.Literal.number(-1)
        made.set("limit", exp.Limit(expression=self._number(most, scope)))
        if offset is not None:
            made.set("offset", exp.Offset(expression=self._number(offset.expression, scope)))

    def _number(self, node: Any, scope: StatementScope) -> Any:
        found, kind = self._expressions.typed(node, scope)
        return cast(found, kind, "int8", self._functions)[0]


def _source_of(name: str, names: list[str], found: TranslatedQuery) -> Source:
    own = [one for one, _ in found.columns]
    kinds = [kind for _, kind in found.columns]
    shown = [*names, *own[len(names) :]]
    return Source(name, dict(zip(shown, kinds, strict=True)), is_empty=found.is_empty)


def _member(node: Any, *, is_first: bool) -> Any:
    """Returns a query as SQLite takes it as a part of UNION: without brackets."""
    is_plain = isinstance(node, exp.Select) and not any(
        node.args.get(part) for part in ("order", "limit", "offset", "with_")
    )
    if is_plain or (is_first and isinstance(node, exp.SetOperation) and not node.args.get("limit")):
        return node
    return exp.select("*").from_(as_subquery(node, "part"))


def _is_one_group(node: Any) -> bool:
    """Returns whether a SELECT has one row even if its tables have none: an aggregate without groups."""
    if node.args.get("group") is not None:
        return False
    for item in node.expressions:
        for one in item.walk(prune=lambda inner: isinstance(inner, (exp.Query, exp.Window))):
            name = str(one.this).lower() if isinstance(one, exp.Anonymous) else ""
            if RENAMED.get(name, (name, ""))[0] in AGGREGATES:
                return True
    return False


def _shown(item: Item) -> Item:
    """Returns a column with a name in place of the oid that stands for it."""
    name, node, kind = item
    return (name, as_text(node, kind), "text") if kind in NAMED else item


def _shown_type(kind: str | None) -> str:
    return "text" if kind in (None, UNKNOWN) or kind not in OIDS else str(kind)
