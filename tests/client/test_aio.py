"""The client for asyncio does what the other one does, without a thread for each query."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from typing import Any
from unittest import mock

import pytest

from stream_dp.client import AsyncClient, Rejection
from stream_dp.client.kafka.exchange import Exchange
from stream_dp.client.kafka.mailbox import Reply
from stream_dp.errors import InvalidInput, RequestTimeout, StreamDPError
from stream_dp.messages import Event
from tests.client.world_client import AsyncSessionClient, QuietSession, WorldSession
from tests.signing import Issuer
from tests.waiting import PATIENCE_S

EVENT = Event(dataset="people", event="repaired")


@pytest.fixture
async def waiter(silent: QuietSession) -> AsyncIterator[AsyncClient]:
    """A client to whose requests nobody replies."""
    async with AsyncSessionClient(silent) as made:
        yield made


async def until(condition: Callable[[], object]) -> None:
    for _ in range(int(100 * PATIENCE_S)):
        if condition():
            return
        await asyncio.sleep(0.01)
    pytest.fail("it did not come to that")


async def test_requests_are_answered_or_rejected_once_it_is_connected(
    session: WorldSession, definition: dict[str, Any]
) -> None:
    client = AsyncSessionClient(session)
    with pytest.raises(StreamDPError, match="use it in `async with`"):
        await client.catalog()
    async with client:
        people = (await client.define(definition)).dataset
        await client.send(people, cells=[{"city": "Bonn", "age": 40, "count": 1000}])
        answer: Any = await client.ask(people, "city = 'Bonn'", query_id="q")
        assert answer.value == pytest.approx(1.0, abs=0.1)
        with pytest.raises(Rejection, match="no data set 'no-such-data-set' is defined"):
            await client.ask("no-such-data-set", {"attribute": "smoker", "eq": True})


async def test_a_twin_asks_under_the_name_of_its_token(
    waiter: AsyncClient, silent: QuietSession, issuer: Issuer
) -> None:
    token = issuer.token()
    twin = await waiter.with_token(token)
    for asking in (twin, waiter):
        with pytest.raises(RequestTimeout):
            await asking.ask("people", {"all": []}, timeout_s=0.01)
    headers = [headers for *_, headers in silent.sent]
    assert headers == [{"authorization": f"Bearer {token}".encode()}] * 3 + [{}] * 3
    with pytest.raises(InvalidInput, match="it is not a JSON Web Token"):
        await waiter.with_token("abc")


async def test_more_queries_than_threads_wait_for_their_answers_at_once(
    waiter: AsyncClient, silent: QuietSession
) -> None:
    with pytest.raises(RequestTimeout, match=r"no reply to query q within 0\.1 s"):
        await waiter.ask("people", {"all": []}, query_id="q", timeout_s=0.1)
    assert silent.mailbox._waiters == {}
    asked = [asyncio.create_task(waiter.ask("people", {"all": []})) for _ in range(100)]
    asked.append(asyncio.create_task(waiter.retire("people")))  # type: ignore[arg-type]
    await until(lambda: len(silent.mailbox._waiters) >= 101)
    named = [t for t in threading.enumerate() if t.name.startswith("stream-dp-client")]
    assert len(named) <= 32
    await waiter.close()
    for task in asked:
        with pytest.raises(StreamDPError, match="closed before the reply came"):
            await task


async def test_who_is_cancelled_leaves_nothing_behind_and_disturbs_nobody(
    waiter: AsyncClient, silent: QuietSession
) -> None:
    silent.takes_s = 0.1
    tasks = [asyncio.create_task(waiter.ask("people", {}, query_id="q")) for _ in range(20)]
    for pause_s in (0.0, 0.002, 0.05, 0.3):  # before, while and after the query is sent
        await asyncio.sleep(pause_s)
        tasks.pop().cancel()
    assert not any(task.done() for task in tasks)
    for task in tasks:
        task.cancel()
    ended = await asyncio.gather(*tasks, return_exceptions=True)
    assert {type(end) for end in ended} == {asyncio.CancelledError}
    await until(lambda: not silent.mailbox._waiters)  # steps that were under way end first


async def test_an_error_that_meets_the_reply_and_the_sender_is_told_once(
    waiter: AsyncClient,
) -> None:
    def attempts(reply: Future[Reply]) -> Iterator[float]:
        reply.set_exception(StreamDPError("closed"))
        time.sleep(0.1)  # the loop hears of the reply before it hears of this
        raise StreamDPError("closed")
        yield 0.0

    async def ask() -> None:
        reply: Future[Reply] = Future()
        exchange = Exchange(mock.Mock(), reply, attempts(reply), lambda found: found)
        with pytest.raises(StreamDPError, match="closed"):
            await waiter._reply(exchange)

    told: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
    await ask()
    await asyncio.sleep(0)  # the loop lets go of the reply
    gc.collect()
    assert told == []


async def test_a_cancelled_connection_is_closed_when_it_is_there(silent: QuietSession) -> None:
    def connect() -> QuietSession:
        time.sleep(0.1)
        return silent

    client = AsyncSessionClient(silent)
    client._begin(connect)
    connecting = asyncio.create_task(client.__aenter__())
    await asyncio.sleep(0)  # it has begun
    connecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await connecting
    await until(lambda: silent.closing)


async def test_followers_see_what_happens_until_the_client_closes(
    waiter: AsyncClient, silent: QuietSession
) -> None:
    seen: list[object] = []

    async def watch() -> None:
        seen.extend([reply async for reply in waiter.follow("people")])

    watching = asyncio.create_task(watch())
    await until(lambda: silent.mailbox._followers)
    for event in (EVENT, EVENT.model_copy(update={"dataset": "trains"})):
        silent.mailbox.deliver("events", event.model_dump_json().encode())
    await waiter.close()
    await watching
    assert seen == [EVENT]
