"""A worker that takes over finds on the journal all that was durable, whatever Redis holds by then."""

from __future__ import annotations

import contextlib
import copy
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from stream_dp.errors import Fenced
from stream_dp.pipeline.intake.decoder import partition_of
from stream_dp.pipeline.intake.ownership import REJECTED
from stream_dp.pipeline.intake.records import place_in
from stream_dp.pipeline.journal import entries
from stream_dp.pipeline.journal.checkpoint_rounds import Often
from stream_dp.pipeline.journal.journal import Journal
from stream_dp.pipeline.journal.marks import Marks
from stream_dp.pipeline.watch.crash_points import CrashPoint
from stream_dp.state.private_names import salted
from stream_dp.state.schema import ROTATED as ROTATION
from stream_dp.state.schema import Pair, State, StateTable
from tests.driven import drained
from tests.indexes import counts
from tests.pipeline.crash import CopyingFuse, CountingFuse
from tests.pipeline.held import Held, held_of, valid_commits
from tests.pipeline.scenarios import (
    AA,
    ERASED,
    GATED,
    LATE,
    LIVES,
    PERSONS,
    ROTATED,
    ROUNDS,
    RUNS,
    STANDING,
)
from tests.pipeline.trail import Sent
from tests.pipeline.world import World
from tests.slow import rest_is_slow
from tests.view import MemoryView

SOON = Often(n_bytes=40_000, per_id=1)
"""Rounds of checkpoints as often as a short test needs them."""


# ---------------------------------------------------------------- what is found


async def started(world: Any, **changes: Any) -> Any:
    """A worker that has taken all partitions over, has nothing left to do, and has died."""
    process = world.process(**changes)
    try:
        await process.assign()
        await process.run()
    finally:
        await process.kill()
    return process


def durable(held: Held) -> dict[str, Any]:
    """What is durable of a data set."""
    parts = ("answers", "previous", "batches", "previous_batches", "taken", "ledger")
    return {"pairs": dict(held.pairs)} | {part: copy.copy(getattr(held, part)) for part in parts}


async def differences(world: World) -> list[str]:
    """Where a worker that takes over now differs from the journal, which is read here by rules of its own."""
    process = world.process()
    await process.assign()
    await process.run()
    found = [f"partition {at} is not served" for at in sorted(process.worker.aside)]
    found += [f"{name} is stopped: {why}" for name, why in process.worker.stopped.items()]
    if not found:
        for name, held in held_of(world).items():
            found += [f"{name}: other {one}" for one in await _differ(process.worker.journal, held)]
    await process.kill()
    return found


async def _differ(journal: Journal, held: Held) -> list[str]:
    chain, kept = journal.chain(held.name), contents(held)
    there = {pair: one.found for pair, one in chain.find(kept).items()}
    wanted = (
        *(len(held.answers), len(held.previous.keys() - held.answers)),
        *(len(held.batches), len(held.previous_batches.keys() - held.batches)),
        len(held.taken),
    )
    is_alike = {
        "pairs": chain.build().pairs == held.pairs,
        "number of commits": chain.build().number == held.seq,
        "ids": there.keys() == kept.keys(),
        "contents": await journal.contents(held.name, there) == kept,
        f"numbers of ids ({counts(chain.ids)}, not {wanted})": (*counts(chain.ids),) == wanted,
    }
    return [what for what, is_so in is_alike.items() if not is_so]


def contents(held: Held) -> dict[Pair, bytes]:
    """All answers and outcomes that are kept, by their ids."""
    tables = (
        (StateTable.ANSWER, held.previous | held.answers),
        (StateTable.OUTCOME, held.previous_batches | held.batches),
    )
    return {(table, key.encode()): value for table, some in tables for key, value in some.items()}


@pytest.mark.parametrize("often", [Often(), SOON], ids=["commits", "checkpoints"])
@pytest.mark.parametrize(
    "rounds",
    [ROUNDS, RUNS, PERSONS, LIVES, ERASED, STANDING, GATED, ROTATED],
    ids=["all", "runs", "persons", "lives", "erased", "standing", "gated", "rotated"],
)
async def test_what_is_found_is_what_commits_add_up_to(
    world: World, rounds: Any, often: Often
) -> None:
    world.often = often
    await world.run(rounds=rounds)
    before = {name: durable(held) for name, held in held_of(world).items()}
    assert before
    assert await differences(world) == []
    assert {name: durable(held) for name, held in held_of(world).items()} == before
    assert world.complaints() == []


