"""Sealed blocks of rows. Private: ``Blocks.marginal``, ``tables``, ``totals`` and ``in_order`` are all of it.

A block keeps its occupied cells only, as columns of codes with a count each, so the universe may have 1e18
cells. Stored, it is padded: which cells are occupied shows neither in its bytes' length nor in any repr.
Of attributes that a mechanism answers row by row it also keeps the codes in order of arrival. Of attributes
that are measured it keeps, for each occupied cell, what its rows count for together.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from stream_dp.core.encoding import Format, Reader, fields, integers
from stream_dp.core.queries.query import Predicate
from stream_dp.core.rows.measured_values import Offsets
from stream_dp.core.rows.universe import (
    Codes,
    Counts,
    Rows,
    Universe,
    check_total,
    pack_columns,
    unpack_columns,
)

_Ids: TypeAlias = npt.NDArray[np.integer[Any]]

_Number = TypeVar("_Number", bound=np.generic)

_MAX_ID = 2**62

MAX_ORDERED = 2**22
"""Most rows of a block whose columns are kept in order of arrival."""


@dataclass(frozen=True, eq=False)
class Block:
    """The rows that opened one phase.

    Attributes:
        n_rows: Rows sealed; public. Where rows are protected, they all count. Where persons are, some of them
            do, and how many is private.
        capacity: Entries that its bytes have room for: min(cells of the universe, entries sealed); public.
        codes: Codes of the occupied cells, one array an attribute, shape (n_occupied,). Private.
        counts: Rows in each, positive, shape (n_occupied,). Private.
        ordered: Attribute -> code of every row in order of arrival, shape (n_rows,). Its keys are public, the
            codes private. Empty where the block has more than ``MAX_ORDERED`` rows.
        totals: Measured attribute -> units above its lower end that the rows of each occupied cell count for
            together, shape (n_occupied,). Its keys are public, the numbers private.
        of_persons: Whether persons are protected; public.
    """

    n_rows: int
    capacity: int
    codes: tuple[Codes, ...] = field(repr=False)
    counts: Counts = field(repr=False)
    ordered: Mapping[int, Codes] = field(default_factory=dict, repr=False)
    totals: Mapping[int, Counts] = field(default_factory=dict, repr=False)
    of_persons: bool = field(default=False, repr=False)

    _FORMAT: ClassVar[Format] = Format("block")

    @classmethod
    def seal(
        cls,
        universe: Universe,
        rows: Rows,
        ordered: Iterable[int] = (),
        *,
        counted: npt.NDArray[np.bool_] | None = None,
    ) -> Block:
        """The block of ``rows``, equal rows merged.

        Args:
            universe: The possible rows.
            rows: The rows that waited. An entry that counts w rows arrived as w equal rows.
            ordered: Indices of the attributes to keep in order of arrival too, if the rows are few enough.
                Replacing a row changes one place, but where rows are counted it shifts all that are between
                two entries: what is answered row by row must not take such batches in.
            counted: Marks the rows that count, shape (n_entries,), where the rows say whose they are. The
                others are in no cell. Whose the rows are is not kept.

        Raises:
            InvalidBatch: They count more rows than a block of this universe may.
            ValueError: They do not have the values that this universe keeps, or say whose they are and not
                which of them count, or persons are protected and rows are to be kept in order.
        """
        check_total(rows.n_rows, "batch", universe.max_rows)
        if rows.measures.keys() != universe.measured.keys():
            raise ValueError("these rows do not have the values that are kept of them")
        if (rows.whose is None) is not (counted is None):
            raise ValueError("which rows count is said just where the rows say whose they are")
        ordered = sorted(ordered)
        if counted is not None and ordered:
            raise ValueError("where persons are protected no row has a place that others can see")
        # A row that does not count is merged like the others, so that the work is the same.
        each = rows.counts if counted is None else counted.astype(np.int64)
        merged = _Merged(_cell_ids(rows.codes, universe.shape))
        counts = merged.counts(each)
        occupied = counts > 0
        codes = tuple(column[merged.firsts[occupied]] for column in rows.codes)
        totals = {
            attribute: merged.totals(offsets, each)[occupied]
            for attribute, offsets in rows.measures.items()
        }
        capacity = min(universe.n_cells, rows.n_entries)
        kept = ordered if rows.n_rows <= MAX_ORDERED else ()
        columns = {attribute: _unrolled(rows, attribute) for attribute in kept}
        of_persons = counted is not None
        return cls(rows.n_rows, capacity, codes, counts[occupied], columns, totals, of_persons)

    @staticmethod
    def bytes_at_most(universe: Universe, n_rows: int) -> int:
        """The most bytes of codes and counts of a block of ``n_rows`` rows. All of it is public."""
        an_entry = sum(attribute.dtype.itemsize for attribute in universe.attributes)
        an_entry += np.dtype(np.int64).itemsize * (1 + len(universe.measured))
        return min(universe.n_cells, n_rows) * an_entry

    @property
    def most_bytes(self) -> int:
        """The most memory that its rows can take, in bytes. It follows from public numbers alone."""
        numbers = [*self.codes, self.counts, *self.totals.values()]
        an_entry = sum(column.itemsize for column in numbers)
        return self.capacity * an_entry + sum(column.nbytes for column in self.ordered.values())

    def to_bytes(self) -> bytes:
        """Bytes whose length depends on public numbers alone."""
        n_others = len(self.totals), len(self.ordered)
        codes = tuple(self._padded(column) for column in self.codes)
        return self._FORMAT.pack(
            fields("<QQ?BB", self.n_rows, self.capacity, self.of_persons, *n_others),
            bytes(self.totals),
            bytes(self.ordered),
            pack_columns(codes, self._padded(self.counts)),
            *(integers(self._padded(each)) for each in self.totals.values()),
            pack_columns(tuple(self.ordered.values()), None),
        )

    def _padded(self, column: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
        """A column of the occupied cells with zeros up to the capacity."""
        return np.pad(column, (0, self.capacity - len(column)))

    @classmethod
    def from_bytes(cls, universe: Universe, data: bytes) -> Block:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: An unknown version, a wrong length, a cell outside the universe, a column in order
                of arrival that holds other rows than are counted, totals that its rows cannot have, or more
                rows counted than sealed.
        """
        reader = cls._FORMAT.read(data)
        n_rows, capacity, of_persons, n_measured, n_ordered = reader.fields("<QQ?BB")
        reader.require(list(reader.take(n_measured)) == list(universe.measured))
        ordered = list(reader.take(n_ordered))
        known = set(ordered) & set(range(len(universe.shape)))
        reader.require(ordered == sorted(known) and not (of_persons and ordered))
        padded, each = unpack_columns(universe, reader, capacity, has_counts=True)
        assert each is not None, "a block has counts"
        rows = Rows(padded, each)
        reader.require(n_rows <= universe.max_rows)
        reader.require(rows.n_rows <= n_rows if of_persons else rows.n_rows == n_rows)
        occupied = each > 0  # the rest is padding
        codes = tuple(column[occupied] for column in padded)
        block = cls(n_rows, capacity, codes, each[occupied], of_persons=of_persons)
        totals = _totals(universe, block, reader)
        columns = _ordered(universe, block, ordered, reader) if ordered else {}
        reader.end()
        return replace(block, totals=totals, ordered=columns)


