"""Long looks are counted in processes: the same counts to the last bit, a bounded memory, no secret there."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from stream_dp.core.rows.blocks import Block, BlockCounts, Blocks, counted
from stream_dp.core.rows.universe import Category, Rows, Universe
from stream_dp.errors import CorruptState, StoreUnavailable
from stream_dp.pipeline.rows import block_cache
from stream_dp.pipeline.rows.block_cache import BlockCache, StoredBlocks
from stream_dp.pipeline.rows.counting_processes import CountingProcesses, counting_in
from tests.pipeline.scenarios import asks, flights, phase
from tests.pipeline.test_stored_blocks import kept
from tests.pipeline.world import World
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes share memory on Linux")

LETTERS = Universe(tuple(Category(name, ("a", "b", "c", "d")) for name in "xyz"))
N_ROWS = 1_000


def check(index: int, found: Block | BlockCounts) -> None:
    if found.n_rows != N_ROWS or found.of_persons:
        raise CorruptState(f"block {index} is another one")


def block(number: int, n_rows: int = N_ROWS) -> Block:
    noise = np.random.default_rng(number)
    codes = noise.integers(0, 4, (3, n_rows), dtype=np.uint8)
    return Block.seal(LETTERS, Rows(tuple(codes), None))


@pytest.fixture
def counting() -> Iterator[CountingProcesses]:
    found = CountingProcesses(2)
    yield found
    found.close()


@pytest.fixture(autouse=True)
def short_looks_are_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block_cache, "LONG", 1)


def owner(cache: BlockCache, stored: Callable[[int], bytes]) -> StoredBlocks:
    async def fetch(index: int) -> bytes:
        return stored(index)

    return StoredBlocks(cache, LETTERS, fetch, check, lambda: [N_ROWS] * 100)


async def tables(one: StoredBlocks, asked: list[tuple[tuple[int, ...], int]]) -> list[Any]:
    data = Blocks.elsewhere(LETTERS, [N_ROWS] * 100, 0, one.read, one.ahead)
    async with one.readable():
        return await asyncio.to_thread(lambda: list(data.tables(asked)))


ASKED: list[tuple[tuple[int, ...], int]] = [
    (attributes, index) for index in range(7) for attributes in ((0,), (0, 2), (), (0, 1, 2))
]


def exact(asked: list[tuple[tuple[int, ...], int]]) -> list[Any]:
    return [Blocks(LETTERS, [block(i)]).marginal(which, range(1))[0] for which, i in asked]


async def test_counts_are_the_same_to_the_last_bit(counting: CountingProcesses) -> None:
    cache = BlockCache(1, counting)
    found = await tables(owner(cache, lambda index: block(index).to_bytes()), ASKED)
    for mine, theirs in zip(found, exact(ASKED), strict=True):
        assert (mine.dtype, mine.shape) == (theirs.dtype, theirs.shape)
        assert np.array_equal(mine, theirs)
    assert len(counting._there) == 2, "both have counted"
    assert kept(cache) == [], "what has no room is not kept"


async def test_what_fits_into_memory_is_counted_in_the_thread(counting: CountingProcesses) -> None:
    most = Block.bytes_at_most(LETTERS, N_ROWS)
    assert most == 125 * 11 >= block(1).most_bytes
    for room, processes in ((7 * most, 0), (7 * most - 1, 2)):
        cache = BlockCache(room, counting)
        await tables(owner(cache, lambda index: block(index).to_bytes()), ASKED)
        assert len(counting._there) == processes


async def test_where_a_block_is_counted_does_not_depend_on_its_rows(
    counting: CountingProcesses,
) -> None:
    given: list[tuple[int, int]] = []
    give = counting.give

    def giving(number: int, universe: Universe, stored: bytes, asked: Any) -> None:
        given.append((number, len(stored)))
        give(number, universe, stored, asked)

    counting.give = giving  # type: ignore[method-assign]
    for same in (True, False):
        rows = Block.seal(LETTERS, Rows((np.zeros(N_ROWS, np.uint8),) * 3, None)).to_bytes()
        stored = [rows if same else block(index).to_bytes() for index in range(7)]
        await tables(owner(BlockCache(1, counting), stored.__getitem__), ASKED)
    assert given[:7] == given[7:]
    assert [number for number, _ in given[:7]] == [0, 1, 0, 1, 0, 1, 0]


async def test_a_block_that_is_in_memory_is_counted_in_the_thread(
    counting: CountingProcesses,
) -> None:
    cache = BlockCache(3 * block(0).most_bytes, counting)
    read: list[int] = []

    def stored(index: int) -> bytes:
        read.append(index)
        return block(index).to_bytes()

    one = owner(cache, stored)
    one.keep(6, block(6))
    cache.put(one, 2, block(2))
    found = await tables(one, ASKED)
    assert read == [0, 1, 3, 4, 5]
    assert all(map(np.array_equal, found, exact(ASKED)))


async def test_a_process_that_dies_loses_and_doubles_nothing(counting: CountingProcesses) -> None:
    died: list[int] = []

    def stored(index: int) -> bytes:
        for number, process in list(counting._there.items()):
            if index % 3 == 2 and number not in died:
                os.kill(process._child.pid, signal.SIGKILL)
                died.append(number)
        return block(index).to_bytes()

    one = owner(BlockCache(1, counting), stored)
    for _ in range(2):
        found = await tables(one, ASKED)
        assert all(map(np.array_equal, found, exact(ASKED)))
    assert len(died) == 2


async def test_a_process_that_cannot_start_is_done_without(
    counting: CountingProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    found = await tables(
        owner(BlockCache(1, counting), lambda index: block(index).to_bytes()), ASKED
    )
    assert all(map(np.array_equal, found, exact(ASKED)))
    assert counting._there == {}


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (block(0, 999).to_bytes(), "block 0 is another one"),
        (block(0).to_bytes()[:-1], r"^a stored block is cut short$"),
    ],
)
async def test_a_wrong_block_is_refused_and_the_next_look_counts_its_own(
    counting: CountingProcesses, stored: bytes, why: str
) -> None:
    with pytest.raises(CorruptState, match=why):
        await tables(owner(BlockCache(1, counting), lambda _: stored), ASKED)
    one = owner(BlockCache(1, counting), lambda index: block(index).to_bytes())
    found = await tables(one, ASKED)
    assert all(map(np.array_equal, found, exact(ASKED)))


async def test_a_look_that_is_given_up_leaves_nothing_to_the_next_one(
    counting: CountingProcesses,
) -> None:
    asked = asyncio.Event()

    async def fetch(index: int) -> bytes:
        if index == 3:
            asked.set()
            await asyncio.Event().wait()
        return block(index).to_bytes()

    one = owner(BlockCache(1, counting), lambda index: block(index).to_bytes())
    healthy, one._fetch = one._fetch, fetch
    data = Blocks.elsewhere(LETTERS, [N_ROWS] * 100, 0, one.read, one.ahead)
    async with one.readable():
        thread = asyncio.get_running_loop().run_in_executor(None, list, data.tables(ASKED))
        await asked.wait()
    with pytest.raises((StoreUnavailable, CancelledError, asyncio.CancelledError)):
        await thread
    one._fetch = healthy
    found = await tables(one, ASKED)
    assert all(map(np.array_equal, found, exact(ASKED)))


@pytest.mark.slow
async def test_a_look_over_many_blocks_holds_few_of_them(counting: CountingProcesses) -> None:
    """1,000 blocks of 64 kB, with room for 4: neither form holds more than some of them at a time."""
    universe = Universe(tuple(Category(f"a{n}", ("a", "b", "c", "d")) for n in range(56)))
    noise = np.random.default_rng(1)
    codes = tuple(noise.integers(0, 4, (56, N_ROWS), dtype=np.uint8))
    stored = Block.seal(universe, Rows(codes, None)).to_bytes()
    assert len(stored) > 60_000

    async def fetch(index: int) -> bytes:
        return bytes(bytearray(stored))  # of its own

    for pool in (None, counting):
        cache = BlockCache(4 * len(stored), pool)
        one = StoredBlocks(cache, universe, fetch, check, lambda: [N_ROWS] * 1_000)
        data = Blocks.elsewhere(universe, [N_ROWS] * 1_000, 0, one.read, one.ahead)
        asked: list[tuple[tuple[int, ...], int]] = [((0,), index) for index in range(1_000)]
        async with one.readable():
            tracemalloc.start()
            total = await asyncio.to_thread(sum, data.tables(asked), np.zeros((), np.int64))
            _, most = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert total.sum() == 1_000 * N_ROWS
        assert most < 12 * len(stored), f"{most / len(stored):.0f} blocks"


def test_a_process_knows_no_setting_and_has_no_connection(
    counting: CountingProcesses, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STREAM_DP_REDIS_URL", "redis://:password@127.0.0.1:6379/0")
    opened = os.open("/dev/null", os.O_RDONLY)
    os.set_inheritable(opened, True)
    counting.give(0, LETTERS, block(0).to_bytes(), [(0,)])
    assert counting.take(0) is not None
    pid = counting._there[0]._child.pid
    environment = Path(f"/proc/{pid}/environ").read_bytes()
    assert b"STREAM_DP" not in environment
    assert b"password" not in environment
    there = [str(one.readlink()) for one in Path(f"/proc/{pid}/fd").iterdir()]
    os.close(opened)
    assert not [name for name in there if name.startswith("socket:")]
    others = [name for name in there if "stream-dp-block" not in name]
    assert sorted(others) == sorted(["/dev/null", *[name for name in others if "pipe:" in name]])
    assert (len(others), len(there) - len(others)) == (3, 2), "mapping takes a second one"


async def test_a_process_ends_with_the_worker(counting: CountingProcesses) -> None:
    counting.give(0, LETTERS, block(0).to_bytes(), [(0,)])
    assert counting.take(0) is not None
    child = counting._there[0]._child
    assert child.stdin is not None
    child.stdin.close()
    assert child.wait(PATIENCE_S) == 0


def test_counting_a_stored_block_is_what_the_look_would_have_counted() -> None:
    found = counted(LETTERS, block(3).to_bytes(), [(1,), ()])
    assert (found.n_rows, found.of_persons) == (N_ROWS, False)
    assert all(map(np.array_equal, found.tables, exact([((1,), 3), ((), 3)])))
    assert "tables" not in repr(found)


def test_one_process_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert counting_in(1) is None
    assert [counting_in(n).processes for n in (None, 2, 6, 99)] == [4, 2, 6, 8]  # type: ignore[union-attr]
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    assert counting_in(None) is None


# The worker -------------------------------------------------------------------------------------


async def test_answers_do_not_depend_on_where_rows_are_counted(
    make_world: Callable[..., World], counting: CountingProcesses
) -> None:
    seen = []
    for pool in (None, counting):
        world = make_world()
        await world.run(rounds=(flights, phase, phase, phase))
        process = await world.owner(cache=BlockCache(1, pool))
        for name in ("one", "two"):
            asks(name)(world)
            await process.run()
        await process.kill()
        assert world.complaints() == []
        seen.append([world.answer(name) for name in ("one", "two")])
    assert seen[0] == seen[1]
    assert len(counting._there) == 2
