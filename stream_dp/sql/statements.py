"""Translates a whole SELECT to a plan: the queries to ask, and the table that follows from their answers.

Sorting, cutting, HAVING and arithmetic work on published values, so they cost nothing. Each aggregate becomes
part of a query. Aggregates of the same rows share one where a query publishes all of them.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from stream_dp.errors import InvalidQuery
from stream_dp.sql.dimensions import Joined, JoinedColumn, JoinedConditions
from stream_dp.sql.parsing import Source, Tree, without_fresh, without_semicolon
from stream_dp.sql.plans import (
    NO_ROWS,
    Call,
    Constant,
    Dimension,
    Group,
    Key,
    Order,
    Output,
    Part,
    Plan,
    Published,
    Scalar,
    ValueType,
)
from stream_dp.sql.possible import is_possible

__all__ = ["MOST_QUERIES", "Names", "is_statement", "names_of", "plan"]

MOST_QUERIES: Final = 100
"""The most queries that one statement may ask: as many as one record holds."""

_CLAUSES: Final = frozenset({"order", "limit", "offset", "having", "distinct", "joins", "with_"})

_ARITHMETIC: Final = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
_COMPARISONS: Final = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}
_TRUTHS: Final = (*_COMPARISONS, exp.And, exp.Or, exp.Not, exp.In, exp.Between, exp.Is)
_SPREADS: Final = {  # whether it is of a sample, and whether it is the root
    exp.Stddev: (True, True),
    exp.StddevSamp: (True, True),
    exp.StddevPop: (False, True),
    exp.Variance: (True, False),
    exp.VariancePop: (False, False),
}
_FOUND: Final = (
    exp.Quantile,
    exp.ApproxQuantile,
    exp.Median,
    exp.Mode,
    exp.WithinGroup,
)
_REFUSED: Final[tuple[tuple[Any, str, str], ...]] = (
    (
        (exp.Min, exp.Max),
        "the smallest and the largest value are those of single rows",
        "ask for QUANTILE(x, 0.01) or QUANTILE(x, 0.99)",
    ),
    (
        (exp.Corr, exp.CovarPop, exp.CovarSamp),
        "correlations are not answered",
        "group by both attributes, and compute it from the counts",
    ),
    (
        (exp.ApproxDistinct,),
        "distinct values are not counted",
        "GROUP BY the attribute counts each declared value",
    ),
    (
        (exp.Window,),
        "window functions are not answered, except SUM(COUNT(*)) OVER ()",
        "omit OVER, and compute it from the table",
    ),
    (
        (exp.ArrayAgg, exp.GroupConcat),
        "values of single rows are never shown",
        "GROUP BY the attribute",
    ),
    ((exp.Star,), "rows are never shown", "ask for COUNT(*), or see stream-dp synthesize"),
)


@dataclass(frozen=True, slots=True)
class Names:
    """The names in the FROM of a statement.

    Attributes:
        dataset: The data set. None if the statement has no FROM.
        joined: The tables that it joins.
    """

    dataset: str | None
    joined: tuple[str, ...]


def is_statement(sql: str) -> bool:
    """Returns whether a text is a whole SELECT, and not a condition by itself."""
    try:
        tokens = sqlglot.tokenize(without_fresh(sql)[1])
    except SqlglotError:
        return False
    return bool(tokens) and tokens[0].text.upper() in ("SELECT", "WITH")


def names_of(sql: str) -> Names:
    """Returns the data set and the joined tables that a statement names.

    Raises:
        InvalidQuery: The statement cannot be read.

    Example:
        >>> from stream_dp import sql
        >>> sql.names_of("SELECT COUNT(*) FROM sales").dataset
        'sales'
    """
    text = without_fresh(without_semicolon(sql))[1]
    source = Source(text, ())
    try:
        scope = _Scope(source, _checked(source))
    except RecursionError:
        raise source.error(0, "this is nested too deeply", "ask in parts") from None
    joined = [join.this.name for join in scope.joins if isinstance(join.this, exp.Table)]
    return Names(scope.dataset, tuple(joined))


def plan(
    sql: str,
    attributes: Sequence[Mapping[str, Any]],
    *,
    dataset: str | None = None,
    unit: Mapping[str, Any] | None = None,
    dimensions: Mapping[str, Dimension] | None = None,
) -> Plan:
    """Translates a statement to queries and a table.

    It accepts what ``parse`` does as a whole SELECT, with several aggregates and arithmetic on them, and
    HAVING, ORDER BY, LIMIT and OFFSET, which work on the published values. ``FROM`` may be a subquery or a
    WITH that only filters. ``SUM``, ``AVG`` and ``COUNT`` may have FILTER or a CASE that is a condition.
    ``STDDEV`` and ``VARIANCE`` follow from the counts of the bins.

    Args:
        sql: The statement.
        attributes: The attributes of the data set's definition, as in the catalog.
        dataset: The name that FROM must have, if given.
        unit: The person whom the data set protects, as ``privacy.unit`` in the catalog.
        dimensions: The public tables that the statement may join, by name.

    Raises:
        InvalidQuery: The statement cannot be translated. ``field`` is the position.

    Example:
        >>> from stream_dp import sql
        >>> schema = [{"name": "age", "type": "number", "edges": [18, 30, 65]}]
        >>> found = sql.plan("SELECT COUNT(*), AVG(age) FROM people LIMIT 1", schema)
        >>> found.queries
        ({'kind': 'sum', 'attribute': 'age', 'count_rows': True, 'where': None},)
    """
    fresh_at, text = without_fresh(without_semicolon(sql))
    source = Source(text, attributes)
    try:
        scope = _Scope(source, _checked(source))
        found = _Planner(source, scope, attributes, dataset, unit, dimensions or {}).plan()
    except RecursionError:
        raise source.error(0, "this is nested too deeply", "ask in parts") from None
    if fresh_at is None:
        return found
    if any(query["kind"] not in ("predicate", "table") for query in found.queries):
        raise source.error(fresh_at, "only counts can be FRESH", "omit FRESH")
    return replace(found, queries=tuple({**query, "fresh": True} for query in found.queries))


def _checked(source: Source) -> Any:
    """Returns the SELECT of the text; what other systems write for privacy is refused by name."""
    words = [token.text.upper() for token in source.tokens()[:3]]
    if words[:3] == ["SELECT", "WITH", "DIFFERENTIAL_PRIVACY"]:
        raise source.error(
            source.tokens()[1].start,
            "every answer is private here",
            "omit WITH DIFFERENTIAL_PRIVACY and its OPTIONS; write WITHIN 0.5% OF ROWS or COSTING AT MOST 2% "
            "at the end",
        )
    return source.select(_CLAUSES)


# ---------------------------------------------------------------- FROM


class _Scope:
    """The one SELECT that remains when subqueries which only filter are taken into it.

    Attributes:
        select: The SELECT.
        dataset: The name in FROM. None without FROM.
        table: The place of that name.
        wheres: The conditions of all levels.
        names: The names that may stand before an attribute, in lower case.
        joins: The joins of all levels.
    """

    def __init__(self, source: Source, select: Any) -> None:
        self._source = source
        self._views: dict[str, Any] = {}
        self.dataset: str | None = None
        self.table: Any = None
        self.wheres: list[Any] = []
        self.names: set[str] = set()
        self.joins: list[Any] = []
        self.select = self._folded(select)
        self._descend(self.select)
        for column in self.select.find_all(exp.Column):
            if column.table.lower() in self.names:
                column.set("table", None)
        for where in self.wheres:
            for column in where.find_all(exp.Column):
                if column.table.lower() in self.names:
                    column.set("table", None)

    def _folded(self, select: Any) -> Any:
        """Takes a SELECT around a table of aggregates into that table's own HAVING, ORDER BY and LIMIT."""
        self._read_views(select)
        inner = self._view_below(select)
        if inner is None or not _aggregates(inner):
            return select
        inner = self._folded(inner)
        for clause in ("group", "joins", "having", "distinct"):
            if content := select.args.get(clause):
                at = content[0] if isinstance(content, list) else content
                raise self._source.error(
                    at, "this groups what is grouped already", "group once, in the subquery"
                )
        if inner.args.get("limit") or inner.args.get("offset"):
            raise self._source.error(
                inner, "this cuts a table twice", "write LIMIT once, at the end"
            )
        named = {item.output_name.lower(): item for item in inner.expressions}
        outputs: list[Any] = []
        for item in select.expressions:
            bare = item.unalias()
            if isinstance(bare, exp.Star):
                outputs += inner.expressions
            elif isinstance(bare, exp.Column) and bare.name.lower() in named:
                kept = named[bare.name.lower()].unalias()
                outputs.append(exp.alias_(kept.copy(), item.output_name, copy=False))
            else:
                raise self._source.error(
                    item,
                    "only columns of the subquery are selected here",
                    "compute in the subquery",
                )
        hidden = [
            e for name, e in named.items() if name not in {o.output_name.lower() for o in outputs}
        ]
        where = select.args.get("where")
        for part in filter(None, (where, select.args.get("order"))):
            for column in list(part.find_all(exp.Column)):
                if (kept := named.get(column.name.lower())) is not None and kept in hidden:
                    column.replace(kept.unalias().copy())
                column.set("table", None)
        if where is not None:
            having = inner.args.get("having")
            both = (
                where.this if having is None else exp.And(this=having.this, expression=where.this)
            )
            inner.set("having", exp.Having(this=both))
        for clause in ("order", "limit", "offset"):
            if content := select.args.get(clause):
                inner.set(clause, content)
        inner.set("expressions", outputs)
        return inner

    def _read_views(self, select: Any) -> None:
        """Notes the SELECTs that WITH names."""
        views = select.args.get("with_")
        for view in views.expressions if views is not None else ():
            self._views[view.alias.lower()] = view.this
        select.set("with_", None)

    def _view_below(self, select: Any) -> Any:
        """Returns the SELECT that FROM stands for; None where it names a data set."""
        origin = select.args.get("from_")
        if origin is None:
            return None
        below = origin.this
        if isinstance(below, exp.Subquery):
            if not isinstance(below.this, exp.Select):
                raise self._source.error(below, "this is not one SELECT", "ask one query at a time")
            return below.this
        if isinstance(below, exp.Table):
            return self._views.get(below.name.lower())
        raise self._source.error(below, "this is not a data set", "name the data set itself")

    def _descend(self, select: Any) -> None:
        """Follows FROM down to the data set and collects what filters on the way."""
        if (where := select.args.get("where")) is not None:
            self.wheres.append(where.this)
        self.joins += select.args.get("joins") or ()
        origin = select.args.get("from_")
        if origin is None:
            return
        below = origin.this
        if below.alias_or_name:
            self.names.add(below.alias_or_name.lower())
        inner = self._view_below(select)
        if inner is None:
            self.table = below
            self.dataset = ".".join(part.name for part in below.parts)
            self.names.add(self.dataset.lower())
            return
        self._read_views(inner)
        for clause, content in inner.args.items():
            if content and clause not in ("expressions", "from_", "where", "joins"):
                raise self._source.error(
                    content[0] if isinstance(content, list) else content,
                    "a subquery here only filters rows",
                    "leave SELECT * FROM ... WHERE ... in it",
                )
        for item in inner.expressions:
            renames = isinstance(item, exp.Alias) and item.alias != item.this.name
            if renames or not isinstance(item.unalias(), exp.Star | exp.Column):
                raise self._source.error(
                    item,
                    "a subquery here only filters rows",
                    "leave SELECT * FROM ... WHERE ... in it",
                )
        self._descend(inner)


