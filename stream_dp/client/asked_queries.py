"""Queries of one data set: asked, or quoted, one at a time or many at once."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from stream_dp.client.kafka.exchange import Exchange, Rejection
from stream_dp.client.kafka.session import Session
from stream_dp.client.kafka.topic_documents import to_json
from stream_dp.client.published_records import definition
from stream_dp.client.rows import frames
from stream_dp.client.statements import written_query
from stream_dp.client.statements.written_query import (
    Condition,
    Query,
    in_one_record,
    packed,
    query_of,
)
from stream_dp.errors import InvalidInput
from stream_dp.messages import (
    MOST_QUOTED,
    Answer,
    Definition,
    QuotedAnswer,
    QuotedBundle,
    RefusedAnswer,
    Rejected,
)

if TYPE_CHECKING:
    import pandas as pd

Items: TypeAlias = Sequence[Mapping[str, Any]]
"""The fields of several queries' messages, each with its id."""


def head_of(session: Session, dataset: str) -> dict[str, Any]:
    """Returns the fields that all queries of an analyst share."""
    return {"version": 1, "dataset": dataset, "analyst": session.analyst}


def as_message(session: Session, dataset: str, query: Query[Any]) -> dict[str, Any]:
    """Returns the fields of a query's message. A query without an id gets a new one.

    Raises:
        InvalidInput: The fields of the query contradict each other.
        InvalidQuery: Its SQL does not fit the schema. The error points at the piece.
    """
    return written_query.as_message(query, partial(_parsed, session, dataset))


def _parsed(session: Session, dataset: str, text: str) -> dict[str, Any]:
    from stream_dp import sql  # sqlglot is slow to load

    attributes, unit = schema_of(session, dataset)
    return sql.parse(text, attributes, dataset=dataset, unit=unit)


