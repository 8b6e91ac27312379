"""A statement about catalogs can stop its process, and nothing else."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import uvloop

from stream_dp.gateway.catalogs.catalog_process import CatalogProcess
from stream_dp.gateway.protocol.sql_fault import SqlFault
from tests.gateway.recorded_statements import SETTINGS, VIEW

COUNT = "SELECT count(*) AS n FROM countries"
COUNTED = ((("n", "int8"),), [(3,)])
ENDLESS = "SELECT count(*) FROM pg_type a, pg_type b, pg_type c, pg_type d, pg_type e"
PATIENT_S = 60.0
SHORT_S = 1.0
LINUX = pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads /proc")


@pytest.fixture
async def catalogs() -> AsyncIterator[CatalogProcess]:
    process = CatalogProcess(deadline_s=PATIENT_S)
    await process.start()
    yield process
    await process.close()


def number(catalogs: CatalogProcess) -> int:
    assert catalogs._process is not None
    return catalogs._process.pid


async def test_statements_are_described_and_answered(catalogs: CatalogProcess) -> None:
    assert await catalogs.describe("SELECT $1 AS x", VIEW, SETTINGS) == (("x", "text"),)
    assert await catalogs.answer(COUNT, VIEW, SETTINGS) == COUNTED
    _, rows = await catalogs.answer("SELECT ARRAY[1, 2], NULL::date, 1.5, true", VIEW, SETTINGS)
    assert rows == [([1, 2], None, 1.5, True)]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT count(*) FROM generate_series(1, 100000000) AS g",
        "SELECT 1 FROM pg_am WHERE 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!' ~ '(a+)+$'",
        ENDLESS,
        "SELECT array_agg(a.typname) FROM pg_type a, pg_type b, pg_type c",
    ],
)
async def test_a_statement_that_would_stop_the_server_is_stopped_and_the_next_is_answered(
    catalogs: CatalogProcess, statement: str
) -> None:
    catalogs._deadline_s = SHORT_S
    task = asyncio.create_task(catalogs.answer(statement, VIEW, SETTINGS))
    beats = 0
    while not task.done():
        await asyncio.sleep(0.001)
        beats += 1
    catalogs._deadline_s = PATIENT_S
    with pytest.raises(SqlFault) as raised:
        await task
    assert raised.value.state in ("57014", "53200", "54000")
    assert beats > 3
    assert await catalogs.answer(COUNT, VIEW, SETTINGS) == COUNTED


async def test_who_waits_while_a_statement_is_killed_gets_an_answer(
    catalogs: CatalogProcess,
) -> None:
    catalogs._deadline_s = SHORT_S
    before = number(catalogs)
    first, *others = await asyncio.gather(
        catalogs.answer(ENDLESS, VIEW, SETTINGS),
        *(catalogs.answer(COUNT, VIEW, SETTINGS) for _ in range(3)),
        return_exceptions=True,
    )
    assert isinstance(first, SqlFault)
    assert first.state == "57014"
    assert others == [COUNTED] * 3
    assert number(catalogs) != before


async def test_an_answer_after_a_cancelled_statement_is_not_that_of_the_other(
    catalogs: CatalogProcess,
) -> None:
    task = asyncio.create_task(catalogs.answer(ENDLESS, VIEW, SETTINGS))
    await asyncio.sleep(0.01)
    assert catalogs._turn.locked()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await catalogs.answer(COUNT, VIEW, SETTINGS) == COUNTED


async def test_a_process_that_died_is_started_again(catalogs: CatalogProcess) -> None:
    process = catalogs._process
    assert process is not None
    process.kill()
    await process.wait()
    assert await catalogs.answer(COUNT, VIEW, SETTINGS) == COUNTED


async def test_a_statement_sees_only_the_tables_of_its_view(catalogs: CatalogProcess) -> None:
    views = [replace(VIEW, key=f"view-{i}", user=f"user{i}") for i in range(20)]
    bare = replace(VIEW, key="bare", tables=())
    for view in (*views, *views):
        assert (await catalogs.answer("SELECT current_user", view, SETTINGS))[1] == [(view.user,)]
    assert (await catalogs.answer("SELECT count(*) FROM pg_class", bare, SETTINGS))[1] == [(0,)]
    with pytest.raises(SqlFault, match="does not exist"):
        await catalogs.answer(COUNT, bare, SETTINGS)
    assert await catalogs.answer(COUNT, VIEW, SETTINGS) == COUNTED


@LINUX
@pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])
def test_the_process_has_no_secret_and_no_file_of_the_gateway(
    run: Callable[[Coroutine[Any, Any, None]], None],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STREAM_DP_TOKEN", "a-secret")

    seen: list[list[str]] = []

    async def look() -> None:
        catalogs = CatalogProcess(deadline_s=PATIENT_S)
        with (tmp_path / "open").open("w") as file:
            os.set_inheritable(file.fileno(), True)
            await catalogs.start()
        place = Path(f"/proc/{number(catalogs)}")
        seen.append(sorted(path.name for path in (place / "fd").iterdir()))
        variables = [one for one in (place / "environ").read_text().split("\0") if one]
        seen.append([one.split("=")[0] for one in variables])
        await catalogs.close()

    run(look())
    assert seen == [["0", "1", "2"], ["PYTHONPATH"]]


@pytest.mark.parametrize(
    "statement",
    [
        "SELECT a.oid FROM pg_type a, pg_type b",
        f"SELECT '{'x' * 100_000}', oid FROM pg_type",
    ],
)
async def test_an_answer_that_is_too_long_is_refused(
    catalogs: CatalogProcess, statement: str
) -> None:
    with pytest.raises(SqlFault) as raised:
        await catalogs.answer(statement, VIEW, SETTINGS)
    assert raised.value.state == "54000"
    assert await catalogs.answer(COUNT, VIEW, SETTINGS) == COUNTED
