"""Questions about time that is not over: sealed phases, and open periods with their newest ticks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.pipeline import clocked
from tests.pipeline.clocked import BY_CLOCK, CARRIER, DELAY, GATE, WIDER, at, clock, columns
from tests.pipeline.flights import judged, ran
from tests.pipeline.test_calendar import phases
from tests.pipeline.test_running import RUNNING, come, define, ticks

pytestmark = judged

TODAY = {"since": "2026-11-02", "until": "2026-11-03", "running": True}
TWO_DAYS = {"last": "2 days", "running": True}
CANCELLED = {"attribute": "cancelled", "eq": True}
KEPT = {"attribute": "cancelled", "eq": False}
AA = {"attribute": "carrier", "eq": "AA"}
LATE = {"attribute": "delay", "ge": 10}


async def second_day(world: Any, process: Any, **changes: Any) -> None:
    """A day of 300 rows that has closed, and one of 200 so far, of which the tick at noon counts 150."""
    define(world, **changes)
    await come(world, process, at(1, 7), n_rows=300)
    await come(world, process, at(2, 2))
    await come(world, process, at(2, 7), day=2, n_rows=150)
    await come(world, process, at(2, 12))
    await come(world, process, at(2, 13), day=2, n_rows=50)


async def asked(world: Any, process: Any, name: str, **item: Any) -> dict[str, Any]:
    world.ask("flights", name, **item)
    await process.run()
    answer: dict[str, Any] = world.answer(name)
    return answer


@pytest.mark.parametrize(
    ("item", "count", "newest"),
    [
        ({"window": TODAY}, 150, 0.0),
        ({"window": TODAY, "where": AA}, 75, 1.0),
        ({"window": TODAY, "where": {"not": AA}}, 75, 1.0),
        ({"window": TODAY, "where": CANCELLED}, 150, 1.0),
        ({"window": TODAY, "where": KEPT}, 0, 1.0),
        ({"window": TWO_DAYS}, 450, 0.0),
        ({"window": TWO_DAYS, "where": AA}, 225, 1.0),
        ({"window": TWO_DAYS, "where": CANCELLED}, 450, 1.0),
        ({"window": TWO_DAYS, "where": {"any": [AA, {"not": AA}]}}, 450, 0.0),
    ],
)
async def test_open_periods_count_until_their_newest_tick(
    world: Any, process: Any, item: dict[str, Any], count: int, newest: float
) -> None:
    await second_day(world, process)
    looks = len(world.held("flights").transcript)
    answer = await asked(world, process, "q", **item)
    assert abs(answer["count"] - count) <= answer["error_bar"] * answer["n"] + 1
    bar = ticks(world)[-1]["tiles"][0]["count_bar"]
    assert answer["error_bar"] * answer["n"] >= newest * bar * 0.999
    assert "error_bar_anytime" not in answer
    assert answer["privacy_loss"] == {"share": 0.0, "blocks": 0}
    assert answer["n"] == (150 if item["window"] is TODAY else 450)
    assert answer["running"] == [
        {"since": "2026-11-02", "until": "2026-11-02T12:00+01:00", "rows": 150}
    ]
    assert answer["until"] == "2026-11-02T12:00+01:00"
    assert answer["since"] == ("2026-11-02" if item["window"] is TODAY else "2026-11-01")
    assert answer["window"] == ([2, 2] if item["window"] is TODAY else [1, 2])
    assert len(world.held("flights").transcript) == looks, "nothing is looked at"


async def test_a_table_of_today_says_what_the_tick_has_published(world: Any, process: Any) -> None:
    await second_day(world, process)
    answer = await asked(world, process, "t", kind="table", group_by=["carrier"], window=TODAY)
    told = ticks(world)[-1]["tiles"][0]
    assert answer["table"]["labels"] == told["labels"]
    assert answer["table"]["counts"] == [max(0, round(count)) for count in told["counts"]]
    bars = [bar * answer["n"] for bar in answer["table"]["error_bars"] if bar is not None]
    assert bars == pytest.approx([told["count_bar"]] * len(bars), abs=0.01)


@pytest.mark.parametrize(
    ("item", "code", "words"),
    [
        ({"window": TWO_DAYS, "where": LATE}, "not_running", '{"group_by":["carrier"]}'),
        ({"window": TWO_DAYS, "where": {"all": [AA, CANCELLED]}}, "not_running", "their tiles are"),
        (
            {"window": {**TODAY, "since": "2026-11-03", "until": "2026-11-04"}},
            "not_running",
            "no row",
        ),
        ({"window": {"last": "12 hours", "running": True}}, "invalid_query", "it cuts the period"),
    ],
)
async def test_what_ticks_do_not_tell_is_refused_with_a_fix(
    world: Any, process: Any, item: dict[str, Any], code: str, words: str
) -> None:
    await second_day(world, process)
    reason = (await asked(world, process, "q", **item))["reason"]
    assert reason["code"] == code
    assert words in reason["message"]


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ({"window": TODAY, "kind": "sum", "attribute": "delay"}, "running totals are counts"),
        ({"window": TODAY, "error": 0.1}, "without error: remove error"),
        ({"window": TODAY, "series": "day", "frame": 2}, "without frame"),
        ({"window": {"last_phases": 2, "running": True}}, "has no number"),
    ],
)
async def test_a_query_that_cannot_be_about_today_is_not_valid(
    world: Any, process: Any, item: dict[str, Any], words: str
) -> None:
    define(world)
    record = world.ask("flights", "q", **item)
    await process.run()
    assert words in world.rejection(record)["reason"]["message"]


async def test_a_day_without_a_tick_is_refused_until_then(world: Any, process: Any) -> None:
    define(world)
    window = {"last": "1 day", "running": True}
    await come(world, process, at(1, 7), n_rows=100)
    early = await asked(world, process, "early", window=window)
    assert early["reason"]["code"] == "not_running"
    assert early["reason"]["retriable"] is True
    await come(world, process, at(1, 12))
    assert (await asked(world, process, "early", window=window)) == early, "an id has one answer"
    later = await asked(world, process, "later", window=window)
    assert (later["n"], later["count"], later["phase"]) == (100, 100, 0)


async def test_an_id_has_one_answer_and_a_new_id_the_newest_tick(world: Any, process: Any) -> None:
    await second_day(world, process)
    first = await asked(world, process, "a", where=AA, window=TODAY)
    await come(world, process, at(2, 18))
    assert (await asked(world, process, "a", where=AA, window=TODAY)) == first
    newer = await asked(world, process, "b", where=AA, window=TODAY)
    assert (first["n"], newer["n"]) == (150, 200)
    assert newer["until"] == "2026-11-02T18:00+01:00"
    await come(world, process, at(3, 2))
    closed = await asked(world, process, "c", where=AA, window=TODAY)
    assert closed["running"] == []
    assert (closed["n"], closed["window"], closed["until"]) == (200, [2, 2], "2026-11-03")
    without = {name: value for name, value in TODAY.items() if name != "running"}
    other = await asked(world, process, "a", where=AA, window=without)
    assert other == first, "another request under the id is refused"


async def test_the_next_owner_answers_alike(world: Any, process: Any) -> None:
    await second_day(world, process)
    await asked(world, process, "a", where=AA, window=TWO_DAYS)
    await ran(world, lambda on: on.ask("flights", "b", where=AA, window=TWO_DAYS))
    first, second = ({**world.answer(name), "query_id": ""} for name in ("a", "b"))
    assert first == second


@pytest.mark.parametrize(
    "wider", [[WIDER, DELAY, clocked.CANCELLED], [CARRIER, DELAY, clocked.CANCELLED, GATE]]
)
async def test_a_period_goes_on_with_its_tiles_where_attributes_change(
    world: Any, process: Any, wider: list[dict[str, Any]]
) -> None:
    """Also for the next owner: it is told until its last tick, in the attributes that it has."""
    define(world, attributes=[CARRIER, DELAY, clocked.CANCELLED])
    await come(world, process, at(1, 7), n_rows=200)
    await come(world, process, at(1, 12))
    world.change_schema("flights", wider)
    window = {"last": "1 day", "running": True}
    await process.run()
    same = await asked(world, process, "a", where=CANCELLED, window=window)
    of_carrier = await asked(world, process, "b", where=AA, window=window)
    assert same["n"] == of_carrier.get("n", 200) == 200
    assert (of_carrier["status"] == "answered") == (CARRIER in wider)
    assert CARRIER in wider or "have changed" in of_carrier["reason"]["message"]
    await ran(
        world,
        lambda on: on.ask("flights", "c", where=CANCELLED, window=window),
        lambda on: on.ask("flights", "d", where=AA, window=window),
    )
    for first, second in ("ac", "bd"):
        assert {**world.answer(first), "query_id": second} == world.answer(second)

    def next_day(on: Any) -> None:
        on.now_ms = at(2, 2)
        clock(on)

    await ran(world, next_day)
    assert phases(world) == [(200, "2026-11-01", "2026-11-02", 0)]


async def test_a_quote_is_free_and_nothing_enters_the_ledger(world: Any, process: Any) -> None:
    await second_day(world, process)
    kinds = [json.loads(entry)["kind"] for entry in world.held("flights").ledger]
    quote = await asked(world, process, "q", where=AA, window=TODAY, quote=True)
    assert (quote["status"], quote["privacy_loss"]["share"]) == ("quoted", 0.0)
    assert quote["running"][0]["rows"] == 150
    items = [{"query_id": "x", "where": AA, "window": TODAY}, {"query_id": "y", "where": AA}]
    world.ask_many("flights", items, quote="together", query_id="both")
    world.ask_many(
        "flights",
        [{"query_id": "z", "where": LATE, "window": TODAY}, *items],
        quote="together",
        query_id="all",
    )
    await process.run()
    both, every = world.answer("both"), world.answer("all")
    assert both["queries"][0]["privacy_loss"]["share"] == 0.0
    assert both["queries"][0]["error_bar"] == quote["error_bar"]
    assert every["queries"][0]["reason"]["code"] == "not_running"
    await asked(world, process, "r", where=AA, window=TODAY)
    assert [json.loads(entry)["kind"] for entry in world.held("flights").ledger] == kinds


async def test_a_data_set_without_running_totals_says_so(world: Any, process: Any) -> None:
    world.define("flights", phase=BY_CLOCK)
    answer = await asked(world, process, "q", window={"last": "1 day", "running": True})
    assert answer["reason"]["code"] == "not_running"
    assert "leave running out" in answer["reason"]["message"]


async def test_where_persons_are_protected_shares_are_of_all_rows(world: Any, process: Any) -> None:
    unit = {"key": "customer", "rows_per_phase": 2, "phases": 1}
    privacy = {"epsilon": 20.0, "delta": 1e-6, "unit": unit}
    world.define("flights", phase=BY_CLOCK, running=RUNNING, privacy=privacy)
    world.now_ms = at(1, 7)
    given = columns(200) | {"customer": [f"c{number % 50}" for number in range(200)]}
    world.batch("flights", "b", columns=given, time="2026-11-01")
    await process.run()
    await come(world, process, at(1, 12))
    window = {"last": "1 day", "running": True}
    answer = await asked(world, process, "q", where=AA, window=window)
    assert answer["n"] == 200
    assert "shares are of all rows" in answer["note"]
    assert abs(answer["value"] * 200 - 50) <= (answer["error_bar"] or 1) * 200 + 1


# ---------------------------------------------------------------- standing queries


def of_standing(world: Any) -> list[tuple[str, int, str]]:
    return [
        (reply["query_id"], reply["n"], reply["until"])
        for (_, _, name), reply in world.answers().items()
        if "@" in name
    ]


async def test_a_standing_query_about_today_is_answered_at_each_tick_and_never_twice(
    world: Any, process: Any
) -> None:
    define(world)
    today = {"last": "1 day", "running": True}
    world.ask("flights", "aa", AA, window=today, standing=True)
    world.ask("flights", "each", AA, window={"last_phases": 1}, standing=True)
    await come(world, process, at(1, 7), n_rows=300)
    assert of_standing(world) == [], "no tick was taken"
    await come(world, process, at(1, 12))
    await come(world, process, at(1, 13), n_rows=100)
    await come(world, process, at(1, 14))
    ids = [name for name, *_ in of_standing(world)]
    assert len(ids) == 1
    await process.kill()
    process = await world.owner()
    await come(world, process, at(1, 18))
    told = of_standing(world)
    assert [(n, until) for _, n, until in told] == [
        (300, "2026-11-01T12:00+01:00"),
        (400, "2026-11-01T18:00+01:00"),
    ]
    first, second = (int(name.removeprefix("aa@")) for name, *_ in told)
    assert second - first == 360
    await come(world, process, at(2, 2))
    last, phase = of_standing(world)[2:]
    assert (last, phase[0]) == ((f"aa@{second + 360}", 400, "2026-11-02"), "each@1")


@pytest.mark.parametrize(("n_cancelled", "raised"), [(300, True), (60, False)])
async def test_an_alert_about_today_holds_at_ticks_of_periods_that_begin_later(
    world: Any, process: Any, n_cancelled: int, raised: bool
) -> None:
    """The bar is the one for all ticks: 60 of 300 rows are not surely above a tenth."""
    define(world)
    window = {"last": "1 day", "running": True}
    await come(world, process, at(1, 7), n_rows=300)
    for name, above in (("many", 0.1), ("never", 1.1)):
        world.ask("flights", name, CANCELLED, window=window, standing=True, alert={"above": above})
    await come(world, process, at(1, 12))
    assert world.events("alert") == [], "the period had begun"
    await come(world, process, at(2, 2))
    world.now_ms = at(2, 7)
    given = columns(300) | {"cancelled": [n < n_cancelled for n in range(300)]}
    world.batch("flights", "second", columns=given, time="2026-11-02")
    await process.run()
    await come(world, process, at(2, 12))
    alerts = [(e["query_id"][:5], e["since"], e["until"]) for e in world.events("alert")]
    assert alerts == ([("many@", "2026-11-02", "2026-11-02T12:00+01:00")] if raised else [])


async def test_an_alert_at_ticks_is_about_the_open_period_alone(world: Any, process: Any) -> None:
    define(world)
    world.ask("flights", "q", AA, window=TWO_DAYS, standing=True, alert={"above": 0.1})
    await process.run()
    (said,) = [one for some in world.rejections().values() for one in some]
    assert "open period alone" in said["reason"]["message"]


# ---------------------------------------------------------------- series


async def test_a_series_ends_with_today_so_far(world: Any, process: Any) -> None:
    await second_day(world, process)
    looks = len(world.held("flights").transcript)
    answer = await asked(world, process, "s", where=AA, window=TWO_DAYS, series="day")
    assert (answer["n"], answer["privacy_loss"]["share"]) == (450, 0.0)
    first, today = answer["parts"]
    assert (first["window"], first["since"], first["until"]) == ([1, 1], "2026-11-01", "2026-11-02")
    assert (today["window"], today["since"], today["until"]) == ([2, 2], "2026-11-02", "2026-11-03")
    for part, count in ((first, 150), (today, 75)):
        told = part["answer"]
        assert abs(told["count"] - count) <= told["error_bar"] * told["n"] + 1
    assert today["answer"]["running"][0]["until"] == "2026-11-02T12:00+01:00"
    week = await asked(world, process, "w", where=AA, window=TWO_DAYS, series="month")
    (part,) = week["parts"]
    assert (part["answer"]["n"], part["since"], part["until"]) == (450, "2026-11-01", "2026-11-03")
    by_phase = await asked(world, process, "p", where=AA, window=TWO_DAYS, series="phase")
    assert [one["answer"]["n"] for one in by_phase["parts"]] == [300, 150]
    quoted = await asked(world, process, "u", where=AA, window=TWO_DAYS, series="day", quote=True)
    assert (quoted["status"], quoted["privacy_loss"]["share"]) == ("quoted", 0.0)
    untold = await asked(world, process, "x", where=LATE, window=TWO_DAYS, series="day")
    assert untold["reason"]["code"] == "not_running"
    assert len(world.held("flights").transcript) == looks, "nothing is looked at"