def schema_of(session: Session, dataset: str) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Returns the attributes of a data set, and whose rows it protects, as SQL is read with them."""
    return schema_in(definition(session, dataset))


def schema_in(found: Definition) -> tuple[list[dict[str, Any]], dict[str, Any] | None]:
    """Returns the same of a definition."""
    unit = found.privacy.unit
    attributes = [attribute.model_dump() for attribute in found.attributes]
    return attributes, None if unit is None else unit.model_dump()


def ask_query(
    session: Session,
    dataset: str,
    query: Query[Any],
    *,
    quote: bool = False,
    timeout_s: float = 30.0,
) -> Exchange[Answer]:
    """Asks, or quotes the price of, a ``Query``."""
    item = as_message(session, dataset, query)
    if quote:
        item["quote"] = True
    return ask_item(session, dataset, item, timeout_s)


def ask_item(
    session: Session, dataset: str, item: Mapping[str, Any], timeout_s: float
) -> Exchange[Answer]:
    """Asks the query whose fields are given. It is sent again while no reply comes."""
    value = to_json({**head_of(session, dataset), **item})
    key = ("answer", dataset, session.analyst, item["query_id"])
    return session.request(key, value, what=f"query {item['query_id']}", timeout_s=timeout_s)


def quote(
    session: Session,
    dataset: str,
    query: Query[Any] | Condition | None = None,
    *,
    group_by: Sequence[str] = (),
    last_phases: int | None = None,
    timeout_s: float = 30.0,
) -> Exchange[QuotedAnswer | RefusedAnswer]:
    """Returns what the answer would cost now. This spends nothing."""
    asked = query_of(query, group_by, last_phases)
    exchange: Exchange[Any] = ask_query(session, dataset, asked, quote=True, timeout_s=timeout_s)
    return exchange


def quote_together(
    session: Session,
    dataset: str,
    queries: Sequence[Query[Any] | Condition],
    *,
    timeout_s: float = 30.0,
) -> Exchange[QuotedBundle | RefusedAnswer]:
    """Returns what queries would cost if they were asked one after another now. This spends nothing.

    It is often much less than the sum of their single quotes, because what one query publishes may answer
    another one. To be sure of the price, pass ``at_most`` to ``ask_many``.

    Args:
        dataset: The name of the data set.
        queries: Up to 500 queries, in the order in which you will ask them.
        timeout_s: The seconds to wait for the quote.

    Raises:
        InvalidInput: There is no query, there are too many, or two of them have the same id.
        InvalidQuery: A query does not fit the schema. The error points at the piece.
        RequestTimeout: No reply came after three attempts.
    """
    items = [as_message(session, dataset, query_of(query)) for query in queries]
    return quote_items(session, dataset, items, timeout_s)


def quote_items(
    session: Session, dataset: str, items: Items, timeout_s: float
) -> Exchange[QuotedBundle | RefusedAnswer]:
    """Quotes the queries whose fields are given; see ``quote_together``."""
    _check_ids(items)
    if len(items) > MOST_QUOTED:
        raise InvalidInput(
            "queries",
            f"a quote is for {MOST_QUOTED} queries at the most, not {len(items):,}",
            "split the list into several quotes",
        )
    query_id = uuid.uuid4().hex
    head = {**head_of(session, dataset), "query_id": query_id, "quote": "together"}
    key = ("answer", dataset, session.analyst, query_id)
    return session.request(key, in_one_record(head, items), what="the quote", timeout_s=timeout_s)


def ask_many(
    session: Session,
    dataset: str,
    queries: Sequence[Query[Any]],
    *,
    at_most: float | None = None,
    timeout_s: float = 60.0,
    on_answer: Callable[[int, Answer], None] | None = None,
) -> list[Answer | Rejection]:
    """Asks many queries, up to a hundred in a record.

    Args:
        dataset: The name of the data set.
        queries: The queries.
        at_most: The largest share of any phase's budget that the answers may take together, such as 0.05. A
            query that would pass it is refused. All queries are then sent in one record.
        timeout_s: The longest wait for the next reply, in seconds.
        on_answer: A function that receives the index and the answer when each answer arrives.

    Returns:
        The replies in the order of the queries.

    Raises:
        InvalidInput: Two of the queries have the same id. Or ``at_most`` is set, and the queries do not fit
            into one record.
        InvalidQuery: A query does not fit the schema. No query was sent.
        RequestTimeout: A reply is missing.
    """
    items = [as_message(session, dataset, query) for query in queries]
    return ask_items(session, dataset, items, at_most, timeout_s, on_answer)


def ask_items(
    session: Session,
    dataset: str,
    items: Items,
    at_most: float | None,
    timeout_s: float,
    on_answer: Callable[[int, Answer], None] | None = None,
) -> list[Answer | Rejection]:
    """Asks the queries whose fields are given; see ``ask_many``."""
    _check_ids(items)
    head = head_of(session, dataset)
    if at_most is None:
        records = list(packed(head, items))
    else:
        records = [(in_one_record({**head, "at_most": at_most}, items), len(items))]
    names = [item["query_id"] for item in items]
    replies: list[Answer | Rejection] = []
    with session.send_queries("answer", dataset, records, names, timeout_s=timeout_s) as futures:
        for name, future in zip(names, futures, strict=True):
            try:
                reply: Any = future.result(timeout_s)
            except TimeoutError:
                raise session.timeout(f"query {name}", timeout_s) from None
            if isinstance(reply, Rejected):
                replies.append(Rejection(reply))
                continue
            replies.append(reply)
            if on_answer is not None:
                on_answer(len(replies) - 1, reply)
    return replies


def _check_ids(items: Items) -> None:
    """Checks that no two queries have the same id."""
    ids = Counter(item["query_id"] for item in items)
    if len(ids) < len(items):
        ((twice, _),) = ids.most_common(1)
        raise InvalidInput("query_id", f"{twice} appears twice", "use a new id for each query")


def table(
    session: Session,
    dataset: str,
    query: Query[Any] | str,
    *,
    last_phases: int | None = None,
    timeout_s: float = 60.0,
) -> Exchange[pd.DataFrame]:
    """Asks a query with many values and returns a data frame: a row for each cell, or each condition.

    Raises:
        StreamDPError: The query was refused, or its answer is one value, see ``answers_frame``.
    """
    asked = query_of(query, last_phases=last_phases)
    exchange = ask_query(session, dataset, asked, timeout_s=timeout_s)
    return exchange.then(lambda answer: frames.answer_frame(answer, asked.conditions))
