"""Reads the current content of a topic."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, Final

from kafka import KafkaConsumer, TopicPartition

from stream_dp.broker import Broker
from stream_dp.client.kafka.deployment_topics import (
    check_reachable,
    no_broker,
    no_topic,
    translating_errors,
)
from stream_dp.errors import ServerUnavailable
from stream_dp.messages import Topics

_SILENCE_S: Final = 20.0
_LULL_S: Final = 3.0
_POLL_MS: Final = 500


class TopicReader:
    """Reads topics up to their ends, over a new connection each time.

    Args:
        broker: The broker.
        config: The settings for kafka-python's consumer, including ``bootstrap_servers``.
        topics: The names of the topics.
    """

    def __init__(self, broker: Broker, config: Mapping[str, object], topics: Topics) -> None:
        self._broker = broker
        self._config = config
        self._topics = topics

    def read(self, role: str, *, latest: int | None = None) -> list[tuple[str, bytes | None]]:
        """Returns the key and value of each record up to the current end, in order for each key.

        Args:
            role: The role of the topic.
            latest: The largest number of records from each partition. None for all.

        Raises:
            ServerUnavailable: The topic does not exist, or the broker is gone.
        """
        with _consumer(self._broker, self._config) as consumer:
            partitions = partitions_of(consumer, self._topics, role)
            ends = _placed(consumer, partitions, latest)
            found = list(_until(consumer, ends, self._broker, _SILENCE_S))
            if _unread(consumer, ends):
                raise no_broker(self._broker, "it has stopped sending")
        return [(record.key.decode(), record.value) for record in found]


def partitions_of(consumer: KafkaConsumer, topics: Topics, role: str) -> list[TopicPartition]:
    """Returns the partitions of a topic of the deployment.

    Raises:
        ServerUnavailable: The topic does not exist.
    """
    topic = topics.name(role)
    numbers = consumer.partitions_for_topic(topic)
    if not numbers:
        raise no_topic(topics, role)
    return [TopicPartition(topic, number) for number in numbers]


def newest(broker: Broker, topic: str, most: int) -> Iterator[bytes | None]:
    """Yields the values of the newest committed records of any topic, about equally from each partition.

    It writes nothing and leaves no consumer group behind.

    Args:
        broker: The broker that holds the topic.
        topic: The full name of the topic.
        most: The largest number of values.

    Raises:
        ServerUnavailable: The topic does not exist, or the broker is gone.
    """
    config = {**broker.arguments(), "isolation_level": "read_committed"}
    with _consumer(broker, config) as consumer:
        # It asks for all topics, because asking for one by name could create it.
        if topic not in consumer.topics():
            raise ServerUnavailable(f"there is no topic {topic}; name one that exists")
        partitions = [TopicPartition(topic, n) for n in consumer.partitions_for_topic(topic) or ()]
        ends = _placed(consumer, partitions, -(-most // max(1, len(partitions))))
        # A partition may end in marks of transactions, or in records that were dropped.
        arriving = _until(consumer, ends, broker, _LULL_S)
        yield from (record.value for record in islice(arriving, most))


@contextlib.contextmanager
def _consumer(broker: Broker, config: Mapping[str, object]) -> Iterator[KafkaConsumer]:
    """Opens a consumer without a group, and closes it."""
    with translating_errors(broker):
        consumer = KafkaConsumer(**config, enable_auto_commit=False)
        with contextlib.closing(consumer):
            yield consumer


def _placed(
    consumer: KafkaConsumer, partitions: Sequence[TopicPartition], latest: int | None
) -> Mapping[TopicPartition, int]:
    """Places a consumer before the latest records of each partition, or all, and returns the ends."""
    ends: Mapping[TopicPartition, int] = consumer.end_offsets(partitions)
    starts = consumer.beginning_offsets(partitions)
    consumer.assign(partitions)
    for partition in partitions:
        first = 0 if latest is None else ends[partition] - latest
        consumer.seek(partition, max(starts[partition], first))
    return ends


def _until(
    consumer: KafkaConsumer, ends: Mapping[TopicPartition, int], broker: Broker, silence_s: float
) -> Iterator[Any]:
    """Yields the records of each partition up to an offset, as they arrive.

    Args:
        consumer: A consumer that is assigned the partitions.
        ends: The offset up to which each partition is read.
        broker: The broker that holds them.
        silence_s: The time without a record after which it ends early.

    Raises:
        ServerUnavailable: The broker is gone. The consumer would wait for it for ever.
    """
    heard_s = time.monotonic()
    while _unread(consumer, ends):
        arrived = consumer.poll(timeout_ms=_POLL_MS)
        for partition, records in arrived.items():
            yield from (record for record in records if record.offset < ends[partition])
        if arrived:
            heard_s = time.monotonic()
        else:
            check_reachable(broker)
            if time.monotonic() - heard_s > silence_s:
                return


def _unread(consumer: KafkaConsumer, ends: Mapping[TopicPartition, int]) -> bool:
    return any(consumer.position(partition) < end for partition, end in ends.items())
