"""The growth of base releases: sealed blocks are measured more once queries have paid enough for it.

Whether to measure a block in advance is to rent or to buy: each query can be paid for by itself, or a
release is bought that makes its likes free. Nobody knows what will be asked. So a release is bought as soon
as what queries have paid on a block reaches a quarter of its price (docs/proofs, Theorem 30). The first
phase begins at a twentieth. The look is the data set's own: no query is charged for it.

Everything here follows from public numbers: what was bought of a block, what queries paid on it, and the
release that is worth most for what was asked (``replay``).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from typing import Final

import numpy as np

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.base_release.base_plan import BaseRelease
from stream_dp.core.residual.belief.levels import Part as Components
from stream_dp.core.residual.belief.shelf import Shelf
from stream_dp.core.residual.plan.planner import Prices, step_below

PAID: Final = 0.25
"""The part of its price that queries have paid on a block before a larger release is bought."""

PAID_AT_FIRST: Final = 0.05
"""The same for the first purchase of the first phase, whose queries bear what phases share later."""

_CHECKS: Final = [round(0.005 * UNITS * 1.5**k) for k in range(14)]
"""What queries have paid on a block whenever it is looked whether to buy: each time it has grown by half."""

_LEAST: Final = 0.25
"""The least part of what was bought before that is bought at once: each look takes time, and noise."""


class Bought:
    """What the data set has bought of each block, and what queries have paid on it: a fold over releases.

    Args:
        prices: The prices of scales.
    """

    def __init__(self, prices: Prices) -> None:
        self._prices = prices
        self._tables = Shelf[int, list[tuple[Components, int]]](list, list)
        self._units: dict[int, int] = defaultdict(int)
        self._grown: dict[int, int] = defaultdict(int)
        self._rent: dict[int, int] = defaultdict(int)

    def buy(self, block: int, table: Components, step: int, *, opening: bool) -> int:
        """Records a table that was measured on the data set's own account.

        Args:
            block: The block.
            table: The components of the table.
            step: Its step of the public grid of scales.
            opening: Whether it was measured because the phase opened.

        Returns:
            All units that were bought of the block.
        """
        self._tables.own(block).append((table, step))
        units = self._prices.units(step, self._prices.table)
        self._units[block] += units
        if not opening:
            self._grown[block] += units
        return self._units[block]

    def forget(self, block: int) -> None:
        """Forgets the tables of a block, which say nothing of it any more. What they cost stays."""
        self._tables.own(block).clear()

    def pay(self, block: int, units: int) -> None:
        """Records what a query has paid."""
        self._rent[block] += units

    def rent(self, block: int) -> int:
        """Units that queries have paid on a block."""
        return self._rent[block]

    def units(self, block: int) -> int:
        """Units that were bought of a block."""
        return self._units[block]

    def lacking(self, block: int, large: BaseRelease) -> BaseRelease:
        """What a block lacks of a larger release: tables whose weights make up for what it has less."""
        weights: dict[Components, float] = defaultdict(float)
        for table, step in self._tables.get(block) or ():
            weights[table] += float(grid_sigma(step)) ** -2
        wanted = {
            table: weight
            for table, step in large.tables
            if (weight := float(grid_sigma(step)) ** -2 - weights[table]) > 0.0
        }
        steps = step_below(np.array([*wanted.values()]) ** -0.5 * _TIE).tolist()
        return BaseRelease.of(zip(wanted, steps, strict=True), self._prices)

    def has_grown(self, block: int) -> bool:
        """Whether anything was bought of a block since it opened."""
        return self._grown[block] > 0

    def is_worth(self, block: int, growth: BaseRelease, rent: int, paid: float) -> bool:
        """Whether a block is to grow, where queries have paid ``rent`` units on it.

        Args:
            block: The block.
            growth: What it lacks.
            rent: Units that queries have paid on it.
            paid: The part of its price that they must have paid.
        """
        if not growth.tables or growth.units < _LEAST * self._units[block]:
            return False
        # Releases that were bought one after another add up to twice as much at most.
        together = (self._grown[block] + growth.units) / 2
        return rent >= paid * max(growth.units, together)


MANY_ASKED: Final = frozenset(round(50 * 1.5**k) for k in range(5))
"""The same for different queries while there is one phase. Refusals are among them."""


def is_time(before: int, rent: int) -> bool:
    """Whether it is to be looked what to buy, where queries have paid ``rent`` and had paid ``before``."""
    return bisect_right(_CHECKS, before) < bisect_right(_CHECKS, rent)


_TIE: Final = 1.0 + 1e-9
