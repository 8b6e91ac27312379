"""Sends records, and waits until the broker has them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Final, TypeAlias

from kafka import KafkaProducer
from kafka.errors import KafkaError

from stream_dp.broker import Broker
from stream_dp.client.kafka.deployment_topics import check_reachable, translating_errors
from stream_dp.client.kafka.mailbox import CLOSED
from stream_dp.errors import ServerUnavailable, StreamDPError
from stream_dp.messages import TOPICS

Headers: TypeAlias = Sequence[tuple[str, bytes]]

_BLOCK_MS: Final = 20_000
_CLOSE_S: Final = 5.0


class RecordSender:
    """A producer whose records are acknowledged by all replicas. It is thread-safe.

    Args:
        broker: The broker.
        config: The settings for kafka-python's producer, including ``bootstrap_servers``.

    Attributes:
        closing: Whether the client closes. A record that is lost from then on is lost for this reason.

    Raises:
        ServerUnavailable: No broker answers.
    """

    def __init__(self, broker: Broker, config: Mapping[str, object]) -> None:
        self._broker = broker
        self.closing = False
        check_reachable(broker)
        with translating_errors(broker):
            self._producer = _aside(
                partial(
                    KafkaProducer,
                    **config,
                    acks="all",
                    linger_ms=1,
                    max_block_ms=_BLOCK_MS,
                    max_request_size=max(topic.max_message_bytes for topic in TOPICS.values()),
                )
            )

    def send(
        self, topic: str, key: str, value: bytes | None, headers: Headers, *, timeout_s: float
    ) -> tuple[str, int, int]:
        """Sends one record and returns its topic, partition and offset.

        Raises:
            ServerUnavailable: The broker did not acknowledge it.
            StreamDPError: The client was closed meanwhile.
        """
        try:
            sent = self._producer.send(
                topic, key=key.encode(), value=value, headers=list(headers)
            ).get(timeout=max(1.0, timeout_s))
        except KafkaError as error:
            if self.closing:
                raise StreamDPError(CLOSED) from error
            raise ServerUnavailable(
                f"the broker at {self._broker} took no record ({type(error).__name__}); check it with "
                "`stream-dp doctor`. It is safe to send the record again under the same id"
            ) from error
        return topic, sent.partition, sent.offset

    def close(self) -> None:
        """Sends the queued records and closes the connections."""
        try:
            self._producer.close(timeout=_CLOSE_S)
        except KafkaError:
            # The broker is gone: the producer's close gives up half-way and warns again when collected.
            self._producer._sender.force_close()  # noqa: SLF001
            self._producer._closed = True  # noqa: SLF001
        self._producer._sender.join(_CLOSE_S)  # noqa: SLF001 - no thread of ours survives


def _aside(make: Callable[[], KafkaProducer]) -> KafkaProducer:
    """Creates a producer in another thread, so that Ctrl-C ends the wait.

    If kafka-python is interrupted while it connects, it takes the KeyboardInterrupt for the failure of one of
    its own tasks and goes on.
    """
    made: Future[KafkaProducer] = Future()

    def run() -> None:
        try:
            made.set_result(make())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            made.set_exception(error)

    threading.Thread(target=run, name="stream-dp-connecting", daemon=True).start()
    return made.result()
