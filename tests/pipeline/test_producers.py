"""Producers that count their batches: one number for each producer, and nothing for each batch."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_dp.client.rows import frames
from stream_dp.core.rows.person_slots import ranks
from stream_dp.errors import InvalidMessage
from stream_dp.messages import Batch
from stream_dp.pipeline.intake import decider
from stream_dp.pipeline.repair.move import bring_in, take_out
from stream_dp.state.moved import MovedFolder, MovingFolder
from tests.pipeline.commands import offline
from tests.pipeline.scenarios import DAY_MS, NOV_1
from tests.pipeline.world import World
from tests.view import MemoryView

ONE: list[dict[str, Any]] = [{"carrier": "AA"}]
OTHERS: list[dict[str, Any]] = [{"carrier": "UA"}] * 3
KEY = "producer till-7"


@pytest.fixture(autouse=True)
async def defined(world: Any, process: Any) -> None:
    world.define("flights")
    await process.run()


def held(world: World, name: str = "flights") -> Any:
    return world.held(name)


async def move(name: str, here: World, new: World, folder: Path) -> None:
    """Moves a data set to another deployment."""
    await take_out(offline(here), name, MovingFolder(folder / name))
    await bring_in(offline(new), MovedFolder(folder / name))


def said_of(world: World, producer: str = "till-7") -> list[tuple[str, int]]:
    """What left of each batch of a producer, in order, repeated ones too."""
    return [
        (event["event"], event["sequence"])
        for event in world.released("events")
        if event.get("producer") == producer
    ]


async def test_batches_count_in_order_from_any_number_on(world: Any, process: Any) -> None:
    for sequence in (12, 13, 14):
        world.counted("flights", "till-7", sequence, rows=ONE)
    await process.run()
    assert said_of(world) == [("batch_accepted", number) for number in (12, 13, 14)]
    event = world.events("batch_accepted")[-1]
    assert event == {
        "version": 1,
        "dataset": "flights",
        "event": "batch_accepted",
        "producer": "till-7",
        "sequence": 14,
        "rows": 1,
        "waiting": 3,
        "phase": 0,
    }
    assert held(world).cursor[KEY] == 15
    assert world.complaints() == []


async def test_a_number_that_was_used_counts_nothing_whatever_comes_under_it(
    world: Any, process: Any
) -> None:
    world.counted("flights", "till-7", 12, rows=ONE)
    world.counted("flights", "till-7", 13, rows=ONE)
    for sequence, form in (
        (12, {"rows": OTHERS}),
        (13, {"columns": {"no": 5}}),
        (3, {"rows": ONE}),
    ):
        world.counted("flights", "till-7", sequence, **form)
    await process.run()
    assert said_of(world)[2:] == [("batch_known", number) for number in (12, 13, 3)]
    known = world.events("batch_known")[0]
    assert known == {
        "version": 1,
        "dataset": "flights",
        "event": "batch_known",
        "waiting": 2,
        "phase": 0,
        "producer": "till-7",
        "sequence": 12,
        "next_sequence": 14,
        "note": "those of this producer below 14 were taken in before, or are left out",
    }
    assert process.worker.datasets["flights"].rows.waiting.n_rows == 2
    assert world.complaints() == []


async def test_a_larger_number_is_rejected_with_the_next_one_and_leaves_nothing(
    world: Any, process: Any
) -> None:
    world.counted("flights", "till-7", 0, rows=ONE)
    await process.run()
    gap = world.counted("flights", "till-7", 2, rows=ONE)
    await process.run()
    rejection = world.rejection(gap)
    assert rejection["next_sequence"] == 1
    assert rejection["reason"] == {
        "code": "not_next",
        "message": "sequence: 1 is the next number of producer till-7; send its batches from there on",
        "retriable": False,
    }
    world.counted("flights", "till-7", 1, rows=ONE)
    world.counted("flights", "till-7", 2, rows=ONE)
    await process.run()
    assert said_of(world) == [("batch_accepted", number) for number in (0, 1, 2)]
    assert world.complaints() == []


async def test_a_batch_that_is_refused_uses_no_number_up(world: Any, process: Any) -> None:
    world.counted("flights", "till-7", 4, columns={"carrier": ["AA"]})
    await process.run()
    assert KEY not in held(world).cursor
    world.counted("flights", "till-7", 5, rows=ONE)
    for _ in range(2):
        world.counted("flights", "till-7", 6, columns={"carrier": ["AA"]})
    world.counted("flights", "till-7", 6, rows=ONE)
    await process.run()
    refused = "batch_refused"
    assert said_of(world) == [
        *((refused, 4), ("batch_accepted", 5)),
        *((refused, 6), (refused, 6), ("batch_accepted", 6)),
    ]
    assert world.complaints() == []


async def test_nothing_is_stored_of_a_batch_that_is_counted(world: Any, process: Any) -> None:
    world.now_ms = NOV_1
    world.define("trains", retention={"answers": {"days": 1}})
    await process.run()
    for sequence in range(20):
        world.now_ms = NOV_1 + sequence * DAY_MS
        for name in ("flights", "trains"):
            world.counted(name, "till-7", sequence, rows=ONE)
            world.counted(name, "till-7", sequence, rows=ONE)
            world.counted(name, "till-7", 19 - sequence % 2, columns={})
    await process.run()
    for name in ("flights", "trains"):
        one = held(world, name)
        assert (one.batches, one.previous_batches, one.taken) == ({}, {}, set())
        assert one.cursor[KEY] == 20
    assert world.complaints() == []


async def test_producers_data_sets_and_ids_have_nothing_to_do_with_each_other(
    world: Any, process: Any
) -> None:
    world.define("trains")
    await process.run()
    world.counted("flights", "till-7", 5, rows=ONE)
    world.counted("flights", "till-8", 0, rows=ONE)
    world.counted("trains", "till-7", 9, rows=ONE)
    world.batch("flights", "till-7", rows=ONE)
    world.batch("flights", "5", rows=ONE)
    world.batch("flights", "till-7:5", rows=ONE)
    await process.run()
    assert len(world.events("batch_accepted")) == 6
    assert world.events("batch_known") == []
    assert world.complaints() == []


async def test_there_is_room_for_so_many_producers_and_those_that_are_known_go_on(
    world: Any, process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decider, "MOST_PRODUCERS", 2)
    world.counted("flights", "one", 0, rows=ONE)
    world.counted("flights", "refused", 0, columns={})
    world.counted("flights", "two", 0, rows=ONE)
    await process.run()
    three = world.counted("flights", "three", 0, rows=ONE)
    world.counted("flights", "one", 1, rows=ONE)
    world.counted("flights", "two", 0, rows=ONE)
    world.batch("flights", "with-an-id", rows=ONE)
    await process.run()
    assert world.rejection(three)["reason"]["code"] == "too_many_producers"
    assert process.worker.datasets["flights"].rows.waiting.n_rows == 4
    assert "producer three" not in held(world).cursor


async def test_a_data_set_in_quarantine_or_retired_takes_none_and_knows_those_it_has(
    world: Any, process: Any
) -> None:
    world.counted("flights", "till-7", 0, rows=ONE)
    await process.run()
    process.worker.datasets["flights"].quarantine("a record")
    refused = world.counted("flights", "till-7", 1, rows=ONE)
    world.counted("flights", "till-7", 0, rows=ONE)
    await process.run()
    assert world.rejection(refused)["reason"]["code"] == "quarantined"
    assert said_of(world)[-1] == ("batch_known", 0)
    world.define("trains")
    await process.run()
    world.counted("trains", "till-7", 0, rows=ONE)
    await process.run()
    world.produce("datasets", None, key="trains")
    await process.run()
    world.counted("trains", "till-7", 0, rows=ONE)
    world.counted("trains", "till-7", 1, rows=ONE)
    await process.run()
    assert said_of(world)[-2:] == [("batch_known", 0), ("batch_refused", 1)]
    assert held(world, "trains").cursor[KEY] == 1


async def test_each_batch_of_persons_has_ranks_of_its_own(world: Any, process: Any) -> None:
    unit = {"key": "user_id", "rows_per_phase": 2, "phases": 2}
    world.define(
        "persons", privacy={"epsilon": 1.0, "delta": 1e-9, "unit": unit}, phase={"min_rows": 40}
    )
    await process.run()
    rows = [{"carrier": "AA", "user_id": 7}] * 9
    for sequence in range(5):
        world.counted("persons", "till-7", sequence, rows=rows)
        world.counted("persons", "till-8", sequence, rows=rows[:4])
    await process.run()
    assert world.complaints() == []
    assert len(held(world, "persons").spent) == 1
    names = [
        Batch.read({"version": 1, "dataset": "persons", "rows": [], **named}).name
        for named in (
            {"producer": "till-7", "sequence": 1},
            {"producer": "till-7", "sequence": 11},
            {"producer": "till-71", "sequence": 1},
            {"batch_id": "till-7"},
            {"batch_id": "till-71"},
        )
    ]
    assert len({tuple(ranks(bytes(32), name, 3)) for name in names}) == len(names)


async def test_numbers_move_with_their_data_set_and_come_back_from_the_journal(
    world: Any, process: Any, make_world: Callable[..., Any], tmp_path: Any
) -> None:
    for sequence in (7, 8):
        world.counted("flights", "till-7", sequence, rows=ONE)
    await process.run()
    await process.kill()
    world.view = MemoryView()
    again = await world.lives()
    assert again.datasets["flights"].draft.cursor[KEY] == held(world).cursor[KEY] == 9

    new = make_world(seed=2)
    await new.lives()
    await move("flights", world, new, tmp_path)
    moved = await new.lives()
    assert moved.worker.stopped == {}
    assert moved.datasets["flights"].draft.cursor[KEY] == 9
    new.counted("flights", "till-7", 8, rows=ONE)
    new.counted("flights", "till-7", 9, rows=ONE)
    moved = await new.lives()
    assert said_of(new) == [("batch_known", 8), ("batch_accepted", 9)]
    assert moved.datasets["flights"].rows.waiting.n_rows == 3


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no name": ({}, "write either batch_id, or producer and sequence"),
    "two names": (
        {"batch_id": "b", "producer": "till-7", "sequence": 1},
        "write either batch_id, or producer and sequence",
    ),
    "no number": ({"producer": "till-7"}, "producer and sequence go together: add the other one"),
    "a number next to an id": (
        {"batch_id": "b", "sequence": 1},
        "producer and sequence go together",
    ),
    "a negative number": ({"producer": "till-7", "sequence": -1}, "sequence: it is too small"),
    "a number that has no next one": (
        {"producer": "till-7", "sequence": 2**63 - 1},
        "sequence: it is too large",
    ),
    "text": ({"producer": "till-7", "sequence": "1"}, "sequence: it must be a whole number"),
    "a blank": ({"producer": "till 7", "sequence": 1}, "use 1 to 64 of A-Z, a-z, 0-9"),
    "an empty name": ({"producer": "", "sequence": 1}, "use 1 to 64 of A-Z, a-z, 0-9"),
    "a long name": ({"producer": "t" * 65, "sequence": 1}, "use 1 to 64 of A-Z, a-z, 0-9"),
    "a source": (
        {
            "producer": "till-7",
            "sequence": 1,
            "source": {"topic": "t", "id": "i", "partition": 0, "first": 0, "last": 1},
        },
        "a batch of a source has an id and no producer",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_names_no_batch_or_two_is_refused(name: str) -> None:
    fields, words = WRONG[name]
    with pytest.raises(InvalidMessage, match=words):
        Batch.read({"version": 1, "dataset": "flights", "rows": [], **fields})


async def test_the_largest_number_counts_and_has_a_next_one(world: Any, process: Any) -> None:
    last = 2**63 - 2
    world.counted("flights", "till-7", last, rows=ONE)
    world.counted("flights", "till-7", last, rows=ONE)
    await process.run()
    assert said_of(world) == [("batch_accepted", last), ("batch_known", last)]
    assert world.complaints() == []


async def test_arrow_names_producer_and_number_in_headers(world: Any, process: Any) -> None:
    pa = pytest.importorskip("pyarrow")
    columns = {"carrier": ["AA"], "delay": [1], "cancelled": [False]}
    value = frames.arrow_stream(pa.table(columns), list(columns))

    def send(**headers: bytes) -> Any:
        kind = {"content-type": frames.ARROW}
        return world.produce("batches", value, key="flights", headers={**kind, **headers})

    send(producer=b"till-7", sequence=b"3")
    send(producer=b"till-7", sequence=b"3")
    wrong = [
        send(producer=b"till-7", sequence=sequence)
        for sequence in (b"", b"x", b"-1", b"4.0", b"9" * 40, "\N{SUPERSCRIPT TWO}".encode())
    ]
    wrong += [send(producer=b"till-7"), send(sequence=b"4"), send()]
    wrong.append(send(producer=b"till-7", sequence=b"4", batch_id=b"b"))
    await process.run()
    assert said_of(world) == [("batch_accepted", 3), ("batch_known", 3)]
    codes = {world.rejection(record)["reason"]["code"] for record in wrong}
    assert codes == {"invalid_message"}
    assert "till-7" not in json.dumps(world.released("rejected"))
