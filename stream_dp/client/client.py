"""Define data sets, send batches, ask queries."""

from __future__ import annotations

import contextlib
import difflib
import getpass
import json
import threading
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

from kafka import KafkaProducer
from kafka.errors import KafkaError

from stream_dp.broker import Broker
from stream_dp.client import documents, frames
from stream_dp.client.exchange import Exchange, Rejection
from stream_dp.client.finding import find
from stream_dp.client.mailbox import CLOSED, Key, Mailbox, Reply
from stream_dp.client.queries import AnswerT, Condition, Query, packed, query_of, spelt
from stream_dp.client.reading import TopicReader
from stream_dp.client.topics import check_reachable, no_broker, worker_group, workers
from stream_dp.errors import (
    InvalidDefinition,
    InvalidInput,
    RequestTimeout,
    ServerUnavailable,
    StreamDPError,
)
from stream_dp.messages import (
    TOPICS,
    Answer,
    Definition,
    Event,
    NoisyAnswer,
    QuotedAnswer,
    RefusedAnswer,
    Rejected,
    SyntheticRows,
    Topics,
)

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["Client"]

_ATTEMPTS = 3
_PATIENCE_S = 3.0
_CLOSE_S = 5.0
_BLOCK_MS = 20_000
_Headers = Sequence[tuple[str, bytes]]


