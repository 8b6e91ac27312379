"""Sends the queries of the pages through the topic ``queries`` and reads the answers, as any client does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

from pydantic import Field, StrictBool, model_validator

from stream_dp.client import AsyncClient, Query, Refusal
from stream_dp.display.answer_words import why
from stream_dp.display.price_words import NOTHING_ASKED, also, part_of_price, quote_in_words
from stream_dp.errors import InvalidInput, InvalidMessage, StreamDPError
from stream_dp.messages import DatasetName, Id, QuotedBundle, RefusedAnswer, Series, Window
from stream_dp.messages.message_base import Request
from stream_dp.sql import MAX_LENGTH
from stream_dp.web.access import Asker
from stream_dp.web.shared_client import SharedClient

ANALYST: Final = "dashboard"
"""The name of the analyst in the answers to queries from the pages."""

_TIMEOUT_S: Final = 20.0
_POSITION: Final = re.compile(r"line (\d+), column (\d+)")


class AskRequest(Request):
    """The request that a page sends.

    Attributes:
        sql: A condition or SELECT. None asks about every row.
        window: The phases to ask about. None asks about all phases.
        series: The periods to group by as well, if the SQL groups by none.
        quote: Whether to ask only for the price of the answer.
        standing: True asks it in each phase from now on, and False ends the standing query of this id.
        query_id: The id of the standing query.
    """

    dataset: DatasetName
    sql: Annotated[str, Field(max_length=MAX_LENGTH)] | None = None
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
    """The queries of all pages, which share one client.

    Args:
        connect: A function that creates a client without connecting it.
    """

    def __init__(self, connect: Callable[[], AsyncClient]) -> None:
        self._shared = SharedClient(connect)

    async def reply(
        self, document: Mapping[str, Any], asker: Callable[[str], Asker | None]
    ) -> dict[str, Any]:
        """Returns what the SQL gives, or ``{"error": ...}`` with an explanation.

        It is the document of a view, see ``AnswerView.to_document``; ``{"refused": ...}`` with the reason; or
        a quote in words.

        Args:
            document: What the page sent.
            asker: Returns who asks a data set. It raises an error if nobody may.
        """
        try:
            asked = AskRequest.read(document, quoting=True)
        except InvalidMessage as error:
            return error_document(f"{error.field}: {error.problem}; {error.fix}")
        window = None if asked.window is None else asked.window.model_dump(exclude_none=True)
        try:
            who = asker(asked.dataset)
        except InvalidMessage as error:
            return error_document(f"{error.problem}; enter one at /enter")
        try:
            async with self._shared.ask(None if who is None else who.token) as client:
                if asked.standing is not None:
                    return await _stand(client, asked, window)
                text = asked.sql or "SELECT COUNT(*)"
                about: dict[str, Any] = {
                    "dataset": asked.dataset,
                    "window": window,
                    "series": asked.series,
                    "timeout_s": _TIMEOUT_S,
                }
                if asked.quote:
                    quote = await client.quote_sql(text, **about)
                    return (
                        {"said": NOTHING_ASKED, "price": "free"}
                        if quote is None
                        else _priced(quote)
                    )
                table = await client.sql(text, **about)
        except Refusal as refusal:
            return {"refused": why(refusal.reason)}
        except InvalidInput as error:
            return error_document(f"{error.problem}; {error.fix}", **position_of(error))
        except StreamDPError as error:
            return error_document(str(error))
        return table.view.to_document()

    async def close(self) -> None:
        """Closes the client. Callers that still wait get an error."""
        await self._shared.close()


async def _stand(
    client: AsyncClient, asked: AskRequest, window: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Begins or ends a standing query; ``{"standing": ...}`` with its id."""
    query_id = asked.query_id or ""
    if asked.standing:
        query: Query[Any] = Query(
            asked.sql or None, query_id=query_id, window=window, series=asked.series
        )
        await client.stand(asked.dataset, query, timeout_s=_TIMEOUT_S)
    else:
        await client.end_standing(asked.dataset, query_id, timeout_s=_TIMEOUT_S)
    return {"standing": query_id}


def position_of(error: InvalidInput) -> dict[str, int]:
    """Returns the line and the column of an error in SQL. Empty for other errors."""
    found = _POSITION.fullmatch(error.field)
    return {"line": int(found[1]), "column": int(found[2])} if found else {}


def _priced(quote: QuotedBundle | RefusedAnswer) -> dict[str, Any]:
    """Returns what a quote says in words, and the budget of who asks."""
    if isinstance(quote, RefusedAnswer):
        return {"refused": why(quote.reason)}
    first = quote.queries[0]
    if all(one.privacy_loss is None for one in quote.queries) and first.reason is not None:
        return {"refused": why(first.reason)}
    notes = [f"note: {first.note}"] if first.note and len(quote.queries) == 1 else []
    price, path = part_of_price(first)
    return {
        "said": quote_in_words(quote),
        "notes": [*also(quote.owner_pays), *notes],
        "budget": quote.budget.model_dump(exclude_none=True),
        "price": price,
        "path": path,
    }


def error_document(message: str, **position: int) -> dict[str, Any]:
    """Returns what a page is told of an error, with the place in the SQL where it is known."""
    return {"error": {"message": message, **position}}
