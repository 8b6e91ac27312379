"""Slabs: a million slots by column at most, and the index that knows their columns.

A block is some slabs. Each slot holds one entry: a row, or rows that came counted. Slots lie in a secret
order within their slab, so that a block does not show in which order its rows came. Nothing is compressed or
left out: every length follows from the definition and the number of slots, which are public.

| column | type | where |
|---|---|---|
| the index of an attribute | its least unsigned type | everywhere |
| ``weight`` | 8 bits, 1 for a row that counts, else 0 | persons are protected |
| ``entry 0``, ``entry 1`` | 32 bits, the digits of how many rows an entry is | rows came counted |
| ``value`` and the index of an attribute | 32 bits, units above its lower end | it is measured |

A merged slab has a slot for each cell of the universe instead: ``row 0`` and ``row 1``, the digits of how
many rows are in it, and ``sum``, the index and the place, the digits of what these count for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, NamedTuple, Self, TypeAlias

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from stream_dp.core.encoding import IDENTITY_BYTES, Format, array, fields, part
from stream_dp.core.rows.encoded_rows import Rows, exact_sum
from stream_dp.core.rows.key_texts import KeyTexts, codes_of
from stream_dp.core.rows.slot_counts import Column, Counts, count_slots, digits_of, from_digits
from stream_dp.core.rows.universe import Universe

SLOTS: Final = 2**20
"""Most slots of a slab. A column is then at most 4 MiB, as a record of the topic of blocks."""

WEIGHT: Final = "weight"
_ENTRY: Final = ("entry 0", "entry 1")
_ROW: Final = ("row 0", "row 1")
_SALT_BYTES: Final = 16

Columns: TypeAlias = Mapping[str, Column]
SecretOrder: TypeAlias = Callable[[int], npt.NDArray[np.intp]]
"""Draws an order of some slots, all as likely as far as anyone can tell."""


def value_column(attribute: int) -> str:
    """The name of the column with the values of a measured attribute, see above."""
    return f"value {attribute}"


@dataclass(frozen=True, eq=False)
class Slab:
    """Some slots by column.

    Attributes:
        n_rows: The number of rows in them. Of a slab among others whose rows came counted it is private.
        n_slots: The number of slots; public.
        columns: Name -> one value for each slot, shape (n_slots,). The names are public, the values private.
    """

    n_rows: int = field(repr=False)
    n_slots: int
    columns: Columns = field(repr=False)

    @property
    def n_bytes(self) -> int:
        """The memory of its columns; public."""
        return sum(column.nbytes for column in self.columns.values())

    @property
    def is_merged(self) -> bool:
        """Whether it has a slot for each cell of the universe; public."""
        return any(name.startswith(("row ", "sum ")) for name in self.columns)

    @property
    def n_out(self) -> int:
        """The number of slots that are in no cell, since they do not count. Private."""
        weight = self.columns.get(WEIGHT)
        return 0 if weight is None else self.n_slots - int(np.count_nonzero(weight))

    def with_columns(self, columns: Columns) -> Self:
        """The same with these columns, in place of those of the same name."""
        return replace(self, columns={**self.columns, **columns})

    def split(self, names: Collection[str]) -> tuple[Self, Self]:
        """Returns it without some columns, and these alone."""
        ours = {name: of for name, of in self.columns.items() if name not in names}
        theirs = {name: of for name, of in self.columns.items() if name in names}
        return replace(self, columns=ours), replace(self, columns=theirs)

    def stored(self, salt: bytes) -> list[bytes]:
        """What is kept of it: its index, then each column. Their lengths are public, their contents private.

        Args:
            salt: 16 random bytes, so that equal columns have different digests.
        """
        kept = {name: array(column) for name, column in self.columns.items()}
        entries = tuple(
            _Entry(name, self.columns[name].dtype.itemsize, _digest(salt, name, stored))
            for name, stored in kept.items()
        )
        return [SlabIndex(salt, self.n_rows, self.n_slots, entries).to_bytes(), *kept.values()]

    @classmethod
    def of_stored(cls, parts: Sequence[bytes]) -> Self:
        """Inverse of ``stored``, for parts that were compared with the index.

        Raises:
            CorruptState: The index does not decode.
        """
        index = SlabIndex.from_bytes(parts[0])
        stored = zip(index.entries, parts[1:], strict=True)
        columns = {entry.name: _column(entry, part) for entry, part in stored}
        return cls(index.n_rows, index.n_slots, columns)


class _Entry(NamedTuple):
    name: str
    itemsize: int
    digest: bytes


@dataclass(frozen=True)
class SlabIndex:
    """The columns of a slab as they are stored, each with a digest.

    Attributes:
        n_rows: The number of rows, see ``Slab``.
        n_slots: The number of slots; public.
        names: The names of the columns; public.
    """

    salt: bytes = field(repr=False)
    n_rows: int = field(repr=False)
    n_slots: int
    entries: tuple[_Entry, ...] = field(repr=False)

    _FORMAT: ClassVar[Format] = Format("slab")

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(entry.name for entry in self.entries)

    def place(self, name: str) -> int:
        """Returns at which place a column is stored; the index itself is at 0."""
        return self.names.index(name) + 1

    def itemsize(self, place: int) -> int:
        """Returns the bytes of a value of the column at a place; public."""
        return self.entries[place - 1].itemsize

    def n_bytes(self, place: int) -> int:
        """Returns the length of the column at a place; public."""
        return self.n_slots * self.itemsize(place)

    def has(self, place: int, stored: bytes) -> bool:
        """Whether these bytes are the ones that were kept of the column at a place."""
        entry = self.entries[place - 1]
        return _digest(self.salt, entry.name, stored) == entry.digest

    def column(self, place: int, stored: bytes) -> Column:
        """Returns the column at a place, without a copy, of bytes that it ``has``."""
        return _column(self.entries[place - 1], stored)

    def to_bytes(self) -> bytes:
        return self._FORMAT.pack(
            self.salt,
            fields("<QIH", self.n_rows, self.n_slots, len(self.entries)),
            *(
                part(one.name.encode()) + fields("<B", one.itemsize) + one.digest
                for one in self.entries
            ),
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: The bytes do not decode, or their version is unknown.
        """
        reader = cls._FORMAT.read(data)
        salt = reader.take(_SALT_BYTES)
        n_rows, n_slots, n_columns = reader.fields("<QIH")
        reader.require(n_slots <= SLOTS)
        entries = []
        for _ in range(n_columns):
            name, (itemsize,) = reader.required_text(), reader.fields("<B")
            reader.require(itemsize in (1, 2, 4))
            entries.append(_Entry(name, itemsize, reader.take(IDENTITY_BYTES)))
        reader.require(len({entry.name for entry in entries}) == n_columns)
        reader.end()
        return cls(salt, n_rows, n_slots, tuple(entries))


