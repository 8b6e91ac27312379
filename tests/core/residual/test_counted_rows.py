"""Estimates, bars and margins where it is private how many rows count (docs/proofs, Theorem 21)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pytest
from scipy.special import chdtri
from scipy.stats import binomtest, norm

from stream_dp.core.budget.accountant import UNITS, Budget
from stream_dp.core.budget.parameters import Accuracy, Aim, Privacy, Target, Unit
from stream_dp.core.outcome import Answered, Path, RowsThatCount
from stream_dp.core.queries.query import EVERYTHING, LinearQuery, Predicate
from stream_dp.core.randomness.noise_sources import grid_sigma
from stream_dp.core.residual.answers.count_answers import AnswerMaker
from stream_dp.core.residual.belief.evidence import Belief, Evidence
from stream_dp.core.residual.belief.levels import Axes, grouped
from stream_dp.core.residual.belief.linear_forms import form_of, spectrum
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.calibrated_settings import CalibratedSettings
from stream_dp.core.residual.looks.counted_rows import CountedRows, RowsLook, RowsRelease
from stream_dp.core.residual.plan.aim_rule import OPENING
from stream_dp.core.residual.plan.planner import Policy, Prices
from stream_dp.core.residual.plan.targets import NO_LIMITS
from stream_dp.core.residual.public_state import PublicState
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.person_slots import DIGEST_BYTES, Slots
from stream_dp.core.rows.universe import Category, Rows, Shape, Universe
from stream_dp.lab.trial import Driven
from tests.noise import RoundedNoise

Floats = npt.NDArray[np.float64]

FLAT = Shape((2, 3, 4), [])
GRADED = Shape((25, 2), [0])
"""The groups of the first attribute have 5 cells each, so that no variance is a bound."""

N_BLOCKS = 3
SLOTS = 5000
"""Public rows of a block, which are no estimate of anything."""


@dataclass
class Measured:
    attributes: tuple[int, ...]
    block: int
    table: Floats
    variance: float


def random_history(shape: Shape, rng: np.random.Generator, n: int) -> list[Measured]:
    """Noisy tables: of overlapping attributes, at any level, of any block, some of them repeated."""
    axes, history = Axes(shape), []
    for _ in range(n):
        size = int(rng.integers(1, len(shape) + 1))
        attributes = tuple(sorted(rng.choice(len(shape), size, replace=False).tolist()))
        layout = axes.layout(attributes)
        levels = tuple(int(rng.integers(1, chain.finest + 1)) for chain in layout.chains)
        table = rng.normal(50, 30, layout.groups_at(levels))
        block, variance = int(rng.integers(N_BLOCKS)), float(rng.uniform(0.5, 40))
        history.append(Measured(attributes, block, table, variance))
    return history


def belief_of(shape: Shape, history: Sequence[Measured]) -> Belief:
    belief = Belief(shape, total_known=False)
    for _ in range(N_BLOCKS):
        belief.open_block(SLOTS)
    for m in history:
        belief.absorb_table(m.attributes, m.block, m.table, m.variance)
    return belief


def equations(shape: Shape, history: Sequence[Measured], block: int) -> tuple[Floats, Floats]:
    """Every count that was measured of a block, as an equation about all cells with noise of variance 1.

    Returns:
        Coefficients, shape (counts, cells), and right-hand sides.
    """
    units = np.eye(math.prod(shape)).reshape(*shape, -1)
    rows, values = [np.zeros((0, math.prod(shape)))], [np.zeros(0)]
    for m in (m for m in history if m.block == block):
        rest = tuple(a for a in range(len(shape)) if a not in m.attributes)
        of_cells = grouped(units.sum(axis=rest), (*m.table.shape, units.shape[-1]))
        rows.append(of_cells.reshape(m.table.size, -1) / math.sqrt(m.variance))
        values.append(m.table.ravel() / math.sqrt(m.variance))
    return np.concatenate(rows), np.concatenate(values)


def least_squares(
    shape: Shape, masks: Sequence[Floats], history: Sequence[Measured], window: range
) -> tuple[Floats, Floats]:
    """The best estimates of ``<mask, counts>``, and their variances. Nothing is known of any sum.

    The best linear unbiased estimate is the shortest combination of the equations that gives the mask.
    """
    weights = np.stack([mask.ravel() for mask in masks], axis=1)
    estimates, variances = np.zeros(len(masks)), np.zeros(len(masks))
    for block in window:
        design, values = equations(shape, history, block)
        combinations = np.linalg.lstsq(design.T, weights, rcond=1e-12)[0]
        reached = np.isclose(design.T @ combinations, weights, atol=1e-9).all(axis=0)
        estimates += values @ combinations
        variances += np.where(reached, np.square(combinations).sum(axis=0), math.inf)
    return estimates, variances


def masks_of(shape: Shape, query: LinearQuery) -> list[Floats]:
    """The answers' masks over the whole universe, in the order asked."""
    own = [n if a in query.predicate.attributes else 1 for a, n in enumerate(shape)]
    whole = np.broadcast_to(query.predicate.mask.reshape(own), shape)
    masks = []
    for cell in itertools.product(*(range(shape[a]) for a in query.group_by)):
        mask = whole.astype(np.float64)
        for attribute, value in zip(query.group_by, cell, strict=True):
            index: list[slice | npt.NDArray[np.intp]] = [slice(None)] * len(shape)
            index[attribute] = np.flatnonzero(np.arange(shape[attribute]) != value)
            mask[tuple(index)] = 0.0
        masks.append(mask)
    return masks


