"""Receives replies: one background reader serves many waiters."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from functools import partial

from kafka import KafkaConsumer

from stream_dp.broker import Broker
from stream_dp.client.kafka import topic_documents
from stream_dp.client.kafka.deployment_topics import check_reachable, translating_errors
from stream_dp.client.kafka.topic_reader import partitions_of
from stream_dp.errors import ServerUnavailable, StreamDPError
from stream_dp.messages import Answer, Event, Rejected, RunningTick, Topics

CLOSED = "the client was closed before the reply came"

Reply = Answer | Event | Rejected | RunningTick
Key = tuple[str | int | None, ...]
"""The key of an expected reply: ``("answer", dataset, analyst, query_id)``, ``("batch", dataset, name)``,
``("event", dataset, event)``, or a rejection: ``("record", topic, partition, offset, query_id or None)``. A
change of a standing query, ``("standing", dataset, analyst, query_id)``, has no reply but a rejection. Nobody
waits for a running total, ``("running", dataset)``."""

_READERS: dict[str, Callable[[bytes | None], Reply | None]] = {
    "answers": topic_documents.read_answer,
    "events": partial(topic_documents.read, Event),
    "rejected": partial(topic_documents.read, Rejected),
    "running": partial(topic_documents.read, RunningTick),
}
_POLL_MS = 200
_REMEMBERED_REJECTIONS = 10_000
_LOOK_S = 5.0
_AWAY_S = 30.0


class Mailbox:
    """Reads ``answers``, ``events``, ``rejected`` and ``running`` from the moment it is opened.

    Args:
        config: The settings for kafka-python's consumer, including ``bootstrap_servers``.
        on_delay: A function that receives a message, in a thread, when the broker has stopped answering.
        schema_versions: Takes the newest version of the attributes of each data set that an event tells.

    Raises:
        ServerUnavailable: No broker answers, or the topics do not exist.
    """

    def __init__(
        self,
        broker: Broker,
        config: Mapping[str, object],
        topics: Topics,
        *,
        on_delay: Callable[[str], None] | None = None,
        schema_versions: dict[str, int] | None = None,
    ) -> None:
        self._schema_versions = {} if schema_versions is None else schema_versions
        self._broker = broker
        self._on_delay = on_delay
        self._away = False
        self._lock = threading.Lock()
        self._waiters: dict[Key, list[Future[Reply]]] = {}
        self._keys: dict[Future[Reply], list[Key]] = {}
        self._rejections: dict[Key, Reply] = {}
        self._followers: list[Callable[[Reply | None], None]] = []
        self.topics = topics
        self._roles = {topics.name(role): role for role in _READERS}
        self._stopping = threading.Event()
        self._end: StreamDPError | None = None
        self._seen_s = self._looked_s = time.monotonic()
        self._consumer = self._open(config)
        self._thread = threading.Thread(target=self._read, name="stream-dp-mailbox", daemon=True)
        self._thread.start()

    def _open(self, config: Mapping[str, object]) -> KafkaConsumer:
        with translating_errors(self._broker):
            consumer = KafkaConsumer(**config, enable_auto_commit=False, max_poll_records=2000)
            try:
                assigned = [
                    partition
                    for role in _READERS
                    for partition in partitions_of(consumer, self.topics, role)
                ]
            except ServerUnavailable:
                consumer.close()
                raise
            consumer.assign(assigned)
            consumer.seek_to_end(*assigned)
            for partition in assigned:
                consumer.position(partition)
        return consumer

    def _read(self) -> None:
        end = StreamDPError(CLOSED)
        try:
            while not self._stopping.is_set():
                self._look()
                for records in self._consumer.poll(timeout_ms=_POLL_MS).values():
                    for record in records:
                        self._sort(self._roles[record.topic], record.value)
        except Exception as error:  # noqa: BLE001 - handed to every waiter
            end = ServerUnavailable(f"the broker was lost: {error}")
            end.__cause__ = error
        finally:
            self._finish(end)
            self._consumer.close()

    def _look(self) -> None:
        """Notices a broker that stays away. The consumer would retry for ever without a message.

        Raises:
            ServerUnavailable: The broker has been gone for longer than a restart takes.
        """
        now = time.monotonic()
        if now - self._looked_s < _LOOK_S:
            return
        self._looked_s = now
        try:
            check_reachable(self._broker)
        except ServerUnavailable as gone:
            if now - self._seen_s > _AWAY_S:
                raise
            if self._on_delay and not self._away:
                self._on_delay(str(gone))
            self._away = True
        else:
            self._seen_s, self._away = now, False

    def _finish(self, end: StreamDPError) -> None:
        """Ends the mailbox: current and later waiters get the error."""
        with self._lock:
            self._end = end
            waiting, self._keys = list(self._keys), {}
            self._waiters.clear()
            for follower in self._followers:
                follower(None)
        for future in waiting:
            if not future.done():
                future.set_exception(end)

    def _sort(self, role: str, value: bytes | None) -> None:
        reply = _READERS[role](value)
        if reply is None:
            return
        key = _key(reply)
        with self._lock:
            if isinstance(reply, Event) and reply.schema_version is not None:
                self._schema_versions[reply.dataset] = reply.schema_version
            for follower in self._followers:
                follower(reply)
            if key[0] == "record":
                self._rejections[key] = reply
                if len(self._rejections) > _REMEMBERED_REJECTIONS:
                    del self._rejections[next(iter(self._rejections))]
            for future in list(self._waiters.get(key, ())):
                self._settle(future, reply)

    def _settle(self, future: Future[Reply], reply: Reply) -> None:
        self._drop(future)
        if not future.done():
            future.set_result(reply)

    def _drop(self, future: Future[Reply]) -> None:
        for key in self._keys.pop(future, ()):
            waiters = self._waiters[key]
            waiters.remove(future)
            if not waiters:
                del self._waiters[key]

    def expect(self, key: Key) -> Future[Reply]:
        """Returns a future for the next reply under ``key``. Call ``forget`` to give it up."""
        future: Future[Reply] = Future()
        future.set_running_or_notify_cancel()  # nobody can cancel it while it is settled
        with self._lock:
            self._check_open()
            self._add(future, key)
        return future

    def expect_rejection(
        self, future: Future[Reply], record: Key, query_id: str | None = None
    ) -> None:
        """Lets the rejection of a record that was just sent, or of one of its queries, settle ``future``.

        Args:
            future: The future to settle.
            record: ``(topic, partition, offset)``.
            query_id: The id of the query, if the record holds several.
        """
        with self._lock:
            self._check_open()
            for key in {("record", *record, None), ("record", *record, query_id)}:
                if future.done():
                    return
                if key in self._rejections:
                    self._settle(future, self._rejections[key])
                else:
                    self._add(future, key)

    def _add(self, future: Future[Reply], key: Key) -> None:
        self._waiters.setdefault(key, []).append(future)
        self._keys.setdefault(future, []).append(key)

    def _check_open(self) -> None:
        if self._end is not None:
            raise self._end

    def forget(self, future: Future[Reply]) -> None:
        """Stops waiting for this future. Others under the same key go on."""
        with self._lock:
            self._drop(future)

    @contextlib.contextmanager
    def subscribe(self, follower: Callable[[Reply | None], None]) -> Iterator[None]:
        """Calls ``follower`` with every new reply, in the reader's thread, and with None at the end."""
        with self._lock:
            self._check_open()
            self._followers.append(follower)
        try:
            yield
        finally:
            with self._lock:
                self._followers.remove(follower)

    @property
    def lost(self) -> StreamDPError | None:
        """The error that ended the reader. None while it reads and after ``close``."""
        return None if self._stopping.is_set() else self._end

    def close(self) -> None:
        """Ends the reader. Callers that still wait get an error."""
        self._stopping.set()
        self._thread.join(timeout=5)


def _key(reply: Reply) -> Key:
    if isinstance(reply, Answer):
        return "answer", reply.dataset, reply.analyst, reply.query_id
    if isinstance(reply, Event):
        if reply.batch is not None:
            return "batch", reply.dataset, reply.batch
        return "event", reply.dataset, reply.event
    if isinstance(reply, RunningTick):
        return "running", reply.dataset
    # The key is the record's offset, because other analysts may use the same query id.
    return "record", reply.topic, reply.partition, reply.offset, reply.query_id
