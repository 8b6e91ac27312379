"""What a client does with a token: it asks under its name, sends it along, and shows it nowhere."""

from __future__ import annotations

import logging

import pytest

from stream_dp.client import AsyncClient
from stream_dp.client.kafka.credentials import Credentials
from stream_dp.errors import InvalidInput
from tests.signing import Issuer


def test_the_name_is_that_of_the_token(issuer: Issuer) -> None:
    token = issuer.token()
    assert Credentials(token).analyst == "ana"
    assert Credentials(f"{token}\n", "ana").header() == (
        "authorization",
        f"Bearer {token}".encode(),
    )
    with pytest.raises(InvalidInput, match="the token is that of ana, not of bob") as caught:
        Credentials(token, "bob")
    assert token not in str(caught.value)


def test_a_fresh_token_is_taken_for_each_record_and_stays_that_of_one_analyst(
    issuer: Issuer,
) -> None:
    tokens = [issuer.token(exp=number) for number in range(3)]
    left = iter([*tokens, issuer.token(sub="bob")])
    credentials = Credentials(lambda: next(left))
    sent = [credentials.header()[1] for _ in tokens[1:]]
    assert sent == [f"Bearer {token}".encode() for token in tokens[1:]]
    with pytest.raises(InvalidInput, match="that of bob, not of ana"):
        credentials.header()


@pytest.mark.parametrize(
    "token", ["", "abc", "a.b.c", "a.e30.c", "a.eyJzdWIiOjd9.c", "\u00e4.b.c", None]
)
def test_what_is_not_a_token_is_refused_at_once(token: str) -> None:
    for given in (token, lambda: token):
        if given is not None:
            with pytest.raises(InvalidInput, match="it is not a JSON Web Token"):
                Credentials(given)


def test_neither_a_repr_nor_a_log_shows_it(
    issuer: Issuer, caplog: pytest.LogCaptureFixture
) -> None:
    token = issuer.token()
    shown = repr(Credentials(token)) + repr(AsyncClient("127.0.0.1:1", token=token))
    assert token not in shown
    with caplog.at_level(logging.DEBUG, "kafka"):
        logging.getLogger("kafka.producer.kafka").debug("Sending (headers=%r)", token)
        logging.getLogger("kafka.protocol.parser").debug("Send: %r", token)
    assert not caplog.records
