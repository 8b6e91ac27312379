"""Serves ``/metrics`` on a separate port, for a Prometheus that has no token for the pages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aiohttp import web

from stream_dp.web.access import Access
from stream_dp.web.page_server import Runner


async def serve_metrics(
    access: Access, host: str, port: int, exposition: Callable[[], bytes]
) -> None:
    """Serves the metrics to anyone who reaches the port, until it is cancelled."""

    async def metrics(_: web.Request) -> web.Response:
        return web.Response(body=exposition(), content_type="text/plain")

    app = web.Application()
    access.install_without_tokens(app)
    app.router.add_get("/metrics", metrics)
    runner = Runner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, host, port).start()
        await asyncio.Event().wait()
    finally:
        await runner.cleanup()
