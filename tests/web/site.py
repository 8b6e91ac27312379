"""The pages on a port of this machine, and a worker of this process behind them: no broker, real answers."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, TypeVar

from aiohttp import web

from stream_dp.broker import Broker
from stream_dp.client import Client, Query
from stream_dp.embedded import ports
from stream_dp.messages import Topics
from stream_dp.pipeline.watch.health import Health
from stream_dp.web.access import Access
from stream_dp.web.page_data.feed import Feed
from stream_dp.web.page_data.published_state import PublishedState
from stream_dp.web.page_data.views import Views
from stream_dp.web.page_queries import Asking
from tests.client.world_client import SessionClient, WorldSession
from tests.waiting import PATIENCE_S
from tests.web.conftest import pages_of
from tests.web.in_process import InProcess

WELL = Health(ready=True, partitions=(0,))
Made = TypeVar("Made")


class Server:
    """A web application in a thread of its own, which can be stopped and started again on its port."""

    def __init__(self, make: Callable[[], Awaitable[web.Application]]) -> None:
        self._make = make
        self._port = ports.choose("the pages", None)
        self.url = f"http://127.0.0.1:{self._port}"
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Made]) -> Made:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def start(self) -> None:
        async def serve() -> web.AppRunner:
            runner = web.AppRunner(await self._make(), shutdown_timeout=0.1)
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", self._port).start()
            return runner

        self._runner = self.run(serve())

    def stop(self) -> None:
        self.run(self._runner.cleanup())

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class _ReadFeed(Feed):
    """A feed that has read everything there is."""

    caught_up = True

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        yield


class Site(Server):
    """The pages of a worker whose health the test decides.

    Args:
        tokens: The tokens of the roles, as for ``Access``.
    """

    def __init__(self, **tokens: Any) -> None:
        super().__init__(self._pages)
        self.health = WELL
        self._access = Access("127.0.0.1", self._port, **tokens)
        self.worker = InProcess(WorldSession())
        self.start()

    async def _pages(self) -> web.Application:
        pages = pages_of(self._access, lambda: self.health)
        published: PublishedState = self.worker.published
        pages._published, pages._views = published, Views(published)
        pages._feed = _ReadFeed(Broker("127.0.0.1:1"), Topics(), published)
        pages._asking = Asking(lambda: self.worker.connect("dashboard"))
        app = web.Application()
        pages.install(app)
        app.router.add_get("/healthz", _healthz)
        return app

    def client(self, analyst: str = "ana") -> Client:
        """A client that asks in a name."""
        session = copy.copy(self.worker.session)
        session.analyst = analyst
        return SessionClient(session)

    def define(self, dataset: str, **definition: Any) -> None:
        self.worker.world.define(dataset, **definition)
        self.worker.session.run()

    def send(self, dataset: str, batch_id: str, **form: Any) -> None:
        self.worker.world.batch(dataset, batch_id, **form)
        self.worker.session.run()

    def ask(self, dataset: str, sql: str, analyst: str = "ana", **query: Any) -> Any:
        return self.client(analyst).sql(sql, dataset=dataset, **query)

    def stand(self, dataset: str, sql: str, query_id: str, **more: Any) -> None:
        alert = more.pop("alert", None)
        query: Query[Any] = Query(sql, query_id=query_id, **more)
        self.client().stand(dataset, query, alert=alert)

    def close(self) -> None:
        super().close()
        self.worker.session.end()


async def _healthz(_: web.Request) -> web.Response:
    return web.Response()
