"""One connection after its login: statements by the simple and by the extended protocol."""

from __future__ import annotations

import asyncio
import struct
import time
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Final

from stream_dp.gateway.protocol import server_messages
from stream_dp.gateway.protocol.client_messages import Bind, BodyReader, Execute, NamedObject, Parse
from stream_dp.gateway.protocol.command_statements import (
    ENDS,
    CommandStatements,
    columns_of_command,
    failed_transaction,
    question_in,
)
from stream_dp.gateway.protocol.field_values import parameter
from stream_dp.gateway.protocol.server_messages import (
    data_rows,
    formats_of,
    parameter_status,
    row_description,
    said,
)
from stream_dp.gateway.protocol.sql_fault import SqlFault, unreadable
from stream_dp.gateway.protocol.statement_result import (
    PreparedStatement,
    Questions,
    SessionState,
    StatementPortal,
    StatementResult,
    check_room,
)
from stream_dp.gateway.protocol.statement_texts import (
    StatementPiece,
    bound,
    literal,
    parameter_types,
    parameters_in,
    pieces_of,
    read_ahead,
)

MOST_BYTES: Final = 1 << 20
"""The most bytes of a message."""

_LOOK_S: Final = 0.5
_SLOWEST_S: Final = 60.0
_MOST_HELD: Final = 1 << 18
_FLUSHED_AFTER: Final = b"QSH"


async def read_message(reader: asyncio.StreamReader, most: int = MOST_BYTES) -> tuple[bytes, bytes]:
    """Reads the kind and the body of a message.

    Raises:
        SqlFault: It is longer than ``most`` bytes.
    """
    head = await reader.readexactly(5)
    size = struct.unpack("!i", head[1:])[0] - 4
    if not 0 <= size <= most:
        raise unreadable(f"a message has more than {most:,} bytes, or a length that is none")
    return head[:1], await reader.readexactly(size)


class _ClientLeft(ConnectionError):
    """The client has left while its statement ran."""


