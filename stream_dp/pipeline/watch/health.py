"""The health of a worker, in figures that are public."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

MOVED: Final = "it was exported to another deployment, so it is served there and never again here"
"""Why a data set is stopped that has moved away. All other such reasons are faults."""


class Contact:
    """The contact with a server: whether it answers, and since when it does not."""

    def __init__(self) -> None:
        self._heard_s = time.time()
        self._lost = False

    @property
    def away_since(self) -> float | None:
        """The time of the server's last answer, in seconds since 1970. None while it answers."""
        return self._heard_s if self._lost else None

    def heard(self) -> None:
        """Notes that the server has answered."""
        self._heard_s = time.time()
        self._lost = False

    def lost(self) -> None:
        """Notes that the server does not answer."""
        self._lost = True


@dataclass(frozen=True, slots=True)
class Health:
    """The state of one worker, as its operator sees it.

    Attributes:
        ready: Whether partitions are read and their data sets loaded, so that requests are answered.
        partitions: The partitions that this worker holds.
        behind: The number of records on the topics that it has not taken yet, as far as the broker told.
        broker_away_since: The time of the broker's last answer, in seconds since 1970. None while it answers.
        store_away_since: The time of the last answer of Redis, in seconds since 1970. None while it answers.
        waiting: The number of rows that wait for the next phase, for each of its data sets.
        quarantined: Each data set that takes nothing more -> the record that the worker died of again and
            again, or the take-over.
        stopped: Each data set that it cannot serve -> why.
        deleted: ``topic:partition`` -> the number of records that were deleted there before anyone read them.
    """

    ready: bool = False
    partitions: tuple[int, ...] = ()
    behind: int = 0
    broker_away_since: float | None = None
    store_away_since: float | None = None
    waiting: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[str, str] = field(default_factory=dict)
    stopped: Mapping[str, str] = field(default_factory=dict)
    deleted: Mapping[str, int] = field(default_factory=dict)
