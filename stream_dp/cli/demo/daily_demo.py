"""``stream-dp demo --daily``: twelve tiles that are answered each day, an alert, and days by the clock."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from queue import Empty, SimpleQueue
from statistics import median
from typing import Any, Final

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from stream_dp.audit import Report
from stream_dp.audit.numbers import UNITS
from stream_dp.cli.demo.demo_deployment import DemoDeployment
from stream_dp.cli.demo.exact_flights import ExactFlights
from stream_dp.cli.demo.live_days import LiveDays
from stream_dp.display.answer_cells import MainFigure, main_figures, newest
from stream_dp.errors import RequestTimeout, StreamDPError
from stream_dp.messages import Answer, Event, NoisyAnswer, RefusedAnswer, Rejected, id_in_phase
from stream_dp.samples import FLIGHTS_DEFINITION, Flights

FIRST_DAY: Final = date(2013, 1, 1)
DAYS: Final = 59
_KILLED_ON: Final = 30
_KILLED_S: Final = 0.05  # after the batch was sent: the worker is opening the phase, or answering
_ALERT_ABOVE: Final = 0.2
_PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.5
_SHOWN_CELLS: Final = 3
_HISTORY: Final = 40
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_MOST_OUTSIDE: Final = 0.05
"""The share of figures outside their error bar that the demo tolerates: five times the promise.

