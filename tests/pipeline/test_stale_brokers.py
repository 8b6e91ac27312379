"""A broker that does not lead any more, and does not know it, hides nothing that was acknowledged.

It answers as it did when it was cut off: it says an earlier end, and has nothing behind that.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import OffsetOutOfRangeError

from stream_dp.broker import Broker
from stream_dp.messages import Topics
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.journal.entries import entries_of
from stream_dp.pipeline.journal.journal import Journal
from stream_dp.pipeline.journal.marks import said
from stream_dp.pipeline.journal.owned_partition import JournalCut, Owned, Superseded
from stream_dp.pipeline.kafka import patience, topic_log
from stream_dp.pipeline.kafka.topic_log import (
    EndsBefore,
    InputCut,
    KafkaInputReader,
    KafkaLog,
    KeyedTopic,
    LogEntry,
)
from stream_dp.state.schema import StateTable
from tests.local_logs import LocalLog
from tests.pipeline.fakes import FakeRows
from tests.pipeline.marked import cuts
from tests.pipeline.scenarios import AA

WHERE, NAMES = Broker("nowhere:1"), Topics("")
ROWS = b"rows that nobody else has"


class Cluster:
    """A partition of which a former leader knows the first records alone.

    Attributes:
        values: The values of all acknowledged records.
        known: The number of those that the former leader knows.
        asked: How often the leader must be asked for before the client finds the new one.
    """

    def __init__(self, values: Sequence[bytes], known: int, asked: int) -> None:
        self.values, self.known, self.asked = values, known, asked


class Consumer:
    """A client of a ``Cluster`` that has met the former leader."""

    cluster: Cluster

    def __init__(self, **_: Any) -> None:
        self._client = self
        self._left = self.cluster.asked
        self._at = 0

    @property
    def _there(self) -> int:
        return len(self.cluster.values) if self._left == 0 else self.cluster.known

    async def start(self) -> None: ...

    async def stop(self) -> None: ...

    async def add_topic(self, _: str) -> None: ...

    def force_metadata_update(self) -> None:
        self._left = max(0, self._left - 1)

    async def beginning_offsets(self, places: Sequence[TopicPartition]) -> Any:
        return dict.fromkeys(places, 0)

    async def end_offsets(self, places: Sequence[TopicPartition]) -> Any:
        return dict.fromkeys(places, self._there)

    def assign(self, places: Sequence[TopicPartition]) -> None:
        (self._place,) = places

    def assignment(self) -> Any:
        return set()

    def seek(self, place: TopicPartition, offset: int) -> None:
        self._at = offset

    async def position(self, place: TopicPartition) -> int:
        return self._at

    async def getmany(self, *places: TopicPartition, **_: Any) -> Any:
        if self._at > self._there:
            raise OffsetOutOfRangeError({self._place: self._at})
        some = [self._record(offset) for offset in range(self._at, min(self._at + 2, self._there))]
        self._at += len(some)
        return {self._place: some} if some else {}

    def _record(self, offset: int) -> Any:
        return SimpleNamespace(
            topic="batches",
            partition=0,
            offset=offset,
            key=b"k",
            value=self.cluster.values[offset],
            headers=(),
            timestamp=0,
        )


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """Ten records, of which the former leader knows five. Nobody finds the new one."""
    monkeypatch.setattr(topic_log, "AIOKafkaConsumer", Consumer)
    monkeypatch.setattr(topic_log, "_PATIENCE_S", 0.1)
    monkeypatch.setattr(topic_log, "_AGAIN_S", 0.01)
    monkeypatch.setattr(patience, "_PAUSE_S", 0.001)
    found = Cluster([b"%d" % number for number in range(10)], 5, 1_000_000)
    monkeypatch.setattr(Consumer, "cluster", found, raising=False)
    return found


@pytest.fixture
def log() -> KafkaLog:
    return KafkaLog(WHERE, "journal", 1, None)


async def _read(log: KafkaLog, end: int) -> list[int]:
    return [offset async for piece in log.read(0, 0, end) for offset, _ in piece]


async def test_a_reading_gives_all_up_to_an_acknowledged_end_or_fails(
    cluster: Cluster, log: KafkaLog
) -> None:
    with pytest.raises(EndsBefore, match=r"was written to offset 10.*it ends at 5"):
        await _read(log, 10)
    assert await _read(log, 5) == [*range(5)]
    cluster.asked = 2
    assert await _read(log, 10) == [*range(10)]


async def test_a_leader_that_changes_while_a_reading_goes_on_hides_nothing(
    cluster: Cluster, log: KafkaLog
) -> None:
    cluster.asked = 0
    pieces = log.read(0, 0, 10)
    assert [offset for offset, _ in await anext(pieces)] == [0, 1]
    cluster.values = cluster.values[:5]
    with pytest.raises(EndsBefore):
        [piece async for piece in pieces]


async def test_an_end_that_is_too_early_is_asked_for_again(cluster: Cluster, log: KafkaLog) -> None:
    cluster.asked = 3
    assert await log.bounds(0) == (0, 5), "nobody knows better"
    assert await log.bounds(0, reaches=6) == (0, 10)
    cluster.asked = 1_000_000
    assert await log.bounds(0, reaches=6) == (0, 5), "after a while it was cut"


async def test_rows_are_not_taken_for_lost(cluster: Cluster) -> None:
    rows = KafkaInputReader(WHERE, NAMES)
    with pytest.raises(InputCut) as found:
        [one async for one in rows.records("batches:0", [1, 7])]
    assert (found.value.topic_partition, found.value.read, found.value.end) == ("batches:0", 8, 5)
    assert [one.offset async for one in rows.records("batches:0", [1, 4])] == [1, 4]
    cluster.asked = 1
    assert [one.offset async for one in rows.records("batches:0", [1, 7])] == [1, 7]


async def test_a_single_record_is_not_taken_for_lost(cluster: Cluster) -> None:
    fetcher = KafkaLog(WHERE, "blocks", 1, None)
    with pytest.raises(EndsBefore):
        await fetcher.record(0, 7)
    cluster.asked = 1
    found = await fetcher.record(0, 7)
    assert found is not None
    assert found.value == b"7"


# ---------------------------------------------------------------- blocks


class StaleLog(LocalLog):
    """A log of which a former leader answers readings.

    Attributes:
        known: The number of entries that it knows. None if the leader itself answers.
    """

    known: int | None = None

    async def bounds(self, partition: int, *, reaches: int = 0) -> tuple[int, int]:
        first, end = await super().bounds(partition)
        if self.known is not None and self.known >= reaches:
            end = self.known
        return first, end

    async def read(
        self, partition: int, start: int, end: int
    ) -> AsyncIterator[Sequence[tuple[int, LogEntry]]]:
        there = end if self.known is None else min(end, self.known)
        async for piece in super().read(partition, start, max(start, there)):
            yield piece
        if there < end:
            raise EndsBefore("the log ends before that")


async def test_a_block_is_not_taken_for_lost() -> None:
    log = StaleLog(1)
    kept, key = KeyedTopic(log), b"flights/0123"
    (offsets,) = await kept.put([(key, [ROWS, ROWS[::-1]])])
    log.known = 0
    for asked in (kept.parts("flights"), *(kept.fetch(key, *one) for one in enumerate(offsets))):
        with pytest.raises(EndsBefore):
            await asked
    log.known = None
    assert (await kept.parts("flights"))[0] == {key: {0: 0, 1: 1}}
    found = [await kept.fetch(key, *one) for one in enumerate(offsets)]
    assert found == [ROWS, ROWS[::-1]]


async def test_a_block_that_a_topic_does_not_have_is_lost() -> None:
    """An append tells: it lands where the topic ends, which is before the place of the block."""
    kept, key = KeyedTopic(StaleLog(1)), b"flights/0123"
    for _ in range(3):
        ((offset,),) = await kept.put([(key, [ROWS])])
    assert await KeyedTopic(StaleLog(1)).fetch(key, 0, offset) is None


# ---------------------------------------------------------------- the journal


class SilentLog(StaleLog):
    """The same, and a reading ends without a word where a former leader knows no more."""

    async def read(
        self, partition: int, start: int, end: int
    ) -> AsyncIterator[Sequence[tuple[int, LogEntry]]]:
        there = end if self.known is None else min(end, self.known)
        async for piece in LocalLog.read(self, partition, start, max(start, there)):
            yield piece


def _journal(log: LocalLog) -> Journal:
    return Journal(
        log,
        facts={},
        is_held=lambda _: True,
        context=Context(),
    )


def _mark(owned: Owned) -> list[LogEntry]:
    return entries_of("mark", "", said(watermarks={"in.queries:0": 7}), owned.epoch)


async def _commit(journal: Journal, owned: Owned) -> None:
    """Appends the next commit of a data set."""
    state = owned.chain("flights").build()
    commit = state.drafted({(StateTable.FACT, b"n"): b"%d" % state.number})
    stored, trail = commit.to_bytes()
    owned.chain("flights").add(commit, trail)
    assert await journal.append(owned, journal.entries(owned, "commit", "flights", stored))


async def test_a_take_over_reads_on_until_it_meets_its_own_epoch() -> None:
    """Up to there it has all that counts. Without a word, a former leader gives a part of it."""
    log = SilentLog(1)
    former = _journal(log)
    owned = await former.entered(0)
    for _ in range(4):
        await _commit(former, owned)
    append, appended = log.append, list[int]()

    async def late(partition: int, entries: Sequence[LogEntry]) -> int | None:
        appended.append(1)
        log.known = 3 if len(appended) < 4 else None
        return await append(partition, entries)

    log.append = late  # type: ignore[method-assign]
    heir = await _journal(log).entered(0)
    assert len(appended) == 4
    assert heir.chain("flights").build().number == 4
    assert heir.expected == len(log.entries[0]) == 5 + 4


async def test_a_take_over_that_never_meets_its_own_epoch_gives_up() -> None:
    log = SilentLog(1)
    former = _journal(log)
    await _commit(former, await former.entered(0))
    log.known = 1
    with pytest.raises(Superseded):
        await _journal(log).entered(0)


async def test_an_owner_finds_a_cut_where_its_next_entry_lands() -> None:
    log = StaleLog(1)
    journal = _journal(log)
    owned = await journal.entered(0)
    assert await journal.append(owned, _mark(owned)) == 1
    del log.entries[0][-2:]
    with pytest.raises(JournalCut):
        await journal.append(owned, _mark(owned))
    assert journal.lost(0)


# ---------------------------------------------------------------- input topics


async def test_a_log_that_ends_before_rows_to_read_again_is_noted_as_cut(
    world: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody could fill a log, or say that it was put back, of which no cut is noted."""
    process = await world.owner()
    world.define("flights", phase={"min_rows": 50_000})
    batch = world.cells("flights", "waits")
    await process.run()
    await process.kill()
    cut = InputCut(batch.topic_partition, batch.offset + 1, batch.offset)

    async def records(*_: object) -> AsyncIterator[Any]:
        raise cut
        yield

    monkeypatch.setattr(FakeRows, "records", records)
    with pytest.raises(InputCut):
        await world.run()
    assert cuts(world) == {batch.topic_partition: batch.offset + 1}


async def test_who_says_where_logs_end_is_told_how_far_they_were_read(world: Any) -> None:
    process = await world.owner()
    world.define("flights")
    record = world.ask("flights", "q", AA)
    await process.run()
    await process.settled()
    told: list[Any] = []

    async def ask(read: Any) -> dict[str, tuple[int, int]]:
        told.append(dict(read))
        return {record.topic_partition: (0, record.offset + 1)}

    heir = world.process()
    heir.worker.assigned([0, 1], 2)
    await heir.worker.positions(ask)
    assert told[0][record.topic_partition] == record.offset + 1
