"""What blocks must pay for the running totals of their periods, worked out once more from their ticks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import isqrt, prod
from typing import Any, Final

from stream_dp.audit.line_limits import Due, Line
from stream_dp.audit.look_facts import Look
from stream_dp.audit.numbers import Wrong, grid, whole, wholes

_MOST_TICKS: Final = 2048
_HALF: Final = 2**10


@lru_cache(maxsize=16)
def squares(ticks: int) -> tuple[int, tuple[int, ...]]:
    """What a row moves the published numbers of a period by, at the most, and each tick by itself; squared.

    docs/proofs, Theorem 36: the integer square root of the triangle of ones, with columns of one length.
    """
    if not 1 <= ticks <= _MOST_TICKS:
        raise Wrong(f"it has {ticks} ticks")
    roots = [2**40]
    for k in range(1, ticks):
        roots.append(roots[-1] * (2 * k - 1) // (2 * k))
    lengths, total = list[int](), 0
    for root in roots:
        total += root * root
        lengths.append(isqrt(total))
    longest = 0
    diagonal = list[int]()
    for column in range(ticks):
        length = lengths[ticks - 1 - column]
        entries = [(2 * _HALF * root + length) // (2 * length) for root in roots[: ticks - column]]
        longest = max(longest, sum(entry * entry for entry in entries))
        diagonal.append(entries[0] ** 2)
    return longest, tuple(diagonal)


@dataclass
class _Period:
    ticks: int
    sigma: Fraction
    moved: int  # the squared distance by which a row moves the counts of all tiles, at one tick
    due: Due
    tick: int = 0


class RunningCharges:
    """The periods of one data set whose blocks have not paid, by their numbers."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._open: dict[int, _Period] = {}
        self._begun: set[int] = set()

    def begin(self, entry: Mapping[str, Any], sizes: Sequence[int]) -> None:
        """Takes the entry that begins a period.

        Args:
            entry: The entry of the ledger.
            sizes: The cells of each attribute.

        Raises:
            Wrong: Its facts do not fit together.
        """
        number, ticks, tiles = whole(entry, "period"), whole(entry, "ticks"), entry.get("tiles")
        if number in self._begun or not isinstance(tiles, list) or not tiles:
            raise Wrong("it begins running totals a second time, or says of no tile")
        moved = 0
        for tile in tiles:
            cells = prod(sizes[attribute] for attribute in wholes(tile, "group_by"))
            if whole(tile, "answers") != cells:
                raise Wrong("a tile has another number of cells than its attributes")
            moved += self._line.table if cells > 1 else 1
        sigma = grid(entry["step"])
        due = self._due(sigma, squares(ticks)[0] * moved)
        self._begun.add(number)
        self._open[number] = _Period(ticks, sigma, moved, due)

    def tick(self, look: Look) -> None:
        """Takes a tick. One that comes again, since a crash has lost it, costs its period more.

        Raises:
            Wrong: It is not the next one of a period that has begun.
        """
        period, tick = self._open.get(whole(look, "period")), whole(look, "tick")
        if period is None or not 1 <= tick <= period.ticks or tick - period.tick not in (0, 1):
            raise Wrong("it is not the next tick of a period that has begun")
        if look.get("step") is None or grid(look["step"]) != period.sigma:
            raise Wrong("its noise is not that of its period")
        if tick == period.tick:
            again = squares(period.ticks)[1][tick - 1] * period.moved
            period.due += self._due(period.sigma, again)
        period.tick = tick

    def sealed(self, look: Look) -> Iterator[Due]:
        """Yields what a block must pay for its periods: the most, by Theorem 36 (c), or one after the other.

        Raises:
            Wrong: It names a period that has not begun, or has paid, or leaves out one of before.
        """
        numbers = wholes(look, "periods")
        if not numbers or any(number not in self._open for number in numbers):
            raise Wrong("it names a period that has not begun, or has paid")
        if any(number < max(numbers) for number in self._open.keys() - {*numbers}):
            raise Wrong("it leaves out a period of before")
        due = [self._open.pop(number).due for number in numbers]
        if self._line.unit is None:
            yield max(due, key=lambda one: one.rho)
        else:
            yield from due

    def owes(self, until: int) -> bool:
        """Whether a period that begins before a time, in minutes since 1970, has not been paid for."""
        return any(number < until for number in self._open)

    def _due(self, sigma: Fraction, square: int) -> Due:
        return self._line.due(self._line.gaussian(sigma, squared_sensitivity=square))
