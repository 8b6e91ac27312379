"""What all ways of answering have in common."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import ClassVar, Final, TypeVar

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.mechanism import Look, Quote, Release
from stream_dp.core.outcome import Outcome, RefusalCode, Refused
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.belief.joined_evidence import JoinedEvidence
from stream_dp.core.residual.belief.linear_forms import MAX_SPECTRUM
from stream_dp.core.residual.belief.sums import is_total
from stream_dp.core.residual.looks.composed_looks import AnyLook, JoinedLook
from stream_dp.core.residual.looks.sum_look import SumLook
from stream_dp.core.residual.looks.table_looks import QUERY, CountsLook, Part, TablesLook
from stream_dp.core.residual.plan.planner import (
    MAX_TABLE_CELLS,
    MOST_DRAWN,
    BudgetAllocator,
    Lack,
    MeasureCounts,
    Unproven,
)
from stream_dp.core.residual.plan.sum_plan import MeasureSums
from stream_dp.core.residual.plan.sum_price import WholeValues
from stream_dp.core.residual.plan.targets import terms_of, too_dear
from stream_dp.core.residual.public_state import PublicState

_TOO_MANY_DRAWS: Final = Refused(
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

ROWS_CHANGED: Final = Refused(
    RefusalCode.ROWS_CHANGED,
    "rows of the window were erased or corrected since they were sealed, so several looks would be about "
    "different rows; leave the error out, or write it as a share of the rows",
)

OUT_OF_REACH: Final = (
    "by today's estimates no look that may be paid is precise enough; the price is that of a first look, "
    "which finds out more"
)
"""What a quote says where the looks that are expected do not suffice."""

NOTHING_PAID: Final[Mapping[int, int]] = {}
"""What a query has taken of the lines before its first look."""

Measure = MeasureCounts | MeasureSums
"""What a plan measures."""

_Plan = TypeVar("_Plan")


class Way(ABC):
    """One way of answering: the plan, the looks and the answer for one kind of promise.

    Args:
        state: What is published, promised and left to spend. All decisions follow from it.
    """

    stands_alone: ClassVar[bool] = False
    """Whether its looks answer by themselves, also where rows were changed since others were taken."""

    def __init__(self, state: PublicState) -> None:
        self.state = state
        self.spending = state.spending

    def answer(self, query: LinearQuery) -> Outcome | Look:
        """Answers from what is published, refuses, or says which look it needs."""
        return self.settled(query) or self.begin(query)

    @abstractmethod
    def begin(self, query: LinearQuery) -> Outcome | Look:
        """The same for a query that is not settled."""

    @abstractmethod
    def conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        """The answer after a look, whose release was absorbed, or the next look that it needs."""

    @abstractmethod
    def quote(self, query: LinearQuery) -> Quote:
        """The price now; changes nothing."""

    def settled(self, query: LinearQuery) -> Outcome | None:
        """The outcome where no plan is needed for it: a repeat, a refusal, or what is certain."""
        window, predicate, state = query.window, query.predicate, self.state
        if window.stop > len(state.belief):
            return Refused(RefusalCode.NO_PHASE, "the window holds a phase that is not open yet")
        of_counts = query.difference is None and query.rank is None
        known = state.repeats.answer(query) if of_counts and not query.fresh else None
        if known is not None:
            return known
        n_rows = state.rows(window)
        if n_rows == 0:
            return Refused(RefusalCode.WINDOW_TOO_SMALL, "the window holds no rows")
        refusal = state.settings.limits.refusal(terms_of(state.terms, query, n_rows))
        if refusal is not None:
            return refusal
        parts = state.versions.parts(query)
        if parts is not None:
            return self._settled_over_versions(query)
        certain = predicate.constant is False or is_total(
            predicate, query.group_by, known=state.belief.total_known
        )
        if certain and of_counts and query.total is None:
            return state.answers.certain(query, n_rows if predicate.constant else 0)
        if state.counted is not None and state.terms_for(query).error <= 0.0:
            return _TOO_FEW_COUNT
        n_entries = math.prod([state.shape[a] + 1 for a in query.attributes])
        n_answers = math.prod([state.shape[a] for a in query.group_by])
        too_many = n_entries > MAX_SPECTRUM or n_answers > MAX_TABLE_CELLS
        return _TOO_MANY_CELLS if too_many else None

    def _settled_over_versions(self, query: LinearQuery) -> Outcome | None:
        """The same of a query about blocks of which some have older attributes."""
        if not self.state.versions.is_told_across(query):
            assert self.state.versions.projection is not None, "there are several versions"
            since = self.state.versions.projection.since(query)
            return Refused(
                RefusalCode.NOT_RECORDED,
                f"window: before phase {since + 1:,} an attribute that is asked about had other cells or "
                f"values; ask about phases from {since + 1:,} on, or about those before",
            )
        if query.difference is None and query.total is None:
            evidence = self.state.evidence(query)
            if isinstance(evidence, JoinedEvidence) and evidence.is_certain:
                return self.state.answers.exactly(query, evidence)
        return None

    def planned(
        self, query: LinearQuery, plan: Callable[[BudgetAllocator], _Plan]
    ) -> _Plan | Refused:
        """The plan within what a query may pay; a refusal with the price where only a dearer one answers.

        Args:
            query: The query.
            plan: Plans with these lines.
        """
        most = self.spending.most(query)
        decision = plan(self.spending.lines_for(query, most))
        if most is None or not isinstance(decision, Unproven | Lack):
            return decision
        dearer = plan(self.spending.lines_for(query, None))
        return too_dear(dearer.charges, most) if isinstance(dearer, Measure) else dearer


class PlannedWay(Way):
    """A way of answering that takes one look at the most, which is planned before it is taken."""

    def begin(self, query: LinearQuery) -> Outcome | Look:
        step = self.decide(query)
        return step if isinstance(step, Outcome) else look_of(self.state, plain(query), step)

    def quote(self, query: LinearQuery) -> Quote:
        step = self.settled(query) or self.decide(query)
        if isinstance(step, Outcome):
            return Quote.of(step)
        look = look_of(self.state, plain(query), step)
        if isinstance(look, Refused):
            return Quote.of(look)
        bar = self.bar_after(query, step)
        return Quote(None, step.charges, bar if bar < 1.0 else None)

    @abstractmethod
    def decide(self, query: LinearQuery) -> Outcome | Measure:
        """The outcome of a query that is not settled, or what is to be measured for it."""

    @abstractmethod
    def bar_after(self, query: LinearQuery, measure: Measure) -> float:
        """The largest error bar after a look, as a share of the rows."""


def plain(query: LinearQuery) -> LinearQuery:
    """The query about the window that covers both, where two windows are compared."""
    return query if query.difference is None else replace(query, difference=None)


def look_of(state: PublicState, query: LinearQuery, measure: Measure) -> AnyLook | Refused:
    """The look at counts, at a table or at sums that was planned.

    One that needs more noise than is drawn at once is refused.
    """
    if state.versions.parts(query) is not None:
        return _joined_look_of(state, query, measure)
    attributes, shape, charges = query.attributes, state.shape, measure.charges
    each = n_answers = math.prod(shape[a] for a in query.group_by)
    if isinstance(measure, MeasureSums):
        each *= measure.shape.vectors
    elif measure.package is not None:
        each = measure.package.n_counts
    if len(measure.steps) * each > MOST_DRAWN:
        return _TOO_MANY_DRAWS
    if isinstance(measure, MeasureSums):
        return SumLook(query, measure.values, measure.shape, measure.steps, n_answers, charges)
    if measure.package is None:
        return CountsLook(query, attributes, measure.steps, n_answers, charges)
    sizes = tuple(shape[a] for a in attributes)
    parts = (
        Part(attributes, block, own, () if groups == sizes else groups)
        for block, step in measure.steps
        for groups, own in zip(measure.package.groups, measure.steps_of(step), strict=True)
    )
    return TablesLook.of(QUERY, parts, shape, charges)


def _joined_look_of(
    state: PublicState, query: LinearQuery, measure: Measure
) -> JoinedLook | Refused:
    """The look at counts or sums of a query over several versions."""
    looks: list[CountsLook | SumLook] = []
    for part in state.versions.parts(query) or ():
        asked, window = part.query, part.query.window
        steps = tuple(step for step in measure.steps if step[0] in window)
        if not steps or asked.predicate.constant is False:
            continue
        n_answers = math.prod(state.shape[a] for a in asked.group_by)
        if isinstance(measure, MeasureSums):
            looks.append(_sum_look_of(state, asked, measure, n_answers))
        else:
            charges = tuple(charge for charge in measure.charges if charge.block in window)
            counted = tuple((block, step) for block, step, *_ in steps)
            n_counted = n_answers if part.merged is None else len(part.merged.answers)
            looks.append(
                CountsLook(asked, asked.attributes, counted, n_counted, charges, part.merged)
            )
    if sum(len(look.steps) * look.n_answers for look in looks) > MOST_DRAWN:
        return _TOO_MANY_DRAWS
    return JoinedLook(tuple(looks), tuple(charge for look in looks for charge in look.charges))


def _sum_look_of(
    state: PublicState, asked: LinearQuery, measure: MeasureSums, n_answers: int
) -> SumLook:
    """The part of a look at sums that is about one version: its numbers, and its price."""
    values = WholeValues.of(asked, measure.values.unit)
    shape = replace(measure.shape, low=values.low, high=values.high, grouped=n_answers > 1)
    steps = tuple(step for step in measure.steps if step[0] in asked.window)
    charges = tuple(
        Charge(block, state.prices.of(shape.rho_at(*scales))) for block, *scales in steps
    )
    return SumLook(asked, values, shape, steps, n_answers, charges)
