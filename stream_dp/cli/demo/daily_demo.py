"""``stream-dp demo --daily``: twelve tiles that are answered each day by themselves, and an alert."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, timedelta
from queue import Empty, SimpleQueue
from statistics import median
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from stream_dp.audit import Report
from stream_dp.audit.numbers import UNITS
from stream_dp.client import Client
from stream_dp.display.answer_cells import MainFigure, main_figures, newest
from stream_dp.embedded.child import Child
from stream_dp.errors import RequestTimeout, StreamDPError
from stream_dp.messages import (
    Answer,
    Event,
    NoisyAnswer,
    RefusedAnswer,
    Rejected,
    id_in_phase,
)
from stream_dp.samples import FLIGHTS_DEFINITION, Flights

FIRST_DAY: Final = date(2013, 1, 1)
_DAYS: Final = 59
_KILLED_ON: Final = 30
_KILLED_S: Final = 0.05  # after the batch was sent: the worker is opening the phase, or answering
_ALERT_ABOVE: Final = 0.2
_PATIENCE_S: Final = 60.0
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

_Column = npt.NDArray[Any]
_Rows = Mapping[str, _Column]
_Exact = Callable[[_Rows], Sequence[float]]
"""What a tile asks, worked out from the public file: one number for each cell."""


@dataclass(frozen=True)
class _Tile:
    """A standing query of the demo.

    Attributes:
        name: The id of the query.
        title: What it shows.
        fields: The fields of its message.
        days: The number of days that the newest figures are about.
        exact: Computes the newest figures from the rows of these days.
    """

    name: str
    title: str
    fields: Mapping[str, Any]
    days: int
    exact: _Exact


def _tiles() -> Iterator[_Tile]:
    cancelled = {"attribute": "arr_delay", "is_missing": True}
    late = {"attribute": "arr_delay", "ge": 30}
    day, week = {"last": "1 day"}, {"last": "7 days"}
    precise = {"error": 0.04, "window": week}
    yield _Tile(
        "cancelled",
        "cancelled, this day",
        {"where": cancelled, "window": day, "alert": {"above": _ALERT_ABOVE}},
        1,
        lambda rows: [_share(_is_cancelled(rows))],
    )
    yield _Tile(
        "late",
        "30 minutes late, this day",
        {"where": late, "window": day},
        1,
        lambda rows: [_share(_is_late(rows))],
    )
    yield _Tile(
        "early",
        "early, this day",
        {"where": {"attribute": "arr_delay", "lt": 0}, "window": day},
        1,
        lambda rows: [_share(rows["arr_delay"] < 0)],
    )
    series = {"window": {"last": "14 days"}, "series": "day"}
    yield _Tile(
        "cancelled-by-day",
        "cancelled, by day",
        {"where": cancelled, **series},
        1,
        lambda rows: [_share(_is_cancelled(rows))],
    )
    yield _Tile(
        "late-by-day",
        "30 minutes late, by day",
        {"where": late, **series},
        1,
        lambda rows: [_share(_is_late(rows))],
    )
    yield _Tile(
        "late-change",
        "late: 7 days against the 7 before",
        {"kind": "difference", "where": late, "minus_window": {"previous": "7 days"}, **precise},
        14,
        _change_of_late,
    )
    yield _Tile(
        "carriers",
        "top carriers, 7 days",
        {"kind": "table", "group_by": ["carrier"], **precise},
        7,
        lambda rows: _table(rows, "carrier"),
    )
    yield _Tile(
        "delay",
        "average delay in minutes, 7 days",
        {"kind": "sum", "attribute": "arr_delay", **precise},
        7,
        lambda rows: [float(np.nanmean(rows["arr_delay"].clip(_LOW, _HIGH)))],
    )
    yield _Tile(
        "late-by-hour",
        "30 minutes late by hour, 7 days",
        {"kind": "share", "share_of": late, "group_by": ["hour"], **precise},
        7,
        _late_by_hour,
    )
    yield _Tile(
        "origins",
        "by airport, 7 days",
        {"kind": "table", "group_by": ["origin"], **precise},
        7,
        lambda rows: _table(rows, "origin"),
    )
    yield _Tile(
        "jfk-very-late",
        "from JFK and an hour late, 7 days",
        {
            "where": {
                "all": [{"attribute": "origin", "eq": "JFK"}, {"attribute": "arr_delay", "ge": 60}]
            },
            **precise,
        },
        7,
        lambda rows: [_share((rows["origin"] == "JFK") & (rows["arr_delay"] >= 60))],
    )
    yield _Tile(
        "distances",
        "by distance, 7 days",
        {"kind": "table", "group_by": ["distance"], **precise},
        7,
        lambda rows: _table(rows, "distance"),
    )


def _share(rows: _Column) -> float:
    return float(np.mean(rows))


def _is_cancelled(rows: _Rows) -> _Column:
    return np.isnan(rows["arr_delay"])


def _is_late(rows: _Rows) -> _Column:
    return np.asarray(rows["arr_delay"] >= 30)


def _change_of_late(rows: _Rows) -> list[float]:
    """The share of late flights of the last 7 days, minus that of the days before."""
    late, new = _is_late(rows), rows["day"] > rows["day"].max() - 7
    return [_share(late[new]) - _share(late[~new])]


def _cells(rows: _Rows, name: str) -> list[_Column]:
    """Marks the rows of each cell of an attribute."""
    (attribute,) = (each for each in DEFINITION["attributes"] if each["name"] == name)
    if "values" in attribute:
        return [rows[name] == value for value in attribute["values"]]
    cells = np.searchsorted(attribute["edges"], rows[name], side="right")
    return [cells == number for number in range(len(attribute["edges"]) + 1)]


def _table(rows: _Rows, name: str) -> list[float]:
    return [_share(cell) for cell in _cells(rows, name)]


def _late_by_hour(rows: _Rows) -> list[float]:
    late = _is_late(rows)
    return [_share(late[cell]) if cell.any() else 0.0 for cell in _cells(rows, "hour")]


TILES: Final = tuple(_tiles())


class _File:
    """The public file, from which the demo knows what is true."""

    def __init__(self, sample: Flights) -> None:
        days = [_date_of(number) for number in range(1, _DAYS + 1)]
        self.batches = [sample.of_day(day.month, day.day) for day in days]
        self._days = [
            {name: np.array(column, dtype=_dtype(name)) for name, column in batch.items()}
            for batch in self.batches
        ]
        for number, rows in enumerate(self._days, start=1):
            rows["day"] = np.full(len(rows["hour"]), number)

    def exact(self, tile: _Tile, day: int) -> Sequence[float]:
        """What a tile asks, with the rows of the days that end with this one."""
        some = self._days[max(0, day - tile.days) : day]
        return tile.exact({name: np.concatenate([one[name] for one in some]) for name in some[0]})

    def storms(self) -> list[int]:
        """The days on which the alert is due."""
        return [
            day
            for day, rows in enumerate(self._days, start=1)
            if _share(_is_cancelled(rows)) > _ALERT_ABOVE
        ]


def _dtype(name: str) -> Any:
    return {"arr_delay": np.float64, "carrier": np.str_, "origin": np.str_}.get(name, np.int64)


def _date_of(number: int) -> date:
    return FIRST_DAY + timedelta(days=number - 1)


@dataclass
class _Shown:
    """What is known of one tile."""

    newest: NoisyAnswer | None = None
    history: list[float | None] = field(default_factory=list)


@dataclass
class Daily:
    """Two months of flights, a phase a day, and what the tiles said."""

    client: Client
    worker: Child
    sample: Flights
    console: Console
    alerts: list[int] = field(default_factory=list)
    recovered_s: float = 0.0
    checked: int = 0
    outside: int = 0
    unverified: int = 0
    spent: float = 0.0
    _shown: dict[str, _Shown] = field(default_factory=lambda: defaultdict(_Shown))
    _killed: float = 0.0
    _arrived: dict[str, bytes] = field(default_factory=dict)
    _replies: SimpleQueue[Any] = field(default_factory=SimpleQueue)

    @property
    def answers(self) -> int:
        """The number of answers that arrived."""
        return len(self._arrived)

    def run(self) -> None:
        """Streams the days. Raises if an answer is missing, or comes again with other bytes."""
        self._file = _File(self.sample)
        self.client.define(DEFINITION, timeout_s=60)
        tiles = [{**tile.fields, "query_id": tile.name, "standing": True} for tile in TILES]
        self.client.change_standing("flights", tiles, timeout_s=60)
        with self.client.subscribe(self._replies.put), Live(console=self.console) as live:
            self._live = live if self.console.is_terminal else None
            for day, batch in enumerate(self._file.batches, start=1):
                killing = threading.Timer(_KILLED_S, self._kill)
                if day == _KILLED_ON:
                    killing.start()
                name = _date_of(day).isoformat()
                self.client.send("flights", columns=batch, batch_id=name, at=name, timeout_s=60)
                if day > 1:
                    self._day(day - 1)
                if day == _KILLED_ON:
                    killing.join()
                    self.recovered_s = time.monotonic() - self._killed
            self.client.close_phase("flights", timeout_s=60)
            self._day(_DAYS)

    @property
    def rows(self) -> int:
        """The number of rows that were streamed."""
        return sum(len(batch["hour"]) for batch in self._file.batches)

    @property
    def storms(self) -> list[int]:
        """The days on which the alert is due."""
        return self._file.storms()

    def _day(self, day: int) -> None:
        """Waits for the answers of one day, and checks and shows them."""
        due = {id_in_phase(tile.name, day): tile for tile in TILES}
        deadline = time.monotonic() + _PATIENCE_S
        while any(name not in self._arrived for name in due):
            try:
                reply = self._replies.get(timeout=max(0.0, deadline - time.monotonic()))
            except Empty:
                missing = next(name for name in due if name not in self._arrived)
                raise RequestTimeout(f"no answer {missing} within {_PATIENCE_S:g} s") from None
            if isinstance(reply, Event) and reply.event == "alert" and reply.phase is not None:
                self.alerts += [reply.phase] if reply.phase not in self.alerts else []
            elif isinstance(reply, Rejected):
                raise StreamDPError(f"the demo's tile was rejected: {reply.reason.message}")
            elif isinstance(reply, Answer) and reply.analyst == self.client.analyst:
                self._take(reply, due)
        self._show(day)

    def _take(self, answer: Answer, due: Mapping[str, _Tile]) -> None:
        name, value = answer.query_id, answer.to_bytes()
        if self._arrived.setdefault(name, value) is not value:  # sent again after the kill
            if self._arrived[name] != value:
                raise StreamDPError(f"{name} was answered in two ways; please report this")
            return
        tile, day = due.get(answer.query_id), answer.query_id.rpartition("@")[2]
        if tile is None:
            return
        shown = self._shown[tile.name]
        if isinstance(answer, RefusedAnswer):
            shown.history.append(None)
            return
        assert isinstance(answer, NoisyAnswer), "a standing query asks for an answer"
        last = newest(answer)
        assert isinstance(last, NoisyAnswer), "the newest day has an answer"
        shown.newest = last
        found = list(main_figures(last))
        shown.history.append(found[0].value if len(found) == 1 else None)
        self.spent = max(self.spent, answer.budget.spent)
        self.unverified += last.path == "unverified"
        self._check(tile, int(day), last, found)

    def _check(
        self, tile: _Tile, day: int, answer: NoisyAnswer, found: Sequence[MainFigure]
    ) -> None:
        """Counts the figures that lie further from the truth than their own error bars."""
        if answer.path == "unverified":
            return  # its bar is for this answer alone, and it promises nothing
        table = getattr(answer, "table", None)
        labels = [""] if table is None else table.labels[0]
        exact = dict(zip(labels, self._file.exact(tile, day), strict=True))
        for one in found:
            if one.error_bar is not None:
                self.checked += 1
                self.outside += abs(one.value - exact[one.cell]) > one.error_bar

    def _kill(self) -> None:
        """Kills the worker while it opens a phase, and starts another one."""
        self._killed = time.monotonic()
        os.kill(self.worker.pid, signal.SIGKILL)
        self.worker.stop()
        self.worker.start()

    def _show(self, day: int) -> None:
        if self._live is not None:
            self._live.update(self._view(day), refresh=True)
        else:
            alert = "  ALERT" if day in self.alerts else ""
            numbers = ", ".join(
                f"{tile.title} {_written(list(main_figures(shown.newest)), tile)}"
                for tile in TILES[:2]
                if (shown := self._shown[tile.name]).newest is not None
            )
            self.console.print(f"{_date_of(day):%b %d}: {numbers}{alert}", markup=False)

    def _view(self, day: int) -> Table:
        table = Table(
            title=f"Twelve tiles on {_date_of(day):%A, %d %B %Y}: phase {day}", title_justify="left"
        )
        for name in ("tile", "newest", f"the last {_HISTORY} days"):
            table.add_column(name, no_wrap=True)
        for tile in TILES:
            shown = self._shown[tile.name]
            found = [] if shown.newest is None else list(main_figures(shown.newest))
            alarm = tile.name == "cancelled" and day in self.alerts
            style = "bold red" if alarm else ""
            table.add_row(
                tile.title,
                Text(_written(found, tile) + (" ALERT" if alarm else ""), style),
                _sparkline(shown.history[-_HISTORY:]),
            )
        days = ", ".join(f"{_date_of(each):%d %b}" for each in self.alerts) or "none"
        table.caption = (
            f"alerts: {days}; spent at most {100 * self.spent:.0f}% of any row's lifetime budget"
        )
        return table


def _written(found: Sequence[MainFigure], tile: _Tile) -> str:
    """The newest figures of a tile: its largest cells, if it has some."""
    if not found:
        return "no answer yet"
    top = sorted(found, key=lambda one: -one.value)[:_SHOWN_CELLS]
    return "  ".join(f"{one.cell} {_number(one, tile)}".strip() for one in top)


def _number(one: MainFigure, tile: _Tile) -> str:
    if tile.fields.get("kind") == "sum":
        bar = "" if one.error_bar is None else f" ± {one.error_bar:.1f}"
        return f"{one.value:.1f}{bar}"
    bar = "" if one.error_bar is None else f" ± {100 * one.error_bar:.0f}"
    return f"{100 * one.value:.0f}{bar}%"


def _sparkline(values: Sequence[float | None]) -> str:
    """Draws numbers as bars of one line. A gap has no number."""
    known = [value for value in values if value is not None]
    if not known:
        return ""
    low, high = min(known), max(known)
    steps = len(_BLOCKS) - 1
    return "".join(
        " " if value is None else _BLOCKS[round(steps * (value - low) / ((high - low) or 1.0))]
        for value in values
    )


def summarise(console: Console, daily: Daily, report: Report, elapsed_s: float) -> None:
    """Prints what the demo showed, and raises if a promise did not hold."""
    spent = [max(block.spent) / UNITS for block in report.blocks]
    days = [f"{_date_of(day):%d %B}" for day in daily.alerts]
    wanted = [f"{_date_of(day):%d %B}" for day in daily.storms]
    rows = daily.rows
    console.print()
    console.print(
        f"[b]{rows:,} rows[/b] in {_DAYS} phases, one for each day; [b]{daily.answers} answers[/b] to "
        f"{len(TILES)} tiles, each once; {elapsed_s:.0f} s in all"
    )
    console.print(
        f"alerts on [b]{', '.join(days) or 'no day'}[/b]; more than {100 * _ALERT_ABOVE:.0f}% of the flights "
        f"were cancelled on {', '.join(wanted)}"
    )
    console.print(
        f"{daily.outside} of {daily.checked:,} figures lie outside their own error bar; 1 in 100 may. "
        f"{daily.unverified} of the answers were unverified"
    )
    console.print(
        f"spent of the lifetime budget of a day's rows (epsilon 1): [b]{100 * median(spent):.0f}%[/b] on a "
        f"typical day, {100 * max(spent):.0f}% on the first ones, when seven days were one or two"
    )
    console.print(
        f"kill -9 of the worker on day {_KILLED_ON}: {daily.recovered_s:.1f} s later all of the day's "
        "tiles were answered"
    )
    if days != wanted or daily.outside > _MOST_OUTSIDE * daily.checked:
        raise StreamDPError("the demo did not keep its promises; please report this")
