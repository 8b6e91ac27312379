"""How much may go on at a time, in all and for each analyst, so that nobody keeps all others waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final
from weakref import WeakValueDictionary

_MOST_QUERIES: Final = 24
_MOST_OF_ONE: Final = 8


class WaitingRooms:
    """Lets a number of queries wait for the workers, and one statement of each analyst about catalogs.

    The client has 32 threads, and each query that waits takes one of them.
    """

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(_MOST_QUERIES)
        self._own = WeakValueDictionary[str, asyncio.Semaphore]()
        self._turns = WeakValueDictionary[str, asyncio.Lock]()

    @asynccontextmanager
    async def of(self, analyst: str) -> AsyncIterator[None]:
        """Holds a place for a query while the context lasts."""
        own = self._own.setdefault(analyst, asyncio.Semaphore(_MOST_OF_ONE))
        async with own, self._all:
            yield

    @asynccontextmanager
    async def catalogs(self, analyst: str) -> AsyncIterator[None]:
        """Holds the analyst's one place at the catalogs while the context lasts."""
        turn = self._turns.setdefault(analyst, asyncio.Lock())
        async with turn:
            yield
