"""Watches whether the store may be trusted with a commit, and stops the worker when it may not."""

from __future__ import annotations

import asyncio

from stream_dp.errors import StoreUnavailable, UnsafeStore
from stream_dp.pipeline.health import Contact
from stream_dp.pipeline.metrics import Metrics
from stream_dp.pipeline.retrying import persistently
from stream_dp.pipeline.worker import Worker
from stream_dp.state.store import DeploymentStore

__all__ = ["StoreWatch"]

_SILENT_S = 3.0


class StoreWatch:
    """Looks at the store's settings on behalf of one worker.

    Attributes:
        problems: Settings that are not safe, each with its fix, as of the last look; None before the first.
        contact: Whether the store answers, and since when not.
    """

    def __init__(self, store: DeploymentStore, worker: Worker, metrics: Metrics) -> None:
        self.problems: tuple[str, ...] | None = None
        self.contact = Contact()
        self._store = store
        self._worker = worker
        self._metrics = metrics

    async def check(self) -> None:
        """Raises UnsafeStore when a setting is not safe; the worker then stops."""
        problems = self.problems = await persistently(self._look)
        self._metrics.store_safe(safe=not problems)
        if problems:
            error = UnsafeStore(problems)
            self._worker.cut_short(error)
            raise error

    async def _look(self) -> tuple[str, ...]:
        # A store that hangs is not an error: it may answer yet.
        silence = asyncio.get_running_loop().call_later(_SILENT_S, self.contact.lost)
        try:
            problems = await self._store.problems()
            usage = await self._store.usage()
        except StoreUnavailable:
            self.contact.lost()
            raise
        finally:
            silence.cancel()
        self.contact.heard()
        self._metrics.store_used(usage)
        return problems
