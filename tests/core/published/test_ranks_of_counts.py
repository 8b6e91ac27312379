"""How far counts must differ: the range of normal numbers, and exactly that of integer noise (Theorem 26)."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import norm

from stream_dp.core.published.rank_gap import range_width, wider_for
from stream_dp.core.residual.belief.anytime import ALL_TIMES, Directions, z_steered


def z_of(failure: float) -> float:
    return float(norm.isf(failure / 2))


@pytest.mark.parametrize(("n", "width"), [(2, 3.6428), (10, 5.1566), (15, 5.4485), (42, 6.1218)])
def test_the_range_is_that_of_the_tables(n: int, width: float) -> None:
    """Quantiles of the studentized range with infinitely many degrees of freedom, as printed."""
    assert range_width(n, z_of(0.01)) == pytest.approx(width, abs=5e-5)


@pytest.mark.parametrize("n", [2, 3, 10, 300])
@pytest.mark.parametrize("failure", [0.3, 0.01, 1e-5])
def test_a_quadrature_over_the_smallest_number_agrees(n: int, failure: float) -> None:
    width = range_width(n, z_of(failure))

    def beyond(x: float) -> float:
        return float(
            n * norm.pdf(x) * (norm.sf(x) ** (n - 1) - (norm.sf(x) - norm.sf(x + width)) ** (n - 1))
        )

    found, _ = quad(beyond, -12, 12, epsabs=1e-12, limit=400)
    assert found == pytest.approx(failure, rel=1e-5)


def test_pairs_need_less_than_bars_at_once_and_more_than_each_pair_alone() -> None:
    for n in (3, 15, 2_000, 65_536):
        for failure in (0.2, 0.01, 1e-9, 1e-60):
            z = z_of(failure)
            assert math.sqrt(2) * z < range_width(n, z) < 2 * wider_for(n, z)


@pytest.mark.parametrize("n", [1, 12, 2_000])
def test_bars_at_once_share_the_failure_probability(n: int) -> None:
    assert wider_for(n, z_of(0.01)) == pytest.approx(z_of(0.01 / n), rel=1e-9)


def exact(n: int, sigma: float, width: float) -> float:
    """The probability that the range of ``n`` independent integers of the discrete Gaussian is above this."""
    reach = math.ceil(12 * sigma) + math.ceil(width)
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-np.square(values / sigma) / 2)
    below = np.concatenate([[0.0], np.cumsum(weights / weights.sum())])  # of all that are smaller
    least = np.arange(len(values))
    end = np.minimum(least + math.floor(width) + 1, len(values))
    inside = (below[end] - below[least]) ** n - (below[end] - below[least + 1]) ** n
    return float(1.0 - inside.sum())


@pytest.mark.parametrize("n", [2, 10, 42, 300])
@pytest.mark.parametrize("sigma", [4.0, 23.7, 126.411])
def test_integer_noise_is_told_apart_wrongly_no_more_often(n: int, sigma: float) -> None:
    """With the row that rounding takes. Without a tenth of the width, it happens more often."""
    width = range_width(n, z_of(0.01)) * sigma
    assert exact(n, sigma, width + 1.0) <= 0.01
    assert exact(n, sigma, width) <= 0.01 * (1.0 + 3.0 / sigma)
    assert exact(n, sigma, 0.9 * width + 1.0) > (0.01 if sigma > 10 else 0.0)


@pytest.mark.parametrize("n", [3, 15, 2_000])
@pytest.mark.parametrize("failure", [0.3, 0.01, 1e-6])
def test_bars_at_all_times_grow_by_less_than_those_of_a_last_look(n: int, failure: float) -> None:
    """What the bars are built for is the same: an error of 50 rows at the plain failure probability."""
    draw, last = np.random.default_rng(3), z_of(0.7 * failure)
    most = wider_for(n, last) / last
    for directions in (1, 2, 30):
        known = draw.uniform(1.0, 1e4, (directions, 1))
        made = Directions(np.ones((1, directions)), known, 2 * known, np.zeros(1))
        shares = [0.05 * share / ALL_TIMES for share in (failure, failure / n)]
        alone, at_once = (made.bars(50.0 * z_steered(math.log(share)), share) for share in shares)
        assert alone < at_once <= most * alone
