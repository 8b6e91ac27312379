"""Rows are on the private topic, on real servers. Redis has them too, and looks find them in either."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from kafka import TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaError

from stream_dp.client.kafka.deployment_topics import create_topics, describe_topics
from stream_dp.state.private_names import Named, part_name
from stream_dp.state.schema import StateTable
from tests.waiting import until

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


def forget_all(deployment: Any) -> None:
    """Empties what Redis has of this deployment."""
    with redis.Redis.from_url(deployment.redis_url) as client:
        for key in client.scan_iter(f"*{deployment.prefix.rstrip('.')}*"):
            client.delete(key)


def in_redis(deployment: Any) -> set[bytes]:
    """The names of the parts of private values that Redis has."""
    with redis.Redis.from_url(deployment.redis_url) as client:
        keys = client.scan_iter(f"*{deployment.prefix.rstrip('.')}*:kept")
        return {name for key in keys for name in client.hkeys(key)}


def named(deployment: Any) -> dict[str, Named]:
    """The private values that the journal names, by what they are."""
    kept = deployment.durable().table("wide", StateTable.KEPT)
    return {what.decode(): Named.from_bytes(value) for what, value in kept.items()}


def asked(client: Any, query_id: str, attribute: str) -> float:
    answer = client.ask("wide", {"attribute": attribute, "eq": "x"}, query_id=query_id)
    assert answer.status == "answered", answer
    found: float = answer.value
    return found


@pytest.mark.slow
def test_rows_live_on_the_topic_whatever_becomes_of_redis(deployment: Any) -> None:
    settings = {"block_cache_mb": 1}
    worker = deployment.worker(**settings).wait_ready()
    sent = [columns(phase) for phase in range(1, PHASES + 1)]
    with deployment.client() as client:
        client.define(DEFINITION)
        for number, form in enumerate(sent, start=1):
            assert client.send("wide", batch_id=f"batch-{number}", columns=form).phase == number
        exact = sum(range(1, PHASES + 1)) / (10 * PHASES)
        first = asked(client, "one", "a0")
        assert abs(first - exact) < 0.05
    assert worker.stop() == 0
    places = named(deployment)
    assert places.keys() == {f"block {number} 0" for number in range(1, PHASES + 1)}
    lengths = [[*map(len, parts)] for parts in deployment.private("wide").values()]
    assert [of[1:] for of in lengths] == [[ROWS] * N_ATTRIBUTES] * PHASES, "a byte a slot"
    assert len({of[0] for of in lengths}) == 1, "it tells nothing of the rows"

    wanted: set[bytes] = set()
    for number, forgets in enumerate((True, False)):
        if forgets:
            forget_all(deployment)
        worker = deployment.worker(**settings).wait_ready()
        with deployment.client() as client:
            assert asked(client, "one", "a0") == first, "the same answer under its id"
            assert abs(asked(client, f"two-{number}", f"a{5 + number}") - exact) < 0.05
        wanted = (set() if forgets else wanted) | {
            part_name(one.name, place) for one in places.values() for place in (0, 6 + number)
        }
        worker.until(lambda wanted=wanted: in_redis(deployment) == wanted, alive=True)
        assert worker.stop() == 0
    assert named(deployment) == places
    for record in deployment.read("events"):
        assert json.loads(record.value)["event"] != "rows_lost"


@pytest.mark.slow
def test_rows_that_are_gone_from_the_topic_are_given_up_unless_redis_has_them(
    deployment: Any,
) -> None:
    query = {"query_id": "one", "where": {"attribute": "a0", "eq": "x"}}
    worker = deployment.worker().wait_ready()
    with deployment.client() as client:
        client.define({**DEFINITION, "on_exhausted": "refuse"})
        for number in (1, 2):
            client.send("wide", batch_id=f"batch-{number}", columns=columns(number))
    worker.until(lambda: len(in_redis(deployment)) == 2 * (1 + N_ATTRIBUTES))
    assert worker.stop() == 0
    _delete_blocks(deployment, named(deployment)["block 2 0"].offsets[0])
    worker = deployment.worker().wait_ready()
    with deployment.client() as client:
        exact = 3 / 20
        assert abs(asked(client, "zero", "a1") - exact) < 0.05, "Redis has them"
    assert worker.stop() == 0

    forget_all(deployment)
    worker = deployment.worker().wait_ready()
    with deployment.client() as client:
        head = {"version": 1, "dataset": "wide", "analyst": "ana"}
        deployment.produce("queries", {**head, **query}, key="wide")
        assert worker.wait() == 1
        assert "the rows of phase 1 are gone from the topic of blocks" in worker.output
        worker = deployment.worker().wait_ready()
        answer = client.ask("wide", query["where"], query_id="one")
        assert answer.reason.code == "rows_gone"
        last = client.ask("wide", query["where"], query_id="two", last_phases=1)
        assert abs(last.value - 2 / 10) < 0.06
    lost = [one for one in deployment.replies("events") if one["event"] == "rows_lost"]
    assert [one["phases"] for one in lost] == [[1, 1]]


def _delete_blocks(deployment: Any, before: int) -> None:
    """Deletes what is on the topic of blocks below an offset, as an operator might."""
    topic = deployment.topics.name("blocks")
    partition = deployment.read("blocks")[0].partition
    admin = KafkaAdminClient(bootstrap_servers=deployment.bootstrap_servers)
    kind = ConfigResourceType.TOPIC
    try:
        admin.alter_configs([ConfigResource(kind, topic, {"cleanup.policy": "compact,delete"})])
        place = TopicPartition(topic, partition)
        until(
            lambda: admin.delete_records({place: before}),
            "the broker deletes nothing",
            ignoring=(KafkaError,),
        )
    finally:
        admin.close()
    create_topics(deployment.bootstrap_servers, deployment.topics)
    until(
        lambda: not describe_topics(deployment.bootstrap_servers, deployment.topics)["blocks"].wrong
    )
