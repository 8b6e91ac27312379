"""Rows that react to what was published: all histories of small worlds, and looks that are refused.

A *world* says from the history which row comes next. It names one slot and two contents for it, one for each
side (docs/proofs, Theorem 35).
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import random
from collections.abc import Callable, Iterator
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

import stream_dp.core
from stream_dp.core.budget.accountant import Charge
from stream_dp.core.kinds.kind_answerer import KindLook
from stream_dp.core.kinds.loss import Loss
from stream_dp.core.mechanism import Look, LookSort
from stream_dp.core.median.phase_looks import PhaseLook
from stream_dp.core.queries.query import EVERYTHING, LinearQuery
from stream_dp.core.residual.keys.key_look import KeyLook
from stream_dp.core.residual.looks.table_looks import QUERY, Part, TablesLook
from stream_dp.core.rows.blocks import Blocks
from stream_dp.core.running.tick_look import TickLook
from stream_dp.core.sparse_vector.gates import CountLook
from tests.core.running.periods import PAID, SIZES, SMALL, plan_of, published

History = tuple[int, ...]
World = Callable[[History], int]
"""Says from the history whether the row comes now, and with which of its two contents on which side."""

# ---------------------------------------------------------------- sort (i): ticks with Gaussian noise

PLAN = plan_of(PAID, ticks=SMALL)
"""Noise of scale 4, which is a quarter of what would hide a row well."""

ORDER = 4.0


def moved(came: int, by: int) -> list[int]:
    """By how much each tick's number moves if a row comes in one of them, by the looks themselves."""
    counts = np.zeros((3, 1), dtype=np.int64)
    counts[came] = by
    return [int(one) for one in published(PLAN, counts)[:, 0]]


MOVED = {(came, by): moved(came, by) for came in range(3) for by in (1, -1)}
REACH = np.arange(-54, 55)
WEIGHTS = np.exp(-np.square(REACH / 4.0) / 2)


def moment(shift: int) -> float:
    """The mean of (p/q)^ORDER under q, of one number that is moved on side p."""
    above = np.exp(-ORDER * np.square((REACH - shift) / 4.0) / 2)
    below = np.exp((ORDER - 1) * np.square(REACH / 4.0) / 2)
    return float((above * below).sum() / WEIGHTS.sum())


MOMENT = {shift: moment(shift) for shifts in MOVED.values() for shift in (0, *shifts)}


def divergence(world: World) -> float:
    """The Rényi divergence of all that is published, over all histories.

    Args:
        world: Says from what ticks published whether the row comes now, and whether it then satisfies the
            condition on side p (1) or on side q (-1), and on the other one not. 0 lets it wait.
    """
    law = [(int(x), w) for x, w in zip(REACH, WEIGHTS / WEIGHTS.sum(), strict=True) if w > 1e-13]

    def of(history: History) -> float:
        tick = len(history)
        if tick == 3:
            return 1.0
        if by := world(history):
            return math.prod(MOMENT[shift] for shift in MOVED[tick, by][tick:])
        return sum(weight * of((*history, x)) for x, weight in law)

    return math.log(of(())) / (ORDER - 1)


def comes_at(tick: int) -> World:
    return lambda history: int(len(history) == tick)


def comes_by(salt: float) -> World:
    """The row comes at some histories, and at the last tick at all others."""
    return lambda history: int(len(history) == 2 or hash((salt, history)) % 3 == 0)


def after_many(history: History) -> int:
    """The row comes after a large number, and else last, with its contents exchanged."""
    return (0, int(len(history) == 1 and history[0] > 2), -1)[len(history)]


def worlds() -> Iterator[World]:
    """Ten of them, of which seven react."""
    yield from map(comes_at, range(3))
    yield after_many
    salts = random.Random(1)
    for _ in range(6):
        yield comes_by(salts.random())


def test_no_world_makes_a_row_lose_more_than_the_price_of_its_period() -> None:
    found = [divergence(world) for world in worlds()]
    bound = ORDER * float(PLAN.rho)
    assert len(found) == 10
    assert max(found) == pytest.approx(bound, rel=1e-6)
    assert min(found) < 0.9 * bound
    assert PLAN.rho == Fraction(25, 2 * 16)


