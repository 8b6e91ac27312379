"""Topics as durable truth: records that are appended at known offsets, read again, and forgotten.

The producer is idempotent, so it repeats a batch whose reply was lost, and the batch is there once. It never
gives up: an append to a broker that is away ends when the broker is back.
A reader has a connection for that time only, and fetches some megabytes ahead at most.

A broker that was replaced as the leader may not know it for a while. It acknowledges nothing, and says that
the log ends where it ended then. So what it says of an end is not believed. A reader who knows of an
acknowledged offset gets everything below it, or ``ServerUnavailable``.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, RecordsToDelete
from aiokafka.errors import KafkaError, OffsetOutOfRangeError
from aiokafka.producer.message_accumulator import BatchBuilder

from stream_dp.broker import Broker
from stream_dp.errors import ServerUnavailable
from stream_dp.messages import TOPICS, Topics
from stream_dp.pipeline.intake.decoder import partition_of
from stream_dp.pipeline.intake.records import Record
from stream_dp.pipeline.kafka.poll_loop import hang_up, until
from stream_dp.pipeline.kafka.sender import too_large, translated

_log = logging.getLogger(__name__)

_LARGEST_BATCH = TOPICS["journal"].max_message_bytes
_TOGETHER_BYTES = _LARGEST_BATCH // 2
_FETCH_BYTES = 2**22
_WAIT_MS = 500
_PATIENCE_S = 10.0
_AGAIN_S = 0.5
_QUICK_S = 2.0
_REPEAT_S = 10.0
_FAR = 50
"""From this many records on, seeking is quicker than reading what lies between."""


class EndsBefore(ServerUnavailable):
    """A log ends before an offset that was acknowledged, as far as the broker says."""


class InputCut(ServerUnavailable):
    """An input topic ends before a record that was read from it.

    Attributes:
        topic_partition: The log, as ``topic:partition``.
        read: The offset up to which it was read at least.
        end: Where it ends.
    """

    def __init__(self, topic_partition: str, read: int, end: int) -> None:
        self.topic_partition = topic_partition
        self.read = read
        self.end = end
        super().__init__(f"{topic_partition} was read to offset {read}, and ends at {end}")


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One record of a log. Its value may hold rows, so it is in no repr.

    Attributes:
        value: The content. An empty one erases its key from a compacted topic.
    """

    key: bytes
    value: bytes = field(repr=False)
    headers: tuple[tuple[str, bytes], ...] = field(default=(), repr=False)


class TopicLog(Protocol):
    """A topic that only the owner of a partition writes."""

    @property
    def partitions(self) -> int:
        """The number of partitions of the topic."""
        ...

    async def append(self, partition: int, entries: Sequence[LogEntry]) -> int | None:
        """Appends entries in order, after those of earlier calls, and waits for all replicas in sync.

        They travel as one batch if they fit into one, which the topic takes or refuses as a whole.

        Returns:
            The offset of the first entry; the others follow without a gap. None if that is not known, or
            not so: then the caller reads what is there.

        Raises:
            ServerUnavailable: The broker is gone; how many of the entries are there is unknown.
            StreamDPError: The topic takes no record of this size. Nothing was appended.
        """
        ...

    async def bounds(self, partition: int, *, reaches: int = 0) -> tuple[int, int]:
        """Returns the offset of the first record, and the one behind the last record.

        Args:
            partition: The partition.
            reaches: An offset below which all was acknowledged. A log that ends before it is asked again for
                ten seconds. If it still does, it was cut. Without it, the end may be one of the past.

        Raises:
            ServerUnavailable: No broker answers.
        """
        ...

    def read(
        self, partition: int, start: int, end: int
    ) -> AsyncIterator[Sequence[tuple[int, LogEntry]]]:
        """Yields the entries with offsets from ``start`` on and below ``end``, in pieces of some megabytes.

        Reading begins at the first record that there is, if that is further on. It ends without an error only
        if it has come to ``end``.

        Raises:
            EndsBefore: The log ends before ``end``, or its broker does not know better.
            ServerUnavailable: No broker answers.
        """
        ...

    async def record(self, partition: int, offset: int) -> LogEntry | None:
        """Returns the record at an offset. None if it is not there any more.

        Raises:
            EndsBefore: The log ends before it, or its broker does not know better.
            ServerUnavailable: No broker answers.
        """
        ...

    async def forget(self, partition: int, before: int) -> None:
        """Deletes the records below an offset. To repeat it is harmless.

        Raises:
            ServerUnavailable: No broker answers, or it refuses.
        """
        ...


