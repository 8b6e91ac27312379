"""A batch of conditions through the worker: one answer, one charge, whatever dies in between."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.pipeline.watch.crash_points import CrashPoint

EARLY = {"attribute": "delay", "lt": 0}
LATE = {"attribute": "delay", "ge": 30}


def begin(world: Any) -> None:
    world.define("flights", kinds={"prefix_batch": {"share": 0.2}})


def open_phase(world: Any) -> None:
    world.cells("flights", "one")


def ask(world: Any, query_id: str = "q", wheres: Any = (EARLY, LATE), **more: Any) -> Any:
    item = {"kind": "prefix_batch", "attribute": "delay", "wheres": list(wheres), **more}
    return world.ask("flights", query_id, **item)


async def test_a_batch_is_answered_in_its_order_and_free_again(world: Any) -> None:
    def again(world: Any) -> None:
        ask(world, "again")
        ask(world, "turned", (LATE, EARLY))
        ask(world, "price", quote=True)

    await world.run(rounds=(begin, open_phase, ask))
    await world.run(rounds=(again,))
    assert world.complaints() == []
    first = world.answer("q")
    assert (first["difficulty"], first["path"]) == ("hard", "measured")
    assert first["privacy_loss"] == {"share": pytest.approx(0.2), "blocks": 1}
    for value, count, exact in zip(*first["batch"].values(), (4_000, 8_000), strict=True):
        assert abs(value - exact / 21_000) <= first["error_bar_simultaneous"] < 0.1
        assert count == round(value * 21_000)
    assert world.answer("again")["batch"] == first["batch"]
    assert world.answer("turned")["batch"]["values"] == first["batch"]["values"][::-1]
    for name in ("again", "turned", "price"):
        assert world.answer(name)["privacy_loss"]["share"] == 0.0
        assert world.answer(name)["budget"] == first["budget"]


@pytest.mark.parametrize("point", [CrashPoint.AFTER_CHARGE, CrashPoint.AFTER_LOOK])
async def test_a_look_that_a_crash_lost_is_paid_again(world: Any, point: CrashPoint) -> None:
    await world.run(rounds=(begin, open_phase))
    ask(world)
    assert await world.run(world.Fuse(0, point)) == 1
    assert world.complaints() == []
    assert world.answer("q")["budget"]["spent"] >= 0.4
    assert world.answer("q")["path"] == "measured"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"wheres": [EARLY, {"attribute": "delay", "lt": 5}]}, "wheres[1].lt: this cuts the bin"),
        ({"wheres": [EARLY, {"attribute": "carrier", "eq": "AA"}]}, "wheres[1]: a batch is about"),
        ({"attribute": "speed"}, "attribute: there is no such attribute"),
    ],
)
async def test_a_batch_that_does_not_fit_is_refused_by_the_place_in_it(
    world: Any, changes: dict[str, Any], words: str
) -> None:
    await world.run(rounds=(begin, open_phase, lambda world: ask(world, **changes)))
    assert words in world.answer("q")["reason"]["message"]
    assert world.complaints() == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"wheres": []}, "add it"),
        ({"wheres": [EARLY] * 1_001}, "1000"),
        ({"rank": 0.5}, "remove it"),
    ],
)
async def test_a_batch_of_no_or_too_many_conditions_is_rejected(
    world: Any, changes: dict[str, Any], words: str
) -> None:
    begin(world)
    record = ask(world, **changes)
    await world.run()
    assert words in world.rejection(record)["reason"]["message"]
