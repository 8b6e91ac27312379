"""The profile ``counts``: a fresh noisy count for each new query."""

from __future__ import annotations

from stream_dp.core.baselines.counts import FreshCounts
from stream_dp.core.mechanism import Mechanism
from stream_dp.core.sparse_vector.composition import composition_of
from stream_dp.messages.definitions import CountsSpec
from stream_dp.profiles.base import Profile, Setup
from stream_dp.profiles.lines import RhoLine


def _make(settings: CountsSpec, setup: Setup) -> Mechanism:
    del settings
    return FreshCounts(
        setup.universe,
        setup.accuracy,
        composition_of(setup.privacy),
        kept=setup.definition.kept_phases,
    )


COUNTS = Profile(CountsSpec, _make, RhoLine())
