"""What people do with psql, psycopg2, pg8000, psqlODBC and SQLAlchemy, on real servers."""

from __future__ import annotations

import datetime as dt
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from typing import Any, NamedTuple

import pg8000.dbapi
import psycopg2
import pyodbc
import pytest
import sqlalchemy as sa
from sqlalchemy.ext.asyncio import create_async_engine

from stream_dp.errors import ServerUnavailable
from tests.gateway.drivers.served_orders import ASKED, WRONG, WRONG_AT, Rows, plain
from tests.workers import GatewayProcess

pytestmark = [pytest.mark.kafka, pytest.mark.slow]

GROUPS = ASKED["groups"].sql
COLUMNS = {"city": "text", "size": "int8", "weight": "float8", "paid": "bool", "month": "date"}

Needed = Callable[[], AbstractContextManager[None]]


class DbApi(NamedTuple):
    """A module of DB-API 2.0.

    Attributes:
        mark: What stands for a parameter.
        error: The class of its errors.
        state: The SQLSTATE of an error, and the place of it if the module tells it.
    """

    connect: Callable[[int], Any]
    mark: str
    error: type[Exception]
    state: Callable[[Any], tuple[str, str]]


def _odbc(port: int) -> Any:
    where = f"Driver={{PostgreSQL Unicode}};Server=127.0.0.1;Port={port};Database=stream_dp"
    return pyodbc.connect(
        f"{where};Uid=ann;BoolsAsChar=0;Protocol=7.4-0"
    )  # rolls nothing back itself


MODULES = {
    "psycopg2": DbApi(
        lambda port: psycopg2.connect(host="127.0.0.1", port=port, dbname="stream_dp", user="ann"),
        "%s",
        psycopg2.Error,
        lambda error: (error.pgcode, error.diag.statement_position or str(WRONG_AT)),
    ),
    "pg8000": DbApi(
        lambda port: pg8000.dbapi.connect("ann", host="127.0.0.1", port=port, database="stream_dp"),
        "%s",
        pg8000.dbapi.Error,
        lambda error: (error.args[0]["C"], error.args[0].get("P", str(WRONG_AT))),
    ),
    "psqlODBC": DbApi(_odbc, "?", pyodbc.Error, lambda error: (error.args[0], str(WRONG_AT))),
}


@pytest.fixture(params=MODULES)
def api(request: pytest.FixtureRequest, needed: Needed) -> DbApi:
    with needed():
        if request.param == "psqlODBC" and "PostgreSQL Unicode" not in pyodbc.drivers():
            raise ServerUnavailable("psqlODBC is missing; apt install odbc-postgresql")
    return MODULES[request.param]


@pytest.fixture
def opened(api: DbApi, served_gateway: GatewayProcess) -> Iterator[Any]:
    with closing(api.connect(served_gateway.port)) as connection:
        yield connection


def rows(connection: Any, text: str, *values: Any) -> Rows:
    cursor = connection.cursor()
    cursor.execute(text, values)
    return plain(cursor.fetchall())


def test_a_module_of_python_reads_what_the_client_reads(
    api: DbApi, opened: Any, wanted: dict[str, Rows]
) -> None:
    asked = {**ASKED}
    if api.mark == "?":
        del asked["array"]  # ODBC has no arrays

    def ask(name: str) -> Rows:
        return rows(opened, ASKED[name].written(api.mark), *ASKED[name].in_order)

    for _ in range(7):
        assert {name: ask(name) for name in asked} == {name: wanted[name] for name in asked}


def test_a_module_of_python_is_told_what_is_wrong_and_goes_on(
    api: DbApi, opened: Any, wanted: dict[str, Rows]
) -> None:
    def fault(text: str) -> tuple[str, str]:
        with pytest.raises(api.error) as caught:
            rows(opened, text)
        return api.state(caught.value)

    assert rows(opened, GROUPS) == wanted["groups"]
    opened.cursor().execute("SAVEPOINT saved")
    assert fault(WRONG) == ("42703", str(WRONG_AT))
    assert fault(GROUPS)[0] == "25P02"
    opened.cursor().execute("ROLLBACK TO SAVEPOINT saved")
    assert rows(opened, GROUPS) == wanted["groups"]
    assert fault(WRONG) == ("42703", str(WRONG_AT))
    opened.rollback()
    assert rows(opened, GROUPS) == wanted["groups"]


def test_psycopg2_reads_a_cursor_of_the_server_and_the_price(
    served_gateway: GatewayProcess, wanted: dict[str, Rows]
) -> None:
    with closing(MODULES["psycopg2"].connect(served_gateway.port)) as connection:
        with connection.cursor("parts") as cursor:
            cursor.itersize = 2
            cursor.execute(GROUPS)
            assert list(cursor) == wanted["groups"]
        assert "phase 1" in connection.notices[0]
        connection.rollback()
        connection.set_session(readonly=True, autocommit=True)
        assert rows(connection, GROUPS) == wanted["groups"]


