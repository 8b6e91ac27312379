"""The kind ``prefix_batch``: many conditions on one attribute at once."""

from __future__ import annotations

from typing import Literal

from stream_dp.messages.answer_forms import NoisyAnswer
from stream_dp.messages.kinds.kind_messages import KindSpec
from stream_dp.messages.message_base import Reply


class PrefixBatchSpec(KindSpec):
    """The kind ``prefix_batch``: one synthetic histogram answers all conditions of a batch."""


class Batched(Reply):
    """The answers to a batch, in the order of its conditions.

    Attributes:
        values: The share of the rows that satisfy each condition.
        counts: The estimated rows that satisfy each condition.
    """

    values: tuple[float, ...]
    counts: tuple[int, ...]


class PrefixBatchAnswer(NoisyAnswer):
    """The number of rows that satisfy each of many conditions on one attribute.

    Attributes:
        attribute: The attribute that the conditions are about.
        batch: The shares and counts, in the order of the conditions.
        error_bar_simultaneous: The half width around each share, for all of them at once.
    """

    kind: Literal["prefix_batch"] = "prefix_batch"
    attribute: str | None = None
    batch: Batched
    error_bar_simultaneous: float | None = None
