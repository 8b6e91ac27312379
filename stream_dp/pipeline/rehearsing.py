"""Rehearses a loss of the store: builds data sets again from the topics, and compares them with the store.

It is the code that heals which builds them, in a store in memory. Nothing is appended, written or taken over,
so it runs next to live workers. What is compared is a data set as the store has it between two commits, with
what the journal says up to the same commit. Private parts are compared by equality only.

Secrets of runs are not compared: healing loses them. Neither are the rows that persons have used for life.
"""

from __future__ import annotations

from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterator,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic
from typing import Final

from stream_dp.errors import Conflict, Fenced, RowsGone
from stream_dp.pipeline.chains import Chain, Found, entries_of
from stream_dp.pipeline.decoding import partition_of
from stream_dp.pipeline.fuse import unarmed
from stream_dp.pipeline.healing import Healing, records_of
from stream_dp.pipeline.journal import Entered, Reading
from stream_dp.pipeline.keeping import Keeper, field_of
from stream_dp.pipeline.logs import Entry, Kept, Log, Rows, Traces
from stream_dp.pipeline.records import Record
from stream_dp.pipeline.retrying import persistently
from stream_dp.pipeline.watchdog import Heartbeat
from stream_dp.state.kept import Place as KeptPlace
from stream_dp.state.local import LocalStore
from stream_dp.state.looking import LookedAt, Seen
from stream_dp.state.store import ORIGIN, Note, Place, Snapshot

__all__ = ["Rehearsal", "Rehearsed"]

_TRIES: Final = 5
_IDS: Final = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsed:
    """How the rehearsal of a data set went.

    Attributes:
        dataset: Its name.
        differs: The parts in which the store and what was built differ.
        problem: Why it could not be built or compared; empty if it could.
        phases: The phases whose block could not be built, or is another one.
        commits: The number of commits that were built.
        ahead: Those of them that are in the store alone, and that a worker still puts on the journal.
        seconds: How long building took.
        bytes_read: The bytes that were read of the journal, of what is kept of blocks, and of batches.
    """

    dataset: str
    differs: Sequence[str] = ()
    problem: str = ""
    phases: Sequence[int] = ()
    commits: int = 0
    ahead: int = 0
    seconds: float = 0.0
    bytes_read: int = 0

    @property
    def equal(self) -> bool:
        """Whether all of it was built, and is what the store has."""
        return not self.problem and not self.differs


