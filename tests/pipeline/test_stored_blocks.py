"""Blocks are read when a look needs them: the same answers, a bounded memory, and never another block."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import numpy as np
import pytest

from stream_dp.core.blocks import Block
from stream_dp.core.universe import Category, Universe
from stream_dp.errors import CorruptState, Fenced, StoreUnavailable
from stream_dp.pipeline import retrying
from stream_dp.pipeline.stored_blocks import BlockCache, StoredBlocks
from stream_dp.state.local import LocalStore
from tests.pipeline.world import World

PAGES = Universe((Category("page", ("a", "b")),))
AA = {"attribute": "carrier", "eq": "AA"}
LATE = {"attribute": "delay", "ge": 10}


def block(n_rows: int = 2) -> Block:
    return Block.seal(PAGES, PAGES.encode_rows([{"page": "a"}] * n_rows))


async def never(index: int) -> bytes:
    raise AssertionError(f"block {index} is not to be read from the store")


def owner(cache: BlockCache, fetch: Any = never) -> StoredBlocks:
    return StoredBlocks(cache, fetch, lambda _, stored: Block.from_bytes(PAGES, stored))


def kept(cache: BlockCache) -> list[int]:
    return [index for _, index in cache._blocks]


# The cache --------------------------------------------------------------------------------------


def test_the_blocks_used_longest_ago_go_first_whoever_they_belong_to() -> None:
    sealed = block()
    cache = BlockCache(3 * sealed.most_bytes)
    one, other = owner(cache), owner(cache)
    for index in range(3):
        cache.put(one, index, sealed)
    assert cache.get(one, 0) is sealed
    cache.put(other, 7, sealed)
    assert kept(cache) == [2, 0, 7]
    assert cache.get(one, 1) is None
    assert cache.get(other, 0) is None, "it is of another data set"
    cache.put(one, 2, sealed)
    assert kept(cache) == [0, 7, 2], "nothing is counted twice"


def test_a_block_larger_than_the_bound_is_kept_alone_until_the_next_one() -> None:
    cache = BlockCache(1)
    one = owner(cache)
    for index in range(3):
        cache.put(one, index, block())
        assert kept(cache) == [index]


def test_what_is_kept_does_not_depend_on_what_the_rows_hold() -> None:
    alike = [{"page": "a"}] * 3
    mixed = [{"page": "a"}, {"page": "b"}, {"page": "c"}]
    kept_of = []
    for rows in (alike, mixed):
        sealed = Block.seal(PAGES, PAGES.encode_rows(rows))
        cache = BlockCache(2 * 27)  # 3 cells of a byte, each with a count
        for index in range(5):
            cache.put(owner(cache), index, sealed)
        kept_of.append(kept(cache))
    assert kept_of == [[3, 4], [3, 4]]


def test_blocks_that_are_erased_or_let_go_of_are_not_kept() -> None:
    cache = BlockCache()
    one, other = owner(cache), owner(cache)
    for index in range(3):
        cache.put(one, index, block())
        cache.put(other, index, block())
    one.erase(2)
    assert kept(cache) == [0, 1, 2, 2]
    other.forget()
    assert [*cache._blocks] == [(one, 2)]
    other.hold(3, block())
    other.stored()
    assert [*cache._blocks] == [(one, 2)], "a look that went on leaves nothing behind"


def test_no_repr_shows_a_row() -> None:
    cache = BlockCache()
    cache.put(owner(cache), 0, block(31_337))
    assert repr(cache) == "BlockCache(1 blocks)"
    assert "31337" not in repr(owner(cache))


async def test_a_sealed_block_is_not_read_from_the_store_before_it_is_there() -> None:
    read: list[int] = []
    sealed = block()

    async def fetch(index: int) -> bytes:
        read.append(index)
        return sealed.to_bytes()

    cache = BlockCache(1)
    one = owner(cache, fetch)
    one.hold(0, sealed)
    cache.put(owner(cache), 9, sealed)  # whatever else is read meanwhile
    async with one.readable():
        assert await asyncio.to_thread(one.read, 0) is sealed
        assert read == []
        one.stored()
        cache.put(owner(cache), 9, sealed)
        again = await asyncio.to_thread(one.read, 0)
        assert read == [0]
        assert np.array_equal(again.counts, sealed.counts)


async def test_a_look_that_is_given_up_reads_no_further_block() -> None:
    asked = asyncio.Event()

    async def fetch(index: int) -> bytes:
        asked.set()
        await asyncio.Event().wait()
        raise AssertionError

    one = owner(BlockCache(), fetch)
    ended: list[Exception] = []

    def look() -> None:
        for index in range(2):
            try:
                one.read(index)
            except (StoreUnavailable, CancelledError) as error:
                ended.append(error)

    async with one.readable():
        thread = asyncio.get_running_loop().run_in_executor(None, look)
        await asked.wait()
    await thread
    assert [type(error) for error in ended] == [CancelledError, StoreUnavailable]


# The worker -------------------------------------------------------------------------------------


class Reading(LocalStore):
    """A store that is away, or does what else a test wants, while a block is read."""

    def __init__(self) -> None:
        super().__init__()
        self.away = 0
        self.meanwhile: Callable[[], object] = lambda: None

    async def block(self, dataset: str, token: int, index: int) -> bytes:
        if self.away:
            self.away -= 1
            raise StoreUnavailable("away for a moment")
        self.meanwhile()
        return await super().block(dataset, token, index)


def define(world: World) -> None:
    world.define("flights", mechanism={"base_share": 0.0}, on_exhausted="refuse")


def phase(world: World) -> None:
    number = world.next_offset("batches", "flights")
    world.cells("flights", f"batch-{number}", n=1 + number)


def ask(query_id: str, where: Any = AA) -> Callable[[World], object]:
    return lambda world: world.ask("flights", query_id, where)


async def filled(world: World) -> Reading:
    """Three phases, each of another size, and no worker."""
    store = world.store = Reading()
    await world.run(rounds=(define, phase, phase, phase))
    return store


async def test_answers_do_not_depend_on_what_is_in_memory(make_world: Callable[..., World]) -> None:
    seen = []
    for most_bytes in (1, 1 << 20):
        world = make_world()
        await filled(world)
        cache = BlockCache(most_bytes)
        process = world.process(cache=cache)
        await process.assign()
        assert kept(cache) == [], "a take-over reads no rows"
        for name, where in (("one", AA), ("two", LATE)):
            ask(name, where)(world)
            await process.run()
        assert kept(cache) == ([2] if most_bytes == 1 else [0, 1, 2])
        assert len(process.store.blocks) == (6 if most_bytes == 1 else 3)
        seen.append([world.answer(name) for name in ("one", "two")])
        await process.kill()
        assert world.complaints() == []
    assert seen[0] == seen[1]


async def test_a_store_that_is_away_while_a_block_is_read_costs_nothing(world: Any) -> None:
    store = await filled(world)
    store.away = 5
    await world.run(rounds=(ask("one"),))
    assert world.answer("one")["status"] == "answered"
    assert store.away == 0
    assert world.complaints() == []


async def test_a_store_that_stays_away_ends_the_worker_and_the_charge_stays(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retrying, "_TRIES", 3)
    store = await filled(world)
    process = world.process()
    await process.assign()
    store.away = 10**6
    ask("one")(world)
    with pytest.raises(StoreUnavailable):
        await process.run()
    await process.kill()
    charged = list(store._datasets["flights"].spent)
    assert min(rho for rho, _ in charged) > 0
    store.away = 0
    await world.run(rounds=(lambda _: None,))
    assert world.answer("one")["status"] == "answered"
    spent = store._datasets["flights"].spent
    assert all(now[0] > before[0] for now, before in zip(spent, charged, strict=True))
    assert world.complaints() == []


async def test_another_block_than_the_one_asked_for_is_noticed(world: Any) -> None:
    store = await filled(world)
    held = store._datasets["flights"]
    held.blocks[0], held.blocks[1] = held.blocks[1], held.blocks[0]
    process = world.process()
    await process.assign()
    ask("one")(world)
    with pytest.raises(CorruptState, match="flights: block 0 is not the one that its transcript"):
        await process.run()
    await process.kill()
    assert min(rho for rho, _ in held.spent) > 0, "the charge stays"


async def test_a_former_owner_reads_no_block_of_its_successor(world: Any) -> None:
    store = await filled(world)
    process = world.process()
    await process.assign()
    dataset = process.worker.datasets["flights"]
    store.meanwhile = lambda: setattr(store._datasets["flights"], "token", dataset.token + 1)
    ask("one")(world)
    with pytest.raises(Fenced):
        await process.run()
    await process.kill()


async def test_a_worker_keeps_no_rows_of_partitions_that_it_has_let_go_of(world: Any) -> None:
    await filled(world)
    cache = BlockCache()
    process = world.process(cache=cache)
    await process.assign()
    ask("one")(world)
    await process.run()
    assert kept(cache) == [0, 1, 2]
    await process.assign([])
    ask("two")(world)
    await process.run()
    assert kept(cache) == []
    await process.kill()


async def test_a_retired_data_set_leaves_no_rows_in_memory(world: Any) -> None:
    await filled(world)
    cache = BlockCache()
    process = world.process(cache=cache)
    await process.assign()
    ask("one")(world)
    await process.run()
    assert kept(cache) == [0, 1, 2]
    world.produce("datasets", None, key="flights")
    await process.run()
    assert process.worker.datasets["flights"].retired
    assert kept(cache) == []
    await process.kill()
    assert world.complaints() == []
