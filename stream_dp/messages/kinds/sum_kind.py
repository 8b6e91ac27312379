"""The kind ``sum``: the sum and the mean of a number."""

from __future__ import annotations

from typing import Literal

from stream_dp.messages.answer_forms import NoisyAnswer, Table


class SumAnswer(NoisyAnswer):
    """The sum and the mean of a number over the rows that satisfy a condition.

    Attributes:
        attribute: The number that is added up.
        value: The share of the ``n`` rows that satisfy the condition and have a value.
        count: The estimated number of these rows.
        count_bar: The half width around ``count``. Only where a person is protected.
        error_bar: The half width around ``value``, which ``accuracy.error`` does not bound.
        total: The estimated sum over these rows, in the attribute's own unit.
        total_bar: The half width around ``total``.
        mean: ``total`` divided by ``count``. Absent where it may be anything, or there may be no rows.
        mean_bar: The half width around ``mean``.
        mean_binning: Half the bin of ``mean``, which ``mean_bar`` leaves out. Absent with ``measure``, and
            in an outer bin.
        rows: The estimated rows, with those without a value. Only with ``count_rows``.
        rows_bar: The half width around ``rows``.
        up_to: The most that a row counts for.
        low: The fewest rows that ``count`` may stand for, wherever its bar covers.
        high: The most rows.
        total_low: The least sum, wherever ``total_bar`` covers.
        total_high: The largest sum.
        mean_low: The least mean, wherever ``mean_bar`` covers.
        mean_high: The largest mean.
        clamped_until: The last phase whose values count within narrower bounds than now.
    """

    kind: Literal["sum"] = "sum"
    attribute: str | None = None
    up_to: float | None = None
    clamped_until: int | None = None
    value: float
    count: int
    low: int | None = None
    high: int | None = None
    count_bar: float | None = None
    error_bar: float | None = None
    total: float
    total_bar: float | None = None
    mean: float | None = None
    mean_bar: float | None = None
    mean_binning: float | None = None
    total_low: float | None = None
    total_high: float | None = None
    mean_low: float | None = None
    mean_high: float | None = None
    rows: int | None = None
    rows_bar: float | None = None


class SumTable(Table):
    """The cells of a sum with GROUP BY. ``values`` and ``counts`` are of the rows that have a value.

    Attributes:
        totals: The estimated sum in each cell, in the attribute's own unit.
        total_bars: The half width around each total.
        means: The total of each cell divided by its count. None where nothing is known of it.
        mean_bars: The half width around each mean.
        mean_binnings: Half the width of the bin that each mean lies in, which the bars leave out. None for an
            outer bin. Only if the values themselves are not kept.
        rows: The estimated rows in each cell, including those without a value. Only if the query counts them.
        rows_bars: The half width around each of ``rows``, in rows.
        total_lows: The least sum of each cell, wherever its bar covers.
        total_highs: The largest sum of each cell.
        mean_lows: The least mean of each cell, wherever its bar covers.
        mean_highs: The largest mean of each cell.
    """

    totals: tuple[float, ...]
    total_bars: tuple[float | None, ...]
    means: tuple[float | None, ...]
    mean_bars: tuple[float | None, ...]
    mean_binnings: tuple[float | None, ...] | None = None
    rows: tuple[int, ...] | None = None
    rows_bars: tuple[float | None, ...] | None = None
    total_lows: tuple[float, ...] | None = None
    total_highs: tuple[float, ...] | None = None
    mean_lows: tuple[float | None, ...] | None = None
    mean_highs: tuple[float | None, ...] | None = None


class SumByGroupAnswer(NoisyAnswer):
    """The sum and the mean of a number in each cell of a GROUP BY.

    Attributes:
        attribute: The number that is added up.
        up_to: The most that a row counts for. None where the query names nothing.
        clamped_until: The last phase whose values count within narrower bounds than now.
        table: The cells. Each has its own error bars, in the units that ``SumTable`` says.
    """

    kind: Literal["sum_by_group"] = "sum_by_group"
    attribute: str | None = None
    up_to: float | None = None
    clamped_until: int | None = None
    table: SumTable
