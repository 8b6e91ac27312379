"""Sends the queries of the pages through the topic ``queries`` and reads the answers, as any client does."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError, model_validator

from stream_dp.broker import Broker
from stream_dp.client import Client, Query, Rejection
from stream_dp.errors import InvalidInput, InvalidQuery, StreamDPError
from stream_dp.messages import DatasetName, Id, Series, Window
from stream_dp.sql import MAX_LENGTH

__all__ = ["ANALYST", "Asking"]

ANALYST: Final = "dashboard"
"""The name of the analyst in the answers to queries from the pages."""

_AT_ONCE: Final = 4
_MOST_QUEUED: Final = 16
_TIMEOUT_S: Final = 20.0
_IDLE_S: Final = 60.0
_POSITION: Final = re.compile(r"line (\d+), column (\d+)")


class AskRequest(BaseModel):
    """The request that a page sends.

    Attributes:
        sql: A condition or ``SELECT COUNT(*) ...``. None asks about every row.
        group_by: The attributes to group by, if the SQL has no GROUP BY.
        window: The phases to ask about in another form than ``last_phases``.
        series: The periods to ask one part each for.
        quote: Whether to ask only for the price of the answer.
        standing: True asks it in each phase from now on, and False ends the standing query of this id.
        query_id: The id of the standing query.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: DatasetName
    sql: Annotated[str, Field(max_length=MAX_LENGTH)] | None = None
    group_by: Annotated[tuple[str, ...], Field(max_length=8)] = ()
    last_phases: Annotated[int, Field(ge=1)] | None = None
    window: Window | None = None
    series: Series | None = None
    quote: StrictBool = False
    standing: StrictBool | None = None
    query_id: Id | None = None

    @model_validator(mode="after")
    def _named(self) -> AskRequest:
        if self.standing is not None and self.query_id is None:
            raise ValueError("a standing query needs a name")
        return self


class Asking:
    """One client for all pages. The first query opens it, and it closes after a minute without queries."""

    def __init__(self, broker: Broker, topic_prefix: str) -> None:
        self._make = partial(Client, broker, analyst=ANALYST, topic_prefix=topic_prefix)
        self._client: Client | None = None
        self._lock = threading.Lock()
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="stream-dp-query")
        self._under_way = 0
        self._idle: asyncio.TimerHandle | None = None

    async def reply(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the message of the answer, refusal or quote, or ``{"error": ...}`` with an explanation."""
        try:
            asked = AskRequest.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            return _error(f"{'.'.join(map(str, first['loc'])) or 'query'}: {first['msg']}")
        if self._under_way >= _MOST_QUEUED:
            return _error("too many queries are in progress; ask again in a moment")
        loop = asyncio.get_running_loop()
        if self._idle is not None:
            self._idle.cancel()
        self._under_way += 1
        try:
            return await loop.run_in_executor(self._threads, self._ask, asked)
        finally:
            self._under_way -= 1
            if self._under_way == 0:
                self._idle = loop.call_later(
                    _IDLE_S, lambda: loop.run_in_executor(self._threads, self._let_go)
                )

    def close(self) -> None:
        """Closes the client. Callers that still wait get an error."""
        if self._idle is not None:
            self._idle.cancel()
        self._let_go()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ask(self, asked: AskRequest) -> dict[str, Any]:
        window = None if asked.window is None else asked.window.model_dump(exclude_none=True)
        query = Query(
            asked.sql or None,
            asked.group_by,
            asked.last_phases,
            window=window,
            series=asked.series,
        )
        try:
            if asked.standing is not None:
                return self._stand(asked, query)
            answer = self._open().ask_query(
                asked.dataset, query, quote=asked.quote, timeout_s=_TIMEOUT_S
            )
        except InvalidQuery as error:
            position = _POSITION.fullmatch(error.field)
            return _error(
                f"{error.problem}; {error.fix}",
                **({"line": int(position[1]), "column": int(position[2])} if position else {}),
            )
        except InvalidInput as error:
            return _error(f"{error.problem}; {error.fix}")
        except Rejection as error:
            return _error(error.reason.message)
        except StreamDPError as error:
            self._let_go()  # the next query connects again
            return _error(str(error))
        return answer.model_dump(mode="json", exclude_none=True)

    def _stand(self, asked: AskRequest, query: Query[Any]) -> dict[str, Any]:
        """Begins or ends a standing query; ``{"standing": ...}`` with its id."""
        client, query_id = self._open(), asked.query_id or ""
        if asked.standing:
            client.stand(asked.dataset, replace(query, query_id=query_id), timeout_s=_TIMEOUT_S)
        else:
            client.end_standing(asked.dataset, query_id, timeout_s=_TIMEOUT_S)
        return {"standing": query_id}

    def _open(self) -> Client:
        with self._lock:
            if self._client is None:
                self._client = self._make()
            return self._client

    def _let_go(self) -> None:
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()


def _error(message: str, **position: int) -> dict[str, Any]:
    return {"error": {"message": message, **position}}
