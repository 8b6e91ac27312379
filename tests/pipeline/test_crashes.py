"""A worker that dies anywhere and starts again keeps every promise."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest

from stream_dp.pipeline.fuse import CrashPoint

AA = {"attribute": "carrier", "eq": "AA"}
LATE = {"attribute": "delay", "ge": 10}


def _define(world: Any) -> None:
    world.define("flights", mechanism={"base_share": 0.0005})
    world.define("trains", mechanism={"base_share": 0.0})
    world.batch("late", "early", rows=[{"carrier": "AA"}])  # not defined yet
    world.ask("late", "early", AA)
    world.define("wrong", accuracy={"error": 2.0})
    world.ask("flights", "before", AA)


def _gather(world: Any) -> None:
    world.define("late")
    world.batch("flights", "rows", rows=[{"carrier": "AA", "delay": 3}, {"delay": None}])
    world.batch("flights", "columns", columns={c: [1] for c in ("carrier", "delay", "cancelled")})
    world.batch("flights", "bad", columns={"carrier": ["AA"]})
    world.cells("trains", "one")
    world.cells("trains", "two")
    world.batch("trains", "one", rows=[])
    world.batch("late", "early", rows=[{"carrier": "AA"}])
    world.define("flights", mechanism={"base_share": 0.0005})


def _ask(world: Any) -> None:
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


def _again(world: Any) -> None:
    world.ask("flights", "aa", AA)
    world.ask("flights", "aa-again", AA)
    world.cells("flights", "second")
    world.ask("flights", "either-now", {"any": [AA, LATE]})
    world.produce("datasets", None, key="trains")
    world.produce("queries", b"{", key="flights")
    world.ask("trains", "gone", AA)


def _last(world: Any) -> None:
    world.produce("datasets", None, key="trains")
    world.ask("flights", "last", LATE)


ROUNDS = (_define, _gather, _ask, _again, _last)


def _memory(world: Any) -> None:
    world.define_memory("thesis")


def _memory_phase(world: Any) -> None:
    cells = [{"carrier": "AA", "count": 800_000}, {"carrier": "UA", "count": 400_000}]
    world.batch("thesis", f"batch-{world.next_offset('batches', 'thesis')}", cells=cells)


def _memory_ask(world: Any) -> None:
    offset = world.next_offset("queries", "thesis")
    world.ask("thesis", f"one-{offset}", AA)
    world.ask("thesis", f"two-{offset}", {"attribute": "cancelled", "eq": False})
    world.ask("thesis", f"two-{offset}", {"attribute": "cancelled", "eq": False})


THESIS = (_memory, _memory_phase, _memory_ask, _memory_phase, _memory_ask)


def _doubling(world: Any) -> None:
    """Two queries a guess at first: the second round of them begins the next guess."""
    world.define_papers(
        "thesis", profile="sequential", queries_per_phase=2, phases=2, doubling=True, **SMALL
    )


def _large_phase(world: Any) -> None:
    cells = [{"carrier": "AA", "count": 80_000_000}, {"carrier": "UA", "count": 40_000_000}]
    world.batch("thesis", f"batch-{world.next_offset('batches', 'thesis')}", cells=cells)


SMALL = {"hypothesis_rows": 3, "representation": "exhaustive"}
DOUBLED = (_doubling, _large_phase, _memory_ask, _memory_ask, _large_phase, _memory_ask)


def _gated(world: Any) -> None:
    world.define("flights", mechanism={"profile": "gated", "segments": 20})


def _gated_phase(world: Any) -> None:
    world.cells("flights", f"batch-{world.next_offset('batches', 'flights')}", n=100)


def _gated_ask(world: Any) -> None:
    """What is predicted of all rows stands, and of one carrier at first does not."""
    offset = world.next_offset("queries", "flights")
    for n, where in enumerate((None, AA, None, LATE, None)):
        world.ask("flights", f"{offset}-{n}", where)


GATED = (_gated, _gated_phase, _gated_ask, _gated_phase, _gated_ask)


def _runs(world: Any) -> None:
    world.define(
        "flights",
        privacy={"epsilon": 20.0, "delta": 1e-6},
        kinds={
            "between": {"share": 0.1, "answers": 2},
            "interior_point": {"share": 0.05, "points": 9},
            "adaptive_threshold": {"share": 0.05, "chunks": 2, "queries": 9},
        },
    )


def _runs_phase(world: Any) -> None:
    world.cells("flights", f"batch-{world.next_offset('batches', 'flights')}", n=2)


def _runs_ask(world: Any) -> None:
    offset = world.next_offset("queries", "flights")
    thresholds = {"low": 0.3, "high": 0.6}
    early = {"attribute": "delay", "lt": 10}
    for n in range(2):
        world.ask("flights", f"b-{offset}-{n}", (AA, LATE)[n], kind="between", **thresholds)
        for kind in ("interior_point", "adaptive_threshold"):
            world.ask("flights", f"{kind}-{offset}-{n}", early, kind=kind, attribute="delay")
        early = {"attribute": "delay", "lt": 0}


RUNS = (_runs, _runs_phase, _runs_ask, _runs_phase, _runs_ask)

Sweep = Callable[..., Any]


@pytest.fixture
def sweep(make_world: Callable[..., Any]) -> Sweep:
    """``await sweep(rounds, places)``: dies at each effect in turn; what the referee said of any run."""

    async def run(rounds: Any, places: Iterable[int], **settings: Any) -> list[str]:
        said: list[str] = []
        point = settings.pop("point", None)
        for place in places:
            world = make_world(seed=place + 1)
            for name, value in settings.items():
                setattr(world, name, value)
            fuses = [world.Fuse(place, point), world.Fuse(place // 2 + 1)]
            if not await world.run(fuses[0], *fuses[1 : settings.get("deaths", 1)], rounds=rounds):
                return said
            said += [f"at {place}: {complaint}" for complaint in world.complaints()]
        raise AssertionError("there are more effects than places to die at")

    return run


async def test_without_a_crash_the_referee_has_nothing_to_say(world: Any) -> None:
    assert await world.run(rounds=ROUNDS) == 0
    assert world.complaints() == []
    assert "measured" in {reply.get("path") for reply in world.answers().values()}
    assert {e["event"] for e in world.events()} >= {"phase_opened", "dataset_retired"}


async def test_the_thesis_profile_without_a_crash(world: Any) -> None:
    assert await world.run(rounds=THESIS) == 0
    assert world.complaints() == []
    assert [a["status"] for a in world.answers().values()] == ["answered"] * 4


async def test_guesses_double_without_a_crash(world: Any) -> None:
    assert await world.run(rounds=DOUBLED) == 0
    assert world.complaints() == []
    assert [a["status"] for a in world.answers().values()] == ["answered"] * 6


@pytest.mark.parametrize("point", CrashPoint)
async def test_a_crash_at_a_named_point_breaks_no_promise(sweep: Sweep, point: CrashPoint) -> None:
    assert await sweep(ROUNDS, range(1_000), point=point) == []


@pytest.mark.parametrize("point", [CrashPoint.AFTER_CHARGE, CrashPoint.AFTER_LOOK])
async def test_nor_does_one_while_a_segment_of_tests_runs(sweep: Sweep, point: CrashPoint) -> None:
    """Its threshold dies with the process, and what comes next pays for a new one."""
    assert await sweep(GATED, range(1_000), point=point) == []


@pytest.mark.parametrize("point", [CrashPoint.AFTER_CHARGE, CrashPoint.AFTER_LOOK])
async def test_nor_does_one_while_runs_keep_a_secret(sweep: Sweep, point: CrashPoint) -> None:
    """Theirs does not: it is durable with the charge, and what was on its way counts against the run."""
    assert await sweep(RUNS, range(1_000), point=point) == []


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
async def test_a_crash_at_any_effect_breaks_no_promise(sweep: Sweep, part: int) -> None:
    assert await sweep(ROUNDS, range(part, 10_000, 8)) == []


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.slow)])
async def test_nor_does_one_under_the_thesis_profile(sweep: Sweep, part: int) -> None:
    assert await sweep(THESIS, range(part, 10_000, 2)) == []


@pytest.mark.parametrize("part", [0, pytest.param(1, marks=pytest.mark.slow)])
async def test_nor_does_one_where_guesses_double(sweep: Sweep, part: int) -> None:
    """Also between the charge of a guess and the look that it begins with."""
    assert await sweep(DOUBLED, range(part, 10_000, 2)) == []


async def test_nor_does_one_while_releases_lag_behind(sweep: Sweep) -> None:
    assert await sweep(ROUNDS, range(5, 10_000, 13), lagging=True) == []


async def test_nor_do_two_crashes(sweep: Sweep) -> None:
    assert await sweep(ROUNDS, range(3, 10_000, 11), deaths=2) == []


async def test_nor_does_one_when_records_come_one_by_one(sweep: Sweep) -> None:
    assert await sweep(ROUNDS, range(7, 10_000, 19), group=1) == []
