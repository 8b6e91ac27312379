"""Fresh counts with an exact cache: what they cost, by figures measured elsewhere, and how right they are."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from stream_dp.core.baselines.fresh_counts import FreshCounts
from stream_dp.core.budget.accountant import UNITS, Budget, Charge
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.mechanism import Mechanism
from stream_dp.core.outcome import Answered, Path, RefusalCode, Refused
from stream_dp.core.queries.query import EVERYTHING, LinearQuery
from stream_dp.core.randomness.noise_sources import NoiseSource
from stream_dp.core.sparse_vector.composition import Basic, Composition, Concentrated
from stream_dp.core.sparse_vector.gates import CountLook
from stream_dp.errors import InvalidDefinition
from tests.core.conftest import ADULT, Drive, asks, universe_of
from tests.noise import QuickNoise

PURE, PRIVACY = Privacy(1.0, 0.0), Privacy(1.0, 1e-9)
ADULT_ROWS, COVID_ROWS = 48_842, 1_008_532
COMPOSITIONS: list[Composition] = [Basic(PURE), Concentrated(PRIVACY)]


@pytest.fixture(params=COMPOSITIONS, ids=["laplace", "gaussian"])
def composition(request: pytest.FixtureRequest) -> Composition:
    return request.param


# ---------------------------------------------------------------- figures


def distinct(asks: float, kinds: int) -> float:
    """Expected distinct ones among so many draws of equally likely kinds."""
    return -kinds * math.expm1(asks * math.log1p(-1.0 / kinds))


@pytest.mark.parametrize(
    ("composition", "error", "paid", "reference"),
    [
        (COMPOSITIONS[0], 0.05, 353, 355),
        (COMPOSITIONS[0], 0.02, 141, 141),
        (COMPOSITIONS[1], 0.02, 2639, 2743),
    ],
)
def test_the_small_census_answers_as_many_asks_as_measured_elsewhere(
    composition: Composition, error: float, paid: int, reference: int
) -> None:
    """W3, Zipf 0, the whole stream. How many asks repeat is chance: within five standard deviations."""
    run = Drive(ADULT, FreshCounts(ADULT, Accuracy(error, 0.001), composition), QuickNoise(1))
    run.open(np.ones(140), ADULT_ROWS)
    paths = []
    for query in asks(2):
        outcome = run.ask(query)
        if isinstance(outcome, Refused):
            break
        paths.append(outcome.path)
    assert outcome.code is RefusalCode.BUDGET_EXHAUSTED
    assert paths.count(Path.MEASURED) == paid
    repeats = len(paths) - paid
    assert abs(repeats - (reference - paid)) <= 5 * math.sqrt(max(reference - paid, 1))
    assert run.mechanism.spent(0) == pytest.approx(1.0, abs=0.01)


def test_the_small_census_at_five_hundredths_pays_for_22197_asks_of_gaussian_noise() -> None:
    """W3, Zipf 0, alpha .05: by its price and the expected number of repeats."""
    composition = Concentrated(PRIVACY)
    scale = composition.scale(Accuracy(0.05, 0.001), ADULT_ROWS)
    paid = UNITS // composition.charge(0, composition.of_count(scale)).rho
    assert distinct(22_197, 35_433) == pytest.approx(paid, rel=0.002)
    assert distinct(22_197 * 1.05, 35_433) > 1.01 * paid


@pytest.mark.parametrize(
    ("composition", "loss"),
    [(Basic(Privacy(10.0, 0.0)), 4.10), (Concentrated(PRIVACY), 0.059)],
)
def test_the_static_workload_costs_what_was_measured_elsewhere(
    composition: Composition, loss: float
) -> None:
    """W1, Zipf 0: 70,000 asks of 34,425 conjunctions over a million rows."""
    scale = composition.scale(Accuracy(0.05, 0.001), COVID_ROWS)
    price = composition.charge(0, composition.of_count(scale)).rho
    spent = Charge(0, round(price * distinct(70_000, 34_425)))
    assert composition.epsilon(spent) == pytest.approx(loss, rel=0.01)


@pytest.mark.parametrize(
    ("composition", "loss"),
    [(Basic(PURE), 0.123), (Concentrated(PRIVACY), 0.0056)],
)
def test_the_growing_workload_costs_its_oldest_row_what_was_measured_elsewhere(
    composition: Composition, loss: float
) -> None:
    """W2: 200 fresh queries after each of 50 blocks, on everything so far; charges only."""
    mechanism = FreshCounts(ADULT, Accuracy(0.05, 0.001), composition)
    for phase in range(50):
        mechanism.open_phase(COVID_ROWS)
        charges = mechanism.quote(LinearQuery(EVERYTHING, range(phase + 1))).charges
        mechanism.charged(tuple(Charge(c.block, 200 * c.rho) for c in charges))
    assert mechanism.spent(0) == pytest.approx(loss, rel=0.02)
    assert mechanism.spent(49) < mechanism.spent(0) / 20


# ---------------------------------------------------------------- answers


def draws(
    composition: Composition, noise: NoiseSource, run: Any, size: int
) -> np.ndarray[Any, Any]:
    """What looks add to the exact count."""
    query = run.query(np.arange(6) < 2)
    mechanism = FreshCounts(run.universe, Accuracy(0.05, 0.1), composition)
    mechanism.open_phase(6_000)
    step = mechanism.answer(query)
    assert isinstance(step, CountLook)
    return np.array([step.take(noise, run.data).noisy_count for _ in range(size)]) - 2_000


def test_a_count_misses_as_often_as_allowed_and_not_with_a_scale_one_tenth_off(
    composition: Composition,
) -> None:
    """The share of looks off by more than the error; an exact binomial test, false alarms at 1e-6 each.

    Laplace noise of that price misses ``beta`` of all; so does Gaussian noise.
    """
    universe = universe_of(2, 3)
    run = Drive(universe, FreshCounts(universe, Accuracy(0.5, 0.5), composition), QuickNoise(1))
    run.open(np.ones(6), 6_000)

    def pvalue(factor: float) -> float:
        noise = draws(composition, QuickNoise(5, factor), run, 8_000)
        misses = int(np.count_nonzero(np.abs(noise) > 300))
        return float(stats.binomtest(misses, len(noise), 0.1).pvalue)

    assert pvalue(1.0) > 1e-6
    assert pvalue(1.1) < 1e-6
    assert pvalue(0.9) < 1e-6


def test_a_repeat_and_what_it_leaves_out_are_the_same_answer_for_nothing_after_a_restart_too(
    composition: Composition,
) -> None:
    universe, accuracy = universe_of(2, 3), Accuracy(0.05, 0.01)
    run = Drive(universe, FreshCounts(universe, accuracy, composition), QuickNoise(3))
    for _ in range(2):
        run.open(np.arange(1, 7), 5_000)
    for mask in ([0] * 6, [1, 1, 0, 0, 0, 0], [1, 0, 0, 0, 1, 0]):
        query, mirrored = run.query(mask), run.query([1 - cell for cell in mask])
        first = run.ask(query)
        assert first.path is Path.MEASURED
        spent = list(run.lines)
        for asked, estimate in ((query, first.estimate), (mirrored, 10_000 - first.estimate)):
            again = run.ask(asked)
            assert again == Answered(estimate, 10_000, 0.05, None, 0.99, Path.REPEAT)
        assert run.lines == spent
        assert run.ask(run.query(mask, range(1))).n == 5_000
    replayed = run.replayed(FreshCounts(universe, accuracy, composition))
    assert replayed.answer(mirrored) == again
    assert replayed.spent(0) == run.mechanism.spent(0)


def test_charges_are_those_of_the_exact_scale() -> None:
    basic, concentrated = COMPOSITIONS
    scale = Fraction(1000)
    assert basic.charge(1, basic.of_count(scale)) == Charge(1, math.ceil(Fraction(UNITS, 1000)))
    rho = Budget.of(PRIVACY).rho
    assert concentrated.of_count(scale) == 1 / (2 * scale**2)
    expected = math.ceil(UNITS * concentrated.of_count(scale) / rho)
    assert concentrated.charge(2, concentrated.of_count(scale)) == Charge(2, expected)
    assert basic.of_pure(Fraction(1, 3)) == Fraction(1, 3)
    assert concentrated.of_pure(Fraction(1, 3)) == Fraction(1, 18)
    with pytest.raises(InvalidDefinition, match="delta"):
        Concentrated(PURE)


# ---------------------------------------------------------------- refusals and restarts


def test_refusals_follow_from_public_facts(composition: Composition) -> None:
    mechanism: Mechanism = FreshCounts(universe_of(2, 3), Accuracy(0.05, 0.01), composition)

    def code(asked: LinearQuery) -> RefusalCode:
        outcome = mechanism.answer(asked)
        assert isinstance(outcome, Refused)
        assert mechanism.quote(asked).outcome == outcome
        return outcome.code

    query = LinearQuery(EVERYTHING, range(1))
    assert code(query) is RefusalCode.NO_PHASE
    assert not mechanism.opens(9, 10)
    mechanism.open_phase(40)
    assert code(LinearQuery(EVERYTHING, range(2))) is RefusalCode.INVALID_QUERY
    assert code(LinearQuery(EVERYTHING, range(1), (0,))) is RefusalCode.UNSUPPORTED_KIND
    assert code(query) is RefusalCode.BUDGET_EXHAUSTED  # 40 rows are too few for this accuracy
