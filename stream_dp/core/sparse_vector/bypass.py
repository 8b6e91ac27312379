"""Private multiplicative weights that plain counts train first, and that are tested only where trained.

PMW-Bypass of Turbo (Kostopoulou, Tholoniat, Cidon, Geambasu, Lecuyer 2023), with its constants. A test that
fails costs as much as many counts, so a histogram that knows nothing yet is not tested: a query *bypasses*
it and pays for one count, from which the histogram learns. Each cell counts how often it was moved; a
query is tested (``weights``) once all of its cells were moved often enough. A failed test raises that bar.
Published counts alone decide all of this. A repeat of a count costs nothing, and neither does its complement.

Turbo's histogram is of fixed rows; this one grows as ``GrowingWeights`` does. The count that ends a segment
is paid for with it, and a query that cannot pay for a test may still pay for a count.
"""

from __future__ import annotations

import math
from typing import Final, Literal, Self

import numpy as np

from stream_dp.core.budget.parameters import Accuracy
from stream_dp.core.mechanism import Look
from stream_dp.core.outcome import Outcome, Path
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.rows.universe import Universe
from stream_dp.core.sparse_vector.composition import Composition
from stream_dp.core.sparse_vector.gates import CountLook, CountRelease
from stream_dp.core.sparse_vector.predicate_mechanism import KnownCounts
from stream_dp.core.sparse_vector.weights import GrowingWeights

_TRAINED: Final = 100  # moves of a cell before a query about it is tested
_MORE: Final = 1  # moves beyond the least moved cell that a failed test asks for
_MARGIN: Final = 0.05  # of the error: a count that is nearer to its prediction moves nothing
_RATES: Final = ((100, 0.2 / 8), (50, 0.5 / 8), (0, 2.0 / 8))  # (fewest moves of the least, rate)


class Bypass(GrowingWeights):
    """Counts until the histogram is trained, tests from then on. A ``mechanism.Mechanism``."""

    def __init__(
        self,
        universe: Universe,
        accuracy: Accuracy,
        composition: Composition,
        *,
        on_exhausted: Literal["unverified", "refuse"] = "unverified",
    ) -> None:
        super().__init__(universe, accuracy, composition, on_exhausted=on_exhausted)
        self._moves = np.zeros(universe.n_cells, dtype=np.int64)
        self._bars = np.full(universe.n_cells, _TRAINED, dtype=np.int64)
        self._known = KnownCounts()

    def _step(self, query: LinearQuery) -> Outcome | Look:
        n_rows = self._rows(query.window)
        known = self._known.get(query.predicate, query.window, n_rows)
        if known is not None:
            return self._answered(known, n_rows, Path.REPEAT)
        return super()._step(query)

    def _look(self, query: LinearQuery) -> CountLook | None:
        cells = query.predicate.whole_mask(self._universe)
        if np.all(self._moves[cells] >= self._bars[cells]):
            test = super()._look(query)
            if test is not None and self._lines.afford(test.charges):
                return test
        return self._count(query)

    def _fork(self) -> Self:
        fork = super()._fork()
        fork._known = self._known.copied()  # noqa: SLF001 - of its own kind
        return fork

    def _imagine(self, look: CountLook, *, stands: bool) -> None:
        super()._imagine(look, stands=stands)
        if look.gate is None or not stands:
            # A count that is near to its prediction moves nothing, so the histogram stays as it is.
            self._known.add(look.predicted())

    def _learn(self, release: CountRelease) -> None:
        """Moves the histogram by a count, unless that is too near to its prediction to say which way."""
        self._known.add(release)
        cells = release.predicate.whole_mask(self._universe)
        if not cells.any():
            return
        least = int(self._moves[cells].min())
        if release.number:  # a test has failed
            self._bars[cells] = least + _MORE
        n_rows = self._rows(release.window)
        off = release.noisy_count - self._predicted(release.predicate, n_rows)
        if abs(off) > _MARGIN * self._accuracy.error * n_rows:
            rate = next(rate for moves, rate in _RATES if least >= moves)
            self._move(cells, math.copysign(rate, off))
            self._moves[cells] += 1
