"""Reads the topics while a page is open, and never faster than the page needs."""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

from kafka import KafkaConsumer, TopicPartition
from kafka.errors import KafkaError

from stream_dp.broker import Broker
from stream_dp.client.kafka.deployment_topics import check_reachable
from stream_dp.errors import ServerUnavailable
from stream_dp.messages import Topics
from stream_dp.web.page_data.published_state import READ, PublishedState

_log = logging.getLogger(__name__)

_FROM_THE_START: Final = frozenset({"catalog", "ledger", "standing"})
_LATEST: Final = 2_000
_MAY_SKIP: Final = frozenset({"answers", "rejected", "queries"})
_MOST_BEHIND: Final = 5_000
_POLL_MS: Final = 500
_RECORDS_A_POLL: Final = 500
_PAUSE_S: Final = 0.2
_BREATH_S: Final = 0.01
_RETRY_S: Final = 3.0
_LOOK_S: Final = 2.0


class Feed:
    """A background reader that runs while there are viewers, and a while longer.

    It continues where it stopped, so it reads nothing twice. If answers arrive faster than it may read, it
    skips some of them. The page then shows a sample.

    Args:
        idle_s: The seconds for which it goes on reading after the last viewer has left.
    """

    def __init__(
        self, broker: Broker, topics: Topics, published: PublishedState, *, idle_s: float = 60.0
    ) -> None:
        self._broker = broker
        self._roles = {topics.name(role): role for role in READ}
        self._published = published
        self._idle_s = idle_s
        self._positions: dict[TopicPartition, int] = {}
        self._goals: dict[TopicPartition, int] = {}
        self._opened = False
        self._lock = threading.Lock()
        self._viewers = 0
        self._left_s = 0.0
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self.skipped = 0
        """The number of records that were skipped."""
        self.problem = ""
        """The reason why nothing is read at the moment."""

    @property
    def running(self) -> bool:
        """Whether topics are read at the moment."""
        return self._thread is not None and self._thread.is_alive()

    @property
    def caught_up(self) -> bool:
        """Whether all records from before the reader last started have been read."""
        return self._opened and not self._goals

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Reads while the context lasts."""
        with self._lock:
            self._viewers += 1
            if not self.running and not self._stopping.is_set():
                self._opened = False
                self._thread = threading.Thread(
                    target=self._run, name="stream-dp-pages", daemon=True
                )
                self._thread.start()
        try:
            yield
        finally:
            with self._lock:
                self._viewers -= 1
                self._left_s = time.monotonic()

    def close(self) -> None:
        """Ends the reader."""
        self._stopping.set()
        thread = self._thread
        if thread is not None:
            thread.join(timeout=5)

    def _wanted(self) -> bool:
        """Returns whether to go on. After False the reader ends without another call."""
        with self._lock:
            idle = self._viewers == 0 and time.monotonic() - self._left_s > self._idle_s
            if idle or self._stopping.is_set():
                self._thread = None
                return False
            return True

    def _run(self) -> None:
        while self._wanted():
            try:
                self._read()
            except (KafkaError, ServerUnavailable) as error:
                self.problem = f"the topics cannot be read ({type(error).__name__})"
                _log.warning("the pages are not up to date: %s", self.problem)
                self._stopping.wait(_RETRY_S)
            else:
                return

    def _read(self) -> None:
        """Reads until nobody needs it."""
        check_reachable(self._broker)
        consumer = KafkaConsumer(
            **self._broker.arguments(),
            bootstrap_timeout_ms=10_000,
            enable_auto_commit=False,
            max_poll_records=_RECORDS_A_POLL,
        )
        try:
            self._open(consumer)
            self.problem = ""
            looked_s = time.monotonic()
            while self._wanted():
                arrived = consumer.poll(timeout_ms=_POLL_MS)
                for partition, records in arrived.items():
                    for record in records:
                        self._take(record)
                    self._positions[partition] = records[-1].offset + 1
                    self._skip(consumer, partition)
                self._note_progress(consumer)
                if arrived:
                    self._stopping.wait(_BREATH_S if self._goals else _PAUSE_S)
                elif time.monotonic() - looked_s > _LOOK_S:
                    # The consumer would wait for a broker that is gone, and long after it is back.
                    check_reachable(self._broker)
                    looked_s = time.monotonic()
        finally:
            consumer.close()

    def _open(self, consumer: KafkaConsumer) -> None:
        partitions = [
            TopicPartition(topic, number)
            for topic in self._roles
            for number in consumer.partitions_for_topic(topic) or ()
        ]
        consumer.assign(partitions)
        starts, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        for partition in partitions:
            start, role = starts[partition], self._roles[partition.topic]
            if role not in _FROM_THE_START:
                start = max(start, ends[partition] - _LATEST)
            if role == "running":  # of which the newest period alone is shown
                self._positions[partition] = max(start, self._positions.get(partition, start))
            self._positions.setdefault(partition, start)
            consumer.seek(partition, max(self._positions[partition], starts[partition]))
        self._goals = {partition: ends[partition] for partition in partitions}
        self._opened = True

    def _take(self, record: Any) -> None:
        key = (record.key or b"").decode(errors="replace")
        # A record of another program or of a newer release is skipped.
        with contextlib.suppress(ValueError, KeyError, IndexError, TypeError):
            self._published.take(self._roles[record.topic], key, record.value, record.timestamp)

    def _skip(self, consumer: KafkaConsumer, partition: TopicPartition) -> None:
        """Skips records that a page could not show in time."""
        end = consumer.highwater(partition)
        if self._roles[partition.topic] not in _MAY_SKIP or end is None:
            return
        start = end - _RECORDS_A_POLL
        if end - self._positions[partition] > _MOST_BEHIND:
            self.skipped += start - self._positions[partition]
            self._positions[partition] = start
            consumer.seek(partition, start)

    def _note_progress(self, consumer: KafkaConsumer) -> None:
        """Notes that the old records are read once the consumer has passed them."""
        self._goals = {
            partition: goal
            for partition, goal in self._goals.items()
            if consumer.position(partition) < goal
        }
