"""What a token must be to be believed, and where the keys come from."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from hypothesis import given
from hypothesis import strategies as st

from stream_dp import tokens
from stream_dp.errors import InvalidInput, InvalidMessage, ServerUnavailable
from stream_dp.settings import worker_settings
from stream_dp.tokens import Verifier, bearer_in, verifier_of
from tests.signing import NOW_MS, Issuer, private, public

NOW_S = NOW_MS / 1000


async def refused(verifier: Verifier, token: str) -> str:
    """The reason for which a token is refused at once, whatever it is for."""
    with pytest.raises(InvalidMessage) as caught:
        await verifier.verified(token)
    assert caught.value.field == "authorization"
    assert len(token) < 8 or token not in str(caught.value), "an error quotes no token"
    return caught.value.reason


def encoded(part: object) -> str:
    content = part if isinstance(part, bytes) else json.dumps(part).encode()
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


@pytest.mark.parametrize("algorithm", ["ES256", "ES384", "ES512", "EdDSA", "RS256", "PS512"])
async def test_what_the_issuer_signed_is_read(tmp_path: Path, algorithm: str) -> None:
    issuer = Issuer(tmp_path, algorithm)
    verifier = Verifier(str(issuer.file))
    verifier.load()
    for _ in range(2):  # the second time it is remembered
        token = await verifier.verified(issuer.token(aud=["flights", "trains"], nbf=NOW_S))
        assert token.analyst == "ana"
        assert token.datasets == {"flights", "trains"}
        token.check_time(NOW_S)
        token.check_dataset("flights")
        token.check_analyst("ana")


async def test_its_time_is_compared_with_the_time_that_is_named(
    issuer: Issuer, verifier: Verifier
) -> None:
    token = await verifier.verified(issuer.token(exp=1000.5, nbf=100))
    token.check_time(1000.4)
    token.check_time(70)
    with pytest.raises(InvalidMessage, match="expired") as caught:
        token.check_time(1000.5)
    assert caught.value.reason == "token_expired"
    with pytest.raises(InvalidMessage, match="not valid yet"):
        token.check_time(69)


async def test_it_is_for_the_data_sets_and_the_analyst_that_it_names(
    issuer: Issuer, verifier: Verifier
) -> None:
    token = await verifier.verified(issuer.token())
    with pytest.raises(InvalidMessage, match="another data set"):
        token.check_dataset("flight")
    with pytest.raises(InvalidMessage, match="another data set"):
        token.check_dataset("flights-by-person")
    with pytest.raises(InvalidMessage, match="another analyst"):
        token.check_analyst("an")


def signed(issuer: Issuer, payload: bytes | dict[str, Any], **head: Any) -> str:
    """A token of the issuer with whatever claims and head."""
    parts = f"{encoded({'alg': issuer.algorithm, 'kid': 'first', **head})}.{encoded(payload)}"
    signature = jwt.get_algorithm_by_name(issuer.algorithm).sign(parts.encode(), issuer.key)
    return f"{parts}.{encoded(signature)}"


def symmetric(issuer: Issuer, secret: bytes) -> str:
    parts = f"{encoded({'alg': 'HS256', 'kid': 'first'})}.{encoded(issuer.claims())}"
    return f"{parts}.{encoded(hmac.digest(secret, parts.encode(), hashlib.sha256))}"


def pem(issuer: Issuer) -> bytes:
    public_key = serialization.PublicFormat.SubjectPublicKeyInfo
    return bytes(issuer.key.public_key().public_bytes(serialization.Encoding.PEM, public_key))


def spoilt(issuer: Issuer) -> Iterator[tuple[str, str]]:
    """Tokens that nobody should believe, and what is wrong with each."""
    head, claims, signature = issuer.token().split(".")
    stranger = private("ES256", 7)
    for name in ("none", "None", "NONE", "nOnE"):
        for none in ("", "c2ln"):
            yield f"signed by {name}", f"{encoded({'alg': name, 'kid': 'first'})}.{claims}.{none}"
    for secret in (pem(issuer), issuer.file.read_bytes()):
        yield "signed with what anyone can read", symmetric(issuer, secret)
    yield "another's claims", f"{head}.{encoded(issuer.claims(sub='bob'))}.{signature}"
    for own in ({}, {"jwk": public(stranger, "first")}):  # a key that the token brings along
        headers = {"kid": "first", **own}
        yield "a stranger's", jwt.encode(issuer.claims(), stranger, "ES256", headers=headers)
    for kid in ("other", None, 7):
        yield f"the key {kid}", signed(issuer, issuer.claims(), kid=kid)
    for crit in (["exp"], ["b64"], [], "exp"):  # an extension that must be understood
        yield f"crit {crit}", signed(issuer, issuer.claims(), crit=crit, b64=True, exp=1)
    for kind in ("logout+jwt", "dpop+jwt", "secevent+jwt", "JOSE", "application/", "JWT ", 7):
        yield f"of the type {kind}", signed(issuer, issuer.claims(), typ=kind)
    yield "of a list of types", signed(issuer, issuer.claims(), typ=["JWT"])
    for use in ("ID", "Refresh", "Offline", "", 1, None, ["Bearer"]):
        yield f"for {use}", signed(issuer, {**issuer.claims(), "typ": use})
    wrong: dict[str, list[Any]] = {
        "exp": [None, "1700000600", True, 1e300],
        "nbf": ["soon"],
        "sub": [None, 7, "", "ana maria", "a" * 129],
        "aud": [None, {"flights": 1}, ["flights", 7]],
    }
    for claim, values in wrong.items():
        for value in values:
            yield f"{claim} {value}", signed(issuer, issuer.claims(**{claim: value}))
    for payload in (b"", b"[]", b"7", b"[" * 3000, b'{"exp": NaN}', b"\xff"):
        yield f"no claims, {payload!r}", signed(issuer, payload)
    deep = f"{encoded(b'[' * 3000)}.e30."
    for token in ("", ".", "..", "a.b.c", "a.b.c.d.e", "\u00e4.b.c", deep, "x" * 9000):
        yield "no token", token


async def test_whatever_is_wrong_with_a_token_it_is_not_believed(
    issuer: Issuer, verifier: Verifier
) -> None:
    for what, token in spoilt(issuer):
        assert await refused(verifier, token) == "unauthorized", what
    assert (await verifier.verified(signed(issuer, issuer.claims()))).analyst == "ana"


@given(st.data())
async def test_no_change_to_a_token_is_believed(data: st.DataObject) -> None:
    with TemporaryDirectory() as folder:
        issuer = Issuer(Path(folder))
        verifier = Verifier(str(issuer.file))
        verifier.load()
    token = issuer.token()
    at = data.draw(st.integers(0, len(token) - 1))
    other = data.draw(st.characters(codec="utf-8").filter(lambda one: one != token[at]))
    assert await refused(verifier, token[:at] + other + token[at + 1 :]) == "unauthorized"
    assert await refused(verifier, data.draw(st.text(max_size=50))) == "unauthorized"


async def test_only_the_issuer_that_was_named_is_believed(issuer: Issuer) -> None:
    verifier = Verifier(str(issuer.file), issuer="https://id.example")
    verifier.load()
    assert (await verifier.verified(issuer.token(iss="https://id.example"))).analyst == "ana"
    for name in ("https://id.example/", None):
        assert await refused(verifier, issuer.token(iss=name)) == "unauthorized"


@pytest.mark.parametrize("typ", ["JWT", "jwt", "at+jwt", "AT+JWT", "application/at+jwt", None])
async def test_a_type_of_access_tokens_or_none_is_good(
    issuer: Issuer, verifier: Verifier, typ: str | None
) -> None:
    token = issuer.token(headers={"typ": typ}, typ="Bearer" if typ == "JWT" else None)
    assert ("typ" in jwt.get_unverified_header(token)) == (typ is not None)
    assert (await verifier.verified(token)).analyst == "ana"


def test_the_header_says_bearer_and_a_token() -> None:
    for header in (b"Bearer a.b.c", "bearer a.b.c", "BEARER  a.b.c"):
        assert bearer_in(header) == "a.b.c"
    wrong: bytes | None
    for wrong in (None, b"", b"a.b.c", b"Basic a.b.c", b"Bearer", b"Bearer "):
        with pytest.raises(InvalidMessage) as caught:
            bearer_in(wrong)
        assert caught.value.reason == "unauthorized"


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Verifier, str]:
    """The keys and the token that the script in the docs makes."""
    page = (Path(__file__).parents[2] / "docs/identity.md").read_text()
    (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(script, {})
    verifier = Verifier("keys.json")
    verifier.load()
    return verifier, (tmp_path / "ann.token").read_text()


async def test_the_script_in_the_docs_makes_a_token_that_is_accepted(
    scripted: tuple[Verifier, str],
) -> None:
    verifier, signed = scripted
    token = await verifier.verified(signed)
    assert (token.analyst, token.datasets) == ("ann", {"people"})
    token.check_time(time.time() + 3590)


# ---------------------------------------------------------------- keys


@pytest.mark.parametrize(
    "change",
    [
        {"use": "enc"},
        {"key_ops": ["sign"]},
        {"key_ops": None},
        {"alg": "ES384"},
        {"alg": "HS256"},
        {"crv": "secp256k1"},
        {"crv": []},
        {"kty": "oct", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"},
        {"kid": 7},
        {"d": "AAAA"},
        {"x": "AAAA"},
    ],
)
def test_a_key_that_is_not_for_verifying_is_left_out(
    issuer: Issuer, verifier: Verifier, change: dict[str, Any]
) -> None:
    good = public(private("EdDSA"), "good", use="sig", alg="EdDSA", key_ops=["verify"])
    issuer.publish({**public(issuer.key, "first"), **change}, good)
    verifier.load()
    assert verifier.n_keys == 1
    issuer.publish({**public(issuer.key, "first"), **change})
    with pytest.raises(InvalidInput, match="no key to verify tokens with"):
        verifier.load()


async def test_a_key_is_used_for_its_own_algorithm_alone(tmp_path: Path) -> None:
    issuer = Issuer(tmp_path, "RS256")
    issuer.publish(public(issuer.key, "first", alg="RS256"))
    verifier = Verifier(str(issuer.file))
    verifier.load()
    assert (await verifier.verified(issuer.token())).analyst == "ana"
    issuer.algorithm = "PS256"
    assert await refused(verifier, issuer.token()) == "unauthorized"


def test_a_short_key_is_left_out(issuer: Issuer, verifier: Verifier) -> None:
    issuer.publish(public(private("weak"), "first"))
    with pytest.raises(InvalidInput, match="2,048 bits"):
        verifier.load()


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"keys": {}}', '{"keys": [7]}', "[" * 100_000]
)
def test_a_file_that_is_no_list_of_keys_is_named(
    issuer: Issuer, verifier: Verifier, content: str
) -> None:
    issuer.file.write_text(content)
    with pytest.raises(InvalidInput, match="STREAM_DP_IDENTITY_KEYS"):
        verifier.load()
    issuer.file.unlink()
    with pytest.raises(InvalidInput, match="cannot be read"):
        verifier.load()


def test_two_keys_of_one_id_are_refused(issuer: Issuer, verifier: Verifier) -> None:
    issuer.publish(public(issuer.key, "first"), public(private("EdDSA"), "first"))
    with pytest.raises(InvalidInput, match="same kid"):
        verifier.load()


async def test_keys_are_read_again_when_the_file_changes(
    issuer: Issuer, verifier: Verifier, caplog: pytest.LogCaptureFixture
) -> None:
    old = issuer.token()
    assert (await verifier.verified(old)).analyst == "ana"
    issuer.rotate()
    assert (await verifier.verified(issuer.token())).analyst == "ana", "an unknown key is looked up"
    assert await refused(verifier, old) == "unauthorized"
    issuer.file.write_text("not JSON")
    for _ in range(2):
        await verifier.look_again()
    assert (await verifier.verified(issuer.token())).analyst == "ana", "the old keys stay"
    assert verifier.failures == 2
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    "where", ["http://id.example/keys", "ftp://127.0.0.1/k", "https://", "https://["]
)
def test_an_address_that_others_could_answer_is_refused(where: str) -> None:
    with pytest.raises(InvalidInput, match="https://"):
        Verifier(where)


class _Site:
    """A web server of this machine that lists keys."""

    def __init__(self) -> None:
        self.content = b""
        self.moved = ""
        self.requests = 0
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requests += 1
                self.send_response(302 if site.moved else 200)
                if site.moved:
                    self.send_header("Location", site.moved)
                self.end_headers()
                self.wfile.write(site.content)

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys"


@pytest.fixture
def site() -> Iterator[_Site]:
    made = _Site()
    thread = threading.Thread(target=made.server.serve_forever)
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


async def test_keys_come_from_a_url_and_are_asked_for_now_and_then(
    issuer: Issuer, site: _Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.content = issuer.file.read_bytes()
    verifier = Verifier(site.url)
    verifier.load()
    assert (await verifier.verified(issuer.token())).analyst == "ana"
    issuer.rotate()
    site.content = issuer.file.read_bytes()
    for _ in range(3):  # the first one has the keys fetched again
        assert (await verifier.verified(issuer.token())).analyst == "ana"
    for _ in range(5):
        issuer.kid = "made up"
        assert await refused(verifier, issuer.token()) == "unauthorized"
    assert site.requests == 2, "who names unknown keys sends no requests to the issuer"
    monkeypatch.setattr(tokens, "_SOONEST_S", 0.0)
    assert await refused(verifier, issuer.token()) == "unauthorized"
    assert site.requests == 3


def test_keys_of_this_machine_go_through_no_proxy(
    issuer: Issuer, site: _Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The site is the proxy, and lists keys of its own for an address where nobody answers."""
    site.content = issuer.file.read_bytes()
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, site.url)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for host in ("127.0.0.1", "localhost", "[::1]", "127.1.2.3"):
        with pytest.raises(ServerUnavailable, match="cannot be fetched"):
            Verifier(f"http://{host}:1/keys").load()
    assert site.requests == 0


