"""Creates, compares and describes the topics of a deployment and the workers that read them."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import CoordinatorNotAvailableError, KafkaError

from stream_dp.broker import Broker
from stream_dp.errors import InvalidInput, ServerUnavailable
from stream_dp.messages import INPUTS, PRIVATE, TIMES, TOPICS, Topics, wrong_settings

_NOT_FOUND = "GroupIdNotFoundError"
_COORDINATOR_S = 10.0
_PARTITIONS = 4


@dataclass(frozen=True, slots=True)
class TopicState:
    """The state of a topic at the broker.

    Attributes:
        partitions: The number of partitions. 0 if the topic does not exist.
        wrong: The settings that differ, as name -> (found, wanted).
        topic_id: The id of the topic. It changes if the topic is deleted and created again.
        replicas: The smallest number of replicas of any partition.
    """

    name: str
    partitions: int
    wrong: Mapping[str, tuple[str, str]]
    topic_id: str = ""
    replicas: int = 0

    def needed(self, role: str) -> dict[str, str]:
        """Returns the settings without which records are lost that somebody relies on.

        Args:
            role: The role of the topic.
        """
        return TOPICS[role].needed(self.replicas)


def no_broker(bootstrap_servers: str | Broker, why: object) -> ServerUnavailable:
    """The error for a caller that finds no broker."""
    return ServerUnavailable(
        f"no Kafka broker answers at {bootstrap_servers} ({why}); start one with `stream-dp up`, or pass "
        "--bootstrap-servers"
    )


def no_topic(topics: Topics, role: str) -> ServerUnavailable:
    """The error for a caller that finds the broker without the topics."""
    return ServerUnavailable(
        f"topic {topics.name(role)} does not exist; an operator creates it with: {topics.creating()}"
    )


def check_reachable(bootstrap_servers: str | Broker, timeout_s: float = 5.0) -> None:
    """Returns when a server listens at one of the addresses. The clients report a missing one only late.

    With TLS or a password it also waits until the server admits us, which the clients never report.

    Raises:
        ServerUnavailable: No server listens, or it does not admit us. The error says why.
    """
    broker = Broker.of(bootstrap_servers)
    why: Exception | str = "no address given"
    for server in broker.servers.split(","):
        host, _, port = server.strip().rpartition(":")
        if not host or not port.isdigit():
            why = f"{server.strip()!r} is not host:port"
            continue
        try:
            if broker.encrypts or broker.authenticates:
                # The import is here because it loads a second Kafka client.
                from stream_dp.client.kafka.admission import ask_for_admission

                ask_for_admission(replace(broker, servers=server.strip()), timeout_s)
            else:
                socket.create_connection((host.strip("[]"), int(port)), timeout_s).close()
        except OSError as error:
            why = error.strerror or error
        else:
            return
    raise no_broker(broker, why)


@contextmanager
def _admin(
    bootstrap_servers: str | Broker, kafka: Mapping[str, object] | None = None
) -> Iterator[KafkaAdminClient]:
    config = {
        **Broker.of(bootstrap_servers).arguments(),
        "bootstrap_timeout_ms": 20_000,
        **(kafka or {}),
    }
    check_reachable(bootstrap_servers)
    try:
        admin = KafkaAdminClient(**config)
        try:
            yield admin
        finally:
            admin.close()
    except KafkaError as error:
        raise no_broker(bootstrap_servers, _short(error)) from error


def describe_topics(
    bootstrap_servers: str | Broker, topics: Topics, *, kafka: Mapping[str, object] | None = None
) -> dict[str, TopicState]:
    """Returns the state of every topic of the deployment, by role.

    Raises:
        ServerUnavailable: No broker there.
    """
    names = {topics.name(role): role for role in TOPICS}
    with _admin(bootstrap_servers, kafka) as admin:
        existing = set(admin.list_topics()) & names.keys()
        described = {
            found["name"]: found
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
        topic = described.get(name, {"partitions": [], "topic_id": ""})
        replicas = min((len(part["replica_nodes"]) for part in topic["partitions"]), default=0)
        said = configs.get(name, {})  # nothing of a topic that is being deleted
        found = {key: str(_value(value)) for key, value in said.items()}
        wrong = wrong_settings(TOPICS[role].config(replicas), found)
        states[role] = TopicState(
            name, len(topic["partitions"]), wrong, str(topic["topic_id"]), replicas
        )
    return states


@dataclass(frozen=True, slots=True)
class SourceTopic:
    """A topic that a source reads.

    Attributes:
        topic_id: The id of the topic. It changes if the topic is deleted and created again, and a mirror has
            another one.
        dated_by: Who sets the times of its messages: ``LogAppendTime`` if the broker does. Empty if it does
            not say so.
    """

    topic_id: str
    dated_by: str


def describe_source(bootstrap_servers: str | Broker, topic: str) -> SourceTopic | None:
    """Describes any topic; None if it does not exist.

    Raises:
        ServerUnavailable: No broker there.
    """
    with _admin(bootstrap_servers) as admin:
        if topic not in admin.list_topics():
            return None
        (described,) = admin.describe_topics([topic])
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        configs = admin.describe_configs([resource], config_filter="all")["topic"].get(topic, {})
    dated_by = str(_value(configs[TIMES])) if TIMES in configs else ""
    return SourceTopic(str(described["topic_id"]), dated_by)


def dated_by_producers(topic: str, source: SourceTopic) -> tuple[str, str] | None:
    """Returns what it means for phases by the calendar that producers date a topic, and what to do.

    None if the broker dates it.
    """
    if source.dated_by == "LogAppendTime":
        return None
    found = source.dated_by or "that the broker does not tell"
    problem = (
        f"{topic} has {TIMES} {found}: its producers choose the times of its messages, and so which period "
        "each counts for, which is public. One message with a late time takes all later ones of a partition "
        "into its period"
    )
    return (
        problem,
        f"set {TIMES}=LogAppendTime for {topic}, or make sure that its times say when a message was written",
    )


def _value(config: object) -> object:
    return config["value"] if isinstance(config, dict) else config


@dataclass(frozen=True, slots=True)
class Made:
    """The result of ``create_topics``.

    Attributes:
        created: The names of the topics that did not exist.
        changed: The settings that were restored: the name of the topic -> setting -> value.
    """

    created: Sequence[str]
    changed: Mapping[str, Mapping[str, str]]


def create_topics(
    bootstrap_servers: str | Broker,
    topics: Topics,
    *,
    partitions: int | None = None,
    replication: int | None = None,
) -> Made:
    """Creates the topics that do not exist, and restores the settings that existing ones need.

    It changes no other setting of an existing topic. ``TopicSettings.needed`` lists those that it restores.

    Args:
        bootstrap_servers: The addresses of the brokers, or the brokers with credentials.
        topics: The names of the topics.
        partitions: The number of partitions of each new topic. None takes that of the inputs that exist,
            or 4. The workers' own topics always have the partitions of the inputs.
        replication: The replicas of each new topic. None takes those of the inputs that exist, or 1.

    Raises:
        ServerUnavailable: No broker answers, or it refused.
        InvalidInput: Some input topics exist with another number of partitions.
    """
    states = describe_topics(bootstrap_servers, topics)
    inputs = [states[role] for role in INPUTS]
    there = max(state.partitions for state in inputs)
    partitions = partitions or there or _PARTITIONS
    replication = replication or max(state.replicas for state in inputs) or 1
    for state in inputs:
        if state.partitions not in (0, partitions) and any(one.partitions == 0 for one in inputs):
            raise InvalidInput(
                "--partitions",
                f"{state.name} exists with {state.partitions} partitions, but all inputs must have the same",
                f"pass --partitions {state.partitions}, or another --topic-prefix",
            )
    missing = {
        state.name: {
            "num_partitions": (there or partitions) if role in PRIVATE else partitions,
            "replication_factor": replication,
            "configs": TOPICS[role].config(replication),
        }
        for role, state in states.items()
        if state.partitions == 0
    }
    if missing:
        with _admin(bootstrap_servers) as admin:
            try:
                admin.create_topics(missing, wait_for_metadata=True)
            except KafkaError as error:
                raise ServerUnavailable(
                    f"the broker did not create the topics: {_short(error)}; if it has fewer servers than "
                    f"--replication {replication}, pass a smaller one"
                ) from error
    changed = {
        state.name: lost
        for role, state in states.items()
        if (lost := {key: v for key, v in state.needed(role).items() if key in state.wrong})
    }
    if changed:
        with _admin(bootstrap_servers) as admin:
            _restore(admin, changed)
    return Made(sorted(missing), changed)


def _restore(admin: KafkaAdminClient, changed: Mapping[str, Mapping[str, str]]) -> None:
    done = admin.alter_configs(
        [ConfigResource(ConfigResourceType.TOPIC, name, dict(one)) for name, one in changed.items()]
    )["topic"]
    for name, settings in changed.items():
        if done[name] != "OK":
            listed = ",".join(f"{setting}={value}" for setting, value in settings.items())
            raise ServerUnavailable(
                f"the broker did not set {listed} for {name}: {done[name]}; let this user alter the topic, "
                f"or run: kafka-configs.sh --alter --topic {name} --add-config {listed}"
            )


def _short(error: Exception) -> str:
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__


def worker_group(topic_prefix: str) -> str:
    """The consumer group of a deployment's workers, unless STREAM_DP_GROUP_ID names another."""
    return f"{topic_prefix.rstrip('.-_') or 'stream-dp'}-worker"


