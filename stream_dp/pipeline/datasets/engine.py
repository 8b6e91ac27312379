"""What follows from the definition of a data set alone, before any row: its schema and its mechanism."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Final

from stream_dp.core.budget.parameters import Unit
from stream_dp.core.mechanism import Release
from stream_dp.core.queries.conditions import CompiledConditions
from stream_dp.core.queries.query import AnyQuery, LinearQuery
from stream_dp.core.residual.base_release.grid_tables import GridTables
from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.keys.key_look import KeyRelease
from stream_dp.core.rows.attribute_versions import Schema
from stream_dp.core.rows.universe import Universe
from stream_dp.messages import ChangeSchema, Definition, Proposal, ValueCount
from stream_dp.pipeline.datasets.transcript import fold
from stream_dp.pipeline.rows.waiting.row_times import Times
from stream_dp.profiles.builder import build, change_schema, declared_in
from stream_dp.profiles.line_units import privacy_of

_MOST_COUNTED: Final = 1000
"""The most values of which the catalog says how many have them."""


class Engine:
    """What answers the queries of one data set. It is public, and holds no row.

    Attributes:
        first: The definition as it was made.
        definition: The same with all versions of its attributes.
        schema: The versions of its attributes.
        mechanism: The mechanism that answers the queries.
        conditions: The conditions of its queries, compiled.
        times: The rules by which times of batches become times of phases.

    Raises:
        InvalidDefinition: No mechanism can be built from the definition.
    """

    def __init__(self, definition: Definition) -> None:
        self.times = Times(definition.phase)
        self.first = definition
        self.restart()

    def restart(self) -> None:
        """Begins again as if nothing had been published."""
        self.definition = self.first
        _, self.mechanism = build(self.definition)
        self.schema = Schema.of(declared_in(self.definition))
        # The block of each look that has found values, and the schema before it.
        self._found_at: list[tuple[int, Schema]] = []
        self.conditions = CompiledConditions(self.universe)

    @property
    def universe(self) -> Universe:
        """The possible rows, as queries are asked about them."""
        return self.schema.newest.universe

    @property
    def unit(self) -> Unit | None:
        """The promise to a person; None where rows are protected."""
        return privacy_of(self.first).unit

    def universe_for(self, query: AnyQuery) -> Universe:
        """Returns the version that names the cells of a query."""
        newest = self.universe
        if isinstance(query, LinearQuery) and not {*query.attributes} <= {*newest.in_force}:
            return self.schema.at(query.window.stop - 1).universe
        return newest

    def rows_universe(self, block: int) -> Universe:
        """Returns what the rows of a block are encoded with: with the values that were found up to it."""
        later = bisect_right(self._found_at, block, key=lambda at: at[0])
        schema = self._found_at[later][1] if later < len(self._found_at) else self.schema
        return schema.rows_universe(block)

    def rows_universes(self, blocks: Iterable[int]) -> list[Universe]:
        """Returns what rows are encoded with that may be in any of these blocks."""
        versions = dict.fromkeys(self.schema.at(block).first for block in blocks)
        return [self.schema.rows_universe(first) for first in versions]

    def shape_at(self, block: int) -> tuple[int, ...]:
        """Returns the cells of each attribute in the rows of a block, 1 for those that they do not have."""
        return self.schema.shape_at(block)

    def absorb(self, release: Release) -> None:
        """Folds a release. Values that it has found have names from then on; what it proposes is known."""
        self.mechanism.absorb(release)
        self._propose(release)
        if self.mechanism.found is None or self.mechanism.found.values == self.found:
            return
        assert isinstance(release, KeyRelease), "nothing else finds values"
        self._found_at.append((release.block, self.schema))
        for index, known in self.found.items():
            new = self.mechanism.found.values[index][len(known) :]
            self.schema = self.schema.with_found(index, new)
        self.definition = self.definition.with_found(self._found_by_name)
        self.conditions = CompiledConditions(self.universe)

    @property
    def cataloged(self) -> Definition:
        """The definition as the catalog has it, with how many have each value that was found."""
        found = self.mechanism.found
        if found is None or not found.counted:
            return self.definition
        z = two_sided(math.log(self.definition.accuracy.failure_probability))
        counts = [
            ValueCount(
                attribute=self.universe.attributes[index].name,
                value=value,
                since=found.since.get((index, value), 0) + 1,
                phases=(one.window.start + 1, one.window.stop),
                count=one.count,
                error_bar=math.ceil(z * one.sigma),
            )
            for (index, value), one in sorted(found.counted.items(), key=lambda by: -by[1].count)
        ]
        return self.definition.model_copy(update={"found": tuple(counts[:_MOST_COUNTED])})

    @property
    def found(self) -> dict[int, tuple[str, ...]]:
        """The values that are told apart of each attribute whose values are found, by its index."""
        return {index: one.values for index, one in self.universe.found.items()}

    @property
    def _found_by_name(self) -> dict[str, tuple[str, ...]]:
        return {one.name: one.values for one in self.universe.found.values()}

    def _propose(self, release: Release) -> None:
        failure = self.definition.accuracy.failure_probability
        found = tuple(
            Proposal(attribute=name, **({} if bounds is None else asdict(bounds)))
            for name, bounds in GridTables(self.schema).proposals(release, failure)
        )
        if found:
            proposals = (*(self.definition.proposals or ()), *found)
            self.definition = self.definition.model_copy(update={"proposals": proposals})

    def fold(self, transcript: Sequence[bytes]) -> int:
        """Folds what was published since the beginning; returns the releases since the newest phase opened.

        Raises:
            CorruptState: An entry is of an unknown kind.
        """
        return fold(transcript, self.mechanism, self.absorb, self.put_in_force)

    def put_in_force(self, change: ChangeSchema, first_phase: int) -> None:
        """Puts other attributes in force from a phase on, see ``change``."""
        self.change(self.definition.changed(change, first_phase), first_phase - 1)

    def change(self, definition: Definition, first: int) -> None:
        """Puts other attributes in force.

        Args:
            definition: The definition with them.
            first: The first block that has them.

        Raises:
            InvalidDefinition: They change what must not change.
        """
        definition = definition.with_found(self._found_by_name)
        schema = self.schema.changed(declared_in(definition), first)
        change_schema(self.mechanism, definition, schema)
        self.definition, self.schema = definition, schema
        self.conditions = CompiledConditions(self.universe)
