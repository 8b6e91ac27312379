"""The calibrated profile: a memory mechanism whose promises are variances, not tests of the data.

It keeps, for every sealed block and every small set of attributes, the best unbiased estimate of
their interaction that all publications together imply, with its exact variance. A query that this
pins down is easy; one that it does not is hard, and the data is measured exactly as precisely as is
lacking. Which of the two follows from the queries asked and from published numbers, never from the
data, so a quote is exact and free, and the flag leaks nothing.

*Privacy.* Every look (``looks``) is a discrete Gaussian release on named blocks, charged to the line
of each before it is taken; see ``accountant``. *Accuracy.* For a query fixed before the tables it uses
were published, the error is Gaussian with the published variance: ``error_bar`` covers with at least
the promised probability. An analyst who chooses queries by looking at published answers can select noise;
``error_bar_simultaneous`` covers all conjunctions on the same attributes and window at once.

Its parts are what is published (``public_state``), what queries may take of the lines (``line_rules``),
what is measured as phases open and later unasked (``base_release``), and the ways of answering (``ways``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from stream_dp.core.budget.accountant import Budget, Charge, Lines
from stream_dp.core.budget.parameters import Accuracy, Aim, Privacy
from stream_dp.core.changed_rows import ChangedRows
from stream_dp.core.mechanism import LinearMechanism, Look, Quote, Release
from stream_dp.core.outcome import Answered, Differences, Outcome, Recorded, Summed, TableAnswered
from stream_dp.core.queries.query import AnyQuery, LinearQuery, Product
from stream_dp.core.residual.answers.answers_so_far import answer_so_far
from stream_dp.core.residual.answers.rows_that_count import with_rows_that_count
from stream_dp.core.residual.base_release.demand import is_name
from stream_dp.core.residual.base_release.expected_queries import PlannedTile
from stream_dp.core.residual.base_release.openings import Openings
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.keys.found_values import FoundValues
from stream_dp.core.residual.keys.key_look import KEYS, KeyRelease
from stream_dp.core.residual.looks.composed_looks import JOINED, JoinedRelease
from stream_dp.core.residual.looks.counted_rows import ROWS, RowsRelease
from stream_dp.core.residual.looks.sum_look import SHARES, SUMS, SumRelease
from stream_dp.core.residual.looks.table_looks import FORMAT, measured_from_bytes
from stream_dp.core.residual.plan.aim_rule import Deviations, part_of_size, use_of
from stream_dp.core.residual.plan.planner import certifies
from stream_dp.core.residual.plan.promise import Promise
from stream_dp.core.residual.plan.reserve import Reserve
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.residual.rehearsal import CalibratedRehearsal
from stream_dp.core.residual.ways.aimed import AimedCounts, AimedSums
from stream_dp.core.residual.ways.correlations import Correlations
from stream_dp.core.residual.ways.counts import Counts, Fresh
from stream_dp.core.residual.ways.differences import DifferencesOfWindows
from stream_dp.core.residual.ways.means import Means
from stream_dp.core.residual.ways.quantiles import AimedQuantiles, QuantilesOfBins
from stream_dp.core.residual.ways.relative import Relative
from stream_dp.core.residual.ways.totals import Totals, sum_planner
from stream_dp.core.residual.ways.way import ROWS_CHANGED, Way
from stream_dp.core.rows.attribute_versions import Declared, Schema
from stream_dp.core.rows.universe import Universe
from stream_dp.core.running.counts_so_far import CountsSoFar
from stream_dp.core.running.periods_look import PERIODS, PeriodsRelease
from stream_dp.core.running.running_periods import RunningPeriods, RunningSettings
from stream_dp.core.running.tick_look import TICK, TickRelease
from stream_dp.core.synthetic.basis import SmallTables

_KINDS: Final = frozenset(
    {"predicate", "table", "sum", "share", "difference", "quantile", "correlation"}
)

# A difference of shares is one of ratios where the number of rows that count is not known.
_KINDS_OF_PERSONS: Final = _KINDS - {"difference"}

_Rule = tuple[Callable[[LinearQuery], bool], type[Way]]

_WAYS: Final[Sequence[_Rule]] = (
    (lambda query: query.difference is not None, DifferencesOfWindows),
    (lambda query: query.rank is not None, QuantilesOfBins),
    (lambda query: query.target.mean is not None, Means),
    (lambda query: query.target.relative is not None, Relative),
    (lambda query: query.total is not None, Totals),
    (lambda query: query.fresh, Fresh),
    (lambda _: True, Counts),
)
"""The way of answering a query is the first that fits. A correlation has one of its own."""

_AIMED_WAYS: Final[Sequence[_Rule]] = (
    (lambda query: query.difference is not None, DifferencesOfWindows),
    (lambda query: query.rank is not None, AimedQuantiles),
    (lambda query: query.total is not None, AimedSums),
    (lambda _: True, AimedCounts),
)
"""The same for queries whose precision the data set decides."""

_PLAIN: Final = CalibratedSettings()

_LIKE_TODAY: Final = (
    "the price is for means and counts like today's estimates; others take more or less"
)

_OTHERS: Final[Mapping[int, Callable[[bytes], Release]]] = {
    KEYS: KeyRelease.from_bytes,
    ROWS: RowsRelease.from_bytes,
    TICK: TickRelease.from_bytes,
    PERIODS: PeriodsRelease.from_bytes,
}
"""Readers of releases that follow from their bytes alone, by their kinds."""


class Calibrated(LinearMechanism):
    """One data set under the calibrated profile.

    Args:
        universe: The possible rows.
        privacy: Lifetime promise for each row; delta must be positive.
        accuracy: Promise for each answer, and for each cell of a table.
        settings: What else the definition says.

    Attributes:
        state: What is published, promised and left to spend. It is public.
        openings: What is measured as phases open.

    Raises:
        InvalidDefinition: delta is 0.
    """

    answers_fresh = True
    takes_schemas = True

    def __init__(
        self,
        universe: Universe,
        privacy: Privacy,
        accuracy: Accuracy,
        settings: CalibratedSettings = _PLAIN,
    ) -> None:
        budget = Budget.of(privacy, approximate=settings.approximate)
        promise = Promise(universe.shape, budget, accuracy, universe.planned_shape)
        self.found = FoundValues(universe, budget, settings.finds) if settings.finds else None
        if settings.running is not None:
            self.running = RunningPeriods(settings.running, promise)
        self.state = PublicState(promise, settings, self.found, self.running)
        self.spending = self.state.spending
        if settings.tiles:
            self.state.spending.reserve = _reserve_of(self.state)
        self.openings = Openings(self.state, Schema.of([*map(Declared, universe.attributes)]))
        self._ways = _ways_of(self.state)
        self._z = Deviations.of(accuracy)

    def change_schema(
        self, schema: Schema, tiles: Sequence[PlannedTile], running: RunningSettings | None = None
    ) -> None:
        state = self.state
        state.settings = replace(state.settings, tiles=tuple(tiles), running=running)
        state.change_schema(schema)
        if self.running is not None and running is not None:
            self.running.change(running, state.promise)
        self._ways = _ways_of(self.state)
        if tiles:
            state.spending.reserve = _reserve_of(state)
            state.expect_tiles()
        self.openings.plan_again(schema)

    def recorded(self, query: AnyQuery) -> Recorded:
        if not isinstance(query, LinearQuery):
            return Recorded(query.window.start)
        return self.state.versions.recorded(query)

    def __repr__(self) -> str:
        return f"Calibrated({len(self.state.belief)} blocks)"

    @property
    def kinds(self) -> frozenset[str]:
        return _KINDS if self.state.promise.total_known else _KINDS_OF_PERSONS

    @property
    def lines(self) -> Lines:
        """The spending of each block. It is public."""
        return self.state.spending.allocator.lines

    @property
    def erased(self) -> int:
        """The number of first blocks whose rows are erased, or lost. It is public."""
        return self.state.spending.allocator.erased

    @property
    def repeats_alike(self) -> bool:
        # What may be taken unasked depends on the time, and any query may have the first phase grow.
        return self.state.settings.aim is None and not self.openings.learned.is_growth_due

    def opening_units(self, n_rows: int) -> int:
        return self.openings.units(n_rows)

    def basis(self, window: range) -> SmallTables:
        tables, promise = self.state.belief.tables, self.state.promise
        return SmallTables(window, promise.shape, tables, promise.failure)

    # ------------------------------------------------------------ phases and charges

    def open_phase(self, n_rows: int) -> Sequence[Look]:
        return self.openings.open(self.state.open_block(n_rows))

    def opened(self) -> Sequence[Look]:
        return self.openings.opened()

    def complete(self, block: int, n_rows: int) -> Sequence[Look]:
        if n_rows:
            self.state.add_rows(block, n_rows)
        return self.openings.complete(block, n_rows)

    def was_asked(self, query: AnyQuery, charges: Sequence[Charge]) -> Sequence[Look]:
        if not isinstance(query, LinearQuery):
            return ()
        return self.openings.learned.was_asked(query, charges)

    def growth(self) -> Sequence[Look]:
        return self.openings.learned.growth()

    def charged(self, look_charges: tuple[Charge, ...]) -> None:
        self.lines.charge(look_charges)

    # ------------------------------------------------------------ queries

    def way(self, query: LinearQuery) -> Way:
        """The way in which a query is answered."""
        if isinstance(query.total, Product):
            return Correlations(self.state, query)
        rules = _AIMED_WAYS if self.state.spending.is_aimed(query) else _WAYS
        return self._ways[next(way for fits, way in rules if fits(query))]

    def _answer(self, query: LinearQuery) -> Outcome | Look:
        part = self.state.versions.as_one_part(query)
        if part is not None:  # it was perhaps asked in these attributes before
            return self.state.versions.placed(query, part, self._answer(part.query))
        way = self.way(query)
        step = way.answer(query)
        if isinstance(step, Look) and not way.stands_alone:
            step = ROWS_CHANGED if self.state.is_changed(query.window) else step
        return _counted(self.state, self._z, query, step)

    def _conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        part = self.state.versions.as_one_part(query)
        if part is not None:
            return self.state.versions.placed(
                query, part, self._conclude(part.query, look, release)
            )
        step = self.way(query).conclude(query, look, release)
        return _counted(self.state, self._z, query, step)

    def _quote(self, query: LinearQuery) -> Quote:
        part = self.state.versions.as_one_part(query)
        if part is not None:
            quote = self._quote(part.query)
            outcome = quote.outcome and self.state.versions.placed(query, part, quote.outcome)
            return replace(quote, outcome=outcome if isinstance(outcome, Outcome) else None)
        way = self.way(query)
        quote = way.quote(query)
        if quote.charges and not way.stands_alone and self.state.is_changed(query.window):
            return Quote(ROWS_CHANGED, ())
        if query.target.mean is not None and quote.most is not None:
            # Its price is that of all looks, if they find what is estimated today.
            every = self.rehearse(sparing=True).quote(query)
            charges = quote.charges if every.note else every.charges
            quote = replace(quote, charges=charges, note=every.note or _LIKE_TODAY)
        looks = self.openings.learned.growth_after(query, quote.charges, paid=False)
        quote = replace(quote, growth=tuple(c for look in looks for c in look.charges))
        if self.state.counted is None:
            return quote
        # The bar of a count, as a share of the rows that count in place of all.
        rows, n = self.state.rows_at_least(query.window), self.state.rows(query.window)
        bar = None if quote.error_bar is None or not rows else quote.error_bar * n / rows
        return replace(quote, error_bar=bar if bar is not None and bar < 1.0 else None)

    def so_far(self, query: LinearQuery, sealed: range, came: CountsSoFar) -> Outcome:
        """Answers a query for counts about sealed blocks and open periods together, without a look.

        Args:
            query: The query, about the sealed blocks if there are any.
            sealed: The sealed blocks of the window. There may be none.
            came: What ticks say of the open periods.
        """
        outcome, aim = answer_so_far(self.state, query, sealed, came), self.state.settings.aim
        return outcome if aim is None else _used(self._z, query, outcome, aim)

    def rehearse(self, *, sparing: bool) -> CalibratedRehearsal:
        return CalibratedRehearsal(self, bounds=sparing)

    # ------------------------------------------------------------ memory

    def absorb(self, release: Release) -> None:
        self.state.absorb(release)
        self.openings.absorb(release)

    @property
    def changed_rows(self) -> ChangedRows:
        return self.state.changed

    def rows_gone(self, n_blocks: int) -> None:
        self.state.spending.allocator.bare = n_blocks

    def lost(self, look: dict[str, object]) -> None:
        """Only the charge remains. A base release is taken again when the next phase opens."""
        self.openings.lost(look)

    def remembered(self) -> dict[bytes, bytes]:
        return {**self.state.repeats.remembered(), **self.openings.learned.demand.remembered()}

    def recall(self, remembered: dict[bytes, bytes]) -> None:
        self.openings.learned.demand.recall(remembered)
        self.state.repeats.recall({k: v for k, v in remembered.items() if not is_name(k)})

    def release_from_bytes(self, data: bytes) -> Release:
        (kind,) = FORMAT.read(data).fields("B")
        if kind in _OTHERS:
            return _OTHERS[kind](data)
        if kind in (SUMS, SHARES):
            return SumRelease.from_bytes(len(self.state.shape), data)
        if kind == JOINED:
            return JoinedRelease.from_bytes(data, self.release_from_bytes)
        return measured_from_bytes(self.state.shape, data)


def _reserve_of(state: PublicState) -> Reserve:
    return Reserve(state.settings.tiles, state.promise, partial(_certified, state))


def _certified(state: PublicState, query: LinearQuery) -> bool:
    """Whether what is published promises an answer, by variances alone."""
    terms = state.terms_for(query)
    if query.total is not None:
        return sum_planner(state, query, terms).certified
    return state.at_opening(query) is not None or certifies(
        state.evidence(query), terms.error, terms.z_steered
    )


def _counted(
    state: PublicState, z: Deviations, query: LinearQuery, step: Outcome | Look
) -> Outcome | Look:
    """The same, with what is known of the rows that count where their number is private."""
    if isinstance(step, Look):
        return step
    if state.counted is not None:
        wider = z.wider if state.spending.is_aimed(query) else None
        step = with_rows_that_count(state, query, step, wider)
    aim = state.settings.aim
    return step if aim is None else _used(z, query, step, aim)


def _used(z: Deviations, query: LinearQuery, outcome: Outcome, aim: Aim) -> Outcome:
    """The same with how useful it is, where the way of answering did not say so."""
    if not isinstance(outcome, Answered | TableAnswered | Summed | Differences):
        return outcome
    part = None if outcome.use else part_of_size(query, outcome, z.plain)
    return outcome if part is None else replace(outcome, use=use_of(part, aim, math.inf))


def _ways_of(state: PublicState) -> dict[type[Way], Way]:
    rules = _WAYS if state.settings.aim is None else (*_WAYS, *_AIMED_WAYS)
    return {way: way(state) for _, way in rules}
