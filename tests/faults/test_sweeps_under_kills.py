"""kill -9 while persons are erased, again and again: in the end nothing of any of them is anywhere."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from stream_dp.pipeline.watch.crash_points import CrashPoint
from tests.waiting import PATIENCE_S, until

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

NAME = "visits"
RUNS = int(os.environ.get("ERASURES", "8"))
"""How many persons are erased, each while a worker dies."""
ROWS = 1_000
DEFINITION = {
    "version": 1,
    "dataset": NAME,
    "attributes": [{"name": "city", "type": "category", "values": ["Bonn", "Graz"]}],
    "privacy": {
        "epsilon": 1.0,
        "delta": 1e-9,
        "unit": {"key": "user_id", "rows_per_phase": 1, "phases": 1},
    },
    "accuracy": {"error": 0.2, "failure_probability": 0.01},
    "phase": {"min_rows": ROWS},
    "erasure": {"within": "12 hours", "row": "visit"},
}
POINTS = (
    (CrashPoint.IN_SWEEP, 1),
    (CrashPoint.IN_SWEEP, 2),
    (CrashPoint.BEFORE_COMMIT, 3),
    (CrashPoint.AFTER_COMMIT, 2),
    (CrashPoint.IN_ERASURE, 1),
    (CrashPoint.BEFORE_APPEND, 2),
    (CrashPoint.AFTER_APPEND, 2),
    (CrashPoint.AFTER_SEND, 1),
)
"""Where a worker dies, and at which occurrence. It meets each in every sweep."""
QUICKLY = {
    "segment.ms": "1000",
    "max.compaction.lag.ms": "1000",
    "min.cleanable.dirty.ratio": "0.001",
    "delete.retention.ms": "1000",
}
"""Settings with which a broker compacts a topic in seconds, and not in hours."""
SWEEP = {"version": 1, "dataset": NAME, "clock": True, "sweep": True}


def _compact_quickly(deployment: Any) -> None:
    topic = deployment.topics.name("blocks")
    with closing(KafkaAdminClient(bootstrap_servers=deployment.bootstrap_servers)) as admin:
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, configs=QUICKLY)])


def _columns(number: int) -> dict[str, list[Any]]:
    """The rows of a thousand persons, the last of whom comes in this batch alone."""
    return {
        "city": ["Bonn", "Graz"] * (ROWS // 2),
        "user_id": [*(f"u{n}" for n in range(ROWS - 1)), f"gone-{number}"],
        "visit": [f"v{number}-{n}" for n in range(ROWS)],
    }


def _found(deployment: Any, key: str) -> str:
    """What an operator sees who looks for a person; nothing if there is nothing of them."""
    command = [sys.executable, "-m", "stream_dp", "person", "check", NAME, "--key", key]
    servers = ["--bootstrap-servers", deployment.bootstrap_servers, "--topic-prefix"]
    servers += [deployment.prefix, "--redis-url", deployment.redis_url]
    ended = subprocess.run([*command, *servers], capture_output=True, text=True, check=False)
    assert ended.returncode in (0, 1), ended.stderr
    return ended.stdout if ended.returncode else ""


@pytest.mark.timeout(1200 + 30 * RUNS)
def test_nothing_of_an_erased_person_is_left(
    make_deployment: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key_file = tmp_path / "persons.key"
    key_file.write_bytes(bytes(range(64)))
    monkeypatch.setenv("STREAM_DP_PERSON_KEY_FILE", str(key_file))
    deployment = make_deployment()
    _compact_quickly(deployment)
    worker = deployment.worker(instance_id="one")
    with deployment.client() as client:
        client.define(DEFINITION, timeout_s=PATIENCE_S)
        for number in range(RUNS):
            point, times = POINTS[number % len(POINTS)]
            client.send(
                NAME, columns=_columns(number), batch_id=f"b-{number}", timeout_s=PATIENCE_S
            )
            told = client.erase(NAME, [f"gone-{number}"], batch_id=f"e-{number}")
            if number == 0:
                assert _found(deployment, "gone-0")
            worker.kill()
            worker = deployment.worker(instance_id="one", crash_at=f"{point}:{times}")
            deployment.produce("batches", SWEEP, key=NAME)
            assert worker.wait() == -9, f"{point}: {worker.output}"
            worker = deployment.worker(instance_id="one")
            receipt = client.receipt(NAME, *told.change_numbers, timeout_s=PATIENCE_S)
            assert (receipt.changes, receipt.lost) == (1, 0)

        def is_gone(key: str) -> bool:
            """Looks for somebody again. A broker compacts what a later record closes."""
            client.send(NAME, columns={"city": ["Bonn"], "user_id": ["u1"], "visit": ["more"]})
            return not _found(deployment, key)

        for number in range(RUNS):
            key = f"gone-{number}"
            until(partial(is_gone, key), partial(_found, deployment, key), every_s=2)
    assert _found(deployment, "u7"), "others are still there"
