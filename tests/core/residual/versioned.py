"""A data set whose attributes changed after half of its phases, next to rows that say everything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.rows.attribute_versions import Declared, Schema
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.universe import Attribute, Boolean, Category, Number
from tests.core.residual.host import Host

OLD: tuple[Attribute, ...] = (Category("city", ("Bonn", "Graz")), Number("age", (30.0, 45.0)))
NEW: tuple[Attribute, ...] = (
    Category("city", ("Bonn", "Graz", "Lyon")),
    Number("age", (30.0, 35.0, 45.0)),
    Boolean("vip", missing=True),
)
CITIES, AGES = ("Bonn", "Graz", "Lyon", "Oslo"), (20, 32, 40, 50)
FIRST = Schema.of([Declared(one) for one in OLD])


def rows(seed: int, n: int) -> dict[str, list[Any]]:
    """Rows by column, unevenly."""
    rng = np.random.default_rng(seed)
    return {
        "city": rng.choice(CITIES, n, p=(0.4, 0.3, 0.2, 0.1)).tolist(),
        "age": rng.choice(AGES, n, p=(0.1, 0.2, 0.3, 0.4)).tolist(),
        "vip": rng.choice([True, False], n, p=(0.3, 0.7)).tolist(),
    }


class Versioned(Host):
    """Phases of either version, as many of each.

    Attributes:
        schema: Its versions.
        sent: The rows of each phase.
    """

    def __init__(
        self, phases: int = 2, n: int = 20_000, *, noise: Any = 1, **settings: Any
    ) -> None:
        super().__init__(FIRST.newest.universe, noise=noise, **settings)
        self.schema = FIRST
        self.data = Blocks(lambda block: self.schema.shape_at(block))
        self.sent: list[Mapping[str, list[Any]]] = []
        for phase in range(2 * phases):
            if phase == phases:
                self.schema = FIRST.changed([Declared(one) for one in NEW], phases)
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
