"""The looks that are taken as phases open: at the number of rows that count, then a base release.

What they measure follows from the definition and the rows, and once the plan learns from what was asked too.
So it is public. A base release that a crash lost is taken again as the next phase opens.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TypeVar

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.mechanism import Look, Release
from stream_dp.core.residual.base_release.base_plan import (
    BaseRelease,
    Reach,
    base_plan,
    column_release,
    variance_for,
)
from stream_dp.core.residual.base_release.demand import Demand
from stream_dp.core.residual.base_release.expected_queries import Expected, declared_workload
from stream_dp.core.residual.base_release.grid_tables import GridTables
from stream_dp.core.residual.base_release.learned_plan import LearnedPlan
from stream_dp.core.residual.base_release.measured_again import MeasuredAgain
from stream_dp.core.residual.looks.counted_rows import RowsLook
from stream_dp.core.residual.looks.table_looks import BASE, TablesLook, TablesRelease
from stream_dp.core.residual.plan.aim_rule import TOGETHER
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.rows.attribute_versions import Schema

_L = TypeVar("_L", bound=Look)


class Openings:
    """The openings of one data set.

    Args:
        state: What is published, promised and left to spend.
        schema: The versions of the attributes.

    Attributes:
        plan: The plan of what is measured while nothing is known of the queries.
        learned: The same once something is known of them.
        grids: The tables of numbers whose edges are still to be proposed.
        again: What blocks are measured with again; None where no rows come late.
    """

    def __init__(self, state: PublicState, schema: Schema) -> None:
        self._state = state
        self._due: list[int] = []  # blocks without a base release
        self.grids = GridTables(schema)
        self.again = MeasuredAgain(state) if state.settings.late else None
        self._plan(None)

    def plan_again(self, schema: Schema) -> None:
        """Plans for the attributes that new rows have now. What was asked of these stays known."""
        self.grids = GridTables(schema)
        if self.again is not None:
            self.again.plan_again()
        self._plan(self.learned.demand)

    def _plan(self, demand: Demand | None) -> None:
        promise, settings = self._state.promise, self._state.settings
        terms, shape = promise.terms, promise.planned_shape
        tiles = [t for t in settings.tiles if all(shape[a] > 1 for a in t.query.attributes)]
        groups = declared_workload(tiles, promise.axes) if settings.tiles else None
        expected = Expected(groups, settings.queries_per_phase)
        self.plan = base_plan(promise.axes, expected, terms)
        # How many times as precise openings must be that are to answer queries about several phases.
        self._several = (terms.z_learned / terms.z) ** 2 if settings.learns else 1.0
        if demand is not None:
            demand.plan_for(promise.axes)
        largest = math.floor(settings.largest * UNITS) - self._state.first_looks
        most = self._at_once(largest)
        self.learned = LearnedPlan(self._state, self.plan, self._several, most, demand)
        # What an opening measures that nobody has described: columns that make ordinary tables free.
        is_described = settings.base_share is not None or expected.is_named
        self._columns = None if is_described else settings.aim

    # ------------------------------------------------------------ what they measure

    def release(self, n_rows: int) -> BaseRelease:
        """Returns what opening the first phase measures if its errors are shares of ``n_rows`` rows.

        Unless the plan learns, so do the later ones.
        """
        if self._columns is not None:
            return column_release(self._state.promise, self._columns, n_rows)
        return self.plan.release(n_rows, self._state.promise, self._state.settings.base_share)

    def units(self, n_counted: int) -> int:
        """Units of a line that opening the first phase takes, given the rows that count."""
        n_rows = self.margin(n_counted)
        release = self._with_grids(self.release(n_rows), 0, n_rows)
        first = self._state.first_looks + release.units
        if self.again is None:
            return first
        return first + release.units - self._units_of_grids(0) + self.again.units_besides

    def _units_of_grids(self, block: int) -> int:
        return self.grids.of_block(block, self._state.prices).units

    def _with_grids(self, release: BaseRelease, block: int, n_rows: int) -> BaseRelease:
        """A release with the tables of numbers on a grid, for which the line has room in any case."""
        state = self._state
        grids = self.grids.of_block(block, state.prices)
        room = self._at_once(max(0, UNITS - state.first_looks - grids.units))
        if release.units > room:
            release = self.plan.release(n_rows, state.promise, room / UNITS)
            release = state.versions.of_block(release, block)
        return BaseRelease((*release.tables, *grids.tables), release.units + grids.units)

    def _at_once(self, units: int) -> int:
        """What an opening may take of some units, where its tables are measured once more with late rows."""
        again = self.again
        return units if again is None else max(0, units - again.units_besides) // 2

    def margin(self, n_counted: int) -> int:
        """Returns the rows of which the errors of a phase are shares, given the rows that count.

        They are fewer where the number is private, by what the look at it may be off. Half of all looks say
        more than this, half say less.
        """
        counted = self._state.counted
        if counted is None:
            return n_counted
        return max(0, math.floor(n_counted - counted.shortfall(self._rows_look(0))))

    @property
    def most_measured(self) -> int:
        """Units of a line that opening never exceeds, together with what is measured later unasked."""
        beyond, times = self._state.first_looks + self._units_of_grids(0), 1
        if self.again is not None:
            beyond, times = beyond + self.again.units_besides, 2
        if self._state.learns:
            return min(UNITS, beyond + times * self.learned.most)
        share = self._state.settings.base_share
        if self._columns is not None:
            share = TOGETHER
        elif share is None:
            share = self.plan.cap
        return min(UNITS, beyond + times * math.floor(share * UNITS))

    def reach(self, n_rows: int) -> Reach | None:
        """Returns what base releases certify if errors are shares of ``n_rows`` rows a phase.

        None if they are empty.
        """
        release, promise = self.release(n_rows), self._state.promise
        if not release.tables:
            return None
        limit = variance_for(n_rows, promise.terms)
        return Reach(promise.axes, release, limit, several=self._several)

    def price_on_demand(self, n_rows: int) -> float:
        """Returns the mean share of a line that a query costs on demand, at ``n_rows`` rows a phase."""
        return self.plan.one_by_one(n_rows, self._state.promise)

    def certifying_product(self) -> float:
        """Returns the least product of error and rows with which tables alone can certify the workload."""
        variance = self.plan.whole_price / float(self._state.promise.budget.rho)
        return self._state.terms.z * math.sqrt(variance)

    # ------------------------------------------------------------ the looks

    def open(self, block: int) -> Sequence[Look]:
        """The first looks at a new block. ``opened`` has those that follow from what these publish."""
        self._due.append(block)
        state, erased = self._state, self._state.spending.allocator.erased
        looks: list[Look] = []
        if state.running is not None:
            looks += state.running.looks(block)
        if state.found is not None:
            looks += state.found.looks(block, state.rows, erased=erased)
        if state.counted is None:
            state.expect_tiles()
        else:
            # What a base release is to certify follows from the rows that count. They are looked at first.
            counted = state.counted
            self._due = [b for b in self._due if b >= erased]
            looks += self._affordable(
                [self._rows_look(b) for b in self._due if not counted.known(b)]
            )
        return self._base_looks() if state.counted is None and not looks else looks

    def opened(self) -> Sequence[Look]:
        """The looks of an opening that follow from what its first looks published."""
        return self._base_looks() if self._due else ()

    def complete(self, block: int, n_rows: int) -> Sequence[Look]:
        """The looks at a block that has got this number of late rows, and gets no more."""
        assert self.again is not None, "only then rows come late"
        looks = self.again.completed(block)
        if not n_rows or block < self._state.spending.allocator.erased:
            return ()
        if self._state.counted is None:
            self._state.expect_tiles()
        if block not in self._due:
            self._due.append(block)
        return self._affordable(looks)

    def absorb(self, release: Release) -> None:
        """Notes what was measured."""
        if not isinstance(release, TablesRelease):
            return
        if self._due:
            measured = {part.block for part in release.parts}
            self._due = [block for block in self._due if block not in measured]
        if self.again is not None and release.reason == BASE:
            on_a_grid = {(index,) for index in self.grids.schema.grids}
            for part in release.parts:
                if part.attributes not in on_a_grid:
                    self.again.opened(part)

    def lost(self, look: Mapping[str, object]) -> None:
        """A look (its ``description``) was charged, but a crash lost its release."""
        if self._state.running is not None:
            self._state.running.lost(look)
        match look:
            case {"reason": "base", "tables": [[_, int(block), *_], *_]}:
                self._due.append(block)
            case {"kind": "rows", "blocks": [[int(block), *_]]} if block not in self._due:
                self._due.append(block)

    def _rows_look(self, block: int) -> RowsLook:
        return RowsLook.at(block, self._state.prices)

    def _base_looks(self) -> list[TablesLook]:
        """The base releases that are due, of blocks that have the rows that were sealed."""
        blocks, self._due = self._due, []
        erased, changed = self._state.spending.allocator.erased, self._state.changed
        looks = [
            self._base_look(block) for block in blocks if block >= erased and block not in changed
        ]
        return self._affordable([look for look in looks if look.parts])

    def _base_look(self, block: int) -> TablesLook:
        state = self._state
        n_rows = state.rows_of(block)
        release = self.learned.opening(block) or self.release(n_rows)
        release = self._with_grids(state.versions.of_block(release, block), block, n_rows)
        return release.look(state.shape, BASE, block)

    def _affordable(self, looks: list[_L]) -> list[_L]:
        """The looks that the lines still have room for."""
        lines = self._state.spending.allocator.lines
        return [look for look in looks if lines.afford(look.charges)]
