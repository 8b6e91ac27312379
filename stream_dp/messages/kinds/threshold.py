"""The kinds ``threshold`` and ``quantile``: ranges of a number, its whole curve, and its quantiles."""

from __future__ import annotations

from typing import Literal

from pydantic import StrictBool

from stream_dp.messages.forms import CellsAnswer, CountAnswer, FoundAnswer, FoundCell
from stream_dp.messages.kinds.base import KindMessages, KindSpec, QueryShape

__all__ = [
    "THRESHOLD",
    "QuantileAnswer",
    "ThresholdAnswer",
    "ThresholdCurveAnswer",
    "ThresholdSpec",
]


class ThresholdSpec(KindSpec):
    """The kinds ``threshold`` and ``quantile``: one look for each attribute and block, then all is free.

    Attributes:
        partition: Whether bins are first joined to segments. It helps with very many bins and few rows.
    """

    partition: StrictBool = False


class ThresholdAnswer(CountAnswer):
    """The number of rows in a range of a number.

    ``error_bar_simultaneous`` holds for all ranges of the attribute at once.

    Attributes:
        count_bar: Always None: no person is protected.
    """

    kind: Literal["threshold"] = "threshold"
    attribute: str | None = None


class ThresholdCurveAnswer(CellsAnswer):
    """The number of rows at or below the end of each bin of a number, as a table of one attribute."""

    kind: Literal["threshold_curve"] = "threshold_curve"


class QuantileAnswer(FoundAnswer):
    """The bin in which a quantile lies.

    Attributes:
        rank: The rank that was asked for, as a share of the rows that have a value.
        found: The bin.
        no_answer: Always None: there is always a bin.
        error_bar: The largest distance between the bin's rank and ``rank``, as a share of the ``n`` rows.
    """

    kind: Literal["quantile"] = "quantile"
    found: FoundCell
    rank: float | None = None


THRESHOLD = KindMessages(
    queries={
        "threshold": QueryShape(needs=("attribute",), may_have=("where",)),
        "quantile": QueryShape(needs=("attribute", "rank")),
    },
    answers={
        "threshold": ThresholdAnswer,
        "threshold_curve": ThresholdCurveAnswer,
        "quantile": QuantileAnswer,
    },
)
