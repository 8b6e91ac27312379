"""Running totals in words: the cells of a tile with their figures, and until when they count."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from stream_dp.display.figure_text import text
from stream_dp.display.figures import Figure
from stream_dp.messages import RunningTable, RunningTick


class RunningCell(NamedTuple):
    """One cell of a tile, in the period so far.

    Attributes:
        name: Its labels. Empty for the count of a condition.
        figure: The rows, with an error bar.
        said: The same in words.
    """

    name: str
    figure: Figure
    said: str


def running_cells(
    tick: RunningTick, tile: RunningTable, *, all_ticks: bool = False
) -> Iterator[RunningCell]:
    """Yields the cells of a tile. No cell has fewer rows than none, or more than have come.

    Args:
        tick: The tick that the tile is of.
        tile: The tile.
        all_ticks: Whether to take the error bars that hold at all ticks of the period at once.
    """
    bar = tile.count_bar_all_ticks if all_ticks else tile.count_bar
    for labels, count in zip(itertools.product(*tile.labels), tile.counts, strict=True):
        low, high = (min(max(0.0, end), float(tick.rows)) for end in (count - bar, count + bar))
        figure = Figure(count, bar, (low, high))
        yield RunningCell(" · ".join(labels), figure, text(figure, "rows", tick.least_cell))


def until_when(tick: RunningTick) -> str:
    """Says until when a tick counts: with the date only if that is another one than at the beginning."""
    if "T" not in tick.until:
        return tick.until
    date, time = tick.until[:10], tick.until[11:16]
    return time if tick.since.startswith(date) else f"{date} {time}"
