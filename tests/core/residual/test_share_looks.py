"""Shares: what their look publishes, its price against all pairs of rows, its memory, and its bars."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binomtest, chi2

from stream_dp.audit.line_limits import Line
from stream_dp.audit.look_charges import Looks
from stream_dp.audit.numbers import Wrong
from stream_dp.core.budget.accountant import UNITS, Budget
from stream_dp.core.budget.parameters import Accuracy, Privacy, Target
from stream_dp.core.mechanism import Look
from stream_dp.core.outcome import Answered, Outcome, Path, Refused, Summed
from stream_dp.core.queries.conditions import compile_share, compile_where
from stream_dp.core.queries.query import EVERYTHING, Indicator, LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import NoiseSource, grid_sigma
from stream_dp.core.residual.belief.evidence import Belief
from stream_dp.core.residual.belief.sums import Moments, ratio_bar, rest_of_share
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.looks.sum_look import SHARED, SumLook, exact_sums
from stream_dp.core.residual.looks.table_looks import CountsLook, TablesLook
from stream_dp.core.residual.plan.planner import Prices
from stream_dp.core.residual.plan.sum_plan import SumDemand, SumPlanner
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.universe import Boolean, Category, Rows, Universe
from stream_dp.errors import InvalidQuery
from stream_dp.messages import Definition
from tests.noise import FakeNoise, QuickNoise

ALARM = 1e-6
PRIVACY = Privacy(1.0, 1e-9)
STATUS, COUNTRY, LATE = range(3)
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


def share(
    share_of: Tree,
    where: Tree | None = None,
    *,
    by_country: bool = False,
    phases: int = 1,
    **target: Any,
) -> LinearQuery:
    part, whole = compile_share(UNIVERSE, share_of, where)
    group_by = (COUNTRY,) if by_country else ()
    return LinearQuery(whole, range(phases), group_by, part, target=Target(**target))


def counted(*conditions: Tree, phases: int = 1, **target: Any) -> LinearQuery:
    predicate = compile_where(UNIVERSE, {"all": list(conditions)})
    return LinearQuery(predicate, range(phases), target=Target(**target))


EVERY = {
    "of some rows": share(IS_LATE, IN_A),
    "of all rows": share(IS_LATE),
    "by country": share(IS_LATE, IN_A, by_country=True),
    "of all rows by country": share(IS_LATE, by_country=True),
    "no product": share(EITHER, IS_LATE),
    "among what is no product": share(IS_LATE, EITHER),
    "of groups themselves": share({"any": [IN_U, IS_LATE]}, IN_A, by_country=True),
}


def rows_of(n_rows: int, seed: int) -> Block:
    draw = np.random.default_rng(seed)
    status = draw.choice(5, n_rows, p=[0.6, 0.2, 0.1, 0.07, 0.03]).astype(np.uint8)
    country = draw.choice(4, n_rows, p=[0.4, 0.3, 0.2, 0.1]).astype(np.uint8)
    late = (draw.random(n_rows) < 0.1 + 0.1 * country).astype(np.uint8)
    return Block.seal(UNIVERSE, Rows((status, country, late), None))


BLOCKS = [rows_of(N_ROWS, seed) for seed in range(3)]


class Host:
    """A data set that is asked, and the looks that it took."""

    def __init__(
        self, noise: NoiseSource, *, phases: int = 1, beta: float = 0.01, base_share: float = 0.0
    ) -> None:
        self.mechanism = Calibrated(
            UNIVERSE,
            PRIVACY,
            Accuracy(0.02, beta),
            CalibratedSettings(base_share=base_share, pacing=False),
        )
        self.noise, self.data = noise, Blocks(UNIVERSE)
        self.looks: list[Look] = []
        self.stored: list[bytes] = []
        for block in BLOCKS[:phases]:
            self.data.append(block)
            for look in self.mechanism.open_phase(N_ROWS):
                self.take(look)

    def take(self, look: Look) -> Any:
        look.reserve(self.noise)
        self.mechanism.charged(look.charges)
        self.looks.append(look)
        self.stored.append(look.take(self.noise, self.data).to_bytes())
        release = self.mechanism.release_from_bytes(self.stored[-1])
        assert release.to_bytes() == self.stored[-1]
        self.mechanism.absorb(release)
        return release

    def ask(self, query: LinearQuery) -> Outcome:
        step = self.mechanism.answer(query)
        while isinstance(step, Look):
            step = self.mechanism.conclude(query, step, self.take(step))
        return step

    def ask_share(self, query: LinearQuery) -> Summed:
        outcome = self.ask(query)
        assert isinstance(outcome, Summed)
        return outcome

    @property
    def spent(self) -> int:
        return sum(charge.rho for look in self.looks for charge in look.charges)


def truth(query: LinearQuery, blocks: list[Block] = BLOCKS) -> npt.NDArray[np.int64]:
    """Rows of both conditions, and of the one, in each answer: shape (2, answers)."""
    assert isinstance(query.total, Indicator)
    data = Blocks(UNIVERSE)
    for block in blocks:
        data.append(block)
    table = data.marginal((STATUS, COUNTRY, LATE), query.window).sum(axis=0)
    masks = [p.along((STATUS, COUNTRY, LATE)) for p in (query.total.predicate, query.predicate)]
    found = [(table * mask).sum(axis=(STATUS, LATE)) for mask in masks]
    return np.array([each if query.group_by else each.sum(keepdims=True) for each in found])


# ---------------------------------------------------------------- the look


@pytest.mark.parametrize("query", EVERY.values(), ids=EVERY.keys())
@pytest.mark.parametrize("phases", [1, 3])
def test_without_noise_the_answer_is_the_exact_share(query: LinearQuery, phases: int) -> None:
    query = replace(query, window=range(phases))
    host = Host(QuickNoise(1, 0.0), phases=phases)
    outcome = host.ask_share(query)
    (look,) = host.looks
    # A table of few cells costs no more than a look at a share of all rows.
    assert isinstance(look, SumLook) or query.predicate == EVERYTHING or query.group_by
    both, rows = truth(query)
    assert [cell.total for cell in outcome.cells] == pytest.approx(both.tolist())
    assert [cell.count for cell in outcome.cells] == pytest.approx(rows.tolist())
    assert [cell.mean for cell in outcome.cells] == pytest.approx((both / rows).tolist())
    for cell in outcome.cells:
        assert cell.total_bar is not None
        assert cell.total_bar <= 0.02 * N_ROWS * phases * (1 + 1e-6)


@pytest.mark.parametrize("query", EVERY.values(), ids=EVERY.keys())
def test_a_share_is_as_precise_as_its_query_asks(query: LinearQuery) -> None:
    host = Host(QuickNoise(2))
    outcome = host.ask_share(replace(query, target=Target(mean=0.05)))
    assert outcome.path is Path.MEASURED
    both, rows = truth(query)
    for cell, exact in zip(outcome.cells, (both / rows).tolist(), strict=True):
        assert cell.mean is not None
        assert cell.mean_bar is not None
        assert abs(cell.mean - exact) <= cell.mean_bar <= 0.05
    n_looks = len(host.looks)
    assert host.ask_share(replace(query, target=Target(mean=0.06))).path is Path.CERTIFIED
    assert len(host.looks) == n_looks


def test_a_limit_that_is_too_low_is_refused_with_the_price() -> None:
    host = Host(QuickNoise(3))
    refused = host.ask(share(IS_LATE, IN_A, mean=0.001, at_most=1e-9))
    assert isinstance(refused, Refused)
    assert "larger at_most" in refused.message
    assert host.spent == 0


def test_what_was_stored_says_the_same_after_a_restart() -> None:
    host = Host(QuickNoise(4))
    wanted = [share(IS_LATE, IN_A, mean=0.02), *EVERY.values(), counted(IN_A)]
    for each in wanted:
        host.ask(each)
    found = [host.ask(each) for each in wanted]
    other = Host(FakeNoise())
    for stored in host.stored:
        other.mechanism.absorb(other.mechanism.release_from_bytes(stored))
    assert any(stored[0] == SHARED for stored in host.stored)
    again = [other.ask(each) for each in wanted]
    for one, same in zip(found, again, strict=True):
        if isinstance(one, Summed):
            assert one == same


def test_what_needs_no_query_and_what_is_wrong_is_said() -> None:
    for share_of, where, field, words in (
        (IN_A, {"attribute": "status", "eq": "b"}, "share_of", "so the share is 0"),
        (EITHER, IN_A, "share_of", "so the share is 1"),
        (IN_A, {"any": []}, "where", "no row can satisfy it"),
        ({"all": [IN_A, {"attribute": "x", "eq": 1}]}, None, "share_of.all[1].attribute", ""),
    ):
        with pytest.raises(InvalidQuery) as caught:
            compile_share(UNIVERSE, share_of, where)
        assert caught.value.field == field
        assert words in caught.value.problem


# ---------------------------------------------------------------- the price

Scales = tuple[Fraction, Fraction | None]
Price = Callable[[SumLook, Scales], Fraction]


def contributions(look: SumLook) -> list[npt.NDArray[np.int64]]:
    """What each row that can be adds to what a look publishes, shape (vectors, answers)."""
    found = []
    for cells in product(*(range(size) for size in UNIVERSE.shape)):
        alone = Blocks(UNIVERSE)
        codes = tuple(np.array([cell], dtype=np.uint8) for cell in cells)
        alone.append(Block.seal(UNIVERSE, Rows(codes, None)))
        found.append(exact_sums(look, alone, 0))
    return found


def dearest(look: SumLook, scales: Scales) -> Fraction:
    """The loss of the two rows that the look tells apart best, by Theorem 1 for each number alone."""
    rows = contributions(look)
    squares = {
        tuple(np.square(one - other).sum(axis=1).tolist()) for one, other in product(rows, repeat=2)
    }
    return max(
        sum(
            (
                Fraction(square) / (2 * scale * scale)
                for square, scale in zip(pair, scales, strict=False)
                if scale
            ),
            Fraction(0),
        )
        for pair in squares
    )


def looks_at_shares() -> Iterator[SumLook]:
    for query in EVERY.values():
        for target in (Target(), Target(mean=0.02)):
            host = Host(QuickNoise(5))
            host.ask(replace(query, target=target))
            yield from (look for look in host.looks if isinstance(look, SumLook))


@cache
def right_prices() -> list[tuple[SumLook, Scales, Fraction]]:
    """Looks, their scales, and what the two rows lose that they tell apart best."""
    found = []
    for look in looks_at_shares():
        ((_, of_sums, of_counts),) = look.steps
        for step in (of_counts, of_counts - 20, of_counts + 20):
            scales = grid_sigma(of_sums), grid_sigma(step) if look.shape.counts else None
            found.append((look, scales, dearest(look, scales)))
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


def test_the_charge_is_the_price_and_the_auditor_finds_it_again() -> None:
    definition = Definition.read(
        {
            "version": 1,
            "dataset": "d",
            "privacy": {"epsilon": 1.0, "delta": 1e-9},
            "accuracy": {"error": 0.02},
            "phase": {"min_rows": 100},
            "attributes": [
                {"name": "status", "type": "category", "values": list("abcde"), "other": False},
                {"name": "country", "type": "category", "values": list("uvwx"), "other": False},
                {"name": "late", "type": "boolean"},
            ],
        }
    )
    budget = Budget.of(PRIVACY)
    line, prices = Line(budget.rho, Fraction(0), linear=False, recorded=True), Prices(budget)
    for look in looks_at_shares():
        ((_, of_sums, of_counts),) = look.steps
        sigma = grid_sigma(of_counts) if look.shape.counts else None
        units = prices.of(look.shape.rho(grid_sigma(of_sums), sigma))
        assert [charge.rho for charge in look.charges] == [units]
        ((block, due),) = Looks(definition, line).owed(look.description, [N_ROWS])
        assert (block, due.rho.least, due.rho.most) == (0, units, units)
    described = {**look.description, "blocks": [[0, 500, 250]]}
    for broken in (
        {"answers": 3},
        {"range": [256, 0]},
        {"range": [0, 0.5]},
        {"centre": None},
        {"every_row": 1},
        {"group_by": [7]},
        {"blocks": [[0, 200, 200, 200]]},
        {"blocks": [[1, 200, 150]]},
    ):
        with pytest.raises(Wrong):
            Looks(definition, line).owed({**described, **broken}, [N_ROWS])


@pytest.mark.parametrize("exact", [0.02, 0.1, 0.25, 0.5, 0.75, 0.97])
def test_it_costs_no_more_than_counting_both_parts_of_the_rows(exact: float) -> None:
    """The rival counts the part and the rest of the rows with equal noise, so it loses 1/sigma^2.

    ``part - p (part + rest)`` then has the variance ``((1 - p)^2 + p^2) sigma^2``. No two scales that are
    fitted to a share that is known beforehand cost less than half of 1/sigma^2 at a share of one half.
    """
    query, rows, bar, z = share(IS_LATE, IN_A), 30_000.0, 0.01, 2.6
    belief = Belief(UNIVERSE.shape)
    belief.open_block(N_ROWS)
    nothing = belief.sums(query)
    limit = (bar * rows / z) ** 2
    demand = SumDemand(np.array([exact]), np.array([limit]))
    evidence = Host(FakeNoise()).mechanism.state.evidence(query)
    prices = Prices(Budget.of(PRIVACY))
    room = np.array([UNITS], dtype=np.int64)
    look = SumPlanner(nothing, None, evidence, demand).look(prices, room)
    assert look is not None
    pair = prices.of(Fraction(((1.0 - exact) ** 2 + exact**2) / limit))
    ideal = prices.of(Fraction(0.5 / limit))
    assert look.total <= 1.03 * pair  # a step of the grid of scales is up to 2.8% of the price
    assert look.total <= 1.06 * ideal


# ---------------------------------------------------------------- memory


def test_the_look_serves_queries_for_both_counts_and_the_share_of_the_rest() -> None:
    host = Host(QuickNoise(6))
    host.ask(share(IS_LATE, IN_A, mean=0.01))
    n_looks = len(host.looks)
    for query in (counted(IN_A), counted(IS_LATE, IN_A), counted({"not": IN_A})):
        assert isinstance(host.ask(query), Answered)
    rest = host.ask_share(share({"not": IS_LATE}, IN_A, mean=0.011))
    part = host.ask_share(share(IS_LATE, IN_A, mean=0.011))
    assert len(host.looks) == n_looks
    (one,), (other,) = part.cells, rest.cells
    assert one.mean is not None
    assert other.mean is not None
    assert one.mean + other.mean == pytest.approx(1.0)
    assert one.mean_bar == pytest.approx(other.mean_bar)
    assert other.count - other.total == pytest.approx(one.total)


def test_after_a_group_by_the_share_in_one_group_is_free() -> None:
    host = Host(QuickNoise(7))
    groups = host.ask_share(share(IS_LATE, IN_A, by_country=True))
    one = host.ask_share(share(IS_LATE, {"all": [IN_A, IN_U]}))
    assert one.path is Path.CERTIFIED
    assert one.cells == groups.cells[:1]
    # A part that says something of the country itself is not made of the groups.
    other = share({"any": [IS_LATE, IN_U]}, {"all": [IN_A, {"not": {"all": [IN_U, IS_LATE]}}]})
    assert not host.mechanism.state.belief.sums(other).looked


def test_counts_that_were_asked_before_make_the_share_free() -> None:
    host = Host(QuickNoise(8))
    for query in (counted(IN_A), counted(IS_LATE, IN_A)):
        host.ask(replace(query, target=Target(share=0.003)))
    n_looks = len(host.looks)
    outcome = host.ask_share(share(IS_LATE, IN_A, mean=0.02))
    assert outcome.path is Path.CERTIFIED
    assert len(host.looks) == n_looks
    both, rows = truth(share(IS_LATE, IN_A))
    (cell,) = outcome.cells
    assert cell.mean is not None
    assert cell.mean_bar is not None
    assert abs(cell.mean - both[0] / rows[0]) <= cell.mean_bar


def matrix(moments: Moments) -> npt.NDArray[np.float64]:
    totals, both, counts = (
        float(np.asarray(m).ravel()[0]) for m in (moments.totals, moments.both, moments.counts)
    )
    return np.array([[totals, both], [both, counts]])


def test_tables_counts_and_looks_are_combined_as_gauss_and_markov_say() -> None:
    """Against generalised least squares on everything that was published about the cells."""
    query = share(IS_LATE, IN_A)
    draw = np.random.default_rng(9)
    belief = Belief(UNIVERSE.shape)
    belief.open_block(N_ROWS)
    exact = draw.integers(100, 3000, (5, 4, 2)).astype(float)
    exact *= N_ROWS / exact.sum()
    size = exact.size
    assert isinstance(query.total, Indicator)
    masks = [
        np.broadcast_to(each.along((0, 1, 2)), exact.shape).ravel().astype(float)
        for each in (query.total.predicate, query.predicate)
    ]
    seen: list[tuple[Floats, Floats, Floats]] = []
    table = exact + draw.normal(0.0, 40.0, exact.shape)
    belief.absorb_table((0, 1, 2), 0, table, 1600.0)
    seen.append((np.eye(size), table.ravel(), 1600.0 * np.eye(size)))
    for mask, asked, variance in (
        (masks[0], counted(IS_LATE, IN_A), 900.0),
        (masks[1], counted(IN_A), 2500.0),
    ):
        value = mask @ exact.ravel() + draw.normal(0.0, math.sqrt(variance))
        belief.absorb_count(asked.key, 0, np.array([value]), variance)
        seen.append((mask[None, :], np.array([value]), np.array([[variance]])))
    host = Host(QuickNoise(10))
    host.ask(share(IS_LATE, IN_A, mean=0.02))
    (look,) = host.looks[-1:]
    assert isinstance(look, SumLook)
    release = look.take(QuickNoise(11), host.data)
    estimate = release.estimates(N_ROWS, 0)
    belief.absorb_sums(query.key, (0, 2), 0, estimate)
    # Its counts are remembered for other queries, and must not be used a second time here.
    belief.absorb_count(release.keys[1], 0, estimate.counts, estimate.of_counts, of_share=True)
    belief.absorb_count(release.keys[2], 0, estimate.totals, estimate.of_totals, of_share=True)
    seen.append(
        (
            np.array(masks),
            np.array([estimate.totals[0], estimate.counts[0]]),
            np.array([[estimate.of_totals, estimate.both], [estimate.both, estimate.of_counts]]),
        )
    )
    # The number of all rows is public.
    seen.append((np.ones((1, size)), np.array([float(N_ROWS)]), np.array([[1e-6]])))
    information, weighted = np.zeros((size, size)), np.zeros(size)
    for design, values, covariance in seen:
        half = design.T @ np.linalg.inv(covariance)
        information += half @ design
        weighted += half @ values
    cells = np.linalg.inv(information)
    ask = np.array(masks)
    known = belief.sums(query).sums
    assert matrix(known.moments) == pytest.approx(ask @ cells @ ask.T, rel=1e-6)
    best = (ask @ cells @ weighted).tolist()
    assert [known.totals[0], known.counts[0]] == pytest.approx(best, rel=1e-4)


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


def normal_errors(factor: float) -> list[float]:
    """What each share is off, in its own deviations, where tables, counts and looks say something of it.

    ``part - p rows`` with the exact share p is normal with the variance that the bar of a share is made of.
    """
    query = share(IS_LATE, IN_A)
    ((both,), (rows,)) = truth(query)
    host = Host(QuickNoise(12), base_share=0.0005)
    host.ask(replace(counted(IN_A), target=Target(share=0.01)))
    host.ask(replace(query, target=Target(value=500.0)))
    assert {type(look) for look in host.looks} == {TablesLook, CountsLook, SumLook}
    noise, found = QuickNoise(15, factor), []
    for _ in range(2800):
        fresh = Calibrated(
            UNIVERSE, PRIVACY, Accuracy(0.02, 0.01), CalibratedSettings(base_share=0.0)
        )
        fresh.open_phase(N_ROWS)
        for look in host.looks:
            fresh.absorb(look.take(noise, host.data))
        known = fresh.belief.sums(query).sums
        variance = float(known.moments.of(np.array([both / rows]))[0])
        found.append(float(known.totals[0] - both / rows * known.counts[0]) / math.sqrt(variance))
    return found


def alarm(errors: list[float]) -> float:
    """The probability of a sum of squares as far from that of standard normal numbers."""
    total, n = float(np.square(errors).sum()), len(errors)
    return 2.0 * min(float(chi2.sf(total, n)), float(chi2.cdf(total, n)))


@pytest.mark.slow
def test_what_bars_are_made_of_has_the_variance_that_it_says() -> None:
    """False-alarm rate one in a million; noise that is 10% larger or smaller fails."""
    assert alarm(normal_errors(1.0)) > ALARM
    assert alarm(normal_errors(1.1)) < ALARM
    assert alarm(normal_errors(0.9)) < ALARM


def missed(factor: float, n: int) -> int:
    """How many draws of one final look at a share are outside the bars that they come with."""
    query = share(IS_LATE, IN_A, mean=0.02)
    ((both,), (rows,)) = truth(query)
    host = Host(QuickNoise(13), beta=0.4)
    host.ask(query)
    (*_, look) = host.looks
    assert isinstance(look, SumLook)
    assert look.final
    found, noise = 0, QuickNoise(16, factor)
    for _ in range(n):
        outcome = host.mechanism.conclude(query, look, look.take(noise, host.data))
        assert isinstance(outcome, Summed)
        (cell,) = outcome.cells
        assert cell.mean is not None
        assert cell.mean_bar is not None
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
    host = Host(QuickNoise(14))
    rare = {"all": [{"attribute": "status", "eq": "e"}, {"attribute": "country", "eq": "x"}]}
    (cell,) = host.ask_share(share(IS_LATE, rare)).cells
    assert cell.mean is None
    known = host.mechanism.state.belief.sums(share(IS_LATE, IN_A, mean=0.02))
    outcome = host.ask_share(share(IS_LATE, IN_A))
    sums = host.mechanism.state.belief.sums(known.query).sums
    bar = ratio_bar(
        float(sums.totals[0]),
        float(sums.counts[0]),
        (float(sums.moments.totals[0]), float(sums.moments.counts[0])),
        float(sums.moments.both[0]),
        2.5758293035489004,
    )
    assert outcome.cells[0].mean_bar == pytest.approx(bar)


def test_a_share_of_the_rest_is_another_query_about_the_same() -> None:
    query = share(IS_LATE, IN_A)
    rest = rest_of_share(query)
    assert rest == share({"not": IS_LATE}, IN_A)
    assert rest is not None
    assert rest.key != query.key
    assert rest_of_share(rest) == query
    assert rest_of_share(LinearQuery(EVERYTHING, range(1), (COUNTRY,))) is None
    assert Predicate.conjunction({}) == EVERYTHING
