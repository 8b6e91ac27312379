"""Correlations lie within their ends as often as promised, in 10,000 runs each (Theorem 32).

The promise is a union over five events, so the ends miss far less often than they may. The one event that is
tight is the bar of the products. False alarms: each test fails by chance with probability at most 1e-6.
"""

from __future__ import annotations

from copy import deepcopy

import numpy as np
import pytest
from scipy.stats import binomtest

from stream_dp.core.budget.parameters import Accuracy, Aim, Privacy
from stream_dp.core.mechanism import Look
from stream_dp.core.outcome import Summed
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Product
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.looks.sum_look import SumLook
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.universe import Category, Rows, Universe
from tests.noise import FakeNoise, QuickNoise, RoundedNoise

pytestmark = pytest.mark.slow

ALARM, BETA, RUNS = 1e-6, 0.2, 10_000
UNIVERSE = Universe(
    (
        Category("x", ("a", "b", "c", "d"), other=False, ordered=True),
        Category("y", ("a", "b", "c"), other=False, ordered=True),
    )
)
X, Y = np.array([0.0, 1, 2, 4]), np.array([0.0, 1, 3])
TABLE = np.array([[1800, 1200, 100], [1200, 2600, 700], [300, 1500, 1600], [50, 200, 800]])
QUERY = LinearQuery(EVERYTHING, range(1), (), Product((0, 1), (tuple(X), tuple(Y))))


def truth() -> float:
    rows = TABLE.sum()
    u, v = X - TABLE.sum(axis=1) @ X / rows, Y - TABLE.sum(axis=0) @ Y / rows
    squares = (TABLE.sum(axis=1) @ u**2) * (TABLE.sum(axis=0) @ v**2)
    return float(u @ TABLE @ v / np.sqrt(squares))


def misses(
    query: LinearQuery, *, base_share: float | None, factor: float = 1.0, runs: int = RUNS
) -> int:
    """The number of runs whose ends leave the correlation out, with the noise of looks this much larger."""
    aim = Aim(0.4, 0.5, 0.9, 0.9, 0.9)
    start = Calibrated(
        UNIVERSE,
        Privacy(1.0, 1e-9),
        Accuracy(0.1, BETA),
        CalibratedSettings(base_share=base_share, aim=aim),
    )
    cells = np.repeat(np.arange(TABLE.size), TABLE.ravel())
    codes = tuple(code.astype(np.uint8) for code in np.unravel_index(cells, TABLE.shape))
    data = Blocks(UNIVERSE)
    data.append(Block.seal(UNIVERSE, Rows(codes, None)))
    opening, noise, is_like, missed = (
        list(start.open_phase(len(cells))),
        RoundedNoise(5),
        truth(),
        0,
    )
    loud: FakeNoise = noise if factor == 1.0 else QuickNoise(6, factor)
    for _ in range(runs):
        mechanism = deepcopy(start)
        for look in opening:
            mechanism.charged(look.charges)
            mechanism.absorb(look.take(noise, data))
        step = mechanism.answer(query)
        while isinstance(step, Look):
            mechanism.charged(step.charges)
            release = step.take(
                loud if isinstance(getattr(step, "look", None), SumLook) else noise, data
            )
            mechanism.absorb(release)
            step = mechanism.conclude(query, step, release)
        assert isinstance(step, Summed)
        low, high = step.cells[0].mean_ends or (-1.0, 1.0)
        missed += not low <= is_like <= high
    return missed


@pytest.mark.parametrize("base_share", [0.0, None])
def test_correlations_lie_within_their_ends_as_often_as_promised(base_share: float | None) -> None:
    missed = misses(QUERY, base_share=base_share)
    assert binomtest(missed, RUNS, BETA, "greater").pvalue > ALARM


def test_with_far_more_noise_than_is_said_they_do_not() -> None:
    missed = misses(QUERY, base_share=None, factor=8.0, runs=1_000)
    assert binomtest(missed, 1_000, BETA, "greater").pvalue < ALARM
