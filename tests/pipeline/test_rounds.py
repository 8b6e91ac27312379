"""Rounds of checkpoints: the next owner begins with one, and what is deleted below it is missed by nobody."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest

from stream_dp.errors import Fenced
from stream_dp.pipeline.intake.records import place_in
from stream_dp.pipeline.journal import (
    entries,
    releaser,
)
from stream_dp.pipeline.journal.checkpoint_rounds import Often, Rounds
from stream_dp.pipeline.journal.entries import Round, entries_of
from stream_dp.pipeline.journal.journal import Journal
from stream_dp.pipeline.journal.marks import said
from stream_dp.pipeline.kafka.topic_log import LogEntry
from stream_dp.state.schema import StateTable
from tests.pipeline.durable import SOON, contents, differ, lost_by_a_take_over
from tests.pipeline.fakes import FakeLog
from tests.pipeline.held import held_of
from tests.pipeline.scenarios import (
    AA,
    EVERY,
    LIVES,
    ROTATED,
    ROUNDS,
)
from tests.pipeline.trail import Sent
from tests.pipeline.world import World

CARRIES = Often(n_bytes=40_000, per_id=0)
"""Rounds as often as a short test needs them, which carry all answers that are kept."""


def ends(world: World, partition: int) -> Iterator[tuple[int, Round]]:
    """The rounds that were finished, each with the offset of its end."""
    for offset, entry in enumerate(world.journal[partition]):
        if dict(entry.headers)["kind"] == b"end":
            yield offset, Round.from_bytes(entry.value)


# ---------------------------------------------------------------- when


TOGETHER = ("flights", "cars")


def define_both(world: World) -> None:
    for name in TOGETHER:
        world.define(name, mechanism={"base_share": 0.0})
        world.cells(name, "one")
        world.batch(name, "waits", rows=[{"carrier": "AA"}])
        world.ask(name, "aa", AA)


def asks(world: World) -> None:
    for number in range(5):
        world.ask("flights", f"{world.next_offset('queries', 'flights')}-{number}", AA)


async def test_a_round_is_made_when_so_many_bytes_are_behind_the_last_one(world: World) -> None:
    """Each entry counts with 4,096 bytes more: reading it takes as long as that."""
    world.often, world.group = Often(n_bytes=30 * 4_096), 1
    process = await world.lives(define_both, *[asks] * 12)
    made = [one for _, one in ends(world, world.home("flights"))]
    assert len(made) > 2
    begins = [one.begin for one in made]
    between = [later - before for before, later in zip([0, *begins], begins, strict=False)]
    assert max(between) <= 30 + 8, "what one step makes comes on top"
    assert min(between) > 10, "small entries, so there are nearly as many"
    owned = process.worker.journal.owned()[world.home("flights")]
    grown = len(world.journal[world.home("flights")]) - owned.begin
    assert grown < 38
    assert [*ends(world, world.home("trains"))] == [], "nothing is there of any use"


async def test_what_is_written_is_in_proportion_to_what_grew(world: World) -> None:
    """However soon it is due, a round waits until half of what it writes has come."""
    world.often = Often(n_bytes=1)
    process = await world.owner()
    world.define("flights", mechanism={"base_share": 0.0})
    world.cells("flights", "one")
    await process.run()
    chain = process.worker.journal.chain("flights")
    for number in range(3_000):
        chain.ids.put({(StateTable.ANSWER, b"%d" % number): b"x"}, number)
    chain.ids.compact()
    index = chain.ids.n_bytes
    assert index > 80_000
    before = len([*ends(world, world.home("flights"))])
    for _ in range(40):
        asks(world)
        await process.run()
    await process.kill()
    written = len([*ends(world, world.home("flights"))]) - before
    grown = sum(len(entry.value) + 4_096 for entry in world.journal[world.home("flights")])
    assert 1 <= written <= 2 * grown / index


# ---------------------------------------------------------------- what the next owner begins with


@pytest.mark.parametrize("often", [SOON, CARRIES], ids=["few are carried", "all are carried"])
@pytest.mark.parametrize("name", EVERY)
async def test_a_round_is_as_good_as_all_commits(world: World, name: str, often: Often) -> None:
    world.often = often
    await world.lives(*EVERY[name])
    assert any([*ends(world, at)] for at in range(world.partitions))
    assert max(world.forgotten) > 10 or often is not CARRIES
    assert await lost_by_a_take_over(world) == []


@pytest.mark.parametrize("scenario", [ROUNDS, ROTATED, LIVES])
async def test_nobody_reads_what_is_below_the_newest_round_and_holds_no_answer(
    world: World, scenario: Any
) -> None:
    """All else that is below it is spoilt here: the next worker finds the same without it."""
    world.often = replace(SOON, per_id=10_000)
    former = await world.lives(*scenario)
    spoilt = 0
    world.shows_outputs = False  # they may say where commits were that are spoilt now
    before = held_of(world)
    live = {
        found.offset
        for name, held in before.items()
        for pair in contents(held)
        if (found := former.worker.journal.chain(name).ids.find([pair]).get(pair)) is not None
    }
    for partition, owned in former.worker.journal.owned().items():
        for offset in range(owned.begin):
            if offset not in live:
                old = world.journal[partition][offset]
                world.journal[partition][offset] = LogEntry(old.key, b"", (("kind", b"spoilt"),))
                spoilt += 1
    assert spoilt > 20
    world.often = Often()
    process = await world.owner()
    await process.run()
    for held in before.values():
        assert await differ(process.worker.journal, held) == []


async def test_marks_of_before_come_with_a_round(world: World) -> None:
    """What was rejected, what has left and where reading goes on: nothing else would say it any more."""
    world.often, world.group = CARRIES, 1
    former = await world.lives(lambda w: w.ask("cars", "early", AA), define_both, *[asks] * 12)
    partition = world.home("flights")
    before = former.worker.journal.owned()[partition].marks
    assert any(name.startswith("rejected ") for name in before.watermarks)
    first = world.forgotten[partition]
    there = zip(world.kinds(partition), world.journal[partition][first:], strict=True)
    says = {kind for kind, entry in there if b"rejected in.queries" in entry.value}
    assert says == {"begin"}
    world.often = Often()
    process = await world.lives()
    after = process.worker.journal.owned()[partition].marks
    for name, offset in before.watermarks.items():
        assert after.watermarks[name] == offset or not name.startswith("rejected ")
        assert after.watermarks[name] >= offset - 1, (
            "the last record was never said to be done with"
        )
    assert (after.released >= first, after.first) == (True, first)


async def test_nothing_leaves_again_that_has_left_before_the_round(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releaser, "_IDLE_S", 3_600.0)  # the last owner does not say what has left
    world.often, world.group = CARRIES, 1
    await world.lives(define_both, *[asks] * 12)
    _, made = [*ends(world, world.home("flights"))][-1]
    world.trail.clear()
    await world.lives()
    places = [
        place_in(one.headers)
        for one in world.left()
        if world.home(one.key) == world.home("flights")
    ]
    assert places
    assert all(place is not None and place.offset >= made.begin for place in places)


# ---------------------------------------------------------------- what is deleted, and what is not


@pytest.mark.parametrize("per_id", [0, 8])
async def test_it_is_cut_below_the_round_if_few_answers_are_below_it(
    world: World, per_id: int
) -> None:
    """They are all kept for ever here, and each commit has one: there are two or three entries for each."""
    world.often, world.group = Often(n_bytes=40_000, per_id=per_id), 1
    await world.lives(define_both, *[asks] * 12)
    partition = world.home("flights")
    (*_, (_, made)) = ends(world, partition)
    if per_id == 8:
        assert world.forgotten[partition] < 12, "below the first answer alone"
    else:
        assert world.forgotten[partition] == made.begin
    assert await lost_by_a_take_over(world) == []


def _retired(world: World) -> None:
    world.produce("datasets", None, key="cars")


@pytest.mark.parametrize("way", ["silent", "retired"])
async def test_a_data_set_without_records_or_rows_does_not_keep_the_journal(
    world: World, way: str
) -> None:
    world.often, world.group = CARRIES, 1
    await world.lives(define_both, *([_retired] if way == "retired" else []), *[asks] * 12)
    assert world.forgotten[world.home("flights")] > 40
    assert await lost_by_a_take_over(world) == []


async def test_a_data_set_that_is_stopped_keeps_its_partition_of_the_journal(world: World) -> None:
    """No state can be written of it, so it would be forgotten. The other one goes on."""
    world.often, world.group = CARRIES, 1
    await world.lives(define_both, *[asks] * 6)
    before = world.forgotten[world.home("flights")]
    assert before > 0
    for at, entry in enumerate(world.journal[world.home("flights")]):
        if entry.key == b"cars" and dict(entry.headers)["kind"] == b"checkpoint":
            world.journal[world.home("flights")][at] = replace(entry, value=b"not a checkpoint")
    rounds_before = len([*ends(world, world.home("flights"))])
    process = await world.lives(*[asks] * 12)
    assert process.worker.stopped.keys() == {"cars"}
    assert len(world.answers()) == 2 + 18 * 5
    assert world.forgotten[world.home("flights")] == before
    assert len([*ends(world, world.home("flights"))]) == rounds_before
    assert world.kinds(world.home("flights")).count("begin") == 1, "it is not even tried"


# ---------------------------------------------------------------- work meanwhile


async def test_work_goes_on_while_a_round_is_written(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round says what was at its begin, and the commits since are read behind it."""
    wait, written = asyncio.Event(), Rounds._write

    async def slow(self: Rounds, *arguments: Any) -> int:
        await wait.wait()
        return await written(self, *arguments)

    monkeypatch.setattr(Rounds, "_write", slow)
    world.often, world.group = CARRIES, 1
    process = await world.owner()
    define_both(world)
    for _ in range(8):
        asks(world)
        while await process.step():
            pass
    world.define("boats")
    world.define("ships")
    while await process.step():
        pass
    wait.set()
    await process.drained()
    await process.kill()
    partition = world.home("flights")
    (*_, (end, made)) = ends(world, partition)
    between = world.journal[partition][made.begin : end]
    assert [dict(one.headers)["kind"] for one in between].count(b"commit") > 10
    assert {"boats", "ships"} - made.checkpoints.keys(), "one is too new for it"
    assert await lost_by_a_take_over(world) == []