async def test_rows_that_wait_are_read_again(world: World) -> None:
    for name in ("flights", "trains"):
        world.define(name, mechanism={"base_share": 0.0})
    former = await started(world)
    for number in range(3):
        world.batch("flights", f"b{number}", rows=[{"carrier": "AA", "delay": number}, {}])
    former = await started(world)
    rows = [one.to_bytes() for one in former.datasets["flights"].rows.waiting._pending.values()]
    assert len(rows) == 3
    world.view = MemoryView()
    again = await started(world)
    assert [
        one.to_bytes() for one in again.datasets["flights"].rows.waiting._pending.values()
    ] == rows
    assert again.datasets["flights"].rows.waiting.n_rows == 6
    assert again.datasets["trains"].rows.waiting.n_rows == 0


async def test_no_batch_that_waits_is_read_a_second_time_once_it_is_in_a_phase(
    world: World,
) -> None:
    world.define("flights", mechanism={"base_share": 0.0})
    await started(world)
    world.batch("flights", "small", rows=[{"carrier": "AA"}])
    await started(world)
    world.cells("flights", "opens")
    await started(world)
    assert world.held("flights").waiting == []
    world.expired |= {record.record_id for record in world.log["in.batches:0"]}
    world.expired |= {record.record_id for record in world.log["in.batches:1"]}
    process = await started(world)
    assert (process.datasets["flights"].rows.waiting.n_rows, process.datasets["flights"].phase) == (
        0,
        1,
    )
    assert world.events("rows_lost") == []


# ---------------------------------------------------------------- whatever Redis holds


def is_empty(world: World, _: MemoryView) -> None:
    world.view = MemoryView()


def is_older(world: World, older: MemoryView) -> None:
    world.view = older


def is_of_another_deployment(world: World, _: MemoryView) -> None:
    """The same names, further on, with other answers and private values."""
    for name, state in [*world.view.states.items()]:
        other = State(name, state.number + 5, bytes([9]) * 32)
        trail = other.trail
        other.apply(other.drafted({(StateTable.FACT, b"retired"): b"1", ROTATION: b"1"}), trail)
        world.view.states[name] = other
    for both in world.view.generations.values():
        for pairs in both:
            pairs |= {pair: _forged(value) for pair, value in pairs.items()}
    for values in world.view.values.values():
        values |= {key: salted(b"another value") for key in values}


def is_another_history_of_the_same_length(world: World, _: MemoryView) -> None:
    for name, state in [*world.view.states.items()]:
        world.view.states[name] = State(name, state.number, bytes([9]) * 32, 0, {})


def is_wrong_in_each_byte_string(world: World, _: MemoryView) -> None:
    for state in world.view.states.values():
        state.pairs |= {pair: _wrong(value) for pair, value in state.pairs.items()}
    for both in world.view.generations.values():
        for pairs in both:
            pairs |= {pair: _wrong(value) for pair, value in pairs.items()}
    for values in world.view.values.values():
        values |= {key: _wrong(value) for key, value in values.items()}


def is_away(world: World, _: MemoryView) -> None:
    world.view_away = True


def _forged(value: bytes) -> bytes:
    return value.replace(b'"value":0.', b'"value":1.')


def _wrong(value: bytes) -> bytes:
    """The same bytes, with a bit of the middle one changed."""
    middle = len(value) // 2
    return value and value[:middle] + bytes([value[middle] ^ 1]) + value[middle + 1 :]


VIEWS: list[Callable[[World, MemoryView], None]] = [
    is_empty,
    is_older,
    is_of_another_deployment,
    is_another_history_of_the_same_length,
    is_wrong_in_each_byte_string,
    is_away,
]


def seen(world: World) -> dict[str, Any]:
    """All that anybody sees, but for what is drawn to tell two histories apart, and repeated records once."""
    newest = {
        (event.outgoing.role, event.outgoing.key): event.outgoing.value
        for event in world.trail
        if isinstance(event, Sent) and event.outgoing.role in ("catalog", "standing", "synthetic")
    }
    events = [json.dumps(one, sort_keys=True) for one in world.events()]
    spent = {name: held.spent for name, held in held_of(world).items()}
    return {
        "answers": world.answers(),
        "rejections": world.rejections(),
        "events": sorted(events),
        "newest": newest,
        "spent": spent,
    }


