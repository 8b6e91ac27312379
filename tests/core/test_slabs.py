"""Slabs: what is kept of them, what their lengths and indexes tell, and that merging changes no count."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from stream_dp.core.encoding import fields, part
from stream_dp.core.rows import slabs
from stream_dp.core.rows.attributes import Boolean, Category, Number
from stream_dp.core.rows.blocks import Block
from stream_dp.core.rows.encoded_rows import Rows
from stream_dp.core.rows.measured_values import Measure
from stream_dp.core.rows.person_slots import WHOSE_COLUMNS, Persons
from stream_dp.core.rows.slabs import (
    SLOTS,
    WEIGHT,
    Slab,
    SlabIndex,
    TableAsked,
    fits,
    merged,
    merges,
    parts_of,
    slabs_in_order,
    slabs_of,
)
from stream_dp.core.rows.universe import Universe
from stream_dp.errors import CorruptState
from tests.stored_slabs import SALT, drawn_order, slabs_again, stored_lengths

CARRIERS = ("AA", "UA", "WN", "DL")
MEASURE = Measure(0.5, -10.0, 100.0)
FLIGHTS = Universe(
    (
        Category("carrier", CARRIERS),
        Number("delay", (0, 10, 30), missing=True, measure=MEASURE),
        Boolean("cancelled"),
    )
)
PLAIN = Universe(
    (FLIGHTS.attributes[0], Number("delay", (0, 10, 30), missing=True), FLIGHTS.attributes[2])
)
WIDE = Universe((*FLIGHTS.attributes, Category("tail", tuple(map(str, range(400))))))
DELAY = 1
PERSONS = Persons("user_id", bytes(32), "batch")
SUBSETS = [some for k in range(4) for some in combinations(range(3), k)]
SCHEMAS = {"measured": FLIGHTS, "cells": PLAIN, "wide": WIDE}
FORMS = ("rows", "counted", "persons")


def drawn_rows(universe: Universe, form: str, n: int, seed: int) -> Rows:
    """Random rows, or entries. With some seeds they are all alike, or half of them."""
    draws = np.random.default_rng(seed)
    distinct = 1 if seed % 10 == 0 else n // 2 if seed % 10 == 1 else n
    at = draws.integers(0, distinct, n)
    columns: dict[str, Any] = {
        "carrier": draws.choice([*CARRIERS, "else"], n)[at].tolist(),
        "delay": draws.choice(np.array([None, -300, -5.5, 7, 15, 1e9]), n)[at].tolist(),
        "cancelled": draws.integers(0, 2, n)[at].tolist(),
    }
    if "tail" in universe.names:
        columns["tail"] = draws.integers(0, 500, n)[at].astype(str).tolist()
    if form == "counted":
        counts = draws.choice([0, 1, 7, 2**33], n).tolist()
        each = zip(*columns.values(), counts, strict=True)
        return universe.encode_cells(
            [dict(zip((*columns, "count"), entry, strict=True)) for entry in each]
        )
    if form == "persons":
        columns["user_id"] = draws.choice(np.array([None, 1, 2, 3]), n)[at].tolist()
        return universe.encode_columns(columns, PERSONS)
    return universe.encode_columns(columns)


def marks_of(rows: Rows) -> np.ndarray | None:
    return None if rows.whose is None else rows.whose.counted(2)


def weighed(rows: Rows, order: Any = None) -> list[Slab]:
    """The slabs of rows, with weights where the rows say whose they are."""
    marks = marks_of(rows)
    return [*slabs_of(rows, order, more={} if marks is None else {WEIGHT: marks.astype(np.uint8)})]


def table_of(
    universe: Universe,
    some: Iterable[Slab],
    attributes: tuple[int, ...],
    measured: int | None = None,
) -> np.ndarray:
    asked = TableAsked(attributes, 0, measured)
    tables = (asked.table(universe.shape, slab) for slab in some)
    return sum(tables, np.zeros(tuple(universe.shape[a] for a in attributes), np.int64))


def by_hand(rows: Rows, attributes: tuple[int, ...], measured: int | None) -> dict[Any, int]:
    """What is in each cell, entry by entry, in Python integers."""
    found: dict[tuple[int, ...], int] = {}
    marks = marks_of(rows)
    for entry in range(rows.n_entries):
        n = int(rows.entry_counts[entry]) if marks is None else int(marks[entry])
        worth = 1 if measured is None else int(rows.measures[measured][entry])
        cell = tuple(int(rows.codes[a][entry]) for a in attributes)
        found[cell] = found.get(cell, 0) + n * worth
    return {cell: n for cell, n in found.items() if n}


def in_cells(table: np.ndarray) -> dict[Any, int]:
    return {cell: int(n) for cell, n in np.ndenumerate(table) if n}


# Lengths ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("slots", [SLOTS, 16], ids=["one slab", "several slabs"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("schema", SCHEMAS)
def test_a_hundred_data_sets_of_one_schema_have_parts_of_equal_lengths(
    monkeypatch: pytest.MonkeyPatch, schema: str, form: str, slots: int
) -> None:
    monkeypatch.setattr(slabs, "SLOTS", slots)
    universe, n, found = SCHEMAS[schema], 50, set()
    for seed in range(100):
        rows = drawn_rows(universe, form, n, seed)
        some = weighed(rows, drawn_order(seed))
        if rows.whose is not None:
            some += slabs_of(rows, drawn_order(seed), more=rows.whose.columns)
        if universe.n_cells <= slots:
            some.append(merged(universe, some))
        if form == "rows":
            some += slabs_in_order(rows, [0, 2])
        found.add(str(stored_lengths(some)))
    assert len(found) == 1


@pytest.mark.parametrize("n", [99, 480])
@pytest.mark.parametrize("form", FORMS)
def test_a_hundred_blocks_of_one_schema_have_parts_of_equal_lengths(form: str, n: int) -> None:
    """Whether a block is merged is public, too."""
    lengths = set()
    for seed in range(100):
        rows = drawn_rows(PLAIN, form, n, seed)
        block = Block.seal(PLAIN, rows, counted=marks_of(rows), order=drawn_order(seed))
        lengths.add(str(stored_lengths(block.slabs)))
    assert len(lengths) == 1


def test_a_column_is_stored_as_it_is_in_the_least_unsigned_type() -> None:
    rows = drawn_rows(WIDE, "persons", 30, 5)
    assert rows.whose is not None
    (slab,) = slabs_of(rows, more={WEIGHT: np.ones(30, np.uint8), **rows.whose.columns})
    found = {name: column.dtype for name, column in slab.columns.items()}
    assert found == {
        **dict.fromkeys(("0", "1", "2", WEIGHT), np.uint8), "3": np.uint16,
        **dict.fromkeys(("value 1", *rows.whose.columns), np.uint32),
    }  # fmt: skip
    assert {*WHOSE_COLUMNS} - found.keys() == {"own 0", "own 1"}, "these rows have no key"
    for column, stored in zip(slab.columns.values(), slab.stored(SALT)[1:], strict=True):
        assert stored == column.astype(column.dtype.newbyteorder("<")).tobytes()


def test_rows_are_cut_into_slabs_of_a_million_slots_at_most() -> None:
    assert SLOTS == 2**20
    assert [*parts_of(0)] == []
    assert [*parts_of(SLOTS)] == [slice(0, SLOTS)]
    ends = [slice(0, SLOTS), slice(SLOTS, 2 * SLOTS), slice(2 * SLOTS, 2 * SLOTS + 1)]
    assert [*parts_of(2 * SLOTS + 1)] == ends
    assert (fits(SLOTS), fits(SLOTS + 1)) == (True, False)
    codes = np.arange(SLOTS + 2, dtype=np.uint32).astype(np.uint8)
    rows = Rows((codes, codes % 2), None)
    assert [(one.n_slots, one.n_rows) for one in slabs_of(rows)] == [(SLOTS, SLOTS), (2, 2)]
    in_order = [*slabs_in_order(rows, [1])]
    assert [one.n_slots for one in in_order] == [SLOTS, 2]
    assert np.array_equal(np.concatenate([one.columns["1"] for one in in_order]), codes % 2)


def test_nothing_is_kept_in_order_where_no_attribute_is_asked_for() -> None:
    """And nothing is done for it, however many rows there are."""
    rows = PLAIN.encode_cells([{"carrier": "AA", "count": 2**60}])
    assert [*slabs_in_order(rows, ())] == []


# What the index tells -----------------------------------------------------------------------------


def example(seed: int = 3) -> Slab:
    (slab,) = weighed(drawn_rows(FLIGHTS, "persons", 12, seed))
    return slab


def test_a_slab_comes_back_from_what_is_kept() -> None:
    for slab in (example(), merged(FLIGHTS, [example()]), Slab(0, 0, {})):
        again = Slab.of_stored(slab.stored(SALT))
        assert (again.n_rows, again.n_slots) == (slab.n_rows, slab.n_slots)
        assert list(again.columns) == list(slab.columns)
        for name, column in slab.columns.items():
            assert again.columns[name].dtype == column.dtype
            assert again.columns[name].tolist() == column.tolist()
        index = SlabIndex.from_bytes(slab.stored(SALT)[0])
        assert index.names == tuple(slab.columns)
        assert [index.place(name) for name in index.names] == [*range(1, len(index.names) + 1)]
    with pytest.raises(ValueError, match=r"shorter|longer"):
        Slab.of_stored(example().stored(SALT)[:-1])


def stored_of(slab: Slab, salt: bytes = SALT) -> tuple[SlabIndex, list[bytes]]:
    first, *columns = slab.stored(salt)
    return SlabIndex.from_bytes(first), columns


def test_an_index_has_its_own_columns_at_their_places_and_no_others() -> None:
    """Neither those of another slab, nor of another place, nor changed ones."""
    index, columns = stored_of(example())
    assert len(set(columns)) == len(columns) == 5, "or this shows less"
    places = range(1, len(columns) + 1)
    at = [(place, place) for place in places]
    assert [(p, q) for p in places for q in places if index.has(p, columns[q - 1])] == at
    for place, stored in zip(places, columns, strict=True):
        for byte in range(len(stored)):
            changed = stored[:byte] + bytes((stored[byte] ^ 1,)) + stored[byte + 1 :]
            assert not index.has(place, changed)
        for other in (b"", stored[:-1], stored + b"\0", stored[1:], stored * 2):
            assert not index.has(place, other)


@pytest.mark.parametrize("kind", ["other rows", "another salt", "another name"])
def test_an_index_has_no_column_of_another_slab(kind: str) -> None:
    slab = example()
    index, columns = stored_of(slab)
    match kind:
        case "other rows":
            other, theirs = stored_of(example(4))
        case "another salt":
            other, theirs = stored_of(slab, bytes(16))
            assert theirs == columns
        case _:
            renamed = {f"{name}0": column for name, column in slab.columns.items()}
            other, theirs = stored_of(replace(slab, columns=renamed))
            assert theirs == columns
    places = range(1, len(columns) + 1)
    assert all(index.has(place, columns[place - 1]) for place in places)
    assert all(other.has(place, theirs[place - 1]) for place in places)
    digests = [{entry.digest for entry in one.entries} for one in (index, other)]
    assert len(digests[0]) == len(digests[1]) == len(columns)
    assert not digests[0] & digests[1]
    if kind == "other rows":
        assert not any(index.has(place, theirs[place - 1]) for place in places)


def test_equal_columns_have_different_digests_within_a_slab_and_in_another_one() -> None:
    column = np.zeros(8, np.uint8)
    one, other = (
        stored_of(Slab(8, 8, {"0": column, "1": column}), salt)[0] for salt in (SALT, bytes(16))
    )
    digests = [entry.digest for index in (one, other) for entry in index.entries]
    assert len(set(digests)) == 4
    assert {len(digest) for digest in digests} == {16}


def index_of(
    *columns: tuple[str, int], n_rows: int = 3, n_slots: int = 3, version: int = 1
) -> bytes:
    said = b"".join(part(name.encode()) + fields("<B", size) + bytes(16) for name, size in columns)
    return bytes((version,)) + SALT + fields("<QIH", n_rows, n_slots, len(columns)) + said


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        (index_of(("0", 1), version=2), "unknown to this release"),
        (index_of(("0", 1), n_slots=SLOTS + 1), "does not fit"),
        (index_of(("0", 0)), "does not fit"),
        (index_of(("0", 3)), "does not fit"),
        (index_of(("0", 8)), "does not fit"),
        (index_of(("0", 1))[:-1], "cut short"),
        (index_of(("0", 1)) + b"\0", "bytes after its end"),
        (index_of(("0", 1)).replace(b"\x010\x01", b"\x01\xff\x01"), "not UTF-8"),
        (b"", "cut short"),
    ],
)
def test_an_index_that_does_not_decode_is_refused(stored: bytes, why: str) -> None:
    assert SlabIndex.from_bytes(index_of(("0", 1), ("weight", 1), n_slots=SLOTS)).n_slots == SLOTS
    for read in (SlabIndex.from_bytes, lambda first: Slab.of_stored([first, b""])):
        with pytest.raises(CorruptState, match=f"^a stored slab .*{why}") as caught:
            read(stored)
        assert SALT.hex() not in "".join(traceback.format_exception(caught.value))


def test_no_repr_shows_more_than_rows_and_slots_and_that_there_are_columns() -> None:
    shown = []
    for seed in (3, 4):
        slab = example(seed)
        index, _ = stored_of(slab)
        shown.append((repr(slab), repr(index)))
        assert "columns" not in repr(slab)
        for entry in index.entries:
            assert repr(entry.digest)[2:-1] not in repr(index)
        assert repr(SALT)[2:-1] not in repr(index)
    assert shown[0] == shown[1]


# The secret order ---------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_a_secret_order_keeps_what_belongs_to_a_row_together(
    monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(slabs, "SLOTS", 16)
    rows = drawn_rows(FLIGHTS, form, 45, 7)
    marks, whose = marks_of(rows), rows.whose
    more: dict[str, Any] = {}
    if whose is not None and marks is not None:
        more = {WEIGHT: marks.astype(np.uint8), **whose.columns}
    drawn: list[np.ndarray] = []

    def order(n_slots: int) -> np.ndarray:
        drawn.append(drawn_order(len(drawn))(n_slots))
        return drawn[-1]

    came, mixed = [*slabs_of(rows, more=more)], [*slabs_of(rows, order, more=more)]
    assert [len(one) for one in drawn] == [16, 16, 13], "each slab has an order of its own"
    for one, other, placed in zip(came, mixed, drawn, strict=True):
        assert (one.n_rows, one.n_slots) == (other.n_rows, other.n_slots)
        assert list(one.columns) == list(other.columns)
        for name, column in one.columns.items():
            assert other.columns[name].tolist() == column[placed].tolist()
            assert other.columns[name].dtype == column.dtype
        assert len(set(map(tuple, np.column_stack([*one.columns.values()]).tolist()))) > 8


# Merging ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_equal_rows_are_merged_where_cells_are_an_eighth_of_the_slots_and_not_where_they_are_more(
    form: str,
) -> None:
    n = 8 * PLAIN.n_cells
    for n_slots, is_merged in ((n - 1, False), (n, True), (n + 1, True)):
        for seed in (0, 1, 2):  # rows that are all alike among them
            rows = drawn_rows(PLAIN, form, n_slots, seed)
            block = Block.seal(PLAIN, rows, counted=marks_of(rows), order=drawn_order(1))
            (slab,) = block.slabs
            assert slab.n_slots == (PLAIN.n_cells if is_merged else n_slots)
            assert ("row 0" in slab.columns) is is_merged
        assert merges(PLAIN, n_slots) is is_merged


def test_the_number_of_slots_decides_and_not_that_of_rows() -> None:
    cells = [{"carrier": "AA", "count": 10**6}] * 5
    (slab,) = Block.seal(PLAIN, PLAIN.encode_cells(cells)).slabs
    assert slab.n_slots == 5


def test_more_cells_than_a_slab_has_slots_are_never_merged() -> None:
    half = [Boolean(f"b{n}") for n in range(19)]
    for last, is_merged in ((Boolean("c"), True), (Category("c", ("a", "b")), False)):
        universe = Universe((*half, last))
        assert (universe.n_cells <= SLOTS) is is_merged
        assert merges(universe, 8 * universe.n_cells) is is_merged


@pytest.mark.parametrize("slots", [SLOTS, 60], ids=["of one slab", "of several slabs"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("universe", [FLIGHTS, PLAIN], ids=["measured", "cells"])
def test_every_table_of_merged_rows_is_that_of_rows_that_are_not(
    monkeypatch: pytest.MonkeyPatch, universe: Universe, form: str, slots: int
) -> None:
    monkeypatch.setattr(slabs, "SLOTS", slots)
    for seed in range(5):
        rows = drawn_rows(universe, form, 170, seed)
        apart = weighed(rows, drawn_order(seed))
        assert len(apart) == (1 if slots == SLOTS else 3)
        together = merged(universe, apart)
        bit_by_bit = merged(universe, ())
        for slab in apart:  # as rows that wait as slabs are merged
            bit_by_bit = merged(universe, (bit_by_bit, *slabs_again([slab])))
        assert together.n_rows == bit_by_bit.n_rows == rows.n_rows
        assert together.n_slots == bit_by_bit.n_slots == universe.n_cells
        for attributes in SUBSETS:
            for measured in (None, *universe.measured):
                wanted = table_of(universe, apart, attributes, measured)
                assert in_cells(wanted) == by_hand(rows, attributes, measured)
                for one in (together, bit_by_bit, *slabs_again([together])):
                    found = table_of(universe, [one], attributes, measured)
                    assert found.dtype == np.int64
                    assert np.array_equal(found, wanted)


# What a look reads --------------------------------------------------------------------------------


ROWS_OF: dict[str, Callable[[int], Slab]] = {
    "rows": lambda seed: weighed(drawn_rows(FLIGHTS, "rows", 20, seed))[0],
    "counted": lambda seed: weighed(drawn_rows(FLIGHTS, "counted", 20, seed))[0],
    "persons": lambda seed: weighed(drawn_rows(FLIGHTS, "persons", 20, seed))[0],
    "merged": lambda seed: merged(FLIGHTS, weighed(drawn_rows(FLIGHTS, "rows", 20, seed))),
}
ENTRIES = ["entry 0", "entry 1"]


@pytest.mark.parametrize(
    ("kind", "attributes", "measured", "needs"),
    [
        ("rows", (), None, []),
        ("rows", (0, 2), None, ["0", "2"]),
        ("rows", (1,), DELAY, ["1", "value 1"]),
        ("counted", (), None, ENTRIES),
        ("counted", (0,), None, ["0", *ENTRIES]),
        ("counted", (0,), DELAY, ["0", "value 1", *ENTRIES]),
        ("persons", (), None, [WEIGHT]),
        ("persons", (0, 1, 2), None, ["0", "1", "2", WEIGHT]),
        ("persons", (), DELAY, ["value 1", WEIGHT]),
        ("merged", (0, 2), None, ["row 0", "row 1"]),
        ("merged", (), DELAY, ["sum 1 0", "sum 1 1"]),
    ],
)
def test_a_table_needs_the_columns_that_public_names_say_and_no_others(
    kind: str, attributes: tuple[int, ...], measured: int | None, needs: Sequence[str]
) -> None:
    asked = TableAsked(attributes, 0, measured)
    for seed in range(5):
        slab = ROWS_OF[kind](seed)
        assert asked.needs(slab.columns.keys()) == needs
        _, needed = slab.split(needs)
        assert needed.is_merged is slab.is_merged is (kind == "merged")
        assert list(needed.columns) == [name for name in slab.columns if name in needs]
        assert np.array_equal(asked.table(FLIGHTS.shape, needed), asked.table(FLIGHTS.shape, slab))


def test_the_slots_of_a_table_are_those_in_cells_and_those_that_do_not_count() -> None:
    """Who has a table of a slab that was counted elsewhere can tell that no slot was left out."""
    out = []
    for kind in ("rows", "persons"):
        for seed in range(5):
            slab = ROWS_OF[kind](seed)
            for attributes in SUBSETS:
                counts = TableAsked(attributes, 0).table(FLIGHTS.shape, slab)
                assert int(counts.sum()) + slab.n_out == slab.n_slots == slab.n_rows == 20
            out.append(slab.n_out)
    assert out[:5] == [0] * 5
    assert all(out[5:])


def test_a_slab_is_split_into_two_that_have_all_its_columns() -> None:
    slab = example()
    ours, theirs = slab.split(("0", WEIGHT, "of no slab"))
    assert set(theirs.columns) == {"0", WEIGHT}
    assert ours.columns.keys() | theirs.columns.keys() == slab.columns.keys()
    assert (ours.n_rows, theirs.n_slots) == (slab.n_rows, slab.n_slots)
    assert ours.n_bytes + theirs.n_bytes == slab.n_bytes
