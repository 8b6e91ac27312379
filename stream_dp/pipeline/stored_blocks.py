"""Blocks that a look needs: read from the store one by one, and kept in memory up to a bound.

Which blocks are read, and which are kept, follows from public facts alone: from the windows of queries, and
from the sizes that blocks may have at most.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

from stream_dp.core.blocks import Block
from stream_dp.errors import StoreUnavailable
from stream_dp.pipeline.retrying import persistently
from stream_dp.settings import BLOCK_CACHE_MB

__all__ = ["BlockCache", "StoredBlocks"]

_GIVEN_UP = "nobody waits for this look any more, so it reads no further block"


class BlockCache:
    """The blocks that were used last, of all data sets of a worker. Threads may share it.

    A block counts with the most memory that a block of its public size can take. The one used last stays
    even if it alone is larger than the bound, since a look may read it several times.

    Args:
        most_bytes: The bound.

    Attributes:
        turn: The turn to look. The time that a look of one data set takes is not to show in those of others.
    """

    def __init__(self, most_bytes: int = BLOCK_CACHE_MB << 20) -> None:
        self.turn = asyncio.Lock()
        self._most_bytes = most_bytes
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
            while self._n_bytes > self._most_bytes and len(self._blocks) > 1:
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


class StoredBlocks:
    """The sealed blocks of one data set, as a look reads them in its thread.

    Args:
        cache: The cache that the data sets of the worker share.
        fetch: Returns the stored bytes of a block, by its absolute index. It is called on the event loop,
            and repeated while the store is away.
        decode: Makes the block of these bytes, or raises CorruptState where they are those of another one.
    """

    def __init__(
        self,
        cache: BlockCache,
        fetch: Callable[[int], Awaitable[bytes]],
        decode: Callable[[int, bytes], Block],
    ) -> None:
        self._cache = cache
        self._fetch = fetch
        self._decode = decode
        self._loop: asyncio.AbstractEventLoop | None = None
        self._under_way: asyncio.Task[Any] | None = None
        self._held: dict[int, Block] = {}
        self._forgotten = False

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
        block = self._held.get(index) or self._cache.get(self, index)
        if block is None:
            # Not on the event loop: how long decoding takes is not to show in what others wait for.
            block = self._decode(index, self._fetched(index))
            self._keep(index, block)
        return block

    def _fetched(self, index: int) -> bytes:
        loop = self._loop
        if loop is None:
            raise StoreUnavailable(_GIVEN_UP)
        return asyncio.run_coroutine_threadsafe(self._persistently(index), loop).result()

    async def _persistently(self, index: int) -> bytes:
        if self._loop is None:
            raise StoreUnavailable(_GIVEN_UP)
        self._under_way = asyncio.current_task()
        try:
            return await persistently(lambda: self._fetch(index))
        finally:
            self._under_way = None

    def _keep(self, index: int, block: Block) -> None:
        self._cache.put(self, index, block)
        if self._forgotten:  # in the meantime, while a look went on
            self._cache.forget(self)

    def hold(self, index: int, block: Block) -> None:
        """Holds a block that is not in the store yet."""
        self._held[index] = block

    def stored(self) -> None:
        """Says that all blocks are in the store: what was held may be read again from now on."""
        for index, block in self._held.items():
            self._keep(index, block)
        self._held.clear()

    def erase(self, n_blocks: int) -> None:
        """Forgets the first blocks."""
        self._held = {index: block for index, block in self._held.items() if index >= n_blocks}
        self._cache.forget(self, n_blocks)

    def forget(self) -> None:
        """Forgets all blocks for ever: the data set is let go of, or retired."""
        self._forgotten = True
        self._held.clear()
        self._cache.forget(self)
