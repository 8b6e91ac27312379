"""What is on a partition of the journal, as one reads it without owning it."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from stream_dp.messages import INPUTS
from stream_dp.pipeline.intake.decoder import partition_of
from stream_dp.pipeline.journal.entries import (
    CountingEntry,
    EntryReader,
    Round,
    newest_in,
    object_in,
)
from stream_dp.pipeline.journal.owned_partition import OtherTopics, Owned
from stream_dp.pipeline.kafka.patience import patiently
from stream_dp.pipeline.kafka.topic_log import TopicLog
from stream_dp.pipeline.watch.watchdog import Heartbeat

_log = logging.getLogger(__name__)

READING: Final = "reading the journal"
ENTRY_BYTES: Final = 4_096  # that reading an entry takes as long as

_WINDOW: Final = 1_000
_MOST_PARTS: Final = 10_000
_OTHER = "Restore the topics as they were, or start again under another topic prefix, and add up both budgets"


@dataclass(eq=False, repr=False)
class PartitionHistory:
    """Reads partitions of the journal.

    Attributes:
        _log: The journal.
        _facts: What this worker says of the deployment, see ``facts_of``.
        _repairs: Whether data sets that a repair has stopped are read.
        _heartbeat: Beats with whatever is read.
    """

    _log: TopicLog
    _facts: Mapping[str, Any]
    _repairs: bool
    _heartbeat: Heartbeat

    async def bounds(self, partition: int, *, reaches: int = 0) -> tuple[int, int]:
        """The offsets at which a partition begins and ends, see ``TopicLog.bounds``."""
        return await patiently(partial(self._log.bounds, partition, reaches=reaches), READING)

    async def entry_at(self, partition: int, offset: int) -> CountingEntry | None:
        """Returns the entry whose first part is at an offset, whole. None if there is none."""
        reader = EntryReader()
        for at in range(offset, offset + _MOST_PARTS):
            entry = await patiently(partial(self._log.record, partition, at), READING)
            if entry is None:
                return None
            found = reader.read(at, entry)
            if found is not None:
                return found if found.offset == offset else None
            self._heartbeat.beat()
        return None

    async def newest_round(self, partition: int, first: int, end: int) -> tuple[int | None, Round]:
        """The newest round that an entry names, and the offset of its ``end``.

        A worker that others have followed may have appended entries last, which name an older one.
        """
        window = _WINDOW
        while True:
            start, named = max(first, end - window), [-1]
            async for piece in self._log.read(partition, start, end):
                named += [at for _, one in piece if (at := newest_in(one)) is not None]
            found = await self.entry_at(partition, newest) if (newest := max(named)) >= 0 else None
            if found is not None and found.kind == "end":
                made = Round.from_bytes(found.value)
                if made.begin >= first or start == first:
                    return newest, made
            if start == first:
                return None, Round(0)
            window *= 10

    async def replay(self, made: Round, end: int, owned: Owned) -> EntryReader:
        """Reads from the beginning of a round to an offset, which lies behind the epoch of this worker."""
        reader, begun = EntryReader(), dict[str, Any]()
        at, wrong = made.begin, list[CountingEntry]()
        async for piece in self._log.read(owned.partition, made.begin, end):
            for offset, entry in piece:
                if offset > at:  # what lay below was deleted meanwhile
                    owned.first = offset
                at = offset + 1
                owned.to_read += ENTRY_BYTES
                if ("kind", b"checkpoint") not in entry.headers:  # else each start made a round due
                    owned.to_read += len(entry.value)
                found = reader.read(offset, entry)
                if found is not None and found.kind == "wrong":
                    wrong.append(found)
                if found is not None:
                    self._take(made, owned, found)
                    # A worker that the facts of the others refuse has an epoch, too, and nothing behind it.
                    if found.kind == "epoch":
                        begun = object_in(found.value)
                    elif begun:
                        _check_facts(self._facts, begun)
                        begun = {}
                owned.marks.repairing = owned.marks.repairing or reader.filled
            self._heartbeat.beat()
        owned.expected = end
        _stop_what_lacks(owned, made, wrong)
        for name, why in () if self._repairs else owned.marks.stopped.items():
            owned.chain(name).problem = why
        if reader.void:
            _log.info("partition %d of the journal: %d entries void", owned.partition, reader.void)
        return reader

    def _take(self, made: Round, owned: Owned, found: CountingEntry) -> None:
        match found.kind:
            case "epoch":
                owned.at = found.offset
                owned.marks.taken_over()
            case "mark" | "begin":
                told = object_in(found.value)
                owned.marks.take(told)
                if found.kind == "begin":
                    owned.marks.left = False  # its writer goes on
                _check_facts(self._facts, told)
            case "commit" | "restart" | "checkpoint" | "wrong":
                if partition_of(found.name.encode(), self._log.partitions) != owned.partition:
                    return
                if found.kind in ("commit", "wrong"):
                    owned.chain(found.name).follows(found.offset, found.value)
                elif found.kind == "restart":
                    owned.chain(found.name).begins(found.offset, found.value, restarts=True)
                    owned.marks.stopped.pop(found.name, None)
                elif made.checkpoints.get(found.name) == found.offset:
                    owned.chain(found.name).begins(found.offset, found.value)

    async def check_facts(self, partition: int) -> None:
        """Compares the topics with what a partition says of them.

        Raises:
            OtherTopics: The inputs are other topics, or have another number of partitions.
        """
        first, end = await self._log.bounds(partition)
        newest, made = await self.newest_round(partition, first, end)
        if newest is None:
            await self.replay(made, end, Owned(partition, b"", first=first))  # it is short
        elif (begin := await self.entry_at(partition, made.begin)) is not None:
            _check_facts(self._facts, object_in(begin.value))


def _stop_what_lacks(owned: Owned, made: Round, wrong: Sequence[CountingEntry]) -> None:
    """Stops data sets of which something is not as it was written, or is not there.

    Whether a wrong entry is of the data set of its key nobody knows, if nothing else is known of that one.
    """
    known = {
        name for name, chain in owned.chains.items() if chain.has_entries
    } | made.checkpoints.keys()
    for one in wrong:
        if one.name not in known:
            owned.wrong = one.offset
            owned.chains.pop(one.name, None)
    for name, offset in made.checkpoints.items():
        if (chain := owned.chain(name)).checkpoint_at < offset:
            chain.problem = f"{name}: its checkpoint on the journal is not at {offset}"


def _check_facts(mine: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    """Compares the topics with what former owners said of them.

    Args:
        mine: What this worker says of the deployment, see ``Journal``.
        known: What an epoch says.

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
