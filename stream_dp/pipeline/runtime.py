"""The store, the producer and the second witness of a worker, and the checks that it can trust them."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from aiokafka.errors import KafkaError

from stream_dp.broker import Broker
from stream_dp.core.noise import NoiseSource
from stream_dp.errors import RolledBack, ServerUnavailable, StoreUnavailable
from stream_dp.messages import INPUTS, Event, Topics
from stream_dp.pipeline.connecting import described_topics, no_broker, store_of
from stream_dp.pipeline.decoding import partition_of
from stream_dp.pipeline.fuse import Fuse
from stream_dp.pipeline.health import Contact
from stream_dp.pipeline.leftovers import past_leftovers
from stream_dp.pipeline.metrics import Metrics
from stream_dp.pipeline.records import Outgoing
from stream_dp.pipeline.retrying import persistently
from stream_dp.pipeline.sending import Sender
from stream_dp.pipeline.store_watch import StoreWatch
from stream_dp.pipeline.witness import LedgerTopic, Witness
from stream_dp.pipeline.worker import Worker
from stream_dp.settings import WorkerSettings
from stream_dp.state.redis import RedisStore

__all__ = ["Runtime"]

_log = logging.getLogger(__name__)

_STORE_CHECK_S = 5.0
_BROKER_CHECK_S = 2.0
_WITNESS_CHECK_S = 300.0
_STRANGER_RETRY_S = 1.0

_T = TypeVar("_T")


class _Comparison:
    """Compares the store with the ledger topic.

    Args:
        looking: A store that may speak to any server. The worker's own speaks to those that were compared.
    """

    def __init__(
        self, broker: Broker, looking: RedisStore, witness: Witness, partitions: int
    ) -> None:
        self._broker = broker
        self._looking = looking
        self._witness = witness
        self._partitions = partitions

    async def check(self, held: Collection[int]) -> None:
        """Raises RolledBack when the store has forgotten what was charged to a data set that is held."""
        try:
            await self._witness.check(
                self._looking, lambda name: partition_of(name.encode(), self._partitions) in held
            )
        except KafkaError as error:
            raise no_broker(self._broker, error) from error

    async def agreed(self, held: Collection[int]) -> frozenset[str]:
        """Compares the servers there are with the ledger topic; returns their identities."""
        while True:
            found = await persistently(self._looking.identities)
            await self.check(held)
            if await persistently(self._looking.identities) == found:
                return found


@dataclass(frozen=True)
class _Started:
    """The parts of a runtime that has started."""

    store: RedisStore
    sender: Sender
    comparison: _Comparison
    worker: Worker
    store_watch: StoreWatch


class Runtime:
    """The connections and the worker on them; anyone who runs it also runs its ``watch_`` tasks."""

    def __init__(self, settings: WorkerSettings, noise: NoiseSource, fuse: Fuse) -> None:
        self.names = Topics(settings.topic_prefix)
        self.metrics = Metrics()
        self.broker = Contact()
        self._settings = settings
        self._noise = noise
        self._fuse = fuse
        self._there: _Started | None = None
        self._opened = contextlib.AsyncExitStack()

    @property
    def started(self) -> bool:
        """Whether ``start`` has made the worker."""
        return self._there is not None

    @property
    def ready(self) -> bool:
        """Whether requests are answered."""
        return self._there is not None and self._there.worker.ready

    @property
    def worker(self) -> Worker:
        """The worker. Only a runtime that has started has one."""
        return self._started.worker

    @property
    def store_watch(self) -> StoreWatch:
        """The checks of the store. Only a runtime that has started has them."""
        return self._started.store_watch

    @property
    def _started(self) -> _Started:
        assert self._there is not None, "the caller waits for start()"
        return self._there

    async def start(self) -> None:
        """Opens the connections and makes the worker.

        Raises:
            ServerUnavailable: No broker answers, or the topics are not as they must be.
            UnsafeStore: The store could forget an acknowledged commit.
        """
        settings = self._settings
        looking = store_of(settings)
        self._opened.push_async_callback(looking.close)
        topics = await self._topics()
        ledger = topics.pop("ledger")
        partitions = await self._partitions(looking, [*topics.values()])
        witness = Witness(
            LedgerTopic(settings.broker, ledger["name"], len(ledger["partitions"])),
            name=str(ledger["topic_id"]),
        )
        comparison = _Comparison(settings.broker, looking, witness, partitions)
        store = store_of(settings)
        self._opened.push_async_callback(store.close)
        sender = Sender(settings.broker, self.names)
        self._opened.push_async_callback(sender.stop)
        try:
            await sender.start()
            # Before this worker joins the group, which would wait for it; then little is left to read.
            compared = await comparison.agreed(held=())
        except KafkaError as error:
            raise no_broker(settings.broker, error) from error
        store.trust(compared)
        worker = Worker(
            store,
            self._noise,
            sender.send,
            partitions=partitions,
            metrics=self.metrics,
            key_file=settings.person_key(),
            fuse=self._fuse,
        )
        self._opened.push_async_callback(worker.put_down)
        store_watch = StoreWatch(store, worker, self.metrics)
        self._there = _Started(store, sender, comparison, worker, store_watch)
        await store_watch.check()
        gc.collect()
        gc.freeze()  # what is there by now stays, and looking through all of it again takes 100 ms each time

    async def stop(self) -> None:
        """Closes what was opened, the newest first."""
        await self._opened.aclose()

    async def watch_store(self) -> None:
        """Raises UnsafeStore as soon as the store's settings have drifted."""
        while True:
            await asyncio.sleep(_STORE_CHECK_S)
            await self.store_watch.check()

    async def watch_broker(self) -> None:
        """Notes whether the broker answers: its clients wait for it by themselves, and tell nobody."""
        while True:
            await asyncio.sleep(_BROKER_CHECK_S)
            if await self._started.sender.broker_answers():
                self.broker.heard()
            else:
                self.broker.lost()

    async def pass_leftovers(self, starts: Mapping[str, int]) -> None:
        """Moves positions past what transactions have left on the log, where nothing else follows."""
        with contextlib.suppress(KafkaError):  # then later
            ends = await past_leftovers(self._settings.broker, starts)
            for topic_partition, end in ends.items():
                await self.worker.pass_over(topic_partition, starts[topic_partition], end)

    async def watch_witness(self) -> None:
        """Compares now and then, so that the next worker has little to read."""
        while True:
            await asyncio.sleep(_WITNESS_CHECK_S)
            with contextlib.suppress(ServerUnavailable):  # then later
                await self.check_witness(self.worker.ownership.held)

    async def watch_identity(self) -> None:
        """Compares each server that the worker has not spoken to, before the worker speaks to it.

        Meanwhile its commits wait, and with them all looks and answers. Raises RolledBack.
        """
        store, comparison = self._started.store, self._started.comparison
        while True:
            await store.stranger()
            try:
                held = self.worker.ownership.held
                store.trust(await self._reported(comparison.agreed(held)))
            except (ServerUnavailable, StoreUnavailable) as error:
                _log.warning("the store cannot be compared with the ledger topic yet: %s", error)
                await asyncio.sleep(_STRANGER_RETRY_S)

    async def check_witness(self, held: Collection[int]) -> None:
        """Raises RolledBack when the store has forgotten what was charged to a data set that is held."""
        await self._reported(self._started.comparison.check(held))

    async def _reported(self, comparison: Awaitable[_T]) -> _T:
        """Stops the worker, and says why, when the store has forgotten what was charged."""
        try:
            return await comparison
        except RolledBack as error:
            self.worker.cut_short(error)
            self.metrics.rolled_back()
            for name in error.datasets:
                event = Event(dataset=name, event="rollback_detected")
                outgoing = Outgoing("events", name, event.to_bytes())
                await (await self._started.sender.send(outgoing))
            raise

    async def _topics(self) -> dict[str, dict[str, Any]]:
        """The topics that are read, by their roles, as the broker describes them."""
        names = {self.names.name(role): role for role in (*INPUTS, "ledger")}
        described = await described_topics(self._settings.broker, [*names])
        missing = [topic["name"] for topic in described if topic["error_code"] != 0]
        if missing:
            raise ServerUnavailable(
                f"topics {', '.join(missing)} do not exist; run: stream-dp topics create"
            )
        return {names[topic["name"]]: topic for topic in described}

    async def _partitions(self, store: RedisStore, inputs: Sequence[Mapping[str, Any]]) -> int:
        """Returns the number of partitions of each input topic.

        All must have the same number, and be the topics that were read so far.
        """
        for topic in inputs:
            made = str(topic["topic_id"]).encode()
            if await store.constant(f"topic {topic['name']}", made) != made:
                raise ServerUnavailable(
                    f"{topic['name']} was deleted and created again since the first worker started: nobody "
                    "knows which of its records were read. Restore it, or start again under another topic "
                    "prefix"
                )
        counts = {topic["name"]: len(topic["partitions"]) for topic in inputs}
        if len(set(counts.values())) != 1:
            shown = ", ".join(f"{name} {count}" for name, count in counts.items())
            raise ServerUnavailable(
                f"the input topics differ in their number of partitions: {shown}. The number can never be "
                "lowered, so create them again under another topic prefix"
            )
        partitions = next(iter(counts.values()))
        for name in counts:
            recorded = await store.partitions(name, partitions)
            if recorded != partitions:
                raise ServerUnavailable(
                    f"{name} has {partitions} partitions but had {recorded}: data sets would change their "
                    "owner and their read positions. The number can never be lowered, so restore the broker "
                    "from before the change, or start again under another topic prefix and add up both "
                    "budgets"
                )
        return partitions
