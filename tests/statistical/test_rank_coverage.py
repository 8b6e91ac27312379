"""Ranks are wrong as seldom as promised (docs/proofs, Theorem 26): in 10,000 runs each.

All cells have as many rows as each other, so every pair that is told apart is wrong, and no choice of counts
makes that more frequent. False alarms: each test fails by chance with probability at most 1e-6.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

from stream_dp.core.budget.parameters import Aim
from stream_dp.core.outcome import Path, TableAnswered
from stream_dp.core.queries.query import EVERYTHING, LinearQuery
from stream_dp.core.residual.plan import aim_rule
from stream_dp.core.rows.attributes import Category
from stream_dp.core.rows.universe import Universe
from tests.core.residual.host import ALARM, sealed
from tests.statistical.lives import BETA, RUNS, Lives

CELLS, ROWS = 12, 2_000
UNIVERSE = Universe((Category("ward", tuple("abcdefghijkl"), other=False),))
BY_WARD = LinearQuery(EVERYTHING, range(1), (0,))


def tables(aim: Aim | None, base_share: float | None, runs: int = RUNS) -> list[TableAnswered]:
    """The answers of many lives of one data set."""
    block = sealed(UNIVERSE, np.repeat(np.arange(CELLS), ROWS))
    made = Lives(UNIVERSE, block, noise=4, base_share=base_share, aim=aim)
    return made.lives(BY_WARD, runs=runs)


def spread(table: TableAnswered) -> float:
    """By how much the largest and the smallest estimate differ, whose true numbers are the same."""
    counts = [cell.estimate for cell in table.cells]
    return max(counts) - min(counts)


def beyond(table: TableAnswered) -> bool:
    """Whether any cell is outside the bar that holds for all of them at once."""
    assert table.wider is not None
    return any(
        abs(cell.estimate - ROWS) > table.wider * (cell.error_bar or 0.0) * cell.n
        for cell in table.cells
    )


def check(missed: int, runs: int, probability: float, *, tight: float) -> None:
    assert missed <= binom.isf(ALARM, runs, probability)
    assert missed >= binom.ppf(ALARM, runs, tight * probability)


@pytest.mark.slow
@pytest.mark.parametrize("path", [Path.MEASURED, Path.CERTIFIED])
def test_ranks_and_bars_at_once_are_wrong_as_often_as_their_part_says(path: Path) -> None:
    """The price of a looser look stands beside each: a bar of every cell, or of every pair, by itself."""
    measured = path is Path.MEASURED
    aim = Aim(0.05, rough=0.1, easy_share=0.05, day_share=0.2) if measured else Aim(0.3, rough=0.4)
    found = [one for one in tables(aim, 0.0 if measured else None) if one.path is path]
    assert len(found) > 0.9 * RUNS
    part = (aim_rule.LAST if measured else aim_rule.OPENING) * BETA
    n_apart = sum(spread(one) > (one.apart or 0.0) for one in found)
    check(n_apart, len(found), part, tight=0.9)
    check(sum(map(beyond, found)), len(found), part, tight=0.8)
    # A pair by itself differs by no more than the root of 2 times its bars, with the same probability.
    bars = [2**0.5 * (one.cells[0].error_bar or 0.0) * one.cells[0].n for one in found]
    by_single_bars = sum(spread(one) > bar for one, bar in zip(found, bars, strict=True))
    assert by_single_bars > 3 * binom.isf(ALARM, len(found), part)


@pytest.mark.slow
def test_bars_at_once_of_a_promise_miss_as_often_as_one_look_may() -> None:
    """What others refine may double that. The scale of the look is up to a step of the grid smaller."""
    found = tables(None, 0.0)
    assert all(one.apart is None for one in found)
    check(sum(map(beyond, found)), len(found), 7 / 20 * BETA, tight=0.5)


def test_a_few_runs_tell_no_more_apart_than_they_may() -> None:
    """Both ways in 20 runs each; more than 15 of them are wrong with probability below 1e-6."""
    for aim, base_share in (
        (Aim(0.05, rough=0.1, easy_share=0.05, day_share=0.2), 0.0),
        (Aim(0.3, rough=0.4), None),
    ):
        found = tables(aim, base_share, runs=20)
        assert sum(spread(one) > (one.apart or 0.0) for one in found) <= 15
