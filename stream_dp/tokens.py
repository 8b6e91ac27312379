"""Signed tokens of analysts: who asks, about which data sets, and until when.

A token is a JSON Web Token (RFC 7519) that an issuer has signed. It is checked against the issuer's public
keys and against a time that the caller names: that of a record on Kafka, so that a second reading decides
alike. Nothing here reads the clock to decide.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from jwt import PyJWK
from jwt.api_jws import decode_complete, get_unverified_header

from stream_dp.errors import InvalidInput, InvalidMessage, ServerUnavailable, StreamDPError
from stream_dp.messages.message_base import ID_PATTERN
from stream_dp.settings import ServerSettings, is_loopback

HEADER: Final = "authorization"
"""The header of a record on ``queries``, and of a request to the HTTP API, that carries the token."""

_log = logging.getLogger(__name__)

_SETTING: Final = "STREAM_DP_IDENTITY_KEYS"
_RSA: Final = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_ALGORITHMS: Final[Mapping[tuple[str, str | None], tuple[str, ...]]] = {
    ("RSA", None): _RSA,
    ("EC", "P-256"): ("ES256",),
    ("EC", "P-384"): ("ES384",),
    ("EC", "P-521"): ("ES512",),
    ("OKP", "Ed25519"): ("EdDSA",),
    ("OKP", "Ed448"): ("EdDSA",),
}
"""(type of a key, its curve) -> the algorithms that it may verify. All are asymmetric."""

_TYPES: Final = ("jwt", "at+jwt")
"""The ``typ`` in the header of a token that lets its bearer ask (RFC 7519, RFC 9068)."""

_BEARER: Final = "bearer"
"""The claim ``typ`` of such a token, where an issuer such as Keycloak says there what a token is for."""

_RSA_BITS: Final = 2048
_LONGEST_TOKEN: Final = 8_192
_LARGEST_KEYS: Final = 1_048_576
_REMEMBERED: Final = 1_024
_SKEW_S: Final = 30.0
"""How far the issuer's clock may run ahead of the broker's where a token begins. Its end has no such room."""

_FETCH_S: Final = 5.0
_PATIENCE_S: Final = 10.0
_FILE_AGAIN_S: Final = 2.0
_URL_AGAIN_S: Final = 300.0
_SOONEST_S: Final = 30.0
"""The shortest time between two requests to the issuer that unknown keys lead to: anyone can name one."""

_Keys = Mapping[str, Mapping[str, PyJWK]]
"""The id of a key -> the algorithms for which it may be used -> the key."""


def _unauthorized(problem: str) -> InvalidMessage:
    return InvalidMessage(
        HEADER,
        problem,
        "send 'Bearer ' and a token that your issuer signed in this header",
        reason="unauthorized",
    )


NO_TOKEN: Final = _unauthorized("queries need a signed token here, and there is none")


@dataclass(frozen=True, slots=True)
class Token:
    """What a token says whose signature is right.

    Attributes:
        analyst: The name of the analyst.
        datasets: The names of the data sets that the analyst may ask. It may name other services too.
        expires_s: The time at which the token ends, in seconds since 1970. It does not belong to its time.
        begins_s: The time at which it begins, in seconds since 1970.
    """

    analyst: str
    datasets: frozenset[str]
    expires_s: float
    begins_s: float = -math.inf

    def check_time(self, at_s: float) -> None:
        """Checks that the token holds at a time, in seconds since 1970.

        Raises:
            InvalidMessage: It does not; with the reason ``token_expired`` if it has ended.
        """
        if at_s >= self.expires_s:
            raise InvalidMessage(
                HEADER, "the token has expired", "get a new token", reason="token_expired"
            )
        if at_s < self.begins_s - _SKEW_S:
            raise _unauthorized("the token is not valid yet")

    def check_dataset(self, dataset: str) -> None:
        """Checks that the token is for a data set.

        Raises:
            InvalidMessage: It is for others, with the reason ``wrong_audience``.
        """
        if dataset not in self.datasets:
            raise InvalidMessage(
                HEADER,
                "the token is for another data set",
                "get a token whose aud names this data set",
                reason="wrong_audience",
            )

    def check_analyst(self, analyst: str) -> None:
        """Checks that the token is that of an analyst.

        Raises:
            InvalidMessage: It is that of another one, with the reason ``wrong_analyst``.
        """
        if analyst != self.analyst:
            raise InvalidMessage(
                HEADER,
                "the token is that of another analyst",
                "ask under the name in the token's sub",
                reason="wrong_analyst",
            )


def bearer_in(header: bytes | str | None) -> str:
    """Returns the token in a header that says ``Bearer`` and a token.

    Raises:
        InvalidMessage: There is no such header, or it says something else.
    """
    if not header:
        raise NO_TOKEN
    text = header if isinstance(header, str) else header.decode("ascii", "replace")
    scheme, _, token = text.partition(" ")
    if scheme.lower() != "bearer" or not token:
        raise _unauthorized("it does not say 'Bearer ' and a token")
    return token.strip()


class Verifier:
    """Verifies tokens with the public keys of an issuer, which it reads again when they change.

    Args:
        where: The JWK Set of the issuer: the path of a file, or an ``https://`` URL. ``http://`` is accepted
            for this machine alone.
        issuer: The ``iss`` that tokens must have. None accepts any, and so whatever is signed by the keys:
            use it only if the keys sign for data sets alone.

    Attributes:
        failures: How often the keys could not be read again.
        is_url: Whether the keys are at a URL.

    Raises:
        InvalidInput: It is a URL that is not safe to read keys from.
    """

    def __init__(self, where: str, *, issuer: str | None = None) -> None:
        self.failures = 0
        self._where = where
        self._issuer = issuer
        self.is_url = _is_safe_url(where)
        self._keys: _Keys = {}
        self._state: object = None
        self._problem = ""
        self._looked_s = -math.inf
        self._looking = asyncio.Lock()
        self._read: dict[str, Token] = {}

    @property
    def n_keys(self) -> int:
        """The number of keys."""
        return len(self._keys)

    # ------------------------------------------------------------ keys

    def load(self) -> None:
        """Reads the keys. It may block for some seconds.

        Raises:
            InvalidInput: The file cannot be read, or what was read has no key to verify with.
            ServerUnavailable: The URL does not answer with a document.
        """
        self._adopt(self._changed())

    def _changed(self) -> tuple[_Keys, object] | None:
        """Reads the keys and what tells that their file has changed. None if it has not."""
        if self.is_url:
            return _keys_in(_fetched(self._where)), None
        path = Path(self._where)
        state = _state_of(path)
        return None if state == self._state else (_keys_in(_content(path)), state)

    def _adopt(self, changed: tuple[_Keys, object] | None) -> None:
        if changed is not None:
            self._keys, self._state = changed
            self._read = {}

    async def look_again(self) -> None:
        """Reads the keys again in a thread if they may have changed. Where that fails, the old ones stay."""
        async with self._looking:
            if self.is_url and time.monotonic() - self._looked_s < _SOONEST_S:
                return
            self._looked_s = time.monotonic()
            try:
                async with asyncio.timeout(_PATIENCE_S):
                    self._adopt(await asyncio.to_thread(self._changed))
                self._problem = ""
            except TimeoutError:
                self._complain("the issuer answers too slowly")
            except StreamDPError as error:
                self._complain(str(error))

    def _complain(self, problem: str) -> None:
        self.failures += 1
        if problem != self._problem:  # it is said once
            self._problem = problem
            _log.warning("the keys for tokens are the old ones: %s", problem)

    async def watch(self) -> None:
        """Reads the keys again from time to time, until cancelled. One that was taken away counts no more."""
        while True:
            await asyncio.sleep(_URL_AGAIN_S if self.is_url else _FILE_AGAIN_S)
            await self.look_again()

    # ------------------------------------------------------------ tokens

    async def verified(self, token: str) -> Token:
        """Returns what a token says, after its signature was verified. The caller checks its times.

        The keys are read again if it names one that is unknown.

        Raises:
            InvalidMessage: It is not a token, or is not signed by one of the keys.
        """
        if (found := self._read.get(token)) is not None:
            return found
        if _key_id(token) not in self._keys:
            await self.look_again()
        found = self._verified(token)
        while len(self._read) >= _REMEMBERED:
            del self._read[next(iter(self._read))]
        self._read[token] = found
        return found

    def _verified(self, token: str) -> Token:
        keys = self._keys.get(_key_id(token))
        if keys is None:
            raise _unauthorized("the token is signed by a key that is not known here")
        header = get_unverified_header(token)
        if str(header.get("typ", "JWT")).lower().removeprefix("application/") not in _TYPES:
            raise _unauthorized("the typ of the token is not that of an access token")
        algorithm = str(header.get("alg"))
        if algorithm not in keys:
            raise _unauthorized("the token is not signed by an algorithm that its key is for")
        try:
            payload = decode_complete(token, keys[algorithm], algorithms=[algorithm])["payload"]
        except Exception:  # noqa: BLE001 - anyone can send it, and nothing of it may end a worker
            raise _unauthorized("the signature of the token is wrong") from None
        return self._said(payload)

    def _said(self, payload: bytes) -> Token:
        """Reads the claims of a token whose signature is right."""
        try:
            claims = json.loads(payload)
        except (ValueError, RecursionError):
            claims = None
        if not isinstance(claims, dict):
            raise _unauthorized("the token holds no claims")
        if self._issuer is not None and claims.get("iss") != self._issuer:
            raise _unauthorized("the token has another issuer")
        if str(claims.get("typ", _BEARER)).lower() != _BEARER:
            raise _unauthorized("the token is not an access token: its claim typ is not Bearer")
        analyst, audience = claims.get("sub"), claims.get("aud")
        if not isinstance(analyst, str) or re.fullmatch(ID_PATTERN, analyst) is None:
            raise _unauthorized("the sub of the token is not a name of an analyst")
        listed = audience if isinstance(audience, list) else [audience]
        named = [name for name in listed if isinstance(name, str)]
        if len(named) < len(listed):
            raise _unauthorized("the aud of the token names no data set")
        begins = claims.get("nbf")
        return Token(
            analyst,
            frozenset(named),
            _seconds("exp", claims.get("exp")),
            -math.inf if begins is None else _seconds("nbf", begins),
        )


def verifier_of(settings: ServerSettings) -> Verifier | None:
    """Returns what verifies the tokens of queries, without its keys yet. None where they need no token.

    Raises:
        InvalidInput: A setting is missing, means nothing without another one, or is not safe.
    """
    if settings.identity == "off":
        return None
    if settings.identity_keys is None:
        raise InvalidInput(
            "STREAM_DP_IDENTITY_KEYS",
            "it is missing, and STREAM_DP_IDENTITY=required needs it",
            "name the JWK Set of the issuer: a file, or an https:// URL",
        )
    verifier = Verifier(settings.identity_keys, issuer=settings.identity_issuer)
    if verifier.is_url and settings.identity_issuer is None:
        raise InvalidInput(
            "STREAM_DP_IDENTITY_ISSUER",
            "it is missing, and an issuer with a URL signs tokens for other services too",
            "set it to the iss of its tokens",
        )
    return verifier


def _seconds(name: str, value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not -(2**53) < value < 2**53:  # type: ignore[operator]
        raise _unauthorized(f"the token has no {name}, or one that is not a number of seconds")
    return float(value)  # type: ignore[arg-type]


def _key_id(token: str) -> str:
    """Returns the id of the key that a token names.

    Raises:
        InvalidMessage: It is not a token, or names none.
    """
    if len(token) > _LONGEST_TOKEN:
        raise _unauthorized(f"the token is longer than {_LONGEST_TOKEN:,} characters")
    try:
        header = get_unverified_header(token)
    except Exception:  # noqa: BLE001 - anyone can send it, and nothing of it may end a worker
        raise _unauthorized("the token is not a JSON Web Token") from None
    if "crit" in header:  # we know no extension
        raise _unauthorized("the token has an extension that is not known here")
    name = header.get("kid")
    if not isinstance(name, str):
        raise _unauthorized("the token does not name its key (kid)")
    return name


# ---------------------------------------------------------------- where the keys are


def _is_safe_url(where: str) -> bool:
    """Returns whether it is a URL, and not a path.

    Raises:
        InvalidInput: It is a URL whose answer anyone on the way could change.
    """
    if "://" not in where:
        return False
    try:
        parts = urlsplit(where)
        host = parts.hostname or ""
    except ValueError:
        host = ""
    if not host or not (parts.scheme == "https" or (parts.scheme == "http" and is_loopback(host))):
        raise InvalidInput(
            _SETTING, "it is a URL that others could answer", "use https://, or the path of a file"
        )
    return True


def _state_of(path: Path) -> object:
    """Returns what changes when a file does."""
    try:
        found = path.stat()
    except OSError as error:
        raise _unreadable(error) from None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _content(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(_LARGEST_KEYS + 1)
    except OSError as error:
        raise _unreadable(error) from None


def _unreadable(error: OSError) -> InvalidInput:
    return InvalidInput(
        _SETTING,
        f"the file cannot be read ({type(error).__name__})",
        "name a JWK Set that the worker may read",
    )


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirect: it may lead to an address that is not safe."""

    def redirect_request(self, *_: Any) -> None:
        return None


