"""Kinds of queries besides counts: what answers each of them, and how an outcome becomes an answer."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from stream_dp.core.kinds.adaptive_threshold.adaptive_answerer import Adaptive
from stream_dp.core.kinds.between.between_answerer import Between
from stream_dp.core.kinds.correlated_vector.vector_answerer import CorrelatedVectors
from stream_dp.core.kinds.interior_point.interior_answerer import Interior
from stream_dp.core.kinds.kind_answerer import Answerer
from stream_dp.core.kinds.median_mode.stable_answerer import Medians, Modes
from stream_dp.core.kinds.prefix_batch.batch_answerer import Batches
from stream_dp.core.kinds.threshold.curve_answerer import Thresholds
from stream_dp.core.outcome import Answered, BatchAnswered, Found, Placed, Responses, TableAnswered
from stream_dp.messages import (
    AdaptiveThresholdAnswer,
    Batched,
    BetweenAnswer,
    CorrelatedVectorAnswer,
    InteriorPointAnswer,
    KindsSpec,
    MedianAnswer,
    ModeAnswer,
    PrefixBatchAnswer,
    ThresholdAnswer,
    ThresholdCurveAnswer,
    Vector,
)
from stream_dp.profiles.answer_fields import (
    COUNTS_AND_SUMS,
    Maker,
    Released,
    cell_fields,
    count_fields,
    found_cell,
    found_fields,
)


@dataclass(frozen=True, slots=True)
class Kind:
    """One kind of queries.

    Attributes:
        answerer: The class that answers them. It is named as the setting that turns the kind on, whose fields
            are its arguments.
        makers: The functions that make its answers, by the kind of the answer.
    """

    answerer: type[Answerer]
    makers: Mapping[str, Maker]


def _threshold(released: Released, outcome: Answered) -> ThresholdAnswer:
    return ThresholdAnswer(
        **released.facts, **count_fields(outcome), attribute=released.query.attribute
    )


def _threshold_curve(released: Released, outcome: TableAnswered) -> ThresholdCurveAnswer:
    assert released.query.attribute is not None, "the message was checked"
    cells = cell_fields(released, (released.query.attribute,), outcome)
    return ThresholdCurveAnswer(**released.facts, **cells)


def _median(released: Released, outcome: Found) -> MedianAnswer:
    return MedianAnswer(**released.facts, **found_fields(released, outcome))


def _mode(released: Released, outcome: Found) -> ModeAnswer:
    return ModeAnswer(**released.facts, **found_fields(released, outcome))


def _prefix_batch(released: Released, outcome: BatchAnswered) -> PrefixBatchAnswer:
    counts = tuple(round(value * outcome.n) for value in outcome.values)
    return PrefixBatchAnswer(
        **released.facts,
        attribute=released.query.attribute,
        batch=Batched(values=outcome.values, counts=counts),
        error_bar_simultaneous=outcome.error_bar,
        confidence=outcome.confidence,
    )


def _correlated_vector(released: Released, outcome: Responses) -> CorrelatedVectorAnswer:
    return CorrelatedVectorAnswer(
        **released.facts,
        attribute=released.query.attribute,
        vector=Vector(bits=b64encode(outcome.bits).decode(), agreement=outcome.agreement),
        error_bar=outcome.error_bar,
        confidence=outcome.confidence,
    )


def _between(released: Released, outcome: Placed) -> BetweenAnswer:
    return BetweenAnswer(
        **released.facts,
        low=released.query.low,
        high=released.query.high,
        side=outcome.side.value,
        error_bar=outcome.error_bar,
        confidence=outcome.confidence,
    )


def _interior_point(released: Released, outcome: Placed) -> InteriorPointAnswer:
    return InteriorPointAnswer(
        **released.facts,
        attribute=released.query.attribute,
        side=outcome.side.value,
        found=found_cell(released.universe, outcome),
        confidence=outcome.confidence,
    )


def _adaptive_threshold(released: Released, outcome: Answered) -> AdaptiveThresholdAnswer:
    return AdaptiveThresholdAnswer(
        **released.facts, **count_fields(outcome), attribute=released.query.attribute
    )


_KINDS: Final = (
    Kind(Thresholds, {"threshold": _threshold, "threshold_curve": _threshold_curve}),
    Kind(Medians, {"median": _median}),
    Kind(Modes, {"mode": _mode}),
    Kind(Batches, {"prefix_batch": _prefix_batch}),
    Kind(CorrelatedVectors, {"correlated_vector": _correlated_vector}),
    Kind(Between, {"between": _between}),
    Kind(Interior, {"interior_point": _interior_point}),
    Kind(Adaptive, {"adaptive_threshold": _adaptive_threshold}),
)

ANSWERERS: Final[Mapping[str, type[Answerer]]] = {
    kind.answerer.name: kind.answerer for kind in _KINDS
}
"""The answerer of each kind, by the name of the setting that turns it on."""

MAKERS: Final[Mapping[str, Maker]] = {
    **COUNTS_AND_SUMS,
    **{name: make for kind in _KINDS for name, make in kind.makers.items()},
}
"""The function that makes each kind of answer."""


def chosen(kinds: KindsSpec) -> list[tuple[type[Answerer], dict[str, Any]]]:
    """The answerers that a definition turns on with their settings, always in the same order."""
    settings = {name: getattr(kinds, name) for name in KindsSpec.model_fields}
    return [
        (ANSWERERS[name], spec.model_dump()) for name, spec in settings.items() if spec is not None
    ]


def setting_of(kind: str) -> str:
    """The setting under ``kinds`` that turns a kind of queries on."""
    (setting,) = (name for name, one in ANSWERERS.items() if kind in one.kinds)
    return setting
