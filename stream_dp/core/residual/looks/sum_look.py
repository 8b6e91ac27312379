"""The look at a sum: one vector of noisy sums and counts, priced together.

The look sees exact counts; its release is published as it is. What to measure, and how precisely, is decided
elsewhere (``sum_plan``), from public numbers. The proof of its price is docs/proofs, Theorem 14.
A share is measured by the same look: a row counts for 1 in the part that is asked about, and for 0 elsewhere.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.encoding import Integers, fields, integers
from stream_dp.core.mechanism import Look
from stream_dp.core.queries.query import Indicator, LinearQuery, Product, Total
from stream_dp.core.randomness.noise_sources import NoiseSource, grid_sigma
from stream_dp.core.residual.belief.sums import SumEstimate, part_query, rows_query, sum_key
from stream_dp.core.residual.looks.table_looks import (
    FORMAT,
    exact_answers,
    pack_attributes,
    read_attributes,
)
from stream_dp.core.residual.plan.sum_price import SumShape, WholeValues
from stream_dp.core.rows.blocks import Blocks

SUMS: Final = 6
"""The kind of a measurement of sums."""

SHARES: Final = 7
"""The kind of a measurement of shares."""

_FLAGS: Final = {1: "grouped", 2: "every_row", 4: "rests", 8: "blank"}
"""What is so of a ``SumShape``, by its bit."""

Steps = tuple[tuple[int, int, int], ...]
"""Block, and the steps of the public grid of scales of its sums and of its counts."""


@dataclass(frozen=True, slots=True)
class SumLook(Look):
    """Measures sums with their counts, in some blocks of the window.

    Attributes:
        query: What is asked.
        values: The whole numbers that rows count for.
        shape: What the price follows from.
        steps: Block and steps. The step of the counts has no meaning where none are measured.
        n_answers: How many answers there are.
    """

    query: LinearQuery = field(repr=False)
    values: WholeValues
    shape: SumShape
    steps: Steps
    n_answers: int
    charges: tuple[Charge, ...]

    @property
    def description(self) -> dict[str, object]:
        query, shape = self.query, self.shape
        assert query.total is not None, "the query has a total"
        is_share = isinstance(query.total, Indicator)
        added: dict[str, object] = {}
        match query.total:
            case Total(attribute=attribute):
                added = {"attribute": attribute}
            case Product(attributes=pair):
                added = {"product": list(pair)}
        return {
            "kind": "shares" if is_share else "sums",
            "predicate": query.key.hex(),
            "attributes": list(query.attributes),
            **added,
            "group_by": list(query.group_by),
            "answers": self.n_answers,
            "every_row": shape.every_row,
            **({} if is_share else {"rests": shape.rests}),
            "range": [shape.low, shape.high],
            "centre": shape.centre,
            "unit": self.values.unit,
            "blocks": [list(step if shape.counts else step[:2]) for step in self.steps],
            **({} if query.total.kept is None else {"measured": True}),
        }

    def reserve(self, noise: NoiseSource) -> None:
        for _, of_sums, of_counts in self.steps:
            noise.reserve("gaussian", grid_sigma(of_sums), self.n_answers)
            if self.shape.counts:
                n_counts = (self.shape.vectors - 1) * self.n_answers
                noise.reserve("gaussian", grid_sigma(of_counts), n_counts)

    def take(self, noise: NoiseSource, data: Blocks) -> SumRelease:
        found = []
        for block, of_sums, of_counts in self.steps:
            exact = exact_sums(self, data, block)
            draws = [noise.gaussian(grid_sigma(of_sums), self.n_answers)]
            draws += [noise.gaussian(grid_sigma(of_counts), self.n_answers) for _ in exact[1:]]
            found.append(exact + np.array(draws))
        return self.released(np.array(found))

    def released(self, values: Integers) -> SumRelease:
        """The release of these values, int64, shape (blocks, vectors, answers)."""
        query, unit = self.query, self.values.unit
        counted = LinearQuery(query.predicate, query.window, query.group_by)
        third = part_query(query) or (
            rows_query(query, total_known=not self.shape.blank) if self.shape.rests else None
        )
        keys = (sum_key(query), counted.key, bytes(16) if third is None else third.key)
        is_share = isinstance(query.total, Indicator)
        return SumRelease(keys, query.attributes, unit, self.shape, self.steps, values, is_share)


def exact_sums(look: SumLook, data: Blocks, block: int) -> Integers:
    """The true sums and counts of one block, int64, shape (vectors, answers). Private."""
    query, attributes = look.query, look.query.attributes
    assert query.total is not None, "the query has a total"
    here = range(block, block + 1)
    (marginal,) = data.marginal(attributes, here)
    kept, centre = query.total.kept, look.shape.centre
    along = [
        size if a in query.total.attributes else 1
        for a, size in zip(attributes, marginal.shape, strict=True)
    ]
    if kept is None:
        weighted = marginal * _weights(look, look.values.numbers).reshape(along)
    else:
        assert isinstance(query.total, Total), "a number of each row is kept"
        (above,) = data.totals(query.total.attribute, attributes, here)
        weighted = 2 * above + (2 * kept.base - centre) * marginal
        # All rows of such a cell count for one number, whatever was kept of them.
        alike = np.array([low == high for low, high in kept.ends]).reshape(along)
        alone = marginal * _weights(look, [low for low, _ in kept.ends]).reshape(along)
        weighted = np.where(alike, alone, weighted)
    found = [exact_answers(query, attributes, weighted)]
    if look.shape.counts:
        found.append(exact_answers(query, attributes, marginal))
    if look.shape.rests:
        assert query.rows is not None, "the query counts rows"
        every = replace(query, predicate=query.rows)
        found.append(exact_answers(every, attributes, marginal) - found[1])
    return np.array(found)


def _weights(look: SumLook, numbers: Sequence[int]) -> Integers:
    """What a row of each cell adds. A cell whose rows never count may have any number, also a huge one."""
    weights = [2 * number - look.shape.centre for number in numbers]
    bounded = [weight if abs(weight) <= look.shape.size else 0 for weight in weights]
    return np.array(bounded, dtype=np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class SumRelease:
    """Published sums and counts of some blocks.

    Attributes:
        keys: The keys of three queries: for the sum, for the count of its rows, and for the count of all rows
            of the condition. The last is zeros if that was not measured. For a share it is the key of the
            count of its part.
        attributes: All that they depend on, ascending.
        unit: What a whole number stands for.
        shape: What the price follows from.
        steps: Block and steps.
        values: int64, shape (blocks, vectors, answers): sums, then counts, then rows without a number.
        is_share: Whether a share was asked.
    """

    keys: tuple[bytes, bytes, bytes]
    attributes: tuple[int, ...]
    unit: float
    shape: SumShape
    steps: Steps
    values: Integers = field(repr=False)
    is_share: bool = False

    def to_bytes(self) -> bytes:
        n_blocks, _, n_answers = self.values.shape
        shape, kind = self.shape, SHARES if self.is_share else SUMS
        flags = sum(flag * getattr(shape, name) for flag, name in _FLAGS.items())
        return FORMAT.pack(
            fields("<B16s16s16sII", kind, *self.keys, n_blocks, n_answers),
            pack_attributes(self.attributes),
            fields("<qqqdB", shape.low, shape.high, shape.centre, self.unit, flags),
            *(fields("<Iii", *step) for step in self.steps),
            integers(self.values),
        )

    @classmethod
    def from_bytes(cls, n_attributes: int, data: bytes) -> SumRelease:
        """Inverse of ``to_bytes``.

        Args:
            n_attributes: How many attributes the universe has.
            data: The bytes of a release.

        Raises:
            CorruptState: They are cut short, too long, of another universe, or in an unknown version.
        """
        reader = FORMAT.read(data)
        (kind,) = reader.fields("B")
        reader.require(kind in (SUMS, SHARES), "is of an unknown kind")
        *keys, n_blocks, n_answers = reader.fields("<16s16s16sII")
        attributes = read_attributes(reader, n_attributes)
        low, high, centre, unit, flags = reader.fields("<qqqdB")
        facts = {name: bool(flags & flag) for flag, name in _FLAGS.items()}
        shape = SumShape(low, high, centre, **facts)
        reader.require(flags <= sum(_FLAGS) and low < high and shape.fits and unit > 0.0)
        reader.require((shape.counts and kind == SUMS) or not shape.rests)
        steps = tuple(reader.fields("<Iii") for _ in range(n_blocks))
        values = reader.integers(n_blocks, shape.vectors, n_answers)
        reader.end()
        triple = (keys[0], keys[1], keys[2])
        return cls(triple, attributes, unit, shape, steps, values, kind == SHARES)

    def estimates(self, n_rows: int, number: int) -> SumEstimate:
        """Returns the sums and counts that the release gives for one of its blocks.

        Args:
            n_rows: Rows of the block; public.
            number: The index of the block in the release, from 0.
        """
        _, of_sums, of_counts = self.steps[number]
        values = self.values[number].astype(np.float64)
        counts = values[1] if self.shape.counts else np.full(values.shape[1], float(n_rows))
        noise = float(grid_sigma(of_counts) ** 2) if self.shape.counts else 0.0
        half, centre = 0.5 * self.unit, float(self.shape.centre)
        return SumEstimate(
            half * (values[0] + centre * counts),
            counts,
            half * half * (float(grid_sigma(of_sums) ** 2) + centre * centre * noise),
            noise,
            half * centre * noise,
        )
