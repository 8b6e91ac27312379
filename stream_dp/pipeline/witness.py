"""The second witness of what was charged: the ledger topic, which no restore of Redis can turn back.

Every entry of a data set's ledger is committed to the store before it is sent to the topic, and is on the
topic before anything leaves that it paid for. So the topic never says more than the store, unless the store
has forgotten something: it came back from an older copy, failed over to a replica that lagged, or was
emptied. Then its budgets would be spent again, and the worker must not serve.

The store keeps up to which offset it was compared, and later reading begins there. That is sound: the offset
is written in the same step, and on the same server, as the comparison that it speaks of, and a ledger only
grows, so whichever older copy comes back, its own offset is that of a comparison in its own past, and what it
lacks lies above. Of a data set that it does not know even the name, the offset up to which all names are
listed says the same; an empty store knows no offset, and is compared with the whole topic.

What this cannot see: both lost together, or a forgotten answer that cost nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from functools import partial
from time import monotonic
from typing import Protocol

from aiokafka import AIOKafkaConsumer, TopicPartition

from stream_dp.broker import Broker
from stream_dp.errors import CorruptState, RolledBack
from stream_dp.pipeline.decoding import partition_of
from stream_dp.pipeline.polling import until
from stream_dp.pipeline.retrying import persistently
from stream_dp.state import ledger
from stream_dp.state.store import ComparisonStore, LedgerRead

__all__ = ["LedgerTopic", "Log", "Witness"]

_log = logging.getLogger(__name__)

_QUICK_S = 2.0
_REPEAT_S = 10.0
_FEW = 10_000

Take = Callable[[int, bytes | None, bytes | None], None]
"""Takes a record: its partition, key and value."""


class Log(Protocol):
    """The ledger topic."""

    @property
    def partitions(self) -> int:
        """The number of partitions of the topic."""
        ...

    async def read(self, starts: Mapping[int, int], take: Take) -> dict[int, int]:
        """Reads each partition from an offset to its end of now, which it returns.

        A partition that ends below its offset is read as a whole.
        """
        ...


class LedgerTopic:
    """The real one. Between readings it holds no connection, and fetches nothing ahead."""

    def __init__(self, broker: Broker, topic: str, partitions: int) -> None:
        self._broker = broker
        self._topic = topic
        self.partitions = partitions

    async def read(self, starts: Mapping[int, int], take: Take) -> dict[int, int]:
        """See ``Log``. Raises KafkaError if no broker answers."""
        consumer = AIOKafkaConsumer(**self._broker.arguments(), enable_auto_commit=False)
        wanted = {TopicPartition(self._topic, number): start for number, start in starts.items()}
        await consumer.start()
        try:
            consumer.assign(list(wanted))
            firsts = await consumer.beginning_offsets(list(wanted))
            ends = await consumer.end_offsets(list(wanted))
            for partition, start in wanted.items():
                consumer.seek(
                    partition,
                    start if firsts[partition] <= start <= ends[partition] else firsts[partition],
                )
            positions = [await consumer.position(partition) for partition in wanted]
            n_read, total, due = 0, sum(ends.values()) - sum(positions), monotonic() + _QUICK_S
            async for fetched in until(consumer, ends):
                for partition, records in fetched.items():
                    for record in records:
                        take(partition.partition, record.key, record.value)
                    n_read += len(records)
                if monotonic() > due:
                    due = monotonic() + _REPEAT_S
                    _log.warning(
                        "comparing Redis with the ledger topic: %d of %d records read",
                        n_read,
                        total,
                    )
        finally:
            await consumer.stop()
        return {partition.partition: end for partition, end in ends.items()}


class Witness:
    """Compares the store with the ledger topic.

    Args:
        log: The ledger topic.
        name: The name of this topic. It changes if the topic is deleted and created again.
    """

    def __init__(self, log: Log, name: str) -> None:
        self._log = log
        self._name = name

    async def check(self, store: ComparisonStore, is_held: Callable[[str], bool]) -> None:
        """Compares what was published since the last comparison, by whomever, with the store.

        Raises:
            KafkaError: No broker answers.
            RolledBack: For a data set that is held, the store lacks a published entry or has a different one.
        """
        numbers = range(self._log.partitions)
        listed = {n: await persistently(partial(store.listed, self._key(n))) for n in numbers}
        known = await persistently(
            partial(store.compared, lambda name: self._key(self._partition(name)))
        )
        starts = dict(listed)
        for name, offset in known.items():
            number = self._partition(name)
            starts[number] = min(starts[number], offset)
        found: dict[int, dict[str, LedgerRead]] = {number: {} for number in numbers}

        def take(number: int, key: bytes | None, value: bytes | None) -> None:
            try:
                fields = ledger.read(value or b"")
            except CorruptState:
                return  # not ours: the topic is anybody's who may write to it
            name, seq = fields.get("dataset"), fields.get("seq")
            if isinstance(name, str) and name.encode() == key and isinstance(seq, int):
                last = found[number].get(name)
                if last is None or last.seq is None or seq > last.seq:
                    found[number][name] = LedgerRead(known.get(name, 0), seq, value or b"")

        ends = await self._log.read(starts, take)
        forgotten: list[str] = []
        for number, end in ends.items():
            key, there = self._key(number), found[number]
            names = list(there)
            for name, offset in known.items():
                # Written for each rarely: an idle data set is behind by what others have published since.
                if self._partition(name) == number and end - offset > _FEW:
                    there.setdefault(name, LedgerRead(offset))
            forgotten += await persistently(partial(store.compare, key, end, there))
            await persistently(partial(store.note_listed, key, listed[number], end, names))
        if mine := sorted(filter(is_held, forgotten)):
            raise RolledBack(mine)

    def _partition(self, name: str) -> int:
        return partition_of(name.encode(), self._log.partitions)

    def _key(self, number: int) -> str:
        """The name of a partition in the store: no partition of another topic has it."""
        return f"{self._name}:{number}"
