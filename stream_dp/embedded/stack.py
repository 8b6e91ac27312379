"""Starts and stops both servers of one machine together."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Final

from stream_dp.embedded import jars
from stream_dp.embedded.embedded_server import GRACE_S, EmbeddedServer
from stream_dp.embedded.folders import Running, StateFolder
from stream_dp.embedded.kafka_server import KafkaServer
from stream_dp.embedded.start_progress import Progress, Silent
from stream_dp.embedded.valkey_server import ValkeyServer
from stream_dp.errors import ServerUnavailable

_LOCK_TIMEOUT_S: Final = GRACE_S + 5


@dataclass(frozen=True, slots=True)
class Addresses:
    """The addresses of the servers for clients."""

    bootstrap_servers: str
    redis_url: str


class Servers:
    """Apache Kafka and Valkey as children of this process, with their data in a state folder.

    They end when this process ends, even after kill -9. Use it as a context manager, plain or asynchronous,
    or call ``start`` and ``stop``.

    Args:
        state: The folder of the data, created if missing. It holds rows, so only its owner can read it.
        cache: The folder for downloads.
        kafka_port: The port of the broker. None takes the port of the last start, or else a free one.
        valkey_port: The port of Valkey. None takes the port of the last start, or else a free one.
        repository: The Maven repository for the broker's jars. None takes Maven Central.
        topic_prefix: The prefix of the topics that will be served, for commands that look for the servers.
        progress: The receiver of reports about the start.
    """

    def __init__(
        self,
        state: Path,
        cache: Path,
        *,
        kafka_port: int | None = None,
        valkey_port: int | None = None,
        repository: str | None = None,
        topic_prefix: str = "stream-dp.",
        progress: Progress | None = None,
    ) -> None:
        self._folder = StateFolder(state)
        self._cache = cache
        self._kafka_port = kafka_port
        self._valkey_port = valkey_port
        self._repository = repository
        self._topic_prefix = topic_prefix
        self._progress = progress or Silent()
        self._cancelled = threading.Event()
        self._servers: list[EmbeddedServer] = []

    def start(self) -> Addresses:
        """Starts both servers and returns when both answer.

        Raises:
            ServerUnavailable: A server cannot be started. The error says why and what to do.
        """
        assert not self._servers, "start() once"
        self._folder.prepare()
        hold = (self._folder.lock(timeout_s=_LOCK_TIMEOUT_S),)
        try:
            return self._start(hold)
        except BaseException:
            self.stop()
            raise

    def _start(self, hold: tuple[int, ...]) -> Addresses:
        path, logs = self._folder.path, self._folder.path / "logs"
        broker_jars = jars.resolve(
            self._cache, self._progress, repository=self._repository, cancelled=self._cancelled
        )
        valkey = ValkeyServer(
            path / "valkey",
            log=logs / "valkey.log",
            port=self._valkey_port,
            remembered=self._folder.remembered("valkey"),
            hold=hold,
        )
        kafka = KafkaServer(
            path / "kafka",
            broker_jars,
            log=logs / "kafka.log",
            port=self._kafka_port,
            remembered=self._folder.remembered("kafka"),
            hold=hold,
        )
        for server in (valkey, kafka):
            self._progress.step(f"Starting {server.name}")
            self._servers.append(server)
            if self._cancelled.is_set():
                server.cancel()
            server.start()
        self._folder.remember({"kafka": kafka.port, "valkey": valkey.port})
        self._folder.announce(
            Running(
                pid=os.getpid(),
                bootstrap_servers=kafka.bootstrap_servers,
                redis_url=valkey.url,
                pids={"kafka": kafka.pid, "valkey": valkey.pid},
                topic_prefix=self._topic_prefix,
            )
        )
        return Addresses(kafka.bootstrap_servers, valkey.url)

    def cancel(self) -> None:
        """Makes a ``start`` that runs in another thread give up soon."""
        self._cancelled.set()
        for server in self._servers:
            server.cancel()

    def failure(self) -> str | None:
        """The reason why one of them no longer runs, for people. None while both run."""
        for server in self._servers:
            if problem := server.failure():
                return problem
        return None

    def stop(self) -> None:
        """Stops both and waits for their end. The data stays. It may be called twice."""
        for server in self._servers:
            server.ask_to_stop()
        for server in self._servers:
            server.stop()
        self._servers.clear()
        self._folder.release()

    def __enter__(self) -> Addresses:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    async def __aenter__(self) -> Addresses:
        starting = asyncio.create_task(asyncio.to_thread(self.start))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:
            self.cancel()
            with contextlib.suppress(ServerUnavailable):
                await starting
            await asyncio.to_thread(self.stop)
            raise

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await asyncio.to_thread(self.stop)
