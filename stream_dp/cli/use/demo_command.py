"""``stream-dp demo``: queries about twelve months of real flights while these arrive."""

from __future__ import annotations

import itertools
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
from typing import Any, Final, Self

import click
import redis
from rich.console import Console
from rich.live import Live

from stream_dp.audit import Report
from stream_dp.cli.demo.daily_demo import Daily, summarise
from stream_dp.cli.demo.demo_view import (
    MONTHS,
    AskedTable,
    DemoQuery,
    Story,
    plain_line,
    plain_table,
    view,
)
from stream_dp.cli.operate.ledger_command import published, reports
from stream_dp.cli.text.progress_bar import StartProgress
from stream_dp.cli.use.up_command import await_worker, worker_child
from stream_dp.client import Client
from stream_dp.client.kafka.deployment_topics import create_topics
from stream_dp.embedded import ports
from stream_dp.embedded.child import Child
from stream_dp.embedded.folders import cache_folder
from stream_dp.embedded.stack import Servers
from stream_dp.errors import ServerUnavailable, StreamDPError
from stream_dp.messages import Answer, CellsAnswer, CountAnswer, RefusedAnswer, Topics
from stream_dp.samples import FLIGHTS_DEFINITION, Flights, flights

_KILL_AFTER: Final = 6
_FRESH: Final = 9
_STANDING: Final = (
    "arr_delay >= 30",
    "arr_delay IS NULL",
    "carrier = 'UA'",
    "origin = 'JFK' AND arr_delay >= 60",
    "carrier IN ('AA', 'DL', 'UA') AND hour >= 16",
    "NOT (origin = 'LGA' OR distance < 502)",
)
_TABLES: Final = (
    (("carrier",), None),
    (("origin", "hour"), None),
    (("origin",), "arr_delay >= 30"),
)
_ATTRIBUTES: Final[dict[str, dict[str, Any]]] = {
    attribute["name"]: attribute for attribute in FLIGHTS_DEFINITION["attributes"]
}
_PLAIN_WIDTH: Final = 120
_MOST_OUTSIDE: Final = 0.2
"""The share of answers outside their error bar that the demo tolerates: twenty times the promise.

A query that is asked each month meets the same noise and misses again. With the 47 queries of ``--fast`` one
bad draw makes three misses at once.
"""


@click.command()
@click.option("--fast", is_flag=True, help="Use three months instead of twelve.")
@click.option(
    "--daily", is_flag=True, help="Stream two months, a phase a day, with tiles and an alert."
)
@click.option(
    "--lose-redis",
    is_flag=True,
    help="Delete everything in Redis half-way, and ask all queries again.",
)
@click.option(
    "--svg",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Save the last picture in this file.",
)
def command(fast: bool, daily: bool, lose_redis: bool, svg: Path | None) -> None:  # noqa: FBT001 - click
    """Stream a year of flight records, ask about 200 queries, kill the worker once, and check the answers.

    The command computes exact answers from a public file, and shows them next to the noisy ones. The worker
    never publishes an exact answer.
    """
    if daily and (fast or lose_redis or svg is not None):
        raise click.UsageError("--daily goes without --fast, --lose-redis and --svg")
    console = Console(highlight=False)
    if not console.is_terminal:
        console = Console(highlight=False, width=_PLAIN_WIDTH)
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
            progress.step("Waiting for the worker")
            await_worker(worker, web_port)

        def check_worker(_: str) -> None:
            if worker.exit_code() is not None:
                raise ServerUnavailable(worker.explain("the worker ended"))

        client = Client(addresses.bootstrap_servers, analyst="demo", on_delay=check_worker)
        stack.enter_context(client)
        if daily:
            tiles = Daily(client, worker, sample, console)
            tiles.run()
            (report,) = reports(*published(client), [FLIGHTS_DEFINITION["dataset"]])
            summarise(console, tiles, report, time.monotonic() - started)
            _say_checked(console, report)
            return
        months = 3 if fast else 12
        screen = stack.enter_context(_Screen(console, Story(months)))
        demo = _Demo(client, worker, sample, exact, screen)
        demo.redis_url = addresses.redis_url if lose_redis else None
        demo.run(months)
        (report,) = reports(*published(client), [FLIGHTS_DEFINITION["dataset"]])
    if svg is not None:
        svg.write_text(_picture(screen.story), encoding="utf-8")
    _summarise(console, screen.story, demo, time.monotonic() - started)
    _say_checked(console, report)


def _say_checked(console: Console, report: Report) -> None:
    """Recomputes the prices from the topics, as anyone can, and raises if it finds a fault."""
    if report.faults:
        raise StreamDPError(f"the ledger has a fault: {report.faults[0]}; please report this")
    units = sum(abs(part) for block in report.blocks for part in block.difference)
    console.print(
        f"the ledger, recomputed from the topic alone as `stream-dp ledger verify` does: "
        f"{len(report.blocks)} phases, {report.charges} charges, [b]{units} units[/b] of difference"
    )


