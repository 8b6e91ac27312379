"""Rows out of an Arrow IPC stream, in memory that is a small multiple of its bytes.

A few bytes of Arrow can stand for any number: nulls and runs have no bytes of their own, views and
dictionaries point at one text many times, bodies are compressed, and the metadata may list one table over and
over. So the form of the whole stream is checked here, where it lies, before pyarrow builds anything out of
it: flat columns of types that have bytes for each value, within the record, no byte used twice. What is left
for pyarrow it reads without copying.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

import numpy as np

from stream_dp.core.rows.column_values import AnyColumn, Repeated
from stream_dp.core.rows.row_moments import DAY, TIME, DateColumn
from stream_dp.core.rows.universe import MAX_ATTRIBUTES
from stream_dp.errors import InvalidMessage

_MOST_COLUMNS = MAX_ATTRIBUTES + 1  # one says whose row it is
_MOST_VALUES = 1 << 23  # 64 MiB of pointers to them
_MOST_METADATA = 1 << 22
_ENTRY = 256  # the most bytes of a pair of strings, without the strings

_DATES: Final = frozenset({8, 10})
"""Date and Timestamp: numbers of the union ``Type`` in Schema.fbs."""
_READ: Final = frozenset({1, 2, 3, 5, 6, 7, 20}) | _DATES
"""Null, Int, FloatingPoint, Utf8, Bool, Decimal, LargeUtf8, and dates."""
_DECIMAL: Final = 7
_MOST_DIGITS: Final = 76

_A_DAY: Final = 24 * 3600
_PER_SECOND: Final = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}

_EXTENSION = b"ARROW:extension:name"

_TEXT = "cast it to pa.string()"
_TEXT_OR_NUMBER = "cast it to pa.string() or to a number"
_FLAT = "send a column of text, numbers, booleans or dates for each attribute"

_REFUSED: Final = {
    4: ("binary", _TEXT),
    9: ("time", _TEXT_OR_NUMBER),
    11: ("interval", _TEXT_OR_NUMBER),
    15: ("fixed_size_binary", _TEXT),
    18: ("duration", _TEXT_OR_NUMBER),
    19: ("large_binary", _TEXT),
    22: ("run_end_encoded", "send it decoded, or as a dictionary"),
    23: ("binary_view", _TEXT),
    24: ("string_view", _TEXT),
    **dict.fromkeys((12, 13, 14, 16, 17, 21, 25, 26), ("nested", _FLAT)),
}

_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3


def read_columns(value: bytes) -> dict[str, AnyColumn]:
    """The columns of a stream by name, one entry a row. What a dictionary lists is read once.

    Raises:
        ImportError: pyarrow is not installed.
        InvalidMessage: It is not such a stream, or has an unsupported form. The error names columns by
            their number, because their names may be a row. ``too_large`` if it has over 2**23 values.

    Arrow columnar format 1.5, "Encapsulated message format" and "IPC streaming format".
    """
    import pyarrow as pa

    try:
        _check_form(value)
        with pa.ipc.open_stream(value) as stream:
            names = stream.schema.names
            if len(set(names)) < len(names):
                raise InvalidMessage("value", "two columns have one name", "rename one of them")
            columns = [_empty(kind) for kind in stream.schema.types]
            for batch in stream:
                for column, piece in zip(columns, batch.columns, strict=True):
                    column.add(piece)
    except InvalidMessage:
        raise
    except (pa.ArrowException, ArithmeticError, struct.error, ValueError, OSError):
        raise InvalidMessage(
            "value", "it is not an Arrow IPC stream", "write it with pyarrow.ipc.new_stream"
        ) from None
    return {name: column.column() for name, column in zip(names, columns, strict=True)}


def _empty(kind: Any) -> _Plain | _Repeating | _Dated:
    """A column of an Arrow type, without values so far."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _Repeating()
    if pa.types.is_date32(kind):
        return _Dated(_A_DAY, 1, DAY, are_instants=False)
    if pa.types.is_date64(kind):
        return _Dated(1, 1_000, DAY, are_instants=False)
    if pa.types.is_timestamp(kind):
        return _Dated(1, _PER_SECOND[kind.unit], TIME, are_instants=kind.tz is not None)
    return _Plain()


def _read_as(piece: Any, kind: Any) -> Any:
    """The same bytes as values of another type of their width.

    The number of nulls that the stream says is not used, because nobody has compared it with the values.
    """
    import pyarrow as pa

    return pa.Array.from_buffers(kind, len(piece), piece.buffers(), -1, piece.offset)


def _values(piece: Any) -> list[object]:
    """The values of an array. Its form alone decides whether it is read, and no value does."""
    import pyarrow as pa

    kind = piece.type
    if pa.types.is_decimal(kind):
        digits = _read_as(piece, pa.binary(kind.byte_width)).to_pylist()
        return [
            None
            if n is None
            else Decimal(f"{int.from_bytes(n, 'little', signed=True)}E{-kind.scale}")
            for n in digits
        ]
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        texts = _read_as(piece, pa.binary() if pa.types.is_string(kind) else pa.large_binary())
        texts.validate(full=True)  # where each text begins and ends, not what it says
        try:
            found: list[object] = piece.to_pylist()
        except UnicodeDecodeError:
            return [None if t is None else t.decode(errors="replace") for t in texts.to_pylist()]
        return found
    piece.validate()
    return list(piece.to_pylist())


