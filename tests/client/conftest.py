"""A deployment with real servers for the client to talk to."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from stream_dp.client import Client


@pytest.fixture
def served_prefix(served_deployment: Any) -> str:
    """A topic prefix under which a worker answers."""
    return str(served_deployment.prefix)


@pytest.fixture
def client(kafka_server: str, served_prefix: str) -> Iterator[Client]:
    with Client(kafka_server, analyst="ann", topic_prefix=served_prefix) as made:
        yield made


@pytest.fixture
def silent_prefix(make_deployment: Callable[..., Any]) -> str:
    """A prefix with topics, under which no worker runs."""
    return str(make_deployment(partitions=1).prefix)


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
        "accuracy": {"error": 0.1, "failure_probability": 1e-7},
        "phase": {"min_rows": 1000},
    }