def test_odbc_lists_tables_and_columns(served_gateway: GatewayProcess, needed: Needed) -> None:
    with needed():
        if "PostgreSQL Unicode" not in pyodbc.drivers():
            raise ServerUnavailable("psqlODBC is missing; apt install odbc-postgresql")
    with closing(_odbc(served_gateway.port)) as connection:
        catalog = connection.cursor()
        assert "orders" in [one.table_name for one in catalog.tables(schema="public")]
        found = {one.column_name: one.type_name for one in catalog.columns(table="orders")}
        assert found == COLUMNS
        assert catalog.primaryKeys("orders").fetchall() == []
        assert catalog.foreignKeys("orders").fetchall() == []
        assert catalog.statistics("orders").fetchall() == []
        assert {"text", "int8", "float8"} <= {one[0] for one in catalog.getTypeInfo().fetchall()}


def test_psql_draws_tables_and_lists_them(
    served_gateway: GatewayProcess, wanted: dict[str, Rows], needed: Needed
) -> None:
    with needed():
        if shutil.which("psql") is None:
            raise ServerUnavailable("psql is not on the PATH; apt install postgresql-client")

    def psql(*commands: str, fails: bool = False) -> str:
        given = [part for one in commands for part in ("-c", one)]
        program = ["psql", served_gateway.address, "-XAt", "-v", "VERBOSITY=verbose", *given]
        ended = subprocess.run(program, capture_output=True, text=True, check=False)
        assert (ended.returncode != 0) == fails, ended.stderr
        return ended.stderr if fails else ended.stdout

    said = psql("SET stream_dp.error_bars = off", GROUPS)
    assert said == "SET\n" + "".join(f"{city}|{n}\n" for city, n, _ in wanted["groups"])
    assert "public|orders|table|ann" in psql(r"\d").splitlines()
    described = psql(r"\d+ orders").splitlines()
    assert [one.split("|")[0] for one in described[:5]] == [*COLUMNS]
    assert "One of: Bonn, Graz, Lyon" in described[0]
    assert "stream_dp|ann|UTF8" in psql(r"\l")
    for command in [
        r"\dt+",
        r"\dn",
        r"\du",
        r"\df",
        r"\dT",
        r"\di",
        r"\dp",
        r"\dx",
        r"\dv",
        r"\conninfo",
    ]:
        psql(command)
    wrong = psql(WRONG, fails=True)
    assert "ERROR:  42703" in wrong
    assert "LINE 1: " in wrong


def test_sqlalchemy_inspects_reflects_and_asks(
    served_gateway: GatewayProcess, wanted: dict[str, Rows]
) -> None:
    engine = sa.create_engine(served_gateway.address.replace("://", "+psycopg://"))
    inspector = sa.inspect(engine)
    assert "orders" in inspector.get_table_names()
    assert {"public", "synthetic"} <= {*inspector.get_schema_names()}
    described = {one["name"]: one for one in inspector.get_columns("orders")}
    kinds = [sa.TEXT, sa.BIGINT, sa.DOUBLE_PRECISION, sa.BOOLEAN, sa.DATE]
    assert [type(one["type"]) for one in described.values()] == kinds
    assert described["city"]["comment"] == "One of: Bonn, Graz, Lyon"
    assert inspector.get_pk_constraint("orders")["constrained_columns"] == []
    for about in ("foreign_keys", "indexes", "unique_constraints", "check_constraints"):
        assert getattr(inspector, f"get_{about}")("orders") == []
    for about in ("view_names", "enums", "domains"):
        assert getattr(inspector, f"get_{about}")() == []
    assert "epsilon 10" in str(inspector.get_table_comment("orders")["text"])
    assert not inspector.has_table("nothing")
    orders = sa.Table("orders", sa.MetaData(), autoload_with=engine)
    asked = (
        sa.select(sa.func.count().label("n"))
        .where(orders.c.city == "Lyon", orders.c.size >= 10)
        .where(orders.c.month < dt.date(2026, 4, 1))
    )
    among = sa.select(sa.func.count()).where(orders.c.city.in_(["Bonn", "Graz"]))
    with engine.connect() as connection:
        assert plain(connection.execute(asked).all()) == wanted["several"]
        assert plain(connection.execute(among).all()) == wanted["array"]
    engine.dispose()


async def test_sqlalchemy_asks_with_asyncpg(
    served_gateway: GatewayProcess, wanted: dict[str, Rows]
) -> None:
    engine = create_async_engine(served_gateway.address.replace("://", "+asyncpg://"))
    for _ in range(2):  # the pool resets the connection
        async with engine.connect() as connection:
            names = await connection.run_sync(lambda used: sa.inspect(used).get_table_names())
            assert "orders" in names
            reflected = await connection.run_sync(
                lambda used: sa.Table("orders", sa.MetaData(), autoload_with=used)
            )
            asked = sa.select(sa.func.count()).where(reflected.c.city == "Graz")
            assert plain((await connection.execute(asked)).all()) == wanted["text"]
    await engine.dispose()
