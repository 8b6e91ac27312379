"""Requests share one client, which closes when nobody needs it and opens again after a fault."""

from __future__ import annotations

import asyncio
from typing import Self

import pytest

from stream_dp.client import AsyncClient
from stream_dp.errors import InvalidInput, RequestTimeout, ServerUnavailable
from stream_dp.web import shared_client
from stream_dp.web.shared_client import SharedClient


class Opened(AsyncClient):
    """A client that only notes whether it is open."""

    def __init__(self) -> None:
        self.is_open = False

    async def __aenter__(self) -> Self:
        await asyncio.sleep(0)
        self.is_open = True
        return self

    async def close(self) -> None:
        self.is_open = False


@pytest.fixture
def opened() -> list[Opened]:
    return []


@pytest.fixture
def shared(opened: list[Opened]) -> SharedClient:
    def connect() -> Opened:
        opened.append(Opened())
        return opened[-1]

    return SharedClient(connect)


async def test_requests_at_the_same_time_share_one_client(
    shared: SharedClient, opened: list[Opened]
) -> None:
    async def use() -> AsyncClient:
        async with shared.use() as client:
            await asyncio.sleep(0.01)
            return client

    found = await asyncio.gather(*(use() for _ in range(40)))
    assert set(map(id, found)) == {id(opened[0])}
    await shared.close()
    assert not opened[0].is_open


async def test_it_closes_after_a_while_without_requests(
    shared: SharedClient, opened: list[Opened], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_client, "_IDLE_S", 0.05)
    async with shared.use():
        async with shared.use():
            pass
        await asyncio.sleep(0.1)
        assert opened[0].is_open, "it is in use"
    await asyncio.sleep(0.5)
    assert not opened[0].is_open
    async with shared.use():
        assert opened[1].is_open
    await shared.close()


async def test_a_lost_broker_closes_it_and_a_wrong_query_does_not(
    shared: SharedClient, opened: list[Opened]
) -> None:
    with pytest.raises(InvalidInput):
        async with shared.use():
            raise InvalidInput("sql", "it is wrong", "fix it")
    assert opened[0].is_open
    with pytest.raises(ServerUnavailable):
        async with shared.use():
            raise ServerUnavailable("gone")
    assert not opened[0].is_open
    async with shared.use():
        assert opened[1].is_open
    await shared.close()


async def test_a_late_answer_closes_it_only_if_nobody_else_waits(
    shared: SharedClient, opened: list[Opened]
) -> None:
    async with shared.use():
        with pytest.raises(RequestTimeout):
            async with shared.use():
                raise RequestTimeout("late")
        assert opened[0].is_open
    with pytest.raises(RequestTimeout):
        async with shared.use():
            raise RequestTimeout("late")
    assert not opened[0].is_open
