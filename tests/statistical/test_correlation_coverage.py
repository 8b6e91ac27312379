"""Correlations lie within their ends as often as promised, in 10,000 runs each (Theorem 32).

The promise is a union over five events, so the ends miss far less often than they may. The one event that is
tight is the bar of the products. False alarms: each test fails by chance with probability at most 1e-6.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from stream_dp.core.budget.parameters import Aim
from stream_dp.core.mechanism import Look
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Product
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.residual.looks.sum_look import SumLook
from stream_dp.core.rows.attributes import Category
from stream_dp.core.rows.universe import Universe
from tests.core.residual.host import ALARM, sealed
from tests.noise import QuickNoise
from tests.statistical.lives import BETA, RUNS, Lives

pytestmark = pytest.mark.slow

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


class Loud(Lives):
    """Lives in which looks at sums have more noise than they say."""

    louder = QuickNoise(6, 8.0)

    def source(self, look: Look) -> NoiseSource:
        return self.louder if isinstance(getattr(look, "look", None), SumLook) else self.noise


def misses(lives: type[Lives], *, base_share: float | None, runs: int = RUNS) -> int:
    """The number of runs whose ends leave the correlation out."""
    cells = np.repeat(np.arange(TABLE.size), TABLE.ravel())
    block = sealed(UNIVERSE, *np.unravel_index(cells, TABLE.shape))
    settings = {"base_share": base_share, "aim": Aim(0.4, 0.5, 0.9, 0.9, 0.9)}
    found = lives(UNIVERSE, block, noise=5, error=0.1, **settings).lives(QUERY, runs=runs)
    ends = (one.cells[0].mean_ends or (-1.0, 1.0) for one in found)
    return sum(not low <= truth() <= high for low, high in ends)


@pytest.mark.parametrize("base_share", [0.0, None])
def test_correlations_lie_within_their_ends_as_often_as_promised(base_share: float | None) -> None:
    missed = misses(Lives, base_share=base_share)
    assert binomtest(missed, RUNS, BETA, "greater").pvalue > ALARM


def test_with_far_more_noise_than_is_said_they_do_not() -> None:
    missed = misses(Loud, base_share=None, runs=1_000)
    assert binomtest(missed, 1_000, BETA, "greater").pvalue < ALARM
