"""Rows on the private topic alone, on real servers: Redis holds places, and looks read the topic."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import redis

from stream_dp.state.kept import Place

pytestmark = pytest.mark.kafka

N_ATTRIBUTES = 16
ROWS = 30_000
PHASES = 3
DEFINITION = {
    "version": 1,
    "dataset": "wide",
    "attributes": [
        {"name": f"a{number}", "type": "category", "values": ["x", "y"]}
        for number in range(N_ATTRIBUTES)
    ],
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "accuracy": {"error": 0.05, "failure_probability": 1e-7},
    "phase": {"min_rows": ROWS},
    "mechanism": {"base_share": 0.0},
}


def columns(phase: int) -> dict[str, list[str]]:
    """Rows of which ``phase`` in ten have x, in each attribute another part of them."""
    return {
        f"a{number}": [
            "x" if (row * (2 * number + 1) + 7 * number) % 10 < phase else "y"
            for row in range(ROWS)
        ]
        for number in range(N_ATTRIBUTES)
    }


def elements(deployment: Any) -> list[bytes]:
    with redis.Redis.from_url(deployment.redis_url) as client:
        found: list[bytes] = client.lrange(
            f"{{{deployment.prefix.rstrip('.')}:wide}}:blocks", 0, -1
        )
    return found


def forget_all(deployment: Any) -> None:
    """Empties what Redis has of this deployment."""
    with redis.Redis.from_url(deployment.redis_url) as client:
        for key in client.scan_iter(f"*{deployment.prefix.rstrip('.')}*"):
            client.delete(key)


def asked(client: Any, query_id: str, attribute: str) -> float:
    answer = client.ask("wide", {"attribute": attribute, "eq": "x"}, query_id=query_id)
    assert answer.status == "answered", answer
    found: float = answer.value
    return found


@pytest.mark.slow
def test_rows_live_on_the_topic_whatever_becomes_of_redis(deployment: Any) -> None:
    settings = {"blocks": "topic", "block_cache_mb": 1}
    worker = deployment.worker(**settings).wait_ready()
    sent = [columns(phase) for phase in range(1, PHASES + 1)]
    with deployment.client() as client:
        client.define(DEFINITION)
        for number, form in enumerate(sent, start=1):
            assert client.send("wide", batch_id=f"batch-{number}", columns=form).phase == number
        exact = sum(range(1, PHASES + 1)) / (10 * PHASES)
        first = asked(client, "one", "a0")
        assert abs(first - exact) < 0.05
    places = elements(deployment)
    assert [Place.is_in(one) for one in places] == [True] * PHASES
    assert {len(one) for one in places} == {21}
    assert worker.stop() == 0

    forget_all(deployment)
    worker = deployment.worker(**settings).wait_ready()
    assert "data set wide is healed" in worker.output
    assert elements(deployment) == places
    with deployment.client() as client:
        assert asked(client, "one", "a0") == first, "the same answer under its id"
        assert abs(asked(client, "two", "a5") - exact) < 0.05
    assert worker.stop() == 0

    forget_all(deployment)
    worker = deployment.worker(blocks="store").wait_ready()
    assert [Place.is_in(one) for one in elements(deployment)] == [False] * PHASES
    with deployment.client() as client:
        assert abs(asked(client, "three", "a6") - exact) < 0.05
    assert worker.stop() == 0
    for record in deployment.read("events"):
        assert json.loads(record.value)["event"] != "rows_lost"


@pytest.mark.slow
def test_rows_that_are_gone_from_the_topic_are_given_up(deployment: Any) -> None:
    worker = deployment.worker(blocks="topic").wait_ready()
    with deployment.client() as client:
        client.define({**DEFINITION, "on_exhausted": "refuse"})
        for number in (1, 2):
            client.send("wide", batch_id=f"batch-{number}", columns=columns(number))
    assert worker.stop() == 0
    # The place of the first phase is where nothing is, as on a topic that was cut, and its key is nowhere.
    records = deployment.read("blocks")
    first = next(record for record in records if re.match(rb"wide/1/", record.key))
    deployment.produce("blocks", None, key=first.key, partition=first.partition)
    with redis.Redis.from_url(deployment.redis_url) as client:
        key = f"{{{deployment.prefix.rstrip('.')}:wide}}:blocks"
        place = Place.from_bytes(elements(deployment)[0])
        client.lset(key, 0, Place(place.n_bytes, (first.offset + 1_000,)).to_bytes())
    worker = deployment.worker(blocks="topic").wait_ready()
    with deployment.client() as client:
        query = {"query_id": "one", "where": {"attribute": "a0", "eq": "x"}}
        head = {"version": 1, "dataset": "wide", "analyst": "ana"}
        deployment.produce("queries", {**head, **query}, key="wide")
        assert worker.wait() == 1
        assert "the rows of phase 1 are gone from the topic of blocks" in worker.output
        worker = deployment.worker(blocks="topic").wait_ready()
        answer = client.ask("wide", query["where"], query_id="one")
        assert answer.reason.code == "rows_gone"
        last = client.ask("wide", query["where"], query_id="two", last_phases=1)
        assert abs(last.value - 2 / 10) < 0.06
    lost = [one for one in deployment.replies("events") if one["event"] == "rows_lost"]
    assert [one["phases"] for one in lost] == [[1, 1]]
