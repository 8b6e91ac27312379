"""Columns are read when a look needs them: the same counts, a bounded memory, and never another column."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from stream_dp.core.rows import blocks as blocks_module
from stream_dp.core.rows import slabs
from stream_dp.core.rows.attributes import Category, Number
from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.measured_values import Measure
from stream_dp.core.rows.person_slots import Persons
from stream_dp.core.rows.slabs import WEIGHT, Slab, SlabIndex, TableAsked
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import Fenced, RowsGone, StoreUnavailable
from stream_dp.pipeline.rows import stored_blocks
from stream_dp.pipeline.rows.column_cache import ColumnCache
from stream_dp.pipeline.rows.stored_blocks import Layers, StoredBlocks
from stream_dp.state.private_names import Named, name_of, part_name
from tests.pipeline.scenarios import AA, LATE, asks, flights, phase
from tests.pipeline.world import World
from tests.view import MemoryView
from tests.waiting import until

SIZE = Number("size", (0, 10, 30), missing=True, measure=Measure(0.5, -10.0, 100.0))
PAGES = Universe((Category("page", ("a", "b", "c")), SIZE, Category("user", tuple("stuv"))))
SUBSETS = [some for k in range(4) for some in combinations(range(3), k)]

Part = tuple[bytes, int]


def drawn(form: str, n: int, seed: int) -> Rows:
    draws = np.random.default_rng(seed)
    columns: dict[str, Any] = {
        "page": draws.choice(["a", "b", "c", "?"], n).tolist(),
        "size": draws.choice(np.array([None, -300, 7, 15.5, 1e9]), n).tolist(),
        "user": draws.choice([*"stuvw"], n).tolist(),
    }
    if form == "counted":
        counts = draws.choice([0, 1, 7, 2**33], n).tolist()
        each = zip(*columns.values(), counts, strict=True)
        entries = [dict(zip((*columns, "count"), entry, strict=True)) for entry in each]
        return PAGES.encode_cells(entries)
    if form == "rows":
        return PAGES.encode_columns(columns)
    columns["who"] = draws.choice([*"xyz"], n).tolist()
    return PAGES.encode_columns(columns, Persons("who", bytes(32), f"batch {seed}"))


class Stored:
    """Blocks as they are kept, and what was asked of them.

    Attributes:
        on_topic: The parts that the topic has, by the name of the slab and their number.
        in_redis: Those that Redis has.
        asked: What was asked for at a time, and whether of the topic alone.
    """

    def __init__(self, sealed: Sequence[Block], *, apart: bool = False) -> None:
        self.on_topic: dict[Part, bytes] = {}
        self.held = Blocks(PAGES, sealed)
        self.asked: list[tuple[list[Part], bool]] = []
        self.rows = [[self._kept(slab, apart=apart) for slab in one.slabs] for one in sealed]
        self.ordered = [[self._kept(slab) for slab in one.ordered] for one in sealed]
        self.in_redis = dict(self.on_topic)

    def _kept(self, slab: Slab, *, apart: bool = False) -> Layers:
        layers = slab.split([WEIGHT]) if apart and WEIGHT in slab.columns else (slab,)
        return tuple(map(self._put, layers))

    def _put(self, slab: Slab) -> Named:
        parts = slab.stored(len(self.on_topic).to_bytes(16))
        name = name_of(parts[0])
        self.on_topic |= {(name, number): part for number, part in enumerate(parts)}
        return Named(name, tuple(range(len(parts))))

    async def parts(
        self, places: Sequence[tuple[Named, int]], *, on_topic: bool = False
    ) -> list[bytes | None]:
        asked = [(named.name, number) for named, number in places]
        self.asked.append((asked, on_topic))
        there = self.on_topic if on_topic else {**self.on_topic, **self.in_redis}
        return [there.get(one) for one in asked]

    def reader(self, cache: ColumnCache) -> StoredBlocks:
        def of_block(index: int, kind: str) -> Sequence[Layers]:
            return (self.rows if kind == "rows" else self.ordered)[index]

        return StoredBlocks(
            "pages", lambda block: PAGES.shape, cache, of_block, self.parts, lambda: self.held.sizes
        )

    def columns(self) -> Counter[Part]:
        """How often each part was asked for, but for indexes, and forgets that."""
        found = Counter(one for asked, _ in self.asked for one in asked if one[1])
        self.asked.clear()
        return found

    def named(self, name: str) -> set[Part]:
        """The parts that are a column of the rows of all blocks."""
        found = set()
        for value in (value for some in self.rows for layers in some for value in layers):
            index = SlabIndex.from_bytes(self.on_topic[value.name, 0])
            if name in index.names:
                found.add((value.name, index.place(name)))
        return found


async def taken(reader: StoredBlocks, step: Callable[[], Any]) -> Any:
    """What a look does in its thread."""
    async with reader.readable():
        return await asyncio.to_thread(step)


def tables(reader: StoredBlocks, asked: Sequence[TableAsked]) -> Callable[[], list[Any]]:
    return lambda: [table.tolist() for table in reader.tables(asked)]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slab has seven slots, and one slab is read at a time."""
    monkeypatch.setattr(slabs, "SLOTS", 7)
    monkeypatch.setattr(stored_blocks, "_AHEAD_BYTES", 1)


