"""What is known about a query over blocks whose attributes differ: sums over its parts.

Each part is about blocks of its own, whose noise is independent of that of the others. So estimates add up,
and so do their variances (docs/proofs, Theorem 33 (c)).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from stream_dp.core.queries.projection import Places, QueryPart
from stream_dp.core.queries.query import LinearQuery, Mask
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.belief.linear_forms import Floats
from stream_dp.core.residual.belief.sums import Moments, SumEvidence, Sums


@dataclass(frozen=True, slots=True)
class JoinedForm:
    """The answers of a query over several versions, as ``Form`` has them for one.

    Attributes:
        attributes: What the query depends on in the newest version.
        n_answers: The number of answers.
        live: The answers that are not zero by definition, shape (n_answers,). None if all are live.
        conjunctive: Whether each answer is a sum of conjunctions.
        n_cells: The cells of all tables that it is read off.
    """

    attributes: tuple[int, ...]
    n_answers: int
    live: Mask | None
    conjunctive: bool
    n_cells: int


@dataclass(frozen=True, slots=True)
class KnownPart:
    """A part of a query, and what is known of it.

    Attributes:
        part: The part.
        evidence: What is known. None where the number of rows is the answer, or none counts.
        constant: Where evidence is None, the answer to each of the part's queries; otherwise 0.
        n_answers: The answers of the part.
        n_cells: The cells of the table that it is read off.
        places: The answer that each of them belongs to, shape (n_answers,); -1 for none.
    """

    part: QueryPart
    evidence: Evidence | None
    constant: float
    n_answers: int
    n_cells: int
    places: Places

    @property
    def of_live(self) -> Places:
        """The answer that each answer of the part which is not zero by definition belongs to; -1 for none."""
        if self.evidence is None:
            return self.places if self.constant > 0.0 else self.places[:0]
        return of_live(self.places, self.evidence.form.live)


class KnownSums(NamedTuple):
    """A part of a query with a total, what is known of it, and where its live answers belong to.

    Nothing is known where no row counts.
    """

    part: QueryPart
    evidence: SumEvidence | None
    of_live: Places


def of_live(places: Places, live: Mask | None) -> Places:
    """The places of the live answers alone."""
    return places if live is None else places[live]


class LiveAnswers:
    """The answers of a query that its parts are about, and adding up by them.

    Args:
        n_answers: The answers of the query.
        places: For each part, the answer that each live answer of the part belongs to; -1 for none.

    Attributes:
        live: Whether each answer is one of them, shape (n_answers,). None if all are.
        n_live: How many they are.
    """

    def __init__(self, n_answers: int, places: Iterable[Places]) -> None:
        live = np.zeros(n_answers, np.bool_)
        for of_part in places:
            live[of_part[of_part >= 0]] = True
        self._row = np.cumsum(live) - 1  # of each answer among those that are live
        self.n_live = int(np.count_nonzero(live))
        self.live: Mask | None = None if live.all() else live

    def add(self, found: Floats, places: Places, values: Floats) -> None:
        """Adds the values of a part's live answers, or one for all, to those of the query's live answers."""
        known, every = places >= 0, np.broadcast_to(values, (len(places), *values.shape[1:]))
        np.add.at(found, self._row[places[known]], every[known])


class JoinedSoFar(dict[tuple[bytes, int, int], Evidence]):
    """What was joined since something was published last, by query and window. A copy begins with nothing."""

    def __deepcopy__(self, memo: dict[int, Any]) -> JoinedSoFar:
        return JoinedSoFar()


class JoinedEvidence(Evidence):
    """The public knowledge about one query over a window of several versions: see ``Evidence``.

    Args:
        query: The query.
        parts: Its parts, in the order of their blocks. Several may be about the same blocks.
        n_answers: The number of its answers.
        n_rows: The rows of the window.

    Attributes:
        parts: The parts.
    """

    buys = False

    def __init__(
        self, query: LinearQuery, parts: Sequence[KnownPart], n_answers: int, n_rows: float
    ) -> None:
        self.window, self.n_rows, self.parts = query.window, n_rows, parts
        self._answers = LiveAnswers(n_answers, (part.of_live for part in parts))
        known = [part.evidence for part in parts if part.evidence is not None]
        self.form: Any = JoinedForm(
            query.attributes,
            n_answers,
            self._answers.live,
            all(one.form.conjunctive for one in known),
            sum(part.n_cells for part in parts),
        )

    @property
    def is_certain(self) -> bool:
        """Whether no noise is in any answer."""
        return all(part.evidence is None for part in self.parts)

    @cached_property
    def values(self) -> Floats:
        """The best estimates of the live answers in rows, shape (answers,)."""
        return self._added_up(lambda evidence: evidence.values, constants=True)

    @cached_property
    def variances_by_block(self) -> Floats:
        """Variance of each answer in each block, shape (answers, len(window))."""
        found = np.zeros((self._answers.n_live, len(self.window)))
        for part in self.parts:
            if part.evidence is not None:
                of_part = found[:, self._blocks(part)]
                self._answers.add(of_part, part.of_live, part.evidence.variances_by_block)
        return found

    @cached_property
    def variances(self) -> Floats:
        """The variances of ``values``, shape (answers,)."""
        return np.asarray(self.variances_by_block.sum(axis=1))

    def by_tables(self) -> tuple[Floats, Floats]:
        """``values`` and ``variances`` as they are without the remembered counts."""
        values = self._added_up(lambda evidence: evidence.by_tables()[0], constants=True)
        return values, self._added_up(lambda evidence: evidence.by_tables()[1])

    def likely(self) -> Floats:
        """The live answers in rows; likely, not promised."""
        return np.maximum(self.values, 0.0)

    def deviation_of_cells(self, query: LinearQuery) -> None:
        """Cells of several versions have no noise of one law."""
        del query

    @property
    def rows_that_count(self) -> tuple[float, float] | None:
        """How many rows count, as tables say it, and the variance of that. None if they do not."""
        rows, variance, told = 0.0, 0.0, set[int]()
        for part in self.parts:
            window = part.part.query.window
            if part.evidence is None or not told.isdisjoint(window):
                continue
            known = part.evidence.rows_that_count
            if known is not None:
                rows, variance, told = rows + known[0], variance + known[1], told | {*window}
        return (rows, variance) if told >= {*self.window} else None

    def covariances_with_total(self) -> Floats:
        """The covariance of each live answer with the estimated number of rows that count."""
        return self._added_up(lambda evidence: evidence.covariances_with_total())

    def interval(self, log_failure: float) -> tuple[Floats, Floats]:
        """Bounds in rows on each live answer that fail together with this probability."""
        each = log_failure - math.log(len(self.parts))
        low = self._added_up(lambda evidence: evidence.interval(each)[0], constants=True)
        high = self._added_up(lambda evidence: evidence.interval(each)[1], constants=True)
        return low, np.minimum(high, self.n_rows)

    def anytime(self, margin: float, failure_probability: float) -> Floats:
        """Half widths of the live answers that hold at all times, shape (answers,)."""
        each = failure_probability / len(self.parts)
        return self._added_up(lambda evidence: evidence.anytime(margin, each))

    @property
    def looks(self) -> Mask:
        """The blocks that a look would tell more of, shape (len(window),)."""
        found = np.zeros(len(self.window), np.bool_)
        for part in self.parts:
            found[self._blocks(part)] |= part.evidence is not None
        return found

    def n_answers_at(self, block: int) -> int:
        """The numbers that a look would publish of a block."""
        part = next(part for part in self.parts if block in part.part.query.window)
        merged = part.part.merged
        return part.n_answers if merged is None else len(merged.answers)

    def _blocks(self, part: KnownPart) -> slice:
        window, start = part.part.query.window, self.window.start
        return slice(window.start - start, window.stop - start)

    def _added_up(self, of: Callable[[Evidence], Floats], *, constants: bool = False) -> Floats:
        """What the parts say of each live answer together; with the ``constants`` of the others, too."""
        found = np.zeros(self._answers.n_live)
        for part in self.parts:
            if part.evidence is not None:
                self._answers.add(found, part.of_live, of(part.evidence))
            elif constants:
                self._answers.add(found, part.of_live, np.array([part.constant]))
        return found


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
        self.total_known, self._known, self._rows = total_known, parts, rows
        self._answers = LiveAnswers(n_answers, (part.of_live for part in parts))
        self.live = self._answers.live
        known = [(part.part.query, part.evidence) for part in parts if part.evidence is not None]
        self.asked = tuple(asked for asked, _ in known) or (query,)
        self.looked = any(evidence.looked for _, evidence in known)

    @property
    def rows_by_block(self) -> list[int]:
        return self._rows

    @cached_property
    def sums(self) -> Sums:
        totals, counts = np.zeros(self._answers.n_live), np.zeros(self._answers.n_live)
        for part in self._known:
            if part.evidence is not None:
                self._answers.add(totals, part.of_live, part.evidence.sums.totals)
                self._answers.add(counts, part.of_live, part.evidence.sums.counts)
        moments = self.by_block.each(lambda of_blocks: of_blocks.sum(axis=1))
        return Sums(totals, counts, moments, self.live)

    @cached_property
    def by_block(self) -> Moments:
        shape = self._answers.n_live, len(self.window)
        found = Moments(np.zeros(shape), np.zeros(shape), np.zeros(shape))
        for part in self._known:
            if part.evidence is None:
                continue
            window, known = part.part.query.window, part.evidence.by_block
            at = slice(window.start - self.window.start, window.stop - self.window.start)
            for name in ("totals", "both", "counts"):
                # Errors of answers that are merged may depend on each other.
                added = part.part.most_merged * getattr(known, name)
                self._answers.add(getattr(found, name)[:, at], part.of_live, added)
        return found
