"""By how much two counts of a table must differ, and how wide bars are that hold for all of its cells.

``tests/statistical/test_rank_coverage.py`` counts how often ranks are wrong (docs/proofs, Theorem 26).
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from stream_dp.core.budget.parameters import Aim, Target
from stream_dp.core.outcome import Outcome, Path, TableAnswered
from stream_dp.core.published.rank_gap import range_width
from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.plan import aim_rule
from tests.core.residual.test_aiming import BETA, Life

PRECISE = Aim(0.01, rough=0.02, easy_share=0.02)
ALIKE = (26_000, 25_000, 25_000, 24_000)


def z_of(part: float) -> float:
    return float(norm.isf(part * BETA / 2))


def check(outcome: Outcome, part: float, n: int, deviation: float | None) -> TableAnswered:
    """What holds at once is that of ``n`` cells, for a part of the failure probability."""
    assert isinstance(outcome, TableAnswered)
    z = z_of(part)
    live = sum(cell.error_bar != 0.0 for cell in outcome.cells)
    assert outcome.wider == pytest.approx(norm.isf(part * BETA / live / 2) / z)
    if deviation is None:
        assert outcome.apart is None
    else:
        assert outcome.apart == pytest.approx(range_width(n, z) * deviation, rel=1e-6)
    return outcome


def scale(life: Life) -> float:
    """The scale of the last look, which is at one block."""
    (part,) = life.releases[-1].parts  # type: ignore[attr-defined]
    return float(grid_sigma(part.step))


def test_a_last_look_tells_cells_apart_by_its_own_noise_and_so_does_its_repeat() -> None:
    life = Life(aim=PRECISE)
    first = check(life.ask(life.by_ward()), aim_rule.LAST, 4, scale(life))
    again = check(life.ask(life.by_ward()), aim_rule.LAST, 4, scale_of(first))
    assert not life.looks
    assert again.path is Path.REPEAT
    assert again.apart == pytest.approx(first.apart)


def scale_of(table: TableAnswered) -> float:
    """The scale that a bar tells."""
    bar = table.cells[0].error_bar
    assert bar is not None
    return bar * table.cells[0].n / z_of(aim_rule.LAST)


def test_a_pilot_that_stays_the_answer_has_its_own_part() -> None:
    life = Life(counts=(300, 200, 200, 300), aim=Aim(0.001, rough=0.002))
    first = check(life.ask(life.by_ward()), aim_rule.PILOT, 4, scale(life))
    again = life.ask(life.by_ward())
    assert isinstance(again, TableAnswered)
    assert again.apart == pytest.approx(first.apart, rel=1e-6)


def test_an_opening_tells_cells_apart_by_more_noise_than_each_of_them_has() -> None:
    """The number of all rows is known, so a cell has 3/4 of the variance of what makes two differ."""
    life = Life(ALIKE, base_share=None)
    outcome = life.ask(life.by_ward())
    assert not life.looks
    variance = life.mechanism.state.belief.at_opening(
        life.mechanism.state.evidence(life.by_ward()).form, life.window
    ).variances[0]
    check(outcome, aim_rule.OPENING, 4, math.sqrt(variance * 4 / 3))


def test_a_condition_that_leaves_cells_without_rows_makes_them_one_more_number() -> None:
    life = Life(aim=PRECISE)
    two = Predicate.conjunction({0: np.array([True, True, False, False])})
    query = LinearQuery(two, life.window, (0,))
    outcome = life.ask(query)
    (step,) = life.releases[-1].steps  # type: ignore[attr-defined]
    check(outcome, aim_rule.LAST, 3, float(grid_sigma(step[1])))


def test_what_others_had_measured_is_told_apart_by_its_bars() -> None:
    life = Life(aim=Aim(0.1))
    life.ask(replace(life.by_ward(), target=Target(share=0.002)))
    outcome = life.ask(life.by_ward())
    assert not life.looks, "it is precise enough by now"
    check(outcome, aim_rule.LAST, 4, None)


def test_a_fresh_answer_has_all_of_the_failure_probability() -> None:
    life = Life(aim=None)
    outcome = life.ask(replace(life.by_ward(), fresh=True))
    (step,) = life.releases[-1].steps  # type: ignore[attr-defined]
    check(outcome, 1.0, 4, float(grid_sigma(step[1])))


def test_answers_to_an_error_that_a_query_names_are_wider_by_what_the_error_leaves() -> None:
    """Theorem 13 leaves 7/20 of the failure probability to each bar, before reflection doubles it."""
    life = Life(aim=None)
    check(life.ask(life.by_ward()), 7 / 20, 4, None)


def test_openings_that_suffice_for_an_error_have_all_of_the_failure_probability() -> None:
    life = Life(ALIKE, aim=None, base_share=0.5)
    outcome = life.ask(life.by_ward())
    assert not life.looks
    assert isinstance(outcome, TableAnswered)
    assert outcome.apart is not None
    check(outcome, 1.0, 4, outcome.apart / range_width(4, z_of(1.0)))