class InputReader(Protocol):
    """The input topics, of which single records are read again."""

    @property
    def batches(self) -> str:
        """The name of the topic of batches."""
        ...

    async def forget(self, topic_partition: str, before: int) -> None:
        """Deletes the records below an offset. To repeat it is harmless.

        Raises:
            ServerUnavailable: No broker answers, or it refuses.
        """
        ...

    def records(self, topic_partition: str, offsets: Sequence[int]) -> AsyncIterator[Record]:
        """Yields the records at these offsets that are still there, in order.

        Args:
            topic_partition: The partition, as ``topic:partition``.
            offsets: The offsets, in ascending order. All of them were read before.

        Raises:
            InputCut: The log ends before one of them.
            ServerUnavailable: No broker answers.
        """
        ...


class KafkaLog:
    """A log on Kafka.

    Single records come over one connection that stays open. A look or a take-over may need thousands of them,
    and a connection for each would take longer than reading it. What follows a record is fetched with it,
    some megabytes at most: blocks of a window lie one behind the other.

    Args:
        broker: The broker to read from.
        topic: The name of the topic.
        partitions: The number of partitions of the topic.
        producer: The idempotent producer to append with. It has started. None to read only.
    """

    def __init__(
        self, broker: Broker, topic: str, partitions: int, producer: AIOKafkaProducer | None
    ) -> None:
        self.partitions = partitions
        self._broker = broker
        self._topic = topic
        self._producer = producer
        self._turns: defaultdict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._single: AIOKafkaConsumer | None = None
        self._single_turn = asyncio.Lock()

    async def append(self, partition: int, entries: Sequence[LogEntry]) -> int | None:
        batches = self._batches(entries)
        async with self._turns[partition]:
            found = [await self._send(batch, partition) for batch in batches]
        expected = found[0]
        for batch, offset in zip(batches, found, strict=True):
            if offset < 0 or offset != expected:
                return None
            expected += batch.record_count()
        return found[0]

    async def bounds(self, partition: int, *, reaches: int = 0) -> tuple[int, int]:
        place = TopicPartition(self._topic, partition)
        async with _reading(self._broker) as consumer:
            return await _bounds_of(consumer, place, reaches=reaches)

    async def read(
        self, partition: int, start: int, end: int
    ) -> AsyncIterator[Sequence[tuple[int, LogEntry]]]:
        place = TopicPartition(self._topic, partition)
        async with _reading(self._broker) as consumer:
            start = max(start, await _first_of(consumer, place, end))
            due = monotonic() + _QUICK_S
            async for records in _fetched(consumer, place, start, end):
                yield [(record.offset, entry_of(record)) for record in records]
                if monotonic() > due:
                    due = monotonic() + _REPEAT_S
                    _log.warning(
                        "reading %s, partition %d: %d of %d records read",
                        *(self._topic, partition, records[-1].offset + 1 - start, end - start),
                    )

    async def record(self, partition: int, offset: int) -> LogEntry | None:
        place = TopicPartition(self._topic, partition)
        async with self._single_turn, self._reading_single() as consumer:
            if consumer.assignment() != {place}:
                consumer.assign([place])
                consumer.seek(place, offset)
            elif await consumer.position(place) != offset:
                consumer.seek(place, offset)
            due = monotonic() + _PATIENCE_S
            while True:
                try:
                    fetched = await consumer.getmany(place, timeout_ms=_WAIT_MS, max_records=1)
                except OffsetOutOfRangeError:
                    fetched = {}
                for found in fetched.get(place, ()):
                    # Offsets stay when a topic is compacted; where one is missing, the next record comes.
                    return entry_of(found) if found.offset == offset else None
                if offset < await _first_of(consumer, place, offset + 1):
                    return None
                if monotonic() > due:
                    raise ServerUnavailable("the broker gave no record in time")
                consumer.seek(place, offset)

    async def close(self) -> None:
        """Ends the connection for single records. The next one opens another one."""
        consumer, self._single = self._single, None
        if consumer is not None:
            await hang_up(consumer)

    @asynccontextmanager
    async def _reading_single(self) -> AsyncIterator[AIOKafkaConsumer]:
        """The consumer of single records, which is given up for another one after a fault."""
        try:
            if self._single is None:
                self._single = _consumer(self._broker)
                await self._single.start()
            yield self._single
        except BaseException as error:
            # A look that is cancelled may leave it half started, or in the midst of an answer.
            await self.close()
            if isinstance(error, KafkaError):
                raise _gave_none(error) from error
            raise

    async def forget(self, partition: int, before: int) -> None:
        await _delete(self._broker, TopicPartition(self._topic, partition), before)

    def _batches(self, entries: Sequence[LogEntry]) -> list[BatchBuilder]:
        """Packs entries. A batch that the broker refused would spoil all later ones, so sizes come first."""
        batches: list[BatchBuilder] = []
        for entry in entries:
            if not batches or not _add(batches[-1], entry):
                # The producer's own batches are smaller.
                batches.append(BatchBuilder(_LARGEST_BATCH, 0))
                _add(batches[-1], entry)
                if batches[-1].size() > _LARGEST_BATCH:
                    raise too_large(self._topic)
        for batch in batches:
            batch.close()
        return batches

    async def _send(self, batch: BatchBuilder, partition: int) -> int:
        assert self._producer is not None, "this log was opened to be read"
        try:
            sent = await self._producer.send_batch(batch, self._topic, partition=partition)
            return int((await sent).offset)
        except KafkaError as error:
            raise translated(self._topic, error) from error


