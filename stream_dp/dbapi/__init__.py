"""A driver for Python's database interface (PEP 249), so that other tools can ask in SQL.

``connect()`` gives a connection, whose cursors take SELECT statements. Each column of published values is
followed by one with its error bars, whose name ends in ``_error_bar``, and by two with the least and the
largest values that these leave, whose names end in ``_low`` and ``_high``. Where published values choose the
rows, the last columns say which of them are sure: ``rank``, ``rank_low`` and ``rank_high``, and ``having``.

Example:
    >>> from stream_dp import dbapi
    >>> dbapi.apilevel, dbapi.paramstyle
    ('2.0', 'qmark')
"""

from typing import Final

from stream_dp.dbapi.connections import Connection, Cursor, connect
from stream_dp.dbapi.dbapi_errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    Warning,  # noqa: A004 - the name that PEP 249 gives
)
from stream_dp.dbapi.dbapi_types import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    Date,
    DateFromTicks,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
)

apilevel: Final = "2.0"
threadsafety: Final = 2
"""Threads may share the module and connections, but not cursors."""
paramstyle: Final = "qmark"

__all__ = [
    "BINARY",
    "DATETIME",
    "NUMBER",
    "ROWID",
    "STRING",
    "Binary",
    "Connection",
    "Cursor",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]
