"""What the broker deletes: nothing by the times that producers give, and nothing without a word."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewTopic

from stream_dp.client.kafka.deployment_topics import create_topics, describe_topics
from stream_dp.embedded.kafka_server import KafkaServer
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.kafka

IN_2020_MS = 1_600_000_000_000
KEPT_MS = "3600000"
DEFINITION = {
    "version": 1,
    "dataset": "people",
    "attributes": [{"name": "smoker", "type": "boolean"}],
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "accuracy": {"error": 0.1, "failure_probability": 0.01},
    "phase": {"min_rows": 2000},
}
DELETED = "were deleted before anyone read them"


class _Tidy(KafkaServer):
    """Looks twice a second what is past its retention, not every five minutes."""

    def _write_settings(self) -> None:
        super()._write_settings()
        settings = self._settings.read_text()
        every = "log.retention.check.interval.ms=500\nlog.initial.task.delay.ms=500\n"
        self._settings.write_text(settings + every)


@pytest.fixture(scope="module")
def tidy_kafka(
    kafka_jars: tuple[Path, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[_Tidy]:
    folder = tmp_path_factory.mktemp("kafka")
    with _Tidy(folder / "kafka", kafka_jars, log=folder / "kafka.log") as server:
        yield server


@pytest.fixture
def admin(tidy_kafka: _Tidy) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=tidy_kafka.bootstrap_servers)
    yield admin
    admin.close()


def _beginning(server: KafkaServer, topic: str) -> int:
    consumer = KafkaConsumer(bootstrap_servers=server.bootstrap_servers, enable_auto_commit=False)
    place = TopicPartition(topic, 0)
    found: int = consumer.beginning_offsets([place])[place]
    consumer.close()
    return found


def _until_begins(server: KafkaServer, topic: str, offset: int) -> None:
    for _ in range(300):
        if _beginning(server, topic) == offset:
            return
        time.sleep(0.2)
    pytest.fail(f"{topic} never began at {offset}")


@pytest.mark.slow
def test_a_batch_with_an_old_time_is_kept_until_it_is_read_and_what_was_deleted_before_is_told(
    tidy_kafka: _Tidy, admin: KafkaAdminClient, make_deployment: Callable[..., Any]
) -> None:
    """A deployment from before, whose records had the times that producers gave them."""
    where = tidy_kafka.bootstrap_servers
    deployment = make_deployment(bootstrap_servers=where, partitions=1)
    topic = deployment.topics.name("batches")
    assert describe_topics(where, deployment.topics)["batches"].wrong == {}
    before = {"message.timestamp.type": "CreateTime", "retention.ms": KEPT_MS}
    admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, before)])
    worker = deployment.worker().wait_ready()
    with deployment.client() as client:
        client.define(DEFINITION)
    assert worker.stop() == 0

    def send(batch_id: str) -> None:
        batch = {"version": 1, "dataset": "people", "batch_id": batch_id, "rows": [{}] * 5}
        deployment.produce("batches", batch, key="people", timestamp_ms=IN_2020_MS)

    send("lost")
    _until_begins(tidy_kafka, topic, 1)  # acknowledged, and gone
    made = create_topics(where, deployment.topics, partitions=1)
    assert made.created == []
    assert made.changed == {topic: {"message.timestamp.type": "LogAppendTime"}}
    for _ in range(50):  # the broker takes a moment to show what it was told
        wrong = describe_topics(where, deployment.topics)["batches"].wrong
        if len(wrong) == 1:
            break
    assert wrong.keys() == {"retention.ms"}  # which is the operator's to choose

    send("kept")
    _let_it_look(tidy_kafka, admin)
    assert _beginning(tidy_kafka, topic) == 1
    worker = deployment.worker().wait_ready()
    worker.until(lambda: any(e.get("batch_id") == "kept" for e in deployment.replies("events")))
    assert f"records 0 to 0 of {topic}:0 {DELETED}" in worker.output
    shown = f'stream_dp_records_deleted_unread{{place="{topic}:0"}} 1.0'
    assert shown.encode() in worker.page("/metrics")
    assert worker.stop() == 0

    admin.delete_records({TopicPartition(topic, 0): 2})
    _until_begins(tidy_kafka, topic, 2)
    worker = deployment.worker().wait_ready()
    assert DELETED not in worker.output  # it was read
    assert b"stream_dp_records_deleted_unread{" not in worker.page("/metrics")
    assert worker.stop() == 0
    accepted = [event for event in deployment.replies("events") if "batch_id" in event]
    assert [event["batch_id"] for event in accepted] == ["kept"]


@pytest.mark.slow
def test_a_worker_that_fell_behind_the_retention_says_what_it_never_read(
    tidy_kafka: _Tidy, admin: KafkaAdminClient, make_deployment: Callable[..., Any]
) -> None:
    deployment = make_deployment(bootstrap_servers=tidy_kafka.bootstrap_servers, partitions=1)
    topic = deployment.topics.name("batches")
    worker = deployment.worker(session_timeout_s=60).wait_ready()

    def send(batch_id: str) -> None:
        batch = {"version": 1, "dataset": "people", "batch_id": batch_id, "rows": [{}] * 5}
        deployment.produce("batches", batch, key="people")

    def accepted(batch_id: str) -> bool:
        return any(event.get("batch_id") == batch_id for event in deployment.replies("events"))

    with deployment.client() as client:
        client.define(DEFINITION)
    send("read")
    worker.until(lambda: accepted("read"))
    worker.signal(signal.SIGSTOP)
    time.sleep(3)  # the broker holds a request for records that are to come for half a second
    for batch_id in ("lost", "lost too", "kept"):
        send(batch_id)
    admin.delete_records({TopicPartition(topic, 0): 3})
    worker.signal(signal.SIGCONT)
    worker.until(lambda: accepted("kept"))
    worker.until(lambda: DELETED in worker.output)
    assert f"records 1 to 2 of {topic}:0 {DELETED}" in worker.output
    shown = f'stream_dp_records_deleted_unread{{place="{topic}:0"}} 2.0'
    assert shown.encode() in worker.page("/metrics")
    assert worker.stop() == 0
    assert worker.output.count(DELETED) == 1


def _let_it_look(server: KafkaServer, admin: KafkaAdminClient) -> None:
    """Waits until the broker has looked at every topic once more: it deletes what another one has twice."""
    settings = {"message.timestamp.type": "CreateTime", "retention.ms": KEPT_MS}
    admin.create_topics([NewTopic("other", 1, 1, topic_configs=settings)])
    producer = KafkaProducer(bootstrap_servers=server.bootstrap_servers, acks="all")
    for offset in (1, 2):
        producer.send("other", b"old", timestamp_ms=IN_2020_MS).get(PATIENCE_S)
        _until_begins(server, "other", offset)
    producer.close()
