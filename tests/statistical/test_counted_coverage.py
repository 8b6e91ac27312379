"""Bars and promises where it is private how many rows count, against noise (docs/proofs, Theorem 21).

Every block is one trial, with a line, a look at its rows and noise of its own. What is asked of one block
shares noise, so blocks are compared and not answers. False alarms: each test fails by chance with probability
at most 1e-6. Next to it stands one that shows that noise of a scale 10% larger, or a broken copy, is noticed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, Final, NamedTuple, TypeAlias
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binomtest, norm

from stream_dp.core.budget.parameters import Accuracy, Privacy, Unit
from stream_dp.core.outcome import Answered, Path, TableAnswered
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import NoiseSource, grid_index
from stream_dp.core.residual.belief.evidence import Belief
from stream_dp.core.residual.belief.linear_forms import form_of
from stream_dp.core.residual.looks.counted_rows import FAILURE, CountedRows, RowsRelease
from stream_dp.core.rows.blocks import Block
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.person_slots import DIGEST_BYTES, Slots
from tests.core.residual.host import ALARM, Host, cells, names
from tests.noise import QuickNoise

pytestmark = pytest.mark.slow

SIZES = (3, 4, 2)
Asked: TypeAlias = tuple[Predicate, tuple[int, ...]]
"""A condition, and the attributes to group by: one of both."""

TABLES: Final[tuple[Asked, ...]] = tuple((EVERYTHING, pair) for pair in ((0, 1), (0, 2), (1, 2)))
COUNTS: Final[tuple[Asked, ...]] = tuple(
    (Predicate.conjunction({attribute: np.arange(size) < size // 2}), ())
    for attribute, size in enumerate(SIZES)
)
BETA = 0.2

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


class Trials(Host):
    """A data set of many blocks with the same rows, of which about two thirds count."""

    def __init__(
        self,
        noise: NoiseSource,
        n_counted: int,
        *,
        n_blocks: int,
        epsilon: float,
        **settings: float,
    ) -> None:
        self.n_counted, n_slots = n_counted, n_counted * 3 // 2
        universe, rng = names(*SIZES), np.random.default_rng(1)
        columns = tuple((n * rng.random(n_slots) ** 1.1).astype(np.uint8) for n in SIZES)
        ranks = np.arange(n_slots, dtype=np.uint64)
        whose = Slots(np.ones((n_slots, DIGEST_BYTES), np.uint8), ranks)
        counted = np.arange(n_slots) < n_counted
        block = Block.seal(universe, Rows(columns, None, whose=whose), counted=counted)
        said: dict[str, Any] = {"beta": BETA, "privacy": Privacy(epsilon, 1e-6, Unit(1, 1))}
        super().__init__(universe, *[block] * n_blocks, noise=noise, **said | settings)

    def open(self, block: Block) -> None:
        super().open(block)
        for look in self.mechanism.opened():
            self.take(look)

    def about(self, block: int, asked: Asked) -> tuple[Answered, ...]:
        """The answers about one block; nothing if they are refused or have no promise."""
        predicate, group_by = asked
        step = self.ask(LinearQuery(predicate, range(block, block + 1), group_by))
        if not isinstance(step, Answered | TableAnswered) or step.path is Path.UNVERIFIED:
            return ()
        return cells(step)

    def truth(self, asked: Asked) -> Floats:
        predicate, group_by = asked
        (table,) = self.data.marginal(predicate.attributes or group_by, range(1))
        exact = table if group_by else table[predicate.mask].sum()
        return np.asarray(exact, dtype=np.float64).ravel()


class Found(NamedTuple):
    """Errors and bars of all answers, each of shape (blocks, answers)."""

    off: Floats
    bar: Floats
    share_off: Floats
    share_bar: Floats


def found(trials: Trials, asked: Sequence[Asked]) -> Found:
    """All answers about the blocks in which every query is answered with a promise."""
    truth = np.concatenate([trials.truth(one) for one in asked])
    rows = []
    for block in range(len(trials.data)):
        answers = [cell for one in asked for cell in trials.about(block, one)]
        if len(answers) < len(truth):
            continue
        for cell, exact in zip(answers, truth, strict=True):
            assert cell.error_bar is not None
            assert cell.among is not None
            share, share_bar = cell.among.share, cell.among.share_bar
            share_off = math.nan if share is None else share - exact / trials.n_counted
            bars = cell.error_bar * cell.n, math.inf if share_bar is None else share_bar
            rows.append((cell.count - exact, bars[0], share_off, bars[1]))
    columns = np.array(rows).reshape(-1, len(truth), 4)
    return Found(*np.moveaxis(columns, -1, 0))


def more_often(missed: Bools, than: float) -> float:
    """p-value of so many misses, shape (blocks, answers), where each has at most this probability."""
    each = missed.mean(axis=1)
    return float(norm.sf((each.mean() - than) / (each.std() / math.sqrt(len(each)))))


@cache
def certified(factor: float) -> Found:
    """Answers from tables that were published when their phase opened: at least 100,000 of them."""
    noise = QuickNoise(5, factor)
    trials = Trials(noise, 1200, n_blocks=4000, epsilon=8.0, error=0.3, base_share=0.5)
    return found(trials, TABLES)


@cache
def measured(factor: float) -> Found:
    """Answers from tables that were measured just as precisely as was promised: at least 100,000 of them."""
    noise = QuickNoise(6, factor)
    trials = Trials(noise, 1200, n_blocks=4000, epsilon=8.0, error=ERROR, base_share=0.0)
    return found(trials, TABLES)


@cache
def counted(factor: float) -> Found:
    """Answers that were counted alone, so that the look at the rows is all that says how many count."""
    noise = QuickNoise(8, factor)
    trials = Trials(noise, 120, n_blocks=3000, epsilon=1.5, error=0.2, base_share=0.0)
    return found(trials, COUNTS)


ERROR = 0.02
CERTIFIED = (1.0 - FAILURE) * BETA
STEERED = 0.35
"""The part of a failure probability of which a measured answer has the quantile (Theorem 13)."""
MEASURED = STEERED * CERTIFIED


@pytest.mark.parametrize(
    ("answers", "share"), [(certified, CERTIFIED), (measured, MEASURED), (counted, MEASURED)]
)
def test_bars_of_counts_are_missed_as_often_as_they_say(
    answers: Callable[[float], Found], share: float
) -> None:
    """A tenth of the failure probability is left for the margins."""
    honest, coarse = answers(1.0), answers(1.1)
    missed = np.abs(honest.off) > honest.bar
    assert more_often(missed, share) > ALARM
    assert missed.mean() > 0.9 * share
    assert more_often(np.abs(coarse.off) > coarse.bar, share) < ALARM


@pytest.mark.parametrize(("answers", "part"), [(certified, CERTIFIED), (measured, MEASURED)])
def test_bars_of_shares_by_tables_are_missed_as_often_as_those_of_counts(
    answers: Callable[[float], Found], part: float
) -> None:
    """They have as many deviations."""
    honest, coarse = answers(1.0), answers(1.1)
    assert honest.off.size >= 100_000
    missed = np.abs(honest.share_off) > honest.share_bar
    assert more_often(missed, part) > ALARM
    assert missed.mean() > 0.9 * part
    assert more_often(np.abs(coarse.share_off) > coarse.share_bar, part) < ALARM


def test_bars_of_shares_by_the_looks_at_the_rows_are_missed_no_more_often_than_they_say() -> None:
    """What a look decides depends on its noise, so its bar and that of the count add."""
    missed = np.abs(counted(1.0).share_off) > counted(1.0).share_bar
    assert more_often(missed, BETA) > ALARM
    assert missed.mean() > 0.1 * BETA, "the test says something"


@pytest.mark.parametrize(
    ("answers", "error", "rows"), [(measured, ERROR, 1200), (counted, 0.2, 120)]
)
def test_verified_answers_are_within_their_error_of_the_rows_that_count(
    answers: Callable[[float], Found], error: float, rows: int
) -> None:
    """The margin must not be too large, so it is a little too small."""
    missed = np.abs(answers(1.0).off) > error * rows
    assert more_often(missed, BETA) > ALARM
    assert missed.mean() > 0.1 * MEASURED, "the test says something"


# ---------------------------------------------------------------- broken copies


def without_deviation(counted: CountedRows, window: range) -> float:
    return max(0.0, counted.estimate(window)[0])


def beyond(seed: int, n_counted: int) -> Bools:
    """Whether answers miss their error, shape (n,). The noise of the look has a deviation of 30 rows."""
    settings = {"epsilon": 1.0, "error": 0.3, "beta": 0.02, "base_share": 0.0}
    trials = Trials(QuickNoise(seed), n_counted, n_blocks=4000, **settings)
    return (np.abs(found(trials, COUNTS[2:]).off) > 0.3 * n_counted)[:, 0]


@pytest.mark.parametrize(("beta", "part"), [(0.2, 0.32), (0.05, 0.35), (0.01, 0.41)])
def test_the_deviation_hardly_matters_where_many_rows_count(beta: float, part: float) -> None:
    """How often a measured answer misses without it, by quadrature, if it is a tenth of the rows."""
    rows = 1.0 + 0.1 * np.linspace(-8.0, 8.0, 4001)
    missed = 2.0 * norm.sf(norm.isf(STEERED * (1.0 - FAILURE) * beta / 2.0) / rows)
    weights = norm.pdf(rows, 1.0, 0.1)
    assert (weights * missed).sum() / weights.sum() == pytest.approx(part * beta, rel=0.02)


def test_margins_by_the_look_without_its_deviation_break_the_promise_where_few_rows_count() -> None:
    kept = beyond(7, 60)
    assert len(kept) > 10
    assert binomtest(int(kept.sum()), len(kept), 0.02, alternative="greater").pvalue > ALARM
    with patch.object(CountedRows, "at_least", without_deviation):
        broken = beyond(7, 45)
    assert binomtest(int(broken.sum()), len(broken), 0.02, alternative="greater").pvalue < ALARM


SIGMA = 30.0
"""The deviation of the look, and of what a table says of the number of rows."""


def missed_when_verified(n_counted: int, *, merged: bool) -> Bools:
    """Whether the number of rows misses its bar, each time that a table and the look verify it, shape (n,).

    They do about a tenth of all times: those in which the look comes out high.
    """
    rng, step, missed = np.random.default_rng(9), grid_index(SIGMA), []
    query = LinearQuery(EVERYTHING, range(1))
    z = norm.isf(CERTIFIED / 2)
    for _ in range(20_000):
        belief, counted = Belief((2, 2), total_known=False), CountedRows(Accuracy(0.3, BETA))
        belief.open_block(2 * n_counted)
        value = round(n_counted + rng.normal(0.0, SIGMA))
        counted.absorb(RowsRelease(0, step, value))
        table = n_counted / 2 + rng.normal(0.0, SIGMA / math.sqrt(2.0), 2)
        belief.absorb_table((0,), 0, table, SIGMA**2 / 2.0)
        if merged:
            belief.absorb_table((), 0, np.array(float(value)), SIGMA**2)
        evidence = belief.evidence(form_of(query, (2, 2)), query.key, range(1))
        bar = z * math.sqrt(evidence.variances.item())
        if bar <= 0.3 * counted.at_least(range(1)):
            missed.append(abs(evidence.values.item() - n_counted) > bar)
    return np.array(missed)


def test_a_look_that_enters_estimates_makes_those_miss_that_it_verifies() -> None:
    """Its noise then chooses which answers are given. Of all that are asked, few miss even so."""
    apart, together = (
        missed_when_verified(160, merged=False),
        missed_when_verified(120, merged=True),
    )
    assert binomtest(int(apart.sum()), len(apart), CERTIFIED).pvalue > ALARM
    assert together.mean() == pytest.approx(0.44, abs=0.02)
    assert binomtest(int(together.sum()), len(together), CERTIFIED).pvalue < ALARM
    assert together.sum() == pytest.approx(0.05 * 20_000, rel=0.1)
