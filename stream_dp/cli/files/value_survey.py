"""Shows the holder of the rows how each value would be counted. Nothing leaves this process.

A column may be read in a way that nobody intended: a decimal comma, another language's yes and no, or a time
where the definition lists months. Each row still counts, but in a cell that carries no information. So the
command warns before it sends a column whose values mostly fall into such a cell.
"""

from __future__ import annotations

import dataclasses
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress
from typing import Any, Final

import click
import numpy as np
from rich.markup import escape
from rich.table import Table

from stream_dp.cli.files.row_files import Columns, pointed
from stream_dp.cli.text.reply_text import bare_table
from stream_dp.client.rows.unread_values import Unread
from stream_dp.core.rows.universe import (
    Attribute,
    Boolean,
    Category,
    Date,
    Number,
    Universe,
    number_text,
)

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
_EXAMPLES: Final = 3
_REMEMBERED: Final = 1_000
"""How many distinct values of a column are kept. The examples are the most common of these."""

_MOSTLY: Final = 0.5
"""The share of rows that may count as ``other`` or ``missing`` without a warning."""
_WRONGLY: Final = 0.1
"""The share of rows that may count as a value they do not have, because no cell fits better, unasked."""
_BIASED: Final = 0.01
"""The same without a warning."""
_NEW: Final = 0.01
"""The share of rows that may have one value that is not listed without a warning."""
_NOT_THERE: Final = frozenset(
    {
        "?",
        "-",
        "--",
        ".",
        "na",
        "n/a",
        "nan",
        "none",
        "null",
        "nil",
        "missing",
        "unknown",
        "-9",
        "-99",
        "-999",
    }
)
"""Texts by which files often say that a value is missing, in small letters."""
_OTHER_NOTATION: Final = 0.01
"""The share of rows that may hold a number in another notation. A correct setting would save these rows."""
_END: Final = 0.9
"""The share of numbers that may fall into an end bin if there are bins between the ends."""
_CLAMPED: Final = 0.05
"""The share of numbers that may lie beyond the ends between which values are kept."""
_OUTSIDE: Final = 0.05
"""The share of dates that may lie outside the bounds."""
_FEWEST: Final = 100
"""The fewest numbers from which a distribution can be judged."""

_GROUPED: Final = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+")
"""A number whose points may separate thousands."""


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


@dataclass
class _ColumnReading:
    """The values of one column, as the definition distinguishes them.

    Attributes:
        understood: The number of rows whose value has its own cell or a bin.
        empty: The rows without a value.
        strange: All other rows.
        other_notation: The strange rows with a number in another notation.
        ends: The rows with a number in the first bin and in the last bin, or with a date outside the bounds.
        outside: The rows with a number beyond the ends between which values are kept.
        grouped: The rows with a string whose point may mark decimals or separate thousands.
        decimals: Whether some string has a point that can only mark decimals.
        fractions: Whether some number is not whole. It is looked for only where the definition could say so.
    """

    understood: int = 0
    empty: int = 0
    strange: _Count = field(default_factory=_Count)
    other_notation: _Count = field(default_factory=_Count)
    ends: tuple[_Count, _Count] = field(default_factory=lambda: (_Count(), _Count()))
    outside: _Count = field(default_factory=_Count)
    grouped: _Count = field(default_factory=_Count)
    decimals: bool = False
    fractions: bool = False


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


