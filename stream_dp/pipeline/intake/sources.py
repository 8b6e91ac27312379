"""Topics that exist already, with one row a message: packed into batches, each row once.

A source is read in the order of its partitions' logs. The data set's owner keeps the offset that it expects
next of each partition, in the commit that accepts the rows before it. It accepts a batch only if its range of
offsets begins exactly there. So each record counts once by construction, whichever worker reads it and
however often. This holds after a crash, a rebalance, and next to another reader (docs/proofs,
Theorem 10).

A reader keeps no position of its own. It asks Redis for the expected offset, which may be an older one, or
none: then what it sends does not count, and it asks again. It starts there, sends a few batches ahead, and
goes back to the expected offset when everything that it sent was taken and did not count. It sends the first
batch of a partition alone: as long as nothing is expected, the next one would count without it. Where nothing
is expected yet, the source file may name the start. It must where the topic may be a copy of one that has
counted.

Every record is one row, whatever it holds: a record that is not a JSON object is a row without values.
Otherwise the number of rows, which is public, would depend on their content. But where many in a row are not
JSON objects, the source stops, because the topic is not of the form that the source file says.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError
from aiokafka.structs import ConsumerRecord

from stream_dp.core.mechanism import Mechanism
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidInput, ServerUnavailable
from stream_dp.messages import Definition, Topics
from stream_dp.pipeline.intake.records import Outgoing
from stream_dp.pipeline.intake.source_events import CountedEvents, EventPacking, event_of
from stream_dp.pipeline.intake.source_file import TopicSource
from stream_dp.pipeline.intake.source_packing import (
    Packing,
    SourceLog,
    document_of,
    is_framed,
    row_of,
)
from stream_dp.pipeline.kafka.patience import patiently
from stream_dp.pipeline.kafka.sender import Sender
from stream_dp.pipeline.kafka.servers import described_topics, view_of
from stream_dp.pipeline.rows.waiting.row_times import Times
from stream_dp.profiles.builder import build
from stream_dp.settings import WorkerSettings
from stream_dp.state.schema import StateTable
from stream_dp.state.view import View

_log = logging.getLogger(__name__)

_POLL_MS = 100
_AHEAD = 4
_PAUSE_S = 0.005
_CHECK_S = 10.0
_ASKING = "asking Redis what was counted"
_IDLE_S = 1.0
_SAY_AGAIN_S = 600.0
_WHY = {
    "no_objects": "are not JSON objects, or no change events",
    "framed": "are not JSON objects, but framed by a schema registry: they begin with a byte 0 and the id of "
    "a schema",
    "no_keys": "remove rows and do not say whose they were",
}
_RECALLED = 2_000  # messages that are read again for what is at the position of change events
_MOST_STRANGE = 100  # messages in a row that are not JSON objects
_PAUSES_S = (0.1, 1.0, 5.0, 30.0)
_FIRST_DAYS_MS = 2 * 86_400_000  # of 1970: such a time is none


@dataclass(frozen=True, slots=True)
class _Row:
    """The values of one record, and the time that it counts for in milliseconds since 1970, or -1."""

    offset: int
    dated_ms: int
    values: Any = field(repr=False)  # of a message, or the event that it is
    position: int = 0


@dataclass
class _Partition:
    """The rows of one partition that were read and are not known to be counted yet.

    Attributes:
        log: Where they are.
        first: The offset that the next batch begins at.
        rows: The records from ``first`` on.
        newest: The latest time of a record so far, or -1. A record that comes late goes with those before it.
        since: The time at which the first of these rows came.
        sent: The batches that were sent and are not known to be counted, in order. Each entry has the
            offset behind the batch, and where its record stands on ``batches`` (topic and partition, offset).
        counted: The expected offset that the consumer group is to show. None if it shows it already.
        begun: Whether the data set expects an offset of this partition.
        named: Whether the source file names the offset that it begins at.
        strange: The number of messages in a row that are there and are not JSON objects.
        framed: The number of these that are framed by a schema registry.
        nameless: The number of events in a row, among those that remove rows, that do not say whose.
        looked: The time at which the expected offset was read last.
        asked: The time at which it was asked last how far the log of ``batches`` is read.
        fetched: The offset behind the last record that was fetched. Those of a topic only grow.
        counted_events: Up to where change events are counted with the last record that was read.
    """

    log: SourceLog
    first: int
    rows: deque[_Row] = field(default_factory=deque, repr=False)
    newest: int = -1
    since: float = 0.0
    sent: list[tuple[int, str, int]] = field(default_factory=list)
    counted: int | None = None
    begun: bool = False
    named: bool = False
    strange: int = 0
    framed: int = 0
    nameless: int = 0
    looked: float = 0.0
    asked: float = 0.0
    fetched: int = 0
    counted_events: CountedEvents = field(default_factory=CountedEvents)

    @property
    def may_send(self) -> bool:
        """Whether another batch may be sent before it is known what became of the earlier ones."""
        return len(self.sent) < (_AHEAD if self.begun else 1)

    def go_on_from(self, expected: int) -> None:
        """Drops the rows that other workers have sent in the meantime."""
        self.first = max(self.first, expected)
        while self.rows and self.rows[0].offset < self.first:
            self.rows.popleft()

    @property
    def next(self) -> int:
        """The offset behind the last record that was read as a row."""
        return self.rows[-1].offset + 1 if self.rows else self.first

    def read(self, offset: int, dated_ms: int, values: Any, *, own_time: bool = False) -> None:
        """Adds the next record. A time to come counts as now: it would end all periods before it.

        Args:
            offset: The offset of the record.
            dated_ms: Its time.
            values: Its values, or the event that it is.
            own_time: Whether one that is older than one before it keeps its time, as where late rows count in
                their own period.
        """
        assert offset >= self.next, "each record is one row"
        known = min(dated_ms if dated_ms > _FIRST_DAYS_MS else -1, round(1000 * time.time()))
        self.newest = max(self.newest, known)
        time_ms = known if own_time and known >= 0 else self.newest
        self.rows.append(_Row(offset, time_ms, values, self.counted_events.position))

    def notice(self, value: bytes | None, document: object) -> None:
        """Takes note of the form of a message. One without a value, such as a tombstone, has none."""
        if document is not None:
            self.strange = self.framed = 0
        elif value:
            self.strange += 1
            self.framed += is_framed(value)

    def ended(self, times: Times) -> int:
        """Returns how many of the first rows are of one period, where rows of another one are behind them.

        It is 0 while there are none, or if phases do not follow the calendar.
        """
        first = times.period(self.rows[0].dated_ms) if self.rows else None
        if first is None or (times.phase.late is None and self.rows[-1].dated_ms < first.until):
            return 0
        inside = range(first.since, first.until)
        return next((n for n, row in enumerate(self.rows) if row.dated_ms not in inside), 0)


@dataclass(frozen=True, slots=True)
class _Form:
    """How rows are read and packed, as long as the attributes of their data set stay as they are.

    Attributes:
        version: The version of the attributes.
        paths: Where a message has the value of each of them, and the keys of a row last.
        keys: The columns with the person and the own key of a row.
        packing: Packs rows.
        times: The periods of rows.
    """

    version: int
    paths: Mapping[str, Sequence[str]]
    keys: Sequence[str]
    packing: Packing
    times: Times


class SourceReader:
    """Reads one source together with other workers. One of them reads each partition.

    Args:
        definition_of: The definition of a data set, None while there is none; asked in a thread.
    """

    _form: _Form

    def __init__(
        self,
        source: TopicSource,
        view: View,
        sender: Sender,
        definition_of: Callable[[str], Definition | None],
        *,
        settings: WorkerSettings,
    ) -> None:
        self._source = source
        self._view = view
        self._sender = sender
        self._definition_of = definition_of
        self._broker = settings.broker
        self._workers = settings.group_id
        self._group = f"{settings.group_id}-source-{source.dataset}-{source.topic}"
        self._session_ms = round(1000 * settings.session_timeout_s)
        self._reading = _Assignments()
        self._vain = 0  # how often in a row a batch that was sent did not count
        self._checked = time.monotonic()

    async def run(self) -> None:
        """Reads until it is cancelled.

        Raises:
            InvalidInput: The source does not fit the data set's definition, or must name a start.
            ServerUnavailable: No broker, or no such topic.
        """
        self._form = await self._formed()
        log_id = await self._topic_id()
        consumer = AIOKafkaConsumer(
            **self._broker.arguments(),
            group_id=self._group,
            session_timeout_ms=self._session_ms,
            heartbeat_interval_ms=self._session_ms // 5,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            isolation_level="read_committed",
        )
        consumer.subscribe([self._source.topic], listener=self._reading)
        try:
            await consumer.start()
            while True:
                assignment = self._reading.assignment
                new = consumer.assignment() - self._reading.partitions.keys()
                if new or time.monotonic() - self._checked > _CHECK_S:
                    await self._check_topic(log_id)
                    await self._commit(consumer)
                for partition in new:
                    await self._stand(consumer, SourceLog(partition, log_id), assignment)
                for partition, records in (await self._fetched(consumer)).items():
                    state = self._reading.partitions.get(partition)
                    if state is None or assignment != self._reading.assignment:
                        break  # these records come again
                    await self._check_gap(consumer, state, records[0].offset)
                    if not self._read(state, records, self._form):
                        await self._stop(state, self._form.packing)
                for partition, state in list(self._reading.partitions.items()):
                    if self._reading.partitions.get(partition) is state:
                        await self._batches(consumer, state, self._form)
        except KafkaError as error:
            raise ServerUnavailable(
                f"the broker does not serve {self._source.topic} ({type(error).__name__})"
            ) from error
        finally:
            await consumer.stop()

    async def _fetched(
        self, consumer: AIOKafkaConsumer
    ) -> Mapping[TopicPartition, Sequence[ConsumerRecord[bytes, bytes]]]:
        """The next records of the partitions of which more batches may be sent."""
        # While all that may be sent ahead is sent, rows wait on their topic rather than here.
        most = self._source.batch_rows
        open_partitions = [
            partition
            for partition, state in self._reading.partitions.items()
            if state.may_send and len(state.rows) < 2 * most
        ]
        if self._reading.partitions and not open_partitions:
            await asyncio.sleep(_PAUSE_S)
            return {}
        found = await consumer.getmany(*open_partitions, timeout_ms=_POLL_MS, max_records=most)
        return dict(found)

    def _read(
        self,
        state: _Partition,
        records: Sequence[ConsumerRecord[bytes, bytes]],
        form: _Form,
    ) -> bool:
        """Reads records as rows; returns whether the source goes on behind them."""
        paths, keys, own_time = form.paths, form.keys, form.times.phase.late is not None
        state.fetched = records[-1].offset + 1
        if not state.rows:
            state.since = time.monotonic()
        for one in records:
            # The broker goes back to the first record if it does not know the next offset.
            if one.offset >= state.next:
                document = document_of(one.value)
                values: Any = row_of(document, paths, keys)
                if self._source.format == "debezium":
                    found = event_of(document, paths, keys, state.counted_events)
                    values = found.event
                    document = document if found.is_event else None
                    if found.says_whose is not None:
                        state.nameless = 0 if found.says_whose else state.nameless + 1
                state.read(one.offset, one.timestamp, values, own_time=own_time)
                state.notice(one.value, document)
                strange = max(state.strange, state.nameless)
                if strange >= _MOST_STRANGE and self._source.unreadable == "stop":
                    return False
            elif self._source.format == "debezium":
                event_of(document_of(one.value), paths, keys, state.counted_events)
        return True

    async def _stand(self, consumer: AIOKafkaConsumer, log: SourceLog, assignment: int) -> None:
        """Goes to where a partition is read on, unless another assignment comes before that is known."""
        expected, _, position = await self._progress(log)
        begun, named, fetched = expected is not None, False, 0
        if expected is None:
            expected, named = await self._start(log)
        if begun or expected:
            fetched = await self._first_left(consumer, log.at, expected)
        begins = expected
        if position:
            first = (await consumer.beginning_offsets([log.at]))[log.at]
            begins = max(min(first, expected), expected - _RECALLED)
            fetched = begins if begins < expected else fetched
        if assignment == self._reading.assignment:
            self._reading.partitions[log.at] = _Partition(
                log,
                expected,
                begun=begun,
                named=named,
                looked=time.monotonic(),
                fetched=fetched,
                counted_events=CountedEvents(position),
            )
            consumer.seek(log.at, begins)

    async def _start(self, log: SourceLog) -> tuple[int, bool]:
        """Returns where a partition begins of which nothing is counted, and whether the source file says so.

        Raises:
            InvalidInput: The file must say it, and does not.
        """
        source, start, number = self._source, self._source.start, log.at.partition
        if start is not None and start.id == log.id:
            if number >= len(start.offsets):
                raise InvalidInput(
                    "start.offsets",
                    f"{source.topic} has a partition {number}, and there is no offset for it",
                    "write one for each partition, in their order",
                )
            if first := start.offsets[number]:
                _log.warning(
                    "%s begins with record %d of %s:%d, as its source file says: those before it never count",
                    *(source.dataset, first, *log.at),
                )
            return start.offsets[number], True
        state = await patiently(partial(self._view.state, source.dataset), _ASKING)
        cursors = {} if state is None else state.table(StateTable.CURSOR)
        counted = {key.decode(): int(value) for key, value in cursors.items()}
        if log.range(0, 0).may_be_copy(counted):
            raise InvalidInput(
                "start",
                f"{source.dataset} has counted rows of another topic of the name of {source.topic}, and this "
                "one may be a copy of it, whose rows would count again",
                f'write "start": {{"id": "{log.id}", "offsets": [...]}} with the first offset of each '
                "partition that has not counted: 0 if none has, as where the topic was created again",
            )
        return 0, False

    async def _stop(self, state: _Partition, packing: Packing) -> NoReturn:
        """Reads no further, because messages are not of the form that they should be, and says so.

        The owner publishes it, and counts it for the metrics.
        """
        why = "framed" if state.framed == state.strange else "no_objects"
        why = "no_keys" if state.nameless >= _MOST_STRANGE else why
        while True:
            expected, *_ = await self._progress(state.log)
            first = state.first if expected is None else expected
            last = max(first, state.next - 1)
            of = state.log.range(first, last, begins=state.named and expected is None)
            notice = Outgoing("batches", self._source.dataset, packing.nothing(of, why))
            await self._sender.send_and_locate(notice)
            _log.error(
                "the source of %s has stopped: %d messages in a row on %s:%d %s; to count them all the same, "
                'write "unreadable": "count" in the source file',
                *(self._source.dataset, _MOST_STRANGE, *state.log.at, _WHY[why]),
            )
            await asyncio.sleep(_SAY_AGAIN_S)

    async def _check_gap(self, consumer: AIOKafkaConsumer, state: _Partition, offset: int) -> None:
        """Checks why the records that were fetched do not begin where the last ones have ended.

        Raises:
            ServerUnavailable: The topic was created again.
        """
        if offset < state.fetched:
            await self._check_topic(state.log.id)
            _log.warning(
                "%s:%d was read to offset %d, and comes again from offset %d: if its log was cut, its next "
                "records have offsets that others had, and do not count for %s up to that offset",
                *(*state.log.at, state.fetched, offset, self._source.dataset),
            )
        elif state.fetched and offset > state.fetched:
            # Ends of transactions are gaps too, and so are records that were compacted.
            await self._first_left(consumer, state.log.at, state.fetched)

    async def _first_left(
        self, consumer: AIOKafkaConsumer, partition: TopicPartition, wanted: int
    ) -> int:
        """Returns the first offset from ``wanted`` on that the topic may have; warns of those that it had."""
        first: int = (await consumer.beginning_offsets([partition]))[partition]
        if first > wanted:
            _log.warning(
                "records %d to %d of %s:%d were deleted before a counter read them, and can never count for "
                "%s: keep that topic's records for longer",
                *(wanted, first - 1, *partition, self._source.dataset),
            )
        return max(first, wanted)

    async def _batches(self, consumer: AIOKafkaConsumer, state: _Partition, form: _Form) -> None:
        """Sends what is due of one partition. No batch has rows of two periods.

        Rows wait while another partition has rows of an earlier period, which would be late after them.
        """
        source, times, assignment = self._source, form.times, self._reading.assignment
        while assignment == self._reading.assignment:
            looks = state.sent or time.monotonic() - state.looked >= _IDLE_S
            if looks and await self._was_in_vain(state):
                await self._pause()
                await self._stand(consumer, state.log, assignment)
                return
            waited = state.rows and time.monotonic() - state.since >= source.wait_seconds
            ended = state.ended(times)
            is_due = waited or ended or len(state.rows) >= source.batch_rows
            if not is_due or not state.may_send or self._too_early(state, times):
                return
            n_rows = form.packing.fitting(min(ended or len(state.rows), source.batch_rows))
            rows = [state.rows.popleft() for _ in range(n_rows)]
            last, dated_ms = rows[-1].offset, rows[-1].dated_ms
            begins = state.named and not state.begun
            position = rows[-1].position if source.format == "debezium" else None
            source_range = state.log.range(
                state.first, last, begins=begins, position=position, version=form.version
            )
            period = times.period(dated_ms)
            about = None if period is None else times.written(period.since)
            value = form.packing.batch(source_range, [row.values for row in rows], about)
            sent = await self._sender.send_and_locate(Outgoing("batches", source.dataset, value))
            state.first, state.since = last + 1, time.monotonic()
            state.sent.append((state.first, *sent))
            state.asked = time.monotonic()

    def _too_early(self, state: _Partition, times: Times) -> bool:
        """Returns whether another partition has rows of an earlier period, which go first."""
        first = times.period(state.rows[0].dated_ms)
        others = (one.rows[0].dated_ms for one in self._reading.partitions.values() if one.rows)
        return first is not None and any(0 <= other < first.since for other in others)

    async def _was_in_vain(self, state: _Partition) -> bool:
        """Learns what is counted by now; whether something was sent, and taken, and did not count."""
        state.looked = time.monotonic()
        asks = bool(state.sent) and time.monotonic() - state.asked >= _IDLE_S
        if asks:
            state.asked = time.monotonic()
        expected, taken, _ = await self._progress(state.log, state.sent, asks=asks)
        if expected is None:
            return taken
        state.begun = True
        counted = [stop for stop, *_ in state.sent if stop <= expected]
        del state.sent[: len(counted)]
        if counted:
            self._vain = 0
            state.counted = expected
        if expected >= state.first:
            state.go_on_from(expected)
            return False
        return taken or not state.sent

    async def _commit(self, consumer: AIOKafkaConsumer) -> None:
        """Shows in the consumer group what is counted.

        The topic was checked just before. A later topic of its name would begin at an offset of this one.
        """
        for partition, state in list(self._reading.partitions.items()):
            counted, state.counted = state.counted, None
            # If another assignment took the partition away, its next reader knows from the data set.
            with contextlib.suppress(CommitFailedError, IllegalStateError):
                if counted is not None:
                    await consumer.commit({partition: counted})

    async def _progress(
        self, log: SourceLog, sent: Sequence[tuple[int, str, int]] = (), *, asks: bool = False
    ) -> tuple[int | None, bool, int]:
        """The offset that the data set's owner expects next, and whether all that was sent was taken.

        And up to which position change events are counted. All are as of one instant. The offset is None
        while no batch was decided. A data set does not know of batches that were rejected while nobody could
        serve it: with ``asks``, what the consumer group of the workers has taken is read too.
        """
        marks = await self._taken_by_workers() if asks else {}
        of = log.range(0, 0)
        places = [topic_partition for _, topic_partition, _ in sent[-1:]]
        keys = [of.cursor_key, of.position_key, *places]
        read = partial(self._view.cursors, self._source.dataset, keys)
        found = await patiently(read, _ASKING)
        taken = any(max(found.get(at, 0), marks.get(at, 0)) > offset for _, at, offset in sent[-1:])
        return found.get(of.cursor_key), taken, found.get(of.position_key, 0)

    async def _taken_by_workers(self) -> dict[str, int]:
        """``topic:partition`` -> the offset up to which the workers have taken records."""
        admin = AIOKafkaAdminClient(**self._broker.arguments())
        try:
            await admin.start()
            found = await admin.list_consumer_group_offsets(self._workers)
        except KafkaError:
            return {}  # then later
        finally:
            await admin.close()
        return {f"{at.topic}:{at.partition}": one.offset for at, one in found.items()}

    async def _pause(self) -> None:
        """Waits before rows are sent again that did not count: their data set may be quarantined, or gone.

        Or it has other attributes by now. Then all rows that were read are read again.
        """
        await asyncio.sleep(_PAUSES_S[min(self._vain, len(_PAUSES_S) - 1)])
        self._vain += 1
        form = await self._formed()
        if form.version != self._form.version:
            self._form = form
            self._reading.forget()

    async def _formed(self) -> _Form:
        """How rows are read and packed now."""
        source, (definition, universe, mechanism) = self._source, await self._built()
        keys = definition.row_keys
        paths = source.paths(universe, keys)
        packs = EventPacking if source.format == "debezium" else Packing
        packing = packs(source, universe, paths, keys=keys, in_order=bool(mechanism.in_order))
        return _Form(definition.schema_version, paths, keys, packing, Times(definition.phase))

    async def _built(self) -> tuple[Definition, Universe, Mechanism]:
        """The data set's, as soon as it is defined: rows sent before would be rejected."""
        waits = False
        while True:
            definition = await asyncio.to_thread(self._definition_of, self._source.dataset)
            if definition is not None:
                return definition, *build(definition)
            if not waits:
                _log.warning("%s is not defined yet; its source waits", self._source.dataset)
            waits = True
            await asyncio.sleep(2.0)

    async def _check_topic(self, log_id: str) -> None:
        """Checks that the topic is still the one whose offsets say what is counted.

        Raises:
            ServerUnavailable: It was created again. Its rows would count under the offsets of the former one,
                and once more by the worker that starts next.
        """
        if await self._topic_id() != log_id:
            raise ServerUnavailable(
                f"{self._source.topic} was deleted and created again; start this worker again: it then says "
                "how to name the start of the new topic"
            )
        self._checked = time.monotonic()

    async def _topic_id(self) -> str:
        """Tells a topic from a later one of its name."""
        (topic,) = await described_topics(self._broker, [self._source.topic])
        if topic["error_code"] != 0:
            raise ServerUnavailable(
                f"there is no topic {self._source.topic}; fix the source file, or create the topic"
            )
        return str(topic["topic_id"])


