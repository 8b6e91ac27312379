"""Rows that are nowhere any more: the data set goes on with what was published, and all of it agrees."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from stream_dp.core.budget.accountant import UNITS
from stream_dp.errors import CorruptState, RowsGone
from stream_dp.pipeline.datasets.transcript import Gone
from tests.pipeline.commands import served
from tests.pipeline.scenarios import (
    AA,
    DOUBLED,
    GATED,
    LAST,
    LIVES,
    PERSONS,
    ROUNDS,
    RUNS,
    THESIS,
    UA,
    asks,
    flights,
    phase,
)
from tests.pipeline.world import World
from tests.view import MemoryView


def few(world: World) -> None:
    """A batch of 12,000 rows, which waits."""
    cells = [{"carrier": "AA", "delay": 5, "cancelled": False, "count": 12_000}]
    world.batch("flights", f"batch-{world.next_offset('batches', 'flights')}", cells=cells)


def loses(world: World, *phases: int, batches: bool = True) -> None:
    """Takes the rows of phases off the topic, of all phases unless some are named, and those of batches.

    Redis is emptied: else looks would find the rows there.
    """
    for name, held in world.durable().items():
        for number, named in held.named("block ").items():
            if not phases or int(number.split(" ")[0]) in phases:
                del world.kept[f"{name}/{named.name.hex()}".encode()]
    world.view = MemoryView()
    if batches:
        world.expire()


async def lives(
    world: World, rounds: Sequence[Callable[[World], object]], fuse: Any = None
) -> tuple[int, int]:
    """Runs rounds; a worker whose look finds no rows ends, and the next one goes on.

    Returns:
        How many ended for want of rows, and how many died of the fuse.
    """
    ended, died = 0, 0
    process: Any = None
    for produce in (lambda _: None, *rounds):
        produce(world)
        while True:
            try:
                if process is None:
                    process = await world.owner(None if died or ended else fuse)
                await process.run()
                break
            except RowsGone:
                ended += 1
            except world.Crash:
                died += 1
            await process.kill()
            process = None
            assert ended + died < 20, "it ends again and again"
    await process.kill()
    return ended, died


def given_up(world: World) -> list[tuple[Any, int]]:
    """What events say of rows that are given up: the phases, and how many batches."""
    return [(event.get("phases"), event["batches"]) for event in world.events("rows_lost")]


def bare(world: World) -> int:
    (process,) = world.processes[-1:]
    found: int = process.datasets["flights"].rows.blocks.bare
    return found


def spent(world: World) -> list[int]:
    return [rho for rho, _ in world.held("flights").spent]


async def test_what_was_published_goes_on_answering_and_nothing_else(world: Any) -> None:
    await world.run(rounds=(flights, phase, asks("one", AA), phase, few))
    loses(world)
    before = spent(world)
    ended, _ = await lives(
        world,
        (
            asks("again", AA, window={"phases": [1, 1]}),
            asks("new", {"any": [AA, UA]}),
            asks("quote", {"any": [AA, UA]}, quote=True),
            phase,
            asks("newest", UA, **LAST),
            asks("all", UA),
        ),
    )
    assert ended == 1, "a look finds no rows, and nobody looks again"
    assert world.answer("again")["path"] == "repeat"
    for name in ("new", "quote", "all"):
        reason = world.answer(name)["reason"]
        assert (reason["code"], reason["retriable"]) == ("rows_gone", False)
        assert reason["message"].startswith("window: the rows of phase")
    assert world.answer("newest")["status"] == "answered"
    (batches, phases) = given_up(world)
    assert batches == (None, 1)
    assert phases[0][0] == 1
    assert [after - was for after, was in zip(spent(world), before, strict=False)] != [0, 0], (
        "the look that found no rows stays charged"
    )
    assert world.complaints() == []


async def test_phases_after_the_lost_ones_keep_their_rows(world: Any) -> None:
    await world.run(rounds=(flights, phase, phase, phase))
    loses(world, 1, 2)
    late, early = asks("late", AA, **LAST), asks("early", AA, window={"phases": [2, 3]})
    assert await lives(world, (late, early, asks("last", UA, **LAST))) == (1, 0)
    assert world.answer("late")["status"] == world.answer("last")["status"] == "answered"
    assert world.answer("early")["reason"]["code"] == "rows_gone"
    assert len(world.held("flights").blocks) == 1
    assert given_up(world) == [([1, 2], 0)]
    assert bare(world) == 2
    assert world.complaints() == []


@pytest.mark.parametrize("place", ["topic", "Redis"])
async def test_rows_that_are_in_one_place_are_not_lost(world: Any, place: str) -> None:
    await world.run(rounds=(flights, phase, asks("one", AA), phase))
    world.expire()  # they are in phases by now
    await served(world)
    if place == "topic":
        world.view = MemoryView()
    else:
        there = {key for name in world.durable() for key in world.view.values.get(name, {})}
        named = world.held("flights").named("block ").values()
        assert {field for one in named for field in one.fields()} <= there
        world.kept.clear()
    assert await lives(world, (asks("two", {"any": [AA, UA]}),)) == (0, 0)
    assert world.answer("two")["status"] == "answered"
    assert world.events("rows_lost") == []


async def test_rows_that_wait_and_are_nowhere_are_dropped(world: Any) -> None:
    await world.run(rounds=(flights, few))
    loses(world)
    await lives(world, (few, few))
    assert given_up(world) == [(None, 1)]
    opened = [event["rows"] for event in world.events("phase_opened")]
    assert opened == [24_000], "the batch that was dropped is not among them"
    given, opening = world.held("flights").transcript
    assert (given, opening[:1]) == (b"\x040 1", b"\x00"), "before the phase"
    world.view = MemoryView()
    await lives(world, (asks("one", AA),))
    assert world.answer("one")["status"] == "answered"
    assert len(world.events("rows_lost")) == 1, "it is said once"
    assert world.complaints() == []


@pytest.mark.parametrize("is_empty", [True, False])
async def test_rows_in_whose_place_a_cut_topic_has_another_record_are_dropped(
    world: Any, is_empty: bool
) -> None:
    """What filled the topic, or what a producer has sent before anybody noticed the cut."""
    await world.run(rounds=(flights, phase, few))
    (log,) = [records for place, records in world.log.items() if "batches" in place and records]
    other = {"value": b""} if is_empty else {"value": log[0].value}
    log[-1] = dataclasses.replace(log[-1], **other)
    assert await lives(world, (phase, asks("newest", AA, **LAST))) == (0, 0)
    (process,) = world.processes[-1:]
    assert process.worker.stopped == {}
    assert world.answer("newest")["status"] == "answered"
    assert given_up(world) == [(None, 1)]


async def test_phases_that_are_lost_later_are_given_up_too(world: Any) -> None:
    """The commit that gave up the first phase comes after the second one, and says nothing of it."""
    await world.run(rounds=(flights, phase, phase))
    loses(world, 1)
    await lives(world, (asks("zero", AA), asks("one", AA, **LAST)))
    assert world.answer("one")["status"] == "answered"
    loses(world, 2)
    for name in ("two", "three"):
        await lives(world, (asks(name, UA, **LAST),))
        assert world.answer(name)["reason"]["code"] == "rows_gone"
        assert bare(world) == 2
    assert given_up(world) == [([1, 1], 0), ([2, 2], 0)]
    assert world.complaints() == []


async def test_it_is_said_once_and_for_ever(world: Any) -> None:
    """Rows that come back later do not count again: all who read the journal agree."""
    await world.run(rounds=(flights, phase, phase))
    kept = dict(world.kept)
    loses(world, 2)
    await lives(world, (asks("zero", AA, **LAST), phase))
    world.kept |= kept
    world.expired.clear()
    await lives(world, (asks("all", AA), asks("last", AA, **LAST)))
    assert world.answer("all")["reason"]["code"] == "rows_gone"
    assert world.answer("last")["status"] == "answered"
    assert bare(world) == 2
    assert given_up(world) == [([1, 2], 0)]
    # What was given up is on the topic again, until somebody looks through it.
    assert [one for one in world.complaints() if "has erased a private value" not in one] == []


@pytest.mark.parametrize("rounds", [ROUNDS, RUNS, GATED, PERSONS, THESIS, DOUBLED])
async def test_every_profile_goes_on_without_the_rows(world: Any, rounds: Any) -> None:
    half = len(rounds) // 2 + 1
    await world.run(rounds=rounds[:half])
    loses(world)
    ended, _ = await lives(world, rounds[half:])
    assert (ended > 0) is any(phases for phases, _ in given_up(world))
    assert ended > 0 or world.events("rows_lost") or rounds in (THESIS, DOUBLED)
    assert world.events("stopped") == []
    assert world.complaints() == []


@pytest.mark.parametrize("what", ["used ", "person"])
async def test_a_data_set_without_what_its_persons_depend_on_stops(world: Any, what: str) -> None:
    await world.run(rounds=LIVES[:3])
    for name, held in world.durable().items():
        for named in held.named(what).values():
            del world.kept[f"{name}/{named.name.hex()}".encode()]
    world.view = MemoryView()
    await world.run()
    events = world.events("stopped")
    protect = {name for name, held in world.durable().items() if held.named(what)}
    assert {event["dataset"] for event in events} == protect
    assert protect
    words = {
        "used ": "have used for life is on no topic any more",
        "person": "on no topic any more",
    }
    assert all(words[what] in event["reason"]["message"] for event in events)
    assert world.events("rows_lost") == []


def _wrong(part: bytes) -> bytes:
    return part[:-1] + bytes([part[-1] ^ 1])


@pytest.mark.parametrize("place", ["topic", "Redis"])
@pytest.mark.parametrize("which", ["index", "columns"])
async def test_a_block_that_is_there_and_wrong_is_not_believed(
    world: Any, which: str, place: str
) -> None:
    """On the topic it is as good as lost. In Redis it is only slower to find the right one."""
    await world.run(rounds=(flights, phase))
    await served(world)
    ((_, slab),) = world.held("flights").named("block ").items()
    if place == "topic":
        key = f"flights/{slab.name.hex()}".encode()
        first, *columns = world.kept[key]
        world.kept[key] = (
            (_wrong(first), *columns) if which == "index" else (first, *map(_wrong, columns))
        )
        world.view = MemoryView()
    else:
        fields = slab.fields()
        for field in fields[:1] if which == "index" else fields[1:]:
            values = world.view.values["flights"]
            values[field] = _wrong(values[field])
    assert await lives(world, (asks("one", AA),)) == ((1, 0) if place == "topic" else (0, 0))
    found = world.answer("one")
    if place == "topic":
        assert found["reason"]["code"] == "rows_gone"
    else:
        assert found["status"] == "answered"
        assert world.events("rows_lost") == []


async def test_a_look_that_finds_no_rows_is_charged_and_answers_nothing(world: Any) -> None:
    await world.run(rounds=(flights, phase))
    loses(world)
    world.ask("flights", "one", AA)
    with pytest.raises(RowsGone):
        await world.lives()
    assert world.answers() == {}
    charged = spent(world)
    assert 0 < charged[0] < UNITS
    assert world.held("flights").meta["rows gone"] == "1 0"
    assert await lives(world, ()) == (0, 0)
    assert world.answer("one")["reason"]["code"] == "rows_gone"
    assert spent(world) == charged
    assert world.held("flights").meta["rows gone"] == ""
    assert b"\x041 0" in world.held("flights").transcript
    assert len([one for one in world.held("flights").transcript if one[:1] == b"\x02"]) == 1


def test_a_note_is_two_numbers() -> None:
    for gone, stored in ((Gone(), ""), (Gone(phases=3), "3 0"), (Gone(12, 40), "12 40")):
        assert Gone.from_text(stored) == gone
        assert gone.to_text() == stored
    for other in ("3", "3 4 5", "a b", "-1 0", " "):
        with pytest.raises(CorruptState):
            Gone.from_text(other)
