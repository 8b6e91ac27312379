"""Kinds of queries besides counts: what answers each of them, chosen by a definition's ``kinds``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from stream_dp.core.kinds.adaptive_threshold.answerer import Adaptive
from stream_dp.core.kinds.base import Answerer
from stream_dp.core.kinds.between.answerer import Between
from stream_dp.core.kinds.correlated_vector.answerer import CorrelatedVectors
from stream_dp.core.kinds.interior_point.answerer import Interior
from stream_dp.core.kinds.median_mode.answerer import Medians, Modes
from stream_dp.core.kinds.prefix_batch.answerer import Batches
from stream_dp.core.kinds.threshold.answerer import Thresholds
from stream_dp.messages.definitions import KindsSpec

__all__ = ["ANSWERERS", "chosen", "setting_of"]

_ANSWERERS: Final[tuple[type[Answerer], ...]] = (
    Thresholds,
    Medians,
    Modes,
    Batches,
    CorrelatedVectors,
    Between,
    Interior,
    Adaptive,
)

ANSWERERS: Final[Mapping[str, type[Answerer]]] = {one.name: one for one in _ANSWERERS}
"""By the name of the setting that turns it on; the setting's fields are its own arguments."""


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
