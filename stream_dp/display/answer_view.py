"""The one view of an answer: rows of labels with figures in words, and all else that people read.

Commands and pages draw it, and know nothing of the kinds of answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from stream_dp.display.answer_cells import AnswerCells
from stream_dp.display.answer_words import (
    in_sql,
    remarks,
    sentences,
    short,
    sureness_in_words,
    text_of,
    use_in_words,
    use_of_all_in_words,
)
from stream_dp.display.figures import Figure, FigureUnit
from stream_dp.display.phase_words import period, phases_and_time
from stream_dp.display.price_words import also, cost, left
from stream_dp.messages import NoisyAnswer, RefusedAnswer, SeriesAnswer

_LABEL: Final[FigureUnit] = "label"
_MOST_ROWS: Final = 5_000
"""The most rows of a document for a page."""


class ViewColumn(NamedTuple):
    """One column of a view.

    Attributes:
        head: What stands above it.
        unit: What it counts or measures. Labels of rows are exact.
    """

    head: str
    unit: FigureUnit


class ViewRow(NamedTuple):
    """One row of a view.

    Attributes:
        texts: What people read in each column.
        main: The figure that is drawn. None where none is.
        use: Whether a decision can rest on it: ``yes``, ``rough`` or ``no``. None where nobody says.
        refused: Why there are no figures. None where there are.
    """

    texts: tuple[str, ...]
    main: Figure | None = None
    use: str | None = None
    refused: str | None = None

    @property
    def drawn(self) -> float | None:
        """The number that is drawn. A figure without a bar is a guess, and not drawn."""
        return None if self.main is None or self.main.bar is None else self.main.number


@dataclass(frozen=True)
class AnswerView:
    """What people see of an answer, or of the table of a statement.

    Attributes:
        columns: The columns, those of labels first unless a statement has another order.
        rows: The rows. An answer without groups has one.
        n_rows: How many rows there are, of which these are shown.
        figure: Its main figure in a few words. Empty for the table of a statement.
        sentences: The answer in one line, cut where it may be broken. Empty for the table of a statement.
        remarks: What to know of all rows: which rows they count, and how many more there may be.
        main: The column that is drawn. None where nothing is.
        how: How difficult it was, and how it came about. None for the table of a statement.
        costs: What it cost, what is left, and which phases it is about.
        use: Whether a decision can rest on it, and what more would take.
        sure: How sure the bars are.
        notes: Anything else to know.
        is_table: Whether people read it as a table, or else as a sentence.
        by_period: Whether each row is about the period that its first label names.
    """

    columns: tuple[ViewColumn, ...]
    rows: tuple[ViewRow, ...]
    n_rows: int
    costs: str
    notes: tuple[str, ...]
    figure: str = ""
    sentences: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    main: ViewColumn | None = None
    how: tuple[str, str] | None = None
    use: str | None = None
    sure: str | None = None
    is_table: bool = True
    by_period: bool = False

    def to_document(self) -> dict[str, Any]:
        """Returns the view as a JSON document, which the scripts of the pages draw."""
        rows = [
            {
                "texts": row.texts,
                "value": row.drawn,
                "bar": row.main and row.main.bar,
                "use": row.use,
                "refused": row.refused,
            }
            for row in self.rows[:_MOST_ROWS]
        ]
        others = [
            each.removeprefix(f"{self.figure}: ") for each in self.sentences if each != self.figure
        ]
        return {**vars(self), "rows": rows, "sentences": others}


def view_of(answer: NoisyAnswer, conditions: Sequence[str] = ()) -> AnswerView:
    """Returns the view of an answer.

    Args:
        answer: The answer.
        conditions: The conditions of a batch, as they were written.
    """
    cells = AnswerCells(answer, conditions)
    series = answer.parts if isinstance(answer, SeriesAnswer) else ()
    parts = [part.answer for part in series if isinstance(part.answer, NoisyAnswer)]
    of_parts = [AnswerCells(part) for part in parts]
    shown = max(of_parts or [cells], key=lambda part: len(part.quantities))
    columns = [ViewColumn(name, _LABEL) for name in shown.names]
    columns += [ViewColumn(each.head, each.unit) for each in shown.quantities if each.head]
    if isinstance(answer, SeriesAnswer):
        columns = [ViewColumn(answer.series, _LABEL), *columns]
        rows = list(_rows_of_series(answer, iter(of_parts), shown, len(columns)))
        use = use_of_all_in_words(parts, is_series=True)
    else:
        rows, use = list(_rows(cells, cells.to_see, shown)), use_in_words(answer)
    notes = [answer.note, *(part.note for part in parts)]
    window = phases_and_time(answer.window, answer.since, answer.until)
    return AnswerView(
        columns=tuple(columns),
        rows=tuple(rows),
        n_rows=len(rows) if series else len(cells.labels),
        costs=f"{cost(answer.privacy_loss.share)}, {left(answer.budget)}; {window}",
        notes=(*also(answer.owner_pays), *_noted(notes)),
        figure=short(cells),
        sentences=tuple(sentences(cells)),
        remarks=tuple(remarks(cells)),
        main=next(
            (ViewColumn(q.head, q.unit) for q in shown.quantities if q.name == shown.main), None
        ),
        how=(answer.difficulty, answer.path),
        use=use,
        sure=sureness_in_words(answer),
        is_table=bool(cells.names) or bool(series),
        by_period=bool(series),
    )


def _noted(notes: Iterable[str | None]) -> list[str]:
    return [f"note: {in_sql(note)}" for note in dict.fromkeys(notes) if note]


def _rows(
    cells: AnswerCells, some: Iterable[int], shown: AnswerCells, *before: str
) -> Iterator[ViewRow]:
    """The rows of some cells with the figures that are shown, after the labels that all of them have."""
    names = [quantity.name for quantity in shown.quantities if quantity.head]
    for cell in some:
        labels = (*before, *cells.labels[cell])
        texts = (text_of(cells, name, cell) for name in names)
        main = cells.figure(cells.main, cell) if cells.main and not cells.is_few(cell) else None
        yield ViewRow((*labels, *texts), main, cells.answer.useful)


def _rows_of_series(
    answer: SeriesAnswer, parts: Iterator[AnswerCells], shown: AnswerCells, n_columns: int
) -> Iterator[ViewRow]:
    for part in answer.parts:
        when = period(part.window, part.since, part.until)
        if isinstance(part.answer, RefusedAnswer):
            blank = ("",) * (n_columns - 1)
            yield ViewRow((when, *blank), refused=part.answer.reason.message)
            continue
        cells = next(parts)
        yield from _rows(cells, range(len(cells.labels)), shown, when)
