"""The newest record of a key is the last one on compacted topics, also after a worker that froze goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Sequence
from typing import Any

import pytest

from stream_dp.errors import Fenced, ServerUnavailable
from stream_dp.pipeline.intake.records import COMMIT, CommitPlace, Outgoing
from stream_dp.pipeline.journal.newest import COMPACTED, Newest
from stream_dp.pipeline.kafka.topic_log import LogEntry
from tests.local_logs import LocalLog
from tests.pipeline.world import World


def record(commit: int, role: str = "synthetic", key: str = "flights") -> Outgoing:
    place = CommitPlace(commit, 10 * commit, bytes(8))
    return Outgoing(role, key, b"of %d" % commit, ((COMMIT, place.to_bytes()),))


def topics(*records: Outgoing) -> Newest:
    """What looks at compacted topics in memory."""
    logs = {role: LocalLog(1) for role in COMPACTED}
    for one in records:
        logs[one.role].entries[0].append(LogEntry(one.key.encode(), one.value, one.headers))
    return Newest(logs, 1)


async def late(*records: Outgoing) -> Sequence[Outgoing]:
    return await topics(*records).late([0], lambda name: name != "another")


async def test_what_came_behind_a_newer_record_of_its_key_is_found() -> None:
    assert await late(record(3), record(7), record(3)) == [record(7)]
    assert await late(record(7), record(3), record(4)) == [record(7)]


async def test_records_in_order_are_left_alone() -> None:
    assert await late(record(3), record(7), record(7)) == []
    assert await late(record(7), record(3), record(7)) == []
    assert await late(record(7), record(3, key="trains")) == []
    assert await late(record(7), record(3, role="catalog")) == []


async def test_a_standing_query_is_of_the_data_set_that_its_key_begins_with() -> None:
    newer, older = (record(n, "standing", "flights ana q1") for n in (7, 3))
    assert await late(newer, older) == [newer]
    assert await late(*(record(n, "standing", "another ana q1") for n in (7, 3))) == []


async def test_a_record_that_names_no_commit_is_older_than_one_that_does() -> None:
    """One that erases again what is gone, where nobody knows of a commit."""
    bare = Outgoing("catalog", "flights", b"old")
    named = record(1, "catalog")
    assert await late(bare, bare) == []
    assert await late(bare, named) == []
    assert await late(named, bare) == [named]


async def test_nothing_is_sent_again_behind_what_has_left_since() -> None:
    newest = topics(record(7), record(3))
    (again,) = await newest.late([0], lambda _: True)
    assert newest.in_order([record(8)]) == [record(8)]
    assert newest.in_order([again]) == []


async def test_what_is_under_way_when_a_look_begins_has_left() -> None:
    newest = topics(record(7), record(3))
    assert newest.in_order([record(8)]) == [record(8)]  # the broker does not have it yet
    (again,) = await newest.late([0], lambda _: True)
    assert newest.in_order([again]) == []


async def test_what_left_long_ago_is_not_remembered() -> None:
    """A worker sends records of more and more keys, as standing queries begin and end."""
    newest = topics(record(7), record(3))
    (again,) = await newest.late([0], lambda _: True)
    for number in range(100):
        newest.in_order([record(1, "standing", f"flights ana q{number}")])
    assert len(newest._left) == 100, "the look is not over before what is sent again has left"
    newest.in_order([again])
    newest.in_order([record(9, "answers")])
    assert newest._left == {}


async def test_a_broker_that_is_away_ends_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def heads(*_: object) -> AsyncIterator[Any]:
        raise ServerUnavailable("no broker")
        yield

    monkeypatch.setattr(Newest, "_heads", heads)
    world.define("flights")
    process = await world.owner()
    await process.run()
    assert world.events("dataset_accepted")
    assert "was not seen: no broker" in caplog.text


async def freeze(world: World) -> World:
    """A worker freezes before it sends synthetic rows, and goes on when its successor has sent newer ones."""
    world.define("flights", synthetic_rows=1_000)
    frozen, successor = world.process(), world.process()
    awake, asleep = asyncio.Event(), asyncio.Event()
    send = frozen.worker.releaser._send

    async def slow(outgoing: Outgoing) -> Awaitable[object]:
        if outgoing.role == "synthetic":
            asleep.set()
            await awake.wait()
        return await send(outgoing)

    frozen.worker.releaser._send = slow
    await frozen.assign()
    world.cells("flights", "one")
    running = asyncio.create_task(frozen.run())
    await asleep.wait()
    await successor.assign()
    world.cells("flights", "two")
    await successor.run()
    await successor.settled()  # so nobody sends this again for another reason
    awake.set()
    with contextlib.suppress(Fenced):
        await running
    await frozen.kill()
    await successor.assign()  # as all are, when one of a group is gone
    await successor.run()
    await successor.kill()
    return world


async def test_synthetic_rows_of_a_worker_that_froze_do_not_stay_the_newest(world: World) -> None:
    """Found by a soak: its successor had published those of the next phase meanwhile."""
    assert (await freeze(world)).complaints() == []
    phases = [rows["phase"] for rows in world.released("synthetic")]
    assert 1 in phases[phases.index(2) :], "the frozen one has sent nothing"
    assert phases[-1] == 2


async def test_a_worker_that_does_not_look_would_be_found(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broken copy."""

    async def nothing(self: Newest, *_: object) -> Sequence[Outgoing]:
        return []

    monkeypatch.setattr(Newest, "late", nothing)
    assert "flights has no synthetic rows of phase 2" in (await freeze(world)).complaints()
