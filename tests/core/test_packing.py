"""Packing and unpacking: every cut is found, nothing stored is quoted, and no two values encode alike."""

from __future__ import annotations

import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.core import encoding
from stream_dp.core.encoding import Reader, canonical, identity
from stream_dp.errors import CorruptState

EXAMPLE = encoding.Format("example of the tests", 3)

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters())  # lone surrogates too: JSON can say them
    | st.binary(max_size=5)
)
values = st.recursive(
    scalars,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=12,
)


def typed(value: Any) -> object:
    """What is the same just where the value is, types and signs of zero included."""
    if isinstance(value, list | tuple):
        return ("list", *map(typed, value))
    if isinstance(value, dict):
        return ("dict", frozenset((key, typed(item)) for key, item in value.items()))
    if isinstance(value, float):
        return ("float", value, math.copysign(1.0, value))
    return (type(value).__name__, value)


@given(values, values)
def test_different_values_never_encode_alike(one: object, other: object) -> None:
    assert (canonical(one) == canonical(other)) is (typed(one) == typed(other))
    assert (identity("x", one) == identity("x", other)) is (typed(one) == typed(other))


@given(st.lists(values, max_size=4), st.lists(values, max_size=4))
def test_no_encoding_begins_another_so_that_sequences_cannot_run_together(
    one: list[object], other: list[object]
) -> None:
    joined = [b"".join(map(canonical, each)) for each in (one, other)]
    assert (joined[0] == joined[1]) is (typed(one) == typed(other))


@given(values)
def test_the_encoding_is_what_the_table_says(value: object) -> None:
    decoded, left = decode(canonical(value))
    assert left == b""
    assert typed(decoded) == typed(value)


def decode(data: bytes) -> tuple[object, bytes]:
    """A second reading of the table in the documentation of the module."""
    kind, data = data[:1], data[1:]
    if kind in b"nft":
        return {b"n": None, b"f": False, b"t": True}[kind], data
    if kind == b"d":
        return struct.unpack(">d", data[:8])[0], data[8:]
    length, data = int.from_bytes(data[:4], "big"), data[4:]
    if kind in b"isb":
        content, data = data[:length], data[length:]
        if kind == b"i":
            return int.from_bytes(content, "big", signed=True), data
        return (content if kind == b"b" else content.decode("utf-8", "surrogatepass")), data
    items = []
    for _ in range(length if kind == b"l" else 2 * length):
        item, data = decode(data)
        items.append(item)
    return (items if kind == b"l" else dict(zip(items[::2], items[1::2], strict=True))), data


def test_the_order_of_keys_does_not_matter_and_the_name_does() -> None:
    assert canonical({"a": 1, "b": 2}) == canonical({"b": 2, "a": 1})
    assert identity("a", 1) != identity("b", 1)
    assert identity("a", 1) != identity("a", 1.0) != identity("a", True)
    assert identity("a", (1, 2)) == identity("a", [1, 2])
    assert len(identity("a")) == encoding.IDENTITY_BYTES


@pytest.mark.parametrize("value", [range(3), {1}, np.int64(3), {1: 2}, [object()]])
def test_what_the_table_does_not_have_is_refused(value: object) -> None:
    with pytest.raises(TypeError, match="no canonical encoding"):
        canonical(value)


def test_formats_are_told_apart_by_their_names() -> None:
    with pytest.raises(ValueError, match="a name of its own"):
        encoding.Format("example of the tests", 1)
    assert encoding.formats()["example of the tests"] is EXAMPLE
    assert EXAMPLE.pack(b"x", b"y") == b"\x03xy"


@pytest.mark.parametrize("data", [b"\x00secret", b"\x01secret", b"\x04secret", b"s\xffecret"])
def test_an_unknown_version_is_refused_by_name_and_nothing_is_quoted(data: bytes) -> None:
    with pytest.raises(CorruptState) as caught:
        EXAMPLE.read(data)
    assert str(caught.value) == (
        "a stored example of the tests is of a version unknown to this release, which reads version 3; "
        "run the release that wrote it, or a later one"
    )


def test_every_part_comes_back_and_every_cut_is_found() -> None:
    table = np.array([[2**62, -1], [0, 7]])
    codes = np.array([1, 65_535], dtype=np.uint16)
    data = EXAMPLE.pack(
        encoding.fields("<Hd", 7, 0.5),
        encoding.pack_window(range(3, 9)),
        encoding.wide(-(2**100)),
        encoding.integers(table),
        encoding.array(codes),
        encoding.part(None),
        encoding.part(b""),
        encoding.part("\u00e9".encode()),
        b"rest",
    )

    def read(stored: bytes) -> list[object]:
        reader = EXAMPLE.read(stored)
        found = [
            *reader.fields("<Hd"),
            reader.window(),
            reader.wide(),
            reader.integers(2, 2).tolist(),
            reader.array(np.dtype(np.uint16), 2).tolist(),
            reader.part(),
            reader.required(),
            reader.required_text(),
            reader.take(4),
        ]
        reader.end()
        return found

    assert read(data) == [
        *(7, 0.5, range(3, 9), -(2**100), table.tolist(), codes.tolist(), None, b"", "\u00e9"),
        b"rest",
    ]
    for length in range(len(data)):
        with pytest.raises(CorruptState, match="cut short"):
            read(data[:length])
    with pytest.raises(CorruptState, match="bytes after its end"):
        read(data + b"x")


def test_a_reader_says_what_does_not_fit_and_shows_nothing() -> None:
    reader = Reader(b"\x05\x00\x00\x00\x05\x00\x00\x00" + encoding.part(None), "thing")
    assert repr(reader) == "Reader('thing')"
    with pytest.raises(CorruptState, match="a stored thing is about no phase"):
        reader.window()
    with pytest.raises(CorruptState, match="a stored thing lacks a part"):
        reader.required()
    with pytest.raises(CorruptState, match="a stored thing does not fit the data set"):
        reader.require(False)
    with pytest.raises(CorruptState, match="not UTF-8"):
        Reader(encoding.part(b"\xff"), "thing").text()


def test_arrays_are_views_and_integers_may_be_changed() -> None:
    data = encoding.integers(np.arange(3))
    assert not Reader(data, "thing").array(np.dtype(np.int64), 3).flags.writeable
    assert Reader(data, "thing").integers(3).flags.writeable
