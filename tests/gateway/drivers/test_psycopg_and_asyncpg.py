"""What people do with psycopg and asyncpg, on real servers."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any

import asyncpg
import psycopg
import pytest

from tests.gateway.drivers.served_orders import ASKED, WRONG, WRONG_AT, Rows, plain
from tests.gateway.in_process_gateway import InProcessGateway
from tests.workers import GatewayProcess

pytestmark = pytest.mark.kafka

GROUPS, TEXT = ASKED["groups"].sql, ASKED["text"]
SLOW = "SELECT COUNT(*) FROM flights WHERE carrier = 'UA' AND delay >= 30"


@pytest.fixture
def synchronous(served_gateway: GatewayProcess) -> Iterator[psycopg.Connection[Any]]:
    """A connection of psycopg, as ann."""
    with psycopg.connect(served_gateway.address) as opened:
        yield opened


@pytest.fixture
async def asynchronous(served_gateway: GatewayProcess) -> AsyncIterator[asyncpg.Connection[Any]]:
    """A connection of asyncpg, as ann."""
    opened = await asyncpg.connect(served_gateway.address)
    yield opened
    await opened.close()


@pytest.mark.parametrize("is_binary", [False, True])
@pytest.mark.parametrize("is_prepared", [False, True])
def test_psycopg_reads_what_the_client_reads(
    synchronous: psycopg.Connection[Any],
    wanted: dict[str, Rows],
    is_binary: bool,
    is_prepared: bool,
) -> None:
    def ask(name: str) -> Rows:
        text, values = ASKED[name].written("%({})s"), ASKED[name].values
        named = {str(at): value for at, value in enumerate(values, 1)}
        return synchronous.execute(text, named, binary=is_binary, prepare=is_prepared).fetchall()

    for _ in range(2):
        assert {name: ask(name) for name in ASKED} == wanted


def test_psycopg_reads_a_cursor_of_the_server_and_a_pipeline(
    synchronous: psycopg.Connection[Any], wanted: dict[str, Rows]
) -> None:
    with synchronous.cursor("few") as cursor:
        cursor.execute(TEXT.written("%s"), TEXT.values, binary=True)
        assert cursor.fetchall() == wanted["text"]
    with synchronous.cursor("many") as cursor:
        cursor.execute(GROUPS)
        parts = [cursor.fetchmany(2), cursor.fetchmany(2)]
    assert parts == [wanted["groups"][:2], wanted["groups"][2:]]
    with synchronous.pipeline():
        asked = [synchronous.execute(one) for one in ("SELECT 1", GROUPS, "SHOW timezone")]
        assert [one.fetchall() for one in asked] == [[(1,)], wanted["groups"], [("UTC",)]]


def test_psycopg_is_told_what_is_wrong_and_goes_on(
    synchronous: psycopg.Connection[Any], wanted: dict[str, Rows]
) -> None:
    with pytest.raises(psycopg.errors.UndefinedColumn) as caught:
        synchronous.execute(WRONG)
    assert caught.value.diag.statement_position == str(WRONG_AT)
    with pytest.raises(psycopg.errors.InFailedSqlTransaction):
        synchronous.execute(GROUPS)
    synchronous.rollback()
    with synchronous.transaction():
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), synchronous.transaction():
            synchronous.execute("DELETE FROM orders")
        assert synchronous.execute(GROUPS).fetchall() == wanted["groups"]
    with synchronous.pipeline(), pytest.raises(psycopg.errors.UndefinedColumn):
        synchronous.execute(WRONG).fetchall()
    synchronous.rollback()
    with pytest.raises(psycopg.errors.InsufficientPrivilege), synchronous.cursor() as cursor:
        cursor.copy("COPY orders FROM STDIN").__enter__()


def test_psycopg_shows_the_price(synchronous: psycopg.Connection[Any]) -> None:
    said: list[str] = []
    synchronous.add_notice_handler(lambda diag: said.append(str(diag.message_primary)))
    synchronous.execute(GROUPS)
    assert "1 query;" in said[0]
    assert "phase 1" in said[0]
    said.clear()
    synchronous.execute("SET stream_dp.notices = off")
    synchronous.execute(GROUPS)
    assert said == []


async def test_asyncpg_reads_what_the_client_reads(
    asynchronous: asyncpg.Connection[Any], wanted: dict[str, Rows]
) -> None:
    async def ask(name: str) -> Rows:
        return plain(await asynchronous.fetch(ASKED[name].sql, *ASKED[name].values))

    for _ in range(2):  # the second time all are prepared
        assert {name: await ask(name) for name in ASKED} == wanted
    async with asynchronous.transaction(readonly=True):
        read = [tuple(row) async for row in asynchronous.cursor(GROUPS, prefetch=2)]
    assert read == wanted["groups"]
    prepared = await asynchronous.prepare(ASKED["several"].sql)
    assert [one.name for one in prepared.get_parameters()] == ["int8", "text", "date"]
    assert [one.type.name for one in prepared.get_attributes()] == ["int8", "float8"]


async def test_asyncpg_is_told_what_is_wrong_and_goes_on(
    asynchronous: asyncpg.Connection[Any], wanted: dict[str, Rows]
) -> None:
    async with asynchronous.transaction():
        with pytest.raises(asyncpg.UndefinedColumnError) as caught:
            async with asynchronous.transaction():
                await asynchronous.fetch(WRONG)
        assert caught.value.position == str(WRONG_AT)
        assert plain(await asynchronous.fetch(GROUPS)) == wanted["groups"]


async def test_a_pool_of_asyncpg_lends_a_connection_again_and_again(
    served_gateway: GatewayProcess,
) -> None:
    async with asyncpg.create_pool(served_gateway.address, min_size=1, max_size=1) as pool:
        for _ in range(3):
            async with pool.acquire() as lent:
                assert await lent.fetchval("SHOW stream_dp.error_bars") == "on"
                assert await lent.fetchval("SHOW timezone") == "UTC"
                await lent.execute("SET stream_dp.error_bars = off; SET timezone = 'Europe/Vienna'")


async def test_a_parameter_may_be_the_number_of_a_phase(gateway: InProcessGateway) -> None:
    asked = "SELECT COUNT(*) FROM flights WHERE phase {}"
    opened = await asyncpg.connect(gateway.url())
    try:
        (one,), (several,) = [
            await opened.fetch(asked.format("= $1"), 1),
            await opened.fetch(asked.format("BETWEEN $1 AND $2"), 1, 1),
        ]
        assert tuple(one) == tuple(several)
    finally:
        await opened.close()

    def of_psycopg(value: object) -> tuple[Any, ...] | None:
        with psycopg.connect(gateway.url(), autocommit=True) as other:
            return other.execute(asked.format("= %s"), [value]).fetchone()

    assert [await asyncio.to_thread(of_psycopg, value) for value in (1, "1")] == [tuple(one)] * 2


async def test_drivers_cancel_a_statement(gateway: InProcessGateway) -> None:
    async def of_asyncpg() -> None:
        opened = await asyncpg.connect(gateway.url())
        try:
            with pytest.raises(TimeoutError):
                await opened.fetch(SLOW, timeout=0.2)
            assert await opened.fetchval("SELECT 1") == 1
        finally:
            await opened.close()

    def of_psycopg() -> None:
        with psycopg.connect(gateway.url(), autocommit=True) as opened:
            ending = threading.Timer(0.2, opened.cancel_safe)
            ending.start()
            with pytest.raises(psycopg.errors.QueryCanceled, match="user request"):
                opened.execute(SLOW)
            ending.join()
            assert opened.execute("SELECT 1").fetchone() == (1,)

    gateway.world.sleep()
    try:
        await asyncio.gather(of_asyncpg(), asyncio.to_thread(of_psycopg))
    finally:
        await asyncio.to_thread(gateway.wake)
