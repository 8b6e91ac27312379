"""Prices of several queries together: each is planned on a copy of everything that was published.

A look of the copy is charged to the copy, and absorbed as if it had published what is estimated already, with
the variance that it would really have. So no later query of the bundle pays for the same thing again. Plans
follow from estimates, variances and charges alone, all of them public, and so does this.

Estimates decide one thing only: whether smaller counts bound an answer so closely that no look is needed
(``planner``, step 2). A sparing rehearsal goes by the bounds of today's estimates, and the other one bounds
nothing. If no answer turns out to be bounded, both prices are exactly what is paid, to the unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.accountant import Charge, summed
from stream_dp.core.mechanism import Look, Quote, Rehearsal
from stream_dp.core.outcome import Outcome, Path, widest_bar
from stream_dp.core.queries.query import AnyQuery, LinearQuery
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.belief.levels import grouped
from stream_dp.core.residual.belief.linear_forms import Floats, spread, table
from stream_dp.core.residual.belief.sums import rows_query
from stream_dp.core.residual.looks.composed_looks import JoinedLook, JoinedRelease, StagedLook
from stream_dp.core.residual.looks.sum_look import SumLook, SumRelease
from stream_dp.core.residual.looks.table_looks import (
    CountsLook,
    CountsRelease,
    TablesLook,
    TablesRelease,
)
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.residual.ways.aimed import Aimed
from stream_dp.core.residual.ways.way import OUT_OF_REACH

if TYPE_CHECKING:
    from stream_dp.core.residual.calibrated import Calibrated


_NEVER: Final = -1e5
"""Logarithm of a probability with which bounds may fail, so small that they say nothing."""

_Release: TypeAlias = TablesRelease | CountsRelease | JoinedRelease | SumRelease


class CalibratedRehearsal(Rehearsal):
    """Queries planned one after another on a copy of what was published.

    Args:
        original: The data set. What is large is shared until the copy changes it.
        bounds: Whether answers of the copy may be bounded.

    Attributes:
        fork: The copy: it is asked, charged and taught.
    """

    def __init__(self, original: Calibrated, *, bounds: bool) -> None:
        self.fork = deepcopy(original)
        if not bounds:
            state = self.fork.state
            state.terms = replace(state.terms, log_bounds_failure=_NEVER)
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
        most = self.fork.state.spending.most(query) if aimed and self._has_looked else None
        charges: list[Charge] = []
        following: Outcome | Look | None = step
        while isinstance(following, Look):
            charges += following.charges
            release = self._imagined(following, query)
            following = None if release is None else self.fork.conclude(query, following, release)
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
            self._imagined(look, None)
        return summed(charge for look in looks for charge in look.charges)

    def _imagined(self, look: Look, query: LinearQuery | None) -> _Release | None:
        """Charges a look, and takes what is estimated already as if it had been published.

        Args:
            look: The look.
            query: What it is for; None where the data set takes it on its own account.

        Returns:
            The release; None for a look that publishes something else than estimates.
        """
        state = self.fork.state
        self.fork.charged(look.charges)
        state.spending.imagine(look.charges, query)
        release = _imagined(state, look)
        if release is not None:
            self.fork.absorb(release)
        return release


def _imagined(state: PublicState, look: Look) -> _Release | None:
    """A release of what is estimated already, in whole rows; None where a look publishes something else."""
    if isinstance(look, StagedLook):
        look = look.look
    match look:
        case TablesLook(parts=parts):
            tables = []
            for part in parts:
                view = state.belief.tables.view(part.attributes, range(part.block, part.block + 1))
                cells = table(view.spectrum, axes=range(view.spectrum.ndim))
                tables.append(_whole(grouped(cells, part.groups or cells.shape)))
            return TablesRelease(parts, tuple(tables), look.reason)
        case CountsLook(query=query, steps=steps):
            values = np.zeros((len(steps), look.n_answers))
            for row, (block, _) in zip(values, steps, strict=True):
                here = LinearQuery(query.predicate, range(block, block + 1), query.group_by)
                counts = np.array(_counts(state.evidence(here)))
                row[:] = counts if look.merged is None else look.merged.of(counts)
            return look.released(_whole(values))
        case JoinedLook(looks=looks):
            imagined = [_imagined(state, one) for one in looks]
            return JoinedRelease(
                tuple(one for one in imagined if isinstance(one, CountsRelease | SumRelease))
            )
        case SumLook(steps=steps):
            sums = [_sums(state, look, block) for block, _, _ in steps]
            return look.released(_whole(np.array(sums)))
    return None


def _counts(evidence: Evidence) -> list[float]:
    """The estimates of all answers."""
    return spread(evidence.values.tolist(), evidence.form.live, 0.0)


def _sums(state: PublicState, look: SumLook, block: int) -> Floats:
    """Returns the values that a look would publish of one block, shape (vectors, answers)."""
    query, belief = replace(look.query, window=range(block, block + 1)), state.belief
    assert query.total is not None, "the query has a total"
    sums, shape = belief.sums(query).sums, look.shape
    totals = np.array(spread(sums.totals.tolist(), sums.live, 0.0)) * query.total.largest
    counts = np.array(spread(sums.counts.tolist(), sums.live, 0.0))
    if not shape.counts:
        counts = np.full(look.n_answers, float(belief.rows(query.window)))
    found = [2.0 * totals / look.values.unit - shape.centre * counts]
    if shape.counts:
        found.append(counts)
    if shape.rests:
        every = rows_query(query, total_known=belief.total_known)
        assert every is not None, "the look counts them"
        found.append(_counts(state.evidence(every)) - counts)
    return np.array(found)


def _whole(estimates: Floats) -> npt.NDArray[np.int64]:
    return np.rint(estimates).astype(np.int64)
