"""The effect of one record: it defines a data set, retires it, adds rows to it, or queries it.

Everything is drafted in the data set; nothing leaves before the draft is committed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Final

from stream_dp.core.budget.accountant import Charge
from stream_dp.errors import Fenced, InvalidInput, InvalidMessage, NotNext
from stream_dp.messages import (
    Batch,
    ChangeAnalysts,
    ChangeSchema,
    Definition,
    QueryFields,
    Reason,
    Rejected,
    phase_in_id,
)
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.datasets.holdings import Holdings
from stream_dp.pipeline.intake import backlog, batches
from stream_dp.pipeline.intake.backlog import Piece
from stream_dp.pipeline.intake.decoder import (
    Ask,
    BadQuery,
    Change,
    Close,
    Define,
    Ingest,
    QuoteTogether,
    ReadClock,
    Repeat,
    Request,
    Retire,
)
from stream_dp.pipeline.intake.ownership import Ownership
from stream_dp.pipeline.intake.records import Outgoing, Record, plain
from stream_dp.pipeline.journal.contents import Contents
from stream_dp.pipeline.journal.owned_partition import AnswerGone
from stream_dp.pipeline.queries import bundle_price, query_answerer
from stream_dp.pipeline.queries.standing_runner import StandingRunner
from stream_dp.pipeline.watch.audit_log import asked_in
from stream_dp.pipeline.watch.health import MOVED
from stream_dp.profiles.share_settings import check_opening
from stream_dp.state.schema import StateTable
from stream_dp.tokens import HEADER, Verifier, bearer_in

_STEP_LOOKS = 64

MOST_PRODUCERS: Final = 10_000
"""The most producers of a data set that count their batches: all of them are read when it is taken over."""

_PRODUCER: Final = "producer "

Known = dict[tuple[str, str], bytes]
"""(data set, id) -> what is stored under the id of an answer or a batch."""


@dataclass(eq=False, repr=False)
class Decider:
    """Decides records one after another, those of one data set in the order of their log.

    Attributes:
        unknown: Records that name no data set, or whose sender may not ask, and the rejections that are to
            leave for them.
    """

    _contents: Contents
    _holdings: Holdings
    _ownership: Ownership
    _repeating: StandingRunner
    _verifier: Verifier | None
    _context: Context
    unknown: list[tuple[Record, Outgoing]] = field(default_factory=list, init=False)

    async def known(self, requests: Sequence[Request]) -> Known:
        """Looks up what is stored under the ids in these requests.

        A data set of which that is not where the journal should have it is served no more. Others are.
        """
        ids: dict[tuple[StateTable, str], list[str]] = {}
        for request in requests:
            if request.dataset in self._holdings.datasets:  # else nothing is stored of it
                for table, name in _ids_in(request):
                    ids.setdefault((table, request.dataset), []).append(name)
        known: Known = {}
        for (table, dataset), names in sorted(ids.items()):
            try:
                known |= await self._contents.find(dataset, table, names)
            except (AnswerGone, Fenced) as error:
                if dataset not in self._holdings.datasets:
                    continue  # revoked in the meantime
                if isinstance(error, Fenced):
                    raise
                self._holdings.stop(dataset, error)
        return known

    def values_of(self, name: str, query: QueryFields | BadQuery) -> int:
        """Values of the answer to a query on a data set, at the most."""
        dataset = self._holdings.datasets.get(name)
        if dataset is None or isinstance(query, BadQuery):
            return 1
        return query_answerer.values_of(dataset, query)

    def rejection(
        self,
        record: Record,
        error: InvalidInput,
        dataset: str | None = None,
        analyst: str | None = None,
        query_id: str | None = None,
    ) -> Outgoing:
        """The reply that rejects a record, or one query of it."""
        rejected = Rejected(
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            dataset=dataset,
            analyst=analyst,
            query_id=query_id,
            next_sequence=error.next_sequence if isinstance(error, NotNext) else None,
            reason=Reason(code=error.reason, message=plain(str(error)), retriable=error.retriable),
        )
        self._context.metrics.rejected(error.reason)
        asked = asked_in(record) if record.role == "queries" else None
        key, value = dataset or record.topic_partition, rejected.to_bytes()
        return Outgoing("rejected", key, value, dated_ms=record.timestamp_ms, asked=asked)

    async def handle(self, piece: Piece, request: Request, known: Known) -> None:
        """Does one step of a record, and leaves the rest of it in ``piece``.

        A data set of which an answer is not where the journal should have it is served no more. What is not
        decided by then is rejected with the next step.

        Args:
            piece: The unfinished part of the record.
            request: The part of the piece that this step does.
            known: The outcomes that are stored under the ids of the step. The step adds those that it stores.
        """
        record = piece.record
        dataset = self._holdings.datasets.get(request.dataset)
        piece.finished = True
        if dataset is None:
            dataset = await self._defined_by(piece, request)
            if dataset is None:
                return
        elif record.offset < dataset.draft.cursor.get(record.topic_partition, 0):
            # Done before a crash, which may have cut short what became due with it.
            dataset.draft.dated_ms = record.timestamp_ms
            with self._stopping(dataset):
                piece.finished = piece.suspect or await self._repeating.answer_due(dataset, known)
            return
        else:
            dataset.draft.dated_ms = record.timestamp_ms
            at_most = request.at_most if isinstance(request, Ask) else None
            dataset.begins(record.record_id, at_most=at_most)
            if not (piece.suspect or dataset.quarantined or dataset.retired):
                # No record is done in the midst of a sweep.
                piece.finished = not await dataset.phases.sweeps.take()
                if not piece.finished:
                    return
            is_decided = False
            with self._stopping(dataset):
                # Standing queries come before all else that a phase is asked, also if a crash cut them short.
                if piece.suspect or await self._repeating.answer_due(dataset, known):
                    await self._decided(dataset, piece, request, known)
                    is_decided = True
            if not is_decided:
                piece.finished = False
                return
            with self._stopping(dataset):
                if piece.finished and not await self._repeating.answer_due(dataset, known):
                    piece.request, piece.finished = Repeat(dataset.name), False
        if piece.finished:
            dataset.draft.passed(record.topic_partition, record.offset + 1)
        if dataset.draft.large:
            dataset.draft.commit()

    @contextmanager
    def _stopping(self, dataset: Dataset) -> Iterator[None]:
        """Stops a data set if an answer of it is gone."""
        try:
            yield
        except AnswerGone as error:
            self._holdings.stop(dataset.name, error)

    async def _decided(
        self, dataset: Dataset, piece: Piece, request: Request, known: Known
    ) -> None:
        try:
            await self._decide(dataset, piece, request, known)
        except InvalidInput as error:
            rejection = self.rejection(piece.record, error, request.dataset)
            dataset.draft.release(rejection)

    async def _defined_by(self, piece: Piece, request: Request) -> Dataset | None:
        """The data set that a record defines under a name that has none; rejects all other records."""
        if not await self.is_admitted(piece):
            self.unknown.append((piece.record, self._refusal_of_sender(piece)))
            return None
        try:
            if piece.suspect:
                raise InvalidMessage(
                    "dataset", "the worker died of this definition", "define it otherwise"
                )
            if request.dataset in self._holdings.stopped:
                raise _MOVED if self._holdings.stopped[request.dataset] == MOVED else _STOPPED
            if not isinstance(request, Define):
                raise _unknown(request.dataset)
            return await self._holdings.create(request.definition, piece.record)
        except InvalidInput as error:
            rejection = self.rejection(piece.record, error, request.dataset)
            if isinstance(request, Ask | QuoteTogether):
                asked = asked_in(piece.record, request.analyst, None, request.queries)
                rejection = replace(rejection, asked=asked)
            self.unknown.append((piece.record, rejection))
            return None

    async def _decide(self, dataset: Dataset, piece: Piece, request: Request, known: Known) -> None:
        if piece.suspect and not dataset.quarantined:
            dataset.quarantine(piece.record.record_id)
        if isinstance(request, Define):
            _define_again(dataset, request)
        elif isinstance(request, Retire):
            await _retire(dataset)
        elif not await self.is_admitted(piece):
            dataset.draft.release(self._refusal_of_sender(piece))
        elif self._ownership.was_rejected(piece.record):
            # Topics have no mutual order: on a second reading the definition may come first. A record that
            # may have been rejected already stays rejected.
            raise _unknown(dataset.name)
        elif isinstance(request, Close):
            await _close(dataset, piece.record, request.phase)
        elif isinstance(request, Change):
            await _change(dataset, request.change)
        elif isinstance(request, Ingest):
            await self._ingest(dataset, piece, request, known)
        elif isinstance(request, ReadClock):
            closes = not (dataset.quarantined or dataset.retired)
            sweeps = request.sweep and closes and await dataset.phases.sweeps.take(now=True)
            piece.finished = not (sweeps or (closes and await dataset.phases.close_ended()))
        elif isinstance(request, Repeat):
            pass  # it is done: they are answered before any request
        elif isinstance(request, QuoteTogether):
            self._quote_together(dataset, piece.record, request, known)
        else:
            await self._ask(dataset, piece, request, known)

    async def is_admitted(self, piece: Piece) -> bool:
        """Returns whether the sender of a record may ask under its name, and notes why if not.

        The time that counts is that of the record, and the rejection goes into the commit, or under the mark,
        that passes it. So a record that comes again to another worker is decided alike.
        """
        request, record = piece.request, piece.record
        if self._verifier is None or not isinstance(request, Ask | QuoteTogether):
            return True
        if piece.admitted is None:
            try:
                token = await self._verifier.verified(bearer_in(record.headers.get(HEADER)))
                token.check_time(record.timestamp_ms / 1000)
                token.check_dataset(request.dataset)
                token.check_analyst(request.analyst)
                piece.admitted = True
            except InvalidMessage as error:
                piece.admitted = error
        return piece.admitted is True

    def _refusal_of_sender(self, piece: Piece) -> Outgoing:
        """The rejection of a record whose sender may not ask.

        Without the id of a query it is told to all who wait for an answer to the record.
        """
        request, error = piece.request, piece.admitted
        assert isinstance(request, Ask | QuoteTogether), "all others are admitted"
        assert isinstance(error, InvalidMessage), "it says why"
        return self.rejection(
            piece.record, error, request.dataset, request.analyst, _only_id(request)
        )

    async def _ingest(self, dataset: Dataset, piece: Piece, request: Ingest, known: Known) -> None:
        batch = request.batch
        name = (dataset.name, batch.name)
        if _is_counted(dataset, batch):
            batches.known_before(dataset, batch)
        elif name in known:
            batches.resend(dataset, batch, known[name])
        else:
            _begin(dataset, batch)
            _refuse_in_quarantine(dataset)
            _refuse_out_of_order(dataset, batch)
            _refuse_other_version(dataset, batch)
            if batch.unreadable is not None:
                self._context.metrics.source_unreadable(dataset.name)
            piece.finished, outcome = await batches.ingest(dataset, batch)
            if not piece.finished:
                return
            if batch.batch_id is not None and outcome is not None:
                known[name] = outcome
            self._context.metrics.batch(dataset.name)

    def _quote_together(
        self, dataset: Dataset, record: Record, request: QuoteTogether, known: Known
    ) -> None:
        limits = dataset.accounts.limits
        limits.enter(record, request.analyst, dataset.accounts.paying.analysts)
        dataset.draft.asked = asked_in(record, request.analyst, request.query_id, request.queries)
        if limits.is_done(0):
            return
        limits.check_name()
        if (dataset.name, query_answerer.answer_name(request.analyst, request.query_id)) in known:
            raise _ID_REUSED
        _refuse_reserved(request.query_id)
        _refuse_in_quarantine(dataset)
        limits.admit(len(request.queries))
        reply = bundle_price.quote_together(dataset, request, asked_ms=record.timestamp_ms)
        limits.count(len(request.queries))
        limits.done(0)
        self._context.metrics.answer(reply)

    async def _ask(self, dataset: Dataset, piece: Piece, request: Ask, known: Known) -> None:
        """Answers the queries of one step, or fewer where these lead to many looks."""
        assert isinstance(piece.request, Ask), "the step is a part of it"
        record, looks, done = piece.record, dataset.looks.n_taken, 0
        limits = dataset.accounts.limits
        limits.enter(record, request.analyst, dataset.accounts.paying.analysts)
        for query in request.queries:
            if dataset.looks.n_taken - looks >= _STEP_LOOKS:
                break
            index, done = piece.done + done, done + 1
            self._context.heartbeat.beat()
            piece.values += (values := self.values_of(dataset.name, query))
            if limits.is_done(index):
                continue
            dataset.draft.asked = asked_in(record, request.analyst, query.query_id, [query])
            dataset.accounts.in_hand.to_come = len(piece.request.queries) - done + 1
            try:
                limits.check_name()
                if piece.values > max(values, backlog.MOST_VALUES):
                    raise _TOO_MUCH_WORK
                if isinstance(query, QueryFields) and query.standing is not None:
                    await self._stand(dataset, request, query, known)
                else:
                    await self._ask_one(dataset, request.analyst, query, known)
            except InvalidMessage as error:
                dataset.draft.release(
                    self.rejection(record, error, dataset.name, request.analyst, query.query_id)
                )
            limits.done(index)
            if dataset.draft.large:
                dataset.draft.commit()
        dataset.draft.asked = None
        piece.done += done
        piece.finished = done == len(piece.request.queries)
        if not piece.finished:
            piece.request = replace(request, queries=piece.request.queries[done:])

    async def _stand(
        self, dataset: Dataset, request: Ask, query: QueryFields, known: Known
    ) -> None:
        """Begins or ends a standing query. One can be ended in quarantine: it may be why workers died."""
        if not query.standing:
            self._repeating.end(dataset, request.analyst, query.query_id)
            return
        _refuse_in_quarantine(dataset)
        if request.at_most is not None:
            raise _LIMIT_OF_ONE_RECORD
        begins = dataset.standing_queries.find(request.analyst, query.query_id) is None
        limits, price = dataset.accounts.limits, tuple[Charge, ...]()
        if begins:
            limits.admit()
            if limits.bounds_spending:  # the phase that is open is answered at once
                price = query_answerer.price_now(dataset, request.analyst, query)
                limits.afford(price)
        await self._repeating.begin(dataset, request.analyst, query, known)
        if begins:
            limits.pay(price)
            limits.count()

    async def _ask_one(
        self, dataset: Dataset, analyst: str, query: QueryFields | BadQuery, known: Known
    ) -> None:
        if isinstance(query, BadQuery):
            raise query.error
        name = (dataset.name, query_answerer.answer_name(analyst, query.query_id))
        if name not in known:
            _refuse_reserved(query.query_id)
            _refuse_in_quarantine(dataset)
            dataset.accounts.limits.admit()
            asked_ms = dataset.draft.dated_ms
            stored = query_answerer.repeated(dataset, analyst, query, asked_ms)
            if stored is not None:
                self._context.metrics.repeated(dataset.name)
            else:
                reply, stored = await query_answerer.answer(
                    dataset, analyst, query, asked_ms=asked_ms
                )
                self._context.metrics.answer(reply)
            dataset.accounts.limits.count()
            if stored is not None:
                known[name] = stored
        elif not query_answerer.resend(dataset, analyst, query, known[name]):
            raise _ALREADY if query_answerer.is_adopted(known[name]) else _ID_REUSED


def _ids_in(request: Request) -> Iterator[tuple[StateTable, str]]:
    """The ids in a request under which something may be stored, each with its table."""
    if isinstance(request, Ask):
        for query in request.queries:
            if isinstance(query, QueryFields):
                yield StateTable.ANSWER, query_answerer.answer_name(request.analyst, query.query_id)
    elif isinstance(request, QuoteTogether):
        yield StateTable.ANSWER, query_answerer.answer_name(request.analyst, request.query_id)
    elif isinstance(request, Ingest) and request.batch.batch_id is not None:
        yield StateTable.OUTCOME, request.batch.batch_id


def _only_id(request: Ask | QuoteTogether) -> str | None:
    """Returns the id of the only reply that is expected to a record. None if there are several."""
    if isinstance(request, QuoteTogether):
        return request.query_id
    return request.queries[0].query_id if len(request.queries) == 1 else None


_ID_REUSED = InvalidMessage(
    "query_id", "this id was used for another query", "ask under a new id", reason="id_reused"
)

_ID_RESERVED = InvalidMessage(
    "query_id",
    "an id that ends with @ and a number is that of an answer to a standing query, and it has none yet",
    "ask under another id, or wait for that answer",
    reason="id_reserved",
)

_ALREADY = InvalidMessage(
    "query_id",
    "this id was answered before the rows of that time were written off, and what was asked is not known any "
    "more",
    "read its answer on the topic of answers, or ask under a new id",
    reason="already_answered",
)

_LIMIT_OF_ONE_RECORD = InvalidMessage(
    "at_most",
    "a limit for all queries of a record does not hold for the phases to come",
    "write at_most in the standing query itself",
)

_TOO_MANY_PRODUCERS = InvalidMessage(
    "producer",
    f"the data set has {MOST_PRODUCERS:,} producers that count their batches, and may have no more",
    "send under a producer that it knows, or write batch_id",
    reason="too_many_producers",
)

_RETIRED = InvalidMessage(
    "dataset", "it was retired for ever", "send this to another one", reason="retired"
)

_STOPPED = InvalidMessage(
    "dataset",
    "it cannot be served: what the journal has of it does not fit together",
    "tell its operator",
    reason="stopped",
)

_MOVED = InvalidMessage(
    "dataset",
    "it was moved to another deployment, and is never served here again",
    "send this there",
    reason="stopped",
)

_TOO_MUCH_WORK = InvalidMessage(
    "queries",
    f"the answers to the queries of one record may have {backlog.MOST_VALUES:,} values together",
    "send it in another record",
    reason="too_much_work",
)


def _unknown(name: str) -> InvalidMessage:
    return InvalidMessage(
        "dataset",
        f"no data set {name!r} is defined",
        "define it, wait for the event dataset_accepted, and send again",
        reason="unknown_dataset",
    )


def _define_again(dataset: Dataset, request: Define) -> None:
    if dataset.retired:
        raise InvalidMessage(
            "dataset", "this name was retired for ever", "choose another name", reason="retired"
        )
    if request.definition not in (dataset.definition, dataset.engine.first):
        problem = "a data set of this name exists with another definition"
        if request.definition.without_measures == dataset.definition.without_measures:
            problem += (
                "; measure cannot be changed, because the values of rows that are counted are gone"
            )
        raise InvalidMessage(
            "dataset",
            problem,
            "change its attributes with stream-dp schema, or choose another name",
            reason="dataset_exists",
        )
    dataset.accepted()


async def _change(dataset: Dataset, rules: ChangeAnalysts | ChangeSchema) -> None:
    if dataset.retired:
        raise _RETIRED
    if isinstance(rules, ChangeSchema):
        _refuse_in_quarantine(dataset)
        await dataset.change_schema(rules)
        return
    said = dataset.definition.model_copy(update={"analysts": rules.analysts, "owner": rules.owner})
    Definition.read(said.model_dump(mode="json", exclude_none=True))
    check_opening(said, dataset.mechanism)
    dataset.change_analysts(rules)


async def _retire(dataset: Dataset) -> None:
    if dataset.retired:
        await dataset.rows.values.drop_again()
    else:
        dataset.retire()
    dataset.gone()


async def _close(dataset: Dataset, record: Record, phase: int | None) -> None:
    """Opens a phase of what waits. The record is done with in the commit that seals it."""
    _refuse_in_quarantine(dataset)
    if dataset.retired:
        raise _RETIRED
    dataset.draft.passed(record.topic_partition, record.offset + 1)
    if phase is not None and phase <= dataset.phase:
        dataset.phases.closed(phase)
        return
    if phase not in (None, dataset.phase + 1):
        raise InvalidMessage(
            "phase",
            f"phase {dataset.phase + 1} is the next one to open",
            "close its period first",
            reason="not_next",
        )
    if not await dataset.phases.close():
        raise InvalidMessage(
            "close",
            "fewer rows wait than open a phase",
            "send more rows, or leave them to the next phase. A quarter of phase.min_rows is enough if "
            "privacy.delta is at most 1/(100 rows)",
            reason="too_few_rows",
        )


def _refuse_reserved(query_id: str) -> None:
    """Refuses the id of a standing query's answer: under it only the standing query is answered."""
    if phase_in_id(query_id) is not None:
        raise _ID_RESERVED