def _aggregates(select: Any) -> bool:
    """Returns whether a SELECT has aggregates or groups of its own."""
    if select.args.get("group"):
        return True
    return any(item.find(exp.AggFunc, exp.Filter) is not None for item in select.expressions)


# ---------------------------------------------------------------- aggregates


@dataclass(frozen=True, slots=True)
class _Atom:
    """One published value that the statement needs, before it is known which query gives it.

    Attributes:
        part: Which part of an answer it is; ``present`` is the number of rows that have the attribute.
        where: The condition on the rows, as JSON.
        grouped: Whether it has a value for each cell.
        attribute: The attribute that is added up or spread.
        share_of: For a share, its condition as JSON.
        found: For a quantile, a median or a mode: the fields of its query, as JSON.
        spread: For a spread: whether it is of a sample, and whether it is the root.
    """

    part: str
    where: str
    grouped: bool = True
    attribute: str = ""
    share_of: str = ""
    found: str = ""
    spread: tuple[bool, bool] = (False, False)


@dataclass(frozen=True, slots=True)
class _Axis:
    """A group column: an attribute, or values that are conditions of their own.

    Attributes:
        written: The expression, as SQL.
        type: The type of its values.
        attribute: The attribute. None for conditions.
        cases: The conditions, with the value of each.
        joined: The column of a joined table whose values they are.
    """

    written: str
    type: ValueType
    attribute: Mapping[str, Any] | None
    cases: tuple[tuple[Scalar, Tree], ...] = ()
    joined: JoinedColumn | None = None


