"""Answers that are stored under their ids for some days, through the worker: what goes, and when."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from stream_dp.pipeline.watch.crash_points import CrashPoint
from tests.pipeline.flights import AA, LATE, UNMEASURED, judged
from tests.pipeline.scenarios import DAY_MS, NOV_1
from tests.pipeline.world import World

pytestmark = judged


def begin(world: World, **changes: Any) -> None:
    """A data set whose answers are kept for ten days, with an open phase."""
    settings = {"mechanism": UNMEASURED, "retention": {"answers": {"days": 10}}}
    world.now_ms = NOV_1
    world.define("flights", **{**settings, **changes})
    world.cells("flights", "first", n=4)


def values(world: World, query_id: str) -> list[str]:
    """What left under an id, in order."""
    released = world.released("answers")
    return [json.dumps(reply) for reply in released if reply["query_id"] == query_id]


def rotated(world: World) -> int:
    """The day of the last rotation."""
    return (int(world.held("flights").meta["answers rotated"]) - NOV_1) // DAY_MS


async def test_an_id_is_a_new_query_when_its_answer_is_not_kept_any_more(
    world: Any, process: Any
) -> None:
    begin(world)
    for day in (1, 10, 11, 19, 20, 21):
        world.now_ms = NOV_1 + day * DAY_MS
        world.ask("flights", "aa", AA)
        if day == 19:  # so that the next answer is another one
            world.cells("flights", "second", n=4)
        await process.run()
    first, *others = values(world, "aa")
    assert len(others) == 5
    # The query of day 20 still finds what its own record drops: all that was stored before day 10.
    assert others[:4] == [first] * 4
    assert others[4] != first
    assert rotated(world) == 20


async def test_another_query_may_have_the_id_then_and_is_refused_before(
    world: Any, process: Any
) -> None:
    begin(world)
    world.ask("flights", "id", AA)
    await process.run()
    for day in (9, 19, 30, 31):
        world.now_ms = NOV_1 + day * DAY_MS
        world.ask("flights", "id", LATE)
        world.ask("flights", f"other-{day}")
        await process.run()
    codes = [reply["reason"]["code"] for reply in world.released("rejected")]
    assert codes == ["id_reused"] * 3
    assert len(set(values(world, "id"))) == 2
    assert rotated(world) == 30


async def test_only_the_times_of_records_count_and_older_ones_change_nothing(
    world: Any, process: Any
) -> None:
    begin(world)
    for time in (NOV_1 - 90 * DAY_MS, -1, 0, NOV_1 + 10 * DAY_MS - 1):
        world.now_ms = time
        world.ask("flights", f"at-{time}", AA)
        await process.run()
        assert rotated(world) == 0
    assert len(world.held("flights").answers) == 4
    world.now_ms = NOV_1 + 10 * DAY_MS
    world.cells("flights", "a-batch-is-a-record-too")
    await process.run()
    held = world.held("flights")
    assert rotated(world) == 10
    assert (len(held.answers), len(held.previous)) == (0, 4)


async def test_a_definition_without_a_time_begins_with_the_first_record_that_has_one(
    world: Any, process: Any
) -> None:
    world.define("flights", retention={"answers": {"days": 10}})
    world.ask("flights", "early")
    await process.run()
    assert "answers rotated" not in world.held("flights").meta
    world.now_ms = NOV_1
    world.ask("flights", "later")
    await process.run()
    held = world.held("flights")
    assert rotated(world) == 0
    assert (len(held.answers), len(held.previous)) == (1, 1)


async def test_without_the_setting_every_answer_stays_and_nothing_is_noted(
    world: Any, process: Any
) -> None:
    begin(world, retention={"phases": 3})
    world.ask("flights", "aa", AA)
    for day in (100, 200, 300):
        world.now_ms = NOV_1 + day * DAY_MS
        world.ask("flights", "aa", AA)
        await process.run()
    held = world.held("flights")
    assert len(set(values(world, "aa"))) == 1
    assert len(held.answers) == 1
    assert "answers rotated" not in held.meta


async def test_an_answer_that_leaves_again_leaves_though_it_is_dropped_meanwhile(
    make_world: Callable[..., Any],
) -> None:
    """A worker dies between a repeated answer's commit, which drops that answer, and its release."""

    def again(day: int) -> Callable[[World], None]:
        def ask(world: World) -> None:
            world.now_ms = NOV_1 + day * DAY_MS
            world.ask("flights", "aa", AA)

        return ask

    for place in range(40):
        world = make_world(seed=place)
        fuse = world.Fuse(place, CrashPoint.AFTER_APPEND)
        deaths = await world.run(fuse, rounds=(begin, again(0), again(10), again(20)))
        assert world.complaints() == []
        assert len(set(values(world, "aa"))) == 1
        if not deaths:
            return
    raise AssertionError("there are more appends than places to die at")


async def test_what_stands_is_answered_once_in_a_phase_though_its_answer_is_dropped(
    world: Any, process: Any
) -> None:
    begin(world)
    world.ask("flights", "tile", AA, standing=True)
    for day in (1, 11, 22, 33):
        world.now_ms = NOV_1 + day * DAY_MS
        world.ask("flights", f"other-{day}", LATE)
        world.ask("flights", "tile", AA, standing=True)
        await process.run()
    assert len(set(values(world, "tile@1"))) == 1
    held = world.held("flights")
    assert "ana tile@1" not in held.answers | held.previous
    assert world.complaints() == []