class Blocks:
    """A data set's sealed blocks, in order. The rows of the first ones may be erased.

    Args:
        universe: The possible rows.
        blocks: The blocks that still have rows.
        erased: The number of rows that each block before them had; public.

    Attributes:
        vault: Secrets that looks drew once, by name, as stored bytes. Private like the rows.
    """

    def __init__(
        self, universe: Universe, blocks: Iterable[Block] = (), erased: Iterable[int] = ()
    ) -> None:
        self._universe = universe
        self._sizes = list(erased)
        self._n_erased = len(self._sizes)
        self._held: dict[int, Block] = {}
        self._read: Callable[[int], Block] | None = None
        self._ahead: Ahead | None = None
        self.vault: dict[str, bytes] = {}
        for block in blocks:
            self.append(block)

    @classmethod
    def elsewhere(
        cls,
        universe: Universe,
        sizes: Iterable[int],
        n_erased: int,
        read: Callable[[int], Block],
        ahead: Ahead | None = None,
    ) -> Blocks:
        """Blocks that are read one by one when their rows are needed.

        Args:
            universe: The possible rows.
            sizes: The number of rows of each block, those included that are erased; public.
            n_erased: The number of first blocks whose rows are erased.
            read: Reads one block by its absolute index.
            ahead: Told what is to be counted, yields the counts of each in order; None to have it counted
                here.
        """
        found = cls(universe, erased=sizes)
        found._n_erased = n_erased
        found._read = read
        found._ahead = ahead
        return found

    def append(self, block: Block) -> None:
        """Adds the next block. Where blocks are read from elsewhere, so is this one."""
        if self._read is None:
            self._held[len(self._sizes)] = block
        self._sizes.append(block.n_rows)

    def erase(self, n_blocks: int) -> None:
        """Forgets the rows of the first ``n_blocks`` blocks; their sizes, which are public, stay."""
        self._n_erased = max(self._n_erased, min(n_blocks, len(self)))
        self._held = {index: held for index, held in self._held.items() if index >= self._n_erased}

    @property
    def erased(self) -> int:
        """The number of first blocks whose rows are erased; public."""
        return self._n_erased

    def __len__(self) -> int:
        return len(self._sizes)

    def __repr__(self) -> str:
        return f"Blocks({len(self)})"

    @property
    def sizes(self) -> list[int]:
        """Rows of each block, those included that are erased; public."""
        return list(self._sizes)

    def check(self, blocks: Iterable[int]) -> None:
        """Checks that all of ``blocks`` have rows. It is public whether they do.

        Raises:
            ValueError: A block is not sealed, or its rows are erased.
        """
        for block in blocks:
            if not 0 <= block < len(self):
                raise ValueError("a block of the window is not sealed")
            if block < self.erased:
                raise ValueError("the rows of a block of the window are erased")

    def _block(self, index: int) -> Block:
        self.check((index,))
        return self._held[index] if self._read is None else self._read(index)

    def marginal(self, attributes: tuple[int, ...], blocks: range) -> Counts:
        """Counts of each block over ``attributes``, exact; a read of private data.

        Args:
            attributes: Indices, ascending; () asks for the number of rows.
            blocks: The blocks, by absolute index.

        Returns:
            int64, shape (len(blocks), size of each attribute).

        Raises:
            ValueError: Attributes that do not ascend, or a block that is not sealed or is erased.
        """
        return self._table(attributes, blocks, lambda block: block.counts)

    def tables(self, asked: Sequence[tuple[tuple[int, ...], int]]) -> Iterator[Counts]:
        """Counts of single blocks, exact, one after the other: in the memory of one table; private data.

        Args:
            asked: The attributes of each table, as in ``marginal``, and the block by its absolute index.

        Yields:
            int64, of the sizes of the attributes.

        Raises:
            ValueError: Attributes that do not ascend, or a block that is not sealed or is erased.
        """
        self.check(block for _, block in asked)
        ahead = itertools.repeat(None) if self._ahead is None else self._ahead(asked)
        for (attributes, block), found in zip(asked, ahead, strict=False):
            if found is None:
                here = range(block, block + 1)
                (counts,) = self._table(attributes, here, lambda held: held.counts)
                yield counts
            else:
                yield found

    def totals(self, measured: int, attributes: tuple[int, ...], blocks: range) -> Counts:
        """What the rows of each cell over ``attributes`` count for together, exact; a read of private data.

        Args:
            measured: Index of a measured attribute.
            attributes: Indices, ascending; () asks for the total of all rows.
            blocks: The blocks, by absolute index.

        Returns:
            Units above the attribute's lower end, int64, shape (len(blocks), size of each attribute).

        Raises:
            ValueError: Attributes that do not ascend, a block that is not sealed or is erased, or no such
                values.
        """
        if measured not in self._universe.measured:
            raise ValueError("the values of this attribute are not kept")
        return self._table(attributes, blocks, lambda block: block.totals[measured])

    def _table(
        self, attributes: tuple[int, ...], blocks: range, numbers_of: Callable[[Block], Counts]
    ) -> Counts:
        """What numbers of the occupied cells add up to in each cell over ``attributes``, by block."""
        if list(attributes) != sorted(set(attributes)):
            raise ValueError("attributes must ascend")
        self.check(blocks)
        shape = tuple(self._universe.shape[a] for a in attributes)
        table = np.zeros((len(blocks), math.prod(shape)), dtype=np.int64)
        for numbers, index in zip(table, blocks, strict=True):
            block = self._block(index)
            cells = _ravel([block.codes[a] for a in attributes], shape, len(block.counts))
            # Not bincount: it adds weights as floats, which lose counts above 2**53.
            np.add.at(numbers, cells, numbers_of(block))
        return table.reshape(len(blocks), *shape)

    def in_order(self, attribute: int, block: int) -> Codes:
        """Code of every row of one block, in order of arrival, shape (n_rows,); a read of private data.

        Raises:
            ValueError: The block is not sealed, is erased, or keeps no such column.
        """
        ordered = self._block(block).ordered
        if attribute not in ordered:
            raise ValueError("the block does not keep this attribute in order of arrival")
        return ordered[attribute]