def sealed(form: str = "rows", sizes: Sequence[int] = (20, 7, 33), **more: Any) -> list[Block]:
    found = []
    for seed, n in enumerate(sizes):
        rows = drawn(form, n, seed)
        marks = np.arange(n) % 3 > 0 if rows.whose is not None else None
        found.append(Block.seal(PAGES, rows, counted=marks, **more))
    return found


# What a look counts -----------------------------------------------------------------------------


ASKED = [
    TableAsked(attributes, block, measured)
    for attributes in SUBSETS
    for block in (1, 0, 2)
    for measured in (None, 1)
]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("most_bytes", [0, 200, 2**20])
@pytest.mark.parametrize("form", ["rows", "counted", "persons", "persons, weights apart", "merged"])
async def test_tables_are_those_of_the_same_blocks_in_memory_whatever_the_cache_has_room_for(
    monkeypatch: pytest.MonkeyPatch, form: str, most_bytes: int
) -> None:
    if form == "merged":
        monkeypatch.setattr(blocks_module, "merges", lambda *_: True)
        monkeypatch.setattr(slabs, "SLOTS", PAGES.n_cells)
    kind = {"merged": "counted"}.get(form, form.partition(",")[0])
    stored = Stored(sealed(kind), apart="apart" in form)
    wanted = [table.tolist() for table in stored.held._counted(ASKED)]
    cache = ColumnCache(most_bytes)
    reader = stored.reader(cache)
    for at_a_time in (1, 50, 2**20):
        monkeypatch.setattr(stored_blocks, "_AHEAD_BYTES", at_a_time)
        assert await taken(reader, tables(reader, ASKED)) == wanted
    assert cache._n_bytes <= most_bytes
    assert max(stored.columns().values()) > 1 or most_bytes > 200


@pytest.mark.usefixtures("small")
async def test_codes_come_in_order_of_arrival_from_all_slabs_of_a_block() -> None:
    stored = Stored(sealed(ordered=[2], order=lambda n: np.arange(n)[::-1]))
    reader = stored.reader(ColumnCache())
    for block, n in enumerate((20, 7, 33)):
        found = await taken(reader, partial(reader.in_order, 2, block))
        assert found.tolist() == drawn("rows", n, block).codes[2].tolist()
        assert await taken(reader, partial(reader.in_order, 1, block)) is None
    plain = Stored(sealed()).reader(ColumnCache())
    assert await taken(plain, lambda: plain.in_order(2, 0)) is None


