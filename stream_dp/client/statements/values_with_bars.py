"""Values with half widths around them, and what operators make of them.

A half width of a computed value is the largest distance that the half widths of its parts allow, and so are
its ends. Both hold wherever all of theirs do.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from operator import add, mul, sub, truediv
from typing import Final

from stream_dp.client.statements.result_table import Value
from stream_dp.client.statements.sureness import Ends


@dataclass(frozen=True, slots=True)
class ValueWithBar:
    """A value and the half width around it: 0 for an exact value, None where it is not known.

    Attributes:
        value: The value.
        bar: The half width.
        known: The ends, where they are not just those of the bar.
        place: What a text sorts by, where it has an order of its own.
    """

    value: Value
    bar: float | None = 0.0
    known: Ends | None = None
    place: int | None = None

    @property
    def ends(self) -> Ends | None:
        """The ends that are known, or else those of the bar. A text has none."""
        if self.known is not None or self.number is None or self.bar is None:
            return self.known
        return self.number - self.bar, self.number + self.bar

    @property
    def reach(self) -> Ends:
        """The least and the largest number that the value may be."""
        return self.ends or (-math.inf, math.inf)

    @property
    def number(self) -> float | None:
        return None if self.value is None or isinstance(self.value, str) else float(self.value)


UNKNOWN: Final = ValueWithBar(None, None)
NULL: Final = ValueWithBar(None)
"""What surely has no value, such as the sum of no rows."""


def counted(value: Value, bar: float | None, n: int, ends: Ends | None = None) -> ValueWithBar:
    """Returns a count among ``n`` rows. Where only its bar is known, its ends are within these rows."""
    if ends is None and bar is not None and isinstance(value, int):
        ends = max(0.0, value - bar), min(float(n), value + bar)
    return ValueWithBar(value, bar, ends)


def bar_in_rows(share: float, count: int, n: int, bar: float | None) -> float | None:
    """Returns the half width of a count from that of its share, which also covers how it was rounded."""
    return None if bar is None else bar * n + abs(share * n - count)


def rows_in_words(rows: ValueWithBar) -> str:
    """Returns a number of rows with its bar as text."""
    bar = "any number" if rows.bar is None else f"{math.ceil(rows.bar):,}"
    return f"{rows.value:,} ± {bar}"


def total_of(estimates: Sequence[ValueWithBar]) -> ValueWithBar:
    """Returns a sum of some values."""
    return functools.reduce(lambda one, other: applied("+", [one, other]), estimates)


def independent_total_of(counts: Sequence[ValueWithBar]) -> ValueWithBar:
    """Returns a sum of cells with independent noise; rounding may add half a row of each."""
    whole = total_of(counts)
    if whole.number is None or any(each.bar is None for each in counts):
        return whole
    bar = math.sqrt(math.fsum((each.bar or 0.0) ** 2 for each in counts)) + len(counts) / 2
    bar = min(bar, whole.bar or bar)
    return replace(whole, bar=bar, known=(max(0.0, whole.number - bar), whole.number + bar))


def persons_between(whole: ValueWithBar, largest: ValueWithBar) -> ValueWithBar:
    """Returns a number of persons: the middle between the fewest and the most that there can be.

    Args:
        whole: The rows of all phases, of which one of each person counts in a phase.
        largest: The rows of one of these phases.
    """
    if whole == largest:  # there is one phase
        return whole
    if whole.number is None or largest.number is None or whole.bar is None or largest.bar is None:
        return UNKNOWN
    low, high = max(0.0, largest.number - largest.bar), whole.number + whole.bar
    value = round((low + high) / 2.0)
    return ValueWithBar(value, max(high - value, value - low), (low, high))


def applied(name: str, arguments: Sequence[ValueWithBar]) -> ValueWithBar:
    """Returns an operator's value, the largest half width that those of its arguments allow, and the ends."""
    found = _value_of(name, arguments)
    if found.value is None or found.bar is None:
        return found
    ends = _ends_of(name, [each.ends for each in arguments])
    value = found.number
    if ends is None or value is None:
        return found
    # What is rounded may lie a little beyond.
    return replace(found, known=(min(ends[0], value), max(ends[1], value)))


def _ends_of(name: str, parts: Sequence[Ends | None]) -> Ends | None:
    """Returns the ends of an operator's value; None where those of an argument are not known."""
    known = [part for part in parts if part is not None]
    if len(known) < len(parts):
        return None
    (low, high), *others = known
    if name == "neg":
        return -high, -low
    if name == "abs":
        return max(0.0, low, -high), max(abs(low), abs(high))
    if name == "round":
        return low, high
    second = others[0]
    if name == "/" and second[0] <= 0.0 <= second[1]:
        return None
    operate = {"+": add, "-": sub, "*": mul, "/": truediv}[name]
    corners = [operate(one, other) for one, other in itertools.product((low, high), second)]
    return min(corners), max(corners)


def _value_of(name: str, arguments: Sequence[ValueWithBar]) -> ValueWithBar:
    """Returns an operator's value and the largest half width that those of its arguments allow."""
    numbers = [each.number for each in arguments]
    if any(number is None for number in numbers):
        return UNKNOWN
    first, *others = [number for number in numbers if number is not None]
    is_whole = all(isinstance(each.value, int) for each in arguments)
    bars = [each.bar for each in arguments]
    if name in ("neg", "abs"):
        return ValueWithBar(
            _as_whole(abs(first) if name == "abs" else -first, is_whole=is_whole), bars[0]
        )
    second = others[0]
    if name == "round":
        rounded = round(first, int(second))
        return ValueWithBar(rounded, None if bars[0] is None else bars[0] + abs(rounded - first))
    if name == "/":
        return _quotient(first, second, bars[0], bars[1])
    value = {"+": first + second, "-": first - second, "*": first * second}[name]
    if bars[0] is None or bars[1] is None:
        return ValueWithBar(_as_whole(value, is_whole=is_whole), None)
    if name == "*":
        bar = abs(first) * bars[1] + abs(second) * bars[0] + bars[0] * bars[1]
    else:
        bar = bars[0] + bars[1]
    return ValueWithBar(_as_whole(value, is_whole=is_whole), bar)


def _quotient(
    above: float, below: float, above_bar: float | None, below_bar: float | None
) -> ValueWithBar:
    """Returns a quotient. Its bar is not known where the divisor may be 0."""
    if below == 0.0:
        return NULL if below_bar == 0.0 else UNKNOWN
    value = above / below
    if above_bar is None or below_bar is None or below_bar >= abs(below):
        return ValueWithBar(value, None)
    corners = [
        (above + i * above_bar) / (below + j * below_bar)
        for i, j in itertools.product((-1, 1), repeat=2)
    ]
    return ValueWithBar(value, max(max(corners) - value, value - min(corners)))


def _as_whole(value: float, *, is_whole: bool) -> Value:
    return int(value) if is_whole else value
