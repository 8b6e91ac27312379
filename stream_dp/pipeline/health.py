"""How a worker is, in figures that are public."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Health"]


@dataclass(frozen=True, slots=True)
class Health:
    """What the operator of one worker sees of it.

    Attributes:
        ready: Partitions are read and their data sets loaded: requests are answered.
        partitions: Those that this worker holds.
        behind: Records on the topics that it has not taken yet.
        store_problems: Why Redis could forget an acknowledged commit; None before the first look.
        waiting: Rows that wait for the next phase, for each of its data sets.
        quarantined: Data sets that take nothing more -> the place of the record at which it died.
    """

    ready: bool = False
    partitions: tuple[int, ...] = ()
    behind: int = 0
    store_problems: tuple[str, ...] | None = None
    waiting: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[str, str] = field(default_factory=dict)
