"""Four data sets over two workers and a store of three nodes, on loopback."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from stream_dp.embedded import ports
from stream_dp.embedded.valkey_server import SETTINGS, find_valkey
from tests.waiting import until

pytestmark = pytest.mark.kafka

SLOTS = ((0, 5_460), (5_461, 10_922), (10_923, 16_383))
NAMES = ("north", "east", "south", "west")
DEFINITION = {
    "version": 1,
    "attributes": [
        {"name": "city", "type": "category", "values": ["Bonn", "Graz"]},
        {"name": "age", "type": "number", "edges": [30, 60], "integer": True},
    ],
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "accuracy": {"error": 0.02, "failure_probability": 1e-7},
    "phase": {"min_rows": 20_000},
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[list[str]]:
    """URLs of three Valkeys that share the slots."""
    processes, urls = [], []
    for number in range(len(SLOTS)):
        port = ports.choose("a node of the store", None)
        folder = tmp_path / f"node{number}"
        folder.mkdir()
        settings = {**SETTINGS, "port": str(port), "dir": str(folder), "cluster-enabled": "yes"}
        settings["cluster-port"] = str(ports.choose("the bus of a node", None))
        words = [word for name, value in settings.items() for word in (f"--{name}", value)]
        with (folder / "log").open("wb") as log:
            processes.append(subprocess.Popen([find_valkey(), *words], stdout=log, stderr=log))
        urls.append(f"redis://127.0.0.1:{port}/0")
    clients = [redis.Redis.from_url(url) for url in urls]
    try:
        until(lambda: all(_answers(client) for client in clients))
        for client, slots in zip(clients, SLOTS, strict=True):
            client.execute_command("CLUSTER", "ADDSLOTSRANGE", *slots)
        for client, process_settings in zip(clients[1:], urls[1:], strict=True):
            port = int(process_settings.split(":")[2].split("/")[0])
            bus = int(client.config_get("cluster-port")["cluster-port"] or 0)
            clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", port, bus)
        until(
            lambda: all(c.execute_command("CLUSTER INFO")["cluster_state"] == "ok" for c in clients)
        )
        yield urls
    finally:
        for client in clients:
            client.close()
        for process in processes:
            process.kill()
            process.wait()


def _answers(client: Any) -> bool:
    try:
        return bool(client.ping())
    except redis.ConnectionError:
        return False


@pytest.mark.slow
def test_four_data_sets_live_on_two_workers_and_three_nodes(
    cluster: list[str], make_deployment: Any
) -> None:
    deployment = make_deployment(partitions=4, redis_url=cluster[0])
    workers = [deployment.worker(redis_cluster="true") for _ in range(2)]
    for worker in workers:
        worker.wait_ready()
    cells = [
        {"city": "Bonn", "age": 20, "count": 12_000},
        {"city": "Graz", "age": 70, "count": 8_000},
    ]
    with deployment.client() as client:
        for name in NAMES:
            client.define({**DEFINITION, "dataset": name})
            assert client.send(name, cells=cells).phase == 1
        before = {name: client.ask(name, "city = 'Bonn'", query_id="q") for name in NAMES}
        for answer in before.values():
            assert abs(answer.count - 12_000) <= answer.error_bar * 20_000
        served = [
            {
                line.split('"')[1]
                for line in text.splitlines()
                if line.startswith("stream_dp_phase{")
            }
            for text in ((worker.page("/metrics") or b"").decode() for worker in workers)
        ]
        assert served[0] | served[1] == set(NAMES)
        assert not served[0] & served[1]
        assert all(served), "each worker serves some of them"
        holding = 0
        for url in cluster:
            with redis.Redis.from_url(url) as node:
                holding += any(b"}:answers" in key for key in node.keys("*"))
        assert holding > 1, "their state is on several nodes"
        workers[0].kill()
        for name in NAMES:
            again = client.ask(name, "city = 'Bonn'", query_id="q")
            assert again == before[name], "the other worker took over, and knows what was answered"
            assert client.ask(name, "age >= 60", query_id="r").status == "answered"
