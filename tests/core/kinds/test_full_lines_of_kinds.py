"""What a full line of the worst looks there are reveals: docs/proofs, Theorem 11."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom, norm

from stream_dp.core.budget.accountant import UNITS, Budget, Lines
from stream_dp.core.budget.parameters import Privacy
from stream_dp.core.kinds.kind_answerer import loss_of
from stream_dp.core.kinds.loss import Loss


def revealed(epsilon: float, *, rho: float, e: float, d: float, looks: int) -> float:
    """The delta at ``epsilon`` of a Gaussian look of loss ``rho`` and of ``looks`` worst (e, d)-private ones.

    A worst look tells the truth with probability d, else a bit that is right ``exp(e)`` times as often as
    wrong; every (e, d)-private look is computed from such a draw.
    """
    right = np.arange(looks + 1)
    weights = binom.pmf(right, looks, 1.0 / (1.0 + math.exp(-e)))
    needed = epsilon - e * (2 * right - looks)
    mu = math.sqrt(2.0 * rho)
    if mu > 0.0:
        share = norm.cdf(mu / 2 - needed / mu) - np.exp(needed) * norm.cdf(-mu / 2 - needed / mu)
    else:
        share = -np.expm1(np.minimum(needed, 0.0))
    good = float(weights @ share)
    return -math.expm1(looks * math.log1p(-d) + math.log1p(-good))


@pytest.mark.parametrize("privacy", [Privacy(1.0, 1e-9), Privacy(3.0, 1e-6), Privacy(0.1, 1e-5)])
@pytest.mark.parametrize("gaussian", [0.0, 0.5])
@pytest.mark.parametrize("looks", [1, 7, 400])
def test_a_full_line_of_worst_looks_keeps_the_promise(
    privacy: Privacy, gaussian: float, looks: int
) -> None:
    budget = Budget.of(privacy, approximate=True)
    loss = loss_of(budget, (1.0 - gaussian) / looks, approximate=True)
    charge = loss.charge(budget, 0)
    assert UNITS * (1.0 - gaussian) - looks <= looks * charge.rho <= UNITS + looks
    assert UNITS * (1.0 - gaussian) - looks <= looks * charge.delta <= UNITS + looks

    def of(e: float, d: float) -> float:
        rho = gaussian * float(budget.rho)
        return revealed(privacy.epsilon, rho=rho, e=e, d=d, looks=looks)

    e, d = float(loss.epsilon), float(loss.delta)
    assert of(e, d) <= privacy.delta
    if gaussian == 0.0:
        assert of(e, 2.2 * d) > privacy.delta, "a delta' charged at less than half is noticed"
    if gaussian == 0.0 and looks == 400 and privacy.epsilon >= 1.0:
        assert of(1.1 * e, d) > privacy.delta, "so is an epsilon that is a tenth too large"


@pytest.mark.parametrize(
    ("share", "looks"), [(0.1, 10), (0.05, 20), (0.3, 3), (1 / 3, 3), (1.0, 1)]
)
def test_a_line_is_full_after_as_many_looks_as_its_shares_say(share: float, looks: int) -> None:
    budget, lines = Budget.of(Privacy(1.0, 1e-9), approximate=True), Lines()
    lines.open()
    charge = loss_of(budget, share, approximate=True).charge(budget, 0)
    for _ in range(looks):
        lines.charge([charge])
    assert not lines.afford([charge])


def test_a_look_gets_the_most_that_its_share_buys() -> None:
    budget = Budget.of(Privacy(1.0, 1e-9), approximate=True)
    for share in (1e-6, 0.1, 1 / 3, 1.0):
        loss = loss_of(budget, share, approximate=True)
        part = Fraction(math.floor(Fraction(str(share)) * UNITS), UNITS)
        assert loss.epsilon**2 / 2 <= part * budget.rho
        more = Fraction(math.nextafter(float(loss.epsilon), 1.0))
        assert more**2 / 2 > part * budget.rho
        assert loss.delta == part * budget.delta
        assert loss_of(budget, share, approximate=False) == Loss(loss.epsilon)
    for share in (0.0, -0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="share of a line"):
            loss_of(budget, share, approximate=True)