def queries(shape: Shape, rng: np.random.Generator) -> list[LinearQuery]:
    """Conjunctions, their complements, any masks, tables of these, and the number of rows itself."""

    def some(size: int) -> npt.NDArray[np.bool_]:
        chosen = np.zeros(size, dtype=np.bool_)
        chosen[rng.choice(size, rng.integers(1, size), replace=False)] = True
        return chosen

    every, window = tuple(range(len(shape))), range(1)
    one = Predicate.conjunction({0: some(shape[0])})
    two = Predicate.conjunction({0: some(shape[0]), 1: some(shape[1])})
    anything = Predicate.of_mask(every, rng.random(shape) < 0.5)
    return [
        LinearQuery(EVERYTHING, window),
        LinearQuery(one, window),
        LinearQuery(one.complement, window),
        LinearQuery(two, window),
        LinearQuery(two.complement, window),
        LinearQuery(anything, window),
        LinearQuery(EVERYTHING, window, (1, 0)),
        LinearQuery(two.complement, window, (1,)),
        LinearQuery(anything, window, (0,)),
    ]


def known(
    shape: Shape, belief: Belief, query: LinearQuery, window: range
) -> tuple[Floats, Floats, Floats]:
    """Values, variances, and covariances with the estimated number of rows, of all answers.

    They are exact zeros where an answer is zero by definition.
    """
    form = form_of(query, shape)
    evidence = belief.evidence(form, query.key, window)
    found = np.zeros((3, form.n_answers))
    live = slice(None) if form.live is None else form.live
    covariances = evidence.covariances_with_total()
    found[:, live] = np.broadcast_arrays(evidence.values, evidence.variances, covariances)
    return found[0], found[1], found[2]


# ---------------------------------------------------------------- estimates


