"""A store that goes back, or is lost, is healed from the journal: nothing that was seen changes."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import pytest

from stream_dp.errors import Fenced, StoreError
from stream_dp.pipeline import healing
from stream_dp.pipeline.chains import Chain, judged
from stream_dp.pipeline.checkpoints import Often
from stream_dp.pipeline.decoding import partition_of
from stream_dp.pipeline.fuse import CrashPoint
from stream_dp.pipeline.healing import records_of
from stream_dp.pipeline.journal import Journal
from stream_dp.pipeline.ownership import REJECTED
from stream_dp.pipeline.records import Commit, Releasable
from stream_dp.state.journal import CommitRecord, noting
from stream_dp.state.local import LocalStore
from stream_dp.state.store import ORIGIN, Snapshot, Transition
from tests.pipeline.crash import CountingFuse
from tests.pipeline.referee.evidence import journaled
from tests.pipeline.scenarios import (
    AA,
    DAY_MS,
    ERASED,
    GATED,
    LATE,
    LIVES,
    NOV_1,
    PERSONS,
    ROTATED,
    ROUNDS,
    RUNS,
    STANDING,
)
from tests.pipeline.trail import Sent
from tests.slow import rest_is_slow


async def run(world: Any, rounds: Any, place: int, forget: Callable[[Any], None]) -> int:
    """Runs all rounds; at one effect the worker dies, and the store forgets something."""
    deaths = 0
    fuse = world.Fuse(place)
    process: Any = None
    for produce in rounds:
        produce(world)
        while True:
            try:
                if process is None:
                    process = world.process(fuse if deaths == 0 else None)
                    await process.assign()
                await process.run()
            except world.Crash:
                deaths += 1
                await process.kill()
                process = None
                forget(world)
            else:
                break
    if process is not None:
        await process.kill()
    return deaths


@pytest.mark.parametrize(
    "rounds",
    rest_is_slow([ROUNDS, RUNS, PERSONS, LIVES, ERASED, STANDING, GATED, ROTATED], first=3),
)
async def test_an_emptied_store_is_built_anew(make_world: Callable[..., Any], rounds: Any) -> None:
    said: list[str] = []
    for place in range(3, 10_000, 41):
        world = make_world(seed=place + 1)

        def forget(world: Any) -> None:
            world.store = LocalStore()

        if not await run(world, rounds, place, forget):
            assert said == []
            return
        said += [f"at {place}: {complaint}" for complaint in world.complaints()]
    raise AssertionError("there are more effects than places")


@pytest.mark.parametrize(
    "rounds",
    [ROUNDS, RUNS, ERASED, PERSONS, ROTATED, ROTATED[:1]],
    ids=["all", "runs", "erased", "persons", "rotated", "defined"],
)
async def test_what_an_earlier_release_has_left_is_built_again_from_a_checkpoint(
    world: Any, rounds: Any
) -> None:
    """That release had no journal and kept no blocks. The first worker with one puts it there."""
    await world.run(rounds=rounds)
    for held in world.store._datasets.values():
        held.trail = ORIGIN
        held.notes.clear()
        later = ("kept", "journal", "waited")
        held.meta = {name: text for name, text in held.meta.items() if not name.startswith(later)}
    world.store._listed.clear()
    world.journal = [[] for _ in range(world.partitions)]
    world.forgotten = [0] * world.partitions
    world.kept.clear()
    await started(world)
    before = {name: durable(held) for name, held in world.store._datasets.items()}
    transcripts = {name: held.transcript for name, held in world.store._datasets.items()}
    types = [dict(entry.headers)["type"] for entries in world.journal for entry in entries]
    assert types.count(b"checkpoint") == len(before) > 0
    world.store = LocalStore()
    process = world.process()
    await process.assign()
    await process.drained()
    await process.kill()
    assert process.worker.datasets.keys() == before.keys()
    after = {name: durable(held) for name, held in world.store._datasets.items()}
    assert after == before
    for name, transcript in transcripts.items():  # a run whose secret is gone ends
        assert world.held(name).transcript[: len(transcript)] == transcript


@pytest.mark.parametrize("rounds", [ROUNDS, ERASED, PERSONS, LIVES])
@pytest.mark.parametrize("often", [10_000, 12], ids=["commits", "checkpoint"])
async def test_a_retired_data_set_is_built_anew_without_its_rows_and_secrets(
    world: Any, rounds: Any, often: int
) -> None:
    """Nothing is kept of them any more, not even where some rows waited when it was retired."""
    world.often = Often(often, per_id=0)
    retire = partial(world.produce, "datasets", None, key="flights")
    later = partial(_asks, "trains"), partial(_asks, "flights"), partial(_asks, "trains")
    await world.run(rounds=[*rounds, lambda _: retire(), *later])
    await started(world)
    before = {name: durable(held) for name, held in world.store._datasets.items()}
    assert before["flights"]["retired"]
    world.store = LocalStore()
    process = await started(world)
    assert process.worker.stopped == {}
    assert {name: durable(held) for name, held in world.store._datasets.items()} == before
    assert world.complaints() == []


@pytest.mark.parametrize("role", ["catalog", "synthetic"])
async def test_who_takes_a_retired_data_set_over_erases_it_from_compacted_topics_again(
    world: Any, role: str
) -> None:
    """A worker that slept may have put something behind the record that erased it."""
    await world.run(rounds=ERASED)
    world.produce("datasets", None, key="flights")
    await started(world)
    erased = world.released(role).count(None)
    for again in (1, 2, 3):  # and what one of them sends is no old record to the next one
        await started(world)
        assert world.released(role).count(None) == erased + again


def _asks(name: str, world: Any) -> None:
    for _ in range(40):
        world.ask(name, f"later-{world.next_offset('queries', name)}", AA)


async def announced(world: Any) -> None:
    """A look is announced, and paid for, and the worker dies before it takes it."""
    world.define("flights", mechanism={"base_share": 0.0})
    await started(world)
    world.cells("flights", "one")
    await started(world)
    world.ask("flights", "q1", AA)
    process = world.process(CountingFuse(0, CrashPoint.AFTER_CHARGE))
    await process.assign()
    with contextlib.suppress(world.Crash):
        await process.run()
    await process.kill()
    assert world.held("flights").intents


def lost_looks(world: Any) -> list[bytes]:
    """What the transcript says of looks that were announced and never published."""
    return [one for one in world.held("flights").transcript if one[:1] == b"\x02"]


def without_a_journal(world: Any) -> None:
    """Leaves what a release would have left that had no journal and kept no blocks."""
    for held in world.store._datasets.values():
        held.trail = ORIGIN
        held.notes.clear()
        held.outbox.clear()
        later = ("kept", "journal", "waited")
        held.meta = {name: text for name, text in held.meta.items() if not name.startswith(later)}
    world.store._listed.clear()
    world.journal = [[] for _ in range(world.partitions)]
    world.forgotten = [0] * world.partitions
    world.kept.clear()


@pytest.mark.parametrize("soon", [True, False], ids=["before it is served", "later"])
async def test_a_look_that_an_earlier_release_has_announced_stays_lost_if_the_store_is_lost(
    make_world: Any, soon: bool
) -> None:
    world = make_world()
    await announced(world)
    without_a_journal(world)
    if soon:  # the worker dies as soon as the first checkpoint is there
        process = world.process(CountingFuse(0, CrashPoint.AFTER_APPEND))
        with contextlib.suppress(world.Crash):
            await process.assign()
            await process.run()
        await process.kill()
        assert world.answers() == {}
    else:
        process = await started(world)
        assert process.worker.stopped == {}
        assert len(lost_looks(world)) == 1
    world.store = LocalStore()
    process = await started(world)
    assert process.worker.stopped == {}
    assert len(lost_looks(world)) == 1
    assert world.answer("q1")["status"] == "answered"
    assert len(world.answers()) == 1


async def left_open(world: Any, patch: pytest.MonkeyPatch) -> list[str]:
    """What stops after a checkpoint was written while a look was announced, as by an earlier release.

    The store is lost later, and healing dies at each of its commits before it comes to its end.
    """

    def left(snapshot: Snapshot, meta: Mapping[str, str]) -> Transition:
        return noting(snapshot, meta)

    patch.setattr(healing, "settling", left)
    await announced(world)
    without_a_journal(world)
    await started(world)
    before = durable(world.held("flights"))
    assert len(lost_looks(world)) == 1
    world.store = LocalStore()
    for _ in range(1_000):
        process = world.process(CountingFuse(1, CrashPoint.IN_HEALING))
        try:
            await process.assign()
            await process.run()
        except world.Crash:
            await process.kill()
            continue
        await process.kill()
        if process.worker.stopped == {}:
            assert durable(world.held("flights")) == before
            assert len(lost_looks(world)) == 1
        return [*process.worker.stopped.values()]
    raise AssertionError("healing does not come to its end")


async def test_a_look_that_an_earlier_release_left_open_in_a_checkpoint_is_settled_once(
    make_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await left_open(make_world(), monkeypatch) == []


async def test_a_healing_that_settles_what_a_checkpoint_has_dropped_stops_its_data_set(
    make_world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken copy."""

    def every(_: Any, record: CommitRecord) -> list[int]:
        return [*record.settles]

    monkeypatch.setattr(healing._Patient, "_settled", every)
    (why,) = await left_open(make_world(), monkeypatch)
    assert "no open look was announced" in why


