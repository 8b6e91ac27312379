"""Running commands as at a terminal, in this process, and a deployment to run them against."""

from __future__ import annotations

import contextlib
import io
import json
import random
import secrets
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from kafka.admin import KafkaAdminClient
from kafka.errors import KafkaError
from rich.console import Console, RenderableType

from stream_dp import cli
from stream_dp.cli.command_options import GivenServers
from stream_dp.client.kafka.deployment_topics import create_topics
from tests.client.world_client import SessionClient, WorldSession

Run: TypeAlias = Callable[..., Any]
"""A command with its words; how it ended."""
Write: TypeAlias = Callable[..., Path]
"""What changes of a file; the file."""


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """``run("ask", "people", ...)``: without servers of its own, and away from those of this machine."""
    monkeypatch.setenv("STREAM_DP_STATE_DIR", str(tmp_path / "state"))
    for name in ("STREAM_DP_BOOTSTRAP_SERVERS", "STREAM_DP_REDIS_URL", "STREAM_DP_TOPIC_PREFIX"):
        monkeypatch.delenv(name, raising=False)

    def run(*words: object) -> Ended:
        monkeypatch.setattr(sys, "argv", ["stream-dp", *map(str, words)])
        with pytest.raises(SystemExit) as end:
            cli.main()
        printed = capsys.readouterr()
        return Ended(int(end.value.code or 0), printed.out, printed.err)

    return run


@pytest.fixture
def served(run: Run, served_deployment: Any, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``run``, with the servers in the environment."""
    monkeypatch.setenv("STREAM_DP_BOOTSTRAP_SERVERS", served_deployment.bootstrap_servers)
    monkeypatch.setenv("STREAM_DP_REDIS_URL", served_deployment.redis_url)
    monkeypatch.setenv("STREAM_DP_TOPIC_PREFIX", served_deployment.prefix)
    return run


def printed(*pieces: RenderableType, width: int = 1000) -> list[str]:
    """The lines that a terminal without colours shows."""
    console = Console(width=width, file=io.StringIO(), record=True, color_system=None)
    for piece in pieces:
        console.print(piece)
    return [line.rstrip() for line in console.export_text().splitlines()]


def servers_of(deployment: Any) -> list[str]:
    """The options that name the servers of a deployment: of Kafka first, and Redis last."""
    kafka = ["--bootstrap-servers", deployment.bootstrap_servers]
    return [*kafka, "--topic-prefix", deployment.prefix, "--redis-url", deployment.redis_url]


class LastingClient(SessionClient):
    """A client that goes on after a command has ended."""

    def __exit__(self, *_: object) -> None:
        pass


def lasting_client(session: WorldSession, monkeypatch: pytest.MonkeyPatch) -> LastingClient:
    """The one client of a session, which all commands get."""
    client = LastingClient(session)

    def client_of_a_command(*_: object, **__: object) -> LastingClient:
        session.definitions.clear()  # it reads the catalog again
        return client

    monkeypatch.setattr(GivenServers, "client", client_of_a_command)
    return client


def delete_topic(deployment: Any, role: str) -> None:
    """Deletes a topic and creates it again."""
    admin = KafkaAdminClient(bootstrap_servers=deployment.bootstrap_servers)
    admin.delete_topics([deployment.topics.name(role)])
    for _ in range(50):
        with contextlib.suppress(KafkaError):
            if create_topics(deployment.bootstrap_servers, deployment.topics, partitions=2).created:
                break
    admin.close()


@pytest.fixture
def definition() -> dict[str, Any]:
    """A small data set under a name of its own."""
    city = {"name": "city", "type": "category", "values": ["Bonn", "Graz", "Lyon"]}
    age = {"name": "age", "type": "number", "edges": [18, 30, 45], "integer": True, "missing": True}
    return {
        "dataset": f"people-{secrets.token_hex(4)}",
        "attributes": [city, age, {"name": "smoker", "type": "boolean", "missing": True}],
        "privacy": {"epsilon": 1.0, "delta": 1e-9},
        "accuracy": {"error": 0.1, "failure_probability": 0.01},
        "phase": {"min_rows": 2000},
    }


@pytest.fixture
def write(definition: dict[str, Any], tmp_path: Path) -> Write:
    """``write(phase=...)``: the file of the definition with these fields changed."""

    def write(**changed: object) -> Path:
        file = tmp_path / "definition.json"
        file.write_text(json.dumps({**definition, **changed}))
        return file

    return write


@pytest.fixture
def define(served: Run, definition: dict[str, Any], write: Write) -> Callable[..., str]:
    """``define(phase=...)``: creates the data set with these fields changed; its name."""

    def define(**changed: object) -> str:
        ended = served("dataset", "create", write(**changed))
        assert ended.code == 0, ended.err
        return str({**definition, **changed}["dataset"])

    return define


@pytest.fixture
def write_people(tmp_path: Path) -> Write:
    """``write_people(name, n)``: a csv of n people, half of them in Bonn, one in five of no known age."""

    def write(name: str, n: int = 5000) -> Path:
        draw = random.Random(7)
        file = tmp_path / f"{name}.csv"
        with file.open("w") as text:
            text.write("id,city,age,smoker\n")
            for i in range(n):
                city = ("Bonn", "Bonn", "Graz", "Oslo")[i % 4]
                age = "" if i % 5 == 0 else draw.randrange(90)
                text.write(f"{i},{city},{age},{'true' if i % 3 else 'false'}\n")
        return file

    return write
