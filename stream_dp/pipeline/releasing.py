"""Puts what was committed on the journal, and then lets it leave, in order, while the next is decided.

Each takes a round trip to a server, so one group is marked in the store while the next one leaves, and a
third one is appended. What has left is marked. A worker that dies before the mark leaves it to the next
owner, which sends the same bytes again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from time import time

from stream_dp.errors import Fenced, StreamDPError
from stream_dp.pipeline.audit_log import write_audit
from stream_dp.pipeline.decoding import partition_in
from stream_dp.pipeline.fuse import CrashPoint, Fuse
from stream_dp.pipeline.journal import Journal, Marks
from stream_dp.pipeline.metrics import Metrics
from stream_dp.pipeline.newest import COMPACTED, Newest
from stream_dp.pipeline.ownership import REJECTED
from stream_dp.pipeline.records import COMMIT, Commit, Outgoing, Releasable
from stream_dp.pipeline.retrying import persistently
from stream_dp.pipeline.together import together
from stream_dp.pipeline.watchdog import Heartbeat
from stream_dp.state.codec import OutboxRecord, outbox_from_bytes
from stream_dp.state.journal import CommitRecord, is_record
from stream_dp.state.store import DeploymentStore, Note, Released

__all__ = ["Releaser", "Send", "queued"]

_log = logging.getLogger(__name__)

Send = Callable[[Outgoing], Awaitable[Awaitable[object]]]
"""Hands a record to the producer; what it returns is done when the broker has the record."""

_IN_FLIGHT = 4
_RETRY_S = 0.5

_Queue = asyncio.Queue[tuple[Releasable, asyncio.Future[None]]]
_Later = asyncio.Queue[tuple[Releasable, dict[str, Released]]]


class Releaser:
    """Gathers what may leave; appends and sends it in tasks of its own.

    Args:
        is_held: Whether the worker believes to hold some of these partitions.
        newest: What keeps the newest record of a key the last one.

    Attributes:
        gathered: The records that may leave and were not handed over yet.
        unreleased: The number of records that were handed over and are not known to have left.
        done: All that this worker is done with.
    """

    def __init__(
        self,
        store: DeploymentStore,
        journal: Journal,
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
        self._store = store
        self._journal = journal
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
        self._to_send: _Later = asyncio.Queue(_IN_FLIGHT)
        self._to_mark: _Later = asyncio.Queue(_IN_FLIGHT)
        self.done = Marks()

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
            if gathered.outgoing or gathered.watermarks or gathered.commits:
                self.unreleased += len(gathered.outgoing)
                self._under_way += 1
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
            if not self._journal.holds(commit.dataset):
                raise Fenced(f"{commit.dataset}: another worker has taken over its journal")

    async def joined(self) -> None:
        """Returns when everything that was handed over has left."""
        while self.busy:
            for stage in (self._to_append, self._to_send, self._to_mark):
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

    async def run(self) -> None:
        """Appends, sends and marks what was handed over, in order, until cancelled."""
        stages: list[Callable[[], Awaitable[None]]] = [
            self._run_appending,
            partial(self._run_stage, self._to_send, self._release),
            partial(self._run_stage, self._to_mark, self._mark),
        ]
        await together(stages, at_once=len(stages))

    async def _run_appending(self) -> None:
        """All that waits is appended together: while groups are small, the broker is what takes time."""
        while True:
            together, first = await self._to_append.get()
            dones = [first]
            while not self._to_append.empty():
                more, done = self._to_append.get_nowait()
                together.append(more)
                dones.append(done)
            try:
                try:
                    released = await self._append(together)
                finally:
                    for done in dones:
                        if not done.done():
                            done.set_result(None)
                self._under_way += 1
                await self._to_send.put((together, released))
            except BaseException as error:
                self._failure = self._failure or error  # the first one has ended the others
                raise
            finally:
                self._heartbeat.beat()
                for _ in dones:
                    self._under_way -= 1
                    self._to_append.task_done()

    async def _run_stage(
        self,
        stage: _Later,
        step: Callable[[Releasable, dict[str, Released]], Awaitable[None]],
    ) -> None:
        """Does what waits at a stage together, too."""
        while True:
            together, released = await stage.get()
            groups = 1
            while not stage.empty():
                more, later = stage.get_nowait()
                together.append(more)
                released.update(later)
                groups += 1
            try:
                await step(together, released)
            except BaseException as error:
                self._failure = self._failure or error  # the first one has ended the others
                raise
            finally:
                self._heartbeat.beat()
                for _ in range(groups):
                    self._under_way -= 1
                    stage.task_done()

    async def _append(self, releasable: Releasable) -> dict[str, Released]:
        """Puts commits on the journal; drops those of others by now, with all that follows from them.

        Returns:
            What can be marked of each data set once all of this has left.
        """
        fresh = [commit for commit in releasable.commits if commit.record]
        notes = await self._journal.append([(one.dataset, one.record) for one in fresh])
        lost = {
            self._journal.partition_of(one.dataset) for one in fresh if one.dataset not in notes
        }
        # A mark of what was rejected says that all else below it is on the journal.
        rejected = {
            mark: offset
            for mark, offset in releasable.watermarks.items()
            if mark.startswith(REJECTED) and partition_in(mark) not in lost
        }
        if rejected:
            marked = await self._journal.mark(Marks(rejected))
            lost |= {partition_in(mark) for mark in rejected} - marked
        if lost:
            self._leave(releasable, lost)
            if self._is_held([partition for partition in lost if self._journal.lost(partition)]):
                raise Fenced(
                    "another worker has taken over a partition that this one believes to hold"
                )
        released: dict[str, Released] = {}
        for commit in releasable.commits:
            note = notes.get(commit.dataset) if commit.record else None
            partition = self._journal.partition_of(commit.dataset)
            released[commit.dataset] = Released(
                commit.token,
                commit.seq,
                "" if note is None else self._journal.key_of(partition),
                Note() if note is None else replace(note, seq=commit.seq),
            )
        return released

    def _leave(self, releasable: Releasable, partitions: Collection[int]) -> None:
        """Drops all that is of these partitions: it is for their new owners to take."""

        def is_left(of: Commit | int) -> bool:
            at = of if isinstance(of, int) else self._journal.partition_of(of.dataset)
            return at in partitions

        before = len(releasable.outgoing)
        releasable.commits = [one for one in releasable.commits if not is_left(one)]
        releasable.outgoing = [(of, one) for of, one in releasable.outgoing if not is_left(of)]
        releasable.watermarks = {
            mark: offset
            for mark, offset in releasable.watermarks.items()
            if partition_in(mark) not in partitions
        }
        self.unreleased -= before - len(releasable.outgoing)

    async def _release(self, releasable: Releasable, released: dict[str, Released]) -> None:
        """Sends; what is not marked when the worker dies is sent again."""
        outgoing = self._newest.in_order([_following(*one) for one in releasable.outgoing])
        write_audit(outgoing)
        self._fuse(CrashPoint.BEFORE_SEND)
        await self._deliver(outgoing)
        self.unreleased -= len(releasable.outgoing)
        self._metrics.released(outgoing, time())
        self._fuse(CrashPoint.AFTER_RELEASE)
        self._under_way += 1
        await self._to_mark.put((Releasable(watermarks=releasable.watermarks), released))

    async def _mark(self, releasable: Releasable, released: dict[str, Released]) -> None:
        """Marks what has left."""
        mark = partial(self._store.mark, released, releasable.watermarks)
        for name in await persistently(mark):
            _log.info("data set %s was handed to another worker", name)
        self.done.take({"watermarks": releasable.watermarks})
        self.done.take({"released": {name: one.seq for name, one in released.items()}})
        if self._journal.wants_mark():
            await self._journal.mark(self.done)
        self._fuse(CrashPoint.AFTER_MARK)

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


def _following(commit: Commit | int, outgoing: Outgoing) -> Outgoing:
    """The record, and from which commit it follows."""
    if isinstance(commit, int):
        return outgoing
    return Outgoing(  # replace takes twice as long, and this is done for each answer
        outgoing.role,
        outgoing.key,
        outgoing.value,
        (*outgoing.headers, (COMMIT, b"%d" % commit.seq)),
        outgoing.answer,
        outgoing.asked_ms,
        outgoing.dated_ms,
        outgoing.asked,
    )


def queued(
    outbox: Sequence[tuple[int, bytes]], released: int
) -> Iterator[tuple[int, Sequence[OutboxRecord | str], Mapping[str, bytes]]]:
    """What commits have queued that may not have left: number, records, and the answers that it has stored.

    Of a compacted topic it has the newest record of each key alone. If an older one left again, and the store
    went back to where all had left, none would follow. All is read twice, so that little is held at once.

    Args:
        outbox: What the store has queued: number of the commit, and what it has left behind.
        released: A commit so that all that it and those before it have queued has left: theirs is empty.
    """
    newest = {_key(one): seq for seq, entry in outbox for one in _queued(entry)[0]}
    for seq, entry in outbox:
        records, answers = _queued(entry) if seq > released else ((), {})
        keyed = ((_key(one), one) for one in records)
        yield seq, [one for key, one in keyed if key is None or newest[key] == seq], answers


def _queued(entry: bytes) -> tuple[Sequence[OutboxRecord | str], Mapping[str, bytes]]:
    """The records that a commit has queued, and the answers that it has stored."""
    if not is_record(entry):
        return outbox_from_bytes(entry), {}
    record, _ = CommitRecord.from_bytes(entry)
    return record.outbox, record.answers


def _key(one: OutboxRecord | str) -> tuple[str, bytes] | None:
    """The topic and the key of a record, if only the newest of the key counts there."""
    if isinstance(one, str) or one.role not in COMPACTED:
        return None
    return one.role, one.key or b""
