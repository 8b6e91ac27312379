"""The calibrated profile: a memory mechanism whose promises are variances, not tests of the data.

It keeps, for every sealed block and every small set of attributes, the best unbiased estimate of
their interaction that all publications together imply, with its exact variance. A query that this
pins down is easy; one that it does not is hard, and the data is measured exactly as precisely as is
lacking. Which of the two follows from the queries asked and from published numbers, never from the
data, so a quote is exact and free, and the flag leaks nothing.

*Privacy.* Every look (``table_looks``) is a discrete Gaussian release on named blocks, charged to the line
of each before it is taken; see ``accountant``. *Accuracy.* For a query fixed before the tables it uses
were published, the error is Gaussian with the published variance: ``error_bar`` covers with at least
the promised probability. An analyst who chooses queries by looking at published answers can select noise;
``error_bar_simultaneous`` covers all conjunctions on the same attributes and window at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Final, Literal, TypeVar

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.accountant import UNITS, Budget, Charge, Lines, summed
from stream_dp.core.budget.parameters import Accuracy, Aim, Privacy, Target
from stream_dp.core.budget.share_bounds import Payers, Room
from stream_dp.core.mechanism import LinearMechanism, Look, Quote, Rehearsal, Release
from stream_dp.core.outcome import (
    Answered,
    Differences,
    Outcome,
    Path,
    Summed,
    TableAnswered,
    widest_bar,
)
from stream_dp.core.queries.query import AnyQuery, LinearQuery, Mask, Predicate, Product
from stream_dp.core.residual.base_release.base_plan import BaseRelease, Columns, Reach, base_plan
from stream_dp.core.residual.base_release.demand import Demand, is_name
from stream_dp.core.residual.base_release.expected_queries import (
    Group,
    PlannedTile,
    declared_workload,
)
from stream_dp.core.residual.base_release.growth import PAID, PAID_AT_FIRST, is_many, is_time
from stream_dp.core.residual.base_release.replay import LARGEST, MANY, Choice, Replay
from stream_dp.core.residual.belief.evidence import Belief
from stream_dp.core.residual.belief.levels import axes_of
from stream_dp.core.residual.belief.linear_forms import form_of
from stream_dp.core.residual.looks.counted_rows import ROWS, RowsLook, RowsRelease
from stream_dp.core.residual.looks.sum_look import SHARED, SUMMED, SumRelease
from stream_dp.core.residual.looks.table_looks import (
    BASE,
    FORMAT,
    GROWTH,
    Part,
    TablesLook,
    TablesRelease,
    measured_from_bytes,
)
from stream_dp.core.residual.plan.aim_rule import TOGETHER, Deviations, part_of_size, use_of
from stream_dp.core.residual.plan.bundle_rehearsal import imagined
from stream_dp.core.residual.plan.planner import Policy, certifies
from stream_dp.core.residual.plan.reserve import Reserve
from stream_dp.core.residual.plan.targets import NO_LIMITS, Limits
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.residual.ways.aimed import Aimed, AimedCounts, AimedSums
from stream_dp.core.residual.ways.aimed_quantiles import AimedQuantiles
from stream_dp.core.residual.ways.correlations import Correlations
from stream_dp.core.residual.ways.counts import Counts
from stream_dp.core.residual.ways.differences import DifferencesOfWindows
from stream_dp.core.residual.ways.fresh import Fresh
from stream_dp.core.residual.ways.means import Means
from stream_dp.core.residual.ways.quantiles import QuantilesOfBins
from stream_dp.core.residual.ways.relative import Relative
from stream_dp.core.residual.ways.totals import Totals, sum_planner
from stream_dp.core.residual.ways.way import MOST_DRAWN, OUT_OF_REACH, Way
from stream_dp.core.rows.universe import Universe
from stream_dp.core.synthetic.basis import SmallTables
from stream_dp.errors import InvalidDefinition

_L = TypeVar("_L", bound=Look)

_PARTS: Final = 20
"""Where a line has no room for what a block lacks, the largest number of these parts that fits is bought."""

_KINDS: Final = frozenset(
    {"predicate", "table", "sum", "share", "difference", "quantile", "correlation"}
)

# A difference of shares is one of ratios where the number of rows that count is not known.
_KINDS_OF_PERSONS: Final = _KINDS - {"difference"}


class Calibrated(LinearMechanism):
    """One data set under the calibrated profile.

    Args:
        universe: The possible rows.
        privacy: Lifetime promise for each row; delta must be positive.
        accuracy: Promise for each answer, and for each cell of a table.
        on_exhausted: Whether a query that no line can pay for is answered without a promise, or
            refused.
        base_share: Part of each new line spent when its phase opens; None derives it.
        queries_per_phase: Different queries that a block is asked in its life, by the phases that follow one
            another; None for the default. With None of these three the plan learns from what is asked.
        workload: What queries are expected; None for the generic workload.
        pacing: Whether part of young lines is kept for the phases to come. None keeps it where the plan
            learns and lines are short.
        limits: What queries may ask for.
        approximate: Whether looks with a delta of their own are charged to the same lines.
        tiles: Queries for which a part of each line is kept. They are planned for as well, unless a
            ``workload`` is given.
        kept: The number of blocks, the last ones, whose rows are kept. No look reads the others. None keeps
            all.
        grows: Whether more is measured of sealed blocks once queries have paid enough for it.
        largest: The largest share of a line that is measured unasked once the plan learns.
        aim: How precise answers are worth having; None where queries that say nothing get ``accuracy.error``.
            With an aim the plan does not learn: openings have a rule of their own.

    Attributes:
        state: What is published, promised and left to spend. It is public.

    Raises:
        InvalidDefinition: delta is 0, or ``base_share`` is not a share.
    """

    def __init__(
        self,
        universe: Universe,
        privacy: Privacy,
        accuracy: Accuracy,
        *,
        on_exhausted: Literal["unverified", "refuse"] = "unverified",
        base_share: float | None = None,
        queries_per_phase: int | None = None,
        workload: tuple[Group, ...] | None = None,
        pacing: bool | None = None,
        limits: Limits = NO_LIMITS,
        approximate: bool = False,
        tiles: tuple[PlannedTile, ...] = (),
        kept: int | None = None,
        grows: bool = True,
        largest: float = LARGEST,
        aim: Aim | None = None,
    ) -> None:
        if base_share is not None and not 0.0 <= base_share <= 1.0:
            raise InvalidDefinition(
                "mechanism.base_share", "is not in [0, 1]", "give a share such as 0.2"
            )
        self.budget = Budget.of(privacy, approximate=approximate)
        self.accuracy = accuracy
        described = queries_per_phase is not None or workload is not None or bool(tiles)
        learns = base_share is None and aim is None and not described
        paced = learns if pacing is None else pacing
        self.policy = Policy(base_share=base_share, pacing=paced)
        self.state = PublicState(
            universe.shape,
            self.budget,
            accuracy,
            self.policy,
            limits,
            on_exhausted=on_exhausted,
            kept=kept,
        )
        terms, known = self.state.terms, self.budget.total_known
        if tiles:
            self.state.reserve = Reserve(tiles, universe.shape, terms, self.budget, self._certified)
            if workload is None:
                workload = declared_workload(tiles, universe.shape, total_known=known)
        # How many times as precise openings must be that are to answer queries about several phases.
        self._several = (terms.z_learned / terms.z) ** 2 if learns else 1.0
        self._base_plan = base_plan(
            universe.shape, workload, queries_per_phase, terms, total_known=known
        )
        self._demand = Demand(universe.shape, total_known=known)
        self._replay = Replay(
            universe.shape,
            terms,
            self.budget,
            self.state.prices,
            self._base_plan,
            self._several,
            self._demand,
            self._share_of,
        )
        self.state.learns = learns
        self._grows = grows and learns
        if pacing is None and learns:
            self.state.allocator.price = self._price_now
        self._largest = math.floor(largest * UNITS) - self.look_at_rows
        self._priced = (-1, 0.0)  # what a query costs where a phase has this many rows
        self.state.aim = aim
        # What an opening measures that nobody has described: columns that make ordinary tables free.
        self._columns = None
        if aim is not None and base_share is None and not self._base_plan.named:
            phases = 1 if privacy.unit is None else privacy.unit.phases
            self._columns = Columns(universe.shape, aim, accuracy, phases)
        self._without_base: list[int] = []
        self._counts = Counts(self.state)
        self._fresh = Fresh(self.state)
        self._relative = Relative(self.state)
        self._totals = Totals(self.state)
        self._means = Means(self.state)
        self._differences = DifferencesOfWindows(self.state)
        self._quantiles = QuantilesOfBins(self.state)
        self._z = Deviations.of(accuracy)
        self._aimed: tuple[Way, Way, Way] | None = None
        if aim is not None:
            self._aimed = (
                AimedCounts(self.state, aim),
                AimedSums(self.state, aim),
                AimedQuantiles(self.state, aim),
            )

    def __repr__(self) -> str:
        return f"Calibrated({len(self.belief)} blocks)"

    answers_fresh = True

    @property
    def belief(self) -> Belief:
        """Everything published so far."""
        return self.state.belief

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells of each attribute."""
        return self.state.shape

    @property
    def kinds(self) -> frozenset[str]:
        return _KINDS if self.budget.total_known else _KINDS_OF_PERSONS

    @property
    def learns(self) -> bool:
        """Whether what opens a later phase follows from what was asked, and not from the definition alone."""
        return self.state.learns

    def opening_units(self, n_rows: int) -> int:
        return self.look_at_rows + self.base_release(self.margin(n_rows)).units

    def basis(self, window: range) -> SmallTables:
        failure_probability = self.accuracy.failure_probability
        return SmallTables(window, self.shape, self.belief.tables, failure_probability)

    # ------------------------------------------------------------ phases and losses

    @property
    def look_at_rows(self) -> int:
        """Units of a line that looking at the number of rows that count takes; 0 where all do."""
        return 0 if self.state.counted is None else self._rows_look(0).charges[0].rho

    @property
    def most_measured(self) -> int:
        """Units of a line that opening never exceeds, together with what is measured later unasked."""
        if self.learns:
            return self.look_at_rows + self._largest
        share = self.policy.base_share
        if self._columns is not None:
            share = TOGETHER
        elif share is None:
            share = self._base_plan.cap
        return self.look_at_rows + math.floor(share * UNITS)

    def margin(self, n_counted: int) -> int:
        """Returns the rows of which the errors of a phase are shares, given the rows that count.

        They are fewer where the number is private, by what the look at it may be off. Half of all looks say
        more than this, half say less.
        """
        counted = self.state.counted
        if counted is None:
            return n_counted
        return max(0, math.floor(n_counted - counted.shortfall(self._rows_look(0))))

    def _rows_look(self, block: int) -> RowsLook:
        return RowsLook.at(block, self.state.prices)

    def base_release(self, n_rows: int) -> BaseRelease:
        """Returns what opening the first phase measures if its errors are shares of ``n_rows`` rows.

        It is public. Unless the plan learns, so do the later ones.
        """
        if self._columns is not None:
            return self._columns.release(n_rows, self.state.prices)
        share = self.policy.base_share
        return self._base_plan.release(
            n_rows, self.state.terms, share, self.budget, self.state.prices
        )

    def base_reach(self, n_rows: int) -> Reach | None:
        """Returns what base releases certify if errors are shares of ``n_rows`` rows a phase.

        None if they are empty.
        """
        release = self.base_release(n_rows)
        return self._base_plan.reach(release, n_rows, self.state.terms, self._several)

    @property
    def expected_queries(self) -> int:
        """The number of different queries that are expected in each phase."""
        return self._base_plan.queries

    @property
    def named_queries(self) -> bool:
        """Whether it was told which queries to expect, or how many."""
        return self._base_plan.named

    def price_on_demand(self, n_rows: int) -> float:
        """Returns the mean share of a line that one of these costs on demand, at ``n_rows`` rows a phase."""
        return self._base_plan.one_by_one(n_rows, self.state.terms, self.budget)

    def certifying_product(self) -> float:
        """Returns the least product of error and rows with which tables alone can certify the workload."""
        variance = self._base_plan.whole_price / float(self.budget.rho)
        return self.state.terms.z * math.sqrt(variance)

    def open_phase(self, n_rows: int) -> Sequence[Look]:
        self.belief.open_block(n_rows)
        block = self.state.allocator.open()
        self._without_base.append(block)
        if self.state.counted is None:
            self.state.expect_tiles()
            return self._base_looks()
        # What a base release is to certify follows from the rows that count. They are looked at first.
        self._without_base = [b for b in self._without_base if b >= self.erased]
        counted = self.state.counted
        blocks = [block for block in self._without_base if not counted.known(block)]
        return self._affordable([self._rows_look(block) for block in blocks])

    def opened(self) -> Sequence[Look]:
        return () if self.state.counted is None else self._base_looks()

    def _base_looks(self) -> list[TablesLook]:
        """The base releases that are due. One that a crash lost is taken again while there are rows."""
        blocks, self._without_base = self._without_base, []
        looks = [self._base_look(block) for block in blocks if block >= self.erased]
        return self._affordable([look for look in looks if look.parts])

    def _affordable(self, looks: list[_L]) -> list[_L]:
        """The looks that the lines still have room for."""
        return [look for look in looks if self.state.allocator.lines.afford(look.charges)]

    def _base_look(self, block: int) -> TablesLook:
        n_rows = self._rows_of(block)
        if not self.learns or block == 0 or not self._demand.last:
            base = self.base_release(n_rows)
        else:
            most = self._largest
            if self.state.payers is not None:
                room = self.state.payers.room(owner=True)(range(block, block + 1))
                most = min(most, int(room.item()))
            base = self._replay.release(self._choice_as_a_phase_opens(), n_rows, most)
        return self._tables_look(BASE, block, base.tables, base.units)

    def _rows_of(self, block: int) -> int:
        """The rows that errors about a block are shares of."""
        return math.floor(self.state.rows_at_least(range(block, block + 1)))

    def _tables_look(
        self, reason: str, block: int, tables: tuple[tuple[tuple[int, ...], int], ...], units: int
    ) -> TablesLook:
        axes = axes_of(self.shape)
        parts, shapes = [], []
        for table, step in tables:
            attributes, groups = axes.attributes(table), axes.groups(table)
            sizes = tuple(self.shape[a] for a in attributes)
            parts.append(Part(attributes, block, step, () if groups == sizes else groups))
            shapes.append(groups)
        return TablesLook(reason, tuple(parts), tuple(shapes), (Charge(block, units),))

    # ------------------------------------------------------------ a plan that learns

    def _price_now(self) -> float:
        """The share of the newest line that a query costs, in the mean."""
        n_rows = self._rows_of(len(self.belief) - 1)
        if self._priced[0] != n_rows:
            self._priced = n_rows, self.price_on_demand(n_rows)
        return self._priced[1]

    def _share_of(self, attribute: int, condition: Mask) -> float:
        """The share of the rows that a condition leaves, by what openings published; 1 if unknown.

        The newest phase does not count, unless it is alone. So nothing changes this before the next one.
        """
        window = range(max(1, len(self.belief) - 1))
        query = LinearQuery(Predicate.conjunction({attribute: condition}), window)
        evidence = self.belief.at_opening(form_of(query, self.shape), window)
        if not math.isfinite(float(evidence.variances[0])):
            return 1.0
        return float(evidence.values[0]) / max(1.0, self.state.rows_at_least(window))

    def _choice_as_a_phase_opens(self) -> Choice:
        """What is worth most of the newest block, by what was asked before it opened."""
        newest = len(self.belief) - 1
        n_rows, phase = self._rows_of(newest), self._demand.busiest
        return self._replay.choice(n_rows, newest, self._largest, phase=phase)

    def _choice_now(self) -> Choice:
        """The same by what is asked in this phase, or in the one before as long as that is little."""
        n_phases, phase = len(self.belief), self._demand.busiest
        more = 2.0 if n_phases == 1 else 1.0  # nobody knows how long the first phase lasts
        n_rows = self._rows_of(n_phases - 1)
        return self._replay.choice(n_rows, n_phases, self._largest, phase=phase, more=more)

    def was_asked(self, query: AnyQuery, charges: Sequence[Charge]) -> Sequence[Look]:
        if not self.learns or not isinstance(query, LinearQuery):
            return ()
        looks = self._growth(query, charges, paid=True)
        if isinstance(query.total, Product):  # no table of a phase answers it
            return looks
        self._demand.note(query, len(self.belief), self._ease(query))
        return looks

    def _ease(self, query: LinearQuery) -> float:
        """The error of a query, as a multiple of that of the data set."""
        if query.target.is_open:
            return 1.0
        plain = self.state.terms_for(replace(query, target=Target())).error
        own = self.state.terms_for(query).error
        return own / plain if plain else 1.0

    def growth(self) -> Sequence[Look]:
        newest = len(self.belief) - 1
        if not self._grows or newest < 1 or not self._demand.last:
            return ()
        choice = self._choice_as_a_phase_opens()
        if not choice.scarce:
            return ()
        blocks = range(self.erased, newest)
        return self._drawable(
            [self._grown(block, self._large(choice, block), 0.0, 0) for block in blocks]
        )

    def _growth(
        self, query: LinearQuery, charges: Sequence[Charge], *, paid: bool
    ) -> list[TablesLook]:
        """The looks that the data set takes on its own account once a query has paid its charges.

        Args:
            query: The query.
            charges: What it has paid, or what it will.
            paid: Whether it has.
        """
        if not self._grows or query.fresh or not self._demand.last:
            return []
        bought, n_phases, looks = self.state.bought, len(self.belief), []
        open_ = {c.block: 0 if paid else c.rho for c in charges}
        rents = {c.block: bought.rent(c.block) + open_[c.block] for c in charges}
        due = [c.block for c in charges if is_time(rents[c.block] - c.rho, rents[c.block])]
        if due and not self._demand.came_before(query, n_phases, self._ease(query)):
            for block in due:
                tried = (self._grown(block, *one, open_[block]) for one in self._larger(block))
                looks.append(next(filter(None, tried), None))
        if not looks and n_phases == 1 and is_many(self._demand.total(1)):
            # As if a phase opened, for nobody knows whether another one will.
            choice = self._choice_now()
            part = 0.0 if choice.scarce else PAID
            looks.append(self._grown(0, self._large(choice, 0), part, open_.get(0, 0)))
        found = self._drawable(looks)
        if not found:
            return []
        most = self.state.limits.most(query.target)
        together = summed([*charges, *(charge for look in found for charge in look.charges)])
        if most is not None and any(charge.rho > most for charge in together):
            return []  # it waits for queries that may take as much
        return found

    def _large(self, choice: Choice, block: int) -> BaseRelease:
        return self._replay.release(choice, self._rows_of(block), self._largest)

    def _larger(self, block: int) -> Iterator[tuple[BaseRelease, float]]:
        """What a block may become, in the order tried, and the part of its price to be paid before."""
        bought = self.state.bought
        if len(self.belief) == 1 and not bought.has_grown(block):
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
        bought, n_rows, window = self.state.bought, self._rows_of(block), range(block, block + 1)
        have = bought.units(block)
        room = min(int(self.state.allocator.left(window).item()) - open_, self._largest - have)
        if self.state.payers is not None:
            theirs = int(self.state.payers.room(owner=True)(window).item())
            room = min(room, theirs - (0 if self.state.payers.apart else open_))
        growth = bought.lacking(block, large)
        # What it lacks may be in other tables than what there is. Each other share takes long to plan.
        parts = min(have + room, large.units) * _PARTS // UNITS
        while growth.units > room and parts > 0:
            growth = bought.lacking(block, self._replay.generic(n_rows, parts / _PARTS))
            parts -= 1
        rent = bought.rent(block) + open_
        if growth.units > room or not bought.is_worth(block, growth, rent, paid):
            return None
        return self._tables_look(GROWTH, block, growth.tables, growth.units)

    def _drawable(self, looks: Sequence[TablesLook | None]) -> list[TablesLook]:
        """The first of the looks, as long as noise is drawn for them at once."""
        found, left = [], MOST_DRAWN
        for look in looks:
            if look is not None:
                left -= sum(map(math.prod, look.shapes))
                if left >= 0:
                    found.append(look)
        return found

    def charged(self, look_charges: tuple[Charge, ...]) -> None:
        self.state.allocator.lines.charge(look_charges)

    @property
    def lines(self) -> Lines:
        """The spending of each block. It is public."""
        return self.state.allocator.lines

    @property
    def kept(self) -> int | None:
        """The number of blocks, the last ones, whose rows are kept; None for all. It is public."""
        return self.state.allocator.kept

    @property
    def erased(self) -> int:
        """The number of first blocks whose rows are erased, or lost. It is public."""
        return self.state.allocator.erased

    def spent(self, window: range) -> float:
        """The highest loss of any row in the window so far, as epsilon at the promised delta."""
        return self.budget.epsilon(self.state.allocator.lines.worst(window))

    def spent_share(self, window: range) -> float:
        """The same as a share of the line."""
        return self.state.allocator.lines.worst(window).rho / UNITS

    def part_now(self, window: range) -> npt.NDArray[np.float64]:
        return self.state.allocator.part_now(window)

    def kept_for_later(self, block: int) -> int:
        window, allocator = range(block, block + 1), self.state.allocator
        return int((allocator.left(window) - allocator.room_of_tiles(window)).item())

    def paid_by_owner(self, query: AnyQuery) -> bool:
        return isinstance(query, LinearQuery) and self.state.is_declared(query)

    def pays(self, payers: Payers | None) -> None:
        self.state.payers = payers

    def takes_unasked(self, room: Room | None) -> None:
        self.state.unasked = room

    def is_unasked(self, query: AnyQuery) -> bool:
        if not isinstance(query, LinearQuery) or query.target.at_most is not None:
            return False
        return self.state.is_aimed(query)

    # ------------------------------------------------------------ queries

    def _certified(self, query: LinearQuery) -> bool:
        """Whether what is published promises an answer, by variances alone."""
        state = self.state
        terms = state.terms_for(query)
        if query.total is not None:
            return sum_planner(state, query, terms).certified
        return state.at_opening(query) is not None or certifies(
            state.evidence(query), terms.error, terms.z_steered
        )

    def way(self, query: LinearQuery) -> Way:
        """The way in which a query is answered."""
        if isinstance(query.total, Product):
            return Correlations(self.state, query)
        if self._aimed is not None and self.state.is_aimed(query) and query.difference is None:
            counts, sums, quantiles = self._aimed
            return quantiles if query.rank is not None else counts if query.total is None else sums
        if query.difference is not None:
            return self._differences
        if query.rank is not None:
            return self._quantiles
        if query.target.mean is not None:
            return self._means
        if query.target.relative is not None:
            return self._relative
        if query.total is not None:
            return self._totals
        return self._fresh if query.fresh else self._counts

    def _answer(self, query: LinearQuery) -> Outcome | Look:
        return self._counted(query, self.way(query).answer(query))

    def _conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        return self._counted(query, self.way(query).conclude(query, look, release))

    def _counted(self, query: LinearQuery, step: Outcome | Look) -> Outcome | Look:
        """The same, with what is known of the rows that count where their number is private."""
        if isinstance(step, Look):
            return step
        if self.state.counted is not None:
            wider = self._z.wider if self.state.is_aimed(query) else None
            step = self.state.with_rows_that_count(query, step, wider)
        return step if self.state.aim is None else self._used(query, step, self.state.aim)

    def _used(self, query: LinearQuery, outcome: Outcome, aim: Aim) -> Outcome:
        """The same with how useful it is, where the way of answering did not say so."""
        if not isinstance(outcome, Answered | TableAnswered | Summed | Differences):
            return outcome
        part = None if outcome.use else part_of_size(query, outcome, self._z.plain)
        return outcome if part is None else replace(outcome, use=use_of(part, aim, math.inf))

    def _quote(self, query: LinearQuery) -> Quote:
        quote = self.way(query).quote(query)
        if query.target.mean is not None and quote.most is not None:
            quote = self._with_looks_that_follow(query, quote)
        looks = self._growth(query, quote.charges, paid=False) if self.learns else []
        quote = replace(quote, growth=tuple(c for look in looks for c in look.charges))
        if self.state.counted is None:
            return quote
        # The bar of a count, as a share of the rows that count in place of all.
        rows, n = self.state.rows_at_least(query.window), self.state.rows(query.window)
        bar = None if quote.error_bar is None or not rows else quote.error_bar * n / rows
        return replace(quote, error_bar=bar if bar is not None and bar < 1.0 else None)

    def _with_looks_that_follow(self, query: LinearQuery, first: Quote) -> Quote:
        """The price of all looks, if they find what is estimated today."""
        every = self.rehearse(sparing=True).quote(query)
        if every.note is not None:
            return replace(first, note=every.note)
        return replace(
            first,
            charges=every.charges,
            note="the price is for means and counts like today's estimates; others take more or less",
        )

    def rehearse(self, *, sparing: bool) -> CalibratedRehearsal:
        return CalibratedRehearsal(self._fork(bounds=sparing))

    def _fork(self, *, bounds: bool) -> Calibrated:
        """A copy to ask, charge and teach. What is large is shared until it changes.

        Args:
            bounds: Whether answers of the copy may be bounded.
        """
        # Facts that never change, and prices, which are worked out once.
        reserve = self.state.reserve
        tiles = () if reserve is None else reserve.tiles
        shared = (
            self._base_plan,
            self._columns,
            self.state.prices,
            self.budget,
            self.policy,
            tiles,
        )
        memo: dict[int, object] = {id(one): one for one in shared}
        fork = deepcopy(self, memo)
        if not bounds:
            fork.state.bound_nothing()
        return fork

    def imagine(self, query: LinearQuery, look: Look) -> Outcome | Look | None:
        """Charges a look, and takes what is estimated already as if it had been published.

        Returns:
            What would follow from it; None for a look that publishes something else than estimates.
        """
        self.charged(look.charges)
        if self.state.payers is not None:
            self.state.payers.imagine(look.charges, owner=self.state.is_declared(query))
        self._imagine_unasked(query, look.charges)
        release = imagined(self.belief, look, self.state.evidence)
        if release is None:
            return None
        self.absorb(release)
        return self._conclude(query, look, release)

    def imagine_growth(self, look: Look) -> None:
        """Charges a look of the data set's own, and takes what is estimated as if it had been published."""
        self.charged(look.charges)
        if self.state.payers is not None:
            self.state.payers.imagine(look.charges, owner=True)
        release = imagined(self.belief, look, self.state.evidence)
        assert release is not None, "it measures tables"
        self.absorb(release)

    def _imagine_unasked(self, query: LinearQuery, charges: tuple[Charge, ...]) -> None:
        """Takes charges off what may be taken unasked that nobody has made."""
        room = self.state.unasked
        if room is None or not self.is_unasked(query):
            return
        taken = {charge.block: charge.rho for charge in charges}
        self.state.unasked = lambda window: np.asarray(
            np.maximum(room(window) - [taken.get(block, 0) for block in window], 0)
        )

    # ------------------------------------------------------------ memory

    def absorb(self, release: Release) -> None:
        self.state.absorb(release)
        if self._without_base and isinstance(release, TablesRelease):
            measured = {part.block for part in release.parts}
            self._without_base = [b for b in self._without_base if b not in measured]

    def rows_gone(self, n_blocks: int) -> None:
        self.state.allocator.bare = n_blocks

    def lost(self, look: dict[str, object]) -> None:
        """Only the charge remains. A base release is taken again when the next phase opens."""
        match look:
            case {"reason": "base", "tables": [[_, int(block), *_], *_]}:
                self._without_base.append(block)
            case {"kind": "rows", "blocks": [[int(block), *_]]} if block not in self._without_base:
                self._without_base.append(block)

    def remembered(self) -> dict[bytes, bytes]:
        return {**self.state.repeats.remembered(), **self._demand.remembered()}

    def recall(self, remembered: dict[bytes, bytes]) -> None:
        self._demand.recall(remembered)
        self.state.repeats.recall({k: v for k, v in remembered.items() if not is_name(k)})

    def release_from_bytes(self, data: bytes) -> Release:
        if FORMAT.is_of(data, ROWS):
            return RowsRelease.from_bytes(data)
        if FORMAT.is_of(data, SUMMED) or FORMAT.is_of(data, SHARED):
            return SumRelease.from_bytes(len(self.shape), data)
        return measured_from_bytes(self.shape, data)


