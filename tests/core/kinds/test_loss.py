"""Losses and secrets."""

from __future__ import annotations

import copy
import math
import pickle
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.core.budget.accountant import UNITS, Budget
from stream_dp.core.budget.parameters import Privacy
from stream_dp.core.kinds.loss import Loss, Secret, checked_privacy
from stream_dp.core.randomness.laplace import reach, scale_from, sum_bound, tail_point
from stream_dp.core.randomness.noise_sources import MAX_SCALE, MIN_SCALE, PooledNoise
from stream_dp.errors import BudgetExceeded, CorruptState

_CONTEXT = mp.mp.clone()
_CONTEXT.dps = 60


def test_a_loss_is_charged_as_half_its_square_and_its_delta() -> None:
    budget = Budget.of(Privacy(1.0, 1e-6), approximate=True)
    loss = Loss(Fraction(1, 20), Fraction(1, 10**8))
    charge = loss.charge(budget, 3)
    assert charge.block == 3
    assert charge.rho == math.ceil(Fraction(1, 800) * UNITS / budget.rho)
    assert charge.delta == math.ceil(Fraction(1, 10**8) * UNITS / budget.delta)


def test_a_budget_without_delta_refuses_a_loss_with_one() -> None:
    budget = Budget.of(Privacy(1.0, 1e-6))
    assert Loss(Fraction(1, 20)).charge(budget, 0).delta == 0
    with pytest.raises(BudgetExceeded):
        Loss(Fraction(1, 20), Fraction(1, 10**8)).charge(budget, 0)


@pytest.mark.parametrize(("epsilon", "delta"), [(0, None), (-1, None), (1, 0), (1, 1), (1, 2)])
def test_parameters_out_of_range_are_refused(epsilon: int, delta: int | None) -> None:
    with pytest.raises(ValueError):
        checked_privacy(Fraction(epsilon), None if delta is None else Fraction(delta))


def test_a_float_is_no_privacy_parameter() -> None:
    with pytest.raises(TypeError):
        checked_privacy(1.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        checked_privacy(Fraction(1), 1e-6)  # type: ignore[arg-type]


class TestSecret:
    def test_it_is_neither_shown_nor_pickled_nor_copied(self) -> None:
        secret = Secret([7, -3])
        assert repr(secret) == str(secret) == "Secret()"
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            with pytest.raises(TypeError, match="never pickled"):
                pickle.dumps(secret, protocol)
        for duplicate in (copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="never pickled"):
                duplicate(secret)

    def test_its_bytes_read_back_and_their_length_tells_nothing(self) -> None:
        data = Secret([0, -(2**62)]).to_bytes()
        assert Secret.from_bytes(data, 2).values == (0, -(2**62))
        assert len(data) == len(Secret([1, 1]).to_bytes())

    @pytest.mark.parametrize(
        "data", [b"", b"\x02" + bytes(8), b"\x01" + bytes(7), b"\x01" + bytes(16)]
    )
    def test_other_bytes_are_corrupt(self, data: bytes) -> None:
        with pytest.raises(CorruptState):
            Secret.from_bytes(data, 1)


scales = st.fractions(min_value=Fraction(1, 100), max_value=10**6)
chances = st.fractions(min_value=Fraction(1, 10**30), max_value=Fraction(99, 100)).filter(bool)


@settings(deadline=None)
@given(scale=scales, probability=chances)
def test_the_tail_point_is_the_least_with_so_small_a_tail(
    scale: Fraction, probability: Fraction
) -> None:
    z = tail_point(scale, probability)
    p = _CONTEXT.exp(-_CONTEXT.mpf(scale.denominator) / scale.numerator)

    def tail(z: int) -> mp.mpf:
        return p**z / (1 + p)

    wanted = _CONTEXT.mpf(probability.numerator) / probability.denominator
    assert tail(z) <= wanted
    assert z == 1 or tail(z - 1) > wanted * (1 - _CONTEXT.mpf(10) ** -40)


@settings(deadline=None)
@given(scale=scales, probability=chances)
def test_the_reach_is_the_least_with_so_small_a_bound(
    scale: Fraction, probability: Fraction
) -> None:
    z = reach(scale, probability)
    wanted = _CONTEXT.mpf(probability.numerator) / probability.denominator
    ratio = _CONTEXT.mpf(scale.denominator) / scale.numerator
    assert _CONTEXT.exp(-z * ratio) <= wanted * (1 + _CONTEXT.mpf(10) ** -40)
    assert z == 0 or _CONTEXT.exp(-(z - 1) * ratio) > wanted


@given(st.fractions(min_value=MIN_SCALE, max_value=MAX_SCALE))
def test_a_scale_is_rounded_up_to_a_float(least: Fraction) -> None:
    scale = scale_from(least)
    assert least <= scale <= least * (1 + Fraction(1, 2**52))
    assert Fraction(float(scale)) == scale
    assert scale_from(scale) == scale


def test_released_noise_of_scale_2_is_as_published() -> None:
    """Golden row: Pr[0] = 0.24492, variance 7.835. False alarm 2e-6; a tenth off is outside."""
    draws = PooledNoise().laplace(Fraction(2), 200_000)
    zeros, variance = float(np.mean(draws == 0)), float(np.var(draws))
    spread_zeros = math.sqrt(0.24492 * 0.75508 / len(draws))
    spread_variance = math.sqrt(float(np.var(draws.astype(float) ** 2)) / len(draws))
    assert abs(zeros - 0.24492) < 4.9 * spread_zeros
    assert abs(variance - 7.835) < 4.9 * spread_variance
    for wrong in (1.8, 2.2):
        p = math.exp(-1 / wrong)
        assert abs((1 - p) / (1 + p) - 0.24492) > 9.8 * spread_zeros
        assert abs(2 * p / (1 - p) ** 2 - 7.835) > 9.8 * spread_variance


@pytest.mark.parametrize(("n_terms", "scale"), [(1, 2.0), (4, 7.0), (40, 3.0)])
def test_the_sum_bound_is_one(n_terms: int, scale: float) -> None:
    """Against the exact law of the sum, by convolution."""
    n = math.ceil(60 * scale * math.sqrt(n_terms))
    x = np.arange(-n, n + 1)
    mass = np.exp(-np.abs(x) / scale)
    mass /= mass.sum()
    total = np.array([1.0])
    for _ in range(n_terms):
        total = np.convolve(total, mass)
    distance = np.abs(np.arange(len(total)) - len(total) // 2)
    for probability in (0.3, 0.05, 1e-4):
        bound = sum_bound(n_terms, Fraction(scale), probability)
        assert total[distance > bound].sum() <= probability
        assert total[distance > bound / 6].sum() > probability, "and not a useless one"