@pytest.mark.parametrize("scenario", [ROUNDS, ROTATED])
async def test_entries_in_many_parts_are_read_as_one(
    world: World, monkeypatch: pytest.MonkeyPatch, scenario: Any
) -> None:
    monkeypatch.setattr(entries, "_PART_BYTES", 800)  # marks are shorter
    world.often = CARRIES
    await world.lives(*scenario)
    headers = [dict(entry.headers) for one in world.journal for entry in one]
    in_parts = [one["kind"] for one in headers if "part" in one]
    assert in_parts.count(b"checkpoint") > 5
    assert in_parts.count(b"commit") > 3 or scenario is ROTATED
    assert max(world.forgotten) > 0
    assert await lost_by_a_take_over(world) == []


# ---------------------------------------------------------------- deaths


async def test_a_round_that_another_worker_has_interrupted_is_ignored(
    make_world: Callable[..., World],
) -> None:
    """A worker sleeps at each effect of a round in turn. Meanwhile another one makes rounds of its own."""
    slept = 0
    for effect in range(1, 300, 4):
        world = make_world()
        world.often, world.group = CARRIES, 1
        zombie, heir = world.process(), world.process()
        await zombie.assign()
        define_both(world)
        for _ in range(3):
            asks(world)
        await zombie.run()
        asleep, awake = asyncio.Event(), asyncio.Event()
        here_it_is = zombie.effects + effect

        async def sleep(
            at: int, of: int = here_it_is, asleep: Any = asleep, awake: Any = awake
        ) -> None:
            if at == of:
                asleep.set()
                await awake.wait()

        zombie.interrupt = sleep
        asks(world)
        asks(world)
        lives = asyncio.ensure_future(zombie.run())
        sleeps = asyncio.ensure_future(asleep.wait())
        await asyncio.wait({lives, sleeps}, return_when=asyncio.FIRST_COMPLETED)
        if lives.done():
            sleeps.cancel()
            await lives
            await zombie.kill()
            assert slept > 5
            return
        in_a_round = zombie.worker.rounds.busy
        await heir.assign()
        await heir.run()
        for _ in range(4):
            asks(world)
        await heir.run()
        awake.set()
        with contextlib.suppress(Fenced):
            await lives
        await zombie.kill()
        asks(world)
        await heir.run()
        await heir.kill()
        slept += in_a_round
        assert await lost_by_a_take_over(world) == [], effect
    raise AssertionError("there are more effects than places to sleep at")


