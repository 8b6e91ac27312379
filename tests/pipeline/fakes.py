"""Redis, the journal and the topics of a ``World``, as a process or a broker's client sees them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from stream_dp.errors import ServerUnavailable, StoreUnavailable
from stream_dp.pipeline.intake.decoder import partition_of
from stream_dp.pipeline.intake.ownership import AskBounds
from stream_dp.pipeline.intake.records import Record
from stream_dp.pipeline.kafka.topic_log import EndsBefore, KeyedTopic, LogEntry
from tests.local_logs import LocalLog
from tests.pipeline.crash import CountingFuse, Crash
from tests.pipeline.trail import Sent

if TYPE_CHECKING:
    from tests.pipeline.world import World


class _Seen:
    """Something as one process sees it."""

    def __init__(self, world: World, process: int, fuse: CountingFuse) -> None:
        self._world = world
        self._process = process
        self._fuse = fuse

    async def effect(self) -> None:
        """Called before each step."""
        await self._world.processes[self._process].effect()


class FakeView(_Seen):
    """Redis as one process sees it. Each step is an effect, with the fuse before and after it."""

    def __init__(self, world: World, process: int, fuse: CountingFuse) -> None:
        super().__init__(world, process, fuse)
        self.away = 0
        self.steps: list[str] = []
        self.read: list[tuple[str, bytes]] = []

    def __getattr__(self, name: str) -> Any:
        step = getattr(self._world.view, name)

        async def watched(*arguments: Any, **named: Any) -> Any:
            await self.effect()
            self.steps.append(name)
            if name == "kept":
                self.read.append((arguments[0], arguments[1]))
            if self._world.view_away or self.away:
                self.away -= self.away > 0
                if self.away % 2:
                    await step(*arguments, **named)  # done, and its reply is lost
                raise StoreUnavailable("away for a moment")
            self._fuse(f"before {name}")
            found = await step(*arguments, **named)
            if name in ("rewrite", "apply"):
                one = arguments[0]
                of = (
                    {one.dataset}
                    if name == "rewrite"
                    else {each.commit.dataset for each in one} - found
                )
                for dataset in of:
                    self._world.wrote.setdefault(dataset, []).append(self._process)
            self._fuse(f"after {name}")
            return found

        return watched


class FakeLog(_Seen):
    """The journal as one process sees it. Each step is on the trail, with the fuse before and after it."""

    @property
    def partitions(self) -> int:
        return self._world.partitions

    async def append(self, partition: int, entries: Sequence[LogEntry]) -> int | None:
        await self.effect()
        self._fuse("before append")
        if self._world.holds(self._process, "append", partition, entries):
            raise Crash("an append is under way")
        lost = self._world.loses_reply()
        if lost == "late":
            self._world.held_back.append((self._process, "append", partition, entries))
        if lost in ("before", "late"):
            raise ServerUnavailable("the broker is away for a moment")
        first = self._world.append(self._process, partition, entries)
        self._fuse("after append")
        if lost == "after":
            raise ServerUnavailable("the broker is away for a moment")
        return None if lost == "offset" else first

    async def bounds(self, partition: int, *, reaches: int = 0) -> tuple[int, int]:
        first, end = self._world.forgotten[partition], len(self._world.journal[partition])
        if self._world.is_stale() and max(first, reaches) < end:
            end = self._world.random.randrange(max(first, reaches), end)
        return first, end

    async def forget(self, partition: int, before: int) -> None:
        await self.effect()
        self._fuse("before forget")
        if self._world.holds(self._process, "forget", partition, before):
            raise Crash("a deletion is under way")
        self._world.forget(partition, before)
        self._fuse("after forget")

    async def read(
        self, partition: int, start: int, end: int
    ) -> AsyncIterator[Sequence[tuple[int, LogEntry]]]:
        await self.effect()
        start = max(start, self._world.forgotten[partition])
        there = len(self._world.journal[partition])
        if start < end and self._world.is_stale():
            there = self._world.random.randrange(start, end)
        entries = list(enumerate(self._world.journal[partition]))[start : min(end, there)]
        for at in range(0, len(entries), 7):
            yield entries[at : at + 7]
        if there < end:
            self.ends_before(there, end)

    async def record(self, partition: int, offset: int) -> LogEntry | None:
        """Single entries, as a fetcher reads them."""
        async for piece in self.read(partition, offset, offset + 1):
            for _, entry in piece:
                return entry
        return None

    def ends_before(self, there: int, end: int) -> None:
        """Says that not all of a reading was there."""
        raise EndsBefore(f"the journal ends at {there}, and not at {end}")


class FakeRows:
    """The batches of a world, to be read again."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def records(self, topic_partition: str, offsets: Sequence[int]) -> AsyncIterator[Record]:
        for offset in offsets:
            if self._world.is_stale():
                self.ends_before(offset)
                return
            record = self._world.log[topic_partition][offset]
            if record.record_id not in self._world.expired:
                yield record

    batches = "in.batches"

    async def forget(self, topic_partition: str, before: int) -> None:
        for record in self._world.log[topic_partition][:before]:
            self._world.deleted.add(record.record_id)
        self._world.expired |= self._world.deleted

    def ends_before(self, offset: int) -> None:
        """Says that not all of a reading was there."""
        raise ServerUnavailable(f"the topic has no offset {offset} yet")


