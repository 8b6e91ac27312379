"""A worker that takes over finds on the journal all that was durable, whatever Redis holds by then."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from stream_dp.errors import Fenced
from stream_dp.pipeline.intake.ownership import REJECTED
from stream_dp.pipeline.intake.records import place_in
from stream_dp.pipeline.journal.checkpoint_rounds import Often
from stream_dp.pipeline.journal.marks import Marks
from stream_dp.pipeline.watch.crash_points import CrashPoint
from stream_dp.state.private_names import salted
from stream_dp.state.schema import ROTATED as ROTATION
from stream_dp.state.schema import State, StateTable
from tests.pipeline.crash import CountingFuse
from tests.pipeline.durable import SOON, differences, lost_by_a_take_over
from tests.pipeline.held import valid_commits
from tests.pipeline.scenarios import (
    AA,
    ERASED,
    EVERY,
    LATE,
    LIVES,
    PERSONS,
    ROUNDS,
)
from tests.pipeline.trail import Sent
from tests.pipeline.world import World
from tests.view import MemoryView

# ---------------------------------------------------------------- what is found


@pytest.mark.parametrize("name", EVERY)
async def test_what_is_found_is_what_commits_add_up_to(world: World, name: str) -> None:
    """``test_rounds`` has the same with rounds of checkpoints."""
    await world.run(rounds=EVERY[name])
    assert await lost_by_a_take_over(world) == []


# ---------------------------------------------------------------- whatever Redis holds


def is_of_another_deployment(world: World) -> None:
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


def is_wrong_in_each_byte_string(world: World) -> None:
    for state in world.view.states.values():
        state.pairs |= {pair: _wrong(value) for pair, value in state.pairs.items()}
    for both in world.view.generations.values():
        for pairs in both:
            pairs |= {pair: _wrong(value) for pair, value in pairs.items()}
    for values in world.view.values.values():
        values |= {key: _wrong(value) for key, value in values.items()}


def _forged(value: bytes) -> bytes:
    return value.replace(b'"value":0.', b'"value":1.')


def _wrong(value: bytes) -> bytes:
    """The same bytes, with a bit of the middle one changed."""
    middle = len(value) // 2
    return value and value[:middle] + bytes([value[middle] ^ 1]) + value[middle + 1 :]


@pytest.mark.parametrize("fault", [is_of_another_deployment, is_wrong_in_each_byte_string])
async def test_answers_that_redis_has_not_or_wrong_are_those_of_the_journal(
    world: World, fault: Callable[[World], None]
) -> None:
    """Other faults of Redis are among those that random schedules draw."""
    await world.run(rounds=ROUNDS[:3])
    await world.lives(goodbye=True)  # which sends again what may not have left
    before = {key: one for key, one in world.answers().items() if one["status"] == "answered"}
    assert len(before) == 2
    fault(world)
    world.trail.clear()
    for partition in range(world.partitions):
        for record in [*world.log[f"in.queries:{partition}"]]:
            world.produce("queries", record.value, key=record.key)
    process = await world.lives()
    after = world.answers()
    assert {key: after[key] for key in before} == before
    assert process.datasets["trains"].looks.n_taken == 0


# ---------------------------------------------------------------- looks that were lost


async def announced(world: Any) -> None:
    """A look is announced, and paid for, and the worker dies before it takes it."""
    world.define("flights", mechanism={"base_share": 0.0})
    await world.lives()
    world.cells("flights", "one")
    await world.lives()
    world.ask("flights", "q1", AA)
    with contextlib.suppress(world.Crash):
        await world.lives(fuse=CountingFuse(0, CrashPoint.AFTER_CHARGE))
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
        is_dead = False
        try:
            await world.lives(fuse=CountingFuse(place))
        except world.Crash:
            is_dead = True
        world.view = MemoryView()
        for _ in range(2):
            process = await world.lives()
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
    await world.lives(goodbye=True)
    world.trail.clear()
    await world.lives(ROUNDS[2])
    first = world.left()
    assert {one.role for one in first} >= {"answers", "ledger"}
    world.trail.clear()
    process = await world.owner()
    await process.run()
    again = world.left()
    assert again
    assert set(again) <= set(first)
    for one in first:
        place = place_in(one.headers)
        if place is not None:
            released = said_released(world, world.home(one.key))
            assert (place.offset < released) is (one not in again)
    await process.stop()
    world.trail.clear()
    await world.lives()
    assert world.left() == []


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


async def test_of_a_compacted_topic_only_the_newest_record_of_a_key_leaves_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that wherever this is cut short, the newest one stays the last."""
    monkeypatch.setattr(Marks, "released", property(lambda _: 0, lambda *_: None), raising=False)
    await world.run(rounds=ERASED)
    left = [one.value for one in world.left("synthetic", "flights")]
    assert len(set(left)) > 2
    world.trail.clear()
    await world.lives()
    assert [one.value for one in world.left("synthetic", "flights")] == left[-1:]


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
    process = await world.lives()
    held = world.held("flights")
    assert held.retired
    assert (held.waiting, held.blocks, held.vault, held.transcript) == ([], [], {}, [])
    assert not [key for key in world.kept if key.startswith(b"flights/")]
    assert process.worker.stopped == {}
    assert await lost_by_a_take_over(world) == []


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
    await world.lives(goodbye=True)

    def erased() -> int:
        return sum(not one.value for one in world.left(role))

    before = erased()
    assert before >= 1
    for again in (1, 2, 3):  # and what one of them sends is no old record to the next one
        await world.lives(goodbye=True)
        assert erased() == before + again


