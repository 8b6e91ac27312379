"""The loop that reads partitions up to an offset and then ends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

from aiokafka import AIOKafkaConsumer, TopicPartition

__all__ = ["until"]

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
