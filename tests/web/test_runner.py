"""No client that is waited for keeps others from the pages, and nothing of what it sends is logged."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import Any

import pytest
from aiohttp import web

from stream_dp.web import event_stream, page_server
from stream_dp.web.access import Access
from stream_dp.web.http_api import bodies
from stream_dp.web.page_server import Runner
from tests.web.conftest import pages_of

PLACES = page_server._MOST_CONNECTIONS
END = b"Connection: close\r\n\r\n"
GET_OF = b"GET %s HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /enter HTTP/1.1\r\nHost: localhost\r\n"
IN_JSON = b"Content-Type: application/json\r\n"
SLOW_BODY = POST + IN_JSON + b"Content-Length: 9\r\n\r\n{"
CANARY = b"zyzzyva"


class Site:
    """The pages on a port of this machine, with a page that goes on for ever and one that is long."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self.ended = asyncio.Event()
        self.address = ("", 0)

    async def start(self) -> None:
        app = web.Application()
        pages_of(Access("127.0.0.1", 6066)).install(app)
        app.router.add_get("/healthz", self._health)
        app.router.add_get("/metrics", self._health)
        app.router.add_get("/flood", self._flood)
        served_by = Runner(app)
        await served_by.setup()
        self._stack.push_async_callback(served_by.cleanup)
        await web.TCPSite(served_by, "127.0.0.1", 0).start()
        host, port, *_ = served_by.addresses[0]
        self.address = host, port

    async def _health(self, _: web.Request) -> web.Response:
        return web.Response(text="well")

    async def _flood(self, request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        try:
            await response.prepare(request)
            while True:
                await response.write(b"x" * 65_536)
        finally:
            self.ended.set()

    async def connect(self, sent: bytes = b"", source: str = "127.0.0.1") -> Any:
        """The two ends of a connection that is open to the end of the test."""
        reader, writer = await asyncio.open_connection(*self.address, local_addr=(source, 0))
        self._stack.callback(writer.close)
        writer.write(sent)
        return reader, writer

    async def get(self, path: str) -> bytes:
        """What a request is answered; b"" where the connection ends instead."""
        try:
            reader, writer = await asyncio.open_connection(*self.address)
            writer.write(GET_OF % path.encode() + END)
            reply = await reader.read()
            writer.close()
        except ConnectionError:
            return b""
        return reply

    def get_from_elsewhere(self, path: str) -> bytes:
        """The same, without the event loop that serves it."""
        try:
            with socket.create_connection(self.address, timeout=3.0) as one:
                one.sendall(GET_OF % path.encode() + END)
                return b"".join(iter(partial(one.recv, 65_536), b""))
        except OSError:
            return b""


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        served = Site(stack)
        await served.start()
        yield served


async def _is_ended(reader: asyncio.StreamReader) -> bool:
    with suppress(ConnectionError):
        await reader.read()
    return True


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
        SLOW_BODY,
        b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
    ],
    ids=["nothing", "half a head", "half a body", "a request, and then nothing"],
)
async def test_a_new_client_gets_the_place_of_one_that_is_waited_for(
    site: Site, sent: bytes
) -> None:
    first, *_ = [await site.connect(sent) for _ in range(PLACES)]
    for path in ("/healthz", "/metrics", "/", "/ask"):
        assert b"200 OK" in await site.get(path), path
    assert await _is_ended(first[0])


ATTACK = """
import os, socket, sys, time

def is_open(one):
    try:
        return one.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False

held, parent, rounds = [], os.getppid(), 0
while os.getppid() == parent:
    for _ in range(400 - len(held)):
        one = socket.socket()
        one.setblocking(False)
        one.connect_ex(("127.0.0.1", int(sys.argv[1])))
        held.append(one)
    time.sleep(0.05)
    for one in held[::2]:
        try:
            one.send(b"G")
        except OSError:
            pass
    held = [one for one in held if is_open(one)]
    rounds += 1
    if rounds == 5:
        print("under attack", flush=True)
"""
"""Keeps 400 connections, replaces those that it loses, and writes heads that never end on half of them."""


async def test_health_is_told_and_pages_go_on_while_others_open_connections_without_end(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_stream, "_STILL_HERE_S", 1.0)
    reader, _ = await site.connect(b"GET /stream/operator HTTP/1.1\r\nHost: localhost\r\n" + END)
    assert b"200 OK" in await reader.readline()
    command = (sys.executable, "-c", ATTACK, str(site.address[1]))
    attackers = [
        await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE) for _ in range(2)
    ]
    try:
        for attacker in attackers:
            assert attacker.stdout is not None
            assert await attacker.stdout.readline() == b"under attack\n"
        for path in ("/healthz", "/metrics") * 50:
            for _ in range(5):
                if b"well" in await asyncio.to_thread(site.get_from_elsewhere, path):
                    break
            else:
                raise AssertionError(f"{path} is kept from everybody")
        await reader.readuntil(b"event: here")
    finally:
        for attacker in attackers:
            attacker.kill()
            await attacker.wait()


