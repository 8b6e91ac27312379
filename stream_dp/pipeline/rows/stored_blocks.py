"""Reads the columns that a look needs, ahead of the thread that counts them, and counts.

A look reads the index of each slab of its blocks, and then the columns that it needs, some megabytes at a
time. While it counts what it has, the next ones are on their way.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Final, Literal, NamedTuple, Protocol

import numpy as np

from stream_dp.core.rows.blocks import ShapeAt
from stream_dp.core.rows.column_values import Codes
from stream_dp.core.rows.encoded_rows import Counts
from stream_dp.core.rows.key_texts import KeyTexts
from stream_dp.core.rows.slabs import Slab, SlabIndex, TableAsked, zeros_of
from stream_dp.core.rows.slot_counts import Column
from stream_dp.errors import RowsGone, StoreUnavailable
from stream_dp.pipeline.rows.column_cache import ColumnCache, ColumnKey
from stream_dp.pipeline.rows.counting_cluster import TASK_SLABS, CountingCluster, SlabStep
from stream_dp.state.private_names import Named, is_named

_log = logging.getLogger(__name__)

_GIVEN_UP = "nobody waits for this look any more, so it reads nothing further"

_AHEAD_BYTES: Final = 2**23
"""The bytes of columns that are read at a time, if they are of several slabs."""

_INDEXES: Final = 1_000


class ReadsParts(Protocol):
    """Reads parts of private values, on the event loop, see ``OwnValues.parts``."""

    def __call__(
        self, places: Sequence[tuple[Named, int]], *, on_topic: bool = False
    ) -> Awaitable[list[bytes | None]]: ...


SlabKind = Literal["rows", "ordered", "texts"]

Layers = tuple[Named, ...]
"""The values that have the columns of one slab of a block."""


class _Place(NamedTuple):
    """A part of a value of a block."""

    block: int
    value: Named
    number: int


@dataclass(frozen=True, slots=True)
class _Step:
    """What is counted at once: a slab, for one table.

    Attributes:
        table: The number of the table.
        indexes: The index of each of its layers.
        places: Where the columns are that it needs, by their names.
    """

    table: int
    asked: TableAsked
    indexes: Mapping[bytes, SlabIndex]
    places: Mapping[str, _Place]

    @classmethod
    def of(
        cls, table: int, asked: TableAsked, layers: Layers, indexes: Mapping[bytes, SlabIndex]
    ) -> _Step:
        there = {name: layer for layer in layers for name in indexes[layer.name].names}
        places = {
            name: _Place(asked.block, there[name], indexes[there[name].name].place(name))
            for name in asked.needs(there)
        }
        return cls(table, asked, {layer.name: indexes[layer.name] for layer in layers}, places)

    @property
    def n_bytes(self) -> int:
        return sum(
            self.indexes[place.value.name].n_bytes(place.number) for place in self.places.values()
        )

    def slab(self, columns: Mapping[tuple[bytes, int], Column]) -> Slab:
        """The slab, as much of it as is needed."""
        index = next(iter(self.indexes.values()))
        read = {name: columns[at.value.name, at.number] for name, at in self.places.items()}
        return Slab(index.n_rows, index.n_slots, read)


@dataclass(eq=False, repr=False)
class StoredBlocks:
    """The sealed blocks of one data set, as a look reads and counts them in its thread.

    Attributes:
        dataset: The name of the data set.
        _shape_at: Returns the sizes of all attributes in a block, 1 for those that its rows do not have.
        _cache: The cache that the data sets of the worker share.
        _slabs: Returns the slabs of a block, by its absolute index, each as its layers: of its rows, of its
            codes in order of arrival, or of what its rows say of values that are found.
        _parts: Reads parts of slabs.
        _sizes: Returns the number of rows of each block, which is public.
        _cluster: Counts large looks. None to count all of them here.
    """

    dataset: str
    _shape_at: ShapeAt
    _cache: ColumnCache
    _slabs: Callable[[int, SlabKind], Sequence[Layers]]
    _parts: ReadsParts
    _sizes: Callable[[], Sequence[int]]
    _cluster: CountingCluster | None = None
    _loop: asyncio.AbstractEventLoop | None = field(default=None, init=False)
    _under_way: set[asyncio.Task[Any]] = field(default_factory=set, init=False)
    _forgotten: bool = field(default=False, init=False)

    @contextlib.asynccontextmanager
    async def readable(self) -> AsyncIterator[None]:
        """Lets a thread count while the caller, on the event loop, waits for it. One look at a time does.

        When the caller is cancelled, the thread gets nothing further.
        """
        async with self._cache.turn:
            self._loop = asyncio.get_running_loop()
            try:
                yield
            finally:
                self._loop = None
                for task in self._under_way:
                    task.cancel()

    # ------------------------------------------------------------ in the thread of a look

    def tables(self, asked: Sequence[TableAsked]) -> Iterator[Counts]:
        """Yields each of some tables in order, see ``BlockReader``.

        Raises:
            StoreError: A column cannot be read.
            RowsGone: A column is nowhere any more.
        """
        slabs = {one.block: self._slabs(one.block, "rows") for one in asked}
        elsewhere = self._counted_elsewhere(asked, slabs)
        here = [one for number, one in enumerate(asked) if number not in elsewhere]
        indexes = self._indexes({one.block: slabs[one.block] for one in here})
        for block in {one.block for one in here}:
            self._check_whole(block, slabs[block], indexes)
        steps = [
            _Step.of(table, one, layers, indexes)
            for table, one in enumerate(asked)
            if table not in elsewhere
            for layers in slabs[one.block]
        ]
        counted = self._counted(steps)
        found = next(counted, None)
        for number, one in enumerate(asked):
            if number in elsewhere:
                yield elsewhere[number]
                continue
            table = zeros_of(self._shape_at(one.block), one.attributes)
            while found is not None and found[0] == number:
                table += found[1]
                found = next(counted, None)
            yield table

    def _counted_elsewhere(
        self, asked: Sequence[TableAsked], slabs: Mapping[int, Sequence[Layers]]
    ) -> dict[int, Counts]:
        """The tables that the cluster has counted, by their numbers: of a large look at files alone."""
        steps = [
            SlabStep(number, one, tuple(layer.name for layer in layers))
            for number, one in enumerate(asked)
            for layers in slabs[one.block]
        ]
        in_files = all(
            layer.store for some in slabs.values() for layers in some for layer in layers
        )
        if self._cluster is None or not in_files or len(steps) <= TASK_SLABS:
            return {}
        found = {}
        for number, one in self._cluster.tables(self.dataset, self._shape_at, steps).items():
            if one.n_rows == self._sizes()[asked[number].block]:
                found[number] = one.counts
            else:
                _log.error("the Dask cluster has counted other rows than a block has")
        return found

    def _counted(self, steps: Sequence[_Step]) -> Iterator[tuple[int, Counts]]:
        """Yields the number of the table and the counts of each step."""
        groups = _groups(steps)
        ahead = self._begun(groups[0]) if groups else None
        for at, group in enumerate(groups):
            assert ahead is not None, "the one before has begun it"
            columns, ahead = self._columns(group, *ahead), None
            if at + 1 < len(groups):
                ahead = self._begun(groups[at + 1])
            for step in group:
                yield (
                    step.table,
                    step.asked.table(self._shape_at(step.asked.block), step.slab(columns)),
                )

    def in_order(self, attribute: int, block: int) -> Codes | None:
        """Returns the code of every row of a block in order of arrival, see ``BlockReader``.

        Raises:
            StoreError: A column cannot be read.
            RowsGone: A column is nowhere any more.
        """
        slabs = {block: self._slabs(block, "ordered")}
        indexes, name, steps = self._indexes(slabs), str(attribute), []
        if slabs[block]:
            self._check_whole(block, slabs[block], indexes)
        for (value,) in slabs[block]:
            index = indexes[value.name]
            if name not in index.names:
                return None
            places = {name: _Place(block, value, index.place(name))}
            steps.append(_Step(0, TableAsked((), block), {value.name: index}, places))
        found = []
        for group in _groups(steps):
            columns = self._columns(group, *self._begun(group))
            found += [step.slab(columns).columns[name] for step in group]
        return np.concatenate(found) if found else None

    def texts(self, attribute: int, block: int) -> Iterator[KeyTexts]:
        """Yields what the slots of each slab say of a value that is found, see ``BlockReader``.

        Raises:
            StoreError: A column cannot be read.
            RowsGone: A column is nowhere any more.
        """
        slabs = {block: self._slabs(block, "texts")}
        indexes = self._indexes(slabs)
        self._check_whole(block, slabs[block], indexes)
        for (value,) in slabs[block]:
            index = indexes[value.name]
            names = KeyTexts.columns(attribute, index.names)
            places = {name: _Place(block, value, index.place(name)) for name in names}
            step = _Step(0, TableAsked((), block), {value.name: index}, places)
            columns = self._columns([step], *self._begun([step]))
            yield KeyTexts.of_columns(attribute, step.slab(columns).columns)

    def _check_whole(
        self, block: int, slabs: Sequence[Layers], indexes: Mapping[bytes, SlabIndex]
    ) -> None:
        """Refuses a block of which a slab is missing: its rows are not to be taken for none."""
        if sum(indexes[first.name].n_rows for first, *_ in slabs) != self._sizes()[block]:
            raise RowsGone(self.dataset, block + 1)

    def _indexes(self, slabs: Mapping[int, Sequence[Layers]]) -> dict[bytes, SlabIndex]:
        """The indexes of the values of some blocks, by their names."""
        found: dict[bytes, SlabIndex] = {}
        lacking = []
        for block, some in slabs.items():
            for value in chain.from_iterable(some):
                index = self._cache.get(ColumnKey(self, value.name, 0))
                if index is None:
                    lacking.append(_Place(block, value, 0))
                else:
                    found[value.name] = index
        for at in range(0, len(lacking), _INDEXES):
            places = lacking[at : at + _INDEXES]
            for place, part in zip(places, self._fetched(places), strict=True):
                name = place.value.name
                first = self._sure(place, part, partial(is_named, name))
                index = found[name] = SlabIndex.from_bytes(first)
                self._keep(ColumnKey(self, name, 0), index, len(first))
        return found

    def _begun(self, group: Sequence[_Step]) -> tuple[list[_Place], Future[list[bytes | None]]]:
        """Begins to read what a group needs and the cache lacks."""
        places = {at[1:]: at for one in group for at in one.places.values()}
        lacking = [at for at in places.values() if self._cache.get(self._key(at)) is None]
        return lacking, self._asked(lacking)

    def _columns(
        self, group: Sequence[_Step], lacking: Sequence[_Place], read: Future[list[bytes | None]]
    ) -> Mapping[tuple[bytes, int], Column]:
        """The columns that a group needs, by the name of the value and the place."""
        indexes = {name: index for step in group for name, index in step.indexes.items()}
        columns: dict[tuple[bytes, int], Column] = {}
        for place, part in zip(lacking, read.result(), strict=True):
            columns[place.value.name, place.number] = self._column(place, part, indexes)
        for place in (place for step in group for place in step.places.values()):
            if (place.value.name, place.number) not in columns:
                column = self._cache.get(self._key(place))
                if column is None:  # it was dropped since it was looked for
                    (part,) = self._fetched([place])
                    column = self._column(place, part, indexes)
                columns[place.value.name, place.number] = column
        return columns

    def _column(
        self, place: _Place, part: bytes | None, indexes: Mapping[bytes, SlabIndex]
    ) -> Column:
        index = indexes[place.value.name]
        stored = self._sure(place, part, partial(index.has, place.number))
        column = index.column(place.number, stored)
        self._keep(self._key(place), column, len(stored))
        return column

    def _key(self, place: _Place) -> ColumnKey:
        return ColumnKey(self, place.value.name, place.number)

    def _sure(self, place: _Place, stored: bytes | None, is_it: Callable[[bytes], bool]) -> bytes:
        """What was read, if it is what was meant; else what the topic has."""
        if stored is not None and not is_it(stored):
            (stored,) = self._fetched([place], on_topic=True)
        if stored is None or not is_it(stored):
            raise RowsGone(self.dataset, place.block + 1)
        return stored

    def _keep(self, key: ColumnKey, column: Any, n_bytes: int) -> None:
        self._cache.put(key, column, n_bytes)
        if self._forgotten:  # in the meantime, while a look went on
            self._cache.forget(self)

    def _fetched(self, places: Sequence[_Place], *, on_topic: bool = False) -> list[bytes | None]:
        return self._asked(places, on_topic=on_topic).result() if places else []

    def _asked(
        self, places: Sequence[_Place], *, on_topic: bool = False
    ) -> Future[list[bytes | None]]:
        """Begins to read parts on the event loop."""
        loop = self._loop
        if loop is None:
            raise StoreUnavailable(_GIVEN_UP)
        return asyncio.run_coroutine_threadsafe(self._read_here(places, on_topic=on_topic), loop)

    async def _read_here(self, places: Sequence[_Place], *, on_topic: bool) -> list[bytes | None]:
        if self._loop is None:
            raise StoreUnavailable(_GIVEN_UP)
        if not places:
            return []
        task = asyncio.current_task()
        assert task is not None, "it runs in a task"
        self._under_way.add(task)
        try:
            return await self._parts([place[1:] for place in places], on_topic=on_topic)
        finally:
            self._under_way.discard(task)

    # ------------------------------------------------------------ on the event loop

    def erase(self, names: Sequence[bytes]) -> None:
        """Forgets the columns of some slabs."""
        self._cache.forget(self, names)

    def forget(self) -> None:
        """Forgets all columns for ever: the data set is let go of, or retired."""
        self._forgotten = True
        self._cache.forget(self)


def _groups(steps: Sequence[_Step]) -> list[list[_Step]]:
    """Steps that are read at once, in order."""
    groups: list[list[_Step]] = []
    n_bytes = 0
    for step in steps:
        n_bytes += step.n_bytes
        if n_bytes > _AHEAD_BYTES or not groups:
            groups.append([])
            n_bytes = step.n_bytes
        groups[-1].append(step)
    return groups
