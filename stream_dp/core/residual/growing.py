"""The base release of the first phase, which grows if far more is asked than the plan expected.

Nobody knows beforehand how many queries will come. The generic plan expects a few hundred in each phase and
pays for little in advance. As long as there is one phase, every query is about it, and it bears what phases
share later. So once queries have paid a twentieth of what a base release for ten times as many costs on top,
that much more is measured. The look is the data set's own: no query is charged for it.

Everything here follows from public numbers: the schema, the accuracy, the rows of the phase, and what was
spent on it. In particular it needs no memory. Once the release has grown, more than its price is spent.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from stream_dp.core.accounting import UNITS
from stream_dp.core.noise import grid_sigma
from stream_dp.core.residual.base_plan import CAP, GENERIC_QUERIES, BaseRelease
from stream_dp.core.residual.planner import Prices, step_below

MORE_QUERIES: Final = 10 * GENERIC_QUERIES
"""Different queries in each phase that the larger base release is planned for."""

_PAID: Final = 0.05
"""The part of its price that queries have paid on a block before the release grows."""


@dataclass(frozen=True, slots=True)
class Growth:
    """What a larger base release measures of a block on top of a smaller one.

    Attributes:
        first: The units that the smaller release cost.
        tables: The attributes of each table, ascending, and its step of the public grid of scales.
        units: The units that these tables cost.
    """

    first: int
    tables: tuple[tuple[tuple[int, ...], int], ...]
    units: int

    @classmethod
    def between(cls, small: BaseRelease, large: BaseRelease, prices: Prices) -> Growth:
        """The tables whose weights the smaller release lacks."""
        have = {table: float(grid_sigma(step)) ** -2 for table, step in small.tables}
        lacking = [
            (table, float(grid_sigma(step)) ** -2 - have.get(table, 0.0))
            for table, step in large.tables
        ]
        wanted = [(table, weight) for table, weight in lacking if weight > 0.0]
        scales = np.array([weight for _, weight in wanted]) ** -0.5
        steps = step_below(scales * _TIE).tolist()
        tables = tuple((table, step) for (table, _), step in zip(wanted, steps, strict=True))
        return cls(small.units, tables, prices.total(steps, prices.table))

    def is_due(self, spent: int, room: int) -> bool:
        """Whether the release is to grow, where this much is spent and this much may still be: units."""
        if self.first + self.units > CAP * UNITS:
            return False  # more than is ever measured unasked
        return _PAID * self.units <= spent - self.first < self.units <= room


_TIE: Final = 1.0 + 1e-9

__all__ = ["MORE_QUERIES", "Growth"]
