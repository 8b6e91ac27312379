"""Levels of ordered attributes, against generalised least squares on all cells and by brute force."""

from __future__ import annotations

import copy
import itertools
import math
from typing import Any
from unittest.mock import patch

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import chi2

from stream_dp.core.budget.parameters import Accuracy
from stream_dp.core.outcome import Path
from stream_dp.core.queries.query import EVERYTHING, LinearQuery
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.base_release.base_plan import BasePlan, Design, Reach
from stream_dp.core.residual.base_release.expected_queries import (
    Expected,
    PlannedTile,
    conjunction_norms,
    declared_workload,
    generic_workload,
    planned_axes,
    residual_price,
    standalone_price,
)
from stream_dp.core.residual.belief import levels as levels_of_axes
from stream_dp.core.residual.belief.levels import (
    Axes,
    Layout,
    LevelChain,
    axes_of,
    grouped,
    range_norms,
)
from stream_dp.core.residual.belief.linear_forms import TableForm, form_of
from stream_dp.core.residual.belief.packages import package
from stream_dp.core.residual.belief.residuals import ResidualMemory
from stream_dp.core.residual.looks.table_looks import Part, TablesLook, TablesRelease
from stream_dp.core.residual.plan.promise import Promise
from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.cell_shape import Shape
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import CorruptState
from tests.core.residual.host import Host, names, sealed, where
from tests.core.residual.least_squares import (
    Measured,
    belief_of,
    known,
    least_squares,
    masks_of,
    queries,
    random_history,
)
from tests.noise import QuickNoise
from tests.slow import rest_is_slow

Floats = npt.NDArray[np.float64]

EVEN, UNEVEN = 25, 31
"""Cells of ordered attributes: the groups of the first have 5 cells each, those of the second 5 or 6."""


def shape_of(*sizes: int) -> Shape:
    """All attributes of so many cells are ordered."""
    return Shape(sizes, range(len(sizes)))


def chained(*counts: int) -> Axes:
    """One attribute with this chain, whether or not it is the one in use."""
    with patch.object(levels_of_axes, "_chain", lambda _: LevelChain(counts)):
        return Axes(shape_of(counts[-1]))


def between(low: int, high: int, n: int) -> LinearQuery:
    """The range of cells from ``low`` to ``high`` of the first attribute."""
    return LinearQuery(where((n,), {0: range(low, high)}), range(1))


# ---------------------------------------------------------------- chains


@pytest.mark.parametrize(
    ("n", "counts"),
    [
        (25, (5, 25)),
        (64, (12, 64)),
        (101, (4, 20, 101)),
        (301, (12, 60, 301)),
        (1024, (8, 40, 204, 1024)),
        (65_536, (4, 20, 104, 524, 2621, 13107, 65_536)),
    ],
)
def test_a_chain_never_changes_because_stored_tables_go_by_it(
    n: int, counts: tuple[int, ...]
) -> None:
    assert LevelChain.of(n).counts == counts


@pytest.mark.parametrize("n", [25, 31, 64, 301, 1000])
def test_groups_are_neighbours_nested_and_of_nearly_one_size(n: int) -> None:
    chain = LevelChain.of(n)
    for coarse, fine in itertools.pairwise(chain.groups):
        assert (np.diff(coarse) >= 0).all()
        assert all(len(set(coarse[fine == group])) == 1 for group in set(fine.tolist()))
    for level in range(1, chain.finest):
        assert set(chain.groups[level].tolist()) == set(range(chain.n_groups(level)))
        assert chain.widths[level] >= 0.8 * n / chain.n_groups(level)


def test_only_numbers_of_more_than_24_cells_have_levels() -> None:
    many = Category("c", tuple(map(str, range(40))), other=False)
    small, large = (Number(f"n{n}", tuple(range(n))) for n in (23, 24))
    universe = Universe((many, small, large))
    assert universe.shape == Shape((40, 24, 25), [2])
    assert universe.shape != (40, 24, 25)
    assert axes_of(universe.shape).graded == {2}
    assert type(Universe((many, small)).shape) is tuple
    again = copy.deepcopy(universe.shape)
    assert (again, hash(again)) == (universe.shape, hash(universe.shape))


