"""What a statement asks: queries, and how a table follows from what they publish.

A plan is public: it follows from the statement, the definition of the data set and public dimensions alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

NO_ROWS: Final = -1

OF_BARS: Final = ("error_bar", "lower_bound", "upper_bound")
"""The functions that say how wide the bar of a value is, or where it ends."""

Scalar: TypeAlias = str | int | float | bool | None
ValueType: TypeAlias = Literal["text", "integer", "real", "boolean", "date", "timestamp"]
Part: TypeAlias = Literal["count", "rows", "total", "mean", "share", "found", "spread"]


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant of the statement."""

    value: Scalar


@dataclass(frozen=True, slots=True)
class Key:
    """The value of one group column in each row.

    Attributes:
        index: The position of the column in ``Plan.groups``.
    """

    index: int


@dataclass(frozen=True, slots=True)
class Published:
    """One number, or one named cell, of the answer to a query.

    Attributes:
        part: The part of the answer that it is.
        queries: The index of its query, for each of ``Plan.cases``. ``NO_ROWS`` where no row can satisfy the
            condition, so that nothing is asked.
        grouped: Whether the answer has a value for each cell. Otherwise each row has the same value.
        bins: For a spread: the least value of each bin, what a value of it counts for, and the largest value,
            shape (number of bins,). All three are the same where no values are kept.
        sample: For a spread: whether it is that of a sample, which divides by one row less.
        root: For a spread: whether it is the standard deviation, and not the variance.
    """

    part: Part
    queries: tuple[int, ...]
    grouped: bool
    bins: tuple[tuple[float, float, float], ...] = ()
    sample: bool = False
    root: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """An operator or a function of published values and constants.

    Attributes:
        name: ``+ - * / neg round abs coalesce`` make numbers. ``lag`` is a value of an earlier part of a
            series, and ``n_parts`` the number of parts in a frame. ``persons`` lies between a count
            of one phase and that of all. ``and or not = <> < <= > >= in is_null is_true is_unknown``
            make truth values, which may be unknown. ``error_bar`` is the half width of a value, and
            ``lower_bound`` and ``upper_bound`` are the ends of its bar, which are whole where their second
            argument says so.
        arguments: What it is applied to.
    """

    name: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Among:
    """Whether a row is in one of some groups of a column, as a condition on the column alone chooses them.

    A set of groups is a whole number with a bit for each value of the column, the first value lowest.

    Attributes:
        index: The position of the column in ``Plan.groups``.
        true: The groups for which the condition is true.
        false: The groups for which it is false. It is unknown for all others.
    """

    index: int
    true: int
    false: int


Expression: TypeAlias = Constant | Key | Published | Call | Among


@dataclass(frozen=True, slots=True)
class GroupColumn:
    """One column of GROUP BY.

    Attributes:
        type: The type of its values.
        axis: The position among the attributes of the answers' tables, or among the values of each case.
        by_case: Whether each value is a condition of its own, such as one of CASE.
        period: The period of a series, whose parts are the values. Empty for other columns.
        has_missing: Whether the last cell of the attribute is that of missing values.
        ranked: Whether its values sort by their position, as bins do, and not by themselves.
        values: Its values in their order. Empty where they are the labels of the answers' tables.
        apart: Whether cells with one value are groups of their own: their attribute is grouped by too.
        matched: Whether an inner join leaves a cell out that has no value.
    """

    type: ValueType
    axis: int
    by_case: bool
    period: str = ""
    has_missing: bool = False
    ranked: bool = False
    values: tuple[Scalar, ...] = ()
    apart: bool = False
    matched: bool = False


@dataclass(frozen=True, slots=True)
class Output:
    """One column of the table."""

    name: str
    type: ValueType
    expression: Expression

    @property
    def has_bar(self) -> bool:
        """Whether the table has a column of half widths for it."""
        return has_bar(self.expression)


