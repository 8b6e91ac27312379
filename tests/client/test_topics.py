"""Which settings the topics of a deployment get, and what an upgrade adds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

from stream_dp.client.kafka.deployment_topics import create_topics, describe_topics
from stream_dp.messages import PRIVATE, TOPICS, Topics
from tests.waiting import until


@pytest.fixture
def admin(kafka_server: str) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=kafka_server)
    yield admin
    admin.close()


def test_the_journal_is_never_compacted_and_survives_a_lost_disk_where_there_are_three() -> None:
    config = TOPICS["journal"].config(replicas=3)
    assert config["cleanup.policy"] == "delete"
    assert (config["retention.ms"], config["retention.bytes"]) == ("-1", "-1")
    assert config["message.timestamp.type"] == "LogAppendTime"
    for role in PRIVATE:
        for replicas, least in ((1, None), (2, None), (3, "2"), (5, "2")):
            config = TOPICS[role].config(replicas)
            assert config.get("min.insync.replicas") == least
            assert config["unclean.leader.election.enable"] == "false"
    assert not any("insync" in name for name in TOPICS["answers"].config(3))


def test_no_size_ends_what_no_time_ends() -> None:
    """A broker may have a limit of bytes for topics that name none."""
    blocks = TOPICS["blocks"].config()
    erased = (blocks["cleanup.policy"], blocks["max.compaction.lag.ms"])
    assert erased == ("compact", "14400000"), "erased rows leave the disk within hours"
    for topic in TOPICS.values():
        for_ever = topic.config()["retention.ms"] == "-1"
        assert topic.config().get("retention.bytes") == ("-1" if for_ever else None)


@pytest.mark.kafka
def test_an_upgrade_adds_what_is_missing_with_the_partitions_of_the_inputs_and_what_topics_need(
    kafka_server: str, topic_prefix: str, admin: KafkaAdminClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = Topics(topic_prefix)
    before = {
        names.name(role): {"num_partitions": 3, "replication_factor": 1}
        for role in TOPICS
        if role not in PRIVATE
    }
    admin.create_topics(before, wait_for_metadata=True)
    made = create_topics(kafka_server, names, partitions=5)
    assert set(made.created) == {names.name(role) for role in PRIVATE}
    assert made.changed[names.name("ledger")] == {"retention.ms": "-1"}
    until(lambda: create_topics(kafka_server, names).changed == {})
    states = describe_topics(kafka_server, names)
    for role in PRIVATE:
        assert (states[role].partitions, states[role].wrong) == (3, {})
    monkeypatch.setattr("stream_dp.messages.topics.SAFE_REPLICAS", 1)  # as if they were three
    too_few = describe_topics(kafka_server, names)["blocks"].wrong
    assert too_few["min.insync.replicas"] == ("1", "2")
    stricter = {"min.insync.replicas": "3"}
    blocks = ConfigResource(ConfigResourceType.TOPIC, names.name("blocks"), configs=stricter)
    admin.alter_configs([blocks])
    until(lambda: "min.insync.replicas" not in describe_topics(kafka_server, names)["blocks"].wrong)
    assert "retention.ms" not in states["ledger"].wrong
    assert states["answers"].wrong.keys() == {"retention.ms"}, "as it was"
    assert create_topics(kafka_server, names).created == []
