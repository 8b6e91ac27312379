"""The planner: never more loss than a query lacks, never less noise than is charged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import norm

from stream_dp.core.budget.accountant import UNITS, Budget, Charge, gaussian_rho
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.belief.evidence import Belief, Evidence
from stream_dp.core.residual.belief.linear_forms import form_of
from stream_dp.core.residual.plan.planner import (
    FIRST_STEP,
    LAST_STEP,
    RENT_SHARE,
    Bounded,
    BudgetAllocator,
    Certified,
    Lack,
    MeasureCounts,
    Prices,
    Terms,
    count_look,
    plan,
    scales,
    table_look,
    water_fill,
)
from tests.core.residual.host import halves as random_halves

BUDGET = Budget.of(Privacy(1.0, 1e-9))
ACCURACY = Accuracy(0.02, 0.01)
TERMS = Terms.of(ACCURACY)
SHAPE = (6, 5, 4)


class Stage:
    """Blocks about which only base tables are published, and lines on which nothing else was spent."""

    def __init__(
        self,
        n_rows: tuple[int, ...] = (20_000,),
        base: float = 0.0,
        known: tuple[tuple[int, ...], ...] = (),
        variance: float = 1e4,
        seed: int = 0,
        *,
        pacing: bool = False,
    ) -> None:
        self.prices = Prices(BUDGET)
        self.allocator = BudgetAllocator(pacing=pacing)
        self.belief = Belief(SHAPE)
        rng = np.random.default_rng(seed)
        for block, n in enumerate(n_rows):
            self.allocator.opened(self.allocator.open(), base)
            self.belief.open_block(n)
            for attributes in known:
                cells = tuple(SHAPE[a] for a in attributes)
                table = np.full(cells, n / math.prod(cells))
                self.belief.absorb_table(
                    attributes, block, table + rng.normal(0, math.sqrt(variance), cells), variance
                )

    def evidence(self, query: LinearQuery) -> Evidence:
        return self.belief.evidence(form_of(query, SHAPE), query.key, query.window)

    def plan(self, query: LinearQuery) -> Any:
        return plan(self.evidence(query), TERMS, self.prices, self.allocator)

    def look(self, query: LinearQuery, measure: MeasureCounts) -> None:
        """Takes a look whose release is of no interest."""
        self.allocator.lines.charge(measure.charges)
        form = form_of(query, SHAPE)
        for block, step in measure.steps:
            variance = float(grid_sigma(step)) ** 2
            if measure.package is not None:
                cells = tuple(SHAPE[a] for a in form.attributes)
                self.belief.absorb_table(form.attributes, block, np.ones(cells), variance)
                self.allocator.bought(form.attributes, block)
            else:
                values = np.full(form.n_answers, 100.0)
                self.belief.absorb_count(query.key, block, values, variance)
                units = next(c.rho for c in measure.charges if c.block == block)
                self.allocator.rented(form.attributes, block, units)


def halves(
    *attributes: int, window: range = range(1), group_by: tuple[int, ...] = ()
) -> LinearQuery:
    factors = {a: np.arange(SHAPE[a]) < SHAPE[a] // 2 for a in attributes}
    return LinearQuery(Predicate.conjunction(factors), window, group_by)


# ---------------------------------------------------------------- water-filling


@given(
    st.lists(st.tuples(st.floats(0.01, 100), st.floats(0.0, 1.0)), min_size=1, max_size=5),
    st.floats(0.01, 1.2),
    st.booleans(),
)
@settings(max_examples=200)
def test_water_filling_spends_the_limit_at_one_level(
    blocks: list[tuple[float, float]], part: float, first_unknown: bool
) -> None:
    now = np.array([v for v, _ in blocks])
    lowest = now * np.array([share for _, share in blocks])
    limit = part * now.sum()
    if first_unknown:
        now[0] = math.inf
    levels = water_fill(now, lowest, limit)
    if levels is None:
        assert lowest.sum() > limit
        return
    assert (levels >= lowest).all()
    assert (levels <= now).all()
    assert levels.sum() <= limit * (1 + 1e-9)
    if not np.array_equal(levels, now):
        assert levels.sum() == pytest.approx(limit), "less precision would have done"
    free = (levels > lowest * (1 + 1e-9)) & (levels < now)
    assert np.ptp(levels[free]) <= 1e-6 * levels.max() if free.any() else True


@pytest.mark.parametrize("seed", range(6))
def test_water_filling_costs_least_among_all_ways_to_reach_the_limit(seed: int) -> None:
    """Brute force over a fine grid of three blocks' variances; counts cost 1/variance."""
    rng = np.random.default_rng(seed)
    now = rng.uniform(1.0, 20.0, 3)
    lowest = now * rng.uniform(0.05, 0.5, 3)
    limit = rng.uniform(lowest.sum(), now.sum())
    levels = water_fill(now, lowest, limit)
    assert levels is not None

    def cost(v: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        return np.asarray((1.0 / v - 1.0 / now).sum(axis=-1))

    axes = [np.linspace(low, high, 120) for low, high in zip(lowest, now, strict=True)]
    every = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, 3)
    feasible = every[every.sum(axis=1) <= limit]
    assert cost(levels) <= cost(feasible).min() + 1e-9


