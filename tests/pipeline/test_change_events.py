"""Change events of a database: which rows they create, and which they correct."""

from __future__ import annotations

import json
import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from stream_dp.errors import InvalidInput
from stream_dp.messages import Batch, Definition, SourceRange
from stream_dp.pipeline.intake import sources
from stream_dp.pipeline.intake.source_events import (
    ChangeEvent,
    CountedEvents,
    EventPacking,
    Read,
    event_of,
    folded,
)
from stream_dp.pipeline.intake.source_file import TopicSource
from stream_dp.pipeline.intake.source_packing import MAX_BYTES, document_of
from stream_dp.pipeline.intake.sources import SourceReader
from stream_dp.pipeline.rows.waiting.row_times import Times
from stream_dp.profiles.builder import build
from stream_dp.settings import WorkerSettings
from tests.pipeline.flights import judged
from tests.pipeline.referee.lives import kept_slots
from tests.pipeline.test_erasure import HOUR, PAGES, SHOP, UNIT, shop, swept
from tests.pipeline.test_sources import LOG, PLACE, Consumer, Owner

pytestmark = judged

FOR_FOUND = {"epsilon": 1.0, "delta": 1e-9, "unit": {**UNIT, "phases": 12}}
SHOP_TABLE = Definition.read(SHOP)
UNIVERSE, _ = build(SHOP_TABLE)
SOURCE = TopicSource.read(
    {
        "version": 1,
        "dataset": "shop",
        "topic": "db.orders",
        "format": "debezium",
        "fields": {"customer": "customer_id", "order": "id"},
    }
)
KEYS = SHOP_TABLE.row_keys
PATHS = SOURCE.paths(UNIVERSE, KEYS)


def row(order: int, person: Any = 1, page: str = "home", total: int = 20) -> dict[str, Any]:
    return {"id": order, "customer_id": person, "page": page, "total": total, "note": "x"}


def event(
    op: str, lsn: int, before: Any = None, after: Any = None, *, commit: int | None = 0, **more: Any
) -> dict[str, Any]:
    sequence = json.dumps([None if commit is None else str(commit), str(lsn)])
    of = {"connector": "postgresql", "lsn": lsn, "sequence": sequence, "table": "orders"}
    return {"op": op, "before": before, "after": after, "source": of, "ts_ms": lsn, **more}


def position(commit: int, lsn: int) -> int:
    """That of an event behind a commit."""
    return commit << 64 | 1 << 63 | lsn


def found_in(document: Any, counted: CountedEvents | None = None) -> Read:
    return event_of(document, PATHS, KEYS, counted or CountedEvents())


def read(document: Any) -> ChangeEvent:
    return found_in(document).event


@pytest.mark.parametrize(
    ("document", "does", "keys"),
    [
        (event("c", 5, after=row(1)), "create", ("1", "1")),
        (event("r", 5, after=row(1)), "create", ("1", "1")),
        ({"schema": {}, "payload": event("c", 5, after=row(1))}, "create", ("1", "1")),
        (event("u", 5, row(1), row(1, page="cart")), "set", ("1", "1")),
        (event("u", 5, None, row(1, page="cart")), "set", ("1", "1")),
        (event("u", 5, row(1, 1), row(1, 2)), "remove", ("1", "1")),
        (event("d", 5, row(1)), "remove", ("1", "1")),
        (event("t", 5), "nothing", (None, None)),
        (event("m", 5), "nothing", (None, None)),
        (None, "nothing", (None, None)),
        ({"id": 1}, "nothing", (None, None)),
        ({"op": "c", "after": "text"}, "create", (None, None)),
    ],
)
def test_the_operation_says_what_becomes_of_a_row(
    document: Any, does: str, keys: tuple[Any, Any]
) -> None:
    found = read(document)
    assert (found.does, found.row) == (does, keys)


@pytest.mark.parametrize("value", [b"", b"[]", b"{", b'{"op":"x"}', b'{"id":7}'])
def test_what_is_no_event_is_told_apart(value: bytes) -> None:
    assert not found_in(document_of(value)).is_event


def rows_of(documents: list[Any], counted: CountedEvents) -> list[Any]:
    """The own keys of the rows that events are about. None for one that is blank."""
    return [found_in(one, counted).event.row[1] for one in documents]


