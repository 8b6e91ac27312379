"""A Redis that goes back, is lost or is wrong changes nothing. If all goes back, the fork is visible."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import NewTopic

from stream_dp.core.rows.blocks import Block, Blocks
from stream_dp.core.rows.universe import Number, Universe
from stream_dp.embedded import ports
from stream_dp.embedded.kafka_server import KafkaServer
from tests.faults.replicas import KEEPS, Node
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.slow]


class Copies:
    """A Redis of its own that keeps what it has, and copies of its folder that can be put back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data = folder / "valkey"
        self._server = Node(self._data, ports.choose("Redis", None), KEEPS)
        self._server.start()
        self.url = self._server.url

    def keep(self, name: str) -> Path:
        """A copy of it as it is now, taken while it stands still."""
        self._server.stop()
        shutil.copytree(self._data, self._folder / name)
        self._server.start()
        return self._folder / name

    def put_back(self, copy: Path | None) -> None:
        """Replaces it by a copy, or by an empty one."""
        self._server.stop()
        shutil.rmtree(self._data)
        if copy is not None:
            shutil.copytree(copy, self._data)
        self._server.start()

    def stop(self) -> None:
        self._server.stop()


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Copies]:
    copies = Copies(tmp_path)
    yield copies
    copies.stop()


def lived(deployment: Any, life: Any, *phases: int, **settings: Any) -> Any:
    """A worker lives these phases, and stops when all of it has left and is in Redis; returns it."""
    worker = deployment.worker(**settings).wait_ready()
    with deployment.client() as client:
        life.define(client)
        for number in phases:
            life.phase(client, number)
    life.wait_until_released(worker)
    life.wait_until_followed(worker)
    assert worker.stop() == 0, worker.output
    return worker


def entries_of(deployment: Any) -> set[bytes]:
    """What is on the ledger."""
    return {record.value for record in deployment.read("ledger")}


def test_if_all_goes_back_the_ledger_shows_two_branches(
    kafka_jars: tuple[Path, ...],
    make_deployment: Any,
    make_life: Any,
    copies: Copies,
    tmp_path: Path,
) -> None:
    """All of Kafka is an older copy, and Redis is newer. It is served: nothing left knows better.

    Whoever has kept an entry of the ledger finds another one in its place. Redis follows the journal.
    """

    def broker(port: int | None = None) -> KafkaServer:
        made = KafkaServer(tmp_path / "kafka", kafka_jars, log=tmp_path / "kafka.log", port=port)
        made.start()
        return made

    server = broker()
    try:
        deployment = make_deployment(
            bootstrap_servers=server.bootstrap_servers, redis_url=copies.url
        )
        life = make_life(deployment, ["flights", "trains"])
        lived(deployment, life, 1)
        server.stop()
        shutil.copytree(tmp_path / "kafka", tmp_path / "older")
        server = broker(server.port)
        before = entries_of(deployment)
        lived(deployment, life, 2)
        forgotten = entries_of(deployment) - before
        server.stop()
        shutil.rmtree(tmp_path / "kafka")
        shutil.copytree(tmp_path / "older", tmp_path / "kafka")
        server = broker(server.port)
        assert entries_of(deployment) == before
        lived(deployment, life, 1, 2)
        assert life.complaints() == []
        again = entries_of(deployment) - before
        charges = [json.loads(entry) for entry in forgotten | again]
        nonces = [entry["nonce"] for entry in charges if entry.get("charges")]
        assert len(nonces) > 4
        assert len(nonces) == len(set(nonces)), "each look has a charge of its own"
        of_one = {(entry["dataset"], entry["seq"]) for entry in map(json.loads, forgotten)}
        of_other = {(entry["dataset"], entry["seq"]) for entry in map(json.loads, again)}
        assert of_one & of_other, "an entry of the same number is another one"
        deployment.close()
    finally:
        server.stop()


def test_rows_of_a_source_count_once_through_a_redis_that_goes_back(
    make_deployment: Any, copies: Copies, tmp_path: Path
) -> None:
    """The copy lacks rows and no charge, so no ledger tells; the reader cuts the rest into other batches."""
    deployment = make_deployment(redis_url=copies.url)
    topic = f"{deployment.prefix}shop"
    admin = KafkaAdminClient(bootstrap_servers=deployment.bootstrap_servers)
    admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    admin.close()
    producer = KafkaProducer(bootstrap_servers=deployment.bootstrap_servers, acks="all")
    definition = {
        "version": 1,
        "dataset": "orders",
        "attributes": [{"name": "number", "type": "number", "edges": list(range(1, 60))}],
        "privacy": {"epsilon": 1.0, "delta": 1e-9},
        "accuracy": {"error": 0.02},
        "phase": {"min_rows": 22},
        "mechanism": {"profile": "counts"},
    }
    file = tmp_path / "orders.json"
    file.write_text(
        json.dumps({"version": 1, "dataset": "orders", "topic": topic, "wait_seconds": 0.2})
    )

    def worked(first: int, stop: int, waiting: int) -> None:
        """A worker that reads the source too takes messages until so many rows wait."""
        worker = deployment.worker("--source", str(file)).wait_ready()
        with deployment.client() as client:
            client.define(definition, timeout_s=PATIENCE_S)
            for number in range(first, stop):
                producer.send(topic, json.dumps({"number": number}).encode(), partition=0)
            producer.flush()
            worker.until(lambda: client.waiting().get("orders") == waiting)
        worker.stop()

    worked(0, 12, 12)
    older = copies.keep("older")
    worked(12, 16, 16)
    copies.put_back(older)
    worked(16, 22, 0)
    producer.close()
    private = deployment.private("orders")
    universe = Universe((Number("number", tuple(range(1, 60))),))
    block = Block.from_bytes(universe, private["block 1"])
    (counts,) = Blocks(universe, [block]).marginal((0,), range(1))
    assert counts[:23].tolist() == [1] * 22 + [0], "each message counts once"
    assert "block 2" not in private
