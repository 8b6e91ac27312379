"""What is durable of a deployment on real servers: what its journal says now. Nobody notices that it is read.

What Redis has is here too, to be compared with that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from stream_dp.broker import Broker
from stream_dp.messages import Topics
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.journal.journal import Journal
from stream_dp.pipeline.journal.owned_partition import Owned
from stream_dp.pipeline.kafka.servers import described_topics
from stream_dp.pipeline.kafka.topic_log import KafkaLog, KeyedTopic
from stream_dp.pipeline.rows.private_values import Keeper
from stream_dp.state.private_names import Named
from stream_dp.state.redis_view import RedisView
from stream_dp.state.schema import State, StateTable

T = TypeVar("T")


@dataclass(frozen=True)
class Durable:
    """What a journal says.

    Attributes:
        owned: What it says of each partition.
        states: The state of each data set.
        unsent: The data sets of which something may not have left.
    """

    owned: Sequence[Owned] = field(repr=False)
    states: Mapping[str, State] = field(repr=False)
    unsent: frozenset[str]

    def table(self, dataset: str, table: StateTable) -> dict[bytes, bytes]:
        """A table of a data set."""
        return self.states[dataset].table(table)

    def spent(self, dataset: str) -> dict[str, int]:
        """What is spent of a data set: ``block:rho`` and ``block:delta`` -> units."""
        found: dict[str, int] = {}
        for block, value in self.table(dataset, StateTable.SPENT).items():
            rho, delta = map(int, value.split())
            found |= {f"{block.decode()}:rho": rho, f"{block.decode()}:delta": delta}
        return found

    def facts(self, dataset: str) -> dict[str, str]:
        """The public facts of a data set."""
        facts = self.table(dataset, StateTable.FACT)
        return {name.decode(): value.decode() for name, value in facts.items()}


def looked(bootstrap_servers: str, topics: Topics) -> Durable:
    """Looks at a journal, at a moment at which nobody may be in the midst of deleting from it."""
    return asyncio.run(_looked(Broker(bootstrap_servers), topics))


async def _looked(broker: Broker, topics: Topics) -> Durable:
    name = topics.name("journal")
    (described,) = await described_topics(broker, [name])
    partitions = len(described["partitions"])
    log = KafkaLog(broker, name, partitions, None)
    journal = Journal(
        log,
        facts={},
        is_held=lambda _: False,
        context=Context(),
    )
    try:
        owned = await asyncio.gather(*map(journal.look, range(partitions)))
    finally:
        await log.close()
    unsent = {one.commit.dataset for some in owned for one in some.unreleased()}
    states = {name: chain.build() for some in owned for name, chain in some.chains.items()}
    return Durable(owned, states, frozenset(unsent))


def private(bootstrap_servers: str, topics: Topics, state: State) -> dict[str, list[bytes]]:
    """The parts of the private values of a data set, read from their topic alone, by what they are."""

    async def read(kept: KeyedTopic) -> dict[str, list[bytes]]:
        keeper = Keeper(kept, Context())
        found: dict[str, list[bytes]] = {}
        for what, named in state.table(StateTable.KEPT).items():
            parts = await keeper.whole(state.dataset, Named.from_bytes(named))
            assert parts is not None, f"{state.dataset}: {what!r} is named and not kept"
            found[what.decode()] = parts
        return found

    return asyncio.run(_on_blocks(Broker(bootstrap_servers), topics, read))


def keys_on_blocks(bootstrap_servers: str, topics: Topics, dataset: str) -> set[bytes]:
    """The keys of a data set under which anything is on the topic of blocks."""

    async def read(kept: KeyedTopic) -> set[bytes]:
        found, _ = await kept.parts(dataset)
        return set(found)

    return asyncio.run(_on_blocks(Broker(bootstrap_servers), topics, read))


class _Read(KeyedTopic):
    """The topic of blocks for one who appends nothing."""

    async def _end(self, partition: int) -> int:
        return (await self._log.bounds(partition))[1]


async def _on_blocks(
    broker: Broker, topics: Topics, read: Callable[[KeyedTopic], Awaitable[T]]
) -> T:
    name = topics.name("blocks")
    (described,) = await described_topics(broker, [name])
    partitions = len(described["partitions"])
    log = KafkaLog(broker, name, partitions, None)
    try:
        return await read(_Read(log))
    finally:
        await log.close()


def in_redis(topics: Topics, redis_url: str, names: Sequence[str]) -> dict[str, State | None]:
    """The states that Redis has of some data sets. None where it has none that is whole."""
    return asyncio.run(_in_redis(topics, redis_url, names))


async def _in_redis(
    topics: Topics, redis_url: str, names: Sequence[str]
) -> dict[str, State | None]:
    view = RedisView(redis_url, prefix=topics.prefix.rstrip(".-_"))
    try:
        return {name: await view.state(name) for name in names}
    finally:
        await view.close()
