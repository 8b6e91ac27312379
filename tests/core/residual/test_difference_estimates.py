"""Differences of two windows: their estimates, their price, and their bars."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import Bounds, minimize
from scipy.stats import binomtest, chi2

from stream_dp.core.outcome import Path, RefusalCode
from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.looks.table_looks import CountsLook, TablesLook
from stream_dp.core.residual.plan.planner import water_fill
from stream_dp.core.residual.ways.differences import Windows
from stream_dp.core.rows.blocks import Block
from tests.core.residual.host import ALARM, Host, aimed, names, sealed, where
from tests.noise import QuickNoise

COUNTRY, LATE = range(2)
UNIVERSE = names(4, 2)
IS_LATE = where((4, 2), {LATE: [1]})
IN_U = where((4, 2), {COUNTRY: [0]})
ROWS = (40_000, 30_000, 50_000, 20_000)
Floats = npt.NDArray[np.float64]


@cache
def block_of(number: int) -> Block:
    draw, n_rows = np.random.default_rng(number), ROWS[number]
    country = draw.choice(4, n_rows, p=[0.4, 0.3, 0.2, 0.1])
    return sealed(UNIVERSE, country, draw.random(n_rows) < 0.1 + 0.05 * number + 0.1 * country)


def asked(
    first: range, second: range, predicate: Predicate = IS_LATE, *group_by: int, **target: Any
) -> LinearQuery:
    both = range(min(first.start, second.start), max(first.stop, second.stop))
    query = LinearQuery(predicate, both, group_by, difference=(first, second))
    return aimed(query, **target)


def count(window: range, **target: Any) -> LinearQuery:
    return aimed(LinearQuery(IS_LATE, window), **target)


DAY_BEFORE = asked(range(3, 4), range(2, 3))
DAY_AND_ALL = asked(range(3, 4), range(4))
ALL_AND_DAY = asked(range(4), range(3, 4), IS_LATE, COUNTRY)
HALVES = asked(range(2, 4), range(2), IN_U)
EVERY = {"before": DAY_BEFORE, "of all": DAY_AND_ALL, "by country": ALL_AND_DAY, "halves": HALVES}
every = pytest.mark.parametrize("query", EVERY.values(), ids=EVERY.keys())


def days(noise: int | QuickNoise = 1, **more: Any) -> Host:
    """A data set with four phases."""
    options = {"base_share": 0.0, "pacing": False, **more}
    return Host(UNIVERSE, *map(block_of, range(4)), noise=noise, **options)


def truth(it: Host, query: LinearQuery) -> tuple[Floats, Floats]:
    """The differences of shares and of counts."""
    assert query.difference is not None
    counts = [
        it.exact(LinearQuery(query.predicate, window, query.group_by))
        for window in query.difference
    ]
    rows = [sum(ROWS[b] for b in window) for window in query.difference]
    return counts[0] / rows[0] - counts[1] / rows[1], (counts[0] - counts[1]).astype(np.float64)


@every
def test_without_noise_the_answer_is_the_exact_difference(query: LinearQuery) -> None:
    it = days(QuickNoise(1, 0.0))
    outcome = it.ask(query)
    shares, counts = truth(it, query)
    assert outcome.path is Path.MEASURED
    assert [cell.share for cell in outcome.cells] == pytest.approx(shares.tolist())
    assert [cell.count for cell in outcome.cells] == pytest.approx(counts.tolist())
    assert query.difference is not None
    assert outcome.n_rows == tuple(sum(ROWS[b] for b in window) for window in query.difference)
    assert outcome.minus == query.difference[1]


@every
def test_a_difference_is_as_precise_as_its_query_asks_and_the_quote_says_so(
    query: LinearQuery,
) -> None:
    it, query = days(2), aimed(query, share=0.01)
    quote = it.mechanism.quote(query)
    outcome = it.ask(query)
    (look,) = it.looks
    assert quote.charges == look.charges
    bar = max(cell.share_bar for cell in outcome.cells)
    assert quote.error_bar == pytest.approx(bar)
    assert bar <= 0.01 * (1 + 1e-9)
    for cell, share, number in zip(outcome.cells, *truth(it, query), strict=True):
        assert abs(cell.share - share) <= cell.share_bar
        assert abs(cell.count - number) <= cell.count_bar
    again = it.ask(aimed(query, share=0.011))
    assert again.path is Path.CERTIFIED
    assert again.cells == outcome.cells


def test_counts_of_each_window_make_the_difference_cheaper() -> None:
    alone, helped = days(3), days(3)
    day, query = count(range(3, 4), share=0.01), aimed(DAY_BEFORE, share=0.01)
    helped.ask(day)
    before, after = (it.mechanism.quote(query).charges for it in (alone, helped))
    assert sum(c.rho for c in after) < sum(c.rho for c in before)
    # And the other way round: its look serves the counts.
    alone.ask(query)
    assert alone.mechanism.quote(day).charges == ()


def test_a_block_in_both_windows_errs_by_what_is_left_of_it() -> None:
    """Of one day against all, the noise of that day counts by the difference of its two shares."""
    it = days(4)
    it.ask(count(range(4), share=0.02))
    variances = it.state.evidence(count(range(4))).variances_by_block[0]
    expected = sum(
        (float(block == 3) / ROWS[3] - 1.0 / sum(ROWS)) ** 2 * variances[block]
        for block in range(4)
    )
    (cell,) = it.ask(aimed(DAY_AND_ALL, share=0.9)).cells
    z = it.state.terms.z
    assert cell.share_bar == pytest.approx(z * math.sqrt(expected))
    assert cell.count_bar == pytest.approx(z * math.sqrt(sum(variances[:3])))


# ---------------------------------------------------------------- the price


def test_filling_with_weights_is_the_cheapest_way_to_reach_a_sum() -> None:
    draw = np.random.default_rng(5)
    for _ in range(20):
        weights = draw.uniform(0.2, 3.0, 5)
        now = draw.uniform(1.0, 5.0, 5)
        lowest = now * draw.uniform(0.0, 0.2, 5)
        low, high = float(weights @ (weights * lowest)), float(weights @ (weights * now))
        limit = low + 0.5 * (high - low)
        # With u = weight * variance, as differences use it: sum of weight^2 variance = sum of weight u.
        levels = water_fill(weights * now, weights * lowest, limit, weights=weights)
        assert levels is not None
        found = levels / weights
        assert float(np.square(weights) @ found) == pytest.approx(limit)

        def loss(v: Floats, now: Floats = now) -> float:
            return float((1.0 / v - 1.0 / now).sum())

        def spare(v: Floats, weights: Floats = weights, limit: float = limit) -> float:
            return limit - float(np.square(weights) @ v)

        best = minimize(
            loss,
            0.5 * (lowest + now),
            bounds=Bounds(lowest, now),
            constraints={"type": "ineq", "fun": spare},
            method="SLSQP",
            options={"maxiter": 500, "ftol": 1e-12},
        )
        assert loss(found) <= best.fun * (1 + 1e-4) + 1e-9
        plain, of_ones = (
            water_fill(now, lowest, 0.6 * now.sum(), weights=w) for w in (None, np.ones(5))
        )
        assert of_ones == pytest.approx(plain)


def test_the_scales_of_its_counts_are_inverse_to_how_much_a_block_counts() -> None:
    it = days(7)
    look = it.step(aimed(DAY_AND_ALL, share=0.01))
    sizes = np.abs(Windows(range(3, 4), range(4), ROWS).of_shares)
    variances = np.array([float(grid_sigma(step)) ** 2 for _, step in look.steps])
    level = variances * sizes
    assert level.max() / level.min() < 1.08  # the grid of scales has steps of 1.4%


def test_a_limit_that_is_too_low_is_refused_with_the_price() -> None:
    refused = days(8).step(aimed(DAY_BEFORE, share=0.001, at_most=1e-9))
    assert refused.code is RefusalCode.PRICE_TOO_HIGH


@pytest.mark.parametrize("base_share", [0.001, 0.0])
def test_without_budget_the_bar_says_what_is_known(base_share: float) -> None:
    it = days(9, base_share=base_share)
    outcome = it.ask(aimed(DAY_BEFORE, share=1e-6))
    assert not it.looks
    assert outcome.path is Path.UNVERIFIED
    assert (outcome.cells[0].share_bar is None) is (base_share == 0.0)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [(range(4), range(0), "no phase before"), (range(4), range(4), "the same phases")],
)
def test_windows_that_cannot_be_compared_are_refused(
    first: range, second: range, words: str
) -> None:
    refused = days().step(LinearQuery(IS_LATE, range(4), difference=(first, second)))
    assert refused.code is RefusalCode.WINDOW_TOO_SMALL
    assert refused.retriable
    assert words in refused.message


# ---------------------------------------------------------------- the bars


def watched(query: LinearQuery) -> Host:
    """A data set in which tables and counts say something of a difference."""
    it = days(10, base_share=0.0005)
    it.ask(count(range(1, 4), share=0.015))
    it.ask(aimed(query, share=0.01))
    assert {type(look) for look in it.taken} == {TablesLook, CountsLook}
    return it


def as_if_windows_were_apart(query: LinearQuery) -> float:
    """How many times too wide a bar is whose windows do not know of the blocks that they share."""
    assert query.difference is not None
    by_block = watched(query).state.evidence(count(range(4))).variances_by_block[0]
    each = [
        sum(by_block[b] for b in window) / sum(ROWS[b] for b in window) ** 2
        for window in query.difference
    ]
    exact = Windows(*query.difference, ROWS).of_shares
    right = sum(c * c * v for c, v in zip(exact, by_block, strict=False) if c)
    return math.sqrt(sum(each) / right)


def errors(factor: float, query: LinearQuery) -> list[float]:
    """What a difference is off, in its own deviations."""
    it = watched(query)
    (share,), _ = truth(it, query)
    noise, found, z = QuickNoise(11, factor), [], it.state.terms.z
    for _ in range(2800):
        fresh = Host(UNIVERSE, base_share=0.0)
        for n_rows in ROWS:
            fresh.mechanism.open_phase(n_rows)
        for look in it.taken:
            fresh.mechanism.absorb(look.take(noise, it.data))
        (cell,) = fresh.step(aimed(query, share=0.5)).cells
        found.append((cell.share - share) / (cell.share_bar / z))
    return found


def alarm(errors: npt.ArrayLike) -> float:
    """The probability of a sum of squares as far from that of standard normal numbers."""
    total, n = float(np.square(errors).sum()), np.size(errors)
    return 2.0 * min(float(chi2.sf(total, n)), float(chi2.cdf(total, n)))


@pytest.mark.slow
@pytest.mark.parametrize("query", [DAY_BEFORE, DAY_AND_ALL], ids=["apart", "overlapping"])
def test_bars_of_differences_cover_as_they_say(query: LinearQuery) -> None:
    """False-alarm rate one in a million; noise that is 10% larger or smaller fails."""
    right = errors(1.0, query)
    assert alarm(right) > ALARM
    outside = sum(abs(each) > 2.5758293 for each in right)
    assert binomtest(outside, len(right), 0.01).pvalue > ALARM
    if query is DAY_AND_ALL:  # a broken copy
        wide = as_if_windows_were_apart(query)
        assert alarm([each / wide for each in right]) < ALARM
    wrong = 1.1 if query is DAY_BEFORE else 0.9
    assert alarm(errors(wrong, query)) < ALARM
