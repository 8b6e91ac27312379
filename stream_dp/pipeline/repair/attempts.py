"""Counts what workers may die of, on the journal: a process that dies counts nothing afterwards.

Where the last owner of a partition said goodbye, it did not die, and nothing is counted.
"""

from __future__ import annotations

from typing import Final

from stream_dp.pipeline.journal.journal import Journal
from stream_dp.pipeline.journal.owned_partition import Owned

MOST_ATTEMPTS: Final = 3
"""How often a record may end a worker that takes it alone before its data set is quarantined.

It is taken alone after it has ended one that took it among others.
"""


class Trying:
    """Says what is tried before it is, and what did not kill."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._begun: dict[str, Owned] = {}

    async def begins(self, owned: Owned, task: str) -> int:
        """Says that a task is tried; returns how often it was, this time included.

        Args:
            owned: The partition that it is about.
            task: The task, such as a record or the take-over of a data set.
        """
        attempts = owned.marks.trying.get(task, 0) + 1
        if owned.marks.inherited:
            self._begun[task] = owned
            await self._journal.mark(owned, trying={task: attempts})
        return attempts

    async def ends(self, task: str) -> None:
        """Says that a task did not kill."""
        owned = self._begun.pop(task, None)
        if owned is not None:
            await self._journal.mark(owned, trying={task: 0})
