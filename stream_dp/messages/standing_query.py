"""Standing queries: what a worker lists of each, and what an answer says in numbers with their bars."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import Field, model_validator

from stream_dp.messages.answer_forms import (
    Answer,
    CellsAnswer,
    CountAnswer,
    NoisyAnswer,
    PrivacyLoss,
    Table,
)
from stream_dp.messages.kinds.count_kind import PredicateAnswer, TableAnswer
from stream_dp.messages.kinds.difference_kind import DifferenceAnswer, DifferenceByGroupAnswer
from stream_dp.messages.kinds.share_kind import ShareAnswer, ShareByGroupAnswer
from stream_dp.messages.kinds.sum_kind import SumAnswer, SumByGroupAnswer
from stream_dp.messages.message_base import Finite, Reply, Request
from stream_dp.messages.series import SeriesAnswer

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

    def holds(self, figure: Figure) -> bool:
        """Returns whether the whole error bar is on the side that was named."""
        if figure.error_bar is None:
            return False
        if self.above is not None:
            return figure.value - figure.error_bar > self.above
        assert self.below is not None, "one of them is there"
        return figure.value + figure.error_bar < self.below


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

    def to_bytes(self) -> bytes:
        return self.__pydantic_serializer__.to_json(self, exclude_none=True)


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


class Figure(NamedTuple):
    """One number of an answer: a share, or the mean of a sum.

    Attributes:
        cell: The labels of the cell, separated by commas. Empty where the answer is one number.
        value: The number.
        error_bar: The half width around it. None where it is not known.
    """

    cell: str
    value: float
    error_bar: float | None


def figures(answer: Answer, *, anytime: bool = False) -> Iterator[Figure]:
    """Yields the numbers of an answer with their bars, cell by cell. Answers of other forms have none.

    Args:
        answer: The answer. The numbers of a series are those of its newest part.
        anytime: Whether to take the bars of counts that hold at all times, where there are any.
    """
    match answer:
        case SeriesAnswer():
            if answer.parts:
                yield from figures(answer.parts[-1].answer, anytime=anytime)
            return
        case ShareAnswer():
            found = [(answer.share, answer.share_bar)]
        case SumAnswer():
            found = [(answer.mean, answer.mean_bar)]
        case PredicateAnswer(error_bar_anytime=float(bar)) if anytime:
            found = [(answer.value, bar)]
        case TableAnswer(table=Table(error_bars_anytime=tuple(bars))) if anytime:
            found = [*zip(answer.table.values, bars, strict=True)]
        case CountAnswer() | DifferenceAnswer():
            found = [(answer.value, answer.error_bar)]
        case ShareByGroupAnswer():
            found = [*zip(answer.table.shares, answer.table.share_bars, strict=True)]
        case SumByGroupAnswer():
            found = [*zip(answer.table.means, answer.table.mean_bars, strict=True)]
        case CellsAnswer() | DifferenceByGroupAnswer():
            found = [*zip(answer.table.values, answer.table.error_bars, strict=True)]
        case _:
            return
    for cell, (value, error_bar) in zip(_cells(answer), found, strict=True):
        if value is not None:
            yield Figure(cell, value, error_bar)


def _cells(answer: NoisyAnswer) -> Iterator[str]:
    table = getattr(answer, "table", None)
    if table is None:
        yield ""
        return
    for labels in product(*table.labels):
        yield ", ".join(label.replace(",", "\\,") for label in labels)
