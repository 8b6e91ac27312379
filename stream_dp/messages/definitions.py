"""The definition of a data set: its schema, guarantee, mechanism and kinds of queries."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from fractions import Fraction
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

from stream_dp.calendar_periods import Length, zone_of
from stream_dp.errors import InvalidDefinition, InvalidInput
from stream_dp.messages.analyst_rules import Analysts, OwnerSpec, bounds_spending, check_shares
from stream_dp.messages.kinds import KindsSpec
from stream_dp.messages.message_base import (
    DATE_PATTERN,
    AttributeName,
    DatasetName,
    Finite,
    Request,
    Unchanging,
    tupled,
    validated,
)
from stream_dp.messages.tile_fields import RunningSpec, Workload
from stream_dp.messages.time_fields import PhaseSpec
from stream_dp.number_grid import grid_edges

MAX_MEASURED_PHASE = 2**40
"""The most rows of a phase of which values are kept: their sums stay within 64 bits."""

MAX_SQUARES = 2**16 - 1
"""The most units that are kept of a person for life: each phase takes the square of the rows that count."""

MAX_SYNTHETIC_ROWS = 10_000
"""The most cells of all attributes together. With 64 attributes of 65,536 cells a message still fits."""


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
        windows: The numbers of phases in which rows are counted together, each a multiple of the one before.
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
        values: The values to tell apart. With ``find`` the catalog has those that were found, too.
        find: Finds values that enough rows, or persons, have, and tells them apart from then on.
        other: Whether unlisted values have a cell. Without it they count as missing, or in the first cell.
        missing: Whether missing values have a cell. Without it they count as ``other``, or in the first
            cell.
        ordered: Whether the values have the order of the list.
        na: Values that count as missing too, such as "?" or -999. They need ``missing``.
        also: Other spellings, such as former ones, each with the value that it counts as.
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

    @model_validator(mode="after")
    def _has_values(self) -> CategoryAttribute:
        find = self.find
        if find is None:
            if not self.values:
                raise ValueError('values: it is empty: list values, or add "find": {}')
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


_MOST_PROPOSING: Final = Fraction(1, 2)
"""The largest share of a line that all proposals take together."""


class ProposeSpec(Request):
    """How bounds are found for a number of which the owner does not know the range.

    Attributes:
        bins: The most bins to propose.
        share: The share of the line of its first phase that this takes. All together take at most half.
        unit: The unit in which values are kept for sums once edges are accepted. Default: none are.
    """

    bins: Annotated[int, Field(ge=2, le=100)] = 12
    share: Annotated[float, Field(ge=0.001, le=0.5)] = 0.05
    unit: Annotated[Finite, Field(gt=0)] | None = None


class NumberAttribute(_Attribute):
    """A number in declared, left-closed bins. The outer bins are open.

    Attributes:
        name: The name of the column.
        edges: Where bins meet. A bin includes its lower edge, and the outer bins are open. Default: with
            ``propose`` those of a fixed grid.
        propose: Has edges proposed once the first phase is open. Default: none are.
        integer: Whether all values are whole: ``<= 19`` is ``< 20``.
        missing: Whether missing values have a cell. Without it they count in the first cell.
        representatives: The value of each bin in sums. Default: the middle, and the edge of an outer bin.
        measure: The values to keep, for sums. Default: none.
        na: Values that count as missing too, such as "?" or -999. They need ``missing``.
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

    @model_validator(mode="before")
    @classmethod
    def _has_the_grid(cls, fields: Any) -> Any:
        """Writes the edges of the grid down where edges are to be proposed."""
        if not isinstance(fields, dict) or fields.get("propose") is None or "edges" in fields:
            return fields
        return {**fields, "edges": grid_edges(whole=fields.get("integer") is True)}

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
        was: Names that the attribute had before. Columns and conditions may still use them.
        before: What rows say that do not have the attribute yet. Default: nothing.
        deprecated: Whether rows need not have the attribute any more.
    """

    type: Literal["boolean"]
    missing: bool = False
    na: MissingTexts | None = None


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

    def to_bytes(self) -> bytes:
        return self.model_dump_json(exclude_none=True).encode()


class UnitSpec(Request):
    """The person to whom the guarantee is given, in place of a row.

    Attributes:
        key: The column that says whose row it is: no attribute, and not ``count``.
        rows_per_phase: The most rows of a person that count in a phase.
        phases: The guarantee covers all rows of a person in any this many consecutive phases.
        lifetime: Whether it covers all rows of a person for life. The squares of the rows that count in
            each phase then add up to at most ``phases`` times the square of ``rows_per_phase``.
    """

    key: Annotated[str, StringConstraints(min_length=1, max_length=64)]
    rows_per_phase: Annotated[int, Field(ge=1, le=255)]
    phases: Annotated[int, Field(ge=1, le=10_000)]
    lifetime: bool = False

    @property
    def squares(self) -> int:
        """The largest sum, over the phases, of the square of the rows of a person that count in each."""
        return self.phases * self.rows_per_phase**2

    @property
    def promised_to(self) -> str:
        """Says to whom the guarantee is given, and for how long."""
        if self.lifetime:
            return "every person, for life"
        if self.phases == 1:
            return "every person, in any one phase"
        return f"every person, in any {self.phases:,} phases"

    @property
    def counting(self) -> str:
        """Says how many rows of a person count, and what tells whose row it is."""
        rows, count = ("row", "counts") if self.rows_per_phase == 1 else ("rows", "count")
        most = f"at most {self.rows_per_phase:,} {rows} with the same {self.key} {count} in a phase"
        if not self.lifetime:
            return most
        return f"{most}, until the squares of these numbers add up to {self.squares:,}"


class PrivacySpec(Request):
    """The guarantee (epsilon, delta) to every row for ever, or to every person.

    Attributes:
        epsilon: What all answers together may reveal. From 3 up the owner is warned.
        delta: The chance of revealing more: at most 1/``phase.min_rows``, better below 1/(100 rows). Only
            ``counts``, ``weights`` and ``bypass`` take 0 (a pure promise).
        unit: The person to protect. Default: a row.
    """

    epsilon: Annotated[float, Field(ge=1e-9, le=20)]
    delta: Annotated[float, Field(ge=0, lt=1)]
    unit: UnitSpec | None = None

    @property
    def promised_to(self) -> str:
        """Says to whom the guarantee is given, and for how long."""
        return "every row, for ever" if self.unit is None else self.unit.promised_to


_AIM: Final = 0.1
"""A tenth of the answer: precise enough for most decisions."""
_ERROR: Final = 0.02
"""The error where none is named. No schema says so, because to name it turns the aim off."""

_OF_AIM: Final = ("rough", "easy_share", "day_share")
"""The settings that say nothing without ``aim``."""


class AccuracySpec(Request):
    """How precise answers are, except with ``failure_probability``.

    Attributes:
        error: The largest error, as a share of the rows asked. Default: 0.02, for ``kinds`` alone where
            ``aim`` is set.
        failure_probability: How often an answer may be further off than its bar.
        least_error: The smallest error that a query may name. Default: no limit.
        query_share: The largest share of any line that a query without ``at_most`` may take. Default: no
            limit; 0.1 for relative errors; with ``aim`` 0.05, for all queries of a record that name no
            ``error``.
        aim: The error to aim at, as a share of the answer. Default: 0.1 if no ``error`` is named.
        rough: The largest error worth paying for, as a share of the answer. Default: 0.25.
        easy_share: The share of any line that an aimed answer may always take. Default: 0.01.
        day_share: The largest share of any line that aimed answers to one analyst take in 24 hours.
            Default: 0.10.
    """

    error: Annotated[float, Field(ge=1e-9, lt=1, default_factory=lambda: _ERROR)]
    failure_probability: Annotated[float, Field(ge=1e-12, lt=1)] = 0.01
    least_error: Annotated[float, Field(ge=1e-9, lt=1)] | None = None
    query_share: Annotated[float, Field(gt=0, le=1)] | None = None
    aim: Annotated[float, Field(gt=0, lt=1)] | None = None
    rough: Annotated[float, Field(gt=0, le=1)] | None = None
    easy_share: Annotated[float, Field(gt=0, le=1)] | None = None
    day_share: Annotated[float, Field(gt=0, le=1)] | None = None

    @model_validator(mode="after")
    def _goes_with_aim(self) -> AccuracySpec:
        named = next((name for name in _OF_AIM if getattr(self, name) is not None), None)
        if self.aim is None and named is not None:
            raise ValueError(f"accuracy.{named} goes with accuracy.aim: add aim, or remove {named}")
        return self


class AnswersRetention(Request):
    """How long the answers to queries, and the outcomes of batches, are stored under their ids.

    Attributes:
        days: The least number of days for which an answer, or an outcome of a batch, is kept. The most is
            about twice that.
    """

    days: Annotated[int, Field(ge=1, le=36_500)]


class RetentionSpec(Request):
    """How long the rows of a phase and the answers to queries are kept. What was published stays for ever.

    Attributes:
        phases: How many phases open before the rows of a phase are erased. Default: never.
        answers: How long answers and outcomes of batches are stored. Default: for ever.
    """

    phases: Annotated[int, Field(ge=1, le=10**9)] | None = None
    answers: AnswersRetention | None = None

    @model_validator(mode="after")
    def _names_something(self) -> RetentionSpec:
        if self.phases is None and self.answers is None:
            raise ValueError("retention says nothing: add phases or answers, or remove it")
        return self


class ProfileSpec(Request):
    """The facts about a profile that follow from its settings, without a mechanism.

    Attributes:
        looks: Kinds of looks that it takes itself, as the ledger names them.
        takes_kinds: Whether other kinds of queries than counts can be turned on.
        feeds_synthetic_rows: Whether synthetic rows could follow what it publishes.
        answers_unverified: Whether it may answer without a promise once no budget is left.
        paid_at_opening: Whether opening a phase spends all that its queries will cost.
        takes_errors: Whether a query may name an error and a price of its own.
        takes_measures: Whether it looks at sums, so that the values of rows are worth keeping.
        takes_persons: Whether it can protect a person with many rows.
        takes_retention: Whether it goes on answering when the rows of old phases are erased.
    """

    looks: ClassVar[tuple[str, ...]]
    takes_kinds: ClassVar[bool] = False
    feeds_synthetic_rows: ClassVar[bool] = True
    answers_unverified: ClassVar[bool] = False
    paid_at_opening: ClassVar[bool] = False
    takes_errors: ClassVar[bool] = False
    takes_measures: ClassVar[bool] = False
    takes_persons: ClassVar[bool] = False
    takes_retention: ClassVar[bool] = False

    @property
    def papers(self) -> PhasedSpec | None:
        """The settings of a papers' mechanism; None under every other profile."""
        return None