def _column(entry: _Entry, stored: bytes) -> Column:
    return np.frombuffer(stored, np.dtype(f"<u{entry.itemsize}"))


def _digest(salt: bytes, name: str, stored: bytes) -> bytes:
    # Half of a digest of BLAKE3, which takes a third of the time of SHA-256 with the processor's help.
    found = blake3(salt + part(name.encode()))
    return found.update(stored).digest(IDENTITY_BYTES)


# ---------------------------------------------------------------- making slabs


def slabs_of(
    rows: Rows, order: SecretOrder | None = None, *, more: Columns | None = None
) -> Iterator[Slab]:
    """Yields the slabs of rows.

    Args:
        rows: The rows.
        order: Draws the order of the slots of each slab. None leaves them as they came.
        more: More columns, such as ``WEIGHT``, with one value for each entry.
    """
    columns = {**row_columns(rows), **(more or {})}
    for part_of in parts_of(rows.n_entries):
        here = {name: column[part_of] for name, column in columns.items()}
        n_slots = part_of.stop - part_of.start
        if order is not None:
            placed = order(n_slots)
            here = {name: column[placed] for name, column in here.items()}
        n_rows = n_slots if rows.counts is None else exact_sum(rows.counts[part_of])
        yield Slab(n_rows, n_slots, here)


def row_columns(rows: Rows) -> dict[str, Column]:
    """What rows say, but for keys, by the names of columns."""
    columns: dict[str, Column] = {
        str(at): column for at, column in enumerate(rows.codes) if len(column) == rows.n_entries
    }
    if rows.counts is not None:
        columns |= zip(_ENTRY, digits_of(rows.counts), strict=True)
    columns |= {value_column(at): offsets for at, offsets in rows.measures.items()}
    return columns


def slabs_in_order(rows: Rows, attributes: Collection[int]) -> Iterator[Slab]:
    """Yields slabs of the codes of some attributes of every row, as they came."""
    if not attributes:
        return
    columns: dict[str, Column] = {str(at): rows.codes[at] for at in sorted(attributes)}
    if rows.counts is not None:
        columns = {name: np.repeat(column, rows.counts) for name, column in columns.items()}
    for part_of in parts_of(rows.n_rows):
        n_slots = part_of.stop - part_of.start
        yield Slab(n_slots, n_slots, {name: column[part_of] for name, column in columns.items()})


