"""The attributes of a data set: their types, what later versions of the schema say, and what is found."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    model_validator,
)

from stream_dp.errors import InvalidDefinition, InvalidInput
from stream_dp.messages.message_base import (
    DATE_PATTERN,
    AttributeName,
    DatasetName,
    Finite,
    Request,
    Unchanging,
    tupled,
)
from stream_dp.number_grid import grid_edges


def _scalar_text(value: object) -> object:
    """Writes a category value as a string. An integer becomes its decimal digits, as it does in a row."""
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return value


CategoryValue = Annotated[
    str, BeforeValidator(_scalar_text), StringConstraints(min_length=1, max_length=256)
]


MissingTexts = Annotated[
    tuple[CategoryValue, ...], BeforeValidator(tupled), Field(min_length=1, max_length=100)
]
"""Texts of values that count as missing."""

DateText = Annotated[str, StringConstraints(pattern=DATE_PATTERN)]


class _Attribute(Request):
    """What a later version of the schema may say of any attribute."""

    name: AttributeName
    was: Annotated[tuple[AttributeName, ...], BeforeValidator(tupled)] | None = None
    before: str | int | float | bool | None = None
    deprecated: Literal[True] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The name of the attribute, and those that it had before."""
        return self.name, *(self.was or ())


class FindSpec(Request):
    """How a data set finds values of a category that nobody lists.

    Attributes:
        most: The most values that are told apart, with those that are listed.
        share: The share of each line that finding takes.
        windows: How many phases are counted together, each number a multiple of the one before.
    """

    most: Annotated[int, Field(ge=1, le=65_000)] = 1000
    share: Annotated[float, Field(gt=0, le=0.5)] = 0.1
    windows: Annotated[
        tuple[Annotated[int, Field(ge=1, le=1024)], ...],
        BeforeValidator(tupled),
        Field(min_length=1, max_length=8),
    ] = (1, 8, 64)

    @model_validator(mode="after")
    def _follow(self) -> FindSpec:
        if any(later % one or later == one for one, later in pairwise(self.windows)):
            raise ValueError(
                "find.windows: each is to be a multiple of the one before, such as [1, 8, 64]"
            )
        return self


class CategoryAttribute(_Attribute):
    """A value from a declared list. Any other value falls into the cell ``other``.

    Attributes:
        name: The name of the column.
        values: The values to tell apart. The catalog adds those that were found.
        find: How values that nobody lists are found.
        other: Whether unlisted values have a cell. Without it they count as missing, or in the first cell.
        missing: Whether missing values have a cell. Without it they count as ``other``, or in the first
            cell.
        ordered: Whether the values have the order of the list.
        na: Values that count as missing too, such as "?" or -999. They need ``missing``.
        also: Other spellings, such as former ones, each with the value that it counts as.
        fold: Whether the first or the last row of a person in a phase that has a value says it. Default: the
            row that counts.
        was: Names that the attribute had before. Columns and conditions may still use them.
        before: What rows say that do not have the attribute yet. Default: nothing.
        deprecated: Whether rows need not have the attribute any more.
    """

    type: Literal["category"]
    values: Annotated[tuple[CategoryValue, ...], BeforeValidator(tupled)] = ()
    find: FindSpec | None = None
    other: bool = True
    missing: bool = False
    ordered: bool = False
    na: MissingTexts | None = None
    also: Annotated[dict[CategoryValue, CategoryValue], AfterValidator(Unchanging)] | None = None
    fold: Literal["first", "last"] | None = None

    @model_validator(mode="after")
    def _has_values(self) -> CategoryAttribute:
        find = self.find
        if find is None:
            if not self.values:
                raise ValueError('values: it is empty: list values, or add "find": {}')
        elif self.fold is not None:
            raise ValueError("fold: values are found of the row that counts: remove fold, or find")
        elif not self.other or self.ordered:
            raise ValueError(
                "find: what is found later has no order, and is in other before: leave out ordered and other"
            )
        elif len(self.values) > find.most:
            raise ValueError("find.most: more values are listed: use a larger number")
        return self


class MeasureSpec(Request):
    """The values that are kept of rows, so that sums and means are about them and not about their bins.

    Attributes:
        unit: Values are rounded to multiples of this, halves to the even one.
        low: The least value, a multiple of ``unit``. Smaller values count as this.
        high: The largest value, at most 1,048,576 units above ``low``. Larger values count as this.
    """

    unit: Annotated[Finite, Field(gt=0)]
    low: Finite
    high: Finite


class ProposeSpec(Request):
    """How bounds are found for a number of which the owner does not know the range.

    Attributes:
        bins: The most bins to propose.
        share: The share of the first phase's line that this takes; at most half for all numbers together.
        unit: The unit of values kept for sums once edges are accepted. Default: none.
    """

    bins: Annotated[int, Field(ge=2, le=100)] = 12
    share: Annotated[float, Field(ge=0.001, le=0.5)] = 0.05
    unit: Annotated[Finite, Field(gt=0)] | None = None