class Survey:
    """Examines rows while they are read.

    Args:
        definition: The definition under which the rows would be counted.
        decimal: The decimal mark with which number strings were read. None if the user gave none.
        can_say: Whether the user could give one. Messages of a source have no such option.
    """

    def __init__(
        self, universe: Universe, *, decimal: str | None = None, can_say: bool = True
    ) -> None:
        self._decimal = decimal
        self._can_say = can_say
        self._universe = universe
        self._strict = [_strict(attribute) for attribute in universe.attributes]
        self.rows = 0
        self.readings: Mapping[str, _ColumnReading] = {
            name: _ColumnReading() for name in universe.names
        }

    def take(self, columns: Columns, values: Columns) -> None:
        """Examines some rows.

        Args:
            columns: The values as the file holds them.
            values: The values as the worker reads them.
        """
        self.rows += len(columns[self._universe.names[0]])
        for strict in self._strict:
            self._count(strict, columns[strict.name], values[strict.name])

    def _count(self, strict: Attribute, column: Sequence[Any], values: Sequence[Any]) -> None:
        reading = self.readings[strict.name]
        codes = strict.encode(values)
        column = list(strict.without_na(column))
        unknown = codes == strict.missing_cell
        if isinstance(strict, Category):
            unknown |= codes == strict.other_cell
        empty = np.fromiter((v is None or v != v for v in column), np.bool_, len(column))
        strange = unknown & ~empty
        reading.understood += int((~unknown).sum())
        reading.empty += int(empty.sum())
        if strange.any():
            reading.strange.add(compress(column, strange))
        if isinstance(strict, Number | Date) and strict.edges:
            for tally, code in zip(reading.ends, (0, len(strict.edges)), strict=True):
                tally.add(compress(column, (codes == code) & ~unknown))
        if isinstance(strict, Number):
            if strict.measure is not None:
                reading.outside.add(compress(column, strict.outside(values)))
            if strict.may_be_whole and not reading.fractions:
                reading.fractions = strict.has_fractions(values)
            if self._decimal is None:
                _spelling(reading, column, strange)

    def unread(self) -> list[tuple[Unread, str, tuple[str, ...]]]:
        """Returns the columns with values that cannot be read, as what they count, and at most three."""
        found = []
        for attribute in self._universe.attributes:
            reading = self.readings[attribute.name]
            if rows := reading.strange.rows:
                kind = type(attribute).__name__.lower()
                unread = Unread(attribute.name, kind, rows, reading.understood + rows)
                label = attribute.labels[_cell(attribute, "?")]
                found.append((unread, label, reading.strange.examples))
        return found

    def proposals(self) -> list[Complaint]:
        """Returns what a new definition should say of columns whose numbers are all whole."""
        fix = 'add "integer": true to the definition, or nobody can ask for <= '
        return [
            Complaint(
                attribute.name,
                "all of its numbers are whole",
                f"{fix}{number_text(edge - 1)}, which then means < {number_text(edge)}",
                asks=False,
            )
            for attribute in self._universe.attributes
            if isinstance(attribute, Number) and attribute.may_be_whole
            if not (reading := self.readings[attribute.name]).fractions
            and reading.understood >= _FEWEST
            for edge in attribute.edges[:1]
        ]

    def complaints(self) -> list[Complaint]:
        """Returns the complaints about the columns, in the order of the attributes."""
        return [
            complaint
            for attribute in self._universe.attributes
            for complaint in self._complaints(attribute, self.readings[attribute.name])
        ]

    def _complaints(self, attribute: Attribute, reading: _ColumnReading) -> Iterator[Complaint]:
        strange, empty = reading.strange, reading.empty
        name, words = attribute.name, _WORDS[type(attribute)][1]
        many_other = reading.other_notation.rows >= max(1, _OTHER_NOTATION * self.rows)
        mostly_other = many_other and 2 * reading.other_notation.rows >= strange.rows
        for cell in dict.fromkeys((_cell(attribute, "?"), _cell(attribute, None))):
            parts = []
            if cell == _cell(attribute, "?") and strange.rows:
                parts.append((strange.rows, words))
            if cell == _cell(attribute, None) and empty:
                parts.append((empty, "empty"))
            share = sum(rows for rows, _ in parts) / max(1, self.rows)
            is_strange = bool(parts) and parts[0][1] == words
            is_apart = _is_apart(attribute, cell)
            if not parts or share < (_MOSTLY if is_apart else _BIASED):
                if is_strange and isinstance(attribute, Category):
                    yield from self._new(attribute, strange, cell)
                continue
            if is_strange and mostly_other:
                continue  # reported below, together with the fix
            said = " and ".join(f"{rows / self.rows:.1%} are {what}" for rows, what in parts)
            yield Complaint(
                name,
                f"of {self.rows:,} rows {said} and count as {attribute.labels[cell]}",
                _fix(attribute, strange, apart=is_apart)
                if is_strange
                else _fix_empty(attribute, cell),
                strange.examples if is_strange else (),
                asks=is_apart or share >= _WRONGLY,
            )
        if isinstance(attribute, Date):
            yield from _beyond(attribute, reading)
        if isinstance(attribute, Number):
            if many_other:
                yield Complaint(
                    name,
                    f"of {self.rows:,} rows {reading.other_notation.rows / self.rows:.1%} have a number in "
                    f"another notation and count as {attribute.labels[_cell(attribute, '?')]}",
                    self._fix_spelling(reading),
                    reading.other_notation.examples,
                )
            elif (
                reading.grouped.rows >= max(1, _OTHER_NOTATION * self.rows) and not reading.decimals
            ):
                yield Complaint(
                    name,
                    "a point in its numbers may mark decimals or separate thousands",
                    "pass --decimal . or --decimal , to say which"
                    if self._can_say
                    else "it is read as a decimal point; write numbers without quotes",
                    reading.grouped.examples,
                )
            yield from self._ends(attribute, reading)
            yield from self._outside(attribute, reading)

    def _new(self, attribute: Category, strange: _Count, cell: int) -> Iterator[Complaint]:
        """Returns the complaint about one value that is not listed, and that many rows have."""
        ((value, rows),) = strange.values.most_common(1)
        if rows >= max(2.0, _NEW * self.rows):
            yield Complaint(
                attribute.name,
                f"of {self.rows:,} rows {rows / self.rows:.1%} have the same value, which is not listed and "
                f"counts as {attribute.labels[cell]}",
                _fix_new(value),
                strange.examples[:1],
                asks=False,
            )

    def _ends(self, attribute: Number, reading: _ColumnReading) -> Iterator[Complaint]:
        least = _END if len(attribute.edges) > 1 else 1.0
        # Zero is zero in each unit, and so it says nothing about the unit of the others.
        zeros = [
            sum(rows for text, rows in tally.values.items() if _is_zero(text))
            for tally in reading.ends
        ]
        others, but = reading.understood - sum(zeros), " other than 0" if any(zeros) else ""
        labels = attribute.labels[0], attribute.labels[len(attribute.edges)]
        for tally, zero, label in zip(reading.ends, zeros, labels, strict=True):
            rows = tally.rows - zero
            if others >= _FEWEST and rows >= least * others:
                yield Complaint(
                    attribute.name,
                    f"{rows / others:.1%} of its {others:,} numbers{but} are {label}, in an end bin",
                    "compare the unit of the numbers with the edges in the definition",
                    tally.examples,
                )

    def _outside(self, attribute: Number, reading: _ColumnReading) -> Iterator[Complaint]:
        measure, rows = attribute.measure, reading.outside.rows
        if measure is None or reading.understood < _FEWEST or rows < _CLAMPED * reading.understood:
            return
        low, high = number_text(measure.low), number_text(measure.high)
        yield Complaint(
            attribute.name,
            f"{rows / reading.understood:.1%} of its {reading.understood:,} numbers are not between {low} "
            f"and {high}, and add to sums as the nearer of the two",
            "compare the unit of the numbers with measure in the definition",
            reading.outside.examples,
        )

    def _fix_spelling(self, reading: _ColumnReading) -> str:
        if not self._can_say:
            return "send numbers, or strings with a decimal point and no thousands separator"
        texts = reading.other_notation.values
        marks = "." if reading.decimals else ",."
        able = [mark for mark in marks if all(pointed(text, mark) is not None for text in texts)]
        if len(able) == 1:
            return f"pass --decimal {able[0]}"
        return "pass --decimal , if commas mark decimals, or --decimal . if they separate thousands"


