"""From a definition to the objects of the core that serve it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

from stream_dp.core.accounting import UNITS, Budget, Charge
from stream_dp.core.baselines.counts import FreshCounts
from stream_dp.core.baselines.table import WholeTable
from stream_dp.core.kinds.adaptive_threshold.answerer import Adaptive
from stream_dp.core.kinds.base import Answerer, loss_of
from stream_dp.core.kinds.between.answerer import Between
from stream_dp.core.kinds.correlated_vector.answerer import CorrelatedVectors
from stream_dp.core.kinds.interior_point.answerer import Interior
from stream_dp.core.kinds.median_mode.answerer import Medians, Modes
from stream_dp.core.kinds.prefix_batch.answerer import Batches
from stream_dp.core.kinds.several import WithKinds
from stream_dp.core.kinds.threshold.answerer import Thresholds
from stream_dp.core.mechanism import Mechanism
from stream_dp.core.median.doubling import Doubling
from stream_dp.core.median.memory import Memory
from stream_dp.core.median.phased import Phased
from stream_dp.core.median.sequential import Median, Sequential
from stream_dp.core.parameters import Accuracy, Privacy, as_written
from stream_dp.core.residual.calibrated import Calibrated
from stream_dp.core.sparse_vector.bypass import Bypass
from stream_dp.core.sparse_vector.composition import composition_of
from stream_dp.core.sparse_vector.gated import Gated
from stream_dp.core.sparse_vector.weights import GrowingWeights, Weights
from stream_dp.core.universe import Attribute, Boolean, Category, Number, Universe
from stream_dp.errors import InvalidDefinition
from stream_dp.messages import (
    BooleanAttribute,
    BypassSpec,
    CalibratedSpec,
    CategoryAttribute,
    CountsSpec,
    Definition,
    GatedSpec,
    KindsSpec,
    MedianSpec,
    MemorySpec,
    NumberAttribute,
    PhasedSpec,
    SequentialSpec,
    WholeTableSpec,
)

__all__ = [
    "ANSWERERS",
    "budget_of",
    "build",
    "epsilon_spent",
    "line_of",
    "prices_of",
    "rows_of_a_phase",
    "rows_that_open",
]


def build(definition: Definition) -> tuple[Universe, Mechanism]:
    """The universe and a fresh mechanism of a data set.

    Raises:
        InvalidDefinition: The definition's parts do not fit together; names the field and the fix.
    """
    universe = universe_of(definition)
    privacy = Privacy(definition.privacy.epsilon, definition.privacy.delta)
    accuracy = Accuracy(definition.accuracy.error, definition.accuracy.failure_probability)
    return universe, _mechanism(definition, universe, privacy, accuracy)


def universe_of(definition: Definition) -> Universe:
    """The universe of a data set.

    Raises:
        InvalidDefinition: An attribute is not what it must be; names the field and the fix.
    """
    return Universe(
        tuple(_attribute(place, spec) for place, spec in enumerate(definition.attributes))
    )


def _mechanism(
    definition: Definition, universe: Universe, privacy: Privacy, accuracy: Accuracy
) -> Mechanism:
    """One for each class of settings, all of them named here."""
    settings, on_exhausted = definition.mechanism, definition.on_exhausted
    if isinstance(settings, CalibratedSpec):
        return _calibrated(settings, definition, universe, privacy, accuracy)
    if isinstance(settings, MedianSpec | SequentialSpec | MemorySpec):
        queries = (
            settings.queries if isinstance(settings, MedianSpec) else settings.queries_per_phase
        )
        make = partial(_phased, universe, settings)
        if settings.doubling:
            return Doubling(make, privacy, accuracy, first=queries)
        return make(privacy, accuracy, queries)
    if isinstance(settings, GatedSpec):
        return Gated(universe, privacy, accuracy, segments=settings.segments, prior=settings.prior)
    if isinstance(settings, WholeTableSpec):
        return WholeTable(universe, privacy, accuracy)
    composition = composition_of(privacy)
    if isinstance(settings, CountsSpec):
        return FreshCounts(universe, accuracy, composition)
    if isinstance(settings, BypassSpec):
        return Bypass(universe, accuracy, composition, on_exhausted=on_exhausted)
    weights = GrowingWeights if settings.growing else Weights
    return weights(universe, accuracy, composition, on_exhausted=on_exhausted)


def _calibrated(
    settings: CalibratedSpec,
    definition: Definition,
    universe: Universe,
    privacy: Privacy,
    accuracy: Accuracy,
) -> Mechanism:
    """Counts, and the other kinds that the definition names beside them."""
    chosen = _chosen(definition.kinds)
    counts = Calibrated(
        universe,
        privacy,
        accuracy,
        on_exhausted=definition.on_exhausted,
        base_share=settings.base_share,
        pacing=settings.pacing,
        approximate=any(answerer.approximate for answerer, _ in chosen),
    )
    if not chosen:
        return counts
    failure_probability = accuracy.failure_probability
    return WithKinds(
        counts,
        [
            answerer(universe, counts.budget, failure_probability=failure_probability, **spec)
            for answerer, spec in chosen
        ],
    )


def budget_of(definition: Definition) -> Budget:
    """What each line of a data set may hold, except under the papers' profiles, which have another unit."""
    approximate = any(answerer.approximate for answerer, _ in _chosen(definition.kinds))
    privacy = Privacy(definition.privacy.epsilon, definition.privacy.delta)
    return Budget.of(privacy, approximate=approximate)


