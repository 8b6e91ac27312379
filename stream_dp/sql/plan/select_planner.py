"""Translates a whole SELECT to a plan: the queries to ask, and the table that follows from their answers.

Sorting, cutting, HAVING and arithmetic work on published values, so they cost nothing. Each aggregate becomes
part of a query. Aggregates of the same rows share one where a query publishes all of them.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from stream_dp.errors import InvalidQuery
from stream_dp.sql.plan.statement_plan import (
    Among,
    Call,
    Constant,
    Dimension,
    GroupColumn,
    Key,
    Order,
    Output,
    Published,
    Scalar,
    StatementPlan,
    ValueType,
)
from stream_dp.sql.plan.statement_queries import MOST_QUERIES, Queries
from stream_dp.sql.plan.window_functions import FRAMED, SHIFTED, frame_of, parts_before
from stream_dp.sql.reading.grammar import Grammar
from stream_dp.sql.reading.scopes import Scope
from stream_dp.sql.reading.translator import (
    Source,
    Tree,
    compared_with,
    is_group,
    is_in_nothing,
    without_fresh,
    without_semicolon,
)
from stream_dp.sql.reading.trees import EVERYTHING, NOTHING, as_json, conjunction, none_of
from stream_dp.sql.reading.unaskable import check_askable
from stream_dp.sql.terms.aggregates import TRUTHS, Aggregates, Atom, number_of, short
from stream_dp.sql.terms.attribute_cells import cells_of, n_cells
from stream_dp.sql.terms.buckets import bucketed, buckets_of
from stream_dp.sql.terms.public_joins import Joined, JoinedColumn, JoinedConditions
from stream_dp.sql.terms.sql_dates import PART_KINDS, part_of, same_sql
from stream_dp.sql.terms.time_clauses import first_day, period_of, take_window

_LONGEST: Final = 1000
"""The most parts that an expression may have once the names in it are replaced by what they mean."""

MOST_PERIODS: Final = 400
"""The most parts that a series has."""

_A_PART: Final = 64
"""The values whose comparison takes as long as to translate one more part of what a name means."""

_ARITHMETIC: Final = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/"}
_ORDERING: Final = (exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Between)
_COMPARISONS: Final = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
}


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
        tokens = sqlglot.tokenize(without_fresh(sql)[1], Grammar)
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
        scope = Scope(source, _checked(source))
    except RecursionError:
        raise source.error(0, "this is nested too deeply", "ask in parts") from None
    joined = [join.this.name for join in scope.joins if isinstance(join.this, exp.Table)]
    return Names(scope.dataset, tuple(joined))


def in_sqlite(sql: str) -> str:
    """Returns a SELECT in the grammar of SQLite.

    Raises:
        InvalidQuery: The text is not one SELECT.
    """
    select = Source(without_semicolon(sql), ()).select()
    text: str = select.sql("sqlite")
    return text


def plan(
    sql: str,
    attributes: Sequence[Mapping[str, Any]],
    *,
    dataset: str | None = None,
    unit: Mapping[str, Any] | None = None,
    dimensions: Mapping[str, Dimension] | None = None,
    series: str | None = None,
) -> StatementPlan:
    """Translates SQL to queries and a table. Every text that somebody asks comes this way.

    A condition by itself, with or without WHERE, stands for ``SELECT COUNT(*) WHERE`` and it. A SELECT may
    have several aggregates and arithmetic on them, and HAVING, ORDER BY, LIMIT and OFFSET, which work on the
    published values. ``FROM`` may be a subquery or a WITH that only filters. ``SUM``, ``AVG`` and ``COUNT``
    may have FILTER or a CASE that is a condition. ``STDDEV`` and ``VARIANCE`` follow from the counts of the
    bins. ``QUANTILE(x, 0.9)`` (or ``PERCENTILE_CONT(0.9) WITHIN GROUP (ORDER BY x)``), ``MEDIAN(x)``,
    ``MIN(x)`` and ``MAX(x)`` are the bins that such a value lies in; ``MODE(x)`` is about all rows. A group
    may be a union of bins, as of ``FLOOR(x / 10) * 10`` or ``WIDTH_BUCKET(x, 0, 100, 10)``.

    A condition compares attributes with constants: ``=``, ``<>``, ``<``, ``<=``, ``>``, ``>=``, ``[NOT] IN``,
    ``[NOT] BETWEEN``, ``IS [NOT] NULL``, ``IS [NOT] DISTINCT FROM``, or a boolean attribute by itself. AND,
    OR, NOT and ``IS [NOT] TRUE`` or ``FALSE`` combine conditions. A date is compared with ``DATE
    '2026-03-14'`` or a longer period, such as ``'2026-03'``; ``EXTRACT(MONTH FROM d)`` is compared with a
    number, and ``DATE_TRUNC('month', d)`` with the beginning of a period.

    At the end, ``WITHIN 5%`` (of the answer), ``WITHIN 0.5% OF ROWS`` or ``WITHIN 50`` (a number) says how
    precise the answer must be, and ``COSTING AT MOST 2%`` what it may take of any phase's budget.
    ``FRESH`` in front of counts or a condition asks for fresh answers, which rest on looks of their own.

    Where one row of each person counts in a phase, ``COUNT(DISTINCT user_id)`` asks how many persons there
    are. ``user_id`` is the column that says whose row it is.

    Over a series, ``SUM`` and ``AVG`` with ``OVER (ORDER BY day ROWS BETWEEN 6 PRECEDING AND CURRENT ROW)``
    are of the last parts, and ``LAG`` and ``LEAD`` of another one.

    ``day``, ``week``, ``month`` and ``phase`` mean the time of a query unless an attribute has that name.
    ``WHERE day >= DATE '2026-11-01' AND day < DATE '2026-11-08'`` or ``phase BETWEEN 3 AND 7`` says which
    phases it is about, and ``GROUP BY day``, or ``GROUP BY DATE_TRUNC('month', day)``, asks one part for each
    period.

    ``carrier = 'other'`` asks for all values that the definition of ``carrier`` does not list, together. This
    needs a cell for them, and 'other' must not be a listed value.

    Args:
        sql: The statement.
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
    return _planned(sql, attributes, dataset, unit, dimensions or {}, series)[1]


