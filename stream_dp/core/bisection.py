"""Searches over whole numbers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable


def least(numbers: range, holds: Callable[[int], bool]) -> int:
    """The least of the numbers for which something holds; ``numbers.stop`` where it holds for none.

    The answer is found by bisection, in about log2(len(numbers)) calls.

    Args:
        numbers: Numbers one apart.
        holds: Must hold for every number above one for which it holds.
    """
    assert numbers.step == 1, "numbers one apart"
    return numbers.start + bisect_left(numbers, True, key=holds)