def _fetched(url: str) -> bytes:
    request = Request(url, headers={"Accept": "application/json"})  # noqa: S310 - it was checked
    handlers: list[Any] = [_NoRedirect]
    if is_loopback(urlsplit(url).hostname or ""):
        handlers.append(
            ProxyHandler({})
        )  # a proxy is another machine, and could answer in its place
    try:
        with build_opener(*handlers).open(request, timeout=_FETCH_S) as reply:
            found: bytes = reply.read(_LARGEST_KEYS + 1)
    except (URLError, HTTPException, OSError, ValueError) as error:
        raise ServerUnavailable(
            f"{_SETTING}: the issuer's keys cannot be fetched ({type(error).__name__}); check the URL, and "
            "that this machine reaches it"
        ) from None
    return found


def _keys_in(content: bytes) -> _Keys:
    """Reads a JWK Set (RFC 7517). Keys that do not verify signatures are left out.

    Raises:
        InvalidInput: It is not a JWK Set, or has no such key, or two of one id.
    """
    try:
        document = json.loads(content) if len(content) <= _LARGEST_KEYS else None
    except (ValueError, RecursionError):
        document = None
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise InvalidInput(
            _SETTING, "it is not a JWK Set", 'write {"keys": [...]} with public keys'
        )
    found: dict[str, Mapping[str, PyJWK]] = {}
    for one in listed:
        if not isinstance(one, dict) or not (key := _key(one)):
            continue
        if one["kid"] in found:
            raise InvalidInput(_SETTING, "two keys have the same kid", "give each key its own kid")
        found[one["kid"]] = key
    if not found:
        raise InvalidInput(
            _SETTING,
            "it has no key to verify tokens with",
            f"list public keys with a kid: RSA of {_RSA_BITS:,} bits or more, EC, Ed25519 or Ed448",
        )
    return found


def _key(one: Mapping[str, Any]) -> Mapping[str, PyJWK]:
    """Returns the algorithms that a key is for. Empty if it is not a public key for signatures."""
    try:
        is_for_signatures = one.get("use", "sig") == "sig" and "verify" in one.get(
            "key_ops", ("verify",)
        )
        if not isinstance(one.get("kid"), str) or "d" in one or not is_for_signatures:
            return {}
        curve = None if one.get("kty") == "RSA" else one.get("crv")
        names = _ALGORITHMS.get((one.get("kty", ""), curve), ())
        found = {name: PyJWK(dict(one), name) for name in names if one.get("alg") in (None, name)}
    except Exception:  # noqa: BLE001 - one that cannot be read must not take the others away
        return {}
    if curve is None and any(key.key.key_size < _RSA_BITS for key in found.values()):
        return {}
    return found
