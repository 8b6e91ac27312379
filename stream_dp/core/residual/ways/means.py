"""Means within an error of their own, in several looks if need be: see ``mean_stages``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from stream_dp.core.mechanism import Look, Quote, Release
from stream_dp.core.outcome import Outcome, Path, Summed
from stream_dp.core.query import LinearQuery
from stream_dp.core.residual.belief.sums import SumEvidence
from stream_dp.core.residual.cuts import Cut, cuts_of, measured_alone, width_of
from stream_dp.core.residual.mean_stages import MeanStage, next_stage
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.residual.sum_look import SumLook, SumRelease
from stream_dp.core.residual.targets import too_dear
from stream_dp.core.residual.ways.totals import drawable_sums, sum_look_of, sum_planner
from stream_dp.core.residual.ways.way import NOTHING_PAID, Way, paid_with

_OF_LOOK: Final = 0.4
"""The part of the failure probability for a final look, where there are cuts."""
_OF_REST: Final = 0.1
"""The part for what bins say of the rest, above all cuts at once."""


@dataclass(frozen=True, slots=True)
class _Aim:
    """What looks measure for a mean.

    Attributes:
        query: The query whose sum is measured.
        error: The largest half width around its mean, in the attribute's own unit.
        failure: The probability with which the bars of the final look miss.
        cut: The value up to which rows are measured. None measures them as they are.
    """

    query: LinearQuery
    error: float
    failure: float
    cut: Cut | None = None


class Means(Way):
    """Answers sums whose means have an error of their own."""

    def __init__(self, state: PublicState) -> None:
        super().__init__(state)
        # The pilots and the final look each have half of the failure probability.
        self._failure = state.accuracy.failure_probability / 2.0

    def answer(self, query: LinearQuery) -> Outcome | Look:
        settled = self.settled(query)
        if settled is not None:
            return settled
        known = self.state.answers.summed(query, Path.CERTIFIED, failure=self._failure)
        if self._holds(query, known):
            return known
        aim = self._aim(query)
        if aim.cut is not None:
            alone = measured_alone(self.state.belief, aim.cut)
            if alone.looked:
                known = self._below(query, Path.CERTIFIED, aim, alone)
                if self._holds(query, known):
                    return known
        return self._next(query, NOTHING_PAID)

    def conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        assert isinstance(look, SumLook), "no other look is taken for the error of a mean"
        return self._alone(query, release) if look.final else self._next(query, look.paid)

    def _aim(self, query: LinearQuery) -> _Aim:
        """What is measured, and how precisely: the mean up to the cut that costs least about, or the whole.

        It follows from tables alone, which no look at sums changes. So all looks of an answer have one aim.
        """
        state, error = self.state, _error(query)
        failure = state.accuracy.failure_probability
        cuts = cuts_of(query, state.belief, _OF_REST * failure)
        if not cuts:
            return _Aim(query, error, self._failure)
        best, least = _Aim(query, error, _OF_LOOK * failure), width_of(query) / error
        for cut in cuts:
            spare = error - cut.half_of_means
            if spare > 0.0 and width_of(cut.query) / spare < least:
                least = width_of(cut.query) / spare
                best = _Aim(cut.query, spare, _OF_LOOK * failure, cut)
        return best

    def quote(self, query: LinearQuery) -> Quote:
        """The price of the next look, and the most that all looks may take.

        The final one is exact. ``Calibrated`` adds what follows a pilot, which it tries on a copy.
        """
        step = self.answer(query)
        if isinstance(step, Outcome):
            return Quote.of(step)
        assert isinstance(step, SumLook), "no other look is taken for the error of a mean"
        if step.final:
            return Quote(None, step.charges)
        room = self.state.room(query, self.state.most(query), NOTHING_PAID)
        return Quote(None, step.charges, expected=True, most=int(room.max()))

    def _next(self, query: LinearQuery, paid: Mapping[int, int]) -> Outcome | Look:
        """The next look, or the answer where none is possible.

        Args:
            query: A sum with an error for its mean.
            paid: Units that the query has taken of each block's line so far.
        """
        most = self.state.most(query)
        stage = self._stage(query, most, paid)
        if stage is None:
            return self._unverified(query, most, paid)
        refusal = drawable_sums(self.state, query, stage.measure)
        if refusal is not None:
            return refusal
        look = sum_look_of(self.state, stage.measure)
        return replace(look, final=stage.final, paid=paid_with(paid, look.charges))

    def _stage(
        self, query: LinearQuery, most: int | None, paid: Mapping[int, int]
    ) -> MeanStage | None:
        state, aim = self.state, self._aim(query)
        assert aim.query.total is not None, "the query has a total"
        return next_stage(
            sum_planner(state, aim.query, state.terms),
            state.belief.sums_alone(aim.query),
            state.terms,
            aim.error / aim.query.total.largest,
            aim.failure,
            state.prices,
            state.room(query, most, paid),
        )

    def _unverified(self, query: LinearQuery, most: int | None, paid: Mapping[int, int]) -> Outcome:
        """The outcome that what may be paid does not allow."""
        if most is not None and not paid:
            dearer = self._stage(query, None, NOTHING_PAID)
            if dearer is not None:
                return too_dear(dearer.measure.charges, most)
        refusal = self.state.refusal(self.state.stuck(query, paid))
        return refusal or self.state.answers.summed(query, Path.UNVERIFIED, failure=self._failure)

    def _alone(self, query: LinearQuery, release: Release) -> Summed:
        """The answer that the final look is by itself."""
        assert isinstance(release, SumRelease), "the release of this look"
        aim, belief, looks = self._aim(query), self.state.belief, {}
        for number, (block, _, _) in enumerate(release.steps):
            n_rows = belief.rows(range(block, block + 1))
            looks[block] = release.estimates(n_rows, number)
        found = self._below(query, Path.MEASURED, aim, belief.sums_alone(aim.query, looks))
        return found if self._holds(query, found) else replace(found, path=Path.UNVERIFIED)

    def _below(self, query: LinearQuery, path: Path, aim: _Aim, alone: SumEvidence) -> Summed:
        """What looks alone say, and where they measured up to a cut, what tables say of the rest."""
        return self.state.answers.summed(query, path, alone, failure=aim.failure, cut=aim.cut)

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


__all__ = ["Means"]
