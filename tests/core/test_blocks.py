from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.core.rows.blocks import MAX_ORDERED, Block, Blocks
from stream_dp.core.rows.measured_values import Measure
from stream_dp.core.rows.person_slots import Persons
from stream_dp.core.rows.universe import MAX_ROWS, Boolean, Category, Number, Rows, Universe
from stream_dp.errors import CorruptState, InvalidBatch

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
    restored = [Block.from_bytes(FLIGHTS, b.to_bytes()) for b in sealed]
    for blocks in (Blocks(FLIGHTS, sealed), Blocks(FLIGHTS, restored)):
        assert blocks.sizes == [e.n_rows for e in encoded]
        for attributes in ALL_SUBSETS:
            table = blocks.marginal(attributes, range(len(batches)))
            assert table.dtype == np.int64
            expected = np.stack([counted(FLIGHTS, e, attributes) for e in encoded])
            assert table.shape == expected.shape
            assert (table == expected).all()


def test_counts_stay_exact_far_beyond_what_a_float_can_tell_apart() -> None:
    huge = 10**17 + 1
    cells = [
        {"carrier": c, "cancelled": x, "count": huge} for c in ("AA", "UA") for x in (True, False)
    ]
    cells.append({"carrier": "AA", "cancelled": True, "count": 1})
    blocks = Blocks(FLIGHTS, [Block.seal(FLIGHTS, FLIGHTS.encode_cells(cells))])
    assert blocks.marginal((0,), range(1)).tolist() == [[2 * huge + 1, 2 * huge, 0]]
    assert blocks.marginal((), range(1)).tolist() == [4 * huge + 1]
    assert int(float(2 * huge + 1)) != 2 * huge + 1, "or this test shows nothing"


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
    block = Block.seal(wide, encoded)
    sealed = {tuple(c): n for *c, n in np.column_stack([*block.codes, block.counts]).tolist()}
    assert sealed == Counter(map(tuple, np.column_stack(encoded.codes).tolist()))
    assert block.capacity == 2000


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


def test_the_length_of_a_stored_block_shows_nothing_of_which_cells_are_occupied() -> None:
    alike = [{"carrier": "AA", "arr_delay": 1, "cancelled": True}] * 1000
    mixed = [{"carrier": c, "arr_delay": d, "cancelled": x} for c in ("AA", "UA", "ZZ")
             for d in (-1, 0, 30, None) for x in (True, False)]  # fmt: skip
    assert len(mixed) == FLIGHTS.n_cells
    few = alike[:3], mixed[:3]
    many = alike, (mixed * 50)[:1000]
    lengths = [
        {len(Block.seal(FLIGHTS, FLIGHTS.encode_rows(r)).to_bytes()) for r in pair}
        for pair in (few, many)
    ]
    assert [len(same) for same in lengths] == [1, 1]
    zero = [{"carrier": "AA", "count": n} for n in (0, 0, 0)]
    some = [{"carrier": c, "count": n} for c, n in (("AA", 2**40), ("UA", 0), ("ZZ", 1))]
    assert (
        len({len(Block.seal(FLIGHTS, FLIGHTS.encode_cells(c)).to_bytes()) for c in (zero, some)})
        == 1
    )


def test_a_repr_shows_public_numbers_only() -> None:
    encoded = FLIGHTS.encode_cells(
        [{"carrier": "AA", "count": 31337}, {"carrier": "UA", "count": 2}]
    )
    block = Block.seal(FLIGHTS, encoded)
    assert repr(block) == "Block(n_rows=31339, capacity=2)"
    assert repr(Block.seal(FLIGHTS, encoded, ordered=[0])) == repr(block)
    blocks = Blocks(FLIGHTS, [block])
    blocks.vault["offset"] = b"secret"
    assert repr(blocks) == "Blocks(1)"


def test_blocks_can_be_asked_for_nothing_but_tables_totals_columns_and_public_sizes() -> None:
    asked = {n for n in dir(Blocks) if not n.startswith("_")}
    public = {"append", "check", "elsewhere", "erase", "erased", "sizes"}
    assert asked == {"in_order", "marginal", "tables", "totals"} | public


def test_rows_that_are_erased_are_gone_and_their_number_stays() -> None:
    sealed = [Block.seal(FLIGHTS, FLIGHTS.encode_rows([{"carrier": c}]), [0]) for c in ("AA", "UA")]
    blocks = Blocks(FLIGHTS, sealed)
    before = blocks.marginal((0,), range(1, 2)).tolist()
    blocks.erase(1)
    blocks.erase(0)  # what is erased stays erased
    assert (len(blocks), blocks.erased, blocks.sizes) == (2, 1, [1, 1])
    assert [*blocks._held.values()] == sealed[1:]
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


