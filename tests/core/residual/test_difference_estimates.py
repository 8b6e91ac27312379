"""Differences of two windows: their estimates, their price, and their bars."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import Bounds, minimize
from scipy.stats import binomtest, chi2

from stream_dp.core.budget.accountant import UNITS
from stream_dp.core.budget.parameters import Accuracy, Privacy, Target
from stream_dp.core.mechanism import Look
from stream_dp.core.outcome import Differences, Outcome, Path, RefusalCode, Refused
from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import NoiseSource, grid_sigma
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.looks.table_looks import CountsLook, TablesLook
from stream_dp.core.residual.plan.planner import water_fill
from stream_dp.core.residual.ways.differences import Windows
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.universe import Boolean, Category, Rows, Universe
from tests.noise import FakeNoise, QuickNoise

ALARM = 1e-6
COUNTRY, LATE = range(2)
UNIVERSE = Universe((Category("country", tuple("uvwx"), other=False), Boolean("late")))
IS_LATE = Predicate.conjunction({LATE: np.array([False, True])})
IN_U = Predicate.conjunction({COUNTRY: np.arange(4) == 0})
ROWS = (40_000, 30_000, 50_000, 20_000)
Floats = npt.NDArray[np.float64]


def block_of(number: int) -> Block:
    draw, n_rows = np.random.default_rng(number), ROWS[number]
    country = draw.choice(4, n_rows, p=[0.4, 0.3, 0.2, 0.1]).astype(np.uint8)
    late = (draw.random(n_rows) < 0.1 + 0.05 * number + 0.1 * country).astype(np.uint8)
    return Block.seal(UNIVERSE, Rows((country, late), None))


BLOCKS = [block_of(number) for number in range(4)]


def asked(
    first: range,
    second: range,
    predicate: Predicate = IS_LATE,
    *,
    by_country: bool = False,
    **target: Any,
) -> LinearQuery:
    both = range(min(first.start, second.start), max(first.stop, second.stop))
    group_by = (COUNTRY,) if by_country else ()
    return LinearQuery(
        predicate, both, group_by, target=Target(**target), difference=(first, second)
    )


DAY_BEFORE = asked(range(3, 4), range(2, 3))
DAY_AND_ALL = asked(range(3, 4), range(4))
ALL_AND_DAY = asked(range(4), range(3, 4), by_country=True)
HALVES = asked(range(2, 4), range(2), IN_U)
EVERY = {"before": DAY_BEFORE, "of all": DAY_AND_ALL, "by country": ALL_AND_DAY, "halves": HALVES}
every = pytest.mark.parametrize("query", EVERY.values(), ids=EVERY.keys())


class Host:
    """A data set with four phases, and the looks that it took."""

    def __init__(
        self,
        noise: NoiseSource,
        *,
        beta: float = 0.01,
        error: float = 0.02,
        base_share: float = 0.0,
    ) -> None:
        self.mechanism = Calibrated(
            UNIVERSE,
            Privacy(1.0, 1e-9),
            Accuracy(error, beta),
            CalibratedSettings(base_share=base_share, pacing=False),
        )
        self.noise, self.data = noise, Blocks(UNIVERSE)
        self.looks: list[Look] = []
        for block, n_rows in zip(BLOCKS, ROWS, strict=True):
            self.data.append(block)
            for look in self.mechanism.open_phase(n_rows):
                self.take(look)

    def take(self, look: Look) -> None:
        self.mechanism.charged(look.charges)
        self.looks.append(look)
        self.release = look.take(self.noise, self.data)
        self.mechanism.absorb(self.mechanism.release_from_bytes(self.release.to_bytes()))

    def ask(self, query: LinearQuery) -> Outcome:
        step = self.mechanism.answer(query)
        while isinstance(step, Look):
            self.take(step)
            step = self.mechanism.conclude(query, step, self.release)
        return step

    def ask_difference(self, query: LinearQuery) -> Differences:
        outcome = self.ask(query)
        assert isinstance(outcome, Differences)
        return outcome

    @property
    def spent(self) -> int:
        return sum(charge.rho for look in self.looks for charge in look.charges)


def truth(query: LinearQuery) -> tuple[Floats, Floats]:
    """The differences of shares and of counts."""
    data = Blocks(UNIVERSE)
    for block in BLOCKS:
        data.append(block)
    assert query.difference is not None
    counts = []
    for window in query.difference:
        table = data.marginal((COUNTRY, LATE), window).sum(axis=0)
        inside = (table * query.predicate.along((COUNTRY, LATE))).sum(axis=LATE)
        counts.append(inside if query.group_by else inside.sum(keepdims=True))
    rows = [sum(ROWS[b] for b in window) for window in query.difference]
    return counts[0] / rows[0] - counts[1] / rows[1], counts[0] - counts[1]


@every
def test_without_noise_the_answer_is_the_exact_difference(query: LinearQuery) -> None:
    outcome = Host(QuickNoise(1, 0.0)).ask_difference(query)
    shares, counts = truth(query)
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
    host = Host(QuickNoise(2))
    query = replace(query, target=Target(share=0.01))
    quote = host.mechanism.quote(query)
    outcome = host.ask_difference(query)
    shares, counts = truth(query)
    bars = [cell.share_bar or math.inf for cell in outcome.cells]
    assert max(bars) <= 0.01 * (1 + 1e-9)
    assert quote.error_bar == pytest.approx(max(bars))
    assert sum(c.rho for c in quote.charges) == host.spent
    for cell, share, count in zip(outcome.cells, shares.tolist(), counts.tolist(), strict=True):
        assert cell.share_bar is not None
        assert cell.count_bar is not None
        assert abs(cell.share - share) <= cell.share_bar
        assert abs(cell.count - count) <= cell.count_bar
    again = host.ask_difference(replace(query, target=Target(share=0.011)))
    assert again.path is Path.CERTIFIED
    assert again.cells == outcome.cells
    assert len(host.looks) == 1


def test_counts_of_each_window_make_the_difference_cheaper() -> None:
    alone, helped = Host(QuickNoise(3)), Host(QuickNoise(3))
    helped.ask(LinearQuery(IS_LATE, range(3, 4), target=Target(share=0.01)))
    query = replace(DAY_BEFORE, target=Target(share=0.01))
    before, after = (host.mechanism.quote(query) for host in (alone, helped))
    assert sum(c.rho for c in after.charges) < sum(c.rho for c in before.charges)
    # And the other way round: its look serves the counts.
    alone.ask(query)
    count = LinearQuery(IS_LATE, range(3, 4), target=Target(share=0.01))
    assert alone.mechanism.quote(count).charges == ()


def test_a_block_in_both_windows_errs_by_what_is_left_of_it() -> None:
    """Of one day against all, the noise of that day counts by the difference of its two shares."""
    host = Host(QuickNoise(4))
    host.ask(LinearQuery(IS_LATE, range(4), target=Target(share=0.02)))
    evidence = host.mechanism.state.evidence(LinearQuery(IS_LATE, range(4)))
    variances = evidence.variances_by_block[0]
    n_rows = sum(ROWS)
    expected = sum(
        (float(block == 3) / ROWS[3] - 1.0 / n_rows) ** 2 * variances[block] for block in range(4)
    )
    outcome = host.ask_difference(asked(range(3, 4), range(4), share=0.9))
    z = host.mechanism.state.terms.z
    assert outcome.cells[0].share_bar == pytest.approx(z * math.sqrt(expected))
    by_count = sum(variances[block] for block in range(3))
    assert outcome.cells[0].count_bar == pytest.approx(z * math.sqrt(by_count))


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


def test_weights_of_one_change_nothing() -> None:
    draw = np.random.default_rng(6)
    for _ in range(20):
        now = draw.uniform(1.0, 5.0, 6)
        lowest, limit = 0.1 * now, 0.4 * now.sum()
        plain = water_fill(now, lowest, limit)
        weighted = water_fill(now, lowest, limit, weights=np.ones(6))
        assert plain is not None
        assert weighted is not None
        assert weighted == pytest.approx(plain)


def test_the_scales_of_its_counts_are_inverse_to_how_much_a_block_counts() -> None:
    host = Host(QuickNoise(7))
    host.ask(replace(DAY_AND_ALL, target=Target(share=0.01)))
    (look,) = host.looks
    assert isinstance(look, CountsLook)
    sizes = np.abs(Windows(range(3, 4), range(4), ROWS).of_shares)
    variances = np.array([float(grid_sigma(step)) ** 2 for _, step in look.steps])
    level = variances * sizes
    assert level.max() / level.min() < 1.08  # the grid of scales has steps of 1.4%


def test_a_limit_that_is_too_low_is_refused_with_the_price() -> None:
    host = Host(QuickNoise(8))
    refused = host.ask(replace(DAY_BEFORE, target=Target(share=0.001, at_most=1e-9)))
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.PRICE_TOO_HIGH
    assert host.spent == 0


def test_without_budget_the_bar_says_what_is_known() -> None:
    host = Host(QuickNoise(9), base_share=0.001)
    n_looks = len(host.looks)
    outcome = host.ask_difference(replace(DAY_BEFORE, target=Target(share=1e-5)))
    assert outcome.path is Path.UNVERIFIED
    assert outcome.cells[0].share_bar is not None
    assert len(host.looks) == n_looks
    nothing = Host(FakeNoise()).ask_difference(replace(DAY_BEFORE, target=Target(share=1e-6)))
    assert nothing.cells[0].share_bar is None


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [(range(4), range(0), "no phase before"), (range(4), range(4), "the same phases")],
)
def test_windows_that_cannot_be_compared_are_refused(
    first: range, second: range, words: str
) -> None:
    query = LinearQuery(IS_LATE, range(4), difference=(first, second))
    refused = Host(FakeNoise()).ask(query)
    assert isinstance(refused, Refused)
    assert refused.code is RefusalCode.WINDOW_TOO_SMALL
    assert refused.retriable
    assert words in refused.message


# ---------------------------------------------------------------- the bars


def watched(query: LinearQuery) -> Host:
    """A data set in which tables and counts say something of a difference."""
    host = Host(QuickNoise(10), base_share=0.0005)
    host.ask(LinearQuery(IS_LATE, range(1, 4), target=Target(share=0.015)))
    host.ask(replace(query, target=Target(share=0.01)))
    return host


def as_if_windows_were_apart(query: LinearQuery) -> float:
    """How many times too wide a bar is whose windows do not know of the blocks that they share."""
    assert query.difference is not None
    variances = watched(query).mechanism.state.evidence(LinearQuery(IS_LATE, range(4)))
    by_block = variances.variances_by_block[0]
    each = [
        sum(by_block[b] for b in window) / sum(ROWS[b] for b in window) ** 2
        for window in query.difference
    ]
    exact = Windows(*query.difference, ROWS).of_shares
    right = sum(c * c * v for c, v in zip(exact, by_block, strict=False) if c)
    return math.sqrt(sum(each) / right)


def errors(factor: float, query: LinearQuery) -> list[float]:
    """What a difference is off, in its own deviations."""
    host = watched(query)
    assert {type(look) for look in host.looks} == {TablesLook, CountsLook}
    (share,), _ = truth(query)
    noise, found, z = QuickNoise(11, factor), [], host.mechanism.state.terms.z
    for _ in range(2800):
        fresh = Calibrated(
            UNIVERSE, Privacy(1.0, 1e-9), Accuracy(0.02, 0.01), CalibratedSettings(base_share=0.0)
        )
        for n_rows in ROWS:
            fresh.open_phase(n_rows)
        for look in host.looks:
            fresh.absorb(look.take(noise, host.data))
        outcome = fresh.answer(replace(query, target=Target(share=0.5)))
        assert isinstance(outcome, Differences)
        (cell,) = outcome.cells
        assert cell.share_bar is not None
        found.append((cell.share - share) / (cell.share_bar / z))
    return found


@pytest.mark.slow
@pytest.mark.parametrize("query", [DAY_BEFORE, DAY_AND_ALL], ids=["apart", "overlapping"])
def test_bars_of_differences_cover_as_they_say(query: LinearQuery) -> None:
    """False-alarm rate one in a million; noise that is 10% larger or smaller fails."""

    def alarm(found: list[float]) -> float:
        total, n = float(np.square(found).sum()), len(found)
        return 2.0 * min(float(chi2.sf(total, n)), float(chi2.cdf(total, n)))

    right = errors(1.0, query)
    assert alarm(right) > ALARM
    outside = sum(abs(each) > 2.5758293 for each in right)
    assert binomtest(outside, len(right), 0.01).pvalue > ALARM
    if query is DAY_AND_ALL:  # a broken copy
        wide = as_if_windows_were_apart(query)
        assert alarm([each / wide for each in right]) < ALARM
    wrong = 1.1 if query is DAY_BEFORE else 0.9
    assert alarm(errors(wrong, query)) < ALARM


def test_units_of_a_line_are_whole() -> None:
    host = Host(QuickNoise(12))
    host.ask(HALVES)
    assert 0 < host.spent < 4 * UNITS
