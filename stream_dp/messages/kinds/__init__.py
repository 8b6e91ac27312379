"""The kinds of queries, as the messages know them: one module for each, joined here.

To add a kind, write its module and name it four times below.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal

from pydantic import model_validator
from pydantic_core import PydanticCustomError

from stream_dp.messages.answer_forms import NoisyAnswer
from stream_dp.messages.kinds.adaptive_threshold_kind import (
    ADAPTIVE_THRESHOLD,
    AdaptiveThresholdSpec,
)
from stream_dp.messages.kinds.between_kind import BETWEEN, BetweenSpec
from stream_dp.messages.kinds.correlated_vector_kind import CORRELATED_VECTOR, CorrelatedVectorSpec
from stream_dp.messages.kinds.correlation_kind import CORRELATIONS
from stream_dp.messages.kinds.count_kind import COUNTS
from stream_dp.messages.kinds.difference_kind import DIFFERENCES
from stream_dp.messages.kinds.interior_point_kind import INTERIOR_POINT, InteriorPointSpec
from stream_dp.messages.kinds.kind_messages import QueryShape
from stream_dp.messages.kinds.median_kind import MEDIAN, StableMedianSpec
from stream_dp.messages.kinds.mode_kind import MODE, ModeSpec
from stream_dp.messages.kinds.prefix_batch_kind import PREFIX_BATCH, PrefixBatchSpec
from stream_dp.messages.kinds.quantile_kind import QUANTILES
from stream_dp.messages.kinds.share_kind import SHARES
from stream_dp.messages.kinds.sum_kind import SUMS
from stream_dp.messages.kinds.threshold_kind import THRESHOLD, ThresholdSpec
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


_KINDS: Final = (
    COUNTS,
    SUMS,
    SHARES,
    DIFFERENCES,
    CORRELATIONS,
    QUANTILES,
    THRESHOLD,
    MEDIAN,
    MODE,
    PREFIX_BATCH,
    CORRELATED_VECTOR,
    BETWEEN,
    INTERIOR_POINT,
    ADAPTIVE_THRESHOLD,
)

FIELDS: Final[Mapping[str, QueryShape]] = MappingProxyType(
    {kind: shape for one in _KINDS for kind, shape in one.queries.items()}
)
"""The fields of each kind of query."""

ANSWERS: Final[Mapping[str, type[NoisyAnswer]]] = MappingProxyType(
    {kind: model for one in _KINDS for kind, model in one.answers.items()}
)
"""The model of each kind of answer."""

_OF_KINDS = dict.fromkeys(name for shape in FIELDS.values() for name in shape.names)

ABSENT: Final[Mapping[str, tuple[str, ...]]] = {
    kind: tuple(name for name in _OF_KINDS if name not in shape.names)
    for kind, shape in FIELDS.items()
}
"""The fields that each kind of query must not have, always in the same order."""
