from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.core.rows import slabs
from stream_dp.core.rows.attributes import Boolean, Category, Number
from stream_dp.core.rows.blocks import MAX_ORDERED, Block, Blocks
from stream_dp.core.rows.encoded_rows import MAX_ROWS, Rows
from stream_dp.core.rows.key_texts import KeyTexts
from stream_dp.core.rows.measured_values import Measure
from stream_dp.core.rows.person_slots import Persons, Slots
from stream_dp.core.rows.slabs import TableAsked, slabs_of
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import InvalidBatch
from tests.stored_slabs import block_again, block_lengths, drawn_order, slabs_again, stored_lengths

FLIGHTS = Universe(
    (
        Category("carrier", ("AA", "UA")),
        Number("arr_delay", (0, 30), missing=True),
        Boolean("cancelled"),
    )
)
ALL_SUBSETS = [s for k in range(4) for s in combinations(range(3), k)]

rows = st.fixed_dictionaries(
    {
        "carrier": st.sampled_from(["AA", "UA", "ZZ"]),
        "arr_delay": st.sampled_from([-1, 0, 30, None]),
        "cancelled": st.booleans(),
    }
)
big_counts = st.integers(0, 2**55)


def counted(universe: Universe, encoded: Rows, attributes: tuple[int, ...]) -> np.ndarray:
    """The marginal by going through the entries, in Python integers."""
    tally: Counter[tuple[int, ...]] = Counter()
    for entry in range(encoded.n_entries):
        cell = tuple(int(encoded.codes[a][entry]) for a in attributes)
        tally[cell] += int(encoded.entry_counts[entry])
    table = np.zeros(tuple(universe.shape[a] for a in attributes), dtype=np.int64)
    for cell, n in tally.items():
        table[cell] = n
    return table


@given(
    batches=st.lists(
        st.lists(rows, max_size=20)
        | st.lists(st.tuples(rows, big_counts).map(lambda p: {**p[0], "count": p[1]}), max_size=20),
        min_size=1,
        max_size=3,
    )
)
def test_every_marginal_is_what_counting_row_by_row_gives(
    batches: list[list[dict[str, object]]],
) -> None:
    encoded = [
        FLIGHTS.encode_cells(b) if b and "count" in b[0] else FLIGHTS.encode_rows(b)
        for b in batches
    ]
    sealed = [Block.seal(FLIGHTS, e) for e in encoded]
    mixed = [Block.seal(FLIGHTS, e, order=drawn_order(1)) for e in encoded]
    for each in (sealed, mixed, [block_again(block) for block in mixed]):
        blocks = Blocks(FLIGHTS, each)
        assert blocks.sizes == [e.n_rows for e in encoded]
        for attributes in ALL_SUBSETS:
            table = blocks.marginal(attributes, range(len(batches)))
            assert table.dtype == np.int64
            expected = np.stack([counted(FLIGHTS, e, attributes) for e in encoded])
            assert table.shape == expected.shape
            assert (table == expected).all()


def test_a_block_may_count_2_to_the_62_rows_and_not_one_more() -> None:
    most = FLIGHTS.encode_cells(
        [{"carrier": "AA", "count": MAX_ROWS - 1}, {"carrier": "AA", "count": 1}]
    )
    block = Block.seal(FLIGHTS, most)
    assert block.n_rows == MAX_ROWS
    assert Blocks(FLIGHTS, [block]).marginal((0,), range(1))[0, 0] == MAX_ROWS
    over = Rows((np.zeros(2, np.uint8),) * 3, np.array([2**62, 2**62], dtype=np.int64))
    with pytest.raises(InvalidBatch):
        Block.seal(FLIGHTS, over)


