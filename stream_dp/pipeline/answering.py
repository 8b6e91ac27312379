"""One query: look it up, decide, draft its answer. Knows no broker and no Faust."""

from __future__ import annotations

import math
from functools import cache

from stream_dp.core.accounting import Charge, summed
from stream_dp.core.kinds.correlated_vector.answerer import MOST_RESPONSES
from stream_dp.core.mechanism import Quote
from stream_dp.core.outcome import Outcome, RefusalCode, Refused
from stream_dp.core.packing import identity_from, identity_head
from stream_dp.core.query import EVERYTHING, AnyQuery
from stream_dp.errors import InvalidMessage, InvalidQuery
from stream_dp.messages import Answer, QueryFields
from stream_dp.pipeline.compiling import as_sent, compile_query
from stream_dp.pipeline.dataset import Dataset
from stream_dp.pipeline.records import Outgoing
from stream_dp.pipeline.replying import Replying
from stream_dp.state.codec import answer_from_bytes, answer_to_bytes

__all__ = [
    "MOST_PAID",
    "TOO_MANY_PHASES",
    "answer",
    "answer_name",
    "code_of",
    "outgoing_of",
    "refusal_of",
    "released_again",
    "resend",
    "values_of",
    "window_of",
]

MOST_PAID = 8192
"""Phases that one query is paid in: the ledger's entry of its charges still fits into one record."""

_BITS_A_VALUE = 512  # a value of a table takes about as many

TOO_MANY_PHASES = Refused(
    RefusalCode.INVALID_QUERY,
    f"window: more than {MOST_PAID:,} phases would be paid in at once; ask about the last ones first, and "
    "then about more",
)

_OVER_LIMIT = Refused(
    RefusalCode.PRICE_TOO_HIGH,
    "with this query the queries of the record would take more of a block's budget than their at_most; ask "
    "it under a new id, alone or with a larger at_most",
    retriable=True,
)

_RETIRED = Refused(RefusalCode.RETIRED, "this data set was retired")

_NO_PHASE = Refused(
    RefusalCode.NO_PHASE,
    "no phase is open yet: the data set gathers rows. Ask again once one is, under a new id",
)


def values_of(dataset: Dataset, query: QueryFields) -> int:
    """Returns the most values that an answer to this query has, by the query and the definition alone."""
    if query.wheres:
        return len(query.wheres)
    if query.group_by:
        return math.prod(_cells(dataset, name) for name in query.group_by)
    if query.kind == "threshold" and _is_whole_curve(dataset, query):
        return _cells(dataset, query.attribute or "")
    if query.kind == "correlated_vector":
        return MOST_RESPONSES // _BITS_A_VALUE
    return 1


def _cells(dataset: Dataset, name: str) -> int:
    """Returns the number of cells of an attribute; 1 if there is none of this name."""
    index = dataset.universe.positions.get(name)
    return 1 if index is None else dataset.universe.shape[index]


def _is_whole_curve(dataset: Dataset, query: QueryFields) -> bool:
    """Returns whether a threshold query asks for every threshold. Its condition then holds for every row."""
    try:
        return dataset.conditions.compiled(query.where) == EVERYTHING
    except InvalidQuery:
        return False


def answer_name(analyst: str, query_id: str) -> str:
    """The field under which an answer is stored. Ids hold no space, so the name is unambiguous."""
    return f"{analyst} {query_id}"


def resend(dataset: Dataset, analyst: str, query: QueryFields, stored: bytes) -> bool:
    """Queues the stored answer again; False when it was given to another request under this id."""
    digest, _ = answer_from_bytes(stored)
    try:
        asked = _digest(query, compile_query(dataset, query).identity)
    except InvalidQuery:
        asked = _digest(query, as_sent(query))
    if digest != asked:
        return False
    dataset.release(released_again(dataset.name, answer_name(analyst, query.query_id), stored))
    return True


def released_again(dataset: str, name: str, stored: bytes) -> Outgoing:
    """The record of a stored answer, as it was the first time but for its timestamp."""
    return outgoing_of(dataset, name, answer_from_bytes(stored).answer, is_stored=True)


