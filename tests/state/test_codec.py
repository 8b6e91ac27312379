"""Stored bytes and back: exact, and refused in words when they are not ours."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.errors import CorruptState
from stream_dp.state import codec
from stream_dp.state.codec import OutboxRecord, StoredAnswer

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
