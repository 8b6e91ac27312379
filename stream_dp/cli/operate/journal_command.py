"""``stream-dp journal repair``: its options, its servers, and what it says."""

from __future__ import annotations

import sys
from collections.abc import Sequence

import click

from stream_dp.cli.command_options import GivenServers, connected
from stream_dp.cli.operate.stopped_workers import run
from stream_dp.cli.text.reply_text import busy
from stream_dp.errors import InvalidInput
from stream_dp.pipeline.intake.decoder import partition_of
from stream_dp.pipeline.repair.input_repair import read_again
from stream_dp.pipeline.repair.journal_repair import Judged, Repair, RepairPlan
from stream_dp.pipeline.repair.offline import Offline


@click.group()
def command() -> None:
    """Go on after the journal or an input was cut."""


@command.command("repair")
@connected(operator=True)
@click.option(
    "--partition",
    type=click.IntRange(0),
    help="The partition of the journal.  [default: all that need it]",
)
@click.option(
    "--write-off",
    "writes_off",
    metavar="NAME",
    multiple=True,
    help="Give up all rows of this data set up to now. May be repeated.",
)
@click.option(
    "--input", "place", metavar="TOPIC:N", help="Read this partition of an input topic again."
)
@click.option("--restored", is_flag=True, help="With --input: the topic was put back as it was.")
@click.option(
    "--apply", "applies", is_flag=True, help="Do it. Otherwise, only say what would be done."
)
def repair(
    connection: GivenServers,
    partition: int | None,
    writes_off: tuple[str, ...],
    place: str | None,
    restored: bool,
    applies: bool,
) -> None:
    """Repair what was cut: a partition of the journal, or of an input topic.

    Put the topic back instead, if you can. Stop all workers first. The command says what becomes of each data
    set, and changes nothing without --apply.

    A data set that is whole goes on. Another one begins again with what Redis has, if no topic shows more.
    Else it stays stopped, and the exit code is 1. With --write-off it goes on without its rows, and every
    phase counts as spent in full. After a restore of all topics and of Redis from older copies, write off
    every data set.

    With --input, a cut partition of an input is filled with empty records. What was sent to it since it was
    cut is not read: send it again under the same ids.
    """
    if place is None:
        if restored:
            raise click.UsageError("--restored goes with --input")
        with busy("Reading the journal and the output topics"):
            whole = run(
                connection, lambda on: _repair_journal(on, partition, writes_off, applies=applies)
            )
        sys.exit(0 if whole else 1)
    if partition is not None or writes_off:
        raise click.UsageError("--input goes without --partition and --write-off")
    where = run(
        connection,
        lambda on: _repair_input(on, place, is_restored=restored, applies=applies),
    )
    if where is None:
        click.echo(f"{place} will be read again; pass --apply to go on")
    else:
        click.echo(f"{place} is read again at offset {where:,}; start the workers")


async def _repair_journal(
    tools: Offline, partition: int | None, writes_off: Sequence[str], *, applies: bool
) -> bool:
    """Says what is to be done, and does it if that was asked for; returns whether all can be served then.

    Args:
        tools: The topics and Redis.
        partition: The partition; None for all that need it.
        writes_off: The data sets whose rows are written off.
        applies: Whether to do it.

    Raises:
        StreamDPError: It cannot be done. It may be repeated.
    """
    count = tools.log.partitions
    if partition is not None and partition >= count:
        there = f"the journal has {count} partitions"
        raise InvalidInput("--partition", there, f"pass 0 to {count - 1}")
    places = {name: partition_of(name.encode(), count) for name in writes_off}
    named = {*places.values()} | ({partition} if partition is not None else set())
    wanted = sorted(named) or range(count)
    whole, needed = True, False
    for one in wanted:
        here = [name for name in writes_off if places[name] == one]
        repair = Repair(tools, one, writes_off=here)
        plan = await repair.plan()
        is_lost = any(found.verdict == "lost" for found in plan.datasets)
        if plan.needed or is_lost or len(wanted) == 1:
            _say(one, plan)
        if plan.needed and applies:
            await repair.apply()
            click.echo(f"partition {one} is repaired; start a worker, which serves it from now on")
        needed, whole = needed or plan.needed, whole and not is_lost
    if not needed:
        click.echo("there is nothing to repair" if whole else "nothing else can be repaired")
    elif not applies:
        click.echo(
            "nothing was changed. Put the topic back instead, if you can; else pass --apply to go on"
        )
    return whole


def _say(partition: int, plan: RepairPlan) -> None:
    click.echo(f"partition {partition} of the journal:{' ' * bool(plan.problem)}{plan.problem}")
    for one in plan.datasets:
        click.echo(f"  {one.dataset}: {_verdict(one)}")


def _verdict(judged: Judged) -> str:
    """What was found of a data set, and what becomes of it."""
    match judged.verdict:
        case "whole":
            return f"whole; the journal has its {judged.journaled:,} commits"
        case "redis":
            return (
                f"{judged.why}. It begins again with the {judged.stored:,} commits that Redis has; no topic "
                "shows more"
            )
        case "written off":
            return (
                "all rows that have come up to now are written off: no query looks at them again, and they "
                "never count. Rows that come later open new phases. Send queries again that have no answer, "
                "under the same ids, and no row again"
            )
        case _:
            return f"lost: {judged.why}. It stays stopped. {judged.ways}"


async def _repair_input(
    tools: Offline, place: str, *, is_restored: bool, applies: bool
) -> int | None:
    """Has a partition of an input topic be read again that was cut; returns the offset where that goes on.

    Args:
        tools: The topics and Redis.
        place: The log, as ``topic:partition``.
        is_restored: Whether it was put back as it was.
        applies: Whether to do it. Else None is returned.

    Raises:
        StreamDPError: It cannot be done.
    """
    topic, _, number = place.rpartition(":")
    roles = {name: role for role, name in tools.names.items()}
    if topic not in roles or not number.isdigit():
        problem = f"{place} is not a partition of an input topic"
        raise InvalidInput("--input", problem, f"write it as {tools.names['queries']}:0")
    if int(number) >= (count := tools.log.partitions):
        raise InvalidInput("--input", f"{topic} has {count} partitions", "pass one of them")
    if not applies:
        return None
    return await read_again(tools, roles[topic], place, is_restored=is_restored)
