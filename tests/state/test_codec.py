"""Stored bytes and back: exact, versioned, and refused in words when they are not ours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.errors import CorruptState
from stream_dp.state import codec
from stream_dp.state.codec import OutboxRecord, StoredAnswer

EVERY_BYTE = bytes(range(256))
RECORDS: list[OutboxRecord | str] = [
    OutboxRecord("answers", b"flights", (("query_id", b"q1"), ("analyst", EVERY_BYTE)), b"{}"),
    OutboxRecord("catalog", b"flights", (), None),
    "ana q1",
    OutboxRecord("\u00e9v\u00e9nements", None, (("", b""),), EVERY_BYTE),
    OutboxRecord("", b"", (), b""),
    "",
]
STORED = StoredAnswer(bytes(range(16)), b'{"version":1,"value":0.173}\x00\xff')

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
records = st.builds(
    OutboxRecord,
    texts,
    st.none() | st.binary(max_size=40),
    st.lists(st.tuples(texts, st.binary(max_size=40)), max_size=3).map(tuple),
    st.none() | st.binary(max_size=400),
)


@settings(deadline=None)  # the machine may be busy
@given(st.lists(records | texts, max_size=5))
def test_outboxes_come_back(outbox: list[OutboxRecord | str]) -> None:
    assert codec.outbox_from_bytes(codec.outbox_to_bytes(outbox)) == outbox


@settings(deadline=None)  # the machine may be busy
@given(st.binary(min_size=16, max_size=16), st.binary(max_size=400))
def test_a_stored_answer_comes_back(digest: bytes, answer: bytes) -> None:
    stored = codec.answer_from_bytes(codec.answer_to_bytes(digest, answer))
    assert stored == StoredAnswer(digest, answer)


@pytest.mark.parametrize(
    ("decode", "name"), [(codec.outbox_from_bytes, "outbox"), (codec.answer_from_bytes, "answer")]
)
@pytest.mark.parametrize("version", [0, 2, 255])
def test_an_unknown_version_is_refused_in_words(
    decode: Callable[[bytes], object], name: str, version: int
) -> None:
    with pytest.raises(CorruptState, match=rf"a stored {name} .*the release that wrote it"):
        decode(bytes([version]) + b"anything")


def test_every_cut_is_found_and_nothing_stored_is_quoted() -> None:
    data = codec.outbox_to_bytes(RECORDS)
    for length in range(len(data)):
        with pytest.raises(CorruptState, match="a stored outbox is cut short"):
            codec.outbox_from_bytes(data[:length])
    with pytest.raises(CorruptState, match="after its end"):
        codec.outbox_from_bytes(data + b"x")
    answer = codec.answer_to_bytes(*STORED)
    for length in range(17):
        with pytest.raises(CorruptState, match="a stored answer is cut short"):
            codec.answer_from_bytes(answer[:length])


@settings(deadline=None)  # the machine may be busy
@given(st.binary(max_size=200))
def test_garbage_is_refused_and_never_crashes(garbage: bytes) -> None:
    for decode in (codec.outbox_from_bytes, codec.answer_from_bytes):
        with contextlib.suppress(CorruptState):
            decode(b"\x01" + garbage)


def test_parts_that_must_be_there_are_missed() -> None:
    absent, one = b"\xff\xff\xff\xff", b"\0\0\0\x01"
    for broken in (
        one + absent * 2,  # neither a role nor the name of an answer
        one + one + b"\xff" + absent + b"\0\0\0\0" + absent,  # a role that is not UTF-8
        one + one + b"r" + absent + one + absent + one + b"v" + absent,  # a header without a name
        one + one + b"r" + absent + one + one + b"h" + absent + absent,  # one without a value
    ):
        with pytest.raises(CorruptState, match=r"lacks a part|not UTF-8"):
            codec.outbox_from_bytes(b"\x01" + broken)


def test_a_digest_of_another_length_is_our_own_mistake() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        codec.answer_to_bytes(bytes(15), b"")
