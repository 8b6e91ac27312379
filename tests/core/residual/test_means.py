"""Sums and means: their estimates and bars against brute force, and means with an error of their own.

No mean is told of a group that may be empty.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest, norm

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.parameters import Target
from stream_dp.core.outcome import Path, RefusalCode, Sum, Summed
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate, Total
from stream_dp.core.residual.answers import sum_answers
from stream_dp.core.residual.belief.evidence import Belief
from stream_dp.core.residual.belief.linear_forms import TableForm, form_of
from stream_dp.core.residual.belief.sums import (
    Moments,
    form_of_total,
    least_deviations,
    ratio_bar,
    rows_query,
)
from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidDefinition
from tests.core.residual.host import ALARM, Host, aimed, names, sealed, where
from tests.core.residual.least_squares import belief_of
from tests.noise import QuickNoise

# ---------------------------------------------------------------- estimates and bars

GROUPS, BINS = 60, 5
VALUES = (-10.0, 0.0, 15.0, 45.0, 80.0)
QUERY = LinearQuery(where((GROUPS, BINS), {1: range(4)}), range(1), (0,), Total(1, VALUES))


def believing(truth: npt.NDArray[np.int64], scale: float, draw: np.random.Generator) -> Belief:
    belief = belief_of(truth.shape, [], n_rows=int(truth.sum()))
    belief.absorb_table((0, 1), 0, truth + draw.normal(0.0, scale, truth.shape), 400.0)
    return belief


@given(st.lists(st.booleans(), min_size=12, max_size=12).filter(lambda m: any(m) and not all(m)))
def test_weights_of_one_and_zero_ask_what_a_predicate_asks(mask: list[bool]) -> None:
    shape = (3, 4)
    predicate = Predicate.of_mask((0, 1), np.array(mask).reshape(shape))
    belief = belief_of(shape, [], n_rows=1000)
    table = np.random.default_rng(1).integers(0, 100, shape).astype(float)
    belief.absorb_table((0, 1), 0, table, 9.0)
    forms = TableForm(predicate, (), shape, ((1,), np.ones(4))), TableForm(predicate, (), shape)
    weighted, plain = (belief.evidence(form, b"%d" % i, range(1)) for i, form in enumerate(forms))
    assert weighted.values == pytest.approx(plain.values)
    assert weighted.variances == pytest.approx(plain.variances)


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
        moments = known.moments
        covered[0] += np.sum(np.abs(known.totals - totals) <= z * np.sqrt(moments.totals))
        covered[1] += np.sum(np.abs(known.counts - counts) <= z * np.sqrt(moments.counts))
        each = (known.totals, known.counts, moments.totals, moments.counts, moments.both)
        for cell, (total, count, of_total, of_count, both) in enumerate(np.array(each).T.tolist()):
            bar = ratio_bar(total, count, (of_total, of_count), both, z)
            assert bar is not None
            covered[2] += abs(total / count - totals[cell] / counts[cell]) <= bar
    for found in covered.tolist():
        alarm = binomtest(found, rounds * GROUPS, 0.9, "less").pvalue < ALARM
        assert alarm is not holds


@pytest.mark.parametrize(
    ("total", "count", "variances", "both", "bar"),
    [
        (1000, 5000, (100.0**2, 120.0**2), 0.0, 0.05385383722),
        (1000, 5000, (100.0**2, 120.0**2), 6000.0, 0.04750981421),
        (-5e6, 62_119, (5_749_801.0**2, 115.57**2), 0.0, 238.42641),
        (3.0, 10.0, (0.0, 0.0), 0.0, 0.0),
        (1000, 300, (100.0**2, 120.0**2), 0.0, None),
        (3.0, 10.0, (4.0, 25.0), 0.0, None),
        (3.0, -10.0, (4.0, 1.0), 0.0, None),
        (3.0, 10.0, (math.inf, math.inf), 0.0, None),
    ],
)
def test_bars_of_means_are_fiellers_and_a_mean_of_next_to_nothing_has_none(
    total: float, count: float, variances: tuple[float, float], both: float, bar: float | None
) -> None:
    found = ratio_bar(total, count, variances, both, 2.5758293035)
    assert found == (bar if bar is None else pytest.approx(bar, rel=1e-7))


def test_no_variance_of_a_public_count_falls_below_zero_by_rounding() -> None:
    known = Moments(1092.0, -2e-13, 0.0)
    for both in (-5e-10, -2e-11, 2e-11, 5e-10):
        after, _ = known.with_look(Moments(1.6e6, both, 1.6e-27))
        assert after.counts >= 0.0
        assert after.totals >= 0.0


def test_default_representatives_are_the_middles_and_others_must_be_in_their_bins() -> None:
    age = Number("age", (18, 30, 45, 65), integer=True, missing=True)
    assert age.values == (17.0, 23.5, 37.0, 54.5, 65.0, 0.0)
    assert age.binning_error == 9.5
    assert Number("x", (10, 20), representatives=(0, 12, 20)).values == (0, 12, 20)
    for wrong, words in (((1, 2), "2 for 3 bins"), ((5, 15, 12), "not in its bin")):
        with pytest.raises(InvalidDefinition, match=words):
            Number("x", (10, 20), representatives=wrong)


# ---------------------------------------------------------------- groups that may be empty

EMPTY = 50


def told(draw: np.random.Generator, group_by: tuple[int, ...] = (0,)) -> tuple[Sum, ...]:
    """What an answer says of each group after a table was measured. The first groups have no rows."""
    rows = np.random.default_rng(1).integers(100, 300, (GROUPS, 4))
    rows[:EMPTY] = 0
    it = Host(names(*rows.shape), beta=0.1, base_share=0.0)
    it.mechanism.open_phase(int(rows.sum()))
    noisy = rows + draw.normal(0.0, 20.0, rows.shape)
    it.state.belief.absorb_table((0, 1), 0, noisy, 400.0)
    query = LinearQuery(EVERYTHING, range(1), group_by, Total(1, (0.0, 15.0, 45.0, 80.0)))
    return sum_answers.summed(it.state, query, Path.CERTIFIED).cells


@pytest.mark.parametrize("alone", [False, True])
def test_no_mean_of_a_group_without_rows_is_told_for_all_groups_together(
    monkeypatch: pytest.MonkeyPatch, *, alone: bool
) -> None:
    """The share of answers with such a mean is what the law says. False alarm: one in a million."""
    if alone:  # a copy that looks at each group by itself
        monkeypatch.setattr(
            sum_answers, "least_deviations", lambda _, beta: least_deviations(1, beta)
        )
    draw, rounds = np.random.default_rng(2), 400
    wrong = 0
    for _ in range(rounds):
        cells = told(draw)
        wrong += any(cell.mean is not None for cell in cells[:EMPTY])
        assert all(cell.mean is not None for cell in cells[EMPTY:])
    one = 0.1 / GROUPS  # of a normal count of deviation 1, above what it must be above
    law = 1.0 - (1.0 - one) ** EMPTY
    assert bool(binomtest(wrong, rounds, law).pvalue < ALARM) is alone
    assert bool(binomtest(wrong, rounds, 0.1, "greater").pvalue < ALARM) is alone


@pytest.mark.parametrize("n_groups", [1, 2, 400, 30_000])
@pytest.mark.parametrize("beta", [0.1, 0.01, 1e-9])
def test_some_empty_group_is_taken_for_one_with_rows_with_the_stated_probability_at_most(
    n_groups: int, beta: float
) -> None:
    each = float(norm.sf(least_deviations(n_groups, beta)))
    together = -math.expm1(n_groups * math.log1p(-each))
    assert together <= beta * (1.0 + 1e-9)
    assert n_groups * each == pytest.approx(beta)


def test_a_count_that_may_be_zero_has_no_ratio() -> None:
    variances, least = (4.0, 25.0), least_deviations(400, 0.01)
    edge = 5.0 * float(norm.isf(0.01 / 400))
    assert ratio_bar(3.0, 1.001 * edge, variances, 0.0, 2.0, least) is not None
    assert ratio_bar(3.0, 0.999 * edge, variances, 0.0, 2.0, least) is None
    assert ratio_bar(3.0, 0.999 * edge, variances, 0.0, 2.0) is not None
    assert ratio_bar(3.0, 1.0, (0.0, 0.0), 0.0, 2.0, least) == pytest.approx(0.0)
    assert ratio_bar(0.0, 0.0, (0.0, 0.0), 0.0, 2.0, least) is None


def test_one_mean_needs_no_more_than_its_bar_does() -> None:
    """With one group Fieller's interval decides: the count is above zero at both sides of the bar."""
    (cell,) = told(np.random.default_rng(3), ())
    assert cell.mean is not None
    for beta in (0.1, 0.01, 1e-9):
        assert least_deviations(1, beta) < norm.isf(beta / 2.0)