class CalibratedSpec(ProfileSpec):
    """The calibrated profile, for 1e4 to 1e9 rows.

    Attributes:
        base_share: The share of a new line that the base release takes. With 0, each query pays for itself.
            Default: what it is expected to save.
        queries_per_phase: The different queries expected in each phase. Default: the number of tiles, or
            300 in the first phase.
        workload: The queries expected in each phase. Default: conditions on up to three attributes.
        growth: With ``never``, open phases are not measured more at the owner's expense.
        pacing: Whether a part of each line is kept for later phases. Default: where the plan learns and a
            line pays for 10 to 500 queries one by one.
    """

    looks: ClassVar[tuple[str, ...]] = (
        "tables",
        "counts",
        "joined",
        "sums",
        "shares",
        "rows",
        "keys",
        "tick",
        "periods",
    )
    takes_kinds: ClassVar[bool] = True
    answers_unverified: ClassVar[bool] = True
    takes_errors: ClassVar[bool] = True
    takes_measures: ClassVar[bool] = True
    takes_persons: ClassVar[bool] = True
    takes_retention: ClassVar[bool] = True

    profile: Literal["calibrated"] = "calibrated"
    base_share: Annotated[float, Field(ge=0, lt=1)] | None = None
    queries_per_phase: Annotated[int, Field(ge=1, le=10**9)] | None = None
    workload: Workload | None = None
    growth: Literal["never"] | None = None
    pacing: bool | None = None


