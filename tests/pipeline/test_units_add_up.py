"""The units of persons add up as a dictionary says, however they are merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.core.rows.person_slots import DIGEST_BYTES
from stream_dp.pipeline.rows.person_allowance import Used

NOTHING = Used.by(np.zeros((0, DIGEST_BYTES), np.uint8), np.zeros(0, np.int64))

PERSONS = st.dictionaries(st.integers(1, 12), st.integers(1, 9), max_size=8)


def digests(numbers: Any) -> Any:
    """Digests that end with zero bytes or begin with them, as few do."""
    found = [number.to_bytes(12, "big" if number % 2 else "little") for number in numbers]
    return np.frombuffer(b"".join(found), np.uint8).reshape(-1, 12)


def used(units: Mapping[int, int], empty: int = 0) -> Used:
    keys, squares = digests(units).view("S12").reshape(-1), np.array([*units.values()], np.uint16)
    order = np.argsort(keys)
    return Used(keys[order], squares[order], len(units) + empty)


@given(st.lists(st.tuples(PERSONS, st.integers(0, 3)), max_size=6), st.booleans())
def test_they_add_up_in_any_order_and_take_a_place_for_each_that_came(
    phases: list[tuple[dict[int, int], int]], backwards: bool
) -> None:
    parts = [used(units, empty) for units, empty in phases]
    whole, wanted = NOTHING, Counter[int]()
    for part, (units, _) in zip(parts, phases, strict=True):
        whole = part.and_by(whole) if backwards else whole.and_by(part)
        wanted.update(units)
    everybody = [*range(1, 14)]
    for one in (whole, Used.from_bytes(whole.to_bytes())):
        assert one.of(digests(everybody)).tolist() == [wanted[number] for number in everybody]
        assert one.n_places == sum(len(units) + empty for units, empty in phases)


def test_what_is_merged_changes_neither_part() -> None:
    one, other = used({1: 2, 3: 4}), used({3: 5})
    one.and_by(other)
    assert one.of(digests([1, 3])).tolist() == [2, 4]
    assert other.of(digests([1, 3])).tolist() == [0, 5]