# ---------------------------------------------------------------- means with an error of their own

AMOUNT, STATUS = range(2)
AMOUNTS = (2.5, 7.5, 15.0, 40.0, 90.0, 300.0, 500.0)
UNIVERSE = Universe(
    (
        Number("amount", (5, 10, 20, 60, 150, 450), representatives=AMOUNTS),
        Category("status", tuple("abcd"), other=False),
    )
)
N_ROWS = 50_000
DRAW = np.random.default_rng(1)
COLUMNS = (
    np.minimum(DRAW.geometric(0.3, N_ROWS) - 1, 6),
    DRAW.choice(4, N_ROWS, p=(0.6, 0.25, 0.1, 0.05)),
)
BLOCK = sealed(UNIVERSE, *COLUMNS)
PAID = where(UNIVERSE.shape, {STATUS: [0]})


def orders(noise: int | QuickNoise, *, phases: int = 1, beta: float = 0.01) -> Host:
    blocks = [BLOCK] * phases
    return Host(UNIVERSE, *blocks, noise=noise, beta=beta, base_share=0.0, pacing=False)


def asked(mean: float, predicate: Predicate = PAID, **target: Any) -> LinearQuery:
    total = Total(AMOUNT, AMOUNTS)
    return LinearQuery(predicate, range(1), (), total, target=Target(mean=mean, **target))