class _Planner:
    """Plans one statement."""

    def __init__(
        self,
        source: Source,
        scope: _Scope,
        attributes: Sequence[Mapping[str, Any]],
        dataset: str | None,
        unit: Mapping[str, Any] | None,
        dimensions: Mapping[str, Dimension],
    ) -> None:
        self._source = source
        self._scope = scope
        self._select = scope.select
        self._schema = {a["name"]: a for a in attributes}
        self._dataset = dataset
        self._unit = unit
        self._check_dataset(scope)
        self._joined = Joined(source, scope.joins, self._schema, scope.names, dimensions)
        self._conditions = JoinedConditions(source, self._schema, unit, self._joined)
        self._aliases = {
            item.alias.lower(): item.this
            for item in self._select.expressions
            if isinstance(item, exp.Alias)
        }
        self._where = self._conjunction(
            [self._conditions.truth(where).true for where in scope.wheres] + self._joined.matched
        )
        self._wanted: dict[_Atom, None] = {}
        self._atoms: dict[_Atom, Published] = {}
        self._scalar = False
        self._axes: list[_Axis] = []

    def _check_dataset(self, scope: _Scope) -> None:
        """Refuses FROM anything but the data set itself."""
        name = scope.dataset
        if self._dataset is not None and name is not None and name.lower() != self._dataset.lower():
            raise self._error(
                scope.table, f"{name} is not the data set that you ask", f"write {self._dataset}"
            )

    def plan(self) -> Plan:
        """Returns the plan of the statement."""
        select = self._select
        if any(map(self._counts_persons, select.expressions)):
            asked = self._conditions.query(select)
            (name, _), *_ = map(self._named, select.expressions)
            counted = Output(name, "integer", Published("count", (0,), grouped=False))
            return self._with_clauses(Plan((asked,), (), ((),), (counted,)))
        for item in self._grouped():
            self._axes.append(self._axis(item))
        if select.args.get("distinct") is not None:
            self._axes += self._of_distinct(select)
        items = [self._named(item) for item in select.expressions]
        outputs = [(name, node, self._value(node)) for name, node in items]
        having = select.args.get("having")
        chosen = None if having is None else self._condition(having.this)
        order = tuple(self._order(item, outputs) for item in self._ordered())
        expressions = [*(e for _, _, e in outputs), chosen, *(each.expression for each in order)]
        self._wanted = dict.fromkeys(atom for each in expressions for atom in _atoms_in(each))
        if not self._wanted:
            return self._declared(outputs, order)
        queries, cases = self._queries()
        resolve = self._resolved
        finished = Plan(
            queries=queries,
            groups=tuple(self._group(axis) for axis in self._axes),
            cases=cases,
            outputs=tuple(Output(name, self._type(e), resolve(e)) for name, _, e in outputs),
            having=None if chosen is None else resolve(chosen),
            order=tuple(replace(each, expression=resolve(each.expression)) for each in order),
            offset=self._number_of("offset"),
            limit=self._number_of("limit") if select.args.get("limit") else None,
            members=self._atoms.get(_Atom("count", _json(self._where))),
            notes=tuple(self._joined.notes),
        )
        return self._with_clauses(finished)

    def _counts_persons(self, item: Any) -> bool:
        count = item.unalias()
        return isinstance(count, exp.Count) and self._conditions.counts_persons(count)

    # ------------------------------------------------------------ groups

    def _grouped(self) -> list[Any]:
        """Returns what GROUP BY names; a position or an alias stands for its expression."""
        group = self._select.args.get("group")
        if group is None:
            return []
        if any(v for k, v in group.args.items() if k != "expressions"):
            raise self._error(
                group, "GROUP BY takes attributes and conditions only", "name each of them"
            )
        return [self._meant(item, "GROUP BY") for item in group.expressions]

    def _meant(self, item: Any, clause: str) -> Any:
        """Returns the expression that a position, an alias or a name stands for."""
        bare = item.unnest()
        if isinstance(bare, exp.Literal) and not bare.is_string:
            index = int(bare.this) if bare.this.isdecimal() else 0
            if not 1 <= index <= len(self._select.expressions):
                raise self._error(
                    item,
                    f"{clause} {bare.this} is not the number of a column",
                    f"write 1 to {len(self._select.expressions)}, or a name",
                )
            return self._select.expressions[index - 1].unalias()
        if isinstance(bare, exp.Column) and not bare.table and not self._is_known(bare):
            return self._aliases.get(bare.name.lower(), bare)
        return bare

    def _is_known(self, column: Any) -> bool:
        """Returns whether a column is an attribute, or belongs to a joined table."""
        names = {name.lower() for name in self._schema}
        return column.name.lower() in names or self._joined.column(column) is not None

    def _axis(self, item: Any) -> _Axis:
        """Returns the group column of an expression."""
        written = item.sql()
        if isinstance(item, exp.Column):
            joined = self._joined.column(item)
            if joined is not None:
                return _Axis(written, joined.type, None, self._conditions.possible(joined), joined)
            attribute = self._conditions.attribute(item)
            kind: ValueType = "boolean" if attribute["type"] == "boolean" else "text"
            if any(axis.attribute == attribute for axis in self._axes):
                raise self._error(item, f"{item.name} is grouped by twice", "name it once")
            return _Axis(written, kind, attribute)
        if isinstance(item, exp.Case):
            return _Axis(written, "text", None, self._cases(item))
        if isinstance(item, _TRUTHS) and item.find(exp.AggFunc) is None:
            truth = self._conditions.truth(item)
            unknown = _none_of([truth.true, truth.false])
            return _Axis(
                written,
                "boolean",
                None,
                _possible([(False, truth.false), (True, truth.true), (None, unknown)]),
            )
        if isinstance(item, exp.Rollup | exp.Cube | exp.GroupingSets):
            raise self._error(
                item,
                f"{_short(item)} is not answered",
                "ask each grouping in a statement of its own",
            )
        raise self._error(
            item,
            f"{_short(item)} is not a group",
            "group by an attribute, a CASE whose values are constants, or a condition",
        )

    def _cases(self, case: Any) -> tuple[tuple[Scalar, Tree], ...]:
        """Returns the values of a CASE with the condition of each. The first one that is true counts."""
        found: dict[Scalar, list[Tree]] = {}
        before: list[Tree] = []
        for each in case.args["ifs"]:
            tree = self._conditions.truth(self._when(case, each)).true
            here = self._conjunction([tree, _none_of(before)]) if before else tree
            found.setdefault(self._label(each.args["true"]), []).append(
                _EVERYTHING if here is None else here
            )
            before.append(tree)
        default = case.args.get("default")
        rest = None if default is None else self._label(default)
        found.setdefault(rest, []).append(_none_of(before))
        trees = [
            (value, parts[0] if len(parts) == 1 else {"any": parts})
            for value, parts in found.items()
        ]
        return _possible(trees)

    def _when(self, case: Any, each: Any) -> Any:
        """Returns the condition of a WHEN; CASE x WHEN 1 compares x."""
        return (
            each.this if case.this is None else exp.EQ(this=case.this.copy(), expression=each.this)
        )

    def _label(self, node: Any) -> Scalar:
        node = node.unnest()
        if isinstance(node, exp.Null):
            return None
        if isinstance(node, exp.Literal):
            return str(node.this)
        raise self._error(node, f"{_short(node)} is not a constant", "write a text such as 'young'")

    def _group(self, axis: _Axis) -> Group:
        plain = [a for a in self._axes if a.attribute is not None]
        cased = [a for a in self._axes if a.attribute is None]
        if axis.attribute is None:
            return Group(axis.type, _index(cased, axis), by_case=True)
        attribute = axis.attribute
        return Group(
            axis.type,
            _index(plain, axis),
            by_case=False,
            has_missing=bool(attribute.get("missing")),
            ranked=attribute["type"] != "category" or bool(attribute.get("ordered")),
        )

    # ------------------------------------------------------------ columns

    def _named(self, item: Any) -> tuple[str, Any]:
        """Returns the name and the expression of an item of the SELECT list."""
        node = item.unalias()
        if isinstance(item, exp.Alias):
            return item.alias, node
        return (node.name if isinstance(node, exp.Column) else node.sql()), node

    def _value(self, node: Any) -> Any:
        """Translates an expression of aggregates, groups and constants."""
        node = node.unnest()
        written = node.sql()
        for index, axis in enumerate(self._axes):
            if axis.written == written or self._is_axis(node, axis):
                if self._scalar:
                    raise self._error(
                        node, "a subquery has no groups", "select one aggregate in it"
                    )
                return Key(index)
        if isinstance(node, exp.Literal):
            return Constant(str(node.this) if node.is_string else _number(node.this))
        if isinstance(node, exp.Boolean):
            return Constant(bool(node.this))
        if isinstance(node, exp.Null):
            return Constant(None)
        if isinstance(node, exp.Cast | exp.TryCast):
            return self._value(node.this)
        if isinstance(node, exp.Neg):
            return Call("neg", (self._value(node.this),))
        if type(node) in _ARITHMETIC:
            return self._arithmetic(node)
        if isinstance(node, exp.Nullif):  # a division by zero has no value anyway
            return self._value(node.this)
        if isinstance(node, exp.Coalesce):
            return Call("coalesce", tuple(map(self._value, (node.this, *node.expressions))))
        if isinstance(node, exp.Round):
            decimals = node.args.get("decimals")
            return Call(
                "round",
                (self._value(node.this), self._value(decimals) if decimals else Constant(0)),
            )
        if isinstance(node, exp.Abs):
            return Call("abs", (self._value(node.this),))
        if isinstance(node, exp.Select):
            return self._scalar_subquery(node)
        if isinstance(node, exp.Column):
            return self._column_value(node)
        if isinstance(node, exp.Window) and _is_total(node):
            return self._total()
        return self._aggregate(node)

    def _is_axis(self, node: Any, axis: _Axis) -> bool:
        """Returns whether a column is a group column under another spelling."""
        if not isinstance(node, exp.Column):
            return False
        if axis.attribute is not None and not node.table:
            return bool(node.name.lower() == axis.attribute["name"].lower())
        joined = self._joined.column(node)
        return joined is not None and joined == axis.joined

    def _column_value(self, node: Any) -> Any:
        meant = self._aliases.get(node.name.lower())
        if meant is not None and not node.table and not isinstance(meant, exp.Column):
            return self._value(meant)
        if self._joined.column(node) is None:
            self._conditions.attribute(node)  # an unknown name is refused as such
        raise self._error(node, f"{node.sql()} is not grouped by", f"add GROUP BY {node.sql()}")

    def _arithmetic(self, node: Any) -> Any:
        """Translates an operator. A part of the rows of a count is a share, whose bar is narrower."""
        if isinstance(node, exp.Div):
            factor, above = _factored(node.this)
            below = node.expression.unnest()
            below = below.this.unnest() if isinstance(below, exp.Nullif) else below
            ratio = self._ratio(self._value(above), self._value(below))
            if ratio is not None:
                return ratio if factor == 1 else Call("*", (Constant(factor), ratio))
        return Call(_ARITHMETIC[type(node)], (self._value(node.this), self._value(node.expression)))

    def _ratio(self, above: Any, below: Any) -> Any:
        """Returns the one part of an answer that a quotient is; None for another quotient."""
        if not (isinstance(above, _Atom) and isinstance(below, _Atom)):
            return None
        if above.part == "total" and below.part == "present" and above.where == below.where:
            return replace(above, part="mean") if above.attribute == below.attribute else None
        if (below.part, below.share_of) != ("count", ""):
            return None
        if above.part == "present" and above.where == below.where:
            present = {"attribute": above.attribute, "is_missing": False}
            return replace(above, part="share", attribute="", share_of=_json(present))
        if above.part != "count" or not above.share_of:
            return None
        return replace(above, part="share") if above.where == below.where else None

    def _total(self) -> Any:
        """Returns the number of rows of all groups together."""
        if self._select.args.get("having") is not None:
            raise self._error(
                self._select.args["having"].this,
                "SUM(COUNT(*)) OVER () would be of the groups that HAVING leaves",
                "omit one of the two",
            )
        return _Atom("count", _json(self._where), grouped=False)

    def _scalar_subquery(self, node: Any) -> Any:
        """Translates a subquery of one aggregate about the same data set."""
        fix = "select one COUNT, SUM or AVG"
        if len(node.expressions) != 1:
            raise self._error(node, "a subquery here has one aggregate", fix)
        for clause, content in node.args.items():
            if content and clause not in ("expressions", "from_", "where"):
                raise self._error(node, "a subquery here has no groups", fix)
        scope = _Scope(self._source, node)
        expected = self._scope.dataset or self._dataset
        if scope.dataset is not None and expected and scope.dataset.lower() != expected.lower():
            raise self._error(
                scope.table, f"{scope.dataset} is another data set", f"write {expected}"
            )
        outside, self._scalar = self._where, True
        try:
            self._where = self._conjunction([self._conditions.truth(w).true for w in scope.wheres])
            return self._value(scope.select.expressions[0].unalias())
        finally:
            self._where, self._scalar = outside, False

    # ------------------------------------------------------------ aggregates

    def _aggregate(self, node: Any) -> Any:
        """Translates an aggregate, with its FILTER if it has one."""
        if isinstance(node, exp.Filter):
            return self._filtered(node.this, node.expression.this)
        return self._filtered(node, None)

    def _filtered(self, node: Any, condition: Any) -> Any:
        node = node.unnest()
        if isinstance(node, exp.CountIf):
            return self._counted(self._both(condition, node.this))
        if isinstance(node, exp.Count):
            return self._count(node, condition)
        if isinstance(node, exp.Sum | exp.Avg):
            return self._sum(node, condition)
        if type(node) in _SPREADS:
            return self._spread(node, condition)
        if isinstance(node, _FOUND):
            return self._found(node, condition)
        for kinds, problem, fix in _REFUSED:
            if isinstance(node, kinds):
                raise self._error(node, f"{problem}: {_short(node)}", fix)
        raise self._error(
            node,
            f"{_short(node)} is not answered",
            self._source.quoting()
            or "use COUNT(*), SUM, AVG, STDDEV, or QUANTILE(x, 0.9) of an attribute x, and + - * / of them",
        )

    def _both(self, condition: Any, other: Any) -> Any:
        """Returns the condition that holds where two do."""
        return (
            other if condition is None else exp.And(this=condition.copy(), expression=other.copy())
        )

    def _tree(self, condition: Any) -> str:
        """Returns a condition as JSON; empty for none."""
        return "" if condition is None else _json(self._conditions.truth(condition).true)

    def _counted(self, condition: Any) -> _Atom:
        return _Atom(
            "count", _json(self._where), grouped=not self._scalar, share_of=self._tree(condition)
        )

    def _narrowed(self, condition: Any) -> str:
        """Returns WHERE and a condition together, as JSON."""
        if condition is None:
            return _json(self._where)
        return _json(self._conjunction([self._where, self._conditions.truth(condition).true]))

    def _count(self, node: Any, condition: Any) -> Any:
        subject = node.this
        if isinstance(subject, exp.Star) or (
            isinstance(subject, exp.Literal) and not subject.is_string
        ):
            return self._counted(condition)
        if isinstance(subject, exp.Case | exp.If):
            when, value, other = self._when_then(subject)
            if isinstance(value, exp.Literal | exp.Boolean) and other is None:
                return self._counted(self._both(condition, when))
            if isinstance(value, exp.Column) and other is None:
                return self._count(exp.Count(this=value), self._both(condition, when))
            raise self._error(
                subject,
                "COUNT counts every value but NULL",
                "write COUNT(CASE WHEN ... THEN 1 END)",
            )
        if isinstance(subject, exp.Column):
            if self._joined.column(subject) is not None:
                return self._counted(self._both(condition, _is_not_null(subject)))
            attribute = self._conditions.attribute(subject)
            if not attribute.get("missing"):
                return self._counted(condition)
            return _Atom(
                "present",
                self._narrowed(condition),
                grouped=not self._scalar,
                attribute=attribute["name"],
            )
        if isinstance(subject, exp.Distinct):
            raise self._distinct_error(node)
        raise self._error(
            node,
            f"{_short(node)} is not answered: COUNT counts rows",
            "use COUNT(*), COUNT(x), or COUNT(*) FILTER (WHERE ...)",
        )

    def _distinct_error(self, node: Any) -> InvalidQuery:
        if self._unit is not None:
            key = self._unit["key"]
            return self._error(
                node,
                f"only {key} can be counted once each, and alone",
                f"write SELECT COUNT(DISTINCT {key}) by itself, about one phase",
            )
        return self._error(
            node,
            "distinct values are not counted",
            "GROUP BY the attribute counts each declared value; HAVING COUNT(*) > 100 keeps the common ones",
        )

    def _when_then(self, node: Any) -> tuple[Any, Any, Any]:
        """Returns the condition, the value and the other value of a CASE with one WHEN, or of IF."""
        if isinstance(node, exp.Case):
            first, *others = node.args["ifs"]
            if others:
                raise self._error(
                    node, "this CASE has several WHEN", "combine them with OR, or group by the CASE"
                )
            other = node.args.get("default")
            when, value = self._when(node, first), first.args["true"]
        else:
            when, value, other = node.this, node.args["true"], node.args.get("false")
        if isinstance(other, exp.Null):
            other = None
        return when, value.unnest(), None if other is None else other.unnest()

    def _sum(self, node: Any, condition: Any) -> Any:
        subject = node.this.unnest()
        while isinstance(subject, exp.Cast | exp.TryCast):
            subject = subject.this.unnest()
        average = isinstance(node, exp.Avg)
        if isinstance(subject, exp.Case | exp.If):
            return self._sum_of_case(node, subject, condition)
        if type(subject) in _TRUTHS:
            return (
                self._part(subject, condition)
                if average
                else self._counted(self._both(condition, subject))
            )
        if (isinstance(subject, exp.Mul | exp.Div) and not average) or isinstance(subject, exp.Mul):
            factor, inner = _factored(subject)
            if factor != 1:
                rest: Any = self._sum(type(node)(this=inner.copy()), condition)
                return Call("*", (Constant(factor), rest))
        if not isinstance(subject, exp.Column):
            raise self._error(
                node,
                f"{_short(node)} is not answered",
                "add up one attribute, or CASE WHEN ... THEN 1 ELSE 0 END",
            )
        attribute = self._conditions.attribute(subject)
        name = attribute["name"]
        if attribute["type"] == "boolean":
            is_true = exp.Is(this=subject.copy(), expression=exp.Boolean(this=True))
            if not average:
                return self._counted(self._both(condition, is_true))
            present = _is_not_null(subject) if attribute.get("missing") else None
            if present is not None:
                condition = self._both(condition, present)
            return self._part(is_true, condition)
        if attribute["type"] != "number":
            word = "AVG" if average else "SUM"
            raise self._error(
                subject, f"{name} is a {attribute['type']}", f"ask for {word} of a number"
            )
        return _Atom(
            "mean" if average else "total",
            self._narrowed(condition),
            grouped=not self._scalar,
            attribute=name,
        )

    def _part(self, part: Any, condition: Any) -> _Atom:
        """Returns the share of the rows of a condition that satisfies another one too."""
        return _Atom(
            "share", self._narrowed(condition), grouped=not self._scalar, share_of=self._tree(part)
        )

    def _sum_of_case(self, node: Any, case: Any, condition: Any) -> Any:
        """Translates the sum or the mean of a CASE: of ones and zeros, or of an attribute where it holds."""
        average = isinstance(node, exp.Avg)
        when, value, other = self._when_then(case)
        if isinstance(value, exp.Column):
            if average and other is not None:
                raise self._error(
                    case, "ELSE would count rows that do not satisfy the condition", "omit ELSE"
                )
            if other is None or _is_zero(other):
                inner = type(node)(this=value.copy())
                return self._sum(inner, self._both(condition, when))
        elif isinstance(value, exp.Literal) and not value.is_string:
            if (other is not None and not _is_zero(other)) or (average and other is None):
                raise self._error(
                    case, "rows that do not satisfy the condition must count 0", "write ELSE 0 END"
                )
            ones: Any = (
                self._part(when, condition)
                if average
                else self._counted(self._both(condition, when))
            )
            factor = _number(value.this)
            return ones if factor == 1 else Call("*", (Constant(factor), ones))
        raise self._error(
            case, f"{_short(case)} is not answered", "write CASE WHEN ... THEN 1 ELSE 0 END"
        )

    def _spread(self, node: Any, condition: Any) -> _Atom:
        subject = node.this.unnest()
        if not isinstance(subject, exp.Column):
            raise self._error(node, f"{_short(node)} is not answered", "name one attribute")
        attribute = self._conditions.attribute(subject)
        name = attribute["name"]
        if attribute["type"] != "number":
            raise self._error(subject, f"{name} is a {attribute['type']}", "name a number")
        if any(axis.attribute == attribute for axis in self._axes) and not self._scalar:
            raise self._error(
                node, f"{name} is grouped by", "it varies only within one bin: omit this"
            )
        if attribute.get("missing"):
            condition = (
                self._both(condition, _is_not_null(subject)) if condition else _is_not_null(subject)
            )
        return _Atom(
            "spread",
            self._narrowed(condition),
            grouped=not self._scalar,
            attribute=name,
            spread=_SPREADS[type(node)],
        )

    def _found(self, node: Any, condition: Any) -> _Atom:
        if condition is not None or self._where is not None or self._axes or self._scalar:
            raise self._error(
                node,
                f"{_short(node)} is about all rows",
                "omit the condition and the groups, or GROUP BY the attribute and read it from the counts",
            )
        return _Atom("found", "null", grouped=False, found=_json(self._conditions.kind(node)))

    # ------------------------------------------------------------ HAVING, ORDER BY, LIMIT, DISTINCT

    def _condition(self, node: Any) -> Any:
        """Translates a condition on the rows of the table."""
        node = node.unnest()
        if isinstance(node, exp.And | exp.Or):
            name = "and" if isinstance(node, exp.And) else "or"
            return Call(name, tuple(self._condition(part) for part in node.flatten()))
        if isinstance(node, exp.Not):
            return Call("not", (self._condition(node.this),))
        if type(node) in _COMPARISONS:
            return Call(
                _COMPARISONS[type(node)], (self._value(node.this), self._value(node.expression))
            )
        if isinstance(node, exp.Between):
            value, low, high = (self._value(node.args[k]) for k in ("this", "low", "high"))
            return Call("and", (Call(">=", (value, low)), Call("<=", (value, high))))
        if isinstance(node, exp.In) and node.expressions:
            return Call("in", (self._value(node.this), *map(self._value, node.expressions)))
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            return Call("is_null", (self._value(node.this),))
        raise self._error(
            node,
            f"{_short(node)} is not a condition on the table",
            "compare an aggregate, such as COUNT(*) > 100",
        )

    def _ordered(self) -> list[Any]:
        order = self._select.args.get("order")
        return [] if order is None else list(order.expressions)

    def _order(self, item: Any, outputs: Sequence[tuple[str, Any, Any]]) -> Order:
        subject = item.this.unnest()
        named = {name.lower(): expression for name, _, expression in outputs}
        is_name = isinstance(subject, exp.Column) and not subject.table
        if is_name and subject.name.lower() in named:
            expression = named[subject.name.lower()]
        else:
            expression = self._value(self._meant(item.this, "ORDER BY"))
        return Order(expression, bool(item.args.get("desc")), bool(item.args.get("nulls_first")))

    def _number_of(self, clause: str) -> int:
        content = self._select.args.get(clause)
        if content is None:
            return 0
        number = content.args.get("count") if isinstance(content, exp.Fetch) else content.expression
        number = 1 if number is None else number
        if not isinstance(number, exp.Literal) or not number.this.isdecimal():
            raise self._error(
                content, f"{clause.upper()} takes a whole number", "write a number such as 10"
            )
        return int(number.this)

    def _of_distinct(self, select: Any) -> list[_Axis]:
        """Returns the columns of SELECT DISTINCT as groups."""
        found = []
        for item in select.expressions:
            node = item.unalias()
            if not isinstance(node, exp.Column):
                raise self._error(
                    node,
                    "DISTINCT takes attributes only",
                    "omit DISTINCT: each group is there once",
                )
            if not any(axis.written == node.sql() for axis in self._axes):
                found.append(self._axis(node))
        return found

    def _declared(self, outputs: Sequence[tuple[str, Any, Any]], order: tuple[Order, ...]) -> Plan:
        """Returns the plan of a table of declared values alone, for which nothing is asked."""
        if not outputs or not all(isinstance(each, Key) for _, _, each in outputs):
            raise self._error(self._select, "nothing is counted", "add COUNT(*)")
        if self._scope.wheres:
            raise self._error(
                self._scope.wheres[0],
                "this would show which values rows have",
                "add COUNT(*), which counts the rows of each value; the declared values follow no condition",
            )
        values = [self._declared_values(axis) for axis in self._axes]
        rows = list(itertools.islice(itertools.product(*values), 50_001))
        if len(rows) > 50_000:
            raise self._error(
                self._select, "these are more than 50,000 rows", "name fewer attributes"
            )
        return Plan(
            queries=(),
            groups=tuple(
                replace(self._group(axis), by_case=True, axis=i)
                for i, axis in enumerate(self._axes)
            ),
            cases=tuple(rows),
            outputs=tuple(Output(name, self._type(e), e) for name, _, e in outputs),
            order=order,
            offset=self._number_of("offset"),
            limit=self._number_of("limit") if self._select.args.get("limit") else None,
            notes=(
                "these are the declared values, whether or not a row has them; nothing was asked",
            ),
        )

    def _declared_values(self, axis: _Axis) -> list[Scalar]:
        if axis.attribute is None:
            return [value for value, _ in axis.cases]
        if axis.attribute["type"] == "boolean":
            return [False, True]
        if axis.attribute["type"] == "category":
            return list(axis.attribute["values"])
        name = axis.attribute["name"]
        raise self._error(
            self._select,
            f"{name} has bins and no list of values",
            f"GROUP BY {name} counts the rows of each bin",
        )

    # ------------------------------------------------------------ queries

    def _resolved(self, expression: Any) -> Any:
        """Puts the published values into an expression."""
        if isinstance(expression, _Atom):
            return self._atoms[expression]
        if isinstance(expression, Call):
            return Call(expression.name, tuple(map(self._resolved, expression.arguments)))
        return expression

    def _queries(self) -> tuple[tuple[dict[str, Any], ...], tuple[tuple[Scalar, ...], ...]]:
        """Returns the queries that publish all values, and the combinations of the cases."""
        cases = [axis.cases for axis in self._axes if axis.attribute is None]
        combinations = [
            combination
            for combination in itertools.product(*cases)
            if not cases
            or is_possible(
                self._conjunction([self._where, *(tree for _, tree in combination)]), self._schema
            )
        ]
        names = [axis.attribute["name"] for axis in self._axes if axis.attribute is not None]
        queries: list[dict[str, Any]] = []
        for atom in self._atoms_of_plan():
            fields, part = self._fields(atom)
            grouped = atom.grouped
            indices = []
            for combination in combinations if grouped else [()]:
                asked = self._asked(
                    fields, [tree for _, tree in combination], names if grouped else []
                )
                if not is_possible(asked.get("where"), self._schema):
                    indices.append(NO_ROWS)
                    continue
                if asked not in queries:
                    queries.append(asked)
                indices.append(queries.index(asked))
            if not grouped:
                indices *= len(combinations)
            centres: tuple[float, ...] = ()
            if atom.part == "spread":
                centres = _centres(self._schema[atom.attribute])
            has_cells = grouped and bool(names)
            self._atoms[atom] = Published(
                part, tuple(indices), has_cells, centres, atom.spread[0], atom.spread[1]
            )
            if len(queries) > MOST_QUERIES:
                raise self._error(
                    self._select,
                    f"this takes more than {MOST_QUERIES} queries",
                    "ask for fewer groups or aggregates at a time",
                )
        return tuple(queries), tuple(tuple(value for value, _ in each) for each in combinations)

    def _atoms_of_plan(self) -> list[_Atom]:
        """Returns the values to ask for, sums first, so that counts of the same rows are taken from them."""
        return sorted(self._wanted, key=lambda atom: atom.part not in ("total", "mean"))

    def _fields(self, atom: _Atom) -> tuple[dict[str, Any], Part]:
        """Returns the fields of the query that publishes a value, and the part of its answer."""
        where = json.loads(atom.where)
        if atom.part == "found":
            return json.loads(atom.found), "found"
        if atom.part == "share":
            return {"kind": "share", "share_of": json.loads(atom.share_of), "where": where}, "share"
        if atom.part in ("total", "mean"):
            counted = self._counted_beside(atom) == atom.attribute
            return self._sum_fields(atom.attribute, where, counted=counted), atom.part  # type: ignore[return-value]
        if atom.part == "present":
            beside = replace(atom, part="total"), replace(atom, part="mean")
            if any(each in self._wanted for each in beside):
                counted = self._counted_beside(atom) == atom.attribute
                return self._sum_fields(atom.attribute, where, counted=counted), "count"
            present = {"attribute": atom.attribute, "is_missing": False}
            return {"kind": "predicate", "where": self._conjunction([where, present])}, "count"
        if atom.part == "count" and not atom.share_of:
            summed = self._counted_beside(atom)
            if summed is not None:
                return self._sum_fields(summed, where, counted=True), "rows"
        if atom.share_of:
            where = self._conjunction([where, json.loads(atom.share_of)])
        if atom.part == "spread":
            return {"kind": "predicate", "where": where, "spread": atom.attribute}, "spread"
        return {"kind": "predicate", "where": where}, "count"

    def _sum_fields(self, attribute: str, where: Any, *, counted: bool) -> dict[str, Any]:
        extra = {"count_rows": True} if counted else {}
        return {"kind": "sum", "attribute": attribute, **extra, "where": where}

    def _counted_beside(self, atom: _Atom) -> str | None:
        """Returns the attribute whose sum also counts all of its rows; None where none needs to."""
        count = _Atom("count", atom.where, atom.grouped)
        if count not in self._wanted:
            return None
        return next(
            (
                other.attribute
                for other in self._wanted
                if other.part in ("total", "mean")
                and (other.where, other.grouped) == (atom.where, atom.grouped)
            ),
            None,
        )

    def _asked(
        self, fields: Mapping[str, Any], cases: Sequence[Tree], names: Sequence[str]
    ) -> dict[str, Any]:
        """Returns the fields of one query: with its groups, and with the conditions of one case."""
        asked = dict(fields)
        names = [*names, *([asked.pop("spread")] if "spread" in asked else [])]
        if asked["kind"] in ("quantile", "median", "mode"):
            return asked
        where = asked.pop("where")
        if names:
            asked["group_by"] = list(names)
            if asked["kind"] == "predicate":
                asked["kind"] = "table"
        asked["where"] = self._conjunction([where, *cases]) if cases else where
        return asked

    def _with_clauses(self, plan: Plan) -> Plan:
        """Adds WITHIN and COSTING AT MOST, which hold for each query, and for all of them together."""
        clauses = self._source.clauses
        if not clauses.fields:
            return plan
        if len(plan.queries) == 1:
            (asked,) = plan.queries
            return replace(plan, queries=(self._source.with_clauses(asked, self._select),))
        error = clauses.fields.get("error")
        if isinstance(error, dict):
            raise self._source.error(
                clauses.at, "this statement asks several queries", "write WITHIN 0.5% OF ROWS"
            )
        extra = {} if error is None else {"error": error}
        for asked in plan.queries:
            if asked["kind"] not in ("predicate", "table", "sum", "share"):
                raise self._source.error(
                    clauses.at,
                    f"{asked['kind']} has neither WITHIN nor COSTING AT MOST",
                    "ask it alone",
                )
        queries = tuple({**asked, **extra} for asked in plan.queries)
        return replace(plan, queries=queries, at_most=clauses.fields.get("at_most"))

    # ------------------------------------------------------------ small things

    def _type(self, expression: Any) -> ValueType:
        """Returns the type of a column."""
        match expression:
            case Key(index=index):
                return self._axes[index].type
            case _Atom(part="found"):
                return "text"
            case _Atom(part=part):
                return "integer" if part in ("count", "present") else "real"
            case Constant(value=value):
                if isinstance(value, bool):
                    return "boolean"
                return (
                    "integer"
                    if isinstance(value, int)
                    else "real"
                    if isinstance(value, float)
                    else "text"
                )
            case Call(name=name, arguments=arguments):
                if name == "/" or name == "round":
                    return "real"
                types = {self._type(each) for each in arguments}
                return types.pop() if len(types) == 1 else "real"
        return "real"

    def _conjunction(self, trees: Sequence[Tree | None]) -> Tree | None:
        """Returns the condition that holds where all do; None where every row counts."""
        wanted = [tree for tree in trees if tree is not None and tree != _EVERYTHING]
        return self._conditions.all_of(_merged(wanted)) if wanted else None

    def _error(self, at: Any, problem: str, fix: str) -> InvalidQuery:
        return self._source.error(at, problem, fix)


