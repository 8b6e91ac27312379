"""What the state of a deployment takes: of Kafka, of Redis and of a worker; and how long a start takes.

    python benchmarks/state.py [--wide-rows 400000] [--answers-each 10000]
    python benchmarks/state.py --phases 1000 --rows-per-phase 100000 --answers 10000000 \
        [--retention 100] [--days 100]
    python benchmarks/state.py --start [--phases 1000] [--ids 10000000]

The first form puts in one kind of thing after the other and says how much each one takes. The second form
lives a whole life, a phase a day, and says how topics, Redis and the worker grow. Both run a worker in this
process, on a Kafka and a Valkey of their own. The records come from memory, made as they are read, and what
the worker sends is counted and dropped. A fresh process then takes the state over and says how long that
takes, and how much memory.

The third form is about that start. It lives such a life and gives its index so many ids. It has the worker
write a round of checkpoints, and half of what makes the next one due. Then fresh processes start: with the
Redis that followed, with an empty one, and with none. It needs Linux.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import subprocess
import sys
import time
import tracemalloc
from collections import Counter
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import combinations, islice
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import redis
from rich.console import Console
from rich.table import Table
from system import memory_mb, running_servers

from stream_dp.client.rows import frames
from stream_dp.core.randomness.noise_sources import PooledNoise
from stream_dp.messages import Topics
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.intake.records import Outgoing, Record
from stream_dp.pipeline.runtime import Runtime
from stream_dp.settings import worker_settings
from stream_dp.state import schema
from stream_dp.state.ids import Ids

ROWS_A_BATCH = 20_000
QUERIES_A_RECORD = 500
RECORDS_AT_ONCE = 20
RECORD_BYTES = 70  # what the broker's format adds to a record, its headers included, about
LETTERS = ["a", "b", "c", "d"]
PLACES = [f"place {number}" for number in range(60)]
DAY_MS = 86_400_000
NAMES = Topics("bench.")
COLUMNS = ("Kafka in", "journal", "blocks", "Kafka out", "Redis", "worker")


def letters(n_attributes: int) -> list[dict[str, Any]]:
    return [
        {"name": f"a{number}", "type": "category", "values": LETTERS}
        for number in range(n_attributes)
    ]


def definition(
    name: str, attributes: list[dict[str, Any]], min_rows: int, **more: Any
) -> dict[str, Any]:
    return {
        "version": 1,
        "dataset": name,
        "attributes": attributes,
        "privacy": {"epsilon": 1.0, "delta": 1e-12},
        "accuracy": {"error": 0.05, "failure_probability": 0.01},
        "phase": {"min_rows": min_rows},
        "mechanism": {"base_share": 0.0},
        **more,
    }


def arrow(n_attributes: int, n_rows: int, **more: Any) -> bytes:
    """Random rows: as badly packed as rows can be."""
    noise = np.random.default_rng(1)
    columns = {
        f"a{number}": pa.DictionaryArray.from_arrays(
            noise.integers(0, len(LETTERS), n_rows, dtype=np.int8), LETTERS
        )
        for number in range(n_attributes)
    }
    table = pa.table({**columns, **more})
    return frames.arrow_stream(table, table.column_names)


# ---------------------------------------------------------------- a worker


class Place(NamedTuple):
    """Where the servers are."""

    broker: str
    store: str


@dataclass
class Life:
    """A worker as a deployment runs it, which holds the only partition and is handed records.

    Attributes:
        sent: The bytes that it sent, by the role of the topic.
        read: The bytes that it was sent.
        day: The day on which records come.
        took: The seconds that each part of the start took, those in all, and those of CPU.
        answered: Set when something leaves.
    """

    place: Place
    sent: Counter[str] = field(default_factory=Counter)
    read: Counter[str] = field(default_factory=Counter)
    offsets: Counter[str] = field(default_factory=Counter)
    day: int = 0
    took: list[float] = field(default_factory=list)
    answered: asyncio.Event = field(default_factory=asyncio.Event)

    async def begin(self) -> None:
        """Returns when the worker is ready to answer."""
        began, used = time.perf_counter(), time.process_time()
        servers = {"bootstrap_servers": self.place.broker, "redis_url": self.place.store}
        settings = worker_settings(**servers, topic_prefix=NAMES.prefix)
        self._runtime = Runtime(settings, PooledNoise, Context())
        await self._runtime.start()
        self.worker = worker = self._runtime.worker
        worker.releaser._send = self._send  # noqa: SLF001 - what leaves is not measured on disk
        connected = time.perf_counter()
        runs = (worker.run_owner, worker.releaser.run, worker.rounds.run, worker.following.run)
        self._tasks = [asyncio.create_task(run()) for run in runs]
        worker.assigned([0])
        positions = await worker.positions(self._bounds)
        for place, offset in positions.items():
            self.offsets[NAMES.role(place.partition(":")[0])] = offset
        worker.ownership.reading_from(positions)
        read = time.perf_counter()
        await self._alive(self._ready())
        ready = time.perf_counter()
        self.took = [connected - began, read - connected, ready - read, ready - began]
        self.took.append(time.process_time() - used)

    async def _bounds(self, read: Mapping[str, int]) -> dict[str, tuple[int, int]]:
        places = [f"{NAMES.name(role)}:0" for role in ("datasets", "batches", "queries")]
        return {place: (0, read.get(place, 0)) for place in places}

    async def end(self) -> None:
        await self._runtime.stop()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

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
        refused = (b'"batch_refused"', b'"refused"', b'"stopped"')
        if outgoing.role == "rejected" or any(word in outgoing.value for word in refused):
            raise RuntimeError(outgoing.value)
        self.answered.set()
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
            topic=NAMES.name(role),
            partition=0,
            offset=offset,
            key=dataset.encode(),
            value=value,
            headers=headers or {},
            timestamp_ms=self.day * DAY_MS,
        )

    async def take(self, records: Iterable[Record], *, at_once: int = RECORDS_AT_ONCE) -> None:
        """Takes records through to the release of everything that follows from them."""
        several = iter(records)
        while group := list(islice(several, at_once)):
            await self._alive(self.process(group))
        while self.worker.busy:
            await self._alive(self.worker.releaser.joined())
            await asyncio.sleep(0.001)

    async def process(self, records: Sequence[Record]) -> None:
        """Takes a group of records through to its commits and queues its releases."""
        await self.worker.take(records)
        while self.worker.behind:
            await self.worker.take(())

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

    def queries(
        self, dataset: str, items: Iterable[Mapping[str, Any]], *, each: int = QUERIES_A_RECORD
    ) -> Iterator[Record]:
        several = iter(items)
        while some := list(islice(several, each)):
            document = {"version": 1, "dataset": dataset, "analyst": "benchmark", "queries": some}
            yield self.record("queries", dataset, json.dumps(document).encode())

    async def forget(self, dataset: str) -> None:
        """Drops what it keeps for a while, with a bound: the rows of the last looks, and its last steps."""
        body = {"batch_id": f"another-{self.offsets['batches']}", "rows": []}
        await self.take(self.batches(dataset, [body]))
        cache = self.worker._holdings._tools.cache  # noqa: SLF001
        for owner in {key.owner for key in cache._kept}:  # noqa: SLF001
            cache.forget(owner)


@asynccontextmanager
async def living(place: Place) -> AsyncIterator[Life]:
    life = Life(place)
    await life.begin()
    try:
        yield life
    finally:
        await life.end()


# ---------------------------------------------------------------- a start


async def start(place: Place, known: str) -> None:
    """Takes everything over, and prints what that takes; asks about a data set, if one is named."""
    async with living(place) as life:
        facts = {"seconds": life.took, "now": memory_mb("VmRSS"), "most": memory_mb("VmHWM")}
        answers = []
        for name in ("count-1", f"new-{time.time()}") if known else ():
            began, life.answered = time.perf_counter(), asyncio.Event()
            await life.process([*life.queries(known, counts(1, name))])
            await life.answered.wait()
            answers.append(time.perf_counter() - began)
        await life.take([])
        print(json.dumps({**facts, "answers": answers}))


def started(place: Place, known: str = "") -> dict[str, Any]:
    """What a fresh process says of its start on this state."""
    words = [sys.executable, __file__, "--fresh", *place, known]
    done = subprocess.run(words, stdout=subprocess.PIPE, check=True)
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def say_starts(console: Console, starts: Mapping[str, Mapping[str, Any]]) -> None:
    timed = ("connected", "read", "taken over", "ready", "CPU", "MB", "most", "old answer", "new")
    table = Table("a fresh worker with", *timed)
    for what, facts in starts.items():
        seconds = (f"{each:.2f} s" for each in facts["seconds"])
        answers = (f"{1000 * each:.0f} ms" for each in facts["answers"])
        table.add_row(what, *seconds, f"{facts['now']:,.0f}", f"{facts['most']:,.0f}", *answers)
    console.print(table)


# ---------------------------------------------------------------- one thing after the other


class Scale:
    """Weighs what each step adds.

    Args:
        folder: The folder below which the broker has its data.
    """

    def __init__(self, place: Place, folder: Path, console: Console) -> None:
        self.lines: list[tuple[str, int, dict[str, float]]] = []
        self._client = redis.Redis.from_url(place.store, decode_responses=True)
        self._folder = folder
        self._console = console

    def on_disk(self, role: str) -> int:
        """The bytes of a topic's files, which a compressed value and a header count towards."""
        files = self._folder.glob(f"**/{NAMES.name(role)}-0/*.log")
        return sum(file.stat().st_size for file in files)

    def in_redis(self, dataset: str) -> Counter[str]:
        """The bytes of a data set in Redis, by the last part of the key."""
        sizes = Counter[str]()
        for key in self._client.scan_iter(match=f"*:{dataset}}}:*"):
            sizes[key.rpartition(":")[2]] += self._client.memory_usage(key, samples=0) or 0
        return sizes

    @property
    def redis(self) -> int:
        """All bytes of Redis."""
        info = self._client.info("memory")
        return int(info["used_memory"]) - int(info["mem_not_counted_for_evict"])

    async def _now(self, life: Life, dataset: str, parts: Collection[str]) -> dict[str, float]:
        await life.worker.following.joined()
        in_redis = self.in_redis(dataset)
        figures = [
            life.read.total(),
            self.on_disk("journal"),
            self.on_disk("blocks"),
            life.sent.total(),
            sum(in_redis[part] for part in parts),
        ]
        await life.forget(dataset)
        gc.collect()
        figures.append(tracemalloc.get_traced_memory()[0])
        return dict(zip(COLUMNS, figures, strict=True))

    async def weigh(
        self,
        life: Life,
        what: str,
        count: int,
        dataset: str,
        records: Iterable[Record],
        *,
        columns: Collection[str] = COLUMNS,
        parts: Collection[str] = ("state", "answers", "answers-old", "kept"),
    ) -> None:
        """Takes records that make ``count`` things.

        Args:
            columns: What to say of them.
            parts: The parts of the data set in Redis that count.
        """
        began, before = time.perf_counter(), await self._now(life, dataset, parts)
        await life.take(records)
        after = await self._now(life, dataset, parts)
        each = {column: (after[column] - before[column]) / count for column in columns}
        self.lines.append((what, count, each))
        self._console.print(f"{what}: {count:,} in {time.perf_counter() - began:.1f} s")

    def say(self) -> None:
        table = Table("one", "of", *COLUMNS, title="bytes for each")
        for what, count, each in self.lines:
            shown = (f"{each[column]:,.1f}" if column in each else "" for column in COLUMNS)
            table.add_row(what, f"{count:,}", *shown)
        self._console.print(table)


