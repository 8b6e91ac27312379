"""A worker without Faust, which takes records as a test hands them over."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stream_dp.pipeline.intake.records import Record
from stream_dp.pipeline.worker import Worker


async def take_all(worker: Worker, records: Sequence[Record]) -> None:
    """Takes a group of records through to its commits and queues its releases."""
    await worker.take(records)
    while worker.behind:
        await worker.take(())


async def drained(worker: Worker, look_s: float = 0.001) -> None:
    """Returns when everything that was committed has been released. It looks that often."""
    while worker.busy:
        await worker.releaser.joined()
        await asyncio.sleep(look_s)