class PhasedSpec(ProfileSpec):
    """The settings that the papers' mechanisms share.

    Attributes:
        hypothesis_rows: The rows of a hypothesis. Default: the papers' number.
        representation: How the consistent set is represented.
        doubling: Whether the number of queries doubles when it was too low.
    """

    looks: ClassVar[tuple[str, ...]] = ("phase", "query")
    hypothesis_rows: Annotated[int, Field(ge=1)] | None = None
    representation: Literal["exhaustive", "entropic", "polytope"] = "entropic"
    doubling: bool = False

    paid_at_opening: ClassVar[bool] = True

    @property
    def papers(self) -> PhasedSpec:
        return self

    @property
    @abstractmethod
    def n_queries(self) -> int:
        """Queries of each phase; with ``doubling`` those of the first stage."""

    @property
    @abstractmethod
    def n_phases(self) -> int:
        """Phases that open at most."""


class MedianSpec(PhasedSpec):
    """The median mechanism: one fixed dataset and a single phase.

    Attributes:
        queries: The number of queries.
    """

    profile: Literal["median"]
    queries: Annotated[int, Field(ge=2, le=10**9)]

    @property
    def n_queries(self) -> int:
        return self.queries

    @property
    def n_phases(self) -> int:
        return 1


class SequentialSpec(PhasedSpec):
    """A new median mechanism in every phase, on all rows so far.

    Attributes:
        queries_per_phase: The number of queries in each phase.
        phases: The number of phases.
        composition: The constant c_K. Default: the smallest that suffices.
    """

    profile: Literal["sequential"]
    queries_per_phase: Annotated[int, Field(ge=2, le=10**9)]
    phases: Annotated[int, Field(ge=1, le=10_000)]
    composition: Annotated[float, Field(ge=1, le=10_001)] | None = None

    @property
    def n_queries(self) -> int:
        return self.queries_per_phase

    @property
    def n_phases(self) -> int:
        return self.phases


