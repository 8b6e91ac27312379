"""The running totals of the newest period of one data set, tick by tick, from the topics alone."""

from __future__ import annotations

from itertools import islice
from typing import Any, Final, TypeAlias

from stream_dp.display.phase_words import moment
from stream_dp.display.running_words import RunningCell, running_cells, until_when
from stream_dp.messages import RunningTable, RunningTick
from stream_dp.web.page_data.query_words import condition_in_sql

_MOST_TICKS: Final = 120
_MOST_CELLS: Final = 40
_DRAWN_CELLS: Final = 4

_Cell: TypeAlias = tuple[str, float, float, str]
"""The name of a cell, its number as it is drawn, the half width around it, and both in words."""


class NewestPeriod:
    """The totals of one period, until its phase opens. Of many ticks some are left out.

    Times are compared as texts: they are of one zone, and dates are its midnights. In the hour that clocks
    show twice, tiles stay until the next one.
    """

    def __init__(self) -> None:
        self._since = ""
        self._opened = ""
        self._newest: dict[str, Any] | None = None
        self._course: dict[int, tuple[str, list[list[_Cell]]]] = {}

    def take(self, tick: RunningTick) -> None:
        """Takes the totals of a tick. Those of earlier periods say nothing new."""
        if tick.since < max(self._since, self._opened):
            return
        if tick.since != self._since:
            self._since, self._newest = tick.since, None
            self._course.clear()
        if tick.tick >= max(self._course, default=0):
            self._newest = _document(tick)
        drawn = [_cells(tick, tile, _DRAWN_CELLS, all_ticks=True) for tile in tick.tiles]
        self._course[tick.tick] = until_when(tick), drawn
        if len(self._course) > _MOST_TICKS:
            for number in sorted(self._course)[1:-1:2]:
                del self._course[number]

    def open(self, until: str) -> None:
        """Takes that a phase has opened, which covers the time until then. Its answers say more."""
        self._opened = max(self._opened, until)
        if self._since < self._opened:
            self._newest = None
            self._course.clear()

    def shown(self) -> dict[str, Any] | None:
        """Returns the totals as the page shows them. None where no period is open."""
        if self._newest is None:
            return None
        ticks = [self._course[number] for number in sorted(self._course)]
        courses = zip(*(drawn for _, drawn in ticks), strict=False)
        times = [time for time, _ in ticks]
        return {
            **self._newest,
            "tiles": [
                {
                    **tile,
                    "courses": [_course(times, cells) for cells in zip(*of_tile, strict=False)],
                }
                for tile, of_tile in zip(self._newest["tiles"], courses, strict=False)
            ],
        }


def _course(times: list[str], cells: tuple[_Cell, ...]) -> dict[str, Any]:
    """Returns how one cell grew."""
    points = [(time, *cell[1:]) for time, cell in zip(times, cells, strict=False)]
    return {"name": cells[-1][0], "points": points}


def _document(tick: RunningTick) -> dict[str, Any]:
    return {
        "rows": tick.rows,
        "until": until_when(tick),
        "tiles": [
            {
                "title": _title(tick, tile),
                "cells": _cells(tick, tile, _MOST_CELLS),
                "in_all": len(tile.counts),
            }
            for tile in tick.tiles
        ],
    }


def _title(tick: RunningTick, tile: RunningTable) -> str:
    by = f" by {' and '.join(tile.group_by)}" if tile.group_by else ""
    where = "" if tile.where is None else f" where {condition_in_sql(tile.where)}"
    return f"{moment(tick.since)} so far: {tick.dataset}{by}{where}, until {until_when(tick)}"


def _cells(
    tick: RunningTick, tile: RunningTable, most: int, *, all_ticks: bool = False
) -> list[_Cell]:
    return [_drawn(cell) for cell in islice(running_cells(tick, tile, all_ticks=all_ticks), most)]


def _drawn(cell: RunningCell) -> _Cell:
    """Returns a cell as it is drawn: not below 0, and with the upper end of its bar."""
    number, bar = cell.figure.number or 0.0, cell.figure.bar or 0.0
    return cell.name, max(0.0, number), max(0.0, bar + min(0.0, number)), cell.said