async def weigh_rows(scale: Scale, life: Life, n_attributes: int, n_rows: int, name: str) -> None:
    value = arrow(n_attributes, ROWS_A_BATCH)
    whole = n_rows // ROWS_A_BATCH
    ids = iter(f"batch-{number}" for number in range(whole))
    await life.define(definition(name, letters(n_attributes), n_rows))
    waiting = (whole - 1) * ROWS_A_BATCH
    row = f"row of {n_attributes} attributes"
    first = life.rows(name, value, islice(ids, whole - 1))
    await scale.weigh(life, f"{row}, waiting", waiting, name, first)
    columns = ("journal", "blocks", "Redis")
    last = life.rows(name, value, ids)
    await scale.weigh(life, f"{row}, in a phase", n_rows, name, last, columns=columns)
    assert life.worker.datasets[name].phase == 1


def counts(n: int, name: str = "count") -> Iterator[dict[str, Any]]:
    where = {"attribute": "a0", "eq": "a"}
    return ({"query_id": f"{name}-{number}", "where": where} for number in range(n))


def new_counts(n: int, name: str = "look") -> Iterator[dict[str, Any]]:
    """Queries of which none follows from the others."""
    for number, (one, other) in enumerate(islice(combinations(range(64), 2), n)):
        both = [{"attribute": f"a{one}", "eq": "a"}, {"attribute": f"a{other}", "eq": "b"}]
        yield {"query_id": f"{name}-{number}", "where": {"all": both}}