def found_slab(universe: Universe, texts: Slab) -> Slab:
    """The codes of the attributes whose values are found, of slots that say these texts."""
    codes = {
        str(at): codes_of(one.encode, KeyTexts.of_columns(at, texts.columns).texts)
        for at, one in universe.found.items()
    }
    return Slab(texts.n_rows, texts.n_slots, codes)


def parts_of(n_slots: int) -> Iterator[slice]:
    """Yields the parts of some slots that slabs have."""
    for start in range(0, n_slots, SLOTS):
        yield slice(start, min(start + SLOTS, n_slots))


def fits(n_slots: int) -> bool:
    """Whether a slab has room for some slots."""
    return n_slots <= SLOTS


def merges(universe: Universe, n_slots: int) -> bool:
    """Whether equal rows of a block are merged: where cells are far fewer than slots, and all are known.

    All of it is public.
    """
    few = 8 * universe.n_cells <= n_slots and universe.n_cells <= SLOTS
    return few and not universe.found


def merged(universe: Universe, slabs: Iterable[Slab]) -> Slab:
    """The slab that has a slot for each cell of the universe, of slabs that may be merged themselves."""
    shape, every = universe.rows_shape, tuple(sorted(universe.in_force))
    asked = [TableAsked(every, 0, measured) for measured in (None, *universe.measured)]
    tables, n_rows = [zeros_of(shape, every) for _ in asked], 0
    for slab in slabs:
        n_rows += slab.n_rows
        for table, one in zip(tables, asked, strict=True):
            table += one.table(shape, slab)
    columns: dict[str, Column] = {}
    for table, one in zip(tables, asked, strict=True):
        columns |= zip(one.merged_names, digits_of(table.reshape(-1)), strict=True)
    return Slab(n_rows, universe.n_cells, columns)


# ---------------------------------------------------------------- counting them


class TableAsked(NamedTuple):
    """A table of one block.

    Attributes:
        attributes: Its axes, ascending; () asks for one number.
        block: The block, by its absolute index.
        measured: The attribute whose values are added up. None to count rows.
    """

    attributes: tuple[int, ...]
    block: int
    measured: int | None = None

    @property
    def merged_names(self) -> tuple[str, str]:
        """The columns that it needs of a merged slab."""
        if self.measured is None:
            return _ROW
        return f"sum {self.measured} 0", f"sum {self.measured} 1"

    def needs(self, names: Collection[str]) -> list[str]:
        """Returns the columns that it needs of a slab that has these columns."""
        if _ROW[0] in names:
            return list(self.merged_names)
        wanted = [str(attribute) for attribute in self.attributes]
        wanted += [] if self.measured is None else [value_column(self.measured)]
        return wanted + [name for name in (*_ENTRY, WEIGHT) if name in names]

    def table(self, shape: Sequence[int], slab: Slab) -> Counts:
        """Counts the rows of a slab in each cell, exactly, or adds up what they count for.

        Args:
            shape: The sizes of all attributes, 1 for those that the slab has no column of.
            slab: The slab, or as much of it as ``needs`` says.

        Returns:
            int64, of the sizes of the attributes.
        """
        columns = slab.columns
        if self.merged_names[0] in columns:
            # Of all attributes that there ever were, numpy has axes for those that the rows have.
            axes = [a for a, size in enumerate(shape) if size > 1 or a in self.attributes]
            others = tuple(i for i, a in enumerate(axes) if a not in self.attributes)
            cells = from_digits(*map(columns.__getitem__, self.merged_names))
            cells = cells.reshape([shape[a] for a in axes])
            return np.asarray(cells.sum(axis=others), dtype=np.int64)
        if self.measured is not None and value_column(self.measured) not in columns:
            raise ValueError("the values of this attribute are not kept")
        return count_slots(
            [columns[str(a)] for a in self.attributes],
            [shape[a] for a in self.attributes],
            slab.n_slots,
            weight=columns.get(WEIGHT),
            digits=self._digits(columns),
        )

    def _digits(self, columns: Columns) -> Sequence[Column]:
        """What each slot counts for, as ``count_slots`` takes it."""
        entries = [columns[name] for name in _ENTRY if name in columns]
        if self.measured is None:
            return entries
        values = columns[value_column(self.measured)]
        if not entries:
            return (values,)
        return digits_of(from_digits(*entries) * values.astype(np.int64))


def zeros_of(shape: Sequence[int], attributes: Sequence[int]) -> Counts:
    """An empty table over some attributes, int64.

    Args:
        shape: The sizes of all attributes.
        attributes: The indices of some.
    """
    return np.zeros(tuple(shape[a] for a in attributes), dtype=np.int64)
