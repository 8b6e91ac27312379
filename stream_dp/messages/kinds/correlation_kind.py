"""The kind ``correlation``: how two numbers go together."""

from __future__ import annotations

from typing import Literal

from stream_dp.messages.answer_forms import NoisyAnswer


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
