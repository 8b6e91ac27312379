"""Logs in this process, for tests."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from stream_dp.pipeline.intake.records import Record
from stream_dp.pipeline.kafka.topic_log import EndsBefore, LogEntry

_PIECE = 500


class LocalLog:
    """A log in memory. Workers of one process may share it and fence each other.

    Args:
        partitions: The number of partitions.

    Attributes:
        entries: The entries of each partition.
    """

    def __init__(self, partitions: int) -> None:
        self.entries: list[list[LogEntry]] = [[] for _ in range(partitions)]
        self._firsts = [0] * partitions

    @property
    def partitions(self) -> int:
        return len(self.entries)

    async def append(self, partition: int, entries: Sequence[LogEntry]) -> int | None:
        first = len(self.entries[partition])
        self.entries[partition] += entries
        return first

    async def bounds(self, partition: int, *, reaches: int = 0) -> tuple[int, int]:
        del reaches  # there is no other copy
        return self._firsts[partition], len(self.entries[partition])

    async def read(
        self, partition: int, start: int, end: int
    ) -> AsyncIterator[Sequence[tuple[int, LogEntry]]]:
        there = len(self.entries[partition])
        if end > there:
            raise EndsBefore(f"partition {partition} ends at {there}, and not at {end}")
        for at in range(max(start, self._firsts[partition]), end, _PIECE):
            till = min(at + _PIECE, end)
            yield list(enumerate(self.entries[partition][at:till], start=at))

    async def record(self, partition: int, offset: int) -> LogEntry | None:
        async for piece in self.read(partition, offset, offset + 1):
            for _, entry in piece:
                return entry
        return None

    async def forget(self, partition: int, before: int) -> None:
        self._firsts[partition] = max(before, self._firsts[partition])


class LocalRows:
    """Records of input topics in memory.

    Args:
        records: ``topic:partition`` -> its records, by offset.
    """

    batches = "batches"

    def __init__(self, records: Mapping[str, Sequence[Record]]) -> None:
        self._records = records

    async def forget(self, topic_partition: str, before: int) -> None:
        raise NotImplementedError(f"{topic_partition} keeps what is below {before}")

    async def records(self, topic_partition: str, offsets: Sequence[int]) -> AsyncIterator[Record]:
        for offset in offsets:
            yield self._records[topic_partition][offset]
