"""Rows off somebody else's topic: what a message says, how a batch is spelt, what a file may say."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from aiokafka import TopicPartition
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.core.universe import Boolean, Category, Number, Universe
from stream_dp.errors import InvalidInput
from stream_dp.messages import TOPICS, Batch, read_json
from stream_dp.pipeline.sources import Packing, Source, SourceReader, row_of
from stream_dp.settings import WorkerSettings
from stream_dp.state.local import LocalStore

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


def source(**changes: Any) -> Source:
    return Source.read({**DOCUMENT, **changes})


PATHS = source().paths(UNIVERSE)


def test_values_are_found_at_their_paths() -> None:
    assert PATHS == {"carrier": ("carrier",), "delay": ("arrival", "delay")}
    value = json.dumps({"carrier": "AA", "arrival": {"delay": 7}, "more": [1]}).encode()
    assert row_of(value, PATHS) == ["AA", 7]


@pytest.mark.parametrize(
    "value", [None, b"", b"{", b"[1]", b"7", b"\xff", b'{"carrier":[1],"arrival":3}', b"{}"]
)
def test_every_record_is_one_row_whatever_it_holds(value: bytes | None) -> None:
    assert row_of(value, PATHS) == [None, None]


@given(st.binary(max_size=40))
def test_no_record_raises(value: bytes) -> None:
    assert len(row_of(value, PATHS)) == 2


@pytest.mark.parametrize(
    ("n_rows", "form"),
    [(1, "columns"), (100, "columns"), (159, "columns"), (160, "cells"), (5000, "cells")],
)
def test_a_batch_lists_all_cells_or_one_entry_a_row(n_rows: int, form: str) -> None:
    """By public numbers alone; either way the data set counts the same rows."""
    draw = np.random.default_rng(n_rows)
    rows = [
        [draw.choice(["AA", "UA", "ZZ", None]), draw.choice([-5.0, 3.0, 12.0, 99.0, None])]
        for _ in range(n_rows)
    ]
    value = Packing(source(), UNIVERSE, PATHS).batch("id", rows)
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
    rows = [["AA", 3.0], ["UA", None]] * 1000
    value = Packing(source(), UNIVERSE, PATHS, in_order=True).batch("id", rows)
    columns = Batch.read(json.loads(value)).columns
    assert columns is not None
    assert columns["carrier"] == ["AA", "UA"] * 1000


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
    rows = [row_of(value, PATHS)] * n_rows
    batch = packing.batch("id", rows)
    read = Batch.read(read_json(batch, max_bytes=100 * 1024, private=True))
    encoded = (
        UNIVERSE.encode_columns(read.columns)
        if read.columns is not None
        else UNIVERSE.encode_cells(read.cells or [])
    )
    columns = {"carrier": [rows[0][0]], "delay": [rows[0][1]], "cancelled": [False]}
    counted = np.flatnonzero(encoded.entry_counts)[0]
    assert [code[counted] for code in encoded.codes] == [
        code[0] for code in UNIVERSE.encode_columns(columns).codes
    ]


LONG = Universe(
    tuple(Category(f"{i}" * 64, ("a" * 200, "b", "c" * 100), missing=True) for i in range(10))
)


@pytest.mark.parametrize("universe", [LONG, Universe(LONG.attributes[:5])])
@pytest.mark.parametrize("in_order", [False, True])
def test_as_many_rows_fit_whatever_they_hold(universe: Universe, in_order: bool) -> None:
    """3,125 cells of 5 attributes are listed where rows need no order; ten million of 10 are not."""
    of_it = Source(version=1, dataset="d", topic="t")
    paths = of_it.paths(universe)
    packing = Packing(of_it, universe, paths, in_order=in_order)
    n_rows = packing.fitting(20_000)
    assert n_rows > 1000
    for value in ("a" * 200, None, "x" * 300):
        batch = packing.batch("?" * 128, [[value] * len(paths)] * n_rows)
        assert len(batch) <= TOPICS["batches"].max_value_bytes


PLACE = TopicPartition("shop.flights", 0)
N_ROWS = 40


class Consumer:
    """Knows offsets, and nothing of records."""

    def __init__(self, committed: int | None = None) -> None:
        self.stands_at = committed
        self.sought = -1

    async def committed(self, _: TopicPartition) -> int | None:
        return self.stands_at

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


class Marks:
    """A store, through a fuse."""

    def __init__(self, store: LocalStore, fuse: Fuse) -> None:
        self._store = store
        self._fuse = fuse

    async def swap(self, *arguments: Any) -> Any:
        return await self._fuse(self._store.swap(*arguments))


class Sent:
    """The batches that the broker has, by id."""

    def __init__(self) -> None:
        self.batches: dict[str, list[bytes]] = {}
        self.fuse = Fuse()

    async def send(self, record: Any) -> Any:
        async def sent() -> None:
            batch_id = json.loads(record.value)["batch_id"]
            self.batches.setdefault(batch_id, []).append(record.value)

        async def acknowledged() -> None:
            await self.fuse(sent())

        return acknowledged()


class Reader:
    """Reads rows that the test hands out, in pieces as they come."""

    def __init__(self, store: Any, sent: Any, consumer: Any, **changes: Any) -> None:
        settings = WorkerSettings(bootstrap_servers="localhost:1")
        of_it = source(wait_seconds=1e-9, **changes)
        self._reader = SourceReader(of_it, store, sent, lambda _: None, settings=settings)
        self._consumer = consumer
        self._packing = Packing(of_it, UNIVERSE, PATHS)
        self._at = 0

    async def start(self) -> None:
        reading = self._reader._reading
        await self._reader._stand(self._consumer, PLACE, reading.turn, "log")
        self._at = self._consumer.sought

    async def read(self, n_rows: int) -> bool:
        """Takes that many more rows; whether there are some left."""
        state = self._reader._reading.partitions[PLACE]
        last = min(self._at + n_rows, N_ROWS)
        rows = [(at, ["AA", float(at)]) for at in range(self._at, last)]
        state.rows.extend(row for row in rows if row[0] >= state.first)
        self._at = last
        await self._reader._batches(self._consumer, PLACE, state, self._packing, "log")
        return last < N_ROWS


def assert_each_row_is_in_one_batch(sent: Sent) -> None:
    spans = []
    for batch_id, values in sent.batches.items():
        assert len(set(values)) == 1, "one id, one content"
        first, _, last = batch_id.rpartition(":")[2].partition("-")
        spans.append((int(first), int(last)))
        assert len(json.loads(values[0])["columns"]["carrier"]) == int(last) - int(first) + 1
    assert [at for first, last in sorted(spans) for at in range(first, last + 1)] == [
        *range(N_ROWS)
    ]


@pytest.mark.parametrize("forgets", [False, True], ids=["", "and the group's offsets are lost"])
@pytest.mark.parametrize("at", range(1, 26))
async def test_a_reader_that_dies_at_any_step_leaves_each_row_to_one_batch(
    at: int, forgets: bool
) -> None:
    store, sent, consumer = LocalStore(), Sent(), Consumer()
    sent.fuse = Fuse(at)
    reader = Reader(Marks(store, sent.fuse), sent, consumer, batch_rows=7)
    try:
        await reader.start()
        while await reader.read(5):
            pass
    except Died:
        sent.fuse = Fuse()
    if forgets:
        consumer.stands_at = None
    reader = Reader(store, sent, consumer, batch_rows=11)
    await reader.start()
    while await reader.read(9):
        pass
    assert_each_row_is_in_one_batch(sent)
    assert len(store._marks) == 1, "however many batches there were"


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 9), st.booleans()), max_size=40))
async def test_readers_that_know_nothing_of_each_other_leave_each_row_to_one_batch(
    turns: list[tuple[int, int, bool]],
) -> None:
    store, sent, consumer = LocalStore(), Sent(), Consumer()
    sizes = (3, 7, 12)
    readers = [Reader(store, sent, consumer, batch_rows=size) for size in sizes]
    for reader in readers:
        await reader.start()
    for who, n_rows, dies in turns:
        if dies:
            readers[who] = Reader(store, sent, consumer, batch_rows=sizes[who])
            await readers[who].start()
        await readers[who].read(n_rows)
    while await readers[0].read(4):
        pass
    assert_each_row_is_in_one_batch(sent)
    assert len(store._marks) == 1


async def test_what_was_fetched_before_partitions_were_dealt_anew_is_forgotten() -> None:
    """Kept, it would be sent after what others have sent since."""
    unused: Any = None
    settings = WorkerSettings(bootstrap_servers="localhost:1")
    reader = SourceReader(source(), LocalStore(), unused, unused, settings=settings)
    reading = reader._reading

    class Rebalancing(Consumer):
        rebalances = True

        async def committed(self, place: TopicPartition) -> int | None:
            if self.rebalances:
                await reading.on_partitions_revoked([place])
            return await super().committed(place)

    consumer: Any = Rebalancing(7)
    await reader._stand(consumer, PLACE, reading.turn, "log")
    assert (reading.partitions, consumer.sought) == ({}, -1)
    consumer.rebalances = False
    await reader._stand(consumer, PLACE, reading.turn, "log")
    assert (reading.partitions[PLACE].first, consumer.sought) == (7, 7)


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
