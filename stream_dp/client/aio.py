"""The client for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, Self, TypeVar, overload

from stream_dp.broker import Broker
from stream_dp.client.client import Client
from stream_dp.client.kafka.credentials import TokenSource
from stream_dp.client.kafka.exchange import Exchange
from stream_dp.client.kafka.mailbox import Reply
from stream_dp.client.rows.frames import answer_frame
from stream_dp.client.statements.written_query import AnswerT, Condition, Query, query_of
from stream_dp.errors import StreamDPError
from stream_dp.messages import Answer, QuotedAnswer, RefusedAnswer

if TYPE_CHECKING:
    import pandas as pd

P = ParamSpec("P")
T = TypeVar("T")

_THREADS = 32


def _twin(
    method: Callable[Concatenate[Client, P], T],
) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """Wraps a method of ``Client`` so that it runs in a thread."""

    @functools.wraps(method)
    async def call(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._run(functools.partial(method, self._connected(), *args, **kwargs))

    return call


class AsyncClient:
    """A ``Client`` whose methods are awaited. Many tasks can share its one connection.

    ``async with AsyncClient() as client:`` connects and closes. It takes the arguments of ``Client``, and its
    replies and errors are the same. Any number of queries can wait for their answers at a time. Each other
    request takes one of 32 threads. You may cancel a task while it waits. A record that was sent stays sent,
    and it is safe to send it again under the same id. ``on_delay`` and ``on_answer`` are called in threads.
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
        self._connect = functools.partial(
            Client,
            bootstrap_servers,
            analyst=analyst,
            topic_prefix=topic_prefix,
            token=token,
            kafka=kafka,
            on_delay=on_delay,
        )
        self._client: Client | None = None
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="stream-dp-client")

    async def __aenter__(self) -> Self:
        self._client = await self._run(self._connect, undo=Client.close)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Does the same as ``Client.close``."""
        client, self._client = self._client, None
        if client is not None:
            # This needs another thread: all of ours may wait for something that only closing ends.
            await asyncio.to_thread(client.close)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def with_token(self, token: TokenSource) -> AsyncClient:
        """Does the same as ``Client.with_token``."""
        twin = copy.copy(self)
        twin._client = await self._run(functools.partial(self._connected().with_token, token))  # noqa: SLF001
        return twin

    define = _twin(Client.define)
    retire = _twin(Client.retire)
    close_phase = _twin(Client.close_phase)
    change_analysts = _twin(Client.change_analysts)
    catalog = _twin(Client.catalog)
    definition = _twin(Client.definition)
    ledger = _twin(Client.ledger)
    ledgers = _twin(Client.ledgers)
    ledger_entries = _twin(Client.ledger_entries)
    synthetic = _twin(Client.synthetic)
    dimension = _twin(Client.dimension)
    dimensions = _twin(Client.dimensions)
    put_dimension = _twin(Client.put_dimension)
    delete_dimension = _twin(Client.delete_dimension)
    difficulties = _twin(Client.difficulties)
    standing = _twin(Client.standing)
    stand = _twin(Client.stand)
    end_standing = _twin(Client.end_standing)
    change_standing = _twin(Client.change_standing)
    answer = _twin(Client.answer)
    waiting = _twin(Client.waiting)
    batch_events = _twin(Client.batch_events)
    next_sequence = _twin(Client.next_sequence)
    stopped = _twin(Client.stopped)
    worker_problem = _twin(Client.worker_problem)
    send = _twin(Client.send)
    as_message = _twin(Client.as_message)
    ask_many = _twin(Client.ask_many)
    quote_together = _twin(Client.quote_together)
    sql = _twin(Client.sql)
    quote_sql = _twin(Client.quote_sql)
    statement = _twin(Client.statement)
    ask_statements = _twin(Client.ask_statements)
    quote_statements = _twin(Client.quote_statements)
    open = _twin(Client.open)

    @overload
    async def ask(
        self, dataset: str, query: Query[AnswerT], *, timeout_s: float = 30.0
    ) -> AnswerT | RefusedAnswer: ...

    @overload
    async def ask(
        self,
        dataset: str,
        query: Condition | None = None,
        *,
        group_by: Sequence[str] = (),
        last_phases: int | None = None,
        query_id: str | None = None,
        timeout_s: float = 30.0,
    ) -> Answer: ...

    async def ask(
        self,
        dataset: str,
        query: Query[Any] | Condition | None = None,
        *,
        group_by: Sequence[str] = (),
        last_phases: int | None = None,
        query_id: str | None = None,
        timeout_s: float = 30.0,
    ) -> Answer:
        """Does the same as ``Client.ask``."""
        asked = query_of(query, group_by, last_phases, query_id)
        return await self.ask_query(dataset, asked, timeout_s=timeout_s)

    async def quote(
        self,
        dataset: str,
        query: Query[Any] | Condition | None = None,
        *,
        group_by: Sequence[str] = (),
        last_phases: int | None = None,
        timeout_s: float = 30.0,
    ) -> QuotedAnswer | RefusedAnswer:
        """Does the same as ``Client.quote``."""
        asked = query_of(query, group_by, last_phases, None)
        answer = await self.ask_query(dataset, asked, quote=True, timeout_s=timeout_s)
        assert isinstance(answer, QuotedAnswer | RefusedAnswer)
        return answer

    async def ask_query(
        self, dataset: str, query: Query[Any], *, quote: bool = False, timeout_s: float = 30.0
    ) -> Answer:
        """Does the same as ``Client.ask_query``. No thread waits for the answer."""
        prepare = functools.partial(
            self._connected().prepare, dataset, query, quote=quote, timeout_s=timeout_s
        )
        exchange = await self._run(prepare, undo=Exchange.forget)
        try:
            reply = asyncio.wrap_future(exchange.future)
            reply.add_done_callback(_heard)
            while not reply.done():
                wait_s = await self._run(
                    functools.partial(next, exchange.attempts), undo=lambda _: exchange.forget()
                )
                await asyncio.wait([reply], timeout=wait_s)
            await reply
        finally:
            exchange.forget()
        answer = exchange.reply()
        assert isinstance(answer, Answer)
        return answer

    async def table(
        self,
        dataset: str,
        query: Query[Any] | str,
        *,
        last_phases: int | None = None,
        timeout_s: float = 60.0,
    ) -> pd.DataFrame:
        """Does the same as ``Client.table``."""
        asked = query_of(query, (), last_phases, None)
        answer = await self.ask_query(dataset, asked, timeout_s=timeout_s)
        return answer_frame(answer, asked.conditions)

    async def follow(self, dataset: str | None = None) -> AsyncIterator[Reply]:
        """Does the same as ``Client.follow``."""
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[Reply | None] = asyncio.Queue()

        def follower(reply: Reply | None) -> None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and nobody listens
                loop.call_soon_threadsafe(queue.put_nowait, reply)

        await self.open()
        with self._connected().subscribe(follower):
            while (reply := await queue.get()) is not None:
                if dataset is None or reply.dataset == dataset:
                    yield reply

    def _connected(self) -> Client:
        if self._client is None:
            raise StreamDPError("this client is not connected; use it in `async with`")
        return self._client

    async def _run(self, work: Callable[[], T], *, undo: Callable[[T], object] | None = None) -> T:
        """Runs work in a thread. If the caller is cancelled, ``undo`` receives the result later."""
        future = self._threads.submit(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            if undo is not None:
                future.add_done_callback(functools.partial(_undo, undo))
            raise


def _heard(reply: asyncio.Future[Any]) -> None:
    """An error that the sender meets too is told there, and not once more when the reply is collected."""
    if not reply.cancelled():
        reply.exception()


def _undo(undo: Callable[[T], object], done: Future[T]) -> None:
    if not done.cancelled() and done.exception() is None:
        undo(done.result())
