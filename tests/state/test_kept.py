"""Private values have names that tell nothing, and large ones are cut into parts."""

from __future__ import annotations

from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.errors import CorruptState
from stream_dp.state import private_names
from stream_dp.state.private_names import (
    MOST_BYTES,
    MOST_PARTS,
    PART_BYTES,
    Named,
    cut,
    name_of,
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
    assert blake2b(b"the same rows", digest_size=16).digest() not in names


def test_salts_are_of_the_operating_system(monkeypatch: pytest.MonkeyPatch) -> None:
    """With another source the names could be guessed, and so what is behind them be tested."""
    monkeypatch.setattr(private_names, "token_bytes", lambda size: b"x" * size)
    assert salted(b"rows") == b"x" * 16 + b"rows"


@given(st.binary(max_size=60))
def test_a_name_is_that_of_what_is_kept_salt_included(value: bytes) -> None:
    one = salted(value)
    assert name_of(one) == blake2b(one, digest_size=16).digest()
    for at in range(len(one)):
        changed = one[:at] + bytes((one[at] ^ 1,)) + one[at + 1 :]
        assert name_of(changed) != name_of(one)


# How a commit names a value.


@pytest.mark.parametrize("offsets", [(0,), (2**40, 3), tuple(range(MOST_PARTS))])
def test_a_name_and_offsets_come_back(offsets: tuple[int, ...]) -> None:
    named = Named(NAME, offsets)
    assert Named.from_bytes(named.to_bytes()) == named


def test_what_a_commit_says_is_as_long_for_every_content_and_every_place() -> None:
    one, other = Named(NAME, (0,)), Named(bytes(16), (2**60,))
    assert len(one.to_bytes()) == len(other.to_bytes()) == 29


@pytest.mark.parametrize("n_parts", [0, MOST_PARTS + 1])
def test_no_part_or_too_many_are_refused(n_parts: int) -> None:
    stored = Named(NAME, tuple(range(n_parts))).to_bytes()
    with pytest.raises(CorruptState, match="name of a kept value has a number of parts"):
        Named.from_bytes(stored)


def test_a_name_that_is_cut_short_or_too_long_is_refused() -> None:
    stored = Named(NAME, (1, 2)).to_bytes()
    for length in range(len(stored)):
        with pytest.raises(CorruptState):
            Named.from_bytes(stored[:length])
    with pytest.raises(CorruptState):
        Named.from_bytes(stored + b"\x00")


# Parts.


@pytest.mark.parametrize(
    ("length", "parts"),
    [(1, 1), (PART_BYTES, 1), (PART_BYTES + 1, 2), (3 * PART_BYTES, 3)],
)
def test_the_parts_are_pieces_of_the_value_in_order(length: int, parts: int) -> None:
    value = (bytes(range(251)) * (length // 251 + 1))[:length]
    found = cut(value)
    assert [len(part) for part in found[:-1]] == [PART_BYTES] * (parts - 1)
    assert b"".join(found) == value
    assert found == cut(value)


def test_no_part_is_empty() -> None:
    """A record without content erases."""
    for length in (0, 1, PART_BYTES - 16, PART_BYTES - 15, 2 * PART_BYTES - 16):
        assert all(cut(salted(bytes(length))))


def test_the_largest_value_is_kept_and_no_larger_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_PARTS * PART_BYTES == MOST_BYTES
    monkeypatch.setattr(private_names, "MOST_BYTES", 10)
    assert cut(bytes(10))
    with pytest.raises(ValueError, match="at most 10 bytes"):
        cut(bytes(11))


def test_lengths_follow_from_the_length_of_the_value_alone() -> None:
    for length in (0, 1, 1000, PART_BYTES):
        one, other = (
            [len(part) for part in cut(salted(bytes((byte,)) * length))] for byte in (0, 255)
        )
        assert one == other
