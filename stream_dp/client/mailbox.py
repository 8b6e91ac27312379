"""Replies as they arrive: one background reader, many waiters."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from queue import SimpleQueue

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError
from pydantic import BaseModel, ValidationError

from stream_dp.errors import RequestTimeout, ServerUnavailable
from stream_dp.messages import Answer, Event, Rejected, Topics

__all__ = ["Key", "Mailbox", "Reply"]

Reply = Answer | Event | Rejected
Key = tuple[str | int | None, ...]
"""What a waiter waits for: ``("answer", dataset, analyst, query_id)``, ``("batch", dataset, batch_id)``,
``("event", dataset, event)``, or the place ``("record", topic, partition, offset)`` of a rejected record."""

_MODELS: dict[str, type[BaseModel]] = {"answers": Answer, "events": Event, "rejected": Rejected}
_POLL_MS = 200
_REMEMBERED_REJECTIONS = 10_000


class Mailbox:
    """Reads ``answers``, ``events`` and ``rejected`` from the moment it is opened.

    Args:
        config: Settings for kafka-python's consumer: ``bootstrap_servers``, security.
    """

    def __init__(self, config: dict[str, object], topics: Topics) -> None:
        self._lock = threading.Lock()
        self._waiters: dict[Key, list[Future[Reply]]] = {}
        self._rejections: dict[Key, Reply] = {}
        self._followers: list[SimpleQueue[Reply | None]] = []
        self._roles = {topics.name(role): role for role in _MODELS}
        self._stopping = threading.Event()
        self._failure: Exception | None = None
        self._consumer = self._open(config)
        self._thread = threading.Thread(target=self._read, name="stream-dp-mailbox", daemon=True)
        self._thread.start()

    def _open(self, config: dict[str, object]) -> KafkaConsumer:
        try:
            consumer = KafkaConsumer(**config, enable_auto_commit=False, max_poll_records=2000)
            places = []
            for topic in self._roles:
                partitions = consumer.partitions_for_topic(topic)
                if not partitions:
                    raise ServerUnavailable(
                        f"topic {topic} does not exist; an operator creates it with: stream-dp topics create"
                    )
                places += [TopicPartition(topic, number) for number in partitions]
            consumer.assign(places)
            consumer.seek_to_end(*places)
            for place in places:
                consumer.position(place)
        except KafkaError as error:
            raise ServerUnavailable(
                f"no Kafka broker at {config['bootstrap_servers']} ({error}); is `stream-dp up` running? "
                "Else pass --bootstrap-servers"
            ) from error
        return consumer

    def _read(self) -> None:
        try:
            while not self._stopping.is_set():
                for records in self._consumer.poll(timeout_ms=_POLL_MS).values():
                    for record in records:
                        self._sort(self._roles[record.topic], record.value)
        except Exception as error:  # noqa: BLE001 - carried over to whoever waits
            self._failure = error
        finally:
            self._consumer.close()
            with self._lock:
                for follower in self._followers:
                    follower.put(None)

    def _sort(self, role: str, value: bytes | None) -> None:
        try:
            reply = _MODELS[role].model_validate_json(value or b"")
        except ValidationError:
            return  # written by a newer release, or by somebody else
        assert isinstance(reply, Answer | Event | Rejected)
        key = _key(reply)
        with self._lock:
            for follower in self._followers:
                follower.put(reply)
            if key[0] == "record":
                self._rejections[key] = reply
                if len(self._rejections) > _REMEMBERED_REJECTIONS:
                    del self._rejections[next(iter(self._rejections))]
            for future in self._waiters.pop(key, ()):
                if not future.done():
                    future.set_result(reply)

    def expect(self, key: Key) -> Future[Reply]:
        """A future for the first reply from now on under ``key``."""
        future: Future[Reply] = Future()
        with self._lock:
            self._waiters.setdefault(key, []).append(future)
        return future

    def expect_rejection(self, future: Future[Reply], key: Key) -> None:
        """Lets the rejection of a record that was just sent settle ``future`` too."""
        with self._lock:
            if key not in self._rejections:
                self._waiters.setdefault(key, []).append(future)
            elif not future.done():
                future.set_result(self._rejections[key])

    def receive(self, future: Future[Reply], timeout_s: float, what: str) -> Reply:
        """Waits for an expected reply.

        Raises:
            RequestTimeout: None came in time.
        """
        try:
            return future.result(timeout_s)
        except TimeoutError:
            if self._failure is not None:
                raise ServerUnavailable(f"the broker was lost: {self._failure}") from self._failure
            raise RequestTimeout(
                f"no reply to {what} within {timeout_s:g} s; is a worker running? "
                "Asking again under the same id is safe"
            ) from None

    def forget(self, future: Future[Reply]) -> None:
        """Stops waiting."""
        with self._lock:
            for key in [key for key, futures in self._waiters.items() if future in futures]:
                del self._waiters[key]

    @contextlib.contextmanager
    def following(self) -> Iterator[Iterator[Reply]]:
        """Every reply from now on, while the context lasts."""
        queue: SimpleQueue[Reply | None] = SimpleQueue()
        with self._lock:
            self._followers.append(queue)
        try:
            yield iter(queue.get, None)
        finally:
            with self._lock:
                self._followers.remove(queue)

    def close(self) -> None:
        self._stopping.set()
        self._thread.join(timeout=5)


def _key(reply: Reply) -> Key:
    if isinstance(reply, Answer):
        return "answer", reply.dataset, reply.analyst, reply.query_id
    if isinstance(reply, Event):
        if reply.batch_id is not None:
            return "batch", reply.dataset, reply.batch_id
        return "event", reply.dataset, reply.event
    if reply.query_id is not None:
        return "answer", reply.dataset, reply.analyst, reply.query_id
    return "record", reply.topic, reply.partition, reply.offset
