"""Several data sets are in hand at the same time, and what one of them commits stays in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import pytest

from stream_dp.errors import Fenced
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.intake.records import Decided, Outgoing, Releasable
from stream_dp.pipeline.journal.chain import JournalChain
from stream_dp.pipeline.journal.newest import Newest
from stream_dp.pipeline.journal.owned_partition import Owned
from stream_dp.pipeline.journal.releaser import Releaser
from stream_dp.pipeline.kafka.topic_log import LogEntry
from stream_dp.pipeline.together import together
from stream_dp.state.schema import Commit, State, StateTable
from tests.pipeline.fakes import FakeLog
from tests.pipeline.scenarios import AA
from tests.pipeline.world import Process, World


async def test_the_first_error_ends_all_steps() -> None:
    ended = []

    async def fails() -> None:
        raise ValueError("this one")

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.append("waits")

    with pytest.raises(ValueError, match="this one"):
        await together([waits, fails], at_once=2)
    assert ended == ["waits"]


async def test_no_more_steps_are_under_way_than_may_be() -> None:
    under_way, most = 0, 0

    async def step() -> None:
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0)
        under_way -= 1

    await together([step] * 7, at_once=3)
    assert (most, under_way) == (3, 0)


async def test_a_charge_on_its_way_to_the_journal_keeps_no_other_data_set_waiting(
    world: World, process: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["one", "two"]
    for name in names:
        world.define(name, mechanism={"base_share": 0.0})
    await process.run()
    for name in names:
        world.cells(name, "first")
    await process.run()
    append, together_by = FakeLog.append, list[bool]()

    def announced() -> list[bool]:
        return [bool(process.datasets[name].draft.state.table(StateTable.INTENT)) for name in names]

    async def appended(self: Any, partition: int, entries: Sequence[LogEntry]) -> int | None:
        if any(announced()) and not together_by:
            for _ in range(1_000):  # while the first charge is on its way
                if all(announced()):
                    break
                await asyncio.sleep(0.001)
            together_by.append(all(announced()))
        return await append(self, partition, entries)

    monkeypatch.setattr(FakeLog, "append", appended)
    for name in names:
        world.ask(name, "q1", {"attribute": "carrier", "eq": "AA"})
    await process.run()
    assert together_by == [True], "one data set waited for the other one's charge"
    assert world.complaints() == []


async def until(is_so: Callable[[], bool]) -> None:
    for _ in range(20_000):
        if is_so():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never is")


async def test_what_is_on_its_way_out_is_not_done_with_by_the_next_append(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rejection follows from no commit. If the worker dies, the next one reads its record again."""
    send, never = Process._send, asyncio.Event()

    async def slow(self: Process, outgoing: Outgoing) -> Awaitable[object]:
        if outgoing.role == "rejected":
            await never.wait()
        return await send(self, outgoing)

    def commits() -> int:
        kinds = [dict(entry.headers)["kind"] for part in world.journal for entry in part]
        return kinds.count(b"commit")

    with monkeypatch.context() as patch:
        patch.setattr(Process, "_send", slow)
        process = await world.owner()
        world.define("flights", mechanism={"base_share": 0.0})
        world.cells("flights", "first")
        await process.run()
        rejected = world.produce("queries", b"{", key="flights")
        await process.step()
        await until(lambda: process.worker.busy)
        wanted = commits() + 2  # its charge, and its answer
        world.ask("flights", "q1", AA)
        await process.step()
        await until(lambda: commits() == wanted)
        await process.kill()
    await world.run()
    assert world.rejection(rejected)["reason"]["code"] == "bad_json"
    assert world.answer("q1")["status"] == "answered"
    assert world.complaints() == []


