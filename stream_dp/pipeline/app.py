"""The Faust application: topics, one agent, and where reading starts. The only module that imports Faust.

What Faust is not trusted with (measured on 0.15.3): its group offset runs ahead of a record whose agent
raised, so reading starts from the watermark in the store; an exception in an agent skips the record, so the
process ends instead; its ``exactly_once`` does not cover records sent to other topics, so it is not used.
"""

from __future__ import annotations

import asyncio
import secrets
import tempfile
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

import faust
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from faust import web
from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from stream_dp.core.noise import NoiseSource, PooledNoise
from stream_dp.errors import ServerUnavailable
from stream_dp.messages import INPUTS, TOPICS, Topics
from stream_dp.pipeline.fuse import CrashPoint, Fuse, kill_at, unarmed
from stream_dp.pipeline.metrics import Metrics
from stream_dp.pipeline.records import Outgoing, Record
from stream_dp.pipeline.worker import Worker
from stream_dp.settings import WorkerSettings
from stream_dp.state.redis import RedisStore

__all__ = ["Runtime", "StreamApp", "create_app"]

_GROUP_SIZE = 64
_GROUP_WAIT_S = 0.005
_STORE_CHECK_S = 5.0
_LARGEST_MESSAGE = max(topic.max_message_bytes for topic in TOPICS.values())


class _Consumer(driver.Consumer):
    """Starts each partition where the store says, not where the consumer group does.

    Faust calls this after every rebalance and whenever it resumes a paused flow.
    """

    async def seek_to_committed(self) -> Mapping[TP, int]:
        app: StreamApp = self.app
        worker = app.runtime.worker
        assigned = {tp for tp in self.assignment() if app.is_input(tp.topic)}
        await worker.assigned({tp.partition for tp in assigned})
        stored = await worker.positions(f"{tp.topic}:{tp.partition}" for tp in assigned)
        earliest = await self.earliest_offsets(*assigned)
        positions = {}
        for tp in assigned:
            position = stored.get(f"{tp.topic}:{tp.partition}", earliest[tp])
            if position < earliest[tp]:
                raise ServerUnavailable(
                    f"records of {tp.topic} partition {tp.partition} from {position} on were deleted "
                    f"before they were read; restore them, or raise retention.ms and start afresh"
                )
            positions[tp] = position
        await self.seek_wait(positions)
        return positions


class _Transport(driver.Transport):
    Consumer = _Consumer


class Runtime:
    """What the worker stands on: the store's connection, the producer, and the tasks beside the agent."""

    def __init__(self, settings: WorkerSettings, noise: NoiseSource, fuse: Fuse) -> None:
        self.names = Topics(settings.topic_prefix)
        self.metrics = Metrics()
        self._settings = settings
        self._noise = noise
        self._fuse = fuse

    async def start(self) -> None:
        """Opens the connections and makes the worker.

        Raises:
            ServerUnavailable: No broker there, or the topics are not as they must be.
            UnsafeStore: The store could forget an acknowledged commit.
        """
        settings = self._settings
        store = self._store = RedisStore.from_url(
            settings.redis_url,
            prefix=settings.redis_prefix,
            cluster=settings.redis_cluster,
            durability_declared=settings.redis_durability == "declared",
        )
        partitions = await self._partitions()
        for role in INPUTS:
            recorded = await store.partitions(self.names.name(role), partitions)
            if recorded != partitions:
                raise ServerUnavailable(
                    f"{self.names.name(role)} has {partitions} partitions but had {recorded}: data sets "
                    "would change their owner and their read positions. Restore the old count"
                )
        self._producer = AIOKafkaProducer(
            bootstrap_servers=settings.bootstrap_servers,
            acks="all",
            enable_idempotence=True,
            max_request_size=_LARGEST_MESSAGE,
        )
        await self._producer.start()
        secret = settings.secret.get_secret_value().encode() if settings.secret else None
        self.worker = Worker(
            store,
            self._noise,
            self._send,
            partitions=partitions,
            secret=secret or secrets.token_bytes(32),
            metrics=self.metrics,
            fuse=self._fuse,
        )
        await self.worker.check_store()

    async def stop(self) -> None:
        """Closes what was opened."""
        if hasattr(self, "_producer"):
            await self._producer.stop()
        if hasattr(self, "_store"):
            await self._store.close()

    async def watch_store(self) -> None:
        """Raises UnsafeStore as soon as the store's settings have drifted."""
        while True:
            await asyncio.sleep(_STORE_CHECK_S)
            await self.worker.check_store()

    async def _partitions(self) -> int:
        """Partitions of the input topics, which must be alike."""
        names = [self.names.name(role) for role in INPUTS]
        admin = AIOKafkaAdminClient(bootstrap_servers=self._settings.bootstrap_servers)
        try:
            await admin.start()
            described = await admin.describe_topics(names)
        except KafkaError as error:
            raise ServerUnavailable(
                f"no Kafka broker at {self._settings.bootstrap_servers}: {error}"
            ) from error
        finally:
            await admin.close()
        missing = [topic["topic"] for topic in described if topic["error_code"] != 0]
        if missing:
            raise ServerUnavailable(
                f"topics {', '.join(missing)} do not exist; run: stream-dp topics create"
            )
        counts = {topic["topic"]: len(topic["partitions"]) for topic in described}
        if len(set(counts.values())) != 1:
            raise ServerUnavailable(f"the input topics differ in their partitions: {counts}")
        return counts[names[0]]

    async def _send(self, record: Outgoing) -> Awaitable[object]:
        try:
            future: Awaitable[object] = await self._producer.send(
                self.names.name(record.role),
                key=record.key.encode(),
                value=record.value or None,
                headers=list(record.headers),
            )
        except KafkaError as error:
            raise ServerUnavailable(f"the broker took no record: {error}") from error
        return _translated(future)