class MemorySpec(PhasedSpec):
    """The thesis' memory mechanism, with the papers' constants or with ``hypothesis_rows`` set by hand.

    Attributes:
        queries_per_phase: The number of queries in each phase.
        phases: The number of phases.
    """

    profile: Literal["memory"]
    queries_per_phase: Annotated[int, Field(ge=2, le=10**9)]
    phases: Annotated[int, Field(ge=1, le=10_000)]

    @property
    def n_queries(self) -> int:
        return self.queries_per_phase

    @property
    def n_phases(self) -> int:
        return self.phases


class GatedSpec(ProfileSpec):
    """Gates before the maximum-entropy set, which is the thesis' idea at practical sizes.

    Attributes:
        segments: The number of parts of a line: about one for each hard query of a phase.
        prior: What is expected of a new phase: nothing, or what earlier ones were like.
    """

    looks: ClassVar[tuple[str, ...]] = ("gate",)
    profile: Literal["gated"]
    segments: Annotated[int, Field(ge=1, le=10**6)]
    prior: Literal["uniform", "carry_over"] = "uniform"


class CountsSpec(ProfileSpec):
    """Each new query gets a fresh noisy count."""

    looks: ClassVar[tuple[str, ...]] = ("count",)
    feeds_synthetic_rows: ClassVar[bool] = False
    takes_retention: ClassVar[bool] = True

    profile: Literal["counts"]


class WholeTableSpec(ProfileSpec):
    """Each phase gets one noisy table of the whole universe."""

    looks: ClassVar[tuple[str, ...]] = ("table",)
    paid_at_opening: ClassVar[bool] = True
    takes_retention: ClassVar[bool] = True

    profile: Literal["whole_table"]


class WeightsSpec(ProfileSpec):
    """Private multiplicative weights.

    Attributes:
        growing: Whether phases open for ever. Otherwise there is one phase.
    """

    looks: ClassVar[tuple[str, ...]] = ("gate",)
    answers_unverified: ClassVar[bool] = True

    profile: Literal["weights"]
    growing: bool = True


class BypassSpec(ProfileSpec):
    """Multiplicative weights that plain counts train, and that are tested only where they are trained."""

    looks: ClassVar[tuple[str, ...]] = ("gate", "count")
    answers_unverified: ClassVar[bool] = True

    profile: Literal["bypass"]


def _default_profile(value: object) -> object:
    return {"profile": "calibrated", **value} if isinstance(value, dict) else value


MechanismSpec = Annotated[
    Annotated[
        CalibratedSpec
        | MedianSpec
        | SequentialSpec
        | MemorySpec
        | GatedSpec
        | CountsSpec
        | WholeTableSpec
        | WeightsSpec
        | BypassSpec,
        Field(discriminator="profile"),
    ],
    BeforeValidator(_default_profile),
]