class Rehearsal:
    """Builds data sets in memory, one after the other, and compares each with the store.

    Args:
        log: The journal.
        rows: The batches of rows.
        kept: What is kept of blocks.
        store: The store. It is only read.
        key_file: What the key file of persons holds; None without one.
        progress: Called now and then with the data set and the bytes that were read for it.
    """

    def __init__(
        self,
        log: Log,
        rows: Rows,
        kept: Kept,
        store: LookedAt,
        *,
        key_file: bytes | None,
        progress: Callable[[str, int], None],
    ) -> None:
        self._log = log
        self._rows = rows
        self._kept = kept
        self._store = store
        self._key_file = key_file
        self._progress = progress

    async def __call__(self) -> AsyncIterator[Rehearsed]:
        """Yields what came out, of each data set on the journal or in the store.

        Raises:
            StoreError: The store does not answer, or refuses.
            ServerUnavailable: The broker does not answer.
        """
        stored = await persistently(self._store.datasets)
        for partition in range(self._log.partitions):
            first, end = await self._log.bounds(partition)
            reading = Reading(self._log, partition, Note(first), {}, heartbeat=Heartbeat())
            async for _ in reading.to(end):
                pass
            here = {name for name in stored if self._partition_of(name) == partition}
            for name in sorted(here | reading.chains.keys()):
                found = await self._settled(partition, reading, name)
                if found is not None:
                    yield found

    def _partition_of(self, name: str) -> int:
        return partition_of(name.encode(), self._log.partitions)

    async def _settled(self, partition: int, reading: Reading, name: str) -> Rehearsed | None:
        """Rehearses a data set, again if it has moved on where it differs. None if there is none."""
        look = partial(self._store.look, name)
        for _ in range(_TRIES):
            seen = await persistently(look)
            if seen is None:
                break
            found = await self._rehearsed(partition, reading, name, seen)
            if found is None or found.equal:
                return found
            now = await persistently(look)
            if now is not None and _place(now.snapshot) == _place(seen.snapshot):
                return found
        return Rehearsed(
            dataset=name,
            problem="it moves on too fast to be compared; try again when less is asked",
        )

    async def _rehearsed(
        self, partition: int, reading: Reading, name: str, seen: Seen
    ) -> Rehearsed | None:
        target = await self._target(partition, reading, name, seen.snapshot)
        seq = seen.snapshot.seq
        if not target.chain.seq:
            why = f"the journal has nothing that leads to its commit {seq}"
            return Rehearsed(dataset=name, problem=why) if seq else None
        scratch, meter = LocalStore(), _Meter(name, self._progress)
        keeper = Keeper(_MeteredKept(self._kept, meter), self._log.partitions)
        healing = Healing(
            _View(self._log, target, meter),
            _MeteredRows(self._rows, meter),
            keeper,
            scratch,
            partitions=self._log.partitions,
            key_file=self._key_file,
            fuse=unarmed,
            heartbeat=Heartbeat(),
        )
        end = target.end + len(target.beyond)
        entered = Entered(target.epoch, end, {name: target.chain}, reading.marks)
        began = monotonic()
        try:
            await healing(_Nowhere(), partition, entered)
        except Fenced:
            return Rehearsed(dataset=name, problem="the journal was cut meanwhile; rehearse again")
        seconds = monotonic() - began
        built = await scratch.look(name)
        assert built is not None, "nobody else writes to it"
        problem = entered.problems.get(name, "")
        if problem:
            differs, phases = (
                [],
                [*range(len(built.snapshot.spent) + 1, len(seen.snapshot.spent) + 1)],
            )
        else:
            phases = await self._other_blocks(keeper, seen.snapshot, scratch, built.snapshot)
            differs = [*_other_parts(seen, built), *(["blocks"] if phases else [])]
            differs += await self._other_outcomes(name, scratch, seen, built)
        return Rehearsed(
            dataset=name,
            differs=differs,
            problem=problem,
            phases=phases,
            commits=healing.healed.get(name, 0),
            ahead=target.ahead,
            seconds=seconds,
            bytes_read=meter.n_bytes,
        )

    async def _target(
        self, partition: int, reading: Reading, name: str, snapshot: Snapshot
    ) -> _Target:
        """Finds the commit at which the store has a data set, on the journal or behind its end.

        If it is on neither, the target is the end of the journal.
        """
        nothing = Chain.noted(Place(0, 0, ORIGIN))
        chain = reading.chains.get(name, nothing)
        if chain.seq == snapshot.seq:
            return _Target(replace(chain), reading.at, max(1, reading.reader.epoch))
        _, end = await self._log.bounds(partition)
        at: _Target | None = None
        async for found in reading.to(end):
            chain = reading.chains.get(name, nothing)
            if at is None and found.name == name and chain.seq == snapshot.seq:
                at = _Target(replace(chain), reading.at, found.epoch)
        if at is not None:
            return at
        target = _Target(replace(chain), end, max(1, reading.reader.epoch))
        return target.followed_by(snapshot) or target

    async def _other_blocks(
        self, keeper: Keeper, stored: Snapshot, scratch: LocalStore, built: Snapshot
    ) -> list[int]:
        """The phases whose blocks are not alike. None are where the store has moved on meanwhile."""
        phases = len(stored.spent)
        here, there = phases - stored.n_blocks, len(built.spent) - built.n_blocks
        other = [
            *range(min(here, there) + 1, max(here, there) + 1),
            *range(len(built.spent) + 1, phases + 1),
        ]
        for index in range(max(here, there), min(phases, len(built.spent))):
            read = partial(self._store.block, stored.dataset, stored.token, index)
            try:
                theirs = await persistently(read)
                name = stored.meta.get(field_of(index + 1))
                theirs = await keeper.block(stored.dataset, index + 1, name, theirs)
            except (Conflict, Fenced, RowsGone):
                theirs = b""
            if theirs != await scratch.block(built.dataset, built.token, index):
                other.append(index + 1)
        return sorted(set(other))

    async def _other_outcomes(
        self, name: str, scratch: LocalStore, seen: Seen, built: Seen
    ) -> list[str]:
        """Names answers and batches if they are not alike. Their numbers tell whether there are more."""
        outcomes = await scratch.outcomes(name)
        answers = {**outcomes.previous, **outcomes.answers}
        batches = {**outcomes.previous_batches, **outcomes.batches}
        other = []
        for part, mine, read, alike in (
            ("answers", answers, self._store.answers, seen.n_answers == built.n_answers),
            ("batches", batches, self._store.batches, seen.n_batches == built.n_batches),
        ):
            if not alike or not await _has_all(read, name, mine):
                other.append(part)
        if seen.n_taken != built.n_taken or not await self._has_taken(name, outcomes.taken):
            other.append("ids of batches")
        return other

    async def _has_taken(self, name: str, wanted: Collection[bytes]) -> bool:
        ids = sorted(wanted)
        for start in range(0, len(ids), _IDS):
            some = ids[start : start + _IDS]
            found = await persistently(partial(self._store.taken, name, some))
            if len(found) < len(some):
                return False
        return True


