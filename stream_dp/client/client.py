"""The client: it defines data sets, sends batches and asks queries."""

from __future__ import annotations

import contextlib
import copy
import difflib
import getpass
import itertools
import json
import threading
import time
import uuid
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from datetime import date, datetime
from functools import partial
from queue import SimpleQueue
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

from kafka import KafkaProducer
from kafka.errors import KafkaError

from stream_dp.broker import Broker
from stream_dp.client.budget.odometer import Odometer
from stream_dp.client.kafka import topic_documents
from stream_dp.client.kafka.credentials import Credentials, TokenSource
from stream_dp.client.kafka.deployment_topics import (
    check_reachable,
    no_broker,
    worker_group,
    workers,
)
from stream_dp.client.kafka.exchange import Exchange, Rejection
from stream_dp.client.kafka.mailbox import CLOSED, Key, Mailbox, Reply
from stream_dp.client.kafka.server_discovery import find, token_of_environment
from stream_dp.client.kafka.topic_reader import TopicReader
from stream_dp.client.rows import frames
from stream_dp.client.rows.unread_values import Sent, unread_values
from stream_dp.client.statements.public_tables import selected
from stream_dp.client.statements.result_table import Refusal, ResultTable
from stream_dp.client.statements.statement import Statement, statement_of
from stream_dp.client.statements.written_query import (
    AnswerT,
    Condition,
    Query,
    as_message,
    in_one_record,
    packed,
    query_of,
)
from stream_dp.errors import (
    InvalidInput,
    RequestTimeout,
    ServerUnavailable,
    StreamDPError,
)
from stream_dp.messages import (
    MOST_QUOTED,
    TOPICS,
    Answer,
    ChangeAnalysts,
    Definition,
    DimensionTable,
    Event,
    NoisyAnswer,
    QuotedAnswer,
    QuotedBundle,
    RefusedAnswer,
    Rejected,
    Series,
    StandingQuery,
    SyntheticRows,
    Topics,
)
from stream_dp.periods import span_of, zone_of

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

    from stream_dp.sql import Dimension

_ATTEMPTS = 3
_PATIENCE_S = 3.0
_CLOSE_S = 5.0
_STANDING_S = 0.2
_BLOCK_MS = 20_000
_Headers = Sequence[tuple[str, bytes]]


