"""The servers of ``stream-dp journal mend`` and ``stream-dp dataset close``, and what they say."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from time import monotonic

import click

from stream_dp.cli.connection import Connection
from stream_dp.cli.idle import idle
from stream_dp.errors import InvalidInput
from stream_dp.pipeline.closing import FOR_LIFE
from stream_dp.pipeline.decoding import partition_of
from stream_dp.pipeline.repairing import Judged, Repairing
from stream_dp.pipeline.witnesses import WITNESSES

__all__ = ["close", "repair"]

_QUICK_S = 2.0
_OTHERS = ("batches", "queries")


def repair(
    connection: Connection, partition: int | None, dataset: str | None, *, yes: bool
) -> bool:
    """Repairs a partition of the journal, or all that were cut, after the operator has agreed.

    Returns:
        Whether every data set that was looked at can be served.

    Raises:
        StreamDPError: It cannot be done. It may be repeated.
    """
    return asyncio.run(_repair(connection, partition, dataset, yes=yes))


async def _repair(
    connection: Connection, partition: int | None, dataset: str | None, *, yes: bool
) -> bool:
    whole = True
    async with _opened(connection) as opened:
        if dataset is not None:
            partition = opened.partition_of(dataset)
        if partition is not None and partition >= opened.partitions:
            raise InvalidInput(
                "--partition",
                f"the journal has {opened.partitions} partitions",
                f"pass 0 to {opened.partitions - 1}",
            )
        wanted = range(opened.partitions) if partition is None else [partition]
        for one in wanted:
            repairing = opened.repairing(one)
            if partition is None and not await repairing.is_cut():
                continue
            found = await repairing.judged()
            if dataset is not None and dataset not in {judged.dataset for judged in found}:
                raise InvalidInput(
                    "--dataset", f"there is no data set {dataset!r}", "see: stream-dp dataset list"
                )
            click.echo(f"partition {one} of the journal:")
            for line in map(_said, found):
                click.echo(f"  {line}")
            if not yes:
                click.confirm(
                    f"Go on with partition {one}? Put the topic back instead, if you can.",
                    abort=True,
                )
            found = await repairing.repair()
            lost = [judged for judged in found if judged.verdict == "lost"]
            whole = whole and not lost
            click.echo(f"partition {one} is repaired; start a worker, which serves it from now on")
            for judged in lost:
                name = judged.dataset
                way = f"; next: stream-dp dataset close {name}"
                if judged.for_life:
                    way = f". {FOR_LIFE}; only a newer copy of Redis or of the journal helps"
                click.echo(f"{name} is stopped{way}")
            partition = one
    if partition is None:
        click.echo("no partition of the journal was cut, as far as Redis knows")
    return whole


def close(connection: Connection, name: str, *, whole: bool, yes: bool) -> None:
    """Has a data set go on of which charges and answers are on the output topics alone, or nowhere any more.

    Args:
        connection: The servers.
        name: The data set.
        whole: Whether to close it although nothing shows that something of it is lost.
        yes: Whether to ask nobody.

    Raises:
        InvalidInput: Nothing of it is lost, or it cannot be closed.
        StreamDPError: It cannot be done. It may be repeated.
    """
    asyncio.run(_close(connection, name, whole=whole, yes=yes))


async def _close(connection: Connection, name: str, *, whole: bool, yes: bool) -> None:
    async with _opened(connection) as opened:
        repairing = opened.repairing(opened.partition_of(name), closes=[name], whole=whole)
        found = {judged.dataset: judged for judged in await repairing.judged()}
        if name not in found:
            raise InvalidInput(
                "NAME", f"there is no data set {name!r}", "see: stream-dp dataset list"
            )
        click.echo(_said(found[name]))
        if found[name].verdict != "lost" and not whole:
            raise InvalidInput(
                "NAME",
                f"nothing shows that something of {name} is lost",
                "start a worker, or pass --whole if the topics and Redis were all restored from older copies",
            )
        if found[name].for_life:
            raise InvalidInput(
                "NAME", FOR_LIFE, "restore the newest copy of Redis, or of the journal"
            )
        if not yes:
            click.confirm(
                f"This writes off all rows of {name} that have come up to now: no query looks at them again, "
                "and they never count. Go on?",
                abort=True,
            )
        await repairing.repair()
    click.echo(
        f"{name} is closed; start a worker, which opens new phases of the rows that come from now on"
    )
    click.echo("send queries again that have no answer, under the same ids, and no row again")


def _said(judged: Judged) -> str:
    """What was found of a data set, and what becomes of it."""
    name, stored = judged.dataset, f"{judged.stored:,}"
    match judged.verdict:
        case "whole":
            return f"{name}: whole; Redis and the journal have its {stored} commits"
        case "heals":
            return (
                f"{name}: a worker brings Redis ({stored} commits) and the journal ({judged.journaled:,}) "
                "together"
            )
        case "store":
            return (
                f"{name}: Redis has its {stored} commits, and no topic shows more; the journal has "
                f"{judged.journaled:,} without a gap, and begins again with what Redis has{_unkept(judged)}"
            )
        case _:
            return f"{name}: lost: {judged.why}; it stays stopped"


def _unkept(judged: Judged) -> str:
    """What is said of a data set that a later loss of Redis would end."""
    if not judged.unkept:
        return ""
    return (
        f". Keep copies of Redis: what persons have used for life in {judged.unkept:,} of its phases is not "
        "on the topic blocks, so if Redis is lost, the data set is stopped"
    )


class _Opened:
    """The servers."""

    def __init__(self, partitions: int, repairing: Repairing) -> None:
        self.partitions = partitions
        self._repairing = repairing

    def partition_of(self, name: str) -> int:
        return partition_of(name.encode(), self.partitions)

    def repairing(
        self, partition: int, *, closes: Collection[str] = (), whole: bool = False
    ) -> Repairing:
        return replace(
            self._repairing,
            partition=partition,
            closes=frozenset(closes),
            whole=whole,
            witnesses=[],
        )


@asynccontextmanager
async def _opened(connection: Connection) -> AsyncIterator[_Opened]:
    async with idle(connection, WITNESSES) as deployment:
        repairing = Repairing(
            **deployment.parts,
            partition=0,
            outputs={role: deployment.log(role) for role in WITNESSES},
            inputs={role: deployment.log(role) for role in _OTHERS},
            names={role: deployment.names.name(role) for role in _OTHERS},
            progress=_Progress(),
        )
        with _quiet():
            yield _Opened(deployment.counts["journal"], repairing)


@contextmanager
def _quiet() -> Iterator[None]:
    """Says nothing of what is healed in memory alone."""
    healing = logging.getLogger("stream_dp.pipeline.healing")
    disabled, healing.disabled = healing.disabled, True
    try:
        yield
    finally:
        healing.disabled = disabled


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
