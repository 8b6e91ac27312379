"""Tracks the partitions of this worker, and up to where each of their topics is read.

A record counts only while its partition is held, and only if the partition was held all along since the
record was fetched. ``Ownership`` answers that question, and says where a worker may have died before.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from stream_dp.pipeline.intake.decoder import partition_in, partition_of
from stream_dp.pipeline.intake.records import Record
from stream_dp.pipeline.journal.marks import Marks

_log = logging.getLogger(__name__)

GROUP_SIZE = 128
"""Most records that a worker is given at once; a worker that died had no more in hand of any partition."""

MOST_IN_HAND = 2 * GROUP_SIZE
"""Most records that a worker has taken and not finished."""

REJECTED = "rejected "
"""Prefix of a second mark next to each watermark.

A record below that mark that no data set has passed was rejected: it named no data set, or its sender was not
allowed to ask, which is found out before its name is looked up.
"""

AskBounds = Callable[[Mapping[str, int]], Awaitable[Mapping[str, tuple[int, int]]]]
"""Returns, for each ``topic:partition``, the first offset that the broker has, and that behind the last.

It is told up to where logs were read, since a broker that does not lead any more says an earlier end."""

_NEVER = 2**63


@dataclass
class _Doubt:
    """The records of one partition at which a worker may have died.

    Attributes:
        end: The offset behind the last record that there was. No worker had a later one in hand.
        left: The number of records that may still be the one at which it died.
    """

    end: int
    left: int = MOST_IN_HAND


class Ownership:
    """The partitions in hand, the generation of the consumer group, and the next offset of each topic.

    A topic and a partition are named together, as ``topic:partition``.

    Args:
        partitions: Partitions of each input topic. All input topics have the same number.

    Attributes:
        held: The partitions that are this worker's.
        generation: The generation of the consumer group that assigned them.
        deleted: ``topic:partition`` -> how many records were gone there before anyone read them.
        cut: ``topic:partition`` -> the offset up to which it was read, where its log ends before that. Such a
            partition is not read: its next records would have offsets that others had.
    """

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions
        self.held: frozenset[int] = frozenset()
        self.generation = 0
        self.deleted: dict[str, int] = {}
        self.cut: dict[str, int] = {}
        self._next: dict[str, int] = {}
        self._doubts: dict[str, _Doubt] = {}
        self._marks: Mapping[str, int] = {}  # those of former owners

    # ------------------------------------------------------------ what is mine

    @property
    def reads(self) -> bool:
        """Whether the reading position of some partition is known."""
        return bool(self._next)

    def is_held(self, dataset: str) -> bool:
        """Returns whether the partition of a data set is held."""
        return partition_of(dataset.encode(), self.partitions) in self.held

    def is_mine(self, record: Record) -> bool:
        """Returns whether the record's partition has been held all along since the record was fetched."""
        return record.generation == self.generation and record.partition in self.held

    def is_fresh(self, record: Record) -> bool:
        """Returns whether the record is this worker's and was not taken yet."""
        return self.is_mine(record) and record.offset >= self._next.get(
            record.topic_partition, _NEVER
        )

    def was_rejected(self, record: Record) -> bool:
        """Returns whether the record may have been rejected before a crash because it named no data set."""
        return record.offset < self._marks.get(REJECTED + record.topic_partition, 0)

    # ------------------------------------------------------------ assignments

    def enter(self, generation: int) -> None:
        """Holds nothing any more, and begins a generation of the consumer group.

        Records of another generation are dropped from now on: they were fetched before, wait in some buffer,
        and are read again. Taken now, they would be taken before those that come earlier in the log.
        """
        self._keep(frozenset())
        self.generation = generation

    def assigned(self, partitions: Iterable[int]) -> bool:
        """Holds these partitions and no others from now on; returns whether some are new."""
        held = frozenset(partitions)
        new = held - self.held
        self._keep(held)
        return bool(new)

    def revoked(self, partitions: Iterable[int]) -> None:
        """Lets go of partitions at once."""
        self._keep(self.held - frozenset(partitions))

    def _keep(self, held: frozenset[int]) -> None:
        self.held = held
        by_partitions: tuple[dict[str, Any], ...] = (self._next, self._doubts, self.cut)
        for by_partition in by_partitions:
            for key in [key for key in by_partition if partition_in(key) not in held]:
                del by_partition[key]

    # ------------------------------------------------------------ reading positions

    async def positions(self, ask: AskBounds, known: Mapping[int, Marks]) -> dict[str, int]:
        """Returns where reading goes on.

        A log that ends before that was cut, and is not among the results.

        Args:
            ask: Asks the broker where the logs begin and end. It is asked last, since logs grow: an end of
                before would lie below what a former owner has read since.
            known: Partition -> what the journal says of it, as its owner has read it.
        """
        marks = {mark: to for one in known.values() for mark, to in one.watermarks.items()}
        cut = {place: read for one in known.values() for place, read in one.cut.items()}
        ranges = await ask({**marks, **self._next})
        self._marks = marks
        positions = {}
        for topic_partition, (first, end) in ranges.items():
            position = max(marks.get(topic_partition, first), self._next.get(topic_partition, 0))
            if position > end or topic_partition in cut:
                self.found_cut(topic_partition, cut.get(topic_partition, position), end)
                continue
            self.cut.pop(topic_partition, None)
            if position < first:  # offsets of records that are gone are nobody else's
                self.report_deleted(topic_partition, position, first)
                position = first
            elif first and not any(
                topic_partition in some for some in (marks, self._next, self.deleted)
            ):
                self.report_deleted(topic_partition, 0, first)
            positions[topic_partition] = position
        # A worker that died said no goodbye, and the next one must find out at which record it died.
        for topic_partition, (_, end) in ranges.items():
            one = known.get(partition_in(topic_partition))
            if one is not None and one.inherited and topic_partition in positions:
                self._doubts.setdefault(topic_partition, _Doubt(end))
        return positions

    def found_cut(self, topic_partition: str, read: int, end: int) -> None:
        """Notes that a log was cut: soon it may have grown beyond what was read of it.

        Args:
            topic_partition: The log.
            read: The offset up to which it was read.
            end: Where it ends.
        """
        self._next.pop(topic_partition, None)
        self.cut[topic_partition] = read
        _log.error("%s", cut_off(topic_partition, read, end))

    def reading_from(self, positions: Mapping[str, int], generation: int = 0) -> None:
        """Tells that the broker's reading positions are set. Records of other partitions are dropped."""
        if generation == self.generation:
            for topic_partition, offset in positions.items():
                if partition_in(topic_partition) in self.held:
                    self._next.setdefault(topic_partition, offset)

    def next_offset(self, topic_partition: str) -> int | None:
        """The offset behind the last record taken; None for a partition that is not read."""
        return self._next.get(topic_partition)

    def taken(self, record: Record) -> None:
        """Moves the reading position behind a record."""
        self._next[record.topic_partition] = record.offset + 1

    def pass_over(self, topic_partition: str, start: int, end: int) -> bool:
        """Moves a position from ``start`` to ``end``; returns whether it stood there."""
        if self._next.get(topic_partition) != start:
            return False
        self._next[topic_partition] = end
        return True

    def report_deleted(self, topic_partition: str, first: int, end: int) -> None:
        """Says that the records from offset ``first`` to below ``end`` were gone before anyone read them."""
        _log.warning(
            "records %d to %d of %s were deleted before anyone read them, and can never count: see "
            "`stream-dp doctor` for its retention",
            *(first, end - 1, topic_partition),
        )
        self.deleted[topic_partition] = self.deleted.get(topic_partition, 0) + end - first

    # ------------------------------------------------------------ workers that died

    def in_doubt(self, record: Record) -> bool:
        """Returns whether the last worker may have died at this record."""
        doubt = self._doubts.get(record.topic_partition)
        return doubt is not None and doubt.left > 0 and record.offset < doubt.end

    def doubted(self, record: Record) -> None:
        """Counts a record in doubt: a worker that died had a limited number in hand."""
        if (doubt := self._doubts.get(record.topic_partition)) is not None:
            doubt.left -= 1

    def doubtful(self) -> set[int]:
        """The partitions where a record is still in doubt: no goodbye may be said there."""
        return {
            partition_in(topic_partition)
            for topic_partition, doubt in self._doubts.items()
            if doubt.left and self._next.get(topic_partition, 0) < doubt.end
        }


def cut_off(topic_partition: str, read: int, end: int) -> str:
    """Says that a log ended before the offset up to which it was read, and what to do."""
    return (
        f"{topic_partition} was read to offset {read}, was cut, and ends at {end} now, so it is not "
        "read: see `stream-dp journal repair --input`"
    )
