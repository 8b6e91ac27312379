"""A real broker that restarts while queries are asked, and a Redis that is away, freezes, or comes late."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stream_dp.embedded import ports
from stream_dp.embedded.valkey_server import ValkeyServer

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


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
