"""Large values are cut into parts that say what they belong to."""

from __future__ import annotations

import pytest

from stream_dp.core.blocks import Block
from stream_dp.errors import CorruptState
from stream_dp.state import kept
from stream_dp.state.codec import MAX_BYTES
from stream_dp.state.kept import MOST_PARTS, PART_BYTES, Part, Place, cut


@pytest.mark.parametrize(
    ("length", "parts"),
    [(0, 1), (1, 1), (PART_BYTES, 1), (PART_BYTES + 1, 2), (3 * PART_BYTES, 3)],
)
def test_the_parts_are_numbered_and_make_the_value(length: int, parts: int) -> None:
    value = bytes(range(251)) * (length // 251 + 1)
    found = cut(value[:length])
    assert [part.number for part in found] == list(range(parts))
    assert {part.parts for part in found} == {parts}
    assert b"".join(part.content for part in found) == value[:length]
    assert len({part.of for part in found}) == 1
    assert found == cut(value[:length])


def test_parts_of_another_value_belong_to_another_one() -> None:
    one, other = cut(b"a" * (PART_BYTES + 1)), cut(b"a" * PART_BYTES + b"b")
    assert one[0].content == other[0].content
    assert one[0].of != other[0].of


def test_the_largest_value_that_the_store_takes_can_be_kept_and_no_larger_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert MOST_PARTS * PART_BYTES >= MAX_BYTES
    monkeypatch.setattr(kept, "MAX_BYTES", 10)
    assert cut(bytes(10))
    with pytest.raises(ValueError, match="at most 10 bytes"):
        cut(bytes(11))


def test_a_number_that_a_part_cannot_have_is_refused_and_no_repr_shows_the_content() -> None:
    part = Part(2, 3, bytes(16), b"secret rows")
    assert Part.from_bytes(part.to_bytes()) == part
    assert "secret" not in repr(part)
    for number, parts in ((3, 3), (0, MOST_PARTS + 1)):
        with pytest.raises(CorruptState, match="part of a kept value has a number"):
            Part.from_bytes(Part(number, parts, bytes(16), b"").to_bytes())


def test_a_place_is_told_from_every_block_by_its_first_byte() -> None:
    place = Place(7, (1, 2))
    assert Place.from_bytes(place.to_bytes()) == place
    assert Place.is_in(place.to_bytes())
    for version in Block._FORMAT.versions:
        assert not Place.is_in(bytes((version,)))
    assert not Place.is_in(b""), "a block whose rows are nowhere"


def test_a_place_is_as_long_for_every_content() -> None:
    assert len(Place(1, (0,)).to_bytes()) == len(Place(2**60, (2**60,)).to_bytes()) == 21


@pytest.mark.parametrize("n_parts", [0, MOST_PARTS + 1])
def test_a_place_of_no_part_or_too_many_is_refused(n_parts: int) -> None:
    with pytest.raises(CorruptState, match="place of a kept value has a number of parts"):
        Place.from_bytes(Place(7, tuple(range(n_parts))).to_bytes())
