"""Answers that connections share: a statement that was asked before is free, and is not sent again."""

from __future__ import annotations

import asyncio
import json
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any, Final, TypeAlias, TypeVar
from weakref import WeakValueDictionary

from stream_dp.client import AsyncClient, Refusal, Rejection
from stream_dp.client.statements.statement import Statement, statement_of
from stream_dp.messages import NoisyAnswer
from stream_dp.sql import StatementPlan

K = TypeVar("K")
V = TypeVar("V")

Answers: TypeAlias = tuple[NoisyAnswer, ...]
"""The answers to the queries of a statement, in their order."""

_REMEMBERED: Final = 2_000
_MOST_VALUES: Final = 20_000
_TIMEOUT_S: Final = 120.0
_MOST_QUERIES: Final = 24
_MOST_OF_ONE: Final = 8


class WaitingRooms:
    """Lets a number of queries wait for the workers, and one statement of each analyst about catalogs.

    The client has 32 threads, and each query that waits takes one of them.
    """

    def __init__(self) -> None:
        self._all = asyncio.Semaphore(_MOST_QUERIES)
        self._own = WeakValueDictionary[str, asyncio.Semaphore]()
        self._turns = WeakValueDictionary[str, asyncio.Lock]()

    @asynccontextmanager
    async def of(self, analyst: str) -> AsyncIterator[None]:
        """Holds a place for a query while the context lasts."""
        own = self._own.setdefault(analyst, asyncio.Semaphore(_MOST_OF_ONE))
        async with own, self._all:
            yield

    @asynccontextmanager
    async def catalogs(self, analyst: str) -> AsyncIterator[None]:
        """Holds the analyst's one place at the catalogs while the context lasts."""
        turn = self._turns.setdefault(analyst, asyncio.Lock())
        async with turn:
            yield


class SharedAnswers:
    """Asks statements under ids that follow from what is asked.

    The id is made of the analyst, the data set and its state, and the queries. So a refresh is the same
    query, and a new phase gives a new answer. One that was refused is asked under another id
    next time.
    """

    def __init__(self, rooms: WaitingRooms) -> None:
        self._rooms = rooms
        self._known: OrderedDict[str, Answers] = OrderedDict()
        self._refused: OrderedDict[str, int] = OrderedDict()
        self._asking: dict[str, asyncio.Task[Answers]] = {}

    async def of(
        self,
        client: AsyncClient,
        analyst: str,
        text: str,
        dataset: str,
        plan: StatementPlan,
        *,
        state: tuple[int, int, int],
        **about: Any,
    ) -> Answers:
        """Returns the answers to the queries of a statement.

        Args:
            client: The client that asks, under the name of the analyst.
            analyst: The analyst.
            text: The statement.
            dataset: The data set.
            plan: Its plan.
            state: What says that answers may be others by now, see ``Deployment.state``.
            **about: ``last_phases`` and ``at_most`` of the statement.

        Raises:
            Refusal: A query of it was refused.
            Rejection: The worker rejected one.
            StreamDPError: There is no reply.
        """
        named = [analyst, dataset, plan.queries, state, about]
        base = sha256(json.dumps(named, sort_keys=True, default=str).encode()).hexdigest()[:32]
        if any(query.get("window", {}).get("running") for query in plan.queries):
            base = uuid.uuid4().hex  # the newest tick may be another one by now
        if (found := self._known.get(base)) is not None:
            self._known.move_to_end(base)
            return found
        if (task := self._asking.get(base)) is None:
            again = self._refused.get(base, 0)
            query_id = f"pg-{base}-{again}" if again else f"pg-{base}"
            asked = statement_of(text, dataset, plan, query_id=query_id, window=None, **about)
            task = asyncio.create_task(self._asked(client, analyst, asked, base))
            self._asking[base] = task
            task.add_done_callback(lambda done: self._ended(base, done))
        return await asyncio.shield(task)

    async def _asked(
        self, client: AsyncClient, analyst: str, asked: Statement, base: str
    ) -> Answers:
        async with self._rooms.of(analyst):
            (found,) = await client.ask_statements([asked], timeout_s=_TIMEOUT_S)
        if isinstance(found, Refusal | Rejection):
            keep_latest(self._refused, base, self._refused.get(base, 0) + 1, _REMEMBERED)
            raise found
        if len(found.rows) * len(found.columns) <= _MOST_VALUES:
            keep_latest(self._known, base, found.answers, _REMEMBERED)
        return found.answers

    def _ended(self, base: str, task: asyncio.Task[Answers]) -> None:
        del self._asking[base]
        if not task.cancelled():
            task.exception()  # those who waited were told


def keep_latest(known: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    """Keeps a value with the latest others, at most ``most`` in all."""
    known[key] = value
    known.move_to_end(key)
    if len(known) > most:
        known.popitem(last=False)
