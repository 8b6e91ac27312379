"""What a worker stands on: store, producer and second witness, and whether they can be trusted."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from aiokafka.errors import KafkaError

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


class Runtime:
    """The connections and the worker on them; whoever runs it also runs its ``watch_`` tasks."""

    def __init__(self, settings: WorkerSettings, noise: NoiseSource, fuse: Fuse) -> None:
        self.names = Topics(settings.topic_prefix)
        self.metrics = Metrics()
        self.broker = Contact()
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
        # It may speak to any server. The worker's own store speaks to those that were compared.
        looking = self._looking = store_of(settings)
        topics = await self._topics()
        ledger = topics.pop("ledger")
        partitions = self.partitions = await self._partitions(looking, [*topics.values()])
        self._witness = Witness(
            LedgerTopic(settings.broker, ledger["name"], len(ledger["partitions"])),
            name=str(ledger["topic_id"]),
        )
        self._sender = Sender(settings.broker, self.names)
        try:
            await self._sender.start()
            # Before this worker joins the group, which would wait for it; then little is left to read.
            compared = await self._compared(held=())
        except KafkaError as error:
            raise no_broker(settings.broker, error) from error
        store = self._store = store_of(settings)
        store.trust(compared)
        self.worker = Worker(
            store,
            self._noise,
            self._sender.send,
            partitions=partitions,
            metrics=self.metrics,
            fuse=self._fuse,
        )
        await self.worker.check_store()
        gc.collect()
        gc.freeze()  # what is there by now stays, and looking through all of it again takes 100 ms each time

    async def stop(self) -> None:
        """Closes what was opened."""
        if hasattr(self, "worker"):
            await self.worker.put_down()
        if hasattr(self, "_sender"):
            await self._sender.stop()
        if hasattr(self, "_store"):
            await self._store.close()
        if hasattr(self, "_looking"):
            await self._looking.close()

    async def watch_store(self) -> None:
        """Raises UnsafeStore as soon as the store's settings have drifted."""
        while True:
            await asyncio.sleep(_STORE_CHECK_S)
            await self.worker.check_store()

    async def watch_broker(self) -> None:
        """Notes whether the broker answers: its clients wait for it by themselves, and tell nobody."""
        while True:
            await asyncio.sleep(_BROKER_CHECK_S)
            if await self._sender.broker_answers():
                self.broker.heard()
            else:
                self.broker.lost()

    async def pass_leftovers(self, starts: Mapping[str, int]) -> None:
        """Moves positions past what transactions have left on the log, where nothing else follows."""
        with contextlib.suppress(KafkaError):  # then later
            ends = await past_leftovers(self._settings.broker, starts)
            for place, end in ends.items():
                await self.worker.pass_over(place, starts[place], end)

    async def watch_witness(self) -> None:
        """Compares now and then, so that the next worker has little to read."""
        while True:
            await asyncio.sleep(_WITNESS_CHECK_S)
            with contextlib.suppress(ServerUnavailable):  # then later
                await self.check_witness(self.worker.held)

    async def watch_identity(self) -> None:
        """Compares each server that the worker has not spoken to, before the worker speaks to it.

        Meanwhile its commits wait, and with them all looks and answers. Raises RolledBack.
        """
        while True:
            await self._store.stranger()
            try:
                self._store.trust(await self._compared(self.worker.held))
            except (ServerUnavailable, StoreUnavailable) as error:
                _log.warning("the store cannot be compared with the ledger topic yet: %s", error)
                await asyncio.sleep(_STRANGER_RETRY_S)

    async def _compared(self, held: Collection[int]) -> frozenset[str]:
        """Compares whichever servers there are with the ledger topic; returns who they are."""
        while True:
            found = await persistently(self._looking.identities)
            await self.check_witness(held)
            if await persistently(self._looking.identities) == found:
                return found

    async def check_witness(self, held: Collection[int]) -> None:
        """Raises RolledBack when the store has forgotten what was charged to a data set that is held."""
        try:
            await self._witness.check(
                self._looking, lambda name: partition_of(name.encode(), self.partitions) in held
            )
        except KafkaError as error:
            raise no_broker(self._settings.broker, error) from error
        except RolledBack as error:
            self.worker.cut_short(error)
            self.metrics.rolled_back()
            for name in error.datasets:
                event = Event(dataset=name, event="rollback_detected")
                await (await self._sender.send(Outgoing("events", name, event.to_bytes())))
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
        """Partitions of the input topics, which must be alike and those that were read so far."""
        for topic in inputs:
            made = str(topic["topic_id"]).encode()
            if await store.constant(f"topic {topic['name']}", made) != made:
                raise ServerUnavailable(
                    f"{topic['name']} was deleted and made again: what was read of it says nothing of what "
                    "it holds now. Restore it, or start afresh under another topic prefix"
                )
        counts = {topic["name"]: len(topic["partitions"]) for topic in inputs}
        if len(set(counts.values())) != 1:
            raise ServerUnavailable(f"the input topics differ in their partitions: {counts}")
        partitions = next(iter(counts.values()))
        for name in counts:
            recorded = await store.partitions(name, partitions)
            if recorded != partitions:
                raise ServerUnavailable(
                    f"{name} has {partitions} partitions but had {recorded}: data sets would change their "
                    "owner and their read positions. Restore the old count"
                )
        return partitions
