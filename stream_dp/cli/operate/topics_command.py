"""``stream-dp topics create``."""

from __future__ import annotations

import click

from stream_dp.cli.command_options import GivenServers, connected
from stream_dp.cli.text.reply_text import busy
from stream_dp.client.kafka.deployment_topics import create_topics


@click.group()
def command() -> None:
    """Create the topics of a deployment."""


@command.command("create")
@connected()
@click.option(
    "--partitions",
    type=click.IntRange(1),
    help="The partitions of each topic.  [default: those of the inputs that exist, or 4]",
)
@click.option(
    "--replication",
    type=click.IntRange(1),
    help="The replicas of each topic.  [default: those of the inputs that exist, or 1]",
)
def create(connection: GivenServers, partitions: int | None, replication: int | None) -> None:
    """Create the topics that do not exist yet.

    The number of partitions can never be changed later. The command also restores settings of existing topics
    without which Kafka loses records.
    """
    with busy("Creating topics"):
        made = create_topics(
            connection.broker, connection.topics, partitions=partitions, replication=replication
        )
    for name in made.created:
        click.echo(f"created {name}")
    for name, settings in made.changed.items():
        click.echo(f"changed {name}: " + ", ".join(f"{key}={v}" for key, v in settings.items()))
    if not made.created:
        click.echo("all topics exist already")