def _refuse_in_quarantine(dataset: Dataset) -> None:
    if dataset.quarantined:
        raise InvalidMessage(
            "dataset",
            "it is in quarantine: the worker died again and again at one of its records",
            "tell its operator",
            reason="quarantined",
        )


def _is_counted(dataset: Dataset, batch: Batch) -> bool:
    """Returns whether a batch of a producer that counts its batches was taken in before."""
    if batch.producer is None or (counted := batch.counted) is None:
        return False
    return counted.first < dataset.draft.cursor.get(counted.key, 0)


def _refuse_other_version(dataset: Dataset, batch: Batch) -> None:
    """Refuses what a source has packed before the attributes were changed. Its reader packs it again."""
    newest, source = dataset.definition.schema_version, batch.source
    if source is not None and source.schema_version not in (None, newest):
        raise InvalidMessage(
            "source.schema_version",
            f"the attributes have version {newest}",
            "pack the records for that",
            reason="not_next",
        )


def _begin(dataset: Dataset, batch: Batch) -> None:
    """Has a source begin with its first batch, also if that does not count.

    Otherwise the second one would count without the rows of the first. A source does not begin if its rows
    may have counted under another id of their topic.
    """
    source = batch.source
    if source is None or source.cursor_key in dataset.draft.cursor:
        return
    if not source.begins and source.may_be_copy(dataset.draft.cursor):
        raise InvalidMessage(
            "source",
            "rows of another topic of this name have counted, and this one may be a copy of it",
            'name the start in the source file: "start"',
            reason="start_unknown",
        )
    dataset.draft.passed(source.cursor_key, source.first)


def _refuse_out_of_order(dataset: Dataset, batch: Batch) -> None:
    """Refuses a batch of a source or producer that would count rows twice, or leave some out."""
    counted = batch.counted
    if counted is None:
        return
    if batch.producer is not None and counted.key not in dataset.draft.cursor:
        producers = sum(key.startswith(_PRODUCER) for key in dataset.draft.cursor)
        if producers >= MOST_PRODUCERS:
            raise _TOO_MANY_PRODUCERS
    if dataset.draft.expects(counted):
        return
    if batch.producer is not None:
        raise NotNext(batch.producer, dataset.draft.cursor[counted.key])
    raise InvalidMessage(
        "source",
        f"offset {dataset.draft.cursor[counted.key]} counts next in this partition of the source",
        "send the records from there on",
        reason="not_next",
    )
