"""The residual memory against generalised least squares on the full covariance."""

from __future__ import annotations

import math

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
from stream_dp.core.rows.cell_shape import Shape
from tests.core.residual.host import where
from tests.core.residual.least_squares import (
    Counted,
    Measured,
    belief_of,
    known,
    least_squares,
    masks_of,
    queries,
    random_history,
)

SHAPE = (2, 3, 4)
GRADED = Shape((25, 3), [0])
"""The groups of the first attribute have 5 cells each, so that no variance is a bound."""
EVERY = (0, 1, 2)
PAIRS = [(0, 1), (0, 2), (1, 2)]
N_BLOCKS = 3

Floats = npt.NDArray[np.float64]
shapes = pytest.mark.parametrize("shape", [SHAPE, GRADED], ids=["cells", "levels"])


def marginal(counts: Floats, attributes: tuple[int, ...]) -> Floats:
    return counts.sum(axis=tuple(a for a in EVERY if a not in attributes))


def answers(form: Form, memory: ResidualMemory, window: range) -> tuple[Floats, Floats]:
    view = memory.view(form.attributes, window)
    return form.values(view), variance(form.norms, view.variances)


@shapes
@pytest.mark.parametrize("total_known", [True, False])
@pytest.mark.parametrize("seed", range(6))
def test_estimates_and_variances_are_those_of_generalised_least_squares(
    seed: int, total_known: bool, shape: tuple[int, ...]
) -> None:
    """Of counts that tables pin down, whether or not the number of rows is public.

    What no table says has an infinite variance: of rows some may not count, so their number is no estimate.
    """
    rng = np.random.default_rng(seed)
    history = random_history(shape, rng, 12, N_BLOCKS)
    belief, compared = belief_of(shape, history, N_BLOCKS, total_known=total_known), 0
    for query in queries(shape, rng):
        masks = masks_of(shape, query)
        for window in (range(1), range(1, 3), range(N_BLOCKS)):
            values, variances, _ = known(belief, shape, query, window)
            best, least = least_squares(shape, masks, history, window, total_known=total_known)
            np.testing.assert_allclose(variances, least, rtol=1e-6, atol=1e-9)
            sure = np.isfinite(least)
            np.testing.assert_allclose(values[sure], best[sure], rtol=1e-6, atol=1e-6)
            compared += int(np.count_nonzero(sure))
    assert compared > 5


@pytest.mark.parametrize("total_known", [True, False])
@pytest.mark.parametrize("seed", range(8))
def test_counts_are_combined_with_tables_and_go_with_the_number_of_rows_as_least_squares_say(
    seed: int, total_known: bool
) -> None:
    """A count of one predicate is one more equation. The estimated number of rows does not use it."""
    rng, covariances = np.random.default_rng(seed), 0
    history = random_history(SHAPE, rng, 9, 2)

    def best(masks: list[Floats], n_blocks: int, *counts: Counted) -> Floats:
        everything: list[Measured | Counted] = [*history, *counts]
        found = least_squares(SHAPE, masks, everything, range(n_blocks), total_known=total_known)
        return np.array(found)

    for query in queries(SHAPE, rng)[1:6]:
        belief = belief_of(SHAPE, history, 2, total_known=total_known)
        (mask,) = masks_of(SHAPE, query)
        counts = [
            Counted(mask, block, rng.normal(400, 20), rng.uniform(1.0, 60.0)) for block in (0, 1, 1)
        ]
        for count in counts:
            belief.absorb_count(query.key, count.block, np.array([count.value]), count.variance)
        values, variances, _ = known(belief, SHAPE, query, range(2))
        assert [*values, *variances] == pytest.approx(best([mask], 2, *counts).ravel(), rel=1e-6)
        other = belief.evidence(form_of(query, SHAPE), b"another", range(2)).variances
        assert other == pytest.approx(best([mask], 2)[1], rel=1e-6)
        both, of_mask, of_rows = best([mask + 1.0, mask, np.ones(SHAPE)], 1)[1]
        if not total_known and math.isfinite(both):
            kept = counts[0].variance / (counts[0].variance + of_mask)
            covariance = known(belief, SHAPE, query, range(1))[2]
            assert covariance == pytest.approx(kept * (both - of_mask - of_rows) / 2, rel=1e-6)
            covariances += 1
    assert total_known or covariances