# ---------------------------------------------------------------- what comes too late


async def test_what_a_worker_that_was_followed_appends_is_void(world: World) -> None:
    """It has decided about the same records as the one that followed it, and had them nearly appended."""
    for name in ("flights", "trains"):
        world.define(name, mechanism={"base_share": 0.0})
    await world.lives()
    for name in ("flights", "trains"):
        world.cells(name, "one")
    await world.lives()
    sleeper, heir = world.process(), world.process()
    await sleeper.assign()
    await sleeper.settled()  # so it has no mark to append while the other one works
    world.ask("flights", "q1", AA)
    world.ask("trains", "q1", AA)
    await heir.assign()
    await heir.run()
    answers, commits = world.answers(), {n: len(c) for n, c in valid_commits(world).items()}
    lengths, n_sent = [*map(len, world.journal)], len(world.left())
    with pytest.raises(Fenced):
        await sleeper.run()
    await sleeper.kill()
    late = [kind for partition, at in enumerate(lengths) for kind in world.kinds(partition, at)]
    assert late.count("commit") >= 1, "so it was tried"
    assert len(world.left()) == n_sent
    for name in ("flights", "trains"):
        world.ask(name, "q2", LATE)
    await heir.run()
    await heir.kill()
    assert await differences(world) == []
    after = {name: len(chain) for name, chain in valid_commits(world).items()}
    assert all(after[name] > commits[name] for name in commits)
    assert {key: world.answers()[key] for key in answers} == answers
    assert world.complaints() == []


async def test_a_mark_of_what_was_rejected_comes_behind_the_commits_below_it(
    world: World,
) -> None:
    """Otherwise a worker that dies in between would leave a record that was accepted, and is rejected."""
    world.define("flights", mechanism={"base_share": 0.0})
    process = await world.owner()
    await process.run()
    here = world.home("flights")
    before, dataset = len(world.journal[here]), process.worker.datasets["flights"]
    dataset.draft.note("something", "new")
    dataset.draft.commit()
    releasable = dataset.draft.collect()
    releasable.watermarks[f"{REJECTED}in.batches:{here}"] = 1
    await process.worker.releaser._append(releasable)
    assert world.kinds(here, before) == ["commit", "mark"]


async def test_a_rejection_leaves_when_the_journal_says_that_it_was_rejected(
    world: World,
) -> None:
    """So the next owner does not accept a record of a data set that was defined meanwhile."""
    record = world.ask("flights", "early", AA)
    process = await world.owner()
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
