"""The methods of both clients. Each is a function of a part, to which the client gives its session.

So a new method is a function in one of the parts, and a line here.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Protocol, TypeVar, overload

from stream_dp.broker import Broker
from stream_dp.client import (
    asked_queries,
    asked_statements,
    data_set_changes,
    dimension_tables,
    published_records,
    sent_batches,
    sent_changes,
    standing_requests,
)
from stream_dp.client.kafka.credentials import TokenSource
from stream_dp.client.kafka.exchange import Exchange
from stream_dp.client.kafka.session import Session

if TYPE_CHECKING:
    from stream_dp.client.aio import AsyncClient
    from stream_dp.client.client import Client

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class _Method(Protocol[P, T_co]):
    """How a type checker sees a function of a part: ``Client`` calls it, and ``AsyncClient`` awaits it."""

    @overload
    def __get__(self, client: None, owner: type) -> Callable[Concatenate[Any, P], T_co]: ...
    @overload
    def __get__(
        self, client: AsyncClient, owner: type
    ) -> Callable[P, Coroutine[Any, Any, T_co]]: ...
    @overload
    def __get__(self, client: Client, owner: type) -> Callable[P, T_co]: ...


@overload
def _method(work: Callable[Concatenate[Session, P], Exchange[T]]) -> _Method[P, T]: ...
@overload
def _method(work: Callable[Concatenate[Session, P], T]) -> _Method[P, T]: ...
def _method(work: Callable[..., Any]) -> Any:
    """Returns a function of a part as a method of a client."""

    @wraps(work)
    def call(client: ClientMethods, /, *args: Any, **kwargs: Any) -> Any:
        return client._do(work, *args, **kwargs)  # noqa: SLF001 - of the same classes

    return call


class ClientMethods(ABC):
    """The constructor and the methods that ``Client`` and ``AsyncClient`` have in common."""

    def __init__(
        self,
        bootstrap_servers: str | Broker | None = None,
        *,
        analyst: str | None = None,
        topic_prefix: str | None = None,
        token: TokenSource | None = None,
        on_delay: Callable[[str], None] | None = None,
    ) -> None:
        self._begin(partial(Session, bootstrap_servers, analyst, topic_prefix, token, on_delay))

    # define data sets
    define = _method(data_set_changes.define)
    change_analysts = _method(data_set_changes.change_analysts)
    change_schema = _method(data_set_changes.change_schema)
    close_phase = _method(data_set_changes.close_phase)
    retire = _method(data_set_changes.retire)
    put_dimension = _method(dimension_tables.put_dimension)
    delete_dimension = _method(dimension_tables.delete_dimension)

    # send rows
    send = _method(sent_batches.send)
    next_sequence = _method(published_records.next_sequence)
    batch_events = _method(published_records.batch_events)

    # change rows that came before
    erase = _method(sent_changes.erase)
    correct = _method(sent_changes.correct)
    sweep = _method(sent_changes.sweep)
    receipt = _method(sent_changes.receipt)

    # ask queries; each client has ``ask`` itself, whose type says the class of the answer
    quote = _method(asked_queries.quote)
    quote_together = _method(asked_queries.quote_together)
    ask_many = _method(asked_queries.ask_many)
    ask_query = _method(asked_queries.ask_query)
    as_message = _method(asked_queries.as_message)
    table = _method(asked_queries.table)

    # ask statements in SQL
    sql = _method(asked_statements.sql)
    quote_sql = _method(asked_statements.quote_sql)
    statement = _method(asked_statements.read_statement)
    ask_statements = _method(asked_statements.ask_statements)
    quote_statements = _method(asked_statements.quote_statements)

    # let queries stand
    stand = _method(standing_requests.stand)
    standing = _method(standing_requests.standing)
    end_standing = _method(standing_requests.end_standing)
    change_standing = _method(standing_requests.change_standing)

    # look things up
    catalog = _method(published_records.catalog)
    definition = _method(published_records.definition)
    dimension = _method(dimension_tables.dimension)
    dimensions = _method(dimension_tables.dimensions)
    ledger = _method(published_records.ledger)
    ledgers = _method(published_records.ledgers)
    ledger_entries = _method(published_records.ledger_entries)
    synthetic = _method(published_records.synthetic)
    answer = _method(published_records.answer)
    difficulties = _method(published_records.difficulties)
    waiting = _method(published_records.waiting)
    stopped = _method(published_records.stopped)
    worker_problem = _method(Session.worker_problem)
    open = _method(Session.open)

    @abstractmethod
    def _begin(self, connect: Callable[[], Session]) -> None:
        """Begins with a function that connects."""

    @abstractmethod
    def _do(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function of a part with the session. Returns what it gives, or an awaitable of that."""
