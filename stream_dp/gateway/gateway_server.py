"""The server: it takes connections, logs them in and serves them, with limits on all of them."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import ssl
from typing import Final

from stream_dp.errors import ServerUnavailable
from stream_dp.gateway.analyst_questions import AnalystQuestions
from stream_dp.gateway.deployment import Deployment
from stream_dp.gateway.fault_states import fault_of
from stream_dp.gateway.gateway_logins import Admission
from stream_dp.gateway.protocol import server_messages
from stream_dp.gateway.protocol.connection import ServerConnection
from stream_dp.gateway.protocol.login import ClientStart
from stream_dp.gateway.protocol.session_settings import SessionSettings
from stream_dp.gateway.protocol.sql_fault import SqlFault
from stream_dp.gateway.protocol.statement_result import SessionState
from stream_dp.gateway.published_facts import DATABASE

PLAIN_DATABASE: Final = "stream_dp_plain"
"""The database without columns of error bars, for tools that can send no settings."""

_ENDED: Final = SqlFault("57P01", "the gateway is shut down", severity="FATAL")
_MOST_CONNECTIONS: Final = 2_000
_LOGIN_S: Final = 10.0
_BACKLOG: Final = 1_000


class GatewayServer:
    """Serves the protocol of Postgres.

    Args:
        deployment: The data sets.
        admission: Who may log in.
        tls: How to encrypt. None on this machine alone.

    Attributes:
        n_open: The number of open connections.
    """

    def __init__(
        self, deployment: Deployment, admission: Admission, tls: ssl.SSLContext | None = None
    ) -> None:
        self._deployment = deployment
        self._admission = admission
        self._tls = tls
        self._connections: dict[tuple[int, bytes], ServerConnection] = {}
        self.n_open = 0

    async def listen(self, host: str, port: int) -> asyncio.Server:
        """Begins to take connections.

        Raises:
            ServerUnavailable: The port is taken.
        """
        try:
            return await asyncio.start_server(self._connected, host, port, backlog=_BACKLOG)
        except OSError as error:
            raise ServerUnavailable(
                f"the gateway cannot listen on port {port} of {host} ({error.strerror}); pass a free --port"
            ) from None

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.n_open += 1
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        try:
            if self.n_open > _MOST_CONNECTIONS:
                raise SqlFault("53300", "too many connections already", severity="FATAL")
            await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, TimeoutError, OSError):
            pass  # the client has left, or said nothing for too long
        except asyncio.CancelledError:
            writer.write(server_messages.said(_ENDED))
            raise
        except Exception as error:  # noqa: BLE001 - the client is told
            fault = fault_of(error)
            fault.severity = "FATAL"
            with contextlib.suppress(OSError):
                writer.write(server_messages.said(fault))
        finally:
            self.n_open -= 1
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        key = secrets.randbits(31), secrets.token_bytes(4)
        start = ClientStart(reader, writer, self._tls)
        async with asyncio.timeout(_LOGIN_S):
            said = await start.begin(self._cancel)
            if said is None:
                return
            if said.database not in (DATABASE, PLAIN_DATABASE, said.user):
                raise SqlFault(
                    "3D000",
                    f'database "{said.database}" does not exist',
                    hint=f"use {DATABASE}, or {PLAIN_DATABASE} without columns of error bars",
                    severity="FATAL",
                )
            if said.unknown or said.is_newer:
                writer.write(server_messages.older_version(said.unknown))
            login = await self._admission.login(start, said, _address(writer))
        settings = SessionSettings(said.settings, said.user)
        if said.database == PLAIN_DATABASE:
            settings.change("stream_dp.error_bars", "off")
        writer.write(server_messages.ADMITTED)
        for name, value in settings.reported():
            writer.write(server_messages.parameter_status(name, value))
        writer.write(server_messages.key_of_connection(key))
        questions = AnalystQuestions(self._deployment, login)
        connection = ServerConnection(reader, writer, SessionState(settings), questions, fault_of)
        self._connections[key] = connection
        try:
            await connection.serve()
        finally:
            del self._connections[key]

    def _cancel(self, key: tuple[int, bytes]) -> None:
        if (connection := self._connections.get(key)) is not None:
            connection.cancel()


def _address(writer: asyncio.StreamWriter) -> str:
    peer = writer.get_extra_info("peername")
    return str(peer[0]) if peer else ""
