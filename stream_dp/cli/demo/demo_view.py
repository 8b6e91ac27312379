"""Draws what happened in the demo so far, for any size of terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.markup import escape
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from stream_dp.cli.text.reply_text import colour_of, spending_bar
from stream_dp.display.figure_text import percent
from stream_dp.messages import CellsAnswer, CountAnswer, NoisyAnswer

MONTHS: Final = (
    *("Jan", "Feb", "Mar", "Apr", "May", "Jun"),
    *("Jul", "Aug", "Sep", "Oct", "Nov", "Dec"),
)

_WIDE: Final = 120
_HEAD_LINES: Final = 8


@dataclass(frozen=True)
class DemoQuery:
    """A query with its answer and the exact count, which the demo has from its own file."""

    query: str
    answer: CountAnswer
    exact: int

    @property
    def off(self) -> float:
        """The distance of the answer from the truth, as a share of the rows asked."""
        return abs(self.answer.count - self.exact) / self.answer.n

    @property
    def outside(self) -> bool:
        """Whether the truth lies outside the answer's own error bar."""
        return self.answer.error_bar is not None and self.off > self.answer.error_bar


@dataclass(frozen=True)
class AskedTable:
    """A GROUP BY query with its answer and the exact count of each cell."""

    query: str
    answer: CellsAnswer
    labels: tuple[str, ...]
    exact: tuple[int, ...]

    @property
    def n(self) -> int:
        return self.answer.n

    @property
    def outside(self) -> int:
        """The number of cells whose truth lies outside their own error bar."""
        return sum(
            bar is not None and abs(count - exact) / self.n > bar
            for count, exact, bar in zip(
                self.answer.table.counts, self.exact, self.answer.table.error_bars, strict=True
            )
        )


@dataclass
class Story:
    """The events of the demo so far."""

    months: int = 12
    opened: int = 0
    rows: int = 0
    queries: list[DemoQuery] = field(default_factory=list)
    tables: list[AskedTable] = field(default_factory=list)
    notice: str = ""

    @property
    def spent(self) -> float:
        """The largest share of its lifetime budget that any phase has spent."""
        budgets = [asked.answer.budget for asked in self.queries]
        budgets += [asked.answer.budget for asked in self.tables]
        return max((budget.spent for budget in budgets), default=0.0)

    @property
    def worst(self) -> float:
        return max((asked.off for asked in self.queries), default=0.0)

    def count(self, difficulty: str) -> int:
        return sum(asked.answer.difficulty == difficulty for asked in self.queries)


def _phases(answer: NoisyAnswer) -> str:
    first, last = answer.window
    return MONTHS[first - 1] if first == last else f"{MONTHS[first - 1]}-{MONTHS[last - 1]}"


def _percent(share: float | None) -> str:
    return "-" if share is None else percent(share)


# ---------------------------------------------------------------- in a terminal


