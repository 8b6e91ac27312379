"""What is known about a query with a total over blocks whose attributes differ: see ``joined``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stream_dp.core.queries.projection import Places, QueryPart
from stream_dp.core.queries.query import LinearQuery, Mask
from stream_dp.core.residual.belief.sums import Moments, SumEvidence, Sums


@dataclass(frozen=True, slots=True)
class KnownSums:
    """A part of a query with a total, and what is known of it.

    Attributes:
        part: The part.
        evidence: What is known. None where no row counts.
        n_answers: The answers of the part.
    """

    part: QueryPart
    evidence: SumEvidence | None
    n_answers: int

    @property
    def places(self) -> Places:
        """The answer that each live answer of the part belongs to; -1 for none."""
        places = np.arange(self.n_answers) if self.part.places is None else self.part.places
        if self.evidence is None:
            return places[:0]
        return places if self.evidence.live is None else places[self.evidence.live]


class JoinedSums(SumEvidence):
    """The public knowledge about one query with a total over a window of several versions.

    Args:
        query: The query.
        parts: Its parts, in the order of their blocks.
        n_answers: The number of its answers.
        rows: The rows of each block of the window; public.
        total_known: Whether all rows count, so that their number is public.
    """

    def __init__(
        self,
        query: LinearQuery,
        parts: Sequence[KnownSums],
        n_answers: int,
        rows: list[int],
        *,
        total_known: bool,
    ) -> None:
        assert query.total is not None, "the query has a total"
        self.query, self.window, self.largest = query, query.window, query.total.largest
        self._known, self._rows, self._total_known = parts, rows, total_known
        live = np.zeros(n_answers, np.bool_)
        for part in parts:
            live[part.places[part.places >= 0]] = True
        self._live = None if live.all() else live
        self._row = np.cumsum(live) - 1
        self._n_live = int(np.count_nonzero(live))

    @property
    def total_known(self) -> bool:
        return self._total_known

    @property
    def asked(self) -> tuple[LinearQuery, ...]:
        known = (part.part.query for part in self._known if part.evidence is not None)
        return tuple(known) or (self.query,)

    @property
    def looked(self) -> bool:
        return any(part.evidence.looked for part in self._known if part.evidence is not None)

    @property
    def rows_by_block(self) -> list[int]:
        return self._rows

    @property
    def live(self) -> Mask | None:
        return self._live

    @cached_property
    def sums(self) -> Sums:
        totals, counts = np.zeros(self._n_live), np.zeros(self._n_live)
        for part in self._known:
            if part.evidence is not None:
                known, places = part.evidence.sums, part.places
                placed = places >= 0
                rows = self._row[places[placed]]
                np.add.at(totals, rows, known.totals[placed])
                np.add.at(counts, rows, known.counts[placed])
        moments = self.by_block.each(lambda of_blocks: of_blocks.sum(axis=1))
        return Sums(totals, counts, moments, self._live)

    @cached_property
    def by_block(self) -> Moments:
        shape = self._n_live, len(self.window)
        found = Moments(np.zeros(shape), np.zeros(shape), np.zeros(shape))
        for part in self._known:
            if part.evidence is None:
                continue
            window, places = part.part.query.window, part.places
            at = slice(window.start - self.window.start, window.stop - self.window.start)
            placed = places >= 0
            rows = self._row[places[placed]]
            for own, known in (
                (found.totals, part.evidence.by_block.totals),
                (found.both, part.evidence.by_block.both),
                (found.counts, part.evidence.by_block.counts),
            ):
                every = np.broadcast_to(known, (len(places), known.shape[1]))[placed]
                # Errors of answers that are merged may depend on each other.
                np.add.at(own[:, at], rows, part.part.merged * every)
        return found
