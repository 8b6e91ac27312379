"""Changes of rows that came before, from the batch that asks for them to the sweep that makes them.

A batch with changes has a number: how many such batches there are so far. Rows in memory are changed at once.
Rows that are kept as slabs are changed by the next sweep, or before they are sealed. They say up to which
number they are changed, and all later changes are about all of their slots.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from stream_dp.core.rows.person_slots import Persons
from stream_dp.core.rows.row_changes import RowChanges
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidBatch
from stream_dp.messages import Batch

_ENTRY: Final = (
    'give null, or an object with "person", "row", and "set" with the row as it is to be, or with '
    '"erase": true'
)


class WaitingChanges:
    """The changes of one data set that no sweep has made everywhere yet. Private, but for their numbers."""

    def __init__(self) -> None:
        self._by_number: dict[int, RowChanges] = {}
        self._merged: tuple[int, RowChanges] | None = None

    def __bool__(self) -> bool:
        return bool(self._by_number)

    def __repr__(self) -> str:
        return f"WaitingChanges({len(self._by_number)} batches)"

    def add(self, number: int, changes: RowChanges) -> None:
        """Adds the changes of the batch with a number."""
        self._by_number[number] = changes
        self._merged = None

    def after(self, number: int) -> RowChanges:
        """All changes of batches after a number, as one. Those that were asked for last are kept.

        There may be millions of them, and slabs that were sealed together ask for the same.
        """
        if self._merged is None or self._merged[0] != number:
            later = sorted(at for at in self._by_number if at > number)
            self._merged = number, RowChanges.concat([self._by_number[at] for at in later])
        return self._merged[1]

    def forget(self) -> None:
        """Forgets all: a sweep has made them, or the data set is retired."""
        self._by_number.clear()
        self._merged = None


def changes_of(batch: Batch, universes: Sequence[Universe], persons: Persons) -> RowChanges | None:
    """What a batch changes, encoded. It follows from these arguments alone; None if it changes nothing.

    Args:
        batch: The batch.
        universes: The possible rows of each version of the attributes.
        persons: Reads whose rows these are.

    Raises:
        InvalidBatch: It does not say changes of rows of this data set.
    """
    if not batch.changes:
        return None
    erased = persons.digests(batch.erase or [])
    forgotten = erased if batch.forget else erased[:0]
    if batch.correct is None:
        return RowChanges(erased, forgotten=forgotten)
    if persons.row is None:
        raise InvalidBatch(
            "correct",
            "the rows of this data set have no key of their own",
            "name the column with erasure.row as you define it, or erase persons",
        )
    entries = [_checked(entry) for entry in batch.correct]
    rows = [_row(entry, persons.key, persons.row) for entry in entries]
    try:
        found = [universe.encode_rows(rows, persons) for universe in universes]
    except InvalidBatch as error:
        raise InvalidBatch("correct.set", error.problem, error.fix) from None
    gone = np.array([entry is None or "erase" in entry for entry in entries], np.bool_)
    return RowChanges(erased, found[0].and_of(found[1:]), gone, forgotten)


def _checked(entry: object) -> Mapping[str, Any] | None:
    """An entry of ``correct``, if it has the form of one."""
    if entry is None:
        return None
    if not isinstance(entry, dict) or not {"person", "row"} <= entry.keys():
        raise InvalidBatch("correct", "an entry does not say which row it is about", _ENTRY)
    sets, erases = isinstance(entry.get("set"), dict), entry.get("erase") is True
    if len(entry) != 3 or sets is erases:
        raise InvalidBatch("correct", "an entry does not say what becomes of a row", _ENTRY)
    return entry


def _row(entry: Mapping[str, Any] | None, key: str, row: str) -> Mapping[str, Any]:
    """The row that an entry names, as it is to be; one without values where it is erased."""
    if entry is None:
        return {}
    return {**entry.get("set", {}), key: entry["person"], row: entry["row"]}
