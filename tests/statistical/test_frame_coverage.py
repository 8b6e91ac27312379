"""How often the bars of periods together miss: in 10,000 runs.

False alarms: each test fails by chance with probability at most 1e-6.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from stream_dp.core.budget.parameters import Aim
from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.rows.attributes import Category
from stream_dp.core.rows.universe import Universe
from stream_dp.pipeline.queries.windows import framed
from tests.core.residual.host import ALARM, sealed
from tests.statistical.lives import BETA, RUNS, Lives

PHASES = 3
_EACH = 4
"""Parts are asked one by one in every fourth life."""
TRUTH, N = 3_000, 20_000
UNIVERSE = Universe((Category("a", ("x", "y"), other=False),))
ARE_X = Predicate.conjunction({0: np.array([True, False])})
AIM = Aim(0.18, rough=0.27, easy_share=0.005, query_share=0.02)
"""The opening is about as precise as is aimed at of one phase, so that noise decides what is shown."""


class Series(Lives):
    """Many lives of a data set of some phases."""

    def __init__(self) -> None:
        block = sealed(UNIVERSE, np.repeat(np.arange(2), (TRUTH, N - TRUTH)))
        super().__init__(UNIVERSE, *[block] * PHASES, noise=7, base_share=0.0005, aim=AIM)

    def errors(self, windows: list[range]) -> list[tuple[float, float]]:
        """The error and the bar of the answer about each window, in rows; they are asked in one life."""
        found = self.life(*(LinearQuery(ARE_X, window) for window in windows))
        bars = (math.inf if one.error_bar is None else one.error_bar * one.n + 0.5 for one in found)
        truths = (TRUTH * len(window) for window in windows)
        return [
            (one.count - truth, bar) for one, truth, bar in zip(found, truths, bars, strict=True)
        ]


def run(runs: int) -> tuple[list[int], int, int]:
    """How often each point of a running sum missed, and sums of shown parts at the bars of two copies.

    The first copy puts bars of all shown parts together as if their errors were independent; the second adds
    them up.
    """
    series, alone = Series(), [range(p, p + 1) for p in range(PHASES)]
    points, together, added = [0] * PHASES, 0, 0
    total, squares, bars, n_parts = 0.0, 0.0, 0.0, 0
    for life in range(runs):
        for point, (error, bar) in enumerate(series.errors(framed(alone, "running"))):
            points[point] += abs(error) > bar
        if life % _EACH:
            continue
        for error, bar in series.errors(alone):
            total, squares, bars, n_parts = total + error, squares + bar**2, bars + bar, n_parts + 1
            if n_parts == 60:
                together += abs(total) > math.sqrt(squares)
                added += abs(total) > bars
                total, squares, bars, n_parts = 0.0, 0.0, 0.0, 0
    return points, together, added


@pytest.mark.slow
def test_each_point_of_a_running_sum_misses_as_seldom_as_promised_and_shown_parts_do_not_add_up() -> (
    None
):
    points, together, added = run(RUNS)
    assert max(points) <= binom.isf(ALARM, RUNS, BETA)
    n_sums = RUNS // _EACH * PHASES // 60
    # A copy that takes the errors of shown parts for independent misses far more often than it says.
    assert together > binom.isf(ALARM, n_sums, BETA)
    assert added <= binom.isf(ALARM, n_sums, BETA)


def test_a_few_runs_end() -> None:
    points, _, _ = run(3)
    assert max(points) <= 3