# ---------------------------------------------------------------- pieces of SQL

_EVERYTHING: Final[Tree] = {"all": []}
_NOTHING: Final[Tree] = {"any": []}


def _atoms_in(expression: Any) -> Iterator[_Atom]:
    """Yields the published values in an expression."""
    if isinstance(expression, _Atom):
        yield expression
    elif isinstance(expression, Call):
        for argument in expression.arguments:
            yield from _atoms_in(argument)


def _none_of(trees: Sequence[Tree]) -> Tree:
    """Returns the condition that holds where none does."""
    alternatives = [each for tree in trees for each in tree.get("any", [tree])]
    if _EVERYTHING in alternatives:
        return _NOTHING
    return {"not": {"any": alternatives}} if alternatives else _EVERYTHING


def _possible(cases: Sequence[tuple[Scalar, Tree]]) -> tuple[tuple[Scalar, Tree], ...]:
    """Leaves out the cases that no row can be in."""
    return tuple((value, tree) for value, tree in cases if tree != _NOTHING)


def _merged(trees: Sequence[Tree]) -> list[Tree]:
    """Leaves out what is said twice, and intersects lists of values of one attribute."""
    parts = [part for tree in trees for part in tree.get("all", [tree])]
    lists: dict[str, list[Any]] = {}
    found: list[Tree] = []
    for part in parts:
        values = [part["eq"]] if "eq" in part else part.get("in")
        if values is None:
            found += [part] if part not in found else []
        elif part["attribute"] in lists:
            before = lists[part["attribute"]]
            lists[part["attribute"]] = [value for value in before if value in values]
        else:
            lists[part["attribute"]] = list(values)
            found.append(part)
    return [_narrowest(part, lists) for part in found]


