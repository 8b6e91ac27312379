"""The journal: where every commit must be before anything that follows from it is seen.

A commit is in the store first, on the journal second, and only then does what it queues leave. So the journal
is the truth: what it lacks was never seen, and a store that forgets some of it is healed from it.

A worker that takes a partition over appends an epoch to it, larger than all before, and reads the partition
up to there. From then on each append must land just behind the last one. If it does, nobody else wrote in
between, so the epoch is still in force and the record counts. If it does not, the gap is read: another epoch
in it is a new owner, and nothing more may be shown. See docs/guarantee.md for the proof.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import Any, Protocol

from stream_dp.errors import CorruptState, Fenced, ServerUnavailable
from stream_dp.messages import INPUTS
from stream_dp.pipeline.chains import REPAIR_STEP, Chain, Found, Reader, entries_of, repair_of
from stream_dp.pipeline.decoding import partition_in, partition_of
from stream_dp.pipeline.fuse import CrashPoint, Fuse
from stream_dp.pipeline.logs import Entry, Log
from stream_dp.pipeline.records import commit_of
from stream_dp.pipeline.retrying import patiently, pause, persistently
from stream_dp.pipeline.watchdog import Heartbeat
from stream_dp.state.journal import Checkpoint, CommitRecord
from stream_dp.state.store import ORIGIN, DatasetStore, JournalStore, Note, Place, Transition

__all__ = [
    "Appends",
    "Entered",
    "Journal",
    "JournalCut",
    "Marks",
    "OtherTopics",
    "Reading",
    "Superseded",
    "check_journal",
    "check_topics",
    "committed",
    "facts_of",
    "fold",
]

_log = logging.getLogger(__name__)

_APPENDING = "appending to the journal"
_READING = "reading the journal"
_FACTS = frozenset({"topics", "partitions"})
_MARK_EVERY = 2_000  # appended records
_LAST_SEEN = 256
_OTHER = "Restore the topics as they were, or start again under another topic prefix, and add up both budgets"


class Superseded(Fenced):
    """Another worker has taken the partition of the journal over."""


class OtherTopics(CorruptState):
    """The topics are not those with which the journal was written."""


class JournalCut(CorruptState):
    """A partition of the journal lacks entries that it had: its last ones, or its first ones.

    Attributes:
        partition: The partition.
        read: The offset that it was read to, or at which it begins.
    """

    def __init__(self, partition: int, read: int, why: str) -> None:
        self.partition = partition
        self.read = read
        super().__init__(
            f"partition {partition} of the journal was cut: {why}. Nothing of it is served. Restore the "
            f"topic, or see: stream-dp journal mend --partition {partition}"
        )


@dataclass
class Marks:
    """What marks on the journal say of a partition, by ``topic:partition``; each only grows.

    Attributes:
        watermarks: The offset below which every record is done with.
        released: Data set -> a commit so that all that it and those before it have queued has left.
    """

    watermarks: dict[str, int] = field(default_factory=dict)
    released: dict[str, int] = field(default_factory=dict)

    def take(self, said: Mapping[str, Any]) -> None:
        """Takes what a mark says."""
        for mine, theirs in ((self.watermarks, "watermarks"), (self.released, "released")):
            told = said.get(theirs)
            for name, number in told.items() if isinstance(told, dict) else ():
                if isinstance(number, int) and 0 <= number < 2**63:
                    mine[name] = max(number, mine.get(name, 0))

    def to_bytes(self, facts: Mapping[str, Any] = MappingProxyType({})) -> bytes:
        """The marks as the value of an entry.

        Args:
            facts: What it says of the deployment, too. Where entries are deleted, the epochs included, a mark
                says it in their place.
        """
        said = {"version": 1, "watermarks": self.watermarks, "released": self.released, **facts}
        return json.dumps(said, sort_keys=True).encode()


@dataclass
class Entered:
    """A partition of the journal that this worker owns.

    Attributes:
        epoch: Its epoch.
        expected: The offset at which the next entry must land.
        chains: What the journal says of each data set.
        marks: What it says of the rest.
        problems: Data set -> why it cannot be served from what there is.
        first: The offset of the first entry that is there.
        begins: The offset below which owners have deleted entries, as far as marks were read.
        since: The offset up to which the store had it when reading began.
        served: An epoch of which the journal or the store says that its owner had healed all that there was.
    """

    epoch: int
    expected: int
    chains: dict[str, Chain]
    marks: Marks
    problems: dict[str, str] = field(default_factory=dict)
    first: int = 0
    begins: int = 0
    since: int = 0
    served: int = 0
    since_mark: int = 0
    superseded: bool = False


Heal = Callable[["Journal", int, Entered], Awaitable[None]]
"""Brings the data sets of a partition up to what the journal says of them."""


class Appends(Protocol):
    """Where healing puts what the store alone has."""

    async def append_entries(
        self, partition: int, entered: Entered, entries: Sequence[Entry]
    ) -> None:
        """Appends entries, and returns once they are there and count."""
        ...


class Reading:
    """Reads a partition of the journal in order, and adds up what it says. It appends nothing.

    Args:
        log: The journal.
        partition: The partition.
        start: The offset to begin with, and the epoch in force there.
        chains: What is known of each data set there. Reading goes on in it.

    Attributes:
        at: The offset up to which was read.
        reader: What counts there.
        chains: What the journal says of each data set up to there.
        marks: What it says of the rest.
        served: The epoch of the last mark: its owner had healed the partition.
        facts: What was said last of the deployment, by an owner that went on with it.
        begins: The offset below which nobody needs entries, as owners have said before they deleted some.
        stopped: The data sets that a repair has found not to be whole -> why.
    """

    def __init__(
        self,
        log: Log,
        partition: int,
        start: Note,
        chains: dict[str, Chain],
        *,
        heartbeat: Heartbeat,
    ) -> None:
        self.at = start.offset
        self.reader = Reader(start.epoch)
        self.chains = chains
        self.marks = Marks()
        self.served = 0
        self.facts: dict[str, Any] = {}
        self.begins = 0
        self.stopped: dict[str, str] = {}
        self._log = log
        self._partition = partition
        self._heartbeat = heartbeat

    async def to(self, end: int) -> AsyncIterator[Found]:
        """Reads on, up to an offset; yields each entry that counts, once it is added up.

        What was not read is read the next time.

        Raises:
            ServerUnavailable: No broker answers, or not with all of it.
        """
        async for piece in self._log.read(self._partition, self.at, end):
            for offset, entry in piece:
                self.at = offset + 1
                found = self.reader.read(offset, entry)
                if found is not None:
                    self._fold(found)
                    yield found
            self._heartbeat.beat()

    def _fold(self, found: Found) -> None:
        """Takes an entry that counts."""
        if found.kind == "epoch":
            return
        self._learn(self.reader.said)
        if found.kind == "mark":
            self.served = found.epoch
            try:
                said = json.loads(found.value)
            except (ValueError, RecursionError):
                return
            if isinstance(said, dict):
                self.marks.take(said)
                self._learn(said)
                begins = said.get("begins")
                self.begins = max(self.begins, begins if type(begins) is int else 0)
            return
        if found.kind == "repair":
            done, stopped = repair_of(found.value)
            self.reader.repairing = not done
            self.stopped = self.stopped if stopped is None else stopped
            return
        if found.name not in self.chains:
            if partition_of(found.name.encode(), self._log.partitions) != self._partition:
                return
            self.chains[found.name] = Chain.noted(Place(0, 0, ORIGIN))
        fold(self.chains[found.name], found)

    def _learn(self, said: Mapping[str, Any]) -> None:
        for fact in _FACTS & said.keys():
            self.facts[fact] = said[fact]


class Journal:
    """The journal as one worker holds it.

    Args:
        identity: The name of the topic, which changes if it is deleted and created again.
        facts: What each epoch says of the deployment, such as the identities of topics.
        is_held: Whether the worker believes to hold a partition.
        heal: Brings data sets up to the journal, when a partition is entered.
        ledger: The topic ``ledger``, to see what of a partition was published last. None where partitions
            that were cut are entered.
        repairs: Whether to enter partitions that were cut, and to read them from the beginning.
    """

    def __init__(
        self,
        log: Log,
        store: JournalStore,
        *,
        identity: str,
        facts: Mapping[str, Any],
        is_held: Callable[[int], bool],
        heal: Heal,
        ledger: Log | None,
        fuse: Fuse,
        heartbeat: Heartbeat,
        repairs: bool = False,
    ) -> None:
        self._log = log
        self._ledger = ledger
        self._store = store
        self._repairs = repairs
        self._identity = identity
        self._facts = facts
        self._is_held = is_held
        self._heal = heal
        self._fuse = fuse
        self._heartbeat = heartbeat
        self._name = secrets.token_hex(8)
        self._entered: dict[int, Entered] = {}
        self._last: dict[int, int] = {}  # the epoch under which a partition was entered last
        self._locks: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)

    def partition_of(self, dataset: str) -> int:
        """Returns the partition of a data set."""
        return partition_of(dataset.encode(), self._log.partitions)

    def key_of(self, partition: int) -> str:
        """Returns the name of a partition in the store."""
        return f"{self._identity}:{partition}"

    def keep(self, partitions: frozenset[int]) -> None:
        """Forgets the partitions that are not held any more: others write them now."""
        for partition in self._entered.keys() - partitions:
            del self._entered[partition]
        self._last = {at: epoch for at, epoch in self._last.items() if at in partitions}

    def assigned(self) -> None:
        """Says that positions are read again: what others did in the meantime will be known."""
        self._last.clear()

    def holds(self, dataset: str) -> bool:
        """Returns whether this worker may still append records of a data set, as far as it knows."""
        entered = self._entered.get(self.partition_of(dataset))
        return entered is not None and not entered.superseded

    def lost(self, partition: int) -> bool:
        """Returns whether another worker has taken over a partition that this one has entered."""
        entered = self._entered.get(partition)
        return entered is not None and entered.superseded

    def leave(self, partition: int) -> None:
        """Gives a partition up, to be taken over again with another epoch."""
        self._entered.pop(partition, None)

    async def entered(self, partition: int) -> Entered:
        """Takes a partition over, unless that is done; heals what is in it.

        Raises:
            Fenced: The worker does not hold it any more, or another one has held it since this one entered it
                last: then reading positions, and what was rejected, are not what this one knows.
            Superseded: Another worker has taken it over in the meantime.
            JournalCut: It was cut.
            ServerUnavailable: No broker answers.
        """
        async with self._locks[partition]:
            if partition not in self._entered:
                if not self._is_held(partition):
                    raise Fenced(f"partition {partition} is for another worker to take over")
                entered = await self._enter(partition)
                self._last[partition] = entered.epoch
                await self._check_seen(partition, entered)
                await self._heal(self, partition, entered)
                await self._note(partition, entered)
                self._entered[partition] = entered
            return self._entered[partition]

    # ------------------------------------------------------------ appending

    async def append(self, records: Sequence[tuple[str, bytes]]) -> dict[str, Note]:
        """Appends records of commits, those of one data set in order.

        Args:
            records: Data set and record.

        Returns:
            For each data set of which all records are there and count, what to note of it: the offset behind
            all of them, and the epoch. Those of a partition that another worker has taken over are left out.
        """
        by_partition: dict[int, list[tuple[str, bytes]]] = defaultdict(list)
        for name, record in records:
            by_partition[self.partition_of(name)].append((name, record))
        done = await asyncio.gather(
            *(self._append_to(partition, some) for partition, some in by_partition.items())
        )
        return {name: note for notes in done for name, note in notes.items()}

    async def _append_to(
        self, partition: int, records: Sequence[tuple[str, bytes]]
    ) -> dict[str, Note]:
        async with self._locks[partition]:
            entered = self._entered.get(partition)
            if entered is None or entered.superseded:
                return {}
            entries = [
                entry
                for name, record in records
                for entry in entries_of("commit", name, record, entered.epoch)
            ]
            try:
                await self.append_entries(partition, entered, entries)
            except Superseded:
                return {}
            entered.since_mark += len(records)
            note = Note(entered.expected, entered.epoch)
            return {name: note for name, _ in records}

    async def mark(self, marks: Marks) -> frozenset[int]:
        """Appends what is done with, for each partition held; returns those where it is there now."""
        by_partition: dict[int, Marks] = defaultdict(Marks)
        for topic_partition, offset in marks.watermarks.items():
            by_partition[partition_in(topic_partition)].watermarks[topic_partition] = offset
        for name, seq in marks.released.items():
            by_partition[self.partition_of(name)].released[name] = seq
        done = set()
        for partition, some in by_partition.items():
            async with self._locks[partition]:
                entered = self._entered.get(partition)
                if entered is None or entered.superseded:
                    continue
                entries = entries_of("mark", "", some.to_bytes(), entered.epoch)
                try:
                    await self.append_entries(partition, entered, entries)
                except Superseded:
                    continue
                entered.since_mark = 0
                done.add(partition)
        return frozenset(done)

    async def checkpoint(self, dataset: str, checkpoint: bytes) -> int | None:
        """Appends a checkpoint of a data set, whose last commit must be on the journal already.

        Returns:
            The offset of its first entry. None if that is not known, or another worker has taken over: then
            nothing may rely on it.
        """
        partition = self.partition_of(dataset)
        async with self._locks[partition]:
            entered = self._entered.get(partition)
            if entered is None or entered.superseded:
                return None
            at = entered.expected
            entries = entries_of("checkpoint", dataset, checkpoint, entered.epoch)
            try:
                await self.append_entries(partition, entered, entries)
            except Superseded:
                return None
            return at if entered.expected == at + len(entries) else None

    async def forget(self, partition: int, before: int, name: str, marks: Marks) -> bool:
        """Deletes the entries of a partition below a checkpoint that is acknowledged.

        What marks have said is said once more first, and where the partition begins from then on. If nobody
        has taken over by then, nobody did before, so all that this decision follows from is on the journal
        and counts.

        Args:
            partition: The partition.
            before: The offset of the checkpoint.
            name: The data set that it is of.
            marks: All that is known to be done with.

        Returns:
            Whether the entries are gone. If not, it may be tried again later.
        """
        async with self._locks[partition]:
            entered = self._entered.get(partition)
            if entered is None or entered.superseded:
                return False
            first, _ = await self._bounds(partition)
            if before <= first or not await self._is_checkpoint(partition, before, name):
                return False
            try:
                value = marks.to_bytes({**self._facts, "begins": before})
                entries = entries_of("mark", "", value, entered.epoch)
                await self.append_entries(partition, entered, entries)
            except Superseded:
                return False
            entered.since_mark = 0
            self._fuse(CrashPoint.BEFORE_TRUNCATION)
            try:
                await self._log.forget(partition, before)
            except ServerUnavailable as error:
                _log.warning("partition %d of the journal was not shortened: %s", partition, error)
                return False
            entered.first = before
            self._fuse(CrashPoint.AFTER_TRUNCATION)
            _log.info(
                "partition %d of the journal was shortened: it begins at %d, with a checkpoint of %s",
                *(partition, before, name),
            )
            return True

    async def _is_checkpoint(self, partition: int, offset: int, name: str) -> bool:
        """Returns whether a checkpoint of a data set begins there."""
        async for piece in self._log.read(partition, offset, offset + 1):
            for at, entry in piece:
                headers = dict(entry.headers)
                begins = headers.get("part", b"0").partition(b" ")[0] == b"0"
                said = headers.get("type"), entry.key
                return at == offset and begins and said == (b"checkpoint", name.encode())
        return False

    def first(self, partition: int) -> int:
        """Returns the offset of the first entry of a partition. Its owner alone deletes some."""
        return self._entered[partition].first

    def ends(self) -> dict[int, int]:
        """Returns, for each partition that this worker owns, the offset behind its last entry."""
        return {at: one.expected for at, one in self._entered.items() if not one.superseded}

    def epoch(self, partition: int) -> int:
        """Returns the epoch of this worker in a partition; 0 if it does not own it."""
        entered = self._entered.get(partition)
        return 0 if entered is None or entered.superseded else entered.epoch

    async def noted_epoch(self, partition: int) -> int:
        """Returns the newest epoch of which the store says that it has all that was before.

        It is below this worker's own if the store has gone back since the partition was entered: then its
        watermarks may lack what the journal said.
        """
        key = self.key_of(partition)
        return (await persistently(partial(self._store.listed, key))).epoch

    def known(self, partition: int) -> tuple[frozenset[str], bool]:
        """Returns the data sets that a partition had when it was entered, and whether all can be served."""
        entered = self._entered[partition]
        names = frozenset(name for name, chain in entered.chains.items() if chain.seq)
        return names, not entered.problems

    def wants_mark(self) -> bool:
        """Returns whether so much was appended that a mark saves the next worker work."""
        return any(entered.since_mark >= _MARK_EVERY for entered in self._entered.values())

    async def append_entries(
        self, partition: int, entered: Entered, entries: Sequence[Entry]
    ) -> None:
        """Appends entries, and returns once they are there and count. The caller holds the partition.

        Raises:
            Superseded: Another worker has taken the partition over: none of them counts for certain.
        """
        self._fuse(CrashPoint.BEFORE_APPEND)
        while True:
            try:
                first = await self._log.append(partition, entries)
            except ServerUnavailable as error:
                await pause(_APPENDING, error)
                first = None
            if first == entered.expected:
                entered.expected += len(entries)
                break
            if first is not None and first < entered.expected:
                entered.superseded = True
                raise _cut(partition, entered.expected, first)
            try:
                if await self._are_there(partition, entered, entries):
                    break
            except ServerUnavailable as error:
                await pause(_READING, error)
        self._fuse(CrashPoint.AFTER_APPEND)

    async def _are_there(self, partition: int, entered: Entered, entries: Sequence[Entry]) -> bool:
        """Reads what lies behind the last entry of ours; returns whether these entries are there and count.

        The same ones may be there twice, if a reply was lost: those that come second are void.
        """
        start = entered.expected
        first, end = await self._bounds(partition)
        if end < start:
            return False  # where the next append lands says whether it was cut
        if first > start:
            entered.superseded = True
            why = f"it was read to {start}, and there is {first} to {end} now"
            raise JournalCut(partition, start, why)
        reader = Reader(entered.epoch)
        left, at = [*map(_said, entries)], start
        async for piece in self._log.read(partition, start, end):
            for offset, entry in piece:
                at = offset + 1
                reader.read(offset, entry)
                if reader.epoch != entered.epoch:
                    entered.superseded = True
                    _log.info("partition %d of the journal was handed to another worker", partition)
                    raise Superseded(f"partition {partition}: another worker has taken over")
                if left and _said(entry) != left[0]:
                    left = [*map(_said, entries)]  # perhaps a part of them, and they come again
                if left and _said(entry) == left[0]:
                    left.pop(0)
        entered.expected = at
        return not left

    # ------------------------------------------------------------ entering

    async def _check_seen(self, partition: int, entered: Entered) -> None:
        """Compares the last entries of ledgers that were published with the journal, which had them first.

        Each look has a charge, and so an entry. If the journal has gone back, what it lacks of that would be
        charged, looked at and answered a second time.

        Raises:
            JournalCut: Something was published that the journal lacks.
            Superseded: Another worker has taken the partition over meanwhile, and may have published that.
            ServerUnavailable: No broker answers.
        """
        if self._ledger is None:
            return
        alike = self._ledger.partitions == self._log.partitions  # then the keys are where ours are
        for number in [partition] if alike else range(self._ledger.partitions):
            bounds = partial(self._ledger.bounds, number)
            first, end = await patiently(bounds, "reading the ledger")
            async for piece in self._ledger.read(number, max(first, end - _LAST_SEEN), end):
                for _, entry in piece:
                    name = entry.key.decode(errors="replace")
                    if self.partition_of(name) == partition and name not in entered.problems:
                        await self._check_published(partition, entered, name, entry)

    async def _check_published(
        self, partition: int, entered: Entered, name: str, entry: Entry
    ) -> None:
        commit, chain = commit_of(entry.headers), entered.chains.get(name, _NOWHERE)
        there = chain.place.seq if chain.seq is None else chain.seq
        if commit <= there or chain.gap:  # with a gap it is stopped alone
            return
        _, end = await self._bounds(partition, reaches=entered.expected)
        if end > entered.expected:
            entered.superseded = True
            raise Superseded(f"partition {partition}: another worker has taken over")
        why = (
            f"topic ledger shows commit {commit:,} of {name}, and it has {there:,} commits of that"
        )
        raise JournalCut(partition, entered.expected, why)

    async def _enter(self, partition: int) -> Entered:
        while True:
            start, entered = await self._enter_once(partition)
            entered.first, _ = await self._bounds(partition)
            if entered.first <= start:
                return entered
            # A former owner has deleted entries meanwhile, perhaps before they were read here.

    async def _enter_once(self, partition: int) -> tuple[int, Entered]:
        """Takes a partition over; returns from where on it was read as well."""
        places, listed = await self._noted(partition)
        self._check_last(partition, listed.epoch)
        furthest = max(listed.offset, *(place.note.offset for place in places.values()), 0)
        begins, there = await self._bounds(partition, reaches=0 if self._repairs else furthest)
        start = min((listed, *(place.note for place in places.values())), key=_by_offset)
        noted = start.offset
        chains = {name: Chain.noted(place) for name, place in places.items()}
        tokens = [place.token for place in places.values()]
        epoch = 1 + max([start.epoch, *tokens])
        entered = None
        if not self._repairs:
            if there < furthest:  # before it grows by an epoch
                raise _cut(partition, furthest, there)
            if start.offset < begins:  # what was noted of that is about entries that are gone
                start = Note(begins)
                for name, chain in chains.items():
                    if 0 < chain.place.note.offset < begins:
                        chains[name] = Chain.cut(chain.place)
            entered = await self._read(partition, start, chains, epoch)
        if entered is None:
            # What the store has noted is of another log, which was cut.
            start = Note()
            chains = {name: Chain.noted(replace(at, note=start)) for name, at in places.items()}
            epoch += REPAIR_STEP if self._repairs else 0
            entered = await self._read(partition, start, chains, epoch)
            assert entered is not None, "nothing is skipped from the beginning on"
        if noted < begins > entered.begins and not self._repairs:
            why = f"it begins at {begins}, and workers deleted entries below {entered.begins} alone"
            raise JournalCut(partition, begins, why)
        entered.since = listed.offset
        entered.served = max(entered.served, listed.epoch)
        return max(start.offset, begins), entered

    def _check_last(self, partition: int, epoch: int) -> None:
        """Raises Fenced if an epoch that another worker began follows the last one of this worker."""
        if 0 < self._last.get(partition, 0) < epoch:
            raise Fenced(
                f"partition {partition} of the journal: another worker has taken over a partition that this "
                "one believes to hold"
            )

    async def _noted(self, partition: int) -> tuple[dict[str, Place], Note]:
        """What the store says of a partition: all of it from one copy of the store, if that goes back."""
        read = partial(self._store.listed, self.key_of(partition))
        while True:
            listed = await persistently(read)
            places = await self._places(partition)
            if await persistently(read) == listed:
                return places, listed

    async def _places(self, partition: int) -> dict[str, Place]:
        def key_of(name: str) -> str:
            return self.key_of(self.partition_of(name))

        places = await persistently(partial(self._store.places, key_of))
        return {name: at for name, at in places.items() if self.partition_of(name) == partition}

    async def _read(
        self, partition: int, start: Note, chains: dict[str, Chain], epoch: int
    ) -> Entered | None:
        """Appends an epoch and reads up to it. None if what is there does not continue the start."""
        reading = Reading(self._log, partition, start, chains, heartbeat=self._heartbeat)
        reader = reading.reader
        while True:
            said = {"version": 1, "epoch": epoch, "worker": self._name, **self._facts}
            (entry,) = entries_of("epoch", "", json.dumps(said, sort_keys=True).encode(), epoch)
            landed = await self._begin(partition, entry)
            if (
                landed is None
            ):  # it is there, and if this end is one of the past, another one follows
                _, end = await self._bounds(partition, reaches=start.offset + 1)
            else:
                end = landed + 1
            if end <= start.offset:
                raise _cut(partition, start.offset, end)
            async for found in reading.to(end):
                if found.kind == "epoch" and reader.said.get("worker") != self._name:
                    self._check_last(partition, found.epoch)
            if reader.skipped and start.offset > 0:
                return None
            if reader.repairing and not self._repairs:
                raise JournalCut(
                    partition, start.offset, "its repair was begun and is not finished"
                )
            is_mine = reader.epoch == epoch and reader.said.get("worker") == self._name
            if is_mine and reading.at == end:  # the epoch may be there twice
                check_topics(self._facts, reading.facts)
                if reader.void:
                    said_void = "partition %d of the journal: %d entries void"
                    _log.info(said_void, partition, reader.void)
                return Entered(
                    epoch,
                    end,
                    chains,
                    reading.marks,
                    dict(reading.stopped),
                    begins=reading.begins,
                    served=reading.served,
                )
            epoch = max(epoch, reader.epoch) + (REPAIR_STEP if self._repairs else 1)

    async def _begin(self, partition: int, entry: Entry) -> int | None:
        return await patiently(partial(self._log.append, partition, [entry]), _APPENDING)

    async def _bounds(self, partition: int, *, reaches: int = 0) -> tuple[int, int]:
        return await patiently(partial(self._log.bounds, partition, reaches=reaches), _READING)

    async def _note(self, partition: int, entered: Entered) -> None:
        """Notes in the store that all of the partition is contained in it, so that nobody reads it again."""
        key = self.key_of(partition)
        places = await self._places(partition)
        notes = {
            name: Note(entered.expected, entered.epoch, places[name].seq)
            for name, chain in entered.chains.items()
            if name not in entered.problems
            and name in places
            and chain.end == (places[name].seq, places[name].trail)
        }
        await persistently(partial(self._store.note, key, notes, places))
        listed = Note(entered.expected, entered.epoch)
        # Those that cannot be served as well: otherwise their names would be free. Of some of them the
        # journal says nothing but that they are stopped. A listed name without a note has every later reader
        # begin at the beginning, so that it reads this.
        names = {name for name, chain in entered.chains.items() if chain.seq or chain.gap}
        names |= entered.problems.keys()
        marks = entered.marks.watermarks
        # If the store has gone back since the partition was read, what lies before is not contained in it.
        note = partial(
            self._store.note_listed, key, listed, sorted(names), marks, since=entered.since
        )
        await persistently(note)


def facts_of(partitions: int, identities: Mapping[str, str]) -> dict[str, Any]:
    """What the journal is to say of the deployment.

    Args:
        partitions: The number of partitions of each topic.
        identities: What tells a topic from another one of its name, by role.
    """
    return {"partitions": partitions, "topics": dict(identities)}


def check_topics(mine: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Compares the topics with what former owners said of them: an emptied store knows nothing of that.

    Args:
        mine: What this worker says of the deployment, see ``Journal``.
        known: What the journal says, see ``Reading``.

    Raises:
        OtherTopics: The inputs are other topics, or have another number of partitions.
    """
    ours, theirs = mine.get("topics", {}), known.get("topics", {})
    for role in INPUTS if isinstance(theirs, dict) else ():
        if role in ours and theirs.get(role, ours[role]) != ours[role]:
            raise OtherTopics(
                f"topic {role} was deleted and created again since the journal was written: nobody knows "
                f"which of its records were read. {_OTHER}"
            )
    count, were = mine.get("partitions"), known.get("partitions")
    if None not in (count, were) and count != were:
        raise OtherTopics(
            f"the topics have {count} partitions and had {were}: data sets would change their partition, "
            f"and begin again with nothing spent. {_OTHER}"
        )


