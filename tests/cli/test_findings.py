"""What ``stream-dp doctor`` finds in what it has read, without servers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from stream_dp.cli.command_options import unreachable
from stream_dp.cli.operate import doctor_command
from stream_dp.client.kafka.deployment_topics import TopicState
from stream_dp.messages import TOPICS, Definition
from stream_dp.state import ledger
from stream_dp.state.schema import Pairs, State, StateTable
from tests.pipeline.world import definition as definition_of


@pytest.mark.parametrize(
    ("url", "cluster", "fault", "fix"),
    [
        ("redis://:secret@one:6379/0", False,
         "Redis does not answer at redis://one:6379", "start it, or pass another --redis-url"),
        ("redis://:secret@one:6379/0", True,
         "the Redis Cluster of redis://one:6379 does not answer, or a part of it does not",
         "see which: redis-cli --cluster check one:6379"),
        ("redis+sentinel://:secret@one:26379,two:26379/mymaster?db=0", False,
         ("the Sentinels of redis+sentinel://one:26379,two:26379/mymaster do not answer, or name no primary "
          "that does"),
         "see what they know: redis-cli -h one -p 26379 SENTINEL masters"),
    ],
)  # fmt: skip
def test_of_a_store_that_does_not_answer_it_says_what_to_look_at(
    url: str, cluster: bool, fault: str, fix: str
) -> None:
    assert unreachable(url, cluster=cluster) == (fault, fix)


AS_MADE = {role: TopicState(f"my.{role}", 2, {}, replicas=3) for role in TOPICS}


@pytest.mark.parametrize(
    ("role", "changed", "health", "finding", "fix"),
    [
        ("queries", {"partitions": 0}, "bad", "topics are missing: my.queries", "create"),
        ("queries", {"partitions": 3}, "bad", "the input topics differ in their number of partitions: ",
         "create them again under another --topic-prefix"),
        ("journal", {"partitions": 3}, "bad",
         "my.journal has 3 partitions and the inputs have 2, so no worker serves them",
         "create the topics again under another --topic-prefix"),
        ("blocks", {"partitions": 1}, "bad", "my.blocks has 1 partitions and the inputs have 2, so",
         "kafka-topics.sh --alter --topic my.blocks --partitions 2"),
        ("journal", {"wrong": {"retention.ms": ("1000", "-1")}}, "bad",
         "my.journal has retention.ms 1000, not -1: Kafka deletes records that must be kept for ever, and no",
         "create"),
        ("ledger", {"wrong": {"cleanup.policy": ("compact", "delete")}}, "bad", "my.ledger has cleanup", ""),
        ("blocks", {"wrong": {"flush.messages": ("100", "1")}, "replicas": 1}, "bad",
         "my.blocks has flush.messages 100, not 1: a power failure could take acknowledged", "create"),
        ("queries", {"wrong": {"message.timestamp.type": ("CreateTime", "LogAppendTime")}}, "bad",
         "my.queries has message.timestamp.type CreateTime, not LogAppendTime: Kafka deletes", "create"),
        ("batches", {"wrong": {"max.message.bytes": ("1", "2")}}, "note", "my.batches has max.mess",
         "kafka-configs.sh --alter --topic my.batches --add-config max.message.bytes=2"),
        ("ledger", {"replicas": 1}, "note", "my.ledger have one replica on 3 brokers: a lost disk loses them",
         "raise their replication"),
    ],
)  # fmt: skip
def test_topics_that_are_not_as_they_are_made_have_a_fix(
    role: str, changed: dict[str, Any], health: str, finding: str, fix: str
) -> None:
    topics = {**AS_MADE, role: replace(AS_MADE[role], **changed)}
    found = next(
        each for each in doctor_command._topics(topics, 3, "create") if each.health != "good"
    )
    assert (found.health, found.finding[: len(finding)]) == (health, finding)
    assert found.fix.startswith(fix)


@pytest.mark.parametrize(
    ("days", "found", "kept"),
    [(30, None, None), (29, None, "for 30 days"), (40, "-1", "for ever"), (40, "1000", None)],
)
def test_a_topic_that_keeps_queries_longer_than_answers_are_stored_is_worth_a_note(
    days: int, found: str | None, kept: str | None
) -> None:
    wrong = {} if found is None else {"retention.ms": (found, "2592000000")}
    queries = TopicState("my.queries", 2, wrong)

    def notes(**retention: Any) -> list[Any]:
        definition = Definition.read(definition_of("people", **retention))
        return [*doctor_command._answers("people", definition, queries)]

    found_notes = notes(retention={"answers": {"days": days}})
    assert len(found_notes) == (kept is not None)
    for note in found_notes:
        keeps = f"stored for at least {days} days, and my.queries keeps queries {kept}"
        assert keeps in note.finding
        assert note.fix.endswith(
            f"--topic my.queries --add-config retention.ms={days * 86_400_000}"
        )
    assert notes() == []


def test_another_ledger_on_the_topic_than_on_the_journal_is_bad() -> None:
    body = {"definition": definition_of("people"), "line": {}}
    entry, head = ledger.append(ledger.GENESIS, 0, "people", "dataset", body)
    state = State("people")

    def compared(pairs: Pairs) -> tuple[str, str]:
        made = state.drafted(pairs)
        state.apply(made, made.to_bytes()[1])
        found = doctor_command._compared([entry], state)
        return found.health, found.finding.removeprefix("people: ")

    fact, head_of = StateTable.FACT, (StateTable.FACT, b"ledger head")
    assert compared({(fact, b"ledger"): b"1", head_of: head.hex().encode()})[0] == "good"
    spent = ("bad", "what the journal says is spent is not what its ledger charges")
    assert compared({(StateTable.SPENT, b"0"): b"5 0"}) == spent
    other = ("bad", "its ledger on the topic is not the one of the journal")
    assert compared({head_of: bytes(32).hex().encode()}) == other
    lacks = ("note", "1 entries of its ledger are not on the topic yet")
    assert compared({(fact, b"ledger"): b"2"}) == lacks
