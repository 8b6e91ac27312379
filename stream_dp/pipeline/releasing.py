"""Puts what was decided on the journal, and then lets it leave, in order, while the next is decided.

Each takes a round trip to a broker, so one group leaves while the next one is appended. What has left is said
in a mark, which travels with a later group, or by itself after an idle second. A worker that dies before it
leaves it to the next owner, which sends the same bytes again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Final

from stream_dp.errors import Fenced, StreamDPError
from stream_dp.pipeline.audit_log import write_audit
from stream_dp.pipeline.decoding import partition_in
from stream_dp.pipeline.following import Following
from stream_dp.pipeline.fuse import CrashPoint, Fuse
from stream_dp.pipeline.journal import Journal, Owned
from stream_dp.pipeline.logs import Entry
from stream_dp.pipeline.marks import said
from stream_dp.pipeline.metrics import Metrics
from stream_dp.pipeline.newest import Newest
from stream_dp.pipeline.ownership import REJECTED
from stream_dp.pipeline.records import COMMIT, Decided, Outgoing, Releasable
from stream_dp.pipeline.together import together
from stream_dp.pipeline.watchdog import Heartbeat

__all__ = ["Releaser", "Send", "following"]

_log = logging.getLogger(__name__)

Send = Callable[[Outgoing], Awaitable[Awaitable[object]]]
"""Hands a record to the producer; what it returns is done when the broker has the record."""

_IN_FLIGHT: Final = 4
_RETRY_S: Final = 0.5
_IDLE_S: Final = 1.0


@dataclass
class _Done:
    """What is done with in a partition, and not said on the journal yet.

    Attributes:
        watermarks: ``topic:partition`` -> the offset below which every record is done with.
        released: The offset of the journal below which all output has left. 0 for nothing new.
    """

    watermarks: dict[str, int] = field(default_factory=dict)
    released: int = 0

    def __bool__(self) -> bool:
        return bool(self.watermarks or self.released)

    def told(self) -> dict[str, object]:
        """What a mark is to say; nothing is left of it here."""
        found: dict[str, object] = {"watermarks": self.watermarks, "released": self.released}
        self.watermarks, self.released = {}, 0
        return found


_Ends = dict[int, int]
"""Up to where a group is on the journal, by partition."""

_Queue = asyncio.Queue[tuple[Releasable, asyncio.Future[None]]]
_Later = asyncio.Queue[tuple[Releasable, _Ends]]


class Releaser:
    """Gathers what may leave; appends and sends it in tasks of its own.

    Args:
        is_held: Whether the worker believes to hold some of these partitions.
        newest: What keeps the newest record of a key the last one.

    Attributes:
        gathered: The records that may leave and were not handed over yet.
        unreleased: The number of records that were handed over and are not known to have left.
    """

    def __init__(
        self,
        journal: Journal,
        following: Following,
        send: Send,
        is_held: Callable[[Collection[int]], bool],
        newest: Newest,
        *,
        metrics: Metrics,
        fuse: Fuse,
        heartbeat: Heartbeat,
    ) -> None:
        self.gathered = Releasable()
        self.unreleased = 0
        self._journal = journal
        self._following = following
        self._send = send
        self._is_held = is_held
        self._newest = newest
        self._metrics = metrics
        self._fuse = fuse
        self._heartbeat = heartbeat
        self._under_way = 0
        self._failure: BaseException | None = None
        self._handing_over = asyncio.Lock()
        self._to_append: _Queue = asyncio.Queue(_IN_FLIGHT)
        self._waiting: deque[Releasable] = deque()  # to be appended
        self._to_send: _Later = asyncio.Queue(_IN_FLIGHT)
        self._done: defaultdict[int, _Done] = defaultdict(_Done)

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
        # One after another: what is gathered next may follow from what still waits for its place.
        async with self._handing_over:
            gathered, self.gathered = self.gathered, Releasable()
            if gathered.outgoing or gathered.watermarks or gathered.commits or gathered.ends:
                self.unreleased += len(gathered.outgoing)
                self._under_way += 1
                self._waiting.append(gathered)
                await self._to_append.put((gathered, done))
            else:
                done.set_result(None)
        return done

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
        while self.busy:
            for stage in (self._to_append, self._to_send):
                await stage.join()
            await asyncio.sleep(0)

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
        self._fuse(CrashPoint.AFTER_MARK)
        return marked

    def let_go(self) -> None:
        """Forgets what was decided of partitions that are not owned any more: it is for their owners."""
        gone = set(range(self._journal.partitions)) - self._journal.owned().keys()
        _leave(self.gathered, gone, self._journal.partition_of)
        for releasable in self._waiting:
            self.unreleased -= _leave(releasable, gone, self._journal.partition_of)
        for partition in gone:
            self._done.pop(partition, None)

    def told(self, partition: int) -> dict[str, object]:
        """What is done with in a partition and was not said yet. The caller says it."""
        return self._done.pop(partition, _Done()).told()

    async def run(self) -> None:
        """Appends and sends what was handed over, in order, until cancelled."""
        stages = [self._run_appending, self._run_sending, self._run_marking]
        await together(stages, at_once=len(stages))

    async def _run_appending(self) -> None:
        """All that waits is appended together: while groups are small, the broker is what takes time."""
        while True:
            together, first = await self._to_append.get()
            self._waiting.popleft()
            dones = [first]
            while not self._to_append.empty():
                more, done = self._to_append.get_nowait()
                self._waiting.popleft()
                together.append(more)
                dones.append(done)
            try:
                try:
                    ends = await self._append(together)
                finally:
                    for done in dones:
                        if not done.done():
                            done.set_result(None)
                self._under_way += 1
                await self._to_send.put((together, ends))
            except BaseException as error:
                self._failure = self._failure or error  # the first one has ended the others
                raise
            finally:
                self._heartbeat.beat()
                for _ in dones:
                    self._under_way -= 1
                    self._to_append.task_done()

    async def _run_sending(self) -> None:
        while True:
            together, ends = await self._to_send.get()
            groups = 1
            while not self._to_send.empty():
                more, later = self._to_send.get_nowait()
                together.append(more)
                ends |= later
                groups += 1
            try:
                await self._release(together, ends)
            except BaseException as error:
                self._failure = self._failure or error
                raise
            finally:
                self._heartbeat.beat()
                for _ in range(groups):
                    self._under_way -= 1
                    self._to_send.task_done()

    async def _run_marking(self) -> None:
        """Says what is done with where nothing else is to be said."""
        while True:
            await asyncio.sleep(_IDLE_S)
            for partition, owned in self._journal.owned().items():
                if self._done[partition] and not self.busy:
                    await self.mark(owned)

    async def _append(self, releasable: Releasable) -> _Ends:
        """Puts commits on the journal; drops those of others by now, with all that follows from them."""
        self._drop_stale(releasable)
        commits: defaultdict[int, list[Decided]] = defaultdict(list)
        for one in releasable.commits:
            if one.stored:
                commits[self._journal.partition_of(one.dataset)].append(one)
        rejected: defaultdict[int, dict[str, int]] = defaultdict(dict)
        for mark, offset in releasable.watermarks.items():
            if mark.startswith(REJECTED):
                rejected[partition_in(mark)][mark] = offset
        partitions = sorted(commits.keys() | rejected.keys())
        appended = await asyncio.gather(
            *(self._append_to(at, commits[at], rejected[at]) for at in partitions)
        )
        ends = {at: end for at, end in zip(partitions, appended, strict=True) if end is not None}
        lost = set(partitions) - ends.keys()
        ends = releasable.ends | ends
        if lost:
            self.unreleased -= _leave(releasable, lost, self._journal.partition_of)
            if self._is_held([partition for partition in lost if self._journal.lost(partition)]):
                raise Fenced(
                    "another worker has taken over a partition that this one believes to hold"
                )
        return ends

    def _drop_stale(self, releasable: Releasable) -> None:
        """Drops what was decided before its partition was let go of, and what follows from it."""
        owned = self._journal.owned()

        def is_stale(of: Decided | int) -> bool:
            if isinstance(of, int) or of.chain is None:
                return False
            there = owned.get(self._journal.partition_of(of.dataset))
            return there is None or there.chains.get(of.dataset) is not of.chain

        before = len(releasable.outgoing)
        releasable.commits = [one for one in releasable.commits if not is_stale(one)]
        releasable.outgoing = [(of, one) for of, one in releasable.outgoing if not is_stale(of)]
        self.unreleased -= before - len(releasable.outgoing)

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
        entries: list[Entry] = []
        begins: list[int] = []
        for one in commits:
            begins.append(len(entries))
            entries += self._journal.entries(owned, "commit", one.dataset, one.stored)
        done = self._done.pop(partition, _Done())
        done.watermarks |= rejected
        if done:
            told = done.told()
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

    async def _release(self, releasable: Releasable, ends: _Ends) -> None:
        """Sends; what is not marked when the worker dies is sent again."""
        outgoing = self._newest.in_order([following(*one) for one in releasable.outgoing])
        write_audit(outgoing)
        self._fuse(CrashPoint.BEFORE_SEND)
        await self._deliver(outgoing)
        self.unreleased -= len(releasable.outgoing)
        self._metrics.released(outgoing, time())
        self._fuse(CrashPoint.AFTER_RELEASE)
        for mark, offset in releasable.watermarks.items():
            self._done[partition_in(mark)].watermarks[mark] = offset
        for partition, end in ends.items():
            self._done[partition].released = end

    async def _deliver(self, outgoing: Sequence[Outgoing]) -> None:
        """Sends until the broker has everything; sending twice is harmless, the bytes are the same."""
        while True:
            try:
                sent = [await self._send(record) for record in outgoing]
                self._fuse(CrashPoint.AFTER_SEND)
                await asyncio.gather(*sent)
            except StreamDPError as error:
                if not error.retriable:
                    raise
                _log.warning("sending again: %s", error)
                await asyncio.sleep(_RETRY_S)
            else:
                return


def _leave(
    releasable: Releasable, partitions: Collection[int], partition_of: Callable[[str], int]
) -> int:
    """Drops all that is of these partitions; returns how many records that were."""

    def is_left(of: Decided | int) -> bool:
        return (of if isinstance(of, int) else partition_of(of.dataset)) in partitions

    before = len(releasable.outgoing)
    releasable.commits = [one for one in releasable.commits if not is_left(one)]
    releasable.outgoing = [(of, one) for of, one in releasable.outgoing if not is_left(of)]
    releasable.watermarks = {
        mark: offset
        for mark, offset in releasable.watermarks.items()
        if partition_in(mark) not in partitions
    }
    releasable.ends = {at: end for at, end in releasable.ends.items() if at not in partitions}
    return before - len(releasable.outgoing)


def following(commit: Decided | int, outgoing: Outgoing) -> Outgoing:
    """The record, and from which commit it follows."""
    if isinstance(commit, int):
        return outgoing
    return Outgoing(  # replace takes twice as long, and this is done for each answer
        outgoing.role,
        outgoing.key,
        outgoing.value,
        (*outgoing.headers, (COMMIT, commit.place)),
        outgoing.answer,
        outgoing.asked_ms,
        outgoing.dated_ms,
        outgoing.asked,
    )
