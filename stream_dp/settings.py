"""What an operator can set: environment variables ``STREAM_DP_*``, read once by the command line."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from stream_dp.broker import Broker, SaslMechanism, SecurityProtocol
from stream_dp.errors import InvalidInput

__all__ = ["WorkerSettings", "worker_settings"]


class WorkerSettings(BaseSettings):
    """Settings of a worker.

    Attributes:
        bootstrap_servers: Kafka brokers, ``host:port`` separated by commas.
        kafka_security_protocol: How the brokers are spoken to.
        kafka_sasl_mechanism: How the password is shown, where the protocol is one of SASL.
        kafka_username: Who to be at the brokers, with SASL.
        kafka_password: Its password.
        kafka_ca_file: PEM file of who signed the brokers' certificates, with SSL. Default: what the system
            trusts.
        kafka_cert_file: PEM file of a certificate of one's own, for brokers that ask for one.
        kafka_key_file: PEM file of its key. Default: it is in the certificate's file.
        redis_url: Where the state lives; ``redis://``, ``rediss://`` or ``unix://``.
        redis_cluster: The address is one node of a Redis Cluster.
        redis_durability: ``declared`` where a managed Redis forbids CONFIG and its provider promises that
            every acknowledged write is on disk.
        topic_prefix: Common start of all topic names; deployments that share servers differ in it.
        redis_prefix: Common start of all keys. Default: from the topics' prefix.
        group_id: Consumer group of the workers that share the topics. Default: from the topics' prefix.
        instance_id: Fixed name of this worker in its group: after a restart it gets its partitions back at
            once. Each worker needs its own.
        session_timeout_s: After this long without a sign of life a worker's partitions move.
        stall_timeout_s: A worker that has work and does nothing for so long ends itself.
        web_port: Port of the dashboard, ``/healthz`` and ``/metrics``.
        web_bind: Address that they are served on. Only ``/healthz`` never asks for a token.
        web_operator_token: Opens all pages. Where the address is not a loopback one each role needs a token.
            Default: made at every start where one is needed, and printed.
        web_analyst_token: Opens what is public, and the query box. Default: likewise.
        metrics_port: Port that serves ``/metrics`` without a token, for Prometheus alone.
        data_dir: Faust's own folder; holds nothing of value. Default: a temporary folder.
        crash_at: For fault tests: kill the process at a named point, as ``point:n``.
    """

    model_config = SettingsConfigDict(env_prefix="STREAM_DP_", frozen=True, extra="ignore")

    bootstrap_servers: str = "127.0.0.1:9092"
    kafka_security_protocol: SecurityProtocol = "PLAINTEXT"
    kafka_sasl_mechanism: SaslMechanism = "SCRAM-SHA-512"
    kafka_username: str | None = None
    kafka_password: SecretStr | None = None
    kafka_ca_file: str | None = None
    kafka_cert_file: str | None = None
    kafka_key_file: str | None = None
    redis_url: str = "redis://127.0.0.1:6379/0"
    redis_cluster: bool = False
    redis_durability: Literal["checked", "declared"] = "checked"
    topic_prefix: str = "stream-dp."
    redis_prefix: str = ""
    group_id: str = ""
    instance_id: str | None = None
    session_timeout_s: Annotated[float, Field(ge=1, le=90)] = 10.0
    stall_timeout_s: Annotated[float, Field(ge=1)] = 300.0
    web_port: Annotated[int, Field(ge=1, le=65535)] = 6066
    web_bind: str = "127.0.0.1"
    web_operator_token: SecretStr | None = None
    web_analyst_token: SecretStr | None = None
    metrics_port: Annotated[int | None, Field(ge=1, le=65535)] = None
    data_dir: str | None = None
    crash_at: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_name(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Deployments that share a broker and a Redis differ in one setting, the topics' prefix."""
        name = str(values.get("topic_prefix", "stream-dp.")).rstrip(".-_") or "stream-dp"
        return {"redis_prefix": name, "group_id": f"{name}-worker", **values}

    @property
    def broker(self) -> Broker:
        """The brokers, and what they ask for."""
        password = self.kafka_password
        return Broker(
            self.bootstrap_servers,
            security_protocol=self.kafka_security_protocol,
            sasl_mechanism=self.kafka_sasl_mechanism,
            username=self.kafka_username,
            password=password.get_secret_value() if password else None,
            ca_file=self.kafka_ca_file,
            cert_file=self.kafka_cert_file,
            key_file=self.kafka_key_file,
        )


def worker_settings(**given: Any) -> WorkerSettings:
    """Settings from the environment, and those given.

    Raises:
        InvalidInput: A variable has a value that is not accepted, or does not fit the others; names it,
            without the value.
    """
    try:
        settings = WorkerSettings(**given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        name = "_".join(map(str, first["loc"])).upper()
        raise InvalidInput(f"STREAM_DP_{name}", first["msg"], "see docs/configuration.md") from None
    try:
        settings.broker.arguments()
    except InvalidInput as error:
        name = f"STREAM_DP_KAFKA_{error.field.upper()}"
        raise InvalidInput(name, error.problem, error.fix) from None
    return settings
