"""The Faust application: topics, one agent, and where reading starts. The only module that imports Faust.

What Faust is not trusted with (measured on 0.15.3): its group offset runs ahead of a record whose agent
raised, so reading starts from the watermark on the journal; an exception in an agent skips the record, so the
process ends instead; its ``exactly_once`` does not cover records sent to other topics, so it is not used.
What Faust costs for each event (240 us on its way through consumer, conductor and stream, as much as
answering a query) is paid once for a bunch of records: see ``_Bunches``.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import faust
from aiokafka import AIOKafkaConsumer
from aiokafka.errors import IllegalStateError, KafkaError
from faust import SASLCredentials, SSLCredentials, web
from faust.exceptions import ConsumerNotStarted
from faust.transport.drivers import aiokafka as driver
from faust.transport.utils import DefaultSchedulingStrategy
from faust.types import TP
from faust.types.tuples import ConsumerMessage

from stream_dp.broker import Broker
from stream_dp.core.randomness.noise_sources import PooledNoise
from stream_dp.errors import ServerUnavailable
from stream_dp.messages import INPUTS, Topics
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.intake.ownership import GROUP_SIZE, cut_off
from stream_dp.pipeline.intake.records import Record
from stream_dp.pipeline.kafka import parser
from stream_dp.pipeline.kafka.sender import LARGEST_MESSAGE
from stream_dp.pipeline.runtime import Runtime
from stream_dp.pipeline.watch.crash_points import CrashPoint, kill_at
from stream_dp.pipeline.watch.health import Health
from stream_dp.pipeline.watch.watchdog import Watchdog
from stream_dp.settings import WorkerSettings

_log = logging.getLogger(__name__)

_BUNCH_SIZE = GROUP_SIZE // 2
_AHEAD = 2 * GROUP_SIZE
_PAUSE_S = 0.002
_LAST_WORDS_S = 30.0
_GROUP_CHECK_S = 5.0
_LEFTOVERS_CHECK_S = 5.0


class _Bunches(DefaultSchedulingStrategy):
    """Makes Faust hand over what was fetched of a partition in bunches, each as one message."""

    def iterate(self, records: Mapping[TP, list[Any]]) -> Iterator[tuple[TP, Any]]:
        bunches = {
            tp: [some[at : at + _BUNCH_SIZE] for at in range(0, len(some), _BUNCH_SIZE)]
            for tp, some in records.items()
        }
        found: Iterator[tuple[TP, Any]] = super().iterate(bunches)
        return found


class _Bunch(ConsumerMessage):
    """Records of one partition, in order. It stands at the offset of the last one."""

    __slots__ = ("records",)

    def __init__(self, tp: TP, records: list[Any], generation: int) -> None:
        last = records[-1]
        super().__init__(
            *(tp.topic, tp.partition, last.offset, last.timestamp / 1000, last.timestamp_type),
            *(None, None, None, None),
            tp=tp,
            generation_id=generation,
        )
        self.records = records


class _Thread(driver.AIOKafkaConsumerThread):
    """Reads what is committed: records of an aborted transaction were never sent.

    A log ends, for us, where the first transaction begins that is still open: what lies behind it waits.
    """

    def _create_worker_consumer(self, transport: Any) -> AIOKafkaConsumer:
        consumer: AIOKafkaConsumer = super()._create_worker_consumer(transport)
        consumer._isolation_level = "read_committed"  # noqa: SLF001 - Faust decides it by other things
        return consumer

    def highwater(self, tp: TP) -> int | None:
        end: int | None = self._ensure_consumer().last_stable_offset(tp)
        return end


class _Consumer(driver.Consumer):
    """Starts each partition where the journal says, not where the consumer group does, and reads bunches."""

    def _new_consumer_thread(self) -> _Thread:
        return _Thread(self, loop=self.loop, beacon=self.beacon)

    def verify_event_path(self, now: float, tp: TP) -> None:
        # What Faust compares is not known for a moment where records were deleted that were to come next. It
        # would end the worker, and compares again soon.
        with contextlib.suppress(AssertionError):
            super().verify_event_path(now, tp)

    async def getmany(
        self,
        timeout: float,  # noqa: ASYNC109 - Faust's interface
    ) -> AsyncIterator[tuple[TP, _Bunch]]:
        # What Faust has for a busy worker is to pause partitions, and to sleep for a second when all are.
        # Fetched later, the same records come in fewer and larger bunches.
        while self.app.waiting >= _AHEAD:
            await self.sleep(_PAUSE_S)
        async for tp, bunch in super().getmany(timeout):
            yield tp, bunch

    def _to_message(self, tp: TP, record: Any) -> _Bunch:
        before = self.app.fetched.get(tp, 0)
        if record[0].offset > before:
            self.app.gaps.setdefault(tp, before)
        self.app.fetched[tp] = record[-1].offset + 1
        return _Bunch(tp, record, self.app.consumer_generation_id)

    # The group's offset is for those who watch it. Bunches are done in order and stand for all their records,
    # so the last one says it. Faust would work out with each of them what lies in between.
    async def _add_gap(self, tp: TP, offset_from: int, offset_to: int) -> None:
        pass

    def _new_offset(self, tp: TP) -> int | None:
        done: list[int] = self._acked[tp]
        if not done:
            return None
        end = done[-1] + 1
        done.clear()
        self._acked_index[tp].clear()
        return end

    # Faust calls this after every rebalance and whenever it resumes a paused flow.
    async def seek_to_committed(self) -> Mapping[TP, int]:
        try:
            return await self._seek_to_stored()
        except IllegalStateError:  # another rebalance, and with it another call
            raise
        except Exception as error:
            # Faust may only warn of it, and read on from where no one knows.
            if not self.app.should_stop:
                await self.app.fail(error)
            raise

    async def _seek_to_stored(self) -> Mapping[TP, int]:
        app: StreamApp = self.app
        worker = app.runtime.worker
        # In this order: the consumer's thread changes the assignment first and the generation after it.
        generation = app.consumer_generation_id
        assignment = self.assignment()
        inputs = [tp for tp in assignment if app.is_input(tp.topic)]
        held = {tp.partition for tp in inputs}
        for role in INPUTS:
            topic = app.runtime.names.name(role)
            if {tp.partition for tp in inputs if tp.topic == topic} != held:
                # Faust would go on without it. The owner of a data set must read all three.
                raise ServerUnavailable(
                    f"{topic} was deleted, or has another number of partitions than the other topics; "
                    "restore it"
                )
        worker.assigned(held, generation)
        end: dict[TP, int] = {}

        async def ask(read: Mapping[str, int]) -> dict[str, tuple[int, int]]:
            first = await self.earliest_offsets(*inputs)
            end.update(await self.highwaters(*inputs))
            for tp in inputs:
                if end[tp] < read.get(_topic_partition(tp), 0):
                    end[tp] = await app.runtime.end_of(
                        _topic_partition(tp), read[_topic_partition(tp)]
                    )
            return {_topic_partition(tp): (first[tp], end[tp]) for tp in inputs}

        stored = await worker.positions(ask)
        if (app.consumer_generation_id, self.assignment()) != (generation, assignment):
            raise IllegalStateError("the partitions were assigned again in the meantime")
        # What comes of a partition that was cut is dropped.
        positions = {tp: stored.get(_topic_partition(tp), end[tp]) for tp in inputs}
        app.fetched.update(positions)
        await self.seek_wait(positions)
        worker.ownership.reading_from(stored, generation)
        return positions


def _topic_partition(tp: TP) -> str:
    return f"{tp.topic}:{tp.partition}"


def _credentials(broker: Broker) -> SASLCredentials | SSLCredentials | None:
    arguments = broker.arguments()
    context = arguments.get("ssl_context")
    if broker.authenticates:
        return SASLCredentials(
            username=broker.username,
            password=broker.password,
            mechanism=broker.sasl_mechanism,
            ssl_context=context,
        )
    return SSLCredentials(context) if broker.encrypts else None


class _Transport(driver.Transport):
    Consumer = _Consumer


class StreamApp(faust.App):
    """A Faust app around a ``Runtime``."""

    def __init__(self, settings: WorkerSettings, runtime: Runtime) -> None:
        self.runtime = runtime
        self.inbox: asyncio.Queue[Any] = asyncio.Queue()
        self.waiting = 0  # records in the inbox
        self.fetched: dict[TP, int] = {}  # the offset behind the last record that was handed over
        self.gaps: dict[TP, int] = {}  # the same, where the record after it has not followed
        self.side_tasks: list[
            Callable[[], Awaitable[None]]
        ] = []  # tasks whose failure ends the worker
        self.failure: BaseException | None = None
        self.say_failure: Callable[[], None] = lambda: None  # called before the process ends itself
        self._patience_s = settings.stall_timeout_s
        data_dir = settings.data_dir or str(Path(tempfile.gettempdir()) / settings.group_id)
        super().__init__(
            settings.group_id,
            broker=[f"kafka://{server}" for server in settings.bootstrap_servers.split(",")],
            broker_credentials=_credentials(settings.broker),
            store="memory://",
            datadir=data_dir,
            topic_disable_leader=True,
            topic_allow_declare=False,
            stream_wait_empty=False,
            broker_commit_interval=1.0,
            broker_session_timeout=settings.session_timeout_s,
            broker_heartbeat_interval=settings.session_timeout_s / 5,
            broker_rebalance_timeout=30.0,
            broker_max_poll_records=8 * GROUP_SIZE,
            broker_max_poll_interval=300.0,
            consumer_max_fetch_size=LARGEST_MESSAGE,
            ConsumerScheduler=_Bunches,
            consumer_auto_offset_reset="earliest",
            consumer_group_instance_id=settings.instance_id,
            # A static member gets its old assignment back, and Faust stops at one that names another address.
            canonical_url=f"http://worker/{settings.instance_id}" if settings.instance_id else None,
            worker_redirect_stdouts=False,
            web_port=settings.web_port,
            web_bind=settings.web_bind,
            web_host=settings.web_bind,
            # They tell where the workers are, and ask other hosts; there are no tables.
            web_router_enabled=False,
            web_tables_enabled=False,
        )
        self.transport = _Transport(self.conf.broker_consumer, self, self.loop)

    def is_input(self, topic: str) -> bool:
        """Returns whether a topic is one of our inputs. Faust has topics of its own."""
        return self.runtime.names.role(topic) in INPUTS

    async def on_start(self) -> None:
        # Records are fetched in a thread of its own. With Python's 5 ms that thread waits for the worker's
        # again and again, and the worker then for records.
        sys.setswitchinterval(0.001)
        await super().on_start()
        try:
            await self.runtime.start()
        except BaseException as error:
            self.failure = error
            raise
        worker = self.runtime.worker
        self.runtime.context.metrics.lags = self._lags
        for task in (
            worker.run_owner,
            worker.releaser.run,
            worker.following.run,
            worker.rounds.run,
            worker.run_keeper,
            worker.closings.run,
            self._take_groups,
            self.runtime.watch_view,
            self.runtime.watch_topics,
            self.runtime.watch_broker,
            self.runtime.watch_keys,
            self._watch_group,
            self._pass_leftovers,
            *self.side_tasks,
        ):
            self.add_future(self._stop_on_failure(task))
        self._watchdog = Watchdog(
            lambda: worker.context.heartbeat.count,
            self._has_work,
            lambda: self._end(f"there was work, and for {self._patience_s:g} s none was done"),
            patience_s=self._patience_s,
        )
        self._watchdog.start()

    async def on_stop(self) -> None:
        await super().on_stop()
        await self.runtime.stop()

    def health(self) -> Health:
        """Returns the health of this worker, for its operator."""
        if not self.runtime.started:
            return Health()
        worker = self.runtime.worker
        lags = self._lags() if worker.ready else ()  # before that there is no consumer to ask
        return Health(
            ready=worker.ready,
            partitions=tuple(sorted(worker.ownership.held)),
            behind=sum(records for _, _, records in lags),
            broker_away_since=self.runtime.broker.away_since,
            store_away_since=worker.following.contact.away_since,
            waiting={
                name: dataset.rows.waiting.n_rows_to_come
                for name, dataset in worker.datasets.items()
            },
            quarantined={
                name: dataset.quarantined
                for name, dataset in worker.datasets.items()
                if dataset.quarantined
            },
            stopped=dict(worker.stopped),
            deleted=dict(worker.ownership.deleted),
        )

    async def _take_groups(self) -> None:
        """Takes whatever has come since the last group: one record when idle, many under load."""
        worker = self.runtime.worker
        while True:
            events, records = [], []
            if not worker.behind:
                events.append(await self.inbox.get())
                records = _records(self.runtime.names, events[0].message)
            while (
                worker.backlog.accepts
                and len(records) <= GROUP_SIZE - _BUNCH_SIZE
                and not self.inbox.empty()
            ):
                events.append(self.inbox.get_nowait())
                records += _records(self.runtime.names, events[-1].message)
            self.waiting -= len(records)
            await worker.take(records)
            for event in events:
                event.ack()

    async def fail(self, error: BaseException) -> None:
        """Ends the process: whatever is not committed is read again by the next one."""
        self.failure = self.failure or error
        # Faust's own way out waits for things that may never come, such as a broker that is gone.
        last = threading.Timer(_LAST_WORDS_S, self._end, ["it failed and did not stop by itself"])
        last.daemon = True
        last.start()
        await self.crash(error)
        await asyncio.Event().wait()

    async def _watch_group(self) -> None:
        """Raises when aiokafka has left the group for good, or reads another log: it only logs that."""
        while True:
            await asyncio.sleep(_GROUP_CHECK_S)
            consumer = self.consumer._thread._consumer  # noqa: SLF001 - nothing public tells
            if consumer is not None and consumer._coordinator is not None:  # noqa: SLF001
                try:
                    consumer._coordinator.check_errors()  # noqa: SLF001
                except KafkaError as error:
                    raise ServerUnavailable(f"the consumer group was lost ({error})") from error
            for topic_partition, read, end in self._read():
                if read is None or end is None or end >= read:
                    continue
                end = await self.runtime.end_of(topic_partition, read)
                if end < read:
                    await self.runtime.worker.found_cut(topic_partition, read, end)
                    raise ServerUnavailable(cut_off(topic_partition, read, end))

    async def _pass_leftovers(self) -> None:
        """Moves positions past what no reader is shown, where nothing else is left to read."""
        while True:
            await asyncio.sleep(_LEFTOVERS_CHECK_S)
            await self._look_into_gaps()
            starts = {}
            for topic_partition, read, end in self._read():
                taken = self.runtime.worker.ownership.next_offset(topic_partition)
                if taken is not None and end is not None and taken < end == read:
                    starts[topic_partition] = taken
            if starts:
                await self.runtime.pass_leftovers(starts)

    async def _look_into_gaps(self) -> None:
        """Tells what a transaction leaves between records from records that were deleted there.

        The consumer goes on, without a word, at the first record that there is.
        """
        gaps, self.gaps = self.gaps, {}
        if not gaps:
            return
        try:
            first = await self.consumer.earliest_offsets(*gaps)
        except (KafkaError, ConsumerNotStarted):
            self.gaps = {**self.gaps, **gaps}  # then later
            return
        for tp, before in gaps.items():
            if first[tp] > before:
                ownership = self.runtime.worker.ownership
                ownership.report_deleted(_topic_partition(tp), before, first[tp])

    def _read(self) -> Iterator[tuple[str, int | None, int | None]]:
        """Each partition that is read: the offset behind the last record taken, and the last known end.

        What a transaction leaves on the log behind its records is nobody's to take: where all that was
        fetched is taken, it counts as taken too.
        """
        worker = self.runtime.worker
        assigned: list[TP] = []
        with contextlib.suppress(ConsumerNotStarted):  # Prometheus may come first
            assigned += self.consumer.assignment()
        for tp in assigned:
            is_read = tp.partition not in worker.aside and _topic_partition(tp) not in worker.cut
            if self.is_input(tp.topic) and is_read:
                # The end is asked for second, so that it is never behind what was taken.
                read = worker.ownership.next_offset(_topic_partition(tp))
                with contextlib.suppress(Exception):  # a rebalance in between
                    if read is not None and read >= self.fetched.get(tp, 0):
                        read = max(read, self._fetch_position(tp))
                    yield _topic_partition(tp), read, self.consumer.highwater(tp)

    def _fetch_position(self, tp: TP) -> int:
        """Returns the offset at which the next fetch begins."""
        consumer = self.consumer._thread._consumer  # noqa: SLF001 - nothing public tells without waiting
        assignment = consumer._subscription.subscription.assignment  # noqa: SLF001
        position: int = assignment.state_value(tp).position
        return position

    def _lags(self) -> Iterator[tuple[str, int, int]]:
        """Records that are still to be taken, by the role of a topic and its partition."""
        for topic_partition, read, end in self._read():
            if read is not None and end is not None:
                topic, _, partition = topic_partition.rpartition(":")
                yield self.runtime.names.role(topic), int(partition), max(0, end - read)

    def _has_work(self) -> bool:
        """Returns whether something is in hand, or waits in the log."""
        if self.runtime.worker.busy:
            return True
        return any(read is None or (end or 0) > read for _, read, end in self._read())

    def _end(self, why: str) -> None:
        """Ends the process at once, as a kill would: every step can be cut short."""
        _log.critical("this worker ends itself: %s", self.failure or why)
        self.say_failure()
        os._exit(1)

    async def _stop_on_failure(self, task: Callable[[], Awaitable[None]]) -> None:
        try:
            await task()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - nothing may be skipped: the process ends
            await self.fail(error)


def create_app(settings: WorkerSettings) -> StreamApp:
    """A worker's app, ready to be run by ``faust.Worker``."""
    context = Context()
    if settings.crash_at:
        point, _, times = settings.crash_at.partition(":")
        context = Context(kill_at(CrashPoint(point), int(times or 1)))
    parser.install()
    runtime = Runtime(settings, PooledNoise, context)
    app = StreamApp(settings, runtime)
    inputs = app.topic(
        *(runtime.names.name(role) for role in INPUTS),
        key_type=bytes,
        value_type=bytes,
        key_serializer="raw",
        value_serializer="raw",
    )

    @app.agent(inputs, concurrency=1)
    async def take(stream: Any) -> None:
        async for event in stream.noack().events():
            app.waiting += len(event.message.records)
            app.inbox.put_nowait(event)

    @app.on_partitions_revoked.connect
    async def revoked(_: StreamApp, partitions: set[TP], **__: Any) -> None:
        runtime.worker.revoked({tp.partition for tp in partitions if app.is_input(tp.topic)})

    @app.page("/healthz")
    async def health(view: web.View, _: web.Request) -> web.Response:
        """200 once partitions are assigned: the worker then answers."""
        ready = runtime.ready
        return view.json({"status": "ok" if ready else "starting"}, status=200 if ready else 503)

    @app.page("/metrics")
    async def metrics(view: web.View, _: web.Request) -> web.Response:
        return view.bytes(runtime.context.metrics.exposition(), content_type="text/plain")

    return app


def _records(names: Topics, bunch: _Bunch) -> list[Record]:
    role = names.role(bunch.topic)
    return [
        Record.received(role, bunch.topic, bunch.partition, record, bunch.generation_id)
        for record in bunch.records
    ]