async def check_journal(
    log: Log, store: JournalStore, identity: str, facts: Mapping[str, Any], heartbeat: Heartbeat
) -> None:
    """Compares the topics with what all of the journal says, where the store knows nothing of it.

    Each worker compares the partitions that it takes over, of which new ones say nothing.

    Raises:
        OtherTopics: The inputs are other topics, or have another number of partitions.
        ServerUnavailable: No broker answers.
        StoreError: The store does not answer, or refuses.
    """
    for partition in range(log.partitions):
        if (await store.listed(f"{identity}:{partition}")).offset > 0:
            return  # then it also knows the topics
    for partition in range(log.partitions):
        first, end = await log.bounds(partition)
        reading = Reading(log, partition, Note(first), {}, heartbeat=heartbeat)
        async for _ in reading.to(end):
            if reading.facts:
                break
        check_topics(facts, reading.facts)


def _cut(partition: int, read: int, end: int) -> JournalCut:
    return JournalCut(partition, read, f"it was read to {read}, and ends at {end}")


async def committed(store: DatasetStore, commit: Transition) -> bytes:
    """Commits, and returns the record of that for the journal."""
    await persistently(partial(store.commit, commit))
    assert commit.outbox is not None, "a commit leaves its record"
    return commit.outbox


def fold(chain: Chain, found: Found) -> CommitRecord | Checkpoint | None:
    """Takes a record or a checkpoint that counts; returns it if it continues the chain."""
    if found.offset < chain.place.note.offset:
        return None  # contained in what the store has
    try:
        if found.kind == "checkpoint":
            checkpoint = Checkpoint.from_bytes(found.value)
            at = found.offset, found.epoch
            fits = checkpoint.dataset == found.name and chain.checkpoint(checkpoint, at)
            return checkpoint if fits else None
        if found.kind == "restart":
            checkpoint = Checkpoint.from_bytes(found.value)
            if checkpoint.dataset != found.name:
                return None
            chain.restart(checkpoint, found)
            return checkpoint
        record, trail = CommitRecord.from_bytes(found.value)
        fits = record.dataset == found.name and chain.commit(record, trail, found)
    except CorruptState:
        chain.void += 1
        return None
    return record if fits else None


_NOWHERE = Chain.noted(Place(0, 0, ORIGIN))


def _said(entry: Entry) -> tuple[bytes, bytes, dict[str, bytes]]:
    return entry.key, entry.value, dict(entry.headers)


def _by_offset(note: Note) -> int:
    return note.offset
