"""The messages of the worker other than answers: events, rejections, synthetic rows and ledger entries."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StringConstraints

from stream_dp.messages.answer_forms import Reason
from stream_dp.messages.message_base import Reply


class Event(Reply):
    """Something public that happened to a data set; clients wait for these.

    Attributes:
        event: What happened.
        batch_id: The id of the batch.
        rows: The rows of the batch, or of the phase that opened; the late rows of one that is complete.
        waiting: The rows that wait for the next phase.
        phase: The phase that opened or is complete, or the number of open phases.
        since: When an opened phase begins, or the period that a batch is about.
        until: When it has ended.
        late: Whether the period of a batch had closed before.
        late_phase: The phase of its period, to which the rows of a late batch come. None if they are in the
            phase that opens next.
        late_batches: The batches of an opened phase that are about earlier periods.
        note: A warning, or what happened in words.
        reason: Why a batch was refused, a record is in quarantine, or nobody can serve the data set.
        query_id: The id of the answer that raised an alert.
        analyst: The analyst of the standing query.
        cells: The cells that raised an alert, at most a hundred.
        since_phase: The first phase, without a gap, in which the alert held.
        phases: The first and the last phase without rows from now on.
        batches: The number of waiting batches whose rows are lost.
        producer: The producer of the batch.
        sequence: The number of the batch.
        next_sequence: The number of the producer's next batch.
        schema_version: The version of the schema that counts from ``phase`` on.
        values: How many values were found. The catalog has them.
        changes: The persons that a batch or a sweep erases, and the rows that it changes. Blank ones count.
        change_number: The number of a batch with changes, or of the last whose changes a sweep has made.
        due: When the sweep begins that makes the changes of a batch.
        sweep: The number of the sweep. The event is its receipt.
        lost: The batches with changes so far that were lost before they were made.
        at: The time of a sweep.
        signature: The data set's signature of these facts. The first entry of its ledger has the public key.
        attribute: The number for which bounds are proposed.
        low: About its least value. Absent where nothing can be proposed.
        high: About its largest value.
        edges: Where bins meet that have about the same number of rows.
    """

    version: Literal[1] = 1
    dataset: str
    event: Literal[
        "dataset_accepted",
        "dataset_retired",
        "batch_accepted",
        "batch_refused",
        "batch_known",
        "phase_opened",
        "phase_closed",
        "phase_complete",
        "quarantined",
        "repaired",
        "stopped",
        "rows_lost",
        "written_off",
        "analysts_changed",
        "schema_changed",
        "swept",
        "changes_lost",
        "values_found",
        "bounds_proposed",
        "alert",
    ]
    batch_id: str | None = None
    rows: int | None = None
    waiting: int | None = None
    phase: int | None = None
    since: str | None = None
    until: str | None = None
    late: bool | None = None
    late_phase: int | None = None
    late_batches: int | None = None
    note: str | None = None
    reason: Reason | None = None
    query_id: str | None = None
    analyst: str | None = None
    cells: tuple[str, ...] | None = None
    since_phase: int | None = None
    phases: tuple[int, int] | None = None
    batches: int | None = None
    producer: str | None = None
    sequence: int | None = None
    next_sequence: int | None = None
    schema_version: int | None = None
    values: int | None = None
    changes: int | None = None
    change_number: int | None = None
    due: str | None = None
    sweep: int | None = None
    lost: int | None = None
    at: str | None = None
    signature: str | None = None
    attribute: str | None = None
    low: float | None = None
    high: float | None = None
    edges: tuple[float, ...] | None = None

    @property
    def batch(self) -> str | None:
        """The name of a batch, as ``Batch.name``. None in events that are about none."""
        return self.batch_id if self.producer is None else f"{self.producer} {self.sequence}"


class SyntheticColumn(Reply):
    """One attribute of synthetic rows, dictionary-encoded: row i has ``labels[codes[i]]``.

    Attributes:
        labels: Values, bins as text, true or false; null for missing values.
        codes: The place of each row's label.
    """

    labels: tuple[str | bool | None, ...]
    codes: tuple[int, ...]

    def values(self) -> list[str | bool | None]:
        """The label of each row."""
        return [self.labels[code] for code in self.codes]


class TableGap(Reply):
    """The distances from synthetic rows to a published table, and from it to the truth, as shares.

    Attributes:
        attributes: The attributes of the table.
        distance: How far its shares among the rows are from the published ones, with rounding to whole
            rows.
        error_bar: How far the published ones are from the truth.
    """

    attributes: tuple[str, ...]
    distance: float
    error_bar: float


class WorstGap(Reply):
    """The same of the worst among several published tables or answers.

    Attributes:
        compared: The number of tables or answers that were compared.
        distance: The distance of the worst one.
        error_bar: Its error bar.
    """

    compared: int
    distance: float
    error_bar: float


class SyntheticRows(Reply):
    """Synthetic rows in place of a data set's own, made of what was published alone.

    Attributes:
        phase: The number of open phases.
        window: The first and the last phase that the rows stand for.
        n: The number of rows in these phases.
        rows: The number of synthetic rows.
        columns: The rows, by the name of each attribute. Row i has ``labels[codes[i]]``.
        tables: The tables that the rows were fitted to. The share of each cell is within ``distance +
            error_bar`` of the truth.
        others: The same of the worst other published table of two attributes.
        answers: The same of the worst answer to a hard query, with the papers' profiles.
        error: The largest of these sums. Absent where nothing is proved.
        confidence: The confidence of all that at once.
        note: The same in words.
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


