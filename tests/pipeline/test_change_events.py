"""Change events of a database: which rows they create, and which they correct."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest

from stream_dp.errors import InvalidInput
from stream_dp.messages import Batch, Definition, SourceRange
from stream_dp.pipeline.intake.source_events import ChangeEvent, EventPacking, event_of, folded
from stream_dp.pipeline.intake.source_file import TopicSource
from stream_dp.pipeline.intake.source_packing import MAX_BYTES, document_of
from stream_dp.profiles.builder import build
from tests.pipeline.flights import judged
from tests.pipeline.referee.lives import kept_slots
from tests.pipeline.test_erasure import HOUR, PAGES, SHOP, shop, swept

pytestmark = judged

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


def event(op: str, lsn: int, before: Any = None, after: Any = None, **more: Any) -> dict[str, Any]:
    of = {"connector": "postgresql", "lsn": lsn, "table": "orders"}
    return {"op": op, "before": before, "after": after, "source": of, "ts_ms": lsn, **more}


def read(document: Any, position: int = 0) -> ChangeEvent:
    return event_of(document, PATHS, KEYS, position).event


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
    assert not event_of(document_of(value), PATHS, KEYS, 0).is_event


def test_an_event_that_comes_again_is_blank_and_one_of_a_snapshot_is_not() -> None:
    for op, does in (("c", "create"), ("u", "nothing"), ("d", "nothing")):
        again = event_of(event(op, 7, row(1), row(1)), PATHS, KEYS, 7)
        assert (again.event.does, again.event.row, again.position) == (does, (None, None), 7)
    of_snapshot = event_of(event("r", 7, after=row(1)), PATHS, KEYS, 7)
    assert of_snapshot.event.row == ("1", "1")
    assert event_of(event("r", 6, after=row(1)), PATHS, KEYS, 7).event.row == (None, None)
    assert event_of(event("c", 9, after=row(1)), PATHS, KEYS, 7).position == 9


def test_a_removal_says_whose_row_it_was_or_not() -> None:
    assert event_of(event("d", 5, row(1)), PATHS, KEYS, 0).says_whose is True
    for before in ({"id": 1}, {"id": 1, "customer_id": None}, None):
        assert event_of(event("d", 5, before), PATHS, KEYS, 0).says_whose is False
    assert event_of(event("c", 5, None, row(1)), PATHS, KEYS, 0).says_whose is None


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
    of = SourceRange(topic="db.orders", id="x", partition=0, first=0, last=n_rows, position=9)
    assert len(packing.batch(of, events)) <= MAX_BYTES


def test_a_data_set_whose_rows_have_no_keys_takes_no_events() -> None:
    for keys in ((), ("customer",)):
        with pytest.raises(InvalidInput, match=r"format: change events are about single rows"):
            SOURCE.paths(UNIVERSE, keys)


async def test_a_table_is_counted_as_it_is_whatever_comes_again(world: Any) -> None:
    """Events are sent again from some place on, as after restarts of a connector."""
    process = await shop(world, phase={"min_rows": 400})
    packing, rng = EventPacking(SOURCE, UNIVERSE, PATHS, keys=KEYS), random.Random(5)
    log: list[dict[str, Any]] = []
    live: dict[int, dict[str, Any]] = {}
    for lsn in range(1, 1200):
        op = rng.choice("cccud" if live else "c")
        if op == "c":
            live[lsn] = row(lsn, rng.randrange(300), rng.choice(PAGES), rng.randrange(70))
            log.append(event("c", lsn, None, live[lsn]))
            continue
        order = rng.choice([*live])
        before = live.pop(order)
        if op == "u":
            live[order] = {**before, "page": rng.choice(PAGES)}
        log.append(event(op, lsn, before, live.get(order)))
    sent, offset, position, at = [*log], 0, 0, 0
    while at < len(sent):
        some = sent[at : at + 100]
        at += 100
        if rng.random() < 0.5 and at < len(sent):
            at -= rng.randrange(100)  # the connector starts again at an earlier event
        events = []
        for one in some:
            found = event_of(one, PATHS, KEYS, position)
            events.append(found.event)
            position = found.position
        of = SourceRange(
            topic="db.orders",
            id="x",
            partition=0,
            first=offset,
            last=offset + len(some) - 1,
            position=position,
        )
        offset += len(some)
        world.produce("batches", packing.batch(of, events), key="shop")
        await process.run()
    assert {e["event"] for e in world.events()} <= {
        "dataset_accepted",
        "batch_accepted",
        "phase_opened",
    }
    held = world.held("shop")
    assert held.cursor["position db.orders@x:0"] == position == 1199
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