# ---------------------------------------------------------------- sort (ii): a segment that begins before

SCALES = (3.0, 5.0)
"""Of the secret of a segment, and of the noise on each of its queries."""


def laplace(scale: float, x: Any) -> Any:
    """The probability of whole numbers under the discrete Laplace law."""
    return np.exp(-np.abs(x) / scale) * math.tanh(0.5 / scale)


def stands(scale: float, limit: Any) -> Any:
    """The probability that discrete Laplace noise is below a whole number."""
    tail = np.exp(-np.abs(limit - 0.5) / scale) / (2 * math.cosh(0.5 / scale))
    return np.where(limit > 0, 1 - tail, tail)


def transcripts(world: World, side: int) -> dict[History, float]:
    """The probability of each outcome of three tests, of which the first that fails ends the segment.

    Args:
        world: Says before each test whether the slot comes: its row counts on side 1 alone (1), or on side 0
            alone (-1).
        side: The side.
    """
    secret = np.arange(-150, 151)
    found: dict[History, float] = {}

    def go(history: History, count: int, came: bool, weights: Any) -> None:
        if len(history) == 3 or (history and history[-1] == 0):
            found[history] = float(weights.sum())
            return
        if not came and (by := world(history)):
            count, came = count + int(by == (1 if side else -1)), True
        chance = stands(SCALES[1], 2 + secret - count)
        go((*history, 1), count, came, weights * chance)
        go((*history, 0), count, came, weights * (1 - chance))

    go((), 0, False, laplace(SCALES[0], secret))
    return found


@pytest.mark.parametrize("choices", list(product((0, 1, -1), repeat=3)))
def test_a_pure_segment_that_begins_before_the_row_keeps_its_epsilon(
    choices: tuple[int, int, int],
) -> None:
    """Whenever the row comes, and also where it comes only after a test that stood."""
    epsilon = 1 / SCALES[0] + 2 / SCALES[1]
    for late in (False, True):

        def world(history: History, late: bool = late) -> int:
            return 0 if late and not history else choices[len(history)]

        zero, one = transcripts(world, 0), transcripts(world, 1)
        assert zero.keys() == one.keys()
        assert sum(one.values()) == pytest.approx(1.0)
        ratios = [abs(math.log(one[history] / zero[history])) for history in one]
        assert max(ratios) <= epsilon
        # Each row comes to something, so that there is something to keep.
        assert max(ratios) > 0.1 or not any(world((1,) * n) for n in range(3))


# ---------------------------------------------------------------- sort (iii): a delta, before the seal

BAD = Fraction(1, 2 * 10**9)
"""The delta of each block's look. The promise is twice as much."""


def shown(blocks: int, *, begins_before: bool) -> Fraction:
    """The probability that a row is shown by the bad coin of its block, if a world chooses the block.

    Each block's look shows the block if its coin is bad. Anyone who sees coins before blocks are sealed waits
    for a bad one.
    """
    found = Fraction(0)
    for coins in product((False, True), repeat=blocks):
        weight = math.prod(BAD if bad else 1 - BAD for bad in coins)
        chosen = next((at for at, bad in enumerate(coins) if begins_before and bad), blocks - 1)
        found += weight * coins[chosen]
    return found


def test_a_delta_before_the_seal_would_add_up_over_blocks() -> None:
    for blocks in (1, 3, 6):
        assert shown(blocks, begins_before=False) == BAD
        assert shown(blocks, begins_before=True) == 1 - (1 - BAD) ** blocks
    assert float(1 - (1 - BAD) ** 3650) == pytest.approx(1.8e-6, rel=0.02)
    assert float(1 - (1 - BAD) ** 3650) > 1000 * 2 * BAD


