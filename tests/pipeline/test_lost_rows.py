"""Rows that are nowhere any more: the data set goes on with what was published, and all of it agrees."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from stream_dp.errors import CorruptState
from stream_dp.pipeline.lost_rows import GONE, Gone
from stream_dp.state.local import LocalStore
from tests.pipeline.scenarios import DOUBLED, GATED, LIVES, PERSONS, ROUNDS, RUNS, THESIS
from tests.pipeline.simulator import lose_rows
from tests.pipeline.world import World

AA = {"attribute": "carrier", "eq": "AA"}
UA = {"attribute": "carrier", "eq": "UA"}
LAST = {"window": {"last_phases": 1}}


def define(world: World) -> None:
    world.define("flights", mechanism={"base_share": 0.0}, on_exhausted="refuse")


def phase(world: World) -> None:
    world.cells("flights", f"batch-{world.next_offset('batches', 'flights')}", n=2)


def few(world: World) -> None:
    """A batch of 12,000 rows, which waits."""
    cells = [{"carrier": "AA", "delay": 5, "cancelled": False, "count": 12_000}]
    world.batch("flights", f"batch-{world.next_offset('batches', 'flights')}", cells=cells)


def asks(query_id: str, where: Any, **item: Any) -> Callable[[World], object]:
    return lambda world: world.ask("flights", query_id, where, **item)


def loses(world: World, *, blocks: int | None = None, batches: bool = True) -> None:
    """Empties the store, and takes rows off the topics: those of the first blocks, or of all."""
    world.store = LocalStore()
    lose_rows(world, blocks=blocks, batches=batches)


def bare(world: World) -> int:
    (process,) = world.processes[-1:]
    found: int = process.worker.datasets["flights"].bare
    return found


async def test_what_was_published_goes_on_answering_and_nothing_else(world: Any) -> None:
    await world.run(rounds=(define, phase, asks("one", AA), phase, few))
    loses(world)
    rounds = (
        asks("again", AA, window={"phases": [1, 1]}),
        asks("new", {"any": [AA, UA]}),
        asks("quote", {"any": [AA, UA]}, quote=True),
        phase,
        asks("newest", UA, **LAST),
        asks("all", UA),
    )
    assert await world.run(rounds=rounds) == 0
    assert world.answer("again")["path"] == "repeat"
    for name in ("new", "quote", "all"):
        reason = world.answer(name)["reason"]
        assert (reason["code"], reason["retriable"]) == ("rows_gone", False)
        assert reason["message"].startswith("window: the rows of phases 1 to 2 are lost")
    assert world.answer("newest")["status"] == "answered"
    (event,) = world.events("rows_lost")
    assert (event["phases"], event["batches"]) == ([1, 2], 1)
    assert world.complaints() == []


async def test_phases_after_the_lost_ones_keep_their_rows(world: Any) -> None:
    await world.run(rounds=(define, phase, phase, phase))
    loses(world, blocks=2)
    rounds = (asks("late", AA, **LAST), asks("early", AA, window={"phases": [2, 3]}))
    assert await world.run(rounds=rounds) == 0
    assert world.answer("late")["status"] == "answered"
    assert world.answer("early")["reason"]["code"] == "rows_gone"
    assert len(world.held("flights").blocks) == 1
    assert bare(world) == 2
    assert world.complaints() == []


@pytest.mark.parametrize(
    "lost", [{"batches": False}, {"blocks": 0}], ids=["blocks alone", "batches alone"]
)
async def test_rows_that_are_on_one_of_the_topics_are_not_lost(world: Any, lost: Any) -> None:
    await world.run(rounds=(define, phase, asks("one", AA), phase))
    loses(world, **lost)
    await world.run(rounds=(asks("two", {"any": [AA, UA]}),))
    assert world.answer("two")["status"] == "answered"
    assert world.events("rows_lost") == []
    assert world.complaints() == []


async def test_rows_that_wait_and_are_nowhere_are_dropped(world: Any) -> None:
    await world.run(rounds=(define, few))
    loses(world)
    await world.run(rounds=(few, few))
    (event,) = world.events("rows_lost")
    assert (event.get("phases"), event["batches"]) == (None, 1)
    opened = [event["rows"] for event in world.events("phase_opened")]
    assert opened == [24_000], "the batch that was dropped is not among them"
    world.store = LocalStore()
    await world.run(rounds=(asks("one", AA),))
    assert world.answer("one")["status"] == "answered"
    assert len(world.events("rows_lost")) == 1, "it is said once"
    assert world.complaints() == []


@pytest.mark.parametrize("is_empty", [True, False])
async def test_rows_in_whose_place_a_cut_topic_has_another_record_are_dropped(
    world: Any, is_empty: bool
) -> None:
    """What filled the topic, or what a producer has sent before anybody noticed the cut."""
    await world.run(rounds=(define, phase, few))
    (log,) = [records for place, records in world.log.items() if "batches" in place and records]
    other = {"value": b""} if is_empty else {"value": log[0].value}
    log[-1] = dataclasses.replace(log[-1], **other)
    world.store = LocalStore()
    assert await world.run(rounds=(phase, asks("newest", AA, **LAST))) == 0
    (process,) = world.processes[-1:]
    assert process.worker.stopped == {}
    assert world.answer("newest")["status"] == "answered"
    (event,) = world.events("rows_lost")
    assert (event.get("phases"), event["batches"]) == (None, 1)


async def test_batches_that_are_lost_later_bring_no_rows_back(world: Any) -> None:
    await world.run(rounds=(define, phase))
    loses(world)
    await world.run(rounds=(few,))
    loses(world)
    for name in ("one", "two"):  # the second by a worker that reads the transcript
        await world.run(rounds=(asks(name, AA),))
        assert world.answer(name)["reason"]["code"] == "rows_gone"
        assert bare(world) == 1
    said = [(event.get("phases"), event["batches"]) for event in world.events("rows_lost")]
    assert said == [([1, 1], 0), (None, 1)]
    assert world.complaints() == []


async def test_phases_that_are_lost_later_are_given_up_too(world: Any) -> None:
    """The commit that gave up the first phase comes after the second one, and says nothing of it."""
    await world.run(rounds=(define, phase, phase))
    loses(world, blocks=1)
    await world.run(rounds=(asks("one", AA, **LAST),))
    assert world.answer("one")["status"] == "answered"
    loses(world)
    for name in ("two", "three"):
        await world.run(rounds=(asks(name, UA, **LAST),))
        assert world.answer(name)["reason"]["code"] == "rows_gone"
        assert bare(world) == 2
    said = [(event["phases"], event["batches"]) for event in world.events("rows_lost")]
    assert said == [([1, 1], 0), ([2, 2], 0)]
    assert world.complaints() == []


async def test_batches_that_wait_and_are_lost_later_are_given_up_too(world: Any) -> None:
    await world.run(rounds=(define,))
    first, *_ = [world.batch("flights", name, rows=[{"carrier": "AA"}]) for name in "123"]
    await world.run()
    world.store = LocalStore()
    world.expired.add(first.record_id)
    await world.run(rounds=(asks("one", AA),))
    loses(world)
    await world.run(rounds=(asks("two", AA),))
    assert [event["batches"] for event in world.events("rows_lost")] == [1, 2]
    assert world.complaints() == []


async def test_it_is_said_once_and_for_ever(world: Any) -> None:
    """Rows that come back later do not count again: all who read the journal agree."""
    await world.run(rounds=(define, phase, phase))
    kept = dict(world.kept)
    loses(world)
    await world.run(rounds=(phase,))
    world.kept |= kept
    world.expired.clear()
    world.store = LocalStore()
    await world.run(rounds=(asks("all", AA), asks("last", AA, **LAST)))
    assert world.answer("all")["reason"]["code"] == "rows_gone"
    assert world.answer("last")["status"] == "answered"
    assert bare(world) == 2
    assert len(world.events("rows_lost")) == 1
    assert world.complaints() == []


@pytest.mark.parametrize("rounds", [ROUNDS, RUNS, GATED, PERSONS, THESIS, DOUBLED])
async def test_every_profile_goes_on_without_the_rows(world: Any, rounds: Any) -> None:
    half = len(rounds) // 2 + 1
    await world.run(rounds=rounds[:half])
    loses(world)
    await world.run(rounds=rounds[half:])
    assert world.events("rows_lost")
    assert world.events("stopped") == []
    assert world.complaints() == []


async def test_a_promise_for_life_ends_where_units_used_are_unknown(world: Any) -> None:
    await world.run(rounds=LIVES[:3])
    loses(world)
    await world.run()
    (event,) = world.events("stopped")
    assert "have used for life is on no topic any more" in event["reason"]["message"]
    assert world.events("rows_lost") == []


async def test_a_data_set_without_the_secret_of_its_digests_stops(world: Any) -> None:
    await world.run(rounds=PERSONS[:3])
    loses(world)
    world.kept.clear()
    await world.run()
    events = world.events("stopped")
    assert {event["dataset"] for event in events} == {"flights", "trains"}
    assert all("secret of its digests is gone" in event["reason"]["message"] for event in events)


async def test_a_block_that_is_there_and_corrupt_is_not_taken_for_lost(world: Any) -> None:
    await world.run(rounds=(define, phase))
    world.store = LocalStore()
    for key in world.kept:
        world.kept[key] = b"\x07" + world.kept[key][1:]
    with pytest.raises(CorruptState):
        await world.run(rounds=(asks("one", AA),))
    assert world.events("rows_lost") == []


@pytest.mark.slow
async def test_a_crash_at_any_step_loses_nothing_more(make_world: Callable[..., Any]) -> None:
    for place in range(10_000):
        world = make_world(seed=place + 1)
        await world.run(rounds=(define, phase, asks("one", AA), phase, few))
        loses(world)
        rounds = (lambda _: None, phase, asks("two", UA), asks("three", UA, **LAST))
        deaths = await world.run(world.Fuse(place), rounds=rounds)
        (event,) = world.events("rows_lost")
        assert (event["phases"], event["batches"]) == ([1, 2], 1), place
        assert world.answer("two")["reason"]["code"] == "rows_gone"
        assert world.answer("three")["status"] == "answered"
        assert world.held("flights").vault.get(GONE) is None
        assert world.complaints() == [], place
        if not deaths:
            return
    raise AssertionError("there are more effects than places")


@pytest.mark.parametrize(
    ("gone", "stored"),
    [(Gone(), b""), (Gone(phases=3), b"3 0"), (Gone(phases=12, batches=40), b"12 40")],
)
def test_bytes_written_by_earlier_releases_stay_readable(gone: Gone, stored: bytes) -> None:
    assert Gone.from_bytes(stored) == gone
    assert gone.to_bytes() == stored


@pytest.mark.parametrize("stored", [b"3", b"3 4 5", b"a b", b"-1 0", b" "])
def test_other_bytes_are_refused(stored: bytes) -> None:
    with pytest.raises(CorruptState):
        Gone.from_bytes(stored)


async def test_the_transcript_says_when_rows_were_given_up(world: Any) -> None:
    await world.run(rounds=(define, phase, few))
    loses(world)
    await world.run(rounds=(phase,))
    transcript = world.held("flights").transcript
    assert [entry for entry in transcript if entry[:1] == b"\x04"] == [b"\x041 1"]


async def test_a_phase_stays_bare_though_rows_that_waited_were_given_up_before(world: Any) -> None:
    """First only rows that wait are nowhere, and that is told. Then those of the phase are, too."""
    await world.run(rounds=(define, phase, few))
    loses(world, blocks=0)
    await world.run(rounds=(asks("one", AA),))
    assert [event["batches"] for event in world.events("rows_lost")] == [1]
    assert bare(world) == 0
    loses(world)
    await world.run(rounds=(asks("two", {"any": [AA, UA]}),))
    assert bare(world) == 1
    assert world.complaints() == []
