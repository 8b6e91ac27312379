"""A client's session with the brokers: who asks, what was published, and requests with their replies."""

from __future__ import annotations

import contextlib
import copy
import getpass
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import islice
from typing import Any, Final

from stream_dp.broker import Broker
from stream_dp.client.kafka.credentials import Credentials, TokenSource
from stream_dp.client.kafka.deployment_topics import check_reachable, worker_group, workers
from stream_dp.client.kafka.exchange import Exchange
from stream_dp.client.kafka.mailbox import Key, Mailbox, Reply
from stream_dp.client.kafka.record_sender import Headers, RecordSender
from stream_dp.client.kafka.server_discovery import find, token_of_environment
from stream_dp.client.kafka.topic_reader import TopicReader
from stream_dp.errors import RequestTimeout, ServerUnavailable, StreamDPError
from stream_dp.messages import Definition, Topics

_ATTEMPTS: Final = 3
_PATIENCE_S: Final = 3.0
_BOOTSTRAP_MS: Final = 20_000
_ROLES: Final = {"answer": "queries", "batch": "batches", "event": "datasets"}
"""The topic of the requests whose replies have a key of this kind."""


class Session:
    """What the parts of a client share. It is thread-safe.

    Args:
        bootstrap_servers: The brokers, as of ``Client``, and so are the other arguments.
        analyst: The name of the analyst.
        topic_prefix: The prefix of the topic names.
        token: The signed token that says who asks.
        on_delay: A function that receives a message when a reply or the broker is late.

    Attributes:
        analyst: The name of the analyst.
        published: Reads the topics.
        definitions: The definitions that were read last, by the name of their data set.
        schema_versions: The newest version of the attributes that an event told, by the same name.
    """

    def __init__(
        self,
        bootstrap_servers: str | Broker | None,
        analyst: str | None,
        topic_prefix: str | None,
        token: TokenSource | None,
        on_delay: Callable[[str], None] | None,
    ) -> None:
        if token is None and not bootstrap_servers:
            token = token_of_environment()
        self._credentials = None if token is None else Credentials(token, analyst)
        self.analyst = (
            self._credentials.analyst if self._credentials else analyst or getpass.getuser()
        )
        self._broker, prefix = find(bootstrap_servers, topic_prefix)
        self._topics = Topics(prefix)
        self._group = worker_group(prefix)
        self._on_delay = on_delay
        config = {**self._broker.arguments(), "bootstrap_timeout_ms": _BOOTSTRAP_MS}
        self.definitions: dict[str, Definition] = {}
        self.schema_versions: dict[str, int] = {}
        self.published = TopicReader(self._broker, config, self._topics)
        self._sender = RecordSender(self._broker, config)
        self._listen = partial(
            Mailbox,
            self._broker,
            config,
            self._topics,
            on_delay=on_delay,
            schema_versions=self.schema_versions,
        )
        self._mailbox: Mailbox | None = None
        self._lock = threading.Lock()

    def with_token(self, token: TokenSource) -> Session:
        """Returns a session under the name of another token. It ends with this one."""
        self.open()
        twin = copy.copy(self)
        twin._credentials = Credentials(token)  # noqa: SLF001 - of its own class
        twin.analyst = twin._credentials.analyst  # noqa: SLF001
        return twin

    def under_name(self, analyst: str) -> Session:
        """Returns a session under another name, for queries without tokens. It ends with this one."""
        self.open()
        twin = copy.copy(self)
        twin.analyst = analyst
        return twin

    def open(self) -> None:
        """Starts to listen for replies now instead of at the first request.

        Raises:
            StreamDPError: The client is closed.
            ServerUnavailable: The topics do not exist, or the broker is gone.
        """
        _ = self._listening

    @property
    def _listening(self) -> Mailbox:
        """The mailbox, which listens from the first use on."""
        with self._lock:
            if self._sender.closing:
                raise StreamDPError("this client is closed; create a new one")
            if self._mailbox is None:
                self._mailbox = self._listen()
            return self._mailbox

    def close(self) -> None:
        """Sends the queued records and closes the connections. Callers that still wait get an error."""
        with self._lock:
            mailbox, self._sender.closing = self._mailbox, True
        if mailbox is not None:
            mailbox.close()
        self._sender.close()

    def put(
        self,
        role: str,
        dataset: str,
        value: bytes | None,
        headers: Headers = (),
        *,
        timeout_s: float,
    ) -> tuple[str, int, int]:
        """Sends one record, without waiting for a reply. Queries carry the token.

        Args:
            role: The role of the topic.
            dataset: The key of the record.
            value: The message. None ends what the key names.
            headers: Further headers.
            timeout_s: The seconds to wait for the broker.

        Returns:
            Its topic, partition and offset.
        """
        own = [self._credentials.header()] if self._credentials and role == "queries" else []
        topic = self._topics.name(role)
        return self._sender.send(topic, dataset, value, [*headers, *own], timeout_s=timeout_s)

    def request(
        self, key: Key, value: bytes | None, headers: Headers = (), *, what: str, timeout_s: float
    ) -> Exchange[Any]:
        """Prepares a record that is sent again, in the same bytes, if no reply comes in time.

        Args:
            key: The key of the reply, see ``mailbox.Key``.
            value: The message.
            headers: Headers of the record.
            what: What is asked for, as an error names it.
            timeout_s: The seconds to wait for the reply, in all attempts together.
        """
        mailbox = self._listening
        future = mailbox.expect(key)
        kind, dataset = str(key[0]), str(key[1])
        query_id = str(key[3]) if kind == "answer" else None

        def attempts() -> Iterator[float]:
            end = time.monotonic() + timeout_s
            for left in reversed(range(_ATTEMPTS)):
                is_first = left == _ATTEMPTS - 1
                if not is_first:  # the producer would wait for a broker that is gone
                    check_reachable(self._broker)
                patience_s = end - time.monotonic()
                place = self.put(_ROLES[kind], dataset, value, headers, timeout_s=patience_s)
                mailbox.expect_rejection(future, place, query_id)
                if is_first and self._on_delay and timeout_s > _PATIENCE_S * _ATTEMPTS:
                    yield _PATIENCE_S
                    self._on_delay(self.worker_problem() or f"no reply to {what} yet")
                yield max(0.0, end - timeout_s * left / _ATTEMPTS - time.monotonic())
            raise self.timeout(what, timeout_s)

        return Exchange(mailbox, future, attempts(), lambda reply: reply)

    @contextlib.contextmanager
    def send_queries(
        self,
        kind: str,
        dataset: str,
        records: Iterable[tuple[bytes, int]],
        query_ids: Sequence[str],
        *,
        timeout_s: float,
    ) -> Iterator[Sequence[Future[Reply]]]:
        """Sends records that hold several queries each, once, and yields the futures of their replies.

        Args:
            kind: The kind of the keys of the replies, see ``mailbox.Key``.
            dataset: The name of the data set.
            records: The messages, and how many of the queries each one holds.
            query_ids: The ids of the queries, in their order.
            timeout_s: The seconds to wait for the broker.
        """
        mailbox = self._listening
        futures = [
            mailbox.expect((kind, dataset, self.analyst, query_id)) for query_id in query_ids
        ]
        try:
            left = zip(query_ids, futures, strict=True)
            for value, taken in records:
                place = self.put("queries", dataset, value, timeout_s=timeout_s)
                for query_id, future in islice(left, taken):
                    mailbox.expect_rejection(future, place, query_id)
            yield futures
        finally:
            for future in futures:
                mailbox.forget(future)

    @contextlib.contextmanager
    def subscribe(self, follower: Callable[[Reply | None], None]) -> Iterator[None]:
        """Calls ``follower`` in another thread: with each reply of the context, and at its end with None.

        Raises:
            ServerUnavailable: The broker was lost. It is raised when the context ends.
        """
        mailbox = self._listening
        with mailbox.subscribe(follower):
            yield
        if mailbox.lost is not None:
            raise mailbox.lost

    def timeout(self, what: str, timeout_s: float) -> RequestTimeout:
        """Returns the error for a caller to whom nobody has replied."""
        why = self.worker_problem() or (
            "a worker runs, so it may be busy or wait for its Redis: see its page or `stream-dp doctor`"
        )
        return RequestTimeout(
            f"no reply to {what} within {timeout_s:g} s: {why}. It is safe to send it again under the same id"
        )

    def worker_problem(self) -> str | None:
        """Explains why no worker replies, as far as the broker tells. None if a worker runs."""
        try:
            check_reachable(self._broker)
        except ServerUnavailable as gone:
            return str(gone)
        try:
            found = workers(self._broker, self._group, patience_s=_PATIENCE_S)
        except StreamDPError:
            return None  # we may not ask, or the broker says nothing: then we do not know
        if found:
            return None
        return (
            f"no worker runs (nobody has joined the group {self._group}); start one with `stream-dp up` or "
            "`stream-dp worker`"
        )