def exact(status: int) -> float:
    return float(np.array(AMOUNTS)[COLUMNS[0][COLUMNS[1] == status]].mean())


@pytest.mark.parametrize("by_status", [False, True])
@pytest.mark.parametrize("phases", [1, 3])
def test_a_mean_is_as_precise_as_its_query_asks(by_status: bool, phases: int) -> None:
    it = orders(1, phases=phases)
    predicate, group_by = (EVERYTHING, (STATUS,)) if by_status else (PAID, ())
    target = Target(mean=8.0)
    total = Total(AMOUNT, AMOUNTS)
    outcome = it.ask(LinearQuery(predicate, range(phases), group_by, total, target=target))
    assert outcome.path is Path.MEASURED
    for status, cell in enumerate(outcome.cells):
        assert cell.mean_bar <= 8.0
        assert abs(cell.mean - exact(status)) <= cell.mean_bar
    looks: Any = it.looks
    assert [look.final for look in looks] == [False] * (len(looks) - 1) + [True]
    assert len(looks) > 1
    paid = dict.fromkeys(range(phases), 0)
    for charge in it.charges:
        paid[charge.block] += charge.rho
    assert looks[-1].paid == paid
    bars = {cell.mean_bar for cell in outcome.cells}
    assert by_status or min(bars) > 0.6 * 8.0


def test_the_final_look_alone_is_the_answer_and_its_bar_has_half_of_beta() -> None:
    it = orders(7)
    outcome = it.ask(asked(8.0))
    assert len(it.releases) > 1, "a pilot came before it"
    found = it.releases[-1].estimates(N_ROWS, 0)
    (total,), (count,) = found.totals.tolist(), found.counts.tolist()
    variances = found.of_totals, found.of_counts
    bar = ratio_bar(total, count, variances, found.both, float(norm.isf(0.01 / 2 / 2)))
    (cell,) = outcome.cells
    assert cell.mean == pytest.approx(total / count)
    assert cell.mean_bar == pytest.approx(bar, rel=1e-4)


def test_what_is_known_precisely_enough_is_free() -> None:
    it = orders(2)
    it.ask(asked(2.0))
    for query in (asked(3.0), aimed(asked(3.0), mean=None)):
        assert it.ask(query).path is Path.CERTIFIED
        assert not it.looks


def test_pilots_and_final_look_together_stay_within_the_limit() -> None:
    """A limit that is too low for any look is refused with the price."""
    it = orders(4)
    assert it.ask(asked(0.5, at_most=1e-9)).code is RefusalCode.PRICE_TOO_HIGH
    assert not it.charges
    assert it.ask(asked(0.05, at_most=0.002)).path is Path.UNVERIFIED
    assert it.mechanism.lines.spent(0).rho <= 0.002 * UNITS


def test_a_quote_has_the_price_of_all_looks_and_the_most_that_they_may_take() -> None:
    it = orders(5)
    first = it.mechanism.quote(asked(2.0))
    assert first.expected
    assert first.note is not None
    it.ask(asked(2.0))
    paid = [charge.rho for look in it.looks for charge in look.charges]
    (priced,) = first.charges
    assert len(paid) > 1, "a pilot comes first"
    # Nothing is known yet of the count, which turns out to be 2.4 times the estimate.
    assert paid[0] < sum(paid) < priced.rho < 10 * sum(paid)
    assert first.most is not None
    assert max(sum(paid), priced.rho) <= first.most
    second = it.mechanism.quote(asked(1.0))
    assert not second.expected
    it.ask(asked(1.0))
    assert [look.charges for look in it.looks] == [second.charges]
    assert it.mechanism.quote(asked(2.0)).charges == ()


def test_next_to_no_rows_have_no_mean_whatever_is_paid() -> None:
    nothing = where(UNIVERSE.shape, {STATUS: [3], AMOUNT: [6]})
    outcome = orders(6).ask(asked(0.001, nothing, at_most=0.01))
    assert not isinstance(outcome, Summed) or outcome.path is Path.UNVERIFIED


@pytest.mark.slow
@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (1.4, False)])
def test_means_with_an_error_of_their_own_miss_no_more_often_than_promised(
    factor: float, holds: bool
) -> None:
    """At 80%, of which half is for each of two ways; false alarm 1e-6.

    The final look's bar covers at 90%. Noise two fifths wider than said is noticed; in the same bars
    ``test_sum_look`` notices a tenth.
    """
    covered = 0
    for seed in range(400):
        (cell,) = orders(QuickNoise(seed, factor), beta=0.2).ask(asked(4.0)).cells
        covered += abs(cell.mean - exact(0)) <= cell.mean_bar
    assert (binomtest(covered, 400, 0.9, "less").pvalue < ALARM) is not holds
