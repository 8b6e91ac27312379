"""A loss of the store is rehearsed next to live workers: it changes nothing, and finds each difference."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest

from stream_dp.pipeline.healing import Healing
from stream_dp.pipeline.local_logs import LocalKept, LocalLog
from stream_dp.pipeline.rehearsing import Rehearsal, Rehearsed
from stream_dp.state.local import LocalStore
from stream_dp.state.looking import Seen
from stream_dp.state.store import ORIGIN
from tests.pipeline.fakes import FakeRows
from tests.pipeline.scenarios import (
    AA,
    ERASED,
    GATED,
    LIVES,
    PERSONS,
    ROTATED,
    ROUNDS,
    RUNS,
    STANDING,
)
from tests.pipeline.world import World


def rehearsal(world: World, store: Any = None) -> Rehearsal:
    log, kept = LocalLog(world.partitions), LocalKept()
    log.entries = world.journal
    kept.values = world.kept
    return Rehearsal(
        log,
        FakeRows(world),
        kept,
        world.store if store is None else store,
        key_file=world.key_file,
        progress=lambda *_: None,
    )


async def rehearsed(world: World, store: Any = None) -> dict[str, Rehearsed]:
    return {found.dataset: found async for found in rehearsal(world, store)()}


def everything(world: World) -> Any:
    return copy.deepcopy((world.journal, world.kept, world.store.__dict__))


@pytest.mark.parametrize("rounds", [ROUNDS, RUNS, GATED, PERSONS, LIVES, ERASED, STANDING, ROTATED])
async def test_what_is_built_from_the_topics_is_what_the_store_has(world: Any, rounds: Any) -> None:
    await world.run(rounds=rounds)
    before = everything(world)
    found = await rehearsed(world)
    assert found.keys() == {name for name, held in world.store._datasets.items() if held.seq}
    for name, one in found.items():
        assert one.equal, one
        seq = world.store._datasets[name].seq
        # Where answers rotate, it begins with a checkpoint.
        assert one.commits < seq if rounds is ROTATED else one.commits == seq
        assert one.bytes_read > 0
        assert one.ahead == 0
    assert everything(world) == before


async def test_a_journal_that_is_cut_meanwhile_is_no_fault_of_a_data_set(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.run(rounds=ROUNDS)
    rehearsing, healing = rehearsal(world), Healing.__call__

    async def cut(self: Healing, journal: Any, partition: int, entered: Any) -> None:
        await rehearsing._log.forget(partition, entered.expected)
        await healing(self, journal, partition, entered)

    monkeypatch.setattr(Healing, "__call__", cut)
    problems = {found.problem async for found in rehearsing()}
    assert "the journal was cut meanwhile; rehearse again" in problems


@pytest.mark.parametrize("rounds", [ROUNDS, ERASED], ids=["all", "erased"])
async def test_it_is_compared_at_the_place_of_the_store_wherever_a_worker_died(
    make_world: Callable[..., Any], rounds: Any
) -> None:
    ahead = 0
    for place in range(3, 10_000, 29):
        world = make_world(seed=place)
        process = world.process(world.Fuse(place))
        try:
            await process.assign()
            for produce in rounds:
                produce(world)
                await process.run()
        except world.Crash:
            await process.kill()
        else:
            await process.kill()
            break
        before = everything(world)
        found = await rehearsed(world)
        assert everything(world) == before
        assert [one for one in found.values() if not one.equal] == []
        ahead += sum(one.ahead for one in found.values())
    assert ahead > 0, "no worker died between the store and the journal"


def _more(held: Any, part: str) -> None:
    value = getattr(held, part)
    if isinstance(value, bytes):
        setattr(held, part, bytes([value[0] ^ 1]) + value[1:])
    elif isinstance(value, dict):
        key = next(iter(value))
        value[key] = value[key] + (1 if isinstance(value[key], int) else value[key][:1])
    elif part == "spent":
        value[0] = (value[0][0] + 1, value[0][1])
    elif part == "transcript":
        value.append(b"more")
    else:
        value[0] += b"more"


@pytest.mark.parametrize(
    ("part", "named"),
    [
        ("definition", "definition"),
        ("meta", "facts"),
        ("cursor", "cursor"),
        ("answers", "answers"),
        ("batches", "batches"),
        ("pending", "waiting rows"),
        ("blocks", "blocks"),
        ("spent", "spent"),
        ("transcript", "transcript"),
        ("verified", "verified answers"),
        ("ledger", "ledger"),
        ("head", "head of the ledger"),
        ("trail", "history"),
    ],
)
async def test_each_part_that_differs_is_named(first: Any, part: str, named: str) -> None:
    world = first
    world.ask("flights", "q1", AA)
    world.cells("flights", "second")
    world.batch("flights", "third", rows=[{"carrier": "AA", "delay": 3}])
    process = world.process()
    await process.assign()
    await process.run()
    await process.kill()
    held = world.store._datasets["flights"]
    if part == "verified" and not held.verified:
        held.verified[b"key"] = b"answer"
    else:
        _more(held, part)
    (found,) = (await rehearsed(world)).values()
    assert not found.equal
    assert list(found.differs) == [named]
    assert list(found.phases) == ([1] if part == "blocks" else [])
    assert not found.problem


@pytest.mark.parametrize("part", ["answers", "batches"])
async def test_an_id_that_the_journal_does_not_have_is_found(first: Any, part: str) -> None:
    getattr(first.store._datasets["flights"], part)["forged"] = b"content"
    (found,) = (await rehearsed(first)).values()
    assert list(found.differs) == [part]


async def test_a_store_that_went_back_differs(first: Any, process: Any) -> None:
    older = copy.deepcopy(first.store)
    first.ask("flights", "q1", AA)
    await process.run()
    (found,) = (await rehearsed(first, older)).values()
    assert {"commits", "history", "answers"} <= {*found.differs}
    assert found.commits == first.store._datasets["flights"].seq
    (found,) = (await rehearsed(first, LocalStore())).values()
    assert "commits" in found.differs


async def test_blocks_that_are_nowhere_are_named(first: Any, process: Any) -> None:
    first.cells("flights", "second")
    await process.run()
    first.kept.clear()
    (found,) = (await rehearsed(first)).values()
    assert found.equal, "they are sealed again from the batches"
    first.expired |= {record.record_id for record in first.log["in.batches:0"]}
    first.expired |= {record.record_id for record in first.log["in.batches:1"]}
    (found,) = (await rehearsed(first)).values()
    assert not found.equal
    assert list(found.differs) == ["blocks"]
    assert list(found.phases) == [1, 2]


async def test_a_journal_that_lacks_a_data_set_is_a_problem(first: Any) -> None:
    first.journal[:] = [[] for _ in first.journal]
    first.store._datasets["flights"].outbox.clear()
    (found,) = (await rehearsed(first)).values()
    assert "the journal has nothing" in found.problem


class Moving:
    """A store of which every look is followed by more commits."""

    def __init__(self, world: World, process: Any, *, times: int) -> None:
        self._world = world
        self._process = process
        self._left = times
        self.looks = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.store, name)

    async def look(self, dataset: str) -> Seen | None:
        seen = await self._world.store.look(dataset)
        self.looks += 1
        if self._left:
            self._left -= 1
            self._world.ask(dataset, f"more {self._left}", AA)
            self._world.cells(dataset, f"more {self._left}")
            await self._process.run()
        return seen


async def test_a_data_set_that_moves_on_is_compared_where_it_was(first: Any, process: Any) -> None:
    store = Moving(first, process, times=1)
    before = first.store._datasets["flights"].seq
    (found,) = (await rehearsed(first, store)).values()
    assert first.store._datasets["flights"].seq > before
    assert found.equal, found
    assert (found.commits, store.looks) == (before, 1)


async def test_a_data_set_that_never_stands_still_is_no_good_news(first: Any) -> None:
    class Restless(Moving):
        async def look(self, dataset: str) -> Seen | None:
            return None

    (found,) = (await rehearsed(first, Restless(first, None, times=0))).values()
    assert not found.equal
    assert "moves on too fast" in found.problem


async def test_a_difference_counts_only_where_the_store_stands_still(
    first: Any, process: Any
) -> None:
    """Here another owner builds the data set again after the first look, and takes the difference away."""
    right = copy.deepcopy(first.store._datasets["flights"])
    first.store._datasets["flights"].trail = ORIGIN[:-1] + b"\1"

    class Healed(Moving):
        async def look(self, dataset: str) -> Seen | None:
            seen = await self._world.store.look(dataset)
            self._world.store._datasets[dataset] = right
            return seen

    (found,) = (await rehearsed(first, Healed(first, process, times=0))).values()
    assert found.equal
