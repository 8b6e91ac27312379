"""Sends the queries of the pages through the topic ``queries`` and reads the answers, as any client does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, StrictBool, ValidationError

from stream_dp.broker import Broker
from stream_dp.client import AsyncClient, Query, Rejection
from stream_dp.errors import InvalidInput, InvalidQuery, StreamDPError
from stream_dp.messages import DatasetName
from stream_dp.sql import MAX_LENGTH
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
        quote: Whether to ask only for the price of the answer.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    dataset: DatasetName
    sql: Annotated[str, Field(max_length=MAX_LENGTH)] | None = None
    group_by: Annotated[tuple[str, ...], Field(max_length=8)] = ()
    last_phases: Annotated[int, Field(ge=1)] | None = None
    quote: StrictBool = False


class Asking:
    """The queries of all pages, which share one client."""

    def __init__(self, broker: Broker, topic_prefix: str) -> None:
        self._shared = SharedClient(
            partial(AsyncClient, broker, analyst=ANALYST, topic_prefix=topic_prefix)
        )

    async def reply(self, document: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the message of the answer, refusal or quote, or ``{"error": ...}`` with an explanation."""
        try:
            asked = AskRequest.model_validate(document)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            return _error(f"{'.'.join(map(str, first['loc'])) or 'query'}: {first['msg']}")
        query = Query(asked.sql or None, asked.group_by, asked.last_phases)
        try:
            async with self._shared.ask() as client:
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


def position_of(error: InvalidInput) -> dict[str, int]:
    """Returns the line and the column of an error in SQL. Empty for other errors."""
    found = _POSITION.fullmatch(error.field)
    return {"line": int(found[1]), "column": int(found[2])} if found else {}


def _error(message: str, **position: int) -> dict[str, Any]:
    return {"error": {"message": message, **position}}
