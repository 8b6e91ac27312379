"""The event loop of a worker."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.certificates import make_certificate
from tests.waiting import PATIENCE_S

loop = pytest.importorskip("stream_dp.cli.operate.event_loop", reason="uvloop is not for Windows")


def test_a_tls_connection_that_we_close_ends_though_the_server_says_no_goodbye(
    needed: Any, tmp_path: Path
) -> None:
    with needed():
        certificate, key = make_certificate(tmp_path)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(certificate, key)
    over = threading.Event()

    def serve(listener: socket.socket) -> None:
        plain, _ = listener.accept()
        with serving.wrap_socket(plain, server_side=True):
            over.wait(PATIENCE_S)

    async def visit(port: int) -> None:
        trusting = ssl.create_default_context(cafile=certificate)
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusting)
        writer.close()
        # The server is silent: this ends because we go.
        with pytest.raises(TimeoutError, match="SSL shutdown timed out"):
            async with asyncio.timeout(20):
                await writer.wait_closed()

    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=serve, args=(listener,))
        server.start()
        try:
            with asyncio.Runner(loop_factory=loop.LoopPolicy().new_event_loop) as runner:
                runner.run(visit(listener.getsockname()[1]))
        finally:
            over.set()
            server.join()
