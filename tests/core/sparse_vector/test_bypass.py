"""Weights trained by plain counts: when a query is tested, what it costs, and that answers hold."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stream_dp.core.budget.accountant import UNITS, Budget
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.outcome import Path, RefusalCode
from stream_dp.core.queries.query import NOTHING, LinearQuery, Predicate
from stream_dp.core.sparse_vector.bypass import Bypass
from stream_dp.core.sparse_vector.composition import Basic, Composition, Concentrated
from stream_dp.core.sparse_vector.gates import CountLook, CountRelease
from stream_dp.core.sparse_vector.weights import Weights, gate_scale
from tests.core.conftest import ADULT, Drive, asks, universe_of
from tests.noise import QuickNoise

PRIVACY = Privacy(1.0, 1e-9)
ACCURACY, ROWS = Accuracy(0.1, 0.001), 1_000_000
PURE, ZCDP = Basic(Privacy(1.0, 0.0)), Concentrated(PRIVACY)

HALF, EVEN = np.arange(16) < 8, np.arange(16) % 2 == 0


@pytest.fixture(params=[PURE, ZCDP], ids=["pure", "zcdp"])
def composition(request: pytest.FixtureRequest) -> Composition:
    return request.param


CELLS = universe_of(4, 4)


@pytest.fixture
def make_run() -> Callable[..., Any]:
    """``make_run(composition, mechanism=Bypass)``: on a million rows, as many in each cell."""

    def make(composition: Composition, mechanism: Any = Bypass, shares: Any = None) -> Any:
        run = Drive(CELLS, mechanism(CELLS, ACCURACY, composition), QuickNoise(3))
        run.open(np.ones(16) if shares is None else shares, ROWS)
        return run

    return make


def predicate(mask: npt.ArrayLike) -> Predicate:
    return Predicate.of_mask((0, 1), np.asarray(mask, dtype=np.bool_).reshape(4, 4))


def counted(mask: npt.ArrayLike, count: int, segment: int = 0) -> CountRelease:
    """A published count: a plain one, or one that ended a segment."""
    return CountRelease(segment, range(1), predicate(mask), True, count)


def train(mechanism: Bypass, times: int = 100) -> None:
    """Moves every cell so often: halves in turn, each counted a little larger than predicted."""
    for _ in range(times):
        for mask in (HALF, ~HALF):
            mechanism.absorb(counted(mask, 550_000))


def is_tested(mechanism: Bypass, mask: npt.ArrayLike) -> bool:
    step = mechanism.answer(LinearQuery(predicate(mask), range(1)))
    assert isinstance(step, CountLook)
    return step.gate is not None


# ---------------------------------------------------------------- prices


def test_a_query_that_bypasses_costs_one_count_and_a_repeat_nothing(
    make_run: Callable[..., Any], composition: Composition
) -> None:
    run = make_run(composition)
    run.open(np.ones(16), ROWS)
    first = run.ask(run.query(HALF))
    assert first.path is Path.MEASURED
    scale = composition.scale(ACCURACY, 2 * ROWS)
    one = composition.charge(0, composition.of_count(scale)).rho
    assert run.lines == [(one, 0), (one, 0)]
    again = run.ask(run.query(HALF))
    assert (again.path, again.count) == (Path.REPEAT, first.count)
    outside = run.ask(run.query(~HALF))
    assert (outside.path, outside.count) == (Path.REPEAT, 2 * ROWS - first.count)
    assert run.lines == [(one, 0), (one, 0)]


def test_a_test_costs_a_segment_and_its_count_once_however_many_pass(
    make_run: Callable[..., Any], composition: Composition
) -> None:
    """``3 e`` and ``e``, where ``1/e`` is the scale of ``weights``: by the exact rational."""
    run = make_run(composition)
    train(run.mechanism)
    e = 1 / gate_scale(ACCURACY, ROWS)
    share = 4 * e if composition is PURE else 5 * e**2 / Budget.of(PRIVACY).rho
    for mask in (EVEN, np.arange(16) < 4, np.arange(16) > 9):
        assert run.ask(run.query(mask)).path is Path.GATED
    assert run.lines == [(math.ceil(share * UNITS), 0)]


def test_what_cannot_pay_for_a_test_pays_for_counts_and_then_gets_a_prediction_or_nothing(
    make_run: Callable[..., Any],
) -> None:
    e = 1 / gate_scale(ACCURACY, ROWS)
    poor = Basic(Privacy(float(3 * e), 0.0))
    run = make_run(poor)
    train(run.mechanism)
    rng = np.random.default_rng(1)
    outcomes: list[Any] = []
    while not outcomes or outcomes[-1].path is Path.MEASURED:
        outcomes.append(run.ask(run.query(rng.random(16) < 0.5)))
    one = poor.charge(0, poor.of_count(poor.scale(ACCURACY, ROWS))).rho
    assert len(outcomes) - 1 == UNITS // one > 3
    assert (outcomes[-1].path, outcomes[-1].error_bar) == (Path.UNVERIFIED, None)
    strict = run.replayed(Bypass(CELLS, ACCURACY, poor, on_exhausted="refuse"))
    refused = strict.answer(run.query(rng.random(16) < 0.5))
    assert refused.code is RefusalCode.BUDGET_EXHAUSTED


@pytest.mark.parametrize(("error", "paid"), [(0.05, 353), (0.02, 141)])
def test_the_small_census_is_never_trained_within_a_pure_budget(error: float, paid: int) -> None:
    """W3, Zipf 0: it answers what Laplace counts do; 355 and 141 were measured elsewhere, with repeats."""
    run = Drive(ADULT, Bypass(ADULT, Accuracy(error, 0.001), PURE), QuickNoise(1))
    run.open(np.arange(140), 48_842)
    paths = []
    for query in asks(2):
        paths.append(run.ask(query).path)
        if paths[-1] is Path.UNVERIFIED:
            break
    assert paths.count(Path.MEASURED) == paid
    assert paths.count(Path.GATED) == 0
    assert paths.count(Path.REPEAT) <= 12


# ---------------------------------------------------------------- what is learnt


def test_a_query_is_tested_once_each_of_its_cells_was_moved_often_enough(
    make_run: Callable[..., Any],
) -> None:
    mechanism = make_run(PURE).mechanism
    train(mechanism, times=99)
    mechanism.absorb(counted(HALF, 550_000))
    assert is_tested(mechanism, np.arange(16) < 4)
    assert not is_tested(mechanism, EVEN)
    mechanism.absorb(counted(~HALF, 550_000))
    assert is_tested(mechanism, EVEN)


def test_a_count_near_its_prediction_moves_nothing_and_does_not_train(
    make_run: Callable[..., Any],
) -> None:
    """Nearer than a twentieth of the error: 5,000 of a million rows."""
    mechanism = make_run(PURE).mechanism
    train(mechanism, times=99)
    for near in (495_001, 504_999):
        mechanism.absorb(counted(EVEN, near))
        mechanism.absorb(counted(~EVEN, near))
    assert mechanism.shares == pytest.approx(np.full(16, 1 / 16))
    assert not is_tested(mechanism, [1] + [0] * 15)
    mechanism.absorb(counted(EVEN, 505_001))
    assert is_tested(mechanism, [1] + [0] * 15)
    assert not is_tested(mechanism, [0, 1] + [0] * 14)


@pytest.mark.parametrize(
    ("times", "rate"), [(0, 2 / 8), (49, 2 / 8), (50, 0.5 / 8), (99, 0.5 / 8), (100, 0.2 / 8)]
)
def test_the_rate_falls_with_the_moves_of_the_least_moved_cell(
    make_run: Callable[..., Any], times: int, rate: float
) -> None:
    mechanism = make_run(PURE).mechanism
    train(mechanism, times)
    for _ in range(60):  # one cell alone is moved far more often, forth and back
        mechanism.absorb(counted([1] + [0] * 15, ROWS))
        mechanism.absorb(counted([1] + [0] * 15, 0))
    before = mechanism.shares
    mechanism.absorb(counted(HALF, 0))
    moved = np.log(mechanism.shares / before)
    assert moved[8:] - moved[:8] == pytest.approx(np.full(8, rate))


def test_a_failed_test_asks_for_one_more_move_of_its_least_moved_cell(
    make_run: Callable[..., Any],
) -> None:
    first, second = np.arange(16) == 0, np.arange(16) == 1
    mechanism = make_run(PURE).mechanism
    train(mechanism)
    mechanism.absorb(counted(np.arange(16) < 4, 250_000, segment=1))  # as predicted after all
    assert not is_tested(mechanism, first)
    assert is_tested(mechanism, np.arange(16) >= 5)
    mechanism.absorb(counted(first | (np.arange(16) == 5), ROWS))
    assert is_tested(mechanism, first)
    assert not is_tested(mechanism, second)
    mechanism.absorb(counted(second | (np.arange(16) == 6), ROWS, segment=2))
    assert is_tested(mechanism, second)
    mechanism.absorb(CountRelease(0, range(1), NOTHING, True, 7))  # about no cell


# ---------------------------------------------------------------- answers and restarts


def test_many_queries_cost_less_than_plain_counts_and_less_than_weights_tested_from_the_start(
    make_run: Callable[..., Any], composition: Composition
) -> None:
    """Answers may be off once in a thousand; false alarms at five standard deviations."""
    shares = np.random.default_rng(2).dirichlet(np.full(16, 0.3))
    masks = np.random.default_rng(4).random((3_000, 16)) < 0.5
    run = make_run(composition, shares=shares)
    missed = 0
    for mask in masks:
        query = run.query(mask)
        outcome = run.ask(query)
        assert outcome.error_bar == ACCURACY.error
        missed += abs(outcome.value - run.truth(query)) > ACCURACY.error
    assert missed <= 3 + 5 * math.sqrt(3)
    one = composition.charge(0, composition.of_count(composition.scale(ACCURACY, ROWS))).rho
    (ours, _) = run.lines[0]
    assert ours < 0.8 * one * len(np.unique(masks, axis=0))
    weights = make_run(composition, Weights, shares)
    asked = 0
    while weights.lines[0][0] <= ours:
        assert weights.ask(weights.query(masks[asked])).path is not Path.UNVERIFIED
        asked += 1
    assert asked < len(masks) / 2


def test_a_restart_reads_back_what_was_learnt_and_begins_a_new_segment(
    make_run: Callable[..., Any],
) -> None:
    run = make_run(PURE, shares=np.random.default_rng(2).dirichlet(np.full(16, 0.3)))
    rng = np.random.default_rng(5)
    for _ in range(1_000):
        run.ask(run.query(rng.random(16) < 0.5))
    replayed = run.replayed(Bypass(CELLS, ACCURACY, PURE))
    assert np.array_equal(replayed.shares, run.mechanism.shares)
    assert replayed.spent(0) == run.mechanism.spent(0)
    tested = 0
    for _ in range(100):
        query = run.query(rng.random(16) < 0.5)
        here, there = run.mechanism.answer(query), replayed.answer(query)
        if not isinstance(here, CountLook):
            assert here == there
            continue
        assert (here.gate is None) == (there.gate is None)
        if here.gate is not None:
            tested += 1
            assert there.gate.number == here.gate.number + 1
            assert (len(here.charges), len(there.charges)) == (0, 1)
        else:
            assert here == there
    assert tested


def test_a_lost_count_keeps_its_charge_and_teaches_nothing(make_run: Callable[..., Any]) -> None:
    run = make_run(PURE)
    run.lose(run.query(HALF))
    (paid, _) = run.lines[0]
    assert run.mechanism.shares == pytest.approx(np.full(16, 1 / 16))
    assert run.ask(run.query(HALF)).path is Path.MEASURED
    assert run.lines == [(2 * paid, 0)]


def test_a_lost_test_keeps_its_charge_and_ends_its_segment(make_run: Callable[..., Any]) -> None:
    run = make_run(PURE)
    train(run.mechanism)
    run.lose(run.query(EVEN))
    (paid, _) = run.lines[0]
    assert run.ask(run.query(EVEN)).path is Path.GATED
    assert run.lines == [(2 * paid, 0)]
