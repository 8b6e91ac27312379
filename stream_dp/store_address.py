"""The address of a store behind Sentinels, which say at any time which of its servers is the primary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Self
from urllib.parse import parse_qsl, unquote, urlencode

from stream_dp.errors import InvalidInput

_SUFFIX = "+sentinel"
_PORT = 26379
_FORM = "redis+sentinel://HOST:26379,HOST:26379/NAME"


@dataclass(frozen=True)
class SentinelAddress:
    """Where the Sentinels of a store are, and what they call it. ``str`` shows no password.

    Example:
        >>> from stream_dp.store_address import SentinelAddress
        >>> str(SentinelAddress.read("redis+sentinel://:secret@a:26379,b/mymaster?db=0"))
        'redis+sentinel://a:26379,b:26379/mymaster'

    Attributes:
        scheme: ``redis``, or ``rediss`` for TLS to the Sentinels and to the servers.
        sentinels: The hosts and ports of the Sentinels.
        name: The name that the Sentinels have for the primary.
        login: The user and password of the servers, as in a URL: ``user:password``. Empty without one.
        query: The options of the address, as in a URL.
        username: The user at the Sentinels, by the option ``sentinel_username``.
        password: The password of that user, by the option ``sentinel_password``.
    """

    scheme: str
    sentinels: Sequence[tuple[str, int]]
    name: str
    login: str = field(default="", repr=False)
    query: str = field(default="", repr=False)
    username: str | None = None
    password: str | None = field(default=None, repr=False)

    @classmethod
    def read(cls, url: str) -> Self | None:
        """Reads an address such as ``redis+sentinel://HOST:26379,HOST:26379/NAME?db=0``.

        Returns:
            The address, or None for one of a single server, with another scheme.

        Raises:
            InvalidInput: A part is missing or not valid. The error leaves out what it says.
        """
        scheme, _, rest = url.partition("://")
        if scheme not in ("redis" + _SUFFIX, "rediss" + _SUFFIX):
            return None
        places, _, query = rest.partition("?")
        places, _, name = places.partition("/")
        login, _, hosts = places.rpartition("@")
        if not name or "/" in name:
            raise _refused("after the hosts, it needs the one name that the Sentinels have for it")
        options = dict(parse_qsl(query))
        username, password = (options.pop(f"sentinel_{n}", None) for n in ("username", "password"))
        if not options.get("db", "0").isdecimal():
            raise _refused("its db is not a number")
        return cls(
            scheme=scheme.removesuffix(_SUFFIX),
            sentinels=tuple(_place(host) for host in hosts.split(",")),
            name=unquote(name),
            login=login,
            query=urlencode(options),
            username=username,
            password=password,
        )

    @property
    def server(self) -> str:
        """An address with the credentials and options for the servers; its host means nothing."""
        return f"{self.scheme}://{self.login}@primary?{self.query}"

    def __str__(self) -> str:
        places = ",".join(
            f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in self.sentinels
        )
        return f"{self.scheme}{_SUFFIX}://{places}/{self.name}"


def _place(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(_PORT)
    if not host.strip("[]") or not port.isdecimal() or not 0 < int(port) < 2**16:
        raise _refused("one of its Sentinels is not host:port")
    return host.strip("[]"), int(port)


def _refused(problem: str) -> InvalidInput:
    return InvalidInput("STREAM_DP_REDIS_URL", problem, f"write {_FORM}")
