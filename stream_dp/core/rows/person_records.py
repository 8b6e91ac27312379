"""Records of persons: what all rows of a person in a phase say together, by the folds of attributes.

Where attributes fold rows, one slot of each person counts. It says of a folded attribute what follows from
all of that person's own slots, and from nothing else (docs/proofs, Theorem 40). Of other attributes it says
what its own row says, which is one of the rows of the person by a secret choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.rows.attributes import Boolean, Number
from stream_dp.core.rows.column_values import Codes
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.measured_values import Offsets
from stream_dp.core.rows.person_slots import Slots, by_person
from stream_dp.core.rows.slabs import Columns, value_column
from stream_dp.core.rows.universe import Universe

_Column: TypeAlias = npt.NDArray[Any]
_EXTREMES: Final[Mapping[str | None, tuple[np.ufunc, int]]] = {
    "any": (np.maximum, -1),
    "max": (np.maximum, -1),
    "min": (np.minimum, np.iinfo(np.int64).max),
}
"""Folds to one of the values -> how, and the number that stands for a missing one meanwhile."""


class _Together:
    """Puts the slots of each person together, once for all attributes.

    Attributes:
        sizes: The number of slots of each person.
    """

    def __init__(self, whose: Slots) -> None:
        n_slots = len(whose.digests)
        self._order, begins = by_person(whose.digests, np.arange(n_slots))
        self._starts = np.flatnonzero(begins)
        self.sizes = np.diff(np.append(self._starts, n_slots))
        self._live = whose.digests.any(axis=1)

    def each(self, values: _Column, how: np.ufunc) -> _Column:
        """One number for each person."""
        return np.asarray(how.reduceat(values[self._order], self._starts))

    def spread(self, of_persons: _Column, blank: _Column) -> _Column:
        """The same for each slot of each person, and what blank slots have as it is."""
        found = np.empty(len(self._order), of_persons.dtype)
        found[self._order] = np.repeat(of_persons, self.sizes)
        return np.where(self._live, found, blank).astype(blank.dtype)


def folded_rows(universe: Universe, rows: Rows) -> Rows:
    """Rows in which each slot of a person says what all of that person's say together. Private."""
    if not universe.folded or not rows.n_entries:
        return rows
    assert rows.whose is not None, "it is the rows of persons that are folded"
    together, codes, measures = _Together(rows.whose), [*rows.codes], dict(rows.measures)
    for at, attribute in universe.folded.items():
        codes[at], units = _folded(attribute, together, codes[at], measures.get(at))
        if units is not None:
            measures[at] = units
    return replace(rows, codes=tuple(codes), measures=measures)


def folded_columns(universe: Universe, whose: Slots, columns: Columns) -> Columns:
    """The same for the columns of slabs: those of ``names_of_folded``, of all slots of a phase. Private."""
    if not len(whose.digests):
        return columns
    together, found = _Together(whose), dict[str, _Column]()
    for at, attribute in universe.folded.items():
        code, value = str(at), value_column(at)
        found[code], units = _folded(attribute, together, columns[code], columns.get(value))
        if units is not None:
            found[value] = units
    return found


def names_of_folded(universe: Universe) -> frozenset[str]:
    """The columns of slabs that folds change; public."""
    codes = {str(at) for at in universe.folded}
    return frozenset(
        codes | {value_column(at) for at in universe.folded if at in universe.measured}
    )


def _folded(
    attribute: Boolean | Number, together: _Together, codes: Codes, units: Offsets | None
) -> tuple[Codes, Offsets | None]:
    """The code of each slot, and its units where values are kept."""
    missing = attribute.missing_cell
    known = np.ones(len(codes), np.bool_) if missing is None else codes != missing
    offsets: _Column | None = None
    if attribute.fold in _EXTREMES:
        new = _extreme(attribute, together, known, codes, missing or 0)
        if units is not None:
            offsets = _extreme(attribute, together, known, units, 0)
    else:
        assert isinstance(attribute, Number), "numbers of rows, and sums, are numbers"
        if attribute.fold == "count":
            numbers = together.sizes.astype(np.float64)
        else:
            assert units is not None, "sums are of kept values"
            numbers = _sums(attribute, together, known, units)
        if units is None:
            new = attribute.encode(numbers)
        else:
            new, offsets = attribute.encode_measured(numbers)
    if units is not None and offsets is not None:
        units = together.spread(offsets, units)
    return together.spread(new, codes), units


def _extreme(
    attribute: Boolean | Number,
    together: _Together,
    known: npt.NDArray[np.bool_],
    values: _Column,
    missing: int,
) -> _Column:
    """The least or the largest value of each person, or ``missing`` where none is known."""
    how, none = _EXTREMES[attribute.fold]
    found = together.each(np.where(known, values.astype(np.int64), none), how)
    return np.where(found == none, missing, found)


def _sums(
    attribute: Number, together: _Together, known: npt.NDArray[np.bool_], units: Offsets
) -> npt.NDArray[np.float64]:
    """The sum of each person's values, as far as it lies between the ends; NaN where all are missing."""
    measure = attribute.measure
    assert measure is not None, "sums are of kept values"
    low, high = measure.ends
    above = together.each(np.where(known, units.astype(np.int64), 0), np.add)
    n_known = together.each(known.astype(np.int64), np.add)
    # Floats are exact between the ends: up to 2^50 units, and the sum of what is above them is below 2^53.
    total = np.clip(float(low) * n_known + above, low, high)
    return np.where(n_known == 0, np.nan, measure.value(total.astype(np.int64)))
