"""Who gets what from the web server; no broker is needed to refuse."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from importlib.resources import files

import pytest
from aiohttp import ClientConnectionError, ClientSession

from stream_dp.errors import InvalidInput
from stream_dp.pipeline.app import create_app
from stream_dp.settings import WorkerSettings, is_loopback
from stream_dp.web.access import Access
from stream_dp.web.http_api.api import Api
from stream_dp.web.http_api.openapi import openapi, operations_of
from stream_dp.web.page_server import serve_metrics
from tests.web.conftest import Browse, pages_of

EVERYWHERE = "0.0.0.0"
OPERATOR, ANALYST = "o" * 16, "a" * 16
HERE = Access("127.0.0.1", 6066)
WITH_TOKENS = Access("127.0.0.1", 6066, operator_token=OPERATOR, analyst_token=ANALYST)
JSON = {"Content-Type": "application/json"}
PEOPLE = {"dataset": "people", "sql": 7}


async def test_on_a_loopback_address_no_token_is_asked_for(browse: Browse) -> None:
    client = await browse(HERE)
    for path, words in (("/", "Overview"), ("/ask", "Question in SQL"), ("/metrics", "figures")):
        reply = await client.get(path)
        assert reply.status == 200
        assert words in await reply.text()


async def test_another_name_for_this_machine_is_refused(browse: Browse) -> None:
    client = await browse(HERE)
    strange = ["evil.example", "evil.example:6066", "", "[::1", "["]
    for name in (*strange, "127.0.0.1.evil.example", "localhost.evil"):
        for path in ("/", "/metrics", "/stream/operator", "/static/page.css"):
            assert (await client.get(path, headers={"Host": name})).status == 421, (name, path)
    for name in ("localhost", "127.0.0.1:7777", "[::1]:6066"):
        assert (await client.get("/", headers={"Host": name})).status == 200, name


@pytest.mark.parametrize(
    "header", ["X-Forwarded-For", "Forwarded", "X-Forwarded-Host", "X-Real-IP", "Via"]
)
async def test_without_tokens_nobody_is_let_in_by_a_proxy(browse: Browse, header: str) -> None:
    headers = {header: "198.51.100.7"}
    client = await browse(HERE)
    assert (await client.get("/", headers=headers)).status == 403
    client = await browse(WITH_TOKENS)
    bearer = {"Authorization": f"Bearer {OPERATOR}"}
    assert (await client.get("/", headers=headers | bearer)).status == 200


async def test_pages_of_other_sites_cannot_ask_but_links_can_be_followed(browse: Browse) -> None:
    client = await browse(HERE)
    host = f"127.0.0.1:{client.port}"
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://[evil"},
        {"Origin": "http://127.0.0.1:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},
    ):
        assert (await client.post("/question", json=PEOPLE, headers=headers)).status == 403
    linked = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    assert (await client.get("/", headers=linked)).status == 200
    own = {"Origin": f"http://{host}", "Sec-Fetch-Site": "same-origin"}
    reply = await client.post("/question", json=PEOPLE, headers=own)
    assert (await reply.json())["error"]["message"].startswith("sql: ")
    for form in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        reply = await client.post("/question", data=b"{}", headers={"Content-Type": form})
        assert reply.status == 415, form


async def test_elsewhere_each_role_needs_its_own_token(browse: Browse) -> None:
    access = Access(EVERYWHERE, 6066)
    operator, analyst = access.tokens["operator"], access.tokens["analyst"]
    assert operator != analyst
    client = await browse(access)

    async def status(path: str, token: str | None = None) -> int:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        reply = await client.get(path, headers=headers, allow_redirects=False)
        return int(reply.status)

    for path in ("/", "/ask", "/stream/operator", "/stream/analyst", "/metrics", "/none"):
        assert await status(path) == 401, path
        assert await status(path, "x" * len(operator)) == 401, path
    assert await status("/", operator) == await status("/ask", operator) == 200
    assert await status("/metrics", operator) == 200
    assert await status("/ask", analyst) == 200
    assert await status("/", analyst) == 303
    assert await status("/stream/operator", analyst) == await status("/metrics", analyst) == 401
    assert await status("/static/page.css") == 200
    entrance = await client.get("/", headers={"Accept": "text/html"})
    assert "Overview" not in await entrance.text()
    assert 'id="token"' in await entrance.text()


async def test_a_token_becomes_a_cookie_that_scripts_and_other_sites_never_get(
    browse: Browse,
) -> None:
    client = await browse(Access(EVERYWHERE, 6066, operator_token=OPERATOR))
    reply = await client.post("/enter", json={"token": "b" * 16})
    assert "error" in await reply.json()
    assert "Set-Cookie" not in reply.headers
    reply = await client.post("/enter", json={"token": OPERATOR})
    assert await reply.json() == {"role": "operator", "name": None}
    attributes = reply.headers["Set-Cookie"].lower().split("; ")
    assert {"httponly", "samesite=strict", "path=/"} <= set(attributes)
    assert "secure" not in attributes  # a browser would not send it back to plain HTTP
    by_tls = {"Origin": f"https://127.0.0.1:{client.port}"}
    reply = await client.post("/enter", json={"token": OPERATOR}, headers=by_tls)
    assert "secure" in reply.headers["Set-Cookie"].lower().split("; ")
    cookies = {"stream_dp_6066": OPERATOR}
    assert (await client.get("/", cookies=cookies)).status == 200


def test_tokens_that_are_guessed_easily_or_open_both_doors_are_refused() -> None:
    with pytest.raises(InvalidInput, match="STREAM_DP_WEB_OPERATOR_TOKEN: it is too short"):
        Access("127.0.0.1", 6066, operator_token="secret")
    with pytest.raises(
        InvalidInput, match="STREAM_DP_WEB_ANALYST_TOKEN: it is the same as the operator's"
    ):
        Access("127.0.0.1", 6066, operator_token="t" * 16, analyst_token="t" * 16)
    given = Access("127.0.0.1", 6066, analyst_token="t" * 16)
    assert given.role_of("t" * 16) == "analyst"
    assert set(given.tokens) == {"operator", "analyst"}
    assert Access("127.0.0.1", 6066).tokens == {}


def test_loopback_addresses_are_told_from_others() -> None:
    assert all(map(is_loopback, ("127.0.0.1", "127.8.8.8", "::1", "[::1]", "localhost")))
    assert not any(map(is_loopback, (EVERYWHERE, "::", "10.0.0.1", "localhost.evil.example", "")))


async def test_a_port_for_prometheus_has_no_page_and_no_name_of_another_site() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    serving = asyncio.create_task(serve_metrics(WITH_TOKENS, "127.0.0.1", port, lambda: b"figures"))
    async with ClientSession(f"http://127.0.0.1:{port}") as client:
        while True:
            with contextlib.suppress(ClientConnectionError):
                reply = await client.get("/metrics")
                break
            await asyncio.sleep(0.01)
        assert await reply.text() == "figures"
        assert (await client.get("/")).status == 404
        rebound = {"Host": f"evil.example:{port}"}
        assert (await client.get("/metrics", headers=rebound)).status == 421
    serving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await serving


async def test_nothing_is_served_but_what_this_project_has_written() -> None:
    app = create_app(WorkerSettings())
    pages_of(HERE, app.health).install(app.web.web_app)
    app.web.init_server()
    assert {route.resource.canonical for route in app.web.web_app.router.routes()} == {
        *("/", "/ask", "/enter", "/question", "/static/{name}"),
        *("/stream/operator", "/stream/analyst", "/healthz", "/metrics"),
        *openapi(operations_of(Api))["paths"],
    }


async def test_analysts_leave_room_for_the_operators_pages(browse: Browse) -> None:
    client = await browse(WITH_TOKENS)

    async def opened(view: str, token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return int((await client.get(f"/stream/{view}", headers=headers)).status)

    for view, token, n in (("analyst", ANALYST, 24), ("operator", OPERATOR, 8)):
        assert {await opened(view, token) for _ in range(n)} == {200}
        assert await opened(view, token) == 503


async def test_only_files_meant_for_browsers_are_served(browse: Browse) -> None:
    client = await browse(HERE)
    assert (await client.head("/stream/operator")).status == 405
    for name in ("operator.html", "../pages.py", "%2e%2e/pages.py", "page.css/", "none.js"):
        assert (await client.get(f"/static/{name}")).status == 404, name
    reply = await client.get("/static/operator.js")
    assert reply.content_type == "text/javascript"
    policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy


@pytest.mark.parametrize(
    ("path", "body", "headers", "status"),
    [
        ("/question", b"[]", JSON, 400),
        ("/question", b"{", JSON, 400),
        ("/question", b"[" * 50_000, JSON, 400),
        ("/question", b'{"dataset": "People!"}', JSON, 200),
        ("/question", b'{"dataset": "people", "colour": "red"}', JSON, 200),
        ("/question", b'{"dataset": "people", "window": {"last_phases": 0}}', JSON, 200),
        ("/question", b'{"dataset": "people", "quote": 1}', JSON, 200),
        ("/question", b"none", {**JSON, "Content-Encoding": "gzip"}, 400),
        ("/question", b'{"sql": "%s"}' % (b"x" * 100_000), JSON, 413),
        ("/enter", b'{"token": "%s"}' % (b"x" * 100_000), JSON, 413),
    ],
)
async def test_what_is_no_question_is_the_fault_of_whoever_sent_it(
    browse: Browse, path: str, body: bytes, headers: dict[str, str], status: int
) -> None:
    reply = await (await browse(HERE)).post(path, data=body, headers=headers)
    assert reply.status == status
    if status == 200:
        assert "error" in await reply.json()


def test_the_files_hold_nothing_that_the_policy_forbids_or_that_makes_text_markup() -> None:
    found = {file.name: file.read_text() for file in (files("stream_dp.web") / "static").iterdir()}
    assert {"operator.html", "analyst.html", "enter.html", "page.css"} < found.keys()
    for name, text in found.items():
        markup = re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", text)
        assert markup is None, name
        elsewhere = set(re.findall(r"https?://[^\s\"']+", text)) - {"http://www.w3.org/2000/svg"}
        assert elsewhere == set(), name
        if name.endswith(".html"):
            assert not re.search(r"<style|style=|<script>|\son\w+=|javascript:", text), name
