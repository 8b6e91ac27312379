"""Thresholds and prices of looks for keys."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from stream_dp.core.budget.accountant import rho_max
from stream_dp.core.budget.parameters import Unit
from stream_dp.core.residual.keys.key_levels import KeyLevel, least_jump, levels_of, tail_bound


def exact_tail(jump: int, sigma: float) -> float:
    """The probability that discrete Gaussian noise is at least ``jump``, by summation."""
    reach = math.ceil(40 * sigma) + jump
    x = np.arange(-reach, reach + 1, dtype=np.float64)
    weights = np.exp(-x * x / (2 * sigma * sigma))
    return float(weights[x >= jump].sum() / weights.sum())


@pytest.mark.parametrize(
    ("sigma", "jump", "bound", "exact"),
    [
        (Fraction(2), 10, "8.098351e-7", 8.003847e-7),
        (Fraction(4), 25, "4.156189e-10", 4.107164e-10),
        (Fraction(8), 52, "5.998975e-11", 5.908133e-11),
        (Fraction(100), 640, "8.207340e-11", 8.025968e-11),
    ],
)
def test_the_bound_is_just_above_the_probability(
    sigma: Fraction, jump: int, bound: str, exact: float
) -> None:
    assert f"{tail_bound(jump, sigma):.6e}" == bound
    assert exact_tail(jump, float(sigma)) == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(
    "sigma", [Fraction(1, 2), Fraction(1), Fraction(7, 3), Fraction(16), Fraction(3000)]
)
def test_the_bound_is_never_below_the_probability(sigma: Fraction) -> None:
    for jump in {1, 2, 3, *(math.ceil(part * sigma) for part in (0.1, 1, 2, 3, 5, 7))}:
        assert float(tail_bound(jump, sigma)) >= exact_tail(jump, float(sigma)) * (1 - 1e-9)


@pytest.mark.parametrize(
    ("sigma", "thresholds"),
    [
        (Fraction(1), (7, 8, 9)),
        (Fraction(4), (21, 26, 30)),
        (Fraction(10), (50, 62, 72)),
        (Fraction(100), (478, 602, 706)),
    ],
)
def test_thresholds(sigma: Fraction, thresholds: tuple[int, ...]) -> None:
    assert tuple(1 + least_jump(sigma, Fraction(1, 10**e)) for e in (6, 9, 12)) == thresholds


def test_a_normal_quantile_would_be_too_low() -> None:
    """At sigma 2 the quantile of 1e-4 is 7.4: a noise of 7 or 8 comes too often."""
    assert (
        exact_tail(least_jump(Fraction(2), Fraction(1, 10_000)), 2.0) <= 1e-4 < exact_tail(7, 2.0)
    )


LINE = rho_max(1.0, 5e-10)


@pytest.mark.parametrize(
    ("unit", "squares", "units", "found"),
    [
        (None, 1, 2, (45.632, 289)),
        (Unit(1, 12), 12, 2 * 12, (111.774, 747)),
        (Unit(4, 12), 12 * 16, 2 * 48, (223.549, 1536)),
    ],
)
def test_levels_share_a_part_of_a_line(
    unit: Unit | None, squares: int, units: int, found: tuple[float, int]
) -> None:
    line = LINE / squares
    levels = levels_of(line / 10, Fraction(1, 10**9) / units, (1, 8, 64), unit)
    assert {(round(float(level.sigma), 3), level.threshold) for level in levels} == {found}
    assert 0.0999 * line < sum(level.rho for level in levels) <= line / 10
    assert sum(level.failure for level in levels) == Fraction(1, 10**9) / units


@pytest.mark.parametrize("unit", [Unit(1, 32, lifetime=True), Unit(4, 2, lifetime=True)])
def test_a_person_for_life(unit: Unit) -> None:
    """However many rows count in a phase: its line has room for the square of them."""
    line = rho_max(6.0, 5e-10) / 32
    levels = levels_of(line / 10, Fraction(1, 10**9) / 64, (1,), unit)
    assert (round(float(levels[0].sigma), 3), levels[0].threshold) == (19.478, 131)


def test_windows_follow_one_another() -> None:
    level = KeyLevel(8, Fraction(1), 5, Fraction(1, 10), Fraction(1))
    ends = {block: level.window(block) for block in range(20)}
    assert {b: w for b, w in ends.items() if w} == {7: range(8), 15: range(8, 16)}
