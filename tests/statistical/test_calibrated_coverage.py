"""The calibrated profile's error bars against the noise that is really drawn.

Every sealed block is one trial: a new block brings a fresh line and fresh noise, and a query on one
block touches nothing else. The noise is exact (a second implementation of the sampler, seeded). False
alarms: each test fails by chance with probability at most 1e-6; beside it stands one that shows that
noise of a scale 10% larger than the one charged for is noticed.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binomtest, chi2, norm

from stream_dp.core.budget.parameters import Privacy
from stream_dp.core.outcome import Path
from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.residual.belief.linear_forms import table
from tests.core.residual.host import ALARM, Host, names, sealed, where
from tests.noise import FakeNoise, SeededNoise

SIZES = (3, 4, 2)
N_ROWS = 500
N_BLOCKS = 2500
BETA = 0.2


class Scaled(FakeNoise):
    """Noise of another scale than the one asked for."""

    def __init__(self, noise: NoiseSource, factor: float) -> None:
        self._noise = noise
        self._factor = factor

    def gaussian(self, sigma: Fraction, size: int) -> npt.NDArray[np.int64]:
        return self._noise.gaussian(Fraction(self._factor * float(sigma)), size)


class Trials(Host):
    """A data set of many blocks with the same rows, asked block by block."""

    def __init__(
        self,
        noise: NoiseSource,
        *,
        n_blocks: int = N_BLOCKS,
        epsilon: float = 20.0,
        sizes: tuple[int, ...] = SIZES,
        **settings: Any,
    ) -> None:
        rng, universe = np.random.default_rng(1), names(*sizes)
        block = sealed(universe, *((n * rng.random(N_ROWS) ** 1.5).astype(int) for n in sizes))
        settings |= {"beta": BETA, "privacy": Privacy(epsilon, 1e-6), "pacing": False}
        super().__init__(universe, *[block] * n_blocks, noise=noise, **settings)

    def about(
        self,
        predicate: Predicate,
        block: int,
        group_by: tuple[int, ...] = (),
        *,
        fresh: bool = False,
    ) -> Any:
        """The answer about one block."""
        return self.ask(LinearQuery(predicate, range(block, block + 1), group_by, fresh=fresh))

    def truth(self, predicate: Predicate) -> int:
        (table,) = self.data.marginal(predicate.attributes, range(1))
        return int(np.where(predicate.mask, table, 0).sum())

    def deviations(self, predicate: Predicate, path: Path) -> npt.NDArray[np.float64]:
        """Errors in units of the published error bar, one a block whose answer took ``path``."""
        truth = self.truth(predicate)
        found = []
        for block in range(len(self.data)):
            answer = self.about(predicate, block)
            assert 0.0 < answer.count < N_ROWS, "nothing was clipped"
            if answer.path is path:
                found.append((answer.count - truth) / (answer.error_bar * N_ROWS))
        return np.array(found)


def predicates() -> dict[str, Predicate]:
    rng = np.random.default_rng(4)
    nearly_all = np.ones(SIZES, dtype=np.bool_)
    nearly_all[0, 0, 0] = False
    return {
        "one attribute": where(SIZES, {1: [1, 2]}),
        "one cell": where(SIZES, {0: [0], 1: [0], 2: [0]}),
        "half of each": where(SIZES, {0: [0, 1], 1: [0, 3]}),
        "all cells but one": Predicate.of_mask((0, 1, 2), nearly_all),
        "any mask": Predicate.of_mask((0, 1, 2), rng.random(SIZES) < 0.6),
    }


def too_large(deviations: npt.NDArray[np.float64]) -> float:
    """p-value of deviations as large as these, were they normal as published."""
    return float(chi2.sf(np.square(deviations).sum(), len(deviations)))


def too_small(deviations: npt.NDArray[np.float64]) -> float:
    return float(chi2.cdf(np.square(deviations).sum(), len(deviations)))


@pytest.fixture(scope="module")
def certified() -> dict[float, Trials]:
    return {}


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1.1], ids=["honest", "10% more noise"])
@pytest.mark.parametrize("name", list(predicates()))
def test_certified_answers_miss_their_bars_as_often_as_promised(
    name: str, scale: float, certified: dict[float, Trials]
) -> None:
    if scale not in certified:
        noise = Scaled(SeededNoise(round(100 * scale)), scale)
        certified[scale] = Trials(noise, error=0.3, base_share=0.5)
    bars = certified[scale].deviations(predicates()[name], Path.CERTIFIED)
    assert len(bars) == N_BLOCKS
    deviations = bars * norm.isf(BETA / 2)
    if scale == 1.0:
        assert too_large(deviations) > ALARM
        assert too_small(deviations) > ALARM
        missed = int((np.abs(bars) > 1.0).sum())
        assert binomtest(missed, N_BLOCKS, BETA).pvalue > ALARM
    else:
        assert too_large(deviations) < ALARM


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1.1], ids=["honest", "10% more noise"])
@pytest.mark.parametrize("base_share", [0.0, 0.02], ids=["from nothing", "on top of tables"])
def test_measured_answers_are_off_by_their_variance_and_miss_no_more_often_than_promised(
    scale: float, base_share: float
) -> None:
    """The bar is the error that was promised, which also covers those who choose what is measured."""
    noise = Scaled(SeededNoise(round(10 * scale)), scale)
    trials = Trials(noise, error=0.03, base_share=base_share, epsilon=8.0)
    predicate = predicates()["half of each"]
    bars = trials.deviations(predicate, Path.MEASURED)
    assert len(bars) > 0.9 * N_BLOCKS
    query = LinearQuery(predicate, range(N_BLOCKS - 1, N_BLOCKS))
    (variance,) = trials.mechanism.state.evidence(query).variances.tolist()
    deviations = bars * 0.03 * N_ROWS / math.sqrt(variance)
    if scale == 1.0:
        assert too_large(deviations) > ALARM
        missed = int((np.abs(bars) > 1.0).sum())
        assert binomtest(missed, len(bars), BETA, alternative="greater").pvalue > ALARM
    else:
        assert too_large(deviations) < ALARM


def test_each_cell_of_a_table_is_covered_as_often_as_promised() -> None:
    trials = Trials(SeededNoise(5), error=0.03, base_share=0.0, epsilon=8.0, n_blocks=600)
    condition = where(SIZES, {1: [0, 1]})
    truths = [trials.truth(where(SIZES, {0: [v], 1: [0, 1]})) for v in range(3)]
    missed = np.zeros(3)
    for block in range(600):
        table = trials.about(condition, block, (0,))
        for v, cell in enumerate(table.cells):
            missed[v] += abs(cell.count - truths[v]) > cell.error_bar * N_ROWS
    for m in missed:
        assert binomtest(int(m), 600, BETA, alternative="greater").pvalue > ALARM


@pytest.mark.slow
def test_bounded_answers_are_off_no_more_often_than_their_share_of_beta() -> None:
    """A rare conjunction on wide data, where only pairs are published when a phase opens."""
    wide = (4, 4, 3, *[2] * 13)
    noise = SeededNoise(6)
    trials = Trials(noise, error=0.05, base_share=0.4, n_blocks=500, sizes=wide)
    rare = where(wide, {0: [3], 1: [3], 2: [2]})
    truth, n_bounded, off = trials.truth(rare), 0, 0
    for block in range(500):
        answer = trials.about(rare, block)
        if answer.path is Path.BOUNDED:
            n_bounded += 1
            assert answer.error_bar <= 0.05 * (1 + 1e-6)
            off += abs(answer.count - truth) > answer.error_bar * N_ROWS
    assert n_bounded > 250
    assert binomtest(off, 500, BETA / 5, alternative="greater").pvalue > ALARM


def test_simultaneous_bars_hold_against_whoever_picks_the_worst_conjunction() -> None:
    """The ordinary bar does not, and does not claim to."""
    n_blocks = 300
    trials = Trials(SeededNoise(7), error=0.3, base_share=0.5, n_blocks=n_blocks)
    every = [
        Predicate.conjunction({0: np.array(a, dtype=bool), 1: np.array(b, dtype=bool)})
        for a in np.ndindex(2, 2, 2)
        for b in np.ndindex(2, 2, 2, 2)
        if 0 < sum(a) < 3 and 0 < sum(b) < 4
    ]
    truths = [trials.truth(predicate) for predicate in every]
    beyond_ordinary = beyond_simultaneous = 0
    for block in range(n_blocks):
        worst_ordinary = worst_simultaneous = 0.0
        for predicate, truth in zip(every, truths, strict=True):
            answer = trials.about(predicate, block)
            off = abs(answer.count - truth) / N_ROWS
            worst_ordinary = max(worst_ordinary, off / answer.error_bar)
            worst_simultaneous = max(worst_simultaneous, off / answer.error_bar_simultaneous)
        beyond_ordinary += worst_ordinary > 1.0
        beyond_simultaneous += worst_simultaneous > 1.0
    assert binomtest(beyond_simultaneous, n_blocks, BETA, alternative="greater").pvalue > ALARM
    assert beyond_ordinary > 0.6 * n_blocks


def test_the_chi_type_bar_holds_for_every_mask_at_once() -> None:
    """The worst of all masks over two attributes: the cells that noise pushed up."""
    n_blocks = 300
    trials = Trials(SeededNoise(8), error=0.3, base_share=0.5, n_blocks=n_blocks)
    (counts,) = trials.data.marginal((0, 1), range(1))
    cells = [where(SIZES, {0: [a], 1: [b]}) for a, b in np.ndindex(3, 4)]
    beyond = tried = 0
    for block in range(n_blocks):
        published = [trials.about(cell, block) for cell in cells]
        above = np.array([p.count > c for p, c in zip(published, counts.ravel(), strict=True)])
        worst = Predicate.of_mask((0, 1), above.reshape(3, 4))
        if worst.factors is not None:
            continue
        tried += 1
        answer = trials.about(worst, block)
        beyond += abs(answer.count - trials.truth(worst)) > answer.error_bar_simultaneous * N_ROWS
    assert tried > 0.5 * n_blocks
    assert binomtest(beyond, tried, BETA, alternative="greater").pvalue > ALARM


@pytest.mark.slow
@pytest.mark.parametrize("scale", [1.0, 1.1], ids=["honest", "10% more noise"])
def test_a_fresh_answer_covers_a_query_that_was_composed_from_the_noise_of_others(
    scale: float,
) -> None:
    """The cells that noise pushed up: the same query without fresh is the broken copy, and misses."""
    n_blocks = 3_000
    noise = Scaled(SeededNoise(round(9 * scale)), scale)
    trials = Trials(noise, error=0.03, base_share=0.002, epsilon=8.0, n_blocks=n_blocks)
    (counts,) = trials.data.marginal((0, 1), range(1))
    fresh, plain = [], []
    for block in range(n_blocks):
        published = trials.mechanism.state.belief.tables.view((0, 1), range(block, block + 1))
        above = table(published.spectrum, axes=range(2)) > counts
        if above.all() or not above.any():
            continue
        worst = Predicate.of_mask((0, 1), above)
        evidence = trials.mechanism.state.evidence(LinearQuery(worst, range(block, block + 1)))
        of_tables = norm.isf(BETA / 2) * np.sqrt(evidence.variances.item())
        plain.append(abs(evidence.values.item() - trials.truth(worst)) > of_tables)
        answer = trials.about(worst, block, fresh=True)
        if 0.0 < answer.count < N_ROWS:
            bar = answer.error_bar * N_ROWS / norm.isf(BETA / 2)
            fresh.append((answer.count - trials.truth(worst)) / bar)
    assert len(fresh) > 0.9 * n_blocks
    deviations = np.array(fresh)
    if scale == 1.0:
        assert too_large(deviations) > ALARM
        assert too_small(deviations) > ALARM
        assert binomtest(sum(plain), len(plain), BETA, alternative="greater").pvalue < ALARM
    else:
        assert too_large(deviations) < ALARM
