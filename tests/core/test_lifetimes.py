"""How many rows of each person count: the rule for life against a slow copy of it, and broken ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from stream_dp.core.budget.parameters import Unit
from stream_dp.core.rows.lifetime_slots import allowances, allowances_of_slots
from tests.waiting import PATIENCE_S

NOBODY = bytes(12)


def person(number: int) -> bytes:
    return number.to_bytes(12, "big")


def array(digests: list[bytes]) -> np.ndarray:
    return np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 12)


def numbers(*values: int) -> np.ndarray:
    return np.array(values, dtype=np.int64)


def slowly(slots: int, before: int, unit: Unit) -> int:
    """The largest number of rows that fits, by trying."""
    rows = range(unit.rows_per_phase + 1)
    return max(c for c in rows if c <= slots and (c == 0 or before + c * c <= unit.squares))


@pytest.mark.parametrize(("k", "phases"), [(1, 1), (1, 12), (2, 1), (3, 2), (4, 12), (16, 1)])
def test_the_largest_number_of_rows_that_fits_counts(k: int, phases: int) -> None:
    unit = Unit(k, phases, lifetime=True)
    every = list(product(range(k + 2), range(unit.squares + 3)))
    slots, before = numbers(*(n for n, _ in every)), numbers(*(b for _, b in every))
    expected = [slowly(n, b, unit) for n, b in every]
    assert allowances(slots, before, unit).tolist() == expected


def test_the_square_root_is_exact_at_every_square() -> None:
    unit = Unit(255, 1, lifetime=True)
    for root in range(1, 256):
        for room, expected in ((root * root, root), (root * root - 1, root - 1)):
            found = allowances(numbers(1_000), numbers(unit.squares - room), unit)
            assert found.tolist() == [expected]


def test_slots_have_the_allowance_of_their_person() -> None:
    unit = Unit(2, 3, lifetime=True)
    digests = array([person(7), NOBODY, person(3), person(7), person(7), person(2**90), NOBODY])
    before = numbers(0, 0, 8, 0, 0, 12, 0)
    assert allowances_of_slots(digests, before, unit).tolist() == [2, 0, 1, 2, 2, 0, 0]
    assert allowances_of_slots(array([]), numbers(), unit).tolist() == []


def test_persons_whose_digests_differ_in_one_byte_are_two() -> None:
    unit = Unit(2, 3, lifetime=True)
    for at in range(12):
        other = bytearray(person(2**95 + 5))
        other[at] ^= 1
        found = allowances_of_slots(array([person(2**95 + 5), bytes(other)]), numbers(0, 0), unit)
        assert found.tolist() == [1, 1]


@pytest.mark.timeout(PATIENCE_S)
def test_a_million_slots_are_chosen_without_a_loop_over_them() -> None:
    noise = np.random.default_rng(1)
    digests = noise.integers(0, 256, (50_000, 12), dtype=np.uint8)
    digests = digests[noise.integers(0, 50_000, 1_000_000)]
    found = allowances_of_slots(
        digests, np.zeros(1_000_000, dtype=np.int64), Unit(4, 3, lifetime=True)
    )
    assert found.min() >= 1
    assert found.max() == 4


# Lives ------------------------------------------------------------------------------------------

Rule = Callable[[int, int, Unit], tuple[int, int]]
"""From the slots, the units before and the promise: the rows that count, and the units after."""


def rule(slots: int, before: int, unit: Unit) -> tuple[int, int]:
    rows = int(allowances(numbers(slots), numbers(before), unit)[0])
    return rows, before + rows * rows


def by_rows(slots: int, before: int, unit: Unit) -> tuple[int, int]:
    rows = slowly(slots, before, unit)
    return rows, before + rows


def forgotten(slots: int, before: int, unit: Unit) -> tuple[int, int]:
    return slowly(slots, 0, unit), 0


def one_too_many(slots: int, before: int, unit: Unit) -> tuple[int, int]:
    rows = min(slots, unit.rows_per_phase, math.isqrt(max(unit.squares - before, 0)) + 1)
    return rows, before + rows * rows


def worst_life(counts: Rule, unit: Unit, phases: int) -> int:
    """The largest sum of squares of any life, with 0 to k + 1 rows in each of so many phases."""
    worst = 0
    for life in product(range(unit.rows_per_phase + 2), repeat=phases):
        before = squares = 0
        for slots in life:
            rows, before = counts(slots, before, unit)
            squares += rows * rows
        worst = max(worst, squares)
    return worst


@pytest.mark.parametrize(("k", "phases"), [(1, 2), (2, 1), (2, 2), (3, 1)])
def test_nobody_ever_uses_more_than_a_lifetime(k: int, phases: int) -> None:
    unit = Unit(k, phases, lifetime=True)
    assert worst_life(rule, unit, 5) == unit.squares, "and some use all of it"


@pytest.mark.parametrize("broken", [by_rows, forgotten, one_too_many])
def test_broken_rules_use_more(broken: Rule) -> None:
    unit = Unit(2, 2, lifetime=True)
    assert worst_life(broken, unit, 5) > unit.squares
