"""Bars of counts and sums over two versions of the attributes, against noise (docs/proofs, Theorem 33).

Every data set is one trial, with noise of its own. False alarms: each test fails by chance with probability
at most 1e-6. Next to it stands one that shows that noise of a scale 10% larger, or a copy that shares split
bins out evenly, is noticed.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from functools import cache

import numpy as np
import pytest
from scipy.stats import binomtest

from stream_dp.core.budget.parameters import Target
from stream_dp.core.queries.query import EVERYTHING, LinearQuery
from stream_dp.core.residual.looks.composed_looks import JoinedLook
from tests.core.residual.host import ALARM
from tests.core.residual.versioned import NARROW, WIDE, Versioned, merging
from tests.noise import QuickNoise

pytestmark = pytest.mark.slow

TRIALS = 1_500
BETA = 0.2
Z = 1.2815515655446004
"""BETA in two sides of a normal law."""

CONDITIONS = {
    "an old value": {"city": [0]},
    "all but one": {"city": [1, 2, 3]},
    "a new value": {"city": [2]},
    "a new edge": {"age": [2, 3]},
    "two": {"city": [0], "age": [2, 3]},
    "a new attribute": {"vip": [1]},
}


def _misses(trials: int, factor: float, names: Collection[str]) -> dict[str, int]:
    """How often the estimate of each condition is further off than its bar."""
    found = dict.fromkeys(names, 0)
    for seed in range(trials):
        host = Versioned(1, 2_000, noise=QuickNoise(seed, factor), base_share=0.3, beta=BETA)
        for name in names:
            chosen = CONDITIONS[name]
            query = LinearQuery(host.where(**chosen), host.window)
            known = host.state.evidence(query)
            off = abs(known.values[0] - host.recorded(query)[0])
            found[name] += off > Z * math.sqrt(known.variances[0])
    return found


@cache
def _honest() -> dict[str, int]:
    return _misses(TRIALS, 1.0, CONDITIONS)


@pytest.mark.parametrize("name", CONDITIONS)
def test_bars_miss_as_often_as_they_say(name: str) -> None:
    assert binomtest(_honest()[name], TRIALS, BETA).pvalue > ALARM


def test_a_scale_that_is_a_tenth_larger_is_noticed() -> None:
    name, trials = "an old value", 4_000
    wrong = _misses(trials, 1.1, [name])[name]
    assert binomtest(wrong, trials, BETA, alternative="greater").pvalue < ALARM


def test_sharing_a_split_bin_out_evenly_is_noticed() -> None:
    """Half of the rows of the old bin are told to be in each part: far more misses than the bars say."""
    misses = 0
    for seed in range(200):
        host = Versioned(1, 2_000, noise=QuickNoise(seed), base_share=0.3, beta=BETA)
        query = LinearQuery(host.where(age=[2]), host.window)
        known = host.state.evidence(query)
        bin_of_old = LinearQuery(host.where(age=[1, 2]), range(1))
        shared = known.values[0] + 0.5 * host.state.evidence(bin_of_old).values[0]
        truth = sum(columns["age"].count(40) for columns in host.sent)
        misses += abs(shared - truth) > Z * math.sqrt(known.variances[0])
    assert binomtest(misses, 200, BETA, alternative="greater").pvalue < ALARM


def test_groups_miss_as_often_as_they_say() -> None:
    misses = np.zeros(4)
    for seed in range(500):
        host = Versioned(1, 2_000, noise=QuickNoise(seed), base_share=0.3, beta=BETA)
        query = LinearQuery(EVERYTHING, host.window, (host.index("city"),))
        known = host.state.evidence(query)
        off = np.abs(known.values - host.recorded(query))
        misses += off > Z * np.sqrt(known.variances)
    for cell in misses:
        assert binomtest(int(cell), 500, BETA).pvalue > ALARM / 4


def test_groups_of_merged_cells_miss_as_often_as_they_say() -> None:
    """After a look at them, and with what tables say of each cell."""
    misses = np.zeros(2)
    for seed in range(500):
        host, query = merging(0.1, n=2_000, noise=QuickNoise(seed), beta=BETA, error=0.02)
        looked = host.step(query)
        assert isinstance(looked, JoinedLook)
        host.ask(query)
        known = host.state.evidence(query)
        off = np.abs(known.values - host.recorded(query))
        misses += (off > Z * np.sqrt(known.variances))[[0, 2]]
    for cell in misses:
        assert binomtest(int(cell), 500, BETA).pvalue > ALARM / 2


# ---------------------------------------------------------------- sums

SUMS: dict[str, tuple[str, dict[str, list[int]], float]] = {
    "within two bounds": ("spent", {}, 0.0),
    "of some rows": ("spent", {"city": [0]}, 0.0),
    "of other bins": ("age", {}, 0.0),
    "of other bins, from tables": ("age", {"city": [0]}, 0.3),
}


def _sums_missed(trials: int, factor: float, name: str, wrong: float = 0.0) -> tuple[int, int]:
    """How often an answered total and mean are further off than their bars, with so much added."""
    attribute, chosen, share = SUMS[name]
    totals = means = 0
    for seed in range(trials):
        noise = QuickNoise(seed, factor)
        host = Versioned(1, 2_000, of=(NARROW, WIDE), noise=noise, base_share=share, beta=BETA)
        said = {"city": ["Bonn"]} if chosen else {}
        total, n = host.counted_for(attribute, said) + wrong, host.rows_that_say(said)
        query = host.sum_of(attribute, host.where(**chosen), target=Target(value=20_000.0))
        (cell,) = host.ask(query).cells
        totals += abs(cell.total - total) > cell.total_bar
        means += abs(cell.mean - total / n) > cell.mean_bar
    return totals, means


@pytest.mark.parametrize("name", SUMS)
def test_totals_and_means_miss_as_often_as_they_say(name: str) -> None:
    for misses in _sums_missed(TRIALS, 1.0, name):
        assert binomtest(misses, TRIALS, BETA).pvalue > ALARM / 2


def test_sums_with_a_scale_that_is_a_tenth_larger_are_noticed() -> None:
    misses, _ = _sums_missed(4_000, 1.1, "within two bounds")
    assert binomtest(misses, 4_000, BETA, alternative="greater").pvalue < ALARM


def test_old_values_within_the_bounds_of_today_are_noticed() -> None:
    """About 600 rows of the old phase say more than 100: as if they counted for 200, and not for 100."""
    misses, _ = _sums_missed(200, 1.0, "within two bounds", wrong=45_000.0)
    assert binomtest(misses, 200, BETA, alternative="greater").pvalue < ALARM
