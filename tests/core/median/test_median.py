"""Pieces of the median mechanism, each against a second computation."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath as mp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import integrate, stats

from stream_dp.core.budget.logarithms import ln_bounds, log2_bounds, log_add, log_binomial_tail
from stream_dp.core.median.consistent_set import Distribution
from stream_dp.core.median.easiness import EASINESS_ERROR, MIN_UNITS, Easiness, EasinessTest
from stream_dp.core.median.formulas import (
    hard_limit,
    hypothesis_rows,
    inverse_privacy,
    last_threshold,
    log_tau,
    noise_failure,
)

_CONTEXT = mp.mp.clone()
_CONTEXT.dps = 90


def high(x: Fraction | int) -> mp.mpf:
    """A fraction with 90 digits."""
    fraction = Fraction(x)
    return _CONTEXT.mpf(fraction.numerator) / fraction.denominator


def exact(x: mp.mpf) -> Fraction:
    sign, mantissa, exponent, _ = x._mpf_
    return (-1) ** sign * Fraction(int(mantissa)) * Fraction(2) ** exponent


# ---------------------------------------------------------------- logarithms and constants


@settings(deadline=None)
@given(st.fractions(min_value=Fraction(1, 10**30), max_value=10**40))
def test_logarithms_are_bracketed_tightly(x: Fraction) -> None:
    if x <= 0:
        return
    low, up = ln_bounds(x)
    assert low < exact(_CONTEXT.log(high(x))) < up
    assert up - low < Fraction(1, 10**47)


@pytest.mark.parametrize("x", [1, 2, 3, 1024, 10**4, 2**63])
def test_binary_logarithms_are_bracketed(x: int) -> None:
    low, up = log2_bounds(x)
    assert low <= exact(_CONTEXT.log(x) / _CONTEXT.log(2)) <= up
    assert up - low < Fraction(1, 10**45)


def test_the_papers_constants_come_out_as_published() -> None:
    """k = 100, eps = 0.1, alpha = 1, N = 16."""
    m = hypothesis_rows(100, Fraction(1, 10))
    assert m == 169_660_740
    assert 1 / inverse_privacy(Fraction(1), m, 16) == pytest.approx(2.953e-12, rel=2e-4)
    assert hard_limit(m, 16) == 9_407_989_086


@settings(deadline=None)
@given(
    k=st.integers(2, 10**9),
    eps=st.fractions(min_value=Fraction(1, 10**4), max_value=Fraction(899, 1000)),
    alpha=st.fractions(min_value=Fraction(1, 100), max_value=10),
    n_cells=st.integers(2, 2**20),
)
def test_constants_are_the_formulas_rounded_towards_privacy(
    k: int, eps: Fraction, alpha: Fraction, n_cells: int
) -> None:
    m = hypothesis_rows(k, eps)
    exact_m = 160_000 * _CONTEXT.log(k) * -_CONTEXT.log(high(eps)) / high(eps) ** 2
    assert m - 1 <= exact_m <= m
    inverse = inverse_privacy(alpha, m, n_cells)
    exact_inverse = 720 * m * _CONTEXT.log(n_cells) / high(alpha)
    assert inverse - 1 <= exact_inverse <= inverse
    limit = hard_limit(m, n_cells)
    assert limit <= 20 * m * _CONTEXT.log(n_cells) <= limit + 1


# ---------------------------------------------------------------- easiness


def exact_easiness(distribution: Distribution, error: Fraction, share: Fraction) -> mp.mpf:
    total = _CONTEXT.mpf(0)
    for value, weight in zip(distribution.values, distribution.weights, strict=True):
        total += weight * _CONTEXT.exp(-high(abs(share - value) / error))
    return total / sum(distribution.weights)


distributions = st.lists(
    st.tuples(st.fractions(0, 1, max_denominator=10**6), st.integers(1, 10**30)),
    min_size=1,
    max_size=12,
    unique_by=lambda pair: pair[0],
).map(lambda pairs: Distribution(*map(tuple, zip(*sorted(pairs), strict=True))))  # type: ignore[arg-type]


@settings(deadline=None)
@given(
    distribution=distributions,
    error=st.fractions(Fraction(1, 10**6), Fraction(899, 1000), max_denominator=10**6),
    n_rows=st.integers(1, 2**70),
    data=st.data(),
)
def test_the_easiness_is_computed_within_its_stated_error(
    distribution: Distribution, error: Fraction, n_rows: int, data: st.DataObject
) -> None:
    error = max(error, Fraction(1, 10**6))
    count = data.draw(st.integers(0, n_rows))
    computed = Easiness(distribution, error, n_rows)(count)
    truth = exact(exact_easiness(distribution, error, Fraction(count, n_rows)))
    assert abs(computed - truth) <= EASINESS_ERROR
    assert 0 <= computed <= 1


def test_the_easiness_of_a_long_distribution_is_within_its_stated_error() -> None:
    rng = np.random.default_rng(3)
    values = tuple(Fraction(int(v), 10**9) for v in np.unique(rng.integers(0, 10**9, 5_000)))
    distribution = Distribution(values, tuple(int(w) for w in rng.integers(1, 9, len(values))))
    easiness = Easiness(distribution, Fraction(1, 20), 10**18)
    for count in (0, 10**18, 10**17 + 3):
        truth = exact(exact_easiness(distribution, Fraction(1, 20), Fraction(count, 10**18)))
        assert abs(easiness(count) - truth) <= EASINESS_ERROR


def test_the_easiness_is_one_exactly_where_all_hypotheses_agree_with_the_count() -> None:
    easiness = Easiness(Distribution((Fraction(1, 4),), (7,)), Fraction(1, 10), 400)
    assert easiness(100) == 1
    assert easiness(101) < 1
    assert easiness(99) < 1


@given(
    distribution=distributions,
    error=st.fractions(Fraction(1, 100), Fraction(899, 1000), max_denominator=1000),
    offset=st.fractions(-3, 3, max_denominator=100),
)
def test_an_easy_answer_is_within_the_error_whatever_the_hypotheses_say(
    distribution: Distribution, error: Fraction, offset: Fraction
) -> None:
    """An answer is rounded to a row, and an easiness near 3/4 may be called easy by its noise."""
    error, n_rows = max(error, Fraction(1, 100)), 10**18
    answer = round(distribution.lower_median * n_rows)
    count = min(n_rows, max(0, round(answer + offset * error * n_rows)))
    if abs(answer - count) > error * n_rows:
        assert Easiness(distribution, error, n_rows)(count) < Fraction(7, 10)


def test_an_easiness_outside_the_proved_range_is_refused() -> None:
    distribution = Distribution((Fraction(0),), (1,))
    for error in (Fraction(1, 10**7), Fraction(9, 10)):
        with pytest.raises(ValueError, match="range"):
            Easiness(distribution, error, 10)


# ---------------------------------------------------------------- the gate


def gate(n_rows: int, sensitivity: int = 256, error: Fraction = Fraction(1, 10)) -> EasinessTest:
    return EasinessTest.of(
        n_rows=n_rows,
        n_queries=100,
        error=error,
        inverse_privacy=10**4,
        inverse_slip=Fraction(10**4),
        sensitivity=sensitivity,
    )


@pytest.mark.parametrize("sensitivity", [MIN_UNITS, 5, 64, 256])
@pytest.mark.parametrize("n_rows", [10**9, 10**18])
def test_one_row_moves_the_rounded_easiness_by_less_than_its_noise_covers(
    sensitivity: int, n_rows: int
) -> None:
    """And by nearly half of it, so that half the noise would not cover it."""
    test = gate(n_rows, sensitivity)
    largest = 0
    peak = Distribution((Fraction(1, 2),), (1,))
    wide = Distribution((Fraction(1, 3), Fraction(1, 2), Fraction(2, 3)), (3, 5, 4))
    for distribution in (peak, wide):
        easiness = Easiness(distribution, Fraction(1, 10), n_rows)
        for near in (0, n_rows // 3, n_rows // 2, n_rows // 2 + 1, n_rows - 40):
            units = [test.units(easiness(near + step)) for step in range(40)]
            largest = max(largest, *(abs(a - b) for a, b in itertools.pairwise(units)))
    assert largest <= sensitivity
    assert largest >= sensitivity // 2 - 1


def test_fewer_units_than_hold_the_rounding_are_refused() -> None:
    with pytest.raises(ValueError, match="rounding"):
        gate(10**9, MIN_UNITS - 1)


@settings(deadline=None)
@given(
    n_rows=st.integers(10**9, 2**62),
    k=st.integers(2, 10**9),
    inverse=st.integers(500, 2**42),
    sensitivity=st.integers(MIN_UNITS, 256),
    error=st.fractions(Fraction(1, 100), Fraction(4, 5), max_denominator=1000),
    slip=st.none() | st.fractions(Fraction(1, 100), Fraction(2), max_denominator=1000),
)
def test_the_gates_integers_are_the_papers_formulas(
    n_rows: int, k: int, inverse: int, sensitivity: int, error: Fraction, slip: Fraction | None
) -> None:
    """With alpha' in the logarithm of gamma, as in the memory mechanism, and with alpha."""
    inverse_slip = Fraction(inverse) if slip is None else 1 / slip
    test = EasinessTest.of(
        n_rows=n_rows,
        n_queries=k,
        error=error,
        inverse_privacy=inverse,
        inverse_slip=inverse_slip,
        sensitivity=sensitivity,
    )
    scale = 2 * inverse / (high(error) * n_rows)  # of the easiness' noise
    gamma = 4 * inverse / (high(error) * n_rows) * _CONTEXT.log(2 * k * high(inverse_slip))
    assert float(_CONTEXT.mpf(test.scale) / test.one) == pytest.approx(float(scale), rel=1e-5)
    assert float(_CONTEXT.mpf(test.step) / test.one) == pytest.approx(float(gamma), rel=1e-4)
    assert test.last <= 3 / (20 * gamma)
    assert test.last == min(1024, math.floor(3 * test.one / (20 * test.step)))
    assert 3 * test.one <= 4 * test.base < 3 * test.one + 4
    assert test.base + test.last * test.step <= 0.9 * test.one + 1


