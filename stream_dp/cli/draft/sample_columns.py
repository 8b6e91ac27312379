"""What the columns of a sample hold, as far as a draft depends on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from stream_dp.calendar_periods import Calendar, Length, zone_of
from stream_dp.cli.draft.round_numbers import Floats, Rows
from stream_dp.cli.files.file_columns import FileColumns
from stream_dp.cli.files.reading_options import FileReading
from stream_dp.cli.files.row_files import pointed
from stream_dp.cli.files.rows_by_period import periods_of
from stream_dp.cli.text.progress_bar import bar
from stream_dp.client.kafka.topic_documents import plain
from stream_dp.client.rows.unread_values import value_text
from stream_dp.errors import InvalidInput

_AT_ONCE: Final = 10_000
_MOST_TEXTS: Final = 200_000
"""How many distinct values of a column are counted. The rows after that say nothing about it."""
MOSTLY: Final = 0.9
"""The share of the values of a column that say what it is."""


class ColumnSample:
    """The values of a column.

    Attributes:
        name: The name of the column in the file.
        rows: The rows that were examined.
        texts: The values as texts, with the number of rows that have each. Empty ones are left out.
        nested: The rows with a list or an object.
    """

    def __init__(self, name: str) -> None:
        self.name, self.rows, self.nested = name, 0, 0
        self.texts = Counter[str]()

    def take(self, column: Sequence[Any]) -> None:
        """Examines the column in some rows."""
        if len(self.texts) >= _MOST_TEXTS:
            return
        self.rows += len(column)
        if not set(map(type, column)) <= {str, type(None)}:
            self.nested += sum(isinstance(value, list | dict) for value in column)
            column = [_text_of(value) for value in column]
        for text, rows in Counter(column).items():
            if text is not None and text.strip():
                self.texts[text] += rows

    def without(self, na: Sequence[str]) -> Counter[str]:
        """Returns the values but for some texts."""
        return Counter({text: rows for text, rows in self.texts.items() if text not in na})


@dataclass(frozen=True)
class Sample:
    """A file of rows, examined.

    Attributes:
        rows: The number of rows.
        columns: The columns that have a name, in the order of the file.
        decimal: The decimal mark of the numbers, if the file needs one to be named.
        days: Days since 1970 -> rows, of the column that says when a row was. Empty if there is none.
    """

    rows: int
    columns: tuple[ColumnSample, ...]
    decimal: str | None = None
    days: Counter[int] = field(default_factory=Counter)


def sampled(file: Path, reading: FileReading, zone: str | None, most: int | None = None) -> Sample:
    """Examines the rows of a file.

    Args:
        file: The file.
        reading: How it is read.
        zone: The time zone of its days.
        most: About how many rows to read. None reads all of them.

    Raises:
        InvalidInput: The file cannot be read, or it has no column ``reading.time_column``.
    """
    names = [name for name in _columns_of(file, reading, {}).names() if name]
    time = reading.time_column
    if time is not None and time not in names:
        raise unknown_column("--time-column", time, names)
    columns = {name: ColumnSample(name) for name in names}
    by_day = Calendar(Length(1, "day"), zone_of(zone))
    rows, days = 0, Counter[int]()
    with bar() as progress:
        task = progress.add_task(f"Reading {file.name}", total=file.stat().st_size)
        chunks = _columns_of(file, reading, {name: name for name in names}).read(_AT_ONCE)
        for chunk, read_bytes in chunks:
            for name, column in chunk.items():
                columns[name].take(column)
            rows += len(chunk[names[0]])
            if time is not None:
                days.update(day for day in periods_of(chunk[time], by_day) if day is not None)
            progress.update(task, completed=read_bytes)
            if most is not None and rows >= most:
                break
    found = tuple(columns.values())
    return Sample(rows, found, reading.decimal or _decimal_mark(found), days)


def unknown_column(option: str, name: str, names: Sequence[str]) -> InvalidInput:
    """The error for an option that names a column that a file does not have."""
    problem = f"there is no column {name} (found: {', '.join(names):.200})"
    return InvalidInput(option, problem, "use the name of a column of the file")


def numbers_of(texts: Counter[str], decimal: str | None) -> tuple[Floats, Rows]:
    """Returns the finite numbers among some texts, distinct and ascending, and the rows of each.

    Args:
        texts: The texts, with their rows.
        decimal: The decimal mark, see ``pointed``. None takes a point and no thousands separator.
    """
    found = Counter[float]()
    for text, rows in texts.items():
        written = text if decimal is None else pointed(text, decimal)
        try:
            number = float(written or "")
        except ValueError:
            continue
        if np.isfinite(number):
            found[number + 0.0] += rows
    pairs = sorted(found.items())
    return (
        np.array([number for number, _ in pairs], np.float64),
        np.array([rows for _, rows in pairs], np.int64),
    )


def _columns_of(file: Path, reading: FileReading, wanted: dict[str, str]) -> FileColumns:
    plain_reading = replace(reading, time_column=None)
    return FileColumns(file, wanted, plain_reading, person=None, listed={})


def _decimal_mark(columns: Sequence[ColumnSample]) -> str | None:
    """Returns the decimal mark with which most columns are numbers; None if none need be named."""

    def readable(mark: str | None) -> int:
        return sum(
            numbers_of(column.texts, mark)[1].sum() >= MOSTLY * column.texts.total()
            for column in columns
            if column.texts
        )

    grouped = any("," in text or "." in text for column in columns for text in column.texts)
    marks = (None, ".", ",") if grouped else (None,)
    return max(marks, key=readable)


def _text_of(value: object) -> str | None:
    """Returns the text by which a definition would list a value."""
    if isinstance(value, float) and value != value:
        return None
    if value is None or isinstance(value, list | dict):
        return None
    if not isinstance(value, str | int | float):
        value = plain(value)
    return value_text(value) if isinstance(value, str | int | float) else str(value)
