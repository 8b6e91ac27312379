"""The second witness of what was charged: the ledger topic, which no restore of Redis can turn back.

Every entry of a data set's ledger is committed to the store before it is sent to the topic, and is on the
topic before anything leaves that it paid for. So the topic never says more than the store, unless the store
has forgotten something: it came back from an older copy, failed over to a replica that lagged, or was
emptied. Then its budgets would be spent again, and the worker must not serve.

What this cannot see: both lost together, or a forgotten answer that cost nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from aiokafka import AIOKafkaConsumer

from stream_dp.errors import CorruptState, RolledBack, ServerUnavailable
from stream_dp.pipeline.retrying import persistently
from stream_dp.state import ledger
from stream_dp.state.store import Store

__all__ = ["Witness"]

_POLL_MS = 500


@dataclass(frozen=True, slots=True)
class _Last:
    """The entry of a data set that is furthest on, as it came first."""

    seq: int
    entry: bytes = field(repr=False)


class Witness:
    """Reads the ledger topic from its beginning, and later what was added; holds one entry a data set."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._topic = topic
        # Without a group: all partitions are its own, and stay so.
        self._consumer = AIOKafkaConsumer(
            topic,
            bootstrap_servers=bootstrap_servers,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        self._last: dict[str, _Last] = {}

    async def start(self) -> None:
        """Connects, and reads what is there.

        Raises:
            KafkaError: There is no broker.
            ServerUnavailable: There is no such topic.
        """
        await self._consumer.start()
        if not self._consumer.assignment():
            raise ServerUnavailable(
                f"there is no topic {self._topic}; run: stream-dp topics create"
            )
        await self.read()

    async def stop(self) -> None:
        await self._consumer.stop()

    async def read(self) -> None:
        """Reads up to where the topic ends now."""
        ends = await self._consumer.end_offsets(self._consumer.assignment())
        while any([await self._consumer.position(place) < end for place, end in ends.items()]):
            fetched = await self._consumer.getmany(timeout_ms=_POLL_MS)
            for records in fetched.values():
                for record in records:
                    self._note(record.key, record.value)

    def _note(self, key: bytes | None, value: bytes | None) -> None:
        try:
            fields = ledger.read(value or b"")
        except CorruptState:
            return  # not ours: the topic is anybody's who may write to it
        name, seq = fields.get("dataset"), fields.get("seq")
        if isinstance(name, str) and name.encode() == key and isinstance(seq, int):
            known = self._last.get(name)
            if known is None or seq > known.seq:
                self._last[name] = _Last(seq, value or b"")

    async def check(self, store: Store, is_held: Callable[[str], bool]) -> None:
        """Compares the topic with the store, for the data sets that are held.

        Raises:
            RolledBack: The store lacks an entry that was published, or has another one in its place.
        """
        await self.read()
        forgotten = []
        for name, last in sorted(self._last.items()):
            if is_held(name):
                stored = await persistently(partial(store.ledger, name, last.seq))
                if not stored or stored[0] != last.entry:
                    forgotten.append(name)
        if forgotten:
            raise RolledBack(forgotten)
