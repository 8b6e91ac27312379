"""The records that clients send, round by round, in the runs that crash and the runs of broken protocols.

Each round is produced when the one before is done, as by clients that wait for replies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from stream_dp.pipeline.intake.records import Record
from tests.pipeline import orders, people
from tests.pipeline.world import World

AA = {"attribute": "carrier", "eq": "AA"}
UA = {"attribute": "carrier", "eq": "UA"}
LATE = {"attribute": "delay", "ge": 10}
LAST = {"window": {"last_phases": 1}}

_KEPT = {"unit": 0.5, "low": -10, "high": 60}
MEASURED: list[dict[str, Any]] = [
    {"name": "carrier", "type": "category", "values": ["AA", "UA"]},
    {"name": "delay", "type": "number", "edges": [0, 10, 30], "missing": True, "measure": _KEPT},
]
"""Attributes of which one keeps its values."""

# ---------------------------------------------------------------- steps of which tests make rounds


FLIGHTS: dict[str, Any] = {"mechanism": {"base_share": 0.0}, "on_exhausted": "refuse"}
"""A data set that looks at nothing but for a query."""


def flights(world: World, **changes: Any) -> Record:
    return world.define("flights", **{**FLIGHTS, **changes})


def phase(world: World) -> None:
    """A batch that opens a phase, each of another size."""
    number = world.next_offset("batches", "flights")
    world.cells("flights", f"batch-{number}", n=1 + number)


def asks(query_id: str, where: Any = AA, **item: Any) -> Callable[[World], object]:
    return lambda world: world.ask("flights", query_id, where, **item)


# ---------------------------------------------------------------- scenarios


def _define(world: World) -> None:
    world.define("flights", mechanism={"base_share": 0.0005})
    world.define("trains", mechanism={"base_share": 0.0})
    world.batch("late", "early", rows=[{"carrier": "AA"}])  # not defined yet
    world.ask("late", "early", AA)
    world.define("wrong", accuracy={"error": 2.0})
    world.ask("flights", "before", AA)


def _gather(world: World) -> None:
    world.define("late")
    world.batch("flights", "rows", rows=[{"carrier": "AA", "delay": 3}, {"delay": None}])
    world.batch("flights", "columns", columns={c: [1] for c in ("carrier", "delay", "cancelled")})
    world.batch("flights", "bad", columns={"carrier": ["AA"]})
    world.cells("trains", "one")
    world.cells("trains", "two")
    world.batch("trains", "one", rows=[])
    world.batch("late", "early", rows=[{"carrier": "AA"}])
    world.define("flights", mechanism={"base_share": 0.0005})


def _ask(world: World) -> None:
    world.cells("flights", "first")
    world.ask("flights", "aa", AA)
    world.ask("flights", "either", {"any": [AA, LATE]})
    world.ask_many(
        "flights",
        [
            {"query_id": "by", "kind": "table", "group_by": ["carrier"]},
            {"query_id": "cut", "where": {"attribute": "delay", "ge": 7}},
            {"query_id": "broken", "where": 5},
            {"query_id": "window", "where": LATE, "window": {"last_phases": 9}},
            {"query_id": "price", "where": {"any": [AA, LATE]}, "quote": True},
        ],
    )
    world.ask("trains", "aa", AA)
    world.ask("trains", "aa", LATE)
    world.ask("trains", "late", LATE, window={"last_phases": 1})


def _again(world: World) -> None:
    world.ask("flights", "aa", AA)
    world.ask("flights", "aa-again", AA)
    world.cells("flights", "second")
    world.ask("flights", "either-now", {"any": [AA, LATE]})
    world.produce("datasets", None, key="trains")
    world.produce("queries", b"{", key="flights")
    world.ask("trains", "gone", AA)


def _last(world: World) -> None:
    world.produce("datasets", None, key="trains")
    world.ask("flights", "last", LATE)


ROUNDS = (_define, _gather, _ask, _again, _last)


def _memory(world: World) -> None:
    world.define_memory("thesis")


def _memory_phase(world: World) -> None:
    cells = [{"carrier": "AA", "count": 800_000}, {"carrier": "UA", "count": 400_000}]
    world.batch("thesis", f"batch-{world.next_offset('batches', 'thesis')}", cells=cells)


def _memory_ask(world: World) -> None:
    offset = world.next_offset("queries", "thesis")
    world.ask("thesis", f"one-{offset}", AA)
    world.ask("thesis", f"two-{offset}", {"attribute": "cancelled", "eq": False})
    world.ask("thesis", f"two-{offset}", {"attribute": "cancelled", "eq": False})


THESIS = (_memory, _memory_phase, _memory_ask, _memory_phase, _memory_ask)


def _doubling(world: World) -> None:
    """Defines a first stage of two queries. The second round of them begins the next stage."""
    world.define_papers(
        "thesis", profile="sequential", queries_per_phase=2, phases=2, doubling=True, **SMALL
    )


def _large_phase(world: World) -> None:
    cells = [{"carrier": "AA", "count": 80_000_000}, {"carrier": "UA", "count": 40_000_000}]
    world.batch("thesis", f"batch-{world.next_offset('batches', 'thesis')}", cells=cells)


SMALL = {"hypothesis_rows": 3, "representation": "exhaustive"}
DOUBLED = (_doubling, _large_phase, _memory_ask, _memory_ask, _large_phase, _memory_ask)


def _gated(world: World) -> None:
    world.define("flights", mechanism={"profile": "gated", "segments": 20})


def _gated_phase(world: World) -> None:
    world.cells("flights", f"batch-{world.next_offset('batches', 'flights')}", n=100)


def _gated_ask(world: World) -> None:
    """Asks about all rows, where the prediction stands, and about one carrier, where at first it does not."""
    offset = world.next_offset("queries", "flights")
    for n, where in enumerate((None, AA, None, LATE, None)):
        world.ask("flights", f"{offset}-{n}", where)


GATED = (_gated, _gated_phase, _gated_ask, _gated_phase, _gated_ask)


def _staged(world: World) -> None:
    world.define("flights", mechanism={"base_share": 0.0})


def _staged_ask(world: World) -> None:
    """Several looks a query: pilots, and a final look that stands alone."""
    offset = world.next_offset("queries", "flights")
    for n, where in enumerate((AA, LATE)):
        for error in ({"relative": 0.05}, {"relative": 0.04}, 0.01):
            world.ask("flights", f"{offset}-{n}-{error}".replace(" ", ""), where, error=error)
    mean = {"kind": "sum", "attribute": "delay", "error": {"mean": 2.0}}
    world.ask("flights", f"{offset}-mean", AA, **mean)
    share = {"kind": "share", "share_of": LATE, "error": {"value": 0.2}}
    world.ask("flights", f"{offset}-share", AA, **share)


def _compare(world: World) -> None:
    windows = {"window": {"last_phases": 1}, "minus_window": {"previous_phases": 1}}
    world.ask("flights", "difference", LATE, kind="difference", error=0.005, **windows)


STAGED = (_staged, _gated_phase, _staged_ask, _gated_phase, _staged_ask, _compare)


def _kept(world: World) -> None:
    world.define(
        "flights",
        mechanism={"base_share": 0.001},
        attributes=MEASURED,
    )


def _kept_phase(world: World) -> None:
    """Rows in each form, some of which are left for the next phase."""
    offset = world.next_offset("batches", "flights")
    like = [("AA", 3.25, 12_000), ("UA", 99, 9_000), ("UA", None, 1_000)]
    cells = [{"carrier": c, "delay": delay, "count": n} for c, delay, n in like]
    world.batch("flights", f"rows-{offset}", rows=[{"carrier": "AA", "delay": "7.5"}, {}])
    world.batch("flights", f"cells-{offset}", cells=cells)
    world.batch("flights", f"columns-{offset}", columns={"carrier": ["AA"], "delay": [-99]})


def _kept_ask(world: World) -> None:
    offset = world.next_offset("queries", "flights")
    of_delay = {"kind": "sum", "attribute": "delay"}
    world.ask("flights", f"sum-{offset}", AA, **of_delay)
    world.ask("flights", f"each-{offset}", **of_delay, group_by=["carrier"], count_rows=True)
    world.ask("flights", f"late-{offset}", LATE, **of_delay)


KEPT = (_kept, _kept_phase, _kept_ask, _kept_phase, _kept_ask)


def _runs(world: World) -> None:
    world.define(
        "flights",
        privacy={"epsilon": 20.0, "delta": 1e-6},
        kinds={
            "between": {"share": 0.1, "answers": 2},
            "interior_point": {"share": 0.05, "points": 9},
            "adaptive_threshold": {"share": 0.05, "chunks": 2, "queries": 9},
        },
    )


def _runs_phase(world: World) -> None:
    world.cells("flights", f"batch-{world.next_offset('batches', 'flights')}", n=2)


def _runs_ask(world: World) -> None:
    offset = world.next_offset("queries", "flights")
    thresholds = {"low": 0.3, "high": 0.6}
    early = {"attribute": "delay", "lt": 10}
    for n in range(2):
        world.ask("flights", f"b-{offset}-{n}", (AA, LATE)[n], kind="between", **thresholds)
        for kind in ("interior_point", "adaptive_threshold"):
            world.ask("flights", f"{kind}-{offset}-{n}", early, kind=kind, attribute="delay")
        early = {"attribute": "delay", "lt": 0}


RUNS = (_runs, _runs_phase, _runs_ask, _runs_phase, _runs_ask)


def _persons(
    world: World, *, lifetime: bool = False, folded: bool = False, erases: bool = False
) -> None:
    trips = {"name": "trips", "type": "number", "edges": [2, 3], "fold": "count"}
    away = {"name": "away", "type": "number", "fold": "since", "phases": 3}
    erasure: dict[str, Any] = {"erasure": {"within": "24 hours"}} if folded or erases else {}
    unit = {"key": "user_id", "rows_per_phase": 2, "phases": 2, "lifetime": lifetime}
    attributes = MEASURED
    if folded:
        carrier, delay = MEASURED
        attributes = [carrier, {**delay, "fold": "sum"}, trips, away]
        unit["rows_per_phase"] = 1
    world.define(
        "flights",
        mechanism={"base_share": 0.001},
        privacy={"epsilon": 1.0, "delta": 1e-9, "unit": unit},
        attributes=attributes,
        phase={"min_rows": 40},
        **erasure,
    )
    world.define("trains", privacy={"epsilon": 1.0, "delta": 1e-9, "unit": unit})


def _persons_phase(world: World) -> None:
    """Rows of persons who come often, in several batches, and a batch that is left for the next phase."""
    offset = world.next_offset("batches", "flights")
    some: list[object] = [None, "ana", 17, 17.0, " 17", "ana", "bo", "x" * 100, []]
    rows = [{"carrier": "AA", "delay": n, "user_id": key} for n, key in enumerate(some)]
    world.batch("flights", f"rows-{offset}", rows=[*rows, {"carrier": "UA"}])
    columns = {"carrier": ["AA", "UA"] * 20, "delay": [*range(40)], "user_id": [*range(20)] * 2}
    world.batch("flights", f"columns-{offset}", columns=columns)
    world.batch("flights", f"cells-{offset}", cells=[{"carrier": "AA", "count": 3}])
    world.batch("flights", f"short-{offset}", columns={"carrier": ["AA"], "delay": [1]})
    world.batch("flights", f"left-{offset}", rows=rows[1:5])


def _persons_ask(world: World) -> None:
    offset = world.next_offset("queries", "flights")
    world.ask("flights", f"aa-{offset}", AA, at_most=0.2, error={"value": 30})


PERSONS = (_persons, _persons_phase, _persons_ask, _persons_phase, _persons_phase, _persons_ask)


def _lives(world: World) -> None:
    """The same persons for life: in the third phase those who always came have used all they may."""
    _persons(world, lifetime=True)


LIVES = (_lives, *PERSONS[1:])


def _forgotten(world: World) -> None:
    """The same, where persons can be erased."""
    world.now_ms = NOV_1
    _persons(world, lifetime=True, erases=True)


def _forgotten_changes(world: World) -> None:
    """A person is erased who has used up all they may, and another one of whom that is forgotten."""
    offset = world.next_offset("batches", "flights")
    world.batch("flights", f"gone-{offset}", erase=["ana"])
    world.batch("flights", f"forgotten-{offset}", erase=[17, None], forget=True)


def _records(world: World) -> None:
    """All rows of a person in a phase count together, as one, which says how long they were away."""
    world.now_ms = NOV_1
    _persons(world, folded=True)


def _records_erase(world: World) -> None:
    """A person is erased who comes again before the sweep. In the same phase others come again as well."""
    offset = world.next_offset("batches", "flights")
    world.batch("flights", f"gone-{offset}", erase=["ana", 3])


def _records_ask(world: World) -> None:
    """Persons are counted once, by what was measured, and by a look at rows that are left."""
    _persons_ask(world)
    offset = world.next_offset("queries", "flights")
    for name, more in (("once", {}), ("left", {"fresh": True})):
        world.ask(
            "flights",
            f"{name}-{offset}",
            once="away",
            at_most=0.2,
            error={"value": 120},
            window={"last_phases": 2},
            **more,
        )


def _sweep_is_due(world: World) -> None:
    """The clock shows a time at which the changes that wait are due."""
    world.now_ms += 9 * 3_600_000
    world.produce("batches", {"version": 1, "dataset": "flights", "clock": True}, key="flights")


RECORDS = (
    _records,
    _persons_phase,
    _persons_ask,
    _records_erase,
    _persons_phase,
    _sweep_is_due,
    _persons_phase,
    _records_ask,
)

FORGOTTEN = (
    _forgotten,
    _persons_phase,
    _persons_phase,
    _forgotten_changes,
    _persons_phase,
    _sweep_is_due,
    _persons_phase,
    _persons_ask,
)


def _erased(world: World) -> None:
    """Defines that the rows of two phases are kept, next to kinds whose runs read them again and again."""
    world.define(
        "flights",
        mechanism={"base_share": 0.0005},
        kinds={"between": {"share": 0.05, "answers": 2}, "threshold": {"share": 0.01}},
        retention={"phases": 2},
        synthetic_rows=10,
    )


def _erased_phase(world: World) -> None:
    """Some rows wait for the next phase, as always."""
    world.cells("flights", f"batch-{world.next_offset('batches', 'flights')}", n=4)
    world.batch("flights", f"batch-{world.next_offset('batches', 'flights')}", rows=[{}])


def _erased_ask(world: World) -> None:
    offset = world.next_offset("queries", "flights")
    for name, window in (("all", {}), ("last", {"window": {"last_phases": 1}})):
        world.ask("flights", f"{name}-{offset}", {"any": [AA, LATE]}, **window)
        world.ask("flights", f"curve-{name}-{offset}", LATE, kind="threshold", **window)
        thresholds = {"low": 0.3, "high": 0.6}
        world.ask("flights", f"between-{name}-{offset}", AA, kind="between", **thresholds, **window)


ERASED = (
    _erased,
    _erased_phase,
    _erased_ask,
    _erased_phase,
    _erased_phase,
    _erased_ask,
    _erased_phase,
)


DAY_MS = 86_400_000
NOV_1 = 1_793_491_200_000  # 2026-11-01 in UTC


def _rotated(world: World) -> None:
    """Defines that answers and outcomes are kept for two days, and asks something that stands."""
    world.now_ms = NOV_1
    for name, share in (("flights", 0.0005), ("trains", 0.0)):
        retention = {"answers": {"days": 2}, "phases": 9}
        world.define(name, mechanism={"base_share": share}, retention=retention)
        world.ask(name, "tile", AA, standing=True)
        world.batch(name, "first", rows=[{"carrier": "AA"}])


def _rotated_day(world: World) -> None:
    """A day later, the same ids come again, next to new ones. A phase opens on some days.

    Batches come again too, those of a producer that counts them as well, which also leaves some out.
    """
    world.now_ms += DAY_MS
    offset = world.next_offset("queries", "flights")
    for name in ("flights", "trains"):
        if world.now_ms // DAY_MS % 3:
            world.cells(name, f"batch-{offset}")
        world.ask(name, "either", {"any": [AA, LATE]})
        world.ask(name, f"new-{offset}", LATE)
        world.ask(name, f"new-{offset}", LATE)
        world.batch(name, "first", rows=[{"carrier": "UA"}] * 3)
        day = (world.now_ms - NOV_1) // DAY_MS
        world.counted(name, "till-7", day, columns={"carrier": ["AA"]})
        for sequence in (day, day + 2, day - 1, day):
            rows = [{"carrier": "AA", "delay": sequence}]
            world.counted(name, "till-7", sequence, rows=rows)


ROTATED = (_rotated, *[_rotated_day] * 7)


def _hurried(world: World) -> None:
    """Limits what some may ask and spend in a minute, and says who may ask at all."""
    world.now_ms = NOV_1
    analysts = {
        "ana": {"queries_per_minute": 4},
        "bob": {"spending_per_minute": 0.004},
        "team-*": {"share": 0.05, "queries_per_minute": 3, "spending_per_minute": 0.01},
    }
    world.define("flights", mechanism={"base_share": 0.0}, analysts=analysts)


def _hurried_phase(world: World) -> None:
    world.cells("flights", f"batch-{world.next_offset('batches', 'flights')}")


def _hurried_ask(world: World) -> None:
    """Everybody asks more than a minute allows, twice, and again in the next minute."""
    short = {"attribute": "cancelled", "eq": True}
    wheres = [AA, LATE, short, {"all": [AA, LATE]}]
    number = world.next_offset("queries", "flights") // 20
    window = {"last_phases": 1}
    for minute in range(2):
        for rank, analyst in enumerate(("bob", "ana", "team-1", "eve")):
            items: list[dict[str, Any]] = [
                {"query_id": f"{number}-{n}", "where": where, "error": 0.02 - 0.002 * rank}
                for n, where in enumerate(wheres)
            ]
            quote = {"query_id": f"{number}-{minute}-price", "where": AA, "quote": True}
            items[1:1] = [quote, {"query_id": "no query"}]
            world.ask_many(
                "flights", [{**item, "window": window} for item in items], analyst=analyst
            )
            world.ask(
                "flights",
                f"{number}-0",
                AA,
                analyst=analyst,
                window=window,
                error=items[0]["error"],
            )
        world.now_ms += 60_000
    world.now_ms -= 30_000
    together = [{"query_id": f"{n}", "where": AA} for n in range(3)]
    for query_id in ("first", "second"):
        world.ask_many(
            "flights", together, analyst="ana", query_id=f"{number}-{query_id}", quote="together"
        )
    world.ask("flights", f"tile-{number}", AA, standing=True, window=window)


HURRIED = (_hurried, _hurried_phase, _hurried_ask, _hurried_phase, _hurried_ask)


BY_DAY = {"every": "1 day", "timezone": "Europe/Berlin", "min_rows": 100}


def _calendar(world: World) -> None:
    world.now_ms = NOV_1
    world.define("flights", mechanism={"base_share": 0.0005}, phase=BY_DAY)
    world.define("trains", mechanism={"base_share": 0.0}, phase=BY_DAY)


def _calendar_stand(world: World) -> None:
    world.ask("flights", "tile", AA, standing=True, window={"last": "1 day"})
    gone = {"since": "2026-11-01", "until": "2026-11-03"}
    world.ask("trains", "dated", AA, standing=True, window=gone)
    world.ask("trains", "each", LATE, standing=True, series="day")


def _days(world: World, *days: tuple[str, int]) -> None:
    """One batch for each day and number of rows, all of them doubled."""
    for _ in range(2):
        for number, (day, n_rows) in enumerate(days):
            rows = {"carrier": ["AA", "UA"] * n_rows, "delay": [3] * 2 * n_rows}
            columns = {**rows, "cancelled": [False] * 2 * n_rows}
            for dataset in ("flights", "trains"):
                name = f"{day}-{days[0][0]}-{number}"
                world.batch(dataset, name, columns=columns, time=f"2026-{day}")


def _first_days(world: World) -> None:
    """The second day has too few rows and joins the third; two batches are late."""
    world.now_ms = NOV_1 + 5 * DAY_MS
    _days(
        world,
        ("11-01", 80),
        ("11-02", 20),
        ("11-01", 5),
        ("11-03", 90),
        ("11-01", 4),
        ("11-04", 60),
    )


def _by_record(world: World) -> None:
    """Batches that name no time have that of their records. The night before is a day of its own."""
    for hours in (-2, 0, 23, 25):
        world.now_ms = NOV_1 + 4 * DAY_MS + hours * DAY_MS // 24
        world.cells("flights", f"hour-{hours}", n=2)


def _close(world: World) -> None:
    world.now_ms = NOV_1 + 7 * DAY_MS
    for dataset in ("flights", "trains"):
        world.produce("datasets", {"version": 1, "dataset": dataset, "close": True})


def _late_alone(world: World) -> None:
    """A day that is closed gets more rows, which are enough for a phase of their own."""
    _days(world, ("11-02", 70), ("11-03", 70))


def _calendar_ask(world: World) -> None:
    by_date = {"window": {"since": "2026-11-01", "until": "2026-11-02"}}
    for series in ("phase", "day", "week", "month"):
        world.ask("flights", f"each-{series}-{world.now_ms}", AA, series=series, at_most=0.1)
        world.ask("trains", f"each-{series}-{world.now_ms}", AA, series=series)
    world.ask("flights", f"price-{world.now_ms}", LATE, series="day", quote=True)
    world.ask("flights", f"day-{world.now_ms}", AA, **by_date)
    world.ask("flights", f"cut-{world.now_ms}", AA, window={"since": "2026-11-03"})
    world.ask("trains", f"last-{world.now_ms}", LATE, window={"last": "1 day"})


CALENDAR = (
    _calendar,
    _calendar_stand,
    _first_days,
    _calendar_ask,
    _by_record,
    _close,
    _late_alone,
    _close,
    _calendar_ask,
)


# ---------------------------------------------------------------- persons by the calendar


def _persons_by_day(world: World) -> None:
    """Persons are protected in any two phases, and in another data set for life, under another key."""
    world.now_ms = NOV_1
    units = {
        "flights": {"key": "user_id", "rows_per_phase": 2, "phases": 2},
        "trains": {"key": "customer", "rows_per_phase": 3, "phases": 1, "lifetime": True},
    }
    for name, unit in units.items():
        world.define(
            name,
            mechanism={"base_share": 0.001 if name == "flights" else 0.0},
            privacy={"epsilon": 20.0, "delta": 1e-6, "unit": unit},
            attributes=MEASURED,
            phase={**BY_DAY, "min_rows": 20},
        )


def _by_day_stand(world: World) -> None:
    about = {"at_most": 0.2, "error": {"value": 20}, "window": {"last_phases": 1}}
    world.ask("trains", "tile", AA, **about, standing=True)


OFTEN: tuple[object, ...] = ("ana", " ana", "ana ", "ana", "bo", "bo", 17, 17.0, "17", "cy", None)
"""Those who come with each batch. Soon they have used up what they may for life."""


def _visits(world: World, *visits: tuple[str, int]) -> None:
    """A batch for each day, of those who always come and of some of the others; each is sent twice."""
    for _ in range(2):
        for number, (day, others) in enumerate(visits):
            keys = [*OFTEN, *(f"c{n}" for n in range(others))]
            for name, key in (("flights", "user_id"), ("trains", "customer")):
                columns = {
                    "carrier": [("AA", "UA")[n % 2] for n in range(len(keys))],
                    "delay": [*range(len(keys))],
                    key: keys,
                }
                batch_id = f"{day}-{visits[0][0]}-{len(visits)}-{number}"
                world.batch(name, batch_id, columns=columns, time=f"2026-{day}")


def _first_visits(world: World) -> None:
    """The second day has too few rows and joins the third; two batches are late."""
    world.now_ms = NOV_1 + 4 * DAY_MS
    _visits(world, ("11-01", 12), ("11-02", 3), ("11-01", 1), ("11-03", 9), ("11-02", 0))
    world.batch("flights", "cells", cells=[{"carrier": "AA", "count": 30}], time="2026-11-09")


def _close_early(world: World) -> None:
    """Closes the third day while it goes on: by number, once more, and what is not enough for a phase."""
    for name in ("flights", "trains"):
        for phase in ({"phase": 2}, {}, {"phase": 2}, {"phase": 1}, {"phase": 9}, {}):
            world.produce("datasets", {"version": 1, "dataset": name, "close": True, **phase})


def _late_visits(world: World) -> None:
    """More rows about days that are closed, of a producer that counts its batches too."""
    _visits(world, ("11-03", 4), ("11-01", 2))
    for sequence, keys in enumerate((["bo", "cy"], ["ana", "dee"], [])):
        for name, key in (("flights", "user_id"), ("trains", "customer")):
            rows = [{"carrier": "UA", "delay": n, key: one} for n, one in enumerate(keys)]
            world.counted(name, "till-7", sequence, rows=rows, time="2026-11-03")


def _close_while_rows_come(world: World) -> None:
    """Nothing says which comes first: the rows of two days, or the end of the period."""
    _visits(world, ("11-04", 8), ("11-05", 9), ("11-04", 3))
    for name in ("flights", "trains"):
        world.produce("datasets", {"version": 1, "dataset": name, "close": True})


def _by_day_ask(world: World) -> None:
    offset = world.next_offset("queries", "flights")
    about = {"at_most": 0.2, "error": {"value": 20}}
    for name in ("flights", "trains"):
        world.ask(name, f"aa-{offset}", AA, **about)
        world.ask(name, f"each-{offset}", AA, **about, series="day")
        world.ask(name, f"last-{offset}", LATE, **about, window={"last": "1 day"})


PERSONS_BY_DAY = (
    _persons_by_day,
    _by_day_stand,
    _first_visits,
    _close_early,
    _by_day_ask,
    _late_visits,
    _close_early,
    _close_while_rows_come,
    _by_day_ask,
)


def _lives_shared(world: World) -> None:
    """Persons are protected for life, analysts share the budget, and the rows of two days are kept."""
    world.now_ms = NOV_1
    unit = {"key": "user_id", "rows_per_phase": 2, "phases": 2, "lifetime": True}
    world.define(
        "flights",
        privacy={"epsilon": 20.0, "delta": 1e-6, "unit": unit},
        mechanism={"base_share": 0.001},
        phase={**BY_DAY, "min_rows": 20},
        retention={"phases": 2},
        analysts={"ann": {"share": 0.04}, "b*": {"share": 0.02, "together": 0.025}, "*": {}},
    )


def _shared_day(world: World) -> None:
    """Rows of a day by the time of their records, some of which are late, and enough of the next day."""
    offset = world.next_offset("batches", "flights")
    for hours, others in ((24, 8), (25, 2), (1, 1), (48, 10)):
        world.now_ms += hours * DAY_MS // 24
        keys = [*OFTEN, *(f"c{n}" for n in range(others))]
        rows = [
            {"carrier": "AA", "delay": n, "cancelled": n % 3 == 0, "user_id": key}
            for n, key in enumerate(keys)
        ]
        world.batch("flights", f"{hours}-{offset}", rows=rows)
        world.now_ms -= hours * DAY_MS // 24
    world.now_ms += DAY_MS


def _close_shared(world: World) -> None:
    world.produce("datasets", {"version": 1, "dataset": "flights", "close": True})


def _shared_ask(world: World) -> None:
    """Several queries of a record, priced together and asked, within a limit for all of them."""
    number = world.next_offset("queries", "flights")
    latest = {"window": {"last_phases": 1}}
    for analyst in ("ann", "bob", "bea"):
        items = fresh_counts(f"{number}", range(3), error={"value": 20}, **latest)
        price = {"query_id": f"{number}-price", "quote": "together"}
        world.ask_many("flights", items, analyst=analyst, **price)
        world.ask_many("flights", items, analyst=analyst, at_most=0.035)
    world.ask("flights", f"{number}-all", AA, error={"value": 20})


LIVES_SHARED = (
    _lives_shared,
    _shared_day,
    _shared_ask,
    _close_shared,
    _shared_ask,
    _shared_day,
    lambda w: change_analysts(w, {"ann": {"share": 0.06}, "*": {"share": 0.02}}),
    _close_shared,
    _shared_ask,
    _shared_day,
)


def _standing_define(world: World) -> None:
    world.define("flights", mechanism={"base_share": 0.0005})
    world.define("trains", mechanism={"base_share": 0.0})


def _standing(world: World) -> None:
    """Begins standing queries while no phase is open, some of which cannot be asked."""
    stand = {"standing": True}
    world.ask("flights", "late", LATE, **stand, alert={"above": 0.1}, window={"last_phases": 1})
    by = {"query_id": "by", "kind": "table", "group_by": ["carrier"], **stand}
    world.ask_many("flights", [by, {"query_id": "cut", "where": {"attribute": "delay", "ge": 7}}])
    world.ask("flights", "late", AA, **stand)
    world.ask("flights", "wrong", {"attribute": "gate", "eq": "B1"}, **stand)
    world.ask("trains", "either", {"any": [AA, LATE]}, **stand)
    world.ask("trains", "mean", AA, **stand, kind="sum", attribute="delay")


def _standing_phase(world: World) -> None:
    """Opens phases while ad-hoc queries are under way; one of them has the id of an answer to come."""
    for name in ("flights", "trains"):
        offset = world.next_offset("batches", name)
        world.cells(name, f"batch-{offset}")
        world.ask(name, f"adhoc-{offset}", {"any": [AA, LATE]})
    world.ask("flights", "late@2", AA)


def _standing_change(world: World) -> None:
    """Begins more of them in an open phase, and ends some."""
    stand = {"standing": True}
    items = [
        {"query_id": f"tile-{n}", "where": LATE, "window": {"last_phases": n + 1}} for n in range(3)
    ]
    world.ask_many("trains", [*({**item, **stand} for item in items), {"query_id": "one"}])
    world.ask("trains", "tile-1", LATE, **stand, window={"last_phases": 2})
    world.ask("flights", "by", standing=False)
    world.ask("flights", "never", standing=False)


def _standing_end(world: World) -> None:
    world.produce("datasets", None, key="trains")
    world.cells("flights", "last")


STANDING = (
    _standing_define,
    _standing,
    _standing_phase,
    _standing_change,
    _standing_phase,
    _standing_end,
)

# ---------------------------------------------------------------- sources


def _sourced(world: World) -> None:
    world.define("flights", mechanism={"base_share": 0.0005}, phase={"min_rows": 12})


def _range(world: World, first: int, last: int, partition: int = 0) -> None:
    """A batch of a source: the rows of some of its records, as a reader packs them."""
    source = {"topic": "shop", "id": "one", "partition": partition, "first": first, "last": last}
    rows = [{"carrier": "AA", "delay": n} for n in range(first, last + 1)]
    world.batch("flights", f"shop-{partition}-{first}-{last}", rows=rows, source=source)


def _sourced_ranges(world: World) -> None:
    """Ranges of a topic, as two readers pack them that do not know of one another."""
    begins = 10 * (world.next_offset("batches", "flights") // 8)
    for partition in range(2):
        for first, last in ((0, 4), (0, 4), (0, 6), (5, 9)):
            _range(world, begins + first, begins + last, partition)
    world.ask("flights", f"late-{begins}", LATE)


SOURCED = (_sourced, *[_sourced_ranges] * 4)

EVERY = {
    "ordinary": ROUNDS,
    "runs": RUNS,
    "persons": PERSONS,
    "lives": LIVES,
    "erased": ERASED,
    "standing": STANDING,
    "gated": GATED,
    "answers rotate": ROTATED,
}
"""What a data set may be like, each with other things that are durable."""

# ---------------------------------------------------------------- many analysts

TIGHT = {"epsilon": 0.2, "delta": 1e-9}
"""With this a fresh count of the flights takes some 3% of a line."""


def condition(number: int) -> dict[str, Any]:
    """One of 24 conditions, of which none follows from others within the error."""
    carrier = ("AA", "UA", None)[number % 3]
    delay = number // 3 % 4
    cancelled = number // 12 % 2 == 1
    parts: list[dict[str, Any]] = [{"attribute": "cancelled", "eq": cancelled}]
    if carrier is not None:
        parts.append({"attribute": "carrier", "eq": carrier})
    if delay:
        parts.append({"attribute": "delay", "ge": (0, 10, 30)[delay - 1]})
    return {"all": parts}


def fresh_counts(prefix: str, numbers: Iterable[int], **item: Any) -> list[dict[str, Any]]:
    return [
        {"query_id": f"{prefix}-{n}", "where": condition(n), "fresh": True, **item} for n in numbers
    ]


def change_analysts(world: Any, analysts: Any, **more: Any) -> Any:
    return world.produce(
        "datasets",
        {"version": 1, "dataset": "flights", "change": "analysts", "analysts": analysts, **more},
    )


SHARED = (
    lambda w: w.define(
        "flights",
        privacy=TIGHT,
        mechanism={"base_share": 0.05},
        analysts={"ann": {"share": 0.1}, "b*": {"share": 0.1, "together": 0.15}, "*": {}},
    ),
    lambda w: w.cells("flights", "first"),
    lambda w: w.ask_many("flights", fresh_counts("ann", range(6)), analyst="ann"),
    lambda w: w.ask_many("flights", fresh_counts("bob", range(4)), analyst="bob"),
    lambda w: w.ask_many("flights", fresh_counts("bea", range(4)), analyst="bea"),
    lambda w: change_analysts(w, {"ann": {"share": 0.2}, "*": {"share": 0.1}}),
    lambda w: w.cells("flights", "second"),
    lambda w: w.ask_many("flights", fresh_counts("more", range(6)), analyst="ann"),
)


def _schema_asks(prefix: str) -> Callable[[World], object]:
    """Counts, tables, sums and quantiles, about phases of one version and of several."""

    def ask(world: World) -> None:
        queries: tuple[dict[str, Any], ...] = (
            {"where": {"attribute": "country", "eq": "DE"}},
            {"kind": "table", "group_by": ["country"]},
            {"kind": "table", "group_by": ["age"], "where": {"attribute": "spent", "ge": 50}},
            {"kind": "quantile", "attribute": "age", "rank": 0.5, "window": {"phases": [1, 1]}},
            {"kind": "quantile", "attribute": "spent", "rank": 0.5},
            {"kind": "sum", "attribute": "spent"},
            {"where": {"attribute": "age", "ge": 35}, "error": {"value": 300}},
        )
        for number, query in enumerate(queries):
            world.ask_many("people", [{"query_id": f"{prefix}-{number}", **query}])

    return ask


def _schema_waits(world: World) -> None:
    """Rows come before a change, which is for the phase after theirs then."""
    world.batch("people", "waits", cells=[{"country": "IT", "age": 33, "spent": 7, "count": 900}])


def _orders_ask(name: str) -> Callable[[World], object]:
    def ask(world: World) -> None:
        world.ask("orders", f"{name}-many", {"attribute": "amount", "ge": 8})
        world.ask("orders", f"{name}-table", kind="table", group_by=["country"])

    return ask


PROPOSED = (
    orders.define,
    lambda w: orders.phase(w, orders.ROWS[:2]),
    lambda w: orders.phase(w, orders.ROWS[2:]),
    _orders_ask("one"),
    lambda w: orders.change(w, orders.accepted([4, 8, 64])),
    orders.phase,
    _orders_ask("two"),
)
"""A number whose bounds are proposed, and edges that the owner accepts."""


SCHEMAS = (
    lambda w: people.define(w, mechanism={"base_share": 0.05}),
    people.phase,
    _schema_asks("one"),
    lambda w: people.change(w, people.IT),
    people.phase,
    _schema_asks("two"),
    _schema_waits,
    lambda w: people.change(w, people.WIDER, 3),
    lambda w: people.change(w, people.ATTRIBUTES, 4),  # it lacks values: it is rejected
    people.phase,
    people.phase,
    _schema_asks("three"),
)
"""Versions of the attributes, each from another phase on."""


_PAGES: dict[str, Any] = {
    "attributes": [
        {
            "name": "page",
            "type": "category",
            "find": {"most": 20, "windows": [1, 2], "share": 0.2},
        },
        {"name": "bot", "type": "boolean"},
    ],
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "accuracy": {"error": 0.05, "failure_probability": 0.01},
    "mechanism": {"base_share": 0.3},
    "phase": {"min_rows": 1_000},
}


def _pages(name: str, **pages: int) -> Callable[[World], object]:
    rows = [{"page": f"/{page}", "bot": False} for page, n in pages.items() for _ in range(n)]
    return lambda w: w.batch("visits", name, rows=[*rows, {"page": f"/only/{name}", "bot": True}])


def _page_asks(prefix: str) -> Callable[[World], object]:
    queries: tuple[dict[str, Any], ...] = (
        {"kind": "table", "group_by": ["page"]},
        {"where": {"attribute": "page", "eq": "/home"}},
        {"where": {"attribute": "page", "is_other": True}, **LAST},
    )
    named = [{"query_id": f"{prefix}-{n}", **query} for n, query in enumerate(queries)]
    return lambda w: w.ask_many("visits", named)


FINDING = (
    lambda w: w.produce("datasets", {"version": 1, "dataset": "visits", **_PAGES}),
    _pages("one", home=900, early=130),
    _page_asks("one"),
    _pages("two", home=500),
    _pages("three", home=300, early=130, late=400),
    _page_asks("two"),
    _pages("four", home=700, late=400, slow=300),
    _page_asks("three"),
)
"""Values that are found: at once, by a longer window, and after they came for a while."""


_HOUR_MS = 3_600_000


def _erasing(world: World) -> None:
    """Persons can be erased, and rows be corrected, whose values are kept and partly found."""
    world.now_ms = NOV_1
    world.define(
        "flights",
        mechanism={"base_share": 0.001},
        privacy={
            "epsilon": 20.0,
            "delta": 1e-6,
            "unit": {"key": "user_id", "rows_per_phase": 2, "phases": 2},
        },
        attributes=MEASURED,
        phase={"min_rows": 40},
        retention={"phases": 3},
        erasure={"within": "24 hours", "row": "trip"},
    )


def _erasing_phase(world: World) -> None:
    """Enough rows for a phase, some rows of which come twice, and a batch that is left for the next one.

    Rows of each phase have the same keys.
    """
    world.now_ms += _HOUR_MS
    offset = world.next_offset("batches", "flights")
    some: list[object] = [None, "ana", 17, "ana", "bo", "ana", []]
    rows = [
        {"carrier": "AA", "delay": n, "user_id": key, "trip": n % 5} for n, key in enumerate(some)
    ]
    world.batch("flights", f"rows-{offset}", rows=rows)
    columns = {
        "carrier": ["AA", "UA"] * 20,
        "delay": [*range(40)],
        "user_id": [*range(20)] * 2,
        "trip": [*range(40)],
    }
    world.batch("flights", f"columns-{offset}", columns=columns)
    world.batch("flights", f"left-{offset}", rows=rows[1:5])


def _erasing_changes(world: World) -> None:
    """Two batches of changes, one of which has rows, too, and one that is refused."""
    offset = world.next_offset("batches", "flights")
    said = [
        {"person": "ana", "row": 1, "set": {"carrier": "UA", "delay": 7}},
        {"person": 3, "row": 23, "erase": True},
        {"person": 4, "row": 23, "erase": True},
        None,
    ]
    world.batch("flights", f"changes-{offset}", erase=["bo", None, "nobody"], correct=said)
    again = [{"carrier": "AA", "delay": 9, "user_id": "bo", "trip": f"again-{offset}"}]
    world.batch("flights", f"both-{offset}", rows=again, erase=[5])
    world.batch("flights", f"wrong-{offset}", correct=[{"person": "ana"}])


def _erasing_ask(world: World) -> None:
    offset = world.next_offset("queries", "flights")
    world.ask("flights", f"aa-{offset}", AA, at_most=0.2, error={"value": 30})
    world.ask("flights", f"fresh-{offset}", AA, at_most=0.2, error={"value": 60}, fresh=True)


ERASING = (
    _erasing,
    _erasing_phase,
    _erasing_changes,
    _erasing_phase,
    _erasing_ask,
    _sweep_is_due,
    _erasing_ask,
    _erasing_changes,
    _erasing_phase,
    _sweep_is_due,
    _erasing_phase,
    _erasing_ask,
)
