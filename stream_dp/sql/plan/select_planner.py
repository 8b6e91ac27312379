"""From a text in SQL to a plan: the queries to ask, and the table that follows from their answers.

Sorting, cutting, HAVING and arithmetic work on published values, so they cost nothing. Each aggregate becomes
part of a query. Aggregates of the same rows share one where a query publishes all of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from sqlglot import exp

from stream_dp.sql.plan.group_columns import GroupColumns
from stream_dp.sql.plan.precision_clauses import with_clauses
from stream_dp.sql.plan.statement_plan import (
    Among,
    Call,
    Dimension,
    Key,
    Order,
    Output,
    Published,
    StatementPlan,
)
from stream_dp.sql.plan.statement_queries import Queries
from stream_dp.sql.plan.table_conditions import TableConditions
from stream_dp.sql.plan.table_values import MOST_PERIODS, TableValues, atoms_in
from stream_dp.sql.plan.unasked_tables import (
    ENDS_NOTE,
    asks_ends,
    columns_alone,
    lists_rows,
    of_no_rows,
)
from stream_dp.sql.reading.faults import Fault, Work
from stream_dp.sql.reading.literals import whole_number
from stream_dp.sql.reading.scopes import Scope, name_of
from stream_dp.sql.reading.statement_text import StatementText
from stream_dp.sql.reading.unaskable import check_askable, list_of_rows
from stream_dp.sql.terms.aggregates import Aggregates, Atom, parts_in
from stream_dp.sql.terms.attribute_cells import n_cells
from stream_dp.sql.terms.columns import Columns
from stream_dp.sql.terms.condition_trees import Conditions
from stream_dp.sql.terms.present_days import take_present
from stream_dp.sql.terms.public_joins import Joined
from stream_dp.sql.terms.time_clauses import take_window
from stream_dp.sql.terms.trees import NOTHING, Tree, as_json, conjunction

_ONLY_COUNTS: Final = ("only counts can be FRESH", "omit FRESH")

_MOST_DECLARED: Final = 50_000
"""The most rows of a table of declared values."""

_WORKED_OUT: Final = ("order", "limit", "offset", "having", "joins")
"""The clauses of a table that is more than the answer to one query."""

_Attributes: TypeAlias = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Names:
    """The names in the FROM of a statement.

    Attributes:
        dataset: The data set. None if the statement has no FROM.
        joined: The tables that it joins.
    """

    dataset: str | None
    joined: tuple[str, ...]


def names_of(sql: str) -> Names:
    """Returns the data set and the joined tables that a statement names.

    Raises:
        InvalidQuery: The statement cannot be read.

    Example:
        >>> from stream_dp import sql
        >>> sql.names_of("SELECT COUNT(*) FROM sales").dataset
        'sales'
    """
    text = StatementText(sql, ())
    with text.pointing():
        scope = Scope(text.select())
    joined = [join.this.name for join in scope.joins if isinstance(join.this, exp.Table)]
    return Names(scope.dataset, tuple(joined))


def in_sqlite(sql: str) -> str:
    """Returns a SELECT in the grammar of SQLite.

    Raises:
        InvalidQuery: The text is not one SELECT.
    """
    text = StatementText(sql, ())
    with text.pointing():
        select = text.select()
        if text.fresh_at is not None:
            raise Fault(text.fresh_at, *_ONLY_COUNTS)
    written: str = select.sql("sqlite")
    return written


def plan(
    sql: str,
    attributes: _Attributes,
    *,
    dataset: str | None = None,
    unit: Mapping[str, Any] | None = None,
    dimensions: Mapping[str, Dimension] | None = None,
    series: str | None = None,
) -> StatementPlan:
    """Translates SQL to queries and a table. Every text that somebody asks comes this way.

    A condition by itself, with or without WHERE, stands for ``SELECT COUNT(*) WHERE`` and it.

    Args:
        sql: The statement. The docstring of ``stream_dp.sql`` says what is understood.
        attributes: The attributes of the data set's definition, as in the catalog.
        dataset: The name that FROM must have, if given.
        unit: The person whom the data set protects, as ``privacy.unit`` in the catalog.
        dimensions: The public tables that the statement may join, by name.
        series: A period to group by as well, as the first column, if the statement groups by none.

    Raises:
        InvalidQuery: The statement cannot be translated. ``field`` is the position.

    Example:
        >>> from stream_dp import sql
        >>> schema = [{"name": "age", "type": "number", "edges": [18, 30, 65]}]
        >>> found = sql.plan("SELECT COUNT(*), AVG(age) FROM people LIMIT 1", schema)
        >>> found.queries
        ({'kind': 'sum', 'attribute': 'age', 'count_rows': True, 'mean': True, 'where': None},)
    """
    text = StatementText(sql, attributes)
    with text.pointing():
        return _SelectPlanner(text, attributes, dataset, unit, dimensions or {}).plan(series)


def parse(
    sql: str,
    attributes: _Attributes,
    *,
    dataset: str | None = None,
    unit: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Translates SQL to the JSON fields of the one query message whose answer says all that it asks for.

    It accepts each statement that ``plan`` does whose table is the answer to one query as it is: without
    HAVING, ORDER BY and LIMIT, and without groups and values that are worked out from the answer. A condition
    by itself asks for its count, with or without WHERE.

    Args:
        sql: The analyst's text.
        attributes: The attributes of the data set's definition, as in the catalog.
        dataset: The name that FROM must have, if given.
        unit: The person whom the data set protects, as ``privacy.unit`` in the catalog. None where it
            protects a row.

    Returns:
        The fields of its kind: ``{"kind": "predicate", "where": tree}``, or ``{"kind": "table", "group_by":
        [...], "where": tree}``, or ``{"kind": "quantile", "attribute": "x", "rank": 0.9}``. The tree is None
        if every row counts. A query that names its time also has ``window`` or ``series``.

    Raises:
        InvalidQuery: The SQL cannot be translated, or is of a table of its own. ``field`` is the position,
            such as "line 1, column 15".

    Example:
        >>> from stream_dp import sql
        >>> schema = [{"name": "age", "type": "number", "edges": [18, 30, 65]}]
        >>> sql.parse("age >= 30", schema)
        {'kind': 'predicate', 'where': {'attribute': 'age', 'ge': 30}}
        >>> sql.parse("SELECT QUANTILE(age, 0.9)", schema)
        {'kind': 'quantile', 'attribute': 'age', 'rank': 0.9, 'where': None}
    """
    text = StatementText(sql, attributes)
    with text.pointing():
        planner = _SelectPlanner(text, attributes, dataset, unit, {}, impossible=True)
        if (alone := planner.plan().alone) is not None:
            return alone
        written = text.select()
        at, name = 0, "this table"
        for clause in reversed(_WORKED_OUT):
            if (content := written.args.get(clause)) is not None:
                words = {"order": "ORDER BY", "joins": "JOIN"}
                at, name = content, words.get(clause, clause.upper())
        raise Fault(
            at,
            f"{name} is worked out from answers, so this is not one query",
            "ask it as a statement: with `stream-dp ask`, on the page, as a table over HTTP, or with "
            "Client.sql",
        )


