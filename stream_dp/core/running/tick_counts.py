"""The exact counts of the rows that came in one tick. Private like the rows.

A worker has those of all ticks of an open period: each tick adds them up in another way. They are stored
nowhere, and follow from the rows that wait, each of which says in which tick it came.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from stream_dp.core.encoding import Integers

MOST_ROWS: Final = 2**52
"""Most rows of a period: what its ticks publish stays inside int64."""


@dataclass(frozen=True, slots=True, eq=False)
class TickCounts:
    """How many rows that came in a tick are in each cell of each tile.

    Attributes:
        tables: int64, shape (n_answers,) of each tile. The rows of a period are at most ``MOST_ROWS``.
    """

    tables: tuple[Integers, ...] = field(repr=False)