_MOST_PHASES: Final = 256


def _each_phase(phases: int) -> tuple[float, ...]:
    """The edges between numbers of phases that are told apart, up to one."""
    return tuple(map(float, range(2, phases + 1)))


class NumberAttribute(_Attribute):
    """A number in declared, left-closed bins. The outer bins are open.

    Attributes:
        name: The name of the column.
        edges: Where bins meet. A bin includes its lower edge, and the outer bins are open. Default: with
            ``propose`` those of a fixed grid.
        propose: Has edges proposed once the first phase is open. Default: none.
        integer: Whether all values are whole, so that ``<= 19`` means ``< 20``.
        missing: Whether missing values have a cell. Without it they count in the first cell.
        representatives: The value of each bin in sums. Default: the middle, and the edge of an outer bin.
        measure: The values to keep, for sums. Default: none.
        na: Values that count as missing too, such as "?" or -999. They need ``missing``.
        fold: What it says of a person who has several rows in a phase: how many rows, the sum, the least,
            the largest, the first or the last value of them, or how many phases ago the person was there
            before. Default: what the row says that counts.
        phases: With "since": the number from which on phases ago are not told apart. So long a window may
            count each person once.
        of: With "since": a boolean with "any" that is to be true of the person, then and now. It needs
            ``missing``, for those of whom it is not true now. Default: all count.
        was: Names that the attribute had before. Columns and conditions may still use them.
        before: What rows say that do not have the attribute yet. Default: nothing.
        deprecated: Whether rows need not have the attribute any more.
    """

    type: Literal["number"]
    edges: Annotated[
        tuple[Finite, ...], BeforeValidator(tupled), Field(min_length=1, validate_default=True)
    ] = ()
    propose: ProposeSpec | None = None
    integer: bool = False
    missing: bool = False
    representatives: Annotated[tuple[Finite, ...], BeforeValidator(tupled)] | None = None
    measure: MeasureSpec | None = None
    na: MissingTexts | None = None
    fold: Literal["count", "sum", "min", "max", "first", "last", "since"] | None = None
    phases: Annotated[int, Field(ge=2, le=_MOST_PHASES)] | None = None
    of: AttributeName | None = None

    @model_validator(mode="before")
    @classmethod
    def _has_edges(cls, fields: Any) -> Any:
        """Writes edges down that nobody has to: those of the grid, or one for each number of phases."""
        if not isinstance(fields, dict) or "edges" in fields:
            return fields
        if fields.get("fold") == "since":
            phases = fields.get("phases")
            if type(phases) is not int or not 2 <= phases <= _MOST_PHASES:
                raise ValueError(
                    f'"since" counts phases up to a number: add phases, from 2 to {_MOST_PHASES}'
                )
            return {**fields, "edges": _each_phase(phases), "integer": True}
        if fields.get("propose") is None:
            return fields
        return {**fields, "edges": grid_edges(whole=fields.get("integer") is True)}

    @model_validator(mode="after")
    def _counts_phases(self) -> NumberAttribute:
        if self.fold != "since":
            if self.phases is not None or self.of is not None:
                raise ValueError('phases and of go with "fold": "since": add it, or remove them')
            return self
        if self.phases is None or self.edges != _each_phase(self.phases) or not self.integer:
            raise ValueError('"since" tells phases apart one by one: leave out edges and integer')
        if self.measure is not None or self.representatives is not None:
            raise ValueError('"since" says a number of phases: remove measure and representatives')
        if self.missing != (self.of is not None):
            raise ValueError(
                'of goes with "missing": true, for persons of whom it is not true now: add or remove both'
            )
        return self

    @model_validator(mode="after")
    def _proposes_alone(self) -> NumberAttribute:
        if self.propose is None:
            return self
        if self.edges != grid_edges(whole=self.integer):
            raise ValueError("there are edges, and propose looks for some: remove one of the two")
        if self.representatives is not None or self.measure is not None:
            raise ValueError(
                "propose looks for bounds, so none are known yet: remove representatives and measure"
            )
        unit = self.propose.unit
        if self.integer and unit is not None and not unit.is_integer():
            raise ValueError(
                "propose.unit is fractional, and values are whole: use a whole unit, or leave out integer"
            )
        return self


