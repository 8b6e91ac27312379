"""Shows the holder of the rows how each value would be counted. Nothing leaves this machine.

A column may be read in a way that nobody intended: a decimal comma, another language's yes and no, or a time
where the definition lists months. Each row still counts, but in a cell that carries no information. So the
command warns before it sends a column whose values mostly fall into such a cell.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Final

import click
import numpy as np
from rich.markup import escape
from rich.table import Table

from stream_dp.cli.files.file_columns import Columns
from stream_dp.cli.files.row_files import RowFile, pointed
from stream_dp.cli.terminal import warn
from stream_dp.cli.text.progress_bar import bar
from stream_dp.cli.text.reply_text import bare_table, numbers
from stream_dp.client.rows.unread_values import MOST_SHOWN, Unread
from stream_dp.core.rows.attributes import Attribute, Boolean, Category, Date, Number
from stream_dp.core.rows.column_values import number_text
from stream_dp.core.rows.universe import Universe

_WORDS: Final = {
    Category: ("listed", "not listed"),
    Number: ("a number", "not a number"),
    Boolean: ("true or false", "neither true nor false"),
    Date: ("a date", "not a date"),
}
_FIXES: Final = {
    Category: "compare how the values are written with those that the definition lists",
    Number: "write them as numbers with a decimal point",
    Boolean: "write true or false",
    Date: "write dates as in ISO 8601, such as 2026-03-14 or 2026-03-14T10:00+01:00",
}
_FIX_EMPTY: Final = {
    True: "check that it is the right column",
    False: 'a definition with "missing": true distinguishes them',
}
"""What to do about empty values, by whether they count apart."""
_EXAMPLES: Final = 3
_REMEMBERED: Final = 1_000
"""How many distinct values of a column are kept. The examples are the most common of these."""

# The shares of the rows from which a column is warned of.
# Rows that count as ``other`` or ``missing``:
_MOSTLY: Final = 0.5
# That count as a value they do not have, because no cell fits better: it is asked about.
_WRONGLY: Final = 0.1
# The same, and it is told; or that have one value that is not listed, or another notation.
_BIASED: Final = 0.01
# That lie in an end bin if there are bins between the ends:
_END: Final = 0.9
# That lie beyond the ends between which values are kept, or outside the bounds of dates:
_BEYOND: Final = 0.05
# The numbers from which a distribution can be judged:
_FEWEST: Final = 100

NOT_THERE: Final = frozenset(
    ["?", "-", "--", ".", "na", "n/a", "nan", "none", "null", "nil", "missing", "unknown"]
).union(["-9", "-99", "-999"])
"""Texts by which files often say that a value is missing, in small letters."""
_NA: Final = 'if this is a missing value, a definition with "missing": true and "na": [...] says so'
_GROUPED: Final = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")
"""A number whose points may separate thousands."""
_A_NUMBER: Final = Number("number", (0.0,), missing=True)
_A_DAY: Final = Date("day", "day", "2000-01-01", "2001-01-01", missing=True)


@dataclass
class _Count:
    """Counts rows of one sort and keeps their most common values."""

    rows: int = 0
    values: Counter[str] = field(default_factory=Counter, repr=False)

    def add(self, values: Iterable[object]) -> None:
        for text, rows in Counter(map(str, values)).items():
            self.rows += rows
            if len(self.values) < _REMEMBERED or text in self.values:
                self.values[text] += rows

    @property
    def examples(self) -> tuple[str, ...]:
        return tuple(f"{text!r:.30}" for text, _ in self.values.most_common(_EXAMPLES))

    def all_fit(self, sort: Date | Number) -> bool:
        """Returns whether all values that were kept are of a sort."""
        texts = list(self.values)
        return bool(texts) and bool((sort.encode(texts) != sort.missing_cell).all())


@dataclass(frozen=True)
class Complaint:
    """A column that is probably not read as its holder intended.

    Attributes:
        attribute: The name of the column.
        text: The problem. It contains shares of the rows and no value.
        fix: The advice to the holder of the rows.
        asks: Whether the holder must confirm it before the rows are sent.
        examples: At most three of the values. Only the holder of the rows may see them.
    """

    attribute: str
    text: str
    fix: str
    examples: tuple[str, ...] = field(default=(), repr=False)
    asks: bool = True

    def words(self, *, with_examples: bool) -> str:
        """Formats the complaint as one line."""
        shown = f", such as {', '.join(self.examples)}" if with_examples and self.examples else ""
        return f"{self.attribute}: {self.text}{shown}; {self.fix}"


class ColumnReading:
    """The values of one column, as the definition distinguishes them.

    Args:
        attribute: The attribute that is read from the column.
        decimal: The decimal mark with which number strings were read. None if the user gave none.
        can_say: Whether the user could give one.

    Attributes:
        understood: The number of rows whose value has its own cell or a bin.
        empty: The rows without a value.
        strange: All other rows.
        ends: The rows with a number in the first bin and in the last bin, or with a date outside the bounds.
    """

    def __init__(self, attribute: Attribute, decimal: str | None, *, can_say: bool) -> None:
        self.attribute, self._decimal, self._can_say = attribute, decimal, can_say
        # Values that it does not understand have cells of their own here.
        self._strict: Attribute = dataclasses.replace(attribute, missing=True)
        if isinstance(self._strict, Category):
            self._strict = dataclasses.replace(self._strict, other=True)
        self.understood = self.empty = 0
        self.strange, self.ends = _Count(), (_Count(), _Count())
        # Strange rows with a number in another notation, rows with a number beyond the ends between which
        # values are kept, and rows with a string whose point may mark decimals or separate thousands.
        self._other_notation, self._outside, self._grouped = _Count(), _Count(), _Count()
        # Whether some string has a point that can only mark decimals, and whether some number is not whole,
        # where the definition could say so.
        self._decimals = self._fractions = False

    @property
    def rows(self) -> int:
        return self.understood + self.empty + self.strange.rows

    def take(self, column: Sequence[Any], values: Sequence[Any]) -> None:
        """Examines some rows: the values as the file holds them, and as the worker reads them."""
        strict = self._strict
        codes = strict.encode(values)
        column = list(strict.without_na(column))
        unknown = codes == strict.missing_cell
        if isinstance(strict, Category) and not strict.finds:
            unknown |= codes == strict.other_cell
        empty = np.fromiter((v is None or v != v for v in column), np.bool_, len(column))
        strange = unknown & ~empty
        self.understood += int((~unknown).sum())
        self.empty += int(empty.sum())
        self.strange.add(compress(column, strange))
        if isinstance(strict, Number | Date) and strict.edges:
            for tally, code in zip(self.ends, (0, len(strict.edges)), strict=True):
                tally.add(compress(column, (codes == code) & ~unknown))
        if isinstance(strict, Number):
            if strict.measure is not None:
                self._outside.add(compress(column, strict.outside(values)))
            if strict.may_be_whole and not self._fractions:
                self._fractions = strict.has_fractions(values)
            if self._decimal is None:
                self._take_spelling(column, strange)

    def _take_spelling(self, column: Sequence[Any], strange: np.ndarray[Any, Any]) -> None:
        """Examines how number strings are written."""
        self._other_notation.add(
            value
            for value in compress(column, strange)
            if isinstance(value, str) and any(pointed(value, mark) is not None for mark in ",.")
        )
        with_point = [v for v in compress(column, ~strange) if isinstance(v, str) and "." in v]
        grouped = [value for value in with_point if _GROUPED.fullmatch(value.strip())]
        self._grouped.add(grouped)
        self._decimals |= len(grouped) < len(with_point)

    def cell_of(self, value: str | None) -> int:
        """Returns the cell of a value that is not understood, or of a missing value."""
        if isinstance(self.attribute, Category) and value is not None:
            value = "?" * (1 + max(map(len, self.attribute.values), default=0))
        return int(self.attribute.encode([value])[0])

    def label_of(self, value: str | None) -> str:
        """Returns the label of that cell."""
        return self.attribute.labels[self.cell_of(value)]

    def _is_apart(self, cell: int) -> bool:
        """Returns whether this cell counts no listed value and no bin."""
        other = self.attribute.other_cell if isinstance(self.attribute, Category) else None
        return cell in (self.attribute.missing_cell, other)

    # ---------------------------------------------------------------- complaints

    def complaints(self) -> Iterator[Complaint]:
        """Yields the complaints about the column."""
        yield from self._wrong_cells()
        if isinstance(self.attribute, Date):
            yield from self._out_of_bounds(self.attribute)
        if isinstance(self.attribute, Number):
            yield from self._notation()
            yield from self._in_ends(self.attribute)
            yield from self._clamped(self.attribute)

    def _complaint(
        self, text: str, fix: str, examples: tuple[str, ...] = (), *, asks: bool = True
    ) -> Complaint:
        return Complaint(self.attribute.name, text, fix, examples, asks)

    def _wrong_cells(self) -> Iterator[Complaint]:
        """Yields complaints about values that are not understood or not there, by the cell that they get."""
        words = _WORDS[type(self.attribute)][1]
        cells = self.cell_of("?"), self.cell_of(None)
        in_notation = self._in_other_notation and 2 * self._other_notation.rows >= self.strange.rows
        for cell in dict.fromkeys(cells):
            strange = self.strange.rows * (cell == cells[0])
            empty = self.empty * (cell == cells[1])
            share, is_apart = (strange + empty) / max(1, self.rows), self._is_apart(cell)
            if share < (_MOSTLY if is_apart else _BIASED):
                if strange and isinstance(self.attribute, Category):
                    yield from self._said_missing(cell)
            elif not (strange and in_notation):  # which is reported together with its fix
                parts = ((strange, words), (empty, "empty"))
                said = " and ".join(f"{n / self.rows:.1%} are {what}" for n, what in parts if n)
                yield self._complaint(
                    f"of {self.rows:,} rows {said} and count as {self.attribute.labels[cell]}",
                    self._fix(apart=is_apart) if strange else _FIX_EMPTY[is_apart],
                    self.strange.examples if strange else (),
                    asks=is_apart or share >= _WRONGLY,
                )

    def _said_missing(self, cell: int) -> Iterator[Complaint]:
        """Yields the complaint about a text by which files say that a value is missing."""
        ((value, rows),) = self.strange.values.most_common(1)
        if rows >= self._noticeable and value.strip().casefold() in NOT_THERE:
            yield self._complaint(
                f"of {self.rows:,} rows {rows / self.rows:.1%} have the same value, which is not listed and "
                f"counts as {self.attribute.labels[cell]}",
                _NA,
                self.strange.examples[:1],
                asks=False,
            )

    @property
    def _noticeable(self) -> float:
        """The rows from which it matters that a value is not listed."""
        return max(2.0, _BIASED * self.rows)

    def unlisted(self, dataset: str | None) -> str | None:
        """Says which values many rows have that are not listed; None if there are none.

        Args:
            dataset: The data set that lists values. None if its definition can still be changed.
        """
        name, found = self.attribute.name, self.strange.values
        values = {
            text: rows
            for text, rows in found.most_common()
            if rows > 1 and text.strip().casefold() not in NOT_THERE
        }
        if not isinstance(self.attribute, Category) or sum(values.values()) < self._noticeable:
            return None
        most = dict(itertools.islice(values.items(), MOST_SHOWN))
        shown = [f"{text:.40} ({rows:,})" for text, rows in most.items()]
        more = ["..."] * (len(found) > len(most))
        said = (
            f"{self.strange.rows:,} of {self.rows:,} rows have a {name} that is not listed, and count as "
            f"{self.label_of('?')}: {', '.join([*shown, *more])}"
        )
        if dataset is None:
            return f"{said}; list them in the definition if everybody may know them"
        words = shlex.join(["stream-dp", "schema", "add-value", dataset, name, *most])
        return f"{said}; if everybody may know them, add them with:\n{words}"

    def _fix(self, *, apart: bool) -> str:
        """Returns the advice for values that are not understood, and count in a cell of their own or not."""
        attribute, strange = self.attribute, self.strange
        most = [text.strip().casefold() for text, _ in strange.values.most_common(_EXAMPLES)]
        if most and NOT_THERE.issuperset(most):
            return _NA
        if isinstance(attribute, Date):
            if attribute.epoch is None and strange.all_fit(_A_NUMBER):
                return 'a definition with "epoch": "s", or "ms", reads numbers as dates'
            if attribute.by in ("hour", "hour_of_day") and strange.all_fit(_A_DAY):
                return 'these are days without a time: a definition with "by": "day" reads them'
        elif strange.all_fit(_A_DAY):
            return 'an attribute of "type": "date" reads dates'
        fix = _FIXES[type(attribute)]
        return (
            fix if apart else f'{fix}, or add "missing": true to the definition to count them apart'
        )

    def _out_of_bounds(self, attribute: Date) -> Iterator[Complaint]:
        """Yields the complaint about dates that are counted without their period."""
        rows = sum(tally.rows for tally in self.ends)
        if self.understood >= _FEWEST and rows >= _BEYOND * self.understood:
            yield self._complaint(
                f"{rows / self.understood:.1%} of its {self.understood:,} dates are {attribute.labels[0]} or "
                f"{attribute.labels[len(attribute.edges)]}, outside the bounds",
                "compare the dates with from and until in the definition",
                max(self.ends, key=lambda tally: tally.rows).examples,
            )

    @property
    def _in_other_notation(self) -> bool:
        return self._other_notation.rows >= max(1, _BIASED * self.rows)

    def _notation(self) -> Iterator[Complaint]:
        """Yields the complaint about numbers that are written in another way, or perhaps so."""
        if self._in_other_notation:
            part = self._other_notation.rows / self.rows
            yield self._complaint(
                f"of {self.rows:,} rows {part:.1%} have a number in another notation and count as "
                f"{self.label_of('?')}",
                self._fix_notation(),
                self._other_notation.examples,
            )
        elif self._grouped.rows >= max(1, _BIASED * self.rows) and not self._decimals:
            yield self._complaint(
                "a point in its numbers may mark decimals or separate thousands",
                "pass --decimal . or --decimal , to say which"
                if self._can_say
                else "it is read as a decimal point; write numbers without quotes",
                self._grouped.examples,
            )

    def _fix_notation(self) -> str:
        if not self._can_say:
            return "send numbers, or strings with a decimal point and no thousands separator"
        texts = self._other_notation.values
        marks = "." if self._decimals else ",."
        able = [mark for mark in marks if all(pointed(text, mark) is not None for text in texts)]
        if len(able) == 1:
            return f"pass --decimal {able[0]}"
        return "pass --decimal , if commas mark decimals, or --decimal . if they separate thousands"

    def _in_ends(self, attribute: Number) -> Iterator[Complaint]:
        """Yields the complaints about numbers that mostly lie in the first bin, or in the last one."""
        least = _END if len(attribute.edges) > 1 else 1.0
        # Zero is zero in each unit, and so it says nothing about the unit of the others.
        zeros = [
            sum(rows for text, rows in tally.values.items() if _is_zero(text))
            for tally in self.ends
        ]
        others, but = self.understood - sum(zeros), " other than 0" if any(zeros) else ""
        labels = attribute.labels[0], attribute.labels[len(attribute.edges)]
        for tally, zero, label in zip(self.ends, zeros, labels, strict=True):
            rows = tally.rows - zero
            if others >= _FEWEST and rows >= least * others:
                yield self._complaint(
                    f"{rows / others:.1%} of its {others:,} numbers{but} are {label}, in an end bin",
                    "compare the unit of the numbers with the edges in the definition",
                    tally.examples,
                )

    def _clamped(self, attribute: Number) -> Iterator[Complaint]:
        measure, rows = attribute.measure, self._outside.rows
        if measure and self.understood >= _FEWEST and rows >= _BEYOND * self.understood:
            low, high = number_text(measure.low), number_text(measure.high)
            yield self._complaint(
                f"{rows / self.understood:.1%} of its {self.understood:,} numbers are not between {low} and "
                f"{high}, and add to sums as the nearer of the two",
                "compare the unit of the numbers with measure in the definition",
                self._outside.examples,
            )

    def proposal(self) -> Complaint | None:
        """Returns what a new definition should say of a column whose numbers are all whole."""
        attribute = self.attribute
        if not (isinstance(attribute, Number) and attribute.may_be_whole and attribute.edges):
            return None
        if self._fractions or self.understood < _FEWEST:
            return None
        edge = attribute.edges[0]
        return self._complaint(
            "all of its numbers are whole",
            'add "integer": true to the definition, or nobody can ask for <= '
            f"{number_text(edge - 1)}, which then means < {number_text(edge)}",
            asks=False,
        )


class Survey:
    """Examines rows while they are read.

    Args:
        universe: The universe in which the rows would be counted.
        decimal: The decimal mark with which number strings were read. None if the user gave none.
        can_say: Whether the user could give one. Messages of a source have no such option.
    """

    def __init__(
        self, universe: Universe, *, decimal: str | None = None, can_say: bool = True
    ) -> None:
        self.readings = {
            attribute.name: ColumnReading(attribute, decimal, can_say=can_say)
            for attribute in universe.attributes
            if not attribute.in_no_row
        }
        self.rows = 0

    def take(self, columns: Columns, values: Columns) -> None:
        """Examines some rows: the values as the file holds them, and as the worker reads them."""
        self.rows += len(next(iter(values.values())))
        for name, reading in self.readings.items():
            reading.take(columns[name], values[name])

    def unread(self) -> list[tuple[Unread, str]]:
        """Returns the columns with values that cannot be read, each with what these count as."""
        return [
            (
                Unread(
                    name,
                    type(reading.attribute).__name__.lower(),
                    rows,
                    reading.understood + rows,
                    tuple(reading.strange.values.most_common(MOST_SHOWN)),
                ),
                reading.label_of("?"),
            )
            for name, reading in self.readings.items()
            if (rows := reading.strange.rows)
        ]

    def unlisted(self, dataset: str | None) -> dict[str, str]:
        """Returns what is said of values that many rows have and that are not listed, by their attributes.

        It names values, so it is for the holder of the rows and for no log.

        Args:
            dataset: The data set that lists values. None if its definition can still be changed.
        """
        said = ((name, one.unlisted(dataset)) for name, one in self.readings.items())
        return {name: words for name, words in said if words is not None}

    def proposals(self) -> list[Complaint]:
        """Returns what a new definition should say of columns whose numbers are all whole."""
        found = (reading.proposal() for reading in self.readings.values())
        return [proposal for proposal in found if proposal is not None]

    def complaints(self) -> list[Complaint]:
        """Returns the complaints about the columns, in the order of the attributes."""
        return [one for reading in self.readings.values() for one in reading.complaints()]


def surveyed(
    rows: RowFile, universe: Universe, also: Callable[[Columns, Columns], None] | None = None
) -> Survey:
    """Examines all rows of a file, and warns of lines that are left out.

    Args:
        rows: The file.
        universe: The universe in which the rows would be counted.
        also: What else looks at the rows: as the file holds them, and as the worker reads them.
    """
    survey = Survey(universe, decimal=rows.reading.decimal)
    with bar() as progress:
        task = progress.add_task(f"Reading {rows.path.name}", total=rows.path.stat().st_size)
        for columns, read_bytes in rows.columns():
            values = rows.values(columns)
            survey.take(columns, values)
            if also is not None:
                also(columns, values)
            progress.update(task, completed=read_bytes)
    warn_of_left_out(rows)
    return survey


def warn_of_left_out(rows: RowFile) -> None:
    """Says how many lines of a file hold no row and are left out."""
    if n := rows.left_out:
        warn(
            f"{'1 line that holds no row is' if n == 1 else f'{n:,} lines that hold no row are'} left out"
        )


def warn_of(complaints: Iterable[Complaint]) -> None:
    """Prints the warnings on stderr. It shows values only if stderr is a terminal and not a log."""
    for complaint in complaints:
        warn(complaint.words(with_examples=sys.stderr.isatty()))


def tell_unread(survey: Survey, but: Container[str] = ()) -> None:
    """Prints a line on stderr for each column with values that cannot be read.

    Args:
        survey: The rows.
        but: Columns of which more is said later.
    """
    for unread, label in survey.unread():
        if unread.attribute not in but:
            shown = ", ".join(f"{text!r:.30}" for text, _ in unread.most[:_EXAMPLES])
            such = f", such as {shown}" if sys.stderr.isatty() else ""
            click.echo(f"{unread} and count as {label}{such}", err=True)


def reading_table(survey: Survey) -> Table:
    """Builds a table of what each column holds, how often, and how that would be counted."""
    table = bare_table("attribute", "values", *numbers("rows"), "counted as")
    for name, reading in survey.readings.items():
        attribute = reading.attribute
        understood, strange = _WORDS[type(attribute)]
        if isinstance(attribute, Category) and attribute.finds:
            understood = "listed, or to be found"
        table.add_row(escape(name), understood, f"{reading.understood:,}", "itself")
        lines = [("empty", reading.empty, reading.label_of(None))]
        if isinstance(reading.attribute, Date):
            ends = zip(reading.ends, (0, len(reading.attribute.edges)), strict=True)
            lines[:0] = [
                (_shown("out of bounds", tally), tally.rows, reading.attribute.labels[cell])
                for tally, cell in ends
            ]
        more = ", ..." if len(reading.strange.values) > _EXAMPLES else ""
        said = _shown(f"[yellow]{strange}[/yellow]", reading.strange)
        lines.append((said + more, reading.strange.rows, reading.label_of("?")))
        for words, rows, label in lines:
            if rows:
                table.add_row("", words, f"{rows:,}", escape(label))
    return table


def _shown(words: str, tally: _Count) -> str:
    return f"{words}: {escape(', '.join(tally.examples))}"


def _is_zero(text: str) -> bool:
    try:
        return float(text) == 0.0
    except ValueError:
        return False
