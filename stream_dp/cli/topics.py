"""``stream-dp topics create``."""

from __future__ import annotations

import click

from stream_dp.cli.connection import Connection, connected
from stream_dp.cli.rendering import busy
from stream_dp.client.topics import create_topics

__all__ = ["command"]


@click.group()
def command() -> None:
    """Create the topics of a deployment."""


@command.command("create")
@connected()
@click.option("--partitions", type=click.IntRange(1), default=4, show_default=True)
@click.option("--replication", type=click.IntRange(1), default=1, show_default=True)
def create(connection: Connection, partitions: int, replication: int) -> None:
    """Create what does not exist yet. The number of partitions can never be changed later.

    Of topics that exist one setting is seen to: the broker dates the records of the inputs. Otherwise records
    with old times of their own are deleted before anyone reads them.
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
    for name in made.changed:
        click.echo(f"changed {name}: the broker dates its records")
    if not made.created:
        click.echo("all topics exist already")
