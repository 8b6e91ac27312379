"""The journal is cut below checkpoints, and everything still comes back from what is left of it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from stream_dp.pipeline import checkpoints, healing
from stream_dp.pipeline.chains import Chain
from stream_dp.pipeline.checkpoints import Often
from stream_dp.pipeline.decoding import partition_of
from stream_dp.pipeline.fuse import CrashPoint
from stream_dp.pipeline.journal import Journal
from stream_dp.pipeline.logs import Entry
from stream_dp.pipeline.needs import Needs
from stream_dp.pipeline.ownership import REJECTED
from stream_dp.state import journal, local
from stream_dp.state.journal import Checkpoint, summed
from stream_dp.state.local import LocalStore
from stream_dp.state.store import Outcomes, Place
from tests.pipeline.scenarios import (
    DAY_MS,
    ERASED,
    GATED,
    LIVES,
    NOV_1,
    PERSONS,
    ROTATED,
    ROUNDS,
    RUNS,
    STANDING,
)
from tests.pipeline.test_healing import durable, run, started
from tests.pipeline.world import World
from tests.slow import rest_is_slow

AA = {"attribute": "carrier", "eq": "AA"}
SMALL = Often(12, per_id=0)
POINTS = [
    CrashPoint.BEFORE_CHECKPOINT,
    CrashPoint.AFTER_CHECKPOINT,
    CrashPoint.BEFORE_TRUNCATION,
    CrashPoint.AFTER_TRUNCATION,
]


async def lived(world: World, rounds: Sequence[Any]) -> list[LocalStore]:
    """Runs rounds under one worker; returns a copy of the store from the end of each."""
    copies = []
    process = world.process()
    await process.assign()
    for produce in rounds:
        produce(world)
        await process.run()
        copies.append(copy.deepcopy(world.store))
    await process.kill()
    return copies


def facts(held: Any) -> dict[str, Any]:
    """What is durable of a data set, and the public facts about it."""
    rest = ("seq", "trail", "meta", "cursor", "transcript")
    return durable(held) | {part: copy.copy(getattr(held, part)) for part in rest}


async def differs(world: World, store: LocalStore) -> list[str]:
    """What a worker makes of another store: why data sets are stopped, and those that are not as before."""
    before = {name: facts(held) for name, held in world.store._datasets.items()}
    world.store, world.often = store, Often()  # it writes no checkpoint of its own
    worker = (await started(world)).worker
    found = [f"{name} is stopped: {why}" for name, why in worker.stopped.items()]
    for name, was in before.items():
        held = world.store._datasets.get(name)
        found += [f"{name} is gone"] if held is None else []
        now = {} if held is None else facts(held)
        found += [f"{name}: other {part}" for part in was if now.get(part) != was[part]]
    return found + world.complaints()


def first_entries(world: World) -> list[bytes]:
    """The type of the first entry of each partition that is there."""
    pairs = zip(world.journal, world.forgotten, strict=True)
    return [dict(entries[at].headers)["type"] for entries, at in pairs]


# ---------------------------------------------------------------- answers that rotate


async def test_the_journal_stays_as_long_as_answers_are_kept(world: Any) -> None:
    await lived(world, (*ROTATED, *ROTATED[1:], *ROTATED[1:]))
    lengths = [
        len(journal) - at for journal, at in zip(world.journal, world.forgotten, strict=True)
    ]
    assert all(length < 40 for length in lengths), "four days of twenty-one"
    assert all(at > 60 for at in world.forgotten)
    assert first_entries(world) == [b"checkpoint", b"checkpoint"]
    assert world.complaints() == []


@pytest.mark.parametrize("place", range(len(ROTATED)))
async def test_an_older_copy_comes_back_though_what_it_lacks_is_on_the_journal_no_more(
    world: Any, place: int
) -> None:
    """What it noted of the journal lies below its first entry: it must not be believed."""
    copies = await lived(world, ROTATED)
    notes = [max(held.notes.values(), key=_by_offset) for held in copies[1]._datasets.values()]
    assert all(note.offset < min(world.forgotten) for note in notes), "so this case is tried"
    assert await differs(world, copies[place]) == []


def _by_offset(note: Any) -> int:
    return int(note.offset)


async def test_an_empty_store_comes_back_from_a_partial_checkpoint(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    restored: list[Checkpoint] = []
    restore = healing._Patient._restore

    async def watched(self: Any, checkpoint: Checkpoint) -> None:
        restored.append(checkpoint)
        await restore(self, checkpoint)

    monkeypatch.setattr(healing._Patient, "_restore", watched)
    await lived(world, ROTATED)
    assert await differs(world, LocalStore()) == []
    assert {(one.dataset, one.partial) for one in restored} == {("flights", True), ("trains", True)}
    assert all(one.seq > 5 for one in restored), "it begins with the newest one that is enough"


async def test_the_older_copy_of_one_data_set_comes_back_next_to_newer_ones(world: Any) -> None:
    copies = await lived(world, ROTATED)
    store = copy.deepcopy(world.store)
    store._datasets["flights"] = copies[1]._datasets["flights"]
    assert await differs(world, store) == []


async def test_work_goes_on_behind_a_rebuild(world: Any) -> None:
    await lived(world, ROTATED)
    world.store = LocalStore()
    await lived(world, ROTATED[1:])
    assert await differs(world, LocalStore()) == []


# ---------------------------------------------------------------- all answers in a checkpoint


@pytest.mark.parametrize("rounds", [ROUNDS, STANDING, PERSONS, LIVES, ROTATED])
async def test_whole_checkpoints_are_as_good_as_all_records(world: Any, rounds: Any) -> None:
    world.often = SMALL
    await lived(world, rounds)
    assert max(world.forgotten) > 10
    assert await differs(world, LocalStore()) == []


@pytest.mark.parametrize("rounds", [RUNS, GATED, ERASED])
async def test_so_they_are_of_runs_whose_secrets_are_lost_with_the_store(
    world: Any, rounds: Any
) -> None:
    world.often = SMALL
    await lived(world, rounds)
    assert max(world.forgotten) > 10
    before = {name: durable(held) for name, held in world.store._datasets.items()}
    world.store = LocalStore()
    assert (await started(world)).worker.stopped == {}
    assert {name: durable(held) for name, held in world.store._datasets.items()} == before


@pytest.mark.slow
@pytest.mark.parametrize("rounds", [ROUNDS, ROTATED, LIVES])
async def test_an_emptied_store_is_built_anew_wherever_the_worker_dies(
    make_world: Callable[..., Any], rounds: Any
) -> None:
    said: list[str] = []

    def forget(world: Any) -> None:
        world.store = LocalStore()

    for place in range(5, 10_000, 47):
        world = make_world(seed=place + 1)
        world.often = SMALL
        if not await run(world, rounds, place, forget):
            assert said == []
            return
        said += [f"at {place}: {complaint}" for complaint in world.complaints()]
    raise AssertionError("there are more effects than places")


@pytest.mark.parametrize(
    "rounds", rest_is_slow([ROUNDS, ROTATED], first=1), ids=["whole", "partial"]
)
@pytest.mark.parametrize("point", POINTS)
async def test_a_crash_around_a_checkpoint_breaks_no_promise(
    make_world: Callable[..., Any], point: CrashPoint, rounds: Any
) -> None:
    """Nor does it if the store is lost at once."""
    died = 0
    for place in range(100):
        for is_lost in (False, True):
            world = make_world(seed=place)
            world.often = SMALL if rounds is ROUNDS else Often()
            fuse = world.Fuse(place, point)
            died += await _run(world, rounds, fuse, is_lost=is_lost)
            assert world.complaints() == []
        if fuse.met <= place:
            assert died > 2, "it was never met"
            return
    raise AssertionError("there are more checkpoints than places to die at")


async def _run(world: World, rounds: Sequence[Any], fuse: Any, *, is_lost: bool) -> int:
    process, deaths = None, 0
    for produce in rounds:
        produce(world)
        while True:
            try:
                if process is None:
                    process = world.process(None if deaths else fuse)
                    await process.assign()
                await process.run()
            except world.Crash:
                deaths += 1
                assert process is not None
                await process.kill()
                process = None
                if is_lost:
                    world.store = LocalStore()
            else:
                break
    assert process is not None
    await process.kill()
    return deaths


@pytest.mark.parametrize("rounds", [ROUNDS, ROTATED])
async def test_a_ledger_of_which_the_last_entries_are_left_goes_on_behind_them(
    world: Any, monkeypatch: pytest.MonkeyPatch, rounds: Any
) -> None:
    for module in (local, journal):
        monkeypatch.setattr(module, "LEDGER_TAIL", 3)
    world.often = SMALL
    copies = await lived(world, rounds)
    for store in (copies[2], LocalStore()):
        assert await differs(world, store) == []
    assert {len(held.ledger) for held in world.store._datasets.values()} <= {1, 2, 3}


# ---------------------------------------------------------------- what keeps the journal, and what does not

TOGETHER = ("flights", "cars")


def test_these_two_are_in_one_partition(world: Any) -> None:
    assert len({partition_of(name.encode(), world.partitions) for name in TOGETHER}) == 1


def _one_falls_silent(world: World) -> None:
    for name in TOGETHER:
        world.define(name, mechanism={"base_share": 0.0})
        world.cells(name, "one")
        world.batch(name, "waits", rows=[{"carrier": "AA"}])
        world.ask(name, "aa", AA)


def _the_other_goes_on(world: World) -> None:
    for number in range(5):
        world.ask("flights", f"{world.next_offset('queries', 'flights')}-{number}", AA)


def _retired(world: World) -> None:
    world.produce("datasets", None, key="cars")


@pytest.mark.parametrize("way", ["silent", "retired"])
async def test_a_data_set_without_records_or_rows_does_not_keep_the_journal(
    world: Any, way: str
) -> None:
    world.often, world.group = SMALL, 1
    ends = [_retired] if way == "retired" else []
    await lived(world, (_one_falls_silent, *ends, *[_the_other_goes_on] * 12))
    partition = partition_of(b"cars", world.partitions)
    assert world.forgotten[partition] > 40
    assert await differs(world, LocalStore()) == []


async def test_many_answers_that_are_kept_for_ever_keep_the_journal(world: Any) -> None:
    """A checkpoint would be as long as the journal itself, so none is written."""
    world.often, world.group = Often(12, per_id=8), 1
    await lived(world, (_one_falls_silent, *[_the_other_goes_on] * 12))
    assert world.forgotten == [0, 0]
    assert await differs(world, LocalStore()) == []


async def test_a_checkpoint_that_would_be_too_large_is_not_written_and_nothing_is_deleted(
    world: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(checkpoints, "LARGEST_CHECKPOINT", 500)
    world.often = SMALL
    await lived(world, ROTATED)
    assert max(world.forgotten) < 30
    assert caplog.text.count("a checkpoint of it would have more than") == 2, "once for each"
    world.store = LocalStore()
    assert (await started(world)).worker.stopped == {}
    assert world.complaints() == []


async def test_a_data_set_that_is_stopped_keeps_its_partition_of_the_journal(world: Any) -> None:
    world.now_ms = NOV_1

    def both(world: World) -> None:
        for name in TOGETHER:
            world.define(name, retention={"answers": {"days": 2}})

    def one_day_more(world: World) -> None:
        world.now_ms += DAY_MS
        for name in TOGETHER:
            world.ask(name, f"q-{world.now_ms}", AA)

    await lived(world, (both, *[one_day_more] * 7))
    partition = partition_of(b"cars", world.partitions)
    before, entries = world.forgotten[partition], world.journal[partition]
    assert before > 0
    for at, entry in enumerate(entries):
        if entry.key == b"cars" and dict(entry.headers)["type"] == b"checkpoint":
            entries[at] = replace(entry, value=b"not a checkpoint")
    world.store = LocalStore()
    process = world.process()
    await process.assign()
    for _ in range(7):
        one_day_more(world)
        await process.run()
    await process.kill()
    assert process.worker.stopped.keys() == {"cars"}
    assert world.forgotten[partition] == before


async def test_rows_that_wait_are_kept_until_they_are_in_a_phase_and_not_longer(world: Any) -> None:
    def waiting() -> list[bytes]:
        return [key for key in world.kept if b"/waiting/" in key]

    world.now_ms = NOV_1
    world.define("flights", retention={"answers": {"days": 2}})
    copies = await lived(world, [lambda _: None])
    for day in range(1, 9):

        def produce(world: World, day: int = day) -> None:
            world.now_ms = NOV_1 + day * DAY_MS
            world.batch("flights", f"small-{day}", rows=[{"carrier": "AA"}, {}])
            world.ask("flights", f"q-{day}", AA)

        copies += await lived(world, [produce])
    assert 0 < len(waiting()) <= 2 * 8, "of two checkpoints"
    assert await differs(world, LocalStore()) == []
    assert len(world.held("flights").pending) == 8
    await lived(world, [lambda world: world.cells("flights", "opens")])
    assert waiting() == []
    assert await differs(world, LocalStore()) == []


@pytest.mark.parametrize("is_broken", [False, True])
async def test_what_is_done_with_is_not_taken_from_a_store_that_went_back(
    world: Any, monkeypatch: pytest.MonkeyPatch, is_broken: bool
) -> None:
    """Only a mark says that a record was rejected because there was no such data set then."""
    if is_broken:
        monkeypatch.setattr(Journal, "noted_epoch", _own_epoch)
    world.often, world.group = SMALL, 1
    world.ask("cars", "early", AA)
    world.define("flights", mechanism={"base_share": 0.0})
    await lived(world, [lambda world: world.cells("flights", "one")])
    process = world.process()
    await process.assign()
    world.store._watermarks.clear()  # the slot that belongs to no data set goes back alone
    world.store._listed.clear()
    for _ in range(8):
        _the_other_goes_on(world)
        await process.run()
    await process.kill()
    partition = partition_of(b"flights", world.partitions)
    assert (world.forgotten[partition] > 10) is is_broken
    left = world.journal[partition][world.forgotten[partition] :]
    marks = [entry.value for entry in left if dict(entry.headers)["type"] == b"mark"]
    assert any(REJECTED.encode() in mark for mark in marks) is not is_broken


async def test_offsets_mean_nothing_in_another_deployment(world: Any) -> None:
    await lived(world, ROTATED)
    meta = world.held("flights").meta
    partition = partition_of(b"flights", world.partitions)
    here = Needs.of(meta, f"journal:{partition}")
    assert here.start is not None
    assert Needs.of(meta, "another:0") == Needs("another:0")


# ---------------------------------------------------------------- broken copies

Mutate = Callable[[pytest.MonkeyPatch], None]


def the_journal_is_cut_below_a_checkpoint_that_is_not_acknowledged(
    patch: pytest.MonkeyPatch,
) -> None:
    async def unwritten(self: Journal, dataset: str, checkpoint: bytes) -> int:
        return self.ends()[self.partition_of(dataset)]

    patch.setattr(Journal, "checkpoint", unwritten)
    patch.setattr(Journal, "_is_checkpoint", _true)


def the_journal_is_cut_behind_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    forget = Journal.forget

    async def too_far(self: Journal, partition: int, before: int, *rest: Any) -> bool:
        return await forget(self, partition, before + 1, *rest)

    patch.setattr(Journal, "forget", too_far)
    patch.setattr(Journal, "_is_checkpoint", _true)


async def _true(*_: Any) -> bool:
    return True


async def _own_epoch(self: Any, partition: int) -> int:
    return int(self.epoch(partition))


def what_was_noted_is_believed_across_a_gap(patch: pytest.MonkeyPatch) -> None:
    def noted(cls: type[Chain], place: Place) -> Chain:
        return Chain.noted(place)

    patch.setattr(Chain, "cut", classmethod(noted))


def the_newest_answers_are_left_out(patch: pytest.MonkeyPatch) -> None:
    def without(snapshot: Any, outcomes: Outcomes, *rest: Any, **named: Any) -> Checkpoint:
        return summed(snapshot, outcomes._replace(answers={}), *rest, **named)

    patch.setattr(checkpoints, "summed", without)


def a_partial_checkpoint_is_relied_on_at_once(patch: pytest.MonkeyPatch) -> None:
    after = Needs.after

    def at_once(self: Needs, *said: Any, is_partial: bool) -> Needs:
        del is_partial
        return after(self, *said, is_partial=False)

    patch.setattr(Needs, "after", at_once)


def a_partial_checkpoint_calls_itself_whole(patch: pytest.MonkeyPatch) -> None:
    def boasting(*said: Any, **named: Any) -> Checkpoint:
        return replace(summed(*said, **named), partial=False)

    patch.setattr(checkpoints, "summed", boasting)


@pytest.mark.parametrize(
    "mutate",
    [
        the_journal_is_cut_below_a_checkpoint_that_is_not_acknowledged,
        the_journal_is_cut_behind_the_checkpoint,
        what_was_noted_is_believed_across_a_gap,
        the_newest_answers_are_left_out,
        a_partial_checkpoint_is_relied_on_at_once,
        a_partial_checkpoint_calls_itself_whole,
    ],
)
async def test_a_broken_protocol_is_caught(
    make_world: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, mutate: Mutate
) -> None:
    mutate(monkeypatch)
    for place in range(-1, len(ROTATED)):
        world = make_world()
        copies = await lived(world, ROTATED)
        try:
            if await differs(world, copies[place] if place >= 0 else LocalStore()):
                return
        except Exception:  # noqa: BLE001 - a worker that cannot go on has noticed
            return
    raise AssertionError("nobody noticed")


# ---------------------------------------------------------------- others who delete, or have deleted too much


async def test_entries_that_a_former_owner_deletes_meanwhile_are_not_missed(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    copies = await lived(world, ROTATED)
    wanted, forgotten = list(world.forgotten), world.forgotten
    forgotten[:] = [0] * world.partitions
    read = Journal._read

    async def slow(self: Any, partition: int, *said: Any) -> Any:
        forgotten[partition] = wanted[partition]
        return await read(self, partition, *said)

    monkeypatch.setattr(Journal, "_read", slow)
    assert min(wanted) > 0
    assert await differs(world, copies[1]) == []


async def test_the_name_of_a_data_set_that_is_stopped_is_never_free(world: Any) -> None:
    await lived(world, ROTATED)
    for entries in world.journal:
        entries[:-2] = [Entry(b"", b"") if entry.key else entry for entry in entries[:-2]]
    world.store = LocalStore()
    for _ in range(3):
        process = world.process()
        await process.assign()
        world.define("flights")
        await process.run()
        assert process.worker.stopped.keys() == {"flights", "trains"}
        assert process.worker.datasets == {}
        await process.kill()
