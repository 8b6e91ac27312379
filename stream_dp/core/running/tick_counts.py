"""The exact counts of the rows that came in one tick. Private like the rows.

A worker keeps those of all ticks of an open period: each tick adds them up in another way. It can store each
as it is, or count them again from the rows that wait, which lie between the public places of two ticks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Final

from stream_dp.core.encoding import Format, Integers, integers

MOST_ROWS: Final = 2**52
"""Most rows of a period: what its ticks publish stays inside int64."""


@dataclass(frozen=True, slots=True, eq=False)
class TickCounts:
    """How many rows that came in a tick are in each cell of each tile.

    Attributes:
        tables: int64, shape (n_answers,) of each tile. The rows of a period are at most ``MOST_ROWS``.
    """

    tables: tuple[Integers, ...] = field(repr=False)

    _FORMAT: ClassVar[Format] = Format("count of a tick")

    def to_bytes(self) -> bytes:
        """Bytes whose length depends on the tiles alone."""
        return self._FORMAT.pack(*map(integers, self.tables))

    @classmethod
    def from_bytes(cls, data: bytes, sizes: Sequence[int]) -> TickCounts:
        """Inverse of ``to_bytes``.

        Args:
            data: The bytes of counts.
            sizes: The answers of each tile.

        Raises:
            CorruptState: They are cut short, too long, or in an unknown version.
        """
        reader = cls._FORMAT.read(data)
        tables = tuple(reader.integers(size) for size in sizes)
        reader.end()
        return cls(tables)
