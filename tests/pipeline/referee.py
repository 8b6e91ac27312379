"""A stream in one process: a log with offsets, workers that die and start again, and a referee.

``World`` holds what survives a crash (the log, the store, what was released) and a trail of everything that
happened, in order. ``Process`` is one worker: its memory ends when it dies. ``complaints`` is the referee: it
reads the log, the trail and the store, and knows nothing of how a worker works.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import math
import random
import re
from collections import Counter, defaultdict
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from fractions import Fraction
from typing import Any, Literal, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt

from stream_dp.audit import verify
from stream_dp.core.accounting import UNITS
from stream_dp.core.blocks import Block, Blocks
from stream_dp.core.mechanism import dearest
from stream_dp.core.noise import NoiseSource
from stream_dp.core.persons import Persons, PersonSecret
from stream_dp.core.universe import Rows
from stream_dp.errors import LedgerBroken, ServerUnavailable, StoreError, StoreUnavailable
from stream_dp.messages import INPUTS, Definition, UnitSpec
from stream_dp.pipeline.checkpoints import Often
from stream_dp.pipeline.decoding import partition_in, partition_of
from stream_dp.pipeline.fuse import CrashPoint
from stream_dp.pipeline.keeping import field_of
from stream_dp.pipeline.logs import Entry, Traces
from stream_dp.pipeline.lost_rows import given_up
from stream_dp.pipeline.newest import COMPACTED, Head
from stream_dp.pipeline.ownership import AskBounds
from stream_dp.pipeline.records import Outgoing, Record, commit_of
from stream_dp.pipeline.store_watch import StoreWatch
from stream_dp.pipeline.worker import Worker
from stream_dp.profiles.building import build
from stream_dp.state import ledger, local
from stream_dp.state.codec import OutboxRecord, answer_from_bytes
from stream_dp.state.journal import Accepted, CommitRecord
from stream_dp.state.kept import Place
from stream_dp.state.local import LocalStore
from stream_dp.state.store import Snapshot, Transition
from stream_dp.state.taken import taken_id
from tests.noise import RoundedNoise

T = TypeVar("T")


class Crash(BaseException):
    """The process died here: nobody may catch it but the test."""


class _Fuse:
    """Counts effects and blows at one of them; -1 never blows."""

    def __init__(self, at: int = -1, point: CrashPoint | None = None) -> None:
        self.at = at
        self.point = point
        self.met = 0

    def __call__(self, met: str) -> None:
        if self.point is not None and met is not self.point:
            return
        if self.met == self.at:
            self.met += 1
            raise Crash(met)
        self.met += 1


# ---------------------------------------------------------------- what happened


@dataclass(frozen=True)
class Sent:
    """A record reached the broker."""

    process: int
    outgoing: Outgoing
    spent: int
    stored: bytes | None = field(repr=False)
    journal: tuple[int, ...] = ()

    @property
    def commit(self) -> tuple[str, int]:
        """The data set and the commit that it says to follow from; 0 if from none."""
        commit = dict(self.outgoing.headers).get("commit", b"0")
        return self.outgoing.key.partition(" ")[0], int(commit)


@dataclass(frozen=True)
class Committed:
    process: int
    transition: Transition = field(repr=False)
    record: bytes = field(default=b"", repr=False)


@dataclass(frozen=True)
class Looked:
    """The data of a data set was read."""

    process: int
    dataset: str
    blocks: range


class WatchedStore:
    """The store as one process sees it. Each step is on the trail, with the fuse before and after it."""

    def __init__(self, store: LocalStore, world: World, process: int, fuse: _Fuse) -> None:
        self._store = store
        self._world = world
        self._process = process
        self._fuse = fuse
        self.away = 0
        self.steps: list[str] = []
        self.blocks: list[tuple[str, int]] = []
        # The ids of records whose attempts were counted before they were taken.
        self.alone: list[str] = []

    def __getattr__(self, name: str) -> Any:
        step = getattr(self._store, name)

        async def watched(*arguments: Any, **named: Any) -> Any:
            await self._world.processes[self._process].effect()
            self.steps.append(name)
            if name == "block":
                self.blocks.append((arguments[0], arguments[2]))
            if name == "attempts" and not arguments[0].startswith("the take-over of"):
                self.alone.append(arguments[0])
            if self.away:
                self.away -= 1
                if self.away % 2:
                    await step(*arguments, **named)  # done, and its reply is lost
                raise StoreUnavailable("away for a moment")
            if name == "commit_all":
                return [await self._commit(one) for one in arguments[0]]
            if name == "commit":
                if (refused := await self._commit(arguments[0])) is not None:
                    raise refused
                return None
            self._fuse(f"before {name}")
            found = await step(*arguments, **named)
            self._fuse(f"after {name}")
            return found

        return watched

    async def _commit(self, transition: Transition) -> StoreError | None:
        """One of several that travel together; the process may die between them."""
        self._fuse("before commit")
        (refused,) = await self._store.commit_all([transition])
        if refused is None:
            record = transition.outbox or self._world.records.get(transition.new_trail, b"")
            self._world.records[transition.new_trail] = record
            self._world.trail.append(Committed(self._process, transition, record))
        self._fuse("after commit")
        return refused


class FakeLog:
    """The journal as one process sees it. Each step is on the trail, with the fuse before and after it."""

    def __init__(self, world: World, process: int, fuse: _Fuse) -> None:
        self._world = world
        self._process = process
        self._fuse = fuse

    @property
    def partitions(self) -> int:
        return self._world.partitions

    async def append(self, partition: int, entries: Sequence[Entry]) -> int | None:
        await self._world.processes[self._process].effect()
        self._fuse("before append")
        log, lost = self._world.journal[partition], self._world.loses_reply()
        if lost == "before":
            raise ServerUnavailable("the broker is away for a moment")
        first = len(log)
        log += entries
        self._fuse("after append")
        if lost == "after":
            raise ServerUnavailable("the broker is away for a moment")
        return None if lost == "offset" else first

    async def bounds(self, partition: int) -> tuple[int, int]:
        return self._world.forgotten[partition], len(self._world.journal[partition])

    async def forget(self, partition: int, before: int) -> None:
        await self._world.processes[self._process].effect()
        self._fuse("before forget")
        self._world.forgotten[partition] = max(before, self._world.forgotten[partition])
        self._fuse("after forget")

    async def read(
        self, partition: int, start: int, end: int
    ) -> AsyncIterator[Sequence[tuple[int, Entry]]]:
        await self._world.processes[self._process].effect()
        start = max(start, self._world.forgotten[partition])
        entries = list(enumerate(self._world.journal[partition]))[start:end]
        for at in range(0, len(entries), 7):
            yield entries[at : at + 7]


class FakeRows:
    """The batches of a world, to be read again."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def records(self, topic_partition: str, offsets: Sequence[int]) -> AsyncIterator[Record]:
        for offset in offsets:
            record = self._world.log[topic_partition][offset]
            if record.record_id not in self._world.expired:
                yield record


@dataclass(frozen=True)
class _InOrder(Place):
    """The place of a value that a reading has just come to."""

    value: bytes = field(repr=False)


class _Reading(dict[bytes, Place]):
    """Places as a finder takes them, with ``[...]``. Of those that it takes in order, values come with them.

    To fetch such a value is no effect, and to fetch one that it has passed is. So seeds mean what they meant
    when values were read one after the other.
    """

    def __init__(self, places: Mapping[bytes, Place], values: Mapping[bytes, bytes]) -> None:
        super().__init__(places)
        self._values = values
        self._left: defaultdict[bytes, list[bytes]] = defaultdict(list)
        for key in reversed(list(places)):
            self._left[_dataset_of(key)].append(key)

    def __getitem__(self, key: bytes) -> Place:
        left, place = self._left[_dataset_of(key)], self.get(key)
        is_passed = place is not None and key not in left
        while left and not is_passed:
            if left.pop() == key:
                assert place is not None, "it comes with its value"
                return _InOrder(place.n_bytes, place.offsets, self._values[key])
        return super().__getitem__(key)


def _dataset_of(key: bytes) -> bytes:
    return key.partition(b"/")[0]


class FakeKept:
    """The private topic of blocks as one process sees it."""

    def __init__(self, world: World, process: int, fuse: _Fuse) -> None:
        self.fetched: list[bytes] = []
        self._world = world
        self._process = process
        self._fuse = fuse

    async def put(
        self, values: Sequence[tuple[bytes, bytes]], *, beat: Callable[[], None] = lambda: None
    ) -> list[Place]:
        del beat
        return [await self._put(key, value) for key, value in values]

    async def _put(self, key: bytes, value: bytes) -> Place:
        await self._world.processes[self._process].effect()
        self._fuse("before put")
        self._world.kept.pop(key, None)
        self._world.kept[key] = value
        if self._process < len(self._world.processes) - 1:
            self._world.kept_late.add(key)
        self._world.kept_log.append((key, self._world.kept[key]))
        place = self._world.kept_at(key)
        self._fuse("after put")
        return place

    async def fetch(self, key: bytes, place: Place) -> bytes | None:
        if isinstance(place, _InOrder):
            return place.value
        await self._world.processes[self._process].effect()
        self.fetched.append(key)
        is_there = key in self._world.kept and self._world.kept_at(key) == place
        return self._world.kept[key] if is_there else None

    async def drop(self, keys: Mapping[bytes, int]) -> None:
        for key in keys:
            await self._drop(key)

    async def _drop(self, key: bytes) -> None:
        await self._world.processes[self._process].effect()
        self._fuse("before drop")
        self._world.kept.pop(key, None)
        self._fuse("after drop")

    async def places(
        self,
        datasets: Collection[str],
        partition: int,
        *,
        beat: Callable[[], None] = lambda: None,
    ) -> dict[bytes, Place]:
        del partition
        beat()
        names = {name.encode() for name in datasets}
        kept = {key: one for key, one in self._world.kept.items() if _dataset_of(key) in names}
        return _Reading({key: self._world.kept_at(key) for key in kept}, kept)

    async def keys(
        self,
        dataset_prefix: bytes,
        partition: int,
        start: int = 0,
        *,
        beat: Callable[[], None] = lambda: None,
    ) -> tuple[dict[bytes, Traces], int]:
        offsets = {key: self._world.kept_at(key).offsets[0] for key in self._world.kept}
        found = {
            key: Traces(offset, 1)
            for key, offset in offsets.items()
            if key.startswith(dataset_prefix) and offset >= start
        }
        return found, len(self._world.kept_log)


