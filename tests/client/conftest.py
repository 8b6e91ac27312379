"""A deployment with real servers for the client to talk to."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from stream_dp.cli.up import await_worker
from stream_dp.client import Client
from stream_dp.client.topics import create_topics
from stream_dp.embedded import ports
from stream_dp.embedded.child import Child
from stream_dp.messages import Topics


@pytest.fixture(scope="session")
def start_worker(
    kafka_server: str, valkey_server: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Child]]:
    """``start_worker(topic_prefix)``: topics and a worker under a prefix, ready to answer."""
    with ExitStack() as stack:

        def start(prefix: str) -> Child:
            folder = tmp_path_factory.mktemp("worker")
            port = ports.choose("the worker's pages", None)
            create_topics(kafka_server, Topics(prefix), partitions=2)
            command = [sys.executable, "-m", "stream_dp", "worker"]
            command += ["--bootstrap-servers", kafka_server, "--redis-url", valkey_server]
            command += ["--topic-prefix", prefix, "--web-port", str(port)]
            worker = Child("worker", command, log=folder / "worker.log", folder=folder)
            stack.callback(worker.stop)
            worker.start()
            await_worker(worker, port)
            return worker

        yield start


@pytest.fixture(scope="session")
def served_prefix(start_worker: Callable[[str], Child]) -> str:
    """A topic prefix under which a worker answers, for the whole run."""
    prefix = f"c{secrets.token_hex(4)}."
    start_worker(prefix)
    return prefix


@pytest.fixture
def client(kafka_server: str, served_prefix: str) -> Iterator[Client]:
    with Client(kafka_server, analyst="ann", topic_prefix=served_prefix) as made:
        yield made


@pytest.fixture
def silent_prefix(kafka_server: str, topic_prefix: str) -> str:
    """A prefix with topics, under which no worker runs."""
    create_topics(kafka_server, Topics(topic_prefix), partitions=1)
    return topic_prefix


@pytest.fixture
def definition() -> dict[str, Any]:
    """A small data set under a name of its own, without the field ``version``."""
    return {
        "dataset": f"people-{secrets.token_hex(4)}",
        "attributes": [
            {"name": "city", "type": "category", "values": ["Bonn", "Graz"], "missing": True},
            {"name": "age", "type": "number", "edges": [18, 65], "integer": True, "missing": True},
            {"name": "smoker", "type": "boolean"},
        ],
        "privacy": {"epsilon": 10.0, "delta": 1e-6},
        "accuracy": {"error": 0.1, "failure_probability": 0.01},
        "phase": {"min_rows": 1000},
    }
