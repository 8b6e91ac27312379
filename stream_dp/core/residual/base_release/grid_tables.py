"""The tables of numbers on a grid: each is measured alone, once, and says which edges are to be proposed.

No plan is about such a number: its 403 cells would take most of what opening a phase may take, and they are
replaced as soon as the owner accepts. Until then queries about it are answered from its table, or pay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.mechanism import Release
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.base_release.base_plan import BaseRelease
from stream_dp.core.residual.looks.table_looks import BASE, TablesRelease
from stream_dp.core.residual.plan.planner import Prices
from stream_dp.core.rows.attribute_versions import Schema
from stream_dp.core.rows.attributes import Number
from stream_dp.core.rows.proposed_bounds import (
    ProposedBounds,
    WantedBounds,
    least_filled,
    proposed_bounds,
)


@dataclass(frozen=True)
class GridTables:
    """The tables of the numbers on a grid of one data set. They follow from its schema.

    Attributes:
        schema: The versions of the attributes.
    """

    schema: Schema

    def __deepcopy__(self, memo: dict[int, Any]) -> GridTables:
        return self  # nothing changes it

    def of_block(self, block: int, prices: Prices) -> BaseRelease:
        """The tables that are measured as a block opens, each as precise as its share allows."""
        tables = []
        for index, first in self.schema.grids.items():
            most = math.floor(Fraction(str(self._wanted(index).share)) * UNITS)
            step = prices.least_step(most, prices.table) if first == block else None
            if step is not None:
                tables.append(((index,), step))
        return BaseRelease.of(tables, prices)

    def proposals(
        self, release: Release, failure: float
    ) -> Iterator[tuple[str, ProposedBounds | None]]:
        """Yields what a release proposes, by the names of the numbers. None where it says too little.

        Args:
            release: What was published.
            failure: The probability with which a number's bounds may be too wide because of noise.
        """
        if not isinstance(release, TablesRelease) or release.reason != BASE:
            return
        for part, table in zip(release.parts, release.tables, strict=True):
            index = part.attributes[0] if len(part.attributes) == 1 else -1
            if self.schema.grids.get(index) != part.block:
                continue
            number = self._number(index)
            n_cells = len(number.edges) + 1
            least = least_filled(float(grid_sigma(part.step)), failure, n_cells)
            yield (
                number.name,
                proposed_bounds(
                    table[:n_cells],
                    number.edges,
                    least,
                    self._wanted(index).bins,
                    unsure=not number.missing,
                ),
            )

    def _number(self, index: int) -> Number:
        number = self.schema.newest.universe.attributes[index]
        assert isinstance(number, Number), "only numbers are on a grid"
        return number

    def _wanted(self, index: int) -> WantedBounds:
        wanted = self._number(index).wanted
        assert wanted is not None, "it is on a grid"
        return wanted