class RunningTable(Reply):
    """The counts of one tile: of the period so far, and of the last tick.

    Attributes:
        where: The condition on the rows.
        group_by: The attributes of a table.
        labels: The labels of the cells of each attribute. The last attribute varies fastest.
        counts: The rows of the period so far in each cell; one number for a condition alone.
        count_bar: The error bar of each.
        count_bar_all_ticks: The error bar of each, where those of all ticks of the period hold at once.
        last_counts: The rows that came since the tick before.
        last_count_bar: The error bar of each of these.
    """

    where: dict[str, Any] | None = None
    group_by: tuple[str, ...] = ()
    labels: tuple[tuple[str, ...], ...] = ()
    counts: tuple[float, ...]
    count_bar: float
    count_bar_all_ticks: float
    last_counts: tuple[float, ...]
    last_count_bar: float


class RunningTick(Reply):
    """The totals of a period at one of its ticks.

    Attributes:
        dataset: The data set.
        since: When the period begins.
        until: Up to when it is counted; the end of the period at its last tick.
        tick: The number of the tick.
        ticks: The ticks of the period.
        rows: The rows that have come. Where persons are protected, fewer may count.
        confidence: The probability with which an error bar covers.
        tiles: The counts, in the order of the definition.
        share: The share of a line that all ticks of the period cost together.
        least_cell: The ``least_cell`` of the definition.
    """

    version: Literal[1] = 1
    dataset: str
    since: str
    until: str
    tick: int
    ticks: int
    rows: int
    confidence: float
    tiles: tuple[RunningTable, ...]
    share: float
    least_cell: int | None = None


class Rejected(Reply):
    """A record that no data set could take, named by where it stands.

    It holds nothing of the value and no digest of it: anyone may send a guess at another's rows, and equal
    digests would say that the guess was right.

    Attributes:
        topic: The topic of the record.
        partition: Its partition.
        offset: Its offset.
        dataset: The data set that it names.
        analyst: Who asked.
        query_id: The id of its query.
        batch_id: The id of its batch.
        next_sequence: The next number of its producer, if that was another one.
        reason: Why it was rejected.
    """

    version: Literal[1] = 1
    topic: str
    partition: int
    offset: int
    dataset: str | None = None
    analyst: str | None = None
    query_id: str | None = None
    batch_id: str | None = None
    next_sequence: int | None = None
    reason: Reason


EntryKind = Literal[
    "dataset",
    "phase",
    "charge",
    "retired",
    "written_off",
    "analysts",
    "schema",
    "running",
    "late",
    "sweep",
]
"""What an entry of a ledger says."""

Exact = Annotated[str, StringConstraints(pattern=r"^[0-9]+(/[0-9]+)?$")]
"""An exact fraction, as p or p/q."""


