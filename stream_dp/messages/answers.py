"""What a query gets back: a noisy answer of its kind, a refusal or a quote."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal

from pydantic import ConfigDict, Field
from pydantic_core import from_json

from stream_dp.messages.base import Reply


class Reason(Reply):
    """Why nothing was released. It follows from public facts only."""

    code: str
    message: str
    retriable: bool = False


class BudgetShares(Reply):
    """What is spent and left of a line (the privacy budget of a block), as shares that add up to 1.

    The line is the one that is spent most among the phases asked.
    """

    spent: float
    left: float


class PrivacyLoss(Reply):
    """What an answer cost, as a share of a line: the largest share among the blocks that paid."""

    share: float
    blocks: int = 0


# ---------------------------------------------------------------- parts of answers


class Table(Reply):
    """The cells of a GROUP BY, row by row in the order of ``attributes``.

    Attributes:
        attributes: The names of the grouped attributes.
        labels: The labels of each attribute.
        values: The share of the rows asked in each cell.
        counts: The estimated rows in each cell.
        error_bars: The half width around each value, as a share of the rows asked. None where unknown.
        error_bars_simultaneous: The half widths that hold for all conjunctions at once.
    """

    attributes: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    values: tuple[float, ...]
    counts: tuple[int, ...]
    error_bars: tuple[float | None, ...]
    error_bars_simultaneous: tuple[float | None, ...] = ()


class SumTable(Table):
    """The cells of a sum with GROUP BY. ``values`` and ``counts`` are of the rows that have a value.

    Attributes:
        totals: The estimated sum in each cell, in the attribute's own unit.
        total_bars: The half width around each total.
        means: The total of each cell divided by its count. None where nothing is known of it.
        mean_bars: The half width around each mean.
        rows: The estimated rows in each cell, including those without a value. Only if the query counts them.
        rows_bars: The half width around each of ``rows``, in rows.
    """

    totals: tuple[float, ...]
    total_bars: tuple[float | None, ...]
    means: tuple[float | None, ...]
    mean_bars: tuple[float | None, ...]
    rows: tuple[int, ...] | None = None
    rows_bars: tuple[float | None, ...] | None = None


class Batched(Reply):
    """The answers to a batch, in the order of its conditions.

    Attributes:
        values: The share of the rows that satisfy each condition.
        counts: The estimated rows that satisfy each condition.
    """

    values: tuple[float, ...]
    counts: tuple[int, ...]


class FoundCell(Reply):
    """One cell of the attribute that was asked about.

    Attributes:
        label: The label of the cell, as in tables.
        low: The least value in the cell. None if the cell has no least value, or is not a bin of numbers.
        high: The value that all values in the cell are below. None if there is none.
    """

    label: str
    low: float | None = None
    high: float | None = None


class Vector(Reply):
    """A sign for each row asked, in order of arrival. docs/messages.md says how to use it.

    Attributes:
        bits: A bit for each row, 1 where the sign is +1, packed into bytes and written in base64. The first
            row has the highest bit of the first byte.
        agreement: The mean of the product of a row's sign with that of its private bit.
    """

    bits: Annotated[str, Field(repr=False)]
    agreement: float


# ---------------------------------------------------------------- what all answers share


class Answer(Reply):
    """A reply to a query. Its class says what it holds.

    ``RefusedAnswer`` holds a reason, ``QuotedAnswer`` a price, and every subclass of ``NoisyAnswer`` the
    answer to one kind of query::

        match client.ask("people", "age >= 30"):
            case CountAnswer(value=value, error_bar=error_bar):
                print(value, error_bar)
            case RefusedAnswer(reason=reason):
                print(reason.message)

    Attributes:
        dataset: The data set that was asked.
        query_id: The id of the query. The answer under an id never changes.
        analyst: Who asked.
        status: Whether this is an answer, a refusal or a quote.
        kind: One of ``ANSWERS``: the kind of this answer, or of one that was refused or quoted. None if it
            was published before answers said their kind, and its fields do not tell it.
        budget: What is left of the budget of the phases asked.
    """

    version: Literal[1] = 1
    dataset: str
    query_id: str
    analyst: str
    status: Literal["answered", "refused", "quoted"]
    kind: str | None = None
    budget: BudgetShares | None = None

    @staticmethod
    def read(message: bytes | Mapping[str, Any]) -> Answer:
        """Reads the answer in a message, as an instance of its class.

        Raises:
            ValueError: The message is not an answer, or only a newer release can read it.

        Example:
            >>> from stream_dp.messages import Answer
            >>> message = {
            ...     "version": 1, "dataset": "people", "query_id": "q-1", "analyst": "ann",
            ...     "status": "refused", "kind": "predicate",
            ...     "reason": {"code": "no_phase", "message": "no phase is open yet", "retriable": True},
            ... }
            >>> Answer.read(message).reason.code
            'no_phase'
        """
        document = from_json(message) if isinstance(message, bytes) else message
        return _class_of(document).model_validate(document)

    def to_bytes(self) -> bytes:
        return self.__pydantic_serializer__.to_json(self, exclude_none=True)


class RefusedAnswer(Answer):
    """A refusal.

    Attributes:
        reason: Why there is no answer. It is final for this ``query_id``.
    """

    status: Literal["refused"] = "refused"
    reason: Reason


class PricedAnswer(Answer):
    """What answers and quotes share.

    Attributes:
        n: The number of rows asked.
        difficulty: ``easy`` if it follows from what was published before. ``hard`` if the rows were measured.
        path: How it came about. docs/messages.md lists the paths.
        privacy_loss: The cost.
        phase: The number of phases that are open.
        window: The first and the last phase that the answer speaks of.
        note: Anything else that the reader should know.
    """

    n: int
    difficulty: Literal["easy", "hard"]
    path: str
    privacy_loss: PrivacyLoss
    budget: BudgetShares
    phase: int
    window: tuple[int, int]
    note: str | None = None


class QuotedAnswer(PricedAnswer):
    """A quote: what the answer would cost now."""

    status: Literal["quoted"] = "quoted"


class NoisyAnswer(PricedAnswer):
    """A noisy answer; each kind has a class of its own.

    Attributes:
        confidence: The probability with which the answer is as close to the truth as it says.
            docs/messages.md says for which queries. None where nothing is promised.
    """

    status: Literal["answered"] = "answered"
    confidence: float | None = None


# ---------------------------------------------------------------- forms: what several kinds share


class CountAnswer(NoisyAnswer):
    """How many rows satisfy a condition.

    Attributes:
        value: The share of the ``n`` rows, in [0, 1].
        count: The estimated number of rows. It may pass 2**53.
        error_bar: The half width around ``value``, as a share of the ``n`` rows. It covers the exact share
            with ``confidence`` if the query was chosen before the tables that answer it were published. None
            where nothing is known.
        error_bar_simultaneous: The half width around ``value`` that also covers a query chosen afterwards.
            The class of each kind says among which queries.
    """

    value: float
    count: int
    error_bar: float | None = None
    error_bar_simultaneous: float | None = None


class CellsAnswer(NoisyAnswer):
    """A table of shares and counts.

    Attributes:
        table: The cells. Each has its own error bar, as a share of the ``n`` rows.
    """

    table: Table


class FoundAnswer(NoisyAnswer):
    """A value that was looked for.

    Attributes:
        attribute: The attribute that was asked about.
        found: The cell that holds the value.
        no_answer: True if the value was tested and must not be named.
        error_bar: The largest distance of the cell from the rank that was asked for, as a share of the ``n``
            rows. None where no distance is known.
    """

    attribute: str | None = None
    found: FoundCell | None = None
    no_answer: bool | None = None
    error_bar: float | None = None


class SideAnswer(NoisyAnswer):
    """The side of two thresholds on which a count of rows lies.

    Attributes:
        side: ``below`` both, ``between`` them, or ``above`` both.
        found: The last cell before the point that was kept, if there is one.
        error_bar: The most rows by which the count may pass a threshold, as a share of the ``n`` rows.
    """

    side: Literal["below", "between", "above"]
    found: FoundCell | None = None
    error_bar: float | None = None


# ---------------------------------------------------------------- kinds


class PredicateAnswer(CountAnswer):
    """How many rows satisfy any condition.

    ``error_bar_simultaneous`` holds for all conjunctions on the same attributes and window at once, and for
    all predicates where tables alone answer.
    """

    kind: Literal["predicate"] = "predicate"


class TableAnswer(CellsAnswer):
    """How many rows there are in each cell of a GROUP BY."""

    kind: Literal["table"] = "table"


class SumAnswer(NoisyAnswer):
    """The sum and the mean of a number over the rows that satisfy a condition.

    Attributes:
        attribute: The number that is added up.
        value: The share of the ``n`` rows that satisfy the condition and have a value.
        count: The estimated number of these rows.
        error_bar: The half width around ``value``, as a share of the ``n`` rows. ``accuracy.error`` does not
            bound it.
        total: The estimated sum over these rows, in the attribute's own unit.
        total_bar: The half width around ``total``.
        mean: ``total`` divided by ``count``. None where nothing is known of it.
        mean_bar: The half width around ``mean``.
        rows: The estimated rows that satisfy the condition, including those without a value. None unless the
            query counts them.
        rows_bar: The half width around ``rows``, in rows.
    """

    kind: Literal["sum"] = "sum"
    attribute: str | None = None
    value: float
    count: int
    error_bar: float | None = None
    total: float
    total_bar: float | None = None
    mean: float | None = None
    mean_bar: float | None = None
    rows: int | None = None
    rows_bar: float | None = None


class SumByGroupAnswer(NoisyAnswer):
    """The sum and the mean of a number in each cell of a GROUP BY.

    Attributes:
        attribute: The number that is added up.
        table: The cells. Each has its own error bars, in the units that ``SumTable`` says.
    """

    kind: Literal["sum_by_group"] = "sum_by_group"
    attribute: str | None = None
    table: SumTable


class ThresholdAnswer(CountAnswer):
    """How many rows lie in a range of a number.

    ``error_bar_simultaneous`` holds for all ranges of the attribute at once.
    """

    kind: Literal["threshold"] = "threshold"
    attribute: str | None = None


class ThresholdCurveAnswer(CellsAnswer):
    """How many rows lie at or below the end of each bin of a number, as a table of one attribute."""

    kind: Literal["threshold_curve"] = "threshold_curve"


class QuantileAnswer(FoundAnswer):
    """The bin in which a quantile lies.

    Attributes:
        rank: The rank that was asked for, as a share of the rows that have a value.
        found: The bin.
        no_answer: Always None: there is always a bin.
        error_bar: The largest distance between the bin's rank and ``rank``, as a share of the ``n`` rows.
    """

    kind: Literal["quantile"] = "quantile"
    found: FoundCell
    rank: float | None = None


class MedianAnswer(FoundAnswer):
    """The bin in which the median lies.

    Attributes:
        found: The exact bin. None if naming it might reveal a row.
        no_answer: True if the bin must not be named.
        error_bar: 0 where the rank is exact.
    """

    kind: Literal["median"] = "median"


class ModeAnswer(FoundAnswer):
    """The most frequent value.

    Attributes:
        found: The exact value. None if naming it might reveal a row.
        no_answer: True if the value must not be named.
        error_bar: Always None: the value has no rank.
    """

    kind: Literal["mode"] = "mode"


class PrefixBatchAnswer(NoisyAnswer):
    """How many rows satisfy each of many conditions on one attribute.

    Attributes:
        attribute: The attribute that the conditions are about.
        batch: The shares and counts, in the order of the conditions.
        error_bar_simultaneous: The half width around each share, for all of them at once, as a share of the
            ``n`` rows.
    """

    kind: Literal["prefix_batch"] = "prefix_batch"
    attribute: str | None = None
    batch: Batched
    error_bar_simultaneous: float | None = None


class CorrelatedVectorAnswer(NoisyAnswer):
    """A noisy sign of each row about a boolean attribute.

    Attributes:
        attribute: The boolean attribute.
        vector: The signs.
        error_bar: The half width of what the signs say about the mean product of the private signs with one
            vector of signs, fixed beforehand. None where they say nothing.
    """

    kind: Literal["correlated_vector"] = "correlated_vector"
    attribute: str | None = None
    vector: Vector
    error_bar: float | None = None


class BetweenAnswer(SideAnswer):
    """Whether the share of rows that satisfy a condition is below, between or above two shares.

    Attributes:
        low: The smaller of the two shares.
        high: The larger of the two shares.
        found: Always None.
        error_bar: By how much the share may be on the other side of ``low`` or ``high``, as a share of the
            ``n`` rows.
    """

    kind: Literal["between"] = "between"
    low: float | None = None
    high: float | None = None


class InteriorPointAnswer(SideAnswer):
    """On which side of some row a point lies.

    Attributes:
        attribute: The number that the point is a value of.
        found: The bin that ends at the point that was kept: rows are on both sides of its end.
        error_bar: Always None: the answer is right, with ``confidence``.
    """

    kind: Literal["interior_point"] = "interior_point"
    attribute: str | None = None


class AdaptiveThresholdAnswer(CountAnswer):
    """How many rows lie at or below a value.

    ``error_bar`` and ``error_bar_simultaneous`` are the same: they hold for all queries of a run at once,
    however they were chosen.
    """

    kind: Literal["adaptive_threshold"] = "adaptive_threshold"
    attribute: str | None = None


class UnknownAnswer(NoisyAnswer):
    """An answer of a kind that this release does not know. It keeps all fields of the message."""

    model_config = ConfigDict(extra="allow")


ANSWERS: Final[Mapping[str, type[NoisyAnswer]]] = MappingProxyType(
    {
        "predicate": PredicateAnswer,
        "table": TableAnswer,
        "sum": SumAnswer,
        "sum_by_group": SumByGroupAnswer,
        "threshold": ThresholdAnswer,
        "threshold_curve": ThresholdCurveAnswer,
        "quantile": QuantileAnswer,
        "median": MedianAnswer,
        "mode": ModeAnswer,
        "prefix_batch": PrefixBatchAnswer,
        "correlated_vector": CorrelatedVectorAnswer,
        "between": BetweenAnswer,
        "interior_point": InteriorPointAnswer,
        "adaptive_threshold": AdaptiveThresholdAnswer,
    }
)
"""The class of each kind of answer."""

_FORMS: Final[Mapping[str, type[NoisyAnswer]]] = {
    "total": SumAnswer,
    "table": CellsAnswer,
    "batch": PrefixBatchAnswer,
    "vector": CorrelatedVectorAnswer,
    "side": SideAnswer,
    "found": FoundAnswer,
    "no_answer": FoundAnswer,
    "value": CountAnswer,
}
"""The class of an answer that was published before answers said their kind, by the first field it has."""


def _class_of(document: Any) -> type[Answer]:
    """The class that reads a message. Whether the message is valid is for the class to say."""
    if not isinstance(document, Mapping):
        return UnknownAnswer
    if document.get("status") in ("refused", "quoted"):
        return RefusedAnswer if document["status"] == "refused" else QuotedAnswer
    kind = document.get("kind")
    if kind is not None:
        return ANSWERS.get(kind, UnknownAnswer) if isinstance(kind, str) else UnknownAnswer
    table = document.get("table")
    if isinstance(table, Mapping) and table.get("totals") is not None:
        return SumByGroupAnswer
    forms = (form for field, form in _FORMS.items() if document.get(field) is not None)
    return next(forms, UnknownAnswer)


__all__ = [
    "ANSWERS",
    "AdaptiveThresholdAnswer",
    "Answer",
    "Batched",
    "BetweenAnswer",
    "BudgetShares",
    "CellsAnswer",
    "CorrelatedVectorAnswer",
    "CountAnswer",
    "FoundAnswer",
    "FoundCell",
    "InteriorPointAnswer",
    "MedianAnswer",
    "ModeAnswer",
    "NoisyAnswer",
    "PredicateAnswer",
    "PrefixBatchAnswer",
    "PricedAnswer",
    "PrivacyLoss",
    "QuantileAnswer",
    "QuotedAnswer",
    "Reason",
    "RefusedAnswer",
    "SideAnswer",
    "SumAnswer",
    "SumByGroupAnswer",
    "SumTable",
    "Table",
    "TableAnswer",
    "ThresholdAnswer",
    "ThresholdCurveAnswer",
    "UnknownAnswer",
    "Vector",
]
