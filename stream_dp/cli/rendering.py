"""Replies in words, the same wherever they are printed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from stream_dp.messages import Answer, Definition, Event, Rejected

__all__ = [
    "NONE_YET",
    "answer_line",
    "answer_lines",
    "answer_table",
    "bare_table",
    "busy",
    "difficulty",
    "event_line",
    "kinds_table",
    "output",
    "rejection_line",
    "rows_of_a_phase",
    "share",
    "spending_bar",
]

NONE_YET = "no data sets yet; create one with: stream-dp dataset create DEFINITION.json"

_WIDTH = 1000

_PATHS = {
    "repeat": "asked before",
    "certified": "from what was published",
    "bounded": "bounded by what was published",
    "gated": "a noisy test let it pass",
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
    return f"{_said(answer, {})} ({how}), {_left(answer)}"


def answer_lines(
    answer: Answer, spelt: Mapping[str, Any], texts: Sequence[str] = ()
) -> list[Text | Table]:
    """An answer or quote at length: the figures, how they came about and what they cost.

    Args:
        spelt: The query's message.
        texts: Its conditions as they were written.
    """
    how = Text.assemble(difficulty(answer), f" ({_PATHS.get(answer.path or '', 'a newer path')})")
    if answer.status == "quoted":
        lines: list[Text | Table] = [Text(_price(answer), "bold"), how]
    else:
        lines = [*_pictures(answer, spelt, texts)]
        cost = answer.privacy_loss.share if answer.privacy_loss else 0.0
        price = f"cost {share(cost)} of a phase's budget" if cost else "free"
        lines.append(Text.assemble(how, f"; {price}, {_left(answer)}; {_phases(answer)}"))
    if answer.note:
        lines.append(Text(f"note: {answer.note}"))
    return lines


def _pictures(
    answer: Answer, spelt: Mapping[str, Any], texts: Sequence[str]
) -> Iterator[Text | Table]:
    """The answer itself: a table where it is one, else a line."""
    if answer.table is not None:
        yield answer_table(answer)
        if spelt.get("kind") == "threshold":
            yield Text("each line counts all rows up to and with its values")
    elif answer.batch is not None:
        yield _batch_table(answer, texts)
    else:
        yield Text(_said(answer, spelt), "bold")


def _said(answer: Answer, spelt: Mapping[str, Any]) -> str:
    """What was answered, in one line; says what of where the query is known."""
    kind, attribute = spelt.get("kind"), spelt.get("attribute")
    bar = f" ± {100 * answer.error_bar:.2f}%" if answer.error_bar else ""
    if answer.table is not None:
        return f"{len(answer.table.values)} cells"
    if answer.batch is not None:
        return f"{len(answer.batch.values)} shares, all of them{_all_bar(answer)}"
    if answer.vector is not None:
        agreement = f"agree with {attribute or 'a private bit'} by {answer.vector.agreement:.3f}"
        return f"signs of {answer.n:,} rows that {agreement}; --json prints them"
    if answer.no_answer:
        what = f"the {kind} of {attribute}" if spelt else "it"
        return (
            f"no answer: a few rows could change {what}, so naming it could tell on them. Asking again is "
            "free, and says the same"
        )
    if answer.side is not None:
        return _side(answer, spelt) + (f" ({bar.strip()})" if bar else "")
    if answer.found is not None:
        rank = f" (rank{bar})" if bar else ""
        return f"{_subject(spelt)}{answer.found.label}{rank}"
    if answer.total is not None:
        return _sum(answer)
    if answer.value is not None:
        return _figures(answer)
    return "an answer that this release cannot show; --json prints it"


def _subject(spelt: Mapping[str, Any]) -> str:
    """Of which value an answer speaks."""
    kind, attribute = spelt.get("kind"), spelt.get("attribute")
    if kind == "quantile":
        return f"the {100 * spelt['rank']:g}% quantile of {attribute} lies in "
    if kind == "median":
        return f"the median of {attribute} lies in "
    return f"the most frequent {attribute} is " if kind == "mode" else ""


def _side(answer: Answer, spelt: Mapping[str, Any]) -> str:
    """Where a count lies, or a point."""
    kind, side = spelt.get("kind"), answer.side
    if kind == "between":
        low, high = (f"{100 * spelt[end]:g}%" for end in ("low", "high"))
        ends = {"below": f"below {low}", "above": f"above {high}"}
        return f"{ends.get(str(side), f'between {low} and {high}')} of the rows"
    if kind != "interior_point":
        return str(side)
    if answer.found is not None:
        return f"{side}: rows are on both sides of the end of {answer.found.label}"
    return f"{side}: {'not all rows' if side == 'below' else 'some rows'} are in this range"


def _sum(answer: Answer) -> str:
    mean = "not known" if answer.mean is None else _number(answer.mean, answer.mean_bar)
    total = _number(answer.total or 0.0, answer.total_bar)
    said = f"sum {total}; mean {mean}; rows with a value: {_figures(answer)}"
    if answer.rows is None:
        return said
    return (
        f"{said}; all rows of the condition: {_rows(answer.rows, answer.rows_bar, answer.n or 0)}"
    )


def _rows(rows: int, bar: float | None, n: int) -> str:
    """A count of rows and its half width, as a share of so many and by itself."""
    share = 100 / n if n else 0.0
    if bar is None:
        return f"{rows * share:.2f}%, no error bar known: {rows:,} of {n:,} rows"
    return f"{rows * share:.2f}% ± {bar * share:.2f}%: {rows:,} ± {round(bar):,} of {n:,} rows"


def _number(value: float, bar: float | None) -> str:
    """A number and its half width, with as many decimals as that leaves sense to."""
    if bar is None:
        return f"{value:,.6g}, no error bar known"
    decimals = max(0, 1 - math.floor(math.log10(bar))) if bar else 2
    return f"{value:,.{decimals}f} ± {bar:,.{decimals}f}"


def _figures(answer: Answer) -> str:
    assert answer.value is not None
    if answer.error_bar is None:
        share, count = ", no error bar known", ""
    else:
        share = f" ± {100 * answer.error_bar:.2f}%"
        count = f" ± {round(answer.error_bar * (answer.n or 0)):,}"
    return f"{100 * answer.value:.2f}%{share}: {answer.count:,}{count} of {answer.n:,} rows"


def _all_bar(answer: Answer) -> str:
    bar = answer.error_bar_simultaneous
    return ", no error bar known" if bar is None else f" ± {100 * bar:.2f}%"


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
    sums = [
        (name, values, half_widths)
        for name, values, half_widths in (
            ("sum", found.totals, found.total_bars),
            ("mean", found.means, found.mean_bars),
        )
        if values is not None and half_widths is not None
    ]
    counted = found.rows is not None and found.rows_bars is not None
    heads = [*(name for name, _, _ in sums), *(["all rows"] if counted else [])]
    table = _shares_table(
        *found.attributes, sums=heads, rows="rows with a value" if sums else "rows"
    )
    most = max(found.values, default=0.0) or 1.0
    for row, labels in enumerate(itertools.product(*found.labels)):
        error = found.error_bars[row]
        cells = [
            "-" if values[row] is None else _number(values[row] or 0.0, half_widths[row])
            for _, values, half_widths in sums
        ]
        if found.rows is not None and found.rows_bars is not None:
            bar = found.rows_bars[row]
            width = "no error bar known" if bar is None else f"± {round(bar):,}"
            cells.append(f"{found.rows[row]:,} {width}")
        table.add_row(
            *(escape(label) for label in labels),
            *_share_and_rows(found.values[row], error, found.counts[row]),
            *cells,
            _bar(found.values[row] / most, bars),
        )
    return table


def _batch_table(answer: Answer, texts: Sequence[str], *, bars: int = 20) -> Table:
    """The answers to a batch, a line each, with one error for all."""
    found = answer.batch
    assert found is not None, "a batch answer holds its batch"
    table = _shares_table("condition")
    for text, value, count in zip(texts, found.values, found.counts, strict=True):
        figures = _share_and_rows(value, answer.error_bar_simultaneous, count)
        table.add_row(escape(text), *figures, _bar(value, bars))
    return table


def _shares_table(*names: str, sums: Sequence[str] = (), rows: str = "rows") -> Table:
    table = bare_table(*names, numbers=("share", "± error", rows, *sums))
    table.add_column("")
    return table


def bare_table(*names: str, numbers: Sequence[str] = ()) -> Table:
    """A table without lines: its columns by their heads, of which ``numbers`` come last and stand right."""
    table = Table(*names, box=None, header_style="bold", pad_edge=False)
    for name in numbers:
        table.add_column(name, justify="right")
    return table


def _share_and_rows(value: float, error: float | None, count: int) -> tuple[str, str, str]:
    bar = "-" if error is None else f"{100 * error:.2f}%"
    return f"{100 * value:.2f}%", bar, f"{count:,}"


def _bar(part: float, width: int) -> str:
    return f"[cyan]{'█' * round(width * part)}[/cyan]"


def kinds_table(definition: Definition) -> Table:
    """The other kinds of queries that a data set answers, and what a look of each costs."""
    from stream_dp.profiles.kinds import ANSWERERS
    from stream_dp.profiles.lines import prices_of

    table = bare_table(
        "asked", "setting", numbers=("a look takes", "epsilon", "delta", "looks a phase")
    )
    for name, price in prices_of(definition).items():
        spec = getattr(definition.kinds, name)
        others = spec.model_dump(exclude={"share"}, exclude_defaults=True)
        table.add_row(
            ", ".join(ANSWERERS[name].kinds),
            escape(", ".join([name, *(f"{key} {value}" for key, value in others.items())])),
            share(spec.share),
            f"{price.epsilon:.3g}",
            f"{price.delta:.2g}",
            f"{price.looks:,}",
        )
    return table


def rows_of_a_phase(definition: Definition) -> int:
    """How many waiting rows open a phase."""
    if definition.mechanism.papers is None:
        return definition.phase.min_rows
    # Only here: what builds mechanisms takes a second to load.
    from stream_dp.profiles import building

    return building.rows_of_a_phase(definition)


_EVENTS = {
    "dataset_accepted": "is defined",
    "dataset_retired": "is retired: its rows are erased",
    "batch_accepted": "batch taken in",
    "batch_refused": "batch refused",
    "phase_opened": "phase opened",
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
    elif event.note is not None:
        words += f"; {event.note}"
    return f"{words}: {event.reason.message}" if event.reason is not None else words


def rejection_line(rejected: Rejected) -> str:
    """One rejection in words, with the place of the record."""
    place = f"{rejected.topic}[{rejected.partition}]@{rejected.offset}"
    return f"rejected {place}: {rejected.reason.message}"
