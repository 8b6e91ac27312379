"""How precise the running totals of a period are, and what they cost: docs/proofs, Theorem 36."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from stream_dp.core.budget.accountant import UNITS, gaussian_rho
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.randomness.noise_sources import GRID_STEPS, MIN_SCALE, grid_index, grid_sigma
from stream_dp.core.residual.belief.bounds import two_sided
from stream_dp.core.residual.plan.promise import Promise
from stream_dp.core.running.tick_factor import MOST_TICKS, TickFactor, factor_of
from stream_dp.errors import InvalidDefinition

MOST_NUMBERS: Final = 2**20
"""Most numbers that the ticks of a period publish together."""

MOST_SHARE: Final = 0.45
"""The largest share of a line that running totals may take."""

_FIELD: Final = "running"
_NEXT_STEP: Final = 2.0 ** (1.5 / GRID_STEPS)
"""More than what a scale loses as it is rounded down to the grid."""


@dataclass(frozen=True)
class RunningPlan:
    """How the running totals of one period are measured. It is public.

    Attributes:
        promise: What is promised for each row and for each answer.
        tiles: The counts and tables that ticks are about. Their windows do not count.
        step: The step of the public grid of scales.
        factor: How ticks add up what came before them.
    """

    promise: Promise
    tiles: tuple[LinearQuery, ...]
    step: int
    factor: TickFactor = field(repr=False)

    @classmethod
    def within(
        cls, rows: float, promise: Promise, tiles: Sequence[LinearQuery], ticks: int
    ) -> RunningPlan:
        """The cheapest plan of the grid whose totals all have bars within a number of rows.

        Args:
            rows: The largest bar, in rows; positive.
            promise: What is promised. Its failure probability is that of each bar.
            tiles: The counts and tables.
            ticks: The ticks of the period.

        Raises:
            InvalidDefinition: Persons are protected for life, there are more ticks or numbers than a period
                can have, or all totals together take too much of a line.
        """
        unit = promise.budget.privacy.unit
        if unit is not None and unit.lifetime:
            raise InvalidDefinition(
                _FIELD,
                "is not possible where persons are protected for life",
                "leave it out, or protect persons for a number of phases",
            )
        if ticks > MOST_TICKS:
            raise InvalidDefinition(
                _FIELD,
                f"has {ticks:,} ticks in a period, and {MOST_TICKS:,} are the most",
                "let ticks come less often",
            )
        factor = factor_of(ticks)
        sigma = rows / (promise.z * math.sqrt(float(factor.variances.max())))
        # What is below all scales costs far more than a line, and is refused below.
        step = grid_index(max(sigma, float(MIN_SCALE)))
        plan = cls(promise, tuple(tiles), step, factor)
        if (numbers := ticks * sum(plan.sizes)) > MOST_NUMBERS:
            raise InvalidDefinition(
                _FIELD,
                f"would publish {numbers:,} numbers in a period, and {MOST_NUMBERS:,} are the most",
                "let ticks come less often, or name fewer or smaller tiles",
            )
        if plan.units > MOST_SHARE * UNITS:
            share, widest = plan.units / UNITS, max(map(plan.bar, range(1, ticks + 1)))
            enough = math.ceil(_NEXT_STEP * widest * math.sqrt(share / MOST_SHARE))
            raise InvalidDefinition(
                _FIELD,
                f"{ticks:,} totals within {rows:g} rows take {share:,.1%} of each line, and "
                f"{MOST_SHARE:.0%} is the most",
                f"allow {enough:,} rows in within_rows, let ticks come less often, or name fewer tiles",
            )
        return plan

    @property
    def sizes(self) -> tuple[int, ...]:
        """The answers of each tile."""
        shape = self.promise.shape
        return tuple(math.prod(shape[a] for a in tile.group_by) for tile in self.tiles)

    @property
    def sigma(self) -> Fraction:
        """The scale of the noise on each number that a tick publishes."""
        return grid_sigma(self.step)

    @property
    def description(self) -> dict[str, object]:
        """Public facts from which the price follows, JSON-ready."""
        return {
            "ticks": self.factor.ticks,
            "step": self.step,
            "tiles": [
                {
                    "predicate": tile.predicate.key.hex(),
                    "attributes": list(tile.attributes),
                    "group_by": list(tile.group_by),
                    "answers": size,
                }
                for tile, size in zip(self.tiles, self.sizes, strict=True)
            ],
        }

    # ------------------------------------------------------------ prices

    @property
    def rho(self) -> Fraction:
        """The loss of one row, or of a person with one row that counts, by all ticks together."""
        return self._rho(self.factor.column_square)

    @property
    def units(self) -> int:
        """Units of a line that all ticks of the period cost together."""
        return self.promise.prices.of(self.rho)

    def units_again(self, tick: int) -> int:
        """Units that a tick costs besides if it is taken again, because a crash lost what it found."""
        return self.promise.prices.of(self._rho(int(self.factor.row(tick)[-1]) ** 2))

    def _rho(self, square: int) -> Fraction:
        """The loss where a row that comes moves a count by a vector of this squared length."""
        squares = [self.promise.prices.squared_sensitivity(size) for size in self.sizes]
        return gaussian_rho(self.sigma, squared_sensitivity=square * sum(squares))

    # ------------------------------------------------------------ bars

    def variance(self, tick: int, after: int = 0) -> float:
        """The variance of each count of the rows that came after one tick and until another.

        Args:
            tick: The last tick.
            after: The tick behind which the rows came. By default it is the running total.
        """
        return float(self.sigma) ** 2 * self.factor.variance(tick, after)

    def bar(self, tick: int, after: int = 0) -> float:
        """The bar of one such count, in rows."""
        return self.promise.z * math.sqrt(self.variance(tick, after))

    def bar_all_ticks(self, tick: int) -> float:
        """The bar of the running total at a tick, in rows, where all ticks' bars hold at once."""
        z = two_sided(math.log(self.promise.failure / self.factor.ticks))
        return z * math.sqrt(self.variance(tick))
