"""The looks of the calibrated profile: marginals and single answers of blocks, with Gaussian noise.

The looks see exact counts; their releases are published as they are. Another module (``planner``) decides
what to measure, and how precisely, from public numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.encoding import Format, Integers, Reader, fields, integers
from stream_dp.core.mechanism import Look, Release
from stream_dp.core.queries.projection import Merged
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.randomness.noise_sources import NoiseSource, grid_sigma
from stream_dp.core.residual.belief.levels import Floats, axes_of, grouped
from stream_dp.core.rows.blocks import Blocks

BASE: Final = "base"
GROWTH: Final = "growth"
QUERY: Final = "query"

FORMAT: Final = Format("measurement")
"""It begins with its kind: tables and counts here, sums and shares in ``sum_look``, rows in ``counted_rows``.
"""

_TABLES, _COUNTS, _FRESH, _OPENING, _GROWN = 1, 2, 3, 4, 5
_REASONS: Final = {_TABLES: QUERY, _OPENING: BASE, _GROWN: GROWTH}


@dataclass(frozen=True, slots=True)
class Part:
    """One marginal to measure: which attributes of which block, and how noisy.

    Attributes:
        attributes: Indices, ascending.
        block: Index of the block.
        step: The step of the public grid of scales.
        groups: The groups of neighbouring cells that are counted, of each attribute: as many as it has cells,
            or as a level of its chain has. Empty where all are cells.
    """

    attributes: tuple[int, ...]
    block: int
    step: int
    groups: tuple[int, ...] = ()

    @property
    def description(self) -> list[object]:
        grouped = [list(self.groups)] if self.groups else []
        return [list(self.attributes), self.block, self.step, *grouped]


@dataclass(frozen=True, slots=True)
class TablesLook(Look):
    """Measures marginals, each cell with independent noise.

    Attributes:
        reason: ``BASE`` when a phase opens, ``QUERY`` when one asks for it, ``GROWTH`` when the data set
            measures more of a sealed block.
    """

    reason: str
    parts: tuple[Part, ...]
    shapes: tuple[tuple[int, ...], ...]
    charges: tuple[Charge, ...]

    @classmethod
    def of(
        cls, reason: str, parts: Iterable[Part], shape: tuple[int, ...], charges: tuple[Charge, ...]
    ) -> TablesLook:
        """The look at these marginals of a universe of this shape."""
        some = tuple(parts)
        shapes = tuple(part.groups or tuple(shape[a] for a in part.attributes) for part in some)
        return cls(reason, some, shapes, charges)

    @property
    def description(self) -> dict[str, object]:
        return {
            "kind": "tables",
            "reason": self.reason,
            "tables": [part.description for part in self.parts],
        }

    def reserve(self, noise: NoiseSource) -> None:
        for part, shape in zip(self.parts, self.shapes, strict=True):
            noise.reserve("gaussian", grid_sigma(part.step), math.prod(shape))

    def take(self, noise: NoiseSource, data: Blocks) -> TablesRelease:
        tables = []
        exact = data.tables([(part.attributes, part.block) for part in self.parts])
        for part, shape, table in zip(self.parts, self.shapes, exact, strict=True):
            counts = grouped(table, shape)
            draws = noise.gaussian(grid_sigma(part.step), counts.size)
            tables.append(counts + draws.reshape(shape))
        return TablesRelease(self.parts, tuple(tables), self.reason)


@dataclass(frozen=True, slots=True, eq=False)
class TablesRelease:
    """Published marginals: int64, of the attributes' sizes, or of the groups of each.

    Attributes:
        reason: Why they were measured, as the look says it.
    """

    parts: tuple[Part, ...]
    tables: tuple[Integers, ...] = field(repr=False)
    reason: str = QUERY

    def to_bytes(self) -> bytes:
        (kind,) = (kind for kind, reason in _REASONS.items() if reason == self.reason)
        chunks = [fields("<BI", kind, len(self.parts))]
        for part, table in zip(self.parts, self.tables, strict=True):
            chunks.append(pack_attributes(part.attributes))
            chunks.append(fields(f"<Ii{table.ndim}I", part.block, part.step, *table.shape))
            chunks.append(integers(table))
        return FORMAT.pack(*chunks)


@dataclass(frozen=True, slots=True)
class CountsLook(Look):
    """Measures the answers to one query alone, in some blocks of its window.

    Attributes:
        query: What is asked.
        attributes: All that it depends on, ascending.
        steps: Block and step of the public grid of scales.
        n_answers: How many numbers are published of each block.
        merged: The answers that are counted together, before noise is added. None for none.
    """

    query: LinearQuery = field(repr=False)
    attributes: tuple[int, ...]
    steps: tuple[tuple[int, int], ...]
    n_answers: int
    charges: tuple[Charge, ...]
    merged: Merged | None = field(default=None, repr=False)

    @property
    def key(self) -> bytes:
        """Identifies what is counted."""
        return self.query.key if self.merged is None else self.merged.key

    @property
    def description(self) -> dict[str, object]:
        fresh: dict[str, object] = {"fresh": True} if self.query.fresh else {}
        return {
            "kind": "counts",
            "predicate": self.key.hex(),
            "attributes": list(self.attributes),
            "group_by": list(self.query.group_by),
            "answers": self.n_answers,
            "blocks": [list(step) for step in self.steps],
            **fresh,
            **({} if self.merged is None else {"merged": True}),
        }

    def reserve(self, noise: NoiseSource) -> None:
        for _, step in self.steps:
            noise.reserve("gaussian", grid_sigma(step), self.n_answers)

    def take(self, noise: NoiseSource, data: Blocks) -> CountsRelease:
        values = []
        exact = data.tables([(self.attributes, block) for block, _ in self.steps])
        for marginal, (_, step) in zip(exact, self.steps, strict=True):
            counts = exact_answers(self.query, self.attributes, marginal)
            counts = counts if self.merged is None else self.merged.of(counts)
            values.append(counts + noise.gaussian(grid_sigma(step), self.n_answers))
        return self.released(np.array(values))

    def released(self, values: Integers) -> CountsRelease:
        """The release of these values, int64, shape (blocks, n_answers)."""
        return CountsRelease(self.key, self.attributes, self.steps, values, self.query.fresh)


@dataclass(frozen=True, slots=True, eq=False)
class CountsRelease:
    """Published answers to one query in some blocks: int64, shape (blocks, answers).

    Attributes:
        fresh: Whether they answer one query by themselves, and no memory takes them in.
    """

    key: bytes
    attributes: tuple[int, ...]
    steps: tuple[tuple[int, int], ...]
    values: Integers = field(repr=False)
    fresh: bool = False

    def to_bytes(self) -> bytes:
        n_blocks, n_answers = self.values.shape
        return FORMAT.pack(
            fields("<B16sII", _FRESH if self.fresh else _COUNTS, self.key, n_blocks, n_answers),
            pack_attributes(self.attributes),
            *(fields("<Ii", block, step) for block, step in self.steps),
            integers(self.values),
        )


def published_counts(query: LinearQuery, release: Release) -> tuple[Floats, float]:
    """The counts that a look has published of all its blocks, shape (n_answers,), and the variance of each.

    Args:
        query: What is asked.
        release: The release of a look at its answers, or at the table that they are.
    """
    if isinstance(release, TablesRelease):
        table = np.sum(release.tables, axis=0).astype(np.float64)
        values = table.transpose(np.argsort(np.argsort(query.group_by))).reshape(-1)
        return values, variance_of((part.block, part.step) for part in release.parts)
    assert isinstance(release, CountsRelease), "the release of a look at counts"
    return release.values.sum(axis=0).astype(np.float64), variance_of(release.steps)


def variance_of(steps: Iterable[tuple[int, int]]) -> float:
    """The variance of a sum of counts, one of each block, from their steps of the grid of scales."""
    return math.fsum(float(grid_sigma(step)) ** 2 for _, step in steps)


def exact_answers(query: LinearQuery, attributes: tuple[int, ...], marginal: Integers) -> Integers:
    """The true answers in one block, int64, shape (n_answers,). Private.

    Args:
        query: What is asked.
        attributes: The axes of ``marginal``, ascending.
        marginal: What the rows of each cell count for together.
    """
    predicate, group_by = query.predicate, query.group_by
    others = tuple(axis for axis, a in enumerate(attributes) if a not in group_by)
    counts = np.where(predicate.along(attributes), marginal, 0).sum(axis=others)
    as_asked = np.argsort(np.argsort(group_by))  # rank of each grouped attribute
    return np.asarray(counts.transpose(as_asked).reshape(-1), dtype=np.int64)


def measured_from_bytes(shape: tuple[int, ...], data: bytes) -> TablesRelease | CountsRelease:
    """Inverse of the releases' ``to_bytes``.

    Args:
        shape: Sizes of the universe's attributes.
        data: The bytes of a release.

    Raises:
        CorruptState: They are cut short, too long, of another universe, or in an unknown version.
    """
    reader = FORMAT.read(data)
    (kind,) = reader.fields("B")
    if kind not in _REASONS:
        reader.require(kind in (_COUNTS, _FRESH), "is of an unknown kind")
        key, n_blocks, n_answers = reader.fields("<16sII")
        attributes = read_attributes(reader, len(shape))
        steps = tuple(reader.fields("<Ii") for _ in range(n_blocks))
        values = reader.integers(n_blocks, n_answers)
        reader.end()
        return CountsRelease(key, attributes, steps, values, kind == _FRESH)
    (n_parts,) = reader.fields("<I")
    parts, tables = [], []
    for _ in range(n_parts):
        attributes = read_attributes(reader, len(shape))
        block, step = reader.fields("<Ii")
        sizes = tuple(shape[a] for a in attributes)
        counted = reader.fields(f"<{len(sizes)}I")
        chains = axes_of(shape).layout(attributes).chains
        are_levels = all(n in chain.counts for chain, n in zip(chains, counted, strict=True))
        reader.require(are_levels, "counts groups that it cannot have")
        parts.append(Part(attributes, block, step, () if counted == sizes else counted))
        tables.append(reader.integers(*counted))
    reader.end()
    return TablesRelease(tuple(parts), tuple(tables), _REASONS[kind])


def pack_attributes(attributes: tuple[int, ...]) -> bytes:
    """Indices of attributes, which ``read_attributes`` reads."""
    return fields(f"<B{len(attributes)}H", len(attributes), *attributes)


def read_attributes(reader: Reader, n_known: int) -> tuple[int, ...]:
    """Indices of attributes, ascending, of a universe with ``n_known`` of them."""
    (k,) = reader.fields("B")
    attributes = reader.fields(f"<{k}H")
    ascending = list(attributes) == sorted(set(attributes))
    reader.require(ascending and all(a < n_known for a in attributes))
    return attributes
