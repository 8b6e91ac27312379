"""Starts and stops both servers of one machine together."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Final

from stream_dp.embedded import jars
from stream_dp.embedded.embedded_server import GRACE_S, EmbeddedServer
from stream_dp.embedded.folders import Running, StateFolder
from stream_dp.embedded.jars import Progress, Silent
from stream_dp.embedded.kafka_server import KafkaServer
from stream_dp.embedded.valkey_server import ValkeyServer

_LOCK_TIMEOUT_S: Final = GRACE_S + 5


class Servers:
    """Apache Kafka and Valkey as children of this process, with their data in a state folder.

    They end when this process ends, even after kill -9. Use it as a context manager, or call ``start`` and
    ``stop``.

    Args:
        state: The folder of the data, created if missing. It holds rows, so only its owner can read it.
        cache: The folder for downloads.
        topic_prefix: The prefix of the topics that will be served, for commands that look for the servers.
        progress: The receiver of reports about the start.
    """

    def __init__(
        self,
        state: Path,
        cache: Path,
        *,
        topic_prefix: str = "stream-dp.",
        progress: Progress | None = None,
    ) -> None:
        self._folder, self._cache = StateFolder(state), cache
        self._topic_prefix = topic_prefix
        self._progress = progress or Silent()
        self._cancelled = threading.Event()
        self._servers: list[EmbeddedServer] = []

    def start(self) -> Running:
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

    def _start(self, hold: tuple[int, ...]) -> Running:
        path, logs = self._folder.path, self._folder.path / "logs"
        broker_jars = jars.resolve(self._cache, self._progress, cancelled=self._cancelled)
        valkey = ValkeyServer(path / "valkey", log=logs / "valkey.log", hold=hold)
        kafka = KafkaServer(path / "kafka", broker_jars, log=logs / "kafka.log", hold=hold)
        for server in (valkey, kafka):
            self._progress.step(f"Starting {server.name}")
            self._servers.append(server)
            if self._cancelled.is_set():
                server.cancel()
            server.start()
        pids = {"kafka": kafka.pid, "valkey": valkey.pid}
        addresses = kafka.bootstrap_servers, valkey.url
        running = Running(os.getpid(), *addresses, pids, self._topic_prefix)
        self._folder.announce(running)
        return running

    def cancel(self) -> None:
        """Makes a ``start`` that runs in another thread give up soon."""
        self._cancelled.set()
        for server in self._servers:
            server.cancel()

    def failure(self) -> str | None:
        """The reason why one of them no longer runs, for people. None while both run."""
        problems = (server.failure() for server in self._servers)
        return next((problem for problem in problems if problem), None)

    def stop(self) -> None:
        """Stops both and waits for their end. The data stays. It may be called twice."""
        for server in self._servers:
            server.ask_to_stop()
        for server in self._servers:
            server.stop()
        self._servers.clear()
        self._folder.release()

    def __enter__(self) -> Running:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
