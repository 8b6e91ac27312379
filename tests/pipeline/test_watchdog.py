"""A worker that has work and does nothing ends itself."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from stream_dp.errors import CorruptState
from stream_dp.pipeline.app import create_app
from stream_dp.pipeline.watch.watchdog import Watchdog
from stream_dp.settings import WorkerSettings
from tests.waiting import PATIENCE_S


class Dog:
    """A watchdog with a clock, a progress and a load that the test sets."""

    def __init__(self) -> None:
        self.now, self.progress, self.work, self.bites = 0.0, 0, True, 0
        self.watchdog = Watchdog(
            lambda: self.progress,
            lambda: self.work,
            self._bite,
            patience_s=10.0,
            clock=lambda: self.now,
        )

    def _bite(self) -> None:
        self.bites += 1

    def at(self, now: float) -> bool:
        self.now = now
        return self.watchdog.look()


@pytest.fixture
def dog() -> Dog:
    return Dog()


def test_it_bites_when_nothing_is_done_for_long(dog: Dog) -> None:
    assert [dog.at(t) for t in (1, 9.9)] == [False, False]
    assert dog.at(10)
    assert dog.bites == 1


def test_progress_satisfies_it(dog: Dog) -> None:
    for t in range(0, 100, 5):
        dog.progress += 1
        assert not dog.at(t)
    assert not dog.at(104)
    assert dog.at(105)


def test_idleness_is_no_standstill(dog: Dog) -> None:
    dog.work = False
    assert not dog.at(1_000)
    dog.work = True
    assert not dog.at(1_009)
    assert dog.at(1_010)


def test_it_watches_from_a_thread_of_its_own() -> None:
    bitten = threading.Event()
    dog = Watchdog(lambda: 0, lambda: True, bitten.set, patience_s=0.05)
    dog.start()
    assert bitten.wait(PATIENCE_S)


def test_it_can_be_stopped() -> None:
    bitten = threading.Event()
    dog = Watchdog(lambda: 0, lambda: True, bitten.set, patience_s=0.2)
    dog.start()
    dog.stop()
    assert not bitten.wait(0.5)


async def test_a_worker_is_busy_while_something_is_in_hand_and_makes_progress(world: Any) -> None:
    process = await world.owner()
    await process.drained()
    assert not process.worker.busy
    world.define("flights")
    before = process.worker.context.heartbeat.count
    busy = []

    async def look(_: int) -> None:
        busy.append(process.worker.busy)

    process.interrupt = look
    await process.run()
    assert busy
    assert all(busy)
    assert not process.worker.busy
    assert process.worker.context.heartbeat.count > before


def test_a_worker_whose_end_takes_too_long_says_why_before_it_ends_itself(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    app = create_app(WorkerSettings())
    said: list[BaseException | int | None] = []
    app.failure = CorruptState("the journal was cut")
    app.say_failure = lambda: said.append(app.failure)
    monkeypatch.setattr("os._exit", said.append)
    app._end("it did not stop by itself")
    assert said == [app.failure, 1]
