"""The kind ``mode``: the exact most frequent value."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stream_dp.messages.answer_forms import FoundAnswer
from stream_dp.messages.kinds.kind_messages import KindSpec


class ModeSpec(KindSpec):
    """The kind ``mode``: the exact most frequent cell, or no answer. Each new query is a look.

    Attributes:
        groups: The number of random groups of rows, with a vote each. Default: every row has a vote.
    """

    groups: Annotated[int, Field(ge=1)] | None = None


class ModeAnswer(FoundAnswer):
    """The most frequent value.

    Attributes:
        found: The exact value.
        no_answer: True if the value must not be named, because some rows could change it.
        error_bar: Always None: the value has no rank.
    """

    kind: Literal["mode"] = "mode"
