"""Clients of Redis or Valkey: one server, a Cluster, or the server that Sentinels name as the primary.

Errors of the client library become ours here. A server quotes commands in its errors, and so what we store.
Ours say nothing of that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.connection import parse_url
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel, SentinelConnectionPool
from redis.backoff import ExponentialWithJitterBackoff, NoBackoff

from stream_dp.errors import StoreError, StoreRefused, StoreUnavailable
from stream_dp.store_address import SentinelAddress

_RETRIES: Final = 3
"""Enough for a connection that an idle time-out or a restart has closed. Nobody needs to wait for a view."""

_PATIENCE_S: Final = 1.0
"""How long one Sentinel may take before the next one is asked."""


def connected(url: str, *, cluster: bool = False) -> Redis | RedisCluster:
    """Returns a client that connects when it is used first.

    Args:
        url: The address, as ``redis-py`` or ``SentinelAddress`` reads it.
        cluster: Whether it is a node of a Redis Cluster.

    Raises:
        InvalidInput: The address of Sentinels has a fault. The error leaves out what it says.
    """
    retry = Retry(ExponentialWithJitterBackoff(base=0.01, cap=1.0), _RETRIES)
    sentinels = SentinelAddress.read(url)
    if sentinels is not None:
        return _guided(sentinels, retry)
    if cluster:
        return RedisCluster.from_url(url, retry=retry)
    return Redis.from_url(url, retry=retry)


class _Pool(SentinelConnectionPool):
    """Asks Sentinels for each new connection, and closes its connections to them at the end."""

    async def aclose(self) -> None:
        await super().aclose()
        await self.sentinel_manager.aclose()


def _guided(address: SentinelAddress, retry: Retry) -> Redis:
    """A client of the primary. After a failover its next connection goes to the new one."""
    options: dict[str, Any] = {**parse_url(address.server), "retry": retry}
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


async def nodes(client: Redis | RedisCluster) -> list[Any]:
    """Returns the nodes to send a command to so that every server that takes our writes gets it."""
    if isinstance(client, RedisCluster):
        await client.initialize()
        return list(client.get_primaries())
    return [client]


@asynccontextmanager
async def translated() -> AsyncIterator[None]:
    """Turns errors of the client library into ours, without what it or a server quotes of a command.

    Raises:
        StoreUnavailable: There is no reply. Whether the last step happened is unknown.
        StoreRefused: The server does not serve us until an operator acts.
        StoreError: The server replies with another error.
    """
    try:
        yield
    except (exceptions.AuthenticationError, exceptions.AuthorizationError) as error:
        raise StoreRefused(
            "the Redis server refuses our user or password; correct them in its address"
        ) from error
    except (exceptions.ConnectionError, exceptions.TimeoutError, OSError) as error:
        raise StoreUnavailable(_UNAVAILABLE) from error
    except (exceptions.ClusterError, exceptions.TryAgainError, exceptions.RedisClusterException):
        raise StoreUnavailable(_UNAVAILABLE) from None
    except exceptions.RedisError as error:
        # Of some errors the library knows the code; others begin with it.
        code = error.status_code or str(error).partition(" ")[0]
        if code in _REFUSED:
            raise StoreRefused(_REFUSED[code]) from None
        code = code if code.isupper() and code.isalpha() else "ERR"
        raise StoreError(
            f"the Redis server refuses the step ({code}, {type(error).__name__}); is it Redis 7 or "
            "Valkey 8, or later?"
        ) from None


_UNAVAILABLE: Final = "Redis cannot be reached; whether the last step happened is unknown"

_REFUSED: Final = {
    "OOM": (
        "the Redis server is out of memory; raise maxmemory, or let it evict: "
        "`redis-cli CONFIG SET maxmemory-policy allkeys-lru`"
    ),
    "READONLY": "the Redis server is a replica and takes no writes; give the address of its primary",
    "NOPERM": "the Redis server denies our user a command or key; grant the prefix and EVAL",
    "MISCONF": (
        "the Redis server cannot write to its disk and takes no writes; free disk space or fix the disk"
    ),
    "MOVED": "the Redis server is a node of a Cluster; set STREAM_DP_REDIS_CLUSTER=true",
    "NOREPLICAS": (
        "the Redis server lacks the replicas it must wait for and takes no writes; start them"
    ),
}
