"""The driver does what PEP 249 says, and what its docstrings add."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_dp import dbapi, sql
from stream_dp.dbapi.bound_parameters import bound
from stream_dp.dbapi.connections import Connection
from stream_dp.messages import Definition
from tests.client.world_client import WorldClient
from tests.pipeline.world import definition

BY_CARRIER = "SELECT carrier, COUNT(*) AS n FROM flights GROUP BY carrier ORDER BY n DESC"


@pytest.fixture
def connection(client: WorldClient) -> Connection:
    return Connection(client)


def test_the_module_says_what_it_is() -> None:
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 2, "qmark")
    for name in ("Interface", "Database"):
        assert issubclass(getattr(dbapi, f"{name}Error"), dbapi.Error)
    for name in ("Data", "Operational", "Integrity", "Internal", "Programming", "NotSupported"):
        assert issubclass(getattr(dbapi, f"{name}Error"), dbapi.DatabaseError)
    assert dbapi.Date(2026, 11, 1) == date(2026, 11, 1)
    assert dbapi.TimestampFromTicks(0).timestamp() == 0
    assert dbapi.TimeFromTicks(0) == dbapi.TimestampFromTicks(0).time()


def test_a_statement_gives_rows_with_error_bars_next_to_the_values(connection: Connection) -> None:
    cursor = connection.cursor()
    assert cursor.description is None
    assert cursor.rowcount == -1
    cursor.execute(BY_CARRIER)
    assert cursor.description is not None
    names = ["carrier", "n", "n_error_bar", "n_low", "n_high"]
    assert [name for name, *_ in cursor.description] == names
    kinds = [kind for _, kind, *_ in cursor.description]
    assert kinds == [dbapi.STRING, *[dbapi.NUMBER] * 4]
    assert kinds[0] != dbapi.NUMBER
    assert cursor.rowcount == 3
    (first,) = cursor.fetchmany()
    carrier, count, bar, low, high = first
    assert low <= count <= high
    assert carrier == "AA"
    assert abs(count - 9_000) <= bar < 1_000
    cursor.arraysize = 2
    assert [row[0] for row in cursor.fetchmany()] == ["UA", "other"]
    assert (cursor.fetchone(), cursor.fetchmany(5), cursor.fetchall()) == (None, [], [])
    assert [row[0] for row in cursor.execute(BY_CARRIER)] == ["AA", "UA", "other"]
    assert cursor.table is not None
    assert cursor.table.phases == (1, 1)


# ---------------------------------------------------------------- parameters

ATTRIBUTES = [one.model_dump() for one in Definition.read(definition("flights")).attributes]


@example("O'Hare")
@example("a' OR 1 = 1 --")
@example("\\'")
@example("?")
@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=50))
def test_any_text_is_read_back_as_it_was(text: str) -> None:
    carrier = {**ATTRIBUTES[0], "values": [text, "a", "b"]}
    statement = bound("SELECT COUNT(*) FROM flights WHERE carrier = ?", [text])
    (query,) = sql.plan(statement, [carrier], dataset="flights", unit=None).queries
    assert query["where"] == {"attribute": "carrier", "eq": text}


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        (None, "NULL"),
        (True, "TRUE"),
        (-3, " -3"),
        (1e-7, " 0.0000001"),
        (1e300, f" 1{'0' * 300}"),
        (Decimal("2.50"), " 2.50"),
        (np.int64(7), " 7"),
        (np.bool_(False), "FALSE"),
        (date(2026, 11, 1), "DATE '2026-11-01'"),
        (datetime.fromisoformat("2026-11-01T06:30"), "TIMESTAMP '2026-11-01 06:30:00'"),
        ("O'Hare", "'O''Hare'"),
    ],
)
def test_a_parameter_becomes_a_literal(value: Any, literal: str) -> None:
    assert bound("delay > 1 -?", [value]) == f"delay > 1 -{literal}"
    statement = "a = '?' AND \"?\" = {} -- ?\nAND `?` = {} /* ? */"
    asked = statement.format("?", "?")
    assert bound(asked, [value, 1]) == statement.format(literal, " 1"), (
        "and not in quotes or comments"
    )


UNSAYABLE: list[Any] = [float("nan"), float("inf"), Decimal("NaN"), b"x", [], "a\0"]


@pytest.mark.parametrize(
    ("parameters", "words"),
    [
        *(([value], "cannot be written in SQL") for value in UNSAYABLE),
        ([], "0 are given for 1 question marks"),
        ([1, 2], "2 are given for 1 question marks"),
        ({"a": 1}, "they must be a list"),
        ("x", "they must be a list"),
    ],
)
def test_what_sql_cannot_say_is_refused_and_each_question_mark_needs_its_parameter(
    parameters: Any, words: str
) -> None:
    with pytest.raises(dbapi.DatabaseError, match=f"parameters: .*{words}"):
        bound("a = ?", parameters)


# ---------------------------------------------------------------- errors, and the end


@pytest.mark.parametrize(
    ("statement", "error", "words"),
    [
        ("SELECT COUNT(*) FROM nothing", dbapi.ProgrammingError, "there is no data set 'nothing'"),
        ("SELECT COUNT(*) FROM flights WHERE x", dbapi.ProgrammingError, r"line 1, column 36: "),
        ("SELECT * FROM flights", dbapi.ProgrammingError, "rows are never shown"),
        ("DROP TABLE flights", dbapi.ProgrammingError, "DROP is not answered; ask in a SELECT"),
        ("SELECT MODE(carrier) FROM flights", dbapi.OperationalError, "mode"),
    ],
)
def test_errors_are_those_of_the_client_under_the_names_of_pep_249(
    connection: Connection, statement: str, error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words) as caught:
        connection.cursor().execute(statement)
    assert isinstance(caught.value, dbapi.Error)


def test_the_settings_of_a_connection_hold_for_its_statements(client: WorldClient) -> None:
    connection = Connection(client, dataset="flights", last_phases=1, at_most=1e-6)
    statement = "SELECT COUNT(*) WHERE carrier = ? AND delay >= ? WITHIN 0.1% OF ROWS"
    with pytest.raises(dbapi.OperationalError, match="at_most"):
        connection.cursor().execute(statement, ("UA", 30))
    asked = client.asked[-1]
    assert asked["window"] == {"last_phases": 1}
    both = [{"attribute": "carrier", "eq": "UA"}, {"attribute": "delay", "ge": 30}]
    assert asked["where"] == {"all": both}


def test_a_ping_asks_nothing_and_a_transaction_is_nothing_to_undo(
    connection: Connection, client: WorldClient
) -> None:
    assert connection.cursor().execute("select 1;").fetchall() == [(1,)]
    connection.commit()
    connection.rollback()
    with pytest.raises(dbapi.NotSupportedError, match="stream-dp ingest"):
        connection.cursor().executemany("INSERT INTO flights VALUES (?)", [])
    assert client.asked == []


def test_what_is_closed_says_so(connection: Connection, client: WorldClient) -> None:
    cursor = connection.cursor()
    with pytest.raises(dbapi.ProgrammingError, match="call execute first"):
        cursor.fetchall()
    with cursor:
        cursor.setinputsizes([])
        cursor.setoutputsize(1)
    with pytest.raises(dbapi.InterfaceError, match="this cursor is closed"):
        cursor.execute(BY_CARRIER)
    with connection:
        pass
    connection.close()
    assert client.session.closing
    for call in (connection.cursor, connection.commit, connection.rollback):
        with pytest.raises(dbapi.InterfaceError, match="this connection is closed"):
            call()


def test_without_a_broker_there_is_no_connection() -> None:
    with pytest.raises(dbapi.OperationalError, match="no Kafka broker answers"):
        dbapi.connect("127.0.0.1:1")


# ---------------------------------------------------------------- periods

ORDERS: list[dict[str, Any]] = [
    {"name": "at", "type": "date", "by": "day", "from": "2025-10-20", "until": "2025-11-10"},
    {"name": "hour", "type": "date", "by": "hour", "from": "2025-10-20T00:00",
     "until": "2025-10-20T02:00"},
]  # fmt: skip


@pytest.fixture
def orders(client: WorldClient) -> Connection:
    client.define(definition("orders", attributes=ORDERS))
    hours = ("2025-10-20T00:30", "2025-10-20T01:30")
    days = ("2025-10-19", "2025-10-24", "2025-11-09")
    cells = [{"at": day, "hour": hour, "count": 4_000} for day in days for hour in hours]
    client.send("orders", cells=cells)
    return Connection(client)


@pytest.mark.filterwarnings("ignore:pandas only supports SQLAlchemy")
def test_periods_are_dates_and_times_for_python_and_pandas(orders: Connection) -> None:
    weeks = (
        "SELECT DATE_TRUNC('week', at) AS w, COUNT(*) AS n FROM orders WHERE hour >= ? GROUP BY 1"
    )
    about: Any = {"params": ["2025-10-20T00:00"], "parse_dates": ["w"]}
    frame = pd.read_sql(weeks, orders, **about)  # type: ignore[call-overload]
    assert sorted(frame["w"].dropna().dt.strftime("%m-%d")) == ["10-20", "10-27", "11-03"]
    cursor = orders.cursor()
    for by, column, first in (
        ("week", "at", date(2025, 10, 20)),
        ("hour", "hour", datetime.fromisoformat("2025-10-20T00:00")),
    ):
        cursor.execute(f"SELECT DATE_TRUNC('{by}', {column}) AS p, COUNT(*) FROM orders GROUP BY 1")
        assert {row[0] for row in cursor} >= {None, first}
        assert cursor.description is not None
        assert cursor.description[0][1] == dbapi.DATETIME
    assert cursor.table is not None
    assert str(cursor.table.to_pandas()["p"].dtype) == "datetime64[s]"


def test_a_filter_on_a_virtual_table_is_one_of_dates(orders: Connection) -> None:
    """Superset writes times like these."""
    virtual = "(SELECT at, COUNT(*) AS n FROM orders GROUP BY at) AS v"
    times = "at >= '2025-10-27 00:00:00.000000' AND at < '2025-10-29 00:00:00.000000'"
    rows = orders.cursor().execute(f"SELECT at, n FROM {virtual} WHERE {times}").fetchall()
    assert [row[0] for row in rows] == ["2025-10-27", "2025-10-28"]
