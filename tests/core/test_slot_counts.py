"""Slots are counted exactly: against a plain loop over slots, for every way in which they are counted."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from stream_dp.core.rows import slot_counts
from stream_dp.core.rows.slot_counts import Column, count_slots, digits_of, from_digits

CHUNK, LARGE_CHUNK = 8, 12
N_SLOTS = (0, 1, 2, 7, 8, 9, 12, 13, 16, 17, 24, 25, 41)
"""Even and odd ones, with and without a rest, of chunks of 8 and of 12."""

SIZES: list[tuple[int, ...]] = [
    (),
    (1,),
    (1, 1),
    (2,),
    (24,),  # the last one that is compared cell by cell
    (25,),
    (4, 6),
    (5, 5),
    (8, 8),  # the last one of which two slots are counted at once
    (13, 5),
    (255,),
    (256,),
    (257,),
    (3, 5, 17),
    (2, 128),
    (128, 2),
    (256, 1),
    (1, 256),
    (1, 256, 1),
    (1, 1, 16, 16),
    (257, 1),
    (2**15,),
    (2**15 + 1,),
    (65535,),
    (65536,),
    (257, 255),
    (256, 256),
    (65536, 1),
    (1, 65536),
    (65536, 2),
    (2, 65536),
    (41, 41, 41),
    (2,) * 17,
]
WEIGHTS = ("no weight", "some count", "none counts", "all count")
WORTH = ("one each", "a digit each", "two digits each")
MOST = 2**62


def drawn(sizes: Sequence[int], n_slots: int, draws: np.random.Generator) -> list[Column]:
    """Codes, the first and the last one of each attribute among them; as they are stored: read-only."""
    columns: list[Column] = []
    for size in sizes:
        dtype = np.uint8 if size <= 2**8 else np.uint16
        column = draws.integers(0, size, n_slots)
        column[draws.random(n_slots) < 0.2] = size - 1
        column[draws.random(n_slots) < 0.1] = 0
        columns.append(frozen(column.astype(dtype)))
    return columns


def frozen(column: npt.NDArray[Any]) -> Any:
    column.setflags(write=False)
    return column


def weight_of(kind: str, n_slots: int, draws: np.random.Generator) -> Column | None:
    match kind:
        case "no weight":
            return None
        case "some count":
            return frozen(draws.integers(0, 2, n_slots).astype(np.uint8))
        case _:
            return frozen(np.full(n_slots, kind == "all count", np.uint8))


def worth_of(kind: str, n_slots: int, draws: np.random.Generator) -> list[int]:
    """What each slot counts for; with two digits 2^62 in all."""
    match kind:
        case "one each":
            return [1] * n_slots
        case "a digit each":
            return draws.choice([0, 1, 2**20, 2**32 - 2, 2**32 - 1], n_slots).tolist()
        case _:
            found = draws.integers(0, MOST // max(n_slots, 1), n_slots).tolist()
            return [*found[:-1], MOST - sum(found[:-1])] if found else []


def digits_for(kind: str, worth: list[int]) -> tuple[Column, ...]:
    match kind:
        case "one each":
            return ()
        case "a digit each":
            return (frozen(np.array(worth, np.uint32)),)
        case _:
            return digits_of(frozen(np.array(worth, np.int64)))


def plain(
    codes: Sequence[Column], sizes: Sequence[int], weight: Column | None, worth: list[int]
) -> npt.NDArray[np.int64]:
    """The same slot by slot, in Python integers."""
    table = [0] * math.prod(sizes)
    for slot, number in enumerate(worth):
        if weight is not None and weight[slot] == 0:
            continue
        cell = 0
        for column, size in zip(codes, sizes, strict=True):
            cell = cell * size + int(column[slot])
        table[cell] += number
    return np.array(table, dtype=np.int64).reshape(tuple(sizes))


@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_every_table_is_what_counting_slot_by_slot_gives(
    monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...]
) -> None:
    monkeypatch.setattr(slot_counts, "_CHUNK", CHUNK)
    monkeypatch.setattr(slot_counts, "_LARGE_CHUNK", LARGE_CHUNK)
    draws = np.random.default_rng(math.prod(sizes))
    for n_slots, weighed, worthy in product(N_SLOTS, WEIGHTS, WORTH):
        codes, weight = drawn(sizes, n_slots, draws), weight_of(weighed, n_slots, draws)
        worth = worth_of(worthy, n_slots, draws)
        digits = digits_for(worthy, worth)
        found = count_slots(codes, sizes, n_slots, weight=weight, digits=digits)
        assert found.dtype == np.int64
        assert found.shape == sizes
        wanted = plain(codes, sizes, weight, worth)
        assert np.array_equal(found, wanted), (n_slots, weighed, worthy)
        counted = sum(number for slot, number in enumerate(worth) if weight is None or weight[slot])
        assert int(found.sum()) == counted


@pytest.mark.parametrize(
    "sizes", [(3,), (40,), (200,), (256,), (300,), (40_000,), (70_000 // 7, 7)]
)
@pytest.mark.parametrize("n_slots", [2**17 - 1, 2**17 + 1, 2**18, 2**20, 2**20 + 2])
def test_no_slot_is_lost_or_counted_twice_at_the_end_of_a_chunk(
    sizes: tuple[int, ...], n_slots: int
) -> None:
    draws = np.random.default_rng(n_slots)
    codes = drawn(sizes, n_slots, draws)
    weight = draws.integers(0, 2, n_slots).astype(np.uint8)
    cells = np.ravel_multi_index([*map(np.asarray, codes)], sizes)
    for of in (None, weight):
        wanted = np.zeros(math.prod(sizes), np.int64)
        np.add.at(wanted, cells if of is None else cells[of == 1], 1)
        found = count_slots(codes, sizes, n_slots, weight=of)
        assert np.array_equal(found.reshape(-1), wanted)


@pytest.mark.parametrize("size", [1, 3, 2**15, 2**15 + 1, 2**16])
def test_what_slots_count_for_is_added_up_exactly_however_many_there_are(size: int) -> None:
    """In floats sums beyond 2^53 would lose their last digits."""
    n_slots = 2**22 + 1
    draws = np.random.default_rng(size)
    column = np.full(n_slots, size - 1, np.uint16)
    low = draws.integers(2**31, 2**32, n_slots, dtype=np.uint32)
    wanted = int(low.astype(np.int64).sum())
    assert wanted > 2**53
    assert count_slots([column], [size], n_slots, digits=(low,))[-1] == wanted
    high = np.full(n_slots, 2**7 - 1, np.uint32)
    found = count_slots([column], [size], n_slots, digits=(low, high))
    assert found[-1] == wanted + (n_slots * (2**7 - 1) << 32)
    assert not found[:-1].any()


@pytest.mark.parametrize("number", [2**53 + 1, 2**62 - 1, 2**62])
def test_one_entry_of_any_number_of_rows_is_counted_to_its_last_row(number: int) -> None:
    entries = np.array([0, number, 0], np.int64)
    codes = np.array([0, 1, 1], np.uint8)
    for size in (2, 100, 300):
        found = count_slots([codes], [size], 3, digits=digits_of(entries))
        assert found[:2].tolist() == [0, number]
        assert int(float(2**53 + 1)) != 2**53 + 1, "or this test shows nothing"


def test_the_two_digits_of_numbers_make_them_again() -> None:
    numbers = [0, 1, 2**32 - 1, 2**32, 2**32 + 1, 2**53 + 1, 2**62, 2**63 - 1]
    low, high = digits_of(np.array(numbers, np.int64))
    assert low.dtype == high.dtype == np.uint32
    assert [(int(h) << 32) + int(n) for n, h in zip(low, high, strict=True)] == numbers
    assert from_digits(low, high).tolist() == numbers
    assert from_digits(frozen(low), frozen(high)).dtype == np.int64


def test_counting_changes_no_column() -> None:
    """Columns are kept for later looks, and not all of them are read-only."""
    draws = np.random.default_rng(1)
    for sizes in ((256,), (16, 16), (300, 3)):
        codes = [column.copy() for column in drawn(sizes, 50, draws)]
        weight, low = draws.integers(0, 2, 50).astype(np.uint8), np.arange(50, dtype=np.uint32)
        before = [column.copy() for column in (*codes, weight, low)]
        count_slots(codes, sizes, 50, weight=weight, digits=(low,))
        for column, as_it_was in zip((*codes, weight, low), before, strict=True):
            assert np.array_equal(column, as_it_was)
