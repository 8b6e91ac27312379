"""What is known about a query over blocks whose attributes differ: sums over its parts.

Each part is about blocks of its own, whose noise is independent of that of the others. So estimates add up,
and so do their variances (docs/proofs, Theorem 33 (c)).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from stream_dp.core.queries.projection import Places, QueryPart
from stream_dp.core.queries.query import LinearQuery, Mask
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.belief.linear_forms import Floats


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
    def live(self) -> Mask:
        """The answers of the part that are not zero by definition, shape (n_answers,)."""
        if self.evidence is None:
            return np.full(self.n_answers, self.constant > 0.0)
        live = self.evidence.form.live
        return np.ones(self.n_answers, np.bool_) if live is None else live

    @property
    def of_live(self) -> Places:
        """The answer that each live answer of the part belongs to; -1 for none."""
        return self.places[self.live]

    @property
    def n_live(self) -> int:
        """The live answers of the part."""
        return int(np.count_nonzero(self.live))


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

    def __init__(
        self, query: LinearQuery, parts: Sequence[KnownPart], n_answers: int, n_rows: float
    ) -> None:
        self.window = query.window
        self._n_rows = n_rows
        self.parts = parts
        self._answers = LiveAnswers(n_answers, (part.of_live for part in parts))
        self._n_live = self._answers.n_live
        known = [part.evidence for part in parts if part.evidence is not None]
        self.form: Any = JoinedForm(
            query.attributes,
            n_answers,
            self._answers.live,
            all(one.form.conjunctive for one in known),
            sum(part.n_cells for part in parts),
        )

    @property
    def n_rows(self) -> float:
        return self._n_rows

    # ------------------------------------------------------------ estimates

    buys = False

    @property
    def is_certain(self) -> bool:
        """Whether no noise is in any answer."""
        return all(part.evidence is None for part in self.parts)

    @cached_property
    def values(self) -> Floats:
        """The best estimates of the live answers in rows, shape (answers,)."""
        found = np.zeros(self._n_live)
        for part in self.parts:
            values = (
                np.full(part.n_live, part.constant)
                if part.evidence is None
                else part.evidence.values
            )
            self._add(found, part, values)
        return found

    @cached_property
    def variances_by_block(self) -> Floats:
        """Variance of each answer in each block, shape (answers, len(window))."""
        return self._by_block(lambda evidence: evidence.variances_by_block)

    @cached_property
    def variances(self) -> Floats:
        """The variances of ``values``, shape (answers,)."""
        return np.asarray(self.variances_by_block.sum(axis=1))

    def by_tables(self) -> tuple[Floats, Floats]:
        """``values`` and ``variances`` as they are without the remembered counts."""
        values, variances = np.zeros(self._n_live), np.zeros(self._n_live)
        for part in self.parts:
            if part.evidence is None:
                self._add(values, part, np.full(part.n_live, part.constant))
            else:
                known, off = part.evidence.by_tables()
                self._add(values, part, known)
                self._add(variances, part, off)
        return values, variances

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
        found = np.zeros(self._n_live)
        for part in self.parts:
            if part.evidence is not None:
                both = part.evidence.covariances_with_total()
                self._add(found, part, np.broadcast_to(both, (part.n_live,)))
        return found

    # ------------------------------------------------------------ bounds

    def interval(self, log_failure: float) -> tuple[Floats, Floats]:
        """Bounds in rows on each live answer that fail together with this probability."""
        low, high = np.zeros(self._n_live), np.zeros(self._n_live)
        each = log_failure - math.log(len(self.parts))
        for part in self.parts:
            if part.evidence is None:
                ends = (np.full(part.n_live, part.constant),) * 2
            else:
                ends = part.evidence.interval(each)
            self._add(low, part, ends[0])
            self._add(high, part, ends[1])
        return low, np.minimum(high, self._n_rows)

    def anytime(self, margin: float, failure_probability: float) -> Floats:
        """Half widths of the live answers that hold at all times, shape (answers,)."""
        found = np.zeros(self._n_live)
        for part in self.parts:
            if part.evidence is not None:
                bars = part.evidence.anytime(margin, failure_probability / len(self.parts))
                self._add(found, part, np.broadcast_to(bars, (part.n_live,)))
        return found

    # ------------------------------------------------------------ what looks would bring

    @property
    def looks(self) -> Mask:
        """The blocks that a look would tell more of, shape (len(window),)."""
        found = np.zeros(len(self.window), np.bool_)
        for part in self.parts:
            found[self._blocks(part)] |= part.evidence is not None
        return found

    def n_answers_at(self, block: int) -> int:
        """The numbers that a look would publish of a block."""
        for part in self.parts:
            if block in part.part.query.window:
                merged = part.part.merged
                return part.n_answers if merged is None else len(merged.answers)
        raise ValueError("a block of the window")

    def by_block(self) -> Floats:
        """Largest variance of any answer in each block, shape (len(window),)."""
        return np.asarray(self.variances_by_block.max(axis=0))

    def variances_after_count(self, precision: Floats) -> Floats:
        """``variances_by_block`` if counts were measured with this precision (1/variance) in each block."""
        with np.errstate(divide="ignore"):
            return np.asarray(1.0 / (1.0 / self.variances_by_block + precision))

    def after_count(self, precision: Floats) -> Floats:
        """``by_block`` if counts were measured with this precision in each block."""
        return np.asarray(self.variances_after_count(precision).max(axis=0))

    def variance_after(self, precision: Floats, *, table: bool) -> float:
        """The largest variance of any answer after a look with this precision in each block."""
        assert not table, "counts alone are measured over several versions"
        return float(self.variances_after_count(precision).sum(axis=1).max())

    # ------------------------------------------------------------ adding up

    def _by_block(self, of: object) -> Floats:
        assert callable(of)
        found = np.zeros((self._n_live, len(self.window)))
        for part in self.parts:
            if part.evidence is not None:
                self._add(found[:, self._blocks(part)], part, of(part.evidence))
        return found

    def _blocks(self, part: KnownPart) -> slice:
        window, start = part.part.query.window, self.window.start
        return slice(window.start - start, window.stop - start)

    def _add(self, found: Floats, part: KnownPart, values: Floats) -> None:
        """Adds numbers, shape (answers or 1,), or (answers or 1, blocks)."""
        self._answers.add(found, part.of_live, values)
