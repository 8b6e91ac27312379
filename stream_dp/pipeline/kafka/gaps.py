"""The stretches of a log that hold nothing that anybody could take.

A transaction leaves more behind than its records: the marker of its end, and anything that was aborted. These
leftovers have offsets too. No reader is shown them, so a position moves past them only with the next record.
If they were the last of a partition, and were deleted when their retention is over, that would look as if
records had been deleted unread.
"""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer

from stream_dp.broker import Broker
from stream_dp.pipeline.kafka.poll_loop import hang_up, until
from stream_dp.pipeline.kafka.topic_log import place_of


async def past_leftovers(broker: Broker, starts: Mapping[str, int]) -> dict[str, int]:
    """Reads each ``topic:partition`` from an offset on, to see that there is no record.

    Returns:
        The offset up to which there is no record, for each partition where that is further on.

    Raises:
        KafkaError: No broker answers, or a log does not reach back that far.
    """
    consumer = AIOKafkaConsumer(
        **broker.arguments(),
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level="read_committed",
    )
    wanted = {place_of(topic_partition): start for topic_partition, start in starts.items()}
    await consumer.start()
    try:
        consumer.assign(list(wanted))
        for partition, start in wanted.items():
            consumer.seek(partition, start)
        ends = await consumer.end_offsets(list(wanted))
        left = {partition: end for partition, end in ends.items() if end > wanted[partition]}
        async for fetched in until(consumer, left):
            for partition in fetched:
                del left[partition]
    finally:
        await hang_up(consumer)
    return {f"{partition.topic}:{partition.partition}": end for partition, end in left.items()}
