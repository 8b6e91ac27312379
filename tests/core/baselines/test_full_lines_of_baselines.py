"""What a full line of the worst looks there are reveals: docs/proofs, Theorem 12."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import binom, norm

from stream_dp.core.budget.accountant import UNITS, Budget, Charge
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.sparse_vector.composition import (
    Basic,
    Composition,
    Concentrated,
    composition_of,
)
from stream_dp.core.sparse_vector.gated import Scales
from stream_dp.core.sparse_vector.gates import segment_loss

PROMISES = [Privacy(1.0, 1e-9), Privacy(3.0, 1e-6), Privacy(0.1, 1e-5)]


def revealed(epsilon: float, *bits: tuple[float, int], rho: float = 0.0) -> float:
    """The delta at ``epsilon`` of a Gaussian look of loss ``rho`` and of so many bits, ``(e, how many)``.

    Every e-private look, and every segment of tests, can be computed from a bit that is right ``exp(e)``
    times as often as wrong.
    """
    losses, weights = np.zeros(1), np.ones(1)
    for e, looks in bits:
        right = np.arange(looks + 1)
        losses = np.add.outer(losses, e * (2 * right - looks)).reshape(-1)
        chances = binom.pmf(right, looks, 1.0 / (1.0 + math.exp(-e)))
        weights = np.multiply.outer(weights, chances).reshape(-1)
    needed = epsilon - losses
    mu = math.sqrt(2.0 * rho)
    if mu > 0.0:
        share = norm.cdf(mu / 2 - needed / mu) - np.exp(needed) * norm.cdf(-mu / 2 - needed / mu)
    else:
        share = -np.expm1(np.minimum(needed, 0.0))
    return float(weights @ share)


def afforded(composition: Composition, *losses: Fraction) -> int:
    """How often a line can pay for these looks together."""
    return UNITS // composition.charge(0, sum(losses, Fraction(0))).rho


@pytest.mark.parametrize("privacy", PROMISES)
@pytest.mark.parametrize("looks", [3, 300])
def test_a_full_line_of_segments_that_end_in_laplace_counts_keeps_the_promise(
    privacy: Privacy, looks: int
) -> None:
    """As of ``weights`` and ``bypass``: ``3 e`` for the tests, ``e`` for the count."""
    composition = Concentrated(privacy)
    e = Fraction(math.sqrt(Budget.of(privacy).rho / (5 * looks)))
    segments = afforded(composition, composition.of_pure(3 * e), composition.of_pure(e))
    assert looks - 1 <= segments <= looks

    def of(e: float) -> float:
        return revealed(privacy.epsilon, (3 * e, segments), (e, segments))

    assert of(float(e)) <= privacy.delta
    if looks == 300 and privacy.epsilon >= 1.0:
        assert of(1.1 * float(e)) > privacy.delta, "an e that is a tenth too large is noticed"


@pytest.mark.parametrize("privacy", PROMISES)
@pytest.mark.parametrize("segments", [1, 20, 300])
def test_a_full_line_of_gated_segments_keeps_the_promise(privacy: Privacy, segments: int) -> None:
    """Half for tests, half for Gaussian counts."""
    budget = Budget.of(privacy)
    scales = Scales.of(budget.rho / segments)
    assert segments * budget.charge(0, scales.rho).rho <= UNITS
    gate = float(segment_loss(scales.threshold, scales.query))
    rho = segments / (2 * float(scales.count) ** 2)
    assert revealed(privacy.epsilon, (gate, segments), rho=rho) <= privacy.delta
    if segments == 300 and privacy.epsilon >= 1.0:
        worse = revealed(privacy.epsilon, (1.1 * gate, segments), rho=1.21 * rho)
        assert worse > privacy.delta, "scales that are a tenth too small are noticed"


def test_epsilons_of_a_pure_line_add_up_to_the_promise_and_hardly_less() -> None:
    """Laplace counts and segments of one line, each with its exact epsilon; nothing is lost to delta."""
    privacy = Privacy(1.0, 0.0)
    composition = composition_of(privacy)
    assert isinstance(composition, Basic)
    scale = composition.scale(Accuracy(0.05, 0.01), 10_000)
    e = Fraction(1, 700)
    looks = afforded(composition, composition.of_count(scale), composition.of_pure(4 * e))
    spent = looks * (1 / scale + 4 * e)
    assert 1 - (1 / scale + 4 * e) < spent <= 1
    charge = composition.charge(0, 1 / scale + 4 * e)
    assert composition.epsilon(Charge(0, looks * charge.rho)) >= float(spent)
    assert revealed(1.0, (float(1 / scale), looks), (float(4 * e), looks)) == 0.0
    assert revealed(0.9 * float(spent), (float(1 / scale), looks), (float(4 * e), looks)) > 0.0


def test_the_promise_says_how_losses_add_up() -> None:
    assert isinstance(composition_of(Privacy(1.0, 1e-300)), Concentrated)
