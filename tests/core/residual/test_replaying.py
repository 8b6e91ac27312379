"""A replay finds the release that is worth most for what was asked, and for nothing that it was fitted to."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import product
from math import comb, log, prod, sqrt

import numpy as np
import pytest

from stream_dp.core.budget.accountant import UNITS, Budget
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.queries.query import LinearQuery
from stream_dp.core.residual.base_release import replay
from stream_dp.core.residual.base_release.base_plan import NOTHING, base_plan
from stream_dp.core.residual.base_release.demand import Demand
from stream_dp.core.residual.base_release.expected_queries import ANYTHING
from stream_dp.core.residual.base_release.replay import Choice, Replay
from stream_dp.core.residual.calibrated_settings import LARGEST
from stream_dp.core.residual.plan.promise import Promise
from tests.core.residual.host import halves

SIZES = (8, 4, 6, 5)
MOST = int(LARGEST * UNITS)


class Bench:
    """A replay over a demand of its own, with ``n_rows`` rows a phase at an error of 2%."""

    def __init__(self, n_rows: int = 6_000, error: float = 0.02) -> None:
        budget, accuracy = Budget.of(Privacy(1.0, 1e-9)), Accuracy(error, 0.01)
        promise = Promise(SIZES, budget, accuracy)
        self.n_rows, self.demand = n_rows, Demand(promise.axes)
        today = base_plan(promise.axes, ANYTHING, promise.terms)
        self.replay = Replay(promise, today, 1.2, self.demand, lambda *_: 1.0)

    def ask(self, queries: Iterable[LinearQuery], phase: int, error: float = 1.0) -> None:
        for query in queries:
            self.demand.note(query, phase, error)

    def choice(self, n_phases: int) -> Choice:
        return self.replay.choice(self.n_rows, n_phases, MOST, phase=self.demand.last)

    def units(self, n_phases: int) -> int:
        return self.replay.release(self.choice(n_phases), self.n_rows, MOST).units


def queries(n: int, phase: int, *, length: int | None = 1, seed: int = 0) -> list[LinearQuery]:
    """Conjunctions on two attributes about the last phases, or about all of them."""
    draw = np.random.default_rng([seed, phase])
    window = range(0 if length is None else max(0, phase - length), phase)
    pairs = (draw.choice(len(SIZES), 2, replace=False).tolist() for _ in range(n))
    return [halves(draw, SIZES, pair, window) for pair in pairs]


def test_a_few_queries_are_not_worth_a_release() -> None:
    it = Bench()
    for phase in (1, 2, 3):
        it.ask(queries(3, phase, seed=phase), phase)
    assert it.choice(3) == Choice()
    assert it.units(3) == 0


def test_where_nothing_was_asked_it_is_what_the_definition_says() -> None:
    it = Bench()
    found = it.replay.choice(it.n_rows, 1, MOST, phase=0)
    assert found == Choice(today=True)


def test_many_queries_are_worth_a_large_one_and_where_lines_are_scarce_the_largest() -> None:
    it = Bench(2_000)
    for phase in (1, 2):
        it.ask(queries(250, phase, length=None, seed=phase), phase)
    choice = it.choice(2)
    assert choice.scarce
    assert it.units(2) > 0.8 * UNITS


def test_the_winner_does_not_depend_on_the_order_of_queries() -> None:
    found = set()
    for order in range(4):
        it, draw = Bench(3_000), random.Random(order)
        for phase in (1, 2, 3):
            asked = queries(420, phase, length=None if phase % 2 else 2, seed=phase)
            draw.shuffle(asked)
            it.ask([*asked, *asked[:order]], phase)
        found.add((it.choice(3), it.units(3)))
    assert len(found) == 1


def test_a_tile_of_each_phase_counts_once_and_a_query_that_is_always_new_m_times() -> None:
    """At the same number of queries a phase, about eight phases each: new ones are worth more in advance."""
    units = []
    for seeds in ([7] * 9, list(range(9))):
        it = Bench(5_000)
        for phase in range(1, 9):
            asked = queries(40, 9, length=8, seed=seeds[phase])  # nearly all of them different
            it.ask(asked, phase)
        rows = list(it.replay._rows(8, 8, 1.0))
        n = it.demand.total(8)
        assert {row.weight for row in rows} == {1.0}
        few, many = (sum(getattr(row, name) for row in rows) / n for name in ("few", "many"))
        units.append((few, many, it.units(8)))
    tiles, new = units
    assert tiles[:2] == (1.0, 1.0)
    assert min(new[:2]) > 7.0, "a few have come before"
    assert tiles[2] < new[2]


def test_it_is_never_judged_on_what_it_was_fitted_to() -> None:
    it = Bench()
    it.ask(queries(30, 1), 1)
    fitted = {c.fitted for c in it.replay._candidates(1)}
    assert fitted == {()}, "with one phase there is nothing to judge it on"
    it.ask(queries(30, 2), 2)
    assert {c.fitted for c in it.replay._candidates(2)} == {(), (1,)}
    it.ask(queries(30, 5), 5)
    assert {c.fitted for c in it.replay._candidates(5)} == {(), (2,)}
    assert {c.fitted for c in it.replay._candidates(2)} == {()}, "nor on an older phase"


def test_a_query_of_a_smaller_error_is_worth_more() -> None:
    units = []
    for error in (1.0, 0.5):
        it = Bench(20_000)
        for phase in (1, 2):
            it.ask(queries(120, phase, seed=phase), phase, error)
        units.append(it.units(2))
    assert units[0] < units[1]


def test_a_release_never_costs_more_than_it_may() -> None:
    it = Bench(2_000)
    for phase in (1, 2):
        it.ask(queries(250, phase, seed=phase), phase)
    for most in (0, UNITS // 10, UNITS // 3, MOST):
        for choice in (it.choice(2), Choice(today=True), Choice(share=0.9), Choice(fitted=(1, 2))):
            assert it.replay.release(choice, it.n_rows, most).units <= most
    assert it.replay.release(Choice(), it.n_rows, MOST) == NOTHING


def test_what_a_replay_says_of_a_line_is_what_paying_one_by_one_comes_to() -> None:
    """A second computation: they pay in a random order while the line lasts, in the mean over many orders."""
    it, draw = Bench(3_000), random.Random(1)
    it.ask(queries(80, 1), 1)
    rows = list(it.replay._rows(1, 1, 1.0))
    needs = [0.0 if i % 3 == 0 else np.inf for i in range(len(rows))]
    asked = [row for i, row in enumerate(rows) if i % 3]
    for line in (100.0, 10_000.0):
        of_line = line * rows[0].asked.price
        answered, spent = replay._replayed(rows, needs, of_line, 0.25)
        kept, orders = 0.0, 200
        for _ in range(orders):
            left = 0.75
            for row in draw.sample(asked, len(asked)):
                each = row.asked.price / row.phases / of_line * row.many
                kept, left = kept + row.weight * min(1.0, left / each), max(0.0, left - each)
        free = sum(row.weight for row in rows[::3])
        assert answered == pytest.approx(free + kept / orders, rel=0.05)
        paid = sum(row.asked.price / row.phases / of_line * row.few for row in asked)
        assert spent == pytest.approx(min(1.0, 0.25 + paid))
    dear = replay._replayed(rows, needs, 0.1 * min(row.asked.price for row in rows) / 12, 0.25)
    assert dear == (pytest.approx(free), pytest.approx(1.0)), "no line can pay for the others"


def test_the_best_of_a_sample_is_nearly_the_best_of_all() -> None:
    """Theorem 31, by enumeration: F candidates that answer each query or not, n draws from one law."""
    n, eta = 12, 0.05
    chances = (0.35, 0.5, 0.6)
    bound = 2.0 * sqrt(log(2.0 * len(chances) / eta) / (2.0 * n))
    failed = narrow = 0.0
    for counts in product(range(n + 1), repeat=len(chances)):
        weight = prod(
            comb(n, k) * p**k * (1 - p) ** (n - k) for k, p in zip(counts, chances, strict=True)
        )
        winner = max(range(len(chances)), key=lambda i: counts[i])
        lost = max(chances) - chances[winner]
        failed += weight * (lost > bound)
        narrow += weight * (lost > bound / 6.0)
    assert failed <= eta
    assert narrow > eta, "and with a sixth of the bound it would not hold"