@dataclass(slots=True)
class _Target:
    """What to build: a data set's chain, the end of the journal for it, and what follows there.

    Attributes:
        chain: The chain, read up to the last commit to build.
        end: The offset at which the journal ends for it.
        epoch: The epoch in force there.
        beyond: Entries that follow there, and that the store alone has.
        ahead: The number of commits in them.
    """

    chain: Chain
    end: int
    epoch: int
    beyond: Sequence[Entry] = ()
    ahead: int = 0

    def followed_by(self, snapshot: Snapshot) -> _Target | None:
        """Goes on with the records that the store keeps; None if these do not lead to where it stands."""
        stored, chain, beyond, ahead = dict(snapshot.outbox), replace(self.chain), list[Entry](), 0
        for seq, record, trail in records_of(snapshot):
            if seq != (chain.seq or 0) + 1:
                continue
            at = self.end + len(beyond)
            found = Found("commit", snapshot.dataset, stored[seq], at, self.epoch)
            if chain.commit(record, trail, found):
                beyond += entries_of("commit", snapshot.dataset, stored[seq], self.epoch)
                ahead += 1
        if (chain.seq, chain.trail) != (snapshot.seq, snapshot.trail):
            return None
        return _Target(chain, self.end, self.epoch, beyond, ahead)


def _place(snapshot: Snapshot) -> tuple[int, int, bytes]:
    return snapshot.token, snapshot.seq, snapshot.trail


def _other_parts(seen: Seen, built: Seen) -> Iterator[str]:
    """The parts that are not alike, by names that a reader knows."""
    for part, field in _PARTS.items():
        if getattr(seen.snapshot, field) != getattr(built.snapshot, field):
            yield part
    if seen.ledger != built.ledger:
        yield "ledger"


_PARTS: Final = {
    "commits": "seq",
    "history": "trail",
    "definition": "definition",
    "facts": "meta",
    "cursor": "cursor",
    "waiting rows": "pending",
    "spent": "spent",
    "transcript": "transcript",
    "verified answers": "verified",
    "announced looks": "intents",
    "head of the ledger": "head",
}


