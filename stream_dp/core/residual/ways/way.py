"""What all ways of answering have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.mechanism import Look, Quote, Release
from stream_dp.core.outcome import Outcome, RefusalCode, Refused
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.belief.linear_forms import MAX_SPECTRUM
from stream_dp.core.residual.belief.sums import is_total
from stream_dp.core.residual.plan.planner import (
    MAX_TABLE_CELLS,
    BudgetAllocator,
    Lack,
    MeasureCounts,
    Unproven,
)
from stream_dp.core.residual.plan.sum_plan import MeasureSums
from stream_dp.core.residual.plan.targets import terms_of, too_dear
from stream_dp.core.residual.public_state import PublicState

MOST_DRAWN: Final = 2**22
"""Draws of noise for one query: its measurements fit into one commit."""

TOO_MANY_DRAWS: Final = Refused(
    RefusalCode.TOO_MANY_CELLS,
    "the attributes have too many cells together for this many phases; ask about fewer of either at once",
)

_TOO_MANY_CELLS: Final = Refused(
    RefusalCode.TOO_MANY_CELLS,
    "the attributes have too many cells together; ask about fewer at once",
)

_TOO_FEW_COUNT: Final = Refused(
    RefusalCode.WINDOW_TOO_SMALL,
    "so few rows of the window count that no share of them can be promised; ask about more phases",
)

OUT_OF_REACH: Final = (
    "by today's estimates no look that may be paid is precise enough; the price is that of a first look, "
    "which finds out more"
)
"""What a quote says where the looks that are expected do not suffice."""

NOTHING_PAID: Final[Mapping[int, int]] = {}
"""What a query has taken of the lines before its first look."""

_Plan = TypeVar("_Plan")


class Way(ABC):
    """One way of answering: the plan, the looks and the answer for one kind of promise.

    Args:
        state: What is published, promised and left to spend. All decisions follow from it.
    """

    def __init__(self, state: PublicState) -> None:
        self.state = state

    @abstractmethod
    def answer(self, query: LinearQuery) -> Outcome | Look:
        """Answers from what is published, refuses, or says which look it needs."""

    @abstractmethod
    def conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        """The answer after a look, whose release was absorbed, or the next look that it needs."""

    @abstractmethod
    def quote(self, query: LinearQuery) -> Quote:
        """The price now; changes nothing."""

    def settled(self, query: LinearQuery) -> Outcome | None:
        """The outcome where no plan is needed for it: a repeat, a refusal, or what is certain."""
        window, predicate = query.window, query.predicate
        if window.stop > len(self.state.belief):
            return Refused(RefusalCode.NO_PHASE, "the window holds a phase that is not open yet")
        plain = not query.fresh and query.difference is None and query.rank is None
        known = self.state.repeated(query) if plain else None
        if known is not None:
            return known
        n_rows = self.state.rows(window)
        if n_rows == 0:
            return Refused(RefusalCode.WINDOW_TOO_SMALL, "the window holds no rows")
        refusal = self.state.limits.refusal(terms_of(self.state.terms, query, n_rows))
        if refusal is not None:
            return refusal
        certain = predicate.constant is False or is_total(
            predicate, query.group_by, known=self.state.belief.total_known
        )
        if certain and query.total is None and query.difference is None and query.rank is None:
            count = n_rows if predicate.constant else 0
            return self.state.answers.certain(query, count, n_rows)
        if self.state.counted is not None and self.state.terms_for(query).error <= 0.0:
            return _TOO_FEW_COUNT
        return _TOO_MANY_CELLS if self._too_many_cells(query) else None

    def planned(
        self, query: LinearQuery, plan: Callable[[BudgetAllocator], _Plan]
    ) -> _Plan | Refused:
        """The plan within what a query may pay; a refusal with the price where only a dearer one answers.

        Args:
            query: The query.
            plan: Plans with these lines.
        """
        most = self.state.most(query)
        decision = plan(self.state.lines_for(query, most))
        if most is None or not isinstance(decision, Unproven | Lack):
            return decision
        dearer = plan(self.state.lines_for(query, None))
        if isinstance(dearer, MeasureCounts | MeasureSums):
            return too_dear(dearer.charges, most)
        return dearer

    def _too_many_cells(self, query: LinearQuery) -> bool:
        shape = self.state.shape
        n_entries = math.prod([shape[a] + 1 for a in query.attributes])
        n_answers = math.prod([shape[a] for a in query.group_by])
        return n_entries > MAX_SPECTRUM or n_answers > MAX_TABLE_CELLS


def paid_with(paid: Mapping[int, int], charges: tuple[Charge, ...]) -> dict[int, int]:
    """Units taken of each block's line, with these charges on top."""
    total = dict(paid)
    for charge in charges:
        total[charge.block] = total.get(charge.block, 0) + charge.rho
    return total
