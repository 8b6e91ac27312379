"""What a signed token opens on the web server, and under whose name it asks."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from stream_dp.broker import Broker
from stream_dp.messages import Topics
from stream_dp.pipeline.watch.health import Health
from stream_dp.tokens import Verifier
from stream_dp.web.access import Access
from stream_dp.web.page_data.views import Views
from stream_dp.web.pages import Pages
from tests.pipeline.conftest import make_world as make_world
from tests.pipeline.conftest import world as world
from tests.pipeline.conftest import worlds as worlds
from tests.pipeline.world import World
from tests.signing import Issuer
from tests.web.in_process import InProcess
from tests.web.test_api import problem

FLIGHTS = "/api/v1/datasets/flights"
OPERATOR, ANALYST = "o" * 16, "a" * 16
AA = {"where": {"attribute": "carrier", "eq": "AA"}}
HTML = {"Accept": "text/html"}

Client = TestClient[Any, Any]
Serve = Callable[..., Awaitable[Client]]


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    return Issuer(tmp_path)


@pytest.fixture
def rules(issuer: Issuer) -> Callable[..., Access]:
    """``rules("127.0.0.1", ...)``: access where queries need a signed token."""
    verifier = Verifier(str(issuer.file))
    verifier.load()

    def made(host: str = "0.0.0.0", **settings: Any) -> Access:
        return Access(host, 6066, verifier=verifier, **settings)

    return made


@pytest.fixture
async def served(world: World, issuer: Issuer) -> AsyncIterator[InProcess]:
    """The API of a worker that asks for tokens."""
    verifier = Verifier(str(issuer.file))
    verifier.load()
    world.now_ms = 1000 * int(time.time())
    process = world.process(verifier=verifier)
    await process.assign()
    world.define("trains")
    yield await InProcess(world, process).fill()
    await process.kill()


@pytest.fixture
async def serve(served: InProcess) -> AsyncIterator[Serve]:
    """``await serve(access)``: a client of this API."""
    async with AsyncExitStack() as stack:

        async def serve(access: Access) -> Client:
            return await stack.enter_async_context(TestClient(TestServer(served.app(access))))

        yield serve


def shown(issuer: Issuer, **claims: Any) -> dict[str, str]:
    """The header of a request with a token that holds for ten minutes."""
    return {"Authorization": f"Bearer {token(issuer, **claims)}"}


def token(issuer: Issuer, **claims: Any) -> str:
    return issuer.token(**{"exp": int(time.time()) + 600, **claims})


async def test_a_query_is_asked_in_the_name_of_the_token_and_with_it(
    serve: Serve, rules: Any, issuer: Issuer
) -> None:
    api = await serve(rules())
    for analyst in ("ana", "bob"):
        who = shown(issuer, sub=analyst)
        body = {**AA, "query_id": "q"}
        reply = await (await api.post(f"{FLIGHTS}/queries", json=body, headers=who)).json()
        assert (reply["status"], reply["analyst"]) == ("answered", analyst)
        found = await (await api.get(f"{FLIGHTS}/answers/q", headers=who)).json()
        assert found == reply
        quote = await (await api.post(f"{FLIGHTS}/quotes", json=AA, headers=who)).json()
        assert (quote["status"], quote["analyst"]) == ("quoted", analyst)
        bundle = {"queries": [AA]}
        reply = await api.post(f"{FLIGHTS}/quotes/together", json=bundle, headers=who)
        assert (await reply.json())["analyst"] == analyst
        sql = {"sql": "SELECT COUNT(*) FROM flights", "query_id": "t"}
        assert (await api.post(f"{FLIGHTS}/tables", json=sql, headers=who)).status == 200
        tile = {**AA, "query_id": "tile"}
        listed = await (await api.post(f"{FLIGHTS}/standing", json=tile, headers=who)).json()
        assert listed["analyst"] == analyst
    assert (await api.delete(f"{FLIGHTS}/standing/tile", headers=who)).status == 200
    left = (await (await api.get(f"{FLIGHTS}/standing", headers=who)).json())["standing"]
    assert [one["analyst"] for one in left] == ["ana"], "nobody ends another one's"


async def test_a_query_that_is_not_answered_yet_is_found_by_its_own_analyst_alone(
    serve: Serve, served: InProcess, rules: Any, issuer: Issuer
) -> None:
    api = await serve(rules())
    ana, bob = (shown(issuer, sub=analyst) for analyst in ("ana", "bob"))
    served.answering.clear()
    body = {**AA, "query_id": "slow"}
    reply = await api.post(f"{FLIGHTS}/queries?timeout=0", json=body, headers=ana)
    place = reply.headers["Location"]
    assert (await api.get(place, headers=ana)).status == 202
    assert await problem(await api.get(place, headers=bob)) == (404, "not_found")
    served.answering.set()
    answer = await (await api.get(f"{place}?timeout=10", headers=ana)).json()
    assert (answer["status"], answer["analyst"]) == ("answered", "ana")


async def test_a_token_that_is_wrong_is_a_problem_that_says_why(
    serve: Serve, rules: Any, issuer: Issuer
) -> None:
    api = await serve(rules(operator_token=OPERATOR))
    ended = {**shown(issuer, exp=int(time.time()) - 1)}
    elsewhere = shown(issuer, aud="trains")
    for headers, expected in (
        (ended, (401, "token_expired")),
        (elsewhere, (403, "wrong_audience")),
        ({"Authorization": "Bearer nonsense"}, (401, "unauthorized")),
        ({"Authorization": f"Bearer {OPERATOR}"}, (401, "unauthorized")),
        ({}, (401, "unauthorized")),
    ):
        reply = await api.post(f"{FLIGHTS}/queries", json=AA, headers=headers)
        assert await problem(reply) == expected
        assert ("WWW-Authenticate" in reply.headers) == (reply.status == 401)
    assert (await api.get(FLIGHTS, headers={"Authorization": f"Bearer {OPERATOR}"})).status == 200


async def test_a_token_shows_the_data_sets_that_it_is_for(
    serve: Serve, rules: Any, issuer: Issuer
) -> None:
    api = await serve(rules())
    names = {"trains": ["trains"], "flights": ["flights"], "ships": []}
    for audience, expected in names.items():
        who = shown(issuer, aud=[audience, "https://other.example"])
        listed = await (await api.get("/api/v1/datasets", headers=who)).json()
        assert [one["dataset"] for one in listed["datasets"]] == expected
    for path in ("", "/budget", "/standing", "/stream"):
        reply = await api.get(FLIGHTS + path, headers=shown(issuer, aud="trains"))
        assert await problem(reply) == (403, "wrong_audience")


async def test_the_analysts_page_shows_the_data_sets_that_a_token_is_for(world: World) -> None:
    process = world.process()
    await process.assign()
    world.define("trains")
    views = Views((await InProcess(world, process).fill()).published)
    await process.kill()

    def named(*seen: str) -> tuple[list[str], str | None]:
        found = views.public("trains", frozenset(seen))
        detail = json.loads(found["dataset"])
        return [one["name"] for one in json.loads(found["datasets"])], detail and detail["name"]

    assert named("flights", "trains") == (["flights", "trains"], "trains")
    assert named("flights") == (["flights"], "flights")
    assert named() == ([], None)
    assert len(json.loads(views.public("trains")["datasets"])) == 2


async def test_a_proxy_passes_the_token_on_in_a_header_that_is_checked(
    serve: Serve, rules: Any, issuer: Issuer
) -> None:
    api = await serve(rules("127.0.0.1", token_header="X-Forwarded-Access-Token"))
    passed = {"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Access-Token": token(issuer)}
    reply = await (await api.post(f"{FLIGHTS}/queries", json=AA, headers=passed)).json()
    assert (reply["status"], reply["analyst"]) == ("answered", "ana")
    for forged in ("ana", issuer.token(exp=1), ""):
        headers = {"X-Forwarded-Access-Token": forged}
        assert (await api.post(f"{FLIGHTS}/queries", json=AA, headers=headers)).status == 401
        assert (await api.get(FLIGHTS, headers=headers)).status == 401, "it is open to nobody else"


# ---------------------------------------------------------------- pages


@pytest.fixture
async def pages() -> AsyncIterator[Serve]:
    """``await pages(access)``: a browser of the pages, which keeps cookies."""
    async with AsyncExitStack() as stack:

        async def serve(access: Access) -> Client:
            app = web.Application()
            Pages(access, broker=Broker("127.0.0.1:1"), topics=Topics(), health=Health).install(app)
            return await stack.enter_async_context(TestClient(TestServer(app)))

        yield serve


async def test_a_browser_enters_with_its_token_and_sees_the_analysts_page(
    pages: Serve, rules: Any, issuer: Issuer
) -> None:
    access = rules(operator_token=OPERATOR, analyst_token=ANALYST)
    browser = await pages(access)
    assert "your own signed token" in await (await browser.get("/ask", headers=HTML)).text()
    for wrong in (issuer.token(exp=1), "nonsense", "x" * 9000):
        reply = await (await browser.post("/enter", json={"token": wrong})).json()
        assert reply["error"]["message"] == "this token is not valid here"
    long = token(issuer, aud=["flights", "x" * 4000])
    reply = await (await browser.post("/enter", json={"token": long})).json()
    assert "let a proxy send it" in reply["error"]["message"]
    who = {"role": "analyst", "name": "ana"}
    reply = await browser.post("/enter", json={"token": token(issuer), "look": True})
    assert (await reply.json(), reply.status) == (who, 200), "it says who would enter"
    assert "Set-Cookie" not in reply.headers
    assert "Question in SQL" not in await (await browser.get("/ask", headers=HTML)).text()
    reply = await browser.post("/enter", json={"token": token(issuer)})
    assert (await reply.json(), reply.status) == (who, 200)
    assert "HttpOnly" in reply.headers["Set-Cookie"]
    assert "SameSite=Strict" in reply.headers["Set-Cookie"]
    assert "Question in SQL" in await (await browser.get("/ask", headers=HTML)).text()
    assert (await browser.get("/stream/operator")).status == 401
    assert (await browser.get("/metrics")).status == 401
    await browser.post("/enter", json={"token": OPERATOR})  # it keeps both
    assert "Overview" in await (await browser.get("/", headers=HTML)).text()


async def test_who_asks_on_a_page_without_a_token_is_told_where_to_enter_one(
    pages: Serve, rules: Any, issuer: Issuer
) -> None:
    browser = await pages(rules("127.0.0.1"))
    assert "Overview" in await (await browser.get("/", headers=HTML)).text(), "it is open"
    question = {"dataset": "flights", "sql": ""}

    async def said() -> str:
        reply = await (await browser.post("/question", json=question)).json()
        return str(reply["error"]["message"])

    assert (
        await said() == "queries need a signed token here, and there is none; enter one at /enter"
    )
    assert "Enter" in await (await browser.get("/enter")).text()
    await browser.post("/enter", json={"token": token(issuer, aud="trains")})
    assert (await said()).startswith("the token is for another data set")
    await browser.post("/enter", json={"token": token(issuer)})
    assert "no Kafka broker answers" in await said(), "it would be asked"


async def test_without_the_setting_no_signed_token_opens_anything(
    pages: Serve, issuer: Issuer
) -> None:
    browser = await pages(Access("0.0.0.0", 6066))
    reply = await (await browser.post("/enter", json={"token": token(issuer)})).json()
    assert "error" in reply
    assert (await browser.get("/ask", headers=shown(issuer))).status == 401
