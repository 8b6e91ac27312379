"""The event loop of a worker."""

from __future__ import annotations

from typing import Any

import uvloop

_GOODBYE_S = 0.2


class _Loop(uvloop.Loop):
    """A loop that soon ends a TLS connection that we close, whether or not the other side says goodbye.

    What we wanted to send is acknowledged by then. With uvloop 0.23 half of the connections to a Kafka broker
    wait for its whole patience, which is 30 seconds: a worker opens and closes many when it starts.
    """

    async def create_connection(self, *args: Any, ssl: Any = None, **how: Any) -> Any:
        if ssl:
            how.setdefault("ssl_shutdown_timeout", _GOODBYE_S)
        return await super().create_connection(*args, ssl=ssl, **how)


class LoopPolicy(uvloop.EventLoopPolicy):  # type: ignore[misc]
    """Makes such loops."""

    def _loop_factory(self) -> _Loop:
        return _Loop()
