"""One client for many requests to the web server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Final

from stream_dp.client import AsyncClient
from stream_dp.errors import RequestTimeout, ServerUnavailable, StreamDPError

_MOST_QUEUED: Final = 16
_IDLE_S: Final = 60.0


class TooBusy(StreamDPError):
    """Too many requests are in progress."""

    code = "too_busy"
    retriable = True

    def __init__(self) -> None:
        super().__init__("too many queries are in progress; ask again in a moment")


class SharedClient:
    """A client that the first request opens, and that closes after a minute without requests.

    Args:
        connect: A function that creates a client without connecting it.
    """

    def __init__(self, connect: Callable[[], AsyncClient]) -> None:
        self._connect = connect
        self._client: AsyncClient | None = None
        self._opening = asyncio.Lock()
        self._users = 0
        self._queries = 0
        self._idle: asyncio.TimerHandle | None = None
        self._letting_go: set[asyncio.Task[None]] = set()

    @asynccontextmanager
    async def use(self) -> AsyncIterator[AsyncClient]:
        """Holds the client open while the context lasts.

        An error of the connection closes the client, so that the next request connects again.
        """
        if self._idle is not None:
            self._idle.cancel()
        self._users += 1
        try:
            yield await self._open()
        except ServerUnavailable:
            await self.close()
            raise
        except RequestTimeout:
            if self._users == 1:
                await self.close()
            raise
        finally:
            self._users -= 1
            if self._users == 0:
                self._idle = asyncio.get_running_loop().call_later(_IDLE_S, self._let_go)

    @asynccontextmanager
    async def ask(self, token: str | None = None) -> AsyncIterator[AsyncClient]:
        """Does the same as ``use``, for a query that waits for a reply.

        Args:
            token: The signed token under whose name to ask. None asks under the client's own name.

        Raises:
            TooBusy: 16 queries wait already.
        """
        self.check_room()
        self._queries += 1
        try:
            async with self.use() as client:
                yield client if token is None else await client.with_token(token)
        finally:
            self._queries -= 1

    def check_room(self) -> None:
        """Checks that another query may wait.

        Raises:
            TooBusy: 16 queries wait already.
        """
        if self._queries >= _MOST_QUEUED:
            raise TooBusy

    async def close(self) -> None:
        """Closes the client. Requests that still wait get an error."""
        if self._idle is not None:
            self._idle.cancel()
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    async def _open(self) -> AsyncClient:
        async with self._opening:
            if self._client is None:
                self._client = await self._connect().__aenter__()
            return self._client

    def _let_go(self) -> None:
        task = asyncio.get_running_loop().create_task(self._close_if_idle())
        self._letting_go.add(task)
        task.add_done_callback(self._letting_go.discard)

    async def _close_if_idle(self) -> None:
        if self._users == 0:
            await self.close()
