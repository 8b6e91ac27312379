"""The messages that the server sends, as bytes (manual of Postgres, "Message Formats")."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final, TypeAlias

from stream_dp.gateway.pg_types import OIDS, SIZES
from stream_dp.gateway.protocol.field_values import as_binary, as_text
from stream_dp.gateway.protocol.sql_fault import SqlFault

Columns: TypeAlias = Sequence[tuple[str, str]]
"""The name and the Postgres type of each column."""

PARSED: Final = b"1\x00\x00\x00\x04"
BOUND: Final = b"2\x00\x00\x00\x04"
CLOSED: Final = b"3\x00\x00\x00\x04"
NO_COLUMNS: Final = b"n\x00\x00\x00\x04"
EMPTY: Final = b"I\x00\x00\x00\x04"
SUSPENDED: Final = b"s\x00\x00\x00\x04"
ADMITTED: Final = b"R\x00\x00\x00\x08\x00\x00\x00\x00"
NULL: Final = b"\xff\xff\xff\xff"


def message(kind: bytes, body: bytes = b"") -> bytes:
    """Returns a message: its kind, its length and its body."""
    return kind + struct.pack("!i", len(body) + 4) + body


def authentication(code: int, more: bytes = b"") -> bytes:
    """Returns a step of a login, such as 3 for a password in clear text."""
    return message(b"R", struct.pack("!i", code) + more)


def parameter_status(name: str, value: str) -> bytes:
    """Returns what the driver is told of a setting that it follows."""
    return message(b"S", _text(name) + _text(value))


def key_of_connection(key: tuple[int, bytes]) -> bytes:
    """Returns the key with which another connection may cancel a statement of this one."""
    return message(b"K", struct.pack("!i", key[0]) + key[1])


def older_version(unknown: Sequence[str]) -> bytes:
    """Returns the answer to a newer minor version of the protocol, or to options that are not known."""
    head = struct.pack("!ii", 3 << 16, len(unknown))
    return message(b"v", head + b"".join(map(_text, unknown)))


def ready(status: str) -> bytes:
    """Returns that the next statement may come.

    Args:
        status: ``I`` outside a transaction, ``T`` in one, ``E`` in a failed one.
    """
    return message(b"Z", status.encode())


def done(tag: str) -> bytes:
    """Returns the end of a statement, such as ``SELECT 3``."""
    return message(b"C", _text(tag))


def said(fault: SqlFault) -> bytes:
    """Returns an error or a notice."""
    fields = {
        "S": fault.severity,
        "V": fault.severity,
        "C": fault.state,
        "M": fault.message,
        "D": fault.detail,
        "H": fault.hint,
        "P": fault.position,
    }
    body = b"".join(
        key.encode() + _text(str(value)) for key, value in fields.items() if value is not None
    )
    return message(b"N" if fault.severity == "NOTICE" else b"E", body + b"\0")


def parameter_types(types: Sequence[str]) -> bytes:
    """Returns the types of the parameters of a statement."""
    return message(b"t", struct.pack(f"!h{len(types)}I", len(types), *map(OIDS.__getitem__, types)))


def row_description(columns: Columns, formats: Sequence[int] = ()) -> bytes:
    """Returns the names, types and formats of the columns."""
    body = bytearray(struct.pack("!h", len(columns)))
    for (name, kind), form in zip(columns, formats_of(formats, len(columns)), strict=True):
        body += _text(name)
        body += struct.pack("!IhIhih", 0, 0, OIDS.get(kind, 25), SIZES.get(kind, -1), -1, form)
    return message(b"T", bytes(body))


def data_rows(
    columns: Columns, rows: Iterable[Sequence[Any]], formats: Sequence[int] = ()
) -> bytes:
    """Returns rows, each as a message.

    Args:
        columns: The columns.
        rows: The rows, each with a value for each column.
        formats: 0 for text and 1 for binary: none, one for all columns, or one for each.
    """
    writers = [
        (as_binary if form else as_text, kind)
        for (_, kind), form in zip(columns, formats_of(formats, len(columns)), strict=True)
    ]
    head, found = struct.pack("!h", len(columns)), bytearray()
    for row in rows:
        fields = bytearray(head)
        for value, (written, kind) in zip(row, writers, strict=True):
            if value is None:
                fields += NULL
            else:
                data = written(value, kind)
                fields += struct.pack("!i", len(data)) + data
        found += b"D" + struct.pack("!i", len(fields) + 4) + fields
    return bytes(found)


def formats_of(formats: Sequence[int], n: int) -> Sequence[int]:
    """Returns a format for each of ``n`` fields: none given means text, and one given is for all.

    Raises:
        SqlFault: There are some, and too few.
    """
    if len(formats) == n:
        return formats
    if len(formats) > 1:
        raise SqlFault("08P01", f"{len(formats)} formats are given for {n} fields")
    return [formats[0] if formats else 0] * n


def _text(value: str) -> bytes:
    return value.replace("\0", "").encode() + b"\0"
