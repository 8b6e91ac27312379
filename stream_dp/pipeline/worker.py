"""Groups of records in, commits, then releases. Knows no Faust: the app hands it records and a sender.

A group is decoded, looked up in one round trip a data set, decided in log order, committed once a data set
(and once more for each paid look), and handed to the releaser, which sends while the next group is decided.
Progress is in the store alone: each commit moves its data set's cursor, and a topic's watermark follows when
everything below it is committed and released.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import logging
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from stream_dp.core.noise import NoiseSource
from stream_dp.errors import Fenced, InvalidInput, InvalidMessage, StreamDPError, UnsafeStore
from stream_dp.messages import Query, Reason, Rejected
from stream_dp.pipeline import answering, ingesting
from stream_dp.pipeline.dataset import Dataset
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
from stream_dp.pipeline.metrics import Metrics
from stream_dp.pipeline.records import Outgoing, Record
from stream_dp.pipeline.retrying import persistently
from stream_dp.state.codec import Record as StoredRecord
from stream_dp.state.codec import outbox_from_bytes
from stream_dp.state.store import Store

__all__ = ["Send", "Worker"]

_log = logging.getLogger(__name__)

Send = Callable[[Outgoing], Awaitable[Awaitable[object]]]
"""Hands a record to the producer; what it returns is done when the broker has the record."""

_IN_FLIGHT = 4
_RETRY_S = 0.5
_NOISE_AHEAD = 512


@dataclass
class _Work:
    """What leaves after the commits of one group."""

    outgoing: list[Outgoing] = field(default_factory=list)
    released: dict[str, tuple[int, int]] = field(default_factory=dict)
    watermarks: dict[str, int] = field(default_factory=dict)


class Worker:
    """Everything between the records of the assigned partitions and what is released for them.

    Args:
        partitions: Partitions of each input topic, all alike; the store remembers the count.
        secret: Key of the digests that stand for rejected records.
    """

    def __init__(
        self,
        store: Store,
        noise: NoiseSource,
        send: Send,
        *,
        partitions: int,
        secret: bytes,
        metrics: Metrics | None = None,
        fuse: Fuse = unarmed,
    ) -> None:
        self._store = store
        self._noise = noise
        self._send = send
        self._partitions = partitions
        self._secret = secret
        self._metrics = metrics or Metrics()
        self._fuse = fuse
        self._datasets: dict[str, Dataset] = {}
        self._next: dict[str, int] = {}
        self._held: frozenset[int] = frozenset()
        self._lock = asyncio.Lock()
        self._work = _Work()
        self._queue: asyncio.Queue[_Work] = asyncio.Queue(_IN_FLIGHT)

    @property
    def datasets(self) -> Mapping[str, Dataset]:
        return self._datasets

    @property
    def ready(self) -> bool:
        """Whether partitions are assigned, so that requests are answered."""
        return bool(self._held)

    # ------------------------------------------------------------ life

    async def check_store(self) -> None:
        """Raises UnsafeStore when an acknowledged commit could be forgotten."""
        problems = await self._store.problems()
        self._metrics.store_safe(safe=not problems)
        if problems:
            raise UnsafeStore(problems)

    async def assigned(self, partitions: Iterable[int]) -> None:
        """Takes over the data sets of newly assigned partitions and lets go of those no longer held.

        What a former owner committed and did not release is released now.
        """
        async with self._lock:
            held = frozenset(partitions)
            new = held - self._held
            self._let_go(held)
            for name in await persistently(self._store.datasets):
                if self._partition(name) in new:
                    await self._take_over(name)
            await self._hand_over()

    def revoked(self, partitions: Iterable[int]) -> None:
        """Lets go of partitions at once; what is still buffered for them is left to their next owner."""
        self._let_go(self._held - frozenset(partitions))

    def _let_go(self, held: frozenset[int]) -> None:
        self._held = held
        self._next = {
            place: offset for place, offset in self._next.items() if _partition_in(place) in held
        }
        for name in [name for name in self._datasets if self._partition(name) not in held]:
            del self._datasets[name]

    def _partition(self, name: str) -> int:
        return partition_of(name.encode(), self._partitions)

    async def positions(self, places: Iterable[str]) -> dict[str, int]:
        """Where reading goes on, for each ``topic:partition`` that has a past."""
        stored = await persistently(self._store.watermarks)
        return {
            place: max(stored.get(place, 0), self._next.get(place, 0))
            for place in places
            if place in stored or place in self._next
        }

    async def run_releaser(self) -> None:
        """Sends what was committed, in order, until cancelled."""
        while True:
            work = await self._queue.get()
            try:
                await self._release(work)
            finally:
                self._queue.task_done()

    async def drained(self) -> None:
        """Returns when everything that was committed has been released."""
        await self._queue.join()

    # ------------------------------------------------------------ a group

    async def process(self, records: Sequence[Record]) -> None:
        """Takes a group of records through to its commits and queues its releases."""
        async with self._lock:
            fresh = [record for record in records if self._is_fresh(record)]
            self._fuse(CrashPoint.AFTER_FETCH)
            requests = [(record, self._decode(record)) for record in fresh]
            self._fuse(CrashPoint.AFTER_DECODE)
            known = await self._known([request for _, request in requests if request is not None])
            for record, request in requests:
                if request is not None:
                    await self._guarded(request.dataset, self._handle(record, request, known))
            for name in {request.dataset for _, request in requests if request is not None}:
                if name in self._datasets:
                    await self._guarded(name, self._datasets[name].flush())
            for record in fresh:
                if record.partition in self._held:
                    self._next[record.place] = record.offset + 1
                    self._work.watermarks[record.place] = record.offset + 1
            await self._hand_over()
        self._noise.refill(_NOISE_AHEAD)

    def _is_fresh(self, record: Record) -> bool:
        return record.partition in self._held and record.offset >= self._next.get(record.place, 0)

    def _decode(self, record: Record) -> Request | None:
        self._metrics.record(record.role)
        try:
            return decode(record, self._partitions)
        except InvalidInput as error:
            self._work.outgoing.append(self._rejection(record, error))
            return None

    async def _known(self, requests: Sequence[Request]) -> dict[tuple[str, str], bytes]:
        """Stored answers and batch outcomes of the ids in this group, one look-up a data set."""
        answers: dict[str, list[str]] = {}
        batches: dict[str, list[str]] = {}
        for request in requests:
            if isinstance(request, Ask):
                answers.setdefault(request.dataset, []).extend(
                    answering.answer_name(request.analyst, query.query_id)
                    for query in request.queries
                    if isinstance(query, Query)
                )
            elif isinstance(request, Ingest):
                batches.setdefault(request.dataset, []).append(request.batch.batch_id)
        known: dict[tuple[str, str], bytes] = {}
        for look_up, ids in ((self._store.answers, answers), (self._store.batches, batches)):
            for dataset, names in ids.items():
                found = await persistently(partial(look_up, dataset, names))
                known.update(
                    ((dataset, name), value)
                    for name, value in zip(names, found, strict=True)
                    if value is not None
                )
        return known

    async def _handle(
        self, record: Record, request: Request, known: dict[tuple[str, str], bytes]
    ) -> None:
        dataset = self._datasets.get(request.dataset) or await self._take_over(request.dataset)
        if record.offset < dataset.cursor.get(record.place, 0):
            return
        try:
            if isinstance(request, Define):
                self._define(dataset, request)
            elif dataset.definition is None:
                raise InvalidMessage(
                    "dataset",
                    f"no data set {request.dataset!r} is defined",
                    "define it, wait for the event dataset_accepted, and send again",
                    reason="unknown_dataset",
                )
            elif isinstance(request, Retire):
                if not dataset.retired:
                    dataset.retire()
            elif isinstance(request, Ingest):
                await self._ingest(dataset, request, known)
            else:
                await self._ask(record, dataset, request, known)
        except InvalidInput as error:
            rejection = self._rejection(record, error, dataset=request.dataset)
            if dataset.definition is None:
                self._work.outgoing.append(rejection)
            else:
                dataset.release(rejection)
        if dataset.definition is not None:
            dataset.passed(record.place, record.offset + 1)

    def _define(self, dataset: Dataset, request: Define) -> None:
        if dataset.definition is None:
            dataset.define(request.definition)
            self._metrics.dataset(dataset)
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

    async def _ingest(
        self, dataset: Dataset, request: Ingest, known: dict[tuple[str, str], bytes]
    ) -> None:
        batch_id = request.batch.batch_id
        name = (dataset.name, batch_id)
        if name in known:
            ingesting.resend(dataset, known[name])
        else:
            known[name] = await ingesting.ingest(dataset, request.batch)
            self._metrics.batch(dataset)

    async def _ask(
        self,
        record: Record,
        dataset: Dataset,
        request: Ask,
        known: dict[tuple[str, str], bytes],
    ) -> None:
        for query in request.queries:
            try:
                await self._ask_one(dataset, request.analyst, query, known)
            except InvalidMessage as error:
                dataset.release(
                    self._rejection(
                        record,
                        error,
                        dataset=dataset.name,
                        analyst=request.analyst,
                        query_id=query.query_id,
                    )
                )

    async def _ask_one(
        self,
        dataset: Dataset,
        analyst: str,
        query: Query | BadQuery,
        known: dict[tuple[str, str], bytes],
    ) -> None:
        if isinstance(query, BadQuery):
            raise query.error
        name = (dataset.name, answering.answer_name(analyst, query.query_id))
        if name not in known:
            reply, stored = await answering.answer(dataset, analyst, query)
            if stored is not None:
                known[name] = stored
            self._metrics.answer(reply)
        elif not answering.resend(dataset, analyst, query, known[name]):
            raise InvalidMessage(
                "query_id",
                "this id was used for another question",
                "ask under a new id",
                reason="id_reused",
            )

    def _rejection(
        self,
        record: Record,
        error: InvalidInput,
        *,
        dataset: str | None = None,
        analyst: str | None = None,
        query_id: str | None = None,
    ) -> Outgoing:
        digest = hmac.new(self._secret, record.value or b"", hashlib.sha256).hexdigest()[:32]
        rejected = Rejected(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            dataset=dataset,
            analyst=analyst,
            query_id=query_id,
            digest=digest,
            reason=Reason(code=error.reason, message=str(error)),
        )
        self._metrics.rejected(error.reason)
        key = dataset or f"{record.topic}:{record.partition}"
        return Outgoing("rejected", key, rejected.to_bytes())

    # ------------------------------------------------------------ ownership

    async def _take_over(self, name: str) -> Dataset:
        snapshot = await persistently(partial(self._store.acquire, name))
        dataset = Dataset(
            self._store, self._noise, snapshot, fuse=self._fuse, on_commit=self._committed
        )
        self._datasets[name] = dataset
        self._metrics.dataset(dataset)
        for seq, entry in snapshot.outbox:
            outgoing = [_outgoing(record) for record in outbox_from_bytes(entry)]
            self._committed(dataset, seq, outgoing)
        await dataset.recover()
        return dataset

    async def _guarded(self, name: str, step: Awaitable[None]) -> None:
        """Runs a step of one data set that may have been revoked meanwhile.

        Its next owner then fences this worker and reads the records again. A worker that is fenced while it
        believes to hold the partition is wrong about the world, and stops.
        """
        try:
            await step
        except Fenced:
            if self._partition(name) in self._held:
                raise
            _log.info("data set %s was handed to another worker", name)

    def _committed(self, dataset: Dataset, seq: int, outgoing: Sequence[Outgoing]) -> None:
        self._work.outgoing.extend(outgoing)
        self._work.released[dataset.name] = (dataset.token, seq)

    async def _hand_over(self) -> None:
        work, self._work = self._work, _Work()
        if work.outgoing or work.watermarks:
            await self._queue.put(work)

    async def _release(self, work: _Work) -> None:
        self._fuse(CrashPoint.BEFORE_SEND)
        await self._deliver(work.outgoing)
        self._fuse(CrashPoint.AFTER_RELEASE)
        for name, (token, seq) in work.released.items():
            try:
                await persistently(partial(self._store.released, name, token, seq))
            except Fenced:
                _log.info("data set %s was handed to another worker", name)
        self._fuse(CrashPoint.AFTER_MARK)
        if work.watermarks:
            await persistently(partial(self._store.advance, work.watermarks))
        self._fuse(CrashPoint.AFTER_WATERMARK)

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


def _partition_in(place: str) -> int:
    return int(place.rpartition(":")[2])


def _outgoing(stored: StoredRecord) -> Outgoing:
    return Outgoing(
        stored.topic, (stored.key or b"").decode(), stored.value or b"", tuple(stored.headers)
    )
