"""The values that a data set has found, and the looks that find more: a fold over what was published."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

from stream_dp.core.budget.accountant import UNITS, Budget
from stream_dp.core.residual.keys.key_levels import KeyLevel, levels_of
from stream_dp.core.residual.keys.key_look import KeyLook, KeyRelease
from stream_dp.core.rows.universe import Category, Universe

_ALL = Fraction(2**20 - 1, 2**20)
"""As good as all of a line's delta. The rest is for rounding prices up."""


@dataclass(frozen=True, slots=True)
class FindSettings:
    """How values of an attribute are found.

    Attributes:
        share: The share of each line that it takes.
        windows: The numbers of phases in which rows are counted together.
    """

    share: Fraction
    windows: tuple[int, ...]


class FoundValues:
    """Finds the values of some attributes as phases open.

    Args:
        universe: The possible rows.
        budget: The budget of a line.
        settings: How values are found, by the index of the attribute.

    Attributes:
        attributes: The attributes, with the values that were found by now, by their index.
        since: The first block whose rows are in the cell of a value that was found, by index and value.
    """

    def __init__(
        self, universe: Universe, budget: Budget, settings: Mapping[int, FindSettings]
    ) -> None:
        self.attributes: dict[int, Category] = dict(universe.found)
        self.since: dict[tuple[int, str], int] = {}
        self._budget = budget
        total = sum((one.share for one in settings.values()), Fraction(0))
        self._levels: dict[int, tuple[KeyLevel, ...]] = {
            index: levels_of(
                budget.rho * one.share,
                budget.delta * _ALL * one.share / total,
                one.windows,
                budget.privacy.unit,
            )
            for index, one in settings.items()
        }

    @property
    def longest(self) -> int:
        """The phases of the longest windows, which shorter ones fit into."""
        return math.lcm(*(level.phases for of in self._levels.values() for level in of))

    @property
    def units(self) -> int:
        """Units of a line that finding takes."""
        rho = sum((level.rho for of in self._levels.values() for level in of), Fraction(0))
        return math.ceil(rho * UNITS / self._budget.rho) + len(self._levels)

    def looks(self, block: int, rows: Callable[[range], int], *, erased: int) -> list[KeyLook]:
        """The looks at a block that opens, one for each attribute.

        Args:
            block: The block, by its absolute index.
            rows: Returns the rows of a window.
            erased: The number of first blocks whose rows are gone. No look reads these.
        """
        found = []
        for index, levels in self._levels.items():
            ends = [level.window(block) for level in levels]
            windows = tuple(
                range(0) if window is None or window.start < erased else window for window in ends
            )
            rho = sum((level.rho for level in levels), Fraction(0))
            failure = sum((level.failure for level in levels), Fraction(0))
            charge = self._budget.charge(block, rho, failure)
            counts = tuple(rows(window) if window else 0 for window in windows)
            attribute = self.attributes[index]
            named = frozenset((*attribute.values, *dict(attribute.also), *attribute.na))
            found.append(KeyLook(index, block, levels, windows, counts, named, (charge,)))
        return found

    def absorb(self, release: KeyRelease) -> tuple[str, ...]:
        """Takes what a look has published; returns the values that it found, in the order of their cells.

        They are in the cells of the rows of its own block too: that block's cells follow from what was
        published before they were looked at. Values beyond the last spare cell stay in ``other``.
        """
        attribute = self.attributes[release.attribute]
        known = {*attribute.values, *dict(attribute.also), *attribute.na}
        most: dict[bytes, int] = {}
        for window in release.windows:
            for text, count in window.counts:
                most[text] = max(count, most.get(text, count))
        in_order = sorted(most, key=lambda text: (-most[text], text))
        new = [value for text in in_order if (value := text.decode()) not in known]
        values = tuple(new[: attribute.spare])
        self.attributes[release.attribute] = attribute.with_found(values)
        self.since |= {(release.attribute, value): release.block for value in values}
        return values
