"""The persons behind the rows of sealed blocks, as long as a person, or a row, can still be erased.

Where persons can be erased, each slot of a block has the digest of its person next to it, and that of the
key of its row. No look reads these. They are on the private topic alone, veiled by AES-256 in counter mode
with a key of its own for each column, which follows from the key file. So somebody who has the topic without
the file cannot tell which slots are of one person. The commit tells that a column is the one that was kept.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import CTR

from stream_dp.core.rows.person_slots import Slots
from stream_dp.core.rows.slabs import Slab
from stream_dp.pipeline.rows.own_values import OWNER, OwnValues

_KEY_BYTES: Final = 32
_BEGIN: Final = bytes(16)


def veiled(secret: bytes, salt: bytes, slab: Slab) -> Slab:
    """A slab with veiled columns; of one with veiled columns, the slab.

    Args:
        secret: The secret of the data set that follows from the key file, 32 bytes.
        salt: 16 random bytes, which belong to this slab alone.
        slab: The slab.
    """
    columns = {}
    for name, column in slab.columns.items():
        key = blake2b(
            salt + name.encode(), digest_size=_KEY_BYTES, key=secret, person=b"owner"
        ).digest()
        # A key serves one column, so the counter may begin with the same block.
        stream = Cipher(AES(key), CTR(_BEGIN)).encryptor()
        columns[name] = np.frombuffer(stream.update(column.tobytes()), column.dtype)
    return replace(slab, columns=columns)


class BlockOwners:
    """The persons behind the rows of the blocks of one data set, slab by slab. Private.

    Args:
        values: The private values of the data set.
        secret: Returns the secret of the digests, which follows from the key file.

    Attributes:
        after: Phase -> the number of each slab -> that of the last batch whose changes are made in it.
    """

    def __init__(self, values: OwnValues, secret: Callable[[], bytes]) -> None:
        self._values, self._secret = values, secret
        self.after: dict[int, dict[int, int]] = {}

    def __repr__(self) -> str:
        return f"BlockOwners({len(self.after)} blocks)"

    def read(self) -> None:
        """Reads of which slabs there are any."""
        self.after = {}
        for key in sorted(tuple(map(int, key.split(" "))) for key in self._values.named(OWNER)):
            phase, at, after = key
            self.after.setdefault(phase, {})[at] = after

    async def keep(self, phase: int, at: int, slab: Slab, after: int) -> None:
        """Keeps whose the rows of a slab are, in place of what was kept of it before."""
        known = self.after.setdefault(phase, {})
        if at in known:
            self._values.discard(self._key(phase, at))
        known[at] = after
        await self._values.keep_veiled(self._key(phase, at), slab, self._veil)

    async def slots(self, phase: int, at: int) -> tuple[Slots, Slab] | None:
        """Reads whose the rows of a slab are. None if it is nowhere any more."""
        found = await self._values.veiled(self._key(phase, at), self._veil)
        return None if found is None else (Slots.of_columns(found.columns), found)

    def drop(self, n_blocks: int) -> None:
        """Drafts that this is erased of the first blocks."""
        for phase in [phase for phase in self.after if phase <= n_blocks]:
            for at in self.after[phase]:
                self._values.discard(self._key(phase, at))
            del self.after[phase]

    def _key(self, phase: int, at: int) -> str:
        return f"{OWNER}{phase} {at} {self.after[phase][at]}"

    def _veil(self, salt: bytes, slab: Slab) -> Slab:
        return veiled(self._secret(), salt, slab)


def owner_slabs(whose: Slots, sizes: Sequence[int]) -> list[Slab]:
    """The persons behind the rows of some slabs, as slabs of the same numbers of slots."""
    ends = np.cumsum(sizes).tolist()
    parts = (whose.of(slice(end - size, end)) for size, end in zip(sizes, ends, strict=True))
    return [Slab(len(part), len(part), part.owners) for part in parts]
