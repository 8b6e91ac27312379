"""Three brokers, some of them killed: what was acknowledged stays, and nothing else is shown."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic
from kafka.errors import KafkaError, NotEnoughReplicasError

from stream_dp.broker import Broker
from stream_dp.errors import ServerUnavailable
from stream_dp.messages import TOPICS
from stream_dp.pipeline.intake.decoder import partition_of
from stream_dp.pipeline.kafka.topic_log import KafkaLog, LogEntry
from tests.faults.brokers import CONTROLLER, Brokers
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

NAMES = ("flights", "trains")


@pytest.fixture
def make_brokers(
    kafka_jars: tuple[Path, ...],
    tmp_path: Path,
    needed: Callable[..., Any],
) -> Iterator[Callable[..., Brokers]]:
    """``make_brokers(apart=False)``: a cluster of this test's own, which answers."""
    made: list[Brokers] = []

    def make(*, apart: bool = False) -> Brokers:
        made.append(Brokers(tmp_path / "brokers", kafka_jars, apart=apart))
        with needed():
            made[-1].start()
        return made[-1]

    yield make
    for brokers in made:
        brokers.stop()


def _leader(brokers: Brokers, topic: str, dataset: str) -> int:
    partitions = brokers.partitions(topic)
    return partitions[partition_of(dataset.encode(), len(partitions))]["leader"]


def _refused(brokers: Brokers, topic: str, partition: int) -> type[KafkaError]:
    """Why no broker acknowledges a record, without a second try."""
    producer = KafkaProducer(
        bootstrap_servers=brokers.bootstrap_servers,
        acks="all",
        retries=0,
        enable_idempotence=False,
    )
    try:
        with pytest.raises(KafkaError) as caught:
            producer.send(topic, b"refused", partition=partition).get(30)
    finally:
        producer.close(timeout=5)
    return caught.type


def _values(brokers: Brokers, topic: str) -> list[bytes]:
    """What a consumer of partition 0 sees."""
    place = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=brokers.bootstrap_servers, group_id=None)
    try:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = consumer.end_offsets([place])[place]
        seen: list[bytes] = []
        while consumer.position(place) < end:
            for records in consumer.poll(timeout_ms=500).values():
                seen += [record.value for record in records]
    finally:
        consumer.close()
    return seen


def test_one_broker_of_three_acknowledges_nothing_and_all_go_on_when_the_others_are_back(
    make_brokers: Callable[..., Brokers],
    make_deployment: Callable[..., Any],
    make_life: Callable[..., Any],
) -> None:
    brokers = make_brokers(apart=True)
    deployment = make_deployment(bootstrap_servers=brokers.bootstrap_servers, replication=3)
    batches, events = (deployment.topics.name(role) for role in ("batches", "events"))
    life = make_life(deployment, NAMES[:1])
    worker = deployment.worker().wait_ready()
    with (
        deployment.client() as client,
        deployment.client() as other,
        ThreadPoolExecutor(1) as pool,
    ):
        life.define(client)
        life.phase(client)
        life.wait_until_released(worker)
        sent = len(deployment.read("batches"))
        partition = partition_of(NAMES[0].encode(), 2)
        # Only the leader surely knows already that a record is on all replicas.
        alone = _leader(brokers, batches, NAMES[0])
        dead = set(brokers.numbers) - {alone}
        worker.signal(signal.SIGSTOP)
        going_on = pool.submit(life.phase, other)
        brokers.wait(lambda: len(deployment.read("batches")) > sent)
        brokers.kill(*dead)
        worker.signal(signal.SIGCONT)
        brokers.wait_in_sync(batches, {alone})
        brokers.wait_in_sync(events, {alone})
        # The worker has opened a phase with the batch, and can tell nobody.
        worker.until(lambda: NotEnoughReplicasError.__name__ in worker.output, alive=True)
        shown = deployment.read("events")
        assert _refused(brokers, events, partition) is NotEnoughReplicasError
        assert _refused(brokers, batches, partition) is NotEnoughReplicasError
        assert len(deployment.read("events")) == len(shown)
        assert not any(b"batch-2" in record.value for record in shown)
        assert not going_on.done()
        assert worker.exit_code is None, worker.output
        brokers.start(*dead)
        going_on.result()
        life.phase(client)
        life.phase(client, 1)
    life.wait_until_released(worker)
    assert worker.exit_code is None, worker.output
    assert life.complaints() == []
    worker.kill()
    deployment.close()


