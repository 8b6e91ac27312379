"""Whole statements in SQL, from their texts to their tables or prices."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from stream_dp.client.asked_queries import Items, ask_item, ask_items, quote_items, schema_of
from stream_dp.client.dimension_tables import dimensions
from stream_dp.client.kafka.exchange import Rejection
from stream_dp.client.kafka.session import Session
from stream_dp.client.published_records import definition
from stream_dp.client.statements.public_tables import selected
from stream_dp.client.statements.result_table import Refusal, ResultTable
from stream_dp.client.statements.statement import Statement, statement_of
from stream_dp.errors import InvalidInput
from stream_dp.messages import Answer, DimensionTable, QuotedBundle, RefusedAnswer, Series

if TYPE_CHECKING:
    from stream_dp.sql import Dimension


class _About(TypedDict, total=False):
    dataset: str | None
    last_phases: int | None
    window: Mapping[str, Any] | None
    series: Series | None


def sql(
    session: Session,
    statement: str,
    *,
    query_id: str | None = None,
    at_most: float | None = None,
    timeout_s: float = 60.0,
    **about: Unpack[_About],
) -> ResultTable:
    """Asks a text in SQL and returns its table.

    A condition by itself asks for its count. A SELECT may have several aggregates and arithmetic on them,
    HAVING, ORDER BY, LIMIT, subqueries that only filter, and joins with public tables. What works on
    published values is free. So is a SELECT about public tables alone, which needs no data set.

    Args:
        statement: The text. FROM names the data set.
        dataset: The name of the data set. Default: the one in FROM.
        last_phases: The number of latest phases to ask about. None asks about all phases.
        window: The phases to ask about in another form, as in ``Query``.
        series: The periods to group by as well, if the statement groups by none.
        query_id: The id of the query. A repeated id returns the same answers. Several queries add ``.0``,
            ``.1`` and so on. Default: new ids.
        at_most: The largest share of any phase's budget that the statement may take.
        timeout_s: The longest wait for the next reply, in seconds.

    Raises:
        InvalidInput: There is no such data set, or the statement names none.
        InvalidQuery: The statement cannot be asked. The error points at the piece.
        Refusal: One of its queries was refused.
        Rejection: The id was used for another query.
        RequestTimeout: A reply is missing.
    """
    asked = read_statement(session, statement, query_id=query_id, at_most=at_most, **about)
    (found,) = ask_statements(session, [asked], timeout_s=timeout_s)
    if isinstance(found, Refusal | Rejection):
        raise found
    return found


def quote_sql(
    session: Session, statement: str, *, timeout_s: float = 30.0, **about: Unpack[_About]
) -> QuotedBundle | RefusedAnswer | None:
    """Returns what the queries of a text would cost together now. This spends nothing.

    Args:
        statement: The text, as in ``sql``.
        dataset: The name of the data set. Default: the one in FROM.
        last_phases: The number of latest phases to ask about. None asks about all phases.
        window: The phases to ask about in another form, as in ``Query``.
        series: The periods to group by as well, if the statement groups by none.
        timeout_s: The seconds to wait for the quote.

    Returns:
        The quote. None if the table follows from public facts alone, so that nothing is asked.

    Raises:
        InvalidInput: There is no such data set, or the statement names none.
        InvalidQuery: The statement cannot be asked. The error points at the piece.
        RequestTimeout: No reply came after three attempts.
    """
    asked = read_statement(session, statement, **about)
    return quote_statements(session, [asked], timeout_s=timeout_s)


def read_statement(
    session: Session,
    text: str,
    *,
    dataset: str | None = None,
    last_phases: int | None = None,
    window: Mapping[str, Any] | None = None,
    series: Series | None = None,
    query_id: str | None = None,
    at_most: float | None = None,
) -> Statement:
    """Reads a text in SQL, and returns what ``ask_statements`` and ``quote_statements`` take.

    Nothing is sent. The arguments and the errors are those of ``sql``.
    """
    from stream_dp import sql  # sqlglot is slow to load

    names = sql.names_of(text)
    # as all names of data sets and of public tables are
    of_text = None if names.dataset is None else names.dataset.lower()
    name = dataset or of_text
    if name is None:
        raise InvalidInput(
            "dataset", "the statement names no data set", "write FROM and its name, or pass dataset"
        )
    if public := _public_tables(session, of_text or name, names.joined):
        return Statement(text, of_text or name, None, public=selected(text, public))
    attributes, unit = schema_of(session, name)
    plan = sql.plan(
        text,
        attributes,
        dataset=name,
        unit=unit,
        dimensions=_joined(session) if names.joined else {},
        series=series,
    )
    return statement_of(
        text, name, plan, query_id=query_id, last_phases=last_phases, window=window, at_most=at_most
    )


def _public_tables(session: Session, name: str, joined: Sequence[str]) -> list[DimensionTable]:
    """Returns the public tables that a statement is about; none if it is about a data set."""
    with contextlib.suppress(InvalidInput):  # there is no data set of this name
        definition(session, name)
        return []
    known = dimensions(session)
    if name not in known:
        return []
    return [known[one] for one in dict.fromkeys((name, *map(str.lower, joined))) if one in known]


def _joined(session: Session) -> dict[str, Dimension]:
    """Returns the public tables as a plan joins them."""
    return {name: as_joined(table) for name, table in dimensions(session).items()}


def as_joined(table: DimensionTable) -> Dimension:
    """Returns a public table as a plan joins it."""
    from stream_dp.sql import Dimension  # sqlglot is slow to load

    types = dict(zip(table.columns, table.types, strict=True))
    return Dimension(table.dimension, table.key, types, table.lines())


def ask_statements(
    session: Session,
    statements: Sequence[Statement],
    *,
    at_most: float | None = None,
    timeout_s: float = 60.0,
) -> list[ResultTable | Refusal | Rejection]:
    """Asks statements about one data set in their order.

    Args:
        statements: The statements, as ``statement`` returns them.
        at_most: The largest share of any phase's budget that all of them may take together.
        timeout_s: The longest wait for the next reply, in seconds.

    Returns:
        The table of each statement, or the reason why it has none.

    Raises:
        InvalidInput: They are about several data sets, two have the same id, or ``at_most`` is given and a
            statement has a limit of its own for several queries.
        RequestTimeout: A reply is missing.
    """
    dataset = _dataset_of(statements)
    if at_most is not None and any(one.at_most is not None for one in statements):
        raise InvalidInput("at_most", "the SQL says it too", "say it once")
    replies: list[Answer | Rejection] = []
    # A limit for several queries is that of a record. So such a statement has a record of its own.
    for limit, some in itertools.groupby(
        enumerate(statements), lambda one: (one[1].at_most, one[0] * (one[1].at_most is not None))
    ):
        items = [item for _, one in some for item in one.items]
        most = limit[0] if at_most is None else at_most
        replies += _replies(session, dataset, items, most, timeout_s)
    left = iter(replies)
    return [one.table([next(left) for _ in one.items]) for one in statements]


def _replies(
    session: Session, dataset: str, items: Items, at_most: float | None, timeout_s: float
) -> list[Answer | Rejection]:
    """Returns the replies to the queries whose fields are given. A single one is sent again."""
    if len(items) != 1 or at_most is not None:
        return ask_items(session, dataset, items, at_most, timeout_s) if items else []
    try:
        return [ask_item(session, dataset, items[0], timeout_s).wait()]
    except Rejection as rejection:
        return [rejection]


def quote_statements(
    session: Session, statements: Sequence[Statement], *, timeout_s: float = 30.0
) -> QuotedBundle | RefusedAnswer | None:
    """Returns what statements would cost if they were asked one after another now. This spends nothing.

    Args:
        statements: The statements about one data set, as ``statement`` returns them.
        timeout_s: The seconds to wait for the quote.

    Returns:
        The quote, with the queries of each statement in their order. None if nothing is asked.
    """
    dataset, items = _dataset_of(statements), [item for one in statements for item in one.items]
    return quote_items(session, dataset, items, timeout_s).wait() if items else None


def _dataset_of(statements: Sequence[Statement]) -> str:
    """Returns the data set that statements ask. Empty if they are about public tables alone.

    Raises:
        InvalidInput: They ask several.
    """
    names = sorted({one.dataset for one in statements if one.public is None})
    if len(names) > 1:
        raise InvalidInput(
            "dataset",
            f"the statements are about {' and '.join(names)}",
            "ask about one data set at a time",
        )
    return names[0] if names else ""