def parse(
    sql: str,
    attributes: Sequence[Mapping[str, Any]],
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
    source, found = _planned(sql, attributes, dataset, unit, {}, impossible=True)
    if found.alone is None:
        raise _not_alone(source)
    return found.alone


def _planned(
    sql: str,
    attributes: Sequence[Mapping[str, Any]],
    dataset: str | None,
    unit: Mapping[str, Any] | None,
    dimensions: Mapping[str, Dimension],
    series: str | None = None,
    *,
    impossible: bool = False,
) -> tuple[Source, StatementPlan]:
    """Reads and plans a statement; with ``impossible`` also what no row can satisfy is asked."""
    fresh_at, text = without_fresh(without_semicolon(sql))
    source = Source(text, attributes)
    try:
        select = _checked(source)
        check_askable(select, attributes, source.error)
        columns = [*(a["name"] for a in attributes), *_renamed_below(select)]
        window = take_window(select, columns, source.error)
        scope = Scope(source, select)
        planner = _Planner(source, scope, attributes, dataset, unit, dimensions, window)
        planner.impossible = impossible
        found = planner.plan(series).at(window | planner.series)
    except RecursionError:
        raise source.error(0, "this is nested too deeply", "ask in parts") from None
    if fresh_at is None:
        return source, found
    if any(query["kind"] not in ("predicate", "table") for query in found.queries):
        raise source.error(fresh_at, "only counts can be FRESH", "omit FRESH")
    queries = tuple({**query, "fresh": True} for query in found.queries)
    return source, replace(found, queries=queries)


def _not_alone(source: Source) -> InvalidQuery:
    """The error of a statement whose table is more than the answer to one query; it points at the reason."""
    select = source.select()
    found = ((select.args.get(clause), name) for clause, name in _WORKED_OUT.items())
    at, name = next(((at, name) for at, name in found if at is not None), (0, "this table"))
    return source.error(
        at,
        f"{name} is worked out from answers, so this is not one query",
        "ask it as a statement: with `stream-dp ask`, on the page, as a table over HTTP, or with Client.sql",
    )


_WORKED_OUT: Final = {
    "order": "ORDER BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "having": "HAVING",
    "joins": "JOIN",
}
"""The clauses of a table that is more than the answer to one query."""


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
    return source.select()


@dataclass(frozen=True, slots=True)
class _Axis:
    """A group column: an attribute, or values that are conditions of their own.

    Attributes:
        written: The expression, as SQL.
        type: The type of its values.
        attribute: The attribute. None for conditions.
        cases: The conditions, with the value of each.
        joined: The column of a joined table whose values they are.
        period: The period of a series. Empty for other columns.
        of: The attribute that it is, or of which it is a function, with the periods that this gives. None for
            other columns.
        values: What the function gives for each cell of that attribute, or the joined column for each cell of
            ``attribute``. Empty for the attribute itself.
    """

    written: str
    type: ValueType
    attribute: Mapping[str, Any] | None
    cases: tuple[tuple[Scalar, Tree], ...] = ()
    joined: JoinedColumn | None = None
    period: str = ""
    of: Mapping[str, Any] | None = None
    values: tuple[Scalar, ...] = ()

    @property
    def null(self) -> bool:
        """Whether the conditions have one for NULL."""
        return any(value is None for value, _ in self.cases)


class _Planner(Aggregates):
    """Plans one statement."""

    def __init__(
        self,
        source: Source,
        scope: Scope,
        attributes: Sequence[Mapping[str, Any]],
        dataset: str | None,
        unit: Mapping[str, Any] | None,
        dimensions: Mapping[str, Dimension],
        window: Mapping[str, Any],
    ) -> None:
        schema = {a["name"]: a for a in attributes}
        joined = Joined(source, scope.joins, schema, scope.names, dimensions)
        conditions = JoinedConditions(source, schema, unit, joined)
        self._scope = scope
        self._select = scope.select
        self._schema = schema
        self._dataset = dataset
        self._aliases = {
            item.alias.lower(): item.this
            for item in self._select.expressions
            if isinstance(item, exp.Alias)
        }
        self._meanings: dict[str, Any] = {}
        self._about: dict[str, set[int | None]] = {}
        self._window = window
        self._axes: list[_Axis] = []
        self._kinds: set[type] = set()
        self._bucket_notes: list[str] = []
        self.impossible = False
        super().__init__(source, conditions, joined, unit)
        self._check_dataset(scope)
        trees = [conditions.condition(where).true for where in scope.wheres]
        self._where = conjunction([*trees, *joined.matched])

    def _check_dataset(self, scope: Scope) -> None:
        """Refuses FROM anything but the data set itself."""
        name = scope.dataset
        if self._dataset is not None and name is not None and name.lower() != self._dataset.lower():
            raise self._error(
                scope.table, f"{name} is not the data set that you ask", f"write {self._dataset}"
            )

    def plan(self, series: str | None = None) -> StatementPlan:
        """Returns the plan of the statement.

        Args:
            series: A period to group by as well.
        """
        select = self._select
        for item in self._grouped():
            self._axes.append(self._axis(item))
        if series is not None and self.series != {"series": series}:
            name = exp.column(series)
            self._axes.insert(0, self._axis(name))
            select.expressions.insert(0, name)
        if select.args.get("distinct") is not None:
            self._axes += self._of_distinct(select)
        self._add_facts_of_groups()
        self._axes = list(map(self._tabled_if_alike, self._axes))
        self._groups = [axis.attribute for axis in self._axes]
        self._in_phases = self.series.get("series")
        items = [self._named(item) for item in select.expressions]
        outputs = [(name, node, self._value(node)) for name, node in items]
        having = select.args.get("having")
        chosen = None if having is None else self._condition(having.this)
        order = tuple(self._order(item, outputs) for item in self._ordered())
        expressions = [*(e for _, _, e in outputs), chosen, *(each.expression for each in order)]
        for each in expressions:
            self._check_length(select, each)
        atoms = [atom for each in expressions for atom in _atoms_in(each)]
        if not atoms:
            return self._declared(outputs, chosen, order, expressions)
        queries = Queries(
            atoms,
            [attribute["name"] for attribute in self._tabled],
            [axis.cases for axis in self._axes if axis.attribute is None and not axis.period],
            self._where,
            self._schema,
            impossible=self.impossible,
        )
        if queries.too_many:
            raise self._error(
                select,
                f"this takes more than {MOST_QUERIES} queries",
                "ask for fewer groups or aggregates at a time",
            )
        cells = [n_cells(attribute) for attribute in self._tabled]
        n_groups = math.prod(cells) * len(queries.combinations)
        self._check_work(n_groups * (MOST_PERIODS if self.series else 1), expressions)
        resolve = partial(_resolved, published=queries.published)
        finished = StatementPlan(
            queries=tuple(queries.fields),
            groups=tuple(self._group(axis) for axis in self._axes),
            cases=queries.combinations,
            outputs=tuple(Output(name, self._type(e), resolve(e)) for name, _, e in outputs),
            having=None if chosen is None else resolve(chosen),
            order=tuple(replace(each, expression=resolve(each.expression)) for each in order),
            offset=self._number_of("offset"),
            limit=self._number_of("limit") if select.args.get("limit") else None,
            members=queries.published.get(Atom("count", as_json(self._where))),
            notes=(*self._joined.notes, *self._bucket_notes, *self._notes_of_persons(expressions)),
            unit=self._unit,
            as_table=self._source.is_select and bool(self.series or select.find(exp.Alias)),
        )
        return self._with_clauses(finished)

    @property
    def _tabled(self) -> list[Mapping[str, Any]]:
        """The attributes of the answers' tables. Columns that are joined to one of them need no other."""
        found: list[Mapping[str, Any]] = []
        for axis in self._axes:
            if axis.attribute is not None and axis.attribute not in found:
                found.append(axis.attribute)
        return found

    @property
    def series(self) -> dict[str, str]:
        """The field ``series`` of the queries, if the statement groups by a period."""
        periods = [axis.period for axis in self._axes if axis.period]
        return {"series": periods[0]} if periods else {}

    def _notes_of_persons(self, expressions: Sequence[Any]) -> Iterator[str]:
        """Yields what a reader of a number of persons should know."""
        parts = itertools.chain.from_iterable(map(_parts_in, filter(None, expressions)))
        calls = [part for part in parts if isinstance(part, Call) and part.name == "persons"]
        counted = [atom for call in calls for atom in _atoms_in(call)]
        if counted and (self._axes or any(one.where != "null" or one.share_of for one in counted)):
            yield "persons go by the one row of each that counts in a phase; their other rows are left out"

    def _check_length(self, at: Any, expression: Any) -> None:
        """Refuses an expression that is too long with the meaning of each name put in."""
        n_parts = sum(1 for _ in itertools.islice(_parts_in(expression), _LONGEST + 1))
        self._source.look_at(at, n_parts)
        if n_parts > _LONGEST:
            raise self._error(
                at,
                f"{short(at)} has more than {_LONGEST:,} parts when each name stands for what it means",
                "compute less from it in one statement",
            )

    def _check_work(self, n_groups: int, expressions: Sequence[Any]) -> None:
        """Counts the values that filters and arithmetic look at for all groups, before they do."""
        for each in expressions:
            if isinstance(each, Call | Among):
                values = sum(not isinstance(part, Call) for part in _parts_in(each))
                self._source.look_at(self._select, n_groups * values)

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
        self._kinds |= PART_KINDS if part_of(item) else {type(item)}
        written = same_sql(item)
        if period := period_of(item, self._schema):
            return self._period(item, period)
        if isinstance(item, exp.Column):
            joined = self._joined.column(item)
            if joined is not None:
                return _Axis(written, joined.type, None, self._conditions.possible(joined), joined)
            attribute = self._conditions.attribute(item)
            kind: ValueType = "boolean" if attribute["type"] == "boolean" else "text"
            self._check_once(item, attribute)
            return _Axis(written, kind, attribute, of=attribute)
        of_date = self._conditions.of_date(item)
        if of_date is not None:
            kind = _type_of_dates(of_date.values)
            whole, cases = of_date.attribute, _possible(of_date.cases)
            if whole is not None:
                self._check_once(item, whole)
            return _Axis(written, kind, whole, cases, of=of_date.of, values=of_date.values)
        if (column := bucketed(item)) is not None:
            return self._buckets(item, self._conditions.attribute(column))
        if isinstance(item, exp.Case):
            cases = self._cases(item)
            return _Axis(written, _type_of([value for value, _ in cases]), None, cases)
        if isinstance(item, TRUTHS) and item.find(exp.AggFunc) is None:
            truth = self._conditions.condition(item)
            unknown = none_of([truth.true, truth.false])
            return _Axis(
                written,
                "boolean",
                None,
                _possible([(False, truth.false), (True, truth.true), (None, unknown)]),
            )
        if isinstance(item, exp.Rollup | exp.Cube | exp.GroupingSets):
            raise self._error(
                item,
                f"{short(item)} is not answered",
                "ask each grouping in a statement of its own",
            )
        fix = "group by an attribute, a CASE whose values are constants, or a condition"
        columns = () if item.find(exp.AggFunc) else set(item.find_all(exp.Column))
        if len(columns) == 1 and self._conditions.attribute(*columns)["type"] == "number":
            name = columns.pop().sql(Grammar)
            fix = f"write FLOOR({name} / 10) * 10 for buckets, or GROUP BY {name} for its bins"
        raise self._error(item, f"{short(item)} is not a group", fix)

    def _add_facts_of_groups(self) -> None:
        """Adds the joined columns of which MIN, MAX or ANY_VALUE has one value in each group."""
        for node in list(self._select.find_all(exp.Min, exp.Max, exp.AnyValue)):
            column = node.this.unnest()
            joined = self._joined.column(column) if isinstance(column, exp.Column) else None
            if joined is None or not self._is_grouped(self._schema[joined.attribute]):
                continue
            if self._index_of(column) is None:
                self._axes.append(self._axis(column))
            node.replace(column.copy())

    def _tabled_if_alike(self, axis: _Axis) -> _Axis:
        """Returns a joined column as cells of the attribute, where that is one table; else as it is."""
        if axis.joined is None:
            return axis
        attribute = self._schema[axis.joined.attribute]
        beside = bool(attribute.get("other", True)) + bool(attribute.get("missing"))
        values = (*map(axis.joined.values.get, attribute["values"]), *(None,) * beside)
        several = [value for value in values if value is not None or axis.null]
        if self._is_grouped(attribute) or self._is_one_table(len(several), len(set(several))):
            return replace(axis, attribute=attribute, values=values)
        return axis

    def _is_grouped(self, attribute: Mapping[str, Any]) -> bool:
        return any(axis.of == attribute and not axis.values for axis in self._axes)

    def _buckets(self, item: Any, attribute: Mapping[str, Any]) -> _Axis:
        """Returns the group column of buckets of a number."""
        written, found = item.sql(Grammar), buckets_of(item, attribute, self._source.error)
        kind = _type_of(found.values)
        low, high = (f"{edge:.15g}" for edge in (attribute["edges"][0], attribute["edges"][-1]))
        first, last = found.cases[0][0], found.cases[len(set(found.values) - {None}) - 1][0]
        self._bucket_notes.append(
            f"{written} is {first} for all values below {low}, and {last} for all from {high} on"
        )
        if not self._is_one_table(len(found.values), len(found.cases)):
            return _Axis(written, kind, None, found.cases)
        self._check_once(item, attribute)
        return _Axis(written, kind, attribute, of=attribute, values=found.values)

    def _is_one_table(self, n_cells: int, n_groups: int) -> bool:
        """Returns whether groups of cells are asked as a table of the cells, and added up.

        A table takes about twice what one of its cells takes, and a cell ``k**2`` times what ``k`` of them
        together take. Bars of added means would be wide.
        """
        if n_cells == n_groups:
            return True
        aggregates = self._select.find_all(exp.AggFunc)
        counts = all(
            isinstance(each, exp.Count) and not isinstance(each.this, exp.Distinct)
            for each in aggregates
        )
        return counts and 2 * n_cells**2 < n_groups**3

    def _check_once(self, item: Any, attribute: Mapping[str, Any]) -> None:
        if any(axis.attribute == attribute for axis in self._axes):
            raise self._error(item, f"{attribute['name']} is grouped by twice", "name it once")

    def _period(self, item: Any, period: str) -> _Axis:
        """Returns the group column of a series. There is at most one."""
        for other in self.series.values():
            raise self._error(item, "a series is of one period", f"group by {other} alone")
        kind: ValueType = "integer" if period == "phase" else "date"
        return _Axis(item.sql(Grammar), kind, None, period=period)

    def _cases(self, case: Any) -> tuple[tuple[Scalar, Tree], ...]:
        """Returns the values of a CASE with the condition of each. The first one that is true counts."""
        found: dict[Scalar, list[Tree]] = {}
        before: list[Tree] = []
        for each in case.args["ifs"]:
            tree = self._conditions.condition(self._when(case, each)).true
            here = conjunction([tree, none_of(before)]) if before else tree
            found.setdefault(self._label(each.args["true"]), []).append(
                EVERYTHING if here is None else here
            )
            before.append(tree)
        default = case.args.get("default")
        rest = None if default is None else self._label(default)
        found.setdefault(rest, []).append(none_of(before))
        if _type_of(found) == "text" and not all(isinstance(v, str | None) for v in found):
            raise self._error(
                case, "this CASE has both texts and numbers", "write quotes around all of them"
            )
        trees = [
            (value, parts[0] if len(parts) == 1 else {"any": parts})
            for value, parts in found.items()
        ]
        return _possible(trees)

    def _label(self, node: Any) -> Scalar:
        node = node.unnest()
        if isinstance(node, exp.Null):
            return None
        if isinstance(node, exp.Literal):
            return str(node.this) if node.is_string else number_of(node.this)
        raise self._error(node, f"{short(node)} is not a constant", "write a text such as 'young'")

    def _group(self, axis: _Axis) -> GroupColumn:
        cased = [a for a in self._axes if a.attribute is None and not a.period]
        if axis.period:
            return GroupColumn(axis.type, 0, by_case=False, period=axis.period)
        if axis.attribute is None:
            values = tuple(value for value, _ in axis.cases)
            return GroupColumn(axis.type, _index(cased, axis), by_case=True, values=values)
        attribute = axis.attribute
        in_order = attribute["type"] != "category" or bool(attribute.get("ordered"))
        return GroupColumn(
            axis.type,
            self._tabled.index(attribute),
            by_case=False,
            has_missing=bool(attribute.get("missing")),
            ranked=in_order and not axis.values,
            values=axis.values,
            apart=axis.joined is not None and self._is_grouped(attribute),
            matched=axis.joined is not None and not axis.null,
        )

    # ------------------------------------------------------------ columns

    def _named(self, item: Any) -> tuple[str, Any]:
        """Returns the name and the expression of an item of the SELECT list."""
        node = item.unalias()
        if isinstance(item, exp.Alias):
            return item.alias, node
        return (node.name if isinstance(node, exp.Column) else node.sql(Grammar)), node

    def _value(self, node: Any) -> Any:
        """Translates an expression of aggregates, groups and constants."""
        node = node.unnest()
        index = self._index_of(node)
        if index is not None:
            if self._scalar:
                raise self._error(node, "a subquery has no groups", "select one aggregate in it")
            return Key(index)
        if isinstance(node, exp.Literal):
            return Constant(str(node.this) if node.is_string else number_of(node.this))
        if isinstance(node, exp.Boolean):
            return Constant(bool(node.this))
        if isinstance(node, exp.Null):
            return Constant(None)
        if isinstance(node, exp.Cast | exp.TryCast):
            return self._value(node.this)
        if isinstance(node, exp.Neg):
            return Call("neg", (self._numeric(node.this),))
        if type(node) in _ARITHMETIC:
            return self._arithmetic(node)
        if isinstance(node, exp.Nullif):
            raise self._error(
                node,
                f"{short(node)} is not answered",
                "NULLIF(x, 0) may be what something is divided by: a / NULLIF(x, 0)",
            )
        if isinstance(node, exp.Coalesce):
            return Call("coalesce", self._comparable(node, (node.this, *node.expressions)))
        if isinstance(node, exp.Round):
            decimals = node.args.get("decimals")
            return Call(
                "round",
                (self._numeric(node.this), self._numeric(decimals) if decimals else Constant(0)),
            )
        if isinstance(node, exp.Abs):
            return Call("abs", (self._numeric(node.this),))
        if isinstance(node, exp.Select):
            return self._scalar_subquery(node)
        if isinstance(node, exp.Column):
            return self._column_value(node)
        if is_group(node):
            self._conditions.of_date(node)  # an unknown name is refused as such
            written = node.sql(Grammar)
            raise self._error(node, f"{short(node)} is not grouped by", f"add GROUP BY {written}")
        if isinstance(node, exp.Window):
            return self._total() if _is_total(node) else self._over(node)
        return self._aggregate(node)

    def _index_of(self, node: Any) -> int | None:
        """Returns the position of the group column that a piece is; None for any other piece."""
        if type(node) not in self._kinds:
            return None  # without the text of each part of each part
        written = same_sql(node)
        for index, axis in enumerate(self._axes):
            if axis.written == written or self._is_axis(node, axis):
                return index
        return None

    def _is_axis(self, node: Any, axis: _Axis) -> bool:
        """Returns whether a column is a group column under another spelling."""
        if not isinstance(node, exp.Column):
            return False
        if axis.attribute is not None and not axis.values and not node.table:
            return bool(node.name.lower() == axis.attribute["name"].lower())
        joined = self._joined.column(node)
        return joined is not None and joined == axis.joined

    def _column_value(self, node: Any) -> Any:
        name = node.name.lower()
        meant = None if node.table or self._scalar else self._aliases.get(name)
        if meant is not None and not isinstance(meant, exp.Column):
            if name not in self._meanings:
                found = self._value(meant)
                self._check_length(node, found)
                self._meanings[name] = found
            return self._meanings[name]
        if self._joined.column(node) is None:
            self._conditions.attribute(node)  # an unknown name is refused as such
        raise self._error(
            node, f"{node.sql(Grammar)} is not grouped by", f"add GROUP BY {node.sql(Grammar)}"
        )

    def _arithmetic(self, node: Any) -> Any:
        """Translates an operator. A part of the rows of a count is a share, whose bar is narrower."""
        right = _divisor(node.expression) if isinstance(node, exp.Div) else node.expression
        left, right = self._numeric(node.this), self._numeric(right)
        if isinstance(node, exp.Div):
            factor, above = _factors(left)
            ratio = self._ratio(above, right)
            if ratio is not None:
                return ratio if factor == 1 else Call("*", (Constant(factor), ratio))
        return Call(_ARITHMETIC[type(node)], (left, right))

    def _numeric(self, node: Any) -> Any:
        """Translates an expression that is computed with, which a text is not."""
        found = self._value(node)
        if self._is_text(found):
            raise self._error(
                node,
                f"{short(node)} is a text here, and not a number to compute with",
                "compute with COUNT(*), SUM or AVG; a bin is a text such as '30 to 64'",
            )
        return found

    def _comparable(self, at: Any, nodes: Sequence[Any]) -> tuple[Any, ...]:
        """Translates expressions that stand beside each other: all of them texts, or none."""
        found = tuple(map(self._value, nodes))
        known = [each for each in found if each != Constant(None)]
        if len({self._is_text(each) for each in known}) > 1:
            raise self._error(
                at,
                f"{short(at)} has a text beside a number",
                "write numbers without quotes, and compare a bin by its attribute, such as age >= 30",
            )
        return found

    def _is_text(self, expression: Any) -> bool:
        if isinstance(expression, Call) and expression.name != "coalesce":
            return False
        return expression != Constant(None) and self._type(expression) in (
            "text",
            "date",
            "timestamp",
        )

    def _ratio(self, above: Any, below: Any) -> Any:
        """Returns the one part of an answer that a quotient is; None for another quotient."""
        if not (isinstance(above, Atom) and isinstance(below, Atom)):
            return None
        if (above.grouped, above.frame) != (below.grouped, below.frame):  # they are of other rows
            return None
        if above.part == "total" and below.part == "present" and above.where == below.where:
            return replace(above, part="mean") if above.attribute == below.attribute else None
        if (below.part, below.share_of) != ("count", ""):
            return None
        if above.part == "present" and above.where == below.where:
            present = {"attribute": above.attribute, "is_missing": False}
            return replace(above, part="share", attribute="", share_of=as_json(present))
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
        for period in self.series.values():
            raise self._error(
                self._select,
                f"OVER () would be of each {period} alone",
                f"omit GROUP BY {period}, or compute it from the table",
            )
        return Atom("count", as_json(self._where), grouped=False)

    def _over(self, node: Any) -> Any:
        """Translates a window function over the periods of a series.

        A sum of the last periods is asked as a count or a sum of the phases of all of them together. So its
        bar is that of one query, and narrower than the bars of the periods together.
        """
        function = node.this
        if not isinstance(function, (*FRAMED, *SHIFTED)):
            return self._aggregate(node)
        self._check_over(node)
        if type(function) in SHIFTED:
            if node.args.get("spec"):
                raise self._error(node, "this takes one row and no frame", "omit ROWS")
            shift = parts_before(function, self._source.error)
            return Call("lag", (self._value(node.this.this), Constant(shift)))
        each, frame = self._value(node.this.this), frame_of(node, self._source.error)
        if (
            not isinstance(each, Atom)
            or each.frame
            or each.part not in ("count", "present", "total")
        ):
            raise self._error(
                node,
                f"{short(function)} is not a sum over periods",
                "write SUM or AVG of COUNT or of SUM, such as SUM(COUNT(*)) OVER (ORDER BY day); the mean of "
                "all rows is SUM(SUM(x)) OVER (...) / SUM(COUNT(x)) OVER (...)",
            )
        added: Any = replace(each, frame=frame)
        if isinstance(function, exp.Sum):
            return added
        most = Constant(MOST_PERIODS if frame == "running" else frame)
        return Call("/", (added, Call("n_parts", (most,))))

    def _check_over(self, node: Any) -> None:
        """Refuses a window function that is not over the periods of the series of each group."""
        period = next((axis for axis in self._axes if axis.period), None)
        if period is None or self._scalar:
            raise self._error(
                node,
                "OVER takes the periods of a series",
                "GROUP BY day, week, month or phase, and write OVER (ORDER BY day)",
            )
        if self._select.args.get("having") is not None and not self._scope.filters_at_last:
            raise self._error(
                node,
                "this would be of the periods that a condition leaves",
                "omit HAVING, or put the condition around: SELECT * FROM (SELECT ...) WHERE ...",
            )
        order = node.args.get("order")
        by = [] if order is None else list(order.expressions)
        if [self._place_of(each.this) for each in by] != [period] or by[0].args.get("desc"):
            raise self._error(
                node, "OVER goes from period to period", f"write OVER (ORDER BY {period.written})"
            )
        others = [axis for axis in self._axes if axis is not period]
        parted = [self._place_of(each) for each in node.args.get("partition_by") or ()]
        if {*map(id, parted)} != {*map(id, others)}:
            names = ", ".join(axis.written for axis in others)
            raise self._error(
                node,
                "OVER is of each group by itself",
                f"write OVER (PARTITION BY {names} ORDER BY {period.written})"
                if names
                else "omit PARTITION BY",
            )

    def _place_of(self, node: Any) -> _Axis | None:
        """Returns the group column that a piece of OVER names."""
        index = self._index_of(self._meant(node, "OVER"))
        return None if index is None else self._axes[index]

    def _scalar_subquery(self, node: Any) -> Any:
        """Translates a subquery of one aggregate about the same data set."""
        fix = "select one COUNT, SUM or AVG"
        if self._window or self.series:
            raise self._error(
                node,
                "a subquery beside a condition or a group about time would be of the same time",
                "ask it in a statement of its own",
            )
        scope = Scope(self._source, node)
        if len(scope.select.expressions) != 1:
            raise self._error(node, "a subquery here has one aggregate", fix)
        for clause, content in scope.select.args.items():
            if content and clause not in ("expressions", "from_", "where"):
                raise self._error(node, "a subquery here has no groups", fix)
        if scope.joins:
            raise self._error(node, "a subquery of one aggregate has no joins", fix)
        expected = self._scope.dataset or self._dataset
        if scope.dataset is not None and expected and scope.dataset.lower() != expected.lower():
            raise self._error(
                scope.table, f"{scope.dataset} is another data set", f"write {expected}"
            )
        outside, self._where = self._where, None
        nested, self._scalar = self._scalar, True
        try:
            self._where = conjunction([self._conditions.condition(w).true for w in scope.wheres])
            return self._value(scope.select.expressions[0].unalias())
        finally:
            self._where, self._scalar = outside, nested

    # ------------------------------------------------------------ HAVING, ORDER BY, LIMIT, DISTINCT

    def _condition(self, node: Any) -> Any:
        """Translates a condition on the rows of the table."""
        node = node.unnest()
        if isinstance(node, exp.And | exp.Or):
            name = "and" if isinstance(node, exp.And) else "or"
            return _connected(name, [self._condition(part) for part in node.flatten()])
        if isinstance(node, exp.Not):
            part = self._condition(node.this)
            if isinstance(part, Among):
                return Among(part.index, part.false, part.true)
            return Call("not", (part,))
        if isinstance(node, exp.Boolean):
            return Call("=", (Constant(value=True), Constant(bool(node.this))))
        if is_in_nothing(node):
            self._value(node.this)  # an unknown name is refused as such
            return Call("=", (Constant(value=True), Constant(value=False)))
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Boolean):
            name = "is_true" if node.expression.this else "is_false"
            return Call(name, (self._condition(node.this),))
        if isinstance(node, exp.Is) and isinstance(node.expression, exp.Null):
            subject = node.this.unnest()
            if isinstance(subject, TRUTHS) and self._index_of(subject) is None:
                return Call("is_unknown", (self._condition(subject),))
            return Call("is_null", (self._value(subject),))
        return self._of_groups(node) or self._of_values(node)

    def _of_groups(self, node: Any) -> Any:
        """Translates a condition on one group column, as WHERE would; None for any other condition.

        Numbers, and truth values that are conditions, compare by themselves as published values do.
        """
        indices = self._indices(node)
        index = next(iter(indices)) if len(indices) == 1 else None
        if index is None:
            return None
        axis = self._axes[index]
        if axis.type in ("integer", "real"):
            return None
        pieces: list[Any] = []
        meant = self._with_meanings(exp.Paren(this=node.copy()), pieces).unnest()
        if axis.period:
            return self._of_period(meant, index)
        if axis.of is not None:
            return Among(index, *self._holding(meant, axis))
        if axis.type == "boolean":
            is_bare = pieces == [meant]
            return Call("=", (Key(index), Constant(value=True))) if is_bare else None
        said = axis.values or [value for value, _ in axis.cases]
        column = JoinedColumn(
            "", axis.written, "", axis.type, {str(i): value for i, value in enumerate(said)}
        )
        for piece in pieces:
            piece.replace(exp.column(exp.to_identifier(axis.written)))
        tests = self._conditions.tests(meant, column)
        return Among(
            index, *(cells_of(v is not None and holds(v) for v in said) for holds in tests)
        )

    def _indices(self, node: Any, within: frozenset[str] = frozenset()) -> set[int | None]:
        """Returns the positions of the group columns in a condition; None for aggregates and other names.

        Args:
            node: The condition.
            within: The aliases in whose meaning it is.
        """
        index = self._index_of(node)
        if index is not None:
            return {index}
        if isinstance(node, exp.Column):
            name = node.name.lower()
            meant = None if name in within else self._meaning_of(node)
            if meant is None:
                return {None}
            if name not in self._about:
                self._about[name] = self._indices(meant.unnest(), within | {name})
            return self._about[name]
        if isinstance(node, exp.AggFunc | exp.Filter | exp.Window | exp.Query):
            return {None}
        return set().union(*(self._indices(each, within) for each in node.iter_expressions()))

    def _with_meanings(self, node: Any, pieces: list[Any]) -> Any:
        """Replaces aliases in a condition on one group column, and adds to ``pieces`` where it is named."""
        if self._index_of(node) is not None:
            pieces.append(node)
        elif isinstance(node, exp.Column):
            meant = self._meaning_of(node).unnest()
            self._source.look_at(node, _A_PART * sum(1 for _ in meant.walk()))
            meant = meant.copy()
            node.replace(meant)
            return self._with_meanings(meant, pieces)
        else:
            for each in list(node.iter_expressions()):
                self._with_meanings(each, pieces)
        return node

    def _holding(self, node: Any, axis: _Axis) -> tuple[int, int]:
        """Returns the values of a group column where a condition is true, and those where it is false."""
        assert axis.of is not None, "it is an attribute, or a function of one"
        self._source.look_at(node, len(axis.values))
        true, false = self._conditions.holding(node, axis.of)
        nulls = cells_of(value is None for value in axis.values)
        true, false = true & ~nulls, false & ~nulls
        if isinstance(node, exp.NullSafeEQ | exp.NullSafeNEQ):
            is_same = isinstance(node, exp.NullSafeEQ)
            true, false = (true, false | nulls) if is_same else (true | nulls, false)
        if axis.attribute is not None:
            return true, false
        places = {value: place for place, value in reversed([*enumerate(axis.values)])}
        cells = [places[value] for value, _ in axis.cases]
        return (
            cells_of(bool(true >> cell & 1) for cell in cells),
            cells_of(bool(false >> cell & 1) for cell in cells),
        )

    def _of_period(self, node: Any, index: int) -> Any:
        """Translates a comparison of the period of a series with dates, as one of its first days."""
        period = self._axes[index].period
        comparisons = {id(constant): how for constant, how in compared_with(node)}

        def read(piece: Any) -> Any:
            if self._index_of(piece.unnest()) == index:
                return Key(index)
            if isinstance(piece.unnest(), exp.Null):
                return Constant(None)
            how = comparisons.get(id(piece), "eq")
            return Constant(first_day(period, piece, how, self._source.error))

        return self._comparison(node, lambda pieces: tuple(map(read, pieces)))

    def _of_values(self, node: Any) -> Any:
        """Translates a condition on published values, and on groups that are numbers or truth values."""

        def read(pieces: Sequence[Any]) -> tuple[Any, ...]:
            values = self._comparable(node, pieces)
            keys = [part for each in values for part in _parts_in(each) if isinstance(part, Key)]
            for key in keys:
                if self._is_text(key):
                    raise self._error(
                        node,
                        f"{self._axes[key.index].written} is compared with something else than a constant",
                        "compare the column itself with a constant",
                    )
            if isinstance(node, _ORDERING) and any(map(self._is_text, values)):
                raise self._error(node, "texts have no order here", "use = or IN")
            return values

        return self._comparison(node, read)

    def _comparison(self, node: Any, read: Callable[[Sequence[Any]], tuple[Any, ...]]) -> Any:
        """Translates a comparison of what ``read`` makes of its pieces."""
        if type(node) in _COMPARISONS:
            return Call(_COMPARISONS[type(node)], read((node.this, node.expression)))
        if isinstance(node, exp.Between):
            value, low, high = read([node.args[name] for name in ("this", "low", "high")])
            return Call("and", (Call(">=", (value, low)), Call("<=", (value, high))))
        if isinstance(node, exp.In) and node.expressions:
            return Call("in", read((node.this, *node.expressions)))
        raise self._error(
            node,
            f"{short(node)} is not a condition on the table",
            "compare an aggregate, such as COUNT(*) > 100",
        )

    def _meaning_of(self, column: Any) -> Any:
        """Returns the expression that an alias stands for; None for any other name."""
        return None if column.table or self._scalar else self._aliases.get(column.name.lower())

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
        for part in _parts_in(expression):
            axis = self._axes[part.index] if isinstance(part, Key) else None
            if axis is not None and part is not expression and self._group(axis).ranked:
                raise self._error(
                    item,
                    f"the order of {axis.written} is not that of texts",
                    f"order by {axis.written} itself",
                )
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
            if not any(axis.written == node.sql(Grammar) for axis in self._axes):
                found.append(self._axis(node))
        return found

    def _declared(
        self,
        outputs: Sequence[tuple[str, Any, Any]],
        chosen: Any,
        order: tuple[Order, ...],
        expressions: Sequence[Any],
    ) -> StatementPlan:
        """Returns the plan of a table of declared values alone, for which nothing is asked."""
        if not outputs or not all(isinstance(each, Key) for _, _, each in outputs):
            raise self._error(self._select, "nothing is counted", "add COUNT(*)")
        if self.series:
            raise self._error(self._select, "periods are not declared", "add COUNT(*)")
        restricting = [
            *self._scope.wheres,
            *self._scope.joins,
            *([self._select] * bool(self._window)),
        ]
        if restricting:
            raise self._error(
                restricting[0],
                "this would show which values rows have",
                "add COUNT(*), which counts the rows of each value; the declared values follow no condition",
            )
        values = [tuple(self._declared_values(axis)) for axis in self._axes]
        rows = list(itertools.islice(itertools.product(*values), 50_001))
        if len(rows) > 50_000:
            raise self._error(
                self._select, "these are more than 50,000 rows", "name fewer attributes"
            )
        self._check_work(len(rows), expressions)
        return StatementPlan(
            queries=(),
            groups=tuple(
                replace(self._group(axis), by_case=True, axis=i, values=values[i])
                for i, axis in enumerate(self._axes)
            ),
            cases=tuple(rows),
            outputs=tuple(Output(name, self._type(e), e) for name, _, e in outputs),
            having=chosen,
            order=order,
            offset=self._number_of("offset"),
            limit=self._number_of("limit") if self._select.args.get("limit") else None,
            notes=(
                "these are the declared values, whether or not a row has them; nothing was asked",
            ),
        )

    def _declared_values(self, axis: _Axis) -> list[Scalar]:
        if axis.cases:
            return [value for value, _ in axis.cases]
        assert axis.attribute is not None, "a column without cases is an attribute"
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

    def _with_clauses(self, plan: StatementPlan) -> StatementPlan:
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
            if asked["kind"] not in (
                "predicate",
                "table",
                "sum",
                "share",
                "quantile",
                "correlation",
            ):
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
            case Atom(part="found"):
                return "text"
            case Atom(part=part):
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


