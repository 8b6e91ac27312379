"""Records and checkpoints of the journal: exact, chained, and without a field for what is private."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_dp.core.accounting import Charge
from stream_dp.errors import CorruptState
from stream_dp.state import journal
from stream_dp.state.codec import OutboxRecord, outbox_to_bytes
from stream_dp.state.journal import Accepted, Checkpoint, CommitRecord, is_record
from stream_dp.state.store import Transition
from tests.state.test_formats import CHECKPOINT, COMMIT

GOLDEN = Path(__file__).parents[1] / "golden/formats"
PLACE = {"trail", "new_trail", "head", "new_head", "token", "reserved", "limits"}
"""Fields that say where a transition applies. A record has a place of its own, in the journal."""
PRIVATE = {"pending", "seal", "vault"}

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
contents = st.binary(max_size=20)
numbers = st.integers(0, 2**64 - 1)
small = st.integers(0, 2**32 - 1)
several = st.lists(contents, max_size=3).map(tuple)
stored = st.dictionaries(texts, contents, max_size=3)
pairs = st.dictionaries(contents, contents, max_size=3)
meta = st.dictionaries(texts, texts, max_size=3)
cursors = st.dictionaries(texts, numbers, max_size=3)
trails = st.binary(min_size=32, max_size=32)
accepted = st.lists(st.builds(Accepted, texts, numbers, texts, numbers), max_size=3).map(tuple)
outboxes = st.lists(
    texts
    | st.builds(
        OutboxRecord,
        texts,
        st.none() | contents,
        st.lists(st.tuples(texts, contents), max_size=2).map(tuple),
        st.none() | contents,
    ),
    max_size=3,
).map(tuple)

FIELDS: Mapping[str, st.SearchStrategy[Any]] = {
    "dataset": texts,
    "seq": numbers,
    "prev": trails,
    "nonce": st.binary(min_size=16, max_size=16),
    "definition": st.none() | contents,
    "meta": meta,
    "cursor": cursors,
    "answers": stored,
    "batches": stored,
    "accepted": accepted,
    "sealed": st.none() | st.integers(0, 2**63 - 1),
    "erased": small,
    "charges": st.lists(st.builds(Charge, small, numbers, numbers), max_size=3).map(tuple),
    "transcript": several,
    "verified": pairs,
    "intent": st.none() | contents,
    "settles": st.lists(numbers, max_size=3).map(tuple),
    "ledger": several,
    "outbox": outboxes,
    "erase": st.booleans(),
    "rotate": st.booleans(),
}
records = st.builds(CommitRecord, **FIELDS)
checkpoints = st.builds(
    Checkpoint,
    dataset=texts,
    seq=numbers,
    trail=trails,
    definition=contents,
    meta=meta,
    cursor=cursors,
    answers=stored,
    batches=stored,
    accepted=accepted,
    spent=st.lists(st.tuples(numbers, numbers), max_size=3),
    erased=small,
    transcript=several,
    verified=pairs,
    ledger=several,
    retired=st.booleans(),
    previous=stored,
    previous_batches=stored,
    taken=st.frozensets(st.binary(min_size=16, max_size=16), max_size=3),
)


@settings(deadline=None)  # the machine may be busy
@given(records)
def test_a_record_comes_back_with_its_trail(record: CommitRecord) -> None:
    data, trail = record.to_bytes()
    assert is_record(data)
    assert CommitRecord.from_bytes(data) == (record, trail)
    assert record.to_bytes() == (data, trail), "it can be made again byte for byte"


@settings(deadline=None)  # the machine may be busy
@given(checkpoints)
def test_a_checkpoint_comes_back(checkpoint: Checkpoint) -> None:
    assert Checkpoint.from_bytes(checkpoint.to_bytes()) == checkpoint


def test_the_trail_is_the_digest_of_the_one_before_and_of_the_uncompressed_content() -> None:
    data, trail = COMMIT.to_bytes()
    content = zlib.decompress(data[1:])
    assert trail == hashlib.sha256(COMMIT.prev + content).digest()
    # Another library compresses otherwise, and the chain stays.
    other = data[:1] + zlib.compress(content, 9)
    assert other != data
    assert CommitRecord.from_bytes(other)[1] == trail


def test_the_trail_of_the_frozen_record_is_the_same_in_every_release() -> None:
    _, trail = CommitRecord.from_bytes((GOLDEN / "record-of-a-commit-v3.bin").read_bytes())
    assert trail.hex() == "fba1369e1203b0b320a7888705c9f02ee3413eaa7a45787fa4add88d3eca4641"


def test_where_no_answers_rotate_the_bytes_are_those_that_earlier_releases_read() -> None:
    assert COMMIT.to_bytes()[0][:1] == b"\3"
    assert replace(COMMIT, rotate=True).to_bytes()[0][:1] == b"\4"
    assert CHECKPOINT.to_bytes()[:1] == b"\1"
    assert replace(CHECKPOINT, previous={"a": b"b"}).to_bytes()[:1] == b"\2"
    assert replace(CHECKPOINT, taken=[bytes(16)]).to_bytes()[:1] == b"\3"
    assert replace(CHECKPOINT, previous_batches={"a": b"b"}).to_bytes()[:1] == b"\3"


def lacking(name: str) -> CommitRecord:
    """The record of the examples with another value in this field: none, or one that is less."""
    value = getattr(COMMIT, name)
    if isinstance(value, Mapping):
        fewer: Any = dict(list(value.items())[1:])
    elif isinstance(value, bytes):
        fewer = bytes([value[0] ^ 1]) + value[1:]
    elif isinstance(value, bool):
        fewer = not value
    elif isinstance(value, int):
        fewer = value - 1
    else:
        fewer = value[1:]
    return replace(COMMIT, **{name: fewer})


def without_trail(names: Iterator[str] | list[str]) -> list[str]:
    """The fields of a record on which its trail does not depend."""
    trail = COMMIT.to_bytes()[1]
    return [name for name in names if lacking(name).to_bytes()[1] == trail]


def test_the_trail_depends_on_every_field() -> None:
    names = [one.name for one in fields(CommitRecord)]
    assert set(names) == set(FIELDS)
    assert without_trail(names) == []
    absent = (
        replace(COMMIT, definition=None),
        replace(COMMIT, intent=None),
        replace(COMMIT, sealed=None),
    )
    assert len({one.to_bytes()[1] for one in (COMMIT, *absent)}) == 4


@pytest.mark.parametrize(
    ("helper", "left_out"),
    [
        ("_accepted", {"accepted"}),
        ("_charges", {"charges"}),
        ("_texts", {"meta"}),
        ("_numbers", {"cursor"}),
        ("_stored", {"answers", "batches"}),
        ("_pairs", {"verified"}),
        ("_list", {"transcript", "ledger"}),
        ("outbox_to_bytes", {"outbox"}),
    ],
)
def test_an_encoding_that_leaves_a_field_out_is_noticed(
    monkeypatch: pytest.MonkeyPatch, helper: str, left_out: set[str]
) -> None:
    if helper in ("_pairs", "_list"):  # other parts are made of these
        whole = getattr(journal, helper)

        def broken(items: Any) -> bytes:
            kept = list(items)
            of_its_own = kept in (
                list(COMMIT.transcript),
                list(COMMIT.transcript[1:]),
                list(COMMIT.ledger),
                list(COMMIT.ledger[1:]),
                list(COMMIT.verified.items()),
                list(COMMIT.verified.items())[1:],
            )
            return b"" if of_its_own else bytes(whole(kept))

        monkeypatch.setattr(journal, helper, broken)
    else:
        monkeypatch.setattr(journal, helper, lambda _: b"")
    assert set(without_trail([one.name for one in fields(CommitRecord)])) == left_out


def test_histories_that_say_the_same_have_trails_of_their_own() -> None:
    one, other = COMMIT, replace(COMMIT, nonce=bytes(16))
    assert one.to_bytes()[1] != other.to_bytes()[1]
    follows = replace(COMMIT, seq=COMMIT.seq + 1)
    first, second = (replace(follows, prev=at.to_bytes()[1]) for at in (one, other))
    assert first.to_bytes()[1] != second.to_bytes()[1]


@pytest.mark.parametrize(
    "changes", [{"prev": bytes(31)}, {"prev": bytes(33)}, {"nonce": b""}, {"nonce": bytes(17)}]
)
def test_a_trail_or_nonce_of_another_length_is_refused(changes: dict[str, bytes]) -> None:
    with pytest.raises(ValueError, match="32 bytes, and a nonce 16"):
        replace(COMMIT, **changes).to_bytes()  # type: ignore[arg-type]


def test_a_record_has_a_field_for_all_of_a_commit_but_what_is_private() -> None:
    """Rows, blocks and secrets cannot slip in: there is no field for them."""
    of_record = {one.name for one in fields(CommitRecord)}
    of_commit = {one.name for one in fields(Transition)}
    assert of_commit - of_record == PRIVATE | PLACE | {"taken"}  # which follows from batches
    assert of_record - of_commit == {"prev", "nonce", "accepted", "sealed"}
    of_checkpoint = {one.name for one in fields(Checkpoint)}
    assert not of_checkpoint & (PRIVATE | {"blocks", "persons"})


def test_what_was_taken_in_is_said_in_numbers_and_names_alone() -> None:
    assert {one.name: one.type for one in fields(Accepted)} == {
        "topic_partition": "str",
        "offset": "int",
        "batch_id": "str",
        "rows": "int",
    }
    assert {one.name: one.type for one in fields(CommitRecord)}["sealed"] == "int | None"


def test_no_repr_shows_what_a_record_carries() -> None:
    content = b"published, and long"
    for one in (
        replace(
            COMMIT,
            definition=content,
            answers={"a": content},
            batches={"b": content},
            transcript=[content],
            verified={content: content},
            intent=content,
            ledger=[content],
            outbox=[OutboxRecord("events", content, (), content)],
        ),
        replace(
            CHECKPOINT,
            definition=content,
            answers={"a": content},
            batches={"b": content},
            transcript=[content],
            verified={content: content},
            ledger=[content],
            previous={"c": content},
        ),
    ):
        assert "published" not in repr(one)


WITH_PARTS = replace(CHECKPOINT, previous_batches={"b": b"c"}, taken=frozenset({bytes(16)}))


def test_parts_of_a_checkpoint_that_are_unknown_or_twice_are_refused() -> None:
    start, content = WITH_PARTS.to_bytes()[:1], zlib.decompress(WITH_PARTS.to_bytes()[1:])
    one = b"\3" + (16).to_bytes(4, "big") + bytes(16)
    assert content.endswith(one)
    for number, ends in ((2, b"\4" + one[1:]), (2, one[:4] + b"\x0f" + one[6:]), (3, one + one)):
        other = content[: -len(one)] + ends
        at = other.index(b"\0\0\0\2\2")
        other = other[:at] + number.to_bytes(4, "big") + other[at + 4 :]
        with pytest.raises(CorruptState):
            Checkpoint.from_bytes(start + zlib.compress(other))


def read_record(data: bytes) -> object:
    return CommitRecord.from_bytes(data)


both = pytest.mark.parametrize(
    ("read", "data"),
    [
        pytest.param(read_record, COMMIT.to_bytes()[0], id="record"),
        pytest.param(Checkpoint.from_bytes, CHECKPOINT.to_bytes(), id="checkpoint"),
        pytest.param(Checkpoint.from_bytes, WITH_PARTS.to_bytes(), id="checkpoint with parts"),
    ],
)


@both
def test_what_is_cut_or_extended_is_refused(read: Any, data: bytes) -> None:
    for length in range(len(data)):
        with pytest.raises(CorruptState):
            read(data[:length])
    for more in (b"\x00", data, data[1:]):
        with pytest.raises(CorruptState):
            read(data + more)


@both
def test_a_flipped_bit_is_refused_unless_it_means_nothing(read: Any, data: bytes) -> None:
    """Some contents can be compressed in several ways, so a bit may say the same in another one."""
    whole, harmless = read(data), 0
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            assert read(bytes(flipped)) == whole
        except CorruptState:
            continue
        harmless += 1
    assert harmless < len(data), "of eight times as many"


@both
@pytest.mark.parametrize("cut", [0, 1])
def test_a_content_that_is_cut_or_extended_is_refused(read: Any, data: bytes, cut: int) -> None:
    """Another layout was compressed: the checksum fits, and the content does not decode."""
    content = zlib.decompress(data[1:])
    for other in (content[: len(content) - 1 - cut], content[cut + 1 :], content + bytes(cut + 1)):
        with pytest.raises(CorruptState):
            read(data[:1] + zlib.compress(other))


@both
def test_a_small_message_that_unpacks_to_more_than_is_allowed_is_refused(
    monkeypatch: pytest.MonkeyPatch, read: Any, data: bytes
) -> None:
    content = zlib.decompress(data[1:])
    monkeypatch.setattr(journal, "_LARGEST", len(content))
    read(data)
    monkeypatch.setattr(journal, "_LARGEST", len(content) - 1)
    with pytest.raises(CorruptState):
        read(data)


def test_the_outbox_of_an_earlier_release_is_no_record() -> None:
    assert not is_record((GOLDEN / "outbox-record-v1.bin").read_bytes())
    outbox = outbox_to_bytes(["ana q1"])
    assert not is_record(outbox)
    with pytest.raises(CorruptState, match="version unknown"):
        CommitRecord.from_bytes(outbox)
    assert is_record((GOLDEN / "record-of-a-commit-v3.bin").read_bytes())
