"""The sealed blocks of one data set, one for each phase."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from stream_dp.core.rows.attributes.boolean import TRUE
from stream_dp.core.rows.blocks import MAX_ORDERED, Block, Blocks, said_by
from stream_dp.core.rows.encoded_rows import check_total
from stream_dp.core.rows.key_texts import columns_of
from stream_dp.core.rows.person_records import Since, folded_columns, names_of_folded
from stream_dp.core.rows.person_slots import DIGEST_BYTES, Digests, Slots
from stream_dp.core.rows.row_changes import RowChanges
from stream_dp.core.rows.slabs import WEIGHT as WEIGHT_COLUMN
from stream_dp.core.rows.slabs import Columns, Slab, found_slab, merged, merges
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import RowsGone
from stream_dp.pipeline.datasets.engine import Engine
from stream_dp.pipeline.rows.block_owners import BlockOwners, owner_slabs
from stream_dp.pipeline.rows.column_cache import ColumnCache
from stream_dp.pipeline.rows.counting_cluster import CountingCluster
from stream_dp.pipeline.rows.own_values import (
    BLOCK,
    FOUND,
    ORDERED,
    SAID,
    TEXT,
    WAITING,
    WEIGHT,
    OwnValues,
)
from stream_dp.pipeline.rows.stored_blocks import SlabKind, StoredBlocks
from stream_dp.pipeline.rows.waiting.waiting_changes import WaitingChanges
from stream_dp.pipeline.rows.waiting.waiting_lots import LotSlab, WaitingLots
from stream_dp.state.private_names import Named


class SealedBlocks:
    """The blocks, as looks read them. Private; how many rows each has is public.

    Attributes:
        data: The blocks.
        stored: Reads them in the thread of a look.
        owners: The persons behind their rows, where rows can be erased.
        bare: The number of first phases that have no rows since those of the last of them were lost.

    Args:
        dataset: The name of the data set.
        engine: What follows from its definition.
        values: Its private values.
        secret: Returns the secret of the digests of its persons.
        cache: The cache that the data sets of the worker share.
        cluster: Counts large looks. None to count all of them in the worker.
    """

    def __init__(
        self,
        dataset: str,
        engine: Engine,
        values: OwnValues,
        secret: Callable[[], bytes],
        cache: ColumnCache,
        cluster: CountingCluster | None = None,
    ) -> None:
        self._dataset, self._engine, self._values = dataset, engine, values
        self._cache, self._cluster = cache, cluster
        self.owners = BlockOwners(values, secret)
        self.restart()

    def restart(self, sizes: Sequence[int] = (), erased: int = 0, bare: int = 0) -> None:
        """Begins again with blocks that are kept elsewhere.

        Args:
            sizes: The number of rows of each block.
            erased: The number of first blocks whose rows are erased, or lost.
            bare: How many of these are lost.
        """
        self._slabs = {kind: _by_phase(self._values, kind) for kind in _KINDS}
        self.owners.read()
        stored = self.stored = StoredBlocks(
            self._dataset,
            self._engine.shape_at,
            self._cache,
            self._of_block,
            self._values.parts,
            lambda: self.data.sizes,
            self._cluster,
        )
        self.data = Blocks.elsewhere(self._engine.shape_at, sizes, erased, stored)
        self.bare = bare

    def __len__(self) -> int:
        return len(self.data)

    def n_rows(self, window: range) -> int:
        """Returns the number of rows in the blocks of ``window``."""
        return sum(self.data.sizes[window.start : window.stop])

    def _of_block(self, index: int, kind: SlabKind) -> list[tuple[Named, ...]]:
        if kind != "rows":
            return [(slab,) for slab in self._slabs[_ALONE[kind]][index + 1].values()]
        layers = [self._slabs[of][index + 1] for of in (BLOCK, WEIGHT, FOUND)]
        return [tuple(of[at] for of in layers if at in of) for at in layers[0]]

    async def keep(self, index: int, block: Block, after: int = 0) -> None:
        """Keeps a block as private values. If the block is there, these rows come to it.

        Args:
            index: The index of the block.
            block: The block.
            after: The number of the last batch whose changes are made in it.
        """
        first = self._n_slabs(index)
        rows, texts = (BLOCK, block.slabs), (TEXT, block.texts)
        for kind, slabs in (rows, (ORDERED, block.ordered), texts, (FOUND, block.found)):
            await self._keep(kind, index + 1, first, slabs)
        for at, slab in enumerate(block.owners, first):
            await self.owners.keep(index + 1, at, slab, after)

    def _n_slabs(self, index: int) -> int:
        return len(self._slabs[BLOCK][index + 1])

    async def keep_lots(
        self,
        index: int,
        lots: WaitingLots,
        marks: npt.NDArray[np.bool_] | None,
        whose: Slots | None,
        since: Since,
        *,
        in_order: bool,
        after: int = 0,
    ) -> None:
        """Keeps rows that wait as slabs as a block. If the block is there, these rows come to it.

        Args:
            index: The index of the block.
            lots: The rows.
            marks: Marks those that count, shape (n_slots,). None if all do.
            whose: The persons of the rows, shape (n_slots,). None where rows are protected.
            since: How many phases ago they were there before, for attributes that say it.
            in_order: Whether codes as they came go with the block.
            after: The number of the last batch whose changes are made in them.

        Raises:
            InvalidBatch: They are more rows than a block may have.
            CorruptState: They are nowhere any more.
        """
        universe = self._engine.rows_universe(index)
        check_total(lots.n_rows, "batch", universe.max_rows)
        phase, first, weights = index + 1, self._n_slabs(index), list[Slab]()
        ends = np.cumsum([slab.n_slots for slab in lots])
        if marks is not None:
            parts = np.split(marks.astype(np.uint8), ends[:-1])
            weights = [Slab(len(part), len(part), {WEIGHT_COLUMN: part}) for part in parts]
        owned = self._engine.definition.erasure is not None
        folded = await self._folded(universe, lots, whose, since)
        if merges(universe, lots.n_slots) and not owned:
            whole = await self._merged(universe, lots, weights, folded)
            await self._keep(BLOCK, phase, first, [whole])
        else:
            await self._keep(WEIGHT, phase, first, weights)
            for at, slab in enumerate(lots):
                await self._keep_lot(phase, first + at, lots, slab, folded[at] if folded else None)
        if universe.found:
            for at, (slab, end) in enumerate(zip(lots, ends.tolist(), strict=True), first):
                part_of = slice(end - slab.n_slots, end)
                said = await lots.read_slab(SAID, slab)
                texts = said_by(said, universe, marks, whose, part_of)
                await self._keep(TEXT, phase, at, [texts])
                await self._keep(FOUND, phase, at, [found_slab(universe, texts)])
        if owned:
            assert whose is not None, "rows of persons are erased"
            slots = owner_slabs(whose, [slab.n_slots for slab in lots])
            for at, owners in enumerate(slots, first):
                await self.owners.keep(phase, at, owners, after)
        if in_order and lots.n_rows <= MAX_ORDERED:
            for at, what in enumerate(lots.arrived(), first):
                named = self._values.rename(what, f"{ORDERED}{phase} {at}")
                self._slabs[ORDERED][phase][at] = named

    async def _keep_lot(
        self, phase: int, at: int, lots: WaitingLots, slab: LotSlab, folded: Columns | None
    ) -> None:
        """Keeps a slab of rows that wait as a slab of a phase: as it is, or with what is folded."""
        if folded is not None:
            rows = (await lots.read_slab(WAITING, slab)).with_columns(folded)
            await self._keep(BLOCK, phase, at, [rows])
        else:
            named = self._values.rename(f"{WAITING}{slab.key}", f"{BLOCK}{phase} {at}")
            self._slabs[BLOCK][phase][at] = named

    async def change(self, index: int, at: int, changes: RowChanges, after: int) -> None:
        """Keeps a slab of a block after changes that came behind it, whether or not they find a row of it.

        Args:
            index: The index of the block.
            at: The number of the slab.
            changes: The changes.
            after: The number of the last of them.

        Raises:
            RowsGone: It is nowhere any more.
        """
        phase, universe = index + 1, self._engine.rows_universe(index)
        found = await self.owners.slots(phase, at)
        if found is None:
            raise RowsGone(self._dataset, phase)
        slots, owners = found
        hits = await asyncio.to_thread(changes.hits, slots)
        texts = {} if changes.rows is None else columns_of(changes.rows.texts)
        counted = np.zeros(len(slots), np.bool_)
        for kind in (WEIGHT, BLOCK, TEXT, FOUND):  # what counts comes before what it says of keys
            if at not in self._slabs[kind][phase]:
                continue
            slab = await self._values.slab(f"{kind}{phase} {at}")
            if slab is None:
                raise RowsGone(self._dataset, phase)
            if WEIGHT_COLUMN in slab.columns:
                counted = slab.columns[WEIGHT_COLUMN].astype(np.bool_)
            more = _found_codes(universe, changes) if kind == FOUND else texts
            blank = _blank_codes(universe) if kind == FOUND else {}
            # A row that does not count says nothing of keys, whatever it is corrected to.
            own = hits.among(counted) if kind in (TEXT, FOUND) else hits
            changed = await asyncio.to_thread(changes.of_slab, slab, own, more, blank)
            self.stored.erase([self._slabs[kind][phase][at].name])
            await self._keep(kind, phase, at, [changed])
        await self.owners.keep(phase, at, changes.of_slab(owners, hits), after)

    async def persons(
        self, index: int, of: Iterable[int | None], changes: WaitingChanges
    ) -> dict[int | None, Digests]:
        """The persons of whom a row of a block counts, shape (n_persons, 12) each. Private.

        There are none where the rows of the block are erased, or lost.

        Args:
            index: The index of the block.
            of: The indices of booleans. They are true of the persons under each. None for all persons.
            changes: The changes that wait. Who is erased by one is left out.
        """
        schema, phase = self._engine.schema, index + 1
        true = {
            one: WEIGHT_COLUMN if one is None else str(schema.index_at(one, schema.at(index)))
            for one in of
        }
        found = {one: [np.zeros((0, DIGEST_BYTES), np.uint8)] for one in true}
        for at, after in self.owners.after.get(phase, {}).items():
            owned, columns = await self.owners.slots(phase, at), dict[str, npt.NDArray[Any]]()
            for kind in (WEIGHT, BLOCK):
                if at in self._slabs[kind][phase]:
                    slab = await self._values.slab(f"{kind}{phase} {at}")
                    columns |= {} if slab is None else slab.columns
            if owned is None or not {WEIGHT_COLUMN, *true.values()} <= columns.keys():
                continue  # they are nowhere any more
            counted = columns[WEIGHT_COLUMN].astype(np.bool_)
            counted &= changes.after(after).hits(owned[0]).kept
            for one, name in true.items():
                found[one].append(owned[0].digests[counted & (columns[name] == TRUE)])
        return {one: np.concatenate(parts) for one, parts in found.items()}

    async def find_again(self, index: int) -> None:
        """Puts the rows of a block into the cells of the values that are known by now."""
        phase, universe = index + 1, self._engine.rows_universe(index)
        self.stored.erase([named.name for named in self._slabs[FOUND].pop(phase, {}).values()])
        for at in self._slabs[TEXT][phase]:
            texts = await self._values.slab(f"{TEXT}{phase} {at}")
            if texts is None:
                raise self._values.nowhere("what rows say is")
            await self._keep(FOUND, phase, at, [found_slab(universe, texts)])

    async def _keep(self, kind: str, phase: int, first: int, slabs: Sequence[Slab]) -> None:
        """Keeps slabs of a phase, of which the first one has a number."""
        numbered = {f"{kind}{phase} {at}": slab for at, slab in enumerate(slabs, first)}
        named = await self._values.keep_slabs(numbered)
        self._slabs[kind][phase].update(enumerate(named, first))

    def drop_texts(self, n_blocks: int) -> None:
        """Drafts that what the rows of the first blocks say is erased: no look needs it any more."""
        self._drop(TEXT, n_blocks)

    async def _merged(
        self,
        universe: Universe,
        lots: WaitingLots,
        weights: Sequence[Slab],
        folded: Sequence[Columns],
    ) -> Slab:
        """The slab of all cells, in the memory of one slab more."""
        found = merged(universe, ())
        for at, slab in enumerate(lots):
            rows = await lots.read_slab(WAITING, slab)
            if weights:
                rows = rows.with_columns(weights[at].columns)
            if folded:
                rows = rows.with_columns(folded[at])
            found = merged(universe, (found, rows))
        return found

    async def _folded(
        self, universe: Universe, lots: WaitingLots, whose: Slots | None, since: Since
    ) -> list[Columns]:
        """What all slots of a person say together, for each slab. None where nothing is folded."""
        names = names_of_folded(universe)
        if not names:
            return []
        assert whose is not None, "it is the rows of persons that are folded"
        parts = [(await lots.read_slab(WAITING, slab)).split(names)[1].columns for slab in lots]
        whole = {name: np.concatenate([part[name] for part in parts]) for name in names}
        found = await asyncio.to_thread(folded_columns, universe, whose, whole, since)
        ends = np.cumsum([slab.n_slots for slab in lots])[:-1]
        split = {name: np.split(column, ends) for name, column in found.items()}
        return [{name: of[at] for name, of in split.items()} for at in range(len(parts))]

    def erase(self, n_blocks: int) -> None:
        """Drafts that the rows of the first blocks are erased."""
        self.data.erase(n_blocks)
        for kind in _KINDS:
            self._drop(kind, n_blocks)
        self.owners.drop(n_blocks)

    def _drop(self, kind: str, n_blocks: int) -> None:
        slabs = self._slabs[kind]
        for phase in [phase for phase in slabs if phase <= n_blocks]:
            self.stored.erase([slab.name for slab in slabs.pop(phase).values()])
            for at in self._values.named(f"{kind}{phase} "):
                self._values.discard(f"{kind}{phase} {at}")


_KINDS: Final = (BLOCK, WEIGHT, ORDERED, TEXT, FOUND)
_ALONE: Final = {"ordered": ORDERED, "texts": TEXT}
"""Slabs that are read without those of other kinds."""


def _found_codes(universe: Universe, changes: RowChanges) -> Columns:
    """The codes of corrected rows, of attributes whose values are found."""
    rows = changes.rows
    if rows is None or not rows.texts.keys() >= universe.found.keys():
        return {}
    texts = Slab(rows.n_rows, rows.n_entries, columns_of(rows.texts))
    return found_slab(universe, texts).columns


def _blank_codes(universe: Universe) -> dict[str, int]:
    """The codes of a row that says nothing, of attributes whose values are found."""
    return {str(at): int(one.encode([None])[0]) for at, one in universe.found.items()}


def _by_phase(values: OwnValues, kind: str) -> defaultdict[int, dict[int, Named]]:
    """The slabs of each phase, by their numbers, in order."""
    found: defaultdict[int, dict[int, Named]] = defaultdict(dict)
    numbered = {tuple(map(int, key.split(" "))): named for key, named in values.named(kind).items()}
    for phase, at in sorted(numbered):
        found[phase][at] = numbered[phase, at]
    return found