def _renamed_below(select: Any) -> Iterator[str]:
    """Yields the names that subqueries give to other columns: outside, such a name means that column."""
    for below in select.find_all(exp.Select):
        for item in below.expressions if below is not select else ():
            bare = item.unalias()
            if not isinstance(bare, exp.Column) or bare.name.lower() != item.output_name.lower():
                yield item.output_name


# ---------------------------------------------------------------- small things


def _type_of_dates(values: Iterable[Scalar]) -> ValueType:
    """Returns the type of what a function of a date gives: a part of it, or where a period begins."""
    first = next(value for value in values if value is not None)
    if isinstance(first, int):
        return "integer"
    return "timestamp" if "T" in str(first) else "date"


def _resolved(expression: Any, published: Mapping[Atom, Published]) -> Any:
    """Puts the published values into an expression."""
    if isinstance(expression, Atom):
        return published[expression]
    if isinstance(expression, Call):
        return Call(expression.name, tuple(_resolved(e, published) for e in expression.arguments))
    return expression


def _connected(name: str, parts: Sequence[Any]) -> Any:
    """Joins conditions by AND or OR; those on the same group column become one."""
    among: dict[int, Among] = {}
    others: list[Any] = []
    for part in parts:
        if not isinstance(part, Among):
            others.append(part)
        elif (same := among.get(part.index)) is None:
            among[part.index] = part
        elif name == "and":
            among[part.index] = Among(part.index, same.true & part.true, same.false | part.false)
        else:
            among[part.index] = Among(part.index, same.true | part.true, same.false & part.false)
    joined: tuple[Any, ...] = (*among.values(), *others)
    return joined[0] if len(joined) == 1 else Call(name, joined)


