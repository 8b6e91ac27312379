"""Phases by the calendar, windows by date, and series: they follow from what stands on the topics alone."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from stream_dp.audit import verify
from stream_dp.messages import Definition, PhaseSpec, QueryFields, SeriesAnswer, read_answer
from stream_dp.pipeline.datasets.transcript import opening
from stream_dp.pipeline.queries import compiler, query_answerer
from stream_dp.pipeline.rows.waiting.row_times import Gathering, Period, Times, TimeSpan
from stream_dp.pipeline.watch.crash_points import CrashPoint
from tests.noise import SeededNoise
from tests.pipeline.flights import AA, GONE, LATE, UNMEASURED, asked, assert_said, judged, ran
from tests.pipeline.scenarios import BY_DAY, CALENDAR, DAY_MS, NOV_1
from tests.pipeline.world import definition

pytestmark = judged

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


CLOSE: dict[str, Any] = {"version": 1, "dataset": "flights", "close": True}


def rows(n_rows: int) -> dict[str, list[Any]]:
    return {"carrier": ["AA"] * n_rows, "delay": [3] * n_rows, "cancelled": [False] * n_rows}


def phases(world: Any, dataset: str = "flights") -> list[tuple[Any, ...]]:
    opened = [event for event in world.events("phase_opened") if event["dataset"] == dataset]
    return [(e["rows"], e.get("since"), e.get("until"), e.get("late_batches")) for e in opened]


# ---------------------------------------------------------------- phases


async def test_a_phase_holds_whole_periods_and_late_batches_join_the_open_one(world: Any) -> None:
    assert await world.run(rounds=CALENDAR) == 0
    assert world.complaints() == []
    assert phases(world) == OF_FLIGHTS
    entries = [bytes(entry) for entry in world.held("flights").ledger]
    assert verify("flights", entries).faults == []
    said = [entry for entry in map(json.loads, entries) if entry["kind"] == "phase"]
    assert [(e["since"], e["until"]) for e in said] == [(s, u) for _, s, u, _ in OF_FLIGHTS]


async def test_a_worker_that_reads_a_clock_is_told_apart(
    make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sweep of crashes can fail. Here a batch without a time has the one at which it is taken in, and a
    worker dies while it takes one.
    """
    span = Times.span
    for place in range(200):
        clock = itertools.count(NOV_1 + 4 * DAY_MS, DAY_MS // 8)

        def by_clock(self: Times, time: str | None, dated_ms: int, clock: Any = clock) -> Any:
            return span(self, time, next(clock) if time is None else dated_ms)

        monkeypatch.setattr(Times, "span", by_clock)
        world = make_world(seed=1)
        await world.run(world.Fuse(place, CrashPoint.BEFORE_APPEND), rounds=CALENDAR)
        if world.complaints():
            return
    raise AssertionError("nothing was seen")


async def test_a_period_is_closed_only_if_enough_rows_wait(world: Any, process: Any) -> None:
    """A quarter of the rows that open a phase by themselves is enough."""
    world.define("flights", phase={**BY_DAY, "min_rows": 400})
    world.batch("flights", "one", columns=rows(99), time="2026-11-01")
    await process.run()
    too_early = world.produce("datasets", CLOSE)
    await process.run()
    assert world.rejection(too_early)["reason"]["code"] == "too_few_rows"
    world.batch("flights", "two", columns=rows(1), time="2026-11-01")
    await process.run()
    await ran(process, lambda world: world.produce("datasets", CLOSE))
    assert phases(world) == [(100, "2026-11-01", "2026-11-02", 0)]
    (closed,) = world.events("phase_closed")
    assert (closed["phase"], closed["since"], closed["until"]) == (1, "2026-11-01", "2026-11-02")
    world.batch("flights", "three", columns=rows(100), time="2026-11-02")
    world.produce("datasets", {**CLOSE, "phase": 1})  # sent again, and nothing happens twice
    too_far = world.produce("datasets", {**CLOSE, "phase": 3})
    await process.run()
    assert world.rejection(too_far)["reason"]["code"] == "not_next"
    assert len(phases(world)) == 1
    await ran(process, lambda world: world.produce("datasets", {**CLOSE, "phase": 2}))
    assert phases(world)[1:] == [(100, "2026-11-02", "2026-11-03", 0)]


@pytest.mark.parametrize("point", [CrashPoint.AFTER_COMMIT, CrashPoint.AFTER_APPEND])
async def test_a_closing_that_comes_right_behind_another_one_is_rejected_wherever_a_worker_dies(
    make_world: Callable[..., Any], point: CrashPoint
) -> None:
    """What it finds open is in no commit yet. That commit must not say that this message is done with."""

    def close_twice(world: Any) -> None:
        for _ in range(2):
            world.produce("datasets", CLOSE)

    for place in range(1_000):
        world = make_world()
        rounds = (
            lambda world: world.define("flights", mechanism=UNMEASURED, phase=BY_DAY),
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


def test_what_is_known_of_waiting_rows_is_frozen() -> None:
    assert Gathering.from_text("") == Gathering()
    text = '{"periods": [[1, 2, 4], [2, 3, null]], "closed": 0, "late": 3, "now": 3}'
    known = Gathering((Period(1, 2, 4), Period(2, 3)), 0, 3, 3)
    assert Gathering.from_text(text) == known
    assert known.to_text() == text
    assert Gathering().to_text() == "{}"


def test_a_batch_of_a_gap_between_periods_is_late_once_a_later_period_is_open() -> None:
    times = Times(PhaseSpec(min_rows=1, every="1 day"))
    day = [TimeSpan(n * DAY_MS, (n + 1) * DAY_MS) for n in range(6)]
    waiting, period = times.with_batch(Gathering(closed=DAY_MS), day[3])
    assert waiting == Gathering((Period(day[3].since, day[3].until),), DAY_MS)
    assert period == day[3].since
    assert not times.ends(waiting, day[3])
    assert times.ends(waiting, day[5])
    closed = times.after_phase(waiting, day[5])
    assert closed == Gathering(closed=day[5].since)
    assert times.with_batch(closed, day[4]) == (replace(closed, late=1), 0)
    assert times.after_phase(waiting) == Gathering(closed=day[3].until)


# ---------------------------------------------------------------- rows that are too few


def opened_rows(world: Any) -> list[int]:
    return [event["rows"] for event in world.events("phase_opened")]


async def test_the_last_rows_of_a_table_open_a_phase_when_they_are_told_to(
    world: Any, process: Any
) -> None:
    world.define("flights", phase={"min_rows": 400})
    for batch, n_rows in enumerate((400, 99)):
        world.batch("flights", f"{batch}", columns=rows(n_rows))
    await process.run()
    too_few = world.produce("datasets", CLOSE)
    await process.run()
    assert world.rejection(too_few)["reason"]["code"] == "too_few_rows"
    assert "A quarter of phase.min_rows is enough" in world.rejection(too_few)["reason"]["message"]
    world.batch("flights", "one-more", columns=rows(1))
    world.produce("datasets", {**CLOSE, "phase": 2})
    await process.run()
    world.produce("datasets", {**CLOSE, "phase": 2})  # sent again, and nothing happens twice
    await process.run()
    assert opened_rows(world) == [400, 100]
    assert {event["phase"] for event in world.events("phase_closed")} == {2}
    world.ask("flights", "all", {"attribute": "carrier", "eq": "AA"})
    world.batch("flights", "later", columns=rows(399))
    await process.run()
    assert world.answer("all")["n"] == 500
    assert opened_rows(world) == [400, 100], (
        "rows by themselves still open a phase at min_rows alone"
    )


@pytest.mark.parametrize(("waiting", "sizes"), [(101, []), (100, [100])])
async def test_rows_for_which_delta_is_large_wait_until_they_open_a_phase_by_themselves(
    world: Any, process: Any, waiting: int, sizes: list[int]
) -> None:
    """A delta that is usual for the rows that wait is enough, although it is not for min_rows."""
    world.define("flights", privacy={"epsilon": 1.0, "delta": 1e-4}, phase={"min_rows": 400})
    world.batch("flights", "one", columns=rows(waiting))
    await process.run()
    world.produce("datasets", CLOSE)
    await process.run()
    assert opened_rows(world) == sizes
    assert len(world.rejections()) == 1 - len(sizes)


async def test_a_phase_that_would_take_what_is_kept_for_somebody_is_not_opened(
    world: Any, process: Any
) -> None:
    """Few rows have a dearer opening. Here it is within what is left at 4,000 rows, and not at 1,000."""
    analysts = {"ann": {"share": 0.985}}
    world.define("flights", phase={"min_rows": 4_000}, analysts=analysts, accuracy={"error": 0.1})
    world.batch("flights", "one", columns=rows(1_000))
    await process.run()
    refused = world.produce("datasets", CLOSE)
    await process.run()
    assert world.rejection(refused)["reason"]["code"] == "too_few_rows"
    world.batch("flights", "two", columns=rows(3_000))
    await process.run()
    assert opened_rows(world) == [4_000]


@pytest.mark.parametrize(
    ("min_rows", "delta", "waiting", "least"),
    [
        (20_000, 1e-9, 7_782, 5_000),
        (20_001, 1e-9, 7_782, 5_001),
        (20_000, 1e-5, 1_000, 5_000),
        (20_000, 1e-5, 1_001, 20_000),
        (1, 0.0, 0, 1),
    ],
)
def test_a_quarter_is_enough_where_delta_is_as_small_as_usual(
    min_rows: int, delta: float, waiting: int, least: int
) -> None:
    more = {"privacy": {"epsilon": 1.0, "delta": delta}, "phase": {"min_rows": min_rows}}
    assert Definition.read(definition("flights", **more)).least_to_close(waiting) == least


# ---------------------------------------------------------------- windows


@pytest.fixture
async def days(world: Any, process: Any) -> Any:
    """Ten days of flights; the 4th joined the 5th, and the 10th is open."""
    world.define("flights", mechanism=UNMEASURED, phase=BY_DAY)
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
    query = {"where": AA, "window": window}
    price, answer = await asked(process, {**query, "quote": True}, query)
    for reply in (price, answer):
        assert (*reply["window"], reply["since"], reply["until"]) == covers
    # Each row is of AA, so the answer says whether the rows are those of the window.
    sizes = [1_000, 2_000, 3_000, 5_050, 6_000, 7_000, 8_000, 9_000]
    assert answer["n"] == sum(sizes[covers[0] - 1 : covers[1]])


CUTS: list[tuple[dict[str, Any], str, str]] = [
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
]


async def test_a_window_that_is_not_whole_phases_is_refused_in_words(
    days: Any, process: Any
) -> None:
    cases: list[Any] = [({"where": AA, "window": w}, code, words) for w, code, words in CUTS]
    cut = {"window": {"last": "2 days"}, "minus_window": {"previous": "3 days"}}
    difference = {"kind": "difference", "where": AA, **cut}
    cases.append((difference, "invalid_query", "minus_window: it cuts the phase"))
    of_median: dict[str, Any] = {"kind": "median", "attribute": "delay", "series": "day"}
    of_two = {**difference, "minus_window": {"previous": "2 days"}, "series": "day"}
    cases += [(query, "invalid_message", "has no series") for query in (of_median, of_two)]
    await assert_said(process, cases)
    reasons = [answer["reason"] for answer in days.answers().values()]
    assert [reason["retriable"] for reason in reasons] == [
        reason["code"] == "not_complete" for reason in reasons
    ]


async def test_one_id_is_for_one_window(days: Any, process: Any) -> None:
    windows: list[Any] = [
        {"last": "1 day"},
        {"last_phases": 1},
        {"phases": [8, 8]},
        {"since": "2026-11-09"},
        {"since": "2026-11-09", "until": "2026-11-10"},
    ]
    queries = [{"query_id": f"{n}", "where": AA, "window": w} for n, w in enumerate(windows)]
    await asked(process, *queries)
    others = [{**query, "window": windows[n - 1]} for n, query in enumerate(queries)]
    await assert_said(process, [(other, "id_reused", "") for other in others])
    await assert_said(process, [({**queries[0], "series": "day"}, "id_reused", "")])


async def test_a_difference_takes_away_the_same_time_before(days: Any, process: Any) -> None:
    two = {"window": {"last": "2 days"}, "minus_window": {"previous": "2 days"}}
    [answer] = await asked(process, {"kind": "difference", "where": AA, "error": 0.4, **two})
    assert (answer["since"], answer["until"]) == ("2026-11-08", "2026-11-10")
    assert (answer["window"], answer["minus_window"]) == ([7, 8], [5, 6])


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
    query = {"where": LATE, "series": "day", "window": {"since": "2026-11-03"}}
    [answer] = await asked(process, query)
    assert (answer["kind"], answer["path"], answer["series"]) == ("series", "series", "day")
    assert [(part["since"], part["until"]) for part in answer["parts"]] == [
        ("2026-11-03", "2026-11-04"),
        ("2026-11-04", "2026-11-06"),
        *((f"2026-11-{day:02}", f"2026-11-{day + 1:02}") for day in range(6, 10)),
    ]
    for part in answer["parts"]:
        assert part["answer"]["window"] == part["window"]
        assert part["answer"]["error_bar"] is not None


async def test_a_series_costs_what_its_dearest_part_costs(days: Any, process: Any) -> None:
    """Its parts pay on different lines. The same parts one by one cost as much."""
    window = {"window": {"phases": [5, 8]}}
    precise = {"where": LATE, "series": "phase", "error": 0.01, **window}
    quote, answer = await asked(process, {**precise, "quote": True}, precise)
    shares = [part["answer"]["privacy_loss"]["share"] for part in answer["parts"]]
    assert min(shares) > 0
    assert answer["privacy_loss"] == quote["privacy_loss"] == {"share": max(shares), "blocks": 4}
    spent = [max(line) / 2**50 for line in days.held("flights").spent][4:]
    assert spent == pytest.approx(shares)


async def test_weeks_are_made_of_whole_phases(days: Any, process: Any) -> None:
    weeks = {"kind": "table", "group_by": ["cancelled"], "where": AA, "series": "week"}
    parts = (await asked(process, weeks))[0]["parts"]
    # 2026-11-01 is a Sunday.
    assert [part["window"] for part in parts] == [[1, 1], [2, 7], [8, 8]]
    assert all(len(part["answer"]["table"]["values"]) == 2 for part in parts)


async def test_a_part_that_is_refused_does_not_refuse_the_others(world: Any, process: Any) -> None:
    world.define(
        "flights",
        mechanism=UNMEASURED,
        phase=BY_DAY,
        retention={"phases": 1},
        on_exhausted="refuse",
    )
    for day in (1, 2, 3):
        world.batch("flights", f"{day}", columns=rows(5_000), time=f"2026-11-{day:02}")
    await process.run()
    before = {"where": AA, "series": "day", "window": {"until": "2026-11-02"}}
    series, old = await asked(process, {"where": LATE, "series": "day"}, before)
    first, second = series["parts"]
    assert first["answer"]["reason"]["code"] == "rows_erased"
    assert second["answer"]["status"] == "answered"
    assert old["status"] == "refused"
    assert isinstance(read_answer(series), SeriesAnswer)


async def test_a_series_that_would_not_fit_into_a_record_is_refused(
    days: Any, process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(query_answerer, "MOST_PARTS", 7)
    monkeypatch.setattr(compiler, "MOST_CELLS", 40)
    table = {"kind": "table", "group_by": ["delay"]}
    queries = ({"where": AA, "series": "day"}, table | {"series": "week"})
    long, wide, fits = await asked(process, *queries, table | {"series": "month"})
    assert "more than 7 parts" in long["reason"]["message"]
    assert wide["reason"]["code"] == "too_many_cells"
    assert fits["status"] == "answered"


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
    process = await world.owner()
    await process.run()
    queries = ({"where": GONE, "window": {"phases": list(window)}} for window in windows)
    answers = await asked(process, *queries)
    await process.kill()
    for (first, last), answer in zip(windows, answers, strict=True):
        assert answer["window"] == [first, last]
        assert answer["error_bar"] <= 0.02
        assert abs(answer["value"] - (first + last) / 20) <= answer["error_bar"]


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


def test_a_time_of_zero_is_one_and_a_time_of_the_far_future_is_none() -> None:
    waiting = Gathering((Period(0, 86_400_000),), closed=0)
    assert Gathering.from_text(waiting.to_text()) == waiting
    times = Times(PhaseSpec(min_rows=1))
    assert times.span(None, 0) == TimeSpan(0, 1)
    assert times.span(None, 1_790_000_000_000_000) is None, "these are microseconds"


async def test_a_series_whose_labels_would_not_fit_into_a_record_is_refused(
    world: Any, process: Any
) -> None:
    values = [f"{number:03}" + "x" * 250 for number in range(200)]
    attributes = [{"name": "long", "type": "category", "values": values}]
    await ran(process, lambda w: w.define("flights", attributes=attributes, phase={"min_rows": 1}))
    for number in range(60):
        world.batch("flights", f"b{number}", rows=[{"long": values[0]}])
    await process.run()
    table = {"kind": "table", "group_by": ["long"], "series": "phase"}
    few, many = await asked(process, {**table, "window": {"last_phases": 2}}, table)
    assert few["kind"] == "series"
    assert many["reason"]["code"] == "too_many_cells"
    assert "labels included" in many["reason"]["message"]
