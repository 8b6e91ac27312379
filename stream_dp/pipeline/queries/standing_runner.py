"""Standing queries: begins and ends them, and answers them before anything else that a new phase is asked.

Those whose window has ``running`` are answered at each tick of an open period, in place of each phase.

What is still to be answered follows from the stored facts of the data set alone. So an owner who takes over
after a crash goes on where the last one stopped, and answers no standing query twice.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from stream_dp.core.outcome import Refused
from stream_dp.display.answer_cells import MainFigure, main_figures
from stream_dp.errors import InvalidMessage, InvalidQuery
from stream_dp.messages import (
    Answer,
    DifferenceAnswer,
    DifferenceByGroupAnswer,
    NoisyAnswer,
    QueryFields,
    entry_of,
    id_in_phase,
    read_answer,
    standing_key,
)
from stream_dp.pipeline.context import Context
from stream_dp.pipeline.datasets.dataset import Dataset
from stream_dp.pipeline.intake.records import AuditedReply, Outgoing, plain
from stream_dp.pipeline.journal.contents import Contents
from stream_dp.pipeline.journal.owned_partition import AnswerGone
from stream_dp.pipeline.queries import query_answerer
from stream_dp.pipeline.queries.compiler import compile_query
from stream_dp.pipeline.queries.open_periods import (
    at_tick,
    holds_one_period,
    is_running,
    wider_at_all_ticks,
)
from stream_dp.pipeline.queries.standing_queries import MOST_CELLS, Latest, StandingEntry
from stream_dp.pipeline.watch.audit_log import is_written
from stream_dp.state.codec import answer_from_bytes
from stream_dp.state.schema import StateTable

_STEP_QUERIES: Final = 64
_STEP_LOOKS: Final = 64
_STEP_VALUES: Final = 2**16

_Known = dict[tuple[str, str], bytes]


@dataclass(frozen=True)
class StandingRunner:
    """Answers the standing queries of data sets, phase after phase."""

    _contents: Contents
    _context: Context

    async def answer_due(self, dataset: Dataset, known: _Known) -> bool:
        """Answers standing queries for the newest phase, and tick, as many as one step may come to.

        An id that was answered keeps its answer: its query ended in this phase, and began again.

        Args:
            dataset: The data set.
            known: What is stored under the ids of this step. The answers given here are added to it.

        Returns:
            Whether none is left.
        """
        if dataset.retired or dataset.quarantined or not len(dataset.standing_queries):
            return True
        now = dataset.moment
        if not dataset.standing_queries.is_due(now):
            return True
        due = dataset.standing_queries.due(now)
        some = due[:_STEP_QUERIES]
        names = [_name(entry, entry.number(now)) for entry in some]
        stored = await self._contents.find(dataset.name, StateTable.ANSWER, names)
        looks, values = dataset.looks.n_taken, 0
        for done, (entry, name) in enumerate(zip(some, names, strict=True)):
            values += query_answerer.values_of(dataset, entry.query)
            if done and (values > _STEP_VALUES or dataset.looks.n_taken - looks >= _STEP_LOOKS):
                return False
            self._context.heartbeat.beat()
            before = known.get((dataset.name, name)) or stored.get((dataset.name, name))
            await self._answer(dataset, entry, before, known)
            if dataset.draft.large:
                dataset.draft.commit()
        return len(some) == len(due)

    async def begin(
        self, dataset: Dataset, analyst: str, query: QueryFields, known: _Known
    ) -> None:
        """Begins a standing query, which is due at once if a phase is open. Again it changes nothing.

        Raises:
            InvalidMessage: It cannot be asked of this data set, or there are too many.
        """
        entry = dataset.standing_queries.find(analyst, query.query_id)
        if entry is not None:
            if not entry.asks(query):
                raise _ID_REUSED
            name = _name(entry, entry.number(dataset.moment))
            found = await self._contents.find(dataset.name, StateTable.ANSWER, [name])
            stored = known.get((dataset.name, name)) or found.get((dataset.name, name))
            self._list(dataset, entry, _sent_again(dataset, entry, stored))
            return
        _check(dataset, query)
        entry = dataset.standing_queries.begin(
            analyst, query, phase=dataset.phase, since_ms=dataset.draft.dated_ms
        )
        self._list(dataset, entry, None)

    def end(self, dataset: Dataset, analyst: str, query_id: str) -> None:
        """Ends a standing query with a tombstone. One that does not stand gets another one."""
        entry = dataset.standing_queries.find(analyst, query_id)
        if entry is not None:
            dataset.standing_queries.end(entry)
        dataset.draft.release(
            Outgoing("standing", standing_key(dataset.name, analyst, query_id), b"")
        )

    async def recall(self, dataset: Dataset) -> None:
        """Reads the newest answers of the standing queries of a data set that was taken over, for gauges."""
        standing = dataset.standing_queries
        entries = list(standing)
        for start in range(0, len(entries), _STEP_QUERIES):
            some = entries[start : start + _STEP_QUERIES]
            names = {_name(entry, standing.number(entry)): entry for entry in some}
            try:
                found = await self._contents.find(dataset.name, StateTable.ANSWER, [*names])
            except AnswerGone:
                continue  # who asks for it stops the data set
            for (_, name), stored in found.items():
                entry = names[name]
                number = standing.number(entry)
                if query_answerer.is_answer_to(dataset, _asked(dataset, entry, number), stored):
                    _note(dataset, entry, read_answer(answer_from_bytes(stored).answer), number)
            self._context.heartbeat.beat()

    async def _answer(
        self, dataset: Dataset, entry: StandingEntry, before: bytes | None, known: _Known
    ) -> None:
        """Answers one for the newest phase, or tick, and notes it in the same commit.

        One of an analyst to whom nothing is allowed any more ends.
        """
        if (
            dataset.accounts.paying.analysts is not None
            and entry_of(dataset.accounts.paying.analysts, entry.analyst) is None
        ):
            self.end(dataset, entry.analyst, entry.query_id)
            return
        number = entry.number(dataset.moment)
        asked = _asked(dataset, entry, number)
        if is_written():
            who = entry.analyst, asked.query_id
            dataset.draft.asked = AuditedReply("", dataset.draft.dated_ms, *who, (asked,))
        reply: Answer | None = None
        if before is None:
            with dataset.accounts.apart():
                reply, stored = await query_answerer.answer(dataset, entry.analyst, asked)
            assert stored is not None, "a quote does not stand"
            known[dataset.name, _name(entry, number)] = stored
            self._context.metrics.answer(reply)
        else:
            with dataset.accounts.apart():
                reply = _sent_again(dataset, entry, before)
        dataset.standing_queries.answered(entry, number, dataset.draft.dated_ms)
        if reply is not None:
            _note(dataset, entry, reply, number)
            _alert(dataset, entry, reply, number)
        self._list(dataset, entry, reply)
        dataset.draft.asked = None

    def _list(self, dataset: Dataset, entry: StandingEntry, reply: Answer | None) -> None:
        """Publishes a standing query with its newest answer's phase and price."""
        loss = reply.privacy_loss if isinstance(reply, NoisyAnswer) else None
        listed = entry.listed(dataset.name, None if reply is None else dataset.phase, loss)
        key = standing_key(dataset.name, entry.analyst, entry.query_id)
        dataset.draft.release(Outgoing("standing", key, listed.to_bytes()))