async def weigh_answers(scale: Scale, life: Life, n_each: int) -> None:
    await life.take(life.queries("wide", counts(1, "first")))  # the look is paid; the rest is free
    free = life.queries("wide", counts(n_each))
    await scale.weigh(life, "answer to a count", n_each, "wide", free)
    n_looks, looks = min(200, n_each), life.worker.datasets["wide"].looks.n_taken
    paid = life.queries("wide", new_counts(n_looks))
    await scale.weigh(life, "paid look, with its answer", n_looks, "wide", paid)
    assert life.worker.datasets["wide"].looks.n_taken - looks == n_looks

    places = [{"name": "place", "type": "category", "values": PLACES}]
    await life.define(definition("tables", places, 100_000))
    cells = [{"place": place, "count": 2_000} for place in PLACES]
    await life.take(life.batches("tables", [{"batch_id": "all", "cells": cells}]))
    table = {"kind": "table", "group_by": ["place"]}
    await life.take(life.queries("tables", [{"query_id": "first", **table}]))
    n_tables = max(1, n_each // 5)
    tables = ({"query_id": f"table-{number}", **table} for number in range(n_tables))
    records = life.queries("tables", tables)
    await scale.weigh(life, "table of 60 cells", n_tables, "tables", records)


async def weigh_phases(scale: Scale, life: Life, n_phases: int, n_batches: int) -> None:
    await life.define(definition("phases", letters(1), 20_000))
    cells = [{"a0": "a", "count": 20_000}]
    bodies = ({"batch_id": f"phase-{number}", "cells": cells} for number in range(n_phases))
    records, parts = life.batches("phases", bodies), {"state", "answers"}
    await scale.weigh(life, "phase, without its rows", n_phases, "phases", records, parts=parts)
    assert life.worker.datasets["phases"].phase == n_phases
    empty = ({"batch_id": f"batch-{number:010}", "rows": []} for number in range(n_batches))
    await scale.weigh(life, "batch id", n_batches, "phases", life.batches("phases", empty))
    counted = ({"producer": "till-7", "sequence": n, "rows": []} for n in range(n_batches))
    records = life.batches("phases", counted)
    await scale.weigh(life, "batch of a producer that counts", n_batches, "phases", records)


async def weigh_ids(scale: Scale, life: Life, n_ids: int) -> None:
    """What is left of ids whose outcomes are dropped."""
    retention = {"answers": {"days": 1}}
    await life.define(definition("ids", letters(1), 20_000, retention=retention))

    def bodies() -> Iterator[dict[str, Any]]:
        yield from ({"batch_id": f"batch-{number:010}", "rows": []} for number in range(n_ids))
        for life.day in (2, 4):  # and what was there before the last rotation but one is gone
            yield from ({"batch_id": f"{life.day}-{n}", "rows": []} for n in range(RECORDS_AT_ONCE))

    records, columns = life.batches("ids", bodies()), ("Redis", "worker")
    what = "batch id whose outcome is dropped"
    await scale.weigh(life, what, n_ids, "ids", records, columns=columns)


async def weigh_persons(scale: Scale, life: Life, n_persons: int) -> None:
    """What the units of a person take, next to a row of a byte."""
    unit = {"key": "who", "rows_per_phase": 1, "phases": 8, "lifetime": True}
    privacy = {"epsilon": 1.0, "delta": 1e-12, "unit": unit}
    await life.define(definition("persons", letters(1), n_persons, privacy=privacy))
    value = arrow(1, n_persons, who=[f"person {number}" for number in range(n_persons)])
    columns = ("blocks", "Redis", "worker")
    what, records = "person, where the promise is for life", life.rows("persons", value, ["all"])
    await scale.weigh(life, what, n_persons, "persons", records, columns=columns)
    assert life.worker.datasets["persons"].phase == 1


async def weigh_all(
    place: Place, console: Console, given: argparse.Namespace, folder: Path
) -> None:
    tracemalloc.start()
    scale, starts = Scale(place, folder, console), {"nothing": started(place)}
    async with living(place) as life:
        await weigh_rows(scale, life, 64, given.wide_rows, "wide")
    starts[f"{given.wide_rows:,} rows of 64 attributes"] = started(place)
    async with living(place) as life:
        await weigh_answers(scale, life, given.answers_each)
    starts["these, answers and tables"] = started(place)
    async with living(place) as life:
        await weigh_rows(scale, life, 4, 100_000, "narrow")
        await weigh_phases(scale, life, 100, 2_000)
        await weigh_ids(scale, life, 20_000)
        await weigh_persons(scale, life, 100_000)
        (owned,) = life.worker.journal.owned().values()
        assert owned.newest is None, "a round of checkpoints was weighed too: put less in"
    scale.say()
    say_starts(console, starts)


# ---------------------------------------------------------------- a whole life


async def live(place: Place, console: Console, given: argparse.Namespace, folder: Path) -> None:
    """Phase after phase: rows, then queries, most of which are free."""
    n_rows = min(ROWS_A_BATCH, given.rows_per_phase)
    value, n_batches = arrow(64, n_rows), -(-given.rows_per_phase // n_rows)
    retention: dict[str, Any] = {"phases": given.retention} if given.retention else {}
    if given.days:
        retention["answers"] = {"days": given.days}
    more = {"retention": retention} if retention else {}
    each, most = given.answers // given.phases, 0.0
    scale, began = Scale(place, folder, console), time.perf_counter()
    console.print("phases      rows    answers   Redis MB journal MB  blocks MB  worker MB     s")
    async with living(place) as life:
        await life.define(definition("life", letters(64), n_batches * n_rows, **more))
        for phase in range(1, given.phases + 1):
            life.day = phase
            ids = (f"{phase}-{number}" for number in range(n_batches))
            await life.take(life.rows("life", value, ids))
            await life.take(life.queries("life", new_counts(given.looks, f"look-{phase}")))
            await life.take(life.queries("life", counts(each, f"count-{phase}")))
            assert life.worker.datasets["life"].phase == phase
            most = max(most, memory_mb("VmRSS"))
            if phase % max(1, given.phases // 20) == 0:
                sizes = (scale.redis, scale.on_disk("journal"), scale.on_disk("blocks"))
                shown = " ".join(f"{size / 1e6:10,.1f}" for size in sizes)
                console.print(
                    f"{phase:6,} {phase * n_batches * n_rows:11,} {phase * each:10,} {shown}"
                    f" {memory_mb('VmRSS'):10,.1f} {time.perf_counter() - began:5,.0f}"
                )
        if given.start:
            await fill_up(life, console, given.ids)
        await life.worker.following.joined()
    listed = ", ".join(f"{key} {size / 1e6:,.1f}" for key, size in scale.in_redis("life").items())
    console.print(f"MB in Redis: {listed}; the worker had at most {most:,.0f} MB")
    starts = {"this Redis": started(place, "life")}
    if given.start:
        redis.Redis.from_url(place.store).flushall()
        starts["an empty Redis"] = started(place, "life")
        starts["no Redis"] = started(Place(place.broker, "redis://127.0.0.1:1/0"), "life")
    say_starts(console, starts)


def give_ids(ids: Ids, n_ids: int, below: int) -> None:
    """Gives an index ids of answers below an offset. To put them one by one would take minutes."""
    noise = np.random.default_rng(1)
    hashes = np.sort(np.frombuffer(noise.bytes(16 * n_ids), "S16"))
    places = np.frombuffer(noise.bytes(12 * n_ids), np.uint8).reshape(-1, 12).copy()
    offsets = noise.integers(0, below, n_ids).astype(">u8")
    places[:, :6] = offsets.view(np.uint8).reshape(-1, 8)[:, 2:]
    run = hashes, places.view("S12").reshape(-1)
    ids._kept[schema.StateTable.ANSWER][0]._runs.append(run)  # noqa: SLF001
    Path("/proc/self/clear_refs").write_text("5")  # the most memory is from here on


async def fill_up(life: Life, console: Console, n_ids: int) -> None:
    """Gives the index ids; has a round written, and half of what makes the next one due."""
    (owned,) = life.worker.journal.owned().values()
    state, ids = owned.chains["life"].build(), owned.chains["life"].ids
    give_ids(ids, n_ids, owned.expected)
    before, began = memory_mb("VmRSS"), time.perf_counter()
    rounds = life.worker.rounds
    begun = await rounds._begin(owned)  # noqa: SLF001
    assert begun is not None
    await rounds._finish(begun)  # noqa: SLF001
    took, more, began = (
        time.perf_counter() - began,
        memory_mb("VmHWM") - before,
        time.perf_counter(),
    )
    due, tail = (state.n_bytes + ids.n_bytes) // 4, 0
    while owned.to_read < due:
        queries = counts(5 * 100, f"tail-{tail}")
        await life.take(life.queries("life", queries, each=5), at_once=1)
        tail += 100
    console.print(
        f"the state has {state.n_bytes / 1e6:,.1f} MB, and the index {ids.n_bytes / 1e6:,.1f} MB; the round "
        f"took {took:.1f} s and {more:,.0f} MB more, and a tail of {tail:,} commits "
        f"{time.perf_counter() - began:.0f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wide-rows", type=int, default=400_000)
    parser.add_argument("--answers-each", type=int, default=10_000)
    parser.add_argument("--phases", type=int, default=0, help="live a whole life of so many phases")
    parser.add_argument("--rows-per-phase", type=int, default=20_000)
    parser.add_argument("--answers", type=int, default=10_000, help="in the whole life")
    parser.add_argument("--looks", type=int, default=5, help="paid queries in each phase")
    parser.add_argument("--retention", type=int, default=0, help="phases whose rows are kept")
    parser.add_argument("--days", type=int, default=0, help="days after which answers rotate")
    parser.add_argument("--start", action="store_true", help="measure starts after a life")
    parser.add_argument(
        "--ids", type=int, default=10_000_000, help="ids of answers at such a start"
    )
    parser.add_argument("--folder", type=Path, help="where the servers write; it has to be empty")
    parser.add_argument("--fresh", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.fresh:
        asyncio.run(start(Place(*given.fresh[:2]), given.fresh[2]))
        return
    console = Console(width=None if sys.stdout.isatty() else 120)
    if given.start and not given.phases:
        given.phases = 1_000
    with running_servers(NAMES, given.folder) as (folder, addresses):
        place = Place(addresses.bootstrap_servers, addresses.redis_url)
        asyncio.run((live if given.phases else weigh_all)(place, console, given, folder))


if __name__ == "__main__":
    main()
