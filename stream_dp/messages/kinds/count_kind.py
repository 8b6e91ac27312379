"""The kinds ``predicate`` and ``table``: counts, which every profile answers."""

from __future__ import annotations

from typing import Literal

from stream_dp.messages.answer_forms import CellsAnswer, CountAnswer


class PredicateAnswer(CountAnswer):
    """The number of rows that satisfy any condition.

    ``error_bar_simultaneous`` holds for all conjunctions on the same attributes and window at once, and for
    all predicates where tables alone answer.

    Attributes:
        error_bar_anytime: The half width for a query fixed beforehand, whenever it is asked.
    """

    kind: Literal["predicate"] = "predicate"
    error_bar_anytime: float | None = None


class TableAnswer(CellsAnswer):
    """The number of rows in each cell of a GROUP BY."""

    kind: Literal["table"] = "table"
