"""How long each partition of the journal is, and which data set keeps it so long."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from stream_dp.broker import Broker
from stream_dp.client.topics import TopicState
from stream_dp.pipeline.decoding import partition_of
from stream_dp.pipeline.logs import KafkaLog
from stream_dp.pipeline.needs import Needs

__all__ = ["Length", "lengths"]


@dataclass(frozen=True, slots=True)
class Length:
    """A partition of the journal.

    Attributes:
        partition: Its number.
        entries: The number of its entries.
        kept_by: The data set that needs most of them. Empty if there is none.
        needed: The number of entries from the first one on that this data set needs.
        whole: Whether it needs the journal from its beginning.
    """

    partition: int
    entries: int
    kept_by: str = ""
    needed: int = 0
    whole: bool = False


async def lengths(
    broker: Broker, journal: TopicState, facts: Mapping[str, Mapping[str, str]]
) -> list[Length]:
    """Returns the length of each partition that has entries.

    Args:
        broker: Where the journal is.
        journal: Its topic.
        facts: The public facts about each data set.

    Raises:
        ServerUnavailable: No broker answers.
    """
    log = KafkaLog(broker, journal.name, journal.partitions, None)
    found = []
    every = await asyncio.gather(*map(log.bounds, range(journal.partitions)))
    for partition, (first, end) in enumerate(every):
        starts = {
            name: Needs.of(meta, f"{journal.topic_id}:{partition}").start
            for name, meta in facts.items()
            if partition_of(name.encode(), journal.partitions) == partition
        }
        if end == first:
            continue
        if not starts:
            found.append(Length(partition, end - first))
            continue
        name = min(starts, key=lambda name: starts[name] or 0)
        start = starts[name]
        needed = end - max(first, start or 0)
        found.append(Length(partition, end - first, name, needed, start is None))
    return found