class Definition(Request):
    """The definition of a data set: its schema, its guarantee, and when its phases open.

    Nothing of it ever changes but its attributes: see ``ChangeSchema``.

    Attributes:
        attributes: The columns to ask about.
        privacy: What is promised to whom.
        accuracy: How precise answers are.
        phase: When waiting rows become a phase.
        mechanism: The profile that answers, and its settings. Default: ``calibrated``.
        kinds: Other kinds of queries, and what one look of each may cost. Default: none.
        on_exhausted: What analysts get when no budget is left.
        synthetic_rows: The number of synthetic rows of each phase.
        retention: How long rows and answers are kept. Default: until the data set is retired; for ever.
        analysts: What is allowed to whom. Default: all to everybody.
        owner: What is kept for the owner. It goes with ``analysts``.
        least_cell: With 10, people read "fewer than 10" where a count surely is. Programs get the number.
        running: Totals of the period that is open. Default: nothing is said of a period before it closes.
        versions: The versions of the attributes, once there are several. The worker writes it.
        proposals: What was proposed for numbers with ``propose``. The worker writes it.
        found: How many have each value that was found: a thousand at most, the most frequent first. The
            worker writes it.
    """

    version: Literal[1]
    dataset: DatasetName
    attributes: Attributes
    privacy: PrivacySpec
    accuracy: Annotated[AccuracySpec, Field(default_factory=AccuracySpec)]
    phase: PhaseSpec
    mechanism: MechanismSpec = CalibratedSpec()
    kinds: KindsSpec = KindsSpec()
    on_exhausted: Literal["unverified", "refuse"] = "unverified"
    synthetic_rows: Annotated[int, Field(ge=0, le=MAX_SYNTHETIC_ROWS)] = 0
    retention: RetentionSpec | None = None
    analysts: Analysts | None = None
    owner: OwnerSpec | None = None
    least_cell: Annotated[int, Field(ge=2, le=1_000_000)] | None = None
    running: RunningSpec | None = None
    versions: Annotated[tuple[SchemaVersion, ...], BeforeValidator(tupled)] | None = None
    proposals: Annotated[tuple[Proposal, ...], BeforeValidator(tupled)] | None = None
    found: Annotated[tuple[ValueCount, ...], BeforeValidator(tupled)] | None = None

    @property
    def precision(self) -> str:
        """Says how precise answers are."""
        accuracy = self.accuracy
        bars = f"except one in {1 / accuracy.failure_probability:,.0f}"
        if accuracy.aim is not None:
            return (
                f"answers aim at {100 * accuracy.aim:g}% of themselves; the error bars hold, {bars}"
            )
        asked = "asked" if self.privacy.unit is None else "that count"
        return f"answers lie within {100 * accuracy.error:g}% of the rows {asked}, {bars}"

    @model_validator(mode="before")
    @classmethod
    def _aims_at_answers(cls, fields: Any) -> Any:
        """Aims at the answer where nothing says how precise it must be. Only one profile can."""
        if not isinstance(fields, dict):
            return fields
        accuracy = fields.get("accuracy", {})
        mechanism = fields.get("mechanism", {})
        if not isinstance(accuracy, dict) or not isinstance(mechanism, dict):
            return fields
        if "error" in accuracy or mechanism.get("profile", "calibrated") != "calibrated":
            return fields
        return {**fields, "accuracy": {"aim": _AIM, **accuracy}}

    @model_validator(mode="after")
    def _within_the_line(self) -> Definition:
        if self.analysts is not None:
            check_shares(self.analysts, self.owner)
            if self.mechanism.paid_at_opening and bounds_spending(self.analysts, self.owner):
                raise ValueError(
                    f"analysts: the profile {self.mechanism.profile} pays for all queries of a phase when it "
                    'opens, so nothing bounds what one of them charges: use "calibrated", or remove share, '
                    "together, spending_per_minute and owner"
                )
        elif self.owner is not None:
            raise ValueError("owner goes with analysts: add analysts, or remove owner")
        return self

    @model_validator(mode="after")
    def _within_the_profile(self) -> Definition:
        """Refuses what only other profiles can do."""
        mechanism, accuracy = self.mechanism, self.accuracy
        if self.kinds != KindsSpec() and not mechanism.takes_kinds:
            raise ValueError(
                'kinds need the profile "calibrated": remove kinds or change the profile'
            )
        for name in ("least_error", "query_share", "aim"):
            if getattr(accuracy, name) is not None and not mechanism.takes_errors:
                raise ValueError(
                    f'accuracy.{name} needs the profile "calibrated": remove it or change the profile'
                )
        if accuracy.least_error is not None and accuracy.least_error > accuracy.error:
            raise ValueError(
                "accuracy.least_error is above accuracy.error, so no query could be answered: "
                "use at most accuracy.error"
            )
        if self.kept_phases is not None and not mechanism.takes_retention:
            raise ValueError(
                f"retention: the profile {mechanism.profile} looks at the rows of all phases again: use "
                '"calibrated", "counts" or "whole_table", or remove retention'
            )
        if self.synthetic_rows and not mechanism.feeds_synthetic_rows:
            raise ValueError('the profile "counts" has no synthetic rows: remove synthetic_rows')
        return self

    @model_validator(mode="after")
    def _values_are_summed(self) -> Definition:
        for index, attribute in enumerate(self.attributes):
            if attribute.type != "number" or attribute.measure is None:
                continue
            if not self.mechanism.takes_measures:
                raise ValueError(
                    f'attributes.{index}.measure needs the profile "calibrated", because no other profile '
                    "answers sums: remove measure or change the profile"
                )
            if self.phase.min_rows > MAX_MEASURED_PHASE:
                raise ValueError(
                    f"phase.min_rows is above {MAX_MEASURED_PHASE:,}, the most rows of a phase of which "
                    f"attributes.{index}.measure can keep the values: use fewer, or remove measure"
                )
        return self

    @model_validator(mode="after")
    def _values_are_found(self) -> Definition:
        finds = [one.find for one in self.attributes if one.type == "category" and one.find]
        if not finds:
            return self
        if self.mechanism.profile != "calibrated" or self.kinds != KindsSpec():
            raise ValueError(
                'find needs the profile "calibrated" without kinds: list values, or change the definition'
            )
        if self.synthetic_rows:
            raise ValueError(
                "find: synthetic rows need all values: list them, or remove synthetic_rows"
            )
        if sum(find.share for find in finds) > 0.5:
            raise ValueError("find.share: together they take more than half of each line: use less")
        kept = self.kept_phases
        if kept is not None and any(find.windows[-1] > kept for find in finds):
            raise ValueError(
                "find.windows: rows are erased before the last window ends: use shorter windows, or larger "
                "retention.phases"
            )
        return self

    @model_validator(mode="after")
    def _periods_run(self) -> Definition:
        if self.running is None:
            return self
        if self.mechanism.profile != "calibrated" or self.kinds != KindsSpec():
            raise ValueError(
                'running needs the profile "calibrated" without kinds: remove it, or change the definition'
            )
        if self.phase.close is None:
            raise ValueError(
                "running: totals are about periods that the clock closes: add phase.every and phase.close"
            )
        return self

    @model_validator(mode="after")
    def _rows_come_late(self) -> Definition:
        late, kept, unit = self.phase.late, self.kept_phases, self.privacy.unit
        if late is None:
            return self
        if self.mechanism.profile != "calibrated" or self.kinds != KindsSpec():
            raise ValueError(
                'phase.late needs the profile "calibrated" without kinds: remove it, or change the definition'
            )
        if unit is not None and unit.lifetime:
            raise ValueError(
                "phase.late: what a person may add for life is used up as a phase opens: remove late, or "
                "lifetime"
            )
        if kept is not None:
            assert self.phase.every is not None, "it was checked"
            every, utc = Length.read(self.phase.every), zone_of(None)
            if Length(kept * every.count, every.unit).after(0, utc) < Length.read(
                late.within
            ).after(0, utc):
                raise ValueError(
                    "phase.late.within: rows are erased before the time for late rows ends: use a shorter "
                    "one, or larger retention.phases"
                )
        return self

    @model_validator(mode="after")
    def _bounds_are_proposed(self) -> Definition:
        shares = {
            f"attributes.{index}.propose": _as_written(attribute.propose.share)
            for index, attribute in enumerate(self.attributes)
            if attribute.type == "number" and attribute.propose is not None
        }
        if not shares:
            return self
        field, mechanism = next(iter(shares)), self.mechanism
        if not isinstance(mechanism, CalibratedSpec) or self.synthetic_rows:
            raise ValueError(
                f"{field}: proposed edges are accepted by a change of attributes, which this profile, or "
                "synthetic rows, do not allow: write edges"
            )
        if self.kinds != KindsSpec():
            raise ValueError(
                f"{field}: proposed edges are accepted by a change of attributes, which other kinds do not "
                "allow: remove kinds, or write edges"
            )
        together = sum(shares.values())
        if together > _MOST_PROPOSING or together + _as_written(mechanism.base_share or 0.0) > 1:
            raise ValueError(
                f"{field}.share: all such shares are more than half a line, or more than a line with "
                "mechanism.base_share: use smaller ones"
            )
        return self

    @model_validator(mode="after")
    def _persons_are_protected(self) -> Definition:
        unit = self.privacy.unit
        if unit is None:
            return self
        if not self.mechanism.takes_persons:
            raise ValueError(
                f"privacy.unit: the profile {self.mechanism.profile} promises something to rows only: use "
                '"calibrated", or remove unit'
            )
        if self.kinds != KindsSpec():
            raise ValueError(
                "privacy.unit: other kinds promise something to rows only: remove kinds, or unit"
            )
        if unit.key in {"count", *(attribute.name for attribute in self.attributes)}:
            raise ValueError(
                "privacy.unit.key is the name of an attribute, or of the count of a cell: name another "
                "column, or remove the attribute"
            )
        if not unit.key.isprintable() or unit.key != unit.key.strip():
            raise ValueError(
                "privacy.unit.key has unprintable characters or blanks at its ends: remove them"
            )
        if unit.lifetime and unit.squares > MAX_SQUARES:
            raise ValueError(
                f"privacy.unit.phases: this many phases of this many rows are {unit.squares:,} units, and "
                f"{MAX_SQUARES:,} can be kept of a person: use fewer, or remove lifetime"
            )
        return self

    @classmethod
    def read(cls, document: object, *, quoting: bool = False) -> Definition:
        """Validates a parsed definition.

        Args:
            document: The parsed JSON object.
            quoting: Whether an error may quote the definition.

        Returns:
            The definition.

        Raises:
            InvalidDefinition: The definition is not valid. The error names the field and the fix.

        Example:
            >>> from stream_dp.messages import Definition
            >>> people = Definition.read({
            ...     "version": 1,
            ...     "dataset": "people",
            ...     "attributes": [
            ...         {"name": "age", "type": "number", "edges": [18, 30, 65]},
            ...         {"name": "smoker", "type": "boolean"},
            ...     ],
            ...     "privacy": {"epsilon": 1.0, "delta": 1e-9},
            ...     "accuracy": {"error": 0.02, "failure_probability": 0.01},
            ...     "phase": {"min_rows": 20_000},
            ... })
            >>> people.mechanism.profile
            'calibrated'
        """
        return validated(cls, document, InvalidDefinition, quoting=quoting)

    def check_new(self) -> None:
        """Checks the rules that apply to new definitions only. Accepted definitions stay readable for ever.

        Raises:
            InvalidDefinition: ``privacy.delta`` lets a mechanism publish a whole row of each phase.
        """
        for field in ("versions", "proposals", "found"):
            if getattr(self, field) is not None:
                raise InvalidDefinition(field, "only the worker writes it", f"remove {field}")
        delta, n_rows = self.privacy.delta, self.phase.min_rows
        if _as_written(delta) * n_rows > 1:
            raise InvalidDefinition(
                "privacy.delta",
                "it is above 1/phase.min_rows: a whole row of each phase could be published",
                f"use at most {_one_in(n_rows)}; below {_one_in(100 * n_rows)} is usual",
            )

    @property
    def schema_version(self) -> int:
        """The number of the newest version of the attributes."""
        return self.schema_versions[-1].schema_version

    @property
    def schema_versions(self) -> tuple[SchemaVersion, ...]:
        """The versions of the attributes, the oldest first; also where there is one."""
        return self.versions or (
            SchemaVersion(schema_version=1, first_phase=1, attributes=self.attributes),
        )

    @property
    def optional(self) -> frozenset[str]:
        """The attributes that rows need not have: those of later versions, and deprecated ones."""
        always = {one.name for one in self.schema_versions[0].attributes}
        return frozenset(
            one.name for one in self.attributes if one.deprecated or always.isdisjoint(one.names)
        )

    def changed(self, change: ChangeSchema, first_phase: int) -> Definition:
        """Returns the definition with other attributes in force.

        Args:
            change: The attributes.
            first_phase: The first phase that has them.

        Raises:
            InvalidDefinition: They do not go with the rest of the definition.
        """
        version = SchemaVersion(
            schema_version=change.schema_version,
            first_phase=first_phase,
            attributes=change.attributes,
        )
        kept = tuple(one for one in self.schema_versions if one.first_phase < first_phase)
        document = self.model_dump(mode="json", exclude_none=True, by_alias=True)
        now = version.model_dump(mode="json", exclude_none=True, by_alias=True)
        versions = [one.model_dump(mode="json", exclude_none=True, by_alias=True) for one in kept]
        return Definition.read(
            {**document, "attributes": now["attributes"], "versions": [*versions, now]}
        )

    def least_to_close(self, waiting: int) -> int:
        """Returns how many rows must wait so that they may be closed as a phase, where ``waiting`` do.

        A quarter of ``phase.min_rows`` is enough if ``privacy.delta`` is as small for them as is usual.
        """
        n_rows = self.phase.min_rows
        return -(-n_rows // 4) if _as_written(self.privacy.delta) * 100 * waiting <= 1 else n_rows

    @property
    def kept_phases(self) -> int | None:
        """The number of phases, the last ones, whose rows are kept; None for all."""
        return None if self.retention is None else self.retention.phases

    @property
    def kept_answers_days(self) -> int | None:
        """The least number of days for which an answer is stored under its id; None for ever."""
        answers = None if self.retention is None else self.retention.answers
        return None if answers is None else answers.days

    @property
    def finds(self) -> bool:
        """Whether values of an attribute are found."""
        return any(one.type == "category" and one.find for one in self.attributes)

    @property
    def listed(self) -> dict[str, tuple[str, ...]]:
        """The values that are told apart of each attribute whose values are found, by its name."""
        return {
            one.name: one.values for one in self.attributes if one.type == "category" and one.find
        }

    def with_found(self, found: Mapping[str, Sequence[str]]) -> Definition:
        """Returns the definition with values that were found, in all versions.

        Args:
            found: The values of attributes, listed ones first, by the name of the attribute.
        """
        known: dict[str, tuple[str, ...]] = {}
        for now in self.attributes:  # whose names of all versions it has
            values = next((tuple(found[name]) for name in now.names if name in found), ())
            known |= dict.fromkeys(now.names, values)

        def filled(attributes: Attributes) -> Attributes:
            return tuple(map(filled_one, attributes))

        def filled_one(one: AttributeSpec) -> AttributeSpec:
            values = known.get(one.name, ())
            if one.type != "category" or one.find is None:
                return one
            begins = values[: len(one.values)] == one.values
            return one.model_copy(update={"values": values}) if begins else one

        update: dict[str, Any] = {"attributes": filled(self.attributes)}
        if self.versions is not None:
            update["versions"] = tuple(
                one.model_copy(update={"attributes": filled(one.attributes)})
                for one in self.versions
            )
        return self.model_copy(update=update)

    @property
    def without_measures(self) -> Definition:
        """The same definition without the values that it keeps of rows."""
        plain = tuple(
            attribute.model_copy(update={"measure": None})
            if attribute.type == "number"
            else attribute
            for attribute in self.attributes
        )
        return self.model_copy(update={"attributes": plain})

    def to_bytes(self) -> bytes:
        return self.model_dump_json(exclude_none=True).encode()


def large_delta(delta: float, n_rows: int) -> str | None:
    """Returns a warning if delta is so large that a mechanism could almost reveal whole rows, or None."""
    if _as_written(delta) * 100 * n_rows <= 1:
        return None
    return (
        f"privacy.delta {delta:g} is large for phases of {n_rows:,} rows; below {_one_in(100 * n_rows)} "
        "is usual"
    )


LARGE_EPSILON: Final = 3.0
"""From here on the owner of a data set is warned."""


def large_epsilon(privacy: PrivacySpec) -> str | None:
    """Returns a warning that says what a large epsilon means for guesses about somebody, or None."""
    if privacy.epsilon < LARGE_EPSILON:
        return None
    whom = "a row" if privacy.unit is None else "a person"
    return (
        f"privacy.epsilon {privacy.epsilon:g} is large: for someone who guesses about {whom}, all answers "
        f"together may turn even odds into {_odds(privacy.epsilon)}; with epsilon 1 it is {_odds(1.0)}"
    )


def _odds(epsilon: float) -> str:
    """Formats the odds that even ones become at most, and how often the guess is then right."""
    ratio = math.exp(epsilon)
    percent = 100.0 * ratio / (1.0 + ratio)
    right = f"{percent:.1f}%" if percent < 99.95 else "over 99.9%"
    return f"{ratio:,.1f} to 1, which is right {right} of the time"


def _as_written(value: float) -> Fraction:
    """Returns the decimal number as it was written, not the nearest float."""
    return Fraction(str(value))


def _one_in(n: int) -> str:
    """Formats 1/n with one digit, rounded down so that the result is never more than 1/n."""
    digits = len(str(n - 1)) if n > 1 else 0
    return f"{float(f'{10**digits // n}e-{digits}'):g}"
