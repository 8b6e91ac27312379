"""What serves the pages takes no more connections than it can afford."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

from aiohttp import web

from stream_dp.web.runner import Runner

REQUEST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


async def test_connections_too_many_are_closed_and_do_not_harm_the_others() -> None:
    async def page(_: web.Request) -> web.Response:
        return web.Response(text="a page")

    app = web.Application()
    app.router.add_get("/", page)
    runner = Runner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    (address,) = runner.addresses

    async def asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bytes:
        try:
            writer.write(REQUEST)
            return await reader.read()
        except ConnectionError:
            return b""

    async with AsyncExitStack() as stack:

        async def connected() -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
            reader, writer = await asyncio.open_connection(*address[:2])
            stack.callback(writer.close)
            return reader, writer

        first, *idle = [await connected() for _ in range(128)]
        assert await asked(*await connected()) == b""
        assert b"a page" in await asked(*first)
        assert b"a page" in await asked(*await connected())
        assert len(idle) == 127
    await runner.cleanup()
