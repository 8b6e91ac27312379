"""Groups of records in, commits, then releases. Knows no Faust: the app hands it records and a sender.

A group is decoded, looked up in one round trip a data set, and decided: a few data sets at the same time, and
the records of each in log order. It is committed once a data set (and once more for each paid look), and
handed to the releaser, which sends while the next group is decided. Progress is in the store alone: each
commit moves its data set's cursor, and a topic's watermark follows when everything below it is committed and
released.

Who does what: ``ownership`` knows which records are this worker's, ``backlog`` what was taken of them and is
not finished, ``holding`` their data sets, ``deciding`` what a record does, and ``releasing`` what leaves.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Literal

from stream_dp.core.noise import NoiseSource
from stream_dp.errors import (
    Fenced,
    GoneBack,
    InvalidInput,
    InvalidMessage,
    ServerUnavailable,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    UnsafeStore,
    UnsafeTopics,
)
from stream_dp.messages import DATASET_PATTERN
from stream_dp.pipeline.backlog import Backlog, Piece, step_of
from stream_dp.pipeline.checkpoints import Checkpoints, Often
from stream_dp.pipeline.dataset import Dataset, commit
from stream_dp.pipeline.deciding import Decider, Known
from stream_dp.pipeline.decoding import Request, decode, partition_in
from stream_dp.pipeline.fuse import CrashPoint, Fuse, unarmed
from stream_dp.pipeline.healing import Healing
from stream_dp.pipeline.holding import MOST_ATTEMPTS, Holdings
from stream_dp.pipeline.journal import Entered, Journal, JournalCut
from stream_dp.pipeline.keeping import Keeper
from stream_dp.pipeline.logs import InputCut, Kept, Log, Rows
from stream_dp.pipeline.metrics import Metrics
from stream_dp.pipeline.newest import Compacted, Newest, dataset_of
from stream_dp.pipeline.ownership import REJECTED, AskBounds, Ownership
from stream_dp.pipeline.records import Record
from stream_dp.pipeline.releasing import Releaser, Send
from stream_dp.pipeline.repeating import Repeating
from stream_dp.pipeline.retrying import persistently
from stream_dp.pipeline.stored_blocks import BlockCache
from stream_dp.pipeline.together import together
from stream_dp.pipeline.watchdog import Heartbeat
from stream_dp.state.store import Store
from stream_dp.tokens import Verifier

__all__ = ["Worker"]

_log = logging.getLogger(__name__)

_AT_ONCE = 4
"""Data sets in hand at the same time: what is drawn for their looks is in memory."""


class Worker:
    """Everything between the records of the assigned partitions and what is released for them.

    Args:
        noise: Makes the source of noise of a data set. Several data sets may be in hand at the same time.
        log: The journal.
        rows: The batches of rows, to be read again.
        kept: The private topic of blocks.
        compacted: The compacted topics that clients read.
        ledger: The topic of ledgers, to be read. None where nothing that was published outlasts the worker.
        partitions: Partitions of each input topic, all alike; the store remembers the count.
        identity: The name of the journal, which changes if it is deleted and created again.
        facts: What the journal is to say of the deployment.
        key_file: What the key file of persons holds; None without one.
        verifier: What verifies the tokens that queries carry. None where they need none.
        cache: The memory for blocks that looks have read. Default: one of the usual size.
        often: How often checkpoints are written.
        blocks: Whether the store has the blocks that are sealed from now on, or only their places on the
            private topic.

    Attributes:
        ownership: The partitions that are this worker's, and its reading positions.
    """

    def __init__(
        self,
        store: Store,
        noise: Callable[[], NoiseSource],
        send: Send,
        log: Log,
        rows: Rows,
        kept: Kept,
        compacted: Compacted,
        *,
        ledger: Log | None,
        partitions: int,
        identity: str = "journal",
        facts: Mapping[str, object] = MappingProxyType({}),
        metrics: Metrics | None = None,
        key_file: bytes | None = None,
        verifier: Verifier | None = None,
        cache: BlockCache | None = None,
        often: Often | None = None,
        blocks: Literal["store", "topic"] = "store",
        fuse: Fuse = unarmed,
    ) -> None:
        self.metrics = metrics or Metrics()
        self.ownership = Ownership(store, partitions)
        self._journal_cut: dict[str, int] = {}
        self._store = store
        self._fuse = fuse
        self._heartbeat = Heartbeat()
        keeper = Keeper(kept, partitions, blocks=blocks, heartbeat=self._heartbeat)
        self.healing = Healing(
            log,
            rows,
            keeper,
            store,
            partitions=partitions,
            key_file=key_file,
            fuse=fuse,
            heartbeat=self._heartbeat,
        )
        self.journal = Journal(
            log,
            store,
            identity=identity,
            facts=facts,
            is_held=lambda partition: partition in self.ownership.held,
            heal=self.healing,
            ledger=ledger,
            fuse=fuse,
            heartbeat=self._heartbeat,
        )
        self._newest = Newest(compacted)
        self._releaser = Releaser(
            store,
            self.journal,
            send,
            lambda partitions: not self.ownership.held.isdisjoint(partitions),
            self._newest,
            metrics=self.metrics,
            fuse=fuse,
            heartbeat=self._heartbeat,
        )
        repeating = Repeating(store, self.metrics, self._heartbeat)
        self._holdings = Holdings(
            store,
            noise,
            self.ownership,
            self._releaser,
            self.journal,
            keeper,
            repeating,
            healed=self.healing.healed,
            metrics=self.metrics,
            key_file=key_file,
            cache=BlockCache() if cache is None else cache,
            fuse=fuse,
            heartbeat=self._heartbeat,
        )
        self._checkpoints = Checkpoints(
            store,
            self.journal,
            self._releaser,
            keeper,
            self._holdings.datasets,
            self._holdings.guarded,
            often=Often() if often is None else often,
            fuse=fuse,
            heartbeat=self._heartbeat,
        )
        self._decider = Decider(
            store,
            self._holdings,
            self.ownership,
            repeating,
            verifier=verifier,
            metrics=self.metrics,
            heartbeat=self._heartbeat,
        )
        self._backlog = Backlog()
        self._to_take_over = False
        self._looks_for_newest = False
        self._wake = asyncio.Event()
        self._lock = asyncio.Lock()
        self._cut_short: Exception | None = None
        self.metrics.watch(self)

    # ------------------------------------------------------------ how it is

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        """The data sets that are loaded, by name."""
        return self._holdings.datasets

    @property
    def stopped(self) -> Mapping[str, str]:
        """The data sets that cannot be served -> why."""
        return self._holdings.stopped

    @property
    def cut(self) -> Mapping[str, int]:
        """``topic:partition`` -> the offset up to which it was read, where its log was cut before that."""
        return self.ownership.cut | self._journal_cut

    @property
    def aside(self) -> frozenset[int]:
        """The partitions that were assigned and are not held, since their part of the journal was cut."""
        return frozenset(partition_in(place) for place in self._journal_cut)

    @property
    def deleted(self) -> Mapping[str, int]:
        """``topic:partition`` -> how many records were gone there before anyone read them."""
        return self.ownership.deleted

    @property
    def ready(self) -> bool:
        """Whether partitions are read and their data sets loaded, so that requests are answered."""
        return self.ownership.reads and not self._to_take_over and self._cut_short is None

    @property
    def unreleased(self) -> int:
        """Records handed to the releaser and not known to have left."""
        return self._releaser.unreleased

    @property
    def behind(self) -> int:
        """Records that were taken and are not finished; more are to be taken while they are few."""
        return len(self._backlog)

    @property
    def accepts(self) -> bool:
        """Whether so few records wait that another group may be taken."""
        return self._backlog.accepts

    @property
    def progress(self) -> int:
        """Grows with every group taken and released, and with every data set taken over."""
        return self._heartbeat.count

    @property
    def busy(self) -> bool:
        """Whether something is in hand: a group, a take-over, or a release."""
        takes_over = self._to_take_over or self._looks_for_newest
        return takes_over or self._lock.locked() or self.behind > 0 or self._releaser.busy

    # ------------------------------------------------------------ life

    def cut_short(self, error: Exception) -> None:
        """Begins no step any more: what is in memory, or in the store, is not to be trusted."""
        self._cut_short = self._cut_short or error

    def assigned(self, partitions: Iterable[int], generation: int = 0) -> None:
        """Holds these partitions from now on; ``run_owner`` takes over their data sets.

        Args:
            partitions: The partitions that the worker holds from now on.
            generation: The generation of the consumer group, see ``Ownership.enter``.
        """
        if generation != self.ownership.generation:
            # Nothing of another generation counts, not even what is held all along.
            self.ownership.enter(generation)
            self._let_go()
        self._journal_cut.clear()
        some_are_new = self.ownership.assigned(partitions)
        self._let_go()
        if some_are_new:
            self._to_take_over = True
            self._wake.set()

    def revoked(self, partitions: Iterable[int]) -> None:
        """Lets go of partitions at once; what is still buffered for them is left to their next owner."""
        self.ownership.revoked(partitions)
        self._let_go()

    def _let_go(self) -> None:
        self._holdings.let_go()
        self._backlog.keep(self.ownership.is_mine)

    async def pass_over(self, topic_partition: str, start: int, end: int) -> None:
        """Moves a position from ``start`` to ``end``, between which the log holds no record."""
        async with self._whole():
            if topic_partition in self._backlog.unfinished():
                return
            if self.ownership.pass_over(topic_partition, start, end):
                self._releaser.gathered.watermarks[topic_partition] = end
                await self._releaser.hand_over()

    async def put_down(self) -> None:
        """Says goodbye, unless a record has ended this worker. To be called when it takes nothing more."""
        ended_by = self._cut_short
        if ended_by is None or isinstance(ended_by, _Stopped | UnsafeStore | UnsafeTopics):
            await self.ownership.put_down()

    async def run_owner(self) -> None:
        """Takes over the data sets of partitions as they are assigned, until cancelled.

        What a former owner committed and did not release is released then. Records do not wait for it: the
        first one of a data set takes it over too.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            generation = self.ownership.generation
            for name in await self._names():
                async with self._whole():
                    if self.ownership.generation == generation and self.ownership.is_held(name):
                        if name not in self._holdings:
                            await self._take_over(generation, name)
                            await self._releaser.hand_over()
                        self._heartbeat.beat()
            self._to_take_over = self._wake.is_set()
            if not self._to_take_over:
                await self._send_newest_again()

    async def _send_newest_again(self) -> None:
        """Sends the newest record of a key again, where an older one has come behind it."""
        self._looks_for_newest = True
        try:
            for one in await self._newest.late(self.ownership.held, self.ownership.is_held):
                _log.warning(
                    "the newest record of data set %s on %s is sent again: a worker that others took for "
                    "dead has sent an older one behind it",
                    *(dataset_of(one.key), one.role),
                )
                partition = self.journal.partition_of(dataset_of(one.key))
                self._releaser.gathered.tell(partition, one)
            await self._releaser.hand_over()
        except ServerUnavailable as error:
            _log.warning(
                "whether old records came last on compacted topics was not seen: %s", error
            )
        finally:
            self._looks_for_newest = False

    async def _names(self) -> Sequence[str]:
        """The data sets of the partitions that are held, those included that only the journal knows."""
        names = set(await persistently(self._store.datasets))
        for entered in await self._entered():
            names |= {name for name, chain in entered.chains.items() if chain.seq}
            names |= entered.problems.keys()
        return sorted(names)

    async def _entered(self) -> Sequence[Entered]:
        """What the journal says of each partition that is held."""

        async def entered(partition: int) -> list[Entered]:
            try:
                return [await self.journal.entered(partition)]
            except Fenced:
                if partition in self.ownership.held:
                    raise
                return []  # revoked in the meantime
            except JournalCut as error:
                # Held no more, until the partitions are assigned again.
                _log.error("%s", error)
                self.revoked([partition])
                self._journal_cut[f"journal:{partition}"] = error.read
                return []
            except InputCut as error:
                # It was not asked where to read on, so nobody has noted it yet.
                await self.ownership.found_cut(error.topic_partition, error.read, error.end)
                raise

        found = await asyncio.gather(*map(entered, sorted(self.ownership.held)))
        return [one for some in found for one in some]

    async def positions(self, ask: AskBounds) -> dict[str, int]:
        """Returns where reading goes on, see ``Ownership.positions``. The journal may know more of it.

        Args:
            ask: Asks the broker where the logs begin and end.

        Returns:
            ``topic:partition`` -> the offset. Logs that were cut are left out, and so are partitions of which
            the journal was.

        Raises:
            GoneBack: The store has gone back since the journal was read.
        """
        generation = self.ownership.generation
        self.journal.assigned()

        async def ask_held(read: Mapping[str, int]) -> dict[str, tuple[int, int]]:
            aside = self.aside
            return {
                place: bounds
                for place, bounds in (await ask(read)).items()
                if partition_in(place) not in aside
            }

        while True:
            await self._entered()
            epochs = {at: self.journal.epoch(at) for at in self.ownership.held}
            positions = await self.ownership.positions(ask_held)
            for partition in self.ownership.held:
                if await self.journal.noted_epoch(partition) < self.journal.epoch(partition):
                    raise GoneBack(
                        "the store has gone back while this worker took its partitions over. It ends, and "
                        "the next one heals the store from the journal"
                    )
            # One that is compared with the journal again may have lacked marks when the store was asked.
            if generation != self.ownership.generation or all(
                self.journal.lost(at) or 0 < epoch == self.journal.epoch(at)
                for at, epoch in epochs.items()
                if at in self.ownership.held
            ):
                break
        self._releaser.gathered.watermarks.update(self.ownership.cut_marks)
        return positions

    async def _take_over(self, generation: int, name: str) -> None:
        await self._holdings.guarded(generation, name, self._holdings.take_over(name))

    async def run_releaser(self) -> None:
        """Sends what was committed, in order, until cancelled."""
        await self._releaser.run()

    async def drained(self) -> None:
        """Returns when everything that was committed has been released."""
        while self.busy:
            await self._releaser.joined()
            await asyncio.sleep(0.001)

    @contextlib.asynccontextmanager
    async def _whole(self) -> AsyncIterator[None]:
        """Allows one step at a time. After a step that was cut short, the state in memory is worth nothing.

        Raises:
            Exception: The error that cut an earlier step short. Only a new worker may go on, from the store.
        """
        async with self._lock:
            if self._cut_short is not None:
                raise self._cut_short
            try:
                yield
            except Exception as error:
                self._cut_short = error
                raise
            except BaseException:
                self._cut_short = _Stopped("this worker was stopped; start another one")
                raise

    # ------------------------------------------------------------ a group

    async def process(self, records: Sequence[Record]) -> None:
        """Takes a group of records through to its commits and queues its releases."""
        await self.take(records)
        while self.behind:
            await self.take(())

    async def take(self, records: Sequence[Record]) -> None:
        """Takes a group of records, and does one step of each data set that has something to do.

        What a step does of a data set is bounded, so that no data set keeps the others waiting for longer.
        What is left over waits for the next call.
        """
        async with self._whole():
            fresh = [record for record in records if self.ownership.is_fresh(record)]
            self._fuse(CrashPoint.AFTER_FETCH)
            for record in fresh:
                if await self._is_suspicious(record):
                    await self._finish()
                    await self._take_carefully(record)
                else:
                    self._enqueue(record, self._decode(record))
            await self._step()

    def _enqueue(self, record: Record, request: Request | None, *, suspect: bool = False) -> None:
        if not self.ownership.is_mine(record):
            return  # revoked in the meantime; its next owner reads it again
        self._backlog.add(Piece(record, request, suspect=suspect))
        self.ownership.taken(record)

    async def _finish(self) -> None:
        """Does all that waits."""
        while self.behind:
            await self._step()

    async def _step(self) -> None:
        """One step of each data set that has something to do, in the order of its records."""
        if self.behind:
            generation, due = self.ownership.generation, self._backlog.due()
            await self._take(due)
            await self._checkpoints.after(generation, (piece.dataset for piece in due))
        self._heartbeat.beat()
        await self._releaser.hand_over()

    async def _is_suspicious(self, record: Record) -> bool:
        """Returns whether the last worker may have died at this record. Called once for each record."""
        if not self.ownership.in_doubt(record):
            return False
        name = (record.key or b"").decode(errors="replace")
        if name not in self._holdings and re.fullmatch(DATASET_PATTERN, name):
            await self._holdings.look_up(self.ownership.generation, [name])
            self._holdings.forget_undefined(name)
        dataset = self.datasets.get(name)
        if dataset is not None and record.offset < dataset.cursor.get(record.topic_partition, 0):
            return False  # its outcome was committed
        self.ownership.doubted(record)
        return True

    async def _take_carefully(self, record: Record) -> None:
        """Takes one of the first records after a worker has died, which may be the one that killed it.

        Attempts are counted in the store beforehand, since a process that dies counts nothing. After too
        many the record is rejected unread if it cannot even be decoded, and else its data set is
        quarantined: other data sets go on.
        """
        record_id = record.record_id
        count = partial(self._store.attempts, record_id)
        count_decoding = partial(self._store.attempts, f"decode {record_id}")
        suspect = await persistently(count) > MOST_ATTEMPTS
        try:
            if suspect and await persistently(count_decoding) > 1:
                _log.error("record %s is rejected unread: the worker died of it", record_id)
                self._reject(record, _UNREADABLE)
                self._enqueue(record, None)
            else:
                request = self._decode(record)
                if suspect:
                    await persistently(partial(self._store.clear_attempts, f"decode {record_id}"))
                self._enqueue(record, request, suspect=suspect)
            await self._finish()
        except (asyncio.CancelledError, StoreUnavailable, StoreRefused, Fenced):
            # Not the record's fault.
            with contextlib.suppress(StoreError):
                await self._store.clear_attempts(record_id)
            raise
        await persistently(partial(self._store.clear_attempts, record_id))

    async def _take(self, due: Sequence[Piece]) -> None:
        """Decides pieces of records and commits them, those of one data set in the order of their log."""
        self._fuse(CrashPoint.AFTER_DECODE)
        generation, is_mine = self.ownership.generation, self.ownership.is_mine
        # A rebalance may take the partition away at any step; its next owner reads these records again.
        names = dict.fromkeys(piece.dataset for piece in due if is_mine(piece.record))
        wanted = [
            piece.dataset
            for piece in due
            if piece.dataset
            and piece.dataset not in self._holdings
            and is_mine(piece.record)
            and await self._decider.is_admitted(piece)
        ]
        if wanted:
            await self._holdings.look_up(generation, [*dict.fromkeys(wanted)])
        steps = step_of((piece for piece in due if is_mine(piece.record)), self._decider.values_of)
        known = await self._decider.known([request for _, request in steps if request is not None])
        of_none: list[tuple[Piece, Request]] = []
        by_name: dict[str, list[tuple[Piece, Request]]] = {}
        for piece, request in steps:
            if request is None:
                piece.finished = True
            elif piece.dataset in self.datasets:
                by_name.setdefault(piece.dataset, []).append((piece, request))
            else:
                of_none.append((piece, request))
        # While the charge of one data set is on its way to the journal, the others go on.
        await together(
            [partial(self._decide, generation, some, known) for some in by_name.values()],
            at_once=_AT_ONCE,
        )
        await self._decide_undefined(generation, of_none, known)
        await self._commit(generation, names)
        await self._reject_unknown()
        for name in names:
            if not self._backlog.drop_finished(name):
                self._holdings.forget_undefined(name)
        unfinished = self._backlog.unfinished()
        for topic_partition in {piece.record.topic_partition for piece in due}:
            taken = self.ownership.next_offset(topic_partition)
            if taken is not None:
                done = unfinished.get(topic_partition, taken)
                self._releaser.gathered.watermarks[topic_partition] = done

    async def _decide(
        self, generation: int, steps: Sequence[tuple[Piece, Request]], known: Known
    ) -> None:
        """Decides pieces of one data set, up to the first one that is not finished with that."""
        for piece, request in steps:
            if not self.ownership.is_mine(piece.record):
                continue
            await self._decide_one(generation, piece, request, known)
            if not piece.finished:
                return

    async def _decide_undefined(
        self, generation: int, steps: Iterable[tuple[Piece, Request]], known: Known
    ) -> None:
        """Decides pieces of names without a data set, in the order in which they came.

        Their rejections are noted as one mark over each log, and nothing below that mark may be undecided. So
        a piece waits for those below it, and those of its name that came later wait for it.
        """
        in_order = sorted(steps, key=lambda step: step[0].arrival)
        undecided = self._backlog.unfinished({piece.arrival for piece, _ in in_order})
        waiting: set[str] = set()
        for piece, request in in_order:
            record, name = piece.record, piece.dataset
            if not self.ownership.is_mine(record):
                continue
            first = undecided.get(record.topic_partition, record.offset)
            if name not in waiting and (name in self.datasets or first >= record.offset):
                await self._decide_one(generation, piece, request, known)
            if not piece.finished:
                waiting.add(name)
                undecided[record.topic_partition] = min(first, record.offset)

    async def _decide_one(
        self, generation: int, piece: Piece, request: Request, known: Known
    ) -> None:
        decision = self._decider.handle(piece, request, known)
        await self._holdings.guarded(generation, piece.dataset, decision)
        # One that was revoked is left to its next owner, with all that is to leave for it.
        if (dataset := self.datasets.get(piece.dataset)) is not None:
            self._releaser.gathered.append(dataset.collect())

    async def _commit(self, generation: int, names: Iterable[str]) -> None:
        """Commits what is drafted for these data sets, in one round trip."""
        dirty = [
            dataset
            for dataset in map(self.datasets.get, names)
            if dataset is not None and dataset.dirty
        ]
        if not dirty:
            return
        refused = await commit(self._store, dirty)
        for dataset, error in zip(dirty, refused, strict=True):
            if error is None:
                # It has the journal take what is to be collected, if it erases anything.
                await self._holdings.guarded(generation, dataset.name, dataset.drop_kept())
            self._releaser.gathered.append(dataset.collect())
            if error is not None:
                self._holdings.lost(generation, dataset.name, error)

    async def _reject_unknown(self) -> None:
        """Notes, before they leave, which records are rejected for want of a data set."""
        unknown, self._decider.unknown = self._decider.unknown, []
        marks: dict[str, int] = {}
        for record, outgoing in unknown:
            if self.ownership.is_mine(record):
                self._releaser.gathered.tell(record.partition, outgoing)
                marks[REJECTED + record.topic_partition] = record.offset + 1
        if marks:
            await persistently(partial(self._store.mark, watermarks=marks))
            self._releaser.gathered.watermarks.update(marks)

    def _decode(self, record: Record) -> Request | None:
        self.metrics.record(record)
        try:
            return decode(record, self.ownership.partitions)
        except InvalidInput as error:
            self._reject(record, error)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - anyone who finds such a record must not stop the rest
            # Reading depends on nothing but the record, and has changed nothing yet. No word of the error: it
            # may quote a row.
            _log.error(
                "a record of %s cannot be read: %s", record.topic_partition, type(error).__name__
            )
            self._reject(record, _UNREADABLE)
        return None

    def _reject(self, record: Record, error: InvalidInput) -> None:
        """Rejects a record that belongs to no data set; it is read, and rejected, again after a crash."""
        self._releaser.gathered.tell(record.partition, self._decider.rejection(record, error))


class _Stopped(RuntimeError):
    """A step was cut short from outside."""


_UNREADABLE = InvalidMessage(
    "value", "the worker fails when it reads this", "send it in another form", reason="unreadable"
)
