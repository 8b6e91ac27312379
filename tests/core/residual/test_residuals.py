"""The residual memory against generalised least squares on the full covariance."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.residual.belief.anytime import Directions
from stream_dp.core.residual.belief.evidence import Belief
from stream_dp.core.residual.belief.linear_forms import (
    Conjunction,
    Form,
    TableForm,
    conjunctions_log,
    form_of,
    spectrum,
    table,
    variance,
)
from stream_dp.core.residual.belief.local_fit import fit
from stream_dp.core.residual.belief.residuals import ResidualMemory

SHAPE = (2, 3, 4)
EVERY = (0, 1, 2)

Floats = npt.NDArray[np.float64]


@dataclass
class Measured:
    attributes: tuple[int, ...]
    block: int
    table: Floats
    variance: float


def marginal(counts: Floats, attributes: tuple[int, ...]) -> Floats:
    return counts.sum(axis=tuple(a for a in EVERY if a not in attributes))


def random_history(rng: np.random.Generator, n_blocks: int, n: int) -> list[Measured]:
    """Noisy marginals of blocks that hold 1,000 rows each; overlapping, some repeated."""
    history = []
    for _ in range(n):
        block = int(rng.integers(n_blocks))
        size = int(rng.integers(1, 4))
        attributes = tuple(sorted(rng.choice(3, size, replace=False).tolist()))
        cells = tuple(SHAPE[a] for a in attributes)
        history.append(
            Measured(attributes, block, rng.normal(50, 30, cells), float(rng.uniform(0.5, 40)))
        )
    return history


def memory_of(history: Sequence[Measured], n_blocks: int) -> ResidualMemory:
    memory = ResidualMemory(SHAPE)
    for _ in range(n_blocks):
        memory.open_block(1000)
    for m in history:
        memory.absorb(m.attributes, m.block, m.table, m.variance)
    return memory


def least_squares(weights: Floats, history: Sequence[Measured], block: int) -> tuple[float, float]:
    """Estimate and variance of ``<weights, counts>`` in one block of 1,000 rows, by brute force.

    Counts are a vector over the universe of which only the sum is known beforehand; every measured
    cell is one noisy equation. Variance is infinite where the equations do not determine the answer.
    """
    n_cells = math.prod(SHAPE)
    rows, values, precisions = [], [], []
    for m in (m for m in history if m.block == block):
        for index in np.ndindex(m.table.shape):
            cell = np.zeros(SHAPE)
            place: list[int | slice] = [slice(None)] * 3
            for attribute, value in zip(m.attributes, index, strict=True):
                place[attribute] = value
            cell[tuple(place)] = 1.0
            rows.append(cell.ravel())
            values.append(m.table[index])
            precisions.append(1.0 / m.variance)
    start = np.full(n_cells, 1000.0 / n_cells)
    # An orthonormal basis of the changes that keep the sum.
    basis = np.linalg.svd(np.ones((1, n_cells)))[2][1:].T
    q = weights.ravel() @ basis
    if not rows:
        return float(weights.ravel() @ start), 0.0 if np.allclose(q, 0.0) else math.inf
    design = np.array(rows) @ basis
    w = np.array(precisions)
    information = design.T @ (w[:, None] * design)
    inverse = np.linalg.pinv(information, rcond=1e-10, hermitian=True)
    solution = inverse @ (design.T @ (w * (np.array(values) - np.array(rows) @ start)))
    determined = np.allclose(information @ inverse @ q, q, atol=1e-8)
    estimate = float(weights.ravel() @ start + q @ solution)
    return estimate, float(q @ inverse @ q) if determined else math.inf


def queries(rng: np.random.Generator) -> list[LinearQuery]:
    """One of each kind of form: conjunction, its complement, any mask, and tables of these."""

    def some(size: int) -> npt.NDArray[np.bool_]:
        chosen = np.zeros(size, dtype=np.bool_)
        chosen[rng.choice(size, rng.integers(1, size), replace=False)] = True
        return chosen

    size = int(rng.integers(1, 4))
    attributes = tuple(sorted(rng.choice(3, size, replace=False).tolist()))
    conjunction = Predicate.conjunction({a: some(SHAPE[a]) for a in attributes})
    complement = Predicate.of_mask(attributes, ~conjunction.mask)
    anything = Predicate.of_mask(EVERY, rng.random(SHAPE) < 0.5)
    everything = Predicate.of_mask((), np.ones((), dtype=np.bool_))
    window = range(1)
    return [
        LinearQuery(conjunction, window),
        LinearQuery(complement, window),
        LinearQuery(anything, window),
        LinearQuery(everything, window, (2, 0)),
        LinearQuery(conjunction, window, (1,)),
        LinearQuery(anything, window, (2, 1)),
        LinearQuery(Predicate.of_mask((0, 2), rng.random((2, 4)) < 0.5), window, (1,)),
    ]


def masks_of(query: LinearQuery) -> list[Floats]:
    """The answers' masks over the whole universe, in the order asked."""
    shape = [n if a in query.predicate.attributes else 1 for a, n in enumerate(SHAPE)]
    whole = np.broadcast_to(query.predicate.mask.reshape(shape), SHAPE).astype(np.float64)
    masks = []
    for cell in itertools.product(*(range(SHAPE[a]) for a in query.group_by)):
        inside = np.ones(SHAPE)
        for attribute, value in zip(query.group_by, cell, strict=True):
            picked = np.zeros(SHAPE[attribute])
            picked[value] = 1.0
            inside = inside * picked.reshape([-1 if a == attribute else 1 for a in EVERY])
        masks.append(whole * inside)
    return masks