@dataclass(frozen=True, repr=False)
class _Plain:
    _column: list[object] = field(default_factory=list)

    def add(self, piece: Any) -> None:
        self._column.extend(_values(piece))

    def column(self) -> AnyColumn:
        return self._column


@dataclass(frozen=True, repr=False)
class _Dated:
    """A column of dates: numbers of ``seconds`` each, or of parts of which a second has ``per_second``.

    Timestamps with a time zone are instants; others, and dates, say what clocks showed.
    """

    seconds: int
    per_second: int
    precision: int
    are_instants: bool
    _pieces: list[tuple[Any, Any]] = field(default_factory=list)

    def add(self, piece: Any) -> None:
        import pyarrow as pa

        numbers = _read_as(piece, pa.int32() if piece.type.bit_width == 32 else pa.int64())
        known = numbers.is_valid().to_numpy(zero_copy_only=False)
        counted = numbers.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
        self._pieces.append((counted * self.seconds // self.per_second, known))

    def column(self) -> AnyColumn:
        seconds = np.concatenate([np.empty(0, np.int64), *(s for s, _ in self._pieces)])
        known = np.concatenate([np.empty(0, np.bool_), *(k for _, k in self._pieces)])
        return DateColumn.of(
            seconds, known, precision=self.precision, are_instants=self.are_instants
        )


@dataclass(repr=False)
class _Repeating:
    """A column of indices into dictionaries; all dictionaries in one list, the missing value first.

    An index that a dictionary does not have says a missing value.
    """

    _listed: list[object] = field(default_factory=lambda: [None])
    _indices: list[Any] = field(default_factory=list)
    _last: Any = None
    _start: int = 1

    def add(self, piece: Any) -> None:
        dictionary = piece.dictionary
        if self._last is None or _addresses(dictionary) != _addresses(self._last):
            self._last, self._start = dictionary, len(self._listed)
            self._listed.extend(_values(dictionary))
        indices = _read_as(piece.indices, piece.indices.type)
        codes = indices.fill_null(0).to_numpy(zero_copy_only=False)
        known = indices.is_valid().to_numpy(zero_copy_only=False)
        known = known & (codes >= 0) & (codes < len(dictionary))
        places = np.where(known, codes, 0).astype(np.int32) + np.int32(self._start)
        self._indices.append(np.where(known, places, np.int32(0)))

    def column(self) -> AnyColumn:
        return Repeated(self._listed, np.concatenate([np.empty(0, np.int32), *self._indices]))


def _addresses(dictionary: Any) -> tuple[int, ...]:
    """Returns the length of a dictionary and the addresses of its buffers.

    Arrow keeps one array for all batches that share it, but Python sees a different object in each batch.
    """
    return len(dictionary), *(b.address for b in dictionary.buffers() if b is not None)


class _Table:
    """A table of a flatbuffer, read where it lies. What is out of reach raises struct.error."""

    def __init__(self, data: bytes, at: int) -> None:
        self._data = data
        self._at = at
        self._slots = at - _number("i", data, at)
        self._size = _number("H", data, self._slots)

    def _position(self, slot: int) -> int | None:
        at = 4 + 2 * slot
        offset = _number("H", self._data, self._slots + at) if at < self._size else 0
        return self._at + offset if offset else None

    def has(self, slot: int) -> bool:
        return self._position(slot) is not None

    def number(self, slot: int, kind: str) -> int:
        """A number of the type that ``struct`` calls ``kind``; 0 where it is left out."""
        position = self._position(slot)
        return 0 if position is None else _number(kind, self._data, position)

    def table(self, slot: int) -> _Table:
        position = self._position(slot)
        if position is None:
            raise ValueError("a table is not there")
        return _Table(self._data, _follow(self._data, position))

    def _vector(self, slot: int) -> tuple[int, int]:
        """Returns where the entries of a vector begin, and how many there are."""
        position = self._position(slot)
        if position is None:
            return 0, 0
        at = _follow(self._data, position)
        return at + 4, _number("I", self._data, at)

    def length(self, slot: int) -> int:
        """Returns the length of a string in bytes, or of a vector in entries."""
        return self._vector(slot)[1]

    def text(self, slot: int) -> bytes:
        at, length = self._vector(slot)
        return self._data[at : at + length]

    def tables(self, slot: int) -> Iterator[_Table]:
        at, length = self._vector(slot)
        for position in range(at, at + 4 * length, 4):
            yield _Table(self._data, _follow(self._data, position))

    def pairs(self, slot: int, most: int) -> list[tuple[int, int]]:
        """A vector of structs of two int64."""
        at, length = self._vector(slot)
        if length > most:
            raise ValueError("a vector is longer than the schema allows")
        return [struct.unpack_from("<qq", self._data, at + 16 * i) for i in range(length)]


def _number(kind: str, data: bytes, at: int) -> int:
    return int(struct.unpack_from(f"<{kind}", data, at)[0])


def _follow(data: bytes, position: int) -> int:
    return position + _number("I", data, position)


@dataclass(slots=True)
class _Sizes:
    """The sizes seen so far in a stream. They are bounded over all its messages together."""

    n_columns: int | None = None
    values: int = 0
    metadata: int = 0

    def add_metadata(self, table: _Table, slot: int) -> None:
        for entry in table.tables(slot):
            self.add_text(_ENTRY + entry.length(0) + entry.length(1))

    def add_text(self, n_bytes: int) -> None:
        self.metadata += n_bytes
        if self.metadata > _MOST_METADATA:
            raise InvalidMessage(
                "value", "its metadata are too long", "send the columns without metadata"
            )

    def add_values(self, count: int) -> None:
        self.values += count
        if self.values > _MOST_VALUES:
            raise InvalidMessage(
                "value", f"more than {_MOST_VALUES:,} values", "split the batch", reason="too_large"
            )


def _check_form(value: bytes) -> None:
    """Walks the metadata of a stream. Raises InvalidMessage, ValueError or struct.error."""
    sizes = _Sizes()
    for message, n_bytes in _messages(value):
        kind = message.number(1, "B")
        if (kind == _SCHEMA) != (sizes.n_columns is None):
            raise ValueError("a stream has one schema, and it comes first")
        sizes.add_metadata(message, 4)
        header = message.table(2)
        if kind == _SCHEMA:
            sizes.n_columns = _check_schema(header, sizes)
        elif kind == _BATCH:
            _check_batch(header, n_bytes, sizes.n_columns or 0, sizes)
        elif kind != _DICTIONARY:
            raise ValueError("a message is not part of a table")
        elif header.number(2, "B"):
            raise InvalidMessage(
                "value",
                "a dictionary comes in pieces",
                "write it with emit_dictionary_deltas=False, as is the default",
            )
        else:
            _check_batch(header.table(1), n_bytes, 1, sizes)


def _messages(value: bytes) -> Iterator[tuple[_Table, int]]:
    """The metadata of each message, and the bytes of its body."""
    at = 0
    while at < len(value):
        size = _number("i", value, at)
        at += 4
        if size == -1:  # absent before format version 0.15
            size = _number("i", value, at)
            at += 4
        if size == 0:
            return
        metadata = value[at : at + max(0, size)]
        message = _Table(metadata, _follow(metadata, 0))
        n_bytes = message.number(3, "q")
        at += size
        if size < 0 or n_bytes < 0 or at + n_bytes > len(value):
            raise ValueError("a message is longer than the record")
        yield message, n_bytes
        at += n_bytes


def _check_schema(schema: _Table, sizes: _Sizes) -> int:
    """The number of columns, all of which are read."""
    n_columns = schema.length(1)
    if n_columns > _MOST_COLUMNS:
        raise InvalidMessage(
            "value", f"it has more than {_MOST_COLUMNS} columns", "send those of the attributes"
        )
    sizes.add_metadata(schema, 2)
    for number, column in enumerate(schema.tables(1), start=1):
        kind = column.number(2, "B")
        sizes.add_text(column.length(0))
        sizes.add_metadata(column, 6)
        if any(entry.text(0) == _EXTENSION for entry in column.tables(6)):
            name, fix = "extension", "send its storage"
        elif kind not in _READ or column.length(5):
            name, fix = _REFUSED.get(kind, ("unknown", _FLAT))
        elif kind in _DATES and column.has(4):
            name, fix = "dictionary of dates", "send it decoded"
        elif kind == _DECIMAL and abs(column.table(3).number(1, "i")) > _MOST_DIGITS:
            name, fix = f"decimal of a scale beyond {_MOST_DIGITS}", _TEXT_OR_NUMBER
        else:
            continue
        raise InvalidMessage("value", f"column {number} has a type that is not read: {name}", fix)
    return n_columns


def _check_batch(batch: _Table, n_bytes: int, n_columns: int, sizes: _Sizes) -> None:
    """One batch, or one dictionary, which is a batch of one column."""
    if batch.has(3):
        raise InvalidMessage(
            "value",
            "its buffers are compressed",
            "write it uncompressed; Kafka can compress records",
        )
    n_rows = batch.number(0, "q")
    nodes = batch.pairs(1, n_columns)
    if n_rows < 0 or len(nodes) != n_columns or any(length != n_rows for length, _ in nodes):
        raise ValueError("the columns of a batch differ in length")
    sizes.add_values(n_rows * n_columns)
    buffers = batch.pairs(2, 3 * n_columns)
    if any(start < 0 or length < 0 or start + length > n_bytes for start, length in buffers):
        raise ValueError("a buffer is not in its body")
    if sum(length for _, length in buffers) > n_bytes:
        raise ValueError("buffers share bytes")
