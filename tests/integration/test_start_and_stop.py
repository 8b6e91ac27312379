"""A worker that must not run says why and ends with exit code 1; one that is asked to end does."""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import signal
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from kafka.admin import KafkaAdminClient

from stream_dp.client.kafka.deployment_topics import create_topics, describe_topics
from stream_dp.embedded.kafka_server import KafkaServer
from stream_dp.messages import INPUTS, PRIVATE
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.kafka

DEFINITION = {
    "version": 1,
    "dataset": "flights",
    "attributes": [{"name": "carrier", "type": "category", "values": ["AA", "UA"]}],
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "accuracy": {"error": 0.02, "failure_probability": 0.01},
    "phase": {"min_rows": 20_000},
}


def _fails(worker: Any, *words: str) -> None:
    assert worker.wait() == 1, worker.output
    errors = re.findall(r"^error: .*$", worker.output, re.MULTILINE)
    assert errors, worker.output
    for word in words:
        assert word in errors[-1]


@pytest.fixture
def admin(deployment: Any) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=deployment.bootstrap_servers)
    yield client
    client.close()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_worker_that_is_asked_to_end_ends_well(deployment: Any, number: int) -> None:
    worker = deployment.worker().wait_ready()
    assert _in_hand(deployment) == 2
    worker.signal(number)
    assert worker.wait() == 0, worker.output
    assert "Traceback" not in worker.output
    assert not _in_hand(deployment), "it said goodbye"


def _in_hand(deployment: Any) -> int:
    """The number of partitions that some worker has not put down."""
    return sum(not owned.marks.left for owned in deployment.durable().owned)


def test_missing_topics_are_named_with_the_command_that_makes_them(
    make_deployment: Callable[..., Any],
) -> None:
    deployment = make_deployment(partitions=0)
    _fails(deployment.worker(), f"{deployment.prefix}batches", "stream-dp topics create")


def test_no_broker(deployment: Any) -> None:
    deployment.bootstrap_servers = "127.0.0.1:9"
    _fails(deployment.worker(), "no Kafka broker", "127.0.0.1:9")


def test_another_number_of_partitions_than_the_workers_own_topics_have_stops_the_worker(
    deployment: Any, admin: KafkaAdminClient
) -> None:
    deployment.widen(admin, *INPUTS)
    journal = f"{deployment.topics.name('journal')} 2"
    _fails(deployment.worker(), "differ in their number of partitions", journal, "stream-dp doctor")


@pytest.mark.slow
def test_a_changed_number_of_partitions_stops_the_worker(
    deployment: Any, admin: KafkaAdminClient
) -> None:
    """The partition of a data set would be another one, where nothing says that it is defined."""
    worker = deployment.worker().wait_ready()
    with deployment.client() as client:
        client.define(DEFINITION)
    worker.stop()
    deployment.widen(admin, *INPUTS, *PRIVATE)
    _fails(deployment.worker(), "have 3 partitions and had 2", "another topic prefix")


@pytest.mark.slow
def test_a_topic_that_a_release_needs_and_nobody_made_is_named_with_the_command(
    deployment: Any, admin: KafkaAdminClient
) -> None:
    admin.delete_topics([deployment.topics.name("journal")])
    while describe_topics(deployment.bootstrap_servers, deployment.topics)["journal"].partitions:
        pass
    missing = f"topics {deployment.prefix}journal do not exist; run: stream-dp topics create"
    _fails(deployment.worker(), missing)
    made = create_topics(deployment.bootstrap_servers, deployment.topics)
    assert made.created == [deployment.topics.name("journal")]
    deployment.worker().wait_ready()


@pytest.mark.slow
def test_a_topic_that_is_created_again_under_a_running_worker_stops_it(
    deployment: Any, admin: KafkaAdminClient
) -> None:
    """Its records would come at offsets that were read already, and be taken for repetitions."""
    worker = deployment.worker().wait_ready()
    _create_batches_again(deployment, admin)
    _fails(worker, f"{deployment.prefix}batches", "was deleted")


def _create_batches_again(deployment: Any, admin: KafkaAdminClient) -> None:
    """Deletes a topic that was read, creates it again, and puts a record on it."""
    with deployment.client() as client:
        client.define(DEFINITION)
        for n in range(3):
            client.send("flights", cells=[{"carrier": "AA", "count": n}])
    admin.delete_topics([deployment.topics.name("batches")])
    while describe_topics(deployment.bootstrap_servers, deployment.topics)["batches"].partitions:
        pass
    create_topics(deployment.bootstrap_servers, deployment.topics, partitions=2)
    document = {"version": 1, "dataset": "flights", "batch_id": "new", "rows": []}
    deployment.produce("batches", document, key="flights")


@pytest.mark.slow
def test_a_worker_that_gets_nowhere_ends_itself(
    make_deployment: Callable[..., Any], own_kafka: KafkaServer
) -> None:
    """The broker takes no entries for a while and does not say so: nothing fails, and nothing goes on."""
    deployment = make_deployment(bootstrap_servers=own_kafka.bootstrap_servers)
    worker = deployment.worker(stall_timeout_s=8).wait_ready()
    with deployment.client() as client:
        client.define(DEFINITION)
    for number in range(300):
        document = {"version": 1, "dataset": "flights", "batch_id": f"b{number}", "rows": []}
        deployment.produce("batches", document, key="flights")
    os.kill(own_kafka.pid, signal.SIGSTOP)
    try:
        assert worker.wait() == 1
    finally:
        os.kill(own_kafka.pid, signal.SIGCONT)
    assert "there was work" in worker.output


def _lags(worker: Any, role: str) -> list[float]:
    page = (worker.page("/metrics") or b"").decode()
    pattern = rf'^stream_dp_cursor_lag_messages{{.*"{role}"}} (\S+)$'
    found = [float(lag) for lag in re.findall(pattern, page, re.MULTILINE)]
    return found or [math.inf]


