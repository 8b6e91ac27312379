"""Rows off somebody else's topic: what a message says, how a batch is spelt, what a file may say."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import json
import logging
import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from aiokafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.core.rows.attributes import Boolean, Category, Number
from stream_dp.core.rows.measured_values import Measure
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidInput, ServerUnavailable
from stream_dp.messages import TOPICS, Batch, Definition, PhaseSpec, SourceRange, read_json
from stream_dp.pipeline.intake import source_packing, sources
from stream_dp.pipeline.intake.source_file import TopicSource
from stream_dp.pipeline.intake.source_packing import Packing, document_of, row_of
from stream_dp.pipeline.intake.sources import SourceReader
from stream_dp.pipeline.repair.unlock import lift
from stream_dp.pipeline.rows.waiting.row_times import Times
from stream_dp.profiles.builder import build
from stream_dp.settings import WorkerSettings
from stream_dp.state.schema import State, StateTable
from tests.pipeline.commands import offline
from tests.pipeline.marked import watermarks
from tests.pipeline.scenarios import DAY_MS, NOV_1
from tests.pipeline.world import definition
from tests.view import MemoryView

UNIVERSE = Universe(
    (
        Category("carrier", ("AA", "UA"), missing=True),
        Number("delay", (0, 10, 30), missing=True),
        Boolean("cancelled"),
    )
)
DOCUMENT = {
    "version": 1,
    "dataset": "flights",
    "topic": "shop.flights",
    "fields": {"delay": "arrival.delay"},
    "constants": {"cancelled": False},
}


def source(**changes: Any) -> TopicSource:
    return TopicSource.read({**DOCUMENT, **changes})


PATHS = source().paths(UNIVERSE)
BY_ROWS = Times(PhaseSpec(min_rows=1))
BY_DAY = Times(PhaseSpec(min_rows=1, every="1 day"))
BY_THE_DAY = {"min_rows": 100, "every": "1 day"}


def spelt(n_rows: int, first: int = 0) -> SourceRange:
    """The range of so many records."""
    return SourceRange(
        topic="shop.flights", id="log", partition=0, first=first, last=first + n_rows - 1
    )


def test_values_are_found_at_their_paths() -> None:
    assert PATHS == {"carrier": ("carrier",), "delay": ("arrival", "delay")}
    value = json.dumps({"carrier": "AA", "arrival": {"delay": 7}, "more": [1]}).encode()
    assert row_of(document_of(value), PATHS) == ["AA", 7]


@pytest.mark.parametrize(
    "value", [None, b"", b"{", b"[1]", b"7", b"\xff", b'{"carrier":[1],"arrival":3}', b"{}"]
)
def test_every_record_is_one_row_whatever_it_holds(value: bytes | None) -> None:
    assert row_of(document_of(value), PATHS) == [None, None]


@given(st.binary(max_size=40))
def test_no_record_raises(value: bytes) -> None:
    assert len(row_of(document_of(value), PATHS)) == 2


@pytest.mark.parametrize(
    ("n_rows", "form"),
    [(1, "columns"), (100, "columns"), (159, "columns"), (160, "cells"), (5000, "cells")],
)
def test_a_batch_lists_all_cells_or_one_entry_a_row(n_rows: int, form: str) -> None:
    """By public numbers alone; either way the data set counts the same rows."""
    draw = np.random.default_rng(n_rows)
    carriers = np.array(["AA", "UA", "ZZ", None])
    delays = np.array([-5.0, 3.0, 12.0, 99.0, None])
    rows = [[draw.choice(carriers), draw.choice(delays)] for _ in range(n_rows)]
    value = Packing(source(), UNIVERSE, PATHS).batch(spelt(len(rows)), rows)
    batch = Batch.read(json.loads(value))
    plain = UNIVERSE.encode_columns(
        {
            "carrier": [row[0] for row in rows],
            "delay": [row[1] for row in rows],
            "cancelled": [False] * n_rows,
        }
    )
    if form == "columns":
        assert batch.columns is not None
        found = UNIVERSE.encode_columns(batch.columns)
    else:
        assert batch.cells is not None
        assert len(batch.cells) == UNIVERSE.n_cells == 40
        found = UNIVERSE.encode_cells(batch.cells)

    def table(given: Any) -> list[int]:
        counts = np.zeros(UNIVERSE.shape, dtype=np.int64)
        np.add.at(counts, given.codes, given.entry_counts)
        return list(counts.ravel())

    assert table(found) == table(plain)


def test_where_rows_are_answered_one_by_one_they_are_never_only_counted() -> None:
    rows: list[list[object]] = [["AA", 3.0], ["UA", None]] * 1000
    value = Packing(source(), UNIVERSE, PATHS, in_order=True).batch(spelt(len(rows)), rows)
    columns = Batch.read(json.loads(value)).columns
    assert columns is not None
    assert columns["carrier"] == ["AA", "UA"] * 1000


MEASURED = Universe(
    (
        UNIVERSE.attributes[0],
        Number("delay", (0, 10, 30), missing=True, measure=Measure(0.01, -5.0, 60.0)),
        UNIVERSE.attributes[2],
    )
)


FOUND, _ = build(
    Definition.read(
        definition(
            "flights",
            attributes=[
                {
                    "name": "page",
                    "type": "category",
                    "find": {"most": 50},
                    "missing": True,
                    "na": ["-"],
                },
                {"name": "bot", "type": "boolean"},
            ],
        )
    )
)
TEXTS = [
    "/home",
    "é" * 32,
    "é" * 33,
    "x" * 64,
    "x" * 65,
    " a ",
    "",
    "-",
    "\0",
    "\ud83d",
    "\n\x01",
    None,
]


@pytest.mark.parametrize("n_rows", [1, 60, 1200])
def test_values_that_are_found_are_sent_as_they_are(n_rows: int) -> None:
    of_it = TopicSource.read({"version": 1, "dataset": "flights", "topic": "shop.flights"})
    packing = Packing(of_it, FOUND, of_it.paths(FOUND))
    values = [*TEXTS, 5, 5.5, True, 10**30, float("nan")]
    pages = [values[n % len(values)] for n in range(n_rows)]
    bots = [n % 3 == 0 for n in range(n_rows)]
    batch = Batch.read(json.loads(packing.batch(spelt(n_rows), [*zip(pages, bots, strict=True)])))
    assert batch.columns is not None
    found = FOUND.encode_columns(batch.columns)
    plain = FOUND.encode_columns({"page": pages, "bot": bots})
    assert np.array_equal(found.texts[0], plain.texts[0])
    assert np.array_equal(found.codes[1], plain.codes[1])
    most = packing.fitting(100_000)
    long = packing.batch(spelt(most), [["\x01" * 64, False]] * most)
    assert most > 1_000
    assert len(long) <= source_packing.MAX_BYTES


@pytest.mark.parametrize("n_rows", [1, 159, 5000])
def test_values_that_are_kept_are_sent_as_numbers_that_count_for_the_same(n_rows: int) -> None:
    draw = np.random.default_rng(n_rows)
    delays = [
        -1e9,
        -5.0,
        -0.004,
        0.0,
        9.996,
        9.999,
        10.0,
        12.345,
        "29.999",
        77,
        "x",
        None,
        math.inf,
    ]
    rows: list[list[object]] = [["AA", delays[i]] for i in draw.integers(len(delays), size=n_rows)]
    value = Packing(source(), MEASURED, PATHS).batch(spelt(n_rows), rows)
    columns = Batch.read(json.loads(value)).columns
    assert columns is not None, "counts of cells would not say the values"
    plain: dict[str, list[Any]] = {
        "carrier": ["AA"] * n_rows,
        "delay": [delay for _, delay in rows],
        "cancelled": [False] * n_rows,
    }
    found, wanted = MEASURED.encode_columns(columns), MEASURED.encode_columns(plain)
    assert found.n_rows == wanted.n_rows == n_rows
    for one, other in zip(
        (*found.codes, *found.measures.values()),
        (*wanted.codes, *wanted.measures.values()),
        strict=True,
    ):
        assert one.tolist() == other.tolist()
    assert found.measures.keys() == wanted.measures.keys()


AWKWARD = [
    *(b'{"carrier":NaN,"arrival":{"delay":NaN}}', b'{"arrival":{"delay":1e400}}'),
    *(b'{"arrival":{"delay":-Infinity}}', b'{"carrier":"\\u0000","arrival":{"delay":"nan"}}'),
    *(b'{"arrival":{"delay":%s}}' % (b"9" * 400), b'{"carrier":"%s"}' % (b"x" * 100_000)),
]


@pytest.mark.parametrize("value", AWKWARD)
@pytest.mark.parametrize("n_rows", [1, 200])
def test_no_message_makes_a_batch_that_is_refused_or_cut_otherwise(
    value: bytes, n_rows: int
) -> None:
    packing = Packing(source(), UNIVERSE, PATHS)
    rows = [row_of(document_of(value), PATHS)] * n_rows
    batch = packing.batch(spelt(len(rows)), rows)
    read = Batch.read(read_json(batch, max_bytes=100 * 1024, private=True))
    encoded = (
        UNIVERSE.encode_columns(read.columns)
        if read.columns is not None
        else UNIVERSE.encode_cells(read.cells or [])
    )
    columns: dict[str, Any] = {"carrier": [rows[0][0]], "delay": [rows[0][1]], "cancelled": [False]}
    counted = np.flatnonzero(encoded.entry_counts)[0]
    assert [code[counted] for code in encoded.codes] == [
        code[0] for code in UNIVERSE.encode_columns(columns).codes
    ]


LONG = Universe(
    tuple(Category(f"{i}" * 64, ("a" * 200, "b", "c" * 100), missing=True) for i in range(10))
)


@pytest.mark.parametrize("universe", [LONG, Universe(LONG.attributes[:5]), MEASURED])
@pytest.mark.parametrize("in_order", [False, True])
def test_as_many_rows_fit_whatever_they_hold(universe: Universe, in_order: bool) -> None:
    """3,125 cells of 5 attributes are listed where rows need no order; ten million of 10 are not."""
    of_it = TopicSource(version=1, dataset="d", topic="t")
    paths = of_it.paths(universe)
    packing = Packing(of_it, universe, paths, in_order=in_order)
    n_rows = packing.fitting(20_000)
    assert n_rows > 1000
    for value in ("a" * 200, None, "x" * 300, -1.2345678901234567e-300):
        batch = packing.batch(spelt(n_rows), [[value] * len(paths)] * n_rows)
        assert len(batch) <= TOPICS["batches"].max_value_bytes


PLACE = TopicPartition("shop.flights", 0)
LOG = source_packing.SourceLog(PLACE, "log")
N_ROWS = 40


class Consumer:
    """Knows offsets, and nothing of records."""

    def __init__(self) -> None:
        self.stands_at: int | None = None
        self.begins = 0
        self.sought = -1

    async def beginning_offsets(self, places: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(places, self.begins)

    def seek(self, _: TopicPartition, offset: int) -> None:
        self.sought = offset

    async def commit(self, offsets: dict[TopicPartition, int]) -> None:
        self.stands_at = offsets[PLACE]


class Died(Exception):
    """The reader did."""


class Fuse:
    """Blows at one of the effects that a reader has on others, before it or after it."""

    def __init__(self, at: int = -1) -> None:
        self._left = at

    async def __call__(self, effect: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            effect.close()
            raise Died
        found = await effect
        self._left -= 1
        if self._left == 0:
            raise Died
        return found


class Owner:
    """The log of ``batches`` and the data set's owner, who takes from it when the test says so.

    Readers see a hint in place of the cursor. It is right unless the test says something else.
    """

    def __init__(self) -> None:
        self.log: list[Batch] = []
        self.rows: list[int] = []
        self.refused = 0
        self.cursor = {"batches:0": 0}
        self.hint: dict[str, int] | None = None
        self.passed = 0
        self.version = 1
        self.fuse = Fuse()

    async def cursors(self, _: str, places: Sequence[str]) -> dict[str, int]:
        async def read() -> dict[str, int]:
            there = self.cursor if self.hint is None else self.hint
            return {place: there[place] for place in places if place in there}

        found: dict[str, int] = await self.fuse(read())
        return found

    async def state(self, dataset: str) -> State:
        async def read() -> State:
            there = self.cursor if self.hint is None else self.hint
            pairs = {(StateTable.CURSOR, key.encode()): b"%d" % at for key, at in there.items()}
            return State(dataset, pairs=pairs)

        found: State = await self.fuse(read())
        return found

    async def taken_by_workers(self) -> dict[str, int]:
        return {"batches:0": self.passed}

    async def send_and_locate(self, record: Any) -> tuple[str, int]:
        async def sent() -> tuple[str, int]:
            self.log.append(Batch.read(json.loads(record.value)))
            return "batches:0", len(self.log) - 1

        at: tuple[str, int] = await self.fuse(sent())
        return at

    def take(self, n_batches: int | None = None) -> None:
        """Takes batches as ``Dataset.accept`` does: those whose range begins where the last one ended."""
        start = max(self.cursor["batches:0"], self.passed)
        stop = len(self.log) if n_batches is None else min(len(self.log), start + n_batches)
        for batch in self.log[start:stop]:
            assert batch.source is not None
            assert batch.columns is not None
            place = batch.source.cursor_key
            is_next = self.cursor.setdefault(place, batch.source.first) == batch.source.first
            if is_next and batch.source.schema_version == self.version:
                self.rows += [int(delay) for delay in batch.columns["delay"]]
                self.cursor[place] = batch.source.last + 1
            else:
                self.refused += 1
        if start < stop:
            self.cursor["batches:0"] = stop
            self.passed = max(self.passed, stop)

    def reject(self, n_batches: int) -> None:
        """Passes batches by, as where nobody can serve the data set: it takes note of none."""
        start = max(self.cursor["batches:0"], self.passed)
        self.passed = min(len(self.log), start + n_batches)

    def ahead(self) -> dict[str, int]:
        """A cursor of another history, beyond this one."""
        return {place: at + 5 for place, at in self.cursor.items()}


EXACT = Universe((Number("delay", tuple(range(1, 60))),))


class Reader:
    """Reads rows that the test hands out, in pieces as they come; row ``n`` says ``n``."""

    def __init__(self, owner: Any, consumer: Any, monkeypatch: Any, **changes: Any) -> None:
        monkeypatch.setattr(sources, "_PAUSES_S", (0.0,))
        monkeypatch.setattr(sources, "_IDLE_S", 0.0)
        settings = WorkerSettings(bootstrap_servers="localhost:1")
        of_it = TopicSource.read(
            {"version": 1, "dataset": "flights", "topic": "shop.flights", "wait_seconds": 1e-9}
            | changes
        )
        self._reader = SourceReader(of_it, owner, owner, lambda _: None, settings=settings)
        self._reader._formed = self._formed  # type: ignore[method-assign]
        self._reader._taken_by_workers = owner.taken_by_workers  # type: ignore[method-assign]
        self._consumer = consumer
        packing = Packing(of_it, EXACT, of_it.paths(EXACT), in_order=True)
        self._form = sources._Form(1, {}, (), packing, BY_ROWS)
        self._reader._form = self._form

    async def _formed(self) -> Any:
        """The data set is still defined, as it was."""
        return self._form

    async def start(self) -> None:
        reading = self._reader._reading
        await self._reader._stand(self._consumer, LOG, reading.assignment)

    async def read(self, n_rows: int) -> None:
        """Takes that many more rows, from where the reader has its consumer stand."""
        state = self._reader._reading.partitions[PLACE]
        if len(state.sent) < sources._AHEAD:
            at = self._consumer.sought
            last = self._consumer.sought = min(at + n_rows, N_ROWS)
            for n in range(max(at, state.first), last):
                state.read(n, -1, [float(n)])
        await self._reader._batches(self._consumer, state, self._form)
        await self._reader._commit(self._consumer)


async def to_the_end(reader: Reader, owner: Owner) -> None:
    for _ in range(200):
        await reader.read(9)
        owner.take()
        if len(owner.rows) >= N_ROWS:
            break
    await reader.read(9)
    owner.take()
    assert owner.rows == list(range(N_ROWS)), "each row once, in order"


@pytest.mark.parametrize("at", range(1, 30))
async def test_a_reader_that_dies_at_any_step_leaves_each_row_to_one_batch(
    monkeypatch: pytest.MonkeyPatch, at: int
) -> None:
    owner, consumer = Owner(), Consumer()
    owner.fuse = Fuse(at)
    reader = Reader(owner, consumer, monkeypatch, batch_rows=7)
    try:
        await reader.start()
        for _ in range(8):
            await reader.read(5)
            owner.take(1)
    except Died:
        owner.fuse = Fuse()
    reader = Reader(owner, consumer, monkeypatch, batch_rows=11)
    await reader.start()
    await to_the_end(reader, owner)


@pytest.mark.parametrize("rejected", [1, 9])
@pytest.mark.parametrize("counted", [0, 1, 5])
async def test_batches_that_nobody_served_are_sent_again(
    monkeypatch: pytest.MonkeyPatch, counted: int, rejected: int
) -> None:
    """Of a data set that is stopped, or not there, only the log of batches says that they were passed."""
    owner = Owner()
    reader = Reader(owner, Consumer(), monkeypatch, batch_rows=5)
    await reader.start()
    for _ in range(counted):
        await reader.read(5)
        owner.take()
    for _ in range(9):
        await reader.read(5)
    owner.reject(rejected)
    await to_the_end(reader, owner)


Turn = tuple[int, int, int, str]


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2),
            st.integers(1, 9),
            st.integers(0, 3),
            st.sampled_from(["reads", "reads", "dies", "older", "follows", "empty", "ahead"]),
        ),
        max_size=40,
    )
)
async def test_each_row_counts_once_whatever_readers_die_and_whatever_redis_has(
    turns: list[Turn],
) -> None:
    """Redis may be behind, empty, or of another history: what it says is a hint."""
    with pytest.MonkeyPatch.context() as patch:
        owner, sizes = Owner(), (3, 7, 12)
        consumers = [Consumer() for _ in sizes]
        readers = [
            Reader(owner, c, patch, batch_rows=n) for c, n in zip(consumers, sizes, strict=True)
        ]
        for reader in readers:
            await reader.start()
        for who, n_rows, taken, what in turns:
            if what == "dies":
                readers[who] = Reader(owner, consumers[who], patch, batch_rows=sizes[who])
                await readers[who].start()
            elif what != "reads":
                hints = {"older": dict(owner.cursor), "empty": {}, "ahead": owner.ahead()}
                owner.hint = hints.get(what)
            await readers[who].read(n_rows)
            owner.take(taken)
            assert owner.rows == list(range(len(owner.rows))), "in order, and none twice"
        owner.hint = None
        await to_the_end(readers[0], owner)


async def test_rows_of_a_source_count_once_when_redis_goes_back_between_two_of_its_batches(
    make_world: Callable[..., Any],
) -> None:
    """The reader packs what an older copy lacks anew with another end, hence under another id."""
    world = make_world()

    def batch(first: int, last: int) -> None:
        spelt = SourceRange(topic="shop.flights", id="log", partition=0, first=first, last=last)
        row = {"carrier": "AA", "delay": 5, "cancelled": False}
        world.batch(
            "flights",
            f"shop.flights@log:0:{first}-{last}",
            source=spelt.model_dump(),
            rows=[row] * (last - first + 1),
        )

    def rounds() -> None:
        world.define("flights", phase={"min_rows": 22})
        batch(0, 11)

    await world.run(rounds=[lambda _: rounds()])
    older = copy.deepcopy(world.view)
    await world.run(rounds=[lambda _: batch(12, 15)])
    world.view = older
    key = "source shop.flights@log:0"
    assert await world.view.cursors("flights", [key]) == {key: 12}
    await world.run(rounds=[lambda _: batch(12, 21), lambda _: batch(16, 21)])
    assert await world.view.cursors("flights", [key]) == {key: 22}
    assert [event["rows"] for event in world.events("batch_accepted")] == [12, 4, 6]
    assert [event["rows"] for event in world.events("phase_opened")] == [22]
    ((rejected,),) = world.rejections().values()
    assert rejected["reason"]["code"] == "not_next"
    assert "offset 16 counts next" in rejected["reason"]["message"]
    assert world.complaints() == []


def ranged(first: int, last: int, at: int = 0) -> SourceRange:
    """A range of records of one partition."""
    return SourceRange(topic="shop.flights", id="log", partition=at, first=first, last=last)


def packed(world: Any, first: int, last: int, **form: Any) -> Any:
    """A batch as a reader packs it: its id follows from its range."""
    of = ranged(first, last)
    row = {"carrier": "AA", "delay": 5, "cancelled": False}
    form = {"rows": [row] * (last - first + 1)} | form
    return world.batch("flights", source_packing.batch_id(of), source=of.model_dump(), **form)


def accepted(world: Any) -> list[str]:
    """The ranges that count, in order."""
    return [e["batch_id"].rpartition(":")[2] for e in world.events("batch_accepted")]


async def test_a_range_that_was_refused_counts_once_the_cause_has_gone(
    world: Any, process: Any
) -> None:
    """The reader packs it under the same id again. A refusal that is remembered would hold for ever."""
    world.now_ms = NOV_1
    world.define("flights", phase=BY_THE_DAY)
    packed(world, 0, 9, time="2026-11-01")
    await process.run()
    for _ in range(2):  # the clock of the broker is behind
        packed(world, 10, 19, time="2026-11-05")
    packed(world, 20, 29, time="2026-11-05")
    await process.run()
    assert len(world.released("events")) == 4
    world.now_ms = NOV_1 + 4 * DAY_MS
    packed(world, 10, 19, time="2026-11-05")
    packed(world, 20, 29, time="2026-11-05")
    await process.run()
    assert accepted(world) == ["0-9", "10-19", "20-29"]
    assert len(world.events("batch_refused")) == 1, "the same one, as often as it comes"
    (rejected,) = world.rejections().values()
    assert rejected[0]["reason"]["code"] == "not_next"
    packed(world, 10, 19, time="2026-11-05")
    await process.run()
    assert accepted(world) == ["0-9", "10-19", "20-29"], "it counts once"
    assert world.complaints() == []


async def test_of_a_batch_that_nobody_served_the_log_alone_says_that_it_was_passed(
    world: Any, process: Any
) -> None:
    """So a reader that asked the data set alone would wait for ever."""
    record = packed(world, 0, 9)
    await process.run()
    assert world.rejection(record)["reason"]["code"] == "unknown_dataset"
    world.define("flights")
    await process.run()
    place = record.topic_partition
    await process.settled()
    assert await world.view.cursors("flights", [place]) == {}
    assert world.held("flights").cursor.get(place) is None
    assert watermarks(world)[place] == record.offset + 1


@pytest.mark.parametrize("why", ["refused", "quarantined"])
async def test_a_source_begins_with_its_first_range_also_if_that_does_not_count(
    world: Any, process: Any, why: str
) -> None:
    """The reader has sent the second one already. It must not count without the rows of the first."""
    world.now_ms = NOV_1
    world.define("flights", phase=BY_THE_DAY)
    await process.run()
    if why == "quarantined":
        process.worker.datasets["flights"].quarantine("in.batches:0:0")
    packed(world, 0, 9, time="2026-11-05" if why == "refused" else "2026-11-01")
    await process.run()
    if why == "quarantined":
        await process.kill()
        await lift(offline(world), "flights")
        process = await world.owner()
    packed(world, 10, 19, time="2026-11-01")
    await process.run()
    assert accepted(world) == []
    packed(world, 0, 9, time="2026-11-01")
    packed(world, 10, 19, time="2026-11-01")
    await process.run()
    assert accepted(world) == ["0-9", "10-19"]


async def test_what_was_fetched_before_partitions_were_dealt_anew_is_forgotten() -> None:
    """Kept, it would be sent after what others have sent since."""
    unused: Any = None
    settings = WorkerSettings(bootstrap_servers="localhost:1")

    class Rebalancing(MemoryView):
        rebalances = True

        async def cursors(self, *arguments: Any) -> dict[str, int]:
            if self.rebalances:
                await reading.on_partitions_revoked([PLACE])
            return await super().cursors(*arguments)

    view, consumer = Rebalancing(), Consumer()
    reader = SourceReader(source(), view, unused, unused, settings=settings)
    reading = reader._reading
    known: Any = consumer
    await reader._stand(known, LOG, reading.assignment)
    assert (reading.partitions, consumer.sought) == ({}, -1)
    view.rebalances = False
    await reader._stand(known, LOG, reading.assignment)
    assert (reading.partitions[PLACE].first, consumer.sought) == (0, 0)


class Record(NamedTuple):
    """A record of a source; record ``n`` says ``n``."""

    offset: int
    timestamp: int = -1

    @property
    def value(self) -> bytes:
        return b'{"delay":%d}' % self.offset


class Topic(Consumer):
    """A consumer that is given records as the test says, and then none."""

    def __init__(self, *fetches: Sequence[int], begins: int = 0) -> None:
        super().__init__()
        self.begins = begins
        self._fetches = list(fetches)
        self.is_read = False

    def __call__(self, **_: object) -> Topic:
        return self

    def subscribe(self, *_: object, listener: object) -> None:
        """It has one partition, and keeps it."""

    async def start(self) -> None:
        """There is nothing to start."""

    stop = start

    def assignment(self) -> set[TopicPartition]:
        return {PLACE}

    async def getmany(self, *_: object, **__: object) -> dict[TopicPartition, list[Record]]:
        await asyncio.sleep(0)
        if self._fetches:
            return {PLACE: [Record(offset) for offset in self._fetches.pop(0)]}
        self.is_read = True
        return {}


async def ran(
    owner: Owner,
    topic: Topic,
    monkeypatch: pytest.MonkeyPatch,
    ids: Sequence[str] = ("log",),
    **changes: Any,
) -> None:
    """Has a reader read what a topic gives, and its owner take what it sends.

    Args:
        ids: The ids that the topic has, whenever it is asked. The last one stays.
    """
    told = list(ids)

    async def described(*_: object) -> list[dict[str, Any]]:
        return [{"error_code": 0, "topic_id": told.pop(0) if len(told) > 1 else told[0]}]

    monkeypatch.setattr(sources, "AIOKafkaConsumer", topic)
    monkeypatch.setattr(sources, "described_topics", described)
    of_it = source(
        **{"fields": {}, "constants": {}, "batch_rows": 10, "wait_seconds": 0.05} | changes
    )
    settings = WorkerSettings(bootstrap_servers="localhost:1")
    found: Any = owner
    reader = SourceReader(of_it, found, found, lambda _: None, settings=settings)

    async def built() -> Any:
        of_dataset = SimpleNamespace(
            row_keys=(), phase=PhaseSpec(min_rows=1_000), schema_version=owner.version
        )
        return of_dataset, EXACT, SimpleNamespace(in_order=True)

    monkeypatch.setattr(reader, "_built", built)
    monkeypatch.setattr(reader, "_taken_by_workers", owner.taken_by_workers)
    reading = asyncio.create_task(reader.run())
    idle = 0
    while idle < 20 and not reading.done():
        await asyncio.sleep(0.01)
        before = len(owner.log)
        owner.take()
        idle = idle + 1 if topic.is_read and len(owner.log) == before else 0
    reading.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await reading


@pytest.mark.parametrize(
    ("topic", "counted", "told"),
    [
        # A broker whose log was cut does not know the next offset, and begins at the first one again.
        (
            lambda: Topic(range(1, 6), range(1, 12)),
            [*range(1, 12)],
            "shop.flights:0 was read to offset 6, and comes again from offset 1",
        ),
        (
            lambda: Topic(range(4), range(20, 26), begins=20),
            [*range(4), *range(20, 26)],
            "records 4 to 19 of shop.flights:0 were deleted before a counter read",
        ),
        # Each transaction leaves a gap at its end, and a compacted topic has many.
        (
            lambda: Topic(range(3), range(4, 8), range(20, 23)),
            [0, 1, 2, *range(4, 8), *range(20, 23)],
            "",
        ),
    ],
    ids=["sent back", "deleted", "gaps"],
)
async def test_a_reader_counts_no_row_twice_and_says_which_records_it_missed(
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    topic: Callable[[], Any],
    counted: list[int],
    told: str,
) -> None:
    owner = Owner()
    caplog.set_level(logging.WARNING)
    await ran(owner, topic(), monkeypatch)
    assert owner.rows == counted
    assert [message[: len(told)] for message in caplog.messages] == [told] * bool(told)


class WholeTopic(Topic):
    """A consumer that reads from where it was sent to, to the last record."""

    async def getmany(self, *_: object, **__: object) -> dict[TopicPartition, list[Record]]:
        await asyncio.sleep(0)
        at = self.sought
        self.sought = min(at + 10, N_ROWS)
        self.is_read = at == N_ROWS
        return {PLACE: [Record(offset) for offset in range(at, self.sought)]} if at < N_ROWS else {}


async def test_rows_that_were_packed_before_the_attributes_changed_are_packed_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Changing(Owner):
        def take(self, n_batches: int | None = None) -> None:
            super().take(1)
            self.version = 2 if self.rows else 1

    owner = Changing()
    monkeypatch.setattr(sources, "_PAUSES_S", (0.0,))
    monkeypatch.setattr(sources, "_IDLE_S", 0.0)
    await ran(owner, WholeTopic(), monkeypatch)
    assert owner.rows == [*range(N_ROWS)], "each row once, in order"
    versions = [one.source.schema_version or 0 for one in owner.log if one.source is not None]
    assert versions == sorted(versions)
    assert versions.count(1) > 1, "some were on their way"
    assert owner.refused == versions.count(1) - 1


async def test_the_group_shows_how_far_a_source_has_counted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sources, "_CHECK_S", 0.0)
    topic = Topic(range(10), range(10, 15))
    await ran(Owner(), topic, monkeypatch)
    assert topic.stands_at == 15


async def test_an_offset_of_a_topic_that_was_created_again_is_not_committed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The next reader finds nothing counted of the new topic, and would begin it at that offset."""

    class Quick(Owner):
        async def send_and_locate(self, record: Any) -> tuple[str, int]:
            sent = await super().send_and_locate(record)
            self.take()
            return sent

    monkeypatch.setattr(sources, "_CHECK_S", 0.0)
    owner, topic = Quick(), Topic(range(10))
    with pytest.raises(ServerUnavailable, match="deleted and created again"):
        await ran(owner, topic, monkeypatch, ids=["log", "log", "another"])
    assert (owner.rows, topic.stands_at) == (list(range(10)), None)


