"""The least number for which something holds is found wherever it is, or not at all."""

from __future__ import annotations

import operator
from functools import partial

import pytest

from stream_dp.core.bisection import least


@pytest.mark.parametrize("numbers", [range(0), range(1), range(7), range(3, 12), range(-4, 5)])
def test_it_is_the_first_that_a_walk_through_all_of_them_finds(numbers: range) -> None:
    for bound in range(numbers.start - 1, numbers.stop + 2):
        found = [n for n in numbers if n >= bound]
        expected = found[0] if found else numbers.stop
        assert least(numbers, partial(operator.le, bound)) == expected


def test_a_huge_range_takes_few_calls() -> None:
    asked: list[int] = []

    def holds(number: int) -> bool:
        asked.append(number)
        return number >= 10**15

    assert least(range(2**62), holds) == 10**15
    assert len(asked) <= 63