class FakeCompacted:
    """What has left to the compacted topics."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def heads(self, held: Collection[int]) -> AsyncIterator[Head]:
        del held
        for at, event in enumerate(list(self._world.trail)):
            if isinstance(event, Sent) and event.outgoing.role in COMPACTED:
                one = event.outgoing
                yield Head(one.role, one.key, commit_of(one.headers), 0, at)

    async def record(self, head: Head) -> Outgoing:
        event = self._world.trail[head.offset]
        assert isinstance(event, Sent), "so it was read"
        return Outgoing(head.role, head.key, event.outgoing.value, event.outgoing.headers)


class Process:
    """One worker process. ``run`` reads until nothing is left; ``kill`` ends it without a goodbye."""

    def __init__(self, world: World, number: int, fuse: _Fuse, **changes: Any) -> None:
        self.world = world
        self.number = number
        self.store = WatchedStore(world.store, world, number, fuse)
        self.noise: NoiseSource = world.make_noise(number)
        settings: dict[str, Any] = {
            "partitions": world.partitions,
            "key_file": world.key_file,
            "often": world.often,
            "blocks": world.blocks,
            "fuse": fuse,
        }
        self.kept = FakeKept(world, number, fuse)
        self.worker: Worker = world.worker_type(
            self.store,
            lambda: self.noise,
            self._send,
            FakeLog(world, number, fuse),
            FakeRows(world),
            self.kept,
            FakeCompacted(world),
            **(settings | changes),
        )
        self.store_watch = StoreWatch(self.store, self.worker, self.worker.metrics)
        self.generation = 0
        self.effects = 0
        self.interrupt: Callable[[int], Awaitable[None]] | None = None
        self._fuse = fuse
        self.positions: dict[str, int] = {}
        self._tasks = [
            asyncio.create_task(self.worker.run_owner()),
            asyncio.create_task(self.worker.run_releaser()),
        ]

    async def effect(self) -> None:
        """Called before every step outside: what else happens just then is up to the test."""
        self.effects += 1
        if self.interrupt is not None:
            await self.interrupt(self.effects)

    async def _send(self, outgoing: Outgoing) -> Awaitable[object]:
        await self.effect()
        self._fuse("send")
        self.world.sent(self.number, outgoing)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    async def assign(self, partitions: Iterable[int] | None = None) -> None:
        """Joins the group: partitions to read, from where the worker says."""
        held = list(range(self.world.partitions) if partitions is None else partitions)
        self.world.generation += 1
        self.generation = self.world.generation
        self.worker.assigned(held, self.generation)

        async def ask() -> dict[str, tuple[int, int]]:
            return {
                topic_partition: (0, len(records))
                for topic_partition, records in self.world.log.items()
                if partition_in(topic_partition) in held
            }

        self.positions = await self._unless_dead(self.worker.positions(ask))
        self.worker.ownership.reading_from(self.positions, self.generation)

    def fetch(self, most: int) -> list[Record]:
        """The next records, from several topics as they come."""
        group: list[Record] = []
        choice = self.world.random
        while len(group) < most:
            left = [
                topic_partition
                for topic_partition, at in self.positions.items()
                if at < len(self.world.log[topic_partition])
            ]
            if not left:
                break
            topic_partition = choice.choice(left)
            unread = self.world.log[topic_partition][self.positions[topic_partition] :]
            for record in unread[: choice.randint(1, 4)]:
                if len(group) < most:
                    group.append(self.fetched(record))
                    self.positions[topic_partition] += 1
        return group

    def fetched(self, record: Record) -> Record:
        return dataclasses.replace(record, generation=self.generation)

    async def step(self, most: int | None = None) -> bool:
        """Takes one group; False when there is nothing to read."""
        group = self.fetch(self.world.group if most is None else most)
        if group:
            await self._unless_dead(self.worker.process(group))
        return bool(group)

    async def run(self) -> None:
        """Reads everything there is, and returns when all of it is released."""
        while await self.step():
            if not self.world.lagging:
                await self.drained()
        await self.drained()

    async def drained(self) -> None:
        await self._unless_dead(self.worker.drained())

    async def _unless_dead(self, step: Coroutine[Any, Any, T]) -> T:
        """Waits for a step, or for the death of a task beside it."""
        task = asyncio.ensure_future(step)
        await asyncio.wait({task, *self._tasks}, return_when=asyncio.FIRST_COMPLETED)
        for other in self._tasks:
            if other.done():
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                other.result()
        return await task

    async def stop(self) -> None:
        """Ends with a goodbye."""
        await self.kill()
        await self.worker.put_down()

    async def kill(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


# ---------------------------------------------------------------- what survives


class World:
    """The log, the store and what was released.

    Attributes:
        group: Most records a worker takes at once.
        lagging: Whether releases lag behind the next groups.
        worker_type: Class of the workers; a mutant puts its own here.
        key_file: What the workers' key file of persons holds; None without one.
        now_ms: The broker's time of the next records; -1 for records without one.
        journal: The entries of the journal, by partition, those included that were deleted.
        forgotten: The offset of the first entry of each partition that is there.
        often: How often workers write checkpoints.
        kept: What is kept of blocks, by key.
        kept_log: All that was ever kept, with its key, by offset.
        blocks: Where workers put the blocks that they seal, see ``WorkerSettings``.
        lost_replies: The share of appends to the journal whose reply is lost.
        expired: The ids of records that are on their topics no more.
    """

    Crash = Crash
    Fuse = _Fuse

    def __init__(self, *, seed: int = 1) -> None:
        self.partitions = 2
        self.group = 5
        self.lagging = False
        self.deaths = 1
        self.worker_type: Callable[..., Worker] = Worker
        self.blocks: Literal["store", "topic"] = "store"
        self.key_file: bytes | None = None
        self.now_ms = -1
        self.store = LocalStore()
        self.log: dict[str, list[Record]] = {
            f"in.{role}:{partition}": [] for role in INPUTS for partition in range(self.partitions)
        }
        self.journal: list[list[Entry]] = [[] for _ in range(self.partitions)]
        self.forgotten = [0] * self.partitions
        self.often = Often()
        self.records: dict[bytes, bytes] = {}
        self.lost_replies = 0.0
        self.expired: set[str] = set()
        self.kept: dict[bytes, bytes] = {}
        self.kept_log: list[tuple[bytes, bytes]] = []
        self.kept_late: set[bytes] = set()  # by a worker after which another one has started
        self.trail: list[Sent | Committed | Looked] = []
        self.chains: dict[str, list[_Valid]] | None = None  # while the referee reads
        self.random = random.Random(seed)
        self.processes: list[Process] = []
        self.generation = 0

    def make_noise(self, number: int) -> NoiseSource:
        return RoundedNoise(number)

    def kept_at(self, key: bytes) -> Place:
        """The place of what is kept under a key: the last one at which it was put."""
        newest = max((at for at, one in enumerate(self.kept_log) if one[0] == key), default=None)
        if newest is None:  # it came from elsewhere
            newest = len(self.kept_log)
            self.kept_log.append((key, self.kept[key]))
        return Place(len(self.kept[key]), (newest,))

    def block_of(self, stored: bytes) -> bytes:
        """The block that an element among the blocks of the store stands for, also if it is lost since."""
        if not Place.is_in(stored):
            return stored
        return self.kept_log[Place.from_bytes(stored).offsets[0]][1]

    def loses_reply(self) -> str:
        """What an append to the journal loses, if it loses something."""
        if self.random.random() >= self.lost_replies:
            return ""
        return self.random.choice(["before", "after", "offset"])

    # -- producing

    def produce(
        self,
        role: str,
        document: Mapping[str, Any] | bytes | None,
        *,
        key: bytes | str | None = "",
        partition: int | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> Record:
        """Appends a record; its key is the data set's name unless told otherwise."""
        value = json.dumps(document).encode() if isinstance(document, Mapping) else document
        if key == "":
            assert isinstance(document, Mapping), "a record without a document needs a key"
            key = document["dataset"]
        if isinstance(key, str):
            key = key.encode()
        if partition is None:
            partition = partition_of(key or b"", self.partitions)
        records = self.log[f"in.{role}:{partition}"]
        record = Record(
            role,
            f"in.{role}",
            partition,
            len(records),
            key,
            value,
            dict(headers or {}),
            timestamp_ms=self.now_ms,
        )
        records.append(record)
        return record

    def next_offset(self, role: str, dataset: str) -> int:
        return len(self.log[f"in.{role}:{partition_of(dataset.encode(), self.partitions)}"])

    def define(self, dataset: str, **changes: Any) -> Record:
        return self.produce("datasets", definition(dataset, **changes))

    def batch(self, dataset: str, batch_id: str, **form: Any) -> Record:
        return self.produce(
            "batches", {"version": 1, "dataset": dataset, "batch_id": batch_id, **form}
        )

    def counted(self, dataset: str, producer: str, sequence: int, **form: Any) -> Record:
        """A batch of a producer that counts its batches."""
        head = {"version": 1, "dataset": dataset, "producer": producer, "sequence": sequence}
        return self.produce("batches", {**head, **form})

    def define_memory(self, dataset: str, **changes: Any) -> Record:
        """A tiny universe under the thesis' mechanism: phases of 1.2 million rows, as cells."""
        return self.define(dataset, **{**MEMORY, **changes})

    def define_papers(self, dataset: str, **mechanism: Any) -> Record:
        """The same tiny universe under another of the papers' mechanisms."""
        privacy = {"epsilon": 2.0, "delta": 0.01}
        return self.define(dataset, **{**MEMORY, "privacy": privacy, "mechanism": mechanism})

    def cells(self, dataset: str, batch_id: str, n: int = 1) -> Record:
        """A batch of ``21,000 n`` rows."""
        cells = [
            {"carrier": "AA", "delay": 5, "cancelled": False, "count": 9_000 * n},
            {"carrier": "UA", "delay": 45, "cancelled": True, "count": 8_000 * n},
            {"carrier": "ZZ", "delay": -3, "cancelled": False, "count": 4_000 * n},
        ]
        return self.batch(dataset, batch_id, cells=cells)

    def ask(self, dataset: str, query_id: str, where: Any = None, **item: Any) -> Record:
        body = {"query_id": query_id, **({} if where is None else {"where": where}), **item}
        return self.produce("queries", {"version": 1, "dataset": dataset, "analyst": "ana", **body})

    def ask_many(
        self, dataset: str, items: Sequence[Any], analyst: str = "ana", **envelope: Any
    ) -> Record:
        head = {"version": 1, "dataset": dataset, "analyst": analyst, **envelope}
        return self.produce("queries", {**head, "queries": list(items)})

    # -- running

    def process(self, fuse: _Fuse | None = None, **changes: Any) -> Process:
        """A new worker process; it holds nothing until it is assigned."""
        self.processes.append(Process(self, len(self.processes), fuse or _Fuse(), **changes))
        return self.processes[-1]

    async def run(self, *fuses: _Fuse, rounds: Sequence[Callable[[World], object]] = ()) -> int:
        """Runs a worker until everything is read, starting it again whenever it dies.

        Args:
            fuses: The fuses of the first process, the second and so on. Later processes live.
            rounds: Each produces when the one before is done, as clients do that wait for replies.

        Returns:
            How often it died.
        """
        deaths = 0
        process: Process | None = None
        for produce in rounds or [lambda _: None]:
            produce(self)
            while True:
                try:
                    if process is None:
                        process = self.process(fuses[deaths] if deaths < len(fuses) else None)
                        await process.assign()
                    await process.run()
                except Crash:
                    deaths += 1
                    assert deaths <= len(fuses), "it dies again and again"
                    assert process is not None
                    await process.kill()
                    process = None
                else:
                    break
        if process is not None:
            await process.kill()
        return deaths

    # -- what happened

    def complaints(self) -> list[str]:
        """The referee's verdict on a finished run; empty when every promise was kept."""
        return complaints(self)

    def sent(self, process: int, outgoing: Outgoing) -> None:
        held = self.store._datasets.get(outgoing.key)
        stored = None
        if outgoing.role == "answers" and held is not None:
            reply = json.loads(outgoing.value)
            stored = (held.previous | held.answers).get(f"{reply['analyst']} {reply['query_id']}")
        spent = sum(max(line) for line in held.spent) if held is not None else 0
        journal = tuple(map(len, self.journal))
        self.trail.append(Sent(process, outgoing, spent, stored, journal))

    def looked(self, blocks: Blocks, window: range) -> None:
        for process in self.processes:
            for dataset in process.worker.datasets.values():
                if getattr(dataset, "_data", None) is blocks:
                    self.trail.append(Looked(process.number, dataset.name, window))

    def released(self, role: str) -> list[dict[str, Any]]:
        """Every released record of a topic, repeated ones too."""
        return [
            json.loads(event.outgoing.value or b"null")
            for event in self.trail
            if isinstance(event, Sent) and event.outgoing.role == role
        ]

    def answers(self) -> dict[tuple[str, str, str], dict[str, Any]]:
        return {
            (reply["dataset"], reply["analyst"], reply["query_id"]): reply
            for reply in self.released("answers")
        }

    def answer(self, query_id: str) -> dict[str, Any]:
        (found,) = [reply for (_, _, name), reply in self.answers().items() if name == query_id]
        return found

    def rejections(self) -> dict[tuple[str, int, int], list[dict[str, Any]]]:
        """Returns rejections by topic, partition and offset of the record; repeated ones once."""
        found: dict[tuple[str, int, int], list[dict[str, Any]]] = defaultdict(list)
        for reply in self.released("rejected"):
            kept = found[reply["topic"], reply["partition"], reply["offset"]]
            if reply not in kept:
                kept.append(reply)
        return dict(found)

    def rejection(self, record: Record) -> dict[str, Any]:
        (found,) = self.rejections()[record.topic, record.partition, record.offset]
        return found

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """Every distinct event in order."""
        found: list[dict[str, Any]] = []
        for event in self.released("events"):
            if event not in found and kind in (None, event["event"]):
                found.append(event)
        return found


