"""The base release of the first phase grows once queries show that far more is asked than was expected."""

from __future__ import annotations

import copy
import math
from typing import Any

import numpy as np
import pytest

from stream_dp.core.accounting import UNITS, Charge, gaussian_rho
from stream_dp.core.blocks import Block, Blocks
from stream_dp.core.mechanism import Look, Release
from stream_dp.core.noise import grid_sigma
from stream_dp.core.outcome import Outcome
from stream_dp.core.parameters import Accuracy, Privacy
from stream_dp.core.query import LinearQuery, Predicate
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.residual.measuring import GROWTH, TablesLook
from stream_dp.core.universe import Category, Rows, Universe
from tests.noise import RoundedNoise

SIZES = (16, 3, 6, 8, 4)
UNIVERSE = Universe(
    tuple(Category(f"a{i}", tuple(map(str, range(n - 1))), other=True) for i, n in enumerate(SIZES))
)
N_ROWS = 27_000


class Host:
    """A data set whose looks are taken as the worker takes them."""

    def __init__(self, **options: Any) -> None:
        self.mechanism = make(**options)
        self.noise, self.data = RoundedNoise(1), Blocks(UNIVERSE)
        self.stored: list[int | bytes] = []
        self.growths: list[tuple[int, TablesLook]] = []
        self.open()

    @property
    def spent(self) -> int:
        return int(self.mechanism.lines.worst(range(1)).rho)

    def open(self) -> None:
        draw = np.random.default_rng(len(self.stored))
        codes = tuple(draw.integers(0, n, N_ROWS).astype(np.uint8) for n in SIZES)
        self.data.append(Block.seal(UNIVERSE, Rows(codes, None)))
        self.stored.append(N_ROWS)
        for look in self.mechanism.open_phase(N_ROWS):
            self.take(look)

    def take(self, look: Look) -> Release:
        look.reserve(self.noise)
        self.mechanism.charged(look.charges)
        release = look.take(self.noise, self.data)
        self.stored.append(release.to_bytes())
        self.mechanism.absorb(release)
        return release

    def ask(self, query: LinearQuery) -> Outcome:
        step, paid = self.mechanism.answer(query), list[Charge]()
        while isinstance(step, Look):
            paid += step.charges
            step = self.mechanism.conclude(query, step, self.take(step))
        before = self.spent
        for look in self.mechanism.growth(query, paid):
            assert isinstance(look, TablesLook)
            self.growths.append((before, look))
            self.take(look)
        return step

    def restarted(self) -> Calibrated:
        """A new process that knows only what was stored."""
        other = make()
        for entry in self.stored:
            if isinstance(entry, int):
                other.open_phase(entry)
            else:
                other.absorb(other.release_from_bytes(entry))
        other.charged((Charge(0, self.spent),))
        return other


def make(error: float = 0.02, **options: Any) -> Calibrated:
    return Calibrated(UNIVERSE, Privacy(1.0, 1e-9), Accuracy(error, 0.01), **options)


def stream(n: int, seed: int = 3) -> list[LinearQuery]:
    """Conjunctions over two or three attributes, each with about half of its cells."""
    draw = np.random.default_rng(seed)
    found = []
    for _ in range(n):
        chosen = sorted(draw.choice(len(SIZES), size=draw.integers(2, 4), replace=False).tolist())
        factors = {}
        for attribute in chosen:
            cells = np.zeros(SIZES[attribute], np.bool_)
            cells[draw.permutation(SIZES[attribute])[: max(1, SIZES[attribute] // 2)]] = True
            factors[attribute] = cells
        found.append(LinearQuery(Predicate.conjunction(factors), range(1)))
    return found


def test_few_queries_let_nothing_grow() -> None:
    it = Host()
    for query in stream(3):
        it.ask(query)
    assert it.growths == []


def test_many_queries_let_it_grow_once_and_that_is_cheaper() -> None:
    it, small = Host(), Host()
    small.mechanism._grows = False
    first = it.mechanism.base_release(N_ROWS).units
    for query in stream(700):
        it.ask(query)
        small.ask(query)
    [(before, look)] = it.growths
    growth = it.mechanism.first_growth
    assert look.reason == GROWTH
    assert before - first >= 0.05 * growth.units
    assert look.charges == (Charge(0, growth.units),)
    assert len(it.stored) < len(small.stored), "fewer looks"
    assert it.spent < small.spent, "and the line has paid less"


def test_what_it_costs_is_what_its_tables_cost_and_stays_within_the_cap() -> None:
    it = Host()
    growth = it.mechanism.first_growth
    price = sum(
        math.ceil(
            gaussian_rho(grid_sigma(step), squared_sensitivity=2) / it.mechanism.budget.rho * UNITS
        )
        for _, step in growth.tables
    )
    assert growth.units == price
    assert growth.first + growth.units <= 0.25 * UNITS


def test_a_restart_decides_the_same() -> None:
    it = Host()
    for number, query in enumerate(stream(400)):
        if number % 20 == 0:
            other, here = it.restarted(), copy.deepcopy(it.mechanism)
            paid = (Charge(0, 1),)
            assert other.growth(query, paid) == here.growth(query, paid)
        it.ask(query)
    assert it.growths


def test_a_look_that_a_crash_lost_is_not_taken_again() -> None:
    """Its charge stays, and what is spent says that it was taken."""
    it = Host()
    queries = iter(stream(400))
    while not it.growths:
        it.ask(next(queries))
    lost = it.stored.pop()
    assert isinstance(lost, bytes)
    other = it.restarted()
    other.lost(it.growths[0][1].description)
    assert other.growth(next(queries), (Charge(0, 1),)) == ()
    assert len(other.open_phase(N_ROWS)) == 1, "nor when the next phase opens"


@pytest.mark.parametrize(
    "options",
    [{"queries_per_phase": 300}, {"base_share": 0.0}, {"base_share": 0.02}],
    ids=["number named", "no base release", "share named"],
)
def test_a_definition_that_says_what_to_expect_is_taken_at_its_word(
    options: dict[str, Any],
) -> None:
    it = Host(**options)
    for query in stream(300):
        it.ask(query)
    assert it.growths == []


def test_it_does_not_grow_from_the_second_phase_on() -> None:
    it = Host()
    it.open()
    for query in stream(300):
        it.ask(query)
    assert it.growths == []


def test_it_does_not_grow_beyond_what_the_cap_allows() -> None:
    """At half the error a base release for so many queries takes more than a quarter of the line."""
    it = Host(error=0.01)
    assert it.mechanism.first_growth.first + it.mechanism.first_growth.units > 0.25 * UNITS
    for query in stream(200):
        it.ask(query)
    assert it.growths == []