class Client:
    """A connection for one analyst or producer. Thread-safe; close it, or use it in a ``with``.

    Args:
        bootstrap_servers: Kafka brokers, ``host:port`` separated by commas; a ``Broker`` where they ask for
            TLS or a password. By default those in ``STREAM_DP_BOOTSTRAP_SERVERS``, else what ``stream-dp up``
            started on this machine.
        analyst: Who asks; answers are stored for ever under (analyst, query_id). By default the login name.
        topic_prefix: Common start of the topics' names; by default ``stream-dp.``, and without an address
            that in ``STREAM_DP_TOPIC_PREFIX``, else that which ``stream-dp up`` was told.
        kafka: Further settings for kafka-python.
        on_delay: Told in words, once a request, when a reply takes more than three seconds, and when the
            broker has not answered for some.

    Raises:
        ServerUnavailable: No broker there, or the topics do not exist; or no address is given, and nothing
            runs on this machine.
    """

    def __init__(
        self,
        bootstrap_servers: str | Broker | None = None,
        *,
        analyst: str | None = None,
        topic_prefix: str | None = None,
        kafka: Mapping[str, object] | None = None,
        on_delay: Callable[[str], None] | None = None,
    ) -> None:
        self.analyst = analyst or getpass.getuser()
        broker, topic_prefix = find(bootstrap_servers, topic_prefix)
        self._broker = broker
        self._topics = Topics(topic_prefix)
        self._group = worker_group(topic_prefix)
        self._kafka = dict(kafka or {})
        self._on_delay = on_delay
        self._config: dict[str, object] = {
            **broker.arguments(),
            "bootstrap_timeout_ms": _BLOCK_MS,
            **self._kafka,
        }
        self._reader = TopicReader(broker, self._config, self._topics)
        self._lock = threading.Lock()
        self._mailbox: Mailbox | None = None
        self._closed = False
        self._definitions: dict[str, Definition] = {}
        check_reachable(broker)
        try:
            self._producer = _aside(
                partial(
                    KafkaProducer,
                    **self._config,
                    acks="all",
                    linger_ms=1,
                    max_block_ms=_BLOCK_MS,
                    max_request_size=max(topic.max_message_bytes for topic in TOPICS.values()),
                )
            )
        except KafkaError as error:
            raise no_broker(broker, error) from error

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
        """Sends what is queued and closes the connections; whoever still waits for a reply is told."""
        with self._lock:
            mailbox, self._closed = self._mailbox, True
        if mailbox is not None:
            mailbox.close()
        try:
            self._producer.close(timeout=_CLOSE_S)
        except KafkaError:
            # The broker is gone: its own close gives up half-way, and complains again when collected.
            self._producer._sender.force_close()  # noqa: SLF001
            self._producer._closed = True  # noqa: SLF001
        self._producer._sender.join(_CLOSE_S)  # noqa: SLF001 - nothing of ours runs on after this

    # ------------------------------------------------------------ data sets

    def define(self, definition: Mapping[str, Any], *, timeout_s: float = 30.0) -> Definition:
        """Creates a data set and waits until it is accepted; the same words again change nothing.

        What the worker notes about it is handed on as a ``UserWarning``.

        Args:
            definition: As in docs/messages.md; ``version`` may be left out.

        Raises:
            InvalidDefinition: It is wrong in itself; the message names the field and the fix.
            Rejection: The worker refuses it, for example since the name is taken.
            RequestTimeout: No worker replied.
        """
        checked = Definition.read({"version": 1, **definition}, quoting=True)
        checked.check_new()
        key = ("event", checked.dataset, "dataset_accepted")
        accepted = self._request(
            "datasets", checked.dataset, checked.to_bytes(), key, timeout_s, "the definition"
        ).wait()
        assert isinstance(accepted, Event)
        self._definitions[checked.dataset] = checked
        if accepted.note is not None:
            warnings.warn(accepted.note, stacklevel=2)
        return checked

    def retire(self, dataset: str, *, timeout_s: float = 30.0) -> None:
        """Erases a data set's rows and retires its name for ever."""
        key = ("event", dataset, "dataset_retired")
        self._request("datasets", dataset, None, key, timeout_s, "the retirement").wait()

    def catalog(self) -> dict[str, Definition]:
        """All data sets in force, by name."""
        found: dict[str, Definition] = {}
        for key, value in self._reader.read("catalog"):
            found.pop(key, None)
            if value:
                with contextlib.suppress(InvalidDefinition):  # of a newer release
                    found[key] = Definition.read(json.loads(value))
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
            raise _unknown_dataset(dataset, sorted(self._definitions))
        return self._definitions[dataset]

    def ledger(self, dataset: str) -> list[dict[str, Any]]:
        """The published ledger of a data set, oldest entry first."""
        return self.ledgers().get(dataset, [])

    def ledgers(self) -> dict[str, list[dict[str, Any]]]:
        """The published ledgers of all data sets."""
        return {
            name: [json.loads(entry) for entry in entries]
            for name, entries in self.ledger_entries().items()
        }

    def ledger_entries(self) -> dict[str, list[bytes]]:
        """The same as bytes, which the hash chain is about; an entry that was sent twice comes once."""
        found: dict[str, dict[bytes, None]] = {}
        for key, value in self._reader.read("ledger"):
            found.setdefault(key, {})[value or b"{}"] = None
        return {name: list(entries) for name, entries in found.items()}

    def synthetic(self, dataset: str) -> SyntheticRows:
        """The newest synthetic rows of a data set, and how far off they may be; they cost nothing.

        As a data frame: ``pandas.DataFrame(client.synthetic(name).values())``.

        Raises:
            InvalidInput: There is no data set of that name, or it asks for no synthetic rows.
            StreamDPError: There are none yet, or it is retired.
        """
        wanted = self.definition(dataset).synthetic_rows
        if not wanted:
            raise InvalidInput(
                "dataset",
                f"{dataset} has no synthetic rows: its definition does not ask for them",
                'define a new one with "synthetic_rows": 1000; definitions never change',
            )
        # They may be long, and the newest are near the end.
        for latest in (1, 16, None):
            records = self._reader.read("synthetic", latest=latest)
            values = [value for key, value in records if key == dataset]
            if values:
                break
        found = documents.read(SyntheticRows, values[-1]) if values else None
        if found is not None:
            return found
        if values:
            raise StreamDPError(
                f"the newest synthetic rows of {dataset} cannot be read: it was retired just now, or a newer "
                "release wrote them"
            )
        raise StreamDPError(
            f"{dataset} has no synthetic rows yet: {wanted:,} come soon after its first phase opens; see: "
            "stream-dp status"
        )

    def difficulties(self, *, latest: int = 5000) -> tuple[Counter[str], Counter[str]]:
        """Easy and hard answers of each data set among the ``latest`` of each partition."""
        counts: dict[str, Counter[str]] = {"easy": Counter(), "hard": Counter()}
        seen: set[tuple[str, str, str]] = set()
        for key, value in self._reader.read("answers", latest=latest):
            answer = documents.read_answer(value)
            if not isinstance(answer, NoisyAnswer):
                continue
            name = (key, answer.analyst, answer.query_id)
            if name not in seen:
                seen.add(name)
                counts[answer.difficulty][key] += 1
        return counts["easy"], counts["hard"]

    def waiting(self) -> dict[str, int]:
        """Rows of each data set that wait for the next phase, as far as recent events tell."""
        found: dict[str, int] = {}
        for key, value in self._reader.read("events", latest=5000):
            event = documents.read(Event, value)
            if event is None:
                continue
            if event.waiting is not None:
                found[key] = event.waiting
            elif event.event in ("phase_opened", "dataset_retired"):
                found[key] = 0
        return found

    def batch_events(self, dataset: str, *, since_ms: int = 0) -> list[Event]:
        """What became of the batches of a data set since a time, as far back as the broker keeps it.

        Args:
            since_ms: Milliseconds since 1970.
        """
        records = self._reader.read("events", since_ms=since_ms)
        events = [documents.read(Event, value) for key, value in records if key == dataset]
        return [event for event in events if event is not None and event.batch_id is not None]

    def worker_problem(self) -> str | None:
        """Why nobody replies, in words, as far as can be told; None when a worker is there."""
        try:
            check_reachable(self._broker)
        except ServerUnavailable as gone:
            return str(gone)
        patience = {"bootstrap_timeout_ms": int(1000 * _PATIENCE_S)}
        try:
            found = workers(self._broker, self._group, kafka={**self._kafka, **patience})
        except StreamDPError:
            return None  # not allowed to ask, or the broker says nothing: then we do not know
        if found:
            return None
        return (
            f"no worker runs (nobody has joined the group {self._group}); start one with `stream-dp up` or "
            "`stream-dp worker`"
        )

    # ------------------------------------------------------------ batches

    def send(
        self,
        dataset: str,
        *,
        rows: Sequence[Mapping[str, object]] | None = None,
        columns: Mapping[str, Sequence[object]] | None = None,
        cells: Sequence[Mapping[str, object]] | None = None,
        frame: pd.DataFrame | None = None,
        arrow: pa.Table | pa.RecordBatch | None = None,
        batch_id: str | None = None,
        timeout_s: float = 30.0,
    ) -> Event:
        """Sends one batch in one of five forms and waits until it is durable.

        NaN and None are missing values; numbers of numpy, decimals and dates go as JSON says them.

        Args:
            frame: Of its columns those that the definition declares are sent, and no other.
            arrow: Ditto; goes as an Arrow stream, smaller and faster. Needs the extra ``arrow`` here and on
                the worker.
            batch_id: Sending again under the same id counts the rows once. By default a new one.

        Returns:
            The event ``batch_accepted``: rows taken, rows waiting, phases opened.

        Raises:
            InvalidInput: Not exactly one form, a missing column, or more than one record may hold.
            Rejection: The batch was refused; no row was taken.
            RequestTimeout: No worker replied.
        """
        given = {"rows": rows, "columns": columns, "cells": cells, "frame": frame, "arrow": arrow}
        forms = [name for name, value in given.items() if value is not None]
        if len(forms) != 1:
            raise InvalidInput(
                "batch",
                f"{' and '.join(forms) or 'none'} of rows, columns, cells, frame and arrow given",
                "give exactly one",
            )
        batch_id = batch_id or uuid.uuid4().hex
        if arrow is not None:
            names = [attribute.name for attribute in self.definition(dataset).attributes]
            value = frames.arrow_stream(arrow, names)
            headers = [("content-type", frames.ARROW), ("batch_id", batch_id.encode())]
            return self._send_batch(dataset, value, batch_id, timeout_s, headers)
        if frame is not None:
            names = [attribute.name for attribute in self.definition(dataset).attributes]
            given = {"columns": frames.frame_columns(frame, names)}
        body = {name: value for name, value in given.items() if value is not None}
        document = {"version": 1, "dataset": dataset, "batch_id": batch_id, **body}
        return self._send_batch(dataset, documents.to_json(document), batch_id, timeout_s)

    def _send_batch(
        self, dataset: str, value: bytes, batch_id: str, timeout_s: float, headers: _Headers = ()
    ) -> Event:
        limit = TOPICS["batches"].max_value_bytes
        if len(value) > limit:
            raise InvalidInput(
                "batch", f"{len(value):,} bytes are more than {limit:,}", "send fewer rows a batch"
            )
        key = ("batch", dataset, batch_id)
        what = f"batch {batch_id}"
        reply = self._request("batches", dataset, value, key, timeout_s, what, headers).wait()
        assert isinstance(reply, Event)
        if reply.event == "batch_refused":
            raise _refused(reply, self._topics.name("batches"))
        return reply

    # ------------------------------------------------------------ queries

    @overload
    def ask(
        self, dataset: str, query: Query[AnswerT], *, timeout_s: float = 30.0
    ) -> AnswerT | RefusedAnswer: ...

    @overload
    def ask(
        self,
        dataset: str,
        query: Condition | None = None,
        *,
        group_by: Sequence[str] = (),
        last_phases: int | None = None,
        query_id: str | None = None,
        timeout_s: float = 30.0,
    ) -> Answer: ...

    def ask(
        self,
        dataset: str,
        query: Query[Any] | Condition | None = None,
        *,
        group_by: Sequence[str] = (),
        last_phases: int | None = None,
        query_id: str | None = None,
        timeout_s: float = 30.0,
    ) -> Answer:
        """Asks one query and waits for its answer.

        Returns:
            The answer as an instance of the class of its kind, such as ``QuantileAnswer``, or a
            ``RefusedAnswer``.

        Args:
            query: SQL (``"age >= 30 AND smoker"``, or a whole ``SELECT COUNT(*) ... GROUP BY``), or the
                JSON tree of ``where``; None for all rows; or a ``Query`` of any kind, such as
                ``Query.quantile("age", 0.9)``, which says itself what else there is to say.
            query_id: The answer under an id never changes. By default a new one.

        Raises:
            InvalidQuery: The query does not fit the schema; the message points at the piece.
            Rejection: The id was used for another query.
            RequestTimeout: No reply, after three attempts under the same id.
        """
        asked = query_of(query, group_by, last_phases, query_id)
        return self.ask_query(dataset, asked, timeout_s=timeout_s)

    def quote(
        self,
        dataset: str,
        query: Query[Any] | Condition | None = None,
        *,
        group_by: Sequence[str] = (),
        last_phases: int | None = None,
        timeout_s: float = 30.0,
    ) -> QuotedAnswer | RefusedAnswer:
        """What the answer would cost now; spends nothing."""
        asked = query_of(query, group_by, last_phases, None)
        answer = self.ask_query(dataset, asked, quote=True, timeout_s=timeout_s)
        assert isinstance(answer, QuotedAnswer | RefusedAnswer)
        return answer

    def ask_query(
        self, dataset: str, query: Query[Any], *, quote: bool = False, timeout_s: float = 30.0
    ) -> Answer:
        """``ask``, or ``quote``, for a query in one piece."""
        answer = self.asking(dataset, query, quote=quote, timeout_s=timeout_s).wait()
        assert isinstance(answer, Answer)
        return answer

    def asking(
        self, dataset: str, query: Query[Any], *, quote: bool = False, timeout_s: float = 30.0
    ) -> Exchange:
        """The same for whoever waits in another way: nothing is sent yet."""
        item = self.spelt(dataset, query)
        if quote:
            item["quote"] = True
        document = {"version": 1, "dataset": dataset, "analyst": self.analyst, **item}
        return self._request(
            "queries",
            dataset,
            documents.to_json(document),
            self._answer_key(dataset, item),
            timeout_s,
            f"query {item['query_id']}",
        )

    def spelt(self, dataset: str, query: Query[Any]) -> dict[str, Any]:
        """A query as its message says it, under a new id where it has none.

        Raises:
            InvalidInput: What it says does not go together.
            InvalidQuery: Its SQL does not fit the schema; the message points at the piece.
        """
        return spelt(query, partial(self._parsed, dataset))

    def _parsed(self, dataset: str, text: str) -> dict[str, Any]:
        from stream_dp import sql  # sqlglot takes its time to load

        attributes = [attribute.model_dump() for attribute in self.definition(dataset).attributes]
        return sql.parse(text, attributes, dataset=dataset)

    def ask_many(
        self,
        dataset: str,
        queries: Sequence[Query[Any]],
        *,
        timeout_s: float = 60.0,
        on_answer: Callable[[int, Answer], None] | None = None,
    ) -> list[Answer | Rejection]:
        """Asks many queries, up to a hundred in a record; replies come in the order asked.

        Args:
            timeout_s: Longest wait for the next reply.
            on_answer: Called with the index of each answer as it comes in.

        Raises:
            InvalidInput: Two of the queries have one id.
            InvalidQuery: A query does not fit the schema; none was sent then.
            RequestTimeout: A reply is missing.
        """
        items = [self.spelt(dataset, query) for query in queries]
        ids = Counter(item["query_id"] for item in items)
        if len(ids) < len(items):
            ((twice, _),) = ids.most_common(1)
            raise InvalidInput("query_id", f"{twice} is there twice", "give every query its own")
        mailbox = self._open_mailbox()
        expected = [mailbox.expect(self._answer_key(dataset, item)) for item in items]
        try:
            start = 0
            head = {"version": 1, "dataset": dataset, "analyst": self.analyst}
            for value, taken in packed(head, items):
                place = self._put("queries", dataset, value, timeout_s=timeout_s)
                stop = start + taken
                for item, future in zip(items[start:stop], expected[start:stop], strict=True):
                    mailbox.expect_rejection(future, place, item["query_id"])
                start = stop
            replies: list[Answer | Rejection] = []
            for index, (item, future) in enumerate(zip(items, expected, strict=True)):
                reply = mailbox.receive(future, timeout_s)
                if reply is None:
                    raise self._timeout(f"query {item['query_id']}", timeout_s)
                if isinstance(reply, Rejected):
                    replies.append(Rejection(reply))
                    continue
                assert isinstance(reply, Answer)
                replies.append(reply)
                if on_answer is not None:
                    on_answer(index, reply)
            return replies
        finally:
            for future in expected:
                mailbox.forget(future)

    def table(
        self,
        dataset: str,
        query: Query[Any] | str,
        *,
        last_phases: int | None = None,
        timeout_s: float = 60.0,
    ) -> pd.DataFrame:
        """An answer of many values as a data frame: one row a cell, or a condition of a batch.

        Raises:
            StreamDPError: It was refused, or it is one value alone: for those there is ``answers_frame``.
        """
        asked = query_of(query, (), last_phases, None)
        answer = self.ask_query(dataset, asked, timeout_s=timeout_s)
        return frames.answer_frame(answer, asked.conditions)

    def follow(self, dataset: str | None = None) -> Iterator[Reply]:
        """Answers, events and rejections from now on, as they come; ends when the client closes."""
        queue: SimpleQueue[Reply | None] = SimpleQueue()
        with self.following(queue.put):
            while (reply := queue.get()) is not None:
                if dataset is None or reply.dataset == dataset:
                    yield reply

    @contextlib.contextmanager
    def following(self, follower: Callable[[Reply | None], None]) -> Iterator[None]:
        """The same by calls, while the context lasts: in another thread, and with None at the end.

        Raises:
            ServerUnavailable: When the context ends, if the broker was lost.
        """
        mailbox = self._open_mailbox()
        with mailbox.following(follower):
            yield
        if mailbox.lost is not None:
            raise mailbox.lost

    def open(self) -> None:
        """Starts to listen now rather than at the first request."""
        self._open_mailbox()

    # ------------------------------------------------------------ inside

    def _answer_key(self, dataset: str, item: Mapping[str, Any]) -> Key:
        return "answer", dataset, self.analyst, item["query_id"]

    def _request(
        self,
        role: str,
        dataset: str,
        value: bytes | None,
        key: Key,
        timeout_s: float,
        what: str,
        headers: _Headers = (),
    ) -> Exchange:
        """A record that is sent again in the same bytes when no reply comes in a part of the time."""
        mailbox = self._open_mailbox()
        future = mailbox.expect(key)
        query_id = str(key[3]) if key[0] == "answer" else None

        def attempts() -> Iterator[float]:
            end = time.monotonic() + timeout_s
            for attempt in range(_ATTEMPTS):
                if attempt:  # the producer itself would wait for a broker that is gone
                    check_reachable(self._broker)
                place = self._put(role, dataset, value, headers, timeout_s=end - time.monotonic())
                mailbox.expect_rejection(future, place, query_id)
                if attempt == 0 and self._on_delay and timeout_s > _PATIENCE_S * _ATTEMPTS:
                    yield _PATIENCE_S
                    self._on_delay(self.worker_problem() or f"no reply to {what} yet")
                deadline = end - timeout_s * (_ATTEMPTS - 1 - attempt) / _ATTEMPTS
                yield max(0.0, deadline - time.monotonic())
            raise self._timeout(what, timeout_s)

        return Exchange(mailbox, future, attempts())

    def _timeout(self, what: str, timeout_s: float) -> RequestTimeout:
        why = self.worker_problem() or (
            "a worker is there, so it may be busy, or wait for its Redis: see its page or `stream-dp doctor`"
        )
        return RequestTimeout(
            f"no reply to {what} within {timeout_s:g} s: {why}. Sending it again under the same id is safe"
        )

    def _lost(self, error: BaseException) -> ServerUnavailable:
        return ServerUnavailable(
            f"the broker at {self._broker} took no record ({type(error).__name__}); is it gone? "
            "See: stream-dp doctor. Sending again under the same id is safe"
        )

    def _put(
        self,
        role: str,
        dataset: str,
        value: bytes | None,
        headers: _Headers = (),
        *,
        timeout_s: float,
    ) -> tuple[str, int, int]:
        """Sends one record; returns its place."""
        topic = self._topics.name(role)
        try:
            sent = self._producer.send(
                topic, key=dataset.encode(), value=value, headers=list(headers)
            ).get(timeout=max(1.0, timeout_s))
        except KafkaError as error:
            if self._closed:
                raise StreamDPError(CLOSED) from error
            raise self._lost(error) from error
        return topic, sent.partition, sent.offset

    def _open_mailbox(self) -> Mailbox:
        with self._lock:
            if self._closed:
                raise StreamDPError("this client is closed; make a new one")
            if self._mailbox is None:
                self._mailbox = Mailbox(
                    self._broker, self._config, self._topics, on_delay=self._on_delay
                )
            return self._mailbox


