"""Sums and means against brute force, their bars against many draws of the noise."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from stream_dp.core.queries.query import LinearQuery, Predicate, Total
from stream_dp.core.residual.belief.evidence import Belief
from stream_dp.core.residual.belief.linear_forms import TableForm, form_of
from stream_dp.core.residual.belief.sums import Moments, form_of_total, ratio_bar, rows_query
from stream_dp.core.rows.universe import Number
from stream_dp.errors import InvalidDefinition

ALARM = 1e-6
GROUPS, BINS = 60, 5
VALUES = (-10.0, 0.0, 15.0, 45.0, 80.0)
EARLY = Predicate.conjunction({1: np.array([True, True, True, True, False])})
QUERY = LinearQuery(EARLY, range(1), (0,), Total(1, VALUES))


def believing(truth: npt.NDArray[np.int64], scale: float, draw: np.random.Generator) -> Belief:
    belief = Belief(truth.shape)
    belief.open_block(int(truth.sum()))
    belief.absorb_table((0, 1), 0, truth + draw.normal(0.0, scale, truth.shape), 400.0)
    return belief


@given(st.lists(st.booleans(), min_size=12, max_size=12).filter(lambda m: any(m) and not all(m)))
def test_weights_of_one_and_zero_ask_what_a_predicate_asks(mask: list[bool]) -> None:
    shape = (3, 4)
    predicate = Predicate.of_mask((0, 1), np.array(mask).reshape(shape))
    weighted = TableForm(predicate, (), shape, ((1,), np.ones(4)))
    plain = TableForm(predicate, (), shape)
    belief = Belief(shape)
    belief.open_block(1000)
    table = np.random.default_rng(1).integers(0, 100, shape).astype(float)
    belief.absorb_table((0, 1), 0, table, 9.0)
    asked = belief.evidence(weighted, b"one", range(1))
    same = belief.evidence(plain, b"two", range(1))
    assert asked.values == pytest.approx(same.values)
    assert asked.variances == pytest.approx(same.variances)


def test_estimates_of_exact_tables_are_the_sums_and_counts_themselves() -> None:
    truth = np.random.default_rng(2).integers(0, 500, (GROUPS, BINS))
    known = believing(truth, 0.0, np.random.default_rng(3)).sums(QUERY).sums
    inside = truth[:, :4]
    assert known.counts == pytest.approx(inside.sum(axis=1))
    assert known.totals * 80.0 == pytest.approx(inside @ np.array(VALUES[:4]))


def test_the_count_of_all_rows_is_estimated_from_the_same_table_as_a_predicate_is() -> None:
    """Of the rows in bin 1 or 4 of which bin 4 has no number; group 7 has some of the latter alone."""
    mask = np.zeros((GROUPS, BINS), dtype=np.bool_)
    mask[:, 1] = mask[7, 4] = True
    mask[7, 1] = False
    valued = Predicate.of_mask((0, 1), mask & (np.arange(BINS) < 4))
    every = Predicate.of_mask((0, 1), mask)
    query = LinearQuery(valued, range(1), (0,), Total(1, VALUES), every)
    truth = np.random.default_rng(2).integers(1, 500, (GROUPS, BINS))
    belief = believing(truth, 0.0, np.random.default_rng(3))
    known = belief.sums(query).sums
    assert known.live is not None
    assert not known.live[7]
    counted = rows_query(query, total_known=True)
    assert counted == LinearQuery(every, range(1), (0,))
    alone = belief.evidence(form_of(counted, truth.shape), b"q", range(1))
    assert alone.values == pytest.approx((truth * mask).sum(axis=1))
    both = belief.evidence(form_of_total(query, truth.shape), b"both", range(1))
    assert len(both.values) == GROUPS - 1 + GROUPS
    assert max(both.variances) == pytest.approx(max(alone.variances))


@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (1.1, False)])
def test_bars_of_sums_and_means_cover_as_often_as_they_say(factor: float, holds: bool) -> None:
    """At 90%; false alarm 1e-6 for each of three counts, and noise a tenth wider than said is noticed."""
    draw = np.random.default_rng(4)
    truth = draw.integers(300, 900, (GROUPS, BINS))
    inside = truth[:, :4]
    counts, totals = inside.sum(axis=1), inside @ np.array(VALUES[:4]) / 80.0
    z = float(norm.ppf(0.95))
    covered = np.zeros(3, dtype=np.int64)
    rounds = 150
    for _ in range(rounds):
        known = believing(truth, 20.0 * factor, draw).sums(QUERY).sums
        covered[0] += np.sum(np.abs(known.totals - totals) <= z * np.sqrt(known.moments.totals))
        covered[1] += np.sum(np.abs(known.counts - counts) <= z * np.sqrt(known.moments.counts))
        for cell in range(GROUPS):
            variances = known.moments.totals[cell], known.moments.counts[cell]
            total, count = float(known.totals[cell]), float(known.counts[cell])
            bar = ratio_bar(total, count, variances, float(known.moments.both[cell]), z)
            assert bar is not None
            covered[2] += abs(total / count - totals[cell] / counts[cell]) <= bar
    for found in covered.tolist():
        alarm = binomtest(found, rounds * GROUPS, 0.9, "less").pvalue < ALARM
        assert alarm is not holds


def test_a_mean_of_next_to_nothing_has_no_bar() -> None:
    assert ratio_bar(3.0, 10.0, (4.0, 25.0), 0.0, 2.6) is None
    assert ratio_bar(3.0, -10.0, (4.0, 1.0), 0.0, 2.6) is None
    assert ratio_bar(3.0, 10.0, (math.inf, math.inf), 0.0, 2.6) is None
    exact = ratio_bar(3.0, 10.0, (0.0, 0.0), 0.0, 2.6)
    assert exact == pytest.approx(0.0)


def test_no_variance_of_a_public_count_falls_below_zero_by_rounding() -> None:
    known = Moments(1092.0, -2e-13, 0.0)
    for both in (-5e-10, -2e-11, 2e-11, 5e-10):
        after, _ = known.with_look(Moments(1.6e6, both, 1.6e-27))
        assert after.counts >= 0.0
        assert after.totals >= 0.0


AGE = Number("age", (18, 30, 45, 65), integer=True, missing=True)


def test_default_representatives_are_the_middles() -> None:
    assert AGE.values == (17.0, 23.5, 37.0, 54.5, 65.0, 0.0)
    assert AGE.binning_error == 9.5


@pytest.mark.parametrize(
    ("representatives", "words"), [((1, 2), "2 for 3 bins"), ((5, 15, 12), "not in its bin")]
)
def test_representatives_that_do_not_fit_are_refused(
    representatives: tuple[float, ...], words: str
) -> None:
    with pytest.raises(InvalidDefinition, match=words):
        Number("x", (10, 20), representatives=representatives)
    assert Number("x", (10, 20), representatives=(0, 12, 20)).values == (0, 12, 20)
