"""Private values on their topic: their names, their parts, and where these are.

A value is a block of rows, a secret, or what persons have used. Its name is a digest of it and of 16 random
bytes that lie in front of it. So a name tells nothing, no worker overwrites the value of another one, and
a reader of a value can tell that it is the one that was meant.

A value is cut into parts of limited size, which are pieces of it and nothing else. A part may be missing, or
be of something else: what a reader has joined is the value that was meant if it has the name.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from secrets import token_bytes
from typing import Final

from stream_dp.core.encoding import IDENTITY_BYTES, Format, fields

MOST_BYTES: Final = 256 << 20
"""The most bytes of a value: half of what Redis and Valkey take as one argument, unless told otherwise."""

PART_BYTES: Final = 2**22
MOST_PARTS: Final = MOST_BYTES // PART_BYTES
_SALT_BYTES: Final = 16
_NAMED = Format("name of a kept value")
"""Another way to cut values, which say no version of their own, needs another version of this."""


def salted(value: bytes) -> bytes:
    """What is kept of a value: 16 random bytes of the operating system, then the value. Private."""
    return token_bytes(_SALT_BYTES) + value


def unsalted(kept: bytes) -> bytes:
    """The value of what is kept. Private."""
    return kept[_SALT_BYTES:]


def name_of(kept: bytes) -> bytes:
    """The name of what is kept, 16 bytes. It tells nothing of the value."""
    return blake2b(kept, digest_size=IDENTITY_BYTES).digest()


def cut(kept: bytes) -> list[bytes]:
    """Cuts what is kept into parts. No part is empty, for a record without content erases.

    Raises:
        ValueError: It is larger than ``MOST_BYTES``.
    """
    if len(kept) > MOST_BYTES:
        raise ValueError(f"a kept value has at most {MOST_BYTES:,} bytes")
    return [kept[at : at + PART_BYTES] for at in range(0, len(kept), PART_BYTES)]


@dataclass(frozen=True, slots=True)
class Named:
    """A kept value as a commit names it. All but the name follows from public numbers.

    Attributes:
        name: Its name, 16 bytes.
        offsets: The offset of each of its parts, in order.
    """

    name: bytes
    offsets: tuple[int, ...]

    def to_bytes(self) -> bytes:
        n_parts = len(self.offsets)
        return _NAMED.pack(self.name, fields(f"<I{n_parts}Q", n_parts, *self.offsets))

    @classmethod
    def from_bytes(cls, data: bytes) -> Named:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: The bytes do not decode, or their version is unknown.
        """
        reader = _NAMED.read(data)
        name = reader.take(IDENTITY_BYTES)
        (n_parts,) = reader.fields("<I")
        reader.require(1 <= n_parts <= MOST_PARTS, "has a number of parts that it cannot have")
        offsets = reader.fields(f"<{n_parts}Q")
        reader.end()
        return cls(name, offsets)