def definition(dataset: str, **changes: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "dataset": dataset,
        "attributes": [
            {"name": "carrier", "type": "category", "values": ["AA", "UA"]},
            {"name": "delay", "type": "number", "edges": [0, 10, 30], "integer": True},
            {"name": "cancelled", "type": "boolean"},
        ],
        "privacy": {"epsilon": 1.0, "delta": 1e-9},
        "accuracy": {"error": 0.02, "failure_probability": 0.01},
        "phase": {"min_rows": 20_000},
        **changes,
    }


def attributes_with_levels() -> list[dict[str, Any]]:
    """The same attributes, of which the delay has 61 cells, and so two levels."""
    carrier, delay, cancelled = definition("flights")["attributes"]
    return [carrier, {**delay, "edges": list(range(60))}, cancelled]


MEMORY = {
    "attributes": [
        {"name": "carrier", "type": "category", "values": ["AA", "UA"]},
        {"name": "cancelled", "type": "boolean"},
    ],
    "privacy": {"epsilon": 20.0, "delta": 0.01},
    "accuracy": {"error": 0.3, "failure_probability": 0.5},
    "phase": {"min_rows": 1},  # the profile says how many it needs
    "mechanism": {
        "profile": "memory",
        "queries_per_phase": 10,
        "phases": 3,
        "hypothesis_rows": 3,
        "representation": "exhaustive",
    },
}


# ---------------------------------------------------------------- the referee


def complaints(world: World) -> list[str]:
    """Lists what is wrong with a finished run. The list is empty when all promises were kept.

    A commit that a store has forgotten, and that was not on the journal, has never been: nothing that follows
    from it may have left. One that came back from the journal counts where it was made.
    """
    whole, world.chains = world.trail, _chains(world)
    try:
        on_journal = list(_on_the_journal(world))
        world.trail = list(_history(world))
        return [*on_journal, *_complaints(world)]
    finally:
        world.trail, world.chains = whole, None


def _complaints(world: World) -> list[str]:
    return [
        *_same_answer(world),
        *_never_under_count(world),
        *_looks_are_charged(world),
        *_rows_once(world),
        *_periods(world),
        *_batches_once(world),
        *_one_outcome(world),
        *_limits_hold(world),
        *_minutes_hold(world),
        *_erased_in_time(world),
        *_erased_elsewhere(world),
        *_at_rest(world),
        *_ledger(world),
        *_shares_hold(world),
        *_synthetic(world),
        *_standing_queries(world),
        *_kept_long_enough(world),
    ]


_record_of = functools.lru_cache(10_000)(CommitRecord.from_bytes)


def journaled(world: World) -> dict[str, list[CommitRecord]]:
    """What counts of the journal, by data set, read by rules of its own."""
    return {name: [one.record for one in chain] for name, chain in _chains(world).items()}


def _journaled_by_then(world: World, event: Sent) -> list[CommitRecord]:
    """What counted of the journal of a data set when a record about it left."""
    return [
        one.record
        for one in _chains(world).get(event.commit[0], ())
        if one.offset < event.journal[one.partition]  # it follows from entries before it alone
    ]


class _Valid(NamedTuple):
    """An entry of the journal that counts."""

    partition: int
    offset: int
    record: CommitRecord
    trail: bytes


def _chains(world: World) -> dict[str, list[_Valid]]:
    """The entries that count, by data set; the referee reads them once."""
    if world.chains is not None:
        return world.chains
    chains: dict[str, list[_Valid]] = defaultdict(list)
    for partition, entries in enumerate(world.journal):
        in_force = 0
        for offset, entry in enumerate(entries):
            headers = dict(entry.headers)
            epoch = int(headers["epoch"])
            if headers["type"] == b"epoch":
                in_force = max(in_force, epoch)
            elif headers["type"] == b"commit" and epoch == in_force:
                record, trail = _record_of(entry.value)
                chain = chains[entry.key.decode()]
                last, at = (chain[-1].record.seq, chain[-1].trail) if chain else (0, bytes(32))
                if (record.seq - 1, record.prev) == (last, at):
                    chain.append(_Valid(partition, offset, record, trail))
    return dict(chains)