def answers(form: Form, memory: ResidualMemory, window: range) -> tuple[Floats, Floats]:
    """Values and variances of all answers; exact zeros where an answer is zero by definition."""
    view = memory.view(form.attributes, window)
    values, variances = np.zeros(form.n_answers), np.zeros(form.n_answers)
    live = slice(None) if form.live is None else form.live
    values[live] = form.values(view)
    variances[live] = variance(form.norms, view.variances)
    return values, variances


@pytest.mark.parametrize("seed", range(12))
def test_estimates_and_variances_are_those_of_generalised_least_squares(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_blocks = 3
    history = random_history(rng, n_blocks, 9)
    memory = memory_of(history, n_blocks)
    for query in queries(rng):
        if not query.group_by and query.predicate.constant is not None:
            continue
        form = form_of(query, SHAPE)
        for window in (range(1), range(1, 3), range(n_blocks)):
            values, variances = answers(form, memory, window)
            for mask, value, v in zip(masks_of(query), values, variances, strict=True):
                parts = [least_squares(mask, history, block) for block in window]
                assert v == pytest.approx(sum(part[1] for part in parts), rel=1e-6, abs=1e-9)
                if math.isfinite(v):
                    assert value == pytest.approx(
                        sum(part[0] for part in parts), rel=1e-6, abs=1e-6
                    )


def test_a_wrong_noise_variance_would_be_noticed() -> None:
    rng = np.random.default_rng(0)
    history = random_history(rng, 1, 6)
    wrong = [Measured(m.attributes, m.block, m.table, 1.1 * m.variance) for m in history[:1]]
    form = Conjunction((0,), (np.array([True, False]),))
    right = variance(form.norms, memory_of(history, 1).view((0,), range(1)).variances)
    other = variance(form.norms, memory_of(wrong + history[1:], 1).view((0,), range(1)).variances)
    assert other[0] != pytest.approx(right[0], rel=1e-3)


def test_integer_noise_on_different_residuals_is_uncorrelated_though_not_independent() -> None:
    """Exactly, over all noise of scale 1 on the four cells of a table."""
    support = np.arange(-6.0, 7.0)
    weights = np.exp(-(support**2) / 2.0)
    weights /= weights.sum()
    noise = np.stack(np.meshgrid(*[support] * 4, indexing="ij")).reshape(2, 2, -1)
    chance = np.prod(np.meshgrid(*[weights] * 4, indexing="ij"), axis=0).ravel()
    parts = spectrum(np.moveaxis(noise, -1, 0), first_axis=1, average=False)
    rows, columns = 2.0 * parts[:, 1, 0], 2.0 * parts[:, 0, 1]
    assert (chance * rows * columns).sum() == pytest.approx(0.0, abs=1e-12)
    assert (chance * (rows % 2 == 0)).sum() == pytest.approx(0.5, abs=0.01)
    assert (rows % 2 == columns % 2).all()


def test_the_order_of_measurements_does_not_matter() -> None:
    rng = np.random.default_rng(5)
    history = random_history(rng, 2, 8)
    forwards, backwards = memory_of(history, 2), memory_of(history[::-1], 2)
    for attributes in [(0,), (1, 2), EVERY]:
        one, other = (m.view(attributes, range(2)) for m in (forwards, backwards))
        np.testing.assert_allclose(one.spectrum, other.spectrum, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(one.variances, other.variances)


def test_what_was_never_measured_has_infinite_variance_and_counts_as_no_interaction() -> None:
    memory = ResidualMemory(SHAPE)
    memory.open_block(1000)
    memory.open_block(400)
    form = Conjunction(
        (1, 2), (np.array([True, False, False]), np.array([True, True, False, False]))
    )
    assert answers(form, memory, range(2)) == (pytest.approx([1400 / 6]), pytest.approx([math.inf]))
    memory.absorb((1, 2), 0, np.zeros((3, 4)), 1.0)
    assert np.isfinite(answers(form, memory, range(1))[1])
    assert np.isinf(answers(form, memory, range(2))[1]), "the second block is unknown"
    assert memory.variances((1, 2), range(2)).tolist()[0] == [0.0, 0.0]


def test_an_interaction_that_a_mask_does_not_have_may_stay_unknown() -> None:
    """If c then a else b: three attributes matter, yet no three-way interaction is needed."""
    a, b, c = np.ix_([0, 1], [0, 1], [0, 1])
    predicate = Predicate.of_mask(EVERY, np.where(c == 1, a == 1, b == 1))
    assert predicate.attributes == EVERY
    memory = ResidualMemory((2, 2, 2))
    memory.open_block(100)
    for pair in [(0, 1), (0, 2), (1, 2)]:
        memory.absorb(pair, 0, np.full((2, 2), 25.0), 2.0)
    form = form_of(LinearQuery(predicate, range(1)), (2, 2, 2))
    view = memory.view(EVERY, range(1))
    assert math.isinf(view.variances[-1])
    assert np.isfinite(variance(form.norms, view.variances)).all()


def test_a_view_does_not_change_under_its_reader() -> None:
    memory = ResidualMemory(SHAPE)
    memory.open_block(10)
    memory.absorb((0,), 0, np.array([4.0, 6.0]), 1.0)
    view = memory.view((0,), range(1))
    before = view.spectrum.copy()
    memory.absorb((0,), 0, np.array([9.0, 1.0]), 1.0)
    assert np.array_equal(view.spectrum, before)
    assert not np.array_equal(memory.view((0,), range(1)).spectrum, before)


def test_a_block_that_is_not_open_cannot_be_measured() -> None:
    with pytest.raises(IndexError):
        ResidualMemory(SHAPE).absorb((0,), 0, np.zeros(2), 1.0)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=50)
def test_a_conjunction_is_the_same_whether_or_not_its_mask_is_built(seed: int) -> None:
    rng = np.random.default_rng(seed)
    memory = memory_of(random_history(rng, 2, 6), 2)
    query = queries(rng)[0]
    factored = form_of(query, SHAPE)
    built = TableForm(query.predicate, (), SHAPE)
    view = memory.view(factored.attributes, range(2))
    assert isinstance(factored, Conjunction)
    np.testing.assert_allclose(factored.norms, built.norms, atol=1e-12)
    np.testing.assert_allclose(factored.values(view), built.values(view), atol=1e-7)
    mine, theirs = factored.events(view), built.events(view)
    assert theirs is not None
    np.testing.assert_allclose(mine.counts, theirs.counts, atol=1e-7)
    np.testing.assert_allclose(mine.spreads, theirs.spreads)
    counts = rng.random([SHAPE[a] for a in factored.attributes])
    np.testing.assert_allclose(factored.total(counts), built.total(counts))


def test_the_complement_of_a_conjunction_is_recognised() -> None:
    either = np.array([[True, True, True], [True, False, False]])  # a = 0 or b = 0
    form = form_of(LinearQuery(Predicate.of_mask((0, 1), either), range(1)), SHAPE)
    assert isinstance(form, Conjunction)
    assert form.complement
    assert form.total(np.ones((2, 3))) == pytest.approx([4.0])


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=30)
def test_a_spectrum_keeps_everything(seed: int) -> None:
    array = np.random.default_rng(seed).normal(size=SHAPE)
    parts = spectrum(array, average=False)
    np.testing.assert_allclose(table(parts, axes=range(3)), array, atol=1e-12)
    assert parts[0, 0, 0] == pytest.approx(array.sum())
    np.testing.assert_allclose(parts[1:, 1:, 0].sum(axis=0), 0.0, atol=1e-12)


