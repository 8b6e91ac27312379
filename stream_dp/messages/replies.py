"""What the worker publishes: answers, events, synthetic rows, rejections."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stream_dp.messages.base import Reply


class Reason(Reply):
    """Why nothing was released; follows from public facts only."""

    code: str
    message: str
    retriable: bool = False


class BudgetShares(Reply):
    """Shares of the line that is spent most among the phases asked; they add up to 1."""

    spent: float
    left: float


class PrivacyLoss(Reply):
    """What this answer cost, as a share of a line: the largest over its blocks."""

    share: float
    blocks: int = 0


class Table(Reply):
    """GROUP BY: cells row-major in the order of ``attributes``."""

    attributes: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    values: tuple[float, ...]
    counts: tuple[int, ...]
    error_bars: tuple[float | None, ...]
    error_bars_simultaneous: tuple[float | None, ...] = ()
    totals: tuple[float, ...] | None = None
    total_bars: tuple[float | None, ...] | None = None
    means: tuple[float | None, ...] | None = None
    mean_bars: tuple[float | None, ...] | None = None
    rows: tuple[int, ...] | None = None
    rows_bars: tuple[float | None, ...] | None = None


class Batched(Reply):
    """Answers to a batch, in the order of its conditions; ``error_bar_simultaneous`` is that of all."""

    values: tuple[float, ...]
    counts: tuple[int, ...]


class FoundCell(Reply):
    """One cell of the attribute asked about.

    Attributes:
        label: As in the tables.
        low: Least value in the cell; None where it has none, or is no bin of numbers.
        high: What all values in the cell are below; None likewise.
    """

    label: str
    low: float | None = None
    high: float | None = None


class Vector(Reply):
    """A sign for each row asked, in order of arrival; see docs/messages.md for its use.

    Attributes:
        bits: 1 where the sign is +1, packed into bytes, the first row's the highest bit of the first byte; as
            base64.
        agreement: Mean of the product of a row's sign with that of its private bit.
    """

    bits: Annotated[str, Field(repr=False)]
    agreement: float


class Answer(Reply):
    """A noisy answer, a refusal, or a quote.

    Attributes:
        value: Share of the ``n`` rows asked, in [0, 1].
        count: Estimated rows; beyond 2**53 only for readers with 64-bit integers.
        error_bar: Half width around ``value`` at ``confidence``, for a query chosen before the tables that
            answer it were published; None where nothing is known.
        total: Estimated sum of ``attribute`` over the rows that count, which are ``count``; ``mean`` is their
            ratio, missing where nothing is known of it. Bars are half widths in the attribute's own unit.
        rows: Beside a sum, where it was asked for: estimated rows that satisfy the condition, those without
            a value included. ``rows_bar`` is its half width, in rows.
        found: The quantile, the median, the most frequent value. ``error_bar`` is then that of its rank.
        no_answer: True where such a value was tested and must not be named.
        vector: Responses to a private bit. ``error_bar`` is then that of a mean product with them.
        side: Where a count lies, or a point. ``error_bar`` is then by how much it may be otherwise.
        window: First and last phase the answer speaks of.
    """

    version: Literal[1] = 1
    dataset: str
    query_id: str
    analyst: str
    status: Literal["answered", "refused", "quoted"]
    value: float | None = None
    count: int | None = None
    n: int | None = None
    error_bar: float | None = None
    error_bar_simultaneous: float | None = None
    confidence: float | None = None
    difficulty: Literal["easy", "hard"] | None = None
    path: str | None = None
    total: float | None = None
    total_bar: float | None = None
    mean: float | None = None
    mean_bar: float | None = None
    rows: int | None = None
    rows_bar: float | None = None
    table: Table | None = None
    batch: Batched | None = None
    found: FoundCell | None = None
    no_answer: bool | None = None
    vector: Vector | None = None
    side: Literal["below", "between", "above"] | None = None
    privacy_loss: PrivacyLoss | None = None
    budget: BudgetShares | None = None
    phase: int | None = None
    window: tuple[int, int] | None = None
    note: str | None = None
    reason: Reason | None = None

    def to_bytes(self) -> bytes:
        return self.__pydantic_serializer__.to_json(self, exclude_none=True)


class Event(Reply):
    """Something public that happened to a data set; clients wait for these.

    Attributes:
        note: A warning about a definition that was accepted.
    """

    version: Literal[1] = 1
    dataset: str
    event: Literal[
        "dataset_accepted",
        "dataset_retired",
        "batch_accepted",
        "batch_refused",
        "phase_opened",
        "quarantined",
        "rollback_detected",
    ]
    batch_id: str | None = None
    rows: int | None = None
    waiting: int | None = None
    phase: int | None = None
    note: str | None = None
    reason: Reason | None = None

    def to_bytes(self) -> bytes:
        return self.__pydantic_serializer__.to_json(self, exclude_none=True)


class SyntheticColumn(Reply):
    """One attribute of synthetic rows, dictionary-encoded: row i has ``labels[codes[i]]``.

    Attributes:
        labels: A category's values and a number's bins as text, true and false; null for missing values.
    """

    labels: tuple[str | bool | None, ...]
    codes: tuple[int, ...]

    def values(self) -> list[str | bool | None]:
        """The label of each row."""
        return [self.labels[code] for code in self.codes]


class TableGap(Reply):
    """How far synthetic rows are from a published table, and that from the truth: shares of a cell."""

    attributes: tuple[str, ...]
    distance: float
    error_bar: float


class WorstGap(Reply):
    """The same of the worst among several published tables or answers."""

    compared: int
    distance: float
    error_bar: float


class SyntheticRows(Reply):
    """Synthetic rows in place of a data set's own, made of what was published alone.

    Attributes:
        window: First and last phase that the rows stand for.
        n: How many rows those phases have.
        rows: How many synthetic rows there are.
        columns: By name of the attribute.
        tables: Published tables that the rows were fitted to. For each cell of each of them the share among
            the rows is within ``distance + error_bar`` of the truth: all at once, with ``confidence``.
        others: The same of the worst published table of two attributes that they were not fitted to.
        answers: The same of the worst published answer to a hard query about the window.
        error: The largest ``distance + error_bar`` of ``tables`` and ``answers``; None where nothing is
            proved.
        note: What all this says, in words.
    """

    version: Literal[1] = 1
    dataset: str
    phase: int
    window: tuple[int, int]
    n: int
    rows: int
    columns: dict[str, SyntheticColumn]
    tables: tuple[TableGap, ...] = ()
    others: WorstGap | None = None
    answers: WorstGap | None = None
    error: float | None = None
    confidence: float
    note: str

    def values(self) -> dict[str, list[str | bool | None]]:
        """The rows column by column, as a data frame is made of them: ``pandas.DataFrame(it.values())``."""
        return {name: column.values() for name, column in self.columns.items()}

    def to_bytes(self) -> bytes:
        return self.__pydantic_serializer__.to_json(self, exclude_none=True)


class Rejected(Reply):
    """A record that no data set could take, named by where it stands.

    It holds nothing of the value and no digest of it: anyone may send a guess at another's rows, and equal
    digests would say that the guess was right.
    """

    version: Literal[1] = 1
    topic: str
    partition: int
    offset: int
    dataset: str | None = None
    analyst: str | None = None
    query_id: str | None = None
    batch_id: str | None = None
    reason: Reason

    def to_bytes(self) -> bytes:
        return self.__pydantic_serializer__.to_json(self, exclude_none=True)


__all__ = [
    "Answer",
    "Batched",
    "BudgetShares",
    "Event",
    "FoundCell",
    "PrivacyLoss",
    "Reason",
    "Rejected",
    "SyntheticColumn",
    "SyntheticRows",
    "Table",
    "TableGap",
    "Vector",
    "WorstGap",
]
