"""The values that a data set has found, and the looks that find more: a fold over what was published."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from stream_dp.core.budget.accountant import UNITS, Budget
from stream_dp.core.queries.query import LinearQuery, Predicate
from stream_dp.core.residual.keys.key_levels import KeyLevel, levels_of
from stream_dp.core.residual.keys.key_look import KeyLook, KeyRelease
from stream_dp.core.rows.attributes import Category
from stream_dp.core.rows.universe import Universe


@dataclass(frozen=True, slots=True)
class FindSettings:
    """How values of an attribute are found.

    Attributes:
        share: The share of each line that it takes.
        windows: The numbers of phases in which rows are counted together.
    """

    share: Fraction
    windows: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CountedValue:
    """How many rows, or persons, had a value in a window.

    It chose what was found, so it is too large on average for a value that it found. No estimate takes it in.

    Attributes:
        window: The blocks.
        count: The number, with noise.
        sigma: The scale of the noise.
    """

    window: range
    count: int
    sigma: Fraction


@dataclass(frozen=True, slots=True, eq=False)
class NamedLater:
    """Values that a query asks about, and that rows of the first blocks of its window do not tell.

    Attributes:
        since: The first block whose rows tell them.
        rows: The rows before that which may have one of the values, as a query.
        in_other: All rows before that which have no value that was known by then, as a query.
        answers: The answers that may have all of these rows more, shape (groups, answers of ``rows``).
    """

    since: int
    rows: LinearQuery
    in_other: LinearQuery
    answers: npt.NDArray[np.intp]

    @property
    def of_all(self) -> LinearQuery:
        """``rows`` of all groups together."""
        return replace(self.rows, group_by=())


class FoundValues:
    """Finds the values of some attributes as phases open.

    A block pays the rho of all its levels when it opens. What they may fail with adds up to the delta that
    lines keep for this, by the plan: so no charge names it.

    Args:
        universe: The possible rows.
        budget: The budget of a line.
        settings: How values are found, by the index of the attribute.

    Attributes:
        attributes: The attributes, with the values that were found by now, by their index.
        since: The first block whose rows are in the cell of a value that was found, by index and value.
        counted: The count of each value over the newest of the longest windows that had it, the same way.
    """

    def __init__(
        self, universe: Universe, budget: Budget, settings: Mapping[int, FindSettings]
    ) -> None:
        self.attributes: dict[int, Category] = dict(universe.found)
        self.since: dict[tuple[int, str], int] = {}
        self.counted: dict[tuple[int, str], CountedValue] = {}
        self._budget = budget
        total = sum((one.share for one in settings.values()), Fraction(0))
        self._levels: dict[int, tuple[KeyLevel, ...]] = {
            index: levels_of(
                budget.rho * one.share,
                budget.delta * one.share / total,
                one.windows,
                budget.privacy.unit,
            )
            for index, one in settings.items()
        }

    @property
    def values(self) -> dict[int, tuple[str, ...]]:
        """The values that are told apart of each attribute, by its index."""
        return {index: attribute.values for index, attribute in self.attributes.items()}

    def texts_over(self, n_blocks: int) -> int:
        """The number of first blocks of which no later look needs what their rows say, once some are open."""
        longest = math.lcm(*(level.phases for of in self._levels.values() for level in of))
        return n_blocks // longest * longest

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
            charge = self._budget.charge(block, rho)
            counts = tuple(rows(window) if window else 0 for window in windows)
            found.append(
                KeyLook(index, block, levels, windows, counts, self._known(index), (charge,))
            )
        return found

    def absorb(self, release: KeyRelease) -> tuple[str, ...]:
        """Takes what a look has published; returns the values that it found, in the order of their cells.

        They are in the cells of the rows of its own block too: that block's cells follow from what was
        published before they were looked at. Values beyond the last spare cell stay in ``other``.
        """
        attribute, known = self.attributes[release.attribute], self._known(release.attribute)
        most: dict[bytes, int] = {}
        for window in release.windows:
            for text, count in window.counts:
                most[text] = max(count, most.get(text, count))
        in_order = sorted(most, key=lambda text: (-most[text], text))
        new = [value for text in in_order if (value := text.decode()) not in known]
        values = tuple(new[: attribute.spare])
        self.attributes[release.attribute] = attribute.with_found(values)
        self.since |= {(release.attribute, value): release.block for value in values}
        self._count(release, {*self.attributes[release.attribute].values})
        return values

    def _count(self, release: KeyRelease, known: Collection[str]) -> None:
        """Notes what a look has counted of values that are known by now."""
        sigmas = {level.phases: level.sigma for level in self._levels[release.attribute]}
        for one in release.windows:
            n_phases = len(one.window)
            for text, count in one.counts:
                name = release.attribute, text.decode()
                before = self.counted.get(name)
                if name[1] in known and (before is None or n_phases >= len(before.window)):
                    self.counted[name] = CountedValue(one.window, count, sigmas[n_phases])

    def _known(self, index: int) -> frozenset[str]:
        """What rows may say of an attribute that is not to be found."""
        attribute = self.attributes[index]
        return frozenset((*attribute.values, *dict(attribute.also), *attribute.na))

    def named_later(self, query: LinearQuery, shape: Sequence[int]) -> list[NamedLater]:
        """The values that a query asks about and that were found after its window begins.

        Args:
            query: The query.
            shape: The sizes of all attributes.
        """
        found = []
        sizes = [shape[a] for a in query.group_by]
        places = np.arange(math.prod(sizes)).reshape(sizes)
        for index in self.attributes.keys() & {*query.attributes}:
            by_since = self._asked_later(query, index)
            is_group = index in query.group_by
            if by_since and not is_group:  # the condition alone: rows before the last of them
                last = max(by_since)
                by_since = {last: [cell for cells in by_since.values() for cell in cells]}
            for since, cells in by_since.items():
                predicate = self._may_have(query.predicate, index, cells, distinct=not is_group)
                if predicate is None:
                    continue
                groups = tuple(a for a in query.group_by if a != index)
                window = range(query.window.start, min(since, query.window.stop))
                if is_group:
                    axis = query.group_by.index(index)
                    answers = np.moveaxis(places, axis, 0)[cells].reshape(len(cells), -1)
                else:
                    answers = places.reshape(1, -1)
                rows = LinearQuery(predicate, window, groups)
                others = LinearQuery(Predicate.conjunction({index: self._in_other(index)}), window)
                found.append(NamedLater(window.stop, rows, others, answers))
        return found

    def _asked_later(self, query: LinearQuery, index: int) -> dict[int, list[int]]:
        """The cells of values that a query may ask about, by the block since which rows are in them."""
        asked = query.predicate.cells_of(index, self.attributes[index].size)
        found: dict[int, list[int]] = {}
        for cell, value in enumerate(self.attributes[index].values):
            since = self.since.get((index, value), 0)
            if since > query.window.start and asked[cell]:
                found.setdefault(since, []).append(cell)
        return found

    def _may_have(
        self, predicate: Predicate, index: int, cells: Sequence[int], *, distinct: bool
    ) -> Predicate | None:
        """The rows in ``other`` that may satisfy a condition by one of these values.

        None where no row may. With ``distinct`` those are left out that satisfy it as ``other``.
        """
        in_other = self._in_other(index)
        other = int(in_other.argmax())
        if index not in predicate.attributes:
            return (
                None if distinct else predicate.and_also(Predicate.conjunction({index: in_other}))
            )
        mask = np.moveaxis(predicate.mask, predicate.attributes.index(index), 0)
        may = mask[list(cells)].any(axis=0)
        if distinct:
            may &= ~mask[other]
        if not may.any():
            return None
        whole = np.zeros_like(mask)
        whole[other] = may
        return Predicate.of_mask(
            predicate.attributes, np.moveaxis(whole, 0, predicate.attributes.index(index))
        )

    def _in_other(self, index: int) -> npt.NDArray[np.bool_]:
        """Marks the cell of values that are not known."""
        attribute = self.attributes[index]
        assert attribute.other_cell is not None, "values are found among the others"
        marks: npt.NDArray[np.bool_] = np.arange(attribute.size) == attribute.other_cell
        return marks
