"""The base release: what it costs, what it certifies, and that it is never dearer than what it saves."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from itertools import combinations
from typing import Any

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
    NOTHING,
    BasePlan,
    BaseRelease,
    Design,
    Reach,
    base_plan,
    variance_for,
)
from stream_dp.core.residual.base_release.expected_queries import (
    ALL_PHASES,
    OF_COUNT,
    Expected,
    Group,
    PlannedTile,
    bounding,
    conjunction_norms,
    declared_workload,
    generic_workload,
    residual_price,
    standalone_price,
)
from stream_dp.core.residual.base_release.growth import Bought
from stream_dp.core.residual.belief.levels import Axes, axes_of
from stream_dp.core.residual.belief.linear_forms import form_of
from stream_dp.core.residual.belief.sums import form_of_total
from stream_dp.core.residual.plan.promise import Promise
from stream_dp.core.residual.plan.reserve import Reserve
from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.universe import Universe
from tests.core.residual.host import PRIVACY, Host, where
from tests.core.residual.least_squares import Measured, belief_of, least_squares
from tests.slow import rest_is_slow

ORDERS = (12, 13, 301, 5)
ONE_PHASE = ((1, 1.0),)
PERSONS = Privacy(1.0, 1e-9, Unit(1, 1))
"""Holds as much on each line, and the number of rows that count is private."""
budgets = pytest.mark.parametrize("privacy", [PRIVACY, PERSONS], ids=["rows", "persons"])


@cache
def promise(
    shape: tuple[int, ...] = ORDERS, error: float = 0.02, privacy: Privacy = PRIVACY
) -> Promise:
    return Promise(shape, Budget.of(privacy), Accuracy(error, 0.01))


def limit(n_rows: int, error: float = 0.02) -> float:
    return variance_for(n_rows, promise(error=error).terms)


def wider(privacy: Privacy, z: str) -> float:
    """The price of leaving a part of the failure probability to the number of rows, where it is private."""
    return float((getattr(promise(privacy=privacy).terms, z) / getattr(promise().terms, z)) ** 2)


def released(
    shape: tuple[int, ...],
    n_rows: int,
    error: float = 0.02,
    *,
    share: float | None = None,
    privacy: Privacy = PRIVACY,
    **expected: Any,
) -> BaseRelease:
    made = promise(shape, error, privacy)
    return base_plan(made.axes, Expected(**expected)).release(n_rows, made, share)


def share_of(release: BaseRelease) -> float:
    return release.units / UNITS


def conjunction(
    axes: Axes, attributes: tuple[int, ...], cells: tuple[int, ...], **more: float
) -> Group:
    return Group(attributes, conjunction_norms(axes, attributes, cells), ONE_PHASE, **more)


def phases_of_a_cell(release: BaseRelease, variance: float, attributes: tuple[int, ...]) -> float:
    """Phases about which a table over ``attributes`` of the orders is certified."""
    axes = axes_of(ORDERS)
    norms = conjunction_norms(axes, attributes, [1] * len(attributes))
    return Reach(axes, release, variance).phases(attributes, norms)


# ---------------------------------------------------------------- prices


@given(seed=st.integers(0, 2**32 - 1), total_known=st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_variance_of_a_design_is_that_of_least_squares(*, seed: int, total_known: bool) -> None:
    rng = np.random.default_rng(seed)
    axes = axes_of((2, 3, 2), total_known=total_known)
    selected = tuple(int(rng.integers(1, n)) for n in axes.shape)
    design = Design(axes, [conjunction(axes, (0, 1, 2), selected)])
    assert (() in design.tables) != total_known, "the number of rows is measured if it is private"
    weights = rng.random(len(design.tables)) + 0.1
    chosen = {a: range(n) for a, n in enumerate(selected)}
    query = where(axes.shape, chosen).along((0, 1, 2)).astype(np.float64)
    history = [
        Measured(table, 0, np.zeros([axes.shape[a] for a in table]), 1.0 / weight)
        for table, weight in zip(design.tables, weights, strict=True)
    ]
    least = least_squares(axes.shape, [query], history, range(1), total_known=total_known)[1]
    assert design.variances(weights) == pytest.approx(least)


@given(seed=st.integers(0, 2**32 - 1), total_known=st.booleans())
def test_lemma_a_the_price_of_a_release_is_the_sum_of_the_prices_of_its_residuals(
    *, seed: int, total_known: bool
) -> None:
    rng = np.random.default_rng(seed)
    axes = axes_of(tuple(rng.integers(2, 6, 3).tolist()), total_known=total_known)
    tables = [t for k in range(int(total_known), 4) for t in combinations(range(3), k)]
    weights = {t: Fraction(int(rng.integers(1, 100)), 7) for t in tables}

    def brought(table: tuple[int, ...], part: tuple[int, ...]) -> Fraction:
        return weights[table] / math.prod(axes.shape[a] for a in table if a not in part)

    def precision(part: tuple[int, ...]) -> Fraction:
        return sum((brought(s, part) for s in tables if set(part) <= set(s)), Fraction())

    def price(part: tuple[int, ...]) -> Fraction:
        parts = [Fraction(1, axes.shape[a]) for a in part]
        found = Fraction(math.prod(1 - each for each in parts))
        return found - math.prod(-each for each in parts) if total_known else found

    assert sum(price(t) * precision(t) for t in tables) == sum(weights.values())
    for t in tables:
        assert residual_price(axes, t) == pytest.approx(float(price(t)))


@pytest.mark.parametrize(
    ("shape", "total_known", "price"),
    [
        ((12,), True, 1.0),
        ((12, 5), True, 0.716667),
        ((12, 13, 5), True, 0.678205),
        ((2, 2), True, 0.0),  # once both are measured, their interaction is free
        ((2, 2, 2), True, 0.25),
        ((), True, 0.0),
        ((), False, 1.0),
        ((2, 2), False, 0.25),
    ],
)
def test_the_prices_of_residuals_are_those_that_were_worked_out(
    shape: tuple[int, ...], total_known: bool, price: float
) -> None:
    axes = axes_of(shape, total_known=total_known)
    assert residual_price(axes, tuple(range(len(shape)))) == pytest.approx(price, abs=1e-6)


@pytest.mark.parametrize(
    ("n_rows", "variance", "count"),
    [(20_000, 24114.92, 0.00138475736), (5_000, 1507.182, 0.0221561178)],
)
def test_the_variances_and_the_prices_on_demand_are_those_that_were_worked_out(
    n_rows: int, variance: float, count: float
) -> None:
    """A table takes twice as much as a count where the number of rows is public."""
    assert limit(n_rows) == pytest.approx(variance, rel=1e-6)
    for privacy, price, times in (
        (PRIVACY, OF_COUNT, 1),
        (PRIVACY, 2 * OF_COUNT, 2),
        (PERSONS, OF_COUNT, 1),
    ):
        made = promise((5,), privacy=privacy)
        plan = BasePlan(made.axes, Expected((conjunction(made.axes, (0,), (1,), price=price),)))
        expected = times * count * wider(privacy, "z")
        assert plan.one_by_one(n_rows, made) == pytest.approx(expected, rel=1e-6)


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
    axes = axes_of(ORDERS)
    group = conjunction(axes, attributes, cells)
    design = Design(axes, [group])
    found = design.cheapest(np.array([0]), np.array([1.0]), rounds=4000, tolerance=1e-7)
    assert standalone_price(axes, attributes, group.norms) == pytest.approx(alone, abs=1e-6)
    assert found.cost == pytest.approx(least, abs=2e-6)
    assert alone <= found.cost * (1 + 1e-6)
    assert found.bound <= found.cost <= found.bound * (1 + 1e-6)
    if attributes == (1, 3):
        weights = dict(zip(design.tables, found.weights.tolist(), strict=True))
        wanted = {(3,): 0.5754, (1, 3): 4.0031, (1,): 0.0}
        assert {table: weights[table] for table in wanted} == pytest.approx(wanted, abs=1e-4)


@given(seed=st.integers(0, 2**32 - 1), total_known=st.booleans())
@settings(max_examples=20, deadline=None)
def test_lemmas_b_and_c_bound_what_a_search_over_all_weights_finds(
    *, seed: int, total_known: bool
) -> None:
    rng = np.random.default_rng(seed)
    axes = axes_of(tuple(rng.integers(2, 9, 2).tolist()), total_known=total_known)
    asked = [(0,), (1,), (0, 1)] if total_known else [(), (0,), (1,), (0, 1)]
    groups = [
        conjunction(axes, some, tuple(int(rng.integers(1, axes.shape[a])) for a in some))
        for some in asked
    ]
    limits = rng.random(len(groups)) + 0.2
    design = Design(axes, groups)
    found = design.cheapest(np.arange(len(groups)), limits, rounds=2000, tolerance=1e-4)
    steps, n = (60, 3) if total_known else (30, 4)
    searched, alone = math.inf, np.full(len(groups), math.inf)
    for cuts in combinations(range(1, steps + n - 1), n - 1):
        parts = np.diff((0, *cuts, steps + n - 1)) - 1  # all ways to divide the weight among tables
        variances = design.variances(parts / steps)
        searched = min(searched, float((variances / limits).max()))
        alone = np.minimum(alone, variances)
    assert found.bound <= searched * (1 + 1e-9), "a lower bound on every release"
    assert found.cost <= searched * (1 + 1e-3), "and no search finds a cheaper one"
    assert (design.variances(found.weights) <= limits * (1 + 1e-9)).all()
    assert (design.alone <= alone * (1 + 1e-9)).all(), "Lemma B bounds each group by itself"
    if not total_known:
        assert (alone <= design.alone * 1.05).all(), "and is attained: all rows are a table"
        public = axes_of(axes.shape)
        free = [standalone_price(public, group.attributes, group.norms) for group in groups]
        assert (np.array(free) < design.alone).all(), "a public number of rows would be free"


@pytest.mark.parametrize("shape", [ORDERS, (16, 3, 6, 8, 4), (9, 16, 7, 15, 6, 5, 2, 42)], ids=str)
def test_the_release_for_all_of_a_workload_is_close_to_the_cheapest(shape: tuple[int, ...]) -> None:
    design = Design(axes_of(shape), generic_workload(axes_of(shape)))
    found = design.cheapest(np.arange(len(design.groups)), np.ones(len(design.groups)))
    assert found.cost <= 1.05 * found.bound


# ---------------------------------------------------------------- what is spent


@pytest.mark.parametrize(
    ("n_rows", "error", "share"),
    [(20_000, 0.02, 0.0337), (20_000, 0.05, 0.0048), (50_000, 0.05, 0.0008)],
)
def test_the_orders_cost_what_was_worked_out(n_rows: int, error: float, share: float) -> None:
    assert share_of(released(ORDERS, n_rows, error)) == pytest.approx(share, abs=6e-5)


SHAPES = [(4,), (2, 2), (5, 5), ORDERS, (16, 3, 6, 8, 4), (20,) * 12, (3,) * 5, (1, 7), (1,)]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("n_rows", rest_is_slow([20_000, 10, 10**9, 2_000], first=2))
@pytest.mark.parametrize("error", [0.3, 0.02, 0.0001])
@budgets
def test_a_base_release_is_within_its_cap_and_certifies_what_it_is_for(
    privacy: Privacy, error: float, n_rows: int, shape: tuple[int, ...]
) -> None:
    """It pays for the number of rows too, where that is private."""
    made = promise(shape, error, privacy)
    for queries, cap in ((None, CAP), (1000, NAMED_CAP)):
        base = released(shape, n_rows, error, queries=queries, privacy=privacy)
        assert share_of(base) <= cap
        sensitivity = made.prices.table
        exact = sum(
            gaussian_rho(grid_sigma(step), squared_sensitivity=sensitivity)
            for _, step in base.tables
        )
        assert 0 <= base.units - exact / made.budget.rho * UNITS <= len(base.tables)
        reach = Reach(made.axes, base, limit(n_rows, error))
        certified = any(
            reach.phases(group.attributes, group.norms) <= phases
            for group in generic_workload(made.axes)
            for phases, _ in group.windows
            if any(group.norms[1:]) or not made.total_known
        )
        assert certified == bool(base.tables), "nothing is spent on what cannot certify"


def test_a_plan_that_takes_a_private_number_of_rows_for_public_certifies_less_than_said() -> None:
    public, private = (promise(privacy=privacy).axes for privacy in (PRIVACY, PERSONS))
    norms, one = conjunction_norms(public, (3,), [4]), limit(20_000)
    groups = (Group((3,), norms, ONE_PHASE),)
    forgets, pays = (
        released(ORDERS, 20_000, groups=groups, queries=1000, privacy=privacy)
        for privacy in (PRIVACY, PERSONS)
    )
    assert Reach(public, forgets, one).variance((3,), norms) <= one * (1 + 1e-9)
    for base, enough in ((forgets, False), (pays, True)):
        truly = Reach(private, base, one).variance((3,), norms)
        assert (truly <= one * (1 + 1e-9)) == enough


def test_how_many_rows_count_is_planned_for_where_it_is_private() -> None:
    tile = PlannedTile(LinearQuery(EVERYTHING, range(1)), 1)
    for privacy, tables in ((PRIVACY, []), (PERSONS, [()])):
        made = promise(privacy=privacy)
        groups = declared_workload([tile], made.axes)
        plan = base_plan(made.axes, Expected(groups, queries=100))
        assert [table for table, _ in plan.release(20_000, made).tables] == tables
        assert (plan.whole_price < math.inf) != made.total_known


@pytest.mark.parametrize(("shape", "ratio"), [(ORDERS, 0.50), ((5, 5), 0.61), ((2, 2, 2), 0.72)])
def test_the_cheapest_release_for_persons_costs_little_more_than_half(
    shape: tuple[int, ...], ratio: float
) -> None:
    """A table costs half, and the number of rows must be paid for, which matters where cells are few."""
    rows, persons = (
        base_plan(axes_of(shape, total_known=known)).whole_price for known in (True, False)
    )
    assert persons / rows == pytest.approx(ratio, abs=0.005)


def test_nothing_is_spent_where_a_single_query_costs_more_than_a_line() -> None:
    assert released(ORDERS, 100, 0.01) == released(ORDERS, 100, 0.01, queries=10**6) == NOTHING


@budgets
def test_a_phase_of_which_perhaps_no_row_counts_is_planned_like_one_of_one_row(
    privacy: Privacy,
) -> None:
    for share in (None, 0.3):
        found, one = (released(ORDERS, n, share=share, privacy=privacy) for n in (0, 1))
        assert found == one
    assert released(ORDERS, 0, privacy=privacy).units == 0


@budgets
def test_what_a_release_grows_by_costs_what_its_tables_cost(privacy: Privacy) -> None:
    small, large = (
        released(ORDERS, 20_000, queries=queries, privacy=privacy) for queries in (300, 3000)
    )
    made = promise(privacy=privacy)
    bought = Bought(made.prices)
    for table, step in small.tables:
        bought.buy(0, table, step, opening=True)
    growth = bought.lacking(0, large)
    assert growth.tables
    sigmas = [grid_sigma(step) for _, step in growth.tables]
    exact = sum(gaussian_rho(sigma, squared_sensitivity=made.prices.table) for sigma in sigmas)
    assert 0 <= growth.units - exact / made.budget.rho * UNITS <= len(sigmas)


def test_half_as_much_is_kept_for_a_table_of_persons_and_the_same_for_a_count() -> None:
    tiles = LinearQuery(where(ORDERS, {3: [0]}), range(1)), LinearQuery(EVERYTHING, range(1), (3,))
    for tile, ratio in zip(tiles, (1.0, 0.5), strict=True):
        kept = []
        for privacy in (PRIVACY, PERSONS):
            reserve = Reserve([PlannedTile(tile, 1)], promise(privacy=privacy), lambda _: False)
            reserve.opened(1, lambda _: 20_000)
            kept.append(int(reserve.kept(range(1))[0]))
        assert kept[1] == pytest.approx(ratio * kept[0] * wider(PERSONS, "z_steered"), rel=1e-9)


def test_few_queries_are_left_to_demand() -> None:
    assert released((16,) * 6, 50_000, queries=3) == NOTHING
    assert released((16,) * 6, 50_000, queries=3000).units > 0


@pytest.mark.parametrize("queries", [None, 1000])
@pytest.mark.parametrize("n_rows", [5_000, 20_000, 50_000])
@pytest.mark.parametrize("error", [0.02, 0.05, 0.1])
def test_a_single_column_is_not_noisier_than_a_pair_with_it_unless_it_is_certified(
    n_rows: int, error: float, queries: int | None
) -> None:
    base = released(ORDERS, n_rows, error, queries=queries)
    variance = limit(n_rows, error) / 1000.0  # finer than whole phases
    for pair in combinations(range(len(ORDERS)), 2):
        together = phases_of_a_cell(base, variance, pair)
        for one in pair:
            assert phases_of_a_cell(base, variance, (one,)) <= max(1000.0, together)


@pytest.mark.parametrize("shape", [(65536, 65536, 10), (3000,) * 4, (60,) * 20], ids=str)
def test_noise_for_a_base_release_is_drawn_in_seconds_whatever_the_schema(
    shape: tuple[int, ...],
) -> None:
    base = released(shape, 10**7, queries=10**6)
    n_cells = [math.prod(shape[a] for a in attributes) for attributes, _ in base.tables]
    assert n_cells, "it measures what it can"
    assert max(n_cells) <= 2**16
    assert sum(n_cells) <= 2**20


@pytest.mark.parametrize(("shape", "n_rows"), [((5, 5), 1000), (ORDERS, 20_000), (ORDERS, 50)])
def test_a_base_share_that_is_set_is_kept(shape: tuple[int, ...], n_rows: int) -> None:
    assert 0.98 * 0.37 < share_of(released(shape, n_rows, share=0.37)) <= 0.37
    assert released(shape, n_rows, share=0.0) == NOTHING


def test_plans_are_the_same_each_time_and_made_once() -> None:
    axes = axes_of((6, 5, 4))
    assert base_plan(axes) is base_plan(Axes((6, 5, 4)))
    assert base_plan(axes) is not base_plan(axes_of((6, 5, 4), total_known=False))
    again = BasePlan(axes).release(30_000, promise((6, 5, 4)))
    assert again == released((6, 5, 4), 30_000)


# ---------------------------------------------------------------- workloads

AMOUNT = Total(1, tuple(float(n) for n in range(13)))
IN_A, MIXED_UP = (
    where(ORDERS, {3: [0]}),
    Predicate.of_mask((0, 3), np.add.outer(np.arange(12), np.arange(5)) % 3 == 0),
)


@pytest.mark.parametrize(
    "query",
    [
        LinearQuery(IN_A, range(1)),
        LinearQuery(where(ORDERS, {0: (1, 2), 3: [0]}), range(1)),
        LinearQuery(EVERYTHING, range(1), (0, 3)),
        LinearQuery(where(ORDERS, {3: [2]}), range(1), (1,)),
        LinearQuery(where(ORDERS, {0: (1, 2, 4)}), range(1), (0,)),
        LinearQuery(MIXED_UP, range(1)),
        LinearQuery(MIXED_UP, range(1), (3,)),
        LinearQuery(IN_A, range(1), (), AMOUNT),
        LinearQuery(IN_A, range(1), (0,), AMOUNT, EVERYTHING),
    ],
    ids=lambda query: f"{query.kind} {query.attributes}",
)
def test_a_tile_needs_what_its_noisiest_answer_needs(query: LinearQuery) -> None:
    (group,) = declared_workload([PlannedTile(query, 1)], axes_of(ORDERS))
    form = (form_of if query.total is None else form_of_total)(query, ORDERS)
    assert group.attributes == form.attributes
    if query.total is None:
        assert group.price == OF_COUNT * (2 if query.group_by else 1)
    rng = np.random.default_rng(1)
    for _ in range(5):
        variances = rng.random(len(group.norms))
        variances[0] = 0.0
        noisiest = float((form.norms @ variances).max())
        assert float(np.array(group.norms) @ variances) >= noisiest * (1 - 1e-12)
    if form.conjunctive:
        assert group.norms[1:] == pytest.approx(form.norms[0][1:])


def test_of_tiles_that_differ_in_the_window_the_shortest_counts() -> None:
    query, axes = LinearQuery(IN_A, range(1)), axes_of(ORDERS)
    tiles = [PlannedTile(query, 7), PlannedTile(query, 1), PlannedTile(query, None, weight=3.0)]
    for some, windows in ((tiles, ((1, 3.0),)), ([PlannedTile(query, None)], ((ALL_PHASES, 1.0),))):
        (group,) = declared_workload(some, axes)
        assert group.windows == windows


def test_declared_tiles_cost_less_than_asking_them_one_by_one() -> None:
    by = [(a,) for a in range(4)] + [(0, 3), (1, 3), (0, 1)]
    tiles = [PlannedTile(LinearQuery(EVERYTHING, range(1), b), 1) for b in by]
    groups, made = declared_workload(tiles, axes_of(ORDERS)), promise()
    base = released(ORDERS, 20_000, groups=groups)
    each = base_plan(made.axes, Expected(groups)).one_by_one(20_000, made)
    left = [t for t in by if phases_of_a_cell(base, limit(20_000), t) > 1]
    assert share_of(base) + len(left) * each < 0.85 * len(by) * each
    assert len(left) <= 1, "the categories cost as much in advance as on demand"


@pytest.mark.parametrize("condition", [EVERYTHING, IN_A], ids=["all", "some"])
@pytest.mark.parametrize("by", [(), (0,)])
def test_a_sum_is_expected_to_cost_what_the_engine_takes_for_it(
    condition: Predicate, by: tuple[int, ...]
) -> None:
    edges = (5, 10, 20, 30, 50, 75, 100, 150, 200, 250, 300, 500)
    amounts = Number("amount", edges, integer=False)
    country, category, status = (
        Category(f"a{n}", tuple(map(str, range(n))), other=False) for n in (12, 301, 5)
    )
    it = Host(Universe((country, amounts, category, status)), base_share=0.0)
    it.mechanism.open_phase(20_000)
    query = LinearQuery(condition, range(1), by, Total(1, amounts.values))
    (group,) = declared_workload([PlannedTile(query, 1)], axes_of(ORDERS))
    (charge,) = it.mechanism.quote(query).charges
    planned = group.price / limit(20_000) / float(it.state.promise.budget.rho)
    assert planned == pytest.approx(charge.rho / UNITS, rel=0.05)


@pytest.mark.parametrize("shape", [(4,), (2, 2), ORDERS, (5,) * 9, (3,) * 20], ids=str)
def test_the_weights_of_the_generic_workload_add_up_to_1(shape: tuple[int, ...]) -> None:
    for terms in (None, promise(error=0.05).terms):
        groups = generic_workload(axes_of(shape), terms=terms)
        weights = [part for group in groups for _, part in group.windows]
        assert math.fsum(weights) == pytest.approx(1.0)


def test_on_wide_data_bounded_queries_need_less_than_certificates() -> None:
    wide, terms = axes_of((16, 9, 16, 7, 15, 6, 5, 2, 42)), promise(error=0.05).terms
    certified, bounded = (generic_workload(wide, terms=t) for t in (None, terms))
    assert len(bounded) < len(certified), "kinds that need the same are one group"
    assert generic_workload(axes_of(ORDERS), terms=terms) == generic_workload(axes_of(ORDERS))
    prices = [
        math.fsum(
            part * standalone_price(wide, group.attributes, group.norms)
            for group in groups
            for _, part in group.windows
        )
        for groups in (bounded, certified)
    ]
    assert prices[0] < prices[1]


@pytest.mark.parametrize("order", [2, 3])
def test_the_precision_planned_for_a_bounded_kind_bounds_it_on_even_rows(order: int) -> None:
    terms, n_rows, axes = promise(error=0.1).terms, 40_320, axes_of((16, 9, 7)[:order])
    every, each = tuple(range(order)), (1,) * order
    kind = every, conjunction_norms(axes, every, each)
    found = bounding(axes, kind, each, terms)
    assert found is not None
    inner, norms = found
    sizes = tuple(axes.shape[a] for a in inner)
    assert len(inner) == order - 1
    easier = conjunction_norms(axes, inner, each[1:])[-1] / norms[-1]
    cell = limit(n_rows, 0.1) * easier / (1.0 - 1.0 / math.prod(sizes))
    query = LinearQuery(where(axes.shape, dict.fromkeys(every, range(1))), range(1))

    def width(variance: float) -> float:
        """The width of the bounds if each cell of the table over the other conditions has this variance."""
        even = Measured(inner, 0, np.full(sizes, n_rows / math.prod(sizes)), variance)
        belief = belief_of(axes.shape, [even], n_rows=n_rows)
        evidence = belief.evidence(form_of(query, axes.shape), query.key, range(1))
        low, high = evidence.interval(terms.log_bounds_failure)
        return float((high - low).max()) / n_rows

    assert width(cell) <= 2 * 0.1 < width(2.0 * cell)
