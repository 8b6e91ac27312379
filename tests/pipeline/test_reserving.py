"""Units are reserved before the seal: no crash, former owner or interleaving lets one be used twice."""

from __future__ import annotations

import copy
import types
from collections import Counter
from collections.abc import Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, field, replace
from itertools import count, product
from typing import Any

import numpy as np
import pytest

from stream_dp.core.lifetimes import allowances_of_slots
from stream_dp.core.parameters import Unit
from stream_dp.errors import Conflict, Fenced, StoreUnavailable
from stream_dp.pipeline import reserving
from stream_dp.pipeline.fuse import CrashPoint, Fuse, unarmed
from stream_dp.state.ledger import GENESIS
from stream_dp.state.local import LocalStore, _Used
from stream_dp.state.store import MOST_PERSONS, Reservation, Snapshot, Transition
from tests.contracts.conftest import blocks_of

UNIT = Unit(2, 1, lifetime=True)
"""At most two rows a phase, and four units for life: two rows once, or one row four times."""

Slots = Sequence[int]
"""The persons of the slots of a phase; 0 is nobody."""


class Crash(BaseException):
    """The worker dies."""


def digests(slots: Slots) -> Any:
    return np.frombuffer(b"".join(who.to_bytes(12, "big") for who in slots), np.uint8).reshape(
        -1, 12
    )


@dataclass
class Worker:
    """A worker that seals phases of one data set, as ``Dataset`` does: reserve first, then commit the seal.

    Attributes:
        store: The store, which the worker may share with a former owner.
        log: The slots of each phase, as this worker reads them.
        fuse: The fuse. The commit of a seal is between the last two points.
        unit: The promise.
    """

    store: Any
    log: Sequence[Slots]
    fuse: Fuse = unarmed
    unit: Unit = UNIT
    name: str = "visits"
    seq: int = 0
    snapshot: Snapshot = field(init=False)

    async def run(self) -> None:
        """Takes the data set over, and seals the phases that are not sealed yet."""
        self.snapshot = await self.store.acquire(self.name)
        self.seq = self.snapshot.seq
        for phase in range(self.snapshot.n_blocks + 1, len(self.log) + 1):
            await self.open(phase, self.log[phase - 1])

    async def open(self, phase: int, slots: Slots) -> None:
        rows = await self.reserve(phase, slots)
        await self.seal(slots, rows)

    async def reserve(self, phase: int, slots: Slots) -> Any:
        return await reserving.reserve(
            self.store,
            self.name,
            self.snapshot.token,
            phase=phase,
            digests=digests(slots),
            unit=self.unit,
            fuse=self.fuse,
        )

    async def seal(self, slots: Slots, rows: Any) -> None:
        """Commits a block that says how many rows of each person count."""
        self.fuse(CrashPoint.BEFORE_COMMIT)
        counted = sorted({who: int(c) for who, c in zip(slots, rows, strict=True) if c}.items())
        await self.commit(seal=repr(counted).encode())
        self.fuse(CrashPoint.AFTER_COMMIT)

    async def commit(self, **changes: Any) -> None:
        await self.store.commit(
            Transition(
                dataset=self.name,
                token=self.snapshot.token,
                seq=self.seq,
                head=GENESIS,
                new_head=GENESIS,
                definition=b"defined" if self.seq == 0 else None,
                **changes,
            )
        )
        self.seq += 1


async def sealed(store: Any, name: str = "visits") -> list[dict[int, int]]:
    """The rows of each person that count in each sealed block."""
    return [dict(eval(block)) for block in await blocks_of(store, name)]


def squares(blocks: Sequence[dict[int, int]]) -> Counter[int]:
    found: Counter[int] = Counter()
    for block in blocks:
        found.update({who: rows * rows for who, rows in block.items()})
    return found