class Client:
    """A connection for one analyst or producer. It is thread-safe. Close it, or use it in a ``with``.

    Args:
        bootstrap_servers: The Kafka brokers, as ``host:port`` separated by commas. Pass a ``Broker`` if they
            require TLS or a password. Default: ``STREAM_DP_BOOTSTRAP_SERVERS``, or else the broker that
            ``stream-dp up`` started on this machine.
        analyst: The name of the analyst. Answers are stored for ever under (analyst, query_id). Default: the
            name in the token, or else the login name.
        topic_prefix: The prefix of the topic names. Default: ``stream-dp.``. Without an address it is
            ``STREAM_DP_TOPIC_PREFIX``, or else the prefix that ``stream-dp up`` used.
        token: The signed token that says who asks, for a deployment that requires one. A function is called
            for each record, and returns one that has not expired. Without an address it is
            ``STREAM_DP_TOKEN``.
        kafka: Further settings for kafka-python.
        on_delay: A function that receives a message once a request if a reply takes more than three seconds,
            and when the broker has not answered for some seconds.

    Raises:
        ServerUnavailable: No broker answers, or the topics do not exist. Or no address is given and no
            servers run on this machine.
        InvalidInput: The token is not one, or is that of another analyst.
    """

    def __init__(
        self,
        bootstrap_servers: str | Broker | None = None,
        *,
        analyst: str | None = None,
        topic_prefix: str | None = None,
        token: TokenSource | None = None,
        kafka: Mapping[str, object] | None = None,
        on_delay: Callable[[str], None] | None = None,
    ) -> None:
        if token is None and not bootstrap_servers:
            token = token_of_environment()
        self._credentials = None if token is None else Credentials(token, analyst)
        self.analyst = (
            self._credentials.analyst if self._credentials else analyst or getpass.getuser()
        )
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
        """Sends the queued records and closes the connections. Callers that still wait get an error."""
        with self._lock:
            mailbox, self._closed = self._mailbox, True
        if mailbox is not None:
            mailbox.close()
        try:
            self._producer.close(timeout=_CLOSE_S)
        except KafkaError:
            # The broker is gone: the producer's close gives up half-way and warns again when collected.
            self._producer._sender.force_close()  # noqa: SLF001
            self._producer._closed = True  # noqa: SLF001
        self._producer._sender.join(_CLOSE_S)  # noqa: SLF001 - no thread of ours survives

    def with_token(self, token: TokenSource) -> Client:
        """Returns a client that asks with another token, under its name, on the connections of this one.

        Close this one, and not what it returns.

        Raises:
            InvalidInput: It is not a token.
        """
        self.open()
        twin = copy.copy(self)
        twin._credentials = Credentials(token)  # noqa: SLF001 - of its own class
        twin.analyst = twin._credentials.analyst  # noqa: SLF001
        return twin

    # ------------------------------------------------------------ data sets

    def define(self, definition: Mapping[str, Any], *, timeout_s: float = 30.0) -> Definition:
        """Creates a data set and waits until it is accepted. The same definition again changes nothing.

        A note of the worker becomes a ``UserWarning``.

        Args:
            definition: The definition, see docs/messages.md. You may omit ``version``.
            timeout_s: The seconds to wait for the worker.

        Raises:
            InvalidDefinition: The definition is not valid. The error names the field and the fix.
            Rejection: The worker refuses it, for example because the name is taken.
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
        """Erases the rows of a data set and retires its name for ever."""
        key = ("event", dataset, "dataset_retired")
        self._request("datasets", dataset, None, key, timeout_s, "the retirement").wait()

    def change_analysts(
        self,
        dataset: str,
        analysts: Mapping[str, Any],
        *,
        owner: Mapping[str, Any] | None = None,
        timeout_s: float = 30.0,
    ) -> Event:
        """Replaces what is allowed to whom, from the next query on. What was spent stays spent.

        Args:
            dataset: The name of the data set.
            analysts: What is allowed to each name or pattern, as ``analysts`` of a definition. Nobody else
                may ask.
            owner: What is kept for the owner, as ``owner`` of a definition. Default: nothing.
            timeout_s: The seconds to wait for the worker.

        Returns:
            The event ``analysts_changed``.

        Raises:
            InvalidMessage: The shares are not valid. The error names the field and the fix.
            Rejection: The worker refuses them, for example because too little is left for opening a phase.
            RequestTimeout: No worker replied.
        """
        rules = {"analysts": analysts} if owner is None else {"analysts": analysts, "owner": owner}
        change = ChangeAnalysts.said_in(dataset, rules)
        value = change.model_dump_json(exclude_none=True).encode()
        key = ("event", dataset, "analysts_changed")
        reply = self._request("datasets", dataset, value, key, timeout_s, "the change").wait()
        assert isinstance(reply, Event)
        return reply

    def close_phase(self, dataset: str, *, timeout_s: float = 30.0) -> Event:
        """Ends the period that is open, so that the waiting rows open a phase now.

        Where phases open by rows, it opens a phase of those that wait. Both need a quarter of
        ``phase.min_rows``, or all of them where ``privacy.delta`` is above 1/(100 rows).

        Send it after the batches of the period were accepted. Batches about a closed period are late, and
        join the next phase.

        Returns:
            The event ``phase_closed``, with the phase that it opens and the time that this covers.

        Raises:
            Rejection: Fewer rows wait than open a phase.
            RequestTimeout: No worker replied.
        """
        # The number of the phase keeps a repeated message from closing the next period too.
        phase = len(Odometer.read(self.ledger(dataset)).blocks) + 1
        document = {"version": 1, "dataset": dataset, "close": True, "phase": phase}
        value = topic_documents.to_json(document)
        key = ("event", dataset, "phase_closed")
        reply = self._request("datasets", dataset, value, key, timeout_s, "the closing").wait()
        assert isinstance(reply, Event)
        return reply

    def catalog(self) -> dict[str, Definition]:
        """Returns the definitions of all data sets that are not retired, by name."""
        found: dict[str, Definition] = {}
        retired: set[str] = set()
        for key, value in self._reader.read("catalog"):
            if not value:
                retired.add(key)  # for ever: a definition behind that is one that came late
                continue
            # A newer release or another program may have written it.
            with contextlib.suppress(ValueError, RecursionError):
                found[key] = Definition.read(json.loads(value))
        self._definitions = {name: one for name, one in found.items() if name not in retired}
        return dict(self._definitions)

    def definition(self, dataset: str) -> Definition:
        """Returns the definition of one data set.

        Raises:
            InvalidInput: There is no data set of that name. The error lists the existing ones.
        """
        if dataset not in self._definitions:
            self.catalog()
        if dataset not in self._definitions:
            raise _unknown_dataset(dataset, sorted(self._definitions))
        return self._definitions[dataset]

    def ledger(self, dataset: str) -> list[dict[str, Any]]:
        """Returns the published ledger of a data set, oldest entry first."""
        return self.ledgers().get(dataset, [])

    def ledgers(self) -> dict[str, list[dict[str, Any]]]:
        """Returns the published ledgers of all data sets.

        Records of other programs are left out: ``stream-dp ledger verify`` finds them.
        """
        return {
            name: [
                entry for entry in map(topic_documents.ledger_entry, entries) if entry is not None
            ]
            for name, entries in self.ledger_entries().items()
        }

    def ledger_entries(self) -> dict[str, list[bytes]]:
        """Returns the ledgers as bytes, over which the hash chain runs. Duplicate entries appear once."""
        found: dict[str, dict[bytes, None]] = {}
        for key, value in self._reader.read("ledger"):
            found.setdefault(key, {})[value or b"{}"] = None
        return {name: list(entries) for name, entries in found.items()}

    def synthetic(self, dataset: str) -> SyntheticRows:
        """Returns the newest synthetic rows of a data set and their error. They are free.

        ``pandas.DataFrame(client.synthetic(name).values())`` makes a data frame of them.

        Raises:
            InvalidInput: There is no data set of that name, or its definition has no synthetic rows.
            StreamDPError: There are no synthetic rows yet, or the data set is retired.
        """
        wanted = self.definition(dataset).synthetic_rows
        if not wanted:
            raise InvalidInput(
                "dataset",
                f"{dataset} has no synthetic rows: its definition does not ask for them",
                'define a new one with "synthetic_rows": 1000; definitions never change',
            )
        # The records may be long, and the newest ones are near the end.
        for latest in (1, 16, None):
            records = self._reader.read("synthetic", latest=latest)
            values = [value for key, value in records if key == dataset]
            if values:
                break
        found = topic_documents.read(SyntheticRows, values[-1]) if values else None
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

    def standing(self, dataset: str | None = None) -> list[StandingQuery]:
        """Returns the standing queries of all analysts, of one data set or of all.

        Args:
            dataset: The name of the data set.
        """
        found: dict[str, StandingQuery] = {}
        for key, value in self._reader.read("standing"):
            found.pop(key, None)
            listed = topic_documents.read(StandingQuery, value) if value else None
            if listed is not None and dataset in (None, listed.dataset):
                found[key] = listed
        return sorted(found.values(), key=lambda one: (one.dataset, one.analyst, one.query_id))

    def stand(
        self,
        dataset: str,
        query: Query[Any] | Condition | None = None,
        *,
        query_id: str | None = None,
        last_phases: int | None = None,
        alert: Mapping[str, float] | None = None,
        timeout_s: float = 30.0,
    ) -> StandingQuery:
        """Asks a query in each phase from now on, and in the newest one. The same one again changes nothing.

        Its answers have the ids ``query_id@phase``. ``ask`` with such an id gets one of them again.

        Args:
            dataset: The name of the data set.
            query: The query, as in ``ask``.
            query_id: The id of the standing query. Default: that of a ``Query``, or a new id.
            last_phases: The number of latest phases to ask about. None asks about all phases.
            alert: ``{"above": x}`` or ``{"below": x}``: an event says when the whole error bar is there.
            timeout_s: The seconds to wait for the worker.

        Raises:
            InvalidQuery: The query does not fit the schema. The error points at the piece.
            Rejection: The worker refuses it, for example because there are too many.
            RequestTimeout: No worker replied.
        """
        item = self.as_message(dataset, query_of(query, (), last_phases, query_id))
        if alert is not None:
            item["alert"] = dict(alert)
        (found,) = self.change_standing(dataset, [{**item, "standing": True}], timeout_s=timeout_s)
        assert found is not None, "it is listed"
        return found

    def end_standing(self, dataset: str, query_id: str, *, timeout_s: float = 30.0) -> None:
        """Ends a standing query of this analyst. If none has this id, nothing changes."""
        self.change_standing(
            dataset, [{"query_id": query_id, "standing": False}], timeout_s=timeout_s
        )

    def change_standing(
        self, dataset: str, items: Sequence[Mapping[str, Any]], *, timeout_s: float = 30.0
    ) -> list[StandingQuery | None]:
        """Begins and ends several standing queries, and waits until the topic ``standing`` shows it.

        Args:
            dataset: The name of the data set.
            items: The fields of the queries' messages, each with ``standing``.
            timeout_s: The seconds to wait for the worker.

        Returns:
            What is listed of each, in order. None for one that was ended.

        Raises:
            Rejection: The worker refuses one of them. The others are changed.
            RequestTimeout: No worker replied.
        """
        mailbox = self._open_mailbox()
        head = {"version": 1, "dataset": dataset, "analyst": self.analyst}
        names = [str(item["query_id"]) for item in items]
        wanted = [
            None
            if not item["standing"]
            else json.loads(topic_documents.to_json(_without_standing(item)))
            for item in items
        ]
        rejected = [mailbox.expect(("standing", dataset, self.analyst, name)) for name in names]
        try:
            start = 0
            for value, taken in packed(head, [dict(item) for item in items]):
                record = self._put("queries", dataset, value, timeout_s=timeout_s)
                for place in range(start, start + taken):
                    mailbox.expect_rejection(rejected[place], record, names[place])
                start += taken
            end = time.monotonic() + timeout_s
            while time.monotonic() < end:
                for future in rejected:
                    if isinstance(reply := mailbox.receive(future, 0.0), Rejected):
                        raise Rejection(reply)
                listed = {
                    one.query_id: one
                    for one in self.standing(dataset)
                    if one.analyst == self.analyst
                }
                found = [listed.get(name) for name in names]
                if [None if one is None else one.query for one in found] == wanted:
                    return found
                time.sleep(_STANDING_S)
        finally:
            for future in rejected:
                mailbox.forget(future)
        raise self._timeout(f"the standing queries {', '.join(names[:3])}", timeout_s)

    def put_dimension(self, table: DimensionTable, *, timeout_s: float = 30.0) -> None:
        """Publishes a table that statements can join, in place of an earlier one of its name.

        The table is public: everyone who may ask can read it.

        Args:
            table: The table.
            timeout_s: The seconds to wait for the broker.

        Raises:
            InvalidInput: The table is larger than a record may be.
        """
        value, limit = table.to_bytes(), TOPICS["dimensions"].max_value_bytes
        if len(value) > limit:
            raise InvalidInput(
                "dimension", f"{len(value):,} bytes are more than {limit:,}", "leave columns out"
            )
        self._put("dimensions", table.dimension, value, timeout_s=timeout_s)

    def delete_dimension(self, name: str, *, timeout_s: float = 30.0) -> None:
        """Deletes a public table.

        Raises:
            InvalidInput: There is no table of that name.
        """
        self.dimension(name)
        self._put("dimensions", name, None, timeout_s=timeout_s)

    def dimension(self, name: str) -> DimensionTable:
        """Returns one public table.

        Raises:
            InvalidInput: There is no table of that name. The error lists the existing ones.
        """
        found = self.dimensions()
        if name not in found:
            known = f"choose one of: {', '.join(sorted(found))}" if found else "publish one"
            raise InvalidInput("dimension", f"there is no public table {name!r}", known)
        return found[name]

    def dimensions(self) -> dict[str, DimensionTable]:
        """Returns the public tables that statements can join, by name."""
        found: dict[str, DimensionTable] = {}
        for key, value in self._reader.read("dimensions"):
            found.pop(key, None)
            if value:
                with contextlib.suppress(InvalidInput, ValueError):  # a newer release wrote it
                    found[key] = DimensionTable.read(json.loads(value))
        return found

    def difficulties(self, *, latest: int = 5000) -> tuple[Counter[str], Counter[str]]:
        """Counts the easy and hard answers of each data set among the ``latest`` of each partition."""
        counts: dict[str, Counter[str]] = {"easy": Counter(), "hard": Counter()}
        seen: set[tuple[str, str, str]] = set()
        for key, value in self._reader.read("answers", latest=latest):
            answer = topic_documents.read_answer(value)
            if not isinstance(answer, NoisyAnswer):
                continue
            name = (key, answer.analyst, answer.query_id)
            if name not in seen:
                seen.add(name)
                counts[answer.difficulty][key] += 1
        return counts["easy"], counts["hard"]

    def answer(self, dataset: str, query_id: str, *, latest: int = 2000) -> Answer | None:
        """Returns this analyst's answer under an id from the ``latest`` answers of each partition.

        It sends nothing. To get an older answer, ask the same query under the same id again.

        Returns:
            The answer or the refusal, or None if it is not among them.
        """
        for key, value in reversed(self._reader.read("answers", latest=latest)):
            answer = topic_documents.read_answer(value) if key == dataset else None
            if isinstance(answer, QuotedAnswer | QuotedBundle) or answer is None:
                continue
            if (answer.analyst, answer.query_id) == (self.analyst, query_id):
                return answer
        return None

    def waiting(self) -> dict[str, int]:
        """Returns how many rows of each data set wait for the next phase, according to recent events."""
        found: dict[str, int] = {}
        for key, value in self._reader.read("events", latest=5000):
            event = topic_documents.read(Event, value)
            if event is None:
                continue
            if event.waiting is not None:
                found[key] = event.waiting
            elif event.event in ("phase_opened", "dataset_retired", "written_off"):
                found[key] = 0
        return found

    def stopped(self) -> dict[str, str]:
        """Returns why nobody can serve a data set, for those whose last event says so."""
        found: dict[str, str] = {}
        for key, value in self._reader.read("events", latest=5000):
            event = topic_documents.read(Event, value)
            if event is None:
                continue
            found.pop(key, None)
            if event.event == "stopped" and event.reason is not None:
                found[key] = event.reason.message
        return found

    def batch_events(self, dataset: str, *, since_ms: int = 0) -> list[Event]:
        """Returns the events of a data set's batches since a time, as far back as the broker keeps them.

        Args:
            dataset: The name of the data set.
            since_ms: The start, in milliseconds since 1970.
        """
        records = self._reader.read("events", since_ms=since_ms)
        events = [topic_documents.read(Event, value) for key, value in records if key == dataset]
        return [event for event in events if event is not None and event.batch is not None]

    def next_sequence(self, dataset: str, producer: str) -> int | None:
        """Returns the number of the next batch of a producer, as far as the events that are kept tell.

        Args:
            dataset: The name of the data set.
            producer: The name of the producer.

        Returns:
            The number. None if no event is about a batch of this producer that counts.
        """
        found = None
        for event in self.batch_events(dataset):
            if event.producer != producer or event.sequence is None:
                continue
            if event.event == "batch_accepted":
                found = event.sequence + 1
            elif event.event == "batch_known":
                found = event.next_sequence
        return found

    def worker_problem(self) -> str | None:
        """Explains why no worker replies, as far as the broker tells. None if a worker runs."""
        try:
            check_reachable(self._broker)
        except ServerUnavailable as gone:
            return str(gone)
        patience = {"bootstrap_timeout_ms": int(1000 * _PATIENCE_S)}
        try:
            found = workers(self._broker, self._group, kafka={**self._kafka, **patience})
        except StreamDPError:
            return None  # we may not ask, or the broker says nothing: then we do not know
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
        producer: str | None = None,
        sequence: int | None = None,
        at: str | date | datetime | None = None,
        timeout_s: float = 30.0,
    ) -> Sent:
        """Sends one batch in one of five forms and waits until it is durable.

        NaN and None are missing values. Numpy numbers, decimals and dates become plain JSON values. Where
        persons are protected, the column that says whose row it is comes with the attributes. A row without
        it counts nowhere.

        Args:
            dataset: The name of the data set.
            rows: The rows, each a mapping of attribute to value.
            columns: The columns, each a sequence of values of the same length.
            cells: The number of rows in each cell, see docs/messages.md.
            frame: A pandas data frame. Only the columns that the definition declares are sent.
            arrow: An Arrow table, of which only the declared columns are sent. The stream is smaller and
                faster. It needs the extra ``arrow`` here and on the worker.
            batch_id: The id of the batch. The rows count once if you send it again. Default: a new id.
            producer: The name of a producer that counts its batches. It stands in place of an id.
            sequence: The number of the batch among those of its producer. The first one may be any; after
                that each one must be the next. See ``next_sequence``.
            at: The time that the rows are about: a date, or a date and time with an offset. Default: the
                time at which the broker gets them.
            timeout_s: The seconds to wait for the worker.

        Returns:
            The event ``batch_accepted``, with the rows taken, the rows waiting and the phases opened. Or
            ``batch_known``, without the rows taken, if the batch was taken in before and that is no longer
            told of it. Its ``unread`` says how many values of which columns cannot be read. These counts are
            exact and never leave this process: show them to nobody who may not see the rows.

        Raises:
            InvalidInput: Not exactly one form is given, a column is missing, or the rows exceed one record.
                Or an id is given next to a producer, or a producer without a number.
            Rejection: The batch was refused. No row was taken. Its code is ``not_next`` if the number is not
                the next one, and ``rejected.next_sequence`` is then the one that is.
            RequestTimeout: No worker replied.
        """
        given = {"rows": rows, "columns": columns, "cells": cells, "frame": frame, "arrow": arrow}
        forms = [name for name, value in given.items() if value is not None]
        if len(forms) != 1:
            raise InvalidInput(
                "batch",
                f"{' and '.join(forms) or 'none'} of rows, columns, cells, frame and arrow given",
                "pass exactly one",
            )
        if (producer is None) != (sequence is None) or (
            batch_id is not None and producer is not None
        ):
            raise InvalidInput(
                "batch", "it has no name, or two", "pass batch_id, or producer and sequence"
            )
        name: dict[str, str | int] = (
            {"batch_id": batch_id or uuid.uuid4().hex}
            if producer is None or sequence is None
            else {"producer": producer, "sequence": sequence}
        )
        key = " ".join(map(str, name.values()))
        about = name if at is None else {**name, "time": _time(at)}
        if arrow is not None:
            value = frames.arrow_stream(arrow, self._columns(dataset))
            headers = [("content-type", frames.ARROW)]
            headers += [(field, str(said).encode()) for field, said in about.items()]
            return self._send_batch(dataset, value, key, timeout_s, given, headers)
        if frame is not None:
            given = {"columns": frames.frame_columns(frame, self._columns(dataset))}
        body = {name: value for name, value in given.items() if value is not None}
        document = {"version": 1, "dataset": dataset, **about, **body}
        return self._send_batch(dataset, topic_documents.to_json(document), key, timeout_s, body)

    def _columns(self, dataset: str) -> list[str]:
        """Returns the names of the columns that a batch needs."""
        definition = self.definition(dataset)
        unit = definition.privacy.unit
        names = [attribute.name for attribute in definition.attributes]
        return names if unit is None else [*names, unit.key]

    def _send_batch(
        self,
        dataset: str,
        value: bytes,
        name: str,
        timeout_s: float,
        body: Mapping[str, Any],
        headers: _Headers = (),
    ) -> Sent:
        limit = TOPICS["batches"].max_value_bytes
        if len(value) > limit:
            raise InvalidInput(
                "batch", f"{len(value):,} bytes are more than {limit:,}", "send fewer rows a batch"
            )
        definition = self._definitions.get(dataset) or self.catalog().get(dataset)
        key = ("batch", dataset, name)
        what = f"batch {name}"
        reply = self._request("batches", dataset, value, key, timeout_s, what, headers).wait()
        assert isinstance(reply, Event)
        if reply.event == "batch_refused":
            raise _refused(reply, self._topics.name("batches"))
        unread = () if definition is None else unread_values(definition, body)
        return Sent.model_construct(reply.model_fields_set, **dict(reply), unread=unread)

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
            dataset: The name of the data set.
            query: A condition in SQL such as ``"age >= 30 AND smoker"``, a whole ``SELECT COUNT(*) ... GROUP
                BY``, or the JSON tree of ``where``. None counts all rows. A ``Query`` such as
                ``Query.quantile("age", 0.9)`` asks any kind and holds the next three arguments itself.
            group_by: The attributes of a table of counts.
            last_phases: The number of latest phases to ask about. None asks about all phases.
            query_id: The id of the query. A repeated id returns the same answer. Default: a new id.
            timeout_s: The seconds to wait for the answer.

        Returns:
            The answer or the refusal.

        Raises:
            InvalidQuery: The query does not fit the schema. The error points at the piece.
            Rejection: The id was used for another query.
            RequestTimeout: No reply came after three attempts under the same id.
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
        """Returns what the answer would cost now. This spends nothing."""
        asked = query_of(query, group_by, last_phases, None)
        answer = self.ask_query(dataset, asked, quote=True, timeout_s=timeout_s)
        assert isinstance(answer, QuotedAnswer | RefusedAnswer)
        return answer

    def quote_together(
        self,
        dataset: str,
        queries: Sequence[Query[Any] | Condition],
        *,
        timeout_s: float = 30.0,
    ) -> QuotedBundle | RefusedAnswer:
        """Returns what queries would cost if they were asked one after another now. This spends nothing.

        It is often much less than the sum of their single quotes, because what one query publishes may answer
        another one. To be sure of the price, pass ``at_most`` to ``ask_many``.

        Args:
            dataset: The name of the data set.
            queries: Up to 500 queries, in the order in which you will ask them.
            timeout_s: The seconds to wait for the quote.

        Raises:
            InvalidInput: There is no query, there are too many, or two of them have the same id.
            InvalidQuery: A query does not fit the schema. The error points at the piece.
            RequestTimeout: No reply came after three attempts.
        """
        items = self._as_messages(dataset, [query_of(query, (), None, None) for query in queries])
        return self._quote_items(dataset, items, timeout_s)

    def _quote_items(
        self, dataset: str, items: Sequence[Mapping[str, Any]], timeout_s: float
    ) -> QuotedBundle | RefusedAnswer:
        """Quotes the queries whose fields are given; see ``quote_together``."""
        if len(items) > MOST_QUOTED:
            raise InvalidInput(
                "queries",
                f"a quote is for {MOST_QUOTED} queries at the most, not {len(items):,}",
                "split the list into several quotes",
            )
        head = {
            "version": 1,
            "dataset": dataset,
            "analyst": self.analyst,
            "query_id": uuid.uuid4().hex,
            "quote": "together",
        }
        value = in_one_record(head, items)
        key = self._answer_key(dataset, head)
        answer = self._request("queries", dataset, value, key, timeout_s, "the quote").wait()
        assert isinstance(answer, QuotedBundle | RefusedAnswer)
        return answer

    def sql(
        self,
        statement: str,
        *,
        dataset: str | None = None,
        last_phases: int | None = None,
        window: Mapping[str, Any] | None = None,
        series: Series | None = None,
        query_id: str | None = None,
        at_most: float | None = None,
        timeout_s: float = 60.0,
    ) -> ResultTable:
        """Asks a text in SQL and returns its table.

        A condition by itself asks for its count. A SELECT may have several aggregates and arithmetic on them,
        HAVING, ORDER BY, LIMIT, subqueries that only filter, and joins with public tables. What works on
        published values is free. So is a SELECT about public tables alone, which needs no data set.

        Args:
            statement: The text. FROM names the data set.
            dataset: The name of the data set. Default: the one in FROM.
            last_phases: The number of latest phases to ask about. None asks about all phases.
            window: The phases to ask about in another form, as in ``Query``.
            series: The periods to group by as well, if the statement groups by none.
            query_id: The id of the query. A repeated id returns the same answers. Several queries add
                ``.0``, ``.1`` and so on. Default: new ids.
            at_most: The largest share of any phase's budget that the statement may take.
            timeout_s: The longest wait for the next reply, in seconds.

        Raises:
            InvalidInput: There is no such data set, or the statement names none.
            InvalidQuery: The statement cannot be asked. The error points at the piece.
            Refusal: One of its queries was refused.
            Rejection: The id was used for another query.
            RequestTimeout: A reply is missing.
        """
        asked = self.statement(
            statement,
            dataset=dataset,
            last_phases=last_phases,
            window=window,
            series=series,
            query_id=query_id,
            at_most=at_most,
        )
        (found,) = self.ask_statements([asked], timeout_s=timeout_s)
        if isinstance(found, Refusal | Rejection):
            raise found
        return found

    def quote_sql(
        self,
        statement: str,
        *,
        dataset: str | None = None,
        last_phases: int | None = None,
        window: Mapping[str, Any] | None = None,
        series: Series | None = None,
        timeout_s: float = 30.0,
    ) -> QuotedBundle | RefusedAnswer | None:
        """Returns what the queries of a text would cost together now. This spends nothing.

        Args:
            statement: The text, as in ``sql``.
            dataset: The name of the data set. Default: the one in FROM.
            last_phases: The number of latest phases to ask about. None asks about all phases.
            window: The phases to ask about in another form, as in ``Query``.
            series: The periods to group by as well, if the statement groups by none.
            timeout_s: The seconds to wait for the quote.

        Returns:
            The quote. None if the table follows from public facts alone, so that nothing is asked.

        Raises:
            InvalidInput: There is no such data set, or the statement names none.
            InvalidQuery: The statement cannot be asked. The error points at the piece.
            RequestTimeout: No reply came after three attempts.
        """
        asked = self.statement(
            statement, dataset=dataset, last_phases=last_phases, window=window, series=series
        )
        return self.quote_statements([asked], timeout_s=timeout_s)

    def statement(
        self,
        text: str,
        *,
        dataset: str | None = None,
        last_phases: int | None = None,
        window: Mapping[str, Any] | None = None,
        series: Series | None = None,
        query_id: str | None = None,
        at_most: float | None = None,
    ) -> Statement:
        """Reads a text in SQL, and returns what ``ask_statements`` and ``quote_statements`` take.

        Nothing is sent. The arguments and the errors are those of ``sql``.
        """
        from stream_dp import sql

        names = sql.names_of(text)
        # as all names of data sets and of public tables are
        of_text = None if names.dataset is None else names.dataset.lower()
        name = dataset or of_text
        if name is None:
            raise InvalidInput(
                "dataset",
                "the statement names no data set",
                "write FROM and its name, or pass dataset",
            )
        if public := self._public_tables(of_text or name, names.joined):
            return Statement(text, of_text or name, None, public=selected(text, public))
        definition = self.definition(name)
        unit = definition.privacy.unit
        plan = sql.plan(
            text,
            [attribute.model_dump() for attribute in definition.attributes],
            dataset=name,
            unit=None if unit is None else unit.model_dump(),
            dimensions=self._joined(names.joined),
            series=series,
        )
        return statement_of(
            text,
            name,
            plan,
            query_id=query_id,
            last_phases=last_phases,
            window=window,
            at_most=at_most,
        )

    def _public_tables(self, name: str, joined: Sequence[str]) -> list[DimensionTable]:
        """Returns the public tables that a statement is about; none if it is about a data set."""
        with contextlib.suppress(InvalidInput):  # there is no data set of this name
            self.definition(name)
            return []
        known = self.dimensions()
        if name not in known:
            return []
        return [
            known[one] for one in dict.fromkeys((name, *map(str.lower, joined))) if one in known
        ]

    def ask_statements(
        self,
        statements: Sequence[Statement],
        *,
        at_most: float | None = None,
        timeout_s: float = 60.0,
    ) -> list[ResultTable | Refusal | Rejection]:
        """Asks statements about one data set in their order.

        Args:
            statements: The statements, as ``statement`` returns them.
            at_most: The largest share of any phase's budget that all of them may take together.
            timeout_s: The longest wait for the next reply, in seconds.

        Returns:
            The table of each statement, or the reason why it has none.

        Raises:
            InvalidInput: They are about several data sets, two have the same id, or ``at_most`` is given and
                a statement has a limit of its own for several queries.
            RequestTimeout: A reply is missing.
        """
        dataset = _dataset_of(statements)
        if at_most is not None and any(one.at_most is not None for one in statements):
            raise InvalidInput("at_most", "the SQL says it too", "say it once")
        replies: list[Answer | Rejection] = []
        # A limit for several queries is that of a record. So such a statement has a record of its own.
        for limit, some in itertools.groupby(
            enumerate(statements),
            lambda one: (one[1].at_most, one[0] * (one[1].at_most is not None)),
        ):
            items = [item for _, one in some for item in one.items]
            replies += self._replies(
                dataset, items, limit[0] if at_most is None else at_most, timeout_s
            )
        left = iter(replies)
        return [one.table([next(left) for _ in one.items]) for one in statements]

    def _replies(
        self,
        dataset: str,
        items: Sequence[Mapping[str, Any]],
        at_most: float | None,
        timeout_s: float,
    ) -> list[Answer | Rejection]:
        """Returns the replies to the queries whose fields are given. A single one is sent again."""
        _check_ids(items)
        if len(items) != 1 or at_most is not None:
            return self._ask_items(dataset, items, at_most, timeout_s) if items else []
        try:
            answer = self._prepared(dataset, items[0], timeout_s).wait()
        except Rejection as rejection:
            return [rejection]
        assert isinstance(answer, Answer)
        return [answer]

    def quote_statements(
        self, statements: Sequence[Statement], *, timeout_s: float = 30.0
    ) -> QuotedBundle | RefusedAnswer | None:
        """Returns what statements would cost if they were asked one after another now. This spends nothing.

        Args:
            statements: The statements about one data set, as ``statement`` returns them.
            timeout_s: The seconds to wait for the quote.

        Returns:
            The quote, with the queries of each statement in their order. None if nothing is asked.
        """
        items = [item for one in statements for item in one.items]
        _check_ids(items)
        return self._quote_items(_dataset_of(statements), items, timeout_s) if items else None

    def _joined(self, names: Sequence[str]) -> dict[str, Dimension]:
        """Returns the public tables, if a statement joins any table at all."""
        from stream_dp.sql import Dimension

        if not names:
            return {}
        return {
            name: Dimension(
                name,
                table.key,
                dict(zip(table.columns, table.types, strict=True)),
                table.lines(),
            )
            for name, table in self.dimensions().items()
        }

    def ask_query(
        self, dataset: str, query: Query[Any], *, quote: bool = False, timeout_s: float = 30.0
    ) -> Answer:
        """Asks, or quotes the price of, a ``Query``."""
        answer = self.prepare(dataset, query, quote=quote, timeout_s=timeout_s).wait()
        assert isinstance(answer, Answer)
        return answer

    def prepare(
        self, dataset: str, query: Query[Any], *, quote: bool = False, timeout_s: float = 30.0
    ) -> Exchange:
        """Prepares a query without sending it. The ``Exchange`` sends it and receives the answer."""
        item = self.as_message(dataset, query)
        if quote:
            item["quote"] = True
        return self._prepared(dataset, item, timeout_s)

    def _prepared(self, dataset: str, item: Mapping[str, Any], timeout_s: float) -> Exchange:
        """Prepares the fields of one query without sending them."""
        document = {"version": 1, "dataset": dataset, "analyst": self.analyst, **item}
        return self._request(
            "queries",
            dataset,
            topic_documents.to_json(document),
            self._answer_key(dataset, item),
            timeout_s,
            f"query {item['query_id']}",
        )

    def as_message(self, dataset: str, query: Query[Any]) -> dict[str, Any]:
        """Returns the fields of a query's message. A query without an id gets a new one.

        Raises:
            InvalidInput: The fields of the query contradict each other.
            InvalidQuery: Its SQL does not fit the schema. The error points at the piece.
        """
        return as_message(query, partial(self._parsed, dataset))

    def _as_messages(self, dataset: str, queries: Sequence[Query[Any]]) -> list[dict[str, Any]]:
        """Returns the fields of several queries' messages.

        Raises:
            InvalidInput: Two of the queries have the same id.
        """
        items = [self.as_message(dataset, query) for query in queries]
        _check_ids(items)
        return items

    def _parsed(self, dataset: str, text: str) -> dict[str, Any]:
        from stream_dp import sql  # sqlglot is slow to load

        definition = self.definition(dataset)
        attributes = [attribute.model_dump() for attribute in definition.attributes]
        unit = definition.privacy.unit
        return sql.parse(
            text, attributes, dataset=dataset, unit=None if unit is None else unit.model_dump()
        )

    def ask_many(
        self,
        dataset: str,
        queries: Sequence[Query[Any]],
        *,
        at_most: float | None = None,
        timeout_s: float = 60.0,
        on_answer: Callable[[int, Answer], None] | None = None,
    ) -> list[Answer | Rejection]:
        """Asks many queries, up to a hundred in a record.

        Args:
            dataset: The name of the data set.
            queries: The queries.
            at_most: The largest share of any phase's budget that the answers may take together, such as 0.05.
                A query that would pass it is refused. All queries are then sent in one record.
            timeout_s: The longest wait for the next reply, in seconds.
            on_answer: A function that receives the index and the answer when each answer arrives.

        Returns:
            The replies in the order of the queries.

        Raises:
            InvalidInput: Two of the queries have the same id. Or ``at_most`` is set, and the queries do not
                fit into one record.
            InvalidQuery: A query does not fit the schema. No query was sent.
            RequestTimeout: A reply is missing.
        """
        items = self._as_messages(dataset, queries)
        return self._ask_items(dataset, items, at_most, timeout_s, on_answer)

    def _ask_items(
        self,
        dataset: str,
        items: Sequence[Mapping[str, Any]],
        at_most: float | None,
        timeout_s: float,
        on_answer: Callable[[int, Answer], None] | None = None,
    ) -> list[Answer | Rejection]:
        """Asks the queries whose fields are given; see ``ask_many``."""
        head = {"version": 1, "dataset": dataset, "analyst": self.analyst}
        if at_most is None:
            records = list(packed(head, items))
        else:
            records = [(in_one_record({**head, "at_most": at_most}, items), len(items))]
        mailbox = self._open_mailbox()
        expected = [mailbox.expect(self._answer_key(dataset, item)) for item in items]
        try:
            start = 0
            for value, taken in records:
                record = self._put("queries", dataset, value, timeout_s=timeout_s)
                stop = start + taken
                for item, future in zip(items[start:stop], expected[start:stop], strict=True):
                    mailbox.expect_rejection(future, record, item["query_id"])
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
        """Asks a query with many values and returns a data frame: a row for each cell, or each condition.

        Raises:
            StreamDPError: The query was refused, or its answer is one value, see ``answers_frame``.
        """
        asked = query_of(query, (), last_phases, None)
        answer = self.ask_query(dataset, asked, timeout_s=timeout_s)
        return frames.answer_frame(answer, asked.conditions)

    def follow(self, dataset: str | None = None) -> Iterator[Reply]:
        """Yields answers, events and rejections as they arrive, until the client closes."""
        queue: SimpleQueue[Reply | None] = SimpleQueue()
        with self.subscribe(queue.put):
            while (reply := queue.get()) is not None:
                if dataset is None or reply.dataset == dataset:
                    yield reply

    @contextlib.contextmanager
    def subscribe(self, follower: Callable[[Reply | None], None]) -> Iterator[None]:
        """Calls ``follower`` in another thread: with each reply of the context, and at its end with None.

        Raises:
            ServerUnavailable: The broker was lost. It is raised when the context ends.
        """
        mailbox = self._open_mailbox()
        with mailbox.subscribe(follower):
            yield
        if mailbox.lost is not None:
            raise mailbox.lost

    def open(self) -> None:
        """Starts to listen for replies now instead of at the first request."""
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
        """Prepares a record that is sent again, in the same bytes, if no reply comes in time."""
        mailbox = self._open_mailbox()
        future = mailbox.expect(key)
        query_id = str(key[3]) if key[0] == "answer" else None

        def attempts() -> Iterator[float]:
            end = time.monotonic() + timeout_s
            for attempt in range(_ATTEMPTS):
                if attempt:  # the producer would wait for a broker that is gone
                    check_reachable(self._broker)
                record = self._put(role, dataset, value, headers, timeout_s=end - time.monotonic())
                mailbox.expect_rejection(future, record, query_id)
                if attempt == 0 and self._on_delay and timeout_s > _PATIENCE_S * _ATTEMPTS:
                    yield _PATIENCE_S
                    self._on_delay(self.worker_problem() or f"no reply to {what} yet")
                deadline = end - timeout_s * (_ATTEMPTS - 1 - attempt) / _ATTEMPTS
                yield max(0.0, deadline - time.monotonic())
            raise self._timeout(what, timeout_s)

        return Exchange(mailbox, future, attempts())

    def _timeout(self, what: str, timeout_s: float) -> RequestTimeout:
        why = self.worker_problem() or (
            "a worker runs, so it may be busy or wait for its Redis: see its page or `stream-dp doctor`"
        )
        return RequestTimeout(
            f"no reply to {what} within {timeout_s:g} s: {why}. It is safe to send it again under the same id"
        )

    def _lost(self, error: BaseException) -> ServerUnavailable:
        return ServerUnavailable(
            f"the broker at {self._broker} took no record ({type(error).__name__}); check it with "
            "`stream-dp doctor`. It is safe to send the record again under the same id"
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
        """Sends one record and returns its topic, partition and offset."""
        topic = self._topics.name(role)
        own = [self._credentials.header()] if self._credentials and role == "queries" else []
        try:
            sent = self._producer.send(
                topic, key=dataset.encode(), value=value, headers=[*headers, *own]
            ).get(timeout=max(1.0, timeout_s))
        except KafkaError as error:
            if self._closed:
                raise StreamDPError(CLOSED) from error
            raise self._lost(error) from error
        return topic, sent.partition, sent.offset

    def _open_mailbox(self) -> Mailbox:
        with self._lock:
            if self._closed:
                raise StreamDPError("this client is closed; create a new one")
            if self._mailbox is None:
                self._mailbox = Mailbox(
                    self._broker, self._config, self._topics, on_delay=self._on_delay
                )
            return self._mailbox


def _dataset_of(statements: Sequence[Statement]) -> str:
    """Returns the data set that statements ask. Empty if they are about public tables alone.

    Raises:
        InvalidInput: They ask several.
    """
    names = sorted({one.dataset for one in statements if one.public is None})
    if len(names) > 1:
        raise InvalidInput(
            "dataset",
            f"the statements are about {' and '.join(names)}",
            "ask about one data set at a time",
        )
    return names[0] if names else ""


def _check_ids(items: Sequence[Mapping[str, Any]]) -> None:
    """Checks that no two queries have the same id."""
    ids = Counter(item["query_id"] for item in items)
    if len(ids) < len(items):
        ((twice, _),) = ids.most_common(1)
        raise InvalidInput("query_id", f"{twice} appears twice", "use a new id for each query")


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


def _without_standing(item: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item.items() if name != "standing"}


def _time(at: str | date | datetime) -> str:
    """Returns a time as a batch names it.

    Raises:
        InvalidInput: It is not a time, or has no offset.
    """
    text = at if isinstance(at, str) else at.isoformat()
    try:
        span_of(text, zone_of(None))
    except ValueError as error:
        problem, _, fix = str(error).partition(": ")
        raise InvalidInput("at", problem, fix) from None
    return text


def _unknown_dataset(name: str, known: Sequence[str]) -> InvalidInput:
    if not known:
        fix = "there is no data set yet; create one with: stream-dp dataset create DEFINITION.json"
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