def _history(world: World) -> Iterator[Sent | Committed | Looked]:
    """The trail without the commits that never were, and without those that came back."""
    nonces = {
        (name, record.seq): record.nonce
        for name, records in journaled(world).items()
        for record in records
    }
    seen = set()
    for event in world.trail:
        if isinstance(event, Committed):
            commit = event.transition.dataset, event.transition.seq + 1
            if not event.record:
                continue  # of a checkpoint
            record = _record_of(event.record)[0]
            if nonces.get(commit) != record.nonce or commit in seen:
                continue
            seen.add(commit)
        yield event


def _on_the_journal(world: World) -> Iterator[str]:
    """P10: the journal has a commit before what follows from it leaves, and all that the store has."""
    for event in world.trail:
        if isinstance(event, Sent):
            name, commit = event.commit
            if commit and len(_journaled_by_then(world, event)) < commit:
                yield f"P10: {event.outgoing.role} of {name} left before commit {commit} was on the journal"
    records = journaled(world)
    for name, held in world.store._datasets.items():
        chain = records.get(name, [])
        if held.seq != len(chain):
            yield f"P10: the journal has {len(chain)} commits of {name}, and the store {held.seq}"
            continue
        answers: dict[str, bytes] = {}
        previous: dict[str, bytes] = {}
        batches: dict[str, bytes] = {}
        earlier: dict[str, bytes] = {}
        for record in chain:
            if record.rotate:
                answers, previous = {}, answers
                batches, earlier = {}, batches
            if record.answers.keys() & (answers.keys() | previous.keys()):
                yield f"P10: commit {record.seq} of {name} answers an id again that is kept"
            if record.batches.keys() & (batches.keys() | earlier.keys()):
                yield f"P10: commit {record.seq} of {name} takes an id again that is kept"
            answers |= record.answers
            batches |= record.batches
        if (answers, previous) != (held.answers, held.previous):
            yield f"P10: the journal has other answers of {name} than the store"
        if (batches, earlier) != (held.batches, held.previous_batches):
            yield f"P10: the journal has other outcomes of batches of {name} than the store"
        spent: Counter[tuple[int, str]] = Counter()
        for record in chain:
            for charge in record.charges:
                spent[charge.block, "rho"] += charge.rho
                spent[charge.block, "delta"] += charge.delta
        lines = [(spent[block, "rho"], spent[block, "delta"]) for block in range(len(held.spent))]
        if lines != held.spent:
            yield f"P10: the journal has other charges to {name} than the store"


def _same_answer(world: World) -> Iterator[str]:
    """P1, and: what leaves is what is stored."""
    seen: dict[tuple[str, ...], set[bytes]] = defaultdict(set)
    quotes = _quotes(world)
    for event in world.trail:
        if isinstance(event, Sent) and event.outgoing.role == "answers":
            reply = json.loads(event.outgoing.value)
            name = reply["dataset"], reply["analyst"], reply["query_id"]
            if name in quotes:
                continue
            seen[name].add(event.outgoing.value)
            stored = _on_journal_by_then(world, event, f"{name[1]} {name[2]}")
            if event.stored is not None:
                stored = [*stored, event.stored]
            if event.outgoing.value not in {answer_from_bytes(one)[1] for one in stored}:
                yield f"P1: {name} left before it was stored"
    # An id that is not kept any more is a new one: P10 says that it was not kept.
    given = Counter(
        (dataset, *answered.split(" ", 1))
        for dataset, chain in journaled(world).items()
        for record in chain
        for answered in record.answers
    )
    for answered, values in seen.items():
        if len(values) > max(1, given[answered]):
            yield f"P1: {answered} has {len(values)} different answers"


def _on_journal_by_then(world: World, event: Sent, name: str) -> list[bytes]:
    """The answers of this name that were on the journal when something left."""
    return [
        record.answers[name]
        for record in _journaled_by_then(world, event)
        if name in record.answers
    ]


def _batches_once(world: World) -> Iterator[str]:
    """P12: a batch counts once for ever. Of one that counts and whose outcome is not kept, just that is said.

    The batches of a producer that counts them are accepted in order and without gaps.
    """
    for name, chain in journaled(world).items():
        held = world.store._datasets.get(name)
        rotates = any(
            json.loads(r.definition or b"{}").get("retention", {}).get("answers") for r in chain[:1]
        )
        accepted: set[str] = set()
        with_id: set[str] = set()
        following: dict[str, int] = {}
        kept: set[str] = set()
        since: set[str] = set()
        for record in chain:
            now = {one.batch_id for one in record.accepted}
            for said in _said_to_be_known(record):
                named, producer = _batch_name(said), said.get("producer")
                if producer is None and named not in accepted | now:
                    yield f"P12: {named} of {name} is said to count and does not"
                if named in kept | since:
                    yield f"P12: the outcome of {named} of {name} is kept and not told"
                counts = said.get("next_sequence", 0)
                if producer is not None and not said["sequence"] < counts <= max(
                    [following.get(producer, 0), *_numbers_behind(producer, now)]
                ):
                    yield f"P12: {named} of {name} is said to count, and so are those below {counts}"
            if record.rotate:
                kept, since = since, set()
            since |= record.batches.keys()
            for one in record.accepted:
                if one.batch_id in accepted:
                    yield f"P12: batch {one.batch_id} of {name} counts twice"
                accepted.add(one.batch_id)
                with_id |= {one.batch_id} & record.batches.keys()
                producer, blank, sequence = one.batch_id.rpartition(" ")
                if blank:
                    if following.get(producer, int(sequence)) != int(sequence):
                        yield f"P12: batch {one.batch_id} of {name} is not the next one"
                    following[producer] = int(sequence) + 1
        if held is None:
            continue
        if held.taken != ({taken_id(one) for one in with_id} if rotates else set()):
            yield f"P12: {name} has not all ids of the {len(with_id)} batches that count, or more"
        stored = {key: at for key, at in held.cursor.items() if key.startswith("producer ")}
        if stored != {f"producer {producer}": at for producer, at in following.items()}:
            yield f"P12: {name} has counted other batches of its producers than it has accepted"


def _said_to_be_known(record: CommitRecord) -> Iterator[dict[str, Any]]:
    """What a commit lets out of batches that count already, and of which no outcome is kept."""
    for one in record.outbox:
        if isinstance(one, OutboxRecord) and one.role == "events" and one.value:
            said = json.loads(one.value)
            if said["event"] == "batch_known":
                yield said


def _numbers_behind(producer: str, names: Iterable[str]) -> Iterator[int]:
    """The numbers that follow those of a producer's batches among these."""
    for name in names:
        of, blank, sequence = name.rpartition(" ")
        if blank and of == producer:
            yield int(sequence) + 1


def _batch_name(said: Mapping[str, Any]) -> str | None:
    """The name of a batch in a message: its id, or its producer and number. None if it has neither."""
    if "producer" in said:
        return f"{said['producer']} {said.get('sequence')}"
    name = said.get("batch_id")
    return name if isinstance(name, str) else None


_DAY_MS = 86_400_000


def _kept_long_enough(world: World) -> Iterator[str]:
    """P11: answers rotate when the time of the definition has passed since the last time, by the records."""
    for name, chain in journaled(world).items():
        days, last = None, 0
        for record in chain:
            if record.definition is not None:
                retention = json.loads(record.definition).get("retention", {})
                days = retention.get("answers", {}).get("days")
            said = record.meta.get("answers rotated")
            if said is None:
                if record.rotate:
                    yield f"P11: commit {record.seq} of {name} rotates answers and does not say when"
                continue
            if days is None or record.rotate != (last > 0) or int(said) - last < days * _DAY_MS:
                yield f"P11: commit {record.seq} of {name} rotates answers out of turn"
            last = int(said)
        times = [one.timestamp_ms for one in _records_of(world, name)]
        if days is not None and max(times, default=-1) - last >= days * _DAY_MS:
            yield f"P11: the answers of {name} rotate no more"


def _records_of(world: World, name: str) -> Iterator[Record]:
    """The records that name a data set."""
    for record in (record for records in world.log.values() for record in records):
        if (_parsed(record) or {}).get("dataset") == name:
            yield record


def _charged_by_then(world: World, event: Sent) -> int:
    """What the journal had charged, of each line the larger part, when something left."""
    lines: dict[int, list[int]] = defaultdict(lambda: [0, 0])
    for record in _journaled_by_then(world, event):
        for charge in record.charges:
            lines[charge.block][0] += charge.rho
            lines[charge.block][1] += charge.delta
    return sum(map(max, lines.values()))


def _quotes(world: World) -> set[tuple[str, ...]]:
    """Quotes are not answers: they spend nothing, are not stored, and the next one may differ."""
    found: set[tuple[str, ...]] = set()
    for topic_partition, records in world.log.items():
        for record in records if topic_partition.startswith("in.queries:") else ():
            document = _parsed(record) or {}
            for item in _asked(document):
                if isinstance(item, dict) and item.get("quote"):
                    found.add((document["dataset"], document["analyst"], item["query_id"]))
    return found


def _asked(document: Mapping[str, Any]) -> list[Any]:
    """What gets a reply of its own: each query, or a quote for several of them together."""
    if document.get("quote") == "together" and "queries" in document:
        return [document]
    return list(document.get("queries", [document]))


