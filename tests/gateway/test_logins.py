"""Who may log in, and what others learn."""

from __future__ import annotations

import ssl
import struct
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from stream_dp.errors import InvalidInput
from stream_dp.gateway import gateway_logins
from stream_dp.gateway.accounts import Account, accounts_in, scram_verifier_of, write_account
from stream_dp.tokens import Verifier
from tests.certificates import make_certificate
from tests.gateway.in_process_gateway import InProcessGateway
from tests.gateway.raw_client import RawClient, fields, message
from tests.signing import Issuer
from tests.web.in_process import InProcess

COUNT = "SELECT COUNT(*) FROM flights"
PASSWORD = "a long enough password"


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Issuer:
    return Issuer(tmp_path_factory.mktemp("issuer"))


def token(issuer: Issuer, **claims: Any) -> str:
    return issuer.token(**{"exp": int(time.time()) + 600, **claims})


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory, issuer: Issuer) -> Path:
    folder = tmp_path_factory.mktemp("accounts")
    (folder / "token").write_text(token(issuer, sub="superset"))
    write_account(folder / "accounts.json", "bi", PASSWORD, str(folder / "token"))
    write_account(folder / "accounts.json", "empty", PASSWORD, None)
    return folder / "accounts.json"


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make_certificate(tmp_path_factory.mktemp("certificate"))


@pytest.fixture(scope="module")
def guarded(
    world: InProcess, issuer: Issuer, accounts: Path, certificate: tuple[Path, Path]
) -> Iterator[InProcessGateway]:
    """A gateway as others reach it: it needs TLS, and tokens or accounts."""
    verifier = Verifier(str(issuer.file))
    verifier.load()
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certificate)
    with InProcessGateway(
        world, tls=tls, verifier=verifier, accounts=accounts, is_local=False
    ) as running:
        yield running


@pytest.fixture(autouse=True)
def no_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway_logins, "_FIRST_DELAY_S", 0.001)


def connect(gateway: InProcessGateway, user: str, password: str, **more: Any) -> Any:
    return psycopg.connect(gateway.url(), user=user, password=password, autocommit=True, **more)


def test_a_token_is_the_password_of_its_sub(guarded: InProcessGateway, issuer: Issuer) -> None:
    before = len(guarded.world.session.sent)
    with connect(guarded, "ana", token(issuer), sslmode="require") as one:
        assert one.info.parameter_status("session_authorization") == "ana"
        assert one.execute(f"{COUNT} WHERE delay >= 30").fetchone()
    sent = guarded.world.session.sent[before:]
    assert {headers["authorization"][:7] for *_, headers in sent} == {b"Bearer "}


@pytest.mark.parametrize(
    ("user", "claims", "state"),
    [
        ("eve", {}, "28P01"),
        ("ana", {"exp": 1_700_000_000}, "28000"),
        ("ana", {"nbf": 4_000_000_000}, "28P01"),
    ],
)
def test_other_tokens_open_nothing(
    guarded: InProcessGateway, issuer: Issuer, user: str, claims: dict[str, Any], state: str
) -> None:
    with pytest.raises(psycopg.OperationalError, match="FATAL") as refused:
        connect(guarded, user, token(issuer, **claims))
    assert ("the token has expired" in str(refused.value)) == (state == "28000")
    assert token(issuer, **claims) not in str(refused.value)


def test_a_token_shows_the_data_sets_of_its_audience(
    guarded: InProcessGateway, issuer: Issuer
) -> None:
    with connect(guarded, "ana", token(issuer, aud="others")) as one:
        for condition in ("", " WHERE nix = 1", " WHERE carrier > 'x'", " GROUP BY nix"):
            with pytest.raises(psycopg.errors.UndefinedTable) as refused:
                one.execute(COUNT + condition)
            assert "carrier" not in str(refused.value)
        assert (
            one.execute("SELECT relname FROM pg_class WHERE relname = 'flights'").fetchall() == []
        )


def test_a_token_ends_in_the_middle_of_a_connection(
    guarded: InProcessGateway, issuer: Issuer
) -> None:
    with connect(guarded, "ana", token(issuer, exp=int(time.time()) + 2)) as one:
        assert one.execute(COUNT).fetchone()
        time.sleep(2.1)
        with pytest.raises(psycopg.Error, match="the token has expired") as refused:
            one.execute(COUNT)
    assert refused.value.sqlstate == "28000"


def test_nobody_logs_in_without_encryption(guarded: InProcessGateway, issuer: Issuer) -> None:
    for user, password in (("ana", token(issuer)), ("bi", PASSWORD)):
        with pytest.raises(psycopg.OperationalError, match="needs an encrypted connection"):
            connect(guarded, user, password, sslmode="disable")


def test_bytes_before_the_handshake_end_the_connection(guarded: InProcessGateway) -> None:
    with RawClient(guarded.port) as raw:
        start = struct.pack("!ii", 22, 3 << 16) + b"user\0ana\0\0"
        raw.send(struct.pack("!ii", 8, 80877103) + start)
        assert raw.rest() == b""


