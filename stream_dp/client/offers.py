"""What both clients offer. Each name is a function of a part, which gets the session of the client."""

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
def _offered(work: Callable[Concatenate[Session, P], Exchange[T]]) -> _Method[P, T]: ...
@overload
def _offered(work: Callable[Concatenate[Session, P], T]) -> _Method[P, T]: ...
def _offered(work: Callable[..., Any]) -> Any:
    """Returns a function of a part as a method of a client."""

    @wraps(work)
    def call(client: Offers, /, *args: Any, **kwargs: Any) -> Any:
        return client._do(work, *args, **kwargs)  # noqa: SLF001 - of the same classes

    return call


class Offers(ABC):
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
    define = _offered(data_set_changes.define)
    change_analysts = _offered(data_set_changes.change_analysts)
    close_phase = _offered(data_set_changes.close_phase)
    retire = _offered(data_set_changes.retire)
    put_dimension = _offered(dimension_tables.put_dimension)
    delete_dimension = _offered(dimension_tables.delete_dimension)

    # send rows
    send = _offered(sent_batches.send)
    next_sequence = _offered(published_records.next_sequence)
    batch_events = _offered(published_records.batch_events)

    # ask queries
    quote = _offered(asked_queries.quote)
    quote_together = _offered(asked_queries.quote_together)
    ask_many = _offered(asked_queries.ask_many)
    ask_query = _offered(asked_queries.ask_query)
    as_message = _offered(asked_queries.as_message)
    table = _offered(asked_queries.table)

    # ask statements in SQL
    sql = _offered(asked_statements.sql)
    quote_sql = _offered(asked_statements.quote_sql)
    statement = _offered(asked_statements.read_statement)
    ask_statements = _offered(asked_statements.ask_statements)
    quote_statements = _offered(asked_statements.quote_statements)

    # let queries stand
    stand = _offered(standing_requests.stand)
    standing = _offered(standing_requests.standing)
    end_standing = _offered(standing_requests.end_standing)
    change_standing = _offered(standing_requests.change_standing)

    # look things up
    catalog = _offered(published_records.catalog)
    definition = _offered(published_records.definition)
    dimension = _offered(dimension_tables.dimension)
    dimensions = _offered(dimension_tables.dimensions)
    ledger = _offered(published_records.ledger)
    ledgers = _offered(published_records.ledgers)
    ledger_entries = _offered(published_records.ledger_entries)
    synthetic = _offered(published_records.synthetic)
    answer = _offered(published_records.answer)
    difficulties = _offered(published_records.difficulties)
    waiting = _offered(published_records.waiting)
    stopped = _offered(published_records.stopped)
    worker_problem = _offered(Session.worker_problem)
    open = _offered(Session.open)

    @abstractmethod
    def _begin(self, connect: Callable[[], Session]) -> None:
        """Begins with a function that connects."""

    @abstractmethod
    def _do(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Calls a function of a part with the session. Returns what it gives, or an awaitable of that."""