def _name(entry: StandingEntry, number: int) -> str:
    return query_answerer.answer_name(entry.analyst, id_in_phase(entry.query_id, number))


def _asked(dataset: Dataset, entry: StandingEntry, number: int) -> QueryFields:
    """The query as its analyst would ask it for this phase, or at this tick, by hand."""
    query, query_id = entry.query, id_in_phase(entry.query_id, number)
    asked: dict[str, object] = {"query_id": query_id, "standing": None, "alert": None}
    if entry.is_running and query.window is not None:
        asked["window"] = at_tick(dataset, query.window, number)
    return query.model_copy(update=asked)


def _sent_again(dataset: Dataset, entry: StandingEntry, stored: bytes | None) -> Answer | None:
    """Queues its stored answer for this moment again. None if there is none to this query."""
    asked = _asked(dataset, entry, entry.number(dataset.moment))
    if stored is None or not query_answerer.resend(dataset, entry.analyst, asked, stored):
        return None
    return read_answer(answer_from_bytes(stored).answer)


def _check(dataset: Dataset, query: QueryFields) -> None:
    """Refuses what could be answered in no phase, and what there is no room for."""
    refusal = query_answerer.refusal_of(dataset)
    if dataset.retired and isinstance(refusal, Refused):
        raise InvalidMessage(
            "dataset", refusal.message, "ask another data set", reason=refusal.code.value
        )
    try:
        compile_query(dataset, query)
    except InvalidQuery as error:
        code = query_answerer.invalid(error).code.value
        raise InvalidMessage(error.field, error.problem, error.fix, reason=code) from None
    if query.alert is not None and query.window is None and dataset.phase:
        raise _NEVER_ALERTS
    if (
        query.alert is not None
        and is_running(query.window)
        and not holds_one_period(dataset, query)
    ):
        raise _NOT_ONE_PERIOD
    if not dataset.standing_queries.has_room(query):
        raise _TOO_MANY


