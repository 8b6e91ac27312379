"""The declared columns of a file, as the file holds them: of CSV, NDJSON and Parquet."""

from __future__ import annotations

import csv
import gzip
import io
import itertools
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final, TypeAlias

from stream_dp.cli.files.reading_options import FileReading
from stream_dp.client.rows.frames import arrow_values
from stream_dp.errors import InvalidInput

Columns: TypeAlias = dict[str, list[Any]]
_Reader: TypeAlias = Callable[[int], Iterator[tuple[Columns, int]]]

_UTF16_MARKS: Final = ("\udcff\udcfe", "\udcfe\udcff")
"""The byte order marks, as they are read in another encoding."""
_UNDECODED: Final = re.compile("[\udc80-\udcff]")
_END_OF_FILE: Final = "\x1a"
"""Ctrl-Z, with which DOS ends a file of text."""
_BLANKS: Final = f" \t\r\n\ufeff{_END_OF_FILE}"
_EXCELS_LINE: Final = re.compile(r'"?sep=."?\s*', re.IGNORECASE)
_MARKS: Final = ",;\t|"
_NAMING_ROWS: Final = 1_000
"""The first rows of NDJSON, whose keys are the names of the columns."""
_LONGEST_CELL: Final = 1 << 27
"""The most characters of a cell of CSV. It bounds the memory that an unclosed quote takes."""