def test_an_event_that_comes_again_is_blank() -> None:
    for op, does in (("c", "create"), ("u", "nothing"), ("d", "nothing")):
        events = [event(op, lsn, row(1), row(1), commit=4) for lsn in (5, 7, 9)]
        counted = CountedEvents()
        assert rows_of(events, counted) == ["1"] * 3
        assert counted.position == position(4, 9)
        for one in events:
            again = found_in(one, counted).event
            assert (again.does, again.row) == (does, (None, None))
        assert rows_of([event(op, 6, row(2), row(2), commit=8)], counted) == ["2"]


def test_transactions_that_were_open_at_a_time_count_all_their_rows() -> None:
    """They come in the order of their commits. What they have written lies mixed in the log before that."""
    first = [event("c", lsn, None, row(lsn), commit=90) for lsn in (100, 103, 106)]
    second = [event("c", lsn, None, row(lsn), commit=107) for lsn in (101, 102, 105, 120)]
    counted = CountedEvents()
    assert rows_of(first + second, counted) == ["100", "103", "106", "101", "102", "105", "120"]
    assert rows_of(first[1:] + second, counted) == [None] * 6
    assert rows_of([event("c", 104, None, row(104), commit=121)], counted) == ["104"]


def test_rows_that_were_written_together_count_all() -> None:
    """As with COPY: they have one position. Some come again, and then the others for the first time."""
    rows = [event("c", 50, None, row(n), commit=40) for n in range(5)]
    counted = CountedEvents()
    assert rows_of(rows[:3], counted) == ["0", "1", "2"]
    assert rows_of(rows, counted) == [None, None, None, "3", "4"]
    assert rows_of([event("c", 50, None, {**row(1), "id": None}, commit=40)], counted) == [None]


def test_a_reader_that_starts_again_knows_what_was_written_together() -> None:
    rows = [event("c", 50, None, row(n), commit=40) for n in range(3)]
    before = [event("c", 40, None, row(9), commit=30), None, {"op": "c"}, *rows]
    counted = CountedEvents(position(40, 50))
    for one in before:
        event_of(one, PATHS, KEYS, counted)
    assert counted.position == position(40, 50)
    assert rows_of([*rows, event("c", 50, None, row(3), commit=40)], counted) == [None] * 3 + ["3"]


@pytest.mark.parametrize(
    ("begins", "most", "sought"), [(0, 99, 0), (3, 99, 3), (0, 2, 3), (9, 99, 5)]
)
async def test_a_reader_begins_before_its_next_message_to_know_that(
    monkeypatch: pytest.MonkeyPatch, begins: int, most: int, sought: int
) -> None:
    monkeypatch.setattr(sources, "_RECALLED", most)
    of = LOG.range(0, 0)
    owner: Any = Owner()
    owner.cursor = {of.cursor_key: 5, of.position_key: position(40, 50)}
    consumer: Any = Consumer()
    consumer.begins = begins
    settings = WorkerSettings(bootstrap_servers="localhost:1")
    reader = SourceReader(SOURCE, owner, owner, lambda _: None, settings=settings)
    reading = reader._reading
    await reader._stand(consumer, LOG, reading.assignment)
    assert consumer.sought == sought
    state = reading.partitions[PLACE]
    events = [event("c", 30 + 4 * n, None, row(n), commit=20) for n in range(3)]
    events += [event("c", 50, None, row(n), commit=40) for n in (3, 4, 4, 5)]
    records: Any = [
        SimpleNamespace(offset=at, timestamp=-1, value=json.dumps(one).encode())
        for at, one in enumerate(events)
    ]
    packing = EventPacking(SOURCE, UNIVERSE, PATHS, keys=KEYS)
    form = sources._Form(1, PATHS, KEYS, packing, Times(SHOP_TABLE.phase))
    assert reader._read(state, records[sought:], form)
    found = [(one.offset, one.values.row[1]) for one in state.rows]
    assert found == [(5, None if sought < 5 else "4"), (6, "5")]


def test_the_rows_of_a_snapshot_have_one_position_and_what_follows_comes_behind_them() -> None:
    counted = CountedEvents()
    snapshot = [event("r", 60, None, row(n), commit=None) for n in range(3)]
    assert rows_of(snapshot, counted) == ["0", "1", "2"]
    later = [event("c", lsn, None, row(lsn), commit=None) for lsn in (58, 71)]  # begun before it
    later += [event("c", 59, None, row(59), commit=75)]
    assert rows_of(later, counted) == ["58", "71", "59"]
    assert rows_of(later, counted) == [None] * 3
    assert rows_of(snapshot, counted) == [None] * 3
    assert rows_of([event("r", 99, None, row(0), commit=None)], counted) == ["0"], "another table"
    assert rows_of([event("c", 98, None, row(98), commit=None)], counted) == ["98"]


