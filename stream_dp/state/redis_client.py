"""Clients of Redis or Valkey: one server, a Cluster, or the server that Sentinels name as the primary.

Errors of the client library become ours here. A server quotes commands in its errors, and so what we store.
Ours say nothing of that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, Final

from redis import exceptions
from redis.asyncio import Redis
from redis.asyncio.cluster import RedisCluster
from redis.asyncio.retry import Retry
from redis.backoff import ExponentialWithJitterBackoff

from stream_dp.errors import StoreError, StoreRefused, StoreUnavailable
from stream_dp.state.sentinel import sentinel_client
from stream_dp.store_address import SentinelAddress

__all__ = ["connected", "nodes", "texts", "translated"]

_RETRIES: Final = 3
"""Enough for a connection that an idle time-out or a restart has closed. Nobody needs to wait for a view."""


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
        return sentinel_client(sentinels, retry=retry, redis_connect_func=_refuse_replica)
    if cluster:
        return RedisCluster.from_url(url, retry=retry)
    return Redis.from_url(url, retry=retry)


async def nodes(client: Redis | RedisCluster) -> list[Any]:
    """Returns the nodes to send a command to so that every server that takes our writes gets it."""
    if isinstance(client, RedisCluster):
        await client.initialize()
        return list(client.get_primaries())
    return [client]


def texts(reply: Mapping[str | bytes, Any]) -> dict[str, str]:
    """Returns a reply of names and values as text, whichever protocol version and client made it."""
    return {_text(name): _text(value) for name, value in reply.items()}


def _text(value: object) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


async def _refuse_replica(connection: Any) -> None:
    """Looks who is at the other end of a new connection: what Sentinels said may be out of date."""
    await connection.on_connect()
    await connection.send_command("INFO", "replication")
    lines = _text(await connection.read_response()).splitlines()
    if dict(line.split(":", 1) for line in lines if ":" in line).get("role") == "slave":
        raise exceptions.ConnectionError("the server is a replica; the Sentinels are asked again")


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
    except (
        exceptions.ClusterDownError,
        exceptions.TryAgainError,
        exceptions.ClusterError,
        exceptions.RedisClusterException,
    ):
        raise StoreUnavailable(_UNAVAILABLE) from None
    except exceptions.RedisError as error:
        raise _in_words(error) from None


_UNAVAILABLE = "Redis cannot be reached; whether the last step happened is unknown"


def _in_words(error: exceptions.RedisError) -> StoreError:
    code = str(error).split(" ", 1)[0]
    for name, kind, words in _WORDS:
        if isinstance(error, kind) or code == name:
            return StoreRefused(words)
    if not code.isupper() or not code.isalpha():
        code = "ERR"
    return StoreError(
        f"the Redis server refuses the step ({code}, {type(error).__name__}); is it Redis 7 or Valkey 8, or "
        "later?"
    )


_WORDS: tuple[tuple[str, type[exceptions.RedisError] | tuple[()], str], ...] = (
    (
        "OOM",
        exceptions.OutOfMemoryError,
        (
            "the Redis server is out of memory; raise maxmemory, or let it evict: "
            "`redis-cli CONFIG SET maxmemory-policy allkeys-lru`"
        ),
    ),
    (
        "READONLY",
        exceptions.ReadOnlyError,
        "the Redis server is a replica and takes no writes; give the address of its primary",
    ),
    (
        "NOPERM",
        exceptions.NoPermissionError,
        "the Redis server denies our user a command or key; grant the prefix, EVALSHA and EVAL",
    ),
    (
        "MISCONF",
        (),
        "the Redis server cannot write to its disk and takes no writes; free disk space or fix the disk",
    ),
    (
        "MOVED",
        exceptions.MovedError,
        "the Redis server is a node of a Cluster; set STREAM_DP_REDIS_CLUSTER=true",
    ),
    (
        "NOREPLICAS",
        (),
        "the Redis server lacks the replicas it must wait for and takes no writes; start them",
    ),
)
