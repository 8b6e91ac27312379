"""Topics as durable truth, on a real broker: what was appended is there, once, and where it is said to be."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaConnectionError
from aiokafka.protocol.produce import ProduceRequest

from stream_dp.broker import Broker
from stream_dp.client.kafka.deployment_topics import create_topics
from stream_dp.core.rows.slabs import SLOTS
from stream_dp.embedded import ports
from stream_dp.embedded.kafka_server import KafkaServer
from stream_dp.errors import ServerUnavailable, StreamDPError
from stream_dp.messages import TOPICS, Topics
from stream_dp.pipeline.intake.decoder import partition_of
from stream_dp.pipeline.kafka import topic_log
from stream_dp.pipeline.kafka.sender import Sender
from stream_dp.pipeline.kafka.topic_log import (
    EndsBefore,
    InputCut,
    KafkaInputReader,
    KafkaLog,
    KeyedTopic,
    LogEntry,
)
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.kafka

PARTITIONS = 2
LARGEST = TOPICS["journal"].max_message_bytes
NAME = b"flights"
PLACE = partition_of(NAME, PARTITIONS)


@asynccontextmanager
async def writing(servers: str, names: Topics, role: str = "journal") -> AsyncIterator[KafkaLog]:
    """A log with a producer of its own."""
    broker = Broker(servers)
    sender = Sender(broker, names)
    await sender.start()
    log = KafkaLog(broker, names.name(role), PARTITIONS, sender.producer)
    try:
        yield log
    finally:
        await log.close()
        await sender.stop()


@pytest.fixture
def names(kafka_server: str, topic_prefix: str) -> Topics:
    create_topics(kafka_server, Topics(topic_prefix), partitions=PARTITIONS)
    return Topics(topic_prefix)


@pytest.fixture
async def log(kafka_server: str, names: Topics) -> AsyncIterator[KafkaLog]:
    async with writing(kafka_server, names) as log:
        yield log


@pytest.fixture
async def blocks(kafka_server: str, names: Topics) -> AsyncIterator[KafkaLog]:
    async with writing(kafka_server, names, "blocks") as log:
        yield log


def entries(*values: bytes) -> list[LogEntry]:
    return [LogEntry(NAME, value, (("type", b"commit"),)) for value in values]


async def read(log: KafkaLog, start: int = 0, end: int | None = None) -> list[tuple[int, LogEntry]]:
    """The entries up to an offset, or up to the end of the log."""
    end = (await log.bounds(PLACE))[1] if end is None else end
    return [one async for piece in log.read(PLACE, start, end) for one in piece]


async def test_entries_follow_each_other_without_a_gap_and_are_read_as_they_were_written(
    log: KafkaLog,
) -> None:
    assert await log.bounds(PLACE) == (0, 0)
    assert await read(log) == []
    written = entries(b"a", b"b", b"c", b"", b"e")
    assert await log.append(PLACE, written[:3]) == 0
    assert await log.append(PLACE, written[3:4]) == 3
    assert await log.append(PLACE, written[4:]) == 4
    assert await log.bounds(PLACE) == (0, 5)
    assert await log.bounds(1 - PLACE) == (0, 0)
    assert await read(log) == list(enumerate(written))
    assert await read(log, 1, 3) == [(1, written[1]), (2, written[2])]
    assert await read(log, 5) == []
    assert b"a" in repr(LogEntry(b"a", b"secret")).encode()
    assert "secret" not in repr(LogEntry(b"a", b"secret", (("h", b"secret"),)))


async def test_a_log_that_ends_too_early_is_said_to_after_a_while(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Perhaps its broker does not know better, and then the rest must not be taken for nothing."""
    monkeypatch.setattr(topic_log, "_PATIENCE_S", 2.0)
    await log.append(PLACE, entries(b"a", b"b"))
    with pytest.raises(EndsBefore, match="was written to offset 3"):
        await read(log, 0, 3)
    assert await log.bounds(PLACE, reaches=3) == (0, 2)
    appending = asyncio.create_task(log.bounds(PLACE, reaches=3))
    await log.append(PLACE, entries(b"c"))
    assert await appending == (0, 3)
    assert len(await read(log, 0, 3)) == 3