async def test_of_a_block_without_rows_nothing_is_read() -> None:
    stored = Stored([Block.seal(PAGES, drawn("rows", 0, 1))])
    reader = stored.reader(ColumnCache())
    assert await taken(reader, tables(reader, [TableAsked((), 0)])) == [0]
    assert stored.asked == []


# What a look reads ------------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("form", ["rows", "counted", "persons, weights apart"])
async def test_a_look_reads_the_columns_that_it_needs_and_each_once(form: str) -> None:
    stored = Stored(sealed(form.partition(",")[0]), apart="apart" in form)
    reader = stored.reader(ColumnCache())
    always = [name for name in ("entry 0", "entry 1", WEIGHT) if stored.named(name)]
    indexes = {(name, 0) for name, _ in stored.on_topic}

    async def read(*asked: TableAsked) -> Counter[Part]:
        await taken(reader, tables(reader, asked))
        first = Counter(one for some, _ in stored.asked for one in some if not one[1])
        assert set(first) in (indexes, set())
        assert max(first.values(), default=1) == 1
        return stored.columns()

    everything = [TableAsked((0,), block) for block in range(3)]
    found = await read(*everything, *everything)
    assert found == Counter(set().union(*map(stored.named, ["0", *always])))
    assert await read(*everything) == Counter()
    found = await read(*(TableAsked((0, 1), block, 1) for block in range(3)))
    assert found == Counter(stored.named("1") | stored.named("value 1"))


@pytest.mark.usefixtures("small")
async def test_a_look_at_one_block_reads_nothing_of_another() -> None:
    stored = Stored(sealed())
    reader = stored.reader(ColumnCache())
    await taken(reader, tables(reader, [TableAsked((0,), 1)]))
    assert {name for some, _ in stored.asked for name, _ in some} == {
        value.name for (value,) in stored.rows[1]
    }


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("most_bytes", [0, 2**20])
async def test_what_is_asked_for_does_not_depend_on_what_the_rows_hold(most_bytes: int) -> None:
    asked = []
    for seed in (1, 2):
        n_slots = (20, 7, 33)
        rows = [drawn("counted", n, seed * 10 + n) for n in n_slots]
        stored = Stored([Block.seal(PAGES, one) for one in rows])
        names = {name: number for number, (name, _) in enumerate(stored.on_topic)}
        reader = stored.reader(ColumnCache(most_bytes))
        await taken(reader, tables(reader, ASKED))
        asked.append([[(names[name], at) for name, at in some] for some, _ in stored.asked])
    assert asked[0] == asked[1]


@contextlib.contextmanager
def counting(meanwhile: Callable[[int], None]) -> Iterator[None]:
    """Has something done whenever a slab is counted, by its number in the look."""
    table, numbers = TableAsked.table, iter(range(10**6))

    def watched(self: TableAsked, *arguments: Any) -> Any:
        meanwhile(next(numbers))
        return table(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TableAsked, "table", watched)
        yield


@pytest.mark.usefixtures("small")
async def test_while_it_counts_a_slab_the_next_one_is_read_and_no_further_one() -> None:
    stored = Stored(sealed(sizes=(35, 21)))
    n_slabs, reader = 5 + 3, stored.reader(ColumnCache(0))

    def meanwhile(number: int) -> None:
        wanted = min(number + 2, n_slabs)
        until(lambda: sum(stored_columns()) >= wanted, "the next one is not read", every_s=0.001)
        assert sum(stored_columns()) == wanted

    def stored_columns() -> list[int]:
        return [len(some) for some, _ in stored.asked if some and some[0][1]]

    with counting(meanwhile):
        await taken(reader, tables(reader, [TableAsked((0,), block) for block in (0, 1)]))
    assert stored_columns() == [1] * n_slabs


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("at_a_time", [1, 14, 28])
async def test_no_more_columns_are_in_memory_than_are_counted_at_a_time(
    monkeypatch: pytest.MonkeyPatch, at_a_time: int
) -> None:
    """Of the cache, there is another bound."""
    monkeypatch.setattr(stored_blocks, "_AHEAD_BYTES", at_a_time)
    stored, most = Stored(sealed(sizes=(70, 70))), [0]
    reader, there = stored.reader(ColumnCache(0)), weakref.WeakSet[Any]()
    column = StoredBlocks._column

    class Tracked(np.ndarray[Any, Any]):
        """An array that a set can have."""

        __hash__ = object.__hash__  # type: ignore[assignment]

    def tracked(self: StoredBlocks, *arguments: Any) -> Any:
        found = column(self, *arguments).view(Tracked)
        there.add(found)
        return found

    def meanwhile(_: int) -> None:
        most[0] = max(most[0], sum(one.nbytes for one in list(there)))

    monkeypatch.setattr(StoredBlocks, "_column", tracked)
    with counting(meanwhile):
        await taken(reader, tables(reader, [TableAsked((0, 2), block) for block in (0, 1)]))
    assert most[0] == max(at_a_time, 14), "a slab has seven bytes of each column"