def _aside(make: Callable[[], KafkaProducer]) -> KafkaProducer:
    """Makes a producer in a thread of its own, so that Ctrl-C ends the waiting.

    While it connects, kafka-python takes a KeyboardInterrupt of its thread for the failure of a task of its
    own, and goes on.
    """
    made: Future[KafkaProducer] = Future()

    def run() -> None:
        try:
            made.set_result(make())
        except BaseException as error:  # noqa: BLE001 - raised where it is waited for
            made.set_exception(error)

    threading.Thread(target=run, name="stream-dp-connecting", daemon=True).start()
    return made.result()


def _unknown_dataset(name: str, known: Sequence[str]) -> InvalidInput:
    if not known:
        fix = "there is none at all yet; create one with: stream-dp dataset create DEFINITION.json"
    elif near := difflib.get_close_matches(name, known, 1):
        fix = f"did you mean {near[0]}?"
    else:
        fix = f"choose one of: {', '.join(known[:20])}{', ...' if len(known) > 20 else ''}"
    return InvalidInput("dataset", f"there is no data set {name!r}", fix)


def _refused(event: Event, topic: str) -> Rejection:
    assert event.reason is not None
    return Rejection(
        Rejected(
            topic=topic,
            partition=-1,
            offset=-1,
            dataset=event.dataset,
            batch_id=event.batch_id,
            reason=event.reason,
        )
    )