async def test_of_a_compacted_topic_only_the_newest_record_of_a_key_leaves_again(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that wherever this is cut short, the newest one stays the last, though the store goes back again."""

    async def no_marks(*_: Any) -> frozenset[int]:
        return frozenset()

    monkeypatch.setattr(Journal, "mark", no_marks)
    await world.run(rounds=ERASED)
    left = synthetic(world)
    assert len(left) > 2
    world.store = LocalStore()
    await started(world)
    assert synthetic(world)[len(left) :] == left[-1:]


def synthetic(world: Any) -> list[bytes]:
    """The synthetic rows of a data set as they have left, one value for each time."""
    sent = (one.outgoing for one in world.trail if isinstance(one, Sent))
    return [one.value for one in sent if (one.role, one.key) == ("synthetic", "flights")]


@pytest.mark.parametrize("step_bytes", [2_000, 2**23])
async def test_a_checkpoint_comes_back_in_steps_that_a_store_can_take(
    world: Any, monkeypatch: pytest.MonkeyPatch, step_bytes: int
) -> None:
    """A table may have more answers than fit into one commit."""
    world.often = Often(12, per_id=0)
    await world.run(rounds=ROTATED)
    await started(world)
    before = {name: durable(held) for name, held in world.store._datasets.items()}
    commit, most = LocalStore.commit, list[int]()

    async def counting(self: LocalStore, transition: Any) -> None:
        most.append(len(transition.answers) + len(transition.batches))
        await commit(self, transition)

    monkeypatch.setattr(LocalStore, "commit", counting)
    monkeypatch.setattr(healing, "_STEP_BYTES", step_bytes)
    world.store = LocalStore()
    process = await started(world)
    assert process.worker.stopped == {}
    assert {name: durable(held) for name, held in world.store._datasets.items()} == before
    assert before["flights"]["previous"]
    assert (max(most) < 5) is (step_bytes < 2**23)


async def forked(world: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """What data sets that protect persons for life have, before and after another history is set aside."""
    await world.run(rounds=LIVES)
    held = world.store._datasets
    before = {name: (durable(one), dict(one.persons)) for name, one in held.items()}
    for one in held.values():
        one.trail = bytes([9]) * 32
        one.notes.clear()
    process = await started(world)
    assert process.worker.stopped == {}
    return before, {name: (durable(one), dict(one.persons)) for name, one in held.items()}


async def test_what_persons_have_used_in_another_history_does_not_count(world: Any) -> None:
    before, after = await forked(world)
    assert after == before
    assert any(persons for _, persons in before.values())


async def test_a_healing_that_forgets_nobody_stops_what_is_for_life(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken copy."""

    async def nothing(*_: Any, **__: Any) -> None:
        return None

    monkeypatch.setattr(healing, "forget", nothing)
    with pytest.raises(AssertionError, match="holds something that is not ours"):
        await forked(world)


async def test_another_history_is_built_anew_from_the_newest_checkpoint_that_there_is(
    world: Any,
) -> None:
    """The worker that finds it has read the journal from the store's note on, which is behind that one."""
    world.now_ms, world.group = NOV_1, 1
    world.often = Often(12, per_id=0)
    world.define("cars", mechanism={"base_share": 0.0})
    world.define("flights", mechanism={"base_share": 0.0}, retention={"answers": {"days": 2}})
    await started(world)
    world.batch("flights", "waits", rows=[{"carrier": "AA"}])
    for number in range(12):
        world.ask("cars", f"c{number}", AA)
    await started(world)
    world.often = Often(1_000, per_id=0)  # so "cars" has the beginning of the partition from now on
    for day in range(1, 12):
        world.now_ms = NOV_1 + day * DAY_MS
        world.ask("flights", f"q{day}", AA)
        await started(world)
    older = copy.deepcopy(world.store)
    world.ask("flights", "last", LATE)
    await started(world)
    before = durable(world.held("flights"))
    held = older._datasets["flights"]
    held.seq, held.trail = held.seq + 1, bytes([9]) * 32
    world.store, world.often = older, Often()
    process = await started(world)
    assert process.worker.stopped == {}
    assert durable(world.held("flights")) == before
    assert world.events("rows_lost") == []


async def started(world: Any, **changes: Any) -> Any:
    """A worker that has taken all partitions over, and has nothing left to do."""
    process = world.process(**changes)
    try:
        await process.assign()
        await process.run()
    finally:
        await process.kill()
    return process


def durable(held: Any) -> dict[str, Any]:
    """What is durable of a data set, but for the transcript."""
    parts = ("head", "definition", "retired", "answers", "batches", "pending", "blocks", "spent")
    rest = ("previous", "previous_batches", "taken", "verified", "intents", "ledger")
    return {part: getattr(held, part) for part in (*parts, *rest)}


# ---------------------------------------------------------------- what comes too late


async def defined_late(world: Any) -> tuple[bytes, bytes]:
    """A worker rejects a batch. Then the store is emptied, and the worker before it defines the data set.

    Returns:
        The nonce of its definition, and of the one that counts in the end.
    """
    world.batch("flights", "first", rows=[{"carrier": "AA", "delay": 3}])
    sleeper = world.process()
    await sleeper.assign()
    await started(world)
    world.store.__dict__ = LocalStore().__dict__
    world.define("flights", mechanism={"base_share": 0.0})
    with contextlib.suppress(Fenced):
        await sleeper.run()
    await sleeper.kill()
    ((_, late, _),) = records_of(await world.store.acquire("flights", new=False))
    process = await started(world)
    assert process.worker.stopped == {}
    assert world.complaints() == []
    return late.nonce, journaled(world)["flights"][0].nonce


async def test_what_is_defined_by_a_worker_that_was_followed_is_defined_again(world: Any) -> None:
    late, counts = await defined_late(world)
    assert counts != late


async def test_a_late_definition_would_be_believed(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken copy. The simulator finds what follows: rows count that were rejected."""
    monkeypatch.setattr(healing, "_is_late", lambda *_: False)
    late, counts = await defined_late(world)
    assert counts == late


async def test_a_mark_of_what_was_rejected_comes_behind_the_commits_below_it(world: Any) -> None:
    """Otherwise a store that has lost such a commit would have its record rejected, too."""
    world.define("flights", mechanism={"base_share": 0.0})
    process = world.process()
    await process.assign()
    await process.run()
    here = partition_of(b"flights", world.partitions)
    before, seq = len(world.journal[here]), process.worker.datasets["flights"].commits
    commit = Commit("flights", 1, seq + 1, b"record")
    releasable = Releasable([commit], watermarks={f"{REJECTED}in.batches:{here}": 1})
    await process.worker._releaser._append(releasable)
    await process.kill()
    kinds = [dict(entry.headers)["type"] for entry in world.journal[here][before:]]
    assert kinds == [b"commit", b"mark"]


# ---------------------------------------------------------------- another copy while it is compared


def by_length(chain: Chain, seq: int, trail: bytes, kept: Any) -> Any:
    """A broken copy of ``judged``: what is as long as the place of the store passes for it."""
    return judged(chain, seq, chain.place.trail if seq == chain.place.seq else trail, kept)


async def compared_with_another(world: Any, *, is_behind: bool) -> int:
    """At every effect of a take-over in turn, the store goes back to what a former primary had committed.

    Returns:
        The first effect at which the next worker takes that history for the one that counts. 0 for none.
    """
    await world.run(rounds=GATED[:1])
    older = copy.deepcopy(world.store.__dict__)
    await world.run(rounds=[lambda some: some.ask("flights", "more", AA)])
    whole = copy.deepcopy(world.store.__dict__)
    before = world.held("flights").trail
    first = older if is_behind else whole
    other = copy.deepcopy(older)
    held = other["_datasets"]["flights"]
    held.seq, held.trail = first["_datasets"]["flights"].seq, bytes([9]) * 32
    n_effects, at = 1, 0
    while at < n_effects:
        at += 1
        world.store.__dict__ = copy.deepcopy(first)
        process = world.process()

        async def goes_back(effect: int, at: int = at) -> None:
            if effect == at:
                world.store.__dict__ = copy.deepcopy(other)

        process.interrupt = goes_back
        with contextlib.suppress(StoreError):
            await process.assign()
            n_effects = max(n_effects, process.effects)
            await process.run()
        await process.kill()
        await started(world)
        if world.held("flights").trail != before:
            return at
    assert n_effects > 10
    return 0


@pytest.mark.parametrize("is_behind", [False, True])
async def test_another_history_of_the_same_length_is_not_taken_for_what_was_compared(
    world: Any, is_behind: bool
) -> None:
    assert await compared_with_another(world, is_behind=is_behind) == 0


async def test_a_comparison_of_lengths_would_be_found(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken copy, for a store that is behind."""

    monkeypatch.setattr(healing, "judged", by_length)
    assert await compared_with_another(world, is_behind=True)


async def test_an_end_of_any_trail_would_be_found(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken copy, for a store that is whole: nothing was read of the journal that shows its history."""

    class AnyTrail:
        def __eq__(self, _: object) -> bool:
            return True

        __hash__ = None  # type: ignore[assignment]

    ends = property(lambda chain: (chain.seq or 0, chain.trail or AnyTrail()))
    monkeypatch.setattr(Chain, "end", ends)
    assert await compared_with_another(world, is_behind=False)
