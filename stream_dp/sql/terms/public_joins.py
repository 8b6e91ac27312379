"""Joins with public tables, as conditions on the declared values of the attribute that is joined.

A public table says something about each declared value, such as the state of an airport. So a condition on
its columns holds for some of the values and not for others, and asking it takes nothing but the attribute.
A row whose value is not declared, or has no line in the table, has no match: JOIN leaves it out, and LEFT
JOIN keeps it with columns that are NULL.

A group by such a column is one query for each of its values, and not the sum of cells of a table: the bars of
cells say nothing good about their sum, while the worker knows how the errors of the cells add up.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, TypeAlias

from sqlglot import exp

from stream_dp.dates import CYCLES, with_periods
from stream_dp.errors import InvalidQuery
from stream_dp.sql.plan.statement_plan import Dimension, Scalar, ValueType
from stream_dp.sql.reading.translator import (
    Source,
    Translator,
    Tree,
    _all,
    _any,
    _listed,
    _listed_by,
    _not,
    _Truth,
    _unfolded,
    is_group,
    is_in_nothing,
    lists_null,
)
from stream_dp.sql.terms.attribute_cells import CutsCell, cells_where, n_steps
from stream_dp.sql.terms.sql_dates import truncation_of

_COMPARISONS: Final[dict[Any, Callable[[Any, Any], bool]]] = {
    exp.EQ: eq,
    exp.NEQ: ne,
    exp.LT: lt,
    exp.LTE: le,
    exp.GT: gt,
    exp.GTE: ge,
}
_WRITTEN: Final = {
    "text": "write the constant in single quotes",
    "number": "write the constant without quotes",
    "boolean": "write TRUE or FALSE",
}
_MIRRORED: Final = {lt: gt, gt: lt, le: ge, ge: le}

_Test: TypeAlias = Callable[[Any], bool]


@dataclass(frozen=True, slots=True)
class DateGroups:
    """The groups of a function of a date.

    Attributes:
        attribute: The attribute of which each cell is a group of its own. None where groups are conditions.
        of: The attribute of the groups, or the one of which the function is taken, with the periods it gives.
        values: What the function gives for each cell of ``of``; None for NULL.
        cases: The values with the condition of each, where groups are conditions.
    """

    attribute: Mapping[str, Any] | None
    of: Mapping[str, Any]
    values: tuple[str | int | None, ...]
    cases: tuple[tuple[Scalar, Tree], ...]


@dataclass(frozen=True, slots=True)
class JoinedColumn:
    """A column of a joined table, for each declared value of the attribute.

    Attributes:
        alias: The name of the table in the statement.
        name: The name of the column.
        attribute: The name of the attribute that is joined.
        type: The type of its values, as the table declares it.
        values: What the column says of each declared value that has a line; None for NULL.
    """

    alias: str
    name: str
    attribute: str
    type: ValueType
    values: Mapping[str, Scalar]

    @property
    def known(self) -> dict[str, str | int | float | bool]:
        """The declared values for which the column is not NULL."""
        return {value: said for value, said in self.values.items() if said is not None}

    def where(self, holds: Callable[[Any], bool]) -> list[Tree]:
        """Returns the condition that the column has a value of which ``holds`` is true, as no or one tree."""
        return _listed(self.attribute, [v for v, said in self.known.items() if holds(said)])

    @property
    def unknown(self) -> Tree:
        """The rows for which the column is NULL, or which have no match."""
        return _not(_any(self.where(lambda _: True)))

    def cases(self) -> tuple[tuple[Scalar, Tree], ...]:
        """Returns the values of the column with the condition of each, sorted; NULL comes last."""
        listed: dict[Any, list[str]] = {}
        for value, said in self.known.items():
            listed.setdefault(said, []).append(value)
        cases = [(said, _any(_listed(self.attribute, listed[said]))) for said in sorted(listed)]
        return (*cases, (None, self.unknown))


class Joined:
    """The joined tables of a statement.

    Attributes:
        matched: The condition of each inner join: the row has a match.
        notes: What the reader should know.
    """

    def __init__(
        self,
        source: Source,
        joins: Sequence[Any],
        schema: Mapping[str, Mapping[str, Any]],
        names: set[str],
        dimensions: Mapping[str, Dimension],
    ) -> None:
        self._source = source
        self._schema = schema
        self._names = names
        self._columns: list[JoinedColumn] = []
        self._left: set[str] = set()
        self.matched: list[Tree] = []
        self.notes: list[str] = []
        for join in joins:
            self._add(join, dimensions)

    def _add(self, join: Any, dimensions: Mapping[str, Dimension]) -> None:
        table = join.this
        by_name = {name.lower(): dimension for name, dimension in dimensions.items()}
        dimension = by_name.get(table.name.lower()) if isinstance(table, exp.Table) else None
        if dimension is None:
            known = f" (there are: {', '.join(dimensions)})" if dimensions else ""
            raise self._source.error(
                table,
                f"{table.name or 'this'} is not a public table{known}",
                "publish it with: stream-dp dimension put FILE.csv --key COLUMN; rows of data sets cannot be "
                "joined",
            )
        is_left = join.side == "LEFT"
        if (join.side and not is_left) or join.kind not in ("", "INNER", "OUTER") or join.method:
            raise self._source.error(
                table, "only JOIN and LEFT JOIN are answered", "write one of them"
            )
        alias = table.alias_or_name
        attribute = self._attribute(join, alias, dimension)
        rows = {
            value: dimension.rows[value] for value in attribute["values"] if value in dimension.rows
        }
        name = attribute["name"]
        for column, kind in dimension.columns.items():
            self._source.look_at(join, len(rows))
            said = {v: v if column == dimension.key else row.get(column) for v, row in rows.items()}
            self._columns.append(JoinedColumn(alias, column, name, kind, said))
        without = len(attribute["values"]) - len(rows)
        if is_left:
            self._left.add(alias)
        else:
            self.matched.append(_any(_listed(name, list(rows))))
        if without:
            fate = "have NULL" if is_left else "are left out"
            self.notes.append(
                f"{without:,} of {len(attribute['values']):,} declared values of {name} are not in "
                f"{dimension.name}: their rows {fate}"
            )
        if attribute.get("other", True):
            fate = "have NULL" if is_left else "are left out"
            self.notes.append(f"rows with an unlisted {name} have no match: they {fate}")

    def _attribute(self, join: Any, alias: str, dimension: Dimension) -> Mapping[str, Any]:
        """Returns the attribute that a join compares with the key of the table."""
        on, using = join.args.get("on"), join.args.get("using")
        written = f"ON attribute = {alias}.{dimension.key}"
        if using:
            sides = [exp.column(using[0].name), exp.column(using[0].name, alias)]
        elif isinstance(on, exp.EQ) and all(
            isinstance(s.unnest(), exp.Column) for s in (on.this, on.expression)
        ):
            sides = [on.this.unnest(), on.expression.unnest()]
        else:
            raise self._source.error(
                join.this, "this joins on something else than one key", f"write {written}"
            )
        ours = [s for s in sides if s.table.lower() != alias.lower()]
        if len(ours) == 2:  # names without a table
            ours = [s for s in sides if s.name.lower() in {n.lower() for n in self._schema}][:1]
        theirs = [s for s in sides if not ours or s is not ours[0]]
        if len(ours) != 1 or theirs[0].name.lower() != dimension.key.lower():
            raise self._source.error(
                join.this, f"the key of {dimension.name} is {dimension.key}", f"write {written}"
            )
        found = [a for n, a in self._schema.items() if n.lower() == ours[0].name.lower()]
        if not found or (ours[0].table and ours[0].table.lower() not in self._names):
            raise self._source.error(
                join.this, f"there is no attribute {ours[0].name}", f"write {written}"
            )
        if found[0]["type"] != "category":
            raise self._source.error(
                join.this, f"{found[0]['name']} is a {found[0]['type']}", "join on a category"
            )
        return found[0]

    def may_lack(self, column: JoinedColumn) -> bool:
        """Returns whether rows that are not left out may have NULL in a column."""
        return column.alias in self._left or None in column.values.values()

    def column(self, node: Any) -> JoinedColumn | None:
        """Returns the column of a joined table that a name means; None for any other name."""
        table, name = node.table.lower(), node.name.lower()
        if not table and name in {n.lower() for n in self._schema}:
            return None
        found = [
            c for c in self._columns if c.name.lower() == name and table in ("", c.alias.lower())
        ]
        if not found:
            return None
        if len(found) > 1:
            raise self._source.error(
                node, f"{node.name} is in several tables", f"write {found[0].alias}.{node.name}"
            )
        return found[0]


class JoinedConditions(Translator):
    """Translates conditions on attributes and on the columns of joined tables."""

    def __init__(
        self,
        source: Source,
        schema: Mapping[str, Mapping[str, Any]],
        unit: Mapping[str, Any] | None,
        joined: Joined,
    ) -> None:
        super().__init__(source, schema, unit)
        self._joined = joined

    def attribute(self, node: Any) -> Mapping[str, Any]:
        """Returns the attribute that a column names."""
        return self._column(node)

    def of_date(self, item: Any) -> DateGroups | None:
        """Returns what the groups of a function of a date are. None for another expression."""
        if isinstance(item, exp.Column) or not is_group(item):
            return None
        attribute, values = self._periods_of(item)
        alike = self._groups_alike(item)
        cases = () if alike else tuple(self._longer_periods(attribute, values))
        of = attribute
        if (truncated := truncation_of(item)) is not None:
            of, values = with_periods(attribute, truncated[0]), tuple(dict.fromkeys(values))
        outside = () if attribute["by"] in CYCLES else (None,)
        missing = (None,) * bool(attribute.get("missing"))
        return DateGroups(
            attribute if alike else None, of, (*outside, *values, *outside, *missing), cases
        )

    def holding(self, node: Any, attribute: Mapping[str, Any]) -> tuple[int, int]:
        """Returns the cells of an attribute where a condition on it is true, and those where it is false."""
        truth = self.truth(node)
        self._source.look_at(node, n_steps(truth.true, attribute) + n_steps(truth.false, attribute))
        try:
            return cells_where(truth.true, attribute), cells_where(truth.false, attribute)
        except CutsCell as cut:
            cell = attribute.get("by")
            fix = f"write a whole one, such as {cut.near[-1]}; >= and < take where one begins"
            if cell is None:
                cell, fix = "bin", f"compare it by >= or < with {' or '.join(cut.near)}"
            problem = f"this cuts a {cell} of {attribute['name']}"
            raise self._error(node, problem, fix, reason="cuts_bin") from None

    def kind(self, node: Any) -> Tree:
        """Returns the fields that an aggregate of another kind asks for by itself."""
        return self._aggregate(node)

    def counts_persons(self, count: Any) -> bool:
        """Returns whether a COUNT counts each person once.

        Raises:
            InvalidQuery: It does, and no count of rows tells how many there are.
        """
        if not self._counts_persons(count):
            return False
        self._check_persons(count)
        return True

    def possible(self, column: JoinedColumn) -> tuple[tuple[Scalar, Tree], ...]:
        """Returns the values of a joined column that rows can have, with the condition of each."""
        return tuple(
            case for case in column.cases() if case[0] is not None or self._joined.may_lack(column)
        )

    def truth(self, node: Any) -> _Truth:
        node = node.unnest()
        joins_conditions = isinstance(node, exp.And | exp.Or | exp.Not | exp.Boolean)
        if joins_conditions or (
            isinstance(node, exp.Is) and isinstance(node.expression, exp.Boolean)
        ):
            return super().truth(node)
        if isinstance(node, exp.Is) and not isinstance(node.this.unnest(), exp.Column):
            return super().truth(node)
        columns = [found for c in node.find_all(exp.Column) if (found := self._joined.column(c))]
        if not columns:
            return super().truth(node)
        if is_in_nothing(node):
            return _Truth(_any([]), _all([]))
        (column, *others) = columns
        if others:
            raise self._error(node, "this compares two columns", "compare a column with a constant")
        return self._of_joined(node, column)

    def _of_joined(self, node: Any, column: JoinedColumn) -> _Truth:
        """Translates a comparison of a joined column to the declared values for which it holds."""
        if isinstance(node, exp.Is):
            null = column.unknown
            return _Truth(null, _not(null))
        true, false = self.tests(node, column)
        return _Truth(_any(column.where(true)), _any(column.where(false)))

    def tests(self, node: Any, column: JoinedColumn) -> tuple[_Test, _Test]:
        """Returns the tests for which values of a column a comparison is true, and for which it is false."""
        self._source.look_at(node, len(column.values))
        holds = self._test(node, column)
        if lists_null(node):
            return holds, lambda said: False
        return holds, lambda said: not holds(said)

    def _test(self, node: Any, column: JoinedColumn) -> _Test:
        """Returns the test of a column's value that a comparison makes."""
        if isinstance(node, exp.Column) and column.type == "boolean":
            return bool
        if type(node) in _COMPARISONS:
            compare = _COMPARISONS[type(node)]
            left, right = node.this, node.expression
            if (read := self._reading(left, column)) is None:
                left, right, compare = right, left, _MIRRORED.get(compare, compare)
                read = self._reading(left, column)
            if read is None:
                raise self._refusal(node)
            fold, constant = read, self._said(right, column)
            return lambda said: compare(fold(said), constant)
        read = self._reading(node.this, column) if isinstance(node, exp.In | exp.Between) else None
        if read is not None and isinstance(node, exp.Between):
            low, high = (self._said(node.args[end], column) for end in ("low", "high"))
            return lambda said: low <= read(said) <= high
        if read is not None and node.expressions:
            constants = {self._said(each, column) for each in _listed_by(node)}
            return lambda said: read(said) in constants
        if isinstance(node, exp.Like | exp.ILike | exp.Escape):
            subject, matches = self._pattern(node)
            if isinstance(subject, exp.Column):
                self._check_text(node, column)
                return matches
        raise self._refusal(node)

    def _reading(self, side: Any, column: JoinedColumn) -> Callable[[Any], Any] | None:
        """Returns what a side of a comparison makes of the column's value; None if it is not about it."""
        subject, fold = _unfolded(side)
        if not isinstance(subject, exp.Column):
            return None
        if subject is not side.unnest():
            self._check_text(side, column)
        return fold

    def _check_text(self, node: Any, column: JoinedColumn) -> None:
        if column.type != "text":
            raise self._error(node, f"{column.name} is not a text", "compare it by =, < or IN")

    def _said(self, node: Any, column: JoinedColumn) -> Any:
        """Returns a constant of the type of a column.

        Raises:
            InvalidQuery: It is of another type, with which no value of the column compares.
        """
        constant = self._constant(node)
        wanted = column.type if column.type in ("text", "boolean") else "number"
        kinds: Mapping[type, str] = {str: "text", bool: "boolean"}
        if kinds.get(type(constant), "number") != wanted:
            raise self._error(
                node, f"{column.name} is a {wanted}, and this is not", _WRITTEN[wanted]
            )
        return constant

    def _error(self, at: Any, problem: str, fix: str, *, reason: str | None = None) -> InvalidQuery:
        return self._source.error(at, problem, fix, reason=reason)
