"""Logs in this process: for trials and simulations. They survive no crash."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence

from stream_dp.pipeline.logs import EndsBefore, Entry, Traces
from stream_dp.pipeline.newest import Head
from stream_dp.pipeline.records import Outgoing, Record
from stream_dp.state.kept import Place

__all__ = ["LocalCompacted", "LocalKept", "LocalLog", "LocalRows"]

_PIECE = 500


class LocalLog:
    """A log in memory. Workers of one process may share it and fence each other.

    Args:
        partitions: The number of partitions.

    Attributes:
        entries: The entries of each partition.
    """

    def __init__(self, partitions: int) -> None:
        self.entries: list[list[Entry]] = [[] for _ in range(partitions)]
        self._firsts = [0] * partitions

    @property
    def partitions(self) -> int:
        return len(self.entries)

    async def append(self, partition: int, entries: Sequence[Entry]) -> int | None:
        first = len(self.entries[partition])
        self.entries[partition] += entries
        return first

    async def bounds(self, partition: int, *, reaches: int = 0) -> tuple[int, int]:
        del reaches  # there is no other copy
        return self._firsts[partition], len(self.entries[partition])

    async def read(
        self, partition: int, start: int, end: int
    ) -> AsyncIterator[Sequence[tuple[int, Entry]]]:
        there = len(self.entries[partition])
        if end > there:
            raise EndsBefore(f"partition {partition} ends at {there}, and not at {end}")
        for at in range(max(start, self._firsts[partition]), end, _PIECE):
            till = min(at + _PIECE, end)
            yield list(enumerate(self.entries[partition][at:till], start=at))

    async def forget(self, partition: int, before: int) -> None:
        self._firsts[partition] = max(before, self._firsts[partition])


class LocalRows:
    """Records of input topics in memory.

    Args:
        records: ``topic:partition`` -> its records, by offset.
    """

    def __init__(self, records: Mapping[str, Sequence[Record]]) -> None:
        self._records = records

    async def records(self, topic_partition: str, offsets: Sequence[int]) -> AsyncIterator[Record]:
        for offset in offsets:
            yield self._records[topic_partition][offset]


class LocalCompacted:
    """No compacted topics: in one process nobody sends an old record behind a newer one."""

    async def heads(self, held: Collection[int]) -> AsyncIterator[Head]:
        del held
        nothing: list[Head] = []
        for head in nothing:
            yield head

    async def record(self, head: Head) -> Outgoing | None:
        del head
        return None


class LocalKept:
    """Values by key in memory.

    Attributes:
        values: The values by key, in the order in which they were put.
    """

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self._keys: list[bytes] = []  # by offset
        self._offsets: dict[bytes, int] = {}

    async def put(
        self, values: Sequence[tuple[bytes, bytes]], *, beat: Callable[[], None] = lambda: None
    ) -> list[Place]:
        for key, value in values:
            self.values.pop(key, None)
            self.values[key] = value
            self._offsets[key] = len(self._keys)
            self._keys.append(key)
        beat()
        return [self._place(key) for key, _ in values]

    async def drop(self, keys: Mapping[bytes, int]) -> None:
        for key in keys:
            self.values.pop(key, None)

    async def fetch(self, key: bytes, place: Place) -> bytes | None:
        return self.values[key] if key in self.values and self._place(key) == place else None

    async def places(
        self,
        datasets: Collection[str],
        partition: int,
        *,
        beat: Callable[[], None] = lambda: None,
    ) -> dict[bytes, Place]:
        beat()
        names = {name.encode() for name in datasets}
        return {key: self._place(key) for key in self.values if key.partition(b"/")[0] in names}

    async def keys(
        self,
        dataset_prefix: bytes,
        partition: int,
        start: int = 0,
        *,
        beat: Callable[[], None] = lambda: None,
    ) -> tuple[dict[bytes, Traces], int]:
        offsets = {key: self._offsets.get(key, 0) for key in self.values}
        found = {
            key: Traces(offset, 1)
            for key, offset in offsets.items()
            if key.startswith(dataset_prefix) and offset >= start
        }
        return found, len(self._keys)

    def _place(self, key: bytes) -> Place:
        return Place(len(self.values[key]), (self._offsets.get(key, -1),))
