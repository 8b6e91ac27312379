"""What only real brokers and workers show of a client."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import pytest

from stream_dp.client import AsyncClient, Client, Rejection
from stream_dp.client.kafka import mailbox
from stream_dp.client.kafka.deployment_topics import create_topics
from stream_dp.embedded.kafka_server import KafkaServer
from stream_dp.errors import RequestTimeout, ServerUnavailable
from stream_dp.messages import Topics
from tests.client.conftest import columns
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.kafka

Words = dict[str, Any]


async def test_many_tasks_get_each_their_own_answer_and_share_the_threads(
    kafka_server: str, served_prefix: str, definition: Words
) -> None:
    async with AsyncClient(kafka_server, analyst="ann", topic_prefix=served_prefix) as client:
        people = (await client.define(definition)).dataset
        assert (await client.send(people, columns=columns(1000, bonn=0.75))).phase == 1
        cities = ["Bonn", "Graz"] * 150
        asked = (
            client.ask(people, f"city = '{c}'", query_id=f"q{n}") for n, c in enumerate(cities)
        )
        answers: list[Any] = await asyncio.gather(*asked)
        assert [answer.query_id for answer in answers] == [f"q{n}" for n in range(300)]
        for city, answer in zip(cities, answers, strict=True):
            assert answer.value == pytest.approx(0.75 if city == "Bonn" else 0.25, abs=0.1)
        stands = await client.stand(people, "smoker", query_id="late")
        assert await client.standing(people) == [stands]
        await client.retire(people)
        assert people not in await client.catalog()


def test_a_rejection_reaches_who_caused_it_and_followers_see_all_until_the_client_closes(
    kafka_server: str, served_prefix: str, definition: Words
) -> None:
    name, tree = definition["dataset"], {"attribute": "smoker", "eq": True}
    watcher = Client(kafka_server, topic_prefix=served_prefix)
    watcher.open()
    seen: set[str] = set()
    with ThreadPoolExecutor(7) as pool:
        watching = pool.submit(
            lambda: seen.update(type(reply).__name__ for reply in watcher.follow(name))
        )
        until(lambda: watcher._session._mailbox and watcher._session._mailbox._followers)
        with Client(kafka_server, analyst="ann", topic_prefix=served_prefix) as client:
            client.define(definition)
            client.send(name, columns=columns(1000))
            client.ask(name, "smoker", query_id="mine")
            calls: dict[str, Callable[[], Any]] = {
                "answered": lambda: client.ask(name, "age >= 18"),
                "id_reused": lambda: client.ask(name, "age >= 65", query_id="mine"),
                "unknown_dataset": lambda: client.ask("no-such-data-set", tree),
                "invalid_batch": lambda: client.send(name, columns={"city": ["Bonn"]}),
            }
            for expected, asked in [(code, pool.submit(call)) for code, call in calls.items()]:
                try:
                    code = asked.result(PATIENCE_S).status
                except Rejection as error:
                    code = error.reason.code
                # The answer under this id is sent once more, and may come before the rejection.
                assert code == expected or (code, expected) == ("answered", "id_reused")
        until(lambda: seen >= {"PredicateAnswer", "Event"})
        watcher.close()
        watching.result(PATIENCE_S)


def test_without_a_worker_the_timeout_says_so_and_what_to_do(
    kafka_server: str, silent_prefix: str
) -> None:
    told: list[str] = []
    with Client(kafka_server, topic_prefix=silent_prefix, on_delay=told.append) as client:
        with pytest.raises(RequestTimeout) as caught:
            client.ask("people", {"all": []}, query_id="q", timeout_s=9.5)
        assert client.worker_problem() == told[0]
    assert f"nobody has joined the group {silent_prefix[:-1]}-worker" in told[0]
    assert f"no reply to query q within 9.5 s: {told[0]}" in str(caught.value)
    assert len(told) == 1


def test_a_worker_that_starts_late_still_answers_and_one_that_ended_is_missed(
    deployment: Any, definition: Words
) -> None:
    with deployment.client() as client, ThreadPoolExecutor(1) as pool:
        defined = pool.submit(client.define, definition, timeout_s=PATIENCE_S)
        worker = deployment.worker().wait_ready()
        assert defined.result().dataset == definition["dataset"]
        assert client.worker_problem() is None
        worker.stop()
        worker.until(client.worker_problem)  # the broker takes a while to forget a member


@pytest.mark.slow
def test_when_the_broker_dies_whoever_asks_reads_or_listens_is_told_and_closing_ends(
    own_kafka: KafkaServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mailbox, "_LOOK_S", 0.5)
    monkeypatch.setattr(mailbox, "_AWAY_S", 8.0)  # longer than who asks waits to send again
    where = own_kafka.bootstrap_servers
    create_topics(where, Topics(), partitions=1)
    told: SimpleQueue[str] = SimpleQueue()
    with ThreadPoolExecutor(3) as pool, Client(where, on_delay=told.put) as client:

        def read_on() -> None:
            while True:
                client.catalog()

        asked = pool.submit(client.ask, "people", {"all": []}, timeout_s=12)
        reading = pool.submit(read_on)
        listening = pool.submit(lambda: next(client.follow()))
        assert "no worker runs" in told.get(timeout=PATIENCE_S)
        os.kill(own_kafka.pid, signal.SIGKILL)
        assert told.get(timeout=PATIENCE_S).startswith(f"no Kafka broker answers at {where}")
        # On a busy machine nobody may have time to send it again, or it is on its way as the broker dies.
        told_so = f"no Kafka broker answers at {where}|the broker at {where} took no record"
        with pytest.raises((ServerUnavailable, RequestTimeout), match=told_so):
            asked.result(PATIENCE_S)
        with pytest.raises(ServerUnavailable, match=f"answers at {where}"):
            reading.result(PATIENCE_S)
        with pytest.raises(ServerUnavailable, match=f"lost: no Kafka broker answers at {where}"):
            listening.result(PATIENCE_S)
        assert (client.worker_problem() or "").startswith(f"no Kafka broker answers at {where}")


def test_without_topics_the_error_says_how_to_make_them(
    kafka_server: str, topic_prefix: str
) -> None:
    with Client(kafka_server, topic_prefix=topic_prefix) as client:
        for reach in (client.open, client.catalog, lambda: client.ask("people", "smoker")):
            with pytest.raises(ServerUnavailable) as caught:
                reach()
            assert str(caught.value).endswith(f"topics create --topic-prefix {topic_prefix}")
