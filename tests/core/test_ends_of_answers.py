"""The ends of an answer: they cover wherever the bar does, and nobody is told that nothing is there for sure.

The check of Theorem 25: all estimates, bars and truths of a small grid, and the same in exact fractions.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import numpy.typing as npt
import pytest

from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.mechanism import Look
from stream_dp.core.outcome import Answered, Path, ends_of
from stream_dp.core.queries.conditions import compile_where
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.rows.attributes import Category
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.universe import Universe
from tests.noise import FakeNoise

MOST = 8
GRID = [Fraction(number, 2) for number in range(-12, 30)]
BARS = [Fraction(number, 2) for number in range(1, 24)]


def test_the_ends_cover_whatever_the_bar_covers() -> None:
    for estimate, bar, truth in product(GRID, BARS, range(MOST + 1)):
        low, high = ends_of(float(estimate), float(bar), 0.0, float(MOST))
        assert 0.0 <= low <= high <= MOST
        if abs(estimate - truth) <= bar:
            assert low <= truth <= high


def test_the_ends_are_no_wider_than_the_bar_where_that_says_something() -> None:
    for estimate, bar in product(GRID, BARS):
        low, high = ends_of(float(estimate), float(bar), 0.0, float(MOST))
        if bar / 3 <= estimate + bar and estimate - bar <= MOST - bar / 3 and bar / 3 <= MOST:
            assert Fraction(low) == max(Fraction(0), estimate - bar)
            assert Fraction(high) == min(Fraction(MOST), estimate + bar)


def test_a_number_is_an_end_for_sure_only_without_noise() -> None:
    for estimate, bar in product(GRID, BARS):
        low, high = ends_of(float(estimate), float(bar), 0.0, float(MOST))
        assert high > 0.0
        assert low < MOST
    assert ends_of(0.0, 0.0, 0.0, float(MOST)) == (0.0, 0.0)
    assert ends_of(float(MOST), 0.0, 0.0, float(MOST)) == (MOST, MOST)


def test_without_a_bar_the_ends_are_those_that_everybody_knows() -> None:
    assert ends_of(3.0, None, 0.0, float(MOST)) == (0.0, MOST)


@pytest.mark.parametrize("estimate", [-40.0, 3.0, 1_040.0])
def test_an_answer_shows_what_can_be_and_keeps_what_was_estimated(estimate: float) -> None:
    answer = Answered(estimate, 1_000, 0.05, None, 0.99, Path.MEASURED)
    assert answer.estimate == estimate
    assert answer.count == min(max(estimate, 0.0), 1_000.0)
    assert answer.value == answer.count / 1_000
    low, high = answer.ends
    assert low <= answer.count <= high
    assert answer.ends == ends_of(estimate, 50.0, 0.0, 1_000.0)


# ---------------------------------------------------------------- what is remembered

UNIVERSE = Universe((Category("city", ("Bonn", "Lyon"), other=False),))
NOBODY = LinearQuery(compile_where(UNIVERSE, {"attribute": "city", "eq": "Lyon"}), range(1))


class Below(FakeNoise):
    """Noise of minus two deviations, always."""

    def gaussian(self, sigma: Fraction, size: int) -> npt.NDArray[np.int64]:
        return np.full(size, -round(2 * sigma))


def asked() -> tuple[Calibrated, Answered]:
    """A count of no rows that came out below 0, and who answered."""
    mechanism = Calibrated(
        UNIVERSE, Privacy(1.0, 1e-9), Accuracy(0.05, 0.01), CalibratedSettings(base_share=0.0)
    )
    rows = UNIVERSE.encode_columns({"city": ["Bonn"] * 5_000})
    data = Blocks(UNIVERSE, [Block.seal(UNIVERSE, rows)])
    assert not mechanism.open_phase(5_000)
    look = mechanism.answer(NOBODY)
    assert isinstance(look, Look)
    mechanism.charged(look.charges)
    release = look.take(Below(), data)
    mechanism.absorb(release)
    answer = mechanism.conclude(NOBODY, look, release)
    assert isinstance(answer, Answered)
    return mechanism, answer


def test_counts_below_0_enter_the_memory_as_they_are() -> None:
    mechanism, answer = asked()
    assert answer.count == 0.0
    (known,) = mechanism.state.evidence(NOBODY).values.tolist()
    assert known == pytest.approx(answer.estimate)
    assert known < -10.0


def test_a_repeat_has_the_ends_of_the_first_answer() -> None:
    mechanism, answer = asked()
    mechanism.state.repeats.remember(NOBODY, answer)
    again = mechanism.answer(NOBODY)
    assert again == replace(answer, path=Path.REPEAT)
    assert again.ends == answer.ends
