"""What commands print: answers, quotes, tables and bars."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text

from stream_dp.display.answer_cells import AnswerCells
from stream_dp.display.answer_view import AnswerView, ViewRow, view_of
from stream_dp.display.answer_words import few_of, in_sql, sentences
from stream_dp.display.figure_text import share
from stream_dp.display.price_words import (
    also,
    left,
    part_of_price,
    path_in_words,
    price_of_all,
    quote_in_words,
)
from stream_dp.display.running_words import running_cells, until_when
from stream_dp.messages import (
    Answer,
    Definition,
    NoisyAnswer,
    QuotedAnswer,
    QuotedBundle,
    RefusedAnswer,
    RunningTable,
    RunningTick,
)
from stream_dp.web.page_data.query_words import condition_in_sql

NONE_YET = "no data sets yet; create one with: stream-dp dataset create DEFINITION.json"

_WIDTH = 1000
_BAR_WIDTH = 20
_MOST_CELLS = 6
"""The most cells of a running total in one line."""


def answer_line(answer: Answer) -> str:
    """One answer, refusal or quote, in one line."""
    if isinstance(answer, NoisyAnswer):
        said = "; ".join(sentences(AnswerCells(answer)))
        return f"{said} ({answer.difficulty}, {answer.path}), {left(answer.budget)}"
    if isinstance(answer, QuotedAnswer):
        return f"{quote_in_words(answer)} ({answer.difficulty}, {answer.path})"
    if isinstance(answer, QuotedBundle):
        return price_of_all(answer)
    assert isinstance(answer, RefusedAnswer), "an answer is one of these four"
    return f"refused: {answer.reason.message}"


def running_line(tick: RunningTick) -> str:
    """The running totals of one tick, in one line."""
    tiles = few_of([_tile(tick, tile) for tile in tick.tiles])
    return f"{tick.since} until {until_when(tick)}: {tick.rows:,} rows; {tiles}"


def _tile(tick: RunningTick, tile: RunningTable) -> str:
    cells = [f"{cell.name} {cell.said}".lstrip() for cell in running_cells(tick, tile)]
    where = "" if tile.where is None else f"{condition_in_sql(tile.where)}: "
    return f"{where}{few_of(cells, _MOST_CELLS, ',')}"


def answer_lines(
    answer: NoisyAnswer | QuotedAnswer, conditions: Sequence[str] = ()
) -> list[Text | Table]:
    """An answer or quote at length: the figures, how they came about and what they cost.

    Args:
        answer: The answer or quote.
        conditions: The conditions of a batch, as they were written.
    """
    if isinstance(answer, NoisyAnswer):
        return view_lines(view_of(answer, conditions))
    lines = [quote_in_words(answer), *also(answer.owner_pays)]
    if answer.note is not None:
        lines.append(f"note: {in_sql(answer.note)}")
    how = _difficulty(answer.difficulty, answer.path)
    return [Text(lines[0], "bold"), how, *map(Text, lines[1:])]


def view_lines(view: AnswerView) -> list[Text | Table]:
    """A view at length: a table or a sentence, how it came about, what it cost, and what to know."""
    what = _view_table(view) if view.is_table else Text("; ".join(view.sentences), "bold")
    lines: list[Text | Table] = [what, *map(Text, view.remarks)]
    if view.how is not None:
        lines.append(Text.assemble(_difficulty(*view.how), f"; {view.costs}"))
    elif view.costs:
        lines.append(Text(view.costs))
    return [*lines, *map(Text, filter(None, (view.use, *view.notes)))]


def colour_of(difficulty: str, path: str) -> str:
    """The colour of an easy answer, of a hard one, or of one that promises nothing."""
    return "red" if path == "unverified" else "yellow" if difficulty == "hard" else "green"


def _difficulty(difficulty: str, path: str) -> Text:
    """Easy or hard, and how an answer came about."""
    said = f"{difficulty}, {path}", colour_of(difficulty, path)
    return Text.assemble(said, f" ({path_in_words(path)})")


def _view_table(view: AnswerView) -> Table:
    """The rows of a view with a bar for each, to the scale of the longest."""
    heads = [
        escape(head) if unit in ("label", "bins") else Column(escape(head), justify="right")
        for head, unit in view.columns
    ]
    table = bare_table(*heads, *([] if view.main is None else [""]))
    most = max((abs(row.drawn or 0.0) for row in view.rows), default=0.0) or 1.0
    last = ""
    for row in view.rows:
        texts = [escape(text) for text in row.texts]
        if view.by_period and texts[0] == last:
            texts[0] = ""
        else:
            last = texts[0]
        table.add_row(*texts, *([] if view.main is None else [_bar(row, most)]))
    return table


def _bar(row: ViewRow, most: float) -> str:
    """A drawn part of the most, or why nothing is known."""
    if row.refused is not None:
        return f"refused: {escape(row.refused)}"
    return f"[cyan]{'█' * round(_BAR_WIDTH * abs(row.drawn or 0.0) / most)}[/cyan]"


def bundle_lines(bundle: QuotedBundle, names: Sequence[tuple[str, str]]) -> list[Text | Table]:
    """A quote for several queries at length: the part of each, and what all of them cost together.

    Args:
        bundle: The quote.
        names: The position of each query, and the query as it was written.
    """
    said, others = Text(quote_in_words(bundle), "bold"), map(Text, also(bundle.owner_pays))
    if len(bundle.queries) == 1 and bundle.queries[0].privacy_loss is not None:
        (query,) = bundle.queries
        note = [] if query.note is None else [Text(f"note: {in_sql(query.note)}")]
        return [said, Text(path_in_words(query.path)), *others, *note]
    table = bare_table("line", "query", "cost", "")
    for (position, written), query in zip(names, bundle.queries, strict=True):
        table.add_row(position, escape(written), *map(escape, part_of_price(query)))
    return [table, said, *others]


def spending_bar(spent: float, width: int = 20) -> str:
    """A bar of ``width`` characters in markup, which turns red as it fills up."""
    full = max(1, min(width, round(width * spent))) if spent else 0
    colour = "green" if spent < 0.5 else "yellow" if spent < 0.9 else "red"
    return f"[{colour}]{'━' * full}[/{colour}][dim]{'─' * (width - full)}[/dim]"


def output() -> Console:
    """Returns the console for results. In a file or a pipe it breaks no line."""
    console = Console(highlight=False)
    return console if console.is_terminal else Console(highlight=False, width=_WIDTH)


@contextmanager
def busy(what: str) -> Iterator[None]:
    """Says in a terminal what goes on."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield
        return
    with console.status(what):
        yield