def view(story: Story, width: int, height: int) -> RenderableType:
    """Draws the whole picture in the size of the terminal."""
    room = max(6, height - _HEAD_LINES)
    latest = story.tables[-1] if story.tables else None
    body: RenderableType
    if width >= _WIDE:
        left = width - 4 - 44
        body = Table.grid(padding=(0, 2, 0, 0))
        body.add_column(width=left)
        body.add_column(width=42)
        body.add_row(
            query_table(story.queries[-room + 1 :], left - 2, path=True),
            _bars(latest, 42, room) if latest else "",
        )
    else:
        n_bars = min(room // 2, len(latest.labels) + 1) if latest else 0
        queries = query_table(story.queries[n_bars + 1 - room :], width - 4, path=False)
        body = Group(queries, _bars(latest, width - 4, n_bars)) if latest else queries
    return Panel(
        Group(_head(story, width), body, _legend(width), Text(story.notice, "cyan")),
        title="[b]stream_dp[/b]: private answers about all flights out of New York in 2013",
        border_style="blue",
        width=width,
    )


def _head(story: Story, width: int) -> RenderableType:
    months = Text("phases  ")
    for number, name in enumerate(MONTHS[: story.months], start=1):
        months.append(f"{name} ", "bold green" if number <= story.opened else "dim")
    easy, hard = story.count("easy"), story.count("hard")
    counts = Text.assemble(
        "asked   ",
        (f"{len(story.queries)}", "bold"),
        " queries: ",
        (f"{easy} easy", "green"),
        ", ",
        (f"{hard} hard", "yellow"),
        f"; {len(story.tables)} tables; ",
        (f"{story.rows:,}", "bold"),
        " rows in",
    )
    wide = width >= _WIDE
    bar = spending_bar(story.spent, width=20 if wide else 10)
    promised = " (epsilon 1)" if wide else ""
    budget = Text.from_markup(
        f"spent   {bar} [b]{100 * story.spent:.1f}%[/b] of any row's lifetime budget{promised}; "
        f"largest error {percent(story.worst)}"
    )
    return Group(months, counts, budget, Text())


def _legend(width: int) -> Text:
    whose = "computed here from the demo's own public file; no worker publishes it"
    return Text.assemble(
        ("█", "cyan"),
        (" answer  ", "dim"),
        ("▓░", "cyan"),
        (" error bar  ", "dim"),
        ("┃", "bold magenta"),
        (
            f" exact*: {whose}" if width >= _WIDE else " exact*: from the demo's own public file",
            "dim",
        ),
    )


def query_table(asked: Sequence[DemoQuery], width: int, *, path: bool) -> Table:
    """Draws one line for each query and its answer. A query that is too long is cut."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0), width=width)
    table.add_column("query", no_wrap=True, overflow="ellipsis", ratio=1)
    table.add_column("phases", no_wrap=True, width=7)
    table.add_column("answer", no_wrap=True, justify="right", width=7)
    table.add_column("± error", no_wrap=True, justify="right", width=7)
    table.add_column("exact*", no_wrap=True, justify="right", width=7)
    table.add_column("how", no_wrap=True, width=16 if path else 10)
    for line in asked:
        answer = line.answer
        how = f"{answer.difficulty}, {answer.path}" if path else answer.path
        table.add_row(
            escape(line.query),
            _phases(answer),
            f"[b]{_percent(answer.value)}[/b]",
            _percent(answer.error_bar),
            Text(_percent(line.exact / answer.n), "red" if line.outside else ""),
            Text(how, colour_of(answer.difficulty, answer.path)),
        )
    return table


def _bars(asked: AskedTable, width: int, height: int) -> RenderableType:
    """Draws the newest table as bars: the answer, its error bar, and the truth."""
    answer, found = asked.answer, asked.answer.table
    shares = [exact / asked.n for exact in asked.exact]
    most = max(*found.values, *shares) * 1.05 or 1.0
    order = sorted(range(len(shares)), key=lambda i: -found.values[i])
    title_lines = 1 if width > 60 else 2
    shown = sorted(order[: max(1, height - title_lines)])
    name_width = max(len(asked.labels[i]) for i in shown)
    length = width - name_width - 10
    lines = Text(no_wrap=True, overflow="crop")
    lines.append(asked.query, "bold")
    lines.append(f"{'  ' if title_lines == 1 else chr(10)}{_phases(answer)}  ")
    lines.append(f"{answer.difficulty}, {answer.path}", colour_of(answer.difficulty, answer.path))
    if len(shown) < len(order):
        lines.append(f"  (largest {len(shown)} of {len(order)})", "dim")
    for i in shown:
        lines.append(f"\n{asked.labels[i]:{name_width}} ")
        lines.append_text(
            _bar(found.values[i], found.error_bars[i], shares[i], length / most, length)
        )
        lines.append(f" {_percent(found.values[i]):>7}")
    return lines


def _bar(value: float, error: float | None, exact: float, scale: float, length: int) -> Text:
    text = Text()
    low, high = value - (error or 0.0), value + (error or 0.0)
    mark = min(length - 1, int(exact * scale))
    for column in range(length):
        share = (column + 0.5) / scale
        if column == mark:
            text.append("┃", "bold magenta")
        elif low <= share <= high:
            text.append("▓" if share <= value else "░", "cyan")
        else:
            text.append("█" if share < value else " ", "cyan")
    return text


# ---------------------------------------------------------------- without a terminal


def plain_line(line: DemoQuery) -> str:
    """Formats a query in one line of at most 120 characters."""
    answer = line.answer
    head = (
        f"{_phases(answer):7} {_percent(answer.value):>7} ± {_percent(answer.error_bar):>6}  "
        f"exact {_percent(line.exact / answer.n):>7}  {answer.difficulty}, {answer.path:10} "
    )
    return head + _cut(line.query, 120 - len(head))


def plain_table(asked: AskedTable) -> str:
    """Formats a table in one line of at most 120 characters."""
    answer = asked.answer
    head = (
        f"{_phases(answer):7} {len(asked.labels):3} cells, {asked.outside} outside their error bar     "
        f"{answer.difficulty}, {answer.path:10} "
    )
    return head + _cut(asked.query, 120 - len(head))


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[: length - 1] + "…"


# ---------------------------------------------------------------- as a picture


def picture(story: Story) -> str:
    """Draws the last picture as SVG, without an external font."""
    console = Console(
        record=True, width=132, file=io.StringIO(), force_terminal=True, highlight=False
    )
    console.print(view(story, 132, 33))
    return console.export_svg(title="stream-dp demo", code_format=_SVG, unique_id="demo")


_SVG: Final = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; font-variant-east-asian: full-width; }}
.{unique_id}-title {{ font-size: 18px; font-weight: bold; font-family: sans-serif; }}
{styles}
</style>
<defs><clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" /></clipPath>{lines}</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""