class FileColumns:
    """Some columns of a file: csv, tsv, ndjson (each also as .gz) or parquet.

    Args:
        file: The path of the file. Its name tells the format.
        wanted: The name of each column -> its name in the file.
        reading: How the file is read.
        person: The name in the file of the column that says whose row it is. None if there is none.
        listed: Values of CSV that keep the blanks around them, by the name of the column.
        former: Other names that a column may have in the file, by its name.
        filled: What a column holds that the file may lack, and lacks.

    Attributes:
        left_out: The number of lines that the latest reading left out.
        absent: The columns that the latest reading filled.

    Raises:
        InvalidInput: The name of the file does not tell its format.
    """

    def __init__(
        self,
        file: Path,
        wanted: Mapping[str, str],
        reading: FileReading,
        *,
        person: str | None,
        listed: Mapping[str, frozenset[str]],
        former: Mapping[str, Sequence[str]] | None = None,
        filled: Mapping[str, Any] | None = None,
    ) -> None:
        self.left_out, self.absent = 0, list[str]()
        self._file, self._wanted, self._reading = file, wanted, reading
        self._spellings = {
            name: (each, *(former or {}).get(name, ())) for name, each in wanted.items()
        }
        self._filled = filled or {}
        self._person, self._listed = person, listed
        suffixes = [suffix.lower() for suffix in file.suffixes]
        self._zipped = suffixes[-1:] == [".gz"]
        (kind,) = (suffixes[:-1] if self._zipped else suffixes)[-1:] or [""]
        readers: dict[str, tuple[_Reader, Callable[[], list[str]]]] = {
            **dict.fromkeys((".csv", ".tsv"), (self._csv, self._csv_names)),
            **dict.fromkeys((".ndjson", ".jsonl"), (self._ndjson, self._ndjson_names)),
            ".parquet": (self._parquet, self._parquet_names),
        }
        if kind not in readers:
            raise InvalidInput(
                file.name,
                "the ending of its name is not a known format",
                "send .csv, .tsv, .ndjson (or .jsonl), each also with .gz, or .parquet",
            )
        self._read, self._names = readers[kind]

    def read(self, n_rows: int) -> Iterator[tuple[Columns, int]]:
        """Yields the columns, some rows at a time, and the number of bytes that were read so far.

        Args:
            n_rows: The most rows at a time.

        Raises:
            InvalidInput: The file cannot be read. The error names the line.
        """
        self.left_out, self.absent = 0, []
        return self._read(n_rows)

    def names(self) -> list[str]:
        """Returns the names of all columns, in the order of the file.

        Of NDJSON these are the keys of the first rows.

        Raises:
            InvalidInput: The file cannot be read, or its first line names no columns.
        """
        return self._names()

    def leave_out(self, rows: int, where: str, problem: str, fix: str) -> None:
        """Counts rows that cannot be read.

        Raises:
            InvalidInput: Such rows are not to be left out.
        """
        if not self._reading.skip_bad_rows:
            raise InvalidInput(f"{self._file.name} {where}", problem, fix)
        self.left_out += rows

    # ---------------------------------------------------------------- text

    @contextmanager
    def _open(self) -> Iterator[tuple[Iterator[str], IO[bytes]]]:
        """Opens the file as lines of text, together with the raw file that shows how far it is read."""
        with self._file.open("rb") as raw:
            stream: Any = gzip.GzipFile(fileobj=raw) if self._zipped else raw
            encoding = self._reading.encoding
            text = io.TextIOWrapper(stream, encoding=encoding, errors="surrogateescape", newline="")
            try:
                yield self._lines(text), raw
            except (EOFError, gzip.BadGzipFile, zlib.error):
                fix = "check that it is complete and packed by gzip"
                raise InvalidInput(self._file.name, "it cannot be read", fix) from None
            except OSError as error:
                problem = f"it cannot be read ({error})"
                raise InvalidInput(self._file.name, problem, "check that it is complete") from None

    def _lines(self, text: IO[str]) -> Iterator[str]:
        name = self._reading.encoding.removesuffix("-sig").upper()
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

    def _in_columns(
        self, rows: Iterator[Sequence[Any]], n_rows: int, raw: IO[bytes]
    ) -> Iterator[tuple[Columns, int]]:
        """The columns of rows, whose values have the order of the wanted columns."""
        while some := list(itertools.islice(rows, n_rows)):
            columns = map(list, zip(*some, strict=True))
            read = dict(zip(self._wanted, columns, strict=True))
            yield self._with(self.absent, read), raw.tell()

    def _find_columns(self, header: Sequence[str]) -> None:
        """Takes each column under the first of its names that the file has."""
        found = {
            name: next((each for each in names if each in header), names[0])
            for name, names in self._spellings.items()
        }
        self.absent = [name for name in self._filled if found[name] not in header]
        self._wanted = {name: each for name, each in found.items() if name not in self.absent}

    def _with(self, absent: Sequence[str], columns: Columns) -> Columns:
        """Fills columns that the file lacks."""
        n_rows = len(next(iter(columns.values()), ()))
        return {**columns, **{name: [self._filled[name]] * n_rows for name in absent}}

    def _leave_out_line(self, number: int, problem: str, fix: str) -> None:
        fix += ", or pass --skip-bad-rows to leave out such lines"
        self.leave_out(1, f"line {number}", problem, fix)

    # ---------------------------------------------------------------- CSV

    def _csv(self, n_rows: int) -> Iterator[tuple[Columns, int]]:
        """Reads cells as strings without surrounding blanks. An empty cell is a missing value.

        The worker reads numbers out of the strings.
        """
        csv.field_size_limit(_LONGEST_CELL)
        with self._open() as (lines, raw):
            yield from self._in_columns(self._csv_rows(lines), n_rows, raw)

    def _csv_names(self) -> list[str]:
        with self._open() as (lines, _):
            mark = self._mark(first := next(lines, ""))
            found = csv.reader(itertools.chain([first], lines), delimiter=mark)
            names = [name.strip() for name in next(found)]
        if 2 * sum(map(_is_number, names)) > len(names):
            # It is a row, which must not be shown.
            fix = "write a first line that names the columns"
            raise InvalidInput(f"{self._file.name} line 1", "most names in it are numbers", fix)
        return names

    def _csv_rows(self, lines: Iterator[str]) -> Iterator[list[str | None]]:
        """Reads the rows. A blank line is a row of a file of one column, and none of a wider file."""
        begins = 1
        try:
            mark = self._mark(first := next(lines, ""))
            # Without strict mode an unclosed quote would swallow the rest of the file as one cell.
            reader = csv.reader(itertools.chain([first], lines), delimiter=mark, strict=True)
            header = [name.strip() for name in next(reader, [])]
            self._find_columns(header)
            self._check_header(header, may_be_a_row=True)
            cells = [
                (header.index(in_file), self._listed.get(name, frozenset()))
                for name, in_file in self._wanted.items()
            ]
            begins = reader.line_num + 1
            for row in reader:
                if not row or (len(row) == 1 and not row[0].strip(_BLANKS)):
                    if len(header) == 1:
                        yield [None] * len(cells)
                elif len(row) == len(header):
                    yield [
                        (cell if (cell := row[index]) in listed else cell.strip()) or None
                        for index, listed in cells
                    ]
                else:
                    self._leave_out_line(
                        begins,
                        f"the row that begins there has {len(row):,} fields, and the first line names "
                        f"{len(header):,}",
                        f"name each column in the first line and quote values with {mark!r} in them",
                    )
                begins = reader.line_num + 1
        except csv.Error as error:
            raise InvalidInput(
                f"{self._file.name} line {begins}",
                f"it is not valid CSV ({error})",
                "fix the quotes of the row that begins there",
            ) from None

    def _mark(self, first: str) -> str:
        """Returns the delimiter.

        Raises:
            InvalidInput: The first line names no columns.
        """
        if not first.strip(_BLANKS):
            problem = "it begins with a blank line" if first else "it is empty"
            fix = "its first line must name the columns"
            raise InvalidInput(self._file.name, problem, fix)
        if self._reading.delimiter is not None:
            return self._reading.delimiter
        if _EXCELS_LINE.fullmatch(first):
            problem = "it tells Excel the separator, and does not name the columns"
            raise InvalidInput(f"{self._file.name} line 1", problem, "delete this line")
        wanted = self._wanted.values()
        return mark_of(first, wanted) if wanted else _widest_mark(first)

    def _check_header(self, header: Sequence[str], *, may_be_a_row: bool = False) -> None:
        in_file, line = self._wanted.values(), f"{self._file.name} line 1"
        if twice := next((name for name in in_file if header.count(name) > 1), None):
            raise InvalidInput(line, f"column {twice} appears twice", "rename one of them")
        missing = [name for name in in_file if name not in header]
        if not missing:
            return
        wanted = {name.casefold(): name for name in missing}
        near = [
            f"{name} to {wanted[name.casefold()]}" for name in header if name.casefold() in wanted
        ]
        problem = f"there is no column {', '.join(missing)}"
        if may_be_a_row and not near and len(missing) == len(self._wanted):
            # No name in it is known, so it may be a row, which must not be shown.
            fix = "the first line must name the columns as the definition does, or as --column says"
            raise InvalidInput(line, problem, fix)
        fix = self._rename(missing, "columns", "COLUMN")
        if near and missing != [self._person]:
            fix = f"rename {', '.join(near)}"
        raise InvalidInput(line, f"{problem} (found: {', '.join(header):.200})", fix)

    def _rename(self, missing: Sequence[str], what: str, name: str) -> str:
        """Returns what to do about columns that are not there."""
        if missing == [self._person]:
            return "pass --person with the column that says whose row it is"
        return (
            f"rename the {what} to the names in the definition, or pass --column ATTRIBUTE={name}"
        )

    # ---------------------------------------------------------------- NDJSON

    def _ndjson(self, n_rows: int) -> Iterator[tuple[Columns, int]]:
        """Reads one JSON object a line. An absent key is a missing value."""
        seen: set[str] = set()
        with self._open() as (lines, raw):
            for columns, read_bytes in self._in_columns(self._objects(lines, seen), n_rows, raw):
                unseen = [name for name, each in self._spellings.items() if seen.isdisjoint(each)]
                if missing := [self._wanted[name] for name in unseen if name not in self._filled]:
                    found = ", ".join(sorted(seen))
                    raise InvalidInput(
                        self._file.name,
                        f"no row has the key {', '.join(missing)} (found: {found:.200})",
                        self._rename(missing, "keys", "KEY"),
                    )
                absent = [name for name in self._filled if name in unseen]
                yield self._with(absent, columns), read_bytes
        self.absent = [name for name in self._filled if seen.isdisjoint(self._spellings[name])]

    def _ndjson_names(self) -> list[str]:
        seen: dict[str, None] = {}
        with self._open() as (lines, _):
            for line in itertools.islice(lines, _NAMING_ROWS):
                with suppress(ValueError, RecursionError):
                    row = json.loads(line)
                    seen.update(dict.fromkeys(row if isinstance(row, dict) else ()))
        return [*seen]

    def _objects(self, lines: Iterator[str], seen: set[str]) -> Iterator[list[Any]]:
        for number, line in enumerate(lines, start=1):
            if not line.strip():
                continue
            try:
                row = json.loads(line)
            except (ValueError, RecursionError):
                row = None
            if isinstance(row, dict):
                seen.update(row)
                yield [
                    next((row[each] for each in names if each in row), None)
                    for names in self._spellings.values()
                ]
            else:
                like = json.dumps(dict.fromkeys([*self._wanted][:2], "..."))
                fix = f"write one JSON object a line, such as {like}"
                self._leave_out_line(number, "it is not a JSON object", fix)

    # ---------------------------------------------------------------- Parquet

    @contextmanager
    def _parquet_file(self) -> Iterator[Any]:
        try:
            import pyarrow as pa
            import pyarrow.parquet as pq
        except ImportError:
            fix = "pip install 'stream-dp[arrow]'"
            raise InvalidInput(self._file.name, "Parquet needs pyarrow", fix) from None
        try:
            # Instants of the old type INT96 would leave the range of nanoseconds, and come back within it.
            yield pq.ParquetFile(self._file, coerce_int96_timestamp_unit="us")
        except (pa.ArrowException, OSError):
            raise InvalidInput(
                self._file.name,
                "it is not a Parquet file that pyarrow can read",
                "write it with pandas or pyarrow",
            ) from None

    def _parquet_names(self) -> list[str]:
        with self._parquet_file() as table:
            return [*table.schema_arrow.names]

    def _parquet(self, n_rows: int) -> Iterator[tuple[Columns, int]]:
        size, done = self._file.stat().st_size, 0
        with self._parquet_file() as table:
            self._find_columns(table.schema_arrow.names)
            self._check_header(table.schema_arrow.names)
            names = list(dict.fromkeys(self._wanted.values()))
            for batch in table.iter_batches(batch_size=n_rows, columns=names):
                done += batch.num_rows
                read = {in_file: arrow_values(batch.column(in_file)) for in_file in names}
                if batch.num_rows:
                    columns = {name: read[in_file] for name, in_file in self._wanted.items()}
                    whole = self._with(self.absent, columns)
                    yield whole, size * done // table.metadata.num_rows


def mark_of(line: str, wanted: Iterable[str]) -> str:
    """Returns the delimiter at which a line names at least one of some columns. A comma if there is none."""
    names = {name.casefold() for name in wanted}
    for mark in _MARKS:
        found = next(csv.reader([line], delimiter=mark), [])
        if not names.isdisjoint(name.strip().casefold() for name in found):
            return mark
    return ","


def _widest_mark(line: str) -> str:
    """Returns the delimiter that cuts a line into most fields."""
    return max(_MARKS, key=lambda mark: len(next(csv.reader([line], delimiter=mark), [])))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _wide_encoding(first: str) -> str | None:
    """Returns the encoding of a file whose first line is that of UTF-16 and was read in another encoding."""
    if first.startswith(_UTF16_MARKS):
        return "utf-16"
    if "\0" in first:  # half of each letter of ASCII
        return "utf-16-be" if first.startswith("\0") else "utf-16-le"
    return None
