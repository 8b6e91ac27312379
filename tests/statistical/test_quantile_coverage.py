"""Quantiles lie in their bins as often as promised (docs/proofs, Theorem 23).

The rows up to the true bin just reach the rank, and those before it just do not. So the two bars that decide
are as tight as they can be. Each run draws noise of its own. The quantile is missed if both of them fail to
the same side. How often that is follows from the normal law of two numbers. False alarms: each test fails by
chance with probability at most 1e-6. Noise that is 10% larger is noticed.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binomtest, multivariate_normal, norm

from stream_dp.core.budget.accountant import Budget
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.outcome import Path
from stream_dp.core.published.quantile import hulls, weights
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Rank
from stream_dp.core.residual.answers.quantile_answers import quantiles
from stream_dp.core.residual.belief.evidence import Belief
from stream_dp.core.residual.belief.rank_forms import rank_forms
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.plan.promise import Promise
from stream_dp.core.residual.public_state import PublicState

pytestmark = pytest.mark.slow

ALARM, BETA, SCALE, RUNS = 1e-6, 0.2, 40.0, 10_000
N_ROWS, BINS, PLACE = 8_000, 10, 4
Z = float(norm.isf(BETA / 2))
Floats = npt.NDArray[np.float64]


def tight(rank: float, bins: int = BINS, place: int = PLACE) -> Floats:
    """Counts of which the one row in the true bin just reaches the rank."""
    counts, reached = np.zeros(bins), round(rank * N_ROWS)
    counts[place - 1 : place + 2] = reached - 1, 1, N_ROWS - reached
    return counts


def law(rank: float, *, total_known: bool) -> float:
    """How often both bars fail to the same side."""
    rows = np.stack([weights(BINS, range(BINS), place, rank) for place in (PLACE - 1, PLACE)])
    if total_known:
        rows = rows - rows.mean(axis=1, keepdims=True)
    covariance = SCALE**2 * rows @ rows.T
    mean, bars = np.array([-1.0, 0.0]), Z * np.sqrt(np.diag(covariance))
    below = multivariate_normal(mean=mean, cov=covariance).cdf(-bars)
    above = multivariate_normal(mean=-mean, cov=covariance).cdf(-bars)
    return float(below + above)


def misses(rank: float, *, total_known: bool, factor: float = 1.0) -> int:
    """The number of runs in which the quantile is outside its bins."""
    counts = tight(rank)
    query = LinearQuery(EVERYTHING, range(1), rank=Rank(0, rank, tuple(range(BINS))))
    forms = rank_forms(query, (BINS,))
    draw, missed = np.random.default_rng(7), 0
    promise = Promise((BINS,), Budget.of(Privacy(1.0, 1e-9)), Accuracy(0.1, BETA))
    state = PublicState(promise, CalibratedSettings())
    for _ in range(RUNS):
        belief = Belief((BINS,), total_known=total_known)
        belief.open_block(N_ROWS)
        noise = np.rint(draw.normal(0.0, factor * SCALE, BINS))
        belief.absorb_table((0,), 0, counts + noise, SCALE**2)
        state.belief = belief
        found = belief.passed(query, forms)
        (cell,) = quantiles(state, query, found, None, Path.CERTIFIED).cells
        missed += not cell.first <= PLACE <= cell.last
    return missed


@pytest.mark.parametrize("total_known", [True, False])
@pytest.mark.parametrize("rank", [0.5, 0.9])
def test_quantiles_lie_in_their_bins_as_often_as_promised(
    rank: float, *, total_known: bool
) -> None:
    expected = law(rank, total_known=total_known)
    assert BETA / 2 < expected < BETA
    missed = misses(rank, total_known=total_known)
    assert binomtest(missed, RUNS, expected).pvalue > ALARM
    assert binomtest(missed, RUNS, BETA, "greater").pvalue > ALARM


def test_noise_that_is_larger_than_charged_is_noticed() -> None:
    missed = misses(0.5, total_known=False, factor=1.1)
    assert binomtest(missed, RUNS, law(0.5, total_known=False)).pvalue < ALARM


@pytest.mark.parametrize("known", [True, False])
def test_a_number_of_rows_that_is_taken_for_known_is_noticed(*, known: bool) -> None:
    """Bars of the rows up to each bin alone miss three times as often as promised. The right ones do not."""
    rank, bins, place = 0.9, 60, 5
    noise = np.random.default_rng(8).normal(0.0, SCALE, (RUNS, bins))
    forms = np.stack([weights(bins, range(bins), up_to, rank) for up_to in range(bins - 1)])
    alone = np.stack([weights(bins, range(bins), up_to, 0.0) for up_to in range(bins - 1)])
    values = (tight(rank, bins, place) + noise) @ forms.T
    of_bars = alone if known else forms
    bars = np.broadcast_to(Z * SCALE * np.linalg.norm(of_bars, axis=1), values.shape)
    first, last = hulls(values, bars)
    missed = int(np.count_nonzero((place < first) | (place > last)))
    assert bool(binomtest(missed, RUNS, BETA, "greater").pvalue < ALARM) is known
