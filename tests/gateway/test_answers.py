"""What questions give over the port: the same as the client, with bars behind, and each query once."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import psycopg
import pytest

from stream_dp.gateway.published_facts import NEWEST_S
from tests.client.world_client import CARRIERS, SessionClient, WorldSession
from tests.gateway.in_process_gateway import InProcessGateway
from tests.web.in_process import InProcess

BY_CARRIER = "SELECT carrier, COUNT(*) AS n, AVG(delay) AS late FROM flights GROUP BY carrier"
JOINED = "SELECT c.region, COUNT(*) FROM flights f JOIN carriers c ON f.carrier = c.code GROUP BY 1"


class Listening:
    """A connection, and the notices that it got."""

    def __init__(self, connection: psycopg.Connection[Any]) -> None:
        self.connection = connection
        self.notices: list[str] = []
        connection.add_notice_handler(lambda told: self.notices.append(told.message_primary or ""))

    def ask(self, text: str) -> tuple[list[str], list[Any]]:
        self.notices.clear()
        found = self.connection.execute(text)
        if found.description is None:
            return [], []
        return [column.name for column in found.description], found.fetchall()

    def fault(self, text: str) -> tuple[str | None, str | None]:
        """The SQLSTATE of a statement, and the place at which it is wrong."""
        with pytest.raises(psycopg.Error) as refused:
            self.ask(text)
        diagnosed = refused.value.diag
        at = diagnosed.statement_position
        return diagnosed.sqlstate, None if at is None else text[int(at) - 1 :]


@pytest.fixture
def listening(connection: psycopg.Connection[Any]) -> Listening:
    return Listening(connection)


@pytest.fixture
def sent(world: InProcess) -> list[Any]:
    """The records that a test sends to the queries."""
    before = len(world.session.sent)

    class Sent(list[Any]):
        def __len__(self) -> int:
            return len(world.session.sent) - before

    return Sent()


def test_bars_stand_behind_all_selected_columns(listening: Listening, world: InProcess) -> None:
    names, rows = listening.ask(BY_CARRIER)
    assert names == ["carrier", "n", "late", "n_error_bar", "late_error_bar"]
    table = SessionClient(world.session).sql(BY_CARRIER)
    assert rows == [(row[0], row[1], row[3], row[2], row[4]) for row in table.rows]
    listening.ask("SET stream_dp.error_bars = off")
    assert listening.ask(BY_CARRIER) == (names[:3], [row[:3] for row in rows])


def test_what_was_asked_before_is_not_asked_again(
    gateway: InProcessGateway, sent: list[Any]
) -> None:
    text = "SELECT COUNT(*) FROM flights WHERE carrier = 'AA' AND cancelled"
    with psycopg.connect(gateway.url()) as one:
        by_carrier = one.execute(BY_CARRIER).fetchall()
    before = len(sent)
    answers = []
    for user in ("ann", "ann", "bob", "ann"):
        with psycopg.connect(gateway.url(user)) as one:
            answers.append(one.execute(text).fetchall())
    assert len(sent) == before + 2  # of ann, and of bob
    with psycopg.connect(gateway.url()) as one:
        first = one.execute(f"{BY_CARRIER} ORDER BY n DESC LIMIT 1").fetchall()
    assert first == [max(by_carrier, key=lambda row: row[1])]
    assert len(sent) == before + 2  # the same answers in another form


def test_prices_and_notes_come_as_notices(listening: Listening) -> None:
    text = "SELECT COUNT(*) AS n FROM flights WHERE delay < 10 AND NOT cancelled"
    listening.ask(text)
    assert len(listening.notices) == 1
    assert listening.notices[0].startswith("1 query; ")
    assert listening.notices[0].endswith("of the budget left; phase 1")
    assert listening.ask("SELECT MIN(delay), MAX(delay) FROM flights")[1]
    assert "declared edges" in listening.notices[0]
    listening.ask("SET stream_dp.notices = off")
    listening.ask(text)
    assert listening.notices == []


def test_explain_is_a_quote(listening: Listening, sent: list[Any]) -> None:
    text = "EXPLAIN SELECT COUNT(*) FROM flights WHERE delay >= 60 AND carrier = 'UA'"
    names, rows = listening.ask(text)
    assert names == ["QUERY PLAN"]
    assert " (cost=0.00.." in rows[0][0]
    assert "1 query together" in rows[1][0]
    assert listening.ask("EXPLAIN SELECT COUNT(*) FROM pg_class")[1][0][0].endswith("width=8)")
    assert len(sent) == 1


def test_columns_without_as_are_called_as_in_postgres(listening: Listening) -> None:
    text = 'SELECT COUNT(*), avg(delay), 2 * COUNT(*), COUNT(*) AS "COUNT(*)" FROM flights'
    assert listening.ask(text)[0][:4] == ["count", "avg", "?column?", "COUNT(*)"]


@pytest.mark.parametrize(
    ("text", "state", "at"),
    [
        ("SELECT COUNT(*) FROM nowhere", "42P01", None),
        ("SELECT COUNT(*) FROM flights WHERE nix = 1", "42703", "nix = 1"),
        ("SELECT delay, COUNT(*) FROM flights", "42803", "delay, COUNT(*) FROM flights"),
        ("SELECT * FROM flights", "42501", "* FROM flights"),
        ("SELECT carrier FROM flights LIMIT 10", "42501", "carrier FROM flights LIMIT 10"),
        ("SELECT COUNT(*) FROM flights WHERE delay >=", "42601", None),
        ("SELECT COUNT(*) FROM flights WHERE delay >= 15", "22023", None),
        ("SELECT COUNT(*) FROM flights UNION SELECT 1", "0A000", None),
    ],
)
def test_a_fault_has_the_state_that_drivers_know(
    listening: Listening, text: str, state: str, at: str | None
) -> None:
    found = listening.fault(text)
    assert found[0] == state
    assert at is None or found[1] == at


def test_a_limit_that_is_too_low_refuses_and_a_higher_one_asks_again(listening: Listening) -> None:
    text = "SELECT COUNT(*) FROM flights WHERE carrier = 'UA' AND delay >= 10 AND NOT cancelled WITHIN 300"
    listening.ask("SET stream_dp.at_most = '0.000001%'")
    assert listening.fault(text)[0] == "53400"
    listening.ask("SET stream_dp.at_most = '50%'")
    assert listening.ask(text)[1]
    listening.ask("RESET stream_dp.at_most")
    listening.ask("SET stream_dp.last_phases = 1")
    assert listening.ask(text)[1]


def test_budgets_are_a_table_and_a_setting(listening: Listening) -> None:
    names, rows = listening.ask("SELECT * FROM stream_dp.budget WHERE dataset = 'flights'")
    assert names[:3] == ["dataset", "phase", "rows"]
    assert [row[1:3] for row in rows] == [(1, 21_000)]
    assert 0.0 < rows[0][-1] < 1.0
    ((said,),) = listening.ask("SHOW stream_dp.budget")[1]
    assert said.startswith("flights: ")


def test_a_public_table_is_any_sql_and_joins(listening: Listening, world: InProcess) -> None:
    SessionClient(world.session).put_dimension(CARRIERS)
    time.sleep(NEWEST_S)
    names, rows = listening.ask("SELECT * FROM carriers ORDER BY code")
    assert names == list(CARRIERS.columns)
    assert rows == sorted(CARRIERS.rows)
    assert listening.ask(JOINED)[0] == ["region", "count", "count_error_bar"]


@pytest.fixture
def own() -> Iterator[tuple[InProcess, InProcessGateway, Listening]]:
    """A world of the test alone, where nothing is yet, its gateway, and a session there."""
    session = WorldSession()
    try:
        world = InProcess(session)
        with (
            InProcessGateway(world) as gateway,
            psycopg.connect(gateway.url(), autocommit=True) as one,
        ):
            yield world, gateway, Listening(one)
    finally:
        session.end()


def test_a_data_set_appears_while_a_session_is_open_and_a_phase_gives_new_answers(own: Any) -> None:
    world, _, listening = own
    assert listening.fault("SELECT COUNT(*) FROM flights")[0] == "42P01"
    world.fill()
    assert listening.ask("SELECT COUNT(*) FROM flights")[1] == [(21_000, 0.0)]
    world.world.cells("flights", "second")
    world.session.run()
    assert listening.ask("SELECT COUNT(*) FROM flights")[1] == [(42_000, 0.0)]


def test_rows_of_other_attributes_are_columns_behind_the_bars(own: Any) -> None:
    world, _, listening = own
    owner = SessionClient(world.fill().session)
    attributes: list[Any] = [
        one.model_dump(exclude_none=True) for one in owner.definition("flights").attributes
    ]
    attributes[0]["values"] = [*attributes[0]["values"], "ZZ"]
    text = "SELECT carrier, COUNT(*) AS n FROM flights GROUP BY carrier"
    names, before = listening.ask(text)
    assert names == ["carrier", "n", "n_error_bar"]
    owner.change_schema("flights", attributes)
    names, rows = listening.ask(text)
    assert names == ["carrier", "n", "n_error_bar", "n_unrecorded_at_most"]
    assert len(rows) == len(before) + 1, "the answer of before is not given again"
    more = {row[0]: row[3] for row in rows}
    assert more["ZZ"] > 3_900, "they are in other, which they may have been"
    assert more["AA"] == 0
    assert any("all of this is recorded since phase 2" in said for said in listening.notices)
    exact = "SELECT COUNT(*) AS n FROM flights"
    assert listening.ask(exact)[1] == [(21_000, 0.0, 0)]
    listening.ask("SET stream_dp.error_bars = off")
    assert listening.ask(exact) == (["n"], [(21_000,)])
    world.world.cells("flights", "second")
    world.session.run()
    assert listening.ask(exact) == (["n"], [(42_000,)]), "a phase still gives new answers"


def test_no_literal_reaches_a_log_or_another_one(
    gateway: InProcessGateway, caplog: pytest.LogCaptureFixture
) -> None:
    texts = (
        "SELECT COUNT(*) FROM flights WHERE carrier = 'hidden'",
        "SELECT COUNT(*) FROM flights WHERE nix = 'hidden'",
        "SELECT 'hidden' FROM pg_class WHERE relname ~ '(hidden'",
        "SELECT hidden('hidden') FROM pg_class",
        "SELECT 'hidden' INTO x FROM",
        "SELECT 'hidden'::regclass",
        "EXPLAIN SELECT COUNT(*) FROM flights WHERE carrier = 'hidden'",
        "CREATE TABLE hidden AS SELECT 'hidden'",
    )
    with caplog.at_level(logging.DEBUG), psycopg.connect(gateway.url(), autocommit=True) as one:
        for text in texts:
            with contextlib.suppress(psycopg.Error):
                one.execute(text)
    assert "hidden" not in caplog.text


def test_a_public_table_that_changes_changes_what_is_joined(
    listening: Listening, world: InProcess
) -> None:
    client = SessionClient(world.session)
    regions = []
    for east in ("east", "orient"):
        rows = tuple((code, east, planes) for code, _, planes in CARRIERS.rows)
        client.put_dimension(CARRIERS.model_copy(update={"rows": rows}))
        time.sleep(NEWEST_S)
        listening.ask("SELECT * FROM stream_dp.budget")  # reads again what has changed
        regions.append({row[0] for row in listening.ask(JOINED)[1]})
    found = ["east" in regions[0], "orient" in regions[1], "east" in regions[1]]
    assert found == [True, True, False]


def test_facts_follow_events_and_survive_a_lost_connection(own: Any) -> None:
    world, gateway, listening = own
    for n_known, come in enumerate((lambda work: work(), gateway.lose), 1):
        name = f"flights{n_known}"
        come(partial(world.fill, name))
        assert listening.ask(f"SELECT COUNT(*) FROM {name}")[1] == [(21_000, 0.0)]
        found = listening.ask("SELECT COUNT(*) FROM pg_class WHERE relname LIKE 'flights%'")
        assert found[1] == [(n_known,)]


def test_bars_that_are_turned_off_do_not_break_what_was_prepared(gateway: InProcessGateway) -> None:
    with psycopg.connect(gateway.url(), autocommit=True, prepare_threshold=0) as one:
        one.execute(BY_CARRIER).fetchall()
        one.execute("SET stream_dp.error_bars = off")
        with pytest.raises(psycopg.Error, match="cached plan must not change result type"):
            one.execute(BY_CARRIER).fetchall()


def test_a_fault_under_explain_points_into_the_text(listening: Listening) -> None:
    text = "/* a */ EXPLAIN SELECT COUNT(*) FROM flights WHERE nix = 1"
    assert listening.fault(text) == ("42703", "nix = 1")
    assert listening.fault("EXPLAIN SELECT COUNT(*) FROM nowhere")[0] == "42P01"
