"""Running totals through the worker: ticks, what they say, and what they cost."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

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
            (1, 2, 900),
            (1, 3, 1830),
            (1, 4, 2070),
            (2, 2, 1200),
            (2, 3, 1200),
            (2, 4, 1500),
        )
    ]
    for name in ("flights", "trains"):
        assert phases(world, name) == [
            (2070, "2026-11-01", "2026-11-02", 0),
            (1500, "2026-11-02", "2026-11-03", 0),
        ]


async def test_a_day_with_too_few_rows_joins_the_next_one(world: Any, process: Any) -> None:
    """Its block pays for the dearer of both, and knows of its rows what both totals say together."""
    define(world)
    await come(world, process, at(1, 19), n_rows=40)
    await come(world, process, at(2, 2))
    await come(world, process, at(2, 7), day=2, n_rows=300)
    await come(world, process, at(3, 2))
    assert phases(world) == [(340, "2026-11-01", "2026-11-03", 0)]
    told = [(one["since"][-2:], one["tick"], one["rows"]) for one in ticks(world)]
    assert told == [("01", 4, 40), ("02", 2, 300), ("02", 3, 300), ("02", 4, 300)]
    tables = world.held("flights").transcript
    assert any(entry[2:3] == b"\x0c" for entry in tables), "totals of periods are in the transcript"
    assert world.complaints() == []


async def test_late_rows_count_in_the_period_that_is_open(world: Any, process: Any) -> None:
    define(world)
    await come(world, process, at(1, 7), n_rows=200)
    await come(world, process, at(2, 2))
    await come(world, process, at(2, 7), day=2, n_rows=110)
    await come(world, process, at(2, 8), day=1, n_rows=15)
    await come(world, process, at(3, 2))
    assert [rows for rows, *_ in phases(world)] == [200, 125]
    assert [(one["tick"], one["rows"]) for one in ticks(world)][-1] == (4, 125)


async def test_a_day_that_is_closed_early_has_no_more_ticks(world: Any, process: Any) -> None:
    define(world)
    await come(world, process, at(1, 7), n_rows=200)
    world.produce("datasets", {"version": 1, "dataset": "flights", "close": True})
    await process.run()
    assert phases(world) == [(200, "2026-11-01", "2026-11-02", 0)]
    assert [(one["tick"], one["rows"]) for one in ticks(world)] == [(2, 200)]
    await come(world, process, at(1, 19))
    assert len(ticks(world)) == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"every": "1 day"}, "running.every: a period has one tick alone"),
        ({"every": "7 minutes"}, "running.every: it does not divide a day"),
        ({"within_rows": 1}, "running: 4 totals within 1 rows take"),
        ({"tiles": [{"group_by": ["gate"]}]}, "running.tiles.0.group_by"),
        ({"tiles": []}, "running.tiles"),
    ],
)
async def test_what_cannot_be_had_is_refused_with_a_fix(
    world: Any, process: Any, change: dict[str, Any], message: str
) -> None:
    refused = world.define("flights", phase=BY_CLOCK, running={**RUNNING, **change})
    await process.run()
    assert message in world.rejection(refused)["reason"]["message"]


async def test_only_periods_that_the_clock_closes_have_totals(world: Any, process: Any) -> None:
    refused = world.define("flights", running=RUNNING)
    await process.run()
    assert "add phase.every and phase.close" in world.rejection(refused)["reason"]["message"]


async def test_a_period_has_no_more_rows_than_totals_can_count(world: Any, process: Any) -> None:
    define(world)
    world.now_ms = at(1, 7)
    cells = [{"carrier": "AA", "delay": 3, "cancelled": False, "count": 2**52}]
    for name in ("most", "more"):
        world.batch("flights", name, cells=cells, time="2026-11-01")
    await process.run()
    (refused,) = world.events("batch_refused")
    assert (refused["batch_id"], refused["reason"]["code"]) == ("more", "invalid_batch")
    assert "4,503,599,627,370,496 rows" in refused["reason"]["message"]


async def test_a_closed_day_is_known_as_well_as_by_its_last_total_and_no_better(
    world: Any, process: Any
) -> None:
    """Ticks of a period share their noise, so only one of them is evidence.

    The three cells of the table add up to the number of rows, so a third of the variance is known.
    """
    define(world, mechanism={"base_share": 0.0})
    for hour, n_rows in ((7, 200), (12, 0), (13, 100), (18, 0)):
        await come(world, process, at(1, hour), n_rows=n_rows)
    await come(world, process, at(2, 2))
    last = ticks(world)[-1]["tiles"][0]["count_bar"]
    where = {"attribute": "carrier", "eq": "AA"}
    world.ask("flights", "q", where, window={"phases": [1, 1]}, error={"value": 80})
    await process.run()
    answer = world.answer("q")
    assert answer["difficulty"] == "easy"
    assert answer["error_bar"] * answer["n"] == pytest.approx(last * (2 / 3) ** 0.5, rel=1e-3)
