"""Single records of a topic by their offsets, over one connection that stays open.

A look or a take-over may need thousands of them, and a connection for each would take longer than reading it.
What follows a record is fetched with it, some megabytes at most: blocks of a window lie one behind the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from time import monotonic

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError, OffsetOutOfRangeError

from stream_dp.broker import Broker
from stream_dp.errors import ServerUnavailable
from stream_dp.pipeline.logs import EndsBefore, Entry, bounds_of, entry_of
from stream_dp.pipeline.polling import hang_up

__all__ = ["Fetcher"]

_FETCH_BYTES = 2**22
_WAIT_MS = 500
_PATIENCE_S = 10.0


class Fetcher:
    """Reads single records of a topic.

    Args:
        broker: The broker to read from.
        topic: The name of the topic.
    """

    def __init__(self, broker: Broker, topic: str) -> None:
        self._broker = broker
        self._topic = topic
        self._consumer: AIOKafkaConsumer | None = None
        self._turn = asyncio.Lock()

    async def record(self, partition: int, offset: int) -> Entry | None:
        """Returns the record at an offset. None if it is not there any more.

        That the log ends before it is said after ten seconds only: a broker that has just become the leader
        may not know yet how far it goes.

        Raises:
            EndsBefore: The log ends before it, or its broker does not know better.
            ServerUnavailable: No broker answers.
        """
        place = TopicPartition(self._topic, partition)
        async with self._turn, self._reading() as consumer:
            if consumer.assignment() != {place}:
                consumer.assign([place])
                consumer.seek(place, offset)
            elif await consumer.position(place) != offset:
                consumer.seek(place, offset)
            due = monotonic() + _PATIENCE_S
            while True:
                try:
                    fetched = await consumer.getmany(place, timeout_ms=_WAIT_MS, max_records=1)
                except OffsetOutOfRangeError:
                    fetched = {}
                for found in fetched.get(place, ()):
                    # Offsets stay when a topic is compacted; where one is missing, the next record comes.
                    return entry_of(found) if found.offset == offset else None
                first, end = await bounds_of(consumer, place, reaches=offset + 1)
                if offset < first:
                    return None
                if end <= offset:
                    raise EndsBefore(f"{self._topic} has no offset {offset}: it ends at {end}")
                if monotonic() > due:
                    raise ServerUnavailable("the broker gave no record in time")
                consumer.seek(place, offset)

    async def close(self) -> None:
        """Ends the connection. The next record opens another one."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            await hang_up(consumer)

    @asynccontextmanager
    async def _reading(self) -> AsyncIterator[AIOKafkaConsumer]:
        """The consumer, which is given up for another one after a fault."""
        try:
            if self._consumer is None:
                self._consumer = AIOKafkaConsumer(
                    **self._broker.arguments(),
                    enable_auto_commit=False,
                    auto_offset_reset="none",
                    fetch_max_bytes=_FETCH_BYTES,
                    max_partition_fetch_bytes=_FETCH_BYTES,
                )
                await self._consumer.start()
            yield self._consumer
        except KafkaError as error:
            await self.close()
            raise ServerUnavailable(
                f"the broker gave no records ({type(error).__name__})"
            ) from error
        except BaseException:
            # A look that is cancelled may leave it half started, or in the midst of an answer.
            await self.close()
            raise