def test_an_account_asks_under_the_token_in_its_file(
    guarded: InProcessGateway, issuer: Issuer, accounts: Path
) -> None:
    with connect(guarded, "bi", PASSWORD) as one:
        assert one.execute(f"{COUNT} WHERE cancelled").fetchone()
        assert guarded.world.session.sent[-1][2] is not None
        assert b'"analyst":"superset"' in (guarded.world.session.sent[-1][2] or b"")
        (accounts.parent / "token").write_text(token(issuer, sub="superset", aud="others"))
        with pytest.raises(psycopg.errors.UndefinedTable):
            one.execute(f"{COUNT} WHERE cancelled")
        (accounts.parent / "token").write_text(token(issuer, sub="superset"))
        assert one.execute(f"{COUNT} WHERE cancelled").fetchone()


@pytest.mark.parametrize(
    ("user", "password", "words"),
    [
        ("bi", "another password", "password authentication failed"),
        ("nobody", PASSWORD, "password authentication failed"),
        ("empty", PASSWORD, "has no token"),
    ],
)
def test_other_accounts_open_nothing(
    guarded: InProcessGateway, user: str, password: str, words: str
) -> None:
    with pytest.raises(psycopg.OperationalError, match=words):
        connect(guarded, user, password)


def test_without_tokens_an_account_asks_in_its_own_name(world: InProcess, accounts: Path) -> None:
    with InProcessGateway(world, accounts=accounts) as gateway:
        with connect(gateway, "bi", PASSWORD) as one:
            assert one.execute(f"{COUNT} WHERE delay < 10").fetchone()
        assert b'"analyst":"bi"' in (world.session.sent[-1][2] or b"")
        steps = []
        for user in ("bi", "nobody"):
            with RawClient(gateway.port) as raw:
                raw.start(user=user).read()
                first = b"SCRAM-SHA-256\0" + struct.pack("!i", 17) + b"n,,n=,r=abcdefghi"
                kind, body = raw.send(message("p", first)).read()
                salt = body[4:].split(b",s=")[1].split(b",")[0]
                steps.append((kind, len(body), len(salt)))
        assert steps[0] == steps[1]  # whether an account exists does not show


def test_logins_that_fail_become_slow(
    world: InProcess, accounts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway_logins, "_FIRST_DELAY_S", 8.0)
    with InProcessGateway(world, accounts=accounts) as gateway:
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            connect(gateway, "bi", "another password")
        with pytest.raises(psycopg.errors.ConnectionTimeout):
            connect(gateway, "bi", PASSWORD, connect_timeout=2)
        with RawClient(gateway.port) as raw:
            assert raw.start(user="other").read()[0] == "R"  # another name does not wait


def test_too_many_connections_are_refused(
    world: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.gateway.gateway_server._MOST_CONNECTIONS", 1)
    with InProcessGateway(world) as gateway, RawClient(gateway.port) as one:
        one.enter()
        with RawClient(gateway.port) as two:
            said = fields(two.start(user="ann").read()[1])
        assert (said["C"], said["S"]) == ("53300", "FATAL")


def test_a_login_that_takes_too_long_is_ended(
    gateway: InProcessGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stream_dp.gateway.gateway_server._LOGIN_S", 0.1)
    with RawClient(gateway.port) as raw:
        assert raw.send(b"\0\0\0").rest() == b""


def test_accounts_are_read_with_a_clear_error(tmp_path: Path) -> None:
    path = tmp_path / "accounts.json"
    with pytest.raises(InvalidInput, match="cannot be read"):
        accounts_in(path)
    path.write_text('{"bi": {"verifier": "hunter2"}}')
    with pytest.raises(InvalidInput, match=r"bi\.verifier") as refused:
        accounts_in(path)
    assert "hunter2" not in str(refused.value)
    with pytest.raises(InvalidInput, match="fewer than 16 characters"):
        write_account(path, "bi", "short", None)
    assert scram_verifier_of(PASSWORD) not in repr(Account(verifier=scram_verifier_of(PASSWORD)))


def test_a_file_that_breaks_leaves_the_accounts_of_before(world: InProcess, tmp_path: Path) -> None:
    path = tmp_path / "accounts.json"
    write_account(path, "bi", PASSWORD, None)
    with InProcessGateway(world, accounts=path) as gateway:
        connect(gateway, "bi", PASSWORD).close()
        path.write_text("{")
        connect(gateway, "bi", PASSWORD).close()
        with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
            connect(gateway, "eve", PASSWORD)


@pytest.mark.parametrize(("name", "password"), [("my tool", PASSWORD), ("bi", PASSWORD + "\ufb01")])
def test_an_account_that_could_not_log_in_is_not_written(
    tmp_path: Path, name: str, password: str
) -> None:
    with pytest.raises(InvalidInput, match="printable ASCII"):
        write_account(tmp_path / "accounts.json", name, password, None)


def test_another_database_is_refused(gateway: InProcessGateway) -> None:
    with pytest.raises(psycopg.OperationalError, match='database "sales" does not exist'):
        psycopg.connect(gateway.url(database="sales"))


def test_a_file_of_accounts_is_its_owners_alone(tmp_path: Path) -> None:
    path = tmp_path / "accounts.json"
    write_account(path, "bi", PASSWORD, None)
    write_account(path, "dbt", PASSWORD, None)
    assert path.stat().st_mode & 0o777 == 0o600
    assert accounts_in(path).keys() == {"bi", "dbt"}
    assert PASSWORD not in path.read_text()
