"""Puts what was decided on the journal, and then lets it leave, in order, while the next is decided.

Each takes a round trip to a broker, so one group leaves while the next one is appended. All partitions of a
group go together: where each had a lane of its own, replies came no sooner, unless one partition was slower
than the others, and took 7% more CPU time.

What has left is said in a mark, which travels with a later group, or by itself after an idle second. A worker
that dies before it leaves it to the next owner, which sends the same bytes again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from time import time
from typing import Any, Final

from stream_dp.errors import Fenced, StreamDPError
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.intake.decoder import partition_in
from stream_dp.pipeline.intake.ownership import REJECTED
from stream_dp.pipeline.intake.records import COMMIT, Decided, Outgoing, Releasable
from stream_dp.pipeline.journal.journal import Journal
from stream_dp.pipeline.journal.marks import said
from stream_dp.pipeline.journal.newest import Newest
from stream_dp.pipeline.journal.owned_partition import Owned
from stream_dp.pipeline.journal.redis_follower import RedisFollower
from stream_dp.pipeline.kafka.topic_log import LogEntry
from stream_dp.pipeline.together import together
from stream_dp.pipeline.watch.audit_log import write_audit
from stream_dp.pipeline.watch.crash_points import CrashPoint

_log = logging.getLogger(__name__)

Send = Callable[[Outgoing], Awaitable[Awaitable[object]]]
"""Hands a record to the producer; what it returns is done when the broker has the record."""

_IN_FLIGHT: Final = 4
_RETRY_S: Final = 0.5
_IDLE_S: Final = 1.0


class Releaser:
    """Gathers what may leave; appends and sends it in tasks of its own.

    Args:
        newest: What keeps the newest record of a key the last one.

    Attributes:
        gathered: The records that may leave and were not handed over yet.
        unreleased: The number of records that were handed over and are not known to have left.
    """

    def __init__(
        self,
        journal: Journal,
        following: RedisFollower,
        send: Send,
        newest: Newest,
        context: Context,
    ) -> None:
        self.gathered = Releasable()
        self.unreleased = 0
        self._journal = journal
        self._following = following
        self._send = send
        self._newest = newest
        self._context = context
        self._under_way = 0
        self._idle = asyncio.Event()
        self._failure: BaseException | None = None
        self._handing_over = asyncio.Lock()
        self._to_append: asyncio.Queue[Releasable] = asyncio.Queue(_IN_FLIGHT)
        self._waiting: list[Releasable] = []  # what is in that queue, or is to come into it
        self._to_send: asyncio.Queue[Releasable] = asyncio.Queue(_IN_FLIGHT)
        # What is done with in a partition, and not said on the journal yet, as a mark says it.
        self._done: defaultdict[int, dict[str, Any]] = defaultdict(dict)

    @property
    def busy(self) -> bool:
        """Whether something that was handed over has not left."""
        return self._under_way > 0

    async def hand_over(self) -> asyncio.Future[None]:
        """Queues what was gathered; waits while a few groups are still to leave.

        Returns:
            Done when the journal has it. It is never an error: see ``appended``.
        """
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # Before the turn of this call: one whose turn comes earlier takes all that is gathered by then.
        self.gathered.appended.append(done)
        # One after another: what is gathered next may follow from what still waits for its place.
        async with self._handing_over:
            gathered, self.gathered = self.gathered, Releasable()
            if gathered:
                self.unreleased += len(gathered.outgoing)
                self._waiting.append(gathered)
                await self._put(self._to_append, gathered)
            else:
                _tell(gathered)
        return done

    async def _put(self, stage: asyncio.Queue[Releasable], group: Releasable) -> None:
        self._under_way += 1
        self._idle.clear()
        await stage.put(group)

    async def appended(self, commits: Releasable) -> None:
        """Returns when the journal has these commits.

        Raises:
            Fenced: Another worker has taken their partition over.
            BaseException: They could not be appended, and this is why. The worker ends of it.
        """
        self.gathered.append(commits)
        await (await self.hand_over())
        if self._failure is not None:
            raise self._failure
        for commit in commits.commits:
            if commit.offset < 0:
                raise Fenced(f"{commit.dataset}: another worker has taken over its journal")

    async def joined(self) -> None:
        """Returns when everything that was handed over has left."""
        if self.busy:
            await self._idle.wait()

    async def settled(self) -> None:
        """Hands over what was gathered; returns when the journal has it, and all that follows has left.

        Raises:
            BaseException: Something could not leave, and this is why. The worker ends of it.
        """
        await self.hand_over()
        await self.joined()
        if self._failure is not None:
            raise self._failure

    async def mark(self, owned: Owned, **more: object) -> bool:
        """Says what is done with in a partition; returns whether that is there and counts.

        Args:
            owned: The partition.
            more: What else the mark says.
        """
        marked = await self._journal.mark(owned, **self.told(owned.partition), **more)
        self._context.fuse(CrashPoint.AFTER_MARK)
        return marked

    def let_go(self) -> None:
        """Forgets what was decided of partitions that are not owned any more: it is for their owners."""
        gone = set(range(self._journal.partitions)) - self._journal.owned().keys()
        self._drop(self.gathered, gone)
        for releasable in self._waiting:
            self.unreleased -= self._drop(releasable, gone)
        for partition in gone:
            self._done.pop(partition, None)

    def told(self, partition: int) -> dict[str, Any]:
        """What is done with in a partition and was not said yet. The caller says it."""
        return self._done.pop(partition, {})

    async def run(self) -> None:
        """Appends and sends what was handed over, in order, until cancelled."""
        stages: list[Callable[[], Awaitable[None]]] = [
            partial(self._run_stage, self._to_append, self._append),
            partial(self._run_stage, self._to_send, self._release),
            self._run_marking,
        ]
        await together(stages, at_once=len(stages))

    async def _run_stage(
        self, stage: asyncio.Queue[Releasable], step: Callable[[Releasable], Awaitable[None]]
    ) -> None:
        """All that waits goes together: while groups are small, the broker is what takes time."""
        while True:
            group, count = await stage.get(), 1
            while not stage.empty():
                group.append(stage.get_nowait())
                count += 1
            if stage is self._to_append:
                del self._waiting[:count]
            try:
                await step(group)
            except BaseException as error:
                self._failure = self._failure or error  # the first one has ended the others
                raise
            finally:
                self._context.heartbeat.beat()
                self._under_way -= count
                if not self.busy:
                    self._idle.set()

    async def _run_marking(self) -> None:
        """Says what is done with where nothing else is to be said."""
        while True:
            await asyncio.sleep(_IDLE_S)
            for partition, owned in self._journal.owned().items():
                if self._done[partition] and not self.busy:
                    await self.mark(owned)

    async def _append(self, group: Releasable) -> None:
        """Puts commits on the journal; drops those of others by now, with all that follows from them."""
        try:
            self.unreleased -= self._drop(group)
            commits: defaultdict[int, list[Decided]] = defaultdict(list)
            for one in group.commits:
                commits[self._journal.partition_of(one.dataset)].append(one)
            rejected: defaultdict[int, dict[str, int]] = defaultdict(dict)
            for mark, offset in group.watermarks.items():
                if mark.startswith(REJECTED):
                    rejected[partition_in(mark)][mark] = offset
            partitions = sorted(commits.keys() | rejected.keys())
            ends = await asyncio.gather(
                *(self._append_to(at, commits[at], rejected[at]) for at in partitions)
            )
        finally:
            _tell(group)
        found = dict(zip(partitions, ends, strict=True))
        group.ends |= {at: end for at, end in found.items() if end is not None}
        if lost := {at for at, end in found.items() if end is None}:
            self.unreleased -= self._drop(group, lost)
            if any(map(self._journal.lost, lost)):
                raise Fenced(
                    "another worker has taken over a partition that this one believes to hold"
                )
        await self._put(self._to_send, group)

    def _drop(self, group: Releasable, gone: Collection[int] = ()) -> int:
        """Drops all that is of some partitions, or was decided before its partition was let go of.

        What follows from it is dropped as well. Returns how many records that were.
        """
        owned = self._journal.owned()

        def stays(of: Decided | int) -> bool:
            if isinstance(of, int):
                return of not in gone
            there = owned.get(partition := self._journal.partition_of(of.dataset))
            mine = there is not None and there.chains.get(of.dataset) is of.chain
            return partition not in gone and (of.chain is None or mine)

        before = len(group.outgoing)
        group.commits = [one for one in group.commits if stays(one)]
        group.outgoing = [(of, one) for of, one in group.outgoing if stays(of)]
        group.watermarks = {
            mark: offset for mark, offset in group.watermarks.items() if stays(partition_in(mark))
        }
        group.ends = {at: end for at, end in group.ends.items() if stays(at)}
        return before - len(group.outgoing)

    async def _append_to(
        self, partition: int, commits: Sequence[Decided], rejected: dict[str, int]
    ) -> int | None:
        """Appends commits, and what is to be said with them, as one batch; returns where it ends.

        None if another worker has taken the partition over. What was rejected is said behind all commits
        that were decided by then.
        """
        owned = self._journal.owned().get(partition)
        if owned is None:
            return None
        entries: list[LogEntry] = []
        begins: list[int] = []
        for one in commits:
            begins.append(len(entries))
            entries += self._journal.entries(owned, "commit", one.dataset, one.stored)
        if rejected:
            self._done[partition].setdefault("watermarks", {}).update(rejected)
        if told := self.told(partition):
            owned.marks.take(told)
            entries += self._journal.entries(owned, "mark", "", said(**told))
        first = await self._journal.append(owned, entries)
        if first is None:
            return None
        for one, begin in zip(commits, begins, strict=True):
            one.offset = first + begin
            owned.chains[one.dataset].landed(one.commit, one.offset)
        self._following.follow(commits)
        return first + len(entries)

    async def _release(self, group: Releasable) -> None:
        """Sends; what is not marked when the worker dies is sent again."""
        outgoing = self._newest.in_order([following(*one) for one in group.outgoing])
        write_audit(outgoing)
        self._context.fuse(CrashPoint.BEFORE_SEND)
        await self._deliver(outgoing)
        self.unreleased -= len(group.outgoing)
        self._context.metrics.released(outgoing, time())
        self._context.fuse(CrashPoint.AFTER_RELEASE)
        for mark, offset in group.watermarks.items():
            self._done[partition_in(mark)].setdefault("watermarks", {})[mark] = offset
        for partition, end in group.ends.items():
            self._done[partition]["released"] = end

    async def _deliver(self, outgoing: Sequence[Outgoing]) -> None:
        """Sends until the broker has everything; sending twice is harmless, the bytes are the same."""
        while True:
            try:
                sent = [await self._send(record) for record in outgoing]
                self._context.fuse(CrashPoint.AFTER_SEND)
                await asyncio.gather(*sent)
            except StreamDPError as error:
                if not error.retriable:
                    raise
                _log.warning("sending again: %s", error)
                await asyncio.sleep(_RETRY_S)
            else:
                return


def _tell(group: Releasable) -> None:
    """Tells those who wait until the journal has a group."""
    for done in group.appended:
        if not done.done():
            done.set_result(None)


def following(commit: Decided | int, outgoing: Outgoing) -> Outgoing:
    """The record, and from which commit it follows."""
    if isinstance(commit, int):
        return outgoing
    headers = (*outgoing.headers, (COMMIT, commit.place))
    return replace(outgoing, headers=headers)