@dataclass(frozen=True, slots=True)
class Order:
    """One item of ORDER BY."""

    expression: Expression
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class StatementPlan:
    """The queries of a statement, and the table that follows from their answers.

    Attributes:
        queries: The fields of each query message.
        groups: The columns of GROUP BY.
        cases: The values of the group columns that are conditions, one tuple for each combination. A plan
            without such columns has one empty tuple.
        outputs: The columns of the table.
        having: The condition on the rows of the table.
        order: How the rows are sorted.
        offset: The number of rows to leave out at the start.
        limit: The largest number of rows. None for no limit.
        at_most: The largest share of any phase's budget that the queries may take together.
        members: The number of rows in each group, if it is published. A group that surely has none is left
            out, as in SQL.
        notes: What the reader should know.
        as_table: Whether people read the columns also where one answer says all: the statement names some of
            them with AS, or has one row for each period.
        unit: The person whom the data set protects, as ``privacy.unit`` in the catalog. None where it
            protects a row.
    """

    queries: tuple[dict[str, Any], ...]
    groups: tuple[GroupColumn, ...]
    cases: tuple[tuple[Scalar, ...], ...]
    outputs: tuple[Output, ...]
    having: Expression | None = None
    order: tuple[Order, ...] = ()
    offset: int = 0
    limit: int | None = None
    at_most: float | None = None
    members: Published | None = None
    notes: tuple[str, ...] = ()
    as_table: bool = False
    unit: Mapping[str, Any] | None = None

    def at(self, time: Mapping[str, Any]) -> StatementPlan:
        """Returns the same plan about a window, or as a series.

        Args:
            time: The fields ``window`` and ``series`` of the queries' messages.
        """
        return replace(self, queries=tuple({**query, **time} for query in self.queries))

    @property
    def alone(self) -> dict[str, Any] | None:
        """The fields of the one query whose answer says all that the table does. None for other tables."""
        if len(self.queries) != 1 or self.having is not None or self.order:
            return None
        if self.limit is not None or self.offset or any(group.by_case for group in self.groups):
            return None
        is_plain = all(
            isinstance(output.expression, Key)
            or (isinstance(output.expression, Published) and output.expression.part != "spread")
            for output in self.outputs
        )
        return self.queries[0] if is_plain else None

    @property
    def counts(self) -> Iterator[tuple[str, Published]]:
        """The names of the columns that are counts of rows, and these."""
        for output in self.outputs:
            counted = output.expression
            if isinstance(counted, Published) and counted.part == "count":
                yield output.name, counted

    @property
    def is_series(self) -> bool:
        """Whether each answer is a series, which has the rows of one period in each part."""
        return any(group.period for group in self.groups)

    @property
    def chooses_by_value(self) -> bool:
        """Whether published values decide which rows the table has."""
        return self.chooses_by_having or self.chooses_by_order

    @property
    def chooses_by_having(self) -> bool:
        """Whether HAVING looks at published values."""
        return self.having is not None and _has_published(self.having)

    @property
    def chooses_by_order(self) -> bool:
        """Whether published values decide which rows are the first ones."""
        is_cut = self.limit is not None or self.offset > 0
        return is_cut and any(_has_published(each.expression) for each in self.order)


def has_bar(expression: Expression) -> bool:
    """Returns whether an expression is worked out from published values, and not just from their bars."""
    if isinstance(expression, Call):
        return expression.name not in OF_BARS and any(map(has_bar, expression.arguments))
    return isinstance(expression, Published)


def published_in(expression: Expression) -> Iterator[Published]:
    """Yields the published values in an expression."""
    for value, _ in values_in(expression):
        yield value


def values_in(expression: Expression, before: int = 0) -> Iterator[tuple[Published, int]]:
    """Yields the published values in an expression, each with how many parts before its own it is of."""
    match expression:
        case Published():
            yield expression, before
        case Call(name="lag", arguments=(value, Constant(value=int(shift)))):
            yield from values_in(value, before + shift)
        case Call(arguments=arguments):
            for argument in arguments:
                yield from values_in(argument, before)


def _has_published(expression: Expression) -> bool:
    return next(published_in(expression), None) is not None


@dataclass(frozen=True, slots=True)
class Dimension:
    """A public table that statements can join.

    Attributes:
        name: Its name.
        key: The column that a join compares with an attribute. Its values are unique.
        columns: The type of each column, the key among them, which is a text.
        rows: The values of the other columns for each value of the key.
    """

    name: str
    key: str
    columns: Mapping[str, ValueType]
    rows: Mapping[str, Mapping[str, Scalar]]