def test_parts_are_orthogonal_and_add_up_to_the_cells() -> None:
    chain, rng = LevelChain.of(UNEVEN), np.random.default_rng(0)
    counts = rng.normal(size=UNEVEN)
    total, *parts = chain.split(counts, 0, chain.finest)
    spread = [part[chain.groups[level]] for level, part in enumerate(parts, start=1)]
    np.testing.assert_allclose(sum(spread) + total / UNEVEN, counts)
    for one, other in itertools.combinations(spread, 2):
        assert one @ other == pytest.approx(0.0, abs=1e-12)
    norms = chain.norms(counts)
    assert norms[0] == pytest.approx(counts.mean() ** 2)
    np.testing.assert_allclose(norms[1:], [part @ part for part in spread])
    of_units = [chain.norms(row) for row in np.eye(UNEVEN)]
    np.testing.assert_allclose(chain.of_cells, of_units, atol=1e-15)


def test_what_the_cells_say_of_a_group_is_what_its_table_says() -> None:
    counts = np.random.default_rng(1).integers(0, 99, (UNEVEN, 3, EVEN))
    layout = Axes(Shape((UNEVEN, 3, EVEN), [0, 2])).layout((0, 1, 2))
    assert layout.chains == (LevelChain.of(UNEVEN), LevelChain((3,)), LevelChain.of(EVEN))
    whole = layout.split(counts.astype(np.float64), layout.finest)
    for levels in itertools.product((1, 2), (1,), (1, 2)):
        table = grouped(counts, layout.groups_at(levels))
        for index, part in layout.split(table.astype(np.float64), levels).items():
            np.testing.assert_allclose(part, whole[index], atol=1e-9)


# ---------------------------------------------------------------- prices: Lemmas A and B


def brute_reach(layout: Layout) -> Floats:
    """The precision that each table over the attributes of a layout brings to each part.

    It is worked out from the group of each cell: a part's weights, added to the groups, must be what a table
    weighs. Only for groups of one size.
    """
    rng = np.random.default_rng(0)
    reach = np.zeros((len(layout.levels), len(layout.levels)))
    for (row, levels), (column, table) in itertools.product(enumerate(layout.levels), repeat=2):
        if any(t > s for t, s in zip(levels, table, strict=True)):
            continue
        brought = 1.0
        for chain, t, s in zip(layout.chains, levels, table, strict=True):
            weights = rng.normal(size=chain.n_groups(t))[chain.groups[t]]
            norm = float(weights @ weights if t else weights[0] ** 2)
            of_group = weights[np.searchsorted(chain.groups[s], np.arange(chain.n_groups(s)))]
            brought *= norm / float(of_group @ of_group)
        reach[row, column] = brought
    return reach


@pytest.mark.parametrize("total_known", [True, False])
def test_prices_of_residuals_are_those_of_the_tables_that_bring_them(*, total_known: bool) -> None:
    """Lemma A on a product of two chains and a plain attribute, by solving the linear system."""
    axes = Axes(Shape((EVEN, 2, EVEN), [0, 2]), total_known=total_known)
    layout = axes.layout((0, 1, 2))
    reach = brute_reach(layout)
    np.testing.assert_allclose(np.stack([layout.reach(t) for t in layout.levels], axis=1), reach)
    # The cost of precisions p is the sum of the weights w = reach^-1 p. The empty table, which says how many
    # rows there are, costs something where that is private.
    prices = np.linalg.inv(reach)[1 if total_known else 0 :].sum(axis=0)
    for part, price in list(zip(layout.parts, prices, strict=True))[1 if total_known else 0 :]:
        assert residual_price(axes, part) == pytest.approx(price, rel=1e-9, abs=1e-12)


def mean_range(axes: Axes) -> Floats:
    """The mean norms of 600 random ranges."""
    (chain,), rng = axes.chains, np.random.default_rng(0)
    norms = np.zeros(1 + chain.finest)
    for _ in range(600):
        low, high = sorted(rng.integers(0, chain.size + 1, 2).tolist())
        cells = np.arange(chain.size)
        norms += chain.norms(((cells >= low) & (cells < high)).astype(np.float64))
    return norms / 600


def price_of_ranges(axes: Axes) -> float:
    return standalone_price(axes, (0,), mean_range(axes).tolist())


@pytest.mark.parametrize(
    ("counts", "price"),
    [
        ((301,), 51.1),
        ((17, 301), 15.3),
        ((7, 43, 301), 12.175),
        ((64,), 10.9),
        ((8, 64), 6.17),
        ((4, 16, 64), 5.60),
        ((1024,), 174.0),
        ((4, 16, 64, 256, 1024), 16.8),
    ],
)
def test_golden_prices_of_the_mean_range(counts: tuple[int, ...], price: float) -> None:
    assert price_of_ranges(chained(*counts)) == pytest.approx(price, rel=0.025)