async def test_a_source_that_begins_at_a_named_offset_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The rows before that offset never count."""
    unused: Any = None
    settings = WorkerSettings(bootstrap_servers="localhost:1")
    starts: list[Any] = [None, {"id": "log", "offsets": [0]}, {"id": "another", "offsets": [9]}]
    starts.append({"id": "log", "offsets": [7, 8]})
    for start in starts:
        reader = SourceReader(source(start=start), MemoryView(), unused, unused, settings=settings)
        consumer: Any = Consumer()
        await reader._stand(consumer, LOG, reader._reading.assignment)
        assert consumer.sought == (7 if start is starts[-1] else 0)
    (told,) = caplog.messages
    assert told.startswith(
        "flights begins with record 7 of shop.flights:0, as its source file says"
    )


async def test_what_was_set_before_partitions_were_assigned_is_forgotten() -> None:
    """The consumer then stands at the committed offset, which may be beyond the one that is expected."""
    unused: Any = None
    settings = WorkerSettings(bootstrap_servers="localhost:1")
    reader = SourceReader(source(), MemoryView(), unused, unused, settings=settings)
    reading, consumer = reader._reading, Consumer()
    await reading.on_partitions_revoked([PLACE])
    before: Any = consumer
    await reader._stand(before, LOG, reading.assignment)
    assert PLACE in reading.partitions, "a consumer names its former partitions until then"
    fetched_under = reading.assignment
    await reading.on_partitions_assigned([PLACE])
    assert reading.partitions == {}
    assert reading.assignment != fetched_under


def test_a_sample_of_each_cell_falls_into_it() -> None:
    awkward = Universe(
        (
            Category("a", ("?", "??", "other")),
            Category("b", ("x",), other=False, missing=True),
            Number("c", (1e-300, 2e-300, 1.0), missing=True),
            Number("d", (-3, -2, 7), integer=True),
            Boolean("e", missing=True),
        )
    )
    for attribute in awkward.attributes:
        codes = attribute.encode(json.loads(json.dumps(list(attribute.samples))))
        assert list(codes) == list(range(attribute.size))


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"topic": "no such"}, "topic"),
        ({"colour": 1}, "colour"),
        ({"batch_rows": 0}, "batch_rows"),
        ({"fields": {"speed": "v"}}, "fields.speed"),
        ({"constants": {"speed": 1}}, "constants.speed"),
        ({"fields": {"cancelled": "c"}}, "constants.cancelled"),
    ],
)
def test_a_source_that_does_not_fit_names_the_field(changes: dict[str, Any], place: str) -> None:
    with pytest.raises(InvalidInput, match=place):
        source(**changes).paths(UNIVERSE)


# ---------------------------------------------------------------- periods


def partition(*times: int, own_time: bool = False) -> Any:
    """A partition with one record at each of these times."""
    state = sources._Partition(LOG, 0)
    for offset, dated_ms in enumerate(times):
        dated = dated_ms + 10_000 * DAY_MS if dated_ms >= 0 else -1
        state.read(offset, dated, [None, None], own_time=own_time)
    return state


@pytest.mark.parametrize(
    ("times", "ended"),
    [
        ((), 0),
        ((5, 6, 7), 0),
        ((5, DAY_MS - 1, DAY_MS), 2),
        ((5, DAY_MS, 2 * DAY_MS), 1),
        ((5, DAY_MS, 6, 2 * DAY_MS), 1),  # the late one goes with the second day
        ((-1, -1), 0),
    ],
)
def test_a_batch_ends_with_its_period(times: tuple[int, ...], ended: int) -> None:
    assert partition(*times).ended(BY_DAY) == ended
    assert partition(*times).ended(BY_ROWS) == 0


def test_where_late_rows_are_taken_a_batch_ends_wherever_another_period_begins() -> None:
    phase = {
        "min_rows": 1,
        "every": "1 day",
        "close": {"after": "1 hour"},
        "late": {"within": "2 days"},
    }
    times = Times(PhaseSpec.model_validate(phase))
    for dated, ended in (((5, DAY_MS, 6), 1), ((DAY_MS, 6, 7), 1), ((5, -1, 6), 0), ((5, 7, 6), 0)):
        assert partition(*dated, own_time=True).ended(times) == ended


def test_a_record_that_comes_late_goes_with_those_before_it() -> None:
    assert [row.dated_ms % (10_000 * DAY_MS) for row in partition(5, DAY_MS, 6).rows] == [
        5,
        DAY_MS,
        DAY_MS,
    ]


@pytest.mark.parametrize("dated_ms", [-1, 0, DAY_MS])
def test_a_record_without_a_time_worth_the_name_has_none(dated_ms: int) -> None:
    state = sources._Partition(LOG, 0)
    state.read(0, dated_ms, [None, None])
    assert state.newest == -1


def test_a_record_from_a_time_to_come_ends_no_period() -> None:
    (row,) = partition(2**62).rows
    assert row.dated_ms < 2**43


def test_a_batch_of_a_source_says_its_time_and_stays_within_its_size() -> None:
    packing = Packing(source(), UNIVERSE, PATHS)
    value = packing.batch(spelt(1), [["AA", 3.0]], BY_DAY.written(5))
    assert Batch.read(json.loads(value)).time == "1970-01-01T00:00:00.005+00:00"
    assert len(BY_DAY.written(5)) <= len(source_packing.LONGEST_TIME)


async def test_days_of_a_topic_are_sent_one_after_another() -> None:
    sent: list[dict[str, Any]] = []

    class Sending:
        async def send_and_locate(self, outgoing: Any) -> tuple[str, int]:
            sent.append(json.loads(outgoing.value))
            return "batches:0", len(sent)

    reader = SourceReader(
        source(wait_seconds=3600.0),
        MemoryView(),
        Sending(),  # type: ignore[arg-type]
        lambda _: None,
        settings=WorkerSettings(),
    )
    early, late = partition(5, 6, DAY_MS, 2 * DAY_MS), partition(DAY_MS + 1, 2 * DAY_MS, 3 * DAY_MS)
    places = {TopicPartition("shop.flights", n): state for n, state in enumerate((early, late))}
    reader._reading.partitions.update(places)
    packing = Packing(source(), UNIVERSE, PATHS)
    for _ in range(3):
        for state in reversed(places.values()):
            state.sent.clear()
            state.looked = float("inf")
            form = sources._Form(1, {}, (), packing, BY_DAY)
            await reader._batches(None, state, form)
    days = [batch["time"][:10] for batch in sent]
    assert days == sorted(days)
    assert [len(batch["columns"]["carrier"]) for batch in sent] == [2, 1, 1, 1]
