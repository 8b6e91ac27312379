"""What the state of a deployment takes: of the store's memory and disk, of Kafka, and of the worker.

    python benchmarks/state.py [--wide-rows 400000] [--answers-each 10000]
    python benchmarks/state.py --phases 1000 --rows-per-phase 100000 --answers 10000000 \
        [--retention 100] [--days 100]
    python benchmarks/state.py --blocks topic [--wide-rows 400000] [--phases 50]

The first form puts in one kind of thing after the other and says how much each one takes. The second form
lives a whole life, a phase a day, and says how the store and the worker grow with it. Both run a worker
in this process, over a Valkey of their own that writes everything to disk before it acknowledges it. The
records come from memory, made as they are read, and what the worker sends is counted and dropped. A fresh
process then takes the state over and says how long that takes, and how much memory. It needs Linux.

With ``--blocks topic`` the rows of phases are on the topic of blocks of a Kafka of its own, and nowhere else.
Without ``--phases``, rows of 64 attributes alone are weighed then, and looks are taken at them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import combinations, islice
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import redis
from persons_memory import Owner, settled_memory, some_digests
from rich.console import Console
from rich.table import Table

from stream_dp.broker import Broker
from stream_dp.client import frames
from stream_dp.client.topics import create_topics
from stream_dp.core.noise import PooledNoise
from stream_dp.embedded.folders import cache_folder
from stream_dp.embedded.progress import Silent
from stream_dp.embedded.stack import Servers
from stream_dp.embedded.valkey import ValkeyServer
from stream_dp.messages import Topics
from stream_dp.pipeline.counting import counting_in
from stream_dp.pipeline.fetching import Fetcher
from stream_dp.pipeline.local_logs import LocalCompacted, LocalKept, LocalLog, LocalRows
from stream_dp.pipeline.logs import KafkaKept, KafkaLog, Kept
from stream_dp.pipeline.records import Outgoing, Record
from stream_dp.pipeline.sending import Sender
from stream_dp.pipeline.stored_blocks import BlockCache
from stream_dp.pipeline.worker import Worker
from stream_dp.state.kept import Place as KeptPlace
from stream_dp.state.redis import RedisStore
from stream_dp.state.store import MOST_PERSONS, Transition
from stream_dp.state.store import Place as StorePlace
from stream_dp.state.taken import TAKEN_BYTES

ROWS_A_BATCH = 20_000
QUERIES_A_RECORD = 500
RECORDS_AT_ONCE = 20
RECORD_BYTES = 70  # what the broker's format adds to a record, its headers included, about
LETTERS = ["a", "b", "c", "d"]
PLACES = [f"place {number}" for number in range(60)]
ROWS = ("pending", "blocks")
KEPT_IDS = ("batches", "cursor")
DAY_MS = 86_400_000
NAMES = Topics("bench.")


def letters(n_attributes: int) -> list[dict[str, Any]]:
    return [
        {"name": f"a{number}", "type": "category", "values": LETTERS}
        for number in range(n_attributes)
    ]


def definition(name: str, attributes: list[dict[str, Any]], min_rows: int) -> dict[str, Any]:
    return {
        "version": 1,
        "dataset": name,
        "attributes": attributes,
        "privacy": {"epsilon": 1.0, "delta": 1e-12},
        "accuracy": {"error": 0.05, "failure_probability": 0.01},
        "phase": {"min_rows": min_rows},
        "mechanism": {"base_share": 0.0},
    }


def arrow(n_attributes: int, n_rows: int) -> bytes:
    """Random rows: as badly packed as rows can be."""
    noise = np.random.default_rng(1)
    columns = {
        f"a{number}": pa.DictionaryArray.from_arrays(
            noise.integers(0, len(LETTERS), n_rows, dtype=np.int8), LETTERS
        )
        for number in range(n_attributes)
    }
    return frames.arrow_stream(pa.table(columns), list(columns))


def resident() -> int:
    """The memory of this process in bytes."""
    found = re.search(r"^VmRSS:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return 1024 * int(found[1])


# ---------------------------------------------------------------- a worker


@dataclass(frozen=True)
class Place:
    """Where the servers are. Without a broker, blocks are in the store and kept nowhere else."""

    store: str
    broker: str | None = None

    @asynccontextmanager
    async def keeping(self) -> AsyncIterator[Kept]:
        """What keeps blocks. Only a broker does."""
        if self.broker is None:
            yield _Nowhere()
            return
        broker, topic = Broker(self.broker), NAMES.name("blocks")
        sender, fetcher = Sender(broker, NAMES), Fetcher(broker, topic)
        await sender.start()
        try:
            yield KafkaKept(KafkaLog(broker, topic, 1, sender.producer), fetcher)
        finally:
            await fetcher.close()
            await sender.stop()


def make_worker(
    store: RedisStore, send: Callable[[Outgoing], Awaitable[Any]], log: LocalLog, kept: Kept
) -> Worker:
    """A worker as a deployment runs it, with one partition."""
    blocks: Literal["store", "topic"] = "store" if isinstance(kept, _Nowhere) else "topic"
    counting = counting_in(None) if blocks == "topic" else None
    return Worker(
        *(store, PooledNoise, send, log, LocalRows({}), kept, LocalCompacted()),
        ledger=None,
        partitions=1,
        blocks=blocks,
        cache=BlockCache(counting=counting),
    )


class _Nowhere(LocalKept):
    """Keeps nothing: the broker's disks do, and they are not measured here."""

    async def put(
        self, values: Sequence[tuple[bytes, bytes]], *, beat: Callable[[], None] = lambda: None
    ) -> list[KeptPlace]:
        return [KeptPlace(len(value), (0,)) for _, value in values]


