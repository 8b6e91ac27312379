"""Standing queries: what a worker lists of each, the ids of their answers, and when one raises an alert."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import Field, model_validator

from stream_dp.messages.answer_forms import PrivacyLoss
from stream_dp.messages.message_base import Finite, Reply, Request

MOST_STANDING: Final = 1_000
"""The most standing queries of a data set."""

LONGEST_ID: Final = 117
"""The longest id of a standing query: with "@" and the number of a phase it is still an id."""

_IN_PHASE: Final = re.compile(r"(.+)@([0-9]{1,10})")

ALERT_KINDS: Final = ("predicate", "table", "sum", "share", "difference", "threshold")
"""The kinds whose answers are numbers with an error bar."""


class AlertSpec(Request):
    """When a standing query raises an alert: when the whole error bar is on one side of a number.

    Attributes:
        above: The number that the whole bar must be above.
        below: The number that the whole bar must be below.
    """

    above: Finite | None = None
    below: Finite | None = None

    @model_validator(mode="after")
    def _one_side(self) -> AlertSpec:
        if (self.above is None) == (self.below is None):
            raise ValueError("write either above or below")
        return self

    def holds(self, value: float, bar: float | None) -> bool:
        """Returns whether the whole error bar around a value is on the side that was named."""
        if bar is None:
            return False
        if self.above is not None:
            return value - bar > self.above
        assert self.below is not None, "one of them is there"
        return value + bar < self.below


class StandingQuery(Reply):
    """A query that is answered again in each phase, as the topic ``standing`` lists it.

    Attributes:
        analyst: Who began it.
        query_id: Its id. Its answers have the ids ``query_id@phase``.
        query: Its fields, as they were sent.
        since_phase: The number of open phases when it began.
        since_ms: The time of its message, in milliseconds since 1970.
        phase: The phase of its newest answer.
        next_loss: The expected cost of the next answer: that of the newest one.
    """

    version: Literal[1] = 1
    dataset: str
    analyst: str
    query_id: str
    query: dict[str, Any]
    since_phase: Annotated[int, Field(ge=0)]
    since_ms: int | None = None
    phase: int | None = None
    next_loss: PrivacyLoss | None = None


def standing_key(dataset: str, analyst: str, query_id: str) -> str:
    """The key of a standing query's record. Neither names nor ids hold a blank."""
    return f"{dataset} {analyst} {query_id}"


def id_in_phase(query_id: str, phase: int) -> str:
    """The id of a standing query's answer for a phase."""
    return f"{query_id}@{phase}"


def phase_in_id(query_id: str) -> tuple[str, int] | None:
    """The standing query and the phase that the id of an answer names. None for all ids of other answers.

    Only standing queries are answered under such an id.
    """
    found = _IN_PHASE.fullmatch(query_id)
    return None if found is None else (found[1], int(found[2]))
