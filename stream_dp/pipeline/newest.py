"""Keeps the newest record of each key the last one on compacted topics.

What the journal has may leave. A worker that froze in between goes on where it was, also when another one has
taken over: then an old record comes behind a newer one of its key, and it is the one that the topic keeps. No
broker refuses it. So who takes partitions over looks at these topics, and sends what is newest again.

A worker that goes on joins its group again, and with that all partitions are assigned again: so somebody
looks after the last such record has come.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from typing import Final, NamedTuple, Protocol

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from stream_dp.broker import Broker
from stream_dp.messages import Topics
from stream_dp.pipeline.fetching import Fetcher
from stream_dp.pipeline.logs import reading
from stream_dp.pipeline.polling import until
from stream_dp.pipeline.records import Outgoing, commit_of
from stream_dp.pipeline.sending import translated

__all__ = ["COMPACTED", "Compacted", "Head", "KafkaCompacted", "Newest", "dataset_of"]

COMPACTED: Final = ("catalog", "synthetic", "standing")
"""The roles of the compacted topics that clients read and workers write."""


class Head(NamedTuple):
    """A record on a compacted topic, without its value.

    Attributes:
        role: The role of the topic.
        key: Its key.
        commit: The number of the commit that it follows from, see ``commit_of``.
        partition: The partition of the topic.
        offset: Its offset.
    """

    role: str
    key: str
    commit: int
    partition: int
    offset: int


class Compacted(Protocol):
    """The compacted topics that clients read and workers write."""

    def heads(self, held: Collection[int]) -> AsyncIterator[Head]:
        """Yields what is there of each record, those of a partition in order.

        Args:
            held: The partitions of the inputs whose data sets are asked about. Others may be left out.

        Raises:
            ServerUnavailable: No broker answers.
        """
        ...

    async def record(self, head: Head) -> Outgoing | None:
        """Returns a record as it was sent. None if it is not there any more.

        Raises:
            ServerUnavailable: No broker answers.
        """
        ...


class KafkaCompacted:
    """The compacted topics on Kafka.

    Args:
        broker: The broker to read from.
        names: The names of the topics.
        partitions: The number of partitions of the inputs.
        producer: A producer that has started. It knows the partitions of the topics.
    """

    def __init__(
        self, broker: Broker, names: Topics, partitions: int, producer: AIOKafkaProducer
    ) -> None:
        self._broker = broker
        self._names = names
        self._partitions = partitions
        self._producer = producer
        self._fetchers = {role: Fetcher(broker, names.name(role)) for role in COMPACTED}

    async def close(self) -> None:
        """Ends its connections."""
        for fetcher in self._fetchers.values():
            await fetcher.close()

    async def heads(self, held: Collection[int]) -> AsyncIterator[Head]:
        places = [
            TopicPartition(self._names.name(role), number)
            for role in COMPACTED
            for number in await self._numbers(role, held)
        ]
        async with reading(self._broker) as consumer:
            firsts = await consumer.beginning_offsets(places)
            ends = await consumer.end_offsets(places)
            ends = {place: end for place, end in ends.items() if firsts[place] < end}
            consumer.assign(list(ends))
            for place in ends:
                consumer.seek(place, firsts[place])
            async for fetched in until(consumer, ends):
                for place, records in fetched.items():
                    role = self._names.role(place.topic)
                    for one in records:
                        key = (one.key or b"").decode(errors="replace")
                        yield Head(role, key, commit_of(one.headers), place.partition, one.offset)

    async def record(self, head: Head) -> Outgoing | None:
        entry = await self._fetchers[head.role].record(head.partition, head.offset)
        return None if entry is None else Outgoing(head.role, head.key, entry.value, entry.headers)

    async def _numbers(self, role: str, held: Collection[int]) -> Collection[int]:
        """The partitions of a topic on which keys of data sets of these partitions are."""
        topic = self._names.name(role)
        try:
            there = await self._producer.partitions_for(topic)
        except KafkaError as error:
            raise translated(topic, error) from error
        # A standing query has a key of its own, all else that of its data set, as the inputs have.
        return held if role != "standing" and len(there) == self._partitions else sorted(there)


class Newest:
    """Finds the records behind which an older one of their key has come.

    Args:
        compacted: The compacted topics.
    """

    def __init__(self, compacted: Compacted) -> None:
        self._compacted = compacted
        self._looks = False
        self._again: list[Outgoing] = []
        self._left: dict[tuple[str, str], int] = {}

    def in_order(self, outgoing: Sequence[Outgoing]) -> Sequence[Outgoing]:
        """Says what leaves now; returns what of it may.

        What is sent again may not, if a newer record of its key has left since it was looked up.
        """
        if not self._looks and not self._again:
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
        self._looks, self._again = True, []
        try:
            newest: dict[tuple[str, str], Head] = {}
            behind: dict[tuple[str, str], Head] = {}
            async for head in self._compacted.heads(held):
                key = head.role, head.key
                if not is_held(dataset_of(head.key)):
                    continue
                if key not in newest or head.commit >= newest[key].commit:
                    newest[key] = head
                    behind.pop(key, None)
                else:
                    behind[key] = newest[key]
            found = [await self._compacted.record(head) for head in behind.values()]
            self._again = [one for one in found if one is not None]
        finally:
            self._looks = False
        return self._again


def dataset_of(key: str) -> str:
    """The data set of a record's key: all of it, or for a standing query the first word."""
    return key.partition(" ")[0]
