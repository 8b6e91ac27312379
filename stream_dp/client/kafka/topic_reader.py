"""Reads the current content of a topic."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from stream_dp.broker import Broker
from stream_dp.client.kafka.deployment_topics import check_reachable, no_broker, no_topic
from stream_dp.errors import ServerUnavailable
from stream_dp.messages import Topics

_SILENCE_S = 20.0
_LULL_S = 3.0
_POLL_MS = 500


class TopicReader:
    """Reads topics up to their ends, over a new connection each time.

    Args:
        config: The settings for kafka-python's consumer, including ``bootstrap_servers``.
    """

    def __init__(self, broker: Broker, config: Mapping[str, object], topics: Topics) -> None:
        self._broker = broker
        self._config = config
        self._topics = topics

    def read(
        self, role: str, *, latest: int | None = None, since_ms: int = 0
    ) -> list[tuple[str, bytes | None]]:
        """Yields the key and value of each record up to the current end, in order for each key.

        Args:
            role: The role of the topic.
            latest: The largest number of records from each partition.
            since_ms: The time of the first record to read, in milliseconds since 1970.

        Raises:
            ServerUnavailable: The topic does not exist, or the broker is gone.
        """
        topic = self._topics.name(role)
        found: list[tuple[str, bytes | None]] = []
        try:
            consumer = KafkaConsumer(**self._config, enable_auto_commit=False)
            try:
                numbers = consumer.partitions_for_topic(topic)
                if not numbers:
                    raise no_topic(self._topics, role)
                partitions = [TopicPartition(topic, number) for number in numbers]
                ends = consumer.end_offsets(partitions)
                starts = consumer.beginning_offsets(partitions)
                if since_ms:
                    later = consumer.offsets_for_times(dict.fromkeys(partitions, since_ms))
                    starts = {
                        partition: at.offset if at else ends[partition]
                        for partition, at in later.items()
                    }
                consumer.assign(partitions)
                for partition in partitions:
                    start = starts[partition]
                    consumer.seek(
                        partition, start if latest is None else max(start, ends[partition] - latest)
                    )
                for records in _until(consumer, ends, self._broker, _SILENCE_S):
                    found += [(record.key.decode(), record.value) for record in records]
                if _unread(consumer, ends):
                    raise no_broker(self._broker, "it has stopped sending")
            finally:
                consumer.close()
        except KafkaError as error:
            raise no_broker(self._broker, error) from error
        return found


def _until(
    consumer: KafkaConsumer, ends: Mapping[TopicPartition, int], broker: Broker, silence_s: float
) -> Iterator[list[Any]]:
    """Yields the records that arrive until every partition is read up to an offset.

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
        yield from arrived.values()
        if arrived:
            heard_s = time.monotonic()
        else:
            check_reachable(broker)
            if time.monotonic() - heard_s > silence_s:
                return


def _unread(consumer: KafkaConsumer, ends: Mapping[TopicPartition, int]) -> bool:
    return any(consumer.position(partition) < end for partition, end in ends.items())


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
    try:
        consumer = KafkaConsumer(
            **broker.arguments(), enable_auto_commit=False, isolation_level="read_committed"
        )
        try:
            # It asks for all topics, because asking for one by name could create it.
            if topic not in consumer.topics():
                raise ServerUnavailable(f"there is no topic {topic}; name one that exists")
            partitions = [
                TopicPartition(topic, n) for n in consumer.partitions_for_topic(topic) or ()
            ]
            consumer.assign(partitions)
            ends, starts = consumer.end_offsets(partitions), consumer.beginning_offsets(partitions)
            for partition in partitions:
                consumer.seek(
                    partition, max(starts[partition], ends[partition] - -(-most // len(partitions)))
                )
            # A partition may end in marks of transactions, or in records that were dropped.
            arriving = (
                record.value
                for records in _until(consumer, ends, broker, _LULL_S)
                for record in records
                if record.offset < ends[TopicPartition(topic, record.partition)]
            )
            yield from islice(arriving, most)
        finally:
            consumer.close()
    except KafkaError as error:
        raise no_broker(broker, error) from error
