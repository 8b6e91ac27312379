"""The settings of a worker. The command line reads them once from the environment, as ``STREAM_DP_*``."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from stream_dp.broker import Broker, SaslMechanism, SecurityProtocol
from stream_dp.errors import InvalidInput
from stream_dp.store_address import SentinelAddress

BLOCK_CACHE_MB: Final = 256
"""The memory for blocks of a worker that is not told otherwise, in units of 2^20 bytes."""

_KEY_BYTES: Final = 32

Settings = TypeVar("Settings", bound="ServerSettings")


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach what is served on ``host``."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host == "localhost"


class ServerSettings(BaseSettings):
    """The settings that every server of a deployment has: its brokers, its topics, and who may ask.

    Attributes:
        bootstrap_servers: The addresses of the Kafka brokers, as ``host:port`` separated by commas.
        kafka_security_protocol: The protocol for connections to the brokers.
        kafka_sasl_mechanism: The SASL mechanism for the password.
        kafka_username: The user name for the two SASL protocols.
        kafka_password: The password of that user.
        kafka_ca_file: PEM file with the certificate authority that signed the brokers' certificates.
            Default: the system's certificate authorities.
        kafka_cert_file: PEM file with our own certificate, for brokers that require one.
        kafka_key_file: PEM file with the key of that certificate. Default: the file of the certificate.
        topic_prefix: The prefix of all topic names. Each deployment on shared servers needs its own.
        identity: Whether each query must carry a signed token that says who asks. ``off`` believes the name
            in the query.
        identity_keys: The public keys of the issuer of these tokens: the path or ``https://`` URL of a JWK
            Set. It needs ``identity``.
        identity_issuer: The ``iss`` that these tokens must have. Keys at a URL need it. Default: any.
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
    topic_prefix: str = "stream-dp."
    identity: Literal["off", "required"] = "off"
    identity_keys: str | None = None
    identity_issuer: str | None = None

    @property
    def broker(self) -> Broker:
        """The addresses of the brokers and the credentials that they require."""
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


