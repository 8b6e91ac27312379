"""One noisy table of the whole universe: what it certifies, and that what it certifies holds."""

from __future__ import annotations

import json
import math
from itertools import islice

import numpy as np
import pytest
from scipy import stats

from stream_dp.core.baselines.whole_noisy_table import WholeTable
from stream_dp.core.budget.accountant import UNITS, Budget
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.mechanism import Mechanism
from stream_dp.core.outcome import Answered, Path, RefusalCode, Refused
from stream_dp.core.queries.query import EVERYTHING, NOTHING, LinearQuery
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.universe import MAX_KEPT_CELLS, Universe
from stream_dp.errors import InvalidDefinition
from tests.core.conftest import ADULT, Drive, asks, universe_of
from tests.noise import QuickNoise

PRIVACY = Privacy(1.0, 1e-9)


def table(universe: Universe, error: float = 0.05, beta: float = 0.001) -> WholeTable:
    return WholeTable(universe, PRIVACY, Accuracy(error, beta))


@pytest.mark.parametrize("error", [0.05, 0.02])
def test_the_small_census_is_answered_whole(error: float) -> None:
    """W3: all, as measured elsewhere; here the first 2,000 asks, of which one in 1,000 may miss."""
    run = Drive(ADULT, table(ADULT, error), QuickNoise(1))
    run.open(np.arange(140), 48_842)
    missed = 0
    for query in islice(asks(3), 2_000):
        outcome = run.ask(query)
        assert outcome.path is Path.CERTIFIED
        missed += abs(outcome.value - run.truth(query)) > error
    assert missed <= 20  # of at most 2 expected


def test_a_line_is_spent_by_its_table_and_hardly_less() -> None:
    """``rho = 1 / sigma^2``, for a row moves between two cells."""
    run = Drive(ADULT, table(ADULT), QuickNoise(1))
    run.open(np.ones(140), 48_842)
    sigma = run.mechanism.sigma
    exact = UNITS / (sigma**2 * Budget.of(PRIVACY).rho)
    assert run.lines == [(math.ceil(exact), 0)]
    assert 0.95 * UNITS < run.lines[0][0] <= UNITS
    assert run.mechanism.spent(0) == pytest.approx(1.0, abs=0.03)


def test_what_is_certified_follows_from_the_number_of_cells_and_of_blocks() -> None:
    """``z sigma sqrt(cells) <= error n``, with the cells or with all others."""
    universe = universe_of(4, 25)
    mechanism = table(universe)
    reach = 3.2905 * float(mechanism.sigma) / 0.05  # rows that certify one cell
    run = Drive(universe, mechanism, QuickNoise(1))
    rows = round(reach * 5.5)
    run.open(np.ones(100), rows)
    run.open(np.ones(100), rows)

    def certified(cells: int, window: range) -> bool:
        outcome = run.ask(run.query(np.arange(100) < cells, window))
        if isinstance(outcome, Refused):
            assert outcome.code is RefusalCode.BUDGET_EXHAUSTED
        return isinstance(outcome, Answered)

    one, both = range(1), range(2)
    assert [certified(cells, one) for cells in (30, 31, 69, 70)] == [True, False, False, True]
    # Twice the noisy cells, twice the rows.
    assert [certified(cells, both) for cells in (30, 50)] == [True, True]
    assert run.ask(LinearQuery(EVERYTHING, both)).count == 2 * rows
    assert run.ask(LinearQuery(NOTHING, both)).count == 0


def test_its_noise_has_its_scale_and_not_one_a_tenth_off() -> None:
    """Variance of 20,000 cells, two-sided chi-square; false alarms at 1e-6."""
    universe = universe_of(100, 200)
    rows = universe.encode_cells([{"a0": "v0", "a1": "v0", "count": 50}])
    data = Blocks(universe, [Block.seal(universe, rows)])

    def pvalue(factor: float) -> float:
        mechanism = table(universe)
        (look,) = mechanism.open_phase(50)
        release = look.take(QuickNoise(4, factor), data)
        counts = release.counts.reshape(-1).astype(float)  # type: ignore[attr-defined]
        counts[0] -= 50
        statistic = float((counts**2).sum() / float(mechanism.sigma) ** 2)
        law = stats.chi2(len(counts))
        return 2.0 * float(min(law.cdf(statistic), law.sf(statistic)))

    assert pvalue(1.0) > 1e-6
    assert pvalue(1.1) < 1e-6
    assert pvalue(0.9) < 1e-6


def test_a_lost_table_is_spent_and_its_block_refused() -> None:
    universe = universe_of(2, 3)
    mechanism: Mechanism = table(universe)
    (look,) = mechanism.open_phase(30_000)
    mechanism.charged(look.charges)
    mechanism.lost(json.loads(json.dumps(look.description)))
    outcome = mechanism.answer(LinearQuery(EVERYTHING, range(1)))
    assert isinstance(outcome, Refused)
    assert "lost" in outcome.message


def test_a_universe_too_large_for_a_table_is_refused() -> None:
    with pytest.raises(InvalidDefinition, match="cells"):
        table(universe_of(1024, MAX_KEPT_CELLS // 1024 + 1))
