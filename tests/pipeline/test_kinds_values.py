"""Medians, modes and response vectors through the worker, each alone and all at once."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.pipeline.fuse import CrashPoint


async def ask_all(world: Any, *items: dict[str, Any], **kinds: Any) -> dict[str, Any]:
    """Replies by query id, from a data set of 21,000 rows; every question is asked of a new process."""

    def define(world: Any) -> None:
        world.define("flights", kinds=kinds)

    await world.run(rounds=(define, lambda world: world.cells("flights", "one")))
    for number, item in enumerate(items):
        await world.run(
            rounds=(lambda world, n=number, i=item: world.ask("flights", f"q{n}", **i),)
        )
    assert world.complaints() == []
    return {name[-1]: answer for name, answer in world.answers().items()}


@pytest.mark.parametrize(
    ("kind", "attribute", "label", "share"),
    [
        ("median", "delay", "0 to 9", 0.05),
        ("mode", "cancelled", "false", 0.05),
        ("mode", "carrier", "AA", 0.3),
    ],
)
async def test_what_is_stable_is_named_once_paid_and_repeated(
    world: Any, kind: str, attribute: str, label: str, share: float
) -> None:
    asked = {"kind": kind, "attribute": attribute}
    found = await ask_all(world, {**asked, "quote": True}, asked, asked, **{kind: {"share": share}})
    quote, first, again = found["q0"], found["q1"], found["q2"]
    assert quote["privacy_loss"] == first["privacy_loss"]
    assert first["privacy_loss"] == {"share": pytest.approx(share), "blocks": 1}
    assert first["found"]["label"] == label
    assert "no_answer" not in first
    assert (first["difficulty"], first["path"]) == ("hard", "measured")
    assert (again["difficulty"], again["path"]) == ("easy", "repeat")
    assert again["found"] == first["found"]
    assert again["privacy_loss"]["share"] == 0.0
    if kind == "median":
        assert (first["found"]["low"], first["found"]["high"]) == (0.0, 10.0)
        assert (first["error_bar"], first["confidence"]) == (0.0, 1.0)


async def test_no_answer_is_an_answer_that_is_paid_once(world: Any) -> None:
    """AA leads by 1,000 rows of 21,000: at this share that is too few."""
    asked = {"kind": "mode", "attribute": "carrier"}
    found = await ask_all(world, asked, asked, mode={"share": 0.01})
    assert [found[name]["no_answer"] for name in ("q0", "q1")] == [True, True]
    assert "found" not in found["q0"]
    assert [found[name]["path"] for name in ("q0", "q1")] == ["measured", "repeat"]
    assert found["q1"]["budget"] == found["q0"]["budget"]


@pytest.mark.parametrize("point", [CrashPoint.AFTER_CHARGE, CrashPoint.AFTER_LOOK])
async def test_a_crash_after_the_charge_pays_a_second_look_and_answers_once(
    world: Any, point: CrashPoint
) -> None:
    def define(world: Any) -> None:
        world.define("flights", kinds={"median": {"share": 0.05}}, mechanism={"base_share": 0.0})

    def ask(world: Any) -> None:
        world.ask("flights", "q", kind="median", attribute="delay")

    await world.run(rounds=(define, lambda world: world.cells("flights", "one")))
    assert await world.run(world.Fuse(0, point), rounds=(ask,)) == 1
    assert world.complaints() == []
    answer = world.answer("q")
    assert answer["found"]["label"] == "0 to 9"
    assert answer["privacy_loss"]["share"] == pytest.approx(0.05)
    assert answer["budget"]["spent"] == pytest.approx(0.1, rel=1e-4)


async def test_a_definition_whose_groups_could_name_nothing_is_refused(world: Any) -> None:
    record = world.define("flights", kinds={"mode": {"share": 0.05, "groups": 100}})
    await world.run()
    reason = world.rejection(record)["reason"]
    assert reason["message"].startswith("kinds.mode.groups: there are 100;")
