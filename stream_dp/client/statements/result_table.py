"""What a SQL statement gives: named columns and rows, with the half width of each value next to it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from stream_dp.display.answer_view import AnswerView, ViewColumn, ViewRow, view_of
from stream_dp.display.figure_text import text
from stream_dp.display.figures import Figure, FigureUnit, Value
from stream_dp.display.phase_words import phases
from stream_dp.display.price_words import cost, least_left
from stream_dp.errors import StreamDPError
from stream_dp.messages import NoisyAnswer, RefusedAnswer

if TYPE_CHECKING:
    import pandas as pd

_FORMULA: Final = re.compile(r"(?![+-]([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\Z)[=+\-@\t\r]")
"""How a formula of a spreadsheet begins, unless all of it is a number with a sign."""
_QUOTED: Final = re.compile(r'[",\r\n]')

BAR: Final = "_error_bar"
"""The end of the name of a column that holds the half widths around another column."""

ENDS: Final = ("_low", "_high")
"""The ends of the names of two columns that hold the least and the largest value that another may have."""

UNRECORDED: Final = "_unrecorded_at_most"
"""The end of the name of a column with how many more rows another may count, as far as nothing tells."""

_AT_MOST: Final = ", unrecorded at most"
"""The same, as people read it."""

ColumnType: TypeAlias = Literal["text", "integer", "real", "boolean", "date", "timestamp"]


class Refusal(StreamDPError):
    """A query of a statement was refused, so that the statement has no table.

    Attributes:
        answer: The refusal. ``answer.reason`` says why.
    """

    code = "refused"

    def __init__(self, answer: RefusedAnswer) -> None:
        self.answer = answer
        self.reason = answer.reason
        super().__init__(answer.reason.message)


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table.

    Attributes:
        name: The alias, or the expression as the statement has it. A bar has the name of its column and
            ``_error_bar``.
        type: The type of the values. Each value may also be None.
        bar_of: The name of the column whose half widths this one holds. None in every other column.
        end_of: The name of the column of which this one holds the least or the largest values, wherever its
            bars cover. None in every other column.
        sure_of: The clause of which this column says what is sure: ``ORDER BY`` (its ranks). None in every
            other column.
    """

    name: str
    type: ColumnType
    bar_of: str | None = None
    end_of: str | None = None
    sure_of: Literal["ORDER BY"] | None = None


