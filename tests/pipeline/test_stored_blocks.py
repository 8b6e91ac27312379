"""Blocks are read when a look needs them: the same answers, a bounded memory, and never another block."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import pytest
from stream_dp.pipeline.rows.block_cache import BlockCache, StoredBlocks

from stream_dp.core.rows.blocks import Block
from stream_dp.core.rows.universe import Category, Universe
from stream_dp.errors import CorruptState, Fenced, StoreUnavailable
from stream_dp.pipeline.rows.private_values import Keeper
from stream_dp.state.private_names import Named
from tests.pipeline.scenarios import AA, LATE, asks, flights, phase
from tests.pipeline.world import World
from tests.view import MemoryView

PAGES = Universe((Category("page", ("a", "b")),))


def block(n_rows: int = 2) -> Block:
    return Block.seal(PAGES, PAGES.encode_rows([{"page": "a"}] * n_rows))


async def never(index: int) -> bytes:
    raise AssertionError(f"block {index} is not to be read from the store")


def owner(cache: BlockCache, fetch: Any = never) -> StoredBlocks:
    return StoredBlocks(cache, PAGES, fetch, lambda *_: None, list)


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
    other.keep(3, block())
    assert [*cache._blocks] == [(one, 2)], "a look that went on leaves nothing behind"


def test_no_repr_shows_a_row() -> None:
    cache = BlockCache()
    cache.put(owner(cache), 0, block(31_337))
    assert repr(cache) == "BlockCache(1 blocks)"
    assert "31337" not in repr(owner(cache))


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


async def filled(world: World) -> None:
    """Three phases, each of another size, and no worker."""
    await world.run(rounds=(flights, phase, phase, phase))


@pytest.mark.parametrize("redis", ["there", "away", "empty"])
async def test_answers_do_not_depend_on_what_is_in_memory(
    make_world: Callable[..., World], redis: str
) -> None:
    seen = []
    for most_bytes in (1, 1 << 20):
        world = make_world()
        await filled(world)
        world.view_away = redis == "away"
        if redis == "empty":
            world.view = MemoryView()
        cache = BlockCache(most_bytes)
        process = await world.owner(cache=cache)
        assert kept(cache) == [], "a take-over reads no rows"
        for name, where in (("one", AA), ("two", LATE)):
            asks(name, where)(world)
            await process.run()
        assert kept(cache) == ([2] if most_bytes == 1 else [0, 1, 2])
        n_read = 6 if most_bytes == 1 else 3
        if redis == "there":
            assert (len(process.view.read), len(process.kept.fetched)) == (n_read, 0)
        elif redis == "away":
            assert len(process.kept.fetched) == n_read
        else:
            assert 3 <= len(process.kept.fetched) <= n_read
        seen.append([world.answer(name) for name in ("one", "two")])
        await process.settled()
        await process.kill()
        assert world.complaints() == []
    assert seen[0] == seen[1]


async def test_a_block_is_read_before_its_commit_where_it_has_no_room(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looks at a phase that opens may come after other blocks were read."""
    monkeypatch.setattr(BlockCache, "get", lambda *_: None)
    await world.run(
        rounds=(lambda w: flights(w, mechanism={"base_share": 0.05}), phase, phase, asks("one"))
    )
    assert world.answer("one")["status"] == "answered"
    assert world.complaints() == []


async def test_another_block_than_the_one_asked_for_is_noticed(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(world)
    first, second, _ = world.held("flights").named("block ").values()
    find = Keeper.find

    async def mistaken(self: Keeper, dataset: str, named: Named) -> bytes | None:
        swapped = {first.name: second, second.name: first}
        return await find(self, dataset, swapped.get(named.name, named))

    monkeypatch.setattr(Keeper, "find", mistaken)
    process = await world.owner()
    asks("one")(world)
    with pytest.raises(CorruptState, match="flights: block 0 is not the one that its transcript"):
        await process.run()
    assert world.released("answers") == []
    assert min(rho for rho, _ in world.held("flights").spent) > 0, "the charge stays"


@pytest.mark.parametrize("knows", [False, True])
async def test_a_former_owner_that_misses_rows_which_its_successor_erased_gives_nothing_up(
    world: Any, knows: bool
) -> None:
    """It had charged its look before, and is followed before it reads."""
    await world.run(rounds=(lambda w: flights(w, retention={"phases": 1}), phase))
    former, heir = world.process(cache=BlockCache(1)), world.process()
    await former.assign()
    following = former.worker.following
    kept_in_redis, was_followed = following.kept, list[int]()

    async def meanwhile(*asked: Any) -> bytes | None:
        if not was_followed:
            was_followed.append(1)
            await heir.assign()
            phase(world)
            await heir.run()
            await heir.settled()
            if knows:
                former.worker.revoked(range(world.partitions))
        found: bytes | None = await kept_in_redis(*asked)
        return found

    following.kept = meanwhile
    asks("one")(world)
    with contextlib.nullcontext() if knows else pytest.raises(Fenced):
        await former.run()
    assert was_followed
    await former.kill()
    await heir.run()
    await heir.settled()
    assert world.events("rows_lost") == []
    assert world.answer("one")["reason"]["code"] == "rows_erased"
    assert world.complaints() == []


async def test_a_worker_keeps_no_rows_of_partitions_that_it_has_let_go_of(world: Any) -> None:
    await filled(world)
    cache = BlockCache()
    process = await world.owner(cache=cache)
    asks("one")(world)
    await process.run()
    assert kept(cache) == [0, 1, 2]
    await process.assign([])
    asks("two")(world)
    await process.run()
    assert kept(cache) == []


async def test_a_retired_data_set_leaves_no_rows_in_memory(world: Any) -> None:
    await filled(world)
    cache = BlockCache()
    process = await world.owner(cache=cache)
    asks("one")(world)
    await process.run()
    assert kept(cache) == [0, 1, 2]
    world.produce("datasets", None, key="flights")
    await process.run()
    assert process.worker.datasets["flights"].retired
    assert kept(cache) == []
    assert world.complaints() == []
