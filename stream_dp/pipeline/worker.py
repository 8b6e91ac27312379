"""Groups of records in, commits, then releases. Knows no Faust: the app hands it records and a sender.

A group is decoded, looked up in one round trip a data set, decided in log order, committed once a data set
(and once more for each paid look), and handed to the releaser, which sends while the next group is decided.
Progress is in the store alone: each commit moves its data set's cursor, and a topic's watermark follows when
everything below it is committed and released.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import secrets
from collections import Counter, deque
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Mapping,
    Sequence,
)
from dataclasses import dataclass, field, replace
from functools import partial
from time import time

from stream_dp.core.noise import NoiseSource
from stream_dp.errors import (
    CorruptState,
    Fenced,
    InvalidInput,
    InvalidMessage,
    LedgerBroken,
    RolledBack,
    ServerUnavailable,
    StoreError,
    StoreRefused,
    StoreUnavailable,
    StreamDPError,
    UnsafeStore,
)
from stream_dp.messages import DATASET_PATTERN, Batch, QueryFields, Reason, Rejected
from stream_dp.pipeline import answering, ingesting
from stream_dp.pipeline.dataset import Dataset, ledger_length
from stream_dp.pipeline.decoding import (
    Ask,
    BadQuery,
    Define,
    Ingest,
    Request,
    Retire,
    decode,
    partition_of,
)
from stream_dp.pipeline.fuse import CrashPoint, Fuse, unarmed
from stream_dp.pipeline.health import Contact
from stream_dp.pipeline.metrics import Metrics
from stream_dp.pipeline.records import Outgoing, Record, plain
from stream_dp.pipeline.retrying import persistently
from stream_dp.state import ledger
from stream_dp.state.codec import Record as StoredRecord
from stream_dp.state.codec import outbox_from_bytes
from stream_dp.state.store import Snapshot, Store

__all__ = ["GROUP_SIZE", "MOST_ATTEMPTS", "MOST_VALUES", "Send", "Worker", "lost_records"]

_log = logging.getLogger(__name__)

Send = Callable[[Outgoing], Awaitable[Awaitable[object]]]
"""Hands a record to the producer; what it returns is done when the broker has the record."""

GROUP_SIZE = 128
"""Most records that a worker is given at once; a worker that died had no more in hand of any partition."""

MOST_ATTEMPTS = 3
"""How often a record may end a worker that takes it alone before its data set is quarantined.