class KafkaInputReader:
    """The input topics on Kafka.

    Args:
        broker: The broker to read from.
        names: The names of the topics.
    """

    def __init__(self, broker: Broker, names: Topics) -> None:
        self._broker = broker
        self._names = names

    @property
    def batches(self) -> str:
        return self._names.name("batches")

    async def forget(self, topic_partition: str, before: int) -> None:
        await _delete(self._broker, place_of(topic_partition), before)

    async def records(self, topic_partition: str, offsets: Sequence[int]) -> AsyncIterator[Record]:
        place = place_of(topic_partition)
        role = self._names.role(place.topic)
        async with _reading(self._broker) as consumer:
            read = offsets[-1] + 1 if offsets else 0
            first, end = await _bounds_of(consumer, place, reaches=read)
            if end < read:
                raise InputCut(topic_partition, read, end)
            for run in _runs([offset for offset in offsets if first <= offset]):
                wanted = set(run)
                async for records in _fetched(consumer, place, run[0], run[-1] + 1):
                    for record in records:
                        if record.offset in wanted:
                            yield Record.received(role, place.topic, place.partition, record)


class KeyedTopic:
    """Values by key on a compacted topic. A key begins with the name of its data set and a slash.

    A value is some parts. The key of a part is that of the value, with a slash and a number. Nothing here
    tells whether parts are of one value: one who has fetched them does.

    Args:
        log: The topic, with the partitions of the inputs. A value lies on the partition of its data set.
    """

    def __init__(self, log: TopicLog) -> None:
        self._log = log

    async def put(
        self,
        values: Sequence[tuple[bytes, Sequence[bytes]]],
        *,
        beat: Callable[[], None] = lambda: None,
    ) -> list[tuple[int, ...]]:
        """Keeps values, in place of older ones under their keys.

        Args:
            values: Keys, all of one data set, and the parts of each value. No part is empty, for a record
                without content erases.
            beat: Called whenever some megabytes are there.

        Returns:
            The offsets of the parts of each value, at which all replicas in sync have them.

        Raises:
            ServerUnavailable: The broker is gone; which of the values are there is unknown.
        """
        offsets: list[list[int]] = [[] for _ in values]
        for some in _together(values):
            key, entries = values[0][0], [entry for _, entry in some]
            while (first := await self._append(key, entries)) is None:
                pass  # they are there, and nobody knows where: the last one of a key stays
            for offset, (number, _) in enumerate(some, start=first):
                offsets[number].append(offset)
            beat()
        return [*map(tuple, offsets)]

    async def drop(self, keys: Mapping[bytes, int]) -> None:
        """Erases values. The broker's disk loses them when the topic is compacted.

        Args:
            keys: Keys, all of one data set, and the number of parts that each has. A part beyond it would
                stay.

        Raises:
            ServerUnavailable: The broker is gone; which of the values are still there is unknown.
        """
        parts = [
            LogEntry(_part_key(key, number), b"")
            for key, parts in keys.items()
            for number in range(parts)
        ]
        if parts:
            await self._append(parts[0].key, parts)

    async def fetch(self, key: bytes, number: int, offset: int) -> bytes | None:
        """Returns a part of what is kept under a key, from its offset. None if it is not there.

        Raises:
            ServerUnavailable: No broker answers.
        """
        entry = await self._record(self._partition_of(key), offset)
        if entry is None or entry.key != _part_key(key, number) or not entry.value:
            return None
        return entry.value

    async def _record(self, partition: int, offset: int) -> LogEntry | None:
        try:
            return await self._log.record(partition, offset)
        except EndsBefore:
            if await self._end(partition) > offset:
                raise  # and it is asked for again
            return None

    async def _end(self, partition: int) -> int:
        """Returns an offset behind all that was acknowledged before: that of a record appended now."""
        while (offset := await self._log.append(partition, [_MARK])) is None:
            pass
        return offset

    async def mark(self, dataset: str) -> None:
        """Appends a record that says nothing: a broker cleans a segment only once another one begins."""
        await self._end(self._partition_of(f"{dataset}/".encode()))

    async def parts(
        self, dataset: str, start: int = 0, *, beat: Callable[[], None] = lambda: None
    ) -> tuple[dict[bytes, dict[int, int]], int]:
        """Finds all that is kept of a data set, values included that were not put completely.

        A broker gives no offsets without the values, so all of the partition is read from ``start`` on.

        Args:
            dataset: The name of the data set.
            start: The offset to begin at. What was put before it is left out.
            beat: Called whenever some megabytes are read, which may take minutes in all.

        Returns:
            Key -> number of a part -> its offset; and the offset at which the partition ends.

        Raises:
            ServerUnavailable: No broker answers.
        """
        last: dict[bytes, int] = {}
        prefix = f"{dataset}/".encode()
        partition = self._partition_of(prefix)
        end = await self._end(partition)
        async for piece in self._log.read(partition, min(start, end), end):
            for offset, entry in piece:
                if entry.value and entry.key.startswith(prefix):
                    last[entry.key] = offset
                else:
                    last.pop(entry.key, None)
            beat()
        found: defaultdict[bytes, dict[int, int]] = defaultdict(dict)
        for part_key, offset in last.items():
            key, _, number = part_key.rpartition(b"/")
            if number.isdigit():  # else it is not of this class
                found[key][int(number)] = offset
        return dict(found), end

    async def _append(self, key: bytes, entries: Sequence[LogEntry]) -> int | None:
        return await self._log.append(self._partition_of(key), entries)

    def _partition_of(self, key: bytes) -> int:
        return partition_of(key.partition(b"/")[0], self._log.partitions)


