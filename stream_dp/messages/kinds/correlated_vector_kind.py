"""The kind ``correlated_vector``: a noisy sign of each row."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stream_dp.messages.answer_forms import NoisyAnswer
from stream_dp.messages.kinds.kind_messages import KindSpec
from stream_dp.messages.message_base import AttributeName, Reply


class CorrelatedVectorSpec(KindSpec):
    """The kind ``correlated_vector``: each row responds once, when its phase opens. Queries are free.

    Attributes:
        attribute: The boolean attribute.
    """

    attribute: AttributeName


class Vector(Reply):
    """A sign for each row asked, in order of arrival. docs/messages.md says how to use it.

    Attributes:
        bits: A bit for each row, 1 for +1, in base64. The first row has the highest bit of the first byte.
        agreement: The mean of the product of a row's sign with that of its private bit.
    """

    bits: Annotated[str, Field(repr=False)]
    agreement: float


class CorrelatedVectorAnswer(NoisyAnswer):
    """A noisy sign of each row about a boolean attribute.

    Attributes:
        attribute: The boolean attribute.
        vector: The signs.
        error_bar: The half width for one vector that was fixed beforehand.
    """

    kind: Literal["correlated_vector"] = "correlated_vector"
    attribute: str | None = None
    vector: Vector
    error_bar: float | None = None
