"""Rows that come to the phase of their own period after it has closed."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable
from datetime import date
from itertools import product
from typing import Any

import numpy as np
import pytest

from stream_dp.core.rows.person_slots import Slots
from stream_dp.pipeline.rows.person_allowance import Used
from tests.pipeline.clocked import BY_CLOCK, SENT_LATE, at, clock, columns
from tests.pipeline.flights import judged
from tests.pipeline.test_calendar import phases
from tests.pipeline.test_clock import come
from tests.pipeline.test_found_values import PAGES, columns_of, rows_of

pytestmark = judged

LATE = {**BY_CLOCK, "late": {"within": "3 days"}}
UNIT = {"key": "customer", "rows_per_phase": 2, "phases": 1}
ME = np.full(12, 7, dtype=np.uint8)


def slots(mine: int, others: int = 0) -> Slots:
    """Rows of one person, and one row of each of some others."""
    theirs = np.repeat(np.arange(others, dtype=np.uint8)[:, None] + 100, 12, axis=1)
    digests = np.concatenate([np.tile(ME, (mine, 1)), theirs])
    return Slots(digests, np.arange(len(digests), dtype=np.uint32))


async def tell(world: Any, process: Any, when_ms: int) -> None:
    """The clock is read at a time."""
    world.now_ms = when_ms
    clock(world)
    await process.run()


def where(world: Any) -> list[tuple[Any, ...]]:
    return [
        (e["batch_id"], e["waiting"], e["late"], e.get("late_phase"))
        for e in world.events("batch_accepted")
    ]


def complete(world: Any) -> list[tuple[Any, ...]]:
    return [(e["phase"], e["rows"], e["since"], e["until"]) for e in world.events("phase_complete")]


async def test_late_rows_come_to_the_phase_of_their_day_once_it_is_complete(
    world: Any, process: Any
) -> None:
    world.define("flights", phase=LATE)
    await come(world, process, at(1, 9), ("2026-11-01", 120))
    await come(world, process, at(2, 9), ("2026-11-02", 100))
    await come(world, process, at(2, 10), ("2026-11-01", 30))
    await come(world, process, at(3, 9), ("2026-11-03", 110), ("2026-11-01", 12), ("2026-10-30", 5))
    assert [one[0] for one in phases(world)] == [120, 100]
    assert where(world) == [
        ("01-120", 120, False, None),
        ("02-100", 100, False, None),
        ("01-30", 100, True, 1),
        ("03-110", 110, False, None),
        ("01-12", 110, True, 1),
        ("30-5", 115, True, None),
    ]
    await tell(world, process, at(5, 0))
    assert complete(world) == [(1, 42, "2026-11-01", "2026-11-02")]
    await tell(world, process, at(6, 0))
    assert complete(world)[1:] == [(2, 0, "2026-11-02", "2026-11-03")]


async def test_nothing_is_wrong_where_no_worker_dies(world: Any) -> None:
    assert await world.run(rounds=SENT_LATE) == 0
    assert world.complaints() == []
    opened = [rows for rows, *_ in phases(world, "flights")]
    assert opened == [120, 130, 116, 135, 109, 149, 101]
    came = [98, 45, 0, 17, 11, 0]
    for name in ("flights", "trains"):
        told = [one for one in world.events("phase_complete") if one["dataset"] == name]
        assert [one["rows"] for one in told] == came
    # The third phase is of other attributes; the first and second got their rows before these changed.
    gone = [event for event in world.events() if event["dataset"] == "flights"]
    kinds = [(event["event"], event["phase"]) for event in gone if "phase" in event]
    assert kinds.index(("phase_complete", 2)) + 1 == kinds.index(("schema_changed", 4))


# ---------------------------------------------------------------- what answers say

AA_ROWS = {"attribute": "carrier", "eq": "AA"}
EXACT = {"privacy": {"epsilon": 20.0, "delta": 1e-6}}


async def ask(world: Any, process: Any, name: str, **more: Any) -> dict[str, Any]:
    world.ask("flights", name, AA_ROWS, **more)
    await process.run()
    return world.answer(name)


async def test_answers_count_late_rows_from_then_on_and_say_until_when_some_wait(
    world: Any, process: Any
) -> None:
    """The bar of 20 rows is that of what was measured, of all rows both times."""
    world.define("flights", phase=LATE, **EXACT)
    await come(world, process, at(1, 9), ("2026-11-01", 400))
    await come(world, process, at(2, 9), ("2026-11-02", 100))
    precise = {"error": {"value": 20}}
    first = await ask(world, process, "first", **precise)
    assert first["n"] == 400
    assert abs(first["count"] - 200) <= 2 * first["error_bar"] * 400
    assert ("late_waiting" in first, first["complete_at"]) == (False, "2026-11-05")
    assert (await ask(world, process, "again", **precise))["count"] == first["count"]
    await come(world, process, at(3, 1), ("2026-11-01", 300))
    waiting = await ask(world, process, "waiting", **precise)
    assert (waiting["late_waiting"], waiting["complete_at"]) == (300, "2026-11-05")
    assert waiting["count"] == first["count"], "these rows do not count yet"
    dated = {"window": {"since": "2026-11-01", "until": "2026-11-02"}}
    await tell(world, process, at(5, 0))
    after = await ask(world, process, "after", **precise, **dated)
    assert after["n"] == 700
    assert abs(after["count"] - 350) <= 2 * after["error_bar"] * 700
    assert "late_waiting" not in after
    assert "complete_at" not in after
    both = await ask(world, process, "both", **precise)
    assert (both["n"], both["complete_at"]) == (800, "2026-11-06")


async def test_the_same_id_keeps_its_answer_and_another_one_counts_the_late_rows(
    world: Any, process: Any
) -> None:
    """An old answer is not given after its phase has got late rows, although the window is the same."""
    world.define("flights", phase=LATE, mechanism={"base_share": 0.0}, **EXACT)
    await come(world, process, at(1, 9), ("2026-11-01", 400))
    await come(world, process, at(2, 9), ("2026-11-02", 100), ("2026-11-01", 600))
    precise = {"error": 0.05}
    before = await ask(world, process, "before", **precise)
    await tell(world, process, at(5, 0))
    dated = {"window": {"phases": [1, 1]}}
    after = await ask(world, process, "after", **precise, **dated)
    assert (before["n"], after["n"]) == (400, 1000)
    assert abs(after["count"] - 500) <= 2 * after["error_bar"] * 1000
    assert after["difficulty"] == "hard", "nothing was measured of the late rows"
    repeated = await ask(world, process, "repeated", **precise, **dated)
    assert (repeated["difficulty"], repeated["count"]) == ("easy", after["count"])


async def test_a_known_reply_says_how_many_late_rows_wait_by_now(world: Any, process: Any) -> None:
    world.define("flights", phase=LATE, **EXACT)
    await come(world, process, at(1, 9), ("2026-11-01", 400))
    await come(world, process, at(2, 9), ("2026-11-02", 100))
    for number in range(3):
        assert "late_waiting" not in await ask(world, process, f"none-{number}")
    await come(world, process, at(2, 10), ("2026-11-01", 7))
    assert (await ask(world, process, "some"))["late_waiting"] == 7


# ---------------------------------------------------------------- what it costs


def charges(world: Any, phase: int) -> list[tuple[list[str], int]]:
    """What was charged to the line of a phase: the looks of each charge, and the units."""
    return [
        ([look["kind"] for look in entry["looks"]], rho)
        for entry in map(json.loads, world.held("flights").ledger)
        if entry["kind"] == "charge"
        for block, rho, _ in entry["charges"]
        if block == phase - 1
    ]


async def test_a_phase_is_measured_again_with_its_late_rows_and_only_then(
    world: Any, process: Any
) -> None:
    world.define("flights", phase=LATE, mechanism={"base_share": 0.2}, **EXACT)
    await come(world, process, at(1, 9), ("2026-11-01", 400))
    await come(world, process, at(2, 9), ("2026-11-02", 300))
    await come(world, process, at(3, 9), ("2026-11-03", 300), ("2026-11-01", 50))
    await tell(world, process, at(6, 0))
    (opening, again), (only,) = charges(world, 1), charges(world, 2)
    assert opening == again
    assert only[0] == ["tables"]
    entries = [json.loads(entry) for entry in world.held("flights").ledger]
    late = [(one["phase"], one["rows"]) for one in entries if one["kind"] == "late"]
    assert late == [(1, 50), (2, 0)]


async def test_no_query_takes_what_is_kept_to_measure_a_phase_again(
    world: Any, process: Any
) -> None:
    world.define(
        "flights", phase=LATE, mechanism={"base_share": 0.3}, on_exhausted="refuse", **EXACT
    )
    await come(world, process, at(1, 9), ("2026-11-01", 400))
    await come(world, process, at(2, 9), ("2026-11-02", 300), ("2026-11-01", 50))
    for number in range(8):
        last = await ask(world, process, f"some-{number}", error={"value": 2.5}, fresh=True)
    assert last["status"] == "refused"
    assert "late rows" in last["reason"]["message"]
    await tell(world, process, at(5, 0))
    spent = [units for looks, units in charges(world, 1) if looks == ["tables"]]
    assert len(spent) == 2, "the phase is measured again"


async def test_running_totals_are_measured_again_with_the_late_rows(
    world: Any, process: Any
) -> None:
    """Without a base release nothing else says how many rows each carrier has."""
    tiles = [{"group_by": ["carrier"]}]
    running = {"every": "6 hours", "within_rows": 40, "tiles": tiles}
    world.define("flights", phase=LATE, running=running, mechanism={"base_share": 0.0}, **EXACT)
    await come(world, process, at(1, 5), ("2026-11-01", 400))
    await come(world, process, at(2, 9), ("2026-11-02", 300), ("2026-11-01", 200))
    await tell(world, process, at(5, 0))
    told = await ask(world, process, "after", window={"phases": [1, 1]}, error={"value": 40})
    assert told["difficulty"] == "easy"
    assert abs(told["count"] - 300) <= 40
    assert told["error_bar"] * 600 <= 40


# ---------------------------------------------------------------- persons


async def test_rows_of_a_person_count_up_to_the_bound_late_ones_among_them(
    world: Any, process: Any
) -> None:
    """Each of 150 persons has a row on time and five late; two count. The referee counts slot by slot."""
    world.define(
        "flights",
        phase=LATE,
        mechanism={"base_share": 0.0},
        privacy={"epsilon": 20.0, "delta": 1e-6, "unit": UNIT},
    )

    async def sent(day: int, batch_id: str, n_rows: int) -> None:
        given = columns(n_rows) | {"customer": [f"c{n % 150}" for n in range(n_rows)]}
        world.batch("flights", batch_id, columns=given, time=f"2026-11-{day:02}")
        await process.run()

    world.now_ms = at(1, 9)
    await sent(1, "on-time", 150)
    world.now_ms = at(2, 9)
    await sent(2, "next", 150)
    for number in range(5):
        await sent(1, f"late-{number}", 150)
    assert [what for what in world.held("flights").named() if what.startswith("counted 1")]
    await tell(world, process, at(5, 0))
    assert not [what for what in world.held("flights").named() if what.startswith("counted 1")]
    told = await ask(world, process, "persons", window={"phases": [1, 1]}, error={"value": 20})
    assert told["n"] == 900
    assert abs(told["counted"] - 300) <= 2 * told["counted_bar"]


@pytest.mark.parametrize(("on_time", "late"), list(product(range(4), range(4))))
def test_the_rows_that_count_of_a_person_follow_from_their_own_alone(
    on_time: int, late: int
) -> None:
    """docs/proofs, Theorem 37, for two rows a phase: whatever others send, and however rows split."""
    first = slots(on_time, others=3)
    then = slots(late, others=5)
    marks = first.counted(2)
    used = Used.one_each(first.digests, marks)
    more = then.counted(2 - used.of(then.digests))
    mine = [int(m[(s.digests == ME).all(axis=1)].sum()) for m, s in ((marks, first), (more, then))]
    assert mine == [min(on_time, 2), min(late, 2 - min(on_time, 2))]
    alone = slots(late).counted(
        2 - Used.one_each(ME[None], np.ones(1, bool)).of(slots(late).digests)
    )
    assert alone.sum() == min(late, 1)


# ---------------------------------------------------------------- definitions


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"phase": {**BY_CLOCK, "close": None, "late": {"within": "2 days"}}}, "close"),
        ({"phase": {**BY_CLOCK, "late": {"within": "1 hour"}}}, "late.within"),
        ({"phase": LATE, "retention": {"phases": 2}}, "retention.phases"),
        ({"phase": LATE, "mechanism": {"profile": "counts"}}, "phase.late"),
        ({"phase": LATE, "privacy": {"unit": {**UNIT, "lifetime": True}}}, "lifetime"),
    ],
)
async def test_late_rows_that_cannot_be_taken_are_refused(
    world: Any, process: Any, changes: dict[str, Any], said: str
) -> None:
    if "privacy" in changes:
        changes = {**changes, "privacy": {"epsilon": 1.0, "delta": 1e-9, **changes["privacy"]}}
    refused = world.define("flights", **changes)
    await process.run()
    assert said in world.rejection(refused)["reason"]["message"]


# ---------------------------------------------------------------- the same for all who read the log


def arrivals(seed: int) -> list[tuple[int, int, int]]:
    """Batches of two weeks in order: when each came, in hours, the day it is about, and its rows."""
    draw = random.Random(seed)
    found = []
    for number in range(60):
        about = draw.randrange(1, 14)
        hours = 24 * (about - 1) + draw.choice([9, 15, 23, 30, 60, 90, 130]) + number / 100
        found.append((round(100 * hours), about, draw.choice([30, 120, 150])))
    return sorted(found)


def told(world: Any) -> list[tuple[Any, ...]]:
    """What follows from the log: which phases opened and were complete, in order, and with how many rows."""
    kinds = ("phase_opened", "phase_complete")
    return [
        (e["event"], e["phase"], e["rows"], e["since"], e["until"])
        for e in world.events()
        if e["event"] in kinds
    ]


async def lived(world: Any, process: Any, log: list[tuple[int, int, int]], *clocks: int) -> Any:
    """A life in which the clock is read at some hours, besides when batches come; and at last."""
    world.define("flights", phase=LATE, mechanism={"base_share": 0.0})
    steps: list[tuple[int, Any]] = [(100 * hour, None) for hour in clocks]
    steps += [(at_hour, (day, n_rows)) for at_hour, day, n_rows in log]
    for number, (hundredths, batch) in enumerate(sorted(steps, key=lambda step: step[0])):
        world.now_ms = at(1) + 36_000 * hundredths
        if batch is None:
            clock(world)
        else:
            given = columns(batch[1])
            world.batch("flights", f"b{number}", columns=given, time=f"2026-11-{batch[0]:02}")
    world.now_ms = at(30)
    clock(world)
    await process.run()
    return told(world)


@pytest.mark.parametrize("seed", range(4))
async def test_the_clock_may_be_read_often_or_a_month_later(
    make_world: Callable[..., Any], seed: int
) -> None:
    """A worker that was away for weeks reads the same phases, with the same late rows, in the same order."""
    log, found = arrivals(seed), []
    for clocks in ((), range(500), range(7, 500, 31)):
        world = make_world(seed=1)
        process = await world.owner()
        found.append(await lived(world, process, log, *clocks))
        assert world.complaints() == []
    assert found[0] == found[1] == found[2]
    late = [rows for kind, _, rows, *_ in found[0] if kind == "phase_complete"]
    assert sum(late) > 100


@pytest.mark.parametrize("seed", range(4))
async def test_every_row_up_to_three_days_late_is_in_windows_of_its_day_once(
    world: Any, process: Any, seed: int
) -> None:
    """Each day has rows on time, so that it has a phase of its own."""
    log = [(2400 * (day - 1) + 600, day, 100) for day in range(1, 14)] + arrivals(seed)
    await lived(world, process, sorted(log))
    expected: Counter[int] = Counter()
    for hundredths, day, n_rows in log:
        if hundredths < 2400 * (day + 3):  # three days after its end, by the clock of the batch
            expected[day] += n_rows
    counted: Counter[int] = Counter()
    for _, _, rows, since, until in told(world):
        assert (date.fromisoformat(until) - date.fromisoformat(since)).days == 1
        counted[int(since[-2:])] += rows
    too_late = sum(n_rows for *_, n_rows in log) - expected.total()
    assert (counted - expected).total() + world_waits(world) == too_late
    assert not expected - counted


def world_waits(world: Any) -> int:
    return int(world.events("batch_accepted")[-1]["waiting"])


# ---------------------------------------------------------------- values that are found


async def test_late_rows_are_in_the_cells_that_their_phase_has(world: Any, process: Any) -> None:
    """A value that was found in a later phase has no cell in this one, for late rows as for all others."""
    phase = {**LATE, "min_rows": 1_000}
    world.define("visits", **{**PAGES, "phase": phase})

    async def visits(when_ms: int, day: int, **pages: int) -> None:
        world.now_ms = when_ms
        rows = rows_of({f"/{page}": n for page, n in pages.items()})
        world.batch("visits", f"{when_ms}-{day}", rows=rows, time=f"2026-11-{day:02}")
        await process.run()

    await visits(at(1, 9), 1, home=900, a=500)
    await visits(at(2, 9), 2, home=1_000, new=400)
    await visits(at(3, 9), 3, home=1_100)
    await visits(at(3, 10), 1, home=100, new=300)
    world.now_ms = at(5, 0)
    clock(world, "visits")
    await process.run()
    assert [(e["phase"], e["rows"]) for e in world.events("phase_complete")] == [(1, 400)]
    window = {"phases": [1, 1]}
    world.ask("visits", "q", kind="table", group_by=["page"], window=window, error={"value": 60})
    await process.run()
    told = world.answer("q")
    assert told["n"] == 1_800
    found = columns_of(told, "lows", "highs")
    for page, count in {"/home": 1_000, "/a": 500, "other": 300}.items():
        assert found[page][0] <= count <= found[page][1], page
