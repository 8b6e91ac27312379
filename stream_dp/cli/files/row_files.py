"""Reads files of rows as batches of columns."""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from stream_dp.calendar_periods import Calendar, written
from stream_dp.cli.files.cell_widths import fitted
from stream_dp.cli.files.file_columns import Columns, FileColumns
from stream_dp.cli.files.reading_options import FileReading
from stream_dp.cli.files.rows_by_period import TIME, by_period, periods_of
from stream_dp.client.kafka.topic_documents import plain
from stream_dp.core.rows.person_slots import canonical
from stream_dp.errors import InvalidInput
from stream_dp.messages import AttributeSpec, Definition

_SCALARS: Final = frozenset({str, int, float, bool, type(None)})
_POINTED: Final = re.compile(
    r"[+-]?(\d{1,3}(?P<mark>[, '\u2019\u00a0\u202f])\d{3}((?P=mark)\d{3})*(\.\d*)?|\d+(\.\d*)?|\.\d+)"
    r"([eE][+-]?\d+)?"
)
"""A number with a decimal point and an optional thousands separator."""
_SWAPPED: Final = str.maketrans(",.", ".,")


@dataclass(frozen=True, slots=True)
class FileBatch:
    """Rows ``start`` to ``stop`` of a file.

    Attributes:
        at: The date that they are about, if the file says it.
    """

    columns: Columns
    start: int
    stop: int
    at: str | None = None


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
        reading: How the file is read.
        ends_every: A number of rows after each of which a batch ends. None ends them by their size alone.

    Attributes:
        path: The path of the file.
        reading: How the file is read.
        names: The columns of a batch, by the names in the definition.
        periods: Period of the calendar -> rows that the latest reading of ``columns`` has found of it.

    Raises:
        InvalidInput: The name of the file does not tell its format, or an option does not suit the
            definition.
    """

    def __init__(
        self,
        file: Path,
        definition: Definition,
        batch_rows: int,
        reading: FileReading = FileReading(),  # noqa: B008 - it is frozen
        *,
        ends_every: int | None = None,
    ) -> None:
        _check(definition, reading)
        self.path, self.reading, self.periods = file, reading, Counter[int]()
        absent = definition.in_no_row
        self._attributes = [one for one in definition.attributes if one.name not in absent]
        self._batch_rows, self._ends_every = batch_rows, ends_every
        names = [attribute.name for attribute in self._attributes]
        wanted = {name: reading.column.get(name, name) for name in names}
        self._keys, person = definition.row_keys, None
        wanted |= {name: reading.column.get(name, name) for name in self._keys}
        if (unit := definition.privacy.unit) is not None:
            wanted[unit.key] = person = reading.person or wanted[unit.key]
        self.names = tuple(wanted)
        self._calendar: Calendar | None = None
        if reading.time_column is not None:
            self._calendar, self._in_order = definition.phase.calendar, False
            wanted[TIME] = reading.time_column
        listed = {
            attribute.name: frozenset((*attribute.values, *(attribute.also or ())))
            for attribute in self._attributes
            if attribute.type == "category"
        }
        own = [one for one in self._attributes if one.name not in reading.column]
        self._file = FileColumns(
            file,
            wanted,
            reading,
            person=person,
            listed=listed,
            former={one.name: one.was or () for one in own},
            filled={one.name: one.before for one in own if one.name in definition.optional},
        )

    @property
    def absent(self) -> list[str]:
        """The attributes that the latest reading has not found, and that a file need not have."""
        return self._file.absent

    @property
    def left_out(self) -> int:
        """The number of lines that the latest reading left out."""
        return self._file.left_out

    def columns(self) -> Iterator[tuple[Columns, int]]:
        """Yields the declared columns as the file holds them, some rows at a time, and the bytes read.

        Raises:
            InvalidInput: The file cannot be read. The error names the line.
        """
        chunks = self._file.read(self._batch_rows)
        if self._calendar is None:
            yield from chunks
            return
        self.periods.clear()
        self._in_order, newest = True, -1
        for columns, read_bytes in chunks:
            dated = self._dated(columns, self._calendar)
            periods = dated[TIME]
            self.periods.update(periods)
            self._in_order &= periods == sorted(periods) and newest <= min(periods, default=newest)
            newest = max(periods, default=newest)
            if periods:
                yield dated, read_bytes

    def values(self, columns: Columns) -> Columns:
        """Converts columns of the file to the values that are sent. The worker reads these the same way."""
        values = {
            attribute.name: _scalars(self._numbers(attribute, columns[attribute.name]))
            for attribute in self._attributes
        }
        return values | {name: _keys(columns[name]) for name in self._keys}

    def batches(self, skip: int = 0) -> Iterator[FileBatch]:
        """Yields the rows from index ``skip`` on, in batches that fit into a record."""
        start = 0
        for columns, at in self._parts():
            stop = start + len(columns[self.names[0]])
            if stop > skip:
                first = max(0, skip - start)
                values = self.values({name: column[first:] for name, column in columns.items()})
                values |= {one.name: fitted(one, values[one.name]) for one in self._attributes}
                yield FileBatch(values, start + first, stop, at)
            start = stop

    def _parts(self) -> Iterator[tuple[Columns, str | None]]:
        """The rows in the order in which they are sent, with the date that they are about."""
        calendar, chunks = self._calendar, (columns for columns, _ in self.columns())
        if calendar is None:
            yield from ((columns, None) for columns in self._ended(chunks))
        else:
            for columns, period in by_period(chunks, self._batch_rows, in_order=self._in_order):
                yield columns, written(calendar.start(period), calendar.zone)

    def _ended(self, chunks: Iterator[Columns]) -> Iterator[Columns]:
        """The same rows, with an end of a batch after each ``ends_every`` of them."""
        if self._ends_every is None:
            yield from chunks
            return
        row = 0
        for columns in chunks:
            start, stop = 0, len(columns[self.names[0]])
            while start < stop:
                end = min(stop, start + self._ends_every - row % self._ends_every)
                yield {name: column[start:end] for name, column in columns.items()}
                row, start = row + end - start, end

    def _dated(self, columns: Columns, calendar: Calendar) -> Columns:
        """The rows that say when they were, with the number of their period.

        Raises:
            InvalidInput: There are others, and they are not to be left out.
        """
        periods = periods_of(columns[TIME], calendar)
        dated = {**columns, TIME: periods}
        if not (undated := periods.count(None)):
            return dated
        self._file.leave_out(
            undated,
            f"column {self.reading.time_column}",
            f"{undated:,} rows hold no date",
            "write dates as in ISO 8601, such as 2026-03-14, or pass --skip-bad-rows to leave them out",
        )
        known = [period is not None for period in periods]
        return {name: list(itertools.compress(column, known)) for name, column in dated.items()}

    def _numbers(self, attribute: AttributeSpec, column: list[Any]) -> list[Any]:
        decimal = self.reading.decimal
        if decimal is None or attribute.type != "number":
            return column
        return [pointed(value, decimal) if isinstance(value, str) else value for value in column]


def _check(definition: Definition, reading: FileReading) -> None:
    """Checks that the options suit the definition.

    Raises:
        InvalidInput: An option is about persons, periods or an attribute that there are not.
    """
    names = [*(attribute.name for attribute in definition.attributes), *definition.row_keys]
    if not reading.column.keys() <= set(names):
        problem = f"{definition.dataset} has no such attribute"
        raise InvalidInput("--column", problem, f"use {', '.join(names)}")
    if reading.person is not None and definition.privacy.unit is None:
        raise InvalidInput("--person", "this data set protects rows", "leave it out")
    if reading.time_column is not None and definition.phase.every is None:
        raise InvalidInput(
            "--time-column",
            f"phases of {definition.dataset} open by their number of rows, so {reading.time_column} decides "
            "nothing",
            "leave it out",
        )


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
