"""A worker that dies anywhere and starts again keeps every promise."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from stream_dp.pipeline.fuse import CrashPoint
from tests.pipeline.scenarios import (
    DOUBLED,
    ERASED,
    GATED,
    KEPT,
    LIVES,
    LIVES_SHARED,
    PERSONS,
    PERSONS_BY_DAY,
    ROTATED,
    ROUNDS,
    RUNS,
    STAGED,
    STANDING,
    THESIS,
)

Sweep = Callable[..., Any]

REST = pytest.mark.skipif("SOAK" not in os.environ, reason="set SOAK=1 to die at every effect")
"""Of sweeps that take minutes, a part is enough for every day."""


def parts(of: int, *, daily: int = 1) -> pytest.MarkDecorator:
    """Splits a sweep: each part dies at every ``of``-th effect. The first ``daily`` parts are always run."""
    rest = (pytest.param(part, marks=REST) for part in range(daily, of))
    return pytest.mark.parametrize("part", [*range(daily), *rest])


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


async def test_answers_rotate_without_a_crash(world: Any) -> None:
    assert await world.run(rounds=ROTATED) == 0
    assert world.complaints() == []
    replies = [reply for reply in world.released("answers") if reply["dataset"] == "flights"]
    either = {json.dumps(reply) for reply in replies if reply["query_id"] == "either"}
    assert len(either) == 2, "it is asked on seven days, and kept for two to four"
    held = world.store._datasets["flights"]
    assert held.answers
    assert held.previous
    kept = held.answers.keys() | held.previous.keys()
    assert kept < {f"{reply['analyst']} {reply['query_id']}" for reply in replies}


@pytest.mark.slow
@parts(18)
async def test_nor_does_a_crash_around_a_rotation_of_answers(sweep: Sweep, part: int) -> None:
    assert await sweep(ROTATED, range(part, 10_000, 18)) == []


@pytest.mark.parametrize("point", [CrashPoint.AFTER_CHARGE, CrashPoint.AFTER_LOOK])
async def test_nor_does_one_while_a_segment_of_tests_runs(sweep: Sweep, point: CrashPoint) -> None:
    """Its threshold dies with the process, and what comes next pays for a new one."""
    assert await sweep(GATED, range(1_000), point=point) == []


@pytest.mark.parametrize("point", [CrashPoint.AFTER_CHARGE, CrashPoint.AFTER_LOOK])
async def test_nor_does_one_while_runs_keep_a_secret(sweep: Sweep, point: CrashPoint) -> None:
    """Theirs does not: it is durable with the charge, and what was on its way counts against the run."""
    assert await sweep(RUNS, range(1_000), point=point) == []


async def test_a_query_that_needs_several_looks_without_a_crash(world: Any) -> None:
    assert await world.run(rounds=STAGED) == 0
    assert world.complaints() == []
    answers = world.answers().values()
    assert [answer["status"] for answer in answers] == ["answered"] * 17
    assert "measured" in {answer["path"] for answer in answers}
    assert "unverified" not in {answer["path"] for answer in answers}


@pytest.mark.slow
@parts(10)
async def test_nor_does_a_crash_between_the_looks_of_one_query(sweep: Sweep, part: int) -> None:
    """Each of them is charged before it is taken; those that were committed are known afterwards."""
    assert await sweep(STAGED, range(part, 10_000, 10)) == []


async def test_sums_of_kept_values_without_a_crash(world: Any) -> None:
    assert await world.run(rounds=KEPT) == 0
    assert world.complaints() == []
    answers = world.answers().values()
    assert [answer["status"] for answer in answers] == ["answered"] * 6
    assert {answer["path"] for answer in answers} == {"measured"}


@parts(5)
async def test_nor_does_a_crash_where_values_are_kept(sweep: Sweep, part: int) -> None:
    """They count once, like the rows: those that wait, and those of each phase."""
    assert await sweep(KEPT, range(part, 10_000, 5)) == []


async def test_persons_are_protected_without_a_crash(world: Any) -> None:
    assert await world.run(rounds=PERSONS) == 0
    assert world.complaints() == []
    assert [event["rows"] for event in world.events("phase_opened")] == [50, 54, 54]
    reasons = [event["reason"]["message"] for event in world.events("batch_refused")]
    assert set(reasons) == {
        "cells: rows that are only counted do not say whose they are; send rows or columns",
        "columns: there is no column user_id; it says whose row each is",
    }


@pytest.mark.parametrize(
    ("part", "key_file"),
    [
        (0, None),
        (0, b"k" * 32),
        pytest.param(1, None, marks=pytest.mark.slow),
        *(pytest.param(n, None, marks=REST) for n in range(2, 5)),
        *(pytest.param(n, b"k" * 32, marks=REST) for n in range(1, 5)),
    ],
)
async def test_nor_does_a_crash_where_persons_are_protected(
    sweep: Sweep, part: int, key_file: bytes | None
) -> None:
    """The block that is sealed is the same, byte for byte, wherever the worker dies."""
    assert await sweep(PERSONS, range(part, 10_000, 5), key_file=key_file) == []


async def test_persons_are_protected_for_life_without_a_crash(world: Any) -> None:
    assert await world.run(rounds=LIVES) == 0
    assert world.complaints() == []


@parts(5)
async def test_nor_does_a_crash_where_they_are_for_life(sweep: Sweep, part: int) -> None:
    """Nobody's rows count more often than was reserved, and no reservation is made twice."""
    assert await sweep(LIVES, range(part, 10_000, 5)) == []


