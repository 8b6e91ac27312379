"""GROUP BY: the columns of groups, and the cells or conditions that their values stand for."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import exp

from stream_dp.attribute_dates import CYCLES, with_periods
from stream_dp.sql.plan.statement_plan import GroupColumn, Scalar, ValueType
from stream_dp.sql.reading.faults import Fault, short
from stream_dp.sql.reading.grammar import Grammar
from stream_dp.sql.reading.literals import is_number, number
from stream_dp.sql.reading.scopes import placed
from stream_dp.sql.terms.aggregates import TRUTHS, condition_of_when
from stream_dp.sql.terms.attribute_cells import cases_of, values_of
from stream_dp.sql.terms.buckets import bucketed, buckets_of
from stream_dp.sql.terms.columns import Attribute
from stream_dp.sql.terms.condition_trees import Conditions
from stream_dp.sql.terms.date_functions import computed_part, periods_of
from stream_dp.sql.terms.public_joins import JoinedColumn
from stream_dp.sql.terms.sql_dates import PART_KINDS, part_of, same_groups, same_sql, truncation_of
from stream_dp.sql.terms.time_clauses import period_of
from stream_dp.sql.terms.trees import (
    EVERYTHING,
    NOTHING,
    Cases,
    Tree,
    conjunction,
    negation,
    none_of,
)


@dataclass(frozen=True, slots=True)
class Axis:
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
    attribute: Attribute | None = None
    cases: Cases = ()
    joined: JoinedColumn | None = None
    period: str = ""
    of: Attribute | None = None
    values: tuple[Scalar, ...] = ()

    @property
    def said(self) -> Sequence[Scalar]:
        """The values, where they are known beforehand: of each cell, or of each condition."""
        return self.values or [value for value, _ in self.cases]

    def declared(self, at: Any) -> list[Scalar]:
        """Returns the declared values.

        Raises:
            Fault: It is of bins or periods, which are not listed.
        """
        if self.cases:
            return [value for value, _ in self.cases]
        assert self.attribute is not None, "a column without cases is an attribute"
        if self.attribute["type"] == "boolean":
            return [False, True]
        if self.attribute["type"] == "category":
            return list(self.attribute["values"])
        name = self.attribute["name"]
        fix = f"GROUP BY {name} counts the rows of each bin"
        raise Fault(at, f"{name} has bins and no list of values", fix)


class GroupColumns:
    """The group columns of a statement, and what positions and names of its SELECT list stand for.

    Args:
        select: The statement, as sqlglot reads it.
        conditions: Translates conditions.

    Attributes:
        columns: What names mean.
        axes: The columns in their order.
        notes: What the reader should know of their values.
    """

    def __init__(self, select: Any, conditions: Conditions) -> None:
        self._select = select
        self._conditions = conditions
        self.columns = conditions.columns
        self._aliases = {
            item.alias.lower(): item for item in select.expressions if isinstance(item, exp.Alias)
        }
        self._kinds: set[type] = set()
        self.axes: list[Axis] = []
        self.notes: list[str] = []

    def add(self, item: Any, place: int | None = None) -> None:
        """Adds the group column of an expression, behind the others unless its place is given."""
        axis = self._axis(item)
        self.axes.insert(len(self.axes) if place is None else place, axis)

    def add_distinct(self) -> None:
        """Adds the columns of SELECT DISTINCT."""
        for item in self._select.expressions:
            node = item.unalias()
            if not isinstance(node, exp.Column):
                fix = "omit DISTINCT: each group is there once"
                raise Fault(node, "DISTINCT takes attributes only", fix)
            if not any(axis.written == node.sql(Grammar) for axis in self.axes):
                self.add(node)

    def add_facts(self) -> None:
        """Adds the joined columns of which MIN, MAX or ANY_VALUE has one value in each group."""
        for node in list(self._select.find_all(exp.Min, exp.Max, exp.AnyValue)):
            column = node.this.unnest()
            joined = self.columns.joined(column)
            if joined is not None and self._is_grouped(joined.attribute):
                if self.index_of(column) is None:
                    self.add(column)
                node.replace(column.copy())

    def finish(self) -> None:
        """Asks joined columns as cells of their attribute, where that is one table."""
        self.axes = list(map(self._tabled_if_alike, self.axes))

    def index_of(self, node: Any) -> int | None:
        """Returns the position of the group column that a piece is; None for any other piece."""
        if type(node) not in self._kinds:
            return None  # without the text of each part of each part
        written = same_sql(node)
        for index, axis in enumerate(self.axes):
            if axis.written == written or self._is_axis(node, axis):
                return index
        return None

    def _is_axis(self, node: Any, axis: Axis) -> bool:
        """Returns whether a column is a group column under another spelling."""
        if not isinstance(node, exp.Column):
            return False
        if axis.attribute is not None and not axis.values and not node.table:
            return bool(node.name.lower() == axis.attribute["name"].lower())
        return axis.joined is not None and self.columns.joined(node) is axis.joined

    def meant(self, item: Any) -> Any:
        """Returns the expression that a position, an alias or a name stands for in GROUP BY or ORDER BY."""
        bare = placed(item, self._select.expressions)
        if isinstance(bare, exp.Column) and not bare.table and not self.columns.is_known(bare):
            return self.meaning_of(bare) or bare
        return bare

    def meaning_of(self, column: Any) -> Any:
        """Returns the expression that an alias stands for; None for any other name."""
        item = None if column.table else self._aliases.get(column.name.lower())
        return None if item is None else item.this

    @property
    def tabled(self) -> list[Attribute]:
        """The attributes of the answers' tables. Columns that are joined to one of them need no other."""
        found: list[Attribute] = []
        for axis in self.axes:
            if axis.attribute is not None and axis.attribute not in found:
                found.append(axis.attribute)
        return found

    @property
    def cased(self) -> list[Axis]:
        """The columns whose values are conditions of their own."""
        return [axis for axis in self.axes if axis.attribute is None and not axis.period]

    @property
    def series(self) -> Axis | None:
        """The column of the periods of a series, if there is one."""
        return next((axis for axis in self.axes if axis.period), None)

    def column(self, axis: Axis) -> GroupColumn:
        """Returns what a plan says of a group column."""
        if axis.period:
            return GroupColumn(axis.type, 0, by_case=False, period=axis.period)
        attribute = axis.attribute
        if attribute is None:
            place = next(i for i, each in enumerate(self.cased) if each is axis)
            values = tuple(value for value, _ in axis.cases)
            return GroupColumn(axis.type, place, by_case=True, values=values)
        in_order = attribute["type"] != "category" or bool(attribute.get("ordered"))
        return GroupColumn(
            axis.type,
            self.tabled.index(attribute),
            by_case=False,
            has_missing=bool(attribute.get("missing")),
            ranked=in_order and not axis.values,
            values=axis.values,
            apart=axis.joined is not None and self._is_grouped(attribute),
            matched=axis.joined is not None and not axis.joined.may_lack,
        )

    # ------------------------------------------------------------ one column

    def _axis(self, item: Any) -> Axis:
        """Returns the group column of an expression."""
        self._kinds |= PART_KINDS if part_of(item) else {type(item)}
        written = same_sql(item)
        if period := period_of(item, self.columns.schema):
            if (other := self.series) is not None:
                fix = f"group by {other.period} alone"
                raise Fault(item, "a series is of one period", fix)
            kind: ValueType = "integer" if period == "phase" else "date"
            return Axis(item.sql(Grammar), kind, period=period)
        if (joined := self.columns.joined(item)) is not None:
            return Axis(written, joined.type, cases=joined.cases(), joined=joined)
        if isinstance(item, exp.Column):
            attribute = self._once(item, self.columns.attribute(item))
            kind = "boolean" if attribute["type"] == "boolean" else "text"
            return Axis(written, kind, attribute, of=attribute)
        if part_of(item) or truncation_of(item) or computed_part(item):
            return self._of_date(item, written)
        if (column := bucketed(item)) is not None:
            return self._buckets(item, self.columns.number(column, "make buckets of a number"))
        if isinstance(item, exp.Case):
            cases = self._cases(item)
            return Axis(written, _type_of(value for value, _ in cases), cases=cases)
        if isinstance(item, TRUTHS) and item.find(exp.AggFunc) is None:
            truth = self._conditions.truth(item)
            unknown = none_of([truth.true, truth.false])
            said = [(False, truth.false), (True, truth.true), (None, unknown)]
            return Axis(written, "boolean", cases=_possible(said))
        raise self._refused(item)

    def _refused(self, item: Any) -> Fault:
        if isinstance(item, exp.Rollup | exp.Cube | exp.GroupingSets):
            fix = "ask each grouping in a statement of its own"
            return Fault(item, f"{short(item)} is not answered", fix)
        fix = "group by an attribute, a CASE whose values are constants, or a condition"
        columns = () if item.find(exp.AggFunc) else set(item.find_all(exp.Column))
        if len(columns) == 1 and self.columns.attribute(*columns)["type"] == "number":
            name = columns.pop().sql(Grammar)
            fix = f"write FLOOR({name} / 10) * 10 for buckets, or GROUP BY {name} for its bins"
        return Fault(item, f"{short(item)} is not a group", fix)

    def _once(self, item: Any, attribute: Attribute) -> Attribute:
        """Returns an attribute that becomes a group, if it is none yet."""
        if any(axis.attribute == attribute for axis in self.axes):
            raise Fault(item, f"{attribute['name']} is grouped by twice", "name it once")
        return attribute

    def _is_grouped(self, attribute: Attribute) -> bool:
        return any(axis.of == attribute and not axis.values for axis in self.axes)

    def _of_date(self, item: Any, written: str) -> Axis:
        """Returns the group column of a function of a date, which is unknown outside the bounds."""
        attribute, given = periods_of(self.columns, item)
        of: Attribute = attribute
        values: tuple[Scalar, ...] = tuple(given)
        if (truncated := truncation_of(item)) is not None:
            of, values = with_periods(attribute, truncated[0]), tuple(dict.fromkeys(given))
        kind: ValueType = "integer"
        if isinstance(given[0], str):
            kind = "timestamp" if "T" in given[0] else "date"
        outside = () if attribute["by"] in CYCLES else (None,)
        nulls = (*outside, *(None,) * bool(attribute.get("missing")))
        values = (*outside, *values, *nulls)
        part = part_of(computed_part(item) or item)
        is_of_epoch = part is not None and part[0] == "epoch"
        if (is_of_epoch and len({*given}) == len(given)) or same_groups(attribute["by"], item):
            return Axis(written, kind, self._once(item, attribute), of=of, values=values)
        cases: list[tuple[Scalar, Tree]] = [*cases_of(attribute, enumerate(given)).items()]
        if nulls:
            labels = values_of(attribute)
            inside = {"attribute": attribute["name"], "between": [labels[0], labels[-1]]}
            cases.append((None, negation(inside)))
        return Axis(written, kind, cases=tuple(cases), of=of, values=values)

    def _buckets(self, item: Any, attribute: Attribute) -> Axis:
        """Returns the group column of buckets of a number."""
        written, (values, cases) = item.sql(Grammar), buckets_of(item, attribute)
        low, high = (f"{edge:.15g}" for edge in (attribute["edges"][0], attribute["edges"][-1]))
        first, last = cases[0][0], cases[len(set(values) - {None}) - 1][0]
        self.notes.append(
            f"{written} is {first} for all values below {low}, and {last} for all from {high} on"
        )
        kind = _type_of(values)
        if not self._is_one_table(len(values), len(cases)):
            return Axis(written, kind, cases=cases)
        return Axis(written, kind, self._once(item, attribute), of=attribute, values=values)

    def _tabled_if_alike(self, axis: Axis) -> Axis:
        """Returns a joined column as cells of the attribute, where that is one table; else as it is."""
        if axis.joined is None:
            return axis
        attribute = axis.joined.attribute
        beside = bool(attribute.get("other", True)) + bool(attribute.get("missing"))
        listed = range(len(values_of(attribute)))
        values = (*map(axis.joined.values.get, listed), *(None,) * beside)
        several = [value for value in values if value is not None or axis.joined.may_lack]
        if self._is_grouped(attribute) or self._is_one_table(len(several), len(set(several))):
            return replace(axis, attribute=attribute, values=values)
        return axis

    def _is_one_table(self, n_cells: int, n_groups: int) -> bool:
        """Returns whether groups of cells are asked as a table of the cells, and added up.

        A table takes about twice what one of its cells takes, and a cell ``k**2`` times what ``k`` of them
        together take. Bars of added means would be wide.
        """
        if n_cells == n_groups:
            return True
        counts = all(
            isinstance(each, exp.Count) and not isinstance(each.this, exp.Distinct)
            for each in self._select.find_all(exp.AggFunc)
        )
        return counts and 2 * n_cells**2 < n_groups**3

    def _cases(self, case: Any) -> Cases:
        """Returns the values of a CASE with the condition of each. The first one that is true counts."""
        found: dict[Scalar, list[Tree]] = {}
        before: list[Tree] = []
        for each in case.args["ifs"]:
            tree = self._conditions.true(condition_of_when(case, each))
            here = conjunction([tree, none_of(before)]) if before else tree
            label = _label(each.args["true"])
            found.setdefault(label, []).append(EVERYTHING if here is None else here)
            before.append(tree)
        default = case.args.get("default")
        rest = None if default is None else _label(default)
        found.setdefault(rest, []).append(none_of(before))
        if _type_of(found) == "text" and not all(isinstance(v, str | None) for v in found):
            problem = "this CASE has both texts and numbers"
            raise Fault(case, problem, "write quotes around all of them")
        return _possible(
            (value, parts[0] if len(parts) == 1 else {"any": parts})
            for value, parts in found.items()
        )


def _label(node: Any) -> Scalar:
    node = node.unnest()
    if isinstance(node, exp.Null):
        return None
    if isinstance(node, exp.Literal):
        return number(node) if is_number(node) else str(node.this)
    raise Fault(node, f"{short(node)} is not a constant", "write a text such as 'young'")


def _type_of(values: Iterable[Scalar]) -> ValueType:
    """Returns the type of a column of constants; that of texts if there are any."""
    known = [value for value in values if value is not None]
    if not known or any(isinstance(value, str) for value in known):
        return "text"
    return "integer" if all(isinstance(value, int) for value in known) else "real"


def _possible(cases: Iterable[tuple[Scalar, Tree]]) -> Cases:
    """Leaves out the cases that no row can be in."""
    return tuple((value, tree) for value, tree in cases if tree != NOTHING)
