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
from stream_dp.messages.definition.profile_specs import (
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


def _of_papers(mechanism: Callable[..., Phased], queries: str) -> Callable[[Any, Setup], Mechanism]:
    """Returns what makes a mechanism of the papers from its settings, which are its arguments.

    With ``doubling``, it is made for stages, of which the first one has as many queries as the settings say.

    Args:
        mechanism: The class of the mechanism.
        queries: The setting that says how many queries each phase has.
    """

    def made(settings: PhasedSpec, setup: Setup) -> Mechanism:
        others = settings.model_dump(exclude={"profile", "doubling", queries})

        def make(privacy: Privacy, accuracy: Accuracy, n_queries: int) -> Phased:
            return mechanism(setup.universe, privacy, accuracy, **{queries: n_queries}, **others)

        if settings.doubling:
            return Doubling(make, setup.privacy, setup.accuracy, first=settings.n_queries)
        return make(setup.privacy, setup.accuracy, settings.n_queries)

    return made


def _gated(settings: GatedSpec, setup: Setup) -> Mechanism:
    return Gated(
        setup.universe,
        setup.privacy,
        setup.accuracy,
        segments=settings.segments,
        prior=settings.prior,
    )


def _counts(_: CountsSpec, setup: Setup) -> Mechanism:
    return FreshCounts(
        setup.universe,
        setup.accuracy,
        composition_of(setup.privacy),
        kept=setup.definition.kept_phases,
    )


def _whole_table(_: WholeTableSpec, setup: Setup) -> Mechanism:
    return WholeTable(setup.universe, setup.privacy, setup.accuracy)


def _weights(settings: WeightsSpec | BypassSpec, setup: Setup) -> Mechanism:
    mechanism: type[GrowingWeights] = Bypass
    if isinstance(settings, WeightsSpec):
        mechanism = GrowingWeights if settings.growing else Weights
    return mechanism(
        setup.universe,
        setup.accuracy,
        composition_of(setup.privacy),
        on_exhausted=setup.definition.on_exhausted,
    )


PAPERS: Final[tuple[Profile[Any], ...]] = (
    Profile(MedianSpec, _of_papers(Median, "queries"), EpsilonLine()),
    Profile(SequentialSpec, _of_papers(Sequential, "queries_per_phase"), EpsilonLine()),
    Profile(MemorySpec, _of_papers(Memory, "queries_per_phase"), EpsilonLine()),
    Profile(GatedSpec, _gated, RhoLine()),
    Profile(CountsSpec, _counts, RhoLine()),
    Profile(WholeTableSpec, _whole_table, RhoLine()),
    Profile(WeightsSpec, _weights, RhoLine()),
    Profile(BypassSpec, _weights, RhoLine()),
)