async def answer(
    dataset: Dataset, analyst: str, query: QueryFields, *, asked_ms: int = -1
) -> tuple[Answer, bytes | None]:
    """Answers or refuses a query that was not answered before, and drafts it for the commit.

    Args:
        dataset: The data set that is asked.
        analyst: The name of the analyst.
        query: The query.
        asked_ms: Timestamp of its record; -1 where that has none.

    Returns:
        The reply, and the bytes stored for its id; None for a quote, which is not stored.
    """
    replying = Replying(dataset, analyst, query)
    try:
        compiled = compile_query(dataset, query)
        request, refusal = compiled.identity, refusal_of(dataset)
    except InvalidQuery as error:
        request, refusal = as_sent(query), Refused(code_of(error.reason), str(error))
    if refusal is not None:
        reply = replying.refused(refusal)
    else:
        window, note = window_of(dataset.phase, query)
        asked = compiled.on(window)
        if query.quote:
            reply = replying.quoted(asked, _quote(dataset, asked), note)
        else:
            outcome, charges = await _outcome(dataset, asked)
            reply = replying.answered(asked, outcome, charges, note)
    value = reply.to_bytes()
    name = answer_name(analyst, query.query_id)
    stored = None
    if not query.quote:
        stored = answer_to_bytes(_digest(query, request), value)
        dataset.add_answer(name, stored)
    dataset.release(
        outgoing_of(dataset.name, name, value, is_stored=not query.quote, asked_ms=asked_ms)
    )
    return reply, stored


def _digest(query: QueryFields, request: tuple[object, ...]) -> bytes:
    """Returns a digest of 16 bytes that tells different requests under one id apart.

    Two ways to write one predicate give the same digest.
    """
    window = query.window.last_phases if query.window else None
    return identity_from(_head_of_request(query.kind), request, window, query.quote)


@cache
def _head_of_request(kind: str) -> bytes:
    return identity_head("request", kind, n_more=3)


def refusal_of(dataset: Dataset) -> Refused | None:
    """Why nothing can be asked of it just now."""
    if dataset.retired:
        return _RETIRED
    return _NO_PHASE if dataset.phase == 0 else None


def window_of(phases: int, query: QueryFields) -> tuple[range, str | None]:
    """Returns the blocks that the query covers, and a note if they differ from the ones asked for."""
    if query.window is None:
        return range(phases), None
    first = phases - query.window.last_phases
    note = f"the window was clamped to the {phases} phases there are" if first < 0 else None
    return range(max(0, first), phases), note


def code_of(reason: str) -> RefusalCode:
    """The code of the refusal of a query that is not valid."""
    return RefusalCode(reason) if reason in set(RefusalCode) else RefusalCode.INVALID_QUERY


async def _outcome(dataset: Dataset, query: AnyQuery) -> tuple[Outcome, tuple[Charge, ...]]:
    step = dataset.mechanism.answer(query)
    if isinstance(step, Outcome):
        return step, ()
    if len(step.charges) > MOST_PAID:
        return TOO_MANY_PHASES, ()
    if dataset.exhausted and not dataset.would_pass_limit(step.charges):
        raise InvalidMessage(
            "queries",
            "the queries before this one have led to as many looks as one record may",
            "send it in another record",
            reason="too_much_work",
        )
    paid: list[Charge] = []
    while not isinstance(step, Outcome):
        if dataset.would_pass_limit(step.charges):
            return _OVER_LIMIT, summed(paid)
        paid += step.charges
        (release,) = await dataset.look([step])
        step = dataset.mechanism.conclude(query, step, release)
    await dataset.grow(query, summed(paid))
    return step, summed(paid)


def _quote(dataset: Dataset, query: AnyQuery) -> Quote:
    quote = dataset.mechanism.quote(query)
    return Quote(TOO_MANY_PHASES, ()) if len(quote.charges) > MOST_PAID else quote


def outgoing_of(
    dataset: str, name: str, value: bytes, *, is_stored: bool, asked_ms: int = -1
) -> Outgoing:
    """The record of a reply.

    Args:
        dataset: The data set that was asked.
        name: The ``answer_name`` of what was asked.
        value: The bytes of the reply.
        is_stored: Whether the reply is stored under its name.
        asked_ms: Timestamp of the record that it replies to; -1 where that has none.
    """
    analyst, _, query_id = name.partition(" ")
    headers = (("query_id", query_id.encode()), ("analyst", analyst.encode()))
    stored = name if is_stored else None
    return Outgoing("answers", dataset, value, headers, stored, asked_ms, dated_ms=asked_ms)
