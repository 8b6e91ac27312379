"""Records to the broker: those handed over in one go travel as one batch a partition.

One record at a time through the producer costs a future and several coroutines each, more than deciding most
queries does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass, field
from time import time
from typing import Any

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError, MessageSizeTooLargeError, RecordTooLargeError

from stream_dp.broker import Broker
from stream_dp.errors import ServerUnavailable, StreamDPError
from stream_dp.messages import TOPICS, Topics
from stream_dp.pipeline.intake.decoder import partition_of
from stream_dp.pipeline.intake.records import Outgoing

_BATCH_BYTES = 2**19  # well below every topic's max.message.bytes, which bounds a batch

_PATIENCE_S = 3.0

_HOUR_MS = 3_600_000

LARGEST_MESSAGE = max(topic.max_message_bytes for topic in TOPICS.values())


@dataclass
class _Bundle:
    """Records of one batch, and what is done when the broker has them: it gives the offset of the first."""

    batch: Any
    sent: asyncio.Future[int] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class Sender:
    """Sends what the worker releases; a lost broker is ``ServerUnavailable``."""

    def __init__(self, broker: Broker, names: Topics) -> None:
        self._names = names
        self._producer = AIOKafkaProducer(
            **broker.arguments(),
            acks="all",
            enable_idempotence=True,
            max_batch_size=_BATCH_BYTES,
            max_request_size=LARGEST_MESSAGE,
        )
        self._partitions: dict[str, int] = {}
        self._open: dict[tuple[str, int], _Bundle] = {}
        self._flushing: set[asyncio.Task[None]] = set()

    @property
    def producer(self) -> AIOKafkaProducer:
        """The connection of a sender that has started, for others who send batches of their own."""
        return self._producer

    async def start(self) -> None:
        """Connects. Raises KafkaError when there is no broker."""
        await self._producer.start()
        await self._producer.client.add_topic(self._names.name("events"))

    async def stop(self) -> None:
        """Sends what is still open and disconnects."""
        await asyncio.gather(*self._flushing)
        await self._producer.stop()

    async def broker_answers(self) -> bool:
        """Returns whether some broker soon tells where our topics are."""
        try:
            async with asyncio.timeout(_PATIENCE_S):
                return bool(await self._producer.client.force_metadata_update())
        except TimeoutError:
            return False

    async def send(self, record: Outgoing) -> Awaitable[object]:
        """Adds a record to the open batch of its partition; it leaves before the loop's next turn ends.

        Returns:
            Done when the broker has the record.

        Raises:
            ServerUnavailable: Also by what is returned.
            StreamDPError: The broker takes no record of this size; by what is returned.
        """
        bundle, _ = await self._add(record)
        return bundle.sent

    async def send_and_locate(self, record: Outgoing) -> tuple[str, int]:
        """Sends a record, and returns its ``topic:partition`` and offset when the broker has it.

        Raises:
            ServerUnavailable: The broker is gone; whether it has the record is unknown.
            StreamDPError: The broker takes no record of this size.
        """
        topic = self._names.name(record.role)
        partition = partition_of(record.key.encode(), await self._count(topic))
        bundle, number = await self._add(record)
        return f"{topic}:{partition}", await bundle.sent + number

    async def _add(self, record: Outgoing) -> tuple[_Bundle, int]:
        """Adds a record to a batch; returns the batch, and the record's number in it."""
        topic, key = self._names.name(record.role), record.key.encode()
        partition = partition_of(key, await self._count(topic))
        value, headers = record.value or None, list(record.headers)
        dated = None if record.dated_ms is None else _dated(record.dated_ms, round(1000 * time()))
        bundle = self._open.get((topic, partition))
        while (
            bundle is None
            or bundle.batch.append(timestamp=dated, key=key, value=value, headers=headers) is None
        ):
            bundle = _Bundle(self._producer.create_batch())
            self._open[topic, partition] = bundle
            flushing = asyncio.create_task(self._flush(topic, partition, bundle))
            self._flushing.add(flushing)
            flushing.add_done_callback(self._flushing.discard)
        return bundle, bundle.batch.record_count() - 1

    async def _count(self, topic: str) -> int:
        if topic not in self._partitions:
            try:
                self._partitions[topic] = len(await self._producer.partitions_for(topic))
            except KafkaError as error:
                raise translated(topic, error) from error
        return self._partitions[topic]

    async def _flush(self, topic: str, partition: int, bundle: _Bundle) -> None:
        if self._open.get((topic, partition)) is bundle:
            del self._open[topic, partition]
        bundle.batch.close()
        try:
            sent = await (await self._producer.send_batch(bundle.batch, topic, partition=partition))
        except KafkaError as error:
            problem = translated(topic, error)
            problem.__cause__ = error
            bundle.sent.set_exception(problem)
            bundle.sent.exception()  # nobody may wait for it any more
        else:
            bundle.sent.set_result(sent.offset)


def _dated(answered_ms: int, now_ms: int) -> int:
    """The timestamp of a reply: that of the record it answers, if that is from within the hour.

    Else it is the hour that has begun: retention counts from it, and a reply to an old record is to last too.
    """
    return answered_ms if answered_ms >= now_ms - _HOUR_MS else now_ms - now_ms % _HOUR_MS


def translated(topic: str, error: KafkaError) -> StreamDPError:
    """Returns the error to raise when the broker has not taken a record."""
    if isinstance(error, MessageSizeTooLargeError | RecordTooLargeError):
        return too_large(topic)
    return ServerUnavailable(f"the broker took no record ({type(error).__name__})")


def too_large(topic: str) -> StreamDPError:
    """Returns the error to raise when a record is larger than a topic takes."""
    return StreamDPError(
        f"the broker takes no record of this size on {topic}; compare the topics' max.message.bytes "
        "with: stream-dp doctor"
    )