It is taken alone after it has ended one that took it among others.
"""

MOST_VALUES = 2**18
"""Values that the answers to the queries of one record may have; the others are rejected."""

_STEP_QUERIES = 512
_STEP_VALUES = 2**16
_STEP_LOOKS = 64
_MOST_IN_HAND = 2 * GROUP_SIZE
_IN_FLIGHT = 4
_RELEASED_AT_ONCE = 16
_RETRY_S = 0.5
_STORE_SILENT_S = 3.0
_LEDGER_PAGE = 2_000
_NEVER = 2**63

# Beside the watermarks: below it, a record that no data set has passed was rejected for want of one.
_REJECTED = "rejected "


@dataclass
class _Work:
    """What leaves after the commits of one group."""

    outgoing: list[Outgoing] = field(default_factory=list)
    released: dict[str, tuple[int, int]] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)

    def append(self, later: _Work) -> None:
        """Adds what leaves after this."""
        self.outgoing += later.outgoing
        self.released.update(later.released)
        self.watermarks.update(later.watermarks)


@dataclass
class _Piece:
    """What is left to do of a record: all of it, or the queries that no step has come to yet.

    Attributes:
        values: Values of the answers to the record's queries so far.
        suspect: Whether workers have died of the record again and again.
    """

    record: Record
    request: Request | None
    values: int = 0
    suspect: bool = False
    finished: bool = False

    @property
    def dataset(self) -> str:
        """The data set it is about; "" where it is about none."""
        return "" if self.request is None else self.request.dataset


@dataclass
class _Doubt:
    """Where the record may be at which a worker died.

    Attributes:
        end: Offset behind the last record there was; what came later was in nobody's hand.
        left: Records that may still be it.
    """

    end: int
    left: int = _MOST_IN_HAND


class Worker:
    """Everything between the records of the assigned partitions and what is released for them.

    Args:
        partitions: Partitions of each input topic, all alike; the store remembers the count.

    Attributes:
        deleted: ``topic:partition`` -> how many records were gone there before anyone read them.
    """

    def __init__(
        self,
        store: Store,
        noise: NoiseSource,
        send: Send,
        *,
        partitions: int,
        metrics: Metrics | None = None,
        fuse: Fuse = unarmed,
    ) -> None:
        self._store = store
        self._noise = noise
        self._send = send
        self._partitions = partitions
        self._metrics = metrics or Metrics()
        self._fuse = fuse
        self._datasets: dict[str, Dataset] = {}
        self._next: dict[str, int] = {}
        self._doubts: dict[str, _Doubt] = {}
        self._name = secrets.token_hex(8)
        self._rejected_below: dict[str, int] = {}
        self._unknown: list[tuple[Record, Outgoing]] = []
        self._waiting: dict[str, deque[_Piece]] = {}
        self._held: frozenset[int] = frozenset()
        self._generation = 0
        self._to_take_over = False
        self._wake = asyncio.Event()
        self._lock = asyncio.Lock()
        self._cut_short: Exception | None = None
        self._store_problems: tuple[str, ...] | None = None
        self._store_contact = Contact()
        self._releasing = False
        self._progress = 0
        self._work = _Work()
        self._queue: asyncio.Queue[_Work] = asyncio.Queue(_IN_FLIGHT)
        self._unreleased = 0
        self.deleted: dict[str, int] = {}
        self._metrics.watch(self)

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        return self._datasets

    @property
    def ready(self) -> bool:
        """Whether partitions are read and their data sets loaded, so that requests are answered."""
        return bool(self._next) and not self._to_take_over and self._cut_short is None

    @property
    def held(self) -> frozenset[int]:
        """The partitions that are this worker's."""
        return self._held

    @property
    def store_problems(self) -> tuple[str, ...] | None:
        """Why an acknowledged commit could be forgotten, as of the last look; None before the first."""
        return self._store_problems

    @property
    def store_away_since(self) -> float | None:
        """When the store answered last, in seconds since 1970; None while it answers."""
        return self._store_contact.away_since

    # ------------------------------------------------------------ life

    async def check_store(self) -> None:
        """Raises UnsafeStore when an acknowledged commit could be forgotten, and begins no step any more."""
        problems = self._store_problems = await persistently(self._look_at_store)
        self._metrics.store_safe(safe=not problems)
        if problems:
            error = UnsafeStore(problems)
            self.cut_short(error)
            raise error

    def cut_short(self, error: Exception) -> None:
        """Begins no step any more: what is in memory, or in the store, is not to be trusted."""
        self._cut_short = self._cut_short or error

    async def _look_at_store(self) -> tuple[str, ...]:
        # One that hangs is no error: it may answer yet.
        silence = asyncio.get_running_loop().call_later(_STORE_SILENT_S, self._store_contact.lost)
        try:
            problems = await self._store.problems()
        except StoreUnavailable:
            self._store_contact.lost()
            raise
        finally:
            silence.cancel()
        self._store_contact.heard()
        return problems

    def assigned(self, partitions: Iterable[int], generation: int = 0) -> None:
        """Holds these partitions from now on; ``run_owner`` takes over their data sets.

        Args:
            generation: Of the consumer group. Records of another one are dropped from now on: they were
                fetched before, wait in some buffer, and are read again; taken now, they would be taken
                before those that come earlier in the log.
        """
        if generation != self._generation:
            self._let_go(frozenset())
            self._generation = generation
        held = frozenset(partitions)
        new = held - self._held
        self._let_go(held)
        if new:
            self._to_take_over = True
            self._wake.set()

    def revoked(self, partitions: Iterable[int]) -> None:
        """Lets go of partitions at once; what is still buffered for them is left to their next owner."""
        self._let_go(self._held - frozenset(partitions))

    def _let_go(self, held: frozenset[int]) -> None:
        self._held = held
        for by_place in (self._next, self._doubts):
            for place in [place for place in by_place if _partition_in(place) not in held]:
                del by_place[place]
        for name in [name for name in self._datasets if self._partition(name) not in held]:
            del self._datasets[name]
        # What waits is read again by the next owner, and by us if it is us.
        for name, pieces in list(self._waiting.items()):
            mine = deque(piece for piece in pieces if self._is_mine(piece.record))
            if mine:
                self._waiting[name] = mine
            else:
                del self._waiting[name]

    def _partition(self, name: str) -> int:
        return partition_of(name.encode(), self._partitions)

    async def positions(self, ranges: Mapping[str, tuple[int, int]]) -> dict[str, int]:
        """Where reading goes on; from now on the store knows who holds the partitions.

        Args:
            ranges: ``topic:partition`` -> first offset that the broker has, and the one behind the last.

        Raises:
            ServerUnavailable: The log is not the one that was read so far.
        """
        stored = await persistently(self._store.watermarks)
        self._rejected_below = {
            place.removeprefix(_REJECTED): offset
            for place, offset in stored.items()
            if place.startswith(_REJECTED)
        }
        positions = {}
        for place, (first, end) in ranges.items():
            position = max(stored.get(place, first), self._next.get(place, 0))
            if position < first:
                raise ServerUnavailable(
                    f"{place} was read to offset {position} and begins at {first}: records were deleted "
                    "before they were read. Restore them, or start afresh under another topic prefix, and "
                    "raise retention.ms"
                )
            if position > end:
                raise lost_records(place, position, end)
            known = place in stored or place in self._next or place in self.deleted
            if first and not known:
                self.report_deleted(place, 0, first)
            positions[place] = position
        # Who died said no goodbye, and the next one must find out at which record.
        inherited = await persistently(partial(self._store.hold, self._name, self._held))
        for place, (_, end) in ranges.items():
            if _partition_in(place) in inherited:
                self._doubts.setdefault(place, _Doubt(end))
        return positions

    def report_deleted(self, place: str, first: int, end: int) -> None:
        """Says that the records from offset ``first`` to below ``end`` were gone before anyone read them."""
        _log.warning(
            "records %d to %d of %s were deleted before anyone read them, and can never count: see "
            "`stream-dp doctor` for its retention",
            *(first, end - 1, place),
        )
        self.deleted[place] = self.deleted.get(place, 0) + end - first

    async def put_down(self) -> None:
        """Says goodbye, unless a record has ended this worker. To be called when it takes nothing more."""
        if isinstance(self._cut_short, _Stopped | UnsafeStore | RolledBack | None):
            in_doubt = {
                _partition_in(place)
                for place, doubt in self._doubts.items()
                if doubt.left and self._next.get(place, 0) < doubt.end
            }
            with contextlib.suppress(StoreError):
                await self._store.hold(self._name, in_doubt)

    def reading_from(self, positions: Mapping[str, int], generation: int = 0) -> None:
        """Tells that the broker's reading position is set; records of other places are dropped."""
        if generation == self._generation:
            for place, offset in positions.items():
                if _partition_in(place) in self._held:
                    self._next.setdefault(place, offset)

    async def pass_over(self, place: str, start: int, end: int) -> None:
        """Moves a position from ``start`` to ``end``, between which the log holds no record."""
        async with self._whole():
            if self._next.get(place) == start and place not in self._unfinished():
                self._next[place] = self._work.watermarks[place] = end
                await self._hand_over()

    def next_offset(self, place: str) -> int | None:
        """The offset behind the last record taken; None for a place that is not read."""
        return self._next.get(place)

    @property
    def unreleased(self) -> int:
        """Records handed to the releaser and not known to have left."""
        return self._unreleased

    @property
    def progress(self) -> int:
        """Grows with every group taken and released, and with every data set taken over."""
        return self._progress

    @property
    def busy(self) -> bool:
        """Whether something is in hand: a group, a take-over, or a release."""
        return (
            self._to_take_over
            or self._lock.locked()
            or self.behind > 0
            or self._releasing
            or not self._queue.empty()
        )

    async def run_owner(self) -> None:
        """Takes over the data sets of partitions as they are assigned, until cancelled.

        What a former owner committed and did not release is released then. Records do not wait for it: the
        first one of a data set takes it over too.
        """
        while True:
            await self._wake.wait()
            self._wake.clear()
            generation = self._generation
            for name in await persistently(self._store.datasets):
                async with self._whole():
                    if self._generation == generation and self._partition(name) in self._held:
                        if name not in self._datasets:
                            await self._guarded(generation, name, self._take_over(name))
                            await self._hand_over()
                        self._progress += 1
            self._to_take_over = self._wake.is_set()

    async def run_releaser(self) -> None:
        """Sends what was committed, in order, until cancelled.

        All that waits leaves together: while groups are small, the broker and the disk are what takes time.
        """
        while True:
            work = await self._queue.get()
            self._releasing = True
            groups = 1
            while not self._queue.empty():
                work.append(self._queue.get_nowait())
                groups += 1
            try:
                await self._release(work)
            finally:
                self._releasing = False
                self._progress += 1
                for _ in range(groups):
                    self._queue.task_done()

    async def drained(self) -> None:
        """Returns when everything that was committed has been released."""
        while self.busy:
            await self._queue.join()
            await asyncio.sleep(0.001)

    @contextlib.asynccontextmanager
    async def _whole(self) -> AsyncIterator[None]:
        """One step at a time; after one that was cut short what is in memory is worth nothing.

        Raises:
            Exception: What cut an earlier step short. Only a new worker may go on, from the store.
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

    @property
    def behind(self) -> int:
        """Records that were taken and are not finished; more are to be taken while they are few."""
        return sum(map(len, self._waiting.values()))

    @property
    def accepts(self) -> bool:
        """Whether so few records wait that another group may be taken."""
        return self.behind <= _MOST_IN_HAND - GROUP_SIZE

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
            fresh = [record for record in records if self._is_fresh(record)]
            self._fuse(CrashPoint.AFTER_FETCH)
            for record in fresh:
                if await self._is_suspicious(record):
                    await self._finish()
                    await self._take_carefully(record)
                else:
                    self._enqueue(record, self._decode(record))
            await self._step()

    def _enqueue(self, record: Record, request: Request | None, *, suspect: bool = False) -> None:
        if not self._is_mine(record):
            return  # revoked meanwhile; its next owner reads it again
        piece = _Piece(record, request, suspect=suspect)
        self._waiting.setdefault(piece.dataset, deque()).append(piece)
        self._next[record.place] = record.offset + 1

    async def _finish(self) -> None:
        """Does all that waits."""
        while self._waiting:
            await self._step()

    async def _step(self) -> None:
        """One step of each data set that has something to do, in the order of its records."""
        if self._waiting:
            await self._take(self._due())
        self._progress += 1
        await self._hand_over()

    def _due(self) -> list[_Piece]:
        """The next records of each data set, as many as one step may come to."""
        due: list[_Piece] = []
        for pieces in self._waiting.values():
            queries = 0
            for piece in pieces:
                due.append(piece)
                queries += len(piece.request.queries) if isinstance(piece.request, Ask) else 1
                if queries >= _STEP_QUERIES:
                    break
        return due

    def _unfinished(self) -> dict[str, int]:
        """The first offset of each place that is taken and not finished."""
        found: dict[str, int] = {}
        for pieces in self._waiting.values():
            for piece in pieces:
                at = piece.record.place
                found[at] = min(piece.record.offset, found.get(at, _NEVER))
        return found

    def _is_fresh(self, record: Record) -> bool:
        return self._is_mine(record) and record.offset >= self._next.get(record.place, _NEVER)

    def _is_mine(self, record: Record) -> bool:
        """Whether the record's partition is held, and was all along since the record was fetched."""
        return record.generation == self._generation and record.partition in self._held

    async def _is_suspicious(self, record: Record) -> bool:
        """Whether the last worker may have died at this record. Asked once of each."""
        doubt = self._doubts.get(record.place)
        if doubt is None or doubt.left == 0 or record.offset >= doubt.end:
            return False
        name = (record.key or b"").decode(errors="replace")
        if name not in self._datasets and re.fullmatch(DATASET_PATTERN, name):
            await self._guarded(self._generation, name, self._take_over(name))
        dataset = self._datasets.get(name)
        self._drop_if_undefined(name)
        if dataset is not None and record.offset < dataset.cursor.get(record.place, 0):
            return False  # its outcome was committed
        doubt.left -= 1
        return True

    async def _take_carefully(self, record: Record) -> None:
        """Takes one of the first records after a worker has died, which may be the one that killed it.

        Attempts are counted in the store beforehand, since a process that dies counts nothing. After too
        many the record is rejected unread if it cannot even be decoded, and else its data set is
        quarantined: other data sets go on.
        """
        place = f"{record.place}:{record.offset}"
        count = partial(self._store.attempts, place)
        suspect = await persistently(count) > MOST_ATTEMPTS
        try:
            if suspect and await persistently(partial(self._store.attempts, f"decode {place}")) > 1:
                _log.error("record %s is rejected unread: the worker died of it", place)
                self._reject(record, _UNREADABLE)
                self._enqueue(record, None)
            else:
                request = self._decode(record)
                if suspect:
                    await persistently(partial(self._store.clear_attempts, f"decode {place}"))
                self._enqueue(record, request, suspect=suspect)
            await self._finish()
        except (asyncio.CancelledError, StoreUnavailable, StoreRefused, Fenced):
            # Not the record's fault.
            with contextlib.suppress(StoreError):
                await self._store.clear_attempts(place)
            raise
        await persistently(partial(self._store.clear_attempts, place))

    async def _take(self, due: Sequence[_Piece]) -> None:
        """Decides pieces of records and commits them, those of one data set in the order of their log."""
        self._fuse(CrashPoint.AFTER_DECODE)
        generation = self._generation
        # A rebalance may take the partition away at any step; its next owner reads these records again.
        names = dict.fromkeys(piece.dataset for piece in due if self._is_mine(piece.record))
        for name in names:
            if name and name not in self._datasets:
                await self._guarded(generation, name, self._take_over(name))
        steps = self._steps([piece for piece in due if self._is_mine(piece.record)])
        known = await self._known([request for _, request in steps if request is not None])
        unfinished, stopped = self._unfinished(), set()
        for piece, request in steps:
            record, name = piece.record, piece.dataset
            if name in stopped or not self._is_mine(record):
                continue
            if request is None:
                piece.finished = True
            elif self._must_wait(record, name, unfinished):
                stopped.add(name)
            else:
                step = self._handle(record, piece, request, known, suspect=piece.suspect)
                await self._guarded(generation, name, step)
                if not piece.finished:
                    stopped.add(name)
        await self._flush(generation, names)
        await self._reject_unknown()
        for name in names:
            left = deque(piece for piece in self._waiting.pop(name, ()) if not piece.finished)
            if left:
                self._waiting[name] = left
            self._drop_if_undefined(name)
        unfinished = self._unfinished()
        for place in {piece.record.place for piece in due}:
            if place in self._next:
                self._work.watermarks[place] = unfinished.get(place, self._next[place])

    def _must_wait(self, record: Record, name: str, unfinished: Mapping[str, int]) -> bool:
        """Whether a record of no data set must wait for those below it.

        That it was rejected is noted as a mark over its log, and below that mark nothing may be undecided.
        """
        is_unknown = self._datasets[name].definition is None
        return is_unknown and unfinished.get(record.place, _NEVER) < record.offset

    def _steps(self, pieces: Iterable[_Piece]) -> list[tuple[_Piece, Request | None]]:
        """The part of each piece that one step does: so many queries and values for each data set."""
        steps: list[tuple[_Piece, Request | None]] = []
        queries: Counter[str] = Counter()
        values: Counter[str] = Counter()
        full: set[str] = set()
        for piece in pieces:
            name, request = piece.dataset, piece.request
            if name in full:
                continue
            if isinstance(request, Ask):
                part, total = 0, piece.values
                for query in request.queries:
                    size = self._values(name, query)
                    total += size
                    # What passes the bound of a record is rejected, which takes no room.
                    wanted = size if total <= MOST_VALUES else 0
                    has_room = (
                        queries[name] < _STEP_QUERIES and values[name] + wanted <= _STEP_VALUES
                    )
                    if queries[name] and not has_room:
                        full.add(name)
                        break
                    queries[name] += 1
                    values[name] += wanted
                    part += 1
                if part == 0:
                    continue
                request = replace(request, queries=request.queries[:part])
            steps.append((piece, request))
        return steps

    def _values(self, name: str, query: QueryFields | BadQuery) -> int:
        """Values of the answer to a query, at the most."""
        dataset = self._datasets.get(name)
        if dataset is None or dataset.definition is None or isinstance(query, BadQuery):
            return 1
        return answering.values_of(dataset, query)

    async def _flush(self, generation: int, names: Iterable[str]) -> None:
        """Commits what is drafted for these data sets, in one round trip."""
        dirty = [
            dataset
            for dataset in map(self._datasets.get, names)
            if dataset is not None and dataset.dirty
        ]
        if not dirty:
            return
        commits = [dataset.prepare() for dataset in dirty]
        refused = await persistently(partial(self._store.commit_all, commits))
        for dataset, error in zip(dirty, refused, strict=True):
            if error is None:
                dataset.committed()
            else:
                self._lost(generation, dataset.name, error)

    async def _reject_unknown(self) -> None:
        """Notes, before they leave, which records are rejected for want of a data set."""
        unknown, self._unknown = self._unknown, []
        marks: dict[str, int] = {}
        for record, outgoing in unknown:
            if self._is_mine(record):
                self._work.outgoing.append(outgoing)
                marks[_REJECTED + record.place] = record.offset + 1
        if marks:
            await persistently(partial(self._store.mark, watermarks=marks))

    def _drop_if_undefined(self, name: str) -> None:
        """Names that nobody defined are forgotten: there is no end of them."""
        if name in self._datasets and self._datasets[name].definition is None:
            del self._datasets[name]

    def _decode(self, record: Record) -> Request | None:
        self._metrics.record(record.role)
        try:
            return decode(record, self._partitions)
        except InvalidInput as error:
            self._reject(record, error)
        except MemoryError:
            raise
        except Exception as error:  # noqa: BLE001 - whoever finds such a record must not stop the rest
            # Reading depends on nothing but the record, and has changed nothing yet. No word of the error: it
            # may quote a row.
            _log.error("a record of %s cannot be read: %s", record.place, type(error).__name__)
            self._reject(record, _UNREADABLE)
        return None

    def _reject(self, record: Record, error: InvalidInput) -> None:
        """Rejects a record that belongs to no data set; it is read, and rejected, again after a crash."""
        self._work.outgoing.append(self._rejection(record, error))

    async def _known(self, requests: Sequence[Request]) -> dict[tuple[str, str], bytes]:
        """Stored answers and batch outcomes of the ids in this group."""
        answers: dict[str, list[str]] = {}
        batches: dict[str, list[str]] = {}
        for request in requests:
            if isinstance(request, Ask):
                answers.setdefault(request.dataset, []).extend(
                    answering.answer_name(request.analyst, query.query_id)
                    for query in request.queries
                    if isinstance(query, QueryFields)
                )
            elif isinstance(request, Ingest):
                batches.setdefault(request.dataset, []).append(request.batch.batch_id)
        known: dict[tuple[str, str], bytes] = {}
        for look_up, ids in ((self._store.answers, answers), (self._store.batches, batches)):
            if ids:
                known |= await persistently(partial(look_up, ids))
        return known

    async def _handle(
        self,
        record: Record,
        piece: _Piece,
        request: Request,
        known: dict[tuple[str, str], bytes],
        *,
        suspect: bool,
    ) -> None:
        """Does one step of a record; ``piece`` is what is left of it then."""
        dataset = self._datasets[request.dataset]
        piece.finished = True
        if record.offset < dataset.cursor.get(record.place, 0):
            return
        dataset.dated_ms = record.timestamp_ms
        dataset.begins(f"{record.place}:{record.offset}")
        try:
            if suspect:
                self._quarantine(dataset, record)
            if isinstance(request, Define):
                await self._define(dataset, request)
            elif self._is_unknown(dataset, record, request):
                raise InvalidMessage(
                    "dataset",
                    f"no data set {request.dataset!r} is defined",
                    "define it, wait for the event dataset_accepted, and send again",
                    reason="unknown_dataset",
                )
            elif isinstance(request, Retire):
                self._retire(dataset)
            elif isinstance(request, Ingest):
                await self._ingest(dataset, request, known)
            else:
                await self._ask(dataset, piece, request, known)
        except InvalidInput as error:
            if dataset.definition is None:
                self._unknown.append((record, self._rejection(record, error, request.dataset)))
            else:
                dataset.release(self._rejection(record, error, request.dataset))
        if dataset.definition is not None:
            if piece.finished:
                dataset.passed(record.place, record.offset + 1)
            if dataset.large:
                await dataset.flush()

    def _is_unknown(self, dataset: Dataset, record: Record, request: Request) -> bool:
        """Whether a record is about no data set, or was when it was taken before a crash.

        Topics have no mutual order: on the second reading the definition may come first. A record that may
        have been rejected already stays rejected.
        """
        if dataset.definition is None:
            return True
        below = self._rejected_below.get(record.place, 0)
        return record.offset < below and isinstance(request, Ingest | Ask)

    def _quarantine(self, dataset: Dataset, record: Record) -> None:
        place = f"{record.place}:{record.offset}"
        if dataset.definition is None:
            raise InvalidMessage(
                "dataset", "the worker died of this definition", "define it otherwise"
            )
        if not dataset.quarantined:
            _log.error("data set %s is quarantined at %s", dataset.name, place)
            dataset.quarantine(place)

    async def _define(self, dataset: Dataset, request: Define) -> None:
        if dataset.definition is None:
            dataset.define(request.definition)
            # Only now has the store anything of this name: of names that nobody defines there is no end.
            snapshot = await persistently(partial(self._store.acquire, dataset.name, new=True))
            if snapshot.definition is not None:
                raise Fenced(f"{dataset.name}: another worker has taken over and defined it")
            dataset.token = snapshot.token
        elif dataset.retired:
            raise InvalidMessage(
                "dataset", "this name was retired for ever", "choose another name", reason="retired"
            )
        elif request.definition == dataset.definition:
            dataset.accepted()
        else:
            raise InvalidMessage(
                "dataset",
                "a data set of this name exists with another definition, and definitions never change",
                "choose another name",
                reason="dataset_exists",
            )

    def _retire(self, dataset: Dataset) -> None:
        if dataset.retired:
            dataset.gone()
        else:
            dataset.retire()

    async def _ingest(
        self, dataset: Dataset, request: Ingest, known: dict[tuple[str, str], bytes]
    ) -> None:
        batch_id = request.batch.batch_id
        name = (dataset.name, batch_id)
        if name in known:
            ingesting.resend(dataset, known[name])
        else:
            _refuse_in_quarantine(dataset)
            _refuse_out_of_order(dataset, request.batch)
            known[name] = await ingesting.ingest(dataset, request.batch)
            self._metrics.batch(dataset.name)

    async def _ask(
        self, dataset: Dataset, piece: _Piece, request: Ask, known: dict[tuple[str, str], bytes]
    ) -> None:
        """Answers the queries of one step, or as many as lead to so many looks."""
        assert isinstance(piece.request, Ask), "the step is a part of it"
        record, looks, done = piece.record, dataset.looks, 0
        for query in request.queries:
            if dataset.looks - looks >= _STEP_LOOKS:
                break
            done += 1
            self._progress += 1
            try:
                piece.values += (values := self._values(dataset.name, query))
                if piece.values > max(values, MOST_VALUES):
                    raise _TOO_MUCH_WORK
                await self._ask_one(dataset, request.analyst, query, known, record.timestamp_ms)
            except InvalidMessage as error:
                dataset.release(
                    self._rejection(record, error, dataset.name, request.analyst, query.query_id)
                )
            if dataset.large:
                await dataset.flush()
        left = piece.request.queries[done:]
        piece.request = replace(request, queries=left)
        piece.finished = not left

    async def _ask_one(
        self,
        dataset: Dataset,
        analyst: str,
        query: QueryFields | BadQuery,
        known: dict[tuple[str, str], bytes],
        asked_ms: int,
    ) -> None:
        if isinstance(query, BadQuery):
            raise query.error
        name = (dataset.name, answering.answer_name(analyst, query.query_id))
        if name not in known:
            _refuse_in_quarantine(dataset)
            reply, stored = await answering.answer(dataset, analyst, query, asked_ms=asked_ms)
            if stored is not None:
                known[name] = stored
            self._metrics.answer(reply)
        elif not answering.resend(dataset, analyst, query, known[name]):
            raise InvalidMessage(
                "query_id",
                "this id was used for another query",
                "ask under a new id",
                reason="id_reused",
            )

    def _rejection(
        self,
        record: Record,
        error: InvalidInput,
        dataset: str | None = None,
        analyst: str | None = None,
        query_id: str | None = None,
    ) -> Outgoing:
        rejected = Rejected(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            dataset=dataset,
            analyst=analyst,
            query_id=query_id,
            reason=Reason(code=error.reason, message=plain(str(error))),
        )
        self._metrics.rejected(error.reason)
        key = dataset or f"{record.topic}:{record.partition}"
        return Outgoing("rejected", key, rejected.to_bytes(), dated_ms=record.timestamp_ms)

    # ------------------------------------------------------------ ownership

    async def _take_over(self, name: str) -> None:
        # Counted beforehand, since a process that dies of it, say by memory, counts nothing.
        place = f"the take-over of {name}"
        attempts = await persistently(partial(self._store.attempts, place))
        try:
            await self._load(name, place, is_deadly=attempts > MOST_ATTEMPTS)
        except (asyncio.CancelledError, StoreUnavailable, StoreRefused, Fenced):
            # Not its fault.
            with contextlib.suppress(StoreError):
                await self._store.clear_attempts(place)
            raise
        if attempts <= MOST_ATTEMPTS:
            await persistently(partial(self._store.clear_attempts, place))

    async def _load(self, name: str, place: str, *, is_deadly: bool) -> None:
        generation = self._generation
        snapshot = await persistently(partial(self._store.acquire, name, new=False))
        await self._check_ledger(snapshot)
        if generation != self._generation or self._partition(name) not in self._held:
            return  # revoked meanwhile
        # A worker that died of what a data set holds does not hold it again until an operator has looked.
        is_deadly = is_deadly or snapshot.meta.get("quarantined") == place
        dataset = Dataset(
            self._store,
            self._noise,
            snapshot,
            fuse=self._fuse,
            on_commit=self._committed,
            replays=not is_deadly,
        )
        self._datasets[name] = dataset
        if is_deadly and dataset.definition is not None:
            if not dataset.quarantined:
                _log.error("data set %s is quarantined: workers died of its take-over", name)
                dataset.quarantine(place)
            await dataset.flush()
            return
        if snapshot.outbox:
            await self._release_again(dataset, snapshot.outbox)
        await dataset.recover()

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
            self._progress += 1
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
                self._work.outgoing += [
                    answering.released_again(dataset.name, one, stored[dataset.name, one])
                    if isinstance(one, str)
                    else _outgoing(one)
                    for one in some
                ]
                await self._hand_over()
            self._work.released[dataset.name] = (dataset.token, seq)
            self._progress += 1
        await self._hand_over()

    async def _guarded(self, generation: int, name: str, step: Awaitable[None]) -> None:
        """Runs a step of one data set that may have been revoked meanwhile."""
        try:
            await step
        except Fenced as error:
            self._lost(generation, name, error)

    def _lost(self, generation: int, name: str, error: StoreError) -> None:
        """Leaves a data set to its next owner, who has fenced this worker and reads the records again.

        Raises:
            StoreError: It is another error, or this worker believes to hold the partition: then it is wrong
                about the world, and stops.
        """
        held = generation == self._generation and self._partition(name) in self._held
        if held or not isinstance(error, Fenced):
            raise error
        _log.info("data set %s was handed to another worker", name)

    def _committed(self, dataset: Dataset, seq: int, outgoing: Sequence[Outgoing]) -> None:
        self._work.outgoing.extend(outgoing)
        self._work.released[dataset.name] = (dataset.token, seq)

    async def _hand_over(self) -> None:
        work, self._work = self._work, _Work()
        if work.outgoing or work.watermarks or work.released:
            self._unreleased += len(work.outgoing)
            await self._queue.put(work)

    async def _release(self, work: _Work) -> None:
        """Sends, and marks what was sent; what is not marked when the worker dies is sent again."""
        self._fuse(CrashPoint.BEFORE_SEND)
        # Whoever sees what a charge paid for can be sure that the second witness knows of the charge.
        entries = [one for one in work.outgoing if one.role == "ledger"]
        if entries:
            await self._deliver(entries)
        await self._deliver([one for one in work.outgoing if one.role != "ledger"])
        self._unreleased -= len(work.outgoing)
        self._metrics.released(work.outgoing, time())
        self._fuse(CrashPoint.AFTER_RELEASE)
        for name in await persistently(partial(self._store.mark, work.released, work.watermarks)):
            _log.info("data set %s was handed to another worker", name)
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