def test_counts_of_one_predicate_are_combined_with_the_tables_block_by_block() -> None:
    belief = Belief(SHAPE)
    for n_rows in (1000, 500, 200):
        belief.open_block(n_rows)
    for block in (0, 1):
        belief.absorb_table((0,), block, np.array([300.0, 200.0]), 50.0)
    form = Conjunction((0,), (np.array([True, False]),))
    belief.absorb_count(b"key", 1, np.array([280.0]), 12.5)
    belief.absorb_count(b"key", 2, np.array([90.0]), 8.0)
    belief.absorb_count(b"key", 2, np.array([96.0]), 4.0)
    evidence = belief.evidence(form, b"key", range(3))
    # Known sums: (1000 + 300 - 200) / 2 and (500 + 300 - 200) / 2, with variance 2 * 50 / 4.
    combined = [(550.0, 25.0), ((280 / 12.5 + 300 / 25) / (1 / 12.5 + 1 / 25), 25 / 3)]
    combined.append(((90 / 8 + 96 / 4) / (1 / 8 + 1 / 4), 1 / (1 / 8 + 1 / 4)))
    assert evidence.values == pytest.approx([sum(c[0] for c in combined)])
    assert evidence.variances == pytest.approx([sum(c[1] for c in combined)])
    assert evidence.by_block() == pytest.approx([c[1] for c in combined])
    assert belief.evidence(form, b"another", range(2)).variances == pytest.approx([50.0])
    assert belief.evidence(form, b"key", range(1)).variances == pytest.approx([25.0])


