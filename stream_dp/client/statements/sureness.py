"""What is sure of the rows of a table that published values choose: their ranks, and whether HAVING holds.

A value is somewhere between two ends. So a comparison may hold, or not, or both are possible.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from operator import eq, ge, gt, le, lt, ne
from typing import Any, Final, TypeAlias

from stream_dp.display.figures import Ends

Truth: TypeAlias = bool | None
"""What a condition comes to; None where it is unknown, as for a missing value."""

COMPARISONS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": eq,
    "<>": ne,
    "<": lt,
    "<=": le,
    ">": gt,
    ">=": ge,
}


_STATES: Final[Mapping[str, Truth]] = {"is_true": True, "is_false": False, "is_unknown": None}

CONNECTIVES: Final = ("and", "or", "not", *_STATES)


def connected(name: str, parts: Sequence[set[Truth]]) -> set[Truth]:
    """Returns what a condition on conditions may come to, if each of them may come to any of its own."""
    if name in _STATES:
        return {truth is _STATES[name] for truth in parts[0]}
    if name == "not":
        return {None if truth is None else not truth for truth in parts[0]}
    decisive = name == "or"
    found = set[Truth]()
    if any(decisive in part for part in parts):
        found.add(decisive)
    if all((not decisive) in part for part in parts):
        found.add(not decisive)
    if any(None in part for part in parts) and all(part - {decisive} for part in parts):
        found.add(None)
    return found


def compared(name: str, one: Ends, other: Ends) -> set[Truth]:
    """Returns what a comparison may come to for values between these ends."""
    if name in ("=", "<>"):
        meet = one[0] <= other[1] and other[0] <= one[1]
        alike = one == other and one[0] == one[1]
        equal = {alike} if alike or not meet else {True, False}
        return {same is (name == "=") for same in equal}
    holds = COMPARISONS[name]
    return {holds(one[0], other[1]), holds(one[1], other[0])}


def ranks(ends: Sequence[Ends], members: Collection[int]) -> list[tuple[int, int]]:
    """Returns the least and the largest rank that each value may have, from the largest value on.

    Args:
        ends: The ends of each value. Two values differ for sure if these do not meet.
        members: The positions of the values that surely count. All others may or may not.
    """
    lows = sorted(ends[index][0] for index in members)
    highs = sorted(high for _, high in ends)
    return [
        (1 + len(lows) - bisect_right(lows, high), len(ends) - bisect_left(highs, low))
        for low, high in ends
    ]


def rank_in_words(rank: tuple[int, int], n: int, limit: int | None) -> str:
    """Says which rank a row has.

    Args:
        rank: The least and the largest rank that it may have.
        n: The number of rows that may have a rank.
        limit: The number of first rows that are shown. None where rows are left out before these.
    """
    first, last = rank
    if n > 1 and rank == (1, n):
        return "cannot be told apart"
    said = f"{first}" if first == last else f"{first} to {last}"
    return (
        f"{said}, surely in the first {limit}" if limit is not None and last <= limit < n else said
    )
