"""Patience with Redis, or with brokers, that are away for a moment."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from stream_dp.errors import ServerUnavailable, StoreUnavailable

__all__ = ["patiently", "pause", "persistently"]

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

_FIRST_WAIT_S = 0.05
_LONGEST_WAIT_S = 2.0
_PAUSE_S = 0.5


async def persistently(call: Callable[[], Awaitable[_T]]) -> _T:
    """Repeats a call until Redis answers. To repeat it must be harmless."""
    wait_s = _FIRST_WAIT_S
    while True:
        try:
            return await call()
        except StoreUnavailable as error:
            _log.warning("Redis is away, trying again in %.2f s: %s", wait_s, error)
            await asyncio.sleep(wait_s)
            wait_s = min(2 * wait_s, _LONGEST_WAIT_S)


async def pause(again: str, error: ServerUnavailable) -> None:
    """Waits until something is tried again, and says so."""
    _log.warning("%s again: %s", again, error)
    await asyncio.sleep(_PAUSE_S)


async def patiently(call: Callable[[], Awaitable[_T]], again: str) -> _T:
    """Repeats a call until a broker answers.

    Args:
        call: The call. To repeat it must be harmless.
        again: What the log says is done again.
    """
    while True:
        try:
            return await call()
        except ServerUnavailable as error:
            await pause(again, error)
