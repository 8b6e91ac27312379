"""A plan that learns: what was asked says what later phases open with, and what sealed blocks are given.

All of it follows from queries, charges and published values, so it is public (docs/proofs, Theorem 30).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from stream_dp.core.budget.accountant import UNITS, Charge, summed
from stream_dp.core.budget.parameters import Target
from stream_dp.core.queries.query import LinearQuery, Mask, Predicate, Product
from stream_dp.core.residual.base_release.base_plan import BasePlan, BaseRelease
from stream_dp.core.residual.base_release.demand import Demand
from stream_dp.core.residual.base_release.growth import MANY_ASKED, PAID, PAID_AT_FIRST, is_time
from stream_dp.core.residual.base_release.replay import MANY, Choice, Replay
from stream_dp.core.residual.looks.table_looks import GROWTH, TablesLook
from stream_dp.core.residual.plan.planner import MOST_DRAWN
from stream_dp.core.residual.public_state import PublicState

_PARTS: Final = 20
"""Where a line has no room for what a block lacks, the largest number of these parts that fits is bought."""


class LearnedPlan:
    """What one data set has learned of its queries.

    Args:
        state: What is published, promised and left to spend.
        today: The plan of what is measured while nothing is known of the queries.
        several: How many times as precise a query about several phases must be as one about a single phase.
        most: Units of a line that are measured unasked at the most, besides the look at the rows that count.
        demand: What was asked lately. None if nothing ever was.

    Attributes:
        demand: What was asked lately.
    """

    def __init__(
        self,
        state: PublicState,
        today: BasePlan,
        several: float,
        most: int,
        demand: Demand | None = None,
    ) -> None:
        self._state = state
        self._today, self.most = today, most
        self.demand = Demand(state.promise.axes) if demand is None else demand
        self._replay = Replay(state.promise, today, several, self.demand, self._share_of)
        self._priced = (-1, 0.0)  # what a query costs where a phase has this many rows
        if state.settings.pacing is None and state.learns:
            state.spending.allocator.price = self._price_now

    def opening(self, block: int) -> BaseRelease | None:
        """What a new block is opened with; None as long as nothing is known of the queries."""
        if not self._state.learns or block == 0 or not self.demand.last:
            return None
        most, payers = self.most, self._state.spending.payers
        if payers is not None:
            most = min(most, int(payers.room(owner=True)(range(block, block + 1)).item()))
        choice, n_rows = self._choice_as_a_phase_opens(), self._state.rows_of(block)
        return self._replay.release(choice, n_rows, most)

    def was_asked(self, query: LinearQuery, charges: Sequence[Charge]) -> list[TablesLook]:
        """Takes note of a query and of what it has paid; returns the looks that follow from it."""
        if not self._state.learns:
            return []
        query = query.as_planned
        looks = self.growth_after(query, charges, paid=True)
        if not isinstance(query.total, Product):  # no table of a phase answers a correlation
            self.demand.note(query, len(self._state.belief), self._ease(query))
        return looks

    def growth_after(
        self, query: LinearQuery, charges: Sequence[Charge], *, paid: bool
    ) -> list[TablesLook]:
        """The looks that the data set takes on its own account once a query has paid its charges.

        Args:
            query: The query.
            charges: What it has paid, or what it will.
            paid: Whether it has.
        """
        if not (charges or self.is_growth_due) or not self._grows or query.fresh:
            return []
        query = query.as_planned
        bought, n_phases, looks = self._state.bought, len(self._state.belief), []
        open_ = {c.block: 0 if paid else c.rho for c in charges}
        rents = {c.block: bought.rent(c.block) + open_[c.block] for c in charges}
        due = [c.block for c in charges if is_time(rents[c.block] - c.rho, rents[c.block])]
        if due and not self.demand.came_before(query, n_phases, self._ease(query)):
            for block in due:
                tried = (self._grown(block, *one, open_[block]) for one in self._larger(block))
                looks.append(next(filter(None, tried), None))
        if not looks and self.is_growth_due:
            # As if a phase opened, for nobody knows whether another one will.
            choice = self._choice_now()
            part = 0.0 if choice.scarce else PAID
            looks.append(self._grown(0, self._large(choice, 0), part, open_.get(0, 0)))
        found = _drawable(looks)
        if not found:
            return []
        most = self._state.settings.limits.most(query.target)
        together = summed([*charges, *(charge for look in found for charge in look.charges)])
        if most is not None and any(charge.rho > most for charge in together):
            return []  # it waits for queries that may take as much
        return found

    def growth(self) -> list[TablesLook]:
        """The looks at sealed blocks that are taken as a phase has opened, where lines are scarce."""
        newest = len(self._state.belief) - 1
        if not self._grows or newest < 1:
            return []
        choice = self._choice_as_a_phase_opens()
        blocks = range(self._state.spending.allocator.erased, newest) if choice.scarce else ()
        return _drawable(
            [self._grown(block, self._large(choice, block), 0.0, 0) for block in blocks]
        )

    @property
    def is_growth_due(self) -> bool:
        """Whether it is to be looked at the next query, whatever it pays, what more to measure."""
        return self._grows and len(self._state.belief) == 1 and self.demand.total(1) in MANY_ASKED

    @property
    def _grows(self) -> bool:
        """Whether more is measured of sealed blocks. Nothing is before anything was asked."""
        return self._state.settings.grows and self._state.learns and self.demand.last > 0

    def _choice_as_a_phase_opens(self) -> Choice:
        """What is worth most of the newest block, by what was asked before it opened."""
        newest = len(self._state.belief) - 1
        n_rows, phase = self._state.rows_of(newest), self.demand.busiest
        return self._replay.choice(n_rows, newest, self.most, phase=phase)

    def _choice_now(self) -> Choice:
        """The same by what is asked in this phase, or in the one before as long as that is little."""
        n_phases, phase = len(self._state.belief), self.demand.busiest
        more = 2.0 if n_phases == 1 else 1.0  # nobody knows how long the first phase lasts
        n_rows = self._state.rows_of(n_phases - 1)
        return self._replay.choice(n_rows, n_phases, self.most, phase=phase, more=more)

    def _large(self, choice: Choice, block: int) -> BaseRelease:
        return self._replay.release(choice, self._state.rows_of(block), self.most)

    def _larger(self, block: int) -> Iterator[tuple[BaseRelease, float]]:
        """What a block may become, in the order tried, and the part of its price to be paid before."""
        bought = self._state.bought
        if len(self._state.belief) == 1 and not bought.has_grown(block):
            large = self._large(MANY, block)
            if large.units > 2 * bought.units(block):  # what is opened would not do for many
                yield large, PAID_AT_FIRST
        yield self._large(self._choice_now(), block), PAID

    def _grown(self, block: int, large: BaseRelease, paid: float, open_: int) -> TablesLook | None:
        """The look that makes a block a larger release, as far as its line allows; None for none now.

        Args:
            block: The block.
            large: What is worth most of it.
            paid: The part of its price that queries must have paid on the block.
            open_: Units of what they pay that the line has not been charged yet.
        """
        bought, spending, window = self._state.bought, self._state.spending, range(block, block + 1)
        if self._state.is_changed(window):
            return None  # what was published of it is about the rows that it had
        have = bought.units(block)
        room = min(int(spending.allocator.left(window).item()) - open_, self.most - have)
        if spending.payers is not None:
            theirs = int(spending.payers.room(owner=True)(window).item())
            room = min(room, theirs - (0 if spending.payers.apart else open_))
        growth = self._state.versions.of_block(bought.lacking(block, large), block)
        # What it lacks may be in other tables than what there is. Each other share takes long to plan.
        parts = min(have + room, large.units) * _PARTS // UNITS
        while growth.units > room and parts > 0:
            generic = self._replay.generic(self._state.rows_of(block), parts / _PARTS)
            growth = self._state.versions.of_block(bought.lacking(block, generic), block)
            parts -= 1
        rent = bought.rent(block) + open_
        if growth.units > room or not bought.is_worth(block, growth, rent, paid):
            return None
        return growth.look(self._state.shape, GROWTH, block)

    def _ease(self, query: LinearQuery) -> float:
        """The error of a query, as a multiple of that of the data set."""
        if query.target.is_open:
            return 1.0
        plain = self._state.terms_for(replace(query, target=Target())).error
        own = self._state.terms_for(query).error
        return own / plain if plain else 1.0

    def _price_now(self) -> float:
        """The share of the newest line that a query costs, in the mean."""
        n_rows = self._state.rows_of(len(self._state.belief) - 1)
        if self._priced[0] != n_rows:
            self._priced = n_rows, self._today.one_by_one(n_rows, self._state.promise)
        return self._priced[1]

    def _share_of(self, attribute: int, condition: Mask) -> float:
        """The share of the rows that a condition leaves, by what openings published; 1 if unknown.

        The newest phase does not count, unless it is alone. So nothing changes this before the next one.
        """
        state = self._state
        window = range(max(1, len(state.belief) - 1))
        query = LinearQuery(Predicate.conjunction({attribute: condition}), window)
        evidence = state.evidence_at_opening(query)
        if not math.isfinite(float(evidence.variances[0])):
            return 1.0
        return float(evidence.values[0]) / max(1.0, state.rows_at_least(window))


def _drawable(looks: Sequence[TablesLook | None]) -> list[TablesLook]:
    """The first of the looks, as long as noise is drawn for them at once."""
    found, left = [], MOST_DRAWN
    for look in looks:
        if look is not None:
            left -= sum(map(math.prod, look.shapes))
            if left >= 0:
                found.append(look)
    return found
