"""The messages of producers and analysts: batches of rows and queries."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated, Any, Final, Literal, NamedTuple, Self

from pydantic import BeforeValidator, Field, StrictBool, model_validator

from stream_dp.messages.bundles import MOST_QUOTED
from stream_dp.messages.kinds import ABSENT, FIELDS, QueryKind
from stream_dp.messages.message_base import (
    PRODUCER_PATTERN,
    TOPIC_PATTERN,
    AttributeName,
    DatasetName,
    Id,
    Request,
    tupled,
)
from stream_dp.messages.precision import (
    ErrorSpec,
    FixedError,
    MeanError,
    RelativeError,
    ShareOfLine,
)
from stream_dp.messages.standing_query import ALERT_KINDS, LONGEST_ID, AlertSpec, phase_in_id
from stream_dp.messages.time_fields import Frame, MinusWindow, Series, TimeText, Window

_SOURCE: Final = "source "


def sources_in(cursor_keys: Iterable[str]) -> set[tuple[str, str]]:
    """The topics that a data set has counted rows of, each with its name and its id."""
    found = set()
    for key in cursor_keys:
        topic, _, rest = key.removeprefix(_SOURCE).partition("@")
        if key.startswith(_SOURCE):
            found.add((topic, rest.rpartition(":")[0]))
    return found


class SourceRange(Request):
    """The range of records in a source's topic whose rows a batch holds.

    Attributes:
        topic: The name of the topic.
        id: The broker's id of the topic. A later topic with the same name has another one.
        partition: The partition of the topic.
        first: The first offset of the range. It follows the last range that was accepted.
        last: The last offset of the range, inclusive.
        begins: Says that an operator chose ``first``. The first range of a topic that may be a copy needs
            that.
        position: The position of change events behind the range: 2^64 times that of the last commit before it
            in the log of their database, and that of the last event.
        schema_version: The version of the attributes for which the rows were packed. Under a newer one they
            may be other rows.
    """

    topic: Annotated[str, Field(pattern=TOPIC_PATTERN)]
    id: Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]
    partition: Annotated[int, Field(ge=0)]
    first: Annotated[int, Field(ge=0)]
    last: Annotated[int, Field(ge=0, lt=2**63)]
    begins: Literal[True] | None = None
    position: Annotated[int, Field(ge=0, lt=2**127)] | None = None
    schema_version: Annotated[int, Field(ge=1)] | None = None

    @model_validator(mode="after")
    def _in_order(self) -> SourceRange:
        if self.last < self.first:
            raise ValueError("last is below first: write the offsets in ascending order")
        return self

    @property
    def cursor_key(self) -> str:
        """The name under which the data set keeps the first offset of its next range."""
        return f"{_SOURCE}{self.topic}@{self.id}:{self.partition}"

    @property
    def position_key(self) -> str:
        """The name under which the data set keeps the position of change events."""
        return f"position {self.topic}@{self.id}:{self.partition}"

    def may_be_copy(self, cursor_keys: Iterable[str]) -> bool:
        """Returns whether the topic may be a copy of another one that a data set has counted.

        That is another topic of the same name, or of a name that a mirror makes of it: ``cluster.topic``.
        """
        for topic, log_id in sources_in(cursor_keys):
            long, short = sorted((topic, self.topic), key=len, reverse=True)
            if log_id != self.id and (long == short or long.endswith(f".{short}")):
                return True
        return False


class Counted(NamedTuple):
    """The place of a batch among others that count in order and without gaps.

    Attributes:
        key: The name under which the data set keeps the number that is next.
        first: The number that must be next.
        next: The number that is next once the batch counts.
    """

    key: str
    first: int
    next: int


class Batch(Request):
    """Rows in one of three forms, and what changes of rows that came before. The data set checks both later.

    Attributes:
        batch_id: The rows count once under this id.
        producer: The name of a producer that counts its batches, in place of an id.
        sequence: The number of the batch, as its producer counts.
        time: When the rows were: a date, or a date and time with an offset. Default: the time of the
            record.
        rows: The rows, each an object. An absent name is a missing value.
        columns: The values of every attribute.
        cells: The number of rows in each cell: objects of values with a ``count``.
        erase: The keys of persons to erase with all their rows. Null stands for nobody.
        forget: With ``erase`` and a promise for life: whether what these persons used of it is forgotten,
            too.
        correct: Rows to change: objects with ``person``, ``row``, and either ``set`` or ``"erase": true``.
            Null stands for no row.
        source: The records that a source reader packed.
        unreadable: Why a source reader stopped.
    """

    version: Literal[1]
    dataset: DatasetName
    batch_id: Id | None = None
    producer: Annotated[str, Field(pattern=PRODUCER_PATTERN)] | None = None
    sequence: Annotated[int, Field(ge=0, lt=2**63 - 1)] | None = None
    source: SourceRange | None = None
    unreadable: Literal["framed", "no_objects", "no_keys"] | None = None
    time: TimeText | None = None
    rows: Annotated[list[Any] | None, Field(repr=False)] = None
    columns: Annotated[dict[str, Any] | None, Field(repr=False)] = None
    cells: Annotated[list[Any] | None, Field(repr=False)] = None
    erase: Annotated[list[Any] | None, Field(repr=False)] = None
    forget: Literal[True] | None = None
    correct: Annotated[list[Any] | None, Field(repr=False)] = None

    @property
    def changes(self) -> bool:
        """Whether it changes rows that came before."""
        return self.erase is not None or self.correct is not None

    @property
    def has_rows(self) -> bool:
        """Whether it has rows of its own, in any form."""
        return any(form is not None for form in (self.rows, self.columns, self.cells))

    @model_validator(mode="after")
    def _one_form(self) -> Batch:
        forms = self.rows, self.columns, self.cells, self.unreadable
        n_forms = sum(form is not None for form in forms)
        if n_forms > 1 or (n_forms == 0 and not self.changes):
            raise ValueError("write exactly one of rows, columns and cells, or erase or correct")
        if self.forget is not None and self.erase is None:
            raise ValueError("forget goes with erase: name the persons there, or remove it")
        if self.unreadable is not None and self.source is None:
            raise ValueError("unreadable is said of a source: write rows, columns or cells")
        return self

    @model_validator(mode="after")
    def _one_name(self) -> Batch:
        if (self.producer is None) != (self.sequence is None):
            raise ValueError("producer and sequence go together: add the other one")
        if (self.batch_id is None) == (self.producer is None):
            raise ValueError("write either batch_id, or producer and sequence")
        if self.source is not None and self.producer is not None:
            raise ValueError("a batch of a source has an id and no producer: write batch_id")
        return self

    @property
    def name(self) -> str:
        """What tells the batch from all others: its id, or its producer and number with a blank between.

        An id has no blank.
        """
        return self.batch_id or f"{self.producer} {self.sequence}"

    @property
    def named(self) -> dict[str, str | int | None]:
        """The fields by which events name it."""
        return {"batch_id": self.batch_id, "producer": self.producer, "sequence": self.sequence}

    @property
    def counted(self) -> Counted | None:
        """Its place among those of its source or producer. None if it has neither."""
        if self.source is not None:
            return Counted(self.source.cursor_key, self.source.first, self.source.last + 1)
        if self.producer is None or self.sequence is None:
            return None
        return Counted(f"producer {self.producer}", self.sequence, self.sequence + 1)


class ClosePhase(Request):
    """Ends the period that is open, so that the rows that wait open a phase now if there are enough of them.

    A quarter of ``phase.min_rows`` is enough if ``privacy.delta`` is at most 1/(100 rows).

    Attributes:
        close: Always true.
        phase: The number of the phase that is to open. If it is open already, nothing happens. Default: the
            next one.
    """

    version: Literal[1]
    dataset: DatasetName
    close: Literal[True]
    phase: Annotated[int, Field(ge=1)] | None = None


class ClockRecord(Request):
    """Has a worker read the broker's time of this record, by which periods close. Workers send it.

    Attributes:
        clock: Always true.
        sweep: Has the changes that wait made at once, in place of at the time that is due.
    """

    version: Literal[1] = 1
    dataset: DatasetName
    clock: Literal[True] = True
    sweep: Literal[True] | None = None


class LastPhases(Request):
    """The most recent phases. A larger number than there are phases means all of them.

    Attributes:
        last_phases: The number of most recent phases.
    """

    last_phases: Annotated[int, Field(ge=1)]


_IN_SERIES: Final = ("predicate", "table", "sum", "share", "quantile")


class QueryFields(Request):
    """One query. The core checks its conditions, names and values against the schema.

    Attributes:
        query_id: The same query under the same id gets the same answer.
        kind: What is asked.
        where: The condition on the rows. Null means all rows.
        wheres: The conditions of a ``prefix_batch``.
        group_by: The attributes of a table.
        share_of: The condition whose share of the rows of ``where`` is asked.
        minus_window: The window to subtract.
        attribute: What to analyse or to add up.
        other: The second number of a correlation.
        up_to: The edge of a bin, the most that a row of a sum counts for: ``SUM(LEAST(age, 60))``.
        rank: 0 is the least value, 0.5 the median, 1 the largest.
        low: The lower threshold, as a share of the rows.
        high: The upper threshold.
        count_rows: Whether a sum also counts the rows without a value.
        mean: Whether ``accuracy.aim`` is about the mean, as with ``AVG``.
        error: The largest error, in place of ``accuracy.error``.
        at_most: The largest share of any line (a block's privacy budget) that the answer may take.
        fresh: Whether a new look alone answers. Its bar holds however the query was chosen, and each id is
            charged.
        once: The "since" attribute by which each person counts once, in their first phase of the window.
        window: The phases asked. Default: all of them.
        across: With ``since``, leaves out earlier phases whose rows do not say all that is asked.
        series: Asks about each phase, day, week or month by itself.
        frame: How many parts each answer covers, up to its own; ``running`` means all so far. Default: its
            own.
        quote: Asks what the answer would cost now, for free.
        standing: Asks again in each phase; false ends that.
        alert: When an answer raises an alert.
    """

    query_id: Id
    kind: QueryKind = "predicate"
    where: dict[str, Any] | None = None
    wheres: Annotated[
        tuple[dict[str, Any], ...], BeforeValidator(tupled), Field(max_length=1_000)
    ] = ()
    group_by: Annotated[tuple[AttributeName, ...], BeforeValidator(tupled)] = ()
    share_of: dict[str, Any] | None = None
    minus_window: MinusWindow | None = None
    attribute: AttributeName | None = None
    other: AttributeName | None = None
    up_to: Annotated[float, Field(allow_inf_nan=False)] | None = None
    rank: Annotated[float, Field(ge=0, le=1)] | None = None
    low: Annotated[float, Field(ge=0, le=1)] | None = None
    high: Annotated[float, Field(ge=0, le=1)] | None = None
    count_rows: StrictBool | None = None
    mean: StrictBool | None = None
    error: ErrorSpec | None = None
    at_most: ShareOfLine | None = None
    fresh: StrictBool | None = None
    once: AttributeName | None = None
    window: Window | None = None
    across: Literal["since"] | None = None
    series: Series | None = None
    frame: Frame | None = None
    quote: StrictBool = False
    standing: StrictBool | None = None
    alert: AlertSpec | None = None

    @model_validator(mode="after")
    def _fields_of_its_kind(self) -> QueryFields:
        for name in FIELDS[self.kind].needs:
            if getattr(self, name) in (None, ()):
                raise ValueError(f'kind "{self.kind}" needs {name}: add it')
        for name in ABSENT[self.kind]:
            if getattr(self, name) not in (None, ()):
                raise ValueError(f'kind "{self.kind}" has no {name}: remove it')
        if self.low is not None and self.high is not None and self.low >= self.high:
            raise ValueError("low is not below high: write the smaller threshold as low")
        if self.error is not None:
            self._check_error()
        if self.series is not None and self.kind not in _IN_SERIES:
            raise ValueError(
                f'kind "{self.kind}" has no series: ask counts, sums, shares or quantiles, or remove series'
            )
        if self.frame is not None and self.series is None:
            raise ValueError("a frame is one of the parts of a series: add series, or remove frame")
        self._check_minus_window()
        self._check_standing()
        if self.window is not None and self.window.running:
            self._check_running()
        return self

    def _check_running(self) -> None:
        if self.kind not in ("predicate", "table"):
            raise ValueError(
                "running totals are counts: ask a count or a table, or remove running from the window"
            )
        others = ("error", "fresh", "across", "frame")
        for name in others:
            if getattr(self, name) is not None:
                raise ValueError(
                    f"what is open is told as it is published, without {name}: remove {name}, or running"
                )

    def _check_standing(self) -> None:
        if self.alert is not None and not self.standing:
            raise ValueError('an alert goes with a standing query: add "standing": true')
        if self.alert is not None and self.kind not in ALERT_KINDS:
            raise ValueError(f'kind "{self.kind}" has no number with an error bar: remove alert')
        if self.standing is None:
            return
        if self.quote:
            raise ValueError("a quote is for one answer: remove standing")
        if phase_in_id(self.query_id) is not None:
            raise ValueError(
                "an id that ends with @ and a number is that of an answer: write the id of a standing query"
            )
        if self.standing and len(self.query_id) > LONGEST_ID:
            raise ValueError(f"the id of a standing query has at most {LONGEST_ID} characters")
        if not self.standing and self.model_fields_set - _NAMES_OF_A_QUERY - {"standing"}:
            raise ValueError(
                '"standing": false ends a standing query: write query_id next to it alone'
            )

    def _check_minus_window(self) -> None:
        """Refuses windows that hold the same phases, or none, however many phases there are."""
        minus, window = self.minus_window, self.window
        if minus is None:
            return
        if window is None and minus.last_phases is None:
            raise ValueError(
                "no phase comes before a window of all phases: add window, such as "
                '{"last_phases": 7}'
            )
        if window is not None and minus.last_phases == window.last_phases is not None:
            raise ValueError(
                "minus_window is the window itself: write other phases, or previous_phases"
            )

    def _check_error(self) -> None:
        """Refuses forms of an error that the kind of the query cannot promise."""
        if isinstance(self.error, RelativeError) and self.kind != "predicate":
            raise ValueError(
                f'kind "{self.kind}" has no relative error: write error as a share of the rows or as a value'
            )
        if self.kind == "share":
            if isinstance(self.error, MeanError):
                raise ValueError(
                    'the error of a share is a value: write {"value": 0.01} for a share within 0.01'
                )
            if isinstance(self.error, FixedError) and self.error.value >= 1.0:
                raise ValueError(
                    'a share is between 0 and 1: write an error below 1, such as {"value": 0.01}'
                )
        if self.kind == "correlation" and not (
            isinstance(self.error, FixedError) and self.error.value < 1.0
        ):
            raise ValueError(
                'the error of a correlation is a value below 1: write {"value": 0.05} for one within 0.05'
            )
        of_shares = self.kind in ("quantile", "difference")
        if of_shares and isinstance(self.error, FixedError | MeanError):
            raise ValueError(
                f"the error of a {self.kind} is a share of the rows: write it as a number such as 0.01"
            )
        if isinstance(self.error, MeanError) and (self.kind != "sum" or self.count_rows):
            raise ValueError(
                "an error of a mean goes with a sum without count_rows: write error as a share of the rows"
            )
        if isinstance(self.error, FixedError) and self.count_rows:
            raise ValueError(
                "a value is the error of the sum alone: remove count_rows, or write error as a share"
            )


_NAMES_OF_A_QUERY = {"version", "dataset", "analyst", "query_id"}


class SingleQuery(QueryFields):
    """One query as a message: the fields of the envelope and of the query together."""

    version: Literal[1]
    dataset: DatasetName
    analyst: Id


class QueryEnvelope(Request):
    """The analyst, the data set, and either the fields of one query or a list ``queries``.

    Attributes:
        analyst: Who asks.
        queries: The queries. A bad one refuses only itself.
        at_most: The largest share of any line (a block's privacy budget) that all answers may take
            together.
        quote: Asks what all would cost together, in place of their answers.
        query_id: The id of the reply to such a quote.
    """

    version: Literal[1]
    dataset: DatasetName
    analyst: Id
    queries: Annotated[list[Any], Field(min_length=1, max_length=10_000)]
    at_most: ShareOfLine | None = None
    quote: Literal["together"] | None = None
    query_id: Id | None = None

    @model_validator(mode="after")
    def _asks_or_quotes(self) -> QueryEnvelope:
        if self.quote is None:
            if self.query_id is not None:
                raise ValueError(
                    'query_id next to queries is the id of a quote: add "quote": "together"'
                )
            return self
        if self.query_id is None:
            raise ValueError("a quote for several queries needs query_id: add an id for its reply")
        if self.at_most is not None:
            raise ValueError("a quote spends nothing: remove at_most")
        if len(self.queries) > MOST_QUOTED:
            raise ValueError(
                f"a quote is for {MOST_QUOTED} queries at the most: split the list into several quotes"
            )
        return self

    @classmethod
    def read(cls, document: object, *, quoting: bool = False) -> Self:
        """Validates the envelope. A single query becomes a list of one.

        Raises:
            InvalidMessage: The envelope is not valid. The error names the field and the fix.
        """
        if isinstance(document, Mapping) and "queries" not in document:
            shared = ("version", "dataset", "analyst")
            document = {
                **{name: document[name] for name in shared if name in document},
                "queries": [
                    {name: value for name, value in document.items() if name not in shared}
                ],
            }
        return super().read(document, quoting=quoting)
