"""A stream in one process: a log with offsets, and workers that die and start again.

``World`` holds what survives a crash (the logs, Redis, what was released) and a trail of everything that
happened, in order. ``Process`` is one worker: its memory ends when it dies.
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
import json
import random
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar, cast

from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.rows.blocks import Blocks
from stream_dp.messages import INPUTS
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.intake.decoder import partition_in, partition_of
from stream_dp.pipeline.intake.records import Outgoing, Record
from stream_dp.pipeline.journal.checkpoint_rounds import Often
from stream_dp.pipeline.journal.published_commits import COMPARED
from stream_dp.pipeline.kafka.topic_log import LogEntry
from stream_dp.pipeline.repair.witnesses import WITNESSES
from stream_dp.pipeline.worker import Worker, WorkerRules, WorkerTopics
from stream_dp.state.schema import Commit
from tests.driven import drained, take_all
from tests.local_logs import LocalLog
from tests.noise import RoundedNoise
from tests.pipeline.crash import CountingFuse, Crash, copied
from tests.pipeline.fakes import (
    FakeKept,
    FakeLog,
    FakePublished,
    FakeRows,
    FakeView,
)
from tests.pipeline.held import Held, held_of
from tests.pipeline.trail import Committed, Looked, Sent
from tests.view import MemoryView

T = TypeVar("T")


@dataclasses.dataclass(frozen=True)
class Followed:
    """That Redis had followed a worker.

    Attributes:
        datasets: The names of the data sets that it served.
        ends: Where each partition of the journal ended.
    """

    datasets: frozenset[str]
    ends: tuple[int, ...]


class Process:
    """One worker process. ``run`` reads until nothing is left; ``kill`` ends it without a goodbye."""

    def __init__(self, world: World, number: int, fuse: CountingFuse, **changes: Any) -> None:
        self.world = world
        self.number = number
        self.view = FakeView(world, number, fuse)
        self.noise: NoiseSource = world.make_noise(number)
        rules = WorkerRules(key_file=world.key_file, often=world.often)
        self.kept = FakeKept(world, number, fuse)
        hidden = () if world.shows_outputs else COMPARED
        self.worker: Worker = world.worker_type(
            self.view,
            lambda: self.noise,
            self._send,
            WorkerTopics(
                FakeLog(world, number, fuse),
                FakeRows(world),
                self.kept,
                {
                    role: LocalLog(1) if role in hidden else FakePublished(world, role)
                    for role in WITNESSES
                },
                world.partitions,
            ),
            replace(rules, **world.rules, **changes),
            Context(fuse),
        )
        self.generation = 0
        self.effects = 0
        self.is_dead = False
        self.interrupt: Callable[[int], Awaitable[None]] | None = None
        self._fuse = fuse
        self.positions: dict[str, int] = {}
        self._tasks = [
            asyncio.create_task(self.worker.run_owner()),
            asyncio.create_task(self.worker.releaser.run()),
            asyncio.create_task(self.worker.following.run()),
            asyncio.create_task(self.worker.rounds.run()),
        ]

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        """What it holds."""
        return self.worker.datasets

    async def effect(self) -> None:
        """Called before every step outside: what else happens just then is up to the test."""
        if self.is_dead:
            raise Crash("what a dead process had under way")
        self.effects += 1
        if self.interrupt is not None:
            await self.interrupt(self.effects)

    async def _send(self, outgoing: Outgoing) -> Awaitable[object]:
        await self.effect()
        self._fuse("send")
        if self.world.holds(self.number, "send", outgoing):
            raise Crash("a record is under way")
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

        async def ask(_: object) -> dict[str, tuple[int, int]]:
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
            await self._unless_dead(take_all(self.worker, group))
        return bool(group)

    async def run(self) -> None:
        """Reads everything there is, and returns when all of it is released."""
        while await self.step():
            if not self.world.lagging:
                await self.drained()
        await self.drained()

    @property
    def watermarks(self) -> dict[str, int]:
        """What it is done with and has not said yet."""
        owned, done = self.worker.journal.owned(), self.worker.releaser._done
        mine = [one for partition, one in done.items() if partition in owned]
        return {place: at for one in mine for place, at in one.get("watermarks", {}).items()}

    async def drained(self) -> None:
        """Returns when everything that was committed has been released."""
        await self._unless_dead(drained(self.worker, self.world.tick_s))

    async def settled(self) -> None:
        """Rests for a second after all is read: marks say what is done with, and Redis follows."""
        worker = self.worker
        while not self._is_settled():
            await self.drained()
            for partition, owned in worker.journal.owned().items():
                if worker.releaser._done[partition]:
                    await self._unless_dead(worker.releaser.mark(owned))
            if not self.world.view_away:
                await self._unless_dead(worker.following.joined())
            await asyncio.sleep(self.world.tick_s)
        ends = tuple(map(len, self.world.journal))
        self.world.followed = Followed(frozenset(self.datasets), ends)

    def _is_settled(self) -> bool:
        following = self.worker.following
        followed = self.world.view_away or (following._done.is_set() and not following.behind)
        appends = any(lock.locked() for lock in self.worker.journal._locks.values())
        return followed and not (self.worker.busy or appends or self.watermarks)

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

    def begin(self, task: Coroutine[Any, Any, None]) -> None:
        """Begins another task of the worker."""
        self._tasks.append(asyncio.create_task(task))

    def revoke(self, partitions: Iterable[int]) -> None:
        """Leaves partitions to others."""
        gone = set(partitions)
        self.worker.revoked(gone)
        self.positions = {
            place: at for place, at in self.positions.items() if partition_in(place) not in gone
        }

    async def stop(self) -> None:
        """Ends with a goodbye."""
        await self._cancel()
        await self.worker.put_down()
        self.is_dead = True

    async def kill(self) -> None:
        """Ends it, with what it has under way."""
        await self._cancel()
        self.is_dead = True

    async def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


class _DeadProcess:
    """A process of which nothing is left."""

    datasets: Mapping[str, Dataset] = {}
    watermarks: Mapping[str, int] = {}

    async def kill(self) -> None:
        """It is dead already."""


class World:
    """The log, the store and what was released.

    Attributes:
        group: Most records a worker takes at once.
        lagging: Whether releases lag behind the next groups.
        tick_s: How often it is looked whether something is done.
        worker_type: Class of the workers; a mutant puts its own here.
        key_file: What the workers' key file of persons holds; None without one.
        rules: Further rules of the workers.
        now_ms: The broker's time of the next records; -1 for records without one.
        journal: The entries of the journal, by partition, those included that were deleted.
        forgotten: The offset of the first entry of each partition that is there.
        often: How often workers write checkpoints.
        round: The number of the round that is run, from 0.
        kept: What is kept of blocks, by key.
        kept_log: All that was ever kept, with its key, by offset.
        dropped: The keys of what workers have erased there.
        followed: Where the last worker was done with all, and Redis had followed it.
        wrote: The numbers of the workers that wrote the state of each data set to Redis, in order.
        holds_back: The number of the worker that dies during its next step outside of a kind, and the kind.
        held_back: What is under way: the number of the worker, what it is, and with which arguments.
        appends_land_late: Whether an append without a reply may land after it was repeated.
        spoiled: The data sets of which Redis may have answers of another history, or wrong ones.
        lost_replies: The share of appends to the journal whose reply is lost.
        shows_outputs: Whether workers compare what was published. Not where it has gone back as well.
        view: Redis.
        view_away: Whether Redis is out of reach.
        stale_reads: The share of readings that meet a broker which does not lead any more. It does not know
            what came last.
        expired: The ids of records that are on their topics no more.
        deleted: Those of them that workers have deleted.
    """

    Crash = Crash
    Fuse = CountingFuse

    def __init__(self, *, seed: int = 1) -> None:
        self.partitions = 2
        self.group = 5
        self.lagging = False
        self.tick_s = 0.001
        self.deaths = 1
        self.worker_type: Callable[..., Worker] = Worker
        self.key_file: bytes | None = None
        self.rules: dict[str, Any] = {}
        self.now_ms = -1
        self.view = MemoryView()
        self.view_away = False
        self.log: dict[str, list[Record]] = {
            f"in.{role}:{partition}": [] for role in INPUTS for partition in range(self.partitions)
        }
        self.journal: list[list[LogEntry]] = [[] for _ in range(self.partitions)]
        self.forgotten = [0] * self.partitions
        self.often = Often()
        self.lost_replies = 0.0
        self.shows_outputs = True
        self.stale_reads = 0.0
        self.expired: set[str] = set()
        self.deleted: set[str] = set()
        self.kept: dict[bytes, tuple[bytes, ...]] = {}
        self.kept_log: list[tuple[bytes, tuple[bytes, ...]]] = []
        self.kept_late: set[bytes] = set()  # by a worker after which another one has started
        self.dropped: set[bytes] = set()
        self.trail: list[Sent | Committed | Looked] = []
        self.judged: dict[str, Held] | None = None  # while the referee reads
        self.followed: Followed | None = None
        self.wrote: dict[str, list[int]] = {}
        self.spoiled: set[str] = set()
        self.holds_back: tuple[int, str] | None = None
        self.held_back: list[tuple[Any, ...]] = []
        self.appends_land_late = False
        self.random = random.Random(seed)
        self.processes: list[Process] = []
        self.generation = 0
        self.round = 0

    def copy(self) -> World:
        """What a crash of all processes leaves at this moment, apart from this world."""
        left = copy.copy(self)
        for name, held in vars(self).items():
            if isinstance(held, dict | list | set) and name not in ("processes", "rules"):
                setattr(left, name, copied(held))
        left.view = copy.deepcopy(self.view)
        left.random = copy.copy(self.random)
        left.processes = [cast("Process", _DeadProcess()) for _ in self.processes]
        return left

    def make_noise(self, number: int) -> NoiseSource:
        return RoundedNoise(number)

    def kept_at(self, key: bytes) -> tuple[int, ...]:
        """The offsets of the parts of what is kept under a key: the last ones at which it was put."""
        newest = max((at for at, one in enumerate(self.kept_log) if one[0] == key), default=None)
        if newest is None:  # it came from elsewhere
            newest = len(self.kept_log)
            self.kept_log.append((key, self.kept[key]))
        begins = sum(len(parts) for _, parts in self.kept_log[:newest])
        return tuple(range(begins, begins + len(self.kept_log[newest][1])))

    @property
    def kept_end(self) -> int:
        """The offset at which the topic of blocks ends."""
        return sum(len(parts) for _, parts in self.kept_log)

    def expire(self, is_kept: Callable[[Record], bool] = lambda _: False) -> None:
        """Deletes all batches from their topics, but for some."""
        for role_partition, records in self.log.items():
            if "batches" in role_partition:
                self.expired |= {one.record_id for one in records if not is_kept(one)}

    def is_stale(self) -> bool:
        """Whether a reading meets a broker that does not lead any more."""
        return self.stale_reads > 0 and self.random.random() < self.stale_reads

    def holds(self, process: int, *step: Any) -> bool:
        """Whether a step outside is under way when its worker dies: it is done later."""
        if self.holds_back != (process, step[0]):
            return False
        self.holds_back = None
        self.held_back.append((process, *step))
        return True

    def land(self) -> None:
        """Something that was under way is done."""
        process, what, *arguments = self.held_back.pop(self.random.randrange(len(self.held_back)))
        match what:
            case "append":
                self.append(process, *arguments)
            case "forget":
                self.forget(*arguments)
            case "put":
                self.put(process, *arguments)
            case "drop":
                self.drop(*arguments)
            case "send":
                self.sent(process, *arguments)

    def forget(self, partition: int, before: int) -> None:
        """Deletes entries of the journal."""
        self.forgotten[partition] = max(before, self.forgotten[partition])

    def put(self, process: int, key: bytes, parts: tuple[bytes, ...]) -> tuple[int, ...]:
        """Keeps a private value; returns the offsets of its parts."""
        self.kept.pop(key, None)
        self.kept[key] = parts
        if process < len(self.processes) - 1:
            self.kept_late.add(key)
        self.kept_log.append((key, parts))
        return self.kept_at(key)

    def drop(self, key: bytes) -> None:
        """Erases a private value."""
        if self.kept.pop(key, None) is not None:
            self.dropped.add(key)

    def append(self, process: int, partition: int, entries: Sequence[LogEntry]) -> int:
        """Appends entries to the journal; returns the offset of the first."""
        log = self.journal[partition]
        first = len(log)
        log += entries
        for at, entry in enumerate(entries):
            headers = dict(entry.headers)
            number, count, _ = headers.get("part", b"0 1 ").split(b" ")
            if headers["kind"] == b"commit" and number == b"0":
                whole = b"".join(part.value for part in entries[at : at + int(count)])
                commit, _ = Commit.from_bytes(whole)
                place = partition, first + at
                self.trail.append(Committed(process, commit, place, len(self.kept_log)))
        return first

    def loses_reply(self) -> str:
        """What an append to the journal loses, if it loses something."""
        if self.random.random() >= self.lost_replies:
            return ""
        lost = self.random.choice(["before", "after", "offset"])
        late = self.appends_land_late and self.random.random() < 0.3
        return "late" if lost == "before" and late else lost

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

    def change_schema(self, dataset: str, attributes: Any, version: int = 2) -> Record:
        change = {"change": "schema", "schema_version": version, "attributes": attributes}
        return self.produce("datasets", {"version": 1, "dataset": dataset, **change})

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

    def process(self, fuse: CountingFuse | None = None, **changes: Any) -> Process:
        """A new worker process; it holds nothing until it is assigned."""
        self.processes.append(Process(self, len(self.processes), fuse or CountingFuse(), **changes))
        return self.processes[-1]

    async def owner(self, fuse: CountingFuse | None = None, **changes: Any) -> Process:
        """A worker that has taken all partitions over."""
        process = self.process(fuse, **changes)
        await process.assign()
        return process

    async def lives(
        self, *rounds: Callable[[World], object], goodbye: bool = False, **changes: Any
    ) -> Process:
        """A worker that takes all over, reads after each of these rounds, and dies, or says goodbye."""
        process = self.process(**changes)
        try:
            await process.assign()
            for produce in rounds or [lambda _: None]:
                produce(self)
                await process.run()
        finally:
            await (process.stop() if goodbye else process.kill())
        return process

    async def run(
        self, *fuses: CountingFuse, rounds: Sequence[Callable[[World], object]] = ()
    ) -> int:
        """Runs a worker until everything is read, starting it again whenever it dies.

        Args:
            fuses: The fuses of the first process, the second and so on. Later processes live.
            rounds: Each produces when the one before is done, as clients do that wait for replies.

        Returns:
            How often it died.
        """
        deaths = 0
        process: Process | None = None
        rounds = rounds or [lambda _: None]
        for self.round, produce in enumerate(rounds):
            produce(self)
            while True:
                try:
                    if process is None:
                        process = self.process(fuses[deaths] if deaths < len(fuses) else None)
                        await process.assign()
                    await process.run()
                    if self.round == len(rounds) - 1:
                        await process.settled()
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

    def durable(self) -> dict[str, Held]:
        """What is durable of each data set, by the journal."""
        return held_of(self) if self.judged is None else self.judged

    def held(self, dataset: str) -> Held:
        """What is durable of a data set, by the journal."""
        return self.durable()[dataset]

    def complaints(self) -> list[str]:
        """The referee's verdict on a finished run; empty when every promise was kept."""
        from tests.pipeline.referee import complaints  # which imports this module

        return complaints(self)

    def sent(self, process: int, outgoing: Outgoing) -> None:
        self.trail.append(Sent(process, outgoing, tuple(map(len, self.journal))))

    def looked(self, blocks: Blocks, window: range) -> None:
        for process in self.processes:
            for dataset in process.datasets.values():
                if dataset.rows.blocks.data is blocks:
                    self.trail.append(Looked(process.number, dataset.name, window))

    def home(self, dataset: str) -> int:
        """The partition of a data set."""
        return partition_of(dataset.encode(), self.partitions)

    def kinds(self, partition: int, start: int | None = None) -> list[str]:
        """The kinds of the entries of the journal that are there, or of all from an offset on."""
        there = self.journal[partition][self.forgotten[partition] if start is None else start :]
        return [dict(entry.headers)["kind"].decode() for entry in there]

    def left(self, role: str | None = None, key: str | None = None) -> list[Outgoing]:
        """The records that have left to a topic, or to any, in order, repeated ones too."""
        sent = [event.outgoing for event in self.trail if isinstance(event, Sent)]
        return [one for one in sent if role in (None, one.role) and key in (None, one.key)]

    def ledger(self, dataset: str = "flights") -> list[bytes]:
        """The different entries of a ledger that have left, in order."""
        return list(dict.fromkeys(one.value for one in self.left("ledger", dataset)))

    def several_answers(self) -> list[str]:
        """The ids under which answers with different bytes have left, but for prices."""
        answers: dict[tuple[str, bytes], set[bytes]] = {}
        for one in self.left("answers"):
            if json.loads(one.value)["status"] != "quoted":
                name = one.key, dict(one.headers)["query_id"]
                answers.setdefault(name, set()).add(one.value)
        return [query_id.decode() for (_, query_id), some in answers.items() if len(some) > 1]

    def released(self, role: str) -> list[dict[str, Any]]:
        """Every released record of a topic, repeated ones too."""
        return [json.loads(one.value or b"null") for one in self.left(role)]

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


