"""Connections and cursors, as PEP 249 describes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any, Final, NoReturn, Self, TypeAlias, TypedDict, Unpack

from stream_dp.broker import Broker
from stream_dp.client import Client, Column, ResultTable
from stream_dp.client.kafka.credentials import TokenSource
from stream_dp.dbapi.bound_parameters import bound
from stream_dp.dbapi.dbapi_errors import (
    InterfaceError,
    NotSupportedError,
    ProgrammingError,
    translated,
)

Description: TypeAlias = list[tuple[str, str, None, None, None, None, bool]]
Row: TypeAlias = tuple[Any, ...]


class _Asked(TypedDict, total=False):
    dataset: str | None
    last_phases: int | None
    at_most: float | None
    timeout_s: float


# What tools ask to see whether a connection lives. No data set is asked.
_PING: Final = re.compile(r"\s*select\s+1\s*;?\s*", re.IGNORECASE)
_PONG: Final = ResultTable("", (Column("1", "integer"),), [(1,)], None)


def connect(
    bootstrap_servers: str | Broker | None = None,
    *,
    dataset: str | None = None,
    analyst: str | None = None,
    topic_prefix: str | None = None,
    token: TokenSource | None = None,
    last_phases: int | None = None,
    at_most: float | None = None,
    timeout_s: float = 60.0,
) -> Connection:
    """Connects to the brokers, as ``Client`` does.

    Args:
        bootstrap_servers: The Kafka brokers, as ``host:port`` separated by commas. Default: those that
            ``Client`` finds.
        dataset: The data set that statements ask. Default: the one in their FROM.
        analyst: The name of the analyst. Default: the name in the token, or else the login name.
        topic_prefix: The prefix of the topic names. Default: as in ``Client``.
        token: The signed token that says who asks, or a function that returns a fresh one, as in ``Client``.
        last_phases: The number of latest phases to ask about. None asks about all phases.
        at_most: The largest share of any phase's budget that one statement may take. None for no limit.
        timeout_s: The longest wait for the next reply, in seconds.

    Raises:
        OperationalError: No broker answers.
    """
    with translated():
        client = Client(bootstrap_servers, analyst=analyst, topic_prefix=topic_prefix, token=token)
    return Connection(
        client, dataset=dataset, last_phases=last_phases, at_most=at_most, timeout_s=timeout_s
    )


class Connection:
    """A connection for one analyst. Closing it closes the client.

    Args:
        client: The client that asks.
        **asked: How statements are asked, as ``connect`` explains.
    """

    def __init__(self, client: Client, **asked: Unpack[_Asked]) -> None:
        self._client: Client | None = client
        self._asked = asked

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def client(self) -> Client:
        """The client that asks.

        Raises:
            InterfaceError: The connection is closed.
        """
        if self._client is None:
            raise InterfaceError("this connection is closed; open a new one")
        return self._client

    def close(self) -> None:
        """Closes the connection. It does nothing if it is closed already."""
        client, self._client = self._client, None
        if client is not None:
            client.close()

    def commit(self) -> None:
        """Does nothing, because every answer is final when it arrives."""
        _ = self.client

    def rollback(self) -> None:
        """Does nothing. What a statement has spent stays spent."""
        _ = self.client

    def cursor(self) -> Cursor:
        """Returns a new cursor."""
        _ = self.client
        return Cursor(self)

    def ask(self, statement: str) -> ResultTable:
        """Returns the table of a statement.

        Raises:
            ProgrammingError: The statement cannot be asked.
            OperationalError: A query was refused, or no server answers.
        """
        client = self.client
        if _PING.fullmatch(statement):
            return _PONG
        with translated():
            return client.sql(statement, **self._asked)


class Cursor:
    """Asks statements, and holds the table of the latest one.

    Attributes:
        connection: The connection.
        arraysize: The number of rows that ``fetchmany`` returns by default.
        table: The table of the latest statement, with its notes, its phases and its price. None before the
            first one.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.arraysize = 1
        self.table: ResultTable | None = None
        self._rows: Iterator[Row] = iter(())
        self._closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def description(self) -> Description | None:
        """Name, type, and whether None may occur, for each column. None before the first statement."""
        if self.table is None:
            return None
        return [
            (column.name, column.type, None, None, None, None, True)
            for column in self.table.columns
        ]

    @property
    def rowcount(self) -> int:
        """The number of rows of the table. -1 before the first statement."""
        return -1 if self.table is None else len(self.table.rows)

    def execute(self, operation: str, parameters: Sequence[Any] = ()) -> Self:
        """Asks a SELECT statement. Each question mark stands for the next of the parameters.

        Raises:
            ProgrammingError: The statement cannot be asked. The message points at the piece.
            DataError: A parameter cannot be written in SQL.
            OperationalError: A query was refused, or no server answers.
        """
        self._check_open()
        self.table, self._rows = None, iter(())
        statement = bound(operation, parameters) if parameters else operation
        self.table = self.connection.ask(statement).with_ends
        self._rows = _rows(self.table)
        return self

    def executemany(self, operation: str, seq_of_parameters: object) -> NoReturn:
        """Is not supported, because there is nothing to insert.

        Raises:
            NotSupportedError: Always.
        """
        del operation, seq_of_parameters
        raise NotSupportedError(
            "executemany: rows are sent with stream-dp ingest; ask with execute"
        )

    def fetchone(self) -> Row | None:
        """Returns the next row, or None after the last one."""
        return next(self._fetching(), None)

    def fetchmany(self, size: int | None = None) -> list[Row]:
        """Returns the next rows: ``size``, or else ``arraysize``, or as many as there are."""
        rows = self._fetching()
        most = self.arraysize if size is None else size
        return [row for _, row in zip(range(most), rows, strict=False)]

    def fetchall(self) -> list[Row]:
        """Returns all further rows."""
        return list(self._fetching())

    def __iter__(self) -> Iterator[Row]:
        return self._fetching()

    def close(self) -> None:
        """Closes the cursor. The connection stays open."""
        self._closed = True
        self.table, self._rows = None, iter(())

    def setinputsizes(self, sizes: object) -> None:
        """Does nothing, as PEP 249 allows."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """Does nothing, as PEP 249 allows."""

    def _check_open(self) -> None:
        if self._closed:
            raise InterfaceError("this cursor is closed; make a new one")
        _ = self.connection.client

    def _fetching(self) -> Iterator[Row]:
        self._check_open()
        if self.table is None:
            raise ProgrammingError("there is no table to fetch from; call execute first")
        return self._rows


def _rows(table: ResultTable) -> Iterator[Row]:
    """Yields the rows, with dates and timestamps as Python knows them."""
    readers = [_READERS.get(column.type) for column in table.columns]
    for row in table.rows:
        yield tuple(
            read(said) if read is not None and isinstance(said, str) else said
            for read, said in zip(readers, row, strict=True)
        )


_READERS: Final[Mapping[str, Callable[[str], date]]] = {
    "date": date.fromisoformat,
    "timestamp": datetime.fromisoformat,
}
