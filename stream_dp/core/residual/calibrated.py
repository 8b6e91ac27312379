"""The calibrated profile: a memory mechanism whose promises are variances, not tests of the data.

It keeps, for every sealed block and every small set of attributes, the best unbiased estimate of
their interaction that all publications together imply, with its exact variance. A query that this
pins down is easy; one that it does not is hard, and the data is measured exactly as precisely as is
lacking. Which of the two follows from the queries asked and from published numbers, never from the
data, so a quote is exact and free, and the flag leaks nothing.

*Privacy.* Every look (``measuring``) is a discrete Gaussian release on named blocks, charged to the line
of each before it is taken; see ``accounting``. *Accuracy.* For a query fixed before the tables it uses
were published, the error is Gaussian with the published variance: ``error_bar`` covers with at least
the promised probability. An analyst who chooses queries by looking at published answers can select noise;
``error_bar_simultaneous`` covers all conjunctions on the same attributes and window at once.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from itertools import combinations
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from stream_dp.core.accounting import UNITS, Budget, Charge, Lines, summed
from stream_dp.core.mechanism import LinearMechanism, Look, Quote, Rehearsal, Release
from stream_dp.core.noise import grid_sigma
from stream_dp.core.outcome import (
    Answered,
    Outcome,
    Path,
    RefusalCode,
    Refused,
    Summed,
    TableAnswered,
    widest_bar,
)
from stream_dp.core.parameters import Accuracy, Privacy
from stream_dp.core.query import AnyQuery, LinearQuery
from stream_dp.core.residual.answering import ROUNDING, AnswerMaker, variance_of
from stream_dp.core.residual.base_plan import BaseRelease, Reach, base_plan
from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.belief.evidence import Belief, Evidence
from stream_dp.core.residual.belief.forms import (
    MAX_SPECTRUM,
    form_of,
)
from stream_dp.core.residual.belief.sums import form_of_total, rows_query
from stream_dp.core.residual.means import MeanStage, next_stage
from stream_dp.core.residual.measuring import (
    BASE,
    FORMAT,
    QUERY,
    CountsLook,
    CountsRelease,
    Part,
    TablesLook,
    TablesRelease,
    measured_from_bytes,
)
from stream_dp.core.residual.planner import (
    MAX_TABLE_CELLS,
    Bounded,
    BudgetAllocator,
    Certified,
    Decision,
    Lack,
    Measure,
    Policy,
    Prices,
    Terms,
    Unproven,
    plan,
    plan_fresh,
)
from stream_dp.core.residual.rehearsing import imagined
from stream_dp.core.residual.repeats import Repeats, Seen
from stream_dp.core.residual.stages import Last, Pilot, Settled, StagedLook, Stages, Stuck
from stream_dp.core.residual.sum_look import SUMMED, SumLook, SumRelease
from stream_dp.core.residual.sum_plan import Demand, MeasureSums, SumPlanner
from stream_dp.core.residual.targets import NO_LIMITS, Limits, percent, terms_of, too_dear
from stream_dp.core.residual.workload import Group
from stream_dp.core.synthetic.basis import SmallTables
from stream_dp.core.universe import Universe
from stream_dp.errors import InvalidDefinition

_REFUSALS = {
    Lack.PACE: Refused(
        RefusalCode.BUDGET_EXHAUSTED,
        "what is left of a block's budget is kept for later phases; ask again after the next one "
        "opens, or about younger phases only",
        retriable=True,
    ),
    Lack.BUDGET: Refused(
        RefusalCode.BUDGET_EXHAUSTED,
        "a block of the window has no budget left for this; what publications already answer, and "
        "windows of younger phases, can still be asked",
    ),
    Lack.ROWS: Refused(
        RefusalCode.WINDOW_TOO_SMALL,
        "the window has too few rows for the promised accuracy; ask about more phases",
    ),
}

_TOO_MANY_CELLS = Refused(
    RefusalCode.TOO_MANY_CELLS,
    "the attributes have too many cells together; ask about fewer at once",
)

_TOO_MANY_DRAWS = Refused(
    RefusalCode.TOO_MANY_CELLS,
    "the attributes have too many cells together for this many phases; ask about fewer of either at once",
)

MOST_DRAWN: Final = 2**22
"""Draws of noise for one query: its measurements fit into one commit."""


class Calibrated(LinearMechanism):
    """One data set under the calibrated profile.

    Args:
        universe: The possible rows.
        privacy: Lifetime promise for each row; delta must be positive.
        accuracy: Promise for each answer, and for each cell of a table.
        on_exhausted: Whether a query that no line can pay for is answered without a promise, or
            refused.
        base_share: Part of each new line spent when its phase opens; None derives it.
        queries_per_phase: Different queries expected in each phase; None for the default.
        workload: What queries are expected; None for the generic workload.
        pacing: Whether part of young lines is kept for the phases to come.
        limits: What queries may ask for.
        approximate: Whether looks with a delta of their own are charged to the same lines.

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
        pacing: bool = False,
        limits: Limits = NO_LIMITS,
        approximate: bool = False,
    ) -> None:
        if base_share is not None and not 0.0 <= base_share <= 1.0:
            raise InvalidDefinition(
                "mechanism.base_share", "is not in [0, 1]", "give a share such as 0.2"
            )
        self.budget = Budget.of(privacy, approximate=approximate)
        self.accuracy = accuracy
        self.policy = Policy(base_share=base_share, pacing=pacing)
        self._shape = universe.shape
        self._on_exhausted = on_exhausted
        self._terms = Terms.of(accuracy)
        self._limits = limits
        self._prices = Prices(self.budget)
        self._stages = Stages(accuracy, self._prices)
        self._z_of_mean = two_sided(math.log(accuracy.failure_probability / 2.0))
        self._allocator = BudgetAllocator(self.policy)
        self._base_plan = base_plan(self._shape, workload, queries_per_phase)
        self._belief = Belief(self._shape)
        self._answers = AnswerMaker(self._shape, accuracy, self._belief, self._evidence)
        self._repeats = Repeats(
            self._shape, self._terms, self._belief, self._answers, self._evidence
        )
        self._counted = Counter[tuple[int, ...]]()
        self._without_base: list[int] = []
        self._n_tables = 0

    def __repr__(self) -> str:
        return f"Calibrated({len(self._belief)} blocks)"

    answers_fresh = True

    @property
    def belief(self) -> Belief:
        """Everything published so far."""
        return self._belief

    @property
    def shape(self) -> tuple[int, ...]:
        """Cells of each attribute."""
        return self._shape

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset({"predicate", "table", "sum"})

    def opening_units(self, n_rows: int) -> int:
        return self.base_release(n_rows).units

    def basis(self, window: range) -> SmallTables:
        failure_probability = self.accuracy.failure_probability
        return SmallTables(window, self._shape, self._belief.tables, failure_probability)

    # ------------------------------------------------------------ phases and losses

    def base_release(self, n_rows: int) -> BaseRelease:
        """Returns what opening a phase of ``n_rows`` rows measures. It is public."""
        share = self.policy.base_share
        return self._base_plan.release(n_rows, self._terms, share, self.budget, self._prices)

    def base_reach(self, n_rows: int) -> Reach | None:
        """Returns what base releases certify in phases of ``n_rows`` rows; None if they are empty."""
        share = self.policy.base_share
        return self._base_plan.reach(n_rows, self._terms, share, self.budget, self._prices)

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
        return self._base_plan.one_by_one(n_rows, self._terms, self.budget)

    def certifying_product(self) -> float:
        """Returns the least product of error and rows with which tables alone can certify the workload."""
        variance = self._base_plan.whole_price / float(self.budget.rho)
        return self._terms.z * math.sqrt(variance)

    def open_phase(self, n_rows: int) -> Sequence[Look]:
        self._belief.open_block(n_rows)
        block = self._allocator.open(self.base_release(n_rows).share)
        # A base release that a crash lost is taken again, where the line still has room for it.
        blocks, self._without_base = [*self._without_base, block], []
        looks = [self._base_look(block) for block in blocks]
        return [look for look in looks if look.parts and self._allocator.lines.afford(look.charges)]

    def _base_look(self, block: int) -> TablesLook:
        base = self.base_release(self._belief.rows(range(block, block + 1)))
        parts = tuple(Part(attributes, block, step) for attributes, step in base.tables)
        shapes = tuple(tuple(self._shape[a] for a in part.attributes) for part in parts)
        return TablesLook(BASE, parts, shapes, (Charge(block, base.units),))

    def charged(self, look_charges: tuple[Charge, ...]) -> None:
        self._allocator.lines.charge(look_charges)

    @property
    def lines(self) -> Lines:
        """The spending of each block. It is public."""
        return self._allocator.lines

    def spent(self, window: range) -> float:
        """The highest loss of any row in the window so far, as epsilon at the promised delta."""
        return self.budget.epsilon(self._allocator.lines.worst(window))

    def spent_share(self, window: range) -> float:
        """The same as a share of the line."""
        return self._allocator.lines.worst(window).rho / UNITS

    # ------------------------------------------------------------ queries

    def _answer(self, query: LinearQuery) -> Outcome | Look:
        if query.target.mean is not None:
            return self._first_of_mean(query)
        step = self._decide(query) if query.target.relative is None else self._first_stage(query)
        if isinstance(step, Measure | MeasureSums):
            return self._look(query, step)
        if isinstance(step, Answered | TableAnswered) and step.path is not Path.REPEAT:
            self._remember(query, step)
        return step

    def _conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        if isinstance(look, StagedLook):
            step = (
                self._by_final_look(query, release)
                if look.final
                else self._next_stage(query, look.paid)
            )
            if isinstance(step, Answered):
                self._remember(query, step)
            return step
        if query.target.mean is not None:
            assert isinstance(look, SumLook), "no other look is taken for the error of a mean"
            if not look.final:
                return self._next_of_mean(query, look.paid)
            return self._mean_alone(query, release)
        if query.fresh:
            assert isinstance(release, CountsRelease), "a fresh answer is counted"
            return self._answers.by_itself(query, release)
        del look, release  # absorbed by now: what was published is all that counts
        if query.total is not None:
            return self._answers.summed(query, Path.MEASURED)
        evidence = self._evidence(query)
        outcome = self._answers.by_variance(query, evidence, self._terms.z_measured, Path.MEASURED)
        self._remember(query, outcome)
        return outcome

    def _quote(self, query: LinearQuery) -> Quote:
        if query.target.relative is not None:
            return self._quote_of_stages(query)
        if query.target.mean is not None:
            return self._quote_of_mean(query)
        step = self._decide(query)
        if isinstance(step, Measure | MeasureSums):
            return Quote(None, step.charges, self._bar_after(query, step))
        return Quote.of(step)

    def rehearse(self, *, sparing: bool) -> CalibratedRehearsal:
        return CalibratedRehearsal(self._fork(bounds=sparing))

    def _fork(self, *, bounds: bool) -> Calibrated:
        """A copy to ask, charge and teach. What is large is shared until it changes.

        Args:
            bounds: Whether answers of the copy may be bounded.
        """
        # Facts that never change, and prices, which are worked out once.
        shared = (self._base_plan, self._prices, self._stages, self.budget, self.policy)
        memo: dict[int, object] = {id(one): one for one in shared}
        fork = deepcopy(self, memo)
        if not bounds:
            fork._terms = replace(self._terms, log_bounds_failure=_NEVER)  # noqa: SLF001 - of its own kind
        return fork

    def imagine(self, query: LinearQuery, look: Look) -> Outcome | Look | None:
        """Charges a look, and takes what is estimated already as if it had been published.

        Returns:
            What would follow from it; None for a look that publishes something else than estimates.
        """
        self.charged(look.charges)
        release = imagined(self._belief, look, self._evidence)
        if release is None:
            return None
        self.absorb(release)
        return self._conclude(query, look, release)

    # ------------------------------------------------------------ relative errors

    def _first_stage(self, query: LinearQuery) -> Outcome | Look:
        settled = self._settled(query)
        return self._next_stage(query, {}) if settled is None else settled

    def _next_stage(self, query: LinearQuery, paid: Mapping[int, int]) -> Outcome | Look:
        """The next look of a relative error, or the answer where none is needed or possible.

        Args:
            query: A count with a relative error.
            paid: Units that the query has taken of each block's line so far.
        """
        evidence, relative = self._evidence(query), query.target.relative
        assert relative is not None, "the query has a relative error"
        most = self._limits.most(query.target)
        step = self._stages.step(evidence, self._room(query, most, paid), relative)
        match step:
            case Settled(z=z):
                path = Path.MEASURED if paid else Path.CERTIFIED
                return self._answers.by_variance(query, evidence, z, path)
            case Stuck(z=z):
                return self._stuck(query, evidence, z, paid)
            case Pilot(measure=measure) | Last(measure=measure):
                return self._staged_look(query, measure, paid, final=isinstance(step, Last))

    def _room(
        self, query: LinearQuery, most: int | None, paid: Mapping[int, int]
    ) -> npt.NDArray[np.int64]:
        """Units of each line that a query may still take, given what it has taken."""
        room = self._allocator.room(query.window)
        if most is None:
            return room
        taken = np.array([paid.get(block, 0) for block in query.window])
        return np.asarray(np.minimum(room, np.maximum(most - taken, 0)))

    def _stuck(
        self, query: LinearQuery, evidence: Evidence, z: float | None, paid: Mapping[int, int]
    ) -> Outcome:
        """The outcome of a relative error that what may be paid does not allow."""
        most, relative = self._limits.most(query.target), query.target.relative
        assert relative is not None, "the query has a relative error"
        if most is not None and not paid:
            room = self._room(query, None, {})
            expected = self._stages.expected(evidence, room, relative)
            if expected is not None and max(charge.rho for charge in expected[0]) > most:
                return too_dear(expected[0], most, about=True)
        if self._on_exhausted == "refuse":
            return _REFUSALS[Lack.BUDGET]
        if z is not None:
            return self._answers.by_variance(query, evidence, z, Path.UNVERIFIED)
        low, high = evidence.interval(self._terms.log_bounds_failure)
        return self._unproven(query, evidence, Unproven(low, high, Lack.BUDGET))

    def _staged_look(
        self, query: LinearQuery, measure: Measure, paid: Mapping[int, int], *, final: bool
    ) -> Outcome | Look:
        drawable = self._drawable(query, measure)
        if isinstance(drawable, Refused):
            return drawable
        total = dict(paid)
        for charge in measure.charges:
            total[charge.block] = total.get(charge.block, 0) + charge.rho
        return StagedLook(query, query.attributes, measure.steps, 1, measure.charges, final, total)

    def _by_final_look(self, query: LinearQuery, release: Release) -> Answered:
        assert isinstance(release, CountsRelease), "the release of this look"
        return self._answers.by_final_look(query, release, self._stages.z_final)

    def _quote_of_stages(self, query: LinearQuery) -> Quote:
        """The price if the count is what it looks like today."""
        step = self._first_stage(query)
        if isinstance(step, Outcome):
            return Quote.of(step)
        evidence, relative = self._evidence(query), query.target.relative
        most = self._limits.most(query.target)
        assert relative is not None, "the query has a relative error"
        assert most is not None, "a relative error has a price that it may not pass"
        expected = self._stages.expected(evidence, self._room(query, most, {}), relative)
        charges, bar = (step.charges, math.inf) if expected is None else expected
        share = bar / evidence.n_rows
        note = (
            "the price is for a count like today's estimate; a smaller count takes more, up to "
            f"{percent(most / UNITS)} of a block's budget"
        )
        return Quote(None, charges, share if share < 1.0 else None, expected=True, note=note)

    # ------------------------------------------------------------ errors of means

    def _first_of_mean(self, query: LinearQuery) -> Outcome | Look:
        settled = self._settled(query)
        if settled is not None:
            return settled
        known = self._answers.summed(query, Path.CERTIFIED, z=self._z_of_mean)
        return known if self._means_hold(query, known) else self._next_of_mean(query, {})

    def _next_of_mean(self, query: LinearQuery, paid: Mapping[int, int]) -> Outcome | Look:
        """The next look of a mean, or the answer where none is possible.

        Args:
            query: A sum with an error for its mean.
            paid: Units that the query has taken of each block's line so far.
        """
        most = self._limits.most(query.target)
        stage = self._stage_of_mean(query, self._room(query, most, paid))
        if stage is None:
            return self._mean_unverified(query, most, paid)
        drawable = self._drawable(query, stage.measure)
        if isinstance(drawable, Refused):
            return drawable
        look = self._look(query, stage.measure)
        assert isinstance(look, SumLook), "sums are measured"
        total = dict(paid)
        for charge in look.charges:
            total[charge.block] = total.get(charge.block, 0) + charge.rho
        return replace(look, final=stage.final, paid=total)

    def _stage_of_mean(self, query: LinearQuery, room: npt.NDArray[np.int64]) -> MeanStage | None:
        assert query.total is not None, "the query has a total"
        assert query.target.mean is not None, "its mean has an error"
        return next_stage(
            self._sum_planner(query, self._terms),
            self._belief.sums_alone(query),
            self._terms,
            query.target.mean / query.total.largest,
            self._z_of_mean,
            self._prices,
            room,
        )

    def _mean_unverified(
        self, query: LinearQuery, most: int | None, paid: Mapping[int, int]
    ) -> Outcome:
        """The outcome of a mean that what may be paid does not allow."""
        if most is not None and not paid:
            dearer = self._stage_of_mean(query, self._room(query, None, {}))
            if dearer is not None:
                return too_dear(dearer.measure.charges, most)
        if self._on_exhausted == "refuse":
            return _REFUSALS[Lack.BUDGET]
        return self._answers.summed(query, Path.UNVERIFIED, z=self._z_of_mean)

    def _mean_alone(self, query: LinearQuery, release: Release) -> Summed:
        """The answer that the final look is by itself."""
        assert isinstance(release, SumRelease), "the release of this look"
        looks = {}
        for number, (block, _, _) in enumerate(release.steps):
            n_rows = self._belief.rows(range(block, block + 1))
            looks[block] = release.estimates(n_rows, number)
        alone = self._belief.sums_alone(query, looks)
        found = self._answers.summed(query, Path.MEASURED, alone, z=self._z_of_mean)
        return found if self._means_hold(query, found) else replace(found, path=Path.UNVERIFIED)

    def _means_hold(self, query: LinearQuery, found: Summed) -> bool:
        """Whether each mean that rows can have is as precise as the query asks."""
        assert query.target.mean is not None, "its mean has an error"
        live = self._belief.sums(query).live
        bars = [
            cell.mean_bar for index, cell in enumerate(found.cells) if live is None or live[index]
        ]
        return all(bar is not None and bar <= query.target.mean for bar in bars)

    def _quote_of_mean(self, query: LinearQuery) -> Quote:
        """The price of the next look: the final one, or a pilot that finds out how precise it must be."""
        step = self._first_of_mean(query)
        if isinstance(step, Outcome):
            return Quote.of(step)
        assert isinstance(step, SumLook), "no other look is taken for the error of a mean"
        note = (
            None
            if step.final
            else (
                "the price is that of a first look, which finds out how many rows there are; the look that "
                "answers comes on top of it"
            )
        )
        return Quote(None, step.charges, expected=not step.final, note=note)

    # ------------------------------------------------------------ error bars to come

    def _bar_after(self, query: LinearQuery, measure: Measure | MeasureSums) -> float | None:
        """The largest error bar after a look, as ``_conclude`` will have it: a share of the rows."""
        if isinstance(measure, MeasureSums):
            deviation = math.sqrt(self._sum_planner(query, self._terms).variance_after(measure))
            bar = self._terms.z * deviation / self._belief.rows(query.window) + ROUNDING
            return bar if bar < 1.0 else None
        if query.fresh:
            deviation = math.sqrt(variance_of(measure.steps))
            return self._terms.z * deviation / self._belief.rows(query.window) + ROUNDING
        precision = np.zeros(len(query.window))
        for block, step in measure.steps:
            precision[block - query.window.start] = float(grid_sigma(step) ** -2)
        variance = self._evidence(query).variance_after(precision, table=measure.table)
        z = self._terms.z_measured if query.total is None else self._terms.z
        bar = z * math.sqrt(variance) / self._belief.rows(query.window) + ROUNDING
        return bar if bar < 1.0 else None

    def _settled(self, query: LinearQuery) -> Outcome | None:
        """The outcome where no plan is needed for it."""
        window, predicate = query.window, query.predicate
        if window.stop > len(self._belief):
            return Refused(RefusalCode.NO_PHASE, "the window holds a phase that is not open yet")
        known = None if query.fresh else self._repeated(query)
        if known is not None:
            return known
        n_rows = self._belief.rows(window)
        if n_rows == 0:
            return Refused(RefusalCode.WINDOW_TOO_SMALL, "the window holds no rows")
        refusal = self._limits.refusal(terms_of(self._terms, query, n_rows))
        if refusal is not None:
            return refusal
        certain = predicate.constant is False or (predicate.constant and not query.group_by)
        if certain and query.total is None:
            return self._answers.certain(query, n_rows if predicate.constant else 0, n_rows)
        return _TOO_MANY_CELLS if self._too_many_cells(query) else None

    def _decide(self, query: LinearQuery) -> Outcome | Measure | MeasureSums:
        settled = self._settled(query)
        if settled is not None:
            return settled
        terms = terms_of(self._terms, query, self._belief.rows(query.window))
        if query.total is not None:
            return self._decide_total(query, terms)
        evidence = self._evidence(query)
        most = self._limits.most(query.target)
        if query.fresh:
            return self._decide_fresh(query, evidence, terms, most)
        decision = self._plan(evidence, terms, most)
        if most is not None and isinstance(decision, Unproven):
            dearer = self._plan(evidence, terms, None)
            if isinstance(dearer, Measure):
                return too_dear(dearer.charges, most)
            decision = dearer
        match decision:
            case Certified():
                return self._answers.by_variance(query, evidence, self._terms.z, Path.CERTIFIED)
            case Measure():
                return self._drawable(query, decision)
            case Bounded():
                return self._answers.by_bounds(query, evidence, decision, terms.error)
            case Unproven():
                return self._unproven(query, evidence, decision)

    def _plan(self, evidence: Evidence, terms: Terms, most: int | None) -> Decision:
        """The plan for a count or table that takes at most ``most`` units of any line."""
        return plan(evidence, terms, self.policy, self._prices, self._within(most))

    def _within(self, most: int | None) -> BudgetAllocator:
        return self._allocator if most is None else self._allocator.within(most)

    def _decide_fresh(
        self, query: LinearQuery, evidence: Evidence, terms: Terms, most: int | None
    ) -> Refused | Measure | MeasureSums:
        decision = plan_fresh(evidence, terms, self._prices, self._within(most))
        if most is not None and isinstance(decision, Lack):
            decision = plan_fresh(evidence, terms, self._prices, self._allocator)
            if isinstance(decision, Measure):
                return too_dear(decision.charges, most)
        if isinstance(decision, Measure):
            return self._drawable(query, decision)
        return _REFUSALS[decision]

    def _sum_planner(self, query: LinearQuery, terms: Terms) -> SumPlanner:
        n_rows, every = self._belief.rows(query.window), rows_query(query)
        return SumPlanner(
            self._belief.sums(query),
            None if every is None else self._evidence(every),
            self._evidence(query),
            Demand.of_totals(terms, n_rows, rows=query.rows is not None),
        )

    def _decide_total(self, query: LinearQuery, terms: Terms) -> Outcome | Measure | MeasureSums:
        planner, most = self._sum_planner(query, terms), self._limits.most(query.target)
        decision = planner.plan(terms, self.policy, self._prices, self._within(most))
        if most is not None and isinstance(decision, Lack):
            decision = planner.plan(terms, self.policy, self._prices, self._allocator)
            if isinstance(decision, Measure | MeasureSums):
                return too_dear(decision.charges, most)
        if isinstance(decision, Measure | MeasureSums):
            return self._drawable(query, decision)
        if isinstance(decision, Certified):
            return self._answers.summed(query, Path.CERTIFIED)
        if self._on_exhausted == "refuse":
            return _REFUSALS[decision]
        return self._answers.summed(query, Path.UNVERIFIED)

    def _too_many_cells(self, query: LinearQuery) -> bool:
        n_entries = math.prod([self._shape[a] + 1 for a in query.attributes])
        n_answers = math.prod([self._shape[a] for a in query.group_by])
        return n_entries > MAX_SPECTRUM or n_answers > MAX_TABLE_CELLS

    def _drawable(
        self, query: LinearQuery, measure: Measure | MeasureSums
    ) -> Refused | Measure | MeasureSums:
        """A measurement, unless it asks for more noise than is drawn at once."""
        if isinstance(measure, MeasureSums):
            measured, each = query.group_by, measure.shape.vectors
        else:
            measured, each = query.attributes if measure.table else query.group_by, 1
        n_draws = len(measure.steps) * each * math.prod(self._shape[a] for a in measured)
        return measure if n_draws <= MOST_DRAWN else _TOO_MANY_DRAWS

    def _evidence(self, query: LinearQuery) -> Evidence:
        form = (form_of if query.total is None else form_of_total)(query, self._shape)
        counted = query.attributes in self._counted  # saves working the other key out where not
        complement = query.complement_key if counted else None
        return self._belief.evidence(form, query.key, query.window, complement=complement)

    def _look(self, query: LinearQuery, measure: Measure | MeasureSums) -> Look:
        attributes = query.attributes
        if isinstance(measure, MeasureSums):
            n_answers = math.prod(self._shape[a] for a in query.group_by)
            return SumLook(
                query, measure.values, measure.shape, measure.steps, n_answers, measure.charges
            )
        if measure.table:
            shape = tuple(self._shape[a] for a in attributes)
            parts = tuple(Part(attributes, block, step) for block, step in measure.steps)
            return TablesLook(QUERY, parts, (shape,) * len(parts), measure.charges)
        n_answers = math.prod(self._shape[a] for a in query.group_by)
        return CountsLook(query, attributes, measure.steps, n_answers, measure.charges)

    # ------------------------------------------------------------ outcomes

    def _unproven(self, query: LinearQuery, evidence: Evidence, unproven: Unproven) -> Outcome:
        if self._on_exhausted == "refuse":
            return _REFUSALS[unproven.lack]
        values = evidence.likely().clip(unproven.low, unproven.high)
        return self._answers.by_interval(query, evidence, values, unproven, Path.UNVERIFIED)

    # ------------------------------------------------------------ memory

    def absorb(self, release: Release) -> None:
        if isinstance(release, TablesRelease):
            self._n_tables += 1
            for part, table in zip(release.parts, release.tables, strict=True):
                variance = float(grid_sigma(part.step) ** 2)
                self._belief.absorb_table(
                    part.attributes, part.block, table.astype(np.float64), variance
                )
                self._allocator.bought(part.attributes, part.block)
        elif isinstance(release, CountsRelease):
            if release.fresh:
                return  # it answers one query, and enters no memory
            self._counted[release.attributes] += 1
            squared_sensitivity = 1 if release.values.shape[1] == 1 else 2
            for (block, step), values in zip(release.steps, release.values, strict=True):
                variance = float(grid_sigma(step) ** 2)
                self._belief.absorb_count(release.key, block, values.astype(np.float64), variance)
                units = self._prices.units(step, squared_sensitivity)
                self._allocator.rented(release.attributes, block, units)
        elif isinstance(release, SumRelease):
            self._absorb_sums(release)
        else:
            raise TypeError("not a release of this mechanism")

    def _absorb_sums(self, release: SumRelease) -> None:
        shape = release.shape
        of_sums, of_counts, of_rows = release.keys
        for number, (block, step, counted) in enumerate(release.steps):
            n_rows = self._belief.rows(range(block, block + 1))
            self._belief.absorb_sums(
                of_sums, release.attributes, block, release.estimates(n_rows, number)
            )
            sigma = grid_sigma(counted) if shape.counts else None
            if sigma is not None:
                # The counts serve queries for counts too, which may depend on one attribute less.
                every_but_one = combinations(release.attributes, len(release.attributes) - 1)
                self._counted.update((release.attributes, *every_but_one))
                variance, counts = float(sigma**2), release.values[number, 1].astype(np.float64)
                self._belief.absorb_count(of_counts, block, counts, variance)
                if shape.rests:
                    every = counts + release.values[number, 2]
                    self._belief.absorb_count(of_rows, block, every, 2.0 * variance)
            units = self._prices.of(shape.rho(grid_sigma(step), sigma))
            self._allocator.rented(release.attributes, block, units)

    def lost(self, look: dict[str, object]) -> None:
        """Only the charge remains. A base release is taken again when the next phase opens."""
        match look:
            case {"reason": "base", "tables": [[_, int(block), _], *_]}:
                self._without_base.append(block)

    def remembered(self) -> dict[bytes, bytes]:
        return self._repeats.remembered()

    def recall(self, remembered: dict[bytes, bytes]) -> None:
        self._repeats.recall(remembered)

    def _remember(self, query: LinearQuery, outcome: Answered | TableAnswered | Refused) -> None:
        if not isinstance(outcome, Refused) and outcome.path is not Path.UNVERIFIED:
            self._repeats.remember(query, outcome, self._seen(query))

    def _repeated(self, query: LinearQuery) -> Answered | TableAnswered | None:
        """The remembered answer, or a better one of now, if it is as precise as the query asks."""
        return self._repeats.answer(query, self._seen(query))

    def _seen(self, query: LinearQuery) -> Seen:
        """Returns the numbers of tables, and of counts on its attributes, that bear on a query."""
        return self._n_tables, self._counted[query.attributes]

    def release_from_bytes(self, data: bytes) -> Release:
        if FORMAT.is_of(data, SUMMED):
            return SumRelease.from_bytes(len(self._shape), data)
        return measured_from_bytes(self._shape, data)


class CalibratedRehearsal(Rehearsal):
    """Queries planned one after another on a copy of what was published; see ``rehearsing``."""

    def __init__(self, fork: Calibrated) -> None:
        self.fork = fork

    def quote(self, query: AnyQuery) -> Quote:
        step = self.fork.answer(query)
        if isinstance(step, Outcome):
            return Quote.of(step)
        assert isinstance(query, LinearQuery), "no look is asked for by another query"
        charges: list[Charge] = []
        following: Outcome | Look | None = step
        while isinstance(following, Look):
            charges += following.charges
            following = self.fork.imagine(query, following)
        bar = None if following is None else widest_bar(following)
        target = query.target
        staged = target.relative is not None or target.mean is not None
        return Quote(None, summed(charges), bar, expected=staged)


_NEVER: Final = -1e5
"""Logarithm of a probability with which bounds may fail, so small that they say nothing."""


__all__ = ["MOST_DRAWN", "Calibrated"]
