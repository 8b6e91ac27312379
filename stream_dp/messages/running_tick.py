"""What is published of a period that has not closed."""

from __future__ import annotations

from typing import Any, Literal

from stream_dp.messages.message_base import Reply


class RunningTable(Reply):
    """The counts of one tile: of the period so far, and of the last tick.

    Attributes:
        where: The condition on the rows.
        group_by: The attributes of a table.
        labels: The labels of the cells of each attribute. The last attribute varies fastest.
        counts: The rows of the period so far in each cell; one number for a condition alone.
        count_bar: The error bar of each.
        count_bar_all_ticks: The error bar of each, where those of all ticks of the period hold at once.
        last_counts: The rows that came since the tick before.
        last_count_bar: The error bar of each of these.
    """

    where: dict[str, Any] | None = None
    group_by: tuple[str, ...] = ()
    labels: tuple[tuple[str, ...], ...] = ()
    counts: tuple[float, ...]
    count_bar: float
    count_bar_all_ticks: float
    last_counts: tuple[float, ...]
    last_count_bar: float


class RunningTick(Reply):
    """The totals of a period at one of its ticks.

    Attributes:
        dataset: The data set.
        since: When the period begins.
        until: Up to when it is counted; the end of the period at its last tick.
        tick: The number of the tick.
        ticks: The ticks of the period.
        rows: The rows that have come. Where persons are protected, fewer may count.
        confidence: The probability with which an error bar covers.
        tiles: The counts, in the order of the definition.
        share: The share of a line that all ticks of the period cost together.
    """

    version: Literal[1] = 1
    dataset: str
    since: str
    until: str
    tick: int
    ticks: int
    rows: int
    confidence: float
    tiles: tuple[RunningTable, ...]
    share: float
