"""``stream-dp demo``: twelve months of real flights, asked while they arrive."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import click
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from stream_dp.cli.progress import StartProgress
from stream_dp.cli.up import await_worker, worker_child
from stream_dp.client import Client
from stream_dp.client.topics import create_topics
from stream_dp.embedded import ports
from stream_dp.embedded.child import Child
from stream_dp.embedded.folders import cache_folder
from stream_dp.embedded.stack import Servers
from stream_dp.errors import StreamDPError
from stream_dp.messages import Answer, Topics
from stream_dp.samples import FLIGHTS_DEFINITION, Flights, flights

__all__ = ["command"]

_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_KILL_AFTER = 6
_STANDING = (
    "arr_delay >= 30",
    "arr_delay IS NULL",
    "carrier = 'UA'",
    "origin = 'JFK' AND arr_delay >= 60",
    "carrier IN ('AA', 'DL', 'UA') AND hour >= 16",
    "NOT (origin = 'LGA' OR distance < 502)",
)
_TABLES = (
    "SELECT carrier, COUNT(*) FROM flights GROUP BY carrier",
    "SELECT origin, hour, COUNT(*) FROM flights GROUP BY origin, hour",
    "SELECT origin, COUNT(*) FROM flights WHERE arr_delay >= 30 GROUP BY origin",
)
_SHOWN = 14


@click.command()
@click.option("--fast", is_flag=True, help="Three months instead of twelve.")
def command(fast: bool) -> None:  # noqa: FBT001 - click
    """Stream a year of flight records, ask some 200 questions, kill the worker once, and check.

    The exact answers beside the noisy ones are computed here, from the demo's own public file; the
    worker never publishes them.
    """
    console = Console()
    started = time.monotonic()
    with ExitStack() as stack:
        state = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="stream-dp-demo-")))
        with StartProgress(console) as progress:
            servers = Servers(state / "servers", cache_folder(os.environ), progress=progress)
            addresses = stack.enter_context(servers)
            progress.step("Starting the worker")
            create_topics(addresses.bootstrap_servers, Topics())
            web_port = ports.choose("the worker's pages", None)
            worker = stack.enter_context(worker_child(addresses, state, web_port))
            progress.step("Reading 336,776 flights")
            sample = flights()
            exact = _Exact(sample)
            await_worker(worker, web_port)
        client = stack.enter_context(Client(addresses.bootstrap_servers, analyst="demo"))
        screen = stack.enter_context(_Screen(console))
        _Demo(client, worker, sample, exact, screen).run(3 if fast else 12)
    screen.summary(time.monotonic() - started)


class _Exact:
    """Exact answers from the demo's own copy of the public file, by SQLite: a second computation."""

    def __init__(self, sample: Flights) -> None:
        self._database = sqlite3.connect(":memory:")
        names = list(sample.columns)
        self._database.execute(f"CREATE TABLE flights (month, {', '.join(names)})")
        self._database.executemany(
            f"INSERT INTO flights VALUES (?{', ?' * len(names)})",  # noqa: S608 - our own names
            zip(sample.month.tolist(), *sample.columns.values(), strict=True),
        )

    def count(self, condition: str, window: tuple[int, int]) -> int:
        (count,) = self._database.execute(
            f"SELECT COUNT(*) FROM flights WHERE month BETWEEN ? AND ? AND ({condition})",  # noqa: S608
            window,
        ).fetchone()
        return int(count)


@dataclass(frozen=True)
class _Line:
    """One question as the screen shows it."""

    question: str
    window: str
    answer: Answer
    exact: int | None

    @property
    def off(self) -> float:
        """How far the answer is from the truth, as a share of the rows asked."""
        assert self.exact is not None
        assert self.answer.count is not None
        assert self.answer.n
        return abs(self.answer.count - self.exact) / self.answer.n


