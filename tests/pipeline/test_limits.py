"""Who may ask at all, and how fast one analyst may ask and spend: by the minutes of the records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from stream_dp.errors import TooSoon
from stream_dp.messages import AnalystSpec
from stream_dp.pipeline.intake import backlog
from stream_dp.pipeline.intake.records import Record
from stream_dp.pipeline.spending import rate_limits
from stream_dp.pipeline.spending.rate_limits import AnalystLimits
from stream_dp.pipeline.watch.crash_points import CrashPoint
from tests.pipeline.conftest import Die
from tests.pipeline.flights import (
    AA,
    GONE,
    LATE,
    UNMEASURED,
    answered,
    next_phase,
    opened,
    ran,
    rejected,
)
from tests.pipeline.scenarios import DAY_MS, HURRIED, NOV_1
from tests.pipeline.trail import Sent

MINUTE_MS = 60_000


@pytest.fixture
def limited(world: Any) -> Callable[..., Any]:
    """``await limited(ana={...})``: a data set in its first phase, and what it allows to whom."""

    async def make(**analysts: Any) -> Any:
        world.now_ms = NOV_1
        return await opened(world, mechanism=UNMEASURED, analysts=analysts)

    return make


def _asks(world: Any, *query_ids: str, analyst: str = "ana", **item: Any) -> Any:
    return world.ask_many(
        "flights", [{"query_id": one, "where": AA, **item} for one in query_ids], analyst=analyst
    )


# ---------------------------------------------------------------- who may ask


async def test_whom_nothing_is_allowed_gets_nothing_whatever_they_ask(limited: Any) -> None:
    world = await limited(**{"ana": {}, "team-*": {}})
    _asks(world, "answer", "price", "tile", "invalid id", analyst="bob")
    _asks(world, "quoted", analyst="bob", quote=True)
    _asks(world, "stands", analyst="bob", standing=True)
    together = world.ask_many(
        "flights", [{"query_id": "a"}], analyst="bob", query_id="all", quote="together"
    )
    _asks(world, "mine")
    _asks(world, "ours", analyst="team-7")
    await world.run()
    assert answered(world) == {"mine", "ours"}
    assert set(rejected(world).values()) == {"not_allowed"}
    assert world.rejection(together)["reason"] == {
        "code": "not_allowed",
        "message": "analyst: this data set allows nothing to 'bob'; ask its owner to name you in analysts, "
        "or ask another data set",
        "retriable": False,
    }
    assert sum(map(max, world.held("flights").spent)) > 0
    assert world.complaints() == []


async def test_once_nothing_is_allowed_any_more_no_answer_is_sent_again(limited: Any) -> None:
    world = await limited(bob={}, ana={})
    _asks(world, "one", analyst="bob")
    _asks(world, "tile", analyst="bob", standing=True)
    await world.run()
    change = {"version": 1, "dataset": "flights", "change": "analysts", "analysts": {"ana": {}}}
    await ran(world, lambda world: world.produce("datasets", change))
    world.trail.clear()
    again = _asks(world, "one", analyst="bob")
    world.cells("flights", "two")
    await world.run()
    assert world.rejection(again)["reason"]["code"] == "not_allowed"
    assert world.released("answers") == []
    assert world.released("standing") == [None], "the standing query has ended"


# ---------------------------------------------------------------- queries a minute


async def test_queries_beyond_those_of_a_minute_are_rejected_and_may_come_again(
    limited: Any,
) -> None:
    world = await limited(ana={"queries_per_minute": 2})
    record = _asks(world, "a", "b", "c")
    await world.run()
    assert answered(world) == {"a", "b"}
    assert world.rejection(record)["reason"] == {
        "code": "too_many_queries",
        "message": "queries: 2 a minute are allowed to 'ana'; ask again from 2026-11-01T00:01Z on, under the "
        "same id",
        "retriable": True,
    }
    world.now_ms += MINUTE_MS
    _asks(world, "c")
    await world.run()
    assert answered(world) == {"a", "b", "c"}


async def test_each_analyst_of_a_pattern_has_a_limit_of_their_own(limited: Any) -> None:
    world = await limited(**{"team-*": {"queries_per_minute": 1}, "team-free": {}})
    for analyst in ("team-1", "team-2", "team-free"):
        _asks(world, f"{analyst}-a", f"{analyst}-b", analyst=analyst)
    await world.run()
    assert set(rejected(world)) == {"team-1-b", "team-2-b"}


async def test_what_was_answered_before_does_not_count_nor_what_is_not_valid(limited: Any) -> None:
    world = await limited(ana={"queries_per_minute": 2})
    _asks(world, "a", "a", "a", "no id")
    _asks(world, "a", where=LATE)  # the id of another query
    _asks(world, "b", quote=True)
    _asks(world, "a", "c")
    await world.run()
    assert rejected(world) == {"": "invalid_message", "a": "id_reused", "c": "too_many_queries"}
    assert len(world.released("answers")) == 5


async def test_a_refusal_and_the_begin_of_a_standing_query_count(limited: Any) -> None:
    world = await limited(ana={"queries_per_minute": 2})
    _asks(world, "refused", where={"attribute": "nothing", "eq": 1})
    _asks(world, "tile", "tile", standing=True)
    _asks(world, "more")
    world.ask("flights", "tile", standing=False)
    _asks(world, "tile", standing=True)
    await world.run()
    assert rejected(world) == {"more": "too_many_queries", "tile": "too_many_queries"}


async def test_answers_that_a_standing_query_gets_by_itself_count_for_nothing(limited: Any) -> None:
    world = await limited(ana={"queries_per_minute": 1, "spending_per_minute": 0.002})
    _asks(world, "tile", standing=True)
    await world.run()
    await next_phase(world, phases=2)
    paths = {reply["path"] for reply in world.released("answers")}
    assert answered(world) == {"tile@1", "tile@2", "tile@3"}
    assert paths == {"measured"}


async def test_queries_that_are_quoted_together_count_one_by_one(limited: Any) -> None:
    world = await limited(ana={"queries_per_minute": 3})

    def together(query_id: str, n: int) -> Any:
        items = [{"query_id": f"{k}", "where": AA} for k in range(n)]
        return world.ask_many("flights", items, query_id=query_id, quote="together")

    too_long, fits, beyond = together("x", 4), together("y", 2), together("z", 2)
    _asks(world, "a", "b")
    await world.run()
    assert "send fewer together" in world.rejection(too_long)["reason"]["message"]
    assert world.rejections().keys() >= {
        (r.topic, r.partition, r.offset) for r in (too_long, beyond)
    }
    assert (fits.topic, fits.partition, fits.offset) not in world.rejections()
    assert answered(world) == {"y", "a"}
    assert world.complaints() == []


async def test_the_minute_is_that_of_the_records_and_a_little_earlier_begins_no_other(
    limited: Any,
) -> None:
    """Leaders whose clocks differ a little may take turns."""
    world = await limited(ana={"queries_per_minute": 1})
    for query_id, moved_ms in (("a", 59_000), ("b", 1_000), ("c", -60_000), ("d", 119_999)):
        world.now_ms += moved_ms
        _asks(world, query_id)
    world.now_ms = -1  # a topic without times
    _asks(world, "e")
    await world.run()
    assert answered(world) == {"a", "b"}
    assert set(rejected(world).values()) == {"too_many_queries"}
    assert world.complaints() == []


async def test_a_clock_that_was_ahead_ends_nobodys_minutes(limited: Any) -> None:
    """One record a day ahead, and all were rejected until that day. It came again after a restart."""
    world = await limited(ana={"queries_per_minute": 1}, bob={"queries_per_minute": 1})
    _asks(world, "a")
    world.now_ms += DAY_MS
    _asks(world, "ahead", analyst="bob")
    world.now_ms -= DAY_MS - MINUTE_MS
    for minute in range(4):
        _asks(world, f"{minute}", f"{minute}-again")
        world.now_ms += MINUTE_MS
        if minute == 1:
            await world.run()  # another worker goes on
    await world.run()
    assert answered(world) == {"a", "ahead", *"0123"}
    assert set(rejected(world)) == {f"{minute}-again" for minute in range(4)}
    assert world.complaints() == []


async def test_what_was_used_of_a_minute_that_comes_twice_is_not_added_up(limited: Any) -> None:
    """Its place among the stored facts has the name of that minute, and of another time that it came."""
    world = await limited(**{"*": {"queries_per_minute": 1}})
    for day, query_id, analyst in (
        (0, "a", "ana"),
        (0, "b", "bob"),
        (1, "c", "ana"),
        (-1, "d", "eve"),
    ):
        world.now_ms += day * DAY_MS
        _asks(world, query_id, analyst=analyst)
    await world.run()
    _asks(world, "e", analyst="bob")
    await world.run()
    assert answered(world) == {*"abcde"}


async def test_a_time_that_is_no_date_is_no_reason_to_die(limited: Any) -> None:
    world = await limited(ana={"queries_per_minute": 1})
    world.now_ms = 2**63 - 1
    record = _asks(world, "a", "b")
    await world.run()
    assert "ask again in the next minute" in world.rejection(record)["reason"]["message"]


async def test_so_many_names_are_counted_in_a_minute(
    limited: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes a place among the stored facts, which the next minute uses again."""
    monkeypatch.setattr(rate_limits, "MOST_NAMES", 2)
    world = await limited(**{"*": {"queries_per_minute": 1}})
    for minute in range(3):
        for name in range(3):
            _asks(world, f"{minute}-{name}", analyst=f"{minute}-{name}")
        world.now_ms += MINUTE_MS
    await world.run()
    assert set(rejected(world)) == {"0-2", "1-2", "2-2"}
    held = world.held("flights").meta
    assert sorted(name for name in held if name.startswith("limits")) == [
        "limits",
        "limits 0",
        "limits 1",
    ]


