"""The kind ``difference``: the share of the rows of a condition in one window, minus that in another."""

from __future__ import annotations

from typing import Literal

from stream_dp.messages.answer_forms import NoisyAnswer
from stream_dp.messages.message_base import Reply


class DifferenceAnswer(NoisyAnswer):
    """By how much the share of a condition differs between two windows.

    ``n`` and ``window`` are those of the window itself.

    Attributes:
        value: The share of the rows in ``window`` minus that in ``minus_window``.
        error_bar: The half width around ``value``.
        count: The difference of the two counts.
        count_bar: The half width around ``count``.
        minus_window: The first and the last phase of the window that was subtracted.
        minus_n: The number of its rows.
    """

    kind: Literal["difference"] = "difference"
    value: float
    error_bar: float | None = None
    count: int
    count_bar: float | None = None
    minus_window: tuple[int, int]
    minus_n: int


class DifferenceTable(Reply):
    """The cells of a difference with GROUP BY, row by row in the order of ``attributes``.

    Attributes:
        attributes: The names of the grouped attributes.
        labels: The labels of each attribute.
        values: The share of the rows in each cell in ``window``, minus that in ``minus_window``.
        counts: The estimated rows in each cell in ``window``, minus those in ``minus_window``.
        error_bars: The half width around each value. None where nothing is known.
        count_bars: The half width around each count, in rows.
    """

    attributes: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    values: tuple[float, ...]
    counts: tuple[int, ...]
    error_bars: tuple[float | None, ...]
    count_bars: tuple[float | None, ...]


class DifferenceByGroupAnswer(NoisyAnswer):
    """By how much the share of each cell of a GROUP BY differs between two windows.

    Attributes:
        table: The cells. Each has its own error bars.
        minus_window: The first and the last phase of the window that was subtracted.
        minus_n: The number of its rows.
    """

    kind: Literal["difference_by_group"] = "difference_by_group"
    table: DifferenceTable
    minus_window: tuple[int, int]
    minus_n: int
