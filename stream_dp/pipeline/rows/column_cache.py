"""The columns that looks have read last, in memory up to a bound.

Which columns are read, and which are kept, follows from public facts alone: from the windows of queries, and
from the lengths of columns.
"""

from __future__ import annotations

import asyncio
import threading
from collections import OrderedDict
from collections.abc import Collection
from typing import Any, NamedTuple

from stream_dp.settings import BLOCK_CACHE_MB


class ColumnKey(NamedTuple):
    """What is kept in memory.

    Attributes:
        owner: The blocks of the data set that it belongs to.
        name: The name of the slab.
        place: The place of the column; 0 for the index of the slab.
    """

    owner: object
    name: bytes
    place: int


class ColumnCache:
    """The columns and indexes that were used last, of all data sets of a worker. Threads may share it.

    Args:
        most_bytes: The bound.

    Attributes:
        turn: The turn to look. The time that a look of one data set takes is not to show in those of others.
    """

    def __init__(self, most_bytes: int = BLOCK_CACHE_MB << 20) -> None:
        self.turn = asyncio.Lock()
        self.most_bytes = most_bytes
        self._n_bytes = 0
        self._kept: OrderedDict[ColumnKey, tuple[Any, int]] = OrderedDict()
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"ColumnCache({len(self._kept)} columns)"

    def get(self, key: ColumnKey) -> Any:
        """Returns what is kept, which counts as used now. None if nothing is."""
        with self._lock:
            found = self._kept.get(key)
            if found is None:
                return None
            self._kept.move_to_end(key)
            return found[0]

    def put(self, key: ColumnKey, column: Any, n_bytes: int) -> None:
        """Keeps something, and drops what was used longest ago where there is no room.

        Args:
            key: What it is.
            column: The column, or the index. Private.
            n_bytes: Its length; public. What is longer than the bound is not kept.
        """
        if n_bytes > self.most_bytes:
            return
        with self._lock:
            self._drop(key)
            self._kept[key] = column, n_bytes
            self._n_bytes += n_bytes
            while self._n_bytes > self.most_bytes:
                self._drop(next(iter(self._kept)))

    def forget(self, owner: object, names: Collection[bytes] | None = None) -> None:
        """Drops what is kept of an owner: all, or that of some slabs."""
        with self._lock:
            for key in [key for key in self._kept if key.owner is owner]:
                if names is None or key.name in names:
                    self._drop(key)

    def _drop(self, key: ColumnKey) -> None:
        dropped = self._kept.pop(key, None)
        if dropped is not None:
            self._n_bytes -= dropped[1]