def test_water_filling_leaves_alone_what_fits_and_says_when_nothing_helps() -> None:
    now = np.array([1.0, 2.0])
    assert water_fill(now, now / 2, 3.0) is now
    assert water_fill(now, now, 2.9) is None
    assert water_fill(np.array([math.inf]), np.array([math.inf]), 1.0) is None


# ---------------------------------------------------------------- prices


@given(st.integers(1, UNITS), st.sampled_from([1, 2]))
def test_the_most_precise_step_is_affordable_and_the_next_is_not(units: int, squared: int) -> None:
    prices = Prices(BUDGET)
    assert prices.least_step(0, squared) is None, "an empty room buys nothing"
    step = prices.least_step(units, squared)
    if step is None:
        assert prices.units(1600, squared) > units
        return
    assert prices.units(step, squared) <= units < prices.units(step - 1, squared)


def test_a_price_is_that_of_the_exact_scale_rounded_up() -> None:
    prices = Prices(BUDGET)
    for step, squared in [(0, 1), (100, 2), (431, 2), (1600, 1)]:
        exact = gaussian_rho(grid_sigma(step), squared_sensitivity=squared) / BUDGET.rho * UNITS
        assert prices.units(step, squared) == math.ceil(exact)


def test_the_scales_that_are_planned_with_are_those_that_are_drawn() -> None:
    steps = range(FIRST_STEP, LAST_STEP + 1)
    assert scales().tolist() == [float(grid_sigma(step)) for step in steps]


# ---------------------------------------------------------------- decisions


def test_beta_is_split_between_bounds_and_measurement() -> None:
    assert norm.isf(0.01 / 2) == pytest.approx(TERMS.z)
    # A fifth is for bounds, and a tenth for bars at all times. Reflection takes half of the rest.
    assert norm.isf(0.7 / 2 * 0.01 / 2) == pytest.approx(TERMS.z_steered)
    assert math.exp(TERMS.log_bounds_failure) == pytest.approx(0.2 * 0.01)


def test_a_query_is_certified_up_to_the_very_variance_that_the_promise_allows() -> None:
    for factor, expected in [(0.999, Certified), (1.001, MeasureCounts)]:
        deviation = factor * 0.02 * 20_000 / TERMS.z_steered
        # Half of six cells: variance 6/4 of a cell's.
        stage = Stage(known=((0,),), variance=deviation**2 / 1.5)
        assert isinstance(stage.plan(halves(0)), expected)


