"""Levels of ordered attributes, against generalised least squares on all cells and by brute force."""

from __future__ import annotations

import copy
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import chi2

from stream_dp.core.budget.accountant import Budget, gaussian_rho
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.outcome import Answered, Path
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.base_release.base_plan import BasePlan, Design, Reach
from stream_dp.core.residual.base_release.expected_queries import (
    Group,
    PlannedTile,
    conjunction_norms,
    declared_workload,
    generic_workload,
    planned_shape,
)
from stream_dp.core.residual.belief.evidence import Belief
from stream_dp.core.residual.belief.levels import Axes, Layout, LevelChain, axes_of, grouped
from stream_dp.core.residual.belief.linear_forms import Form, TableForm, form_of
from stream_dp.core.residual.belief.packages import package
from stream_dp.core.residual.belief.residuals import ResidualMemory
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.looks.table_looks import CountsLook, Part, TablesLook, TablesRelease
from stream_dp.core.residual.plan.planner import Prices, Terms
from stream_dp.core.residual.plan.residual_price import residual_price, standalone_price
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.universe import Category, Number, Rows, Shape, Universe
from stream_dp.errors import CorruptState
from stream_dp.lab.trial import Driven
from tests.noise import QuickNoise
from tests.slow import rest_is_slow

Floats = npt.NDArray[np.float64]

EVEN, UNEVEN = 25, 31
"""Cells of ordered attributes: the groups of the first have 5 cells each, those of the second 5 or 6."""

PRIVACY = Privacy(1.0, 1e-9)


def shape_of(*sizes: int) -> Shape:
    """All attributes of so many cells are ordered."""
    return Shape(sizes, range(len(sizes)))


def cells(n: int, *, at: int, size: int) -> npt.NDArray[np.bool_]:
    return (np.arange(n) >= at) & (np.arange(n) < at + size)


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
        of_cell = chain.groups[level]
        assert set(of_cell.tolist()) == set(range(chain.n_groups(level)))
        assert chain.widths[level] >= 0.8 * n / chain.n_groups(level)


def test_only_numbers_of_more_than_24_cells_have_levels() -> None:
    names = tuple(map(str, range(40)))
    universe = Universe(
        (
            Category("c", names, other=False),
            Number("small", tuple(range(23))),
            Number("large", tuple(range(24))),
        )
    )
    assert universe.shape == Shape((40, 24, 25), [2])
    assert universe.shape != (40, 24, 25)
    assert axes_of(universe.shape).graded == {2}
    plain = Universe(universe.attributes[:2])
    assert type(plain.shape) is tuple
    again = copy.deepcopy(universe.shape)
    assert (again, hash(again)) == (universe.shape, hash(universe.shape))


def test_parts_are_orthogonal_and_add_up_to_the_cells() -> None:
    chain, rng = LevelChain.of(UNEVEN), np.random.default_rng(0)
    counts = rng.normal(size=UNEVEN)
    total, *parts = chain.split(counts, 0, chain.finest)
    spread = [chain.spread(part, 0, level) for level, part in enumerate(parts, start=1)]
    np.testing.assert_allclose(sum(spread) + total / UNEVEN, counts)
    for one, other in itertools.combinations(spread, 2):
        assert one @ other == pytest.approx(0.0, abs=1e-12)
    norms = chain.norms(counts)
    assert norms[0] == pytest.approx(counts.mean() ** 2)
    np.testing.assert_allclose(norms[1:], [part @ part for part in spread])
    np.testing.assert_allclose(
        chain.of_cells, [chain.norms(row) for row in np.eye(UNEVEN)], atol=1e-15
    )


def test_what_the_cells_say_of_a_group_is_what_its_table_says() -> None:
    counts = np.random.default_rng(1).integers(0, 99, (UNEVEN, 3, EVEN))
    chains = LevelChain.of(UNEVEN), LevelChain((3,)), LevelChain.of(EVEN)
    layout = Axes(Shape((UNEVEN, 3, EVEN), [0, 2])).layout((0, 1, 2))
    assert layout.chains == chains
    whole = layout.split(counts.astype(np.float64), layout.finest)
    for levels in itertools.product((1, 2), (1,), (1, 2)):
        table = grouped(counts, layout.groups_at(levels))
        for index, part in layout.split(table.astype(np.float64), levels).items():
            np.testing.assert_allclose(part, whole[index], atol=1e-9)