def test_bounded_divergence_for_fixed_rows_is_not_enough() -> None:
    """A coin that is bad with 1e-9, and then a bit with odds e^1.136, has less than the rho of a line."""
    bad, odds = 1e-9, 1.136
    right, wrong = 1 / (1 + math.exp(-odds)), 1 / (1 + math.exp(odds))
    orders = 1 + np.exp(np.linspace(-7, 6, 1001))
    of_bit = np.logaddexp(
        orders * math.log(right) + (1 - orders) * math.log(wrong),
        orders * math.log(wrong) + (1 - orders) * math.log(right),
    )
    of_both = np.log1p(bad * np.expm1(of_bit))
    assert (of_both / (orders - 1) / orders).max() <= 0.014973
    of_waiting_row = (1 - (1 - bad) ** 3650) * (right - math.e * wrong)
    assert of_waiting_row == pytest.approx(3.5e-7, rel=0.02)


# ---------------------------------------------------------------- looks say their sort


class OfKind(KindLook):
    """A look of another kind with a loss."""

    def __init__(self, loss: Loss) -> None:
        self._loss, self.charges = loss, ()

    @property
    def loss(self) -> Loss:
        return self._loss

    description = property(lambda self: {})

    def take(self, noise: Any, data: Blocks) -> Any:
        raise AssertionError


def of_waiting(look: type[Look]) -> Any:
    """The same look, as if it read the rows of an open period."""
    return type("Waiting", (look,), {"reads_waiting": True, "__slots__": ()})


PURE, DELTA = Loss(Fraction(1, 10)), Loss(Fraction(1, 10), Fraction(1, 10**12))


def test_a_look_with_a_delta_at_a_block_that_is_not_sealed_is_refused() -> None:
    data = Blocks(lambda _: SIZES)
    of_waiting(OfKind)(PURE).check(data)
    TickLook(PLAN, 0, 1).check(data)
    for look in (
        of_waiting(OfKind)(DELTA),
        of_waiting(TablesLook)(QUERY, (), (), (Charge(0, 1, 1),)),
    ):
        with pytest.raises(ValueError, match="a delta"):
            look.check(data)


def test_any_other_look_at_a_block_that_is_not_sealed_is_refused() -> None:
    part = Part((0,), 0, 64)
    look = TablesLook(QUERY, (part,), ((4,),), (Charge(0, 1),))
    with pytest.raises(ValueError, match="not sealed"):
        look.check(Blocks(lambda _: SIZES))


def test_sorts_of_looks() -> None:
    assert OfKind(PURE).sort is LookSort.PURE
    assert OfKind(DELTA).sort is LookSort.SEALED
    assert KeyLook(0, 0, (), (), (), frozenset(), ()).sort is LookSort.SEALED
    assert PhaseLook(0, (), {}).sort is LookSort.SEALED
    assert TickLook(PLAN, 0, 1).sort is LookSort.COUNTS
    query = LinearQuery(EVERYTHING, range(1))
    for noise, sort in (("gaussian", LookSort.COUNTS), ("laplace", LookSort.PURE)):
        assert CountLook(query, 9, noise, Fraction(1), ()).sort is sort  # type: ignore[arg-type]


def all_looks(of: type[Look] = Look) -> Iterator[type[Look]]:
    for look in of.__subclasses__():
        if look.__module__.startswith("stream_dp."):
            yield look
        yield from all_looks(look)


def test_each_look_that_is_more_than_noisy_counts_says_another_sort() -> None:
    """A new look belongs into one of these sets, by what it publishes."""
    for module in pkgutil.walk_packages(stream_dp.core.__path__, "stream_dp.core."):
        importlib.import_module(module.name)
    names = {look.__name__: look.sort is not Look.sort for look in all_looks()}
    of_counts = "CountsLook JoinedLook PeriodsLook RowsLook StagedLook SumLook TableLook TablesLook TickLook"
    others = (
        "BatchLook BetweenLook CountLook CurvesLook KeyLook KindLook NamedLook PhaseLook PointLook QueryLook "
        "ResponsesLook StableLook StageLook"
    )
    assert {name for name, says in names.items() if not says} == set(of_counts.split())
    assert {name for name, says in names.items() if says} == set(others.split())
