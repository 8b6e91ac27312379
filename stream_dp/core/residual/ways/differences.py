"""Differences of two windows within an error of their own: a share in one, minus that in the other.

A difference is a sum over blocks, in which a block counts with a coefficient of its own: 1 by the rows of the
window in which it is, minus 1 by those of the other. So its error is exact where the windows overlap, too.
Noise of variance ``v`` in a block adds ``coefficient^2 v``. The cheapest noise has variances that are inverse
to the sizes of the coefficients (docs/proofs, Theorem 17).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from stream_dp.core.mechanism import Look, Release
from stream_dp.core.outcome import Difference, Differences, Outcome, Path, RefusalCode, Refused
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.belief.linear_forms import Floats, spread
from stream_dp.core.residual.plan.planner import (
    ROUNDING,
    BudgetAllocator,
    Lack,
    MeasureCounts,
    Prices,
    Units,
    counts_at,
    lowest_of,
    most_precise_counts,
    water_fill,
)
from stream_dp.core.residual.ways.way import Measure, PlannedWay, plain

_TIE: Final = 1.0 + 1e-9

_NO_EARLIER: Final = Refused(
    RefusalCode.WINDOW_TOO_SMALL,
    "minus_window: there is no phase before the window; ask again after the next phase opens, or about "
    "fewer phases",
    retriable=True,
)
_SAME: Final = Refused(
    RefusalCode.WINDOW_TOO_SMALL,
    "minus_window: it holds the same phases as the window, so all differences are 0; name other phases, or "
    "ask again after the next phase opens",
    retriable=True,
)
_EMPTY: Final = Refused(RefusalCode.WINDOW_TOO_SMALL, "one of the windows holds no rows")


@dataclass(frozen=True, slots=True)
class Windows:
    """Two windows, and the public number of rows of each block of the window that covers both.

    Attributes:
        first: The window asked about.
        second: The window that is taken away.
        rows: The rows of each block from the first to the last of both.
    """

    first: range
    second: range
    rows: tuple[int, ...]

    @property
    def start(self) -> int:
        """The first block of both."""
        return min(self.first.start, self.second.start)

    @property
    def n_rows(self) -> tuple[int, int]:
        """The rows of each window."""
        sizes = dict(enumerate(self.rows, self.start))
        return sum(sizes[b] for b in self.first), sum(sizes[b] for b in self.second)

    def coefficients(self, one: float, other: float) -> Floats:
        """What a row of each block counts for: ``one`` in the first window, minus ``other`` in the second."""
        blocks = range(self.start, self.start + len(self.rows))
        return np.array([one * (b in self.first) - other * (b in self.second) for b in blocks])

    @property
    def of_shares(self) -> Floats:
        """The coefficients of a difference of shares."""
        first, second = self.n_rows
        return self.coefficients(1.0 / first, 1.0 / second)

    def look(
        self, evidence: Evidence, prices: Prices, room: Units, limit: float
    ) -> MeasureCounts | None:
        """The cheapest counts that bring the variance of a difference of shares down to ``limit``.

        Args:
            evidence: What is known about the query over the window that covers both.
            prices: The prices of noise scales, in units of a line.
            room: Units that each block may spend, shape (blocks,).
            limit: The largest variance that is precise enough.

        Returns:
            The counts; None if the room is too small.
        """
        sizes = np.abs(self.of_shares)
        now = evidence.by_block()
        first, most = most_precise_counts(evidence, prices, room)
        counts = sizes > 0.0
        lowest = np.where(counts, lowest_of(most > 0.0, evidence.after_count(most), now), 0.0)
        # With u = size * variance the sum of size * u must fit, and the least loss has a common u.
        levels = water_fill(
            np.where(counts, sizes * np.where(counts, now, 0.0), 0.0),
            sizes * lowest,
            limit,
            weights=sizes,
        )
        if levels is None:
            return None
        wanted = np.where(
            counts, np.divide(levels, sizes, out=np.zeros_like(sizes), where=counts), now
        )
        return counts_at(evidence, prices, first, most, wanted)

    def variance_after(self, evidence: Evidence, measure: MeasureCounts) -> float:
        """The largest variance of a difference of shares after a look."""
        precision = np.zeros(len(self.rows))
        for block, step in measure.steps:
            precision[block - self.start] = float(grid_sigma(step) ** -2)
        return float(_added_up(evidence.variances_after_count(precision), self.of_shares).max())

    def variances(self, evidence: Evidence, coefficients: Floats) -> Floats:
        """The variances of differences with these coefficients by what is known, shape (answers,) or (1,)."""
        return _added_up(evidence.variances_by_block, coefficients)


class DifferencesOfWindows(PlannedWay):
    """Answers by how much a share differs between two windows."""

    def settled(self, query: LinearQuery) -> Outcome | None:
        """The outcome of windows that cannot be compared, or where no plan is needed."""
        first, second = _both(query)
        if not second:
            return _NO_EARLIER
        if first == second:
            return _SAME
        found = super().settled(query)
        return found or (_EMPTY if min(self._windows(query).n_rows) == 0 else None)

    def conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        del look, release  # absorbed by now: what was published is all that counts
        return self._outcome(query, self._each(query), Path.MEASURED)

    def bar_after(self, query: LinearQuery, measure: Measure) -> float:
        assert isinstance(measure, MeasureCounts), "a difference is counted"
        evidence = self.state.evidence(plain(query))
        variance = self._windows(query).variance_after(evidence, measure)
        return self.state.terms.z * math.sqrt(variance) + ROUNDING

    def decide(self, query: LinearQuery) -> Outcome | Measure:
        state, windows, each = self.state, self._windows(query), self._each(query)
        evidence, terms = state.evidence(plain(query)), state.terms_for(query)
        limit = (terms.error / terms.z) ** 2
        if float(windows.variances(evidence, windows.of_shares).max()) <= limit * _TIE:
            return self._outcome(query, each, Path.CERTIFIED)

        def look(room: Units) -> MeasureCounts | None:
            return windows.look(evidence, state.prices, room, limit)

        def planned(lines: BudgetAllocator) -> MeasureCounts | Lack:
            found = look(lines.room(query.window))
            return found or lines.lack(query.window, lambda room: look(room) is not None)

        decision = self.planned(query, planned)
        if isinstance(decision, Lack):
            return self.spending.refusal(decision) or self._outcome(query, each, Path.UNVERIFIED)
        return decision

    def _windows(self, query: LinearQuery) -> Windows:
        rows = tuple(self.state.rows(range(block, block + 1)) for block in query.window)
        return Windows(*_both(query), rows)

    def _each(self, query: LinearQuery) -> tuple[Evidence, Evidence]:
        """What is known about each window."""
        first, second = (
            self.state.evidence(replace(plain(query), window=window)) for window in _both(query)
        )
        return first, second

    def _outcome(
        self, query: LinearQuery, each: tuple[Evidence, Evidence], path: Path
    ) -> Differences:
        windows, evidence = self._windows(query), self.state.evidence(plain(query))
        z, n_rows = self.state.terms.z, windows.n_rows
        first, second = (one.values for one in each)
        sides = np.array([first, second]) / np.array(n_rows)[:, None]
        of_shares, of_counts = (
            np.broadcast_to(windows.variances(evidence, coefficients), first.shape).tolist()
            for coefficients in (windows.of_shares, windows.coefficients(1.0, 1.0))
        )
        cells = [
            Difference(
                min(max(share, -1.0), 1.0),
                _bar(z * math.sqrt(of_share) + ROUNDING, 1.0),
                min(max(count, -float(n_rows[1])), float(n_rows[0])),
                _bar(z * math.sqrt(of_count) + ROUNDING * sum(n_rows), float(sum(n_rows))),
                side,
            )
            for share, of_share, count, of_count, side in zip(
                (sides[0] - sides[1]).tolist(),
                of_shares,
                (first - second).tolist(),
                of_counts,
                sides.max(axis=0).clip(0.0, 1.0).tolist(),
                strict=True,
            )
        ]
        cells = spread(cells, evidence.form.live, Difference(0.0, 0.0, 0.0, 0.0))
        confidence = self.state.promise.confidence
        return Differences(tuple(cells), n_rows, windows.second, confidence, path)


def _bar(bar: float, most: float) -> float | None:
    """A half width; None if it says nothing."""
    return bar if bar < most else None


def _both(query: LinearQuery) -> tuple[range, range]:
    assert query.difference is not None, "two windows are compared"
    return query.difference


def _added_up(variances: Floats, coefficients: Floats) -> Floats:
    """Variances of sums over blocks with coefficients, shape (answers,); unknown where nothing is known."""
    chosen = coefficients != 0.0
    return np.asarray((variances[:, chosen] * np.square(coefficients[chosen])).sum(axis=1))
