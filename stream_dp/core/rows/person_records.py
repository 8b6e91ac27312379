"""Records of persons: what all rows of a person in a phase say together, by the folds of attributes.

Where attributes fold rows, one slot of each person counts. It says of a folded attribute what follows from
all of that person's own slots, and from nothing else (docs/proofs, Theorem 40). Of other attributes it says
what its own row says, which is one of the rows of the person by a secret choice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final, NamedTuple, TypeAlias

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
_NONE: Final = -1
"""Stands for a missing value: it is below all others."""


class _Folded(NamedTuple):
    codes: Codes
    units: Offsets | None


class _Together:
    """Puts the slots of each person together, once for all attributes."""

    def __init__(self, whose: Slots) -> None:
        n_slots = len(whose.digests)
        self._order, begins = by_person(whose.digests, np.arange(n_slots))
        self._starts = np.flatnonzero(begins)
        self._sizes = np.diff(np.append(self._starts, n_slots))
        self._live = whose.digests.any(axis=1)

    def each(self, values: _Column, how: np.ufunc) -> _Column:
        """One number for each person."""
        return np.asarray(how.reduceat(values[self._order], self._starts))

    @property
    def sizes(self) -> _Column:
        """How many slots each person has."""
        return self._sizes

    def spread(self, of_persons: _Column, blank: _Column) -> _Column:
        """The same for each slot of each person, and what blank slots have as it is."""
        found = np.empty(len(self._order), of_persons.dtype)
        found[self._order] = np.repeat(of_persons, self._sizes)
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
        one = _folded(attribute, together, columns[code], columns.get(value))
        found[code] = one.codes
        if one.units is not None:
            found[value] = one.units
    return found


def names_of_folded(universe: Universe) -> frozenset[str]:
    """The columns of slabs that folds change; public."""
    codes = {str(at) for at in universe.folded}
    return frozenset(
        codes | {value_column(at) for at in universe.folded if at in universe.measured}
    )


def _folded(
    attribute: Boolean | Number, together: _Together, codes: Codes, units: Offsets | None
) -> _Folded:
    missing = attribute.missing_cell
    said = codes.astype(np.int64)
    if missing is not None:
        said[codes == missing] = _NONE
    if isinstance(attribute, Boolean) or attribute.fold == "max":
        most = together.each(said, np.maximum)
        return _spread(together, _codes(most, missing), codes, _most(together, said, units), units)
    if attribute.fold == "min":
        none = np.iinfo(np.int64).max
        least = together.each(np.where(said == _NONE, none, said), np.minimum)
        low = None if units is None else _least(together, said, units)
        return _spread(
            together, _codes(np.where(least == none, _NONE, least), missing), codes, low, units
        )
    if attribute.fold == "count":
        numbers = together.sizes.astype(np.float64)
    else:
        assert units is not None, "sums are of kept values"
        numbers = _sums(attribute, together, said, units)
    if units is None:
        return _spread(together, attribute.encode(numbers), codes, None, None)
    new, offsets = attribute.encode_measured(numbers)
    return _spread(together, new, codes, offsets, units)


def _spread(
    together: _Together,
    new: _Column,
    codes: Codes,
    offsets: _Column | None,
    units: Offsets | None,
) -> _Folded:
    spread = None if offsets is None or units is None else together.spread(offsets, units)
    return _Folded(together.spread(new, codes), spread)


def _codes(said: _Column, missing: int | None) -> _Column:
    """The codes of numbers among which ``_NONE`` stands for a missing one."""
    return said if missing is None else np.where(said == _NONE, missing, said)


def _most(together: _Together, said: _Column, units: Offsets | None) -> _Column | None:
    """The largest value of each person, in units."""
    if units is None:
        return None
    return together.each(np.where(said == _NONE, 0, units.astype(np.int64)), np.maximum)


def _least(together: _Together, said: _Column, units: Offsets) -> _Column:
    """The least value of each person, in units."""
    none = np.iinfo(np.int64).max
    least = together.each(np.where(said == _NONE, none, units.astype(np.int64)), np.minimum)
    return np.where(least == none, 0, least)


def _sums(
    attribute: Number, together: _Together, said: _Column, units: Offsets
) -> npt.NDArray[np.float64]:
    """The sum of each person's values, as far as it lies between the ends; NaN where all are missing."""
    measure = attribute.measure
    assert measure is not None, "sums are of kept values"
    low, high = measure.ends
    known = said != _NONE
    above = together.each(np.where(known, units.astype(np.int64), 0), np.add)
    n_known = together.each(known.astype(np.int64), np.add)
    # Floats are exact between the ends: up to 2^50 units, and the sum of what is above them is below 2^53.
    total = np.clip(float(low) * n_known + above, low, high)
    return np.where(n_known == 0, np.nan, measure.value(total.astype(np.int64)))