Ahead: TypeAlias = Callable[[Sequence[tuple[tuple[int, ...], int]]], Iterator[Counts | None]]


@dataclass(frozen=True, slots=True)
class BlockCounts:
    """What was counted of one stored block.

    Attributes:
        n_rows: Rows sealed; public.
        of_persons: Whether persons are protected; public.
        tables: The counts of each table that was asked for, exact, in order. Private.
    """

    n_rows: int
    of_persons: bool
    tables: tuple[Counts, ...] = field(repr=False)


def counted(universe: Universe, stored: bytes, asked: Iterable[tuple[int, ...]]) -> BlockCounts:
    """Counts one stored block. It is a function of its arguments alone, wherever it runs.

    Args:
        universe: The possible rows.
        stored: The bytes of ``Block.to_bytes``. Private.
        asked: The attributes of each table, ascending.

    Raises:
        CorruptState: The bytes are not those of a block, see ``Block.from_bytes``.
        ValueError: Attributes that do not ascend.
    """
    block = Block.from_bytes(universe, stored)
    data = Blocks(universe, [block])
    tables = tuple(table for table in data.tables([(attributes, 0) for attributes in asked]))
    return BlockCounts(block.n_rows, block.of_persons, tables)


def tables_of(data: Blocks, attributes: tuple[int, ...], blocks: range) -> Iterator[Counts]:
    """The marginal of one block after the other, in the memory of one table however many there are."""
    return data.tables([(attributes, block) for block in blocks])


