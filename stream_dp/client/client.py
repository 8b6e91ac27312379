"""The client: it defines data sets, sends batches and asks queries."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from queue import SimpleQueue
from typing import Any, Self, cast

from stream_dp.client.client_methods import ClientMethods
from stream_dp.client.kafka.credentials import TokenSource
from stream_dp.client.kafka.exchange import Exchange
from stream_dp.client.kafka.mailbox import Reply
from stream_dp.client.kafka.session import Session
from stream_dp.client.statements.written_query import AnswerT, Condition, Query, query_of
from stream_dp.messages import RefusedAnswer


class Client(ClientMethods):
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
        on_delay: A function that receives a message once a request if a reply takes more than three seconds,
            and when the broker has not answered for some seconds.

    Raises:
        ServerUnavailable: No broker answers, or the topics do not exist. Or no address is given and no
            servers run on this machine.
        InvalidInput: The token is not one, or is that of another analyst.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def analyst(self) -> str:
        """The name of the analyst."""
        return self._session.analyst

    def close(self) -> None:
        """Sends the queued records and closes the connections. Callers that still wait get an error."""
        self._session.close()

    def with_token(self, token: TokenSource) -> Client:
        """Returns a client that asks with another token, under its name, on the connections of this one.

        Close this one, and not what it returns.

        Raises:
            InvalidInput: It is not a token.
        """
        twin = copy.copy(self)
        twin._session = self._session.with_token(token)  # noqa: SLF001 - of its own class
        return twin

    def ask(
        self,
        dataset: str,
        query: Query[AnswerT] | Condition | None = None,
        *,
        group_by: Sequence[str] = (),
        last_phases: int | None = None,
        query_id: str | None = None,
        timeout_s: float = 30.0,
    ) -> AnswerT | RefusedAnswer:
        """Asks one query and waits for its answer.

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
            The answer as an instance of the class of its kind, such as ``QuantileAnswer``, or a
            ``RefusedAnswer``.

        Raises:
            InvalidQuery: The query does not fit the schema. The error points at the piece.
            Rejection: The id was used for another query.
            RequestTimeout: No reply came after three attempts under the same id.
        """
        asked = query_of(query, group_by, last_phases, query_id)
        answer = self.ask_query(dataset, asked, timeout_s=timeout_s)
        return cast("AnswerT | RefusedAnswer", answer)

    def follow(self, dataset: str | None = None) -> Iterator[Reply]:
        """Yields answers, running totals, events and rejections as they arrive, until the client closes."""
        queue: SimpleQueue[Reply | None] = SimpleQueue()
        with self.subscribe(queue.put):
            while (reply := queue.get()) is not None:
                if dataset is None or reply.dataset == dataset:
                    yield reply

    def subscribe(self, follower: Callable[[Reply | None], None]) -> AbstractContextManager[None]:
        """Calls ``follower`` in another thread: with each reply of the context, and at its end with None.

        Raises:
            ServerUnavailable: The broker was lost. It is raised when the context ends.
        """
        return self._session.subscribe(follower)

    def _begin(self, connect: Callable[[], Session]) -> None:
        self._session = connect()

    def _do(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        found = work(self._session, *args, **kwargs)
        return found.wait() if isinstance(found, Exchange) else found