def test_cells_are_told_apart_in_a_universe_of_more_cells_than_int64_can_number() -> None:
    wide = Universe(tuple(Category(f"a{i}", tuple(map(str, range(499)))) for i in range(20)))
    assert wide.n_cells == 500**20
    rng = np.random.default_rng(7)
    distinct = rng.integers(0, 500, size=(200, 20))
    distinct[1:50] = distinct[0]
    distinct[1:50, -1] = range(49)  # rows that differ in the last attribute only
    repeated = distinct[rng.integers(0, 200, size=2000)]
    encoded = wide.encode_columns({f"a{i}": repeated[:, i].tolist() for i in range(20)})
    block = block_again(Block.seal(wide, encoded, order=drawn_order(2)))
    (slab,) = block.slabs
    sealed = np.column_stack([slab.columns[str(a)] for a in range(20)])
    assert Counter(map(tuple, sealed.tolist())) == Counter(map(tuple, repeated.tolist()))
    assert slab.n_slots == 2000
    for attributes in ((0, 19), (18, 19)):
        table = Blocks(wide, [block]).marginal(attributes, range(1))[0]
        assert (table == counted(wide, encoded, attributes)).all()


def test_a_window_reads_its_own_blocks_only() -> None:
    sealed = [
        Block.seal(FLIGHTS, FLIGHTS.encode_cells([{"carrier": "UA", "count": n}]))
        for n in (5, 6, 7)
    ]
    blocks = Blocks(FLIGHTS, sealed[:2])
    blocks.append(sealed[2])
    assert len(blocks) == 3
    assert blocks.marginal((0,), range(1, 3)).tolist() == [[0, 6, 0], [0, 7, 0]]
    assert blocks.marginal((0,), range(1, 1)).shape == (0, 3)
    for outside in (range(2, 4), range(-1, 1)):
        with pytest.raises(ValueError, match="not sealed"):
            blocks.marginal((0,), outside)
    for unordered in ((1, 0), (1, 1)):
        with pytest.raises(ValueError, match="ascend"):
            blocks.marginal(unordered, range(1))


def test_a_repr_shows_public_numbers_only() -> None:
    encoded = FLIGHTS.encode_cells(
        [{"carrier": "AA", "count": 31337}, {"carrier": "UA", "count": 2}]
    )
    for ordered in ((), (0,)):
        block = Block.seal(FLIGHTS, encoded, ordered)
        assert repr(block).startswith("Block(n_rows=31339, ")
        assert set(map(int, re.findall(r"\d+", repr(block)))) <= {31339, 2}, "rows and slots"
    blocks = Blocks(FLIGHTS, [block])
    blocks.vault["offset"] = b"secret"
    assert repr(blocks) == "Blocks(1)"


def test_blocks_can_be_asked_for_nothing_but_tables_totals_columns_and_public_sizes() -> None:
    asked = {n for n in dir(Blocks) if not n.startswith("_")}
    public = {"add_rows", "append", "check", "elsewhere", "erase", "erased", "sealed", "sizes"}
    assert asked == {"in_order", "keys", "marginal", "tables", "totals"} | public


def test_rows_that_are_erased_are_gone_and_their_number_stays() -> None:
    sealed = [Block.seal(FLIGHTS, FLIGHTS.encode_rows([{"carrier": c}]), [0]) for c in ("AA", "UA")]
    blocks = Blocks(FLIGHTS, sealed)
    before = blocks.marginal((0,), range(1, 2)).tolist()
    blocks.erase(1)
    blocks.erase(0)  # what is erased stays erased
    assert (len(blocks), blocks.erased, blocks.sizes) == (2, 1, [1, 1])
    assert [*blocks._held.blocks.values()] == sealed[1:]
    for read in (
        lambda: blocks.marginal((0,), range(2)),
        lambda: blocks.marginal((), range(1)),
        lambda: blocks.in_order(0, 0),
        lambda: blocks.check((1, 0)),
    ):
        with pytest.raises(ValueError, match="the rows of a block of the window are erased"):
            read()
    assert blocks.marginal((0,), range(1, 2)).tolist() == before
    assert Blocks(FLIGHTS, sealed[1:], [1]).sizes == [1, 1]


