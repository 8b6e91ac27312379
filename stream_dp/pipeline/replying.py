"""The message that an outcome is published as."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from stream_dp.core.accounting import UNITS, Charge
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
    TableAnswered,
)
from stream_dp.core.query import EVERYTHING, AnyQuery, KindQuery
from stream_dp.core.universe import Number, Universe, number_text
from stream_dp.messages import (
    AdaptiveThresholdAnswer,
    Answer,
    Batched,
    BetweenAnswer,
    CorrelatedVectorAnswer,
    FoundCell,
    InteriorPointAnswer,
    MedianAnswer,
    ModeAnswer,
    NoisyAnswer,
    PredicateAnswer,
    PrefixBatchAnswer,
    PrivacyLoss,
    QuantileAnswer,
    QueryFields,
    QuotedAnswer,
    Reason,
    RefusedAnswer,
    SumAnswer,
    SumByGroupAnswer,
    SumTable,
    Table,
    TableAnswer,
    ThresholdAnswer,
    ThresholdCurveAnswer,
    Vector,
)
from stream_dp.pipeline.dataset import Dataset
from stream_dp.pipeline.records import plain

__all__ = ["MAKERS", "Replying", "answer_kind"]

_NO_LOSS: Final = PrivacyLoss(share=0.0, blocks=0)


def answer_kind(query: QueryFields, asked: AnyQuery | None = None) -> str:
    """The kind of the answer to a query.

    It is the query's own kind, except where one kind of query has answers of two forms.

    Args:
        query: The query as it was sent.
        asked: The query as it was compiled; None if it cannot be.
    """
    if query.kind == "sum" and query.group_by:
        return "sum_by_group"
    if query.kind == "threshold" and (query.where is None or _is_whole(asked)):
        return "threshold_curve"
    return query.kind


def _is_whole(asked: AnyQuery | None) -> bool:
    """Whether a condition was written that all rows satisfy, which is the same as none."""
    return isinstance(asked, KindQuery) and asked.predicate == EVERYTHING


@dataclass(frozen=True, slots=True)
class Replying:
    """Makes the replies to one query.

    Attributes:
        dataset: The data set that is asked.
        analyst: Who asks.
        query: The query as it was sent.
    """

    dataset: Dataset
    analyst: str
    query: QueryFields

    def refused(self, refusal: Refused, asked: AnyQuery | None = None) -> Answer:
        """A refusal.

        Args:
            refusal: Why there is no answer.
            asked: The query as it was compiled, if it was. The refusal then says what is left of the budget.
        """
        reason = Reason(
            code=refusal.code.value, message=plain(refusal.message), retriable=refusal.retriable
        )
        budget = None if asked is None else self.dataset.budget(asked.window)
        return RefusedAnswer(**self._head(asked), budget=budget, reason=reason)

    def answered(
        self, asked: AnyQuery, outcome: Outcome, charges: tuple[Charge, ...], note: str | None
    ) -> Answer:
        """An outcome as the answer of its kind, or as the refusal that it is.

        Args:
            asked: The query as it was compiled.
            outcome: What the mechanism released.
            charges: What was paid for it.
            note: Anything else that the reader should know.
        """
        if isinstance(outcome, Refused):
            return self.refused(outcome, asked)
        facts = self._facts(asked, outcome.path, charges, note)
        released = _Released(self.dataset.universe, self.query, facts)
        return MAKERS[answer_kind(self.query, asked)](released, outcome)

    def quoted(self, asked: AnyQuery, quote: Quote, note: str | None) -> Answer:
        """What an answer would cost, or why there would be none.

        Args:
            asked: The query as it was compiled.
            quote: What the mechanism says.
            note: Anything else that the reader should know.
        """
        if isinstance(quote.outcome, Refused):
            return self.refused(quote.outcome, asked)
        path = Path.MEASURED if quote.outcome is None else quote.outcome.path
        return QuotedAnswer(**self._facts(asked, path, quote.charges, note))

    def _head(self, asked: AnyQuery | None) -> dict[str, Any]:
        """The query that is replied to."""
        return {
            "dataset": self.dataset.name,
            "query_id": self.query.query_id,
            "analyst": self.analyst,
            "kind": answer_kind(self.query, asked),
        }

    def _facts(
        self, asked: AnyQuery, path: Path, charges: tuple[Charge, ...], note: str | None
    ) -> dict[str, Any]:
        """The fields that quotes and answers of all kinds have."""
        return {
            **self._head(asked),
            **self.dataset.standing(asked.window),
            "difficulty": path.difficulty.value,
            "path": path.value,
            "privacy_loss": _loss(charges),
            "note": note,
        }


def _loss(charges: tuple[Charge, ...]) -> PrivacyLoss:
    if not charges:
        return _NO_LOSS
    worst = max(max(charge.rho, charge.delta) for charge in charges)
    return PrivacyLoss(share=worst / UNITS, blocks=len(charges))


# ---------------------------------------------------------------- one function for each kind


@dataclass(frozen=True, slots=True)
class _Released:
    """What the answer of any kind is made of, besides the outcome.

    Attributes:
        universe: The schema of the data set.
        query: The query as it was sent.
        facts: The fields that answers of all kinds have.
    """

    universe: Universe
    query: QueryFields
    facts: dict[str, Any]


def _predicate(released: _Released, outcome: Answered) -> PredicateAnswer:
    return PredicateAnswer(**released.facts, **_count(outcome))


def _threshold(released: _Released, outcome: Answered) -> ThresholdAnswer:
    return ThresholdAnswer(**released.facts, **_count(outcome), attribute=released.query.attribute)


def _adaptive_threshold(released: _Released, outcome: Answered) -> AdaptiveThresholdAnswer:
    return AdaptiveThresholdAnswer(
        **released.facts, **_count(outcome), attribute=released.query.attribute
    )


def _count(outcome: Answered) -> dict[str, Any]:
    return {
        "value": outcome.value,
        "count": round(outcome.count),
        "error_bar": outcome.error_bar,
        "error_bar_simultaneous": outcome.error_bar_simultaneous,
        "confidence": outcome.confidence,
    }


def _table(released: _Released, outcome: TableAnswered) -> TableAnswer:
    return TableAnswer(**released.facts, **_cells(released, released.query.group_by, outcome))


def _threshold_curve(released: _Released, outcome: TableAnswered) -> ThresholdCurveAnswer:
    assert released.query.attribute is not None, "the message was checked"
    cells = _cells(released, (released.query.attribute,), outcome)
    return ThresholdCurveAnswer(**released.facts, **cells)


def _cells(
    released: _Released, attributes: tuple[str, ...], outcome: TableAnswered
) -> dict[str, Any]:
    table = Table(
        attributes=attributes,
        labels=_labels(released.universe, attributes),
        values=tuple(cell.value for cell in outcome.cells),
        counts=tuple(round(cell.count) for cell in outcome.cells),
        error_bars=tuple(cell.error_bar for cell in outcome.cells),
        error_bars_simultaneous=tuple(cell.error_bar_simultaneous for cell in outcome.cells),
    )
    return {"table": table, "confidence": outcome.cells[0].confidence}


def _labels(universe: Universe, attributes: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return tuple(universe.attributes[universe.index(name)].labels for name in attributes)


def _sum(released: _Released, outcome: Summed) -> SumAnswer:
    (cell,) = outcome.cells
    return SumAnswer(
        **_with_binning(released),
        value=min(1.0, cell.count / outcome.n),
        count=round(cell.count),
        error_bar=_share(cell.count_bar, outcome.n),
        total=cell.total,
        total_bar=cell.total_bar,
        mean=cell.mean,
        mean_bar=cell.mean_bar,
        rows=None if cell.rows is None else round(cell.rows),
        rows_bar=cell.rows_bar,
        confidence=outcome.confidence,
    )


def _sum_by_group(released: _Released, outcome: Summed) -> SumByGroupAnswer:
    attributes = released.query.group_by
    rows = [cell.rows for cell in outcome.cells if cell.rows is not None]
    table = SumTable(
        attributes=attributes,
        labels=_labels(released.universe, attributes),
        values=tuple(cell.count / outcome.n for cell in outcome.cells),
        counts=tuple(round(cell.count) for cell in outcome.cells),
        error_bars=tuple(_share(cell.count_bar, outcome.n) for cell in outcome.cells),
        totals=tuple(cell.total for cell in outcome.cells),
        total_bars=tuple(cell.total_bar for cell in outcome.cells),
        means=tuple(cell.mean for cell in outcome.cells),
        mean_bars=tuple(cell.mean_bar for cell in outcome.cells),
        rows=tuple(map(round, rows)) if rows else None,
        rows_bars=tuple(cell.rows_bar for cell in outcome.cells) if rows else None,
    )
    return SumByGroupAnswer(**_with_binning(released), table=table, confidence=outcome.confidence)


def _share(rows: float | None, n: int) -> float | None:
    """A half width in rows as a share of the rows asked."""
    return None if rows is None else min(1.0, rows / n)


def _with_binning(released: _Released) -> dict[str, Any]:
    """The facts of a sum, with a note about what its bars leave out: a row counts as its representative."""
    name, note = released.query.attribute, released.facts["note"]
    assert name is not None, "the message was checked"
    attribute = released.universe.attributes[released.universe.index(name)]
    assert isinstance(attribute, Number), "numbers are added up"
    low, high = (number_text(edge) for edge in (attribute.edges[0], attribute.edges[-1]))
    binning = (
        f"beside the bars: a value of {name} counts as its bin's representative, which is up to "
        f"{number_text(attribute.binning_error)} off between {low} and {high}, and beyond them by any amount"
    )
    said = binning if note is None else f"{note}; {binning}"
    return {**released.facts, "note": said, "attribute": name}


def _quantile(released: _Released, outcome: Found) -> QuantileAnswer:
    return QuantileAnswer(**released.facts, **_found(released, outcome), rank=released.query.rank)


def _median(released: _Released, outcome: Found) -> MedianAnswer:
    return MedianAnswer(**released.facts, **_found(released, outcome))


def _mode(released: _Released, outcome: Found) -> ModeAnswer:
    return ModeAnswer(**released.facts, **_found(released, outcome))


def _found(released: _Released, outcome: Found) -> dict[str, Any]:
    return {
        "attribute": released.query.attribute,
        "found": _cell(released.universe, outcome),
        "no_answer": True if outcome.code is None else None,
        "error_bar": outcome.rank_error,
        "confidence": outcome.confidence,
    }


def _cell(universe: Universe, outcome: Found | Placed) -> FoundCell | None:
    """The cell that an outcome names, if it names one."""
    if outcome.attribute is None or outcome.code is None:
        return None
    attribute, code = universe.attributes[outcome.attribute], outcome.code
    label = attribute.labels[code]
    if not isinstance(attribute, Number) or code == attribute.missing_cell:
        return FoundCell(label=label)
    ends = (None, *attribute.edges, None)
    return FoundCell(label=label, low=ends[code], high=ends[code + 1])


def _prefix_batch(released: _Released, outcome: BatchAnswered) -> PrefixBatchAnswer:
    counts = tuple(round(value * outcome.n) for value in outcome.values)
    return PrefixBatchAnswer(
        **released.facts,
        attribute=released.query.attribute,
        batch=Batched(values=outcome.values, counts=counts),
        error_bar_simultaneous=outcome.error_bar,
        confidence=outcome.confidence,
    )


def _correlated_vector(released: _Released, outcome: Responses) -> CorrelatedVectorAnswer:
    return CorrelatedVectorAnswer(
        **released.facts,
        attribute=released.query.attribute,
        vector=Vector(bits=b64encode(outcome.bits).decode(), agreement=outcome.agreement),
        error_bar=outcome.error_bar,
        confidence=outcome.confidence,
    )


def _between(released: _Released, outcome: Placed) -> BetweenAnswer:
    return BetweenAnswer(
        **released.facts,
        low=released.query.low,
        high=released.query.high,
        side=outcome.side.value,
        error_bar=outcome.error_bar,
        confidence=outcome.confidence,
    )


def _interior_point(released: _Released, outcome: Placed) -> InteriorPointAnswer:
    return InteriorPointAnswer(
        **released.facts,
        attribute=released.query.attribute,
        side=outcome.side.value,
        found=_cell(released.universe, outcome),
        confidence=outcome.confidence,
    )


MAKERS: Final[Mapping[str, Callable[[_Released, Any], NoisyAnswer]]] = {
    "predicate": _predicate,
    "table": _table,
    "sum": _sum,
    "sum_by_group": _sum_by_group,
    "threshold": _threshold,
    "threshold_curve": _threshold_curve,
    "quantile": _quantile,
    "median": _median,
    "mode": _mode,
    "prefix_batch": _prefix_batch,
    "correlated_vector": _correlated_vector,
    "between": _between,
    "interior_point": _interior_point,
    "adaptive_threshold": _adaptive_threshold,
}
"""The function that makes the answer of each kind. All outcomes of a kind have one class."""
