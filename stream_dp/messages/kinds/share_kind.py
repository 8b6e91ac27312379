"""The kind ``share``: which share of the rows of one condition satisfies another one too."""

from __future__ import annotations

from typing import Literal

from stream_dp.messages.answer_forms import NoisyAnswer, Table


class ShareAnswer(NoisyAnswer):
    """The share of the rows that satisfy ``where`` that satisfies ``share_of`` too.

    Attributes:
        share: The share, in [0, 1]. Absent where it may be anything, or there may be no rows.
        share_bar: The half width around ``share``.
        value: The share of the ``n`` rows that satisfy ``where``.
        count: The estimated number of these rows.
        count_bar: The half width around ``count``. Only where a person is protected.
        error_bar: The half width around ``value``, which ``accuracy.error`` does not bound.
        both: The estimated number of rows that satisfy both conditions.
        both_bar: The half width around ``both``, which ``accuracy.error`` bounds.
        share_low: The least share, wherever ``share_bar`` covers: never below 0.
        share_high: The largest share: never above 1.
        low: The fewest rows that ``count`` may stand for, wherever its bar covers.
        high: The most rows.
    """

    kind: Literal["share"] = "share"
    share: float | None = None
    share_bar: float | None = None
    share_low: float | None = None
    share_high: float | None = None
    value: float
    count: int
    low: int | None = None
    high: int | None = None
    count_bar: float | None = None
    error_bar: float | None = None
    both: int
    both_bar: float | None = None


class ShareTable(Table):
    """The cells of a share with GROUP BY. ``values`` and ``counts`` are of the rows that satisfy ``where``.

    Attributes:
        shares: The share of these rows in each cell that satisfies ``share_of`` too. None where nothing is
            known of it.
        share_bars: The half width around each of ``shares``.
        both: The estimated rows in each cell that satisfy both conditions.
        both_bars: The half width around each of ``both``, in rows.
        share_lows: The least share of each cell, wherever its bar covers.
        share_highs: The largest share of each cell.
    """

    shares: tuple[float | None, ...]
    share_bars: tuple[float | None, ...]
    both: tuple[int, ...]
    both_bars: tuple[float | None, ...]
    share_lows: tuple[float | None, ...] | None = None
    share_highs: tuple[float | None, ...] | None = None


class ShareByGroupAnswer(NoisyAnswer):
    """The share in each cell of a GROUP BY.

    Attributes:
        table: The cells. Each has its own error bars, in the units that ``ShareTable`` says.
    """

    kind: Literal["share_by_group"] = "share_by_group"
    table: ShareTable
