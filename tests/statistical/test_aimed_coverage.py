"""How often the bars of answers miss whose precision follows from what is published: in 10,000 runs each.

False alarms: each test fails by chance with probability at most 1e-6.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

from stream_dp.core.budget.parameters import Aim, Target
from stream_dp.core.outcome import Answered, Outcome, Path, Quantiles, Summed, TableAnswered
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate, Rank, total_of
from stream_dp.core.residual.plan import aim_rule
from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.universe import Universe
from tests.core.residual.host import ALARM, sealed
from tests.statistical.lives import BETA, RUNS, Lives

UNIVERSE = Universe(
    (
        Category("a", ("x", "y", "z"), other=False),
        Number("v", (1, 2), representatives=(0.0, 1.0, 4.0)),
    )
)
ARE_X = LinearQuery(Predicate.conjunction({0: np.array([True, False, False])}), range(1))
BY_A = LinearQuery(EVERYTHING, range(1), (0,))
MEAN = LinearQuery(
    EVERYTHING,
    range(1),
    (),
    total_of(1, UNIVERSE.attributes[1]),  # type: ignore[arg-type]
    target=Target(of_mean=True),
)
MEDIANS = LinearQuery(EVERYTHING, range(1), (0,), rank=Rank(1, 0.5, (0, 1, 2)))
COUNTS = (3_000, 4_000, 13_000)
VALUES = (0.5, 0.3, 0.2)
"""The median is the last row of its bin, so noise to one side alone misses it."""


class Runs(Lives):
    """Many lives of one data set whose precision follows from what is published."""

    def __init__(self, aim: Aim, *, base_share: float | None = 0.0) -> None:
        a = np.repeat(np.arange(3), COUNTS)
        v = np.concatenate(
            [np.repeat(np.arange(3), [round(c * p) for p in VALUES]) for c in COUNTS]
        )
        super().__init__(UNIVERSE, sealed(UNIVERSE, a, v), noise=3, base_share=base_share, aim=aim)


def misses(outcome: Outcome) -> int:
    """Whether the first figure of an answer is off by more than its bar."""
    if isinstance(outcome, Summed):
        (summed,) = outcome.cells
        assert summed.mean is not None
        assert summed.mean_bar is not None
        return int(abs(summed.mean - (0.3 + 4 * 0.2)) > summed.mean_bar)
    if isinstance(outcome, Quantiles):
        return int(outcome.cells[0].first > 0)
    assert isinstance(outcome, Answered | TableAnswered)
    cell = outcome if isinstance(outcome, Answered) else outcome.cells[0]
    if cell.error_bar is None:
        return 0
    return int(abs(cell.count - COUNTS[0]) > cell.error_bar * cell.n + 0.5)


def check_rarely(outcomes: list[Outcome], probability: float) -> None:
    """The bars miss at most this often."""
    n_missed = sum(map(misses, outcomes))
    assert n_missed <= binom.isf(ALARM, len(outcomes), probability)


def check_just_as_often(outcomes: list[Outcome], probability: float) -> None:
    """The same, and no less often than that: a bar that is wider costs more than it must."""
    check_rarely(outcomes, probability)
    n_missed = sum(map(misses, outcomes))
    assert n_missed >= binom.ppf(ALARM, len(outcomes), 0.95 * probability)


def paths(outcomes: list[Outcome]) -> Counter[str]:
    return Counter(
        str(outcome.path) for outcome in outcomes if isinstance(outcome, Answered | TableAnswered)
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("query", "share", "sides"),
    [(ARE_X, 0.05, 2), (BY_A, 0.05, 2), (MEAN, 0.01, 2), (MEDIANS, 0.1, 1)],
    ids=["count", "table", "mean", "median"],
)
def test_last_looks_miss_as_often_as_their_part_says(
    query: LinearQuery, share: float, sides: int
) -> None:
    """A pilot has chosen how precise they are, and that changes nothing."""
    aim = Aim(share, rough=2 * share, easy_share=0.05, day_share=0.2)
    outcomes = Runs(aim).lives(query)
    last = [one for one in outcomes if one.use.useful in ("yes", "rough")]
    assert len(last) > 0.9 * RUNS
    check_rarely(outcomes, BETA)
    check_just_as_often(outcomes, aim_rule.LAST * BETA * sides / 2)


@pytest.mark.slow
def test_cells_of_one_look_add_up_with_independent_noise() -> None:
    """Theorem 26 (d): two cells have a bar of the root of two, and miss it as often as one misses its own."""
    outcomes = Runs(Aim(0.05, rough=0.1, easy_share=0.05, day_share=0.2)).lives(BY_A)
    n_missed = 0
    for outcome in outcomes:
        assert isinstance(outcome, TableAnswered)
        assert outcome.apart is not None
        one, other, _ = outcome.cells
        assert one.error_bar is not None
        off = abs(one.estimate + other.estimate - COUNTS[0] - COUNTS[1])
        n_missed += off > np.sqrt(2.0) * one.error_bar * one.n + 0.5
    assert n_missed <= binom.isf(ALARM, RUNS, aim_rule.LAST * BETA)
    assert n_missed >= binom.ppf(ALARM, RUNS, 0.95 * aim_rule.LAST * BETA)


@pytest.mark.slow
def test_useless_answers_miss_as_often_as_pilots_may() -> None:
    """Whether they are useless follows from the pilot's own noise."""
    aim = Aim(0.01, rough=0.03, easy_share=0.001, query_share=0.007)
    outcomes = Runs(aim).lives(ARE_X)
    # A last look may turn out to be of no use too. Its bar is a small part of the count.
    useless = [one for one in outcomes if one.use.part > 0.1]
    assert 0.2 * RUNS < len(useless) < 0.8 * RUNS
    assert sum(map(misses, useless)) <= binom.isf(ALARM, RUNS, aim_rule.PILOT * BETA)
    check_rarely(outcomes, BETA)


@pytest.mark.slow
def test_an_answer_that_may_come_in_any_way_misses_as_often_as_promised() -> None:
    """The opening is about as precise as is aimed at, so that noise decides between the three ways."""
    aim = Aim(0.3, rough=0.45, easy_share=0.0015, query_share=0.01)
    outcomes = Runs(aim, base_share=0.0005).lives(ARE_X)
    found = paths(outcomes)
    assert min(found[Path.MEASURED], found[Path.CERTIFIED]) > RUNS // 5
    check_rarely(outcomes, BETA)


@pytest.mark.slow
def test_what_looks_of_others_leave_for_free_seldom_misses() -> None:
    """A table and a mean come first, whose pilots have chosen how precise they are."""
    outcomes = Runs(Aim(0.1, rough=0.2)).lives(BY_A, replace(BY_A, group_by=(0, 1)), ARE_X)
    check_rarely(outcomes, BETA)
    free = [one for one in outcomes if one.path is Path.CERTIFIED]
    assert sum(map(misses, free)) <= binom.isf(
        ALARM, RUNS, (aim_rule.OPENING + aim_rule.ALL_TIMES) * BETA
    )


def test_a_few_runs_of_each_kind_end() -> None:
    runs = Runs(Aim(0.05, rough=0.1, easy_share=0.05, day_share=0.2))
    for query in (ARE_X, BY_A, MEAN, MEDIANS):
        outcomes = runs.lives(query, runs=5)
        assert sum(map(misses, outcomes)) <= 4
