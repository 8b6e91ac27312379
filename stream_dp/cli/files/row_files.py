"""Reads files of rows as batches of columns.

The number of rows in a batch is public, so public facts alone decide it: the sender's wish, and the bound
that the definition puts on the width of a row. A cell may be wider than any value that the definition can
distinguish. Such a cell is shortened in a way that does not change how the worker counts it.
"""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

from stream_dp.cli.files.rows_by_period import TIME, by_period, periods_of
from stream_dp.client.kafka.topic_documents import plain
from stream_dp.client.rows.frames import arrow_values
from stream_dp.core.rows.person_slots import LONGEST_KEY, canonical
from stream_dp.errors import InvalidInput
from stream_dp.messages import TOPICS, AttributeSpec, Definition
from stream_dp.periods import written

Columns: TypeAlias = dict[str, list[Any]]

_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_NUMBER_WIDTH: Final = 26  # any float's shortest text, with a sign and quotes
_BOOLEAN_WIDTH: Final = 7
_DATE_WIDTH: Final = 40  # the longest text that is a date, with quotes
_HEAD_BYTES: Final = 16_384  # names of columns, ids and the rest of a message
_WHOSE: Final = "pass --person with the column that says whose row it is"
_UTF16_MARKS: Final = ("\udcff\udcfe", "\udcfe\udcff")
"""The byte order marks, as they are read in another encoding."""
_UNDECODED: Final = re.compile("[\udc80-\udcff]")
_END_OF_FILE: Final = "\x1a"
"""Ctrl-Z, with which DOS ends a file of text."""
_BLANKS: Final = f" \t\r\n\ufeff{_END_OF_FILE}"
_EXCELS_LINE: Final = re.compile(r'"?sep=(?P<mark>.)"?\s*', re.IGNORECASE)
_LONGEST_CELL: Final = 1 << 27
"""The most characters of a cell of CSV. It bounds the memory that an unclosed quote takes."""


_POINTED: Final = re.compile(
    r"[+-]?(\d{1,3}(?P<mark>[, '\u2019\u00a0\u202f])\d{3}((?P=mark)\d{3})*(\.\d*)?|\d+(\.\d*)?|\.\d+)"
    r"([eE][+-]?\d+)?"
)
"""A number with a decimal point and an optional thousands separator."""
_SWAPPED: Final = str.maketrans(",.", ".,")


@dataclass(frozen=True, slots=True)
class FileBatch:
    """Rows ``start`` to ``stop`` of a file, and the number of bytes that were read up to there.

    Attributes:
        at: The date that they are about, if the file says it.
    """

    columns: Columns
    start: int
    stop: int
    read_bytes: int
    at: str | None = None


def _width(attribute: AttributeSpec) -> int:
    """Returns the most bytes that a cell can take in JSON, from the definition alone."""
    if attribute.type == "category":
        return max(_NUMBER_WIDTH, *(_json_bytes(value) for value in attribute.values))
    return {"number": _NUMBER_WIDTH, "boolean": _BOOLEAN_WIDTH, "date": _DATE_WIDTH}[attribute.type]


def _scalars(column: list[Any]) -> list[Any]:
    """Replaces values that are neither strings nor numbers: by one of these, or by None for a container."""
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


def _keys(column: list[Any]) -> list[str | None]:
    """Makes keys canonical, so that none is longer than ``LONGEST_KEY``. A date stands for its text."""
    pairs = zip(column, _scalars(column), strict=True)
    return [canonical(value) or canonical(scalar) for value, scalar in pairs]


def _json_bytes(value: object) -> int:
    return len(json.dumps(value, ensure_ascii=False).encode(errors="backslashreplace"))