@pytest.mark.parametrize(
    "rounds", rest_is_slow([ROUNDS, RUNS, ROTATED, PERSONS, ERASED, STANDING, GATED], first=3)
)
@pytest.mark.parametrize("view", VIEWS, ids=lambda one: one.__name__)
async def test_nobody_sees_what_redis_holds_when_a_worker_dies(
    world: World, worlds: list[World], rounds: Any, view: Any
) -> None:
    """Each death is followed twice, by workers with the same noise: Redis is left alone, or it is not."""
    world.loses_reply = lambda: ""  # type: ignore[method-assign] # which draws
    olders: dict[int, MemoryView] = {}

    def remembered(number: int) -> Callable[[World], object]:
        def produce(world: World) -> None:
            olders[number] = copy.deepcopy(world.view)
            rounds[number](world)

        return produce

    fuse = CopyingFuse(world, range(5, 10_000, 173))
    await world.run(fuse, rounds=[remembered(number) for number in range(len(rounds))])
    assert len(fuse.left) > 1
    worlds.clear()
    for _, number, left in fuse.left:
        found = []
        for change in (lambda *_: None, view):
            again = left.copy()
            again.random.seed(7)
            worlds.append(again)
            change(again, copy.deepcopy(olders[max(0, number - 1)]))
            await again.run(rounds=[lambda _: None, *rounds[number + 1 :]])
            # Nobody takes a state with a wrong byte for one, so nobody puts it right before it changes.
            is_wrong = view is is_wrong_in_each_byte_string
            assert [one for one in again.complaints() if not (is_wrong and one[:3] == "P17")] == []
            found.append(seen(again))
            worlds.clear()
        assert found[0] == found[1]


@pytest.mark.parametrize("view", VIEWS[:4], ids=lambda one: one.__name__)
async def test_redis_is_whole_again_when_a_worker_has_taken_over(world: World, view: Any) -> None:
    older: list[MemoryView] = []
    for number, produce in enumerate(ROTATED):
        if number == 4:
            older.append(copy.deepcopy(world.view))
        await world.run(rounds=[produce])
    view(world, *older)
    process = world.process()
    await process.assign()
    await process.run()
    await process.worker.following.joined()
    await process.kill()
    for name, held in held_of(world).items():
        state = world.view.states[name]
        assert (state.number, state.pairs) == (held.seq, held.pairs)
        named = {one.name for one in held.named().values()}
        assert world.view.values.get(name, {}).keys() <= named, "what is erased is there no more"


async def test_nobody_takes_a_state_that_is_wrong_in_a_byte_for_one(world: World) -> None:
    await world.run(rounds=ROUNDS)
    assert await world.view.state("flights") is not None
    is_wrong_in_each_byte_string(world, world.view)
    assert await world.view.state("flights") is None


@pytest.mark.parametrize("view", VIEWS, ids=lambda one: one.__name__)
async def test_answers_that_redis_has_not_or_wrong_are_those_of_the_journal(
    world: World, view: Any
) -> None:
    older = copy.deepcopy(world.view)
    await world.run(rounds=ROUNDS[:3])
    await _goodbye(world)  # which sends again what may not have left
    before = {key: one for key, one in world.answers().items() if one["status"] == "answered"}
    assert len(before) == 2
    view(world, older)
    world.trail.clear()
    for partition in range(world.partitions):
        for record in [*world.log[f"in.queries:{partition}"]]:
            world.produce("queries", record.value, key=record.key)
    process = await started(world)
    after = world.answers()
    assert {key: after[key] for key in before} == before
    assert process.datasets["trains"].looks.n_taken == 0


# ---------------------------------------------------------------- looks that were lost


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


def looks(world: World) -> int:
    """The number of looks that the ledger has charged."""
    entries = [json.loads(entry) for entry in world.held("flights").ledger]
    return sum(len(entry["looks"]) for entry in entries if entry["kind"] == "charge")


async def test_a_look_that_was_announced_is_lost_once_wherever_the_next_worker_dies(
    make_world: Callable[..., World],
) -> None:
    """Each look that the ledger has is published or lost, and no third."""
    most = 0
    for place in range(1_000):
        world = make_world()
        await announced(world)
        assert (looks(world), lost_looks(world)) == (1, [])
        process, is_dead = world.process(CountingFuse(place)), False
        try:
            await process.assign()
            await process.run()
        except world.Crash:
            is_dead = True
        await process.kill()
        world.view = MemoryView()
        for _ in range(2):
            process = await started(world)
            assert process.worker.stopped == {}
            published = [one for one in world.held("flights").transcript if one[:1] == b"\x01"]
            assert len(lost_looks(world)) == looks(world) - len(published) >= 1
            assert world.held("flights").intents == {}
        most = max(most, len(lost_looks(world)))
        assert world.answer("q1")["status"] == "answered"
        assert len(world.answers()) == 1
        assert world.complaints() == []
        if not is_dead:
            assert most == 2, "the next worker has lost its own look, too"
            return
    raise AssertionError("there are more effects than places")


