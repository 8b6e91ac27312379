"""Workers, counters and clients on a Kafka that asks for TLS and a password, and on one that refuses them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from kafka.admin import KafkaAdminClient, ScramMechanism, UserScramCredentialUpsertion

from stream_dp.cli import root
from stream_dp.client import Broker, Client
from stream_dp.client.kafka.deployment_topics import create_topics
from stream_dp.embedded import ports
from stream_dp.embedded.kafka_server import KafkaServer
from stream_dp.errors import ServerUnavailable
from tests.certificates import make_certificate

pytestmark = pytest.mark.kafka

PASSWORD = "correct-horse"
DEFINITION = {
    "version": 1,
    "dataset": "flights",
    "attributes": [{"name": "carrier", "type": "category", "values": ["AA", "UA"]}],
    "privacy": {"epsilon": 1.0, "delta": 1e-9},
    "accuracy": {"error": 0.02, "failure_probability": 0.01},
    "phase": {"min_rows": 20_000},
}


class _Guarded(KafkaServer):
    """One more listener, of SASL_SSL, and a user ``worker`` who may show a password by PLAIN."""

    certificate: Path
    key: Path

    def _write_settings(self) -> None:
        super()._write_settings()
        self.guarded = f"127.0.0.1:{ports.choose('the listener', None)}"
        both = self._folder / "both.pem"
        both.write_text(self.key.read_text() + self.certificate.read_text())
        settings = self._settings.read_text()
        for name, value in {
            "listeners=": f"GUARDED://{self.guarded}",
            "advertised.listeners=": f"GUARDED://{self.guarded}",
            "listener.security.protocol.map=": "GUARDED:SASL_SSL",
        }.items():
            settings = settings.replace(f"\n{name}", f"\n{name}{value},")
        module = "org.apache.kafka.common.security"
        self._settings.write_text(
            f"{settings}\n"
            "listener.name.guarded.sasl.enabled.mechanisms=PLAIN,SCRAM-SHA-512\n"
            f"listener.name.guarded.plain.sasl.jaas.config={module}.plain.PlainLoginModule "
            f'required user_worker="{PASSWORD}";\n'
            f"listener.name.guarded.scram-sha-512.sasl.jaas.config={module}.scram.ScramLoginModule "
            "required;\n"
            "listener.name.guarded.ssl.keystore.type=PEM\n"
            f"listener.name.guarded.ssl.keystore.location={both}\n"
        )


@pytest.fixture
def guarded(kafka_jars: tuple[Path, ...], tmp_path: Path, needed: Any) -> Iterator[_Guarded]:
    server = _Guarded(tmp_path / "kafka", kafka_jars, log=tmp_path / "kafka.log")
    with needed():
        server.certificate, server.key = make_certificate(tmp_path)
    with server:
        admin = KafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
        admin.alter_user_scram_credentials(
            [UserScramCredentialUpsertion("ana", ScramMechanism.SCRAM_SHA_512, PASSWORD)]
        )
        admin.close()
        yield server


@pytest.mark.slow
def test_worker_and_client_show_a_password_over_tls_and_are_told_when_it_is_wrong(
    guarded: _Guarded,
    make_deployment: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    ana = Broker(
        guarded.guarded,
        security_protocol="SASL_SSL",
        username="ana",
        password=PASSWORD,
        ca_file=str(guarded.certificate),
    )
    deployment = make_deployment(bootstrap_servers=guarded.guarded, partitions=0)
    environment = {
        "kafka_security_protocol": "SASL_SSL",
        "kafka_sasl_mechanism": "PLAIN",
        "kafka_username": "worker",
        "kafka_password": PASSWORD,
        "kafka_ca_file": guarded.certificate,
    }
    create_topics(ana, deployment.topics, partitions=2)
    worker = deployment.worker(**environment)
    refused = deployment.worker(**{**environment, "kafka_password": "battery-staple"})
    with pytest.raises(ServerUnavailable, match=r"does not admit ana by SCRAM-SHA-512 \(.*\); fix"):
        Client(replace(ana, password="battery-staple"))
    with pytest.raises(
        ServerUnavailable, match=r"no TLS with .*self-signed.*; fix STREAM_DP_KAFKA_CA_FILE"
    ):
        Client(replace(ana, ca_file=None))
    worker.wait_ready()
    with Client(ana, topic_prefix=deployment.prefix) as client:
        client.define(DEFINITION)
        client.send("flights", rows=[{"carrier": "AA"}] * 20_000)
        answer: Any = client.ask("flights", "carrier = 'AA'")
        assert answer.value == pytest.approx(1, abs=0.1)

    assert refused.wait() == 1
    assert "does not admit worker by PLAIN" in refused.output
    assert "Traceback" not in refused.output
    for name, value in environment.items():
        monkeypatch.setenv(f"STREAM_DP_{name.upper()}", str(value))
    where = ["--bootstrap-servers", guarded.guarded, "--topic-prefix", deployment.prefix]
    assert "all topics exist" in CliRunner().invoke(root, ["topics", "create", *where]).output
    for said in (worker.output, refused.output, caplog.text):
        assert PASSWORD not in said
        assert "battery-staple" not in said