def test_blocks_elsewhere_are_read_one_at_a_time_when_their_rows_are_needed() -> None:
    sealed = [
        Block.seal(FLIGHTS, FLIGHTS.encode_cells([{"carrier": "UA", "count": n}]), [0])
        for n in (5, 6, 7)
    ]
    read: list[int] = []

    def source(index: int) -> Block:
        read.append(index)
        return sealed[index]

    blocks = Blocks.elsewhere(FLIGHTS, [5, 6], 1, source)
    blocks.append(sealed[2])
    assert (len(blocks), blocks.erased, blocks.sizes) == (3, 1, [5, 6, 7])
    blocks.check(range(1, 3))
    assert read == [], "what is public needs no rows"
    assert blocks.marginal((0,), range(1, 3)).tolist() == [[0, 6, 0], [0, 7, 0]]
    assert blocks.in_order(0, 2).tolist() == [1] * 7
    assert read == [1, 2, 2]
    with pytest.raises(ValueError, match="erased"):
        blocks.marginal((0,), range(3))
    blocks.erase(2)
    with pytest.raises(ValueError, match="erased"):
        blocks.in_order(0, 1)
    assert read == [1, 2, 2]


def test_the_memory_that_a_block_counts_with_depends_on_public_sizes_alone() -> None:
    alike = [{"carrier": "AA", "arr_delay": 1, "cancelled": True}] * 24
    mixed = [{"carrier": c, "arr_delay": d, "cancelled": x} for c in ("AA", "UA", "ZZ")
             for d in (-1, 0, 30, None) for x in (True, False)]  # fmt: skip
    for ordered in ((), (0,)):
        one, other = (
            Block.seal(FLIGHTS, FLIGHTS.encode_rows(rows), ordered) for rows in (alike, mixed)
        )
        assert len(one.counts) != len(other.counts)
        again = Block.from_bytes(FLIGHTS, other.to_bytes())
        assert one.most_bytes == other.most_bytes == again.most_bytes
        held = [*again.codes, again.counts, *again.ordered.values()]
        assert sum(column.nbytes for column in held) == again.most_bytes, "it is full"


def test_a_stored_block_that_does_not_decode_is_refused() -> None:
    data = Block.seal(FLIGHTS, FLIGHTS.encode_rows([{"carrier": "ZZ"}])).to_bytes()
    narrower = Universe((Boolean("a"), Boolean("b"), Boolean("c")))
    for universe, bad in [
        (FLIGHTS, b""), (FLIGHTS, b"\x07" + data[1:]), (FLIGHTS, data[:4]), (FLIGHTS, data[:-1]),
        (FLIGHTS, data + b"\x00"), (FLIGHTS, data[:-1] + b"\xff"), (narrower, data),
    ]:  # fmt: skip
        with pytest.raises(CorruptState):
            Block.from_bytes(universe, bad)


def test_a_block_without_rows_counts_none() -> None:
    block = Block.seal(FLIGHTS, FLIGHTS.encode_rows([]))
    again = Block.from_bytes(FLIGHTS, block.to_bytes())
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
        sealed = Block.seal(FLIGHTS, form, kept)
        restored = Block.from_bytes(FLIGHTS, sealed.to_bytes())
        for block in (sealed, restored):
            assert list(block.ordered) == sorted(kept), "a public fact"
            blocks = Blocks(FLIGHTS, [block])
            for attribute in kept:
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
    for n_rows, kept in ((MAX_ORDERED, [0]), (MAX_ORDERED + 1, []), (MAX_ROWS, [])):
        encoded = FLIGHTS.encode_cells([{"carrier": "UA", "count": n_rows}])
        assert list(Block.seal(FLIGHTS, encoded, ordered=[0]).ordered) == kept


def test_the_length_of_a_stored_column_shows_nothing_of_its_codes() -> None:
    alike = FLIGHTS.encode_rows([{"carrier": "AA"}] * 20)
    mixed = FLIGHTS.encode_rows(
        [{"carrier": c, "cancelled": x} for c in "abcde" for x in (0, 1)] * 2
    )
    lengths = {len(Block.seal(FLIGHTS, e, ordered=[0, 2]).to_bytes()) for e in (alike, mixed)}
    assert len(lengths) == 1
    merged = {len(Block.seal(FLIGHTS, e).to_bytes()) for e in (alike, mixed)}
    assert lengths == {length + 2 + 2 * 20 for length in merged}


def test_a_wide_attribute_is_kept_in_two_bytes() -> None:
    wide = Universe((Boolean("a"), Category("b", tuple(map(str, range(300))))))
    encoded = wide.encode_rows([{"a": True, "b": str(b)} for b in (299, 7, 256, 7)])
    block = Block.from_bytes(wide, Block.seal(wide, encoded, ordered=[1]).to_bytes())
    assert block.ordered[1].tolist() == [299, 7, 256, 7]