class OnePartition:
    """A journal of one partition, on which the numbers of commits land once the gate is open."""

    partitions = 1

    def __init__(self, chain: JournalChain) -> None:
        self.gate = asyncio.Event()
        self.appended: list[int] = []
        self._owned = {0: Owned(0, bytes(16), chains={chain.name: chain})}

    async def append(self, owned: Owned, entries: Sequence[int]) -> int:
        await self.gate.wait()
        self.appended.extend(entries)
        return len(self.appended) - len(entries)

    def entries(self, owned: Owned, kind: str, name: str, value: bytes) -> list[int]:
        return [Commit.from_bytes(value)[0].number] if kind == "commit" else []

    def owned(self) -> dict[int, Owned]:
        return self._owned

    def partition_of(self, dataset: str) -> int:
        return 0


class NoRedis:
    def follow(self, *_: object) -> None: ...


def releaser_on(journal: OnePartition) -> Releaser:
    return Releaser(
        cast("Any", journal),
        cast("Any", NoRedis()),
        cast("Any", None),
        Newest({}, 1),
        context=Context(),
    )


def next_commit(chain: JournalChain) -> Releasable:
    """The next commit of a data set."""
    commit = chain.build().drafted({})
    stored, trail = commit.to_bytes()
    chain.add(commit, trail)
    return Releasable([Decided(commit, trail, stored, chain=chain)])


async def waiting_charges(releaser: Releaser, chain: JournalChain) -> list[asyncio.Task[None]]:
    """Twelve steps that wait for their charges: more than there are places."""
    waiting = []
    for _ in range(12):
        waiting.append(asyncio.create_task(releaser.appended(next_commit(chain))))
        await asyncio.sleep(0)
    return waiting


async def hands_over(releaser: Releaser, chain: JournalChain) -> None:
    releaser.gathered.append(next_commit(chain))
    await releaser.hand_over()


async def test_a_charge_that_others_hand_over_is_waited_for() -> None:
    """All places are taken, and one who waits for its turn takes what others gather meanwhile."""
    chain = JournalChain("flights", State("flights"))
    journal = OnePartition(chain)
    releaser = releaser_on(journal)
    running = asyncio.create_task(releaser.run())
    waiting = await waiting_charges(releaser, chain)
    assert not any(one.done() for one in waiting)
    journal.gate.set()
    await asyncio.gather(*waiting)
    running.cancel()
    assert journal.appended == list(range(1, 13))


async def test_who_gathered_what_is_dropped_while_it_waits_for_its_turn_learns_of_it() -> None:
    chain = JournalChain("flights", State("flights"))
    journal = OnePartition(chain)
    releaser = releaser_on(journal)
    running = asyncio.create_task(releaser.run())
    waiting = await waiting_charges(releaser, chain)
    journal.owned().clear()
    releaser.let_go()
    journal.gate.set()
    ended = await asyncio.gather(*waiting, return_exceptions=True)
    running.cancel()
    assert {type(one) for one in ended[-4:]} == {Fenced}


async def test_what_is_gathered_later_is_appended_later() -> None:
    """Also where the first who hands over waits for a place, and another one gathers meanwhile."""
    chain = JournalChain("flights", State("flights"))
    journal = OnePartition(chain)
    releaser = releaser_on(journal)
    running = asyncio.create_task(releaser.run())
    waiting = []
    for _ in range(12):
        waiting.append(asyncio.create_task(hands_over(releaser, chain)))
        await asyncio.sleep(0)
    journal.gate.set()
    for _ in range(12, 40):
        waiting.append(asyncio.create_task(hands_over(releaser, chain)))
        await asyncio.sleep(0)
    await asyncio.gather(*waiting)
    await releaser.joined()
    running.cancel()
    assert journal.appended == list(range(1, 41))


async def test_what_was_decided_before_its_partition_was_let_go_of_lands_under_no_later_epoch() -> (
    None
):
    """Another worker may have had it in between. A step that was under way then has the former chain."""
    before, now = (JournalChain("flights", State("flights")) for _ in range(2))
    journal = OnePartition(now)
    journal.gate.set()
    releaser = releaser_on(journal)
    running = asyncio.create_task(releaser.run())
    await hands_over(releaser, before)
    await releaser.joined()
    assert journal.appended == []
    await hands_over(releaser, now)
    await releaser.joined()
    running.cancel()
    assert journal.appended == [1]
