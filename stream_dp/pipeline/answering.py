"""One question: look it up, decide, draft its answer. Knows no broker and no Faust."""

from __future__ import annotations

import hashlib
import logging
import math
from base64 import b64encode
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, cast

from stream_dp.core.accounting import UNITS, Charge
from stream_dp.core.calibrated import Calibrated
from stream_dp.core.kinds.base import Asked
from stream_dp.core.kinds.several import WithKinds
from stream_dp.core.outcome import (
    Answered,
    BatchAnswered,
    Found,
    Outcome,
    Path,
    Placed,
    RefusalCode,
    Refused,
    Responses,
    Summed,
)
from stream_dp.core.query import Predicate, Question, Total, compile_group_by, compile_where
from stream_dp.core.universe import Number, Universe, number_text
from stream_dp.errors import InvalidQuery
from stream_dp.messages import Answer, Batched, PrivacyLoss, Query, Reason, Table, Vector
from stream_dp.messages import Found as FoundCell
from stream_dp.pipeline.building import ANSWERERS
from stream_dp.pipeline.dataset import Dataset
from stream_dp.pipeline.records import Outgoing, plain
from stream_dp.state.codec import answer_from_bytes, answer_to_bytes

__all__ = [
    "MOST_CELLS",
    "MOST_PAID",
    "MOST_SUMS",
    "answer",
    "answer_name",
    "released_again",
    "resend",
]

_log = logging.getLogger(__name__)

MOST_CELLS = 50_000
"""Of a table: its answer still fits into one record."""

MOST_SUMS = 30_000
"""Cells of a table of sums, which says seven numbers of each in place of four."""

MOST_PAID = 8192
"""Phases that one question is paid in: the ledger's entry of its charges still fits into one record."""

_TOO_MANY_PHASES = Refused(
    RefusalCode.INVALID_QUERY,
    f"window: more than {MOST_PAID:,} phases would be paid in at once; ask about the last ones first, and "
    "then about more",
)

_COUNTS = ("predicate", "table")

_NO_LOSS = PrivacyLoss(share=0.0, blocks=0)


def answer_name(analyst: str, query_id: str) -> str:
    """The field under which an answer is stored. Ids hold no space, so the name is unambiguous."""
    return f"{analyst} {query_id}"


def resend(dataset: Dataset, analyst: str, query: Query, stored: bytes) -> bool:
    """Queues the stored answer again; False when it was given to another request under this id."""
    digest, _ = answer_from_bytes(stored)
    try:
        asked = _digest(query, _compiled(dataset, query).identity)
    except InvalidQuery:
        asked = _digest(query, _as_sent(query))
    if digest != asked:
        return False
    dataset.release(released_again(dataset.name, answer_name(analyst, query.query_id), stored))
    return True


def released_again(dataset: str, name: str, stored: bytes) -> Outgoing:
    """The record of a stored answer, as it was the first time."""
    return _outgoing(dataset, name, answer_from_bytes(stored).answer, is_stored=True)


async def answer(
    dataset: Dataset, analyst: str, query: Query, *, asked_ms: int = -1
) -> tuple[Answer, bytes | None]:
    """Answers or refuses a question that was not answered before, and drafts it for the commit.

    Args:
        asked_ms: Timestamp of its record; -1 where that has none.

    Returns:
        The reply, and the bytes stored for its id; None for a quote, which is not stored.
    """
    facts: dict[str, Any] = {
        "dataset": dataset.name,
        "query_id": query.query_id,
        "analyst": analyst,
    }
    request = _as_sent(query)
    try:
        compiled = _compiled(dataset, query)
        request = compiled.identity
        window, note = _window(dataset, query)
    except InvalidQuery as error:
        reply = Answer(
            **facts, status="refused", reason=_reason(Refused(_code(error.reason), str(error)))
        )
    except _Refusal as refusal:
        reply = Answer(**facts, status="refused", reason=_reason(refusal.refused))
    else:
        question = compiled.on(window)
        if query.quote:
            reply = _quoted(dataset, question, facts, note)
        else:
            outcome, charges = await _outcome(dataset, question)
            reply = _reply(dataset, question, outcome, charges, facts, note)
    value = reply.to_bytes()
    name = answer_name(analyst, query.query_id)
    stored = None
    if not query.quote:
        stored = answer_to_bytes(_digest(query, request), value)
        dataset.add_answer(name, stored)
    dataset.release(
        _outgoing(dataset.name, name, value, is_stored=not query.quote, asked_ms=asked_ms)
    )
    return reply, stored


def _as_sent(query: Query) -> tuple[object, ...]:
    """What identifies a request that cannot be compiled."""
    if query.kind in _COUNTS:
        return query.where, query.group_by
    return query.where, query.wheres, query.group_by, query.attribute, *_numbers(query)


