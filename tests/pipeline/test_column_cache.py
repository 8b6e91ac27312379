"""The cache of columns: bounded, shared by the data sets of a worker, and blind to what columns hold."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stream_dp.pipeline.rows.column_cache import ColumnCache, ColumnKey

OURS, THEIRS = object(), object()


def key(number: int, place: int = 1, owner: object = OURS) -> ColumnKey:
    return ColumnKey(owner, b"slab %d" % number, place)


def column(value: int = 0) -> Any:
    return np.full(10, value, np.uint8)


def kept(cache: ColumnCache) -> list[ColumnKey]:
    return [*cache._kept]


def test_the_columns_used_longest_ago_go_first_whoever_they_belong_to() -> None:
    cache, first = ColumnCache(30), column()
    cache.put(key(0), first, 10)
    cache.put(key(1), column(), 10)
    cache.put(key(1, place=2), column(), 10)
    assert cache.get(key(0)) is first
    cache.put(key(7, owner=THEIRS), column(), 10)
    assert kept(cache) == [key(1, place=2), key(0), key(7, owner=THEIRS)]
    assert cache.get(key(1)) is None
    assert cache.get(key(0, owner=THEIRS)) is None, "it is of another data set"
    cache.put(key(1, place=2), column(), 10)
    assert kept(cache) == [key(0), key(7, owner=THEIRS), key(1, place=2)], "none counts twice"


def test_lengths_are_added_up_however_columns_come_and_go() -> None:
    cache = ColumnCache(100)
    draws = np.random.default_rng(1)
    for number in draws.integers(0, 12, 400).tolist():
        cache.put(key(number), column(), int(draws.integers(1, 101)))
        if number == 11:
            cache.forget(OURS, [b"slab 3", b"slab 4"])
        lengths = [n_bytes for _, n_bytes in cache._kept.values()]
        assert sum(lengths) == cache._n_bytes <= 100
    cache.forget(OURS)
    assert cache._n_bytes == 0


@pytest.mark.parametrize("most_bytes", [0, 9])
def test_a_column_longer_than_the_bound_is_not_kept_and_drives_nothing_out(
    most_bytes: int,
) -> None:
    cache = ColumnCache(most_bytes)
    cache.put(key(0), column(), most_bytes)
    cache.put(key(1), column(), 10)
    assert kept(cache) == [key(0)]


def test_what_is_kept_does_not_depend_on_what_columns_hold() -> None:
    found = []
    for values in ([0] * 9, [*range(9)]):
        cache = ColumnCache(35)
        for number, value in enumerate(values):
            cache.put(key(number), column(value), 10)
            cache.get(key(number // 2))
        found.append(kept(cache))
    assert found[0] == found[1]


def test_what_is_forgotten_is_of_one_owner_and_of_all_places_of_a_slab() -> None:
    cache = ColumnCache()
    for number in range(3):
        for place in (0, 1):
            cache.put(key(number, place), column(), 10)
            cache.put(key(number, place, THEIRS), column(), 10)
    cache.forget(OURS, [b"slab 0", b"slab 2"])
    ours = [one for one in kept(cache) if one.owner is OURS]
    assert ours == [key(1, 0), key(1, 1)]
    assert len(kept(cache)) == 2 + 6
    cache.forget(THEIRS)
    assert kept(cache) == ours


def test_no_repr_shows_a_column() -> None:
    cache = ColumnCache()
    cache.put(key(0), column(231), 10)
    assert repr(cache) == "ColumnCache(1 columns)"