def test_a_rare_value_is_bounded_although_its_interaction_was_never_measured() -> None:
    stage = Stage(known=((0,), (1,)), variance=100.0)
    rare = np.zeros(6)
    rare[0] = 20_000.0
    for _ in range(20):
        stage.belief.absorb_table((0,), 0, rare, 100.0)
    cell = Predicate.conjunction({0: np.arange(6) == 5, 1: np.arange(5) < 2})
    decision = stage.plan(LinearQuery(cell, range(1)))
    assert isinstance(decision, Bounded)
    assert decision.high[0] - decision.low[0] <= 2 * 0.02 * 20_000
    assert isinstance(stage.plan(halves(0, 1)), MeasureCounts | Bounded)


@pytest.mark.parametrize("query", [halves(0), halves(0, 1, 2), halves(1, group_by=(2, 0))])
@pytest.mark.parametrize("known", [(), ((0, 1), (1, 2))])
def test_a_look_is_just_precise_enough(
    query: LinearQuery, known: tuple[tuple[int, ...], ...]
) -> None:
    """After the look the promise holds; with the scale one step coarser it would not."""
    stage = Stage(known=known, variance=3e5)
    decision = stage.plan(query)
    limit = (0.02 * 20_000 / TERMS.z_steered) ** 2
    ((block, step),) = decision.steps
    evidence = stage.evidence(query)
    after = evidence.after_count if decision.package is None else evidence.after_table
    precision = [float(grid_sigma(s)) ** -2.0 for s in (step, step + 1)]
    assert after(np.array(precision[:1])) <= limit
    assert after(np.array(precision[1:])) > limit
    assert block == 0
    squared = 1 if decision.package is None and not query.group_by else 2
    exact = gaussian_rho(grid_sigma(step), squared_sensitivity=squared) / BUDGET.rho * UNITS
    assert decision.charges == (Charge(0, math.ceil(exact)),)


def test_only_blocks_of_the_window_that_lack_precision_pay() -> None:
    stage = Stage(n_rows=(20_000,) * 5)
    for block in (1, 3):
        stage.belief.absorb_table((0,), block, np.full(6, 3333.0), 1.0)
    decision = stage.plan(halves(0, window=range(1, 5)))
    assert [block for block, _ in decision.steps] == [2, 4]
    assert len({step for _, step in decision.steps}) == 1, "a common level"


def test_rent_is_paid_until_the_table_is_worth_buying() -> None:
    """Counts first; then one table; then its successors' queries are certified."""
    stage = Stage(known=((0, 1), (0, 2), (1, 2)), variance=1e3)
    rng = np.random.default_rng(2)
    kinds, rent_when_bought, table = [], 0, None
    for _ in range(200):
        query = random_halves(rng, SHAPE, range(3), range(1))
        decision = stage.plan(query)
        kinds.append("none")
        if isinstance(decision, MeasureCounts):
            kinds[-1] = "count" if decision.package is None else "table"
            if decision.package is not None:
                rent_when_bought = stage.allocator.rent((0, 1, 2), range(1))
                table = decision
            stage.look(query, decision)
    assert kinds[0] == "count"
    assert table is not None
    bought = kinds.index("table")
    assert "count" not in kinds[bought + 1 :]
    assert rent_when_bought >= RENT_SHARE * table.total
    assert stage.allocator.rent((0, 1, 2), range(1)) == 0, "rent starts again"


def test_a_table_that_takes_too_much_of_the_line_is_not_bought() -> None:
    stage = Stage(n_rows=(200_000,))
    stage.allocator.rented((0, 1, 2), 0, UNITS)
    table = stage.plan(halves(0, 1, 2))
    assert table.package is not None
    stage.allocator.lines.charge([Charge(0, UNITS - 49 * table.total)])
    assert stage.plan(halves(0, 1, 2)).package is None


