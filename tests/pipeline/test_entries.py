"""Entries of the journal: which count, and that every later release reads and writes them alike.

``tests/golden/journal-entries-v1.jsonl`` has an entry of each kind. To freeze it again, delete it and
run these tests once with ``FREEZE=1``. From the first release on it may never change, for somebody has stored
such bytes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest

from stream_dp.errors import CorruptState, ServerUnavailable
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.intake.records import CommitPlace, commit_of, place_in
from stream_dp.pipeline.journal.entries import (
    FILL,
    CountingEntry,
    EntryReader,
    Kind,
    Round,
    entries_of,
    newest_in,
    object_in,
    with_digest,
)
from stream_dp.pipeline.journal.journal import Journal, facts_of
from stream_dp.pipeline.journal.marks import Marks, said
from stream_dp.pipeline.kafka import patience
from stream_dp.pipeline.kafka.topic_log import LogEntry, entry_of
from stream_dp.pipeline.rows.waiting.waiting_rows import Waits
from stream_dp.state.schema import Checkpoint, Commit
from tests.local_logs import LocalLog

GOLDEN = Path(__file__).parents[1] / "golden"
FROZEN = GOLDEN / "journal-entries-v1.jsonl"
CHECKPOINT = (GOLDEN / "formats/checkpoint-v1.bin").read_bytes()
RESTART = (GOLDEN / "formats/checkpoint-v1-restart.bin").read_bytes()
COMMIT = (GOLDEN / "formats/commit-v1.bin").read_bytes()
NAME = Checkpoint.from_bytes(CHECKPOINT).state.dataset
A, B = bytes(range(16)), bytes(range(100, 116))
FACTS = facts_of(2, {"batches": "b", "queries": "q"})
ROUND = Round(1, {NAME: 2})


def marks() -> Marks:
    """What marks have said of a partition, all fields of it."""
    found = Marks()
    told = {
        "watermarks": {"s.queries:0": 7, "rejected s.queries:0": 9},
        "trying": {"s.queries:0 7": 2},
        "released": 5,
        "first": 1,
        "left": True,
        "repaired": 3,
        "stopped": {"trains": "its commits do not add up"},
    }
    found.take(told)
    return found


def written() -> list[LogEntry]:
    told = marks().told()
    return [
        *entries_of("epoch", "", said(**FACTS), A),
        *entries_of("begin", "", said(**told, **FACTS), A),
        *entries_of("checkpoint", NAME, CHECKPOINT, A),
        *entries_of("end", "", ROUND.to_bytes(), A),
        *entries_of("mark", "", said(**told, left=True), A, newest=3),
        *entries_of("commit", NAME, COMMIT, A, newest=3),
        FILL,
        *entries_of("restart", NAME, RESTART, A, newest=3),
    ]


def as_text(entry: LogEntry) -> str:
    headers = [[name, value.hex()] for name, value in entry.headers]
    return json.dumps({"key": entry.key.decode(), "value": entry.value.hex(), "headers": headers})


def frozen() -> list[LogEntry]:
    if os.environ.get("FREEZE") and not FROZEN.exists():
        FROZEN.write_text("".join(f"{as_text(entry)}\n" for entry in written()))
    return [
        LogEntry(
            one["key"].encode(),
            bytes.fromhex(one["value"]),
            tuple((name, bytes.fromhex(value)) for name, value in one["headers"]),
        )
        for one in map(json.loads, FROZEN.read_text().splitlines())
    ]


def read(reader: EntryReader, entries: list[LogEntry], *, start: int = 0) -> list[CountingEntry]:
    """The entries that count, of some that begin at an offset."""
    found = (reader.read(offset, entry) for offset, entry in enumerate(entries, start))
    return [one for one in found if one is not None]


def kinds(reader: EntryReader, entries: list[LogEntry]) -> list[str]:
    return [one.kind for one in read(reader, entries)]


# What is frozen.


def test_what_is_written_now_is_the_frozen_example() -> None:
    assert written() == frozen()


def test_there_is_an_entry_of_each_kind() -> None:
    found = [dict(entry.headers)["kind"].decode() for entry in frozen()]
    assert sorted(found) == sorted(get_args(Kind))


def test_the_frozen_entries_are_read() -> None:
    reader, entries = EntryReader(), frozen()
    found = {one.kind: one for one in read(reader, entries)}
    assert [*found] == ["epoch", "begin", "checkpoint", "end", "mark", "commit", "restart"]
    assert (reader.epoch, reader.void) == (A, 0)
    for one in (found["epoch"], found["begin"]):
        assert object_in(one.value).items() >= FACTS.items()
    for one in (found["begin"], found["mark"]):
        told = Marks()
        told.take(object_in(one.value))
        assert told == marks()
    assert Round.from_bytes(found["end"].value) == ROUND
    assert Commit.from_bytes(found["commit"].value)[0].dataset == found["commit"].name == NAME
    assert Checkpoint.from_bytes(found["restart"].value).restarts
    assert not Checkpoint.from_bytes(found["checkpoint"].value).restarts
    assert [newest_in(entry) for entry in entries] == [None] * 4 + [3, 3, None, 3]


def test_what_output_and_waiting_rows_say_of_their_places_is_frozen() -> None:
    place = CommitPlace(12, 2**40, bytes(range(8)))
    assert place.to_bytes() == b"12 1099511627776 0001020304050607"
    assert place_in([("commit", place.to_bytes())]) == place
    assert commit_of([("commit", place.to_bytes())]) == 12
    waits = Waits("s.batches:3", 2**40, 200, -1, 86_400_000, (7, 2), (3, 4), 5, "b 1\udc80")
    assert (
        waits.to_bytes() == b"s.batches:3 1099511627776 200 -1 86400000 7 2 3 4 5 b 1\xed\xb2\x80"
    )
    assert Waits.from_bytes(waits.to_bytes()) == waits


# What counts.


def commit(epoch: bytes, value: bytes = b"", name: str = NAME) -> LogEntry:
    (entry,) = entries_of("commit", name, value, epoch)
    return entry


def epoch(of: bytes) -> LogEntry:
    (entry,) = entries_of("epoch", "", b"{}", of)
    return entry


def test_an_entry_counts_if_it_names_the_last_epoch_below_it() -> None:
    entries = [epoch(A), commit(A, b"1"), epoch(B), commit(A, b"2"), commit(B, b"3")]
    reader = EntryReader()
    found = [one.value for one in read(reader, entries) if one.kind == "commit"]
    assert found == [b"1", b"3"]
    assert reader.void == 1


def test_an_epoch_that_comes_back_counts_again_only_by_another_epoch_of_its_own() -> None:
    entries = [epoch(A), epoch(B), commit(A, b"late"), epoch(A), commit(A, b"again")]
    found = [one.value for one in read(EntryReader(), entries) if one.kind == "commit"]
    assert found == [b"again"]


def test_before_any_epoch_nothing_counts_but_behind_a_begin_that_is_known_to() -> None:
    entries = [commit(A, b"1"), commit(B, b"2")]
    assert read(EntryReader(b""), entries) == []
    assert [one.value for one in read(EntryReader(), entries)] == [b"1"]
    assert [one.value for one in read(EntryReader(B), entries)] == [b"2"]


@pytest.mark.parametrize(
    "headers",
    [
        [("kind", b"commit")],
        [("kind", b"commit"), ("epoch", A[:15])],
        [("kind", b"other"), ("epoch", A)],
        [("kind", b""), ("epoch", A)],
        [("kind", b"\xff"), ("epoch", A)],
        [("kind", b"commit"), ("epoch", A), ("part", b"x")],
        [("kind", b"commit"), ("epoch", A), ("part", b"1 2 ab")],
        [("kind", b"epoch"), ("epoch", B[:15])],
    ],
)
def test_what_nobody_should_have_written_is_void(headers: list[tuple[str, bytes]]) -> None:
    reader = EntryReader(A)
    assert reader.read(9, with_digest(b"flights", b"value", headers)) is None
    assert (reader.epoch, reader.void) == (A, 1)


@pytest.mark.parametrize("headers", [(), (("traceparent", b"00"),)])
def test_what_somebody_else_has_sent_to_the_topic_is_void(
    headers: tuple[tuple[str, bytes], ...],
) -> None:
    reader = EntryReader(A)
    assert reader.read(9, LogEntry(b"flights", b"value", headers)) is None
    assert (reader.epoch, reader.void) == (A, 1)


def test_headers_that_others_add_on_the_way_change_nothing() -> None:
    for entry in written():
        more = replace(entry, headers=(("traceparent", b"00"), *entry.headers, ("a", b"")))
        for one in (entry, more):
            assert newest_in(one) == newest_in(entry)
        assert EntryReader(A).read(9, more) == EntryReader(A).read(9, entry)


def flipped(value: bytes) -> Iterator[bytes]:
    """All copies of some bytes with one bit changed."""
    for at in range(len(value)):
        for bit in range(8):
            yield value[:at] + bytes((value[at] ^ 1 << bit,)) + value[at + 1 :]


def changed(entry: LogEntry) -> Iterator[LogEntry]:
    """All copies of an entry with one bit changed, in its key, its value or a header of it."""
    yield from (replace(entry, key=key) for key in flipped(entry.key))
    yield from (replace(entry, value=value) for value in flipped(entry.value))
    for at, (name, value) in enumerate(entry.headers):
        names = (one.decode(errors="replace") for one in flipped(name.encode()))
        others = [*((one, value) for one in names), *((name, one) for one in flipped(value))]
        for other in others:
            headers = (*entry.headers[:at], other, *entry.headers[at + 1 :])
            yield replace(entry, headers=headers)


def test_whatever_bit_of_an_entry_is_wrong_it_is_told_and_taken_for_nothing() -> None:
    """Void it would be a charge that is forgotten, or a mark with another number."""
    tried = 0
    some = with_digest(b"flights", b"x", [("kind", b"commit"), ("epoch", A), ("part", b"1 2 ab")])
    for entry in [*written(), some]:
        for wrong in changed(entry):
            reader = EntryReader(A)
            found = reader.read(9, wrong)
            assert found == CountingEntry("wrong", wrong.key.decode(errors="replace"), b"", 9), (
                wrong
            )
            assert (reader.epoch, reader.void, reader.filled) == (A, 0, False)
            assert newest_in(wrong) is None
            tried += 1
    assert tried > 10_000


def test_headers_without_a_value_are_empty_ones() -> None:
    """A client may send such ones; ours do not."""
    sent = SimpleNamespace(key=None, value=None, headers=(("kind", None), ("epoch", A)))
    assert entry_of(sent) == LogEntry(b"", b"", (("kind", b""), ("epoch", A)))
    assert commit_of([("commit", None)]) == commit_of([]) == -1
    assert place_in([("commit", None)]) is place_in([]) is None


def test_what_only_takes_up_room_is_not_void_and_is_told() -> None:
    reader, told = EntryReader(A), []
    for offset, entry in enumerate([FILL, commit(A), FILL, FILL]):
        reader.read(offset, entry)
        told.append(reader.filled)
    assert told == [True, False, True, True]
    assert reader.void == 0


@pytest.mark.parametrize("named", [b"", b"x", b"-1", b"1.5", b"9" * 19, None])
def test_a_round_that_is_named_by_no_number_is_named_by_nobody(named: bytes | None) -> None:
    assert newest_in(with_digest(b"", b"", [("newest", b"12")])) == 12
    headers = [] if named is None else [("newest", named)]
    assert newest_in(with_digest(b"", b"", headers)) is None


@pytest.mark.parametrize(
    "value",
    [b"", b"x", b"[]", b"{}", b'{"begin": "1", "checkpoints": {}}', b'{"begin": 1}', b"[" * 10**5],
)
def test_an_end_that_does_not_decode_is_refused(value: bytes) -> None:
    with pytest.raises(CorruptState, match="the end of a round"):
        Round.from_bytes(value)


# Parts.


LARGE = bytes(900_000) + b"x" * 900_000 + b"end"


def large(epoch: bytes, value: bytes = LARGE) -> list[LogEntry]:
    return entries_of("restart", NAME, value, epoch)


def test_a_large_value_is_cut_into_parts_that_say_their_place() -> None:
    parts = large(A)
    assert [len(part.value) for part in parts] == [900_000, 900_000, 3]
    said_ = [dict(part.headers)["part"].split() for part in parts]
    assert [one[:2] for one in said_] == [[b"0", b"3"], [b"1", b"3"], [b"2", b"3"]]
    assert len({one[2] for one in said_}) == 1
    assert read(EntryReader(A), parts, start=4) == [CountingEntry("restart", NAME, LARGE, 4)]


def test_a_value_counts_with_its_last_part_and_not_under_an_epoch_that_came_between() -> None:
    first, second, last = large(A)
    assert read(EntryReader(A), [first, second]) == []
    assert kinds(EntryReader(A), [first, second, epoch(B), last]) == ["epoch"]
    assert kinds(EntryReader(A), [first, second, epoch(A), last]) == ["epoch"]


def test_other_entries_may_lie_between_parts() -> None:
    first, second, last = large(A)
    other = large(A, LARGE + b"other")
    entries = [first, other[0], commit(A), second, other[1], commit(B), last, other[2]]
    found = read(EntryReader(A), entries)
    assert [(one.kind, one.offset) for one in found] == [
        ("commit", 2),
        ("restart", 0),
        ("restart", 1),
    ]
    assert [len(one.value) for one in found[1:]] == [len(LARGE), len(LARGE) + 5]


@pytest.mark.parametrize(
    ("order", "offset"),
    [
        ([0, 1, 2], 0),
        ([0, 1, 0, 1, 2], 2),  # a reply was lost, and only some of them were there
        ([2, 0, 1, 2], 1),
        ([0, 1, 0, 1, 2, 2], 2),
        ([0, 0, 1, 2], 1),
    ],
)
def test_parts_that_come_again_make_the_value_where_they_came_last(
    order: list[int], offset: int
) -> None:
    """The owner notes that place, too: see ``Journal._where``."""
    parts = large(A)
    (found,) = read(EntryReader(A), [parts[number] for number in order])
    assert (found.value, found.offset) == (LARGE, offset)


def test_a_value_that_comes_again_whole_counts_again_which_changes_nothing() -> None:
    found = read(EntryReader(A), [*large(A), *large(A)])
    assert [one.offset for one in found] == [0, 3]


def test_a_missing_part_makes_no_value() -> None:
    first, _, last = large(A)
    reader = EntryReader(A)
    assert read(reader, [first, last]) == []
    assert reader.void == 1


# Epochs.


class Late(LocalLog):
    """A log that answers nothing to the first append, which lands when it is told to."""

    def __init__(self) -> None:
        super().__init__(1)
        self.in_flight: list[LogEntry] | None = None

    async def append(self, partition: int, entries: Sequence[LogEntry]) -> int | None:
        if self.in_flight is None:
            self.in_flight = [*entries]
            raise ServerUnavailable("no broker answers")
        return await super().append(partition, entries)


async def test_an_epoch_that_lands_late_puts_nothing_in_force_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its worker has another one by then. So entries of that one stay void behind a later owner."""
    monkeypatch.setattr(patience, "_PAUSE_S", 0.0)
    log = Late()

    def journal() -> Journal:
        of: dict[str, Any] = {"facts": {}, "context": Context()}
        return Journal(log, is_held=lambda _: True, **of)

    slow, later = journal(), journal()
    of_slow = await slow.entered(0)
    of_later = await later.entered(0)
    assert await later.append(of_later, [commit(of_later.epoch, b"1")]) == 2
    assert log.in_flight is not None
    await log.append(0, log.in_flight)
    assert await slow.append(of_slow, [commit(of_slow.epoch, b"2")]) is None
    found = [one.value for one in read(EntryReader(), log.entries[0]) if one.kind == "commit"]
    assert found == [b"1"]
