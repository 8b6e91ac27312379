"""One query: look it up, decide, draft its answer. Knows no broker and no Faust."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from functools import cache

from stream_dp.core.budget.accountant import Charge, summed
from stream_dp.core.encoding import identity_from, identity_head
from stream_dp.core.kinds.correlated_vector.vector_answerer import MOST_RESPONSES
from stream_dp.core.mechanism import SHARE_SPENT, Quote
from stream_dp.core.outcome import Outcome, RefusalCode, Refused
from stream_dp.core.queries.query import EVERYTHING, AnyQuery
from stream_dp.errors import InvalidMessage, InvalidQuery, TooSoon
from stream_dp.messages import Answer, QueryFields
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.intake.records import Outgoing
from stream_dp.pipeline.queries.compiler import (
    Compiled,
    as_sent,
    compile_query,
    identities,
    most_cells,
)
from stream_dp.pipeline.queries.known_replies import KnownReply, is_repeat, words_of
from stream_dp.pipeline.queries.open_periods import answer_so_far, is_running
from stream_dp.pipeline.queries.reply import ReplyMaker
from stream_dp.pipeline.queries.two_windows import outcome_of_both, quote_of_both, sides_of
from stream_dp.pipeline.queries.windows import parts_of, window_of, windows_of
from stream_dp.pipeline.spending.payers import OWN
from stream_dp.state.codec import DIGEST_BYTES, answer_from_bytes, answer_to_bytes
from stream_dp.state.schema import StateTable

MOST_PAID = 8192
"""Phases that one query is paid in: the ledger's entry of its charges still fits into one record."""

MOST_PARTS = 400
"""Parts of a series: as many looks at the most are taken for one query, and a year of days has fewer."""

UNKNOWN_REQUEST = bytes(DIGEST_BYTES)
"""The digest of a request that is not known any more. No request has it, so its id gets no other answer."""

_LABELS_A_VALUE = 64  # bytes of labels, which each part repeats, that take the room of a value
_VALUES_A_PART = 10  # each part also says what it is about, which takes the room of ten values

_BITS_A_VALUE = 512  # a value of a table takes about as many

TOO_MANY_PHASES = Refused(
    RefusalCode.INVALID_QUERY,
    f"window: more than {MOST_PAID:,} phases would be paid in at once; ask about the last ones first, and "
    "then about more",
)

_OVER_LIMIT = Refused(
    RefusalCode.PRICE_TOO_HIGH,
    "with this query the queries of the record would take more of a phase's budget than their at_most; ask "
    "it under a new id, alone or with a larger at_most",
    retriable=True,
)

_RETIRED = Refused(RefusalCode.RETIRED, "this data set was retired")

_NO_PHASE = Refused(
    RefusalCode.NO_PHASE,
    "no phase is open yet: the data set gathers rows. Ask again once one is, under a new id",
)


def values_of(dataset: Dataset, query: QueryFields) -> int:
    """Returns the most values that an answer to this query has. It follows from public facts alone."""
    if query.series is not None:
        most_parts = max(1, min(dataset.phase, MOST_PARTS))
        return most_parts * (_VALUES_A_PART + values_of(dataset, _part(query)))
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
        return dataset.engine.conditions.compiled(query.where) == EVERYTHING
    except InvalidQuery:
        return False


def answer_name(analyst: str, query_id: str) -> str:
    """The field under which an answer is stored. Ids hold no space, so the name is unambiguous."""
    return f"{analyst} {query_id}"


def is_answer_to(dataset: Dataset, query: QueryFields, stored: bytes) -> bool:
    """Returns whether a stored answer was given to this request, and not to another one under its id."""
    given = answer_from_bytes(stored).digest
    return any(_digest(query, identity) == given for identity in identities(dataset, query))


def is_adopted(stored: bytes) -> bool:
    """Returns whether a stored answer was taken from the topic of answers, when a data set was closed."""
    return answer_from_bytes(stored).digest == UNKNOWN_REQUEST