def _note(dataset: Dataset, entry: StandingEntry, reply: Answer, number: int) -> None:
    """Keeps the first numbers of an answer for the gauges."""
    standing = dataset.standing_queries
    found = tuple(islice(main_figures(reply), MOST_CELLS))
    standing.latest[entry.analyst, entry.query_id] = Latest(number, standing.dated_ms, found)


def _alert(dataset: Dataset, entry: StandingEntry, reply: Answer, number: int) -> None:
    """Announces an alert that holds in this phase, or at this tick.

    An answer about a phase that was open when the query began raises none. Its analyst may have seen what was
    published of that phase, and then the bar need not hold. Others may have chosen what was measured of the
    phases before the newest one, so with several phases the bar for all times counts. At ticks it is the bar
    that holds at all ticks of the period, which must have begun after the query.
    """
    alert = entry.query.alert
    if alert is None:
        return
    found: Iterable[MainFigure] = ()
    if isinstance(reply, NoisyAnswer) and reply.confidence is not None:
        if entry.is_running:
            wider = wider_at_all_ticks(dataset, entry.since_ms)
            if wider is not None:
                found = (
                    one if one.error_bar is None else one._replace(error_bar=wider * one.error_bar)
                    for one in main_figures(reply, "alone")
                )
        elif _is_later(reply, entry):
            first, last = reply.window
            found = main_figures(reply, "anytime" if last > first else "alone")
    holds = [cell for cell, value, bar in found if alert.holds(value, bar)]
    since = entry.alert_since or number
    dataset.standing_queries.alerted(entry, since if holds else None)
    if holds:
        assert isinstance(reply, NoisyAnswer), "nothing else has cells"
        about: dict[str, object] = {"phase": number, "since_phase": since}
        if entry.is_running:
            about = {"phase": dataset.phase, "since": reply.since, "until": reply.until}
        dataset.draft.announce(
            "alert",
            query_id=id_in_phase(entry.query_id, number),
            analyst=entry.analyst,
            cells=tuple(plain(cell) for cell in holds[:MOST_CELLS] if cell) or None,
            **about,
        )


def _is_later(reply: NoisyAnswer, entry: StandingEntry) -> bool:
    """Returns whether an answer is about phases alone that opened after its query began."""
    windows = [reply.window]
    if isinstance(reply, DifferenceAnswer | DifferenceByGroupAnswer):
        windows.append(reply.minus_window)
    return all(first > entry.since_phase for first, _ in windows)


_ID_REUSED = InvalidMessage(
    "query_id",
    "another standing query of this analyst has this id",
    "end that one, or choose another id",
    reason="id_reused",
)

_NEVER_ALERTS = InvalidMessage(
    "alert",
    "a window of all phases holds phases that were published before, whose error bars need not hold now",
    'add window, such as {"last_phases": 1}',
)

_NOT_ONE_PERIOD = InvalidMessage(
    "alert",
    "at each tick an alert is about the open period alone",
    'write its length as window, such as {"last": "1 day", "running": true}',
)

_TOO_MANY = InvalidMessage(
    "standing",
    "the data set has as many standing queries as it may have",
    "end one first",
    reason="too_many_standing",
)
