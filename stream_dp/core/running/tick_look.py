"""The look of a tick: the counts of all ticks so far, added up and with noise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from stream_dp.core.budget.accountant import Charge
from stream_dp.core.encoding import Integers, fields, integers
from stream_dp.core.mechanism import Look
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.residual.looks.table_looks import FORMAT, exact_answers
from stream_dp.core.rows.blocks import Blocks
from stream_dp.core.running.running_plan import RunningPlan
from stream_dp.core.running.tick_counts import TickCounts

TICK: Final = 11
"""The kind of a measurement of running totals."""


def counts_of_tick(tiles: Sequence[LinearQuery], marginals: Sequence[Integers]) -> TickCounts:
    """The counts of the rows that came in a tick. Private.

    Args:
        tiles: The counts and tables that ticks are about.
        marginals: The exact counts of these rows over the attributes of each tile, ascending, int64.
    """
    found = zip(tiles, marginals, strict=True)
    return TickCounts(tuple(exact_answers(tile, tile.attributes, counts) for tile, counts in found))


@dataclass(frozen=True, slots=True)
class TickLook(Look):
    """Looks at the rows of an open period that have come by one of its ticks.

    The period pays for all its ticks with the first one, and its block pays when it is sealed. So a tick by
    itself charges nothing: ``RunningPlan`` has the price.

    Attributes:
        plan: How the running totals of the period are measured.
        period: The number of the period.
        tick: The number of the tick, from 1.
    """

    plan: RunningPlan
    period: int
    tick: int
    charges: tuple[Charge, ...] = ()

    @property
    def reads_waiting(self) -> bool:
        return True

    @property
    def description(self) -> dict[str, object]:
        return {
            "kind": "tick",
            "period": self.period,
            "tick": self.tick,
            "step": self.plan.step,
        }

    def reserve(self, noise: NoiseSource) -> None:
        noise.reserve("gaussian", self.plan.sigma, sum(self.plan.sizes))

    def take(self, noise: NoiseSource, data: Blocks) -> TickRelease:
        row, found = self.plan.factor.row(self.tick), []
        ticks = data.ticks[self.period][: self.tick]
        for number, size in enumerate(self.plan.sizes):
            counts = np.array([tick.tables[number] for tick in ticks])
            found.append(row @ counts + noise.gaussian(self.plan.sigma, size))
        return TickRelease(self.period, self.tick, tuple(found))


@dataclass(frozen=True, slots=True, eq=False)
class TickRelease:
    """What a tick has published.

    Attributes:
        period: The number of the period.
        tick: The number of the tick, from 1.
        tables: A weighted sum of the counts of all ticks so far with noise, int64, shape (n_answers,) of each
            tile.
    """

    period: int
    tick: int
    tables: tuple[Integers, ...] = field(repr=False)

    def to_bytes(self) -> bytes:
        sizes = [len(table) for table in self.tables]
        return FORMAT.pack(
            fields("<BIIH", TICK, self.period, self.tick, len(sizes)),
            fields(f"<{len(sizes)}I", *sizes),
            *map(integers, self.tables),
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> TickRelease:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: The bytes do not decode.
        """
        reader = FORMAT.read(data)
        kind, period, tick, n_tiles = reader.fields("<BIIH")
        reader.require(kind == TICK, "is of an unknown kind")
        sizes = reader.fields(f"<{n_tiles}I")
        tables = tuple(reader.integers(size) for size in sizes)
        reader.end()
        return cls(period, tick, tables)
