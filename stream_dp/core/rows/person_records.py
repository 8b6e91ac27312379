"""Records of persons: what all rows of a person in a phase say together, by the folds of attributes.

Where attributes fold rows, one slot of each person counts. It says of a folded attribute what follows from
all of that person's own slots, and from nothing else (docs/proofs, Theorem 40). Of other attributes it says
what its own row says, which is one of the rows of the person by a secret choice.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.rows.attributes import Attribute, Boolean, Number
from stream_dp.core.rows.attributes.attribute_base import first_of
from stream_dp.core.rows.attributes.boolean import TRUE
from stream_dp.core.rows.column_values import Codes
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.measured_values import Offsets
from stream_dp.core.rows.person_slots import Digests, Slots, by_person, is_among
from stream_dp.core.rows.slabs import Columns, value_column
from stream_dp.core.rows.universe import Universe

_Column: TypeAlias = npt.NDArray[Any]
Since: TypeAlias = Mapping[int, npt.NDArray[np.int64]]
"""How many phases ago the person of each slot was there before, by the attribute that says it."""
_NOTHING: Final[Since] = MappingProxyType({})
_ORDERED: Final[Mapping[str | None, tuple[np.ufunc, int]]] = {
    "any": (np.maximum, -1),
    "max": (np.maximum, -1),
    "last": (np.maximum, -1),
    "min": (np.minimum, np.iinfo(np.int64).max),
    "first": (np.minimum, np.iinfo(np.int64).max),
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
        return self.only(found, blank)

    def only(self, of_slots: _Column, blank: _Column) -> _Column:
        """What slots of persons have, and what blank slots have as it is."""
        return np.where(self._live, of_slots, blank).astype(blank.dtype)


def folded_rows(universe: Universe, rows: Rows, since: Since = _NOTHING) -> Rows:
    """Rows in which each slot of a person says what all of that person's say together. Private."""
    if not universe.folded or not rows.n_entries:
        return rows
    assert rows.whose is not None, "it is the rows of persons that are folded"
    said = {str(at): codes for at, codes in enumerate(rows.codes)}
    said |= {value_column(at): units for at, units in rows.measures.items()}
    said |= folded_columns(universe, rows.whose, said, since)
    return replace(
        rows,
        codes=tuple(said[str(at)] for at in range(len(rows.codes))),
        measures={at: said[value_column(at)] for at in rows.measures},
    )


def folded_columns(
    universe: Universe, whose: Slots, columns: Columns, since: Since = _NOTHING
) -> Columns:
    """The same for the columns of slabs: those of ``names_of_folded``, of all slots of a phase. Private.

    Args:
        universe: The attributes.
        whose: Says whose the slots are.
        columns: The columns.
        since: How many phases ago persons were there before, for each attribute that says it.
    """
    if not len(whose.digests):
        return columns
    together, found, conditions = _Together(whose), dict[str, _Column](), _conditions(universe)
    for at, attribute in universe.folded.items():
        code, value = str(at), value_column(at)
        if attribute.fold == "since":
            continue  # another attribute may have to be folded before
        said = columns[code]
        if isinstance(attribute, Boolean) and attribute.where is not None:
            cells = tuple(columns[str(one)] for one in conditions[at])
            said = together.only(attribute.where.mask[cells], said)
        found[code], units = _folded(attribute, together, said, columns.get(value))
        if units is not None:
            found[value] = units
    for at, numbers in since.items():
        number = universe.attributes[at]
        assert isinstance(number, Number), "phases ago are a number"
        codes, of = number.encode(numbers), of_boolean(universe, number)
        if of is not None:
            codes = np.where(found[str(of)] == TRUE, codes, first_of(number.missing_cell))
        found[str(at)] = together.only(codes, columns[str(at)])
    return found


def of_boolean(universe: Universe, attribute: Number) -> int | None:
    """The index of the boolean that is to be true of persons who count for phases ago; None where all do."""
    return None if attribute.of is None else universe.positions[attribute.of]


def phases_since(
    attribute: Number, whose: Slots, before: Sequence[Digests]
) -> npt.NDArray[np.int64]:
    """How many phases ago the person of each slot was there before, shape (n_slots,). Private.

    Args:
        attribute: The attribute that says it.
        whose: Says whose the slots are.
        before: The persons of the phases before, the last one first, shape (n_persons, 12) each.

    Returns:
        1 for the phase before, and the number of phases that is not told apart where none has the person.
    """
    found = np.full(len(whose), int(attribute.edges[-1]), np.int64)
    for ago in range(len(before), 0, -1):
        found[is_among(whose.digests, before[ago - 1])] = ago
    return found


def names_of_folded(universe: Universe) -> frozenset[str]:
    """The columns of slabs that folds change, or read; public."""
    read = {str(at) for one in _conditions(universe).values() for at in one}
    codes = {str(at) for at in universe.folded}
    return frozenset(
        read | codes | {value_column(at) for at in universe.folded if at in universe.measured}
    )


def _conditions(universe: Universe) -> dict[int, list[int]]:
    """The attributes that the condition of each boolean depends on."""
    return {
        at: [universe.positions[name] for name in one.where.names]
        for at, one in universe.folded.items()
        if isinstance(one, Boolean) and one.where is not None
    }


def _folded(
    attribute: Attribute, together: _Together, codes: Codes, units: Offsets | None
) -> tuple[Codes, Offsets | None]:
    """The code of each slot, and its units where values are kept."""
    missing = attribute.missing_cell
    known = np.ones(len(codes), np.bool_) if missing is None else codes != missing
    offsets: _Column | None = None
    if attribute.fold in _ORDERED:
        new = _one_of(attribute, together, known, codes, missing or 0)
        if units is not None:
            offsets = _one_of(attribute, together, known, units, 0)
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


def _one_of(
    attribute: Attribute,
    together: _Together,
    known: npt.NDArray[np.bool_],
    values: _Column,
    missing: int,
) -> _Column:
    """One of the values of each person: the least, the largest, the first or the last.

    It is ``missing`` where none is known.
    """
    how, none = _ORDERED[attribute.fold]
    by_place = attribute.fold in ("first", "last")
    ranks = np.arange(len(values)) if by_place else values.astype(np.int64)
    found = together.each(np.where(known, ranks, none), how)
    if by_place:
        return np.where(found == none, missing, values[np.where(found == none, 0, found)])
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