def _is_zero(text: str) -> bool:
    try:
        return float(text) == 0.0
    except ValueError:
        return False


def _beyond(attribute: Date, reading: _ColumnReading) -> Iterator[Complaint]:
    """Returns the complaint about dates that are counted without their period."""
    early, late = reading.ends
    rows = early.rows + late.rows
    if reading.understood < _FEWEST or rows < _OUTSIDE * reading.understood:
        return
    more = early if early.rows >= late.rows else late
    yield Complaint(
        attribute.name,
        f"{rows / reading.understood:.1%} of its {reading.understood:,} dates are {attribute.labels[0]} or "
        f"{attribute.labels[len(attribute.edges)]}, outside the bounds",
        "compare the dates with from and until in the definition",
        more.examples,
    )


def _fix(attribute: Attribute, strange: _Count, *, apart: bool) -> str:
    """Returns the advice for values that are not understood.

    Args:
        attribute: The attribute that they belong to.
        strange: The values.
        apart: Whether they count in a cell of their own.
    """
    texts = {text for text, _ in strange.values.most_common(_EXAMPLES)}
    if texts and all(text.strip().casefold() in _NOT_THERE for text in texts):
        return _NA
    fix = _fix_values(attribute, strange)
    if apart or fix != _FIXES[type(attribute)]:
        return fix
    return f'{fix}, or add "missing": true to the definition to count them apart'


_NA: Final = (
    'if this stands for a missing value, a definition with "missing": true and "na": [...] says so'
)


def _fix_new(value: str) -> str:
    if value.strip().casefold() in _NOT_THERE:
        return _NA
    return "list it in a definition, if it is a value of its own"


