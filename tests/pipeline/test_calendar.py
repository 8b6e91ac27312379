"""Phases by the calendar, windows by date, and series: they follow from what stands on the topics alone."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from stream_dp.audit import verify
from stream_dp.messages import Definition, PhaseSpec, QueryFields, SeriesAnswer, read_answer
from stream_dp.pipeline.datasets.transcript import opening
from stream_dp.pipeline.queries import compiler, query_answerer
from stream_dp.pipeline.rows.row_times import Gathering, Times, TimeSpan
from stream_dp.pipeline.watch.crash_points import CrashPoint
from tests.noise import SeededNoise
from tests.pipeline.conftest import Die
from tests.pipeline.held import held_of
from tests.pipeline.scenarios import BY_DAY, CALENDAR, DAY_MS, NOV_1

AA = {"attribute": "carrier", "eq": "AA"}
OF_FLIGHTS = [
    # (rows, since, until, late batches)
    (160, "2026-11-01", "2026-11-02", 0),
    (238, "2026-11-02", "2026-11-04", 2),
    (42_120, "2026-11-04", "2026-11-05", 0),
    (42_000, "2026-11-05", "2026-11-06", 0),
    (84_000, "2026-11-06", "2026-11-07", 0),
    (280, "2026-11-07", "2026-11-07", 2),
]


DIGESTS = {
    "all": "c581b5f0fb38a78461b47424cf82aabb",
    "last_phases": "79370eef2ea12ca2ca277775b54cac1f",
    "last": "2be4660eb46259a6b1e5a1d843724339",
    "phases": "f2319765c955212cf3cbd5bfc48786ad",
    "since": "a858c998a8c64a45144cc97571b42beb",
    "until": "7a9294fd5c7f98efa092a98e3268c42b",
    "series": "25a299075ff235a3a356fa1314dc4256",
    "series of a window": "0ddc895963c656b6ca8f9a8296f1ae4a",
}


def rows(n_rows: int) -> dict[str, list[Any]]:
    return {"carrier": ["AA"] * n_rows, "delay": [3] * n_rows, "cancelled": [False] * n_rows}


def phases(world: Any, dataset: str = "flights") -> list[tuple[Any, ...]]:
    opened = [event for event in world.events("phase_opened") if event["dataset"] == dataset]
    return [(e["rows"], e.get("since"), e.get("until"), e.get("late_batches")) for e in opened]


def durable(world: Any) -> dict[str, Any]:
    """What a replay must lead to again, byte for byte: blocks, outcomes of batches, and what opened."""
    found: dict[str, Any] = {}
    for name, held in sorted(held_of(world).items()):
        entries = [json.loads(entry) for entry in held.ledger]
        said = [entry for entry in entries if entry["kind"] == "phase"]
        opened = [
            event.outgoing.value
            for event in world.trail
            if hasattr(event, "outgoing")
            and event.outgoing.role == "events"
            and event.outgoing.key == name
            and b'"phase_' in event.outgoing.value
        ]
        found[name] = {
            "blocks": held.blocks,
            "waiting": held.waiting,
            "batches": dict(held.batches),
            "times": held.meta.get("times"),
            "events": list(dict.fromkeys(opened)),
            "transcript": [entry for entry in held.transcript if entry[:1] == b"\x00"],
            "ledger": [{k: v for k, v in e.items() if k not in ("seq", "prev")} for e in said],
            "queries": sorted(held.answers),
        }
    return found


# ---------------------------------------------------------------- phases


async def test_a_phase_holds_whole_periods_and_late_batches_join_the_open_one(world: Any) -> None:
    assert await world.run(rounds=CALENDAR) == 0
    assert world.complaints() == []
    assert phases(world) == OF_FLIGHTS
    entries = [bytes(entry) for entry in world.held("flights").ledger]
    assert verify("flights", entries).faults == []
    said = [entry for entry in map(json.loads, entries) if entry["kind"] == "phase"]
    assert [(e["since"], e["until"]) for e in said] == [(s, u) for _, s, u, _ in OF_FLIGHTS]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
async def test_a_crash_anywhere_leads_to_the_same_phases_ids_and_bytes(
    make_world: Callable[..., Any], die: Die, part: int
) -> None:
    """Batches are late, doubled and out of order, and periods are closed by batches and by messages."""
    untouched = make_world(seed=0)
    await untouched.run(rounds=CALENDAR)
    expected = durable(untouched)
    async for at, world in die(CALENDAR, range(part, 10_000, 4), seed=part + 1):
        assert world.complaints() == [], at
        assert durable(world) == expected, at


async def test_so_does_a_crash_at_a_named_point(make_world: Callable[..., Any], die: Die) -> None:
    untouched = make_world(seed=0)
    await untouched.run(rounds=CALENDAR)
    expected = durable(untouched)
    async for at, world in die(CALENDAR, {0, 9}, points=[*CrashPoint]):
        assert world.complaints() == [], at
        assert durable(world) == expected, at


async def test_a_worker_that_reads_a_clock_is_told_apart(
    make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The comparison can fail. Here a batch without a time has the one at which it is taken in, and a worker
    dies while it takes one.
    """
    span, seen = Times.span, []
    for place in (-1, -1, *range(200)):
        clock = itertools.count(NOV_1 + 4 * DAY_MS, DAY_MS // 8)

        def by_clock(self: Times, time: str | None, dated_ms: int, clock: Any = clock) -> Any:
            return span(self, time, next(clock) if time is None else dated_ms)

        monkeypatch.setattr(Times, "span", by_clock)
        world = make_world(seed=1)
        await world.run(world.Fuse(place, CrashPoint.BEFORE_APPEND), rounds=CALENDAR)
        seen.append(durable(world))
        if seen[-1] != seen[0]:
            break
    assert seen[0] == seen[1]
    assert seen[-1] != seen[0]


async def test_a_period_is_closed_only_if_enough_rows_wait(world: Any, process: Any) -> None:
    """A quarter of the rows that open a phase by themselves is enough."""
    world.define("flights", phase={**BY_DAY, "min_rows": 400})
    world.batch("flights", "one", columns=rows(99), time="2026-11-01")
    await process.run()
    too_early = world.produce("datasets", {"version": 1, "dataset": "flights", "close": True})
    await process.run()
    assert world.rejection(too_early)["reason"]["code"] == "too_few_rows"
    world.batch("flights", "two", columns=rows(1), time="2026-11-01")
    await process.run()
    world.produce("datasets", {"version": 1, "dataset": "flights", "close": True})
    await process.run()
    assert phases(world) == [(100, "2026-11-01", "2026-11-02", 0)]
    (closed,) = world.events("phase_closed")
    assert (closed["phase"], closed["since"], closed["until"]) == (1, "2026-11-01", "2026-11-02")
    world.batch("flights", "three", columns=rows(100), time="2026-11-02")
    close = {"version": 1, "dataset": "flights", "close": True}
    world.produce("datasets", {**close, "phase": 1})  # sent again, and nothing happens twice
    too_far = world.produce("datasets", {**close, "phase": 3})
    await process.run()
    assert world.rejection(too_far)["reason"]["code"] == "not_next"
    assert len(phases(world)) == 1
    world.produce("datasets", {**close, "phase": 2})
    await process.run()
    assert phases(world)[1:] == [(100, "2026-11-02", "2026-11-03", 0)]
    assert world.complaints() == []


@pytest.mark.parametrize("point", [CrashPoint.AFTER_COMMIT, CrashPoint.AFTER_APPEND])
async def test_a_closing_that_comes_right_behind_another_one_is_rejected_wherever_a_worker_dies(
    make_world: Callable[..., Any], point: CrashPoint
) -> None:
    """What it finds open is in no commit yet. That commit must not say that this message is done with."""

    def close_twice(world: Any) -> None:
        for _ in range(2):
            world.produce("datasets", {"version": 1, "dataset": "flights", "close": True})

    for place in range(1_000):
        world = make_world()
        rounds = (
            lambda world: world.define("flights", mechanism={"base_share": 0.0}, phase=BY_DAY),
            lambda world: world.batch("flights", "one", columns=rows(100), time="2026-11-01"),
            close_twice,
        )
        deaths = await world.run(world.Fuse(place, point), rounds=rounds)
        assert world.complaints() == [], place
        ((rejected,),) = world.rejections().values()
        assert rejected["reason"]["code"] == "too_few_rows"
        if not deaths:
            return
    raise AssertionError("there are more effects than places to die at")


async def test_a_batch_about_a_time_to_come_is_refused(world: Any, process: Any) -> None:
    """Else one typing error would end all periods before it, and every later batch would be late."""
    world.now_ms = NOV_1
    world.define("flights", phase=BY_DAY)
    world.batch("flights", "typo", columns=rows(1), time="2062-11-01")
    world.batch("flights", "soon", columns=rows(1), time="2026-11-02")
    world.batch("flights", "never", columns=rows(1), time="2026-13-01")
    await process.run()
    (refused,) = world.events("batch_refused")
    assert refused["batch_id"] == "typo"
    assert refused["reason"]["message"].startswith("time: it is more than a day after")
    assert [event["batch_id"] for event in world.events("batch_accepted")] == ["soon"]
    ((rejected,),) = world.rejections().values()
    assert rejected["reason"]["message"].startswith("time: it is neither a date")


async def test_phases_by_rows_alone_know_the_times_of_their_batches(
    world: Any, process: Any
) -> None:
    world.define("flights", phase={"min_rows": 100})
    for number, day in enumerate(("2026-11-02", "2026-11-01", "2026-11-01", "2026-11-03")):
        world.batch("flights", f"{number}", columns=rows(50), time=day)
    world.now_ms = NOV_1 + 3 * DAY_MS + 1
    world.batch("flights", "now", columns=rows(100))
    await process.run()
    assert phases(world) == [
        (100, "2026-11-01", "2026-11-03", None),
        (100, "2026-11-01", "2026-11-04", None),
        (100, "2026-11-04T00:00:00.001+00:00", "2026-11-04T00:00:00.002+00:00", None),
    ]


async def test_without_any_time_nothing_is_said_of_time(world: Any, process: Any) -> None:
    world.define("flights", phase={"min_rows": 100})
    world.batch("flights", "one", columns=rows(100))
    world.ask("flights", "by-date", AA, window={"last": "1 day"})
    await process.run()
    assert phases(world) == [(100, None, None, None)]
    assert "times" not in world.held("flights").meta
    world.ask("flights", "all", AA)
    world.ask("flights", "later", AA, window={"since": "2026-11-01"})
    await process.run()
    assert "since" not in world.answer("all")
    assert world.answer("later")["reason"]["message"].startswith("window: no phase has a date")


def test_transcripts_written_by_earlier_releases_stay_readable() -> None:
    assert opening(b"\x0021000") == (21_000, None)
    assert opening(b"\x00160 1793487600000 1793574000000") == (
        160,
        TimeSpan(1_793_487_600_000, 1_793_574_000_000),
    )


def test_what_is_known_of_waiting_rows_stays_readable() -> None:
    assert Gathering.from_text("") == Gathering()
    text = '{"since": 1, "until": 2, "closed": 1, "late": 3}'
    assert Gathering.from_text(text) == Gathering(1, 2, 1, 3)
    assert Gathering(1, 2, 1, 3).to_text() == text


def test_a_batch_of_a_gap_between_periods_is_late_once_a_later_period_is_open() -> None:
    times = Times(PhaseSpec(min_rows=1, every="1 day"))
    day = [TimeSpan(n * DAY_MS, (n + 1) * DAY_MS) for n in range(5)]
    waiting = times.with_batch(Gathering(closed=DAY_MS), day[3])
    assert waiting == Gathering(day[3].since, day[3].until, DAY_MS)
    assert times.with_batch(waiting, day[2]).late == 1
    assert times.ends(waiting, day[4])
    assert not times.ends(waiting, day[3])
    assert times.after_phase(waiting) == Gathering(closed=day[3].until)


# ---------------------------------------------------------------- windows


@pytest.fixture
async def days(world: Any, process: Any) -> Any:
    """Ten days of flights; the 4th joined the 5th, and the 10th is open."""
    world.define("flights", mechanism={"base_share": 0.0}, phase=BY_DAY)
    for day in range(1, 11):
        n_rows = 50 if day == 4 else 1_000 * day
        world.batch("flights", f"{day}", columns=rows(n_rows), time=f"2026-11-{day:02}")
    await process.run()
    return world


@pytest.mark.parametrize(
    ("window", "covers"),
    [
        ({"last": "1 day"}, (8, 8, "2026-11-09", "2026-11-10")),
        ({"last": "4 days"}, (5, 8, "2026-11-06", "2026-11-10")),
        ({"last": "1 week"}, (3, 8, "2026-11-03", "2026-11-10")),
        ({"last": "1 month"}, (1, 8, "2026-11-01", "2026-11-10")),
        ({"since": "2026-11-06"}, (5, 8, "2026-11-06", "2026-11-10")),
        ({"until": "2026-11-03"}, (1, 2, "2026-11-01", "2026-11-03")),
        ({"since": "2026-11-02", "until": "2026-11-06"}, (2, 4, "2026-11-02", "2026-11-06")),
        ({"since": "2026-11-07T23:00:00+00:00"}, (7, 8, "2026-11-08", "2026-11-10")),
        ({"phases": [2, 4]}, (2, 4, "2026-11-02", "2026-11-06")),
        ({"last_phases": 2}, (7, 8, "2026-11-08", "2026-11-10")),
    ],
)
async def test_a_window_holds_whole_phases_and_says_their_dates(
    days: Any, process: Any, window: Any, covers: tuple[int, int, str, str]
) -> None:
    days.ask("flights", "q", AA, window=window)
    days.ask("flights", "price", AA, window=window, quote=True)
    await process.run()
    for name in ("q", "price"):
        answer = days.answer(name)
        assert (*answer["window"], answer["since"], answer["until"]) == covers
    # Each row is of AA, so the answer says whether the rows are those of the window.
    sizes = [1_000, 2_000, 3_000, 5_050, 6_000, 7_000, 8_000, 9_000]
    assert days.answer("q")["n"] == sum(sizes[covers[0] - 1 : covers[1]])


@pytest.mark.parametrize(
    ("window", "code", "words"),
    [
        (
            {"since": "2026-11-05"},
            "invalid_query",
            "a window holds whole phases; ask since 2026-11-04 until 2026-11-10 or since 2026-11-06 until",
        ),
        ({"last": "5 days"}, "invalid_query", "window: it cuts the phase since 2026-11-04"),
        ({"until": "2026-11-11"}, "not_complete", "phases are open until 2026-11-10"),
        ({"since": "2026-11-10"}, "not_complete", "phases are open until 2026-11-10"),
        ({"phases": [3, 9]}, "not_complete", "phase 8 is the newest one"),
        ({"since": "2026-10-01", "until": "2026-10-05"}, "invalid_query", "no phase lies in it"),
    ],
)
async def test_a_window_that_is_not_whole_phases_is_refused_in_words(
    days: Any, process: Any, window: Any, code: str, words: str
) -> None:
    days.ask("flights", "q", AA, window=window)
    await process.run()
    reason = days.answer("q")["reason"]
    assert reason["code"] == code
    assert words in reason["message"]
    assert reason["retriable"] == (code == "not_complete")


async def test_one_id_is_for_one_window(days: Any, process: Any) -> None:
    windows: list[Any] = [
        {"last": "1 day"},
        {"last_phases": 1},
        {"phases": [8, 8]},
        {"since": "2026-11-09"},
        {"since": "2026-11-09", "until": "2026-11-10"},
    ]
    for number, window in enumerate(windows):
        days.ask("flights", f"{number}", AA, window=window)
    await process.run()
    records = [
        days.ask("flights", f"{number}", AA, window=windows[number - 1])
        for number in range(len(windows))
    ]
    again = days.ask("flights", "0", AA, window=windows[0], series="day")
    await process.run()
    for record in (*records, again):
        assert days.rejection(record)["reason"]["code"] == "id_reused"
    assert days.complaints() == []


async def test_a_difference_takes_away_the_same_time_before(days: Any, process: Any) -> None:
    compared = {"kind": "difference", "error": 0.4}
    week = {"window": {"last": "2 days"}, "minus_window": {"previous": "2 days"}}
    days.ask("flights", "q", AA, **compared, **week)
    cut = {"window": {"last": "2 days"}, "minus_window": {"previous": "3 days"}}
    days.ask("flights", "cut", AA, **compared, **cut)
    await process.run()
    answer = days.answer("q")
    assert (answer["window"], answer["since"], answer["until"]) == (
        [7, 8],
        "2026-11-08",
        "2026-11-10",
    )
    assert answer["minus_window"] == [5, 6]
    assert days.answer("cut")["reason"]["message"].startswith("minus_window: it cuts the phase")


async def test_an_interrupted_window_of_out_of_order_phases_is_refused(
    world: Any, process: Any
) -> None:
    world.define("flights", phase={"min_rows": 100})
    for number, day in enumerate(("01", "20", "02")):
        world.batch("flights", f"{number}", columns=rows(100), time=f"2026-11-{day}")
    await process.run()
    world.ask("flights", "q", AA, window={"since": "2026-11-01", "until": "2026-11-05"})
    await process.run()
    assert "between its phases lie others" in world.answer("q")["reason"]["message"]


# ---------------------------------------------------------------- series


async def test_a_series_has_a_part_for_each_day_with_its_own_bar(days: Any, process: Any) -> None:
    late = {"attribute": "delay", "ge": 10}
    days.ask("flights", "q", late, series="day", window={"since": "2026-11-03"})
    await process.run()
    answer = days.answer("q")
    assert (answer["kind"], answer["path"], answer["series"]) == ("series", "series", "day")
    assert [(part["since"], part["until"]) for part in answer["parts"]] == [
        ("2026-11-03", "2026-11-04"),
        ("2026-11-04", "2026-11-06"),
        *((f"2026-11-{day:02}", f"2026-11-{day + 1:02}") for day in range(6, 10)),
    ]
    for part in answer["parts"]:
        assert part["answer"]["window"] == part["window"]
        assert part["answer"]["error_bar"] is not None
    assert days.complaints() == []


async def test_a_series_costs_what_its_dearest_part_costs(days: Any, process: Any) -> None:
    """Its parts pay on different lines. The same parts one by one cost as much."""
    late = {"attribute": "delay", "ge": 10}
    precise = {"series": "phase", "error": 0.01, "window": {"phases": [5, 8]}}
    days.ask("flights", "price", late, **precise, quote=True)
    days.ask("flights", "q", late, **precise)
    await process.run()
    answer, quote = days.answer("q"), days.answer("price")
    shares = [part["answer"]["privacy_loss"]["share"] for part in answer["parts"]]
    assert min(shares) > 0
    assert answer["privacy_loss"] == quote["privacy_loss"] == {"share": max(shares), "blocks": 4}
    spent = [max(line) / 2**50 for line in days.held("flights").spent][4:]
    assert spent == pytest.approx(shares)


async def test_weeks_are_made_of_whole_phases(days: Any, process: Any) -> None:
    days.ask("flights", "q", AA, series="week", group_by=["cancelled"], kind="table")
    await process.run()
    parts = days.answer("q")["parts"]
    # 2026-11-01 is a Sunday.
    assert [part["window"] for part in parts] == [[1, 1], [2, 7], [8, 8]]
    assert all(len(part["answer"]["table"]["values"]) == 2 for part in parts)


async def test_a_part_that_is_refused_does_not_refuse_the_others(world: Any, process: Any) -> None:
    world.define(
        "flights",
        mechanism={"base_share": 0.0},
        phase=BY_DAY,
        retention={"phases": 1},
        on_exhausted="refuse",
    )
    for day in (1, 2, 3):
        world.batch("flights", f"{day}", columns=rows(5_000), time=f"2026-11-{day:02}")
    await process.run()
    world.ask("flights", "q", {"attribute": "delay", "ge": 10}, series="day")
    world.ask("flights", "old", AA, series="day", window={"until": "2026-11-02"})
    await process.run()
    first, second = world.answer("q")["parts"]
    assert first["answer"]["reason"]["code"] == "rows_erased"
    assert second["answer"]["status"] == "answered"
    assert world.answer("old")["status"] == "refused"
    assert isinstance(read_answer(world.answer("q")), SeriesAnswer)


@pytest.mark.parametrize("kind", ["difference", "median"])
async def test_other_kinds_have_no_series(days: Any, process: Any, kind: str) -> None:
    fields: dict[str, dict[str, Any]] = {
        "difference": {"minus_window": {"previous": "1 day"}, "window": {"last": "1 day"}},
        "median": {"attribute": "delay"},
    }
    asked = days.ask("flights", "q", None, kind=kind, series="day", **fields[kind])
    await process.run()
    assert "has no series" in days.rejection(asked)["reason"]["message"]


async def test_a_series_that_would_not_fit_into_a_record_is_refused(
    days: Any, process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_answerer, "MOST_PARTS", 7)
    days.ask("flights", "long", AA, series="day")
    monkeypatch.setattr(compiler, "MOST_CELLS", 40)
    days.ask("flights", "wide", None, kind="table", group_by=["delay"], series="week")
    days.ask("flights", "fits", None, kind="table", group_by=["delay"], series="month")
    await process.run()
    assert "more than 7 parts" in days.answer("long")["reason"]["message"]
    assert days.answer("wide")["reason"]["code"] == "too_many_cells"
    assert days.answer("fits")["status"] == "answered"


async def test_bars_of_windows_that_end_before_the_newest_phase_cover_the_truth(
    make_world: Callable[..., Any],
) -> None:
    """Each day has another share, so the answer about another window would be outside."""
    world = make_world()
    world.make_noise = SeededNoise
    accuracy = {"error": 0.02, "failure_probability": 1e-6}
    world.define("flights", mechanism={"base_share": 0.002}, phase=BY_DAY, accuracy=accuracy)
    for day in range(1, 7):
        late = [n % 10 < day for n in range(6_000)]
        columns = {"carrier": ["AA"] * 6_000, "delay": [3] * 6_000, "cancelled": late}
        world.batch("flights", f"{day}", columns=columns, time=f"2026-11-{day:02}")
    windows = [(first, last) for last in range(1, 6) for first in range(1, last + 1)]
    process = world.process()
    await process.assign()
    await process.run()
    for first, last in windows:
        window = {"window": {"phases": [first, last]}}
        world.ask("flights", f"{first}-{last}", {"attribute": "cancelled", "eq": True}, **window)
    await process.run()
    await process.kill()
    for first, last in windows:
        answer = world.answer(f"{first}-{last}")
        assert answer["window"] == [first, last]
        assert answer["error_bar"] <= 0.02
        assert abs(answer["value"] - (first + last) / 20) <= answer["error_bar"]
    assert world.complaints() == []


def test_the_digest_of_a_request_is_for_ever() -> None:
    """Answers are stored with it: those to the windows of earlier releases, and to these."""
    digests = {}
    asked: dict[str, dict[str, Any]] = {
        "all": {},
        "last_phases": {"window": {"last_phases": 7}},
        "last": {"window": {"last": "7 days"}},
        "phases": {"window": {"phases": [3, 7]}},
        "since": {"window": {"since": "2026-11-01"}},
        "until": {"window": {"until": "2026-11-01"}},
        "series": {"series": "day"},
        "series of a window": {"window": {"last_phases": 7}, "series": "day"},
    }
    for name, fields in asked.items():
        query = QueryFields.read({"query_id": "q", **fields})
        digests[name] = query_answerer._digest(query, (b"key",)).hex()
    assert len(set(digests.values())) == len(digests)
    assert digests == DIGESTS


def test_a_definition_with_a_calendar_is_read_and_written_for_ever() -> None:
    golden = Path(__file__).parents[1] / "golden/definitions/calendar-v1.json"
    stored = golden.read_bytes()
    definition = Definition.read(json.loads(stored))
    assert definition.to_bytes() == stored
    assert definition.phase == PhaseSpec(min_rows=1000, every="1 day", timezone="Europe/Berlin")


def test_a_time_of_zero_is_one_and_a_time_of_the_far_future_is_none() -> None:
    waiting = Gathering(since=0, until=86_400_000, closed=0)
    assert Gathering.from_text(waiting.to_text()) == waiting
    times = Times(PhaseSpec(min_rows=1))
    assert times.span(None, 0) == TimeSpan(0, 1)
    assert times.span(None, 1_790_000_000_000_000) is None, "these are microseconds"


async def test_a_series_whose_labels_would_not_fit_into_a_record_is_refused(
    world: Any, process: Any
) -> None:
    values = [f"{number:03}" + "x" * 250 for number in range(200)]
    attributes = [{"name": "long", "type": "category", "values": values}]
    world.define("flights", attributes=attributes, phase={"min_rows": 1})
    await process.run()
    for number in range(60):
        world.batch("flights", f"b{number}", rows=[{"long": values[0]}])
    await process.run()
    table = {"kind": "table", "group_by": ["long"], "series": "phase"}
    world.ask("flights", "few", None, **table, window={"last_phases": 2})
    world.ask("flights", "many", None, **table)
    await process.run()
    found = {one["query_id"]: one for one in world.released("answers")}
    assert found["few"]["kind"] == "series"
    assert found["many"]["reason"]["code"] == "too_many_cells"
    assert "labels included" in found["many"]["reason"]["message"]
