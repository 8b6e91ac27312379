"""Privacy loss in integers, against exact fractions and against dp-accounting."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from dp_accounting.rdp import rdp_privacy_accountant
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.core.budget.accountant import (
    UNITS,
    Budget,
    Charge,
    Lines,
    epsilon_of,
    gaussian_rho,
    rho_max,
    summed,
)
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.errors import BudgetExceeded, InvalidDefinition

PRIVACY = Privacy(1.0, 1e-9)


def tight_delta(rho: float, epsilon: float) -> float:
    """Canonne, Kamath, Steinke's delta by brute force over a fine grid of orders."""
    a = 1.0 + np.geomspace(1e-3, 1e5, 400_000)
    log_delta = (a - 1) * (a * rho - epsilon) - np.log(a - 1) + a * np.log1p(-1 / a)
    return float(np.exp(log_delta.min()))


def test_the_tight_conversion_is_used_and_not_the_loose_one() -> None:
    rho = float(rho_max(1.0, 1e-9))
    assert rho == pytest.approx(0.0149731, abs=5e-8)
    loose = 0.0117812
    assert loose + 2 * math.sqrt(loose * math.log(1e9)) == pytest.approx(1.0, abs=1e-4)
    assert rho > 1.27 * loose


@pytest.mark.parametrize(
    ("epsilon", "delta"), [(1.0, 1e-9), (0.1, 1e-6), (10.0, 1e-12), (3.0, 0.1), (1e-3, 1e-9)]
)
def test_rho_max_is_the_last_rho_that_keeps_the_promise(epsilon: float, delta: float) -> None:
    rho = float(rho_max(epsilon, delta))
    assert tight_delta(rho, epsilon) <= delta * (1 + 1e-6)
    assert tight_delta(rho * (1 + 1e-5), epsilon) > delta


@pytest.mark.parametrize("delta", [1e-12, 1e-9, 1e-5])
@pytest.mark.parametrize("rho", [1e-4, 0.0149731, 0.5])
def test_epsilon_agrees_with_dp_accounting(rho: float, delta: float) -> None:
    orders = 1.0 + np.geomspace(0.05, 4000.0, 20_000)
    reference, _ = rdp_privacy_accountant.compute_epsilon(orders, orders * rho, delta)
    ours = epsilon_of(Fraction(rho), delta)
    assert ours == pytest.approx(reference, rel=1e-5)
    assert ours <= reference * (1 + 1e-9), "their grid of orders can only be worse than the minimum"


@given(st.floats(1e-3, 20.0), st.floats(1e-15, 0.2))
def test_conversion_there_and_back_never_gains(epsilon: float, delta: float) -> None:
    rho = rho_max(epsilon, delta)
    assert epsilon_of(rho, delta) == pytest.approx(epsilon, rel=1e-6)
    assert epsilon_of(rho * Fraction(101, 100), delta) > epsilon


def test_a_person_with_k_rows_is_protected_at_k_squared_rho() -> None:
    rho = rho_max(1.0, 1e-9)
    seen = [epsilon_of(rho * k * k, 1e-9) for k in (2, 3, 5, 10)]
    assert seen == pytest.approx([2.07, 3.18, 5.52, 11.97], abs=0.01)


def test_nothing_spent_is_no_loss_and_pure_privacy_has_no_rho() -> None:
    assert epsilon_of(Fraction(0), 1e-9) == 0.0
    assert epsilon_of(Fraction(1, 10**30), 1e-9) == 0.0
    assert epsilon_of(Fraction(1), 0.0) == math.inf
    assert rho_max(1.0, 0.0) == 0
    with pytest.raises(InvalidDefinition, match=r"privacy\.delta"):
        Budget.of(Privacy(1.0, 0.0))


@pytest.mark.parametrize(("squared_sensitivity", "shares"), [(1, 2), (2, 1)])
def test_gaussian_noise_costs_what_the_theorem_says(squared_sensitivity: int, shares: int) -> None:
    sigma = Fraction(37, 8)
    rho = gaussian_rho(sigma, squared_sensitivity=squared_sensitivity)
    assert rho * shares * sigma**2 == 1