def _narrowest(part: Tree, lists: Mapping[str, Sequence[Any]]) -> Tree:
    """Returns a condition on the values of an attribute, with those that all conditions leave."""
    if not {"eq", "in"} & part.keys():
        return part
    values = lists[part["attribute"]]
    if not values:
        return _NOTHING
    return {
        "attribute": part["attribute"],
        **({"eq": values[0]} if len(values) == 1 else {"in": list(values)}),
    }


def _json(tree: Tree | None) -> str:
    return json.dumps(tree, sort_keys=False)


def _index(axes: Sequence[_Axis], axis: _Axis) -> int:
    """Returns the position of a group column, by identity."""
    return next(i for i, each in enumerate(axes) if each is axis)


def _short(node: Any) -> str:
    text = node.sql()
    return text if len(text) <= 60 else f"{text[:60]}..."


def _number(text: str) -> float:
    return int(text) if text.isdecimal() else float(text)


def _is_zero(node: Any) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and float(node.this) == 0.0


def _is_not_null(column: Any) -> Any:
    return exp.Not(this=exp.Is(this=column.copy(), expression=exp.Null()))


def _is_total(window: Any) -> bool:
    """Returns whether a window function is SUM(COUNT(*)) OVER ()."""
    summed = window.this
    if (
        not isinstance(summed, exp.Sum)
        or window.args.get("partition_by")
        or window.args.get("order")
    ):
        return False
    return isinstance(summed.this, exp.Count) and isinstance(summed.this.this, exp.Star)


def _factored(node: Any) -> tuple[float, Any]:
    """Splits constant factors and casts off an expression."""
    node = node.unnest()
    if isinstance(node, exp.Cast | exp.TryCast):
        return _factored(node.this)
    if isinstance(node, exp.Mul):
        for one, other in ((node.this, node.expression), (node.expression, node.this)):
            bare = one.unnest()
            if isinstance(bare, exp.Literal) and not bare.is_string:
                factor, rest = _factored(other)
                return factor * _number(bare.this), rest
    return 1, node


def _centres(attribute: Mapping[str, Any]) -> tuple[float, ...]:
    """Returns what a value of each bin of a number counts for, as in sums: its middle, or an outer edge."""
    if attribute.get("representatives"):
        return tuple(attribute["representatives"])
    edges, step = attribute["edges"], 1.0 if attribute.get("integer") else 0.0
    middles = [(low + high - step) / 2.0 for low, high in itertools.pairwise(edges)]
    return (edges[0] - step, *middles, edges[-1])
