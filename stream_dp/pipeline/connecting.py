"""The servers that a worker's settings name."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import kafka
import kafka.errors

from stream_dp.broker import Broker
from stream_dp.errors import ServerUnavailable
from stream_dp.settings import WorkerSettings
from stream_dp.state.redis import RedisStore

__all__ = ["described_topics", "no_broker", "store_of"]


def store_of(settings: WorkerSettings) -> RedisStore:
    """The workers' store, with a connection of its own."""
    return RedisStore.from_url(
        settings.redis_url,
        prefix=settings.redis_prefix,
        cluster=settings.redis_cluster,
        durability_declared=settings.redis_durability == "declared",
    )


def no_broker(broker: Broker, error: Exception) -> ServerUnavailable:
    """Returns the error to raise when a client's first contact with the broker fails."""
    return ServerUnavailable(f"no Kafka broker at {broker} ({type(error).__name__})")


async def described_topics(broker: Broker, topics: Sequence[str]) -> list[dict[str, Any]]:
    """Topics as the broker describes them; ``error_code`` is not 0 of one that there is not.

    By kafka-python: aiokafka does not read the ids of topics.

    Raises:
        ServerUnavailable: No broker there.
    """

    def describe() -> list[dict[str, Any]]:
        admin = kafka.KafkaAdminClient(**broker.arguments(), bootstrap_timeout_ms=10_000)
        try:
            found: list[dict[str, Any]] = admin.describe_topics(list(topics))
        finally:
            admin.close()
        return found

    try:
        return await asyncio.to_thread(describe)
    except kafka.errors.KafkaError as error:
        raise no_broker(broker, error) from error
