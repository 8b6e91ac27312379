"""Blocks that a look needs: read one by one, and kept in memory up to a bound.

Which blocks are read, and which are kept, follows from public facts alone: from the windows of queries, and
from the sizes that blocks may have at most. So does where they are counted: a look at more than the memory
has room for would find nothing in it the next time, so its blocks pass by, and other processes count them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import threading
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from operator import itemgetter
from typing import Any, Final

from stream_dp.core.rows.blocks import Block, BlockCounts
from stream_dp.core.rows.universe import Counts, Universe
from stream_dp.errors import StoreUnavailable
from stream_dp.pipeline.rows.counting_processes import CountingProcesses
from stream_dp.settings import BLOCK_CACHE_MB

_log = logging.getLogger(__name__)

_GIVEN_UP = "nobody waits for this look any more, so it reads no further block"

LONG: Final = 2**28
"""The bytes of blocks from which on a look saves more than it costs to start processes.

``benchmarks/look_processes.py`` measures both: half a second to start them, and a third of the three
seconds that a look at this many bytes takes.
"""


class BlockCache:
    """The blocks that were used last, of all data sets of a worker. Threads may share it.

    A block counts with the most memory that a block of its public size can take. The one used last stays
    even if it alone is larger than the bound, since a look may read it several times.

    Args:
        most_bytes: The bound.
        counting: The processes that count what has no room. None counts it in the thread of the look.

    Attributes:
        turn: The turn to look. The time that a look of one data set takes is not to show in those of others.
    """

    def __init__(
        self, most_bytes: int = BLOCK_CACHE_MB << 20, counting: CountingProcesses | None = None
    ) -> None:
        self.turn = asyncio.Lock()
        self.counting = counting
        self.most_bytes = most_bytes
        self._n_bytes = 0
        self._blocks: OrderedDict[tuple[StoredBlocks, int], Block] = OrderedDict()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"BlockCache({len(self._blocks)} blocks)"

    def get(self, owner: StoredBlocks, index: int) -> Block | None:
        """Returns a block of a data set, which counts as used now. None if it is not kept."""
        with self._lock:
            block = self._blocks.get((owner, index))
            if block is not None:
                self._blocks.move_to_end((owner, index))
            return block

    def put(self, owner: StoredBlocks, index: int, block: Block) -> None:
        """Keeps a block, and drops those that were used longest ago where there is no room."""
        with self._lock:
            self._drop((owner, index))
            self._blocks[owner, index] = block
            self._n_bytes += block.most_bytes
            while self._n_bytes > self.most_bytes and len(self._blocks) > 1:
                self._drop(next(iter(self._blocks)))

    def forget(self, owner: StoredBlocks, before: int | None = None) -> None:
        """Drops the blocks of a data set: all, or those before an index."""
        with self._lock:
            for key in [key for key in self._blocks if key[0] is owner]:
                if before is None or key[1] < before:
                    self._drop(key)

    def _drop(self, key: tuple[StoredBlocks, int]) -> None:
        dropped = self._blocks.pop(key, None)
        if dropped is not None:
            self._n_bytes -= dropped.most_bytes


@dataclass(eq=False, repr=False)
class StoredBlocks:
    """The sealed blocks of one data set, as a look reads them in its thread.

    Attributes:
        _cache: The cache that the data sets of the worker share.
        _universe: The finite set of possible rows.
        _fetch: Returns the stored bytes of a block, by its absolute index. It is called on the event loop.
        _check: Raises CorruptState where what was found under an index is another block, or counts of one.
        _sizes: Returns the number of rows of each block, which is public.
    """

    _cache: BlockCache
    _universe: Universe
    _fetch: Callable[[int], Awaitable[bytes]]
    _check: Callable[[int, Block | BlockCounts], None]
    _sizes: Callable[[], Sequence[int]]
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _under_way: asyncio.Task[Any] | None = field(default=None, init=False)
    _forgotten: bool = field(default=False, init=False)

    @contextlib.asynccontextmanager
    async def readable(self) -> AsyncIterator[None]:
        """Lets a thread ``read`` while the caller, on the event loop, waits for it. One look at a time does.

        When the caller is cancelled, the thread gets no further block.
        """
        async with self._cache.turn:
            self._loop = asyncio.get_running_loop()
            try:
                yield
            finally:
                self._loop = None
                if self._under_way is not None:
                    self._under_way.cancel()

    def read(self, index: int) -> Block:
        """Returns a block. It is called in a thread of its own, which may wait for the store.

        Raises:
            StoreError: It cannot be read.
            CorruptState: What is stored is not this block.
        """
        block = self._cache.get(self, index)
        if block is None:
            # Not on the event loop: how long decoding takes is not to show in what others wait for.
            block = Block.from_bytes(self._universe, self._fetched(index))
            self._check(index, block)
            self.keep(index, block)
        return block

    def ahead(self, asked: Sequence[tuple[tuple[int, ...], int]]) -> Iterator[Counts | None]:
        """Yields the counts of tables of blocks, in order; None for those that the caller is to count.

        It is called in a thread of its own, like ``read``. Blocks follow each other to the processes in turn,
        and as many are under way as there are processes.

        Raises:
            StoreError: A block cannot be read.
            CorruptState: What is stored is not this block.
        """
        counting = self._cache.counting
        if counting is None or not self._is_long(asked):
            yield from [None] * len(asked)
            return
        under_way: deque[tuple[int | None, int, int]] = deque()  # process, block, number of tables
        turns = itertools.cycle(range(counting.processes))
        try:
            for index, group in groupby(asked, key=itemgetter(1)):
                tables = [attributes for attributes, _ in group]
                process = None
                if self._cache.get(self, index) is None:
                    stored, process = self._fetched(index), next(turns)
                    while any(process == busy for busy, _, _ in under_way):
                        yield from self._counts(counting, *under_way.popleft())
                    counting.give(process, self._universe, stored, tables)
                under_way.append((process, index, len(tables)))
            while under_way:
                yield from self._counts(counting, *under_way.popleft())
        finally:
            for process, _, _ in under_way:
                if process is not None:
                    counting.drop(process)

    def _counts(
        self, counting: CountingProcesses, process: int | None, index: int, n_tables: int
    ) -> Iterator[Counts | None]:
        """What a process has counted of a block; None for each table where it is to be counted here."""
        found: BlockCounts | None = None
        if process is not None:
            found = counting.take(process)
            if found is None:
                _log.warning("a block that another process did not count is counted here")
        if found is None:
            yield from [None] * n_tables
        else:
            self._check(index, found)
            yield from found.tables

    def _is_long(self, asked: Sequence[tuple[tuple[int, ...], int]]) -> bool:
        """Whether blocks have no room in memory together, and are large enough to be counted elsewhere."""
        sizes, indices = self._sizes(), {index for _, index in asked}
        n_bytes = sum(Block.bytes_at_most(self._universe, sizes[index]) for index in indices)
        return n_bytes > max(self._cache.most_bytes, LONG)

    def _fetched(self, index: int) -> bytes:
        loop = self._loop
        if loop is None:
            raise StoreUnavailable(_GIVEN_UP)
        return asyncio.run_coroutine_threadsafe(self._read_here(index), loop).result()

    async def _read_here(self, index: int) -> bytes:
        if self._loop is None:
            raise StoreUnavailable(_GIVEN_UP)
        self._under_way = asyncio.current_task()
        try:
            return await self._fetch(index)
        finally:
            self._under_way = None

    def keep(self, index: int, block: Block) -> None:
        """Keeps a block that was read or sealed."""
        self._cache.put(self, index, block)
        if self._forgotten:  # in the meantime, while a look went on
            self._cache.forget(self)

    def erase(self, n_blocks: int) -> None:
        """Forgets the first blocks."""
        self._cache.forget(self, n_blocks)

    def forget(self) -> None:
        """Forgets all blocks for ever: the data set is let go of, or retired."""
        self._forgotten = True
        self._cache.forget(self)
