"""The servers of a deployment, for commands that take partitions of the journal over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TypeVar

from aiokafka.errors import KafkaError

from stream_dp.broker import Broker
from stream_dp.cli.command_options import GivenServers
from stream_dp.client.kafka.deployment_topics import workers
from stream_dp.core.randomness.noise_sources import PooledNoise
from stream_dp.errors import InvalidInput, ServerUnavailable
from stream_dp.messages import INPUTS, PRIVATE, Topics
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.journal.journal import facts_of
from stream_dp.pipeline.kafka.sender import Sender
from stream_dp.pipeline.kafka.servers import check_topics, described_topics, no_broker, view_of
from stream_dp.pipeline.kafka.topic_log import KafkaInputReader, KafkaLog, KeyedTopic
from stream_dp.pipeline.repair.offline import Offline
from stream_dp.pipeline.repair.witnesses import WITNESSES
from stream_dp.pipeline.rows.private_values import Keeper
from stream_dp.pipeline.rows.slab_files import files_of
from stream_dp.settings import WorkerSettings

_T = TypeVar("_T")


@asynccontextmanager
async def deployment(connection: GivenServers, *, idle: bool = True) -> AsyncIterator[Offline]:
    """Connects to the servers of a deployment.

    Args:
        connection: Where it is.
        idle: Whether no worker of it may run. Otherwise the store of STREAM_DP_ROWS is not needed.

    Raises:
        InvalidInput: Workers run.
        UnsafeTopics: The settings of the journal or of blocks are wrong.
        ServerUnavailable: A server does not answer, or topics are missing or differ in their partitions.
    """
    settings = connection.operator_settings(redis_url=connection.redis_url)
    broker, names = connection.broker, connection.topics
    if idle:
        await _check_idle(broker, settings)
    counts, identities = await _topics(broker, names)
    await check_topics(broker, names, tokens=False)
    async with AsyncExitStack() as opened:
        sender = Sender(broker, names)
        opened.push_async_callback(sender.stop)
        try:
            await sender.start()
        except KafkaError as error:
            raise no_broker(broker, error) from error
        redis = view_of(settings)
        opened.push_async_callback(redis.close)

        def log(role: str) -> KafkaLog:
            found = KafkaLog(broker, names.name(role), counts[role], sender.producer)
            opened.push_async_callback(found.close)
            return found

        context, blocks = Context(), log("blocks")
        files = await asyncio.to_thread(files_of, settings) if idle else None
        yield Offline(
            log=log("journal"),
            rows=KafkaInputReader(broker, names),
            blocks=blocks,
            keeper=Keeper(KeyedTopic(blocks), context, files=files),
            context=context,
            view=redis,
            outputs={role: log(role) for role in WITNESSES},
            inputs={role: log(role) for role in INPUTS},
            names={role: names.name(role) for role in INPUTS},
            send=sender.send,
            noise=PooledNoise,
            facts=facts_of(counts["journal"], {role: identities[role] for role in INPUTS}),
            key_file=settings.person_key(),
        )


def run(
    connection: GivenServers, step: Callable[[Offline], Awaitable[_T]], *, idle: bool = True
) -> _T:
    """Runs a step of a command with the servers of a deployment, see ``deployment``."""

    async def connected() -> _T:
        async with deployment(connection, idle=idle) as tools:
            return await step(tools)

    return asyncio.run(connected())


async def _check_idle(broker: Broker, settings: WorkerSettings) -> None:
    """Raises InvalidInput if workers run."""
    if await asyncio.to_thread(workers, broker, settings.group_id):
        raise InvalidInput(
            "worker",
            f"workers run in the group {settings.group_id}",
            "stop them all first (the one of `stream-dp up`: run `stream-dp down`, then "
            "`stream-dp up --no-worker`). One that has just ended may count for "
            f"{settings.session_timeout_s:g} seconds more",
        )


async def _topics(broker: Broker, names: Topics) -> tuple[Mapping[str, int], Mapping[str, str]]:
    """The number of partitions and the id of each topic, by role."""
    wanted: Sequence[str] = (*INPUTS, *PRIVATE, *WITNESSES)
    roles = {names.name(role): role for role in wanted}
    topics = {roles[one["name"]]: one for one in await described_topics(broker, [*roles])}
    counts = {role: len(topic["partitions"]) for role, topic in topics.items()}
    if missing := [name for name, role in roles.items() if not counts.get(role)]:
        raise ServerUnavailable(
            f"topics {', '.join(missing)} do not exist; run: {names.creating()}"
        )
    if len({counts[role] for role in (*INPUTS, *PRIVATE)}) != 1:
        raise ServerUnavailable(
            "the topics differ in their partitions; stream-dp doctor says how to fix it"
        )
    return counts, {role: str(topic["topic_id"]) for role, topic in topics.items()}