def _numbers(query: Query) -> tuple[float, ...]:
    """What a question of another kind says in numbers; which they are depends on the kind."""
    return tuple(n for n in (query.rank, query.low, query.high) if n is not None)


def _digest(query: Query, request: tuple[object, ...]) -> bytes:
    """What makes two requests under one id the same; two spellings of one predicate are. 16 bytes."""
    window = query.window.last_phases if query.window else None
    text = repr((query.kind, request, window, query.quote))
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


async def _outcome(
    dataset: Dataset, question: Question | Asked
) -> tuple[Outcome, tuple[Charge, ...]]:
    mechanism = _mechanism(dataset)
    step = mechanism.answer(question)
    if isinstance(step, Outcome):
        return step, ()
    if len(step.charges) > MOST_PAID:
        return _TOO_MANY_PHASES, ()
    (release,) = await dataset.look([step])
    return mechanism.conclude(question, step, release), step.charges


def _mechanism(dataset: Dataset) -> WithKinds:
    """The data set's, as one that answers every question that was compiled for it."""
    return cast("WithKinds", dataset.mechanism)


class _Refusal(Exception):
    """A question that is refused before the mechanism sees it."""

    def __init__(self, refused: Refused) -> None:
        self.refused = refused


@dataclass(frozen=True, slots=True)
class _Compiled:
    """A question on the data set's schema, before its window is known.

    Attributes:
        identity: What makes it the same as another spelling of it.
        on: The question about a window.
    """

    identity: tuple[object, ...]
    on: Callable[[range], Question | Asked]


def _compiled(dataset: Dataset, query: Query) -> _Compiled:
    """The question on the data set's schema. Raises InvalidQuery."""
    try:
        if query.kind in _COUNTS:
            return _compiled_count(dataset.universe, query)
        if query.kind == "sum":
            return _compiled_sum(dataset, query)
        return _compiled_kind(dataset, query)
    except (InvalidQuery, MemoryError):
        raise
    except Exception as error:  # noqa: BLE001 - one analyst must not stop the data set for all
        # Compiling depends on the schema and the question alone, and has changed nothing.
        _log.error("a question cannot be read: %s", type(error).__name__)
        raise InvalidQuery("where", "it cannot be read", "ask in another form") from None


def _compiled_count(universe: Universe, query: Query) -> _Compiled:
    predicate = compile_where(universe, query.where)
    group_by = _grouped(universe, query, predicate, most=MOST_CELLS)
    return _Compiled(
        (predicate.key, group_by), lambda window: Question(predicate, window, group_by)
    )


def _grouped(
    universe: Universe, query: Query, predicate: Predicate, *, most: int
) -> tuple[int, ...]:
    """The axes of a table of at most so many cells."""
    if not query.group_by:
        return ()
    group_by = compile_group_by(universe, query.group_by, predicate)
    if math.prod(universe.shape[attribute] for attribute in group_by) > most:
        raise InvalidQuery(
            "group_by",
            f"the table has more than {most:,} cells",
            "group by fewer attributes, or ask for some of the cells",
            reason="too_many_cells",
        )
    return group_by


def _compiled_sum(dataset: Dataset, query: Query) -> _Compiled:
    universe = dataset.universe
    if not isinstance(dataset.mechanism, Calibrated | WithKinds):
        raise InvalidQuery(
            "kind",
            "a data set of this profile does not answer sums",
            "ask counts, or a data set of the calibrated profile",
            reason=RefusalCode.UNSUPPORTED_KIND.value,
        )
    assert query.attribute is not None, "the message was checked"
    index = universe.index(query.attribute)
    attribute = universe.attributes[index]
    if not isinstance(attribute, Number) or not any(attribute.values):
        raise InvalidQuery(
            "attribute",
            f"{attribute.name} has no numbers to add up",
            "name an attribute of type number whose representatives are not all 0",
        )
    if query.attribute in query.group_by:
        raise InvalidQuery("group_by", f"{attribute.name} is added up", "group by other attributes")
    predicate = compile_where(universe, query.where)
    if attribute.missing:
        present = {"not": {"attribute": attribute.name, "is_missing": True}}
        both = present if query.where is None else {"all": [query.where, present]}
        predicate = compile_where(universe, both)
    if predicate.constant is False:
        raise InvalidQuery("where", "no row can satisfy it", "ask about some rows")
    group_by = _grouped(universe, query, predicate, most=MOST_SUMS)
    total = Total(index, attribute.values)
    return _Compiled(
        (predicate.key, group_by, index),
        lambda window: Question(predicate, window, group_by, total),
    )


