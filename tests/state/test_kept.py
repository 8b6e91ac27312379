"""Private values have names that tell nothing, and parts of which a view has each under its own name."""

from __future__ import annotations

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.core.encoding import fields, part
from stream_dp.errors import CorruptState
from stream_dp.state import private_names
from stream_dp.state.private_names import (
    MOST_PARTS,
    Named,
    name_of,
    new_salt,
    part_name,
    salted,
    unsalted,
)

NAME = bytes(range(16))

# Names.


def test_a_value_comes_back_from_behind_its_salt() -> None:
    for value in (b"", b"rows", bytes(100)):
        one = salted(value)
        assert len(one) == 16 + len(value)
        assert one.endswith(value)
        assert unsalted(one) == value


def test_the_same_value_has_another_name_each_time_and_names_do_not_tell_that_it_is_the_same() -> (
    None
):
    some = [salted(b"the same rows") for _ in range(100)]
    names = {name_of(one) for one in some}
    assert len(names) == len(some)
    assert {len(name) for name in names} == {16}
    assert sha256(b"the same rows").digest()[:16] not in names


def test_salts_are_of_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """With another source the names could be guessed, and so what is behind them be tested."""
    monkeypatch.setattr(private_names, "token_bytes", lambda size: b"x" * size)
    assert new_salt() == b"x" * 16
    assert salted(b"rows") == b"x" * 16 + b"rows"


@given(st.binary(max_size=60))
def test_a_name_is_that_of_what_is_kept_salt_included(value: bytes) -> None:
    one = salted(value)
    assert name_of(one) == sha256(one).digest()[:16]
    for at in range(len(one)):
        changed = one[:at] + bytes((one[at] ^ 1,)) + one[at + 1 :]
        assert name_of(changed) != name_of(one)


# How a commit names a value.


@pytest.mark.parametrize(
    ("offsets", "n_runs"),
    [
        ((0,), 1),
        ((2**63,), 1),
        ((2**40, 3), 2),
        ((5, 6, 7), 1),
        ((5, 6, 8, 9, 4, 4), 4),
        ((7, 6, 5), 3),
        (tuple(range(2**40, 2**40 + MOST_PARTS)), 1),
        (tuple(range(0, 2 * MOST_PARTS, 2)), MOST_PARTS),
    ],
)
def test_a_name_and_offsets_come_back_as_runs_of_neighbours(
    offsets: tuple[int, ...], n_runs: int
) -> None:
    named = Named(NAME, offsets)
    assert Named.from_bytes(named.to_bytes()) == named
    assert len(named.to_bytes()) == 1 + 16 + 4 + 4 + 12 * n_runs


def test_a_slab_in_a_file_is_named_with_its_store_and_is_in_no_view() -> None:
    named = Named(NAME, (), b"8 bytes.")
    assert Named.from_bytes(named.to_bytes()) == named
    assert named.fields() == []
    assert len(named.to_bytes()) == 1 + 16 + 4 + 8 + 4


def test_what_a_commit_says_is_as_long_for_every_content_and_every_place() -> None:
    for n_parts in (1, 66):
        one, other = (
            Named(name, tuple(range(start, start + n_parts)))
            for name, start in ((NAME, 0), (bytes(16), 2**60))
        )
        assert len(one.to_bytes()) == len(other.to_bytes()) == 37


@pytest.mark.parametrize(
    ("runs", "store", "why"),
    [
        ([], b"", "is in two places, or in none"),
        ([(5, 1)], b"8 bytes.", "is in two places, or in none"),
        ([(5, 0)], b"", "has a number of parts"),
        ([(5, 2), (9, 0)], b"", "has a number of parts"),
        ([(0, MOST_PARTS + 1)], b"", "has a number of parts"),
        ([(0, 1), (7, MOST_PARTS)], b"", "has a number of parts"),
        ([(0, 2**32 - 1)], b"", "has a number of parts"),
        ([(0, 1)], None, "lacks a part"),
    ],
)
def test_a_value_that_is_nowhere_or_has_too_many_parts_is_refused(
    runs: list[tuple[int, int]], store: bytes | None, why: str
) -> None:
    said = b"".join(fields("<QI", *run) for run in runs)
    stored = b"\x01" + NAME + part(store) + fields("<I", len(runs)) + said
    with pytest.raises(CorruptState, match=f"name of a kept value {why}"):
        Named.from_bytes(stored)


# Parts.


def test_each_part_has_a_name_of_its_own_that_begins_with_that_of_the_value() -> None:
    named = Named(NAME, tuple(range(300)))
    names = named.fields()
    assert names[0] == NAME, "the index, or a secret"
    assert len(set(names)) == 300
    assert {name[:16] for name in names} == {NAME}
    assert names == [part_name(NAME, number) for number in range(300)]
    assert {len(name) for name in names[1:]} == {20}, "so none is the name of another value"
