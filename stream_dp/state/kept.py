"""Private values on their topic: their names, their parts, and where these are.

A value is a block of rows, a secret, or what persons have used. Its name is a digest of it and of 16 random
bytes that lie in front of it. So a name tells nothing, no worker overwrites the value of another one, and
a reader of a value can tell that it is the one that was meant.

A value is cut into parts of limited size. Every part says how many there are, and of which value it is one.
So parts make a value only if all of them are of the same one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from secrets import token_bytes
from typing import Final

from stream_dp.core.packing import IDENTITY_BYTES, Format, fields

__all__ = [
    "MOST_BYTES",
    "MOST_PARTS",
    "Named",
    "Part",
    "Place",
    "cut",
    "joined",
    "name_of",
    "salted",
    "unsalted",
]

MOST_BYTES: Final = 256 << 20
"""The most bytes of a value: half of what Redis and Valkey take as one argument, unless told otherwise."""

PART_BYTES: Final = 2**22
MOST_PARTS: Final = MOST_BYTES // PART_BYTES
_SALT_BYTES: Final = 16
_PART = Format("part of a kept value", 1)
_NAMED = Format("name of a kept value", 1)


def salted(value: bytes) -> bytes:
    """What is kept of a value: 16 random bytes of the operating system, then the value. Private."""
    return token_bytes(_SALT_BYTES) + value


def unsalted(kept: bytes) -> bytes:
    """The value of what is kept. Private."""
    return kept[_SALT_BYTES:]


def name_of(kept: bytes) -> bytes:
    """The name of what is kept, 16 bytes. It tells nothing of the value."""
    return blake2b(kept, digest_size=IDENTITY_BYTES).digest()


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a value. It may hold rows, so its content is in no repr.

    Attributes:
        number: The number of the part, from 0.
        parts: The number of all parts of the value.
        of: A digest of the whole value, 16 bytes.
    """

    number: int
    parts: int
    of: bytes = field(repr=False)
    content: bytes = field(repr=False)

    def to_bytes(self) -> bytes:
        return _PART.pack(fields("<II", self.number, self.parts), self.of, self.content)

    @classmethod
    def from_bytes(cls, data: bytes) -> Part:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: The bytes do not decode, or their version is unknown.
        """
        reader = _PART.read(data)
        number, parts = reader.fields("<II")
        reader.require(number < parts <= MOST_PARTS, "has a number that it cannot have")
        return cls(number, parts, reader.take(IDENTITY_BYTES), reader.rest())


def cut(value: bytes) -> list[Part]:
    """Cuts a value into parts, at least one. The same value always gives the same parts.

    Raises:
        ValueError: The value is larger than ``MOST_BYTES``.
    """
    if len(value) > MOST_BYTES:
        raise ValueError(f"a kept value has at most {MOST_BYTES:,} bytes")
    pieces = [value[at : at + PART_BYTES] for at in range(0, len(value) or 1, PART_BYTES)]
    of = blake2b(value, digest_size=IDENTITY_BYTES).digest()
    return [Part(number, len(pieces), of, piece) for number, piece in enumerate(pieces)]


def joined(parts: Iterable[Part]) -> bytes | None:
    """The value that parts are of, from all of them in order. None if they do not make one."""
    found = list(parts)
    if not found or [part.number for part in found] != list(range(found[0].parts)):
        return None
    value = b"".join(part.content for part in found)
    of = blake2b(value, digest_size=IDENTITY_BYTES).digest()
    return value if {part.of for part in found} == {of} else None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a kept value is. All of it follows from public numbers: its size does, and offsets count records.

    Attributes:
        n_bytes: The length of the value.
        offsets: The offset of each of its parts, in order.
    """

    n_bytes: int
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Named:
    """A kept value as a commit names it.

    Attributes:
        name: Its name, 16 bytes.
        place: Where it is.
    """

    name: bytes
    place: Place

    def to_bytes(self) -> bytes:
        offsets = self.place.offsets
        numbers = fields(f"<QI{len(offsets)}Q", self.place.n_bytes, len(offsets), *offsets)
        return _NAMED.pack(self.name, numbers)

    @classmethod
    def from_bytes(cls, data: bytes) -> Named:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: The bytes do not decode, or their version is unknown.
        """
        reader = _NAMED.read(data)
        name = reader.take(IDENTITY_BYTES)
        n_bytes, n_parts = reader.fields("<QI")
        reader.require(1 <= n_parts <= MOST_PARTS, "has a number of parts that it cannot have")
        offsets = reader.fields(f"<{n_parts}Q")
        reader.end()
        return cls(name, Place(n_bytes, offsets))
