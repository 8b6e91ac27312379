"""Reads the current content of a topic."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from stream_dp.broker import Broker
from stream_dp.client.topics import check_reachable, no_broker, no_topic
from stream_dp.errors import ServerUnavailable
from stream_dp.messages import Topics

__all__ = ["TopicReader", "newest"]

_SILENCE_S = 20.0
_LULL_S = 3.0


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
                heard_s = time.monotonic()
                while any(
                    consumer.position(partition) < ends[partition] for partition in partitions
                ):
                    arrived = consumer.poll(timeout_ms=500)
                    for records in arrived.values():
                        found += [(record.key.decode(), record.value) for record in records]
                    if arrived:
                        heard_s = time.monotonic()
                    elif time.monotonic() - heard_s > _SILENCE_S:
                        raise no_broker(self._broker, "it has stopped sending")
                    else:  # the consumer would wait for a broker that is gone
                        check_reachable(self._broker)
            finally:
                consumer.close()
        except KafkaError as error:
            raise no_broker(self._broker, error) from error
        return found


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
            left, heard_s = most, time.monotonic()
            while left and any(
                consumer.position(partition) < ends[partition] for partition in partitions
            ):
                arrived = consumer.poll(timeout_ms=500)
                for partition, records in arrived.items():
                    for record in records:
                        if left and record.offset < ends[partition]:
                            left -= 1
                            yield record.value
                if arrived:
                    heard_s = time.monotonic()
                elif time.monotonic() - heard_s > _LULL_S:
                    check_reachable(broker)
                    return  # only marks of transactions are left, or records that were dropped
        finally:
            consumer.close()
    except KafkaError as error:
        raise no_broker(broker, error) from error
