"""A worker that takes partitions over keeps the newest record of a key the last one, on a real broker."""

from __future__ import annotations

from typing import Any

import pytest

pytestmark = pytest.mark.kafka

DEFINITION = {
    "version": 1,
    "dataset": "flights",
    "attributes": [{"name": "late", "type": "boolean"}],
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "accuracy": {"error": 0.1, "failure_probability": 0.01},
    "phase": {"min_rows": 2000},
}
LATE = [("commit", b"0")]


def last(deployment: Any, role: str) -> dict[bytes, tuple[bytes, list[tuple[str, bytes]]]]:
    """The last record of each key: value and headers."""
    return {one.key: (one.value, one.headers) for one in deployment.read(role)}


@pytest.mark.slow
def test_what_a_worker_that_froze_sends_late_does_not_stay_the_newest(deployment: Any) -> None:
    worker = deployment.worker().wait_ready()
    with deployment.client() as client:
        client.define(DEFINITION)
        client.define({**DEFINITION, "dataset": "trains"})
        client.stand("flights", {"attribute": "late", "eq": True}, query_id="q1")
    newest = {role: last(deployment, role) for role in ("catalog", "standing")}
    assert [*newest["standing"]] == [b"flights ana q1"]
    assert worker.stop() == 0

    for role, key in (("catalog", "flights"), ("standing", "flights ana q1")):
        deployment.produce(role, {"version": 1}, key=key, headers=LATE)
        assert last(deployment, role)[key.encode()] == (b'{"version": 1}', LATE)
    worker = deployment.worker().wait_ready()
    worker.until(lambda: {role: last(deployment, role) for role in newest} == newest)
    assert "the newest record of data set flights on catalog is sent again" in worker.output
    assert "the newest record of data set flights on standing is sent again" in worker.output
    assert "trains" not in worker.output
    assert "was not seen" not in worker.output
    assert worker.stop() == 0

    there = {role: len(deployment.read(role)) for role in newest}
    worker = deployment.worker().wait_ready()
    with deployment.client() as client:
        client.define({**DEFINITION, "dataset": "ships"})
    assert worker.stop() == 0
    assert len(deployment.read("standing")) == there["standing"]
    assert len(deployment.read("catalog")) == there["catalog"] + 1