def test_golden_shares_of_the_levels_of_301_cells() -> None:
    axes = chained(7, 43, 301)
    norms = mean_range(axes)[1:]
    prices = np.array([residual_price(axes, part) for part in axes.layout((0,)).parts[1:]])
    precision = np.append(np.sqrt(norms / prices), 0.0)
    weights = (precision[:-1] - precision[1:]) / axes.chains[0].widths[1:]
    np.testing.assert_allclose(weights / weights.sum(), (0.204, 0.333, 0.462), atol=0.012)


def test_the_chains_in_use_are_no_worse_than_the_best_of_three_levels() -> None:
    ours = price_of_ranges(axes_of(shape_of(301)))
    assert ours <= price_of_ranges(chained(7, 43, 301))
    assert ours <= 0.25 * price_of_ranges(chained(301))


@pytest.mark.parametrize("sizes", [(64,), (301,), (301, 5), (64, 64)], ids=str)
def test_a_package_costs_about_what_the_lemma_says_is_least(sizes: tuple[int, ...]) -> None:
    axes, every = axes_of(shape_of(*sizes)), tuple(range(len(sizes)))
    norms = np.array(conjunction_norms(axes, every, [n // 2 for n in sizes]))
    bought = package(axes.layout(every), norms)
    together = bought.reach @ bought.shares
    price = bought.shares.sum() * (norms[1:] / together[1:]).sum()
    least = standalone_price(axes, every, norms.tolist())
    assert bought.n_counts > math.prod(sizes)
    assert least * (1 - 1e-9) <= price < 0.7 * norms[1:].sum()
    if len(sizes) == 1:  # else Lemma B has tables over fewer attributes, too
        assert price == pytest.approx(least, rel=0.06)


def test_single_cells_are_measured_by_their_own_table_alone() -> None:
    layout = axes_of(shape_of(301)).layout((0,))
    for norms in (range_norms(layout.chains[0], 1), np.zeros(4)):
        assert package(layout, norms).groups == ((301,),)


# ---------------------------------------------------------------- estimates and variances


@pytest.mark.parametrize("seed", rest_is_slow(range(6), first=1))
def test_with_groups_of_two_sizes_nothing_is_stated_too_precise_or_much_too_coarse(
    seed: int,
) -> None:
    """The exact error of every answer, as a linear form in the noise, against the variance stated."""
    shape, rng = Shape((UNEVEN, 3), [0]), np.random.default_rng(seed)
    counts = rng.integers(0, 50, shape).astype(np.float64)
    n_rows = int(counts.sum())
    history = random_history(shape, rng, 6)
    exact = []
    for m in history:
        rest = tuple(a for a in range(2) if a not in m.attributes)
        table = grouped(counts.sum(axis=rest), m.table.shape)
        exact.append(Measured(m.attributes, 0, table, m.variance))
    right = belief_of(shape, exact, n_rows=n_rows)
    # The answer to one unit of noise in each measured count, one at a time.
    moved = []
    for number, m in enumerate(history):
        for cell in range(m.table.size):
            unit = [Measured(o.attributes, 0, np.zeros(o.table.shape), o.variance) for o in history]
            unit[number].table.flat[cell] = 1.0
            moved.append((belief_of(shape, unit, n_rows=0), math.sqrt(m.variance)))
    for query in queries(shape, rng):
        masks = masks_of(shape, query)
        values, stated, _ = known(right, shape, query, range(1))
        truth = np.array([(mask * counts).sum() for mask in masks])
        finite = np.isfinite(stated)
        np.testing.assert_allclose(values[finite], truth[finite], rtol=1e-9, atol=1e-6)
        noise = [np.square(known(b, shape, query, range(1))[0] * sigma) for b, sigma in moved]
        true = np.sum(noise, axis=0)
        _, least = least_squares(shape, masks, history, range(1), n_rows=n_rows)
        assert (np.isfinite(least) == finite).all()
        assert (least[finite] <= true[finite] * (1 + 1e-6) + 1e-9).all()
        assert (true[finite] <= stated[finite] * (1 + 1e-9)).all()
        assert (stated[finite] <= 1.25 * least[finite] + 1e-9).all()


def test_a_table_of_the_cells_means_what_it_meant_without_levels() -> None:
    """Looks that were stored before there were levels: the same estimates, and the same variances."""
    shape, rng = Shape((EVEN, 3), [0]), np.random.default_rng(5)
    history = [
        Measured((0, 1), 0, rng.normal(25, 10, shape), 9.0),
        Measured((0,), 0, rng.normal(75, 10, EVEN), 1.0),
    ]
    for query in queries(shape, rng):
        before, now = (
            known(belief_of(of, history), of, query, range(1)) for of in (tuple(shape), shape)
        )
        np.testing.assert_allclose(now[0], before[0], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(now[1], before[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("by", [(), (1,)])
def test_sums_have_the_variance_of_generalised_least_squares(
    by: tuple[int, ...], seed: int
) -> None:
    """A number for each cell in place of a mask, with and without GROUP BY."""
    shape, rng = Shape((EVEN, 3), [0]), np.random.default_rng(seed)
    history = random_history(shape, rng, 6)
    numbers = rng.normal(size=EVEN)
    query = LinearQuery(where(shape, {0: range(3, 14)}), range(1), by)
    form = TableForm(query.predicate, by, shape, ((0,), numbers))
    evidence = belief_of(shape, history).evidence(form, b"", range(1))
    masks = [mask * numbers[:, None] for mask in masks_of(shape, query)]
    best, least = least_squares(shape, masks, history, range(1))
    variances = np.broadcast_to(evidence.variances, least.shape)
    np.testing.assert_allclose(variances, least, rtol=1e-6, atol=1e-9)
    finite = np.isfinite(least)
    np.testing.assert_allclose(evidence.values[finite], best[finite], rtol=1e-6, atol=1e-6)


def test_synthetic_rows_follow_tables_that_were_measured_at_several_levels() -> None:
    it = amounts(50, 40_000, base_share=0.1)
    rows = it.mechanism.basis(range(1)).rows(2_000, np.random.default_rng(1))
    assert rows.fitted[0,].error < 0.05
    found = np.bincount(rows.columns[0], minlength=50)[:12].sum() / 2_000
    (exact,) = it.data.marginal((0,), range(1))
    assert found == pytest.approx(exact[:12].sum() / 40_000, abs=0.05)


def test_bounds_hold_whatever_the_levels_that_were_measured() -> None:
    shape, rng = Shape((EVEN, 3), [0]), np.random.default_rng(9)
    counts = rng.integers(0, 50, shape).astype(np.float64)
    of_first = counts.sum(axis=1)
    tables = [((0,), grouped(of_first, (5,))), ((0,), of_first), ((1,), counts.sum(axis=0))]
    history = [Measured(attributes, 0, table, 1e-9) for attributes, table in tables]
    belief = belief_of(shape, history, n_rows=int(counts.sum()))
    for query in queries(shape, rng):
        form = form_of(query, shape)
        low, high = belief.evidence(form, query.key, range(1)).interval(-10.0)
        truth = np.array([(mask * counts).sum() for mask in masks_of(shape, query)])
        live = slice(None) if form.live is None else form.live
        assert (low <= truth[live] + 1e-2).all()
        assert (truth[live] <= high + 1e-2).all()


def test_a_likely_table_takes_groups_in_where_nothing_finer_is_known() -> None:
    belief = belief_of(shape_of(EVEN), [], n_rows=100)
    belief.absorb_table((0,), 0, np.array([100.0, 0, 0, 0, 0]), 1.0)
    values, variances, _ = known(belief, shape_of(EVEN), between(0, 1, EVEN), range(1))
    assert variances[0] == math.inf
    assert values[0] == pytest.approx(20.0)


# ---------------------------------------------------------------- the base release


def test_a_planned_release_certifies_what_it_says_with_a_chain() -> None:
    """``Reach`` and ``Design`` against the variances of the memory."""
    shape = Shape((EVEN, 4), [0])
    axes, memory = axes_of(shape), ResidualMemory(shape)
    budget, terms = Host(names(2)).state.promise.budget, Accuracy(0.05, 0.01)
    promise = Promise(shape, budget, terms)
    release = BasePlan(axes, Expected(queries=10_000)).release(20_000, promise)
    assert any(max(table) >= len(shape) for table, _ in release.tables), "groups are counted"
    memory.open_block(20_000)
    for table, step in release.tables:
        variance = float(grid_sigma(step)) ** 2
        memory.absorb(axes.attributes(table), 0, np.zeros(axes.groups(table)), variance)
    limit = (terms.error * 20_000 / promise.terms.z) ** 2
    reach = Reach(axes, release, limit)
    for group in generic_workload(axes):
        assert len(group.norms) == len(axes.layout(group.attributes).parts)
        view = memory.view(group.attributes, range(1))
        variance = float(view.variance(np.array([group.norms]))[0])
        phases = reach.phases(group.attributes, group.norms)
        assert phases == max(1.0, math.ceil(variance / limit - 1e-9))


@pytest.mark.parametrize("shape", [shape_of(301), Shape((301, 5), [0]), shape_of(64, 30)], ids=str)
def test_the_plan_of_a_chain_is_within_the_bound_of_lemma_c_and_its_own_lemma_b(
    shape: Shape,
) -> None:
    costs = []
    for of in (shape, tuple(shape)):
        axes = axes_of(of)
        design = Design(axes, generic_workload(axes))
        every = np.arange(len(design.groups))
        plan = design.cheapest(every, np.ones(len(every)))
        assert plan.cost <= 1.06 * plan.bound
        assert plan.cost >= design.alone.max() * (1 - 1e-9)
        assert (design.variances(plan.weights) <= 1.0 + 1e-6).all()
        costs.append(plan.cost)
    assert costs[0] < 0.55 * costs[1]


def test_a_declared_range_is_planned_by_its_own_groups() -> None:
    """One whole group of the coarsest level needs none of the finer ones."""
    axes = axes_of(shape_of(EVEN))
    tiles = between(5, 10, EVEN), LinearQuery(EVERYTHING, range(1), (0,))
    ranges, table = (declared_workload([PlannedTile(tile, 1)], axes)[0].norms for tile in tiles)
    assert ranges[1:] == (pytest.approx(4.0), 0.0)
    assert table == pytest.approx((1 / 625, 1 / 5 - 1 / 25, 1 - 1 / 5))


def test_wide_data_is_planned_with_levels_where_these_make_few_tables() -> None:
    wide, few = axes_of(shape_of(*(100,) * 12)), axes_of(Shape((301, 64, *(5,) * 10), [0, 1]))
    flat = axes_of((100,) * 12)
    assert planned_axes(wide) == flat
    assert BasePlan(wide).groups == BasePlan(flat).groups
    assert planned_axes(few) is few
    assert {(few.component(0, level),) for level in (1, 2, 3)} <= set(
        Design(few, generic_workload(few)).tables
    )


def test_groups_about_the_same_attributes_are_drawn_together_or_not_at_all() -> None:
    axes = axes_of(shape_of(*(100,) * 7))
    tables = Design(axes, generic_workload(axes)).tables
    pairs = {table for table in tables if len(table) == 2}
    assert {axes.attributes(t) for t in pairs} == set(itertools.combinations(range(7), 2))
    assert len(pairs) == 9 * 21


# ---------------------------------------------------------------- looks


def amounts(n: int = 301, n_rows: int = 20_000, *, ordered: bool = True, **more: Any) -> Host:
    """A data set of amounts, in order or as if they were names, and of a status."""
    amount = Number("amount", tuple(range(1, n)), integer=True)
    unordered = Category("amount", tuple(map(str, range(n))), other=False)
    status = Category("status", tuple("abcde"), other=False)
    universe = Universe((amount if ordered else unordered, status))
    rng = np.random.default_rng(0)
    columns = np.minimum(rng.gamma(2.0, n / 8, n_rows), n - 1), rng.integers(0, 5, n_rows)
    noise = QuickNoise(3)
    return Host(universe, sealed(universe, *columns), noise=noise, **{"base_share": 0.0, **more})


def test_a_row_that_moves_changes_two_groups_of_a_table_by_one() -> None:
    """The squared sensitivity of a table at any level is 2: all rows of a small universe, moved anywhere."""
    layout = axes_of(Shape((26, 5), [0])).layout((0, 1))
    for levels in itertools.product((1, 2), (1,)):
        units = np.eye(26 * 5, dtype=np.int64).reshape(26, 5, -1)
        tables = grouped(units, (*layout.groups_at(levels), units.shape[-1]))
        one = tables.reshape(-1, units.shape[-1]).T
        assert np.square(one[:, None, :] - one[None, :, :]).sum(axis=2).max() == 2


def test_a_look_counts_the_groups_that_it_describes() -> None:
    it = amounts(n_rows=5_000)
    it.noise = QuickNoise(1, 0.0)
    parts = Part((0, 1), 0, -640, (12, 5)), Part((0, 1), 0, -640)
    look = TablesLook("query", parts, ((12, 5), (301, 5)), ())
    release = it.take(look)
    assert release.parts == parts
    assert look.description["tables"] == [[[0, 1], 0, -640, [12, 5]], [[0, 1], 0, -640]]
    coarse, fine = release.tables
    (exact,) = it.data.marginal((0, 1), range(1))
    np.testing.assert_array_equal(fine, exact)
    groups = LevelChain.of(301).groups[1]
    np.testing.assert_array_equal(coarse, [exact[groups == g].sum(axis=0) for g in range(12)])


@pytest.mark.parametrize("groups", [(13, 5), (12, 4)])
def test_stored_groups_that_no_chain_has_are_refused(groups: tuple[int, int]) -> None:
    table = np.zeros(groups, dtype=np.int64)
    data = TablesRelease((Part((0, 1), 0, 3, groups),), (table,)).to_bytes()
    with pytest.raises(CorruptState):
        amounts(n_rows=10).mechanism.release_from_bytes(data)


def ranges(n: int, k: int, seed: int) -> list[LinearQuery]:
    rng = np.random.default_rng(seed)
    found: list[LinearQuery] = []
    while len(found) < k:
        low, high = sorted(rng.choice(n + 1, 2, replace=False).tolist())
        if high - low < n:
            found.append(between(low, high, n))
    return found


def test_ranges_on_301_bins_cost_about_a_quarter_of_what_they_cost_without_levels() -> None:
    spent, missed = [], 0
    for ordered in (True, False):
        it = amounts(ordered=ordered)
        for query in ranges(301, 300, 7):
            quote = it.mechanism.quote(query)
            outcome = it.ask(query)
            assert outcome.path is not Path.UNVERIFIED
            if outcome.path is Path.MEASURED:
                assert outcome.error_bar == pytest.approx(quote.error_bar, rel=1e-9)
            missed += ordered and abs(outcome.count - it.exact(query).item()) > 0.02 * 20_000
        spent.append(it.mechanism.lines.worst(range(1)).rho)
    assert missed <= 10, "3 are expected; more than 10 have probability 3e-4"
    assert spent[0] < 0.3 * spent[1]


def test_what_a_bundle_is_quoted_with_levels_is_what_is_paid() -> None:
    it, asked = amounts(), ranges(301, 40, 8)
    rehearsal = it.mechanism.rehearse(sparing=False)
    expected = sum(charge.rho for query in asked for charge in rehearsal.quote(query).charges)
    for query in asked:
        assert it.ask(query).path is not Path.BOUNDED
    assert any(isinstance(look, TablesLook) and len(look.parts) > 1 for look in it.taken)
    assert it.mechanism.lines.worst(range(1)).rho == expected


# ---------------------------------------------------------------- the noise


@pytest.mark.parametrize(("factor", "holds"), [(1.0, True), (1.1, False), (1 / 1.1, False)])
def test_errors_have_the_variance_stated_and_not_that_of_a_scale_10_percent_off(
    factor: float, holds: bool
) -> None:
    """The mean square of 4,000 standardised errors of a range, against chi-squared at 1e-6 on each side.

    The range is answered from a package of tables of an even chain, so the variance stated is exact.
    """
    of = Universe((Number("x", tuple(range(1, 125)), integer=True),))
    assert axes_of(of.shape).chains[0].widths == (125, 25, 5, 1)
    codes = np.random.default_rng(0).integers(0, 125, 2_000)
    it, query = Host(of, sealed(of, codes)), between(13, 84, 125)
    form, truth = form_of(query, of.shape), it.exact(query).item()
    bought = package(axes_of(of.shape).layout((0,)), form.typical)
    assert len(bought.groups) == 3
    noise, draws = QuickNoise(11, factor), 4_000
    squares = 0.0
    parts = tuple(
        Part((0,), 0, 160 + offset, () if groups == (125,) else groups)
        for groups, offset in zip(bought.groups, bought.offsets, strict=True)
    )
    look = TablesLook("query", parts, bought.groups, ())
    for _ in range(draws):
        memory = belief_of(of.shape, [], n_rows=2_000).tables
        for part, table in zip(parts, look.take(noise, it.data).tables, strict=True):
            memory.absorb((0,), 0, table.astype(np.float64), float(grid_sigma(part.step)) ** 2)
        view = memory.view((0,), range(1))
        error = float(form.values(view).item()) - truth
        squares += error * error / float(view.variance(form.norms)[0])
    low, high = (float(chi2.ppf(p, draws)) for p in (1e-6, 1 - 1e-6))
    assert bool(low < squares < high) is holds
