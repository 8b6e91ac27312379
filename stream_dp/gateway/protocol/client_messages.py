"""The messages that a client sends, read from their bytes (manual of Postgres, "Message Formats")."""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from stream_dp.gateway.protocol.sql_fault import unreadable

SSL_REQUEST: Final = 80877103
GSS_REQUEST: Final = 80877104
CANCEL_REQUEST: Final = 80877102

_OPTION: Final = re.compile(r"(?:-c\s*|--)([\w.]+)=((?:\\.|\S)*)")


class BodyReader:
    """Reads the fields of a message from its start to its end."""

    def __init__(self, body: bytes) -> None:
        self._body = body
        self._at = 0

    def text(self) -> str:
        """Reads a text, which ends with a zero byte."""
        end = self._body.find(b"\0", self._at)
        if end < 0:
            raise unreadable("a text in a message has no end")
        found, self._at = self._body[self._at : end], end + 1
        return _decoded(found)

    def numbers(self, code: str, n: int) -> tuple[int, ...]:
        """Reads ``n`` numbers of one format of ``struct``."""
        form = f"!{n}{code}"
        data = self.bytes(struct.calcsize(form))
        return struct.unpack(form, data)

    def listed(self, code: str) -> tuple[int, ...]:
        """Reads numbers whose count stands before them."""
        (n,) = self.numbers("H", 1)
        return self.numbers(code, n)

    def bytes(self, n: int) -> bytes:
        """Reads ``n`` bytes."""
        if not 0 <= n <= len(self._body) - self._at:
            raise unreadable("a message ends too early")
        found, self._at = self._body[self._at : self._at + n], self._at + n
        return found

    def end(self) -> None:
        """Checks that nothing follows."""
        if self._at < len(self._body):
            raise unreadable("a message is longer than its fields")


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise unreadable("a text in a message is not UTF-8") from None


@dataclass(frozen=True, slots=True)
class StartUp:
    """What a client says when it connects.

    Attributes:
        user: The name to log in with.
        database: The database that it wants.
        settings: The settings that it begins with.
        unknown: The options of the protocol that this server does not know.
        is_newer: Whether it speaks a newer minor version.
    """

    user: str
    database: str
    settings: Mapping[str, str]
    unknown: Sequence[str]
    is_newer: bool

    @classmethod
    def read(cls, version: int, body: bytes) -> StartUp:
        """Reads the message, without its length and version.

        Raises:
            SqlFault: It is not of version 3.
        """
        if version >> 16 != 3:
            raise unreadable("this server speaks version 3 of the protocol")
        parts = [_decoded(part) for part in body.split(b"\0")]
        pairs = {name: value for name, value in zip(parts[::2], parts[1::2], strict=False) if name}
        options = pairs.pop("options", "")
        user, database = pairs.pop("user", ""), pairs.pop("database", "")
        unknown = [name for name in pairs if name.startswith("_pq_.")]
        said = {name.lower(): value for name, value in pairs.items() if name not in unknown}
        said |= {
            name.lower(): re.sub(r"\\(.)", r"\1", value) for name, value in _OPTION.findall(options)
        }
        return cls(user, database or user, said, unknown, bool(version & 0xFFFF))


@dataclass(frozen=True, slots=True)
class Parse:
    """A statement to prepare.

    Attributes:
        name: Its name. Empty for the one without a name.
        text: The statement.
        types: The type of each parameter as an oid, as far as the client says. 0 for unknown.
    """

    name: str
    text: str
    types: tuple[int, ...]

    @classmethod
    def read(cls, body: bytes) -> Parse:
        reader = BodyReader(body)
        found = cls(reader.text(), reader.text(), reader.listed("I"))
        reader.end()
        return found


@dataclass(frozen=True, slots=True)
class Bind:
    """Values for the parameters of a statement, which make a portal.

    Attributes:
        portal: The name of the portal.
        statement: The name of the statement.
        formats: The formats of the values: none, one for all, or one for each. 0 is text and 1 is binary.
        values: The values. None is NULL.
        results: The formats of the columns of the result, as ``formats``.
    """

    portal: str
    statement: str
    formats: tuple[int, ...]
    values: tuple[bytes | None, ...] = field(repr=False)
    results: tuple[int, ...]

    @classmethod
    def read(cls, body: bytes) -> Bind:
        reader = BodyReader(body)
        portal, statement, formats = reader.text(), reader.text(), reader.listed("h")
        (n,) = reader.numbers("H", 1)
        values = []
        for _ in range(n):
            (size,) = reader.numbers("i", 1)
            values.append(None if size < 0 else reader.bytes(size))
        found = cls(portal, statement, formats, tuple(values), reader.listed("h"))
        reader.end()
        if not {*found.formats, *found.results} <= {0, 1}:
            raise unreadable("a format is neither text nor binary")
        return found


@dataclass(frozen=True, slots=True)
class NamedObject:
    """A statement (``S``) or a portal (``P``) to describe or to close."""

    kind: str
    name: str

    @classmethod
    def read(cls, body: bytes) -> NamedObject:
        reader = BodyReader(body)
        kind = _decoded(reader.bytes(1))
        found = cls(kind, reader.text())
        reader.end()
        if kind not in ("S", "P"):
            raise unreadable("only a statement or a portal can be described or closed")
        return found


@dataclass(frozen=True, slots=True)
class Execute:
    """A portal to run.

    Attributes:
        portal: Its name.
        most: The most rows to send now. 0 for all.
    """

    portal: str
    most: int

    @classmethod
    def read(cls, body: bytes) -> Execute:
        reader = BodyReader(body)
        name = reader.text()
        (most,) = reader.numbers("i", 1)
        reader.end()
        return cls(name, max(most, 0))