async def test_a_look_that_is_given_up_gets_nothing_further() -> None:
    asked, stored = asyncio.Event(), Stored(sealed())

    async def hangs(places: Any, *, on_topic: bool = False) -> Any:
        if places[0][1] == 0:
            return await stored.parts(places, on_topic=on_topic)
        stored.asked.append((places, on_topic))
        asked.set()
        return await asyncio.Event().wait()

    reader = stored.reader(ColumnCache())
    reader._parts = hangs
    ended: list[Exception] = []

    def look() -> None:
        for step in (
            tables(reader, [TableAsked((0,), 0)]),
            tables(reader, [TableAsked((0,), 0)]),
            lambda: reader.in_order(0, 0),
            tables(reader, [TableAsked((1,), 1)]),
        ):
            try:
                step()
            except (StoreUnavailable, CancelledError) as error:
                ended.append(error)

    async with reader.readable():
        thread = asyncio.get_running_loop().run_in_executor(None, look)
        await asked.wait()
    await thread
    assert [type(error) for error in ended] == [
        CancelledError,
        StoreUnavailable,
        StoreUnavailable,
    ], "of what is kept in order there is nothing, and nothing is asked"
    assert len(stored.asked) == 2
    assert reader._under_way == set()


# What is not believed ---------------------------------------------------------------------------


def _damaged(part: bytes, fault: str) -> bytes:
    return {
        "a byte": part[:-1] + bytes([part[-1] ^ 1]),
        "shorter": part[:-1],
        "longer": part + b"\x00",
        "empty": b"",
    }[fault]


LOOK = [TableAsked((0, 2), block) for block in range(3)]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("fault", ["a byte", "shorter", "longer", "empty"])
@pytest.mark.parametrize("name", ["index", "0", "2"])
async def test_what_redis_has_wrong_is_read_from_the_topic(name: str, fault: str) -> None:
    stored = Stored(sealed())
    wanted = [table.tolist() for table in stored.held._counted(LOOK)]
    of_block = {value.name for (value,) in stored.rows[2]}
    wrong = [
        part
        for part in (stored.named(name) if name != "index" else {(n, 0) for n in of_block})
        if part[0] in of_block
    ]
    for part in wrong:
        stored.in_redis[part] = _damaged(stored.in_redis[part], fault)
    reader = stored.reader(ColumnCache())
    assert await taken(reader, tables(reader, LOOK)) == wanted
    from_topic = [some for some, on_topic in stored.asked if on_topic]
    assert sorted(from_topic) == sorted([part] for part in wrong), "and nothing else"


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("fault", ["a byte", "shorter", "longer", "empty", "gone"])
@pytest.mark.parametrize("name", ["index", "0", "2"])
async def test_a_column_that_is_nowhere_is_said_with_its_phase_and_with_nothing_else(
    name: str, fault: str
) -> None:
    stored = Stored(sealed())
    ((value,), *_) = stored.rows[1]
    (part,) = {p for p in stored.named(name) if p[0] == value.name} or {(value.name, 0)}
    for where in (stored.in_redis, stored.on_topic):
        if fault == "gone":
            del where[part]
        else:
            where[part] = _damaged(where[part], fault)
    reader = stored.reader(ColumnCache())
    with pytest.raises(RowsGone) as raised:
        await taken(reader, tables(reader, LOOK))
    assert (raised.value.dataset, raised.value.phase) == ("pages", 2)
    assert await taken(reader, tables(reader, [LOOK[0], LOOK[2]])), "the others are there"


