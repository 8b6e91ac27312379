"""What a signed token opens on the web server, and under whose name it asks."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiohttp.test_utils import TestClient

from stream_dp.tokens import Verifier
from stream_dp.web.access import Access
from stream_dp.web.page_data.views import Views
from tests.client.conftest import issuer as issuer
from tests.client.conftest import session as session
from tests.client.world_client import WorldSession
from tests.signing import Issuer
from tests.web.conftest import Browse
from tests.web.in_process import InProcess, Remote, Serve
from tests.web.in_process import serve as serve

OPERATOR, ANALYST = "o" * 16, "a" * 16
AA = {"where": {"attribute": "carrier", "eq": "AA"}}
HTML = {"Accept": "text/html"}


@pytest.fixture
def rules(issuer: Issuer) -> Callable[..., Access]:
    """``rules("127.0.0.1", ...)``: access where queries need a signed token."""
    verifier = Verifier(str(issuer.file))
    verifier.load()

    def made(host: str = "0.0.0.0", **settings: Any) -> Access:
        return Access(host, 6066, verifier=verifier, **settings)

    return made


@pytest.fixture
def served(issuer: Issuer) -> Iterator[InProcess]:
    """The API of a worker that asks for tokens."""
    verifier = Verifier(str(issuer.file))
    verifier.load()
    session = WorldSession(verifier=verifier)
    session.world.now_ms = 1000 * int(time.time())
    session.world.define("trains")
    yield InProcess(session).fill()
    session.end()


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
        reply = (await api("/queries", {**AA, "query_id": "q"}, headers=who)).said
        assert (reply["status"], reply["analyst"]) == ("answered", analyst)
        assert (await api("/answers/q", headers=who)).said == reply
        quote = (await api("/quotes", AA, headers=who)).said
        assert (quote["status"], quote["analyst"]) == ("quoted", analyst)
        together = (await api("/quotes/together", {"queries": [AA]}, headers=who)).said
        assert together["analyst"] == analyst
        sql = {"sql": "SELECT COUNT(*) FROM flights", "query_id": "t"}
        assert (await api("/tables", sql, headers=who)).status == 200
        standing = (await api("/standing", {**AA, "query_id": "tile"}, headers=who)).said
        assert standing["analyst"] == analyst
    assert (await api("/standing/tile", method="DELETE", headers=who)).status == 200
    left = (await api("/standing", headers=who)).said["standing"]
    assert [one["analyst"] for one in left] == ["ana"], "nobody ends another one's"


async def test_a_query_that_is_not_answered_yet_is_found_by_its_own_analyst_alone(
    serve: Serve, served: InProcess, rules: Any, issuer: Issuer
) -> None:
    api = await serve(rules())
    ana, bob = (shown(issuer, sub=analyst) for analyst in ("ana", "bob"))
    served.sleep()
    reply = await api("/queries?timeout=0", {**AA, "query_id": "slow"}, headers=ana)
    place = reply.headers["Location"]
    assert (await api(place, headers=ana)).status == 202
    assert (await api(place, headers=bob)).problem == (404, "not_found")
    await served.wake()
    answer = (await api(f"{place}?timeout=10", headers=ana)).said
    assert (answer["status"], answer["analyst"]) == ("answered", "ana")


async def test_a_token_that_is_wrong_is_a_problem_that_says_why(
    serve: Serve, rules: Any, issuer: Issuer
) -> None:
    api = await serve(rules(operator_token=OPERATOR))
    operator = {"Authorization": f"Bearer {OPERATOR}"}
    for headers, expected in (
        (shown(issuer, exp=int(time.time()) - 1), (401, "token_expired")),
        (shown(issuer, aud="trains"), (403, "wrong_audience")),
        ({"Authorization": "Bearer nonsense"}, (401, "unauthorized")),
        (operator, (401, "unauthorized")),
        ({}, (401, "unauthorized")),
    ):
        reply = await api("/queries", AA, headers=headers)
        assert reply.problem == expected
        assert ("WWW-Authenticate" in reply.headers) == (reply.status == 401)
    assert (await api("", headers=operator)).status == 200


async def test_a_token_shows_the_data_sets_that_it_is_for(
    serve: Serve, rules: Any, issuer: Issuer
) -> None:
    api = await serve(rules())
    names = {"trains": ["trains"], "flights": ["flights"], "ships": []}
    for audience, expected in names.items():
        who = shown(issuer, aud=[audience, "https://other.example"])
        listed = (await api(Remote.DATASETS, headers=who)).said["datasets"]
        assert [one["dataset"] for one in listed] == expected
    for path in ("", "/budget", "/standing", "/stream"):
        reply = await api(path, headers=shown(issuer, aud="trains"))
        assert reply.problem == (403, "wrong_audience")


def test_the_analysts_page_shows_the_data_sets_that_a_token_is_for(session: WorldSession) -> None:
    session.world.define("trains")
    views = Views(InProcess(session).fill().published)

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
    reply = (await api("/queries", AA, headers=passed)).said
    assert (reply["status"], reply["analyst"]) == ("answered", "ana")
    for forged in ("ana", issuer.token(exp=1), ""):
        headers = {"X-Forwarded-Access-Token": forged}
        assert (await api("/queries", AA, headers=headers)).status == 401
        assert (await api("", headers=headers)).status == 401, "it is open to nobody else"


# ---------------------------------------------------------------- pages


async def entered(browser: TestClient[Any, Any], token: str, **more: Any) -> tuple[Any, str | None]:
    """What a browser is told that sends a token, and the cookie that it gets."""
    reply = await browser.post("/enter", json={"token": token, **more})
    return await reply.json(), reply.headers.get("Set-Cookie")


async def shows(browser: TestClient[Any, Any], path: str) -> str:
    return str(await (await browser.get(path, headers=HTML)).text())


async def test_a_browser_enters_with_its_token_and_sees_the_analysts_page(
    browse: Browse, rules: Any, issuer: Issuer
) -> None:
    browser = await browse(rules(operator_token=OPERATOR, analyst_token=ANALYST))
    assert "your own signed token" in await shows(browser, "/ask")
    for wrong in (issuer.token(exp=1), "nonsense", "x" * 9000):
        said, _ = await entered(browser, wrong)
        assert said["error"]["message"] == "this token is not valid here"
    said, _ = await entered(browser, token(issuer, aud=["flights", "x" * 4000]))
    assert "let a proxy send it" in said["error"]["message"]
    who = {"role": "analyst", "name": "ana"}
    looked = await entered(browser, token(issuer), look=True)
    assert looked == (who, None), "it says who would enter"
    assert "Question in SQL" not in await shows(browser, "/ask")
    said, cookie = await entered(browser, token(issuer))
    assert said == who
    assert cookie is not None
    assert "HttpOnly" in cookie
    assert "SameSite=Strict" in cookie
    assert "Question in SQL" in await shows(browser, "/ask")
    assert (await browser.get("/stream/operator")).status == 401
    assert (await browser.get("/metrics")).status == 401
    await entered(browser, OPERATOR)  # it keeps both
    assert "Overview" in await shows(browser, "/")


async def test_who_asks_on_a_page_without_a_token_is_told_where_to_enter_one(
    browse: Browse, rules: Any, issuer: Issuer
) -> None:
    browser = await browse(rules("127.0.0.1"))
    assert "Overview" in await shows(browser, "/"), "it is open"
    question = {"dataset": "flights", "sql": ""}

    async def said() -> str:
        reply = await (await browser.post("/question", json=question)).json()
        return str(reply["error"]["message"])

    assert (
        await said() == "queries need a signed token here, and there is none; enter one at /enter"
    )
    assert "Enter" in await shows(browser, "/enter")
    await entered(browser, token(issuer, aud="trains"))
    assert (await said()).startswith("the token is for another data set")
    await entered(browser, token(issuer))
    assert "no Kafka broker answers" in await said(), "it would be asked"


async def test_without_the_setting_no_signed_token_opens_anything(
    browse: Browse, issuer: Issuer
) -> None:
    browser = await browse(Access("0.0.0.0", 6066))
    said, _ = await entered(browser, token(issuer))
    assert "error" in said
    assert (await browser.get("/ask", headers=shown(issuer))).status == 401