class _SelectPlanner:
    """Plans one statement.

    Args:
        text: The statement.
        attributes: The attributes of the data set.
        dataset: The name that FROM must have, if given.
        unit: The person whom the data set protects.
        dimensions: The public tables by name.
        impossible: Whether also what no row can satisfy is asked.
    """

    def __init__(
        self,
        text: StatementText,
        attributes: _Attributes,
        dataset: str | None,
        unit: Mapping[str, Any] | None,
        dimensions: Mapping[str, Dimension],
        *,
        impossible: bool = False,
    ) -> None:
        select = text.select()
        names = [*(attribute["name"] for attribute in attributes), *_renamed_below(select)]
        present = take_present(select, names)
        check_askable(select, attributes)
        schema = {attribute["name"]: attribute for attribute in attributes}
        self._text = text
        self._dataset = dataset
        self._impossible = impossible
        self._shows_none = False
        self._folds = any(one.get("fold") for one in attributes)
        self._has_ends = False
        self._work = Work()
        self._rows = list_of_rows(select, attributes)
        self._window = take_window(select, names)
        if present is not None:
            self._window = present.window(self._window)
        self._scope = Scope(select)
        self._select = self._scope.select
        self._joined = Joined(self._scope.joins, schema, self._scope.names, dimensions, self._work)
        self._columns = Columns(schema, unit, self._joined.columns, self._work)
        self._conditions = Conditions(self._columns)
        self._groups = GroupColumns(self._select, self._conditions)

    def plan(self, series: str | None = None) -> StatementPlan:
        """Returns the plan of the statement; ``series`` is a period to group by as well."""
        self._scope.check_dataset(self._dataset)
        where = conjunction(
            [*map(self._conditions.true, self._scope.wheres), *self._joined.matched]
        )
        is_cut = self._select.args.get("limit") is not None and not self._number_of("limit")
        self._shows_none = not self._impossible and (is_cut or where == NOTHING)
        if self._shows_none and lists_rows(self._select):
            return columns_alone(self._scope, self._columns)
        if self._rows is not None:
            raise self._rows
        self._add_groups(series)
        period = self._groups.series
        found = self._table(where)
        found = found.at(self._window | ({"series": period.period} if period else {}))
        if self._text.fresh_at is None:
            return found
        if any(query["kind"] not in ("predicate", "table") for query in found.queries):
            raise Fault(self._text.fresh_at, *_ONLY_COUNTS)
        return replace(found, queries=tuple({**query, "fresh": True} for query in found.queries))

    def _add_groups(self, series: str | None) -> None:
        """Adds the columns that GROUP BY, DISTINCT and ``series`` name."""
        group = self._select.args.get("group")
        if group is not None:
            if any(content for clause, content in group.args.items() if clause != "expressions"):
                problem = "GROUP BY takes attributes and conditions only"
                raise Fault(group, problem, "name each of them")
            for item in [self._groups.meant(item) for item in group.expressions]:
                self._groups.add(item)
        known = self._groups.series
        if series is not None and (known is None or known.period != series):
            name = exp.column(series)
            self._groups.add(name, place=0)
            self._select.expressions.insert(0, name)
        if self._select.args.get("distinct") is not None:
            self._groups.add_distinct()
        self._groups.add_facts()
        self._groups.finish()

    def _table(self, where: Tree | None) -> StatementPlan:
        """Returns the plan without what the clauses at the end and the time say."""
        groups, select, period = self._groups, self._select, self._groups.series
        restricted = [where, self._window, groups.axes, self._scope.joins, self._impossible]
        self._has_ends = not any(restricted) and asks_ends(select, self._columns)
        aggregates = Aggregates(
            self._conditions,
            where,
            tuple(axis.attribute for axis in groups.axes),
            period.period if period else None,
            has_ends=self._has_ends,
        )
        values = TableValues(
            self._scope,
            self._dataset,
            groups,
            aggregates,
            has_window=bool(self._window),
        )
        outputs = [(name_of(item), values.value(item.unalias())) for item in select.expressions]
        having = select.args.get("having")
        chosen = None
        if having is not None:
            table = TableConditions(groups, values, self._conditions)
            chosen = table.condition(having.this)
        ordered = select.args.get("order")
        order = tuple(
            self._order(item, outputs, values)
            for item in (ordered.expressions if ordered is not None else ())
        )
        expressions = [*(each for _, each in outputs), chosen, *(each.expression for each in order)]
        for each in expressions:
            values.check_length(select, each)
        found = StatementPlan(
            queries=(),
            groups=tuple(map(groups.column, groups.axes)),
            cases=(),
            outputs=tuple(Output(name, values.type_of(each), each) for name, each in outputs),
            having=chosen,
            order=order,
            offset=self._number_of("offset"),
            limit=self._number_of("limit") if select.args.get("limit") else None,
        )
        if any(True for each in expressions for _ in atoms_in(each)):
            return self._asked(found, expressions, where)
        return self._declared(found, expressions)

    def _asked(
        self, table: StatementPlan, expressions: Sequence[Any], where: Tree | None
    ) -> StatementPlan:
        """Returns the plan of a table with the queries that publish its values."""
        groups, atoms = self._groups, [atom for each in expressions for atom in atoms_in(each)]
        if self._shows_none:
            cases = () if groups.axes else ((),)
            having = None if groups.axes else table.having
            table = replace(table, cases=cases, having=having, order=())
            return _resolved_in(table, of_no_rows(atoms))
        queries = Queries(
            self._select,
            atoms,
            groups,
            where,
            impossible=self._impossible,
        )
        n_groups = math.prod(map(n_cells, groups.tabled)) * len(queries.combinations)
        self._check_work(n_groups * (MOST_PERIODS if groups.series else 1), expressions)
        asked = replace(
            _resolved_in(table, queries.published),
            queries=tuple(queries.fields),
            cases=queries.combinations,
            members=queries.published.get(Atom("count", as_json(where))),
            notes=tuple(self._notes(expressions)),
            unit=self._columns.unit,
            as_table=self._text.is_select and bool(groups.series or self._select.find(exp.Alias)),
        )
        return with_clauses(asked, self._text.clauses, self._select)

    def _declared(self, table: StatementPlan, expressions: Sequence[Any]) -> StatementPlan:
        """Returns the plan of a table of declared values alone, for which nothing is asked."""
        select, axes = self._select, self._groups.axes
        if self._shows_none:
            return replace(table, limit=0)
        if self._has_ends:
            return replace(table, cases=((),), notes=(ENDS_NOTE,))
        if not table.outputs or not all(isinstance(o.expression, Key) for o in table.outputs):
            raise Fault(select, "nothing is counted", "add COUNT(*)")
        if self._groups.series:
            raise Fault(select, "periods are not declared", "add COUNT(*)")
        restricting = [*self._scope.wheres, *self._scope.joins, *([select] * bool(self._window))]
        if restricting:
            raise Fault(
                restricting[0],
                "this would show which values rows have",
                "add COUNT(*), which counts the rows of each value; the declared values follow no condition",
            )
        values = [tuple(axis.declared(select)) for axis in axes]
        rows = list(itertools.islice(itertools.product(*values), _MOST_DECLARED + 1))
        if len(rows) > _MOST_DECLARED:
            fix = "name fewer attributes"
            raise Fault(select, f"these are more than {_MOST_DECLARED:,} rows", fix)
        self._check_work(len(rows), expressions)
        note = "these are the declared values, whether or not a row has them; nothing was asked"
        groups = [
            replace(group, by_case=True, axis=place, values=values[place])
            for place, group in enumerate(table.groups)
        ]
        return replace(table, groups=tuple(groups), cases=tuple(rows), notes=(note,))

    def _check_work(self, n_groups: int, expressions: Sequence[Any]) -> None:
        """Counts the values that filters and arithmetic look at for all groups, before they do."""
        for each in expressions:
            if isinstance(each, Call | Among):
                values = sum(not isinstance(part, Call) for part in parts_in(each))
                self._work.look_at(self._select, n_groups * values)

    def _notes(self, expressions: Sequence[Any]) -> Iterator[str]:
        """Yields what a reader should know of joins, groups, declared edges and a number of persons."""
        yield from self._joined.notes
        yield from self._groups.notes
        if self._has_ends:
            yield ENDS_NOTE
        parts = itertools.chain.from_iterable(map(parts_in, expressions))
        calls = [part for part in parts if isinstance(part, Call) and part.name == "persons"]
        counted = [atom for call in calls for atom in atoms_in(call)]
        narrowed = any(one.where != "null" or one.share_of for one in counted)
        if counted and (self._groups.axes or narrowed):
            rest = "a fold is of all their rows" if self._folds else "their other rows are left out"
            yield f"persons go by the one row of each that counts in a phase; {rest}"

    def _order(self, item: Any, outputs: Sequence[tuple[str, Any]], values: TableValues) -> Order:
        subject = item.this.unnest()
        named = {name.lower(): expression for name, expression in outputs}
        is_name = isinstance(subject, exp.Column) and not subject.table
        if is_name and subject.name.lower() in named:
            expression = named[subject.name.lower()]
        else:
            expression = values.value(self._groups.meant(item.this))
        for part in parts_in(expression):
            axis = self._groups.axes[part.index] if isinstance(part, Key) else None
            if axis and part is not expression and self._groups.column(axis).ranked:
                problem = f"the order of {axis.written} is not that of texts"
                raise Fault(item, problem, f"order by {axis.written} itself")
        return Order(expression, bool(item.args.get("desc")), bool(item.args.get("nulls_first")))

    def _number_of(self, clause: str) -> int:
        content = self._select.args.get(clause)
        if content is None:
            return 0
        number = content.args.get("count") if isinstance(content, exp.Fetch) else content.expression
        found = 1 if number is None else whole_number(number)
        if found is None:
            problem = f"{clause.upper()} takes a whole number"
            raise Fault(content, problem, "write a number such as 10")
        return found


def _renamed_below(select: Any) -> Iterator[str]:
    """Yields the names that subqueries give to other columns: outside, such a name means that column."""
    for below in select.find_all(exp.Select):
        for item in below.expressions if below is not select else ():
            bare = item.unalias()
            if not isinstance(bare, exp.Column) or bare.name.lower() != item.output_name.lower():
                yield item.output_name


def _resolved_in(table: StatementPlan, published: Mapping[Atom, Published]) -> StatementPlan:
    """Puts the published values into a table."""

    def resolved(parts: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(replace(p, expression=_resolved(p.expression, published)) for p in parts)

    return replace(
        table,
        outputs=resolved(table.outputs),
        having=_resolved(table.having, published),
        order=resolved(table.order),
    )


def _resolved(expression: Any, published: Mapping[Atom, Published]) -> Any:
    """Puts the published values into an expression."""
    if isinstance(expression, Atom):
        return published[expression]
    if isinstance(expression, Call):
        return Call(expression.name, tuple(_resolved(e, published) for e in expression.arguments))
    return expression
