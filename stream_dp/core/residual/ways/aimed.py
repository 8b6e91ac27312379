"""Answers as precise as they are worth having, where their query says nothing about it: see ``aim_rule``."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

import numpy as np

from stream_dp.core.budget.parameters import Aim
from stream_dp.core.mechanism import Look, Quote, Release
from stream_dp.core.outcome import (
    Answered,
    Outcome,
    Path,
    Quantiles,
    Refused,
    Summed,
    TableAnswered,
    Useful,
    width,
)
from stream_dp.core.queries.query import Indicator, LinearQuery
from stream_dp.core.residual.answers.count_answers import told_apart
from stream_dp.core.residual.answers.sum_answers import summed
from stream_dp.core.residual.belief.linear_forms import Floats
from stream_dp.core.residual.looks.composed_looks import AnyLook, JoinedLook, StagedLook, staged
from stream_dp.core.residual.looks.table_looks import (
    QUERY,
    CountsLook,
    Part,
    TablesLook,
    variance_of,
)
from stream_dp.core.residual.plan.aim_rule import (
    LAST,
    OPENING,
    PILOT,
    Deviations,
    Rule,
    aims_at_mean,
    distances,
    moved_together,
    part_of_size,
    share_of_line,
    size_of_counts,
    surely,
    use_of,
)
from stream_dp.core.residual.plan.planner import ROUNDING, Units, count_alone
from stream_dp.core.residual.plan.sum_plan import SumDemand, SumPlanner
from stream_dp.core.residual.plan.sum_price import value_ends
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.residual.ways.totals import planner_of
from stream_dp.core.residual.ways.way import NOTHING_PAID, Way, look_of

Answer: TypeAlias = Answered | TableAnswered | Summed | Quantiles

Planned: TypeAlias = AnyLook | Refused | None
"""A look that was planned, or its refusal; None where there is no room for it."""

_ANY: Final = 1e300
"""A limit on a variance that every look keeps."""

_TIE: Final = 1.0 + 1e-9

_ROUNDED: Final = 1.05
"""By how much the variance of a look on the public grid of scales, and its price, may differ from a plan."""

_SURE: Final = 0.5
"""A mean whose standard deviation is above this part of its size counts for at least this part of the mean of
all groups together. That in turn counts for at least its own standard deviation."""

_OF_PART: Final = 0.9
"""The part of the bar of a mean that a last look is planned for: its own count decides about its bar."""


class Aimed(Way):
    """What counts and sums have in common: the order of the looks, and what may be paid for them.

    Args:
        state: What is published, promised and left to spend.
        aim: What the query aims at. None for what the data set aims at.
    """

    stands_alone = True

    def __init__(self, state: PublicState, aim: Aim | None = None) -> None:
        super().__init__(state)
        aim = state.settings.aim if aim is None else aim
        assert aim is not None, "somebody says how precise answers are worth having"
        self._aim = aim
        self._z = Deviations.of(state.promise.accuracy)

    # ------------------------------------------------------------ what the kinds say

    @abstractmethod
    def _known(self, query: LinearQuery) -> Answer:
        """The answer that published values give, with bars that hold whatever others chose."""

    def _kept(self, query: LinearQuery) -> tuple[Answer, bool] | None:
        """The answer that a look gave before, and whether it was the last look; None if there is none."""
        return self.state.repeats.kept(query)

    @abstractmethod
    def _price(self, query: LinearQuery) -> float:
        """The share of a line that a look would take whose bar is what is aimed at; infinite for none."""

    def _named_price(self, query: LinearQuery) -> tuple[float, float]:
        """What the next query pays for the same, and the part of it that no error changes."""
        return self._price(query), 0.0

    @abstractmethod
    def _surely(self, query: LinearQuery) -> float:
        """The part of its size that an answer has, most likely: see ``aim_rule.surely``."""

    @abstractmethod
    def _look(self, query: LinearQuery, part: float, room: Units) -> Planned:
        """A look at all blocks whose bar is this part of the answer's size."""

    @abstractmethod
    def _pilot(self, query: LinearQuery, room: Units) -> Planned:
        """The look that finds out how large the answer is; None where it was taken, too."""

    @abstractmethod
    def _alone(self, query: LinearQuery, release: Release, *, final: bool) -> Answer:
        """The answer that a look is by itself."""

    # ------------------------------------------------------------ the rule

    def begin(self, query: LinearQuery) -> Outcome | Look:
        known = self._known(query)
        part = self._part(query, known)
        if part <= self._aim.share:
            return replace(known, use=use_of(part, self._aim, math.inf))
        kept = self._kept(query)
        if kept is not None:
            given, final = kept
            assert given.use is not None, "it was kept with its use"
            is_settled = final or given.use.useful is not Useful.NO
            # One who names a price may have a better one than the answer that is kept, if it names one too.
            if is_settled and (query.target.at_most is None or given.use.aim_price is None):
                return given
            step = self._last(query, given, NOTHING_PAID)
            return given if is_settled and not isinstance(step, Look) else step
        if self._is_open(query, part):
            pilot = self._pilot(query, self._room(query, self._rule(query).most, NOTHING_PAID))
            if pilot is not None:
                return self._staged(pilot, NOTHING_PAID)
        return self._last(query, known, NOTHING_PAID)

    def _staged(
        self, look: AnyLook | Refused, paid: Mapping[int, int], part: float | None = None
    ) -> StagedLook | Refused:
        """The look that follows others: a pilot, or a last look that is planned for a part of the size."""
        return staged(look, paid, final=part is not None, part=part or 0.0)

    def conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        assert isinstance(look, StagedLook), "a look of this way"
        found = self._alone(query, release, final=look.final)
        if not look.final:
            return self._last(query, found, look.paid)
        price, first = self._named_price(query)
        part = self._part(query, found)
        use = use_of(part, self._aim, price, planned=look.part, first=first)
        if use.useful is Useful.ROUGH and look.part <= self._aim.share:
            use = replace(use, aim_price=None)  # it has been paid
        outcome = replace(found, use=use)
        self.state.repeats.keep(query, outcome, final=True)
        return outcome

    def quote(self, query: LinearQuery) -> Quote:
        """The exact price where it is known; else that of the pilot, and the most that it may become."""
        step = self.answer(query)
        if isinstance(step, Outcome):
            return Quote.of(step)
        assert isinstance(step, StagedLook), "a look of this way"
        if not step.final:
            note = (
                "the price is that of a first look, which finds out how large the answer is; a look that "
                "makes the answer useful may come on top of it"
            )
            most = int(self._room(query, self._rule(query).most, NOTHING_PAID).max())
            return Quote(None, step.charges, expected=True, most=most, note=note)
        return Quote(None, step.charges, self._bar_after(query, step.look))

    def _bar_after(self, query: LinearQuery, look: AnyLook) -> float | None:
        """The bar that a last look will have, as a share of the rows; None for a sum."""
        if isinstance(look, TablesLook):
            variance = variance_of((part.block, part.step) for part in look.parts)
        elif isinstance(look, CountsLook) or (isinstance(look, JoinedLook) and look.steps):
            variance = variance_of(look.steps)
        else:
            return None
        bar = self._z.last * math.sqrt(variance) / self.state.rows(query.window) + ROUNDING
        return bar if bar < 1.0 else None

    def _last(self, query: LinearQuery, known: Answer, paid: Mapping[int, int]) -> Outcome | Look:
        """The last look, or what is known where none is worth its price.

        Args:
            query: The query.
            known: The answer if there is no last look.
            paid: Units that the query has taken of each block's line so far.
        """
        price, part = self._price(query), self._part(query, known)
        if known.use is not None and known.use.useful is Useful.ROUGH:
            part = min(part, self._aim.rough)  # its look was planned for that
        chosen = self._choose(query, price, part, lambda most: self._room(query, most, paid))
        if chosen is not None:
            wanted, last = chosen
            return self._staged(last, paid, wanted)
        guarded = self._chosen_but_for_guards(query, price, part)
        if not guarded and not paid:
            refusal = self._refusal(query, price, part)
            if refusal is not None:
                return refusal
        price, first = self._named_price(query)
        use = use_of(part, self._aim, price, guarded=guarded, first=first)
        outcome = replace(known, use=use)
        if known.path is Path.CERTIFIED and use.useful is Useful.NO:
            outcome = replace(outcome, path=Path.UNVERIFIED)
        if paid:
            self.state.repeats.keep(query, outcome, final=False)
        return outcome

    def _rule(self, query: LinearQuery) -> Rule:
        return Rule(self._aim, query.target.at_most)

    def _room(self, query: LinearQuery, most: int, paid: Mapping[int, int]) -> Units:
        """Units of each line that the query may still take, shape (len(window),)."""
        room = self.spending.room(query, most, paid)
        guards = self.spending.unasked if query.target.at_most is None else None
        return room if guards is None else np.minimum(room, guards(query.window))

    def _choose(
        self, query: LinearQuery, price: float, part: float, room: Callable[[int], Units]
    ) -> tuple[float, AnyLook | Refused] | None:
        """The last look within a room for some units, and the part of the size that it is planned for."""
        return self._rule(query).choose(
            price,
            part,
            self._surely(query),
            lambda most: int(room(most).min()),
            lambda wanted, most: self._look(query, wanted, room(most)),
        )

    def _chosen_but_for_guards(self, query: LinearQuery, price: float, part: float) -> bool:
        """Whether a look were taken if nothing had been taken unasked before."""
        if self.spending.unasked is None or query.target.at_most is not None:
            return False
        return self._fits(
            query, price, part, lambda most: self.spending.room(query, most, NOTHING_PAID)
        )

    def _refusal(self, query: LinearQuery, price: float, part: float) -> Refused | None:
        """The refusal of a query that only other lines could answer, where the data set refuses such."""
        if not self._fits(query, price, part, lambda most: np.full(len(query.window), most)):
            return None
        return self.spending.refusal(self.spending.stuck(query, NOTHING_PAID))

    def _fits(
        self, query: LinearQuery, price: float, part: float, room: Callable[[int], Units]
    ) -> bool:
        """Whether a look is taken within a room: a last one, or the pilot that finds out which."""
        _, look = self._choose(query, price, part, room) or (part, None)
        if look is None and self._is_open(query, part):
            look = self._pilot(query, room(self._rule(query).most))
        return isinstance(look, Look)

    def _is_open(self, query: LinearQuery, part: float) -> bool:
        """Whether a pilot is to find out how large the answer is. The ends of bins may bound it already."""
        return part > 1.0 or math.isinf(self._price(query))

    def _together(self, query: LinearQuery, counts: Floats) -> Floats:
        """Counts of groups that have as many rows together as count, where that is known."""
        if self.state.counted is None or not query.counts_all:
            return counts
        counted = max(0.0, self.state.counted.estimate(query.window)[0])
        return np.asarray(counts + (counted - counts.sum()) / len(counts))

    def _part(self, query: LinearQuery, outcome: Answer) -> float:
        part = part_of_size(query, outcome, self._z.plain)
        assert part is not None, "counts and sums have a size"
        return part