async def kept(store: Any, who: Sequence[int], name: str = "visits") -> dict[int, int]:
    """The units that the store says persons have used in the sealed phases."""
    taken = await store.acquire(name)
    found = await store.units(name, taken.token, taken.n_blocks + 1, digests(who))
    return dict(zip(who, found.tolist(), strict=True))


def dies_at(place: int) -> Fuse:
    """A fuse that blows at the n-th point, from 0."""
    met = count()

    def fuse(_: CrashPoint) -> None:
        if next(met) == place:
            raise Crash

    return fuse


# What is reserved -------------------------------------------------------------------------------


async def test_persons_count_until_their_units_are_used(backend: Any) -> None:
    store = backend.store()
    log = [(1, 2, 0), (1, 1, 2), (2, 2, 2, 0), (1, 1, 2), (1, 3, 3, 3)]
    await Worker(store, log).run()
    assert await sealed(store) == [{1: 1, 2: 1}, {1: 1, 2: 1}, {2: 1}, {1: 1, 2: 1}, {1: 1, 3: 2}]
    assert await kept(store, [1, 2, 3, 4]) == {1: 4, 2: 4, 3: 4, 4: 0}


async def test_the_calls_and_their_sizes_depend_on_the_number_of_slots_alone() -> None:
    class Listening(LocalStore):
        def __init__(self) -> None:
            super().__init__()
            self.calls: list[tuple[str, int]] = []

        async def units(self, dataset: str, token: int, phase: int, digests: Any) -> Any:
            self.calls.append(("units", len(digests)))
            return await super().units(dataset, token, phase, digests)

        async def reserve(self, reservation: Reservation) -> None:
            self.calls.append(("reserve", len(reservation.digests)))
            await super().reserve(reservation)

    n_slots, heard = 2 * MOST_PERSONS + 7, []
    for log in ([(0,) * n_slots], [(5,) * n_slots], [tuple(range(n_slots))]):
        store = Listening()
        await Worker(store, [*log, *log]).run()
        heard.append(store.calls)
    assert heard[0] == heard[1] == heard[2]
    sizes = [MOST_PERSONS, MOST_PERSONS, 7]
    assert heard[0] == [(call, n) for call in ("units", "reserve") for n in sizes] * 2


async def test_a_store_that_is_away_for_a_moment_is_asked_again() -> None:
    class Shaky(LocalStore):
        """Does what it is asked, and loses every other reply."""

        lost = 0

        async def units(self, *asked: Any) -> Any:
            found = await super().units(*asked)
            self.lose()
            return found

        async def reserve(self, reservation: Reservation) -> None:
            await super().reserve(reservation)
            self.lose()

        def lose(self) -> None:
            self.lost += 1
            if self.lost % 2:
                raise StoreUnavailable("away")

    store = Shaky()
    await Worker(store, [(1, 1, 2), (1, 2)]).run()
    assert store.lost == 8
    assert await sealed(store) == [{1: 2, 2: 1}, {2: 1}]


# Crashes ----------------------------------------------------------------------------------------

LOG = [(1, 1, 2, 0), (2, 3, 3), (1, 2, 3)]


async def test_a_crash_at_any_point_changes_no_block_and_loses_no_unit(backend: Any) -> None:
    alone = LocalStore()
    await Worker(alone, LOG).run()
    expected = await sealed(alone)
    deaths = 0
    for place in count():
        store, name = backend.store(), f"visits-{place}"
        try:
            await Worker(store, LOG, fuse=dies_at(place), name=name).run()
            break
        except Crash:
            deaths += 1
        again = Worker(backend.store(), LOG, name=name)
        await again.run()
        assert await sealed(store, name) == expected
        found = squares(expected)
        assert await kept(store, list(found), name) == found
    assert deaths == 4 * len(LOG)