# ---------------------------------------------------------------- what leaves again


async def test_what_may_not_have_left_leaves_again_with_the_same_bytes(world: World) -> None:
    """A worker dies before it can say what has left. What it has said leaves no second time."""
    await world.run(rounds=ROUNDS[:2])
    process = world.process()
    await process.assign()
    await process.run()
    await process.stop()
    world.trail.clear()
    ROUNDS[2](world)
    await started(world)
    first = sent(world)
    assert {role for role, *_ in first} >= {"answers", "ledger"}
    world.trail.clear()
    process = world.process()
    await process.assign()
    await process.run()
    again = sent(world)
    assert again
    assert set(again) <= set(first)
    for one in first:
        place = place_in(one[3])
        if place is not None:
            released = said_released(world, partition_of(one[1].encode(), world.partitions))
            assert (place.offset < released) is (one not in again)
    await process.stop()
    world.trail.clear()
    await started(world)
    assert sent(world) == []


def said_released(world: World, partition: int) -> int:
    """The offset of the journal below which all has left, as the last but one owner of a partition said."""
    owners = [
        offset
        for offset, entry in enumerate(world.journal[partition])
        if dict(entry.headers)["kind"] == b"epoch"
    ]
    entries = world.journal[partition][: owners[-1]]
    said = [json.loads(one.value) for one in entries if dict(one.headers)["kind"] == b"mark"]
    return max(one["released"] for one in said if "released" in one)


def sent(world: World) -> list[tuple[Any, ...]]:
    """Role, key, value and headers of the records that have left, in order."""
    left = [event.outgoing for event in world.trail if isinstance(event, Sent)]
    return [(one.role, one.key, one.value, one.headers) for one in left]


