"""The price of several queries together. It is worked out from public facts, and changes nothing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from stream_dp.core.budget.accountant import UNITS, summed
from stream_dp.core.mechanism import BundleQuote, Quote, dearest
from stream_dp.core.outcome import Path, Refused
from stream_dp.core.queries.query import AnyQuery
from stream_dp.errors import InvalidQuery
from stream_dp.messages import (
    BUNDLE,
    SERIES,
    Answer,
    PriceRange,
    QueryFields,
    QuotedAnswer,
    QuotedBundle,
    QuotedQuery,
    Reason,
    RefusedAnswer,
)
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.intake.backlog import MOST_VALUES
from stream_dp.pipeline.intake.decoder import BadQuery, QuoteTogether
from stream_dp.pipeline.intake.records import plain
from stream_dp.pipeline.queries import query_answerer
from stream_dp.pipeline.queries.compiler import Compiled, compile_query
from stream_dp.pipeline.queries.open_periods import answer_so_far, is_running
from stream_dp.pipeline.queries.reply import ReplyMaker, answer_kind, in_words, loss_of, reason_of
from stream_dp.pipeline.queries.two_windows import sides_of
from stream_dp.pipeline.queries.windows import window_of, windows_of


@dataclass(frozen=True, slots=True)
class _Part:
    """One query of a bundle: what the mechanism is asked, or why it cannot be asked.

    Attributes:
        asked: The query about its window, or about that of each part of its series. Empty if it cannot be
            asked.
        free: Its quote, where it is answered without asking the mechanism for its price.
    """

    query: QueryFields | BadQuery
    asked: tuple[AnyQuery, ...] = ()
    note: str | None = None
    reason: Reason | None = None
    free: QuotedQuery | None = None

    def quoted(self, dataset: Dataset, analyst: str, quotes: Sequence[Quote]) -> QuotedQuery:
        """The query with its part of the price; with the reason if none of it would be answered."""
        if self.free is not None:
            return self.free
        query_id, first = self.query.query_id, next(iter(self.asked), None)
        kind = None if isinstance(self.query, BadQuery) else answer_kind(self.query, first)
        if first is None:
            return QuotedQuery(query_id=query_id, kind=kind, reason=self.reason)
        answered, refusals = [], []
        for asked, quote in zip(self.asked, quotes, strict=True):
            too_many = len(quote.charges) > query_answerer.MOST_PAID
            outcome = query_answerer.TOO_MANY_PHASES if too_many else quote.outcome
            if isinstance(outcome, Refused):
                refusals.append(in_words(dataset, analyst, asked, outcome))
            else:
                answered.append(quote)
        if not answered:
            return QuotedQuery(query_id=query_id, kind=kind, reason=reason_of(refusals[0]))
        notes = [self.note, *(quote.note for quote in answered)]
        bars = [quote.error_bar for quote in answered if quote.error_bar is not None]
        growth = summed(charge for quote in answered for charge in quote.growth)
        most = max((quote.most for quote in answered if quote.most is not None), default=None)
        # Two windows are asked for a difference of persons, and its bar is that of both together.
        added = sum if kind in ("difference", "difference_by_group") else max
        return QuotedQuery(
            query_id=query_id,
            kind=kind,
            path=SERIES if kind == SERIES else _path(answered[0]),
            privacy_loss=loss_of(summed(charge for quote in answered for charge in quote.charges)),
            owner_pays=loss_of(growth) if growth else None,
            error_bar=added(bars) if len(bars) == len(answered) else None,
            expected=any(quote.expected for quote in answered) or None,
            most=None if most is None else most / UNITS,
            note="; ".join(dict.fromkeys(note for note in notes if note)) or None,
        )


def _path(quote: Quote) -> str:
    """How the answer of a quote would come about."""
    return (Path.MEASURED if quote.outcome is None else quote.outcome.path).value  # type: ignore[union-attr]


def quote_together(dataset: Dataset, request: QuoteTogether, *, asked_ms: int = -1) -> Answer:
    """Works out what queries would cost if they were asked one after another now, and queues the reply.

    Args:
        dataset: The data set that is asked.
        request: The queries, and the id of the reply.
        asked_ms: Timestamp of its record; -1 where that has none.
    """
    asked = [query for query in request.queries if isinstance(query, QueryFields)]
    refusal = query_answerer.refusal_of(dataset, *asked)
    if refusal is None:
        reply: Answer = _quoted(dataset, request)
    else:
        reply = RefusedAnswer(
            dataset=request.dataset,
            query_id=request.query_id,
            analyst=request.analyst,
            kind=BUNDLE,
            reason=reason_of(refusal),
        )
    name, value = query_answerer.answer_name(request.analyst, request.query_id), reply.to_bytes()
    dataset.draft.release(
        query_answerer.outgoing_of(dataset.name, name, value, is_stored=False, asked_ms=asked_ms)
    )
    return reply


def _quoted(dataset: Dataset, request: QuoteTogether) -> QuotedBundle:
    parts = list(_parts(dataset, request))
    asked = [query for part in parts for query in part.asked]
    with dataset.accounts.asked_by(request.analyst):
        bundle = dataset.mechanism.quote_together(asked)
    quotes = iter(bundle.quotes)
    queries = [
        part.quoted(dataset, request.analyst, [next(quotes) for _ in part.asked]) for part in parts
    ]
    first = min((query.window.start for query in asked), default=0)
    budget = dataset.accounts.budget(range(first, dataset.phase), request.analyst)
    growth = summed(charge for quote in bundle.quotes for charge in quote.growth)
    return QuotedBundle(
        dataset=dataset.name,
        query_id=request.query_id,
        analyst=request.analyst,
        budget=budget,
        together=_together(bundle, queries, 1.0 - budget.spent),
        owner_pays=loss_of(growth) if growth else None,
        blocks=len(bundle.high),
        queries=tuple(queries),
        phase=dataset.phase,
    )


def _together(bundle: BundleQuote, queries: Sequence[QuotedQuery], left: float) -> PriceRange:
    """The price of all queries together. No line pays more than is left of the fullest one."""
    low, high = dearest(bundle.low) / UNITS, dearest(bundle.high) / UNITS
    beyond = [
        max(0.0, query.most - query.privacy_loss.share)
        for query in queries
        if query.most is not None and query.privacy_loss is not None
    ]
    most = max(high, min(left, high + sum(beyond))) if beyond else None
    return PriceRange(low=low, high=high, most=most)


def _parts(dataset: Dataset, request: QuoteTogether) -> Iterator[_Part]:
    """The queries on the data set's schema, as far as one record may ask them."""
    values = 0
    for query in request.queries:
        if isinstance(query, BadQuery):
            reason = Reason(code=query.error.reason, message=plain(str(query.error)))
            yield _Part(query, reason=reason)
            continue
        size = query_answerer.values_of(dataset, query)
        values += size
        if values > max(size, MOST_VALUES):
            yield _Part(query, reason=_TOO_MUCH_WORK)
            continue
        try:
            compiled = compile_query(dataset, query)
            if is_running(query.window):
                yield _so_far(ReplyMaker(dataset, request.analyst, query), compiled)
                continue
            window, note = window_of(dataset, query)
            windows = windows_of(dataset, window, query)
            if query.series is not None:
                query_answerer.check_size(dataset, query, len(windows))
            asked = (side for one in windows for side in sides_of(dataset, compiled.on(one)))
            yield _Part(query, tuple(asked), note)
        except InvalidQuery as error:
            yield _Part(query, reason=reason_of(query_answerer.invalid(error)))


def _so_far(replying: ReplyMaker, compiled: Compiled) -> _Part:
    """A query about open periods, which costs nothing."""
    query = replying.query.model_copy(update={"quote": True})
    quote = answer_so_far(replace(replying, query=query), compiled)
    if not isinstance(quote, QuotedAnswer):
        assert isinstance(quote, RefusedAnswer), "a quote or a refusal"
        return _Part(query, reason=quote.reason)
    said = {name: getattr(quote, name) for name in ("query_id", "kind", "path", "privacy_loss")}
    return _Part(query, free=QuotedQuery(**said, error_bar=quote.error_bar, note=quote.note))


_TOO_MUCH_WORK = Reason(
    code="too_much_work",
    message=f"queries: the answers to the queries of one record may have {MOST_VALUES:,} values together; "
    "ask for the price of fewer at once",
)