async def _translated(future: Awaitable[object]) -> object:
    try:
        return await future
    except KafkaError as error:
        raise ServerUnavailable(f"the broker took no record: {error}") from error


class StreamApp(faust.App):
    """A Faust app around a ``Runtime``."""

    def __init__(self, settings: WorkerSettings, runtime: Runtime) -> None:
        self.runtime = runtime
        self.failure: BaseException | None = None
        data_dir = settings.data_dir or str(Path(tempfile.gettempdir()) / settings.group_id)
        super().__init__(
            settings.group_id,
            broker=[f"kafka://{server}" for server in settings.bootstrap_servers.split(",")],
            store="memory://",
            datadir=data_dir,
            topic_disable_leader=True,
            topic_allow_declare=False,
            stream_wait_empty=False,
            stream_buffer_maxsize=_GROUP_SIZE,
            broker_commit_interval=1.0,
            broker_session_timeout=settings.session_timeout_s,
            broker_heartbeat_interval=settings.session_timeout_s / 5,
            broker_rebalance_timeout=30.0,
            broker_max_poll_records=_GROUP_SIZE,
            broker_max_poll_interval=300.0,
            consumer_max_fetch_size=_LARGEST_MESSAGE,
            consumer_auto_offset_reset="earliest",
            consumer_group_instance_id=settings.instance_id or "",
            worker_redirect_stdouts=False,
            web_port=settings.web_port,
            web_bind=settings.web_bind,
            web_host=settings.web_bind,
        )
        self.transport = _Transport(self.conf.broker_consumer, self, self.loop)

    def is_input(self, topic: str) -> bool:
        """Faust has topics of its own; these are ours."""
        return self.runtime.names.role(topic) in INPUTS

    async def on_start(self) -> None:
        await super().on_start()
        try:
            await self.runtime.start()
        except BaseException as error:
            self.failure = error
            raise
        self.add_future(self._stop_on_failure(self.runtime.worker.run_releaser))
        self.add_future(self._stop_on_failure(self.runtime.watch_store))

    async def on_stop(self) -> None:
        await super().on_stop()
        await self.runtime.stop()

    async def fail(self, error: BaseException) -> None:
        """Ends the process: whatever is not committed is read again by the next one."""
        self.failure = error
        await self.crash(error)
        await asyncio.Event().wait()

    async def _stop_on_failure(self, task: Callable[[], Awaitable[None]]) -> None:
        try:
            await task()
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # noqa: BLE001 - nothing may be skipped: the process ends
            await self.fail(error)


def create_app(settings: WorkerSettings, noise: NoiseSource | None = None) -> StreamApp:
    """A worker's app, ready to be run by ``faust.Worker``."""
    fuse: Fuse = unarmed
    if settings.crash_at:
        point, _, times = settings.crash_at.partition(":")
        fuse = kill_at(CrashPoint(point), int(times or 1))
    runtime = Runtime(settings, noise or PooledNoise(), fuse)
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
        async for events in stream.take_events(_GROUP_SIZE, within=_GROUP_WAIT_S):
            try:
                await runtime.worker.process([_record(runtime.names, event) for event in events])
            except asyncio.CancelledError:
                raise
            except BaseException as error:  # noqa: BLE001 - reading on would skip the record
                await app.fail(error)

    @app.on_partitions_revoked.connect
    async def revoked(_: StreamApp, partitions: set[TP], **__: Any) -> None:
        runtime.worker.revoked({tp.partition for tp in partitions if app.is_input(tp.topic)})

    @app.page("/healthz")
    async def health(view: web.View, _: web.Request) -> web.Response:
        """200 once partitions are assigned: the worker then answers."""
        ready = runtime.worker.ready
        return view.json({"status": "ok" if ready else "starting"}, status=200 if ready else 503)

    @app.page("/metrics")
    async def metrics(view: web.View, _: web.Request) -> web.Response:
        return view.bytes(runtime.metrics.exposition(), content_type="text/plain")

    return app


def _record(names: Topics, event: Any) -> Record:
    message = event.message
    return Record(
        role=names.role(message.topic),
        topic=message.topic,
        partition=message.partition,
        offset=message.offset,
        key=message.key,
        value=message.value,
        headers=dict(event.headers or {}),
    )
