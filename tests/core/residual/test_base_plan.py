"""The base release: what it costs, what it certifies, and that it is never dearer than what it saves."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.core.budget.accountant import UNITS, Budget, gaussian_rho
from stream_dp.core.budget.parameters import Accuracy, Privacy, Unit
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate, Total
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.base_release.base_plan import (
    CAP,
    NAMED_CAP,
    BaseRelease,
    Design,
    Reach,
    base_plan,
)
from stream_dp.core.residual.base_release.expected_queries import (
    ALL_PHASES,
    Group,
    PlannedTile,
    bounding,
    conjunction_norms,
    declared_workload,
    generic_workload,
)
from stream_dp.core.residual.base_release.growth import Growth
from stream_dp.core.residual.belief.evidence import Belief
from stream_dp.core.residual.belief.linear_forms import form_of
from stream_dp.core.residual.belief.sums import form_of_total
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.plan.planner import Prices, Terms
from stream_dp.core.residual.plan.reserve import Reserve
from stream_dp.core.residual.plan.residual_price import residual_price, standalone_price
from stream_dp.core.rows.universe import Category, Number, Universe
from tests.slow import rest_is_slow

BUDGET = Budget.of(Privacy(1.0, 1e-9))
PRICES = Prices(BUDGET)
OF_PERSONS = Budget.of(Privacy(1.0, 1e-9, Unit(1, 1)))
"""Holds as much on each line, and the number of rows that count is private."""
ORDERS = (12, 13, 301, 5)
ONE_PHASE = ((1, 1.0),)


def terms(error: float) -> Terms:
    return Terms.of(Accuracy(error, 0.01))


def limit(n_rows: int, error: float) -> float:
    return (error * n_rows / terms(error).z) ** 2


def released(
    shape: tuple[int, ...],
    n_rows: int,
    error: float,
    *,
    groups: tuple[Group, ...] | None = None,
    queries: int | None = None,
    base_share: float | None = None,
    budget: Budget = BUDGET,
) -> BaseRelease:
    plan = base_plan(shape, groups, queries, total_known=budget.total_known)
    return plan.release(n_rows, terms(error), base_share, budget, Prices(budget))


def conjunction(
    shape: tuple[int, ...], attributes: tuple[int, ...], cells: tuple[int, ...]
) -> Group:
    norms = conjunction_norms([shape[a] for a in attributes], cells)
    return Group(attributes, norms, ONE_PHASE)


def phases_of_a_cell(
    shape: tuple[int, ...], release: BaseRelease, variance: float, attributes: tuple[int, ...]
) -> float:
    """Phases about which a table over ``attributes`` is certified."""
    norms = conjunction_norms([shape[a] for a in attributes], [1] * len(attributes))
    return Reach(shape, release, variance).phases(attributes, norms)


# ---------------------------------------------------------------- prices


def variance_by_least_squares(
    shape: tuple[int, ...],
    weights: dict[tuple[int, ...], float],
    query: np.ndarray,
    *,
    total_known: bool,
) -> float:
    """The variance of the best unbiased estimate, from the measurements themselves: no residuals.

    Where the number of rows is public, only the part of a query that is orthogonal to the total is unknown.
    """
    cells = list(product(*map(range, shape)))
    information = np.zeros((len(cells), len(cells)))
    for attributes, weight in weights.items():
        for wanted in product(*(range(shape[a]) for a in attributes)):
            row = np.array([tuple(cell[a] for a in attributes) == wanted for cell in cells])
            information += weight * np.outer(row, row)
    n = len(cells)
    centre = np.eye(n) - total_known / n
    unknown = centre @ query.ravel()
    return float(unknown @ np.linalg.pinv(centre @ information @ centre) @ unknown)


@given(seed=st.integers(0, 2**32 - 1), total_known=st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_variance_of_a_design_is_that_of_least_squares(*, seed: int, total_known: bool) -> None:
    rng = np.random.default_rng(seed)
    shape = (2, 3, 2)
    selected = tuple(int(rng.integers(1, n)) for n in shape)
    design = Design(shape, [conjunction(shape, (0, 1, 2), selected)], total_known=total_known)
    assert (() in design.tables) != total_known, "the number of rows is measured if it is private"
    weights = rng.random(len(design.tables)) + 0.1
    query = np.ones(shape)
    for axis, cells in enumerate(selected):
        inside = (np.arange(shape[axis]) < cells).astype(float)
        query = query * inside.reshape([-1 if a == axis else 1 for a in range(3)])
    (found,) = design.variances(weights)
    named = dict(zip(design.tables, weights.tolist(), strict=True))
    least = variance_by_least_squares(shape, named, query, total_known=total_known)
    assert found == pytest.approx(least)


@given(st.integers(0, 2**32 - 1))
def test_lemma_a_the_price_of_a_release_is_the_sum_of_the_prices_of_its_residuals(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(2, 6, 3).tolist())
    tables = [t for k in (1, 2, 3) for t in combinations(range(3), k)]
    weights = {t: Fraction(int(rng.integers(1, 100)), 7) for t in tables}

    def precision(inside: tuple[int, ...]) -> Fraction:
        return sum(
            (
                weight / math.prod(shape[a] for a in table if a not in inside)
                for table, weight in weights.items()
                if set(inside) <= set(table)
            ),
            Fraction(),
        )

    def weight(table: tuple[int, ...]) -> Fraction:
        """By inversion over the tables above it."""
        return sum(
            (
                (-1) ** (len(above) - len(table))
                * precision(above)
                / math.prod(shape[a] for a in above if a not in table)
                for above in tables
                if set(table) <= set(above)
            ),
            Fraction(),
        )

    def price(inside: tuple[int, ...]) -> Fraction:
        sizes = [shape[a] for a in inside]
        both = (
            math.prod(1 - Fraction(1, n) for n in sizes),
            math.prod(-Fraction(1, n) for n in sizes),
        )
        return Fraction(both[0]) - both[1]

    assert all(weight(table) == weights[table] for table in tables)
    assert sum(price(t) * precision(t) for t in tables) == sum(weights.values())
    for t in tables:
        assert residual_price([shape[a] for a in t]) == pytest.approx(float(price(t)))


@given(st.integers(0, 2**32 - 1))
def test_lemma_a_holds_without_a_public_number_of_rows_and_with_no_other_prices(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(2, 6, 3).tolist())
    tables = [t for k in range(4) for t in combinations(range(3), k)]
    weights = {t: Fraction(int(rng.integers(0, 10))) for t in tables}

    def precision(t: tuple[int, ...]) -> Fraction:
        above = [s for s in tables if set(t) <= set(s)]
        return sum(
            (weights[s] / math.prod(shape[a] for a in s if a not in t) for s in above), Fraction(0)
        )

    def price(t: tuple[int, ...]) -> Fraction:
        return math.prod((1 - Fraction(1, shape[a]) for a in t), start=Fraction(1))

    assert sum(price(t) * precision(t) for t in tables) == sum(weights.values())
    for t in tables:
        found = residual_price([shape[a] for a in t], total_known=False)
        assert found == pytest.approx(float(price(t)))
    # One table determines all prices, so those for a public number of rows cannot be right here.
    known = sum(residual_price([shape[a] for a in t]) * float(precision(t)) for t in tables)
    if weights[()]:
        assert known == pytest.approx(float(sum(weights.values()) - weights[()]))


def test_the_prices_of_residuals_are_those_that_were_worked_out() -> None:
    assert residual_price((12,)) == residual_price((5,)) == 1.0
    assert residual_price((12, 5)) == pytest.approx(0.716667, abs=1e-6)
    assert residual_price((12, 13, 5)) == pytest.approx(0.678205, abs=1e-6)
    assert residual_price((2, 2)) == 0.0, "once both are measured, their interaction is free"
    assert residual_price((2, 2, 2)) == 0.25
    assert residual_price(()) == 0.0
    assert residual_price((), total_known=False) == 1.0
    assert residual_price((2, 2), total_known=False) == 0.25


def test_the_variances_and_the_prices_on_demand_are_those_that_were_worked_out() -> None:
    for n_rows, variance, count in (
        (20_000, 24114.92, 0.00138475736),
        (5_000, 1507.182, 0.0221561178),
    ):
        assert limit(n_rows, 0.02) == pytest.approx(variance, rel=1e-6)
        one = base_plan((5,), (conjunction((5,), (0,), (1,)),))
        table = base_plan((5,), (Group((0,), conjunction_norms([5], [1]), ONE_PHASE, table=True),))
        assert one.one_by_one(n_rows, terms(0.02), BUDGET) == pytest.approx(count, rel=1e-6)
        assert table.one_by_one(n_rows, terms(0.02), BUDGET) == pytest.approx(2 * count, rel=1e-6)
        blank = base_plan((5,), table.groups, total_known=False)
        assert blank.one_by_one(n_rows, terms(0.02), OF_PERSONS) == pytest.approx(count, rel=1e-6)


WORKED_OUT = {
    "a status": ((3,), (1,), 0.8, 0.8),
    "a country and a status": ((0, 3), (1, 1), 0.982028, 0.983333),
    "6 amounts and a status": ((1, 3), (6, 1), 4.576894, 4.578451),
    "a country, 6 amounts and a status": ((0, 1, 3), (1, 6, 1), 4.770982, 4.772455),
    "20 categories": ((2,), (20,), 18.671096, 18.671096),
}


@pytest.mark.parametrize(
    ("attributes", "cells", "alone", "least"), WORKED_OUT.values(), ids=WORKED_OUT
)
def test_lemma_b_bounds_the_cheapest_release_from_below(
    attributes: tuple[int, ...], cells: tuple[int, ...], alone: float, least: float
) -> None:
    group = conjunction(ORDERS, attributes, cells)
    design = Design(ORDERS, [group])
    found = design.cheapest(np.array([0]), np.array([1.0]), rounds=4000, tolerance=1e-7)
    assert standalone_price(group.norms, [ORDERS[a] for a in attributes]) == pytest.approx(
        alone, abs=1e-6
    )
    assert found.cost == pytest.approx(least, abs=2e-6)
    assert alone <= found.cost * (1 + 1e-6)
    assert found.bound <= found.cost <= found.bound * (1 + 1e-6)


def test_the_weights_for_6_amounts_and_a_status_are_those_that_were_worked_out() -> None:
    design = Design(ORDERS, [conjunction(ORDERS, (1, 3), (6, 1))])
    found = design.cheapest(np.array([0]), np.array([1.0]), rounds=4000, tolerance=1e-7)
    weights = dict(zip(design.tables, found.weights.tolist(), strict=True))
    assert weights[(3,)] == pytest.approx(0.5754, abs=1e-4)
    assert weights[(1, 3)] == pytest.approx(4.0031, abs=1e-4)
    assert weights[(1,)] == pytest.approx(0.0, abs=1e-4)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=10, deadline=None)
def test_lemmas_b_and_c_bound_what_a_search_finds_without_a_public_number_of_rows(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(2, 9, 2).tolist())
    groups = [
        conjunction(shape, attributes, tuple(int(rng.integers(1, shape[a])) for a in attributes))
        for attributes in ((), (0,), (1,), (0, 1))
    ]
    limits = rng.random(4) + 0.2
    design = Design(shape, groups, total_known=False)
    found = design.cheapest(np.arange(4), limits, rounds=2000, tolerance=1e-4)
    steps = 30
    searched, alone = math.inf, np.full(4, math.inf)
    for cuts in combinations(range(1, steps + 3), 3):
        parts = np.diff((0, *cuts, steps + 3)) - 1  # all ways to divide the weight among 4 tables
        variances = design.variances(parts / steps)
        searched = min(searched, float((variances / limits).max()))
        alone = np.minimum(alone, variances)
    assert found.bound <= searched * (1 + 1e-9), "a lower bound on every release"
    assert found.cost <= searched * (1 + 1e-3), "and no search finds a cheaper one"
    assert (design.variances(found.weights) <= limits * (1 + 1e-9)).all()
    assert (design.alone <= alone * (1 + 1e-9)).all(), "Lemma B bounds each group by itself"
    assert (alone <= design.alone * 1.05).all(), "and is attained: the number of rows is a table"
    free = [standalone_price(g.norms, [shape[a] for a in g.attributes]) for g in groups]
    assert (np.array(free) < design.alone).all(), "a public number of rows would be free"


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None)
def test_lemma_c_bounds_what_a_search_over_all_weights_finds(seed: int) -> None:
    rng = np.random.default_rng(seed)
    shape = tuple(rng.integers(2, 9, 2).tolist())
    groups = [
        conjunction(shape, attributes, tuple(int(rng.integers(1, shape[a])) for a in attributes))
        for attributes in ((0,), (1,), (0, 1))
    ]
    limits = rng.random(3) + 0.2
    design = Design(shape, groups)
    found = design.cheapest(np.arange(3), limits, rounds=2000, tolerance=1e-4)
    steps = 60
    searched = min(
        float((design.variances(np.array([i, j, steps - i - j]) / steps) / limits).max())
        for i in range(1, steps)
        for j in range(1, steps - i)
    )
    assert found.bound <= searched * (1 + 1e-9), "a lower bound on every release"
    assert found.cost <= searched * (1 + 1e-3), "and no search finds a cheaper one"
    assert (design.variances(found.weights) <= limits * (1 + 1e-9)).all()


@pytest.mark.parametrize("shape", [ORDERS, (16, 3, 6, 8, 4), (9, 16, 7, 15, 6, 5, 2, 42)], ids=str)
def test_the_release_for_all_of_a_workload_is_close_to_the_cheapest(shape: tuple[int, ...]) -> None:
    groups = generic_workload(shape)
    design = Design(shape, groups)
    found = design.cheapest(np.arange(len(design.groups)), np.ones(len(design.groups)))
    assert found.cost <= 1.05 * found.bound


# ---------------------------------------------------------------- what is spent


@pytest.mark.parametrize(
    ("n_rows", "error", "share"),
    [(20_000, 0.02, 0.0337), (20_000, 0.05, 0.0048), (50_000, 0.05, 0.0008)],
)
def test_the_orders_cost_what_was_worked_out(n_rows: int, error: float, share: float) -> None:
    assert released(ORDERS, n_rows, error).share == pytest.approx(share, abs=6e-5)


SHAPES = [(4,), (2, 2), (5, 5), ORDERS, (16, 3, 6, 8, 4), (20,) * 12, (3,) * 5, (1, 7), (1,)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("n_rows", rest_is_slow([20_000, 10, 10**9, 2_000], first=2))
@pytest.mark.parametrize("error", [0.3, 0.02, 0.0001])
def test_a_base_release_is_within_its_cap_and_certifies_what_it_is_for(
    shape: tuple[int, ...], n_rows: int, error: float
) -> None:
    for queries, cap in ((None, CAP), (1000, NAMED_CAP)):
        base = released(shape, n_rows, error, queries=queries)
        assert base.share <= cap
        exact = sum(
            gaussian_rho(grid_sigma(step), squared_sensitivity=2) for _, step in base.tables
        )
        assert Fraction(base.units, UNITS) * BUDGET.rho >= exact
        reach = Reach(shape, base, limit(n_rows, error))
        certified = any(
            reach.phases(group.attributes, group.norms) <= phases
            for group in generic_workload(shape)
            for phases, _ in group.windows
            if any(group.norms[1:])
        )
        assert certified == bool(base.tables), "nothing is spent on what cannot certify"


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("n_rows", rest_is_slow([20_000, 10, 10**9, 2_000], first=2))
@pytest.mark.parametrize("error", [0.3, 0.02, 0.0001])
def test_so_is_one_that_pays_for_the_number_of_rows_too(
    shape: tuple[int, ...], n_rows: int, error: float
) -> None:
    for queries, cap in ((None, CAP), (1000, NAMED_CAP)):
        base = released(shape, n_rows, error, queries=queries, budget=OF_PERSONS)
        assert base.share <= cap
        exact = sum(
            gaussian_rho(grid_sigma(step), squared_sensitivity=1) for _, step in base.tables
        )
        assert Fraction(base.units, UNITS) * OF_PERSONS.rho >= exact
        assert base.units <= exact / OF_PERSONS.rho * UNITS + len(base.tables)
        reach = Reach(shape, base, limit(n_rows, error), total_known=False)
        certified = any(
            reach.phases(group.attributes, group.norms) <= phases
            for group in generic_workload(shape, total_known=False)
            for phases, _ in group.windows
        )
        assert certified == bool(base.tables), "nothing is spent on what cannot certify"


def test_a_plan_that_takes_a_private_number_of_rows_for_public_certifies_less_than_it_says() -> (
    None
):
    norms, one = conjunction_norms([5], [4]), limit(20_000, 0.02)
    groups = (Group((3,), norms, ONE_PHASE),)
    forgets = released(ORDERS, 20_000, 0.02, groups=groups, queries=1000)
    pays = released(ORDERS, 20_000, 0.02, groups=groups, queries=1000, budget=OF_PERSONS)
    assert Reach(ORDERS, forgets, one).variance((3,), norms) <= one * (1 + 1e-9)
    for base, enough in ((forgets, False), (pays, True)):
        truly = Reach(ORDERS, base, one, total_known=False).variance((3,), norms)
        assert (truly <= one * (1 + 1e-9)) == enough


def test_how_many_rows_count_is_planned_for_where_it_is_private() -> None:
    tile = PlannedTile(LinearQuery(EVERYTHING, range(1)), 1)
    for budget, tables in ((BUDGET, ()), (OF_PERSONS, ((),))):
        known = budget.total_known
        groups = declared_workload([tile], ORDERS, total_known=known)
        plan = base_plan(ORDERS, groups, 100, total_known=known)
        base = plan.release(20_000, terms(0.02), None, budget, Prices(budget))
        assert base.attributes == tables
        assert (plan.whole_price < math.inf) != known


def test_the_cheapest_release_for_persons_costs_little_more_than_half() -> None:
    """A table costs half, and the number of rows must be paid for, which matters where cells are few."""
    for shape, ratio in ((ORDERS, 0.50), ((5, 5), 0.61), ((2, 2, 2), 0.72)):
        part = base_plan(shape, total_known=False).whole_price / base_plan(shape).whole_price
        assert part == pytest.approx(ratio, abs=0.005)


def test_nothing_is_spent_where_a_single_query_costs_more_than_a_line() -> None:
    assert released(ORDERS, 100, 0.01) == BaseRelease((), (), 0)
    assert released(ORDERS, 100, 0.01, queries=10**6) == BaseRelease((), (), 0)


@pytest.mark.parametrize("budget", [BUDGET, OF_PERSONS], ids=["rows", "persons"])
def test_a_phase_of_which_perhaps_no_row_counts_is_planned_like_one_of_one_row(
    budget: Budget,
) -> None:
    for share in (None, 0.3):
        found, one = (
            released(ORDERS, n_rows, 0.02, base_share=share, budget=budget) for n_rows in (0, 1)
        )
        assert found == one
    assert released(ORDERS, 0, 0.02, budget=budget).units == 0


@pytest.mark.parametrize("budget", [BUDGET, OF_PERSONS], ids=["rows", "persons"])
def test_what_a_release_grows_by_costs_what_its_tables_cost(budget: Budget) -> None:
    small, large = (
        released(ORDERS, 20_000, 0.02, queries=queries, budget=budget) for queries in (300, 3000)
    )
    growth = Growth.between(small.tables, large, Prices(budget))
    assert growth.tables
    sigmas = [grid_sigma(step) for _, step in growth.tables]
    exact = sum(gaussian_rho(sigma, squared_sensitivity=budget.table) for sigma in sigmas)
    assert exact <= Fraction(growth.units, UNITS) * budget.rho
    assert growth.units <= exact / budget.rho * UNITS + len(sigmas)


def test_half_as_much_is_kept_for_a_table_of_persons_and_the_same_for_a_count() -> None:
    tiles = [
        PlannedTile(LinearQuery(predicate(a3=(0,)), range(1)), 1),
        PlannedTile(LinearQuery(EVERYTHING, range(1), (3,)), 1),
    ]
    for tile, ratio in zip(tiles, (1.0, 0.5), strict=True):
        kept = []
        for budget in (BUDGET, OF_PERSONS):
            reserve = Reserve([tile], ORDERS, terms(0.02), budget, lambda _: False)
            reserve.opened(1, lambda _: 20_000)
            kept.append(int(reserve.kept(range(1))[0]))
        assert kept[1] == pytest.approx(ratio * kept[0], rel=1e-9)


def test_few_queries_are_left_to_demand() -> None:
    assert released((16,) * 6, 50_000, 0.02, queries=3).units == 0
    assert released((16,) * 6, 50_000, 0.02, queries=3000).units > 0


@pytest.mark.parametrize("queries", [None, 1000])
@pytest.mark.parametrize("n_rows", [5_000, 20_000, 50_000])
@pytest.mark.parametrize("error", [0.02, 0.05, 0.1])
@pytest.mark.parametrize("shape", [ORDERS, (16, 3, 6, 8, 4)], ids=str)
def test_a_single_column_is_not_noisier_than_a_pair_with_it_unless_it_is_certified(
    shape: tuple[int, ...], n_rows: int, error: float, queries: int | None
) -> None:
    base = released(shape, n_rows, error, queries=queries)
    variance = limit(n_rows, error) / 1000.0  # finer than whole phases
    for pair in combinations(range(len(shape)), 2):
        together = phases_of_a_cell(shape, base, variance, pair)
        for one in pair:
            assert phases_of_a_cell(shape, base, variance, (one,)) <= max(1000.0, together)


def test_noise_for_a_base_release_is_drawn_in_seconds_whatever_the_schema() -> None:
    for shape in [(65536, 65536, 10), (3000,) * 4, (60,) * 20]:
        base = released(shape, 10**7, 0.02, queries=10**6)
        n_cells = [math.prod(shape[a] for a in attributes) for attributes, _ in base.tables]
        assert n_cells, "it measures what it can"
        assert max(n_cells) <= 2**16
        assert sum(n_cells) <= 2**20


def test_a_base_share_that_is_set_is_kept() -> None:
    for shape, n_rows in (((5, 5), 1000), (ORDERS, 20_000), (ORDERS, 50)):
        base = released(shape, n_rows, 0.02, base_share=0.37)
        assert 0.98 * 0.37 * UNITS < base.units <= 0.37 * UNITS
        assert not released(shape, n_rows, 0.02, base_share=0.0).tables


def test_plans_are_the_same_each_time_and_made_once() -> None:
    assert base_plan((6, 5, 4)) is base_plan((6, 5, 4))
    assert base_plan((6, 5, 4)) is base_plan((6, 5, 4), total_known=True)
    assert base_plan((6, 5, 4)) is not base_plan((6, 5, 4), total_known=False)
    fresh = type(base_plan((6, 5, 4)))((6, 5, 4))
    again = fresh.release(30_000, terms(0.02), None, BUDGET, PRICES)
    assert again == released((6, 5, 4), 30_000, 0.02)


# ---------------------------------------------------------------- workloads


def predicate(**cells: tuple[int, ...]) -> Predicate:
    """Conditions on attributes of ORDERS, named a0 to a3."""
    return Predicate.conjunction(
        {
            int(name[1:]): np.isin(np.arange(ORDERS[int(name[1:])]), chosen)
            for name, chosen in cells.items()
        }
    )


MIXED_UP = Predicate.of_mask((0, 3), np.add.outer(np.arange(12), np.arange(5)) % 3 == 0)
AMOUNT = Total(1, tuple(float(n) for n in range(13)))


@pytest.mark.parametrize(
    "query",
    [
        LinearQuery(predicate(a3=(0,)), range(1)),
        LinearQuery(predicate(a0=(1, 2), a3=(0,)), range(1)),
        LinearQuery(EVERYTHING, range(1), (0, 3)),
        LinearQuery(predicate(a3=(2,)), range(1), (1,)),
        LinearQuery(predicate(a0=(1, 2, 4)), range(1), (0,)),
        LinearQuery(MIXED_UP, range(1)),
        LinearQuery(MIXED_UP, range(1), (3,)),
        LinearQuery(predicate(a3=(0,)), range(1), (), AMOUNT),
        LinearQuery(predicate(a3=(0,)), range(1), (0,), AMOUNT, EVERYTHING),
    ],
    ids=lambda query: f"{query.kind} {query.attributes}",
)
def test_a_tile_needs_what_its_noisiest_answer_needs(query: LinearQuery) -> None:
    (group,) = declared_workload([PlannedTile(query, 1)], ORDERS)
    form = (form_of if query.total is None else form_of_total)(query, ORDERS)
    assert group.attributes == form.attributes
    assert group.table == bool(query.group_by)
    rng = np.random.default_rng(1)
    for _ in range(5):
        variances = rng.random(len(group.norms))
        variances[0] = 0.0
        noisiest = float((form.norms @ variances).max())
        assert float(np.array(group.norms) @ variances) >= noisiest * (1 - 1e-12)
    if form.conjunctive:
        assert group.norms[1:] == pytest.approx(form.norms[0][1:])


def test_of_tiles_that_differ_in_the_window_the_shortest_counts() -> None:
    query = LinearQuery(predicate(a3=(0,)), range(1))
    tiles = [PlannedTile(query, 7), PlannedTile(query, 1), PlannedTile(query, None, weight=3.0)]
    (group,) = declared_workload(tiles, ORDERS)
    assert group.windows == ((1, 3.0),)
    (late,) = declared_workload([PlannedTile(query, None)], ORDERS)
    assert late.windows == ((ALL_PHASES, 1.0),)


def test_declared_tiles_cost_less_than_asking_them_one_by_one() -> None:
    by = [(a,) for a in range(4)] + [(0, 3), (1, 3), (0, 1)]
    groups = declared_workload(
        [PlannedTile(LinearQuery(EVERYTHING, range(1), b), 1) for b in by], ORDERS
    )
    base = released(ORDERS, 20_000, 0.02, groups=groups)
    each = base_plan(ORDERS, groups).one_by_one(20_000, terms(0.02), BUDGET)
    left = [t for t in by if phases_of_a_cell(ORDERS, base, limit(20_000, 0.02), t) > 1]
    assert base.share + len(left) * each < 0.85 * len(by) * each
    assert len(left) <= 1, "the categories cost as much in advance as on demand"


def test_the_weights_of_the_generic_workload_add_up_to_1() -> None:
    for shape in [(4,), (2, 2), ORDERS, (5,) * 9, (3,) * 20]:
        weights = [part for group in generic_workload(shape) for _, part in group.windows]
        assert math.fsum(weights) == pytest.approx(1.0)


@pytest.mark.parametrize("where", [{}, {"a3": (0,)}])
@pytest.mark.parametrize("by", [(), (0,)])
def test_a_sum_is_expected_to_cost_what_the_engine_takes_for_it(
    where: dict[str, tuple[int, ...]], by: tuple[int, ...]
) -> None:
    universe = Universe(
        (
            Category("country", tuple("abcdefghijkl"), other=False),
            Number("amount", (5, 10, 20, 30, 50, 75, 100, 150, 200, 250, 300, 500), integer=False),
            Category("category", tuple(map(str, range(301))), other=False),
            Category("status", tuple("abcde"), other=False),
        )
    )
    amounts = universe.attributes[1]
    assert isinstance(amounts, Number)
    condition = predicate(**where) if where else EVERYTHING
    query = LinearQuery(condition, range(1), by, Total(1, amounts.values))
    (group,) = declared_workload([PlannedTile(query, 1)], ORDERS)
    engine = Calibrated(
        universe, Privacy(1.0, 1e-9), Accuracy(0.02, 0.01), CalibratedSettings(base_share=0.0)
    )
    engine.open_phase(20_000)
    (charge,) = engine.quote(query).charges
    planned = group.on_demand(1) / limit(20_000, 0.02) / float(BUDGET.rho)
    assert planned == pytest.approx(charge.rho / UNITS, rel=0.05)


WIDE = (16, 9, 16, 7, 15, 6, 5, 2, 42)


def test_on_wide_data_bounded_queries_need_less_than_certificates() -> None:
    certified, bounded = (generic_workload(WIDE, terms=t) for t in (None, terms(0.05)))
    weights = [part for group in bounded for _, part in group.windows]
    assert math.fsum(weights) == pytest.approx(1.0)
    assert len(bounded) < len(certified), "kinds that need the same are one group"
    assert generic_workload(ORDERS, terms=terms(0.05)) == generic_workload(ORDERS)
    prices = [
        math.fsum(
            part * standalone_price(group.norms, [WIDE[a] for a in group.attributes])
            for group in groups
            for _, part in group.windows
        )
        for groups in (bounded, certified)
    ]
    assert prices[0] < prices[1]


@pytest.mark.parametrize("order", [2, 3])
def test_the_precision_planned_for_a_bounded_kind_bounds_it_on_even_rows(order: int) -> None:
    promised, n_rows, shape = terms(0.1), 40_320, (16, 9, 7)[:order]
    each = (1,) * order
    found = bounding((tuple(range(order)), conjunction_norms(shape, each)), shape, each, promised)
    assert found is not None
    inner, norms = found
    sizes = tuple(shape[a] for a in inner)
    assert len(inner) == order - 1
    easier = conjunction_norms(sizes, each[1:])[-1] / norms[-1]
    cell = limit(n_rows, 0.1) * easier / (1.0 - 1.0 / math.prod(sizes))
    query = LinearQuery(
        Predicate.conjunction({a: np.arange(n) == 0 for a, n in enumerate(shape)}), range(1)
    )

    def width(variance: float) -> float:
        """The width of the bounds if each cell of the table over the other conditions has this variance."""
        belief = Belief(shape)
        belief.open_block(n_rows)
        belief.absorb_table(inner, 0, np.full(sizes, n_rows / math.prod(sizes)), variance)
        evidence = belief.evidence(form_of(query, shape), query.key, range(1))
        low, high = evidence.interval(promised.log_bounds_failure)
        return float((high - low).max()) / n_rows

    assert width(cell) <= 2 * 0.1 < width(2.0 * cell)