def _consumer(broker: Broker) -> AIOKafkaConsumer:
    return AIOKafkaConsumer(
        **broker.arguments(),
        enable_auto_commit=False,
        auto_offset_reset="none",
        fetch_max_bytes=_FETCH_BYTES,
        max_partition_fetch_bytes=_FETCH_BYTES,
    )


def _gave_none(error: KafkaError) -> ServerUnavailable:
    return ServerUnavailable(f"the broker gave no records ({type(error).__name__})")


@asynccontextmanager
async def _reading(broker: Broker) -> AsyncIterator[AIOKafkaConsumer]:
    """A consumer for one reading. What it raises because of the broker is ServerUnavailable."""
    consumer = _consumer(broker)
    try:
        await consumer.start()
        yield consumer
    except KafkaError as error:
        raise _gave_none(error) from error
    finally:
        await hang_up(consumer)


async def _bounds_of(
    consumer: AIOKafkaConsumer, place: TopicPartition, *, reaches: int = 0
) -> tuple[int, int]:
    """Returns where a partition begins and ends, see ``TopicLog.bounds``.

    Raises:
        KafkaError: The broker refuses.
        ServerUnavailable: No broker answers.
    """
    due = monotonic() + _PATIENCE_S
    while True:
        try:
            async with asyncio.timeout(_PATIENCE_S):
                # Else the first question about an unknown topic is asked again after 100 ms.
                await consumer._client.add_topic(place.topic)  # noqa: SLF001
                first = (await consumer.beginning_offsets([place]))[place]
                end = (await consumer.end_offsets([place]))[place]
        except TimeoutError as error:
            raise ServerUnavailable("the broker gave no records (it does not answer)") from error
        if end >= reaches or monotonic() > due:
            return first, end
        # Any broker may be asked who leads, and another one may know better.
        consumer._client.force_metadata_update()  # noqa: SLF001 - by itself it asks after minutes
        await asyncio.sleep(_AGAIN_S)


