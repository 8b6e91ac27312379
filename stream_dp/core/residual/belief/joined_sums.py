"""What is known about a query with a total over blocks whose attributes differ: see ``joined``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from stream_dp.core.queries.projection import Places, QueryPart
from stream_dp.core.queries.query import LinearQuery, Mask
from stream_dp.core.residual.belief.joined_evidence import LiveAnswers
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
        self._answers = LiveAnswers(n_answers, (part.places for part in parts))

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
        return self._answers.live

    @cached_property
    def sums(self) -> Sums:
        n_live = self._answers.n_live
        totals, counts = np.zeros(n_live), np.zeros(n_live)
        for part in self._known:
            if part.evidence is not None:
                self._answers.add(totals, part.places, part.evidence.sums.totals)
                self._answers.add(counts, part.places, part.evidence.sums.counts)
        moments = self.by_block.each(lambda of_blocks: of_blocks.sum(axis=1))
        return Sums(totals, counts, moments, self._answers.live)

    @cached_property
    def by_block(self) -> Moments:
        shape = self._answers.n_live, len(self.window)
        found = Moments(np.zeros(shape), np.zeros(shape), np.zeros(shape))
        for part in self._known:
            if part.evidence is None:
                continue
            window, known = part.part.query.window, part.evidence.by_block
            at = slice(window.start - self.window.start, window.stop - self.window.start)
            for own, added in (
                (found.totals, known.totals),
                (found.both, known.both),
                (found.counts, known.counts),
            ):
                # Errors of answers that are merged may depend on each other.
                self._answers.add(own[:, at], part.places, part.part.most_merged * added)
        return found