@pytest.mark.usefixtures("small")
async def test_codes_in_order_of_arrival_that_are_nowhere_are_gone_with_their_phase() -> None:
    stored = Stored(sealed(ordered=[2]))
    value = stored.ordered[2][1][0]
    del stored.in_redis[value.name, 1], stored.on_topic[value.name, 1]
    reader = stored.reader(ColumnCache())
    with pytest.raises(RowsGone) as raised:
        await taken(reader, lambda: reader.in_order(2, 2))
    assert raised.value.phase == 3


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("lacking", [[0], [4], [0, 1, 2, 3, 4]])
@pytest.mark.parametrize("kind", ["rows", "ordered"])
async def test_a_block_of_which_a_slab_is_missing_is_not_taken_for_a_smaller_one(
    kind: str, lacking: list[int]
) -> None:
    stored = Stored(sealed(ordered=[2]))
    of_kind = stored.rows if kind == "rows" else stored.ordered
    assert len(of_kind[2]) == 5
    of_kind[2] = [layers for at, layers in enumerate(of_kind[2]) if at not in lacking]
    reader = stored.reader(ColumnCache())
    if kind == "ordered" and len(lacking) == 5:
        assert await taken(reader, lambda: reader.in_order(2, 2)) is None, "it is not kept"
        return
    with pytest.raises(RowsGone) as raised:
        await taken(
            reader, tables(reader, LOOK) if kind == "rows" else lambda: reader.in_order(2, 2)
        )
    assert raised.value.phase == 3


def _of_another_slab(stored: Stored, name: bytes) -> tuple[Part, Part]:
    return (name, 1), (stored.rows[0][1][0].name, 1)


def _of_another_attribute(stored: Stored, name: bytes) -> tuple[Part, Part]:
    del stored
    return (name, 1), (name, 3)


def _index_of_another_slab(stored: Stored, name: bytes) -> tuple[Part, Part]:
    return (name, 0), (stored.rows[0][1][0].name, 0)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("swap", [_of_another_slab, _of_another_attribute, _index_of_another_slab])
async def test_a_column_of_another_slab_or_attribute_is_not_believed(swap: Any) -> None:
    stored = Stored(sealed())
    wanted = [table.tolist() for table in stored.held._counted(LOOK)]
    first, second = swap(stored, stored.rows[0][0][0].name)
    assert len(stored.on_topic[first]) == len(stored.on_topic[second])
    for where, expected in ((stored.in_redis, wanted), (stored.on_topic, None)):
        where[first], where[second] = where[second], where[first]
        reader = stored.reader(ColumnCache())
        with pytest.raises(RowsGone) if expected is None else contextlib.nullcontext():
            assert await taken(reader, tables(reader, LOOK)) == expected


async def test_equal_columns_of_two_slabs_have_other_digests() -> None:
    rows = drawn("rows", 7, 1)
    stored = Stored([Block.seal(PAGES, rows), Block.seal(PAGES, rows)])
    ((one,),), ((other,),) = stored.rows
    first, second = (SlabIndex.from_bytes(stored.on_topic[of.name, 0]) for of in (one, other))
    for place in range(1, 1 + len(first.names)):
        assert stored.on_topic[one.name, place] == stored.on_topic[other.name, place]
        assert first.entries[place - 1].digest != second.entries[place - 1].digest


# What stays in memory ---------------------------------------------------------------------------


