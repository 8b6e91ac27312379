"""Entries of the journal that every later release must read, and write, alike.

``tests/golden/journal-entries-v1.jsonl`` has an entry of each kind, with its key, its value and its headers.
It may never change, for somebody has stored such bytes.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import get_args

import pytest

from stream_dp.pipeline.chains import Chain, Found, Kind, Reader, entries_of, fill, repair_entries
from stream_dp.pipeline.journal import Marks, Reading, fold
from stream_dp.pipeline.local_logs import LocalLog
from stream_dp.pipeline.logs import Entry, entry_of
from stream_dp.pipeline.lost_rows import ENTRY
from stream_dp.pipeline.records import commit_of
from stream_dp.pipeline.watchdog import Heartbeat
from stream_dp.state.journal import Checkpoint, CommitRecord
from stream_dp.state.store import ORIGIN, Note, Place

GOLDEN = Path(__file__).parents[1] / "golden"
CHECKPOINT = (GOLDEN / "formats/checkpoint-v3.bin").read_bytes()
COMMIT = (GOLDEN / "formats/record-of-a-commit-v4.bin").read_bytes()
NAME = Checkpoint.from_bytes(CHECKPOINT).dataset
MARKS = Marks({"s.queries:0": 7}, {NAME: 3})


def _frozen() -> list[Entry]:
    lines = (GOLDEN / "journal-entries-v1.jsonl").read_text().splitlines()
    return [
        Entry(
            one["key"].encode(),
            bytes.fromhex(one["value"]),
            tuple((name, value.encode()) for name, value in one["headers"]),
        )
        for one in map(json.loads, lines)
    ]


def _written() -> list[Entry]:
    begun = json.dumps({"version": 1, "epoch": 4, "worker": "w", "topics": {}}, sort_keys=True)
    return [
        *entries_of("epoch", "", begun.encode(), 4),
        *entries_of("checkpoint", NAME, CHECKPOINT, 4),
        *entries_of("commit", CommitRecord.from_bytes(COMMIT)[0].dataset, COMMIT, 4),
        *entries_of("mark", "", MARKS.to_bytes(), 4),
        *fill(1),
        *repair_entries(4, done=False, stopped={}),
        *entries_of("restart", NAME, CHECKPOINT, 4),
        *repair_entries(4, done=True, stopped={"trains": "its ledger is not whole"}),
    ]


def test_what_is_written_now_is_still_the_same() -> None:
    assert _written() == _frozen()


def test_there_is_an_entry_of_each_kind() -> None:
    kinds = {dict(entry.headers)["type"].decode() for entry in _frozen()}
    assert kinds == {*get_args(Kind), "fill"}


def test_a_large_value_is_cut_into_parts_that_say_their_place() -> None:
    parts = entries_of("restart", NAME, bytes(900_001), 4)
    assert [len(part.value) for part in parts] == [900_000, 1]
    assert [dict(part.headers)["part"] for part in parts] == [b"0 2", b"1 2"]
    reader = Reader(4)
    first, whole = (reader.read(offset, part) for offset, part in enumerate(parts))
    assert first is None
    assert whole == Found("restart", NAME, bytes(900_001), 0, 4)


async def test_entries_written_by_earlier_releases_are_still_read() -> None:
    log = LocalLog(1)
    await log.append(0, _frozen())
    reading = Reading(log, 0, Note(), {}, heartbeat=Heartbeat())
    found = [one.kind async for one in reading.to(len(_frozen()))]
    assert found == ["epoch", "checkpoint", "commit", "mark", "repair", "restart", "repair"]
    assert (reading.reader.epoch, reading.reader.said["worker"]) == (4, "w")
    assert (reading.reader.void, reading.reader.filled) == (0, 4)
    assert (reading.marks.watermarks, reading.marks.released) == (MARKS.watermarks, MARKS.released)
    assert not reading.reader.repairing
    assert reading.stopped == {"trains": "its ledger is not whole"}
    checkpoint = Checkpoint.from_bytes(CHECKPOINT)
    chain = reading.chains[NAME]
    assert (chain.seq, chain.trail, chain.base) == (checkpoint.seq, checkpoint.trail, (6, 4))


@pytest.mark.parametrize("kind", ["checkpoint", "restart"])
async def test_only_a_restart_counts_against_what_the_journal_has_said_before(kind: Kind) -> None:
    checkpoint = Checkpoint.from_bytes(CHECKPOINT)
    chain = Chain(Place(0, 0, ORIGIN), seq=checkpoint.seq + 5, trail=b"other")
    (entry,) = entries_of(kind, NAME, CHECKPOINT, 4)
    found = Reader(4).read(9, entry)
    assert found is not None
    assert (fold(chain, found) is not None) == (kind == "restart")
    assert (chain.seq == checkpoint.seq) == (kind == "restart")


async def test_a_mark_may_say_the_topics_in_place_of_epochs_that_are_cut_off() -> None:
    value = (
        b'{"partitions": 2, "released": {}, "topics": {"batches": "b"}, "version": 1, '
        b'"watermarks": {"s.queries:0": 7}}'
    )
    facts = {"topics": {"batches": "b"}, "partitions": 2}
    assert Marks({"s.queries:0": 7}).to_bytes(facts) == value
    log = LocalLog(1)
    await log.append(0, entries_of("mark", "", value, 4))
    reading = Reading(log, 0, Note(), {}, heartbeat=Heartbeat())
    assert [one.kind async for one in reading.to(1)] == ["mark"]
    assert (reading.marks.watermarks, reading.facts) == ({"s.queries:0": 7}, facts)


# ---------------------------------------------------------------- what nobody should have written


@pytest.mark.parametrize(
    "said",
    [
        "x",
        "[]",
        "{}",
        '{"done": 1, "stopped": {}}',
        '{"done": true, "stopped": [1]}',
        '{"done": true, "stopped": {"trains": 1}}',
        '{"done": true, "stopped": 1}',
    ],
)
async def test_a_repair_that_does_not_decode_is_not_finished_and_stops_nothing(said: str) -> None:
    log = LocalLog(1)
    await log.append(0, repair_entries(4, done=True, stopped={"trains": "it is not whole"}))
    await log.append(0, entries_of("repair", "", said.encode(), 4))
    reading = Reading(log, 0, Note(0, 4), {}, heartbeat=Heartbeat())
    assert [one.kind async for one in reading.to(2)] == ["repair", "repair"]
    assert reading.reader.repairing
    assert reading.stopped == {"trains": "it is not whole"}


def test_a_commit_whose_note_of_lost_rows_does_not_decode_is_void() -> None:
    record, _ = CommitRecord.from_bytes(COMMIT)
    value, _ = replace(record, transcript=[ENTRY + b"no numbers"]).to_bytes()
    chain = Chain(Place(0, 0, ORIGIN), seq=record.seq - 1, trail=record.prev)
    assert fold(chain, Found("commit", record.dataset, value, 9, 4)) is None
    assert (chain.seq, chain.trail, chain.void) == (record.seq - 1, record.prev, 1)


def test_headers_without_a_value_are_empty_ones() -> None:
    """A client may send such ones; ours do not."""
    sent = SimpleNamespace(key=None, value=None, headers=(("type", None), ("epoch", b"4")))
    assert entry_of(sent) == Entry(b"", b"", (("type", b""), ("epoch", b"4")))
    assert Reader(4).read(9, entry_of(sent)) is None
    assert commit_of([("commit", None)]) == commit_of([]) == -1