def watch_looks(patch: Callable[[Any, str, Any], None], worlds: Iterable[World]) -> None:
    """Has each reading of private rows put on the trail of the worlds."""
    marginal, in_order, totals = Blocks.marginal, Blocks.in_order, Blocks.totals
    tables = Blocks.tables

    def looked(blocks: Blocks, window: range) -> None:
        for world in worlds:
            world.looked(blocks, window)

    def watched(self: Blocks, attributes: tuple[int, ...], blocks: range) -> Any:
        looked(self, blocks)
        return marginal(self, attributes, blocks)

    def watched_in_order(self: Blocks, attribute: int, block: int) -> Any:
        looked(self, range(block, block + 1))
        return in_order(self, attribute, block)

    def watched_totals(
        self: Blocks, measured: int, attributes: tuple[int, ...], blocks: range
    ) -> Any:
        looked(self, blocks)
        return totals(self, measured, attributes, blocks)

    def watched_tables(self: Blocks, asked: Sequence[tuple[tuple[int, ...], int]]) -> Any:
        for _, block in asked:
            looked(self, range(block, block + 1))
        return tables(self, asked)

    for name, instead in (
        ("marginal", watched),
        ("in_order", watched_in_order),
        ("totals", watched_totals),
        ("tables", watched_tables),
    ):
        patch(Blocks, name, instead)


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
