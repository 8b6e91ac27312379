"""The servers of ``stream-dp dataset export`` and ``dataset import``."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiokafka.errors import KafkaError

from stream_dp.cli.connection import Connection, store
from stream_dp.client.topics import workers
from stream_dp.errors import InvalidInput, ServerUnavailable
from stream_dp.messages import INPUTS, PRIVATE
from stream_dp.pipeline.connecting import described_topics, no_broker
from stream_dp.pipeline.logs import KafkaKept, KafkaLog, KafkaRows
from stream_dp.pipeline.moving import Moving
from stream_dp.pipeline.sending import Sender
from stream_dp.settings import worker_settings
from stream_dp.state.moved import MovedFolder, MovingFolder

__all__ = ["bring_in", "take_out"]


def take_out(connection: Connection, name: str, path: Path) -> None:
    """Ends a data set here for good, and writes it to a folder.

    Raises:
        StreamDPError: It cannot be done. If it has ended here already, the command may be repeated.
    """
    folder = MovingFolder(path)

    async def run() -> None:
        async with _opened(connection) as moving:
            await moving.out(name, folder)

    asyncio.run(run())


def bring_in(connection: Connection, path: Path) -> str:
    """Puts a data set from a folder on the journal; returns its name.

    Raises:
        StreamDPError: It cannot be done.
    """
    folder = MovedFolder(path)

    async def run() -> str:
        async with _opened(connection) as moving:
            return await moving.into(folder)

    return asyncio.run(run())


def _published(connection: Connection, name: str) -> list[bytes]:
    with connection.client() as client:
        return client.ledger_entries().get(name, [])


@asynccontextmanager
async def _opened(connection: Connection) -> AsyncIterator[Moving]:
    settings = worker_settings(topic_prefix=connection.topic_prefix)
    broker, names = connection.broker, connection.topics
    if await asyncio.to_thread(workers, broker, settings.group_id):
        raise InvalidInput(
            "worker", f"workers run in the group {settings.group_id}", "stop them all first"
        )
    roles = {names.name(role): role for role in (*INPUTS, *PRIVATE)}
    described = await described_topics(broker, [*roles])
    topics = {roles[topic["name"]]: topic for topic in described}
    counts = {role: len(topic["partitions"]) for role, topic in topics.items()}
    if len(set(counts.values())) != 1 or 0 in counts.values():
        raise ServerUnavailable(
            "topics are missing, or differ in their partitions; stream-dp doctor says how to fix it"
        )
    sender, opened = Sender(broker, names), store(connection)
    try:
        try:
            await sender.start()
        except KafkaError as error:
            raise no_broker(broker, error) from error

        def log(role: str) -> KafkaLog:
            return KafkaLog(broker, names.name(role), counts[role], sender.producer)

        yield Moving(
            log=log("journal"),
            rows=KafkaRows(broker, names),
            kept=KafkaKept(log("blocks")),
            store=opened,
            published=lambda name: asyncio.to_thread(_published, connection, name),
            identity=str(topics["journal"]["topic_id"]),
            facts={"topics": {role: str(topic["topic_id"]) for role, topic in topics.items()}},
            key_file=settings.person_key(),
            blocks=settings.blocks,
        )
    finally:
        await sender.stop()
        await opened.close()
