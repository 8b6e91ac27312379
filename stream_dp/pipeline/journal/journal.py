"""The journal: to append to it is to commit, and nothing that follows from a commit is seen before.

A worker that takes a partition over appends an epoch with a random id, and reads the partition up to there.
From then on each append must land just behind the last one. If it does, nobody else wrote in between, so the
epoch is still in force and the entry counts. If it does not, the gap is read: another epoch in it is a new
owner, and nothing more may be shown. The proof is docs/proofs, Theorem R1.

All durable state follows from what counts here. Redis follows too, and decides nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from secrets import token_bytes
from typing import Any, Final

from stream_dp.errors import CorruptState, Fenced, ServerUnavailable
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.intake.decoder import partition_of
from stream_dp.pipeline.journal.chain import JournalChain
from stream_dp.pipeline.journal.entries import (
    EPOCH_BYTES,
    CountingEntry,
    EntryReader,
    Kind,
    Round,
    entries_of,
)
from stream_dp.pipeline.journal.marks import said
from stream_dp.pipeline.journal.owned_partition import (
    AnswerGone,
    JournalCut,
    Owned,
    Superseded,
    problem_of,
)
from stream_dp.pipeline.journal.partition_history import ENTRY_BYTES, READING, PartitionHistory
from stream_dp.pipeline.journal.published_commits import PublishedCommits
from stream_dp.pipeline.kafka.patience import patiently, pause
from stream_dp.pipeline.kafka.topic_log import LogEntry, TopicLog
from stream_dp.pipeline.watch.crash_points import CrashPoint
from stream_dp.state import ids
from stream_dp.state.schema import Checkpoint, Commit, Pair

_log = logging.getLogger(__name__)

_APPENDING: Final = "appending to the journal"
_MOST_EPOCHS: Final = 4
_PARTS_AT_ONCE: Final = 4


class Journal:
    """The journal as one worker holds it.

    Attributes:
        facts: What each epoch says of the deployment, see ``facts_of``.
        history: Reads it without owning it.

    Args:
        facts: What each epoch says of the deployment, see ``facts_of``.
        is_held: Whether the worker believes to hold a partition.
        entered: Called with each partition that is taken over.
        outputs: The topics on which what was published is compared with the journal.
        repairs: Whether partitions that were cut are entered as well, and data sets that a repair has stopped
            are read.
    """

    def __init__(
        self,
        log: TopicLog,
        *,
        facts: Mapping[str, Any],
        is_held: Callable[[int], bool],
        entered: Callable[[Owned], None] = lambda owned: None,
        outputs: Sequence[TopicLog] = (),
        repairs: bool = False,
        context: Context,
    ) -> None:
        self._log = log
        self.facts = facts
        self._is_held = is_held
        self._was_entered = entered
        self.history = PartitionHistory(log, facts, repairs, context.heartbeat)
        self._published = PublishedCommits(log, outputs)
        self._repairs = repairs
        self._fuse = context.fuse
        self._heartbeat = context.heartbeat
        self._owned: dict[int, Owned] = {}
        self._locks: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    @property
    def partitions(self) -> int:
        """The number of partitions."""
        return self._log.partitions

    def partition_of(self, dataset: str) -> int:
        """Returns the partition of a data set."""
        return partition_of(dataset.encode(), self._log.partitions)

    def keep(self, partitions: frozenset[int]) -> None:
        """Forgets the partitions that are not held any more: others write them now."""
        for partition in self._owned.keys() - partitions:
            del self._owned[partition]

    def lost(self, partition: int) -> bool:
        """Returns whether another worker has taken over a partition that this one believes to hold."""
        owned = self._owned.get(partition)
        return owned is not None and owned.superseded and self._is_held(partition)

    def owned(self) -> dict[int, Owned]:
        """The partitions that this worker owns, as far as it knows."""
        return {at: one for at, one in self._owned.items() if not one.superseded}

    def chain(self, dataset: str) -> JournalChain:
        """The chain of a data set; an empty one where it is not known, or its partition is owned no more."""
        owned = self._owned.get(self.partition_of(dataset))
        return (owned and owned.chains.get(dataset)) or JournalChain(dataset)

    async def entered(self, partition: int) -> Owned:
        """Takes a partition over, unless that is done.

        Raises:
            Fenced: The worker does not hold it any more.
            JournalCut: It was cut.
            OtherTopics: The topics are others than those with which it was written.
            ServerUnavailable: No broker answers.
        """
        async with self._locks[partition]:
            if partition not in self._owned:
                if not self._is_held(partition):
                    raise Fenced(f"partition {partition} is for another worker to take over")
                owned = await self._enter(partition)
                await self._check_published(owned)
                self._owned[partition] = owned
                self._was_entered(owned)
            return self._owned[partition]

    async def look(self, partition: int) -> Owned:
        """Reads a partition as it is now, without taking it over: its owner notices nothing.

        Raises:
            CorruptState: What is there does not decode.
            OtherTopics: The topics are others than those with which it was written.
            ServerUnavailable: No broker answers.
        """
        first, end = await self.history.bounds(partition)
        newest, made = await self.history.newest_round(partition, first, end)
        owned = Owned(partition, b"", first=first, newest=newest, begin=made.begin)
        await self.history.replay(made, end, owned)
        return owned

    async def check(self, owned: Owned) -> None:
        """Checks whether a partition that was looked at can be entered.

        Raises:
            JournalCut: It was cut.
            ServerUnavailable: No broker answers.
        """
        if why := problem_of(owned):
            raise JournalCut(owned.partition, owned.expected, why)
        with contextlib.suppress(Superseded):  # then what is new was published meanwhile
            await self._check_published(replace(owned, at=owned.expected))

    async def check_facts(self) -> None:
        """Compares the topics with what the journal says of them, on every partition.

        A worker compares the partitions that it takes over, of which new ones say nothing.

        Raises:
            OtherTopics: The inputs are other topics, or have another number of partitions.
            ServerUnavailable: No broker answers.
        """
        await asyncio.gather(*map(self.history.check_facts, range(self.partitions)))

    # ------------------------------------------------------------ appending

    async def append(self, owned: Owned, entries: Sequence[LogEntry]) -> int | None:
        """Appends entries in order, as one batch.

        Args:
            owned: The partition, as it was when the entries were decided. If this worker has let go of it and
                taken it over again since, what was decided then is of no owner.
            entries: The entries, see ``entries``.

        Returns:
            The offset of the first one, once all of them are there and count. None if another worker has
            taken the partition over, or this one again: then nothing may rely on them.
        """
        async with self._locks[owned.partition]:
            if not self.is_mine(owned):
                return None
            try:
                return await self._append(owned, entries)
            except Superseded:
                return None

    def is_mine(self, owned: Owned) -> bool:
        """Returns whether a partition is still owned since that take-over, as far as this worker knows."""
        return self._owned.get(owned.partition) is owned and not owned.superseded

    async def confirm(self, dataset: str) -> None:
        """Checks that nobody else owns a data set by now, who may have deleted entries.

        Raises:
            Fenced: Somebody does.
        """
        owned = self._owned.get(self.partition_of(dataset))
        if owned is None or not await self.mark(owned):
            raise Fenced(f"{dataset}: another worker has taken over its journal")

    def entries(self, owned: Owned, kind: Kind, name: str, value: bytes) -> list[LogEntry]:
        """The entries that carry a value, for ``append``."""
        return entries_of(kind, name, value, owned.epoch, newest=owned.newest)

    async def write(self, owned: Owned, kind: Kind, name: str, value: bytes) -> int | None:
        """Appends an entry of any size. Those of others may come between its parts.

        Returns:
            Where it begins. None if another worker has taken the partition over.
        """
        entries, begins = self.entries(owned, kind, name, value), None
        for at in range(0, len(entries), _PARTS_AT_ONCE):
            first = await self.append(owned, entries[at : at + _PARTS_AT_ONCE])
            if first is None:
                return None
            begins = first if begins is None else begins
            self._heartbeat.beat()
        return begins

    async def mark(self, owned: Owned, **what: object) -> bool:
        """Says what is done with; returns whether that is there and counts."""
        if not self.is_mine(owned):
            return False
        owned.marks.take(what)
        return await self.write(owned, "mark", "", said(**what)) is not None

    async def _append(self, owned: Owned, entries: Sequence[LogEntry]) -> int:
        """Appends entries; returns where they begin, once they are there and count.

        Raises:
            Superseded: Another worker has taken the partition over: none of them counts for certain.
        """
        self._fuse(CrashPoint.BEFORE_APPEND)
        there: int | None = None
        while there is None:
            try:
                first = await self._log.append(owned.partition, entries)
            except ServerUnavailable as error:
                await pause(_APPENDING, error)
                first = None
            if first == owned.expected:
                owned.expected += len(entries)
                there = first
            elif first is not None and first < owned.expected:
                owned.superseded = True
                why = f"it was read to {owned.expected}, and ends at {first}"
                raise JournalCut(owned.partition, owned.expected, why)
            else:
                there = await patiently(partial(self._where, owned, entries), READING)
        owned.to_read += sum(ENTRY_BYTES + len(entry.value) for entry in entries)
        self._fuse(CrashPoint.AFTER_APPEND)
        return there

    async def _where(self, owned: Owned, entries: Sequence[LogEntry]) -> int | None:
        """Reads what lies behind the last entry of ours; returns where these entries begin, if they count.

        The same ones may be there twice, if a reply was lost: those that come second are void.
        """
        at = owned.expected
        first, end = await self.history.bounds(owned.partition)
        if end < at:
            return None  # where the next append lands says whether it was cut
        if first > at:
            # Who owns it by now has deleted this. If nobody does, the next owner finds out.
            raise _followed(owned)
        reader = EntryReader(owned.epoch)
        left, begins = [*entries], None
        async for piece in self._log.read(owned.partition, at, end):
            for offset, entry in piece:
                found = reader.read(offset, entry)
                if offset > at or reader.epoch != owned.epoch or (found and found.kind == "wrong"):
                    raise _followed(owned)  # some are deleted by now, or there is one, or may be
                at = offset + 1
                if left and entry != left[0]:
                    left = [*entries]  # perhaps a part of them, and they come again
                if left and entry == left[0]:
                    begins = offset if len(left) == len(entries) else begins
                    left.pop(0)
        owned.expected = at
        return None if left else begins

    # ------------------------------------------------------------ contents under ids

    async def contents(self, dataset: str, stored: Mapping[Pair, ids.IdPlace]) -> dict[Pair, bytes]:
        """Reads contents from where they are on the journal.

        Raises:
            AnswerGone: One of them is not there.
            ServerUnavailable: No broker answers.
        """
        found: dict[Pair, bytes] = {}
        partition, entries = self.partition_of(dataset), dict[int, CountingEntry | None]()
        for pair, one in stored.items():
            if one.offset not in entries:
                entries[one.offset] = await self.history.entry_at(partition, one.offset)
            entry = entries[one.offset]
            value = None if entry is None else dict(contents_in(entry)).get(pair)
            if value is None or not one.fits(value):
                raise AnswerGone(f"{dataset}: an answer is not where it was committed")
            found[pair] = value
        return found

    # ------------------------------------------------------------ rounds

    async def begin(self, owned: Owned) -> int | None:
        """Begins a round of checkpoints, with all that marks have said.

        Returns:
            Where it begins. None if another worker has taken the partition over.
        """
        value = said(**owned.marks.told(), **self.facts)
        return await self.write(owned, "begin", "", value)

    async def end(self, owned: Owned, made: Round, **what: object) -> bool:
        """Says that a round is done, and names that it is said; returns whether both are there and count.

        Args:
            owned: The partition.
            made: The round.
            what: What else is said with that.
        """
        at = await self.write(owned, "end", "", made.to_bytes())
        if at is None:
            return False
        owned.newest, owned.begin = at, made.begin
        owned.to_read = ENTRY_BYTES * (owned.expected - made.begin)
        return await self.mark(owned, **what)

    async def forget(self, owned: Owned, before: int) -> bool:
        """Deletes the entries of a partition below an offset; returns whether they are gone.

        That a worker may do so is said first. If nobody has taken over by then, nobody did before, so all
        that this decision follows from is there and counts.
        """
        partition = owned.partition
        if before <= owned.first or not await self.mark(owned, first=before):
            return False
        self._fuse(CrashPoint.BEFORE_TRUNCATION)
        try:
            await self._log.forget(partition, before)
        except ServerUnavailable as error:
            _log.warning("partition %d of the journal was not shortened: %s", partition, error)
            return False
        owned.first = before
        self._fuse(CrashPoint.AFTER_TRUNCATION)
        _log.info("partition %d of the journal was shortened: it begins at %d", partition, before)
        return True

    def read(
        self, partition: int, start: int, end: int
    ) -> AsyncIterator[Sequence[tuple[int, LogEntry]]]:
        """Yields entries, as ``TopicLog.read`` does."""
        return self._log.read(partition, start, end)

    # ------------------------------------------------------------ entering

    async def _enter(self, partition: int) -> Owned:
        # Until more is known, the end may be one of the past, with an older round.
        reaches = deleted = 0
        for is_last in (*[False] * _MOST_EPOCHS, True):
            first, end = await self.history.bounds(partition, reaches=reaches)
            newest, made = await self.history.newest_round(partition, max(first, deleted), end)
            begin_epoch = partial(self._begin_epoch, partition, newest)
            epoch, landed = await patiently(begin_epoch, _APPENDING)
            owned = Owned(partition, epoch, newest=newest, begin=made.begin)
            reaches = end if landed is None else landed + 1
            owned.first, end = await self.history.bounds(partition, reaches=reaches)
            reaches = end if landed is None else landed + 1
            reader = await self.history.replay(made, reaches, owned)
            # What a former owner has said that it deletes may be there now, and gone later.
            deleted = max(owned.first, owned.marks.first)
            if deleted > made.begin and not self._repairs:
                if is_last and owned.first > made.begin:
                    raise JournalCut(partition, owned.first, problem_of(owned))
                continue
            if reader.epoch != epoch:
                continue  # it was followed, or its epoch is not there yet
            if (why := problem_of(owned)) and not self._repairs:
                raise JournalCut(partition, owned.first, why)
            return owned
        raise Superseded(f"partition {partition}: other workers take it over all the time")

    async def _begin_epoch(self, partition: int, newest: int | None) -> tuple[bytes, int | None]:
        """Appends an epoch; returns its id, and where it is if that is known.

        Each attempt has an id of its own. One that lands late, behind the epoch of another worker, would
        otherwise put entries in force again that were decided before that worker came.
        """
        epoch = token_bytes(EPOCH_BYTES)
        entries = entries_of("epoch", "", said(**self.facts), epoch, newest=newest)
        return epoch, await self._log.append(partition, entries)

    # ------------------------------------------------------------ what was published

    async def _check_published(self, owned: Owned) -> None:
        """Compares the last records that were published with the journal, which had their commits first.

        If the journal has gone back, what it lacks would be charged, looked at and answered a second time.

        Raises:
            JournalCut: Something was published whose commit the journal does not have.
            Superseded: Another worker has taken the partition over meanwhile, and may have published that.
            ServerUnavailable: No broker answers.
        """
        missing = await self._published.missing(owned)
        if missing is not None:
            await self._check_alone(owned)
            at, name = missing
            why = f"something was published of {name} whose commit was at {at}, and it is not there"
            raise JournalCut(owned.partition, owned.expected, why)

    async def _check_alone(self, owned: Owned) -> None:
        """Checks that nobody has followed this worker, who may have published more and deleted entries.

        Raises:
            Superseded: Somebody has.
        """
        if owned.epoch:  # an append tells for certain
            await self._append(owned, self.entries(owned, "mark", "", said()))
            return
        _, end = await self.history.bounds(owned.partition, reaches=owned.expected)
        if end > owned.expected:
            raise _followed(owned)


def contents_in(found: CountingEntry) -> list[tuple[Pair, bytes]]:
    """What an entry has under ids. One that does not decode has nothing: what should be there is missed."""
    with contextlib.suppress(CorruptState):
        if found.kind == "commit":
            return list(Commit.from_bytes(found.value)[0].by_id())
        if found.kind in ("checkpoint", "restart"):
            return list(Checkpoint.from_bytes(found.value).carried.items())
    return []


def facts_of(partitions: int, identities: Mapping[str, str]) -> dict[str, Any]:
    """What the journal is to say of the deployment.

    Args:
        partitions: The number of partitions of each topic.
        identities: What tells a topic from another one of its name, by role.
    """
    return {"partitions": partitions, "topics": dict(identities)}


def _followed(owned: Owned) -> Superseded:
    """The error where another worker has taken a partition over, which is known from now on."""
    owned.superseded = True
    _log.info("partition %d of the journal was handed to another worker", owned.partition)
    return Superseded(f"partition {owned.partition}: another worker has taken over")