class _Exact:
    """Computes exact answers a second way: with SQLite, from the demo's own copy of the public file."""

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

    def table(
        self, group_by: tuple[str, ...], condition: str | None, window: tuple[int, int]
    ) -> tuple[int, ...]:
        """Returns the count of each cell, in the order of an answer's table."""
        cells = [f"({self._cell(name)})" for name in group_by]
        found = {
            row[:-1]: row[-1]
            for row in self._database.execute(
                f"SELECT {', '.join(cells)}, COUNT(*) FROM flights WHERE month BETWEEN ? AND ? "  # noqa: S608
                f"AND ({condition or 'TRUE'}) GROUP BY {', '.join(cells)}",
                window,
            )
        }
        sizes = [_n_cells(name) for name in group_by]
        return tuple(found.get(cell, 0) for cell in itertools.product(*map(range, sizes)))

    @staticmethod
    def _cell(name: str) -> str:
        """Returns a SQL expression for the index of a row's cell."""
        attribute = _ATTRIBUTES[name]
        if attribute["type"] == "category":
            cases = " ".join(f"WHEN '{v}' THEN {i}" for i, v in enumerate(attribute["values"]))
            return f"CASE {name} {cases} END"
        return " + ".join(f"({name} >= {edge})" for edge in attribute["edges"])


def _n_cells(name: str) -> int:
    attribute = _ATTRIBUTES[name]
    return len(attribute["values"]) if "values" in attribute else len(attribute["edges"]) + 1


class _Screen:
    """Shows the story as it unfolds: as a live picture in a terminal, or else line by line."""

    def __init__(self, console: Console, story: Story) -> None:
        self.story = story
        self._console = console
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def say(self, notice: str) -> None:
        self.story.notice = notice
        self._show(notice)

    def query(self, asked: DemoQuery) -> None:
        self.story.queries.append(asked)
        self._show(plain_line(asked))

    def table(self, asked: AskedTable) -> None:
        self.story.tables.append(asked)
        self._show(plain_table(asked))

    def _show(self, plain: str) -> None:
        if self._console.is_terminal:
            width, height = self._console.size
            self._live.update(view(self.story, width, height - 1), refresh=True)
        else:
            self._console.print(plain, markup=False)


def _summarise(console: Console, story: Story, demo: _Demo, elapsed_s: float) -> None:
    """Prints what the demo showed and raises if a promise did not hold."""
    asked = story.queries
    outside = sum(line.outside for line in asked)
    cells = sum(len(table.labels) for table in story.tables)
    cells_outside = sum(table.outside for table in story.tables)
    print_ = console.print
    print_()
    print_(
        f"[b]{story.rows:,} rows[/b] in {story.opened} phases; [b]{len(asked)} queries[/b] and "
        f"{len(story.tables)} tables answered; {elapsed_s:.0f} s in all"
    )
    print_(
        f"[green]{story.count('easy')} easy[/green]: answered from earlier releases; "
        f"[yellow]{story.count('hard')} hard[/yellow]: answered by a noisy look at the rows"
    )
    print_(f"largest error [b]{100 * story.worst:.2f}%[/b]; the definition promises at most 2%")
    print_(
        f"{outside} of {len(asked)} answers and {cells_outside} of {cells:,} table cells lie outside their "
        "own error bar; 1 in 100 may"
    )
    print_(
        f"spent at most [b]{100 * story.spent:.1f}%[/b] of any row's lifetime budget (epsilon 1)"
    )
    if demo.same_bytes is not None:
        same = "[b]the same bytes[/b]" if demo.same_bytes else "[red]other bytes[/red]"
        print_(
            f"kill -9 of the worker: {demo.recovered_s:.1f} s later the same query under the same id gave "
            + same
        )
    n_same, n_again = demo.asked_again
    if demo.read_s is not None:
        print_(
            f"everything in Redis deleted: the worker answered from the journal {demo.read_s:.1f} s later, "
            f"its start included; {n_again} queries asked again under their ids: [b]{n_same} the same "
            "bytes[/b]"
        )
    if n_same < n_again or not demo.same_bytes or outside > _MOST_OUTSIDE * len(asked):
        raise StreamDPError("the demo did not keep its promises; please report this")


