"""Access to the pages: tokens, the names of this machine, and no requests across origins.

A role's token opens pages. An analyst's signed token opens the analysts' pages too, and says who asks.
"""

from __future__ import annotations

import hmac
import re
import secrets
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Final, Literal
from urllib.parse import urlsplit

from aiohttp import web

from stream_dp.errors import InvalidInput, InvalidMessage
from stream_dp.settings import is_loopback
from stream_dp.tokens import NO_TOKEN, Token, Verifier

Role = Literal["analyst", "operator"]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~-]{16,256}")
_OPEN: Final = frozenset({"/healthz", "/enter"})
_ANALYST: Final = frozenset({"/ask", "/stream/analyst", "/question"})
_LONGEST_COOKIE: Final = 3_800
_STATIC: Final = "/static/"
_API: Final = "/api/"
_FORWARDED: Final = ("Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Real-IP", "Via")
_HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "Server": "stream_dp",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True, slots=True)
class Asker:
    """The sender of a request, whose signed token was verified.

    Attributes:
        token: The token, which goes along with what is asked.
        says: What it says.
    """

    token: str = field(repr=False)
    says: Token


_ASKER: Final = web.RequestKey("asker", Asker)
_FAULT: Final = web.RequestKey("fault", InvalidMessage)
"""What is kept with a request that has a signed token: its ``Asker``, or the fault of the token."""


class Access:
    """The access rules of one web server.

    On a loopback address without a given token, everybody on this machine may see all pages. Otherwise each
    role has a token, and a missing one is created.

    Args:
        host: The address on which the pages are served.
        port: The port. All ports of a host share their cookies, so the name of a cookie contains the port.
        verifier: What verifies the signed tokens of analysts. None where queries need none.
        token_header: The header in which a proxy passes such a token on. Behind a proxy pages are never open
            to everybody.

    Raises:
        InvalidInput: A token is too simple, or both tokens are the same.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        operator_token: str | None = None,
        analyst_token: str | None = None,
        verifier: Verifier | None = None,
        token_header: str | None = None,
    ) -> None:
        given: dict[Role, str | None] = {"operator": operator_token, "analyst": analyst_token}
        for role, token in given.items():
            if token is not None and not _TOKEN.fullmatch(token):
                raise InvalidInput(
                    f"STREAM_DP_WEB_{role.upper()}_TOKEN",
                    "it is too short, or has characters other than letters, digits and . _ ~ -",
                    "use 16 to 256 random characters, or omit it so that the worker creates one",
                )
        if operator_token is not None and operator_token == analyst_token:
            raise InvalidInput(
                "STREAM_DP_WEB_ANALYST_TOKEN",
                "it is the same as the operator's",
                "use two different tokens",
            )
        closed = not is_loopback(host) or any(given.values()) or token_header is not None
        self.made = {role for role, token in given.items() if closed and token is None}
        """The roles whose tokens were created, because none was given."""
        self.tokens: dict[Role, str] = (
            {role: token or secrets.token_urlsafe(24) for role, token in given.items()}
            if closed
            else {}
        )
        self._cookie = f"stream_dp_{port}"
        self._local = is_loopback(host)
        self._verifier = verifier
        self._token_header = token_header

    def role(self, request: web.Request) -> Role | None:
        """Returns the role of a request's sender, or None without access."""
        return self._role_by_token(request) or ("analyst" if _ASKER in request else None)

    def _role_by_token(self, request: web.Request) -> Role | None:
        """Returns the role whose token a request shows."""
        if not self.tokens:
            return "operator"
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            token = request.cookies.get(self._cookie, "")
        return self.role_of(token)

    def seen(self, request: web.Request) -> frozenset[str] | None:
        """Returns the data sets that a request's sender may see. None for all.

        A signed token shows those that it is for, unless the token of a role opens all.
        """
        if self._role_by_token(request) is not None or _ASKER not in request:
            return None
        return request[_ASKER].says.datasets

    def name(self, request: web.Request) -> str | None:
        """Returns the name of the analyst in the signed token of a request. None without one."""
        return request[_ASKER].says.analyst if _ASKER in request else None

    def asker(self, request: web.Request, dataset: str) -> Asker | None:
        """Returns who asks a data set. None where queries need no signed token.

        Raises:
            InvalidMessage: They do, and the request has none that is for this data set.
        """
        if self._verifier is None:
            return None
        if _FAULT in request:
            raise request[_FAULT]
        if _ASKER not in request:
            raise NO_TOKEN
        asker = request[_ASKER]
        asker.says.check_dataset(dataset)
        return asker

    async def asker_of(self, token: str) -> Asker | None:
        """Returns who a signed token is for. None if it is not one that holds now."""
        try:
            return await self._verified(token)
        except InvalidMessage:
            return None

    async def _verified(self, token: str) -> Asker | None:
        if self._verifier is None:
            return None
        says = await self._verifier.verified(token)
        says.check_time(time.time())
        return Asker(token, says)

    async def _recognise(self, request: web.Request) -> None:
        """Keeps with a request who its signed token says that its sender is, or why it does not say."""
        token = self._signed_token(request)
        if token is None:
            return
        try:
            asker = await self._verified(token)
        except InvalidMessage as fault:
            request[_FAULT] = fault
        else:
            if asker is not None:
                request[_ASKER] = asker

    def _signed_token(self, request: web.Request) -> str | None:
        """Returns the signed token of a request, where it has one: no token of a role is one."""
        if self._token_header is not None and (said := request.headers.get(self._token_header)):
            return said.strip()
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.role_of(token) is None:
            return token.strip()
        return request.cookies.get(f"{self._cookie}_signed")

    def role_of(self, token: str) -> Role | None:
        """Returns the role of a token. A wrong token takes the same time."""
        found: Role | None = None
        for role, right in self.tokens.items():
            if hmac.compare_digest(token.encode(errors="replace"), right.encode()):
                found = role
        return found

    def admit(
        self, request: web.Request, response: web.Response, token: str, *, signed: bool
    ) -> None:
        """Sets the cookie of a browser that has shown its token. After TLS the cookie needs TLS.

        A browser may have one of each kind: an operator can ask in a name.

        Raises:
            InvalidInput: The token is longer than browsers keep.
        """
        if len(token) > _LONGEST_COOKIE:
            raise InvalidInput(
                "token",
                f"it is longer than {_LONGEST_COOKIE:,} characters, which no browser keeps",
                "let a proxy send it, see STREAM_DP_WEB_TOKEN_HEADER",
            )
        name = f"{self._cookie}_signed" if signed else self._cookie
        secure = request.headers.get("Origin", "").startswith("https://")
        response.set_cookie(name, token, httponly=True, samesite="Strict", secure=secure, path="/")

    def install(self, app: web.Application, enter: Handler) -> None:
        """Guards all pages that ``app`` serves.

        Args:
            app: The web application.
            enter: The handler of the page that asks a person for a token.
        """

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            if not self.tokens:
                _check_name(request)
                _check_near(request)
            if not _is_same_origin(request):
                raise web.HTTPForbidden(text="a page of another site may not use this page\n")
            if request.path in _OPEN or request.path.startswith(_STATIC):
                return await handler(request)
            await self._recognise(request)
            role = self.role(request)
            if role == "operator" or (role == "analyst" and _is_for_analysts(request.path)):
                seen, name = self.seen(request), request.match_info.get("dataset")
                if seen is not None and name is not None:
                    request[_ASKER].says.check_dataset(name)
                return await handler(request)
            if role == "analyst" and request.path == "/":
                raise web.HTTPSeeOther("/ask")
            if request.path in ("/", "/ask") and "text/html" in request.headers.get("Accept", ""):
                return await enter(request)
            if _FAULT in request and request.path.startswith(_API):
                raise request[_FAULT]
            raise web.HTTPUnauthorized(text="this page needs a token\n")

        app.middlewares.append(guard)
        app.on_response_prepare.append(_add_headers)

    def install_without_tokens(self, app: web.Application) -> None:
        """Guards an ``app`` that needs no token against other sites' pages in this machine's browsers."""

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            if self._local:
                _check_name(request)
            return await handler(request)

        app.middlewares.append(guard)
        app.on_response_prepare.append(_add_headers)


