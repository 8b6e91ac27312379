"""Who may see which page: tokens, names of this machine, and nothing across origins."""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Final, Literal
from urllib.parse import urlsplit

from aiohttp import web

from stream_dp.errors import InvalidInput

__all__ = ["Access", "Role", "is_loopback"]

Role = Literal["analyst", "operator"]
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_TOKEN: Final = re.compile(r"[A-Za-z0-9._~-]{16,256}")
_OPEN: Final = frozenset({"/healthz", "/enter"})
_ANALYST: Final = frozenset({"/ask", "/stream/analyst", "/question"})
_STATIC: Final = "/static/"
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


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what is served on ``host``."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class Access:
    """The rules for one web server.

    On a loopback address and with no token given, everybody on this machine may see everything. Else each
    role has a token, and one that is not given is made.

    Args:
        host: Address that the pages are served on.
        port: Cookies are shared by all ports of a host, so their names tell them apart.

    Raises:
        InvalidInput: A token is too simple, or both are the same.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        operator_token: str | None = None,
        analyst_token: str | None = None,
    ) -> None:
        given: dict[Role, str | None] = {"operator": operator_token, "analyst": analyst_token}
        for role, token in given.items():
            if token is not None and not _TOKEN.fullmatch(token):
                raise InvalidInput(
                    f"STREAM_DP_WEB_{role.upper()}_TOKEN",
                    "it is too short, or holds other characters than letters, digits and . _ ~ -",
                    "take 16 to 256 random ones, or none: then one is made",
                )
        if operator_token is not None and operator_token == analyst_token:
            raise InvalidInput(
                "STREAM_DP_WEB_ANALYST_TOKEN", "it is the operator's too", "give each role its own"
            )
        closed = not is_loopback(host) or any(given.values())
        self.made = {role for role, token in given.items() if closed and token is None}
        """Roles whose tokens nobody has given."""
        self.tokens: dict[Role, str] = (
            {role: token or secrets.token_urlsafe(24) for role, token in given.items()}
            if closed
            else {}
        )
        self._cookie = f"stream_dp_{port}"
        self._local = is_loopback(host)

    def role(self, request: web.Request) -> Role | None:
        """What the sender of a request may see; None for nothing."""
        if not self.tokens:
            return "operator"
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer":
            token = request.cookies.get(self._cookie, "")
        return self.role_of(token)

    def role_of(self, token: str) -> Role | None:
        """The role that a token opens; takes as long for a wrong one."""
        found: Role | None = None
        for role, right in self.tokens.items():
            if hmac.compare_digest(token.encode(errors="replace"), right.encode()):
                found = role
        return found

    def admit(self, request: web.Request, response: web.Response, token: str) -> None:
        """Lets a browser in that has shown its token; where it came by TLS, the cookie goes no other way."""
        secure = request.headers.get("Origin", "").startswith("https://")
        response.set_cookie(
            self._cookie, token, httponly=True, samesite="Strict", secure=secure, path="/"
        )

    def install(self, app: web.Application, enter: Handler) -> None:
        """Guards everything that ``app`` serves.

        Args:
            enter: Serves the page that asks a person for a token.
        """

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            if not self.tokens:
                _check_name(request)
                _check_near(request)
            if not _is_same_origin(request):
                raise web.HTTPForbidden(text="another site's page may not ask this one\n")
            if request.path in _OPEN or request.path.startswith(_STATIC):
                return await handler(request)
            role = self.role(request)
            if role == "operator" or (role == "analyst" and request.path in _ANALYST):
                return await handler(request)
            if role == "analyst" and request.path == "/":
                raise web.HTTPSeeOther("/ask")
            if request.path in ("/", "/ask") and "text/html" in request.headers.get("Accept", ""):
                return await enter(request)
            raise web.HTTPUnauthorized(text="this needs a token\n")

        app.middlewares.append(guard)
        app.on_response_prepare.append(_add_headers)

    def install_without_tokens(self, app: web.Application) -> None:
        """Guards what ``app`` serves to whoever reaches its port: not to pages in this machine's browsers."""

        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            if self._local:
                _check_name(request)
            return await handler(request)

        app.middlewares.append(guard)
        app.on_response_prepare.append(_add_headers)


def _check_name(request: web.Request) -> None:
    """Refuses other names than this machine's own: a page of a site whose name leads here could read ours."""
    host = request.headers.get("Host")
    if host is not None and not is_loopback(_name_in(f"//{host}")):
        raise web.HTTPMisdirectedRequest(
            text="this page goes by the names localhost and 127.0.0.1\n"
        )


def _check_near(request: web.Request) -> None:
    """Refuses what a proxy passes on: then it may be anybody who asks, from any machine."""
    if any(name in request.headers for name in _FORWARDED):
        raise web.HTTPForbidden(
            text="behind a proxy these pages need tokens: set STREAM_DP_WEB_OPERATOR_TOKEN\n"
        )


def _name_in(address: str) -> str:
    """The host's name without its port; empty where there is none."""
    try:
        return urlsplit(address).hostname or ""
    except ValueError:
        return ""


def _is_same_origin(request: web.Request) -> bool:
    """Whether a browser sends this for a page of ours, or since somebody follows a link."""
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
