"""Where a log goes on and holds nothing that anybody could take.

What a transaction leaves behind its records has offsets too: the marker of its end, and whatever was
aborted. No reader is shown it, so a position moves past it only with the next record. Were it the last of a
partition, and deleted when its retention is over, that would look as if records had been deleted unread.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_dp.broker import Broker

__all__ = ["past_leftovers"]

_POLL_MS = 500


async def past_leftovers(broker: Broker, starts: Mapping[str, int]) -> dict[str, int]:
    """Reads each ``topic:partition`` from an offset on, to see that there is no record.

    Returns:
        The offset to which there is none, of the places where that is further on.

    Raises:
        KafkaError: There is no broker, or a log does not reach back so far.
    """
    consumer = AIOKafkaConsumer(
        **broker.arguments(),
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
    )
    places = {}
    for place, start in starts.items():
        topic, _, partition = place.rpartition(":")
        places[TopicPartition(topic, int(partition))] = start
    await consumer.start()
    try:
        consumer.assign(list(places))
        for place, start in places.items():
            consumer.seek(place, start)
        ends = await consumer.end_offsets(list(places))
        left = {place: end for place, end in ends.items() if end > places[place]}
        while any([await consumer.position(place) < end for place, end in left.items()]):
            for place in await consumer.getmany(*left, timeout_ms=_POLL_MS):
                del left[place]
    finally:
        await consumer.stop()
    return {f"{place.topic}:{place.partition}": end for place, end in left.items()}