def test_a_planned_measurement_does_what_was_planned() -> None:
    rng = np.random.default_rng(3)
    belief = Belief(SHAPE)
    for _ in range(2):
        belief.open_block(1000)
    for m in random_history(rng, 2, 5):
        belief.absorb_table(m.attributes, m.block, m.table, m.variance)
    query = queries(rng)[5]
    form = form_of(query, SHAPE)
    precision = np.array([0.3, 2.0])
    evidence = belief.evidence(form, query.key, range(2))
    by_table, by_count = evidence.after_table(precision), evidence.after_count(precision)
    for block, p in enumerate(precision):
        belief.absorb_count(query.key, block, np.zeros(form.n_answers), 1.0 / p)
    counted = belief.evidence(form, query.key, range(2))
    assert counted.by_block() == pytest.approx(by_count)
    other = belief.evidence(form, b"other", range(2))
    for block, p in enumerate(precision):
        cells = [SHAPE[a] for a in form.attributes]
        belief.absorb_table(form.attributes, block, np.zeros(cells), 1.0 / p)
    assert belief.evidence(form, b"other", range(2)).by_block() == pytest.approx(by_table)
    assert (other.by_block() >= by_table).all()


def test_a_table_never_beats_a_count_by_more_than_the_ratio_says() -> None:
    rng = np.random.default_rng(11)
    for _ in range(40):
        belief = Belief(SHAPE)
        belief.open_block(1000)
        for m in random_history(rng, 1, 5):
            belief.absorb_table(m.attributes, m.block, m.table, m.variance)
        belief.absorb_table(EVERY, 0, np.ones(SHAPE), 100.0)
        for query in queries(rng):
            if not query.group_by and query.predicate.constant is not None:
                continue
            form = form_of(query, SHAPE)
            evidence = belief.evidence(form, query.key, range(1))
            p = np.array([float(rng.uniform(0.001, 10.0))])
            needed = 1.0 / evidence.after_table(p) - 1.0 / evidence.by_block()
            assert p[0] >= needed[0] * evidence.table_cost_ratio() * (1 - 1e-9)


