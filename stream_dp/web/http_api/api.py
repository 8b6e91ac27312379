"""The HTTP API: what analysts can do on the pages, for programs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from http import HTTPStatus
from typing import Any, Final
from urllib.parse import quote as quoted

from aiohttp import web
from pydantic import BaseModel

from stream_dp.client import AsyncClient, Query, Refusal
from stream_dp.errors import InvalidInput, InvalidMessage, ServerUnavailable
from stream_dp.messages import (
    Answer,
    Event,
    NoisyAnswer,
    QueryFields,
    RefusedAnswer,
    Window,
    read_json,
)
from stream_dp.web.access import Access
from stream_dp.web.event_stream import TICK_S, Viewers, stream
from stream_dp.web.http_api.api_documents import (
    DatasetBudget,
    DatasetList,
    DatasetSummary,
    NothingAsked,
    Pending,
    PhaseBudget,
    QueryList,
    ShareBudget,
    SqlQuery,
    SqlStatement,
    StandingEnded,
    StandingList,
    StatementTable,
)
from stream_dp.web.http_api.bodies import LARGEST, read_body
from stream_dp.web.http_api.openapi import (
    DATASET,
    LONGEST_WAIT_S,
    OF_QUERIES,
    openapi,
    operation,
    operations_of,
)
from stream_dp.web.http_api.problems import NotFound, answer_problems
from stream_dp.web.page_data.published_state import PublishedDataset, PublishedState
from stream_dp.web.shared_client import SharedClient

API_ANALYST: Final = "api"
"""The name of the analyst in the answers to queries from the API."""

_WAIT_S: Final = 20.0
_GIVE_UP_S: Final = 120.0
_REMEMBERED: Final = 32
_MOST_WAITING: Final = 256


class Api:
    """The addresses under ``/api``. They send queries and read topics as any client does.

    Args:
        connect: A function that creates a client without connecting it.
        published: A function that returns the state of all data sets, according to the topics.
        gone: A function that names the servers that do not answer. Empty if none is known to be away.
        access: The rules that say who the sender of a request is.
        viewers: The places for streams, which the pages share.
        closing: An event that ends the streams.
    """

    def __init__(
        self,
        connect: Callable[[], AsyncClient],
        *,
        published: Callable[[], Awaitable[PublishedState]],
        gone: Callable[[], str],
        access: Access,
        viewers: Viewers,
        closing: asyncio.Event,
    ) -> None:
        self._shared = SharedClient(connect)
        self._published = published
        self._gone = gone
        self._access = access
        self._viewers = viewers
        self._closing = closing
        self._asked: OrderedDict[tuple[str | None, str, str], asyncio.Task[Answer]] = OrderedDict()

    def install(self, app: web.Application) -> None:
        """Adds the API to a web server that has not started. Call it before the guard is installed."""
        app.middlewares.append(answer_problems)
        app.router.add_get("/api/openapi.json", _describe, allow_head=False)
        for one in operations_of(Api):
            app.router.add_route(one.method, one.path, getattr(self, one.name))

    async def close(self) -> None:
        """Closes the client. Requests that still wait get an error."""
        for task in self._asked.values():
            task.cancel()
        await self._shared.close()

    # ------------------------------------------------------------ what is published

    @operation("/api/v1/datasets", "datasets", problems=(503,))
    async def datasets(self, request: web.Request) -> web.Response:
        """The data sets."""
        published, seen = await self._published(), self._access.seen(request)
        with published.lock:
            found = tuple(_summary(name, one) for name, one in published.known(seen).items())
        return _json(DatasetList(datasets=found))

    @operation(DATASET, "definition", problems=(404, 503))
    async def definition(self, request: web.Request) -> web.Response:
        """The definition of a data set."""
        async with self._dataset(request) as (name, dataset):
            if dataset.definition is None or dataset.retired:
                raise _no_dataset(name)
            return web.Response(body=dataset.definition.to_bytes(), content_type="application/json")

    @operation(f"{DATASET}/budget", "budget", problems=(404, 503))
    async def budget(self, request: web.Request) -> web.Response:
        """The budget of each phase, according to the ledger."""
        async with self._dataset(request) as (name, dataset):
            return _json(_budget(name, dataset))

    @contextlib.asynccontextmanager
    async def _dataset(self, request: web.Request) -> AsyncIterator[tuple[str, PublishedDataset]]:
        """Finds the data set that the address names.

        Raises:
            NotFound: There is none of that name.
        """
        name = request.match_info["dataset"]
        published = await self._published()
        with published.lock:
            dataset = published.known().get(name)
            if dataset is None:
                raise _no_dataset(name)
            yield name, dataset

    # ------------------------------------------------------------ queries

    def _token(self, request: web.Request) -> str | None:
        """Returns the signed token under whose name a request asks. None where queries need none.

        Raises:
            InvalidMessage: They do, and the request has none that is for its data set.
        """
        asker = self._access.asker(request, request.match_info["dataset"])
        return None if asker is None else asker.token

    @contextlib.asynccontextmanager
    async def _client(
        self, request: web.Request, *, named: bool = True
    ) -> AsyncIterator[tuple[AsyncClient, str]]:
        """Holds a client that asks in the name of the sender, next to the data set of the address.

        Args:
            request: The request.
            named: Whether it asks in the name of the sender, and not in nobody's.

        Raises:
            InvalidMessage: The request has no signed token for the data set, and needs one.
            ServerUnavailable: A server is away, so nothing was sent.
            NotFound: There is no such data set.
        """
        dataset, token = request.match_info["dataset"], self._token(request) if named else None
        if gone := self._gone():
            raise ServerUnavailable(f"{gone}; nothing was sent. Ask again when it is back")
        async with self._shared.ask(token) as client:
            await _check_dataset(client, dataset)
            yield client, dataset

    @operation(f"{DATASET}/queries", "answer", "query", waits=True, problems=(*OF_QUERIES, 409))
    async def ask(self, request: web.Request) -> web.Response:
        """Asks a query. The same query under the same id returns the same answer, and costs nothing more."""
        wait_s = _seconds(request, _WAIT_S)
        query = _query(await _document(request))
        if query.alert is not None:
            raise InvalidMessage(
                "alert", "an alert goes with a standing query", "post the query to standing"
            )
        token = self._token(request)
        async with self._client(request, named=False) as (
            client,
            dataset,
        ):  # SQL takes a place, too
            asked = await _asked(client, dataset, query)
        self._shared.check_room()
        task = asyncio.create_task(self._ask(dataset, asked, token))
        task.add_done_callback(_take_note)
        await asyncio.wait({task}, timeout=wait_s)
        if task.done():
            return _json(task.result())
        query_id = str(asked.query_id)
        key = self._access.name(request), dataset, query_id
        if key not in self._asked or self._asked[key].done():
            self._asked[key] = task
        self._asked.move_to_end(key)
        while len(self._asked) > _REMEMBERED:
            self._asked.popitem(last=False)
        return _pending(dataset, query_id)

    @operation(
        f"{DATASET}/answers/{{query_id}}",
        "answer",
        waits=True,
        problems=(404, 409, 422, 429, 503, 504),
    )
    async def answer(self, request: web.Request) -> web.Response:
        """The answer to a query that was asked here, if it is among the latest ones."""
        wait_s = _seconds(request, 0.0)
        dataset, query_id = request.match_info["dataset"], request.match_info["query_id"]
        self._token(request)
        key = self._access.name(request), dataset, query_id
        if (task := self._asked.get(key)) is not None:
            await asyncio.wait({task}, timeout=wait_s)
            if not task.done():
                return _pending(dataset, query_id)
            if not task.cancelled() and task.exception() is None:
                return _json(task.result())
            self._asked.pop(key, None)  # it may have been answered all the same
        async with self._client(request) as (client, dataset):
            found = await client.answer(dataset, query_id)
        if found is None:
            raise NotFound(
                "no answer under this id is among the latest ones; ask the same query under the same id "
                "again, which returns the same answer"
            )
        return _json(found)

    @operation(f"{DATASET}/tables", "table", "statement", problems=(*OF_QUERIES, 409))
    async def table(self, request: web.Request) -> web.Response:
        """Asks any text in SQL, and returns its table."""
        asked = SqlStatement.read(await _document(request), quoting=True)
        async with self._client(request) as (client, dataset):
            try:
                table = await client.sql(
                    asked.sql,
                    dataset=dataset,
                    window=_window(asked.window),
                    series=asked.series,
                    query_id=asked.query_id,
                    at_most=asked.at_most,
                    timeout_s=_WAIT_S,
                )
            except Refusal as refusal:
                return _json(refusal.answer)
        return _json(StatementTable.model_validate(table.to_document()))

    @operation(f"{DATASET}/tables/quotes", "quote-table", "statement", problems=OF_QUERIES)
    async def quote_table(self, request: web.Request) -> web.Response:
        """What the table of a text in SQL would cost now. It spends nothing."""
        asked = SqlStatement.read(await _document(request), quoting=True)
        for field in ("query_id", "at_most"):
            if getattr(asked, field) is not None:
                raise InvalidMessage(field, "a quote spends nothing", f"omit {field}")
        async with self._client(request) as (client, dataset):
            quote = await client.quote_sql(
                asked.sql,
                dataset=dataset,
                window=_window(asked.window),
                series=asked.series,
                timeout_s=_WAIT_S,
            )
        return _json(NothingAsked(dataset=dataset) if quote is None else quote)

    @operation(f"{DATASET}/quotes", "quote", "query", problems=OF_QUERIES)
    async def quote(self, request: web.Request) -> web.Response:
        """What the answer to a query would cost now. It spends nothing."""
        query = _query(await _document(request))
        async with self._client(request) as (client, dataset):
            asked = await _asked(client, dataset, query)
            return _json(await client.ask_query(dataset, asked, quote=True, timeout_s=_WAIT_S))

    @operation(f"{DATASET}/quotes/together", "quote-together", "queries", problems=OF_QUERIES)
    async def quote_together(self, request: web.Request) -> web.Response:
        """What several queries would cost if they were asked one after another now. It spends nothing."""
        body = QueryList.read(await _document(request), quoting=True)
        queries = [_query(one) for one in body.queries]
        async with self._client(request) as (client, dataset):
            asked = [await _asked(client, dataset, one) for one in queries]
            return _json(await client.quote_together(dataset, asked, timeout_s=_WAIT_S))

    @operation(f"{DATASET}/standing", "standing-queries", problems=(404, 503))
    async def standing(self, request: web.Request) -> web.Response:
        """The standing queries, which are answered again in each phase."""
        async with self._client(request, named=False) as (client, dataset):
            return _json(StandingList(standing=tuple(await client.standing(dataset))))

    @operation(f"{DATASET}/standing", "standing", "query", problems=(*OF_QUERIES, 409))
    async def stand(self, request: web.Request) -> web.Response:
        """Asks a query in each phase from now on, under the ids `query_id@phase`."""
        document = await _document(request)
        if "query_id" not in document:
            raise InvalidMessage("query_id", "a standing query needs a name", "add query_id")
        query = _query(document)
        async with self._client(request) as (client, dataset):
            asked = await _asked(client, dataset, query)
            alert = None if query.alert is None else query.alert.model_dump(exclude_none=True)
            return _json(await client.stand(dataset, asked, alert=alert, timeout_s=_WAIT_S))

    @operation(
        f"{DATASET}/standing/{{query_id}}", "standing-ended", deletes=True, problems=(404, 503, 504)
    )
    async def end_standing(self, request: web.Request) -> web.Response:
        """Ends a standing query that was begun here. Its answers stay."""
        query_id = request.match_info["query_id"]
        async with self._client(request) as (client, dataset):
            await client.end_standing(dataset, query_id, timeout_s=_WAIT_S)
        return _json(StandingEnded(dataset=dataset, query_id=query_id))

    async def _ask(self, dataset: str, asked: Query[Any], token: str | None) -> Answer:
        async with self._shared.ask(token) as client:
            return await client.ask_query(dataset, asked, timeout_s=_GIVE_UP_S)

    # ------------------------------------------------------------ what happens

    @operation(f"{DATASET}/stream", "stream", problems=(404, 503))
    async def stream(self, request: web.Request) -> web.StreamResponse:
        """Answers and events from now on, as server-sent events of the types `answer` and `event`.

        The data of each is that message in one line of JSON.
        """
        dataset = request.match_info["dataset"]
        with self._viewers.place(self._access.role(request)):
            async with self._shared.use() as client:
                await _check_dataset(client, dataset)
                replies: asyncio.Queue[bytes] = asyncio.Queue(_MOST_WAITING)
                following = asyncio.create_task(_follow(client, dataset, replies))
                following.add_done_callback(_take_note)
                try:
                    await client.open()
                    events = self._arriving(replies, following)
                    return await stream(request, events, still_here=b": still here\n\n")
                finally:
                    following.cancel()

    async def _arriving(
        self, replies: asyncio.Queue[bytes], following: asyncio.Task[None]
    ) -> AsyncIterator[bytes]:
        """Yields replies until the server stops, or nobody follows the topics any more."""
        while not self._closing.is_set() and not (following.done() and replies.empty()):
            try:
                yield await asyncio.wait_for(replies.get(), TICK_S)
            except TimeoutError:
                yield b""


async def _follow(client: AsyncClient, dataset: str, replies: asyncio.Queue[bytes]) -> None:
    """Queues answers and events, until their reader is too slow."""
    async for reply in client.follow(dataset):
        if isinstance(reply, NoisyAnswer | RefusedAnswer | Event):
            if replies.full():
                return
            name = "event" if isinstance(reply, Event) else "answer"
            replies.put_nowait(b"event: %s\ndata: %s\n\n" % (name.encode(), reply.to_bytes()))


def _take_note(task: asyncio.Task[Any]) -> None:
    """Marks an error as seen, because nobody may ask for it."""
    if not task.cancelled():
        task.exception()


@cache
def _openapi_bytes() -> bytes:
    return json.dumps(openapi(operations_of(Api)), separators=(",", ":")).encode()


async def _describe(_: web.Request) -> web.Response:
    return web.Response(body=_openapi_bytes(), content_type="application/json")


async def _document(request: web.Request) -> dict[str, Any]:
    return read_json(await read_body(request), max_bytes=LARGEST)


async def _check_dataset(client: AsyncClient, name: str) -> None:
    """Checks that there is a data set of a name.

    Raises:
        NotFound: There is none.
    """
    try:
        await client.definition(name)
    except InvalidInput as error:
        raise NotFound(f"{error.problem}; {error.fix}") from None


def _query(document: object) -> SqlQuery | QueryFields:
    """Reads a query in SQL, or the fields of a message.

    Raises:
        InvalidMessage: The document is not a query.
    """
    if isinstance(document, Mapping) and "sql" in document:
        return SqlQuery.read(document, quoting=True)
    if isinstance(document, Mapping):
        for field, place in (("quote", "quotes"), ("standing", "standing")):
            if field in document:
                raise InvalidMessage(
                    field, f"it has an address of its own, {place}", f"post the query to {place}"
                )
        named = {"query_id": uuid.uuid4().hex, **document}
        standing = {"standing": True} if "alert" in document else {}
        return QueryFields.read({**named, **standing})
    return QueryFields.read(document)


async def _asked(client: AsyncClient, dataset: str, query: SqlQuery | QueryFields) -> Query[Any]:
    """Returns what is asked, translated from SQL and with an id.

    Raises:
        InvalidInput: The SQL does not fit the data set.
    """
    if isinstance(query, QueryFields):
        return Query.of_message(query)
    asked: Query[Any] = Query(
        query.sql or None,
        query.group_by,
        query_id=query.query_id,
        window=_window(query.window),
        series=query.series,
        error=query.error.model_dump() if isinstance(query.error, BaseModel) else query.error,
        at_most=query.at_most,
    )
    return Query.of_message(QueryFields.read(await client.as_message(dataset, asked)))


def _window(window: Window | None) -> dict[str, Any] | None:
    return None if window is None else window.model_dump(exclude_none=True)


def _seconds(request: web.Request, default: float) -> float:
    """Returns the time to wait, in seconds.

    Raises:
        InvalidMessage: It is not a number, or is out of range.
    """
    said = request.query.get("timeout")
    try:
        found = default if said is None else float(said)
    except ValueError:
        found = math.nan
    if not 0 <= found <= LONGEST_WAIT_S:
        raise InvalidMessage(
            "timeout",
            "it is not a number of seconds in range",
            f"use 0 to {LONGEST_WAIT_S:g}, and read a later answer at its address",
        )
    return found


def _no_dataset(name: str) -> NotFound:
    return NotFound(f"there is no data set {name!r}; see the list at /api/v1/datasets")


def _summary(name: str, dataset: PublishedDataset) -> DatasetSummary:
    """Returns the entry of a data set in the list."""
    return DatasetSummary(
        dataset=name,
        state=dataset.state,
        phases=len(dataset.odometer.blocks),
        rows=dataset.odometer.rows,
        waiting=dataset.waiting,
        spent=dataset.odometer.most_spent,
    )


def _budget(name: str, dataset: PublishedDataset) -> DatasetBudget:
    odometer = dataset.odometer
    shares = dataset.shares()
    return DatasetBudget(
        dataset=name,
        spent=odometer.most_spent,
        left=1 - odometer.most_spent,
        looks=odometer.looks,
        phases=tuple(
            PhaseBudget(
                phase=number,
                opened=datetime.fromtimestamp(opened_ms / 1000, UTC),
                rows=block.rows,
                spent=block.spent,
                left=1 - block.spent,
                looks=block.looks,
            )
            for number, block, opened_ms in dataset.phases()
        ),
        shares=tuple(ShareBudget(**one) for one in shares) if shares else None,
    )


def _pending(dataset: str, query_id: str) -> web.Response:
    """Returns the reply to a query whose answer is not there yet."""
    place = f"/api/v1/datasets/{dataset}/answers/{quoted(query_id, safe='')}"
    reply = _json(
        Pending(dataset=dataset, query_id=query_id, answer=place), status=HTTPStatus.ACCEPTED
    )
    reply.headers["Location"] = place
    return reply


def _json(document: BaseModel, *, status: HTTPStatus = HTTPStatus.OK) -> web.Response:
    body = document.model_dump_json(exclude_none=True).encode()
    return web.Response(status=status, body=body, content_type="application/json")
