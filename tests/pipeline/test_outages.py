"""Redis may be away for as long as it likes; for a broker the service waits. Nothing is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stream_dp.errors import ServerUnavailable, StreamDPError, UnsafeTopics
from stream_dp.pipeline.journal import redis_follower, releaser
from stream_dp.pipeline.kafka import patience
from tests.pipeline.marked import left, watermarks
from tests.pipeline.scenarios import AA, LATE
from tests.slow import rest_is_slow
from tests.view import MemoryView


def _define(world: Any) -> None:
    world.define("flights", mechanism={"base_share": 0.0005})


def _fill(world: Any) -> None:
    world.cells("flights", "one")
    world.batch("nobody", "early", rows=[])
    world.produce("queries", b"{", key="flights")


def _ask(world: Any) -> None:
    world.ask("flights", "aa", AA)
    world.ask_many("flights", [{"query_id": "late", "where": LATE}, {"query_id": "all"}])
    world.cells("flights", "two")


ROUNDS = (_define, _fill, _ask)


async def _effects(make_world: Callable[..., Any]) -> int:
    world = make_world()
    await world.run(rounds=ROUNDS)
    return sum(int(process.effects) for process in world.processes)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits are short."""
    monkeypatch.setattr(redis_follower, "_FIRST_WAIT_S", 0.001)
    monkeypatch.setattr(redis_follower, "_LONGEST_WAIT_S", 0.002)
    monkeypatch.setattr(releaser, "_RETRY_S", 0.001)
    monkeypatch.setattr(patience, "_PAUSE_S", 0.001)


# ---------------------------------------------------------------- Redis


@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("failures", rest_is_slow([2, 1, 5], first=1))
async def test_a_redis_that_goes_away_at_any_step_loses_nothing(
    make_world: Callable[..., Any], failures: int, part: int
) -> None:
    """Every other failure has done its step and lost the reply."""
    for at in range(1 + part, await _effects(make_world), 2):
        world = make_world()
        process = world.process()

        async def leave(effect: int, at: int = at, process: Any = process) -> None:
            if effect == at:
                process.view.away = failures
                process.interrupt = None

        process.interrupt = leave
        await process.assign()
        for produce in ROUNDS:
            produce(world)
            await process.run()
        await process.settled()
        await process.kill()
        assert world.complaints() == []


def _ask_again(world: Any) -> None:
    """Asks what was answered, sends what was accepted, and needs rows that a former worker has sealed."""
    world.ask("flights", "aa", AA)
    world.cells("flights", "one")
    world.ask("flights", "new", {"attribute": "cancelled", "eq": True}, window={"last_phases": 2})


async def test_without_redis_everything_is_served_by_one_worker_after_another(world: Any) -> None:
    world.view_away = True
    for produce in (*ROUNDS, _ask_again):
        await world.run(rounds=(produce,))
    assert world.view.states == world.view.values == world.view.generations == {}
    assert world.answer("new")["status"] == "answered"
    assert world.answer("aa") in world.released("answers")
    assert len([one for one in world.released("answers") if one["query_id"] == "aa"]) > 1
    assert world.complaints() == []


