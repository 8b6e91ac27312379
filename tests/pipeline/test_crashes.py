"""A worker that dies anywhere and starts again keeps every promise."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any, NamedTuple

import pytest

from stream_dp.core.rows.person_slots import digests
from stream_dp.pipeline.journal.checkpoint_rounds import Often
from stream_dp.pipeline.watch.crash_points import CrashPoint
from tests.pipeline.clocked import CLOCKED, SENT_LATE, TICKED
from tests.pipeline.conftest import Die
from tests.pipeline.referee.lives import kept_slots
from tests.pipeline.referee.persons import secret_of, units_of
from tests.pipeline.scenarios import (
    CALENDAR,
    DOUBLED,
    ERASED,
    ERASING,
    FINDING,
    FORGOTTEN,
    GATED,
    KEPT,
    LIVES,
    LIVES_SHARED,
    PERSONS,
    PERSONS_BY_DAY,
    PROPOSED,
    RECORDS,
    ROTATED,
    ROUNDS,
    RUNS,
    SCHEMAS,
    SHARED,
    SOURCED,
    STAGED,
    STANDING,
    THESIS,
)
from tests.pipeline.world import World

OFTEN = Often(20_000, per_id=1)


class Sweep(NamedTuple):
    """A scenario in which workers die.

    Attributes:
        parts: The number of parts into which the sweep over every effect is split, each on its own run.
        changes: Attributes of the world, and how often it dies.
    """

    rounds: Sequence[Callable[[World], object]]
    parts: int
    changes: Mapping[str, Any] = {}


SWEEPS = {
    "ordinary": Sweep(ROUNDS, 4),
    "ordinary, releases lag behind": Sweep(ROUNDS, 4, {"lagging": True}),
    "ordinary, records come one by one": Sweep(ROUNDS, 6, {"group": 1}),
    "ordinary, two deaths": Sweep(ROUNDS, 4, {"deaths": 2}),
    "ordinary, checkpoints are often": Sweep(ROUNDS, 6, {"often": OFTEN}),
    "the thesis profile": Sweep(THESIS, 1),
    "guesses double": Sweep(DOUBLED, 1),
    "a segment of tests": Sweep(GATED, 1),
    "runs keep a secret": Sweep(RUNS, 1),
    "several looks a query": Sweep(STAGED, 6),
    "values are kept": Sweep(KEPT, 2),
    "answers rotate": Sweep(ROTATED, 12),
    "answers rotate, checkpoints are often": Sweep(ROTATED, 24, {"often": OFTEN}),
    "rows are erased": Sweep(ERASED, 4),
    "rows are erased, checkpoints are often": Sweep(ERASED, 6, {"often": OFTEN}),
    "persons are erased": Sweep(ERASING, 6, {"key_file": b"k" * 32}),
    "standing queries": Sweep(STANDING, 4),
    "persons": Sweep(PERSONS, 3),
    "persons, with a key file": Sweep(PERSONS, 3, {"key_file": b"k" * 32}),
    "persons for life": Sweep(LIVES, 3),
    "persons who are forgotten": Sweep(FORGOTTEN, 3, {"key_file": b"k" * 32}),
    "records of persons": Sweep(RECORDS, 3, {"key_file": b"k" * 32}),
    "persons by the calendar": Sweep(PERSONS_BY_DAY, 24),
    "persons whose analysts share": Sweep(LIVES_SHARED, 16),
    "analysts share": Sweep(SHARED, 4),
    "phases by the calendar": Sweep(CALENDAR, 4),
    "periods that the clock closes": Sweep(CLOCKED, 6),
    "running totals": Sweep(TICKED, 4),
    "late rows": Sweep(SENT_LATE, 4),
    "ranges of a source": Sweep(SOURCED, 4),
    "attributes change": Sweep(SCHEMAS, 4),
    "values are found": Sweep(FINDING, 4),
    "bounds are proposed": Sweep(PROPOSED, 4),
}
PARTS = [
    pytest.param(name, part, id=f"{name}, part {part + 1} of {sweep.parts}")
    for name, sweep in SWEEPS.items()
    for part in range(sweep.parts)
]


async def _said(die: Die, name: str, places: Container[int], **more: Any) -> list[str]:
    """What the referee says of deaths in a scenario."""
    sweep, said = SWEEPS[name], list[str]()
    async for at, world in die(sweep.rounds, places, **sweep.changes, **more):
        said += [f"{at}: {complaint}" for complaint in world.complaints()]
    return said


@pytest.mark.parametrize("name", [name for name in SWEEPS if ", " not in name or "often" in name])
async def test_a_crash_at_any_named_point_breaks_no_promise(die: Die, name: str) -> None:
    """At an occurrence that has a past, if the scenario comes to one. The next test has the variants, too."""
    assert await _said(die, name, {0, 9}, points=[*CrashPoint]) == []


@pytest.mark.slow
@pytest.mark.parametrize(("name", "part"), PARTS)
async def test_nor_does_a_crash_at_any_effect(die: Die, name: str, part: int) -> None:
    """What was reserved, charged, looked at, sealed, erased or told stays so, wherever the worker dies."""
    parts = SWEEPS[name].parts
    assert await _said(die, name, range(part, 10_000, parts), seed=part + 1) == []


# What happens in each of them without a crash, so that the sweeps meet it.


def _all_answered(world: World, n: int) -> None:
    assert [answer["status"] for answer in world.answers().values()] == ["answered"] * n


def _ordinary(world: World) -> None:
    assert "measured" in _paths(world)
    assert {e["event"] for e in world.events()} >= {"phase_opened", "dataset_retired"}


def _several_looks(world: World) -> None:
    _all_answered(world, 17)
    assert "measured" in _paths(world)
    assert "unverified" not in _paths(world)


def _answers_rotate(world: World) -> None:
    replies = [reply for reply in world.released("answers") if reply["dataset"] == "flights"]
    either = {json.dumps(reply) for reply in replies if reply["query_id"] == "either"}
    assert len(either) == 2, "it is asked on seven days, and kept for two to four"
    held = world.held("flights")
    assert held.answers
    assert held.previous
    kept = held.answers.keys() | held.previous.keys()
    assert kept < {f"{reply['analyst']} {reply['query_id']}" for reply in replies}


def _rows_are_erased(world: World) -> None:
    held = world.held("flights")
    assert (len(held.spent), len(held.blocks)) == (4, 2)
    assert {"refused", "answered"} == {answer["status"] for answer in world.answers().values()}


def _persons_are_erased(world: World) -> None:
    assert [event["changes"] for event in world.events("swept")] == [8, 8]
    assert {event["event"] for event in world.events()} >= {"batch_refused"}
    slots = [kept_slots(world, world.held("flights"), phase) for phase in (2, 3, 4)]
    assert all(some and any(not slot.counts for slot in some) for some in slots)
    assert "measured" in _paths(world)


def _standing_queries(world: World) -> None:
    ids = {query_id for _, _, query_id in world.answers()}
    assert {"late@1", "by@1", "either@2", "mean@2", "tile-2@2", "late@3", "tile-0@1"} <= ids
    assert not {"by@2", "wrong@1", "either@3"} & ids


def _persons(world: World) -> None:
    assert [event["rows"] for event in world.events("phase_opened")] == [50, 54, 54]
    assert len(world.events("batch_refused")) == 6


def _persons_are_forgotten(world: World) -> None:
    """Who was forgotten counts again, twice in each of the last two phases; who was erased alone does not."""
    assert [event["changes"] for event in world.events("swept")] == [3]
    assert len(world.events("phase_opened")) == 4
    held, secret = world.held("flights"), secret_of(world, world.held("flights"))
    ana, other = (bytes(one) for one in digests(secret, ["ana", 17]))
    for phase, counted in ((1, 0), (2, 0), (3, 2), (4, 2)):
        slots = [slot for slot in kept_slots(world, held, phase) or () if slot.counts]
        assert slots
        persons = Counter(slot.person for slot in slots)
        assert (persons[ana], persons[other]) == (0, counted)
    assert units_of(held)[other] == 8


def _records_of_persons(world: World) -> None:
    """Persons come again, and some who are erased come again before the sweep."""
    assert [event["changes"] for event in world.events("swept")] == [2]
    answers = {name: answer for (_, _, name), answer in world.answers().items()}
    assert {answer["status"] for answer in answers.values()} == {"answered"}
    assert {name.split("-")[0] for name in answers} == {"aa", "once", "left"}
    second = kept_slots(world, world.held("flights"), 2)
    said = Counter(dict(slot.says)["3"] for slot in second or () if slot.counts)
    assert said[0] > 10, "they were there in the phase before"
    assert said[2] == 2, "they are erased from the phase before"


def _persons_by_the_calendar(world: World) -> None:
    """Periods end by later batches and by closings, late rows follow, and some persons use up all."""
    opened = [event for event in world.events("phase_opened") if event["dataset"] == "flights"]
    days = [(event["since"], event["late_batches"]) for event in opened[:4]]
    assert days == [(f"2026-11-0{day}", late) for day, late in ((1, 0), (2, 1), (3, 1), (4, 5))]
    codes = {one["reason"]["code"] for some in world.rejections().values() for one in some}
    assert codes == {"too_few_rows", "not_next"}
    units = Counter(units_of(world.held("trains")).values())
    assert units[9] >= 4, "ana, bo, 17 and cy have used up all they may"
    assert len(units) > 3, "others have not"
    assert "measured" in _paths(world)


def _analysts_share(world: World) -> None:
    held = world.held("flights")
    assert (len(held.spent), len(held.blocks)) == (3, 2)
    answers = world.answers().values()
    codes = {answer["reason"]["code"] for answer in answers if answer["status"] == "refused"}
    assert codes >= {"share_spent", "price_too_high"}
    assert "measured" in _paths(world)


def _paths(world: World) -> set[str | None]:
    return {answer.get("path") for answer in world.answers().values()}


def _values_are_found(world: World) -> None:
    events = [(event["phase"], event["values"]) for event in world.events("values_found")]
    assert events == [(1, 1), (2, 2), (3, 1)]
    assert len(world.answers()) == 9


HAPPENS: dict[str, Callable[[World], None]] = {
    "ordinary": _ordinary,
    "the thesis profile": lambda world: _all_answered(world, 4),
    "guesses double": lambda world: _all_answered(world, 6),
    "several looks a query": _several_looks,
    "values are kept": lambda world: _all_answered(world, 6),
    "values are found": _values_are_found,
    "answers rotate": _answers_rotate,
    "rows are erased": _rows_are_erased,
    "persons are erased": _persons_are_erased,
    "standing queries": _standing_queries,
    "persons": _persons,
    "records of persons": _records_of_persons,
    "persons who are forgotten": _persons_are_forgotten,
    "persons by the calendar": _persons_by_the_calendar,
    "persons whose analysts share": _analysts_share,
}


@pytest.mark.parametrize("name", [name for name in SWEEPS if ", " not in name])
async def test_without_a_crash_the_referee_has_nothing_to_say(world: World, name: str) -> None:
    for attribute, value in SWEEPS[name].changes.items():
        setattr(world, attribute, value)
    assert await world.run(rounds=SWEEPS[name].rounds) == 0
    assert world.complaints() == []
    HAPPENS.get(name, lambda _: None)(world)
