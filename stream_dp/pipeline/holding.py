"""The data sets of the partitions in hand: taken over from their former owner, and let go of again."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial

from stream_dp.core.noise import NoiseSource
from stream_dp.errors import (
    CorruptState,
    Fenced,
    LedgerBroken,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    WrongKeyFile,
)
from stream_dp.messages import Definition
from stream_dp.pipeline import answering
from stream_dp.pipeline.dataset import Dataset, ledger_length
from stream_dp.pipeline.fuse import Fuse
from stream_dp.pipeline.ownership import Ownership
from stream_dp.pipeline.records import Outgoing, Record
from stream_dp.pipeline.releasing import Releaser
from stream_dp.pipeline.repeating import Repeating
from stream_dp.pipeline.retrying import persistently
from stream_dp.pipeline.watchdog import Heartbeat
from stream_dp.state import ledger
from stream_dp.state.codec import OutboxRecord, outbox_from_bytes
from stream_dp.state.store import Snapshot, Store

__all__ = ["MOST_ATTEMPTS", "Holdings"]

_log = logging.getLogger(__name__)

MOST_ATTEMPTS = 3
"""How often a record may end a worker that takes it alone before its data set is quarantined.

It is taken alone after it has ended one that took it among others.
"""

_RELEASED_AT_ONCE = 16
_LEDGER_PAGE = 2_000


class Holdings:
    """The names that this worker has looked up, each with its data set or the fact that it has none.

    Attributes:
        datasets: Name -> the data set, as of its take-over and every commit since.
    """

    def __init__(
        self,
        store: Store,
        noise: NoiseSource,
        ownership: Ownership,
        releaser: Releaser,
        repeating: Repeating,
        *,
        key_file: bytes | None,
        fuse: Fuse,
        heartbeat: Heartbeat,
    ) -> None:
        self.datasets: dict[str, Dataset] = {}
        self._undefined: dict[str, Snapshot] = {}
        self._store = store
        self._noise = noise
        self._ownership = ownership
        self._releaser = releaser
        self._repeating = repeating
        self._key_file = key_file
        self._fuse = fuse
        self._heartbeat = heartbeat

    def __contains__(self, name: str) -> bool:
        """Returns whether this name was looked up, defined or not."""
        return name in self.datasets or name in self._undefined

    # ------------------------------------------------------------ letting go

    def let_go(self) -> None:
        """Forgets the data sets of partitions that are not held any more."""
        for by_name in (self.datasets, self._undefined):
            for name in [name for name in by_name if not self._ownership.is_held(name)]:
                del by_name[name]

    def forget_undefined(self, name: str) -> None:
        """Forgets a name that nobody has defined: there is no end of them."""
        self._undefined.pop(name, None)

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
        dataset = Dataset(
            self._store,
            self._noise,
            self._undefined[name],
            definition,
            key_file=self._key_file,
            fuse=self._fuse,
        )
        dataset.dated_ms = record.timestamp_ms
        dataset.begins(record.record_id)
        dataset.define()
        del self._undefined[name]
        self.datasets[name] = dataset
        # Only now has the store anything of this name: of names that nobody defines there is no end.
        snapshot = await persistently(partial(self._store.acquire, name, new=True))
        if snapshot.definition is not None:
            raise Fenced(f"{name}: another worker has taken over and defined it")
        dataset.token = snapshot.token
        return dataset

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
        snapshot = await persistently(partial(self._store.acquire, name, new=False))
        await self._check_ledger(snapshot)
        if generation != self._ownership.generation or not self._ownership.is_held(name):
            return  # revoked in the meantime
        if snapshot.definition is None:
            self._undefined[name] = snapshot
            return
        # A worker that died of what a data set holds does not hold it again until an operator has looked.
        is_deadly = is_deadly or snapshot.meta.get("quarantined") == cause
        dataset = Dataset.stored(
            self._store,
            self._noise,
            snapshot,
            key_file=self._key_file,
            fuse=self._fuse,
            replays=not is_deadly,
        )
        self.datasets[name] = dataset
        if is_deadly:
            if not dataset.quarantined:
                _log.error("data set %s is quarantined: workers died of its take-over", name)
                dataset.quarantine(cause)
            await dataset.flush()
        else:
            if snapshot.outbox:
                await self._release_again(dataset, snapshot.outbox)
            await dataset.recover()
            await self._repeating.recall(dataset)
        self._releaser.gathered.append(dataset.collect())

    async def _check_ledger(self, snapshot: Snapshot) -> None:
        """Compares what is spent with what the ledger says was charged: one of them may have been changed.

        Raises:
            CorruptState: The chain does not lead to its head, or the sums differ.
        """
        chain, name = ledger.Chain(snapshot.dataset), snapshot.dataset
        # Entries of now, not of later: another owner may come, and add some.
        while left := ledger_length(snapshot) - chain.length:
            most = min(left, _LEDGER_PAGE)
            page = await persistently(partial(self._store.ledger, name, chain.length, most))
            if not page:
                raise LedgerBroken(chain.length, "it is missing")
            for entry in page:
                chain.add(entry)
            self._heartbeat.beat()
        chain.check_head(snapshot.head)
        if tuple(chain.charged) != snapshot.spent:
            raise CorruptState(
                f"{snapshot.dataset}: what Redis says is spent is not what its ledger says was charged, so a "
                "budget would be spent again; restore the newest copy of Redis"
            )

    async def _release_again(self, dataset: Dataset, outbox: Sequence[tuple[int, bytes]]) -> None:
        """Queues what a former owner committed and may not have released, some of it at a time."""
        for seq, entry in outbox:
            records = outbox_from_bytes(entry)
            for start in range(0, len(records), _RELEASED_AT_ONCE):
                some = records[start : start + _RELEASED_AT_ONCE]
                names = [one for one in some if isinstance(one, str)]
                stored = await persistently(partial(self._store.answers, {dataset.name: names}))
                if len(stored) < len(set(names)):
                    raise CorruptState(
                        f"{dataset.name}: an answer is to be released and not stored"
                    )
                self._releaser.gathered.outgoing += [
                    _released_again(dataset.name, one, stored) for one in some
                ]
                await self._releaser.hand_over()
            self._releaser.gathered.commits[dataset.name] = (dataset.token, seq)
            self._heartbeat.beat()
        await self._releaser.hand_over()


def _released_again(
    dataset: str, one: OutboxRecord | str, stored: Mapping[tuple[str, str], bytes]
) -> Outgoing:
    """A record of an outbox as it was the first time, but for its timestamp."""
    if isinstance(one, str):
        return answering.released_again(dataset, one, stored[dataset, one])
    key, value = (one.key or b"").decode(), one.value or b""
    return Outgoing(one.role, key, value, tuple(one.headers), dated_ms=-1)
