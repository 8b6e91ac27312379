"""The client for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, Self, TypeVar, cast

from stream_dp.client.client_methods import ClientMethods
from stream_dp.client.kafka.credentials import TokenSource
from stream_dp.client.kafka.exchange import Exchange
from stream_dp.client.kafka.mailbox import CLOSED, Reply
from stream_dp.client.kafka.session import Session
from stream_dp.client.statements.written_query import AnswerT, Condition, Query, query_of
from stream_dp.errors import StreamDPError
from stream_dp.messages import RefusedAnswer

T = TypeVar("T")

_THREADS: Final = 32


class AsyncClient(ClientMethods):
    """A ``Client`` whose methods are awaited. Many tasks can share its one connection.

    ``async with AsyncClient() as client:`` connects and closes. It takes the arguments of ``Client``, and its
    replies and errors are the same. Any number of queries can wait for their answers at a time. Each other
    request takes one of 32 threads. You may cancel a task while it waits. A record that was sent stays sent,
    and it is safe to send it again under the same id. ``on_delay`` and ``on_answer`` are called in threads.
    """

    def _begin(self, connect: Callable[[], Session]) -> None:
        self._connect = connect
        self._session: Session | None = None
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="stream-dp-client")

    async def __aenter__(self) -> Self:
        self._session = await self._run(self._connect, undo=Session.close)
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Does the same as ``Client.close``."""
        session, self._session = self._session, None
        if session is not None:
            # This needs another thread: all of ours may wait for something that only closing ends.
            await asyncio.to_thread(session.close)
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def with_token(self, token: TokenSource) -> AsyncClient:
        """Does the same as ``Client.with_token``."""
        return await self._twin(partial(self._connected().with_token, token))

    async def under_name(self, analyst: str) -> AsyncClient:
        """Returns a client under another name, on the connections of this one, for queries without tokens."""
        return await self._twin(partial(self._connected().under_name, analyst))

    async def _twin(self, connected: Callable[[], Session]) -> AsyncClient:
        twin = copy.copy(self)
        twin._session = await self._run(connected)  # noqa: SLF001 - of its own class
        return twin

    async def ask(
        self,
        dataset: str,
        query: Query[AnswerT] | Condition | None = None,
        *,
        group_by: Sequence[str] = (),
        last_phases: int | None = None,
        query_id: str | None = None,
        timeout_s: float = 30.0,
    ) -> AnswerT | RefusedAnswer:
        """Does the same as ``Client.ask``. No thread waits for the answer."""
        asked = query_of(query, group_by, last_phases, query_id)
        answer = await self.ask_query(dataset, asked, timeout_s=timeout_s)
        return cast("AnswerT | RefusedAnswer", answer)

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

    def _connected(self) -> Session:
        if self._session is None:
            raise StreamDPError("this client is not connected; use it in `async with`")
        return self._session

    async def _do(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        begin = partial(work, self._connected(), *args, **kwargs)
        found = await self._run(begin, undo=_forget)
        return await self._reply(found) if isinstance(found, Exchange) else found

    async def _reply(self, exchange: Exchange[T]) -> T:
        """Does the same as ``Exchange.wait``. A thread is taken to send the request, and not to wait."""
        try:
            reply = asyncio.wrap_future(exchange.future)
            reply.add_done_callback(_heard)
            while not reply.done():
                wait_s = await self._run(
                    partial(next, exchange.attempts), undo=lambda _: exchange.forget()
                )
                await asyncio.wait([reply], timeout=wait_s)
            await reply
        finally:
            exchange.forget()
        return exchange.reply()

    async def _run(self, work: Callable[[], T], *, undo: Callable[[T], object] | None = None) -> T:
        """Runs work in a thread. If the caller is cancelled, ``undo`` receives the result later."""
        future = self._threads.submit(work)
        try:
            return await asyncio.wrap_future(future)
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if (
                task is not None and not task.cancelling()
            ):  # the client was closed before its turn came
                raise StreamDPError(CLOSED) from None
            if undo is not None:
                future.add_done_callback(partial(_undo, undo))
            raise


def _forget(found: Any) -> None:
    """Gives up a request that nobody waits for any more."""
    if isinstance(found, Exchange):
        found.forget()


def _heard(reply: asyncio.Future[Any]) -> None:
    """An error that the sender meets too is told there, and not once more when the reply is collected."""
    if not reply.cancelled():
        reply.exception()


def _undo(undo: Callable[[T], object], done: Future[T]) -> None:
    if not done.cancelled() and done.exception() is None:
        undo(done.result())