def _limits_hold(world: World) -> Iterator[str]:
    """P7: the charges that a record leads to, lost looks and all, stay within its limit on every line.

    A base release that grows is the data set's own look, and counts for no record.
    """
    limits: dict[str, Fraction] = {}
    for records in world.log.values():
        for record in records:
            document = _parsed(record) or {}
            if record.role == "queries" and "queries" in document and "at_most" in document:
                limits[record.record_id] = Fraction(document["at_most"])
    paid: dict[str, Counter[int]] = defaultdict(Counter)
    for event in world.trail:
        if isinstance(event, Committed) and event.transition.charges and not _grows(event):
            record_id = event.transition.meta.get("work", "").partition(" ")[0]
            for charge in event.transition.charges:
                paid[record_id][charge.block] += charge.rho
    for record_id, limit in limits.items():
        worst = max(paid[record_id].values(), default=0)
        if worst > limit * UNITS:
            yield f"P7: {record_id} has taken {worst / UNITS:.6f} of a line, and may take {float(limit)}"


def _minutes_hold(world: World) -> Iterator[str]:
    """P14: nobody asks or spends faster than a definition allows, and nobody slower is told so.

    The minutes are those of the records. A look that a crash has lost was spent all the same. Rules that
    change are left to other tests: which record came before a change depends on two topics.
    """
    for name, held in world.store._datasets.items():
        analysts = json.loads(held.definition or b"{}").get("analysts")
        if analysts is not None and "analysts" not in held.meta:
            yield from _minutes_of(world, name, analysts)


