"""Patience with Redis, or with brokers, that are away for a moment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from stream_dp.errors import ServerUnavailable, StoreUnavailable

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_PAUSE_S = 0.5


async def pause(again: str, error: ServerUnavailable | StoreUnavailable) -> None:
    """Waits until something is tried again, and says so."""
    _log.warning("%s again: %s", again, error)
    await asyncio.sleep(_PAUSE_S)


async def patiently(call: Callable[[], Awaitable[_T]], again: str) -> _T:
    """Repeats a call until a broker, or Redis, answers.

    Args:
        call: The call. To repeat it must be harmless.
        again: What the log says is done again.
    """
    while True:
        try:
            return await call()
        except (ServerUnavailable, StoreUnavailable) as error:
            await pause(again, error)
