"""The message that an outcome is published as."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

from stream_dp.core.accounting import UNITS, Charge
from stream_dp.core.kinds.base import KindQuery
from stream_dp.core.mechanism import Quote
from stream_dp.core.outcome import (
    Answered,
    BatchAnswered,
    Found,
    Outcome,
    Path,
    Placed,
    Refused,
    Responses,
    Summed,
)
from stream_dp.core.query import LinearQuery
from stream_dp.core.universe import Number, Universe, number_text
from stream_dp.messages import (
    Answer,
    Batched,
    BudgetShares,
    FoundCell,
    PrivacyLoss,
    Reason,
    Table,
    Vector,
)
from stream_dp.pipeline.dataset import Dataset
from stream_dp.pipeline.records import plain

__all__ = ["answered", "quoted", "refused"]

_NO_LOSS = PrivacyLoss(share=0.0, blocks=0)


def refused(facts: dict[str, Any], refusal: Refused, budget: BudgetShares | None = None) -> Answer:
    """A refusal.

    Args:
        facts: Which query it replies to; likewise below.
    """
    reason = Reason(
        code=refusal.code.value, message=plain(refusal.message), retriable=refusal.retriable
    )
    return Answer(**facts, status="refused", reason=reason, budget=budget)


def answered(
    dataset: Dataset,
    query: LinearQuery | KindQuery,
    outcome: Outcome,
    charges: tuple[Charge, ...],
    facts: dict[str, Any],
    note: str | None,
) -> Answer:
    """An outcome as an answer, or as the refusal that it is.

    Args:
        charges: What was paid for it.
        note: What else is to be said.
    """
    window = query.window
    if isinstance(outcome, Refused):
        return refused(facts, outcome, dataset.budget(window))
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
    axes = _axes(query)
    if isinstance(outcome, Summed):
        facts["note"] = _with_binning(dataset.universe, query, note)
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


def quoted(
    dataset: Dataset,
    query: LinearQuery | KindQuery,
    quote: Quote,
    facts: dict[str, Any],
    note: str | None,
) -> Answer:
    """What an answer would cost, or why there would be none."""
    if isinstance(quote.outcome, Refused):
        return refused(facts, quote.outcome, dataset.budget(query.window))
    path = Path.MEASURED if quote.outcome is None else quote.outcome.path
    return Answer(
        **facts,
        **dataset.standing(query.window),
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
            rows=None if cell.rows is None else round(cell.rows),
            rows_bar=cell.rows_bar,
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
        **_rows_of(outcome),
    )
    return Answer(**facts, table=table, confidence=outcome.confidence)


def _rows_of(outcome: Summed) -> dict[str, Any]:
    """The counts of all rows of a table, where they were asked for."""
    rows = [cell.rows for cell in outcome.cells if cell.rows is not None]
    if not rows:
        return {}
    bars = tuple(cell.rows_bar for cell in outcome.cells)
    return {"rows": tuple(map(round, rows)), "rows_bars": bars}


def _with_binning(universe: Universe, query: LinearQuery | KindQuery, note: str | None) -> str:
    """What the bars of a sum leave out: a row counts for its bin's representative."""
    assert isinstance(query, LinearQuery), "sums are compiled to queries"
    assert query.total is not None, "a sum has a total"
    attribute = universe.attributes[query.total.attribute]
    assert isinstance(attribute, Number), "numbers are added up"
    low, high = (number_text(edge) for edge in (attribute.edges[0], attribute.edges[-1]))
    binning = (
        f"beside the bars: a value of {attribute.name} counts as its bin's representative, which is up to "
        f"{number_text(attribute.binning_error)} off between {low} and {high}, and beyond them by any amount"
    )
    return binning if note is None else f"{note}; {binning}"


def _axes(query: LinearQuery | KindQuery) -> tuple[int, ...]:
    """Attributes of the table that answers it."""
    if isinstance(query, LinearQuery):
        return query.group_by
    assert query.attribute is not None, "a table of another kind is about one attribute"
    return (query.attribute,)


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
