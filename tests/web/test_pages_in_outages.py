"""What a page says while a server does not answer, or the worker itself; real ones go in tests/faults."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiohttp import web

from stream_dp.broker import Broker
from stream_dp.embedded import ports
from stream_dp.messages import Definition
from stream_dp.pipeline.watch.health import Health
from stream_dp.web.access import Access
from stream_dp.web.pages import Pages
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.kafka

DEFINITION = {
    "version": 1,
    "dataset": "people",
    "attributes": [{"name": "smoker", "type": "boolean"}],
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "accuracy": {"error": 0.1, "failure_probability": 0.01},
    "phase": {"min_rows": 2000},
}
WELL: dict[str, Any] = {"ready": True, "partitions": (0,)}


class Worker:
    """The pages of one, whose health the test decides."""

    def __init__(self, deployment: Any) -> None:
        self.health = Health(**WELL)
        self._deployment = deployment
        self._port = ports.choose("the pages", None)
        self.url = f"http://127.0.0.1:{self._port}"
        self.start()

    def start(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._runner = self._run(self._serve())

    async def _serve(self) -> web.AppRunner:
        app = web.Application()
        Pages(
            Access("127.0.0.1", self._port),
            broker=Broker(self._deployment.bootstrap_servers),
            topics=self._deployment.topics,
            health=lambda: self.health,
        ).install(app)
        app.router.add_get("/healthz", self._healthz)
        runner = web.AppRunner(app)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self._port).start()
        return runner

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response()

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    def stop(self) -> None:
        self._run(self._runner.cleanup())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def worker(deployment: Any) -> Iterator[Worker]:
    deployment.produce("catalog", Definition.read(DEFINITION).to_bytes(), key="people")
    worker = Worker(deployment)
    yield worker
    worker.stop()


@pytest.fixture
def visit(browser: Any, worker: Worker) -> Iterator[Callable[[str], Any]]:
    pages = []

    def visit(path: str) -> Any:
        page = browser.open(f"{worker.url}{path}")
        pages.append(page)
        page.until_text("people", "#head")
        page.until("document.querySelector('#reading').innerText === 'live'")
        return page

    yield visit
    for page in pages:
        page.close()


STALE = "document.querySelector('main').classList.contains('stale')"


def test_both_views_say_that_the_broker_does_not_answer_since_when_and_what_it_means(
    visit: Callable[[str], Any], worker: Worker
) -> None:
    since = time.mktime((2026, 11, 21, 21, 3, 12, 0, 0, -1))
    pages = {"operator": visit("/"), "analyst": visit("/ask")}
    pages["analyst"].until("document.querySelector('#schema .attribute')")
    worker.health = Health(**WELL, broker_away_since=since)
    for role, page in pages.items():
        page.until_text("Kafka does not answer since", "#notice")
        said = page.text("#notice")
        assert "21:03" in said
        assert "Nothing is lost" in said
        assert ("again" in said) == (role == "operator"), "only operators can start anything"
        assert page.text("#reading") == "Kafka away"
        assert page.evaluate(STALE)
        assert (page.overflow(), page.pale(), page.errors()) == ([], [], [])
    health = pages["operator"].text("#health")
    assert "waits for Kafka" in health
    assert "answers since" not in health
    pages["analyst"].write("#question", "smoker")
    pages["analyst"].click("#ask")
    pages["analyst"].until_text("Kafka does not answer; nothing was sent", "#says")
    worker.health = Health(**WELL)
    for page in pages.values():
        page.until("document.querySelector('#reading').innerText === 'live'")
        assert not page.evaluate(STALE)
        assert page.text("#notice") == ""


def test_while_redis_is_away_service_goes_on_and_the_operator_sees_it(
    visit: Callable[[str], Any], worker: Worker
) -> None:
    pages = {"operator": visit("/"), "analyst": visit("/ask")}
    worker.health = Health(**WELL, store_away_since=time.time())
    pages["operator"].until_text("does not answer since", "#health")
    assert "waits for" not in pages["operator"].text("#health")
    for page in pages.values():
        assert page.text("#reading") == "live"
        assert page.text("#notice") == ""
        assert not page.evaluate(STALE)


def test_a_page_that_is_opened_meanwhile_says_it_in_place_of_prices(
    browser: Any, worker: Worker, deployment: Any
) -> None:
    opened = {"version": 1, "dataset": "people", "seq": 0, "kind": "phase", "phase": 1, "rows": 7}
    deployment.produce("ledger", opened, key="people")
    worker.health = Health(**WELL, broker_away_since=time.time())
    page = browser.open(f"{worker.url}/")
    page.until_text("Kafka does not answer since", "#notice")
    page.until_text("Kafka does not answer; nothing was sent", "#prices > p")
    assert not page.evaluate("document.querySelector('#quote').disabled")
    page.close()


@pytest.mark.slow
def test_a_page_says_that_its_worker_is_gone_and_goes_on_with_the_next_one(
    visit: Callable[[str], Any], worker: Worker
) -> None:
    page = visit("/")
    worker.stop()
    page.until_text("This worker does not answer since", "#notice")
    assert page.evaluate(STALE)
    assert "people" in page.text("#head")
    worker.start()
    page.until("document.querySelector('#reading').innerText === 'live'")
    assert not page.evaluate(STALE)
    assert page.text("#notice") == ""
