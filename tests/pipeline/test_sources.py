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


async def test_what_was_fetched_before_partitions_were_dealt_anew_is_forgotten() -> None:
    """They are read again from their committed offsets on: kept, it would count twice."""
    unused: Any = None
    settings = WorkerSettings(bootstrap_servers="localhost:1")
    reader = SourceReader(source(), unused, unused, unused, settings=settings)
    place = TopicPartition("shop.flights", 0)
    reading = reader._reading

    class Consumer:
        """Rebalances while it is asked for the committed offset."""

        rebalances = True

        async def committed(self, place: TopicPartition) -> int:
            if self.rebalances:
                await reading.on_partitions_revoked([place])
            return 7

    consumer: Any = Consumer()
    assert await reader._state(consumer, place, reading.turn) is None
    assert reading.partitions == {}
    consumer.rebalances = False
    state = await reader._state(consumer, place, reading.turn)
    assert state is not None
    assert state.first == 7


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
