"""Writes checkpoints of data sets on the journal, and deletes what no data set needs below them.

A checkpoint is what all commits of a data set so far add up to, so a rebuild can begin with it. Answers are
too many to be in it, but those of a data set that keeps them for some days go again. A checkpoint that is
written right behind a rotation leaves out what was stored before it: it is *partial*, and makes the whole
state with later records from the next rotation on. Of a data set that has few answers all are in it, and it
is enough at once. Where answers are many and are kept for ever, the journal keeps them, and stays.

A partition may begin where every data set in it can be built from what follows, and exactly at a checkpoint:
so the first entry that is there is one that counts, and says which epoch is in force.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Final

from stream_dp.pipeline.dataset import Dataset
from stream_dp.pipeline.decoding import partition_in
from stream_dp.pipeline.fuse import CrashPoint, Fuse
from stream_dp.pipeline.journal import Journal, Marks
from stream_dp.pipeline.keeping import WAITING, Keeper, field_of
from stream_dp.pipeline.needs import JOURNAL, Needs
from stream_dp.pipeline.releasing import Releaser
from stream_dp.pipeline.retrying import persistently
from stream_dp.pipeline.watchdog import Heartbeat
from stream_dp.state.journal import LARGEST_CHECKPOINT, summed
from stream_dp.state.ledger import extend
from stream_dp.state.store import Counts, Snapshot, Store

__all__ = ["Checkpoints", "Often"]

_log = logging.getLogger(__name__)

_LEAST_BYTES: Final = 64  # of what is stored under an id


@dataclass(frozen=True, slots=True)
class Often:
    """How often checkpoints are written of a data set whose answers can all be in them.

    Attributes:
        entries: The entries of a partition since the last one of a data set, at least.
        per_id: The entries for each id of it. So what is written is a small part of what was.
    """

    entries: int = 10_000
    per_id: int = 8


Guarded = Callable[[int, str, Awaitable[None]], Awaitable[None]]
"""Runs a step of one data set that may have been revoked in the meantime."""


class Checkpoints:
    """Writes the checkpoints of the data sets that a worker holds, between two of its steps.

    Args:
        datasets: The data sets that are loaded, by name.
        guarded: Runs a step of one of them.
        often: How often.
    """

    def __init__(
        self,
        store: Store,
        journal: Journal,
        releaser: Releaser,
        keeper: Keeper,
        datasets: Mapping[str, Dataset],
        guarded: Guarded,
        *,
        often: Often,
        fuse: Fuse,
        heartbeat: Heartbeat,
    ) -> None:
        self._store = store
        self._journal = journal
        self._releaser = releaser
        self._keeper = keeper
        self._datasets = datasets
        self._guarded = guarded
        self._often = often
        self._fuse = fuse
        self._heartbeat = heartbeat
        self._looked: dict[int, int] = {}
        self._too_large: dict[str, str] = {}  # by the rotation at which that was found

    async def after(self, generation: int, names: Iterable[str]) -> None:
        """Does what is due after a step. The caller sees to it that no other step begins meanwhile.

        Args:
            generation: The generation of the consumer group.
            names: The data sets that the step was about.
        """
        touched = [self._datasets[name] for name in sorted(set(names)) if name in self._datasets]
        due = {one.name: False for one in touched if self._has_rotated(one)}
        for partition, end in self._journal.ends().items():
            if end - self._looked.get(partition, 0) >= max(1, self._often.entries // 10):
                self._looked[partition] = end
                due |= dict.fromkeys(await self._grown(partition), True)
        for name, is_whole in due.items():
            dataset = self._datasets.get(name)
            if dataset is not None and self._too_large.get(name) != dataset.rotated:
                writing = self._write(dataset, is_whole=is_whole)
                await self._guarded(generation, name, writing)
        for partition in {self._journal.partition_of(name) for name in due}:
            await self._shorten(partition)
        for one in touched:
            if one.waited and self._datasets.get(one.name) is one:
                await self._guarded(generation, one.name, self._drop_waited(one))

    def _needs(self, dataset: Dataset) -> Needs:
        partition = self._journal.partition_of(dataset.name)
        return Needs.of(dataset.meta, self._journal.key_of(partition))

    def _has_rotated(self, dataset: Dataset) -> bool:
        """Returns whether answers have rotated since the last checkpoint."""
        return dataset.rotated != self._needs(dataset).rotated

    async def _grown(self, partition: int) -> list[str]:
        """The data sets that need so much of the journal that a whole checkpoint is little next to it."""
        ends = self._journal.ends()
        first = self._journal.first(partition)
        found = []
        for name in sorted(self._of(partition)):
            needed = ends[partition] - max(first, self._needs(self._datasets[name]).start or 0)
            if needed >= self._often.entries:
                counts = await persistently(partial(self._store.counts, name))
                if needed >= self._often.per_id * (sum(counts) + len(self._datasets)):
                    found.append(name)
        return found

    def _of(self, partition: int) -> set[str]:
        """The data sets of a partition that are loaded."""
        return {name for name in self._datasets if self._journal.partition_of(name) == partition}

    # ------------------------------------------------------------ writing

    async def _write(self, dataset: Dataset, *, is_whole: bool) -> None:
        """Writes a checkpoint, and notes it in a commit once it is acknowledged.

        Raises:
            Fenced: Another worker has taken over.
        """
        await dataset.flush()
        snapshot = await self._stored(dataset)
        if snapshot is None:
            return
        if snapshot.pending or dataset.meta.get(field_of(WAITING)):
            waited = dataset.waited
            if snapshot.pending:
                name = await self._keeper.keep(dataset.name, WAITING, *snapshot.pending)
                dataset.waits(f"{name} {len(snapshot.pending)}", waited)
            else:
                dataset.waits("", waited)
            await dataset.flush()
        self._releaser.gathered.append(dataset.collect())
        await self._releaser.settled()
        self._fuse(CrashPoint.BEFORE_CHECKPOINT)
        found = await self._summed(dataset, is_whole=is_whole)
        if found is None:
            return
        value, is_partial = found
        offset = await self._journal.checkpoint(dataset.name, value)
        self._heartbeat.beat()
        if offset is None:
            return
        self._fuse(CrashPoint.AFTER_CHECKPOINT)
        waiting = dataset.meta.get(field_of(WAITING), "")
        needs = self._needs(dataset).after(offset, waiting, dataset.rotated, is_partial=is_partial)
        dataset.note(JOURNAL, needs.to_text())
        await dataset.flush()
        self._releaser.gathered.append(dataset.collect())

    async def _summed(self, dataset: Dataset, *, is_whole: bool) -> tuple[bytes, bool] | None:
        """The checkpoint, and whether it is partial. None if the store is not as it must be, or moves."""
        name = dataset.name
        snapshot = await self._stored(dataset)
        counts = await self._counts(name)
        is_partial = not is_whole and counts.rotated > 0
        if snapshot is None or self._too_many(dataset, counts.fresh() if is_partial else counts):
            return None
        read = partial(self._store.outcomes, name, rotated=not is_partial)
        outcomes = await persistently(read)
        entries = await persistently(partial(self._store.ledger, name))
        # The store may have gone back while it was read, or have gone back and returned.
        counts, again = await self._counts(name), await self._stored(dataset)
        if again is None or (counts.fresh() if is_partial else counts) != Counts.of(outcomes):
            return None
        checkpoint = summed(snapshot, outcomes, entries, partial=is_partial)
        if reduce(extend, checkpoint.ledger, checkpoint.before) != snapshot.head:
            return None
        parts = (checkpoint.answers, checkpoint.previous, checkpoint.batches, checkpoint.verified)
        size = sum(len(value) for part in parts for value in part.values())
        if size + sum(map(len, checkpoint.transcript)) > LARGEST_CHECKPOINT:
            self._is_too_large(dataset)
            return None
        return checkpoint.to_bytes(), checkpoint.partial

    async def _counts(self, name: str) -> Counts:
        return await persistently(partial(self._store.counts, name))

    def _too_many(self, dataset: Dataset, counts: Counts) -> bool:
        if sum(counts) * _LEAST_BYTES <= LARGEST_CHECKPOINT:
            return False
        self._is_too_large(dataset)
        return True

    def _is_too_large(self, dataset: Dataset) -> None:
        """Notes, and tells once, that a checkpoint would be too large. It is tried again after a rotation."""
        if dataset.name not in self._too_large:
            _log.warning(
                "data set %s: a checkpoint of it would have more than %d MiB, so none is written and the "
                "journal keeps all that it needs; see docs/operations.md, 'The length of the journal'",
                *(dataset.name, LARGEST_CHECKPOINT >> 20),
            )
        self._too_large[dataset.name] = dataset.rotated

    async def _stored(self, dataset: Dataset) -> Snapshot | None:
        """The data set as the store has it. None if it is not where its owner is, or a look is announced."""
        acquire = partial(self._store.acquire, dataset.name, token=dataset.token, new=False)
        snapshot = await persistently(acquire)
        is_ours = (snapshot.seq, snapshot.trail) == dataset.place
        return snapshot if is_ours and not snapshot.intents and snapshot.seq else None

    # ------------------------------------------------------------ shortening

    async def _shorten(self, partition: int) -> None:
        """Deletes what no data set of a partition needs, if all of them are known and served."""
        if partition not in self._journal.ends():
            return
        names, all_served = self._journal.known(partition)
        names |= self._of(partition)
        if not all_served or not names <= self._datasets.keys():
            return
        await self._releaser.settled()
        needs = {name: self._needs(self._datasets[name]) for name in names}
        starts = [one.start for one in needs.values() if one.start is not None]
        if len(starts) < len(needs):
            return
        places = [
            (offset, name)
            for name, one in needs.items()
            for offset, _ in one.newest
            if offset <= min(starts)
        ]
        if not places or partition not in self._journal.ends():
            return
        marks = await self._marks(partition)
        if marks is not None:
            marks.take({"released": {name: self._datasets[name].commits for name in names}})
            await self._journal.forget(partition, *max(places), marks)
        self._heartbeat.beat()

    async def _marks(self, partition: int) -> Marks | None:
        """All that is done with in a partition. None if the store may not know all of it any more.

        What was done with before this worker came is in the store, which said so in one step with a note of
        this worker's epoch. A store that went back since has another note.
        """
        if await self._journal.noted_epoch(partition) != self._journal.epoch(partition):
            return None
        stored = await persistently(self._store.watermarks)
        marks = Marks()
        for some in (stored, self._releaser.done.watermarks):
            here = {at: to for at, to in some.items() if partition_in(at) == partition}
            marks.take({"watermarks": here})
        is_still = await self._journal.noted_epoch(partition) == self._journal.epoch(partition)
        return marks if is_still else None

    async def _drop_waited(self, dataset: Dataset) -> None:
        """Erases rows that were kept for checkpoints that nothing begins with any more.

        Those that were in a phase by the time are in its block, which is kept before the journal has it. A
        checkpoint that was not acknowledged may be on the journal, so what was kept for one is needed as long
        as the one before it is.
        """
        waiting, waited = dataset.meta.get(field_of(WAITING), ""), dataset.waited
        oldest = next((kept for _, kept in self._needs(dataset).newest), "")
        listed = [*waited, waiting]
        first = len(waited) if not waiting else listed.index(oldest) if oldest in listed else 0
        if first == 0:
            return
        await dataset.flush()
        self._releaser.gathered.append(dataset.collect())
        await self._releaser.settled()
        if not self._journal.holds(dataset.name):
            return  # what says that they are not needed may not be on the journal
        for kept in waited[:first]:
            name, _, count = kept.partition(" ")
            await self._keeper.drop(dataset.name, WAITING, name, int(count))
        dataset.waits(waiting, waited[first:])
        await dataset.flush()
        self._releaser.gathered.append(dataset.collect())