class RunLoss(Reply):
    """The privacy loss of a look of another kind than counts, for its whole run."""

    epsilon: Exact
    delta: Exact


class LedgerLook(Reply):
    """A look that is charged, with all that its price follows from. Further fields depend on its kind."""

    model_config = ConfigDict(extra="allow")

    kind: str
    loss: RunLoss | None = None


class LedgerEntry(Reply):
    """One link of a data set's hash chain. Which fields it has depends on its kind.

    Attributes:
        seq: Counts the entries from 0.
        prev: The head of the chain before this entry; the first one is 32 zero bytes. SHA-256(prev + bytes
            of the entry) is the next head.
        kind: What the entry says.
        definition: dataset: the definition as it was accepted.
        line: dataset: what a phase may spend, as exact fractions: rho and delta, or epsilon if epsilons are
            added up.
        phase: phase, late: its number, from 1. schema: the first phase that has the attributes.
        rows: phase: its rows. late: the rows that come to it, which is complete with them.
        since: phase, running: when it begins, if that is known.
        until: phase, running: when it ends.
        erased: phase: the number of first phases whose rows are now erased.
        phases: written_off: the number of first phases whose budget counts as spent. sweep: the first and
            the last phase whose rows it may have changed.
        looks: charge: the looks, with everything that determines their price.
        charges: charge, written_off: [phase from 0, rho or epsilon, delta], in units of 2^-50 of the line.
        nonce: charge: random bytes, so that no two entries are equal.
        analyst: charge: who asks. Absent where the data set measures by itself.
        paid_by: charge: present where another share than the analyst's pays.
        analysts: analysts: what is allowed to whom from now on.
        owner: analysts: what is kept for the owner, if anything.
        schema_version: schema: the number of the version that counts from ``phase`` on.
        attributes: schema: the attributes of it.
        indices: schema: by what number looks name each of these attributes.
        period: running: the number of the period, in minutes since 1970.
        ticks: running: how many ticks it pays for.
        step: running: the noise of each, as a step of the grid of scales.
        tiles: running: what is counted.
        receipts: dataset: the public key of its receipts, where rows can be erased.
        sweep: sweep: its number, from 1. The entry is its receipt, as the event is.
        change_number: sweep: the number of the last batch whose changes it has made.
        changes: sweep: the persons that it erases, and the rows that it changes. Blank ones count.
        lost: sweep: the batches with changes so far that were lost before they were made.
        at: sweep: its time.
        signature: sweep: the signature of these facts, see ``receipts``.
    """

    version: Literal[1]
    dataset: str
    seq: Annotated[int, Field(ge=0)]
    prev: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
    kind: EntryKind
    definition: dict[str, Any] | None = None
    line: dict[Literal["rho", "epsilon", "delta"], Exact] | None = None
    phase: Annotated[int, Field(ge=1)] | None = None
    rows: Annotated[int, Field(ge=0)] | None = None
    since: str | None = None
    until: str | None = None
    erased: Annotated[int, Field(ge=1)] | None = None
    phases: Annotated[int, Field(ge=0)] | tuple[int, int] | None = None
    looks: tuple[LedgerLook, ...] | None = None
    charges: tuple[tuple[int, int, int], ...] | None = None
    nonce: Annotated[str, StringConstraints(pattern="^[0-9a-f]{32}$")] | None = None
    analyst: str | None = None
    paid_by: Literal["owner"] | None = None
    analysts: dict[str, Any] | None = None
    owner: dict[str, Any] | None = None
    schema_version: Annotated[int, Field(ge=2)] | None = None
    attributes: tuple[dict[str, Any], ...] | None = None
    indices: tuple[Annotated[int, Field(ge=0)], ...] | None = None
    period: Annotated[int, Field(ge=0)] | None = None
    ticks: Annotated[int, Field(ge=1)] | None = None
    step: int | None = None
    tiles: tuple[dict[str, Any], ...] | None = None
    receipts: str | None = None
    sweep: Annotated[int, Field(ge=1)] | None = None
    change_number: Annotated[int, Field(ge=1)] | None = None
    changes: Annotated[int, Field(ge=0)] | None = None
    lost: Annotated[int, Field(ge=0)] | None = None
    at: str | None = None
    signature: str | None = None