# ---------------------------------------------------------------- answers that are sent again


def _tables(world: Any, *query_ids: str, analyst: str = "ana") -> Any:
    items = [{"query_id": one, "kind": "table", "group_by": ["carrier"]} for one in query_ids]
    return world.ask_many("flights", items, analyst=analyst)


def _sizes(world: Any) -> list[int]:
    """The lengths of the answers that have left."""
    sent = [event.outgoing for event in world.trail if isinstance(event, Sent)]
    return [len(one.value) for one in sent if one.role == "answers"]


async def test_answers_are_sent_again_up_to_so_many_bytes_a_minute(
    limited: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record of a hundred bytes is answered with megabytes, which the broker keeps for weeks."""
    world = await limited(ana={"queries_per_minute": 1}, bob={})
    _tables(world, "t")
    _tables(world, "t", analyst="bob")
    await world.run()
    size, _ = _sizes(world)
    monkeypatch.setattr(rate_limits, "MOST_AGAIN_BYTES", 3 * size)
    world.now_ms += MINUTE_MS
    world.trail.clear()
    record = _tables(world, *["t"] * 5)
    await world.run()  # what was sent again is known to the next worker
    later = _tables(world, "t")
    _tables(world, *["t"] * 5, analyst="bob")
    await world.run()
    assert len(world.released("answers")) == 3 + 5, "who has no limit has none here"
    for one in (record, later):
        assert world.rejection(one)["reason"] == {
            "code": "sent_again_too_fast",
            "message": f"queries: {3 * size:,} bytes of earlier answers a minute are sent again to 'ana'; "
            "ask again from 2026-11-01T00:02Z on, under the same id",
            "retriable": True,
        }
    world.now_ms += MINUTE_MS
    world.trail.clear()
    _tables(world, "t", "new")
    await world.run()
    assert len(world.released("answers")) == 2, "what is sent again counts as no query"


@pytest.mark.parametrize("item", [{}, {"standing": True}])
async def test_one_answer_of_any_size_is_sent_again_in_each_minute(
    limited: Any, monkeypatch: pytest.MonkeyPatch, item: dict[str, Any]
) -> None:
    """A standing query that begins again and again is no way around."""
    monkeypatch.setattr(rate_limits, "MOST_AGAIN_BYTES", 1)
    world = await limited(ana={"queries_per_minute": 9})
    for _ in range(4):
        _asks(world, "t", **item)
    await world.run()
    assert len(world.released("answers")) == 2
    assert set(rejected(world).values()) == {"sent_again_too_fast"}


# ---------------------------------------------------------------- spending a minute


async def test_what_a_standing_query_takes_when_it_begins_counts(limited: Any) -> None:
    """Otherwise one after the other could be begun, and the limit would bound nothing."""
    world = await limited(ana={"spending_per_minute": 0.002})
    for number, where in enumerate((AA, LATE, GONE)):
        _asks(world, f"tile-{number}", where=where, standing=True, fresh=True)
    await world.run()
    assert answered(world) == {"tile-0@1"}
    assert rejected(world) == {"tile-1": "spending_too_fast", "tile-2": "spending_too_fast"}
    assert len(world.released("standing")) == 2, "it began and was answered, and no other one began"
    assert world.complaints() == []


async def test_a_look_beyond_the_spending_of_a_minute_is_rejected_and_not_stored(
    limited: Any,
) -> None:
    world = await limited(ana={"spending_per_minute": 0.002}, bob={})
    _asks(world, "a")
    record = _asks(world, "b", where=GONE)
    _asks(world, "free")
    _asks(world, "other", analyst="bob", where=LATE)
    await world.run()
    assert world.rejection(record)["reason"] == {
        "code": "spending_too_fast",
        "message": "queries: 0.002 of a phase's budget a minute is allowed to 'ana'; ask again from "
        "2026-11-01T00:01Z on, under the same id",
        "retriable": True,
    }
    assert world.answer("free")["path"] == "repeat", "what costs nothing is answered all the same"
    assert world.answer("other")["path"] == "measured"
    spent = list(world.held("flights").spent)
    world.now_ms += MINUTE_MS
    _asks(world, "b", where=GONE)
    await world.run()
    assert world.answer("b")["path"] == "measured"
    assert world.held("flights").spent != spent
    assert world.complaints() == []


async def test_a_query_that_no_minute_has_room_for_says_so(limited: Any) -> None:
    world = await limited(ana={"spending_per_minute": 0.001})
    record = _asks(world, "dear")
    await world.run()
    reason = world.rejection(record)["reason"]
    assert reason["code"] == "spending_too_fast"
    assert not reason["retriable"]
    assert reason["message"].endswith(
        "ask for a larger error, or ask the owner for a larger spending_per_minute"
    )
    assert world.held("flights").spent == [(0, 0)]


async def test_a_series_goes_on_in_the_next_minute_behind_the_parts_that_are_paid(
    world: Any,
) -> None:
    every = {"every": "1 day", "timezone": "UTC", "min_rows": 100}
    analysts = {"ana": {"spending_per_minute": 0.0035}}  # two of the four days

    def define(world: Any) -> None:
        world.now_ms = NOV_1 + 7 * DAY_MS
        world.define("flights", mechanism={"base_share": 0.0}, phase=every, analysts=analysts)

    def days(world: Any) -> None:
        cells = [
            {"carrier": c, "delay": 3, "cancelled": False, "count": 10_500} for c in ("AA", "UA")
        ]
        for day in range(1, 6):
            world.batch("flights", f"{day}", cells=cells, time=f"2026-11-0{day}")

    await world.run(rounds=[define, days])
    minutes = 0
    while "days" not in answered(world):
        minutes += 1
        assert minutes < 4
        _asks(world, "days", series="day", window={"phases": [1, 4]})
        await world.run()
        world.now_ms += MINUTE_MS
    parts = world.answer("days")["parts"]
    assert minutes == 2
    assert [part["answer"]["path"] for part in parts] == [
        "repeat",
        "repeat",
        "measured",
        "measured",
    ]
    assert world.complaints() == []


# ---------------------------------------------------------------- what is stored


def test_stored_minutes_are_read_for_ever() -> None:
    """What the store has of them, as the first worker with limits wrote it; an older minute is over."""
    noted: dict[str, str] = {}
    stored = {
        "limits": "8 29891521 stream-dp.queries:0:5 6",
        "limits 0": "8 2 4661612305062 700 ana",
        "limits 1": "7 9 0 0 bob",
    }
    limits = AnalystLimits(stored, noted.__setitem__)
    analysts = {name: AnalystSpec(queries_per_minute=3) for name in ("ana", "bob")}
    record = Record(
        "queries", "stream-dp.queries", 0, 5, None, None, timestamp_ms=29891521 * 60_000
    )
    limits.enter(record, "ana", analysts)
    assert [limits.is_done(index) for index in (5, 6)] == [True, False]
    limits.admit()
    limits.count()
    limits.done(6)
    with pytest.raises(TooSoon):
        limits.admit()
    limits.enter(record, "bob", analysts)
    limits.admit(3)
    limits.count(3)
    assert noted == {
        "limits": "8 29891521 stream-dp.queries:0:5 7",
        "limits 0": "8 3 4661612305062 700 ana",
        "limits 1": "8 3 0 0 bob",
    }


# ---------------------------------------------------------------- crashes


async def test_minutes_without_a_crash(world: Any) -> None:
    assert await world.run(rounds=HURRIED) == 0
    assert world.complaints() == []
    codes = {reply["reason"]["code"] for reply in world.released("rejected")}
    assert codes >= {"not_allowed", "too_many_queries", "spending_too_fast"}


async def test_a_look_that_a_crash_loses_counts_from_the_first_charge_of_a_minute_on(
    limited: Any,
) -> None:
    world = await limited(ana={"spending_per_minute": 0.002})
    record = _asks(world, "a")
    assert await world.run(world.Fuse(0, CrashPoint.AFTER_CHARGE)) == 1
    assert world.rejection(record)["reason"]["code"] == "spending_too_fast"
    world.now_ms += MINUTE_MS
    _asks(world, "a")
    await world.run()
    assert world.answer("a")["path"] == "measured"
    assert world.complaints() == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
async def test_a_crash_anywhere_changes_no_count(
    die: Die, monkeypatch: pytest.MonkeyPatch, part: int
) -> None:
    """Records are cut in two by looks, by steps, and by large drafts. The referee counts again."""
    monkeypatch.setattr(backlog, "_STEP_QUERIES", 3)
    async for at, world in die(HURRIED, range(part, 10_000, 8), deaths=2, seed=part + 1):
        assert world.complaints() == [], at


def _forgets_where_it_was(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AnalystLimits, "is_done", lambda self, index: False)


def _counts_before(patch: pytest.MonkeyPatch) -> None:
    """Counts a query with the charge of its look, and so again if the look is lost."""
    pay = AnalystLimits.pay

    def too_early(self: AnalystLimits, charges: Any) -> None:
        self.count()
        pay(self, charges)

    patch.setattr(AnalystLimits, "pay", too_early)


def _keeps_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AnalystLimits, "done", lambda self, index: None)


@pytest.mark.parametrize("mistake", [_forgets_where_it_was, _counts_before, _keeps_nothing])
async def test_the_referee_sees_counts_that_are_wrong(
    make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, mistake: Callable[..., None]
) -> None:
    mistake(monkeypatch)
    for place in range(100):
        world = make_world()
        if not await world.run(world.Fuse(place, CrashPoint.AFTER_CHARGE), rounds=HURRIED):
            break
        if any(said.startswith(("P4", "P14")) for said in world.complaints()):
            return
    raise AssertionError("nothing was seen")