def test_a_url_that_does_not_list_keys_is_named(issuer: Issuer, site: _Site) -> None:
    verifier = Verifier(site.url)
    with pytest.raises(InvalidInput, match="not a JWK Set"):
        verifier.load()
    site.content, site.moved = issuer.file.read_bytes(), "http://127.0.0.1:1/elsewhere"
    with pytest.raises(ServerUnavailable, match="HTTPError"):
        verifier.load()
    with pytest.raises(ServerUnavailable, match="cannot be fetched"):
        Verifier("http://127.0.0.1:1/keys").load()


# ---------------------------------------------------------------- settings


def test_settings_that_need_each_other_are_given_together(issuer: Issuer) -> None:
    assert verifier_of(worker_settings()) is None
    keys = {"identity_keys": str(issuer.file)}
    made = verifier_of(worker_settings(identity="required", **keys))
    assert made is not None
    with pytest.raises(InvalidInput, match="STREAM_DP_IDENTITY_KEYS: it is missing"):
        verifier_of(worker_settings(identity="required"))
    at_a_url = {"identity": "required", "identity_keys": "https://id.example/keys"}
    with pytest.raises(InvalidInput, match="STREAM_DP_IDENTITY_ISSUER: it is missing"):
        verifier_of(worker_settings(**at_a_url))
    assert verifier_of(worker_settings(**at_a_url, identity_issuer="https://id.example"))
    for alone in (keys, {"identity_issuer": "id"}, {"web_token_header": "X-Token"}):
        with pytest.raises(InvalidInput, match="it is set, but no query needs a token"):
            verifier_of(worker_settings(**alone))
    with pytest.raises(InvalidInput, match="STREAM_DP_IDENTITY"):
        worker_settings(identity="optional")