# ---------------------------------------------------------------- which round is the newest


async def two_rounds(world: World) -> list[tuple[int, Round]]:
    world.often, world.group = replace(SOON, per_id=10_000), 1
    await world.lives(define_both, *[asks] * 14)
    world.often = Often()
    found = [*ends(world, world.home("flights"))]
    assert len(found) > 2
    return found


@pytest.mark.parametrize("n_late", [1, 20])
async def test_an_older_round_that_a_zombie_names_last_is_not_the_newest(
    world: World, n_late: int
) -> None:
    (older, _), *_, (newest, made) = await two_rounds(world)
    await world.lives()
    zombies = dict(world.journal[world.home("flights")][older].headers)["epoch"]
    late = entries_of("mark", "", said(released=1), zombies, newest=older)
    world.journal[world.home("flights")] += late * n_late
    process = await world.lives()
    owned = process.worker.journal.owned()[world.home("flights")]
    assert (owned.newest, owned.begin) == (newest, made.begin)
    assert await lost_by_a_take_over(world) == []


# ---------------------------------------------------------------- others who delete


async def test_entries_that_a_former_owner_deletes_meanwhile_are_not_missed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.often = CARRIES
    await world.lives(*ROTATED)
    wanted, forgotten = list(world.forgotten), world.forgotten
    assert min(wanted) > 0
    older = [next(ends(world, at))[1].begin for at in range(world.partitions)]
    forgotten[:] = older
    read = FakeLog.read

    async def slow(
        self: FakeLog, partition: int, start: int, end: int
    ) -> AsyncIterator[Sequence[tuple[int, LogEntry]]]:
        forgotten[partition] = wanted[partition]
        async for piece in read(self, partition, start, end):
            yield piece

    monkeypatch.setattr(FakeLog, "read", slow)
    assert await lost_by_a_take_over(world) == []


