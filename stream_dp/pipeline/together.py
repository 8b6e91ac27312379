"""Several steps at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence


async def together(steps: Sequence[Callable[[], Awaitable[None]]], *, at_once: int) -> None:
    """Runs steps at the same time, and returns when all are done. The first error ends all of them.

    Args:
        steps: The steps. They begin in this order.
        at_once: The largest number of steps that are under way.

    Raises:
        Exception: The first error of a step.
    """
    turns = asyncio.Semaphore(at_once)

    async def done(step: Callable[[], Awaitable[None]]) -> None:
        async with turns:
            await step()

    tasks = [asyncio.create_task(done(step)) for step in steps]
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