def _minutes_of(world: World, name: str, analysts: dict[str, Any]) -> Iterator[str]:
    rejected, answers, known = world.rejections(), world.answers(), set()
    asked, spent = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
    newest, minutes = 0, dict[str, tuple[str, int]]()
    for record in (one for one in _records_of(world, name) if one.role == "queries"):
        document, newest = _parsed(record) or {}, max(newest, record.timestamp_ms // 60_000)
        analyst = document["analyst"]
        rules = _rules_of(analysts, analyst)
        here = rejected.get((record.topic, record.partition, record.offset), [])
        if rules is None:
            if {reply["reason"]["code"] for reply in here} != {"not_allowed"}:
                yield f"P14: {analyst} may ask {name} nothing, and has asked at {record.record_id}"
            continue
        most = rules.get("queries_per_minute", math.inf)
        minutes[record.record_id] = analyst, newest
        for item in _asked(document):
            together = document.get("quote") == "together"
            codes = [
                reply["reason"]["code"]
                for reply in here
                if together or reply.get("query_id") == _id_of(item)
            ]
            size = len(document["queries"]) if together else 1
            if "too_many_queries" in codes and asked[analyst, newest] + size <= most:
                yield f"P14: {analyst} was told too soon that {most} queries were asked of {name}"
            stands = isinstance(item, dict) and item.get("standing") is not None
            named = name, analyst, _id_of(item)
            if codes or named in known or not (stands or named in answers):
                continue
            asked[analyst, newest] += size
            if not (together or item.get("quote")):
                known.add(named)
        if asked[analyst, newest] > most:
            yield f"P14: {analyst} has asked {asked[analyst, newest]} queries of {name} in a minute"
    for event in world.trail:
        if isinstance(event, Committed) and event.transition.dataset == name and not _grows(event):
            record_id = event.transition.meta.get("work", "").partition(" ")[0]
            if event.transition.charges and record_id in minutes:
                spent[minutes[record_id]] += dearest(event.transition.charges)
    for (analyst, _), units in spent.items():
        rules = _rules_of(analysts, analyst) or {}
        if units > Fraction(str(rules.get("spending_per_minute", 1))) * UNITS:
            yield f"P14: {analyst} has spent {units / UNITS:.6f} of a line of {name} in a minute"


def _rules_of(analysts: Mapping[str, Any], analyst: str) -> dict[str, Any] | None:
    """What is allowed to an analyst: by name, or else by the longest pattern."""
    matching = [one for one in analysts if one[-1:] == "*" and analyst.startswith(one[:-1])]
    found = analyst if analyst in analysts else max(matching, key=len, default=None)
    return None if found is None else dict(analysts[found])


def _erased_in_time(world: World) -> Iterator[str]:
    """P8: the commit of a seal erases the rows that are due with it, and no look reads them from then on.

    The same holds for rows that a commit of its own gives up, because they are nowhere. A zombie may look on
    at what it holds: what it has committed itself counts.
    """
    sealed: Counter[str] = Counter()
    bare: Counter[str] = Counter()
    erased: dict[tuple[int, str], int] = {}
    for event in world.trail:
        if isinstance(event, Committed) and event.transition.seal is not None:
            name = event.transition.dataset
            sealed[name] += 1
        if isinstance(event, Committed):
            name = event.transition.dataset
            due = max(0, sealed[name] - _kept_phases(world, name))
            if event.transition.seal is None:
                bare[name] = max(bare[name], event.transition.erased)
            erased[event.process, name] = max(due, bare[name])
            if event.transition.seal is not None and event.transition.erased != due:
                yield f"P8: {name} has sealed phase {sealed[name]} and not erased {due} phases"
        elif isinstance(event, Looked) and any(
            block < erased[event.process, event.dataset] for block in event.blocks
        ):
            yield f"P8: {event.dataset} was read where its rows are erased"
    for name, held in world.store._datasets.items():
        if held.retired or held.definition is None:
            continue
        if len(held.blocks) != min(sealed[name] - bare[name], _kept_phases(world, name)):
            yield f"P8: {name} has the rows of {len(held.blocks)} phases of {sealed[name]}"


def _erased_elsewhere(world: World) -> Iterator[str]:
    """P8: rows that are erased are nowhere else: not on the private topic, nor in what was set aside.

    What a former worker has written since nobody may have seen yet.
    """
    for name, held in world.store._datasets.items():
        aside = world.store._aside.get(name)
        erases = held.retired or len(held.spent) > len(held.blocks)
        if erases and aside is not None and (aside.pending or aside.blocks or aside.vault):
            yield f"P8: {name} has erased rows, and not those that were set aside"
        if held.definition is None:
            continue
        due = max(0, len(held.spent) - _kept_phases(world, name))
        for key in world.kept.keys() - world.kept_late:
            of, what, kept, number = key.decode().split("/")
            if of != name:
                continue
            is_erased = what.isdecimal() and int(what) <= due
            if is_erased and number == "1":  # what persons have used, and is used up for life
                is_erased = held.meta.get(field_of(int(what))) != kept
            if held.retired or is_erased:
                yield f"P8: {name} has erased rows, and not what is kept as {what} on the topic"


def _kept_phases(world: World, name: str) -> int:
    """The number of phases, the last ones, whose rows a data set keeps."""
    retention = json.loads(world.store._datasets[name].definition or b"{}").get("retention")
    return int((retention or {}).get("phases", 10**9))


def _grows(event: Committed) -> bool:
    looks = json.loads(event.transition.intent or b"[]")
    return any(look.get("reason") == "growth" for look in looks)


def _never_under_count(world: World) -> Iterator[str]:
    """P2: at every instant the store or the journal has charged at least what was released."""
    cost: dict[str, dict[str, float]] = defaultdict(dict)
    for event in world.trail:
        if not isinstance(event, Sent) or event.outgoing.role != "answers":
            continue
        reply = json.loads(event.outgoing.value)
        if reply["status"] != "answered" or reply.get("path") != "measured":
            continue
        paid = cost[reply["dataset"]]
        # Each answer's bytes count: another answer under the same id was another look.
        paid[event.outgoing.value.decode()] = reply["privacy_loss"]["share"]
        released = sum(paid.values()) * UNITS
        if released > event.spent * (1 + 1e-12) and released > _charged_by_then(world, event) * (
            1 + 1e-12
        ):
            yield f"P2: {reply['dataset']} has released more than it charged"


def _looks_are_charged(world: World) -> Iterator[str]:
    """P6: before data is read, the same process has announced the look and paid for these blocks.

    A zombie may look on: its charge was kept when it was fenced. A run of looks, or a segment of tests, is
    paid for once a block, with the first look that reads it.
    """
    last: dict[tuple[int, str], Committed] = {}
    paid_phase: set[tuple[str, int]] = set()
    paid_run: dict[tuple[object, ...], set[int]] = defaultdict(set)
    for event in world.trail:
        if isinstance(event, Committed):
            name, paid = event.transition.dataset, {c.block for c in event.transition.charges}
            last[event.process, name] = event
            paid_phase |= {(name, block) for block in paid}
            for run in _runs(event):
                paid_run[run] |= paid
        elif isinstance(event, Looked):
            before = last.get((event.process, event.dataset))
            if before is None or before.transition.intent is None:
                yield f"P6: {event.dataset} was read without an announcement"
            elif runs := _runs(before):
                if not any(set(event.blocks) <= paid_run[run] for run in runs):
                    yield f"P6: {event.dataset} was read beyond the blocks that its run has paid for"
            elif before.transition.charges and not set(event.blocks) <= {
                charge.block for charge in before.transition.charges
            }:
                yield f"P6: {event.dataset} was read beyond the blocks that were paid for"
            elif any((event.dataset, block) not in paid_phase for block in event.blocks):
                yield f"P6: {event.dataset} has read a block that nothing was ever charged to"
    for name, held in world.store._datasets.items():
        charged: Counter[int] = Counter()
        for happened in world.trail:
            if isinstance(happened, Committed) and happened.transition.dataset == name:
                for charge in happened.transition.charges:
                    charged[charge.block] += charge.rho
        if [charged[block] for block in range(len(held.spent))] != [rho for rho, _ in held.spent]:
            yield f"P6: {name} has forgotten a charge"


def _runs(event: Committed) -> list[tuple[object, ...]]:
    """The runs and segments that the announced looks belong to; a segment ends with its process."""
    name = event.transition.dataset
    looks = json.loads(event.transition.intent or b"[]")
    runs = [(name, look["kind"], look["run"]) for look in looks if "run" in look]
    return [*runs, *((name, event.process, look["segment"]) for look in looks if "segment" in look)]


def _rows_once(world: World) -> Iterator[str]:
    """P3: the cells and values in the store are those of the accepted batches, each counted once."""
    for name, held in world.store._datasets.items():
        if held.definition is None or held.retired:
            continue
        snapshot = _snapshot(world, name)
        universe, _ = build(_definition(snapshot))
        if _definition(snapshot).privacy.unit is not None:
            yield from _rows_of_persons_once(world, name, snapshot)
            continue
        found: Counter[tuple[int, ...]] = Counter()
        values: Counter[tuple[int, ...]] = Counter()
        for stored in _every_block(world, name):
            block = Block.from_bytes(universe, stored)
            found += _histogram(block.codes, block.counts)
            for totals in block.totals.values():
                values += _histogram(block.codes, totals)
        for stored in snapshot.pending:
            rows = Rows.from_bytes(universe, stored)
            found += _histogram(rows.codes, rows.entry_counts)
            values += _values(rows)
        expected: Counter[tuple[int, ...]] = Counter()
        sent: Counter[tuple[int, ...]] = Counter()
        told_of = [e for e in world.events("batch_accepted") if e["dataset"] == name]
        accepted = {_batch_name(event) for event in told_of} - _given_up(world, name)
        for named, record in _first_batches(world).get(name, {}).items():
            document = json.loads(record.value or b"")
            if named not in accepted:
                continue
            rows = (
                universe.encode_cells(document["cells"])
                if "cells" in document
                else universe.encode_rows(document["rows"])
                if "rows" in document
                else universe.encode_columns(document["columns"])
            )
            expected += _histogram(rows.codes, rows.entry_counts)
            sent += _values(rows)
        if found != expected:
            yield f"P3: {name} holds {found.total()} rows and accepted {expected.total()}"
        if values != sent:
            yield f"P3: {name} holds {values.total()} units and accepted {sent.total()}"
        opened = [e for e in world.events("phase_opened") if e["dataset"] == name]
        told = [event["phase"] for event in told_of]
        if [e["phase"] for e in opened] != list(range(1, len(held.spent) + 1)):
            yield f"P3: {name} has {len(held.spent)} phases and announced {len(opened)}"
        if max(told, default=0) > len(held.spent):
            yield f"P3: {name} has {len(held.spent)} phases and told a producer of {max(told)}"


def _given_up(world: World, name: str) -> set[str | None]:
    """The batches that waited, are on their topic no more, and were given up by a commit."""
    return set[str | None]().union(*_given_up_by(world, name).values())


def _given_up_by(world: World, name: str) -> dict[int, set[str | None]]:
    """Number of a commit -> the batches that it gave up. It says how many of those that waited are lost.

    Those that a store still had came first: an older copy has the beginning.
    """
    waiting: list[Accepted] = []
    found: dict[int, set[str | None]] = {}
    for record in journaled(world).get(name, []) if world.expired else ():
        waiting += record.accepted
        if record.sealed is not None:
            waiting.clear()
        for gone in given_up(record.transcript):
            nowhere = [a for a in waiting if f"{a.topic_partition}:{a.offset}" in world.expired]
            lost = nowhere[len(nowhere) - gone.batches :]
            waiting = [one for one in waiting if one not in lost]
            found[record.seq] = {one.batch_id for one in lost}
    return found


def _rows_of_persons_once(world: World, name: str, snapshot: Snapshot) -> Iterator[str]:
    """P3 where persons are protected: the blocks are, byte for byte, those of the accepted batches in order.

    Which rows count is decided here once more, row by row, from the log and the secret in the vault. P15:
    what persons have used for life, by the store, is at least what counts, and no more than is allowed.
    """
    definition = _definition(snapshot)
    unit, (universe, _) = definition.privacy.unit, build(definition)
    assert unit is not None
    secret = PersonSecret.from_bytes(snapshot.vault["person"], name, world.key_file).value
    records = _first_batches(world).get(name, {})
    *sealed, left = _batches_of_phases(world, name)
    used: Counter[bytes] = Counter()

    def rows_of(batches: Iterable[str]) -> list[Rows]:
        found = []
        for named in batches:
            document = json.loads(records[named].value or b"")
            persons = Persons(unit.key, secret, named)
            found.append(
                universe.encode_rows(document["rows"], persons)
                if "rows" in document
                else universe.encode_columns(document["columns"], persons)
            )
        return found

    blocks: list[bytes] = []
    for batches in sealed:
        rows = Rows.concat(rows_of(batches))
        marks = counted_row_by_row(rows, unit, used)
        blocks.append(Block.seal(universe, rows, counted=marks).to_bytes())
    if blocks != _every_block(world, name):
        yield f"P3: {name} holds other blocks than those of its {len(blocks)} phases"
    if [rows.to_bytes() for rows in rows_of(left)] != list(snapshot.pending):
        yield f"P3: {name} holds other rows than the {len(left)} batches that wait"
    if unit.lifetime:
        kept = world.store._datasets[name].persons
        units = Counter({person: one.before + one.rows**2 for person, one in kept.items()})
        if used - units:
            yield f"P15: {name} has forgotten what {len(used - units)} persons have used for life"
        if max(units.values(), default=0) > unit.phases * unit.rows_per_phase**2:
            yield f"P15: a person has used more of {name} than is allowed for life"


def _batches_of_phases(world: World, name: str) -> list[list[str]]:
    """The names of the batches of each phase in order, and last of those that wait; without lost ones."""
    if _calendar_of(world, name) is not None:
        phases = _Periods(world, name).phases
    else:
        phases = [[]]
        for event in world.events("batch_accepted"):
            if event["dataset"] == name:
                phases[-1].append(_batch_name(event) or "")
                if event["phase"] == len(phases):
                    phases.append([])
    lost = _given_up(world, name)
    return [[named for named in phase if named not in lost] for phase in phases]


def _periods(world: World) -> Iterator[str]:
    """P16: by the calendar, a phase opens when its period ends or is closed; a closing has one outcome.

    Which batch is late, and which days a phase covers, follows from the log and the order of what is on the
    journal. Whether a period ends is decided here once more, day by day.
    """
    for name, held in world.store._datasets.items():
        if held.definition is None or _calendar_of(world, name) is None:
            continue
        periods = _Periods(world, name)
        yield from periods.said
        if len(periods.phases) - 1 != len(held.spent):
            yield f"P16: {name} has {len(held.spent)} phases and opened {len(periods.phases) - 1}"
        rejected = world.rejections()
        closings = [
            record
            for record in _records_of(world, name)
            if record.role == "datasets"
            and "close" in (_parsed(record) or {})
            and (record.topic, record.partition, record.offset) not in rejected
        ]
        if len(closings) != periods.closed:
            yield f"P16: {name} has closed {periods.closed} times, and was told to {len(closings)} times"


def _calendar_of(world: World, name: str) -> ZoneInfo | None:
    """The time zone of a data set whose phases follow the days. None if they go by rows alone."""
    phase = json.loads(world.store._datasets[name].definition or b"{}").get("phase", {})
    assert phase.get("every") in (None, "1 day"), "the referee counts in days"
    return ZoneInfo(phase.get("timezone", "UTC")) if "every" in phase else None


class _Periods:
    """What the journal says of a data set by the calendar, day by day.

    Attributes:
        phases: The names of the batches of each phase, and last of those that wait.
        closed: How many outcomes of closings there are.
        said: What is wrong.
    """

    def __init__(self, world: World, name: str) -> None:
        self.phases: list[list[str]] = [[]]
        self.closed = 0
        self.said: list[str] = []
        self._zone, self._name = _calendar_of(world, name), name
        self._first = _first_batches(world).get(name, {})
        self._least = json.loads(world.store._datasets[name].definition or b"")["phase"]["min_rows"]
        self._rows = 0  # of those that wait
        self._since: date | None = None
        self._until: date | None = None
        self._ended: date | None = None  # all days before this one
        self._late = 0
        events: list[dict[str, Any]] = []
        gone, known = _given_up_by(world, name), set[str]()
        for record in journaled(world).get(name, []):
            if record.seq in gone:
                events.append({"event": "given up", "batches": gone[record.seq]})
            events += [
                json.loads(one.value)
                for one in record.outbox
                if isinstance(one, OutboxRecord) and one.role == "events" and one.value
            ]
        for at, event in enumerate(events):
            kind = event["event"]
            if kind == "given up":
                self._rows -= sum(self._size_of(one) for one in event["batches"])
                self.phases[-1] = [one for one in self.phases[-1] if one not in event["batches"]]
            elif kind == "batch_accepted" and (named := _batch_name(event)) not in known:
                assert named is not None
                known.add(named)
                self._accepted(named, event)
            elif kind == "phase_closed":
                self.closed += 1
            elif kind == "phase_opened":
                before = events[at - 1]
                is_closed = (
                    before.get("event") == "phase_closed" and before["phase"] == event["phase"]
                )
                following = (e for e in events[at:] if e["event"] == "batch_accepted")
                by = None if is_closed else next(following, None)
                self._opened(event, None if by is None else self._day(_batch_name(by) or ""))

    def _size_of(self, named: str) -> int:
        document = json.loads(self._first[named].value or b"")
        if "cells" in document:
            return sum(cell["count"] for cell in document["cells"])
        rows: Any = document.get("rows") or next(iter(document.get("columns", {"": []}).values()))
        return len(rows)

    def _day(self, named: str) -> date | None:
        """The day that a batch is about: the one that it names, or that of its record."""
        record = self._first[named]
        said = json.loads(record.value or b"").get("time")
        if said is not None:
            return date.fromisoformat(said)
        if record.timestamp_ms < 0:
            return None
        return datetime.fromtimestamp(record.timestamp_ms / 1000, self._zone).date()

    def _accepted(self, named: str, event: Mapping[str, Any]) -> None:
        day, size = self._day(named), self._size_of(named)
        self.phases[-1].append(named)
        if self._until and day and day >= self._until and self._rows >= self._least:
            self.said.append(f"P16: {self._name} has not opened a phase before {named} of {day}")
        self._rows += size
        told = event["phase"], event["waiting"], event["rows"]
        if told != (len(self.phases) - 1, self._rows, size):
            self.said.append(f"P16: {self._name} has told otherwise what {named} has come to")
        begins = self._since or self._ended
        if day is None:
            return
        if begins and day < begins:
            self._late += 1
            return
        self._since = self._since or day
        self._until = max(self._until or date.min, day + timedelta(days=1))

    def _opened(self, event: Mapping[str, Any], by: date | None) -> None:
        """Compares a phase with what waited. It was closed, or ended by a batch about a day."""
        phase, ended = len(self.phases), by or self._until or self._ended
        if self._rows < self._least or (by and not (self._until and by >= self._until)):
            self.said.append(f"P16: {self._name} has opened phase {phase} before its time")
        since, until = self._since or self._ended, self._until or self._ended
        dates = str(since or ""), str(until or "")
        told = event.get("since", ""), event.get("until", "")
        if (event["phase"], event["rows"], event["late_batches"], *told) != (
            *(phase, self._rows, self._late),
            *dates,
        ):
            self.said.append(f"P16: phase {phase} of {self._name} is another one than was told")
        self._since = self._until = None
        self._ended, self._late, self._rows = ended, 0, 0
        self.phases.append([])


def bounds(of: Mapping[str, tuple[int, int]]) -> AskBounds:
    """What a broker tells that has these logs: where they begin, and where they end."""

    async def ask() -> Mapping[str, tuple[int, int]]:
        return of

    return ask


def counted_row_by_row(rows: Rows, unit: UnitSpec, used: Counter[bytes]) -> npt.NDArray[np.bool_]:
    """The rows of least rank of each person, row by row; adds what they use for life to ``used``."""
    assert rows.whose is not None
    digests = [bytes(digest) for digest in rows.whose.digests]
    marks = np.zeros(len(digests), dtype=np.bool_)
    so_far: Counter[bytes] = Counter()
    for _, slot in sorted((int(rank), slot) for slot, rank in enumerate(rows.whose.ranks)):
        person = digests[slot]
        more = so_far[person] + 1
        fits = used[person] + more**2 <= unit.phases * unit.rows_per_phase**2
        if any(person) and more <= unit.rows_per_phase and (fits or not unit.lifetime):
            so_far[person] = more
            marks[slot] = True
    for person, rows_of_person in so_far.items():
        used[person] += rows_of_person**2
    return marks


def _every_block(world: World, name: str) -> list[bytes]:
    """The blocks of the store, and before them those that it had and has erased."""
    held = world.store._datasets[name]
    seals = [
        event.transition.seal
        for event in world.trail
        if isinstance(event, Committed) and event.transition.dataset == name
    ]
    erased = len(held.spent) - len(held.blocks)
    before = [seal for seal in seals if seal is not None][:erased]
    return [world.block_of(stored) for stored in [*before, *held.blocks]]


def _values(rows: Rows) -> Counter[tuple[int, ...]]:
    """What the rows of each cell count for together, in units above the lower ends."""
    values: Counter[tuple[int, ...]] = Counter()
    for offsets in rows.measures.values():
        values += _histogram(rows.codes, offsets.astype("int64") * rows.entry_counts)
    return values


def _histogram(codes: Sequence[Any], counts: Any) -> Counter[tuple[int, ...]]:
    """Rows of each cell, in Python's own integers."""
    cells: Counter[tuple[int, ...]] = Counter()
    for *cell, count in zip(*(column.tolist() for column in codes), counts.tolist(), strict=True):
        cells[tuple(cell)] += count
    return +cells


def _first_batches(world: World) -> dict[str, dict[str, Record]]:
    """The first record of each batch that was not rejected, by data set and name of the batch.

    Of a producer that counts its batches, a number that was refused is used again: the first record that was
    not refused has it.
    """
    rejected = world.rejections()
    found: dict[str, dict[str, Record]] = defaultdict(dict)
    for topic_partition, records in world.log.items():
        if not topic_partition.startswith("in.batches:"):
            continue
        for record in records:
            if (record.topic, record.partition, record.offset) in rejected:
                continue
            document = _parsed(record) or {}
            named = _batch_name(document)
            if named is not None and not ("producer" in document and _is_broken(document)):
                found[document["dataset"]].setdefault(named, record)
    return found


def _is_broken(document: Mapping[str, Any]) -> bool:
    """Whether a batch is refused whatever its data set is: the scenarios leave columns out."""
    return "columns" in document and len(document["columns"]) < 2


def _one_outcome(world: World) -> Iterator[str]:
    """P4: every record has exactly one outcome, however often it is repeated."""
    rejected = world.rejections()
    answers = {name for name, r in world.answers().items()}
    batches: dict[tuple[str, str | None], list[dict[str, Any]]] = defaultdict(list)
    for event in world.events():
        if (named := _batch_name(event)) is not None:
            batches[event["dataset"], named].append(event)
    unrefused: set[tuple[str, str, str | None]] = set()
    taken: set[tuple[str, str | None]] = set()
    for record in (record for records in world.log.values() for record in records):
        position = record.topic, record.partition, record.offset
        here = rejected.get(position, [])
        # A rejected query names who asked it.
        whole = [reply for reply in here if "analyst" not in reply]
        if len(whole) > 1:
            yield f"P4: {position} was rejected in {len(whole)} ways"
        if whole:
            continue
        if record.role == "datasets":
            kind = "dataset_accepted" if record.value is not None else "dataset_retired"
            of = (record.key or b"").decode()
            if not any(event["dataset"] == of for event in world.events(kind)):
                yield f"P4: {position} has no event {kind}"
            continue
        document = _parsed(record)
        if document is None:
            yield f"P4: {position} has no outcome"
        elif record.role == "batches":
            batch = document["dataset"], _batch_name(document)
            taken.add(batch)
            said = [e["event"] for e in batches[batch] if e["event"] != "batch_known"]
            # What a producer that counts was refused, it sends again under its number. So does a source.
            in_order = "producer" in document or document.get("source") is not None
            again = in_order and said.count("batch_refused") == 1
            below = "producer" in document and not said and batches[batch]
            if said.count("batch_accepted") > 1 or not (
                (len(said) - again in (0, 1) and said) or below
            ):
                yield f"P4: batch {batch} has {len(said)} outcomes"
        else:
            for item in _asked(document):
                name = document["dataset"], document["analyst"], _id_of(item)
                if isinstance(item, dict) and item.get("standing") is not None:
                    if not here and not any(
                        event.outgoing.key == " ".join(map(str, name))
                        for event in world.trail
                        if isinstance(event, Sent) and event.outgoing.role == "standing"
                    ):
                        yield f"P4: the standing query {name} at {position} is not listed"
                    continue
                # Where the id was used for another query, that one has the answer.
                if not any(
                    reply.get("query_id") == name[2] and reply["reason"]["code"] != "id_reused"
                    for reply in here
                ):
                    unrefused.add(name)
                    if name not in answers:
                        yield f"P4: {name} at {position} has no outcome"
    for name in answers - unrefused - _answers_of_standing(world):
        yield f"P4: {name} was answered though every record that asked it was rejected"
    for batch in batches.keys() - taken:
        yield f"P4: batch {batch} has an outcome though every record of it was rejected"


def _id_of(item: Any) -> str | None:
    query_id = item.get("query_id") if isinstance(item, dict) else None
    valid = isinstance(query_id, str) and re.fullmatch(r"[\x21-\x7e]{1,128}", query_id)
    return query_id if valid else None


def _parsed(record: Record) -> dict[str, Any] | None:
    try:
        document = json.loads(record.value or b"")
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, dict) else None