class ServerConnection:
    """Serves one client that is logged in.

    Args:
        reader: What the client sends.
        writer: What it receives.
        state: What the connection keeps.
        questions: What a question gives.
        fault_of: Returns what the client reads of an error.
    """

    def __init__(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        state: SessionState,
        questions: Questions,
        fault_of: Callable[[Exception], SqlFault],
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._state = state
        self._questions = questions
        self._fault_of = fault_of
        self._out = bytearray()
        self._running: asyncio.Future[Any] | None = None
        self._commands = CommandStatements(
            state, questions, lambda name, value: self._send(parameter_status(name, value))
        )
        self._handlers: dict[bytes, Callable[[bytes], Awaitable[None]]] = {
            b"Q": self._simple,
            b"P": self._parse,
            b"B": self._bind,
            b"D": self._describe,
            b"E": self._execute,
            b"C": self._close,
            b"S": self._sync,
            b"H": self._nothing,
            b"d": self._nothing,
            b"c": self._nothing,
            b"f": self._nothing,
        }

    def cancel(self) -> None:
        """Ends the statement that runs. What was asked stays asked, and asking again is free."""
        if self._running is not None:
            self._running.cancel()

    async def serve(self) -> None:
        """Answers messages until the client leaves."""
        self._send(server_messages.ready(self._state.status))
        await self._flush()
        is_skipping = False
        while True:
            kind, body = await read_message(self._reader)
            if kind == b"X":
                return
            if is_skipping and kind != b"S":
                continue
            is_skipping = False
            try:
                if kind not in self._handlers:
                    raise unreadable("a message of this kind is not answered")
                await self._handlers[kind](body)
            except _ClientLeft:
                raise
            except Exception as error:  # noqa: BLE001 - the client is told
                fault = self._fault_of(error)
                self._send(said(fault))
                if fault.severity == "FATAL":
                    await self._flush()
                    return
                if self._state.status == "T":
                    self._state.status = "E"
                if kind == b"Q":
                    self._send(server_messages.ready(self._state.status))
                # A client in pipeline mode waits for the error before it sends Sync.
                is_skipping = kind not in b"QS"
                await self._flush()
            if kind in _FLUSHED_AFTER or len(self._out) > _MOST_HELD:
                await self._flush()

    def _send(self, data: bytes) -> None:
        self._out += data

    async def _flush(self) -> None:
        if self._out:
            data, self._out = bytes(self._out), bytearray()
            self._writer.write(data)
            async with asyncio.timeout(_SLOWEST_S):
                await self._writer.drain()

    # ------------------------------------------------------------ the simple protocol

    async def _simple(self, body: bytes) -> None:
        reader = BodyReader(body)
        text = reader.text()
        reader.end()
        pieces = pieces_of(text)
        if not pieces:
            self._send(server_messages.EMPTY)
        for piece in pieces:
            if parameters_in(piece.text):
                raise SqlFault(
                    "42P02",
                    "there is no parameter $1",
                    hint="prepare the statement, or write a value",
                )
            portal = StatementPortal(PreparedStatement(piece), piece.text)
            result = await self._run(portal, piece.offset)
            if result.columns is not None:
                self._send(result.head(()))
            self._send_rows(portal, result, 0)
            if len(self._out) > _MOST_HELD:
                await self._flush()
        self._send(server_messages.ready(self._state.status))

    # ------------------------------------------------------------ the extended protocol

    async def _parse(self, body: bytes) -> None:
        asked = Parse.read(body)
        pieces = pieces_of(asked.text)
        if len(pieces) > 1:
            raise SqlFault("42601", "cannot insert multiple commands into a prepared statement")
        check_room(self._state.prepared, asked.name, "prepared statements")
        if asked.name and asked.name in self._state.prepared:
            raise SqlFault("42P05", "a prepared statement of this name exists already")
        prepared = PreparedStatement(None)
        if pieces:
            (piece,) = pieces
            if self._state.status == "E" and piece.word not in ENDS:
                raise failed_transaction()
            asking = question_in(piece) or piece
            await read_ahead(asking.text)
            columns_known = self._questions.types_of_columns(asking.text)
            types = parameter_types(asking.text, asked.types, columns_known)
            if piece.is_question:
                describing = self._questions.describe(piece.text, self._state.settings)
                columns = await self._placed(describing, None if types else piece.offset)
            else:
                columns = columns_of_command(piece, self._state)
            prepared = PreparedStatement(piece, types, columns)
        self._state.prepared[asked.name] = prepared
        self._send(server_messages.PARSED)

    async def _bind(self, body: bytes) -> None:
        asked = Bind.read(body)
        prepared = self._prepared(asked.statement)
        types = prepared.types
        if len(asked.values) != len(types):
            raise SqlFault("08P01", f"{len(asked.values)} parameters are given for {len(types)}")
        check_room(self._state.portals, asked.portal, "portals")
        text = prepared.piece.text if prepared.piece is not None else ""
        if types:
            formats = formats_of(asked.formats, len(types))
            literals = [
                "NULL" if data is None else literal(parameter(data, kind, binary=form == 1), kind)
                for data, kind, form in zip(asked.values, types, formats, strict=True)
            ]
            text = bound(text, literals)
        formats_of(asked.results, len(prepared.columns or asked.results))
        self._state.portals[asked.portal] = StatementPortal(prepared, text, asked.results)
        self._send(server_messages.BOUND)

    async def _describe(self, body: bytes) -> None:
        asked = NamedObject.read(body)
        if asked.kind == "S":
            prepared, formats = self._prepared(asked.name), tuple[int, ...]()
            self._send(server_messages.parameter_types(prepared.types))
            columns = prepared.columns
        else:
            portal = self._portal(asked.name)
            formats = portal.formats
            columns = portal.prepared.columns if portal.result is None else portal.result.columns
        self._send(
            server_messages.NO_COLUMNS if columns is None else row_description(columns, formats)
        )

    async def _execute(self, body: bytes) -> None:
        asked = Execute.read(body)
        portal = self._portal(asked.portal)
        if portal.prepared.piece is None:
            self._send(server_messages.EMPTY)
            return
        is_as_sent = portal.text == portal.prepared.piece.text
        result = portal.result or await self._run(
            portal, portal.prepared.piece.offset if is_as_sent else None
        )
        self._send_rows(portal, result, asked.most)

    async def _close(self, body: bytes) -> None:
        asked = NamedObject.read(body)
        if asked.kind == "S":
            self._state.prepared.pop(asked.name, None)
        else:
            self._state.portals.pop(asked.name, None)
        self._send(server_messages.CLOSED)

    async def _sync(self, _: bytes) -> None:
        if self._state.status == "I":
            self._state.portals = {
                name: one
                for name, one in self._state.portals.items()
                if name in self._state.cursors
            }
        self._send(server_messages.ready(self._state.status))

    async def _nothing(self, _: bytes) -> None:
        """Flush needs no work of its own, and data of COPY comes late, after its refusal."""

    def _prepared(self, name: str) -> PreparedStatement:
        if name not in self._state.prepared:
            raise SqlFault("26000", "this prepared statement does not exist")
        return self._state.prepared[name]

    def _portal(self, name: str) -> StatementPortal:
        if name not in self._state.portals:
            raise SqlFault("34000", "this portal does not exist")
        return self._state.portals[name]

    # ------------------------------------------------------------ running

    async def _run(self, portal: StatementPortal, offset: int | None) -> StatementResult:
        """Runs a statement, and says what it notes.

        Args:
            portal: The statement.
            offset: Where it begins in what the client sent. None where values stand in it, so that no
                position in it is one of the client's text.
        """
        piece = portal.prepared.piece
        assert piece is not None, "an empty text is not run"
        if piece.is_question:
            if self._state.status == "E":
                raise failed_transaction()
            work = self._questions.answer(portal.text, self._state.settings)
        else:
            work = self._commands.run(StatementPiece(portal.text, piece.offset))
            asked = question_in(piece)
            offset = None if offset is None or asked is None else offset + asked.offset
        result: StatementResult = await self._placed(work, offset)
        described = portal.prepared.columns
        if described is not None and result.columns != described:
            raise SqlFault(
                "0A000", "cached plan must not change result type", hint="prepare it again"
            )
        portal.result = result
        if self._state.settings.has_notices:
            for words in result.notices:
                self._send(said(SqlFault("00000", words, severity="NOTICE")))
        return result

    async def _placed(self, work: Coroutine[Any, Any, Any], offset: int | None) -> Any:
        """Waits for work; a fault of it points into what the client sent.

        Args:
            work: The work on a statement.
            offset: Where the statement begins. None where it is not as the client sent it.
        """
        try:
            return await self._until_ended(work)
        except _ClientLeft:
            raise
        except Exception as error:
            fault = self._fault_of(error)
            if fault.position is not None:
                fault.position = None if offset is None else fault.position + offset
            raise fault from error

    async def _until_ended(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Waits for work that a time limit, another connection or the client's leaving may end."""
        self._running = running = asyncio.ensure_future(work)
        end = time.monotonic() + self._state.settings.timeout_s
        try:
            while not running.done():
                left = end - time.monotonic()
                if left <= 0.0:
                    raise _canceled("statement timeout")
                await asyncio.wait([running], timeout=min(left, _LOOK_S))
                if self._reader.at_eof():
                    raise _ClientLeft
            if running.cancelled():
                raise _canceled("user request")
            return running.result()
        finally:
            running.cancel()
            self._running = None

    def _send_rows(self, portal: StatementPortal, result: StatementResult, most: int) -> None:
        """Sends the next rows of a result, at most ``most`` of them, or all for 0."""
        if result.columns is None:
            self._send(server_messages.done(result.tag))
            return
        left = len(result.rows) - portal.sent
        if portal.sent == 0 and (most == 0 or most >= left):
            self._send(result.all_rows(portal.formats))
            portal.sent = left
        else:
            rows = result.rows[portal.sent :][: most or None]
            self._send(data_rows(result.columns, rows, portal.formats))
            portal.sent += len(rows)
            left = len(rows)
        if portal.sent < len(result.rows):
            self._send(server_messages.SUSPENDED)
        else:
            self._send(server_messages.done(result.tag or f"SELECT {left}"))


def _canceled(why: str) -> SqlFault:
    return SqlFault(
        "57014",
        f"canceling statement due to {why}",
        hint="ask again: what was answered meanwhile is free",
    )
