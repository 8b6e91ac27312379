"""The profile ``weights``: private multiplicative weights, on one phase or on a table that grows."""

from __future__ import annotations

from stream_dp.core.mechanism import Mechanism
from stream_dp.core.sparse_vector.composition import composition_of
from stream_dp.core.sparse_vector.weights import GrowingWeights, Weights
from stream_dp.messages.definitions import WeightsSpec
from stream_dp.profiles.base import Profile, Setup
from stream_dp.profiles.lines import RhoLine


def _make(settings: WeightsSpec, setup: Setup) -> Mechanism:
    mechanism = GrowingWeights if settings.growing else Weights
    return mechanism(
        setup.universe,
        setup.accuracy,
        composition_of(setup.privacy),
        on_exhausted=setup.definition.on_exhausted,
    )


WEIGHTS = Profile(WeightsSpec, _make, RhoLine())
