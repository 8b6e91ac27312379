"""The rehearsal of ``stream-dp doctor``: its servers, and its progress."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from time import monotonic

import click

from stream_dp.cli.connection import Connection, store
from stream_dp.client.topics import TopicState
from stream_dp.pipeline.fetching import Fetcher
from stream_dp.pipeline.logs import KafkaKept, KafkaLog, KafkaRows
from stream_dp.pipeline.rehearsing import Rehearsal, Rehearsed
from stream_dp.settings import WorkerSettings

__all__ = ["rehearsed"]

_QUICK_S = 2.0


def rehearsed(
    connection: Connection, settings: WorkerSettings, topics: Mapping[str, TopicState]
) -> Iterator[Rehearsed]:
    """Yields how the rehearsal of each data set went, and says on stderr how far it is.

    Raises:
        StreamDPError: A server does not answer, or refuses.
    """
    # Nothing is healed, so nothing is to be said of it.
    healing = logging.getLogger("stream_dp.pipeline.healing")
    disabled, healing.disabled = healing.disabled, True
    try:
        with asyncio.Runner() as runner:
            going = _going(connection, settings, topics)

            async def following() -> Rehearsed | None:
                return await anext(going, None)

            while (found := runner.run(following())) is not None:
                yield found
    finally:
        healing.disabled = disabled


async def _going(
    connection: Connection, settings: WorkerSettings, topics: Mapping[str, TopicState]
) -> AsyncIterator[Rehearsed]:
    def log(role: str) -> KafkaLog:
        return KafkaLog(connection.broker, topics[role].name, topics[role].partitions, None)

    opened, fetcher = store(connection), Fetcher(connection.broker, topics["blocks"].name)
    try:
        rehearsal = Rehearsal(
            log("journal"),
            KafkaRows(connection.broker, connection.topics),
            KafkaKept(log("blocks"), fetcher, only_reads=True),
            opened,
            key_file=settings.person_key(),
            progress=_Progress(),
        )
        async for found in rehearsal():
            yield found
    finally:
        await fetcher.close()
        await opened.close()


class _Progress:
    """Says what is read of a data set, from two seconds on and then every two seconds."""

    def __init__(self) -> None:
        self._name = ""
        self._due = 0.0

    def __call__(self, name: str, n_bytes: int) -> None:
        if name != self._name:
            self._name, self._due = name, monotonic() + _QUICK_S
        elif monotonic() >= self._due:
            self._due = monotonic() + _QUICK_S
            click.echo(f"rehearsing {name}: {n_bytes / 1e6:,.1f} MB read", err=True)
