"""Means within an error of their own, in several looks if need be: see ``mean_stages``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from stream_dp.core.mechanism import Look, Quote, Release
from stream_dp.core.outcome import Outcome, Path, Summed
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.answers.sum_answers import summed
from stream_dp.core.residual.looks.staged_look import StagedLook, staged
from stream_dp.core.residual.looks.sum_look import SumRelease
from stream_dp.core.residual.plan.mean_stages import MeanStage, next_stage
from stream_dp.core.residual.plan.targets import too_dear
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.residual.ways.totals import sum_planner
from stream_dp.core.residual.ways.way import NOTHING_PAID, Way, look_of


class Means(Way):
    """Answers sums whose means have an error of their own."""

    def __init__(self, state: PublicState) -> None:
        super().__init__(state)
        # The pilots and the final look each have half of the failure probability.
        self._failure = state.promise.failure / 2.0

    def answer(self, query: LinearQuery) -> Outcome | Look:
        settled = self.settled(query)
        if settled is not None:
            return settled
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
        most, state = self.spending.most(query), self.state
        stage = self._stage(query, most, paid)
        if stage is None:
            return self._unverified(query, most, paid)
        return staged(look_of(state, query, stage.measure), paid, final=stage.final)

    def _stage(
        self, query: LinearQuery, most: int | None, paid: Mapping[int, int]
    ) -> MeanStage | None:
        assert query.total is not None, "the query has a total"
        state = self.state
        return next_stage(
            sum_planner(state, query, state.terms),
            state.belief.sums_alone(query),
            state.terms,
            _error(query) / query.total.largest,
            self._failure,
            state.prices,
            self.spending.room(query, most, paid),
        )

    def _unverified(self, query: LinearQuery, most: int | None, paid: Mapping[int, int]) -> Outcome:
        """The outcome that what may be paid does not allow."""
        if most is not None and not paid:
            dearer = self._stage(query, None, NOTHING_PAID)
            if dearer is not None:
                return too_dear(dearer.measure.charges, most)
        refusal = self.spending.refusal(self.spending.stuck(query, paid))
        return refusal or summed(self.state, query, Path.UNVERIFIED, failure=self._failure)

    def _alone(self, query: LinearQuery, release: Release) -> Summed:
        """The answer that the final look is by itself."""
        assert isinstance(release, SumRelease), "the release of this look"
        alone = self.state.alone(query, release)
        found = summed(self.state, query, Path.MEASURED, alone, failure=self._failure)
        return found if self._holds(query, found) else replace(found, path=Path.UNVERIFIED)

    def _holds(self, query: LinearQuery, found: Summed) -> bool:
        """Whether each mean that rows can have is as precise as the query asks."""
        live, error = self.state.belief.sums(query).live, _error(query)
        bars = [
            cell.mean_bar for index, cell in enumerate(found.cells) if live is None or live[index]
        ]
        return all(bar is not None and bar <= error for bar in bars)


def _error(query: LinearQuery) -> float:
    error = query.target.mean
    assert error is not None, "the mean has an error"
    return error