def _compiled_kind(dataset: Dataset, query: Query) -> _Compiled:
    universe, mechanism = dataset.universe, dataset.mechanism
    kinds = mechanism.kinds if isinstance(mechanism, WithKinds) else frozenset()
    if query.kind not in kinds:
        sums = {"sum"} if isinstance(mechanism, Calibrated | WithKinds) else set()
        answered = ", ".join(sorted({*_COUNTS, *sums, *kinds}))
        (setting,) = (name for name, one in ANSWERERS.items() if query.kind in one.kinds)
        raise InvalidQuery(
            "kind",
            f"this data set does not answer {query.kind}",
            f'ask one of {answered}; a definition turns it on by "{setting}" under "kinds", from the start',
            reason=RefusalCode.UNSUPPORTED_KIND.value,
        )
    attribute = None if query.attribute is None else universe.index(query.attribute)
    predicate = compile_where(universe, query.where)
    predicates = _each(universe, query.wheres)
    numbers = _numbers(query)
    return _Compiled(
        (predicate.key, tuple(each.key for each in predicates), attribute, numbers),
        lambda window: Asked(query.kind, window, attribute, predicate, predicates, numbers),
    )


def _each(universe: Universe, wheres: Sequence[dict[str, Any]]) -> tuple[Predicate, ...]:
    """The conditions of a batch."""
    predicates = []
    for number, where in enumerate(wheres):
        try:
            predicates.append(compile_where(universe, where))
        except InvalidQuery as fault:
            field = fault.field.replace("where", f"wheres[{number}]", 1)
            raise InvalidQuery(field, fault.problem, fault.fix, reason=fault.reason) from None
    return tuple(predicates)


def _window(dataset: Dataset, query: Query) -> tuple[range, str | None]:
    """The blocks asked, and a note where they are not what was asked for."""
    if dataset.retired:
        raise _Refusal(Refused(RefusalCode.RETIRED, "this data set was retired"))
    phase = dataset.phase
    if phase == 0:
        raise _Refusal(
            Refused(
                RefusalCode.NO_PHASE,
                "no phase is open yet: the data set still gathers rows. This refusal is final for "
                "this id; wait for the event phase_opened and ask again under a new id",
            )
        )
    first, note = 0, None
    if query.window is not None:
        first = max(0, phase - query.window.last_phases)
        if query.window.last_phases > phase:
            note = f"the window was clamped to the {phase} phases there are"
    return range(first, phase), note


def _code(reason: str) -> RefusalCode:
    return RefusalCode(reason) if reason in set(RefusalCode) else RefusalCode.INVALID_QUERY


def _reply(
    dataset: Dataset,
    question: Question | Asked,
    outcome: Outcome,
    charges: tuple[Charge, ...],
    facts: dict[str, Any],
    note: str | None,
) -> Answer:
    window = question.window
    if isinstance(outcome, Refused):
        return Answer(
            **facts, status="refused", reason=_reason(outcome), budget=dataset.budget(window)
        )
    facts = {
        **facts,
        **dataset.standing(window),
        "status": "answered",
        "difficulty": outcome.path.difficulty.value,
        "path": outcome.path.value,
        "privacy_loss": _loss(charges),
        "note": note,
    }
    if isinstance(outcome, Answered):
        return Answer(
            **facts,
            value=outcome.value,
            count=round(outcome.count),
            error_bar=outcome.error_bar,
            error_bar_simultaneous=outcome.error_bar_simultaneous,
            confidence=outcome.confidence,
        )
    if isinstance(outcome, Found):
        return Answer(
            **facts,
            found=_found(dataset.universe, outcome),
            no_answer=True if outcome.code is None else None,
            error_bar=outcome.rank_error,
            confidence=outcome.confidence,
        )
    if isinstance(outcome, BatchAnswered):
        counts = tuple(round(value * outcome.n) for value in outcome.values)
        return Answer(
            **facts,
            batch=Batched(values=outcome.values, counts=counts),
            error_bar_simultaneous=outcome.error_bar,
            confidence=outcome.confidence,
        )
    if isinstance(outcome, Responses):
        return Answer(
            **facts,
            vector=Vector(bits=b64encode(outcome.bits).decode(), agreement=outcome.agreement),
            error_bar=outcome.error_bar,
            confidence=outcome.confidence,
        )
    if isinstance(outcome, Placed):
        return Answer(
            **facts,
            side=outcome.side.value,
            found=_found(dataset.universe, outcome),
            error_bar=outcome.error_bar,
            confidence=outcome.confidence,
        )
    axes = _axes(question)
    if isinstance(outcome, Summed):
        facts["note"] = _with_binning(dataset.universe, question, note)
        return _reply_summed(dataset.universe, axes, outcome, facts)
    table = Table(
        attributes=tuple(dataset.universe.names[a] for a in axes),
        labels=_labels(dataset.universe, axes),
        values=tuple(cell.value for cell in outcome.cells),
        counts=tuple(round(cell.count) for cell in outcome.cells),
        error_bars=tuple(cell.error_bar for cell in outcome.cells),
        error_bars_simultaneous=tuple(cell.error_bar_simultaneous for cell in outcome.cells),
    )
    return Answer(**facts, table=table, confidence=outcome.cells[0].confidence)


