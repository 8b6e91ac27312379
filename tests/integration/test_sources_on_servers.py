"""Rows one a message on a topic that exists already: each counts once, whoever reads it, however often."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from stream_dp.state.schema import StateTable
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.kafka

DEFINITION = {
    "version": 1,
    "dataset": "orders",
    "attributes": [
        {"name": "city", "type": "category", "values": ["Bonn", "Graz"], "missing": True},
        {"name": "amount", "type": "number", "edges": [10, 100]},
    ],
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "accuracy": {"error": 0.02},
    "phase": {"min_rows": 1_000_000},
}


def started(
    deployment: Any, file: Path, errors: Any, **environment: str
) -> subprocess.Popen[bytes]:
    """A worker that only reads the source that a file describes."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "stream_dp", "worker", "--role", "counter"),
            *("--source", str(file), "--topic-prefix", deployment.prefix),
            *("--bootstrap-servers", deployment.bootstrap_servers),
            *("--redis-url", deployment.redis_url),
        ],
        env={**os.environ, "STREAM_DP_SESSION_TIMEOUT_S": "6", **environment},
        stderr=errors,
    )


def waits_for(client: Any, rows: int) -> None:
    until(
        lambda: client.waiting().get("orders") == rows,
        lambda: f"{client.waiting()}, not {rows}",
        every_s=0.1,
    )


@pytest.mark.slow
def test_every_message_is_one_row_through_replays_and_several_readers(
    deployment: Any, tmp_path: Path
) -> None:
    topic = f"{deployment.prefix}shop"
    admin = KafkaAdminClient(bootstrap_servers=deployment.bootstrap_servers)
    admin.create_topics([NewTopic(topic, num_partitions=3, replication_factor=1)])
    file = tmp_path / "orders.json"
    file.write_text(
        json.dumps(
            {
                "version": 1,
                "dataset": "orders",
                "topic": topic,
                "fields": {"city": "customer.city"},
                "batch_rows": 400,
                "wait_seconds": 0.2,
            }
        )
    )
    deployment.worker().wait_ready()
    producer = KafkaProducer(bootstrap_servers=deployment.bootstrap_servers, acks="all")

    def produce(n_rows: int) -> None:
        for i in range(n_rows):
            row = {"customer": {"city": "Bonn" if i % 3 else "Graz"}, "amount": i % 200}
            value = b"no JSON" if i % 100 == 0 else json.dumps(row).encode()
            producer.send(topic, value, partition=i % 3)
        producer.flush()

    def counter(**environment: str) -> subprocess.Popen[bytes]:
        return started(deployment, file, log, **environment)

    counters = []
    log = (tmp_path / "counter.log").open("wb")
    try:
        with deployment.client() as client:
            client.define(DEFINITION)
            produce(3_000)
            counters += [counter(), counter()]
            waits_for(client, 3_000)
            produce(1_000)
            counters[0].kill()
            waits_for(client, 4_000)
            for process in counters:
                process.kill()
                process.wait()
            produce(500)
            counters.append(counter(STREAM_DP_GROUP_ID="has-forgotten-what-it-read"))
            waits_for(client, 4_500)
            sent = [reply["batch_id"] for reply in deployment.replies("batches")]
            assert len(sent) <= len(set(sent)) + 4, (
                "whoever is killed may have been about to say that one was sent, and no one begins afresh"
            )
            cursor = deployment.durable().table("orders", StateTable.CURSOR)
            expected = [int(at) for place, at in cursor.items() if place.startswith(b"source ")]
            assert sorted(expected) == [1_499, 1_500, 1_501], "one number for each partition"
            counters[-1].kill()
            counters[-1].wait()
            produce(300)
            admin.delete_records({TopicPartition(topic, 0): 1_511})
            counters.append(counter())
            waits_for(client, 4_790)
            told = (tmp_path / "counter.log").read_text()
            assert told.count("were deleted before a counter read them") == 1
            assert f"records 1501 to 1510 of {topic}:0 were deleted before a counter" in told
            kept = deployment.replies("events")
            rows = {e["batch_id"]: e["rows"] for e in kept if e["event"] == "batch_accepted"}
            assert sum(rows.values()) == 4_790
    finally:
        for process in counters:
            process.kill()
            process.wait()
        log.close()
        producer.close()
        admin.close()


@pytest.mark.slow
def test_a_source_that_is_created_again_under_a_running_counter_ends_it_and_counts_once(
    deployment: Any, tmp_path: Path
) -> None:
    """Else its rows would count under the offsets of the former topic, and again after the next start."""
    topic = f"{deployment.prefix}shop"
    admin = KafkaAdminClient(bootstrap_servers=deployment.bootstrap_servers)
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    file = tmp_path / "orders.json"
    named = {"fields": {"city": "city"}, "batch_rows": 400, "wait_seconds": 0.2}
    file.write_text(json.dumps({"version": 1, "dataset": "orders", "topic": topic, **named}))
    deployment.worker().wait_ready()

    def produce(n_rows: int) -> None:
        producer = KafkaProducer(bootstrap_servers=deployment.bootstrap_servers, acks="all")
        values = (json.dumps({"city": "Bonn", "amount": i % 200}).encode() for i in range(n_rows))
        for sent in [producer.send(topic, value) for value in values]:
            sent.get(PATIENCE_S)
        producer.close()

    running = None
    try:
        with deployment.client() as client:
            client.define(DEFINITION)
            produce(1_000)
            running = started(deployment, file, subprocess.PIPE)
            waits_for(client, 1_000)
            admin.delete_topics([topic])
            while topic in admin.list_topics():
                time.sleep(0.1)
            admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
            produce(1_300)
            _, told = running.communicate(timeout=PATIENCE_S)
            assert running.returncode != 0
            # It may have looked while there was no topic.
            said = ("was deleted and created again", f"there is no topic {topic}")
            assert any(one in told.decode() for one in said), told.decode()
            running = started(deployment, file, subprocess.PIPE)
            _, told = running.communicate(timeout=PATIENCE_S)
            assert running.returncode != 0, "it may be a copy, so its start must be named"
            (log_id,) = re.findall(r'write "start": \{"id": "([^"]+)"', told.decode())
            start = {"id": log_id, "offsets": [0]}
            written = {"version": 1, "dataset": "orders", "topic": topic, "start": start, **named}
            file.write_text(json.dumps(written))
            running = started(deployment, file, subprocess.PIPE)
            waits_for(client, 2_300)
            time.sleep(2.0)
            assert client.waiting()["orders"] == 2_300
    finally:
        if running is not None:
            running.kill()
            running.communicate()
        admin.close()
