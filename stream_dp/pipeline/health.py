"""How a worker is, in figures that are public."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["Contact", "Health"]


class Contact:
    """Whether a server answers, and since when not."""

    def __init__(self) -> None:
        self._heard_s = time.time()
        self._lost = False

    @property
    def away_since(self) -> float | None:
        """When it answered last, in seconds since 1970; None while it answers."""
        return self._heard_s if self._lost else None

    def heard(self) -> None:
        self._heard_s = time.time()
        self._lost = False

    def lost(self) -> None:
        self._lost = True


@dataclass(frozen=True, slots=True)
class Health:
    """What the operator of one worker sees of it.

    Attributes:
        ready: Partitions are read and their data sets loaded: requests are answered.
        partitions: Those that this worker holds.
        behind: Records on the topics that it has not taken yet, as far as the broker told.
        broker_away_since: When the broker answered last, in seconds since 1970; None while it answers.
        store_away_since: The same of Redis.
        store_problems: Why Redis could forget an acknowledged commit; None before the first look.
        waiting: Rows that wait for the next phase, for each of its data sets.
        quarantined: Data sets that take nothing more -> the record at which it died, or the take-over.
        deleted: ``topic:partition`` -> how many records were deleted there before anyone read them.
    """

    ready: bool = False
    partitions: tuple[int, ...] = ()
    behind: int = 0
    broker_away_since: float | None = None
    store_away_since: float | None = None
    store_problems: tuple[str, ...] | None = None
    waiting: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[str, str] = field(default_factory=dict)
    deleted: Mapping[str, int] = field(default_factory=dict)
