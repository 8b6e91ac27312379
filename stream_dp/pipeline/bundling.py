"""The price of several queries together. It is worked out from public facts, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from stream_dp.core.accounting import UNITS
from stream_dp.core.mechanism import Quote, dearest
from stream_dp.core.outcome import Path, Refused
from stream_dp.core.query import AnyQuery
from stream_dp.errors import InvalidQuery
from stream_dp.messages import (
    BUNDLE,
    Answer,
    PriceRange,
    QueryFields,
    QuotedBundle,
    QuotedQuery,
    Reason,
    RefusedAnswer,
)
from stream_dp.pipeline.answering import (
    MOST_PAID,
    TOO_MANY_PHASES,
    answer_name,
    invalid,
    outgoing_of,
    refusal_of,
    values_of,
)
from stream_dp.pipeline.backlog import MOST_VALUES
from stream_dp.pipeline.compiling import compile_query
from stream_dp.pipeline.dataset import Dataset
from stream_dp.pipeline.decoding import BadQuery, QuoteTogether
from stream_dp.pipeline.records import plain
from stream_dp.pipeline.replying import answer_kind, in_words, loss_of
from stream_dp.pipeline.windows import window_of

__all__ = ["quote_together"]


@dataclass(frozen=True, slots=True)
class _Part:
    """One query of a bundle: what the mechanism is asked, or why it cannot be asked."""

    query: QueryFields | BadQuery
    asked: AnyQuery | None = None
    note: str | None = None
    reason: Reason | None = None

    def quoted(self, dataset: Dataset, analyst: str, quote: Quote | None) -> QuotedQuery:
        """The query with its part of the price; None for one that the mechanism was not asked."""
        query_id = self.query.query_id
        kind = None if isinstance(self.query, BadQuery) else answer_kind(self.query, self.asked)
        if quote is None:
            return QuotedQuery(query_id=query_id, kind=kind, reason=self.reason)
        outcome = TOO_MANY_PHASES if len(quote.charges) > MOST_PAID else quote.outcome
        if isinstance(outcome, Refused):
            if self.asked is not None:
                outcome = in_words(dataset, analyst, self.asked, outcome)
            return QuotedQuery(query_id=query_id, kind=kind, reason=_reason(outcome))
        path = Path.MEASURED if outcome is None else outcome.path
        return QuotedQuery(
            query_id=query_id,
            kind=kind,
            path=path.value,
            privacy_loss=loss_of(quote.charges),
            owner_pays=loss_of(quote.growth) if quote.growth else None,
            error_bar=quote.error_bar,
            expected=quote.expected or None,
            note=self.note,
        )


def quote_together(dataset: Dataset, request: QuoteTogether, *, asked_ms: int = -1) -> Answer:
    """Works out what queries would cost if they were asked one after another now, and queues the reply.

    Args:
        dataset: The data set that is asked.
        request: The queries, and the id of the reply.
        asked_ms: Timestamp of its record; -1 where that has none.
    """
    refusal = refusal_of(dataset)
    reply = _refused(request, refusal) if refusal is not None else _quoted(dataset, request)
    name = answer_name(request.analyst, request.query_id)
    dataset.release(
        outgoing_of(dataset.name, name, reply.to_bytes(), is_stored=False, asked_ms=asked_ms)
    )
    return reply


def _refused(request: QuoteTogether, refusal: Refused) -> RefusedAnswer:
    return RefusedAnswer(
        dataset=request.dataset,
        query_id=request.query_id,
        analyst=request.analyst,
        kind=BUNDLE,
        reason=_reason(refusal),
    )


def _quoted(dataset: Dataset, request: QuoteTogether) -> QuotedBundle:
    parts = list(_parts(dataset, request.queries))
    asked = [part.asked for part in parts if part.asked is not None]
    with dataset.asked_by(request.analyst):
        bundle = dataset.mechanism.quote_together(asked)
    quotes = iter(bundle.quotes)
    queries = [
        part.quoted(dataset, request.analyst, None if part.asked is None else next(quotes))
        for part in parts
    ]
    first = min((query.window.start for query in asked), default=0)
    return QuotedBundle(
        dataset=dataset.name,
        query_id=request.query_id,
        analyst=request.analyst,
        budget=dataset.budget(range(first, dataset.phase), request.analyst),
        together=PriceRange(low=dearest(bundle.low) / UNITS, high=dearest(bundle.high) / UNITS),
        blocks=len(bundle.high),
        queries=tuple(queries),
        phase=dataset.phase,
    )


def _parts(dataset: Dataset, queries: Sequence[QueryFields | BadQuery]) -> Iterator[_Part]:
    """The queries on the data set's schema, as far as one record may ask them."""
    values = 0
    for query in queries:
        if isinstance(query, BadQuery):
            reason = Reason(code=query.error.reason, message=plain(str(query.error)))
            yield _Part(query, reason=reason)
            continue
        size = values_of(dataset, query)
        values += size
        if values > max(size, MOST_VALUES):
            yield _Part(query, reason=_TOO_MUCH_WORK)
            continue
        try:
            if query.series is not None:
                raise _NO_SERIES
            window, note = window_of(dataset, query)
            yield _Part(query, compile_query(dataset, query).on(window), note)
        except InvalidQuery as error:
            yield _Part(query, reason=_reason(invalid(error)))


def _reason(refusal: Refused) -> Reason:
    return Reason(
        code=refusal.code.value, message=plain(refusal.message), retriable=refusal.retriable
    )


_NO_SERIES = InvalidQuery(
    "series",
    "a quote for several queries does not take series",
    "ask for the quote of the series by itself",
)

_TOO_MUCH_WORK = Reason(
    code="too_much_work",
    message=f"queries: the answers to the queries of one record may have {MOST_VALUES:,} values together; "
    "ask for the price of fewer at once",
)