@pytest.mark.parametrize("shape", [FLAT, GRADED], ids=["cells", "levels"])
@pytest.mark.parametrize("seed", range(6))
def test_estimates_and_variances_are_those_of_generalised_least_squares(
    shape: Shape, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    history = random_history(shape, rng, 12)
    belief, compared = belief_of(shape, history), 0
    for query in queries(shape, rng):
        masks = masks_of(shape, query)
        for window in (range(1), range(1, 3), range(N_BLOCKS)):
            values, variances, _ = known(shape, belief, query, window)
            best, least = least_squares(shape, masks, history, window)
            np.testing.assert_allclose(variances, least, rtol=1e-9)
            sure = np.isfinite(least)
            np.testing.assert_allclose(values[sure], best[sure], rtol=1e-9, atol=1e-9)
            compared += int(np.count_nonzero(sure))
    assert compared > 5


@pytest.mark.parametrize("seed", range(8))
def test_counts_are_combined_with_tables_and_go_with_the_number_of_rows_as_least_squares_say(
    seed: int,
) -> None:
    """A count of one predicate is one more equation. The estimated number of rows does not use it."""
    rng = np.random.default_rng(seed)
    history = [Measured(m.attributes, 0, m.table, m.variance) for m in random_history(FLAT, rng, 5)]
    every = np.ones(FLAT)
    design, values = equations(FLAT, history, 0)
    of_rows = np.linalg.lstsq(design.T, every.ravel(), rcond=1e-12)[0]
    for query in queries(FLAT, rng)[:6]:
        belief, variance = belief_of(FLAT, history), float(rng.uniform(1.0, 60.0))
        belief.absorb_count(query.key, 0, np.array([400.0]), variance)
        (mask,) = masks_of(FLAT, query)
        scaled = mask.ravel() / math.sqrt(variance)
        with_count = np.concatenate([design, scaled[None, :]])
        combination = np.linalg.lstsq(with_count.T, mask.ravel(), rcond=1e-12)[0]
        best = combination @ np.append(values, 400.0 / math.sqrt(variance))
        found = [each.item() for each in known(FLAT, belief, query, range(1))]
        assert found[0] == pytest.approx(best, rel=1e-9)
        assert found[1] == pytest.approx(combination @ combination, rel=1e-9)
        assert found[2] == pytest.approx(combination[:-1] @ of_rows, rel=1e-9, abs=1e-9)


def norms_of(shape: Shape, query: LinearQuery) -> Floats:
    return form_of(query, shape).norms[0]


def as_it_is(shape: Shape, query: LinearQuery) -> Floats:
    return norms_of(shape, query)


def by_the_share_of_the_conjunction(shape: Shape, query: LinearQuery) -> Floats:
    """A complement whose empty part weighs as much as that of the conjunction."""
    return norms_of(shape, LinearQuery(query.predicate.complement, query.window))


def without_the_empty_part(shape: Shape, query: LinearQuery) -> Floats:
    """As if the number of rows were public."""
    norms = norms_of(shape, query).copy()
    norms[0] = 0.0
    return norms


@pytest.mark.parametrize("shape", [FLAT, GRADED], ids=["cells", "levels"])
@pytest.mark.parametrize(
    ("norms", "right"),
    [(as_it_is, True), (by_the_share_of_the_conjunction, False), (without_the_empty_part, False)],
)
def test_the_number_of_rows_takes_part_in_the_variance_of_a_complement(
    shape: Shape, norms: Callable[[Shape, LinearQuery], Floats], *, right: bool
) -> None:
    """The broken copies state another variance for every complement that is not half of all cells."""
    rng, agreed = np.random.default_rng(1), []
    history = random_history(shape, rng, 12)
    belief = belief_of(shape, history)
    for _ in range(20):
        query = queries(shape, rng)[4]
        form = form_of(query, shape)
        assert form.conjunctive
        assert 2 * query.predicate.mask.sum() != query.predicate.mask.size
        (mask,) = masks_of(shape, query)
        view = belief.tables.view(form.attributes, range(1))
        stated = view.variance(norms(shape, query)[None, :]).item()
        (least,) = least_squares(shape, [mask], history, range(1))[1].tolist()
        if math.isfinite(least):
            agreed.append(stated == pytest.approx(least, rel=1e-9))
    assert len(agreed) > 10
    assert all(agreed) if right else not any(agreed)


def test_what_no_table_says_has_an_infinite_variance() -> None:
    """The public number of rows, of which some do not count, is no estimate."""
    belief = belief_of(FLAT, [])
    for query in queries(FLAT, np.random.default_rng(0)):
        _, variances, _ = known(FLAT, belief, query, range(1))
        assert np.isinf(variances[[mask.any() for mask in masks_of(FLAT, query)]]).all()


# ---------------------------------------------------------------- simultaneous bars

BETA = 0.2
ALARM = 1e-6
PAIR = Shape((2, 2), [])
SAME = LinearQuery(Predicate.of_mask((0, 1), np.eye(2, dtype=np.bool_)), range(1))
"""No conjunction, so its simultaneous bar is that of all predicates."""


def deviations_allowed(belief: Belief) -> float:
    """The simultaneous bar of an answer, in its own deviations."""
    evidence = belief.evidence(form_of(SAME, PAIR), SAME.key, range(1))
    maker = AnswerMaker(PAIR, Accuracy(0.1, BETA), belief, lambda _: evidence)
    answer = maker.by_variance(SAME, evidence, 1.0, Path.CERTIFIED)
    assert isinstance(answer, Answered)
    assert answer.error_bar is not None
    assert answer.error_bar_simultaneous is not None
    return answer.error_bar_simultaneous / answer.error_bar


@pytest.fixture(scope="module")
def worst() -> tuple[Floats, float]:
    """How far off published tables are for the weights on cells that their noise favours most.

    Returns:
        That in deviations, in each of many states of the memory; and the deviations that a bar allows.
    """
    rng, truth, found = np.random.default_rng(3), np.array([[40.0, 25.0], [10.0, 5.0]]), []
    exact, allowed = spectrum(truth, average=False), math.nan
    for _ in range(4000):
        belief = Belief(PAIR, total_known=False)
        belief.open_block(500)
        for attributes, variance in (((0,), 30.0), ((1,), 8.0), ((0, 1), 12.0), ((0, 1), 20.0)):
            table = truth.sum(axis=tuple({0, 1} - set(attributes)))
            noise = rng.normal(0.0, math.sqrt(variance), table.shape)
            belief.absorb_table(attributes, 0, table + noise, variance)
        view = belief.tables.view((0, 1), range(1))
        off = [
            np.square(view.spectrum[part] - exact[part]).sum() / variance
            for part, variance in zip(view.layout.slices, view.variances, strict=True)
        ]
        found.append(math.sqrt(sum(off)))
        if math.isnan(allowed):
            allowed = deviations_allowed(belief)
    return np.array(found), allowed


def test_simultaneous_bars_leave_room_for_the_error_of_the_number_of_rows(
    worst: tuple[Floats, float],
) -> None:
    """Whoever picks the worst weights passes them with half of the failure probability, and not more."""
    found, allowed = worst
    beyond = int((found > allowed).sum())
    assert binomtest(beyond, len(found), BETA / 2).pvalue > ALARM


def test_with_one_degree_of_freedom_less_they_would_be_passed_more_often(
    worst: tuple[Floats, float],
) -> None:
    """Right where the number of rows is public."""
    found, _ = worst
    beyond = int((found > math.sqrt(chdtri(3, BETA / 2))).sum())
    assert binomtest(beyond, len(found), BETA / 2, alternative="greater").pvalue < ALARM


# ---------------------------------------------------------------- the look at the number of rows

PERSONS = Budget.of(Privacy(1.0, 1e-9, Unit(2, 3)))


def test_one_look_at_the_number_of_rows_costs_a_fiftieth_of_a_line() -> None:
    look = RowsLook.at(7, Prices(PERSONS))
    (charge,) = look.charges
    assert (charge.block, charge.delta) == (7, 0)
    assert 0.95 * UNITS / 50 < charge.rho <= UNITS / 50, "scales are on a grid"
    assert look.description == {"kind": "rows", "blocks": [[7, look.step]]}


def test_margins_are_the_one_sided_quantile_of_a_tenth_of_the_failure_probability() -> None:
    """Of the looks that there are: one that a crash lost adds neither rows nor noise."""
    step = RowsLook.at(0, Prices(PERSONS)).step
    sigma = float(grid_sigma(step))
    counted = CountedRows(Accuracy(0.05, BETA))
    assert counted.at_least(range(3)) == 0.0
    counted.absorb(RowsRelease(0, step, 9000))
    counted.absorb(RowsRelease(2, step, 8000))
    assert [counted.known(block) for block in range(3)] == [True, False, True]
    z = norm.isf(BETA / 10)
    assert counted.at_least(range(1)) == pytest.approx(9000 - z * sigma)
    assert counted.at_least(range(2)) == pytest.approx(9000 - z * sigma)
    assert counted.at_least(range(3)) == pytest.approx(17_000 - z * sigma * math.sqrt(2))
    assert counted.estimate(range(3)) == (17_000.0, pytest.approx(2 * sigma**2))


@pytest.mark.parametrize("persons", [False, True])
def test_bars_of_counts_leave_a_tenth_of_the_failure_probability_to_the_number_of_rows(
    persons: bool,
) -> None:
    """Both of what openings answer, and of estimates that are as precise as the query asks."""
    left = 0.9 * BETA if persons else BETA
    budget = PERSONS if persons else Budget.of(Privacy(1.0, 1e-9))
    policy, limits = Policy(base_share=None, pacing=False), NO_LIMITS
    state = PublicState(PAIR, budget, Accuracy(0.05, BETA), policy, limits, on_exhausted="refuse")
    state.belief.open_block(SLOTS)
    if state.counted is not None:
        state.counted.absorb(RowsRelease(0, RowsLook.at(0, state.prices).step, 4000))
    n_asked, table = state.rows_at_least(range(1)), np.array([2500.0, 1500.0])
    state.belief.absorb_table((0,), 0, table, 90.0, opening=True)
    query = LinearQuery(Predicate.conjunction({0: np.array([True, False])}), range(1))
    opening = state.at_opening(query)
    assert opening is not None
    answer = state.answers.by_opening(query, opening)
    assert isinstance(answer, Answered)
    assert answer.error_bar is not None
    deviation = math.sqrt(float(opening.variances[0]))
    assert answer.error_bar * SLOTS == pytest.approx(norm.isf(left / 2) * deviation)

    # An estimate has the error asked for as its bar, where 0.35 of what is left allows it, and no longer.
    z = norm.isf(0.35 * left / 2)
    for wider, kept in ((1.001, True), (0.999, False)):
        error = wider * z * deviation / n_asked
        asked = replace(query, target=Target(share=error))
        margin = state.terms_for(asked).error
        answer = state.answers.by_promise(asked, opening, margin, Path.CERTIFIED)
        assert isinstance(answer, Answered)
        assert answer.error_bar is not None
        assert (answer.error_bar * SLOTS <= error * n_asked * (1 + 1e-6)) == kept


def test_margins_are_never_below_zero() -> None:
    counted = CountedRows(Accuracy(0.05, BETA))
    counted.absorb(RowsRelease(0, RowsLook.at(0, Prices(PERSONS)).step, -40))
    assert counted.at_least(range(1)) == 0.0


# ---------------------------------------------------------------- the rows that count, in answers

AA = LinearQuery(Predicate.conjunction({0: np.array([True, False])}), range(2))


def among(found: dict[int, int], count: float, variance: float) -> RowsThatCount:
    """What an answer about two blocks says that no table tells of: one count, and some looks at all rows."""
    belief, counted = Belief(PAIR, total_known=False), CountedRows(Accuracy(0.05, BETA))
    step = RowsLook.at(0, Prices(PERSONS)).step
    for block in range(2):
        belief.open_block(SLOTS)
        belief.absorb_count(AA.key, block, np.array([count / 2]), variance / 2)
    for block, value in found.items():
        counted.absorb(RowsRelease(block, step, value))

    def evidence(query: LinearQuery) -> Evidence:
        return belief.evidence(form_of(query, PAIR), query.key, query.window)

    maker = AnswerMaker(PAIR, Accuracy(0.05, BETA), belief, evidence)
    (known,) = maker.among(AA, evidence(AA), [count], [None], counted)
    return known


def test_a_share_reaches_to_all_ratios_that_the_bars_of_both_numbers_leave() -> None:
    """Each bar has half of the failure probability: the look decides how precise the count is."""
    known = among({0: 4000, 1: 3000}, 900.0, 400.0)
    sigma = float(grid_sigma(RowsLook.at(0, Prices(PERSONS)).step)) * math.sqrt(2)
    assert known.rows == 7000.0
    assert known.rows_bar == pytest.approx(norm.isf(BETA / 2) * sigma)
    assert known.surplus_at_most == pytest.approx(1 - (7000 - norm.isf(BETA / 10) * sigma) / 10_000)
    z, reached = norm.isf(BETA / 4), []
    for one, other in itertools.product((-1.0, 1.0), repeat=2):
        reached.append((900.0 + one * z * 20.0) / (7000.0 + other * z * sigma))
    assert known.share == pytest.approx(900 / 7000)
    assert known.share is not None
    assert known.share_bar == pytest.approx(max(abs(one - known.share) for one in reached))


@pytest.mark.parametrize("bar", [None, 120.0])
def test_a_share_of_what_bounds_alone_tell_reaches_as_far_as_both_bars(bar: float | None) -> None:
    """Bounds fail with a fifth of the failure probability, and the number of rows has the rest."""
    variance, shape = 16.0, Shape((2, 2), [])
    belief, counted = Belief(shape, total_known=False), CountedRows(Accuracy(0.05, BETA))
    belief.open_block(SLOTS)
    for attribute in range(2):
        belief.absorb_table((attribute,), 0, np.array([700.0, 300.0]), variance)

    def evidence(query: LinearQuery) -> Evidence:
        return belief.evidence(form_of(query, shape), query.key, query.window)

    first = np.array([True, False])
    both = LinearQuery(Predicate.conjunction({0: first, 1: first}), range(1))
    assert math.isinf(evidence(both).variances[0])
    maker = AnswerMaker(shape, Accuracy(0.05, BETA), belief, evidence)
    (known,) = maker.among(both, evidence(both), [400.0], [bar], counted)
    assert (known.rows, known.share) == (1000.0, 0.4)
    if bar is None:
        assert known.share_bar is None
        return
    # The mean of two sums of two counts has the variance of one count.
    off = norm.isf(0.8 * BETA / 2) * math.sqrt(variance)
    ends = (400.0 - bar) / (1000.0 + off), (400.0 + bar) / (1000.0 - off)
    assert known.share_bar == pytest.approx(max(ends[1] - 0.4, 0.4 - ends[0]))


def test_of_a_block_whose_look_was_lost_any_number_of_rows_may_count() -> None:
    known, whole = among({0: 4000}, 900.0, 400.0), among({0: 4000, 1: 0}, 900.0, 400.0)
    assert known.rows - known.rows_bar < 4000.0 < 4000.0 + SLOTS < known.rows + known.rows_bar
    assert known.rows == 4000.0 + SLOTS / 2
    assert known.share is not None
    assert known.share_bar is not None
    assert known.share - known.share_bar < 900 / (4000 + SLOTS) < 900 / 4000
    assert known.share + known.share_bar > 900 / 4000
    assert whole.rows_bar < SLOTS / 2
    nothing = among({}, 900.0, 400.0)
    assert (nothing.rows, nothing.rows_bar, nothing.share_bar) == (SLOTS, SLOTS, None)
    assert nothing.surplus_at_most == 1.0


@pytest.mark.parametrize("aim", [Aim(0.1), None], ids=["aimed", "of an error"])
def test_all_rows_that_count_are_what_the_looks_at_their_number_tell(aim: Aim | None) -> None:
    """For nothing, with the bar of what opens: a count without a condition needs no look of its own."""
    universe = Universe((Category("a", ("x", "y"), other=False),))
    privacy = Privacy(1.0, 1e-9, Unit(1, 2))
    engine = Calibrated(
        universe, privacy, Accuracy(0.05, 0.01), CalibratedSettings(base_share=0.0, aim=aim)
    )
    driven, data, n_rows, n_counted = (
        Driven(engine, RoundedNoise(5)),
        Blocks(universe),
        6_000,
        5_000,
    )
    for _ in range(2):
        ranks = np.arange(n_rows, dtype=np.uint64)
        whose = Slots(np.ones((n_rows, DIGEST_BYTES), np.uint8), ranks)
        rows = Rows((np.zeros(n_rows, dtype=np.uint8),), None, whose=whose)
        data.append(Block.seal(universe, rows, counted=np.arange(n_rows) < n_counted))
        driven.open_phase(n_rows, data)
    before = engine.lines.left(range(2)).tolist()
    outcome = driven.ask(LinearQuery(EVERYTHING, range(2)), data)
    assert isinstance(outcome, Answered)
    assert (engine.lines.left(range(2)).tolist() == before) is (aim is not None)
    if aim is not None:
        look = RowsLook.at(0, Prices(engine.state.promise.budget))
        z = norm.isf(OPENING * 0.01 / 2)
        assert outcome.error_bar is not None
        assert outcome.error_bar == pytest.approx(
            z * math.sqrt(2) * float(grid_sigma(look.step)) / (2 * n_rows)
        )
        assert abs(outcome.count - 2 * n_counted) < outcome.error_bar * 2 * n_rows
