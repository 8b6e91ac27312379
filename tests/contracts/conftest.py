"""Servers to run one suite against, which tests may kill, starve and misconfigure."""

from __future__ import annotations

import os
import random
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import pytest
import redis

from stream_dp.errors import ServerUnavailable
from tests.waiting import until

HOST = "127.0.0.1"
SAFE = {
    "appendonly": "yes",
    "appendfsync": "always",
    "no-appendfsync-on-rewrite": "no",
    "maxmemory-policy": "noeviction",
    "save": "",
}


class Server:
    """A Redis or Valkey of one test, with its data in a folder that outlives a kill."""

    def __init__(self, program: Path, folder: Path, **options: str) -> None:
        self.folder = folder
        self._program = program
        self._options = {**SAFE, **{k.replace("_", "-"): v for k, v in options.items()}}
        if (
            "cluster-enabled" in self._options
        ):  # else 10,000 above the port, where connections go out
            self._options["cluster-port"] = str(_free_port())
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()

    @property
    def url(self) -> str:
        return f"redis://{HOST}:{self.port}/0"

    def start(self) -> Server:
        self.folder.mkdir(parents=True, exist_ok=True)
        settings = {"port": str(self.port), "bind": HOST, "dir": str(self.folder), **self._options}
        arguments = [word for name, value in settings.items() for word in (f"--{name}", value)]
        with (self.folder / "server.log").open("ab") as output:
            process = self._process = subprocess.Popen(
                [str(self._program), *arguments], stdout=output, stderr=output
            )

        def log() -> str:
            return (self.folder / "server.log").read_text(errors="replace")

        def ready() -> bool:
            assert process.poll() is None, log()
            return self._answers()

        until(ready, log, every_s=0.005)
        return self

    def _answers(self) -> bool:
        with socket.socket() as probe:
            if probe.connect_ex((HOST, self.port)) != 0:
                return False
            probe.settimeout(5)
            try:
                probe.sendall(b"PING\r\n")
                return probe.recv(64) == b"+PONG\r\n"
            except OSError:  # it has just ended: the caller finds out and shows its log
                return False

    def kill(self) -> None:
        """kill -9, and wait for the end."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


def _free_port() -> int:
    """A free port below the range of outgoing connections, which could take it before the server does."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe:
            if probe.connect_ex((HOST, port)) != 0:
                return port


class MakeServer(Protocol):
    def __call__(self, **options: str) -> Server: ...


def _program(kind: str) -> Path:
    if kind == "redis":
        found = shutil.which("redis-server")
        if found is not None:
            return Path(found)
        missing = "redis-server is not on the PATH"
    else:
        from stream_dp.embedded.valkey_server import find_valkey

        try:
            return find_valkey()
        except ServerUnavailable as error:
            missing = str(error)
    if os.environ.get("CI"):
        pytest.fail(missing)
    pytest.skip(missing)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a redis-server with safe settings, one a session. Data of other tests is in it."""
    server = Server(_program("redis"), tmp_path_factory.mktemp("redis")).start()
    yield server.url
    server.kill()


@pytest.fixture(params=["valkey", "redis"])
def make_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeServer]:
    """``make_server(**options)``: a running server of the test's own, of each kind."""
    program = _program(request.param)
    made: list[Server] = []

    def make(**options: str) -> Server:
        made.append(Server(program, tmp_path / f"server{len(made)}", **options))
        return made[-1].start()

    yield make
    for server in made:
        server.kill()


def dump_server(url: str, prefix: str) -> dict[bytes, object]:
    """Every key under ``prefix`` with its type, time to live and content."""
    contents: dict[bytes, object] = {}
    with redis.Redis.from_url(url) as client:
        for key in client.scan_iter(match=prefix.replace("{", "\\{") + "*", count=1_000):
            kind = client.type(key)
            read: Callable[[bytes], Any] = {
                b"hash": client.hgetall,
                b"list": lambda key: client.lrange(key, 0, -1),
                b"set": client.smembers,
                b"string": client.get,
            }[kind]
            contents[key] = (kind, client.ttl(key), read(key))
    return contents


@pytest.fixture
def dump() -> Callable[[str, str], dict[bytes, object]]:
    """``dump(url, prefix)``: every key under a prefix with its type, time to live and content."""
    return dump_server
