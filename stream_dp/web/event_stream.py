"""Server-sent events to readers, who are told from time to time that the server is still there."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator
from typing import Final

from aiohttp import ClientConnectionError, web

from stream_dp.web.access import Role

TICK_S: Final = 0.5
_STILL_HERE_S: Final = 5.0  # live.js relies on it
_MOST: Final = 32
_FOR_OPERATORS: Final = 8


class Viewers:
    """Counts open streams, and keeps some places for operators."""

    def __init__(self) -> None:
        self._open = 0

    @contextlib.contextmanager
    def place(self, role: Role | None) -> Iterator[None]:
        """Takes a place while the context lasts.

        Raises:
            HTTPServiceUnavailable: All places of this role are taken.
        """
        if self._open >= _MOST - (0 if role == "operator" else _FOR_OPERATORS):
            raise web.HTTPServiceUnavailable(text="too many pages are open\n")
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1


async def stream(
    request: web.Request, events: AsyncIterator[bytes], *, still_here: bytes
) -> web.StreamResponse:
    """Writes events until there are no more of them, or the reader has gone.

    Args:
        request: The request of the reader.
        events: The events. Each half second without one it gives nothing.
        still_here: What is written after a while of nothing.
    """
    response = web.StreamResponse(
        headers={"Content-Type": "text/event-stream; charset=utf-8", "X-Accel-Buffering": "no"}
    )
    with contextlib.suppress(ClientConnectionError, ConnectionError):
        await response.prepare(request)
        silent_s = 0.0
        async for event in events:
            silent_s = 0.0 if event else silent_s + TICK_S
            if event:
                await response.write(event)
            elif silent_s >= _STILL_HERE_S:
                await response.write(still_here)
                silent_s = 0.0
    return response