def test_no_other_block_answers_in_place_of_one_that_is_erased(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Not even in a broken copy without its check."""
    sealed = [Block.seal(FLIGHTS, FLIGHTS.encode_rows([{"carrier": c}])) for c in ("AA", "UA")]
    blocks = Blocks(FLIGHTS, sealed)
    blocks.erase(1)
    monkeypatch.setattr(Blocks, "check", lambda self, blocks: None)
    with pytest.raises(KeyError):
        blocks.marginal((0,), range(1))


class Elsewhere:
    """Reads blocks that are kept elsewhere, and notes what it was asked for."""

    def __init__(self, blocks: Sequence[Block]) -> None:
        self._blocks = Blocks(FLIGHTS, blocks)
        self.read: list[tuple[str, int]] = []

    def tables(self, asked: Sequence[TableAsked]) -> Iterator[np.ndarray]:
        for one in asked:
            self.read.append(("table", one.block))
            yield from self._blocks.tables([(one.attributes, one.block)])

    def in_order(self, attribute: int, block: int) -> np.ndarray:
        self.read.append(("in order", block))
        return self._blocks.in_order(attribute, block)

    def texts(self, attribute: int, block: int) -> Iterator[KeyTexts]:
        self.read.append(("texts", block))
        return iter(())


def test_blocks_elsewhere_are_read_one_at_a_time_when_their_rows_are_needed() -> None:
    sealed = [
        Block.seal(FLIGHTS, FLIGHTS.encode_cells([{"carrier": "UA", "count": n}]), [0])
        for n in (5, 6, 7)
    ]
    reader = Elsewhere(sealed)
    blocks = Blocks.elsewhere(lambda block: FLIGHTS.shape, [5, 6], 1, reader)
    blocks.sealed(7)
    assert (len(blocks), blocks.erased, blocks.sizes) == (3, 1, [5, 6, 7])
    blocks.check(range(1, 3))
    tables = blocks.tables([((0,), 1), ((), 2)])
    assert reader.read == [], "what is public needs no rows"
    assert next(tables).tolist() == [0, 6, 0]
    assert reader.read == [("table", 1)], "the memory of one table is enough"
    assert [table.tolist() for table in tables] == [7]
    assert blocks.marginal((0,), range(1, 3)).tolist() == [[0, 6, 0], [0, 7, 0]]
    assert blocks.in_order(0, 2).tolist() == [1] * 7
    before = [*reader.read]
    assert before == [("table", 1), ("table", 2)] * 2 + [("in order", 2)]
    for read in (
        lambda: blocks.marginal((0,), range(3)),
        lambda: blocks.tables([((0,), 1), ((0,), 0)]),
        lambda: blocks.in_order(0, 0),
    ):
        with pytest.raises(ValueError, match="erased"):
            read()
    blocks.erase(2)
    with pytest.raises(ValueError, match="erased"):
        blocks.in_order(0, 1)
    assert reader.read == before


def test_the_memory_that_a_block_counts_with_depends_on_public_sizes_alone() -> None:
    alike = [{"carrier": "AA", "arr_delay": 1, "cancelled": True}] * 24
    mixed = [{"carrier": c, "arr_delay": d, "cancelled": x} for c in ("AA", "UA", "ZZ")
             for d in (-1, 0, 30, None) for x in (True, False)]  # fmt: skip
    for times, ordered in ((1, ()), (1, (0,)), (8, ()), (8, (0,))):
        one, other = (
            Block.seal(FLIGHTS, FLIGHTS.encode_rows(rows * times), ordered)
            for rows in (alike, mixed)
        )
        again = block_again(other)
        assert one.n_bytes == other.n_bytes == again.n_bytes
        held = [
            column for slab in (*again.slabs, *again.ordered) for column in slab.columns.values()
        ]
        assert sum(column.nbytes for column in held) == again.n_bytes, "it is full"
        own: list[Any] = [column.base for column in held]
        assert sum(map(len, own)) == again.n_bytes, "and nothing else is kept for it"


def test_a_block_without_rows_counts_none() -> None:
    block = Block.seal(FLIGHTS, FLIGHTS.encode_rows([]), order=drawn_order(3))
    again = block_again(block)
    assert (block.n_rows, again.n_rows) == (0, 0)
    assert not Blocks(FLIGHTS, [again]).marginal((0, 1), range(1)).any()


# Columns in order of arrival ----------------------------------------------------------------------


@given(
    entries=st.lists(st.tuples(rows, st.integers(0, 5)), max_size=20),
    kept=st.sets(st.integers(0, 2)),
)
def test_a_kept_column_is_every_row_as_it_arrived(
    entries: list[tuple[dict[str, object], int]], kept: set[int]
) -> None:
    encoded = FLIGHTS.encode_cells([row | {"count": n} for row, n in entries])
    arrived = FLIGHTS.encode_rows([row for row, n in entries for _ in range(n)])
    for form in (encoded, arrived):
        sealed = Block.seal(FLIGHTS, form, kept, order=drawn_order(4))
        for block in (sealed, block_again(sealed)):
            names = [*map(str, sorted(kept))]
            there = bool(kept and arrived.n_rows)
            assert [[*slab.columns] for slab in block.ordered] == [names] * there, "a public fact"
            blocks = Blocks(FLIGHTS, [block])
            for attribute in kept if there else ():
                column = blocks.in_order(attribute, 0)
                assert column.dtype == np.uint8
                assert column.tolist() == arrived.codes[attribute].tolist()
                counts = blocks.marginal((attribute,), range(1))[0]
                assert counts.tolist() == counted(FLIGHTS, arrived, (attribute,)).tolist()


def test_only_columns_that_are_kept_can_be_read_in_order() -> None:
    encoded = FLIGHTS.encode_rows([{"carrier": "UA"}] * 3)
    blocks = Blocks(
        FLIGHTS, [Block.seal(FLIGHTS, encoded, ordered=[1]), Block.seal(FLIGHTS, encoded)]
    )
    for attribute, block in ((0, 0), (2, 0), (1, 1)):
        with pytest.raises(ValueError, match="does not keep"):
            blocks.in_order(attribute, block)
    for block in (-1, 2):
        with pytest.raises(ValueError, match="not sealed"):
            blocks.in_order(1, block)


def test_a_block_of_too_many_rows_keeps_nothing_in_order() -> None:
    for n_rows, kept in ((MAX_ORDERED, MAX_ORDERED), (MAX_ORDERED + 1, 0), (MAX_ROWS, 0)):
        encoded = FLIGHTS.encode_cells([{"carrier": "UA", "count": n_rows}])
        ordered = Block.seal(FLIGHTS, encoded, ordered=[0]).ordered
        assert sum(slab.n_slots for slab in ordered) == kept


def test_a_wide_attribute_is_kept_in_two_bytes() -> None:
    wide = Universe((Boolean("a"), Category("b", tuple(map(str, range(300))))))
    encoded = wide.encode_rows([{"a": True, "b": str(b)} for b in (299, 7, 256, 7)])
    block = block_again(Block.seal(wide, encoded, ordered=[1]))
    assert Blocks(wide, [block]).in_order(1, 0).tolist() == [299, 7, 256, 7]
    assert block_lengths(block)[1][1:] == [2 * 4]


def test_rows_of_cells_with_counts_stay_in_order_across_slabs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(slabs, "SLOTS", 4)
    cells = [{"carrier": c, "count": n} for c, n in (("ZZ", 3), ("AA", 0), ("UA", 6), ("AA", 2))]
    block = block_again(Block.seal(FLIGHTS, FLIGHTS.encode_cells(cells), [0]))
    assert [slab.n_slots for slab in block.ordered] == [4, 4, 3]
    assert Blocks(FLIGHTS, [block]).in_order(0, 0).tolist() == [2] * 3 + [1] * 6 + [0] * 2


# Where persons are protected ----------------------------------------------------------------------


KEPT = Universe(
    (
        FLIGHTS.attributes[0],
        Number("arr_delay", (0, 30), missing=True, measure=Measure(1.0, -10.0, 60.0)),
        FLIGHTS.attributes[2],
    )
)
PERSONS = Persons("user_id", bytes(32), "batch")
KEYS = [1, 1, 2, None, 2, 3, 1]


def of_persons(universe: Universe, keys: list[object], values: list[object]) -> Rows:
    columns: dict[str, list[object]] = {
        "carrier": ["AA"] * len(keys), "arr_delay": values, "user_id": keys,
        "cancelled": [False] * len(keys),
    }  # fmt: skip
    return universe.encode_columns(columns, PERSONS)


@pytest.mark.parametrize("times", [1, 40], ids=["slots", "merged"])
@pytest.mark.parametrize("universe", [FLIGHTS, KEPT], ids=["cells", "values"])
def test_only_rows_that_count_are_in_a_cell(universe: Universe, times: int) -> None:
    rows = of_persons(universe, [*KEYS] * times, [-5, -4, 10, 10, 40, 50, 7] * times)
    assert rows.whose is not None
    marks = rows.whose.counted(1)
    assert marks.sum() == 3
    block = Block.seal(universe, rows, counted=marks, order=drawn_order(5))
    assert sum(slab.n_slots for slab in block.slabs) == (7 if times == 1 else universe.n_cells)
    for one in (block, block_again(block)):
        blocks = Blocks(universe, [one])
        assert blocks.sizes == [7 * times], "the rows that waited are public"
        assert blocks.marginal((), range(1)).tolist() == [3]
        chosen = replace(rows, codes=tuple(column[marks] for column in rows.codes), whose=None)
        chosen = replace(chosen, measures={a: each[marks] for a, each in rows.measures.items()})
        alone = Blocks(universe, [Block.seal(universe, chosen)])
        for attributes in ALL_SUBSETS:
            found = blocks.marginal(attributes, range(1))
            assert (found == alone.marginal(attributes, range(1))).all()
            for measured in universe.measured:
                sums = blocks.totals(measured, attributes, range(1))
                assert (sums == alone.totals(measured, attributes, range(1))).all()


@pytest.mark.parametrize("times", [1, 40], ids=["slots", "merged"])
@pytest.mark.parametrize("universe", [FLIGHTS, KEPT], ids=["cells", "values"])
def test_stored_bytes_have_the_same_length_whosever_the_rows_are(
    universe: Universe, times: int
) -> None:
    n, lengths, shown = 7 * times, [], set()
    for keys in ([1] * n, [None] * n, [*range(n)], KEYS * times):
        rows = of_persons(universe, [*keys], [-5, -4, 10, 10, 40, 50, 7] * times)
        whose = rows.whose
        assert whose is not None
        waiting = [*slabs_of(rows, drawn_order(6), more=whose.columns)]
        again = Slots.concat([Slots.of_columns(slab.columns) for slab in slabs_again(waiting)])
        assert again.digests.shape == whose.digests.shape
        assert sorted(zip(again.digests.tolist(), again.ranks.tolist(), strict=True)) == sorted(
            zip(whose.digests.tolist(), whose.ranks.tolist(), strict=True)
        )
        assert again.counted(2).sum() == whose.counted(2).sum()
        block = Block.seal(universe, rows, counted=whose.counted(1), order=drawn_order(7))
        shown.add(repr(block))
        lengths.append((stored_lengths(waiting), block_lengths(block)))
    assert lengths == lengths[:1] * 4
    assert len(shown) == 1


def test_which_rows_count_is_said_just_where_persons_are_protected() -> None:
    rows = of_persons(FLIGHTS, [*KEYS], [None] * 7)
    assert rows.whose is not None
    marks = rows.whose.counted(1)
    for sealing in (
        lambda: Block.seal(FLIGHTS, rows),
        lambda: Block.seal(FLIGHTS, FLIGHTS.encode_rows([{}] * 7), counted=marks),
        lambda: Block.seal(FLIGHTS, rows, [0], counted=marks),
    ):
        with pytest.raises(ValueError, match="row"):
            sealing()


def test_a_block_without_keys_counts_none() -> None:
    for keys in ([], [None] * 5):
        rows = of_persons(FLIGHTS, [*keys], [7] * len(keys))
        assert rows.whose is not None
        block = Block.seal(FLIGHTS, rows, counted=rows.whose.counted(3))
        again = block_again(block)
        assert again.n_rows == len(keys)
        assert not Blocks(FLIGHTS, [again]).marginal((0, 1), range(1)).any()
