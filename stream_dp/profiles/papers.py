"""The profiles of the papers and the baselines: one record each, from its settings to its mechanism."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from stream_dp.core.baselines.fresh_counts import FreshCounts
from stream_dp.core.baselines.whole_noisy_table import WholeTable
from stream_dp.core.budget.parameters import Accuracy, Privacy
from stream_dp.core.mechanism import Mechanism
from stream_dp.core.median.doubling_stages import Doubling
from stream_dp.core.median.memory import Memory
from stream_dp.core.median.phased import Phased
from stream_dp.core.median.sequential import Median, Sequential
from stream_dp.core.sparse_vector.bypass import Bypass
from stream_dp.core.sparse_vector.composition import composition_of
from stream_dp.core.sparse_vector.gated import Gated
from stream_dp.core.sparse_vector.weights import GrowingWeights, Weights
from stream_dp.messages.definitions import (
    BypassSpec,
    CountsSpec,
    GatedSpec,
    MedianSpec,
    MemorySpec,
    PhasedSpec,
    SequentialSpec,
    WeightsSpec,
    WholeTableSpec,
)
from stream_dp.profiles.line_units import EpsilonLine, RhoLine
from stream_dp.profiles.profile import Profile, Setup


def _with_stages(
    settings: PhasedSpec, setup: Setup, make: Callable[[Privacy, Accuracy, int], Phased]
) -> Mechanism:
    """The mechanism for as many queries as the settings say, or for stages that begin with as many.

    Args:
        settings: The settings of a papers' profile.
        setup: The universe, guarantee and accuracy of the data set.
        make: Makes the mechanism for a promise, an accuracy and a number of queries in each phase.
    """
    if settings.doubling:
        return Doubling(make, setup.privacy, setup.accuracy, first=settings.n_queries)
    return make(setup.privacy, setup.accuracy, settings.n_queries)


def _median(settings: MedianSpec, setup: Setup) -> Mechanism:
    def make(privacy: Privacy, accuracy: Accuracy, queries: int) -> Median:
        return Median(
            setup.universe,
            privacy,
            accuracy,
            queries=queries,
            hypothesis_rows=settings.hypothesis_rows,
            representation=settings.representation,
        )

    return _with_stages(settings, setup, make)


def _sequential(settings: SequentialSpec, setup: Setup) -> Mechanism:
    def make(privacy: Privacy, accuracy: Accuracy, queries: int) -> Sequential:
        return Sequential(
            setup.universe,
            privacy,
            accuracy,
            queries_per_phase=queries,
            phases=settings.phases,
            hypothesis_rows=settings.hypothesis_rows,
            representation=settings.representation,
            composition=settings.composition,
        )

    return _with_stages(settings, setup, make)


def _memory(settings: MemorySpec, setup: Setup) -> Mechanism:
    def make(privacy: Privacy, accuracy: Accuracy, queries: int) -> Memory:
        return Memory(
            setup.universe,
            privacy,
            accuracy,
            queries_per_phase=queries,
            phases=settings.phases,
            hypothesis_rows=settings.hypothesis_rows,
            representation=settings.representation,
        )

    return _with_stages(settings, setup, make)


def _gated(settings: GatedSpec, setup: Setup) -> Mechanism:
    return Gated(
        setup.universe,
        setup.privacy,
        setup.accuracy,
        segments=settings.segments,
        prior=settings.prior,
    )


def _counts(settings: CountsSpec, setup: Setup) -> Mechanism:
    del settings
    return FreshCounts(
        setup.universe,
        setup.accuracy,
        composition_of(setup.privacy),
        kept=setup.definition.kept_phases,
    )


def _whole_table(settings: WholeTableSpec, setup: Setup) -> Mechanism:
    del settings
    return WholeTable(setup.universe, setup.privacy, setup.accuracy)


def _weights(settings: WeightsSpec, setup: Setup) -> Mechanism:
    mechanism = GrowingWeights if settings.growing else Weights
    return mechanism(
        setup.universe,
        setup.accuracy,
        composition_of(setup.privacy),
        on_exhausted=setup.definition.on_exhausted,
    )


def _bypass(settings: BypassSpec, setup: Setup) -> Mechanism:
    del settings
    return Bypass(
        setup.universe,
        setup.accuracy,
        composition_of(setup.privacy),
        on_exhausted=setup.definition.on_exhausted,
    )


PAPERS: Final[tuple[Profile[Any], ...]] = (
    Profile(MedianSpec, _median, EpsilonLine()),
    Profile(SequentialSpec, _sequential, EpsilonLine()),
    Profile(MemorySpec, _memory, EpsilonLine()),
    Profile(GatedSpec, _gated, RhoLine()),
    Profile(CountsSpec, _counts, RhoLine()),
    Profile(WholeTableSpec, _whole_table, RhoLine()),
    Profile(WeightsSpec, _weights, RhoLine()),
    Profile(BypassSpec, _bypass, RhoLine()),
)
