"""The kinds of queries that profiles answer, without a setting of their own."""

from __future__ import annotations

from typing import Final, Literal

from stream_dp.messages.answer_forms import (
    CellsAnswer,
    CountAnswer,
    FoundAnswer,
    FoundCell,
    NoisyAnswer,
    Table,
)
from stream_dp.messages.message_base import Reply

# predicate and table: counts, which every profile answers


class PredicateAnswer(CountAnswer):
    """The number of rows that satisfy any condition.

    ``error_bar_simultaneous`` holds for all conjunctions on the same attributes and window at once, and for
    all predicates where tables alone answer.

    Attributes:
        error_bar_anytime: The half width for a query that was chosen beforehand, whenever it is asked.
    """

    kind: Literal["predicate"] = "predicate"
    error_bar_anytime: float | None = None


class TableAnswer(CellsAnswer):
    """The number of rows in each cell of a GROUP BY."""

    kind: Literal["table"] = "table"


# sum: the sum and the mean of a number


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


# share: which share of the rows of one condition satisfies another one too


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


# difference: the share of the rows of a condition in one window, minus that in another


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


# correlation: how two numbers go together


class CorrelationAnswer(NoisyAnswer):
    """The correlation (Pearson's) of two numbers over the rows that have both.

    It is that of the values that stand for bins. Values further than 2.5 deviations from the mean count as
    the last bin within.

    Attributes:
        attribute: The first number.
        other: The second number.
        value: The correlation, in [-1, 1].
        value_low: The least correlation, wherever the bars of what it follows from cover.
        value_high: The largest correlation.
        error_bar: The half width around ``value`` that reaches both ends.
    """

    kind: Literal["correlation"] = "correlation"
    attribute: str | None = None
    other: str | None = None
    value: float
    value_low: float
    value_high: float
    error_bar: float | None = None


# quantile: the bins in which a quantile lies, or a median, or the least or largest value


class QuantileAnswer(FoundAnswer):
    """The bins in which a quantile lies.

    Attributes:
        rank: The rank asked.
        found: The likely bin.
        lies_in: The bins that it lies in with ``confidence``, joined. Absent where that could be any bin.
        no_answer: Always None.
        error_bar: The largest half width around the share of the rows up to a bin, as a share of ``count``.
        count: The estimated rows that satisfy the condition and have a value.
    """

    kind: Literal["quantile"] = "quantile"
    rank: float | None = None
    lies_in: FoundCell | None = None
    count: int | None = None


class QuantileTable(Reply):
    """The cells of a quantile with GROUP BY, row by row in the order of ``attributes``.

    Attributes:
        attributes: The names of the grouped attributes.
        labels: The labels of each attribute.
        found: The likely bin in each cell. None where nothing is known.
        lies_in: The bins that the quantile of each cell lies in, joined to one. None where that could be any
            bin.
        error_bars: The largest half width around the share of the rows of a cell that lie up to any one bin.
            It is a share of the rows of the cell that have a value. None where nothing is known.
        counts: The estimated number of these rows.
    """

    attributes: tuple[str, ...]
    labels: tuple[tuple[str, ...], ...]
    found: tuple[FoundCell | None, ...]
    lies_in: tuple[FoundCell | None, ...]
    error_bars: tuple[float | None, ...]
    counts: tuple[int, ...]


class QuantileByGroupAnswer(NoisyAnswer):
    """The bins in which the quantile of each cell of a GROUP BY lies.

    Attributes:
        attribute: The attribute that was asked about.
        rank: The rank that was asked for, as a share of the rows of each cell that have a value.
        table: The cells. Each lies in its own bins with ``confidence``.
    """

    kind: Literal["quantile_by_group"] = "quantile_by_group"
    attribute: str | None = None
    rank: float | None = None
    table: QuantileTable


PROFILE_ANSWERS: Final[tuple[type[NoisyAnswer], ...]] = (
    *(PredicateAnswer, TableAnswer, SumAnswer, SumByGroupAnswer, ShareAnswer, ShareByGroupAnswer),
    *(DifferenceAnswer, DifferenceByGroupAnswer, CorrelationAnswer),
    *(QuantileAnswer, QuantileByGroupAnswer),
)
"""The answers of these kinds."""
