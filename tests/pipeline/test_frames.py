"""Running sums and moving averages: a part of a series with those before it is asked as one window."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.pipeline.queries.windows import framed
from tests.pipeline.flights import (
    AA,
    PRECISE,
    UNMEASURED,
    asked,
    asked_in_turn,
    judged,
    ran,
    within,
)

pytestmark = judged

TRUTH = [3_000, 5_000, 4_000, 6_000, 2_000, 7_000]
CERTIFIED = {"base_share": 0.5}
ALONE: dict[str, Any] = {"where": AA, "series": "phase"}
RUNNING = {**ALONE, "frame": "running"}
ANEW = {"error": 0.01, "fresh": True}


async def opened(world: Any, mechanism: dict[str, float]) -> None:
    """A data set with six phases of 20,000 rows."""

    def day(n: int) -> Any:
        counts = [("AA", TRUTH[n]), ("UA", 20_000 - TRUTH[n])]
        cells = [{"carrier": c, "delay": 5, "cancelled": False, "count": k} for c, k in counts]
        return lambda world: world.batch("flights", f"day-{n}", cells=cells)

    await ran(
        world,
        lambda world: world.define("flights", mechanism=mechanism, **PRECISE),
        *(day(n) for n in range(len(TRUTH))),
    )


@pytest.mark.parametrize("mechanism", [UNMEASURED, CERTIFIED], ids=["measured", "certified"])
async def test_each_part_of_a_frame_is_the_answer_about_its_phases_together(
    world: Any, mechanism: dict[str, float]
) -> None:
    """At a confidence of 1 - 1e-9 for each bar."""
    await opened(world, mechanism)
    alone, price, running, three = await asked(
        world, ALONE, {**RUNNING, "quote": True}, RUNNING, {**ALONE, "frame": 3}
    )
    [window] = await asked(world, {"where": AA, "window": {"phases": [3, 5]}})
    for series, n in ((running, 6), (three, 3), (alone, 1)):
        for last, part in enumerate(series["parts"], 1):
            first, answer = max(1, last - n + 1), part["answer"]
            assert (part["window"], answer["window"]) == ([last, last], [first, last])
            truth = sum(TRUTH[first - 1 : last])
            assert within(answer["count"], truth, answer["error_bar"] * answer["n"] + 1)
            assert answer["n"] == 20_000 * (last - first + 1)
    assert window["count"] == three["parts"][4]["answer"]["count"]
    assert window["difficulty"] == "easy"
    assert price["privacy_loss"]["share"] >= running["privacy_loss"]["share"]


async def test_a_line_pays_for_all_parts_whose_frame_it_is_in(world: Any) -> None:
    await opened(world, UNMEASURED)
    one, pairs = await asked(world, {**ALONE, **ANEW}, {**ALONE, **ANEW, "frame": 2})
    alone, two = one["privacy_loss"], pairs["privacy_loss"]
    assert two["blocks"] == len(TRUTH)
    # Of two phases together half the precision suffices of each, and the first line pays its own part too.
    first = one["parts"][0]["answer"]["privacy_loss"]["share"]
    pair = pairs["parts"][1]["answer"]["privacy_loss"]["share"]
    assert pair == pytest.approx(first / 2, rel=0.2)
    assert two["share"] == pytest.approx(first + pair, rel=1e-9)
    assert two["share"] > alone["share"]


async def test_the_longest_frames_are_asked_first_because_they_are_the_cheapest(world: Any) -> None:
    """The parts of a running sum take p, p/2, p/3, ... of the first line, and at most 1.2 p is there."""
    await opened(world, UNMEASURED)
    alone = {"where": AA, "window": {"phases": [1, 1]}, **ANEW, "quote": True}
    price = (await asked(world, alone))[0]["privacy_loss"]["share"]
    [answer] = await asked(world, {**RUNNING, **ANEW}, at_most=1.2 * price)
    status = [part["answer"]["status"] for part in answer["parts"]]
    assert status == ["refused", "refused", *["answered"] * 4]
    assert [part["window"] for part in answer["parts"]] == [[n, n] for n in range(1, 7)]
    assert answer["privacy_loss"]["share"] <= 1.2 * price


async def test_the_bar_of_a_running_sum_is_narrower_than_the_bars_of_its_parts_together(
    world: Any,
) -> None:
    """The noise of phases is independent, so variances add up: a copy that adds bars is 2.4 times as wide."""
    await opened(world, CERTIFIED)
    alone, running = await asked(world, ALONE, RUNNING)
    bars = [part["answer"]["error_bar"] * 20_000 for part in alone["parts"]]
    whole = running["parts"][-1]["answer"]
    bar = whole["error_bar"] * whole["n"]
    assert bar == pytest.approx(sum(bar**2 for bar in bars) ** 0.5, rel=0.05)
    assert sum(bars) > 2.3 * bar


@pytest.mark.parametrize(
    ("first", "second", "code"),
    [
        ({**ALONE, "frame": 2}, {**ALONE, "frame": 3}, "id_reused"),
        ({**ALONE, "frame": 2}, ALONE, "id_reused"),
        (ALONE, {"where": AA, "frame": 2}, "invalid_message"),
    ],
)
async def test_another_frame_is_another_request_and_none_goes_without_a_series(
    world: Any, first: dict[str, Any], second: dict[str, Any], code: str
) -> None:
    await opened(world, UNMEASURED)
    _, other = await asked_in_turn(world, *({"query_id": "q", **each} for each in (first, second)))
    assert other["reason"]["code"] == code


def test_a_frame_begins_where_its_first_part_does() -> None:
    parts = [range(2, 3), range(3, 6), range(6, 7)]
    assert framed(parts, None) == parts
    assert framed(parts, 1) == parts
    assert framed(parts, 2) == [range(2, 3), range(2, 6), range(3, 7)]
    assert framed(parts, "running") == [range(2, 3), range(2, 6), range(2, 7)]
    assert framed([], "running") == []
