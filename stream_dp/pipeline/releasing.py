"""Sends what was committed, in order, while the next group is decided.

What leaves is marked in the store once the broker has it. A worker that dies before the mark leaves it to the
next owner, which sends the same bytes again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from time import time

from stream_dp.errors import StreamDPError
from stream_dp.pipeline.fuse import CrashPoint, Fuse
from stream_dp.pipeline.metrics import Metrics
from stream_dp.pipeline.records import Outgoing, Releasable
from stream_dp.pipeline.retrying import persistently
from stream_dp.pipeline.watchdog import Heartbeat
from stream_dp.state.store import DeploymentStore

__all__ = ["Releaser", "Send"]

_log = logging.getLogger(__name__)

Send = Callable[[Outgoing], Awaitable[Awaitable[object]]]
"""Hands a record to the producer; what it returns is done when the broker has the record."""

_IN_FLIGHT = 4
_RETRY_S = 0.5


class Releaser:
    """Gathers what may leave, and sends it in a task of its own.

    Attributes:
        gathered: The records that may leave and were not handed over yet.
        unreleased: The number of records that were handed over and are not known to have left.
    """

    def __init__(
        self,
        store: DeploymentStore,
        send: Send,
        *,
        metrics: Metrics,
        fuse: Fuse,
        heartbeat: Heartbeat,
    ) -> None:
        self.gathered = Releasable()
        self.unreleased = 0
        self._store = store
        self._send = send
        self._metrics = metrics
        self._fuse = fuse
        self._heartbeat = heartbeat
        self._releasing = False
        self._queue: asyncio.Queue[Releasable] = asyncio.Queue(_IN_FLIGHT)

    @property
    def busy(self) -> bool:
        """Whether something that was handed over has not left."""
        return self._releasing or not self._queue.empty()

    async def hand_over(self) -> None:
        """Queues what was gathered; waits while a few groups are still to leave."""
        gathered, self.gathered = self.gathered, Releasable()
        if gathered.outgoing or gathered.watermarks or gathered.commits:
            self.unreleased += len(gathered.outgoing)
            await self._queue.put(gathered)

    async def joined(self) -> None:
        """Returns when everything that was handed over has left."""
        await self._queue.join()

    async def run(self) -> None:
        """Sends what was handed over, in order, until cancelled.

        All that waits leaves together: while groups are small, the broker and the disk are what takes time.
        """
        while True:
            releasable = await self._queue.get()
            self._releasing = True
            groups = 1
            while not self._queue.empty():
                releasable.append(self._queue.get_nowait())
                groups += 1
            try:
                await self._release(releasable)
            finally:
                self._releasing = False
                self._heartbeat.beat()
                for _ in range(groups):
                    self._queue.task_done()

    async def _release(self, releasable: Releasable) -> None:
        """Sends, and marks what was sent; what is not marked when the worker dies is sent again."""
        outgoing = releasable.outgoing
        self._fuse(CrashPoint.BEFORE_SEND)
        # Anyone who sees what a charge paid for can be sure that the second witness knows of the charge.
        entries = [one for one in outgoing if one.role == "ledger"]
        if entries:
            await self._deliver(entries)
        await self._deliver([one for one in outgoing if one.role != "ledger"])
        self.unreleased -= len(outgoing)
        self._metrics.released(outgoing, time())
        self._fuse(CrashPoint.AFTER_RELEASE)
        mark = partial(self._store.mark, releasable.commits, releasable.watermarks)
        for name in await persistently(mark):
            _log.info("data set %s was handed to another worker", name)
        self._fuse(CrashPoint.AFTER_MARK)

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