def _fix_values(attribute: Attribute, strange: _Count) -> str:
    if isinstance(attribute, Date):
        if attribute.epoch is None and _all_fit(_A_NUMBER, strange):
            return 'a definition with "epoch": "s", or "ms", reads numbers as dates'
        if attribute.by in ("hour", "hour_of_day") and _all_fit(_A_DAY, strange):
            return 'these are days without a time: a definition with "by": "day" reads them'
    elif _all_fit(_A_DAY, strange):
        return 'an attribute of "type": "date" reads dates'
    return _FIXES[type(attribute)]


_A_NUMBER: Final = Number("number", (0.0,), missing=True)
_A_DAY: Final = Date("day", "day", "2000-01-01", "2001-01-01", missing=True)


def _all_fit(sort: Date | Number, values: _Count) -> bool:
    """Returns whether all values that were kept are of a sort."""
    texts = list(values.values)
    return bool(texts) and bool((sort.encode(texts) != sort.missing_cell).all())


def _spelling(
    reading: _ColumnReading, column: Sequence[Any], strange: np.ndarray[Any, Any]
) -> None:
    """Examines how number strings are written if the user gave no decimal mark."""
    reading.other_notation.add(
        value
        for value in compress(column, strange)
        if isinstance(value, str) and any(pointed(value, mark) is not None for mark in ",.")
    )
    with_point = [v for v in compress(column, ~strange) if isinstance(v, str) and "." in v]
    grouped = [value for value in with_point if _GROUPED.fullmatch(value.strip())]
    reading.grouped.add(grouped)
    reading.decimals |= len(grouped) < len(with_point)


def _strict(attribute: Attribute) -> Attribute:
    """Returns the attribute with separate cells for values that it does not understand."""
    if isinstance(attribute, Category):
        return dataclasses.replace(attribute, missing=True, other=True)
    return dataclasses.replace(attribute, missing=True)


def _cell(attribute: Attribute, value: str | None) -> int:
    """Returns the cell of a value that is not understood, or of a missing value."""
    if isinstance(attribute, Category) and value is not None:
        value = "?" * (1 + max(map(len, attribute.values)))
    return int(attribute.encode([value])[0])


def _is_apart(attribute: Attribute, cell: int) -> bool:
    """Returns whether this cell counts no listed value and no bin."""
    other = attribute.other_cell if isinstance(attribute, Category) else None
    return cell in (attribute.missing_cell, other)


def _fix_empty(attribute: Attribute, cell: int) -> str:
    if _is_apart(attribute, cell):
        return "check that it is the right column"
    return 'a definition with "missing": true distinguishes them'


def warn_of(complaints: Iterable[Complaint]) -> None:
    """Prints the warnings on stderr. It shows values only if stderr is a terminal and not a log."""
    with_examples = sys.stderr.isatty()
    for complaint in complaints:
        click.echo(f"warning: {complaint.words(with_examples=with_examples)}", err=True)


def tell_unread(survey: Survey) -> None:
    """Prints a line on stderr for each column with values that cannot be read."""
    for unread, label, examples in survey.unread():
        shown = f", such as {', '.join(examples)}" if sys.stderr.isatty() else ""
        click.echo(f"{unread} and count as {label}{shown}", err=True)


def reading_table(universe: Universe, survey: Survey) -> Table:
    """Builds a table of what each column holds, how often, and how that would be counted."""
    table = bare_table("attribute", "values", numbers=("rows",))
    table.add_column("counted as")
    for attribute in universe.attributes:
        reading = survey.readings[attribute.name]
        understood, strange = _WORDS[type(attribute)]
        table.add_row(escape(attribute.name), understood, f"{reading.understood:,}", "itself")
        if isinstance(attribute, Date):
            for tally, cell in zip(reading.ends, (0, len(attribute.edges)), strict=True):
                if tally.rows:
                    label = attribute.labels[cell]
                    examples = escape(", ".join(tally.examples))
                    table.add_row(
                        "", f"out of bounds: {examples}", f"{tally.rows:,}", escape(label)
                    )
        if reading.empty:
            label = attribute.labels[_cell(attribute, None)]
            table.add_row("", "empty", f"{reading.empty:,}", escape(label))
        if reading.strange.rows:
            more = ", ..." if len(reading.strange.values) > _EXAMPLES else ""
            table.add_row(
                "",
                f"[yellow]{strange}[/yellow]: {escape(', '.join(reading.strange.examples))}{more}",
                f"{reading.strange.rows:,}",
                escape(attribute.labels[_cell(attribute, "?")]),
            )
    return table