async def test_appends_at_the_same_time_keep_their_order(log: KafkaLog) -> None:
    values = [b"%d" % number for number in range(60)]
    found = await asyncio.gather(*(log.append(PLACE, entries(value)) for value in values))
    assert found == list(range(60))
    assert [entry.value for _, entry in await read(log)] == values


async def test_an_entry_of_another_writer_shows_in_the_next_offset(
    kafka_server: str, names: Topics, log: KafkaLog
) -> None:
    async with writing(kafka_server, names) as other:
        assert await log.append(PLACE, entries(b"mine")) == 0
        assert await other.append(PLACE, entries(b"other", b"other")) == 1
        assert await log.append(PLACE, entries(b"mine")) == 3
    assert [entry.value for _, entry in await read(log)] == [b"mine", b"other", b"other", b"mine"]


async def test_what_exceeds_a_batch_follows_in_another_one_and_what_exceeds_the_topic_is_refused(
    kafka_server: str, names: Topics, log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    written = entries(*(bytes([number]) * (LARGEST // 3) for number in range(7)))
    assert await log.append(PLACE, written) == 0
    with pytest.raises(StreamDPError, match="takes no record of this size") as refused:
        await log.append(PLACE, entries(b"small", bytes(LARGEST)))
    assert not refused.value.retriable
    assert await log.append(PLACE, entries(bytes(LARGEST - 200))) == 7
    assert [entry for _, entry in await read(log)][:-1] == written

    sent = log._send

    async def interrupted(batch: Any, partition: int) -> int:
        offset = await sent(batch, partition)
        async with writing(kafka_server, names) as other:
            await other.append(partition, entries(b"other"))
        return offset

    monkeypatch.setattr(log, "_send", interrupted)
    assert await log.append(PLACE, written) is None
    assert await log.append(PLACE, written[:1]) is not None


async def test_a_long_log_is_read_in_pieces_and_says_how_far_it_is(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(topic_log, "_QUICK_S", 0)
    written = entries(*(bytes([number]) * 2**20 for number in range(16)))
    await log.append(PLACE, written)
    pieces = [piece async for piece in log.read(PLACE, 0, 16)]
    assert len(pieces) > 2
    assert [one for piece in pieces for one in piece] == list(enumerate(written))
    assert "of 16 records read" in caplog.text
    assert "commit" not in caplog.text


async def test_what_is_forgotten_is_gone_and_the_rest_keeps_its_offsets(log: KafkaLog) -> None:
    written = entries(b"a", b"b", b"c", b"d")
    await log.append(PLACE, written)
    for _ in range(2):
        await log.forget(PLACE, 2)
        assert await log.bounds(PLACE) == (2, 4)
    await log.forget(PLACE, 1)
    assert await read(log) == [(2, written[2]), (3, written[3])]
    await log.forget(PLACE, 4)
    assert await log.bounds(PLACE) == (4, 4)
    assert await read(log) == []
    assert await log.append(PLACE, written[:1]) == 4
    with pytest.raises(ServerUnavailable, match="deleted no records"):
        await log.forget(PLACE, 100)


async def test_records_that_are_forgotten_while_they_are_read_are_passed_over(
    log: KafkaLog,
) -> None:
    written = entries(*(bytes([number]) * 2**20 for number in range(30)))
    await log.append(PLACE, written)
    found: list[int] = []
    async for piece in log.read(PLACE, 0, 30):
        if not found:
            await log.forget(PLACE, 29)
        found += [offset for offset, _ in piece]
    assert found == sorted(set(found))
    assert found[0] == 0
    assert found[-1] == 29
    assert len(found) < 30


async def test_a_reply_that_is_lost_costs_no_second_entry_and_no_wrong_offset(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert log._producer is not None
    client = log._producer.client
    send, lost = client.send, list[Any]()

    async def lossy(node: int, request: Any, **more: Any) -> Any:
        reply = await send(node, request, **more)
        if isinstance(request, ProduceRequest) and len(lost) < 2:
            lost.append(reply)
            raise KafkaConnectionError("the reply was lost")
        return reply

    await log.append(PLACE, entries(b"a"))
    monkeypatch.setattr(client, "send", lossy)
    assert await log.append(PLACE, entries(b"b", b"c")) == 1
    assert await log.append(PLACE, entries(b"d")) == 3
    assert len(lost) == 2
    assert [entry.value for _, entry in await read(log)] == [b"a", b"b", b"c", b"d"]


async def test_an_offset_that_the_broker_did_not_say_is_not_known(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unknown(*_: Any) -> int:
        return -1

    monkeypatch.setattr(log, "_send", unknown)
    assert await log.append(PLACE, entries(b"a", b"b")) is None


@pytest.mark.slow
async def test_a_broker_that_is_away_is_said_to_be_and_an_append_waits_for_it(
    own_kafka: KafkaServer,
    kafka_jars: tuple[Path, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_log, "_PATIENCE_S", 1.0)
    log_file, port = tmp_path / "kafka.log", own_kafka.port
    again = KafkaServer(tmp_path / "kafka", kafka_jars, log=log_file, port=port)
    names, servers = Topics(), own_kafka.bootstrap_servers
    create_topics(servers, names, partitions=PARTITIONS)
    written = entries(*(bytes([number]) * 2**20 for number in range(30)))
    async with writing(servers, names) as log:
        await log.append(PLACE, written)
        found: list[int] = []

        async def read_on() -> None:
            async for piece in log.read(PLACE, 0, 30):
                found.extend(offset for offset, _ in piece)
                await asyncio.to_thread(own_kafka.stop)

        with pytest.raises(ServerUnavailable, match="gave no records"):
            await read_on()
        assert found
        assert len(found) < 30
        for attempt in (log.bounds(PLACE), log.forget(PLACE, 1), read(log)):
            with pytest.raises(ServerUnavailable):
                await attempt
        rows = KafkaInputReader(Broker(servers), names)
        with pytest.raises(ServerUnavailable):
            [record async for record in rows.records(f"{names.name('batches')}:0", [0])]
        late = asyncio.create_task(log.append(PLACE, entries(b"late")))
        await asyncio.sleep(0.5)
        assert not late.done()
        await asyncio.to_thread(again.start)
        try:
            assert await late == 30
            assert await log.bounds(PLACE) == (0, 31)
        finally:
            await asyncio.to_thread(again.stop)


async def test_a_server_where_nobody_listens_is_unavailable(names: Topics) -> None:
    nobody = Broker(f"127.0.0.1:{ports.choose('nobody', None)}")
    log = KafkaLog(nobody, names.name("journal"), PARTITIONS, None)
    for attempt in (log.bounds(0), log.forget(0, 1), read(log)):
        with pytest.raises(ServerUnavailable):
            await attempt


# ---------------------------------------------------------------- rows


async def _rows(where: str, names: Topics, offsets: Sequence[int]) -> list[Any]:
    rows = KafkaInputReader(Broker(where), names)
    place = f"{names.name('batches')}:{PLACE}"
    return [record async for record in rows.records(place, offsets)]


async def test_single_records_are_read_again_where_they_are_still_there(
    kafka_server: str, make_deployment: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    deployment = make_deployment(partitions=PARTITIONS)
    headers = [("content-type", b"text")]
    for number in range(300):
        deployment.produce("batches", b"%d" % number, key=NAME, headers=headers)
    names = deployment.topics
    log = KafkaLog(Broker(kafka_server), names.name("batches"), PARTITIONS, None)
    await log.forget(PLACE, 10)

    wanted = [3, 10, 11, 14, 100, 299]
    found = await _rows(kafka_server, names, wanted)
    assert [record.offset for record in found] == [10, 11, 14, 100, 299]
    assert [record.value for record in found] == [b"10", b"11", b"14", b"100", b"299"]
    one = found[0]
    assert (one.role, one.topic, one.partition) == ("batches", names.name("batches"), PLACE)
    assert (one.key, one.headers) == (NAME, {"content-type": b"text"})
    assert one.timestamp_ms > 1_600_000_000_000
    assert await _rows(kafka_server, names, []) == []
    assert await _rows(kafka_server, names, [1, 2]) == []
    monkeypatch.setattr(topic_log, "_PATIENCE_S", 2.0)
    with pytest.raises(InputCut, match="was read to offset 301, and ends at 300"):
        await _rows(kafka_server, names, [299, 300])


# ---------------------------------------------------------------- values by their place


LONG = bytes(range(256)) * (4 * SLOTS // 256)
"""As long as the longest column of a slab."""


async def test_values_are_fetched_from_their_places_over_one_connection(
    blocks: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, start = [], AIOKafkaConsumer.start

    async def counted(self: AIOKafkaConsumer) -> None:
        opened.append(self)
        await start(self)

    kept = KeyedTopic(blocks)
    values = {
        b"flights/%d/name/0" % number: [b"index %d" % number, LONG, LONG[number:], b"weights"]
        for number in range(1, 6)
    }
    some, more = [*values.items()][:3], [*values.items()][3:]
    found = [*await kept.put(some), *await kept.put(more)]
    offsets = dict(zip(values, found, strict=True))
    assert [len(places) for places in found] == [4] * 5
    places = [(key, number) for key in values for number in range(4)]
    monkeypatch.setattr(AIOKafkaConsumer, "start", counted)
    for key, number in [*places, *reversed(places), *places]:
        assert await kept.fetch(key, number, offsets[key][number]) == values[key][number]
    assert len(opened) == 1
    await blocks.close()
    one, other = [*values][:2]
    assert await kept.fetch(one, 2, offsets[one][2]) == LONG[1:]
    assert len(opened) == 2
    for key, number in ((one, 1), (other, 2)):
        assert await kept.fetch(key, number, offsets[one][2]) is None, "another part is there"
    there, _ = await kept.parts("flights")
    assert {key: (*map(parts.get, sorted(parts)),) for key, parts in there.items()} == offsets


async def test_a_record_that_is_not_there_is_none(
    log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_log, "_PATIENCE_S", 2.0)
    await log.append(PLACE, entries(b"a", b"b", b"c"))
    with pytest.raises(EndsBefore, match="ends at 3"):
        await log.record(PLACE, 7)
    assert (await log.record(PLACE, 1)) == entries(b"b")[0]
    await log.forget(PLACE, 2)
    assert await log.record(PLACE, 1) is None, "before the beginning"
    assert (await log.record(PLACE, 2)) == entries(b"c")[0]
    with pytest.raises(EndsBefore, match="ends at 0"):
        await log.record(1 - PLACE, 0)
    await log.append(PLACE, entries(b"d"))
    assert (await log.record(PLACE, 3)) == entries(b"d")[0], "what came after it was begun"


@pytest.mark.slow
async def test_compaction_leaves_a_value_in_its_place_and_takes_what_is_erased(
    kafka_server: str, names: Topics, blocks: KafkaLog
) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka_server)
    await admin.start()
    quick = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.001", "delete.retention.ms": "0"}
    configs = TOPICS["blocks"].config() | quick
    topic = ConfigResource(ConfigResourceType.TOPIC, names.name("blocks"), configs=configs)
    await admin.alter_configs([topic])
    await admin.close()
    kept, erased, stays = KeyedTopic(blocks), b"flights/1/name/0", b"flights/2/name/0"
    parts = {key: [b"index of " + key, b"rows of " + key] for key in (erased, stays)}
    places = {key: (await kept.put([(key, parts[key])]))[0] for key in parts}

    async def found(key: bytes) -> list[bytes | None]:
        return [await kept.fetch(key, *place) for place in enumerate(places[key])]

    assert await found(erased) == parts[erased]
    await kept.drop({erased: 2})
    async with asyncio.timeout(PATIENCE_S):
        while await found(erased) != [None, None]:
            await asyncio.sleep(0.5)  # only what is in an older segment is compacted
            await kept.put([(b"flights/3/name/0", [b"more"])])
    assert await found(stays) == parts[stays]


async def test_a_fetch_that_is_given_up_spoils_no_later_one(blocks: KafkaLog) -> None:
    await blocks.append(PLACE, entries(b"a", b"b"))
    for _ in range(3):
        waiting = asyncio.create_task(blocks.record(PLACE, 9))
        await asyncio.sleep(0.2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert (await blocks.record(PLACE, 1)) == entries(b"b")[0]