# ---------------------------------------------------------------- prices: Lemmas A and B


def brute_reach(layout: Layout) -> tuple[list[tuple[int, ...]], Floats]:
    """All tables over the attributes of a layout, and the precision that each brings to each part.

    It is worked out from the group of each cell: a part's weights, added to the groups, must be what a table
    weighs. Only for groups of one size.
    """
    rng = np.random.default_rng(0)
    tables = list(itertools.product(*(range(c.finest + 1) for c in layout.chains)))
    reach = np.zeros((len(layout.levels), len(tables)))
    for row, levels in enumerate(layout.levels):
        for column, table in enumerate(tables):
            if any(t > s for t, s in zip(levels, table, strict=True)):
                continue
            brought = 1.0
            for chain, t, s in zip(layout.chains, levels, table, strict=True):
                weights = rng.normal(size=chain.n_groups(t))[chain.groups[t]]
                norm = float(weights @ weights if t else weights[0] ** 2)
                of_group = weights[np.searchsorted(chain.groups[s], np.arange(chain.n_groups(s)))]
                brought *= norm / float(of_group @ of_group)
            reach[row, column] = brought
    return tables, reach


def test_prices_of_residuals_are_those_of_the_tables_that_bring_them() -> None:
    """Lemma A on a product of two chains and a plain attribute, by solving the linear system."""
    layout = Axes(Shape((EVEN, 2, EVEN), [0, 2])).layout((0, 1, 2))
    tables, reach = brute_reach(layout)
    assert tables == list(layout.levels)
    np.testing.assert_allclose(np.stack([layout.reach(t) for t in tables], axis=1), reach)
    # The cost of precisions p is the sum of the weights w = reach^-1 p, without the empty table.
    prices = np.linalg.inv(reach)[1:].sum(axis=0)
    for levels, price in list(zip(layout.levels, prices, strict=True))[1:]:
        inside = [(c, t) for c, t in zip(layout.chains, levels, strict=True) if t]
        mine = residual_price([c for c, _ in inside], [t for _, t in inside])
        assert mine == pytest.approx(price, rel=1e-9, abs=1e-12)
    # Where the number of rows is private, the empty table costs something too.
    prices = np.linalg.inv(reach).sum(axis=0)
    for levels, price in zip(layout.levels, prices, strict=True):
        inside = [(c, t) for c, t in zip(layout.chains, levels, strict=True) if t]
        mine = residual_price([c for c, _ in inside], [t for _, t in inside], total_known=False)
        assert mine == pytest.approx(price, rel=1e-9, abs=1e-12)


def mean_range(chain: LevelChain, seed: int = 0) -> Floats:
    """The mean norms of 600 random ranges."""
    rng = np.random.default_rng(seed)
    norms = np.zeros(1 + chain.finest)
    for _ in range(600):
        low, high = sorted(rng.integers(0, chain.size + 1, 2).tolist())
        norms += chain.norms(cells(chain.size, at=low, size=high - low).astype(np.float64))
    return norms / 600


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
    chain = LevelChain(counts)
    assert standalone_price(mean_range(chain).tolist(), [chain]) == pytest.approx(price, rel=0.025)


def test_golden_shares_of_the_levels_of_301_cells() -> None:
    chain = LevelChain((7, 43, 301))
    norms = mean_range(chain)[1:]
    prices = np.array([residual_price([chain], [level]) for level in (1, 2, 3)])
    precision = np.append(np.sqrt(norms / prices), 0.0)
    weights = (precision[:-1] - precision[1:]) / chain.widths[1:]
    np.testing.assert_allclose(weights / weights.sum(), (0.204, 0.333, 0.462), atol=0.012)


def test_the_chains_in_use_are_no_worse_than_the_best_of_three_levels() -> None:
    best = standalone_price(
        mean_range(LevelChain((7, 43, 301))).tolist(), [LevelChain((7, 43, 301))]
    )
    chain = LevelChain.of(301)
    ours = standalone_price(mean_range(chain).tolist(), [chain])
    flat = standalone_price(mean_range(LevelChain((301,))).tolist(), [301])
    assert ours <= best
    assert ours <= 0.25 * flat


