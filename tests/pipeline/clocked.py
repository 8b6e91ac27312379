"""Scenarios in which the broker's clock closes periods, and rows of several periods wait at a time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from tests.pipeline.scenarios import BY_DAY, DAY_MS, NOV_1
from tests.pipeline.world import World

HOUR_MS = DAY_MS // 24
BY_CLOCK = {**BY_DAY, "close": {"after": "2 hours"}}

CARRIER = {"name": "carrier", "type": "category", "values": ["AA", "UA"]}
WIDER = {**CARRIER, "values": ["AA", "UA", "DL"]}
DELAY = {"name": "delay", "type": "number", "edges": [0, 10, 30], "missing": True}
CANCELLED = {"name": "cancelled", "type": "boolean"}
GATE: dict[str, Any] = {"name": "gate", "type": "category", "values": ["A", "B"], "missing": True}

UNITS: dict[str, dict[str, Any]] = {
    "flights": {},
    "trains": {"unit": {"key": "customer", "rows_per_phase": 3, "phases": 1, "lifetime": True}},
}


def at(day: int, hours: float = 0) -> int:
    """A time in November, at so many hours of a day in Berlin."""
    return NOV_1 + (day - 1) * DAY_MS + round((hours - 1) * HOUR_MS)


def clock(world: World, name: str = "flights") -> object:
    """A record of an owner that has the clock read."""
    return world.produce("batches", {"version": 1, "dataset": name, "clock": True})


def columns(n_rows: int, **more: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {
        "carrier": ["AA", "DL"] * (n_rows // 2) + ["UA"] * (n_rows % 2),
        "delay": [number % 40 for number in range(n_rows)],
        "cancelled": [False] * n_rows,
    }
    return found | {name: [value] * n_rows for name, value in more.items()}


def arrive(world: World, day: int, n_rows: int, **more: Any) -> None:
    """Rows about a day come to both data sets, twice; one batch after the other has another id."""
    batch_id = f"{world.now_ms}-{day}-{n_rows}"
    of_persons = [f"c{number}" for number in range(n_rows)]
    for name in UNITS:
        given = columns(n_rows, **more)
        if UNITS[name]:
            given["customer"] = of_persons
        for _ in range(2):
            world.batch(name, batch_id, columns=given, time=f"2026-11-{day:02}")


def when(
    day: int,
    hours: float,
    *rows: tuple[int, int],
    clocks: int = 0,
    come: Callable[[World, int, int], None] = arrive,
) -> Callable[[World], None]:
    """At an hour rows of some days come, each so many; and before them the clock is read so often."""

    def step(world: World) -> None:
        world.now_ms = at(day, hours)
        for _ in range(clocks):
            for name in UNITS:
                clock(world, name)
        for about, n_rows in rows:
            come(world, about, n_rows)

    return step


def define_one(world: World, name: str, unit: dict[str, Any], **more: Any) -> None:
    given: dict[str, Any] = {
        "mechanism": {"base_share": 0.001 if name == "flights" else 0.0},
        "privacy": {"epsilon": 20.0, "delta": 1e-6, **unit},
        "attributes": [CARRIER, DELAY, CANCELLED],
        "phase": BY_CLOCK,
    }
    world.define(name, **given | more)


def define(world: World) -> None:
    world.now_ms = at(1)
    for name, unit in UNITS.items():
        define_one(world, name, unit)
    world.ask("flights", "tile", {"attribute": "carrier", "eq": "AA"}, standing=True)


def change(world: World) -> None:
    """A carrier gets a cell and a column comes, while the rows of two days wait."""
    for name in UNITS:
        world.change_schema(name, [WIDER, DELAY, CANCELLED, GATE])


def with_gates(world: World) -> None:
    for day, n_rows, gate in ((3, 30, "A"), (4, 22, "B"), (3, 24, "B")):
        arrive(world, day, n_rows, gate=gate)


def ask(world: World) -> None:
    offset = world.next_offset("queries", "flights")
    for name in UNITS:
        about = {"at_most": 0.2, "error": {"value": 40}}
        world.ask(name, f"dl-{offset}", {"attribute": "carrier", "eq": "DL"}, **about)
        world.ask(name, f"each-{offset}", {"attribute": "delay", "ge": 10}, series="day", **about)


CLOCKED = (
    define,
    when(1, 9, (1, 80)),
    when(2, 1, (2, 40), (1, 30)),  # the day before is still open
    when(2, 2, clocks=2),  # it closes, and another record changes nothing
    when(2, 3, (1, 20), (2, 90)),  # its rows are late
    when(3, 1.5, (3, 10)),
    change,
    with_gates,
    when(3, 2, clocks=1),
    ask,
    when(4, 2.5, (4, 30), clocks=1),  # the third day has too few rows, and joins the fourth
    when(5, 0.5, (5, 12)),
    when(5, 2, clocks=1),
    when(7, 3, (7, 120)),  # the fifth day was due: it has too few rows, and joins
    when(8, 2, clocks=1),
    ask,
)


# ---------------------------------------------------------------- running totals

RUNNING: dict[str, Any] = {
    "every": "6 hours",
    "within_rows": 10,
    "tiles": [{"group_by": ["carrier"]}, {"where": {"attribute": "cancelled", "eq": True}}],
}
OF_PERSONS = {"unit": {"key": "customer", "rows_per_phase": 2, "phases": 2}}


def run(world: World) -> None:
    world.now_ms = at(1)
    define_one(world, "flights", {}, running=RUNNING)
    define_one(world, "trains", OF_PERSONS, running={**RUNNING, "within_rows": 40})


def often(day: int, hours: float, n_rows: int) -> Callable[[World], None]:
    """Rows of few persons come at an hour of their day, once as ours and once as theirs."""

    def step(world: World) -> None:
        world.now_ms = at(day, hours)
        about = f"2026-11-{day - (hours < 2 and day > 1):02}"
        for name in UNITS:
            given = columns(n_rows) | {"cancelled": [n % 3 == 0 for n in range(n_rows)]}
            if name == "trains":
                given["customer"] = [f"c{n // 3}" for n in range(n_rows)]
            world.batch(name, f"{world.now_ms}", columns=given, time=about)

    return step


TICKED = (
    run,
    often(1, 7, 900),
    when(1, 12, clocks=2),
    often(1, 13, 600),
    often(1, 13.5, 330),
    when(1, 18.1, clocks=1),
    ask,
    often(2, 1, 240),  # of the day before
    often(2, 7, 1200),  # it closes here, and a new one begins
    when(2, 18, clocks=1),
    often(2, 20, 300),
    when(3, 2, clocks=1),
    ask,
)


# ---------------------------------------------------------------- late rows

BY_CLOCK_LATE = {**BY_CLOCK, "late": {"within": "2 days"}}


def take_late(world: World) -> None:
    world.now_ms = at(1)
    erased = {"retention": {"phases": 2}}
    define_one(world, "flights", {}, phase=BY_CLOCK_LATE, **erased)
    define_one(world, "trains", OF_PERSONS, phase=BY_CLOCK_LATE, mechanism={"base_share": 0.01})
    world.ask("flights", "tile", {"attribute": "carrier", "eq": "AA"}, standing=True)


def by_few(world: World, day: int, n_rows: int) -> None:
    """Rows about a day come to both data sets, up to three of a person."""
    for name in UNITS:
        given = columns(n_rows)
        if name == "trains":
            given["customer"] = [f"c{n // 3}" for n in range(n_rows)]
        batch_id = f"{world.now_ms}-{day}-{n_rows}"
        world.batch(name, batch_id, columns=given, time=f"2026-11-{day:02}")


some = partial(when, come=by_few)

SENT_LATE = (
    take_late,
    some(1, 9, (1, 120)),
    some(2, 9, (2, 130), (1, 8)),  # the first day has closed, and gets these late
    ask,
    some(3, 9, (3, 110), (1, 90), (2, 40)),  # so many that some become a lot
    some(3, 10, (2, 5)),
    change,  # both phases get their late rows at once
    some(3, 11, (2, 6)),  # these are of other attributes than the second phase
    some(4, 1, clocks=1),  # the first one would be complete now
    ask,
    some(4, 9, (4, 125), (3, 10)),
    some(5, 9, (5, 105), (4, 15), (3, 4)),
    some(
        6, 2, clocks=2
    ),  # the third is complete, and then the fifth opens, by which the third is erased
    some(6, 9, (6, 140), (3, 9), (5, 11), (4, 2)),  # the third is complete, and takes no more
    ask,
    some(9, 9, (9, 101), clocks=1),
    some(10, 2, (6, 3), clocks=1),
    ask,
)
