"""Define data sets, send batches, ask questions."""

from __future__ import annotations

import getpass
import json
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError

from stream_dp.client.mailbox import Key, Mailbox, Reply
from stream_dp.errors import InvalidInput, RequestTimeout, ServerUnavailable, StreamDPError
from stream_dp.messages import TOPICS, Answer, Definition, Event, Rejected, Topics

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["Client", "Question", "Rejection"]

_ATTEMPTS = 3


class Rejection(StreamDPError):
    """The worker took no request out of a record; ``reason`` says why and what to do."""

    code = "rejected"

    def __init__(self, rejected: Rejected) -> None:
        self.rejected = rejected
        self.reason = rejected.reason
        super().__init__(rejected.reason.message)


@dataclass(frozen=True, slots=True)
class Question:
    """One question, as ``ask_many`` takes it.

    Attributes:
        condition: SQL, or the JSON tree of ``where``; None for all rows.
        last_phases: How many of the latest phases; None for all.
        query_id: The answer under an id never changes. None for a new one.
    """

    condition: str | Mapping[str, Any] | None = None
    group_by: tuple[str, ...] = ()
    last_phases: int | None = None
    query_id: str | None = None


class Client:
    """A connection for one analyst or producer. Thread-safe; close it, or use it in a ``with``.

    Args:
        bootstrap_servers: Kafka brokers, ``host:port`` separated by commas.
        analyst: Who asks; answers are stored for ever under (analyst, query_id).
        kafka: Further settings for kafka-python, such as security.

    Raises:
        ServerUnavailable: No broker there, or the topics do not exist.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        analyst: str | None = None,
        topic_prefix: str = "stream-dp.",
        kafka: Mapping[str, object] | None = None,
    ) -> None:
        self.analyst = analyst or getpass.getuser()
        self._topics = Topics(topic_prefix)
        self._config: dict[str, object] = {
            "bootstrap_servers": bootstrap_servers.split(","),
            "bootstrap_timeout_ms": 5000,
            **(kafka or {}),
        }
        self._lock = threading.Lock()
        self._mailbox: Mailbox | None = None
        self._definitions: dict[str, Definition] = {}
        try:
            self._producer = KafkaProducer(
                **self._config,
                acks="all",
                linger_ms=1,
                max_request_size=max(topic.max_message_bytes for topic in TOPICS.values()),
            )
        except KafkaError as error:
            raise ServerUnavailable(
                f"no Kafka broker at {bootstrap_servers} ({error}); is `stream-dp up` running? "
                "Else pass --bootstrap-servers"
            ) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Sends what is queued and closes the connections."""
        self._producer.close()
        if self._mailbox is not None:
            self._mailbox.close()

    # ------------------------------------------------------------ data sets

    def define(self, definition: Mapping[str, Any], *, timeout_s: float = 30.0) -> Definition:
        """Creates a data set and waits until it is accepted; the same words again change nothing.

        Raises:
            InvalidDefinition: It is wrong in itself; the message names the field and the fix.
            Rejection: The worker refuses it, for example since the name is taken.
            RequestTimeout: No worker replied.
        """
        checked = Definition.read(definition)

        key = ("event", checked.dataset, "dataset_accepted")
        self._request(
            "datasets", checked.dataset, checked.to_bytes(), key, timeout_s, "the definition"
        )
        self._definitions[checked.dataset] = checked
        return checked

    def retire(self, dataset: str, *, timeout_s: float = 30.0) -> None:
        """Erases a data set's rows and retires its name for ever."""

        key = ("event", dataset, "dataset_retired")
        self._request("datasets", dataset, None, key, timeout_s, "the retirement")

    def catalog(self) -> dict[str, Definition]:
        """All data sets in force, by name."""
        found: dict[str, Definition] = {}
        for key, value in self._read_topic("catalog"):
            if value:
                found[key] = Definition.read(json.loads(value))
            else:
                found.pop(key, None)
        self._definitions = found
        return dict(found)

    def definition(self, dataset: str) -> Definition:
        """One data set's definition.

        Raises:
            InvalidInput: There is none of that name; the message lists those there are.
        """
        if dataset not in self._definitions:
            self.catalog()
        if dataset not in self._definitions:
            names = ", ".join(sorted(self._definitions)) or "none yet"
            raise InvalidInput(
                "dataset", f"no data set {dataset!r}", f"choose one of those defined: {names}"
            )
        return self._definitions[dataset]

    def ledger(self, dataset: str) -> list[dict[str, Any]]:
        """The published ledger of a data set, oldest entry first."""
        return self.ledgers().get(dataset, [])

    def ledgers(self) -> dict[str, list[dict[str, Any]]]:
        """The published ledgers of all data sets."""
        found: dict[str, list[dict[str, Any]]] = {}
        for key, value in self._read_topic("ledger"):
            found.setdefault(key, []).append(json.loads(value or b"{}"))
        return found

    def difficulties(self) -> tuple[Counter[str], Counter[str]]:
        """Easy and hard answers of each data set among those that the broker still keeps."""
        counts: dict[str, Counter[str]] = {"easy": Counter(), "hard": Counter()}
        seen: set[tuple[str, str]] = set()
        for key, value in self._read_topic("answers"):
            answer = Answer.model_validate_json(value or b"")
            name = (answer.analyst, answer.query_id)
            if answer.status == "answered" and answer.difficulty and name not in seen:
                seen.add(name)
                counts[answer.difficulty][key] += 1
        return counts["easy"], counts["hard"]

    # ------------------------------------------------------------ batches

    def send(
        self,
        dataset: str,
        *,
        rows: Sequence[Mapping[str, object]] | None = None,
        columns: Mapping[str, Sequence[object]] | None = None,
        cells: Sequence[Mapping[str, object]] | None = None,
        frame: pd.DataFrame | None = None,
        batch_id: str | None = None,
        timeout_s: float = 30.0,
    ) -> Event:
        """Sends one batch in one of four forms and waits until it is durable.

        Args:
            batch_id: Sending again under the same id counts the rows once. By default a new one.

        Returns:
            The event ``batch_accepted``: rows taken, rows waiting, phases opened.

        Raises:
            Rejection: The batch was refused; no row was taken.
        """
        body: dict[str, object] = {
            "rows": rows,
            "columns": frame_columns(frame) if frame is not None else columns,
            "cells": cells,
        }
        chosen = {name: value for name, value in body.items() if value is not None}
        return self.send_document(dataset, chosen, batch_id=batch_id, timeout_s=timeout_s)

    def send_document(
        self,
        dataset: str,
        body: Mapping[str, object],
        *,
        batch_id: str | None = None,
        timeout_s: float = 30.0,
    ) -> Event:
        """Sends one batch given as the fields of its message."""
        batch_id = batch_id or uuid.uuid4().hex
        document = {"version": 1, "dataset": dataset, "batch_id": batch_id, **body}
        value = _json(document)
        limit = TOPICS["batches"].max_value_bytes
        if len(value) > limit:
            raise InvalidInput(
                "batch", f"{len(value):,} bytes are more than {limit:,}", "send fewer rows a batch"
            )

        key = ("batch", dataset, batch_id)
        reply = self._request("batches", dataset, value, key, timeout_s, f"batch {batch_id}")
        assert isinstance(reply, Event)
        if reply.event == "batch_refused":
            raise _refused(reply, self._topics.name("batches"))
        return reply

    # ------------------------------------------------------------ questions

    def ask(
        self,
        dataset: str,
        question: str | Mapping[str, Any] | None = None,
        *,
        group_by: Sequence[str] = (),
        last_phases: int | None = None,
        query_id: str | None = None,
        timeout_s: float = 30.0,
    ) -> Answer:
        """Asks one question and waits for its answer.

        Args:
            question: SQL (``"age >= 30 AND smoker"``, or a whole ``SELECT COUNT(*) ... GROUP BY``), or the
                JSON tree of ``where``; None for all rows.
            query_id: The answer under an id never changes. By default a new one.

        Raises:
            InvalidQuery: The question does not fit the schema; the message points at the piece.
            Rejection: The id was used for another question.
            RequestTimeout: No reply, after three attempts under the same id.
        """
        asked = Question(question, tuple(group_by), last_phases, query_id)
        return self._asked(dataset, self._item(dataset, asked), timeout_s)

    def quote(
        self,
        dataset: str,
        question: str | Mapping[str, Any] | None = None,
        *,
        group_by: Sequence[str] = (),
        last_phases: int | None = None,
        timeout_s: float = 30.0,
    ) -> Answer:
        """What the answer would cost now; spends nothing."""
        item = self._item(dataset, Question(question, tuple(group_by), last_phases))
        return self._asked(dataset, {**item, "quote": True}, timeout_s)

    def ask_many(
        self,
        dataset: str,
        questions: Sequence[Question],
        *,
        timeout_s: float = 60.0,
        on_answer: Callable[[int, Answer], None] | None = None,
    ) -> list[Answer | Rejection]:
        """Asks many questions in messages of up to a hundred; replies come in the order asked.

        Args:
            timeout_s: Longest wait for the next reply.
            on_answer: Called with the index of each answer as it comes in.

        Raises:
            InvalidQuery: A question does not fit the schema; none was sent then.
            RequestTimeout: A reply is missing.
        """
        items = [self._item(dataset, question) for question in questions]
        mailbox = self._open_mailbox()
        expected = [mailbox.expect(self._answer_key(dataset, item)) for item in items]
        for start in range(0, len(items), 100):
            self._send_items(dataset, items[start : start + 100], expected[start : start + 100])
        replies: list[Answer | Rejection] = []
        for index, (future, item) in enumerate(zip(expected, items, strict=True)):
            reply = mailbox.receive(future, timeout_s, f"question {item['query_id']}")
            if isinstance(reply, Rejected):
                replies.append(Rejection(reply))
            else:
                assert isinstance(reply, Answer)
                replies.append(reply)
                if on_answer is not None:
                    on_answer(index, reply)
        return replies

    def ask_soon(self, dataset: str, question: Question) -> Future[Reply]:
        """Sends one question and returns at once; the future gets its ``Answer`` or ``Rejected``."""
        item = self._item(dataset, question)
        document = {"version": 1, "dataset": dataset, "analyst": self.analyst, **item}
        future = self._open_mailbox().expect(self._answer_key(dataset, item))
        self._producer.send(
            self._topics.name("queries"), key=dataset.encode(), value=_json(document)
        )
        return future

    def table(
        self,
        dataset: str,
        question: str,
        *,
        last_phases: int | None = None,
        timeout_s: float = 60.0,
    ) -> pd.DataFrame:
        """A GROUP BY question as a data frame: one row a cell, with value, count and error bar.

        Raises:
            Rejection: It was refused.
        """
        answer = self.ask(dataset, question, last_phases=last_phases, timeout_s=timeout_s)
        return answer_frame(answer)

    def follow(self, dataset: str | None = None) -> Iterator[Reply]:
        """Answers, events and rejections from now on, as they come; ends when the client closes."""
        with self._open_mailbox().following() as replies:
            for reply in replies:
                if dataset is None or reply.dataset == dataset:
                    yield reply

    def open(self) -> None:
        """Starts to listen now rather than at the first request."""
        self._open_mailbox()

    # ------------------------------------------------------------ inside

    def _item(self, dataset: str, question: Question) -> dict[str, Any]:
        item: dict[str, Any] = {"query_id": question.query_id or uuid.uuid4().hex}
        if isinstance(question.condition, str):
            from stream_dp import sql  # sqlglot takes its time to load

            attributes = [
                attribute.model_dump() for attribute in self.definition(dataset).attributes
            ]
            item.update(sql.parse(question.condition, attributes, dataset=dataset))
        elif question.condition is not None:
            item["where"] = dict(question.condition)
        if question.group_by:
            item.update(kind="table", group_by=list(question.group_by))
        if question.last_phases is not None:
            item["window"] = {"last_phases": question.last_phases}
        return item

    def _send_items(
        self,
        dataset: str,
        items: Sequence[Mapping[str, Any]],
        expected: Sequence[Future[Reply]],
    ) -> None:
        document = {"version": 1, "dataset": dataset, "analyst": self.analyst, "queries": items}
        place = self._put("queries", dataset, _json(document))
        for future in expected:
            self._open_mailbox().expect_rejection(future, place)

    def _answer_key(self, dataset: str, item: Mapping[str, Any]) -> Key:
        return "answer", dataset, self.analyst, item["query_id"]

    def _asked(self, dataset: str, item: Mapping[str, Any], timeout_s: float) -> Answer:
        document = {"version": 1, "dataset": dataset, "analyst": self.analyst, **item}
        value = _json(document)
        reply = self._request(
            "queries",
            dataset,
            value,
            self._answer_key(dataset, item),
            timeout_s,
            f"question {item['query_id']}",
        )
        assert isinstance(reply, Answer)
        return reply

    def _request(
        self,
        role: str,
        dataset: str,
        value: bytes | None,
        key: Key,
        timeout_s: float,
        what: str,
    ) -> Reply:
        """Sends and waits; sends the same bytes again when no reply comes in a part of the time."""
        mailbox = self._open_mailbox()
        future = mailbox.expect(key)
        try:
            for attempt in range(1, _ATTEMPTS + 1):
                mailbox.expect_rejection(future, self._put(role, dataset, value))
                try:
                    reply = mailbox.receive(future, timeout_s / _ATTEMPTS, what)
                except RequestTimeout as error:
                    if attempt == _ATTEMPTS:
                        raise RequestTimeout(
                            f"no reply to {what} within {timeout_s:g} s; is a worker running "
                            "(`stream-dp doctor` tells)? Asking again under the same id is safe"
                        ) from error
                else:
                    break
        finally:
            mailbox.forget(future)
        if isinstance(reply, Rejected):
            raise Rejection(reply)
        return reply

    def _put(self, role: str, dataset: str, value: bytes | None) -> Key:
        """Sends one record; returns the key of its rejection."""
        topic = self._topics.name(role)
        try:
            sent = self._producer.send(topic, key=dataset.encode(), value=value).get(timeout=30)
        except KafkaError as error:
            raise ServerUnavailable(f"the broker took no record: {error}") from error
        return "record", topic, sent.partition, sent.offset

    def _open_mailbox(self) -> Mailbox:
        with self._lock:
            if self._mailbox is None:
                self._mailbox = Mailbox(self._config, self._topics)
            return self._mailbox

    def _read_topic(self, role: str) -> list[tuple[str, bytes | None]]:
        """Everything on a topic up to its end as of now."""
        topic = self._topics.name(role)
        found: list[tuple[str, bytes | None]] = []
        try:
            consumer = KafkaConsumer(**self._config, enable_auto_commit=False)
            try:
                numbers = consumer.partitions_for_topic(topic) or set()
                places = [TopicPartition(topic, number) for number in numbers]
                ends = consumer.end_offsets(places)
                consumer.assign(places)
                consumer.seek_to_beginning(*places)
                while any(consumer.position(place) < ends[place] for place in places):
                    for records in consumer.poll(timeout_ms=500).values():
                        found += [(record.key.decode(), record.value) for record in records]
            finally:
                consumer.close()
        except KafkaError as error:
            raise ServerUnavailable(f"the broker was lost: {error}") from error
        return found


def _json(document: Mapping[str, object]) -> bytes:
    return json.dumps(document, allow_nan=False, separators=(",", ":")).encode()


def frame_columns(frame: pd.DataFrame) -> dict[str, list[object]]:
    """A data frame's columns as JSON values; missing values become null."""
    plain = frame.astype(object).where(frame.notna(), None)
    return {str(name): plain[name].tolist() for name in plain.columns}


def answer_frame(answer: Answer) -> pd.DataFrame:
    """The table of a GROUP BY answer, one row a cell."""
    import itertools

    import pandas as pd

    table = answer.table
    if table is None:
        reason = answer.reason
        raise StreamDPError(reason.message if reason else "this answer holds no table")
    frame = pd.DataFrame(
        itertools.product(*table.labels), columns=list(table.attributes), dtype="object"
    )
    frame["value"] = table.values
    frame["count"] = table.counts
    frame["error_bar"] = table.error_bars
    return frame


def _refused(event: Event, topic: str) -> Rejection:
    assert event.reason is not None
    return Rejection(
        Rejected(
            topic=topic,
            partition=-1,
            offset=-1,
            dataset=event.dataset,
            batch_id=event.batch_id,
            digest="",
            reason=event.reason,
        )
    )
