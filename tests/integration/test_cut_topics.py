"""A partition that was cut, on a real broker: it is read again behind all offsets that were ever read."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from kafka import KafkaConsumer, TopicPartition

from stream_dp.cli.operate.stopped_workers import deployment as connected
from stream_dp.cli.server_options import GivenServers
from stream_dp.errors import InvalidInput
from stream_dp.pipeline.intake.ownership import MOST_IN_HAND, Ownership
from stream_dp.pipeline.repair.input_repair import read_again
from tests.pipeline.fakes import bounds

pytestmark = pytest.mark.kafka


@pytest.mark.parametrize("is_back", [False, True], ids=["filled", "put back"])
async def test_reading_goes_on_behind_all_that_was_read(
    deployment: Any, tmp_path: Any, *, is_back: bool
) -> None:
    topic = deployment.topics.name("queries")
    place, partition = f"{topic}:1", TopicPartition(topic, 1)
    for _ in range(80 if is_back else 3):
        deployment.produce("queries", b"sent since", key="one", partition=1)
    connection = GivenServers(
        deployment.bootstrap_servers, deployment.redis_url, deployment.prefix, tmp_path
    )
    owner = Ownership(2)
    owner.assigned([0, 1])
    async with connected(connection) as tools:
        journal = tools.journal()
        owned = await journal.entered(1)
        with pytest.raises(InvalidInput, match="was not cut"):
            await read_again(tools, "queries", place, is_restored=False)
        owned = await journal.entered(1)
        journal = tools.journal()
        owned = await journal.entered(1)
        await journal.mark(owned, watermarks={place: 70})
        ranges = {place: (0, 3), f"{topic}:0": (0, 0)}
        positions = await owner.positions(bounds(ranges), {1: owned.marks})
        assert positions == {f"{topic}:0": 0}
        assert owner.cut == {place: 70}
        await journal.mark(owned, cut=owner.cut)
        if is_back:
            await read_again(tools, "queries", place, is_restored=True)
            end = 70
        else:
            with pytest.raises(InvalidInput, match="not all of it was put back"):
                await read_again(tools, "queries", place, is_restored=True)
            end = await read_again(tools, "queries", place, is_restored=False)
            assert end >= 70 + MOST_IN_HAND
            consumer = KafkaConsumer(bootstrap_servers=deployment.bootstrap_servers)
            ends = await asyncio.to_thread(
                consumer.end_offsets, [partition, TopicPartition(topic, 0)]
            )
            assert ends == {partition: end, TopicPartition(topic, 0): 0}
            consumer.close()
        owned = await tools.journal().look(1)
        positions = await owner.positions(bounds({place: (0, end)}), {1: owned.marks})
        assert positions == {place: end}
        assert owner.cut == {}
        with pytest.raises(InvalidInput, match="was not cut"):
            await read_again(tools, "queries", place, is_restored=False)
