"""The topics of a deployment: create them, and compare them with what they should be."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import KafkaError

from stream_dp.errors import ServerUnavailable
from stream_dp.messages import TOPICS, Topics

__all__ = ["TopicState", "create_topics", "describe_topics"]


@dataclass(frozen=True, slots=True)
class TopicState:
    """A topic as the broker has it.

    Attributes:
        partitions: 0 when the topic does not exist.
        wrong: Settings that differ: name -> (found, wanted).
    """

    name: str
    partitions: int
    wrong: Mapping[str, tuple[str, str]]


@contextmanager
def _admin(bootstrap_servers: str) -> Iterator[KafkaAdminClient]:
    try:
        admin = KafkaAdminClient(
            bootstrap_servers=bootstrap_servers.split(","), bootstrap_timeout_ms=5000
        )
        try:
            yield admin
        finally:
            admin.close()
    except KafkaError as error:
        raise ServerUnavailable(f"no Kafka broker at {bootstrap_servers} ({error})") from error


def describe_topics(bootstrap_servers: str, topics: Topics) -> dict[str, TopicState]:
    """Every topic of the deployment by role, as it is.

    Raises:
        ServerUnavailable: No broker there.
    """
    names = {topics.name(role): role for role in TOPICS}
    with _admin(bootstrap_servers) as admin:
        existing = set(admin.list_topics()) & names.keys()
        partitions = {
            found["name"]: len(found["partitions"])
            for found in (admin.describe_topics(sorted(existing)) if existing else [])
        }
        configs = (
            admin.describe_configs(
                [ConfigResource(ConfigResourceType.TOPIC, name) for name in sorted(existing)],
                config_filter="all",
            )["topic"]
            if existing
            else {}
        )
    states = {}
    for name, role in names.items():
        wanted = TOPICS[role].config()
        found = {key: str(_value(configs[name][key])) for key in wanted} if name in existing else {}
        wrong = {key: (value, wanted[key]) for key, value in found.items() if value != wanted[key]}
        states[role] = TopicState(name, partitions.get(name, 0), wrong)
    return states


def _value(config: object) -> object:
    return config["value"] if isinstance(config, dict) else config


def create_topics(
    bootstrap_servers: str, topics: Topics, *, partitions: int = 4, replication: int = 1
) -> list[str]:
    """Creates the topics that do not exist yet; returns their names.

    Raises:
        ServerUnavailable: No broker there, or it refused.
    """
    states = describe_topics(bootstrap_servers, topics)
    missing = {
        state.name: {
            "num_partitions": partitions,
            "replication_factor": replication,
            "configs": TOPICS[role].config(),
        }
        for role, state in states.items()
        if state.partitions == 0
    }
    if missing:
        with _admin(bootstrap_servers) as admin:
            admin.create_topics(missing, wait_for_metadata=True)
    return sorted(missing)
