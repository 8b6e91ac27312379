"""A store or a broker that goes away for a moment loses nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from stream_dp.errors import ServerUnavailable, StoreUnavailable, StreamDPError, UnsafeStore
from stream_dp.pipeline import releasing, retrying
from tests.slow import rest_is_slow

AA = {"attribute": "carrier", "eq": "AA"}
LATE = {"attribute": "delay", "ge": 10}


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


@pytest.mark.parametrize("part", range(2))
@pytest.mark.parametrize("failures", rest_is_slow([2, 1, 5], first=1))
async def test_a_store_that_goes_away_at_any_step_loses_nothing(
    make_world: Callable[..., Any], failures: int, part: int
) -> None:
    """Every other failure has done its step and lost the reply."""
    for at in range(1 + part, await _effects(make_world), 2):
        world = make_world()
        process = world.process()

        async def leave(effect: int, at: int = at, process: Any = process) -> None:
            if effect == at:
                process.store.away = failures
                process.interrupt = None

        process.interrupt = leave
        await process.assign()
        for produce in ROUNDS:
            produce(world)
            await process.run()
        await process.kill()
        assert world.complaints() == []


async def test_a_store_that_stays_away_ends_the_worker_and_the_next_one_goes_on(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "_TRIES", 3)
    process = world.process()
    await process.assign()
    _define(world)
    await process.run()
    _fill(world)
    process.store.away = 1_000
    with pytest.raises(StoreUnavailable):
        await process.run()
    await process.kill()
    await world.run(rounds=(lambda _: None, _ask))
    assert world.complaints() == []


async def test_settings_that_drift_are_told_in_words(world: Any) -> None:
    process = world.process()
    await process.store_watch.check()
    assert b"stream_dp_store_safe 1.0" in process.worker.metrics.exposition()

    async def problems() -> tuple[str, ...]:
        return ("appendfsync is no: set it to everysec",)

    world.store.problems = problems
    with pytest.raises(UnsafeStore, match="appendfsync"):
        await process.store_watch.check()
    assert b"stream_dp_store_safe 0.0" in process.worker.metrics.exposition()
    await process.kill()


async def test_nothing_is_taken_once_the_settings_have_drifted(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def problems() -> tuple[str, ...]:
        return ("appendfsync is no: set it to everysec",)

    process = world.process()
    await process.assign()
    _define(world)
    await process.run()
    _fill(world)
    with monkeypatch.context() as drifted:
        drifted.setattr(world.store, "problems", problems)
        with pytest.raises(UnsafeStore):
            await process.store_watch.check()
        happened = len(world.trail)
        with pytest.raises(UnsafeStore):
            await process.run()
        await process.stop()
    assert not process.worker.ready
    assert len(world.trail) == happened
    await world.run(rounds=(lambda _: None, _ask))
    assert world.complaints() == []


async def test_a_check_of_the_store_is_patient(world: Any) -> None:
    process = world.process()
    process.store.away = 5
    await process.store_watch.check()
    await process.kill()


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
async def test_a_broker_that_goes_away_gets_everything_again(
    world: Any, monkeypatch: pytest.MonkeyPatch, failures: int
) -> None:
    monkeypatch.setattr(releasing, "_RETRY_S", 0.001)
    process = world.process()
    broker = process.worker._releaser._send = Broker(process.worker._releaser._send, 0)
    await process.assign()
    for produce in ROUNDS:
        produce(world)
        broker.failures = failures
        await process.run()
    await process.kill()
    assert world.complaints() == []


async def test_a_broker_that_refuses_for_good_ends_the_worker(world: Any) -> None:
    process = world.process()

    async def refuse(_: Any) -> Awaitable[object]:
        raise StreamDPError("too large")

    process.worker._releaser._send = refuse
    await process.assign()
    _define(world)
    with pytest.raises(StreamDPError, match="too large"):
        await process.run()
    await process.kill()
    await world.run()
    assert world.complaints() == []


async def test_nothing_is_marked_as_read_while_the_broker_is_away(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releasing, "_RETRY_S", 0.001)
    process = world.process()
    broker = process.worker._releaser._send = Broker(process.worker._releaser._send, 1_000_000)
    await process.assign()
    _define(world)
    _fill(world)
    for _ in range(3):
        await process.step()
    await asyncio.sleep(0.05)
    assert {k: v for k, v in world.store._watermarks.items() if k in world.log} == {}
    broker.failures = 0
    await process.run()
    await process.kill()
    assert world.complaints() == []


async def test_waiting_for_the_store_is_logged_without_a_word_about_data(
    world: Any, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    process = world.process()
    await process.assign()
    _define(world)
    await process.run()
    world.batch("flights", "b", rows=[{"carrier": "canary-7f3a"}])
    process.store.away = 4
    await process.run()
    await process.kill()
    assert "store unavailable" in caplog.text
    assert "canary" not in caplog.text