@pytest.mark.usefixtures("small")
async def test_columns_that_are_erased_or_let_go_of_are_not_kept() -> None:
    cache, stored = ColumnCache(), Stored(sealed())
    one, other = stored.reader(cache), stored.reader(cache)
    for reader in (one, other):
        await taken(reader, tables(reader, LOOK))
    erased = [value.name for block in (0, 1) for (value,) in stored.rows[block]]
    one.erase(erased)
    left = {value.name for (value,) in stored.rows[2]}
    assert {key.name for key in cache._kept if key.owner is one} == left
    other.forget()
    assert {key.owner for key in cache._kept} == {one}
    await taken(other, tables(other, LOOK))
    assert {key.owner for key in cache._kept} == {one}, "a look that went on leaves nothing behind"


async def test_no_repr_shows_a_row() -> None:
    stored = Stored([Block.seal(PAGES, drawn("rows", 31_337, 1))])
    reader = stored.reader(ColumnCache())
    await taken(reader, tables(reader, [TableAsked((), 0)]))
    assert "31337" not in repr(reader) + repr(reader._cache)


async def test_looks_take_turns() -> None:
    """The time that a look of one data set takes does not show in those of others."""
    cache, stored = ColumnCache(), Stored(sealed())
    begun, goes_on = threading.Event(), threading.Event()

    def first() -> None:
        begun.set()
        goes_on.wait()

    one, other = stored.reader(cache), stored.reader(cache)
    first_look = asyncio.create_task(taken(one, first))
    await asyncio.to_thread(begun.wait)
    second_look = asyncio.create_task(taken(other, tables(other, LOOK)))
    await asyncio.sleep(0.01)
    assert stored.asked == []
    goes_on.set()
    await first_look
    assert await second_look
    assert stored.asked


# The worker -------------------------------------------------------------------------------------


async def filled(world: World) -> None:
    """Three phases, each of another size, and no worker."""
    await world.run(rounds=(flights, phase, phase, phase))


def phases_in(cache: ColumnCache, world: World) -> set[int]:
    """The phases of which columns are in memory."""
    named = world.held("flights").named("block ")
    of = {one.name: int(key.split(" ")[0]) for key, one in named.items()}
    return {of[key.name] for key in cache._kept}


def parts_read(process: Any) -> Counter[bytes]:
    return Counter(name for _, names in process.view.read for name in names)


@pytest.mark.parametrize("redis", ["there", "away", "empty"])
async def test_answers_do_not_depend_on_what_is_in_memory(
    make_world: Callable[..., World], redis: str
) -> None:
    seen = []
    for most_bytes in (0, 1 << 20):
        world = make_world()
        await filled(world)
        world.view_away = redis == "away"
        if redis == "empty":
            world.view = MemoryView()
        cache = ColumnCache(most_bytes)
        process = await world.owner(cache=cache)
        assert phases_in(cache, world) == set(), "a take-over reads no rows"
        for name, where in (("one", AA), ("two", LATE), ("three", LATE)):
            asks(name, where)(world)
            await process.run()
        assert phases_in(cache, world) == ({1, 2, 3} if most_bytes else set())
        read = parts_read(process) if redis == "there" else Counter(process.kept.fetched)
        if redis == "there":
            assert process.kept.fetched == []
        if most_bytes and redis == "there":
            assert max(read.values()) == 1
        assert len(read) >= 3
        seen.append([world.answer(name) for name in ("one", "two")])
        await process.settled()
        await process.kill()
        assert world.complaints() == []
    assert seen[0] == seen[1]


