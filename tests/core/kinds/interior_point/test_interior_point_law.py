"""The online interior point is on the right side, and free once it is found."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from scipy import stats

from stream_dp.core.kinds.interior_point.interior_law import InteriorPlan, InteriorPoint
from stream_dp.core.kinds.loss import Secret
from stream_dp.core.outcome import Side
from stream_dp.core.randomness.noise_sources import NoiseSource
from tests.noise import QuickNoise

ALARM = 1e-6
PLAN = InteriorPlan(Fraction(1), Fraction(1, 10**6), 1000, 0.05)


def ask(
    run: InteriorPoint, rows: np.ndarray, point: int, secret: Secret, noise: NoiseSource
) -> Side:
    known = run.answer(point)
    if known is not None:
        return known
    count = int(np.searchsorted(rows, point, side="right"))
    return run.absorb(point, run.look(count, secret=secret, noise=noise))


def test_the_constants_are_as_published() -> None:
    assert (PLAN.error, PLAN.min_rows, PLAN.low, PLAN.high) == (80, 222, 81, 141)
    assert PLAN.high - PLAN.low == PLAN.between.min_gap
    assert (PLAN.loss.epsilon, PLAN.loss.delta) == (1, Fraction(1, 10**6))


@pytest.mark.parametrize("extra", [0, 5000])
def test_it_fails_no_more_often_than_promised_on_points_that_seek_the_row(extra: int) -> None:
    """Points go up one by one, or halve the range; 400 runs; none has failed when this was written."""
    noise, rng, wrong = QuickNoise(1), np.random.default_rng(2), 0
    for number in range(400):
        rows = np.sort(rng.integers(400, 600, PLAN.min_rows + extra))
        run, secret = InteriorPoint(PLAN), PLAN.draw(noise)
        right, low, high = True, 0, 1000
        for asked in range(1000):
            point = asked if number % 2 else (low + high) // 2
            side = ask(run, rows, point, secret, noise)
            low, high = (point, high) if side is Side.BELOW else (low, point)
            right &= side is Side.BELOW or point >= rows[0]
            right &= side is Side.ABOVE or point < rows[-1]
            if run.point is not None and number % 2 == 0:
                break
        right &= run.point is None or bool(rows[0] <= run.point < rows[-1])
        wrong += not right
    assert stats.binomtest(wrong, 400, 0.05, alternative="greater").pvalue > ALARM


def test_too_few_rows_make_it_fail() -> None:
    noise, wrong = QuickNoise(3), 0
    rows = np.arange(500, 500 + PLAN.low // 4)
    for _ in range(200):
        wrong += ask(InteriorPoint(PLAN), rows, 999, PLAN.draw(noise), noise) is Side.BELOW
    assert stats.binomtest(wrong, 200, 0.05, alternative="greater").pvalue < ALARM


def test_once_a_point_is_kept_the_data_is_not_asked_again() -> None:
    run, noise = InteriorPoint(PLAN), QuickNoise(4)
    assert run.answer(7) is None
    assert run.absorb(7, Side.BETWEEN) is Side.ABOVE
    assert [run.answer(point) for point in (6, 7, 8)] == [Side.BELOW, Side.ABOVE, Side.ABOVE]
    assert not run.abandoned
    with pytest.raises(RuntimeError):
        run.look(110, secret=Secret([0]), noise=noise)


def test_the_public_state_is_a_fold_over_the_answers() -> None:
    run = InteriorPoint(PLAN)
    answers = [run.absorb(p, s) for p, s in [(3, Side.BELOW), (9, Side.ABOVE), (5, Side.BETWEEN)]]
    assert answers == [Side.BELOW, Side.ABOVE, Side.ABOVE]
    assert run.point == 5
    assert repr(run) == "InteriorPoint(point=5)"


def test_a_lost_answer_abandons_the_run() -> None:
    run = InteriorPoint(PLAN)
    run.lost()
    assert run.abandoned
    assert run.answer(5) is None
    with pytest.raises(RuntimeError):
        run.look(110, secret=Secret([0]), noise=QuickNoise(5))


@pytest.mark.parametrize(("n_points", "failure"), [(0, 0.1), (5, 0.0), (5, 1.0)])
def test_what_makes_no_plan_is_refused(n_points: int, failure: float) -> None:
    with pytest.raises(ValueError):
        InteriorPlan(Fraction(1), Fraction(1, 10), n_points, failure)
