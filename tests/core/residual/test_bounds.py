"""Bounds on conjunctions: valid and tight without noise, rarely wrong with it."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.stats import binomtest, norm

from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.residual.belief.bounds import _forms, sides, two_sided
from stream_dp.core.residual.belief.evidence import Belief, Evidence
from stream_dp.core.residual.belief.linear_forms import Conjunction, form_of, spectrum, variance
from tests.core.residual.least_squares import belief_of

Floats = npt.NDArray[np.float64]
EXACT = 1e-12
NEVER = math.log(1e-9)


def evidence_of(
    counts: Floats, subsets: list[tuple[int, ...]], predicate: Predicate, noise: float = EXACT
) -> Evidence:
    """What exact marginals over ``subsets`` say of a predicate, as if their noise had this variance."""
    belief = belief_of(counts.shape, [], n_rows=int(counts.sum()))
    for attributes in subsets:
        others = tuple(a for a in range(counts.ndim) if a not in attributes)
        belief.absorb_table(attributes, 0, counts.sum(axis=others), noise)
    query = LinearQuery(predicate, range(1))
    return belief.evidence(form_of(query, counts.shape), query.key, range(1))


def pairs(k: int) -> list[tuple[int, ...]]:
    return (
        [(i, j) for i in range(k) for j in range(i + 1, k)] if k > 2 else [(i,) for i in range(k)]
    )


def extremes(counts: Floats, subsets: list[tuple[int, ...]]) -> tuple[float, float]:
    """Least and most rows in the all-ones cell of any binary table with the same marginals."""
    k = counts.ndim
    rows, values = [np.ones(2**k)], [counts.sum()]
    for attributes in subsets:
        for index in np.ndindex((2,) * len(attributes)):
            cell = np.zeros((2,) * k)
            place: list[int | slice] = [slice(None)] * k
            for attribute, value in zip(attributes, index, strict=True):
                place[attribute] = value
            cell[tuple(place)] = 1.0
            rows.append(cell.ravel())
            values.append((cell * counts).sum())
    target = np.zeros(2**k)
    target[-1] = 1.0
    low, high = (
        float(linprog(sign * target, A_eq=np.array(rows), b_eq=values, method="highs").fun or 0.0)
        * sign
        for sign in (1.0, -1.0)
    )
    return low, high


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("seed", range(8))
def test_without_noise_the_bounds_are_the_tightest_there_are(k: int, seed: int) -> None:
    """Against linear programming over all tables with the same marginals."""
    rng = np.random.default_rng(seed)
    counts = (
        rng.multinomial(500, rng.dirichlet(np.full(2**k, 0.4))).reshape((2,) * k).astype(np.float64)
    )
    one = np.array([False, True])
    predicate = Predicate.conjunction(dict.fromkeys(range(k), one))
    low, high = evidence_of(counts, pairs(k), predicate).interval(NEVER)
    assert (low[0], high[0]) == pytest.approx(extremes(counts, pairs(k)), abs=1e-3)


@given(st.integers(0, 2**32 - 1), st.integers(1, 5))
@settings(max_examples=80, deadline=None)
def test_without_noise_the_truth_always_lies_between(seed: int, k: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(2, 5, k).tolist())
    counts = rng.multinomial(1000, rng.dirichlet(np.full(math.prod(shape), 0.2))).astype(np.float64)
    counts = counts.reshape(shape)
    factors = {}
    for a, n in enumerate(shape):
        factor = np.zeros(n, dtype=np.bool_)
        factor[rng.choice(n, rng.integers(1, n), replace=False)] = True
        factors[a] = factor
    inside = Predicate.conjunction(factors)
    outside = Predicate.of_mask(tuple(range(k)), ~inside.mask)
    subsets: list[tuple[int, ...]] = pairs(k) if k > 1 else [(0,)]
    lows, highs = [], []
    for predicate in (inside, outside):
        truth = counts[predicate.mask].sum()
        (low,), (high,) = evidence_of(counts, subsets, predicate).interval(NEVER)
        assert low - 1e-3 <= truth <= high + 1e-3
        lows.append(low)
        highs.append(high)
    n = counts.sum()
    assert (lows[1], highs[1]) == pytest.approx((n - highs[0], n - lows[0]), abs=1e-3)


@pytest.mark.parametrize("k", [2, 3, 4])
def test_the_deviation_of_each_side_is_that_of_its_linear_form(k: int) -> None:
    """A side's weights on the cells, split into interactions, give the same variance."""
    rng = np.random.default_rng(k)
    shape = (3, 4, 2, 3)[:k]
    factors = tuple(np.arange(n) < rng.integers(1, n) for n in shape)
    form = Conjunction(tuple(range(k)), factors)
    belief = belief_of(shape, [], n_rows=1000)
    for attributes in [tuple(range(k)), *pairs(k)]:
        cells = [shape[a] for a in attributes]
        belief.absorb_table(attributes, 0, rng.normal(10, 3, cells), float(rng.uniform(1, 9)))
    evidence = belief.evidence(form, b"", range(1))
    view = evidence.view
    all_sides = sides(form, view, evidence.values, evidence.variances)
    coefficients, n_upper = _forms(k)
    assert all_sides.n_upper == n_upper
    for row, centre, deviation in zip(
        coefficients, all_sides.centres, all_sides.deviations, strict=True
    ):
        weights = np.zeros(shape)
        for subset, coefficient in zip(np.ndindex(*(2,) * k), row, strict=True):
            product = np.ones(())
            for member, factor in zip(subset, factors, strict=True):
                product = np.multiply.outer(product, factor if member else np.ones(len(factor)))
            weights += coefficient * product
        parts = spectrum(weights, average=True)
        squares = np.square(parts)
        for axis in range(k):
            squares = np.add.reduceat(squares, [0, 1], axis=axis)
        norms = np.where(squares < 1e-15, 0.0, squares).reshape(1, -1)
        assert deviation**2 == pytest.approx(variance(norms, view.variances)[0])
        assert centre[0] == pytest.approx((parts * view.spectrum).sum())


