"""Free ports on the loopback address."""

from __future__ import annotations

import hashlib
import secrets
import socket
from pathlib import Path

from stream_dp.errors import ServerUnavailable

HOST = "127.0.0.1"
# Below the ranges from which Linux and macOS take the ports of outgoing connections.
_FIRST, _LAST = 20_000, 32_000
_ATTEMPTS = 200


def is_free(port: int) -> bool:
    """Returns whether a server could listen on ``port`` of the loopback address now."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return not accepts(port)  # macOS lets two listen when one of them listens on all addresses


def accepts(port: int) -> bool:
    """Returns whether something listens on ``port`` of the loopback address."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0


def usual(folder: Path) -> int:
    """Returns the port that a server with its data in this folder has whenever it can."""
    digest = hashlib.sha256(bytes(folder.resolve())).digest()
    return _FIRST + int.from_bytes(digest[:4]) % (_LAST - _FIRST)


def choose(server: str, given: int | None, wished: int | None = None) -> int:
    """Chooses the given port, or else the wished one if it is free, or else a free one.

    Raises:
        ServerUnavailable: The given port is taken, or none is free.
    """
    if given is not None:
        if is_free(given):
            return given
        raise ServerUnavailable(
            f"{server} cannot listen on port {given} of {HOST}, because another program does; "
            f"stop that program, or let stream-dp choose a free port"
        )
    if wished is not None and is_free(wished):
        return wished
    for _ in range(_ATTEMPTS):
        port = _FIRST + secrets.randbelow(_LAST - _FIRST)
        if is_free(port):
            return port
    raise ServerUnavailable(f"no free port for {server} between {_FIRST} and {_LAST} of {HOST}")