class _Stopped(RuntimeError):
    """A step was cut short from outside."""


_TOO_MUCH_WORK = InvalidMessage(
    "queries",
    f"the answers to the queries of one record may have {MOST_VALUES:,} values together",
    "send it in another record",
    reason="too_much_work",
)

_UNREADABLE = InvalidMessage(
    "value", "the worker fails when it reads this", "send it in another form", reason="unreadable"
)


def lost_records(place: str, read: int, end: int) -> ServerUnavailable:
    """What to raise where a log ends before what was read of it."""
    return ServerUnavailable(
        f"{place} was read to offset {read} and ends at {end}: the topic was deleted and made again, or cut. "
        "Restore it, or start afresh under another topic prefix"
    )


def _refuse_in_quarantine(dataset: Dataset) -> None:
    if dataset.quarantined:
        raise InvalidMessage(
            "dataset",
            "it is in quarantine: the worker died again and again at one of its records",
            "tell its operator",
            reason="quarantined",
        )


def _refuse_out_of_order(dataset: Dataset, batch: Batch) -> None:
    """Refuses a range of a source that would count records twice, or leave some out."""
    source = batch.source
    if source is not None and not dataset.expects(source):
        raise InvalidMessage(
            "source",
            f"offset {dataset.cursor[source.place]} counts next in this partition of the source",
            "send the records from there on",
            reason="not_next",
        )


def _partition_in(place: str) -> int:
    return int(place.rpartition(":")[2])


def _outgoing(stored: StoredRecord) -> Outgoing:
    return Outgoing(
        stored.topic,
        (stored.key or b"").decode(),
        stored.value or b"",
        tuple(stored.headers),
        dated_ms=-1,
    )
