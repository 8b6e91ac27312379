"""Files of rows as batches of columns.

How many rows a batch holds is public, so it is decided by public facts alone: the wish of who sends, and the
width of a row as the definition bounds it. A cell that is wider than anything the definition can tell apart
is shortened in such a way that the worker puts it where it would have put the whole.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import re
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

from stream_dp.client.documents import plain
from stream_dp.errors import InvalidInput
from stream_dp.messages import TOPICS, AttributeSpec, Definition

__all__ = ["Columns", "FileBatch", "RowFile", "rows_a_batch"]

Columns: TypeAlias = dict[str, list[Any]]

_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_NUMBER_WIDTH: Final = 26  # any float's shortest text, with a sign and quotes
_BOOLEAN_WIDTH: Final = 7
_HEAD_BYTES: Final = 16_384  # names of columns, ids and the rest of a message
_UTF16_MARKS: Final = ("\udcff\udcfe", "\udcfe\udcff")
_UNDECODED: Final = re.compile("[\udc80-\udcff]")


_POINTED: Final = re.compile(
    r"[+-]?(\d{1,3}(?P<mark>[, '\u2019\u00a0\u202f])\d{3}((?P=mark)\d{3})*(\.\d*)?|\d+(\.\d*)?|\.\d+)"
    r"([eE][+-]?\d+)?"
)
"""A number with a decimal point, and perhaps a mark between its thousands."""
_SWAPPED: Final = str.maketrans(",.", ".,")


@dataclass(frozen=True, slots=True)
class FileBatch:
    """Rows ``start`` to ``stop`` of a file, and how many of its bytes are read by then."""

    columns: Columns
    start: int
    stop: int
    read_bytes: int


def _width(attribute: AttributeSpec) -> int:
    """Most bytes of a cell in JSON, from the definition alone."""
    if attribute.type == "category":
        return max(_NUMBER_WIDTH, *(_json_bytes(value) for value in attribute.values))
    return _NUMBER_WIDTH if attribute.type == "number" else _BOOLEAN_WIDTH


def _scalars(column: list[Any]) -> list[Any]:
    """The column with a text or a number for each value that is neither, and None for what holds several."""
    if set(map(type, column)) <= _SCALARS:
        return column
    return [
        value
        if type(value) in _SCALARS
        else None
        if isinstance(value, list | dict)
        else plain(value)
        for value in column
    ]


def _json_bytes(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace"))


def rows_a_batch(definition: Definition, wanted: int) -> int:
    """How many rows go into one record: as many as wanted, or as surely fit."""
    row = sum(_width(attribute) + 1 for attribute in definition.attributes)
    return max(1, min(wanted, (TOPICS["batches"].max_value_bytes - _HEAD_BYTES) // row))


def _fitted(attribute: AttributeSpec, column: list[Any]) -> list[Any]:
    """The column with each cell no wider than its attribute allows, and the same to the worker."""
    width = _width(attribute)
    shorten = {"category": _short_text, "number": _short_number, "boolean": _nothing}[
        attribute.type
    ]

    def fit(value: Any) -> Any:
        if value is None or isinstance(value, bool):
            return value
        if isinstance(value, float) and value != value:
            return None
        if isinstance(value, str) and 6 * len(value) + 2 <= width:
            return value  # no character takes more than six bytes
        if isinstance(value, float) or _json_bytes(value) <= width:
            return value
        return shorten(value)

    if set(map(type, column)) <= {str, type(None)}:
        table = {value: fit(value) for value in set(column)}
        return [table[value] for value in column]
    return list(map(fit, column))


def _short_text(_: object) -> str:
    """Too long to be listed, so any other unlisted text stands for it; no listed one is empty."""
    return ""


def _short_number(value: str | int) -> float | str | None:
    try:
        return float(value)
    except OverflowError:
        return "inf" if int(value) > 0 else "-inf"
    except ValueError:
        return None


def _cut(line: str, mark: str) -> list[str]:
    """The names in a header that is cut at a mark; none where it cannot be."""
    try:
        return [name.strip() for name in next(csv.reader([line], delimiter=mark), [])]
    except csv.Error:
        return []


def _nothing(_: object) -> None:
    return None


def pointed(text: str, decimal: str) -> str | None:
    """The number of a text with this mark before its decimals, with a point instead; None if it is not one.

    The other one of point and comma, a blank or an apostrophe may stand between groups of three digits.
    """
    mine = text.strip()
    if decimal == ",":
        mine = mine.translate(_SWAPPED)
    found = _POINTED.fullmatch(mine)
    return mine.replace(found["mark"] or "", "") if found else None


class RowFile:
    """A file of rows: csv, tsv, ndjson (each also as .gz) or parquet.

    Args:
        batch_rows: Rows of a batch, see ``rows_a_batch``.
        decimal: The mark before the decimals in texts of numbers, see ``pointed``. None takes a point, and
            no mark between thousands.

    Raises:
        InvalidInput: The file's name does not tell what it is.
    """

    def __init__(
        self,
        file: Path,
        definition: Definition,
        batch_rows: int,
        *,
        encoding: str = "utf-8-sig",
        delimiter: str | None = None,
        decimal: str | None = None,
    ) -> None:
        self._file = file
        self._definition = definition
        self._batch_rows = batch_rows
        self._encoding = encoding
        suffixes = [suffix.lower() for suffix in file.suffixes]
        self._zipped = suffixes[-1:] == [".gz"]
        kind = (suffixes[:-1] if self._zipped else suffixes)[-1:]
        self._delimiter = delimiter or ("\t" if kind == [".tsv"] else ",")
        readers: dict[str, Callable[[], Iterator[tuple[Columns, int]]]] = {
            ".csv": self._csv,
            ".tsv": self._csv,
            ".ndjson": self._ndjson,
            ".jsonl": self._ndjson,
            ".parquet": self._parquet,
        }
        if not kind or kind[0] not in readers:
            raise InvalidInput(
                file.name,
                "its name ends in nothing that is read",
                "send .csv, .tsv, .ndjson (or .jsonl), each also with .gz, or .parquet",
            )
        self._reader = readers[kind[0]]
        self._decimal = decimal
        self._names = [attribute.name for attribute in definition.attributes]

    def columns(self) -> Iterator[tuple[Columns, int]]:
        """The declared columns as they stand in the file, some rows at a time; and how many bytes are read.

        Raises:
            InvalidInput: Something in it cannot be read; says in which line.
        """
        return self._reader()

    def values(self, columns: Columns) -> Columns:
        """What columns say that stand so in the file; the worker reads what is sent in the same way."""
        return {
            attribute.name: _scalars(self._numbers(attribute, columns[attribute.name]))
            for attribute in self._definition.attributes
        }

    def batches(self, skip: int = 0) -> Iterator[FileBatch]:
        """The rows from number ``skip`` on, in batches that fit into a record."""
        start = 0
        for columns, read_bytes in self._reader():
            stop = start + len(columns[self._names[0]])
            if stop > skip:
                first = max(0, skip - start)
                rest = {name: column[first:] for name, column in columns.items()}
                values = self.values(rest)
                fitted = {
                    attribute.name: _fitted(attribute, values[attribute.name])
                    for attribute in self._definition.attributes
                }
                yield FileBatch(fitted, start + first, stop, read_bytes)
            start = stop

    def _numbers(self, attribute: AttributeSpec, column: list[Any]) -> list[Any]:
        if self._decimal is None or attribute.type != "number":
            return column
        decimal = self._decimal
        return [pointed(value, decimal) if isinstance(value, str) else value for value in column]

    @contextmanager
    def _open(self) -> Iterator[tuple[IO[str], IO[bytes]]]:
        """The text of the file, and the file to see how far it is read."""
        with self._file.open("rb") as raw:
            stream: Any = gzip.GzipFile(fileobj=raw) if self._zipped else raw
            text = io.TextIOWrapper(
                stream, encoding=self._encoding, errors="surrogateescape", newline=""
            )
            try:
                yield text, raw
            except (EOFError, gzip.BadGzipFile, zlib.error):
                raise InvalidInput(
                    self._file.name, "it cannot be read", "is it whole, and packed by gzip?"
                ) from None
            except OSError as error:
                raise InvalidInput(
                    self._file.name, f"it cannot be read ({error})", "is it whole?"
                ) from None

    def _lines(self, text: IO[str]) -> Iterator[str]:
        for number, line in enumerate(text, start=1):
            if not line.isascii() and _UNDECODED.search(line):
                name = self._encoding.removesuffix("-sig").upper()
                wide = number == 1 and line.startswith(_UTF16_MARKS)
                raise InvalidInput(
                    f"{self._file.name} line {number}",
                    f"it is not {name}",
                    "pass --encoding "
                    + ("utf-16" if wide else "with the right one, often latin-1 or cp1252"),
                )
            yield line

    def _empty(self) -> Columns:
        return {name: [] for name in self._names}

    def _csv(self) -> Iterator[tuple[Columns, int]]:
        """Cells as text without blanks around it; an empty one is a missing value.

        The worker reads numbers out of text.
        """
        # A value that is listed with blanks keeps them.
        as_listed = [
            frozenset(attribute.values if attribute.type == "category" else ())
            for attribute in self._definition.attributes
        ]
        with self._open() as (text, raw):
            lines = self._lines(text)
            first = next(lines, "")
            # Strict: else a quote that is never closed swallows the rest of the file as one cell.
            reader = csv.reader(
                itertools.chain([first], lines), delimiter=self._delimiter, strict=True
            )
            line = 1
            try:
                self._check_delimiter(first)
                header = [name.strip() for name in next(reader, [])]
                if not header:
                    raise InvalidInput(
                        self._file.name, "it is empty", "its first line names the columns"
                    )
                self._check_header(header, may_be_a_row=True)
                places = [header.index(name) for name in self._names]
                columns = self._empty()
                targets = [columns[name] for name in self._names]
                for row in reader:
                    line = reader.line_num + 1
                    if not row:
                        continue
                    for target, place, listed in zip(targets, places, as_listed, strict=True):
                        cell = row[place] if place < len(row) else ""
                        target.append((cell if cell in listed else cell.strip()) or None)
                    if len(targets[0]) == self._batch_rows:
                        yield columns, raw.tell()
                        columns = self._empty()
                        targets = [columns[name] for name in self._names]
                if targets[0]:
                    yield columns, raw.tell()
            except csv.Error as error:
                raise InvalidInput(
                    f"{self._file.name} line {line}",
                    f"it is no CSV ({error})",
                    "mend the quotes of the row that begins there",
                ) from None

    def _check_delimiter(self, first: str) -> None:
        """Refuses a first line that names our columns only when it is cut at other marks."""
        wanted = {name.casefold() for name in self._names}
        for mark in (self._delimiter, *",;\t|"):
            if not wanted.isdisjoint(name.casefold() for name in _cut(first, mark)):
                break
        else:
            return  # whatever is wrong with it, the delimiter is not
        if mark != self._delimiter:
            raise InvalidInput(
                f"{self._file.name} line 1",
                f"its columns are not separated by {self._delimiter!r}",
                f"pass --delimiter {mark!r}",
            )

    def _check_header(self, header: Sequence[str], *, may_be_a_row: bool = False) -> None:
        missing = [name for name in self._names if name not in header]
        twice = [name for name in self._names if header.count(name) > 1]
        place = f"{self._file.name} line 1"
        if twice:
            raise InvalidInput(place, f"column {twice[0]} is there twice", "rename one of them")
        if not missing:
            return
        wanted = {name.casefold(): name for name in missing}
        near = [
            f"{name} to {wanted[name.casefold()]}" for name in header if name.casefold() in wanted
        ]
        problem = f"there is no column {', '.join(missing)}"
        if near or not may_be_a_row or len(missing) < len(self._names):
            problem += f" (found: {', '.join(header):.200})"
            fix = (
                f"rename {', '.join(near)}"
                if near
                else "rename the columns as the definition has them"
            )
        else:  # nothing in it is known, so it may be a row, which is shown to nobody
            fix = "the first line names the columns, as the definition has them"
        raise InvalidInput(place, problem, fix)

    def _ndjson(self) -> Iterator[tuple[Columns, int]]:
        """One JSON object a line; a key that is absent is a missing value."""
        with self._open() as (text, raw):
            columns = self._empty()
            seen: set[str] = set()
            first = True
            for number, line in enumerate(self._lines(text), start=1):
                if not line.strip():
                    continue
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError):
                    row = None
                if not isinstance(row, dict):
                    raise InvalidInput(
                        f"{self._file.name} line {number}",
                        "it is no JSON object",
                        "every line is one, such as "
                        + json.dumps(dict.fromkeys(self._names[:2], "...")),
                    )
                if first:
                    seen.update(row)
                for name in self._names:
                    columns[name].append(row.get(name))
                if len(columns[self._names[0]]) == self._batch_rows:
                    self._check_keys(seen, first=first)
                    first = False
                    yield columns, raw.tell()
                    columns = self._empty()
            if columns[self._names[0]]:
                self._check_keys(seen, first=first)
                yield columns, raw.tell()

    def _check_keys(self, seen: set[str], *, first: bool) -> None:
        missing = [name for name in self._names if name not in seen]
        if first and missing:
            raise InvalidInput(
                self._file.name,
                f"no row has the key {', '.join(missing)} (found: {', '.join(sorted(seen)):.200})",
                "rename the keys as the definition has them",
            )

    def _parquet(self) -> Iterator[tuple[Columns, int]]:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise InvalidInput(
                self._file.name, "Parquet needs pyarrow", "pip install 'stream-dp[arrow]'"
            ) from None
        try:
            table = pq.ParquetFile(self._file)
        except (pa.ArrowException, OSError):
            raise InvalidInput(
                self._file.name, "it is no Parquet file", "write it with pandas or pyarrow"
            ) from None
        self._check_header(table.schema_arrow.names)
        size = self._file.stat().st_size
        done, total = 0, max(1, table.metadata.num_rows)
        for batch in table.iter_batches(batch_size=self._batch_rows, columns=self._names):
            done += batch.num_rows
            if batch.num_rows:
                columns = {
                    name: batch.column(place).to_pylist()
                    for place, name in enumerate(batch.schema.names)
                }
                yield columns, size * done // total