def resend(dataset: Dataset, analyst: str, query: QueryFields, stored: bytes) -> bool:
    """Queues the stored answer again; False when it was given to another request under this id.

    Raises:
        TooSoon: So much was sent to its analyst again that this one must wait for a later minute.
    """
    if not is_answer_to(dataset, query, stored):
        return False
    again = released_again(dataset.name, answer_name(analyst, query.query_id), stored)
    dataset.accounts.limits.send_again(len(again.value))
    if dataset.draft.asked is not None:
        dataset.draft.asked = replace(dataset.draft.asked, again=True)
    dataset.draft.release(again)
    return True


def released_again(dataset: str, name: str, stored: bytes) -> Outgoing:
    """The record of a stored answer, as it was the first time but for its timestamp."""
    return outgoing_of(dataset, name, answer_from_bytes(stored).answer, is_stored=True)


def repeated(dataset: Dataset, analyst: str, query: QueryFields, asked_ms: int) -> bytes | None:
    """Drafts the answer to a question that was answered before, as ``answer`` would.

    Returns:
        The bytes stored for its id. None where nothing is known of it, and ``answer`` is to be asked.
    """
    if not dataset.mechanism.repeats_alike or (words := words_of(analyst, query)) is None:
        return None
    known = dataset.known_replies.find(words, dataset.accounts.changes)
    if known is None:
        return None
    value = known.to(query.query_id)
    name, stored = answer_name(analyst, query.query_id), answer_to_bytes(known.digest, value)
    dataset.draft.put(StateTable.ANSWER, name, stored)
    dataset.draft.release(outgoing_of(dataset.name, name, value, is_stored=True, asked_ms=asked_ms))
    return stored


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
    replying, as_of = ReplyMaker(dataset, analyst, query), dataset.accounts.changes
    try:
        compiled = compile_query(dataset, query)
        request, refusal = compiled.identity, refusal_of(dataset, query)
    except InvalidQuery as error:
        request, refusal = as_sent(query), invalid(error)
    if refusal is not None:
        reply = replying.refused(refusal)
    else:
        try:
            with dataset.accounts.asked_by(analyst):
                reply = await _reply(replying, compiled)
        except InvalidQuery as error:
            reply = replying.refused(invalid(error))
    value = reply.to_bytes()
    name = answer_name(analyst, query.query_id)
    stored = None
    if not query.quote:
        digest = _digest(query, request)
        stored = answer_to_bytes(digest, value)
        dataset.draft.put(StateTable.ANSWER, name, stored)
        if is_repeat(reply) and as_of == dataset.accounts.changes:
            _keep(dataset, analyst, query, KnownReply.of(digest, value, query.query_id))
    dataset.draft.release(
        outgoing_of(dataset.name, name, value, is_stored=not query.quote, asked_ms=asked_ms)
    )
    return reply, stored


def _keep(dataset: Dataset, analyst: str, query: QueryFields, reply: KnownReply) -> None:
    words = words_of(analyst, query)
    if words is not None and dataset.mechanism.repeats_alike:
        dataset.known_replies.keep(words, dataset.accounts.changes, reply)


async def _reply(replying: ReplyMaker, compiled: Compiled) -> Answer:
    """Answers or quotes a query. Raises InvalidQuery if its window is not one of the data set."""
    dataset, query = replying.dataset, replying.query
    if is_running(query.window):
        return answer_so_far(replying, compiled)
    window, note = window_of(dataset, query)
    if query.series is not None:
        return await _series(replying, compiled, window, note)
    asked = compiled.on(window)
    sides = sides_of(dataset, asked)
    if query.quote:
        quotes = [quote_of(dataset, replying.analyst, side) for side in sides]
        return replying.quoted(asked, quote_of_both(quotes) if len(quotes) > 1 else quotes[0], note)
    settled = [await _outcome(dataset, replying.analyst, side) for side in sides]
    outcome, charges, growth = settled[0]
    if len(settled) > 1:
        outcome = outcome_of_both(dataset, asked, [one for one, _, _ in settled])
        charges, growth = charges + settled[1][1], growth + settled[1][2]
    return replying.answered(asked, outcome, charges, note, growth)


