"""The web server on a worker of this process: no broker, no store, and real answers."""

from __future__ import annotations

import asyncio
import copy
import json
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, ClassVar, NamedTuple, Self, TypeAlias

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from stream_dp import sql
from stream_dp.client import AsyncClient, Query, Rejection, ResultTable
from stream_dp.client.kafka.credentials import Credentials, TokenSource
from stream_dp.client.kafka.mailbox import Reply
from stream_dp.client.statements.statement import Statement, statement_of
from stream_dp.client.statements.written_query import as_message
from stream_dp.errors import InvalidInput, RequestTimeout, ServerUnavailable
from stream_dp.messages import Answer, Definition, Event, Rejected, StandingQuery, read_answer
from stream_dp.web.access import Access
from stream_dp.web.http_api.api import Api
from stream_dp.web.page_data.published_state import READ, PublishedState
from stream_dp.web.page_data.viewers import Viewers
from tests.pipeline.trail import Sent
from tests.pipeline.world import Process, World

_NOW_MS = 1_790_000_000_000
_READERS: dict[str, Callable[[bytes], Reply]] = {
    "answers": read_answer,
    "events": Event.model_validate_json,
}


class InProcess:
    """A worker, its topics, and clients that talk to it without a broker."""

    def __init__(self, world: World, process: Process) -> None:
        self.world = world
        self.published = PublishedState()
        self.followers: list[asyncio.Queue[Reply]] = []
        self.answering = asyncio.Event()
        self.answering.set()
        self.clients: list[WorldClient] = []
        self._process = process
        self._lock = asyncio.Lock()
        self._read = 0

    async def fill(self) -> InProcess:
        """Adds the data set ``flights``, in its first phase of 21,000 rows."""
        self.world.define("flights")
        await self.run()
        self.world.cells("flights", "first")
        await self.run()
        return self

    def app(self, access: Access, *, gone: str = "", unread: str = "") -> web.Application:
        """The API, and the guard of the pages.

        Args:
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

    async def change(self, document: Mapping[str, Any] | None) -> None:
        """Sends a change of ``flights`` to the catalog. None retires the data set."""
        about = document and {"version": 1, "dataset": "flights", **document}
        self.world.produce("datasets", about, key="flights")
        await self.run()

    async def run(self) -> None:
        """Lets the worker read all records."""
        async with self._lock:
            await self._process.run()
            sent = [one.outgoing for one in self.world.trail[self._read :] if isinstance(one, Sent)]
            self._read = len(self.world.trail)
        for one in sent:
            if one.role in READ:
                self.published.take(one.role, one.key, one.value, _NOW_MS)
            for follower in self.followers if one.role in _READERS else ():
                follower.put_nowait(_READERS[one.role](one.value))

    def sent(self, since: int = 0) -> list[tuple[str, bytes]]:
        """What the worker has sent, newest first: roles and values."""
        sent = [one.outgoing for one in self.world.trail[since:] if isinstance(one, Sent)]
        return [(one.role, one.value) for one in reversed(sent)]

    def connect(self) -> WorldClient:
        self.clients.append(WorldClient(self))
        return self.clients[-1]


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


def api_of(connect: Callable[[], AsyncClient]) -> Api:
    """The API for anybody on this machine, with clients of its own."""

    async def published() -> PublishedState:
        return PublishedState()

    return Api(
        connect,
        published=published,
        gone=lambda: "",
        access=Access("127.0.0.1", 0),
        viewers=Viewers(),
        closing=asyncio.Event(),
    )


async def _enter(_: web.Request) -> web.Response:
    raise AssertionError("the API has no page that asks for a token")


class WorldClient(AsyncClient):
    """A client of the worker in this process. It waits for nothing but ``answering``."""

    def __init__(self, served: InProcess) -> None:
        self._served = served
        self.open_now = False
        self._analyst = "api"
        self._headers: dict[str, bytes] = {}

    async def with_token(self, token: TokenSource) -> AsyncClient:
        credentials = Credentials(token)
        twin = copy.copy(self)
        twin._analyst, twin._headers = credentials.analyst, dict([credentials.header()])
        return twin

    async def __aenter__(self) -> Self:
        self.open_now = True
        return self

    async def close(self) -> None:
        self.open_now = False

    async def open(self) -> None:
        pass

    async def definition(self, dataset: str) -> Definition:
        found = self._served.published.datasets.get(dataset)
        if found is None or found.definition is None or found.retired:
            raise InvalidInput("dataset", f"there is no data set {dataset!r}", "choose another")
        return found.definition

    async def as_message(self, dataset: str, query: Query[Any]) -> dict[str, Any]:
        attributes = [one.model_dump() for one in (await self.definition(dataset)).attributes]
        return as_message(query, lambda text: sql.parse(text, attributes, dataset=dataset))

    async def ask_query(
        self, dataset: str, query: Query[Any], *, quote: bool = False, timeout_s: float = 30.0
    ) -> Answer:
        item = await self.as_message(dataset, query)
        return await self._send(dataset, timeout_s, **item, quote=quote)

    async def quote_together(  # type: ignore[override]
        self, dataset: str, queries: Sequence[Query[Any]], *, timeout_s: float = 30.0
    ) -> Answer:
        items = [await self.as_message(dataset, query) for query in queries]
        rest: dict[str, Any] = {"query_id": "bundle", "quote": "together", "queries": items}
        return await self._send(dataset, timeout_s, **rest)

    async def sql(  # type: ignore[override]
        self,
        statement: str,
        *,
        dataset: str,
        query_id: str | None = None,
        at_most: float | None = None,
        timeout_s: float = 60.0,
        **about: Any,
    ) -> ResultTable:
        named = query_id or uuid.uuid4().hex
        read = await self._statement(statement, dataset, named, at_most, **about)
        limit = {} if at_most is None else {"at_most": at_most}
        replies = [await self._send(dataset, timeout_s, **{**item, **limit}) for item in read.items]
        found = read.table(replies)
        if not isinstance(found, ResultTable):
            raise found
        return found

    async def quote_sql(  # type: ignore[override]
        self, statement: str, *, dataset: str, timeout_s: float = 30.0, **about: Any
    ) -> Answer | None:
        read = await self._statement(statement, dataset, "price", None, **about)
        rest: dict[str, Any] = {"query_id": "bundle", "quote": "together", "queries": read.items}
        return await self._send(dataset, timeout_s, **rest) if read.items else None

    async def _statement(
        self,
        text: str,
        dataset: str,
        query_id: str,
        at_most: float | None,
        *,
        window: Mapping[str, Any] | None = None,
        series: Any = None,
    ) -> Statement:
        attributes = [one.model_dump() for one in (await self.definition(dataset)).attributes]
        plan = sql.plan(text, attributes, dataset=dataset, series=series)
        more: dict[str, Any] = {"window": window, "at_most": at_most, "last_phases": None}
        return statement_of(text, dataset, plan, query_id=query_id, **more)

    async def standing(self, dataset: str | None = None) -> list[StandingQuery]:
        listed: dict[str, StandingQuery | None] = {}
        for one in (sent.outgoing for sent in self._served.world.trail if isinstance(sent, Sent)):
            if one.role == "standing":
                value = StandingQuery.model_validate_json(one.value) if one.value else None
                listed[one.key] = value
        return [one for one in listed.values() if one is not None and one.dataset == dataset]

    async def stand(  # type: ignore[override]
        self,
        dataset: str,
        query: Query[Any],
        *,
        query_id: str | None = None,
        alert: Mapping[str, float] | None = None,
        timeout_s: float = 30.0,
    ) -> StandingQuery:
        query_id = query_id or query.query_id or ""
        more = {} if alert is None else {"alert": alert}
        item = {**await self.as_message(dataset, query), **more}
        await self._change(dataset, **{**item, "query_id": query_id, "standing": True})
        listed = await self.standing(dataset)
        name = (self._analyst, query_id)
        (found,) = [one for one in listed if (one.analyst, one.query_id) == name]
        return found

    async def end_standing(self, dataset: str, query_id: str, *, timeout_s: float = 30.0) -> None:
        await self._change(dataset, query_id=query_id, standing=False)

    async def _change(self, dataset: str, **item: Any) -> None:
        since = len(self._served.world.trail)
        head = {"version": 1, "dataset": dataset, "analyst": self._analyst}
        self._served.world.produce("queries", {**head, **item}, headers=self._headers)
        await self._served.run()
        for role, value in self._served.sent(since):
            if role == "rejected":
                raise Rejection(Rejected.model_validate_json(value))

    async def answer(self, dataset: str, query_id: str, *, latest: int = 2000) -> Answer | None:
        for role, value in self._served.sent():
            if role == "answers":
                found = read_answer(value)
                name = (found.dataset, found.analyst, found.query_id)
                if (*name, found.status) == (dataset, self._analyst, query_id, "answered"):
                    return found
        return None

    async def follow(self, dataset: str | None = None) -> AsyncIterator[Reply]:
        queue: asyncio.Queue[Reply] = asyncio.Queue()
        self._served.followers.append(queue)
        while True:
            yield await queue.get()

    async def _send(self, dataset: str, timeout_s: float, **item: Any) -> Answer:
        try:
            await asyncio.wait_for(self._served.answering.wait(), timeout_s)
        except TimeoutError:
            raise RequestTimeout("no reply in time") from None
        head = {"version": 1, "dataset": dataset, "analyst": self._analyst}
        since = len(self._served.world.trail)
        self._served.world.produce("queries", {**head, **item}, headers=self._headers)
        query = json.dumps({**head, **item}).encode()
        self._served.published.take("queries", dataset, query, _NOW_MS)
        await self._served.run()
        for role, value in self._served.sent(since):
            if role == "rejected":
                raise Rejection(Rejected.model_validate_json(value))
            if role == "answers" and json.loads(value)["query_id"] == item["query_id"]:
                return read_answer(value)
        raise RequestTimeout("no reply in time")
