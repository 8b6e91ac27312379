"""The client for asyncio says and does what the other one does, without a thread for each query."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import Any
from unittest import mock

import pytest

from stream_dp.client import AsyncClient, Client, Query, Rejection
from stream_dp.client.kafka.exchange import Exchange
from stream_dp.client.kafka.mailbox import Mailbox, Reply
from stream_dp.errors import (
    InvalidDefinition,
    RequestTimeout,
    ServerUnavailable,
    StreamDPError,
)
from stream_dp.messages import Answer
from tests.waiting import PATIENCE_S

# Of no use to who can await.
BLOCKING_ONLY = {"prepare", "subscribe"}


def public(client: type) -> dict[str, Callable[..., Any]]:
    return {
        name: method
        for name, method in inspect.getmembers(client, inspect.isfunction)
        if not name.startswith("_")
    }


def test_each_method_has_its_twin_with_the_same_arguments() -> None:
    methods, twins = public(Client), public(AsyncClient)
    assert twins.keys() == methods.keys() - BLOCKING_ONLY
    for name, twin in twins.items():
        assert inspect.signature(twin).parameters == inspect.signature(methods[name]).parameters, (
            name
        )
        assert twin.__doc__, name
    ours, theirs = inspect.signature(AsyncClient), inspect.signature(Client)
    assert ours.parameters == theirs.parameters


async def test_before_it_connects_it_says_how_to() -> None:
    with pytest.raises(StreamDPError, match="use it in `async with`"):
        await AsyncClient("127.0.0.1:1").catalog()
    with pytest.raises(ServerUnavailable, match="no Kafka broker answers"):
        async with AsyncClient("127.0.0.1:1"):
            pass


@pytest.fixture
async def client(kafka_server: str, served_prefix: str) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(kafka_server, analyst="ann", topic_prefix=served_prefix) as made:
        yield made


@pytest.fixture
async def people(client: AsyncClient, definition: dict[str, Any]) -> str:
    """A data set with one open phase of 1,000 rows, all in Bonn."""
    name = (await client.define(definition)).dataset
    event = await client.send(name, cells=[{"city": "Bonn", "age": 40, "count": 1000}])
    assert event.phase == 1
    return name


def waits_for(client: AsyncClient) -> int:
    """Replies that it still has in mind."""
    return len(mailbox(client)._waiters)


def mailbox(client: AsyncClient) -> Mailbox:
    made = client._client
    assert made is not None
    assert made._mailbox is not None
    return made._mailbox


async def until(condition: Callable[[], object]) -> None:
    for _ in range(int(20 * PATIENCE_S)):
        if condition():
            return
        await asyncio.sleep(0.05)
    pytest.fail("it did not come to that")


@pytest.mark.kafka
async def test_a_data_set_from_definition_to_answers(client: AsyncClient, people: str) -> None:
    assert people in await client.catalog()
    answer: Any = await client.ask(people, "city = 'Bonn'", query_id="q")
    assert answer.value == pytest.approx(1.0, abs=0.1)
    assert await client.ask(people, "city = 'Bonn'", query_id="q") == answer
    assert (await client.quote(people, "smoker")).status == "quoted"
    table = await client.table(people, "SELECT city, COUNT(*) GROUP BY city")
    assert list(table["city"]) == ["Bonn", "Graz", "other", "missing"]
    replies = await client.ask_many(people, [Query("smoker"), Query("age < 18")])
    assert all(isinstance(reply, Answer) for reply in replies)
    with pytest.raises(Rejection, match="no data set 'no-such-data-set' is defined"):
        await client.ask("no-such-data-set", {"attribute": "smoker", "eq": True})
    await client.retire(people)
    assert people not in await client.catalog()


@pytest.mark.kafka
async def test_the_workers_note_about_a_definition_is_a_warning_here_too(
    client: AsyncClient, definition: dict[str, Any]
) -> None:
    with pytest.raises(InvalidDefinition, match=r"is above 1/phase\.min_rows"):
        await client.define({**definition, "privacy": {"epsilon": 10.0, "delta": 0.1}})
    definition["privacy"] = {"epsilon": 10.0, "delta": 1e-3}
    with pytest.warns(UserWarning, match=r"privacy.delta 0.001 is large for phases of 1,000 rows"):
        await client.define(definition)


@pytest.mark.kafka
async def test_many_tasks_get_each_their_own_answer_and_share_the_threads(
    client: AsyncClient, people: str
) -> None:
    asked = [client.ask(people, "age >= 18", query_id=f"q{number}") for number in range(300)]
    answers = await asyncio.gather(*asked)
    assert [answer.query_id for answer in answers] == [f"q{number}" for number in range(300)]
    named = [t for t in threading.enumerate() if t.name.startswith("stream-dp-client")]
    assert len(named) <= 32
    assert waits_for(client) == 0


@pytest.mark.kafka
async def test_more_queries_than_threads_wait_for_their_answers_at_once(
    kafka_server: str, silent_prefix: str
) -> None:
    async with AsyncClient(kafka_server, topic_prefix=silent_prefix) as client:
        with pytest.raises(RequestTimeout, match=r"no reply to query q within 0\.3 s"):
            await client.ask("people", {"all": []}, query_id="q", timeout_s=0.3)
        assert waits_for(client) == 0
        asked = [asyncio.create_task(client.ask("people", {"all": []})) for _ in range(100)]
        await until(lambda: waits_for(client) >= 100)
    for task in asked:
        with pytest.raises(StreamDPError, match="closed before the reply came"):
            await task


@pytest.mark.kafka
async def test_who_is_cancelled_leaves_nothing_behind_and_disturbs_nobody(
    kafka_server: str, silent_prefix: str
) -> None:
    async with AsyncClient(kafka_server, topic_prefix=silent_prefix) as client:
        await client.open()
        tasks = [
            asyncio.create_task(client.ask("people", {"all": []}, query_id="q")) for _ in range(20)
        ]
        for pause_s in (0.0, 0.002, 0.05, 0.3):  # before, while and after the query is sent
            await asyncio.sleep(pause_s)
            tasks.pop().cancel()
        assert not any(task.done() for task in tasks)
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(end) for end in ended} == {asyncio.CancelledError}
        await until(lambda: waits_for(client) == 0)  # steps that were under way end first


@pytest.mark.kafka
async def test_closing_wakes_up_who_waits(kafka_server: str, silent_prefix: str) -> None:
    async with AsyncClient(kafka_server, topic_prefix=silent_prefix) as client:
        await client.open()
        asked = asyncio.create_task(client.ask("people", {"all": []}))
        defined = asyncio.create_task(client.retire("people"))
        await asyncio.sleep(0.3)
    for task in (asked, defined):
        with pytest.raises(StreamDPError, match="closed before the reply came"):
            await task


async def test_an_error_that_meets_the_reply_and_the_sender_is_told_once() -> None:
    def attempts(reply: Future[Reply]) -> Iterator[float]:
        reply.set_exception(StreamDPError("closed"))
        time.sleep(0.1)  # the loop hears of the reply before it hears of this
        raise StreamDPError("closed")
        yield 0.0

    async def ask() -> None:
        reply: Future[Reply] = Future()
        exchange = Exchange(mock.Mock(), reply, attempts(reply))
        client = AsyncClient("127.0.0.1:1")
        client._client = mock.Mock(prepare=lambda *_, **__: exchange)
        with pytest.raises(StreamDPError, match="closed"):
            await client.ask("people", {"all": []})

    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    await ask()
    await asyncio.sleep(0)  # the loop lets go of the reply
    gc.collect()
    assert told == []


@pytest.mark.kafka
async def test_a_cancelled_connection_is_closed_when_it_is_there(
    kafka_server: str, served_prefix: str
) -> None:
    before = set(threading.enumerate())
    client = AsyncClient(kafka_server, topic_prefix=served_prefix)
    connecting = asyncio.create_task(client.__aenter__())
    await asyncio.sleep(0)  # it has begun
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    await client.close()
    await until(lambda: set(threading.enumerate()) <= before)


@pytest.mark.kafka
async def test_followers_see_what_happens_until_the_client_closes(
    kafka_server: str, served_prefix: str, client: AsyncClient, people: str
) -> None:
    arrived = asyncio.Event()
    seen: list[object] = []

    async def watch(watcher: AsyncClient) -> None:
        async for reply in watcher.follow(people):
            seen.append(reply)
            arrived.set()

    async with AsyncClient(kafka_server, topic_prefix=served_prefix) as watcher:
        await watcher.open()
        watching = asyncio.create_task(watch(watcher))
        await until(lambda: mailbox(watcher)._followers)
        answer = await client.ask(people, "smoker")
        await arrived.wait()
    await watching
    assert seen == [answer]