def test_an_exhausted_line_leaves_bounds_and_says_what_is_lacking() -> None:
    stage = Stage(known=((0,),), variance=4e4)
    stage.allocator.lines.charge([Charge(0, UNITS)])
    decision = stage.plan(halves(0, 1))
    assert decision.lack is Lack.BUDGET
    assert 0.0 <= decision.low[0] <= decision.high[0] <= 20_000.0
    paced = Stage(pacing=True)
    paced.allocator.lines.charge([Charge(0, UNITS // 2)])
    assert paced.plan(halves(0)).lack is Lack.PACE
    paced.allocator.opened(paced.allocator.open(), 0.0)
    assert paced.plan(halves(0)).charges, "the next phase lets go of half of the rest"
    assert Stage(n_rows=(50,)).plan(halves(0)).lack is Lack.ROWS


def test_where_an_old_line_is_at_its_cap_newer_ones_do_more() -> None:
    stage = Stage(n_rows=(20_000, 20_000), base=0.2, pacing=True)
    free = stage.plan(halves(0, 1, window=range(2)))
    assert free.charges[0].rho == free.charges[1].rho
    room = stage.allocator.room(range(2))
    stage.allocator.lines.charge([Charge(0, int(room[0]) - free.charges[0].rho * 4 // 5)])
    paced = stage.plan(halves(0, 1, window=range(2)))
    assert paced.charges[0].rho <= stage.allocator.room(range(2))[0]
    assert paced.charges[1].rho > free.charges[1].rho


@pytest.mark.parametrize("way", [count_look, table_look])
@pytest.mark.parametrize("group_by", [(), (0,), (1, 2)])
def test_a_block_without_room_pays_nothing_whatever_the_others_lack(
    way: Any, group_by: tuple[int, ...]
) -> None:
    """Its rows may be erased, so a look at it would end the worker."""
    looks = 0
    for seed in range(150):
        rng = np.random.default_rng(seed)
        stage = Stage(n_rows=(20_000,) * 4)
        for block in range(4):
            for attributes in ((0, 1), (0, 1, 2)):
                variance = float(rng.uniform(1e2, 1e7))
                shape = tuple(SHAPE[a] for a in attributes)
                table = np.full(shape, 20_000 / math.prod(shape))
                stage.belief.absorb_table(attributes, block, table, variance)
        evidence = stage.evidence(halves(0, group_by=group_by, window=range(4)))
        room = np.where(rng.random(4) < 0.5, 0, rng.integers(1, UNITS // 100, 4))
        limit = float(evidence.by_block().sum() * rng.uniform(0.3, 1.0))
        found = way(evidence, stage.prices, room, limit)
        if found is not None:
            looks += 1
            assert [c for c in found.charges if not 0 < c.rho <= room[c.block]] == []
    assert looks > 30


# ---------------------------------------------------------------- pacing


def test_pacing_keeps_part_of_young_lines_and_lets_go_of_half_of_it_each_phase() -> None:
    allocator = BudgetAllocator(pacing=True)
    for block in range(4):
        allocator.opened(allocator.open(), 0.2)
        expected = [0.2 + 0.8 * (1 - 2.0 ** -(block - b + 1)) for b in range(block + 1)]
        room = allocator.room(range(block + 1)) / UNITS
        assert room.tolist() == pytest.approx(expected)
        assert (room <= np.array(expected) + 1e-15).all()
    allocator.lines.charge([Charge(0, UNITS)])
    assert allocator.room(range(1)).tolist() == [0]
    plain = BudgetAllocator()
    plain.opened(plain.open(), 0.2)
    assert plain.room(range(1)).tolist() == [UNITS], "without pacing all may be spent at once"


def test_a_table_too_large_to_draw_noise_for_is_not_bought() -> None:
    shape = (300, 300)
    belief, allocator = Belief(shape), BudgetAllocator()
    belief.open_block(10**6)
    allocator.opened(allocator.open(), 0.0)
    allocator.rented((0, 1), 0, UNITS)
    query = LinearQuery(Predicate.conjunction(dict.fromkeys((0, 1), np.arange(300) < 1)), range(1))
    evidence = belief.evidence(form_of(query, shape), query.key, range(1))
    decision: Any = plan(evidence, TERMS, Prices(BUDGET), allocator)
    assert decision.package is None
