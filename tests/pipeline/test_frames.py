"""Running sums and moving averages: a part of a series with those before it is asked as one window."""

from __future__ import annotations

from typing import Any

import pytest

from stream_dp.pipeline.queries.windows import framed

AA: dict[str, Any] = {"attribute": "carrier", "eq": "AA"}
TRUTH = [3_000, 5_000, 4_000, 6_000, 2_000, 7_000]
MECHANISMS = {
    "measured": {"profile": "calibrated", "base_share": 0.0},
    "certified": {"profile": "calibrated", "base_share": 0.5},
}
PROMISE: dict[str, Any] = {
    "accuracy": {"error": 0.05, "failure_probability": 1e-9},
    "privacy": {"epsilon": 4.0, "delta": 1e-9},
}


def day(n: int) -> Any:
    def fill(world: Any) -> None:
        counts = [("AA", TRUTH[n]), ("UA", 20_000 - TRUTH[n])]
        cells = [{"carrier": c, "delay": 5, "cancelled": False, "count": k} for c, k in counts]
        world.batch("flights", f"day-{n}", cells=cells)

    return fill


async def asked(world: Any, *rounds: Any, **changes: Any) -> dict[str, Any]:
    opened = [day(n) for n in range(len(TRUTH))]
    await world.run(rounds=(lambda world: world.define("flights", **changes), *opened))
    for ask in rounds:
        await world.run(rounds=(ask,))
    assert world.complaints() == []
    return {name[-1]: answer for name, answer in world.answers().items()}


@pytest.mark.parametrize("path", MECHANISMS)
async def test_each_part_of_a_frame_is_the_answer_about_its_phases_together(
    world: Any, path: str
) -> None:
    """At a confidence of 1 - 1e-9 for each bar."""

    def ask(world: Any) -> None:
        world.ask("flights", "alone", AA, series="phase")
        world.ask("flights", "price", AA, series="phase", frame="running", quote=True)
        world.ask("flights", "running", AA, series="phase", frame="running")
        world.ask("flights", "three", AA, series="phase", frame=3)

    def again(world: Any) -> None:
        world.ask("flights", "window", AA, window={"phases": [3, 5]})

    found = await asked(world, ask, again, mechanism=MECHANISMS[path], **PROMISE)
    for name, n in (("running", 6), ("three", 3), ("alone", 1)):
        parts = found[name]["parts"]
        for last, part in enumerate(parts, 1):
            first, answer = max(1, last - n + 1), part["answer"]
            assert (part["window"], answer["window"]) == ([last, last], [first, last])
            truth = sum(TRUTH[first - 1 : last])
            assert abs(answer["count"] - truth) <= answer["error_bar"] * answer["n"] + 1
            assert answer["n"] == 20_000 * (last - first + 1)
    assert found["window"]["count"] == found["three"]["parts"][4]["answer"]["count"]
    assert found["window"]["difficulty"] == "easy"
    assert found["price"]["privacy_loss"]["share"] >= found["running"]["privacy_loss"]["share"]


async def test_a_line_pays_for_all_parts_whose_frame_it_is_in(world: Any) -> None:
    def ask(world: Any) -> None:
        world.ask("flights", "alone", AA, series="phase", error=0.01, fresh=True)
        world.ask("flights", "two", AA, series="phase", frame=2, error=0.01, fresh=True)

    found = await asked(world, ask, mechanism=MECHANISMS["measured"], **PROMISE)
    alone, two = (found[name]["privacy_loss"] for name in ("alone", "two"))
    assert two["blocks"] == len(TRUTH)
    # Of two phases together half the precision suffices of each, and the first line pays its own part too.
    (first,) = [found["alone"]["parts"][0]["answer"]["privacy_loss"]["share"]]
    pair = found["two"]["parts"][1]["answer"]["privacy_loss"]["share"]
    assert pair == pytest.approx(first / 2, rel=0.2)
    assert two["share"] == pytest.approx(first + pair, rel=1e-9)
    assert two["share"] > alone["share"]


async def test_the_longest_frames_are_asked_first_because_they_are_the_cheapest(world: Any) -> None:
    """The parts of a running sum take p, p/2, p/3, ... of the first line, and at most 1.2 p is there."""

    def alone(world: Any) -> None:
        window = {"phases": [1, 1]}
        world.ask("flights", "alone", AA, window=window, error=0.01, fresh=True, quote=True)

    found = await asked(world, alone, mechanism=MECHANISMS["measured"], **PROMISE)
    price = found["alone"]["privacy_loss"]["share"]
    running = {"kind": "predicate", "where": AA, "series": "phase", "frame": "running"}
    query = {"query_id": "running", **running, "error": 0.01, "fresh": True}
    envelope = {"version": 1, "dataset": "flights", "analyst": "ana", "queries": [query]}

    def ask(world: Any) -> None:
        world.produce("queries", {**envelope, "at_most": 1.2 * price})

    await world.run(rounds=(ask,))
    (answer,) = [a for a in world.answers().values() if a["query_id"] == "running"]
    status = [part["answer"]["status"] for part in answer["parts"]]
    assert status == ["refused", "refused", *["answered"] * 4]
    assert [part["window"] for part in answer["parts"]] == [[n, n] for n in range(1, 7)]
    assert answer["privacy_loss"]["share"] <= 1.2 * price
    assert world.complaints() == []


async def test_the_bar_of_a_running_sum_is_narrower_than_the_bars_of_its_parts_together(
    world: Any,
) -> None:
    """The noise of phases is independent, so variances add up: a copy that adds bars is 2.4 times as wide."""

    def ask(world: Any) -> None:
        world.ask("flights", "alone", AA, series="phase")
        world.ask("flights", "running", AA, series="phase", frame="running")

    found = await asked(world, ask, mechanism=MECHANISMS["certified"], **PROMISE)
    bars = [part["answer"]["error_bar"] * 20_000 for part in found["alone"]["parts"]]
    whole = found["running"]["parts"][-1]["answer"]
    assert whole["error_bar"] * whole["n"] == pytest.approx(
        sum(bar**2 for bar in bars) ** 0.5, rel=0.05
    )
    assert sum(bars) > 2.3 * whole["error_bar"] * whole["n"]


@pytest.mark.parametrize(
    ("first", "second", "reason"),
    [
        ({"series": "phase", "frame": 2}, {"series": "phase", "frame": 3}, "id_reused"),
        ({"series": "phase", "frame": 2}, {"series": "phase"}, "id_reused"),
        ({"series": "phase"}, {"frame": 2}, "invalid_message"),
    ],
)
async def test_another_frame_is_another_request_and_none_goes_without_a_series(
    world: Any, first: dict[str, Any], second: dict[str, Any], reason: str
) -> None:
    sent = []

    def ask(world: Any) -> None:
        sent.append(world.ask("flights", "q", AA, **first))

    def other(world: Any) -> None:
        sent.append(world.ask("flights", "q", AA, **second))

    await world.run(rounds=(lambda world: world.define("flights"), day(0), day(1), ask, other))
    assert world.rejection(sent[-1])["reason"]["code"] == reason
    assert world.complaints() == []


def test_a_frame_begins_where_its_first_part_does() -> None:
    parts = [range(2, 3), range(3, 6), range(6, 7)]
    assert framed(parts, None) == parts
    assert framed(parts, 1) == parts
    assert framed(parts, 2) == [range(2, 3), range(2, 6), range(3, 7)]
    assert framed(parts, "running") == [range(2, 3), range(2, 6), range(2, 7)]
    assert framed([], "running") == []
