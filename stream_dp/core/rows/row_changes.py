"""What is changed of rows that came before: persons and rows that are erased, and rows that are corrected.

A change acts on earlier slots of the person that it names alone, and on one row of that person if it names a
row. It makes no slot, and moves no row to another block. Whether it finds a slot shows nowhere: everything
here takes as long, and is as large, whether it does or not (docs/proofs, Theorem 38).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.person_slots import DIGEST_BYTES, RANKS, Digests, Slots, differs, heads_of
from stream_dp.core.rows.slabs import Columns, Slab, row_columns

Marks: TypeAlias = npt.NDArray[np.bool_]
_Words: TypeAlias = npt.NDArray[np.uint64]

_NOTHING: Final[Mapping[str, Any]] = {}
_NOBODY: Final[Digests] = np.zeros((0, DIGEST_BYTES), np.uint8)


class Hits(NamedTuple):
    """What changes do to some slots. Private.

    Attributes:
        kept: Whether a slot is not erased, shape (n_slots,).
        corrected: The place of the correction of each slot, shape (n_slots,); -1 for none.
    """

    kept: Marks
    corrected: npt.NDArray[np.intp]

    def among(self, slots: Marks) -> Hits:
        """The same without corrections of other slots than those marked, shape (n_slots,)."""
        return self._replace(corrected=np.where(slots, self.corrected, -1))

    def put(
        self,
        column: npt.NDArray[Any],
        corrections: npt.NDArray[Any] | None = None,
        blank: int = 0,
    ) -> npt.NDArray[Any]:
        """A column after the changes.

        Args:
            column: One value, or row of values, for each slot.
            corrections: The same for each correction. None where these say nothing of the column.
            blank: What a slot has that is erased.
        """
        along = (slice(None), *(None for _ in column.shape[1:]))
        if corrections is not None and len(corrections):
            new = corrections[np.maximum(self.corrected, 0)].astype(column.dtype, copy=False)
            column = np.where((self.corrected >= 0)[along], new, column)
        changed: npt.NDArray[Any] = np.where(self.kept[along], column, column.dtype.type(blank))
        return changed


class _Changed(NamedTuple):
    """The rows that some changes name, each once, in ascending order of their own keys. Private.

    Attributes:
        keys: Their own keys, shape (n,).
        places: The place of the last change of each, shape (n,).
        erased: Whether any change erases it, shape (n,).
        most_alike: The most persons who have own keys with one digest. It is 1 but by chance.
    """

    keys: _Words
    places: npt.NDArray[np.intp]
    erased: Marks
    most_alike: int


@dataclass(frozen=True, eq=False)
class RowChanges:
    """Some changes, in order. Private, but for how many there are.

    Attributes:
        persons: The digests of persons to be erased, shape (n_persons, 12); zero where one is blank.
        rows: The rows that are corrected or erased, as they are to be. None if there are none.
        erased: Marks those that are erased, shape (n_rows,).
        forgotten: The persons of whom it is forgotten, too, what they have used for life.
    """

    persons: Digests = field(repr=False)
    rows: Rows | None = field(default=None, repr=False)
    erased: Marks = field(default_factory=lambda: np.zeros(0, np.bool_), repr=False)
    forgotten: Digests = field(default_factory=lambda: _NOBODY, repr=False)

    @classmethod
    def concat(cls, parts: Sequence[RowChanges]) -> RowChanges:
        """All changes of ``parts`` in order; none if there are no parts."""
        rows = [part.rows for part in parts if part.rows is not None]
        return cls(
            np.concatenate([_NOBODY, *(part.persons for part in parts)]),
            Rows.concat(rows) if rows else None,
            np.concatenate([np.zeros(0, np.bool_), *(part.erased for part in parts)]),
            np.concatenate([_NOBODY, *(part.forgotten for part in parts)]),
        )

    @property
    def n_persons(self) -> int:
        """The persons to be erased, blank ones included; public."""
        return len(self.persons)

    @property
    def n_rows(self) -> int:
        """The rows to be changed, blank ones included; public."""
        return len(self.erased)

    def __repr__(self) -> str:
        return f"RowChanges({self.n_persons} persons, {self.n_rows} rows)"

    # ------------------------------------------------------------ which slots they find

    @cached_property
    def _by_person(self) -> tuple[_Words, npt.NDArray[np.uint32]]:
        heads, tails = _halves(self.persons)
        order = np.lexsort((tails, heads))
        return heads[order], tails[order]

    @cached_property
    def _by_row(self) -> _Changed:
        # All that name no row come together, so that how many do shows nowhere.
        own, heads = self._own, heads_of(self._whose.digests) * (self._own != 0)
        order = np.lexsort((heads, own))
        starts = np.flatnonzero(differs(own[order]) | differs(heads[order]))
        ends = np.append(starts[1:], len(order))
        keys = own[order[starts]]
        runs = np.flatnonzero(np.append(differs(keys), True))
        return _Changed(
            keys,
            order[ends - 1],
            np.logical_or.reduceat(self.erased[order], starts),
            int(np.diff(runs).max()),
        )

    @property
    def _whose(self) -> Slots:
        assert self.rows is not None, "there are rows to be changed"
        assert self.rows.whose is not None, "rows of persons are changed"
        return self.rows.whose

    @property
    def _own(self) -> _Words:
        assert self._whose.own is not None, "their rows have keys"
        return self._whose.own

    def hits(self, slots: Slots) -> Hits:
        """Says what the changes do to slots that all came before them. Private."""
        heads, tails = _halves(slots.digests)
        live = slots.digests.any(axis=1)
        known_heads, known_tails = self._by_person
        erased = np.zeros(len(slots), np.bool_)
        if len(known_heads):
            at = np.minimum(np.searchsorted(known_heads, heads), len(known_heads) - 1)
            erased = (known_heads[at] == heads) & (known_tails[at] == tails) & live
        corrected = np.full(len(slots), -1, np.intp)
        if self.n_rows and slots.own is not None:
            rows, persons = self._by_row, self._whose.digests
            first = np.searchsorted(rows.keys, slots.own)
            for step in range(rows.most_alike):
                at = np.minimum(first + step, len(rows.keys) - 1)
                place = rows.places[at]
                found = (rows.keys[at] == slots.own) & (slots.own != 0) & live
                found &= (persons[place] == slots.digests).all(axis=1)
                corrected = np.where(found, place, corrected)
                erased |= found & rows.erased[at]
        return Hits(~erased, corrected)

    # ------------------------------------------------------------ what they make of rows

    @cached_property
    def _columns(self) -> Columns:
        return {} if self.rows is None else row_columns(self.rows)

    def of_rows(self, rows: Rows) -> Rows:
        """Rows that came before, after the changes. Private."""
        if not (self.n_persons or self.n_rows):
            return rows
        assert rows.whose is not None, "rows of persons are changed"
        return _changed(rows, rows.whose, self.hits(rows.whose), self.rows)

    def of_slab(
        self,
        slab: Slab,
        hits: Hits,
        more: Mapping[str, Any] = _NOTHING,
        blank: Mapping[str, int] = _NOTHING,
    ) -> Slab:
        """A slab after the changes. Private.

        Args:
            slab: The slab.
            hits: What the changes do to its slots.
            more: Columns of the corrections besides those of the rows.
            blank: What a blank slot has in columns in which that is not 0.
        """
        new = {**self._columns, **more}
        columns = {
            name: column if name in RANKS else hits.put(column, new.get(name), blank.get(name, 0))
            for name, column in slab.columns.items()
        }
        return replace(slab, columns=columns)


def live_rows(rows: Rows) -> Rows:
    """The same, with blank slots in place of rows whose own key comes again later. Private.

    A blank slot says nothing: one that somebody has sent is like one whose row is erased.
    """
    if rows.whose is None:
        return rows
    live = rows.whose.newest & rows.whose.digests.any(axis=1)
    return _changed(rows, rows.whose, Hits(live, np.full(rows.n_entries, -1, np.intp)))


def _changed(rows: Rows, whose: Slots, hits: Hits, new: Rows | None = None) -> Rows:
    """Rows after changes; ``new`` are the corrections."""
    codes = {} if new is None else dict(enumerate(new.codes))
    measures = {} if new is None else new.measures
    texts = {} if new is None else new.texts
    return replace(
        rows,
        codes=tuple(
            hits.put(column, codes.get(at)) if len(column) else column
            for at, column in enumerate(rows.codes)
        ),
        measures={at: hits.put(units, measures.get(at)) for at, units in rows.measures.items()},
        texts={at: hits.put(said, texts.get(at)) for at, said in rows.texts.items()},
        whose=whose.blanked(hits.kept),
    )


def _halves(digests: Digests) -> tuple[_Words, npt.NDArray[np.uint32]]:
    return heads_of(digests), np.ascontiguousarray(digests[:, 8:]).view("<u4")[:, 0]
