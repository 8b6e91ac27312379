"""Random schedules of several faults, each from a seed: the real protocol over logs and a Redis in memory.

A seed chooses what clients send, and what happens meanwhile: workers die, some while a broker still does what
they have asked for; another one takes over while the first goes on unaware, or knows of it; Redis is away,
goes back to an older copy, is emptied, has another history or a wrong byte; rows that were read are lost, and
so are replies of the broker. Readings may meet a broker that does not lead any more, which does not know what
came last. In the end the referee reads what is there.

To run a failing seed again, run the command that stands under what the referee said.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import logging
import multiprocessing
import os
import random
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import Any

import numpy as np
import numpy.typing as npt

from stream_dp.core.rows import slabs
from stream_dp.errors import StoreUnavailable, StreamDPError
from stream_dp.pipeline import worker as worker_module
from stream_dp.pipeline.datasets import draft, holdings, paid_looks
from stream_dp.pipeline.journal import journal, redis_follower, releaser
from stream_dp.pipeline.journal.checkpoint_rounds import Often
from stream_dp.pipeline.rows import private_rows
from stream_dp.pipeline.rows.stored_blocks import StoredBlocks
from stream_dp.pipeline.rows.waiting import waiting_lots
from stream_dp.pipeline.worker import _Stopped
from stream_dp.state import private_names, schema
from tests.pipeline import scenarios
from tests.pipeline.crash import Crash
from tests.pipeline.redis_faults import RedisFaults
from tests.pipeline.world import Process, World, watch_looks

SCENARIOS = {
    "ROUNDS": 400,
    "GATED": 150,
    "RUNS": 220,
    "ERASED": 220,
    "STANDING": 320,
    "PERSONS": 200,
    "LIVES": 200,
    "ROTATED": 900,
    "SHARED": 200,
    "HURRIED": 400,
    "PERSONS_BY_DAY": 700,
    "LIVES_SHARED": 400,
    "SOURCED": 300,
}
"""What clients send, and the effects within which faults happen."""

FAULTS = (
    "crash",
    "dies with a step under way",
    "zombie",
    "rebalance",
    "Redis older",
    "Redis emptied",
    "Redis of another history",
    "Redis wrong in a byte",
    "Redis away",
    "rows lost",
)

_STEPS = ("append", "append", "send", "put", "drop", "forget")

_MOST_WORKERS = 150
_TURN_S = 1e-6  # so that a clock which goes on by itself never stands still for a rounding error


@dataclass
class Plan:
    """What happens under one seed.

    Attributes:
        scenario: The name of what clients send.
        faults: The effect, counted over all workers, at which each fault happens, and the fault.
        lost_replies: The share of appends whose reply is lost.
        stale_reads: The share of readings that meet a broker which does not lead any more.
        often: How often there are rounds of checkpoints.
        brisk: Whether workers do at once what they do after a second or a minute: say what is done with,
            compare places in Redis, and keep rows that wait by themselves.
        in_the_end: Whether Redis is there in the end, if it was away.
    """

    scenario: str
    faults: dict[int, str]
    lost_replies: float
    group: int
    lagging: bool
    often: Often
    brisk: bool
    in_the_end: bool
    stale_reads: float = 0.0

    @classmethod
    def of(cls, seed: int, *, stale: bool = False, faults: Mapping[int, str] | None = None) -> Plan:
        """The plan of a seed.

        Args:
            seed: The seed.
            stale: Whether readings may meet a broker that does not lead any more. All else is as without.
            faults: What happens instead of its own faults.
        """
        choice = random.Random(seed)
        scenario, most = choice.choice([*SCENARIOS.items()])
        chosen = {
            choice.randrange(3, most): choice.choice(FAULTS) for _ in range(choice.randint(1, 6))
        }
        return cls(
            scenario,
            dict(sorted((chosen if faults is None else faults).items())),
            choice.choice((0.0, 0.0, 0.1, 0.3)),
            choice.choice((1, 3, 5)),
            choice.random() < 0.3,
            Often(choice.choice((10**9, 10**9, 20_000, 100_000)), choice.choice((0, 1, 8))),
            choice.random() < 0.5,
            choice.random() < 0.8,
            choice.choice((0.02, 0.05, 0.15)) if stale else 0.0,
        )


class Simulation:
    """One run under one seed."""

    def __init__(
        self, seed: int, *, stale: bool = False, faults: Mapping[int, str] | None = None
    ) -> None:
        self.plan = plan = Plan.of(seed, stale=stale, faults=faults)
        self.world = World(seed=seed)
        self.world.group = plan.group
        self.world.lagging = plan.lagging
        self.world.tick_s = 0.05  # of a clock that goes on by itself
        self.world.lost_replies = plan.lost_replies
        self.world.stale_reads = plan.stale_reads
        self.world.appends_land_late = True
        self.world.often = plan.often
        self._choice = random.Random(~seed)
        self._redis = RedisFaults(self.world, self._choice)
        self._effects = 0
        self._happened: list[str] = []
        self._workers = 0
        self._to_assign = False
        _drawn.seed(seed)
        _worlds[:] = [self.world]
        vars(releaser)["_IDLE_S"] = 0.005 if plan.brisk else 1.0
        vars(redis_follower)["_COMPARE_S"] = 0.02 if plan.brisk else 60.0
        vars(worker_module)["_KEEP_S"] = 0.05 if plan.brisk else 60.0

    async def run(self) -> list[str]:
        """Runs it, and one more worker in the end; returns what the referee says."""
        worker: Process | None = None
        for produce in (*getattr(scenarios, self.plan.scenario), None):
            if produce is not None:
                produce(self.world)
            elif worker is not None:
                await worker.kill()
                worker = None
                self._calm_down()
            while True:
                try:
                    if worker is None:
                        worker = self._worker()
                        await worker.assign()
                    await worker.run()
                    if self._to_assign:
                        self._to_assign = False
                        await worker.assign()
                        continue
                    if produce is None:
                        await worker.settled()
                except (Crash, StreamDPError, _Stopped) as error:
                    self._happened.append(f"effect {self._effects}: a worker ended, {error!r}")
                    assert worker is not None
                    await worker.kill()
                    worker, self._to_assign = None, False
                else:
                    break
        if worker is not None:
            await worker.kill()
        aside = [place for process in self.world.processes for place in process.worker.cut]
        return [
            *(f"{place} is whole, and was not served" for place in aside),
            *self.world.complaints(),
        ]

    def _calm_down(self) -> None:
        """No fault comes any more."""
        self.plan.faults.clear()
        self.world.lost_replies = 0.0
        while self.world.held_back:
            self.world.land()
        if self.plan.in_the_end:
            self.world.view_away = False

    def _worker(self) -> Process:
        self._workers += 1
        assert self._workers < _MOST_WORKERS, f"workers end again and again: {self._happened[-3:]}"
        worker = self.world.process(batches_last_s=-1e12)  # so rows that wait are due to be kept
        worker.begin(worker.worker.run_keeper())
        worker.interrupt = lambda _: self._effect(worker)
        return worker

    async def _effect(self, worker: Process) -> None:
        self._effects += 1
        if self._effects % 7 == 0:
            self._redis.remember()
        if self.world.held_back and self._choice.random() < 0.05:
            self.world.land()
        fault = self.plan.faults.pop(self._effects, None)
        if fault is None:
            return
        self._happened.append(f"effect {self._effects}: {fault}")
        match fault:
            case "crash":
                raise Crash(fault)
            case "dies with a step under way":
                self.world.holds_back = worker.number, self._choice.choice(_STEPS)
            case "zombie":
                await self._another(worker, self._some_partitions())
            case "rebalance":
                await self._rebalance(worker)
            case "Redis away":
                self.world.view_away = True
                self._soon("Redis is back")
            case "Redis is back":
                self.world.view_away = False
            case "rows lost":
                redis = self._choice.random() < 0.5
                lose_rows(self.world, self._choice.choice(_LOST), redis=redis)
                raise Crash(fault)
            case _:
                self._redis.happens(fault)
                if self._choice.random() < 0.5:
                    raise Crash(fault)

    def _soon(self, what: str) -> None:
        """Has something happen at a later effect."""
        at = self._effects + self._choice.randint(1, 60)
        while at in self.plan.faults:
            at += 1
        self.plan.faults[at] = what

    def _some_partitions(self) -> Sequence[int]:
        return self._choice.choice(((0, 1), (0, 1), (0,), (1,)))

    async def _another(self, first: Process, partitions: Sequence[int]) -> None:
        """Another worker takes over and reads everything there is; the first one goes on afterwards."""
        first.interrupt = None
        another = self._worker()
        try:
            await another.assign(partitions)
            await another.run()
        except (Crash, StreamDPError, _Stopped) as error:
            self._happened.append(f"effect {self._effects}: another worker ended, {error!r}")
        finally:
            await another.kill()
        first.interrupt = lambda _: self._effect(first)

    async def _rebalance(self, worker: Process) -> None:
        """A worker lets go of partitions and gets them back, perhaps after another one."""
        partitions = self._some_partitions()
        worker.revoke(partitions)
        self._to_assign = True
        if self._choice.random() < 0.7:
            await self._another(worker, partitions)


_SLABS = ("block", "weight", "ordered", "waiting", "whose", "arrived")
_LOST: Sequence[Sequence[str]] = (_SLABS, _SLABS, ("weight", "whose"), ("ordered", "arrived"))
"""What is lost of rows: all, or what comes with them in slabs of its own."""


def lose_rows(world: World, kinds: Sequence[str] = _SLABS, *, redis: bool = True) -> None:
    """Takes rows off the topics: slabs of some kinds, and batches. Perhaps Redis loses all, too."""
    for name, held in world.durable().items():
        for what in kinds:
            for named in held.named(f"{what} ").values():
                world.kept.pop(f"{name}/{named.name.hex()}".encode(), None)
    if redis:
        world.view.values.clear()
    for records in world.log.values():
        world.expired |= {record.record_id for record in records if record.role == "batches"}


class _Loop(asyncio.SelectorEventLoop):
    """Tasks take turns alike in every run: time is what is waited for, and one thread runs at a time."""

    def __init__(self) -> None:
        super().__init__()
        self._now = 0.0
        self._turn = threading.Semaphore(0)
        self._mine = threading.local()
        self._threads: list[SimpleQueue[Callable[[], None] | None]] = []
        self._idle: list[SimpleQueue[Callable[[], None] | None]] = []
        waits = self._selector.select  # type: ignore[attr-defined]

        def select(timeout: float | None = None) -> Any:
            assert timeout is not None, "all tasks wait for one another"
            self._now += max(timeout, 0.0) + _TURN_S
            return waits(0)

        self._selector.select = select  # type: ignore[attr-defined]

    def time(self) -> float:
        return self._now

    def run_in_executor(self, executor: Any, func: Any, *args: Any) -> Any:  # type: ignore[override]
        del executor
        done = self.create_future()
        found: list[Any] = []

        def run() -> None:
            self._mine.goes_on = goes_on
            try:
                found.append((func(*args), None))
            except BaseException as error:  # noqa: BLE001 - it is for the caller
                found.append((None, error))
            self._idle.append(thread)
            self._turn.release()

        def goes_on() -> None:
            """Waits until the thread is done, or waits for the event loop itself."""
            self._turn.acquire()
            if found and not done.done():
                value, error = found[0]
                done.set_result(value) if error is None else done.set_exception(error)

        thread = self._idle.pop() if self._idle else self._another_thread()
        thread.put(run)
        goes_on()
        return done

    def _another_thread(self) -> SimpleQueue[Callable[[], None] | None]:
        """What it is given, a new thread runs one after the other, until None ends it."""
        given: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

        def run() -> None:
            while (what := given.get()) is not None:
                what()

        threading.Thread(target=run, daemon=True).start()
        self._threads.append(given)
        return given

    def close(self) -> None:
        for thread in self._threads:
            thread.put(None)
        super().close()

    def asked(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        """What a coroutine gives, for a thread of this loop."""
        found = asyncio.run_coroutine_threadsafe(coroutine, self)
        goes_on = self._mine.goes_on
        found.add_done_callback(lambda _: goes_on())
        self._turn.release()
        return found.result()


def complaints(
    seed: int, *, stale: bool = False, faults: Mapping[int, str] | None = None
) -> list[str]:
    """What the referee says of one seed, with what happened if it says something. See ``Plan.of``."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(_complaints(seed, stale=stale, faults=faults))


