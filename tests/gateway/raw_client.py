"""A client that sends bytes as they are, and reads messages as pairs of a kind and a body."""

from __future__ import annotations

import socket
import struct
from typing import Self

from tests.waiting import PATIENCE_S


class RawClient:
    """A connection of bytes."""

    def __init__(self, port: int) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), PATIENCE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def send(self, data: bytes) -> Self:
        self._socket.sendall(data)
        return self

    def start(self, version: int = 3 << 16, **said: str) -> Self:
        """Sends the first message."""
        body = b"".join(f"{name}\0{value}\0".encode() for name, value in said.items()) + b"\0"
        return self.send(struct.pack("!ii", len(body) + 8, version) + body)

    def enter(self) -> Self:
        """Logs in as ann, and skips what the server says first."""
        self.start(user="ann", database="stream_dp")
        while self.read()[0] != "Z":
            pass
        return self

    def exactly(self, n: int) -> bytes:
        found = b""
        while len(found) < n:
            more = self._socket.recv(n - len(found))
            if not more:
                raise EOFError(found)
            found += more
        return found

    def read(self) -> tuple[str, bytes]:
        head = self.exactly(5)
        return head[:1].decode(), self.exactly(struct.unpack("!i", head[1:])[0] - 4)

    def until(self, *kinds: str) -> list[tuple[str, bytes]]:
        """Reads up to the first message of one of some kinds."""
        found = [self.read()]
        while found[-1][0] not in kinds:
            found.append(self.read())
        return found

    def rest(self) -> bytes:
        """Returns what the server sends until it closes the connection."""
        found = b""
        while more := self._socket.recv(4096):
            found += more
        return found

    def is_closed(self) -> bool:
        """Returns whether the server has closed the connection, and says nothing more."""
        try:
            return self._socket.recv(1) == b""
        except ConnectionError:
            return True


def message(kind: str, body: bytes = b"") -> bytes:
    return kind.encode() + struct.pack("!i", len(body) + 4) + body


def query(text: str) -> bytes:
    return message("Q", text.encode() + b"\0")


def parse(text: str, name: str = "") -> bytes:
    return message("P", f"{name}\0{text}\0".encode() + b"\0\0")


def bind(*values: bytes, name: str = "", portal: str = "") -> bytes:
    fields = b"".join(struct.pack("!i", len(value)) + value for value in values)
    head = f"{portal}\0{name}\0".encode() + b"\0\0" + struct.pack("!h", len(values))
    return message("B", head + fields + b"\0\0")


def describe(kind: str, name: str = "") -> bytes:
    return message("D", f"{kind}{name}\0".encode())


def execute(most: int = 0, portal: str = "") -> bytes:
    return message("E", portal.encode() + b"\0" + struct.pack("!i", most))


SYNC = message("S")


def fields(body: bytes) -> dict[str, str]:
    """The fields of an error or a notice."""
    return {part[:1].decode(): part[1:].decode() for part in body.split(b"\0") if part}
