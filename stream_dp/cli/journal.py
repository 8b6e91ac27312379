"""``stream-dp journal mend``."""

from __future__ import annotations

import asyncio
import sys

import click

from stream_dp.cli.connection import Connection, connected
from stream_dp.cli.rendering import busy


@click.group()
def command() -> None:
    """Go on after the journal or an input was cut."""


@command.command("mend")
@connected(operator=True)
@click.option(
    "--partition",
    type=click.IntRange(0),
    help="The partition of the journal. Defaults to every one that needs it.",
)
@click.option(
    "--write-off",
    "writes_off",
    metavar="NAME",
    multiple=True,
    help="Give up all rows of this data set that have come up to now. Repeat the option for several.",
)
@click.option(
    "--input",
    "place",
    metavar="TOPIC:N",
    help="Read this partition of an input topic again that was cut.",
)
@click.option(
    "--restored",
    is_flag=True,
    help="With --input: the topic was put back as it was, so read on there.",
)
@click.option(
    "--apply", "applies", is_flag=True, help="Do it. Without this, only say what is to be done."
)
def repair(
    connection: Connection,
    partition: int | None,
    writes_off: tuple[str, ...],
    place: str | None,
    *,
    restored: bool,
    applies: bool,
) -> None:
    """Repair what was cut: a partition of the journal, or of an input topic.

    Put the topic back instead, if you can. Stop all workers first. The command reads the journal and the
    output topics, compares them with Redis, and says what becomes of each data set. It changes nothing
    without --apply. You can repeat it at any time.

    A data set that is whole goes on. Another one begins again with what Redis has, if no topic shows more.
    Else it stays stopped, and the exit code is 1. With --write-off it goes on without its rows: every phase
    counts as spent in full, what was published goes on answering, and rows that come later open new phases.
    After a restore of all topics and of Redis from older copies, write off every data set.

    A partition of an input was cut if it ends before the offset up to which it was read. No worker reads it
    then. With --input it is filled with empty records, so that no offset is used twice. What was sent to it
    since it was cut is not read: send it again under the same ids.
    """
    from stream_dp.cli.mending import repair_input, repair_journal

    if place is None:
        if restored:
            raise click.UsageError("--restored goes with --input")
        with busy("Reading the journal and the output topics"):
            whole = asyncio.run(repair_journal(connection, partition, writes_off, applies=applies))
        sys.exit(0 if whole else 1)
    if partition is not None or writes_off:
        raise click.UsageError("--input goes without --partition and --write-off")
    if not applies:
        click.echo(f"{place} will be read again; pass --apply to go on")
        return
    where = asyncio.run(repair_input(connection, place, is_restored=restored))
    click.echo(f"{place} is read again at offset {where:,}; start the workers")