async def _series(
    replying: ReplyMaker, compiled: Compiled, window: range, note: str | None
) -> Answer:
    """Answers or quotes each part of a series as a query about its own phases, or about those of its frame.

    Without a frame no two parts have a phase in common, so each line pays for one part alone. A crash in
    between repeats the parts before it, which are known by then.
    """
    dataset, query = replying.dataset, replying.query
    assert query.series is not None, "the caller has checked it"
    single = replace(replying, query=_part(query))
    periods = parts_of(dataset, window, query.series)
    check_size(dataset, query, len(periods))
    if query.frame is not None:
        periods.reverse()  # as the windows are
    parts: list[tuple[range, Answer]] = []
    charges: tuple[Charge, ...] = ()
    growth: tuple[Charge, ...] = ()
    for phases, asked_about in zip(periods, windows_of(dataset, window, query), strict=True):
        try:
            asked = compiled.on(asked_about)
        except InvalidQuery as error:
            parts.append((phases, single.refused(invalid(error))))
            continue
        if query.quote:
            quote = quote_of(dataset, replying.analyst, asked)
            parts.append((phases, single.quoted(asked, quote, None)))
            charges, growth = charges + quote.charges, growth + quote.growth
            continue
        more: tuple[Charge, ...] = ()
        try:
            outcome, paid, more = await _outcome(dataset, replying.analyst, asked)
        except InvalidMessage as error:
            if not parts or isinstance(error, TooSoon):
                raise  # later it goes on behind the parts that are paid, under the same id
            # The parts before it have led to as many looks as one record may.
            outcome = Refused(RefusalCode.PRICE_TOO_HIGH, str(error), retriable=True)
            paid = ()
        parts.append((phases, single.answered(asked, outcome, paid, None, more)))
        charges, growth = charges + paid, growth + more
    parts.sort(key=lambda part: part[0].start)
    return replying.series(window, parts, charges, note, growth)


def check_size(dataset: Dataset, query: QueryFields, n_parts: int) -> None:
    """Refuses a series whose answer would not fit into one record, or that takes too long."""
    if n_parts > MOST_PARTS:
        raise InvalidQuery(
            "series",
            f"it has more than {MOST_PARTS} parts",
            "ask about fewer phases, or by longer periods",
        )
    most = most_cells(query)
    labels = sum(_bytes_of_labels(dataset, name) for name in query.group_by) // _LABELS_A_VALUE
    if n_parts * (_VALUES_A_PART + values_of(dataset, _part(query)) + labels) > most:
        raise InvalidQuery(
            "series",
            f"its parts have more than {most:,} values together, labels included",
            "ask about fewer phases, or group by fewer attributes",
            reason=RefusalCode.TOO_MANY_CELLS.value,
        )


def _bytes_of_labels(dataset: Dataset, name: str) -> int:
    """Returns the length in JSON of the labels of an attribute's cells; 0 if there is none of this name."""
    index = dataset.universe.positions.get(name)
    if index is None:
        return 0
    labels = dataset.universe.attributes[index].labels
    return len(json.dumps(list(labels), ensure_ascii=False).encode())


def _part(query: QueryFields) -> QueryFields:
    """The query that each part of a series asks."""
    return query.model_copy(update={"series": None, "frame": None, "window": None})


def _digest(query: QueryFields, request: tuple[object, ...]) -> bytes:
    """Returns a digest of 16 bytes that tells different requests under one id apart.

    Two ways to write one predicate give the same digest.
    """
    window = query.window.identity if query.window else None
    if query.series is not None:
        framed_by = () if query.frame is None else (query.frame,)
        window = "series", query.series, window, *framed_by
    request = request if query.across is None else (*request, query.across)
    return identity_from(_head_of_request(query.kind), request, window, query.quote)