def test_a_package_costs_about_what_the_lemma_says_is_least() -> None:
    for sizes in ((64,), (301,), (301, 5), (64, 64)):
        layout = Axes(Shape(sizes, range(len(sizes)))).layout(tuple(range(len(sizes))))
        norms = np.array(conjunction_norms(layout.chains, [n // 2 for n in sizes]))
        bought = package(layout, norms)
        together = bought.reach @ bought.shares
        price = bought.shares.sum() * (norms[1:] / together[1:]).sum()
        alone = norms[1:].sum()
        least = standalone_price(norms.tolist(), layout.chains)
        assert bought.n_counts > math.prod(sizes)
        assert price < 0.7 * alone
        assert price >= least * (1 - 1e-9)
        if len(sizes) == 1:  # else Lemma B has tables over fewer attributes, too
            assert price == pytest.approx(least, rel=0.06)


def test_single_cells_are_measured_by_their_own_table_alone() -> None:
    layout = axes_of(shape_of(301)).layout((0,))
    assert package(layout, layout.chains[0].range_norms(1)).groups == ((301,),)
    assert package(layout, np.zeros(4)).groups == ((301,),)


# ---------------------------------------------------------------- estimates and variances


@dataclass
class Measured:
    attributes: tuple[int, ...]
    table: Floats
    variance: float


def history_of(
    shape: Shape, counts: Floats, rng: np.random.Generator, n: int
) -> tuple[list[Measured], list[tuple[int, ...]]]:
    """Noisy tables of some attributes at some levels, with their groups."""
    axes, history, every = Axes(shape), [], []
    for _ in range(n):
        k = int(rng.integers(1, len(shape) + 1))
        attributes = tuple(sorted(rng.choice(len(shape), k, replace=False).tolist()))
        layout = axes.layout(attributes)
        levels = tuple(int(rng.integers(1, c.finest + 1)) for c in layout.chains)
        rest = tuple(a for a in range(len(shape)) if a not in attributes)
        table = grouped(counts.sum(axis=rest), layout.groups_at(levels))
        variance = float(rng.uniform(0.5, 40))
        noisy = table + rng.normal(0, math.sqrt(variance), table.shape)
        history.append(Measured(attributes, noisy, variance))
        every.append(layout.groups_at(levels))
    return history, every


def memory_of(shape: Shape, history: Sequence[Measured], n_rows: float) -> ResidualMemory:
    memory = ResidualMemory(shape)
    memory.open_block(int(n_rows))
    for m in history:
        memory.absorb(m.attributes, 0, m.table, m.variance)
    return memory


def equations(shape: Shape, history: Sequence[Measured]) -> tuple[Floats, Floats, Floats]:
    """Rows, values and precisions: every measured count is an equation about the cells of the universe."""
    rows = []
    for m in history:
        axes = Axes(shape).layout(m.attributes)
        levels = axes.levels_of(m.table.shape)
        of_cell = np.meshgrid(
            *[
                axes.chains[m.attributes.index(a)].groups[levels[m.attributes.index(a)]]
                if a in m.attributes
                else np.zeros(n, dtype=np.intp)
                for a, n in enumerate(shape)
            ],
            indexing="ij",
        )
        index = np.ravel_multi_index([of_cell[a] for a in m.attributes], m.table.shape).ravel()
        rows.append((index[None, :] == np.arange(m.table.size)[:, None]).astype(np.float64))
    values = np.concatenate([m.table.ravel() for m in history])
    precisions = np.concatenate([np.full(m.table.size, 1.0 / m.variance) for m in history])
    return np.concatenate(rows), values, precisions


def least_squares(
    shape: Shape, history: Sequence[Measured], n_rows: float
) -> Callable[[Floats], tuple[float, float]]:
    """Estimate and variance of ``<weights, counts>``. Only the sum of the counts is known beforehand."""
    n_cells = math.prod(shape)
    rows, values, w = equations(shape, history)
    start = np.full(n_cells, n_rows / n_cells)
    basis = np.linalg.svd(np.ones((1, n_cells)))[2][1:].T
    design = rows @ basis
    information = design.T @ (w[:, None] * design)
    inverse = np.linalg.pinv(information, rcond=1e-10, hermitian=True)
    solution = inverse @ (design.T @ (w * (values - rows @ start)))

    def best(weights: Floats) -> tuple[float, float]:
        q = weights.ravel() @ basis
        if not np.allclose(information @ (inverse @ q), q, atol=1e-8):
            return math.nan, math.inf
        return float(weights.ravel() @ start + q @ solution), float(q @ inverse @ q)

    return best


def queries(shape: Shape, rng: np.random.Generator) -> list[tuple[LinearQuery, list[Floats]]]:
    """Ranges, their complements, any masks and tables, with the weights of each answer on all cells."""
    n, m = shape[0], shape[1]
    low = int(rng.integers(0, n - 1))
    wide = cells(n, at=low, size=int(rng.integers(1, n - low)))
    some = rng.random(m) < 0.5
    some[:2] = True, False
    mask = rng.random((n, m)) < 0.3
    within = Predicate.conjunction({0: wide, 1: some})
    found = []
    for predicate, weights in (
        (Predicate.conjunction({0: wide}), np.repeat(wide[:, None], m, axis=1)),
        (within, np.outer(wide, some)),
        (Predicate.of_mask((0, 1), ~within.mask), ~np.outer(wide, some)),
        (Predicate.of_mask((0, 1), mask), mask),
    ):
        query = LinearQuery(predicate, range(1))
        found.append((query, [weights.astype(np.float64)]))
    for by, predicate in (((0,), EVERYTHING), ((1, 0), EVERYTHING), ((0,), found[2][0].predicate)):
        base = np.ones((n, m)) if predicate is EVERYTHING else found[2][1][0]
        answers = []
        for cell in itertools.product(*(range(shape[a]) for a in by)):
            one = base.copy()
            for attribute, value in zip(by, cell, strict=True):
                other = np.arange(shape[attribute]) != value
                one[other if attribute == 0 else (slice(None), other)] = 0.0
            answers.append(one)
        found.append((LinearQuery(predicate, range(1), by), answers))
    return found


def known(form: Form, memory: ResidualMemory) -> tuple[Floats, Floats]:
    """Values and variances of all answers."""
    view = memory.view(form.attributes, range(1))
    values, variances = np.zeros(form.n_answers), np.zeros(form.n_answers)
    live = slice(None) if form.live is None else form.live
    values[live], variances[live] = form.values(view), view.variance(form.norms)
    return values, variances


@pytest.mark.parametrize("seed", rest_is_slow(range(6), first=2))
def test_estimates_and_variances_are_those_of_generalised_least_squares(seed: int) -> None:
    """Where all groups have the same number of cells, nothing is lost and nothing is a bound."""
    shape, rng = Shape((EVEN, 3), [0]), np.random.default_rng(seed)
    counts = rng.integers(0, 50, shape).astype(np.float64)
    history, _ = history_of(shape, counts, rng, 6)
    memory = memory_of(shape, history, counts.sum())
    solve = least_squares(shape, history, counts.sum())
    for query, answers in queries(shape, rng):
        values, variances = known(form_of(query, shape), memory)
        for weights, value, variance in zip(answers, values, variances, strict=True):
            best, least = solve(weights)
            assert variance == pytest.approx(least, rel=1e-6, abs=1e-9)
            if math.isfinite(least):
                assert value == pytest.approx(best, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("seed", rest_is_slow(range(6), first=1))
def test_with_groups_of_two_sizes_nothing_is_stated_too_precise_or_much_too_coarse(
    seed: int,
) -> None:
    """The exact error of every answer, as a linear form in the noise, against the variance stated."""
    shape, rng = Shape((UNEVEN, 3), [0]), np.random.default_rng(seed)
    counts = rng.integers(0, 50, shape).astype(np.float64)
    history, _ = history_of(shape, counts, rng, 6)
    sizes = [m.table.size for m in history]
    exact = memory_of(shape, [_without_noise(shape, m, counts) for m in history], counts.sum())
    # The answer to one unit of noise in each measured count, one at a time.
    moved = []
    for number, size in enumerate(sizes):
        for cell in range(size):
            unit = [Measured(m.attributes, np.zeros(m.table.shape), m.variance) for m in history]
            unit[number].table.flat[cell] = 1.0
            moved.append((memory_of(shape, unit, 0), math.sqrt(history[number].variance)))
    solve = least_squares(shape, history, counts.sum())
    for query, answers in queries(shape, rng):
        form = form_of(query, shape)
        values, stated = known(form, exact)
        truth = np.array([(weights * counts).sum() for weights in answers])
        finite = np.isfinite(stated)
        np.testing.assert_allclose(values[finite], truth[finite], rtol=1e-9, atol=1e-6)
        each = [np.square(known(form, memory)[0] * sigma) for memory, sigma in moved]
        true = np.sum(each, axis=0)
        assert (true[finite] <= stated[finite] * (1 + 1e-9)).all()
        for weights, own, variance in zip(answers, true, stated, strict=True):
            _, least = solve(weights)
            assert math.isfinite(variance) == math.isfinite(least)
            if math.isfinite(variance):
                assert least <= own * (1 + 1e-6) + 1e-9
                assert variance <= 1.25 * least + 1e-9


def _without_noise(shape: Shape, m: Measured, counts: Floats) -> Measured:
    rest = tuple(a for a in range(len(shape)) if a not in m.attributes)
    return Measured(m.attributes, grouped(counts.sum(axis=rest), m.table.shape), m.variance)


def test_a_table_of_the_cells_means_what_it_meant_without_levels() -> None:
    """Looks that were stored before there were levels: the same estimates, and the same variances."""
    shape, rng = Shape((EVEN, 3), [0]), np.random.default_rng(5)
    counts = rng.integers(0, 50, shape).astype(np.float64)
    table = Measured((0, 1), counts + rng.normal(0, 3, shape), 9.0)
    single = Measured((0,), counts.sum(axis=1) + rng.normal(0, 1, EVEN), 1.0)
    plain = ResidualMemory(tuple(shape))
    plain.open_block(int(counts.sum()))
    for m in (table, single):
        plain.absorb(m.attributes, 0, m.table, m.variance)
    levels = memory_of(shape, [table, single], counts.sum())
    for query, _ in queries(shape, rng):
        before, now = (
            known(form_of(query, tuple(shape)), plain),
            known(form_of(query, shape), levels),
        )
        np.testing.assert_allclose(now[0], before[0], rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(now[1], before[1], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_sums_have_the_variance_of_generalised_least_squares(seed: int) -> None:
    """A number for each cell in place of a mask, with and without GROUP BY."""
    shape, rng = Shape((EVEN, 3), [0]), np.random.default_rng(seed)
    counts = rng.integers(0, 50, shape).astype(np.float64)
    history, _ = history_of(shape, counts, rng, 6)
    memory = memory_of(shape, history, counts.sum())
    solve = least_squares(shape, history, counts.sum())
    numbers = rng.normal(size=EVEN)
    wide = cells(EVEN, at=3, size=11)
    for by in ((), (1,)):
        form = TableForm(Predicate.conjunction({0: wide}), by, shape, ((0,), numbers))
        values, variances = known(form, memory)
        for cell, (value, variance) in enumerate(zip(values, variances, strict=True)):
            weights = np.repeat((wide * numbers)[:, None], 3, axis=1)
            if by:
                weights[:, np.arange(3) != cell] = 0.0
            if 1 not in form.attributes:
                weights = np.repeat((wide * numbers)[:, None], 3, axis=1)
            best, least = solve(weights)
            assert variance == pytest.approx(least, rel=1e-6, abs=1e-9)
            if math.isfinite(least):
                assert value == pytest.approx(best, rel=1e-6, abs=1e-6)


def test_synthetic_rows_follow_tables_that_were_measured_at_several_levels() -> None:
    of = universe(50)
    data, _ = sealed(of, 40_000)
    mechanism = Calibrated(of, PRIVACY, Accuracy(0.02, 0.01), CalibratedSettings(base_share=0.1))
    Driven(mechanism, QuickNoise(3)).open_phase(40_000, data)
    rows = mechanism.basis(range(1)).rows(2_000, np.random.default_rng(1))
    assert (0,) in rows.fitted
    assert rows.fitted[0,].error < 0.05
    found = np.bincount(rows.columns[0], minlength=50)[:12].sum() / 2_000
    (exact,) = data.marginal((0,), range(1))
    assert found == pytest.approx(exact[:12].sum() / 40_000, abs=0.05)


def test_bounds_hold_whatever_the_levels_that_were_measured() -> None:
    shape, rng = Shape((EVEN, 3), [0]), np.random.default_rng(9)
    counts = rng.integers(0, 50, shape).astype(np.float64)
    belief = Belief(shape)
    belief.open_block(int(counts.sum()))
    for groups in (5, 25):
        belief.absorb_table((0,), 0, grouped(counts.sum(axis=1), (groups,)), 1e-9)
    belief.absorb_table((1,), 0, counts.sum(axis=0), 1e-9)
    for query, answers in queries(shape, rng):
        form = form_of(query, shape)
        low, high = belief.evidence(form, query.key, range(1)).interval(-10.0)
        truth = np.array([(weights * counts).sum() for weights in answers])
        live = slice(None) if form.live is None else form.live
        assert (low <= truth[live] + 1e-2).all()
        assert (truth[live] <= high + 1e-2).all()


def test_a_likely_table_takes_groups_in_where_nothing_finer_is_known() -> None:
    shape = shape_of(EVEN)
    belief = Belief(shape)
    belief.open_block(100)
    belief.absorb_table((0,), 0, np.array([100.0, 0, 0, 0, 0]), 1.0)
    query = LinearQuery(Predicate.conjunction({0: cells(EVEN, at=0, size=1)}), range(1))
    evidence = belief.evidence(form_of(query, shape), query.key, range(1))
    assert evidence.variances[0] == math.inf
    assert evidence.values[0] == pytest.approx(20.0)


# ---------------------------------------------------------------- the base release


def test_a_planned_release_certifies_what_it_says_with_a_chain() -> None:
    """``Reach`` and ``Design`` against the variances of the memory."""
    shape = Shape((EVEN, 4), [0])
    budget = Budget.of(PRIVACY)
    plan = BasePlan(shape, queries=10_000)
    terms = Terms.of(Accuracy(0.05, 0.01))
    release = plan.release(20_000, terms, None, budget, Prices(budget))
    assert any(max(table) >= len(shape) for table, _ in release.tables), "groups are counted"
    axes, memory = axes_of(shape), ResidualMemory(shape)
    memory.open_block(20_000)
    for table, step in release.tables:
        memory.absorb(
            axes.attributes(table), 0, np.zeros(axes.groups(table)), float(grid_sigma(step)) ** 2
        )
    limit = (terms.error * 20_000 / terms.z) ** 2
    reach = Reach(shape, release, limit)
    for group in generic_workload(shape):
        view = memory.view(group.attributes, range(1))
        variance = float(view.variance(np.array([group.norms]))[0])
        phases = reach.phases(group.attributes, group.norms)
        assert phases == max(1.0, math.ceil(variance / limit - 1e-9))


def test_the_plan_of_a_chain_is_within_the_bound_of_lemma_c_and_its_own_lemma_b() -> None:
    for shape in (shape_of(301), Shape((301, 5), [0]), shape_of(64, 30)):
        design = Design(shape, generic_workload(shape))
        every = np.arange(len(design.groups))
        plan = design.cheapest(every, np.ones(len(every)))
        assert plan.cost <= 1.06 * plan.bound
        assert plan.cost >= design.alone.max() * (1 - 1e-9)
        assert (design.variances(plan.weights) <= 1.0 + 1e-6).all()
        flat = Design(tuple(shape), generic_workload(tuple(shape)))
        whole = flat.cheapest(np.arange(len(flat.groups)), np.ones(len(flat.groups)))
        assert plan.cost < 0.55 * whole.cost


def test_a_declared_range_is_planned_by_its_own_groups() -> None:
    """One whole group of the coarsest level needs none of the finer ones."""
    shape = shape_of(EVEN)
    query = LinearQuery(Predicate.conjunction({0: cells(EVEN, at=5, size=5)}), range(1))
    (group,) = declared_workload([PlannedTile(query, 1)], shape)
    assert group.norms[1] == pytest.approx(4.0)
    assert group.norms[2] == 0.0
    (table,) = declared_workload([PlannedTile(LinearQuery(EVERYTHING, range(1), (0,)), 1)], shape)
    assert table.norms == pytest.approx((1 / 625, 1 / 5 - 1 / 25, 1 - 1 / 5))


def test_wide_data_is_planned_with_levels_where_these_make_few_tables() -> None:
    wide = shape_of(*(100,) * 12)
    assert planned_shape(wide) == tuple(wide)
    assert BasePlan(wide).groups == BasePlan(tuple(wide)).groups
    few = Shape((301, 64, *(5,) * 10), [0, 1])
    assert planned_shape(few) == few
    design = Design(few, generic_workload(few))
    assert {(0,), (12,), (24,)} <= set(design.tables)


def test_groups_about_the_same_attributes_are_drawn_together_or_not_at_all() -> None:
    shape = shape_of(*(100,) * 7)
    design = Design(shape, generic_workload(shape))
    pairs = {t for t in design.tables if len(t) == 2}
    assert {axes_of(shape).attributes(t) for t in pairs} == set(itertools.combinations(range(7), 2))
    assert len(pairs) == 9 * 21


# ---------------------------------------------------------------- looks


def universe(n: int = 301) -> Universe:
    return Universe(
        (
            Number("amount", tuple(range(1, n)), integer=True),
            Category("status", tuple("abcde"), other=False),
        )
    )


def sealed(of: Universe, n_rows: int, seed: int = 0) -> tuple[Blocks, Rows]:
    rng = np.random.default_rng(seed)
    n = of.shape[0]
    rows = Rows(
        (
            np.minimum(rng.gamma(2.0, n / 8, n_rows), n - 1).astype(np.uint16),
            rng.integers(0, 5, n_rows).astype(np.uint8),
        )
    )
    data = Blocks(of)
    data.append(Block.seal(of, rows))
    return data, rows


def test_a_row_that_moves_changes_two_groups_of_a_table_by_one() -> None:
    """The squared sensitivity of a table at any level is 2: all rows of a small universe, moved anywhere."""
    of = universe(26)
    layout = axes_of(of.shape).layout((0, 1))
    worst = 0.0
    for levels in itertools.product((1, 2), (1,)):
        groups = layout.groups_at(levels)
        tables = []
        for amount, status in itertools.product(range(26), range(5)):
            counts = np.zeros((26, 5), dtype=np.int64)
            counts[amount, status] = 1
            tables.append(grouped(counts, groups).ravel())
        one = np.array(tables)
        apart = np.square(one[:, None, :] - one[None, :, :]).sum(axis=2)
        worst = max(worst, float(apart.max()))
    assert worst == 2.0
    assert gaussian_rho(grid_sigma(0), squared_sensitivity=2) == 1


def test_groups_that_overlap_would_be_noticed() -> None:
    """A broken copy, in which a cell next to a border is in two groups, moves four of them."""

    def apart(overlap: int) -> float:
        starts = np.arange(0, 25, 5)
        tables = [
            [int(low <= cell < low + 5 + overlap) for low in starts.tolist()] for cell in range(25)
        ]
        one = np.array(tables)
        return float(np.square(one[:, None, :] - one[None, :, :]).sum(axis=2).max())

    assert apart(0) == 2.0
    assert apart(1) == 4.0


def test_a_look_counts_the_groups_that_it_describes() -> None:
    of = universe()
    data, rows = sealed(of, 5_000)
    parts = Part((0, 1), 0, -640, (12, 5)), Part((0, 1), 0, -640)
    look = TablesLook("query", parts, ((12, 5), (301, 5)), ())
    release = look.take(QuickNoise(1, 0.0), data)
    coarse, fine = release.tables
    chain = LevelChain.of(301)
    np.testing.assert_array_equal(
        coarse,
        [
            np.bincount(rows.codes[1][chain.groups[1][rows.codes[0]] == group], minlength=5)
            for group in range(12)
        ],
    )
    assert fine.shape == (301, 5)
    assert look.description["tables"] == [[[0, 1], 0, -640, [12, 5]], [[0, 1], 0, -640]]
    again = Calibrated(of, PRIVACY, Accuracy(0.02, 0.01)).release_from_bytes(release.to_bytes())
    assert isinstance(again, TablesRelease)
    assert again.parts == parts
    for table, read in zip(release.tables, again.tables, strict=True):
        np.testing.assert_array_equal(table, read)


def test_stored_groups_that_no_chain_has_are_refused() -> None:
    mechanism = Calibrated(universe(), PRIVACY, Accuracy(0.02, 0.01))
    for groups in ((13, 5), (12, 4)):
        table = np.zeros(groups, dtype=np.int64)
        data = TablesRelease((Part((0, 1), 0, 3, groups),), (table,)).to_bytes()
        with pytest.raises(CorruptState):
            mechanism.release_from_bytes(data)


def ranges(n: int, k: int, seed: int) -> list[npt.NDArray[np.bool_]]:
    rng = np.random.default_rng(seed)
    found: list[npt.NDArray[np.bool_]] = []
    while len(found) < k:
        low, high = sorted(rng.choice(n + 1, 2, replace=False).tolist())
        if high - low < n:
            found.append(cells(n, at=low, size=high - low))
    return found


def asked(of: Universe, n_rows: int, error: float) -> tuple[float, int, int]:
    """The share of a line that 300 ranges take, how many were answered, and how many missed."""
    mechanism = Calibrated(of, PRIVACY, Accuracy(error, 0.01), CalibratedSettings(base_share=0.0))
    data, rows = sealed(of, n_rows)
    driven = Driven(mechanism, QuickNoise(3))
    driven.open_phase(n_rows, data)
    answered = missed = 0
    for mask in ranges(of.shape[0], 300, 7):
        query = LinearQuery(Predicate.conjunction({0: mask}), range(1))
        quote = mechanism.quote(query)
        outcome = driven.ask(query, data)
        assert isinstance(outcome, Answered)
        if outcome.path is Path.MEASURED:
            assert outcome.error_bar == pytest.approx(quote.error_bar, rel=1e-9)
        answered += outcome.path is not Path.UNVERIFIED
        missed += abs(outcome.count - int(mask[rows.codes[0]].sum())) > error * n_rows
    return driven.spent_share(), answered, missed


def without_order(n: int = 301) -> Universe:
    """The same, as if the amounts were names."""
    names = tuple(map(str, range(n)))
    return Universe((Category("amount", names, other=False), *universe(n).attributes[1:]))


def test_ranges_on_301_bins_cost_about_a_quarter_of_what_they_cost_without_levels() -> None:
    spent, answered, missed = asked(universe(), 20_000, 0.02)
    before, also, _ = asked(without_order(), 20_000, 0.02)
    assert answered == also == 300
    assert missed <= 10, "3 are expected; more than 10 have probability 3e-4"
    assert spent < 0.3 * before


def test_what_a_bundle_is_quoted_with_levels_is_what_is_paid() -> None:
    of = universe()
    mechanism = Calibrated(of, PRIVACY, Accuracy(0.02, 0.01), CalibratedSettings(base_share=0.0))
    data, _ = sealed(of, 20_000)
    noise = QuickNoise(3)
    mechanism.open_phase(20_000)
    rehearsal = mechanism.rehearse(sparing=False)
    expected = 0
    asked_for = [
        LinearQuery(Predicate.conjunction({0: mask}), range(1)) for mask in ranges(301, 40, 8)
    ]
    for query in asked_for:
        expected += sum(charge.rho for charge in rehearsal.quote(query).charges)
    looks = []
    for query in asked_for:
        step = mechanism.answer(query)
        assert not isinstance(step, Answered) or step.path is not Path.BOUNDED
        if isinstance(step, CountsLook | TablesLook):
            looks.append(step)
            mechanism.charged(step.charges)
            mechanism.absorb(step.take(noise, data))
    assert any(isinstance(look, TablesLook) and len(look.parts) > 1 for look in looks)
    assert mechanism.lines.worst(range(1)).rho == expected


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
    data = Blocks(of)
    codes = np.random.default_rng(0).integers(0, 125, 2_000).astype(np.uint8)
    data.append(Block.seal(of, Rows((codes,))))
    mask = cells(125, at=13, size=71)
    query = LinearQuery(Predicate.conjunction({0: mask}), range(1))
    form, truth = form_of(query, of.shape), int(mask[codes].sum())
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
        memory = ResidualMemory(of.shape)
        memory.open_block(2_000)
        for part, table in zip(parts, look.take(noise, data).tables, strict=True):
            memory.absorb((0,), 0, table.astype(np.float64), float(grid_sigma(part.step)) ** 2)
        view = memory.view((0,), range(1))
        error = float(form.values(view).item()) - truth
        squares += error * error / float(view.variance(form.norms)[0])
    low, high = (float(chi2.ppf(p, draws)) for p in (1e-6, 1 - 1e-6))
    assert bool(low < squares < high) is holds


def test_a_group_of_a_workload_is_as_long_as_its_layout() -> None:
    shape = Shape((64, 5), [0])
    for group in generic_workload(shape):
        assert isinstance(group, Group)
        assert len(group.norms) == len(axes_of(shape).layout(group.attributes).parts)