@dataclass(frozen=True, slots=True)
class ResultTable:
    """The table that a statement gives.

    Attributes:
        dataset: The data set that was asked.
        columns: The columns in the order of the SELECT list. Each column of published values is followed by
            its bars.
        rows: The rows, each with one value for each column.
        phases: The first and the last phase that the answers speak of. None where nothing was asked.
        notes: What the reader should know, each a sentence.
        answers: The answers that the values come from, in the order in which they were asked.
        answer: The one answer that says all that the table does. None where the table is worked out.
        ends: For each row, the least and the largest value of each column with bars, wherever these cover. A
            count is never below 0 there, and no share above 1. None where they are not known.
        least_cell: People read that a count is lower than this where it surely is. None to read the count.
        as_table: Whether people read the columns that the statement asks for, and not all of ``answer``.
    """

    dataset: str
    columns: tuple[Column, ...]
    rows: list[tuple[Value, ...]]
    phases: tuple[int, int] | None
    notes: tuple[str, ...] = ()
    answers: tuple[NoisyAnswer, ...] = ()
    answer: NoisyAnswer | None = None
    ends: list[tuple[tuple[Value, Value], ...]] = field(default_factory=list)
    least_cell: int | None = None
    as_table: bool = False

    @property
    def with_ends(self) -> ResultTable:
        """The same table with two more columns after each column of bars: the least and the largest values.

        Programs read this one: CSV, JSON, data frames and the driver have all its columns.
        """
        if len(self.ends) != len(self.rows):
            return self
        columns: list[Column] = []
        rows: list[list[Value]] = [[] for _ in self.rows]
        n_bars = 0
        for place, column in enumerate(self.columns):
            columns.append(column)
            for row, values in zip(rows, self.rows, strict=True):
                row.append(values[place])
            if (named := column.bar_of) is None:
                continue
            kind = self.columns[place - 1].type
            columns += [Column(f"{named}{end}", kind, end_of=named) for end in ENDS]
            for row, ends in zip(rows, self.ends, strict=True):
                row.extend(ends[n_bars])
            n_bars += 1
        return replace(self, columns=tuple(columns), rows=list(map(tuple, rows)), ends=[])

    @property
    def view(self) -> AnswerView:
        """What people see: the one answer if that says all, or else the columns that the statement asks for.

        Of an answer with very many cells people see some, whatever the statement calls its columns.
        """
        if self.answer is not None:
            found = view_of(self.answer)
            if not self.as_table or len(found.rows) < found.n_rows:
                return found
        shown = [c for c in self.columns if c.bar_of is None and c.end_of is None]
        barred = {column.bar_of for column in self.columns}
        units = [_unit(column, is_exact=column.name not in barred) for column in shown]
        return AnswerView(
            columns=tuple(
                ViewColumn(f"{c.name.removesuffix(UNRECORDED)}{_AT_MOST}", unit)
                if unit == "at_most"
                else ViewColumn(c.name, unit)
                for c, unit in zip(shown, units, strict=True)
            ),
            rows=tuple(
                ViewRow(tuple(text(f, u, self.least_cell) for f, u in zip(row, units, strict=True)))
                for row in self._figures()
            ),
            n_rows=len(self.rows),
            costs=self.costs,
            notes=tuple(f"note: {note}" for note in self.notes),
        )

    @property
    def costs(self) -> str:
        """How many queries it took, what they cost, and what is left. Empty where nothing was asked."""
        if self.phases is None:
            return ""
        n = len(self.answers)
        paid = f"{cost(self.cost)}, {least_left(self.answers)}; {phases(self.phases)}"
        return f"{n} quer{'y' if n == 1 else 'ies'}; {paid}"

    def _figures(self) -> Iterator[list[Figure]]:
        """Yields the figures of each row."""
        known = self.ends if len(self.ends) == len(self.rows) else [()] * len(self.rows)
        for row, pairs in zip(self.rows, known, strict=True):
            found, ends = list[Figure](), iter(pairs)
            for column, value in zip(self.columns, row, strict=True):
                if column.bar_of is not None:
                    low, high = next(ends, (None, None))
                    pair = None if low is None or high is None else (float(low), float(high))
                    found[-1] = Figure(
                        found[-1].value, None if value is None else float(value), pair
                    )
                elif column.end_of is None:
                    found.append(Figure(value))
            yield found

    @property
    def cost(self) -> float:
        """The largest share of any phase's budget that the answers took together, or a little more."""
        return sum(answer.privacy_loss.share for answer in self.answers)

    def column(self, name: str) -> list[Value]:
        """Returns the values of one column.

        Raises:
            KeyError: There is no column of that name.
        """
        for index, column in enumerate(self.columns):
            if column.name == name:
                return [row[index] for row in self.rows]
        raise KeyError(name)

    def records(self) -> list[dict[str, Value]]:
        """Returns each row as a mapping from the names of the columns."""
        names = [column.name for column in self.columns]
        return [dict(zip(names, row, strict=True)) for row in self.rows]

    def to_csv(self) -> str:
        """Returns the table as CSV with a line of names. A missing value is an empty field.

        A text that a spreadsheet would take for a formula has an apostrophe before it, see ``csv_text``.
        """
        table = self.with_ends
        return csv_text([[column.name for column in table.columns], *table.rows])

    def to_document(self) -> dict[str, Any]:
        """Returns the table as a JSON document, without the answers."""
        table = self.with_ends
        return {
            "dataset": self.dataset,
            "columns": [asdict(column) for column in table.columns],
            "rows": [list(row) for row in table.rows],
            "phases": None if self.phases is None else list(self.phases),
            "cost": self.cost,
            "notes": list(self.notes),
            "least_cell": self.least_cell,
        }

    def to_pandas(self) -> pd.DataFrame:
        """Returns the table as a data frame, in which a missing value is missing, and dates are dates.

        Raises:
            StreamDPError: pandas is not installed.
        """
        try:
            import pandas as pd
        except ImportError:
            raise StreamDPError("data frames need pandas: pip install pandas") from None
        table = self.with_ends
        return pd.DataFrame(
            {
                index: pd.array([row[index] for row in table.rows], dtype=_DTYPES[column.type])
                for index, column in enumerate(table.columns)
            }
        ).set_axis([column.name for column in table.columns], axis="columns")


def _unit(column: Column, *, is_exact: bool) -> FigureUnit:
    if is_exact:
        return "at_most" if column.name.endswith(UNRECORDED) else "label"
    return _UNITS.get(column.type, "label")


_UNITS: Final[dict[ColumnType, FigureUnit]] = {"integer": "rows", "real": "number", "text": "bins"}


_DTYPES: Final[dict[ColumnType, Any]] = {
    "text": "object",
    "date": "datetime64[s]",
    "timestamp": "datetime64[s]",
    "integer": "Int64",
    "real": "Float64",
    "boolean": "boolean",
}


def csv_text(rows: Iterable[Sequence[Value]]) -> str:
    """Returns rows as CSV. A missing value is an empty field, and a boolean is true or false.

    A spreadsheet runs a cell that begins as a formula, and a value of a data set, or an alias that someone
    else wrote, may be one. So such a text has an apostrophe before it, with which a spreadsheet shows a text
    as it is. Numbers stay numbers.
    """
    # The module csv leaves a carriage return without quotes, at which readers end the row.
    return "".join((",".join(map(_field, row)) or '""') + "\n" for row in rows)


def _field(value: Value) -> str:
    text = "" if value is None else str(value)
    if isinstance(value, bool):
        text = text.lower()
    elif isinstance(value, str) and _FORMULA.match(value):
        text = f"'{value}"
    return '"' + text.replace('"', '""') + '"' if _QUOTED.search(text) else text