@settings(deadline=None)
@given(
    k=st.integers(2, 10**6),
    inverse=st.integers(500, 2**42),
    slip=st.none() | st.fractions(Fraction(1, 100), Fraction(2), max_denominator=1000),
    sensitivity=st.integers(4, 256),
)
def test_a_neighbour_of_an_easy_dataset_is_hardly_ever_called_hard(
    k: int, inverse: int, slip: Fraction | None, sensitivity: int
) -> None:
    """Kim 2017, Lemma 3.9: with probability at most x/(4k), computed from the sampler's own law."""
    inverse_slip = Fraction(inverse) if slip is None else 1 / slip
    test = EasinessTest.of(
        n_rows=10**18,
        n_queries=k,
        error=Fraction(1, 10),
        inverse_privacy=inverse,
        inverse_slip=inverse_slip,
        sensitivity=sensitivity,
    )
    worst = test.base + test.step - test.sensitivity  # a neighbour's easiness, in units
    below = test.base - 1 - worst  # largest noise that calls it hard
    assert test.is_easy(worst, noise=below + 1, index=0)
    assert not test.is_easy(worst, noise=below, index=0)
    decay = _CONTEXT.exp(-_CONTEXT.mpf(1) / test.scale)
    probability = decay**-below / (1 + decay)
    assert probability <= 1 / (4 * k * high(inverse_slip))


