"""The kind ``interior_point``: the side of some row on which a point lies."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from stream_dp.messages.answer_forms import SideAnswer
from stream_dp.messages.kinds.kind_messages import KindSpec


class InteriorPointSpec(KindSpec):
    """The kind ``interior_point``: a run for each attribute and window, for a number of points.

    Attributes:
        points: The number of points of a run for which answers are right.
    """

    points: Annotated[int, Field(ge=1, le=10**9)]


class InteriorPointAnswer(SideAnswer):
    """On which side of some row a point lies.

    Attributes:
        attribute: The number that the point is a value of.
        found: The bin that ends at the point that was kept.
        error_bar: Always None: the answer is right, with ``confidence``.
    """

    kind: Literal["interior_point"] = "interior_point"
    attribute: str | None = None