class WorkerSettings(ServerSettings):
    """Settings of a worker.

    Attributes:
        redis_url: The address of Redis: ``redis://``, ``rediss://`` or ``unix://``.
            ``redis+sentinel://HOST:26379,HOST:26379/NAME?db=0``, or with TLS ``rediss+sentinel://``, asks
            these Sentinels for the primary NAME. A user and password before the hosts are for the servers,
            the options ``sentinel_username`` and ``sentinel_password`` for the Sentinels.
        redis_cluster: Whether the address is one node of a Redis Cluster.
        redis_prefix: The prefix of all keys in Redis. Default: derived from the topic prefix.
        group_id: The consumer group of the workers that share the topics. Default: derived from the topic
            prefix.
        instance_id: A name unique in the group, with which a worker that starts again gets its partitions
            back at once.
        session_timeout_s: Seconds without a heartbeat after which a worker loses its partitions.
        stall_timeout_s: Seconds without progress after which a worker that has work ends itself.
        web_port: The port of the dashboard, ``/healthz`` and ``/metrics``.
        web_bind: The address on which these pages are served.
        web_operator_token: The token that opens all pages. Pages on a loopback address need none. Default: a
            new token at every start that needs one, shown on a terminal alone.
        web_analyst_token: The token that opens the public pages and the question box. Default: as above.
        web_token_header: The header in which a proxy passes on the signed token of a person, such as
            ``X-Forwarded-Access-Token``. It needs ``identity``.
        metrics_port: A port that serves ``/metrics`` without a token, for Prometheus alone.
        log_format: The form of the log lines: text, or one JSON object a line.
        audit_log: Whether the log has a line for each reply to a query.
        person_key_file: A file of at least 32 random bytes, the same for all workers, from which the digests
            of persons are made. The topics alone then undo no digest. Losing it ends data sets that were
            defined with it. Default: each data set has a secret of its own on the topic of blocks.
        rows: A folder or a bucket for sealed rows: ``file:///folder``, which all workers see, or
            ``s3://bucket/prefix``, with ``?region=`` and ``endpoint_override=`` where needed. It needs
            ``stream-dp[arrow]``. Default: the topic of blocks, and Redis.
        rows_key_file: A file of at least 32 random bytes, the same for all workers, with which files of rows
            are sealed. Losing it loses them. Default: files are not sealed.
        count_with: The scheduler of a Dask cluster that counts looks at more than 2^27 rows in files, as
            ``tls://HOST:8786``. Its processes need the same ``rows`` and ``rows_key_file``, and
            ``stream-dp[cluster]``. Default: the worker counts.
        count_tls_ca: PEM file with the certificate authority of the cluster.
        count_tls_cert: PEM file with our certificate for the cluster.
        count_tls_key: PEM file with the key of that certificate.
        block_cache_mb: The memory of the worker for rows that looks have read, in units of 2^20 bytes.
        data_dir: Faust's own folder. It holds nothing that must be kept. Default: a temporary folder.
        crash_at: Kills the process at a named point, written as ``point:n``, for fault tests.
    """

    redis_url: str = "redis://127.0.0.1:6379/0"
    redis_cluster: bool = False
    redis_prefix: str = ""
    group_id: str = ""
    instance_id: str | None = None
    session_timeout_s: Annotated[float, Field(ge=1, le=90)] = 10.0
    stall_timeout_s: Annotated[float, Field(ge=1)] = 300.0
    web_port: Annotated[int, Field(ge=1, le=65535)] = 6066
    web_bind: str = "127.0.0.1"
    web_operator_token: SecretStr | None = None
    web_analyst_token: SecretStr | None = None
    web_token_header: str | None = None
    metrics_port: Annotated[int | None, Field(ge=1, le=65535)] = None
    log_format: Literal["text", "json"] = "text"
    audit_log: bool = False
    person_key_file: str | None = None
    rows: str | None = None
    rows_key_file: str | None = None
    count_with: str | None = None
    count_tls_ca: str | None = None
    count_tls_cert: str | None = None
    count_tls_key: str | None = None
    block_cache_mb: Annotated[int, Field(ge=1)] = BLOCK_CACHE_MB
    data_dir: str | None = None
    crash_at: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _one_name(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Derives the Redis prefix and the consumer group from the topic prefix."""
        name = str(values.get("topic_prefix", "stream-dp.")).rstrip(".-_") or "stream-dp"
        return {"redis_prefix": name, "group_id": f"{name}-worker", **values}

    def person_key(self) -> bytes | None:
        """Returns what the key file of persons holds; None without one.

        Raises:
            InvalidInput: It cannot be read, or is too short.
        """
        return _key_in(self.person_key_file, "STREAM_DP_PERSON_KEY_FILE")

    def rows_key(self) -> bytes | None:
        """Returns what the key file of rows holds; None without one.

        Raises:
            InvalidInput: It cannot be read, or is too short.
        """
        return _key_in(self.rows_key_file, "STREAM_DP_ROWS_KEY_FILE")


class GatewaySettings(ServerSettings):
    """Settings of a gateway. It has no address of Redis, so it can never reach a row.

    Attributes:
        gateway_port: The port on which it speaks the Postgres protocol.
        gateway_bind: The address on which it does. Any but this machine's needs a certificate.
        gateway_cert_file: PEM file with the certificate that encrypts connections.
        gateway_key_file: PEM file with the key of that certificate.
        gateway_accounts: The file of the accounts of tools that keep one password.
        gateway_open: Whether everybody who reaches the port may ask in any name, unencrypted, as in a
            container whose port is published on this machine alone.
    """

    gateway_port: Annotated[int, Field(ge=1, le=65535)] = 5433
    gateway_bind: str = "127.0.0.1"
    gateway_cert_file: str | None = None
    gateway_key_file: str | None = None
    gateway_accounts: str | None = None
    gateway_open: bool = False


def worker_settings(**given: Any) -> WorkerSettings:
    """Reads the settings from the environment.

    Args:
        given: Settings by name. They take precedence over the environment.

    Returns:
        The settings of one worker.

    Raises:
        InvalidInput: A variable has a value that is not accepted, or one that contradicts the others. The
            error names the variable and leaves out its value.
    """
    settings = _read(WorkerSettings, given)
    if SentinelAddress.read(settings.redis_url) is not None and settings.redis_cluster:
        raise InvalidInput(
            "STREAM_DP_REDIS_CLUSTER",
            "the address is one of Sentinels, and a Cluster has none",
            "unset it, or give the address of a node of the Cluster",
        )
    settings.person_key()
    return settings


def gateway_settings(**given: Any) -> GatewaySettings:
    """Reads the settings of a gateway from the environment; see ``worker_settings``.

    Raises:
        InvalidInput: A variable is not accepted, or others could read what clients send.
    """
    settings = _read(GatewaySettings, given)
    if (settings.gateway_cert_file is None) != (settings.gateway_key_file is None):
        missing = "KEY" if settings.gateway_key_file is None else "CERT"
        raise InvalidInput(
            f"STREAM_DP_GATEWAY_{missing}_FILE",
            "it is missing, and a certificate needs its key",
            "name both files",
        )
    return settings


def _read(kind: type[Settings], given: dict[str, Any]) -> Settings:
    """Reads settings, and checks those of the brokers."""
    try:
        settings = kind(**given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        name = "_".join(map(str, first["loc"])).upper()
        raise InvalidInput(f"STREAM_DP_{name}", first["msg"], "see docs/configuration.md") from None
    try:
        settings.broker.arguments()
    except InvalidInput as error:
        name = f"STREAM_DP_KAFKA_{error.field.upper()}"
        raise InvalidInput(name, error.problem, error.fix) from None
    for field in ("identity_keys", "identity_issuer", "web_token_header"):
        if settings.identity == "off" and getattr(settings, field, None) is not None:
            raise InvalidInput(
                f"STREAM_DP_{field.upper()}",
                "it is set, but no query needs a token",
                "set STREAM_DP_IDENTITY=required, or unset it",
            )
    return settings


def _key_in(file: str | None, setting: str) -> bytes | None:
    """What a key file holds; None without one."""
    if file is None:
        return None
    try:
        key = Path(file).read_bytes()
    except OSError as error:
        raise InvalidInput(
            setting,
            f"it cannot be read ({type(error).__name__})",
            "name a file that the worker may read",
        ) from None
    if len(key) < _KEY_BYTES:
        raise InvalidInput(
            setting,
            f"it holds fewer than {_KEY_BYTES} bytes",
            f"make one of random bytes: head -c {_KEY_BYTES} /dev/urandom > FILE",
        )
    return key