def _at_rest(world: World) -> Iterator[str]:
    """Nothing is left to do once all is read."""
    for name, held in world.store._datasets.items():
        if held.outbox:
            yield f"P4: {name} has {len(held.outbox)} commits that were never released"
        if held.intents and "quarantined" not in held.meta:  # a worker that died of it took no step
            yield f"P5: {name} has an open look"
    for topic_partition, records in world.log.items():
        read = world.store._watermarks.get(topic_partition, 0)
        if records and read != len(records):
            yield f"P4: {topic_partition} was read to {read} of {len(records)}"


def _ledger(world: World) -> Iterator[str]:
    """The published ledger ends in the stored one, its chain holds, and its charges are the spent ones."""
    published: dict[str, list[bytes]] = defaultdict(list)
    for event in world.trail:
        if isinstance(event, Sent) and event.outgoing.role == "ledger":
            entries = published[event.outgoing.key]
            if event.outgoing.value not in entries:
                entries.append(event.outgoing.value)
    for name, held in world.store._datasets.items():
        if published[name][-vars(local)["LEDGER_TAIL"] :] != held.ledger:
            yield f"P5: the ledger of {name} was published otherwise than it is stored"
        try:
            ledger.verify(published[name], head=held.head)
        except LedgerBroken as error:
            yield f"P5: the ledger of {name} is broken: {error}"
        charged: Counter[int] = Counter()
        for entry in published[name]:
            for block, rho, _ in json.loads(entry).get("charges", []):
                charged[block] += rho
        if [charged[block] for block in range(len(held.spent))] != [rho for rho, _ in held.spent]:
            yield f"P2: the ledger of {name} and its spent budget differ"
        if held.ledger:
            report = verify(name, published[name])
            yield from (f"P2: {name}: {found}" for found in (*report.faults, *report.notes))


