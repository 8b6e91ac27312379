"""How the pages are served: to so many at once that the worker never lacks a file for Kafka and Redis."""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

from aiohttp import web

__all__ = ["Runner"]

_MOST_CONNECTIONS: Final = 128
_IDLE_S: Final = 60.0


class _Refused(asyncio.Protocol):
    """A connection too many."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.Transport", transport).abort()


class Runner(web.AppRunner):
    """Keeps few connections, and none that is idle for long.

    aiohttp alone keeps any number for an hour each: whoever reaches the port could take all files that the
    process may open, and each refused connection would write a trace into its log.
    """

    def __init__(self, app: web.Application) -> None:
        super().__init__(app, access_log=None, keepalive_timeout=_IDLE_S)

    @property
    def server(self) -> Any:
        """What makes a protocol for each connection; None before ``setup``."""
        server = super().server

        def protocol() -> asyncio.BaseProtocol:
            assert server is not None
            return server() if len(server.connections) < _MOST_CONNECTIONS else _Refused()

        return server and protocol