async def test_persons_are_protected_by_the_calendar_without_a_crash(world: Any) -> None:
    """Periods end by later batches and by closings, late rows follow, and some persons use up all."""
    assert await world.run(rounds=PERSONS_BY_DAY) == 0
    assert world.complaints() == []
    opened = [event for event in world.events("phase_opened") if event["dataset"] == "flights"]
    assert [(event["since"], event["late_batches"]) for event in opened[:4]] == [
        ("2026-11-01", 0),
        ("2026-11-02", 1),
        ("2026-11-03", 1),
        ("2026-11-04", 5),
    ]
    codes = {one["reason"]["code"] for some in world.rejections().values() for one in some}
    assert codes == {"too_few_rows", "not_next"}
    persons = world.store._datasets["trains"].persons.values()
    units = Counter(one.before + one.rows**2 for one in persons)
    assert units[9] >= 4, "ana, bo, 17 and cy have used up all they may"
    assert len(units) > 3, "others have not"
    answers = world.answers().values()
    assert "measured" in {answer.get("path") for answer in answers}


@parts(60)
async def test_nor_does_a_crash_where_they_are_by_the_calendar(sweep: Sweep, part: int) -> None:
    """The rows that wait open the same phase, also if a worker dies between its reservation and its seal."""
    assert await sweep(PERSONS_BY_DAY, range(part, 10_000, 60)) == []


async def test_persons_for_life_whose_analysts_share_without_a_crash(world: Any) -> None:
    assert await world.run(rounds=LIVES_SHARED) == 0
    assert world.complaints() == []
    held = world.store._datasets["flights"]
    assert (len(held.spent), len(held.blocks)) == (3, 2)
    answers = world.answers().values()
    codes = {answer["reason"]["code"] for answer in answers if answer["status"] == "refused"}
    assert codes >= {"share_spent", "price_too_high"}
    assert "measured" in {answer.get("path") for answer in answers}


@parts(40)
async def test_nor_does_a_crash_where_their_analysts_share(sweep: Sweep, part: int) -> None:
    """What a phase has cost and what persons have used stay, also once its rows are erased."""
    assert await sweep(LIVES_SHARED, range(part, 10_000, 40)) == []


async def test_rows_are_erased_without_a_crash(world: Any) -> None:
    assert await world.run(rounds=ERASED) == 0
    assert world.complaints() == []
    held = world.store._datasets["flights"]
    assert (len(held.spent), len(held.blocks)) == (4, 2)
    assert {"refused", "answered"} == {answer["status"] for answer in world.answers().values()}


@pytest.mark.slow
@parts(5)
async def test_nor_does_a_crash_where_rows_are_erased(sweep: Sweep, part: int) -> None:
    """They go with the seal that makes them due, and no look that is taken again reads them."""
    assert await sweep(ERASED, range(part, 10_000, 5)) == []


async def test_standing_queries_without_a_crash(world: Any) -> None:
    assert await world.run(rounds=STANDING) == 0
    assert world.complaints() == []
    ids = {query_id for _, _, query_id in world.answers()}
    assert {"late@1", "by@1", "either@2", "mean@2", "tile-2@2", "late@3", "tile-0@1"} <= ids
    assert not {"by@2", "wrong@1", "either@3"} & ids


@pytest.mark.slow
@parts(5)
async def test_nor_does_a_crash_among_standing_queries(sweep: Sweep, part: int) -> None:
    """Each is answered once for each phase, before all else, wherever the worker dies."""
    assert await sweep(STANDING, range(part, 10_000, 5)) == []


@pytest.mark.slow
@parts(8, daily=4)
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


@pytest.mark.slow
async def test_nor_does_one_when_records_come_one_by_one(sweep: Sweep) -> None:
    assert await sweep(ROUNDS, range(7, 10_000, 19), group=1) == []
