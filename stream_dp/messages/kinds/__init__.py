"""The kinds of queries, as the messages know them: one module for each, joined here.

To add a kind, write its module, and name it below: in its literal, its settings, its fields and its answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from stream_dp.messages.answer_forms import NoisyAnswer
from stream_dp.messages.kinds.adaptive_threshold_kind import (
    AdaptiveThresholdAnswer,
    AdaptiveThresholdSpec,
)
from stream_dp.messages.kinds.between_kind import BetweenAnswer, BetweenSpec
from stream_dp.messages.kinds.correlated_vector_kind import (
    CorrelatedVectorAnswer,
    CorrelatedVectorSpec,
)
from stream_dp.messages.kinds.correlation_kind import CorrelationAnswer
from stream_dp.messages.kinds.count_kind import PredicateAnswer, TableAnswer
from stream_dp.messages.kinds.difference_kind import DifferenceAnswer, DifferenceByGroupAnswer
from stream_dp.messages.kinds.interior_point_kind import InteriorPointAnswer, InteriorPointSpec
from stream_dp.messages.kinds.kind_messages import QueryShape
from stream_dp.messages.kinds.median_kind import MedianAnswer, StableMedianSpec
from stream_dp.messages.kinds.mode_kind import ModeAnswer, ModeSpec
from stream_dp.messages.kinds.prefix_batch_kind import PrefixBatchAnswer, PrefixBatchSpec
from stream_dp.messages.kinds.quantile_kind import QuantileAnswer, QuantileByGroupAnswer
from stream_dp.messages.kinds.share_kind import ShareAnswer, ShareByGroupAnswer
from stream_dp.messages.kinds.sum_kind import SumAnswer, SumByGroupAnswer
from stream_dp.messages.kinds.threshold_kind import (
    ThresholdAnswer,
    ThresholdCurveAnswer,
    ThresholdSpec,
)
from stream_dp.messages.message_base import Request

__all__ = ["ABSENT", "ANSWERS", "FIELDS", "KindsSpec", "QueryKind"]

QueryKind = Literal[
    "predicate",
    "table",
    "sum",
    "share",
    "difference",
    "correlation",
    "quantile",
    "threshold",
    "median",
    "mode",
    "prefix_batch",
    "correlated_vector",
    "between",
    "interior_point",
    "adaptive_threshold",
]
"""The kind that a query can name."""


class KindsSpec(Request):
    """The kinds of queries other than counts, and their settings. A kind without settings is refused."""

    threshold: ThresholdSpec | None = None
    median: StableMedianSpec | None = None
    mode: ModeSpec | None = None
    prefix_batch: PrefixBatchSpec | None = None
    correlated_vector: CorrelatedVectorSpec | None = None
    between: BetweenSpec | None = None
    interior_point: InteriorPointSpec | None = None
    adaptive_threshold: AdaptiveThresholdSpec | None = None

    @model_validator(mode="before")
    @classmethod
    def _known(cls, given: object) -> object:
        """Refuses unknown kinds."""
        if isinstance(given, dict) and (unknown := sorted(given.keys() - cls.model_fields.keys())):
            known = ", ".join(cls.model_fields)
            raise PydanticCustomError(
                "kind_unknown", "unknown kind", {"given": unknown[0][:64], "known": known}
            )
        return given


_PRECISE: Final = ("error", "at_most")
_ABOUT_GROUPS: Final = ("where", "group_by", *_PRECISE)
_COUNTED: Final = ("where", *_PRECISE, "fresh", "once")

FIELDS: Final[Mapping[str, QueryShape]] = MappingProxyType(
    {
        "predicate": QueryShape((), _COUNTED),
        "table": QueryShape(("group_by",), _COUNTED),
        "sum": QueryShape(
            ("attribute",), ("where", "group_by", "up_to", "count_rows", "mean", *_PRECISE)
        ),
        "share": QueryShape(("share_of",), _ABOUT_GROUPS),
        "difference": QueryShape(("minus_window",), _ABOUT_GROUPS),
        "correlation": QueryShape(("attribute", "other"), ("where", *_PRECISE)),
        "quantile": QueryShape(("attribute", "rank"), _ABOUT_GROUPS),
        "threshold": QueryShape(("attribute",), ("where",)),
        "median": QueryShape(("attribute",)),
        "mode": QueryShape(("attribute",)),
        "prefix_batch": QueryShape(("attribute", "wheres")),
        "correlated_vector": QueryShape(("attribute",)),
        "between": QueryShape(("where", "low", "high")),
        "interior_point": QueryShape(("attribute", "where")),
        "adaptive_threshold": QueryShape(("attribute", "where")),
    }
)
"""The fields of each kind of query: those that it needs, and those that it may have."""

_ANSWERS: Final[tuple[type[NoisyAnswer], ...]] = (
    *(PredicateAnswer, TableAnswer, SumAnswer, SumByGroupAnswer, ShareAnswer, ShareByGroupAnswer),
    *(DifferenceAnswer, DifferenceByGroupAnswer, CorrelationAnswer),
    *(QuantileAnswer, QuantileByGroupAnswer, ThresholdAnswer, ThresholdCurveAnswer),
    *(MedianAnswer, ModeAnswer, PrefixBatchAnswer, CorrelatedVectorAnswer, BetweenAnswer),
    *(InteriorPointAnswer, AdaptiveThresholdAnswer),
)

ANSWERS: Final[Mapping[str, type[NoisyAnswer]]] = MappingProxyType(
    {model.model_fields["kind"].default: model for model in _ANSWERS}
)
"""The model of each kind of answer."""

_OF_KINDS = dict.fromkeys(name for shape in FIELDS.values() for name in shape.names)

ABSENT: Final[Mapping[str, tuple[str, ...]]] = {
    kind: tuple(name for name in _OF_KINDS if name not in shape.names)
    for kind, shape in FIELDS.items()
}
"""The fields that each kind of query must not have, always in the same order."""
