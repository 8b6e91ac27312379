"""Stored bytes and back: exact, versioned, and refused in words when they are not ours."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.core.accounting import UNITS, Charge
from stream_dp.errors import CorruptState
from stream_dp.state import codec
from stream_dp.state.codec import OutboxRecord, StoredAnswer
from stream_dp.state.ledger import GENESIS
from stream_dp.state.store import Transition

GOLDEN = Path(__file__).parents[1] / "golden/formats"
EVERY_BYTE = bytes(range(256))
RECORDS = [
    OutboxRecord(
        "stream-dp.answers", b"flights", (("query_id", b"q1"), ("analyst", EVERY_BYTE)), b"{}"
    ),
    OutboxRecord("stream-dp.catalog", b"flights", (), None),
    OutboxRecord("stream-dp.événements", None, (("", b""),), EVERY_BYTE),
    OutboxRecord("", b"", (), b""),
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
def test_outbox_records_come_back(outbox: list[OutboxRecord | str]) -> None:
    assert codec.outbox_from_bytes(codec.outbox_to_bytes(outbox)) == outbox


@settings(deadline=None)  # the machine may be busy
@given(st.binary(min_size=16, max_size=16), st.binary(max_size=400))
def test_a_stored_answer_comes_back(digest: bytes, answer: bytes) -> None:
    stored = codec.answer_from_bytes(codec.answer_to_bytes(digest, answer))
    assert stored == StoredAnswer(digest, answer)


def test_headers_come_back_as_tuples() -> None:
    data = codec.outbox_to_bytes([OutboxRecord("t", b"k", [("h", b"v")], b"x")])
    assert codec.outbox_from_bytes(data) == [("t", b"k", (("h", b"v"),), b"x")]


def test_bytes_written_by_earlier_releases_stay_readable() -> None:
    outbox = (GOLDEN / "outbox-record-v1.bin").read_bytes()
    assert codec.outbox_from_bytes(outbox) == RECORDS
    outbox = (GOLDEN / "outbox-record-v2.bin").read_bytes()
    assert codec.outbox_from_bytes(outbox) == [*RECORDS, "ana q1"]
    assert codec.outbox_to_bytes([*RECORDS, "ana q1"]) == outbox, "what is written now is the same"
    answer = (GOLDEN / "answer-v1.bin").read_bytes()
    assert codec.answer_from_bytes(answer) == STORED
    assert codec.answer_to_bytes(*STORED) == answer


@pytest.mark.parametrize(
    ("decode", "name"),
    [(codec.outbox_from_bytes, "outbox record"), (codec.answer_from_bytes, "answer")],
)
@pytest.mark.parametrize("version", [0, 3, 255])
def test_an_unknown_version_is_refused_in_words(
    decode: Callable[[bytes], object], name: str, version: int
) -> None:
    with pytest.raises(CorruptState, match=rf"a stored {name} .*the release that wrote it"):
        decode(bytes([version]) + b"anything")


def test_every_cut_is_found_and_nothing_stored_is_quoted() -> None:
    data = codec.outbox_to_bytes(RECORDS)
    for length in range(len(data)):
        with pytest.raises(CorruptState, match="cut short"):
            codec.outbox_from_bytes(data[:length])
    with pytest.raises(CorruptState, match="after its end"):
        codec.outbox_from_bytes(data + b"x")
    answer = codec.answer_to_bytes(*STORED)
    for length in range(17):
        with pytest.raises(CorruptState, match="cut short"):
            codec.answer_from_bytes(answer[:length])


@settings(deadline=None)  # the machine may be busy
@given(st.binary(max_size=200))
def test_garbage_is_refused_and_never_crashes(garbage: bytes) -> None:
    for version in (b"\x01", b"\x02"):
        for decode in (codec.outbox_from_bytes, codec.answer_from_bytes):
            with contextlib.suppress(CorruptState):
                decode(version + garbage)


def test_parts_that_must_be_there_are_missed() -> None:
    for broken in (
        b"\x02" + b"\0\0\0\x01" + b"\xff\xff\xff\xff" * 2,
        b"\x01" + b"\0\0\0\x01" + b"\0\0\0\x01\xff" + b"\xff\xff\xff\xff" + b"\0\0\0\0",
    ):
        with pytest.raises(CorruptState, match=r"lacks a part|not UTF-8"):
            codec.outbox_from_bytes(broken)


def test_a_digest_of_another_length_is_our_own_mistake() -> None:
    with pytest.raises(ValueError, match="16 bytes"):
        codec.answer_to_bytes(bytes(15), b"")


# Transitions ------------------------------------------------------------------------------------


def transition(**changes: object) -> Transition:
    whole = {"dataset": "flights", "token": 1, "seq": 2, "head": GENESIS, "new_head": GENESIS}
    return Transition(**{**whole, **changes})  # type: ignore[arg-type]


def test_charges_of_one_block_are_one_sum_that_a_script_can_compare_exactly() -> None:
    charges = [Charge(0, 3, 1), Charge(1, 2**70), Charge(0, 4), Charge(1, 1, 2**70)]
    sums = codec.totals(transition(charges=charges))
    assert sums == {0: (7, 1), 1: (UNITS + 1, UNITS + 1)}
    # Lua counts in 64-bit floating point: spent, charge and their sum must be below 2**53.
    assert UNITS + (UNITS + 1) < 2**53


def test_every_field_of_a_transition_tells_in_its_fingerprint() -> None:
    variants = [
        transition(),
        transition(token=2),
        transition(seq=3),
        transition(head=bytes([1]) * 32, new_head=bytes([1]) * 32),
        transition(definition=b"d"),
        transition(meta={"a": "b"}),
        transition(cursor={"a": 1}),
        transition(answers={"a": b"b"}),
        transition(batches={"a": b"b"}),
        transition(pending=[b"a"]),
        transition(pending=[b""]),
        transition(pending=[b"", b""]),
        transition(seal=b"a"),
        transition(seal=b""),
        transition(charges=[Charge(0, 1)]),
        transition(charges=[Charge(0, 0, 1)]),
        transition(charges=[Charge(1, 1)]),
        transition(transcript=[b"a"]),
        transition(verified={b"a": b"b"}),
        transition(intent=b"a"),
        transition(settles=[1]),
        transition(outbox=b"a"),
        transition(vault={"a": b"b"}),
        transition(vault={"a": b""}),
        transition(erase=True),
        transition(erased=1),
    ]
    prints = {codec.fingerprint(codec.pack(codec.flatten(variant))) for variant in variants}
    assert len(prints) == len(variants)
    assert {len(one) for one in prints} == {32}


def test_rows_and_secrets_that_are_erased_at_once_are_not_even_sent() -> None:
    erased = {"pending": [b"row"], "seal": b"rows", "vault": {"offset": b"row"}}
    flat = codec.flatten(transition(**erased, erase=True))
    assert b"row" not in b"".join(flat)
    assert flat == codec.flatten(transition(seal=b"", vault={"offset": b""}, erase=True))


@pytest.mark.parametrize(
    "changes",
    [
        {"token": -1},
        {"seq": -1},
        {"head": b""},
        {"new_head": bytes([1]) * 32},
        {"ledger": [b"entry"]},
        {"cursor": {"a": -1}},
        {"erased": -1},
        {"charges": [Charge(0, 1)], "settles": [-1]},
        {"dataset": "a}b"},
    ],
)
def test_a_transition_that_makes_no_sense_is_our_own_mistake(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError):
        transition(**changes)


@pytest.mark.parametrize("field", ["block", "rho", "delta"])
def test_what_was_spent_never_comes_back(field: str) -> None:
    with pytest.raises(ValueError, match="negative"):
        transition(charges=[Charge(**{"block": 0, "rho": 0, field: -1})])
