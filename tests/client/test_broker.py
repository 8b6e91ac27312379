"""Who asks a broker for admission, how that is told to the two clients of Kafka, and what is refused."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

import pytest

from stream_dp.client import Broker
from stream_dp.errors import InvalidInput
from stream_dp.settings import WorkerSettings, worker_settings

PASSWORD = "correct-horse"


def test_a_password_over_tls_reaches_both_clients_and_shows_in_no_text() -> None:
    plain = {"bootstrap_servers": ["a:1", "b:2"], "security_protocol": "PLAINTEXT"}
    assert Broker.of("a:1,b:2").arguments() == plain
    broker = Broker("a:1", security_protocol="SASL_SSL", username="ana", password=PASSWORD)
    arguments = broker.arguments()
    context = arguments.pop("ssl_context")
    assert context.verify_mode == ssl.CERT_REQUIRED
    assert context.check_hostname
    assert arguments == {
        "bootstrap_servers": ["a:1"],
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "ana",
        "sasl_plain_password": PASSWORD,
    }
    assert str(broker) == "a:1"
    assert PASSWORD not in f"{broker!r} {arguments}"


def test_what_does_not_fit_together_is_refused_with_a_fix() -> None:
    cases: list[tuple[dict[str, Any], str]] = [
        ({"security_protocol": "TLS"}, "security_protocol: it is unknown; choose one of PLAIN"),
        ({"security_protocol": "SASL_SSL"}, "username: SASL_SSL needs it; set it"),
        ({"security_protocol": "SASL_SSL", "username": "ana"}, "password: SASL_SSL needs it"),
        ({"username": "ana"}, "username: it is not used with PLAINTEXT; use SASL_SSL"),
        ({"ca_file": "ca.pem"}, "ca_file: it is not used with PLAINTEXT; use SSL or SASL_SSL"),
        ({"security_protocol": "SSL", "key_file": "k"}, "key_file: it needs a certificate"),
    ]
    for given, words in cases:
        with pytest.raises(InvalidInput) as refused:
            Broker("a:1", **given)
        assert str(refused.value).startswith(words)


def test_a_worker_names_the_variable_that_does_not_fit_and_never_its_value(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name, value, words in (
        ("PASSWORD", PASSWORD, r"^STREAM_DP_KAFKA_PASSWORD: it is not used"),
        ("SECURITY_PROTOCOL", "SASL_SSL", r"^STREAM_DP_KAFKA_USERNAME: SASL_SSL needs it"),
        ("CA_FILE", str(tmp_path / "none.pem"), r"^STREAM_DP_KAFKA_USERNAME: SASL_SSL needs it"),
        ("USERNAME", "worker", r"^STREAM_DP_KAFKA_CA_FILE: it cannot be used \(No such"),
    ):
        monkeypatch.setenv(f"STREAM_DP_KAFKA_{name}", value)
        with pytest.raises(InvalidInput, match=words) as refused:
            worker_settings()
        assert PASSWORD not in str(refused.value)
    monkeypatch.delenv("STREAM_DP_KAFKA_CA_FILE")
    settings = worker_settings()
    assert settings.broker.password == PASSWORD
    assert PASSWORD not in repr(settings)
    fields = set(Broker.__dataclass_fields__) - {"servers"}
    assert {f"kafka_{name}" for name in fields} < WorkerSettings.model_fields.keys()


def test_a_key_file_of_persons_is_read_before_the_worker_starts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert worker_settings().person_key() is None
    file, name = tmp_path / "persons.key", "^STREAM_DP_PERSON_KEY_FILE: "
    monkeypatch.setenv("STREAM_DP_PERSON_KEY_FILE", str(file))
    with pytest.raises(InvalidInput, match=name + r"it cannot be read \(FileNotFoundError\)"):
        worker_settings()
    file.write_bytes(b"hunter2")
    with pytest.raises(InvalidInput, match=name + "it holds fewer than 32 bytes") as refused:
        worker_settings()
    assert "hunter2" not in str(refused.value)
    file.write_bytes(bytes(range(40)))
    assert worker_settings().person_key() == bytes(range(40))
