"""The addresses of the Kafka brokers and the credentials for them."""

from __future__ import annotations

import logging
import ssl
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from stream_dp.errors import InvalidInput

SecurityProtocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
SaslMechanism = Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"]


class _Hidden(str):
    """A secret setting, which is hidden because kafka-python logs its settings at level debug."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "'***'"


def _above_debug(record: logging.LogRecord) -> bool:
    return record.levelno > logging.DEBUG


def hide_what_is_sent() -> None:
    """Raises the log level above debug where both clients log what they send: passwords and tokens."""
    for name in (
        "aiokafka.conn",
        "kafka.net.connection",
        "kafka.producer.kafka",
        "kafka.producer.sender",
        "kafka.protocol.parser",
    ):
        logging.getLogger(name).addFilter(_above_debug)


@dataclass(frozen=True)
class Broker:
    """The addresses of Kafka brokers and the credentials for them. ``str`` shows the addresses only.

    Example:
        >>> from stream_dp.broker import Broker
        >>> str(Broker("kafka:9093", security_protocol="SSL"))
        'kafka:9093'

    Attributes:
        servers: The addresses as ``host:port``, separated by commas.
        security_protocol: The protocol for connections to the brokers.
        sasl_mechanism: The SASL mechanism for the password.
        username: The user name for SASL. ``password`` is the password of that user.
        ca_file: PEM file of the authority that signed the brokers' certificates. None takes the system's.
        cert_file: PEM file of the client's own certificate, for brokers that require one.
        key_file: PEM file of the key of that certificate. None takes it from ``cert_file``.

    Raises:
        InvalidInput: The settings contradict each other.
    """

    servers: str
    security_protocol: SecurityProtocol = "PLAINTEXT"
    sasl_mechanism: SaslMechanism = "SCRAM-SHA-512"
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None

    def __post_init__(self) -> None:
        for name, accepted in (
            ("security_protocol", get_args(SecurityProtocol)),
            ("sasl_mechanism", get_args(SaslMechanism)),
        ):
            if getattr(self, name) not in accepted:
                raise InvalidInput(name, "it is unknown", f"choose one of {', '.join(accepted)}")
        for name in ("username", "password"):
            if bool(getattr(self, name)) != self.authenticates:
                raise InvalidInput(name, *self._misfit("SASL_SSL or SASL_PLAINTEXT"))
        for name in ("ca_file", "cert_file", "key_file"):
            if getattr(self, name) and not self.encrypts:
                raise InvalidInput(name, *self._misfit("SSL or SASL_SSL"))
        if self.key_file and not self.cert_file:
            raise InvalidInput(
                "key_file", "it needs a certificate", "set the file of its certificate too"
            )

    def __str__(self) -> str:
        return self.servers

    @classmethod
    def of(cls, where: str | Broker) -> Broker:
        """Returns a broker. A string of addresses means brokers that require no credentials."""
        return where if isinstance(where, Broker) else cls(where)

    @property
    def authenticates(self) -> bool:
        """Whether the client sends a user name and a password."""
        return self.security_protocol.startswith("SASL_")

    @property
    def encrypts(self) -> bool:
        """Whether the connection uses TLS."""
        return self.security_protocol.endswith("SSL")

    def arguments(self) -> dict[str, Any]:
        """Returns the arguments that both aiokafka and kafka-python accept for the connection.

        Raises:
            InvalidInput: A file cannot be used.
        """
        found: dict[str, Any] = {
            "bootstrap_servers": self.servers.split(","),
            "security_protocol": self.security_protocol,
        }
        if self.encrypts:
            found["ssl_context"] = self._context()
        if self.authenticates:
            hide_what_is_sent()
            found["sasl_mechanism"] = self.sasl_mechanism
            found["sasl_plain_username"] = self.username
            found["sasl_plain_password"] = _Hidden(self.password)
        return found

    def _context(self) -> ssl.SSLContext:
        name = "ca_file"
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file:
                name = "cert_file"
                context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:  # this includes ssl.SSLError
            why = error.strerror or type(error).__name__
            raise InvalidInput(
                name, f"it cannot be used ({why})", "name a PEM file that this process can read"
            ) from error
        return context

    def _misfit(self, protocols: str) -> tuple[str, str]:
        if self.security_protocol in protocols.split(" or "):
            return f"{self.security_protocol} needs it", "set it"
        return f"it is not used with {self.security_protocol}", f"use {protocols}, or omit it"
