"""Large values as records of limited size, and back; and what the store has in place of such a value.

Every part says how many there are, and of which value it is one, by a digest of the whole value. So if a
rewrite is interrupted, old and new parts make a value if both are of the same one, and never otherwise.

A ``Place`` says where the parts of a value are on their topic. A store may have it instead of a block. It
begins with a byte that no block begins with.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b

from stream_dp.core.packing import IDENTITY_BYTES, Format, fields
from stream_dp.state.codec import MAX_BYTES

__all__ = ["MOST_PARTS", "Part", "Place", "cut", "joined"]

PART_BYTES = 2**22
MOST_PARTS = MAX_BYTES // PART_BYTES
_PART = Format("part of a kept value", 1)
_PLACE = Format("place of a kept value", 128)  # blocks have their own versions, below it


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
        ValueError: The value is larger than ``codec.MAX_BYTES``.
    """
    if len(value) > MAX_BYTES:
        raise ValueError(f"a kept value has at most {MAX_BYTES:,} bytes")
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

    def to_bytes(self) -> bytes:
        n_parts = len(self.offsets)
        return _PLACE.pack(fields(f"<QI{n_parts}Q", self.n_bytes, n_parts, *self.offsets))

    @classmethod
    def is_in(cls, data: bytes) -> bool:
        """Returns whether bytes that the store has in place of a block are a place."""
        return any(_PLACE.is_of(data, version) for version in _PLACE.versions)

    @classmethod
    def from_bytes(cls, data: bytes) -> Place:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: The bytes do not decode, or their version is unknown.
        """
        reader = _PLACE.read(data)
        n_bytes, n_parts = reader.fields("<QI")
        reader.require(1 <= n_parts <= MOST_PARTS, "has a number of parts that it cannot have")
        offsets = reader.fields(f"<{n_parts}Q")
        reader.end()
        return cls(n_bytes, offsets)
