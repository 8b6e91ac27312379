"""Rows that wait for a phase: where they can be read again, and how they are read.

A commit that takes a batch in says where it is. The next owner reads it there, and finds the same rows.
Batches are on their topic for some time only. So rows that have waited for long are kept as private values.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from stream_dp.core.rows.column_values import Repeated
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.person_slots import Persons
from stream_dp.core.rows.row_changes import RowChanges
from stream_dp.core.rows.row_moments import DateColumn
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import CorruptState, InvalidBatch
from stream_dp.messages import Batch
from stream_dp.pipeline.intake.decoder import ingested
from stream_dp.pipeline.kafka.topic_log import InputReader as RowLog


class Taken(NamedTuple):
    """What a batch brings.

    Attributes:
        rows: Its rows; there may be none.
        changes: What it changes of rows that came before. None if it changes nothing.
    """

    rows: Rows
    changes: RowChanges | None = None

    @property
    def n_changes(self) -> tuple[int, int]:
        """The persons that it erases and the rows that it changes, blank ones included; public."""
        return (0, 0) if self.changes is None else (self.changes.n_persons, self.changes.n_rows)


@dataclass(frozen=True, slots=True)
class Waits:
    """A batch that was taken in, by the place where it can be read again.

    Attributes:
        topic_partition: ``topic:partition`` of it.
        offset: Its offset there.
        rows: The number of its rows that wait.
        dated_ms: Kafka's time of it, in milliseconds since 1970. -1 if it has none.
        period: The time under which it waits, see ``Times.with_batch``.
        came: The number of a period and of a tick, see ``waiting_ticks.Place``.
        changes: What ``Taken.n_changes`` says, as long as these changes wait for a sweep.
        after: The number of batches with changes that came before its rows. If it has changes itself, it is
            the last of these.
        batch_id: Its id.
    """

    topic_partition: str
    offset: int
    rows: int
    dated_ms: int
    period: int
    came: tuple[int, int]
    changes: tuple[int, int]
    after: int
    batch_id: str

    @property
    def n_changes(self) -> int:
        """The number of its changes that wait for a sweep."""
        return sum(self.changes)

    def to_bytes(self) -> bytes:
        of_rows = self.offset, self.rows, self.dated_ms, self.period, *self.came
        numbers = *of_rows, *self.changes, self.after
        written = " ".join(map(str, (self.topic_partition, *numbers, self.batch_id)))
        return written.encode("utf-8", "surrogatepass")

    @classmethod
    def from_bytes(cls, data: bytes) -> Waits:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: The bytes do not decode.
        """
        try:
            text = data.decode("utf-8", "surrogatepass")
            place, *numbers, batch_id = text.split(" ", 10)
            offset, rows, dated_ms, period, *others, after = map(int, numbers)
            came, changes = (others[0], others[1]), (others[2], others[3])
            return cls(place, offset, rows, dated_ms, period, came, changes, after, batch_id)
        except (ValueError, IndexError):
            raise CorruptState("a stored place of rows that wait does not decode") from None


async def read_again(
    dataset: str,
    waiting: Mapping[int, Waits],
    log: RowLog,
    partitions: int,
    read: Callable[[Batch], Taken],
) -> dict[int, Taken]:
    """What batches bring, read where they came from. Those that are there no more are left out. Private.

    Where a topic was cut, other records may have their offsets by now, or the empty ones that a repair has
    filled it with.

    Args:
        dataset: The name of the data set.
        waiting: The batches, by their numbers.
        log: The topics of inputs.
        partitions: The number of partitions of each.
        read: Reads what a batch brings.

    Raises:
        CorruptState: A batch has other rows by now.
        InputCut: A log ends before one of them.
        ServerUnavailable: No broker answers.
    """
    wanted: dict[str, dict[int, int]] = defaultdict(dict)
    for number, one in waiting.items():
        wanted[one.topic_partition][one.offset] = number
    found: dict[int, Taken] = {}
    for topic_partition, by_offset in wanted.items():
        async for record in log.records(topic_partition, sorted(by_offset)):
            number = by_offset[record.offset]
            request = ingested(record, partitions)
            if request is None or request.dataset != dataset:
                continue
            if request.batch.name != waiting[number].batch_id:
                continue
            taken, one = read(request.batch), waiting[number]
            if one.rows not in (0, taken.rows.n_rows) or one.changes not in (
                (0, 0),
                taken.n_changes,
            ):
                raise CorruptState(f"{dataset}: batch {request.batch.name} has other rows by now")
            found[number] = taken
    return found


def rows_of(
    batch: Batch, universe: Universe, persons: Persons | None, in_order: Collection[int]
) -> Rows:
    """The rows of a batch, encoded. They follow from the batch and these arguments alone.

    Args:
        batch: The batch.
        universe: The possible rows.
        persons: Reads whose the rows are; None where rows are protected.
        in_order: The attributes that are answered row by row, in order of arrival.

    Raises:
        InvalidBatch: They are not rows of this universe.
    """
    if batch.columns is not None:
        if not all(
            isinstance(column, list | Repeated | DateColumn) for column in batch.columns.values()
        ):
            raise InvalidBatch("columns", "a column is not a list", "give a list of values")
        return universe.encode_columns(batch.columns, persons)
    if batch.rows is not None:
        return universe.encode_rows(batch.rows, persons)
    if batch.cells is None:
        return universe.encode_rows([], persons)
    if persons is not None:
        raise InvalidBatch(
            "cells", "rows that are only counted do not say whose they are", "send rows or columns"
        )
    if in_order:
        # A row that moves from one cell to another would shift all rows between them by one place.
        raise InvalidBatch(
            "cells",
            "this data set answers row by row, and rows that are only counted have no order",
            "send rows or columns",
        )
    return universe.encode_cells(batch.cells)
