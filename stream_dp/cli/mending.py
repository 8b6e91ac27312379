"""The servers of ``stream-dp journal mend``, and what it says."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from time import monotonic

import click

from stream_dp.cli.connection import Connection
from stream_dp.cli.idle import Deployment, deployment
from stream_dp.errors import InvalidInput
from stream_dp.pipeline.decoding import partition_of
from stream_dp.pipeline.filling import fill_input, restored
from stream_dp.pipeline.mending import FOR_LIFE, Judged, Plan, Repair

__all__ = ["repair_input", "repair_journal"]

_QUICK_S = 2.0


def repair_journal(
    connection: Connection,
    partition: int | None,
    dataset: str | None,
    writes_off: Sequence[str],
    *,
    applies: bool,
) -> bool:
    """Says what is to be done, and does it if that was asked for; returns whether all can be served then.

    Args:
        connection: The servers.
        partition: The partition; None for all that need it.
        dataset: A data set of the partition.
        writes_off: The data sets whose rows are written off.
        applies: Whether to do it.

    Raises:
        StreamDPError: It cannot be done. It may be repeated.
    """
    return asyncio.run(_repair(connection, partition, dataset, writes_off, applies=applies))


async def _repair(
    connection: Connection,
    partition: int | None,
    dataset: str | None,
    writes_off: Sequence[str],
    *,
    applies: bool,
) -> bool:
    async with deployment(connection) as there:
        wanted = _wanted(there, partition, dataset, writes_off)
        whole, needed = True, False
        for one in wanted:
            here = [name for name in writes_off if _partition_of(there, name) == one]
            repair = Repair(there.tools, one, writes_off=here, progress=_Progress())
            plan = await repair.plan()
            if dataset is not None and dataset not in {found.dataset for found in plan.datasets}:
                raise InvalidInput(
                    "--dataset", f"there is no data set {dataset!r}", "see: stream-dp dataset list"
                )
            is_lost = any(found.verdict == "lost" for found in plan.datasets)
            if not plan.needed and not is_lost and len(wanted) > 1:
                continue
            _say(plan)
            if plan.needed and applies:
                plan = await repair.apply()
                click.echo(
                    f"partition {one} is repaired; start a worker, which serves it from now on"
                )
            needed = needed or plan.needed
            whole = whole and not is_lost
    if not needed:
        click.echo("there is nothing to repair" if whole else "nothing else can be repaired")
    elif not applies:
        click.echo(
            "nothing was changed. Put the topic back instead, if you can; else pass --apply to go on"
        )
    return whole


def _wanted(
    there: Deployment, partition: int | None, dataset: str | None, writes_off: Sequence[str]
) -> Sequence[int]:
    """The partitions to look at."""
    names = [*writes_off] if dataset is None else [dataset, *writes_off]
    wanted = {_partition_of(there, name) for name in names}
    if partition is not None:
        if partition >= there.partitions:
            raise InvalidInput(
                "--partition",
                f"the journal has {there.partitions} partitions",
                f"pass 0 to {there.partitions - 1}",
            )
        wanted.add(partition)
    return sorted(wanted) or range(there.partitions)


def _partition_of(there: Deployment, name: str) -> int:
    return partition_of(name.encode(), there.partitions)


def _say(plan: Plan) -> None:
    click.echo(
        f"partition {plan.partition} of the journal:{' ' * bool(plan.problem)}{plan.problem}"
    )
    for one in plan.datasets:
        click.echo(f"  {_said(one)}")


def _said(judged: Judged) -> str:
    """What was found of a data set, and what becomes of it."""
    name = judged.dataset
    match judged.verdict:
        case "whole":
            return f"{name}: whole; the journal has its {judged.journaled:,} commits"
        case "redis":
            return (
                f"{name}: {judged.why}. It begins again with the {judged.stored:,} commits that Redis has; "
                "no topic shows more"
            )
        case "written off":
            return (
                f"{name}: all rows that have come up to now are written off: no query looks at them again, "
                "and they never count. Rows that come later open new phases. Send queries again that have no "
                "answer, under the same ids, and no row again"
            )
        case _:
            way = f"{FOR_LIFE}, so only a newer copy of Redis or the journal helps"
            if not judged.for_life:
                way = (
                    "put a newer copy of Redis or the topic back and repair again, or give its rows up: "
                    f"stream-dp journal mend --write-off {name}"
                )
            return f"{name}: lost: {judged.why}. It stays stopped; {way}"


def repair_input(connection: Connection, place: str, *, is_restored: bool) -> str:
    """Has a partition of an input topic be read again that was cut; returns where that goes on, in words.

    Args:
        connection: The servers.
        place: The log, as ``topic:partition``.
        is_restored: Whether it was put back as it was.

    Raises:
        StreamDPError: It cannot be done.
    """
    return asyncio.run(_repair_input(connection, place, is_restored=is_restored))


async def _repair_input(connection: Connection, place: str, *, is_restored: bool) -> str:
    topic, _, number = place.rpartition(":")
    roles = {connection.topics.name(role): role for role in ("datasets", "batches", "queries")}
    if topic not in roles or not number.isdigit():
        raise InvalidInput(
            "--input",
            f"{place} is not a partition of an input topic",
            f"write it as {connection.topics.name('queries')}:0",
        )
    async with deployment(connection) as there:
        if int(number) >= there.partitions:
            raise InvalidInput(
                "--input", f"{topic} has {there.partitions} partitions", "pass one of them"
            )
        if is_restored:
            await restored(there.tools, roles[topic], place)
            return "where the worker stopped"
        return f"at offset {await fill_input(there.tools, roles[topic], place):,}"


class _Progress:
    """Says how far a topic is read, from two seconds on and then every two seconds."""

    def __init__(self) -> None:
        self._role = ""
        self._due = 0.0

    def __call__(self, role: str, done: int, records: int) -> None:
        if role != self._role:
            self._role, self._due = role, monotonic() + _QUICK_S
        elif monotonic() >= self._due:
            self._due = monotonic() + _QUICK_S
            click.echo(f"reading {role}: {done:,} of {records:,} records", err=True)