def workers(
    bootstrap_servers: str | Broker, group: str, *, kafka: Mapping[str, object] | None = None
) -> Sequence[str]:
    """Returns the hosts of the workers in ``group``. A worker that died counts for some seconds more.

    Raises:
        ServerUnavailable: No broker there, or it does not tell.
    """
    with _admin(bootstrap_servers, kafka) as admin:
        found = _described(admin, group)
        if _unknown(found):
            raise ServerUnavailable(f"the broker does not say who is in the group {group}")
        return [str(member["client_host"]).lstrip("/") for member in found["members"]]


def _described(admin: KafkaAdminClient, group: str) -> dict[str, Any]:
    deadline = time.monotonic() + _COORDINATOR_S
    while True:
        try:
            found: dict[str, Any] = admin.describe_groups([group])[group]
        except CoordinatorNotAvailableError:  # a new broker has no coordinator until someone asks
            if time.monotonic() > deadline:
                raise
        else:
            if not _unknown(found) or time.monotonic() > deadline:
                return found
        time.sleep(0.2)


def _unknown(described: Mapping[str, Any]) -> bool:
    """Returns whether the broker cannot answer yet, for example while it still loads its groups."""
    return bool(described.get("error")) and _NOT_FOUND not in described["error"]


@dataclass(frozen=True, slots=True)
class BrokerFacts:
    """A Kafka cluster: the number of brokers, and their version as inferred from what they support."""

    brokers: int
    version: tuple[int, ...]


def describe_broker(
    bootstrap_servers: str | Broker, *, kafka: Mapping[str, object] | None = None
) -> BrokerFacts:
    """Describes the cluster that answers at the addresses.

    Raises:
        ServerUnavailable: No broker there.
    """
    with _admin(bootstrap_servers, kafka) as admin:
        nodes = [broker["broker_id"] for broker in admin.describe_cluster()["brokers"]]
        return BrokerFacts(
            len(nodes), tuple(admin.get_broker_version_data(nodes[0]).broker_version)
        )