async def test_of_a_compacted_topic_only_the_newest_record_of_a_key_leaves_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that wherever this is cut short, the newest one stays the last."""
    monkeypatch.setattr(Marks, "released", property(lambda _: 0, lambda *_: None), raising=False)
    await world.run(rounds=ERASED)
    left = synthetic(world)
    assert len(set(left)) > 2
    world.trail.clear()
    await started(world)
    assert synthetic(world) == left[-1:]


def synthetic(world: World) -> list[bytes | None]:
    """The synthetic rows of a data set as they have left, one value for each time."""
    return [value for role, key, value, _ in sent(world) if (role, key) == ("synthetic", "flights")]


@pytest.mark.parametrize("rounds", [ROUNDS, ERASED, PERSONS, LIVES])
@pytest.mark.parametrize("often", [Often(), SOON], ids=["commits", "checkpoints"])
async def test_a_retired_data_set_is_taken_over_without_its_rows_and_secrets(
    world: World, rounds: Any, often: Often
) -> None:
    """Nothing is kept of them any more, not even where some rows waited when it was retired."""
    world.often = often
    retire = partial(world.produce, "datasets", None, key="flights")
    later = partial(_asks, "trains"), partial(_asks, "flights"), partial(_asks, "trains")
    await world.run(rounds=[*rounds, lambda _: retire(), *later])
    process = await started(world)
    before = {name: durable(held) for name, held in held_of(world).items()}
    held = world.held("flights")
    assert held.retired
    assert (held.waiting, held.blocks, held.vault, held.transcript) == ([], [], {}, [])
    assert not [key for key in world.kept if key.startswith(b"flights/")]
    assert process.worker.stopped == {}
    world.view = MemoryView()
    process = await started(world)
    assert await differences(world) == []
    assert {name: durable(held) for name, held in held_of(world).items()} == before
    assert world.complaints() == []


def _asks(name: str, world: World) -> None:
    for _ in range(40):
        world.ask(name, f"later-{world.next_offset('queries', name)}", AA)


@pytest.mark.parametrize("role", ["catalog", "synthetic"])
async def test_who_takes_a_retired_data_set_over_erases_it_from_compacted_topics_again(
    world: World, role: str
) -> None:
    """A worker that slept may have put something behind the record that erased it."""
    await world.run(rounds=ERASED)
    world.produce("datasets", None, key="flights")
    await _goodbye(world)
    erased = erasures(world, role)
    assert erased >= 1
    for again in (1, 2, 3):  # and what one of them sends is no old record to the next one
        await _goodbye(world)
        assert erasures(world, role) == erased + again


def erasures(world: World, role: str) -> int:
    """How often a record left that erases one of a compacted topic."""
    return sum(one is None for one in world.released(role))


async def _goodbye(world: World) -> None:
    process = world.process()
    await process.assign()
    await process.run()
    await process.stop()


# ---------------------------------------------------------------- what comes too late


async def test_what_a_worker_that_was_followed_appends_is_void(world: World) -> None:
    """It has decided about the same records as the one that followed it, and had them nearly appended."""
    for name in ("flights", "trains"):
        world.define(name, mechanism={"base_share": 0.0})
    await started(world)
    for name in ("flights", "trains"):
        world.cells(name, "one")
    await started(world)
    sleeper, heir = world.process(), world.process()
    await sleeper.assign()
    await sleeper.run()
    world.ask("flights", "q1", AA)
    world.ask("trains", "q1", AA)
    await heir.assign()
    await heir.run()
    answers, commits = world.answers(), {n: len(c) for n, c in valid_commits(world).items()}
    lengths, n_sent = [*map(len, world.journal)], len(sent(world))
    with pytest.raises(Fenced):
        await sleeper.run()
    await sleeper.kill()
    late = [
        dict(entry.headers)["kind"]
        for there, at in zip(world.journal, lengths, strict=True)
        for entry in there[at:]
    ]
    assert late.count(b"commit") >= 1, "so it was tried"
    assert len(sent(world)) == n_sent
    for name in ("flights", "trains"):
        world.ask(name, "q2", LATE)
    await heir.run()
    await heir.kill()
    assert await differences(world) == []
    after = {name: len(chain) for name, chain in valid_commits(world).items()}
    assert all(after[name] > commits[name] for name in commits)
    assert {key: world.answers()[key] for key in answers} == answers
    assert world.complaints() == []


async def defined_late(world: World) -> None:
    """A worker rejects a batch. Then the worker before it defines the data set."""
    world.batch("flights", "first", rows=[{"carrier": "AA", "delay": 3}])
    sleeper = world.process()
    await sleeper.assign()
    await started(world)
    world.define("flights", mechanism={"base_share": 0.0})
    with contextlib.suppress(Fenced):
        await sleeper.run()
    await sleeper.kill()


async def test_what_is_defined_by_a_worker_that_was_followed_is_defined_again(
    world: World,
) -> None:
    await defined_late(world)
    assert "flights" not in held_of(world), "it does not count"
    assert world.events() == []
    process = await started(world)
    assert process.worker.stopped == {}
    assert world.held("flights").seq == 1
    assert len(world.rejections()) == 1
    assert world.complaints() == []


async def test_a_late_definition_would_be_believed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken copy: who was followed appends, and nobody looks whose entry it is."""
    read = entries.EntryReader.read

    def believes(self: Any, offset: int, entry: Any) -> Any:
        self.epoch = dict(entry.headers).get("epoch", self.epoch)
        return read(self, offset, entry)

    await defined_late(world)
    monkeypatch.setattr(entries.EntryReader, "read", believes)
    process = world.process()
    await process.assign()
    await drained(process.worker)
    await process.kill()
    assert "flights" in process.datasets


async def test_a_mark_of_what_was_rejected_comes_behind_the_commits_below_it(
    world: World,
) -> None:
    """Otherwise a worker that dies in between would leave a record that was accepted, and is rejected."""
    world.define("flights", mechanism={"base_share": 0.0})
    process = world.process()
    await process.assign()
    await process.run()
    here = partition_of(b"flights", world.partitions)
    before, dataset = len(world.journal[here]), process.worker.datasets["flights"]
    dataset.draft.note("something", "new")
    dataset.draft.commit()
    releasable = dataset.draft.collect()
    releasable.watermarks[f"{REJECTED}in.batches:{here}"] = 1
    await process.worker.releaser._append(releasable)
    await process.kill()
    kinds = [dict(entry.headers)["kind"] for entry in world.journal[here][before:]]
    assert kinds == [b"commit", b"mark"]


async def test_a_rejection_leaves_when_the_journal_says_that_it_was_rejected(
    world: World,
) -> None:
    """So the next owner does not accept a record of a data set that was defined meanwhile."""
    record = world.ask("flights", "early", AA)
    process = world.process()
    await process.assign()
    await process.run()
    (event,) = [one for one in world.trail if isinstance(one, Sent)]
    assert event.outgoing.role == "rejected"
    marks = [
        json.loads(entry.value)
        for entry in world.journal[record.partition][: event.journal[record.partition]]
        if dict(entry.headers)["kind"] == b"mark"
    ]
    mark = f"{REJECTED}{record.topic_partition}"
    assert [one["watermarks"][mark] for one in marks if mark in one["watermarks"]] == [1]
    await process.kill()
