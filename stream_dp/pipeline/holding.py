"""The data sets of the partitions in hand: taken over from their former owner, and let go of again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from secrets import token_bytes
from typing import Any

from stream_dp.core.noise import NoiseSource
from stream_dp.errors import (
    CorruptState,
    Fenced,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    WrongKeyFile,
)
from stream_dp.messages import Definition, Event, Reason, standing_key
from stream_dp.pipeline import answering
from stream_dp.pipeline.dataset import Dataset, ledger_length
from stream_dp.pipeline.fuse import Fuse
from stream_dp.pipeline.health import MOVED
from stream_dp.pipeline.journal import Entered, Journal
from stream_dp.pipeline.keeping import Keeper
from stream_dp.pipeline.metrics import Metrics
from stream_dp.pipeline.ownership import Ownership
from stream_dp.pipeline.records import Commit, Outgoing, Record, plain
from stream_dp.pipeline.releasing import Releaser, queued
from stream_dp.pipeline.repeating import Repeating
from stream_dp.pipeline.retrying import persistently
from stream_dp.pipeline.stored_blocks import BlockCache
from stream_dp.pipeline.watchdog import Heartbeat
from stream_dp.state import ledger
from stream_dp.state.codec import OutboxRecord
from stream_dp.state.store import ORIGIN, TRAIL_BYTES, Snapshot, Store

__all__ = ["MOST_ATTEMPTS", "Holdings"]

_log = logging.getLogger(__name__)

MOST_ATTEMPTS = 3
"""How often a record may end a worker that takes it alone before its data set is quarantined.

