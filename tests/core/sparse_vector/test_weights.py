"""Private multiplicative weights: what a segment costs, what is learnt, and that answers hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.outcome import Path, RefusalCode
from stream_dp.core.sparse_vector.composition import Basic
from stream_dp.core.sparse_vector.weights import GrowingWeights, Weights, gate_scale
from tests.core.conftest import Drive, universe_of
from tests.noise import QuickNoise

ACCURACY, ROWS = Accuracy(0.1, 0.01), 100_000


CELLS = universe_of(4, 4)


def growing(epsilon: float = 1.0) -> GrowingWeights:
    return GrowingWeights(CELLS, ACCURACY, Basic(Privacy(epsilon, 0.0)))


def test_the_scale_is_the_largest_that_misses_no_more_often_than_allowed() -> None:
    x = 0.1 * ROWS / 2 / float(gate_scale(ACCURACY, ROWS))
    missed = (0.5 + x / 4) * math.exp(-x) + math.exp(-2 * x)
    assert missed == pytest.approx(0.01, rel=1e-6)


def test_a_segment_costs_four_epsilons_however_many_queries_pass() -> None:
    run = Drive(CELLS, growing(), QuickNoise(1))
    run.open(np.ones(16), ROWS)
    half = run.query(np.arange(16) < 8)
    assert [run.ask(half).path for _ in range(5)] == [Path.GATED] * 5
    price = 4 / float(gate_scale(ACCURACY, ROWS))
    assert run.mechanism.spent(0) == pytest.approx(price, rel=1e-9)
    run.open(np.ones(16), ROWS)
    assert run.ask(run.query(np.arange(16) < 8)).path is Path.GATED
    assert run.mechanism.spent(1) == pytest.approx(price, rel=1e-9)
    assert run.mechanism.spent(0) == pytest.approx(price, rel=1e-9)


def test_it_learns_what_it_is_asked_and_answers_are_as_right_as_promised() -> None:
    """400 asks on skewed rows; five standard deviations above one miss in a hundred."""
    run, rng = Drive(CELLS, growing(), QuickNoise(2)), np.random.default_rng(3)
    shares = rng.dirichlet(np.full(16, 0.3))
    run.open(shares, ROWS)
    paths, missed = [], 0
    for _ in range(400):
        query = run.query(rng.random(16) < 0.5)
        outcome = run.ask(query)
        paths.append(outcome.path)
        missed += abs(outcome.value - run.truth(query)) > 0.1
    assert missed <= 4 + 5 * 2
    assert 0 < paths.count(Path.MEASURED) < 100
    assert paths[200:].count(Path.MEASURED) < paths[:200].count(Path.MEASURED)
    distance = np.abs(run.mechanism.shares - shares).sum()
    assert distance < np.abs(1 / 16 - shares).sum() / 2
    replayed = run.replayed(growing())
    assert np.array_equal(replayed.shares, run.mechanism.shares)


def test_a_full_line_still_gets_predictions_and_they_are_not_promised() -> None:
    run = Drive(CELLS, growing(0.001), QuickNoise(1))
    run.open([9] + [1] * 15, ROWS)
    outcome = run.ask(run.query(np.arange(16) == 0))
    assert (outcome.path, outcome.error_bar) == (Path.UNVERIFIED, None)
    assert run.lines == [(0, 0)]


def test_arrivals_mix_with_the_uniform_and_windows_are_whole() -> None:
    run = Drive(CELLS, growing(), QuickNoise(1))
    run.open([99] + [1] * 15, ROWS)
    assert run.ask(run.query(np.arange(16) == 0)).path is Path.MEASURED
    before = run.mechanism.shares
    run.open([1] * 16, ROWS)
    assert run.mechanism.shares == pytest.approx(before / 2 + 1 / 32)
    refused = run.ask(run.query(np.arange(16) == 0, range(1)))
    assert refused.code is RefusalCode.INVALID_QUERY


def test_a_lost_look_keeps_its_charge_and_the_fixed_form_opens_once() -> None:
    mechanism = Weights(CELLS, ACCURACY, Basic(Privacy(1.0, 0.0)))
    run = Drive(CELLS, mechanism, QuickNoise(1))
    run.open(np.ones(16), ROWS)
    assert not mechanism.opens(ROWS, 1)
    query = run.query(np.arange(16) < 8)
    run.lose(query)
    paid = run.lines[0][0]
    assert run.ask(query).path is Path.GATED
    assert run.lines[0][0] == 2 * paid
