"""Everything published about one data set, what it promises, and what its lines have left.

All ways of answering (``ways``) decide from this, and from this alone. It holds no reference to the data:
it is a fold over phases, charges and releases.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, combinations
from typing import Final, Literal

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.accountant import UNITS, Budget
from stream_dp.core.budget.parameters import Accuracy, Aim, Target
from stream_dp.core.budget.share_bounds import Payers, Room
from stream_dp.core.mechanism import ROWS_ERASED, SHARE_SPENT, Release
from stream_dp.core.outcome import (
    Answered,
    Outcome,
    Path,
    Quantiles,
    RefusalCode,
    Refused,
    RowsThatCount,
    Sum,
    Summed,
    TableAnswered,
)
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.answer_maker import AnswerMaker
from stream_dp.core.residual.base_release.growth import Bought
from stream_dp.core.residual.belief.evidence import Belief, Evidence
from stream_dp.core.residual.belief.levels import axes_of
from stream_dp.core.residual.belief.linear_forms import form_of
from stream_dp.core.residual.belief.sums import SumEvidence, form_of_total
from stream_dp.core.residual.looks.counted_rows import FAILURE, CountedRows, RowsRelease
from stream_dp.core.residual.looks.sum_look import SumRelease
from stream_dp.core.residual.looks.table_looks import BASE, QUERY, CountsRelease, TablesRelease
from stream_dp.core.residual.plan.planner import (
    BudgetAllocator,
    Lack,
    Policy,
    Prices,
    Terms,
    certifies,
)
from stream_dp.core.residual.plan.reserve import Reserve
from stream_dp.core.residual.plan.targets import Limits, terms_of
from stream_dp.core.residual.repeats import Repeats, Seen

_LACKING: Final = {
    Lack.TILES: Refused(
        RefusalCode.BUDGET_EXHAUSTED,
        "what is left of a phase's budget is kept for the tiles that the definition declares; ask again "
        "when they were asked about the newest phase",
        retriable=True,
    ),
    Lack.PACE: Refused(
        RefusalCode.BUDGET_EXHAUSTED,
        "what is left of a phase's budget is kept for later phases; ask again after the next one "
        "opens, or about younger phases only",
        retriable=True,
    ),
    Lack.SHARE: SHARE_SPENT,
    Lack.BUDGET: Refused(
        RefusalCode.BUDGET_EXHAUSTED,
        "a block of the window has no budget left for this; what publications already answer, and "
        "windows of younger phases, can still be asked",
    ),
    Lack.ERASED: ROWS_ERASED,
    Lack.ROWS: Refused(
        RefusalCode.WINDOW_TOO_SMALL,
        "the window has too few rows for the promised accuracy; ask about more phases",
    ),
}

_MOST_SUBSETS: Final = 6
"""Sizes of sets of attributes whose counts are known to be there after a look at a share."""

_NEVER: Final = -1e5
"""Logarithm of a probability with which bounds may fail, so small that they say nothing."""


class PublicState:
    """What a data set of the calibrated profile has published, promises and may still spend.

    Args:
        shape: The sizes of the universe's attributes.
        budget: The lifetime promise for each row.
        accuracy: The promise for each answer, and for each cell of a table.
        policy: How lines are spent.
        limits: What queries may ask for.
        on_exhausted: Whether a query that no line can pay for is answered without a promise, or refused.
        kept: The number of blocks, the last ones, whose rows are kept. None keeps all.

    Attributes:
        terms: The accuracy, as quantiles.
        prices: The prices of noise scales.
        allocator: What each line may still spend.
        bought: What was measured of each block unasked, and what queries have paid on it.
        counted: What is published of the number of rows that count; None where all do.
        belief: Everything published so far.
        answers: Makes answers of what is known.
        repeats: The verified answers.
        reserve: What is kept for declared tiles; None if there are none.
        learns: Whether what opens a later phase depends on what was asked before.
        payers: Who may pay for the query in hand; None where nobody's part of a line is bounded.
        aim: How precise answers are worth having; None where the data set does not say so.
        unasked: Units of each line of a window that the query in hand may take unasked, besides what each
            query may. None for no such bound.
    """

    def __init__(
        self,
        shape: tuple[int, ...],
        budget: Budget,
        accuracy: Accuracy,
        policy: Policy,
        limits: Limits,
        *,
        on_exhausted: Literal["unverified", "refuse"],
        kept: int | None = None,
    ) -> None:
        self.shape = shape
        self.accuracy = accuracy
        self.policy = policy
        self.limits = limits
        self.counted = None if budget.total_known else CountedRows(accuracy)
        of_rows = 0.0 if self.counted is None else FAILURE
        self.terms = Terms.of(accuracy, kept=of_rows)
        self.prices = Prices(budget)
        self.allocator = BudgetAllocator(policy, kept)
        self.bought = Bought(self.prices)
        self.belief = Belief(shape, total_known=budget.total_known)
        self.answers = AnswerMaker(shape, accuracy, self.belief, self.evidence, kept=of_rows)
        self.repeats = Repeats(
            shape, self.terms_for, self.belief, self.answers, self._best, self._seen
        )
        self._refuses = on_exhausted == "refuse"
        self._tables = [0] * len(shape)  # with each attribute
        self._n_tables = 0
        self._counts = Counter[bytes]()
        # The keys of counts by the attributes that they may depend on. Those that are known to be of products
        # of several factors are dropped: see ``_complement_key``.
        self._counted: dict[tuple[int, ...], set[bytes]] = {}
        self.reserve: Reserve | None = None
        self.payers: Payers | None = None
        self.learns = False
        self.aim: Aim | None = None
        self.unasked: Room | None = None

    # ------------------------------------------------------------ what is known

    def rows(self, window: range) -> int:
        """Rows of the window, those that do not count included; public."""
        return self.belief.rows(window)

    def rows_at_least(self, window: range) -> float:
        """Rows of the window that count, or a lower end of their number: errors are shares of this."""
        rows = self.belief.rows(window)
        return rows if self.counted is None else min(self.counted.at_least(window), rows)

    def terms_for(self, query: LinearQuery) -> Terms:
        """The accuracy that a query asks for, its error as a share of the rows of its window.

        Where not all rows count, a share of those that do is a smaller share of all.
        """
        n_rows = self.rows(query.window)
        terms = terms_of(self.terms, query, n_rows)
        if self.counted is None or query.target.value is not None or n_rows == 0:
            return terms
        return replace(terms, error=terms.error * self.rows_at_least(query.window) / n_rows)

    def evidence(self, query: LinearQuery) -> Evidence:
        """Returns what is known about a query."""
        form = (form_of if query.total is None else form_of_total)(query, self.shape)
        complement = self._complement_key(query)
        return self.belief.evidence(form, query.key, query.window, complement=complement)

    def at_opening(self, query: LinearQuery) -> Evidence | None:
        """What was measured as phases opened, where it alone is as precise as a query for counts asks.

        Whether it is follows from the definition, the rows and the query. So nobody can steer the answer.
        """
        if query.target.relative is not None:
            return None
        terms = self.terms_for(query)
        evidence = self.belief.at_opening(form_of(query, self.shape), query.window)
        z = terms.z_learned if self.is_learned(query.window) else terms.z
        return evidence if certifies(evidence, terms.error, z) else None

    def is_learned(self, window: range) -> bool:
        """Whether what was asked before decided how precise the openings of a window are."""
        return self.learns and len(window) > 1

    def _complement_key(self, query: LinearQuery) -> bytes | None:
        """The key of the same query about the other rows, where counts may be known under it."""
        if self.counted is not None:
            return None  # no count of the others says anything of these
        counted = self._counted.get(query.attributes)
        if counted is None:
            return None
        if len(query.predicate.factors or ()) > 1:
            # What such a product leaves out is not a product again, so only other counts can be about it.
            counted.discard(query.key)
            if not counted:
                return None
        return query.complement_key

    def bound_nothing(self) -> None:
        """From now on no answer is bounded by others."""
        self.terms = replace(self.terms, log_bounds_failure=_NEVER)

    # ------------------------------------------------------------ what may be spent

    def most(self, query: LinearQuery) -> int | None:
        """Units that a query may take of any line; None for no limit."""
        most = self.limits.most(query.target)
        if query.target.at_most is not None or not self.is_aimed(query):
            return most
        assert self.aim is not None, "the data set aims at something"
        unasked = math.floor(self.aim.query_share * UNITS)
        if self.unasked is not None:
            unasked = min(unasked, int(self.unasked(query.window).min()))
        return unasked if most is None else min(most, unasked)

    def is_aimed(self, query: LinearQuery) -> bool:
        """Whether the data set decides how precise the answer is."""
        aimed = self.aim is not None and query.target.is_open
        return aimed and not query.fresh and not self.is_declared(query)

    def lines_for(self, query: LinearQuery, most: int | None) -> BudgetAllocator:
        """The lines for a query that may take at most ``most`` units of each."""
        payers, declared = self.payers, self.is_declared(query)
        payer = None if payers is None else payers.room(owner=declared)
        # What is kept for tiles is the owner's. It is out of reach of those who have a pool of their own.
        apart = payers is not None and payers.apart
        kept = None if self.reserve is None or declared or apart else self.reserve.kept
        if kept is None and payer is None and most is None:
            return self.allocator
        return self.allocator.within(most, kept, payer)

    def is_declared(self, query: LinearQuery) -> bool:
        """Whether a query is a tile that the definition declares, about the newest phase."""
        return self.reserve is not None and self.reserve.is_for(query)

    def room(
        self, query: LinearQuery, most: int | None, paid: Mapping[int, int]
    ) -> npt.NDArray[np.int64]:
        """Units of each line that a query may still take.

        Args:
            query: The query.
            most: Units that it may take of any line; None for no limit.
            paid: Units that it has taken of each block's line so far.

        Returns:
            Units, shape (len(window),).
        """
        room = self.lines_for(query, None).room(query.window)
        if most is None:
            return room
        taken = np.array([paid.get(block, 0) for block in query.window])
        return np.asarray(np.minimum(room, np.maximum(most - taken, 0)))

    def stuck(self, query: LinearQuery, paid: Mapping[int, int]) -> Lack:
        """The reason why a query that is answered in several looks gets no further one.

        Args:
            query: The query.
            paid: Units that it has taken of each block's line so far. One that has paid is not refused for
                the share of the one who pays: it gets what it has paid for.
        """
        if query.window.start < self.allocator.erased:
            return Lack.ERASED
        if self.payers is None or paid:
            return Lack.BUDGET
        mine = self.lines_for(query, None).room(query.window)
        return Lack.SHARE if (mine < self.allocator.left(query.window)).any() else Lack.BUDGET

    def lacking(self, lack: Lack) -> Refused:
        """The refusal of a query that nothing can be promised for."""
        return _LACKING[lack]

    def refusal(self, lack: Lack) -> Refused | None:
        """The same; None for a data set that answers it all the same, which a spent share does not allow."""
        return _LACKING[lack] if self._refuses or lack is Lack.SHARE else None

    # ------------------------------------------------------------ repeats

    def repeated(self, query: LinearQuery) -> Answered | TableAnswered | None:
        """The remembered answer, or a better one of now, if it is as precise as the query asks."""
        return self.repeats.answer(query)

    def remember(self, query: LinearQuery, outcome: Outcome) -> None:
        """Remembers an answer that keeps its promise, for repeats."""
        if not isinstance(outcome, Answered | TableAnswered):
            return
        if outcome.path not in (Path.UNVERIFIED, Path.REPEAT):
            self.repeats.remember(query, outcome)

    def _best(self, query: LinearQuery) -> Answered | TableAnswered | None:
        """The answer from the best estimates of now; None where what was measured at openings answers."""
        if self.at_opening(query) is not None:
            return None
        error = self.terms_for(query).error
        return self.answers.by_promise(query, self.evidence(query), error, Path.CERTIFIED)

    def _seen(self, query: LinearQuery) -> Seen:
        """Returns how many tables, once for each attribute in common, and how many counts bear on a query."""
        counts = self._counts
        if self.counted is None:
            n_tables = sum([self._tables[a] for a in query.attributes])
        else:
            n_tables = self._n_tables  # each says something of the number of rows that count
        complement = self._complement_key(query)
        n_outside = 0 if complement is None else counts[complement]
        return n_tables, counts[query.key] + n_outside

    # ------------------------------------------------------------ the rows that count

    def with_rows_that_count(
        self, query: LinearQuery, outcome: Outcome, wider: float | None = None
    ) -> Outcome:
        """The same answer with what is known of the rows that count, where their number is private.

        Args:
            query: The query.
            outcome: Its answer.
            wider: A bar that misses a tenth less often is this many times as wide, at the most, where bars
                hold whatever others chose. None for an answer that rests on estimates.
        """
        if wider is not None and isinstance(outcome, Answered | TableAnswered | Summed):
            return self._with_rows_apart(query.window, outcome, wider)
        counts = LinearQuery(query.predicate, query.window, query.group_by, target=query.target)
        match outcome:
            case Answered():
                (among,) = self._among(counts, [outcome])
                return replace(outcome, among=among)
            case TableAnswered():
                found = zip(outcome.cells, self._among(counts, outcome.cells), strict=True)
                return replace(outcome, cells=tuple(replace(c, among=one) for c, one in found))
            case Summed():
                counts = replace(counts, target=Target())
                return replace(outcome, among=tuple(self._among(counts, outcome.cells)))
            case Quantiles():
                assert self.counted is not None, "where all rows count their number is public"
                evidence = self.evidence(counts)
                some = [0.0] * evidence.form.n_answers
                no_bars = [None] * len(some)
                known, *_ = self.answers.among(counts, evidence, some, no_bars, self.counted)
                return replace(outcome, among=replace(known, share=None, share_bar=None))
            case _:
                return outcome

    def _with_rows_apart(
        self, window: range, outcome: Answered | TableAnswered | Summed, wider: float
    ) -> Outcome:
        assert self.counted is not None, "where all rows count their number is public"
        cells = (outcome,) if isinstance(outcome, Answered) else outcome.cells
        counts = [cell.count for cell in cells]
        bars = [_rows(cell) if isinstance(cell, Answered) else cell.count_bar for cell in cells]
        among = self.answers.among_apart(window, counts, bars, self.counted, wider)
        if isinstance(outcome, Answered):
            return replace(outcome, among=among[0])
        if isinstance(outcome, Summed):
            return replace(outcome, among=tuple(among))
        cells_with = zip(outcome.cells, among, strict=True)
        return replace(outcome, cells=tuple(replace(c, among=one) for c, one in cells_with))

    def _among(
        self, query: LinearQuery, cells: Sequence[Answered] | Sequence[Sum]
    ) -> list[RowsThatCount]:
        """What is known of the rows that count, for each cell of an answer."""
        assert self.counted is not None, "where all rows count their number is public"
        bars = [_rows(cell) if isinstance(cell, Answered) else None for cell in cells]
        evidence = self.at_opening(query) or self.evidence(query)
        counts = [cell.count for cell in cells]
        return self.answers.among(query, evidence, counts, bars, self.counted)

    # ------------------------------------------------------------ the fold

    def absorb(self, release: Release) -> None:
        """Folds a release into what is known."""
        if isinstance(release, TablesRelease):
            self._absorb_tables(release)
        elif isinstance(release, CountsRelease):
            self._absorb_counts(release)
        elif isinstance(release, SumRelease):
            self._absorb_sums(release)
        elif isinstance(release, RowsRelease):
            self._absorb_rows(release)
            return
        else:
            raise TypeError("not a release of this mechanism")
        if self.reserve is not None:
            parts = release.parts if isinstance(release, TablesRelease) else (release,)
            self.reserve.published([a for part in parts for a in part.attributes])

    def _absorb_rows(self, release: RowsRelease) -> None:
        assert self.counted is not None, "where all rows count nobody looks at their number"
        self.counted.absorb(release)
        self.expect_tiles()

    def expect_tiles(self) -> None:
        """Keeps a part of the lines for the declared tiles again, once the rows of a new phase are known."""
        if self.reserve is not None:
            self.reserve.opened(len(self.belief), self.rows_at_least)

    def _absorb_tables(self, release: TablesRelease) -> None:
        for part, table in zip(release.parts, release.tables, strict=True):
            self._n_tables += 1
            for attribute in part.attributes:
                self._tables[attribute] += 1
            variance = float(grid_sigma(part.step) ** 2)
            counts, opening = table.astype(np.float64), release.reason == BASE
            self.belief.absorb_table(part.attributes, part.block, counts, variance, opening=opening)
            self.allocator.bought(part.attributes, part.block)
            if release.reason == QUERY:
                units = self.prices.units(part.step, self.prices.table)
                self.bought.pay(part.block, units)
            else:
                axes = axes_of(self.shape)
                levels = axes.layout(part.attributes).levels_of(table.shape)
                components = axes.part(part.attributes, levels)
                units = self.bought.buy(part.block, components, part.step, opening=opening)
                self.allocator.opened(part.block, units / UNITS)

    def _absorb_counts(self, release: CountsRelease) -> None:
        if release.fresh:
            return  # it answers one query, and enters no memory
        self._has_counted(release.key, (release.attributes,))
        squared_sensitivity = 1 if release.values.shape[1] == 1 else self.prices.table
        for (block, step), values in zip(release.steps, release.values, strict=True):
            variance = float(grid_sigma(step) ** 2)
            self.belief.absorb_count(release.key, block, values.astype(np.float64), variance)
            units = self.prices.units(step, squared_sensitivity)
            self.allocator.rented(release.attributes, block, units)
            self.bought.pay(block, units)

    def alone(self, query: LinearQuery, release: SumRelease) -> SumEvidence:
        """Returns what one look alone says about a query with a total."""
        looks = {
            block: release.estimates(self.rows(range(block, block + 1)), number)
            for number, (block, _, _) in enumerate(release.steps)
        }
        return self.belief.sums_alone(query, looks)

    def _absorb_sums(self, release: SumRelease) -> None:
        shape = release.shape
        of_sums, of_counts, of_rows = release.keys
        for number, (block, step, counted) in enumerate(release.steps):
            estimate = release.estimates(self.rows(range(block, block + 1)), number)
            self.belief.absorb_sums(of_sums, release.attributes, block, estimate)
            sigma = grid_sigma(counted) if shape.counts else None
            if sigma is not None:
                # The counts serve queries for counts too, which may depend on one attribute less.
                every_but_one = combinations(release.attributes, len(release.attributes) - 1)
                attributes = (release.attributes, *every_but_one)
                for key in (of_counts, of_rows) if shape.rests else (of_counts,):
                    self._has_counted(key, attributes)
                variance, counts = float(sigma**2), release.values[number, 1].astype(np.float64)
                self.belief.absorb_count(
                    of_counts, block, counts, variance, of_share=release.is_share
                )
                if shape.rests:
                    every = counts + release.values[number, 2]
                    self.belief.absorb_count(of_rows, block, every, 2.0 * variance)
            if release.is_share:
                # So do those of the part, and both may depend on some of the attributes alone.
                fewer = range(1, min(len(release.attributes), _MOST_SUBSETS))
                subsets = (combinations(release.attributes, k) for k in fewer)
                self._has_counted(of_rows, (release.attributes, *chain.from_iterable(subsets)))
                self.belief.absorb_count(
                    of_rows, block, estimate.totals, estimate.of_totals, of_share=True
                )
            units = self.prices.of(shape.rho(grid_sigma(step), sigma))
            self.allocator.rented(release.attributes, block, units)
            self.bought.pay(block, units)

    def _has_counted(self, key: bytes, depends: Iterable[tuple[int, ...]]) -> None:
        """Notes that a count was measured under a key, and on which sets of attributes it may depend."""
        self._counts[key] += 1
        for attributes in depends:
            self._counted.setdefault(attributes, set()).add(key)


def _rows(answered: Answered) -> float | None:
    """The half width of a count in rows."""
    return None if answered.error_bar is None else answered.error_bar * answered.n
