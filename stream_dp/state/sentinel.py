"""A client of the server that Sentinels name as the primary."""

from __future__ import annotations

from typing import Any

from redis.asyncio import Redis
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import NoBackoff

from stream_dp.store_address import SentinelAddress

__all__ = ["sentinel_client"]

_PATIENCE_S = 1.0
"""How long one Sentinel may take before the next one is asked."""


class _Pool(SentinelConnectionPool):
    """Asks Sentinels for each new connection, and closes its connections to them at the end."""

    async def aclose(self) -> None:
        await super().aclose()
        await self.sentinel_manager.aclose()


def sentinel_client(address: SentinelAddress, **given: Any) -> Redis:
    """Returns a client of the primary. After a failover its next connection goes to the new one.

    Args:
        address: Where the Sentinels are.
        given: What redis-py's connections take, such as ``retry`` and ``redis_connect_func``.
    """
    options: dict[str, Any] = {**parse_url(address.server), **given}
    for name in ("host", "connection_class"):
        options.pop(name, None)
    encryption = {name: value for name, value in options.items() if name.startswith("ssl_")}
    if address.scheme == "rediss":
        options["ssl"] = encryption["ssl"] = True
    guides = Sentinel(  # type: ignore[no-untyped-call]
        address.sentinels,
        sentinel_kwargs={
            "username": address.username,
            "password": address.password,
            "socket_timeout": _PATIENCE_S,
            "socket_connect_timeout": _PATIENCE_S,
            "retry": Retry(NoBackoff(), 1),  # its connection may have been idle for long
            **encryption,
        },
    )
    client: Redis = guides.master_for(address.name, connection_pool_class=_Pool, **options)
    return client
