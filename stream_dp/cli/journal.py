"""``stream-dp journal mend``."""

from __future__ import annotations

import sys

import click

from stream_dp.cli.connection import Connection, connected

__all__ = ["command"]


@click.group()
def command() -> None:
    """Go on after the journal was cut."""


@command.command("mend")
@connected(operator=True)
@click.option(
    "--partition",
    type=click.IntRange(0),
    help="The partition to repair. Defaults to every one that was cut as far as Redis knows.",
)
@click.option("--dataset", metavar="NAME", help="Repair the partition of this data set.")
@click.option("--yes", is_flag=True, help="Skip the question whether to go on.")
def repair(connection: Connection, partition: int | None, dataset: str | None, yes: bool) -> None:  # noqa: FBT001 - click
    """Repair a partition of the journal that was cut, from what Redis has.

    Put the topic back instead, if you can. Stop all workers first. The command reads the output topics, and
    says what it found of each data set before it changes anything. Where Redis has everything that was seen,
    the journal begins again with what Redis has. A data set of which Redis lacks something stays stopped, and
    `stream-dp dataset close` is its way on; the exit code is 1 then. You can repeat the command at any time.
    """
    from stream_dp.cli import repairing

    if partition is not None and dataset is not None:
        raise click.UsageError("pass --partition or --dataset, not both")
    sys.exit(0 if repairing.repair(connection, partition, dataset, yes=yes) else 1)
