"""Private values on their topic: their names, their parts, and where these are.

A value is a secret, which is one part, or a slab: its index, and then each of its columns. Its name is a
digest of the first part, in which 16 random bytes lie. So a name tells nothing, no worker overwrites the
value of another one, and a reader can tell that a first part is the one that was meant. The index of a slab
tells the same of its columns.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from secrets import token_bytes
from typing import Final

from stream_dp.core.encoding import IDENTITY_BYTES, Format, fields, part

MOST_PARTS: Final = 2**16
SALT_BYTES: Final = 16
STORE_BYTES: Final = 8
_NAMED = Format("name of a kept value")


def new_salt() -> bytes:
    """Draws 16 random bytes of the operating system."""
    return token_bytes(SALT_BYTES)


def salted(value: bytes) -> bytes:
    """What is kept of a secret: 16 random bytes, then the secret. Private."""
    return new_salt() + value


def unsalted(kept: bytes) -> bytes:
    """The secret of what is kept. Private."""
    return kept[SALT_BYTES:]


def name_of(first: bytes) -> bytes:
    """The name of a value with this first part, 16 bytes. It tells nothing of the value."""
    return sha256(first).digest()[:IDENTITY_BYTES]


def is_named(name: bytes, first: bytes) -> bool:
    """Returns whether a value is the one of a name, by its first part."""
    return name_of(first) == name


@dataclass(frozen=True, slots=True)
class Named:
    """A kept value as a commit names it. All but the name follows from public numbers.

    Attributes:
        name: Its name, 16 bytes.
        offsets: The offset of each of its parts on the topic, in order. Empty for a slab in a file.
        store: The store of that file, ``STORE_BYTES`` long; empty for what is on the topic.
    """

    name: bytes
    offsets: tuple[int, ...]
    store: bytes = b""

    def fields(self) -> list[bytes]:
        """The names of its parts in a view, in order. What is in a file is in no view."""
        return [part_name(self.name, number) for number in range(len(self.offsets))]

    def to_bytes(self) -> bytes:
        runs = _runs(self.offsets)
        said = (fields("<QI", run.start, len(run)) for run in runs)
        return _NAMED.pack(self.name, part(self.store), fields("<I", len(runs)), *said)

    @classmethod
    def from_bytes(cls, data: bytes) -> Named:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: The bytes do not decode, or their version is unknown.
        """
        reader = _NAMED.read(data)
        name, store = reader.take(IDENTITY_BYTES), reader.required()
        (n_runs,) = reader.fields("<I")
        offsets: list[int] = []
        for _ in range(n_runs):
            start, length = reader.fields("<QI")
            fits = 0 < length <= MOST_PARTS - len(offsets)
            reader.require(fits, "has a number of parts that it cannot have")
            offsets += range(start, start + length)
        reader.require(len(store) in (0, STORE_BYTES), "names a store that there cannot be")
        reader.require(bool(offsets) is not bool(store), "is in two places, or in none")
        reader.end()
        return cls(name, tuple(offsets), store)


def part_name(name: bytes, number: int) -> bytes:
    """The name of a part in a view; that of the first one is that of the value."""
    return name + number.to_bytes(4) if number else name


def _runs(offsets: tuple[int, ...]) -> list[range]:
    """Offsets as runs of neighbours: of parts that were put together all are."""
    runs: list[range] = []
    for offset in offsets:
        if runs and offset == runs[-1].stop:
            runs[-1] = range(runs[-1].start, offset + 1)
        else:
            runs.append(range(offset, offset + 1))
    return runs
