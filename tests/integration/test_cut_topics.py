"""A partition that was cut, on a real broker: it is read again behind all offsets that were ever read."""

from __future__ import annotations

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from stream_dp.broker import Broker
from stream_dp.client.topics import create_topics
from stream_dp.errors import InvalidInput
from stream_dp.messages import Topics
from stream_dp.pipeline.accepting import accept_cut
from stream_dp.pipeline.ownership import CUT, MOST_IN_HAND, Ownership
from stream_dp.state.local import LocalStore
from tests.pipeline.fakes import bounds

pytestmark = pytest.mark.kafka


async def test_reading_goes_on_behind_all_that_was_read(
    kafka_server: str, topic_prefix: str
) -> None:
    names = Topics(topic_prefix)
    create_topics(kafka_server, names, partitions=2)
    topic = names.name("queries")
    place, partition = f"{topic}:1", TopicPartition(topic, 1)
    producer = KafkaProducer(bootstrap_servers=kafka_server)
    for _ in range(3):
        producer.send(topic, b"sent since", partition=1)
    producer.flush()
    store = LocalStore()
    await store.mark({}, {place: 70})
    owner = Ownership(store, 2)
    owner.assigned([0, 1])
    ranges = {place: (0, 3), f"{topic}:0": (0, 0)}
    assert await owner.positions(bounds(ranges)) == {f"{topic}:0": 0}
    assert (await store.watermarks())[CUT + place] == 71

    end = await accept_cut(store, Broker(kafka_server), place)
    assert end >= 70 + MOST_IN_HAND
    consumer = KafkaConsumer(bootstrap_servers=kafka_server)
    assert consumer.end_offsets([partition, TopicPartition(topic, 0)]) == {
        partition: end,
        TopicPartition(topic, 0): 0,
    }
    assert await owner.positions(bounds({place: (0, end)})) == {place: end}
    assert owner.cut == {}
    with pytest.raises(InvalidInput, match="was not cut"):
        await accept_cut(store, Broker(kafka_server), place)
    consumer.close()
    producer.close()
