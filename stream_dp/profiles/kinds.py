"""Kinds of queries besides counts: what answers each of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from stream_dp.core.kinds.adaptive_threshold.adaptive_answerer import Adaptive
from stream_dp.core.kinds.between.between_answerer import Between
from stream_dp.core.kinds.correlated_vector.vector_answerer import CorrelatedVectors
from stream_dp.core.kinds.interior_point.interior_answerer import Interior
from stream_dp.core.kinds.kind_answerer import Answerer
from stream_dp.core.kinds.median_mode.stable_answerer import Medians, Modes
from stream_dp.core.kinds.prefix_batch.batch_answerer import Batches
from stream_dp.core.kinds.threshold.curve_answerer import Thresholds
from stream_dp.messages import KindsSpec

ANSWERERS: Final[Mapping[str, type[Answerer[Any]]]] = {
    answerer.name: answerer
    for answerer in (
        Thresholds,
        Medians,
        Modes,
        Batches,
        CorrelatedVectors,
        Between,
        Interior,
        Adaptive,
    )
}
"""The class that answers each kind, by the name of the setting whose fields are its arguments."""


def chosen(kinds: KindsSpec) -> list[tuple[type[Answerer[Any]], dict[str, Any]]]:
    """The answerers that a definition turns on with their settings, always in the same order."""
    settings = {name: getattr(kinds, name) for name in KindsSpec.model_fields}
    return [
        (ANSWERERS[name], spec.model_dump()) for name, spec in settings.items() if spec is not None
    ]
