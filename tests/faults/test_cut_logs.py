"""Partitions whose newest records the broker has lost, on real servers: what is served, and the way on.

A log is cut as it happens to an operator: an older copy of the broker's disk is put back.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import redis

from stream_dp.embedded.kafka_server import KafkaServer
from stream_dp.pipeline.intake.decoder import partition_of
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

NAMES = ("flights", "boats")
"""Data sets of different partitions, where there are two."""


class Disk:
    """A broker of its own, and copies of partitions on its disk that can be put back."""

    def __init__(self, folder: Path, jars: tuple[Path, ...]) -> None:
        self._folder, self._jars = folder, jars
        self._server = self._new(None)
        self._server.start()

    def _new(self, port: int | None) -> KafkaServer:
        folder = self._folder / "kafka"
        return KafkaServer(folder, self._jars, log=self._folder / "kafka.log", port=port)

    @property
    def bootstrap_servers(self) -> str:
        return self._server.bootstrap_servers

    def keep(self, *places: str) -> None:
        """Copies partitions while the broker stands still."""

        def copy(data: Path) -> None:
            for place in places:
                self._copied(data, "older", place)

        self._stopped(copy)

    def cut(self, *places: str) -> None:
        """Replaces partitions by the copies that were kept; keeps what they are now, too."""

        def replace(data: Path) -> None:
            for place in places:
                self._copied(data, "newest", place)
                self._replaced(data, "older", place)

        self._stopped(replace)

    def restore(self, place: str) -> None:
        """Puts a partition back as it was before it was cut."""
        self._stopped(lambda data: self._replaced(data, "newest", place))

    def _copied(self, data: Path, name: str, place: str) -> None:
        shutil.copytree(data / place, self._copy(name, place))

    def _replaced(self, data: Path, name: str, place: str) -> None:
        shutil.rmtree(data / place)
        shutil.copytree(self._copy(name, place), data / place)

    def _copy(self, name: str, place: str) -> Path:
        return self._folder / name / place

    def _stopped(self, step: Callable[[Path], object]) -> None:
        self._server.stop()
        step(self._folder / "kafka" / "data")
        self._server = self._new(self._server.port)
        self._server.start()

    def stop(self) -> None:
        self._server.stop()


@pytest.fixture
def disk(
    kafka_jars: tuple[Path, ...], tmp_path: Path, needed: Callable[..., Any]
) -> Iterator[Disk]:
    with needed():
        disk = Disk(tmp_path, kafka_jars)
    yield disk
    disk.stop()


def command(deployment: Any, *words: str) -> tuple[int, str]:
    """Runs a command of an operator; returns its exit code and all that it says."""
    servers = {
        "STREAM_DP_BOOTSTRAP_SERVERS": deployment.bootstrap_servers,
        "STREAM_DP_REDIS_URL": deployment.redis_url,
        "STREAM_DP_TOPIC_PREFIX": deployment.prefix,
    }
    done = subprocess.run(
        [sys.executable, "-m", "stream_dp", *words],
        env={**os.environ, **servers},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


@pytest.fixture
def started(
    disk: Disk, make_deployment: Any, make_life: Any
) -> tuple[Any, Any, Callable[..., Any]]:
    """A deployment of two partitions on a disk of its own, the life of two data sets, and what works."""
    assert {partition_of(name.encode(), 2) for name in NAMES} == {0, 1}
    deployment = make_deployment(bootstrap_servers=disk.bootstrap_servers)
    life = make_life(deployment, NAMES)

    def worked(*phases: int) -> Any:
        worker = deployment.worker().wait_ready()
        with deployment.client() as client:
            life.define(client)
            for number in phases:
                life.phase(client, number)
        life.wait_until_released(worker)
        worker.stop()
        return worker

    return deployment, life, worked


def of(deployment: Any, role: str, name: str = NAMES[0]) -> str:
    """The partition of a data set, as the broker names its folder."""
    return f"{deployment.topics.name(role)}-{partition_of(name.encode(), 2)}"


def ask(deployment: Any, name: str, query_id: str, timeout_s: float) -> Any:
    with deployment.client() as client:
        return client.ask(name, "delay >= 10", query_id=query_id, timeout_s=timeout_s)


def test_input_partitions_that_were_cut_are_read_again_and_others_all_along(
    disk: Disk, started: Any
) -> None:
    """One of them is put back, and the other one is lost for good."""
    deployment, life, worked = started
    worked(1)
    places = [of(deployment, "queries"), of(deployment, "batches")]
    disk.keep(*places)
    worked(1, 2)
    disk.cut(*places)

    worker = deployment.worker().wait_ready()
    assert ask(deployment, NAMES[1], "meanwhile", 60).status == "answered"
    code, said = command(deployment, "doctor")
    assert code == 1
    for place in places:
        topic, _, number = place.rpartition("-")
        assert f"{topic}:{number} was read to offset" in worker.output
        assert re.search(rf"{re.escape(topic)}:{number} was read to offset \d+ and was cut", said)
        assert f"stream-dp journal repair --input {topic}:{number} --apply" in said
    worker.stop()

    disk.restore(places[0])
    for place, option in zip(places, (["--restored"], []), strict=True):
        topic, _, number = place.rpartition("-")
        code, said = command(
            deployment, "journal", "repair", "--input", f"{topic}:{number}", *option, "--apply"
        )
        assert code == 0, said
    worked(1, 2, 3)  # old ids get the answers that they had, and old batches count once
    code, said = command(deployment, "doctor")
    assert "was cut" not in said
    complaints = [one for one in life.complaints() if "meanwhile" not in one]
    assert complaints == []


def test_a_journal_that_was_cut_begins_again_with_what_redis_has(disk: Disk, started: Any) -> None:
    deployment, life, worked = started
    worked(1)
    place = of(deployment, "journal")
    disk.keep(place)
    worked(1, 2)
    answers = {record.value for record in deployment.read("answers")}
    disk.cut(place)

    worker = deployment.worker().wait_ready()
    number = place.rpartition("-")[2]
    worker.until(lambda: f"partition {number} of the journal is not whole" in worker.output)
    assert ask(deployment, NAMES[1], "meanwhile", 60).status == "answered"
    code, said = command(deployment, "doctor")
    assert code == 1
    assert f"run: stream-dp journal repair --partition {number}" in said
    code, said = command(deployment, "journal", "repair", "--apply")
    assert code == 1
    assert "stop them all first" in said
    worker.stop()

    code, said = command(deployment, "journal", "repair", "--apply")
    assert code == 0, said
    assert f"{NAMES[0]}: topic" in said
    assert "It begins again with the" in said
    assert f"partition {number} is repaired" in said
    worked(1, 2, 3)
    with redis.Redis.from_url(deployment.redis_url) as client:
        client.delete(*client.scan_iter(f"*{deployment.prefix.rstrip('.')}*"))
    worked(1, 2, 3)
    assert answers <= {record.value for record in deployment.read("answers")}
    code, said = command(deployment, "ledger", "verify")
    assert code == 0, said
    complaints = [one for one in life.complaints() if "meanwhile" not in one]
    assert complaints == []


def test_a_data_set_whose_charges_are_on_the_topics_alone_is_written_off_and_goes_on(
    disk: Disk, started: Any
) -> None:
    deployment, _, worked = started
    worked(1)
    disk.keep(of(deployment, "journal"))
    worked(1, 2)
    name = NAMES[0]
    with redis.Redis.from_url(deployment.redis_url) as client:
        client.delete(*client.scan_iter(f"*{deployment.prefix.rstrip('.')}*:{name}}}*"))
    disk.cut(of(deployment, "journal"))
    written_off = ["journal", "repair", "--write-off", name]
    code, said = command(deployment, "journal", "repair", "--apply")
    assert code == 1, said
    assert f"{name}: lost: topic" in said
    assert f"stream-dp {' '.join(written_off)}" in said
    worker = deployment.worker().wait_ready()
    assert ask(deployment, NAMES[1], "meanwhile", 60).status == "answered"
    worker.stop()
    code, said = command(deployment, "doctor")
    assert f"stream-dp {' '.join(written_off)}" in said

    code, said = command(deployment, *written_off, "--apply")
    assert code == 0, said
    worker = deployment.worker().wait_ready()
    with deployment.client() as client:
        cells = [{"carrier": "AA", "delay": 5, "count": 21_000}]
        for batch_id in ("batch-1", "batch-2", "batch-3"):
            client.send(name, cells=cells, batch_id=batch_id, timeout_s=PATIENCE_S)
        answer = client.ask(
            name, "carrier = 'AA'", query_id="new", last_phases=1, timeout_s=PATIENCE_S
        )
    worker.stop()
    assert answer.status == "answered"
    assert answer.window == (3, 3)
    events = [event for event in deployment.replies("events") if event["dataset"] == name]
    opened = {event["phase"]: event["rows"] for event in events if event["event"] == "phase_opened"}
    assert opened == {1: 21_000, 2: 21_000, 3: 21_000}, "old batches count once"
    (event,) = [event for event in events if event["event"] == "written_off"]
    assert event["phases"] == [1, 2]
    code, said = command(deployment, "ledger", "verify", name)
    assert code == 0, said
