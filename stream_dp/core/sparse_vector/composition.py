"""The ways to add up the losses of a ``PredicateMechanism`` on a line: epsilons as they are, or as zCDP.

A line is full at ``UNITS`` either way. Under ``Basic`` the units are shares of the promised epsilon, and the
promise that is kept is pure. Under ``Concentrated`` they are shares of the rho that implies the promise, as
everywhere else. One data set uses one of the two, and ``composition_of`` reads from its promise which one.
"""

from __future__ import annotations

import math
from fractions import Fraction
from statistics import NormalDist
from typing import ClassVar, TypeAlias

from stream_dp.core.budget.accountant import UNITS, Budget, Charge, gaussian_rho
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.randomness.noise_sources import MAX_SCALE, Kind


class Basic:
    """Epsilons add up, and delta is not needed (Dwork & Roth 2014, Theorem 3.16).

    A count has Laplace noise. ``ln(1/beta)/(n error)``-DP: then ``Pr[|noise| > n error]`` is beta at most.
    """

    kind: ClassVar[Kind] = "laplace"

    def __init__(self, privacy: Privacy) -> None:
        self._budget = Fraction(privacy.epsilon)

    def scale(self, accuracy: Accuracy, n_rows: int) -> Fraction:
        """The scale, in rows, at which a count of ``n_rows`` rows is as accurate as promised."""
        scale = accuracy.error * n_rows / -math.log(accuracy.failure_probability)
        return min(MAX_SCALE, Fraction(scale))

    def of_count(self, scale: Fraction) -> Fraction:
        """The exact loss of one count with noise of this scale, in what this composition adds up."""
        return 1 / scale

    def of_pure(self, epsilon: Fraction) -> Fraction:
        """The loss of an epsilon-DP look, in what this composition adds up."""
        return epsilon

    def charge(self, block: int, loss: Fraction) -> Charge:
        """Returns this loss in units of a line, rounded up."""
        return Charge(block, math.ceil(loss * UNITS / self._budget))

    def epsilon(self, charge: Charge) -> float:
        """The epsilon of a line that spent this, at the promised delta."""
        return float(Fraction(charge.rho, UNITS) * self._budget)


class Concentrated:
    """zCDP adds up, and an epsilon-DP look is ``epsilon^2 / 2``-zCDP (Bun and Steinke 2016, Prop. 1.4).

    A count has Gaussian noise whose two-sided quantile at beta is ``n error``.

    Raises:
        InvalidDefinition: delta is 0.
    """

    kind: ClassVar[Kind] = "gaussian"

    def __init__(self, privacy: Privacy) -> None:
        self._budget = Budget.of(privacy)

    def scale(self, accuracy: Accuracy, n_rows: int) -> Fraction:
        z = -NormalDist().inv_cdf(accuracy.failure_probability / 2.0)
        return min(MAX_SCALE, Fraction(accuracy.error * n_rows / z))

    def of_count(self, scale: Fraction) -> Fraction:
        return gaussian_rho(scale, squared_sensitivity=1)

    def of_pure(self, epsilon: Fraction) -> Fraction:
        return epsilon * epsilon / 2

    def charge(self, block: int, loss: Fraction) -> Charge:
        return self._budget.charge(block, loss)

    def epsilon(self, charge: Charge) -> float:
        return self._budget.epsilon(charge)


Composition: TypeAlias = Basic | Concentrated
"""Prices of looks at one row, and the noise that a count costs least with."""


def composition_of(privacy: Privacy) -> Composition:
    """``Basic`` for a pure promise; ``Concentrated`` where delta allows it, cheaper for all but few looks."""
    return Basic(privacy) if privacy.delta == 0.0 else Concentrated(privacy)