It is taken alone after it has ended one that took it among others.
"""

_UNREADABLE = (CorruptState, ValueError, TypeError, LookupError)
"""What reading a data set raises if something else than was committed is in the store: anything may be."""

_RELEASED_AT_ONCE = 16
_COMPARISONS = 5


class Holdings:
    """The names that this worker has looked up, each with its data set or the fact that it has none.

    Args:
        noise: Makes the source of noise of a data set.
        healed: Name -> how many commits came back from the journal, until that is announced.

    Attributes:
        datasets: Name -> the data set, as of its take-over and every commit since.
        stopped: Name -> why it cannot be served. Others are.
    """

    def __init__(
        self,
        store: Store,
        noise: Callable[[], NoiseSource],
        ownership: Ownership,
        releaser: Releaser,
        journal: Journal,
        keeper: Keeper,
        repeating: Repeating,
        *,
        healed: dict[str, int],
        metrics: Metrics,
        key_file: bytes | None,
        cache: BlockCache,
        fuse: Fuse,
        heartbeat: Heartbeat,
    ) -> None:
        self.datasets: dict[str, Dataset] = {}
        self.stopped: dict[str, str] = {}
        self._undefined: set[str] = set()
        self._store = store
        self._noise = noise
        self._ownership = ownership
        self._releaser = releaser
        self._journal = journal
        self._keeper = keeper
        self._repeating = repeating
        self._healed = healed
        self._metrics = metrics
        self._key_file = key_file
        self._cache = cache
        self._fuse = fuse
        self._heartbeat = heartbeat

    def __contains__(self, name: str) -> bool:
        """Returns whether this name was looked up, defined or not."""
        return name in self.datasets or name in self._undefined or name in self.stopped

    # ------------------------------------------------------------ letting go

    def let_go(self) -> None:
        """Forgets the data sets of partitions that are not held any more."""
        self._journal.keep(self._ownership.held)
        self._undefined = set(filter(self._ownership.is_held, self._undefined))
        by_names: tuple[dict[str, Any], ...] = (self.datasets, self.stopped)
        for by_name in by_names:
            for name in [name for name in by_name if not self._ownership.is_held(name)]:
                left = by_name.pop(name)
                if isinstance(left, Dataset):
                    left.let_go()

    def forget_undefined(self, name: str) -> None:
        """Forgets a name that nobody has defined: there is no end of them."""
        self._undefined.discard(name)

    async def guarded(self, generation: int, name: str, step: Awaitable[None]) -> None:
        """Runs a step of one data set that may have been revoked in the meantime."""
        try:
            await step
        except Fenced as error:
            self.lost(generation, name, error)

    def lost(self, generation: int, name: str, error: StoreError) -> None:
        """Leaves a data set to its next owner, who has fenced this worker and reads the records again.

        Raises:
            StoreError: It is another error, or this worker believes to hold the partition: then it is wrong
                about the world, and stops.
        """
        held = generation == self._ownership.generation and self._ownership.is_held(name)
        if held or not isinstance(error, Fenced):
            raise error
        _log.info("data set %s was handed to another worker", name)

    # ------------------------------------------------------------ creating and taking over

    async def create(self, definition: Definition, record: Record) -> Dataset:
        """Drafts a data set under a name that was looked up and has none.

        Raises:
            InvalidDefinition: No data set can be made of the definition. Nothing is left of it.
            Fenced: Another worker was quicker.
        """
        name = definition.dataset
        definition.check_new()
        snapshot = await self._undefined_at(name, new=False)
        dataset = Dataset(
            self._store,
            self._noise(),
            snapshot,
            definition,
            key_file=self._key_file,
            fuse=self._fuse,
            appended=self._releaser.appended,
            keeper=self._keeper,
            cache=self._cache,
        )
        dataset.dated_ms = record.timestamp_ms
        dataset.begins(record.record_id)
        await dataset.define()
        self.forget_undefined(name)
        self.datasets[name] = dataset
        # Only now has the store anything of this name: of names that nobody defines there is no end.
        snapshot = await self._undefined_at(name, new=True)
        dataset.owned(snapshot.token)
        return dataset

    async def _undefined_at(self, name: str, *, new: bool) -> Snapshot:
        """What the store has under a name without a definition, owned under the epoch of its partition.

        A worker that died before it defined the data set has left its token there, and so has healing.

        Raises:
            Fenced: Another worker was quicker.
        """
        token = (await self._journal.entered(self._journal.partition_of(name))).epoch
        acquire = partial(self._store.acquire, name, token=token, new=new)
        snapshot = await persistently(acquire)
        if snapshot.definition is not None:
            raise Fenced(f"{name}: another worker has taken over and defined it")
        return snapshot

    async def look_up(self, generation: int, names: Sequence[str]) -> None:
        """Takes over those of these names that are data sets, and notes that the others are none.

        Anyone can send names that nobody has defined. All of them take one round trip together.

        Args:
            generation: The generation of the consumer group.
            names: Names of partitions that this worker has held since ``generation`` began.
        """
        entered: dict[str, Entered] = {}

        async def enter(name: str) -> None:
            entered[name] = await self._journal.entered(self._journal.partition_of(name))

        for name in names:
            await self.guarded(generation, name, enter(name))
        missing = await persistently(partial(self._store.missing, [*entered]))
        for name, partition in entered.items():
            known = name in partition.chains or name in partition.problems
            if name in missing and not known:
                if generation == self._ownership.generation and self._ownership.is_held(name):
                    self._undefined.add(name)
            else:
                await self.guarded(generation, name, self.take_over(name))

    async def take_over(self, name: str) -> None:
        """Makes this worker the owner of a data set, and releases what its former owner did not.

        Raises:
            StoreError: It cannot be taken over.
            WrongKeyFile: Nor without the key file that it was defined with.
        """
        # Counted beforehand, since a process that dies of it, say by memory, counts nothing.
        cause = f"the take-over of {name}"
        attempts = await persistently(partial(self._store.attempts, cause))
        try:
            await self._load(name, cause, is_deadly=attempts > MOST_ATTEMPTS)
        except (asyncio.CancelledError, StoreUnavailable, StoreRefused, Fenced, WrongKeyFile):
            # Not its fault.
            with contextlib.suppress(StoreError):
                await self._store.clear_attempts(cause)
            raise
        if attempts <= MOST_ATTEMPTS:
            await persistently(partial(self._store.clear_attempts, cause))

    async def _load(self, name: str, cause: str, *, is_deadly: bool) -> None:
        generation = self._ownership.generation
        snapshot = await self._acquired(name)
        if snapshot is None:
            return
        try:
            dataset = await self._read(snapshot, cause, is_deadly=is_deadly)
        except _UNREADABLE as error:
            _log.error("data set %s: %s; the journal builds it again", name, _why(error))
            snapshot = await self._built_again(snapshot)
            if snapshot is None:
                return
            try:
                dataset = await self._read(snapshot, cause, is_deadly=is_deadly)
            except _UNREADABLE as again:
                self.stopped[name] = _why(again)
                _log.error("data set %s cannot be served: %s", name, self.stopped[name])
                self._announce(stopped(name, self.stopped[name]))
                return
        if generation != self._ownership.generation or not self._ownership.is_held(name):
            return  # revoked in the meantime
        if snapshot.definition is None:
            self._undefined.add(name)
            return
        if snapshot.meta.get("moved"):
            self.stopped[name] = MOVED
            self._announce(stopped(name, MOVED))
            return
        assert dataset is not None, "it has a definition, and was not moved"
        is_deadly = is_deadly or snapshot.meta.get("quarantined") == cause
        self.datasets[name] = dataset
        # Also where workers died of what follows: a commit that leaves says that all before it have left.
        if snapshot.outbox:
            await self._release_again(dataset, snapshot.outbox)
        if is_deadly:
            if not dataset.quarantined:
                _log.error("data set %s is quarantined: workers died of its take-over", name)
                dataset.quarantine(cause)
            await dataset.flush()
        else:
            await dataset.recover()
            if dataset.given_up:
                self._metrics.rows_lost(name, dataset.given_up)
                _log.error("data set %s goes on without rows that are nowhere any more", name)
            await self._repeating.recall(dataset)
        self._releaser.gathered.append(dataset.collect())
        # A worker that slept, or that let records leave again because its store had gone back, may have put
        # a definition, or synthetic rows, behind the record that erased them.
        erased = [Outgoing("catalog", name, b"")] if dataset.retired else []
        if dataset.retired and dataset.definition.synthetic_rows:
            erased.append(Outgoing("synthetic", name, b""))
        for analyst, query_id in dataset.standing_queries.ended:
            erased.append(Outgoing("standing", standing_key(name, analyst, query_id), b""))
        # They say the present commit: what says an older one, or none, would count as late behind the record
        # that erased them, see newest.py.
        commit = Commit(name, dataset.token, dataset.commits, b"")
        self._releaser.gathered.outgoing += [(commit, one) for one in erased]

    async def _read(self, snapshot: Snapshot, cause: str, *, is_deadly: bool) -> Dataset | None:
        """The data set of which the store has this. None if it has no definition, or was moved."""
        await self._check_ledger(snapshot)
        if snapshot.definition is None or snapshot.meta.get("moved"):
            return None
        # A worker that died of what a data set holds does not hold it again until an operator has looked.
        is_deadly = is_deadly or snapshot.meta.get("quarantined") == cause
        return Dataset.stored(
            self._store,
            self._noise(),
            snapshot,
            key_file=self._key_file,
            fuse=self._fuse,
            replays=not is_deadly,
            appended=self._releaser.appended,
            keeper=self._keeper,
            cache=self._cache,
        )

    async def _built_again(self, snapshot: Snapshot) -> Snapshot | None:
        """Sets aside what the store has of a data set, and has the journal build it. None if it cannot.

        All its commits are on the journal, or it would not have been acquired.
        """
        rebuild = partial(
            self._store.rebuild,
            snapshot.dataset,
            snapshot.token,
            seq=snapshot.seq,
            trail=token_bytes(TRAIL_BYTES),  # no history has it
        )
        await persistently(rebuild)
        self._journal.leave(self._journal.partition_of(snapshot.dataset))
        return await self._acquired(snapshot.dataset)

    async def _acquired(self, name: str) -> Snapshot | None:
        """A data set as the store and the journal have it. None where they cannot be brought together.

        A former owner may have committed once more before it was fenced. Then the journal is compared again.
        """
        partition = self._journal.partition_of(name)
        for _ in range(_COMPARISONS):
            entered = await self._journal.entered(partition)
            if (commits := self._healed.pop(name, None)) is not None:
                self._metrics.healed(name, commits)
                self._announce(healed(name, commits))
            if name in entered.problems:
                self.stopped[name] = entered.problems[name]
                self._announce(stopped(name, self.stopped[name]))
                return None
            acquire = partial(self._store.acquire, name, token=entered.epoch, new=False)
            snapshot = await persistently(acquire)
            chain = entered.chains.get(name)
            if (snapshot.seq, snapshot.trail) == ((0, ORIGIN) if chain is None else chain.end):
                return snapshot
            self._journal.leave(partition)
        raise Fenced(f"{name}: other workers commit to it all the time")

    def _announce(self, event: Event) -> None:
        """Queues an event that follows from no commit."""
        outgoing = Outgoing("events", event.dataset, event.to_bytes())
        self._releaser.gathered.tell(self._journal.partition_of(event.dataset), outgoing)

    async def _check_ledger(self, snapshot: Snapshot) -> None:
        """Compares what is spent with what the ledger says was charged: one of them may have been changed.

        The store has the last entries alone. Of a phase that opened before them it says what was charged at
        least; ``stream-dp doctor`` compares all of the ledger.

        Raises:
            CorruptState: The chain does not lead to its head, or the sums differ.
        """
        name, length = snapshot.dataset, ledger_length(snapshot)
        entries = await persistently(partial(self._store.ledger, name))
        # Entries of now, not of later: another owner may come, and add some.
        chain = ledger.Chain.of_last(
            name, length, entries[: _until(entries, length)], blocks=len(snapshot.spent)
        )
        self._heartbeat.beat()
        chain.check_head(snapshot.head)
        if not chain.fits(snapshot.spent):
            raise CorruptState(
                f"{snapshot.dataset}: what Redis says is spent is not what its ledger says was charged, so a "
                "budget would be spent again"
            )

    async def _release_again(self, dataset: Dataset, outbox: Sequence[tuple[int, bytes]]) -> None:
        """Queues what a former owner committed and may not have released, some of it at a time.

        Of a store that has gone back the journal may know that it has left. If it left again, it would come
        after what has left since, and stay on compacted topics.
        """
        entered = await self._journal.entered(self._journal.partition_of(dataset.name))
        released = entered.marks.released.get(dataset.name, 0)
        for seq, records, answers in queued(outbox, released):
            commit = Commit(dataset.name, dataset.token, seq, b"")
            for start in range(0, len(records), _RELEASED_AT_ONCE):
                some = records[start : start + _RELEASED_AT_ONCE]
                names = [one for one in some if isinstance(one, str) and one not in answers]
                found = await persistently(partial(self._store.answers, {dataset.name: names}))
                stored = {**answers, **{name: answer for (_, name), answer in found.items()}}
                if not stored.keys() >= set(names):
                    raise CorruptState(
                        f"{dataset.name}: an answer is to be released and not stored"
                    )
                self._releaser.gathered.outgoing += [
                    (commit, _released_again(dataset.name, one, stored)) for one in some
                ]
                await self._releaser.hand_over()
            self._releaser.gathered.commits.append(commit)
            self._heartbeat.beat()
        await self._releaser.hand_over()


def _until(entries: Sequence[bytes], length: int) -> int:
    """Returns how many of the last entries are among the first ``length`` of the ledger."""
    if not entries:
        return 0
    first = ledger.read(entries[0]).get("seq")
    return max(0, length - first) if type(first) is int else len(entries)


def healed(dataset: str, commits: int) -> Event:
    """The event that says that commits came back from the journal."""
    some = f"{commits:,} commit{'s' * (commits != 1)}"
    note = f"the store lacked {some}, which came back from the journal"
    return Event(dataset=dataset, event="healed", commits=commits, note=note)


def _why(error: Exception) -> str:
    """Why a data set cannot be read, in words that say nothing of what was read."""
    return (
        str(error)
        if isinstance(error, CorruptState)
        else f"the store is corrupt ({type(error).__name__})"
    )


def stopped(dataset: str, why: str) -> Event:
    """The event that says why nobody can serve a data set."""
    reason = Reason(code="stopped", message=plain(why))
    return Event(dataset=dataset, event="stopped", reason=reason)


def _released_again(dataset: str, one: OutboxRecord | str, stored: Mapping[str, bytes]) -> Outgoing:
    """A record of an outbox as it was the first time, but for its timestamp."""
    if isinstance(one, str):
        return answering.released_again(dataset, one, stored[one])
    key, value = (one.key or b"").decode(), one.value or b""
    return Outgoing(one.role, key, value, tuple(one.headers), dated_ms=-1)