def bare_table(*heads: str | Column) -> Table:
    """A table without lines. See ``numbers`` for columns that stand right."""
    return Table(*heads, box=None, header_style="bold", pad_edge=False)


def numbers(*heads: str) -> list[Column]:
    """The columns of a table that hold numbers, by their heads."""
    return [Column(head, justify="right") for head in heads]


def kinds_table(definition: Definition) -> Table:
    """The other kinds of queries that a data set answers, and what a look of each costs."""
    from stream_dp.profiles.line_units import prices_of

    prices = numbers("a look takes", "epsilon", "delta", "looks a phase")
    table = bare_table("asked", "setting", *prices)
    for name, price in prices_of(definition).items():
        spec = getattr(definition.kinds, name)
        others = spec.model_dump(exclude={"share"}, exclude_defaults=True)
        table.add_row(
            name,
            escape(", ".join([name, *(f"{key} {value}" for key, value in others.items())])),
            share(spec.share),
            f"{price.epsilon:.3g}",
            f"{price.delta:.2g}",
            f"{price.looks:,}",
        )
    return table


def rows_of_a_phase(definition: Definition) -> int:
    """Returns the number of waiting rows that opens a phase."""
    if definition.mechanism.papers is None:
        return definition.phase.min_rows
    # Only here: what builds mechanisms takes a second to load.
    from stream_dp.profiles import builder

    return builder.rows_of_a_phase(definition)