@pytest.mark.slow
def test_what_is_aborted_is_not_taken_and_what_is_not_committed_yet_is_no_work(
    deployment: Any,
) -> None:
    worker = deployment.worker().wait_ready()
    with deployment.client() as client:
        client.define(DEFINITION)
    topic = deployment.topics.name("batches")

    def taken() -> list[str]:
        events = deployment.replies("events")
        return [event["batch_id"] for event in events if event["event"] == "batch_accepted"]

    async def produce() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=deployment.bootstrap_servers, transactional_id=deployment.prefix
        ) as producer:

            async def send(batch_id: str) -> None:
                cells = [{"carrier": "AA", "count": 10}]
                document = {"version": 1, "dataset": "flights", "batch_id": batch_id}
                value = json.dumps({**document, "cells": cells}).encode()
                await producer.send_and_wait(topic, value, key=b"flights")

            for batch_id in ("aborted", "kept"):
                await producer.begin_transaction()
                await send(batch_id)
                if batch_id == "aborted":
                    await producer.abort_transaction()
                else:
                    await producer.commit_transaction()
            await producer.begin_transaction()
            await send("late")
            await asyncio.to_thread(worker.until, lambda: taken() == ["kept"])
            await asyncio.sleep(2)  # a fetch lasts 1.5 s, and tells then where the log ends
            # Else it would seem stuck to itself.
            await asyncio.to_thread(worker.until, lambda: _lags(worker, "batches") == [0.0, 0.0])
            await producer.commit_transaction()
            await producer.begin_transaction()
            await send("aborted too")
            await producer.abort_transaction()

    asyncio.run(produce())
    worker.until(lambda: taken() == ["kept", "late"], alive=True)
    worker.until(lambda: not any(_lags(worker, "batches")), alive=True)


@pytest.mark.slow
def test_what_a_transaction_leaves_on_the_log_may_be_deleted(
    deployment: Any, admin: KafkaAdminClient
) -> None:
    from kafka import TopicPartition

    worker = deployment.worker().wait_ready()
    places: list[Any] = []

    async def produce() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=deployment.bootstrap_servers, transactional_id=deployment.prefix
        ) as producer:
            for name in ("datasets", "batches"):
                await producer.begin_transaction()
                topic, value = deployment.topics.name(name), json.dumps(DEFINITION).encode()
                sent = await producer.send_and_wait(topic, value, key=b"flights")
                places.append(TopicPartition(sent.topic, sent.partition))
                if name == "datasets":
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()

    asyncio.run(produce())

    def passed() -> bool:
        marks = [owned.marks.watermarks for owned in deployment.durable().owned]
        return all(marks[one.partition].get(f"{one.topic}:{one.partition}") == 2 for one in places)

    worker.until(passed, alive=True)
    worker.stop()
    admin.delete_records(dict.fromkeys(places, 2))
    deployment.worker().wait_ready()
    assert {event["event"] for event in deployment.replies("events")} == {"dataset_accepted"}


@pytest.mark.slow
def test_a_fixed_name_gets_its_partitions_back_at_once_also_at_another_address(
    deployment: Any,
) -> None:
    """Each worker has another web port here. The first is killed, and its session has not run out.

    Only here is a time compared: with that of the session, which is as long as may be.
    """
    session_s = 90
    first = deployment.worker(instance_id="one", session_timeout_s=session_s).wait_ready()
    with deployment.client() as client:
        client.define(DEFINITION)
        killed = time.monotonic()
        first.kill()
        deployment.worker(instance_id="one", session_timeout_s=session_s).wait_ready()
        assert time.monotonic() - killed < session_s, "it waited for the end of the session"
        client.send("flights", cells=[{"carrier": "AA", "count": 10}])


@pytest.mark.slow
def test_input_topics_are_unpacked_by_the_broker(deployment: Any) -> None:
    """Whatever a producer compresses with, the worker needs no codec for it."""
    states = describe_topics(deployment.bootstrap_servers, deployment.topics)
    assert all(state.wrong == {} for state in states.values())
    worker = deployment.worker().wait_ready()
    with deployment.client() as client:
        client.define(DEFINITION)
    from kafka import KafkaProducer

    producer = KafkaProducer(
        bootstrap_servers=deployment.bootstrap_servers, compression_type="gzip"
    )
    value = (
        b'{"version": 1, "dataset": "flights", "batch_id": "b", "cells": []' + b" " * 9_000 + b"}"
    )
    producer.send(deployment.topics.name("batches"), key=b"flights", value=value).get(PATIENCE_S)
    producer.close()
    worker.until(lambda: any("batch_id" in e for e in deployment.replies("events")))
    for record in deployment.read("batches"):
        assert record.serialized_value_size == len(value)


@pytest.mark.slow
def test_every_line_of_a_worker_that_logs_json_is_an_object(
    deployment: Any, admin: KafkaAdminClient
) -> None:
    """Also of Faust's and the broker's loggers, and why the worker ends."""
    worker = deployment.worker("--log-level", "info", log_format="json").wait_ready()
    _create_batches_again(deployment, admin)
    assert worker.wait() == 1, worker.output
    lines = [json.loads(line) for line in worker.output.splitlines()]
    assert all(line.keys() >= {"time", "level", "logger", "message"} for line in lines)
    said = [line["message"] for line in lines if line["logger"] == "stream_dp.worker"]
    assert any(message.startswith("starting a worker") for message in said)
    assert any(message.startswith("the worker answers") for message in said)
    assert "was deleted" in said[-1]
    assert any(line["logger"].startswith(("faust", "mode")) for line in lines)
