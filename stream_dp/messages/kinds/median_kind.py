"""The kind ``median``: the exact bin in which the median lies."""

from __future__ import annotations

from typing import Literal

from stream_dp.messages.answer_forms import FoundAnswer
from stream_dp.messages.kinds.kind_messages import KindSpec


class StableMedianSpec(KindSpec):
    """The kind ``median``: the exact bin, or no answer. Each new query is a look."""


class MedianAnswer(FoundAnswer):
    """The bin in which the median lies.

    Attributes:
        found: The exact bin.
        no_answer: True if the bin must not be named, because some rows could change it.
        error_bar: 0 where the rank is exact.
    """

    kind: Literal["median"] = "median"