async def test_entries_that_a_former_owner_deletes_late_are_not_relied_on(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last round is finished just when the next owner has looked for the newest one."""
    world.often = CARRIES
    await world.lives(*ROTATED)
    deleted, newest = list(world.forgotten), list[int]()
    for partition in range(world.partitions):
        *_, (_, older), (end, made) = ends(world, partition)
        assert older.begin < made.begin == deleted[partition], "it carries what was below"
        world.forgotten[partition] = older.begin
        newest.append(end)
    bounds = FakeLog.bounds

    async def before(self: FakeLog, partition: int, *, reaches: int = 0) -> tuple[int, int]:
        first, end = await bounds(self, partition, reaches=reaches)
        return first, end if reaches else newest[partition]

    entered = Journal.entered

    async def deletes(self: Journal, partition: int) -> Any:
        owned = await entered(self, partition)
        world.forgotten[partition] = deleted[partition]
        return owned

    monkeypatch.setattr(FakeLog, "bounds", before)
    monkeypatch.setattr(Journal, "entered", deletes)
    assert await lost_by_a_take_over(world) == []


# ---------------------------------------------------------------- what has left


def busy(world: World) -> None:
    for _ in range(8):
        asks(world)


async def test_all_that_was_decided_before_a_round_has_left_by_its_begin(world: World) -> None:
    world.often, world.lagging, world.group = CARRIES, True, 1
    await world.lives(define_both, busy, busy)
    partition, compared = world.home("flights"), 0
    for _, made in ends(world, partition):
        for event in world.trail:
            if isinstance(event, Sent) and event.journal[partition] > made.begin:
                place = place_in(event.outgoing.headers)
                if place is not None and world.home(event.outgoing.key) == partition:
                    compared += 1
                    assert place.offset > made.begin
    assert compared > 20