@given(st.fractions(Fraction(1, 10**9), Fraction(1, 70)), st.integers(1, 5))
def test_a_charge_is_the_exact_price_rounded_up(rho: Fraction, times: int) -> None:
    budget = Budget.of(PRIVACY)
    charge = budget.charge(3, rho)
    exact = rho * UNITS / budget.rho
    assert charge == Charge(3, charge.rho, 0)
    assert exact <= charge.rho < exact + 1
    lines = Lines()
    for _ in range(4):
        lines.open()
    for _ in range(times):
        if lines.afford([charge]):
            lines.charge([charge])
    assert lines.spent(3).rho * budget.rho / UNITS >= lines.spent(3).rho // charge.rho * rho
    assert lines.spent(3).rho <= UNITS


def test_half_of_delta_is_kept_for_looks_that_are_not_pure() -> None:
    pure, mixed = Budget.of(PRIVACY), Budget.of(PRIVACY, approximate=True)
    assert pure.rho == rho_max(1.0, 1e-9)
    assert pure.delta == 0
    assert mixed.rho == rho_max(1.0, 1e-9 / 2) < pure.rho
    assert mixed.delta == Fraction(1e-9 / 2)
    with pytest.raises(BudgetExceeded):
        pure.charge(0, Fraction(0), Fraction(1, 10**12))
    assert mixed.charge(0, Fraction(0), mixed.delta).delta == UNITS


def test_a_full_line_is_reported_as_the_promised_epsilon() -> None:
    for budget in (Budget.of(PRIVACY), Budget.of(PRIVACY, approximate=True)):
        full_delta = UNITS if budget.delta else 0
        assert budget.epsilon(Charge(0, UNITS, full_delta)) == pytest.approx(1.0, rel=1e-9)
        assert budget.epsilon(Charge(0, UNITS // 4, 0)) < 0.55
        assert budget.epsilon(Charge(0, 0, 0)) == 0.0


def test_a_line_takes_its_last_unit_and_not_one_more() -> None:
    lines = Lines()
    lines.open()
    lines.charge([Charge(0, UNITS - 1)])
    assert lines.afford([Charge(0, 1)])
    assert not lines.afford([Charge(0, 1), Charge(0, 1)]), "two looks at one block add up"
    lines.charge([Charge(0, 1)])
    assert lines.left().tolist() == [0]
    with pytest.raises(BudgetExceeded):
        lines.charge([Charge(0, 1)])


def test_a_refused_charge_leaves_no_trace() -> None:
    lines = Lines()
    lines.open()
    lines.open()
    with pytest.raises(BudgetExceeded):
        lines.charge([Charge(0, 5), Charge(1, UNITS + 1)])
    with pytest.raises(BudgetExceeded):
        lines.charge([Charge(0, 5, 1), Charge(0, 5, UNITS)])
    with pytest.raises(ValueError, match="never negative"):
        lines.charge([Charge(0, -5)])
    assert lines.left().tolist() == [UNITS, UNITS]


def test_charges_are_summed_by_block_and_in_its_order() -> None:
    charges = [Charge(2, 5, 1), Charge(0, 3, 0), Charge(2, 4, 2), Charge(0, 0, 7)]
    assert summed(charges) == (Charge(0, 3, 7), Charge(2, 9, 3))
    assert summed([]) == ()


def test_lines_grow_with_the_phases_and_stay_apart() -> None:
    lines = Lines()
    for block in range(40):
        assert lines.open() == block
        lines.charge([Charge(block, block, 40 - block)])
    assert lines.left(range(38, 40)).tolist() == [UNITS - 38, UNITS - 39]
    assert lines.spent(7) == Charge(7, 7, 33)
    assert lines.worst(range(5, 9)) == Charge(8, 8, 35)
    with pytest.raises(IndexError):
        lines.spent(40)
    assert len(lines) == 40


@pytest.mark.parametrize(
    ("epsilon", "delta"),
    [
        (0, 1e-9),
        (-1.0, 1e-9),
        (1, 1),
        (1, -1e-9),
        (float("nan"), 0),
        ("1", 0),
        (True, 0),
        (10**400, 0),
    ],
)
def test_privacy_out_of_range_is_refused_by_name(epsilon: float, delta: float) -> None:
    with pytest.raises(InvalidDefinition, match=r"privacy\.(epsilon|delta): is not"):
        Privacy(epsilon, delta)


@pytest.mark.parametrize(("error", "failure"), [(0, 0.1), (1, 0.1), (0.1, 0), (0.1, 1.0)])
def test_accuracy_out_of_range_is_refused_by_name(error: float, failure: float) -> None:
    with pytest.raises(InvalidDefinition, match=r"accuracy\.(error|failure_probability): is not"):
        Accuracy(error, failure)
