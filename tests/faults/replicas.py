"""A Redis with a replica that may lag behind, and a Sentinel that promotes it when the primary is away.

In a test, or in a longer run of your own::

    with Replicas(folder) as replicas:
        worker = deployment.worker(...)   # redis_url=replicas.url
        replicas.lag(True)                # from now on the replica lacks what is written
        replicas.promote()                # kill -9 of the primary; the replica is the primary now
        replicas.come_back()              # the former primary is the replica of the new one
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import redis

from stream_dp.embedded import ports
from stream_dp.embedded.embedded_server import EmbeddedServer
from stream_dp.embedded.valkey_server import ValkeyServer, find_valkey
from tests.waiting import until

NAME = "store"
"""The name that the Sentinel has for the primary."""

KEEPS = {"appendonly": "yes", "appendfsync": "everysec", "auto-aof-rewrite-min-size": "128mb"}
"""Settings of a server that keeps on disk what it has, so that it can go back to an older copy."""

_DOWN_AFTER_MS = 3_000
_FAILOVER_MS = 5_000  # twice as long passes between two failovers


class Node(ValkeyServer):
    """A Redis. It keeps its port when it starts again, and its data if its settings say so."""

    def __init__(self, folder: Path, port: int, settings: dict[str, str]) -> None:
        super().__init__(folder, log=folder.with_suffix(".log"), port=port)
        self._more = settings

    def _arguments(self) -> list[str]:
        more = [word for key, value in self._more.items() for word in (f"--{key}", value)]
        return [*super()._arguments(), *more]

    def command(self, *words: str | int) -> Any:
        """A command's reply."""
        with redis.Redis.from_url(self.url) as client:
            return client.execute_command(*words)

    def facts(self) -> dict[str, Any]:
        """What it says about its replication."""
        return self.command("INFO", "replication")

    def follow(self, other: Node) -> None:
        """Makes it a replica of another server."""
        self.command("REPLICAOF", ports.HOST, other.port)

    def follows(self, other: Node) -> bool:
        """Whether it is a replica of that server and receives its writes."""
        facts = self.facts()
        return (
            facts["role"] == "slave"
            and facts["master_port"] == other.port
            and facts["master_link_status"] == "up"
        )

    def kill(self) -> None:
        """kill -9, and wait for the end."""
        os.kill(self.pid, signal.SIGKILL)
        self.stop()


class _Sentinel(EmbeddedServer):
    """The only Sentinel: what it thinks is decided."""

    name: ClassVar[str] = "Sentinel"

    def __init__(self, folder: Path, primary: Node) -> None:
        super().__init__(folder, log=folder.with_suffix(".log"))
        self._primary = primary

    def _start(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        settings = self._folder / "sentinel.conf"  # it notes there what it has found out
        settings.write_text(
            f"port {self.port}\nbind {ports.HOST}\ndir {self._folder}\n"
            f"sentinel monitor {NAME} {ports.HOST} {self._primary.port} 1\n"
            f"sentinel down-after-milliseconds {NAME} {_DOWN_AFTER_MS}\n"
            f"sentinel failover-timeout {NAME} {_FAILOVER_MS}\n"
        )
        command = [str(find_valkey()), str(settings), "--sentinel"]
        self._run(command, lambda: ports.accepts(self.port), 30)

    def command(self, *words: str | int) -> Any:
        with redis.Redis(host=ports.HOST, port=self.port) as client:
            return client.execute_command(*words)


class Replicas:
    """Two servers and a Sentinel on this machine.

    Args:
        folder: The folder for their data and logs.
        settings: Settings of both servers that differ from those of the embedded one, such as
            ``{"appendfsync": "everysec"}``.
    """

    def __init__(self, folder: Path, settings: dict[str, str] | None = None) -> None:
        more = {
            "repl-diskless-sync-delay": "0",
            "repl-ping-replica-period": "1",
            **(settings or {}),
        }
        self.primary, self.replica = (
            Node(folder / name, ports.choose("Redis", None), more) for name in ("one", "other")
        )
        self._sentinel = _Sentinel(folder / "sentinel", self.primary)
        self._lagging = False
        self._frozen = False

    @property
    def url(self) -> str:
        """The address for workers. It leads to the primary, whichever of the two that is."""
        return f"redis+sentinel://{ports.HOST}:{self._sentinel.port}/{NAME}?db=0"

    def start(self) -> None:
        """Starts all, and waits until the replica has all and the Sentinel knows it."""
        self.primary.start()
        self.replica.start()
        self.replica.follow(self.primary)
        _wait(lambda: self.replica.follows(self.primary))
        self._sentinel.start()
        _wait(lambda: len(self._sentinel.command("SENTINEL", "REPLICAS", NAME)) == 1)

    def stop(self) -> None:
        """Ends all."""
        self.thaw()
        for server in (self._sentinel, self.replica, self.primary):
            server.stop()

    def lag(self, on: bool) -> None:
        """Lets the replica fall behind from now on, or lets it catch up and waits until it has.

        The primary refuses to send its writes. The replica still answers, so the Sentinel does not miss it.
        """
        sign = "-" if on else "+"
        self.primary.command("ACL", "SETUSER", "default", f"{sign}psync", f"{sign}sync")
        if on:
            self.primary.command("CLIENT", "KILL", "TYPE", "replica")
        _wait(lambda: self.replica.follows(self.primary) != on)
        self._lagging = on

    def wait_in_sync(self) -> None:
        """Waits until the replica has all that was written so far."""
        written = self.primary.facts()["master_repl_offset"]
        _wait(lambda: self.replica.facts()["slave_repl_offset"] >= written)

    def promote(self, *, freeze: bool = False) -> None:
        """Takes the primary away, and waits until the Sentinel has made the replica the primary.

        Args:
            freeze: Stops the primary where it stands, in place of kill -9. When it comes back it still thinks
                that it is the primary, for some seconds, and connections to it still stand.
        """
        if freeze:
            os.kill(self.primary.pid, signal.SIGSTOP)
            self._frozen = True
        else:
            self.primary.kill()
        if self._lagging:
            # A Sentinel promotes no replica that has been without its primary for long.
            self.replica.command("REPLICAOF", "NO", "ONE")
            self._lagging = False
        self.primary, self.replica = self.replica, self.primary
        _wait(lambda: self.named() == self.primary.port)
        _wait(lambda: self.primary.facts()["role"] == "master")

    def come_back(self) -> None:
        """Lets the former primary return, and waits until the Sentinel has made it a replica.

        It then has what the new primary has, and nothing else.
        """
        self.thaw()
        if self.replica.failure() is not None:
            self.replica.start()
        _wait(lambda: self.replica.follows(self.primary))

    def named(self) -> int:
        """The port of the primary, as the Sentinel says."""
        _, port = self._sentinel.command("SENTINEL", "GET-MASTER-ADDR-BY-NAME", NAME)
        return int(port)

    def misname(self, name: str) -> str:
        """Makes the Sentinel name the replica as the primary of ``name``; returns that address."""
        self._sentinel.command("SENTINEL", "MONITOR", name, ports.HOST, self.replica.port, 1)
        return self.url.replace(f"/{NAME}?", f"/{name}?")

    def thaw(self) -> None:
        """Lets a former primary that was frozen go on, and waits for nothing."""
        if self._frozen:
            os.kill(self.replica.pid, signal.SIGCONT)
            self._frozen = False

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


def _wait(condition: Callable[[], bool]) -> None:
    until(condition, "the servers did not get there", ignoring=(redis.ConnectionError,))
