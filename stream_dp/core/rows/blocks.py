"""Sealed blocks of rows. Private: ``Blocks.marginal``, ``tables``, ``totals`` and ``in_order`` are all of it.

Where there are running totals, the exact counts of the ticks of open periods are next to them.

A block is the rows that opened a phase, in slabs by column: a look reads the columns that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Final, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt

from stream_dp.core.queries.query import Predicate
from stream_dp.core.rows.column_values import Codes
from stream_dp.core.rows.encoded_rows import Counts, Rows, check_total
from stream_dp.core.rows.key_texts import KeyTexts, Texts, columns_of, units_by_text
from stream_dp.core.rows.person_slots import Slots
from stream_dp.core.rows.slabs import (
    WEIGHT,
    SecretOrder,
    Slab,
    TableAsked,
    found_slab,
    merged,
    merges,
    slabs_in_order,
    slabs_of,
    zeros_of,
)
from stream_dp.core.rows.slot_counts import Column
from stream_dp.core.rows.universe import Universe
from stream_dp.core.running.tick_counts import TickCounts

MAX_ORDERED: Final = 2**22
"""Most rows of a block whose columns are kept in order of arrival."""


@dataclass(frozen=True, eq=False)
class Block:
    """The rows that opened one phase.

    Attributes:
        n_rows: Rows sealed; public. Where rows are protected, they all count. Where persons are, some of them
            do, and how many is private.
        slabs: Its rows by column.
        ordered: Slabs of the codes of some attributes in order of arrival. There are none where the block has
            more than ``MAX_ORDERED`` rows.
        texts: What the slots of each of ``slabs`` say of keys, and whose rows they are where persons are
            protected. Slots that do not count say nothing. Empty where no values are found.
        found: The codes of the attributes whose values are found, of the slots of each of ``slabs``.
        owners: The persons and the keys of the rows in the slots of each of ``slabs``. Empty where no row is
            erased or corrected later.
    """

    n_rows: int
    slabs: tuple[Slab, ...]
    ordered: tuple[Slab, ...] = ()
    texts: tuple[Slab, ...] = ()
    found: tuple[Slab, ...] = ()
    owners: tuple[Slab, ...] = ()

    @classmethod
    def seal(
        cls,
        universe: Universe,
        rows: Rows,
        ordered: Iterable[int] = (),
        *,
        counted: npt.NDArray[np.bool_] | None = None,
        order: SecretOrder | None = None,
        owned: bool = False,
    ) -> Block:
        """The block of ``rows``.

        Args:
            universe: The possible rows.
            rows: The rows that waited. An entry that counts w rows arrived as w equal rows.
            ordered: Indices of the attributes to keep in order of arrival too, if the rows are few enough.
                Replacing a row changes one place, but where rows are counted it shifts all that are between
                two entries: what is answered row by row must not take such batches in.
            counted: Marks the rows that count, shape (n_entries,), where the rows say whose they are. The
                others are in no cell.
            order: Draws the secret order of slots. None leaves them as they came, in memory alone.
            owned: Whether it is kept whose the rows are. Then each row keeps its slot.

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
        more = {} if counted is None else {WEIGHT: counted.astype(np.uint8)}
        said = key_columns(rows.texts, rows.whose, counted)
        owners: dict[str, Column] = {}
        if owned:
            assert rows.whose is not None, "rows of persons are changed later"
            owners = {**rows.whose.owners}
        if merges(universe, rows.n_entries) and not owned:
            slabs = [merged(universe, slabs_of(rows, more=more))]
        else:
            slabs = [*slabs_of(rows, order, more=more | said | owners)]
        kept = ordered if rows.n_rows <= MAX_ORDERED else ()
        of_owners = [slab.split(owners) for slab in slabs]
        pairs = [slab.split(said) for slab, _ in of_owners]
        texts = [theirs for _, theirs in pairs if said]
        return cls(
            rows.n_rows,
            tuple(ours for ours, _ in pairs),
            tuple(slabs_in_order(rows, kept)),
            tuple(texts),
            tuple(found_slab(universe, one) for one in texts),
            tuple(theirs for _, theirs in of_owners if owners),
        )

    @property
    def n_bytes(self) -> int:
        """The memory of its columns; public."""
        return sum(
            slab.n_bytes
            for slab in (*self.slabs, *self.ordered, *self.texts, *self.found, *self.owners)
        )


