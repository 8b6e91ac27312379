"""Creates, compares and describes the topics of a deployment and the workers that read them."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias

from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient
from kafka.errors import CoordinatorNotAvailableError, KafkaError

from stream_dp.broker import Broker
from stream_dp.errors import InvalidInput, ServerUnavailable
from stream_dp.messages import INPUTS, PRIVATE, TIMES, TOPICS, Topics, wrong_settings

_NOT_FOUND: Final = "GroupIdNotFoundError"
_COORDINATOR_S: Final = 10.0
_PARTITIONS: Final = 4
_PATIENCE_S: Final = 20.0
_REACHED_WITHIN_S: Final = 5.0


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


def check_reachable(bootstrap_servers: str | Broker) -> None:
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

                ask_for_admission(replace(broker, servers=server.strip()), _REACHED_WITHIN_S)
            else:
                socket.create_connection((host.strip("[]"), int(port)), _REACHED_WITHIN_S).close()
        except OSError as error:
            why = error.strerror or error
        else:
            return
    raise no_broker(broker, why)


@contextmanager
def translating_errors(broker: Broker) -> Iterator[None]:
    """Raises ``ServerUnavailable`` in place of an error of kafka-python."""
    try:
        yield
    except KafkaError as error:
        raise no_broker(broker, _short(error)) from error


@contextmanager
def _admin(
    bootstrap_servers: str | Broker, patience_s: float = _PATIENCE_S
) -> Iterator[KafkaAdminClient]:
    broker = Broker.of(bootstrap_servers)
    check_reachable(broker)
    patience = {"bootstrap_timeout_ms": round(1000 * patience_s)}
    with (
        translating_errors(broker),
        closing(KafkaAdminClient(**broker.arguments(), **patience)) as admin,
    ):
        yield admin


_Described: TypeAlias = tuple[Mapping[str, Any], Mapping[str, str]]
"""A topic as the broker describes it, and its settings."""


def _described(admin: KafkaAdminClient, names: Iterable[str]) -> dict[str, _Described]:
    """Describes those of some topics that exist. One that is being deleted has no settings."""
    existing = sorted({*admin.list_topics()}.intersection(names))
    if not existing:
        return {}
    asked = [ConfigResource(ConfigResourceType.TOPIC, name) for name in existing]
    settings = admin.describe_configs(asked, config_filter="all")["topic"]
    return {
        topic["name"]: (
            topic,
            {key: str(said["value"]) for key, said in settings.get(topic["name"], {}).items()},
        )
        for topic in admin.describe_topics(existing)
    }


def describe_topics(bootstrap_servers: str | Broker, topics: Topics) -> dict[str, TopicState]:
    """Returns the state of every topic of the deployment, by role.

    Raises:
        ServerUnavailable: No broker there.
    """
    names = {role: topics.name(role) for role in TOPICS}
    with _admin(bootstrap_servers) as admin:
        described = _described(admin, names.values())
    states = {}
    for role, name in names.items():
        topic, settings = described.get(name, ({"partitions": [], "topic_id": ""}, {}))
        parts = topic["partitions"]
        replicas = min((len(part["replica_nodes"]) for part in parts), default=0)
        wrong = wrong_settings(TOPICS[role].config(replicas), settings)
        states[role] = TopicState(name, len(parts), wrong, str(topic["topic_id"]), replicas)
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
        described = _described(admin, [topic])
    if topic not in described:
        return None
    found, settings = described[topic]
    return SourceTopic(str(found["topic_id"]), settings.get(TIMES, ""))


def dated_by_producers(topic: str, source: SourceTopic) -> str | None:
    """Returns what it means for phases by the calendar that producers date a topic, and what to do.

    None if the broker dates it.
    """
    if source.dated_by == "LogAppendTime":
        return None
    found = source.dated_by or "that the broker does not tell"
    return (
        f"{topic} has {TIMES} {found}: its producers choose the times of its messages, and so which period "
        "each counts for, which is public. One message with a late time takes all later ones of a partition "
        f"into its period; set {TIMES}=LogAppendTime for {topic}, or make sure that its times say when a "
        "message was written"
    )


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
    _check_partitions(inputs, partitions)
    missing = {
        state.name: {
            "num_partitions": (there or partitions) if role in PRIVATE else partitions,
            "replication_factor": replication,
            "configs": TOPICS[role].config(replication),
        }
        for role, state in states.items()
        if state.partitions == 0
    }
    changed = {
        state.name: lost
        for role, state in states.items()
        if (lost := {key: v for key, v in state.needed(role).items() if key in state.wrong})
    }
    if missing or changed:
        with _admin(bootstrap_servers) as admin:
            _create(admin, missing, replication)
            _restore(admin, changed)
    return Made(sorted(missing), changed)


def _check_partitions(inputs: Sequence[TopicState], partitions: int) -> None:
    """Checks that new inputs would have as many partitions as those that exist."""
    for state in inputs:
        if state.partitions not in (0, partitions) and any(one.partitions == 0 for one in inputs):
            raise InvalidInput(
                "--partitions",
                f"{state.name} exists with {state.partitions} partitions, but all inputs must have the same",
                f"pass --partitions {state.partitions}, or another --topic-prefix",
            )


def _create(admin: KafkaAdminClient, missing: Mapping[str, object], replication: int) -> None:
    if not missing:
        return
    try:
        admin.create_topics(missing, wait_for_metadata=True)
    except KafkaError as error:
        raise ServerUnavailable(
            f"the broker did not create the topics: {_short(error)}; if it has fewer servers than "
            f"--replication {replication}, pass a smaller one"
        ) from error


def _restore(admin: KafkaAdminClient, changed: Mapping[str, Mapping[str, str]]) -> None:
    if not changed:
        return
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
    bootstrap_servers: str | Broker, group: str, *, patience_s: float = _PATIENCE_S
) -> Sequence[str]:
    """Returns the hosts of the workers in ``group``. A worker that died counts for some seconds more.

    Raises:
        ServerUnavailable: No broker there, or it does not tell.
    """
    with _admin(bootstrap_servers, patience_s) as admin:
        found = _group(admin, group)
        if _unknown(found):
            raise ServerUnavailable(f"the broker does not say who is in the group {group}")
        return [str(member["client_host"]).lstrip("/") for member in found["members"]]


def _group(admin: KafkaAdminClient, group: str) -> dict[str, Any]:
    """Describes a group. A broker that has just started cannot do so at once."""
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


def describe_broker(bootstrap_servers: str | Broker) -> tuple[int, str]:
    """Returns the number of brokers of a cluster, and their version as inferred from what they support.

    Raises:
        ServerUnavailable: No broker there.
    """
    with _admin(bootstrap_servers) as admin:
        nodes = [broker["broker_id"] for broker in admin.describe_cluster()["brokers"]]
        version = admin.get_broker_version_data(nodes[0]).broker_version
        return len(nodes), ".".join(map(str, version))
