"""The pages on the web server of a worker."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import Any, Final

from aiohttp import web

from stream_dp.broker import Broker
from stream_dp.client import AsyncClient
from stream_dp.errors import InvalidInput, ServerUnavailable
from stream_dp.messages import Topics
from stream_dp.pipeline.watch.health import Health
from stream_dp.web.access import Access, Role
from stream_dp.web.event_stream import TICK_S, Viewers, stream
from stream_dp.web.http_api.api import API_ANALYST, Api
from stream_dp.web.http_api.bodies import read_body
from stream_dp.web.page_data.feed import Feed
from stream_dp.web.page_data.published_state import PublishedState
from stream_dp.web.page_data.views import Section, Views, away, health_document
from stream_dp.web.page_queries import ANALYST, Asking, error_document

_PATIENCE_S: Final = 10.0
_BREATH_S: Final = 0.05
_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
_PAGES: Final = ("enter.html", "operator.html", "analyst.html")


class Pages:
    """Both views, their live updates, the question box, and the HTTP API.

    They cost nothing until somebody opens a page. Then the topics are read, and each page gets the changes
    every half second.

    Args:
        health: The health of the worker, for operators.
    """

    def __init__(
        self,
        access: Access,
        *,
        broker: Broker,
        topics: Topics,
        health: Callable[[], Health],
    ) -> None:
        self._access = access
        self._health = health
        self._viewers = Viewers()
        self._closing = asyncio.Event()
        self._published = PublishedState()
        self._views = Views(self._published)
        self._feed = Feed(broker, topics, self._published)
        connect = partial(AsyncClient, broker, topic_prefix=topics.prefix)
        self._asking = Asking(partial(connect, analyst=ANALYST))
        self._api = Api(
            partial(connect, analyst=API_ANALYST),
            published=self._caught_up,
            gone=self._gone,
            access=access,
            viewers=self._viewers,
            closing=self._closing,
        )
        self._files = {
            file.name: (_TYPES["." + file.name.rpartition(".")[2]], file.read_bytes())
            for file in (files(__package__) / "static").iterdir()
        }

    def install(self, app: web.Application) -> None:
        """Adds the pages and the API to a web server that has not started."""
        self._api.install(app)
        self._access.install(app, enter=self._page("enter.html"))
        app.router.add_get("/", self._page("operator.html"))
        app.router.add_get("/ask", self._page("analyst.html"))
        app.router.add_get("/static/{name}", self._static)
        app.router.add_get("/stream/operator", self._stream, allow_head=False)
        app.router.add_get("/stream/analyst", self._stream, allow_head=False)
        app.router.add_post("/question", self._query)
        app.router.add_get("/enter", self._page("enter.html"))
        app.router.add_post("/enter", self._enter)
        app.on_shutdown.append(self._close)

    def _page(self, name: str) -> Callable[[web.Request], Awaitable[web.Response]]:
        async def page(_: web.Request) -> web.Response:
            content_type, body = self._files[name]
            return web.Response(body=body, content_type=content_type, charset="utf-8")

        return page

    async def _static(self, request: web.Request) -> web.Response:
        name = request.match_info["name"]
        if name not in self._files or name in _PAGES:
            raise web.HTTPNotFound
        return await self._page(name)(request)

    async def _enter(self, request: web.Request) -> web.Response:
        """Exchanges a token for a cookie that scripts cannot read.

        With ``look`` it only says who would enter. A link may hold a token of anyone, so the page asks first.
        """
        document = await _document(request)
        token = document.get("token")
        if not isinstance(token, str):
            return _failed("this token is not valid here")
        role = self._access.role_of(token)
        asker = None if role else await self._access.asker_of(token)
        if role is None and asker is None:
            return _failed("this token is not valid here")
        who = {"role": role or "analyst", "name": asker.says.analyst if asker else None}
        response = web.json_response(who)
        if document.get("look") is True:
            return response
        try:
            self._access.admit(request, response, token, signed=role is None)
        except InvalidInput as error:
            return _failed(f"{error.problem}; {error.fix}")
        return response

    async def _query(self, request: web.Request) -> web.Response:
        document = await _document(request)
        if gone := self._gone():
            return _failed(f"{gone}; nothing was sent. Ask again when it is back")
        reply = await self._asking.reply(document, partial(self._access.asker, request))
        if "error" in reply and (gone := self._gone()):
            return _failed(
                f"{gone}; if the query was sent, its answer appears later under Published answers"
            )
        return web.json_response(reply)

    def _gone(self) -> str:
        """Names the servers that do not answer. Empty if none is known to be away."""
        servers = away(self._health())
        return (
            f"{' and '.join(servers)} {'does' if len(servers) == 1 else 'do'} not answer"
            if servers
            else ""
        )

    # ------------------------------------------------------------ what happens

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        """Streams server-sent events: the documents that have changed, by name."""
        role = self._access.role(request)
        view: Role = "operator" if request.path.endswith("operator") else "analyst"
        dataset = request.query.get("dataset", "")[:64]
        documents = partial(self._documents, request, view, role, dataset)
        with self._viewers.place(role), self._feed.watched():
            changes = self._changes(documents)
            return await stream(request, changes, still_here=b"event: here\ndata: null\n\n")

    async def _changes(self, documents: Callable[[], Section]) -> AsyncIterator[bytes]:
        """Yields the documents that have changed, every half second, until the server stops."""
        sent: Section = {}
        while not self._closing.is_set():
            now = documents()
            changed = [name for name, document in now.items() if sent.get(name) != document]
            yield b"".join(b"event: %s\ndata: %s\n\n" % (n.encode(), now[n]) for n in changed)
            sent = now
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), TICK_S)

    def _documents(
        self, request: web.Request, view: Role, role: Role | None, dataset: str
    ) -> Section:
        health = self._health()
        reading = {
            "role": role,
            "analyst": self._access.name(request) or ANALYST,
            "away": away(health),
            "caught_up": self._feed.caught_up,
            "problem": self._feed.problem,
            "sample": self._feed.skipped > 0,
        }
        state = {"reading": json.dumps(reading).encode()}
        if view == "operator":
            state["health"] = health_document(health)
        if not self._feed.caught_up:
            return state
        if view == "analyst":
            return state | self._views.public(dataset, self._access.seen(request))
        return state | self._views.operator(dataset)

    async def _caught_up(self) -> PublishedState:
        """Returns the state of all data sets, once what was there before has been read.

        Raises:
            ServerUnavailable: The topics cannot be read.
        """
        with self._feed.watched():
            end = time.monotonic() + _PATIENCE_S
            while self._feed.problem or not self._feed.caught_up:
                if self._feed.problem or self._closing.is_set() or time.monotonic() > end:
                    problem = self._feed.problem or "the topics are not read yet"
                    raise ServerUnavailable(f"{problem}; ask again in a moment")
                await asyncio.sleep(_BREATH_S)
        return self._published

    async def _close(self, _: web.Application) -> None:
        """Ends the streams, because the server waits for open ones when it stops."""
        self._closing.set()
        await asyncio.to_thread(self._feed.close)
        await self._asking.close()
        await self._api.close()


def _failed(message: str) -> web.Response:
    return web.json_response(error_document(message))


async def _document(request: web.Request) -> Mapping[str, Any]:
    """Reads the JSON object that a page sent."""
    try:
        found = json.loads(await read_body(request))
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise web.HTTPBadRequest(text="send one JSON object\n")
    return found