async def test_an_outage_of_redis_is_told_once_without_a_word_about_data(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    world.view_away = True
    world.batch("flights", "b", rows=[{"carrier": "canary-7f3a"}])
    process = await world.owner()
    for produce in (*ROUNDS, _ask_again):
        produce(world)
        await process.run()
    await asyncio.sleep(0.05)
    assert process.worker.following.contact.away_since is not None
    assert caplog.text.count("Redis does not follow, and nothing waits for it") == 1
    world.view_away = False
    await process.settled()
    assert process.worker.following.contact.away_since is None
    assert caplog.text.count("Redis answers again") == 1
    assert "canary" not in caplog.text


# ---------------------------------------------------------------- topics and their settings


async def test_nothing_is_taken_once_the_settings_of_topics_have_drifted(world: Any) -> None:
    process = await world.owner()
    _define(world)
    await process.run()
    _fill(world)
    process.worker.cut_short(UnsafeTopics(("journal has retention.ms 1000",), "topics create"))
    happened = len(world.trail)
    with pytest.raises(UnsafeTopics):
        await process.run()
    await process.stop()
    assert not process.worker.ready
    assert len(world.trail) == happened
    assert all(left(world)), "it was no record's fault"
    await world.run(rounds=(lambda _: None, _ask))
    assert world.complaints() == []


class Away:
    """A step of a topic for which no broker is there for a while: every other failure has done its step."""

    def __init__(self, of: Any, name: str) -> None:
        self._step = getattr(of, name)
        self.failures = self.failed = 0
        setattr(of, name, self)

    async def __call__(self, *arguments: Any, **named: Any) -> Any:
        if self.failures:
            self.failures -= 1
            self.failed += 1
            if self.failures % 2:
                await self._step(*arguments, **named)
            raise ServerUnavailable("no broker")
        return await self._step(*arguments, **named)


@pytest.mark.parametrize("failures", [1, 2, 7])
@pytest.mark.parametrize("step", ["append", "bounds", "put", "fetch"])
async def test_a_broker_that_goes_away_is_waited_for(world: Any, step: str, failures: int) -> None:
    """Nothing is decided twice, and nothing is said to be gone."""
    steps = []
    for number, produce in enumerate((*ROUNDS, _ask_again)):
        if number in (0, 3):  # the last one takes over, and reads from topics what Redis has lost
            world.view = MemoryView()
            process = world.process()
            journal, kept = process.worker.journal, process.kept
            away = Away(kept if step in ("put", "fetch") else journal._log, step)
            steps.append(away)
            away.failures = failures
            await process.assign()
        away.failures = failures
        produce(world)
        await process.run()
        if number == 2:
            await process.kill()
    await process.settled()
    assert steps[-1 if step == "fetch" else 0].failed >= failures, "the step was never taken"
    assert world.events("rows_lost") == []
    assert world.answer("new")["status"] == "answered"
    assert world.complaints() == []


async def test_nothing_leaves_while_the_journal_is_away(world: Any) -> None:
    process = await world.owner()
    _define(world)
    await process.run()
    sent = len(world.trail)
    process.worker.journal._log.append = _nobody
    _fill(world)
    running = asyncio.create_task(process.run())
    await asyncio.sleep(0.05)
    assert len(world.trail) == sent
    assert not running.done()
    del process.worker.journal._log.append
    await running
    assert world.complaints() == []


async def _nobody(*_: Any) -> Any:
    raise ServerUnavailable("no broker")


class Broker:
    """Takes no record for a while: it refuses at once, or takes it and never acknowledges."""

    def __init__(self, send: Any, failures: int) -> None:
        self._send = send
        self.failures = failures

    async def __call__(self, outgoing: Any) -> Awaitable[object]:
        if self.failures % 3 == 1:
            self.failures -= 1
            raise ServerUnavailable("no broker")
        sent = await self._send(outgoing)
        if self.failures:
            self.failures -= 1
            lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            lost.set_exception(ServerUnavailable("no acknowledgement"))
            return lost
        return sent


@pytest.mark.parametrize("failures", [1, 2, 3, 10])
async def test_a_broker_that_goes_away_gets_everything_again(world: Any, failures: int) -> None:
    process = world.process()
    broker = process.worker.releaser._send = Broker(process.worker.releaser._send, 0)
    await process.assign()
    for produce in ROUNDS:
        produce(world)
        broker.failures = failures
        await process.run()
    assert world.complaints() == []


async def test_a_broker_that_refuses_for_good_ends_the_worker(world: Any) -> None:
    """And that is the failure that is told, though it cancels an append that is under way."""
    world.group = 1
    process = await world.owner()
    log, appending = process.worker.journal._log, asyncio.Event()
    append = log.append

    async def once(*arguments: Any) -> Any:
        log.append = hangs
        return await append(*arguments)

    async def hangs(*_: Any) -> Any:
        appending.set()
        await asyncio.Event().wait()

    async def refuse(_: Any) -> Awaitable[object]:
        await appending.wait()
        raise StreamDPError("too large")

    log.append, process.worker.releaser._send = once, refuse
    world.lagging = True
    _define(world)
    world.define("trains")
    with pytest.raises(StreamDPError, match="too large"):
        await process.run()
    with pytest.raises(StreamDPError, match="too large"):
        await process.worker.releaser.settled()
    del log.append
    await process.kill()
    await world.run()
    assert world.complaints() == []


async def test_nothing_is_marked_as_read_while_the_broker_is_away(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releaser, "_IDLE_S", 0.001)
    process = world.process()
    broker = process.worker.releaser._send = Broker(process.worker.releaser._send, 1_000_000)
    await process.assign()
    _define(world)
    _fill(world)
    for _ in range(3):
        await process.step()
    await asyncio.sleep(0.05)
    assert {k: v for k, v in watermarks(world).items() if k in world.log} == {}
    broker.failures = 0
    await process.run()
    await process.settled()
    assert {k: v for k, v in watermarks(world).items() if k in world.log} != {}
    assert world.complaints() == []
