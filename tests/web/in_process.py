"""The web server on a worker of this process: no broker, no store, and real answers."""

from __future__ import annotations

import asyncio
import copy
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from stream_dp.errors import ServerUnavailable
from stream_dp.web.access import Access
from stream_dp.web.event_stream import Viewers
from stream_dp.web.http_api.api import API_ANALYST, Api
from stream_dp.web.page_data.published_state import READ, PublishedState
from tests.client.world_client import AsyncSessionClient, WorldSession

_NOW_MS = 1_790_000_000_000


class SharingClient(AsyncSessionClient):
    """A client on a session that others use too, so that it ends without it."""

    is_open = False

    async def __aenter__(self) -> Self:
        self.is_open = True
        return await super().__aenter__()

    async def close(self) -> None:
        self.is_open = False
        self._threads.shutdown(wait=False, cancel_futures=True)


class InProcess:
    """A worker of a session, what its topics tell, and the clients of a web server in front of it."""

    def __init__(self, session: WorldSession) -> None:
        self.session, self.world = session, session.world
        self.published = PublishedState()
        self.clients: list[SharingClient] = []
        session.readers.append(self._show)

    def _show(self, role: str, key: str, value: bytes | None) -> None:
        if role in READ:
            self.published.take(role, key, value, _NOW_MS)

    def fill(self, name: str = "flights") -> InProcess:
        """Adds a data set, in its first phase of 21,000 rows."""
        self.world.define(name)
        self.session.run()
        self.world.cells(name, "first")
        self.session.run()
        return self

    def connect(self, analyst: str = API_ANALYST) -> SharingClient:
        """A client that asks in a name, and that nobody has connected."""
        session = copy.copy(self.session)
        session.analyst = analyst
        self.clients.append(SharingClient(session))
        return self.clients[-1]

    def app(self, access: Access, *, gone: str = "", unread: str = "") -> web.Application:
        """The API, and the guard of the pages.

        Args:
            access: The rules of access.
            gone: The servers that do not answer.
            unread: The reason why the topics cannot be read.
        """
        closing = asyncio.Event()

        async def published() -> PublishedState:
            if unread:
                raise ServerUnavailable(unread)
            return self.published

        api = Api(
            self.connect,
            published=published,
            gone=lambda: gone,
            access=access,
            viewers=Viewers(),
            closing=closing,
        )

        async def close(_: web.Application) -> None:
            closing.set()
            await api.close()

        app = web.Application()
        api.install(app)
        access.install(app, enter=_enter)
        app.on_shutdown.append(close)
        return app

    async def run(self) -> None:
        """Lets the worker read all records."""
        await asyncio.to_thread(self.session.run)

    async def change(self, document: Mapping[str, Any] | None) -> None:
        """Sends a change of ``flights`` to the catalog. None retires the data set."""
        about = document and {"version": 1, "dataset": "flights", **document}
        self.world.produce("datasets", about, key="flights")
        await self.run()

    def sleep(self) -> None:
        """Lets the worker read nothing until it is woken."""
        self.session.is_asleep = True

    async def wake(self) -> None:
        """Lets the worker read again, and what has come meanwhile."""
        self.session.is_asleep = False
        await self.run()


class Answered(NamedTuple):
    """What a request got."""

    status: int
    said: Any
    text: str
    headers: Mapping[str, str]

    @property
    def problem(self) -> tuple[int, str]:
        """The status and the code of a problem."""
        assert self.headers["Content-Type"].startswith("application/problem+json"), self.text
        assert (self.said["type"], self.said["status"]) == ("about:blank", self.status)
        assert self.said["detail"]
        return self.status, self.said["code"]


class Remote:
    """A client of the API."""

    DATASETS: ClassVar = "/api/v1/datasets"
    FLIGHTS: ClassVar = f"{DATASETS}/flights"

    def __init__(self, client: TestClient[Any, Any]) -> None:
        self.client = client

    async def __call__(
        self, path: str, body: Any = None, *, method: str = "", headers: Any = None
    ) -> Answered:
        """Gets a path, or posts a body to it; most are below ``flights``. Documents go as JSON."""
        method = method or ("GET" if body is None else "POST")
        sent: Any = {"json" if isinstance(body, dict) else "data": body}
        whole = path if path.startswith("/api/") else f"{self.FLIGHTS}{path}"
        url = URL(whole, encoded=True)
        reply = await self.client.request(method, url, headers=headers, **sent)
        text = await reply.text() if reply.content_type.endswith("json") else ""
        return Answered(reply.status, json.loads(text or "null"), text, reply.headers)


Serve: TypeAlias = Callable[..., Awaitable[Remote]]


@pytest.fixture
async def serve(served: InProcess) -> AsyncIterator[Serve]:
    """``await serve(access, gone="Kafka does not answer")``: a client of the API."""
    async with AsyncExitStack() as stack:

        async def serve(access: Access | None = None, **state: str) -> Remote:
            app = served.app(access or Access("127.0.0.1", 6066), **state)
            return Remote(await stack.enter_async_context(TestClient(TestServer(app))))

        yield serve


async def _enter(_: web.Request) -> web.Response:
    raise AssertionError("the API has no page that asks for a token")
