"""Quantiles lie in their bins as often as promised (docs/guarantee.md, Theorem 23).

Counts are chosen so that the two bars that decide are as tight as they can be: the rows up to the true bin
just reach the rank, and those before it just do not. Each run draws noise of its own. False alarms: each test
fails by chance with probability at most 1e-6. Noise that is 10% larger is noticed, and so is a copy that
takes the estimated number of rows for the true one.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binomtest

from stream_dp.core.outcome import Path
from stream_dp.core.parameters import Accuracy
from stream_dp.core.published.quantiles import hulls
from stream_dp.core.query import EVERYTHING, LinearQuery, Rank
from stream_dp.core.residual.answering import AnswerMaker
from stream_dp.core.residual.belief.evidence import Belief
from stream_dp.core.residual.belief.ranks import rank_forms

pytestmark = pytest.mark.slow

ALARM, BETA, SCALE, RUNS = 1e-6, 0.2, 40.0, 10_000
Counts = npt.NDArray[np.int64]


def tight(rank: float) -> tuple[Counts, int]:
    """Counts of two groups over 8 bins, and the true bin of each: its one row just reaches the rank."""
    n, place = 8_000, 2
    reached = round(rank * n)
    counts = np.zeros(8, dtype=np.int64)
    counts[:place] = [reached - 1 - 1_000, 1_000] if reached > 1_001 else [0, reached - 1]
    counts[place] = 1
    counts[-1] = n - reached
    return np.stack([counts, counts]), place


def misses(
    rank: float, *, total_known: bool, factor: float = 1.0, exact_total: bool = False
) -> int:
    """The number of runs in which the quantile of the first group is outside its bins."""
    counts, place = tight(rank)
    query = LinearQuery(EVERYTHING, range(1), (0,), rank=Rank(1, rank, tuple(range(8))))
    forms = rank_forms(query, counts.shape)
    draw, missed = np.random.default_rng(7), 0
    for _ in range(RUNS):
        belief = Belief(counts.shape, total_known=total_known)
        belief.open_block(int(counts.sum()))
        noise = np.rint(draw.normal(0.0, factor * SCALE, counts.shape))
        belief.absorb_table((0, 1), 0, counts + noise, SCALE**2, opening=True)
        maker = AnswerMaker(
            counts.shape, Accuracy(0.1, BETA), belief, lambda _: pytest.fail("unused")
        )
        found = belief.passed(query, forms)
        if exact_total:
            noisy = (counts + noise)[0]
            half = 1.2815515655446004 * SCALE * np.sqrt(np.arange(1, 8))
            values = np.cumsum(noisy)[:-1] - rank * noisy.sum()
            (first,), (last,) = hulls(values[None], half[None])
        else:
            cell = maker.quantiles(query, found, None, Path.CERTIFIED).cells[0]
            first, last = cell.first, cell.last
        missed += not first <= place <= last
    return missed


@pytest.mark.parametrize("total_known", [True, False])
@pytest.mark.parametrize("rank", [0.25, 0.5, 0.9])
def test_quantiles_lie_in_their_bins_as_often_as_promised(
    rank: float, *, total_known: bool
) -> None:
    missed = misses(rank, total_known=total_known)
    assert binomtest(missed, RUNS, BETA, "greater").pvalue > ALARM
    assert missed > 0.8 * BETA * RUNS, (
        "the counts are tight, so the bars could not be much narrower"
    )


def test_noise_that_is_larger_than_charged_is_noticed() -> None:
    missed = misses(0.5, total_known=False, factor=1.1)
    assert binomtest(missed, RUNS, BETA, "greater").pvalue < ALARM


def test_a_number_of_rows_that_is_taken_for_known_is_noticed() -> None:
    missed = misses(0.9, total_known=False, exact_total=True)
    assert binomtest(missed, RUNS, BETA, "greater").pvalue < ALARM