def test_a_query_is_easy_from_the_threshold_on() -> None:
    test = gate(10**9)
    for index in (0, 3, test.last):
        threshold = test.base + index * test.step
        assert test.is_easy(threshold, noise=0, index=index)
        assert not test.is_easy(threshold, noise=-1, index=index)


# ---------------------------------------------------------------- probabilities of failure


def test_the_noise_fails_as_often_as_published() -> None:
    """At the thesis' own n_min: 0.51 for k = 100, above 1 for k <= 16, 2.7e-5 for k = 1e4; alpha = 1."""

    def at(k: int) -> float:
        return noise_failure(k, 30.0 * math.log(2 * k) * math.log2(k))

    assert at(100) == pytest.approx(0.51, abs=0.005)
    assert at(10**4) == pytest.approx(2.7e-5, rel=0.02)
    assert all(at(k) > 1.0 for k in range(2, 17))


def test_the_noise_failure_is_two_laplace_tails_a_query() -> None:
    k, eps, n, alpha = 50, 0.1, 1e6, 2e-2  # alpha stands for alpha'

    def tail(scale: float, beyond: float) -> float:
        value, _ = integrate.quad(
            lambda x: math.exp(-x / scale) / scale, beyond, beyond + 60 * scale
        )
        return float(value)

    easiness = tail(2.0 / (eps * n * alpha), 0.01)
    answer = tail(1.0 / (n * alpha), eps / 100.0)
    assert noise_failure(k, eps * n * alpha) == pytest.approx(k * (easiness + answer), rel=1e-6)