async def _first_of(consumer: AIOKafkaConsumer, place: TopicPartition, end: int) -> int:
    """Returns where a partition begins that reaches as far as this end.

    Raises:
        EndsBefore: It ends before that, or its broker does not know better.
        KafkaError: The broker refuses.
        ServerUnavailable: No broker answers.
    """
    first, there = await _bounds_of(consumer, place, reaches=end)
    if there < end:
        raise EndsBefore(
            f"{place.topic}, partition {place.partition}, was written to offset {end}, and its broker says "
            f"that it ends at {there}"
        )
    return first


async def _fetched(
    consumer: AIOKafkaConsumer, place: TopicPartition, start: int, end: int
) -> AsyncIterator[list[Any]]:
    """Yields the records from ``start`` on and below ``end``.

    Raises:
        EndsBefore: The log ends before ``end``, or its broker does not know better.
        KafkaError: The broker refuses.
        ServerUnavailable: No broker answers.
    """
    consumer.assign([place])
    consumer.seek(place, start)
    while True:
        try:
            async for fetched in until(consumer, {place: end}):
                if records := [one for one in fetched.get(place, ()) if one.offset < end]:
                    yield records
                elif not fetched:
                    await _first_of(consumer, place, end)  # which checks that it is there
        except OffsetOutOfRangeError:
            first, _ = await _bounds_of(consumer, place)
            if first <= await consumer.position(place):
                raise  # cut at its end
            consumer.seek(place, first)  # deleted at its beginning
        else:
            return


async def _delete(broker: Broker, place: TopicPartition, before: int) -> None:
    """Deletes the records of a partition below an offset, see ``TopicLog.forget``."""
    admin = AIOKafkaAdminClient(**broker.arguments())
    try:
        await admin.start()
        await admin.delete_records({place: RecordsToDelete(before_offset=before)})
    except KafkaError as error:
        raise ServerUnavailable(
            f"the broker deleted no records of {place.topic} ({type(error).__name__})"
        ) from error
    finally:
        await admin.close()


def _add(batch: BatchBuilder, entry: LogEntry) -> bool:
    """Adds an entry to a batch, unless it is full. The first one is added whatever its size."""
    added = batch.append(
        timestamp=None, key=entry.key, value=entry.value or None, headers=list(entry.headers)
    )
    return added is not None


def entry_of(record: Any) -> LogEntry:
    """The entry that a record of a broker is. What it lacks is empty, the value of a header included."""
    headers = tuple((name, value or b"") for name, value in record.headers)
    return LogEntry(record.key or b"", record.value or b"", headers)


async def end_of(broker: Broker, place: str, reaches: int = 0) -> int:
    """Returns the offset behind the last record of a log.

    Args:
        broker: The broker.
        place: The log, as ``topic:partition``.
        reaches: An offset up to which it was read, see ``TopicLog.bounds``.

    Raises:
        ServerUnavailable: No broker answers.
    """
    partition = place_of(place)
    log = KafkaLog(broker, partition.topic, 0, None)
    _, end = await log.bounds(partition.partition, reaches=reaches)
    return end


def place_of(topic_partition: str) -> TopicPartition:
    """The partition that ``topic:partition`` names."""
    topic, _, number = topic_partition.rpartition(":")
    return TopicPartition(topic, int(number))


def _runs(offsets: Sequence[int]) -> Iterator[list[int]]:
    """Splits ascending offsets where seeking is quicker than reading on."""
    run: list[int] = []
    for offset in offsets:
        if run and offset - run[-1] >= _FAR:
            yield run
            run = []
        run.append(offset)
    if run:
        yield run


def _together(
    values: Sequence[tuple[bytes, Sequence[bytes]]],
) -> Iterator[list[tuple[int, LogEntry]]]:
    """Yields as many parts at a time as fit into a batch, with the number of the value."""
    some: list[tuple[int, LogEntry]] = []
    n_bytes = 0
    for number, (key, parts) in enumerate(values):
        for at, part in enumerate(parts):  # a large one is nearly as large as a batch may be
            entry = LogEntry(_part_key(key, at), part)
            if some and n_bytes + len(entry.value) > _TOGETHER_BYTES:
                yield some
                some, n_bytes = [], 0
            some.append((number, entry))
            n_bytes += len(entry.value)
    if some:
        yield some


_MARK = LogEntry(b"/", b"")
"""What takes up an offset: it erases the key of no value."""


def _part_key(key: bytes, number: int) -> bytes:
    return b"%s/%d" % (key, number)
