"""The servers of a deployment whose workers are all stopped, for commands that take partitions over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiokafka.errors import KafkaError

from stream_dp.broker import Broker
from stream_dp.cli.connection import Connection, store
from stream_dp.client.topics import workers
from stream_dp.errors import InvalidInput, ServerUnavailable
from stream_dp.messages import INPUTS, PRIVATE, Topics
from stream_dp.pipeline.connecting import described_topics, no_broker
from stream_dp.pipeline.fetching import Fetcher
from stream_dp.pipeline.journal import facts_of
from stream_dp.pipeline.logs import KafkaKept, KafkaLog, KafkaRows
from stream_dp.pipeline.sending import Sender
from stream_dp.settings import WorkerSettings, worker_settings
from stream_dp.state.redis import RedisStore

__all__ = ["Idle", "idle"]


@dataclass(frozen=True)
class Idle:
    """A deployment without workers.

    Attributes:
        settings: The settings of its workers.
        broker: Its brokers.
        names: The names of its topics.
        store: The working copy.
        counts: The number of partitions of each topic, by role.
        identities: What tells a topic from another one of its name, by role.
    """

    settings: WorkerSettings
    broker: Broker
    names: Topics
    store: RedisStore
    counts: Mapping[str, int]
    identities: Mapping[str, str]
    _sender: Sender = field(repr=False)
    _fetcher: Fetcher = field(repr=False)

    @property
    def parts(self) -> dict[str, Any]:
        """What every command of this kind is made of, by the names of its arguments."""
        return {
            "log": self.log("journal"),
            "rows": KafkaRows(self.broker, self.names),
            "kept": KafkaKept(self.log("blocks"), self._fetcher),
            "store": self.store,
            "identity": self.identities["journal"],
            "facts": facts_of(
                self.counts["journal"],
                {role: self.identities[role] for role in (*INPUTS, *PRIVATE)},
            ),
            "key_file": self.settings.person_key(),
        }

    def log(self, role: str) -> KafkaLog:
        """Returns a topic as a log."""
        return KafkaLog(
            self.broker, self.names.name(role), self.counts[role], self._sender.producer
        )


@asynccontextmanager
async def idle(connection: Connection, more: Sequence[str] = ()) -> AsyncIterator[Idle]:
    """Connects to the servers of a deployment, if no worker of it runs.

    Args:
        connection: Where it is.
        more: The roles of topics that are needed besides the input topics and those of the workers.

    Raises:
        InvalidInput: Workers run.
        ServerUnavailable: A server does not answer, or topics are missing or differ in their partitions.
    """
    settings = worker_settings(topic_prefix=connection.topic_prefix)
    broker, names = connection.broker, connection.topics
    if await asyncio.to_thread(workers, broker, settings.group_id):
        raise InvalidInput(
            "worker",
            f"workers run in the group {settings.group_id}",
            "stop them all first (the one of `stream-dp up`: run `stream-dp down`, then "
            "`stream-dp up --no-worker`). One that has just ended may count for "
            f"{settings.session_timeout_s:g} seconds more",
        )
    roles = {names.name(role): role for role in (*INPUTS, *PRIVATE, *more)}
    topics = {roles[one["name"]]: one for one in await described_topics(broker, [*roles])}
    counts = {role: len(topic["partitions"]) for role, topic in topics.items()}
    ours = {counts.get(role, 0) for role in (*INPUTS, *PRIVATE)}
    if missing := [name for name, role in roles.items() if not counts.get(role)]:
        raise ServerUnavailable(
            f"topics {', '.join(missing)} do not exist; run: {names.creating()}"
        )
    if len(ours) != 1:
        raise ServerUnavailable(
            "the topics differ in their partitions; stream-dp doctor says how to fix it"
        )
    identities = {role: str(topic["topic_id"]) for role, topic in topics.items()}
    sender, opened = Sender(broker, names), store(connection)
    fetcher = Fetcher(broker, names.name("blocks"))
    try:
        try:
            await sender.start()
        except KafkaError as error:
            raise no_broker(broker, error) from error
        yield Idle(settings, broker, names, opened, counts, identities, sender, fetcher)
    finally:
        await fetcher.close()
        await sender.stop()
        await opened.close()
