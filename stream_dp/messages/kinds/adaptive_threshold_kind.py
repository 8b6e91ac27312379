"""The kind ``adaptive_threshold``: counts below values that were chosen one after another."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stream_dp.messages.answer_forms import CountAnswer
from stream_dp.messages.kinds.kind_messages import KindSpec


class AdaptiveThresholdSpec(KindSpec):
    """The kind ``adaptive_threshold``: a run for each attribute and window, for a number of thresholds.

    Attributes:
        chunks: The number of parts of the ordered rows.
        queries: The number of queries of a run for which bars hold.
    """

    chunks: Annotated[int, Field(ge=2, le=1000)]
    queries: Annotated[int, Field(ge=1, le=10**9)]


class AdaptiveThresholdAnswer(CountAnswer):
    """The number of rows at or below a value.

    ``error_bar`` and ``error_bar_simultaneous`` are the same: they hold for all queries of a run at once,
    however they were chosen.

    Attributes:
        attribute: The attribute that was asked about.
        error_bar: The half width around ``value``, for all queries of the run at once.
        error_bar_simultaneous: The same.
        count_bar: Always None: no person is protected.
    """

    kind: Literal["adaptive_threshold"] = "adaptive_threshold"
    attribute: str | None = None
