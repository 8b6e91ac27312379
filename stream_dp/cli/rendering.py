"""Replies in words, the same wherever they are printed."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from stream_dp.messages import Answer, Definition, Event, PhasedSpec, Rejected

if TYPE_CHECKING:
    from stream_dp.core.doubling import Doubling
    from stream_dp.core.phased import Phased

__all__ = [
    "answer_line",
    "answer_lines",
    "answer_table",
    "busy",
    "difficulty",
    "event_line",
    "output",
    "papers_mechanism",
    "rejection_line",
    "rows_of_a_phase",
    "share",
    "spending_bar",
]

_WIDTH = 1000

_PATHS = {
    "repeat": "asked before",
    "certified": "from what was published",
    "bounded": "bounded by what was published",
    "gated": "the hypotheses knew it",
    "measured": "the rows were looked at",
    "unverified": "too little budget left to look; may be further off",
}


def difficulty(answer: Answer) -> Text:
    """Easy or hard, and how the answer came about."""
    colour = "yellow" if answer.difficulty == "hard" else "green"
    return Text(
        f"{answer.difficulty}, {answer.path}", "red" if answer.path == "unverified" else colour
    )


def answer_line(answer: Answer) -> str:
    """One answer, refusal or quote in one line."""
    if answer.status == "refused":
        return f"refused: {answer.reason.message if answer.reason else 'without a reason'}"
    how = f"{answer.difficulty}, {answer.path}"
    if answer.status == "quoted":
        return f"{_price(answer)} ({how})"
    if answer.table is not None:
        return f"{len(answer.table.values)} cells ({how}), {_left(answer)}"
    return f"{_figures(answer)} ({how}), {_left(answer)}"


def answer_lines(answer: Answer) -> list[Text]:
    """An answer or quote at length: the figures, how they came about and what they cost."""
    how = Text.assemble(difficulty(answer), f" ({_PATHS.get(answer.path or '', 'a newer path')})")
    if answer.status == "quoted":
        lines = [Text(_price(answer), "bold"), how]
    else:
        lines = [] if answer.table is not None else [Text(_figures(answer), "bold")]
        cost = answer.privacy_loss.share if answer.privacy_loss else 0.0
        price = f"cost {share(cost)} of a phase's budget" if cost else "free"
        lines.append(Text.assemble(how, f"; {price}, {_left(answer)}; {_phases(answer)}"))
    if answer.note:
        lines.append(Text(f"note: {answer.note}"))
    return lines


def _figures(answer: Answer) -> str:
    assert answer.value is not None
    assert answer.n is not None
    if answer.error_bar is None:
        share, count = ", no error bar known", ""
    else:
        share = f" ± {100 * answer.error_bar:.2f}%"
        count = f" ± {round(answer.error_bar * answer.n):,}"
    return f"{100 * answer.value:.2f}%{share}: {answer.count:,}{count} of {answer.n:,} rows"


def _price(answer: Answer) -> str:
    cost = answer.privacy_loss.share if answer.privacy_loss else 0.0
    price = f"would cost {share(cost)} of a phase's budget" if cost else "would be free"
    return f"{price}; {_left(answer)}"


def _left(answer: Answer) -> str:
    return f"{share(answer.budget.left)} of the budget left" if answer.budget else ""


def share(part: float) -> str:
    """A percentage that never shows a cost as nothing."""
    return f"{100 * part:.2f}%" if part >= 5e-5 or part == 0 else "less than 0.01%"


def spending_bar(spent: float, width: int = 20) -> str:
    """A bar of so many characters, in markup; redder as it fills up."""
    full = max(1, min(width, round(width * spent))) if spent else 0
    colour = "green" if spent < 0.5 else "yellow" if spent < 0.9 else "red"
    return f"[{colour}]{'━' * full}[/{colour}][dim]{'─' * (width - full)}[/dim]"


def output() -> Console:
    """Where results go; in a file or a pipe no line is broken."""
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


def _phases(answer: Answer) -> str:
    if answer.window is None:
        return ""
    first, last = answer.window
    return f"phase {first}" if first == last else f"phases {first} to {last}"


def answer_table(answer: Answer, *, bars: int = 20) -> Table:
    """A GROUP BY answer as a table for the terminal, with bars of that many characters."""
    found = answer.table
    assert found is not None, "a table answer holds its table"
    table = Table(*found.attributes, box=None, header_style="bold", pad_edge=False)
    for name in ("share", "± error", "rows"):
        table.add_column(name, justify="right")
    table.add_column("")
    most = max(found.values, default=0.0) or 1.0
    for labels, value, count, bar in zip(
        itertools.product(*found.labels), found.values, found.counts, found.error_bars, strict=True
    ):
        error = "-" if bar is None else f"{100 * bar:.2f}%"
        length = round(bars * value / most)
        table.add_row(
            *(escape(label) for label in labels),
            f"{100 * value:.2f}%",
            error,
            f"{count:,}",
            f"[cyan]{'█' * length}[/cyan]",
        )
    return table


def rows_of_a_phase(definition: Definition) -> int:
    """How many waiting rows open a phase."""
    mechanism = papers_mechanism(definition)
    least = 1 if mechanism is None else mechanism.min_rows
    return max(definition.phase.min_rows, least)


def papers_mechanism(definition: Definition) -> Phased | Doubling | None:
    """The mechanism before its first phase, of a data set under one of the papers' profiles."""
    if not isinstance(definition.mechanism, PhasedSpec):
        return None
    from stream_dp.core.doubling import Doubling
    from stream_dp.core.phased import Phased
    from stream_dp.pipeline.building import build

    _, mechanism = build(definition)
    assert isinstance(mechanism, Phased | Doubling)
    return mechanism


_EVENTS = {
    "dataset_accepted": "is defined",
    "dataset_refused": "definition refused",
    "dataset_retired": "is retired: its rows are erased",
    "batch_accepted": "batch taken in",
    "batch_refused": "batch refused",
    "phase_opened": "phase opened",
    "budget_low": "budget is low",
    "quarantined": "is in quarantine",
}


def event_line(event: Event) -> str:
    """One event in words."""
    words = _EVENTS.get(event.event, event.event)
    if event.event == "phase_opened":
        words = f"phase {event.phase} opened with {event.rows:,} rows"
    elif event.event == "batch_accepted":
        words = f"{event.rows:,} rows taken in (batch {event.batch_id}), {event.waiting:,} wait"
    elif event.batch_id is not None:
        words += f" {event.batch_id}"
    return f"{words}: {event.reason.message}" if event.reason is not None else words


def rejection_line(rejected: Rejected) -> str:
    """One rejection in words, with the place of the record."""
    place = f"{rejected.topic}[{rejected.partition}]@{rejected.offset}"
    return f"rejected {place}: {rejected.reason.message}"
