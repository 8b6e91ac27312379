"""Reading the topics of a real broker while somebody looks."""

from __future__ import annotations

import json
from typing import Any

import pytest
from kafka import KafkaProducer

from stream_dp.broker import Broker
from stream_dp.web.page_data.feed import Feed
from stream_dp.web.page_data.published_state import PublishedState
from tests.answers import count_answer
from tests.waiting import until

pytestmark = pytest.mark.kafka


def phase(number: int) -> tuple[str, dict[str, Any]]:
    return "ledger", {"seq": number, "kind": "phase", "phase": number, "rows": 7}


def answer(number: int) -> tuple[str, dict[str, Any]]:
    said = count_answer(
        5, 1, n=10, query_id=f"q{number}", difficulty="easy", path="certified", phase=1
    )
    return "answers", json.loads(said.to_bytes())


def test_a_flood_of_answers_is_read_in_part_and_the_ledger_in_full(deployment: Any) -> None:
    published = PublishedState()
    feed = Feed(Broker(deployment.bootstrap_servers), deployment.topics, published, idle_s=0)
    people = published.datasets["people"]
    producer = KafkaProducer(bootstrap_servers=deployment.bootstrap_servers)

    def send(*records: tuple[str, dict[str, Any]]) -> None:
        for role, document in records:
            value = json.dumps({"version": 1, "dataset": "people", **document}).encode()
            producer.send(deployment.topics.name(role), key=b"people", value=value)
        producer.flush()

    send(*map(phase, range(3)), answer(0))
    assert published.version == 0
    with feed.watched():
        until(lambda: feed.caught_up)
        assert (len(people.odometer.blocks), len(people.answers)) == (3, 1)
    until(lambda: not feed.running)
    send(*map(answer, range(1, 6001)), *map(phase, range(3, 1203)))
    assert published.version == 4
    with feed.watched():
        assert not feed.caught_up, "there are records that it has not read"
        until(lambda: len(people.odometer.blocks) == 1203)
        until(lambda: people.answers[0]["query_id"] == "q6000")
    assert feed.skipped > 0
    assert people.tallies[1].easy == 6001 - feed.skipped
    assert published.version == 1203 + 6001 - feed.skipped
    feed.close()
    producer.close()