async def run_sources(
    settings: WorkerSettings,
    sources: Sequence[TopicSource],
    definition_of: Callable[[str], Definition | None],
) -> None:
    """Reads sources until it is cancelled or one of them fails; see ``SourceReader``."""
    view = view_of(settings)
    sender = Sender(settings.broker, Topics(settings.topic_prefix))
    try:
        await sender.start()
        readers = [
            SourceReader(source, view, sender, definition_of, settings=settings)
            for source in sources
        ]
        async with asyncio.TaskGroup() as tasks:
            for reader in readers:
                tasks.create_task(reader.run())
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from None
    finally:
        await sender.stop()
        await view.close()


class _Assignments(ConsumerRebalanceListener):  # type: ignore[misc]
    """The reading position in our partitions, until they are assigned again.

    Attributes:
        assignment: How often partitions were revoked or assigned so far. Each assignment goes back to the
            committed offsets, so records that were fetched under an earlier one would be read twice.
    """

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, _Partition] = {}
        self.assignment = 0

    async def on_partitions_revoked(self, revoked: Collection[TopicPartition]) -> None:
        """Forgets everything, because partitions that stay ours are read again too."""
        self.forget()

    async def on_partitions_assigned(self, assigned: Collection[TopicPartition]) -> None:
        """Forgets what was set meanwhile: each partition is read from its committed offset on."""
        self.forget()

    def forget(self) -> None:
        """Has all partitions read again from where their rows are counted."""
        self.partitions.clear()
        self.assignment += 1
