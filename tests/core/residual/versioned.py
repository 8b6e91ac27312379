"""A data set whose attributes changed after half of its phases, next to rows that say everything."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate, total_of
from stream_dp.core.rows.attribute_versions import Declared, Schema
from stream_dp.core.rows.attributes import Attribute, Boolean, Category, Number
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.measured_values import Measure
from tests.core.residual.host import Host

OLD: tuple[Attribute, ...] = (Category("city", ("Bonn", "Graz")), Number("age", (30.0, 45.0)))
NEW: tuple[Attribute, ...] = (
    Category("city", ("Bonn", "Graz", "Lyon")),
    Number("age", (30.0, 35.0, 45.0)),
    Boolean("vip", missing=True),
)
WIDE: tuple[Attribute, ...] = (
    OLD[0],
    Number("age", (30.0, 35.0, 45.0)),
    Number("spent", (50.0,), measure=Measure(1.0, 0.0, 200.0)),
)
"""What ``NARROW`` becomes: other bins of a number, and wider bounds of another."""
NARROW: tuple[Attribute, ...] = (*OLD, Number("spent", (50.0,), measure=Measure(1.0, 0.0, 100.0)))
CITIES, AGES, SPENT = ("Bonn", "Graz", "Lyon", "Oslo"), (20, 32, 40, 50), (10, 60, 150, 300)


def rows(seed: int, n: int) -> dict[str, list[Any]]:
    """Rows by column, unevenly."""
    rng = np.random.default_rng(seed)
    return {
        "city": rng.choice(CITIES, n, p=(0.4, 0.3, 0.2, 0.1)).tolist(),
        "age": rng.choice(AGES, n, p=(0.1, 0.2, 0.3, 0.4)).tolist(),
        "vip": rng.choice([True, False], n, p=(0.3, 0.7)).tolist(),
        "spent": rng.choice(SPENT, n, p=(0.4, 0.3, 0.2, 0.1)).tolist(),
    }


class Versioned(Host):
    """Phases of either version, as many of each.

    Attributes:
        schema: Its versions.
        sent: The rows of each phase.
    """

    def __init__(
        self,
        phases: int = 2,
        n: int = 20_000,
        *,
        noise: Any = 1,
        of: tuple[tuple[Attribute, ...], tuple[Attribute, ...]] = (OLD, NEW),
        **settings: Any,
    ) -> None:
        first = Schema.of([Declared(one) for one in of[0]])
        super().__init__(first.newest.universe, noise=noise, **settings)
        self.schema = first
        self.data = Blocks(lambda block: self.schema.shape_at(block))
        self.sent: list[Mapping[str, list[Any]]] = []
        for phase in range(2 * phases):
            if phase == phases:
                self.schema = first.changed([Declared(one) for one in of[1]], phases)
                self.mechanism.change_schema(self.schema, ())
            self.fill(rows(phase, n))

    def fill(self, columns: Mapping[str, list[Any]]) -> None:
        universe = self.schema.rows_universe(len(self.data))
        known = {n: c for n, c in columns.items() if n in universe.names}
        self.sent.append(columns)
        self.open(Block.seal(universe, universe.encode_columns(known)))

    def index(self, name: str) -> int:
        return self.schema.newest.universe.index(name)

    def where(self, **chosen: npt.ArrayLike) -> Predicate:
        """The rows in the chosen cells of the newest attributes."""
        factors = {}
        for name, cells in chosen.items():
            at = self.index(name)
            factors[at] = np.isin(np.arange(self.state.shape[at]), cells)
        return Predicate.conjunction(factors)

    def sum_of(
        self, name: str, where: Predicate = EVERYTHING, *by: str, **more: Any
    ) -> LinearQuery:
        """A sum over all phases."""
        number = self.schema.newest.universe.attributes[self.index(name)]
        assert isinstance(number, Number), "it is added up"
        total = total_of(self.index(name), number)
        return LinearQuery(where, self.window, tuple(map(self.index, by)), total, **more)

    def rows_that_say(self, where: Mapping[str, Collection[Any]]) -> int:
        """How many rows say some of these values."""
        return sum(int(np.count_nonzero(_says(columns, where))) for columns in self.sent)

    def counted_for(self, name: str, where: Mapping[str, Collection[Any]] | None = None) -> float:
        """What all rows that say some of these values count for together, each in its own phase."""
        total = 0.0
        for block, columns in enumerate(self.sent):
            universe = self.schema.at(block).universe
            number = universe.attributes[universe.index(name)]
            assert isinstance(number, Number), "it is added up"
            numbers = np.array(columns[name], dtype=np.float64)
            if number.measure is None:
                bins = np.searchsorted(number.edges, numbers, side="right")
                numbers = np.array(number.values)[bins]
            else:
                numbers = np.clip(numbers, number.measure.low, number.measure.high)
            total += float(numbers[_says(columns, where or {})].sum())
        return total

    def recorded(self, query: LinearQuery) -> npt.NDArray[np.int64]:
        """The rows of each answer that surely satisfy a query, counted in the cells of each block."""
        found = np.zeros(int(np.prod([self.state.shape[a] for a in query.group_by])), np.int64)
        for part in self.state.versions.parts(query) or ():
            asked = part.query
            every = tuple(sorted(asked.attributes))
            counts = self.data.marginal(every, asked.window).sum(axis=0)
            counts = counts * asked.predicate.along(every)
            kept = sorted(asked.group_by)
            counts = counts.sum(axis=tuple(i for i, a in enumerate(every) if a not in kept))
            counts = counts.transpose([kept.index(a) for a in asked.group_by]).reshape(-1)
            places = np.arange(len(found)) if part.places is None else part.places
            np.add.at(found, places[places >= 0], counts[places >= 0])
        return found


def merging(base_share: float = 0.0, **settings: Any) -> tuple[Versioned, LinearQuery]:
    """A data set where two old cells are one now, and a query for a table that has it."""
    host = Versioned(1, base_share=base_share, **settings)
    merged = Category("city", ("Bonn", "Lyon"), also=(("Graz", "Bonn"),))
    host.schema = host.schema.changed([Declared(merged), *map(Declared, NEW[1:])], 2)
    host.mechanism.change_schema(host.schema, ())
    return host, LinearQuery(EVERYTHING, range(2), (host.index("city"),))


def _says(
    columns: Mapping[str, list[Any]], where: Mapping[str, Collection[Any]]
) -> npt.NDArray[np.bool_]:
    """Marks the rows that say some of these values."""
    found = np.ones(len(columns["city"]), dtype=np.bool_)
    for name, values in where.items():
        found &= np.isin(columns[name], list(values))
    return found