def test_without_a_snapshot_the_first_transaction_has_no_commit_before_it() -> None:
    counted = CountedEvents()
    events = [event("c", lsn, None, row(lsn), commit=None) for lsn in (5, 6)]
    events.append(event("c", 4, None, row(4), commit=7))
    assert rows_of(events[:1], counted) == ["5"]
    assert rows_of(events, counted) == [None, "6", "4"]
    assert rows_of(events, counted) == [None] * 3


@pytest.mark.parametrize(
    "sequence",
    [
        *(None, 5, "", "x", "5", "[]", '["1"]', '["1","2","3"]', '["1",null]', '["-1","2"]'),
        *('["x","2"]', '["1","99999999999999999999"]', '{"a":1,"b":2}', "[" * 10_000),
    ],
)
def test_an_event_without_a_position_counts_each_time(sequence: Any) -> None:
    one = event("c", 5, None, row(1))
    one["source"]["sequence"] = sequence
    counted = CountedEvents(7)
    assert rows_of([one, one], counted) == ["1", "1"]
    assert counted.position == 7


def test_a_removal_says_whose_row_it_was_or_not() -> None:
    assert found_in(event("d", 5, row(1))).says_whose is True
    for before in ({"id": 1}, {"id": 1, "customer_id": None}, None):
        assert found_in(event("d", 5, before)).says_whose is False
    assert found_in(event("c", 5, None, row(1))).says_whose is None


def naive(events: list[ChangeEvent]) -> dict[Any, list[object]]:
    """The live rows after some events, one by one."""
    live: dict[Any, list[object]] = {}
    for one in events:
        if one.does == "create" or (one.does == "set" and one.row in live):
            live[one.row] = one.values
        elif one.does == "remove":
            live.pop(one.row, None)
    return live


def test_folded_events_leave_the_rows_that_they_leave_one_by_one() -> None:
    """Corrections are made first, and then the rows come. How many of each there are stays."""
    rng = random.Random(1)
    for _ in range(2_000):
        earlier = [ChangeEvent("create", ["home", 0, "p", str(n)]) for n in range(2)]
        events = [
            ChangeEvent(
                rng.choice(["create", "set", "remove", "nothing"]),
                [rng.choice(PAGES), rng.randrange(9), "p", str(rng.randrange(4))],
            )
            for _ in range(rng.randrange(8))
        ]
        found = folded(events)
        assert [one.does == "create" for one in found] == [one.does == "create" for one in events]
        corrections = [one for one in found if one.does != "create"]
        created = [one for one in found if one.does == "create" and one.row != (None, None)]
        assert naive([*earlier, *corrections, *created]) == naive([*earlier, *events])


def test_a_batch_has_its_rows_and_corrections() -> None:
    packing = EventPacking(SOURCE, UNIVERSE, PATHS, keys=KEYS)
    events = [
        read(event("c", 1, None, row(1))),
        read(event("u", 2, row(1), row(1, page="cart"))),
        read(event("u", 3, row(9), row(9, page="paid", total=70))),
        read(event("d", 4, row(8))),
        read(None),
    ]
    of = SourceRange(topic="db.orders", id="x", partition=0, first=0, last=4, position=4)
    document = json.loads(packing.batch(of, events))
    Batch.read(document)
    assert document["columns"] == {
        "page": ["cart"],
        "total": [10],
        "customer": ["1"],
        "order": ["1"],
    }
    assert document["correct"] == [
        {"person": "1", "row": "1", "set": {"page": "cart", "total": 10}},
        {"person": "1", "row": "9", "set": {"page": "paid", "total": 50}},
        {"person": "1", "row": "8", "erase": True},
        None,
    ]
    assert document["source"]["position"] == 4


def test_no_events_make_a_batch_too_large() -> None:
    packing = EventPacking(SOURCE, UNIVERSE, PATHS, keys=KEYS)
    n_rows = packing.fitting(100_000)
    assert n_rows > 1_000
    long = row(1, "é" * 64, "home")
    events = [read(event("u", 5, None, {**long, "id": "\x01" * 64}))] * n_rows
    of = SourceRange(
        topic="db.orders", id="x", partition=0, first=0, last=n_rows, position=2**127 - 1
    )
    assert len(packing.batch(of, events)) <= MAX_BYTES


