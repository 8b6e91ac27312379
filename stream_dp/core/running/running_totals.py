"""The running totals of a period, from what its ticks have published: docs/proofs, Theorem 36."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from stream_dp.core.encoding import Integers
from stream_dp.core.residual.belief.linear_forms import Floats
from stream_dp.core.running.running_plan import RunningPlan
from stream_dp.core.running.tick_look import TickRelease


class TickEstimate(NamedTuple):
    """Estimates of the counts of a tile.

    Attributes:
        values: The counts, in rows, in the order of the tile's answers, shape (n_answers,).
        variance: The variance of the independent noise on each.
    """

    values: Floats
    variance: float


class RunningTotals:
    """What is publicly known of a period: a fold over its ticks.

    Args:
        plan: How its running totals are measured.

    Attributes:
        tick: The newest tick, from 1; 0 before the first.
    """

    def __init__(self, plan: RunningPlan) -> None:
        self.plan = plan
        self.tick = 0
        self._published: list[list[Integers]] = [[] for _ in plan.tiles]

    def absorb(self, release: TickRelease) -> None:
        """Folds in the next tick."""
        assert release.tick == self.tick + 1, "ticks come one after the other"
        self.tick = release.tick
        for published, table in zip(self._published, release.tables, strict=True):
            published.append(table)

    def counts(self, tile: int, tick: int, after: int = 0) -> TickEstimate:
        """The rows of a tile that came after one tick and until another.

        Args:
            tile: The number of the tile, from 0.
            tick: The last tick, at most the newest one.
            after: The tick behind which the rows came. By default it is the running total.
        """
        weights = self.plan.factor.weights(tick, after)
        values = weights @ np.array(self._published[tile][:tick])
        return TickEstimate(values, self.plan.variance(tick, after))


def whole_periods(periods: Sequence[RunningTotals], tile: int) -> TickEstimate | None:
    """What the last ticks of the periods of a sealed block say of all its rows.

    This is one look at a tile of the block, and the only one: the noise of other ticks is not independent of
    it. None where persons are protected, of whom ticks count other rows.

    Args:
        periods: All periods whose rows are in the block. Each row came in a tick that was taken.
        tile: The number of the tile, from 0.
    """
    if any(one.tick == 0 or not one.plan.promise.total_known for one in periods):
        return None
    found = [one.counts(tile, one.tick) for one in periods]
    values = np.sum([each.values for each in found], axis=0)
    return TickEstimate(values, sum(each.variance for each in found))


def table_of(plan: RunningPlan, tile: int, values: Floats) -> Floats:
    """The counts of a tile without a condition as a table over its attributes, ascending.

    Args:
        plan: How running totals are measured.
        tile: The number of the tile, from 0.
        values: The counts in the order of the tile's answers, shape (n_answers,).
    """
    grouped = plan.tiles[tile].group_by
    shape = [plan.promise.shape[attribute] for attribute in grouped]
    return values.reshape(shape).transpose(np.argsort(grouped))
