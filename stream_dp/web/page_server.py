"""Serves the pages with a limit on connections, so that the worker always has files for Kafka and Redis.

A server cannot know what a client wants before it has read the head of its request. So it reserves no slot
for ``/healthz``. While all slots are taken, a new connection replaces one that keeps the server waiting.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError

from stream_dp.web.access import Access

# The event loop accepts at most 128 connections in one pass and reads their requests two passes later.
# With twice as many slots, plus some for active requests, no request loses its slot before it is read.
_MOST_CONNECTIONS: Final = 320
_ENDED_AT_ONCE: Final = 32  # a search for each one would cost more than serving it
_HEAD_S: Final = 10.0
_IDLE_S: Final = 60.0
_UNREAD_S: Final = 60.0
_LEFT_OVER_S: Final = 2.0


class _Connection(web.RequestHandler):
    """One connection, which ends when its client keeps the server waiting for too long.

    The server waits for a client while the head of its next request is incomplete, while the body of the
    current request is incomplete, and while the client does not read its reply.

    Attributes:
        address: The address of the client's machine.
        since: The time at which the server last began to wait for the client.
    """

    address: object = None
    since = 0.0

    def __init__(self, server: web.Server, runner: Runner) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=None,  # type: ignore[arg-type] # as web.AppRunner takes it
            keepalive_timeout=_IDLE_S,
            lingering_time=_LEFT_OVER_S,
        )
        self._runner = runner
        self._socket: asyncio.Transport | None = None
        self._replies = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._unread_timer: asyncio.TimerHandle | None = None

    @property
    def is_waited_for(self) -> bool:
        """Whether the server waits for the client."""
        request = self._current_request
        body_is_missing = request is not None and not request.content.is_eof()
        return self._awaits_head() or body_is_missing or self.writing_paused

    def _awaits_head(self) -> bool:
        return self._request_count == self._replies

    def end(self) -> None:
        """Closes the connection now, even if something is still to be sent."""
        self._runner.open.discard(self)
        if self._socket is not None:
            self._socket.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._socket = cast("asyncio.Transport", transport)
        self.address, *_ = transport.get_extra_info("peername") or (None,)
        self.since = self._loop.time()
        self._head_timer = self._loop.call_later(_HEAD_S, self.end)
        self._runner.open.add(self)
        self._runner.make_room()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._runner.open.discard(self)
        super().connection_lost(exc)
        self._stop_head_timer()
        self._stop_unread_timer()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._awaits_head():
            self._stop_head_timer()
        elif data and self._head_timer is None:
            self._head_timer = self._loop.call_later(_HEAD_S, self.end)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        try:
            return await super().finish_response(request, resp, start_time)
        finally:
            self._replies += 1
            self.since = self._loop.time()

    def pause_writing(self) -> None:
        super().pause_writing()
        self.since = self._loop.time()
        self._unread_timer = self._loop.call_later(_UNREAD_S, self.end)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._stop_unread_timer()

    def _stop_unread_timer(self) -> None:
        if self._unread_timer is not None:
            self._unread_timer.cancel()
            self._unread_timer = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if not self._is_fault_of_client(exc):
            return super().handle_error(request, status, exc, message)
        self.log_exception(exc_info=exc)
        if request.writer.output_size > 0:
            raise ConnectionError("a reply is already in progress")
        reply = web.Response(status=400, text="this is not a request in HTTP/1.1\n")
        reply.force_close()
        return reply

    def log_exception(self, *args: Any, exc_info: Any = None, **kw: Any) -> None:
        """Logs our own faults. It never logs data that is not HTTP, because anyone can send it."""
        if self._is_fault_of_client(exc_info):
            self.logger.debug("a connection to the pages ended: %s", type(exc_info).__name__)
        else:
            super().log_exception(*args, exc_info=exc_info, **kw)

    def _is_fault_of_client(self, error: object) -> bool:
        if isinstance(error, ConnectionError):
            return self not in self._runner.open  # otherwise the worker has lost Kafka or Redis
        return isinstance(error, HttpProcessingError | web.RequestPayloadError)


class Runner(web.AppRunner):
    """Keeps few connections, and ends those whose client keeps it waiting for long.

    aiohttp alone keeps any number of connections for an hour each. Anyone who reaches the port could then use
    up the files that the process may open, and all data that is not HTTP would write a trace to the log.
    """

    def __init__(self, app: web.Application) -> None:
        super().__init__(app)
        self.open: set[_Connection] = set()

    @property
    def server(self) -> Any:
        """The factory of a protocol for each connection. None before ``setup``."""
        server = super().server
        return server and (lambda: _Connection(server, self))

    def make_room(self) -> None:
        """Ends some connections if there are too many.

        It ends only connections that the server waits for. It first takes the address with the most
        connections, and there the one with the longest wait. The newest has sent nothing, so one is found.
        """
        if len(self.open) > _MOST_CONNECTIONS:
            taken = Counter(one.address for one in self.open)
            waited_for = [one for one in self.open if one.is_waited_for]
            waited_for.sort(key=lambda one: (-taken[one.address], one.since))
            for one in waited_for[:_ENDED_AT_ONCE]:
                one.end()


async def serve_metrics(
    access: Access, host: str, port: int, exposition: Callable[[], bytes]
) -> None:
    """Serves ``/metrics`` to anyone who reaches a port of its own, until it is cancelled.

    A Prometheus needs no token for the pages then.
    """

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=exposition(), content_type="text/plain")

    app = web.Application()
    access.install_without_tokens(app)
    app.router.add_get("/metrics", metrics)
    runner = Runner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
