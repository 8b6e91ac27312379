"""Checks whether a broker accepts our TLS settings and password, and reports why not.

It uses aiokafka, because kafka-python does not read what a broker says before it closes the connection.
"""

from __future__ import annotations

import asyncio
import ssl
from concurrent.futures import ThreadPoolExecutor

from aiokafka.conn import create_conn
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)

from stream_dp.broker import Broker
from stream_dp.errors import ServerUnavailable


def ask_for_admission(broker: Broker, timeout_s: float) -> None:
    """Returns when the only server of ``broker`` admits us.

    Raises:
        OSError: The server does not answer.
        ServerUnavailable: The server does not admit us. The error names the settings that may be wrong.
    """
    with ThreadPoolExecutor(1) as thread:  # the caller's thread may have a running loop
        thread.submit(asyncio.run, _enter(broker, timeout_s)).result()


async def _enter(broker: Broker, timeout_s: float) -> None:
    arguments = broker.arguments()
    host, _, port = arguments.pop("bootstrap_servers")[0].rpartition(":")
    try:
        connection = await create_conn(
            host.strip("[]"), int(port), request_timeout_ms=round(1000 * timeout_s), **arguments
        )
    except ssl.SSLError as error:
        raise ServerUnavailable(
            f"no TLS with the Kafka broker at {broker} ({error.strerror or error}); fix "
            "STREAM_DP_KAFKA_CA_FILE or STREAM_DP_KAFKA_SECURITY_PROTOCOL"
        ) from error
    except (
        IllegalSaslStateError,
        SaslAuthenticationFailed,
        UnsupportedSaslMechanismError,
    ) as error:
        raise ServerUnavailable(
            f"the Kafka broker at {broker} does not admit {broker.username} by {broker.sasl_mechanism} "
            f"({error}); fix STREAM_DP_KAFKA_USERNAME, STREAM_DP_KAFKA_PASSWORD or "
            "STREAM_DP_KAFKA_SASL_MECHANISM"
        ) from error
    except (KafkaError, TimeoutError) as error:
        raise OSError(f"{type(error).__name__} before it admitted us") from error
    await connection.close()
