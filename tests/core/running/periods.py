"""Periods with running totals, tick by tick, as a worker would take them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.accountant import Budget
from stream_dp.core.budget.parameters import Accuracy, Privacy, Unit
from stream_dp.core.queries.query import EVERYTHING, LinearQuery
from stream_dp.core.residual.plan.promise import Promise
from stream_dp.core.rows.blocks import Blocks
from stream_dp.core.running.running_plan import RunningPlan
from stream_dp.core.running.running_totals import RunningTotals
from stream_dp.core.running.tick_counts import TickCounts
from stream_dp.core.running.tick_factor import TickFactor, factor_of
from stream_dp.core.running.tick_look import TickLook, TickRelease
from tests.core.residual.host import where
from tests.noise import FakeNoise, ScriptedNoise

Ints = npt.NDArray[np.int64]

SIZES = (4, 3)
STATUS = LinearQuery(EVERYTHING, range(1), (0,))
BOTH = LinearQuery(EVERYTHING, range(1), (1, 0))
"""A table by both attributes, the second one first."""
PAID = LinearQuery(where(SIZES, {0: [0]}), range(1))

SMALL = np.array([[4, 0, 0], [2, 4, 0], [2, 2, 5]])
"""A factor of three ticks with few numbers, so that all histories can be gone through."""


def promise(unit: Unit | None = None, sizes: tuple[int, ...] = SIZES) -> Promise:
    return Promise(sizes, Budget.of(Privacy(1.0, 1e-9, unit)), Accuracy(0.02, 0.01))


def plan_of(
    *tiles: LinearQuery, ticks: int | Ints = 3, step: int = 64, unit: Unit | None = None
) -> RunningPlan:
    """A plan with a scale of 2^(step / 32)."""
    factor = factor_of(ticks) if isinstance(ticks, int) else TickFactor(ticks)
    return RunningPlan(promise(unit), tiles, step, factor)


class Draws(FakeNoise):
    """Gaussian draws that are written down, one after another."""

    def __init__(self, *draws: int) -> None:
        self._draws = list(draws)

    def gaussian(self, sigma: Any, size: int) -> Ints:
        taken, self._draws = self._draws[:size], self._draws[size:]
        return np.array(taken, dtype=np.int64)


def a_period(
    plan: RunningPlan,
    rows_of: Callable[[RunningTotals], Sequence[npt.ArrayLike]],
    noise: Any = None,
) -> tuple[RunningTotals, list[TickRelease]]:
    """All ticks of a period.

    Args:
        plan: How they are measured.
        rows_of: Returns the exact counts of the next tick for each tile, from what was published.
        noise: By default there is none.
    """
    data, totals, found = Blocks(lambda _: SIZES), RunningTotals(plan), []
    noise = ScriptedNoise() if noise is None else noise
    data.ticks[7] = []
    for tick in range(1, plan.factor.ticks + 1):
        look = TickLook(plan, 7, tick)
        look.check(data)
        look.reserve(noise)
        counts = TickCounts(tuple(np.asarray(one, dtype=np.int64) for one in rows_of(totals)))
        data.ticks[7].append(counts)
        release = TickRelease.from_bytes(look.take(noise, data).to_bytes())
        totals.absorb(release)
        found.append(release)
    return totals, found


def published(plan: RunningPlan, counts: Ints) -> Ints:
    """What the ticks of a period publish without noise, shape (ticks, answers), of one tile.

    Args:
        plan: How they are measured.
        counts: The exact counts of each tick, shape (ticks, answers).
    """
    _, found = a_period(plan, lambda totals: [counts[totals.tick]])
    return np.array([release.tables[0] for release in found])


def lower_bound(ticks: int) -> float:
    """No factors cost fewer counts than this (docs/proofs, Theorem 36 (e)); any unit weights give a bound."""
    place = np.arange(ticks)
    weights = (place + 1.0) ** 0.07 * (ticks - place) ** -0.11
    weights /= np.linalg.norm(weights)
    triangle = weights[:, None] * np.tri(ticks) * weights[::-1]
    return float(np.linalg.svd(triangle, compute_uv=False).sum() ** 2)