class _Screen:
    """The live view; plain lines where there is no terminal."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self.lines: list[_Line] = []
        self.months: list[str] = []
        self.rows = 0
        self.tables = 0
        self.notice = "the worker joins its group"
        self.same_bytes: bool | None = None

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        self.say("defining the data set")
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, notice: str) -> None:
        self.notice = notice
        if self._console.is_terminal:
            self._refresh()
        else:
            self._console.print(notice)

    def add(self, line: _Line) -> None:
        self.lines.append(line)
        if self._console.is_terminal:
            self._refresh()

    def _refresh(self) -> None:
        self._live.update(self._view(), refresh=True)

    def _view(self) -> RenderableType:
        spent = max(
            (line.answer.budget.spent for line in self.lines if line.answer.budget), default=0.0
        )
        head = Table.grid(padding=(0, 3))
        head.add_row(
            f"[b]{self.rows:,}[/b] rows in",
            f"phase [b]{len(self.months)}[/b] ({self.months[-1] if self.months else '-'})",
            f"[b]{len(self.lines) + self.tables}[/b] questions",
            "budget spent",
            ProgressBar(total=1.0, completed=spent, width=20),
            f"{100 * spent:.1f}%",
        )
        return Panel(
            Group(
                head,
                Text(),
                question_table(self.lines[-_SHOWN:]),
                Text(),
                Text(self.notice, "cyan"),
            ),
            title="stream_dp: private answers about flights out of New York",
        )

    def summary(self, elapsed_s: float) -> None:
        """What the demo showed; raises when a promise did not hold."""
        answered = [line for line in self.lines if line.answer.status == "answered"]
        easy = sum(line.answer.difficulty == "easy" for line in answered)
        outside = sum(line.off > (line.answer.error_bar or 1.0) for line in answered)
        worst = max(line.off for line in answered)
        spent = max(line.answer.budget.spent for line in answered if line.answer.budget)
        print_ = self._console.print
        print_(question_table(self.lines[-_SHOWN:]))
        print_()
        print_(f"[b]{self.rows:,}[/b] rows in [b]{len(self.months)}[/b] phases")
        print_(
            f"[b]{len(answered)}[/b] of {len(self.lines)} questions answered and "
            f"{self.tables} tables (GROUP BY); {easy} easy, {len(answered) - easy} hard"
        )
        print_(
            f"largest error {100 * worst:.2f}% where 2% is promised; {outside} of {len(answered)} outside "
            "their own error bar, where 1 in 100 may be"
        )
        print_(f"at most [b]{100 * spent:.1f}%[/b] of any row's lifetime budget (epsilon 1) spent")
        print_(
            "the worker was killed with kill -9 once; the same question afterwards gave "
            + ("[b]the same bytes[/b]" if self.same_bytes else "[red]other bytes[/red]")
        )
        print_(f"{elapsed_s:.0f} s in all")
        if not self.same_bytes or len(answered) < len(self.lines) or outside > len(answered) / 20:
            raise StreamDPError("the demo did not keep its promises; please report this")


def question_table(lines: list[_Line]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("question", no_wrap=True, max_width=52)
    table.add_column("phases")
    for name in ("answer", "± error", "exact (own file)"):
        table.add_column(name, justify="right")
    table.add_column("how")
    for line in lines:
        answer = line.answer
        if answer.value is None:
            table.add_row(line.question, line.window, "refused", "", "", "")
            continue
        hard = answer.difficulty == "hard"
        assert line.exact is not None
        assert answer.n
        table.add_row(
            line.question,
            line.window,
            f"{100 * answer.value:.2f}%",
            "-" if answer.error_bar is None else f"{100 * answer.error_bar:.2f}%",
            f"{100 * line.exact / answer.n:.2f}%",
            Text(f"{answer.difficulty}, {answer.path}", "yellow" if hard else "green"),
        )
    return table


@dataclass
class _Demo:
    client: Client
    worker: Child
    sample: Flights
    exact: _Exact
    screen: _Screen
    chance: random.Random = field(default_factory=lambda: random.Random(13))  # noqa: S311

    def run(self, months: int) -> None:
        self.client.define(FLIGHTS_DEFINITION, timeout_s=60)
        for month in range(1, months + 1):
            self._month(month)
            if month == min(_KILL_AFTER, months - 1):
                self._kill()
        self.screen.say("done")

    def _month(self, month: int) -> None:
        columns = self.sample.of_month(month)
        name = _MONTHS[month - 1]
        self.screen.say(f"sending {name}: {len(columns['carrier']):,} flights")
        self.client.send("flights", columns=columns, batch_id=f"2013-{month:02}", timeout_s=60)
        self.screen.rows += len(columns["carrier"])
        self.screen.months.append(name)
        self.screen.say(f"{name} opened phase {month}")
        for condition, last in self._questions(month):
            self._ask(condition, last)
        for question in _TABLES[: 1 + month % len(_TABLES)]:
            self.client.ask("flights", question)
            self.screen.tables += 1

    def _questions(self, month: int) -> Iterator[tuple[str, int | None]]:
        """Standing questions about everything so far, and fresh ones about it or recent months."""
        for condition in _STANDING:
            yield condition, None
        for _ in range(9):
            last = self.chance.choice([None, 1, 3, 6])
            yield self._fresh(), last if last is None or last < month else None

    def _fresh(self) -> str:
        pick = self.chance
        parts = {
            "carrier": lambda: f"carrier IN ({self._some('carrier')})",
            "origin": lambda: f"origin = '{pick.choice(['EWR', 'JFK', 'LGA'])}'",
            "hour": lambda: f"hour >= {pick.choice([8, 12, 16, 20])}",
            "arr_delay": lambda: (
                f"arr_delay {pick.choice(['<', '>='])} {pick.choice([-10, 0, 10, 30, 60])}"
            ),
            "distance": lambda: f"distance < {pick.choice([502, 872, 1389])}",
        }
        chosen = pick.sample(sorted(parts), pick.randint(1, 3))
        return " AND ".join(parts[name]() for name in chosen)

    def _some(self, attribute: str) -> str:
        (values,) = [
            a["values"] for a in FLIGHTS_DEFINITION["attributes"] if a["name"] == attribute
        ]
        return ", ".join(
            f"'{value}'" for value in self.chance.sample(values, self.chance.randint(1, 4))
        )

    def _ask(self, condition: str, last: int | None, query_id: str | None = None) -> Answer:
        answer = self.client.ask(
            "flights", condition, last_phases=last, query_id=query_id, timeout_s=60
        )
        exact = self.exact.count(condition, answer.window) if answer.window else None
        window = "-"
        if answer.window:
            first, stop = answer.window
            window = (
                f"{_MONTHS[first - 1]}-{_MONTHS[stop - 1]}" if first < stop else _MONTHS[first - 1]
            )
        self.screen.add(_Line(condition, window, answer, exact))
        return answer

    def _kill(self) -> None:
        """Asks, kills the worker, starts it again, and asks under the same id."""
        before = self._ask("carrier = 'B6' AND arr_delay >= 30", None, query_id="before-the-crash")
        self.screen.say("kill -9 of the worker, and a new one")
        os.kill(self.worker.pid, signal.SIGKILL)
        self.worker.stop()
        self.worker.start()
        after = self._ask("carrier = 'B6' AND arr_delay >= 30", None, query_id="before-the-crash")
        self.screen.same_bytes = before.to_bytes() == after.to_bytes()
        self.screen.say("the same question under the same id gave the same bytes")