class AimedCounts(Aimed):
    """Counts and tables."""

    def _known(self, query: LinearQuery) -> Answer:
        state, evidence = self.state, self.state.evidence(query)
        opening = state.evidence_at_opening(query)
        first = state.answers.by_opening(query, opening, self._z.opening)
        counted = state.counted
        if counted is not None and query.counts_all and not query.group_by:
            is_known = all(map(counted.known, query.window))
            if is_known and counted.estimate(query.window)[1] < float(opening.variances.max()):
                first = state.answers.by_rows_that_count(query, counted, self._z.opening)
        if np.array_equal(opening.variances, evidence.variances):
            return first
        best = state.answers.at_all_times(query, evidence, self._z.all_times)
        return told_apart(best, self._z.last) if width(best) < width(first) else first

    def _kept(self, query: LinearQuery) -> tuple[Answer, bool] | None:
        kept = super()._kept(query)
        if kept is None:
            return None
        table, final = kept
        if not isinstance(table, TableAnswered):
            return table, final
        z = self._z.last if final else self._z.pilot
        return told_apart(table, z, width(table) * table.cells[0].n / z), final

    def _surely(self, query: LinearQuery) -> float:
        return surely(*self._estimates(query))

    def _size(self, query: LinearQuery) -> float:
        """The size of the answer, in rows."""
        return size_of_counts(*self._estimates(query))

    def _counts_of(self, query: LinearQuery) -> LinearQuery:
        """The query whose counts are measured."""
        return query

    def _estimates(self, query: LinearQuery) -> tuple[Floats, float]:
        """The best estimates of now, or guesses, and their standard deviation."""
        evidence = self.state.evidence(query)
        deviation, counted = math.sqrt(float(evidence.variances.max())), self.state.counted
        if counted is None or math.isfinite(deviation):
            return self._together(query, evidence.values), deviation
        # Nothing is published but how many rows count.
        rows = max(0.0, counted.estimate(query.window)[0])
        return evidence.values * (rows / evidence.n_rows), deviation

    def _price(self, query: LinearQuery) -> float:
        return share_of_line(
            self._aim.share * self._size(query),
            self._z.last,
            self.state.prices,
            phases=len(query.window),
            squared_sensitivity=self._squared_sensitivity(self._counts_of(query)),
        )

    def _squared_sensitivity(self, query: LinearQuery) -> int:
        n_answers = math.prod(self.state.shape[a] for a in query.group_by)
        return self.state.prices.squared_sensitivity(n_answers)

    def _look(self, query: LinearQuery, part: float, room: Units) -> Planned:
        limit = (part * self._size(query) / self._z.last) ** 2
        return self._within(self._counts_of(query), limit, room)

    def _pilot(self, query: LinearQuery, room: Units) -> Planned:
        evidence, prices = self.state.evidence(query), self.state.prices
        n_groups = math.prod(self.state.shape[a] for a in query.group_by)
        guess = evidence.n_rows * float(query.predicate.mask.mean()) / n_groups
        by_price = prices.share(1.0, self._squared_sensitivity(query)) / self._rule(query).pilot
        limit = max(len(query.window) * by_price, (self._aim.rough * guess / self._z.pilot) ** 2)
        if float(evidence.variances.max()) <= limit * _TIE:
            return None
        return self._within(query, limit * _TIE, room)

    def _within(self, query: LinearQuery, limit: float, room: Units) -> Planned:
        """A look at all blocks that by itself has a variance of at most ``limit``; None without room."""
        if not limit > 0.0:
            return None
        measure = count_alone(self.state.evidence(query), self.state.prices, room, limit)
        if measure is None:
            return None
        look = look_of(self.state, query, measure)
        if not isinstance(look, CountsLook) or not query.group_by or not query.counts_all:
            return look
        # A table of all rows enters the memory as such, and so serves every query about it.
        parts = (Part(query.attributes, block, step) for block, step in measure.steps)
        return TablesLook.of(QUERY, parts, self.state.shape, measure.charges)

    def _alone(self, query: LinearQuery, release: Release, *, final: bool) -> Answer:
        z = self._z.last if final else self._z.pilot
        return self.state.answers.by_look(query, *self.state.versions.published(query, release), z)