async def _complaints(seed: int, *, stale: bool, faults: Mapping[int, str] | None) -> list[str]:
    simulation = Simulation(seed, stale=stale, faults=faults)
    try:
        said = await simulation.run()
    except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - the seed has found it
        said = [f"{type(error).__name__}: {error}"]
    finally:
        for process in simulation.world.processes:
            await process.kill()
    if not said:
        return []
    again = (
        f"again: python -m tests.pipeline.simulator --first {seed} --seeds 1{' --stale' * stale}"
    )
    return [
        f"seed {seed}: {Plan.of(seed, stale=stale, faults=faults)}",
        *simulation._happened,
        *said,
        again if faults is None else "again: with these faults",
    ]


_drawn = random.Random()


def _order(n_slots: int) -> npt.NDArray[np.intp]:
    return np.array(_drawn.sample(range(n_slots), n_slots), dtype=np.intp)


_worlds: list[World] = []


def alike(patch: Callable[[Any, str, Any], None] = setattr) -> None:
    """Takes out what would differ between two runs: real time and chance, and what threads do."""

    def asked(self: StoredBlocks, places: Any, *, on_topic: bool = False) -> Future[Any]:
        if self._loop is None:
            raise StoreUnavailable("the look was given up")
        assert isinstance(self._loop, _Loop)
        found: Future[Any] = Future()
        found.set_result(self._loop.asked(self._read_here(places, on_topic=on_topic)))
        return found

    watch_looks(patch, _worlds)
    patch(StoredBlocks, "_asked", asked)
    patch(waiting_lots, "secret_order", _order)
    patch(private_rows, "secret_order", _order)
    patch(slabs, "SLOTS", 6)  # so rows that wait become lots, and blocks have several slabs
    patch(paid_looks, "monotonic", lambda: 0.0)
    # A timer may ring a little early, and nothing would move the time on.
    patch(redis_follower, "monotonic", lambda: asyncio.get_running_loop().time() + 1e-6)
    for module in (draft, journal, private_names, schema):
        patch(module, "token_bytes", lambda n_bytes: _drawn.randbytes(n_bytes))
    # Many workers may end at one record here, and it is not to blame.
    patch(worker_module, "MOST_ATTEMPTS", 1_000)
    patch(holdings, "MOST_ATTEMPTS", 1_000)
    # Each simulation sets these.
    patch(releaser, "_IDLE_S", releaser._IDLE_S)
    patch(redis_follower, "_COMPARE_S", redis_follower._COMPARE_S)
    patch(worker_module, "_KEEP_S", worker_module._KEEP_S)