def test_a_stored_column_that_does_not_decode_is_refused() -> None:
    encoded = FLIGHTS.encode_rows([{"carrier": "ZZ"}, {"carrier": "AA"}, {"carrier": "ZZ"}])
    data = Block.seal(FLIGHTS, encoded, ordered=[0, 2]).to_bytes()
    head, merged = data[:19], Block.seal(FLIGHTS, encoded).to_bytes()
    assert merged[:20] == head + b"\x00"
    cells, columns = merged[20:], b"\x02\x00\x02\x00\x00\x00"

    def stored(n_columns: int, names: bytes, columns: bytes) -> bytes:
        return head + bytes([n_columns]) + names + cells + columns

    assert stored(2, b"\x00\x02", columns) == data
    for bad in [
        *(data[:length] for length in range(1, len(data))),
        data + b"\x00",
        data[:1] + b"\xff" * 8 + data[9:],
        data[:9] + b"\xff" * 8 + data[17:],
        data[:17] + b"\x01" + data[18:],
        stored(0, b"", columns),
        stored(2, b"\x02\x00", columns[3:] + columns[:3]),
        stored(2, b"\x00\x00", columns[:3] * 2),
        stored(2, b"\x00\x03", columns),
        stored(1, b"\x00", b"\x02\x00\x03"),
        stored(1, b"\x00", b"\x02\x00\x00"),  # other rows than are counted
    ]:
        with pytest.raises(CorruptState):
            Block.from_bytes(FLIGHTS, bad)
    nothing = Block.seal(FLIGHTS, FLIGHTS.encode_rows([]), ordered=[0, 2]).to_bytes()
    with pytest.raises(CorruptState):
        Block.from_bytes(FLIGHTS, nothing[:-1])
    assert Block.from_bytes(FLIGHTS, stored(1, b"\x00", b"\x00\x02\x02")).ordered.keys() == {0}


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


@pytest.mark.parametrize("universe", [FLIGHTS, KEPT], ids=["cells", "values"])
def test_only_rows_that_count_are_in_a_cell(universe: Universe) -> None:
    rows = of_persons(universe, [*KEYS], [-5, -4, 10, 10, 40, 50, 7])
    assert rows.whose is not None
    marks = rows.whose.counted(1)
    assert marks.sum() == 3
    block = Block.seal(universe, rows, counted=marks)
    for one in (block, Block.from_bytes(universe, block.to_bytes())):
        blocks = Blocks(universe, [one])
        assert blocks.sizes == [7], "the rows that waited are public"
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


@pytest.mark.parametrize("universe", [FLIGHTS, KEPT], ids=["cells", "values"])
def test_stored_bytes_have_the_same_length_whosever_the_rows_are(universe: Universe) -> None:
    lengths = set()
    for keys in ([1] * 7, [None] * 7, [1, 2, 3, 4, 5, 6, 7], KEYS):
        rows = of_persons(universe, [*keys], [-5, -4, 10, 10, 40, 50, 7])
        again = Rows.from_bytes(universe, rows.to_bytes())
        assert again.to_bytes() == rows.to_bytes()
        assert rows.whose is not None
        assert again.whose is not None
        assert (again.whose.counted(2) == rows.whose.counted(2)).all()
        block = Block.seal(universe, rows, counted=rows.whose.counted(1))
        assert repr(block) == "Block(n_rows=7, capacity=7)"
        lengths.add((len(rows.to_bytes()), len(block.to_bytes())))
    assert len(lengths) == 1


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


def test_a_block_that_counts_more_rows_than_were_sealed_is_refused() -> None:
    rows = of_persons(FLIGHTS, [*KEYS], [None] * 7)
    block = Block.seal(FLIGHTS, rows, counted=np.ones(7, dtype=np.bool_))
    data = block.to_bytes()
    assert data[1] == 7
    fewer = data[:1] + b"\x06" + data[2:]
    in_order = data[:19] + b"\x01\x00" + data[20:] + b"\x00" * 7
    for bad in (fewer, in_order, data[:9], data[:5]):
        with pytest.raises(CorruptState):
            Block.from_bytes(FLIGHTS, bad)


def test_a_block_without_keys_counts_none() -> None:
    for keys in ([], [None] * 5):
        rows = of_persons(FLIGHTS, [*keys], [7] * len(keys))
        assert rows.whose is not None
        block = Block.seal(FLIGHTS, rows, counted=rows.whose.counted(3))
        again = Block.from_bytes(FLIGHTS, block.to_bytes())
        assert again.n_rows == len(keys)
        assert not Blocks(FLIGHTS, [again]).marginal((0, 1), range(1)).any()