def key_columns(
    texts: Mapping[int, Texts],
    whose: Slots | None,
    counted: npt.NDArray[np.bool_] | None,
) -> dict[str, Column]:
    """The columns of what rows say of values that are found; those that do not count say nothing."""
    if not texts:
        return {}
    if counted is not None:
        texts = {at: said * counted[:, None].astype(np.uint8) for at, said in texts.items()}
    return {**columns_of(texts, None if whose is None else whose.digests)}


def said_by(
    texts: Slab,
    universe: Universe,
    counted: npt.NDArray[np.bool_] | None,
    whose: Slots | None,
    part_of: slice,
) -> Slab:
    """What the rows of a slab say of values that are found, as a sealed block keeps it.

    Args:
        texts: What they say while they wait.
        universe: The possible rows.
        counted: Marks the rows of all slabs that count. None if all do.
        whose: The persons of the rows of all slabs. None where rows are protected.
        part_of: The slots of this slab among those of all.
    """
    said = {at: KeyTexts.of_columns(at, texts.columns).texts for at in universe.found}
    own = None if whose is None else Slots(whose.digests[part_of], whose.ranks[part_of])
    marks = None if counted is None else counted[part_of]
    return replace(texts, columns=key_columns(said, own, marks))


ShapeAt: TypeAlias = Callable[[int], tuple[int, ...]]
"""Returns the sizes of all attributes in a block, 1 for those that its rows do not have."""


class BlockReader(Protocol):
    """Reads and counts sealed blocks."""

    def tables(self, asked: Sequence[TableAsked]) -> Iterator[Counts]:
        """Yields each of some tables in order, exact, int64, of the sizes of its attributes. Private."""

    def in_order(self, attribute: int, block: int) -> Codes | None:
        """Returns the code of every row of a block in order of arrival; None if it is not kept. Private."""

    def texts(self, attribute: int, block: int) -> Iterator[KeyTexts]:
        """Yields what the slots of each slab of a block say of a key. Private."""


class _Held:
    """Reads blocks that are in memory."""

    def __init__(self, shape_at: ShapeAt) -> None:
        self._shape_at = shape_at
        self.blocks: dict[int, Block] = {}

    def tables(self, asked: Sequence[TableAsked]) -> Iterator[Counts]:
        for one in asked:
            shape = self._shape_at(one.block)
            table = zeros_of(shape, one.attributes)
            block = self.blocks[one.block]
            for slab, found in zip_longest(block.slabs, block.found):
                if found is not None:
                    slab = replace(slab, columns={**slab.columns, **found.columns})
                table += one.table(shape, slab)
            yield table

    def in_order(self, attribute: int, block: int) -> Codes | None:
        slabs = self.blocks[block].ordered
        if not slabs or str(attribute) not in slabs[0].columns:
            return None
        return np.concatenate([slab.columns[str(attribute)] for slab in slabs])

    def texts(self, attribute: int, block: int) -> Iterator[KeyTexts]:
        for slab in self.blocks[block].texts:
            yield KeyTexts.of_columns(attribute, slab.columns)