def test_a_likely_table_is_non_negative_and_agrees_with_what_is_published() -> None:
    rng = np.random.default_rng(8)
    counts = rng.poisson(40.0, SHAPE).astype(np.float64)
    counts[0, 1] = 0.0
    memory = ResidualMemory(SHAPE)
    memory.open_block(int(counts.sum()))
    for pair in [(0, 1), (0, 2), (1, 2)]:
        memory.absorb(pair, 0, marginal(counts, pair), 1e-6)
    likely = fit(memory.view(EVERY, range(1)))
    assert (likely >= 0.0).all()
    assert likely.sum() == pytest.approx(counts.sum())
    for pair in [(0, 1), (0, 2), (1, 2)]:
        np.testing.assert_allclose(marginal(likely, pair), marginal(counts, pair), atol=0.2)


def test_without_measurements_the_likely_table_is_uniform() -> None:
    memory = ResidualMemory(SHAPE)
    memory.open_block(240)
    np.testing.assert_allclose(fit(memory.view((0, 2), range(1))), np.full((2, 4), 30.0))


def test_noise_in_empty_cells_is_not_taken_for_rows() -> None:
    rng = np.random.default_rng(1)
    counts = np.zeros((30, 30))
    counts[0, 0] = 1000.0
    memory = ResidualMemory((30, 30, 2))
    memory.open_block(1000)
    memory.absorb((0, 1), 0, counts + rng.normal(0, 5, counts.shape), 25.0)
    likely = fit(memory.view(EVERY, range(1))).sum(axis=2)
    assert likely[0, 0] > 950.0


def test_the_number_of_conjunctions_is_counted_without_overflow() -> None:
    assert conjunctions_log((2, 3)) == pytest.approx(math.log(3 * 7))
    assert conjunctions_log((5000, 7)) == pytest.approx(5000 * math.log(2) + math.log(127))


def test_bars_for_all_times_are_those_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    """The bars of conditions with the same norms are worked out once, until something new is published."""
    made: list[float] = []
    work_out = Directions.bars

    def noted(directions: Directions, margin: float, failure: float) -> Floats:
        made.append(margin)
        return work_out(directions, margin, failure)

    monkeypatch.setattr(Directions, "bars", noted)
    belief, rng = Belief(SHAPE), np.random.default_rng(7)

    def bar(cell: int, margin: float = 20.0, attribute: int = 2) -> float:
        condition = np.arange(SHAPE[attribute]) == cell
        form = Conjunction((attribute,), (condition,), shape=SHAPE)
        evidence = belief.evidence(form, b"key %d" % cell, range(1))
        of_tables = belief.tables.variances((attribute,), range(1))
        directions = Directions(form.norms, of_tables, np.full((2, 1), math.inf), np.zeros(1))
        now = float(evidence.anytime(margin, 0.01)[0])
        assert now == work_out(directions, margin, 0.01)[0]
        return now

    belief.open_block(1000)
    belief.absorb_table((1, 2), 0, rng.normal(80, 5, (3, 4)), 25.0)
    first = bar(0)
    assert bar(1) == bar(2) == first
    assert made == [20.0]
    assert bar(0, 30.0) != first
    assert bar(0, attribute=1) != first
    belief.absorb_table((2,), 0, rng.normal(250, 5, 4), 25.0)
    assert bar(0) < first
    belief.absorb_count(b"key 1", 0, np.array([250.0]), 4.0)
    form = Conjunction((2,), (np.arange(4) == 1,), shape=SHAPE)
    counted = belief.evidence(form, b"key 1", range(1)).anytime(20.0, 0.01)
    assert counted[0] < bar(0)
