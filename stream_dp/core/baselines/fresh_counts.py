"""A fresh noisy count for each new query, and an exact cache: what everybody builds first.

With ``Basic`` composition the Laplace mechanism (Dwork & Roth 2014, section 3.3), with ``Concentrated`` the
Gaussian one under zCDP (Bun and Steinke 2016). Each count costs every block of its window the least that
keeps the promised accuracy; a repeat, however it is written, gets the same answer for nothing. So does the
complement of an answered query: the number of rows is public.
"""

from __future__ import annotations

from typing import Self

from stream_dp.core.budget.parameters import Accuracy, erased_blocks
from stream_dp.core.mechanism import ROWS_ERASED, Look, Release
from stream_dp.core.outcome import Outcome, Path, RefusalCode, Refused
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.rows.universe import Universe
from stream_dp.core.sparse_vector.composition import Composition
from stream_dp.core.sparse_vector.gates import CountLook, CountRelease
from stream_dp.core.sparse_vector.predicate_mechanism import KnownCounts, PredicateMechanism


class FreshCounts(PredicateMechanism):
    """Laplace or Gaussian noise, as ``composition`` says, with an exact cache.

    Args:
        kept: The number of blocks, the last ones, whose rows are kept. No count reads the others. None keeps
            all.
    """

    def __init__(
        self,
        universe: Universe,
        accuracy: Accuracy,
        composition: Composition,
        kept: int | None = None,
    ) -> None:
        super().__init__(universe, accuracy, composition)
        self._kept = kept
        self._known = KnownCounts()

    def _step(self, query: LinearQuery) -> Outcome | Look:
        window = query.window
        n_rows = self._rows(window)
        known = self._known.get(query.predicate, window, n_rows)
        if known is not None:
            return self._answered(known, n_rows, Path.REPEAT)
        if window.start < erased_blocks(len(self._sizes), self._kept):
            return ROWS_ERASED
        look = self._count(query)
        if not self._lines.afford(look.charges):
            return Refused(
                RefusalCode.BUDGET_EXHAUSTED,
                "a block of the window has no budget left for another count",
            )
        return look

    def _fork(self) -> Self:
        fork = super()._fork()
        fork._known = self._known.copied()  # noqa: SLF001 - of its own kind
        return fork

    def _imagine(self, look: CountLook, *, stands: bool) -> None:
        del stands  # nothing is tested
        self._known.add(look.predicted())

    def absorb(self, release: Release) -> None:
        assert isinstance(release, CountRelease), "a release of another mechanism"
        self._known.add(release)
