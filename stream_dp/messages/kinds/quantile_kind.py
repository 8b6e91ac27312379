"""The kind ``quantile``: the bins in which a quantile lies, or a median, or the least or largest value."""

from __future__ import annotations

from typing import Literal

from stream_dp.messages.answer_forms import FoundAnswer, FoundCell, NoisyAnswer
from stream_dp.messages.message_base import Reply


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
