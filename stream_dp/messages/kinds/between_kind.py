"""The kind ``between``: the comparison of a count with two thresholds."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stream_dp.messages.answer_forms import SideAnswer
from stream_dp.messages.kinds.kind_messages import KindSpec


class BetweenSpec(KindSpec):
    """The kind ``between``: a run of comparisons that ends after a number of answers "between".

    Attributes:
        answers: The number of answers "between" that end a run.
    """

    answers: Annotated[int, Field(ge=1, le=1000)]


class BetweenAnswer(SideAnswer):
    """The side of two shares on which the share of rows that satisfy a condition lies.

    Attributes:
        low: The smaller of the two shares.
        high: The larger of the two shares.
        found: Always None.
        error_bar: The most by which the share may be on the other side of ``low`` or ``high``.
    """

    kind: Literal["between"] = "between"
    low: float | None = None
    high: float | None = None