class FakeKept(_Seen, KeyedTopic):
    """The private topic of blocks as one process sees it."""

    def __init__(self, world: World, process: int, fuse: CountingFuse) -> None:
        super().__init__(world, process, fuse)
        self.fetched: list[bytes] = []

    async def put(
        self,
        values: Sequence[tuple[bytes, Sequence[bytes]]],
        *,
        beat: Callable[[], None] = lambda: None,
    ) -> list[tuple[int, ...]]:
        del beat
        return [await self._put(key, tuple(parts)) for key, parts in values]

    async def _put(self, key: bytes, parts: tuple[bytes, ...]) -> tuple[int, ...]:
        await self.effect()
        self._fuse("before put")
        if self._world.holds(self._process, "put", key, parts):
            raise Crash("a value is under way")
        offsets = self._world.put(self._process, key, parts)
        self._fuse("after put")
        return offsets

    async def mark(self, dataset: str) -> None:
        await self.effect()

    async def fetch(self, key: bytes, number: int, offset: int) -> bytes | None:
        await self.effect()
        self.fetched.append(key)
        if self._world.is_stale():
            self.ends_before()
            return None
        if key not in self._world.kept:
            return None
        is_there = dict(enumerate(self._world.kept_at(key))).get(number) == offset
        return self._world.kept[key][number] if is_there else None

    def ends_before(self) -> None:
        """Says that not all of a reading was there."""
        raise EndsBefore("the topic of blocks ends before what was put there last")

    async def drop(self, keys: Mapping[bytes, int]) -> None:
        for key in keys:
            await self._drop(key)

    async def _drop(self, key: bytes) -> None:
        await self.effect()
        self._fuse("before drop")
        if self._world.holds(self._process, "drop", key):
            raise Crash("a value is being erased")
        self._world.drop(key)
        self._fuse("after drop")

    async def parts(
        self, dataset: str, start: int = 0, *, beat: Callable[[], None] = lambda: None
    ) -> tuple[dict[bytes, dict[int, int]], int]:
        beat()
        end = self._world.kept_end
        if end and self._world.is_stale():
            self.ends_before()
            end = self._world.random.randrange(end)
        found = {
            key: {n: at for n, at in enumerate(self._world.kept_at(key)) if start <= at < end}
            for key in list(self._world.kept)
            if key.startswith(f"{dataset}/".encode())
        }
        return {key: offsets for key, offsets in found.items() if offsets}, end


class FakePublished(LocalLog):
    """What has left to an output topic, with the partitions of the inputs."""

    def __init__(self, world: World, role: str) -> None:
        super().__init__(world.partitions)
        self._world = world
        self._role = role

    async def bounds(self, partition: int, *, reaches: int = 0) -> tuple[int, int]:
        self.entries[partition] = [
            LogEntry(event.outgoing.key.encode(), event.outgoing.value, event.outgoing.headers)
            for event in self._world.trail
            if isinstance(event, Sent)
            and event.outgoing.role == self._role
            and partition_of(event.outgoing.key.encode(), self.partitions) == partition
        ]
        return await super().bounds(partition, reaches=reaches)


def bounds(of: Mapping[str, tuple[int, int]]) -> AskBounds:
    """What a broker tells that has these logs: where they begin, and where they end."""

    async def ask(_: object) -> Mapping[str, tuple[int, int]]:
        return of

    return ask