@cache
def _head_of_request(kind: str) -> bytes:
    return identity_head("request", kind, n_more=3)


def refusal_of(dataset: Dataset, *asked: QueryFields) -> Refused | None:
    """Why nothing can be asked of it just now, or not these queries: open periods need no phase."""
    if dataset.retired:
        return _RETIRED
    if dataset.phase or (asked and all(is_running(query.window) for query in asked)):
        return None
    return _NO_PHASE


def invalid(error: InvalidQuery) -> Refused:
    """The refusal of a query that is not valid, or whose window is not complete yet."""
    reason = error.reason
    code = RefusalCode(reason) if reason in set(RefusalCode) else RefusalCode.INVALID_QUERY
    return Refused(code, str(error), retriable=code is RefusalCode.NOT_COMPLETE)


async def _outcome(
    dataset: Dataset, analyst: str, query: AnyQuery
) -> tuple[Outcome, tuple[Charge, ...], tuple[Charge, ...]]:
    """Answers or refuses a query.

    Returns:
        The outcome, what it was charged, and what the data set was charged for what it measures more.
    """
    query = dataset.accounts.with_its_part(query)
    outcome, charges = await _paid_outcome(dataset, analyst, query)
    growth = await dataset.looks.was_asked(query, charges)
    return outcome, charges, growth


async def _paid_outcome(
    dataset: Dataset, analyst: str, query: AnyQuery
) -> tuple[Outcome, tuple[Charge, ...]]:
    step = dataset.mechanism.answer(query)
    if isinstance(step, Outcome):
        return step, ()
    accounts = dataset.accounts
    payer, unasked = accounts.payer(analyst, query), dataset.mechanism.spending.is_unasked(query)
    if len(step.charges) > MOST_PAID:
        return TOO_MANY_PHASES, ()
    if accounts.in_hand.exhausted and not accounts.in_hand.would_pass_limit(step.charges):
        raise InvalidMessage(
            "queries",
            "the queries before this one have led to as many looks as one record may",
            "send it in another record",
            reason="too_much_work",
        )
    paid: list[Charge] = []
    while not isinstance(step, Outcome):
        if accounts.in_hand.would_pass_limit(step.charges):
            return _OVER_LIMIT, summed(paid)
        if accounts.lacks(payer, step.charges):
            return SHARE_SPENT, summed(paid)
        accounts.limits.afford(step.charges)
        paid += step.charges
        (release,) = await dataset.looks.take([step], payer, unasked=unasked)
        step = dataset.mechanism.conclude(query, step, release)
    return step, summed(paid)


def quote_of(dataset: Dataset, analyst: str, query: AnyQuery) -> Quote:
    """The price of a query of an analyst now, or the refusal that an answer would be."""
    quote = dataset.mechanism.quote(query)
    if len(quote.charges) > MOST_PAID:
        return Quote(TOO_MANY_PHASES, ())
    if dataset.accounts.lacks(dataset.accounts.payer(analyst, query), quote.charges):
        return Quote(SHARE_SPENT, ())
    accounts = dataset.accounts
    refused = accounts.lacks(OWN, quote.growth) or accounts.in_hand.would_pass_limit(quote.growth)
    return replace(quote, growth=()) if refused else quote


def price_now(dataset: Dataset, analyst: str, query: QueryFields) -> tuple[Charge, ...]:
    """What a query of an analyst would charge now, by its quote. Nothing if it cannot be asked now."""
    if refusal_of(dataset) is not None or is_running(query.window):
        return ()
    try:
        compiled, (window, _) = compile_query(dataset, query), window_of(dataset, query)
        windows = windows_of(dataset, window, query)
        with dataset.accounts.asked_by(analyst):
            asked = [side for phases in windows for side in sides_of(dataset, compiled.on(phases))]
            quotes = [quote_of(dataset, analyst, side) for side in asked]
    except InvalidQuery:
        return ()
    return summed(charge for quote in quotes for charge in quote.charges)


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
