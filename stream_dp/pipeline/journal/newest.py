"""Keeps the newest record of each key the last one on compacted topics.

What the journal has may leave. A worker that froze in between goes on where it was, also when another one has
taken over: then an old record comes behind a newer one of its key, and it is the one that the topic keeps. No
broker refuses it. So who takes partitions over looks at these topics, and sends what is newest again.

A worker that goes on joins its group again, and with that all partitions are assigned again: so somebody
looks after the last such record has come.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from typing import Final, NamedTuple

from stream_dp.pipeline.intake.records import Outgoing, commit_of
from stream_dp.pipeline.kafka.topic_log import TopicLog

COMPACTED: Final = ("catalog", "synthetic", "standing")
"""The roles of the compacted topics that clients read and workers write."""


class Head(NamedTuple):
    """A record on a compacted topic, without its value.

    Attributes:
        commit: The number of the commit that it follows from, see ``commit_of``.
        partition: The partition of the topic.
        offset: Its offset.
    """

    commit: int
    partition: int
    offset: int


_Key = tuple[str, str]  # the role of the topic, and the key of the record


class Newest:
    """Finds the records behind which an older one of their key has come.

    Args:
        logs: The output topics, by role.
        partitions: The number of partitions of the inputs.

    Attributes:
        looks: Whether it is looking for them.
    """

    def __init__(self, logs: Mapping[str, TopicLog], partitions: int) -> None:
        self._logs = logs
        self._partitions = partitions
        self.looks = False
        self._again: list[Outgoing] = []
        self._left: dict[_Key, int] = {}

    def in_order(self, outgoing: Sequence[Outgoing]) -> Sequence[Outgoing]:
        """Says what leaves now; returns what of it may.

        What is sent again may not, if a newer record of its key has left since it was looked up.
        """
        if not self.looks and not self._again:
            self._left = {}  # what may still be under way when a look begins
        if not any(one.role in COMPACTED for one in outgoing):
            return outgoing
        self._again = [one for one in self._again if all(one is not other for other in outgoing)]
        return [one for one in outgoing if one.role not in COMPACTED or self._is_next(one)]

    def _is_next(self, one: Outgoing) -> bool:
        key, commit = (one.role, one.key), commit_of(one.headers)
        if commit < self._left.get(key, commit):
            return False
        self._left[key] = commit
        return True

    async def late(
        self, held: Collection[int], is_held: Callable[[str], bool]
    ) -> Sequence[Outgoing]:
        """Returns the newest records behind which an older one has come. They are to be sent again.

        Args:
            held: The partitions of the inputs that are held.
            is_held: Whether a data set is on one of them.

        Raises:
            ServerUnavailable: No broker answers.
        """
        self.looks, self._again = True, []
        try:
            newest: dict[_Key, Head] = {}
            behind: dict[_Key, Head] = {}
            async for key, head in self._heads(held):
                if not is_held(dataset_of(key[1])):
                    continue
                if key not in newest or head.commit >= newest[key].commit:
                    newest[key] = head
                    behind.pop(key, None)
                else:
                    behind[key] = newest[key]
            found = [
                (key, await self._logs[key[0]].record(head.partition, head.offset))
                for key, head in behind.items()
            ]
            self._again = [
                Outgoing(*key, one.value, one.headers) for key, one in found if one is not None
            ]
        finally:
            self.looks = False
        return self._again

    async def _heads(self, held: Collection[int]) -> AsyncIterator[tuple[_Key, Head]]:
        """Yields what is there of each record, those of a partition in order."""
        for role in COMPACTED:
            log = self._logs[role]
            # A standing query has a key of its own, all else that of its data set, as the inputs have.
            alike = role != "standing" and log.partitions == self._partitions
            for partition in held if alike else range(log.partitions):
                first, end = await log.bounds(partition)
                async for piece in log.read(partition, first, end):
                    for offset, entry in piece:
                        key = role, entry.key.decode(errors="replace")
                        yield key, Head(commit_of(entry.headers), partition, offset)


def dataset_of(key: str) -> str:
    """The data set of a record's key: all of it, or for a standing query the first word."""
    return key.partition(" ")[0]