class BooleanAttribute(_Attribute):
    """A value that is true or false.

    Attributes:
        name: The name of the column.
        missing: Whether missing values have a cell. Without it they count in the first cell.
        na: Values that count as missing too, such as "?". They need ``missing``.
        fold: Whether it is true of a person if any of their rows in a phase says so, or what the first or the
            last of them says. Default: it is what the row says that counts.
        where: With "any": a condition on other attributes that a row satisfies for it to be true. Rows then
            have no such column. Default: they say it.
        was: Names that the attribute had before. Columns and conditions may still use them.
        before: What rows say that do not have the attribute yet. Default: nothing.
        deprecated: Whether rows need not have the attribute any more.
    """

    type: Literal["boolean"]
    missing: bool = False
    na: MissingTexts | None = None
    fold: Literal["any", "first", "last"] | None = None
    where: dict[str, Any] | None = None

    @model_validator(mode="after")
    def _follows_from_rows(self) -> BooleanAttribute:
        if self.where is not None and (self.fold != "any" or self.missing):
            raise ValueError(
                'where goes with "fold": "any", and is true or false: add fold, and remove missing'
            )
        return self


class DateAttribute(_Attribute):
    """A date, with or without a time, known up to the period of the calendar that it falls into.

    Attributes:
        name: The name of the column.
        by: How precisely dates are known. The last three periods recur, and have no bounds.
        first: ``from`` in JSON: the start of the first period. Earlier dates count together.
        until: The end of the last period. Later dates count together. Default: two years after ``from``.
        timezone: The time zone, such as ``Europe/Berlin``. Default: UTC.
        epoch: The unit of numbers that count from 1970-01-01T00:00Z. Default: no number is a date.
        missing: Whether what is missing or no date has a cell. Without it this counts in the first cell.
        na: Values that count as missing too, such as "0000-00-00". They need ``missing``.
        fold: Whether the first or the last row of a person in a phase that has a value says it. Default: the
            row that counts.
        was: Names that the attribute had before. Columns and conditions may still use them.
        before: What rows say that do not have the attribute yet. Default: nothing.
        deprecated: Whether rows need not have the attribute any more.
    """

    model_config = ConfigDict(serialize_by_alias=True)

    type: Literal["date"]
    by: Literal[
        "year",
        "quarter",
        "month",
        "week",
        "day",
        "hour",
        "weekday",
        "month_of_year",
        "hour_of_day",
    ]
    first: Annotated[DateText | None, Field(alias="from")] = None
    until: DateText | None = None
    timezone: Annotated[str, StringConstraints(min_length=1, max_length=64)] | None = None
    epoch: Literal["s", "ms"] | None = None
    missing: bool = False
    na: MissingTexts | None = None
    fold: Literal["first", "last"] | None = None


AttributeSpec = Annotated[
    CategoryAttribute | NumberAttribute | BooleanAttribute | DateAttribute,
    Field(discriminator="type"),
]


Attributes = Annotated[
    tuple[AttributeSpec, ...], BeforeValidator(tupled), Field(min_length=1, max_length=64)
]


class SchemaVersion(Request):
    """The attributes that the rows of some phases have.

    Attributes:
        schema_version: Counts the versions from 1.
        first_phase: The first phase that has them.
        attributes: The attributes.
    """

    schema_version: Annotated[int, Field(ge=1)]
    first_phase: Annotated[int, Field(ge=1)]
    attributes: Attributes


class Proposal(Request):
    """What was proposed for a number whose bounds are not known.

    Attributes:
        attribute: The name that the number had.
        low: About its least value. Absent where the phase had too few rows.
        high: About its largest value.
        edges: Where bins meet that have about the same number of rows.
    """

    attribute: str
    low: Finite | None = None
    high: Finite | None = None
    edges: Annotated[tuple[Finite, ...], BeforeValidator(tupled)] | None = None


class ValueCount(Request):
    """How many rows, or persons, have a value of an attribute whose values are found.

    Values are found by these counts. So they are too large on average where a value was just found, and no
    answer uses them.

    Attributes:
        attribute: The name of the attribute.
        value: The value.
        since: The first phase whose rows are counted as having it. Rows of earlier ones are in ``other``.
        phases: The first and the last phase of the longest window that has ended.
        count: How many rows of them have it, with noise; where persons are protected, how many persons.
        error_bar: How far off this is, if the value was known before.
    """

    attribute: str
    value: str
    since: int
    phases: Annotated[tuple[int, int], BeforeValidator(tupled)]
    count: int
    error_bar: int


class ChangeSchema(Request):
    """Puts other attributes in force, from the first phase on of which no row has come.

    Attributes:
        change: What is changed.
        schema_version: The number of the version that this makes: one more than there are.
        attributes: All attributes, with those of before. See docs/messages.md for what may change.
    """

    version: Literal[1]
    dataset: DatasetName
    change: Literal["schema"]
    schema_version: Annotated[int, Field(ge=2, le=10_000)]
    attributes: Attributes

    invalid: ClassVar[type[InvalidInput]] = InvalidDefinition