def test_a_wrong_noise_variance_would_be_noticed() -> None:
    first, *rest = random_history(SHAPE, np.random.default_rng(0), 6)
    wrong = Measured(first.attributes, first.block, first.table, 1.1 * first.variance)
    form = Conjunction((0,), (np.array([True, False]),))
    right, other = (
        answers(form, belief_of(SHAPE, [one, *rest]).tables, range(1))[1] for one in (first, wrong)
    )
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
    history = random_history(SHAPE, np.random.default_rng(5), 8, 2)
    memories = [belief_of(SHAPE, order, 2).tables for order in (history, history[::-1])]
    for attributes in [(0,), (1, 2), EVERY]:
        one, other = (memory.view(attributes, range(2)) for memory in memories)
        np.testing.assert_allclose(one.spectrum, other.spectrum, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(one.variances, other.variances)


def test_what_was_never_measured_has_infinite_variance_and_counts_as_no_interaction() -> None:
    memory = ResidualMemory(SHAPE)
    memory.open_block(1000)
    memory.open_block(400)
    form = form_of(LinearQuery(where(SHAPE, {1: [0], 2: (0, 1)}), range(2)), SHAPE)
    assert answers(form, memory, range(2)) == (pytest.approx([1400 / 6]), pytest.approx([math.inf]))
    memory.absorb((1, 2), 0, np.zeros((3, 4)), 1.0)
    assert np.isfinite(answers(form, memory, range(1))[1])
    assert np.isinf(answers(form, memory, range(2))[1]), "the second block is unknown"
    assert memory.variances((1, 2), range(2)).tolist()[0] == [0.0, 0.0]
    with pytest.raises(AssertionError):
        memory.absorb((0,), 2, np.zeros(2), 1.0)


def test_an_interaction_that_a_mask_does_not_have_may_stay_unknown() -> None:
    """If c then a else b: three attributes matter, yet no three-way interaction is needed."""
    a, b, c = np.ix_([0, 1], [0, 1], [0, 1])
    predicate = Predicate.of_mask(EVERY, np.where(c == 1, a == 1, b == 1))
    assert predicate.attributes == EVERY
    memory = belief_of((2, 2, 2), [], n_rows=100).tables
    for pair in PAIRS:
        memory.absorb(pair, 0, np.full((2, 2), 25.0), 2.0)
    form = form_of(LinearQuery(predicate, range(1)), (2, 2, 2))
    assert math.isinf(memory.view(EVERY, range(1)).variances[-1])
    assert np.isfinite(answers(form, memory, range(1))[1]).all()


def test_a_view_does_not_change_under_its_reader() -> None:
    memory = belief_of(SHAPE, [], n_rows=10).tables
    memory.absorb((0,), 0, np.array([4.0, 6.0]), 1.0)
    view = memory.view((0,), range(1))
    before = view.spectrum.copy()
    memory.absorb((0,), 0, np.array([9.0, 1.0]), 1.0)
    assert np.array_equal(view.spectrum, before)
    assert not np.array_equal(memory.view((0,), range(1)).spectrum, before)


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=50)
def test_a_conjunction_is_the_same_whether_or_not_its_mask_is_built(seed: int) -> None:
    rng = np.random.default_rng(seed)
    memory = belief_of(SHAPE, random_history(SHAPE, rng, 6, 2), 2).tables
    query = queries(SHAPE, rng)[int(rng.integers(1, 5))]
    factored = form_of(query, SHAPE)
    built = TableForm(query.predicate, (), SHAPE)
    view = memory.view(factored.attributes, range(2))
    assert isinstance(factored, Conjunction)
    np.testing.assert_allclose(factored.norms, built.norms, atol=1e-12)
    np.testing.assert_allclose(factored.values(view), built.values(view), atol=1e-7)
    counts = rng.random([SHAPE[a] for a in factored.attributes])
    np.testing.assert_allclose(factored.total(counts), built.total(counts))
    if not factored.complement:
        mine, theirs = factored.events(view), built.events(view)
        assert theirs is not None
        np.testing.assert_allclose(mine.counts, theirs.counts, atol=1e-7)
        np.testing.assert_allclose(mine.spreads, theirs.spreads)


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


def test_a_planned_measurement_does_what_was_planned() -> None:
    rng = np.random.default_rng(3)
    belief = belief_of(SHAPE, random_history(SHAPE, rng, 5, 2), 2)
    query = queries(SHAPE, rng)[7]
    form = form_of(query, SHAPE)
    precision = np.array([0.3, 2.0])
    evidence = belief.evidence(form, query.key, range(2))
    by_table, by_count = evidence.after_table(precision), evidence.after_count(precision)
    cells = [SHAPE[a] for a in form.attributes]
    for block, p in enumerate(precision):
        belief.absorb_count(query.key, block, np.zeros(form.n_answers), 1.0 / p)
    assert belief.evidence(form, query.key, range(2)).by_block() == pytest.approx(by_count)
    other = belief.evidence(form, b"other", range(2)).by_block()
    for block, p in enumerate(precision):
        belief.absorb_table(form.attributes, block, np.zeros(cells), 1.0 / p)
    assert belief.evidence(form, b"other", range(2)).by_block() == pytest.approx(by_table)
    assert (other >= by_table).all()


def test_a_table_never_beats_a_count_by_more_than_the_ratio_says() -> None:
    rng = np.random.default_rng(11)
    for _ in range(40):
        belief = belief_of(SHAPE, random_history(SHAPE, rng, 5))
        belief.absorb_table(EVERY, 0, np.ones(SHAPE), 100.0)
        for query in queries(SHAPE, rng)[1:]:
            evidence = belief.evidence(form_of(query, SHAPE), query.key, range(1))
            p = np.array([float(rng.uniform(0.001, 10.0))])
            needed = 1.0 / evidence.after_table(p) - 1.0 / evidence.by_block()
            assert p[0] >= needed[0] * evidence.table_cost_ratio() * (1 - 1e-9)


def test_a_likely_table_is_non_negative_and_agrees_with_what_is_published() -> None:
    rng = np.random.default_rng(8)
    counts = rng.poisson(40.0, SHAPE).astype(np.float64)
    counts[0, 1] = 0.0
    memory = belief_of(SHAPE, [], n_rows=int(counts.sum())).tables
    uniform = fit(memory.view((0, 2), range(1)))
    np.testing.assert_allclose(uniform, np.full((2, 4), counts.sum() / 8))
    for pair in PAIRS:
        memory.absorb(pair, 0, marginal(counts, pair), 1e-6)
    likely = fit(memory.view(EVERY, range(1)))
    assert (likely >= 0.0).all()
    assert likely.sum() == pytest.approx(counts.sum())
    for pair in PAIRS:
        np.testing.assert_allclose(marginal(likely, pair), marginal(counts, pair), atol=0.2)


def test_noise_in_empty_cells_is_not_taken_for_rows() -> None:
    rng = np.random.default_rng(1)
    counts = np.zeros((30, 30))
    counts[0, 0] = 1000.0
    memory = belief_of((30, 30, 2), [], n_rows=1000).tables
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
