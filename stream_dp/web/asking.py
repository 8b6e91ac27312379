"""Sends the queries of the pages through the topic ``queries`` and reads the answers, as any client does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError, model_validator

from stream_dp.broker import Broker
from stream_dp.client import AsyncClient, Query, Rejection
from stream_dp.errors import InvalidInput, InvalidMessage, InvalidQuery, StreamDPError
from stream_dp.messages import DatasetName, Id, Series, Window
from stream_dp.sql import MAX_LENGTH
from stream_dp.web.access import Asker
from stream_dp.web.sharing import SharedClient

__all__ = ["ANALYST", "Asking", "position_of"]

ANALYST: Final = "dashboard"
"""The name of the analyst in the answers to queries from the pages."""

_TIMEOUT_S: Final = 20.0
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
    """The queries of all pages, which share one client."""

    def __init__(self, broker: Broker, topic_prefix: str) -> None:
        self._shared = SharedClient(
            partial(AsyncClient, broker, analyst=ANALYST, topic_prefix=topic_prefix)
        )

    async def reply(
        self, document: Mapping[str, Any], asker: Callable[[str], Asker | None]
    ) -> dict[str, Any]:
        """Returns the message of the answer, refusal or quote, or ``{"error": ...}`` with an explanation.

        Args:
            document: What the page sent.
            asker: Returns who asks a data set. It raises an error if nobody may.
        """
        try:
            asked = AskRequest.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            return _error(f"{'.'.join(map(str, first['loc'])) or 'query'}: {first['msg']}")
        window = None if asked.window is None else asked.window.model_dump(exclude_none=True)
        query = Query(
            asked.sql or None,
            asked.group_by,
            asked.last_phases,
            window=window,
            series=asked.series,
        )
        try:
            who = asker(asked.dataset)
        except InvalidMessage as error:
            return _error(f"{error.problem}; enter one at /enter")
        try:
            async with self._shared.ask(None if who is None else who.token) as client:
                if asked.standing is not None:
                    return await _stand(client, asked, query)
                answer = await client.ask_query(
                    asked.dataset, query, quote=asked.quote, timeout_s=_TIMEOUT_S
                )
        except InvalidQuery as error:
            return _error(f"{error.problem}; {error.fix}", **position_of(error))
        except InvalidInput as error:
            return _error(f"{error.problem}; {error.fix}")
        except Rejection as error:
            return _error(error.reason.message)
        except StreamDPError as error:
            return _error(str(error))
        return answer.model_dump(mode="json", exclude_none=True)

    async def close(self) -> None:
        """Closes the client. Callers that still wait get an error."""
        await self._shared.close()


async def _stand(client: AsyncClient, asked: AskRequest, query: Query[Any]) -> dict[str, Any]:
    """Begins or ends a standing query; ``{"standing": ...}`` with its id."""
    query_id = asked.query_id or ""
    if asked.standing:
        await client.stand(asked.dataset, replace(query, query_id=query_id), timeout_s=_TIMEOUT_S)
    else:
        await client.end_standing(asked.dataset, query_id, timeout_s=_TIMEOUT_S)
    return {"standing": query_id}


def position_of(error: InvalidInput) -> dict[str, int]:
    """Returns the line and the column of an error in SQL. Empty for other errors."""
    found = _POSITION.fullmatch(error.field)
    return {"line": int(found[1]), "column": int(found[2])} if found else {}


def _error(message: str, **position: int) -> dict[str, Any]:
    return {"error": {"message": message, **position}}