class CalibratedRehearsal(Rehearsal):
    """Queries planned one after another on a copy of what was published; see ``bundle_rehearsal``."""

    def __init__(self, fork: Calibrated) -> None:
        self.fork = fork
        self._has_looked = False  # whether what is known by now is imagined in part

    def quote(self, query: AnyQuery) -> Quote:
        step = self.fork.answer(query)
        if isinstance(step, Outcome):
            return replace(Quote.of(step), growth=self._growth(query, ()))
        assert isinstance(query, LinearQuery), "no look is asked for by another query"
        aimed = isinstance(way := self.fork.way(query), Aimed)
        staged = query.target.relative is not None or query.target.mean is not None
        first = way.quote(query) if staged or aimed else None
        # What looks before this one find decides how precise one must be that aims at a share of its answer.
        most = self.fork.state.most(query) if aimed and self._has_looked else None
        charges: list[Charge] = []
        following: Outcome | Look | None = step
        while isinstance(following, Look):
            charges += following.charges
            following = self.fork.imagine(query, following)
            self._has_looked = True
        bar = None if following is None else widest_bar(following)
        paid = summed(charges)
        quote = Quote(None, paid, bar, growth=self._growth(query, paid))
        if first is not None and first.expected:
            most = first.most
        elif most is None:
            return quote
        unproven = getattr(following, "path", None) is Path.UNVERIFIED
        note = OUT_OF_REACH if unproven and not aimed else None
        return replace(quote, expected=True, most=most, note=note)

    def _growth(self, query: AnyQuery, paid: Sequence[Charge]) -> tuple[Charge, ...]:
        """What the data set is charged for what it measures more on its own account because of a query."""
        looks = self.fork.was_asked(query, paid)
        for look in looks:
            self.fork.imagine_growth(look)
        return summed(charge for look in looks for charge in look.charges)
