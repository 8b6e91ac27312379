"""A gateway of this process, in front of a worker of this process: no broker, no store, and real answers."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from stream_dp.errors import ServerUnavailable
from stream_dp.gateway.deployment import Deployment
from stream_dp.gateway.gateway_logins import Admission
from stream_dp.gateway.gateway_server import GatewayServer
from stream_dp.tokens import Verifier
from tests.waiting import PATIENCE_S, until
from tests.web.in_process import InProcess


class InProcessGateway:
    """A gateway whose event loop runs in a thread of its own.

    Args:
        world: The worker behind it.
        tls: How connections are encrypted.
        verifier: What verifies tokens.
        accounts: The file of the accounts.
        is_local: Whether its port counts as one of this machine alone.

    Attributes:
        port: Its port.
        server: The server.
    """

    def __init__(
        self,
        world: InProcess,
        *,
        tls: ssl.SSLContext | None = None,
        verifier: Verifier | None = None,
        accounts: Path | None = None,
        is_local: bool = True,
    ) -> None:
        self.world = world
        self.port = 0
        self._ready = threading.Event()
        self._ending = asyncio.Event()
        self._admission = Admission(is_local=is_local, verifier=verifier, accounts=accounts)
        self._tls = tls
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(PATIENCE_S)
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ending.set)
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with asyncio.Runner() as runner:
            self._loop = runner.get_loop()
            try:
                runner.run(self._serve())
            except BaseException as failure:  # noqa: BLE001 - the test is told
                self._failure = failure
                self._ready.set()

    async def _serve(self) -> None:
        self.deployment = Deployment(lambda: self.world.connect("gateway"))
        await self.deployment.start()
        self.server = GatewayServer(self.deployment, self._admission, self._tls)
        listening = await self.server.listen("127.0.0.1", 0)
        self.port = listening.sockets[0].getsockname()[1]
        self._ready.set()
        async with listening:
            await self._ending.wait()
        await self.deployment.close()

    def call(self, work: Callable[[], Any]) -> Any:
        """Runs a function in the loop of the gateway."""

        async def run() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(PATIENCE_S)

    def lose(self, event: Callable[[], object]) -> None:
        """Lets the gateway fail at an event, and returns when another client follows the events."""
        before, reader = self.deployment.client, self.deployment.reader

        def fail(_: object) -> None:
            raise ZeroDivisionError

        reader.announce = fail  # type: ignore[assignment, method-assign]
        event()

        def is_another() -> bool:
            try:
                return self.deployment.client is not before
            except ServerUnavailable:
                return False

        until(is_another)

    def wake(self) -> None:
        """Lets the worker read again, and what has come meanwhile."""
        self.world.session.is_asleep = False
        self.world.session.run()

    def url(self, user: str = "ann", password: str = "", database: str = "stream_dp") -> str:
        """Returns the address of a connection."""
        secret = f":{password}" if password else ""
        return f"postgresql://{user}{secret}@127.0.0.1:{self.port}/{database}"