async def test_the_address_with_the_most_connections_loses_them_first(site: Site) -> None:
    try:
        reader, writer = await site.connect(source="127.0.0.2")
    except OSError:
        pytest.skip("this machine has one loopback address")
    for _ in range(2 * PLACES):
        await site.connect()
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n" + END)
    assert b"well" in await reader.read()


async def test_a_head_has_so_many_seconds_whatever_trickles_in(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server, "_HEAD_S", 0.2)

    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        for _ in range(1_000):
            writer.write(b"x")
            with suppress(TimeoutError, ConnectionError):
                assert await asyncio.wait_for(reader.read(1), 0.02) == b""
                return
        raise AssertionError("it was waited for without end")

    await trickle(*await site.connect())
    reader, writer = await site.connect(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readuntil(b"well")
    await asyncio.sleep(0.5)  # a browser asks again, later, by the same connection
    writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    await reader.readuntil(b"well")
    await trickle(reader, writer)


async def test_what_is_served_takes_as_long_as_it_takes(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server, "_HEAD_S", 0.2)
    monkeypatch.setattr(page_server, "_UNREAD_S", 0.2)
    monkeypatch.setattr(event_stream, "_STILL_HERE_S", 1.0)
    reader, _ = await site.connect(b"GET /stream/analyst HTTP/1.1\r\nHost: localhost\r\n" + END)
    for _ in range(PLACES + page_server._ENDED_AT_ONCE):
        await site.connect()
    await reader.readuntil(b"event: here")


async def test_a_body_has_so_many_seconds(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bodies, "_PATIENCE_S", 0.2)
    monkeypatch.setattr(page_server, "_LEFT_OVER_S", 0.1)
    reader, _ = await site.connect(SLOW_BODY)
    reply = await reader.read()
    assert b"408 Request Timeout" in reply


async def test_what_nobody_reads_is_not_sent_for_ever(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page_server, "_UNREAD_S", 0.2)
    with socket.create_connection(site.address) as one:
        one.sendall(b"GET /flood HTTP/1.1\r\nHost: localhost\r\n" + END)
        await site.ended.wait()


GET = GET_OF % b"/"
ENDED = b"\r\n\r\n"
NOT_HTTP = {
    "a name": CANARY + ENDED,
    "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + CANARY + b"\r\n",
    "a method": CANARY + b" / HTTP/1.1\r\nHost: localhost" + ENDED,
    "a version": b"GET / " + CANARY + ENDED,
    "an address": GET_OF % (b"http://[::1" + CANARY) + b"\r\n",
    "a header": GET + CANARY + ENDED,
    "a long header": GET + b"X: " + 5_000 * CANARY + ENDED,
    "a long path": GET_OF % (b"/" + 5_000 * CANARY) + b"\r\n",
    "a length": POST + b"Content-Length: " + CANARY + ENDED,
    "a chunk": POST + b"Transfer-Encoding: chunked" + ENDED + CANARY + b"\r\n",
    "a chunk that is read": POST
    + IN_JSON
    + b"Transfer-Encoding: chunked"
    + ENDED
    + CANARY
    + b"\r\n",
    "a packed body": POST
    + IN_JSON
    + b"Content-Encoding: gzip\r\nContent-Length: 7"
    + ENDED
    + CANARY,
    "a body cut short": SLOW_BODY + CANARY[:3],
    "another protocol": GET + b"Connection: Upgrade\r\nUpgrade: h2c" + ENDED + CANARY + ENDED,
}


@pytest.mark.parametrize("name", NOT_HTTP)
async def test_what_is_not_http_leaves_no_trace_in_the_log(
    site: Site, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    caplog.set_level(logging.DEBUG)
    caplog.clear()
    reader, writer = await site.connect(NOT_HTTP[name])
    if name == "a body cut short":
        await asyncio.sleep(0.1)  # the page waits for the rest
    else:
        writer.write_eof()
        assert CANARY not in await reader.read()
    writer.close()
    assert b"well" in await site.get("/healthz")
    assert CANARY.decode() not in caplog.text
    assert [
        found for found in caplog.records if found.levelno > logging.DEBUG or found.exc_info
    ] == []


async def test_a_fault_of_our_own_is_logged_with_its_trace(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def broken(_: web.Request) -> web.Response:
        raise ConnectionRefusedError("the broker")

    app = web.Application()
    app.router.add_get("/", broken)
    served_by = Runner(app)
    await served_by.setup()
    await web.TCPSite(served_by, "127.0.0.1", 0).start()
    reader, writer = await asyncio.open_connection(*served_by.addresses[0][:2])
    writer.write(b"GET / HTTP/1.1\r\nHost: localhost\r\n" + END)
    assert b"500 Internal Server Error" in await reader.read()
    writer.close()
    await served_by.cleanup()
    assert "ConnectionRefusedError: the broker" in caplog.text