async def _has_all(
    read: Callable[[Mapping[str, Sequence[str]]], Awaitable[Mapping[tuple[str, str], bytes]]],
    name: str,
    wanted: Mapping[str, bytes],
) -> bool:
    ids = list(wanted)
    for start in range(0, len(ids), _IDS):
        some = ids[start : start + _IDS]
        found = await persistently(partial(read, {name: some}))
        if any(found.get((name, one)) != wanted[one] for one in some):
            return False
    return True


# ---------------------------------------------------------------- what healing is given: it can only read


class _Meter:
    """Counts the bytes that are read for one data set."""

    def __init__(self, name: str, progress: Callable[[str, int], None]) -> None:
        self.n_bytes = 0
        self._name = name
        self._progress = progress

    def add(self, *some: bytes | None) -> None:
        self.n_bytes += sum(len(one) for one in some if one is not None)
        self._progress(self._name, self.n_bytes)


class _Nowhere:
    """The journal of a rehearsal, to which nothing is appended."""

    async def append_entries(
        self, partition: int, entered: Entered, entries: Sequence[Entry]
    ) -> None:
        raise AssertionError("a rehearsal begins with an empty store, which has nothing to append")


class _View(Log):
    """The journal up to an offset, and what follows there in the store alone."""

    def __init__(self, log: Log, target: _Target, meter: _Meter) -> None:
        self._log = log
        self._target = target
        self._meter = meter

    @property
    def partitions(self) -> int:
        return self._log.partitions

    async def append(self, partition: int, entries: Sequence[Entry]) -> int | None:
        raise AssertionError("a rehearsal appends nothing")

    async def bounds(self, partition: int, *, reaches: int = 0) -> tuple[int, int]:
        del reaches
        first, _ = await self._log.bounds(partition)
        return first, self._target.end + len(self._target.beyond)

    async def read(
        self, partition: int, start: int, end: int
    ) -> AsyncIterator[Sequence[tuple[int, Entry]]]:
        there = self._target.end
        async for piece in self._log.read(partition, start, min(end, there)):
            self._meter.add(*(entry.value for _, entry in piece))
            yield piece
        yield list(enumerate(self._target.beyond, start=there))

    async def forget(self, partition: int, before: int) -> None:
        raise AssertionError("a rehearsal deletes nothing")


class _MeteredRows(Rows):
    def __init__(self, rows: Rows, meter: _Meter) -> None:
        self._rows = rows
        self._meter = meter

    async def records(self, topic_partition: str, offsets: Sequence[int]) -> AsyncIterator[Record]:
        async for record in self._rows.records(topic_partition, offsets):
            self._meter.add(record.value)
            yield record


class _MeteredKept(Kept):
    def __init__(self, kept: Kept, meter: _Meter) -> None:
        self._kept = kept
        self._meter = meter

    async def put(
        self, values: Sequence[tuple[bytes, bytes]], *, beat: Callable[[], None] = lambda: None
    ) -> list[KeptPlace]:
        raise AssertionError("a rehearsal keeps nothing")

    async def drop(self, keys: Mapping[bytes, int]) -> None:
        raise AssertionError("a rehearsal erases nothing")

    async def fetch(self, key: bytes, place: KeptPlace) -> bytes | None:
        value = await self._kept.fetch(key, place)
        self._meter.add(value)
        return value

    async def places(
        self,
        datasets: Collection[str],
        partition: int,
        *,
        beat: Callable[[], None] = lambda: None,
    ) -> dict[bytes, KeptPlace]:
        def going_on() -> None:
            beat()
            self._meter.add()

        return await self._kept.places(datasets, partition, beat=going_on)

    async def keys(
        self,
        dataset_prefix: bytes,
        partition: int,
        start: int = 0,
        *,
        beat: Callable[[], None] = lambda: None,
    ) -> tuple[dict[bytes, Traces], int]:
        raise AssertionError("a rehearsal erases nothing")
