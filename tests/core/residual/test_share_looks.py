"""Shares: what their look publishes, its price against all pairs of rows, its memory, and its bars."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binomtest

from stream_dp.core.budget.accountant import UNITS, Budget
from stream_dp.core.outcome import Answered, Path
from stream_dp.core.queries.conditions import compile_share, compile_where
from stream_dp.core.queries.query import EVERYTHING, Indicator, LinearQuery, Total
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.belief.sums import Moments, ratio_bar, rest_of_share
from stream_dp.core.residual.looks.sum_look import SHARES, SumLook, exact_sums
from stream_dp.core.residual.plan.planner import Prices
from stream_dp.core.residual.plan.sum_plan import SumDemand, SumPlanner
from stream_dp.core.residual.plan.sum_price import SumShape, WholeValues
from stream_dp.core.rows.attributes import Boolean, Category
from stream_dp.core.rows.blocks import Blocks
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidQuery
from tests.core.residual.host import ALARM, PRIVACY, Host, aimed, dearest, sealed
from tests.core.residual.least_squares import belief_of
from tests.noise import QuickNoise

STATUS, COUNTRY, LATE = EVERY_ATTRIBUTE = tuple(range(3))
UNIVERSE = Universe(
    (
        Category("status", tuple("abcde"), other=False),
        Category("country", tuple("uvwx"), other=False),
        Boolean("late"),
    )
)
N_ROWS = 50_000

Tree = dict[str, Any]
Floats = npt.NDArray[np.float64]
IS_LATE: Tree = {"attribute": "late", "eq": True}
IN_A: Tree = {"attribute": "status", "eq": "a"}
IN_U: Tree = {"attribute": "country", "eq": "u"}
EITHER: Tree = {"any": [IN_A, IN_U]}


def share(share_of: Tree, where: Tree | None = None, *group_by: int, **target: Any) -> LinearQuery:
    part, whole = compile_share(UNIVERSE, share_of, where)
    return aimed(LinearQuery(whole, range(1), group_by, part), **target)


def counted(*conditions: Tree, **target: Any) -> LinearQuery:
    predicate = compile_where(UNIVERSE, {"all": list(conditions)})
    return aimed(LinearQuery(predicate, range(1)), **target)


LATE_IN_A = share(IS_LATE, IN_A)
EVERY = {
    "of some rows": LATE_IN_A,
    "of all rows": share(IS_LATE),
    "by country": share(IS_LATE, IN_A, COUNTRY),
    "of all rows by country": share(IS_LATE, None, COUNTRY),
    "no product": share(EITHER, IS_LATE),
    "among what is no product": share(IS_LATE, EITHER),
    "of groups themselves": share({"any": [IN_U, IS_LATE]}, IN_A, COUNTRY),
}
every = pytest.mark.parametrize("query", EVERY.values(), ids=EVERY.keys())


@cache
def columns(seed: int) -> tuple[npt.NDArray[np.int64], ...]:
    draw = np.random.default_rng(seed)
    status = draw.choice(5, N_ROWS, p=[0.6, 0.2, 0.1, 0.07, 0.03])
    country = draw.choice(4, N_ROWS, p=[0.4, 0.3, 0.2, 0.1])
    return status, country, (draw.random(N_ROWS) < 0.1 + 0.1 * country).astype(np.int64)


def orders(noise: int | QuickNoise, *, phases: int = 1, **more: Any) -> Host:
    blocks = (sealed(UNIVERSE, *columns(seed)) for seed in range(phases))
    return Host(UNIVERSE, *blocks, noise=noise, **{"base_share": 0.0, "pacing": False, **more})


def truth(it: Host, query: LinearQuery) -> npt.NDArray[np.int64]:
    """Rows of both conditions, and of the one, in each answer: shape (2, answers)."""
    assert isinstance(query.total, Indicator)
    both = query.total.predicate
    return np.array([it.exact(replace(query, predicate=p)) for p in (both, query.predicate)])


# ---------------------------------------------------------------- the look


@every
@pytest.mark.parametrize("phases", [1, 3])
def test_without_noise_the_answer_is_the_exact_share(query: LinearQuery, phases: int) -> None:
    it, query = orders(QuickNoise(1, 0.0), phases=phases), replace(query, window=range(phases))
    outcome = it.ask(query)
    (look,) = it.looks
    # A table of few cells costs no more than a look at a share of all rows.
    assert isinstance(look, SumLook) or query.predicate == EVERYTHING or query.group_by
    both, rows = truth(it, query)
    assert [cell.total for cell in outcome.cells] == pytest.approx(both.tolist())
    assert [cell.count for cell in outcome.cells] == pytest.approx(rows.tolist())
    assert [cell.mean for cell in outcome.cells] == pytest.approx((both / rows).tolist())
    for cell in outcome.cells:
        assert cell.total_bar <= 0.02 * N_ROWS * phases * (1 + 1e-6)


@every
def test_a_share_is_as_precise_as_its_query_asks(query: LinearQuery) -> None:
    it = orders(2)
    outcome = it.ask(aimed(query, mean=0.05))
    assert outcome.path is Path.MEASURED
    both, rows = truth(it, query)
    for cell, exact in zip(outcome.cells, (both / rows).tolist(), strict=True):
        assert abs(cell.mean - exact) <= cell.mean_bar <= 0.05
    assert it.ask(aimed(query, mean=0.06)).path is Path.CERTIFIED
    assert not it.looks


def test_what_was_stored_says_the_same_after_a_restart() -> None:
    it = orders(4)
    queries = [aimed(LATE_IN_A, mean=0.02), *EVERY.values()]
    it.ask_all(queries)
    assert any(stored[1] == SHARES for stored in it.stored if isinstance(stored, bytes))
    other = it.restarted()
    for each in queries:
        assert other.ask(each) == it.ask(each)
        assert not other.looks


@pytest.mark.parametrize(
    ("share_of", "where", "field", "words"),
    [
        (IN_A, {"attribute": "status", "eq": "b"}, "share_of", "so the share is 0"),
        (EITHER, IN_A, "share_of", "so the share is 1"),
        (IN_A, {"any": []}, "where", "no row can satisfy it"),
        ({"all": [IN_A, {"attribute": "x", "eq": 1}]}, None, "share_of.all[1].attribute", ""),
    ],
)
def test_what_needs_no_query_and_what_is_wrong_is_said(
    share_of: Tree, where: Tree | None, field: str, words: str
) -> None:
    with pytest.raises(InvalidQuery) as caught:
        compile_share(UNIVERSE, share_of, where)
    assert caught.value.field == field
    assert words in caught.value.problem


# ---------------------------------------------------------------- the price

Scales = tuple[Fraction, Fraction | None]
Price = Callable[[SumLook, Scales], Fraction]


@cache
def right_prices() -> list[tuple[SumLook, Scales, Fraction]]:
    """Looks, their scales, and what the two rows lose that they tell apart best."""
    found = []
    alone = [
        Blocks(UNIVERSE, [sealed(UNIVERSE, *([code] for code in cell))])
        for cell in np.ndindex(*UNIVERSE.shape)
    ]
    for query in EVERY.values():
        for asked in (query, aimed(query, mean=0.02)):
            it = orders(5)
            it.ask(asked)
            for look in (getattr(staged, "look", staged) for staged in it.looks):
                if not isinstance(look, SumLook):
                    continue
                ((_, of_sums, of_counts),) = look.steps
                rows = [exact_sums(look, row, 0) for row in alone]
                for step in (of_counts, of_counts - 20, of_counts + 20):
                    scales = grid_sigma(of_sums), grid_sigma(step) if look.shape.counts else None
                    found.append((look, scales, dearest(rows, scales)))
    return found


def wrong_prices(price: Price) -> int:
    """How many looks are not priced as the two rows are that they tell apart best."""
    return sum(price(look, scales) != right for look, scales, right in right_prices())


def as_charged(look: SumLook, scales: Scales) -> Fraction:
    return look.shape.rho(*scales)


def of_one_unit(look: SumLook, scales: Scales) -> Fraction:
    """As if a row added 1 and not as many units as stand for it."""
    return replace(look.shape, low=0, high=1, centre=1).rho(*scales)


def whose_rows_never_enter(look: SumLook, scales: Scales) -> Fraction:
    shape = replace(look.shape, every_row=True)
    return shape.rho(scales[0], scales[1] if shape.counts else None)


def centred_in_the_middle(look: SumLook, scales: Scales) -> Fraction:
    return replace(look.shape, centre=look.shape.low + look.shape.high).rho(*scales)


def test_the_price_is_that_of_the_two_rows_that_are_told_apart_best() -> None:
    assert wrong_prices(as_charged) == 0
    for broken in (of_one_unit, whose_rows_never_enter, centred_in_the_middle):
        assert wrong_prices(broken) > 0


@pytest.mark.parametrize("exact", [0.02, 0.1, 0.25, 0.5, 0.75, 0.97])
def test_it_costs_no_more_than_counting_both_parts_of_the_rows(exact: float) -> None:
    """The rival counts the part and the rest of the rows with equal noise, so it loses 1/sigma^2.

    ``part - p (part + rest)`` then has the variance ``((1 - p)^2 + p^2) sigma^2``. No two scales that are
    fitted to a share that is known beforehand cost less than half of 1/sigma^2 at a share of one half.
    """
    rows, bar, z = 30_000.0, 0.01, 2.6
    it = orders(1)
    limit = (bar * rows / z) ** 2
    demand = SumDemand(np.array([exact]), np.array([limit]))
    nothing, evidence = it.state.belief.sums(LATE_IN_A), it.state.evidence(LATE_IN_A)
    prices = Prices(Budget.of(PRIVACY))
    look = SumPlanner(nothing, None, evidence, demand).look(prices, np.array([UNITS]))
    assert look is not None
    pair = prices.of(Fraction(((1.0 - exact) ** 2 + exact**2) / limit))
    ideal = prices.of(Fraction(0.5 / limit))
    assert look.total <= 1.03 * pair  # a step of the grid of scales is up to 2.8% of the price
    assert look.total <= 1.06 * ideal


# ---------------------------------------------------------------- memory


def test_the_look_serves_queries_for_both_counts_and_the_share_of_the_rest() -> None:
    it = orders(6)
    it.ask(aimed(LATE_IN_A, mean=0.01))
    for query in (counted(IN_A), counted(IS_LATE, IN_A), counted({"not": IN_A})):
        assert isinstance(it.ask(query), Answered)
        assert not it.looks
    queries = aimed(LATE_IN_A, mean=0.011), share({"not": IS_LATE}, IN_A, mean=0.011)
    (part,), (rest,) = (it.ask(query).cells for query in queries)
    assert not it.looks
    assert part.mean + rest.mean == pytest.approx(1.0)
    assert part.mean_bar == pytest.approx(rest.mean_bar)
    assert rest.count - rest.total == pytest.approx(part.total)


def test_after_a_group_by_the_share_in_one_group_is_free() -> None:
    it = orders(7)
    groups = it.ask(EVERY["by country"])
    one = it.ask(share(IS_LATE, {"all": [IN_A, IN_U]}))
    assert one.path is Path.CERTIFIED
    assert one.cells == groups.cells[:1]
    # A part that says something of the country itself is not made of the groups.
    other = share({"any": [IS_LATE, IN_U]}, {"all": [IN_A, {"not": {"all": [IN_U, IS_LATE]}}]})
    assert not it.state.belief.sums(other).looked


def test_counts_that_were_asked_before_make_the_share_free() -> None:
    it = orders(8)
    it.ask_all(counted(*conditions, share=0.003) for conditions in ((IN_A,), (IS_LATE, IN_A)))
    outcome = it.ask(aimed(LATE_IN_A, mean=0.02))
    assert outcome.path is Path.CERTIFIED
    assert not it.looks
    ((both,), (rows,)), (cell,) = truth(it, LATE_IN_A), outcome.cells
    assert abs(cell.mean - both / rows) <= cell.mean_bar


def matrix(moments: Moments) -> Floats:
    totals, both, counts = (
        float(np.asarray(m).ravel()[0]) for m in (moments.totals, moments.both, moments.counts)
    )
    return np.array([[totals, both], [both, counts]])


OF_NUMBERS = Total(COUNTRY, (0.0, 10.0, 30.0, 50.0))


@pytest.mark.parametrize(
    "query", [LATE_IN_A, replace(counted(IN_A), total=OF_NUMBERS)], ids=["a share", "a sum"]
)
def test_tables_counts_and_looks_are_combined_as_gauss_and_markov_say(query: LinearQuery) -> None:
    """Against generalised least squares on everything that was published about the cells."""
    it, draw = orders(10), np.random.default_rng(9)
    belief = belief_of(UNIVERSE.shape, [], n_rows=N_ROWS)
    (exact,) = it.data.marginal(EVERY_ATTRIBUTE, range(1)).astype(np.float64)
    inside = np.broadcast_to(query.predicate.along(EVERY_ATTRIBUTE), exact.shape)
    assert query.total is not None
    if isinstance(query.total, Indicator):
        numbers = query.total.predicate.along(EVERY_ATTRIBUTE) * np.ones(exact.shape)
    else:
        numbers = np.array(OF_NUMBERS.values)[None, :, None] * inside
    asked = np.array([numbers.ravel(), inside.ravel()], dtype=np.float64)
    seen: list[tuple[Floats, Floats, Floats]] = []
    table = exact + draw.normal(0.0, 40.0, exact.shape)
    belief.absorb_table(EVERY_ATTRIBUTE, 0, table, 1600.0)
    seen.append((np.eye(exact.size), table.ravel(), 1600.0 * np.eye(exact.size)))
    is_share = isinstance(query.total, Indicator)
    counts = (asked[1], counted(IN_A), 2500.0), (asked[0], counted(IS_LATE, IN_A), 900.0)
    for mask, one, variance in counts if is_share else ():
        value = mask @ exact.ravel() + draw.normal(0.0, math.sqrt(variance))
        belief.absorb_count(one.key, 0, np.array([value]), variance)
        seen.append((mask[None, :], np.array([value]), np.array([[variance]])))
    values = WholeValues.of(query)
    for of_sums, of_counts, centre in ((716, 250, values.low + values.high), (716, 270, 3)):
        shape = SumShape(values.low, values.high, centre, grouped=False, every_row=False)
        look = SumLook(query, values, shape, ((0, of_sums, of_counts),), 1, ())
        release = look.take(it.noise, it.data)
        found = release.estimates(N_ROWS, 0)
        belief.absorb_sums(release.keys[0], query.attributes, 0, found)
        # Its counts are remembered for other queries, and must not be used a second time here.
        belief.absorb_count(release.keys[1], 0, found.counts, found.of_counts, of_share=is_share)
        if is_share:
            belief.absorb_count(release.keys[2], 0, found.totals, found.of_totals, of_share=True)
        covariance = np.array([[found.of_totals, found.both], [found.both, found.of_counts]])
        seen.append((asked, np.array([found.totals[0], found.counts[0]]), covariance))
    # The number of all rows is public.
    seen.append((np.ones((1, exact.size)), np.array([float(N_ROWS)]), np.array([[1e-6]])))
    information, weighted = np.zeros((exact.size, exact.size)), np.zeros(exact.size)
    for design, value, covariance in seen:
        half = design.T @ np.linalg.inv(covariance)
        information += half @ design
        weighted += half @ value
    cells = np.linalg.inv(information)
    known = belief.sums(query).sums
    units = np.array([query.total.largest, 1.0])
    stated = matrix(known.moments) * np.outer(units, units)
    assert stated == pytest.approx(asked @ cells @ asked.T, rel=1e-5)
    best = (asked @ cells @ weighted).tolist()
    assert (units * [known.totals[0], known.counts[0]]).tolist() == pytest.approx(best, rel=1e-4)


def test_a_count_alone_says_nothing_of_what_is_unknown() -> None:
    unknown = Moments(np.array([math.inf]), np.array([0.0]), np.array([math.inf]))
    after, gains = unknown.with_one(9.0, of_totals=True)
    assert (float(after.totals[0]), float(after.both[0])) == (9.0, 0.0)
    assert math.isinf(after.counts[0])
    moved = gains.moved(np.zeros(1), np.zeros(1), np.array([7.0]), np.array([7.0]))
    assert [float(each[0]) for each in moved] == [7.0, 0.0]
    after, gains = after.with_one(4.0, of_totals=False)
    assert matrix(after).tolist() == [[9.0, 0.0], [0.0, 4.0]]


# ---------------------------------------------------------------- the bars


def missed(factor: float, n: int) -> int:
    """How many draws of one final look at a share are outside the bars that they come with."""
    query, it = aimed(LATE_IN_A, mean=0.02), orders(13, beta=0.4)
    ((both,), (rows,)) = truth(it, query)
    it.ask(query)
    look: Any = it.looks[-1]
    assert look.final
    found, noise = 0, QuickNoise(16, factor)
    for _ in range(n):
        outcome: Any = it.mechanism.conclude(query, look, look.take(noise, it.data))
        (cell,) = outcome.cells
        found += abs(cell.mean - both / rows) > cell.mean_bar
    return found


@pytest.mark.slow
def test_final_looks_keep_their_promise() -> None:
    """A final look has half of the failure probability; false-alarm rate one in a million."""
    n = 5000
    assert binomtest(missed(1.0, n), n, 0.2).pvalue > ALARM
    assert binomtest(missed(1.1, n), n, 0.2).pvalue < ALARM
    assert binomtest(missed(0.9, n), n, 0.2).pvalue < ALARM


def test_bars_are_fiellers_and_missing_where_all_shares_are_possible() -> None:
    it = orders(14)
    rare = {"all": [{"attribute": "status", "eq": "e"}, {"attribute": "country", "eq": "x"}]}
    (cell,) = it.ask(share(IS_LATE, rare)).cells
    assert cell.mean is None
    (cell,) = it.ask(LATE_IN_A).cells
    known = it.state.belief.sums(LATE_IN_A).sums
    ((of_totals, both), (_, of_counts)) = matrix(known.moments).tolist()
    total, count = float(known.totals[0]), float(known.counts[0])
    bar = ratio_bar(total, count, (of_totals, of_counts), both, 2.5758293035489004)
    assert cell.mean_bar == pytest.approx(bar)


def test_a_share_of_the_rest_is_another_query_about_the_same() -> None:
    rest = rest_of_share(LATE_IN_A)
    assert rest == share({"not": IS_LATE}, IN_A)
    assert rest is not None
    assert rest.key != LATE_IN_A.key
    assert rest_of_share(rest) == LATE_IN_A
    assert rest_of_share(LinearQuery(EVERYTHING, range(1), (COUNTRY,))) is None
