"""No worker runs on topics whose settings lose its records, and ``topics create`` restores the settings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from stream_dp.broker import Broker
from stream_dp.client.kafka.deployment_topics import create_topics, describe_topics
from stream_dp.core.randomness.noise_sources import PooledNoise
from stream_dp.errors import UnsafeTopics
from stream_dp.messages import PRIVATE
from stream_dp.pipeline import runtime
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.kafka.servers import check_topics
from stream_dp.settings import WorkerSettings
from tests.waiting import until

pytestmark = pytest.mark.kafka

LOSING = {
    "journal": {
        "cleanup.policy": "compact,delete",
        "retention.ms": "3600000",
        "retention.bytes": "1000000000",
        "unclean.leader.election.enable": "true",
    },
    "blocks": {"cleanup.policy": "delete", "retention.bytes": "1000000000"},
}


@pytest.fixture
def admin(kafka_server: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=kafka_server)
    yield client
    client.close()


def spoil(
    admin: KafkaAdminClient, deployment: Any, losing: Mapping[str, Mapping[str, str]]
) -> None:
    """Changes settings, and waits until the broker tells that it has."""
    kind = ConfigResourceType.TOPIC
    name_of = deployment.topics.name
    admin.alter_configs(
        [ConfigResource(kind, name_of(role), dict(losing[role])) for role in losing]
    )

    def told() -> bool:
        states = describe_topics(deployment.bootstrap_servers, deployment.topics)
        return all(losing[role].keys() <= states[role].wrong.keys() for role in losing)

    until(told)


def test_a_worker_names_each_setting_and_the_command_that_repairs_all(
    deployment: Any, admin: KafkaAdminClient
) -> None:
    spoil(admin, deployment, LOSING)
    worker = deployment.worker()
    assert worker.wait() == 1, worker.output
    (error,) = re.findall(r"^error: .*$", worker.output, re.MULTILINE)
    for role, settings in LOSING.items():
        for setting, value in settings.items():
            assert f"{deployment.prefix}{role} has {setting} {value}, not " in error
    command = deployment.topics.creating()
    assert error.endswith(f"; run: {command}")
    assert command == f"stream-dp topics create --topic-prefix {deployment.prefix}"

    made = create_topics(deployment.bootstrap_servers, deployment.topics)
    name_of = deployment.topics.name
    assert {name: changed.keys() for name, changed in made.changed.items()} == {
        name_of(role): LOSING[role].keys() for role in PRIVATE
    }

    def restored() -> bool:
        states = describe_topics(deployment.bootstrap_servers, deployment.topics)
        return all(state.wrong == {} for state in states.values())

    until(restored)


async def test_a_worker_that_runs_ends_once_a_setting_drifts(
    deployment: Any, admin: KafkaAdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "_TOPICS_CHECK_S", 0.01)
    settings = WorkerSettings(
        bootstrap_servers=deployment.bootstrap_servers,
        redis_url=deployment.redis_url,
        topic_prefix=deployment.prefix,
    )
    running = runtime.Runtime(settings, PooledNoise, Context())
    await running.start()
    try:
        running.worker.assigned([0])
        spoil(admin, deployment, {"journal": {"retention.bytes": "1000"}})
        with pytest.raises(UnsafeTopics, match=r"journal has retention\.bytes 1000"):
            await running.watch_topics()
        with pytest.raises(UnsafeTopics):
            await running.worker.take([])
    finally:
        await running.stop()


async def test_the_times_of_queries_count_only_where_they_need_tokens(
    deployment: Any, admin: KafkaAdminClient
) -> None:
    spoil(admin, deployment, {"queries": {"message.timestamp.type": "CreateTime"}})
    broker = Broker(deployment.bootstrap_servers)
    await check_topics(broker, deployment.topics, tokens=False)
    with pytest.raises(UnsafeTopics, match=r"queries has message\.timestamp\.type CreateTime"):
        await check_topics(broker, deployment.topics, tokens=True)