def _is_for_analysts(path: str) -> bool:
    return path in _ANALYST or path.startswith(_API)


def _check_name(request: web.Request) -> None:
    """Refuses names other than this machine's own, because another site's name could lead here."""
    host = request.headers.get("Host")
    if host is not None and not is_loopback(_name_in(f"//{host}")):
        raise web.HTTPMisdirectedRequest(text="use the name localhost or 127.0.0.1 for this page\n")


def _check_near(request: web.Request) -> None:
    """Refuses requests that a proxy passes on, because they may come from anyone on any machine."""
    if any(name in request.headers for name in _FORWARDED):
        raise web.HTTPForbidden(
            text="behind a proxy these pages need tokens: set STREAM_DP_WEB_OPERATOR_TOKEN\n"
        )


def _name_in(address: str) -> str:
    """Returns the name of the host without its port. Empty if there is none."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _is_same_origin(request: web.Request) -> bool:
    """Returns whether the request comes from one of our pages, or from a link that somebody follows."""
    if request.headers.get("Sec-Fetch-Mode") == "navigate" and request.method == "GET":
        return True
    if request.headers.get("Sec-Fetch-Site", "none") not in ("none", "same-origin"):
        return False
    origin = request.headers.get("Origin")
    return origin is None or origin.partition("://")[2] == request.headers.get("Host")


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(_HEADERS)
    if response.status != HTTPStatus.NOT_MODIFIED:
        response.headers.setdefault("Cache-Control", "no-store")