def _quoted(
    dataset: Dataset, question: Question | Asked, facts: dict[str, Any], note: str | None
) -> Answer:
    quote = _mechanism(dataset).quote(question)
    if isinstance(quote.outcome, Refused):
        return _reply(dataset, question, quote.outcome, (), facts, note)
    if len(quote.charges) > MOST_PAID:
        return _reply(dataset, question, _TOO_MANY_PHASES, (), facts, note)
    path = Path.MEASURED if quote.outcome is None else quote.outcome.path
    return Answer(
        **facts,
        **dataset.standing(question.window),
        status="quoted",
        difficulty=path.difficulty.value,
        path=path.value,
        privacy_loss=_loss(quote.charges),
        note=note,
    )


def _loss(charges: tuple[Charge, ...]) -> PrivacyLoss:
    if not charges:
        return _NO_LOSS
    worst = max(max(charge.rho, charge.delta) for charge in charges)
    return PrivacyLoss(share=worst / UNITS, blocks=len(charges))


def _reply_summed(
    universe: Universe, axes: tuple[int, ...], outcome: Summed, facts: dict[str, Any]
) -> Answer:
    def share(rows: float | None) -> float | None:
        return None if rows is None else min(1.0, rows / outcome.n)

    if not axes:
        (cell,) = outcome.cells
        return Answer(
            **facts,
            value=share(cell.count),
            count=round(cell.count),
            error_bar=share(cell.count_bar),
            total=cell.total,
            total_bar=cell.total_bar,
            mean=cell.mean,
            mean_bar=cell.mean_bar,
            confidence=outcome.confidence,
        )
    table = Table(
        attributes=tuple(universe.names[a] for a in axes),
        labels=_labels(universe, axes),
        values=tuple(cell.count / outcome.n for cell in outcome.cells),
        counts=tuple(round(cell.count) for cell in outcome.cells),
        error_bars=tuple(share(cell.count_bar) for cell in outcome.cells),
        totals=tuple(cell.total for cell in outcome.cells),
        total_bars=tuple(cell.total_bar for cell in outcome.cells),
        means=tuple(cell.mean for cell in outcome.cells),
        mean_bars=tuple(cell.mean_bar for cell in outcome.cells),
    )
    return Answer(**facts, table=table, confidence=outcome.confidence)


def _with_binning(universe: Universe, question: Question | Asked, note: str | None) -> str:
    """What the bars of a sum leave out: a row counts for its bin's representative."""
    assert isinstance(question, Question), "sums are compiled to questions"
    assert question.total is not None, "a sum has a total"
    attribute = universe.attributes[question.total.attribute]
    assert isinstance(attribute, Number), "numbers are added up"
    low, high = (number_text(edge) for edge in (attribute.edges[0], attribute.edges[-1]))
    binning = (
        f"beside the bars: a value of {attribute.name} counts as its bin's representative, which is up to "
        f"{number_text(attribute.binning_error)} off between {low} and {high}, and beyond them by any amount"
    )
    return binning if note is None else f"{note}; {binning}"


def _axes(question: Question | Asked) -> tuple[int, ...]:
    """Attributes of the table that answers it."""
    if isinstance(question, Question):
        return question.group_by
    assert question.attribute is not None, "a table of another kind is about one attribute"
    return (question.attribute,)


def _found(universe: Universe, outcome: Found | Placed) -> FoundCell | None:
    """The cell that an outcome names, if it names one."""
    if outcome.attribute is None or outcome.code is None:
        return None
    attribute, code = universe.attributes[outcome.attribute], outcome.code
    label = attribute.labels[code]
    if not isinstance(attribute, Number) or code == attribute.missing_cell:
        return FoundCell(label=label)
    ends = (None, *attribute.edges, None)
    return FoundCell(label=label, low=ends[code], high=ends[code + 1])


def _labels(universe: Universe, group_by: tuple[int, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple(universe.attributes[attribute].labels for attribute in group_by)


def _reason(refused: Refused) -> Reason:
    return Reason(
        code=refused.code.value, message=plain(refused.message), retriable=refused.retriable
    )


def _outgoing(
    dataset: str, name: str, value: bytes, *, is_stored: bool, asked_ms: int = -1
) -> Outgoing:
    analyst, _, query_id = name.partition(" ")
    headers = (("query_id", query_id.encode()), ("analyst", analyst.encode()))
    return Outgoing("answers", dataset, value, headers, name if is_stored else None, asked_ms)