def _atoms_in(expression: Any) -> Iterator[Atom]:
    """Yields the published values in an expression."""
    if isinstance(expression, Atom):
        yield expression
    elif isinstance(expression, Call):
        for argument in expression.arguments:
            yield from _atoms_in(argument)


def _parts_in(expression: Any) -> Iterator[Any]:
    """Yields an expression and all parts of it."""
    yield expression
    if isinstance(expression, Call):
        for argument in expression.arguments:
            yield from _parts_in(argument)


def _divisor(node: Any) -> Any:
    """Takes NULLIF(x, 0) off a divisor: a division by zero has no value anyway."""
    bare = node.unnest()
    while isinstance(bare, exp.Cast | exp.TryCast):
        bare = bare.this.unnest()
    if not isinstance(bare, exp.Nullif):
        return node
    other = bare.expression.unnest()
    is_number = isinstance(other, exp.Literal) and not other.is_string
    return bare.this if is_number and number_of(other.this) == 0 else node


def _factors(expression: Any) -> tuple[float, Any]:
    """Splits constant factors off a translated expression."""
    factor: float = 1
    while isinstance(expression, Call) and expression.name == "*":
        one, other = expression.arguments
        if not isinstance(one, Constant):
            one, other = other, one
        if not (isinstance(one, Constant) and isinstance(one.value, int | float)):
            break
        factor, expression = factor * one.value, other
    return factor, expression


def _type_of(values: Iterable[Scalar]) -> ValueType:
    """Returns the type of a column of constants; that of texts if there are any."""
    known = [value for value in values if value is not None]
    if not known or any(isinstance(value, str) for value in known):
        return "text"
    return "integer" if all(isinstance(value, int) for value in known) else "real"


def _possible(cases: Sequence[tuple[Scalar, Tree]]) -> tuple[tuple[Scalar, Tree], ...]:
    """Leaves out the cases that no row can be in."""
    return tuple((value, tree) for value, tree in cases if tree != NOTHING)


def _index(axes: Sequence[_Axis], axis: _Axis) -> int:
    """Returns the position of a group column, by identity."""
    return next(i for i, each in enumerate(axes) if each is axis)


def _is_total(window: Any) -> bool:
    """Returns whether a window function is SUM(COUNT(*)) OVER ()."""
    summed = window.this
    if not isinstance(summed, exp.Sum):
        return False
    if any(window.args.get(clause) for clause in ("partition_by", "order", "spec")):
        return False
    return isinstance(summed.this, exp.Count) and isinstance(summed.this.this, exp.Star)