def _picture(story: Story) -> str:
    """Draws the last picture as SVG, without an external font."""
    with open(os.devnull, "w", encoding="utf-8") as nowhere:  # noqa: PTH123 - a device
        console = Console(
            record=True, width=132, file=nowhere, force_terminal=True, highlight=False
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


@dataclass
class _Demo:
    client: Client
    worker: Child
    sample: Flights
    exact: _Exact
    screen: _Screen
    chance: random.Random = field(default_factory=lambda: random.Random(13))  # noqa: S311
    same_bytes: bool | None = None
    recovered_s: float = 0.0
    redis_url: str | None = None
    read_s: float | None = None
    asked_again: tuple[int, int] = (0, 0)
    asked: list[tuple[str, int | None, str, bytes]] = field(default_factory=list)

    def run(self, months: int) -> None:
        self.screen.say("defining the data set")
        self.client.define(FLIGHTS_DEFINITION, timeout_s=60)
        for month in range(1, months + 1):
            self._month(month)
            if month == min(_KILL_AFTER, months - 1):
                self._kill()
            if self.redis_url is not None and month == (months + 1) // 2:
                self._lose(self.redis_url)
        self.screen.say("done: everything above was asked while the rows came in")

    def _month(self, month: int) -> None:
        columns = self.sample.of_month(month)
        name, n_rows = MONTHS[month - 1], len(columns["carrier"])
        self.screen.say(f"sending {n_rows:,} flights of {name}")
        self.client.send("flights", columns=columns, batch_id=f"2013-{month:02}", timeout_s=60)
        self.screen.story.rows += n_rows
        self.screen.story.opened = month
        self.screen.say(f"{n_rows:,} flights of {name} opened phase {month}")
        tables = itertools.cycle(_TABLES[: 1 + month % len(_TABLES)])
        n_tables = 1 + month % len(_TABLES)
        for number, (condition, last) in enumerate(self._queries(month)):
            self._ask(condition, last)
            if number % 5 == 4 and n_tables:
                n_tables -= 1
                self._table(*next(tables))

    def _queries(self, month: int) -> Iterator[tuple[str, int | None]]:
        """Asks standing queries about all rows so far, and new ones about all rows or recent months."""
        for condition in _STANDING:
            yield condition, None
        for _ in range(_FRESH):
            last = self.chance.choice([None, 1, 1, 3, 6])
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
        chosen = pick.sample(sorted(parts), pick.randint(1, 4))
        return " AND ".join(parts[name]() for name in chosen)

    def _some(self, attribute: str) -> str:
        values = _ATTRIBUTES[attribute]["values"]
        return ", ".join(
            f"'{value}'" for value in self.chance.sample(values, self.chance.randint(1, 4))
        )

    def _ask(self, condition: str, last: int | None, query_id: str | None = None) -> Answer:
        answer = self._answer(condition, last, query_id or f"query-{len(self.asked) + 1}")
        self.asked.append((condition, last, answer.query_id, answer.to_bytes()))
        exact = self.exact.count(condition, answer.window)
        self.screen.query(DemoQuery(condition, answer, exact))
        return answer

    def _answer(self, condition: str, last: int | None, query_id: str) -> CountAnswer:
        answer = self.client.ask(
            "flights", condition, last_phases=last, query_id=query_id, timeout_s=120
        )
        if not isinstance(answer, CountAnswer):
            raise _refused(answer, condition)
        return answer

    def _table(self, group_by: tuple[str, ...], condition: str | None) -> None:
        where = f" WHERE {condition}" if condition else ""
        names = ", ".join(group_by)
        query = f"SELECT {names}, COUNT(*) FROM flights{where} GROUP BY {names}"  # noqa: S608 - ours
        answer = self.client.ask("flights", query, timeout_s=60)
        if not isinstance(answer, CellsAnswer):
            raise _refused(answer, names)
        exact = self.exact.table(group_by, condition, answer.window)
        labels = tuple(" ".join(cell) for cell in itertools.product(*answer.table.labels))
        self.screen.table(AskedTable(f"GROUP BY {names}{where}", answer, labels, exact))

    def _kill(self) -> None:
        """Asks a query, kills the worker, starts it again, and asks under the same id."""
        query, query_id = "carrier = 'B6' AND arr_delay >= 30", "before-the-crash"
        before = self._ask(query, None, query_id)
        self.screen.say("kill -9 of the worker, a new one, and the same query under the same id")
        killed = time.monotonic()
        os.kill(self.worker.pid, signal.SIGKILL)
        self.worker.stop()
        self.worker.start()
        after = self._ask(query, None, query_id)
        self.recovered_s = time.monotonic() - killed
        self.same_bytes = before.to_bytes() == after.to_bytes()
        self.screen.say(f"the same bytes again, {self.recovered_s:.1f} s after the kill")

    def _lose(self, url: str) -> None:
        """Kills the worker, deletes all that Redis has, starts a worker, and asks everything again."""
        self.screen.say("kill -9 of the worker, and everything in Redis is deleted")
        os.kill(self.worker.pid, signal.SIGKILL)
        self.worker.stop()
        with redis.Redis.from_url(url) as server:
            server.flushall()
        began = time.monotonic()
        self.worker.start()
        same = 0
        for number, (condition, last, query_id, before) in enumerate(self.asked):
            same += self._answer(condition, last, query_id).to_bytes() == before
            if number == 0:
                self.read_s = time.monotonic() - began
                self.screen.say(f"answered from the journal {self.read_s:.1f} s later")
        self.asked_again = same, len(self.asked)
        self.screen.say(f"{same} of {len(self.asked)} queries asked again: the same bytes")


def _refused(answer: Answer, query: str) -> StreamDPError:
    """The error for a query of the demo that was not answered."""
    why = answer.reason.message if isinstance(answer, RefusedAnswer) else f"kind {answer.kind}"
    return StreamDPError(f"the demo's query {query} was refused: {why}")