async def test_nor_do_two_crashes_where_a_reservation_takes_several_calls(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(reserving, "MOST_PERSONS", 2)
    alone = LocalStore()
    await Worker(alone, LOG).run()
    deaths = 0
    for first, second in product(range(20), range(7)):
        store = LocalStore()
        for place in (first, second, -1):
            try:
                await Worker(store, LOG, fuse=dies_at(place)).run()
            except Crash:
                deaths += 1
        blocks = await sealed(store)
        assert blocks == await sealed(alone)
        assert await kept(store, [1, 2, 3]) == squares(blocks)
    assert deaths > 200


async def test_other_rows_in_the_phase_after_a_crash_cost_units_and_never_use_one_twice() -> None:
    store = LocalStore()
    with pytest.raises(Crash):
        await Worker(store, [(1, 1, 2)], fuse=dies_at(2)).run()
    await Worker(store, [(1, 3, 3), (1, 1, 2, 2, 3)]).run()
    assert await sealed(store) == [{1: 1, 3: 2}, {2: 1}]
    assert await kept(store, [1, 2, 3]) == {1: 4, 2: 2, 3: 4}


@pytest.mark.parametrize("place", [0, 1, 100, 261])
async def test_the_persons_of_a_retired_data_set_are_erased_whoever_dies_of_it(
    backend: Any, place: int
) -> None:
    store = backend.store()
    worker = Worker(store, LOG)
    await worker.run()
    await worker.commit(erase=True)
    token, died = worker.snapshot.token, False
    try:
        await reserving.forget(store, "visits", token, fuse=dies_at(place))
    except Crash:
        died = True
        token = (await store.acquire("visits")).token
        await reserving.forget(store, "visits", token)
    assert died == (backend.url is not None)
    assert b":persons:" not in str(backend.dump()).encode()
    if backend.url is None:
        assert store._datasets["visits"].persons == {}


async def test_the_persons_of_a_data_set_that_serves_are_not_erased(backend: Any) -> None:
    worker = Worker(backend.store(), LOG)
    await worker.run()
    with pytest.raises(Conflict, match="not retired"):
        await reserving.forget(worker.store, "visits", worker.snapshot.token)
    assert await kept(worker.store, [1, 2, 3]) == squares(await sealed(worker.store))


# Two owners -------------------------------------------------------------------------------------


class Stepwise:
    """A store in which another worker may do something before every call."""

    def __init__(self, store: LocalStore) -> None:
        self._store = store

    def __getattr__(self, name: str) -> Any:
        async def call(*arguments: Any) -> Any:
            await _pause()
            return await getattr(self._store, name)(*arguments)

        return call


@types.coroutine
def _pause() -> Generator[None, None, None]:
    yield


def step(run: Coroutine[Any, Any, None]) -> bool:
    """Does the next call of a worker; returns whether it goes on."""
    try:
        run.send(None)
    except (StopIteration, Fenced, Conflict):
        return False
    return True


def done(run: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        run.send(None)
    except StopIteration as stop:
        return stop.value
    raise AssertionError("it waits")


def interleavings(play: Callable[[Callable[[], int]], None]) -> int:
    """Plays every sequence of choices between 0 and 1; returns how many there are."""
    prefix: list[int] = []
    for played in count(1):
        taken: list[int] = []

        def choose(prefix: list[int] = prefix, taken: list[int] = taken) -> int:
            taken.append(prefix[len(taken)] if len(taken) < len(prefix) else 0)
            return taken[-1]

        play(choose)
        while taken and taken[-1] == 1:
            taken.pop()
        if not taken:
            return played
        prefix = [*taken[:-1], 1]
    raise AssertionError


Log = tuple[Slots, ...]


def complaints(
    logs: tuple[Log, Log],
    make_store: Callable[[], LocalStore] = LocalStore,
    make_worker: Callable[..., Worker] = Worker,
) -> tuple[int, set[str]]:
    """Lets two workers take a data set over at any time; returns the runs, and what is wrong in any."""
    said: set[str] = set()
    alone = LocalStore()
    done(Worker(alone, logs[0]).run())
    expected = done(sealed(alone))

    def play(choose: Callable[[], int]) -> None:
        store = make_store()
        runs = {at: make_worker(Stepwise(store), log).run() for at, log in enumerate(logs)}
        for run in runs.values():
            step(run)  # up to the first call
        owner: int | None = None
        taken: set[int] = set()
        while runs:
            at = choose() if len(runs) == 2 else next(iter(runs))
            before = copy.deepcopy(store._datasets)
            if at not in taken:
                owner = at
                taken.add(at)
            lives = step(runs[at])
            if at != owner and store._datasets != before:
                said.add("a former owner changed something")
            if not lives:
                del runs[at]
        done(make_worker(store, logs[1]).run())
        blocks = done(sealed(store))
        used = squares(blocks)
        units = done(kept(store, [1, 2]))
        if max(used.values(), default=0) > UNIT.squares:
            said.add("a person used more than a lifetime")
        if any(units[who] < used[who] for who in units):
            said.add("units were forgotten")
        if logs[0] == logs[1] and blocks != expected:
            said.add("another block was sealed")
        if logs[0] == logs[1] and units != {who: used[who] for who in units}:
            said.add("units were lost")

    return interleavings(play), said


SOME: tuple[Slots, ...] = ((1, 2), (1, 1))
LOGS: list[Log] = list(product(SOME, repeat=3))


@pytest.mark.slow
def test_no_interleaving_of_two_owners_lets_a_unit_be_used_twice() -> None:
    played = 0
    for logs in product(LOGS, LOGS):
        runs, said = complaints(logs)
        assert said == set(), logs
        played += runs
    assert played > 5_000


class Adding(LocalStore):
    """Adds units where absolute numbers are promised."""

    async def reserve(self, reservation: Reservation) -> None:
        held = self._before_seal(reservation.dataset, reservation.token, reservation.phase)
        rows = dict(zip(map(bytes, reservation.digests), reservation.rows.tolist(), strict=True))
        for digest, more in rows.items():
            known = held.persons.get(digest, _Used(0, 0, 0))
            held.persons[digest] = _Used(known.before + known.rows**2, reservation.phase, more)


class WithoutToken(LocalStore):
    """Lets a former owner reserve."""

    async def reserve(self, reservation: Reservation) -> None:
        token = self._datasets[reservation.dataset].token
        await super().reserve(replace(reservation, token=token))


class AnyPhase(LocalStore):
    """Takes a reservation for a phase that is sealed."""

    def _before_seal(self, dataset: str, token: int, phase: int) -> Any:
        return self._owned(dataset, token)


class SealsFirst(Worker):
    """Reserves after the seal."""

    async def open(self, phase: int, slots: Slots) -> None:
        token = self.snapshot.token
        before = await self.store.units(self.name, token, phase, digests(slots))
        rows = allowances_of_slots(digests(slots), before, self.unit)
        await self.seal(slots, rows)
        await self.store.reserve(
            Reservation(
                dataset=self.name,
                token=token,
                phase=phase,
                digests=digests(slots),
                before=before,
                rows=rows,
            )
        )


BROKEN: dict[str, tuple[type[LocalStore], type[Worker], str]] = {
    "increments in place of absolute numbers": (Adding, Worker, "units were lost"),
    "no token": (WithoutToken, Worker, "a former owner changed something"),
    "reserved after the seal": (AnyPhase, SealsFirst, "a person used more than a lifetime"),
    "reserved after the seal, and forgotten": (AnyPhase, SealsFirst, "units were forgotten"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_protocols_are_caught(name: str) -> None:
    make_store, make_worker, complaint = BROKEN[name]
    said: set[str] = set()
    for logs in product(LOGS, LOGS):
        said |= complaints(logs, make_store, make_worker)[1]
        if complaint in said:
            return
    raise AssertionError(f"nothing but {said}")


async def test_a_store_takes_no_reservation_after_the_seal(backend: Any) -> None:
    with pytest.raises(Conflict, match="phase 1 is not the one that is sealed next"):
        await SealsFirst(backend.store(), LOG).run()