def rows_a_batch(definition: Definition, wanted: int) -> int:
    """Returns how many rows go into one record: the wanted number, or fewer so that they surely fit."""
    row = sum(_width(attribute) + 1 for attribute in definition.attributes)
    row += 0 if definition.privacy.unit is None else LONGEST_KEY + 1
    return max(1, min(wanted, (TOPICS["batches"].max_value_bytes - _HEAD_BYTES) // row))


def aligned(definition: Definition, batch_rows: int) -> tuple[int, int | None]:
    """Chooses batches with which phases that open by rows get as few rows more than asked as can be.

    It follows from the definition alone, so that the same file is always cut in the same way.

    Args:
        definition: The definition.
        batch_rows: The most rows of a batch.

    Returns:
        The most rows of a batch, and a number of rows after each of which a batch ends too, if there is one.
    """
    n_rows = definition.phase.min_rows
    if definition.phase.every is not None:
        return batch_rows, None
    if n_rows <= batch_rows:
        return batch_rows - batch_rows % n_rows, None
    return batch_rows, n_rows


def left_waiting(definition: Definition, n_rows: int, batch_rows: int) -> int:
    """Returns how many rows of a file wait in the end, where phases open by rows and none waited before."""
    size, every = aligned(definition, batch_rows)
    left = n_rows % (every or size)
    return left if left < definition.phase.min_rows else 0


def _fitted(attribute: AttributeSpec, column: list[Any]) -> list[Any]:
    """Shortens cells to the width that their attribute allows. The worker counts them as before."""
    width = _width(attribute)
    shorten = {
        "category": _short_text,
        "number": _short_number,
        "boolean": _nothing,
        "date": _short_date,
    }[attribute.type]

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
    """Replaces a string that is too long to be listed by the empty string, which is never listed either."""
    return ""


def _short_number(value: str | int) -> float | str | None:
    try:
        return float(value)
    except OverflowError:
        return "inf" if int(value) > 0 else "-inf"
    except ValueError:
        return None


def _short_date(value: str | int) -> float | str | None:
    """Replaces a text with blanks around it by the text, and a long number by a float."""
    stripped = str(value).strip()
    return stripped if len(stripped) + 2 <= _DATE_WIDTH else _short_number(value)


def _wide_encoding(first: str) -> str | None:
    """Returns the encoding of a file whose first line is that of UTF-16 and was read in another encoding."""
    if first.startswith(_UTF16_MARKS):
        return "utf-16"
    if "\0" in first:  # half of each letter of ASCII
        return "utf-16-be" if first.startswith("\0") else "utf-16-le"
    return None


def _cut(line: str, mark: str) -> list[str]:
    """Splits a header into names at a mark. The list is empty if the header cannot be split."""
    try:
        return [name.strip() for name in next(csv.reader([line], delimiter=mark), [])]
    except csv.Error:
        return []


def _nothing(_: object) -> None:
    return None


def pointed(text: str, decimal: str) -> str | None:
    """Rewrites a number that uses this decimal mark with a point, or returns None if it is not a number.

    The other one of point and comma, a blank or an apostrophe may separate groups of three digits.
    """
    mine = text.strip()
    if decimal == ",":
        mine = mine.translate(_SWAPPED)
    found = _POINTED.fullmatch(mine)
    return mine.replace(found["mark"] or "", "") if found else None


class RowFile:
    """A file of rows: csv, tsv, ndjson (each also as .gz) or parquet.

    Args:
        file: The path of the file. Its name tells the format.
        definition: The definition whose attributes are read.
        batch_rows: The number of rows in a batch, see ``rows_a_batch``.
        encoding: The encoding of a file of text.
        delimiter: The character that separates columns. None takes a comma, or a tab for tsv.
        decimal: The decimal mark in number strings, see ``pointed``. None takes a point and no thousands
            separator.
        person: The column that says whose row it is, where persons are protected. None leaves it out.
        renamed: Attribute -> the column of the file that it is read from, where the names differ.
        skip_bad_rows: Whether lines that hold no row, and rows without a date in ``time``, are left out.
            Otherwise the first one is an error.
        time: The column that says when a row was, to send the periods of the calendar one by one.
        ends_every: A number of rows after each of which a batch ends. None ends them by their size alone.

    Attributes:
        left_out: The number of lines that the latest reading left out.
        periods: Period of the calendar -> rows that the latest reading of ``columns`` has found of it.

    Raises:
        InvalidInput: The name of the file does not tell its format, or ``renamed`` names no attribute.
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
        person: str | None = None,
        renamed: Mapping[str, str] | None = None,
        skip_bad_rows: bool = False,
        time: str | None = None,
        ends_every: int | None = None,
    ) -> None:
        self.left_out = 0
        self.periods = Counter[int]()
        self._in_order, self._time, self._ends_every = False, time, ends_every
        self._skip_bad_rows = skip_bad_rows
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
                "the ending of its name is not a known format",
                "send .csv, .tsv, .ndjson (or .jsonl), each also with .gz, or .parquet",
            )
        self._reader = readers[kind[0]]
        self._decimal = decimal
        self._names = [attribute.name for attribute in definition.attributes]
        renamed = renamed or {}
        for name in renamed:
            if name not in self._names:
                raise InvalidInput(
                    "--column",
                    f"{definition.dataset} has no such attribute",
                    f"use {', '.join(self._names)}",
                )
        self._in_file = [renamed.get(name, name) for name in self._names]
        self._person, self._key = person, None
        if person is not None:
            assert definition.privacy.unit is not None, (
                "the caller refuses it where rows are protected"
            )
            self._key = definition.privacy.unit.key
            self._names.append(self._key)
            self._in_file.append(person)
        if time is not None:
            self._names.append(TIME)
            self._in_file.append(time)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of a batch, by the names in the definition."""
        return tuple(name for name in self._names if name != TIME)

    def columns(self) -> Iterator[tuple[Columns, int]]:
        """Yields the declared columns as the file holds them, some rows at a time, and the bytes read.

        Raises:
            InvalidInput: The file cannot be read. The error names the line.
        """
        if self._time is None:
            yield from self._reader()
            return
        self.periods.clear()
        self.left_out = 0
        self._in_order, newest = True, -1
        for columns, read_bytes in self._reader():
            dated = self._dated(columns)
            periods = dated[TIME]
            self.periods.update(periods)
            self._in_order &= periods == sorted(periods) and newest <= min(periods, default=newest)
            newest = max(periods, default=newest)
            if periods:
                yield dated, read_bytes

    def _dated(self, columns: Columns) -> Columns:
        """The rows that say when they were, with the number of their period.

        Raises:
            InvalidInput: There are others, and they are not to be left out.
        """
        calendar = self._definition.phase.calendar
        assert calendar is not None, "the caller refuses it where there are no periods"
        periods = periods_of(columns[TIME], calendar)
        dated = {**columns, TIME: periods}
        undated = periods.count(None)
        if not undated:
            return dated
        if not self._skip_bad_rows:
            raise InvalidInput(
                f"{self._file.name} column {self._time}",
                f"{undated:,} rows hold no date",
                "write dates as in ISO 8601, such as 2026-03-14, or pass --skip-bad-rows to leave them out",
            )
        self.left_out += undated
        known = [period is not None for period in periods]
        return {name: list(itertools.compress(column, known)) for name, column in dated.items()}

    def _parts(self) -> Iterator[tuple[Columns, int, str | None]]:
        """The rows in the order in which they are sent, with the date that they are about."""
        calendar = self._definition.phase.calendar
        if self._time is None or calendar is None:
            for columns, read_bytes in self._ended(self._reader()):
                yield columns, read_bytes, None
            return
        parts = by_period(self.columns(), self._batch_rows, in_order=self._in_order)
        for columns, read_bytes, period in parts:
            yield columns, read_bytes, written(calendar.start(period), calendar.zone)

    def _ended(self, chunks: Iterator[tuple[Columns, int]]) -> Iterator[tuple[Columns, int]]:
        """The same rows, with an end of a batch after each ``ends_every`` of them."""
        row = 0
        for columns, read_bytes in chunks:
            start, stop = 0, len(columns[self._names[0]])
            while start < stop:
                every = self._ends_every or stop
                end = min(stop, start + every - (row % every if self._ends_every else 0))
                yield {name: column[start:end] for name, column in columns.items()}, read_bytes
                row, start = row + end - start, end

    def values(self, columns: Columns) -> Columns:
        """Converts columns of the file to the values that are sent. The worker reads these the same way."""
        values = {
            attribute.name: _scalars(self._numbers(attribute, columns[attribute.name]))
            for attribute in self._definition.attributes
        }
        if self._key is not None:
            values[self._key] = _keys(columns[self._key])
        return values

    def batches(self, skip: int = 0) -> Iterator[FileBatch]:
        """Yields the rows from index ``skip`` on, in batches that fit into a record."""
        start = 0
        for columns, read_bytes, at in self._parts():
            stop = start + len(columns[self._names[0]])
            if stop > skip:
                first = max(0, skip - start)
                rest = {name: column[first:] for name, column in columns.items()}
                values = self.values(rest)
                fitted = {
                    attribute.name: _fitted(attribute, values[attribute.name])
                    for attribute in self._definition.attributes
                }
                if self._key is not None:
                    fitted[self._key] = values[self._key]
                yield FileBatch(fitted, start + first, stop, read_bytes, at)
            start = stop

    def _numbers(self, attribute: AttributeSpec, column: list[Any]) -> list[Any]:
        if self._decimal is None or attribute.type != "number":
            return column
        decimal = self._decimal
        return [pointed(value, decimal) if isinstance(value, str) else value for value in column]

    @contextmanager
    def _open(self) -> Iterator[tuple[IO[str], IO[bytes]]]:
        """Opens the file as text, together with the raw file that shows how far it is read."""
        with self._file.open("rb") as raw:
            stream: Any = gzip.GzipFile(fileobj=raw) if self._zipped else raw
            text = io.TextIOWrapper(
                stream, encoding=self._encoding, errors="surrogateescape", newline=""
            )
            try:
                yield text, raw
            except (EOFError, gzip.BadGzipFile, zlib.error):
                raise InvalidInput(
                    self._file.name,
                    "it cannot be read",
                    "check that it is complete and packed by gzip",
                ) from None
            except OSError as error:
                raise InvalidInput(
                    self._file.name, f"it cannot be read ({error})", "check that it is complete"
                ) from None

    def _lines(self, text: IO[str]) -> Iterator[str]:
        name = self._encoding.removesuffix("-sig").upper()
        for number, line in enumerate(text, start=1):
            wide = _wide_encoding(line) if number == 1 else None
            if wide or (not line.isascii() and _UNDECODED.search(line)):
                raise InvalidInput(
                    f"{self._file.name} line {number}",
                    f"it is not {name}",
                    f"pass --encoding {wide or 'with the right one, often latin-1 or cp1252'}",
                )
            if line.endswith(_END_OF_FILE):  # it has no end of line, so it is the last one
                line = line.rstrip(_END_OF_FILE)
            if line:
                yield line

    def _leave_out(self, number: int, problem: str, fix: str) -> None:
        """Counts a line that holds no row.

        Raises:
            InvalidInput: Such lines are not to be left out.
        """
        if not self._skip_bad_rows:
            raise InvalidInput(
                f"{self._file.name} line {number}",
                problem,
                f"{fix}, or pass --skip-bad-rows to leave out such lines",
            )
        self.left_out += 1

    def _empty(self) -> Columns:
        return {name: [] for name in self._names}

    def _csv(self) -> Iterator[tuple[Columns, int]]:
        """Reads cells as strings without surrounding blanks. An empty cell is a missing value.

        The worker reads numbers out of the strings. A blank line is a row of a file of one column, and none
        of a wider file.
        """
        csv.field_size_limit(_LONGEST_CELL)
        self.left_out = 0
        # A value that is listed with blanks keeps them.
        as_listed = [
            frozenset(attribute.values if attribute.type == "category" else ())
            for attribute in self._definition.attributes
        ]
        as_listed += [frozenset()] * (len(self._names) - len(as_listed))
        with self._open() as (text, raw):
            lines = self._lines(text)
            first = next(lines, "")
            # Without strict mode an unclosed quote would swallow the rest of the file as one cell.
            reader = csv.reader(
                itertools.chain([first], lines), delimiter=self._delimiter, strict=True
            )
            line, mark = 1, self._delimiter
            try:
                self._check_first(first)
                header = [name.strip() for name in next(reader, [])]
                self._check_header(header, may_be_a_row=True)
                width, line = len(header), reader.line_num + 1
                indices = [header.index(name) for name in self._in_file]
                columns = self._empty()
                targets = [columns[name] for name in self._names]
                for row in reader:
                    begins, line = line, reader.line_num + 1
                    if len(row) != width:
                        if row and (len(row) > 1 or row[0].strip(_BLANKS)):
                            self._leave_out(
                                begins,
                                f"the row that begins there has {len(row):,} fields, and the first line "
                                f"names {width:,}",
                                f"name each column in the first line and quote values with {mark!r} in them",
                            )
                            continue
                        if width > 1:
                            continue
                        row = [""]
                    for target, index, listed in zip(targets, indices, as_listed, strict=True):
                        cell = row[index]
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
                    f"it is not valid CSV ({error})",
                    "fix the quotes of the row that begins there",
                ) from None

    def _check_first(self, first: str) -> None:
        """Refuses a first line that names no columns, or names ours only when split at another mark."""
        if not first:
            raise InvalidInput(
                self._file.name, "it is empty", "its first line must name the columns"
            )
        if not first.strip(_BLANKS):
            raise InvalidInput(
                f"{self._file.name} line 1",
                "it is blank",
                "delete the blank lines before the one that names the columns",
            )
        if excels := _EXCELS_LINE.fullmatch(first):
            raise InvalidInput(
                f"{self._file.name} line 1",
                "it tells Excel the separator, and does not name the columns",
                f"delete this line and pass --delimiter {excels['mark']!r}",
            )
        wanted = {name.casefold() for name in self._in_file}
        for mark in (self._delimiter, *",;\t|"):
            if not wanted.isdisjoint(name.casefold() for name in _cut(first, mark)):
                break
        else:
            return  # the fault, if there is one, is not the delimiter
        if mark != self._delimiter:
            raise InvalidInput(
                f"{self._file.name} line 1",
                f"its columns are not separated by {self._delimiter!r}",
                f"pass --delimiter {mark!r}",
            )

    def _check_header(self, header: Sequence[str], *, may_be_a_row: bool = False) -> None:
        missing = [name for name in self._in_file if name not in header]
        twice = [name for name in self._in_file if header.count(name) > 1]
        header_line = f"{self._file.name} line 1"
        if twice:
            raise InvalidInput(
                header_line, f"column {twice[0]} appears twice", "rename one of them"
            )
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
                _WHOSE
                if missing == [self._person]
                else f"rename {', '.join(near)}"
                if near
                else "rename the columns to the names in the definition, or pass --column ATTRIBUTE=COLUMN"
            )
        else:  # no name in it is known, so it may be a row, which must not be shown
            fix = "the first line must name the columns as the definition does, or as --column says"
        raise InvalidInput(header_line, problem, fix)

    def _ndjson(self) -> Iterator[tuple[Columns, int]]:
        """Reads one JSON object a line. An absent key is a missing value."""
        self.left_out = 0
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
                    like = json.dumps(dict.fromkeys(self._names[:2], "..."))
                    self._leave_out(
                        number,
                        "it is not a JSON object",
                        f"write one JSON object a line, such as {like}",
                    )
                    continue
                if first:
                    seen.update(row)
                for name, in_file in zip(self._names, self._in_file, strict=True):
                    columns[name].append(row.get(in_file))
                if len(columns[self._names[0]]) == self._batch_rows:
                    self._check_keys(seen, first=first)
                    first = False
                    yield columns, raw.tell()
                    columns = self._empty()
            if columns[self._names[0]]:
                self._check_keys(seen, first=first)
                yield columns, raw.tell()

    def _check_keys(self, seen: set[str], *, first: bool) -> None:
        missing = [name for name in self._in_file if name not in seen]
        if first and missing:
            raise InvalidInput(
                self._file.name,
                f"no row has the key {', '.join(missing)} (found: {', '.join(sorted(seen)):.200})",
                _WHOSE
                if missing == [self._person]
                else "rename the keys to the names in the definition, or pass --column ATTRIBUTE=KEY",
            )

    def _parquet(self) -> Iterator[tuple[Columns, int]]:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            raise InvalidInput(
                self._file.name, "Parquet needs pyarrow", "pip install 'stream-dp[arrow]'"
            ) from None
        size = self._file.stat().st_size
        try:
            # Instants of the old type INT96 would leave the range of nanoseconds, and come back within it.
            table = pq.ParquetFile(self._file, coerce_int96_timestamp_unit="us")
            self._check_header(table.schema_arrow.names)
            done, total = 0, max(1, table.metadata.num_rows)
            names = dict.fromkeys(self._in_file)
            for batch in table.iter_batches(batch_size=self._batch_rows, columns=list(names)):
                done += batch.num_rows
                read = {in_file: arrow_values(batch.column(in_file)) for in_file in names}
                if batch.num_rows:
                    columns = {
                        name: read[in_file]
                        for name, in_file in zip(self._names, self._in_file, strict=True)
                    }
                    yield columns, size * done // total
        except (pa.ArrowException, OSError):
            raise InvalidInput(
                self._file.name,
                "it is not a Parquet file that pyarrow can read",
                "write it with pandas or pyarrow",
            ) from None
