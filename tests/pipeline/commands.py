"""What commands see of a ``World`` whose workers are stopped, and the workers that come before and after."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import Any

from stream_dp.pipeline.context import Context
from stream_dp.pipeline.intake.decoder import partition_of
from stream_dp.pipeline.intake.records import Outgoing
from stream_dp.pipeline.kafka.topic_log import LogEntry
from stream_dp.pipeline.repair.journal_repair import Repair
from stream_dp.pipeline.repair.offline import Offline
from stream_dp.pipeline.repair.witnesses import WITNESSES
from stream_dp.pipeline.rows.private_values import Keeper
from stream_dp.state.schema import State
from tests.local_logs import LocalLog
from tests.pipeline.crash import CountingFuse
from tests.pipeline.fakes import FakeKept, FakeRows
from tests.pipeline.trail import Sent
from tests.pipeline.world import World


class JournalOf(LocalLog):
    """The journal of a world, with a fuse before and after each append."""

    def __init__(self, world: World, fuse: CountingFuse) -> None:
        super().__init__(world.partitions)
        self.entries, self._firsts = world.journal, world.forgotten
        self._world, self._fuse = world, fuse

    async def append(self, partition: int, entries: Sequence[LogEntry]) -> int | None:
        self._fuse("before append")
        first = self._world.append(-1, partition, entries)
        self._fuse("after append")
        return first


class KeptOf(FakeKept):
    """The topic of blocks as a command sees it: no worker is there."""

    async def effect(self) -> None:
        """Nothing happens meanwhile."""


def outputs(world: World) -> dict[str, LocalLog]:
    """What has left, as topics of one partition."""
    logs = {role: LocalLog(1) for role in WITNESSES}
    for event in world.trail:
        if isinstance(event, Sent) and event.outgoing.role in logs:
            one = event.outgoing
            entry = LogEntry(one.key.encode(), one.value, one.headers)
            logs[one.role].entries[0].append(entry)
    return logs


def inputs(world: World) -> dict[str, LocalLog]:
    """The input topics."""
    logs = {role: LocalLog(world.partitions) for role in ("datasets", "batches", "queries")}
    for role, log in logs.items():
        for partition in range(world.partitions):
            log.entries[partition] = [
                LogEntry(
                    record.key or b"",
                    record.value or b"",
                    tuple((name, value or b"") for name, value in record.headers.items()),
                )
                for record in world.log[f"in.{role}:{partition}"]
            ]
    return logs


def blocks(world: World) -> LocalLog:
    """All that was ever kept on the topic of blocks, and what erases some of it behind that."""
    log = LocalLog(world.partitions)
    for key, parts in world.kept_log:
        dataset, _, _ = key.partition(b"/")
        entries = log.entries[partition_of(dataset, world.partitions)]
        entries += [LogEntry(b"%b/%d" % (key, at), part) for at, part in enumerate(parts)]
        if key not in world.kept:
            entries += [LogEntry(b"%b/%d" % (key, at), b"") for at in range(len(parts))]
    return log


def offline(world: World, fuse: CountingFuse | None = None, **changes: Any) -> Offline:
    """The topics and Redis of a world, for a command."""
    fuse = fuse or CountingFuse()
    log, number = JournalOf(world, fuse), len(world.processes) - 1

    async def send(outgoing: Outgoing) -> Awaitable[object]:
        fuse("send")
        world.sent(number, outgoing)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    settings: dict[str, Any] = {
        "log": log,
        "rows": FakeRows(world),
        "blocks": blocks(world),
        "keeper": Keeper(KeptOf(world, number, fuse), Context(fuse)),
        "view": world.view,
        "outputs": outputs(world),
        "inputs": inputs(world),
        "names": {role: f"in.{role}" for role in ("datasets", "batches", "queries")},
        "send": send,
        "noise": lambda: world.make_noise(number),
        "facts": {},
        "key_file": world.key_file,
        "context": Context(fuse),
    }
    return Offline(**(settings | changes))


def repairs(
    world: World,
    partition: int,
    *writes_off: str,
    fuse: CountingFuse | None = None,
    **changes: Any,
) -> Repair:
    """The repair of a partition."""
    return Repair(offline(world, fuse, **changes), partition, writes_off=writes_off)


async def mend_all(world: World, *writes_off: str) -> dict[str, str]:
    """Repairs every partition; returns what was found of each data set."""
    found: dict[str, str] = {}
    for partition in range(world.partitions):
        here = [
            name
            for name in writes_off
            if partition_of(name.encode(), world.partitions) == partition
        ]
        plan = await repairs(world, partition, *here).apply()
        found |= {one.dataset: one.verdict for one in plan.datasets}
    return found


async def served(world: World, rounds: Any = ()) -> Any:
    """Runs rounds, and a worker that has nothing left to do then, that Redis follows, and that is stopped."""
    if rounds:
        await world.run(rounds=rounds)
    process = world.process()
    try:
        await process.assign()
        await process.run()
        await asyncio.wait_for(process.worker.following.joined(), 10)
    finally:
        await process.stop()
    return process


def states(process: Any) -> dict[str, State]:
    """What is durable of the data sets that a worker has taken over."""
    return {
        name: chain.build()
        for owned in process.worker.journal.owned().values()
        for name, chain in owned.chains.items()
        if not chain.problem
    }


def cut_last(world: World, name: str, commits: int = 1) -> None:
    """Cuts the journal so that a data set lacks its last commits."""
    entries = world.journal[partition_of(name.encode(), world.partitions)]
    places = [
        at
        for at, entry in enumerate(entries)
        if (entry.key, dict(entry.headers)["kind"]) == (name.encode(), b"commit")
    ]
    del entries[places[-commits] :]


def cut(world: World, share: float = 0.5) -> None:
    """Cuts the journal, so that a share of each partition is left."""
    for entries in world.journal:
        del entries[int(len(entries) * share) :]