class AimedSums(Aimed):
    """Sums and means, and shares, which are means of ones and zeros."""

    def _known(self, query: LinearQuery) -> Summed:
        return summed(
            self.state,
            query,
            Path.CERTIFIED,
            self.state.sums_at_opening(query),
            failure=OPENING * self.state.promise.failure,
            at_opening=True,
            all_times=self._z.all_times,
        )

    def _price(self, query: LinearQuery) -> float:
        planner = self._planner(query, self._demand(query, self._aim.share))
        return math.inf if planner is None else planner.price(self.state.prices)

    def _surely(self, query: LinearQuery) -> float:
        if aims_at_mean(query):
            return 1.0
        sums = self.state.sums(query).sums
        deviation = math.sqrt(float(sums.moments.totals.max(initial=0.0)))
        return surely(np.abs(sums.totals), deviation)

    def _look(self, query: LinearQuery, part: float, room: Units) -> Planned:
        return self._measured(self._planner(query, self._demand(query, part)), room)

    def _pilot(self, query: LinearQuery, room: Units) -> Planned:
        plain = self._planner(query, SumDemand(np.zeros(1), np.ones(1)))
        assert plain is not None, "it has a demand"
        limit = plain.price(self.state.prices) / self._rule(query).pilot
        known = self.state.sums(query).sums.moments.totals.max(initial=0.0)
        if float(known) <= limit * _ROUNDED:
            return None
        demand = SumDemand(np.zeros(1), np.array([limit * _ROUNDED]))
        return self._measured(self._planner(query, demand), room)

    def _measured(self, planner: SumPlanner | None, room: Units) -> Planned:
        measure = None if planner is None else planner.look(self.state.prices, room)
        if planner is None or measure is None:
            return None
        return look_of(self.state, planner.known.query, measure)

    def _planner(self, query: LinearQuery, demand: SumDemand | None) -> SumPlanner | None:
        """Plans a look that is the answer by itself; None without a demand."""
        if demand is None:
            return None
        return planner_of(self.state, query, demand, self.state.alone(query))

    def _demand(self, query: LinearQuery, part: float) -> SumDemand | None:
        """What makes the bar this part of the size, by today's estimates; None where they say nothing."""
        sums = self.state.sums(query).sums
        if not np.isfinite(sums.moments.totals).all() or not len(sums.totals):
            return None
        assert query.total is not None, "the query has a total"
        of_totals = math.sqrt(float(sums.moments.totals.max()))
        if not aims_at_mean(query):
            limit = (part * size_of_counts(np.abs(sums.totals), of_totals) / self._z.last) ** 2
            return SumDemand(np.zeros(1), np.array([limit])) if limit > 0.0 else None
        of_counts = math.sqrt(float(sums.moments.counts.max()))
        estimates = self._together(query, sums.counts)
        least, counts = size_of_counts(estimates, of_counts), moved_together(estimates, of_counts)
        large = counts >= least * (1.0 - 1e-9)
        if not least > 0.0:
            return None
        largest, rows = query.total.largest, np.where(large, counts, 1.0)
        low, high = (end / largest for end in value_ends(query))
        totals = moved_together(sums.totals, of_totals)
        off = np.hypot(of_totals, totals / rows * of_counts) / rows
        means = (totals / rows).clip(low, high)
        if isinstance(query.total, Indicator):
            # A share that is smaller than it seems has more noise left in it.
            means = np.maximum(means - off, 0.0)
            sizes = distances(query, means)
        else:
            sizes, pooled = distances(query, means * largest) / largest, totals.sum() / counts.sum()
            # Noise can move a mean up to an end of its range, which no look could be precise enough for.
            together = np.maximum(
                distances(query, largest * np.array([pooled])) / largest,
                of_totals * math.sqrt(len(totals)) / counts.sum(),
            )
            sizes = np.where(off > sizes * _SURE, np.maximum(sizes, _SURE * together), sizes)
        bars = _OF_PART * part * sizes
        limits = np.square(bars * counts / self._z.last)
        if not (limits[large] > 0.0).all():
            return None
        return SumDemand(np.where(large, means, 0.0), np.where(large, limits, _ANY))

    def _alone(self, query: LinearQuery, release: Release, *, final: bool) -> Summed:
        return summed(
            self.state,
            query,
            Path.MEASURED,
            self.state.alone(query, release),
            failure=(LAST if final else PILOT) * self.state.promise.failure,
            all_times=self._z.all_times,
        )