def _offsets(places: Mapping[str, StorePlace]) -> list[int]:
    return [place.note.offset for place in places.values()]


@dataclass
class Life:
    """A worker that holds the only partition, and the log that it reads.

    Attributes:
        sent: The bytes that it sent, by the role of the topic.
        read: The bytes that it was sent.
        day: The day on which records come.
    """

    store: RedisStore
    kept: Kept
    sent: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)
    offsets: Counter[str] = field(default_factory=Counter)
    day: int = 0

    async def begin(self) -> None:
        """Returns when the worker is ready to answer."""
        places = await self.store.places(lambda _: "journal:0")
        # What an earlier worker appended is all in the store by now.
        at = max([(await self.store.listed("journal:0")).offset, *_offsets(places)])
        self.worker = make_worker(self.store, self._send, LocalLog(1, start=at), self.kept)
        self._tasks = [
            asyncio.create_task(self.worker.run_owner()),
            asyncio.create_task(self.worker.run_releaser()),
        ]
        marks = await self.store.watermarks()
        for role in ("datasets", "batches", "queries"):
            self.offsets[role] = marks.get(f"in.{role}:0", 0)
        self.worker.assigned([0])
        self.worker.ownership.reading_from(await self.worker.positions(self._bounds))
        await self._alive(self._ready())

    async def _bounds(self, _: object) -> dict[str, tuple[int, int]]:
        return {f"in.{role}:0": (0, offset) for role, offset in self.offsets.items()}

    async def end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.worker.put_down()

    async def _ready(self) -> None:
        while not self.worker.ready:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0.001)

    async def _alive(self, step: Awaitable[None]) -> None:
        """Waits for a step, or for the fault of a task that it would wait for in vain."""
        doing = asyncio.ensure_future(step)
        await asyncio.wait([doing, *self._tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in self._tasks:
            if task.done():
                doing.cancel()
                task.result()
        await doing

    async def _send(self, outgoing: Outgoing) -> Awaitable[object]:
        self.sent[outgoing.role] += len(outgoing.value) + len(outgoing.key) + RECORD_BYTES
        if outgoing.role == "rejected" or b'"batch_refused"' in outgoing.value:
            raise RuntimeError(outgoing.value)
        if outgoing.role == "answers" and b'"refused"' in outgoing.value:
            raise RuntimeError(outgoing.value)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def record(
        self, role: str, dataset: str, value: bytes, headers: Mapping[str, bytes] | None = None
    ) -> Record:
        self.read[role] += len(value) + len(dataset) + RECORD_BYTES
        offset = self.offsets[role]
        self.offsets[role] += 1
        return Record(
            role=role,
            topic=f"in.{role}",
            partition=0,
            offset=offset,
            key=dataset.encode(),
            value=value,
            headers=headers or {},
            timestamp_ms=self.day * DAY_MS,
        )

    async def take(self, records: Iterable[Record]) -> None:
        """Takes records through to the release of everything that follows from them."""
        several = iter(records)
        while group := list(islice(several, RECORDS_AT_ONCE)):
            await self._alive(self.worker.process(group))
        await self._alive(self.worker.drained())

    async def define(self, document: Mapping[str, Any]) -> None:
        value = json.dumps(document).encode()
        await self.take([self.record("datasets", document["dataset"], value)])

    def rows(self, dataset: str, value: bytes, batch_ids: Iterable[str]) -> Iterator[Record]:
        """The same rows under each of these ids."""
        for batch_id in batch_ids:
            headers = {"content-type": frames.ARROW, "batch_id": batch_id.encode()}
            yield self.record("batches", dataset, value, headers)

    def batches(self, dataset: str, bodies: Iterable[Mapping[str, Any]]) -> Iterator[Record]:
        for body in bodies:
            document = {"version": 1, "dataset": dataset, **body}
            yield self.record("batches", dataset, json.dumps(document).encode())

    def queries(self, dataset: str, items: Iterable[Mapping[str, Any]]) -> Iterator[Record]:
        several = iter(items)
        while some := list(islice(several, QUERIES_A_RECORD)):
            document = {"version": 1, "dataset": dataset, "analyst": "benchmark", "queries": some}
            yield self.record("queries", dataset, json.dumps(document).encode())


@asynccontextmanager
async def living(place: Place) -> AsyncIterator[Life]:
    store = RedisStore.from_url(place.store)
    async with place.keeping() as kept:
        life = Life(store, kept)
        await life.begin()
        try:
            yield life
        finally:
            await life.end()
            await store.close()


# ---------------------------------------------------------------- a start


async def start(place: Place) -> None:
    """Takes everything over, and prints how long that took and what it takes."""
    store = RedisStore.from_url(place.store)
    async with place.keeping() as kept:
        life = Life(store, kept)
        await store.watermarks()
        began = time.perf_counter()
        await life.begin()
        seconds = time.perf_counter() - began
        print(json.dumps({"seconds": seconds, "in_all": resident()}))
        await life.end()
        await store.close()


def started(place: Place) -> dict[str, float]:
    """What a fresh process says of its start on this state."""
    words = [place.store, *([] if place.broker is None else [place.broker])]
    done = subprocess.run(
        [sys.executable, __file__, "--start", *words], stdout=subprocess.PIPE, check=True
    )
    facts: dict[str, float] = json.loads(done.stdout)
    return facts


# ---------------------------------------------------------------- one thing after the other


@dataclass(frozen=True)
class Line:
    """The bytes of one thing, on the average of so many."""

    what: str
    count: int
    store: float
    kafka_in: float
    kafka_out: float


class Scale:
    """Weighs what each step adds."""

    def __init__(self, life: Life, console: Console) -> None:
        self.life = life
        self.lines: list[Line] = []
        self._console = console

    async def weigh(
        self,
        what: str,
        count: int,
        dataset: str,
        records: Iterable[Record],
        *,
        only: tuple[str, ...] = (),
        without: tuple[str, ...] = (),
    ) -> None:
        """Takes records that make ``count`` things.

        Args:
            only: The parts of the data set that count. Default: all of them.
            without: The parts that do not.
        """
        began = time.perf_counter()
        life, before = self.life, await self._sizes(dataset, only, without)
        read, sent = life.read.total(), life.sent.total()
        await life.take(records)
        store = await self._sizes(dataset, only, without) - before
        self.lines.append(
            Line(
                what,
                count,
                store / count,
                (life.read.total() - read) / count,
                (life.sent.total() - sent) / count,
            )
        )
        self.say(what, count, began)

    def say(self, what: str, count: int, began: float) -> None:
        self._console.print(f"{what}: {count:,} in {time.perf_counter() - began:.1f} s")

    async def _sizes(self, dataset: str, only: tuple[str, ...], without: tuple[str, ...]) -> int:
        parts = await self.life.store.sizes(dataset, samples=0)
        return sum(
            size
            for part, size in parts.items()
            if part not in without and (not only or part in only)
        )


async def weigh_rows(scale: Scale, n_attributes: int, n_rows: int, name: str) -> None:
    life = scale.life
    value = arrow(n_attributes, ROWS_A_BATCH)
    whole = n_rows // ROWS_A_BATCH
    ids = iter(f"batch-{number}" for number in range(whole))
    await life.define(definition(name, letters(n_attributes), n_rows))
    waiting = (whole - 1) * ROWS_A_BATCH
    row = f"row of {n_attributes} attributes"
    first = life.rows(name, value, islice(ids, whole - 1))
    await scale.weigh(f"{row}, waiting", waiting, name, first, only=ROWS)
    parts = await life.store.sizes(name, samples=0)
    assert "blocks" not in parts
    await scale.weigh("(the phase opens)", 1, name, life.rows(name, value, ids))
    scale.lines.pop()
    assert life.worker.datasets[name].phase == 1
    blocks = (await life.store.sizes(name, samples=0))["blocks"]
    scale.lines.append(Line(f"{row}, sealed", n_rows, blocks / n_rows, 0, 0))


def counts(n: int, name: str = "count") -> Iterator[dict[str, Any]]:
    where = {"attribute": "a0", "eq": "a"}
    return ({"query_id": f"{name}-{number}", "where": where} for number in range(n))


def new_counts(n: int, name: str = "look") -> Iterator[dict[str, Any]]:
    """Queries of which none follows from the others."""
    for number, (one, other) in enumerate(islice(combinations(range(64), 2), n)):
        both = [{"attribute": f"a{one}", "eq": "a"}, {"attribute": f"a{other}", "eq": "b"}]
        yield {"query_id": f"{name}-{number}", "where": {"all": both}}


async def weigh_answers(scale: Scale, n_each: int) -> None:
    life = scale.life
    await life.take(life.queries("wide", counts(1, "first")))  # the look is paid; the rest is free
    free = life.queries("wide", counts(n_each))
    await scale.weigh("answer to a count", n_each, "wide", free)
    n_looks, looks = min(200, n_each), life.worker.datasets["wide"].looks
    paid = life.queries("wide", new_counts(n_looks))
    await scale.weigh("paid look, with its answer", n_looks, "wide", paid)
    assert life.worker.datasets["wide"].looks - looks == n_looks

    await life.define(
        definition("tables", [{"name": "place", "type": "category", "values": PLACES}], 100_000)
    )
    cells = [{"place": place, "count": 2_000} for place in PLACES]
    await life.take(life.batches("tables", [{"batch_id": "all", "cells": cells}]))
    table = {"kind": "table", "group_by": ["place"]}
    await life.take(life.queries("tables", [{"query_id": "first", **table}]))
    n_tables = max(1, n_each // 5)
    tables = ({"query_id": f"table-{number}", **table} for number in range(n_tables))
    await scale.weigh("table of 60 cells", n_tables, "tables", life.queries("tables", tables))


async def weigh_phases(scale: Scale, n_phases: int, n_batches: int) -> None:
    life = scale.life
    await life.define(definition("phases", letters(4), 20_000))
    cells = [{**dict.fromkeys(("a0", "a1", "a2", "a3"), "a"), "count": 20_000}]
    batches = ({"batch_id": f"phase-{n}", "cells": cells} for n in range(n_phases))
    without = (*ROWS, *KEPT_IDS)
    records = life.batches("phases", batches)
    await scale.weigh("phase, without its rows", n_phases, "phases", records, without=without)
    assert life.worker.datasets["phases"].phase == n_phases
    empty = ({"batch_id": f"batch-{n:010}", "rows": []} for n in range(n_batches))
    await scale.weigh("batch id", n_batches, "phases", life.batches("phases", empty))


async def weigh_ids(scale: Scale, n_ids: int) -> None:
    """What is left of ids whose outcomes are dropped, and of batches of a producer that counts."""
    store, noise = scale.life.store, np.random.default_rng(1)
    taken = await store.acquire("ids")
    ids = (noise.bytes(TAKEN_BYTES) for _ in range(n_ids))
    seq, began = taken.seq, time.perf_counter()
    while some := list(islice(ids, 1_000)):
        await store.commit(
            Transition(
                dataset="ids",
                token=taken.token,
                seq=seq,
                head=taken.head,
                new_head=taken.head,
                definition=b"{}" if seq == 0 else None,
                taken=some,
            )
        )
        seq += 1
    parts = await store.sizes("ids", samples=0)
    what = "batch id, its outcome dropped"
    scale.lines.append(Line(what, n_ids, parts["taken"] / n_ids, 0, 0))
    scale.say(what, n_ids, began)
    bodies = ({"producer": "till-7", "sequence": n, "rows": []} for n in range(2_000))
    records = scale.life.batches("phases", bodies)
    parts_of_it = (*KEPT_IDS, "taken", "outbox")
    what = "batch of a producer that counts"
    await scale.weigh(what, 2_000, "phases", records, only=parts_of_it)


async def weigh_persons(scale: Scale, client: redis.Redis, n_persons: int) -> None:
    owner = Owner(scale.life.store, "persons")
    await owner.take()
    noise = np.random.default_rng(1)
    await owner.read(some_digests(noise, 1))
    before = settled_memory(client)
    for _ in range(n_persons // MOST_PERSONS):
        await owner.reserve(some_digests(noise, MOST_PERSONS))
    each = (settled_memory(client) - before) / n_persons
    scale.lines.append(Line("person, where the promise is for life", n_persons, each, 0, 0))


async def weigh_topic(
    place: Place, console: Console, given: argparse.Namespace, folder: Path
) -> None:
    """Weighs rows whose phases are on the topic of blocks alone, and looks at all of them.

    Args:
        folder: The folder below which the broker has its data.
    """

    def on_disk() -> int:
        logs = folder.glob(f"**/{NAMES.name('blocks')}-0/*.log")
        return sum(file.stat().st_size for file in logs)

    empty, before = started(place), on_disk()
    async with living(place) as life:
        scale = Scale(life, console)
        await weigh_rows(scale, 64, given.wide_rows, "wide")
        waiting, in_phase = scale.lines
        disk = (on_disk() - before) / in_phase.count
        seconds = []
        for number in range(3):
            began = time.perf_counter()
            await life.take(life.queries("wide", new_counts(1, f"look-{number}")))
            seconds.append(time.perf_counter() - began)
    console.print(
        f"a row of 64 attributes that waits takes {waiting.store:.1f} bytes of Redis; in a phase it takes "
        f"{in_phase.store:.4f} of Redis and {disk:.1f} of the topic of blocks, {in_phase.count:,} rows"
    )
    shown = ", ".join(f"{each:.2f}" for each in seconds)
    console.print(f"looks at all of them took {shown} s, with their charges and answers")
    for what, facts in (("nothing", empty), ("these rows", started(place))):
        console.print(
            f"a fresh worker with {what}: ready after {facts['seconds']:.2f} s, "
            f"{facts['in_all'] / 1e6:,.0f} MB"
        )


async def weigh_all(url: Place, console: Console, given: argparse.Namespace) -> None:
    client = redis.Redis.from_url(url.store)
    empty = started(url)
    async with living(url) as life:
        scale = Scale(life, console)
        await weigh_rows(scale, 64, given.wide_rows, "wide")
    with_rows = started(url)
    async with living(url) as life:
        scale.life = life
        await weigh_answers(scale, given.answers_each)
    with_answers = started(url)
    async with living(url) as life:
        scale.life = life
        await weigh_rows(scale, 4, 100_000, "narrow")
        await weigh_phases(scale, 100, 2_000)
        await weigh_ids(scale, given.ids)
        await weigh_persons(scale, client, 100_000)
    n_answers = sum(line.count for line in scale.lines if line.what.startswith(("answer", "table")))
    table = Table("one", "of", "Redis", "Kafka in", "Kafka out", title="bytes for each")
    for line in scale.lines:
        figures = (line.store, line.kafka_in, line.kafka_out)
        table.add_row(line.what, f"{line.count:,}", *(f"{n:,.1f}" if n else "" for n in figures))
    console.print(table)
    for what, facts in (
        ("nothing", empty),
        (f"{given.wide_rows:,} rows of 64 attributes", with_rows),
        (f"these and {n_answers:,} answers", with_answers),
    ):
        seconds, megabytes = facts["seconds"], facts["in_all"] / 1e6
        console.print(
            f"a fresh worker with {what}: ready after {seconds:.2f} s, {megabytes:,.0f} MB"
        )
    info = client.info()
    console.print(
        f"the append-only file has {info['aof_current_size'] / 1e6:.0f} MB for "
        f"{settled_memory(client) / 1e6:.0f} MB of memory, as it was never rewritten"
    )
    client.close()


# ---------------------------------------------------------------- a whole life


async def live(url: Place, console: Console, given: argparse.Namespace) -> None:
    """Phase after phase: rows, then queries, most of which are free."""
    client = redis.Redis.from_url(url.store)
    n_rows = min(ROWS_A_BATCH, given.rows_per_phase)
    value, n_batches = arrow(64, n_rows), -(-given.rows_per_phase // n_rows)
    document = definition("life", letters(64), n_batches * n_rows)
    retention: dict[str, Any] = {"phases": given.retention} if given.retention else {}
    if given.days:
        retention["answers"] = {"days": given.days}
    if retention:
        document["retention"] = retention
    each = given.answers // given.phases
    most, began = 0, time.perf_counter()
    console.print("phases      rows    answers   Redis MB    file MB  worker MB     s")
    async with living(url) as life:
        await life.define(document)
        for phase in range(1, given.phases + 1):
            life.day = phase
            ids = (f"{phase}-{number}" for number in range(n_batches))
            await life.take(life.rows("life", value, ids))
            await life.take(life.queries("life", new_counts(given.looks, f"look-{phase}")))
            await life.take(life.queries("life", counts(each, f"count-{phase}")))
            assert life.worker.datasets["life"].phase == phase
            most = max(most, resident())
            if phase % max(1, given.phases // 20) == 0:
                disk = client.info("persistence")["aof_current_size"]
                console.print(
                    f"{phase:6,} {phase * n_batches * n_rows:11,} {phase * each:10,}"
                    f" {settled_memory(client) / 1e6:10,.1f} {disk / 1e6:10,.1f} {resident() / 1e6:10,.1f}"
                    f" {time.perf_counter() - began:5,.0f}"
                )
        parts = await life.store.sizes("life", samples=0)
    listed = ", ".join(f"{part} {size / 1e6:,.1f}" for part, size in sorted(parts.items()))
    console.print(f"MB in Redis: {listed}")
    console.print(f"the worker, with what drives it, had at most {most / 1e6:,.0f} MB")
    facts = started(url)
    console.print(
        f"a fresh worker was ready after {facts['seconds']:.1f} s and had {facts['in_all'] / 1e6:,.0f} MB"
    )
    client.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wide-rows", type=int, default=400_000)
    parser.add_argument("--answers-each", type=int, default=10_000)
    parser.add_argument("--ids", type=int, default=100_000, help="ids of batches to weigh")
    parser.add_argument("--phases", type=int, default=0, help="live a whole life of so many phases")
    parser.add_argument("--rows-per-phase", type=int, default=20_000)
    parser.add_argument("--answers", type=int, default=10_000, help="in the whole life")
    parser.add_argument("--looks", type=int, default=5, help="paid queries in each phase")
    parser.add_argument("--retention", type=int, default=0, help="phases whose rows are kept")
    parser.add_argument("--days", type=int, default=0, help="days after which answers rotate")
    parser.add_argument("--folder", type=Path, help="where the store writes; it has to be empty")
    parser.add_argument("--blocks", choices=["store", "topic"], default="store")
    parser.add_argument("--start", nargs="+", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.start:
        asyncio.run(start(Place(*given.start)))
        return
    console = Console(width=None if sys.stdout.isatty() else 120)
    if given.blocks == "topic":
        with (
            tempfile.TemporaryDirectory(prefix="stream-dp-bench-", dir=given.folder) as name,
            Servers(Path(name), cache_folder(os.environ), progress=Silent()) as addresses,
        ):
            create_topics(addresses.bootstrap_servers, NAMES, partitions=1)
            place = Place(addresses.redis_url, addresses.bootstrap_servers)
            if given.phases:
                asyncio.run(live(place, console, given))
            else:
                asyncio.run(weigh_topic(place, console, given, Path(name)))
        return
    with tempfile.TemporaryDirectory(prefix="stream-dp-bench-", dir=given.folder) as folder:
        server = ValkeyServer(Path(folder) / "data", log=Path(folder) / "log")
        server.start()
        try:
            asyncio.run((live if given.phases else weigh_all)(Place(server.url), console, given))
        finally:
            server.stop()


if __name__ == "__main__":
    main()