def test_a_table_is_bounded_cell_by_cell_as_its_predicates_are() -> None:
    rng = np.random.default_rng(4)
    shape = (3, 4, 2)
    counts = rng.poisson(30, shape).astype(np.float64)
    belief = belief_of(shape, [], n_rows=int(counts.sum()))
    for attributes in pairs(3):
        (other,) = {0, 1, 2} - set(attributes)
        noisy = counts.sum(axis=other)
        belief.absorb_table(attributes, 0, noisy + rng.normal(0, 2, noisy.shape), 4.0)
    condition = np.array([True, True, False, False])
    table = LinearQuery(Predicate.conjunction({1: condition}), range(1), (2, 0))
    lows, highs = belief.evidence(form_of(table, shape), table.key, range(1)).interval(-5.0)
    for index, (c, a) in enumerate(np.ndindex(2, 3)):
        cell = Predicate.conjunction({0: np.arange(3) == a, 1: condition, 2: np.arange(2) == c})
        query = LinearQuery(cell, range(1))
        evidence = belief.evidence(form_of(query, shape), query.key, range(1))
        low, high = evidence.interval(-5.0)
        assert (lows[index], highs[index]) == pytest.approx((low[0], high[0]))


def test_where_nothing_is_known_the_bounds_are_everything() -> None:
    belief = belief_of((2, 3), [], n_rows=70)
    for mask in (
        np.array([[True, False, True], [False, True, True]]),
        np.eye(2, 3, dtype=np.bool_),
    ):
        query = LinearQuery(Predicate.of_mask((0, 1), mask), range(1))
        evidence = belief.evidence(form_of(query, (2, 3)), query.key, range(1))
        low, high = evidence.interval(math.log(0.01))
        assert (low.tolist(), high.tolist()) == ([0.0], [70.0])


def test_noise_that_makes_the_bounds_cross_leaves_a_point_inside() -> None:
    belief = belief_of((2, 2), [], n_rows=100)
    belief.absorb_table((0,), 0, np.array([250.0, -150.0]), 1.0)
    form = Conjunction((0,), (np.array([False, True]),))
    evidence = belief.evidence(form, b"", range(1))
    low, high = evidence.interval(-2.0)
    assert low == high == pytest.approx([0.0])


def test_quantiles_reach_far_below_the_floats() -> None:
    assert two_sided(math.log(0.01)) == pytest.approx(norm.isf(0.005))
    assert two_sided(-5000.0) == pytest.approx(math.sqrt(2 * 5000.0), rel=0.002)


TRIALS = 4000
PROMISED = 0.05


def exclusions(k: int, scale: float, seed: int) -> int:
    """How often bounds exclude the truth, in as many blocks of two kinds of rows only.

    Half of the rows satisfy every condition and half none, so the truth sits on several sides at once
    and nowhere near 0 or all rows, where clipping would hide an error.
    """
    rng = np.random.default_rng(seed)
    shape = (3, 4, 2)[:k]
    counts = np.zeros(shape)
    counts[(0,) * k] = counts[(-1,) * k] = 3000.0
    belief = Belief(shape)
    for block in range(TRIALS):
        belief.open_block(6000)
        for attributes in [tuple(range(k)), *(pairs(k) if k > 1 else [])]:
            exact = counts.sum(axis=tuple(a for a in range(k) if a not in attributes))
            noise = rng.normal(0.0, 20.0 * scale, exact.shape)
            belief.absorb_table(attributes, block, exact + noise, 400.0)
    form = Conjunction(tuple(range(k)), tuple(np.arange(n) == n - 1 for n in shape))
    excluded = 0
    for block in range(TRIALS):
        evidence = belief.evidence(form, b"", range(block, block + 1))
        (low,), (high,) = evidence.interval(math.log(PROMISED))
        excluded += not low <= 3000.0 <= high
    return excluded


@pytest.mark.parametrize("k", [1, 2, 3])
def test_bounds_exclude_the_truth_no_more_often_than_promised(k: int) -> None:
    """One-sided binomial test; false alarms at most 1e-6."""
    excluded = exclusions(k, 1.0, 100 + k)
    assert excluded > 0, "the test can see exclusions"
    assert binomtest(excluded, TRIALS, PROMISED, alternative="greater").pvalue > 1e-6


def test_noise_ten_per_cent_larger_than_said_is_noticed() -> None:
    excluded = exclusions(1, 1.1, 101)
    assert binomtest(excluded, TRIALS, PROMISED, alternative="greater").pvalue < 1e-6