def line_of(definition: Definition) -> dict[str, str]:
    """What a line may hold, in exact fractions: public, for the ledger."""
    privacy = definition.privacy
    if isinstance(definition.mechanism, PhasedSpec):
        return {"epsilon": str(as_written(privacy.epsilon)), "delta": str(Fraction(privacy.delta))}
    if privacy.delta == 0:
        return {"epsilon": str(Fraction(privacy.epsilon))}
    budget = budget_of(definition)
    return {"rho": str(budget.rho), "delta": str(budget.delta)}


def epsilon_spent(definition: Definition, share: float) -> float:
    """The loss of a line that spent this share of its budget, as epsilon at the promised delta."""
    privacy = definition.privacy
    if privacy.delta == 0 or isinstance(definition.mechanism, PhasedSpec):
        return share * privacy.epsilon  # by basic composition
    units = math.ceil(share * UNITS)
    return min(privacy.epsilon, budget_of(definition).epsilon(Charge(0, units, units)))


class Price(NamedTuple):
    """What one look of another kind may lose, and how many of them fill a line by themselves."""

    epsilon: float
    delta: float
    looks: int


def prices_of(definition: Definition) -> dict[str, Price]:
    """The price of a look of each other kind, by the name of its setting."""
    budget, found = budget_of(definition), {}
    for answerer, spec in _chosen(definition.kinds):
        loss = loss_of(budget, spec["share"], approximate=answerer.approximate)
        charge = loss.charge(budget, 0)
        looks = UNITS // max(charge.rho, charge.delta)
        found[answerer.name] = Price(float(loss.epsilon), float(loss.delta), looks)
    return found


def rows_of_a_phase(definition: Definition) -> int:
    """How many waiting rows open a phase. The papers' mechanisms may need more than was asked for."""
    if not isinstance(definition.mechanism, PhasedSpec):
        return definition.phase.min_rows
    return rows_that_open(build(definition)[1], definition)


def rows_that_open(mechanism: Mechanism, definition: Definition) -> int:
    """The same where the definition's mechanism is there already."""
    return max(definition.phase.min_rows, mechanism.rows_to_open)


ANSWERERS: Mapping[str, type[Answerer]] = {
    "threshold": Thresholds,
    "median": Medians,
    "mode": Modes,
    "prefix_batch": Batches,
    "correlated_vector": CorrelatedVectors,
    "between": Between,
    "interior_point": Interior,
    "adaptive_threshold": Adaptive,
}
"""By the name of the setting that turns it on; what else the setting says are its own arguments."""


def _chosen(kinds: KindsSpec) -> list[tuple[type[Answerer], dict[str, Any]]]:
    """The answerers that a definition turns on with their settings, always in the same order."""
    settings = {name: getattr(kinds, name) for name in KindsSpec.model_fields}
    return [
        (ANSWERERS[name], spec.model_dump()) for name, spec in settings.items() if spec is not None
    ]


def _phased(
    universe: Universe,
    settings: MedianSpec | SequentialSpec | MemorySpec,
    privacy: Privacy,
    accuracy: Accuracy,
    queries: int,
) -> Phased:
    """One of the papers' mechanisms, for so many queries a phase."""
    if isinstance(settings, MedianSpec):
        return Median(
            universe,
            privacy,
            accuracy,
            queries=queries,
            hypothesis_rows=settings.hypothesis_rows,
            representation=settings.representation,
        )
    if isinstance(settings, SequentialSpec):
        return Sequential(
            universe,
            privacy,
            accuracy,
            queries_per_phase=queries,
            phases=settings.phases,
            hypothesis_rows=settings.hypothesis_rows,
            representation=settings.representation,
            composition=settings.composition,
        )
    return Memory(
        universe,
        privacy,
        accuracy,
        queries_per_phase=queries,
        phases=settings.phases,
        hypothesis_rows=settings.hypothesis_rows,
        representation=settings.representation,
    )


def _attribute(
    place: int, spec: CategoryAttribute | NumberAttribute | BooleanAttribute
) -> Attribute:
    try:
        if isinstance(spec, CategoryAttribute):
            return Category(spec.name, spec.values, other=spec.other, missing=spec.missing)
        if isinstance(spec, NumberAttribute):
            return Number(
                spec.name,
                spec.edges,
                integer=spec.integer,
                missing=spec.missing,
                representatives=spec.representatives,
            )
        return Boolean(spec.name, missing=spec.missing)
    except InvalidDefinition as fault:
        field = f"attributes.{place}.{fault.field}"
        raise InvalidDefinition(field, fault.problem, fault.fix) from None