async def test_what_redis_had_wrong_or_lacked_it_is_given_back(world: World) -> None:
    await filled(world)
    right = dict(world.view.values["flights"])
    blocks = [*world.held("flights").named("block ").values()]
    first = world.view.values["flights"]
    first[blocks[0].name] = b"wrong"
    for number in range(1, len(blocks[1].offsets)):
        first[part_name(blocks[1].name, number)] += b"?"
    for number in range(len(blocks[2].offsets)):
        del first[part_name(blocks[2].name, number)]
    process = await world.owner()
    asks("one")(world)
    await process.run()
    await process.settled()
    there: dict[Any, Any] = world.view.values["flights"]
    read: set[Any] = {name for _, names in process.view.read for name in names}
    assert {name: there[name] for name in read} == {name: right[name] for name in read}
    assert {name[:16] for name in read} == {one.name for one in blocks}
    assert world.answer("one")["status"] == "answered"
    await process.kill()


async def test_a_phase_is_read_before_its_commit_where_the_cache_has_no_room(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looks at a phase that opens may come after other blocks were read."""
    monkeypatch.setattr(ColumnCache, "get", lambda *_: None)
    await world.run(
        rounds=(lambda w: flights(w, mechanism={"base_share": 0.05}), phase, phase, asks("one"))
    )
    assert world.answer("one")["status"] == "answered"
    assert world.complaints() == []


async def test_rows_of_another_phase_in_place_of_those_asked_for_are_not_believed(
    world: Any,
) -> None:
    await filled(world)
    first, second, _ = world.held("flights").named("block ").values()
    keys = [f"flights/{one.name.hex()}".encode() for one in (first, second)]
    swapped = [world.kept[key] for key in keys]
    for key, parts in zip(keys, reversed(swapped), strict=True):
        world.kept[key] = parts
    for values in (world.view.values["flights"],):
        for number in range(len(first.offsets)):
            one, other = (part_name(of.name, number) for of in (first, second))
            values[one], values[other] = values[other], values[one]
    process = await world.owner()
    asks("one")(world)
    with pytest.raises(RowsGone, match="flights"):
        await process.run()
    assert world.released("answers") == []
    assert min(rho for rho, _ in world.held("flights").spent) > 0, "the charge stays"


@pytest.mark.parametrize("knows", [False, True])
async def test_a_former_owner_that_misses_rows_which_its_successor_erased_gives_nothing_up(
    world: Any, knows: bool
) -> None:
    """It had charged its look before, and is followed before it reads."""
    await world.run(rounds=(lambda w: flights(w, retention={"phases": 1}), phase))
    former, heir = world.process(cache=ColumnCache(0)), world.process()
    await former.assign()
    following = former.worker.following
    kept_in_redis, was_followed = following.kept, list[int]()

    async def meanwhile(*asked: Any) -> list[bytes | None]:
        if not was_followed:
            was_followed.append(1)
            await heir.assign()
            phase(world)
            await heir.run()
            await heir.settled()
            if knows:
                former.worker.revoked(range(world.partitions))
        found: list[bytes | None] = await kept_in_redis(*asked)
        return found

    following.kept = meanwhile
    asks("one")(world)
    with contextlib.nullcontext() if knows else pytest.raises(Fenced):
        await former.run()
    assert was_followed
    await former.kill()
    await heir.run()
    await heir.settled()
    assert world.events("rows_lost") == []
    assert world.answer("one")["reason"]["code"] == "rows_erased"
    assert world.complaints() == []


async def test_a_worker_keeps_no_rows_of_partitions_that_it_has_let_go_of(world: Any) -> None:
    await filled(world)
    cache = ColumnCache()
    process = await world.owner(cache=cache)
    asks("one")(world)
    await process.run()
    assert phases_in(cache, world) == {1, 2, 3}
    await process.assign([])
    asks("two")(world)
    await process.run()
    assert not cache._kept


async def test_a_retired_data_set_leaves_no_rows_in_memory(world: Any) -> None:
    await filled(world)
    cache = ColumnCache()
    process = await world.owner(cache=cache)
    asks("one")(world)
    await process.run()
    assert phases_in(cache, world) == {1, 2, 3}
    world.produce("datasets", None, key="flights")
    await process.run()
    assert process.worker.datasets["flights"].retired
    assert not cache._kept
    assert world.complaints() == []
