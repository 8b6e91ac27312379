"""From a definition to the objects of the core that serve it."""

from __future__ import annotations

from stream_dp.core.calibrated import Calibrated
from stream_dp.core.mechanism import Mechanism
from stream_dp.core.memory import Memory
from stream_dp.core.parameters import Accuracy, Privacy
from stream_dp.core.universe import Attribute, Boolean, Category, Number, Universe
from stream_dp.messages import (
    BooleanAttribute,
    CategoryAttribute,
    Definition,
    MemorySpec,
    NumberAttribute,
)

__all__ = ["build"]


def build(definition: Definition) -> tuple[Universe, Mechanism]:
    """The universe and a fresh mechanism of a data set.

    Raises:
        InvalidDefinition: The definition's parts do not fit together; names the field and the fix.
    """
    universe = Universe(tuple(_attribute(spec) for spec in definition.attributes))
    privacy = Privacy(definition.privacy.epsilon, definition.privacy.delta)
    accuracy = Accuracy(definition.accuracy.error, definition.accuracy.failure_probability)
    settings = definition.mechanism
    if isinstance(settings, MemorySpec):
        return universe, Memory(
            universe,
            privacy,
            accuracy,
            queries_per_phase=settings.queries_per_phase,
            phases=settings.phases,
            hypothesis_rows=settings.hypothesis_rows,
            representation=settings.representation,
        )
    return universe, Calibrated(
        universe,
        privacy,
        accuracy,
        on_exhausted=definition.on_exhausted,
        base_share=settings.base_share,
        pacing=settings.pacing,
    )


def _attribute(spec: CategoryAttribute | NumberAttribute | BooleanAttribute) -> Attribute:
    if isinstance(spec, CategoryAttribute):
        return Category(spec.name, spec.values, other=spec.other, missing=spec.missing)
    if isinstance(spec, NumberAttribute):
        return Number(spec.name, spec.edges, integer=spec.integer, missing=spec.missing)
    return Boolean(spec.name, missing=spec.missing)
