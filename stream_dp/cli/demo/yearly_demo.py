"""``stream-dp demo``: a year of flights, a phase a month, and 200 queries about them."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Iterator
from typing import Final

from rich.console import Console
from rich.live import Live

from stream_dp.cli.demo.demo_deployment import DemoDeployment
from stream_dp.cli.demo.demo_view import (
    MONTHS,
    AskedTable,
    DemoQuery,
    Story,
    plain_line,
    plain_table,
    view,
)
from stream_dp.cli.demo.exact_flights import ATTRIBUTES, ExactFlights
from stream_dp.display.figure_text import percent
from stream_dp.errors import StreamDPError
from stream_dp.messages import Answer, CellsAnswer, CountAnswer, RefusedAnswer
from stream_dp.samples import FLIGHTS_DEFINITION, Flights

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
_BEFORE_THE_CRASH: Final = "carrier = 'B6' AND arr_delay >= 30"
_MOST_OUTSIDE: Final = 0.2
"""The share of answers outside their error bar that the demo tolerates: twenty times the promise.

A query that is asked each month meets the same noise and misses again. With the 47 queries of ``--fast`` one
bad draw makes three misses at once.
"""


class YearlyDemo:
    """Twelve months of flights, and what was asked meanwhile.

    Attributes:
        story: What has happened so far.
    """

    def __init__(
        self, deployment: DemoDeployment, sample: Flights, console: Console, *, months: int
    ) -> None:
        self.story = Story(months)
        self._deployment, self._client = deployment, deployment.client
        self._sample, self._console = sample, console
        self._exact = ExactFlights(sample, sample.month.tolist())
        self._live = Live(console=console, auto_refresh=False)
        self._chance = random.Random(13)  # noqa: S311
        self._began = time.monotonic()
        self._recovered_s, self._same_bytes = 0.0, False

    def run(self) -> None:
        """Sends the months, asks about them, and kills the worker once."""
        if self._console.is_terminal:
            self._live.start()
        try:
            self._say("defining the data set")
            self._client.define(FLIGHTS_DEFINITION, timeout_s=60)
            for month in range(1, self.story.months + 1):
                self._month(month)
                if month == min(_KILL_AFTER, self.story.months - 1):
                    self._kill()
            self._say("done: everything above was asked while the rows came in")
        finally:
            self._live.stop()

    @property
    def kept(self) -> bool:
        """Whether the same query gave the same bytes, and few answers lie outside their error bar."""
        outside = sum(line.outside for line in self.story.queries)
        return self._same_bytes and outside <= _MOST_OUTSIDE * len(self.story.queries)

    def summary(self) -> Iterator[str]:
        """Says what the demo has shown."""
        story, queries, tables = self.story, self.story.queries, self.story.tables
        yield (
            f"[b]{story.rows:,} rows[/b] in {story.opened} phases; [b]{len(queries)} queries[/b] and "
            f"{len(tables)} tables answered; {time.monotonic() - self._began:.0f} s in all"
        )
        yield (
            f"[green]{story.count('easy')} easy[/green]: answered from earlier releases; "
            f"[yellow]{story.count('hard')} hard[/yellow]: answered by a noisy look at the rows"
        )
        yield f"largest error [b]{percent(story.worst)}[/b]; the definition promises at most 2%"
        cells = sum(len(table.labels) for table in tables)
        yield (
            f"{sum(line.outside for line in queries)} of {len(queries)} answers and "
            f"{sum(table.outside for table in tables)} of {cells:,} table cells lie outside their own error "
            "bar; 1 in 100 may"
        )
        yield f"spent at most [b]{100 * story.spent:.1f}%[/b] of any row's lifetime budget (epsilon 1)"
        same = "[b]the same bytes[/b]" if self._same_bytes else "[red]other bytes[/red]"
        yield (
            f"kill -9 of the worker: {self._recovered_s:.1f} s later the same query under the same id gave "
            f"{same}"
        )

    def _month(self, month: int) -> None:
        columns = self._sample.of_month(month)
        name, n_rows = MONTHS[month - 1], len(columns["carrier"])
        self._say(f"sending {n_rows:,} flights of {name}")
        self._client.send("flights", columns=columns, batch_id=f"2013-{month:02}", timeout_s=60)
        self.story.rows += n_rows
        self.story.opened = month
        self._say(f"{n_rows:,} flights of {name} opened phase {month}")
        tables = list(_TABLES[: 1 + month % len(_TABLES)])
        for number, (condition, last) in enumerate(self._queries(month)):
            self._ask(condition, last)
            if number % 5 == 4 and tables:
                self._table(*tables.pop(0))

    def _queries(self, month: int) -> Iterator[tuple[str, int | None]]:
        """Asks standing queries about all rows so far, and new ones about all rows or recent months."""
        for condition in _STANDING:
            yield condition, None
        for _ in range(_FRESH):
            last = self._chance.choice([None, 1, 1, 3, 6])
            yield self._fresh(), last if last is None or last < month else None

    def _fresh(self) -> str:
        pick = self._chance
        values = ATTRIBUTES["carrier"]["values"]
        carriers = ", ".join(f"'{value}'" for value in pick.sample(values, pick.randint(1, 4)))
        sign, delay = pick.choice(["<", ">="]), pick.choice([-10, 0, 10, 30, 60])
        parts = (
            f"carrier IN ({carriers})",
            f"origin = '{pick.choice(['EWR', 'JFK', 'LGA'])}'",
            f"hour >= {pick.choice([8, 12, 16, 20])}",
            f"arr_delay {sign} {delay}",
            f"distance < {pick.choice([502, 872, 1389])}",
        )
        return " AND ".join(pick.sample(parts, pick.randint(1, 4)))

    def _ask(self, condition: str, last: int | None, query_id: str | None = None) -> Answer:
        answer = self._client.ask(
            "flights", condition, last_phases=last, query_id=query_id, timeout_s=120
        )
        if not isinstance(answer, CountAnswer):
            raise _refused(answer, condition)
        (exact,) = self._exact.counts(condition, answer.window)
        asked = DemoQuery(condition, answer, exact)
        self.story.queries.append(asked)
        self._show(plain_line(asked))
        return answer

    def _table(self, group_by: tuple[str, ...], condition: str | None) -> None:
        where = f" WHERE {condition}" if condition else ""
        names = ", ".join(group_by)
        query = f"SELECT {names}, COUNT(*) FROM flights{where} GROUP BY {names}"  # noqa: S608 - ours
        answer = self._client.ask("flights", query, timeout_s=60)
        if not isinstance(answer, CellsAnswer):
            raise _refused(answer, names)
        exact = tuple(self._exact.counts(condition, answer.window, group_by))
        labels = tuple(" ".join(cell) for cell in itertools.product(*answer.table.labels))
        asked = AskedTable(f"GROUP BY {names}{where}", answer, labels, exact)
        self.story.tables.append(asked)
        self._show(plain_table(asked))

    def _kill(self) -> None:
        """Asks a query, kills the worker, starts it again, and asks under the same id."""
        before = self._ask(_BEFORE_THE_CRASH, None, "before-the-crash")
        self._say("kill -9 of the worker, a new one, and the same query under the same id")
        killed = time.monotonic()
        self._deployment.kill_worker()
        after = self._ask(_BEFORE_THE_CRASH, None, "before-the-crash")
        self._recovered_s = time.monotonic() - killed
        self._same_bytes = before.to_bytes() == after.to_bytes()
        self._say(f"the same bytes again, {self._recovered_s:.1f} s after the kill")

    def _say(self, notice: str) -> None:
        self.story.notice = notice
        self._show(notice)

    def _show(self, plain: str) -> None:
        """Shows the story: as a live picture in a terminal, or else line by line."""
        if self._console.is_terminal:
            width, height = self._console.size
            self._live.update(view(self.story, width, height - 1), refresh=True)
        else:
            self._console.print(plain, markup=False)


def _refused(answer: Answer, query: str) -> StreamDPError:
    """The error for a query of the demo that was not answered."""
    why = answer.reason.message if isinstance(answer, RefusedAnswer) else f"kind {answer.kind}"
    return StreamDPError(f"the demo's query {query} was refused: {why}")
