"""``stream-dp topics create`` and ``stream-dp topics accept-cut``."""

from __future__ import annotations

import asyncio
from functools import partial

import click

from stream_dp.cli.connection import Connection, connected, store
from stream_dp.cli.rendering import busy
from stream_dp.client.topics import create_topics

__all__ = ["command"]


@click.group()
def command() -> None:
    """Create the topics of a deployment, and go on after one was cut."""


@command.command("create")
@connected()
@click.option(
    "--partitions",
    type=click.IntRange(1),
    help="The number of partitions of each topic. Defaults to that of the inputs that exist, or to 4.",
)
@click.option(
    "--replication",
    type=click.IntRange(1),
    help="The replicas of each topic. Defaults to those of the inputs that exist, or to 1.",
)
def create(connection: Connection, partitions: int | None, replication: int | None) -> None:
    """Create the topics that do not exist yet. The number of partitions can never be changed later.

    The command also restores settings of existing topics without which Kafka loses records.
    What must be kept for ever has no retention. The broker sets the time of input records, because it would
    delete records with old times before anyone reads them. A replica that lags takes over neither journal nor
    blocks.
    """
    with busy("Creating topics"):
        made = create_topics(
            connection.broker,
            connection.topics,
            partitions=partitions,
            replication=replication,
        )
    for name in made.created:
        click.echo(f"created {name}")
    for name, settings in made.changed.items():
        click.echo(f"changed {name}: " + ", ".join(f"{key}={v}" for key, v in settings.items()))
    if not made.created:
        click.echo("all topics exist already")


@command.command("accept-cut")
@connected(operator=True)
@click.argument("topic")
@click.argument("partition", type=click.IntRange(0))
@click.option(
    "--restored",
    is_flag=True,
    help="The topic was put back as it was: read on where the worker stopped.",
)
def accept_cut(connection: Connection, topic: str, partition: int, *, restored: bool) -> None:
    """Read a partition of an input topic again that was cut.

    A log was cut if it ends before the offset up to which it was read. No worker reads it then. Put the
    topic back if you can, and pass --restored. Otherwise this command fills the partition with empty
    records, so that no offset is used twice. What was sent to it since it was cut is not read: send it again
    under the same ids. Then start the worker again.
    """
    end = asyncio.run(_accept(connection, f"{topic}:{partition}", restored=restored))
    where = "where the worker stopped" if end is None else f"at offset {end:,}"
    click.echo(f"{topic}:{partition} is read again {where}; restart its worker")


async def _accept(connection: Connection, place: str, *, restored: bool) -> int | None:
    from stream_dp.pipeline import accepting

    opened = store(connection)
    try:
        if restored:
            ask_end = partial(accepting.end_of, connection.broker, place)
            await accepting.restored(opened, place, ask_end)
            return None
        return await accepting.accept_cut(opened, connection.broker, place)
    finally:
        await opened.close()
