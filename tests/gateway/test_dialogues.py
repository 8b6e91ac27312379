"""Dialogues of bytes: what each message of a client is answered with."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_dp.gateway.protocol.client_messages import Bind, Execute, NamedObject, Parse, StartUp
from stream_dp.gateway.protocol.sql_fault import SqlFault
from tests.gateway.in_process_gateway import InProcessGateway
from tests.gateway.raw_client import (
    SYNC,
    RawClient,
    bind,
    describe,
    execute,
    fields,
    message,
    parse,
    query,
)
from tests.waiting import until

CARRIERS = "SELECT carrier, COUNT(*) AS n FROM flights GROUP BY carrier"


@pytest.fixture
def raw(gateway: InProcessGateway) -> Iterator[RawClient]:
    with RawClient(gateway.port) as client:
        yield client


def state_of(read: Callable[[], object]) -> str | None:
    """The SQLSTATE of what reading raises. None if it raises nothing."""
    try:
        read()
    except SqlFault as fault:
        return fault.state
    return None


@given(st.binary(max_size=80))
def test_any_body_is_read_or_refused(body: bytes) -> None:
    start_up = partial(StartUp.read, 3 << 16)
    readers = (Parse.read, Bind.read, NamedObject.read, Execute.read, start_up)
    assert {state_of(partial(read, body)) for read in readers} <= {None, "08P01"}


def test_what_a_client_is_told_first(raw: RawClient) -> None:
    said = raw.start(user="ann", database="stream_dp", application_name="psql").until("Z")
    assert "".join(kind for kind, _ in said) == "R" + "S" * (len(said) - 3) + "KZ"
    told = dict(body.decode().split("\0")[:2] for kind, body in said if kind == "S")
    assert told["server_version"].startswith("15.0 (stream_dp")
    assert (told["session_authorization"], told["application_name"]) == ("ann", "psql")
    assert said[-1] == ("Z", b"I")


def test_encryption_that_there_is_not_is_refused_politely(raw: RawClient) -> None:
    assert raw.send(struct.pack("!ii", 8, 80877104)).exactly(1) == b"N"
    assert raw.send(struct.pack("!ii", 8, 80877103)).exactly(1) == b"N"
    assert raw.start(user="ann").until("Z")


def test_a_newer_version_is_told_which_one_is_spoken(raw: RawClient) -> None:
    said = raw.start((3 << 16) + 2, user="ann", **{"_pq_.new": "1"}).read()
    assert said == ("v", struct.pack("!ii", 3 << 16, 1) + b"_pq_.new\0")


@pytest.mark.parametrize(
    "first",
    [
        struct.pack("!ii", 8, 2 << 16),
        struct.pack("!ii", 20_000, 3 << 16),
        struct.pack("!ii", 4, 3 << 16),
        struct.pack("!iiii", 16, 80877102, 1, 2),
        b"GET / HTTP/1.1\r\n\r\n",
    ],
)
def test_other_beginnings_end_the_connection(raw: RawClient, first: bytes) -> None:
    raw.send(first)
    assert raw.rest()[:1] in (b"", b"E")


def test_an_error_skips_to_sync_and_is_sent_at_once(raw: RawClient) -> None:
    raw.enter().send(parse("SELECT COUNT(*) FROM flights WHERE nix = 1") + bind() + execute())
    kind, body = raw.read()
    assert (kind, fields(body)["C"]) == ("E", "42703")  # before Sync
    raw.send(SYNC)
    assert raw.read() == ("Z", b"I")
    raw.send(parse(CARRIERS) + bind() + describe("P") + execute() + SYNC)
    assert "".join(kind for kind, _ in raw.until("Z")) == "12TNDDDCZ"


def test_a_portal_is_read_in_parts(raw: RawClient) -> None:
    raw.enter().send(query("BEGIN")).until("Z")
    raw.send(parse(CARRIERS) + bind(portal="c") + execute(2, "c") + SYNC)
    assert [kind for kind, _ in raw.until("Z") if kind != "N"] == ["1", "2", "D", "D", "s", "Z"]
    raw.send(execute(2, "c") + SYNC)
    said = raw.until("Z")
    assert said == [("D", said[0][1]), ("C", b"SELECT 1\0"), ("Z", b"T")]


def test_several_statements_in_a_text_stop_at_the_first_error(raw: RawClient) -> None:
    text = f"{CARRIERS} LIMIT 1; BEGIN; SELECT COUNT(*) FROM flights WHERE nix = 1; {CARRIERS}"
    said = raw.enter().send(query(text)).until("Z")
    assert "".join(kind for kind, _ in said if kind != "N") == "TDCCEZ"
    assert said[-1] == ("Z", b"E")
    (error,) = [fields(body) for kind, body in said if kind == "E"]
    assert text[int(error["P"]) - 1 :].startswith("nix")
    said = raw.send(query("SELECT 1")).until("Z")
    assert fields(said[0][1])["C"] == "25P02"
    assert raw.send(query("ROLLBACK")).until("Z") == [("C", b"ROLLBACK\0"), ("Z", b"I")]


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("SET timezone = 'CET'", "CET"),
        ("SET LOCAL timezone = 'CET'", "UTC"),
        ("BEGIN; SET LOCAL TIME ZONE 'CET'", "CET"),
        ("BEGIN; SET LOCAL timezone = 'CET'; COMMIT", "UTC"),
        ("BEGIN; SET LOCAL timezone = 'CET'; SET timezone = 'EET'; COMMIT", "EET"),
        ("BEGIN; SET timezone = 'CET'; COMMIT", "CET"),
        ("BEGIN; SET timezone = 'CET'; ROLLBACK", "UTC"),
        ("SET timezone = 'CET'; BEGIN; SET timezone = 'EET'; BEGIN; ROLLBACK", "CET"),
        ("SET timezone = 'CET'; RESET ALL", "UTC"),
        ("SET timezone = 'CET'; RESET timezone", "UTC"),
        ("SET timezone = 'CET'; DISCARD ALL", "UTC"),
    ],
)
def test_a_setting_lasts_as_long_as_in_postgres_and_drivers_are_told(
    raw: RawClient, sent: str, shown: str
) -> None:
    raw.enter()
    told = ["UTC"]
    for piece in sent.split("; "):
        for kind, body in raw.send(query(piece)).until("Z"):
            if kind == "S":
                assert body.startswith(b"TimeZone\0")
                told.append(body.split(b"\0")[1].decode())
    assert raw.send(query("SHOW timezone")).until("Z")[1][1].endswith(shown.encode())
    assert told[-1] == shown


def test_a_cursor_with_hold_outlives_its_transaction(raw: RawClient) -> None:
    raw.enter()
    for name, hold in (("kept", "WITH HOLD "), ("hold", "")):
        raw.send(query(f"BEGIN; DECLARE {name} CURSOR {hold}FOR {CARRIERS}; COMMIT")).until("Z")
    assert raw.send(query("FETCH ALL FROM kept")).until("Z")[-2] == ("C", b"FETCH 3\0")
    (error, _) = raw.send(query("FETCH ALL FROM hold")).until("Z")
    assert fields(error[1])["C"] == "34000"


@pytest.mark.parametrize("head", ["EXPLAIN ", "DECLARE c CURSOR WITH HOLD FOR  "])
def test_a_question_in_a_command_has_parameters_and_positions_of_its_own(
    raw: RawClient, head: str
) -> None:
    asked = f"{head}SELECT COUNT(*) FROM flights WHERE delay >= $1"
    raw.enter().send(parse(asked) + describe("S") + bind(b"30") + execute() + SYNC)
    said = raw.until("Z")
    assert "E" not in [kind for kind, _ in said]
    assert said[1] == ("t", struct.pack("!hI", 1, 20))
    wrong = f"{head}SELECT COUNT(*) FROM flights WHERE nix >= 1"
    (error,) = [fields(body) for kind, body in raw.send(query(wrong)).until("Z") if kind == "E"]
    assert wrong[int(error["P"]) - 1 :].startswith("nix")


@pytest.mark.parametrize(
    ("sent", "state"),
    [
        (bind(name="none"), "26000"),
        (execute(0, "none"), "34000"),
        (describe("P", "none"), "34000"),
        (parse("SELECT 1; SELECT 2"), "42601"),
        (parse("SELECT COUNT(*) FROM flights WHERE delay >= $1") + bind(), "08P01"),
        (parse("SELECT COUNT(*) FROM flights WHERE delay >= $1") + bind(b"x"), "22P02"),
        (query("SELECT COUNT(*) FROM flights WHERE delay >= $1"), "42P02"),
        (query("COPY flights TO STDOUT"), "42501"),
        (query("INSERT INTO flights VALUES (1)"), "25006"),
        (query("EXPLAIN ANALYZE SELECT COUNT(*) FROM flights"), "0A000"),
        (query("SHOW nothing"), "42704"),
        (query("SET stream_dp.error_bars = perhaps"), "22023"),
        (query("SET stream_dp.nothing = 1"), "42704"),
        (query("FETCH 1 FROM nothing"), "34000"),
        (query("DECLARE c CURSOR FOR SELECT 1"), "25P01"),
        (query("ROLLBACK TO SAVEPOINT nothing"), "25P01"),
        (query("@"), "42601"),
    ],
)
def test_what_is_wrong_has_the_state_that_drivers_know(
    raw: RawClient, sent: bytes, state: str
) -> None:
    raw.enter().send(sent if sent[:1] == b"Q" else sent + SYNC)
    assert fields(raw.until("E")[-1][1])["C"] == state
    raw.until("Z")
    assert raw.send(query("SHOW timezone")).until("Z")[1][1].endswith(b"UTC")


@pytest.mark.parametrize(
    "sent",
    [message("?"), b"Q" + struct.pack("!i", 1 << 24), message("P", b"x"), message("D", b"Xn\0")],
)
def test_what_is_no_message_ends_the_connection(raw: RawClient, sent: bytes) -> None:
    raw.enter().send(sent)
    said = fields(raw.until("E")[-1][1])
    assert (said["S"], said["V"], said["C"], len(said)) == ("FATAL", "FATAL", "08P01", 4)
    assert raw.is_closed()


def test_a_connection_may_end_after_any_byte(gateway: InProcessGateway) -> None:
    whole = parse(CARRIERS) + bind() + describe("P") + execute() + SYNC
    for end in range(len(whole)):
        with RawClient(gateway.port) as client:
            client.enter().send(whole[:end])
    with RawClient(gateway.port) as client:
        assert client.enter().send(whole).until("Z")[-1] == ("Z", b"I")


def test_another_connection_cancels_a_statement(gateway: InProcessGateway) -> None:
    """The record was sent, so that asking again gives its answer."""
    asked = "SELECT COUNT(*) FROM flights WHERE carrier = 'UA' AND delay >= 30"
    with RawClient(gateway.port) as client:
        said = client.start(user="cal").until("Z")
        (key,) = [body for kind, body in said if kind == "K"]
        gateway.world.sleep()
        try:
            client.send(query(asked))
            time.sleep(0.3)
            with RawClient(gateway.port) as other:
                other.send(struct.pack("!ii", 8 + len(key), 80877102) + key)
                assert other.is_closed()
            said = client.until("Z")
            assert fields(said[0][1])["C"] == "57014"
        finally:
            gateway.wake()
        assert "D" in [kind for kind, _ in client.send(query(asked)).until("Z")]


def test_a_time_limit_ends_a_statement(gateway: InProcessGateway) -> None:
    with RawClient(gateway.port) as client:
        client.enter().send(query("SET statement_timeout = '200ms'")).until("Z")
        gateway.world.sleep()
        try:
            client.send(query("SELECT COUNT(*) FROM flights WHERE carrier = 'AA' AND delay >= 30"))
            assert fields(client.until("Z")[0][1])["C"] == "57014"
        finally:
            gateway.wake()


def test_describing_asks_nothing(gateway: InProcessGateway, raw: RawClient) -> None:
    raw.enter()
    before = len(gateway.world.session.sent)
    asked = "SELECT carrier, COUNT(*) AS n FROM flights WHERE delay >= $1 AND cancelled GROUP BY 1"
    raw.send(parse(asked, "s") + describe("S", "s") + SYNC)
    said = dict(raw.until("Z"))
    assert said["t"] == struct.pack("!hI", 1, 20)
    assert [part.split(b"\0")[0][-11:] for part in (said["T"][2:],)] == [b"carrier"]
    assert len(gateway.world.session.sent) == before


def test_a_client_that_leaves_gives_up_its_statement(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.gateway.protocol.connection._LOOK_S", 0.05)
    gateway.world.sleep()
    try:
        until(lambda: gateway.server.n_open == 0)
        with RawClient(gateway.port) as client:
            client.enter().send(query("SELECT COUNT(*) FROM flights WHERE delay < 10"))
            time.sleep(0.2)
            assert gateway.server.n_open == 1
        until(lambda: gateway.server.n_open == 0)
    finally:
        gateway.wake()
