"""Means within an error of their own, in several looks if need be.

How precise a look has to be follows from the count of the rows and from the mean itself, which nobody knows
beforehand. So *pilots* bring the total to fixed precisions, each twice as fine as the one before, until the
count is known well enough. Then one *final look* is sized by what was published. It stands alone: the answer
is what this look finds, and nothing from before. The proof is docs/proofs, Theorem 15.

The state of all this is what was published. All decisions follow from published numbers and prices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from itertools import compress
from typing import Final, TypeAlias

import numpy as np

from stream_dp.core.mechanism import Look, Quote, Release
from stream_dp.core.outcome import Outcome, Path, Summed
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.answers.sum_answers import summed
from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.belief.sums import Moments, Sums, least_deviations, pairs_of
from stream_dp.core.residual.looks.composed_looks import StagedLook, staged
from stream_dp.core.residual.plan.planner import Units
from stream_dp.core.residual.plan.sum_plan import MeasureSums, SumDemand
from stream_dp.core.residual.plan.targets import too_dear
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.residual.ways.totals import sum_planner
from stream_dp.core.residual.ways.way import NOTHING_PAID, Way, look_of

_MOST_PILOTS: Final = 8
_AIM: Final = 0.98
"""The part of the error that a final look is planned for: its own estimate decides about its bar."""

_LOW: Final = 3.0
"""Standard deviations by which the counts of a final look may come out low without making a bar too wide."""

_MOST_TRIES: Final = 8
_LEAST_PART: Final = 0.7

_KNOWN: Final = 0.6
"""A count is known well enough once its lower end is this part of it."""

_Stage: TypeAlias = tuple[MeasureSums, bool]
"""What to measure, and whether its result is the answer."""


class Means(Way):
    """Answers sums whose means have an error of their own."""

    def __init__(self, state: PublicState) -> None:
        super().__init__(state)
        # The pilots and the final look each have half of the failure probability.
        self._failure = state.promise.failure / 2.0

    def begin(self, query: LinearQuery) -> Outcome | Look:
        known = summed(self.state, query, Path.CERTIFIED, failure=self._failure)
        return known if self._holds(query, known) else self._next(query, NOTHING_PAID)

    def conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        assert isinstance(look, StagedLook), "no other look is taken for the error of a mean"
        return self._alone(query, release) if look.final else self._next(query, look.paid)

    def quote(self, query: LinearQuery) -> Quote:
        """The price of the next look, and the most that all looks may take.

        The final one is exact. ``Calibrated`` adds what follows a pilot, which it tries on a copy.
        """
        step = self.answer(query)
        if isinstance(step, Outcome):
            return Quote.of(step)
        assert isinstance(step, StagedLook), "no other look is taken for the error of a mean"
        if step.final:
            return Quote(None, step.charges)
        room = self.spending.room(query, self.spending.most(query), NOTHING_PAID)
        return Quote(None, step.charges, expected=True, most=int(room.max()))

    def _next(self, query: LinearQuery, paid: Mapping[int, int]) -> Outcome | Look:
        """The next look, or the answer where none is possible.

        Args:
            query: A sum with an error for its mean.
            paid: Units that the query has taken of each block's line so far.
        """
        most, spending = self.spending.most(query), self.spending
        stage = self._stage(query, spending.room(query, most, paid))
        if stage is not None:
            measure, final = stage
            return staged(look_of(self.state, query, measure), paid, final=final)
        if most is not None and not paid:
            dearer = self._stage(query, spending.room(query, None, NOTHING_PAID))
            if dearer is not None:
                return too_dear(dearer[0].charges, most)
        refusal = spending.refusal(spending.stuck(query, paid))
        return refusal or summed(self.state, query, Path.UNVERIFIED, failure=self._failure)

    def _stage(self, query: LinearQuery, room: Units) -> _Stage | None:
        """The next look; None if the room, units of each line, is too small for it."""
        assert query.total is not None, "the query has a total"
        state, terms, prices = self.state, self.state.terms, self.state.prices
        error, z = _error(query) / query.total.largest, two_sided(math.log(self._failure))
        planner = sum_planner(state, query, terms)
        sums, means = planner.known.sums, replace(planner, known=state.alone(query))
        demand = SumDemand.of_means(sums, _AIM * error, z)
        at_least = sums.counts - z * np.sqrt(sums.moments.counts)
        if demand is None or (at_least < _KNOWN * sums.counts).any():
            n_rows = float(state.rows(query.window))
            for stage in range(_MOST_PILOTS):
                finer = replace(terms, error=terms.error * 2.0**-stage)
                pilot = replace(planner, demand=SumDemand.of_totals(finer, n_rows, rows=False))
                if not pilot.certified:
                    found = pilot.look(prices, room)
                    return None if found is None else (found, False)
        if demand is None:
            return None
        aim, last = error, replace(means, demand=demand).look(prices, room)
        for _ in range(_MOST_TRIES):
            if last is None:
                return None
            widest = self._widest_bar(sums, means.moments_after(last))
            if widest <= error:
                break
            # The count that the look finds may be low, so that its bar comes out wider than planned.
            aim *= max(error / widest, _LEAST_PART)
            demand = SumDemand.of_means(sums, _AIM * aim, z)
            assert demand is not None, "it was one for a larger aim"
            last = replace(means, demand=demand).look(prices, room)
        return None if last is None else (last, True)

    def _widest_bar(self, known: Sums, after: Moments) -> float:
        """The widest bar of a mean that a look by itself finds if its counts come out low.

        Args:
            known: The best estimates.
            after: The covariances of what the look finds.
        """
        z = two_sided(math.log(self._failure))
        least = least_deviations(max(1, len(known.counts)), self._failure)
        counts = known.counts - _LOW * np.sqrt(after.counts)
        totals = known.totals / known.counts * counts
        bars = [pair.bar(z, least) for pair in pairs_of(totals, counts, after)]
        return max((math.inf if bar is None else bar for bar in bars), default=0.0)

    def _alone(self, query: LinearQuery, release: Release) -> Summed:
        """The answer that the final look is by itself."""
        alone = self.state.alone(query, release)
        found = summed(self.state, query, Path.MEASURED, alone, failure=self._failure)
        return found if self._holds(query, found) else replace(found, path=Path.UNVERIFIED)

    def _holds(self, query: LinearQuery, found: Summed) -> bool:
        """Whether each mean that rows can have is as precise as the query asks."""
        live, error = self.state.sums(query).live, _error(query)
        cells = found.cells if live is None else compress(found.cells, live)
        return all(cell.mean_bar is not None and cell.mean_bar <= error for cell in cells)


def _error(query: LinearQuery) -> float:
    error = query.target.mean
    assert error is not None, "the mean has an error"
    return error