A tile over seven days rests on the same noise for seven days, so misses come in rows.
"""

_LOW, _HIGH = -60, 240

DEFINITION: Final[dict[str, Any]] = {
    **FLIGHTS_DEFINITION,
    "attributes": [
        {**attribute, "measure": {"unit": 1, "low": _LOW, "high": _HIGH}}
        if attribute["name"] == "arr_delay"
        else attribute
        for attribute in FLIGHTS_DEFINITION["attributes"]
    ],
    "accuracy": {"error": 0.08, "failure_probability": 0.01},
    "phase": {"every": "1 day", "timezone": "America/New_York", "min_rows": 500},
}


@dataclass(frozen=True)
class DemoTile:
    """A standing query of the demo.

    Attributes:
        name: The id of the query.
        title: What it shows.
        fields: The fields of its message.
        days: The number of days that the newest figures are about.
        exact: The SQL that works the newest figures out from the rows of these days.
        group_by: The attribute that has a figure for each cell, if there is one.
    """

    name: str
    title: str
    fields: Mapping[str, Any]
    days: int
    exact: str
    group_by: tuple[str, ...] = ()


_CANCELLED: Final = {"attribute": "arr_delay", "is_missing": True}
_EARLY: Final = {"attribute": "arr_delay", "lt": 0}
_LATE: Final = {"attribute": "arr_delay", "ge": 30}
_VERY_LATE_AT_JFK: Final = [
    {"attribute": "origin", "eq": "JFK"},
    {"attribute": "arr_delay", "ge": 60},
]
_DAY: Final = {"window": {"last": "1 day"}}
_WEEK: Final = {"error": 0.04, "window": {"last": "7 days"}}
_BY_DAY: Final = {"window": {"last": "14 days"}, "series": "day"}

_PART_LATE: Final = "AVG(IFNULL(arr_delay >= 30, 0))"  # one that is cancelled is not late
_CHANGE: Final = " - ".join(
    f"{_PART_LATE} FILTER (WHERE phase {sign} :last - 7)" for sign in (">", "<=")
)
_MEAN: Final = f"AVG(MIN(MAX(arr_delay, {_LOW}), {_HIGH}))"
_PARTS: Final = "1.0 * COUNT(*) / SUM(COUNT(*)) OVER ()"


def _of_day(name: str, title: str, where: Mapping[str, Any], exact: str, **more: Any) -> DemoTile:
    return DemoTile(name, title, {"where": where, **_DAY, **more}, 1, exact)


def _of_week(
    name: str, title: str, fields: Mapping[str, Any], exact: str, *group_by: str
) -> DemoTile:
    grouped = {"group_by": [*group_by]} if group_by else {}
    return DemoTile(name, f"{title}, 7 days", {**fields, **grouped, **_WEEK}, 7, exact, group_by)


_MOVED: Final = {"kind": "difference", "where": _LATE, "minus_window": {"previous": "7 days"}}
_TABLE: Final = {"kind": "table"}
TILES: Final = (
    _of_day(
        "cancelled",
        "cancelled, this day",
        _CANCELLED,
        "AVG(arr_delay IS NULL)",
        alert={"above": _ALERT_ABOVE},
    ),
    _of_day("late", "30 minutes late, this day", _LATE, _PART_LATE),
    _of_day("early", "early, this day", _EARLY, "AVG(IFNULL(arr_delay < 0, 0))"),
    _of_day(
        "cancelled-by-day", "cancelled, by day", _CANCELLED, "AVG(arr_delay IS NULL)", **_BY_DAY
    ),
    _of_day("late-by-day", "30 minutes late, by day", _LATE, _PART_LATE, **_BY_DAY),
    DemoTile("late-change", "late: 7 days against the 7 before", {**_MOVED, **_WEEK}, 14, _CHANGE),
    _of_week("carriers", "top carriers", _TABLE, _PARTS, "carrier"),
    _of_week("delay", "average delay in minutes", {"kind": "sum", "attribute": "arr_delay"}, _MEAN),
    _of_week(
        "late-by-hour",
        "30 minutes late by hour",
        {"kind": "share", "share_of": _LATE},
        _PART_LATE,
        "hour",
    ),
    _of_week("origins", "by airport", _TABLE, _PARTS, "origin"),
    _of_week(
        "jfk-very-late",
        "from JFK and an hour late",
        {"where": {"all": _VERY_LATE_AT_JFK}},
        "AVG(IFNULL(origin = 'JFK' AND arr_delay >= 60, 0))",
    ),
    _of_week("distances", "by distance", _TABLE, _PARTS, "distance"),
)


def date_of(day: int) -> date:
    """Returns the date of a day of the demo, of which the first is day 1."""
    return FIRST_DAY + timedelta(days=day - 1)


class TileTruth:
    """What is true of the tiles, from the public file."""

    def __init__(self, sample: Flights) -> None:
        dates = zip(sample.month.tolist(), sample.day.tolist(), strict=True)
        days = [(date(2013, *each) - FIRST_DAY).days + 1 for each in dates]
        self._exact = ExactFlights(sample, days)

    def of(self, tile: DemoTile, day: int) -> list[float]:
        """What a tile asks, with the rows of the days that end with this one."""
        return self._exact.values(tile.exact, (max(1, day - tile.days + 1), day), tile.group_by)

    def storms(self) -> list[int]:
        """The days on which the alert is due."""
        return [day for day in range(1, DAYS + 1) if self.of(TILES[0], day)[0] > _ALERT_ABOVE]


@dataclass
class _Shown:
    """What is known of one tile."""

    newest: NoisyAnswer | None = None
    history: list[float | None] = field(default_factory=list)


class DailyDemo:
    """Two months of flights, a phase a day, with what the tiles said, and two days by the clock."""

    def __init__(self, deployment: DemoDeployment, sample: Flights, console: Console) -> None:
        self._deployment, self._client = deployment, deployment.client
        self._console, self._live = console, Live(console=console)
        self._truth, self._days = TileTruth(sample), LiveDays(self._client, sample)
        days = map(date_of, range(1, DAYS + 1))
        self._batches = [sample.of_day(day.month, day.day) for day in days]
        self._began, self._took_s, self._recovered_s = time.monotonic(), 0.0, 0.0
        self._alerts: list[int] = []
        self._checked = self._outside = self._unverified = 0
        self._spent = 0.0
        self._shown: dict[str, _Shown] = defaultdict(_Shown)
        self._arrived: dict[str, bytes] = {}
        self._replies: SimpleQueue[Any] = SimpleQueue()

    def run(self) -> None:
        """Streams the days. Raises if an answer is missing, or comes again with other bytes."""
        by_clock = self._days.play()
        self._history(by_clock)
        self._took_s = time.monotonic() - self._began
        self._console.print()
        with self._console.status("") as status:
            for _ in by_clock:
                self._show_lines()
                status.update(self._days.awaited)
                time.sleep(_LOOK_S)
        self._show_lines()
        for asked in self._days.asked:
            self._checked += len(asked.exact)
            self._outside += asked.outside

    def _history(self, by_clock: Iterator[None]) -> None:
        """Streams two months, while the clock goes on."""
        self._client.define(DEFINITION, timeout_s=60)
        tiles = [{**tile.fields, "query_id": tile.name, "standing": True} for tile in TILES]
        self._client.change_standing("flights", tiles, timeout_s=60)
        with self._client.subscribe(self._replies.put), self._live:
            for day, batch in enumerate(self._batches, start=1):
                killing = threading.Timer(_KILLED_S, self._deployment.kill_worker)
                if day == _KILLED_ON:
                    killed = time.monotonic()
                    killing.start()
                name = date_of(day).isoformat()
                self._client.send("flights", columns=batch, batch_id=name, at=name, timeout_s=60)
                if day > 1:
                    self._day(day - 1)
                if day == _KILLED_ON:
                    killing.join()
                    self._recovered_s = time.monotonic() - killed
                next(by_clock, None)
            self._client.close_phase("flights", timeout_s=60)
            self._day(DAYS)

    @property
    def kept(self) -> bool:
        """Whether alerts came when they were due, and few figures lie outside their own error bar."""
        is_right = self._alerts == self._truth.storms()
        return is_right and self._outside <= _MOST_OUTSIDE * self._checked

    def summary(self, report: Report) -> Iterator[str]:
        """Says what the demo has shown."""
        spent = [max(block.spent) / UNITS for block in report.blocks]
        found, wanted = (
            ", ".join(f"{date_of(day):%d %B}" for day in days)
            for days in (self._alerts, self._truth.storms())
        )
        yield (
            f"[b]{sum(len(batch['hour']) for batch in self._batches):,} rows[/b] in {DAYS} phases, one for "
            f"each day; [b]{len(self._arrived)} answers[/b] to {len(TILES)} tiles, each once; "
            f"{self._took_s:.0f} s in all"
        )
        yield (
            f"alerts on [b]{found or 'no day'}[/b]; more than {100 * _ALERT_ABOVE:.0f}% of the flights "
            f"were cancelled on {wanted}"
        )
        yield (
            f"{self._outside} of {self._checked:,} figures lie outside their own error bar; 1 in 100 may. "
            f"{self._unverified} of the answers were unverified"
        )
        yield (
            f"spent of the lifetime budget of a day's rows (epsilon 1): [b]{100 * median(spent):.0f}%[/b] on "
            f"a typical day, {100 * max(spent):.0f}% on the first ones, when seven days were one or two"
        )
        yield (
            f"kill -9 of the worker on day {_KILLED_ON}: {self._recovered_s:.1f} s later all of the day's "
            "tiles were answered"
        )

    def _day(self, day: int) -> None:
        """Waits for the answers of one day, and checks and shows them."""
        due = {id_in_phase(tile.name, day): tile for tile in TILES}
        deadline = time.monotonic() + _PATIENCE_S
        while missing := [name for name in due if name not in self._arrived]:
            try:
                reply = self._replies.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                said = f"no answer {missing[0]} within {_PATIENCE_S:g} s"
                raise RequestTimeout(said) from None
            if isinstance(reply, Event) and reply.event == "alert" and reply.phase is not None:
                self._alerts += [reply.phase] if reply.phase not in self._alerts else []
            elif isinstance(reply, Rejected):
                raise StreamDPError(f"the demo's tile was rejected: {reply.reason.message}")
            elif isinstance(reply, Answer) and reply.analyst == self._client.analyst:
                self._take(reply, due)
        self._show(day)

    def _take(self, answer: Answer, due: Mapping[str, DemoTile]) -> None:
        name, value = answer.query_id, answer.to_bytes()
        if self._arrived.setdefault(name, value) is not value:  # sent again after the kill
            if self._arrived[name] != value:
                raise StreamDPError(f"{name} was answered in two ways; please report this")
            return
        if (tile := due.get(name)) is None:
            return
        shown = self._shown[tile.name]
        if isinstance(answer, RefusedAnswer):
            shown.history.append(None)
            return
        assert isinstance(answer, NoisyAnswer), "a standing query asks for an answer"
        last = newest(answer)
        assert isinstance(last, NoisyAnswer), "the newest day has an answer"
        found = list(main_figures(last))
        shown.newest = last
        shown.history.append(found[0].value if len(found) == 1 else None)
        self._spent = max(self._spent, answer.budget.spent)
        if last.path == "unverified":
            self._unverified += 1  # its bar is for this answer alone, and it promises nothing
        else:
            self._check(tile, int(name.rpartition("@")[2]), last, found)

    def _check(
        self, tile: DemoTile, day: int, answer: NoisyAnswer, found: Sequence[MainFigure]
    ) -> None:
        """Counts the figures that lie further from the truth than their own error bars."""
        table = getattr(answer, "table", None)
        labels = [""] if table is None else table.labels[0]
        exact = dict(zip(labels, self._truth.of(tile, day), strict=True))
        for one in found:
            if one.error_bar is not None:
                self._checked += 1
                self._outside += abs(one.value - exact[one.cell]) > one.error_bar

    def _show(self, day: int) -> None:
        if self._console.is_terminal:
            meanwhile = Text(self._days.lines[-1] if day < DAYS else "", "dim", overflow="ellipsis")
            self._live.update(Group(self._view(day), meanwhile), refresh=True)
        else:
            alert = "  ALERT" if day in self._alerts else ""
            shown = [(tile, self._shown[tile.name].newest) for tile in TILES[:2]]
            numbers = ", ".join(
                f"{tile.title} {_written(newest, tile)}" for tile, newest in shown if newest
            )
            self._console.print(f"{date_of(day):%b %d}: {numbers}{alert}", markup=False)

    def _show_lines(self) -> None:
        while self._days.lines:
            self._console.print(self._days.lines.pop(0), markup=False)

    def _view(self, day: int) -> Table:
        title = f"Twelve tiles on {date_of(day):%A, %d %B %Y}: phase {day}"
        table = Table(title=title, title_justify="left")
        for name in ("tile", "newest", f"the last {_HISTORY} days"):
            table.add_column(name, no_wrap=True)
        for tile in TILES:
            shown, alarm = self._shown[tile.name], tile.name == "cancelled" and day in self._alerts
            words = _written(shown.newest, tile) + " ALERT" * alarm
            newest = Text(words, "bold red" if alarm else "")
            table.add_row(tile.title, newest, _sparkline(shown.history[-_HISTORY:]))
        days = ", ".join(f"{date_of(each):%d %b}" for each in self._alerts) or "none"
        table.caption = (
            f"alerts: {days}; spent at most {100 * self._spent:.0f}% of any row's lifetime budget"
        )
        return table


def _written(answer: NoisyAnswer | None, tile: DemoTile) -> str:
    """The newest figures of a tile: its largest cells, if it has some."""
    if answer is None:
        return "no answer yet"
    top = sorted(main_figures(answer), key=lambda one: -one.value)[:_SHOWN_CELLS]
    return "  ".join(f"{one.cell} {_number(one, tile)}".strip() for one in top)


def _number(one: MainFigure, tile: DemoTile) -> str:
    if tile.fields.get("kind") == "sum":
        return f"{one.value:.1f}" + ("" if one.error_bar is None else f" ± {one.error_bar:.1f}")
    bar = "" if one.error_bar is None else f" ± {100 * one.error_bar:.0f}"
    return f"{100 * one.value:.0f}{bar}%"


def _sparkline(values: Sequence[float | None]) -> str:
    """Draws numbers as bars of one line. A gap has no number."""
    known = [value for value in values if value is not None]
    low, high = min(known, default=0.0), max(known, default=0.0)
    scale = (len(_BLOCKS) - 1) / ((high - low) or 1.0)
    return "".join(
        " " if value is None else _BLOCKS[round(scale * (value - low))] for value in values
    )
