"""Differences of two windows within an error of their own: see ``window_pair``."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np

from stream_dp.core.mechanism import Look, Release
from stream_dp.core.outcome import Difference, Differences, Outcome, Path, RefusalCode, Refused
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.belief.linear_forms import spread
from stream_dp.core.residual.plan.planner import (
    ROUNDING,
    BudgetAllocator,
    Lack,
    MeasureCounts,
    Units,
)
from stream_dp.core.residual.ways.way import Measure, PlannedWay, plain
from stream_dp.core.residual.window_pair import Differed, Windows

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
        if float(windows.known(evidence, each).of_shares.max()) <= limit * _TIE:
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
        known: Differed = windows.known(evidence, each)
        sides = np.array([one.values for one in each]) / np.array(n_rows)[:, None]
        cells = [
            Difference(
                min(max(share, -1.0), 1.0),
                _bar(z * math.sqrt(of_share) + ROUNDING, 1.0),
                min(max(count, -float(n_rows[1])), float(n_rows[0])),
                _bar(z * math.sqrt(of_count) + ROUNDING * sum(n_rows), float(sum(n_rows))),
                side,
            )
            for share, of_share, count, of_count, side in zip(
                known.shares.tolist(),
                known.of_shares.tolist(),
                known.counts.tolist(),
                known.of_counts.tolist(),
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
