"""Clients of a worker in this process, and of one with real servers."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_dp.client import Client
from tests.client.world_client import QuietSession, SessionClient, WorldSession
from tests.signing import Issuer


@pytest.fixture
def session() -> Iterator[WorldSession]:
    made = WorldSession()
    yield made
    made.end()


@pytest.fixture
def client(session: WorldSession) -> Client:
    """A client of a worker in this process."""
    return SessionClient(session)


@pytest.fixture
def silent() -> Iterator[QuietSession]:
    """A session whose records nobody reads."""
    with contextlib.closing(QuietSession()) as made:
        yield made


@pytest.fixture
def issuer(tmp_path: Path) -> Issuer:
    """An issuer of tokens."""
    return Issuer(tmp_path)


@pytest.fixture
def served_prefix(served_deployment: Any) -> str:
    """A topic prefix under which a worker answers."""
    return str(served_deployment.prefix)


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


def columns(n: int, *, bonn: float = 0.5) -> dict[str, list[object]]:
    """Of n rows, a share in Bonn and the rest in Graz; ages 10, 40 and 70 by turns; half smoke."""
    return {
        "city": ["Bonn" if i < bonn * n else "Graz" for i in range(n)],
        "age": [(10, 40, 70)[i % 3] for i in range(n)],
        "smoker": [i % 2 == 0 for i in range(n)],
    }