@asynccontextmanager
async def _journal(servers: str) -> AsyncIterator[KafkaLog]:
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=True)
    await producer.start()
    try:
        yield KafkaLog(Broker(servers), "journal", 1, producer)
    finally:
        await producer.stop()


async def _entries(servers: str, end: int) -> int | None:
    """How many entries a reading gives up to an acknowledged end. None if it fails."""
    log = KafkaLog(Broker(servers), "journal", 1, None)
    try:
        return sum([len(piece) async for piece in log.read(0, 0, end)])
    except ServerUnavailable:
        return None


async def test_a_leader_that_was_replaced_and_does_not_know_it_hides_no_entry(
    make_brokers: Callable[..., Brokers],
) -> None:
    """It wakes where it cannot hear the controller, and clients can still reach it."""
    brokers = make_brokers(apart=True)
    with brokers.admin() as admin:
        config = TOPICS["journal"].config(3)
        admin.create_topics([NewTopic("journal", 1, 3, topic_configs=config)])
    brokers.wait_in_sync("journal")
    former = brokers.partitions("journal")[0]["leader"]
    others = brokers.address(*(set(brokers.numbers) - {former}))
    entries = [LogEntry(b"flights", b"%d" % number) for number in range(10)]
    async with _journal(brokers.bootstrap_servers) as log:
        assert await log.append(0, entries[:5]) == 0
    brokers.signal(former, signal.SIGSTOP)
    async with _journal(others) as log:
        assert await log.append(0, entries[5:]) == 5, "once another one leads"
    brokers.signal(CONTROLLER, signal.SIGSTOP)
    brokers.signal(former, signal.SIGCONT)
    tried = [f"{brokers.address(former)},{others}", brokers.bootstrap_servers, others]
    found = [await _entries(servers, 10) for servers in tried for _ in range(4)]
    assert set(found) <= {10, None}
    assert 10 in found
    brokers.signal(CONTROLLER, signal.SIGCONT)


def test_a_replica_that_lacks_acknowledged_records_never_leads(
    make_brokers: Callable[..., Brokers], make_deployment: Callable[..., Any]
) -> None:
    """Beside it a topic that allows just this: there the replica leads, and a record is lost."""
    brokers = make_brokers(apart=True)
    deployment = make_deployment(
        bootstrap_servers=brokers.bootstrap_servers, replication=3, partitions=1
    )
    careful, careless = deployment.topics.name("ledger"), f"{deployment.prefix}careless"
    allowed = {"unclean.leader.election.enable": "true"}
    with brokers.admin() as admin:
        admin.create_topics([NewTopic(careless, 1, 3, topic_configs=allowed)])
    producer = KafkaProducer(bootstrap_servers=brokers.bootstrap_servers, acks="all")

    def acknowledged(value: bytes) -> None:
        for topic in (careful, careless):
            producer.send(topic, value).get(PATIENCE_S)

    last, other, behind = brokers.numbers
    acknowledged(b"all three have it")
    brokers.kill(behind)
    for topic in (careful, careless):
        brokers.wait_in_sync(topic, {last, other})
    acknowledged(b"two have it")
    producer.close()
    brokers.kill(other)
    for topic in (careful, careless):
        brokers.wait_in_sync(topic, {last})
    assert _refused(brokers, careful, 0) is NotEnoughReplicasError
    brokers.kill(last)
    brokers.start(behind)
    brokers.wait(lambda: brokers.partitions(careless)[0]["leader"] == behind)
    assert brokers.partitions(careful)[0]["leader"] == -1
    # After kill -9 the controller trusts no replica alone, and waits for both that had it.
    brokers.start(last, other)
    for topic in (careful, careless):
        brokers.wait_in_sync(topic)
    assert _values(brokers, careful) == [b"all three have it", b"two have it"]
    assert _values(brokers, careless) == [b"all three have it"]
    deployment.close()
