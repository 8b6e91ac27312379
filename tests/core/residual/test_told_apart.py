"""By how much two counts of a table must differ, and how wide bars are that hold for all of its cells.

``tests/statistical/test_rank_coverage.py`` counts how often ranks are wrong (docs/proofs, Theorem 26).
"""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from scipy.stats import norm

from stream_dp.core.budget.parameters import Aim
from stream_dp.core.outcome import Outcome, Path, TableAnswered
from stream_dp.core.published.rank_gap import range_width
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.plan import aim_rule
from tests.core.residual.host import aimed, where
from tests.core.residual.test_aiming import BETA, BY_WARD, PRECISE, WARDS, deviation_of, wards, z_of

ALIKE = (26_000, 25_000, 25_000, 24_000)


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


def test_a_last_look_tells_cells_apart_by_its_own_noise_and_so_does_its_repeat() -> None:
    it = wards(PRECISE)
    deviation = 0.0
    for path in (Path.MEASURED, Path.REPEAT):
        outcome = it.ask(BY_WARD)
        deviation = deviation_of(it.releases[-1]) if it.looks else deviation
        assert outcome.path is path
        check(outcome, aim_rule.LAST, 4, deviation)


def test_a_pilot_that_stays_the_answer_has_its_own_part() -> None:
    it = wards(Aim(0.001, rough=0.002), (300, 200, 200, 300))
    outcome = it.ask(BY_WARD)
    first = check(outcome, aim_rule.PILOT, 4, deviation_of(it.releases[-1]))
    assert it.ask(BY_WARD).apart == pytest.approx(first.apart, rel=1e-6)


def test_an_opening_tells_cells_apart_by_more_noise_than_each_of_them_has() -> None:
    """The number of all rows is known, so a cell has 3/4 of the variance of what makes two differ."""
    it = wards(counts=ALIKE, base_share=None)
    outcome = it.ask(BY_WARD)
    assert not it.looks
    evidence = it.state.belief.at_opening(it.state.evidence(BY_WARD).form, range(1))
    check(outcome, aim_rule.OPENING, 4, math.sqrt(evidence.variances[0] * 4 / 3))


def test_a_condition_that_leaves_cells_without_rows_makes_them_one_more_number() -> None:
    it = wards(PRECISE)
    outcome = it.ask(LinearQuery(where(WARDS.shape, {0: (0, 1)}), range(1), (0,)))
    check(outcome, aim_rule.LAST, 3, deviation_of(it.releases[-1]))


def test_what_others_had_measured_is_told_apart_by_its_bars() -> None:
    it = wards()
    it.ask(aimed(BY_WARD, share=0.002))
    outcome = it.ask(BY_WARD)
    assert not it.looks, "it is precise enough by now"
    check(outcome, aim_rule.LAST, 4, None)


def test_a_fresh_answer_has_all_of_the_failure_probability() -> None:
    it = wards(None)
    outcome = it.ask(replace(BY_WARD, fresh=True))
    check(outcome, 1.0, 4, deviation_of(it.releases[-1]))


def test_answers_to_an_error_that_a_query_names_are_wider_by_what_the_error_leaves() -> None:
    """Theorem 13 leaves 7/20 of the failure probability to each bar, before reflection doubles it."""
    check(wards(None).ask(BY_WARD), 7 / 20, 4, None)


def test_openings_that_suffice_for_an_error_have_all_of_the_failure_probability() -> None:
    it = wards(None, ALIKE, base_share=0.5)
    outcome = it.ask(BY_WARD)
    assert not it.looks
    check(outcome, 1.0, 4, outcome.apart / range_width(4, z_of(1.0)))
