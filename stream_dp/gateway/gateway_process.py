"""A gateway while it runs."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from stream_dp.client import AsyncClient
from stream_dp.errors import InvalidInput
from stream_dp.gateway.accounts import accounts_in
from stream_dp.gateway.deployment import Deployment
from stream_dp.gateway.gateway_logins import Admission
from stream_dp.gateway.gateway_server import GatewayServer
from stream_dp.settings import GatewaySettings, is_loopback

if TYPE_CHECKING:
    from stream_dp.tokens import Verifier

_ANALYST = "gateway"
"""The name of the client that reads. Those who ask have names of their own."""


@asynccontextmanager
async def running(settings: GatewaySettings) -> AsyncIterator[asyncio.Server]:
    """Runs a gateway while the context lasts.

    Raises:
        InvalidInput: Others could read what clients send, or anybody could ask.
        ServerUnavailable: No broker answers, or the port is taken.
    """
    is_local = is_loopback(settings.gateway_bind) or settings.gateway_open
    tls, verifier = _tls(settings), _verifier(settings)
    accounts = None if settings.gateway_accounts is None else Path(settings.gateway_accounts)
    if accounts is not None:
        accounts_in(accounts)
    if not is_local and tls is None:
        raise InvalidInput(
            "STREAM_DP_GATEWAY_CERT_FILE",
            f"it is missing, and others can read what is sent to {settings.gateway_bind}",
            "name a certificate and its key, or bind the gateway to 127.0.0.1",
        )
    if not is_local and verifier is None and accounts is None:
        raise InvalidInput(
            "STREAM_DP_IDENTITY",
            f"anybody who reaches {settings.gateway_bind} could ask in any name",
            "set it to required, or name accounts in STREAM_DP_GATEWAY_ACCOUNTS",
        )
    if verifier is not None:
        await asyncio.to_thread(verifier.load)
    _take_open_files()
    deployment = Deployment(
        lambda: AsyncClient(settings.broker, analyst=_ANALYST, topic_prefix=settings.topic_prefix)
    )
    admission = Admission(is_local=is_local, verifier=verifier, accounts=accounts)
    watching = None if verifier is None else asyncio.create_task(verifier.watch())
    try:
        await deployment.start()
        server = await GatewayServer(deployment, admission, tls).listen(
            settings.gateway_bind, settings.gateway_port
        )
        async with server:
            yield server
    finally:
        if watching is not None:
            watching.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watching
        await deployment.close()


def _verifier(settings: GatewaySettings) -> Verifier | None:
    """Returns what verifies tokens. Where none are needed, what reads them is not loaded either."""
    if settings.identity == "off":
        return None
    from stream_dp.tokens import verifier_of

    return verifier_of(settings)


def _tls(settings: GatewaySettings) -> ssl.SSLContext | None:
    """Returns how connections are encrypted; None without a certificate.

    Raises:
        InvalidInput: The certificate cannot be read, or its key is another one.
    """
    if settings.gateway_cert_file is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.gateway_cert_file, settings.gateway_key_file)
    except (OSError, ssl.SSLError) as error:
        raise InvalidInput(
            "STREAM_DP_GATEWAY_CERT_FILE",
            f"the certificate and its key cannot be used ({type(error).__name__})",
            "name PEM files that the gateway may read",
        ) from None
    return context


def _take_open_files() -> None:
    """Takes as many open files as this user may: each connection is one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
