"""The connections of a worker, and the checks that it can trust them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from aiokafka.errors import KafkaError

from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.errors import ServerUnavailable, StoreError, UnsafeTopics
from stream_dp.messages import INPUTS, PRIVATE, Topics
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.journal.journal import facts_of
from stream_dp.pipeline.kafka.gaps import past_leftovers
from stream_dp.pipeline.kafka.patience import patiently
from stream_dp.pipeline.kafka.sender import Sender
from stream_dp.pipeline.kafka.servers import (
    batches_last_s,
    check_topics,
    described_topics,
    no_broker,
    view_of,
)
from stream_dp.pipeline.kafka.topic_log import KafkaInputReader, KafkaLog, KeyedTopic, end_of
from stream_dp.pipeline.repair.witnesses import WITNESSES
from stream_dp.pipeline.rows.column_cache import ColumnCache
from stream_dp.pipeline.rows.counting_cluster import CountingCluster
from stream_dp.pipeline.rows.slab_files import files_of
from stream_dp.pipeline.watch.health import Contact
from stream_dp.pipeline.worker import Worker, WorkerRules, WorkerTopics
from stream_dp.settings import WorkerSettings
from stream_dp.tokens import verifier_of

_log = logging.getLogger(__name__)

_USAGE_S = 5.0
_BROKER_CHECK_S = 2.0
_TOPICS_CHECK_S = 600.0

_COLLECTED_AFTER = (20_000, 10, 50)
"""A worker keeps most of what it makes, such as ids, and leaves few cycles. With Python's own thresholds it
spent an eighth of its time, and pauses of 0.1 s, on looking for more."""


class Runtime:
    """The connections and the worker on them; anyone who runs it also runs its ``watch_`` tasks.

    Attributes:
        verifier: What verifies the tokens that queries carry. None where they need none.

    Raises:
        InvalidInput: A setting about these tokens is wrong.
    """

    def __init__(
        self, settings: WorkerSettings, noise: Callable[[], NoiseSource], context: Context
    ) -> None:
        self.names = Topics(settings.topic_prefix)
        self.context = context
        self.broker = Contact()
        self.verifier = verifier_of(settings)
        self._settings = settings
        self._noise = noise
        self._worker: Worker | None = None
        self._opened = contextlib.AsyncExitStack()

    @property
    def started(self) -> bool:
        """Whether ``start`` has made the worker."""
        return self._worker is not None

    @property
    def ready(self) -> bool:
        """Whether requests are answered."""
        return self._worker is not None and self._worker.ready

    @property
    def worker(self) -> Worker:
        """The worker. Only a runtime that has started has one."""
        assert self._worker is not None, "the caller waits for start()"
        return self._worker

    async def start(self) -> None:
        """Opens the connections and makes the worker.

        Raises:
            ServerUnavailable: No broker answers, or the topics are not as they must be. Or the keys for
                tokens cannot be fetched.
            InvalidInput: The keys for tokens cannot be read.
            UnsafeTopics: A setting of the topics is not.
        """
        settings = self._settings
        if self.verifier is not None:
            await asyncio.to_thread(self.verifier.load)
            self.context.metrics.keys = self.verifier
        topics = await self._topics()
        await self._check_topics()
        identities = {role: str(topic["topic_id"]) for role, topic in topics.items()}
        partitions = _partitions([topics[role] for role in (*INPUTS, *PRIVATE)])
        facts = facts_of(partitions, {role: identities[role] for role in INPUTS})
        view = self._view = view_of(settings, identities["journal"])
        self._opened.push_async_callback(view.close)
        # A connection has one request under way: no commit is to wait until the last one's output has left.
        sender = self._sender = await self._connected()
        keeper = await self._connected()

        def log(role: str) -> KafkaLog:
            name, count = topics[role]["name"], len(topics[role]["partitions"])
            found = KafkaLog(settings.broker, name, count, keeper.producer)
            self._opened.push_async_callback(found.close)
            return found

        worker = Worker(
            view,
            self._noise,
            sender.send,
            WorkerTopics(
                log("journal"),
                KafkaInputReader(settings.broker, self.names),
                KeyedTopic(log("blocks")),
                {role: log(role) for role in WITNESSES},
                partitions,
            ),
            WorkerRules(
                facts=facts,
                key_file=settings.person_key(),
                verifier=self.verifier,
                files=await asyncio.to_thread(files_of, settings),
                cluster=self._cluster(),
                cache=ColumnCache(settings.block_cache_mb << 20),
                batches_last_s=await batches_last_s(settings.broker, self.names),
            ),
            self.context,
        )
        await worker.journal.check_facts()
        self._opened.push_async_callback(worker.put_down)
        self._worker = worker
        gc.collect()
        gc.freeze()  # what is there by now stays, and looking through all of it again takes 100 ms each time
        gc.set_threshold(*_COLLECTED_AFTER)

    async def stop(self) -> None:
        """Closes what was opened, the newest first."""
        await self._opened.aclose()

    async def watch_view(self) -> None:
        """Notes what Redis has used of its memory."""
        while True:
            await asyncio.sleep(_USAGE_S)
            with contextlib.suppress(StoreError):
                self.context.metrics.usage = await self._view.usage()

    async def watch_topics(self) -> None:
        """Raises UnsafeTopics when the settings of topics have drifted."""
        while True:
            await asyncio.sleep(_TOPICS_CHECK_S)
            try:
                await self._check_topics()
            except UnsafeTopics as error:
                self.worker.cut_short(error)
                raise
            except ServerUnavailable as error:
                _log.warning("the settings of the topics were not checked: %s", error)

    async def _check_topics(self) -> None:
        tokens = self.verifier is not None
        await check_topics(self._settings.broker, self.names, tokens=tokens)

    async def watch_keys(self) -> None:
        """Reads the keys for tokens again when they may have changed."""
        if self.verifier is not None:
            await self.verifier.watch()

    async def watch_broker(self) -> None:
        """Notes whether the broker answers: its clients wait for it by themselves, and tell nobody."""
        while True:
            await asyncio.sleep(_BROKER_CHECK_S)
            if await self._sender.broker_answers():
                self.broker.heard()
            else:
                self.broker.lost()

    async def end_of(self, topic_partition: str, read: int) -> int:
        """Returns where a log ends that seems to end before the offset up to which it was read."""
        asked = partial(end_of, self._settings.broker, topic_partition, read)
        return await patiently(asked, f"asking where {topic_partition} ends")

    async def pass_leftovers(self, starts: Mapping[str, int]) -> None:
        """Moves positions past what transactions have left on the log, where nothing else follows."""
        with contextlib.suppress(KafkaError):  # then later
            ends = await past_leftovers(self._settings.broker, starts)
            for topic_partition, end in ends.items():
                await self.worker.pass_over(topic_partition, starts[topic_partition], end)

    def _cluster(self) -> CountingCluster | None:
        """The Dask cluster that the settings name. None if looks are counted here."""
        settings = self._settings
        if settings.count_with is None:
            return None
        tls = settings.count_tls_ca, settings.count_tls_cert, settings.count_tls_key
        found = CountingCluster(settings.count_with, tls, self.context.heartbeat.beat)
        self._opened.callback(found.close)
        return found

    async def _connected(self) -> Sender:
        """A connection to the broker for sending."""
        sender = Sender(self._settings.broker, self.names)
        self._opened.push_async_callback(sender.stop)
        try:
            await sender.start()
        except KafkaError as error:
            raise no_broker(self._settings.broker, error) from error
        return sender

    async def _topics(self) -> dict[str, dict[str, Any]]:
        """The topics that a worker needs, by their roles, as the broker describes them."""
        names = {self.names.name(role): role for role in (*INPUTS, *PRIVATE, *WITNESSES)}
        described = await described_topics(self._settings.broker, [*names])
        missing = [topic["name"] for topic in described if topic["error_code"] != 0]
        if missing:
            raise ServerUnavailable(
                f"topics {', '.join(missing)} do not exist; run: {self.names.creating()}"
            )
        return {names[topic["name"]]: topic for topic in described}


def _partitions(topics: Sequence[Mapping[str, Any]]) -> int:
    """Returns the number of partitions of each of these topics: all must have the same number."""
    counts = {topic["name"]: len(topic["partitions"]) for topic in topics}
    if len(set(counts.values())) != 1:
        shown = ", ".join(f"{name} {count}" for name, count in counts.items())
        raise ServerUnavailable(
            f"the topics differ in their number of partitions: {shown}; stream-dp doctor says how to fix it"
        )
    return next(iter(counts.values()))
