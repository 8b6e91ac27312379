"""Large values as records of limited size, and back.

Every part says how many there are, and of which value it is one, by a digest of the whole value. So if a
rewrite is interrupted, old and new parts make a value if both are of the same one, and never otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import blake2b

from stream_dp.core.packing import IDENTITY_BYTES, Format, fields
from stream_dp.state.codec import MAX_BYTES

__all__ = ["MOST_PARTS", "Part", "cut"]

PART_BYTES = 2**22
MOST_PARTS = MAX_BYTES // PART_BYTES
_PART = Format("part of a kept value", 1)


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