@pytest.mark.parametrize(
    ("n", "p", "k"),
    [
        (1_000, Fraction(1, 4095), 4),
        (300, Fraction(1, 3), 100),
        (50, Fraction(1, 3), 49),
        (10**6, Fraction(1, 1000), 1_100),
        (10**9, Fraction(1, 2**20 - 1), 1_200),
    ],
)
def test_the_binomial_tail_is_exact(n: int, p: Fraction, k: int) -> None:
    computed = log_binomial_tail(n, p, k)
    assert computed == pytest.approx(float(stats.binom.logsf(k, n, float(p))), rel=2e-6)


def test_the_binomial_tail_is_exact_where_floats_underflow() -> None:
    n, p, k = 400, Fraction(1, 2**12 - 1), 390
    tail = sum(math.comb(n, x) * p**x * (1 - p) ** (n - x) for x in range(k + 1, n + 1))
    assert log_binomial_tail(n, p, k) == pytest.approx(float(_CONTEXT.log(high(tail))), rel=1e-12)


def test_the_binomial_tail_is_bounded_by_one_near_the_mean_and_zero_beyond_the_end() -> None:
    assert log_binomial_tail(100, Fraction(1, 3), 10) == 0.0
    assert log_binomial_tail(100, Fraction(1, 3), 100) == -math.inf


def test_the_last_thresholds_probability_is_that_of_the_truncated_geometric() -> None:
    """``log_tau`` takes ``2^-L / (2 - 2^-L)``: one query, no extent to speak of."""
    for last in (1, 2, 5, 11):
        weights = [Fraction(1, 2**x) for x in range(last + 1)]
        share = weights[-1] / sum(weights)
        assert math.exp(log_tau(0, 2, 1, last).last_index) == pytest.approx(float(share))


@pytest.mark.parametrize("extent", [1, 2, 4, 8, 16])
def test_the_concentration_term_bounds_the_worst_adversary(extent: int) -> None:
    """159 bad ones before 20 hard ones are passed, where one in five of the two kinds is hard.

    An adversary does best when the two events exclude each other and hard ones come as rarely as they may,
    a quarter as often. The bound must hold, and not by more than a factor that grows slower than itself.
    """
    wanted, allowed = 159 * extent, 20 * extent
    worst = float(stats.binom.logcdf(allowed, wanted + allowed, 0.2))
    bound = -4.99 * extent
    assert worst <= bound
    assert worst >= 1.05 * bound - 3.0


def test_tau_agrees_with_a_simulation_of_thresholds() -> None:
    """How often the last threshold is drawn more than m ln N times. False alarm 1e-6; 10% off fails."""
    k, last, rows, n_cells, trials = 400, 4, 6, 8, 200_000
    weights = 0.5 ** np.arange(last + 1)
    drawn = np.random.default_rng(11).binomial(k, weights[-1] / weights.sum(), size=trials)
    hits = int(np.sum(drawn > rows * math.log(n_cells)))
    bound = math.exp(log_tau(rows, n_cells, k, last).last_index)
    if bound == 1.0:
        pytest.fail("the case must lie above the mean")
    assert stats.binomtest(hits, trials, bound).pvalue > 1e-6
    assert stats.binomtest(hits, trials, 0.9 * bound).pvalue < 1e-6


def test_both_terms_of_tau_are_summed_in_log_space() -> None:
    tau = log_tau(169_660_740, 16, 100, 7)
    assert tau.concentration == pytest.approx(-4.99 * 169_660_740 * math.log(16))
    assert tau.last_index == -math.inf
    assert tau.total == tau.concentration
    assert log_add(math.log(0.2), math.log(0.3)) == pytest.approx(math.log(0.5))
    assert log_add(-math.inf, -math.inf) == -math.inf
    assert log_add(-1e9, -1e9) == pytest.approx(-1e9 + math.log(2.0))


def test_the_smallest_last_threshold_follows_from_the_number_of_queries() -> None:
    assert [last_threshold(k) for k in (2, 3, 100, 255, 256, 10**4)] == [1, 1, 7, 8, 9, 14]
    assert all(
        last_threshold(k) == math.floor(1.125 * math.log2(k) + 1e-9) for k in range(2, 10_000)
    )
