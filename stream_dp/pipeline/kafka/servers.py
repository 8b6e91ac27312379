"""The servers that a worker's settings name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import kafka
import kafka.admin
import kafka.errors

from stream_dp.broker import Broker
from stream_dp.errors import ServerUnavailable, UnsafeTopics
from stream_dp.messages import PRIVATE, TIMES, TOPICS, Topics, wrong_settings
from stream_dp.settings import WorkerSettings
from stream_dp.state.redis_view import RedisView


def view_of(settings: WorkerSettings, journal: str = "") -> RedisView:
    """The view of the workers in Redis, with a connection of its own.

    Args:
        settings: The settings.
        journal: The id of the topic ``journal``, for who writes.
    """
    return RedisView(
        settings.redis_url,
        prefix=settings.redis_prefix,
        journal=journal,
        cluster=settings.redis_cluster,
    )


def no_broker(broker: Broker, error: Exception) -> ServerUnavailable:
    """Returns the error to raise when a client's first contact with the broker fails."""
    return ServerUnavailable(f"no Kafka broker at {broker} ({type(error).__name__})")


async def described_topics(broker: Broker, topics: Sequence[str]) -> list[dict[str, Any]]:
    """Topics as the broker describes them; ``error_code`` is not 0 of one that there is not.

    By kafka-python: aiokafka does not read the ids of topics.

    Raises:
        ServerUnavailable: No broker there.
    """
    found: list[dict[str, Any]] = await _answered(
        broker, lambda admin: admin.describe_topics(list(topics))
    )
    return found


async def check_topics(broker: Broker, names: Topics, *, tokens: bool) -> None:
    """Checks the settings of topics on which the promises of a worker rest.

    The workers' own topics must keep their records, and no acknowledged one may be lost with the memory of a
    broker, or with a disk where others have it too. A token is checked against the time of its record, which
    no sender may choose.

    Args:
        broker: The broker.
        names: The names of the topics.
        tokens: Whether queries need tokens.

    Raises:
        UnsafeTopics: A setting is wrong.
        ServerUnavailable: The broker does not answer, or does not tell the settings.
    """
    roles = [*PRIVATE, *["queries"] * tokens]
    described = await described_topics(broker, [names.name(role) for role in PRIVATE])
    told = await _settings(broker, [names.name(role) for role in roles])
    replicas = {
        names.role(one["name"]): min(
            (len(p["replica_nodes"]) for p in one["partitions"]), default=1
        )
        for one in described
    }
    needed = {role: TOPICS[role].needed(count) for role, count in replicas.items()}
    if tokens:
        needed["queries"] = {TIMES: TOPICS["queries"].needed()[TIMES]}
    problems = []
    for role, wanted in needed.items():
        name = names.name(role)
        said = told[name]
        if not wanted.keys() <= said.keys():
            raise ServerUnavailable(
                f"the broker does not tell the settings of {name}; allow this user to DescribeConfigs on it"
            )
        for setting, (found, value) in wrong_settings(wanted, said).items():
            problems.append(f"{name} has {setting} {found}, not {value}")
    if problems:
        raise UnsafeTopics(tuple(problems), names.creating())


async def batches_last_s(broker: Broker, names: Topics) -> float:
    """Returns how long batches stay on their topic, in seconds.

    Raises:
        ServerUnavailable: The broker does not answer.
    """
    name = names.name("batches")
    told = await _settings(broker, [name])
    kept_ms = float(told[name].get("retention.ms", TOPICS["batches"].retention_ms))
    return kept_ms / 1000 if kept_ms >= 0 else float("inf")


async def _settings(broker: Broker, topics: Sequence[str]) -> dict[str, dict[str, str]]:
    """The settings of topics, as far as the broker tells them."""
    kind = kafka.admin.ConfigResourceType.TOPIC
    resources = [kafka.admin.ConfigResource(kind, name) for name in topics]
    told = await _answered(
        broker, lambda admin: admin.describe_configs(resources, config_filter="all")
    )
    return {
        name: {key: str(one["value"]) for key, one in told["topic"][name].items()}
        for name in topics
    }


async def _answered(broker: Broker, ask: Callable[[kafka.KafkaAdminClient], Any]) -> Any:
    """Asks the broker something, in a thread and on a connection of its own.

    Raises:
        ServerUnavailable: It does not answer, or refuses.
    """

    def answer() -> Any:
        admin = kafka.KafkaAdminClient(**broker.arguments(), bootstrap_timeout_ms=10_000)
        try:
            return ask(admin)
        finally:
            admin.close()

    try:
        return await asyncio.to_thread(answer)
    except kafka.errors.KafkaError as error:
        raise no_broker(broker, error) from error