def test_values_that_are_found_are_created_and_corrected_as_they_are() -> None:
    pages = [{"name": "page", "type": "category", "find": {"most": 50}}]
    universe, _ = build(Definition.read({**SHOP, "attributes": pages, "privacy": FOR_FOUND}))
    paths = SOURCE.paths(universe, KEYS)
    packing = EventPacking(SOURCE, universe, paths, keys=KEYS)
    documents = [
        event("c", 5, None, row(1, page="/a")),
        event("u", 6, row(2), row(2, page="/b")),
    ]
    events = [event_of(one, paths, KEYS, CountedEvents()).event for one in documents]
    of = SourceRange(topic="db.orders", id="x", partition=0, first=0, last=1, position=4)
    found = json.loads(packing.batch(of, events))
    assert found["columns"]["page"] == ["/a"]
    assert found["correct"] == [{"person": "1", "row": "2", "set": {"page": "/b"}}]


def test_a_data_set_whose_rows_have_no_keys_takes_no_events() -> None:
    for keys in ((), ("customer",)):
        with pytest.raises(InvalidInput, match=r"format: change events are about single rows"):
            SOURCE.paths(UNIVERSE, keys)


def log_of_a_database(rng: random.Random) -> tuple[list[dict[str, Any]], set[int]]:
    """The events of transactions that are open at a time, as they commit; and the rows that are left.

    One in three writes some rows together, as COPY does.
    """
    events: list[dict[str, Any]] = []
    open_now: list[list[tuple[str, int, Any, Any]]] = [[] for _ in range(4)]
    live: dict[int, dict[str, Any]] = {}
    free: set[int] = set()  # rows that no open transaction has changed
    lsn, commit, order = 100, 99, 0
    while len(events) < 1200:
        lsn += 1
        at = rng.randrange(len(open_now))
        op = rng.choice("cccud" if free else "c")
        if rng.random() < 0.15:
            for what, own, before, after in open_now[at]:
                events.append(event(what, own, before, after, commit=commit))
                if what != "c":
                    del live[before["id"]]
                if after is not None:
                    live[after["id"]] = after
                    free.add(after["id"])
            open_now[at], commit = [], lsn
        elif op == "c":
            for _ in range(rng.choice((1, 1, 5))):
                order += 1
                made = row(order, rng.randrange(300), rng.choice(PAGES), rng.randrange(70))
                open_now[at].append(("c", lsn, None, made))
        else:
            before = live[rng.choice(sorted(free))]
            free.discard(before["id"])
            after = None if op == "d" else {**before, "page": rng.choice(PAGES)}
            open_now[at].append((op, lsn, before, after))
    return events, set(live)


async def test_a_table_is_counted_as_it_is_whatever_comes_again(world: Any) -> None:
    """The connector begins again at an earlier event now and then, and the reader behind its last batch."""
    process = await shop(world, phase={"min_rows": 400})
    packing, rng = EventPacking(SOURCE, UNIVERSE, PATHS, keys=KEYS), random.Random(5)
    sent, live = log_of_a_database(rng)
    topic, counted, at = list[dict[str, Any]](), CountedEvents(), 0
    while at < len(sent):
        some = sent[at : at + 100]
        at += 100
        if rng.random() < 0.5 and at < len(sent):
            at -= rng.randrange(100)  # the connector starts again at an earlier event
        if rng.random() < 0.5:
            counted = CountedEvents(counted.position)
            for one in topic[-200:]:
                event_of(one, PATHS, KEYS, counted)
        events = [event_of(one, PATHS, KEYS, counted).event for one in some]
        of = SourceRange(
            topic="db.orders",
            id="x",
            partition=0,
            first=len(topic),
            last=len(topic) + len(some) - 1,
            position=counted.position,
        )
        topic += some
        world.produce("batches", packing.batch(of, events), key="shop")
        await process.run()
    assert {e["event"] for e in world.events()} <= {
        "dataset_accepted",
        "batch_accepted",
        "phase_opened",
    }
    held = world.held("shop")
    assert held.cursor["position db.orders@x:0"] == counted.position > 1 << 64
    world.now_ms += 9 * HOUR
    await swept(world, process)
    phases = len(held.spent)
    kept = Counter[Any]()
    for phase in range(1, phases + 1):
        for slot in kept_slots(world, world.held("shop"), phase) or ():
            if slot.person != bytes(12):
                kept[dict(slot.says)["0"]] += 1
    lots = process.datasets["shop"].rows.waiting
    left = sum(slots.digests.any(axis=1).sum() for slots in await lots.lots.whose())
    assert kept.total() + left == len(live), "each row that is left is kept once"
