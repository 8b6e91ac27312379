"""Running totals through the worker: ticks, what they say, and what they cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tests.pipeline.clocked import BY_CLOCK, TICKED, at, clock, columns
from tests.pipeline.flights import judged
from tests.pipeline.test_calendar import phases

pytestmark = judged

RUNNING: dict[str, Any] = {
    "every": "6 hours",
    "within_rows": 80,
    "tiles": [{"group_by": ["carrier"]}, {"where": {"attribute": "cancelled", "eq": True}}],
}


def define(world: Any, **changes: Any) -> None:
    world.define("flights", phase=BY_CLOCK, running=RUNNING, **changes)


def ticks(world: Any) -> list[dict[str, Any]]:
    return [json.loads(one.value) for one in world.left("running")]


async def come(world: Any, process: Any, when_ms: int, day: int = 1, n_rows: int = 0) -> None:
    """A record of the clock, and rows about a day, at a time."""
    world.now_ms = when_ms
    if n_rows:
        given = columns(n_rows) | {"cancelled": [True] * n_rows}
        world.batch("flights", f"{when_ms}-{day}", columns=given, time=f"2026-11-{day:02}")
    else:
        clock(world)
    await process.run()


def held(told: Mapping[str, Any], counts: Mapping[str, int], last: Mapping[str, int]) -> bool:
    """Whether the bars of a table cover its counts."""
    table = told["tiles"][0]
    labels = table["labels"][0]
    return all(
        abs(count - true.get(label, 0)) <= bar
        for counted, bar, true in (
            (table["counts"], table["count_bar_all_ticks"], counts),
            (table["last_counts"], 2 * table["last_count_bar"], last),
        )
        for label, count in zip(labels, counted, strict=True)
    )


async def test_ticks_count_a_day_while_it_goes_on(world: Any, process: Any) -> None:
    define(world)
    await come(world, process, at(1, 7), n_rows=200)
    assert ticks(world) == [], "the first tick had passed before any row came"
    await come(world, process, at(1, 12))
    await come(world, process, at(1, 13), n_rows=100)
    await come(world, process, at(1, 18))
    await come(world, process, at(2, 1), n_rows=60)
    await come(world, process, at(2, 2))
    told = ticks(world)
    assert [(one["tick"], one["ticks"], one["rows"]) for one in told] == [
        (2, 4, 200),
        (3, 4, 300),
        (4, 4, 360),
    ]
    assert [one["until"] for one in told] == [
        "2026-11-01T12:00+01:00",
        "2026-11-01T18:00+01:00",
        "2026-11-02",
    ]
    assert held(told[0], {"AA": 100, "other": 100}, {"AA": 100, "other": 100})
    assert held(told[1], {"AA": 150, "other": 150}, {"AA": 50, "other": 50})
    assert held(told[2], {"AA": 180, "other": 180}, {"AA": 30, "other": 30})
    assert phases(world) == [(360, "2026-11-01", "2026-11-02", 0)]
    cancelled = told[2]["tiles"][1]
    assert abs(cancelled["counts"][0] - 360) <= cancelled["count_bar_all_ticks"]
    (running,) = [
        entry
        for entry in map(json.loads, world.held("flights").ledger)
        if entry["kind"] == "running"
    ]
    assert running["ticks"] == 3
    opened = [e for e in map(json.loads, world.held("flights").ledger) if e["kind"] == "charge"]
    of_periods = [e for e in opened if any(look["kind"] == "periods" for look in e["looks"])]
    assert len(of_periods) == 1


async def test_nothing_is_wrong_where_no_worker_dies(world: Any) -> None:
    assert await world.run(rounds=TICKED) == 0
    assert world.complaints() == []
    told = [(one["dataset"], one["since"], one["tick"], one["rows"]) for one in ticks(world)]
    assert sorted(told) == [
        (name, f"2026-11-{day:02}", tick, rows)
        for name in ("flights", "trains")
        for day, tick, rows in (
            (1, 2, 90),
            (1, 3, 183),
            (1, 4, 207),
            (2, 2, 120),
            (2, 3, 120),
            (2, 4, 150),
        )
    ]
    for name in ("flights", "trains"):
        assert phases(world, name) == [
            (207, "2026-11-01", "2026-11-02", 0),
            (150, "2026-11-02", "2026-11-03", 0),
        ]