class _Accounts:
    """Who has charged what to which block, by the ledger alone, and what the rules in force allow."""

    def __init__(self) -> None:
        self.analysts: dict[str, Any] | None = None
        self.owner: dict[str, Any] | None = None
        self.charged: Counter[tuple[str, int]] = Counter()

    def entry(self, analyst: str) -> str | None:
        names = self.analysts or {}
        if analyst in names and not analyst.endswith("*"):
            return analyst
        found = [one for one in names if one.endswith("*") and analyst.startswith(one[:-1])]
        return max(found, key=len) if found else None

    def pool(self, account: str) -> tuple[str, Fraction]:
        """The pool of an account, and its part of a line."""
        assert self.analysts is not None
        kept = {
            name: Fraction(str(share))
            for name, spec in self.analysts.items()
            if (share := spec.get("together" if name.endswith("*") else "share")) is not None
        }
        owner = None if self.owner is None else Fraction(str(self.owner["share"]))
        name = self.entry(account) if account else None
        if owner is not None and (not account or (name and self.analysts[name].get("owner"))):
            return "the owner", owner
        if name in kept:
            return str(name), kept[str(name)]
        return "the rest", 1 - sum(kept.values(), Fraction(0)) - (owner or 0)

    def charge(self, account: str, blocks: Iterable[tuple[int, int]]) -> Iterator[str]:
        """Charges units to blocks; says which bounds they pass."""
        for block, units in blocks:
            self.charged[account, block] += units
            if not account:
                continue
            assert self.analysts is not None
            name = self.entry(account)
            share = None if name is None else self.analysts[name].get("share")
            if share is not None and self.charged[account, block] > Fraction(str(share)) * UNITS:
                yield f"{account} has charged more of block {block} than its share"
            pool, part = self.pool(account)
            together = sum(
                paid
                for (other, there), paid in self.charged.items()
                if there == block and self.pool(other)[0] == pool
            )
            if together > part * UNITS:
                yield f"{pool} has charged more of block {block} than is kept for it"


def _shares_hold(world: World) -> Iterator[str]:
    """P13: no analyst charges a block more than is allowed, and the store has what the ledger says of it."""
    published: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for event in world.trail:
        if isinstance(event, Sent) and event.outgoing.role == "ledger":
            entry = json.loads(event.outgoing.value)
            published[event.outgoing.key][entry["seq"]] = entry
    for name, entries in published.items():
        accounts = _Accounts()
        for _, entry in sorted(entries.items()):
            said = entry["definition"] if entry["kind"] == "dataset" else entry
            if "analysts" in said:
                accounts.analysts, accounts.owner = said["analysts"], said.get("owner")
            if entry["kind"] == "charge" and accounts.analysts is not None:
                account = "" if entry.get("paid_by") == "owner" else entry.get("analyst", "")
                found = accounts.charge(account, [(b, max(rest)) for b, *rest in entry["charges"]])
                yield from (f"P13: of {name}, {passed}" for passed in found)
        meta = world.store._datasets[name].meta
        stored = {f: v for f, v in meta.items() if f.startswith("account ")}
        if {f: int(v.split()[0]) for f, v in stored.items()} != {
            f"account {block} {account}": units
            for (account, block), units in accounts.charged.items()
        }:
            yield f"P13: the store has other accounts of {name} than the ledger"


def _synthetic(world: World) -> Iterator[str]:
    """A data set that asked for synthetic rows has them, and they are of the newest phase.

    One that did not ask, or is retired, has none.
    """
    newest: dict[str, bytes] = {}
    for event in world.trail:
        if isinstance(event, Sent) and event.outgoing.role == "synthetic":
            newest[event.outgoing.key] = event.outgoing.value
    for name, held in world.store._datasets.items():
        if held.definition is None:
            continue
        wanted = json.loads(held.definition)["synthetic_rows"]
        found = json.loads(newest.get(name) or b"null")
        if not wanted and name in newest:
            yield f"{name} has synthetic rows that nobody asked for"
        elif held.retired and newest.get(name):
            yield f"{name} is retired and has synthetic rows"
        elif wanted and held.spent and not held.retired:
            if (found or {}).get("phase") != len(held.spent):
                yield f"{name} has no synthetic rows of phase {len(held.spent)}"
            elif {len(column["codes"]) for column in found["columns"].values()} != {wanted}:
                yield f"{name} has not {wanted} synthetic rows"


def _answers_of_standing(world: World) -> set[tuple[str, str, str]]:
    """The ids under which standing queries may have been answered."""
    return {
        (dataset, analyst, f"{query_id}@{phase}")
        for dataset, held in world.store._datasets.items()
        for analyst, query_id in {
            (one["analyst"], one["query"]["query_id"]) for _, one in _slots_ever(world, dataset)
        }
        for phase in range(1, len(held.spent) + 1)
    }


def _slots_ever(world: World, name: str) -> list[tuple[str, dict[str, Any]]]:
    """Every standing query that was ever committed, by its slot."""
    return [
        (slot, json.loads(text))
        for event in world.trail
        if isinstance(event, Committed) and event.transition.dataset == name
        for slot, text in event.transition.meta.items()
        if re.fullmatch("standing [0-9]+", slot) and text
    ]


def _standing_queries(world: World) -> Iterator[str]:
    """P9: a query that stands when a phase opens is answered for it, before all else that the phase is asked.

    One that begins in an open phase is answered for that phase too. The topic lists those that stand.
    """
    listed: dict[str, bytes] = {}
    for sent in world.trail:
        if isinstance(sent, Sent) and sent.outgoing.role == "standing":
            listed[sent.outgoing.key] = sent.outgoing.value
    standing_now: set[str] = set()
    for name in world.store._datasets:
        standing: dict[str, tuple[str, str, int]] = {}
        owed: set[str] = set()
        of_opening: set[str] = set()
        ever = {one for record in journaled(world).get(name, []) for one in record.answers}
        phase = 0
        for event in world.trail:
            if not isinstance(event, Committed) or event.transition.dataset != name:
                continue
            transition = event.transition
            if transition.erase:
                standing.clear()
                owed.clear()
            opened = transition.seal is not None
            for slot, text in transition.meta.items():
                if not re.fullmatch("standing [0-9]+", slot):
                    continue
                before = standing.pop(slot, None)
                if text:
                    one = json.loads(text)
                    new = one["analyst"], one["query"]["query_id"], one["serial"]
                    standing[slot] = new
                    if before != new and (phase or opened):
                        owed.add(f"{new[0]} {new[1]}@{phase + opened}")
                elif before is not None:
                    owed.discard(f"{before[0]} {before[1]}@{phase}")
            if opened:
                if owed - transition.answers.keys() - ever:
                    yield f"P9: {name} opened phase {phase + 1} and still owed {sorted(owed)}"
                phase += 1
                owed = {f"{analyst} {one}@{phase}" for analyst, one, _ in standing.values()}
                of_opening = owed - _early(world, name)
            for answered, stored in transition.answers.items():
                said = json.loads(answer_from_bytes(stored)[1])
                first = sorted(of_opening & owed)
                if said.get("phase") == phase and answered not in owed and first:
                    yield f"P9: {name} answered {answered} before {first}"
                owed.discard(answered)
        owed -= _early(world, name)
        if owed:
            yield f"P9: {name} still owes {sorted(owed)}"
        standing_now |= {f"{name} {analyst} {one}" for analyst, one, _ in standing.values()}
    if {key for key, value in listed.items() if value} != standing_now:
        yield f"P9: the topic lists {sorted(listed)}, and {sorted(standing_now)} stand"


def _early(world: World, name: str) -> set[str]:
    """The names under which somebody has asked by hand."""
    return {
        f"{document.get('analyst')} {_id_of(item)}"
        for topic_partition, records in world.log.items()
        if topic_partition.startswith("in.queries:")
        for document in filter(None, map(_parsed, records))
        if document.get("dataset") == name
        for item in _asked(document)
    }


def _snapshot(world: World, name: str) -> Snapshot:
    held = world.store._datasets[name]
    return Snapshot(
        dataset=name,
        token=held.token,
        seq=held.seq,
        head=held.head,
        trail=held.trail,
        definition=held.definition,
        meta=held.meta,
        cursor=held.cursor,
        pending=tuple(held.pending),
        n_blocks=len(held.blocks),
        vault=held.vault,
        spent=tuple(held.spent),
        transcript=tuple(held.transcript),
        verified=held.verified,
        intents=held.intents,
        outbox=(),
    )


def _definition(snapshot: Snapshot) -> Any:
    return Definition.read(json.loads(snapshot.definition or b""))