@dataclass(frozen=True)
class Search:
    """How far a search has come.

    Attributes:
        seeds: The number of seeds that were run.
        found: What the referee said of each that broke a promise.
    """

    seeds: int
    found: tuple[str, ...]


def search(
    first: int, seeds: int, *, stale: bool = False, processes: int = 0
) -> Generator[Search, None, None]:
    """Runs seeds in several processes. To end it early, close it.

    Args:
        first: The first seed.
        seeds: How many.
        stale: Whether readings may meet a broker that does not lead any more.
        processes: How many at a time. 0 for one on each core.
    """
    parts = [range(at, min(at + _PART, first + seeds)) for at in range(first, first + seeds, _PART)]
    done, found = 0, []
    started = multiprocessing.get_context("spawn")
    with started.Pool(processes or os.cpu_count(), _prepare, maxtasksperchild=_MOST_PARTS) as pool:
        for n_seeds, said in pool.imap_unordered(partial(_searched, stale=stale), parts):
            done += n_seeds
            found += said
            yield Search(done, tuple(found))


_PART = 20
_MOST_PARTS = 50  # of a process, which grows with what is never looked at for garbage again


def _prepare() -> None:
    """Of each process: runs do not differ, and what is loaded by now is not looked at again for garbage."""
    alike()
    logging.disable()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def _searched(part: range, *, stale: bool) -> tuple[int, list[str]]:
    found = [said for seed in part if (said := complaints(seed, stale=stale))]
    return len(part), ["\n".join(said) for said in found]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--stale", action="store_true", help="let brokers answer that do not lead")
    asked = parser.parse_args(arguments)
    began, shown, known = time.monotonic(), 0.0, 0
    for so_far in search(asked.first, asked.seeds, stale=asked.stale):
        for said in so_far.found[known:]:
            print(f"\n{said}")
        known, now = len(so_far.found), time.monotonic()
        if now - shown > 5.0 or so_far.seeds == asked.seeds:
            shown, pace = now, so_far.seeds / (now - began)
            print(
                f"{so_far.seeds} of {asked.seeds} seeds, {known} with complaints, {pace:.1f} a second, "
                f"{(asked.seeds - so_far.seeds) / pace:.0f} s left",
                flush=True,
            )
    bound = "" if known else f", 95% bound {3 / asked.seeds:.2g}"
    print(f"{known} violations in {asked.seeds} seeds{bound}")
    return 1 if known else 0


if __name__ == "__main__":
    # By its name, so that other processes find it.
    from tests.pipeline import simulator

    sys.exit(simulator.main(sys.argv[1:]))
