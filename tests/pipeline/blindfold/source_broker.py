"""What a source reader sees of Kafka."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka import TopicPartition

from stream_dp.pipeline.intake.records import Outgoing


@dataclass(frozen=True)
class Message:
    """A record of somebody else's topic."""

    offset: int
    value: bytes | None
    timestamp: int = 1_793_491_200_000


class Broker:
    """What a source reader sees of Kafka: a topic of one partition, and a worker that takes its batches.

    Args:
        values: The messages.
        process: The worker.
        times: Offset -> the time of a message that has another one than the rest.

    Attributes:
        sent: The batches, in order.
        seen: Everything else that it was told, in order.
    """

    def __init__(
        self, values: Sequence[bytes | None], process: Any, times: Mapping[int, int]
    ) -> None:
        self._messages = [
            Message(offset, value, times.get(offset, Message.timestamp))
            for offset, value in enumerate(values)
        ]
        self._place = TopicPartition("shop.flights", 0)
        self._process = process
        self._at = 0
        self.sent: list[dict[str, Any]] = []
        self.seen: list[object] = []
        self.is_read = asyncio.Event()

    # -- the consumer

    def consumer(self, **_: object) -> Broker:
        return self

    def subscribe(self, topics: Sequence[str], listener: object) -> None:
        self.seen.append(("subscribed", topics))

    async def start(self) -> None:
        """There is nothing to start."""

    stop = start

    def assignment(self) -> set[TopicPartition]:
        return {self._place}

    async def getmany(self, *places: Any, timeout_ms: int, max_records: int) -> dict[Any, Any]:
        found = self._messages[self._at : self._at + max_records]
        self._at += len(found)
        self.seen.append(("fetched", places, max_records, len(found)))
        if not found:
            self.is_read.set()
            await asyncio.sleep(timeout_ms)
        return {self._place: found}

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._at = offset
        self.seen.append(("sought", place, offset))

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.seen.append(("committed", dict(offsets)))

    # -- the producer

    async def send_and_locate(self, outgoing: Outgoing) -> tuple[str, int]:
        """Where the record stands; the worker has taken it by then."""
        assert outgoing.role == "batches"
        self.sent.append(json.loads(outgoing.value))
        record = self._process.world.produce("batches", outgoing.value, key=outgoing.key)
        await self._process.run()
        return record.topic_partition, record.offset