def count_of(data: Blocks, predicate: Predicate, blocks: range) -> int:
    """Rows that satisfy a predicate in some blocks together, exact. Private."""
    tables = tables_of(data, predicate.attributes, blocks)
    return sum(int(table[predicate.mask].sum()) for table in tables)


def _unrolled(rows: Rows, attribute: int) -> Codes:
    """Code of every row, shape (n_rows,)."""
    column = rows.codes[attribute]
    return column if rows.counts is None else np.repeat(column, rows.counts)


def _ordered(
    universe: Universe, block: Block, attributes: Sequence[int], reader: Reader
) -> dict[int, Codes]:
    """The columns of some attributes in order of arrival, stored behind ``block``."""
    kept = Universe(tuple(universe.attributes[a] for a in attributes))
    columns, _ = unpack_columns(kept, reader, block.n_rows, has_counts=False)
    for attribute, column in zip(attributes, columns, strict=True):
        counts = Blocks(universe, [block]).marginal((attribute,), range(1))[0]
        reader.require(
            np.array_equal(np.bincount(column, minlength=len(counts)), counts),
            "keeps other rows in order than it counts",
        )
    return {attribute: column.copy() for attribute, column in zip(attributes, columns, strict=True)}


def _totals(universe: Universe, block: Block, reader: Reader) -> dict[int, Counts]:
    """The totals of the occupied cells of ``block``, stored behind it."""
    found, n_occupied = {}, len(block.counts)
    for index, attribute in universe.measured.items():
        padded = reader.integers(block.capacity)
        totals = padded[:n_occupied].copy()  # a view would keep all stored bytes
        fits = not padded[n_occupied:].any()
        reader.require(fits and attribute.fits(block.codes[index], totals, block.counts))
        found[index] = totals
    return found


def _ravel(codes: list[Codes], shape: tuple[int, ...], n_entries: int) -> _Ids:
    """Row-major index of each entry in a table of ``shape``, shape (n_entries,)."""
    cells = np.zeros(n_entries, dtype=np.int64)
    for column, size in zip(codes, shape, strict=True):
        cells *= size
        cells += column
    return cells


def _cell_ids(codes: tuple[Codes, ...], shape: tuple[int, ...]) -> _Ids:
    """One integer an entry, equal just where all codes are, shape (n_entries,).

    Row-major as far as 62 bits go; then what there is so far is renumbered densely.
    """
    ids = codes[0].astype(np.int64)
    n_ids = shape[0]
    for column, size in zip(codes[1:], shape[1:], strict=True):
        if n_ids * size > _MAX_ID:
            distinct, ids = np.unique(ids, return_inverse=True)
            n_ids = len(distinct)
        ids = ids * size + column
        n_ids *= size
    # numpy sorts 16 bits by radix, 5 times faster.
    return ids.astype(np.uint16) if n_ids <= 2**16 else ids


class _Merged:
    """Entries with equal ids, together.

    Attributes:
        firsts: The first entry of each distinct id.
    """

    def __init__(self, ids: _Ids) -> None:
        self._order = np.argsort(ids, kind="stable")
        in_order = ids[self._order]
        distinct = np.r_[True, in_order[1:] != in_order[:-1]] if len(ids) else np.zeros(0, np.bool_)
        self._starts = np.flatnonzero(distinct)
        self.firsts: npt.NDArray[np.intp] = self._order[self._starts]

    def counts(self, counts: Counts | None) -> Counts:
        """The rows that the entries of each id count together; one for each entry if None."""
        if counts is None:
            return np.diff(self._starts, append=len(self._order)).astype(np.int64)
        return self._added_up(counts)

    def totals(self, offsets: Offsets, counts: Counts | None) -> Counts:
        """What the rows of each id count for together, if each row of an entry counts for its offset."""
        each = offsets.astype(np.int64)
        return self._added_up(each if counts is None else each * counts)

    def _added_up(self, numbers: Counts) -> Counts:
        if not len(self._starts):  # reduceat takes no empty array
            return np.zeros(0, dtype=np.int64)
        return np.add.reduceat(numbers[self._order], self._starts)
