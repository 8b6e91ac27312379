"""Differences of two windows within an error of their own: see ``window_pair``."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Final

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.mechanism import Look, Quote, Release
from stream_dp.core.outcome import Difference, Differences, Outcome, Path, RefusalCode, Refused
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.plan.planner import ROUNDING, Lack, MeasureCounts
from stream_dp.core.residual.plan.targets import too_dear
from stream_dp.core.residual.ways.counts import drawable, look_of
from stream_dp.core.residual.ways.way import Way
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


class DifferencesOfWindows(Way):
    """Answers by how much a share differs between two windows."""

    def answer(self, query: LinearQuery) -> Outcome | Look:
        step = self._decide(query)
        return look_of(self.state, _plain(query), step) if isinstance(step, MeasureCounts) else step

    def conclude(self, query: LinearQuery, look: Look, release: Release) -> Outcome | Look:
        del look, release  # absorbed by now: what was published is all that counts
        windows = self._windows(query)
        return self._outcome(query, windows, self._known(query, windows), Path.MEASURED)

    def quote(self, query: LinearQuery) -> Quote:
        step = self._decide(query)
        if isinstance(step, Outcome):
            return Quote.of(step)
        evidence = self.state.evidence(_plain(query))
        variance = self._windows(query).variance_after(evidence, step)
        bar = self.state.terms.z * math.sqrt(variance) + ROUNDING
        return Quote(None, step.charges, bar if bar < 1.0 else None)

    def _decide(self, query: LinearQuery) -> Outcome | MeasureCounts:
        settled = self._refusal(query) or self.settled(query)
        if settled is not None:
            return settled
        state, windows = self.state, self._windows(query)
        if min(windows.n_rows) == 0:
            return _EMPTY
        known, most = self._known(query, windows), state.most(query)
        terms = state.terms_for(query)
        limit = (terms.error / terms.z) ** 2
        if float(known.of_shares.max()) <= limit * _TIE:
            return self._outcome(query, windows, known, Path.CERTIFIED)
        evidence, allocator = state.evidence(_plain(query)), state.allocator

        def look(room: npt.NDArray[np.int64]) -> MeasureCounts | None:
            return windows.look(evidence, state.prices, room, limit)

        found = look(state.lines_for(query, most).room(query.window))
        if found is not None:
            return drawable(state, _plain(query), found) or found
        mine = state.lines_for(query, None)
        dearer = None if most is None else look(mine.room(query.window))
        if dearer is not None and most is not None:
            return too_dear(dearer.charges, most)
        untouched = np.full(len(query.window), UNITS)
        lacks = (
            (Lack.TILES, mine.room_of_tiles(query.window)),
            (mine.short, allocator.left(query.window)),
            (Lack.ERASED, allocator.lines.left(query.window)),
            (Lack.BUDGET, untouched),
        )
        lack = next((lack for lack, room in lacks if look(room) is not None), Lack.ROWS)
        refusal = state.refusal(lack)
        return refusal or self._outcome(query, windows, known, Path.UNVERIFIED)

    def _refusal(self, query: LinearQuery) -> Refused | None:
        """The refusal of windows that cannot be compared."""
        first, second = _both(query)
        if not second:
            return _NO_EARLIER
        return _SAME if first == second else None

    def _windows(self, query: LinearQuery) -> Windows:
        rows = tuple(self.state.rows(range(block, block + 1)) for block in query.window)
        return Windows(*_both(query), rows)

    def _known(self, query: LinearQuery, windows: Windows) -> Differed:
        plain = _plain(query)
        each: list[Evidence] = [
            self.state.evidence(replace(plain, window=window)) for window in _both(query)
        ]
        return windows.known(self.state.evidence(plain), (each[0], each[1]))

    def _outcome(
        self, query: LinearQuery, windows: Windows, known: Differed, path: Path
    ) -> Differences:
        z, n_rows = self.state.terms.z, windows.n_rows
        plain = _plain(query)
        sides = np.array(
            [self.state.evidence(replace(plain, window=one)).values for one in _both(query)]
        )
        larger = (sides / np.array(n_rows)[:, None]).max(axis=0).clip(0.0, 1.0)
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
                larger.tolist(),
                strict=True,
            )
        ]
        live = self.state.evidence(_plain(query)).form.live
        if live is not None:
            some = iter(cells)
            none = Difference(0.0, 0.0, 0.0, 0.0)
            cells = [next(some) if is_live else none for is_live in live.tolist()]
        confidence = 1.0 - self.state.accuracy.failure_probability
        return Differences(tuple(cells), n_rows, windows.second, confidence, path)


def _bar(bar: float, most: float) -> float | None:
    """A half width; None if it says nothing."""
    return bar if bar < most else None


def _both(query: LinearQuery) -> tuple[range, range]:
    assert query.difference is not None, "two windows are compared"
    return query.difference


def _plain(query: LinearQuery) -> LinearQuery:
    """The query about the window that covers both: what is known of it is known of each."""
    return replace(query, difference=None)