class Blocks:
    """A data set's sealed blocks, in order. The rows of the first ones may be erased.

    Args:
        universe: The possible rows, or the sizes of attributes in each block.
        blocks: The blocks that still have rows.
        erased: The number of rows that each block before them had; public.

    Attributes:
        vault: Secrets that looks drew once, by name, as stored bytes. Private like the rows.
        ticks: The counts of the ticks so far of each open period, by its number. Private like the rows.
    """

    def __init__(
        self,
        universe: Universe | ShapeAt,
        blocks: Iterable[Block] = (),
        erased: Iterable[int] = (),
    ) -> None:
        self._shape_at: ShapeAt = (
            universe if callable(universe) else lambda block: universe.rows_shape
        )
        self._sizes = list(erased)
        self._n_erased = len(self._sizes)
        self._held = _Held(self._shape_at)
        self._reader: BlockReader = self._held
        self.vault: dict[str, bytes] = {}
        self.ticks: dict[int, list[TickCounts]] = {}
        for block in blocks:
            self.append(block)

    @classmethod
    def elsewhere(
        cls, shape_at: ShapeAt, sizes: Iterable[int], n_erased: int, reader: BlockReader
    ) -> Blocks:
        """Blocks that are read where they are kept.

        Args:
            shape_at: The sizes of attributes in a block.
            sizes: The number of rows of each block, those included that are erased; public.
            n_erased: The number of first blocks whose rows are erased.
            reader: Reads and counts them.
        """
        found = cls(shape_at, erased=sizes)
        found._n_erased = n_erased
        found._reader = reader
        return found

    def append(self, block: Block) -> None:
        """Adds the next block, and holds it in memory."""
        self._held.blocks[len(self._sizes)] = block
        self.sealed(block.n_rows)

    def sealed(self, n_rows: int) -> None:
        """Adds the next block, which is kept elsewhere."""
        self._sizes.append(n_rows)

    def add_rows(self, block: int, n_rows: int) -> None:
        """Says that a block, which is kept elsewhere, has got more rows."""
        self._sizes[block] += n_rows

    def erase(self, n_blocks: int) -> None:
        """Forgets the rows of the first ``n_blocks`` blocks; their sizes, which are public, stay."""
        self._n_erased = max(self._n_erased, min(n_blocks, len(self)))
        held = self._held.blocks
        for index in [index for index in held if index < self._n_erased]:
            del held[index]

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
        return self._stacked(attributes, blocks, None)

    def tables(self, asked: Sequence[tuple[tuple[int, ...], int]]) -> Iterator[Counts]:
        """Counts of single blocks, exact, one after the other: in the memory of one table; private data.

        Args:
            asked: The attributes of each table, as in ``marginal``, and the block by its absolute index.

        Yields:
            int64, of the sizes of the attributes.

        Raises:
            ValueError: Attributes that do not ascend, or a block that is not sealed or is erased.
        """
        return self._counted([TableAsked(*one) for one in asked])

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
        return self._stacked(attributes, blocks, measured)

    def _stacked(self, attributes: tuple[int, ...], blocks: range, measured: int | None) -> Counts:
        asked = [TableAsked(attributes, block, measured) for block in blocks]
        shape = zeros_of(self._shape_at(blocks.start), attributes).shape
        found = np.zeros((len(blocks), *shape), dtype=np.int64)
        for at, table in enumerate(self._counted(asked)):
            found[at] = table
        return found

    def _counted(self, asked: Sequence[TableAsked]) -> Iterator[Counts]:
        for one in asked:
            if list(one.attributes) != sorted(set(one.attributes)):
                raise ValueError("attributes must ascend")
        self.check(one.block for one in asked)
        return self._reader.tables(asked)

    def in_order(self, attribute: int, block: int) -> Codes:
        """Code of every row of one block, in order of arrival, shape (n_rows,); a read of private data.

        Raises:
            ValueError: The block is not sealed, is erased, or keeps no such column.
        """
        self.check((block,))
        found = self._reader.in_order(attribute, block)
        if found is None:
            raise ValueError("the block does not keep this attribute in order of arrival")
        return found

    def keys(self, attribute: int, blocks: range) -> dict[bytes, int]:
        """The rows of some blocks that say each key, or the persons of whom a row does so; private data.

        Args:
            attribute: Index of an attribute that names its values.
            blocks: The blocks, by absolute index.

        Returns:
            The keys in UTF-8, and their exact counts.

        Raises:
            ValueError: A block is not sealed, or is erased.
        """
        self.check(blocks)
        return units_by_text(
            said for block in blocks for said in self._reader.texts(attribute, block)
        )


def tables_of(data: Blocks, attributes: tuple[int, ...], blocks: range) -> Iterator[Counts]:
    """The marginal of one block after the other, in the memory of one table however many there are."""
    return data.tables([(attributes, block) for block in blocks])


def count_of(data: Blocks, predicate: Predicate, blocks: range) -> int:
    """Rows that satisfy a predicate in some blocks together, exact. Private."""
    tables = tables_of(data, predicate.attributes, blocks)
    return sum(int(table[predicate.mask].sum()) for table in tables)
