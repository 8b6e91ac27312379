"""The places for those who watch live updates."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from aiohttp import web

from stream_dp.web.access import Role

_MOST: Final = 32
_FOR_OPERATORS: Final = 8


class Viewers:
    """Counts open streams, and keeps some places for operators."""

    def __init__(self) -> None:
        self._open = 0

    @contextlib.contextmanager
    def place(self, role: Role | None) -> Iterator[None]:
        """Takes a place while the context lasts.

        Raises:
            HTTPServiceUnavailable: All places of this role are taken.
        """
        if self._open >= _MOST - (0 if role == "operator" else _FOR_OPERATORS):
            raise web.HTTPServiceUnavailable(text="too many pages are open\n")
        self._open += 1
        try:
            yield
        finally:
            self._open -= 1
