"""The loop that reads partitions up to an offset and then ends, and how its consumer is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

_POLL_MS = 500


async def until(
    consumer: AIOKafkaConsumer, ends: Mapping[TopicPartition, int]
) -> AsyncIterator[dict[TopicPartition, list[Any]]]:
    """Yields the records that arrive, half a second's worth at a time, until all partitions are read.

    Args:
        consumer: A consumer that is assigned the partitions.
        ends: The offset up to which each partition is read. The caller may remove partitions on the way.

    Raises:
        KafkaError: No broker answers.
    """
    while any([await consumer.position(partition) < end for partition, end in ends.items()]):
        yield await consumer.getmany(*ends, timeout_ms=_POLL_MS)


async def hang_up(consumer: AIOKafkaConsumer) -> None:
    """Stops a consumer, also if the broker is away.

    Then ``stop`` of aiokafka 0.14 cancels its own fetch that waits, and raises that as if the caller had been
    cancelled, with the connections still open.
    """
    stopping = asyncio.create_task(consumer.stop())
    await asyncio.wait([stopping])
    if stopping.cancelled():
        await consumer._client.close()  # noqa: SLF001 - what was left to do
    else:
        stopping.result()
