"""The kind ``threshold``: ranges of a number, and its whole curve."""

from __future__ import annotations

from typing import Literal

from pydantic import StrictBool

from stream_dp.messages.answer_forms import CellsAnswer, CountAnswer
from stream_dp.messages.kinds.kind_messages import KindSpec


class ThresholdSpec(KindSpec):
    """The kind ``threshold``: one look for each attribute and block, then all is free.

    Attributes:
        partition: Whether bins are joined first, for very many bins and few rows.
    """

    partition: StrictBool = False


class ThresholdAnswer(CountAnswer):
    """The number of rows in a range of a number.

    ``error_bar_simultaneous`` holds for all ranges of the attribute at once.

    Attributes:
        attribute: The attribute that was asked about.
        error_bar_simultaneous: The half width for all ranges of the attribute at once.
        count_bar: Always None: no person is protected.
    """

    kind: Literal["threshold"] = "threshold"
    attribute: str | None = None


class ThresholdCurveAnswer(CellsAnswer):
    """The number of rows at or below the end of each bin of a number, as a table of one attribute."""

    kind: Literal["threshold_curve"] = "threshold_curve"
