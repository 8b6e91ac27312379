"""A real broker that restarts while queries are asked, and a Redis that is away, freezes, or comes late."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_dp.embedded import ports
from stream_dp.embedded.kafka_server import KafkaServer
from stream_dp.embedded.valkey_server import ValkeyServer
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


def wait_until_away(worker: Any, *servers: str) -> None:
    """Waits until the worker's page says that exactly these do not answer."""
    with urllib.request.urlopen(f"{worker.url}/stream/operator", timeout=PATIENCE_S) as told:
        for line in told:
            facts = json.loads(line[6:]) if line.startswith(b"data: {") else {}
            if "ready" in facts and {*facts["away"]} == {*servers}:
                return


@pytest.fixture
def start_valkey(tmp_path: Path) -> Iterator[Callable[[int], ValkeyServer]]:
    """``start_valkey(port)``: an empty Redis; it ends with the test."""
    started: list[ValkeyServer] = []

    def start(port: int) -> ValkeyServer:
        started.append(ValkeyServer(tmp_path / "valkey", log=tmp_path / "valkey.log", port=port))
        started[-1].start()
        return started[-1]

    yield start
    for server in started:
        server.stop()


def test_a_broker_and_redis_restart_while_queries_are_asked(
    own_kafka: KafkaServer,
    start_valkey: Callable[[int], ValkeyServer],
    make_deployment: Callable[..., Any],
    make_life: Callable[..., Any],
    tmp_path: Path,
    kafka_jars: tuple[Path, ...],
) -> None:
    """While Redis is away, all is answered as before."""
    port = ports.choose("Redis", None)
    redis = start_valkey(port)
    deployment = make_deployment(
        bootstrap_servers=own_kafka.bootstrap_servers, redis_url=f"redis://{ports.HOST}:{port}/0"
    )
    life = make_life(deployment, ["flights", "trains"])
    worker = deployment.worker().wait_ready()
    restarted: list[KafkaServer] = []

    def restart() -> None:
        redis.stop()
        wait_until_away(worker, "Redis")
        asked = life.phases
        until(lambda: life.phases >= asked + 3, "nothing is answered without Redis")
        start_valkey(port)
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
        assert restarted
        wait_until_away(worker)
        life.wait_until_released(worker)
        life.wait_until_followed(worker)
        assert worker.exit_code is None, worker.output
        assert life.complaints() == []
        worker.kill()
    finally:
        deployment.close()
        for server in restarted:
            server.stop()


def test_redis_is_not_there_until_all_is_asked(
    start_valkey: Callable[[int], ValkeyServer],
    make_deployment: Callable[..., Any],
    make_life: Callable[..., Any],
) -> None:
    """Workers start, take over from each other, and answer old ids. When Redis comes, it gets all."""
    port = ports.choose("Redis", None)
    deployment = make_deployment(redis_url=f"redis://{ports.HOST}:{port}/0")
    life = make_life(deployment, ["flights", "trains"])
    for phases in ((1,), (2, 1), (3, 2, 1)):
        worker = deployment.worker().wait_ready()
        with deployment.client() as client:
            life.define(client)
            for number in phases:
                life.phase(client, number)
        life.wait_until_released(worker)
        if len(phases) < 3:
            assert worker.stop() == 0, worker.output
    assert worker.output.count("Redis does not follow, and nothing waits for it") == 1
    assert life.complaints() == []
    start_valkey(port)
    life.wait_until_followed(worker)
    assert "Redis answers again" in worker.output
    assert worker.stop() == 0, worker.output
    assert life.complaints() == []


def test_a_redis_that_does_not_move_keeps_nothing_waiting_for_long(
    start_valkey: Callable[[int], ValkeyServer],
    make_deployment: Callable[..., Any],
    make_life: Callable[..., Any],
) -> None:
    """It takes connections, and answers nothing on them."""
    port = ports.choose("Redis", None)
    redis = start_valkey(port)
    deployment = make_deployment(redis_url=f"redis://{ports.HOST}:{port}/0")
    life = make_life(deployment, ["flights", "trains"])
    worker = deployment.worker().wait_ready()
    with deployment.client() as client:
        life.define(client)
        life.phase(client)
        os.kill(redis.pid, signal.SIGSTOP)
        try:
            for _ in range(3):
                life.phase(client)
            life.phase(client, 1)
            wait_until_away(worker, "Redis")
            other = deployment.worker()  # it starts without Redis, and takes partitions over
            other.wait_ready()
            life.phase(client)
            life.phase(client, 2)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.kill(redis.pid, signal.SIGCONT)
        life.phase(client)
    life.wait_until_released(worker)
    life.wait_until_followed(worker)
    for one in (worker, other):
        assert one.stop() == 0, one.output
    assert life.complaints() == []
