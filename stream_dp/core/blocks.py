"""Sealed blocks of rows. Private: ``Blocks.marginal`` and ``Blocks.in_order`` are all that they answer.

A block keeps its occupied cells only, as columns of codes with a count each, so the universe may have 1e18
cells. Stored, it is padded: which cells are occupied shows neither in its bytes' length nor in any repr.
Of attributes that a mechanism answers row by row it also keeps the codes in order of arrival.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.packing import Format, Reader, fields
from stream_dp.core.query import Predicate
from stream_dp.core.universe import (
    Codes,
    Counts,
    Rows,
    Universe,
    check_total,
    pack_columns,
    unpack_columns,
)

_Ids: TypeAlias = npt.NDArray[np.integer[Any]]

_MAX_ID = 2**62

MAX_ORDERED = 2**22
"""Most rows of a block whose columns are kept in order of arrival."""


@dataclass(frozen=True, eq=False)
class Block:
    """The rows that opened one phase.

    Attributes:
        n_rows: Rows counted; public.
        capacity: Entries that its bytes have room for: min(cells of the universe, entries sealed); public.
        codes: Codes of the occupied cells, one array an attribute, shape (n_occupied,). Private.
        counts: Rows in each, positive, shape (n_occupied,). Private.
        ordered: Attribute -> code of every row in order of arrival, shape (n_rows,). Its keys are public, the
            codes private. Empty where the block has more than ``MAX_ORDERED`` rows.
    """

    n_rows: int
    capacity: int
    codes: tuple[Codes, ...] = field(repr=False)
    counts: Counts = field(repr=False)
    ordered: Mapping[int, Codes] = field(default_factory=dict, repr=False)

    _FORMAT: ClassVar[Format] = Format("block", 1, 2)
    _MERGED: ClassVar[int] = 1  # capacity, the occupied cells
    _ORDERED: ClassVar[int] = (
        2  # the block in version 1 with its length, columns in order of arrival
    )

    @classmethod
    def seal(cls, universe: Universe, rows: Rows, ordered: Iterable[int] = ()) -> Block:
        """The block of ``rows``, equal rows merged.

        Args:
            universe: The possible rows.
            rows: The rows that waited. An entry that counts w rows arrived as w equal rows.
            ordered: Indices of the attributes to keep in order of arrival too, if the rows are few enough.
                Replacing a row changes one place, but where rows are counted it shifts all that are between
                two entries: what is answered row by row must not take such batches in.

        Raises:
            InvalidBatch: They count more than 2**62 rows.
        """
        check_total(rows.n_rows, "batch")
        cells, counts = _merge(_cell_ids(rows.codes, universe.shape), rows.counts)
        occupied = counts > 0
        codes = tuple(column[cells[occupied]] for column in rows.codes)
        capacity = min(universe.n_cells, rows.n_entries)
        kept = sorted(ordered) if rows.n_rows <= MAX_ORDERED else ()
        columns = {attribute: _unrolled(rows, attribute) for attribute in kept}
        return cls(rows.n_rows, capacity, codes, counts[occupied], columns)

    def to_bytes(self) -> bytes:
        """Bytes whose length depends on public numbers alone."""
        merged = self._merged_to_bytes()
        if not self.ordered:
            return merged
        header = fields("<QB", len(merged), len(self.ordered))
        columns = pack_columns(tuple(self.ordered.values()), None)
        return self._FORMAT.pack(
            header, merged, bytes(self.ordered), columns, version=self._ORDERED
        )

    def _merged_to_bytes(self) -> bytes:
        padding = (0, self.capacity - len(self.counts))
        codes = tuple(np.pad(column, padding) for column in self.codes)
        columns = pack_columns(codes, np.pad(self.counts, padding))
        return self._FORMAT.pack(fields("<Q", self.capacity), columns, version=self._MERGED)

    @classmethod
    def from_bytes(cls, universe: Universe, data: bytes) -> Block:
        """Inverse of ``to_bytes``.

        Raises:
            CorruptState: An unknown version, a wrong length, a cell outside the universe, or a column in
                order of arrival that holds other rows than are counted.
        """
        reader = cls._FORMAT.read(data)
        if reader.version == cls._MERGED:
            return cls._merged(universe, reader)
        length, n_columns = reader.fields("<QB")
        merged = cls._FORMAT.read(reader.take(length))
        reader.require(merged.version == cls._MERGED)
        block = cls._merged(universe, merged)
        return replace(block, ordered=_ordered(universe, block, n_columns, reader))

    @classmethod
    def _merged(cls, universe: Universe, reader: Reader) -> Block:
        (capacity,) = reader.fields("<Q")
        codes, counts = unpack_columns(universe, reader, capacity, has_counts=True)
        rows = Rows(codes, counts)
        occupied = rows.entry_counts > 0  # the rest is padding
        kept = tuple(column[occupied] for column in codes)
        return cls(rows.n_rows, capacity, kept, rows.entry_counts[occupied])


class Blocks:
    """A data set's sealed blocks, in order.

    Attributes:
        vault: Secrets that looks drew once, by name, as stored bytes. Private like the rows.
    """

    def __init__(self, universe: Universe, blocks: Iterable[Block] = ()) -> None:
        self._universe = universe
        self._blocks = list(blocks)
        self.vault: dict[str, bytes] = {}

    def append(self, block: Block) -> None:
        self._blocks.append(block)

    def __len__(self) -> int:
        return len(self._blocks)

    def __repr__(self) -> str:
        return f"Blocks({len(self)})"

    @property
    def sizes(self) -> list[int]:
        """Rows of each block; public."""
        return [block.n_rows for block in self._blocks]

    def marginal(self, attributes: tuple[int, ...], blocks: range) -> Counts:
        """Counts of each block over ``attributes``, exact; a read of private data.

        Args:
            attributes: Indices, ascending; () asks for the number of rows.
            blocks: The blocks, by absolute index.

        Returns:
            int64, shape (len(blocks), size of each attribute).

        Raises:
            ValueError: Attributes that do not ascend, or a block that is not sealed.
        """
        if list(attributes) != sorted(set(attributes)):
            raise ValueError("attributes must ascend")
        if blocks and not 0 <= min(blocks) <= max(blocks) < len(self):
            raise ValueError("a block of the window is not sealed")
        shape = tuple(self._universe.shape[a] for a in attributes)
        table = np.zeros((len(blocks), math.prod(shape)), dtype=np.int64)
        for counts, index in zip(table, blocks, strict=True):
            block = self._blocks[index]
            cells = _ravel([block.codes[a] for a in attributes], shape, len(block.counts))
            # Not bincount: it adds weights as floats, which lose counts above 2**53.
            np.add.at(counts, cells, block.counts)
        return table.reshape(len(blocks), *shape)

    def in_order(self, attribute: int, block: int) -> Codes:
        """Code of every row of one block, in order of arrival, shape (n_rows,); a read of private data.

        Raises:
            ValueError: The block is not sealed, or keeps no such column.
        """
        if not 0 <= block < len(self):
            raise ValueError("the block is not sealed")
        if attribute not in self._blocks[block].ordered:
            raise ValueError("the block does not keep this attribute in order of arrival")
        return self._blocks[block].ordered[attribute]


def tables_of(data: Blocks, attributes: tuple[int, ...], blocks: range) -> Iterator[Counts]:
    """The marginal of one block after the other, in the memory of one table however many there are."""
    for block in blocks:
        yield data.marginal(attributes, range(block, block + 1))[0]


def count_of(data: Blocks, predicate: Predicate, blocks: range) -> int:
    """Rows that satisfy a predicate in some blocks together, exact. Private."""
    tables = tables_of(data, predicate.attributes, blocks)
    return sum(int(table[predicate.mask].sum()) for table in tables)


def _unrolled(rows: Rows, attribute: int) -> Codes:
    """Code of every row, shape (n_rows,)."""
    column = rows.codes[attribute]
    return column if rows.counts is None else np.repeat(column, rows.counts)


def _ordered(universe: Universe, block: Block, n_columns: int, reader: Reader) -> dict[int, Codes]:
    """The columns in order of arrival, stored behind ``block``: which attributes, then their codes."""
    attributes = list(reader.take(n_columns))
    known = sorted(set(attributes) & set(range(len(universe.shape))))
    reader.require(attributes and attributes == known)
    kept = Universe(tuple(universe.attributes[a] for a in attributes))
    columns, _ = unpack_columns(kept, reader, block.n_rows, has_counts=False)
    for attribute, column in zip(attributes, columns, strict=True):
        counts = Blocks(universe, [block]).marginal((attribute,), range(1))[0]
        reader.require(
            np.array_equal(np.bincount(column, minlength=len(counts)), counts),
            "keeps other rows in order than it counts",
        )
    return dict(zip(attributes, columns, strict=True))


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


def _merge(ids: _Ids, counts: Counts | None) -> tuple[npt.NDArray[np.intp], Counts]:
    """First entry of each distinct id, and the rows that its entries count together."""
    if not len(ids):
        return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.int64)
    order = np.argsort(ids, kind="stable")
    in_order = ids[order]
    starts = np.flatnonzero(np.r_[True, in_order[1:] != in_order[:-1]])
    if counts is None:
        return order[starts], np.diff(starts, append=len(ids)).astype(np.int64)
    return order[starts], np.add.reduceat(counts[order], starts)


__all__ = ["MAX_ORDERED", "Block", "Blocks", "count_of", "tables_of"]
