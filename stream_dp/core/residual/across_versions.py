"""What is known of queries over several versions of the attributes (docs/proofs, Theorem 33).

A query is taken apart by versions (``projection``), and by phases where it counts persons once (Theorem 41).
What is known of its parts adds up.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from stream_dp.core.mechanism import Look, Release
from stream_dp.core.outcome import Answered, Outcome, Recorded, TableAnswered
from stream_dp.core.queries.projection import Projection, QueryPart
from stream_dp.core.queries.query import LinearQuery, Predicate, Product, Total
from stream_dp.core.residual.base_release.base_plan import BaseRelease
from stream_dp.core.residual.belief.evidence import Evidence
from stream_dp.core.residual.belief.joined_evidence import (
    JoinedEvidence,
    JoinedSoFar,
    JoinedSums,
    KnownPart,
    KnownSums,
    of_live,
)
from stream_dp.core.residual.belief.linear_forms import Floats
from stream_dp.core.residual.belief.sums import SumEvidence, is_total
from stream_dp.core.residual.keys.found_values import FoundValues
from stream_dp.core.residual.looks.composed_looks import JoinedRelease
from stream_dp.core.residual.looks.table_looks import published_counts
from stream_dp.core.rows.attribute_versions import Schema

if TYPE_CHECKING:
    from stream_dp.core.residual.public_state import PublicState

_Known: TypeAlias = Callable[[LinearQuery, tuple[bytes, int] | None], Evidence]
"""Returns what is known of a query, and of counts under a key that its own is one of, by its place."""


class AcrossVersions:
    """The knowledge of one data set over several versions.

    Args:
        state: What is published. Its own evidence is about blocks that have the attributes of a query.

    Attributes:
        projection: Takes queries apart. None while there is one version.
    """

    def __init__(self, state: PublicState) -> None:
        self._state = state
        self.projection: Projection | None = None
        self._joints = JoinedSoFar()

    def change(self, schema: Schema) -> None:
        """Goes on with another version."""
        self.projection = Projection(schema)
        self.forget()

    def forget(self) -> None:
        """Forgets what was joined, since more is known now."""
        self._joints.clear()

    def parts(self, query: LinearQuery) -> tuple[QueryPart, ...] | None:
        """The parts of a query by version, or by phase. None if one estimate is about all of its blocks."""
        if query.once is None:
            return None if self.projection is None else self.projection.parts(query)
        return tuple(
            part for one in query.by_phase for part in self.parts(one) or (QueryPart(one),)
        )

    def evidence(self, query: LinearQuery, *, at_opening: bool = False) -> Evidence | None:
        """What is known of a query for counts; None if all its blocks have its attributes.

        Args:
            query: The query.
            at_opening: Whether only what was measured as phases opened takes part.
        """
        parts = self.parts(query)
        if parts is None:
            return None
        if at_opening:
            return self._joined(query, parts, self._state.evidence_at_opening)
        name = query.key, query.window.start, query.window.stop
        if name not in self._joints:
            self._joints[name] = self._joined(query, parts, self._state.evidence)
        return self._joints[name]

    def _joined(
        self, query: LinearQuery, parts: Sequence[QueryPart], evidence: _Known
    ) -> JoinedEvidence:
        """What is known of all parts of a query for counts."""
        known = [one for part in parts for one in self._known(part, evidence)]
        n_answers = math.prod(self._state.shape[a] for a in query.group_by)
        return JoinedEvidence(query, known, n_answers, float(self._state.rows(query.window)))

    def _known(
        self, part: QueryPart, evidence: _Known, among: tuple[bytes, int] | None = None
    ) -> Iterator[KnownPart]:
        """What is known of a part: first of its table, then of each answer that several cells make up."""
        asked, constant, merged = part.query, self._constant(part.query), part.merged
        sizes = [self._state.shape[a] for a in asked.group_by]
        places = np.arange(math.prod(sizes)) if part.places is None else part.places
        apart = np.flatnonzero(np.bincount(places[places >= 0]) > 1)
        if merged is not None and self._state.belief.has_counts(merged.key, asked.window):
            apart = merged.answers
        n_cells = math.prod(self._state.shape[a] for a in asked.attributes)
        alone = np.where(np.isin(places, apart), -1, places)
        of_part = evidence(asked, among) if math.isnan(constant) else None
        yield KnownPart(part, of_part, constant, len(places), n_cells, alone)
        order = np.argsort(asked.group_by)
        for answer in apart.tolist():
            assert merged is not None, "several answers are one"
            mask = (places == answer).reshape(sizes).transpose(order)
            cells = Predicate.of_mask(sorted(asked.group_by), mask)
            joint = replace(asked, predicate=asked.predicate.and_also(cells), group_by=())
            one = replace(part, query=joint, places=np.array([answer]))
            place = int(np.searchsorted(merged.answers, answer))
            yield from self._known(one, evidence, (merged.key, place))

    def _constant(self, query: LinearQuery) -> float:
        """The answer to each of a part's queries where no noise is in it; NaN elsewhere."""
        if query.predicate.constant is False:
            return 0.0
        if is_total(query.predicate, query.group_by, known=self._state.belief.total_known):
            return float(self._state.rows(query.window))
        return math.nan

    def published(self, query: LinearQuery, release: Release) -> tuple[Floats, float]:
        """The counts that a look has published of all its blocks, see ``published_counts``."""
        parts = self.parts(query)
        if parts is None:
            return published_counts(query, release)
        assert isinstance(release, JoinedRelease), "the release of this look"
        n_answers, variance = math.prod(self._state.shape[a] for a in query.group_by), 0.0
        values, releases = np.zeros(n_answers), iter(release.releases)
        for part in parts:
            asked, merged = part.query, part.merged
            places = np.arange(n_answers) if part.places is None else part.places
            constant = self._constant(asked)
            counts = np.full(len(places), constant)
            if math.isnan(constant):
                counts, own = published_counts(asked, next(releases))
                variance += own
                places = places if merged is None else merged.answers
            np.add.at(values, places[places >= 0], counts[places >= 0])
        return values, variance

    def as_one_part(self, query: LinearQuery) -> QueryPart | None:
        """The only part of a query for counts, if its blocks have older attributes; None for any other."""
        parts = None if query.total or query.rank or query.difference else self.parts(query)
        return parts[0] if parts and len(parts) == 1 and parts[0].merged is None else None

    def placed(self, query: LinearQuery, part: QueryPart, step: Outcome | Look) -> Outcome | Look:
        """The answer to a query, from that to its only part."""
        if part.places is None or not isinstance(step, Answered | TableAnswered):
            return step
        cells = (step,) if isinstance(step, Answered) else step.cells
        empty = replace(
            cells[0],
            estimate=0.0,
            error_bar=0.0,
            error_bar_simultaneous=0.0,
            error_bar_anytime=0.0,
            among=None,
        )
        shape = tuple(self._state.shape[a] for a in query.group_by)
        found = [empty] * math.prod(shape)
        for cell, place in zip(cells, part.places.tolist(), strict=True):
            if place >= 0:
                found[place] = cell
        if isinstance(step, Answered):
            return TableAnswered(tuple(found), shape, step.path, step.use)
        return replace(step, cells=tuple(found), shape=shape)

    def of_block(self, release: BaseRelease, block: int) -> BaseRelease:
        """A release without the tables of attributes that a block does not have."""
        projection, axes = self.projection, self._state.promise.axes
        if projection is None:
            return release
        has = partial(projection.schema.has, block)
        tables = ((table, step) for table, step in release.tables if has(axes.attributes(table)))
        return BaseRelease.of(tables, self._state.prices)

    def recorded(self, query: LinearQuery) -> Recorded:
        """What older rows do not say of a query."""
        recorded, found, projection = self._recorded(query), self._state.found, self.projection
        if found is not None and query.rank is None and not isinstance(query.total, Product):
            recorded = self._with_found(query, recorded, found)
        if projection is None or not isinstance(query.total, Total):
            return recorded
        until, numbers = projection.clamped_until(query), projection.numbers(query)
        return replace(recorded, clamped_until=until, numbers=numbers)

    def _with_found(self, query: LinearQuery, recorded: Recorded, found: FoundValues) -> Recorded:
        """The same, with values that were found later: rows before that are in ``other``."""
        later = found.named_later(query, self._state.shape)
        if not later:
            return recorded
        n_answers = math.prod(self._state.shape[a] for a in query.group_by)
        at_most = np.array(recorded.at_most or np.zeros(n_answers))
        for one in later:
            whole = min(self._at_most(rows)[0] for rows in (one.of_all, one.in_other))
            at_most[one.answers] += np.minimum(self._at_most(one.rows), whole)
        at_most = np.minimum(at_most, self._state.rows(query.window))
        return replace(
            recorded,
            since=max(recorded.since, *(one.since for one in later)),
            at_most=tuple(at_most.tolist()),
        )

    def _recorded(self, query: LinearQuery) -> Recorded:
        """What rows of older versions of the attributes do not say of a query."""
        projection, start = self.projection, query.window.start
        if projection is None:
            return Recorded(start)
        if not self.is_told_across(query):
            return Recorded(max(start, projection.since(query)))
        since, parts = projection.recorded_since(query), self.parts(query) or ()
        if query.difference or all(part.possible is None for part in parts):
            return Recorded(since)
        found = np.zeros(math.prod(self._state.shape[a] for a in query.group_by))
        for part in parts:
            if part.possible is not None:
                found += self._unrecorded(part, part.possible, len(found))
        return Recorded(since, tuple(found.tolist()))

    def _unrecorded(self, part: QueryPart, possible: LinearQuery, n_answers: int) -> Floats:
        """Upper ends of the rows that may belong to each answer besides those that surely do."""
        sure = part.query.predicate
        unsure = replace(possible, predicate=possible.predicate.and_also(sure.complement))
        ends, n_rows = self._at_most(unsure), float(self._state.rows(possible.window))
        places = np.arange(len(ends)) if part.places is None else part.places
        found = np.zeros(n_answers)
        np.add.at(found, places[places >= 0], ends[places >= 0])
        if part.joins is not None:
            own = np.zeros_like(part.joins)
            own[places >= 0, places[places >= 0]] = True
            found += self._at_most(possible) @ (part.joins & ~own)
        return np.asarray(np.minimum(found, n_rows))

    def _at_most(self, query: LinearQuery) -> Floats:
        """Upper ends of the answers to a query for counts, as far as is published, shape (answers,)."""
        n_answers = math.prod(self._state.shape[a] for a in query.group_by)
        n_rows, found = float(self._state.rows(query.window)), np.zeros(n_answers)
        if query.predicate.constant is False:
            return found
        if is_total(query.predicate, query.group_by, known=self._state.belief.total_known):
            return found + n_rows
        evidence = self._state.evidence(query)
        ends = evidence.values + self._state.terms.z_steered * np.sqrt(evidence.variances)
        live = slice(None) if evidence.form.live is None else evidence.form.live
        found[live] = np.clip(np.where(np.isnan(ends), n_rows, ends), 0.0, n_rows)
        return found

    def is_told_across(self, query: LinearQuery) -> bool:
        """Whether a query is answered over blocks of which some have its attributes otherwise, or not at all.

        All of them must say what their rows count for in a sum.
        """
        if query.rank is not None or isinstance(query.total, Product):
            return False
        if not isinstance(query.total, Total) or self.projection is None:
            return True
        return all(map(self.projection.adds_up, self.parts(query) or ()))

    def joined_sums(
        self, query: LinearQuery, evidence: Callable[[LinearQuery], SumEvidence]
    ) -> SumEvidence:
        """What is known of all parts of a query with a total.

        Args:
            query: The query.
            evidence: Returns what is known of a part.
        """
        parts = self.parts(query)
        if parts is None:
            return evidence(query)
        known = []
        for part in parts:
            asked, sums = part.query, None
            n_own = math.prod(self._state.shape[a] for a in asked.group_by)
            places = np.arange(n_own) if part.places is None else part.places
            if asked.predicate.constant is not False:
                sums = evidence(asked)
            known.append(KnownSums(part, sums, of_live(places, sums.live) if sums else places[:0]))
        n_answers = math.prod(self._state.shape[a] for a in query.group_by)
        rows = [self._state.rows(range(block, block + 1)) for block in query.window]
        return JoinedSums(query, known, n_answers, rows, total_known=self._state.belief.total_known)

    def sums_between(
        self, query: LinearQuery, *, at_opening: bool
    ) -> tuple[SumEvidence, SumEvidence]:
        """What is known of two totals between which the one of a query lies: see ``Belief``."""
        between = partial(self._state.belief.sums_between, at_opening=at_opening)
        low = self.joined_sums(query, lambda part: between(part)[0])
        high = self.joined_sums(query, lambda part: between(part)[1])
        return low, high
