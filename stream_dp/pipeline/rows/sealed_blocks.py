"""The sealed blocks of one data set, one for each phase."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stream_dp.core.rows.blocks import Block, BlockCounts, Blocks
from stream_dp.errors import CorruptState, RowsGone
from stream_dp.pipeline.datasets.engine import Engine
from stream_dp.pipeline.rows.block_cache import BlockCache, StoredBlocks
from stream_dp.pipeline.rows.own_values import BLOCK, OwnValues


class SealedBlocks:
    """The blocks, as looks read them. Private; how many rows each has is public.

    Attributes:
        data: The blocks.
        stored: Reads them in the thread of a look.
        bare: The number of first phases that have no rows since those of the last of them were lost.

    Args:
        dataset: The name of the data set.
        engine: What follows from its definition.
        values: Its private values.
        cache: The cache that the data sets of the worker share.
        check_unit: Raises CorruptState where a block says whose its rows are, against the definition.
    """

    def __init__(
        self,
        dataset: str,
        engine: Engine,
        values: OwnValues,
        cache: BlockCache,
        check_unit: Callable[[Block | BlockCounts], None],
    ) -> None:
        self._dataset, self._engine, self._values = dataset, engine, values
        self._cache, self._check_unit = cache, check_unit
        self.restart()

    def restart(self, sizes: Sequence[int] = (), erased: int = 0, bare: int = 0) -> None:
        """Begins again with blocks that are kept elsewhere.

        Args:
            sizes: The number of rows of each block.
            erased: The number of first blocks whose rows are erased, or lost.
            bare: How many of these are lost.
        """
        stored = self.stored = StoredBlocks(
            self._cache, self._engine.universe, self._fetched, self._check, lambda: self.data.sizes
        )
        self.data = Blocks.elsewhere(
            self._engine.universe, sizes, erased, stored.read, stored.ahead
        )
        self.bare = bare

    def __len__(self) -> int:
        return len(self.data)

    def n_rows(self, window: range) -> int:
        """Returns the number of rows in the blocks of ``window``."""
        return sum(self.data.sizes[window.start : window.stop])

    async def keep(self, block: Block) -> None:
        """Keeps the next block as a private value."""
        await self._values.keep(**{f"{BLOCK}{len(self) + 1}": block.to_bytes()})

    def append(self, block: Block) -> None:
        """Adds the next block, which is kept by now."""
        self.stored.keep(len(self), block)
        self.data.append(block)

    def erase(self, n_blocks: int) -> None:
        """Drafts that the rows of the first blocks are erased."""
        self.data.erase(n_blocks)
        self.stored.erase(n_blocks)
        for phase in self._values.named(BLOCK):
            if int(phase) <= n_blocks:
                self._values.discard(BLOCK + phase)

    async def _fetched(self, index: int) -> bytes:
        found = await self._values.find(f"{BLOCK}{index + 1}")
        if found is None:
            raise RowsGone(self._dataset, index + 1)
        return found

    def _check(self, index: int, block: Block | BlockCounts) -> None:
        if block.n_rows != self.data.sizes[index]:
            raise CorruptState(
                f"{self._dataset}: block {index} is not the one that its transcript says"
            )
        self._check_unit(block)
