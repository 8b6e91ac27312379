"""A real broker or store that restarts while queries are asked."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_dp.embedded.kafka import KafkaServer
from stream_dp.embedded.valkey import ValkeyServer
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.kafka


@pytest.fixture
def own_valkey(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A store of this test's own, which it may restart."""
    server = ValkeyServer(tmp_path / "valkey", log=tmp_path / "valkey.log")
    server.start()
    yield server
    server.stop()


def wait_until_away(worker: Any, *servers: str) -> None:
    """Waits until the worker's page says that exactly these do not answer."""
    with urllib.request.urlopen(f"{worker.url}/stream/operator", timeout=PATIENCE_S) as told:
        for line in told:
            facts = json.loads(line[6:]) if line.startswith(b"data: {") else {}
            if "away" in facts and {*facts["away"]} == {*servers}:
                return


@pytest.mark.slow
def test_a_broker_and_a_store_restart_while_queries_are_asked(
    own_kafka: KafkaServer,
    own_valkey: ValkeyServer,
    make_deployment: Callable[..., Any],
    make_life: Callable[..., Any],
    tmp_path: Path,
    kafka_jars: tuple[Path, ...],
) -> None:
    deployment = make_deployment(
        bootstrap_servers=own_kafka.bootstrap_servers, redis_url=own_valkey.url
    )
    life = make_life(deployment, ["flights", "trains"])
    worker = deployment.worker().wait_ready()
    restarted: list[ValkeyServer | KafkaServer] = []

    def restart() -> None:
        own_valkey.stop()
        wait_until_away(worker, "Redis")
        again = ValkeyServer(tmp_path / "valkey", log=tmp_path / "valkey.log", port=own_valkey.port)
        again.start()
        restarted.append(again)
        wait_until_away(worker)
        own_kafka.stop()
        wait_until_away(worker, "Kafka")
        broker = KafkaServer(
            tmp_path / "kafka", kafka_jars, log=tmp_path / "kafka.log", port=own_kafka.port
        )
        broker.start()
        restarted.append(broker)

    try:
        with deployment.client() as client:
            life.define(client)
            life.phase(client)
            restarting = threading.Thread(target=restart)
            restarting.start()
            while restarting.is_alive():
                life.phase(client)
            life.phase(client)
            life.phase(client, 1)
        wait_until_away(worker)
        life.wait_until_released(worker)
        assert worker.exit_code is None, worker.output
        assert life.complaints() == []
        worker.kill()
    finally:
        deployment.close()
        for server in restarted:
            server.stop()
