"""A store that goes back in time, or is lost, is healed from the journal."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import NewTopic

from stream_dp.core.blocks import Block, Blocks
from stream_dp.core.universe import Number, Universe
from stream_dp.embedded.valkey import ValkeyServer
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.kafka


class Copies:
    """A store of its own, and copies of its folder that can be put back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._data, self._log = folder / "valkey", folder / "valkey.log"
        self._server = ValkeyServer(self._data, log=self._log)
        self._server.start()
        self.url = self._server.url

    def keep(self, name: str) -> Path:
        """A copy of the store as it is now, taken while it stands still."""
        self.stop()
        shutil.copytree(self._data, self._folder / name)
        self._start()
        return self._folder / name

    def put_back(self, copy: Path | None) -> None:
        """Replaces the store by a copy of it, or by an empty one."""
        self.stop()
        shutil.rmtree(self._data)
        if copy is not None:
            shutil.copytree(copy, self._data)
        self._start()

    def stop(self) -> None:
        self._server.stop()

    def _start(self) -> None:
        self._server = ValkeyServer(self._data, log=self._log, port=self._server.port)
        self._server.start()


@pytest.fixture
def copies(tmp_path: Path) -> Iterator[Copies]:
    copies = Copies(tmp_path)
    yield copies
    copies.stop()


@pytest.mark.slow
def test_a_store_from_an_older_copy_or_emptied_is_healed_from_the_journal(
    make_deployment: Any, make_life: Any, copies: Copies
) -> None:
    deployment = make_deployment(redis_url=copies.url)
    life = make_life(deployment, ["flights", "trains"])

    def worked(*phases: int) -> Any:
        worker = deployment.worker().wait_ready()
        with deployment.client() as client:
            life.define(client)
            for number in phases:
                life.phase(client, number)
        life.wait_until_released(worker)
        worker.stop()
        return worker

    worked(1)
    older = copies.keep("older")
    worked(1, 2)
    ledger = deployment.read("ledger")
    for copy in (older, None):
        copies.put_back(copy)
        worker = worked(1, 2)
        assert "data set flights is healed" in worker.output
        assert "data set trains is healed" in worker.output
        entries = {record.value for record in deployment.read("ledger")}
        assert entries == {record.value for record in ledger}, "nothing was charged again"
    worked(1, 2, 3)
    assert life.complaints() == []


@pytest.mark.slow
def test_an_emptied_store_is_built_again_though_the_journal_was_shortened(
    make_deployment: Any, make_life: Any, copies: Copies
) -> None:
    """A worker deletes what lies below a checkpoint as soon as no data set of the partition needs it."""
    deployment = make_deployment(redis_url=copies.url)
    life = make_life(deployment, ["flights", "trains"], retention={"answers": {"days": 30}})

    def worked(*phases: int) -> Any:
        worker = deployment.worker().wait_ready()
        with deployment.client() as client:
            life.define(client)
            for number in phases:
                life.phase(client, number)
        life.wait_until_released(worker)
        worker.stop()
        return worker

    worked(1)
    journal = f"{deployment.prefix}journal"
    consumer = KafkaConsumer(bootstrap_servers=deployment.bootstrap_servers)
    places = [TopicPartition(journal, n) for n in consumer.partitions_for_topic(journal)]
    assert max(consumer.beginning_offsets(places).values()) > 0
    consumer.close()
    copies.put_back(None)
    worker = worked(1, 2)
    assert "data set flights is healed" in worker.output
    assert "data set trains is healed" in worker.output
    assert life.complaints() == []


@pytest.mark.slow
def test_an_older_copy_under_a_live_worker_is_healed_by_the_next_one(
    make_deployment: Any, make_life: Any, copies: Copies
) -> None:
    """The worker knows more than the store by then: it ends, and what follows from nothing else leaves."""
    deployment = make_deployment(redis_url=copies.url)
    life = make_life(deployment, ["idle", "busy"])
    worker = deployment.worker().wait_ready()
    with deployment.client() as client:
        life.define(client)
        life.phase(client)
        life.wait_until_released(worker)
        older = copies.keep("older")
        life.phase(client)
        life.wait_until_released(worker)
        copies.put_back(older)
        assert worker.exit_code is None
        query = {"query_id": "later", "where": {"attribute": "delay", "ge": 10}}
        head = {"version": 1, "dataset": "busy", "analyst": "ana"}
        deployment.produce("queries", {**head, **query, "window": {"last_phases": 1}}, key="busy")
        assert worker.wait() == 1
        worker = deployment.worker().wait_ready()
        assert "data set idle is healed" in worker.output
        life.phase(client)
        life.wait_until_released(worker)
    worker.stop()
    complaints = [one for one in life.complaints() if "later" not in one]
    assert complaints == []


@pytest.mark.slow
def test_rows_of_a_source_count_once_through_a_store_that_goes_back(
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
    with redis.Redis.from_url(copies.url) as store:
        (block,) = store.lrange(f"{{{deployment.prefix.rstrip('.')}:orders}}:blocks", 0, -1)
    universe = Universe((Number("number", tuple(range(1, 60))),))
    (counts,) = Blocks(universe, [Block.from_bytes(universe, block)]).marginal((0,), range(1))
    assert counts[:23].tolist() == [1] * 22 + [0], "each message counts once"
